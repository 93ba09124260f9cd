//! mremap and madvise on the program's behalf, as bare system calls.
//!
//! mremap remaps one mapping. [`in_pieces`] does for several that lie side by side what it would do if they were one.

use core::ops::Range;

use page::{PAGE_BYTES, PageIndex};
use rustix::mm::{MapFlags, ProtFlags};

use crate::arch::{self, number};
use crate::thread::errno;
use crate::{Area, Errno, process};

/// Its number, for who makes the call by libc.
pub const MREMAP: core::ffi::c_long = number::MREMAP as core::ffi::c_long;
/// The same for mmap.
pub const MMAP: core::ffi::c_long = number::MMAP as core::ffi::c_long;
/// The same for munmap.
pub const MUNMAP: core::ffi::c_long = number::MUNMAP as core::ffi::c_long;
/// The same for brk.
pub const BRK: core::ffi::c_long = number::BRK as core::ffi::c_long;
/// The same for mprotect.
pub const MPROTECT: core::ffi::c_long = number::MPROTECT as core::ffi::c_long;
/// The same for madvise.
pub const MADVISE: core::ffi::c_long = number::MADVISE as core::ffi::c_long;

const MAYMOVE: usize = 1;
const FIXED: usize = 2;
const DONTUNMAP: usize = 4;
/// Addresses of programs end here or later.
pub(crate) const ADDRESS_END: usize = 1 << if cfg!(target_arch = "aarch64") { 48 } else { 47 };

/// Whether the kernel takes this for a range that munmap could unmap, and mmap replace.
pub fn is_range(start: usize, bytes: usize) -> bool {
    let end = start.checked_add(bytes);
    start.is_multiple_of(PAGE_BYTES) && bytes > 0 && end.is_some_and(|end| end <= ADDRESS_END)
}

/// The arguments of mremap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Where the mapping is.
    pub from: usize,
    /// How long it is.
    pub old_bytes: usize,
    /// How long it is to be.
    pub new_bytes: usize,
    /// `MREMAP_MAYMOVE` and so on.
    pub flags: usize,
    /// Where it is to be, with `MREMAP_FIXED`.
    pub to: usize,
}

impl Request {
    /// A move to a given place, with the length as it is.
    pub(crate) fn whole(from: usize, bytes: usize, to: usize) -> Self {
        Self { from, old_bytes: bytes, new_bytes: bytes, flags: MAYMOVE | FIXED, to }
    }

    /// What is to be remapped.
    pub fn source(&self) -> Range<usize> {
        self.from..self.from.saturating_add(self.old_bytes.next_multiple_of(PAGE_BYTES))
    }

    /// Whether the place is given; what was there goes.
    pub fn has_target(&self) -> bool {
        self.flags & FIXED != 0
    }

    /// Whether the length stays and the place is given: such moves Linux 6.17 does mapping by mapping.
    pub fn only_moves(&self) -> bool {
        self.old_bytes == self.new_bytes && self.has_target()
    }

    /// Whether the kernel does it for one mapping only. Shrinking in place it does for any.
    pub fn needs_one_mapping(&self) -> bool {
        self.new_bytes > self.old_bytes || self.flags & (FIXED | DONTUNMAP) != 0
    }
}

/// mremap, as the kernel does it.
///
/// # Safety
/// The ranges belong to the caller, and nobody has references into them.
pub unsafe fn call(request: Request) -> Result<usize, Errno> {
    let Request { from, old_bytes, new_bytes, flags, to } = request;
    // SAFETY: the caller's promise.
    errno(unsafe { arch::syscall(number::MREMAP, [from, old_bytes, new_bytes, flags, to, 0]) })
}

/// madvise, as the kernel does it.
///
/// # Safety
/// The range belongs to the caller, and nobody has references into it.
pub unsafe fn advise(start: usize, bytes: usize, advice: i32) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    errno(unsafe { arch::syscall(number::MADVISE, [start, bytes, advice as u32 as usize, 0, 0, 0]) }).map(|_| ())
}

/// Whether the kernel sees no more than one mapping in `range`. `stack` is an address of the main thread's stack.
///
/// For several the answer to its growth is `FAULT`, otherwise anything else. What lies above the stack counts as one.
pub fn is_one_mapping(range: Range<usize>, stack: usize) -> bool {
    growth(range, stack) != Some(Errno::FAULT)
}

