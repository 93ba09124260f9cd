//! Areas: stretches of address space that belong to pleat alone.
//!
//! The kernel merges neighbouring anonymous mappings, and a program may map memory right beside ours; a page without
//! any access at each end keeps an area a mapping of its own (KERNEL-FACTS, "Living inside somebody else's program").

use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use page::{PAGE_BYTES, PageBytes, PageIndex};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use crate::kernel::PageRange;
use crate::{Errno, apart};

/// Frees pages that mlockall has locked, too (Linux 5.18); rustix has no name for it.
const MADV_DONTNEED_LOCKED: i32 = 24;

/// Steps in which a closed area is opened.
const OPENING_BYTES: usize = 2 << 20;

/// A private, anonymous, lazily populated mapping between two guard pages. Unmapped on drop.
#[derive(Debug)]
pub struct Area {
    base: NonNull<u8>,
    bytes: usize,
    /// How much of it, from the base on, may be read and written.
    open: usize,
}

// SAFETY: an `Area` is an address range, not the data in it; those who share the data keep it consistent.
unsafe impl Send for Area {}
// SAFETY: as above; no method hands out a reference to the content.
unsafe impl Sync for Area {}

impl Area {
    /// Reserves `bytes` (rounded up to pages) of zeros. Costs address space only: frames come with the first write.
    pub fn reserve(bytes: usize) -> Result<Self, Errno> {
        let mut area = Self::reserve_closed(bytes)?;
        area.open_to(area.bytes)?;
        Ok(area)
    }

    /// Reserves addresses without any access, which not even mlockall fills. [`Area::open_to`] makes them usable.
    pub fn reserve_closed(bytes: usize) -> Result<Self, Errno> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let whole_bytes = bytes + 2 * PAGE_BYTES;
        let whole = apart::map(whole_bytes, |at, fixed| {
            // SAFETY: a new mapping where nothing is touches no memory that anybody else uses.
            unsafe { rustix::mm::mmap_anonymous(at, whole_bytes, ProtFlags::empty(), flags | fixed) }
        })?;
        let base = whole.cast::<u8>().wrapping_add(PAGE_BYTES);
        let area = Self { base: NonNull::new(base).ok_or(Errno::NOMEM)?, bytes, open: 0 };
        own::add(area.span())?;
        adapt(base, bytes);
        Ok(area)
    }

    /// Makes the first `bytes`, or some more, readable and writable. Does nothing if they are.
    pub fn open_to(&mut self, bytes: usize) -> Result<(), Errno> {
        assert!(bytes <= self.bytes, "opened beyond its end");
        if bytes <= self.open {
            return Ok(());
        }
        let open = bytes.next_multiple_of(OPENING_BYTES).min(self.bytes);
        let start = self.base.as_ptr().wrapping_add(self.open);
        make_usable(start, open - self.open)?;
        self.open = open;
        Ok(())
    }

    /// How much of it may be read and written, from the base on.
    pub fn open_bytes(&self) -> usize {
        self.open
    }

    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// How long it is, guard pages not counted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The addresses of the whole mapping, guard pages included.
    pub fn span(&self) -> core::ops::Range<u64> {
        let base = self.base.as_ptr() as u64;
        base - PAGE_BYTES as u64..base + (self.bytes + PAGE_BYTES) as u64
    }

    /// Leaves the mapping to who knows its base, until [`Area::adopt`].
    pub fn leave(self) -> NonNull<u8> {
        let base = self.base;
        core::mem::forget(self);
        base
    }

    /// The area of so many bytes that was left at `base`; `None` if there is none that begins there.
    ///
    /// # Safety
    /// If one was left there, then for the caller, once, and nobody uses it any more when what is returned is dropped.
    pub unsafe fn adopt(base: NonNull<u8>, bytes: usize) -> Option<Self> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let area = core::mem::ManuallyDrop::new(Self { base, bytes, open: bytes });
        own::has(&area.span()).then(|| core::mem::ManuallyDrop::into_inner(area))
    }

    /// Gives the frames under `offset..offset + bytes` back to the system; the range reads as zeros afterwards.
    /// Both are multiples of [`PAGE_BYTES`].
    pub fn release(&self, offset: usize, bytes: usize) {
        assert!(offset.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES));
        assert!(offset <= self.bytes && bytes <= self.bytes - offset);
        let start = self.base.as_ptr().wrapping_add(offset);
        // SAFETY: the range lies inside this mapping (asserted above). No Rust reference points into an area: its
        // users keep raw pointers, and call this only for frames that hold nothing any more.
        let released = unsafe { crate::remap::advise(start as usize, bytes, MADV_DONTNEED_LOCKED) };
        assert!(released.is_ok(), "MADV_DONTNEED_LOCKED on our own mapping: {released:?}");
    }
}

