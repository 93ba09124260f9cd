//! The words: what a page is, and the three numbers that are never mixed up.
//!
//! An index says *which* page, a count says *how many*, bytes say *how much memory*. Each is a type of its own, so
//! that the compiler finds the place where one is taken for another.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

use core::ops::{Add, AddAssign, Sub, SubAssign};

/// log2 of [`PAGE_BYTES`].
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a managed page, which is also the OS page of x86-64 and of the aarch64 kernels we support.
pub const PAGE_BYTES: usize = 1 << PAGE_SHIFT;

/// The content of one page, aligned as the kernel and direct I/O want it.
#[repr(C, align(4096))]
#[derive(Clone)]
pub struct PageBytes(pub [u8; PAGE_BYTES]);

impl PageBytes {
    /// A page of zeros.
    pub const ZERO: Self = Self([0; PAGE_BYTES]);
}

impl core::fmt::Debug for PageBytes {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "PageBytes({:02x?}…)", &self.0[..8])
    }
}

/// Which page of an address space: its first address divided by [`PAGE_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PageIndex(pub u64);

impl PageIndex {
    /// The end of the pages that pleat can manage: addresses have 48 bits.
    pub const END: Self = Self(1 << 36);

    /// The page that holds `address`.
    pub const fn containing(address: u64) -> Self {
        Self(address >> PAGE_SHIFT)
    }

    /// The page's first address.
    pub const fn address(self) -> u64 {
        self.0 << PAGE_SHIFT
    }

    /// The pages from `self` up to, not including, `end`; none if `end` is not above `self`.
    pub fn until(self, end: Self) -> impl Iterator<Item = Self> {
        (self.0..end.0).map(Self)
    }
}

impl Add<PageCount> for PageIndex {
    type Output = Self;
    fn add(self, count: PageCount) -> Self {
        Self(self.0 + count.0)
    }
}

impl Sub for PageIndex {
    type Output = PageCount;
    fn sub(self, from: Self) -> PageCount {
        assert!(from <= self, "a page range that ends before it starts");
        PageCount(self.0 - from.0)
    }
}

/// Which frame of pleat's own: a page of RAM that holds what was moved out of the program and is not encoded yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FrameIndex(pub u32);

/// How many pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PageCount(pub u64);

impl PageCount {
    /// No pages.
    pub const ZERO: Self = Self(0);

    /// The memory these pages take.
    pub const fn bytes(self) -> ByteCount {
        ByteCount(self.0 << PAGE_SHIFT)
    }

    /// `self - other`, or zero where that would be negative.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// How much memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// Whole pages that these bytes touch.
    pub const fn pages_up(self) -> PageCount {
        PageCount(self.0.div_ceil(PAGE_BYTES as u64))
    }

    /// `self - other`, or zero where that would be negative.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

macro_rules! sums {
    ($($number:ident),*) => {$(
        impl Add for $number {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl Sub for $number {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl AddAssign for $number {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl SubAssign for $number {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
        impl core::iter::Sum for $number {
            fn sum<I: Iterator<Item = Self>>(numbers: I) -> Self {
                Self(numbers.map(|number| number.0).sum())
            }
        }
    )*};
}
sums!(PageCount, ByteCount);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_pages_agree() {
        assert_eq!(PageIndex::containing(0x1fff), PageIndex(1));
        assert_eq!(PageIndex(1).address(), 0x1000);
        assert_eq!(PageIndex(9) - PageIndex(4), PageCount(5));
        assert_eq!(PageIndex(7).until(PageIndex(9)).count(), 2);
        assert_eq!(PageIndex(9).until(PageIndex(7)).count(), 0);
    }

    #[test]
    fn bytes_round_up_to_pages() {
        assert_eq!(ByteCount(1).pages_up(), PageCount(1));
        assert_eq!(ByteCount(8192).pages_up(), PageCount(2));
        assert_eq!(PageCount(3).bytes(), ByteCount(12288));
    }

    #[test]
    #[should_panic(expected = "ends before it starts")]
    fn a_negative_range_is_a_bug() {
        let _ = PageIndex(1) - PageIndex(2);
    }
}
