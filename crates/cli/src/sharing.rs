//! Sharing: what of a watched process's memory counts for others.
//!
//! Forked processes share their pages until one of them writes. Counted whole in each, a pool of workers would pass any
//! budget, so a shared page counts in proportion. Between two looks every minor fault may have been such a write, and counts as one.
//! Once an agent manages its process it knows this by itself.

use std::time::{Duration, Instant};

use page::{ByteCount, PageCount};
use sys::clock;

use crate::proc::{self, Stat};

/// Processes smaller than this count whole.
const BYTES_MIN: ByteCount = ByteCount(1 << 20);
/// The kernel walks over all memory of a process: where much changes, that may take one part in so many of our time, by the processor's.
const LOOK_SHARE: u64 = 20;
/// Where no more than this part of what is shared may have been written, as a divisor, the looks at all processes may.
const CHANGED_DIVISOR: u64 = 8;

/// What is known of one process.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// At the last look.
    shared: ByteCount,
    minor_faults: u64,
    /// When it was, and what it took.
    looked: Option<(Instant, Duration)>,
}

impl Sharing {
    /// Bytes of `resident` that count elsewhere. There are so many `processes` to look at.
    pub(crate) fn look(&mut self, pid: u32, resident: ByteCount, processes: usize) -> ByteCount {
        if resident < BYTES_MIN {
            return ByteCount::ZERO;
        }
        // Before the walk: what is written during it counts twice, not never.
        let minor_faults = Stat::of(pid).map_or(0, |stat| stat.minor_faults);
        if self.is_due(minor_faults, processes) {
            let (begun, begun_ns) = (Instant::now(), clock::thread_ns());
            self.shared = resident.saturating_sub(proc::proportional_anonymous(pid).unwrap_or(resident));
            self.minor_faults = minor_faults;
            self.looked = Some((begun, Duration::from_nanos(clock::thread_ns() - begun_ns)));
        }
        self.shared.saturating_sub(self.written(minor_faults))
    }

    fn is_due(&self, minor_faults: u64, processes: usize) -> bool {
        let Some((at, took)) = self.looked else { return true };
        let has_changed = self.written(minor_faults).0 > self.shared.0 / CHANGED_DIVISOR;
        let lookers = if has_changed { 1 } else { processes as u64 };
        at.elapsed() >= Duration::from_nanos(took.as_nanos() as u64 * LOOK_SHARE * lookers)
    }

    /// What may have been written since the last look.
    fn written(&self, minor_faults: u64) -> ByteCount {
        PageCount(minor_faults.saturating_sub(self.minor_faults)).bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_forked_child_shares_what_nobody_has_written_since() {
        const BYTES: u64 = 32 << 20;
        // The child says that it runs, and ends when its parent has.
        let script = "$x = 'x'; $x x= 32 << 20; $| = 1; $parent = $$; \
                      if (fork) { <STDIN> } else { print \"$$ \"; sleep 1 while getppid() == $parent }; $x = ''";
        let mut perl = Command::new("perl");
        let mut program =
            perl.args(["-e", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("perl is installed");
        let mut child = Vec::new();
        BufReader::new(program.stdout.take().unwrap()).read_until(b' ', &mut child).unwrap();
        let child: u32 = String::from_utf8(child).unwrap().trim().parse().unwrap();
        let resident = proc::resident_anonymous(child).unwrap();
        let shared = Sharing::default().look(child, resident, 2);
        drop(program.stdin.take());
        assert!(program.wait().unwrap().success());
        assert!(resident.0 >= BYTES, "{resident:?}");
        assert!(shared.0 > BYTES / 2 * 9 / 10 && shared.0 <= resident.0 / 2, "{shared:?} of {resident:?}");
    }

    #[test]
    fn what_may_have_been_written_counts_here_and_is_a_reason_to_look_again() {
        let looked = Some((Instant::now().checked_sub(Duration::from_secs(1)).unwrap(), Duration::from_millis(20)));
        let sharing = Sharing { shared: PageCount(800).bytes(), minor_faults: 50, looked };
        assert_eq!(sharing.written(150), PageCount(100).bytes());
        assert_eq!([2, 3].map(|processes| sharing.is_due(150, processes)), [true, false]);
        assert!(sharing.is_due(151, 3), "more than an eighth");
        assert!(Sharing::default().is_due(0, 1000));
    }

    #[test]
    fn who_shares_with_nobody_counts_whole() {
        let memory = vec![1_u8; 8 << 20];
        let resident = proc::resident_anonymous(std::process::id()).unwrap();
        let shared = Sharing::default().look(std::process::id(), resident, 1);
        assert!(shared.0 < memory.iter().map(|byte| u64::from(*byte)).sum::<u64>() / 8, "{shared:?}");
    }
}
