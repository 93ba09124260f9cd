//! A plain model of one process's memory behind the [`Kernel`] trait, for tests.
//!
//! A test plays the program's threads: it lets them touch pages and change the layout, one step at a time, and calls
//! the pager in between. [`FakeKernel::set_meanwhile`] lets it take such steps inside the pager too, at each call to
//! the kernel. Everything happens on one thread and in an order that the test chooses, so a seed repeats a run.
//!
//! The answers are those of Linux 6.18 (docs/userfaultfd.md, and mm/userfaultfd.c, fs/userfaultfd.c). What would be
//! a hang or a lost page there is a panic here: a frame that is read while nothing is in it, and a move into a frame
//! that is not free. A frame that has been given back is poisoned.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell, UnsafeCell};

use page::{ByteCount, PAGE_BYTES, PageBytes, PageCount, PageIndex};

use crate::Errno;
use crate::kernel::{ForkedMemory, PageRange, Uncopied};

mod kernel;
mod memory;
#[cfg(test)]
mod tests;

use memory::{Frame, Memory, Page, PlainMessage, Stage, Vma};

/// What stands in a frame that has been given back.
const POISON: u8 = 0xdb;
/// The fake clock goes on by so much at each look.
const TICK_NS: u64 = 1000;
/// And by so much for each frame given back, for what has been done with it: an encoding.
const PAGE_NS: u64 = 5000;

/// Which call to the kernel has begun.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Call {
    /// [`Kernel::next_message`]
    NextMessage,
    /// [`Kernel::move_out`]
    MoveOut,
    /// [`Kernel::move_back`]
    MoveBack,
    /// [`Kernel::fill`]
    Fill,
    /// The end of [`Kernel::fill`]: the program runs on before its caller has noted the page. Cannot fail.
    Filled,
    /// [`Kernel::wake`]
    Wake,
    /// [`Kernel::release`]
    Release,
    /// [`Kernel::register`]
    Register,
    /// [`Kernel::mappings`]
    Mappings,
    /// [`Kernel::resident`]
    Resident,
    /// [`Kernel::unshare`]
    Unshare,
    /// [`Kernel::now_ns`]
    Now,
}

/// What happens inside a call.
pub type Meanwhile = Box<dyn FnMut(&FakeKernel, Call)>;

/// How an access of the program went.
#[derive(Debug)]
pub enum Access {
    /// It is done; this is what the page held before.
    Done(Box<PageBytes>),
    /// The thread waits. Once [`FakeKernel::is_waiting`] says no, it must try again.
    Blocked,
    /// Nothing is mapped there.
    Unmapped,
}

/// How a thread that changes the layout got on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Its message has not been read.
    Blocked,
    /// One step further.
    Stepped,
    /// Its call has returned.
    Done,
}

/// A flag of a page or of its mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    /// mlock.
    Locked,
    /// No plain data: its protection has changed.
    Protected,
    /// Pinned for a device.
    Pinned,
    /// Shared with a forked process.
    Shared,
    /// A forked child has something else there.
    Uncopied(Uncopied),
    /// A guard region. Only where nothing is.
    Guarded,
}

/// See the top of the file.
pub struct FakeKernel {
    memory: RefCell<Memory>,
    /// Never moved: the pager keeps pointers into it.
    frames: Box<[UnsafeCell<PageBytes>]>,
    meanwhile: RefCell<Option<Meanwhile>>,
    now_ns: Cell<u64>,
    asleep_since_ns: Cell<Option<u64>>,
}

impl core::fmt::Debug for FakeKernel {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("FakeKernel").field("memory", &self.memory).finish_non_exhaustive()
    }
}

/// The program's side.
impl FakeKernel {
    /// A process without memory, and a pager's frames.
    pub fn new(frames: PageCount) -> Self {
        let memory = Memory { frames: alloc::vec![Frame::Empty; frames.0 as usize], ..Memory::default() };
        let frames = (0..frames.0).map(|_| UnsafeCell::new(PageBytes([POISON; PAGE_BYTES]))).collect();
        let memory = RefCell::new(memory);
        let (now_ns, asleep_since_ns) = (Cell::new(1_000_000), Cell::new(None));
        Self { memory, frames, meanwhile: RefCell::new(None), now_ns, asleep_since_ns }
    }

