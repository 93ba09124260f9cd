//! fork, from libc's handlers to the child's own agent. The steps are told in `pager::fork`; here are the threads.
//!
//! ```text
//!  forking thread   gate closed, reclaimer rests, state frozen ─ fork ─────────────────────────────► parent goes on
//!  handler (`attend`)               reads the message, serves the child, sends descriptors, thaws, gate open
//!  child            libc's handler: starts an agent, waits ─────────────────────────────────────► child goes on
//!  child's keeper                        calls the parent's handler, takes over, starts a handler, reclaims
//! ```

use core::sync::atomic::Ordering;
use core::time::Duration;

use alloc::vec::Vec;

use backing::ChildPin;
use pager::Pager;
use store::AnyStore;
use sys::Errno;
use sys::handover::{Line, Reception};
use sys::linux::Linux;
use sys::process::{Life, RaisedLimit};
use sys::sync::{Lock, Sharing, wait_while, wake_all};
use sys::thread::{self, Descriptors, SignalMask};

use crate::entry::{self, Identity};
use crate::failure::fail;
use crate::host::agent;
use crate::keeper::{self, Keeper, Lasting, Obstacle, RunningTime, STUCK_NS};
use crate::stages::{Gate, Stages};
use crate::watcher::{self, Agent};

/// Longest wait of one side for the other; on a machine where this is too short nothing else works either.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const LOOK: Duration = Duration::from_millis(2);
/// Longest wait of a parent for its child's agent, in looks: a child that is stopped in between holds its parent up no
/// longer, five seconds. Where both hardly get a processor the looks take longer, too.
const PARENT_LOOKS_MAX: u32 = 2500;
/// Looks for a moment in which nobody changes the layout, where memory is withheld from children: a second or some.
const QUIET_TRIES_MAX: u32 = 10_000;
/// After so long who waits for the keeper looks whether there is one.
const GONE_NS: u64 = 1_000_000_000;
/// Between two looks for what comes soon.
pub(crate) const PAUSE: Duration = Duration::from_micros(50);
/// What the agents say to each other.
pub(crate) const DESCRIPTORS: u8 = b'd';
pub(crate) const READY: u8 = b'r';
pub(crate) const YOURS: u8 = b'y';
/// Others have been forked too: the child is to say what its badge says, before it gets anything.
pub(crate) const WHICH: u8 = b'w';
pub(crate) const THIS: u8 = b't';
/// The child will have no agent: all that is missing is to be brought.
pub(crate) const FILL: u8 = b'f';
pub(crate) const REMOVED: u8 = b'x';
pub(crate) const UNMAPPED: u8 = b'u';
pub(crate) const MOVED: u8 = b'm';

/// How long the program's faults, or its next fork, may wait for a child that does not take over, in ns of running time: it may be stopped.
const HELD_UP_NS_MAX: u64 = 30_000_000_000;

/// Looks whether a child that does not take its memory over holds its parent up.
#[derive(Default)]
pub(crate) struct HeldUp(Lasting);

impl HeldUp {
    /// Now and then while the state is frozen. True: for so long that the child must be given up; a line says so.
    pub(crate) fn is_for_too_long(&mut self, agent: &Agent, pager: &Pager<Linux, AnyStore>) -> bool {
        let is_held_up = pager.waits_for_fork() || agent.gate.is_waited_for();
        let is_too_long = self.0.look_ns(is_held_up, sys::clock::now_ns()) > HELD_UP_NS_MAX;
        if is_too_long {
            let pid = thread::process_id();
            crate::failure::say(format_args!(
                "a child of process {pid} has been stopped in its fork and holds it up: the child is ended when it goes on"
            ));
        }
        is_too_long
    }
}

/// The gate, where children that are being forked depend on this process: not behind vfork, where it is the parent's.
pub(crate) fn own_gate() -> Option<&'static Gate> {
    let agent = agent().filter(|agent| agent.keeper().is_some())?;
    agent.is_own_process().then_some(&agent.gate)
}

