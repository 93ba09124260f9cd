//! An entry of the translation table: 16 bytes for a line of 1 KiB.

/// A line.
pub(super) const LINE_BYTES: usize = 1024;
/// Lines of a page.
pub const LINES: usize = page::PAGE_BYTES / LINE_BYTES;
/// A sector.
pub(super) const SECTOR_BYTES: usize = 256;

/// "For cache lines that compress to less than 120 bits": whole bytes of less than 120 bits.
const TRIVIAL_BYTES_MAX: usize = 14;
/// Four sector numbers fill the 14 bytes behind the control flags: 2^28 sectors are 64 GiB.
const SECTOR_BITS: usize = 28;
/// More than any sector number.
pub(super) const NO_SECTOR: u32 = 1 << SECTOR_BITS;

const LENGTH_BITS: u32 = 11;

/// Control flags, and four sector numbers or the line's encoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// The length of the encoding in the low 11 bits; above, one more than the cohort whose last sector this line's last
    /// bytes share, or zero.
    control: u16,
    rest: [u8; TRIVIAL_BYTES_MAX],
}

const _: () = assert!(size_of::<Line>() == 16 && 4 * SECTOR_BITS <= TRIVIAL_BYTES_MAX * 8);

impl Line {
    pub(super) const EMPTY: Self = Self { control: 0, rest: [0; TRIVIAL_BYTES_MAX] };

    pub(super) fn new(length: usize) -> Self {
        assert!(length <= LINE_BYTES, "a line of {length} bytes");
        Self { control: length as u16, ..Self::EMPTY }
    }

    /// The same line, which ends in the last sector of a cohort.
    pub(super) fn sharing(self, cohort: usize) -> Self {
        Self { control: self.control | (cohort as u16 + 1) << LENGTH_BITS, ..self }
    }

    pub(super) fn length(self) -> usize {
        usize::from(self.control & ((1 << LENGTH_BITS) - 1))
    }

    /// The cohort whose last sector it shares.
    pub(super) fn shares(self) -> Option<usize> {
        usize::from(self.control >> LENGTH_BITS).checked_sub(1)
    }

    /// Whether the encoding is in the entry.
    pub(super) fn is_trivial(self) -> bool {
        self.length() <= TRIVIAL_BYTES_MAX
    }

    /// Sectors that it is in, 0 to 4.
    pub(super) fn sectors(self) -> usize {
        if self.is_trivial() { 0 } else { self.length().div_ceil(SECTOR_BYTES) }
    }

    /// Of these, sectors that are not a cohort's.
    pub(super) fn own_sectors(self) -> usize {
        self.sectors() - usize::from(self.shares().is_some())
    }

    /// Bytes in the last sector.
    pub(super) fn last_bytes(self) -> usize {
        (self.length() - 1) % SECTOR_BYTES + 1
    }

    pub(super) fn can_share(self, cohort: Self) -> bool {
        !self.is_trivial() && !cohort.is_trivial() && self.last_bytes() + cohort.last_bytes() <= SECTOR_BYTES
    }

    /// Where in its sector number `at` the line begins: the second of two that share one is at the end.
    pub(super) fn offset_in(self, at: usize) -> usize {
        let second = self.shares().is_some() && at + 1 == self.sectors();
        if second { SECTOR_BYTES - self.last_bytes() } else { 0 }
    }

    pub(super) fn sector(self, at: usize) -> u32 {
        let mut word = [0; 16];
        word[..TRIVIAL_BYTES_MAX].copy_from_slice(&self.rest);
        (u128::from_le_bytes(word) >> (at * SECTOR_BITS)) as u32 & (NO_SECTOR - 1)
    }

    pub(super) fn set_sector(&mut self, at: usize, sector: u32) {
        assert!(sector < NO_SECTOR && at < LINES);
        let mut word = [0; 16];
        word[..TRIVIAL_BYTES_MAX].copy_from_slice(&self.rest);
        let shift = at * SECTOR_BITS;
        let others = u128::from_le_bytes(word) & !(u128::from(NO_SECTOR - 1) << shift);
        let word = (others | u128::from(sector) << shift).to_le_bytes();
        self.rest.copy_from_slice(&word[..TRIVIAL_BYTES_MAX]);
    }

    /// Names another sector where `from` is named.
    pub(super) fn replace(&mut self, from: u32, to: u32) {
        for at in 0..self.sectors() {
            if self.sector(at) == from {
                self.set_sector(at, to);
            }
        }
    }

    /// The encoding of a trivial line.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.rest[..self.length()]
    }

    pub(super) fn set_bytes(&mut self, encoding: &[u8]) {
        self.rest[..encoding.len()].copy_from_slice(encoding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sector_numbers_come_back() {
        let mut line = Line::new(LINE_BYTES);
        let sectors = [NO_SECTOR - 1, 0, 0x0abc_def0, 12];
        for (at, &sector) in sectors.iter().enumerate() {
            line.set_sector(at, NO_SECTOR - 1);
            line.set_sector(at, sector);
        }
        assert_eq!([0, 1, 2, 3].map(|at| line.sector(at)), sectors);
        line.replace(0, 99);
        assert_eq!([0, 1, 2, 3].map(|at| line.sector(at)), [NO_SECTOR - 1, 99, 0x0abc_def0, 12]);
    }

    #[test]
    fn a_line_takes_0_to_4_sectors() {
        let lengths = [0, 1, 14, 15, 256, 257, 512, 513, 768, 769, 1023, 1024];
        assert_eq!(lengths.map(|length| Line::new(length).sectors()), [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4]);
        let shared = Line::new(300).sharing(2);
        assert_eq!((shared.length(), shared.shares(), shared.sectors(), shared.own_sectors()), (300, Some(2), 2, 1));
        assert_eq!((shared.offset_in(0), shared.offset_in(1)), (0, 256 - 44));
    }
}
