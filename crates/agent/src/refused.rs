//! Children that cannot be followed: forked by a raw system call, they have no agent, and would read zeros where their memory
//! is with us. Such a child may live for ever, or execute another program, and never ask for any of it. It is ended at the
//! first page that it misses, with a line that says why; until then its userfaultfd is kept open and looked at.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

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
    /// It has an agent, which has not called in time.
    is_late: bool,
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
        keeper.custody.add(&memory);
        self.0.push(Child { memory, told: false, is_late: false });
    }

    /// The same for a child of libc's whose agent has not taken over in time, and of which a line has told.
    pub(crate) fn add_late(&mut self, keeper: &Keeper, memory: Uffd) {
        self.add(keeper, memory);
        if let Some(child) = self.0.last_mut() {
            (child.told, child.is_late) = (true, true);
        }
    }

    /// While nobody is attended: whose agent calls now comes too late, and ends.
    pub(crate) fn hang_up(&self, keeper: &Keeper) {
        if self.0.iter().any(|child| child.is_late) {
            keeper.forks.reception.dismiss();
        }
    }

    /// Gives up what belongs to those that have ended or executed another program.
    pub(crate) fn forget_ended(&mut self, keeper: &Keeper) {
        self.0.retain(|child| !child.memory.is_orphaned(keeper.pager.kernel.probe()));
    }

    /// Ends those that have met a page which they miss.
    pub(crate) fn look(&mut self, keeper: &Keeper) {
        let mut at = 0;
        while at < self.0.len() {
            let Child { memory, told, .. } = &mut self.0[at];
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

/// Ends the process whose thread waits for a page of `memory`, after the line that says why. By SIGBUS where nobody can tell which
/// it is; what else can stand in the way is its own end.
pub(crate) fn end(keeper: &Keeper, memory: &Uffd, page: PageIndex, thread: u32) {
    let files = keeper.pager.kernel.files();
    let is_ended = alone_with_number(keeper, thread).is_some_and(|pid| files.kill(pid).is_ok());
    if !is_ended {
        let _ = memory.poison(page);
    }
}

/// The process of a thread that is `thread` to itself, which may be another's number to us; `None` if it may be one of several. One
/// that has no agent comes first.
fn alone_with_number(keeper: &Keeper, thread: u32) -> Option<u32> {
    let membership = crate::host::agent()?.membership();
    let has_agent = |pid: u32| membership.processes().any(|(entry, _)| entry.pid.load(Ordering::Relaxed) == pid);
    let (mut with, mut without) = (Found::Nobody, Found::Nobody);
    keeper.pager.kernel.files().relatives_with(thread, &mut |pid| {
        let found = if has_agent(pid) { &mut with } else { &mut without };
        *found = if matches!(found, Found::Nobody) { Found::One(pid) } else { Found::Several };
    });
    match (without, with) {
        (Found::One(pid), _) | (Found::Nobody, Found::One(pid)) => Some(pid),
        _ => None,
    }
}

/// How many processes fit.
enum Found {
    Nobody,
    One(u32),
    Several,
}
