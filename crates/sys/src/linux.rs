//! Linux as the pager sees it: two userfaultfds, a staging area, frames, and files of /proc.
//!
//! Eviction is a chain of two moves. The first goes through the userfaultfd that owns the program's memory, so that
//! the kernel refuses it while a layout message is pending; it ends in the staging area, which the same descriptor
//! owns. The second goes through a userfaultfd without any events and ends in the frames, which can then be released
//! without a message that only we could read (docs/userfaultfd.md). A move interrupts every processor that the program
//! runs on, whatever the number of pages, so the second move waits until the staging area is full or a frame is wanted.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use page::{ByteCount, FrameIndex, PAGE_BYTES, PageBytes, PageCount, PageIndex};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Timespec;
use rustix::mm::{Advice, MprotectFlags};

use crate::badge::Badge;
use crate::kernel::{Kernel, Mapping, MappingName, Message, PageRange, Partial, Uncopied};
use crate::maps::{CODE, Content};
use crate::proc_files::ProcFiles;
use crate::sync::Lock;
use crate::uffd::{Faults, Uffd, feature};
use crate::{Area, Errno, clock, kept, maps, remap, user_mode};

/// Pages that one `move_out` can take.
pub const STAGING_PAGES: PageCount = PageCount(64);
const _: () = assert!(STAGING_PAGES.0 <= maps::LEADING_PAGES_MAX as u64, "what has arrived must be seen whole");
/// Descriptors beside the program's that one `wait_for_any` looks at.
pub const OTHERS_MAX: usize = 255;
/// How a move is refused of pages that are locked, or of another kind than where they would go.
const NOT_ALLOWED: Partial = Partial { done: PageCount::ZERO, error: Some(Errno::INVAL) };
/// Tries of the second move: it can meet a passing `AGAIN` or `BUSY`, never a lasting one.
const SECOND_MOVE_TRIES: u32 = 1000;

/// The real kernel.
#[derive(Debug)]
pub struct Linux {
    /// Owns the program's ranges and the staging area; events are on.
    program: Uffd,
    /// Owns the frames; no events.
    frames_uffd: Uffd,
    staging: Area,
    frames: Area,
    badge: Badge,
    /// What lies in the staging area.
    staged: Lock<Staged>,
    /// Whether the program has memory that is writable and executable.
    has_code: AtomicBool,
    files: ProcFiles,
    /// An address of the main thread's stack.
    stack: usize,
}

/// What a process opens beside the userfaultfd of its program. Belongs to the calling thread's descriptor table.
#[derive(Debug)]
pub struct Openings {
    frames_uffd: Uffd,
    files: ProcFiles,
}

impl Openings {
    /// Opens all of it; for `neighbour` and `page_map` see [`ProcFiles::open`].
    pub fn open(neighbour: Option<&OwnedFd>, page_map: &dyn Fn() -> Option<OwnedFd>) -> Result<Self, Errno> {
        let files = ProcFiles::open(neighbour, page_map)?;
        // Nobody waits for a fault in the frames. Serving those of user mode only needs no permission, which the program
        // may have given up before it forked. The device has no such kind.
        let frames_uffd =
            Uffd::open(feature::MOVE, Faults::OfUserMode).or_else(|_| Uffd::open(feature::MOVE, Faults::All))?;
        Ok(Self { frames_uffd, files })
    }
}

/// Pages from the start of the staging area on, and the frames that they are meant for.
#[derive(Clone, Copy, Debug, Default)]
struct Staged {
    count: u32,
    first: u32,
    /// What may be done in the area now. A page moves only to where the same may be done.
    access: Access,
    /// What it was when pages came last.
    last: Access,
}

/// The kinds of memory that pages can be moved out of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Access {
    #[default]
    Data,
    /// Executable, too.
    Code,
}

impl Access {
    fn other(self) -> Self {
        match self {
            Self::Data => Self::Code,
            Self::Code => Self::Data,
        }
    }

    fn allow_in(self, staging: &Area) -> Result<(), Errno> {
        let execute = if self == Self::Code { MprotectFlags::EXEC } else { MprotectFlags::empty() };
        let flags = MprotectFlags::READ | MprotectFlags::WRITE | execute;
        // SAFETY: the area is ours, and stays readable and writable.
        unsafe { rustix::mm::mprotect(staging.base().cast(), staging.bytes(), flags) }
    }
}

