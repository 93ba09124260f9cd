//! Robust mutexes: what the kernel does with the list of a thread's when it ends.
//!
//! The list is libc's, in the program's memory: each entry is the address of the next, and the word that tells of the owner
//! is at the same distance from each. Nothing that it says is believed.

use crate::arch::{number, syscall};
use crate::thread::errno;

/// Entries that the kernel looks at (`ROBUST_LIST_LIMIT`).
const ENTRIES_MAX: usize = 2048;
/// Marks an entry with priority inheritance.
const INHERITS: u64 = 1;

/// The head of this thread's list, if it has one.
pub(crate) fn head() -> Option<u64> {
    let (mut head, mut bytes) = (0_u64, 0_u64);
    // SAFETY: both are written, and live.
    let answer =
        unsafe { syscall(number::GET_ROBUST_LIST, [0, &raw mut head as usize, &raw mut bytes as usize, 0, 0, 0]) };
    (errno(answer).is_ok() && head != 0 && bytes == 24).then_some(head)
}

/// Whether the list at `head` is empty, as those of most threads are. Asks without a call that a sandbox may forbid where the head
/// lies in the thread's block, as libc's does; false where it does not. `block` is an address of that.
pub(crate) fn is_empty(head: u64, block: u64) -> bool {
    /// More than a thread block has.
    const NEAR: u64 = 4096;
    let is_near = head.abs_diff(block) < NEAR && head.is_multiple_of(8);
    // SAFETY: libc has told the kernel of it, and its thread's block is there while the thread is.
    let word = |at: u64| unsafe { (at as *const u64).read_volatile() };
    is_near && word(head) == head && word(head + 16) == 0
}

/// Visits what the kernel will look at, up to what cannot be read: an entry, and its word.
pub(crate) fn words(head: u64, read: &mut dyn FnMut(u64) -> Option<u64>, visit: &mut dyn FnMut(u64, u64)) {
    let (Some(first), Some(distance), Some(pending)) =
        (read(head), read(head.wrapping_add(8)), read(head.wrapping_add(16)))
    else {
        return;
    };
    let mut entry = first;
    for _ in 0..ENTRIES_MAX {
        if entry & !INHERITS == head {
            break;
        }
        // Before the word: the kernel reads on first, and then writes.
        let Some(next) = read(entry & !INHERITS) else { break };
        visit(entry & !INHERITS, (entry & !INHERITS).wrapping_add(distance));
        entry = next;
    }
    if pending & !INHERITS != 0 {
        visit(pending & !INHERITS, (pending & !INHERITS).wrapping_add(distance));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(memory: &[(u64, u64)]) -> Vec<u64> {
        let mut found = vec![];
        let mut read = |at| memory.iter().find(|(address, _)| *address == at).map(|(_, word)| *word);
        words(100, &mut read, &mut |_, word| found.push(word));
        found
    }

    #[test]
    fn a_list_is_followed_to_its_head() {
        let back = (-8_i64) as u64;
        assert_eq!(words_of(&[(100, 100), (108, back), (116, 0)]), []);
        assert_eq!(words_of(&[(100, 200), (108, back), (116, 400), (200, 301), (300, 100)]), [192, 292, 392]);
        assert_eq!(words_of(&[(100, 200), (108, back), (116, 0)]), [], "it leads nowhere");
        assert_eq!(words_of(&[(100, 200), (108, back), (116, 0), (200, 200)]).len(), ENTRIES_MAX, "a circle");
        assert_eq!(words_of(&[]), []);
    }

    #[test]
    fn this_thread_has_a_list() {
        let head = head().unwrap();
        let mut count = 0;
        words(head, &mut crate::process::read_word, &mut |_, _| count += 1);
        assert_eq!(count, 0);
        assert!(is_empty(head, head + 8) && !is_empty(head, head + 5000));
        assert_eq!(crate::process::read_word(head), Some(head));
        assert_eq!(crate::process::read_word(8), None);
    }
}
