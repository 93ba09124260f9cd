//! Steps that change what a thread or process may do, or how it is called.

use core::ffi::c_int;

use crate::calls;
use crate::forks::{self, Task};
use crate::worker::{Done, Kind, Trouble, Worker, of, process};

pub(crate) const KINDS: &[Kind] = &[
    ("limit", 1, limit),
    ("name", 1, name),
    ("ids", 1, ids),
    ("unshare", 1, unshare),
    ("lock all", 1, lock_all),
    ("filter for all", 1, filter_for_all),
];

/// Does something while no other thread of the process is inside a step, and none goes into one.
fn alone(act: impl FnOnce() -> Done) -> Done {
    if !process().hush() {
        return Ok(());
    }
    let result = act();
    process().unhush();
    result
}

/// Few files for a while, in which there is a fork. Two threads would take each other's limit for their own.
fn limit(worker: &mut Worker) -> Done {
    let (soft, seed) = (128 + worker.random.below(128) as u64, worker.random.word());
    alone(|| {
        let before = files_limit(None)?;
        files_limit(Some(libc::rlimit { rlim_cur: soft.min(before.rlim_max), ..before }))?;
        let pid = forks::child(worker, Task::Glance, seed)?;
        let between = files_limit(None)?;
        files_limit(Some(before))?;
        pid.map_or(Ok(()), forks::expect)?;
        let is_known = between.rlim_cur == soft.min(before.rlim_max);
        if is_known && files_limit(None)?.rlim_cur == before.rlim_cur {
            Ok(())
        } else {
            Err(Trouble::Other("a limit of files", between.rlim_cur))
        }
    })
}

/// Sets the limit, if there is a new one; what it is.
fn files_limit(new: Option<libc::rlimit>) -> Result<libc::rlimit, Trouble> {
    let mut limit = new.unwrap_or(libc::rlimit { rlim_cur: 0, rlim_max: 0 });
    let returned = if new.is_some() {
        // SAFETY: a limit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }
    } else {
        // SAFETY: the limit fits.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }
    };
    calls::done(returned).map_err(of("a limit of files"))?;
    Ok(limit)
}

/// A thread's name: there and back.
fn name(worker: &mut Worker) -> Done {
    let given = core::array::from_fn::<u8, 16, _>(|at| if at < 15 { b'a' + worker.random.below(26) as u8 } else { 0 });
    let mut found = [1_u8; 16];
    // SAFETY: a string.
    calls::done(unsafe { libc::prctl(libc::PR_SET_NAME, given.as_ptr()) }).map_err(of("prctl, name"))?;
    // SAFETY: 16 bytes fit.
    calls::done(unsafe { libc::prctl(libc::PR_GET_NAME, found.as_mut_ptr()) }).map_err(of("prctl, its name"))?;
    if found == given { Ok(()) } else { Err(Trouble::Other("a thread's name", u64::from(found[0]))) }
}

/// The same users and groups as before: libc interrupts all of its threads for it.
fn ids(worker: &mut Worker) -> Done {
    let is_group = worker.random.one_in(2);
    let kept = u32::MAX;
    let returned = if is_group {
        // SAFETY: takes numbers.
        unsafe { libc::setresgid(kept, kept, kept) }
    } else {
        // SAFETY: takes numbers.
        unsafe { libc::setresuid(kept, kept, kept) }
    };
    calls::done(returned).map_err(of("setresuid or setresgid"))
}

/// From now on this thread has files and a directory of its own.
fn unshare(worker: &mut Worker) -> Done {
    worker.has_own_files = true;
    // SAFETY: takes a number.
    calls::done(unsafe { libc::unshare(libc::CLONE_FILES | libc::CLONE_FS) }).map_err(of("unshare"))
}

/// All memory at once. A forked child may have got another thread's terabyte, and all of that would be filled.
fn lock_all(worker: &mut Worker) -> Done {
    const NOW: c_int = libc::MCL_CURRENT;
    if !worker.random.one_in(8) || worker.depth > 0 {
        return Ok(());
    }
    alone(|| {
        // SAFETY: changes no content. Refused beyond the limit; what is locked by then is.
        let _ = unsafe { libc::mlockall(NOW) };
        let checked = worker.areas.iter_mut().try_for_each(crate::area::Area::check_all);
        // SAFETY: changes no content.
        calls::done(unsafe { libc::munlockall() }).map_err(of("munlockall"))?;
        checked.map_err(|bad| Trouble::Bad("all locked", bad))
    })
}

/// A filter of system calls, which allows them all, for every thread of the process at once. Half of the first processes stay without
/// one for their lives: it cannot be taken off.
fn filter_for_all(worker: &mut Worker) -> Done {
    let is_one = (worker.stream >> 4).is_multiple_of(2) && worker.depth == 0;
    if !is_one || !worker.random.one_in(8) {
        return Ok(());
    }
    match calls::allow_all_calls(libc::SECCOMP_FILTER_FLAG_TSYNC) {
        // Or a thread's number, which has not taken it for a long time, as one that waits for the child of vfork. Refused: there are no
        // filters, or enough of them; and pleat's user mode has none.
        Ok(_) | Err(libc::ENOSYS | libc::ENOMEM | libc::EINVAL) => Ok(()),
        Err(errno) => Err(Trouble::Refused("seccomp, all threads", errno)),
    }
}
