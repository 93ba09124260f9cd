//! Calls of libc's, in the place of libc's, for what userfaultfd does not tell us or makes differ.
//!
//! - mmap, brk, mprotect: nobody tells of new memory, which grows without waiting for us ([`crate::growth`]). And of an mmap that
//!   is to replace something and finds no room the kernel tells as if it had ([`sys::room`]).
//! - mremap: memory that the program sees as one mapping may be several, because what is registered does not merge with
//!   what is not, and the kernel remaps one. Then it is remapped piece by piece.
//! - madvise: the kernel tells nobody that guard regions discard what was there, nor that a range is to be wiped or left out
//!   on fork; and what is to be freed some time (`MADV_FREE`) it leaves in place after it has told of that.
//! - shmat: what it replaces (`SHM_REMAP`) nobody tells of ([`sys::attach`]).
//! - mmap of a stack, and munmap: the kernel does not wait for what it needs of a thread that ends ([`sys::kept`]).
//! - ioctl with `UFFDIO_REGISTER`: a mapping has one userfaultfd, and what is managed has ours.
//! - mlockall: it would lock the agent's memory as well ([`sys::locking`]).
//!
//! Everything else goes through as it is. Where nothing is managed only growth is told, so that it is managed in time. Who
//! makes the system call without libc gets what the kernel gives: see docs/userfaultfd.md, "Limits".

use core::cell::Cell;
use core::ffi::{c_int, c_long, c_ulong, c_void};
use core::ops::Range;
use core::sync::atomic::{Ordering, fence};

use page::{ByteCount, PAGE_BYTES, PageIndex};
use sys::Errno;
use sys::attach::{self, Attach};
use sys::kept;
use sys::kernel::PageRange;
use sys::locking;
use sys::process;
use sys::remap::{self, Look, Request};
use sys::room;
use sys::thread;
use sys::thread_end;
use sys::user_mode;

use crate::growth::{Grown, Use};
use crate::host::{agent, weak_address};
use crate::raw_calls;
use crate::watcher::Agent;

#[link(name = "c")]
unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    pub(crate) fn pthread_self() -> usize;
    pub(crate) fn syscall(number: c_long, ...) -> c_long;
}

const PROT_WRITE: c_int = 2;
const MAP_PRIVATE: c_int = 2;
const MAP_TYPE: c_int = 0xf;
/// Linux 6.11. Where the kernel lets us manage it (up to 6.16) it is memory as any other, but that a child has it empty.
const MAP_DROPPABLE: c_int = 8;
const MAP_FIXED: c_int = 0x10;
const MAP_ANONYMOUS: c_int = 0x20;
const MAP_NORESERVE: c_int = 0x4000;
const MAP_POPULATE: c_int = 0x8000;
const MAP_NONBLOCK: c_int = 0x1_0000;
const MAP_FIXED_NOREPLACE: c_int = 0x10_0000;

/// This thread's errno.
fn libc_errno() -> &'static Cell<c_int> {
    // SAFETY: takes nothing.
    let place = unsafe { __errno_location() };
    // SAFETY: the address of an int that lives as long as this thread, which alone uses it.
    unsafe { &*place.cast() }
}

/// What libc's calls return: the result, or errno and what says so.
pub(crate) fn to_libc<T>(result: Result<T, Errno>, failed: T) -> T {
    result.unwrap_or_else(|errno| {
        libc_errno().set(errno.raw_os_error());
        failed
    })
}

/// mmap(2).
///
/// # Safety
/// As for mmap: what `MAP_FIXED` replaces belongs to the caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap(
    start: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: c_long,
) -> *mut c_void {
    if is_refused_for_room(start as usize, bytes, protection, flags) {
        return to_libc(Err(Errno::NOMEM), usize::MAX) as *mut c_void;
    }
    let growing = if is_growth(protection, flags) { agent() } else { None };
    let is_filled = growing.is_some() && flags & (MAP_POPULATE | MAP_NONBLOCK) == MAP_POPULATE;
    // What the kernel fills before the call returns is there before anybody has managed it.
    let kernel_flags = if is_filled { flags & !MAP_POPULATE } else { flags };
    let [protection_word, flags_word, file_word] = [protection, kernel_flags, file].map(c_long::from);
    // By libc's, which sets errno, and is trapped in user mode.
    // SAFETY: the caller's promise.
    let mapped = unsafe { syscall(remap::MMAP, start, bytes, protection_word, flags_word, file_word, offset) };
    if mapped != -1
        && let Some(agent) = growing
    {
        let is_dense = is_filled || flags & MAP_NORESERVE == 0;
        agent.has_grown(Grown::at(mapped as usize, bytes), if is_dense { Use::Dense } else { Use::Sparse });
        // What is managed comes at its first touch, which waits for room.
        if is_filled && agent.keeper().is_none() {
            // SAFETY: changes no content.
            let _ = unsafe { remap::advise(mapped as usize, bytes, MADV_POPULATE_WRITE) };
        }
    }
    if mapped != -1
        && flags & MAP_TYPE == MAP_DROPPABLE
        && let Some(agent) = agent()
    {
        // As MADV_WIPEONFORK does.
        agent.withholds.store(true, Ordering::Release);
    }
    if mapped != -1 && !user_mode::is_armed() && agent().is_some() {
        if flags & MAP_FIXED != 0 {
            kept::are_unmapped(mapped as usize, bytes);
        }
        if flags & kept::MAP_STACK != 0 && flags & MAP_ANONYMOUS != 0 {
            kept::stack_is_mapped(mapped as usize, bytes);
        }
    }
    mapped as *mut c_void
}

