//! Promises: what a process that is only watched has asked for, and is about to fill.
//!
//! Two that fill as much as the budget has left, at the same moment, pass it together: a look finds what is there and not what is
//! coming. So who asks for a large piece is told what all have been promised, and here is told how much of that has come.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use page::ByteCount;
use pager::ledger::Process;

/// Slower than a program that only fills memory, also where others want the processor: the rest is no matter of the moment.
const FILL_BYTES_PER_SECOND: u64 = 256 << 20;

/// What a process held, and was to fill, at the last look.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    left: u64,
    held: ByteCount,
}

impl Promises {
    /// Redeems what the process has grown by since the last look, and what has been waited for long enough. What it was promised
    /// behind that look is left to the next one. `measure` tells what it holds.
    pub(crate) fn look(
        &mut self,
        entry: &Process,
        elapsed: Duration,
        measure: impl FnOnce() -> ByteCount,
    ) -> ByteCount {
        let promised = entry.promised_bytes.load(Relaxed);
        let held = measure();
        let filled = held.saturating_sub(self.held).0;
        let lapsed = (elapsed.as_secs_f64() * FILL_BYTES_PER_SECOND as f64) as u64;
        let redeemed = filled.max(lapsed).min(self.left).min(promised);
        entry.redeem(redeemed);
        *self = Self { left: promised - redeemed, held };
        held
    }
}

#[cfg(test)]
mod tests {
    use pager::ledger::Ledger;
    use sys::host::SharedFile;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn promises_are_kept_until_they_are_filled_or_forgotten() {
        let ledger = SharedFile::<Ledger>::create(c"test").unwrap().content();
        let (entry, mut promises) = (&ledger.processes[0], Promises::default());
        let mut look = |promised: u64, held: u64, millis| {
            entry.promise(promised * MIB);
            promises.look(entry, Duration::from_millis(millis), || ByteCount(held * MIB));
            entry.promised_bytes.load(Relaxed) / MIB
        };
        assert_eq!(look(32, 8, 1000), 32, "what came before it");
        assert_eq!([look(0, 18, 1), look(0, 18, 0), look(0, 10, 0)], [22, 22, 22]);
        assert_eq!(look(10, 20, 0), 22, "ten were there when the others were asked for");
        assert_eq!([look(0, 20, 40), look(0, 20, 1000), look(0, 90, 1000)], [11, 0, 0]);
    }
}