/// Makes a closed stretch of an area, of which nothing is used yet, readable and writable. It does not count for the program's limit on
/// data (`RLIMIT_DATA`).
pub(crate) fn make_usable(start: *mut u8, bytes: usize) -> Result<(), Errno> {
    if getrlimit(Resource::Data).current.is_none() && open(start, bytes).is_ok() {
        return Ok(());
    }
    // The kernel counts no mapping of the kind that stacks are. It grows into what is free below it: that is never free in an area.
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::GROWSDOWN | MapFlags::FIXED;
    // SAFETY: the stretch is the area's, and nobody has it yet.
    unsafe { rustix::mm::mmap_anonymous(start.cast(), bytes, ProtFlags::empty(), flags) }?;
    adapt(start, bytes);
    open(start, bytes)
}

fn open(start: *mut u8, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the range lies inside an area; who may use it does not lose anything.
    unsafe { rustix::mm::mprotect(start.cast(), bytes, MprotectFlags::READ | MprotectFlags::WRITE) }
}

/// What is ours is neither locked nor huge.
fn adapt(start: *mut u8, bytes: usize) {
    // After the program's mlockall(MCL_FUTURE) it would be locked: filled when it is opened, and a page that
    // is locked cannot leave the program for a place that is not, nor the other way round.
    // SAFETY: the range is ours; no content changes. The only error is a range that is not mapped.
    let _ = unsafe { rustix::mm::munlock(start.cast(), bytes) };
    // A huge page would make one small encoding cost 2 MiB. Kernels without huge pages answer EINVAL; nothing
    // is lost then.
    // SAFETY: the advice concerns the same range and changes no content.
    let _ = unsafe { rustix::mm::madvise(start.cast(), bytes, Advice::LinuxNoHugepage) };
}

impl Drop for Area {
    fn drop(&mut self) {
        let whole = self.base.as_ptr().wrapping_sub(PAGE_BYTES).cast::<c_void>();
        // A scan that found it writable and no area any more would take it for the program's memory, and the unmapping would
        // send a message that perhaps this thread is to read.
        // SAFETY: the owner is being dropped, so nobody uses the content.
        let closed = unsafe { rustix::mm::mprotect(self.base.as_ptr().cast(), self.bytes, MprotectFlags::empty()) };
        if closed.is_err() {
            return; // It stays an area.
        }
        own::remove(self.span());
        // SAFETY: exactly the mapping made in `reserve`; its owner is being dropped. An error leaves it mapped, which
        // wastes address space and harms nothing.
        let _ = unsafe { rustix::mm::munmap(whole, self.bytes + 2 * PAGE_BYTES) };
    }
}

/// Gives the frames under whole pages of these bytes back to the system; they read as zeros, or as before, afterwards. For
/// buffers that hold nothing now, in private anonymous memory, as all of a heap's is.
pub fn relinquish(bytes: &mut [u8]) {
    let start = bytes.as_ptr().addr().next_multiple_of(PAGE_BYTES);
    let end = (bytes.as_ptr().addr() + bytes.len()) / PAGE_BYTES * PAGE_BYTES;
    if start < end {
        // SAFETY: the pages lie inside bytes that nobody else can see, and any bytes are good ones. An error leaves them.
        let _ = unsafe { crate::remap::advise(start, end - start, MADV_DONTNEED_LOCKED) };
    }
}

