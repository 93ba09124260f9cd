//! Ends of `pleat` itself: one line and a status.

use std::fmt;
use std::io::Write as _;

use pager::ledger::Ledger;

/// pleat itself failed.
pub(crate) const STATUS_PLEAT: u8 = 125;
/// The program was found but cannot be executed.
pub(crate) const STATUS_NOT_EXECUTABLE: u8 = 126;
/// The program was not found.
pub(crate) const STATUS_NOT_FOUND: u8 = 127;
/// The budget could not be met and `--when-full stop` was given: what the shell shows for SIGKILL, as after an OOM
/// kill.
pub(crate) const STATUS_STOPPED: u8 = 137;

/// An error with a status other than [`STATUS_PLEAT`]. Travels inside an `anyhow::Error`.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    pub(crate) message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The status an error ends pleat with.
pub(crate) fn status_of(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<Failure>().map_or(STATUS_PLEAT, |failure| failure.status)
}

/// What clap has to say about bad input, on one line.
pub(crate) fn usage_line(error: &clap::Error) -> String {
    let text = error.to_string();
    // The first paragraph is the message; usage and tips follow.
    let message = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = message.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

/// Prints a line if anybody reads it. Not `eprintln!`, which panics where standard error has been closed: the program's
/// status would be lost, and with us the memory that we look after.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "pleat: {line}");
}

/// Prints the line that an agent has left, whose program's standard error leads elsewhere, or is closed.
pub(crate) fn pass_on(ledger: &Ledger) {
    let Some(text) = ledger.take_message() else { return };
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    // A terminal does what it is told, and the line may be another user's.
    let line = String::from_utf8_lossy(text).replace(char::is_control, "");
    if writeln!(std::io::stderr(), "{line}").is_err() {
        ledger.prints_no_more();
    }
}
