//! The agent's heap: TLSF over areas of its own, so that nothing it allocates is ever managed memory.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use rlsf::Tlsf;
use sys::Area;
use sys::sync::Lock;

/// Steps in which the heap grows; a larger request gets an area of its own size.
const GROWTH_BYTES: usize = 1 << 20;

type Blocks = Tlsf<'static, u32, u32, 28, 16>;

struct Heap {
    blocks: Lock<Blocks>,
    used: AtomicU64,
}

#[global_allocator]
static HEAP: Heap = Heap { blocks: Lock::new(Blocks::new()), used: AtomicU64::new(0) };

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
// unmapped.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut blocks = self.blocks.lock();
        let mut block = blocks.allocate(layout);
        if block.is_none() {
            // Room for the block, its header, and padding up to its alignment; TLSF looks for blocks by size rounded
            // up to the next of 16 steps between powers of two, so a block that just fits is not found.
            let wanted = layout.size() + layout.size() / 8 + 2 * layout.align() + 64;
            let bytes = wanted.max(GROWTH_BYTES);
            if let Ok(area) = Area::reserve(bytes) {
                let memory = core::ptr::slice_from_raw_parts_mut(area.base(), area.bytes());
                core::mem::forget(area);
                let memory = NonNull::new(memory).expect("an area is not at address zero");
                // SAFETY: a fresh area that nobody else knows, never unmapped.
                unsafe { blocks.insert_free_block_ptr(memory) };
                block = blocks.allocate(layout);
            }
        }
        self.used.fetch_add(layout.size() as u64, Ordering::Relaxed);
        block.map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.used.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        if let Some(pointer) = NonNull::new(pointer) {
            // SAFETY: the caller got the pointer from `alloc` with the same layout.
            unsafe { self.blocks.lock().deallocate(pointer, layout.align()) };
        }
    }
}
