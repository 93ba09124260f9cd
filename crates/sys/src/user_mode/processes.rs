//! fork, vfork and clone.
//!
//! What shares our memory begins in assembly, because it may have a stack of its own, or ours. What gets a copy of it is
//! made right here, inside the handler: its agent must have taken the memory over before any code of the program runs.

use core::ffi::c_long;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use super::calls::Class;
use super::context::Context;
use super::holds::{self, Place};
use super::huge_pages::Barred;
use super::memory::{Memory, copy_in};
use super::signal_stacks::{self, SignalStack};
use super::stubs::pleat_clone;
use super::trap::{answer, gather, hold, note_return, place_at, safe};
use super::{KEPT, calls, dispatch_this_thread, hooks, may_pin, signals};
use crate::Errno;
use crate::arch::{number, syscall};
use crate::copies::{Asked, Flags};
use crate::sync::{Sharing, wait_while, wake_all};
use crate::thread::{self, errno};

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
/// Of clone3 alone: clone takes 32 bits.
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
/// `struct clone_args` up to `set_tid_size`; the flags come first, stack and thread block at 5 to 7.
const CLONE_WORDS: usize = 8;
/// Where `set_tid_size` ends, and most of such numbers (`MAX_PID_NS_LEVEL`).
const SET_TID_END: u64 = 80;
const PID_NAMESPACES_MAX: u64 = 32;
/// Room of a stack of which only the top is known, or needed.
const STACK_BYTES: u64 = 64 << 10;
const THREAD_BLOCK_BYTES: u64 = 8192;

/// Looks of a millisecond each for the end of a fork before the process ends: five seconds, as long as a parent waits for its child.
const END_LOOKS_MAX: u32 = 5000;

/// 1 while somebody forks.
static FORKING: AtomicU32 = AtomicU32::new(0);

/// What a call asks for.
struct Wish {
    flags: u64,
    /// Lowest address, or 0 if that is not known, and top of the new stack; 0 for the caller's.
    stack: u64,
    stack_top: u64,
    thread_block: u64,
}

fn wish(call: usize, arguments: &[u64; 6]) -> Option<Wish> {
    match call {
        number::FORK => Some(Wish { flags: 0, stack: 0, stack_top: 0, thread_block: 0 }),
        number::VFORK => Some(Wish { flags: CLONE_VM | CLONE_VFORK, stack: 0, stack_top: 0, thread_block: 0 }),
        number::CLONE => {
            let flags = arguments[0] & u64::from(u32::MAX);
            Some(Wish { flags, stack: 0, stack_top: arguments[1], thread_block: arguments[4] })
        }
        _ => {
            let [flags, _, _, _, _, stack, bytes, thread_block] = copy_in::<CLONE_WORDS>(arguments[0])?;
            Some(Wish { flags, stack, stack_top: stack.wrapping_add(bytes), thread_block })
        }
    }
}

