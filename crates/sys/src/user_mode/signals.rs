//! The program's signals. SIGSYS is ours while calls are dispatched, and it must never be blocked: the kernel ends who
//! makes a call then. SIGSEGV and SIGBUS are ours to look at first, so that a touch of memory that is not there can fail. All
//! others that have a handler come to [`deliver`] first, for their frames must not lie where a page could be out.
//! The program sees the actions that it has set, and masks without SIGSYS.

use super::context::Context;
use super::deliver::deliver;
use super::memory::{copy_in, copy_out};
use super::stubs::{pleat_fault, pleat_fault_or_default, pleat_return};
use crate::Errno;
use crate::action::{self, Action, SA_ONSTACK, SA_RESTART, SA_RESTORER, SA_SIGINFO};
use crate::arch::{number, syscall};
use crate::sync::Lock;
use crate::thread::errno;

const SIGBUS: u64 = 7;
const SIGKILL: u64 = 9;
const SIGSEGV: u64 = 11;
const SIGSTOP: u64 = 19;
pub(super) const SIGSYS: u64 = 31;
const SIGNALS: usize = 64;
pub(super) const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
/// Those that the kernel knows: `SA_NOCLDSTOP`, `SA_NOCLDWAIT`, `SA_EXPOSE_TAGBITS` besides. It forgets others.
const SA_KNOWN: u64 = 1 | 2 | SA_SIGINFO | 0x800 | SA_RESTORER | SA_ONSTACK | SA_RESTART | SA_NODEFER | SA_RESETHAND;

/// The bit of a signal in a mask.
pub(super) const fn bit(signal: u64) -> u64 {
    1 << (signal - 1)
}

/// What the program has set, by signal.
static SHADOWS: [Lock<Action>; SIGNALS] = [const { Lock::new(Action::DEFAULT) }; SIGNALS];

fn shadow(signal: u64) -> Option<&'static Lock<Action>> {
    SHADOWS.get(signal.checked_sub(1)? as usize)
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

/// The signals that the program has a handler for, but those of faults, as a mask.
pub(super) fn handled() -> u64 {
    let has_handler = |signal: &u64| {
        let is_ours = is_for_faults(*signal) || *signal == SIGSYS;
        !is_ours && SHADOWS[*signal as usize - 1].lock().handler > action::IGNORED
    };
    (1..=SIGNALS as u64).filter(has_handler).map(bit).fold(0, |mask, bit| mask | bit)
}

fn is_for_faults(signal: u64) -> bool {
    matches!(signal, SIGBUS | SIGSEGV)
}

/// What the kernel is told where the program has set this.
fn ours(signal: u64, program: Action) -> Action {
    // Ignored stays so, for programs that are executed inherit it. A fault is not ignored, whatever is set.
    let is_plain = program.handler == action::DEFAULT && !is_for_faults(signal);
    if is_plain || program.handler == action::IGNORED {
        return Action { mask: program.mask & !bit(SIGSYS), ..program };
    }
    // A touch that fails is no signal of the program's: ours stays, and `action_for` does what SA_RESETHAND says.
    let (handler, once) = if is_for_faults(signal) {
        (pleat_fault as *const () as u64, 0)
    } else {
        (deliver as *const () as u64, SA_RESETHAND)
    };
    Action {
        handler,
        flags: program.flags & !SA_NODEFER & (!SA_RESETHAND | once) | SA_SIGINFO | SA_RESTORER | SA_ONSTACK,
        restorer: pleat_return as *const () as u64,
        mask: ALL_BUT_OURS,
    }
}

const ALL_BUT_OURS: u64 = !(bit(SIGSEGV) | bit(SIGBUS) | bit(SIGSYS));

fn is_ours(handler: u64) -> bool {
    handler == pleat_fault as *const () as u64 || handler == deliver as *const () as u64
}

/// Takes over the signals that have a handler, and those of faults and system calls, and unblocks SIGSYS for this thread.
pub(super) fn take(trap: extern "C" fn(u64, *const u64, *mut Context)) -> Result<(), Errno> {
    let theirs = (1..=SIGNALS as u64).filter(|signal| !matches!(*signal, SIGKILL | SIGSTOP | SIGSYS));
    for signal in theirs {
        let before = action::set(signal, None)?;
        if before.handler > action::IGNORED || is_for_faults(signal) {
            action::set(signal, Some(ours(signal, before)))?;
        }
        *SHADOWS[signal as usize - 1].lock() = before;
    }
    let flags = SA_SIGINFO | SA_RESTORER | SA_ONSTACK;
    let restorer = pleat_return as *const () as u64;
    let mask = !(bit(SIGSEGV) | bit(SIGBUS));
    let handler = Action { handler: trap as usize as u64, flags, restorer, mask };
    *SHADOWS[SIGSYS as usize - 1].lock() = action::set(SIGSYS, Some(handler))?;
    let unblocked = bit(SIGSYS);
    let arguments = [1 /* SIG_UNBLOCK */, &raw const unblocked as usize, 0, 8, 0, 0];
    // SAFETY: points at eight live bytes.
    errno(unsafe { syscall(number::RT_SIGPROCMASK, arguments) }).map(|_| ())
}