/// How far a forked child's agent is.
const STARTING: u32 = 0;
pub(crate) const RESUMED: u32 = 1;
/// It cannot be; the parent brings all that is missing.
pub(crate) const BEING_FILLED: u32 = 2;

/// Tells a child that its memory is its own from now on. False: it has ended.
pub(crate) fn leave_to(child: &Line, pager: &Pager<Linux, AnyStore>) -> bool {
    pager.count_half();
    child.tell(YOURS, [0; 3]).is_ok()
}

/// A child that `pleat run` knows by no number.
pub(crate) const NAMELESS: Obstacle = Obstacle { what: crate::host::STRANGE, errno: Errno::SRCH };

/// What a keeper has for forks.
pub(crate) struct Forks {
    pub(crate) reception: Reception,
    pub(crate) stages: Stages,
    /// Numbers of the descriptors that a child needs: swap files of ours and of our ancestors, and the lines that tell
    /// the ancestors that we still read theirs.
    passed_on: Lock<Vec<i32>>,
    /// Children that read our segments.
    pub(crate) readers: Lock<Vec<(Line, ChildPin)>>,
}

impl Forks {
    pub(crate) fn open() -> Result<Self, Errno> {
        Ok(Self::with(Reception::open()?, Vec::new()))
    }

    pub(crate) fn with(reception: Reception, passed_on: Vec<i32>) -> Self {
        Self { reception, stages: Stages::default(), passed_on: Lock::new(passed_on), readers: Lock::new(Vec::new()) }
    }

    pub(crate) fn pass_on(&self, number: i32) {
        self.passed_on.lock().push(number);
    }

    /// On the reclaimer's thread: freezes the state and changes nothing until the fork is done. The forking thread
    /// cannot freeze it itself: our descriptors are not in its table. The fork needs the handler, which `watch` looks at.
    pub(crate) fn rest_while_forking(&self, agent: &Agent, pager: &Pager<Linux, AnyStore>, watch: &mut dyn FnMut()) {
        // For the userfaultfd of the child and the line to it, and for all that the child opens.
        *agent.limit.lock() = sys::process::raise_descriptor_limit();
        if !pager.kernel.files().has_room() {
            // The message about the fork could not be read, and the program would wait for that for ever.
            fail(format_args!(
                "the program forks under a hard limit on descriptors (RLIMIT_NOFILE) that leaves the agent none; it is ended"
            ));
        }
        // The handler may be encoding to make room; it is done soon.
        let looks_for_uncopied = agent.withholds.load(Ordering::Acquire);
        let mut tries = 0;
        while !pager.try_freeze(looks_for_uncopied, tries < QUIET_TRIES_MAX) {
            tries += 1;
            watch();
            thread::sleep(Duration::from_micros(20));
        }
        if agent.has_networks.load(Ordering::Acquire) {
            // Without the right to do that a child elsewhere does not reach us, and is ended.
            let _ = self.listen_where(agent.gate.holder(), pager);
        }
        self.stages.rest();
        while self.stages.wants_rest() {
            watch();
            pager.dismiss_announcers();
            if let Some(child) = self.stages.to_be_handed_over() {
                self.hand_over(child, agent, pager, watch);
            }
            self.stages.look_whether_wanted();
        }
        agent.put_limit_back();
        if self.stages.end_rest()
            && let Some(pin) = pager.thaw()
        {
            pager.unpin(pin);
        }
        self.stages.release(&agent.gate);
    }

    /// Awaits children in the network namespace of a thread, in which they begin.
    fn listen_where(&self, thread: u32, pager: &Pager<Linux, AnyStore>) -> Result<(), Errno> {
        let files = pager.kernel.files();
        self.reception.move_to(&files.network_of(thread)?, &files.network()?)
    }

