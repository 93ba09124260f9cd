//! MXT's hardware (`mxt`, section 2): a cache of plain lines in front of a memory that holds them encoded, in sectors, and the
//! operating system's manager of that memory.
//!
//! The program's references are to lines. What it touches is brought into the cache ([`cache`]); what it has written goes back
//! when its place is needed, encoded, and then takes as many sectors as it needs by then ([`memory`]). So physical memory
//! fills by itself, without anybody asking for any, and the [`manager`] has to look ahead. Nothing here moves bytes: how
//! small a line gets is known from [`Contents`].
//!
//! The same trace is timed on the same machine with compression off, "an ordinary system with an L3 cache and with
//! noncompressed memory" that has memory enough. The same trace, contents and costs give the same numbers.

use std::collections::HashMap;

use page::{ByteCount, PAGE_BYTES};
use serde::Serialize;
use store::LINES;
use trace::{Access, Grain, Reference, Sample, Trace};

use crate::PlayError;
use crate::timed::{Device, Machine, Moments, Queue};

mod cache;
mod contents;
mod latencies;
mod manager;
mod memory;

use cache::{Cache, Found, SETS};
pub use contents::{Content, Contents};
pub use latencies::Latencies;
use manager::{CLUSTER_PAGES, Manager};
use memory::Memory;

/// "BIOS reports having twice that amount": real memory by physical memory.
const REAL_BY_PHYSICAL: u64 = 2;
/// The least physical memory: of less, what must be free for the cache's lines would leave too little.
pub const PHYSICAL_BYTES_MIN: u64 = 2 * cache::BYTES;

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Physical memory, the translation table included.
    pub physical: ByteCount,
    /// The machine.
    pub machine: &'a Machine,
    /// What the memory controller takes.
    pub latencies: &'a Latencies,
    /// Where pages go that the manager forces out.
    pub device: &'a Device,
    /// How small lines get, by turns: each for as many of the trace's references.
    pub contents: &'a [Content],
    /// References of the trace, for that.
    pub references: u64,
}

/// What a run has come to at one time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Moment {
    /// On the run's clock.
    pub seconds: f64,
    /// Pages that the operating system has given out.
    pub real_bytes: u64,
    /// What they take: sectors, and their entries of the translation table.
    pub physical_bytes: u64,
    /// Pages forced out so far.
    pub pages_forced_out: u64,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Outcome {
    /// References of the trace.
    pub references: u64,
    /// Pages of the trace.
    pub trace_pages: u64,
    /// The run.
    pub run_seconds: f64,
    /// The same with compression off and memory enough.
    pub compression_off_seconds: f64,
    /// How much longer it takes because lines are translated and decoded, in percent of the run with compression off (Figure 3).
    pub overhead_percent: f64,
    /// Lines that were not in the cache when the program touched them, or when a page came in.
    pub cache_misses: u64,
    /// Of these, lines that had to be decoded.
    pub lines_decoded: u64,
    /// Written lines that left the cache.
    pub lines_written_back: u64,
    /// Real by physical memory in use, both averaged over time (Figure 5).
    pub average_ratio: f64,
    /// The most physical memory in use at once.
    pub physical_bytes_max: u64,
    /// Warnings that physical memory is near its end.
    pub interrupts: u64,
    /// Pages that were forced out and zeroed, or that real memory had no room for.
    pub pages_forced_out: u64,
    /// Pages that came back from the device.
    pub pages_read_back: u64,
    /// How long the program was stalled.
    pub stalled_seconds: f64,
    /// How it went, at some hundred moments (Figure 4).
    pub over_time: Vec<Moment>,
}

/// A run.
struct Run<'a> {
    setup: Setup<'a>,
    contents: Contents<'a>,
    cache: Cache,
    memory: Memory,
    manager: Manager,
    queue: Queue<'a>,
    /// What is on the device of each page that has been there: its lines' lengths.
    below: HashMap<u64, [u16; LINES]>,
    now_ns: f64,
    /// Of that: what translation and decoding take, and what the manager makes the program wait.
    compression_ns: f64,
    manager_ns: f64,
    /// Real and physical bytes in use, by nanoseconds.
    real_sum: f64,
    physical_sum: f64,
    outcome: Outcome,
}

