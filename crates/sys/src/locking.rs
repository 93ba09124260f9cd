//! mlockall on the program's behalf: everything of the program's is locked, nothing of ours.
//!
//! The kernel's own call would lock our areas, too. It would fill what of them is open, wait for ever for the frames,
//! whose faults nobody serves, and a page that is locked can only move to where pages are locked.

use crate::arch::{self, number};
use crate::kernel::Mapping;
use crate::sync::{AtomicBool, Ordering};
use crate::thread::errno;
use crate::{Errno, area, process};

const CURRENT: usize = 1;
const FUTURE: usize = 2;
const ON_FAULT: usize = 4;
/// `MLOCK_ONFAULT`.
const LOCK_ON_FAULT: usize = 1;

/// What is mapped from now on is locked, unless that has been undone.
static IS_FUTURE_LOCKED: AtomicBool = AtomicBool::new(false);

/// Whether what is mapped may be locked at once, and filled when it is opened.
pub(crate) fn may_lock_new() -> bool {
    IS_FUTURE_LOCKED.load(Ordering::Relaxed)
}

/// mlockall. What is mapped is locked mapping by mapping.
///
/// A limit is found before anything is filled. Mappings that it lets through before it is met stay locked, which the
/// kernel's own call avoids by counting first.
pub fn lock_all(flags: usize) -> Result<(), Errno> {
    if flags & CURRENT == 0 || flags & !(CURRENT | FUTURE | ON_FAULT) != 0 {
        return call(flags);
    }
    each_of_the_program(&mut |start, bytes| match lock(start, bytes, LOCK_ON_FAULT) {
        // Beyond the limit; or not mapped any more, or not memory that could be locked.
        Err(Errno::NOMEM) if is_mapped(start) => Err(Errno::NOMEM),
        Err(Errno::NOMEM) | Ok(()) => Ok(()),
        Err(other) => Err(other),
    })?;
    if flags & FUTURE != 0 {
        call(flags & !CURRENT)?;
    }
    let on_fault = if flags & ON_FAULT != 0 { LOCK_ON_FAULT } else { 0 };
    each_of_the_program(&mut |start, bytes| {
        // As mlockall does: what cannot be filled is left out.
        let _ = lock(start, bytes, on_fault);
        Ok(())
    })
}

/// Visits the mappings that are not ours until one fails.
fn each_of_the_program(visit: &mut dyn FnMut(usize, usize) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut result = Ok(());
    process::mappings(&mut |Mapping { range, .. }| {
        let (start, end) = (range.start.address(), range.end.address());
        if result.is_ok() && !area::is_own(start..end) {
            result = visit(start as usize, (end - start) as usize);
        }
    })?;
    result
}

fn call(flags: usize) -> Result<(), Errno> {
    if flags & FUTURE != 0 {
        IS_FUTURE_LOCKED.store(true, Ordering::Relaxed);
    }
    // SAFETY: takes a number; changes no content.
    errno(unsafe { arch::syscall(number::MLOCKALL, [flags, 0, 0, 0, 0, 0]) }).map(|_| ())
}

fn lock(start: usize, bytes: usize, flags: usize) -> Result<(), Errno> {
    // SAFETY: takes numbers; changes no content.
    errno(unsafe { arch::syscall(number::MLOCK2, [start, bytes, flags, 0, 0, 0]) }).map(|_| ())
}

fn is_mapped(start: usize) -> bool {
    const MS_ASYNC: usize = 1;
    // SAFETY: takes numbers; MS_ASYNC has done nothing but look whether the range is mapped since Linux 2.6.19.
    errno(unsafe { arch::syscall(number::MSYNC, [start, page::PAGE_BYTES, MS_ASYNC, 0, 0, 0]) }).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Area;

    #[test]
    fn everything_but_our_own_is_locked() {
        let area = Area::reserve(64 << 20).unwrap();
        let locked = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
        };
        let theirs = vec![1_u8; 8 << 20];
        match lock_all(CURRENT | ON_FAULT) {
            Ok(()) => {
                let bytes = locked();
                assert!(bytes >= theirs.len() as u64, "{bytes} bytes are locked");
                let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
                let ours = format!("{:x}-", area.base() as usize);
                let flags =
                    smaps.lines().skip_while(|line| !line.starts_with(&ours)).find(|line| line.contains("VmFlags"));
                assert!(!flags.unwrap().contains(" lo"), "{flags:?}");
            }
            Err(errno) => println!("skipped: mlockall ({errno})"),
        }
        assert_eq!(lock_all(8), Err(Errno::INVAL));
        assert_eq!(lock_all(ON_FAULT), Err(Errno::INVAL));
        // SAFETY: takes nothing; changes no content.
        assert_eq!(unsafe { arch::syscall(number::MUNLOCKALL, [0; 6]) }, 0);
    }
}