    /// On the reclaimer's thread, in user mode: gives the child what it needs of ours. It has opened a userfaultfd of its
    /// own, and reads nothing of our memory: its copy of the state is as still as ours.
    fn hand_over(&self, child: u32, agent: &Agent, pager: &Pager<Linux, AnyStore>, watch: &mut dyn FnMut()) {
        let child = Life::of(child).ok();
        let mut line: Option<Line> = None;
        let (mut is_done, mut held_up) = (false, HeldUp::default());
        // A child that cannot go on ends itself and says so, and so does one that is too late.
        while !is_done
            && !held_up.is_for_too_long(agent, pager)
            && child.as_ref().is_some_and(|child| !child.has_ended())
        {
            watch();
            match &line {
                None => {
                    line = self.accept_child(pager);
                    match &line {
                        Some(line) => self.send_descriptors(line, None, pager),
                        None => thread::sleep(PAUSE),
                    }
                }
                Some(ready) if ready.is_readable(LOOK) => {
                    let is_ready =
                        matches!(ready.hear(Duration::ZERO), Ok((READY, words)) if self.is_of_this_fork(words));
                    is_done = is_ready && leave_to(ready, pager);
                    if !is_done {
                        line = None;
                    }
                }
                Some(_) => {}
            }
        }
        self.finish(pager, line.filter(|_| is_done));
    }

    /// The child's agent, if it calls.
    pub(crate) fn accept_child(&self, pager: &Pager<Linux, AnyStore>) -> Option<Line> {
        self.reception.accept(&|pid| pager.kernel.files().is_child(pid))
    }

    /// What a child tells with [`READY`] and [`FILL`]: which fork has made it.
    pub(crate) fn words_of_this_fork(&self, pager: &Pager<Linux, AnyStore>) -> [u64; 3] {
        [u64::from(self.stages.number()), u64::from(pager.readings()), 0]
    }

    /// Whether a child that tells this is the one that is attended.
    pub(crate) fn is_of_this_fork(&self, [number, ..]: [u64; 3]) -> bool {
        number == u64::from(self.stages.number())
    }

    /// Sends a child all that it needs of ours: its userfaultfd, if that is with us, our directory in /proc, swap files.
    pub(crate) fn send_descriptors(&self, line: &Line, userfaultfd: Option<i32>, pager: &Pager<Linux, AnyStore>) {
        let mut numbers: Vec<i32> = userfaultfd.into_iter().collect();
        numbers.push(pager.kernel.files().number());
        numbers.extend(self.passed_on.lock().iter());
        // A child that cannot receive them says so itself, and ends.
        let _ = line.send(DESCRIPTORS, &numbers);
    }

    /// The fork is done: the state may change again, and whoever has made it may go on. `reader`: the line to a child that
    /// reads our segments.
    pub(crate) fn finish(&self, pager: &Pager<Linux, AnyStore>, reader: Option<Line>) {
        match (pager.thaw(), reader) {
            (Some(pin), Some(line)) => self.readers.lock().push((line, pin)),
            (Some(pin), None) => pager.unpin(pin),
            (None, _) => {}
        }
        self.reception.dismiss();
        // The program finds its own limit when fork has returned.
        agent().expect("it made this thread").put_limit_back();
        self.stages.finish();
    }

    /// Gives up the pins of children that have ended.
    pub(crate) fn unpin_dead(&self, pager: &Pager<Linux, AnyStore>) {
        let mut readers = self.readers.lock();
        while let Some(at) = readers.iter().position(|(line, _)| line.is_dead()) {
            let (_, pin) = readers.swap_remove(at);
            pager.unpin(pin);
        }
    }
}

impl Agent {
    /// On the forking thread, before the fork. Until it has left again no signal's handler runs on it: one that forks
    /// would wait at the gate for the thread that it interrupts.
    pub(crate) fn before_fork(&self) {
        if self.keeper().is_some_and(|keeper| !keeper.pager.kernel.badge().is_at_home()) {
            // With an agent in its parent it would have been ended when it asked.
            fail(format_args!("process {} {}", thread::process_id(), crate::refused::RAW));
        }
        self.begin_fork(|| {
            self.close_gate();
            true
        });
    }

