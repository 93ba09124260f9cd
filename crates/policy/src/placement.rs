//! Placement: should reclaim run on the program's processor, or beside it?
//!
//! Every call that moves pages interrupts each other processor that runs the program's threads, ours included, and
//! waits for it. Beside the program, reclaim encodes in parallel but pays two processors' time for each such call; on
//! the program's processor it pays nothing extra. Long runs share one call among many pages, short ones do not.

/// Below this mean length of runs reclaim belongs on the program's processor. Measured on two processors with LZ4: at
/// 1.3 pages a run (random access) company is 1.3x faster, at 16 (a sweep) 0.8x.
const SHORT_RUN_PAGES: u64 = 4;
/// Runs to look back at.
const RUNS: u64 = 256;

/// Follows the runs that reclaim finds.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunLengths {
    runs: u64,
    pages: u64,
    are_short: bool,
}

impl RunLengths {
    /// A run of so many pages has been moved out by one call.
    pub fn count(&mut self, pages: u64) {
        self.runs += 1;
        self.pages += pages;
        if self.runs == RUNS {
            self.are_short = self.pages < RUNS * SHORT_RUN_PAGES;
            self.runs = 0;
            self.pages = 0;
        }
    }

    /// Whether reclaim should run on the program's processor.
    pub fn prefers_company(&self) -> bool {
        self.are_short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_runs_seek_company_and_long_ones_leave_it() {
        let mut lengths = RunLengths::default();
        assert!(!lengths.prefers_company());
        (0..RUNS).for_each(|_| lengths.count(1));
        assert!(lengths.prefers_company());
        (0..RUNS).for_each(|_| lengths.count(16));
        assert!(!lengths.prefers_company());
    }
}
