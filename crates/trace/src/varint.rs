//! Numbers in as few bytes as they need.

/// Appends `value` in LEB128.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front of `bytes`; `None` if there is none.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    const ENDS: u64 = 0x8080_8080_8080_8080;
    let Some(word) = bytes.first_chunk().map(|&word| u64::from_le_bytes(word)) else { return take_slowly(bytes) };
    let ends = !word & ENDS;
    if ends == 0 {
        return take_slowly(bytes);
    }
    // Lengths cannot be foretold, so there is no branch for each byte: seven bits of each are pushed together in three steps.
    let bits = ends.trailing_zeros() + 1;
    *bytes = &bytes[bits as usize / 8..];
    let seven = word & !ENDS & (u64::MAX >> (64 - bits));
    let fourteen = (seven & 0x007f_007f_007f_007f) | ((seven & 0x7f00_7f00_7f00_7f00) >> 1);
    let many = (fourteen & 0x0000_3fff_0000_3fff) | ((fourteen & 0x3fff_0000_3fff_0000) >> 2);
    Some((many & 0x0fff_ffff) | ((many & 0x0fff_ffff_0000_0000) >> 4))
}

/// The same, byte by byte.
fn take_slowly(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if at == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * at);
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Some(value);
        }
    }
    None
}

/// The difference from `from` to `to` as a small number whichever sign it has.
pub(crate) const fn zigzag(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// What `zigzag` came from.
pub(crate) const fn unzigzag(from: u64, coded: u64) -> u64 {
    from.wrapping_add((coded >> 1) ^ (coded & 1).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = vec![];
                put(&mut bytes, value);
                let mut rest = &bytes[..];
                assert_eq!((take(&mut rest), rest.len()), (Some(value), 0));
                assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
                assert_eq!(unzigzag(7, zigzag(7, value)), value);
                assert_eq!(unzigzag(value, zigzag(value, 7)), 7);
            }
        }
    }

    #[test]
    fn eight_bytes_at_once_are_as_byte_by_byte() {
        let mut draw = 1_u64;
        for round in 0..100_000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // More or fewer ends among the bytes, and bytes behind the number.
            let flip = [0, u64::MAX, draw << 7, draw >> 3][round % 4] & 0x8080_8080_8080_8080;
            let bytes = [(draw.rotate_left(21) | flip).to_le_bytes(), draw.to_le_bytes()].concat();
            for bytes in [&bytes[..], &bytes[..8], &bytes[..7]] {
                let (mut fast, mut slow) = (bytes, bytes);
                assert_eq!((take(&mut fast), fast), (take_slowly(&mut slow), slow), "{bytes:x?}");
            }
        }
    }

    #[test]
    fn too_long_is_no_number() {
        assert_eq!(take(&mut &[0x80; 11][..]), None);
        let mut over = [0xff; 10];
        over[9] = 2;
        assert_eq!(take(&mut &over[..]), None);
    }

    #[test]
    fn small_differences_are_small() {
        assert_eq!([zigzag(5, 5), zigzag(5, 4), zigzag(5, 6), zigzag(5, 3)], [0, 1, 2, 3]);
    }
}