/// In a process made by vfork, which shares our memory and not our actions: touches fail there as here. What it sets it is told
/// where it is.
fn action_beside(signal: u64, new: Option<Action>, shadow: &Lock<Action>) -> Result<Action, Errno> {
    if signal == SIGSYS {
        return Ok(Action::DEFAULT);
    }
    let default = Action {
        handler: pleat_fault_or_default as *const () as u64,
        flags: SA_SIGINFO | SA_RESTORER,
        restorer: pleat_return as *const () as u64,
        mask: 0,
    };
    let is_default = |new: &Action| is_for_faults(signal) && new.handler == action::DEFAULT;
    let theirs = |new| if is_default(&new) { default } else { Action { mask: new.mask & !bit(SIGSYS), ..new } };
    let before = action::set(signal, new.map(theirs))?;
    if before.handler == default.handler {
        Ok(Action::DEFAULT)
    } else if is_ours(before.handler) {
        Ok(*shadow.lock())
    } else {
        Ok(before)
    }
}

/// Sets and returns the program's action.
fn exchange(signal: u64, new: Option<Action>) -> Result<Action, Errno> {
    let shadow = shadow(signal).ok_or(Errno::INVAL)?;
    if super::armed_process() != crate::thread::process_id() {
        return action_beside(signal, new, shadow);
    }
    let mut shadow = shadow.lock();
    let kernels = if signal == SIGSYS { None } else { Some(action::set(signal, new.map(|new| ours(signal, new)))?) };
    let before = match kernels {
        // It has been called once, as SA_RESETHAND says, or the kernel has ended its being ignored.
        Some(Action { handler, .. }) if !is_ours(handler) => Action { handler, ..*shadow },
        _ => *shadow,
    };
    if let Some(new) = new {
        let mask = new.mask & !(bit(SIGKILL) | bit(SIGSTOP));
        *shadow = Action { flags: new.flags & SA_KNOWN, mask, ..new };
    }
    Ok(before)
}

/// `rt_sigaction(signal, new, old, 8)` for the program.
pub(super) fn action(arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [signal, new, old, bytes, ..] = *arguments;
    if bytes != 8 {
        return Err(Errno::INVAL);
    }
    let new = if new == 0 { None } else { Some(copy_in(new).ok_or(Errno::FAULT)?) };
    let new = new.map(|[handler, flags, restorer, mask]| Action { handler, flags, restorer, mask });
    let Action { handler, flags, restorer, mask } = exchange(signal, new)?;
    if old != 0 && !copy_out(old, [handler, flags, restorer, mask]) {
        return Err(Errno::FAULT);
    }
    Ok(0)
}

/// The handler of the program's that a signal is for. `None` if it has none: then that is done which is done without one.
pub(super) fn action_for(signal: u64, information: *const i32) -> Option<Action> {
    let shadow = shadow(signal)?;
    let mut held = shadow.lock();
    let action = *held;
    if action.handler > action::IGNORED {
        if action.flags & SA_RESETHAND != 0 && is_for_faults(signal) {
            held.handler = action::DEFAULT;
        }
        return Some(action);
    }
    drop(held);
    if is_fault(signal, information) {
        // Without a handler the instruction ends the program when it is run again, core dump and all.
        let _ = action::set(signal, Some(Action::DEFAULT));
    } else if action.handler == action::DEFAULT {
        end_by(signal);
    }
    None
}

/// A signal whose frame has no place where the program wants it: a fault of the program's, and its end where that is its fault, too.
pub(super) fn cannot_be_told(signal: u64, context: &mut Context) {
    if signal == SIGSEGV || context.signal_mask & bit(SIGSEGV) != 0 {
        context.signal_mask &= !bit(SIGSEGV);
        return end_by(SIGSEGV);
    }
    send_to_this_thread(SIGSEGV);
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

/// SIGSEGV or SIGBUS in a process that has set the default action itself.
pub(super) extern "C" fn own_default_action(signal: u64, information: *const i32, _context: *mut Context) {
    if is_fault(signal, information) {
        let _ = action::set(signal, Some(Action::DEFAULT));
    } else {
        end_by(signal);
    }
}

/// Whether an instruction has caused the signal; nobody has sent it.
fn is_fault(signal: u64, information: *const i32) -> bool {
    // SAFETY: the kernel passes a siginfo, whose third number is the code.
    is_for_faults(signal) && unsafe { *information.wrapping_add(2) > 0 }
}

/// Ends the program by a signal, or does what else the default action is, as without us.
fn end_by(signal: u64) {
    let _ = action::set(signal, Some(Action::DEFAULT));
    send_to_this_thread(signal);
}

/// It comes when the handler that we are in has returned.
fn send_to_this_thread(signal: u64) {
    let ids = [crate::thread::process_id() as usize, crate::thread::thread_id() as usize, signal as usize, 0, 0, 0];
    // SAFETY: takes three numbers.
    unsafe { syscall(number::TGKILL, ids) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_sets_actions_that_a_thread_of_its_parents_was_setting() {
        // Of SIGSYS: other tests ask for none of it.
        core::mem::forget(SHADOWS[SIGSYS as usize - 1].lock());
        // SAFETY: nobody uses the guard any more.
        unsafe { reset_in_child() };
        assert!(SHADOWS.iter().all(|shadow| !shadow.is_held()));
    }
}
