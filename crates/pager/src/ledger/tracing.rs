//! Which of an agent's threads `pleat run` is to trace, so that the program cannot stop them.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Where a question is. Zero: nobody has asked.
const ASKED: u32 = 1;
const TAKEN: u32 = 2;
const TRACED: u32 = 3;
const REFUSED: u32 = 4;

/// One question at a time: the agent asks and waits for the answer. Zero is valid.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Tracing {
    thread: AtomicU32,
    state: AtomicU32,
}

impl Tracing {
    /// For the agent: asks for a thread of its process.
    pub fn ask(&self, thread: u32) {
        self.thread.store(thread, Relaxed);
        self.state.store(ASKED, Release);
    }

    /// For the agent: whether the thread is traced; `None` as long as nobody has answered.
    pub fn answer(&self) -> Option<bool> {
        match self.state.load(Acquire) {
            TRACED => Some(true),
            REFUSED => Some(false),
            _ => None,
        }
    }

    /// For `pleat run`: the thread that has been asked for; each question is taken once.
    pub fn take(&self) -> Option<u32> {
        self.state.compare_exchange(ASKED, TAKEN, AcqRel, Relaxed).ok().map(|_| self.thread.load(Relaxed))
    }

    /// For `pleat run`: answers what it has taken.
    pub fn reply(&self, is_traced: bool) {
        let answer = if is_traced { TRACED } else { REFUSED };
        // Where it fails the agent has gone and another one has the entry.
        let _ = self.state.compare_exchange(TAKEN, answer, Release, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_taken_once_and_answered() {
        let tracing = Tracing::default();
        assert_eq!((tracing.take(), tracing.answer()), (None, None));
        for (thread, is_traced) in [(7, true), (8, false)] {
            tracing.ask(thread);
            assert_eq!(tracing.answer(), None, "the answer before is void");
            assert_eq!((tracing.take(), tracing.take()), (Some(thread), None));
            tracing.reply(is_traced);
            assert_eq!(tracing.answer(), Some(is_traced));
        }
        tracing.ask(9);
        tracing.reply(true);
        assert_eq!(tracing.answer(), None, "nobody has taken it");
    }
}
