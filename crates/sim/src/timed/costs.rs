//! What steps cost on a machine. Each number says whether it was measured, and where, or what it was guessed from.

use std::borrow::Cow;

use page::PageCount;
use serde::{Deserialize, Serialize};
use trace::TimeUnit;

/// What is known of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Somebody measured it on the machine that it is said to be of.
    Measured,
    /// It was guessed, or carried over from another machine.
    Estimate,
}

/// A cost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// Nanoseconds.
    pub ns: f64,
    /// What is known of it.
    pub basis: Basis,
    /// Who measured it, or what it was guessed from.
    pub source: Cow<'static, str>,
}

impl Cost {
    /// Measured, as `source` says.
    pub const fn measured(ns: f64, source: &'static str) -> Self {
        Self { ns, basis: Basis::Measured, source: Cow::Borrowed(source) }
    }

    /// Guessed, from what `source` says.
    pub const fn estimate(ns: f64, source: &'static str) -> Self {
        Self { ns, basis: Basis::Estimate, source: Cow::Borrowed(source) }
    }
}

/// Where the system lives that keeps a program inside its RAM.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seat {
    /// Beside the program, as `pleat run`: it takes memory for itself, and keeps room for what it does not see in time.
    #[default]
    Process,
    /// In the kernel, as in the papers.
    Kernel,
}

/// A machine without what lies below its RAM.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub name: Cow<'static, str>,
    /// How many processors it has. With two or more the reclaimer has one of its own.
    pub processors: u32,
    /// Whose marks the free memory has.
    #[serde(default)]
    pub seat: Seat,
    /// A page that is touched for the first time.
    pub first_touch: Cost,
    /// A fault that pleat serves, without what is done for it.
    pub fault: Cost,
    /// A fault on a swapped page that the kernel serves, without the device.
    pub kernel_fault: Cost,
    /// One page put in place at a fault.
    pub fill: Cost,
    /// Moving a page out.
    pub move_out: Cost,
    /// What a run of neighbours that move out together takes besides: a call.
    #[serde(default = "no_runs")]
    pub move_run: Cost,
    /// What a run takes while the program runs on another processor: that is interrupted to forget where the pages were.
    #[serde(default = "no_runs")]
    pub interrupt: Cost,
    /// What the program then loses of its own time.
    #[serde(default = "no_runs")]
    pub interrupted: Cost,
    /// Encoding a page, by a codec that has no costs of its own.
    pub encode: Cost,
    /// Decoding it.
    pub decode: Cost,
    /// Encrypting a mebibyte that goes below, or decrypting it.
    #[serde(default = "unsealed")]
    pub seal_mib: Cost,
    /// What codecs take that take another time.
    #[serde(default)]
    pub codecs: Cow<'static, [CodecCost]>,
    /// The program's own time for a reference, where the trace has no times.
    pub reference: Cost,
    /// The same for an instruction, where it counts those.
    pub instruction: Cost,
}

/// What a codec costs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CodecCost {
    /// Its name.
    pub codec: Cow<'static, str>,
    /// Encoding a page.
    pub encode: Cost,
    /// Decoding a page.
    pub decode: Cost,
}

impl CodecCost {
    const fn measured(codec: &'static str, encode_ns: f64, decode_ns: f64, source: &'static str) -> Self {
        Self {
            codec: Cow::Borrowed(codec),
            encode: Cost::measured(encode_ns, source),
            decode: Cost::measured(decode_ns, source),
        }
    }

    const fn estimate(codec: &'static str, encode_ns: f64, decode_ns: f64, source: &'static str) -> Self {
        Self {
            codec: Cow::Borrowed(codec),
            encode: Cost::estimate(encode_ns, source),
            decode: Cost::estimate(decode_ns, source),
        }
    }
}

/// What lies below is not encrypted.
const UNSEALED: Cost = Cost::estimate(0.0, "nothing is encrypted");

const fn unsealed() -> Cost {
    UNSEALED
}

/// In a kernel no call is made, and the interrupts of many pages are one.
const NO_RUNS: Cost = Cost::estimate(0.0, "a page costs the same, alone or beside others");

const fn no_runs() -> Cost {
    NO_RUNS
}

const REFERENCE: Cost = Cost::estimate(100.0, "a guess: it depends on the program; give a trace with times instead");

impl Machine {
    /// The profiles.
    pub const ALL: [Self; 5] = [REFERENCE_MACHINE, CASTRO, TUDUCE_GROSS_P4, TUDUCE_GROSS_G5, MXT];

    /// What encoding and decoding a page take with a codec.
    pub fn codec(&self, name: &str) -> (&Cost, &Cost) {
        let own = self.codecs.iter().find(|own| own.codec == name);
        own.map_or((&self.encode, &self.decode), |own| (&own.encode, &own.decode))
    }

