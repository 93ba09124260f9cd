//! A thread that takes one random step after another, each drawn from its seed.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::area::{Area, Bad};
use crate::calls::{self, Errno};
use crate::drawn::{self, Drawn};
use crate::random::Random;
use crate::report::{Report, Slot};
use crate::zero_copy::{self, Flight};
use crate::{clones, forks, heap::Heap, kernel_io, memory, pipes, places, ring, settings, shared, traces};

/// Areas of a thread.
pub(crate) const AREAS: usize = 10;
/// Threads of a process at its start.
pub(crate) const THREADS: usize = 3;

/// Why a step failed.
#[derive(Debug)]
#[expect(dead_code, reason = "shown by its Debug, when something is wrong")]
pub(crate) enum Trouble {
    /// A call was refused that Linux grants.
    Refused(&'static str, Errno),
    /// A page holds something else.
    Bad(&'static str, Bad),
    /// Anything else.
    Other(&'static str, u64),
}

impl core::fmt::Display for Trouble {
    /// Contents in hexadecimal, for they are.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Refused(what, errno) => write!(f, "{what}: errno {errno}"),
            Self::Bad(..) | Self::Other(..) => write!(f, "{self:x?}"),
        }
    }
}

/// Names the call that failed.
pub(crate) fn of(what: &'static str) -> impl Fn(Errno) -> Trouble {
    move |errno| Trouble::Refused(what, errno)
}

pub(crate) type Done = Result<(), Trouble>;

/// A kind of step: its name, how often it is taken, and what it does.
pub(crate) type Kind = (&'static str, usize, fn(&mut Worker) -> Done);

/// All that a thread has. It lies in memory that pleat does not manage, and zeros are a valid one.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) random: Random,
    pub(crate) seed: u64,
    /// Which thread of which process this is.
    pub(crate) stream: u64,
    pub(crate) step: u64,
    /// The first steps of a thread that nobody has forked.
    drawn: Drawn,
    /// When it began.
    begun_ns: u64,
    /// How many forks lie between it and the first process.
    pub(crate) depth: u32,
    /// Pages that its areas may have in all.
    pub(crate) pages_max: usize,
    pub(crate) areas: [Area; AREAS],
    pub(crate) heap: Heap,
    pub(crate) flight: Flight,
    /// How many times more it stops for who traces it, who may change this.
    pub(crate) stops: u64,
    /// What the other workers' shadows say is true.
    pub(crate) knows_others: bool,
    /// Which of the process's workers it is.
    pub(crate) number: usize,
    /// Its files are its own: a thread of the kernel's that works for it may have those from before.
    pub(crate) has_own_files: bool,
}

/// What the threads of a process share. In the same memory.
pub(crate) struct Process {
    /// Threads inside a step.
    busy: AtomicU32,
    /// 1 while a thread wants all others between two steps.
    closing: AtomicU32,
    pub(crate) workers: [Worker; THREADS],
}

/// All kinds of steps.
pub(crate) fn kinds() -> impl Iterator<Item = &'static Kind> {
    memory::KINDS
        .iter()
        .chain(kernel_io::KINDS)
        .chain(forks::KINDS)
        .chain(shared::KINDS)
        .chain(clones::KINDS)
        .chain(places::KINDS)
        .chain(pipes::KINDS)
        .chain(ring::KINDS)
        .chain(settings::KINDS)
        .chain(zero_copy::KINDS)
        .chain(traces::KINDS)
}

impl Process {
    /// A new one, of this process, and copied by its children.
    pub(crate) fn new(seed: u64, process: u64, pages_max: usize) -> Result<&'static mut Self, Errno> {
        let place = calls::map_file(size_of::<Self>(), libc::MAP_PRIVATE)?;
        // SAFETY: page-aligned, long enough, never unmapped, nobody else knows it. Zeros are a valid process: numbers,
        // and enumerations whose first variant is 0.
        let process_memory = unsafe { &mut *(place as *mut Self) };
        for (number, worker) in process_memory.workers.iter_mut().enumerate() {
            (worker.seed, worker.stream) = (seed, drawn::stream(process, number));
            worker.random = Random::new(seed, worker.stream);
            (worker.number, worker.pages_max, worker.knows_others) = (number, pages_max, true);
        }
        Ok(process_memory)
    }

    fn enter(&self) {
        loop {
            while self.closing.load(Ordering::SeqCst) != 0 {
                calls::sleep_us(50);
            }
            self.busy.fetch_add(1, Ordering::SeqCst);
            if self.closing.load(Ordering::SeqCst) == 0 {
                return;
            }
            self.busy.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn leave(&self) {
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }

    /// Inside a step: waits until all other threads are between two. `false`: another thread wants the same.
    pub(crate) fn hush(&self) -> bool {
        if self.closing.swap(1, Ordering::SeqCst) != 0 {
            return false;
        }
        while self.busy.load(Ordering::SeqCst) > 1 {
            calls::sleep_us(20);
        }
        true
    }

    pub(crate) fn unhush(&self) {
        self.closing.store(0, Ordering::SeqCst);
    }

    /// In a forked child: only this thread is left, and it counts as between two steps.
    pub(crate) fn be_alone(&self) {
        self.busy.store(0, Ordering::SeqCst);
        self.closing.store(0, Ordering::SeqCst);
    }
}

/// What a thread reaches besides its own.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings {
    pub(crate) report: &'static Report,
    pub(crate) process: *mut Process,
}

