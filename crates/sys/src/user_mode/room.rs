//! Room for what the handler of SIGSYS does. It begins on the program's signal stack where there is one, of 8 KiB often enough, of
//! which the kernel's frame takes three with AVX-512. A fork, which settles the agent's state, would run over its end into whatever
//! lies below; and in a call that a handler of the program's makes on that stack there is no room for the third frame, of a look at
//! the program's memory that fails.

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::context::Context;
use super::stubs;
use crate::arch::{number, syscall};
use crate::{Area, Errno};

/// What forks and changes of the layout take; a fork takes 30 KiB.
pub(super) const MUCH: u64 = 48 << 10;
/// What other calls take, with the frame of a look that fails.
pub(super) const LITTLE: u64 = 8 << 10;
/// Of one stack.
const STACK_BYTES: usize = 128 << 10;
/// Threads of which each may be in such a call at the same time.
const STACKS: usize = 16;
/// Looks for a stack that is free. Who finds none goes on where he is.
const LOOKS_MAX: u32 = 10_000;
const SS_DISABLE: u64 = 2;

static BASE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static TAKEN: [AtomicBool; STACKS] = [const { AtomicBool::new(false) }; STACKS];

/// Reserves the stacks.
pub(super) fn reserve() -> Result<(), Errno> {
    let stacks = Area::reserve(STACKS * STACK_BYTES)?;
    BASE.store(stacks.base(), Ordering::Release);
    // They are there for as long as the process.
    core::mem::forget(stacks);
    Ok(())
}

/// In a forked child, on its only thread: the stacks of the others' are free.
pub(super) fn reset_in_child() {
    let marker = 0_u8;
    let here = (&raw const marker as usize).wrapping_sub(BASE.load(Ordering::Acquire) as usize) / STACK_BYTES;
    TAKEN.iter().enumerate().filter(|(at, _)| *at != here).for_each(|(_, taken)| taken.store(false, Ordering::Release));
}

/// Works in the handler of SIGSYS, on a stack of ours if it runs on the program's signal stack and that has not so many bytes left.
pub(super) fn with_room<W: FnMut(&mut Context)>(context: &mut Context, bytes: u64, work: W) {
    let here = core::ptr::from_ref(context) as u64;
    let is_short = context.has_on_signal_stack(here) && !context.has_on_signal_stack(here.saturating_sub(bytes));
    let Some(stack) = is_short.then(take).flatten() else {
        let mut work = work;
        return work(context);
    };
    let mut task = Task { work, context };
    // SAFETY: nobody else uses that stack, and `task` lives until this returns.
    unsafe { stubs::pleat_call_on(stack.top(), run::<W>, (&raw mut task).cast()) };
}

struct Task<'a, W> {
    work: W,
    context: &'a mut Context,
}

extern "C" fn run<W: FnMut(&mut Context)>(task: *mut u8) {
    // SAFETY: `with_room` waits for us.
    let Task { work, context } = unsafe { &mut *task.cast::<Task<'_, W>>() };
    // Where a look at the program's memory fails, the frame of that signal would go to the top of the signal stack, over this one's.
    // The return from this one puts the signal stack back.
    let none = [0, SS_DISABLE, 0];
    // SAFETY: points at a live `struct stack`.
    unsafe { syscall(number::SIGALTSTACK, [&raw const none as usize, 0, 0, 0, 0, 0]) };
    work(context);
}

/// A stack that is taken, by its number.
struct Stack(usize);

impl Stack {
    fn top(&self) -> *mut u8 {
        BASE.load(Ordering::Acquire).wrapping_add((self.0 + 1) * STACK_BYTES)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        TAKEN[self.0].store(false, Ordering::Release);
    }
}

fn take() -> Option<Stack> {
    if BASE.load(Ordering::Acquire).is_null() {
        return None;
    }
    for _ in 0..LOOKS_MAX {
        let is_free =
            |taken: &AtomicBool| taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if let Some(at) = TAKEN.iter().position(is_free) {
            return Some(Stack(at));
        }
        rustix::thread::sched_yield();
    }
    None
}