    /// Calls `meanwhile` at the start of each call of the pager, but not inside itself.
    pub fn set_meanwhile(&self, meanwhile: Option<Meanwhile>) {
        *self.meanwhile.borrow_mut() = meanwhile;
    }

    /// The next such call gives this answer and does nothing.
    pub fn fail(&self, call: Call, errno: Errno) {
        self.memory.borrow_mut().failures.push((call, errno));
    }

    /// Resident memory that is not the program's.
    pub fn set_other_bytes(&self, bytes: ByteCount) {
        self.memory.borrow_mut().other_bytes = bytes.0;
    }

    /// Lets time pass.
    pub fn sleep_ns(&self, ns: u64) {
        self.now_ns.set(self.now_ns.get() + ns);
    }

    /// From now on the program's threads sleep, or run again.
    pub fn let_sleep(&self, sleeps: bool) {
        self.asleep_since_ns.set(sleeps.then(|| self.now_ns.get()));
    }

    /// Maps fresh memory where nothing is.
    pub fn map(&self, range: PageRange) {
        let memory = &mut *self.memory.borrow_mut();
        memory.map(range);
    }

    /// A thread reads a page, or writes all of it.
    pub fn access(&self, thread: u32, page: PageIndex, write: Option<&PageBytes>) -> Access {
        let memory = &mut *self.memory.borrow_mut();
        assert!(!memory.waiting.contains_key(&thread) && !memory.layouts.contains_key(&thread), "a thread that waits");
        let Some(entry) = memory.pages.get_mut(&page) else { return Access::Unmapped };
        if entry.bytes.is_none() {
            if entry.vma.registered {
                memory.waiting.insert(thread, page);
                memory.faults.push_back((page, thread));
                return Access::Blocked;
            }
            entry.bytes = Some(Box::new(PageBytes::ZERO));
            entry.shared = false;
        }
        let bytes = entry.bytes.as_mut().expect("filled above");
        let before = bytes.clone();
        if let Some(write) = write {
            **bytes = write.clone();
            memory.minor_faults += u64::from(entry.shared);
            entry.shared = false;
        }
        Access::Done(before)
    }

    /// Whether the thread's fault has not been answered.
    pub fn is_waiting(&self, thread: u32) -> bool {
        self.memory.borrow().waiting.contains_key(&thread)
    }

    /// Whether something is mapped there.
    pub fn is_mapped(&self, page: PageIndex) -> bool {
        self.memory.borrow().pages.contains_key(&page)
    }

    /// Whether the page is there.
    pub fn is_present(&self, page: PageIndex) -> bool {
        self.memory.borrow().pages.get(&page).is_some_and(|page| page.bytes.is_some())
    }

    /// Whether a message waits to be read.
    pub fn has_messages(&self) -> bool {
        let memory = self.memory.borrow();
        !memory.faults.is_empty() || !memory.events.is_empty()
    }

    /// Whether the thread waits neither for a page nor for a message of its own to be read.
    pub fn can_go_on(&self, thread: u32) -> bool {
        let memory = self.memory.borrow();
        let is_unread = memory.layouts.get(&thread).is_some_and(|layout| layout.stage == Stage::Unread);
        !is_unread && !memory.waiting.contains_key(&thread)
    }

    /// Whether faults on the page become messages.
    pub fn is_registered(&self, page: PageIndex) -> bool {
        self.memory.borrow().pages.get(&page).is_some_and(|page| page.vma.registered)
    }

    /// Pages of the program that are there.
    pub fn present(&self) -> PageCount {
        PageCount(self.memory.borrow().pages.values().filter(|page| page.bytes.is_some()).count() as u64)
    }

    /// Frames that hold something.
    pub fn frames_full(&self) -> PageCount {
        PageCount(self.memory.borrow().frames.iter().filter(|frame| **frame != Frame::Empty).count() as u64)
    }

