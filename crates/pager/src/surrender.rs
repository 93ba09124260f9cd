//! Memory that a program takes back, because it registers it with a userfaultfd of its own: a mapping has one.
//!
//! A thread of the program's asks for a range. The reclaimer lets go of it as far as no page is out, and answers with those that
//! are next; the thread brings them in, by faults like any others, and asks for the rest. Until it says that it has registered
//! what it wanted nobody takes that up again.

use alloc::vec::Vec;
use core::time::Duration;

use cache::Place;
use page::{PageCount, PageIndex};
use store::Store;
use sys::kernel::{Kernel, PageRange};
use sys::sync::{AtomicU32, AtomicU64, Ordering, Sharing, wait_while, wake_all};

use crate::Pager;
use crate::state::State;

/// Pages let go, and brought in, at a time.
const STEP: PageCount = PageCount(512);
/// Longest wait for an answer, and for who takes something back at the same time. The program hears what the kernel says then.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);
/// Longest wait for a fill, in looks of [`crate::readings`]: a second.
const FILL_LOOKS_MAX: u32 = 100;
/// How often the same page is brought in.
const TRIES_MAX: u32 = 1000;

/// Nobody takes anything back.
const FREE: u32 = 0;
/// Somebody does, and does not wait for an answer now.
const TAKEN: u32 = 1;
const ASKED: u32 = 2;
const ANSWERED: u32 = 3;

/// What one thread takes back, at a time. Without a lock: its stack is managed.
#[derive(Debug, Default)]
pub(crate) struct Surrender {
    /// A futex.
    stage: AtomicU32,
    /// The whole range.
    start: AtomicU64,
    end: AtomicU64,
    /// What of it is asked for, and then the answer: all before this part has been let go, and its pages are out.
    part_start: AtomicU64,
    part_end: AtomicU64,
}

/// How far a thread has come that takes something back.
pub(crate) struct Taking {
    pub(crate) left: PageRange,
    /// How much is brought in at a time.
    step: PageCount,
    /// Answers in a row by which nothing had been let go.
    tries: u32,
}

impl Taking {
    pub(crate) fn of(whole: PageRange) -> Self {
        Self { left: whole, step: STEP, tries: 0 }
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.left.start < self.left.end && self.tries < TRIES_MAX
    }

    /// Behind an answer: what of it to bring in before the next question. What has been brought in may have left again before it is let
    /// go, more than the share holds always: then it is half as much each time, down to a page, and where it has not, twice as much.
    pub(crate) fn go_on(&mut self, out: PageRange) -> PageRange {
        if out.start > self.left.start {
            (self.step, self.tries) = (PageCount(self.step.0 * 2).min(STEP), 0);
        } else {
            (self.step, self.tries) = (PageCount(self.step.0 / 2).max(PageCount(1)), self.tries + 1);
        }
        self.left.start = out.start;
        PageRange { start: out.start, end: out.end.min(out.start + self.step) }
    }
}

impl Surrender {
    /// Waits until nobody else takes anything back. Says whether that came to be.
    pub(crate) fn begin(&self, whole: PageRange, now_ns: impl Fn() -> u64) -> bool {
        let end_ns = now_ns() + PATIENCE.as_nanos() as u64;
        loop {
            // AcqRel: behind who was before.
            match self.stage.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(_) if now_ns() > end_ns => return false,
                Err(stage) => wait_while(&self.stage, stage, LOOK, Sharing::Process),
            }
        }
        self.start.store(whole.start.0, Ordering::Relaxed);
        // Release: who sees the end sees the beginning.
        self.end.store(whole.end.0, Ordering::Release);
        true
    }

    /// Asks for what is left, and returns the answer. `None`: there was none in time.
    fn ask(&self, left: PageRange, now_ns: impl Fn() -> u64, hurry: impl Fn()) -> Option<PageRange> {
        let end_ns = now_ns() + PATIENCE.as_nanos() as u64;
        self.put_question(left);
        hurry();
        while self.stage.load(Ordering::Acquire) == ASKED {
            wait_while(&self.stage, ASKED, LOOK, Sharing::Process);
            if now_ns() > end_ns && self.change(ASKED, TAKEN) {
                return None;
            }
        }
        self.answered()
    }

    pub(crate) fn put_question(&self, left: PageRange) {
        self.set_part(left);
        self.stage.store(ASKED, Ordering::Release);
    }

    /// The answer, which ends the question.
    pub(crate) fn answered(&self) -> Option<PageRange> {
        self.change(ANSWERED, TAKEN).then(|| self.part())
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.stage.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// What has been let go is registered, or never will be.
    pub(crate) fn end(&self) {
        self.end.store(0, Ordering::Release);
        self.stage.store(FREE, Ordering::Release);
        wake_all(&self.stage, Sharing::Process);
    }

    fn set_part(&self, part: PageRange) {
        self.part_start.store(part.start.0, Ordering::Relaxed);
        self.part_end.store(part.end.0, Ordering::Relaxed);
    }

    fn part(&self) -> PageRange {
        PageRange {
            start: PageIndex(self.part_start.load(Ordering::Relaxed)),
            end: PageIndex(self.part_end.load(Ordering::Relaxed)),
        }
    }

    /// What is asked for.
    fn asked(&self) -> Option<PageRange> {
        (self.stage.load(Ordering::Acquire) == ASKED).then(|| self.part())
    }

    fn answer(&self, out: PageRange) {
        self.set_part(out);
        // Unless nobody waits any more.
        if self.change(ASKED, ANSWERED) {
            wake_all(&self.stage, Sharing::Process);
        }
    }

    /// What nobody is to take up: all that a thread takes back now.
    pub(crate) fn range(&self) -> Option<PageRange> {
        let end = PageIndex(self.end.load(Ordering::Acquire));
        (end > PageIndex(0)).then(|| PageRange { start: PageIndex(self.start.load(Ordering::Relaxed)), end })
    }

    /// In a forked child: who took something back is the parent's.
    pub(crate) fn reset(&self) {
        self.end.store(0, Ordering::Relaxed);
        self.stage.store(FREE, Ordering::Release);
    }
}

