//! Kept memory: pages that never go, because the kernel needs them where it does not wait for us.
//!
//! - The thread block at the end of a stack, when its thread has ended (`PF_EXITING`).
//! - The words of mutexes that pass their priority on (`PTHREAD_PRIO_INHERIT`). The kernel writes them itself, and takes a fault there
//!   for one that cannot be mended (`fixup_user_fault` without `FAULT_FLAG_ALLOW_RETRY`): it answers `EFAULT`, and glibc ends the
//!   program for that.
//!
//! In user mode what a system call is at work on is held ([`crate::user_mode`]).

use core::ops::Range;

use crate::remap::is_range;
use crate::spans::Spans;
use crate::thread;

/// `MAP_STACK`, by which libc maps stacks.
pub const MAP_STACK: i32 = 0x2_0000;
/// What there is of a block at the end of a stack: on x86-64 it ends there, elsewhere libraries' variables lie behind it.
const BLOCK_BYTES: u64 = if cfg!(target_arch = "x86_64") { 4096 } else { 16384 };
/// What the kernel writes of a mutex.
const WORD_BYTES: u64 = 4;

/// How often who wants to write looks whether it is his turn: in the child of a raw fork who writes may not be there.
const LOOKS: u32 = 10_000;

/// Of more threads than these those of glibc before 2.35 may fare as without this.
static BLOCKS: Spans<2048, LOOKS> = Spans::new();
/// More mutexes than these may be missing when the kernel writes them, if they leave in the moment before.
static WORDS: Spans<512, LOOKS> = Spans::new();

/// A stack has been mapped, and nobody uses it yet.
pub fn stack_is_mapped(start: usize, bytes: usize) {
    let end = (start.saturating_add(bytes) as u64).next_multiple_of(4096);
    let start = end.saturating_sub(BLOCK_BYTES).max(start as u64);
    // Without room all is as it was: most threads have just used their block when they end.
    unless_interrupted(|| BLOCKS.add(start, end));
}

/// The mutex at `address` is about to be made.
pub fn word_is_made(address: usize) {
    unless_interrupted(|| WORDS.add(address as u64, address as u64 + WORD_BYTES));
}

/// It is no more.
pub fn word_is_gone(address: usize) {
    cut(&WORDS, address as u64, address as u64 + WORD_BYTES);
}

/// Blocks and words that were at addresses.
#[derive(Debug)]
pub struct Forgotten {
    blocks: Range<u64>,
    words: Range<u64>,
}

/// These addresses are about to be unmapped, or mapped anew.
pub fn are_unmapped(start: usize, bytes: usize) -> Forgotten {
    if !is_range(start, bytes) {
        return Forgotten { blocks: 0..0, words: 0..0 }; // It is refused.
    }
    let (start, end) = (start as u64, ((start + bytes) as u64).next_multiple_of(4096));
    Forgotten { blocks: cut(&BLOCKS, start, end), words: cut(&WORDS, start, end) }
}

/// They have not been.
pub fn are_there_still(Forgotten { blocks, words }: Forgotten) {
    if !blocks.is_empty() {
        unless_interrupted(|| BLOCKS.add(blocks.start, blocks.end));
    }
    if !words.is_empty() {
        unless_interrupted(|| WORDS.add(words.start, words.end));
    }
}

/// Takes addresses out, most of which are in none.
fn cut<const SPANS: usize>(table: &Spans<SPANS, LOOKS>, start: u64, end: u64) -> Range<u64> {
    if table.first_in(start, end) == end {
        return end..end;
    }
    unless_interrupted(|| table.cut(start, end))
}

/// The first address of `start..end` that is kept; `end` if none is.
pub(crate) fn first_in(start: u64, end: u64) -> u64 {
    BLOCKS.first_in(start, end).min(WORDS.first_in(start, end))
}

/// In a forked child: a writer of the parent's is not here.
pub fn reset_in_child() {
    BLOCKS.reset();
    WORDS.reset();
}

/// A signal's handler that maps would wait for the thread that it interrupts.
fn unless_interrupted<R>(write: impl FnOnce() -> R) -> R {
    let mask = thread::block_signals();
    let result = write();
    thread::unblock_signals(mask);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses of this test's, where nothing is mapped.
    const PAGE: usize = 0x7000_0000_0000;

    #[test]
    fn a_page_is_kept_while_a_mutex_is_in_it() {
        let (start, end) = (PAGE as u64, PAGE as u64 + 8192);
        assert_eq!(first_in(start, end), end);
        word_is_made(PAGE + 4096 + 40);
        word_is_made(PAGE + 4096 + 80);
        assert_eq!(first_in(start, end), start + 4096 + 40);
        word_is_gone(PAGE + 4096 + 40);
        assert_eq!(first_in(start, end), start + 4096 + 80, "the other is there still");
        word_is_gone(PAGE + 4096 + 40);
        let forgotten = are_unmapped(PAGE + 4096, 4096);
        assert_eq!(first_in(start, end), end);
        are_there_still(forgotten);
        assert_eq!(first_in(start, end), start + 4096 + 80);
        are_unmapped(PAGE, 8192);
        assert_eq!(first_in(start, end), end);
    }

    #[test]
    fn a_stack_keeps_its_block_until_it_is_unmapped() {
        let (start, bytes) = (PAGE + (1 << 20), 64 << 10);
        let end = (start + bytes) as u64;
        stack_is_mapped(start, bytes);
        assert_eq!(first_in(start as u64, end), end - BLOCK_BYTES);
        are_unmapped(start, bytes);
        assert_eq!(first_in(start as u64, end), end);
    }
}
