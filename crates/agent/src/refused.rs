//! Children that have been forked past libc: they have no agent, and would read zeros where their memory is with us. Each is
//! ended at the first such page, with a line that says why. Until then they live, and nobody waits for them: libc's forks go
//! on beside them.

use core::sync::atomic::Ordering;
use core::time::Duration;

use alloc::vec::Vec;

use sys::kernel::{ForkedMemory, Message};
use sys::thread::take_descriptor;
use sys::uffd::Uffd;

use crate::failure::say;
use crate::keeper::Keeper;

const WHY: &str = "was forked by a raw system call and is ended: pleat can follow libc's fork only";

/// Those of this process that live, as the handler sees them: by the userfaultfds of their memory.
#[derive(Default)]
pub(crate) struct Refused(Vec<Uffd>);

impl Refused {
    pub(crate) fn add(&mut self, child: Uffd) {
        self.0.push(child);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits for a message, of the program's or of theirs, for so long at the most, and ends who needs a page. Says whether one
    /// of the program's has come.
    pub(crate) fn wait(&mut self, keeper: &Keeper, limit: Duration) -> bool {
        let kernel = &keeper.pager.kernel;
        let has_come = kernel.wait_for_each(&self.0, limit);
        self.0.retain(|child| !child.is_orphaned(kernel.probe()));
        let mut at = 0;
        while at < self.0.len() {
            let child = self.0.remove(at);
            self.end_at_first_fault(keeper, &child, WHY);
            self.0.insert(at, child);
            at += 1;
        }
        has_come
    }

    /// Ends the child if it waits for a page, and takes over what it has forked itself.
    pub(crate) fn end_at_first_fault(&mut self, keeper: &Keeper, child: &Uffd, why: &str) {
        while let Some(message) = child.read() {
            match message {
                Message::Fault { thread, .. } => {
                    say(format_args!("process {thread} {why}"));
                    end(keeper, thread);
                }
                // SAFETY: the message brought the descriptor into this thread's table, and it is taken once.
                Message::Fork(ForkedMemory(number)) => self.add(Uffd::adopt(unsafe { take_descriptor(number) })),
                Message::Remove(_) | Message::Unmap(_) | Message::Remap { .. } => {}
            }
        }
    }
}

/// Ends the process of a thread that is `thread` to itself, which may be another's number to us. One that has no agent comes
/// first. Of several that have one nobody knows which it is, and it waits.
fn end(keeper: &Keeper, thread: u32) {
    let Some(agent) = crate::host::agent() else { return };
    let membership = agent.membership();
    let has_agent = |pid: u32| membership.processes().any(|(entry, _)| entry.pid.load(Ordering::Relaxed) == pid);
    let (mut without, mut with, mut with_count) = (None, None, 0);
    let files = keeper.pager.kernel.files();
    files.relatives_with(thread, &mut |pid| {
        if has_agent(pid) {
            (with, with_count) = (Some(pid), with_count + 1);
        } else {
            without = Some(pid);
        }
    });
    if let Some(pid) = without.or(with.filter(|_| with_count == 1)) {
        // It may have ended by itself.
        let _ = files.kill(pid);
    }
}
