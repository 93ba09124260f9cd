//! A forked child's side of the handover: its agent calls the parent's, receives what it inherits, opens the rest, and
//! takes its memory over. Where it cannot, or there is no thread for it, the parent brings all that is missing, and the child runs
//! beside the budget.

use core::sync::atomic::Ordering;
use core::time::Duration;

use alloc::vec::Vec;

use page::PageIndex;
use pager::ledger::Phase;
use pager::ledger::tracing::AgentThread;
use pager::{FreshBacking, Inherited, Reclaimer};
use sys::handover::{Line, Reception, move_above, renumber};
use sys::kernel::{Message, PageRange};
use sys::linux::{Linux, Openings};
use sys::thread;
use sys::uffd::{Faults, Uffd};
use sys::{Errno, OwnedFd};

use crate::crew::Crew;
use crate::custody::Custody;
use crate::failure::fail;
use crate::fork::{
    BEING_FILLED, DESCRIPTORS, FILL, Forks, MOVED, NAMELESS, PATIENCE, READY, REMOVED, RESUMED, THIS, UNMAPPED, WHICH,
    YOURS,
};
use crate::keeper::{self, Keeper, Obstacle};
use crate::swap;
use crate::traced::{self, Lookout};
use crate::watcher::Agent;

/// The wait while a child is filled: the parent brings a gigabyte in a second or some, from a disk in minutes.
const FILL_PATIENCE: Duration = Duration::from_mins(10);

/// Entry of a forked child's keeper; the argument is the agent's address.
pub(crate) extern "C" fn resume(argument: usize) -> ! {
    thread::close_all_descriptors();
    thread::leave_directory();
    // SAFETY: `after_fork_in_child` passed a reference that lives for ever.
    let agent = unsafe { &*(argument as *const Agent) };
    let keeper = agent.keeper.load(Ordering::Acquire);
    let crew = if agent.fault == b"forked-without-crew" { Err(Errno::AGAIN) } else { Crew::gather(agent) };
    let taken = take_over(agent, keeper, crew.as_ref().err().copied());
    let obstacle = taken.unwrap_or_else(|errno| {
        if crew.is_err() {
            fail_without_thread(errno);
        }
        fail(format_args!("a forked process cannot take its memory over: {errno:?}"));
    });
    if let Some(obstacle) = obstacle {
        keeper::say_unmanaged(agent, &obstacle);
        agent.keeper.store(core::ptr::null_mut(), Ordering::Release);
        agent.growth.give_up();
        let _ = crew.map(Crew::send_away);
        agent.set_resumed(RESUMED);
        // Its descriptors go with it, among them the last of our userfaultfd: what is missing now reads as zeros.
        thread::exit_thread();
    }
    // SAFETY: leaked by the parent, of which this is the copy; the mutable borrow of `take_over` has ended.
    let keeper: &'static Keeper = unsafe { &*keeper };
    crew.unwrap_or_else(|errno| fail_without_thread(errno)).call(keeper);
    let lookout = Lookout::begin(AgentThread::Reclaimer, keeper);
    let membership = agent.membership();
    let mut reclaimer = Reclaimer::new();
    reclaimer.shares_memory();
    reclaimer.publish(&keeper.pager);
    membership.entry.phase.store(Phase::Managing as u32, Ordering::Release);
    agent.set_resumed(RESUMED);
    keeper::reclaim(keeper, &membership, reclaimer, lookout)
}

/// Makes the memory this process's own. What keeps us from managing it, as where there is no crew: then all of it is there.
fn take_over(agent: &Agent, keeper: *mut Keeper, no_crew: Option<Errno>) -> Result<Option<Obstacle>, Errno> {
    // SAFETY: this process's only other thread waits for `is_resumed` and uses the agent alone; the handler is not
    // called yet. So nobody else reaches the keeper.
    let keeper = unsafe { &mut *keeper };
    let membership = agent.membership();
    let faults = keeper::faults(&membership);
    let Inheritance { line, child, proc, descriptors } = receive(keeper, faults)?;
    let crew = no_crew.map_or(Ok(()), |errno| Err(Obstacle::of(keeper::NO_THREAD)(errno)));
    let means = match crew.and_then(|()| Means::open(agent, &proc)) {
        Ok(means) => means,
        Err(obstacle) if faults == Faults::All => {
            agent.set_resumed(BEING_FILLED);
            line.tell(FILL, keeper.forks.words_of_this_fork(&keeper.pager))?;
            hear_changes(&line, FILL_PATIENCE)?;
            return Ok(Some(obstacle));
        }
        Err(obstacle) => return Err(obstacle.errno),
    };
    line.tell(READY, keeper.forks.words_of_this_fork(&keeper.pager))?;
    let changes = hear_changes(&line, PATIENCE)?;
    let mut passed_on = descriptors;
    passed_on.push(line.number());
    passed_on.extend(means.swap_file);
    // Ends with the process: our ancestors hear of it, and reuse the segments that we read.
    core::mem::forget(line);
    let old = core::mem::replace(&mut keeper.forks, Forks::with(means.reception, passed_on));
    old.reception.forget();
    // The lines in it are not ours, nor is its memory worth the risk.
    core::mem::forget(old.readers);
    keeper.set_entry(membership.entry);
    let inherited = if child.is_some() { Inherited::Registered } else { Inherited::Unregistered };
    let renew = |parents: Linux| match child {
        Some(child) => Linux::inherit(child, parents.into_quarters(), means.openings),
        None => Linux::begin(Uffd::of_program(faults)?, parents.into_quarters(), means.openings),
    };
    // SAFETY: as above, nobody else uses the pager; the parent's descriptors are forgotten, not closed.
    unsafe { keeper.pager.resume_in_child(membership.entry, means.fresh, &changes, inherited, renew) }?;
    let custody = Custody::begin(membership.ledger, keeper.pager.kernel.number());
    core::mem::replace(&mut keeper.custody, custody).forget();
    Ok(None)
}