impl Staged {
    fn holds(self, frame: FrameIndex) -> bool {
        (self.first..self.first + self.count).contains(&frame.0)
    }
}

/// Memory that outlives a fork: the child goes on with its copy of it.
#[derive(Debug)]
pub struct Quarters {
    staging: Area,
    frames: Area,
    badge: Badge,
    stack: usize,
}

impl Quarters {
    /// Reserves a staging area and `frames` frames. `stack` is an address of the main thread's stack.
    pub fn reserve(frames: PageCount, stack: usize) -> Result<Self, Errno> {
        let staging = Area::reserve(STAGING_PAGES.bytes().0 as usize)?;
        Ok(Self { staging, frames: Area::reserve(frames.bytes().0 as usize)?, badge: Badge::reserve()?, stack })
    }
}

impl Linux {
    /// Begins with the program's userfaultfd; what is opened belongs to the calling thread's descriptor table.
    pub fn begin(program: Uffd, quarters: Quarters, openings: Openings) -> Result<Self, Errno> {
        program.register(area_range(&quarters.staging))?;
        quarters.badge.appear_in(&program)?;
        Self::inherit(program, quarters, openings)
    }

    /// After a fork, in the child: the userfaultfd that the fork message brought already owns all that the parent's
    /// owned.
    pub fn inherit(program: Uffd, quarters: Quarters, openings: Openings) -> Result<Self, Errno> {
        let Openings { frames_uffd, files } = openings;
        frames_uffd.register_target(area_range(&quarters.frames))?;
        quarters.badge.appear_to(&program)?;
        Ok(Self {
            program,
            frames_uffd,
            files,
            staging: quarters.staging,
            frames: quarters.frames,
            badge: quarters.badge,
            staged: Lock::new(Staged::default()),
            has_code: AtomicBool::new(false),
            stack: quarters.stack,
        })
    }

    /// What /proc says of this process.
    pub fn files(&self) -> &ProcFiles {
        &self.files
    }

    /// Sleeps until there is a message, or for `limit`. Says whether there is one.
    pub fn wait_for_messages(&self, limit: Option<Duration>) -> bool {
        let mut fds = [PollFd::new(&self.program, PollFlags::IN)];
        let limit = limit.map(crate::clock::timespec);
        // Signals are blocked; any other outcome means to look.
        rustix::event::poll(&mut fds, limit.as_ref()) != Ok(0)
    }