/// Makes the thread or process.
pub(super) fn make(context: &mut Context, place: Place) {
    let arguments = context.arguments();
    let Some(wish) = wish(context.rax as usize, &arguments) else {
        return context.rax = answer(Err(Errno::FAULT));
    };
    // The child would be without our handler, and the first call of its own would end it. Kernels before 5.5 answer the same,
    // and so libc's posix_spawn goes on without.
    if wish.flags & CLONE_CLEAR_SIGHAND != 0 {
        return context.rax = answer(Err(Errno::INVAL));
    }
    // The new thread needs it after the caller has gone on, or ended: nobody may take it for a dead one.
    let mut hold = hold(Place { stack: 0, thread: holds::NOBODY, ..place });
    let mut memory = Memory { hold: &mut hold, safe: safe(place) };
    match context.rax as usize {
        number::CLONE => memory.gather(&[calls::Piece::Fix(2, 4), calls::Piece::Fix(3, 4)], &arguments),
        number::CLONE3 => memory.gather(&[calls::Piece::Buf(0, 1)], &arguments),
        _ => {}
    }
    if let (number::CLONE3, Some(words)) = (context.rax as usize, copy_in::<4>(arguments[0])) {
        // Where the kernel writes ids: pidfd, child_tid, parent_tid.
        words[1..].iter().for_each(|at| memory.add(*at, 8));
        // And where it reads them: set_tid, set_tid_size.
        if arguments[1] >= SET_TID_END
            && let Some([ids, count]) = copy_in(arguments[0].saturating_add(SET_TID_END - 16))
        {
            memory.add(ids, count.min(PID_NAMESPACES_MAX) * 4);
        }
    }
    memory.hold.publish();
    memory.bring_in();
    if wish.flags & CLONE_VM == 0 {
        let result = fork(context, &arguments, place.thread);
        if result == 0 && wish.stack_top != 0 {
            context.rsp = wish.stack_top;
        }
        context.rax = result;
        // The child's table has been emptied.
        if result != 0 {
            hold.let_go();
        }
        return;
    }
    if wish.flags & CLONE_VFORK != 0 {
        holds::let_abandoned_go(place);
    }
    if !prepare(&wish) {
        hold.let_go();
        return context.rax = answer(Err(Errno::AGAIN));
    }
    let words = stack_for(&wish);
    hold.slot().scratch.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    hold.slot().parties.store(2, Ordering::Relaxed);
    note_return(&hold, context, arguments);
    context.r9 = core::ptr::from_ref(hold.slot()) as u64;
    context.rip = pleat_clone as *const () as u64;
}

/// For the assembly: a `struct stack` for a new thread, with the bit in its gap and the word behind it that say it is taken. Without
/// bytes for who needs none: what has our memory and is waited for has ours, where nobody is while it runs; what is not waited for
/// and no thread has none, for nobody would know when it is free again.
fn stack_for(wish: &Wish) -> [u64; 4] {
    let stack = (wish.flags & CLONE_THREAD != 0).then(SignalStack::take).flatten();
    let ([start, flags, bytes], (word, bit)) = (stack.map_or([0; 3], SignalStack::words), signal_stacks::taken(stack));
    [start, flags | bit << 32, bytes, core::ptr::from_ref(word) as u64]
}

/// The kernel writes signal frames to the new stack, until the thread has its signal stack, and ids and its own notes to the new
/// thread block. False: no more of such memory can be noted, which is to the program as if there were too many threads.
fn prepare(wish: &Wish) -> bool {
    let mut is_noted = true;
    if wish.stack_top != 0 && KEPT.find(wish.stack_top - 1).is_none() {
        // A thread's signals have another stack soon; pinned memory is filled, and never leaves.
        let is_short = wish.stack == 0 || wish.flags & CLONE_THREAD != 0;
        let start = if is_short { wish.stack.max(wish.stack_top.saturating_sub(STACK_BYTES)) } else { wish.stack };
        is_noted = may_pin(start, wish.stack_top);
    }
    if wish.flags & CLONE_SETTLS != 0 && KEPT.find(wish.thread_block).is_none() {
        is_noted &=
            may_pin(wish.thread_block.saturating_sub(THREAD_BLOCK_BYTES / 2), wish.thread_block + THREAD_BLOCK_BYTES);
    }
    is_noted
}

/// Whether layout changes must wait.
pub(super) fn is_forking() -> bool {
    FORKING.load(Ordering::SeqCst) == 1
}

/// Waits until nobody forks.
pub(super) fn wait_while_forking() {
    while is_forking() {
        wait_for_fork();
    }
}

/// Before a thread executes another program: what a fork sets for a moment would stay with that.
pub(super) fn wait_to_execute(place: Place) {
    if super::EXECUTING.load(Ordering::Relaxed) != place.thread {
        wait_while_forking();
    }
}

