//! What pages that move cost besides themselves: a call for each run of them, and an interrupt of the processor that runs the program.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use page::PageCount;
use sys::Errno;
use sys::moving::Moving;
use sys::thread::{Processors, pin_to, unpin};
use trace::Random;

/// Pages that are moved to time it, how often, and the longer of the two lengths of runs.
const MOVED: PageCount = PageCount(2048);
const ROUNDS: usize = 15;
const LONG_RUN: PageCount = PageCount(32);
/// Interrupts in a round, and what lies between two of them: where pages go one by one the reclaimer encodes some meanwhile.
const INTERRUPTS: PageCount = PageCount(512);
const PAUSE: Duration = Duration::from_micros(20);
/// For how long the other thread is left alone, before the interrupts of a round and behind them.
const LEFT_ALONE: Duration = Duration::from_millis(10);
/// What the other thread works on: more than the caches hold.
const WORKED_ON: usize = 64 << 20;
/// Reads between two notes of how far it has come.
const STINT: usize = 64;

/// What a run costs that moves, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunCosts {
    /// The call.
    pub(super) call: f64,
    /// How much longer it takes while the program is at work on another processor.
    pub(super) interrupt: f64,
    /// What of the program's own time goes with that.
    pub(super) interrupted: f64,
}

impl RunCosts {
    /// Times moves of pages of this process, alone and beside a thread that works on another processor.
    pub(super) fn measure() -> Result<Self, Errno> {
        let mut moving = Moving::new(MOVED)?;
        let allowed = Processors::allowed();
        let numbers: Vec<_> = allowed.iter().flat_map(Processors::numbers).take(2).collect();
        let call = call_ns(&mut moving)?;
        let (&[own, other], Some(allowed)) = (&numbers[..], &allowed) else {
            return Ok(Self { call, interrupt: 0.0, interrupted: 0.0 });
        };
        pin_to(own);
        let costs = interrupts_ns(&mut moving, other);
        unpin(allowed);
        let (interrupt, interrupted) = costs?;
        Ok(Self { call, interrupt, interrupted })
    }
}

/// Moves of single pages and of long runs differ by what a run costs.
fn call_ns(moving: &mut Moving) -> Result<f64, Errno> {
    let mut page_ns = |run: PageCount| {
        moving.refill();
        let begun = Instant::now();
        moving.move_all(run).map(|()| begun.elapsed().as_nanos() as f64 / MOVED.0 as f64)
    };
    let mut difference = || Ok(page_ns(PageCount(1))? - page_ns(LONG_RUN)?);
    let differences = (0..ROUNDS).map(|_| difference()).collect::<Result<_, Errno>>()?;
    Ok(median(differences) * LONG_RUN.0 as f64 / (LONG_RUN.0 - 1) as f64)
}

/// What an interrupt of a thread on processor `other` takes here, and there.
fn interrupts_ns(moving: &mut Moving, other: usize) -> Result<(f64, f64), Errno> {
    let mut refilled_ns = || {
        moving.refill();
        single_ns(moving)
    };
    let alone = (0..ROUNDS).map(|_| refilled_ns()).collect::<Result<_, Errno>>()?;
    let worked = Worked::default();
    let (mut beside, mut lost) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let _end = Ends(&worked.is_over);
        scope.spawn(|| {
            pin_to(other);
            work(&worked);
        });
        while worked.stints.load(Relaxed) == 0 {
            spin_loop();
        }
        for _ in 0..ROUNDS {
            let (before, ()) = worked.rate_of(|| spin_for(LEFT_ALONE));
            moving.refill();
            let (during, ns) = worked.rate_of(|| single_ns(moving));
            let (after, ()) = worked.rate_of(|| spin_for(LEFT_ALONE));
            let ns = ns?;
            beside.push(ns);
            let round_ns = ns + PAUSE.as_nanos() as f64;
            lost.push((1.0 - 2.0 * during / (before + after)) * round_ns);
        }
        Ok::<_, Errno>(())
    })?;
    Ok((median(beside) - median(alone), median(lost)))
}

/// What moving a page takes that goes alone, with pauses behind each.
fn single_ns(moving: &mut Moving) -> Result<f64, Errno> {
    let mut taken = Duration::ZERO;
    for page in 0..INTERRUPTS.0 {
        let begun = Instant::now();
        moving.move_one(PageCount(page))?;
        taken += begun.elapsed();
        spin_for(PAUSE);
    }
    Ok(taken.as_nanos() as f64 / INTERRUPTS.0 as f64)
}

fn spin_for(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        // Work, not a pause: hypervisors take note of those.
        black_box(time);
    }
}

/// How far the other thread has come.
#[derive(Default)]
struct Worked {
    stints: AtomicU64,
    is_over: AtomicBool,
}

impl Worked {
    /// Stints in a nanosecond while something is done, and what that returned.
    fn rate_of<T>(&self, act: impl FnOnce() -> T) -> (f64, T) {
        let (stints, begun) = (self.stints.load(Relaxed), Instant::now());
        let result = act();
        let (stints, ns) = (self.stints.load(Relaxed) - stints, begun.elapsed().as_nanos());
        (stints as f64 / ns as f64, result)
    }
}

/// Reads at random, until it is over: a program that waits for its memory now and then, as most do.
fn work(worked: &Worked) {
    let (mut random, memory) = (Random::new(3), vec![1_u8; WORKED_ON]);
    while !worked.is_over.load(Relaxed) {
        for _ in 0..STINT {
            black_box(memory[random.below(WORKED_ON as u64) as usize]);
        }
        worked.stints.fetch_add(1, Relaxed);
    }
}

/// Lets the other thread end, whatever becomes of this one: a scope waits for it.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
