//! The stages of a fork, without a lock: what the forking thread, the reclaimer and the handler tell each other.

use sys::sync::{AtomicU32, Ordering, Sharing, wait_while, wake_all};

use crate::fork::LOOK;

/// Lets one thread through at a time.
#[derive(Default)]
pub(crate) struct Gate {
    /// That thread's number, or 0; with [`EXECUTES`] while it executes a program, with [`ENDS`] while it ends this one.
    holder: AtomicU32,
    /// Threads that wait to execute a program, or to end this one: they go first, for who forks in a loop leaves no gap.
    waiting: AtomicU32,
    /// Threads that wait to fork.
    forking: AtomicU32,
}

/// The thread at the gate does not fork: it executes another program. A signal's handler that runs on it may fork.
const EXECUTES: u32 = 1 << 31;
/// It ends the process; what libc runs then may fork.
const ENDS: u32 = 1 << 30;
const MARKS: u32 = EXECUTES | ENDS;
/// Looks at the gate for the end of a fork, or of an exec that does not come: ten seconds of them. Nobody is waited for longer
/// across the two: a handler of the one's can wait for the other.
const GATE_LOOKS_MAX: u32 = 5000;
/// The same for the end of the process: five seconds, as long as a parent waits for its child.
const END_LOOKS_MAX: u32 = 2500;
/// The looks of who forks for a process that ends, half a second of them: it can hold a lock that the end needs, and has taken it
/// before it came to the gate.
const ENDED_LOOKS_MAX: u32 = 250;
/// The looks of who forks past libc, five seconds of them.
const RAW_LOOKS_MAX: u32 = 2500;
/// Those of them behind a fork of the same thread, half a second: that keeps it closed until the reclaimer is back at work. If it
/// is not over yet (a handler of libc's fork forks past it) nobody opens.
const OWN_LOOKS_MAX: u32 = 250;

impl Gate {
    /// Waits until it is open and closes it, for the thread `me`. In the child of a raw system call who has closed it may not be
    /// there: then it counts as open.
    pub(crate) fn close(&self, me: u32, is_there: impl Fn(u32) -> bool) {
        self.forking.fetch_add(1, Ordering::Relaxed);
        self.wait_and_close(me, is_there);
        self.forking.fetch_sub(1, Ordering::Relaxed);
    }

