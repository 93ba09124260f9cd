//! Stand-ins: processes that go on for bare threads while a debugger is there, on their stacks and with their memory.
//!
//! ```text
//!  thread    ── step_out ─ clone ─ waits, in registers alone, for the process to end ──────────► goes on, on the stack that it finds
//!  stand-in                  └───────────── goes on, on the same stack ────────────── step_in ─ ends
//! ```
//!
//! It is in no list of the program's threads, and ends with the thread that has made it. What a process has for itself is not the
//! program's there: limits, children, a number.

use core::sync::atomic::{AtomicU32, Ordering};

use super::{
    Bare, CLONE_CHILD_CLEARTID, CLONE_FILES, CLONE_PARENT_SETTID, CLONE_UNTRACED, CLONE_VM, NOBODY, SignalMask, errno,
    exit_group, process_id, thread_id, unblock_signals,
};
use crate::Errno;
use crate::action::{self, Action};
use crate::arch::{self, StandIn, number};

/// The process that the bare threads are of, as long as one of them has a stand-in.
static PROGRAM: AtomicU32 = AtomicU32::new(NOBODY);

/// Goes on as a process of its own on the same stack, with the same memory and descriptors, that is in nobody's list of this program's
/// threads: whoever stops them does not stop it. It ends when they do. This thread waits, and holds nothing; should the stand-in end before
/// [`step_in`], it calls `abandoned`.
pub fn step_out(abandoned: extern "C" fn() -> !) -> Result<(), Errno> {
    let bare = Bare::of(thread_id()).expect("a bare thread's own doing");
    if arch::has_shadow_stack() {
        return Err(Errno::NOTSUP);
    }
    let program = process_id();
    PROGRAM.store(program, Ordering::Relaxed);
    bare.place.store(0, Ordering::Relaxed);
    let stand_in = StandIn {
        flags: CLONE_VM | CLONE_FILES | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_UNTRACED,
        number: bare.stand_in.as_ptr() as usize,
        place: bare.place.as_ptr() as usize,
        abandoned: abandoned as usize,
    };
    // SAFETY: both words are static; libc does not know this thread, which blocks all signals, and nobody waits for its end.
    let result = unsafe { arch::clone_stand_in(&stand_in) };
    errno(result)?;
    // Its own, which is nobody else's: a process that is not the program has limits of its own.
    let _ = crate::process::raise_descriptor_limit_of(0);
    end_with(program, bare).inspect_err(|_| step_in())
}

/// In a stand-in: the thread goes on for it, as soon as nobody holds that.
pub fn step_in() {
    let bare = Bare::with_stand_in(thread_id()).expect("a stand-in's own doing");
    // It goes on where this one was kept.
    let thread = rustix::process::Pid::from_raw(bare.number.load(Ordering::Relaxed) as i32);
    if let Ok(processors) = rustix::thread::sched_getaffinity(None) {
        let _ = rustix::thread::sched_setaffinity(thread, &processors);
    }
    // SAFETY: the word that its making was told.
    unsafe { arch::leave_to_thread(bare.place.as_ptr() as usize) };
}

/// The signal that tells a stand-in that its thread has ended: the last one, which nobody sends.
const THREAD_HAS_ENDED: usize = 64;

/// This process ends when the thread that has made it does, as that does with `program`, or where that executes another. It ends well: who
/// waits for children whose parents have ended (`PR_SET_CHILD_SUBREAPER`) is told of it.
fn end_with(program: u32, thread: &Bare) -> Result<(), Errno> {
    const PR_SET_PDEATHSIG: usize = 1;
    extern "C" fn end_well(_signal: i32) {
        exit_group(0);
    }
    action::set(THREAD_HAS_ENDED as u64, Some(Action::of(end_well as *const () as u64, 0)))?;
    unblock_signals(SignalMask(!(1 << (THREAD_HAS_ENDED - 1))));
    // SAFETY: takes numbers.
    let result = unsafe { arch::syscall(number::PRCTL, [PR_SET_PDEATHSIG, THREAD_HAS_ENDED, 0, 0, 0, 0]) };
    // SAFETY: takes nothing.
    let parent = unsafe { arch::syscall(number::GETPPID, [0; 6]) };
    // Before there was a signal; the kernel clears the number of a thread that ends first.
    if parent != program as isize || thread.number.load(Ordering::Relaxed) == NOBODY {
        exit_group(0);
    }
    errno(result).map(drop)
}

