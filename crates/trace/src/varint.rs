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
