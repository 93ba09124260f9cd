//! What `-v` prints at the end.

use std::fmt;
use std::time::Duration;

use pager::ledger::{Counter, FaultKind};

use crate::size::Human;
use crate::stats::{Report, Run};

/// The block on standard error.
pub(crate) struct Summary<'a> {
    pub(crate) run: &'a Run,
    pub(crate) report: &'a Report,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = &self.report.sum;
        let time = |counter| Duration::from_nanos(sum.counter(counter)).as_secs_f64();
        let (peak, budget) = (sum.footprint_peak(), self.run.budget);
        let share = peak.0 as f64 * 100.0 / budget.0 as f64;
        writeln!(
            f,
            "pleat: peak {} of {} ({share:.0} %), {} processes",
            Human(peak.0),
            Human(budget.0),
            self.report.processes.len()
        )?;
        if let Some(ratio) = self.report.best_ratio {
            writeln!(f, "pleat: pages took 1/{ratio:.2} of their size when most were held")?;
        }
        for kind in FaultKind::ALL {
            let faults = sum.faults(*kind);
            if let (Some(p50), Some(p99)) = (faults.p50_ns, faults.p99_ns) {
                let (p50, p99) = (p50 as f64 / 1e3, p99 as f64 / 1e3);
                writeln!(f, "pleat: {} {} faults, p50 {p50:.1} µs, p99 {p99:.1} µs", faults.count, kind.name())?;
            }
        }
        let pages = |counter| sum.counter(counter);
        writeln!(
            f,
            "pleat: {} pages reclaimed, {} written back, {} read back, {} pages brought early",
            pages(Counter::Reclaimed),
            Human(pages(Counter::WrittenBackBytes)),
            Human(pages(Counter::ReadBackBytes)),
            pages(Counter::Prefetched),
        )?;
        writeln!(
            f,
            "pleat: encode {:.2} s, decode {:.2} s, reclaim {:.2} s, serve {:.2} s of {:.2} s",
            time(Counter::EncodeNs),
            time(Counter::DecodeNs),
            time(Counter::ReclaimNs),
            time(Counter::ServeNs),
            self.report.elapsed.as_secs_f64(),
        )
    }
}
