//! What a parent's handler does for a forked child until the child's own agent has taken over: it finds out which memory is
//! the child's, reads what the child misses to it, and tells it what has changed since the state was frozen.

use alloc::vec::Vec;
use core::time::Duration;

use page::{PageBytes, PageCount, PageIndex};
use pager::{Server, Stuck};
use sys::handover::Line;
use sys::kernel::{ForkedMemory, Kernel as _, Message, PageRange};
use sys::thread;
use sys::uffd::Uffd;
use sys::{AsFd as _, Errno};

use crate::failure::{fail, say};
use crate::fork::{self, FILL, HeldUp, LOOK, MOVED, PAUSE, READY, REMOVED, THIS, UNMAPPED, WHICH, YOURS};
use crate::handler::{Reason, give_up};
use crate::host::agent;
use crate::keeper::{Keeper, Lasting, RunningTime, STUCK_NS};
use crate::refused::{Refused, adopt, end};

/// Looks for a moment in which no layout message is on its way, ten seconds of running time in all.
const PLACE_TRIES_MAX: u32 = 200_000;
/// Children that may be libc's: those that are forked by raw system calls while the state is frozen are among them.
const CANDIDATES_MAX: usize = sys::linux::OTHERS_MAX;
/// The longest wait for a child's agent to call where others might be taken for it, in ns of running time.
const CALL_WAIT_NS: u64 = 10_000_000_000;
/// Tries to tell a child its number.
const TELL_TRIES_MAX: u32 = 1000;

/// A layout change as the agents tell it to each other.
type Change = (u8, [u64; 3]);

/// What has become of a child that was served.
enum Outcome {
    /// Its agent looks after it, at the other end of this line.
    TakenOver(Line),
    /// It has ended, or needs nobody any more.
    Ended,
    /// It has held its parent up for too long.
    Late,
}

/// A child that may be libc's.
struct Candidate {
    memory: Uffd,
    /// What has changed in its layout since the fork.
    changes: Vec<Message>,
}

/// What the handler has for forks. Does not allocate but where that is said: the program may be forking, and its heap must
/// not be copied in the middle of an allocation.
pub(crate) struct Attendant {
    candidates: Vec<Candidate>,
    pub(crate) refused: Refused,
}

impl Attendant {
    pub(crate) fn new() -> Self {
        Self { candidates: Vec::with_capacity(CANDIDATES_MAX), refused: Refused::new() }
    }

    /// Looks after children that have been forked: one of libc's until it looks after itself.
    pub(crate) fn attend(&mut self, keeper: &Keeper, server: &mut Server) {
        while keeper.pager.has_forked() {
            if keeper.forks.stages.begin_attending() {
                self.attend_fork(keeper, server);
            } else if let Some(forked) = keeper.pager.take_forked() {
                // One at a time: that of libc's next fork may stand behind it.
                self.refused.add(keeper, adopt(forked));
            }
        }
        self.refused.look(keeper);
    }

    fn attend_fork(&mut self, keeper: &Keeper, server: &mut Server) {
        let reader = self.find(keeper, server).and_then(|(Candidate { memory: child, changes }, line)| {
            self.refuse_others(keeper);
            if self.place(keeper, server, &child) {
                match self.serve_until_taken_over(keeper, server, &child, line, changes) {
                    Outcome::TakenOver(line) => Some(line),
                    Outcome::Ended => None,
                    Outcome::Late => {
                        self.refused.add_late(keeper, child);
                        None
                    }
                }
            } else {
                self.refuse_misplaced(keeper, server, child, line);
                None
            }
        });
        self.refuse_others(keeper);
        keeper.forks.finish(&keeper.pager, reader);
    }

    /// The child of libc's fork, and the line to its agent if that has called already; `None` if it has ended, or has never
    /// been: there are only children of raw system calls.
    fn find(&mut self, keeper: &Keeper, server: &mut Server) -> Option<(Candidate, Option<Line>)> {
        let reception = &keeper.forks.reception;
        // The message that has been read may be about a raw system call, and the thread that is about to fork not come to it, while
        // what the others do cannot be noted any more. With the message of libc's fork its thread returns by itself.
        let mut late = Lasting::default();
        while !keeper.forks.stages.has_returned() && !reception.is_called() {
            serve_own(keeper, server);
            self.gather(keeper);
            self.refused.look(keeper);
            if late.look_ns(keeper.pager.waits_for_fork(), keeper.pager.kernel.now_ns()) > STUCK_NS {
                give_up(Stuck::ForkIsLate);
            }
            keeper.pager.kernel.wait_for_any([reception.as_fd()].into_iter(), LOOK);
        }
        // From here on the heap may be used: the fork has happened. The message about it has been read before its thread
        // returned, and before the child ran.
        self.gather(keeper);
        if self.candidates.len() == 1 {
            self.candidates.pop().map(|child| (child, None))
        } else {
            self.ask(keeper, server)
        }
    }

