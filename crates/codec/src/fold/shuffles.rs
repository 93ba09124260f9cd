//! For each mask, how to shuffle the eight bytes of a word. A place whose highest bit is set means zero.

/// The bytes of the mask, the lowest first.
pub(super) static PACKS: [u64; 256] = tables().0;
/// The other way: the lowest bytes where the mask has bits.
pub(super) static UNPACKS: [u64; 256] = tables().1;

const fn tables() -> ([u64; 256], [u64; 256]) {
    let (mut packs, mut unpacks) = ([0x8080_8080_8080_8080; 256], [0x8080_8080_8080_8080; 256]);
    let mut mask = 0;
    while mask < 256 {
        let (mut at, mut count) = (0, 0);
        while at < 8 {
            if mask >> at & 1 == 1 {
                // In place of 0x80.
                packs[mask] ^= (0x80 ^ at) << (8 * count);
                unpacks[mask] ^= (0x80 ^ count) << (8 * at);
                count += 1;
            }
            at += 1;
        }
        mask += 1;
    }
    (packs, unpacks)
}