    /// Sleeps until there is a message of this process or something to read from one of `others`, of which the first
    /// [`OTHERS_MAX`] count; at most for `limit`.
    pub fn wait_for_any<'a>(&'a self, others: impl Iterator<Item = BorrowedFd<'a>>, limit: Duration) {
        let mut all = [self.program.as_fd(); 1 + OTHERS_MAX];
        let used = 1 + all[1..].iter_mut().zip(others).map(|(slot, other)| *slot = other).count();
        let mut fds = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let fds = &mut fds[..used];
        let _ = rustix::event::poll(fds, Some(&crate::clock::timespec(limit)));
    }

    /// The number of the program's userfaultfd.
    pub fn number(&self) -> i32 {
        self.program.number()
    }

    /// What tells this process's memory from that of its forked children.
    pub fn badge(&self) -> &Badge {
        &self.badge
    }

    /// Whether there is a message now.
    pub fn has_messages(&self) -> bool {
        let mut fds = [PollFd::new(&self.program, PollFlags::IN)];
        matches!(rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
    }

    /// Frames there are.
    pub fn frame_count(&self) -> PageCount {
        PageCount((self.frames.bytes() / PAGE_BYTES) as u64)
    }

    /// A page that the program's userfaultfd serves and nobody else uses, for [`Uffd::is_orphaned`].
    pub fn probe(&self) -> PageIndex {
        PageIndex::containing(self.staging.base() as u64)
    }

    /// The addresses that must never be managed.
    pub fn own_spans(&self) -> [core::ops::Range<u64>; 3] {
        [self.staging.span(), self.frames.span(), self.badge.span()]
    }

    /// Takes the memory out of a kernel whose descriptors belong to another process: the child's copy after a fork.
    /// The descriptors are forgotten, not closed: their numbers mean something else here.
    pub fn into_quarters(self) -> Quarters {
        // Not by its lock: a thread of the parent's may have held that.
        assert!(self.staged.into_inner().count == 0, "a fork with pages in the staging area");
        let allowed = Access::Data.allow_in(&self.staging);
        assert!(allowed.is_ok(), "the staging area cannot become data again: {allowed:?}");
        self.files.forget();
        core::mem::forget(self.program);
        core::mem::forget(self.frames_uffd);
        Quarters { staging: self.staging, frames: self.frames, badge: self.badge, stack: self.stack }
    }

    fn frame_address(&self, frame: FrameIndex) -> u64 {
        assert!((frame.0 as usize) < self.frames.bytes() / PAGE_BYTES);
        self.frames.base() as u64 + (u64::from(frame.0) << page::PAGE_SHIFT)
    }

    /// The second move of the chain. What has left the program must arrive: there is nowhere else to keep it.
    fn flush(&self, staged: &mut Staged) {
        let allowed = self.allow(staged, Access::Data);
        assert!(allowed.is_ok(), "the staging area cannot become data again: {allowed:?}");
        let count = PageCount(u64::from(staged.count));
        let mut done = PageCount::ZERO;
        let mut error = None;
        for _ in 0..SECOND_MOVE_TRIES {
            if done == count {
                (staged.count, staged.first) = (0, 0);
                return;
            }
            let source = self.staging.base() as u64 + done.bytes().0;
            let target = self.frame_address(FrameIndex(staged.first)) + done.bytes().0;
            // SAFETY: the staging area is ours alone, and so are the frames.
            let moved = unsafe { self.move_in(&self.frames_uffd, target, source, count - done) };
            done += moved.done;
            error = moved.error.or(error);
            if moved.error == Some(Errno::BUSY) {
                // A fork past libc's handlers has made the pages its child's too: take copies of our own.
                let start = self.staging.base().wrapping_add(done.bytes().0 as usize).cast();
                // SAFETY: populating for writing changes no content, and the pages are there: no fault comes of it.
                let _ = unsafe {
                    rustix::mm::madvise(start, (count - done).bytes().0 as usize, Advice::LinuxPopulateWrite)
                };
            }
        }
        panic!("pages cannot leave the staging area: {error:?}, {done:?} of {staged:?}");
    }

    /// Makes the staging area one of that kind.
    fn allow(&self, staged: &mut Staged, access: Access) -> Result<(), Errno> {
        if staged.access != access {
            access.allow_in(&self.staging)?;
            staged.access = access;
        }
        Ok(())
    }

    /// Moves pages behind those that are staged.
    fn stage(&self, staged: &mut Staged, from: PageIndex, count: PageCount) -> Partial {
        let target = self.staging.base() as u64 + PageCount(u64::from(staged.count)).bytes().0;
        let moved = self.move_unless_held(target, from, count);
        if moved.done > PageCount::ZERO {
            staged.count += moved.done.0 as u32;
            staged.last = staged.access;
        }
        moved
    }

    /// Moves pages to where nothing is, and where nobody but us puts anything.
    ///
    /// # Safety
    /// As for [`Uffd::move_pages`].
    unsafe fn move_in(&self, uffd: &Uffd, target: u64, source: u64, count: PageCount) -> Partial {
        // SAFETY: the caller's promise.
        let told = unsafe { uffd.move_pages(target, source, count) };
        if told.done == count { told } else { arrived(told, self.pages_at(target, count), count) }
    }

    /// Pages of ours that are there from `address` on.
    fn pages_at(&self, address: u64, count: PageCount) -> PageCount {
        self.files
            .leading(PageIndex::containing(address), count, Content::Something)
            .unwrap_or_else(|error| panic!("our own pagemap cannot be read: {error:?}"))
    }

    /// The first move of the chain. What is kept stays, and in user mode what a system call is at work on: the run ends before
    /// that.
    fn move_unless_held(&self, target: u64, from: PageIndex, count: PageCount) -> Partial {
        let move_pages = |count| {
            // SAFETY: managed memory is never borrowed as Rust references, and the program finds its pages missing,
            // which is what a pager is for.
            unsafe { self.move_in(&self.program, target, from.address(), count) }
        };
        let (start, end) = (from.address(), (from + count).address());
        let move_before = |held| match PageIndex::containing(held) - from {
            // As for a page that is locked: it keeps its place for some rounds.
            PageCount::ZERO => NOT_ALLOWED,
            free => move_pages(free),
        };
        if user_mode::is_armed() {
            user_mode::while_nothing_before_is_held(start, end, move_before)
        } else {
            move_before(kept::first_in(start, end))
        }
    }

    /// A mapping as the pager is to see it.
    fn seen(&self, mapping: Mapping) -> Mapping {
        // Relaxed: who does not see it yet leaves a page where it is, for some rounds.
        self.has_code.fetch_or(mapping.anonymous && mapping.access == CODE, Ordering::Relaxed);
        let is_stack = user_mode::has_stack(mapping.range.start.address(), mapping.range.end.address());
        if is_stack { Mapping { name: MappingName::Special, ..mapping } } else { mapping }
    }

    fn flush_if(&self, wanted: impl Fn(Staged) -> bool) {
        let mut staged = self.staged.lock();
        if staged.count > 0 && wanted(*staged) {
            self.flush(&mut staged);
        }
    }
}

