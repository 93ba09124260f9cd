//! The end of a thread.
//!
//! The kernel clears a word in the thread's block then, by which who joins it sees that ([`crate::kept`]), and reads the list of its
//! robust mutexes. It does not wait for us (`PF_EXITING`): so what is on that list is brought in before.

use crate::sync::{AtomicU64, Ordering};
use crate::{process, robust};

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