/// Whether the mapping of a page is sealed (mseal, Linux 6.10), which the kernel looks at first. `stack` as for [`is_one_mapping`].
pub fn is_sealed(page: PageIndex, stack: usize) -> bool {
    let start = page.address() as usize;
    growth(start..start + PAGE_BYTES, stack) == Some(Errno::PERM)
}

/// Whether anything in a range is sealed: then nothing of it can be unmapped. `stack` as for [`is_one_mapping`].
pub fn has_sealed(range: Range<usize>, stack: usize) -> bool {
    match growth(range.clone(), stack) {
        Some(Errno::FAULT) => {}
        answer => return answer == Some(Errno::PERM),
    }
    let mut found = false;
    let _ = process::mappings(&mut |mapping| {
        let start = mapping.range.start.max(PageIndex::containing(range.start as u64));
        let is_inside = start < mapping.range.end && start.address() < range.end as u64;
        found |= is_inside && is_sealed(start, stack);
    });
    found
}

/// Whether a heap that ends at `end` cannot shrink to `wanted`, because something in between is sealed. Who asks Linux 6.18 all the same
/// makes it wait for ever for a message that it never sends: its userfaultfd answers `AGAIN` from then on. `stack` as for
/// [`is_one_mapping`].
pub fn is_refused_brk(wanted: usize, end: usize, stack: usize) -> bool {
    if wanted == 0 || wanted >= end {
        return false;
    }
    let gone = wanted.next_multiple_of(PAGE_BYTES)..end.next_multiple_of(PAGE_BYTES);
    !gone.is_empty() && has_sealed(gone, stack)
}

/// How the kernel refuses to let a range grow in place until it covers the stack, which it never does.
fn growth(range: Range<usize>, stack: usize) -> Option<Errno> {
    let end = (stack & !(PAGE_BYTES - 1)) + PAGE_BYTES;
    if range.end >= end {
        return None;
    }
    let grown = Request { from: range.start, old_bytes: range.len(), new_bytes: end - range.start, flags: 0, to: 0 };
    // SAFETY: nothing is changed, because the stack is in the way.
    unsafe { call(grown) }.err()
}

/// A part of a range that is one mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Piece {
    /// Its first byte.
    pub start: usize,
    /// The byte behind its last.
    pub end: usize,
}

/// Pieces by address. As a rule not on the stack: that may be the alternate one of a signal handler, a few kilobytes.
#[derive(Debug)]
pub struct Pieces {
    memory: Option<Area>,
    /// Without that.
    few: [Piece; Self::FEW],
    count: usize,
}

impl Pieces {
    /// More are refused, as the kernel would refuse two.
    pub const MAX: usize = 256;
    /// The same for those that need no memory besides, which takes calls that may be forbidden.
    const FEW: usize = 16;

    /// None yet.
    pub fn new() -> Result<Self, Errno> {
        let memory = Area::reserve(Self::MAX * size_of::<Piece>())?;
        Ok(Self { memory: Some(memory), ..Self::few() })
    }

    fn few() -> Self {
        Self { memory: None, few: [Piece::default(); Self::FEW], count: 0 }
    }

    /// Adds one. `false`: there are too many.
    pub fn push(&mut self, piece: Piece) -> bool {
        let at = self.count;
        match &self.memory {
            Some(area) if at < Self::MAX => {
                let first: *mut Piece = area.base().cast();
                // SAFETY: the area has room for that many, and nobody else knows it.
                unsafe { first.wrapping_add(at).write(piece) };
            }
            None if at < Self::FEW => self.few[at] = piece,
            _ => return false,
        }
        self.count += 1;
        true
    }

    fn all(&self) -> &[Piece] {
        match &self.memory {
            // SAFETY: so many have been written, and `self` is borrowed meanwhile.
            Some(area) => unsafe { core::slice::from_raw_parts(area.base().cast(), self.count) },
            None => &self.few[..self.count],
        }
    }

    /// Whether they fill `range` without a gap.
    pub fn cover(&self, range: &Range<usize>) -> bool {
        let end = self.all().iter().try_fold(range.start, |at, piece| (piece.start == at).then_some(piece.end));
        end == Some(range.end)
    }

    /// Those before `end`, the last one cut there.
    fn before(&self, end: usize) -> impl DoubleEndedIterator<Item = Piece> + '_ {
        let those = self.all().iter().filter(move |piece| piece.start < end);
        those.map(move |piece| Piece { start: piece.start, end: piece.end.min(end) })
    }
}