/// Set once, before the first thread: where a step finds the rest.
static mut SURROUNDINGS: Option<Surroundings> = None;

/// Says where the rest is.
///
/// # Safety
/// This is the process's only thread.
pub(crate) unsafe fn surround(surroundings: Surroundings) {
    // SAFETY: nobody else reads or writes it now.
    unsafe { SURROUNDINGS = Some(surroundings) };
}

pub(crate) fn report() -> &'static Report {
    // SAFETY: written once, before any thread that reads it.
    unsafe { SURROUNDINGS }.expect("set at the start").report
}

pub(crate) fn process() -> &'static Process {
    // SAFETY: written once, before any thread that reads it.
    let process = unsafe { SURROUNDINGS }.expect("set at the start").process;
    // SAFETY: never unmapped. What is reached through this reference is atomic.
    unsafe { &*process }
}

/// From now on a fault that cannot be resolved is noted in the report.
pub(crate) fn note_faults() {
    extern "C" fn fault(signal: core::ffi::c_int, info: *mut libc::siginfo_t, _context: *mut core::ffi::c_void) {
        // SAFETY: the kernel passes a valid structure, and these signals come with an address.
        let info = unsafe { &*info };
        // SAFETY: see above.
        let address = unsafe { info.si_addr() } as usize;
        // SAFETY: written once, before any thread that reads it.
        let Some(Surroundings { report, .. }) = (unsafe { SURROUNDINGS }) else { calls::exit(3) };
        report.fail(format_args!("process {}: signal {signal} at {address:x}", std::process::id()))
    }
    // SAFETY: zeros are a valid sigaction.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the handler writes to shared memory and ends the process.
        unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) };
    }
}

impl Worker {
    /// Steps until the run is over, or `steps` have been taken.
    pub(crate) fn run(&mut self, steps: u64) {
        let report = report();
        let Some(slot) = report.claim() else { return };
        for step in 1..=steps {
            if report.is_over() {
                break;
            }
            let number = drawn::next_kind(&mut self.random);
            if self.depth == 0 && step <= drawn::STEPS {
                self.drawn.add(self.stream, step, number);
                if step == drawn::STEPS {
                    report.has_drawn(self.drawn);
                }
            }
            let kind = kinds().nth(number).expect("drawn from all");
            if report.skipped[number].load(Ordering::Relaxed) == 0 {
                self.take(slot, number, kind);
            }
        }
        for area in 0..AREAS {
            if let Err(bad) = self.areas[area].check_all() {
                self.fail("the end", &Trouble::Bad("area", bad));
            }
        }
        if let Err(trouble) = self.heap.check().and_then(|()| self.flight.check()) {
            self.fail("the end", &trouble);
        }
        slot.leave(std::process::id());
    }

    fn take(&mut self, slot: &Slot, number: usize, kind: &Kind) {
        process().enter();
        self.step += 1;
        slot.kind.store(number as u32, Ordering::Relaxed);
        slot.step.store(self.step, Ordering::Relaxed);
        self.begun_ns = calls::now_ns();
        slot.since_ns.store(self.begun_ns, Ordering::Relaxed);
        // Drawn anew for each step: where one goes on after an answer that depends on time, the next is the same still.
        let kept = self.random;
        self.random = Random::new(self.seed ^ self.stream << 32, self.step);
        if let Err(trouble) = kind.2(self) {
            self.fail(kind.0, &trouble);
        }
        self.random = kept;
        report().done[number].fetch_add(1, Ordering::Relaxed);
        process().leave();
    }

    /// Notes what is wrong, for good.
    pub(crate) fn fail(&self, step: &str, trouble: &Trouble) -> ! {
        report().fail(format_args!(
            "seed {}: process {} (depth {}), stream {:x}, step {} ({step}), {} ms into it: {trouble}",
            self.seed,
            std::process::id(),
            self.depth,
            self.stream,
            self.step,
            (calls::now_ns() - self.begun_ns) / 1_000_000,
        ))
    }

    /// An area that is mapped, if the first that is drawn is; else it is mapped first.
    pub(crate) fn draw_area(&mut self) -> Result<usize, Trouble> {
        let number = self.random.below(AREAS);
        if !self.areas[number].is_mapped() {
            memory::map(self, number)?;
        }
        Ok(number)
    }

    /// An area that is not mapped.
    pub(crate) fn free_area(&self) -> Option<usize> {
        self.areas.iter().position(|area| !area.is_mapped())
    }

    pub(crate) fn pages(&self) -> usize {
        self.areas.iter().map(|area| area.count).sum()
    }
}
