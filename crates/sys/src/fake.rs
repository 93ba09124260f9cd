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
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell, UnsafeCell};

use page::{ByteCount, FrameIndex, PAGE_BYTES, PageBytes, PageCount, PageIndex};

use crate::Errno;
use crate::kernel::{ForkedMemory, Kernel, Mapping, MappingName, Message, PageRange, Partial};

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
    /// A forked child finds it empty.
    WipedOnFork,
    /// A guard region. Only where nothing is.
    Guarded,
}

/// Neighbouring pages with equal attributes are one mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a mapping, as the kernel has them")]
struct Vma {
    id: u32,
    registered: bool,
    locked: bool,
    protected: bool,
    wiped_on_fork: bool,
}

#[derive(Clone, Debug)]
struct Page {
    vma: Vma,
    bytes: Option<Box<PageBytes>>,
    pinned: bool,
    shared: bool,
    guarded: bool,
}

/// A layout change whose thread has not returned.
#[derive(Clone, Debug)]
struct Layout {
    /// Messages to come after the present one.
    later: VecDeque<PlainMessage>,
    stage: Stage,
    /// What madvise discards in its second half.
    zap: Option<PageRange>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Unread,
    Read,
    /// Its message is read and followed, others may fill and move, and only now the pages go.
    Zapping,
}

