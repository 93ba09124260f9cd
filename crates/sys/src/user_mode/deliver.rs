//! Delivery of the program's signals, and the return from its handlers.
//!
//! The kernel puts the frame of each signal on our own stack ([`super::signal_stacks`]), with all signals blocked. From there it is
//! brought to where the program expects it, below its stack pointer or on top of its signal stack, by plain writes, for which a page
//! that is out comes back; and our own frame is made to go on in the program's handler. The return goes the other way: what
//! `rt_sigreturn` is to find is copied from the program's frame to ours. So the kernel meets no page of the program's.
//!
//! Placed and filled as `get_sigframe` and `x64_setup_rt_frame` of Linux do.

use super::context::{Context, SIGNAL_MASK_OFFSET};
use super::holds;
use super::memory::copy_in;
use super::signal_stacks::{Seen, SignalStack};
use super::signals::{self, SA_NODEFER, SIGSYS, bit};
use super::stubs::{copy, pleat_called, pleat_return};
use super::transfers;
use crate::Errno;
use crate::action::{Action, SA_ONSTACK};
use crate::arch::{number, syscall};

/// What a function may use below its stack pointer.
const RED_ZONE_BYTES: u64 = 128;
/// `FP_XSTATE_MAGIC1`, in the part of the state that is free for software: behind it, how many bytes it takes.
const STATE_MAGIC: u64 = 0x4650_5853;
const STATE_NOTE_OFFSET: u64 = 464;
/// Without that: what `fxsave` stores.
const STATE_BYTES_MIN: u64 = 512;
/// More than any state (AMX: 11 KiB).
const STATE_BYTES_MAX: u64 = 32 << 10;
/// DF, TF and RF are clear where a handler begins.
const CLEARED_FLAGS: u64 = 0x400 | 0x100 | 0x1_0000;

/// `struct rt_sigframe`, what a handler finds at its stack pointer.
#[derive(Clone, Copy)]
#[repr(C)]
struct Frame {
    /// Where the handler returns to.
    restorer: u64,
    context: Context,
    information: [u64; 16],
}

/// The handler of all signals of the program's. Signals are blocked, but for SIGSYS and, if the program has not blocked them, faults.
pub(super) extern "C" fn deliver(signal: u64, information: *const [u64; 16], context: *mut Context) {
    let Some(action) = signals::action_for(signal, information.cast()) else { return };
    // SAFETY: the kernel's own, on this stack, and nobody else's until we return.
    let context = unsafe { &mut *context };
    transfers::interrupt(context);
    let before = mask_before(context);
    let deferred = if action.flags & SA_NODEFER == 0 { bit(signal) } else { 0 };
    let mask = (before | action.mask | deferred) & !bit(SIGSYS);
    let Some(stack) = SignalStack::of(context) else {
        return call_here(&action, mask, signal, information, context);
    };
    let seen = stack.seen();
    // SAFETY: `information` is the kernel's own.
    let information = unsafe { *information };
    let Some(frame) = place(context, seen, &action, information) else {
        return signals::cannot_be_told(signal, context);
    };
    stack.set_seen(seen.behind_signal());
    context.rsp = frame;
    context.rip = action.handler;
    context.rdi = signal;
    context.rsi = frame + core::mem::offset_of!(Frame, information) as u64;
    context.rdx = frame + core::mem::offset_of!(Frame, context) as u64;
    context.rax = 0;
    context.state = 0;
    context.processor_flags &= !CLEARED_FLAGS;
    context.signal_mask = mask;
}

/// The mask that the handler's is added to: that of a call which sets one for as long as it waits, where such a call was interrupted.
fn mask_before(context: &Context) -> u64 {
    let is_interrupted = context.rax as i64 == -i64::from(Errno::INTR.raw_os_error());
    if context.rip != pleat_called as *const () as u64 || !is_interrupted {
        return context.signal_mask;
    }
    let slot = copy_in(context.rsp).and_then(|[slot]| holds::slot_at(slot));
    slot.and_then(holds::Slot::take_mask).unwrap_or(context.signal_mask)
}