/// Whether such a mapping is memory that the program may fill.
fn is_growth(protection: c_int, flags: c_int) -> bool {
    protection & PROT_WRITE != 0 && flags & (MAP_PRIVATE | MAP_ANONYMOUS) == MAP_PRIVATE | MAP_ANONYMOUS
}

/// Whether there is no room for what is to replace something. Linux 6.12 refuses that with all in place, and tells of an unmapping
/// all the same: what is with us would be discarded.
fn is_refused_for_room(start: usize, bytes: usize, protection: c_int, flags: c_int) -> bool {
    let replaces = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) == MAP_FIXED;
    // What is malformed is the kernel's to refuse.
    let Some(end) = start.checked_add(bytes) else { return false };
    if !replaces
        || bytes == 0
        || !start.is_multiple_of(PAGE_BYTES)
        || agent().is_none_or(|agent| agent.keeper().is_none())
    {
        return false;
    }
    // Shared memory is no data of the process's.
    let (protection, is_reserved) =
        if flags & MAP_PRIVATE != 0 { (protection as u32, flags & MAP_NORESERVE == 0) } else { (0, false) };
    !room::can_replace(start..end, protection, is_reserved)
}

/// The same: offsets have 64 bits in both.
///
/// # Safety
/// As for mmap.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap64(
    start: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: c_long,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { mmap(start, bytes, protection, flags, file, offset) }
}

/// munmap(2). libc's goes on here ([`crate::detours`]).
///
/// # Safety
/// As for munmap: the range belongs to the caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn munmap(start: *mut c_void, bytes: usize) -> c_int {
    // Before another thread can map a stack there.
    let forgotten = kept::are_unmapped(start as usize, bytes);
    // SAFETY: the caller's promise.
    let result = unsafe { syscall(remap::MUNMAP, start, bytes) as c_int };
    if result == -1 {
        kept::are_there_still(forgotten);
    } else if let Some(agent) = agent() {
        agent.has_shrunk(bytes);
    }
    result
}

/// mprotect(2). libc's goes on here ([`crate::detours`]): the heaps of threads grow by it.
pub(crate) unsafe extern "C" fn mprotect(start: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { syscall(remap::MPROTECT, start, bytes, c_long::from(protection)) };
    if result == 0
        && protection & PROT_WRITE != 0
        && let Some(agent) = agent()
    {
        agent.has_opened(start as usize, bytes);
    }
    result as c_int
}

/// brk(2), with what libc knows of the heap's end. libc's goes on here ([`crate::detours`]).
pub(crate) unsafe extern "C" fn brk(end: *mut c_void) -> c_int {
    let Some(known_end) = heap_end() else { return to_libc(Err(Errno::NOMEM), -1) as c_int };
    let managed = agent().filter(|agent| agent.keeper().is_some());
    if managed.is_some_and(|agent| remap::is_refused_brk(end as usize, known_end.get(), agent.stack)) {
        // The kernel answers where the end stays, and libc is content with that.
        return 0;
    }
    // SAFETY: the caller's promise.
    let reached = unsafe { syscall(remap::BRK, end) } as usize;
    let before = known_end.replace(reached);
    if reached < end as usize {
        return to_libc(Err(Errno::NOMEM), -1) as c_int;
    }
    // The first call asks where the heap is.
    if before != 0
        && reached > before
        && let Some(agent) = agent()
    {
        agent.has_grown(Grown::at(before, reached - before), Use::Dense);
    }
    0
}

/// What libc knows of the heap's end, which belongs to whoever calls brk.
fn heap_end() -> Option<&'static Cell<usize>> {
    let known_end = weak_address!("__curbrk");
    // SAFETY: null, or libc's variable, which is a pointer.
    unsafe { core::ptr::with_exposed_provenance::<Cell<usize>>(known_end).as_ref() }
}

