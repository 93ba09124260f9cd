//! Who does not want to be dumped (`PR_SET_DUMPABLE`), as agents of keys do: its entry in /proc is root's then, and its own
//! page map not for itself to open any more.

use core::ffi::{CStr, c_ulong};

use rustix::fd::OwnedFd;
use rustix::fs::Mode;
use rustix::process::DumpableBehavior;

use super::{READ, field_of_status};
use crate::Errno;
use crate::process::auxiliary_value;

/// What the kernel says of the user when a program is executed (`linux/auxvec.h`).
const AT_UID: c_ulong = 11;
const AT_EUID: c_ulong = 12;
const AT_GID: c_ulong = 13;
const AT_EGID: c_ulong = 14;

/// Opens a file of `directory`, that of this process in /proc. Where it fails because the process is not to be dumped, once
/// more while it is: some microseconds in which others of its user may look into it.
///
/// Not where it has another user than it was executed as: those who were nothing to it before would have a look at what it
/// has from then. And not under a filter of system calls, which may end who asks.
pub(super) fn open(directory: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let open = || rustix::fs::openat(directory, name, READ, Mode::empty());
    let opened = open();
    let may_help = opened.as_ref().err() == Some(&Errno::ACCESS)
        && rustix::process::dumpable_behavior() == Ok(DumpableBehavior::NotDumpable)
        && is_user_of_start()
        && !is_filtered(directory);
    if !may_help || rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).is_err() {
        return opened;
    }
    let opened = open();
    // It was so, so it may be so.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    opened
}

fn is_user_of_start() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    let users: [u64; 2] = [getuid(), geteuid()].map(|user| user.as_raw().into());
    let groups: [u64; 2] = [getgid(), getegid()].map(|group| group.as_raw().into());
    users == [AT_UID, AT_EUID].map(auxiliary_value) && groups == [AT_GID, AT_EGID].map(auxiliary_value)
}

/// Whether calls of this thread are filtered, or that cannot be told.
fn is_filtered(directory: &OwnedFd) -> bool {
    let mut text = [0; 4096];
    let status = rustix::fs::openat(directory, c"../thread-self/status", READ, Mode::empty());
    let length = status.and_then(|status| rustix::io::read(&status, &mut text)).unwrap_or(0);
    field_of_status(&text[..length], b"Seccomp:") != Some(b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_read_all_asks_for_nothing() {
        let directory = rustix::fs::open(c"/proc/self", READ, Mode::empty()).unwrap();
        assert!(is_user_of_start());
        assert!(
            !is_filtered(&directory) || std::fs::read_to_string("/proc/self/status").unwrap().contains("Seccomp:\t2")
        );
        let before = rustix::process::dumpable_behavior();
        assert_eq!(open(&directory, c"../thread-self/pagemaps").err(), Some(Errno::NOENT));
        open(&directory, c"../thread-self/pagemap").unwrap();
        assert_eq!(rustix::process::dumpable_behavior(), before);
    }
}
