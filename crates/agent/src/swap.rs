//! The swap file of a process, the log in it, and the faults of its device that `PLEAT_FAULT` may ask for.

use core::ffi::CStr;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use alloc::boxed::Box;
use alloc::vec::Vec;

use backing::{BackingError, BackingStore, SegmentLog, SwapFile};
use pager::ledger::Ledger;
use sys::{Errno, thread};

use crate::custody;
use crate::entry::Membership;
use crate::keeper::STUCK_NS;

/// A swap file of this process's own at the place of `--swap`; none if there is to be none.
pub(crate) fn open_file(membership: &Membership) -> Result<Option<SwapFile>, Errno> {
    let bytes_max = bytes_max(membership);
    if bytes_max == 0 {
        return Ok(None);
    }
    let place = Place::of(membership);
    place.find().map_or_else(|| open_at(place.path, bytes_max), Ok).map(Some)
}

/// Where the swap file is to be.
struct Place<'a> {
    ledger: &'a Ledger,
    /// By which `pleat run` was told, and a zero byte.
    path: Vec<u8>,
}

impl<'a> Place<'a> {
    fn of(membership: &'a Membership) -> Self {
        Self { ledger: membership.ledger, path: path(membership) }
    }

    /// The file, in the directory that `pleat run` has open. In a namespace of mounts, and behind a chroot, its path leads elsewhere, or to where
    /// nothing may be written: then it is looked for in /proc, and asked for.
    fn find(&self) -> Option<SwapFile> {
        let runner = self.ledger.runner_pid.load(Ordering::Relaxed);
        let descriptor = self.ledger.swap_directory.descriptor.load(Ordering::Relaxed);
        if descriptor == 0 {
            return None;
        }
        let through_proc = || self.open_below(sys::process::descriptor_path(runner, descriptor, &mut [0; _])?);
        let through_custodian = || {
            let open = |directory: &_| self.open_below(sys::process::own_descriptor_path(directory, &mut [0; _])?);
            custody::in_swap_directory(&self.ledger.custodian(), &mut { open })
        };
        self.open_by_path().or_else(through_proc).or_else(through_custodian)
    }

    /// The path, in its directory and what comes behind it.
    fn parts(&self) -> (&[u8], &[u8]) {
        match self.ledger.swap_directory.name_at.load(Ordering::Relaxed) as usize {
            0 => (&self.path[..self.path.len() - 1], b"\0"),
            name_at => self.path.split_at(name_at),
        }
    }

    fn open_by_path(&self) -> Option<SwapFile> {
        let directory = [self.parts().0, b"\0"].concat();
        self.open_below(CStr::from_bytes_with_nul(&directory).ok()?)
    }

    /// `None` as well if this is another directory.
    fn open_below(&self, directory: &CStr) -> Option<SwapFile> {
        let expected = &self.ledger.swap_directory;
        let expected = (expected.device.load(Ordering::Relaxed), expected.inode.load(Ordering::Relaxed));
        if sys::file::identity(directory) != Some(expected) {
            return None;
        }
        let path = [directory.to_bytes(), b"/", self.parts().1].concat();
        open_at(path, self.ledger.swap_bytes_max.load(Ordering::Relaxed)).ok()
    }
}

fn open_at(mut path: Vec<u8>, bytes_max: u64) -> Result<SwapFile, Errno> {
    let named = CStr::from_bytes_with_nul(&path).expect("cut behind the first zero byte");
    match SwapFile::create_in(named, bytes_max) {
        // Not a directory: a file that the user has set aside. It serves one process of the run.
        Err(Errno::NOTDIR) => SwapFile::open(named, bytes_max),
        other => other,
    }
    .or_else(|errno| match errno {
        // There is none of that name, or another process has it: one without a name in the same directory does as well.
        Errno::NOENT | Errno::WOULDBLOCK => {
            path.truncate(path.iter().rposition(|byte| *byte == b'/').unwrap_or(0) + 1);
            path.push(0);
            let directory = CStr::from_bytes_with_nul(&path).expect("cut again");
            SwapFile::create_in(directory, bytes_max)
        }
        other => Err(other),
    })
}

/// The path and a zero byte. No `CString`: making one can unwind as alloc is built, and there is nobody here who could.
fn path(membership: &Membership) -> Vec<u8> {
    let words = membership.ledger.swap_path.iter().map(|word| word.load(Ordering::Relaxed).to_le_bytes());
    words.flatten().take_while(|byte| *byte != 0).chain([0]).collect()
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