/// mremap(2).
///
/// libc's has a variable number of arguments. On the processors that we know the fifth is where a fixed one would be, and
/// is looked at only if the flags say that it is there.
///
/// # Safety
/// As for mremap: the ranges belong to the caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mremap(
    from: *mut c_void,
    old_bytes: usize,
    new_bytes: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let moved = unsafe { remap_all(from, old_bytes, new_bytes, flags, to) };
    if moved.addr() != usize::MAX
        && new_bytes > old_bytes
        && let Some(agent) = agent()
    {
        agent.has_grown(Grown::at(moved as usize + old_bytes, new_bytes - old_bytes), Use::Dense);
    }
    moved
}

/// However many mappings the kernel has made of it.
unsafe fn remap_all(
    from: *mut c_void,
    old_bytes: usize,
    new_bytes: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    if user_mode::is_armed() {
        // Trapped, by where it is made: ours are not, libc's are. It is done in pieces there.
        // SAFETY: the caller's promise.
        return unsafe { syscall(remap::MREMAP, from, old_bytes, new_bytes, c_long::from(flags), to) } as *mut c_void;
    }
    let request = Request { from: from as usize, old_bytes, new_bytes, flags: flags as u32 as usize, to: to as usize };
    let managed = agent().filter(|agent| agent.keeper().is_some());
    let result = match managed {
        // SAFETY: the caller's promise.
        None => unsafe { remap::call(request) },
        Some(agent) => {
            let look = if agent.may_be_confined() { Look::ByCalls } else { Look::ByFile };
            // SAFETY: the caller's promise.
            unsafe { remap::as_one(request, agent.stack, look) }
        }
    };
    to_libc(result, usize::MAX) as *mut c_void
}

/// shmat(2).
///
/// # Safety
/// As for shmat: what `SHM_REMAP` replaces belongs to the caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn shmat(id: c_int, at: *const c_void, flags: c_int) -> *mut c_void {
    let attach = Attach { id: id as u32 as usize, at: at as usize, flags: flags as u32 as usize };
    let result = if user_mode::is_armed() {
        // Trapped, and done there.
        // SAFETY: the caller's promise.
        return unsafe { syscall(attach::SHMAT, c_long::from(id), at, c_long::from(flags)) } as *mut c_void;
    } else if agent().is_some() {
        // SAFETY: the caller's promise.
        unsafe { attach::replace(attach) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { attach::call(attach) }
    };
    to_libc(result, usize::MAX) as *mut c_void
}

/// Guard regions (Linux 6.13).
const MADV_GUARD_INSTALL: c_int = 102;
const MADV_DONTNEED: c_int = 4;
const MADV_FREE: c_int = 8;
const MADV_DONTFORK: c_int = 10;
const MADV_WIPEONFORK: c_int = 18;
const MADV_POPULATE_READ: c_int = 22;
const MADV_POPULATE_WRITE: c_int = 23;
/// Discards locked pages, too.
const MADV_DONTNEED_LOCKED: c_int = 24;

/// madvise(2). libc's goes on here ([`crate::detours`]): a thread that ends discards its stack.
///
/// # Safety
/// As for madvise: the range belongs to the caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    let range = start as usize..(start as usize).saturating_add(bytes);
    if advice == MADV_DONTNEED
        && thread_end::is_last_discard(start as usize, bytes)
        && !user_mode::is_armed()
        && let Some(agent) = agent().filter(|agent| agent.keeper().is_some())
    {
        // SAFETY: takes nothing.
        thread_end::bring_in_robust_list(unsafe { pthread_self() }, !agent.may_be_confined());
    }
    // SAFETY: the caller's promise.
    let result = unsafe { advise(&range, advice) };
    // NOMEM: there are holes, and what is mapped beside them has been advised all the same.
    if matches!(result, Ok(()) | Err(Errno::NOMEM))
        && let Some(agent) = agent()
    {
        match advice {
            MADV_GUARD_INSTALL if agent.keeper().is_some() => {
                // SAFETY: the caller's promise.
                unsafe { discard_guarded(&range, result) };
            }
            // The kernel has told of it, and leaves the pages in place for now: nobody would manage what is written there again.
            // Their content may go at once.
            MADV_FREE if agent.keeper().is_some() => {
                // SAFETY: the caller's promise.
                let _ = unsafe { advise(&range, MADV_DONTNEED) };
            }
            // Release: a fork that comes after the call sees it.
            MADV_DONTFORK | MADV_WIPEONFORK => agent.withholds.store(true, Ordering::Release),
            _ => {}
        }
    }
    to_libc(result.map(|()| 0), -1)
}