    /// The same where libc's fork is not the way. False if another thread forks and does not come to an end: perhaps it waits for a
    /// lock that this one has, which libc's fork would have waited for first.
    pub(crate) fn before_raw_fork(&self) -> bool {
        self.keeper().is_none_or(|keeper| keeper.pager.kernel.badge().is_at_home())
            && self.begin_fork(|| self.gate.close_in_time(thread::thread_id()))
    }

    fn begin_fork(&self, close_gate: impl FnOnce() -> bool) -> bool {
        let mask = thread::block_signals();
        self.growth.begin_fork();
        if !close_gate() {
            self.growth.end_fork();
            thread::unblock_signals(mask);
            return false;
        }
        self.forking_mask.store(mask.bits(), Ordering::Relaxed);
        if let Some(keeper) = self.keeper() {
            Self::wait_until_frozen(keeper);
        }
        true
    }

    fn wait_until_frozen(keeper: &Keeper) {
        let stages = &keeper.forks.stages;
        stages.begin();
        let (mut running, mut waited_ns, mut has_told) = (RunningTime::default(), 0, false);
        while !stages.is_frozen() {
            keeper.pager.wake_reclaimer();
            stages.look_whether_frozen();
            waited_ns += running.step_ns(sys::clock::now_ns_in_fork());
            if waited_ns > GONE_NS && keeper.is_gone() {
                fail(format_args!(
                    "process {} shares the memory of one that has ended, and cannot fork; it is ended",
                    thread::process_id()
                ));
            }
            if waited_ns > STUCK_NS && !has_told {
                has_told = true;
                // Nothing else in the reclaimer's round has no limit: it reads a segment to clean it, or punches one out.
                let pid = thread::process_id();
                crate::failure::say(format_args!(
                    "process {pid} waits to fork: the device of its swap file has not answered for 10 s"
                ));
            }
        }
    }

    /// On the forking thread, after the fork, whether it worked or not. Returns when the child's memory is the child's
    /// own: a parent that ends at once, as daemons' do, would take what it has of that with it.
    pub(crate) fn after_fork_in_parent(&self) {
        if self.fault == b"forks-return-late" {
            thread::sleep(Duration::from_millis(20));
        }
        self.leave(|keeper| {
            // The kernel lets us return only when the handler has read the message about the child. Without one there is
            // no child.
            let stages = &keeper.forks.stages;
            stages.note_return();
            if keeper.pager.has_forked_for_sure() || !stages.give_up() {
                stages.wait_for_end(PARENT_LOOKS_MAX);
            } else {
                self.put_limit_back();
            }
        });
    }

    /// In user mode, on the forking thread: `child` is what fork has answered.
    pub(crate) fn after_trapped_fork(&self, child: Option<u32>) {
        self.leave(|keeper| {
            let stages = &keeper.forks.stages;
            if child.is_some() {
                keeper.pager.note_fork();
            }
            stages.hand_over(child);
            if child.is_some() {
                // As in the other mode: a parent that ends at once would take what it holds of the child's memory with it.
                stages.wait_for_end(PARENT_LOOKS_MAX);
            } else {
                self.put_limit_back();
            }
        });
    }

    /// The limit on descriptors is the program's own again.
    fn put_limit_back(&self) {
        // Held meanwhile: who finds that it is done finds it done.
        let mut limit = self.limit.lock();
        limit.take().into_iter().for_each(RaisedLimit::restore);
    }

    /// On the forking thread: `see_off` what it has forked, then go on as before the fork.
    fn leave(&self, see_off: impl FnOnce(&Keeper)) {
        self.growth.end_fork();
        let mask = self.mask_before_fork();
        if let Some(keeper) = self.keeper() {
            see_off(keeper);
            keeper.forks.stages.release(&self.gate);
        } else {
            // Relaxed: who becomes a keeper closes the gate, which has published it.
            self.shares.store(true, Ordering::Relaxed);
            self.gate.open();
        }
        thread::unblock_signals(mask);
    }

    /// While the gate is closed by this thread, or by the one that this is the copy of.
    fn mask_before_fork(&self) -> SignalMask {
        SignalMask::from_bits(self.forking_mask.load(Ordering::Relaxed))
    }

