//! What the fake kernel knows of its process: pages, mappings, and who waits for what.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use page::{PageBytes, PageCount, PageIndex};

use super::{Call, FakeKernel, Progress};
use crate::Errno;
use crate::kernel::{PageRange, Uncopied};

/// Neighbouring pages with equal attributes are one mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Vma {
    pub(super) id: u32,
    pub(super) registered: bool,
    pub(super) locked: bool,
    pub(super) protected: bool,
    pub(super) uncopied: Option<Uncopied>,
}

#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) vma: Vma,
    pub(super) bytes: Option<Box<PageBytes>>,
    pub(super) pinned: bool,
    pub(super) shared: bool,
    pub(super) guarded: bool,
}

/// A layout change whose thread has not returned.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Messages to come after the present one.
    pub(super) later: VecDeque<PlainMessage>,
    pub(super) stage: Stage,
    /// What madvise discards in its second half.
    pub(super) zap: Option<PageRange>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Unread,
    Read,
    /// Its message is read and followed, others may fill and move, and only now the pages go.
    Zapping,
}

/// A layout message that can be copied with the rest of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PlainMessage {
    Remove(PageRange),
    Unmap(PageRange),
    Remap { from: PageRange, to: PageIndex },
    Fork(i32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    Empty,
    Full,
    /// Full, and a forked process has it too.
    Shared,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) pages: BTreeMap<PageIndex, Page>,
    pub(super) frames: Vec<Frame>,
    pub(super) vmas_made: u32,
    pub(super) faults: VecDeque<(PageIndex, u32)>,
    /// Threads in a fault, whether or not its message has been read.
    pub(super) waiting: BTreeMap<u32, PageIndex>,
    pub(super) events: VecDeque<(u32, PlainMessage)>,
    /// Messages of threads that have done the deed and have not come to telling of it.
    pub(super) late: VecDeque<(u32, PlainMessage)>,
    pub(super) layouts: BTreeMap<u32, Layout>,
    /// Layout messages whose threads have not run on.
    pub(super) changing: u32,
    pub(super) children: BTreeMap<i32, FakeKernel>,
    /// Answers to be given instead of the true ones.
    pub(super) failures: Vec<(Call, Errno)>,
    pub(super) other_bytes: u64,
    /// Pages filled, and shared pages that have been written to, by the program or for it.
    pub(super) minor_faults: u64,
}

impl Memory {
    pub(super) fn map(&mut self, range: PageRange) {
        self.vmas_made += 1;
        let vma = Vma { id: self.vmas_made, registered: false, locked: false, protected: false, uncopied: None };
        for page in range.start.until(range.end) {
            let old = self.pages.insert(page, Page { vma, bytes: None, pinned: false, shared: false, guarded: false });
            assert!(old.is_none(), "{page:?} is mapped already");
        }
    }

    /// Unmaps what is there; the messages about it.
    pub(super) fn unmap(&mut self, range: PageRange) -> VecDeque<PlainMessage> {
        let messages = self.registered_runs(range).into_iter().map(PlainMessage::Unmap).collect();
        self.pages.retain(|page, _| !range.contains(*page));
        messages
    }

    pub(super) fn zap(&mut self, range: PageRange) {
        for (_, page) in self.pages.range_mut(range.start..range.end) {
            page.bytes = None;
            page.pinned = false;
            page.shared = false;
        }
    }

    pub(super) fn is_registered_somewhere(&self, range: PageRange) -> bool {
        self.pages.range(range.start..range.end).any(|(_, page)| page.vma.registered)
    }

    /// The parts of a range that are registered, one for each mapping.
    pub(super) fn registered_runs(&self, range: PageRange) -> Vec<PageRange> {
        self.runs(range).into_iter().filter(|(_, vma)| vma.registered).map(|(run, _)| run).collect()
    }

    /// Mappings, cut to a range.
    pub(super) fn runs(&self, range: PageRange) -> Vec<(PageRange, Vma)> {
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
    pub(super) fn whole(&self, range: PageRange) -> Option<Vma> {
        match self.runs(range)[..] {
            [(run, vma)] if run == range => Some(vma),
            _ => None,
        }
    }

    /// A thread posts its first message and waits.
    pub(super) fn change(
        &mut self,
        thread: u32,
        mut messages: VecDeque<PlainMessage>,
        zap: Option<PageRange>,
    ) -> Progress {
        assert!(!self.waiting.contains_key(&thread), "a thread that waits");
        let Some(first) = messages.pop_front() else { return Progress::Done };
        // Linux counts each message before the first is posted.
        self.changing += 1 + messages.len() as u32;
        self.events.push_back((thread, first));
        let old = self.layouts.insert(thread, Layout { later: messages, stage: Stage::Unread, zap });
        assert!(old.is_none(), "a thread that waits");
        Progress::Stepped
    }

    pub(super) fn wake(&mut self, range: PageRange) {
        self.waiting.retain(|_, page| !range.contains(*page));
        self.faults.retain(|(page, _)| !range.contains(*page));
    }

    pub(super) fn move_out_page(&mut self, page: PageIndex) -> Result<Box<PageBytes>, Errno> {
        let entry = self.pages.get_mut(&page).expect("looked up before");
        if entry.bytes.is_some() && (entry.pinned || entry.shared) {
            return Err(Errno::BUSY);
        }
        entry.bytes.take().ok_or(Errno::NOENT)
    }
}