/// Plays a trace of lines to its end, or to where it is damaged.
pub fn play(setup: Setup<'_>, trace: &mut dyn Trace) -> Result<Outcome, PlayError> {
    assert!(trace.header().grain == Grain::Line && setup.physical.0 >= PHYSICAL_BYTES_MIN);
    let unit_ns = setup.machine.unit_ns(trace.header().unit);
    let mut run = Run::new(setup, Contents::new(setup.contents, setup.references, trace.header()));
    let (mut batch, mut samples) = (Vec::new(), Vec::<Sample>::new());
    let mut last = None;
    let mut moments = Moments::new();
    loop {
        trace.read(&mut batch, &mut samples)?;
        run.contents.learn(&samples);
        if batch.is_empty() {
            break;
        }
        for reference in &batch {
            let before_ns = run.now_ns;
            let since = reference.time.saturating_sub(last.unwrap_or(reference.time));
            last = Some(reference.time);
            run.now_ns += since as f64 * unit_ns;
            run.touch(reference);
            run.add_up(run.now_ns - before_ns);
            if moments.is_due(run.now_ns) {
                moments.push(run.now_ns, run.moment());
            }
        }
    }
    run.outcome.over_time = moments.finish(run.moment());
    Ok(run.finish())
}

impl<'a> Run<'a> {
    fn new(setup: Setup<'a>, contents: Contents<'a>) -> Self {
        let memory = Memory::new(setup.physical, ByteCount(setup.physical.0 * REAL_BY_PHYSICAL));
        Self {
            manager: Manager::new(&memory),
            memory,
            contents,
            cache: Cache::new(SETS),
            queue: Queue::new(setup.device),
            below: HashMap::new(),
            now_ns: 0.0,
            compression_ns: 0.0,
            manager_ns: 0.0,
            real_sum: 0.0,
            physical_sum: 0.0,
            outcome: Outcome::default(),
            setup,
        }
    }

    fn touch(&mut self, reference: &Reference) {
        let (page, line) = (reference.page.0 / LINES as u64, reference.page.0 as usize % LINES);
        let frame = match self.memory.frame_of(page) {
            Some(frame) => frame,
            None => self.bring(page),
        };
        let is_write = reference.access == Access::Write;
        let length = is_write.then(|| self.contents.length(page, line, self.outcome.references));
        self.memory.note_use(frame, is_write);
        self.outcome.references += 1;
        self.access(Memory::line(frame, line), length);
        self.react();
    }

    /// The processor reads a line, or makes it one that will be so long, and waits for it.
    fn access(&mut self, line: u32, written: Option<u16>) {
        let Latencies { memory, translate, decode } = self.setup.latencies;
        let is_decoded = memory::is_decoded(self.memory.length(line));
        if self.fetch(line, written) == Found::Hit {
            return;
        }
        self.outcome.cache_misses += 1;
        let mut compression_ns = translate.ns;
        if is_decoded {
            self.outcome.lines_decoded += 1;
            compression_ns += decode.ns;
        }
        self.compression_ns += compression_ns;
        self.now_ns += memory.ns + compression_ns;
    }

    /// A line is in the cache then. What makes room for it takes no time of the program's: lines that go are encoded beside those
    /// that come, in as much time.
    fn fetch(&mut self, line: u32, written: Option<u16>) -> Found {
        let found = self.cache.touch(line, written);
        if let Found::Missed(Some((line, length))) = found {
            self.outcome.lines_written_back += 1;
            self.memory.set_length(line, length);
        }
        found
    }

