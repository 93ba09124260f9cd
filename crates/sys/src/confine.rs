//! A filter of system calls for all of the program's threads, and for none of the agent's.
//!
//! The kernel gives a filter to every thread of a process at once (`SECCOMP_FILTER_FLAG_TSYNC`), and under it the agent's could not
//! work. Here each of the program's threads takes it by itself, asked by a signal: the one by which glibc has all threads change
//! their user, which no program can block by libc.

use core::ffi::{c_int, c_long, c_void};
use core::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::action::{self, Action, SA_ONSTACK, SA_RESTART, SA_SIGINFO};
use crate::arch::{number, syscall};
use crate::proc_files::{field_of_status, visit_numbers};
use crate::sync::{AtomicU32, Ordering};
use crate::thread::{self, block_signals, decimal_path, errno, unblock_signals};
use crate::{Errno, clock};

use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize};

/// The number of prctl, for who makes the call by libc.
pub const PRCTL: c_long = number::PRCTL as c_long;

const SET_FILTER: usize = 1;
const FOR_ALL_THREADS: usize = 1;
/// What else may be asked for here: that the filter logs, and that it does without protection against speculation.
const OTHER_FLAGS: usize = 2 | 4;

/// glibc's `SIGSETXID`; musl's `SIGCANCEL`.
const SIGNAL: c_int = 33;
/// A signal that was queued with a value: nobody else sends this one so.
const SI_QUEUE: c_int = -1;

/// The longest wait for a thread that blocks the signal by a raw system call, or sleeps where no signal wakes it.
const SILENCE_MAX: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_micros(50);

/// Whether some thread gives a filter to all.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
/// The number of the request that is open; 0 if none is.
static OPEN: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicU32 = AtomicU32::new(0);
/// What the kernel has said to who was asked.
static ANSWER: AtomicIsize = AtomicIsize::new(NONE_YET);
const NONE_YET: isize = isize::MIN;

/// What is asked for: flags and program as seccomp(2) takes them, and that no rights are gained any more.
static FLAGS: AtomicUsize = AtomicUsize::new(0);
static PROGRAM: AtomicUsize = AtomicUsize::new(0);
static GAINS_NO_RIGHTS: AtomicBool = AtomicBool::new(false);

/// The handler that was there before ours.
static BEFORE: AtomicU64 = AtomicU64::new(action::DEFAULT);

/// In a forked child, which has one thread: nobody asks.
pub fn forget() {
    IS_BUSY.store(false, Ordering::Relaxed);
    OPEN.store(0, Ordering::Relaxed);
}

/// Whether arguments of seccomp(2) ask for what [`confine`] does.
pub fn is_for_all(operation: usize, flags: usize) -> bool {
    operation == SET_FILTER && flags & FOR_ALL_THREADS != 0 && flags & !(FOR_ALL_THREADS | OTHER_FLAGS) == 0
}

/// Gives every thread of the program a filter, this one last. The kernel's answer: the number of a thread that could not take it,
/// while others have it, if that is not 0. `None`: nothing has been done, and only the kernel can, the agent's threads included: /proc does
/// not tell who the threads are, or some have filters that others have not.
pub fn confine(flags: usize, program: usize) -> Option<Result<usize, Errno>> {
    while IS_BUSY.swap(true, Ordering::Acquire) {
        // With signals as they are: who is at it may ask this thread.
        thread::sleep(LOOK);
    }
    let mask = block_signals();
    let others = confine_others(flags, program);
    unblock_signals(mask);
    // Behind this we make no call: the filter may forbid it.
    let answer = others.map(|others| match others {
        Others::HaveIt => errno(take()),
        Others::Failed(answer) => answer,
    });
    IS_BUSY.store(false, Ordering::Release);
    answer
}

/// What has become of the program's other threads.
enum Others {
    HaveIt,
    /// With what the program is told.
    Failed(Result<usize, Errno>),
}

