//! The trap: what happens when the program makes a system call.

use core::sync::atomic::Ordering;

use super::calls::{self, Class};
use super::context::Context;
use super::deliver;
use super::holds::{self, Hold, Place, Slot};
use super::memory::{Memory, bring_in, copy_in, copy_out};
use super::signal_stacks::{self, SS_DISABLE, SignalStack};
use super::signals::{self, SIGSYS, bit};
use super::stubs::{FRAME_BYTES, pleat_bare, pleat_call, pleat_exit, pleat_unmap_self};
use super::{KEPT, PINNED, hooks, huge_pages, pin, processes, transfers};
use crate::Errno;
use crate::arch::{number, syscall};
use crate::attach::{self, Attach};
use crate::process::{heap_end, is_alone};
use crate::remap::{Look, Request, is_range};
use crate::thread;

/// `SYS_USER_DISPATCH`, and `AUDIT_ARCH_X86_64` with the call's number below it.
const BY_DISPATCH: i32 = 2;
const ARCHITECTURE: u64 = 0xc000_003e;
const PTRACE_TRACEME: u64 = 0;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_GROWSDOWN: u64 = 0x100;
const MAP_POPULATE: u64 = 0x8000;
const MAP_STACK: u64 = 0x2_0000;
const MADV_POPULATE_READ: u64 = 22;
const MADV_POPULATE_WRITE: u64 = 23;
/// More than the frame of a signal and our own take of the stack.
const HANDLER_STACK_BYTES: u64 = 64 << 10;

/// The handler of SIGSYS. All signals but SIGSEGV and SIGBUS are blocked while it runs.
pub(super) extern "C" fn handle(_signal: u64, information: *const u64, context: *mut Context) {
    // SAFETY: the kernel passes a siginfo of 128 bytes: signal and errno, code, address, number and architecture.
    let [_, code, _, call] = unsafe { information.cast::<[u64; 4]>().read() };
    let code = code as i32;
    if code != BY_DISPATCH {
        return deliver::deliver(SIGSYS, information.cast(), context);
    }
    if call >> 32 != ARCHITECTURE {
        (hooks().fail)("a system call of another architecture cannot be made safe in user mode");
    }
    // SAFETY: the context lies on this stack, and nobody else uses it until we return.
    let context = unsafe { &mut *context };
    signals::unblock_faults(context.signal_mask);
    if context.rax == transfers::GO_ON {
        return transfers::go_on(context);
    }
    let place = place(context);
    if transfers::begin(context, place) {
        return;
    }
    match calls::class(context.rax) {
        Class::Holds(_) if context.rax as usize == number::PRCTL && huge_pages::is_setting(&context.arguments()) => {
            layout(context, &[], place);
        }
        Class::Holds(pieces) => hold_and_call(context, pieces, place),
        Class::Layout(pieces) => layout(context, pieces, place),
        Class::Signals => change_signals(context),
        Class::Return => deliver::go_back(context),
        Class::SignalStack => change_signal_stack(context, place),
        Class::Process => processes::make(context, place),
        Class::Refused => {
            (hooks().has_refused)(calls::name(context.rax));
            context.rax = answer(Err(Errno::NOSYS));
        }
    }
}

fn change_signals(context: &mut Context) {
    let arguments = context.arguments();
    let result = if context.rax == number::RT_SIGACTION as u64 {
        signals::action(&arguments)
    } else {
        signals::mask(&arguments, context)
    };
    context.rax = answer(result);
}

/// `sigaltstack(new, old)`.
fn change_signal_stack(context: &mut Context, place: Place) {
    let [new, old, ..] = context.arguments();
    let Some(stack) = SignalStack::of(context) else {
        // Its frames come there, whatever they are of.
        if let Some([start, flags, bytes]) = copy_in(new)
            && flags & SS_DISABLE == 0
        {
            pin(start, start.saturating_add(bytes));
        }
        return hold_and_call(context, &[calls::Piece::Fix(0, 24), calls::Piece::Fix(1, 24)], place);
    };
    context.rax = answer(exchange_signal_stack(stack, new, old, context.rsp));
}

fn exchange_signal_stack(stack: SignalStack, new: u64, old: u64, stack_pointer: u64) -> Result<u64, Errno> {
    let seen = stack.seen();
    if new != 0 {
        let words = copy_in(new).ok_or(Errno::FAULT)?;
        stack.set_seen(seen.changed(words, stack_pointer)?);
        let [start, _, bytes] = stack.seen().words();
        // What runs there is above a call that a signal has interrupted on the same stack, and no deeper.
        if is_stack(start) {
            pin(start, start.saturating_add(bytes));
        }
    }
    if old != 0 && !copy_out(old, seen.told(stack_pointer)) {
        return Err(Errno::FAULT);
    }
    Ok(0)
}