    /// Gives a page a frame of real memory. Its content comes through the cache, from the device or as zeros.
    fn bring(&mut self, page: u64) -> u32 {
        while self.memory.pages() >= self.manager.pages_max(&self.memory) {
            self.evict_some(1);
        }
        let machine = self.setup.machine;
        let content = self.below.get(&page).copied();
        let frame = self.memory.take(page, content.is_none());
        let (before_ns, compression_ns) = (self.now_ns, self.compression_ns);
        if content.is_some() {
            self.now_ns = self.queue.read(self.now_ns + machine.kernel_fault.ns, PAGE_BYTES as u64);
            self.outcome.pages_read_back += 1;
        } else {
            self.outcome.trace_pages += 1;
            self.now_ns += machine.first_touch.ns;
        }
        for (line, length) in content.unwrap_or([0; LINES]).into_iter().enumerate() {
            self.access(Memory::line(frame, line), Some(length));
        }
        if content.is_some() {
            // With memory enough it would not have left: all of this is waiting.
            self.compression_ns = compression_ns;
            self.manager_ns += self.now_ns - before_ns;
        }
        frame
    }

    /// A page leaves, if there is one, and its frame is filled with zeros. Returns the bytes that are to be written to the device
    /// before that: none, if it has them.
    fn evict(&mut self) -> u64 {
        let Some(frame) = self.memory.turn() else { return 0 };
        let lines = std::array::from_fn::<u32, LINES, _>(|line| Memory::line(frame, line));
        let is_written = self.memory.is_written(frame);
        if is_written {
            // The device reads through the cache as well, and other lines make room, whatever is short.
            for line in lines {
                self.fetch(line, None);
            }
        }
        let lengths = lines.map(|line| self.cache.drop(line).unwrap_or(self.memory.length(line)));
        let page = self.memory.zero(frame);
        self.below.insert(page, lengths);
        self.outcome.pages_forced_out += 1;
        if is_written { PAGE_BYTES as u64 } else { 0 }
    }

    /// So many pages leave. The device writes them together.
    fn evict_some(&mut self, pages: u64) {
        let bytes = (0..pages).map(|_| self.evict()).sum();
        if bytes > 0 {
            self.queue.write(self.now_ns, bytes);
        }
    }

    /// What the operating system does about physical memory after each reference.
    fn react(&mut self) {
        if !self.manager.judge(&self.memory) {
            return;
        }
        while let Some(due_ns) = self.manager.due_ns(&self.memory, self.now_ns) {
            let stalled_ns = (due_ns - self.now_ns).max(0.0);
            self.manager_ns += stalled_ns;
            self.outcome.stalled_seconds += stalled_ns / 1e9;
            self.now_ns += stalled_ns;
            self.evict_some(CLUSTER_PAGES);
            self.manager.reserve(&self.memory, self.queue.idle_ns());
        }
    }

    /// What has been in use for so long.
    fn add_up(&mut self, ns: f64) {
        let physical_bytes = self.memory.physical_bytes();
        self.real_sum += self.memory.real_bytes() as f64 * ns;
        self.physical_sum += physical_bytes as f64 * ns;
        self.outcome.physical_bytes_max = self.outcome.physical_bytes_max.max(physical_bytes);
    }

    fn moment(&self) -> Moment {
        Moment {
            seconds: self.now_ns / 1e9,
            real_bytes: self.memory.real_bytes(),
            physical_bytes: self.memory.physical_bytes(),
            pages_forced_out: self.outcome.pages_forced_out,
        }
    }

    fn finish(mut self) -> Outcome {
        let off_ns = self.now_ns - self.compression_ns - self.manager_ns;
        self.outcome.run_seconds = self.now_ns / 1e9;
        self.outcome.compression_off_seconds = off_ns / 1e9;
        self.outcome.overhead_percent = self.compression_ns * 100.0 / off_ns.max(1.0);
        self.outcome.average_ratio = self.real_sum / self.physical_sum.max(1.0);
        self.outcome.interrupts = self.manager.interrupts();
        self.outcome
    }
}

#[cfg(test)]
mod tests;
