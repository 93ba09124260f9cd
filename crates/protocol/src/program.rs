//! The program: threads that use its memory, change its layout and fork, and what they must find.

use crate::kernel::{Mapping, Memory, Message, Told};
use crate::{PAGES, Page, THREADS, Value};

/// What a thread can do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Reads a page.
    Read,
    /// Writes to it.
    Write,
    /// madvise (`MADV_DONTNEED`).
    Discard,
    /// munmap.
    Unmap,
    /// mmap.
    Map,
    /// mremap, to where nothing is mapped.
    Move,
    /// fork.
    Fork,
}

/// How far a layout change is that the kernel tells of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Telling {
    /// Done, and not told.
    Done,
    /// Told, and not read.
    Posted,
    /// Read: the thread may go on.
    Read,
}

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Thread {
    /// Nothing.
    Idle,
    /// About to read or write.
    Access {
        /// Where.
        page: Page,
        /// What it writes, if it does.
        write: Option<Value>,
    },
    /// Its fault has been told of, and nobody has woken it.
    Waits {
        /// Where.
        page: Page,
        /// What it writes, if it does.
        write: Option<Value>,
    },
    /// A layout change, or a fork.
    Changes {
        /// What the kernel tells.
        message: Message,
        /// What it tells then.
        rest: Option<Message>,
        /// Where to something moves: nobody knows of it before the call returns.
        target: Option<Page>,
        /// How far it is.
        telling: Telling,
    },
    /// madvise runs again and has not discarded yet.
    Discards(Page),
    /// Waits for the state to be frozen.
    AsksToFork,
    /// Is let fork.
    Forks,
    /// Has forked, and waits for the child's agent.
    HasForked,
}

impl Thread {
    /// Has done what this tells of.
    pub const fn changes(message: Message) -> Self {
        Self::Changes { message, rest: None, target: None, telling: Telling::Done }
    }

    /// Whether it has changed the layout, and not told of it.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Changes { telling: Telling::Done, .. })
    }
}

/// What a page must hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Expected {
    /// What was written last.
    pub value: Value,
    /// It may be this as well: it is being discarded.
    pub is_discarded: bool,
}

impl Expected {
    /// Zeros.
    pub const ZEROS: Self = Self { value: 0, is_discarded: false };

    /// Whether a reader may find this.
    pub fn allows(self, value: Value) -> bool {
        value == self.value || self.is_discarded && value == 0
    }
}

/// All threads of one process, and what they know of its memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Program {
    /// What they do.
    pub threads: [Thread; THREADS],
    /// How much each still does.
    pub left: [u8; THREADS],
    /// What is mapped.
    pub expected: [Option<Expected>; PAGES],
}

impl Program {
    /// Whether another thread than this one uses a page. A program that unmaps what another thread uses is wrong by itself.
    fn is_used(&self, thread: usize, page: Page, may_read: bool) -> bool {
        self.threads.iter().enumerate().filter(|(at, _)| *at != thread).any(|(_, other)| match *other {
            Thread::Access { page: used, write } | Thread::Waits { page: used, write } => {
                used == page && !(may_read && write.is_none())
            }
            Thread::Changes { target: Some(target), .. } => target == page,
            Thread::Changes { message: Message::Remove(used), .. } | Thread::Discards(used) => {
                used == page && !may_read
            }
            _ => false,
        })
    }

    /// Whether a thread can begin this.
    pub fn may_begin(&self, thread: usize, op: Op, page: Page) -> bool {
        let expected = self.expected[page];
        let is_discarded = expected.is_some_and(|expected| expected.is_discarded);
        match op {
            Op::Read => expected.is_some() && !self.is_used(thread, page, true),
            Op::Write | Op::Discard => expected.is_some() && !is_discarded && !self.is_used(thread, page, true),
            Op::Unmap | Op::Move => expected.is_some() && !self.is_used(thread, page, false),
            Op::Map => expected.is_none() && !self.is_used(thread, page, false),
            Op::Fork => page == 0,
        }
    }

