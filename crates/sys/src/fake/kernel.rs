//! The pager's side of the fake kernel.

use alloc::boxed::Box;

use page::{ByteCount, FrameIndex, PAGE_BYTES, PageBytes, PageCount, PageIndex};

use super::memory::{Frame, PlainMessage, Stage};
use super::{Call, FakeKernel, PAGE_NS, POISON, TICK_NS};
use crate::Errno;
use crate::kernel::{ForkedMemory, Kernel, Mapping, MappingName, Message, PageRange, Partial, Uncopied};

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

    pub(super) fn write_frame(&self, frame: usize, bytes: &PageBytes) {
        // SAFETY: inside the array, one thread, and whoever holds a pointer to the frame does not use it now: the pager
        // reads a frame only while it is full, and this fills or poisons it.
        unsafe { core::ptr::copy_nonoverlapping(bytes, self.frames[frame].get(), 1) };
    }
}

/// Some pages done: the reason comes out when one asks again.
pub(super) fn partial(done: u64, error: Option<Errno>) -> Partial {
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
            // Its programs do not say; a write is what it could be.
            return Some(Message::Fault { page, thread, is_write: true });
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

    fn mappings_in(&self, asked: PageRange, visit: &mut dyn FnMut(Mapping)) -> Result<(), Errno> {
        self.mappings(&mut |mapping| {
            if mapping.range.intersection(asked).is_some() {
                visit(mapping);
            }
        })
    }

    fn uncopied(&self, visit: &mut dyn FnMut(PageRange, Uncopied)) -> Result<(), Errno> {
        let whole = PageRange { start: PageIndex(0), end: PageIndex(u64::MAX) };
        let runs = self.memory.borrow().runs(whole);
        for (range, vma) in runs {
            vma.uncopied.into_iter().for_each(|kind| visit(range, kind));
        }
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

    /// It has the processor alone.
    fn thread_ns(&self) -> u64 {
        self.now_ns()
    }

    /// They run all the time, until a test lets them sleep.
    fn others_ns(&self) -> u64 {
        self.asleep_since_ns.get().unwrap_or_else(|| self.now_ns.get())
    }
}