fn is_stack(address: u64) -> bool {
    super::main_stack(address).is_some() || KEPT.find(address).is_some()
}

/// What the kernel would put into the result register.
pub(super) fn answer(result: Result<u64, Errno>) -> u64 {
    result.unwrap_or_else(|errno| i64::from(errno.raw_os_error()).wrapping_neg() as u64)
}

/// The stack that a call comes from.
fn place(context: &Context) -> Place {
    place_at(context.rsp)
}

/// The stack that this address is of.
pub(super) fn place_at(stack_pointer: u64) -> Place {
    let (thread, is_guest) = (thread::thread_id(), thread::process_id() != super::armed_process());
    let is_signal_stack = PINNED.find(stack_pointer).is_some();
    let stack = super::main_stack(stack_pointer).or_else(|| KEPT.find(stack_pointer)).filter(|_| !is_signal_stack);
    Place { stack: stack.map_or(0, |stack| stack.start), stack_pointer, thread, is_guest }
}

/// Addresses that are never managed, as seen from a call.
pub(super) fn safe(place: Place) -> core::ops::Range<u64> {
    let stack = super::main_stack(place.stack_pointer).or_else(|| KEPT.find(place.stack_pointer));
    stack.map_or(0..0, |stack| place.stack_pointer.saturating_sub(256)..stack.end)
}

/// A hold for this call; the end of the program if there is none to be had.
pub(super) fn hold(place: Place) -> Hold {
    Hold::new(place).unwrap_or_else(|| (hooks().fail)("too many system calls at once for user mode"))
}

pub(super) fn gather(hold: &mut Hold, pieces: &[calls::Piece], arguments: &[u64; 6], place: Place) {
    let mut memory = Memory { hold, safe: safe(place) };
    memory.gather(pieces, arguments);
    memory.hold.publish();
    memory.bring_in();
}

/// Lets the program end.
fn end(context: &mut Context, place: Place) {
    if !place.is_guest {
        processes::end_forks();
    }
    context.rip = pleat_bare as *const () as u64;
}

/// Holds what a call uses and lets the program make it.
pub(super) fn hold_and_call(context: &mut Context, pieces: &[calls::Piece], place: Place) {
    let arguments = context.arguments();
    match context.rax as usize {
        number::EXECVE | number::EXECVEAT => processes::wait_to_execute(place),
        number::PTRACE if arguments[0] == PTRACE_TRACEME && place.is_guest => {
            return context.rax = answer(processes::let_guest_be_traced());
        }
        // They do not come back. With the last thread the process ends; ours would go on until somebody looks.
        number::EXIT if !place.is_guest && is_alone() => {
            context.rax = number::EXIT_GROUP as u64;
            return end(context, place);
        }
        number::EXIT => {
            hold_robust_list(place);
            super::LAST_EXIT.store(arguments[0] as u32, Ordering::Relaxed);
            return leave(context, place, pleat_exit);
        }
        number::EXIT_GROUP => return end(context, place),
        number::SECCOMP | number::PRCTL if is_refused(context.rax as usize, &arguments) => {
            return context.rax = answer(Err(Errno::INVAL));
        }
        // The kernel writes there whenever it likes.
        number::SET_TID_ADDRESS => pin_unless_kept(arguments[0], 4),
        number::SET_ROBUST_LIST => pin_unless_kept(arguments[0], 24),
        number::RSEQ => pin_unless_kept(arguments[0], 64),
        _ => {}
    }
    let mut hold = hold(place);
    gather(&mut hold, pieces, &arguments, place);
    go_on_with(context, &hold, arguments);
}

/// A thread ends by this piece of assembly, and gives its signal stack back when it runs there no more.
fn leave(context: &mut Context, place: Place, stub: unsafe extern "C" fn()) {
    // A guest's is its parent's.
    let (word, bit) = signal_stacks::taken(SignalStack::of(context).filter(|_| !place.is_guest));
    (context.r8, context.r9) = (bit, core::ptr::from_ref(word) as u64);
    context.signal_mask = !signals::bit(SIGSYS);
    context.rip = stub as *const () as u64;
}

