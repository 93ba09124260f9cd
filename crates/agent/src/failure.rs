//! Failing loudly: one clear line for the user, the reason in the ledger, and the end.
//!
//! An agent that cannot serve faults any more must not leave: the kernel would answer the next access with zeros. So
//! the program ends with it, by SIGKILL, which needs nobody's help.

use core::fmt::Write;
use core::sync::atomic::{AtomicPtr, Ordering};

use pager::ledger::{Ledger, Phase, Process};
use sys::process::StandardError;

use crate::entry::Membership;

/// This process's entry in the ledger, for the panic handler.
static ENTRY: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());
/// The run's ledger, for lines that `pleat run` is to print.
static LEDGER: AtomicPtr<Ledger> = AtomicPtr::new(core::ptr::null_mut());

/// Says where failures are noted.
pub(crate) fn note_in(membership: &Membership) {
    LEDGER.store(core::ptr::from_ref(membership.ledger).cast_mut(), Ordering::Release);
    ENTRY.store(core::ptr::from_ref(membership.entry).cast_mut(), Ordering::Release);
}

/// In a forked child without an entry: what is noted is the parent's.
pub(crate) fn forget_entry() {
    ENTRY.store(core::ptr::null_mut(), Ordering::Release);
}

/// A line of at most 255 bytes; what is longer is cut.
pub(crate) struct Line {
    bytes: [u8; 255],
    used: usize,
}

impl Line {
    pub(crate) fn new(text: core::fmt::Arguments<'_>) -> Self {
        let mut line = Self { bytes: [0; 255], used: 0 };
        // It cuts instead of failing.
        let _ = line.write_fmt(text);
        line
    }

    fn text(&self) -> &str {
        // Cut inside a character, the last one is lost.
        match core::str::from_utf8(&self.bytes[..self.used]) {
            Ok(text) => text,
            Err(error) => core::str::from_utf8(&self.bytes[..error.valid_up_to()]).unwrap_or(""),
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let cut = text.len().min(self.bytes.len() - self.used);
        self.bytes[self.used..self.used + cut].copy_from_slice(&text.as_bytes()[..cut]);
        self.used += cut;
        Ok(())
    }
}

/// Says `pleat: …` to the user of the run: on the process's standard error if that is a terminal, or leads to where `pleat run` itself writes.
/// Otherwise, in a log of the program's or to a program that reads what others complain of, the line is not seen while the run lasts, or is
/// taken for one of the program's: it is left for `pleat run`. Where one way is barred the other one is tried.
pub(crate) fn say(text: core::fmt::Arguments<'_>) {
    // SAFETY: null, or the ledger that was given to `note_in`, whose mapping is never undone.
    let ledger = unsafe { LEDGER.load(Ordering::Acquire).as_ref() };
    let runs = ledger.and_then(Ledger::standard_error);
    let leads_elsewhere = match sys::process::standard_error_leads_to() {
        Some(StandardError::Null) => true,
        Some(StandardError::File(own)) => runs != Some(own),
        Some(StandardError::Terminal(_)) | None => false,
    };
    deliver(text, ledger, runs.is_some() && leads_elsewhere);
}

/// Says of a process that it is let alone; `pleat run` does so, if it is there.
pub(crate) fn say_let_alone(ledger: &Ledger, text: core::fmt::Arguments<'_>) {
    deliver(text, Some(ledger), ledger.standard_error().is_some());
}

fn deliver(text: core::fmt::Arguments<'_>, ledger: Option<&Ledger>, is_for_run: bool) {
    let line = Line::new(format_args!("pleat: {text}\n"));
    let leave = || ledger.is_some_and(|ledger| ledger.leave_message(line.text()));
    let is_left = is_for_run && leave();
    if !is_left && !sys::process::write_to_standard_error(line.text().as_bytes()) {
        leave();
    }
    // It is printed at the next look.
    ledger.filter(|_| is_left).into_iter().for_each(Ledger::ask_for_look);
}

/// Ends the program because pleat cannot go on.
pub(crate) fn fail(text: core::fmt::Arguments<'_>) -> ! {
    end(Phase::Failed, text)
}

/// Ends the program with a last phase and its reason.
pub(crate) fn end(phase: Phase, text: core::fmt::Arguments<'_>) -> ! {
    let entry = ENTRY.load(Ordering::Acquire);
    // SAFETY: null, or the entry that was given to `note_in`, which lies in a mapping that is never undone.
    if let Some(entry) = unsafe { entry.as_ref() } {
        entry.set_failure(Line::new(text).text());
        entry.phase.store(phase as u32, Ordering::Release);
    }
    say(text);
    sys::thread::kill_program()
}

#[cfg_attr(not(test), panic_handler)]
#[cfg_attr(test, expect(dead_code))]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let place = info.location().map_or("", core::panic::Location::file);
    let line = info.location().map_or(0, core::panic::Location::line);
    fail(format_args!("bug in the agent, the program is ended: {} ({place}:{line})", info.message()))
}
