//! The bell: an agent can wake `pleat run` out of its wait for signals.

use std::io::{PipeReader, Read, Result, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use pager::ledger::Ledger;
use sys::sync::{Sharing, wait_while};

/// A wake-up may be missed where the kernel ends the wait for another reason.
const WAIT: Duration = Duration::from_secs(1);

/// Becomes readable when an agent has asked for a look.
#[derive(Debug)]
pub(crate) struct Bell(PipeReader);

impl Bell {
    /// Listens from now on, on a thread of its own: one cannot wait for a futex and for a descriptor.
    pub(crate) fn hang(ledger: &'static Ledger) -> Result<Self> {
        let (read, mut write) = std::io::pipe()?;
        std::thread::Builder::new().spawn(move || {
            let mut heard = 0;
            loop {
                wait_while(&ledger.looks_asked, heard, WAIT, Sharing::Machine);
                let asked = ledger.looks_asked.load(Acquire);
                if asked != heard && write.write_all(&[1]).is_err() {
                    return;
                }
                heard = asked;
            }
        })?;
        Ok(Self(read))
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// It has been heard. To be called only while it is readable.
    pub(crate) fn silence(&mut self) -> Result<()> {
        self.0.read(&mut [0; 64]).map(|_| ())
    }
}
