//! User mode: a program's system calls made safe where the kernel does not wait for our pages.
//!
//! Without a permission a userfaultfd serves faults of user mode only: a system call that meets a missing page gets
//! EFAULT. So each call of the program is trapped (syscall user dispatch, no permission needed), what it uses is held in
//! place ([`holds`]) and brought in, and then it is made. docs/user-mode.md tells it whole.
//!
//! ```text
//!  calls      what memory each call uses          memory   reading that from its arguments, bringing it in
//!  devices    the same of ioctls
//!  holds      the table that eviction looks at    moves    how taking one and moving out are ordered
//!  spans      what stays in place for good: stacks, thread blocks
//!  trap       the handler of SIGSYS               stubs    the assembly that makes the program's calls
//!  signals    the program's actions and masks     signal_stacks  where the kernel puts frames of signals
//!  deliver    bringing those to the program       processes  threads, vfork and fork
//!  transfers  reads and writes of more than a call may hold    descriptors  what such a call is for
//!  huge_pages why a fork has none of them
//! ```

mod calls;
mod context;
mod deliver;
mod descriptors;
mod devices;
mod holds;
mod huge_pages;
mod memory;
mod moves;
mod processes;
mod signal_stacks;
mod signals;
mod stubs;
mod transfers;
mod trap;

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::arch::{number, syscall};
use crate::spans::Spans;
use crate::thread::errno;
use crate::{Errno, process, thread};

pub(crate) use holds::while_nothing_before_is_held;
pub use processes::execute;

/// Longest stack of a main thread that is taken for one: the kernel leaves at least so much room below it.
const MAIN_STACK_BYTES: u64 = 128 << 20;
const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;

/// Stacks: mapped as such, with the thread blocks of their threads. Never managed.
static KEPT: Spans<8192> = Spans::new();
/// Memory that may be managed and is never moved out: thread blocks and first stacks at other places; and signal stacks within stacks.
static PINNED: Spans<4096> = Spans::new();
static MAIN_STACK_END: AtomicU64 = AtomicU64::new(0);
static LAST_EXIT: AtomicU32 = AtomicU32::new(0);
static EXECUTING: AtomicU32 = AtomicU32::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);
static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(core::ptr::null_mut());

/// What the agent does when the program forks, and how it talks. All of it runs on the program's thread, inside a signal
/// handler: no lock of the program's and none of its memory.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Nobody changes the layout; the agent brings its state to rest.
    pub before_fork: fn(),
    /// The child, if there is one. It may wait for us to do something; we do not wait for it.
    pub after_fork_in_parent: fn(Option<u32>),
    /// No code of the program has run in the child yet.
    pub after_fork_in_child: fn(),
    /// The child has a network namespace of its own from now on.
    pub has_own_network: fn(),
    /// How many bytes one call may hold, where it can be made in pieces.
    pub held_bytes_max: fn() -> u64,
    /// Tells the program's user something.
    pub say: fn(&str),
    /// A call has been refused (ENOSYS): its name.
    pub has_refused: fn(&'static str),
    /// Ends the program with a reason.
    pub fail: fn(&str) -> !,
}

/// Traps the system calls of this thread, and of all threads and processes that come of it, until it executes another
/// program. It must be the only thread that runs code of the program.
pub fn arm(hooks: &'static Hooks) -> Result<(), Errno> {
    // Calls of a thread that is there already would not be trapped.
    if process::thread_count() != Some(1) {
        return Err(Errno::BUSY);
    }
    let marker = 0_u8;
    let text = process::mapping_at(trap::handle as *const () as u64)?;
    let stack = process::mapping_at(&raw const marker as u64)?;
    HOOKS.store(core::ptr::from_ref(hooks).cast_mut(), Ordering::Release);
    MAIN_STACK_END.store(stack.end.address(), Ordering::Relaxed);
    PROCESS.store(thread::process_id(), Ordering::Relaxed);
    stubs::CONSTANTS.text.store(text.start.address(), Ordering::Relaxed);
    stubs::CONSTANTS.text_bytes.store(text.count().bytes().0, Ordering::Relaxed);
    signal_stacks::begin()?;
    signals::take(trap::handle)?;
    dispatch_this_thread()
}

