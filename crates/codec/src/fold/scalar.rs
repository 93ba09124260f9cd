//! The plain twin: what the format document says, word by word.

use page::PageBytes;

use crate::Corrupt;

use super::{Areas, BITMAP_BYTES, GROUP, HEADER_BYTES, INDEX_BITS, List, Unlisted, WHOLE, WINDOW, WORDS, Workspace};

/// Encodes into `workspace.out` and returns the length.
pub(super) fn encode(page: &PageBytes, workspace: &mut Workspace) -> usize {
    let list = list(page, workspace);
    let Workspace { words, masks, literals, out, .. } = workspace;
    words[..WINDOW].fill(0);
    words[WINDOW + list.words..WINDOW + list.words + GROUP].fill(0);
    let (mut mask_count, mut literal_count) = (0, 0);
    for group in 0..list.groups() {
        let start = WINDOW + group * GROUP;
        let (mut differs, mut indices) = (0_u8, 0_u64);
        for lane in 0..GROUP {
            let word = words[start + lane];
            let index = choose(word, &words[start - WINDOW..start]);
            indices |= (index as u64) << (lane * INDEX_BITS);
            let mask = differing_bytes(word, &words[start - WINDOW..start], index);
            if mask != 0 {
                if index != WHOLE {
                    differs |= 1 << lane;
                    masks[mask_count] = mask;
                    mask_count += 1;
                }
                for (_, byte) in word.to_le_bytes().iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1) {
                    literals[literal_count] = *byte;
                    literal_count += 1;
                }
            }
        }
        out[list.differs_at() + group] = differs;
        let at = list.indices_at() + group * INDEX_BITS;
        out[at..at + INDEX_BITS].copy_from_slice(&indices.to_le_bytes()[..INDEX_BITS]);
    }
    workspace.finish(list, mask_count, literal_count)
}

/// Writes the bitmap, and the listed words one behind the other.
fn list(page: &PageBytes, workspace: &mut Workspace) -> List {
    let page = || page.0.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let before = || core::iter::once(0).chain(page());
    let not_zero = page().filter(|word| *word != 0).count();
    let not_repeated = page().zip(before()).filter(|(word, before)| word != before).count();
    let unlisted = Unlisted::shorter(not_zero, not_repeated);
    let mut bitmap = [0_u8; BITMAP_BYTES];
    let mut listed = workspace.words[WINDOW..].iter_mut();
    let mut words = 0;
    for (at, (word, before)) in page().zip(before()).enumerate() {
        if word != if unlisted == Unlisted::Zeros { 0 } else { before } {
            bitmap[at / 8] |= 1 << (at % 8);
            *listed.next().expect("there is room for all words") = word;
            words += 1;
        }
    }
    let mut bitmap_bytes = 0;
    let mut out = workspace.out[HEADER_BYTES..].iter_mut();
    for (at, byte) in bitmap.into_iter().enumerate().filter(|(_, byte)| *byte != 0) {
        bitmap_bytes |= 1 << at;
        *out.next().expect("there is room for the bitmap") = byte;
    }
    List { unlisted, words, bitmap_bytes }
}

/// The choice that shares most bytes with `word`, of equals the nearest; none that shares at most one is worth it.
fn choose(word: u64, window: &[u64]) -> usize {
    let shared = |index: usize| 8 - differing_bytes(word, window, index).count_ones();
    let best = (0..WINDOW).max_by_key(|&index| (shared(index), index)).expect("there are choices");
    if shared(best) <= 1 { WHOLE } else { best }
}

/// The bytes in which `word` differs from its predictor: zero, or a word before the group, the last one nearest.
fn differing_bytes(word: u64, window: &[u64], index: usize) -> u8 {
    if index == WHOLE {
        return u8::MAX;
    }
    let bytes = (word ^ predictor(window, index)).to_le_bytes();
    bytes.iter().enumerate().fold(0, |mask, (at, byte)| mask | u8::from(*byte != 0) << at)
}

fn predictor(window: &[u64], index: usize) -> u64 {
    if index == 0 { 0 } else { window[index] }
}

/// Decodes areas that agree with each other.
pub(super) fn decode(areas: &Areas<'_>, page: &mut PageBytes) -> Result<(), Corrupt> {
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
            let mask = if index == WHOLE { u8::MAX } else { mask };
            for (_, byte) in bytes.iter_mut().enumerate().filter(|(at, _)| mask >> at & 1 == 1) {
                *byte = *literals.next().ok_or(Corrupt)?;
            }
            words[start + lane] = u64::from_le_bytes(bytes);
        }
    }
    if literals.next().is_some() {
        return Err(Corrupt);
    }
    let mut listed = words[WINDOW..].iter();
    let mut bitmap = areas.bitmap.iter();
    let (mut bits, mut before) = (0_u8, 0_u64);
    for (at, word) in page.0.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        if at % 8 == 0 {
            let is_there = areas.list.bitmap_bytes >> (at / 8) & 1 == 1;
            bits = if is_there { *bitmap.next().expect("the sums agree") } else { 0 };
        }
        if bits >> (at % 8) & 1 == 1 {
            before = *listed.next().expect("the sums agree");
        } else if areas.list.unlisted == Unlisted::Zeros {
            before = 0;
        }
        *word = before.to_le_bytes();
    }
    Ok(())
}