impl<K: Kernel, S: Store> Pager<K, S> {
    /// On a thread of the program's, which blocks signals: gives it back `range`, so far as that can be done, while `register` runs.
    /// `bring_in` touches pages, and says whether that could be done.
    pub fn surrender<T>(
        &self,
        range: PageRange,
        bring_in: impl Fn(PageRange) -> bool,
        register: impl FnOnce() -> T,
    ) -> T {
        let now_ns = || self.kernel.now_ns();
        if !self.surrender.begin(range, now_ns) {
            return register();
        }
        let mut taking = Taking::of(range);
        while taking.goes_on() {
            let Some(out) = self.surrender.ask(taking.left, now_ns, || self.hurry()) else { break };
            let out = taking.go_on(out);
            if out.start < out.end && !bring_in(out) {
                break;
            }
        }
        // A page that the server has found untouched may be on its way to what has been let go.
        self.wait_for_fill();
        let registered = register();
        self.surrender.end();
        registered
    }

    /// Waits until what the server fills now is filled. It serves longer only where it waits, for a device or for room, and then it looks
    /// again at what is to be filled.
    pub(crate) fn wait_for_fill(&self) {
        self.servings.wait(FILL_LOOKS_MAX);
    }

    /// On the reclaimer's thread: answers who takes something back.
    pub(crate) fn answer_surrender(&self) {
        let Some(left) = self.surrender.asked() else { return };
        let mut state = self.lock();
        // Later.
        if state.frozen || state.is_holding() || self.kernel.layout_is_changing() {
            return;
        }
        let out = next_out(&state, left);
        if self.let_go(&mut state, PageRange { start: left.start, end: out.start }) {
            drop(state);
            self.surrender.answer(out);
        }
    }

    /// Manages `part` no more, of which no page is out. Not if the layout changes meanwhile: what comes there from elsewhere may have
    /// pages that are.
    fn let_go(&self, state: &mut State<S>, part: PageRange) -> bool {
        let managed: Vec<_> = state.regions.iter().filter_map(|region| region.intersection(part)).collect();
        for region in &managed {
            self.kernel.unregister(*region);
        }
        // What a mapping has grown by is registered before anybody knows of it.
        state.regions.gaps(part, |gap| self.kernel.unregister(gap));
        if self.kernel.layout_is_changing() {
            for region in managed {
                let _ = self.kernel.register(region);
            }
            return false;
        }
        state.surrenders += 1;
        state.forget(part);
        true
    }
}

/// The next pages in a row that are out, or where nothing has been found to be out up to.
fn next_out<S: Store>(state: &State<S>, left: PageRange) -> PageRange {
    let is_in = |page: &PageIndex| matches!(state.cache.place(*page), Place::Resident | Place::Untouched);
    let Some(first) = state.regions.first_in(left) else { return PageRange { start: left.end, end: left.end } };
    let end = left.end.min(first + STEP);
    let start = first.until(end).find(|page| !is_in(page)).unwrap_or(end);
    PageRange { start, end: start.until(end).find(is_in).unwrap_or(end) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;

    fn range(start: u64, end: u64) -> PageRange {
        PageRange { start: PageIndex(start), end: PageIndex(end) }
    }

    /// Each by itself, and each to its own answers.
    #[test]
    fn threads_take_back_one_after_the_other() {
        let (surrender, is_over, begun) = (Surrender::default(), AtomicBool::new(false), Instant::now());
        let now_ns = || begun.elapsed().as_nanos() as u64;
        std::thread::scope(|scope| {
            let answerer = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if let Some(left) = surrender.asked() {
                        let whole = surrender.range().expect("somebody asks");
                        assert_eq!(left.end, whole.end);
                        surrender.answer(range(left.start.0 + 1, left.end.0));
                    }
                }
            });
            let takers = [100, 200, 300, 400].map(|start| {
                let surrender = &surrender;
                scope.spawn(move || {
                    for _ in 0..200 {
                        assert!(surrender.begin(range(start, start + 5), now_ns));
                        let mut left = range(start, start + 5);
                        while left.start < left.end {
                            let out = surrender.ask(left, now_ns, || ()).unwrap();
                            assert_eq!(out, range(left.start.0 + 1, start + 5));
                            left = out;
                        }
                        surrender.end();
                    }
                })
            });
            for taker in takers {
                taker.join().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
            answerer.join().unwrap();
        });
        assert_eq!(surrender.range(), None);
    }

    /// A reclaimer that does not come, and somebody who takes something back without end.
    #[test]
    fn a_wait_ends() {
        let (surrender, now) = (Surrender::default(), std::cell::Cell::new(0));
        let now_ns = || now.replace(now.get() + PATIENCE.as_nanos() as u64 / 4);
        assert!(surrender.begin(range(1, 9), now_ns));
        assert_eq!(surrender.ask(range(1, 9), now_ns, || ()), None);
        surrender.answer(range(1, 9));
        assert_eq!((surrender.asked(), surrender.answered()), (None, None), "the question has ended");
        assert!(!surrender.begin(range(20, 29), now_ns));
        surrender.end();
        assert!(surrender.begin(range(20, 29), now_ns) && surrender.range() == Some(range(20, 29)));
    }
}