    /// The program's mappings, without the call counting as one of the pager's.
    pub fn visit_mappings(&self, visit: &mut dyn FnMut(PageRange)) {
        let whole = PageRange { start: PageIndex(0), end: PageIndex(u64::MAX) };
        let runs = self.memory.borrow().runs(whole);
        for (range, _) in runs {
            visit(range);
        }
    }

    /// Sets or clears a flag of the pages that are mapped in the range.
    pub fn set(&self, range: PageRange, flag: Flag, on: bool) {
        for (_, page) in self.memory.borrow_mut().pages.range_mut(range.start..range.end) {
            match flag {
                Flag::Locked => page.vma.locked = on,
                Flag::Protected => page.vma.protected = on,
                Flag::Pinned => page.pinned = on,
                Flag::Shared => page.shared = on,
                Flag::Uncopied(kind) => page.vma.uncopied = on.then_some(kind),
                Flag::Guarded => page.guarded = on,
            }
        }
    }

    /// `madvise(MADV_DONTNEED)`, first half: nothing is discarded before the message has been read.
    pub fn discard(&self, thread: u32, range: PageRange) -> Progress {
        let memory = &mut *self.memory.borrow_mut();
        if memory.is_registered_somewhere(range) {
            let messages = memory.registered_runs(range).into_iter().map(PlainMessage::Remove).collect();
            return memory.change(thread, messages, Some(range));
        }
        memory.zap(range);
        Progress::Done
    }

    /// munmap, as far as it goes without the message.
    pub fn unmap(&self, thread: u32, range: PageRange) -> Progress {
        let memory = &mut *self.memory.borrow_mut();
        let messages = memory.unmap(range);
        memory.change(thread, messages, None)
    }

    /// mmap with `MAP_FIXED`: replaces what is there.
    pub fn map_fixed(&self, thread: u32, range: PageRange) -> Progress {
        let memory = &mut *self.memory.borrow_mut();
        let messages = memory.unmap(range);
        memory.map(range);
        memory.change(thread, messages, None)
    }

    /// mremap with `MREMAP_FIXED`, as far as it goes without the messages. `keep`: with `MREMAP_DONTUNMAP`. All of
    /// `from` is one mapping.
    pub fn remap(&self, thread: u32, from: PageRange, to: PageIndex, keep: bool) -> Progress {
        let memory = &mut *self.memory.borrow_mut();
        let target = PageRange::new(to, from.count());
        assert!(from.intersection(target).is_none(), "EINVAL");
        let mut messages = memory.unmap(target);
        memory.vmas_made += 1;
        let id = memory.vmas_made;
        let registered = memory.is_registered_somewhere(from);
        for page in from.start.until(from.end) {
            let mut old = memory.pages.remove(&page).expect("all of it is mapped");
            assert_eq!(old.vma.registered, registered, "mremap across mappings");
            if keep {
                let bytes = None;
                memory.pages.insert(
                    page,
                    Page { vma: Vma { locked: false, ..old.vma }, bytes, pinned: false, shared: false, guarded: false },
                );
            }
            old.vma.id = id;
            memory.pages.insert(to + (page - from.start), old);
        }
        if registered {
            messages.push_back(PlainMessage::Remap { from, to });
            if !keep {
                messages.push_back(PlainMessage::Unmap(from));
            }
        }
        memory.change(thread, messages, None)
    }

    /// mremap that lets the mapping which ends at `end` grow where it is: without a message, registered or not.
    pub fn grow(&self, end: PageIndex, count: PageCount) {
        let memory = &mut *self.memory.borrow_mut();
        let vma = memory.pages[&PageIndex(end.0 - 1)].vma;
        for page in end.until(end + count) {
            let old =
                memory.pages.insert(page, Page { vma, bytes: None, pinned: false, shared: false, guarded: false });
            assert!(old.is_none(), "{page:?} is mapped already");
        }
    }

