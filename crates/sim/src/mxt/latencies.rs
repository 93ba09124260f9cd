//! What the memory controller takes.

use crate::timed::Cost;

/// Of a line that is not in the cache.
#[derive(Clone, PartialEq, Debug)]
pub struct Latencies {
    /// Main memory, until the wanted bytes are there: with compression off that is all.
    pub memory: Cost,
    /// The line's entry in the translation table.
    pub translate: Cost,
    /// Decoding, until the wanted bytes are there. Not of trivial lines, nor of those that are as they were.
    pub decode: Cost,
}

impl Latencies {
    /// Those of the paper's machine. It prints none: only that "Since compression/decompression circuitry is out of the way, the
    /// memory access latency is smaller in the compression-off case", and the clock of its bus.
    pub const PAPER: Self = Self {
        memory: Cost::estimate(100.0, "a guess: SDRAM of 2000; mxt prints no latencies"),
        translate: Cost::estimate(100.0, "one more access to main memory, where mxt, 2, has the translation table"),
        decode: Cost::estimate(
            1_407.0,
            "half of a line's 256 steps of four bytes side by side (docs/format/mxt-lz1.md), one a cycle of the bus at 91 MHz (mxt, 3)",
        ),
    };

    /// The costs by name.
    pub const fn costs(&self) -> [(&'static str, &Cost); 3] {
        [("memory", &self.memory), ("translate", &self.translate), ("decode", &self.decode)]
    }
}