    /// Nobody else forks from now on. Once there is a keeper the reclaimer keeps the gate closed, too, longer than the thread that has
    /// closed it may live: then it is not asked whether that is there.
    pub(crate) fn close_gate(&self) {
        self.gate.close(thread::thread_id(), |closer| {
            self.keeper().is_some() || thread::memory_differs(closer) != Some(true)
        });
    }

    /// In the child, on its only thread.
    pub(crate) fn after_fork_in_child(&'static self) {
        let mask = self.mask_before_fork();
        self.become_child();
        thread::unblock_signals(mask);
    }

    fn become_child(&'static self) {
        // SAFETY: this is the process's only thread, and it is not inside the heap.
        unsafe { crate::heap::reset_after_fork() };
        // SAFETY: as above; the lock is held for the copying of two pointers only.
        unsafe { self.membership.reset() };
        self.growth.reset_in_child();
        sys::kept::reset_in_child();
        thread::forget_bare();
        sys::confine::forget();
        self.process.store(thread::process_id(), Ordering::Relaxed);
        self.gate.open_in_child();
        if !self.join_as_child() {
            return;
        }
        if self.keeper().is_none() {
            // Relaxed: the watcher is started after it.
            self.shares.store(true, Ordering::Relaxed);
            // Without a thread to be had the child runs outside the budget, and loses nothing.
            let _ = watcher::start(self);
            return;
        }
        self.is_resumed.store(STARTING, Ordering::Release);
        let argument = core::ptr::from_ref(self) as usize;
        let start = || {
            // SAFETY: the watcher's memory is the parent's watcher's, which does not exist here.
            unsafe { thread::spawn(&self.watcher_memory, Descriptors::Own, crate::takeover::resume, argument) }
        };
        let started = if self.fault == b"forked-without-thread" { Err(Errno::AGAIN) } else { start() };
        if let Err(errno) = started {
            if crate::takeover::be_filled(self, &Obstacle { what: keeper::NO_THREAD, errno }).is_err() {
                crate::takeover::fail_without_thread(errno);
            }
            self.set_resumed(RESUMED);
        }
        let mut waited = Duration::ZERO;
        loop {
            let stage = self.is_resumed.load(Ordering::Acquire);
            if stage == RESUMED {
                break;
            }
            wait_while(&self.is_resumed, stage, LOOK, Sharing::Process);
            waited += LOOK;
            // How long it takes to fill it depends on how large it is; the parent's end ends that, too.
            if waited > 2 * PATIENCE && stage == STARTING {
                fail(format_args!("the agent of a forked process does not start"));
            }
        }
        // SAFETY: the parent's threads do not exist here, and the agent's thread does not use it.
        unsafe { self.limit.reset() };
        self.put_limit_back();
    }

    /// In the child: claims an entry. False: there is none, and nothing is managed.
    fn join_as_child(&self) -> bool {
        let parents = self.membership();
        let Some(identity) = Identity::of_child(&parents) else {
            // The parent's entry is not ours to write to.
            crate::failure::forget_entry();
            self.membership.lock().is_elsewhere = true;
            self.is_nameless.store(true, Ordering::Relaxed);
            if self.keeper().is_none() {
                keeper::say_unmanaged(self, &NAMELESS);
                crate::host::forget_agent();
            }
            return self.keeper().is_some();
        };
        let Some(membership) = entry::claim(parents.ledger, identity) else {
            if self.keeper().is_some() {
                fail(format_args!("more than {} processes in one run", pager::ledger::PROCESSES_MAX));
            }
            entry::say_full(parents.ledger);
            return false;
        };
        *self.membership.lock() = membership;
        self.growth.join(membership.entry);
        crate::failure::note_in(&membership);
        true
    }

    /// In the child, on its agent's thread: its only other thread may go on.
    pub(crate) fn set_resumed(&self, stage: u32) {
        self.is_resumed.store(stage, Ordering::Release);
        wake_all(&self.is_resumed, Sharing::Process);
    }
}
