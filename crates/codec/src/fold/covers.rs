//! The masks that a word can have: which of its bytes are told.
//!
//! Any of 256 would take eight bits. Five tell one of 32, which leaves three for the choice in the same byte; a word takes the smallest mask that
//! holds all bytes in which it differs. On heaps that adds a literal for every fifth word.

/// The masks by their numbers: with fewer bits first. Runs from the lowest byte on, what halves of a word differ in, and all but one byte.
pub(super) static COVERS: [u8; 32] = [
    0x00, 0x01, 0x02, 0x04, 0x80, 0x10, 0x03, 0x06, 0x11, 0x30, 0xc0, 0x07, 0x0e, 0x13, 0x31, 0x70, //
    0x0f, 0x33, 0xf0, 0x78, 0x1f, 0x3f, 0x77, 0x7f, 0xfe, 0xfd, 0xfb, 0xf7, 0xef, 0xdf, 0xbf, 0xff,
];

/// The number of the mask that has all bits: such a word is told in full, whatever its choice.
pub(super) const WHOLE: u8 = 31;

/// Below the number of the mask in the code of a word: its choice.
pub(super) const CHOICE_BITS: usize = 3;

/// For each set of bytes, the number of the smallest mask that holds it, of equals the lowest.
#[repr(C, align(64))]
pub(super) struct CoverOf(pub(super) [u8; 256]);

pub(super) static COVER_OF: CoverOf = {
    let mut numbers = [WHOLE; 256];
    let mut bytes = 0;
    while bytes < 256 {
        let mut number = COVERS.len();
        // From the last one down: so the last that is taken is the lowest of the smallest.
        while number > 0 {
            number -= 1;
            let cover = COVERS[number];
            if cover as usize & bytes == bytes && cover.count_ones() <= COVERS[numbers[bytes] as usize].count_ones() {
                numbers[bytes] = number as u8;
            }
        }
        bytes += 1;
    }
    CoverOf(numbers)
};

/// For each code of a word, how many literals it has. As wide as what they are added to, so that one step loads and adds.
pub(super) static LITERALS: [usize; 256] = {
    let mut literals = [0; 256];
    let mut code = 0;
    while code < 256 {
        literals[code] = COVERS[code >> CHOICE_BITS].count_ones() as usize;
        code += 1;
    }
    literals
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mask_is_its_own_and_any_bytes_have_one() {
        for (number, cover) in COVERS.iter().enumerate() {
            assert_eq!(usize::from(COVER_OF.0[usize::from(*cover)]), number);
        }
        for bytes in 0..=u8::MAX {
            let cover = COVERS[usize::from(COVER_OF.0[usize::from(bytes)])];
            assert_eq!(cover & bytes, bytes);
            let least = COVERS.iter().filter(|cover| **cover & bytes == bytes).map(|cover| cover.count_ones()).min();
            assert_eq!(least, Some(cover.count_ones()));
        }
    }
}