    /// Asks the agent that calls which of the candidates is its process.
    fn ask(&mut self, keeper: &Keeper, server: &mut Server) -> Option<(Candidate, Option<Line>)> {
        let mut line: Option<Line> = None;
        let (mut running, mut waited_ns) = (RunningTime::default(), 0);
        while waited_ns < CALL_WAIT_NS {
            waited_ns += running.step_ns(keeper.pager.kernel.now_ns());
            serve_own(keeper, server);
            self.refused.look(keeper);
            self.serve_candidates(keeper, server);
            if self.candidates.is_empty() {
                return None;
            }
            match &line {
                None => {
                    line = keeper.forks.accept_child(&keeper.pager);
                    if let Some(line) = &line {
                        self.candidates.iter().for_each(|child| tell_number(keeper, server, &child.memory));
                        // Who cannot be asked has ended.
                        let _ = line.send(WHICH, &[]);
                    }
                }
                Some(asked) if !asked.is_readable(Duration::ZERO) => {}
                Some(asked) => {
                    if let Ok((THIS, [own, ..])) = asked.hear(Duration::ZERO)
                        && let Some(at) =
                            self.candidates.iter().position(|child| u64::from(number(&child.memory)) == own)
                    {
                        return Some((self.candidates.swap_remove(at), line));
                    }
                    line = None;
                }
            }
            let others = [keeper.forks.reception.as_fd()].into_iter();
            keeper.pager.kernel.wait_for_any(others.chain(line.as_ref().map(Line::as_fd)), LOOK);
        }
        None
    }

    /// Takes those that the messages read so far have told of.
    fn gather(&mut self, keeper: &Keeper) {
        while let Some(forked) = keeper.pager.take_forked() {
            if self.candidates.len() == CANDIDATES_MAX {
                self.candidates.retain(|child| !child.memory.is_orphaned(keeper.pager.kernel.probe()));
            }
            if self.candidates.len() == CANDIDATES_MAX {
                fail(format_args!(
                    "more than {CANDIDATES_MAX} processes forked by raw system calls beside one of libc's"
                ));
            }
            self.candidates.push(Candidate { memory: adopt(forked), changes: Vec::new() });
        }
    }

    /// Serves the faults of all that may be libc's child: it can have some before its agent calls, for libc looks at the
    /// stacks of its parent's threads. The state was frozen when any of them was forked, so it is right for all.
    fn serve_candidates(&mut self, keeper: &Keeper, server: &mut Server) {
        let mut at = 0;
        while at < self.candidates.len() {
            if self.candidates[at].memory.is_orphaned(keeper.pager.kernel.probe()) {
                self.candidates.swap_remove(at);
            } else if self.candidates[at].serve(keeper, server, &mut self.refused) {
                at += 1;
            } else {
                self.refused.add(keeper, self.candidates.swap_remove(at).memory);
            }
        }
    }

    fn refuse_others(&mut self, keeper: &Keeper) {
        while let Some(child) = self.candidates.pop() {
            self.refused.add(keeper, child.memory);
        }
    }

    /// What the handler does between two looks at the child. Whoever else has been forked meanwhile is not libc's.
    fn serve_others(&mut self, keeper: &Keeper, server: &mut Server) {
        serve_own(keeper, server);
        while let Some(forked) = keeper.pager.take_forked() {
            self.refused.add(keeper, adopt(forked));
        }
        self.refused.look(keeper);
    }

    /// Reads the layout messages that were on their way when the memory was copied, and finds out which of them the child
    /// shares. False: the program changes its layout without a pause, or what is seen cannot be.
    fn place(&mut self, keeper: &Keeper, server: &mut Server, child: &Uffd) -> bool {
        for _ in 0..PLACE_TRIES_MAX {
            self.serve_others(keeper, server);
            if !keeper.pager.kernel.layout_is_changing() {
                let forked = ForkedMemory(child.number());
                return keeper.pager.place_fork(forked, None, &mut |page| child.is_registered(page));
            }
            thread::sleep(PAUSE);
        }
        false
    }