/// What the thread that has ended last has ended with.
pub fn last_exit_status() -> u8 {
    LAST_EXIT.load(Ordering::Relaxed) as u8
}

/// A thread is about to execute another program while nobody forks, and need not look whether somebody does; 0: none is.
pub fn set_executing(thread: u32) {
    EXECUTING.store(thread, Ordering::Relaxed);
}

/// Whether this kernel can trap system calls for their own program (Linux 5.11 on x86-64).
pub fn is_supported() -> bool {
    // Switching off what is off: INVAL where it is not known.
    trap_no_more().is_ok()
}

/// Whether system calls of this process are trapped.
pub fn is_armed() -> bool {
    !HOOKS.load(Ordering::Acquire).is_null()
}

fn dispatch_this_thread() -> Result<(), Errno> {
    let constants = &stubs::CONSTANTS;
    let (text, bytes) = (constants.text.load(Ordering::Relaxed), constants.text_bytes.load(Ordering::Relaxed));
    let arguments = [PR_SET_SYSCALL_USER_DISPATCH, 1, text as usize, bytes as usize, 0, 0];
    // SAFETY: calls from outside of this code become SIGSYS from now on, and its handler is set.
    errno(unsafe { syscall(number::PRCTL, arguments) }).map(|_| ())
}

/// Calls of this thread are made as they are from here on.
fn trap_no_more() -> Result<(), Errno> {
    // SAFETY: takes numbers.
    errno(unsafe { syscall(number::PRCTL, [PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0, 0]) }).map(|_| ())
}

fn hooks() -> &'static Hooks {
    // SAFETY: set by `arm` before the first call was trapped, to a reference that lives for ever.
    unsafe { &*HOOKS.load(Ordering::Acquire) }
}

/// The process that was armed: one made by vfork has our memory and another id.
fn armed_process() -> u32 {
    PROCESS.load(Ordering::Relaxed)
}

/// The main thread's stack, if this is an address in it.
fn main_stack(address: u64) -> Option<core::ops::Range<u64>> {
    let end = MAIN_STACK_END.load(Ordering::Relaxed);
    let stack = end.saturating_sub(MAIN_STACK_BYTES)..end;
    stack.contains(&address).then_some(stack)
}

/// Memory that the kernel may use at any time from now on. Where no more of it can be noted the program is ended.
fn pin(start: u64, end: u64) {
    if !may_pin(start, end) {
        (hooks().fail)("too many thread blocks for user mode");
    }
}

/// The same; says whether it could be noted.
fn may_pin(start: u64, end: u64) -> bool {
    if start >= 0x1_0000 && start < end && !PINNED.add(start, end) {
        return false;
    }
    trap::bring_in_for_good(start, end);
    true
}

/// The first address of `start..end` that must stay in place for good.
fn first_pinned(start: u64, end: u64) -> u64 {
    PINNED.first_in(start, end).min(KEPT.first_in(start, end))
}

/// Whether any of these addresses is a stack.
pub(crate) fn has_stack(start: u64, end: u64) -> bool {
    KEPT.first_in(start, end) < end
}

fn reset_in_child(signal_stack: Option<signal_stacks::SignalStack>) {
    PROCESS.store(thread::process_id(), Ordering::Relaxed);
    set_executing(0);
    KEPT.reset();
    PINNED.reset();
    // SAFETY: this is the process's only thread, and it is in the handler of SIGSYS for its fork, which holds no lock of these.
    unsafe { signals::reset_in_child() };
    // SAFETY: the same.
    unsafe { signal_stacks::reset_in_child(signal_stack) };
}