    /// fork: the child is there, the parent's thread waits until the message is read.
    pub fn fork(&self, thread: u32) -> Progress {
        let memory = &mut *self.memory.borrow_mut();
        for page in memory.pages.values_mut() {
            page.shared = page.bytes.is_some();
        }
        for frame in memory.frames.iter_mut().filter(|frame| **frame == Frame::Full) {
            *frame = Frame::Shared;
        }
        let child = Self::new(PageCount(self.frames.len() as u64));
        {
            let copy = &mut *child.memory.borrow_mut();
            copy.pages.clone_from(&memory.pages);
            copy.pages.retain(|_, page| page.vma.uncopied != Some(Uncopied::Absent));
            for page in copy.pages.values_mut().filter(|page| page.vma.uncopied.is_some()) {
                (page.bytes, page.shared) = (None, false);
            }
            copy.frames.clone_from(&memory.frames);
            copy.vmas_made = memory.vmas_made;
            copy.other_bytes = memory.other_bytes;
        }
        for (index, frame) in self.frames.iter().enumerate() {
            // SAFETY: one thread, and nobody writes to a frame of ours while this reference lives.
            let bytes = unsafe { &*frame.get() };
            child.write_frame(index, bytes);
        }
        child.now_ns.set(self.now_ns.get());
        let number = 100 + memory.children.len() as i32;
        memory.children.insert(number, child);
        memory.change(thread, VecDeque::from([PlainMessage::Fork(number)]), None)
    }

    /// The message that was posted last comes first: Linux posts them when the memory has been let go of, in any order.
    pub fn overtake(&self) {
        let memory = &mut *self.memory.borrow_mut();
        let last = memory.events.pop_back().expect("a message that is not read");
        memory.events.push_front(last);
    }

    /// What this thread has to tell is not told until [`FakeKernel::hold_back_no_more`]: it has not come to that.
    pub fn hold_back(&self, thread: u32) {
        let memory = &mut *self.memory.borrow_mut();
        let (late, events): (Vec<_>, Vec<_>) = memory.events.drain(..).partition(|(other, _)| *other == thread);
        memory.late.extend(late);
        memory.events = events.into();
    }

    /// Now it is.
    pub fn hold_back_no_more(&self) {
        let memory = &mut *self.memory.borrow_mut();
        let late = core::mem::take(&mut memory.late);
        memory.events.extend(late);
    }

    /// The child's memory. Taken once.
    #[must_use]
    pub fn take_child(&self, forked: &ForkedMemory) -> Self {
        self.memory.borrow_mut().children.remove(&forked.0).expect("a child that is taken once")
    }

    /// The range that the thread's next step discards, if that is what it does.
    pub fn about_to_zap(&self, thread: u32) -> Option<PageRange> {
        let memory = self.memory.borrow();
        memory.layouts.get(&thread).filter(|layout| layout.stage == Stage::Zapping)?.zap
    }

    /// Lets a thread go on whose layout message has been read.
    pub fn advance(&self, thread: u32) -> Progress {
        let memory = &mut *self.memory.borrow_mut();
        let layout = memory.layouts.get_mut(&thread).expect("a thread that changes the layout");
        match layout.stage {
            Stage::Unread => return Progress::Blocked,
            Stage::Zapping => {
                let range = layout.zap.expect("madvise");
                memory.layouts.remove(&thread);
                memory.zap(range);
                return Progress::Done;
            }
            Stage::Read => {}
        }
        memory.changing -= 1;
        if let Some(next) = layout.later.pop_front() {
            layout.stage = Stage::Unread;
            memory.events.push_back((thread, next));
        } else if layout.zap.is_some() {
            layout.stage = Stage::Zapping;
        } else {
            memory.layouts.remove(&thread);
            return Progress::Done;
        }
        Progress::Stepped
    }

    /// Lets all such threads go on until each has returned or waits for a message to be read.
    pub fn run_waiters(&self) {
        let threads: Vec<u32> = self.memory.borrow().layouts.keys().copied().collect();
        for thread in threads {
            while self.advance(thread) == Progress::Stepped {}
        }
    }
}