/// A layout message that can be copied with the rest of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlainMessage {
    Remove(PageRange),
    Unmap(PageRange),
    Remap { from: PageRange, to: PageIndex },
    Fork(i32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Frame {
    Empty,
    Full,
    /// Full, and a forked process has it too.
    Shared,
}

#[derive(Debug, Default)]
struct Memory {
    pages: BTreeMap<PageIndex, Page>,
    frames: Vec<Frame>,
    vmas_made: u32,
    faults: VecDeque<(PageIndex, u32)>,
    /// Threads in a fault, whether or not its message has been read.
    waiting: BTreeMap<u32, PageIndex>,
    events: VecDeque<(u32, PlainMessage)>,
    /// Messages of threads that have done the deed and have not come to telling of it.
    late: VecDeque<(u32, PlainMessage)>,
    layouts: BTreeMap<u32, Layout>,
    /// Layout messages whose threads have not run on.
    changing: u32,
    children: BTreeMap<i32, FakeKernel>,
    /// Answers to be given instead of the true ones.
    failures: Vec<(Call, Errno)>,
    other_bytes: u64,
    /// Pages filled, and shared pages that have been written to, by the program or for it.
    minor_faults: u64,
}

/// See the top of the file.
pub struct FakeKernel {
    memory: RefCell<Memory>,
    /// Never moved: the pager keeps pointers into it.
    frames: Box<[UnsafeCell<PageBytes>]>,
    meanwhile: RefCell<Option<Meanwhile>>,
    now_ns: Cell<u64>,
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
        Self { memory: RefCell::new(memory), frames, meanwhile: RefCell::new(None), now_ns: Cell::new(1_000_000) }
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
                Flag::WipedOnFork => page.vma.wiped_on_fork = on,
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
            for page in copy.pages.values_mut().filter(|page| page.vma.wiped_on_fork) {
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

/// Helpers.
impl FakeKernel {
    /// Begins a call: lets the test act, and says whether the call is to fail.
    fn begin(&self, call: Call) -> Option<Errno> {
        // Taken out while it runs: it may call us itself.
        let taken = self.meanwhile.borrow_mut().take();
        if let Some(mut meanwhile) = taken {
            meanwhile(self, call);
            self.meanwhile.borrow_mut().get_or_insert(meanwhile);
        }
        let memory = &mut *self.memory.borrow_mut();
        let at = memory.failures.iter().position(|(failing, _)| *failing == call)?;
        Some(memory.failures.remove(at).1)
    }

    fn put(&self, to: PageIndex, pages: &[PageBytes]) -> Partial {
        let memory = &mut *self.memory.borrow_mut();
        if memory.changing > 0 {
            return partial(0, Some(Errno::AGAIN));
        }
        let range = PageRange::new(to, PageCount(pages.len() as u64));
        if !memory.whole(range).is_some_and(|vma| vma.registered) {
            return partial(0, Some(Errno::NOENT));
        }
        for (step, bytes) in pages.iter().enumerate() {
            let page = to + PageCount(step as u64);
            let entry = memory.pages.get_mut(&page).expect("looked up above");
            if entry.bytes.is_some() {
                return partial(step as u64, Some(Errno::EXIST));
            }
            assert!(!entry.guarded, "{page:?} is a guard: on Linux it would be lost");
            entry.bytes = Some(Box::new(bytes.clone()));
            entry.shared = false;
            memory.minor_faults += 1;
            memory.wake(PageRange::new(page, PageCount(1)));
        }
        partial(pages.len() as u64, None)
    }

    fn write_frame(&self, frame: usize, bytes: &PageBytes) {
        // SAFETY: inside the array, one thread, and whoever holds a pointer to the frame does not use it now: the pager
        // reads a frame only while it is full, and this fills or poisons it.
        unsafe { core::ptr::copy_nonoverlapping(bytes, self.frames[frame].get(), 1) };
    }
}

impl Memory {
    fn map(&mut self, range: PageRange) {
        self.vmas_made += 1;
        let vma = Vma { id: self.vmas_made, registered: false, locked: false, protected: false, wiped_on_fork: false };
        for page in range.start.until(range.end) {
            let old = self.pages.insert(page, Page { vma, bytes: None, pinned: false, shared: false, guarded: false });
            assert!(old.is_none(), "{page:?} is mapped already");
        }
    }

    /// Unmaps what is there; the messages about it.
    fn unmap(&mut self, range: PageRange) -> VecDeque<PlainMessage> {
        let messages = self.registered_runs(range).into_iter().map(PlainMessage::Unmap).collect();
        self.pages.retain(|page, _| !range.contains(*page));
        messages
    }

    fn zap(&mut self, range: PageRange) {
        for (_, page) in self.pages.range_mut(range.start..range.end) {
            page.bytes = None;
            page.pinned = false;
            page.shared = false;
        }
    }

    fn is_registered_somewhere(&self, range: PageRange) -> bool {
        self.pages.range(range.start..range.end).any(|(_, page)| page.vma.registered)
    }

    /// The parts of a range that are registered, one for each mapping.
    fn registered_runs(&self, range: PageRange) -> Vec<PageRange> {
        self.runs(range).into_iter().filter(|(_, vma)| vma.registered).map(|(run, _)| run).collect()
    }

    /// Mappings, cut to a range.
    fn runs(&self, range: PageRange) -> Vec<(PageRange, Vma)> {
        let mut runs: Vec<(PageRange, Vma)> = Vec::new();
        for (page, entry) in self.pages.range(range.start..range.end) {
            match runs.last_mut() {
                Some((run, vma)) if run.end == *page && *vma == entry.vma => run.end = *page + PageCount(1),
                _ => runs.push((PageRange::new(*page, PageCount(1)), entry.vma)),
            }
        }
        runs
    }

    /// The one mapping that covers all of a range.
    fn whole(&self, range: PageRange) -> Option<Vma> {
        match self.runs(range)[..] {
            [(run, vma)] if run == range => Some(vma),
            _ => None,
        }
    }

    /// A thread posts its first message and waits.
    fn change(&mut self, thread: u32, mut messages: VecDeque<PlainMessage>, zap: Option<PageRange>) -> Progress {
        assert!(!self.waiting.contains_key(&thread), "a thread that waits");
        let Some(first) = messages.pop_front() else { return Progress::Done };
        // Linux counts each message before the first is posted.
        self.changing += 1 + messages.len() as u32;
        self.events.push_back((thread, first));
        let old = self.layouts.insert(thread, Layout { later: messages, stage: Stage::Unread, zap });
        assert!(old.is_none(), "a thread that waits");
        Progress::Stepped
    }

    fn wake(&mut self, range: PageRange) {
        self.waiting.retain(|_, page| !range.contains(*page));
        self.faults.retain(|(page, _)| !range.contains(*page));
    }

    fn move_out_page(&mut self, page: PageIndex) -> Result<Box<PageBytes>, Errno> {
        let entry = self.pages.get_mut(&page).expect("looked up before");
        if entry.bytes.is_some() && (entry.pinned || entry.shared) {
            return Err(Errno::BUSY);
        }
        entry.bytes.take().ok_or(Errno::NOENT)
    }
}

/// Some pages done: the reason comes out when one asks again.
fn partial(done: u64, error: Option<Errno>) -> Partial {
    Partial { done: PageCount(done), error: error.filter(|_| done == 0) }
}

impl Kernel for FakeKernel {
    fn next_message(&self) -> Option<Message> {
        if self.begin(Call::NextMessage).is_some() {
            return None;
        }
        let memory = &mut *self.memory.borrow_mut();
        // Faults first, whatever was posted before them.
        if let Some((page, thread)) = memory.faults.pop_front() {
            return Some(Message::Fault { page, thread });
        }
        let (thread, message) = memory.events.pop_front()?;
        memory.layouts.get_mut(&thread).expect("it waits for this").stage = Stage::Read;
        Some(match message {
            PlainMessage::Remove(range) => Message::Remove(range),
            PlainMessage::Unmap(range) => Message::Unmap(range),
            PlainMessage::Remap { from, to } => Message::Remap { from, to },
            PlainMessage::Fork(number) => Message::Fork(ForkedMemory(number)),
        })
    }

    fn move_out(&self, from: PageIndex, count: PageCount, to: FrameIndex) -> Partial {
        if let Some(errno) = self.begin(Call::MoveOut) {
            return partial(0, Some(errno));
        }
        let memory = &mut *self.memory.borrow_mut();
        if memory.changing > 0 {
            return partial(0, Some(Errno::AGAIN));
        }
        let Some(vma) = memory.whole(PageRange::new(from, count)) else {
            // Nothing there at all, or more than one mapping.
            let is_mapped = memory.pages.contains_key(&from);
            return partial(0, Some(if is_mapped { Errno::INVAL } else { Errno::NOENT }));
        };
        if vma.locked || vma.protected {
            return partial(0, Some(Errno::INVAL));
        }
        for step in 0..count.0 {
            match memory.move_out_page(from + PageCount(step)) {
                Ok(bytes) => {
                    let frame = to.0 as usize + step as usize;
                    assert!(memory.frames[frame] == Frame::Empty, "frame {frame} is taken");
                    memory.frames[frame] = Frame::Full;
                    self.write_frame(frame, &bytes);
                }
                Err(errno) => return partial(step, Some(errno)),
            }
        }
        partial(count.0, None)
    }

    fn move_back(&self, frame: FrameIndex, to: PageIndex) -> Result<(), Errno> {
        if let Some(errno) = self.begin(Call::MoveBack) {
            return Err(errno);
        }
        let memory = &mut *self.memory.borrow_mut();
        if memory.changing > 0 {
            return Err(Errno::AGAIN);
        }
        let entry = memory.pages.get_mut(&to).ok_or(Errno::NOENT)?;
        if !entry.vma.registered || entry.vma.locked || entry.vma.protected {
            return Err(Errno::INVAL);
        }
        if entry.bytes.is_some() {
            return Err(Errno::EXIST);
        }
        let index = frame.0 as usize;
        match memory.frames[index] {
            Frame::Empty => panic!("{frame:?} holds nothing: on Linux this would be a page of zeros"),
            Frame::Shared => return Err(Errno::BUSY),
            Frame::Full => {}
        }
        // SAFETY: one thread, and nobody writes to the frame while this reference lives.
        entry.bytes = Some(Box::new(unsafe { &*self.frames[index].get() }.clone()));
        memory.frames[index] = Frame::Empty;
        self.write_frame(index, &PageBytes([POISON; PAGE_BYTES]));
        memory.wake(PageRange::new(to, PageCount(1)));
        Ok(())
    }

    fn holes(&self, page: PageIndex, count: PageCount) -> PageCount {
        let memory = self.memory.borrow();
        let is_hole =
            |page: &PageIndex| memory.pages.get(page).is_none_or(|page| page.bytes.is_none() && !page.guarded);
        PageCount(page.until(page + count).take_while(is_hole).count() as u64)
    }

    fn fill(&self, to: PageIndex, pages: &[PageBytes]) -> Partial {
        if let Some(errno) = self.begin(Call::Fill) {
            return partial(0, Some(errno));
        }
        let filled = self.put(to, pages);
        self.begin(Call::Filled);
        filled
    }

    fn wake(&self, range: PageRange) {
        self.begin(Call::Wake);
        self.memory.borrow_mut().wake(range);
    }

    fn frame(&self, frame: FrameIndex) -> *const PageBytes {
        let state = self.memory.borrow().frames[frame.0 as usize];
        assert!(state != Frame::Empty, "{frame:?} is read while empty: on Linux this would hang");
        self.frames[frame.0 as usize].get()
    }

    fn release(&self, first: FrameIndex, count: PageCount) {
        self.begin(Call::Release);
        self.sleep_ns(count.0 * PAGE_NS);
        for frame in first.0 as usize..first.0 as usize + count.0 as usize {
            self.memory.borrow_mut().frames[frame] = Frame::Empty;
            self.write_frame(frame, &PageBytes([POISON; PAGE_BYTES]));
        }
    }

    fn register(&self, range: PageRange) -> Result<(), Errno> {
        if let Some(errno) = self.begin(Call::Register) {
            return Err(errno);
        }
        let memory = &mut *self.memory.borrow_mut();
        if !memory.pages.contains_key(&range.start) {
            return Err(Errno::INVAL);
        }
        for (_, page) in memory.pages.range_mut(range.start..range.end) {
            page.vma.registered = true;
        }
        Ok(())
    }

    fn unregister(&self, range: PageRange) {
        let memory = &mut *self.memory.borrow_mut();
        for (_, page) in memory.pages.range_mut(range.start..range.end) {
            page.vma.registered = false;
        }
        memory.wake(range);
    }

    fn layout_is_changing(&self) -> bool {
        self.memory.borrow().changing > 0
    }

    fn registration(&self, page: PageIndex) -> Option<bool> {
        (!self.layout_is_changing()).then(|| self.is_registered(page))
    }

    fn mappings(&self, visit: &mut dyn FnMut(Mapping)) -> Result<(), Errno> {
        if let Some(errno) = self.begin(Call::Mappings) {
            return Err(errno);
        }
        let whole = PageRange { start: PageIndex(0), end: PageIndex(u64::MAX) };
        let runs = self.memory.borrow().runs(whole);
        for (range, vma) in runs {
            let (writable, access) = if vma.protected { (false, *b"r--p") } else { (true, *b"rw-p") };
            visit(Mapping { range, writable, access, anonymous: true, name: MappingName::Plain });
        }
        Ok(())
    }

    fn wiped_on_fork(&self, visit: &mut dyn FnMut(PageRange)) -> Result<(), Errno> {
        let whole = PageRange { start: PageIndex(0), end: PageIndex(u64::MAX) };
        let runs = self.memory.borrow().runs(whole);
        runs.into_iter().filter(|(_, vma)| vma.wiped_on_fork).for_each(|(range, _)| visit(range));
        Ok(())
    }

    fn resident(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) -> Result<(), Errno> {
        if let Some(errno) = self.begin(Call::Resident) {
            return Err(errno);
        }
        let memory = self.memory.borrow();
        let mut run: Option<PageRange> = None;
        for (page, _) in memory.pages.range(range.start..range.end).filter(|(_, page)| page.bytes.is_some()) {
            match &mut run {
                Some(run) if run.end == *page => run.end = *page + PageCount(1),
                _ => {
                    if let Some(done) = run.replace(PageRange::new(*page, PageCount(1))) {
                        visit(done);
                    }
                }
            }
        }
        run.into_iter().for_each(visit);
        Ok(())
    }

    /// On Linux a missing page would be brought by the server first; here the answer is an error, which the caller must
    /// bear as well.
    fn unshare(&self, range: PageRange) -> Result<(), Errno> {
        if let Some(errno) = self.begin(Call::Unshare) {
            return Err(errno);
        }
        let memory = &mut *self.memory.borrow_mut();
        for page in range.start.until(range.end) {
            let entry = memory.pages.get_mut(&page).ok_or(Errno::NOMEM)?;
            if entry.vma.protected || entry.bytes.is_none() {
                return Err(Errno::FAULT);
            }
            memory.minor_faults += u64::from(entry.shared);
            entry.shared = false;
        }
        Ok(())
    }

    fn resident_anonymous(&self) -> ByteCount {
        let other = ByteCount(self.memory.borrow().other_bytes);
        (self.present() + self.frames_full()).bytes() + other
    }

    fn proportional_anonymous(&self) -> Option<ByteCount> {
        let memory = self.memory.borrow();
        let shared = memory.pages.values().filter(|page| page.shared && page.bytes.is_some()).count() as u64;
        drop(memory);
        Some(self.resident_anonymous().saturating_sub(ByteCount(PageCount(shared).bytes().0 / 2)))
    }

    fn minor_faults(&self) -> u64 {
        self.memory.borrow().minor_faults
    }

    fn now_ns(&self) -> u64 {
        self.begin(Call::Now);
        self.sleep_ns(TICK_NS);
        self.now_ns.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, count: u64) -> PageRange {
        PageRange::new(PageIndex(start), PageCount(count))
    }

    fn kernel() -> FakeKernel {
        let kernel = FakeKernel::new(PageCount(8));
        kernel.map(range(16, 16));
        kernel.register(range(16, 16)).unwrap();
        kernel
    }

    fn fill(kernel: &FakeKernel, page: u64, byte: u8) {
        let filled = kernel.fill(PageIndex(page), &[PageBytes([byte; PAGE_BYTES])]);
        assert_eq!(filled, partial(1, None));
    }

    fn read(kernel: &FakeKernel, page: u64) -> Option<u8> {
        match kernel.access(1, PageIndex(page), None) {
            Access::Done(bytes) => Some(bytes.0[7]),
            _ => None,
        }
    }

    #[test]
    fn a_missing_page_blocks_until_it_is_filled() {
        let kernel = kernel();
        assert_eq!(read(&kernel, 20), None);
        assert!(kernel.is_waiting(1));
        assert_eq!(kernel.next_message(), Some(Message::Fault { page: PageIndex(20), thread: 1 }));
        fill(&kernel, 20, 7);
        assert!(!kernel.is_waiting(1));
        assert_eq!(read(&kernel, 20), Some(7));
        assert_eq!(kernel.fill(PageIndex(20), &[PageBytes::ZERO]).error, Some(Errno::EXIST));
        assert_eq!(kernel.fill(PageIndex(99), &[PageBytes::ZERO]).error, Some(Errno::NOENT));
    }

    #[test]
    fn moves_are_partial_as_on_linux() {
        let kernel = kernel();
        for page in 16..20 {
            fill(&kernel, page, page as u8);
        }
        kernel.set(range(18, 1), Flag::Pinned, true);
        assert_eq!(kernel.move_out(PageIndex(16), PageCount(4), FrameIndex(0)), partial(2, None));
        assert_eq!(kernel.move_out(PageIndex(18), PageCount(2), FrameIndex(2)), partial(0, Some(Errno::BUSY)));
        assert_eq!(kernel.move_out(PageIndex(17), PageCount(2), FrameIndex(2)), partial(0, Some(Errno::NOENT)));
        kernel.set(range(19, 1), Flag::Locked, true);
        assert_eq!(kernel.move_out(PageIndex(18), PageCount(2), FrameIndex(2)), partial(0, Some(Errno::INVAL)));
        assert_eq!(kernel.move_back(FrameIndex(1), PageIndex(17)), Ok(()));
        assert_eq!(read(&kernel, 17), Some(17));
        assert_eq!(kernel.move_back(FrameIndex(0), PageIndex(17)), Err(Errno::EXIST));
    }

    #[test]
    fn a_discard_has_two_halves() {
        let kernel = kernel();
        fill(&kernel, 16, 5);
        assert_eq!(kernel.discard(2, range(16, 2)), Progress::Stepped);
        assert_eq!(kernel.fill(PageIndex(17), &[PageBytes::ZERO]).error, Some(Errno::AGAIN));
        assert_eq!(kernel.advance(2), Progress::Blocked);
        assert_eq!(read(&kernel, 17), None);
        assert!(matches!(kernel.next_message(), Some(Message::Fault { .. })), "a fault comes before older events");
        assert_eq!(kernel.next_message(), Some(Message::Remove(range(16, 2))));
        assert!(kernel.layout_is_changing());
        assert_eq!(kernel.advance(2), Progress::Stepped);
        assert!(!kernel.layout_is_changing() && kernel.is_present(PageIndex(16)));
        assert_eq!(kernel.advance(2), Progress::Done);
        assert!(!kernel.is_present(PageIndex(16)));
    }

    #[test]
    fn a_remap_moves_first_and_tells_afterwards() {
        let kernel = kernel();
        fill(&kernel, 16, 5);
        assert_eq!(kernel.remap(2, range(16, 2), PageIndex(64), false), Progress::Stepped);
        assert!(kernel.is_registered(PageIndex(65)) && !kernel.is_mapped(PageIndex(16)));
        assert_eq!(kernel.next_message(), Some(Message::Remap { from: range(16, 2), to: PageIndex(64) }));
        kernel.run_waiters();
        assert!(kernel.layout_is_changing());
        assert_eq!(kernel.next_message(), Some(Message::Unmap(range(16, 2))));
        kernel.run_waiters();
        assert!(!kernel.layout_is_changing());
    }

    #[test]
    fn a_child_has_the_memory_and_nothing_of_the_messages() {
        let kernel = kernel();
        fill(&kernel, 16, 5);
        assert_eq!(read(&kernel, 20), None);
        kernel.fork(2);
        let _ = kernel.next_message();
        let Some(Message::Fork(forked)) = kernel.next_message() else { panic!() };
        let child = kernel.take_child(&forked);
        assert_eq!((read(&child, 16), child.next_message()), (Some(5), None));
        assert_eq!(child.move_out(PageIndex(16), PageCount(1), FrameIndex(0)).error, Some(Errno::BUSY));
        assert_eq!(child.unshare(range(16, 1)), Ok(()));
        assert_eq!(child.move_out(PageIndex(16), PageCount(1), FrameIndex(0)), partial(1, None));
    }

    #[test]
    #[should_panic(expected = "would hang")]
    fn an_empty_frame_cannot_be_read() {
        let _ = kernel().frame(FrameIndex(3));
    }
}
