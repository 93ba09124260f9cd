//! The agent's heap: TLSF over areas of its own, so that nothing it allocates is ever managed memory.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use page::PAGE_BYTES;
use rlsf::Tlsf;
use sys::sync::Lock;
use sys::{Area, Errno};

/// Steps in which the heap grows; a larger request makes it grow by as much as it needs.
const GROWTH_BYTES: usize = 1 << 20;
/// From here on a block has an area of its own: what it does not touch takes no frame, and its frames go when it is freed.
const LARGE_BYTES: usize = 32 << 10;
/// The agent's threads take 1 MiB, its heap a step, buffers of a handler and a reclaimer half a MiB each.
const ROOM_BYTES: usize = 3 << 20;
/// Large blocks that have an area of their own; more of them are blocks like others. The process has a table of all areas.
const LARGE_MAX: usize = 128;

type Blocks = Tlsf<'static, u32, u32, 28, 16>;

struct Heap {
    blocks: Lock<Blocks>,
    used: AtomicU64,
    /// Large blocks with an area of their own.
    large: AtomicUsize,
}

#[global_allocator]
static HEAP: Heap = Heap { blocks: Lock::new(Blocks::new()), used: AtomicU64::new(0), large: AtomicUsize::new(0) };

impl Heap {
    /// A large block of zeros in an area of its own, if there may be one more.
    fn large(&self, layout: Layout) -> Option<NonNull<u8>> {
        if layout.size() < LARGE_BYTES || layout.align() > PAGE_BYTES {
            return None;
        }
        // Relaxed: a bound.
        if self.large.fetch_add(1, Ordering::Relaxed) < LARGE_MAX
            && let Ok(area) = Area::reserve(layout.size())
        {
            self.used.fetch_add(layout.size() as u64, Ordering::Relaxed);
            return Some(area.leave());
        }
        self.large.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// A block among others, of whatever bytes.
    fn block(&self, layout: Layout) -> Option<NonNull<u8>> {
        let mut blocks = self.blocks.lock();
        let mut block = blocks.allocate(layout);
        if block.is_none() {
            // Room for the block, its header, and padding up to its alignment; TLSF looks for blocks by size rounded
            // up to the next of 16 steps between powers of two, so a block that just fits is not found.
            let wanted = layout.size() + layout.size() / 8 + 2 * layout.align() + 64;
            let bytes = wanted.max(GROWTH_BYTES);
            if let Ok(area) = Area::reserve(bytes) {
                let bytes = area.bytes();
                let memory = NonNull::slice_from_raw_parts(area.leave(), bytes);
                // SAFETY: a fresh area that nobody else knows, never unmapped.
                unsafe { blocks.insert_free_block_ptr(memory) };
                block = blocks.allocate(layout);
            }
        }
        self.used.fetch_add(layout.size() as u64, Ordering::Relaxed);
        block
    }
}

/// Says whether there is room for what the agent takes between here and where it could stop again, and for so many bytes beside
/// it. A limit may leave it none (`RLIMIT_AS`): who asks before does without the agent, who does not is ended by [`out_of_memory`].
pub(crate) fn has_room(more_bytes: usize) -> Result<(), Errno> {
    Area::reserve(ROOM_BYTES + more_bytes).map(drop)
}

/// The heap cannot grow. What is half done cannot be undone, so the program ends.
fn out_of_memory(layout: Layout) -> ! {
    crate::failure::fail(format_args!(
        "process {} is ended: its agent gets no memory ({} bytes; see its limit on addresses)",
        sys::thread::process_id(),
        layout.size()
    ))
}

/// Bytes allocated now.
pub(crate) fn used_bytes() -> u64 {
    HEAP.used.load(Ordering::Relaxed)
}

/// After a fork, in the child: frees the heap's lock if a thread of the parent held it. Allocations under way then are
/// lost to the child; the heap's structure is whole, because the parent's threads were between two steps.
///
/// # Safety
/// No other thread of this process exists that uses the heap.
pub(crate) unsafe fn reset_after_fork() {
    // SAFETY: the caller's promise.
    unsafe { HEAP.blocks.reset() };
}

// SAFETY: TLSF hands out disjoint blocks of the areas it was given, with the alignment asked for; the areas are never
// unmapped, and a large block has one of its own until it is freed.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.large(layout).or_else(|| self.block(layout)).unwrap_or_else(|| out_of_memory(layout)).as_ptr()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let zeroed = || {
            let block = self.block(layout)?;
            // SAFETY: the block has so many bytes, and nobody else has it.
            unsafe { block.write_bytes(0, layout.size()) };
            Some(block)
        };
        self.large(layout).or_else(zeroed).unwrap_or_else(|| out_of_memory(layout)).as_ptr()
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.used.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        if let Some(pointer) = NonNull::new(pointer) {
            // A block of the heap's own is never at the base of an area: there its own tables are.
            // SAFETY: if an area was left there it is this block, of that size.
            if layout.size() >= LARGE_BYTES && unsafe { Area::adopt(pointer, layout.size()) }.is_some() {
                self.large.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            // SAFETY: the caller got the pointer from `alloc` with the same layout.
            unsafe { self.blocks.lock().deallocate(pointer, layout.align()) };
        }
    }
}