    /// Serves the child's faults and hands its memory over; `line` if its agent has called, `own` what the child has changed in its layout
    /// itself, in fork handlers of other libraries that run before ours.
    fn serve_until_taken_over(
        &mut self,
        keeper: &Keeper,
        server: &mut Server,
        child: &Uffd,
        mut line: Option<Line>,
        mut own: Vec<Message>,
    ) -> Outcome {
        let mut held_up = HeldUp::default();
        let send = |line: &Line| keeper.forks.send_descriptors(line, Some(child.number()), &keeper.pager);
        line.iter().for_each(send);
        loop {
            let others = [child.as_fd(), keeper.forks.reception.as_fd()].into_iter();
            keeper.pager.kernel.wait_for_any(others.chain(line.as_ref().map(Line::as_fd)), LOOK);
            self.serve_others(keeper, server);
            serve_child(keeper, server, child, &mut own);
            if agent().is_some_and(|agent| held_up.is_for_too_long(agent, &keeper.pager)) {
                return Outcome::Late;
            }
            match &line {
                None if child.is_orphaned(keeper.pager.kernel.probe()) => return Outcome::Ended,
                None => {
                    line = keeper.forks.accept_child(&keeper.pager);
                    line.iter().for_each(send);
                }
                Some(ready) if !ready.is_readable(Duration::ZERO) => {}
                Some(ready) => match ready.hear(Duration::ZERO) {
                    Ok((READY, words)) if keeper.forks.is_of_this_fork(words) => {
                        serve_child(keeper, server, child, &mut own);
                        place_again(keeper, child, words, &own);
                        let changes = all_changes(keeper, words, &own);
                        let told =
                            changes.iter().filter_map(change).try_for_each(|(byte, words)| ready.tell(byte, words));
                        let is_told = told.is_ok() && fork::leave_to(ready, &keeper.pager);
                        return line.filter(|_| is_told).map_or(Outcome::Ended, Outcome::TakenOver);
                    }
                    Ok((FILL, words)) if keeper.forks.is_of_this_fork(words) => {
                        if self.fill(keeper, server, child, words, &mut own) {
                            let _ = ready.tell(YOURS, [0; 3]);
                        }
                        return Outcome::Ended;
                    }
                    // The caller was another fork's, or has ended. Whose memory this is may live: it is asked for above.
                    _ => line = None,
                },
            }
        }
    }

    /// Brings all that the child misses. False if that cannot be told: a range has moved meanwhile, or a page is lost.
    fn fill(
        &mut self,
        keeper: &Keeper,
        server: &mut Server,
        child: &Uffd,
        words: [u64; 3],
        own: &mut Vec<Message>,
    ) -> bool {
        let mut from = PageIndex(0);
        place_again(keeper, child, words, own);
        loop {
            self.serve_others(keeper, server);
            serve_child(keeper, server, child, own);
            let changes = all_changes(keeper, words, own);
            if changes.iter().any(|message| matches!(message, Message::Remap { .. })) {
                return false;
            }
            let removed: Vec<_> = changes
                .iter()
                .filter_map(|message| match *message {
                    Message::Remove(range) | Message::Unmap(range) => Some(range),
                    _ => None,
                })
                .collect();
            let put = &mut |page, bytes: &PageBytes| child.fill(page, bytes);
            match server.fill_child(&keeper.pager, &mut from, &removed, put) {
                Ok(true) => {}
                Ok(false) => return true,
                Err(stuck) => {
                    let pid = thread::process_id();
                    say(format_args!("a child of process {pid} is ended: {}", Reason(stuck)));
                    return false;
                }
            }
        }
    }

    /// A child whose layout we do not know would read zeros where its memory is with us. It is ended at the first such page,
    /// with a line that says why. Its agent hears that nobody is there, and ends it too. One that is stopped is not waited for.
    fn refuse_misplaced(&mut self, keeper: &Keeper, server: &mut Server, child: Uffd, mut line: Option<Line>) {
        const WHY: &str = "was forked while other threads changed the layout, and is ended";
        let mut held_up = HeldUp::default();
        while !child.is_orphaned(keeper.pager.kernel.probe()) {
            if agent().is_some_and(|agent| held_up.is_for_too_long(agent, &keeper.pager)) {
                return self.refused.add_late(keeper, child);
            }
            if line.take().is_some() {
                say(format_args!("a child of process {} {WHY}", thread::process_id()));
            }
            let others = [child.as_fd(), keeper.forks.reception.as_fd()].into_iter();
            keeper.pager.kernel.wait_for_any(others, LOOK);
            line = keeper.forks.accept_child(&keeper.pager);
            while let Some(message) = child.read() {
                if let Message::Fault { page, thread, .. } = message {
                    say(format_args!("process {thread} {WHY}"));
                    end(keeper, &child, page, thread);
                }
            }
            self.serve_others(keeper, server);
        }
    }
}

