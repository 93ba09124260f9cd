//! Children that cannot be followed: forked by a raw system call, they have no agent, and would read zeros where their memory
//! is with us. Such a child may live for ever, or execute another program, and never ask for any of it. It is ended at the
//! first page that it misses, with a line that says why; until then its userfaultfd is kept open and looked at.

use alloc::vec::Vec;

use page::PageIndex;
use sys::kernel::{ForkedMemory, Message};
use sys::thread;
use sys::uffd::Uffd;

use crate::failure::{fail, say};
use crate::keeper::Keeper;

/// More of them at a time are not looked at (`sys::linux::OTHERS_MAX`), nor could they be told apart from us by memory:
/// each holds a descriptor.
const REFUSED_MAX: usize = sys::linux::OTHERS_MAX;
/// Why, as a rule.
pub(crate) const RAW: &str = "was forked by a raw system call and is ended: pleat can follow libc's fork only";

struct Child {
    memory: Uffd,
    /// A line has been said about it.
    told: bool,
}

/// See the module. Does not allocate: the program may be forking.
pub(crate) struct Refused(Vec<Child>);

impl Refused {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(REFUSED_MAX))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What to wait for.
    pub(crate) fn memories(&self) -> impl Iterator<Item = &Uffd> {
        self.0.iter().map(|child| &child.memory)
    }

    pub(crate) fn add(&mut self, keeper: &Keeper, memory: Uffd) {
        if self.0.len() == REFUSED_MAX {
            self.forget_ended(keeper);
        }
        if self.0.len() == REFUSED_MAX {
            // Nobody would end it, and it must not read zeros.
            fail(format_args!("more than {REFUSED_MAX} processes forked by raw system calls live at a time"));
        }
        self.0.push(Child { memory, told: false });
    }

    /// Gives up what belongs to those that have ended or executed another program.
    pub(crate) fn forget_ended(&mut self, keeper: &Keeper) {
        self.0.retain(|child| !child.memory.is_orphaned(keeper.pager.kernel.probe()));
    }

    /// Ends those that have met a page which they miss.
    pub(crate) fn look(&mut self, keeper: &Keeper) {
        let mut at = 0;
        while at < self.0.len() {
            let Child { memory, told } = &mut self.0[at];
            match memory.read() {
                Some(Message::Fault { page, thread, .. }) => {
                    if !*told {
                        say(format_args!("process {thread} {RAW}"));
                    }
                    *told = true;
                    end(keeper, memory, page, thread);
                }
                // It has no agent to go on for it either.
                Some(Message::Fork(forked)) => self.add(keeper, adopt(forked)),
                Some(Message::Remove(_) | Message::Unmap(_) | Message::Remap { .. }) => {}
                None => at += 1,
            }
        }
    }
}

/// The child's memory that a message has told of.
pub(crate) fn adopt(ForkedMemory(number): ForkedMemory) -> Uffd {
    // SAFETY: the message brought the descriptor into this thread's table, and it is taken once.
    Uffd::adopt(unsafe { thread::take_descriptor(number) })
}

/// Ends the process whose thread waits for a page of `memory`, after the line that says why.
pub(crate) fn end(keeper: &Keeper, memory: &Uffd, page: PageIndex, thread: u32) {
    // The kernel names the thread as its own PID namespace does: where that is another, the number is somebody else's here.
    let is_ended = keeper.pager.kernel.files().is_descendant(thread) && thread::kill_process(thread).is_ok();
    if !is_ended {
        // By SIGBUS then. What else can stand in the way is its own end.
        let _ = memory.poison(page);
    }
}