/// The kernel looks at what a thread's robust mutexes are told by when the thread has ended. What it holds then is let go as that
/// of other threads that end amid a call.
fn hold_robust_list(place: Place) {
    let Some(head) = crate::robust::head() else { return };
    let mut taken = None;
    let read = &mut |at| copy_in(at).map(|[word]| word);
    crate::robust::words(head, read, &mut |entry, word| {
        let hold = taken.get_or_insert_with(|| hold(place));
        hold.add(entry, entry.saturating_add(8));
        hold.add(word, word.saturating_add(4));
    });
    if let Some(hold) = taken {
        hold.publish();
        hold.ranges(bring_in);
    }
}

fn pin_unless_kept(start: u64, bytes: u64) {
    if KEPT.find(start).is_none() {
        pin(start, start.saturating_add(bytes));
    }
}

/// Filters would end the program at calls of ours, and there is one dispatcher only. Who asks for a filter without a program, or in a way that
/// is none, asks what the kernel knows (libseccomp), and has its answer.
fn is_refused(call: usize, arguments: &[u64; 6]) -> bool {
    const PR_SET_SECCOMP: u64 = 22;
    const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
    const SET_MODE_STRICT: u64 = 0;
    const SET_MODE_FILTER: u64 = 1;
    let is_filter = match (call == number::SECCOMP, arguments[0]) {
        (true, SET_MODE_STRICT) => arguments[1] == 0 && arguments[2] == 0,
        (true, SET_MODE_FILTER) => arguments[2] != 0,
        (true, _) => false,
        (false, option) => option == PR_SET_SECCOMP,
    };
    if is_filter {
        (hooks().say)("a seccomp filter is refused (EINVAL): user mode needs calls that it may forbid");
    }
    is_filter || call == number::PRCTL && arguments[0] == PR_SET_SYSCALL_USER_DISPATCH
}

/// The program goes on in `pleat_call`, with masks that leave SIGSYS unblocked.
fn go_on_with(context: &mut Context, hold: &Hold, arguments: [u64; 6]) {
    let slot = hold.slot();
    let mut changed = arguments;
    // Where the call's argument is a signal mask.
    slot.sets_mask.store(0, Ordering::Relaxed);
    let mask = match context.rax as usize {
        number::RT_SIGSUSPEND => Some(0),
        number::PPOLL => Some(3),
        number::EPOLL_PWAIT | number::EPOLL_PWAIT2 => Some(4),
        _ => None,
    };
    if let Some(at) = mask
        && let Some([mask]) = copy_in(changed[at])
    {
        slot.scratch[0].store(mask & !bit(SIGSYS), Ordering::Relaxed);
        slot.sets_mask.store(1, Ordering::Relaxed);
        changed[at] = &raw const slot.scratch[0] as u64;
    }
    if context.rax as usize == number::PSELECT6
        && let Some([pointer, bytes]) = copy_in(changed[5])
        && let Some([mask]) = copy_in(pointer)
    {
        slot.scratch[0].store(mask & !bit(SIGSYS), Ordering::Relaxed);
        slot.sets_mask.store(1, Ordering::Relaxed);
        slot.scratch[1].store(&raw const slot.scratch[0] as u64, Ordering::Relaxed);
        slot.scratch[2].store(bytes, Ordering::Relaxed);
        changed[5] = &raw const slot.scratch[1] as u64;
    }
    note_return(hold, context, arguments);
    context.set_arguments(changed);
    go_on_in(context, slot, pleat_call);
}

/// The program goes on in a piece of assembly that finds the slot and the way back on the stack.
pub(super) fn go_on_in(context: &mut Context, slot: &Slot, stub: unsafe extern "C" fn()) {
    context.rsp -= FRAME_BYTES;
    let frame = context.rsp as *mut [u64; 2];
    // SAFETY: the program's stack, below what a function may use without moving its stack pointer.
    unsafe { frame.write_unaligned([core::ptr::from_ref(slot) as u64, context.rip]) };
    context.rip = stub as *const () as u64;
}

/// Writes down what the assembly puts back.
pub(super) fn note_return(hold: &Hold, context: &Context, arguments: [u64; 6]) {
    let slot = hold.slot();
    for (place, argument) in slot.arguments.iter().zip(arguments) {
        place.store(argument, Ordering::Relaxed);
    }
    slot.back.store(context.rip, Ordering::Relaxed);
}