/// What a move has come to, if `there` of `count` pages are at the target now.
///
/// Linux 6.18 miscounts: once it has met a page that another processor had locked for a moment, it goes on and moves what
/// follows, but does not count that, tries the same pages again and ends with `NOENT`. To believe it would be to lose
/// those pages.
fn arrived(told: Partial, there: PageCount, count: PageCount) -> Partial {
    match there {
        _ if there == count => Partial { done: count, error: None },
        PageCount::ZERO => told,
        // What stopped it is asked for again.
        _ => Partial { done: there, error: None },
    }
}

pub(crate) fn area_range(area: &Area) -> PageRange {
    PageRange::new(PageIndex::containing(area.base() as u64), PageCount((area.bytes() / PAGE_BYTES) as u64))
}

impl Kernel for Linux {
    fn next_message(&self) -> Option<Message> {
        self.program.read()
    }

    fn messages(&self, take: &mut dyn FnMut(Message)) -> bool {
        self.program.read_batch(take)
    }

    fn move_out(&self, from: PageIndex, count: PageCount, to: FrameIndex) -> Partial {
        assert!(count <= STAGING_PAGES);
        let mut staged = self.staged.lock();
        let fits = PageCount(u64::from(staged.count)) + count <= STAGING_PAGES;
        if staged.count > 0 && (to.0 != staged.first + staged.count || !fits) {
            self.flush(&mut staged);
        }
        if staged.count == 0 {
            staged.first = to.0;
            let last = staged.last;
            // What may not become executable stays as it is, and what is executable stays with the program.
            let _ = self.allow(&mut staged, last);
        }
        let moved = self.stage(&mut staged, from, count);
        if moved != NOT_ALLOWED || !self.has_code.load(Ordering::Relaxed) {
            return moved;
        }
        if staged.count > 0 {
            self.flush(&mut staged);
            staged.first = to.0;
        }
        let other = staged.access.other();
        match self.allow(&mut staged, other) {
            Ok(()) => self.stage(&mut staged, from, count),
            Err(_) => moved,
        }
    }

    fn move_back(&self, frame: FrameIndex, to: PageIndex) -> Result<(), Errno> {
        self.flush_if(|staged| staged.holds(frame));
        // SAFETY: the caller owns the frame and will not use its content any more.
        let moved = unsafe { self.program.move_pages(to.address(), self.frame_address(frame), PageCount(1)) };
        match moved.error {
            None => Ok(()),
            // See `arrived`: what has left the frame is with the program.
            Some(Errno::NOENT) if self.pages_at(self.frame_address(frame), PageCount(1)) == PageCount::ZERO => Ok(()),
            Some(error) => Err(error),
        }
    }

    fn holes(&self, page: PageIndex, count: PageCount) -> PageCount {
        self.files.leading(page, count, Content::Nothing).unwrap_or(PageCount::ZERO)
    }

    fn fill(&self, to: PageIndex, pages: &[PageBytes]) -> Partial {
        // SAFETY: a slice is readable for its whole length.
        unsafe { self.program.copy(to, pages.as_ptr().cast(), PageCount(pages.len() as u64)) }
    }

    fn wake(&self, range: PageRange) {
        // The only error is a range that is not one; ours are.
        let _ = self.program.wake(range);
    }

    fn finish_moves(&self) {
        self.flush_if(|_| true);
    }

