//! fork, from libc's handlers to the child's own agent. The steps are told in `pager::fork`; here are the threads.
//!
//! ```text
//!  forking thread   gate closed, reclaimer rests, state frozen ─ fork ─────────────────────────────► parent goes on
//!  handler                          reads the message, serves the child, sends descriptors, thaws, gate open
//!  child            libc's handler: starts an agent, waits ─────────────────────────────────────► child goes on
//!  child's keeper                        calls the parent's handler, takes over, starts a handler, reclaims
//! ```

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use alloc::vec::Vec;

use backing::ChildPin;
use page::PageIndex;
use pager::ledger::Phase;
use pager::{FreshBacking, Pager, Reclaimer, Server};
use store::Slabs;
use sys::Errno;
use sys::handover::{Line, Reception, renumber};
use sys::kernel::{ForkedMemory, Kernel as _, Message, PageRange};
use sys::linux::Linux;
use sys::process::Life;
use sys::sync::{Lock, Sharing, wait_while, wake_all};
use sys::thread::{self, Descriptors};
use sys::uffd::{Faults, Uffd};

use crate::entry;
use crate::failure::fail;
use crate::keeper::{self, Keeper, RunningTime, STUCK_NS};
use crate::watcher::{self, Agent};

/// Longest wait of one side for the other; on a machine where this is too short nothing else works either.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(2);
/// Longest wait of a parent for its child's agent: a child that is stopped in between holds its parent up no longer.
const PARENT_PATIENCE: Duration = Duration::from_secs(5);
/// Looks for a moment in which no layout message is on its way, ten seconds of running time in all.
const PLACE_TRIES_MAX: u32 = 200_000;
const PLACE_PAUSE: Duration = Duration::from_micros(50);
/// What the agents say to each other.
const DESCRIPTORS: u8 = b'd';
const READY: u8 = b'r';
const YOURS: u8 = b'y';
const REMOVED: u8 = b'x';
const UNMAPPED: u8 = b'u';
const MOVED: u8 = b'm';

/// Lets one thread through at a time.
pub(crate) struct Gate(AtomicU32);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Waits until it is open and closes it.
    pub(crate) fn close(&self) {
        while self.0.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            wait_while(&self.0, 1, LOOK, Sharing::Process);
        }
    }

    pub(crate) fn open(&self) {
        self.0.store(0, Ordering::Release);
        wake_all(&self.0, Sharing::Process);
    }
}

/// Where a fork stands, as the forking thread and the handler see it.
const NO_FORK: u32 = 0;
const FROZEN: u32 = 1;
const ATTENDED: u32 = 2;
const FAILED: u32 = 3;
/// In user mode: the keeper is to hand the child's memory over.
const TO_BE_HANDED_OVER: u32 = 4;

/// What a keeper has for forks.
pub(crate) struct Forks {
    reception: Reception,
    stage: AtomicU32,
    /// 1 while the reclaimer is asked to rest, and while it does.
    rest_wanted: AtomicU32,
    resting: AtomicU32,
    /// Goes up with each fork that is done; a futex. And what it was before the last one.
    done: AtomicU32,
    done_before: AtomicU32,
    /// Numbers of the descriptors that a child needs: swap files of ours and of our ancestors, and the lines that tell
    /// the ancestors that we still read theirs.
    passed_on: Lock<Vec<i32>>,
    /// In user mode: the child that the state is frozen for.
    child: AtomicU32,
    /// Children that read our segments.
    readers: Lock<Vec<(Line, ChildPin)>>,
}

impl Forks {
    pub(crate) fn open() -> Result<Self, Errno> {
        Ok(Self::with(Reception::open()?, Vec::new()))
    }

    fn with(reception: Reception, passed_on: Vec<i32>) -> Self {
        Self {
            reception,
            stage: AtomicU32::new(NO_FORK),
            rest_wanted: AtomicU32::new(0),
            resting: AtomicU32::new(0),
            done: AtomicU32::new(0),
            done_before: AtomicU32::new(0),
            passed_on: Lock::new(passed_on),
            child: AtomicU32::new(0),
            readers: Lock::new(Vec::new()),
        }
    }