/// A call that changes the layout. Stacks are noted while they are mapped, and forgotten before they are unmapped.
fn layout(context: &mut Context, pieces: &[calls::Piece], place: Place) {
    let arguments = context.arguments();
    if context.rax as usize == number::MADVISE && matches!(arguments[2], MADV_POPULATE_READ | MADV_POPULATE_WRITE) {
        return context.rax = answer(fill(pieces, &arguments, place));
    }
    let hold = hold_while_nobody_forks(pieces, &arguments, place);
    let [start, second, _, flags, ..] = arguments;
    // Where there is no second argument that register holds anything.
    let bytes = if matches!(context.rax as usize, number::BRK | number::SHMDT) { 0 } else { second };
    let end = start.saturating_add(bytes);
    let mut forgotten = None;
    match context.rax as usize {
        number::MREMAP => {
            context.rax = answer(remap(&arguments));
            return hold.let_go();
        }
        number::SHMAT => {
            context.rax = answer(attach(&arguments));
            return hold.let_go();
        }
        number::BRK if is_refused_brk(start) => {
            context.rax = answer(heap_end());
            return hold.let_go();
        }
        number::MMAP if flags & MAP_STACK != 0 && flags & MAP_ANONYMOUS != 0 => {
            let forgotten = (flags & MAP_FIXED != 0).then(|| Forgotten::at(start, end));
            context.rax = answer(or_put_back(map_stack(arguments), forgotten));
            return hold.let_go();
        }
        number::MMAP if flags & MAP_FIXED != 0 => forgotten = Some(Forgotten::at(start, end)),
        number::MUNMAP => {
            forgotten = Some(Forgotten::at(start, end));
            if is_range(start as usize, bytes as usize) && (start..end).contains(&context.rsp) {
                hold.let_go();
                return leave(context, place, pleat_unmap_self);
            }
        }
        _ => {}
    }
    let runs_there = SignalStack::of(context).is_none() && touches_handler(start, end, context.rsp);
    if context.rax as usize == number::PROCESS_MADVISE || runs_there {
        return go_on_with(context, &hold, arguments);
    }
    // Right here, where no signal's handler can run in the middle of it: one that forks would wait for this call, and so would
    // the fork of another thread while that handler changes the layout. None of these calls waits for anything for long.
    // SAFETY: the program's own call.
    let returned = unsafe { syscall(context.rax as usize, arguments.map(|argument| argument as usize)) };
    context.rax = answer(or_put_back(thread::errno(returned).map(|value| value as u64), forgotten));
    hold.let_go();
}

/// A hold for a call that changes the layout.
fn hold_while_nobody_forks(pieces: &[calls::Piece], arguments: &[u64; 6], place: Place) -> Hold {
    loop {
        let mut hold = hold(place);
        hold.changes_layout();
        gather(&mut hold, pieces, arguments, place);
        if !processes::is_forking() {
            return hold;
        }
        hold.let_go();
        processes::wait_for_fork();
    }
}

/// madvise that fills: in pieces, so that what has been filled may leave before all is.
fn fill(pieces: &[calls::Piece], arguments: &[u64; 6], place: Place) -> Result<u64, Errno> {
    let [start, bytes, advice, ..] = *arguments;
    // What is malformed the kernel refuses as a whole.
    let step = if is_range(start as usize, bytes as usize) { transfers::PIECE_BYTES } else { u64::MAX };
    let mut done = 0;
    loop {
        let part = [start.wrapping_add(done), step.min(bytes - done), advice, 0, 0, 0];
        let hold = hold_while_nobody_forks(pieces, &part, place);
        // SAFETY: the program's own call.
        let returned = unsafe { syscall(number::MADVISE, part.map(|argument| argument as usize)) };
        hold.let_go();
        thread::errno(returned)?;
        done += part[1];
        if done == bytes {
            return Ok(0);
        }
    }
}

/// Whether a range may hold what we are running on: the frame of the signal, and ours, below the program's stack pointer.
fn touches_handler(start: u64, end: u64, stack_pointer: u64) -> bool {
    start < stack_pointer && stack_pointer.saturating_sub(HANDLER_STACK_BYTES) < end
}

/// mremap of what the program may see as one mapping.
fn remap(arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [from, old_bytes, new_bytes, flags, to, _] = arguments.map(|argument| argument as usize);
    let request = Request { from, old_bytes, new_bytes, flags, to };
    let forgotten = request.has_target().then(|| Forgotten::at(to as u64, to.saturating_add(new_bytes) as u64));
    // SAFETY: the ranges belong to the program, which makes this call.
    let moved = unsafe { crate::remap::as_one(request, stack(), Look::ByFile) };
    or_put_back(moved.map(|place| place as u64), forgotten)
}

/// An address of the main thread's stack.
fn stack() -> usize {
    super::MAIN_STACK_END.load(Ordering::Relaxed) as usize - 1
}

