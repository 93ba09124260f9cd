//! The swap file of a process, the log in it, and the faults of its device that `PLEAT_FAULT` may ask for.

use core::ffi::CStr;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use alloc::boxed::Box;

use backing::{BackingError, BackingStore, SegmentLog, SwapFile};
use pager::ledger::Ledger;
use sys::file::{File, Identity};
use sys::{Errno, thread};

use crate::custodian::Custodian;
use crate::entry::Membership;
use crate::keeper::STUCK_NS;

/// A swap file of this process's own at the place of `--swap`; none if there is to be none.
pub(crate) fn open_file(membership: &Membership) -> Result<Option<SwapFile>, Errno> {
    let bytes_max = bytes_max(membership);
    if bytes_max == 0 {
        return Ok(None);
    }
    let path = membership.ledger.swap_path();
    let path = CStr::from_bytes_until_nul(&path).expect("it has zeros behind it");
    let identity = membership.ledger.swap_place.identity.load();
    let file = find_place(membership.ledger, path, identity).map_or_else(|| File::create_unnamed_near(path), Ok)?;
    let is_set_aside = file.is(identity);
    Ok(Some(if is_set_aside { SwapFile::set_aside(file, bytes_max) } else { SwapFile::from_file(file, bytes_max) }))
}

/// A file where `pleat run` sees the place of `--swap`. In a namespace of mounts, and behind a chroot, the path leads elsewhere, or to where nothing
/// may be written: then it is looked for in /proc, and asked for.
fn find_place(ledger: &Ledger, path: &CStr, identity: Identity) -> Option<File> {
    let runner = ledger.runner_pid.load(Ordering::Relaxed);
    let descriptor = ledger.swap_place.descriptor.load(Ordering::Relaxed) as u32;
    let in_proc = || File::create_at(sys::process::descriptor_path(runner, descriptor, &mut [0; _])?, identity);
    File::create_at(path, identity).or_else(in_proc).or_else(|| Custodian::of(ledger).swap_file())
}

/// The log in a swap file.
pub(crate) fn segment_log(device: Box<dyn BackingStore>, membership: &Membership) -> Result<SegmentLog, Errno> {
    // A segment is large so that writing is cheap, but those in memory must be a small part of the budget.
    let part = membership.ledger.budget_bytes.load(Ordering::Relaxed) / (membership.managed().count() as u64 + 1);
    let segment_bytes = (part / 256).next_power_of_two().clamp(64 << 10, backing::SEGMENT_BYTES as u64) as usize;
    let key = sys::process::random_key()?;
    let bytes_max = bytes_max(membership);
    Ok(SegmentLog::with_segment_bytes(device, key, bytes_max, segment_bytes))
}

fn bytes_max(membership: &Membership) -> u64 {
    membership.ledger.swap_bytes_max.load(Ordering::Relaxed)
}

/// The swap file as the log sees it, with the fault that `PLEAT_FAULT` may ask for.
pub(crate) fn device(file: SwapFile, fault: &[u8]) -> Box<dyn BackingStore> {
    let (unreadable, writes) = match fault {
        b"swap-hangs" => (0..0, Writes::Hang),
        b"swap-unwritable" => (0..0, Writes::Fail),
        b"swap-eio" => (0..u64::MAX, Writes::Succeed),
        b"swap-late" => (0..0, Writes::Succeed),
        // A forked child has its parent's file, fault and all, and a sound one of its own.
        b"swap-eio-once" if !HAS_FAULT.swap(true, Ordering::Relaxed) => (UNREADABLE_BYTES, Writes::Succeed),
        _ => return Box::new(file),
    };
    let is_late = AtomicBool::new(fault == b"swap-late");
    Box::new(Faulty { file, unreadable, is_late, writes })
}

/// What `swap-eio-once` spoils: a block in the midst of a segment, so far on that a program which has just passed its budget writes
/// what it has filled itself there.
const UNREADABLE_BYTES: Range<u64> = (8 << 20) + (32 << 10)..(8 << 20) + (36 << 10);
/// Whether this process, or one that it is forked from, has the file with that block.
static HAS_FAULT: AtomicBool = AtomicBool::new(false);

/// How long the first read of `swap-late` takes: longer than a handler may be at one thing.
const LATE: Duration = Duration::from_nanos(STUCK_NS + 2_000_000_000);

/// A device that does not give some bytes back, or gives them late, or takes none.
struct Faulty {
    file: SwapFile,
    unreadable: Range<u64>,
    /// The next read is late.
    is_late: AtomicBool,
    writes: Writes,
}

enum Writes {
    Succeed,
    Fail,
    Hang,
}

impl BackingStore for Faulty {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), BackingError> {
        if offset < self.unreadable.end && self.unreadable.start < offset + out.len() as u64 {
            return Err(BackingError::Io { offset, errno: Errno::IO });
        }
        if self.is_late.swap(false, Ordering::Relaxed) {
            thread::sleep(LATE);
        }
        self.file.read_at(offset, out)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), BackingError> {
        match self.writes {
            Writes::Succeed => self.file.write_at(offset, bytes),
            Writes::Fail => Err(BackingError::Io { offset, errno: Errno::IO }),
            Writes::Hang => loop {
                thread::sleep(Duration::from_secs(1000));
            },
        }
    }
    fn discard(&self, offset: u64, bytes: u64) {
        self.file.discard(offset, bytes);
    }
    fn bytes_max(&self) -> u64 {
        self.file.bytes_max()
    }
}
