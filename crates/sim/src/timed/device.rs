//! What lies below RAM, as a time for each request.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::Cost;

/// A device: a request takes its access and the transfer of its bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Until the first byte comes: for a disk a seek and half a turn.
    pub access: Cost,
    /// The transfer of a mebibyte after that.
    pub transfer_mib: Cost,
}

const MIB: f64 = (1 << 20) as f64;

impl Device {
    /// The profiles.
    pub const ALL: [Self; 6] = [
        Self {
            name: Cow::Borrowed("nvme"),
            access: Cost::estimate(80_000.0, "typical data sheets: reads of 4 KiB one by one"),
            transfer_mib: Cost::estimate(350_000.0, "typical data sheets: 3 GB/s"),
        },
        Self {
            name: Cow::Borrowed("sata-ssd"),
            access: Cost::estimate(100_000.0, "typical data sheets: reads of 4 KiB one by one"),
            transfer_mib: Cost::estimate(2_000_000.0, "what SATA 6 Gb/s leaves: 525 MB/s"),
        },
        Self {
            name: Cow::Borrowed("disk-7200"),
            access: Cost::estimate(12_700_000.0, "typical data sheets: a seek of 8.5 ms, and 4.17 ms for half a turn"),
            transfer_mib: Cost::estimate(5_800_000.0, "typical data sheets: 180 MB/s"),
        },
        Self {
            name: Cow::Borrowed("disk-castro"),
            access: Cost::estimate(12_700_000.0, "castro, 4.2: 60 GB, UltraDMA 100, 7200 rpm, no more; typical seek"),
            transfer_mib: Cost::estimate(26_000_000.0, "typical of such disks in 2002: 40 MB/s"),
        },
        Self {
            name: Cow::Borrowed("disk-tuduce-gross-p4"),
            access: Cost::estimate(12_700_000.0, "tuduce-gross, 5: IC35L060AVV207-0, 7200 rpm; typical seek"),
            transfer_mib: Cost::estimate(21_000_000.0, "typical of such disks in 2003: 50 MB/s"),
        },
        Self {
            name: Cow::Borrowed("disk-tuduce-gross-g5"),
            access: Cost::estimate(
                7_900_000.0,
                "tuduce-gross, 5.1: rand of 1.8 GB in 1 GB takes 7.9 ms an access; half of them wait for a write and a read",
            ),
            transfer_mib: Cost::estimate(20_000_000.0, "typical of ST3160023AS: 53 MB/s"),
        },
    ];

    /// The costs by name.
    pub fn costs(&self) -> [(&'static str, &Cost); 2] {
        [("access", &self.access), ("transfer_mib", &self.transfer_mib)]
    }

    fn takes_ns(&self, bytes: u64) -> f64 {
        self.access.ns + bytes as f64 / MIB * self.transfer_mib.ns
    }
}

/// A device with what it still has to do.
pub(crate) struct Queue<'a> {
    device: &'a Device,
    busy_until_ns: f64,
    /// How long the write takes that it may be at.
    write_ns: f64,
}

impl<'a> Queue<'a> {
    pub(crate) const fn new(device: &'a Device) -> Self {
        Self { device, busy_until_ns: 0.0, write_ns: 0.0 }
    }

    /// When a read is done that is asked for now. It goes before writes that have not begun.
    pub(crate) fn read(&mut self, now_ns: f64, bytes: u64) -> f64 {
        let begins = self.busy_until_ns.clamp(now_ns, now_ns + self.write_ns);
        let takes = self.device.takes_ns(bytes);
        self.busy_until_ns = self.busy_until_ns.max(now_ns) + takes;
        begins + takes
    }

    /// Takes a write.
    pub(crate) fn write(&mut self, now_ns: f64, bytes: u64) {
        self.write_ns = self.device.takes_ns(bytes);
        self.busy_until_ns = self.busy_until_ns.max(now_ns) + self.write_ns;
    }

    /// When nothing is left to do.
    pub(crate) const fn idle_ns(&self) -> f64 {
        self.busy_until_ns
    }

    /// When no more than `bytes` are left to write, in requests as long as the last.
    pub(super) fn has_written_ns(&self, bytes: u64) -> f64 {
        self.busy_until_ns - self.device.takes_ns(bytes).max(self.write_ns)
    }
}