/// Executes another program by `call`, execve or execveat, with its memory held. Not trapped: to who traces this thread the trap would
/// be a signal that comes before the new program.
pub fn execute(call: core::ffi::c_long, arguments: [usize; 6]) -> Errno {
    let words = arguments.map(|argument| argument as u64);
    let place = place_at(&raw const words as u64);
    wait_to_execute(place);
    // A handler that does not come back would leave the hold half made.
    let mask = thread::block_signals();
    signals::unblock_faults(u64::MAX);
    let mut hold = hold(place);
    if let Class::Holds(pieces) = calls::class(call as u64) {
        gather(&mut hold, pieces, &words, place);
    }
    thread::unblock_signals(mask);
    // SAFETY: the program's own call.
    let returned = unsafe { syscall(call as usize, arguments) };
    hold.let_go();
    thread::errno(returned).err().unwrap_or(Errno::INVAL)
}

/// `PTRACE_TRACEME` of a process made by vfork: a trap would be a signal that stops it for who traces it, which is our own process and
/// waits for it to execute. So no call of it is trapped from here on, and what executes is `execute`.
pub(super) fn let_guest_be_traced() -> Result<u64, Errno> {
    // SAFETY: asks to be traced, and has no other effect on this process.
    errno(unsafe { syscall(number::PTRACE, [0; 6]) })?;
    super::trap_no_more()?;
    Ok(0)
}

/// Before this process ends: a child that is being forked depends on its parent until it has its own agent. Nobody forks from then on.
pub(super) fn end_forks() {
    for _ in 0..END_LOOKS_MAX {
        if FORKING.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            return;
        }
        wait_for_fork();
    }
}

/// Waits for a fork's end, for a moment at most.
pub(super) fn wait_for_fork() {
    wait_while(&FORKING, 1, Duration::from_millis(1), Sharing::Process);
}

/// Forks while nobody changes the layout and the agent keeps its state still.
fn fork(context: &Context, arguments: &[u64; 6], thread: u32) -> u64 {
    while FORKING.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_err() {
        wait_for_fork();
    }
    while holds::layout_is_changing() {
        rustix::thread::sched_yield();
    }
    (hooks().before_fork)();
    let huge_pages = Barred::begin();
    // Without a stack: the child goes on here first. Without CLONE_VFORK: its agent waits for ours, and so must this thread.
    let (mut arguments, mut flags) = (arguments.map(|argument| argument as usize), Flags::default());
    let result = match context.rax as usize {
        number::CLONE3 => asked(&arguments).and_then(|asked| {
            flags = followed(asked.flags());
            // SAFETY: the child is a copy of this process, on a copy of this stack.
            unsafe { asked.make(flags) }
        }),
        call => {
            if call == number::CLONE {
                flags = followed(arguments[0] & !(CLONE_VFORK as usize));
                arguments[..2].copy_from_slice(&[flags.clone, 0]);
            }
            // SAFETY: the child is a copy of this process, on a copy of this stack.
            errno(unsafe { syscall(call, arguments) })
        }
    };
    if result == Ok(0) {
        holds::reset(thread);
        super::reset_in_child(SignalStack::of(context));
        FORKING.store(0, Ordering::SeqCst);
        (hooks().after_fork_in_child)();
        if flags.unshare() {
            (hooks().has_own_network)();
        }
        huge_pages.end();
        if dispatch_this_thread().is_err() {
            (hooks().fail)("system calls of a forked process cannot be dispatched");
        }
        return 0;
    }
    huge_pages.end();
    (hooks().after_fork_in_parent)(result.ok().map(|child| child as u32));
    FORKING.store(0, Ordering::SeqCst);
    wake_all(&FORKING, Sharing::Process);
    answer(result.map(|child| child as u64))
}

/// What a copy without a stack is to be asked for.
fn asked(arguments: &[usize; 6]) -> Result<Asked, Errno> {
    let [at, bytes, ..] = *arguments;
    let bytes = bytes.min(Asked::BYTES_MAX) as c_long;
    // SAFETY: there is room for as many bytes; a source that cannot be read answers false.
    let asked = Asked::read_by(bytes, |to, bytes| unsafe { super::stubs::copy(to, at as *const u8, bytes) });
    asked.map(Asked::as_fork)
}

/// How such a copy is made: as its agent can follow it, or else as it was asked for.
fn followed(asked: usize) -> Flags {
    Flags::of(asked).unwrap_or(Flags::as_asked(asked))
}
