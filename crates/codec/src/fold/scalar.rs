//! The plain twin: what the format document says, word by word.

use page::PageBytes;

use super::{Areas, BITMAP_BYTES, GROUP, HEADER_BYTES, INDEX_BITS, WINDOW, WORDS, Workspace, masks_at};

/// Encodes into `workspace.out` and returns the length.
pub(super) fn encode(page: &PageBytes, workspace: &mut Workspace) -> usize {
    let Workspace { words, masks, literals, out, .. } = workspace;
    let mut count = 0;
    let bitmap = &mut out[HEADER_BYTES..HEADER_BYTES + BITMAP_BYTES];
    bitmap.fill(0);
    words[..WINDOW].fill(0);
    for (at, word) in page.0.as_chunks::<8>().0.iter().enumerate() {
        if *word != [0; 8] {
            bitmap[at / 8] |= 1 << (at % 8);
            words[WINDOW + count] = u64::from_le_bytes(*word);
            count += 1;
        }
    }
    words[WINDOW + count..WINDOW + count + GROUP].fill(0);
    let groups = count.div_ceil(GROUP);
    let differs_at = HEADER_BYTES + BITMAP_BYTES;
    let (mut mask_count, mut literal_count) = (0, 0);
    for group in 0..groups {
        let start = WINDOW + group * GROUP;
        let (mut differs, mut indices) = (0_u8, 0_u64);
        for lane in 0..GROUP {
            let word = words[start + lane];
            let index = choose(word, &words[start - WINDOW..start]);
            indices |= (index as u64) << (lane * INDEX_BITS);
            let mask = differing_bytes(word, predictor(&words[start - WINDOW..start], index));
            if mask != 0 {
                differs |= 1 << lane;
                masks[mask_count] = mask;
                mask_count += 1;
                for (_, byte) in word.to_le_bytes().iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1) {
                    literals[literal_count] = *byte;
                    literal_count += 1;
                }
            }
        }
        out[differs_at + group] = differs;
        let at = differs_at + groups + group * INDEX_BITS;
        out[at..at + INDEX_BITS].copy_from_slice(&indices.to_le_bytes()[..INDEX_BITS]);
    }
    debug_assert_eq!(masks_at(count), differs_at + groups * (1 + INDEX_BITS));
    workspace.finish(count, mask_count, literal_count)
}

/// The choice that shares most bytes with `word`; of equals, none and one shared being equal, the nearest.
fn choose(word: u64, window: &[u64]) -> usize {
    let shared = |index: usize| 8 - differing_bytes(word, predictor(window, index)).count_ones();
    (0..WINDOW).max_by_key(|&index| (shared(index).max(1), index)).expect("there are choices")
}

/// Choice 0 is zero, the others are words before the group, the last one nearest.
fn predictor(window: &[u64], index: usize) -> u64 {
    if index == 0 { 0 } else { window[index] }
}

fn differing_bytes(one: u64, other: u64) -> u8 {
    let bytes = (one ^ other).to_le_bytes();
    bytes.iter().enumerate().fold(0, |mask, (at, byte)| mask | u8::from(*byte != 0) << at)
}

/// Decodes areas that agree with each other.
pub(super) fn decode(areas: &Areas<'_>, page: &mut PageBytes) {
    let mut words = [0; WINDOW + WORDS];
    let mut masks = areas.masks.iter();
    let mut literals = areas.literals.iter();
    for (group, differs) in areas.differs.iter().enumerate() {
        let start = WINDOW + group * GROUP;
        let mut packed = [0; 8];
        packed[..INDEX_BITS].copy_from_slice(&areas.indices[group * INDEX_BITS..(group + 1) * INDEX_BITS]);
        let indices = u64::from_le_bytes(packed);
        for lane in 0..GROUP {
            let index = (indices >> (lane * INDEX_BITS)) as usize % WINDOW;
            let mut bytes = predictor(&words[start - WINDOW..start], index).to_le_bytes();
            let mask = if differs >> lane & 1 == 1 { *masks.next().expect("the sums agree") } else { 0 };
            for (_, byte) in bytes.iter_mut().enumerate().filter(|(at, _)| mask >> at & 1 == 1) {
                *byte = *literals.next().expect("the sums agree");
            }
            words[start + lane] = u64::from_le_bytes(bytes);
        }
    }
    let mut next = words[WINDOW..].iter();
    for (at, word) in page.0.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let is_zero = areas.bitmap[at / 8] >> (at % 8) & 1 == 0;
        *word = if is_zero { [0; 8] } else { next.next().expect("the sums agree").to_le_bytes() };
    }
}