/// How what lies in a range is found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// By a file of /proc, or where that cannot be had by calls of mremap.
    ByFile,
    /// By calls of mremap alone: a filter may forbid all others.
    ByCalls,
}

/// What mremap would do if all that the program may see as one mapping were one. `stack` as for [`is_one_mapping`].
///
/// # Safety
/// As for [`call`].
pub unsafe fn as_one(request: Request, stack: usize, look: Look) -> Result<usize, Errno> {
    let pieces = |range| pieces(range, stack, look);
    // SAFETY: the caller's promise.
    let request = unsafe { shrink_first(request, stack, look) }?;
    // A move over several mappings may be done in part before it is refused: ask first.
    let result = if request.only_moves() && !is_one_mapping(request.source(), stack) {
        Err(Errno::FAULT)
    } else {
        // SAFETY: the caller's promise.
        unsafe { call(request) }
    };
    if result != Err(Errno::FAULT) || !request.needs_one_mapping() {
        return result;
    }
    match pieces(request.source()) {
        // SAFETY: the caller's promise.
        Some(pieces) => unsafe { in_pieces(request, &pieces) },
        // SAFETY: the caller's promise.
        None if request.only_moves() => unsafe { call(request) },
        None => result,
    }
}

/// What is left to do of a move to a given place that shrinks, once the end is unmapped, which the kernel would do next. Linux 6.8 to
/// 6.14 tell that the old length has moved, and what lies behind the target would be discarded. What the kernel refuses it shall
/// refuse with nothing done.
///
/// # Safety
/// As for [`call`].
unsafe fn shrink_first(request: Request, stack: usize, look: Look) -> Result<Request, Errno> {
    let Request { from, new_bytes, flags, to, .. } = request;
    let (old, new) = (request.source(), new_bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(0));
    let target_end = to.saturating_add(new);
    let is_sound = from.is_multiple_of(PAGE_BYTES)
        && to.is_multiple_of(PAGE_BYTES)
        && target_end <= ADDRESS_END
        && (target_end <= from || old.end <= to);
    let may_shrink = flags == MAYMOVE | FIXED && new > 0 && new < old.len() && is_sound;
    if !may_shrink || !is_one_mapping(old.clone(), stack) && pieces(old.clone(), stack, look).is_none() {
        return Ok(request);
    }
    // SAFETY: the caller gives up what is behind the new end.
    unsafe { rustix::mm::munmap((from + new) as *mut _, old.len() - new)? };
    Ok(Request { old_bytes: new, new_bytes: new, ..request })
}

/// The mappings of a range, if the program may see them as one: side by side, and alike as far as that can be told.
fn pieces(range: Range<usize>, stack: usize, look: Look) -> Option<Pieces> {
    let by_file = if look == Look::ByFile { pieces_by_file(&range) } else { Err(Errno::PERM) };
    match by_file {
        Ok(pieces) => pieces,
        // No descriptor is left (`RLIMIT_NOFILE`), or no path leads there.
        Err(_) => pieces_by_calls(range, stack),
    }
}

fn pieces_by_file(range: &Range<usize>) -> Result<Option<Pieces>, Errno> {
    let mut pieces = Pieces::new()?;
    let mut are_alike = true;
    let mut first: Option<(bool, [u8; 4])> = None;
    process::mappings(&mut |mapping| {
        let (start, end) = (mapping.range.start.address() as usize, mapping.range.end.address() as usize);
        let piece = Piece { start: start.max(range.start), end: end.min(range.end) };
        if piece.start >= piece.end {
            return;
        }
        let kind = (mapping.anonymous, mapping.access);
        are_alike &= mapping.anonymous && *first.get_or_insert(kind) == kind && pieces.push(piece);
    })?;
    Ok((are_alike && pieces.cover(range)).then_some(pieces))
}

/// What they are like nobody says here: a program that asks for mappings which differ gets more than Linux would do for it.
fn pieces_by_calls(range: Range<usize>, stack: usize) -> Option<Pieces> {
    let mut pieces = Pieces::few();
    let mut start = range.start;
    while start < range.end {
        let is_one = |pages: &usize| is_one_mapping(start..start + pages * PAGE_BYTES, stack);
        // So many pages are one mapping, and so many are not.
        let (mut one, mut several) = (0, (range.end - start) / PAGE_BYTES + 1);
        while several - one > 1 {
            let middle = one.midpoint(several);
            *(if is_one(&middle) { &mut one } else { &mut several }) = middle;
        }
        let end = start + one * PAGE_BYTES;
        if one == 0 || !pieces.push(Piece { start, end }) {
            return None;
        }
        start = end;
    }
    Some(pieces)
}