    fn frame(&self, frame: FrameIndex) -> *const PageBytes {
        self.flush_if(|staged| staged.holds(frame));
        self.frame_address(frame) as *const PageBytes
    }

    fn release(&self, first: FrameIndex, count: PageCount) {
        self.frames.release(first.0 as usize * PAGE_BYTES, count.bytes().0 as usize);
    }

    fn register(&self, range: PageRange) -> Result<(), Errno> {
        self.program.register(range)
    }

    fn unregister(&self, range: PageRange) {
        // INVAL: parts are not mapped any more, and what is not mapped needs no undoing.
        let _ = self.program.unregister(range);
    }

    fn layout_is_changing(&self) -> bool {
        self.program.layout_is_changing()
    }

    fn registration(&self, page: PageIndex) -> Option<bool> {
        self.program.is_registered(page)
    }

    /// Linux 6.12 tells of an unmapping that it then refuses because something in the range is sealed: where something registered lies
    /// before the first such mapping. What is sealed is never unmapped; and if another thread has mapped and sealed something there
    /// since, nothing before it is registered.
    fn is_refused(&self, unmapped: PageRange, managed: Option<PageIndex>) -> bool {
        // By the one without events, which answers while the other's layout is changing, for whatever is registered with any. First:
        // to look for seals takes longer, and the lock that the program's next call wants.
        if managed.is_some_and(|page| self.frames_uffd.is_registered(page) != Some(true)) {
            return false;
        }
        let (mut at, mut is_told) = (unmapped.start, false);
        while let Ok(mapping) = self.files.range_from(at)
            && mapping.start < unmapped.end
        {
            let first = mapping.start.max(at);
            if remap::is_sealed(first, self.stack) {
                return is_told;
            }
            is_told |= self.frames_uffd.is_registered(first) == Some(true);
            at = mapping.end;
        }
        false
    }

    fn mappings(&self, visit: &mut dyn FnMut(Mapping)) -> Result<(), Errno> {
        self.files.mappings(&mut |mapping| visit(self.seen(mapping)))
    }

    fn mappings_in(&self, range: PageRange, visit: &mut dyn FnMut(Mapping)) -> Result<(), Errno> {
        let mut at = range.start;
        while at < range.end {
            let mapping = match self.files.mapping_from(at) {
                Ok(mapping) => mapping,
                Err(Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            if mapping.range.start >= range.end {
                return Ok(());
            }
            at = mapping.range.end;
            visit(self.seen(mapping));
        }
        Ok(())
    }

    fn uncopied(&self, visit: &mut dyn FnMut(PageRange, Uncopied)) -> Result<(), Errno> {
        self.files.uncopied(visit)
    }

    fn resident(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) -> Result<(), Errno> {
        self.files.resident(range, visit)
    }

    fn zeros(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) -> Result<(), Errno> {
        self.files.zeros(range, visit)
    }

    fn forget(&self, range: PageRange) -> Result<(), Errno> {
        // While it is registered the kernel would wait until the message about it has been read.
        self.unregister(range);
        let start = range.start.address() as *mut core::ffi::c_void;
        // SAFETY: the caller's promise: what these pages hold the program has never seen.
        unsafe { rustix::mm::madvise(start, range.count().bytes().0 as usize, Advice::LinuxDontNeed) }?;
        self.register(range)
    }

    fn unshare(&self, range: PageRange) -> Result<(), Errno> {
        let start = range.start.address() as *mut core::ffi::c_void;
        // SAFETY: populating for writing changes no content: it does what the program's next write would do.
        unsafe { rustix::mm::madvise(start, range.count().bytes().0 as usize, Advice::LinuxPopulateWrite) }
    }

    fn resident_anonymous(&self) -> ByteCount {
        self.files.resident_anonymous().unwrap_or(ByteCount::ZERO)
    }

    fn proportional_anonymous(&self) -> Option<ByteCount> {
        self.files.proportional_anonymous()
    }

    fn minor_faults(&self) -> u64 {
        self.files.minor_faults().unwrap_or(0)
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn thread_ns(&self) -> u64 {
        clock::thread_ns()
    }

    fn others_ns(&self) -> u64 {
        // Without the clock they are taken to run all the time.
        clock::own_process_ns().map_or_else(clock::now_ns, |whole| whole.saturating_sub(clock::thread_ns()))
    }
}

#[cfg(test)]
mod tests;
