//! Which of an agent's threads `pleat run` is to trace, so that whoever traces the program later cannot stop them.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// The threads of an agent, by their places in [`Tracing::threads`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum AgentThread {
    /// Waits for memory to get short, and reclaims it then.
    Reclaimer,
    /// Serves faults.
    Handler,
    /// Writes segments to the swap file.
    Writer,
}

/// Those of one agent. Zero is valid.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Tracing {
    /// By [`AgentThread`].
    pub threads: [Traceable; 3],
}

/// A thread that is to be traced.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Traceable {
    thread: AtomicU32,
    state: AtomicU32,
}

/// Where a thread is. Zero: there is none.
const LISTED: u32 = 1;
const ASKED: u32 = 2;
const TAKEN: u32 = 3;
const TRACED: u32 = 4;
const REFUSED: u32 = 5;
/// For somebody else, who may take it now; to be taken up again like one that is listed.
const LET_GO: u32 = 6;

/// How soon a thread is to be traced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Once its process has lived for a while: nothing depends on it.
    AtLeisure,
    /// Now: its agent waits for the answer.
    AtOnce,
}

impl Traceable {
    /// For the agent: this thread is to be traced.
    pub fn ask(&self, thread: u32, urgency: Urgency) {
        self.thread.store(thread, Relaxed);
        let state = if urgency == Urgency::AtOnce { ASKED } else { LISTED };
        self.state.store(state, Release);
    }

    /// The thread's number; 0 if there has been none.
    pub fn number(&self) -> u32 {
        self.thread.load(Relaxed)
    }

    /// For the agent: whether the thread is traced; `None` as long as nobody has answered.
    pub fn answer(&self) -> Option<bool> {
        match self.state.load(Acquire) {
            TRACED => Some(true),
            REFUSED => Some(false),
            _ => None,
        }
    }

    /// For the agent: whether `pleat run` is about to trace the thread, or does already and is about to say so.
    pub fn is_taken(&self) -> bool {
        self.state.load(Acquire) == TAKEN
    }

    /// For the agent: whether `pleat run` has made room for somebody else.
    pub fn is_let_go(&self) -> bool {
        self.state.load(Acquire) == LET_GO
    }

    /// For `pleat run`: whether somebody has asked, and how soon it is to be.
    pub fn wanted(&self) -> Option<Urgency> {
        match self.state.load(Acquire) {
            LISTED | LET_GO => Some(Urgency::AtLeisure),
            ASKED => Some(Urgency::AtOnce),
            _ => None,
        }
    }

    /// For `pleat run`: the thread that has been asked for; each question is taken once.
    pub fn take(&self) -> Option<u32> {
        let take = |state| self.state.compare_exchange(state, TAKEN, AcqRel, Relaxed).is_ok();
        [ASKED, LISTED, LET_GO].into_iter().any(take).then(|| self.thread.load(Relaxed))
    }

    /// For `pleat run`: answers what it has taken.
    pub fn reply(&self, is_traced: bool) {
        let answer = if is_traced { TRACED } else { REFUSED };
        // Where it fails the agent has gone and another one has the entry.
        let _ = self.state.compare_exchange(TAKEN, answer, Release, Relaxed);
    }

    /// For `pleat run`: it traces the thread no more, and will again at leisure.
    pub fn let_go(&self) {
        // As in `reply`.
        let _ = self.state.compare_exchange(TRACED, LET_GO, Release, Relaxed);
    }

    /// For `pleat run`: the process has ended, and its entry is to be another's.
    pub fn forget(&self) {
        self.thread.store(0, Relaxed);
        self.state.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_taken_once_and_answered() {
        let thread = Traceable::default();
        assert_eq!((thread.wanted(), thread.take(), thread.answer()), (None, None, None));
        for (number, urgency, is_traced) in [(7, Urgency::AtOnce, true), (8, Urgency::AtLeisure, false)] {
            thread.ask(number, urgency);
            assert_eq!((thread.answer(), thread.wanted()), (None, Some(urgency)), "the answer before is void");
            assert_eq!((thread.take(), thread.take(), thread.wanted()), (Some(number), None, None));
            assert!(thread.is_taken());
            thread.reply(is_traced);
            assert_eq!(thread.answer(), Some(is_traced));
        }
        thread.ask(9, Urgency::AtOnce);
        thread.reply(true);
        assert_eq!(thread.answer(), None, "nobody has taken it");
    }

    #[test]
    fn what_is_let_go_is_traced_again() {
        let thread = Traceable::default();
        thread.let_go();
        assert_eq!(thread.wanted(), None, "it was not traced");
        thread.ask(7, Urgency::AtOnce);
        thread.take();
        thread.reply(true);
        thread.let_go();
        assert_eq!((thread.wanted(), thread.is_let_go()), (Some(Urgency::AtLeisure), true));
        assert_eq!((thread.take(), thread.is_let_go()), (Some(7), false));
        thread.forget();
        thread.reply(true);
        assert_eq!((thread.wanted(), thread.answer()), (None, None));
    }
}