/// Does for `pieces`, which fill the source, what mremap would do if they were one mapping. If a piece cannot be remapped
/// those before it go back.
///
/// # Safety
/// As for [`call`].
pub unsafe fn in_pieces(request: Request, pieces: &Pieces) -> Result<usize, Errno> {
    let Request { from, new_bytes, flags, to, .. } = request;
    let (old, new) = (request.source(), new_bytes.next_multiple_of(PAGE_BYTES));
    let is_fixed = flags & FIXED != 0;
    if is_fixed && (!to.is_multiple_of(PAGE_BYTES) || (to < old.end && from < to.saturating_add(new))) {
        return Err(Errno::INVAL);
    }
    if new > old.len() && !is_fixed {
        let last = pieces.all().last().map_or(from, |piece| piece.start);
        let grown = Request { from: last, old_bytes: old.end - last, new_bytes: from + new - last, flags: 0, to: 0 };
        // SAFETY: the caller's promise.
        let result = unsafe { call(grown) };
        if result.is_ok() || flags & MAYMOVE == 0 {
            return result.map(|_| from);
        }
    }
    if is_fixed && new < old.len() {
        // SAFETY: the caller gives up what is behind the new end.
        unsafe { rustix::mm::munmap((from + new) as *mut _, old.len() - new)? };
    }
    let target = if is_fixed { to } else { reserve(new)? };
    let kept = flags & DONTUNMAP;
    let end = old.end.min(from + new);
    for piece in pieces.before(end) {
        let bytes = piece.end - piece.start;
        let grown = if piece.end == end { from + new - piece.start } else { bytes };
        let there = Request {
            from: piece.start,
            old_bytes: bytes,
            new_bytes: grown,
            flags: MAYMOVE | FIXED | kept,
            to: target + (piece.start - from),
        };
        // SAFETY: the caller's promise; the target is the caller's, or reserved here.
        if let Err(error) = unsafe { call(there) } {
            // SAFETY: as above.
            let all_are_back = unsafe { go_back(pieces, piece.start, from, target, kept != 0) };
            if !is_fixed && all_are_back {
                // SAFETY: what was reserved here, and is empty again.
                let _ = unsafe { rustix::mm::munmap(target as *mut _, new) };
            }
            return Err(error);
        }
    }
    Ok(target)
}

/// Moves the pieces before `end` back to where they came from, which is still theirs if it `is_kept` (`DONTUNMAP`). Says whether
/// all of them are there: what cannot go back stays at the target.
///
/// # Safety
/// They have been moved to `target`.
unsafe fn go_back(pieces: &Pieces, end: usize, from: usize, target: usize, is_kept: bool) -> bool {
    let mut all_are_back = true;
    for piece in pieces.before(end) {
        let bytes = piece.end - piece.start;
        let start = target + (piece.start - from);
        let back = Request { from: start, old_bytes: bytes, new_bytes: bytes, flags: MAYMOVE | FIXED, to: piece.start };
        // SAFETY: the caller's promise, and nobody else's memory is at the place.
        all_are_back &= (is_kept || is_ours_again(piece)) && unsafe { call(back) }.is_ok();
    }
    all_are_back
}

/// Takes the place that a piece has left, unless another thread's mapping has come there meanwhile.
fn is_ours_again(piece: Piece) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: touches no memory that anybody else uses: it is refused where something is.
    let place = unsafe {
        rustix::mm::mmap_anonymous(piece.start as *mut _, piece.end - piece.start, ProtFlags::empty(), flags)
    };
    place.is_ok()
}

