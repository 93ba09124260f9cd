//! The program's signals. SIGSYS is ours while calls are dispatched, and it must never be blocked: the kernel ends who
//! makes a call then. SIGSEGV and SIGBUS are ours to look at first, so that a touch of memory that is not there can fail.
//! The program sees the actions that it has set, and masks without SIGSYS.

use core::sync::atomic::Ordering;

use super::context::Context;
use super::memory::{copy_in, copy_out};
use super::stubs::{CONSTANTS, ONCE, pleat_fault, pleat_fault_or_default, pleat_return};
use crate::Errno;
use crate::arch::{number, syscall};
use crate::sync::Lock;
use crate::thread::errno;

pub(super) const SIGBUS: u64 = 7;
pub(super) const SIGSEGV: u64 = 11;
pub(super) const SIGSYS: u64 = 31;
const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESETHAND: u64 = 0x8000_0000;

/// The bit of a signal in a mask.
pub(super) const fn bit(signal: u64) -> u64 {
    1 << (signal - 1)
}

/// `struct sigaction` of the kernel.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

const DEFAULT: Action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };

/// What the program has set for SIGBUS, SIGSEGV and SIGSYS.
static SHADOWS: [Lock<Action>; 3] = [const { Lock::new(DEFAULT) }; 3];

fn shadow(signal: u64) -> Option<&'static Lock<Action>> {
    match signal {
        SIGBUS => Some(&SHADOWS[0]),
        SIGSEGV => Some(&SHADOWS[1]),
        SIGSYS => Some(&SHADOWS[2]),
        _ => None,
    }
}

/// Frees the locks of [`SHADOWS`], which threads of the parent may have held.
///
/// # Safety
/// No thread of this process holds one.
pub(super) unsafe fn reset_in_child() {
    for shadow in &SHADOWS {
        // SAFETY: the caller's promise.
        unsafe { shadow.reset() };
    }
}

/// Sets the kernel's action and returns the one before.
fn set(signal: u64, action: Option<Action>) -> Result<Action, Errno> {
    let mut before = DEFAULT;
    let new = action.as_ref().map_or(0, |action| core::ptr::from_ref(action) as usize);
    let arguments = [signal as usize, new, &raw mut before as usize, 8, 0, 0];
    // SAFETY: null or a live action, and room for one; handlers are ours or the program's own.
    errno(unsafe { syscall(number::RT_SIGACTION, arguments) }).map(|_| before)
}

fn ours_for_faults(program: Action) -> Action {
    // Ignored stays so, for programs that are executed inherit it. A fault is not ignored, whatever is set.
    if program.handler == 1 {
        return program;
    }
    let theirs = if program.handler == 0 { DEFAULT } else { program };
    let restorer = if theirs.flags & SA_RESTORER == 0 { pleat_return as *const () as u64 } else { theirs.restorer };
    Action {
        handler: pleat_fault as *const () as u64,
        // A touch that fails is no signal of the program's: ours stays. `pleat_fault` does what SA_RESETHAND says.
        flags: theirs.flags & !SA_RESETHAND | SA_SIGINFO | SA_RESTORER,
        restorer,
        mask: theirs.mask & !bit(SIGSYS),
    }
}

/// Takes the three signals over, and unblocks SIGSYS for this thread.
pub(super) fn take(handler: extern "C" fn(u64, *const u64, *mut Context)) -> Result<(), Errno> {
    let mask = !(bit(SIGSEGV) | bit(SIGBUS));
    let flags = SA_SIGINFO | SA_RESTORER | SA_ONSTACK;
    let ours = Action { handler: handler as usize as u64, flags, restorer: pleat_return as *const () as u64, mask };
    *SHADOWS[2].lock() = set(SIGSYS, Some(ours))?;
    for signal in [SIGBUS, SIGSEGV] {
        let before = set(signal, None)?;
        remember(signal, before);
        set(signal, Some(ours_for_faults(before)))?;
    }
    let unblocked = bit(SIGSYS);
    let arguments = [1 /* SIG_UNBLOCK */, &raw const unblocked as usize, 0, 8, 0, 0];
    // SAFETY: points at eight live bytes.
    errno(unsafe { syscall(number::RT_SIGPROCMASK, arguments) }).map(|_| ())
}

fn remember(signal: u64, action: Action) {
    if let Some(shadow) = shadow(signal) {
        *shadow.lock() = action;
    }
    // Release: the handler that assembly finds has been set by the program, with all that it needs.
    let once = if action.flags & SA_RESETHAND != 0 && action.handler > 1 { ONCE } else { 0 };
    CONSTANTS.handlers[signal as usize].store(action.handler | once, Ordering::Release);
}

/// What the program would see of the action that it has set.
fn remembered(signal: u64, shadow: &Lock<Action>) -> Action {
    let action = *shadow.lock();
    let has_been_called = CONSTANTS.handlers[signal as usize].load(Ordering::Relaxed) == 0;
    if has_been_called { Action { handler: 0, ..action } } else { action }
}

/// In a process made by vfork, which shares our memory and not our actions: touches fail there as here.
fn action_beside(signal: u64, new: Option<Action>, shadow: &Lock<Action>) -> Result<Action, Errno> {
    if signal == SIGSYS {
        return Ok(DEFAULT);
    }
    let default = Action {
        handler: pleat_fault_or_default as *const () as u64,
        flags: SA_SIGINFO | SA_RESTORER,
        restorer: pleat_return as *const () as u64,
        mask: 0,
    };
    let before = set(signal, new.map(|new| if new.handler == 0 { default } else { new }))?;
    if before.handler == default.handler {
        Ok(DEFAULT)
    } else if before.handler == pleat_fault as *const () as u64 {
        Ok(remembered(signal, shadow))
    } else {
        Ok(before)
    }
}