    /// The same for a thread that may hold a lock for which the one that has closed it waits. False if that does not open it in time,
    /// or is this thread, which executes a program or ends this one.
    pub(crate) fn close_in_time(&self, me: u32) -> bool {
        self.forking.fetch_add(1, Ordering::Relaxed);
        let mut looks = 0;
        let is_closed = loop {
            match self.holder.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break true,
                Err(other) if looks >= Self::raw_looks_max(other, me) => break false,
                Err(other) => wait_while(&self.holder, other, LOOK, Sharing::Process),
            }
            looks += 1;
        };
        self.forking.fetch_sub(1, Ordering::Relaxed);
        is_closed
    }

    fn raw_looks_max(holder: u32, me: u32) -> u32 {
        match holder & !MARKS == me {
            true if holder & MARKS != 0 => 0,
            true => OWN_LOOKS_MAX,
            false => RAW_LOOKS_MAX,
        }
    }

    /// The thread that has closed it.
    pub(crate) fn holder(&self) -> u32 {
        self.holder.load(Ordering::Acquire) & !MARKS
    }

    /// Whether a thread waits for the end of a fork.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.forking.load(Ordering::Relaxed) + self.waiting.load(Ordering::Relaxed) > 0
    }

    fn wait_and_close(&self, me: u32, is_there: impl Fn(u32) -> bool) {
        for _ in 0..GATE_LOOKS_MAX {
            let waiting = self.waiting.load(Ordering::Relaxed);
            if waiting == 0 || self.holder.load(Ordering::Relaxed) & !MARKS == me {
                break;
            }
            wait_while(&self.waiting, waiting, LOOK, Sharing::Process);
        }
        let mut looks = 0;
        while let Err(other) = self.holder.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed) {
            let looks_max = if other & ENDS != 0 { ENDED_LOOKS_MAX } else { GATE_LOOKS_MAX };
            let forks = other & MARKS == 0;
            if !forks && (other & !MARKS == me || looks >= looks_max) {
                if self.change(other, me) {
                    return;
                }
                continue;
            }
            looks += u32::from(!forks);
            wait_while(&self.holder, other, LOOK, Sharing::Process);
            if self.holder.load(Ordering::Relaxed) == other && !is_there(other & !MARKS) {
                self.change(other, 0);
            }
        }
    }

    /// For a thread that is about to execute another program: nobody forks from now on. False if forks have not ended in time.
    /// Signals are blocked: a handler that forks would wait for the thread that it interrupts, and one that does not return be waited
    /// for.
    pub(crate) fn close_to_execute(&self, me: u32) -> bool {
        self.close_for(me, EXECUTES, GATE_LOOKS_MAX)
    }

    /// The same for a thread that is about to end the process. Who forks itself waits for nobody.
    pub(crate) fn close_to_end(&self, me: u32) {
        if self.holder.load(Ordering::Relaxed) != me {
            self.close_for(me, ENDS, END_LOOKS_MAX);
        }
    }

    fn close_for(&self, me: u32, mark: u32, looks_max: u32) -> bool {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let is_closed = (0..looks_max).any(|_| {
            let tried = self.holder.compare_exchange(0, me | mark, Ordering::AcqRel, Ordering::Relaxed);
            let Err(other) = tried else { return true };
            // A destructor executes a program, or a signal's handler ends one that is being executed.
            let is_ours = other & MARKS != 0 && other & !MARKS == me;
            if !is_ours {
                wait_while(&self.holder, other, LOOK, Sharing::Process);
            }
            is_ours
        });
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        wake_all(&self.waiting, Sharing::Process);
        is_closed
    }

    /// It has not been executed.
    pub(crate) fn open_after_executing(&self, me: u32) {
        if self.change(me | EXECUTES, 0) {
            wake_all(&self.holder, Sharing::Process);
        }
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.holder.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// In a forked child, on its only thread.
    pub(crate) fn open_in_child(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        self.forking.store(0, Ordering::Relaxed);
        self.open();
    }

    pub(crate) fn open(&self) {
        self.holder.store(0, Ordering::Release);
        wake_all(&self.holder, Sharing::Process);
    }
}

/// Where a fork stands, as the forking thread and the handler see it.
const NO_FORK: u32 = 0;
const FROZEN: u32 = 1;
const ATTENDED: u32 = 2;
const FAILED: u32 = 3;
/// In user mode: the keeper is to hand the child's memory over.
const TO_BE_HANDED_OVER: u32 = 4;

/// Where the fork is that is under way.
#[derive(Default)]
pub(crate) struct Stages {
    stage: AtomicU32,
    /// 1 once the forking thread is past its fork.
    returned: AtomicU32,
    /// 1 while the reclaimer is asked to rest, and while it does.
    rest_wanted: AtomicU32,
    resting: AtomicU32,
    /// Goes up with each fork that is done; a futex. And what it was before the last one.
    done: AtomicU32,
    done_before: AtomicU32,
    /// Who still keeps the gate closed: the forking thread until it leaves, the reclaimer until it is back at work.
    holders: AtomicU32,
    /// In user mode: the child that the state is frozen for.
    child: AtomicU32,
}

/// On the forking thread.
impl Stages {
    /// Asks the reclaimer to freeze the state. The gate is closed.
    pub(crate) fn begin(&self) {
        self.holders.store(2, Ordering::Relaxed);
        self.returned.store(0, Ordering::Relaxed);
        self.done_before.store(self.done.load(Ordering::Acquire), Ordering::Relaxed);
        self.rest_wanted.store(1, Ordering::Release);
    }

    /// Whether the state is frozen.
    pub(crate) fn is_frozen(&self) -> bool {
        self.resting.load(Ordering::Acquire) == 1
    }

    /// Waits until it is, or for a look.
    pub(crate) fn look_whether_frozen(&self) {
        wait_while(&self.resting, 0, LOOK, Sharing::Process);
    }