fn confine_others(flags: usize, program: usize) -> Option<Others> {
    let own = thread::thread_id();
    let before = Task::of(own).ok()?.filters;
    let mut are_level = true;
    visit_others(own, &mut |_, task| are_level &= task.filters == before)?;
    if !are_level {
        return None;
    }
    FLAGS.store(flags & !FOR_ALL_THREADS, Ordering::Relaxed);
    PROGRAM.store(program, Ordering::Relaxed);
    GAINS_NO_RIGHTS.store(gains_no_rights(), Ordering::Relaxed);
    let mut have_it = 0;
    loop {
        let (mut has_asked, mut failure) = (false, None);
        let visited = visit_others(own, &mut |thread, task| {
            if task.filters > before || failure.is_some() {
                return;
            }
            has_asked = true;
            match ask(thread) {
                Answer::Takes => have_it += 1,
                Answer::HasGone => {}
                Answer::Refuses(errno) if have_it == 0 => failure = Some(Err(errno)),
                Answer::Refuses(_) | Answer::IsSilent => failure = Some(Ok(thread as usize)),
            }
        });
        if visited.is_none() {
            failure = failure.or(Some(Err(Errno::NOMEM)));
        }
        if let Some(answer) = failure {
            return Some(Others::Failed(answer));
        }
        // New threads have what their makers have, and come behind them in the list.
        if !has_asked {
            return Some(Others::HaveIt);
        }
    }
}

/// On a thread that has been asked: it gains no rights any more either, if the one that asks does not.
fn take_as_asked() -> isize {
    const PR_SET_NO_NEW_PRIVS: usize = 38;
    if GAINS_NO_RIGHTS.load(Ordering::Relaxed) {
        // SAFETY: takes numbers.
        unsafe { syscall(number::PRCTL, [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0]) };
    }
    take()
}

/// The filter, for this thread.
fn take() -> isize {
    let [flags, program] = [&FLAGS, &PROGRAM].map(|word| word.load(Ordering::Relaxed));
    // SAFETY: the kernel checks the program, and reads it while its owner waits.
    unsafe { syscall(number::SECCOMP, [SET_FILTER, flags, program, 0, 0, 0]) }
}

fn gains_no_rights() -> bool {
    const PR_GET_NO_NEW_PRIVS: usize = 39;
    // SAFETY: takes numbers.
    unsafe { syscall(number::PRCTL, [PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0]) == 1 }
}

/// What a thread does that is asked.
enum Answer {
    Takes,
    Refuses(Errno),
    HasGone,
    IsSilent,
}

fn ask(thread: u32) -> Answer {
    handle_signals();
    let request = LAST.load(Ordering::Relaxed).wrapping_add(1).max(1);
    LAST.store(request, Ordering::Relaxed);
    ANSWER.store(NONE_YET, Ordering::Relaxed);
    // Release: who answers sees what is asked for.
    OPEN.store(request, Ordering::Release);
    let start = clock::now_ns();
    let mut is_sent = false;
    let mut unanswered = Answer::IsSilent;
    while clock::now_ns().saturating_sub(start) < SILENCE_MAX.as_nanos() as u64 {
        if let Some(answer) = answer() {
            return answer;
        }
        // It may have been listed before the kernel had written its number for us.
        if thread::is_bare(thread) || Task::of(thread).map_or_else(is_gone, |task| task.is_ending) {
            unanswered = Answer::HasGone;
            break;
        }
        // Too many signals wait in the queue, for a moment.
        is_sent = is_sent || send(thread, request) != Err(Errno::AGAIN);
        thread::sleep(LOOK);
    }
    if OPEN.compare_exchange(request, 0, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        return unanswered;
    }
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        thread::sleep(LOOK);
    }
}

fn answer() -> Option<Answer> {
    match ANSWER.load(Ordering::Acquire) {
        NONE_YET => None,
        result => Some(errno(result).map_or_else(Answer::Refuses, |_| Answer::Takes)),
    }
}

/// `siginfo_t` of a signal that was queued.
#[repr(C)]
struct Information {
    signal: c_int,
    error: c_int,
    code: c_int,
    _unused: c_int,
    process: u32,
    user: u32,
    value: usize,
    rest: [usize; 12],
}

fn send(thread: u32, request: u32) -> Result<usize, Errno> {
    let process = thread::process_id();
    let value = request as usize;
    let information =
        Information { signal: SIGNAL, error: 0, code: SI_QUEUE, _unused: 0, process, user: 0, value, rest: [0; 12] };
    let pointer = &raw const information as usize;
    // SAFETY: points at a live structure of the size that the kernel reads.
    let result = unsafe {
        syscall(number::RT_TGSIGQUEUEINFO, [process as usize, thread as usize, SIGNAL as usize, pointer, 0, 0])
    };
    errno(result)
}