impl Candidate {
    /// Serves its faults as long as it changes nothing by itself. False if it cannot be libc's child.
    fn serve(&mut self, keeper: &Keeper, server: &mut Server, refused: &mut Refused) -> bool {
        let Self { memory, changes } = self;
        // What it has discarded or moved itself the frozen state does not know; libc's child hardly does before its agent is
        // there, and then it waits.
        while changes.is_empty() {
            match memory.read() {
                None => return true,
                Some(Message::Fault { page, thread, .. }) => {
                    let is_changing = keeper.pager.kernel.layout_is_changing();
                    let forked = ForkedMemory(memory.number());
                    let is_placed =
                        !is_changing && keeper.pager.place_fork(forked, None, &mut |page| memory.is_registered(page));
                    if !is_placed {
                        // Its thread comes again, when somebody can answer. It can be gone, nothing else.
                        let _ = memory.wake(PageRange::new(page, PageCount(1)));
                        return is_changing;
                    }
                    serve_page(keeper, server, memory, &[], (page, thread));
                }
                Some(Message::Fork(forked)) => {
                    refused.add(keeper, adopt(forked));
                    return false;
                }
                Some(message) => changes.push(message),
            }
        }
        true
    }
}

fn serve_own(keeper: &Keeper, server: &mut Server) {
    keeper.is_alive();
    if let Err(stuck) = server.serve(&keeper.pager) {
        crate::handler::give_up(stuck);
    }
}

/// The number by which a candidate is known: that of a descriptor that is open, and not 0.
fn number(child: &Uffd) -> u32 {
    child.number() as u32 + 1
}

fn tell_number(keeper: &Keeper, server: &mut Server, child: &Uffd) {
    for _ in 0..TELL_TRIES_MAX {
        // AGAIN: its layout is changing, for longer only where it is not the caller. Any other error: it has ended.
        if keeper.pager.kernel.badge().tell(child, number(child)) != Err(Errno::AGAIN) {
            return;
        }
        serve_own(keeper, server);
        thread::sleep(PAUSE);
    }
}

fn serve_child(keeper: &Keeper, server: &mut Server, child: &Uffd, changes: &mut Vec<Message>) {
    while let Some(message) = child.read() {
        match message {
            Message::Fault { page, thread, .. } => serve_page(keeper, server, child, changes, (page, thread)),
            // Fork handlers of other libraries that run before ours. The child must hear of it.
            Message::Remove(_) | Message::Remap { .. } | Message::Unmap(_) => changes.push(message),
            // Before its agent has started the child has no way to fork but a raw system call.
            Message::Fork(forked) => {
                // Without it the grandchild's missing pages would be zeros; it waits at the first one instead, and is
                // ended with its parent.
                core::mem::forget(adopt(forked));
                fail(format_args!("a forked process forked again by a raw system call before its agent had started"));
            }
        }
    }
}

/// Brings a page that a thread of the child waits for. `own`: what the child itself has changed since it was forked.
fn serve_page(keeper: &Keeper, server: &mut Server, child: &Uffd, own: &[Message], (page, thread): (PageIndex, u32)) {
    let served = server.serve_child(&keeper.pager, own, page, &mut |page, bytes| child.fill(page, bytes));
    if let Err(stuck) = served {
        // The page is lost to us, too; but we may never touch it.
        say(format_args!("process {thread} is ended: {}", Reason(stuck)));
        end(keeper, child, page, thread);
    }
}

/// The child's agent has told how many readings there had been in its memory: finds out better which layout messages it shares. What the child
/// has changed itself says nothing of that.
fn place_again(keeper: &Keeper, child: &Uffd, [_, readings, _]: [u64; 3], own: &[Message]) {
    if own.is_empty() {
        let forked = ForkedMemory(child.number());
        keeper.pager.place_fork(forked, Some(readings as u32), &mut |page| child.is_registered(page));
    }
}

/// What has changed in a child's layout since the state was frozen: before the fork, as the journal knows it, and by the child itself.
fn all_changes(keeper: &Keeper, [_, readings, _]: [u64; 3], own: &[Message]) -> Vec<Message> {
    let mut changes = keeper.pager.shared_layout(readings as u32);
    changes.extend(own);
    changes
}

/// A layout message as the agents tell it to each other.
fn change(message: &Message) -> Option<Change> {
    match *message {
        Message::Remove(range) => Some((REMOVED, [range.start.0, range.end.0, 0])),
        Message::Unmap(range) => Some((UNMAPPED, [range.start.0, range.end.0, 0])),
        Message::Remap { from, to } => Some((MOVED, [from.start.0, from.end.0, to.0])),
        Message::Fault { .. } | Message::Fork(_) => None,
    }
}
