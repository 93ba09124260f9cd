//! The seam between pleat and Linux: what the pager asks of the kernel, as a trait with a fake for tests.
//!
//! Frames are pages that belong to pleat: the program's pages are moved there, encoded from there, and released.
//! `KERNEL-FACTS` (docs/userfaultfd.md) explains why eviction is a move and not a copy.

use page::{ByteCount, FrameIndex, PageBytes, PageCount, PageIndex};

use crate::Errno;
pub use crate::page_range::PageRange;

/// What the kernel tells about the managed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A thread waits for a missing page.
    Fault {
        /// The page.
        page: PageIndex,
        /// The thread.
        thread: u32,
        /// Whether it writes.
        is_write: bool,
    },
    /// madvise is about to discard a range: from now on its pages are zeros, except those served again later.
    Remove(PageRange),
    /// A range has been unmapped.
    Unmap(PageRange),
    /// A range has moved; `from` is a hole now, or unmapped (then an `Unmap` follows).
    Remap {
        /// Where it was.
        from: PageRange,
        /// Where it starts now.
        to: PageIndex,
    },
    /// The program has forked. The child's faults arrive at this descriptor.
    Fork(ForkedMemory),
}

/// The child's memory after a fork: a userfaultfd descriptor, or whatever a fake kernel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkedMemory(pub i32);

/// What a forked child has instead of its parent's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uncopied {
    /// Empty memory (`MADV_WIPEONFORK`).
    Empty,
    /// Nothing (`MADV_DONTFORK`).
    Absent,
}

/// How far a call over several pages came. `error` says what stopped it; with pages done and no error, ask again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partial {
    /// Pages done, from the first on.
    pub done: PageCount,
    /// What stopped it at the page behind those.
    pub error: Option<Errno>,
}

/// A mapping of the program, as /proc/self/maps tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Its pages.
    pub range: PageRange,
    /// Readable and writable, executable or not: pages can be moved out of nothing else.
    pub writable: bool,
    /// The four letters of /proc/PID/maps: who may read, write and execute it, and whether it is private.
    pub access: [u8; 4],
    /// Private, and of no file.
    pub anonymous: bool,
    /// What the kernel calls it.
    pub name: MappingName,
}

/// The names that make a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappingName {
    /// None, or one that the program gave by prctl.
    Plain,
    /// The brk heap.
    Heap,
    /// The main thread's stack, vdso and the like.
    Special,
    /// A file.
    File,
}

/// Messages read at once.
pub const MESSAGES_MAX: usize = 16;

/// What the pager asks of the kernel. All methods may be called from several threads; those that say so, one at a time.
pub trait Kernel {
    /// The next message, or `None` if there is none now. One reader at a time.
    fn next_message(&self) -> Option<Message>;

    /// Hands at most [`MESSAGES_MAX`] messages to `take`, and says whether there may be more. One reader at a time.
    fn messages(&self, take: &mut dyn FnMut(Message)) -> bool {
        for _ in 0..MESSAGES_MAX {
            let Some(message) = self.next_message() else { return false };
            take(message);
        }
        true
    }

    /// Moves `count` pages from `from` into the frames from `to` on. Atomic against the program's writes: afterwards
    /// the program misses those pages and the frames hold what was last written. One caller at a time.
    ///
    /// Errors: `AGAIN` a layout message is unread or its thread has not run · `NOENT` nothing there · `BUSY` pinned,
    /// or shared with a forked process · `INVAL` locked, or its protection has changed · `EXIST` our bug.
    fn move_out(&self, from: PageIndex, count: PageCount, to: FrameIndex) -> Partial;

    /// Moves a frame back where it came from and wakes who waits there. Errors as for `move_out`; `EXIST` means that
    /// the page is there already.
    fn move_back(&self, frame: FrameIndex, to: PageIndex) -> Result<(), Errno>;

    /// How many pages from `page` on, `count` at most (up to 64), hold nothing, not even a guard region, over which Linux
    /// 6.18 fills.
    fn holes(&self, page: PageIndex, count: PageCount) -> PageCount;

    /// Copies pages into the holes from `to` on and wakes who waits there. `EXIST`: the next one is there already.
    fn fill(&self, to: PageIndex, pages: &[PageBytes]) -> Partial;

    /// Wakes who waits for any of these pages without changing them.
    fn wake(&self, range: PageRange);

    /// Ends what `move_out` may have left to be done later. For a fork, which copies what is where it is.
    fn finish_moves(&self) {}

    /// The content of a frame. Valid until the frame is moved back or released.
    fn frame(&self, frame: FrameIndex) -> *const PageBytes;

    /// Gives frames back to the system.
    fn release(&self, first: FrameIndex, count: PageCount);

    /// Faults and layout changes of the range become messages. Pages that are there stay.
    fn register(&self, range: PageRange) -> Result<(), Errno>;

    /// Undoes `register`. Missing pages read as zeros from then on.
    fn unregister(&self, range: PageRange);

    /// Whether a layout message is unread, or its thread has not run.
    fn layout_is_changing(&self) -> bool;

    /// Whether faults and layout changes of a page become messages now; `None` if that cannot be told, because the layout
    /// is changing.
    fn registration(&self, page: PageIndex) -> Option<bool>;

    /// Whether an unmapping that has been told was refused, as far as what is there now shows it. `managed` is a page of the range
    /// that was registered before, if one is known.
    fn is_refused(&self, _unmapped: PageRange, _managed: Option<PageIndex>) -> bool {
        false
    }

    /// Visits the program's mappings by address.
    fn mappings(&self, visit: &mut dyn FnMut(Mapping)) -> Result<(), Errno>;

    /// Visits, whole, those that have something of `range`. `NOTTY`: the kernel knows them all together only (before Linux 6.11).
    fn mappings_in(&self, range: PageRange, visit: &mut dyn FnMut(Mapping)) -> Result<(), Errno>;

    /// Visits the runs of resident pages of a range.
    fn resident(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) -> Result<(), Errno>;

    /// Visits the runs of pages of a range that have been read and never written, by whomever: the kernel's page of zeros.
    fn zeros(&self, _range: PageRange, _visit: &mut dyn FnMut(PageRange)) -> Result<(), Errno> {
        Ok(())
    }

    /// Makes pages of a registered range missing, without a message. For a child none of whose program's threads runs yet.
    fn forget(&self, _range: PageRange) -> Result<(), Errno> {
        Ok(())
    }

    /// Visits the ranges of which a forked child has something else than its parent.
    fn uncopied(&self, _visit: &mut dyn FnMut(PageRange, Uncopied)) -> Result<(), Errno> {
        Ok(())
    }

    /// Gives this process its own copy of pages that it shares with a forked one, as a write would.
    fn unshare(&self, range: PageRange) -> Result<(), Errno>;

    /// Anonymous memory of the whole process that is resident now, pleat's own included.
    fn resident_anonymous(&self) -> ByteCount;

    /// The part of it that is this process's alone: what it shares with forked ones counts in proportion.
    fn proportional_anonymous(&self) -> Option<ByteCount>;

    /// Faults of this process since it began that needed no device: ours are among them, and each page that it has got
    /// for itself which it shared before.
    fn minor_faults(&self) -> u64;

    /// Time, for measuring and for limits of waiting.
    fn now_ns(&self) -> u64;

    /// Processor time that the calling thread has had.
    fn thread_ns(&self) -> u64;

    /// Processor time that the other threads of this process have had.
    fn others_ns(&self) -> u64;
}