/// madvise, by libc where that is trapped.
///
/// # Safety
/// As for madvise.
unsafe fn advise(range: &Range<usize>, advice: c_int) -> Result<(), Errno> {
    if !user_mode::is_armed() {
        // SAFETY: the caller's promise.
        return unsafe { remap::advise(range.start, range.len(), advice) };
    }
    // SAFETY: the caller's promise.
    if unsafe { syscall(remap::MADVISE, range.start, range.len(), c_long::from(advice)) } == 0 {
        return Ok(());
    }
    Err(Errno::from_raw_os_error(libc_errno().get()))
}

/// After guards have been asked for with this result: what was there is gone, and what of it is with us must go, too.
/// Discarding leaves the guards in place.
///
/// # Safety
/// As for madvise.
unsafe fn discard_guarded(range: &Range<usize>, result: Result<(), Errno>) {
    if result.is_ok() {
        // SAFETY: the caller's promise.
        let _ = unsafe { advise(range, MADV_DONTNEED_LOCKED) };
        return;
    }
    // Holes say NOMEM, and so does a kernel without memory, which has not come to the end: only what is guarded for certain goes.
    let asked = PageRange {
        start: PageIndex::containing(range.start as u64),
        end: PageIndex::containing(range.end.saturating_add(PAGE_BYTES - 1) as u64),
    };
    let _ = process::mappings(&mut |mapping| {
        let Some(part) = mapping.range.intersection(asked) else { return };
        // Ours may lie in a hole: what the mappings are read into, for one.
        sys::area::outside_own(part, &mut |part| {
            let part = part.start.address() as usize..part.end.address() as usize;
            // SAFETY: the caller's promise.
            if unsafe { advise(&part, MADV_GUARD_INSTALL) }.is_ok() {
                // SAFETY: as above.
                let _ = unsafe { advise(&part, MADV_DONTNEED_LOCKED) };
            }
        });
    });
}

/// mlockall(2).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlockall(flags: c_int) -> c_int {
    // In user mode, too: ours are not trapped, and what is missing then stays so until it is touched.
    to_libc(locking::lock_all(flags as u32 as usize).map(|()| 0), -1)
}

/// The first request of each userfaultfd.
const UFFDIO_API: c_ulong = 0xc018_aa3f;
/// `struct uffdio_register` begins with a range, and has 32 bytes.
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;

/// ioctl(2). libc's goes on here ([`crate::detours`]).
///
/// libc's has a variable number of arguments. On the processors that we know the third is where a fixed one would be, and the
/// kernel looks at it only if the request has one.
///
/// # Safety
/// As for ioctl.
pub(crate) unsafe extern "C" fn ioctl(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if user_mode::is_armed() {
        // The program has no userfaultfd there, unless by the device: the kernel keeps it off what is managed (EBUSY).
        // SAFETY: the caller's promise.
        return unsafe { syscall(process::IOCTL, c_long::from(file), request, argument) as c_int };
    }
    let words = [c_long::from(file), request as c_long, argument as c_long, 0, 0, 0];
    // SAFETY: the caller's promise.
    let call = || unsafe { raw_calls::make(process::IOCTL, words) as c_int };
    let before = libc_errno().get();
    let result = call();
    if request == UFFDIO_API {
        expect_userfaultfd();
    }
    if request != UFFDIO_REGISTER || result != -1 || libc_errno().get() != Errno::BUSY.raw_os_error() {
        return result;
    }
    let Some(keeper) = agent().and_then(Agent::keeper) else { return result };
    // SAFETY: the kernel has read it.
    let [start, bytes] = unsafe { argument.cast::<[u64; 2]>().read_unaligned() };
    let range = PageRange::new(PageIndex::containing(start), ByteCount(bytes).pages_up());
    let bring_in = |out: PageRange| {
        let bytes = out.count().bytes().0 as usize;
        // SAFETY: reads what the caller says is its own.
        unsafe { remap::advise(out.start.address() as usize, bytes, MADV_POPULATE_READ) }.is_ok()
    };
    let mask = thread::block_signals();
    libc_errno().set(before);
    let result = keeper.pager.surrender(range, bring_in, call);
    thread::unblock_signals(mask);
    result
}

/// The program will register memory, and is to find it as it has left it.
fn expect_userfaultfd() {
    let Some(agent) = agent() else { return };
    agent.has_userfaultfd.store(true, Ordering::Relaxed);
    // Either this thread sees the keeper, or he sees this.
    fence(Ordering::SeqCst);
    if let Some(keeper) = agent.keeper() {
        keeper.pager.be_exact();
    }
}
