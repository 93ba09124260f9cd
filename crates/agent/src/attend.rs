//! What a parent's handler does for a forked child until the child's own agent has taken over: it reads what the child
//! misses to it, and tells it what has changed since the state was frozen.

use alloc::vec::Vec;
use core::time::Duration;

use page::{PageBytes, PageIndex};
use pager::Server;
use sys::handover::Line;
use sys::kernel::{ForkedMemory, Kernel as _, Message, PageRange};
use sys::thread;
use sys::uffd::Uffd;

use crate::failure::fail;
use crate::fork::{FILL, LOOK, MOVED, PAUSE, READY, REMOVED, UNMAPPED, YOURS};
use crate::keeper::Keeper;
use crate::refused::Refused;

/// Looks for a moment in which no layout message is on its way, ten seconds of running time in all.
const PLACE_TRIES_MAX: u32 = 200_000;

/// On the handler's thread: looks after a child that has been forked, until it looks after itself.
pub(crate) fn attend(keeper: &Keeper, server: &mut Server, refused: &mut Refused) {
    if !keeper.pager.has_forked() {
        return;
    }
    let is_frozen = keeper.forks.begin_attending();
    let Some(ForkedMemory(number)) = keeper.pager.take_forked() else { return };
    // SAFETY: the message brought the descriptor into this thread's table, and it is taken once.
    let child = Uffd::adopt(unsafe { thread::take_descriptor(number) });
    if !is_frozen {
        return refused.add(child);
    }
    let reader = if let Some(shared) = place(keeper, server, &child) {
        serve_until_taken_over(keeper, server, &child, &shared)
    } else {
        refuse(keeper, server, &child, refused);
        None
    };
    keeper.forks.finish(&keeper.pager, reader);
}

/// What the handler does between two looks at the child.
fn serve_own(keeper: &Keeper, server: &mut Server) {
    keeper.is_alive();
    if let Err(stuck) = server.serve(&keeper.pager) {
        crate::handler::give_up(stuck);
    }
}

/// Reads the layout messages that were on their way when the memory was copied, and finds out which of them the child
/// shares. `None`: the program changes its layout without a pause, or what is seen cannot be.
fn place(keeper: &Keeper, server: &mut Server, child: &Uffd) -> Option<Vec<Message>> {
    for _ in 0..PLACE_TRIES_MAX {
        serve_own(keeper, server);
        if !keeper.pager.kernel.layout_is_changing() {
            return keeper.pager.place_fork(&mut |page| child.is_registered(page));
        }
        thread::sleep(PAUSE);
    }
    None
}

/// Serves the child's faults and hands its memory over. `None`: the child has ended first.
fn serve_until_taken_over(keeper: &Keeper, server: &mut Server, child: &Uffd, shared: &[Message]) -> Option<Line> {
    let mut line: Option<Line> = None;
    // What has changed in the child's layout since the state was frozen.
    let mut changes: Vec<_> = shared.iter().filter_map(change).collect();
    loop {
        keeper.pager.kernel.wait_for_any(child, &keeper.forks.reception, line.as_ref(), LOOK);
        serve_own(keeper, server);
        serve_child(keeper, server, child, &mut changes);
        match &line {
            None if child.is_orphaned(keeper.pager.kernel.probe()) => return None,
            None => {
                line = keeper.forks.accept_child(&keeper.pager);
                if let Some(line) = &line {
                    keeper.forks.send_descriptors(line, Some(child.number()), &keeper.pager);
                }
            }
            Some(ready) if !ready.is_readable(Duration::ZERO) => {}
            Some(ready) => match ready.hear(Duration::ZERO) {
                Ok((READY, words)) if keeper.forks.is_of_this_fork(words) => {
                    serve_child(keeper, server, child, &mut changes);
                    let told = changes.iter().try_for_each(|(byte, words)| ready.tell(*byte, *words));
                    return told.and_then(|()| ready.tell(YOURS, [0; 3])).is_ok().then_some(line).flatten();
                }
                Ok((FILL, words)) if keeper.forks.is_of_this_fork(words) => {
                    if fill(keeper, server, child, &mut changes) {
                        let _ = ready.tell(YOURS, [0; 3]);
                    }
                    return None;
                }
                // The caller was another fork's, or has ended. Whose memory this is may live: it is asked for above.
                _ => line = None,
            },
        }
    }
}

/// Brings all that the child misses. False if that cannot be told: a range has moved meanwhile.
fn fill(keeper: &Keeper, server: &mut Server, child: &Uffd, changes: &mut Vec<(u8, [u64; 3])>) -> bool {
    let mut from = PageIndex(0);
    loop {
        serve_own(keeper, server);
        serve_child(keeper, server, child, changes);
        if changes.iter().any(|(byte, _)| *byte == MOVED) {
            return false;
        }
        let removed: Vec<_> = changes
            .iter()
            .map(|(_, [start, end, _])| PageRange { start: PageIndex(*start), end: PageIndex(*end) })
            .collect();
        let put = &mut |page, bytes: &PageBytes| child.fill(page, bytes);
        match server.fill_child(&keeper.pager, &mut from, &removed, put) {
            Ok(true) => {}
            Ok(false) => return true,
            Err(stuck) => crate::handler::give_up(stuck),
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

/// A child whose layout we do not know: it would read zeros where its memory is with us. It is ended at the first such page,
/// with a line that says why. An agent of it that calls hears that nobody is there, and ends it too.
fn refuse(keeper: &Keeper, server: &mut Server, child: &Uffd, refused: &mut Refused) {
    let why = "was forked while other threads changed the layout, and is ended";
    while !child.is_orphaned(keeper.pager.kernel.probe()) {
        keeper.pager.kernel.wait_for_any(child, &keeper.forks.reception, None, LOOK);
        if keeper.forks.accept_child(&keeper.pager).is_some() {
            crate::failure::say(format_args!("a child of process {} {why}", thread::process_id()));
        }
        refused.end_at_first_fault(keeper, child, why);
        serve_own(keeper, server);
    }
    keeper.forks.reception.dismiss();
}
