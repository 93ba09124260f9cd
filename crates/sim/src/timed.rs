//! Whole runs on a clock of their own: how long a program takes inside some RAM, by system, machine and backing device.
//!
//! The program's own time is that of its trace; faults, and what they wait for, come on top. What the reclaimer does takes
//! no time of the program's where there is a second processor, until the program has used up the room that is kept free
//! for it. The costs are a machine's ([`Machine`]) and a device's ([`Device`]). The same trace, options and costs give the
//! same numbers.

use cache::system::{PRESETS, System as Parts};
use codec::Codec;
use page::{ByteCount, PageIndex};
use serde::Serialize;
use trace::{Sample, Trace};

use crate::PlayError;

mod cached;
mod costs;
mod device;
mod encodings;
mod lengths;
mod moments;
mod moves;
mod off;

pub use costs::{Basis, CodecCost, Cost, Machine, Seat};
pub use device::Device;
pub(crate) use device::Queue;
pub use lengths::Lengths;
pub use moments::Moment;
pub(crate) use moments::Moments;

/// What keeps the program inside its RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// `pleat run --system`: its cache, hand, ring, watermarks and prefetch, over a system's parts and the segment log.
    Cached(&'static str, Parts),
    /// Nothing but the kernel: pages to the device as they are, one by one, by a clock.
    Off,
}

impl System {
    /// The named systems, and none.
    pub fn all() -> impl Iterator<Item = Self> {
        PRESETS.iter().map(|&(name, parts)| Self::Cached(name, parts)).chain([Self::Off])
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|system| system.name() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cached(name, _) => name,
            Self::Off => "off",
        }
    }

    /// What it is made of, if of anything.
    pub const fn parts(self) -> Option<Parts> {
        match self {
            Self::Cached(_, parts) => Some(parts),
            Self::Off => None,
        }
    }

    /// The name of what it encodes with, if it does.
    pub const fn codec(self) -> Option<&'static str> {
        match self {
            Self::Cached(_, parts) => Some(parts.codec),
            Self::Off => None,
        }
    }
}

fn codec_of(parts: &Parts) -> &'static dyn Codec {
    codec::named(parts.codec).expect("a system's codec is one of all")
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The system.
    pub system: System,
    /// What the program and all that keeps it there may hold.
    pub ram: ByteCount,
    /// The machine.
    pub machine: &'a Machine,
    /// What lies below RAM.
    pub device: &'a Device,
    /// How small pages get that the trace has no samples of: the mean, as a part of the page.
    pub ratio: f64,
    /// The pool, with a sizing that has one of a fixed size.
    pub pool: ByteCount,
}

/// Faults by what they found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Faults {
    /// First touches.
    pub first_touch: u64,
    /// Pages that had been moved out and were not encoded yet.
    pub soft: u64,
    /// Pages of one repeated word.
    pub same_filled: u64,
    /// Pages in the pool, or on their way to the device.
    pub compressed: u64,
    /// Pages on the device.
    pub backed: u64,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Outcome {
    /// References of the trace.
    pub references: u64,
    /// Pages of the trace.
    pub trace_pages: u64,
    /// The program's own time, and what first touches take: a run with RAM enough.
    pub unlimited_seconds: f64,
    /// The run.
    pub run_seconds: f64,
    /// How many times as long.
    pub slowdown: f64,
    /// Faults by kind.
    pub faults: Faults,
    /// Pages brought along with others.
    pub prefetched: u64,
    /// Pages that went to the device (PSO).
    pub pages_swapped_out: u64,
    /// The same in a second of the run (SO).
    pub swapped_out_per_second: f64,
    /// Bytes written to the device.
    pub written_bytes: u64,
    /// Bytes read from it.
    pub read_bytes: u64,
    /// The largest pool.
    pub pool_bytes_max: u64,
    /// How it went, at some hundred moments from the first reference to the last.
    pub over_time: Vec<Moment>,
}

/// The clock of a run, and what is counted on it.
struct Run<'a> {
    setup: Setup<'a>,
    encode: &'a Cost,
    decode: &'a Cost,
    lengths: Lengths,
    now_ns: f64,
    /// Of that, what the program has waited for the reclaimer and the device: its processor has had nothing to do.
    idle_ns: f64,
    queue: Queue<'a>,
    faults: Faults,
    prefetched: u64,
    pages_swapped_out: u64,
    written_bytes: u64,
    read_bytes: u64,
}