/// The program of this process, if that is a stand-in.
pub(crate) fn program_of_stand_in() -> Option<u32> {
    program_of(thread_id())
}

pub(super) fn program_of(stand_in: u32) -> Option<u32> {
    Bare::with_stand_in(stand_in).map(|_| PROGRAM.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::os::fd::AsRawFd as _;

    use rustix::fs::AtFlags;

    use super::super::{Descriptors, ThreadMemory, decimal_path, exists, exit_thread, sleep, spawn};
    use super::*;

    const STEPS_MAX: u32 = 100;

    /// Libc's functions, and a panic, want a thread of libc's: what has been is written down. The argument is the descriptor of this process's list of threads.
    extern "C" fn step_out_and_in(tasks: usize) -> ! {
        let (own, program) = (thread_id(), process_id());
        for round in 0..STEPS_MAX {
            let kept = core::hint::black_box(u64::from(round) * 0x0101_0101);
            if step_out(given_up).is_err() {
                break;
            }
            let number = thread_id();
            let is_out = exists(own) && is_in(tasks, own) && !is_in(tasks, number) && process_id() == program;
            step_in();
            let is_back = thread_id() == own && !exists(number) && kept == u64::from(round) * 0x0101_0101;
            STEPS.fetch_add((number != own && is_out && is_back).into(), Ordering::Relaxed);
        }
        STEPS_ARE_OVER.store(1, Ordering::Release);
        exit_thread()
    }

    fn is_in(tasks: usize, thread: u32) -> bool {
        // SAFETY: the test keeps it open.
        let tasks = unsafe { rustix::fd::BorrowedFd::borrow_raw(tasks as i32) };
        let mut path = [0; 16];
        let path = decimal_path(b"", thread, b"\0", &mut path);
        path.is_some_and(|path| rustix::fs::accessat(tasks, path, rustix::fs::Access::EXISTS, AtFlags::empty()).is_ok())
    }

    extern "C" fn given_up() -> ! {
        GIVEN_UP.store(thread_id(), Ordering::Release);
        exit_thread()
    }

    static STEPS: AtomicU32 = AtomicU32::new(0);
    static STEPS_ARE_OVER: AtomicU32 = AtomicU32::new(0);
    static GIVEN_UP: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn a_stand_in_goes_on_for_a_thread_and_the_thread_for_it() {
        let tasks = std::fs::File::open("/proc/self/task").unwrap();
        let memory = Box::leak(Box::new(ThreadMemory::reserve().unwrap()));
        // SAFETY: the memory is leaked.
        unsafe { spawn(memory, Descriptors::Shared, step_out_and_in, tasks.as_raw_fd() as usize).unwrap() };
        while STEPS_ARE_OVER.load(Ordering::Acquire) == 0 {
            sleep(Duration::from_millis(1));
        }
        assert_eq!(STEPS.load(Ordering::Relaxed), STEPS_MAX);
    }

    extern "C" fn end_as_stand_in(_argument: usize) -> ! {
        if step_out(given_up).is_err() {
            GIVEN_UP.store(u32::MAX, Ordering::Release);
        }
        exit_thread()
    }

    #[test]
    fn a_thread_whose_stand_in_ends_says_so() {
        let memory = Box::leak(Box::new(ThreadMemory::reserve().unwrap()));
        // SAFETY: the memory is leaked.
        let thread = unsafe { spawn(memory, Descriptors::Shared, end_as_stand_in, 0).unwrap() };
        while GIVEN_UP.load(Ordering::Acquire) == 0 {
            sleep(Duration::from_millis(1));
        }
        assert_eq!(GIVEN_UP.load(Ordering::Relaxed), thread);
    }
}
