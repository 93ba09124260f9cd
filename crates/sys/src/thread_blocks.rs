//! Thread blocks: where libc keeps what it knows of a thread, at the top of the thread's stack.
//!
//! When a thread ends the kernel clears a word there, by which who joins it sees that, and reads the list of its robust mutexes.
//! It does not wait for us then (`PF_EXITING`): with the page away nobody would ever be told. So those pages are not moved out.
//! In user mode no page of a stack is ([`crate::user_mode`]).

use crate::remap::is_range;
use crate::spans::Spans;
use crate::sync::{AtomicU64, Ordering};
use crate::{process, robust, thread};

/// `MAP_STACK`, by which libc maps stacks.
pub const MAP_STACK: i32 = 0x2_0000;
/// What there is of a block at the end of a stack: on x86-64 it ends there, elsewhere libraries' variables lie behind it.
const BLOCK_BYTES: u64 = if cfg!(target_arch = "x86_64") { 4096 } else { 16384 };

/// Their pages never go: of more threads than these those of glibc before 2.35 may fare as without this. Nobody waits for ever for
/// who writes: in the child of a raw fork he may not be there.
static BLOCKS: Spans<2048, 10_000> = Spans::new();

/// A stack has been mapped, and nobody uses it yet.
pub fn stack_is_mapped(start: usize, bytes: usize) {
    let end = (start.saturating_add(bytes) as u64).next_multiple_of(4096);
    let start = end.saturating_sub(BLOCK_BYTES).max(start as u64);
    // Without room all is as it was: most threads have just used their block when they end.
    unless_interrupted(|| BLOCKS.add(start, end));
}

/// Blocks that were at addresses.
#[derive(Debug)]
pub struct Forgotten(core::ops::Range<u64>);

/// These addresses are about to be unmapped, or mapped anew.
pub fn are_unmapped(start: usize, bytes: usize) -> Forgotten {
    if !is_range(start, bytes) {
        return Forgotten(0..0); // It is refused.
    }
    let (start, end) = (start as u64, ((start + bytes) as u64).next_multiple_of(4096));
    if BLOCKS.first_in(start, end) == end {
        return Forgotten(end..end);
    }
    Forgotten(unless_interrupted(|| BLOCKS.cut(start, end)))
}

/// They have not been.
pub fn are_there_still(Forgotten(blocks): Forgotten) {
    if !blocks.is_empty() {
        unless_interrupted(|| BLOCKS.add(blocks.start, blocks.end));
    }
}

/// The first address of `start..end` that is in one; `end` if none is.
pub(crate) fn first_in(start: u64, end: u64) -> u64 {
    BLOCKS.first_in(start, end)
}

/// In a forked child: a writer of the parent's is not here.
pub fn reset_in_child() {
    BLOCKS.reset();
}

/// A signal's handler that maps would wait for the thread that it interrupts.
fn unless_interrupted<R>(write: impl FnOnce() -> R) -> R {
    let mask = thread::block_signals();
    let result = write();
    thread::unblock_signals(mask);
    result
}

/// Whether a thread that discards this range is about to end: libc gives back what it has used of its stack below where it is.
pub fn is_last_discard(start: usize, bytes: usize) -> bool {
    /// What libc leaves of the stack is its smallest one, 16 or 128 KiB.
    const LEFT_MAX: usize = 256 << 10;
    let marker = 0_u8;
    let here = &raw const marker as usize;
    start.checked_add(bytes).and_then(|end| here.checked_sub(end)).is_some_and(|above| above < LEFT_MAX)
}

/// Where libc's list of a thread's robust mutexes lies from the address of its block; 0 while that is not known.
static ROBUST_LIST: AtomicU64 = AtomicU64::new(0);

/// On a thread of libc's, of whose block this is the address.
pub fn learn_robust_list(block: usize) {
    let distance = robust::head().map_or(0, |head| head.wrapping_sub(block as u64));
    ROBUST_LIST.store(distance, Ordering::Relaxed);
}

/// Brings in what the kernel will look at when this thread ends with robust mutexes: it tells nobody of those behind the first
/// that is missing. `block` is the address of the thread's block. Where the kernel may not be asked for the list, it is taken to be
/// libc's.
pub fn bring_in_robust_list(block: usize, may_ask: bool) {
    let libcs = || match ROBUST_LIST.load(Ordering::Relaxed) {
        0 => None,
        distance => Some(distance.wrapping_add(block as u64)),
    };
    let head = if may_ask { robust::head() } else { libcs() };
    let Some(head) = head.filter(|head| !robust::is_empty(*head, block as u64)) else { return };
    robust::words(head, &mut process::read_word, &mut |_, word| {
        process::read_word(word);
    });
}
