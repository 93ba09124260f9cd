//! For each mask, how to shuffle the eight bytes of a word. A place whose highest bit is set means zero.

/// An entry for each mask, and one more, so that any can be read as a part of a vector.
pub(super) type Table = [u64; 257];

/// The bytes of the mask, the lowest first.
pub(super) static PACKS: Table = tables().0;
/// The other way: the lowest bytes where the mask has bits.
pub(super) static UNPACKS: Table = tables().1;

const fn tables() -> (Table, Table) {
    let (mut packs, mut unpacks) = ([0x8080_8080_8080_8080; 257], [0x8080_8080_8080_8080; 257]);
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