/// The same for pages one behind the other.
pub fn relinquish_pages(pages: &mut [PageBytes]) {
    // SAFETY: pages are bytes, without room between them.
    relinquish(unsafe { core::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), size_of_val(pages)) });
}

/// Unlocks all areas, which mlockall locks with everything else.
pub fn unlock_own() {
    own::visit(&mut |span| {
        let (start, bytes) = (span.start as *mut c_void, (span.end - span.start) as usize);
        // SAFETY: no content changes. An area that has just been dropped leaves a range that is not mapped, or that a
        // thread has mapped since: the program's own, which is then as if it had been mapped a moment later.
        let _ = unsafe { rustix::mm::munlock(start, bytes) };
    });
}

/// Whether any of these addresses lies in an area.
pub fn is_own(addresses: core::ops::Range<u64>) -> bool {
    own::overlaps(addresses)
}

/// Visits the parts of `range` that lie in areas.
pub fn inside_own(range: PageRange, visit: &mut dyn FnMut(PageRange)) {
    own::visit(&mut |span| pages(&span).intersection(range).into_iter().for_each(&mut *visit));
}

fn pages(span: &core::ops::Range<u64>) -> PageRange {
    PageRange { start: PageIndex(span.start / PAGE_BYTES as u64), end: PageIndex(span.end / PAGE_BYTES as u64) }
}

/// Makes addresses count as an area's, for who plays with a fake kernel; and lets them be nobody's again.
#[cfg(feature = "testing")]
pub fn pretend_own(range: PageRange) -> impl Drop {
    struct Pretended(core::ops::Range<u64>);
    impl Drop for Pretended {
        fn drop(&mut self) {
            own::remove(self.0.clone());
        }
    }
    let span = range.start.address()..range.end.address();
    let added = own::add(span.clone());
    assert!(added.is_ok(), "too many areas");
    Pretended(span)
}

/// Visits the parts of `range`, by address, that lie in no area.
pub fn outside_own(range: PageRange, visit: &mut dyn FnMut(PageRange)) {
    let mut start = range.start;
    while start < range.end {
        // The area that begins first behind `start`, or holds it.
        let mut next = PageRange { start: range.end, end: range.end };
        own::visit(&mut |span| {
            let area = pages(&span);
            if start < area.end && area.start < next.start {
                next = area;
            }
        });
        if start < next.start {
            visit(PageRange { start, end: next.start });
        }
        start = next.end;
    }
}

/// Addresses in all areas.
pub fn own_bytes() -> u64 {
    let mut bytes = 0;
    own::visit(&mut |span| bytes += span.end - span.start);
    bytes
}

/// All areas of this process, so that a scan of the program's mappings can pass over them. A plain table of atomic
/// numbers: it is written by whoever makes an area and read by the scan, and a forked child finds it as it was.
mod own {
    use super::{AtomicU64, Errno, Ordering};

    /// Areas there can be: a handful for threads, pool and frames, and one for each step in which the heap grows.
    const AREAS_MAX: usize = 512;

    struct Span {
        start: AtomicU64,
        end: AtomicU64,
    }

    static SPANS: [Span; AREAS_MAX] = [const { Span { start: AtomicU64::new(0), end: AtomicU64::new(0) } }; AREAS_MAX];

    pub(super) fn add(span: core::ops::Range<u64>) -> Result<(), Errno> {
        for entry in &SPANS {
            // AcqRel: claims the entry; nothing lies at or above the last address.
            if entry.start.compare_exchange(0, u64::MAX, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                entry.end.store(span.end, Ordering::Release);
                entry.start.store(span.start, Ordering::Release);
                return Ok(());
            }
        }
        Err(Errno::NOMEM)
    }

    pub(super) fn remove(span: core::ops::Range<u64>) {
        for entry in &SPANS {
            if entry.start.load(Ordering::Acquire) == span.start {
                entry.end.store(0, Ordering::Release);
                entry.start.store(0, Ordering::Release);
                return;
            }
        }
    }

