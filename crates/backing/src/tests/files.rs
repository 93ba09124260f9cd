//! The swap file against its plain twin, and as others see it.

use super::{Directory, Random, Twins};
use crate::buffer::AlignedBytes;
use crate::{BackingError, BackingStore, MemoryBacking, SwapFile};
use sys::Errno;
use sys::file::Caching;

const BYTES_MAX: u64 = 1 << 20;

fn equals_memory(file: &SwapFile, seed: u64) {
    let mut random = Random::new(seed);
    let twin = MemoryBacking::new(BYTES_MAX);
    // A file ends where its last write did, a memory does not.
    let mut end = AlignedBytes::new(4096);
    end.fill(7);
    for store in [file as &dyn BackingStore, &twin] {
        store.write_at(BYTES_MAX - 4096, &end).unwrap();
        assert_eq!(store.write_at(BYTES_MAX, &end), Err(BackingError::Full));
        assert_eq!(store.read_at(BYTES_MAX, &mut end), Err(BackingError::Short { offset: BYTES_MAX }));
    }
    let (mut ours, mut twins) = (AlignedBytes::new(65536), AlignedBytes::new(65536));
    for _ in 0..500 {
        let blocks = 1 + random.below(16);
        let offset = random.below(256 - blocks + 1) * 4096;
        let bytes = blocks as usize * 4096;
        match random.below(4) {
            0 => {
                let byte = random.next() as u8;
                ours[..bytes].fill(byte);
                ours[0] = !byte;
                file.write_at(offset, &ours[..bytes]).unwrap();
                twin.write_at(offset, &ours[..bytes]).unwrap();
            }
            1 => {
                file.discard(offset, bytes as u64);
                twin.discard(offset, bytes as u64);
            }
            _ => {
                file.read_at(offset, &mut ours[..bytes]).unwrap();
                twin.read_at(offset, &mut twins[..bytes]).unwrap();
                assert!(ours[..bytes] == twins[..bytes]);
            }
        }
    }
}

#[test]
fn a_swap_file_equals_memory() {
    let directory = Directory::new("equal");
    let file = SwapFile::create_in(&directory.path("."), BYTES_MAX).unwrap();
    // The same asked of the file system by way of another program: dd opens with O_DIRECT, or says that it cannot.
    let probe = directory.0.join("probe");
    let dd = std::process::Command::new("dd")
        .args(["if=/dev/zero", "bs=4096", "count=1", "oflag=direct"])
        .arg(format!("of={}", probe.display()))
        .output();
    match dd {
        Ok(run) if run.status.success() => assert_eq!(file.caching(), Caching::Direct),
        other => println!("skipped: no direct I/O in {}: {other:?}", directory.0.display()),
    }
    let _ = std::fs::remove_file(probe);
    equals_memory(&file, 1);
    // And through the page cache, as on a file system without direct I/O.
    let file = SwapFile::create_in(&directory.path("."), BYTES_MAX).unwrap();
    file.file().set_direct(Caching::PageCache).unwrap();
    equals_memory(&file, 2);
    match SwapFile::create_in(c"/dev/shm", BYTES_MAX) {
        Ok(file) => equals_memory(&file, 3),
        Err(errno) => println!("not run: no /dev/shm here ({errno:?})"),
    }
}

#[test]
fn nobody_else_sees_a_swap_file() {
    let directory = Directory::new("unseen");
    let file = SwapFile::create_in(&directory.path("."), BYTES_MAX).unwrap();
    let shape = file.file().shape().unwrap();
    assert_eq!((shape.mode, shape.links), (0o600, 0));
    let mut twins = Twins::new(file, 1 << 16);
    twins.fill(&mut Random::new(5), 50, 1000);
    twins.read_all();
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 0);
}

#[test]
fn a_named_file_keeps_its_name_and_is_used_by_one() {
    let directory = Directory::new("named");
    let path = directory.path("swap");
    let file = SwapFile::open(&path, BYTES_MAX).unwrap();
    assert_eq!(SwapFile::open(&path, BYTES_MAX).unwrap_err(), Errno::WOULDBLOCK);
    let shape = file.file().shape().unwrap();
    assert_eq!((shape.mode, shape.links), (0o600, 1));
    let mut twins = Twins::new(file, 1 << 16);
    twins.fill(&mut Random::new(6), 50, 1000);
    twins.read_all();
    assert_eq!(SwapFile::create_in(&directory.path("none"), 1).unwrap_err(), Errno::NOENT);
    assert_eq!(SwapFile::create_in(&path, 1).unwrap_err(), Errno::NOTDIR);
}

#[test]
fn blocks_go_back_to_the_file_system() {
    let directory = Directory::new("punch");
    let file = SwapFile::create_in(&directory.path("."), BYTES_MAX).unwrap();
    let mut bytes = AlignedBytes::new(BYTES_MAX as usize);
    bytes.fill(1);
    file.write_at(0, &bytes).unwrap();
    let before = file.file().shape().unwrap().stored_bytes;
    file.discard(0, BYTES_MAX / 2);
    let after = file.file().shape().unwrap().stored_bytes;
    if after == before {
        println!("not checked: the file system of {:?} cannot punch holes", directory.0);
    }
    assert!(after <= before);
}

/// An errno of direct I/O that the file system promised and does not keep.
#[test]
fn requests_that_direct_io_refuses_go_through_the_page_cache() {
    let directory = Directory::new("refused");
    let file = SwapFile::create_in(&directory.path("."), BYTES_MAX).unwrap();
    // 100 bytes are no whole block, which stands in for a medium with larger ones.
    file.write_at(0, &[3; 100]).unwrap();
    let mut back = [0; 100];
    file.read_at(0, &mut back).unwrap();
    assert_eq!((back, file.caching()), ([3; 100], Caching::PageCache));
}
