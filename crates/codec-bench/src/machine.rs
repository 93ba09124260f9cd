//! Where and with what a measurement was made.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The machine and the build behind a report.
#[derive(Clone, Serialize, Debug)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Processors that this process may use.
    pub cpus: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Whether `fold` has its vectors here.
    pub fold_is_fast: bool,
    /// libzstd's version; liblz4's is that of the crate `lzzzz`.
    pub zstd: &'static str,
}

impl Machine {
    /// This one.
    pub(crate) fn this() -> Self {
        let line = |path: &str, key: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(key)).and_then(|line| line.split_once(':'));
            line.map(|(_, value)| value.trim().to_owned())
        };
        let kib = line("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Self {
            cpu: line("/proc/cpuinfo", "model name").unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            memory_bytes: kib.unwrap_or(0) << 10,
            fold_is_fast: codec::Fold::is_fast(),
            zstd: zstd_safe::version_string(),
        }
    }
}

/// The commit that this was built from; empty if it was not built in a checkout.
pub(crate) const COMMIT: &str = env!("PLEAT_COMMIT");

/// Now, as the world counts.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