/// `rt_sigaction(signal, new, old, 8)` for the program.
pub(super) fn action(arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [signal, new, old, bytes, ..] = *arguments;
    if bytes != 8 {
        return Err(Errno::INVAL);
    }
    let new = if new == 0 { None } else { Some(copy_in(new).ok_or(Errno::FAULT)?) };
    let mut new = new.map(|[handler, flags, restorer, mask]| Action { handler, flags, restorer, mask });
    let before = match shadow(signal) {
        Some(shadow) if super::armed_process() != crate::thread::process_id() => action_beside(signal, new, shadow)?,
        Some(shadow) => {
            let before = remembered(signal, shadow);
            if let Some(new) = new {
                if signal != SIGSYS {
                    set(signal, Some(ours_for_faults(new)))?;
                }
                remember(signal, new);
            }
            before
        }
        None => {
            if let Some(new) = &mut new {
                new.mask &= !bit(SIGSYS);
            }
            set(signal, new)?
        }
    };
    let Action { handler, flags, restorer, mask } = before;
    if old != 0 && !copy_out(old, [handler, flags, restorer, mask]) {
        return Err(Errno::FAULT);
    }
    Ok(0)
}

/// While our handler runs a fault must be told, even where the program blocks the signal. The way back to the program puts
/// its mask back.
pub(super) fn unblock_faults(mask: u64) {
    let faults = bit(SIGSEGV) | bit(SIGBUS);
    if mask & faults != 0 {
        let arguments = [1 /* SIG_UNBLOCK */, &raw const faults as usize, 0, 8, 0, 0];
        // SAFETY: points at eight live bytes.
        unsafe { syscall(number::RT_SIGPROCMASK, arguments) };
    }
}

/// `rt_sigprocmask(how, set, old, 8)`: the mask lies in the frame that the kernel goes back by.
pub(super) fn mask(arguments: &[u64; 6], context: &mut Context) -> Result<u64, Errno> {
    let [how, new, old, bytes, ..] = *arguments;
    if bytes != 8 {
        return Err(Errno::INVAL);
    }
    let before = context.signal_mask;
    if new != 0 {
        let [new] = copy_in(new).ok_or(Errno::FAULT)?;
        let mask = match how {
            0 => before | new,
            1 => before & !new,
            2 => new,
            _ => return Err(Errno::INVAL),
        };
        context.signal_mask = mask & !bit(SIGSYS);
    }
    if old != 0 && !copy_out(old, [before]) {
        return Err(Errno::FAULT);
    }
    Ok(0)
}

/// A SIGSYS that is not about a call of ours: sent by somebody, or by a filter of the program's.
pub(super) fn foreign(information: *const u64, context: *mut Context) {
    let program = *SHADOWS[2].lock();
    match program.handler {
        0 => end_by(SIGSYS),
        1 => {}
        handler => {
            // SAFETY: the context is the kernel's own, on this stack.
            let mask = (unsafe { (*context).signal_mask } | program.mask) & !bit(SIGSYS);
            let arguments = [2 /* SIG_SETMASK */, &raw const mask as usize, 0, 8, 0, 0];
            // SAFETY: points at eight live bytes. The program's handler may make calls, and is dispatched then.
            unsafe { syscall(number::RT_SIGPROCMASK, arguments) };
            // SAFETY: the program has given this address as a handler of such signals.
            let handler: extern "C" fn(u64, *const u64, *mut Context) =
                unsafe { core::mem::transmute(handler as *const ()) };
            handler(SIGSYS, information, context);
        }
    }
}

/// SIGSEGV or SIGBUS that the program does not handle.
pub(super) extern "C" fn default_action(signal: u64, information: *const i32, context: *mut Context) {
    let is_ignored = CONSTANTS.handlers[signal as usize & 31].load(Ordering::Relaxed) == 1;
    if is_fault(information) || !is_ignored {
        own_default_action(signal, information, context);
    }
}

/// The same in a process that has set the default action itself.
pub(super) extern "C" fn own_default_action(signal: u64, information: *const i32, _context: *mut Context) {
    if is_fault(information) {
        // Without a handler the instruction ends the program when it is run again, core dump and all.
        let _ = set(signal & 63, Some(DEFAULT));
    } else {
        end_by(signal & 63);
    }
}

/// Whether an instruction has caused the signal; nobody has sent it.
fn is_fault(information: *const i32) -> bool {
    // SAFETY: the kernel passes a siginfo, whose third number is the code.
    unsafe { *information.wrapping_add(2) > 0 }
}

/// Ends the program by a signal, as it would have ended without us.
fn end_by(signal: u64) {
    let _ = set(signal, Some(DEFAULT));
    let ids = [crate::thread::process_id() as usize, crate::thread::thread_id() as usize, signal as usize, 0, 0, 0];
    // SAFETY: takes three numbers. The signal comes when the handler has returned.
    unsafe { syscall(number::TGKILL, ids) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_sets_actions_that_a_thread_of_its_parents_was_setting() {
        // Of SIGSYS: other tests ask for none of it.
        core::mem::forget(SHADOWS[2].lock());
        // SAFETY: nobody uses the guard any more.
        unsafe { reset_in_child() };
        assert!(SHADOWS.iter().all(|shadow| !shadow.is_held()));
    }
}
