//! Sharing: what of a watched process's memory counts for others.
//!
//! Forked processes share their pages until one of them writes. Counted whole in each, a pool of workers would pass any
//! budget, so a shared page counts in proportion. Once an agent manages its process it knows this by itself.

use std::time::{Duration, Instant};

use page::ByteCount;
use sys::clock;

use crate::proc;

/// Processes smaller than this count whole.
const BYTES_MIN: ByteCount = ByteCount(1 << 20);
/// The kernel walks over all memory of a process: that may take one part in so many of our time, by the processor's.
const LOOK_SHARE: u64 = 20;

/// What is known of one process.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    shared: ByteCount,
    next_look: Option<Instant>,
}

impl Sharing {
    /// Bytes of `resident` that count elsewhere, as of the last time that it was worth the walk.
    pub(crate) fn look(&mut self, pid: u32, resident: ByteCount) -> ByteCount {
        let begun = Instant::now();
        if resident < BYTES_MIN {
            return ByteCount::ZERO;
        }
        if self.next_look.is_none_or(|next| next <= begun) {
            let begun_ns = clock::thread_ns();
            self.shared = resident.saturating_sub(proc::proportional_anonymous(pid).unwrap_or(resident));
            let took_ns = clock::thread_ns() - begun_ns;
            self.next_look = Some(begun + Duration::from_nanos(took_ns * LOOK_SHARE));
        }
        self.shared
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
        let shared = Sharing::default().look(child, resident);
        drop(program.stdin.take());
        assert!(program.wait().unwrap().success());
        assert!(resident.0 >= BYTES, "{resident:?}");
        assert!(shared.0 > BYTES / 2 * 9 / 10 && shared.0 <= resident.0 / 2, "{shared:?} of {resident:?}");
    }

    #[test]
    fn who_shares_with_nobody_counts_whole() {
        let memory = vec![1_u8; 8 << 20];
        let resident = proc::resident_anonymous(std::process::id()).unwrap();
        let shared = Sharing::default().look(std::process::id(), resident);
        assert!(shared.0 < memory.iter().map(|byte| u64::from(*byte)).sum::<u64>() / 8, "{shared:?}");
    }
}