/// What a child's agent opens for itself.
struct Means {
    openings: Openings,
    reception: Reception,
    fresh: Option<FreshBacking>,
    /// The number of its swap file.
    swap_file: Option<i32>,
}

impl Means {
    fn open(agent: &Agent, proc: &OwnedFd) -> Result<Self, Obstacle> {
        if agent.is_nameless.load(Ordering::Relaxed) {
            return Err(NAMELESS);
        }
        if !agent.membership().is_in_user_mode() {
            // In user mode nobody could fill the child: it goes on with what it has.
            // The journal has come along.
            crate::heap::has_room(0).map_err(Obstacle::of(keeper::NO_MEMORY))?;
        }
        let openings = keeper::openings(&agent.membership(), Some(proc))?;
        let reception = Reception::open().map_err(Obstacle::of("no socket for forked processes"))?;
        // After chroot or setuid there may be no way to the directory.
        let file = swap::open_file(&agent.membership()).map_err(Obstacle::of("no swap file"))?;
        let swap_file = file.as_ref().map(|file| file.file().number());
        let key = sys::process::random_key().map_err(Obstacle::of("no random key"))?;
        let fresh = file.map(|file| FreshBacking { store: swap::device(file, &agent.fault), key });
        traced::wait(agent).map_err(Obstacle::of(traced::REFUSED))?;
        Ok(Self { openings, reception, fresh, swap_file })
    }
}

/// What a child's agent gets from its parent's.
struct Inheritance {
    /// The line to the parent.
    line: Line,
    /// The userfaultfd of our memory, unless we are to open one.
    child: Option<Uffd>,
    /// Numbers of the descriptors that we inherit, open under the same numbers as there.
    descriptors: Vec<i32>,
    /// The parent's directory in /proc.
    proc: OwnedFd,
}

/// On the child's only other thread, where there is none for its agent: has the parent bring all that is missing, without an agent.
pub(crate) fn be_filled(agent: &Agent, obstacle: &Obstacle) -> Result<(), Errno> {
    let keeper = agent.keeper().expect("its memory is managed");
    if keeper::faults(&agent.membership()) != Faults::All || agent.may_be_confined() {
        return Err(obstacle.errno);
    }
    // What it inherits it has no use for. Its parent has all of it open.
    let line = call(keeper, &mut |fd, _| drop(fd))?;
    line.tell(FILL, keeper.forks.words_of_this_fork(&keeper.pager))?;
    hear_changes(&line, FILL_PATIENCE)?;
    agent.keeper.store(core::ptr::null_mut(), Ordering::Release);
    agent.growth.give_up();
    keeper::say_unmanaged(agent, obstacle);
    Ok(())
}

/// There is none, and nobody can bring what is missing.
pub(crate) fn fail_without_thread(errno: Errno) -> ! {
    fail(format_args!("a forked process gets no thread for its agent: {errno:?}"))
}

/// Calls the parent's handler. `take` gets what it sends.
fn call(keeper: &Keeper, take: &mut dyn FnMut(OwnedFd, i32)) -> Result<Line, Errno> {
    let line = Line::call(&keeper.forks.reception.name())?;
    let mut told = line.receive(PATIENCE, take)?;
    if told == WHICH {
        line.tell(THIS, [keeper.pager.kernel.badge().number().into(), 0, 0])?;
        told = line.receive(PATIENCE, take)?;
    }
    if told == DESCRIPTORS { Ok(line) } else { Err(Errno::PROTO) }
}

/// The same, and sorts that.
fn receive(keeper: &Keeper, faults: Faults) -> Result<Inheritance, Errno> {
    let mut received = Vec::new();
    let mut line = call(keeper, &mut |fd, number| received.push((fd, number)))?;
    let above = 1 + received.iter().map(|(_, number)| *number).max().unwrap_or(0);
    let above = above + received.len() as i32;
    line.move_above(above)?;
    let mut take = || if received.is_empty() { Err(Errno::PROTO) } else { Ok(received.remove(0).0) };
    let mut child = None;
    if faults == Faults::All {
        let mut uffd = Uffd::adopt(take()?);
        uffd.move_above(above)?;
        child = Some(uffd);
    }
    let proc = move_above(&take()?, above)?;
    let descriptors: Vec<i32> = received.iter().map(|(_, number)| *number).collect();
    renumber(&mut received)?;
    Ok(Inheritance { line, child, descriptors, proc })
}

/// What has changed in our layout since the state was frozen, before the fork and after it; then the memory is ours.
fn hear_changes(line: &Line, patience: Duration) -> Result<Vec<Message>, Errno> {
    let mut changes = Vec::new();
    loop {
        let (byte, [start, end, to]) = line.hear(patience)?;
        let range = PageRange { start: PageIndex(start), end: PageIndex(end) };
        match byte {
            YOURS => return Ok(changes),
            REMOVED => changes.push(Message::Remove(range)),
            UNMAPPED => changes.push(Message::Unmap(range)),
            MOVED => changes.push(Message::Remap { from: range, to: PageIndex(to) }),
            _ => return Err(Errno::PROTO),
        }
    }
}