    /// Whether there is exactly this one.
    pub(super) fn has(span: &core::ops::Range<u64>) -> bool {
        SPANS.iter().filter_map(Span::read).any(|other| other == *span)
    }

    impl Span {
        /// What the entry holds; nothing while it is being written. Start and end are of the same area: an entry may be
        /// given up and taken again between two reads of it.
        fn read(&self) -> Option<core::ops::Range<u64>> {
            loop {
                let start = self.start.load(Ordering::Acquire);
                let end = self.end.load(Ordering::Acquire);
                if self.start.load(Ordering::Acquire) == start {
                    return (start != 0 && start < end).then_some(start..end);
                }
            }
        }
    }

    pub(super) fn visit(visit: &mut dyn FnMut(core::ops::Range<u64>)) {
        SPANS.iter().filter_map(Span::read).for_each(visit);
    }

    pub(super) fn overlaps(addresses: core::ops::Range<u64>) -> bool {
        let mut spans = SPANS.iter().filter_map(Span::read);
        spans.any(|span| span.start < addresses.end && addresses.start < span.end)
    }
}

#[cfg(test)]
mod tests {
    use page::PageCount;

    use super::*;

    #[test]
    fn released_frames_read_as_zeros() {
        let area = Area::reserve(3 * PAGE_BYTES - 7).unwrap();
        assert_eq!(area.bytes(), 3 * PAGE_BYTES);
        let second = area.base().wrapping_add(PAGE_BYTES);
        // SAFETY: inside the area.
        unsafe { second.write(9) };
        area.release(PAGE_BYTES, PAGE_BYTES);
        // SAFETY: inside the area.
        assert_eq!(unsafe { second.read() }, 0);
        // The program calls mlockall, which locks our memory, too.
        // SAFETY: inside the area.
        if unsafe { rustix::mm::mlock(area.base().cast(), area.bytes()) }.is_ok() {
            // SAFETY: inside the area.
            unsafe { second.write(9) };
            area.release(PAGE_BYTES, PAGE_BYTES);
            // SAFETY: inside the area.
            assert_eq!(unsafe { second.read() }, 0);
        }
    }

    #[test]
    fn an_area_that_was_left_is_found_by_its_base_and_size() {
        let base = Area::reserve(3 * PAGE_BYTES).unwrap().leave();
        let adopt = |base, bytes| {
            // SAFETY: left above, and dropped when it is found; in vain otherwise.
            unsafe { Area::adopt(base, bytes) }.is_some()
        };
        // SAFETY: inside the area.
        let second = unsafe { base.add(PAGE_BYTES) };
        assert!(!adopt(second, 2 * PAGE_BYTES) && !adopt(base, 2 * PAGE_BYTES));
        // SAFETY: inside the area, which is still there.
        unsafe { second.write(7) };
        assert!(adopt(base, 3 * PAGE_BYTES - 5));
    }

    #[test]
    fn relinquished_bytes_are_zeros_but_for_the_ends() {
        let mut bytes = vec![7; 3 * PAGE_BYTES];
        relinquish(&mut bytes);
        let whole = bytes.as_ptr().addr().next_multiple_of(PAGE_BYTES) - bytes.as_ptr().addr();
        assert!(bytes[..whole].iter().all(|byte| *byte == 7));
        assert!(bytes[whole..whole + 2 * PAGE_BYTES].iter().all(|byte| *byte == 0));
        assert!(bytes[whole + 3 * PAGE_BYTES - PAGE_BYTES..].iter().all(|byte| *byte == 7) || whole == 0);
        relinquish(&mut bytes[..PAGE_BYTES / 2]);
        relinquish(&mut []);
    }