/// Whether the heap cannot shrink to this end.
fn is_refused_brk(end: u64) -> bool {
    heap_end().is_ok_and(|now| crate::remap::is_refused_brk(end as usize, now as usize, stack()))
}

/// shmat, which may replace something.
fn attach(arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [id, at, flags, ..] = arguments.map(|argument| argument as usize);
    let attach = Attach { id, at, flags };
    let forgotten = attach.replaced()?.map(|target| Forgotten::at(target.start as u64, target.end as u64));
    // SAFETY: what is replaced belongs to the program, which makes this call.
    or_put_back(unsafe { attach::replace(attach) }.map(|place| place as u64), forgotten)
}

/// What was noted of addresses that a call is about to replace, until it is known whether it has.
struct Forgotten {
    kept: core::ops::Range<u64>,
    pinned: core::ops::Range<u64>,
}

impl Forgotten {
    /// What is malformed the kernel refuses, and it may be all there is.
    fn at(start: u64, end: u64) -> Self {
        if !is_range(start as usize, end.wrapping_sub(start) as usize) {
            return Self { kept: 0..0, pinned: 0..0 };
        }
        let end = end.next_multiple_of(4096);
        Self { kept: KEPT.cut(start, end), pinned: PINNED.cut(start, end) }
    }
}

/// After a call that has failed what it was to replace is there still.
fn or_put_back(result: Result<u64, Errno>, forgotten: Option<Forgotten>) -> Result<u64, Errno> {
    if let (Err(_), Some(Forgotten { kept, pinned })) = (&result, forgotten) {
        if !kept.is_empty() && !keep(kept.start, kept.end - kept.start) {
            (hooks().fail)("too many stacks for user mode");
        }
        if !pinned.is_empty() {
            pin(pinned.start, pinned.end);
        }
    }
    result
}

/// Maps a stack, which is never managed: it is noted before a scan can see it as memory that could be. `NOMEM` beyond as many as can be
/// noted: to the program as if there were too many threads.
fn map_stack(arguments: [u64; 6]) -> Result<u64, Errno> {
    let [at, bytes, protection, flags, ..] = arguments;
    let call = |number, arguments: [u64; 6]| {
        // SAFETY: the program's own call, or the protection that it has asked for.
        thread::errno(unsafe { syscall(number, arguments.map(|argument| argument as usize)) })
    };
    let is_hidden = protection != 0 && flags & (MAP_POPULATE | MAP_GROWSDOWN) == 0;
    let mut first = arguments;
    if is_hidden {
        first[2] = 0;
    }
    // Noted before: what is refused must not have replaced anything.
    let replaces = flags & MAP_FIXED != 0 && is_range(at as usize, bytes as usize);
    if replaces && !keep(at, bytes) {
        return Err(Errno::NOMEM);
    }
    let mapped = call(number::MMAP, first);
    if replaces && mapped.is_err() {
        KEPT.cut(at, at + bytes.next_multiple_of(4096));
    }
    let start = mapped? as u64;
    if !replaces && !keep(start, bytes) {
        call(number::MUNMAP, [start, bytes, 0, 0, 0, 0])?;
        return Err(Errno::NOMEM);
    }
    if is_hidden {
        call(number::MPROTECT, [start, bytes, protection, 0, 0, 0])?;
    }
    Ok(start)
}

/// Notes a stack; says whether there was room for it.
fn keep(start: u64, bytes: u64) -> bool {
    let is_noted = KEPT.add(start, start.saturating_add(bytes).next_multiple_of(4096));
    holds::wait_for_mover();
    is_noted
}

/// Makes sure that memory which the kernel will use at times of its own is there, for good.
pub(super) fn bring_in_for_good(start: u64, end: u64) {
    holds::wait_for_mover();
    bring_in(start, end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_stays_one_where_the_call_that_was_to_replace_it_fails() {
        let (start, end) = (0x7100_0000_0000, 0x7100_0001_0000);
        assert!(KEPT.add(start, end));
        let replace = |result| or_put_back(result, Some(Forgotten::at(start + 0x1000, end + 0x1000)));
        assert_eq!(replace(Err(Errno::INVAL)), Err(Errno::INVAL));
        assert_eq!(KEPT.first_in(start + 0x1000, end), start + 0x1000);
        assert_eq!(replace(Ok(0)), Ok(0));
        assert_eq!(KEPT.first_in(start + 0x1000, end), end);
        KEPT.cut(start, end);
    }
}