    pub(crate) fn pass_on(&self, number: i32) {
        self.passed_on.lock().push(number);
    }

    pub(crate) fn wants_rest(&self) -> bool {
        self.rest_wanted.load(Ordering::Acquire) == 1
    }

    /// On the reclaimer's thread: freezes the state and changes nothing until the fork is done. The forking thread
    /// cannot freeze it itself: our descriptors are not in its table. The fork needs the handler, which `watch` looks at.
    pub(crate) fn rest_while_forking(&self, agent: &Agent, pager: &Pager<Linux, Slabs>, watch: &mut dyn FnMut()) {
        // The handler may be encoding to make room; it is done soon.
        let looks_for_wiped = agent.wipes.load(Ordering::Acquire);
        while !pager.try_freeze(looks_for_wiped) {
            watch();
            thread::sleep(Duration::from_micros(20));
        }
        self.stage.store(FROZEN, Ordering::Release);
        self.resting.store(1, Ordering::Release);
        wake_all(&self.resting, Sharing::Process);
        while self.wants_rest() {
            watch();
            if self.stage.load(Ordering::Acquire) == TO_BE_HANDED_OVER {
                self.hand_over(pager, watch);
            }
            wait_while(&self.rest_wanted, 1, LOOK, Sharing::Process);
        }
        // From here on a next fork may ask for rest: it finds us at work, and the gate closed until now.
        self.resting.store(0, Ordering::Release);
        if self.stage.compare_exchange(FAILED, NO_FORK, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            && let Some(pin) = pager.thaw()
        {
            pager.unpin(pin);
        }
        agent.gate.open();
    }

    /// On the reclaimer's thread, in user mode: gives the child what it needs of ours. It has opened a userfaultfd of its
    /// own, and reads nothing of our memory: its copy of the state is as still as ours.
    fn hand_over(&self, pager: &Pager<Linux, Slabs>, watch: &mut dyn FnMut()) {
        let child = Life::of(self.child.load(Ordering::Acquire)).ok();
        let mut line: Option<Line> = None;
        let mut is_done = false;
        // A child that cannot go on ends itself and says so.
        while !is_done && child.as_ref().is_some_and(|child| !child.has_ended()) {
            watch();
            match &line {
                None => {
                    line = self.reception.accept();
                    if let Some(line) = &line {
                        // A child that cannot receive them says so itself, and ends.
                        let _ = line.send(DESCRIPTORS, &self.passed_on.lock());
                    } else {
                        thread::sleep(PLACE_PAUSE);
                    }
                }
                Some(ready) if ready.is_readable(LOOK) => {
                    let is_ready = matches!(ready.hear(Duration::ZERO), Ok((READY, _)));
                    if !is_ready || ready.tell(YOURS, [0; 3]).is_err() {
                        line = None;
                    }
                    is_done = true;
                }
                Some(_) => {}
            }
        }
        match (pager.thaw(), line.filter(|_| is_done)) {
            (Some(pin), Some(line)) => self.readers.lock().push((line, pin)),
            (Some(pin), None) => pager.unpin(pin),
            (None, _) => {}
        }
        self.stage.store(NO_FORK, Ordering::Release);
        self.let_go();
        self.end();
    }

    /// A fork is done: whoever has made it may go on.
    fn end(&self) {
        self.done.fetch_add(1, Ordering::Release);
        wake_all(&self.done, Sharing::Process);
    }

    /// On the forking thread: waits until the child's memory is the child's own.
    fn wait_for_end(&self) {
        let before = self.done_before.load(Ordering::Relaxed);
        let begun = sys::clock::now_ns();
        while self.done.load(Ordering::Acquire) == before {
            wait_while(&self.done, before, LOOK, Sharing::Process);
            if sys::clock::now_ns() - begun > PARENT_PATIENCE.as_nanos() as u64 {
                return;
            }
        }
    }

    /// Gives up the pins of children that have ended.
    pub(crate) fn unpin_dead(&self, pager: &Pager<Linux, Slabs>) {
        let mut readers = self.readers.lock();
        while let Some(at) = readers.iter().position(|(line, _)| line.is_dead()) {
            let (_, pin) = readers.swap_remove(at);
            pager.unpin(pin);
        }
    }

    fn let_go(&self) {
        self.rest_wanted.store(0, Ordering::Release);
        wake_all(&self.rest_wanted, Sharing::Process);
    }
}

impl Agent {
    /// On the forking thread, before the fork.
    pub(crate) fn before_fork(&self) {
        self.gate.close();
        let Some(keeper) = self.keeper() else { return };
        let forks = &keeper.forks;
        forks.done_before.store(forks.done.load(Ordering::Acquire), Ordering::Relaxed);
        forks.rest_wanted.store(1, Ordering::Release);
        let (mut running, mut waited_ns, mut has_told) = (RunningTime::default(), 0, false);
        while forks.resting.load(Ordering::Acquire) == 0 {
            keeper.pager.wake_reclaimer();
            wait_while(&forks.resting, 0, LOOK, Sharing::Process);
            waited_ns += running.step_ns(sys::clock::now_ns());
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
        let Some(keeper) = self.keeper() else { return self.gate.open() };
        // The kernel lets us return only when the handler has read the message about the child. Without one there is
        // no child.
        let forks = &keeper.forks;
        if !keeper.pager.has_forked_for_sure()
            && forks.stage.compare_exchange(FROZEN, FAILED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            return forks.let_go();
        }
        forks.wait_for_end();
    }

    /// In user mode, on the forking thread: `child` is what fork has answered.
    pub(crate) fn after_trapped_fork(&self, child: Option<u32>) {
        let Some(keeper) = self.keeper() else { return self.gate.open() };
        let forks = &keeper.forks;
        let Some(child) = child else {
            forks.stage.store(FAILED, Ordering::Release);
            return forks.let_go();
        };
        keeper.pager.note_fork();
        forks.child.store(child, Ordering::Release);
        forks.stage.store(TO_BE_HANDED_OVER, Ordering::Release);
        wake_all(&forks.rest_wanted, Sharing::Process);
        // As in the other mode: a parent that ends at once would take what it holds of the child's memory with it.
        forks.wait_for_end();
    }

    /// In the child, on its only thread.
    pub(crate) fn after_fork_in_child(&'static self) {
        // SAFETY: this is the process's only thread, and it is not inside the heap.
        unsafe { crate::heap::reset_after_fork() };
        // SAFETY: as above; the lock is held for the copying of two pointers only.
        unsafe { self.membership.reset() };
        self.gate.open();
        let ledger = self.membership().ledger;
        let Some(membership) = entry::claim(ledger) else {
            if self.keeper().is_some() {
                fail(format_args!("more than {} processes in one run", pager::ledger::PROCESSES_MAX));
            }
            return;
        };
        *self.membership.lock() = membership;
        crate::failure::note_in(&membership);
        if self.keeper().is_none() {
            // Without a thread to be had the child runs outside the budget, and loses nothing.
            let _ = watcher::start(self);
            return;
        }
        self.is_resumed.store(0, Ordering::Release);
        let argument = core::ptr::from_ref(self) as usize;
        // SAFETY: the watcher's memory is the parent's watcher's, which does not exist here.
        let started = unsafe { thread::spawn(&self.watcher_memory, Descriptors::Own, resume, argument) };
        if let Err(errno) = started {
            fail(format_args!("a forked process gets no thread for its agent: {errno:?}"));
        }
        let mut waited = Duration::ZERO;
        while self.is_resumed.load(Ordering::Acquire) == 0 {
            wait_while(&self.is_resumed, 0, LOOK, Sharing::Process);
            waited += LOOK;
            if waited > 2 * PATIENCE {
                fail(format_args!("the agent of a forked process does not start"));
            }
        }
    }
}

/// On the handler's thread: the fork is done, the parent's state may change again.
fn finish(keeper: &Keeper, reader: Option<Line>) {
    let pin = keeper.pager.thaw();
    match (pin, reader) {
        (Some(pin), Some(line)) => keeper.forks.readers.lock().push((line, pin)),
        (Some(pin), None) => keeper.pager.unpin(pin),
        (None, _) => {}
    }
    keeper.forks.stage.store(NO_FORK, Ordering::Release);
    keeper.forks.let_go();
    keeper.forks.end();
}

/// On the handler's thread: looks after a child that has been forked, until it looks after itself.
pub(crate) fn attend(keeper: &Keeper, server: &mut Server) {
    if !keeper.pager.has_forked() {
        return;
    }
    let was_frozen = keeper.forks.stage.swap(ATTENDED, Ordering::AcqRel) == FROZEN;
    let Some(ForkedMemory(number)) = keeper.pager.take_forked() else { return };
    // SAFETY: the message brought the descriptor into this thread's table, and it is taken once.
    let child = Uffd::adopt(unsafe { thread::take_descriptor(number) });
    if !was_frozen {
        keeper.forks.stage.store(NO_FORK, Ordering::Release);
        refuse(
            keeper,
            server,
            &child,
            "was forked by a raw system call and is ended: pleat can follow libc's fork only",
        );
        return;
    }
    let reader = if let Some(shared) = place(keeper, server, &child) {
        serve_until_taken_over(keeper, server, &child, &shared)
    } else {
        refuse(keeper, server, &child, "was forked while other threads changed the layout, and is ended");
        None
    };
    finish(keeper, reader);
}

/// Reads the layout messages that were on their way when the memory was copied, and finds out which of them the child
/// shares. `None`: the program changes its layout without a pause, or what is seen cannot be.
fn place(keeper: &Keeper, server: &mut Server, child: &Uffd) -> Option<Vec<Message>> {
    for _ in 0..PLACE_TRIES_MAX {
        keeper.is_alive();
        if let Err(stuck) = server.serve(&keeper.pager) {
            crate::handler::give_up(stuck);
        }
        if !keeper.pager.kernel.layout_is_changing() {
            return keeper.pager.place_fork(&mut |page| child.is_registered(page));
        }
        thread::sleep(PLACE_PAUSE);
    }
    None
}

/// Serves the child's faults and hands its memory over. `None`: the child has ended first.
fn serve_until_taken_over(keeper: &Keeper, server: &mut Server, child: &Uffd, shared: &[Message]) -> Option<Line> {
    let mut line: Option<Line> = None;
    // What has changed in the child's layout since the state was frozen.
    let mut changes: Vec<_> = shared.iter().filter_map(change).collect();
    loop {
        keeper.is_alive();
        keeper.pager.kernel.wait_for_any(child, &keeper.forks.reception, line.as_ref(), LOOK);
        if let Err(stuck) = server.serve(&keeper.pager) {
            crate::handler::give_up(stuck);
        }
        serve_child(keeper, server, child, &mut changes);
        if line.is_none() {
            line = keeper.forks.reception.accept();
            if let Some(line) = &line {
                let mut numbers = alloc::vec![child.number()];
                numbers.extend(keeper.forks.passed_on.lock().iter());
                // A child that cannot receive them says so itself, and ends.
                let _ = line.send(DESCRIPTORS, &numbers);
            }
        } else if let Some(ready) = &line {
            if !ready.is_readable(Duration::ZERO) {
                continue;
            }
            if !matches!(ready.hear(Duration::ZERO), Ok((READY, _))) {
                return None;
            }
            serve_child(keeper, server, child, &mut changes);
            let told = changes.iter().try_for_each(|(byte, words)| ready.tell(*byte, *words));
            return told.and_then(|()| ready.tell(YOURS, [0; 3])).is_ok().then_some(line).flatten();
        }
        if line.is_none() && child.is_orphaned(keeper.pager.kernel.probe()) {
            return None;
        }
    }
}

fn serve_child(keeper: &Keeper, server: &mut Server, child: &Uffd, changes: &mut Vec<(u8, [u64; 3])>) {
    while let Some(message) = child.read() {
        match message {
            Message::Fault { page, .. } => {
                let served = server.serve_child(&keeper.pager, page, &mut |page, bytes| child.fill(page, bytes));
                if let Err(stuck) = served {
                    crate::handler::give_up(stuck);
                }
            }
            // Fork handlers of other libraries that run before ours. The child must hear of it.
            Message::Remove(_) | Message::Remap { .. } => changes.extend(change(&message)),
            // The child compares its mappings with the state when it takes over.
            Message::Unmap(_) => {}
            // Before its agent has started the child has no way to fork but a raw system call.
            Message::Fork(ForkedMemory(number)) => {
                // SAFETY: the message brought the descriptor into this thread's table. Without it the grandchild's
                // missing pages would be zeros; it waits at the first one instead, and is ended with its parent.
                let _ = unsafe { thread::take_descriptor(number) };
                fail(format_args!("a forked process forked again by a raw system call before its agent had started"));
            }
        }
    }
}

/// A layout message as the agents tell it to each other.
fn change(message: &Message) -> Option<(u8, [u64; 3])> {
    match *message {
        Message::Remove(range) => Some((REMOVED, [range.start.0, range.end.0, 0])),
        Message::Unmap(range) => Some((UNMAPPED, [range.start.0, range.end.0, 0])),
        Message::Remap { from, to } => Some((MOVED, [from.start.0, from.end.0, to.0])),
        Message::Fault { .. } | Message::Fork(_) => None,
    }
}

/// A child that cannot be followed: it has no agent, or we do not know its layout, and it would read zeros where its
/// memory is with us. It is ended at the first such page, with a line that says why. An agent of it that calls hears
/// that nobody is there, and ends it too.
fn refuse(keeper: &Keeper, server: &mut Server, child: &Uffd, why: &str) {
    while !child.is_orphaned(keeper.pager.kernel.probe()) {
        keeper.is_alive();
        keeper.pager.kernel.wait_for_any(child, &keeper.forks.reception, None, LOOK);
        drop(keeper.forks.reception.accept());
        while let Some(message) = child.read() {
            if let Message::Fault { thread, .. } = message {
                crate::failure::say(format_args!("process {thread} {why}"));
                thread::kill_process(thread);
            }
        }
        if let Err(stuck) = server.serve(&keeper.pager) {
            crate::handler::give_up(stuck);
        }
    }
}

/// Entry of a forked child's keeper; the argument is the agent's address.
extern "C" fn resume(argument: usize) -> ! {
    thread::close_all_descriptors();
    // SAFETY: `after_fork_in_child` passed a reference that lives for ever.
    let agent = unsafe { &*(argument as *const Agent) };
    let keeper = agent.keeper.load(Ordering::Acquire);
    if let Err(errno) = take_over(agent, keeper) {
        fail(format_args!("a forked process cannot take its memory over: {errno:?}"));
    }
    // SAFETY: leaked by the parent, of which this is the copy; the mutable borrow of `take_over` has ended.
    let keeper: &'static Keeper = unsafe { &*keeper };
    if let Err(errno) = keeper::start_handler(agent, keeper) {
        fail(format_args!("a forked process gets no thread for its faults: {errno:?}"));
    }
    let membership = agent.membership();
    let mut reclaimer = Reclaimer::new();
    reclaimer.shares_memory();
    reclaimer.publish(&keeper.pager);
    membership.entry.phase.store(Phase::Managing as u32, Ordering::Release);
    agent.is_resumed.store(1, Ordering::Release);
    wake_all(&agent.is_resumed, Sharing::Process);
    keeper::reclaim(keeper, &membership, reclaimer)
}

fn take_over(agent: &Agent, keeper: *mut Keeper) -> Result<(), Errno> {
    // SAFETY: this process's only other thread waits for `is_resumed` and uses the agent alone; the handler is not
    // started yet. So nobody else reaches the keeper.
    let keeper = unsafe { &mut *keeper };
    let membership = agent.membership();
    let faults = keeper::faults(&membership);
    let Inheritance { line, child, inherited, changes } = receive(&keeper.forks.reception.name(), faults)?;
    // A swap file for what this process will write back.
    let file = keeper::open_swap_file(&membership)?;
    let mut passed_on = inherited;
    passed_on.push(line.number());
    passed_on.extend(file.as_ref().map(|file| file.file().number()));
    let fresh = match file {
        Some(file) => {
            Some(FreshBacking { store: keeper::device(file, &agent.fault), key: sys::process::random_key()? })
        }
        None => None,
    };
    // Ends with the process: our ancestors hear of it, and reuse the segments that we read.
    core::mem::forget(line);
    let old = core::mem::replace(&mut keeper.forks, Forks::with(Reception::open()?, passed_on));
    old.reception.forget();
    // The lines in it are not ours, nor is its memory worth the risk.
    core::mem::forget(old.readers);
    keeper.is_serving.store(false, Ordering::Release);
    keeper.set_entry(membership.entry);
    // SAFETY: as above, nobody else uses the pager; the parent's descriptors are forgotten, not closed.
    unsafe {
        keeper.pager.resume_in_child(membership.entry, fresh, &changes, |parents: Linux| match child {
            Some(child) => Linux::inherit(child, parents.into_quarters()),
            None => Linux::open(parents.into_quarters(), faults),
        })?;
    }
    if faults == Faults::OfUserMode { keeper.pager.register_again() } else { Ok(()) }
}

/// What a child's agent gets from its parent's.
struct Inheritance {
    /// The line to the parent.
    line: Line,
    /// The userfaultfd of our memory, unless we are to open one.
    child: Option<Uffd>,
    /// Numbers of the descriptors that we inherit, open under the same numbers as there.
    inherited: Vec<i32>,
    /// What has changed in our layout since the state was frozen, before the fork and after it.
    changes: Vec<Message>,
}

/// Calls the parent's handler.
fn receive(name: &[u8; 40], faults: Faults) -> Result<Inheritance, Errno> {
    let mut line = Line::call(name)?;
    let mut received = Vec::new();
    if line.receive(PATIENCE, &mut |fd, number| received.push((fd, number)))? != DESCRIPTORS {
        return Err(Errno::PROTO);
    }
    let above = 1 + received.iter().map(|(_, number)| *number).max().unwrap_or(0);
    line.move_above(above + received.len() as i32)?;
    let mut child = None;
    if faults == Faults::All {
        let (fd, _) = if received.is_empty() { return Err(Errno::PROTO) } else { received.remove(0) };
        let mut uffd = Uffd::adopt(fd);
        uffd.move_above(above + received.len() as i32)?;
        child = Some(uffd);
    }
    let inherited: Vec<i32> = received.iter().map(|(_, number)| *number).collect();
    renumber(&mut received)?;
    line.tell(READY, [0; 3])?;
    let mut changes = Vec::new();
    loop {
        let (byte, [start, end, to]) = line.hear(PATIENCE)?;
        let range = PageRange { start: PageIndex(start), end: PageIndex(end) };
        match byte {
            YOURS => return Ok(Inheritance { line, child, inherited, changes }),
            REMOVED => changes.push(Message::Remove(range)),
            UNMAPPED => changes.push(Message::Unmap(range)),
            MOVED => changes.push(Message::Remap { from: range, to: PageIndex(to) }),
            _ => return Err(Errno::PROTO),
        }
    }
}
