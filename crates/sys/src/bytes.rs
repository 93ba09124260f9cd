//! The functions on bytes that compilers call by name: memcpy and its kin.
//!
//! The agent has its own. Those of its host may be a sanitizer's, which look at memory that is managed, or have a debugger's
//! breakpoint in them, and the agent's threads, which nobody traces, would end the program there.

#[cfg_attr(target_arch = "x86_64", path = "arch/x86_64_bytes.rs")]
#[cfg_attr(target_arch = "aarch64", path = "arch/aarch64_bytes.rs")]
mod native;

pub use native::{compare, copy, fill, length};

#[cfg(test)]
mod tests {
    use super::*;

    /// All lengths at which the functions do something else, and their neighbours.
    fn counts() -> impl Iterator<Item = usize> {
        (0..=70).chain([127, 128, 129, 255, 256, 500, 511, 512, 513, 528, 1000, 4095, 4096, 4097])
    }

    fn noise(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at * 131 + at / 251) as u8).collect()
    }

    #[test]
    fn bytes_are_copied_as_by_copy_within() {
        for count in counts() {
            for (from, to) in [(0, 5000), (5000, 0), (3, 0), (0, 3), (40, 56), (56, 40), (7, 7), (0, count), (count, 1)]
            {
                let mut copied = noise(10_000);
                let mut expected = copied.clone();
                expected.copy_within(from..from + count, to);
                let base = copied.as_mut_ptr();
                // SAFETY: both lie in the same ten thousand bytes.
                let returned = unsafe { copy(base.wrapping_add(to), base.wrapping_add(from), count) };
                assert_eq!(returned, base.wrapping_add(to));
                assert!(copied == expected, "{count} from {from} to {to}");
            }
        }
    }

    #[test]
    fn bytes_are_filled_as_by_fill() {
        for count in counts() {
            for (at, byte) in [(0, 0), (1, 0xa5), (9, 0x1ff)] {
                let mut filled = noise(5000);
                let mut expected = filled.clone();
                expected[at..at + count].fill(byte as u8);
                let start = filled.as_mut_ptr().wrapping_add(at);
                // SAFETY: they lie in the five thousand bytes.
                assert_eq!(unsafe { fill(start, byte, count) }, start);
                assert!(filled == expected, "{count} at {at}");
            }
        }
    }

    #[test]
    fn bytes_are_compared_as_slices_are() {
        for count in counts() {
            let one = noise(count);
            for (at, other) in [0, 1, 7, 8, 9, count / 2, count.saturating_sub(1)].map(|at| (at, one.get(at))) {
                let Some(byte) = other else { continue };
                for changed in [byte ^ 0x80, byte.wrapping_add(1), *byte] {
                    let mut other = one.clone();
                    other[at] = changed;
                    // What is behind the first difference does not matter.
                    other[at + 1..].fill(0x55 ^ one[at]);
                    let expected = one.cmp(&other) as i32;
                    // SAFETY: both have so many.
                    let found = unsafe { compare(one.as_ptr(), other.as_ptr(), count) };
                    assert_eq!(found.signum(), expected, "{count}, differs at {at}");
                }
            }
        }
        // SAFETY: nothing is read.
        assert_eq!(unsafe { compare(core::ptr::null(), core::ptr::null(), 0) }, 0);
    }

    #[test]
    fn a_text_is_as_long_as_its_first_zero_says() {
        for count in counts() {
            let mut text = vec![b'x'; count];
            text.extend([0, b'y', 0]);
            // SAFETY: a zero follows.
            assert_eq!(unsafe { length(text.as_ptr()) }, count);
        }
    }
}