/// On whatever thread the signal comes to.
extern "C" fn handle(signal: c_int, information: *const Information, context: *mut c_void) {
    type Handler = extern "C" fn(c_int, *const Information, *mut c_void);
    // SAFETY: the kernel's, as the action asks for it.
    let told = unsafe { &*information };
    if told.code == SI_QUEUE {
        let request = told.value as u32;
        // Acquire: what is asked for. A request that comes too late is of nobody's any more.
        if request != 0 && OPEN.compare_exchange(request, 0, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            ANSWER.store(take_as_asked(), Ordering::Release);
        }
        return;
    }
    let before = BEFORE.load(Ordering::Relaxed);
    if before != action::DEFAULT && before != action::IGNORED {
        // SAFETY: the handler that libc has set for this signal, with the flag that it takes all three.
        let before = unsafe { core::mem::transmute::<usize, Handler>(before as usize) };
        before(signal, information, context);
    }
}

/// For good: a thread that was asked may come to it later. What others send goes on to the handler that was there.
fn handle_signals() {
    let ours = handle as *const () as u64;
    let Ok(before) = action::set(SIGNAL as u64, None) else { return };
    if before.handler != ours {
        BEFORE.store(before.handler, Ordering::Relaxed);
        let flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
        let _ = action::set(SIGNAL as u64, Some(Action::of(ours, flags)));
    }
}

/// What /proc tells of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Task {
    filters: u32,
    is_ending: bool,
}

impl Task {
    /// `NOTSUP`: /proc does not count filters (before Linux 5.9).
    fn of(thread: u32) -> Result<Self, Errno> {
        let mut path = [0; 48];
        let path = decimal_path(b"/proc/self/task/", thread, b"/status\0", &mut path).ok_or(Errno::NAMETOOLONG)?;
        let status = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = [0; 4096];
        let length = rustix::io::read(&status, &mut text)?;
        Self::from_status(&text[..length]).ok_or(Errno::NOTSUP)
    }

    fn from_status(text: &[u8]) -> Option<Self> {
        let filters = core::str::from_utf8(field_of_status(text, b"Seccomp_filters:")?).ok()?.parse().ok()?;
        Some(Self { filters, is_ending: matches!(field_of_status(text, b"State:")?.first(), Some(b'Z' | b'X')) })
    }
}

/// Whether /proc says that there is no such thread.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::SRCH)
}

/// Visits the program's threads but this one and those that are ending, in the order in which they were made. `None` if they cannot
/// be told.
fn visit_others(own: u32, visit: &mut dyn FnMut(u32, Task)) -> Option<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(c"/proc/self/task", flags, Mode::empty()).ok()?;
    let (mut is_own_there, mut are_told) = (false, true);
    visit_numbers(&directory, &mut |thread| {
        is_own_there |= thread == own;
        if thread == own || thread::is_bare(thread) || !are_told {
            return;
        }
        match Task::of(thread) {
            Ok(task) if task.is_ending => {}
            Ok(task) => visit(thread, task),
            Err(errno) => are_told = is_gone(errno),
        }
    })
    .ok()?;
    // Where this one is not there, /proc has other numbers than this process.
    (is_own_there && are_told).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_tells_filters_and_the_end() {
        let text = |state: &str| format!("Name:\tx\nState:\t{state}\nSeccomp:\t2\nSeccomp_filters:\t3\nCpus:\t1\n");
        let task = |state| Task::from_status(text(state).as_bytes());
        assert_eq!(task("S (sleeping)"), Some(Task { filters: 3, is_ending: false }));
        assert_eq!(task("Z (zombie)"), Some(Task { filters: 3, is_ending: true }));
        assert_eq!(Task::from_status(b"State:\tR (running)\n"), None, "Linux before 5.9");
        assert!(Task::of(thread::thread_id()).is_ok_and(|task| !task.is_ending));
        assert!(Task::of(u32::MAX).is_err_and(is_gone));
    }

    #[test]
    fn other_threads_are_visited_and_bare_ones_are_not() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            sender.send(thread::thread_id()).unwrap();
            std::thread::park();
        });
        let thread = receiver.recv().unwrap();
        let mut seen = vec![];
        visit_others(thread::thread_id(), &mut |thread, _| seen.push(thread)).unwrap();
        assert!(seen.contains(&thread) && !seen.contains(&thread::thread_id()), "{seen:?}");
        other.thread().unpark();
        other.join().unwrap();
    }

    #[test]
    fn only_filters_for_all_are_taken_up() {
        assert!(is_for_all(1, 1) && is_for_all(1, 1 | 2 | 4));
        // A strict one; for this thread; with a listener; that tells of failures in another way.
        assert!(!is_for_all(0, 1) && !is_for_all(1, 2) && !is_for_all(1, 1 | 8 | 16) && !is_for_all(1, 1 | 16));
    }
}