    /// The fork has returned, whatever has come of it.
    pub(crate) fn note_return(&self) {
        // Release: who sees it reads what has been told of the fork.
        self.returned.store(1, Ordering::Release);
    }

    /// There is no child, so that nobody will finish this fork. False if somebody attends a child all the same.
    pub(crate) fn give_up(&self) -> bool {
        let is_ours = self.stage.compare_exchange(FROZEN, FAILED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_ours {
            self.let_go();
        }
        is_ours
    }

    /// In user mode: there is a child, or none.
    pub(crate) fn hand_over(&self, child: Option<u32>) {
        let Some(child) = child else {
            self.stage.store(FAILED, Ordering::Release);
            return self.let_go();
        };
        self.child.store(child, Ordering::Release);
        self.stage.store(TO_BE_HANDED_OVER, Ordering::Release);
        // The reclaimer may have looked before, and not wait yet: then it looks again by itself.
        wake_all(&self.rest_wanted, Sharing::Process);
    }

    /// Waits until the child's memory is the child's own, for so many looks at most.
    pub(crate) fn wait_for_end(&self, looks_max: u32) {
        let before = self.done_before.load(Ordering::Relaxed);
        for _ in 0..looks_max {
            if self.done.load(Ordering::Acquire) != before {
                return;
            }
            wait_while(&self.done, before, LOOK, Sharing::Process);
        }
    }
}

/// On the reclaimer's thread.
impl Stages {
    pub(crate) fn wants_rest(&self) -> bool {
        self.rest_wanted.load(Ordering::Acquire) == 1
    }

    /// The state is frozen: the program may fork.
    pub(crate) fn rest(&self) {
        self.stage.store(FROZEN, Ordering::Release);
        self.resting.store(1, Ordering::Release);
        wake_all(&self.resting, Sharing::Process);
    }

    /// In user mode: the child whose memory is to be handed over.
    pub(crate) fn to_be_handed_over(&self) -> Option<u32> {
        (self.stage.load(Ordering::Acquire) == TO_BE_HANDED_OVER).then(|| self.child.load(Ordering::Acquire))
    }

    /// Waits while rest is wanted, or for a look.
    pub(crate) fn look_whether_wanted(&self) {
        wait_while(&self.rest_wanted, 1, LOOK, Sharing::Process);
    }

    /// The rest is over. Says whether the fork has failed: then the state is frozen still.
    pub(crate) fn end_rest(&self) -> bool {
        // From here on a next fork may ask for rest: it finds us at work, and the gate closed until now.
        self.resting.store(0, Ordering::Release);
        self.stage.compare_exchange(FAILED, NO_FORK, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn let_go(&self) {
        self.rest_wanted.store(0, Ordering::Release);
        wake_all(&self.rest_wanted, Sharing::Process);
    }

    /// One of the two that keep the gate closed is done. A fork that began before both are would take what the other has
    /// still to say about this one for its own.
    pub(crate) fn release(&self, gate: &Gate) {
        if self.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            gate.open();
        }
    }
}

/// On the thread that finishes the fork: the handler's, or the reclaimer's in user mode.
impl Stages {
    /// From now on the fork is the caller's to finish. Whether the state is frozen; if not, there is nothing to finish.
    pub(crate) fn begin_attending(&self) -> bool {
        self.stage.compare_exchange(FROZEN, ATTENDED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the forking thread is past its fork, whatever has come of it.
    pub(crate) fn has_returned(&self) -> bool {
        self.returned.load(Ordering::Acquire) == 1
    }

    /// Which fork this is.
    pub(crate) fn number(&self) -> u32 {
        self.done_before.load(Ordering::Relaxed)
    }

    /// The fork is done, and the state has thawed: whoever has made it may go on, and the reclaimer goes back to work.
    pub(crate) fn finish(&self) {
        self.stage.store(NO_FORK, Ordering::Release);
        // Before the reclaimer may let another fork begin: that one compares with what it finds here.
        self.done.fetch_add(1, Ordering::Release);
        wake_all(&self.done, Sharing::Process);
        self.let_go();
    }
}
