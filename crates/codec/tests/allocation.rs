//! No codec allocates while it works: in the agent the allocator's lock could be held by the thread that waits for the page.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use page::{PAGE_BYTES, PageBytes};
use pleat_codec::{ALL, Scratch};

/// 120 pages of real programs; see `testdata/README.md`.
const CORPUS: &[u8] = include_bytes!("../testdata/corpus.pages");

std::thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, and a count of what this thread asks of it.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: the system's allocator; counting touches nothing of it, and a constant thread-local allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: what our caller has promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `alloc` got the pointer from there with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn codecs_allocate_nothing() {
    let mut scratch = Scratch::new();
    let (mut out, mut decoded) = ([0; PAGE_BYTES], PageBytes::ZERO);
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1, "the count must count");
    for codec in ALL {
        let made = allocations(|| {
            for bytes in CORPUS.as_chunks::<PAGE_BYTES>().0 {
                if let Some(length) = codec.encode(&PageBytes(*bytes), &mut scratch, &mut out) {
                    codec.decode(&out[..length], &mut decoded).expect("it was just encoded");
                }
            }
        });
        assert_eq!(made, 0, "{}", codec.name());
    }
}