    /// How long a run of so many pages takes to move out, where the program is at work for a part of the time, `busy`.
    pub(crate) fn moves_out_in_ns(&self, pages: PageCount, busy: f64) -> f64 {
        let interrupt_ns = if self.processors < 2 { 0.0 } else { busy * self.interrupt.ns };
        if pages == PageCount::ZERO { 0.0 } else { self.move_run.ns + interrupt_ns + pages.0 as f64 * self.move_out.ns }
    }

    /// What interrupts take of the program's own time, if it is at work for a part of it, `busy`.
    pub(crate) fn interrupts_take_ns(&self, count: u64, busy: f64) -> f64 {
        if self.processors < 2 { 0.0 } else { busy * count as f64 * self.interrupted.ns }
    }

    /// What one step of a trace's clock takes.
    pub(crate) const fn unit_ns(&self, unit: TimeUnit) -> f64 {
        match unit {
            TimeUnit::References => self.reference.ns,
            TimeUnit::Nanoseconds => 1.0,
            TimeUnit::Instructions => self.instruction.ns,
        }
    }

    /// The costs by name, but for those of [`Machine::codecs`].
    pub fn costs(&self) -> [(&'static str, &Cost); 13] {
        [
            ("first_touch", &self.first_touch),
            ("fault", &self.fault),
            ("kernel_fault", &self.kernel_fault),
            ("fill", &self.fill),
            ("move_out", &self.move_out),
            ("move_run", &self.move_run),
            ("interrupt", &self.interrupt),
            ("interrupted", &self.interrupted),
            ("encode", &self.encode),
            ("decode", &self.decode),
            ("seal_mib", &self.seal_mib),
            ("reference", &self.reference),
            ("instruction", &self.instruction),
        ]
    }
}

const REFERENCE_MACHINE: Machine = {
    const LAT: &str = "docs/userfaultfd.md, lat.c";
    const CODECS: &str = "bench/runs/2026-11-22-all-codecs, auto on heaps, p50";
    const SEAL: &str = "pleat sim --calibrate on AMD Zen 4, bench/runs/2026-11-26-validity";
    const OTHERS: &str = "the same run, the codec on heaps, p50";
    Machine {
        name: Cow::Borrowed("reference"),
        processors: 2,
        seat: Seat::Process,
        first_touch: Cost::measured(1_400.0, LAT),
        fault: Cost::measured(3_340.0, "docs/userfaultfd.md: 4.4 µs for a fault by message (lat.c), less the fill"),
        kernel_fault: Cost::estimate(1_400.0, "that of a first touch"),
        fill: Cost::measured(1_060.0, "docs/userfaultfd.md, cost.c: UFFDIO_COPY in batches of 64; 1.9 µs for one page"),
        move_out: Cost::measured(250.0, "docs/userfaultfd.md, chain.c"),
        move_run: Cost::measured(
            1_150.0,
            "docs/userfaultfd.md: 1.4 µs for one page from the program's processor, less the page",
        ),
        interrupt: Cost::measured(3_100.0, "docs/userfaultfd.md: 4 to 5 µs for one page from another processor"),
        interrupted: Cost::estimate(2_000.0, "two thirds of the interrupt, as on a virtual Xeon"),
        encode: Cost::measured(1_605.0, CODECS),
        decode: Cost::measured(258.0, CODECS),
        seal_mib: Cost::measured(900_000.0, SEAL),
        codecs: Cow::Borrowed(
            const {
                &[
                    CodecCost::measured("fold", 815.0, 184.0, OTHERS),
                    CodecCost::measured("lz4", 5_021.0, 1_379.0, OTHERS),
                    CodecCost::measured("wkdm", 667.0, 921.0, OTHERS),
                    CodecCost::measured("lzo1x-1", 5_702.0, 2_164.0, OTHERS),
                    CodecCost::measured("pbpm", 1_405.0, 1_808.0, OTHERS),
                    CodecCost::measured("mxt-lz1", 39_553.0, 7_646.0, OTHERS),
                ]
            },
        ),
        reference: REFERENCE,
        instruction: Cost::estimate(0.5, "a guess: two instructions a nanosecond"),
    }
};

/// de Castro, do Lago and Da Silva (2003).
const CASTRO: Machine = {
    const TABLE: &str = "castro, table 2: WKdm, average of a page";
    const LZO: &str = "castro, table 2: LZO, average of a page";
    const CLOCK: &str = "the reference machine's, three times as long for a third of the clock rate";
    Machine {
        name: Cow::Borrowed("castro"),
        processors: 1,
        seat: Seat::Kernel,
        first_touch: Cost::estimate(4_200.0, CLOCK),
        fault: Cost::estimate(3_000.0, "a fault inside the kernel: no other thread has to be woken"),
        kernel_fault: Cost::estimate(4_200.0, CLOCK),
        fill: Cost::estimate(3_000.0, CLOCK),
        move_out: Cost::estimate(750.0, CLOCK),
        move_run: NO_RUNS,
        interrupt: NO_RUNS,
        interrupted: NO_RUNS,
        encode: Cost::measured(50_000.0, TABLE),
        decode: Cost::measured(30_000.0, TABLE),
        seal_mib: UNSEALED,
        codecs: Cow::Borrowed(const { &[CodecCost::measured("lzo1x-1", 90_000.0, 40_000.0, LZO)] }),
        reference: REFERENCE,
        instruction: Cost::estimate(1.0, "a guess: one instruction a cycle of the Pentium III at 1 GHz"),
    }
};

/// Tuduce and Gross (2005): the Pentium 4 at 2.6 GHz.
const TUDUCE_GROSS_P4: Machine = {
    const CASTRO: &str = "castro's, table 2, by clock rate";
    const CLOCK: &str = "the reference machine's";
    Machine {
        name: Cow::Borrowed("tuduce-gross-p4"),
        processors: 1,
        seat: Seat::Kernel,
        first_touch: Cost::estimate(1_400.0, CLOCK),
        fault: Cost::estimate(1_400.0, "a fault inside the kernel: no other thread has to be woken"),
        kernel_fault: Cost::estimate(1_400.0, CLOCK),
        fill: Cost::estimate(1_060.0, CLOCK),
        move_out: Cost::estimate(250.0, CLOCK),
        move_run: NO_RUNS,
        interrupt: NO_RUNS,
        interrupted: NO_RUNS,
        encode: Cost::estimate(19_000.0, CASTRO),
        decode: Cost::estimate(11_500.0, CASTRO),
        seal_mib: UNSEALED,
        codecs: Cow::Borrowed(const { &[CodecCost::estimate("lzo1x-1", 35_000.0, 15_400.0, CASTRO)] }),
        reference: REFERENCE,
        instruction: Cost::estimate(0.5, "a guess: rather more than one instruction a cycle"),
    }
};

/// Tuduce and Gross (2005): the Apple G5, two processors at 1.8 GHz.
const TUDUCE_GROSS_G5: Machine = {
    const CASTRO: &str = "castro's, table 2, by clock rate";
    const CLOCK: &str = "the reference machine's, by half more";
    Machine {
        name: Cow::Borrowed("tuduce-gross-g5"),
        processors: 2,
        seat: Seat::Kernel,
        first_touch: Cost::estimate(2_100.0, CLOCK),
        fault: Cost::estimate(2_100.0, "a fault inside the kernel: no other thread has to be woken"),
        kernel_fault: Cost::estimate(2_100.0, CLOCK),
        fill: Cost::estimate(1_600.0, CLOCK),
        move_out: Cost::estimate(375.0, CLOCK),
        move_run: NO_RUNS,
        interrupt: NO_RUNS,
        interrupted: NO_RUNS,
        encode: Cost::estimate(28_000.0, CASTRO),
        decode: Cost::estimate(17_000.0, CASTRO),
        seal_mib: UNSEALED,
        codecs: Cow::Borrowed(const { &[CodecCost::estimate("lzo1x-1", 50_000.0, 22_000.0, CASTRO)] }),
        reference: REFERENCE,
        instruction: Cost::estimate(0.5, "a guess: one instruction a cycle"),
    }
};

/// Abali, Franke, Poff and Smith (2000): one Xeon at 455 MHz.
const MXT: Machine = {
    const CASTRO: &str = "castro's, by clock rate";
    Machine {
        name: Cow::Borrowed("mxt"),
        processors: 1,
        seat: Seat::Kernel,
        first_touch: Cost::estimate(9_200.0, CASTRO),
        fault: Cost::estimate(6_600.0, CASTRO),
        kernel_fault: Cost::estimate(9_200.0, CASTRO),
        fill: Cost::estimate(6_600.0, CASTRO),
        move_out: Cost::estimate(1_650.0, CASTRO),
        move_run: NO_RUNS,
        interrupt: NO_RUNS,
        interrupted: NO_RUNS,
        encode: Cost::estimate(110_000.0, "castro's, table 2, by clock rate"),
        decode: Cost::estimate(66_000.0, "castro's, table 2, by clock rate"),
        seal_mib: UNSEALED,
        codecs: Cow::Borrowed(&[]),
        reference: REFERENCE,
        instruction: Cost::estimate(2.2, "a guess: one instruction a cycle"),
    }
};