    /// How much of a mapping is resident, and whether it is locked.
    fn resident_and_locked(base: *mut u8) -> (u64, bool) {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&format!("{:x}-", base as usize)));
        let mut field = |name| lines.find_map(|line| line.strip_prefix(name)).unwrap();
        let kib = field("Rss:").trim().trim_end_matches(" kB").parse().unwrap();
        (kib, field("VmFlags:").split(' ').any(|flag| flag == "lo"))
    }

    #[test]
    fn what_is_closed_is_not_filled_by_a_lock() {
        let mut area = Area::reserve_closed(8 * OPENING_BYTES).unwrap();
        area.open_to(PAGE_BYTES).unwrap();
        assert_eq!(area.open_bytes(), OPENING_BYTES);
        // As mlockall does. What is closed cannot be filled, which is what the answer says.
        // SAFETY: inside the area.
        let locked = unsafe { rustix::mm::mlock(area.base().cast(), area.bytes()) };
        if locked == Err(Errno::PERM) {
            return println!("skipped: mlock is not permitted");
        }
        let closed = area.base().wrapping_add(area.open_bytes());
        assert_eq!(resident_and_locked(closed), (0, true));
        unlock_own();
        assert_eq!(resident_and_locked(area.base()), (OPENING_BYTES as u64 >> 10, false));
        assert_eq!(resident_and_locked(closed), (0, false));
        area.open_to(OPENING_BYTES + 1).unwrap();
        // SAFETY: inside what is open.
        unsafe { closed.write(1) };
    }

    #[test]
    #[should_panic(expected = "beyond its end")]
    fn opening_beyond_the_end_is_refused() {
        let _ = Area::reserve_closed(PAGE_BYTES).unwrap().open_to(PAGE_BYTES + 1);
    }

    #[test]
    fn areas_know_themselves() {
        let area = Area::reserve(PAGE_BYTES).unwrap();
        let inside = area.base() as u64 + 5;
        assert!(is_own(inside..inside + 1));
        drop(area);
        // Another test may have got the same addresses meanwhile, but not for long.
        let is_forgotten = |_| {
            std::thread::sleep(core::time::Duration::from_millis(10));
            !is_own(inside..inside + 1)
        };
        assert!((0..100).any(is_forgotten));
    }

    #[test]
    fn what_is_outside_is_neither_an_area_nor_its_guards() {
        // Other tests have areas, but not inside this one, which is closed as the guards of those in it are.
        let whole = Area::reserve_closed(64 * PAGE_BYTES).unwrap();
        let first = PageIndex(whole.span().start / PAGE_BYTES as u64);
        own::remove(whole.span());
        let page = |at: u64| first + PageCount(at);
        let span = |from: u64, to: u64| page(from).address()..page(to).address();
        let outside = |from, to| {
            let mut parts = Vec::new();
            outside_own(PageRange { start: page(from), end: page(to) }, &mut |part| {
                parts.push((part.start - first, part.end - first));
            });
            parts.into_iter().map(|(from, to)| (from.0, to.0)).collect::<Vec<_>>()
        };
        assert_eq!(outside(4, 60), [(4, 60)]);
        for (from, to) in [(40, 50), (10, 20), (20, 22)] {
            own::add(span(from, to)).unwrap();
        }
        assert_eq!(outside(4, 60), [(4, 10), (22, 40), (50, 60)]);
        assert_eq!(outside(10, 50), [(22, 40)]);
        assert_eq!(outside(12, 21), []);
        assert_eq!(outside(21, 45), [(22, 40)]);
        for (from, to) in [(40, 50), (10, 20), (20, 22)] {
            own::remove(span(from, to));
        }
        own::add(whole.span()).unwrap();
    }

    /// Entries of the table are given up and taken again while it is read.
    #[test]
    fn what_lies_below_all_areas_is_in_none() {
        let is_done = core::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    drop(Area::reserve_closed(PAGE_BYTES).unwrap());
                }
            });
            let below = 0x100_0000..0x101_0000;
            let found = (0..100_000).find(|_| is_own(below.clone()));
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(found, None);
        });
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn release_outside_is_refused() {
        Area::reserve(PAGE_BYTES).unwrap().release(PAGE_BYTES, PAGE_BYTES);
    }
}
