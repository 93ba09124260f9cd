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
const ASKED_FOR_GOOD: u32 = 3;
const TAKEN: u32 = 4;
const TRACED: u32 = 5;
const REFUSED: u32 = 6;
/// For somebody else, who may take it now; to be taken up again like one that is listed.
const LET_GO: u32 = 7;
/// Traced, and about to be let go: a stand-in is to go on for it first.
const TO_STEP_OUT: u32 = 8;
/// Traced, and one does.
const STEPPED_OUT: u32 = 9;

/// How soon a thread is to be traced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Once nobody else traces its process: its agent gets along until then.
    AtLeisure,
    /// Now: its agent waits for the answer.
    AtOnce,
    /// The same, and no leak checker is ever given it, which looks at all that it can stop.
    ForGood,
}

impl Traceable {
    /// For the agent: this thread is to be traced.
    pub fn ask(&self, thread: u32, urgency: Urgency) {
        self.thread.store(thread, Relaxed);
        let state = match urgency {
            Urgency::AtLeisure => LISTED,
            Urgency::AtOnce => ASKED,
            Urgency::ForGood => ASKED_FOR_GOOD,
        };
        self.state.store(state, Release);
    }

    /// The thread's number; 0 if there has been none.
    pub fn number(&self) -> u32 {
        self.thread.load(Relaxed)
    }

    /// For the agent: whether the thread is traced; `None` as long as nobody has answered.
    pub fn answer(&self) -> Option<bool> {
        match self.state.load(Acquire) {
            TRACED | TO_STEP_OUT | STEPPED_OUT => Some(true),
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

    /// For the agent: whether the thread is traced and stays so: no stand-in has to go on for it.
    pub fn is_to_stay(&self) -> bool {
        self.state.load(Acquire) == TRACED
    }

    /// For the agent: whether a stand-in is to go on for the thread.
    pub fn is_to_step_out(&self) -> bool {
        self.state.load(Acquire) == TO_STEP_OUT
    }

    /// For the agent: one does.
    pub fn has_stepped_out(&self) {
        // Where it fails `pleat run` has changed its mind.
        let _ = self.state.compare_exchange(TO_STEP_OUT, STEPPED_OUT, Release, Relaxed);
    }

    /// For `pleat run`: what it traces is about to be let go, once a stand-in goes on for it.
    pub fn ask_to_step_out(&self) {
        let _ = self.state.compare_exchange(TRACED, TO_STEP_OUT, Release, Relaxed);
    }

    /// For `pleat run`: whether one does.
    pub fn is_out(&self) -> bool {
        self.state.load(Acquire) == STEPPED_OUT
    }

    /// For `pleat run`: it is not let go after all.
    pub fn ask_to_stay(&self) {
        let back = |state| self.state.compare_exchange(state, TRACED, Release, Relaxed).is_ok();
        [TO_STEP_OUT, STEPPED_OUT].into_iter().any(back);
    }

    /// For `pleat run`: whether somebody has asked, and how soon it is to be.
    pub fn wanted(&self) -> Option<Urgency> {
        match self.state.load(Acquire) {
            LISTED | LET_GO => Some(Urgency::AtLeisure),
            ASKED => Some(Urgency::AtOnce),
            ASKED_FOR_GOOD => Some(Urgency::ForGood),
            _ => None,
        }
    }

    /// For `pleat run`: the thread that has been asked for; each question is taken once.
    pub fn take(&self) -> Option<u32> {
        let take = |state| self.state.compare_exchange(state, TAKEN, AcqRel, Relaxed).is_ok();
        [ASKED, ASKED_FOR_GOOD, LISTED, LET_GO].into_iter().any(take).then(|| self.thread.load(Relaxed))
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
        let let_go = |state| self.state.compare_exchange(state, LET_GO, Release, Relaxed).is_ok();
        // In this order: it may step out meanwhile.
        [TRACED, TO_STEP_OUT, STEPPED_OUT].into_iter().any(let_go);
    }

    /// For `pleat run`, which ends: whoever goes on for it is to trace a thread at once that it has let go, and nobody else is given it.
    pub fn hand_over_for_good(&self) {
        // Where it fails it was not let go, or the agent has gone.
        let _ = self.state.compare_exchange(LET_GO, ASKED_FOR_GOOD, Release, Relaxed);
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
        let asked = [(7, Urgency::AtOnce, true), (8, Urgency::AtLeisure, false), (9, Urgency::ForGood, true)];
        for (number, urgency, is_traced) in asked {
            thread.ask(number, urgency);
            assert_eq!((thread.answer(), thread.wanted()), (None, Some(urgency)), "the answer before is void");
            assert_eq!((thread.take(), thread.take(), thread.wanted()), (Some(number), None, None));
            assert!(thread.is_taken());
            thread.reply(is_traced);
            assert_eq!(thread.answer(), Some(is_traced));
        }
        thread.ask(10, Urgency::AtOnce);
        thread.reply(true);
        assert_eq!(thread.answer(), None, "nobody has taken it");
    }

    #[test]
    fn a_stand_in_goes_on_before_a_thread_is_let_go() {
        let thread = Traceable::default();
        thread.ask_to_step_out();
        assert!(!thread.is_to_step_out(), "it is not traced");
        thread.ask(7, Urgency::AtLeisure);
        thread.take();
        thread.reply(true);
        assert!(thread.is_to_stay());
        for is_done in [false, true] {
            thread.ask_to_step_out();
            assert!(thread.is_to_step_out() && !thread.is_to_stay() && thread.answer() == Some(true));
            if is_done {
                thread.has_stepped_out();
            }
            assert_eq!(thread.is_out(), is_done);
            thread.ask_to_stay();
            assert!(thread.is_to_stay());
            thread.has_stepped_out();
            assert!(thread.is_to_stay(), "too late");
        }
        for is_done in [false, true] {
            thread.ask_to_step_out();
            if is_done {
                thread.has_stepped_out();
            }
            thread.let_go();
            assert!(thread.is_let_go());
            assert_eq!(thread.take(), Some(7));
            thread.reply(true);
        }
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
        thread.hand_over_for_good();
        assert_eq!(thread.wanted(), None, "it has not been let go");
        thread.reply(true);
        thread.let_go();
        thread.hand_over_for_good();
        assert_eq!((thread.wanted(), thread.is_let_go()), (Some(Urgency::ForGood), false), "nobody else is to have it");
        thread.forget();
        thread.reply(true);
        assert_eq!((thread.wanted(), thread.answer()), (None, None));
    }
}
