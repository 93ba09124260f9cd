//! The order of holds and of moves out: two steps on each side.
//!
//! ```text
//!  thread   hold published ─ fence ─ wait while a move is under way ─ touch the pages ─ call
//!  mover    move under way ─ fence ─ look at the holds ─ move what nobody holds ─ over
//! ```
//! Either the mover sees the hold, or the thread sees the move and touches the pages after it is done.

use crate::futex::{AtomicU64, Ordering, fence, spin_while};

/// What is being moved out now, by one mover.
#[derive(Default, Debug)]
pub(crate) struct Moves {
    /// Moves begun and ended: odd while one is under way.
    steps: AtomicU64,
}

impl Moves {
    pub(crate) const fn new() -> Self {
        Self { steps: AtomicU64::new(0) }
    }

    /// Waits, behind a hold that has been published, until no move is under way that did not see it.
    pub(crate) fn wait(&self) {
        fence(Ordering::SeqCst);
        // Acquire: what the move has taken, if it is over.
        let seen = self.steps.load(Ordering::Acquire);
        if seen % 2 == 1 {
            spin_while(&self.steps, seen);
        }
    }

    /// Runs a move: what it finds held, and what it does not, is so until it ends. One caller at a time.
    pub(crate) fn run<R>(&self, moving: impl FnOnce() -> R) -> R {
        let before = self.steps.fetch_add(1, Ordering::Relaxed);
        assert!(before.is_multiple_of(2), "two movers");
        fence(Ordering::SeqCst);
        let result = moving();
        // Release: who finds it over touches pages behind it.
        self.steps.fetch_add(1, Ordering::Release);
        result
    }

    /// In a forked child: the mover was the parent's.
    pub(crate) fn reset(&self) {
        self.steps.store(0, Ordering::Relaxed);
    }
}