/// Writes the program's frame; where. `None` if there is no room for it, or it cannot be written.
fn place(context: &Context, seen: Seen, action: &Action, information: [u64; 16]) -> Option<u64> {
    let below = context.rsp.wrapping_sub(RED_ZONE_BYTES);
    let is_there = seen.has_running(below);
    let entered = seen.top().filter(|_| action.flags & SA_ONSTACK != 0 && !is_there);
    let top = entered.unwrap_or(below);
    let state_bytes = state_bytes(context.state)?;
    let state = if context.state == 0 { 0 } else { top.checked_sub(state_bytes)? & !63 };
    let end = if state == 0 { top } else { state };
    let start = (end.checked_sub(size_of::<Frame>() as u64)? & !15).checked_sub(8)?;
    if (is_there || entered.is_some()) && !seen.has(start) {
        return None; // It would run over the end of the signal stack.
    }
    let mut frame = Frame { restorer: action.restorer, context: *context, information };
    (frame.context.stack, frame.context.state) = (seen.words(), state);
    // SAFETY: the program's stack, below what it uses, or its signal stack; `copy` answers false where it cannot be written.
    let is_written = unsafe { copy(start as *mut u8, (&raw const frame).cast(), size_of::<Frame>()) };
    // SAFETY: the same, from the kernel's frame.
    let has_state = unsafe { copy(state as *mut u8, context.state as *const u8, state_bytes as usize) };
    (is_written && has_state).then_some(start)
}

/// How many bytes the processor's state takes that lies there; `None` if it cannot be read.
fn state_bytes(state: u64) -> Option<u64> {
    if state == 0 {
        return Some(0);
    }
    let [note] = copy_in(state + STATE_NOTE_OFFSET)?;
    let bytes = if note & u64::from(u32::MAX) == STATE_MAGIC { note >> 32 } else { STATE_BYTES_MIN };
    (STATE_BYTES_MIN..=STATE_BYTES_MAX).contains(&bytes).then_some(bytes)
}

/// Where the frame is the program's already: in a process or thread that has no stack of ours.
fn call_here(action: &Action, mask: u64, signal: u64, information: *const [u64; 16], context: &mut Context) {
    let arguments = [2 /* SIG_SETMASK */, &raw const mask as usize, 0, 8, 0, 0];
    // SAFETY: points at eight live bytes. The program's handler may make calls, and is dispatched then.
    unsafe { syscall(number::RT_SIGPROCMASK, arguments) };
    // SAFETY: the program has given this address as a handler of such signals.
    let handler: extern "C" fn(u64, *const [u64; 16], *mut Context) =
        unsafe { core::mem::transmute(action.handler as *const ()) };
    handler(signal, information, context);
}

/// `rt_sigreturn`: the program's stack pointer is at the context of its frame.
pub(super) fn go_back(context: &mut Context) {
    if SignalStack::of(context).is_none_or(|stack| bring_back(context, stack).is_none()) {
        // By the kernel, which ends the program where there is no frame. Plain writes would do so within our handler.
        let at = context.rsp + SIGNAL_MASK_OFFSET as u64;
        if let Some([mask]) = copy_in(at) {
            super::memory::copy_out(at, [mask & !bit(SIGSYS)]);
        }
        context.rip = pleat_return as *const () as u64;
    }
}

/// Makes our own frame one that goes back to what the program's says.
fn bring_back(context: &mut Context, stack: SignalStack) -> Option<()> {
    let mut theirs = core::mem::MaybeUninit::<Context>::uninit();
    // SAFETY: room for a context; `copy` answers false instead of faulting on the source.
    let is_whole = unsafe { copy(theirs.as_mut_ptr().cast(), context.rsp as *const u8, size_of::<Context>()) };
    // SAFETY: written whole, and any words are a context.
    let mut theirs = is_whole.then(|| unsafe { theirs.assume_init() })?;
    if theirs.state != 0 {
        let bytes = state_bytes(theirs.state)?;
        // SAFETY: at the foot of this stack is room for any state, and nobody comes there before the kernel has read it.
        let is_whole = unsafe { copy(stack.foot(), theirs.state as *const u8, bytes as usize) };
        theirs.state = is_whole.then_some(stack.foot() as u64)?;
    }
    // Errors are none of the program's: `restore_altstack` ignores them, and comes before the registers (Linux 5.14).
    let seen = stack.seen();
    stack.set_seen(seen.changed(theirs.stack, context.rsp).unwrap_or(seen));
    theirs.stack = stack.words();
    theirs.signal_mask &= !bit(SIGSYS);
    *context = theirs;
    Some(())
}