/// Addresses for `bytes`.
pub(crate) fn reserve(bytes: usize) -> Result<usize, Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory that anybody else uses.
    let place = unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), bytes, ProtFlags::empty(), flags)? };
    Ok(place as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 8 * PAGE_BYTES;
    const LOOKS: [Look; 2] = [Look::ByFile, Look::ByCalls];

    /// Eight pages which the kernel sees as three mappings, each page with its number in its first word.
    fn several() -> (usize, Pieces) {
        let from = reserve(2 * BYTES).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: memory of this test's own.
        unsafe {
            rustix::mm::mprotect(from as *mut _, BYTES, rustix::mm::MprotectFlags::from_bits_retain(access.bits()))
        }
        .unwrap();
        // Advice that is kept in the mapping splits it.
        for (at, advice) in [(2, rustix::mm::Advice::LinuxDontFork), (5, rustix::mm::Advice::LinuxDontFork)] {
            // SAFETY: as above.
            unsafe { rustix::mm::madvise((from + at * PAGE_BYTES) as *mut _, PAGE_BYTES, advice) }.unwrap();
        }
        let mut pieces = Pieces::new().unwrap();
        for (start, end) in [(0, 2), (2, 3), (3, 5), (5, 6), (6, 8)] {
            assert!(pieces.push(Piece { start: from + start * PAGE_BYTES, end: from + end * PAGE_BYTES }));
        }
        assert!(pieces.cover(&(from..from + BYTES)));
        for page in 0..8 {
            // SAFETY: as above.
            unsafe { ((from + page * PAGE_BYTES) as *mut u64).write(page as u64 + 1) };
        }
        (from, pieces)
    }

    fn words(at: usize, count: usize) -> Vec<u64> {
        // SAFETY: mapped by these tests.
        (0..count).map(|page| unsafe { ((at + page * PAGE_BYTES) as *const u64).read() }).collect()
    }

    /// Whether something is mapped there that can be written.
    fn own_mapping(at: usize) -> bool {
        let mut found = false;
        process::mappings(&mut |mapping| {
            let range = mapping.range.start.address() as usize..mapping.range.end.address() as usize;
            found |= range.contains(&at) && mapping.anonymous && mapping.access[1] == b'w';
        })
        .unwrap();
        found
    }

    fn stack() -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
    }

    #[test]
    fn one_mapping_is_told_from_several() {
        let (from, _) = several();
        for (start, end, is_one) in [(0, 2, true), (0, 3, false), (3, 5, true), (0, 8, false), (6, 8, true)] {
            let range = from + start * PAGE_BYTES..from + end * PAGE_BYTES;
            assert_eq!(is_one_mapping(range, stack()), is_one, "{start}..{end}");
        }
        assert_eq!(words(from, 8), [1, 2, 3, 4, 5, 6, 7, 8], "asking changes nothing");
    }

    #[test]
    fn what_is_sealed_is_told() {
        let (from, _) = several();
        // SAFETY: memory of this test's own, which stays.
        match errno(unsafe { arch::syscall(number::MSEAL, [from + 5 * PAGE_BYTES, PAGE_BYTES, 0, 0, 0, 0]) }) {
            Ok(_) => {}
            Err(error) => return println!("skipped: no mseal: {error:?}"),
        }
        for page in 0..8 {
            let found = is_sealed(PageIndex::containing((from + page * PAGE_BYTES) as u64), stack());
            assert_eq!(found, page == 5, "{page}");
        }
        for (start, end, is_there) in [(0, 8, true), (0, 5, false), (5, 6, true), (5, 8, true), (6, 8, false)] {
            let (start, end) = (from + start * PAGE_BYTES, from + end * PAGE_BYTES);
            assert_eq!(has_sealed(start..end, stack()), is_there);
            assert_eq!(is_refused_brk(start - 5, end - 7, stack()), is_there);
        }
        for (wanted, end) in [(0, from + BYTES), (from + BYTES, from), (from + 5, from + 7), (usize::MAX, from)] {
            assert!(!is_refused_brk(wanted, end, stack()), "asks, grows, or stays in its page");
        }
        assert_eq!(words(from, 8), [1, 2, 3, 4, 5, 6, 7, 8], "asking changes nothing");
    }

    #[test]
    fn several_mappings_move_as_one() {
        let (from, pieces) = several();
        let to = reserve(BYTES).unwrap();
        let request = Request { from, old_bytes: BYTES, new_bytes: BYTES, flags: MAYMOVE | FIXED, to };
        // SAFETY: memory of this test's own.
        assert_eq!(unsafe { in_pieces(request, &pieces) }, Ok(to));
        assert_eq!(words(to, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    /// As this kernel has them: `several` differ in advice, and look alike in /proc/self/maps.
    #[test]
    fn what_looks_like_one_mapping_moves_as_one() {
        for look in LOOKS {
            let (from, _) = several();
            let to = reserve(BYTES).unwrap();
            let request = Request { from, old_bytes: BYTES, new_bytes: BYTES, flags: MAYMOVE | FIXED, to };
            // SAFETY: memory of this test's own.
            assert_eq!(unsafe { as_one(request, stack(), look) }, Ok(to));
            assert_eq!(words(to, 8), [1, 2, 3, 4, 5, 6, 7, 8]);

            let (from, _) = several();
            let request = Request { from, new_bytes: 2 * BYTES + PAGE_BYTES, flags: MAYMOVE, to: 0, ..request };
            // SAFETY: as above.
            let to = unsafe { as_one(request, stack(), look) }.unwrap();
            assert_eq!(words(to, 9), [1, 2, 3, 4, 5, 6, 7, 8, 0]);
        }
    }

    /// By calls the boundaries are those that the kernel has, which the file tells where mappings look alike; and a hole is none.
    #[test]
    fn mappings_are_found_by_calls() {
        let (from, expected) = several();
        let found = pieces_by_calls(from..from + BYTES, stack()).unwrap();
        assert_eq!(found.all(), expected.all());
        let one = pieces_by_calls(from + 3 * PAGE_BYTES..from + 5 * PAGE_BYTES, stack()).unwrap();
        assert_eq!(one.all(), [Piece { start: from + 3 * PAGE_BYTES, end: from + 5 * PAGE_BYTES }]);
        for hole in [0, 4, 7] {
            let (from, _) = several();
            // SAFETY: memory of this test's own; a hole of one page is too small for the mappings of other tests' threads.
            unsafe { rustix::mm::munmap((from + hole * PAGE_BYTES) as *mut _, PAGE_BYTES) }.unwrap();
            assert!(pieces_by_calls(from..from + BYTES, stack()).is_none(), "{hole}");
        }
        assert_eq!(words(from, 8), [1, 2, 3, 4, 5, 6, 7, 8], "asking changes nothing");
    }

    /// What lies behind the target stays.
    #[test]
    fn a_move_to_a_place_shrinks() {
        for (first, look) in [(3, Look::ByFile), (0, Look::ByFile), (0, Look::ByCalls)] {
            // One mapping of two pages, and all of them.
            let (from, _) = several();
            let (from, old) = if first == 3 { (from + 3 * PAGE_BYTES, 2) } else { (from, 8) };
            let (to, _) = several();
            let request = Request {
                from,
                old_bytes: old * PAGE_BYTES,
                new_bytes: old * PAGE_BYTES / 2 - 1,
                flags: MAYMOVE | FIXED,
                to,
            };
            // SAFETY: memory of this test's own.
            assert_eq!(unsafe { as_one(request, stack(), look) }, Ok(to));
            let moved: Vec<u64> = (1..).skip(first).take(old / 2).collect();
            let behind: Vec<u64> = (1..=8).skip(old / 2).collect();
            assert_eq!(words(to, 8), [moved, behind].concat());
        }
    }

    #[test]
    fn a_move_that_is_refused_shrinks_nothing() {
        let (from, _) = several();
        let (to, _) = several();
        let whole = Request { from, old_bytes: BYTES, new_bytes: BYTES / 2, flags: MAYMOVE | FIXED, to };
        let refused = [
            Request { to: to + 1, ..whole },
            Request { to: from + PAGE_BYTES, ..whole },
            Request { to: usize::MAX - BYTES + 1, ..whole },
            Request { new_bytes: 0, ..whole },
            Request { new_bytes: usize::MAX, ..whole },
            Request { flags: FIXED, ..whole },
            Request { flags: MAYMOVE | FIXED | DONTUNMAP, ..whole },
        ];
        for (request, look) in refused.into_iter().flat_map(|request| LOOKS.map(|look| (request, look))) {
            // SAFETY: memory of this test's own, or an address that nobody can have.
            let result = unsafe { as_one(request, stack(), look) };
            assert!(result.is_err(), "{request:?}");
            assert_eq!((words(from, 8), words(to, 8)), ((1..=8).collect(), (1..=8).collect()), "{request:?}");
        }
    }

    #[test]
    fn several_mappings_grow_and_shrink_as_one() {
        let (from, pieces) = several();
        let grown = Request { from, old_bytes: BYTES, new_bytes: 10 * PAGE_BYTES, flags: 0, to: 0 };
        // SAFETY: memory of this test's own. What follows it is reserved, so it cannot grow in place.
        assert_eq!(unsafe { in_pieces(grown, &pieces) }, Err(Errno::NOMEM));
        // SAFETY: as above.
        let to = unsafe { in_pieces(Request { flags: MAYMOVE, ..grown }, &pieces) }.unwrap();
        assert_eq!(words(to, 10), [1, 2, 3, 4, 5, 6, 7, 8, 0, 0]);

        let (from, pieces) = several();
        let to = reserve(BYTES).unwrap();
        let request = Request { from, old_bytes: BYTES, new_bytes: 4 * PAGE_BYTES, flags: MAYMOVE | FIXED, to };
        // SAFETY: as above.
        assert_eq!(unsafe { in_pieces(request, &pieces) }, Ok(to));
        assert_eq!(words(to, 4), [1, 2, 3, 4]);
    }

    #[test]
    fn what_is_kept_is_zeros() {
        let (from, pieces) = several();
        let request = Request { from, old_bytes: BYTES, new_bytes: BYTES, flags: MAYMOVE | DONTUNMAP, to: 0 };
        // SAFETY: memory of this test's own.
        let to = unsafe { in_pieces(request, &pieces) }.unwrap();
        assert_eq!(words(to, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(words(from, 8), [0; 8]);
    }

    #[test]
    fn a_move_that_fails_is_undone() {
        let is_undone = |_| {
            let (from, pieces) = several();
            let to = reserve(BYTES).unwrap();
            // SAFETY: memory of this test's own. The start of the last piece is not there any more; a hole of one page is too
            // small for the mappings that threads of other tests make.
            unsafe { rustix::mm::munmap((from + 6 * PAGE_BYTES) as *mut _, PAGE_BYTES) }.unwrap();
            let request = Request { from, old_bytes: BYTES, new_bytes: BYTES, flags: MAYMOVE | FIXED, to };
            // SAFETY: as above.
            assert_eq!(unsafe { in_pieces(request, &pieces) }, Err(Errno::FAULT));
            // Not if the thread of another test got a mapping there meanwhile.
            (0..6).all(|page| own_mapping(from + page * PAGE_BYTES)) && words(from, 6) == [1, 2, 3, 4, 5, 6]
        };
        assert!((0..5).any(is_undone));
    }

    /// Another thread maps something where a piece was, before that goes back: it is let alone.
    #[test]
    fn what_has_come_to_its_place_is_let_alone() {
        let (from, pieces) = several();
        let target = reserve(BYTES).unwrap();
        let there = Request { from, old_bytes: BYTES / 4, new_bytes: BYTES / 4, flags: MAYMOVE | FIXED, to: target };
        // SAFETY: memory of this test's own.
        unsafe { call(there) }.unwrap();
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: refused where something is.
        let Ok(other) = (unsafe { rustix::mm::mmap_anonymous(from as *mut _, BYTES / 4, access, flags) }) else {
            return println!("skipped: the thread of another test has come to the place");
        };
        // SAFETY: mapped above.
        unsafe { other.cast::<u64>().write(77) };
        // SAFETY: the first piece has been moved there.
        assert!(!unsafe { go_back(&pieces, from + 2 * PAGE_BYTES, from, target, false) });
        assert_eq!((words(from, 1), words(target, 2)), (vec![77], vec![1, 2]));
    }

    #[test]
    fn there_is_an_end_to_pieces() {
        let (_, mut pieces) = several();
        while pieces.push(Piece::default()) {}
        assert_eq!((pieces.count, pieces.all().len()), (Pieces::MAX, Pieces::MAX));
        let mut few = Pieces::few();
        while few.push(Piece::default()) {}
        assert_eq!((few.count, few.all().len()), (Pieces::FEW, Pieces::FEW));
    }

    #[test]
    fn overlapping_moves_are_refused() {
        let (from, pieces) = several();
        let to = from + PAGE_BYTES;
        let request = Request { from, old_bytes: BYTES, new_bytes: BYTES, flags: MAYMOVE | FIXED, to };
        // SAFETY: memory of this test's own.
        assert_eq!(unsafe { in_pieces(request, &pieces) }, Err(Errno::INVAL));
        assert_eq!(words(from, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