    /// Begins it: what changes the layout is done at once, and told afterwards.
    pub fn begin(&mut self, thread: usize, op: Op, page: Page, to: Page, memory: &mut Memory) {
        // A value that nobody else writes.
        let value = (thread as Value + 1) * 16 + self.left[thread];
        self.left[thread] -= 1;
        let is_registered = memory.is_registered(page);
        self.threads[thread] = match op {
            Op::Read => Thread::Access { page, write: None },
            Op::Write => Thread::Access { page, write: Some(value) },
            Op::Fork => Thread::AsksToFork,
            Op::Map => {
                self.expected[page] = Some(Expected::ZEROS);
                memory.pages[page] = Some(Mapping::NEW);
                Thread::Idle
            }
            Op::Discard if is_registered => {
                self.expected[page].iter_mut().for_each(|expected| expected.is_discarded = true);
                memory.changing += 1;
                Thread::changes(Message::Remove(page))
            }
            // Under the lock on the memory, which is let go of for a message alone.
            Op::Discard => {
                self.discard(page, memory);
                Thread::Idle
            }
            Op::Unmap => {
                (self.expected[page], memory.pages[page]) = (None, None);
                memory.changing += u8::from(is_registered);
                if is_registered { Thread::changes(Message::Unmap(page)) } else { Thread::Idle }
            }
            Op::Move => {
                self.expected[to] = self.expected[page].take();
                memory.pages[to] = memory.pages[page].take();
                memory.changing += 2 * u8::from(is_registered);
                let (message, rest) = (Message::Remap { from: page, to }, Some(Message::Unmap(page)));
                let moved = Thread::Changes { message, rest, target: Some(to), telling: Telling::Done };
                if is_registered { moved } else { Thread::Idle }
            }
        };
    }

    /// Whether a thread can go on by itself.
    pub fn may_run(&self, thread: usize) -> bool {
        match self.threads[thread] {
            Thread::Changes { telling, .. } => telling != Telling::Posted,
            Thread::Access { .. } | Thread::Discards(_) | Thread::Forks => true,
            Thread::Idle | Thread::Waits { .. } | Thread::AsksToFork | Thread::HasForked => false,
        }
    }

    /// Goes on. Says what is wrong, if it finds something else than it must.
    pub fn run(&mut self, thread: usize, memory: &mut Memory, asked: &mut [bool; PAGES]) -> Result<(), &'static str> {
        self.threads[thread] = match self.threads[thread] {
            Thread::Access { page, write } => {
                if memory.present(page).is_none() && memory.is_registered(page) {
                    asked[page] = true;
                    self.threads[thread] = Thread::Waits { page, write };
                    return Ok(());
                }
                return self.access(thread, page, write, memory);
            }
            Thread::Changes { message, rest, target, telling: Telling::Done } => {
                memory.messages.push(Told { message, thread });
                Thread::Changes { message, rest, target, telling: Telling::Posted }
            }
            Thread::Changes { message, rest, target, telling: Telling::Read } => {
                memory.changing -= 1;
                match (message, rest) {
                    (_, Some(message)) => Thread::Changes { message, rest: None, target, telling: Telling::Done },
                    (Message::Remove(page), None) => Thread::Discards(page),
                    (Message::Fork, None) => Thread::HasForked,
                    _ => Thread::Idle,
                }
            }
            Thread::Discards(page) => {
                self.discard(page, memory);
                Thread::Idle
            }
            other => other,
        };
        Ok(())
    }

    fn discard(&mut self, page: Page, memory: &mut Memory) {
        memory.pages[page].iter_mut().for_each(|mapping| mapping.present = None);
        self.expected[page] = Some(Expected::ZEROS);
    }

    /// Reads or writes what is there, or what the kernel makes of nothing where nobody is asked.
    fn access(
        &mut self,
        thread: usize,
        page: Page,
        write: Option<Value>,
        memory: &mut Memory,
    ) -> Result<(), &'static str> {
        self.threads[thread] = Thread::Idle;
        let (Some(mapping), Some(expected)) = (&mut memory.pages[page], &mut self.expected[page]) else {
            return Err("a page that is in use is not mapped");
        };
        let found = mapping.present.unwrap_or(0);
        mapping.present = Some(write.unwrap_or(found));
        if let Some(value) = write {
            mapping.is_shared = false;
            expected.value = value;
        }
        if write.is_some() || expected.allows(found) {
            Ok(())
        } else {
            Err("a page holds something else than was written")
        }
    }

    /// Who waits for a page looks again.
    pub fn wake(&mut self, woken: Page) {
        for thread in &mut self.threads {
            if let Thread::Waits { page, write } = *thread
                && page == woken
            {
                *thread = Thread::Access { page, write };
            }
        }
    }

    /// The message of a thread has been read.
    pub fn let_go(&mut self, thread: usize) {
        if let Thread::Changes { telling, .. } = &mut self.threads[thread] {
            *telling = Telling::Read;
        }
    }
}