impl Run<'_> {
    fn pass(&mut self, cost: &Cost) {
        self.now_ns += cost.ns;
    }

    /// What encrypting or decrypting takes.
    fn seal_ns(&self, bytes: u64) -> f64 {
        self.setup.machine.seal_mib.ns * bytes as f64 / f64::from(1 << 20)
    }

    /// The program waits until then, if that is not past.
    const fn wait_until(&mut self, ns: f64) {
        self.idle_ns += (ns - self.now_ns).max(0.0);
        self.now_ns = self.now_ns.max(ns);
    }

    /// The program waits for a page from the device.
    fn read(&mut self, bytes: u64) {
        self.read_bytes += bytes;
        let read_ns = self.queue.read(self.now_ns, bytes);
        self.wait_until(read_ns);
    }

    /// Something is written while the program goes on.
    fn write(&mut self, bytes: u64) {
        self.written_bytes += bytes;
        self.queue.write(self.now_ns, bytes);
    }
}

/// A system at work.
trait Keeper {
    /// The program touches a page.
    fn touch(&mut self, run: &mut Run<'_>, page: PageIndex, is_write: bool);

    /// What the pool takes now.
    fn pool_bytes(&self) -> u64;

    /// What pages take that are in memory as they are.
    fn resident_bytes(&self) -> u64;

    /// Asserts that each page that has been seen is in one place, and that no more is held than may be.
    fn check(&self, run: &Run<'_>);
}

/// How the run is now.
fn moment(run: &Run<'_>, keeper: &dyn Keeper) -> Moment {
    let (pool_bytes, resident_bytes) = (keeper.pool_bytes(), keeper.resident_bytes());
    Moment { seconds: run.now_ns / 1e9, pool_bytes, resident_bytes, faults: run.faults }
}

/// Plays a trace to its end, or to where it is damaged.
pub fn play(setup: Setup<'_>, trace: &mut dyn Trace) -> Result<Outcome, PlayError> {
    let machine = setup.machine;
    let unit_ns = machine.unit_ns(trace.header().unit);
    let mut keeper: Box<dyn Keeper> = match setup.system {
        System::Cached(_, parts) => Box::new(cached::Cached::new(&parts, setup.ram, setup.pool, machine.seat)),
        System::Off => Box::new(off::Off::new(setup.ram)),
    };
    let codec = setup.system.codec().unwrap_or_default();
    let (encode, decode) = machine.codec(codec);
    let mut run = Run {
        setup,
        encode,
        decode,
        lengths: Lengths::new(setup.ratio, trace.header(), codec),
        now_ns: 0.0,
        idle_ns: 0.0,
        queue: Queue::new(setup.device),
        faults: Faults::default(),
        prefetched: 0,
        pages_swapped_out: 0,
        written_bytes: 0,
        read_bytes: 0,
    };
    let mut outcome = Outcome::default();
    let (mut batch, mut samples) = (Vec::new(), Vec::<Sample>::new());
    let mut last = None;
    let mut moments = Moments::new();
    loop {
        trace.read(&mut batch, &mut samples)?;
        run.lengths.learn(&samples);
        if batch.is_empty() {
            break;
        }
        if setup.system != System::Off {
            crate::live::check_addresses(&batch)?;
        }
        for reference in &batch {
            let since = reference.time.saturating_sub(last.unwrap_or(reference.time));
            last = Some(reference.time);
            run.now_ns += since as f64 * unit_ns;
            outcome.unlimited_seconds += since as f64 * unit_ns / 1e9;
            keeper.touch(&mut run, reference.page, reference.access == trace::Access::Write);
            if cfg!(debug_assertions) {
                keeper.check(&run);
            }
            if moments.is_due(run.now_ns) {
                moments.push(run.now_ns, moment(&run, &*keeper));
            }
        }
        outcome.references += batch.len() as u64;
        outcome.pool_bytes_max = outcome.pool_bytes_max.max(keeper.pool_bytes());
    }
    outcome.over_time = moments.finish(moment(&run, &*keeper));
    let largest = outcome.over_time.iter().map(|moment| moment.pool_bytes).max();
    outcome.pool_bytes_max = outcome.pool_bytes_max.max(largest.unwrap_or(0));
    Ok(finish(outcome, &run))
}

fn finish(mut outcome: Outcome, run: &Run<'_>) -> Outcome {
    outcome.faults = run.faults;
    outcome.trace_pages = run.faults.first_touch;
    outcome.unlimited_seconds += run.faults.first_touch as f64 * run.setup.machine.first_touch.ns / 1e9;
    outcome.run_seconds = run.now_ns / 1e9;
    outcome.slowdown = outcome.run_seconds / outcome.unlimited_seconds.max(1e-9);
    outcome.prefetched = run.prefetched;
    outcome.pages_swapped_out = run.pages_swapped_out;
    outcome.swapped_out_per_second = run.pages_swapped_out as f64 / outcome.run_seconds.max(1e-9);
    outcome.written_bytes = run.written_bytes;
    outcome.read_bytes = run.read_bytes;
    outcome
}

#[cfg(test)]
mod tests;
