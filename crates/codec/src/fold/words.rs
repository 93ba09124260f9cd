//! The path that takes one word after the other, with what it does to a word left to the [`Words`] of a processor.
//!
//! Which bytes differ, and whether a word is listed, no processor can foretell: so nothing here branches by it.

use page::PageBytes;

use super::format::{Head, List, Unlisted, ones};
use super::frequent::spread;
use super::{
    BITMAP_BYTES, GROUP, INDEX_BITS, Reach, SAMPLES, Steps, WHOLE, WINDOW, WORDS, Workspace, Written, choice, field,
    sample_at,
};

/// What vectors do better. Each is compared with the plain twin's.
pub(super) trait Words: Copy {
    /// For each word the choice that shares most bytes with it, of equals the highest, or [`WHOLE`] if it is not more than one.
    fn choose(self, words: &[u64; GROUP], window: &[u64; WINDOW], reach: Reach) -> [u8; GROUP];

    /// The bytes in which each word differs from its predictor, a bit each.
    fn differing(self, words: &[u64; GROUP], predictors: &[u64; GROUP]) -> [u8; GROUP];

    /// The bytes of a word that are in the mask, the lowest first, and above them anything.
    fn pack(self, word: u64, mask: u8) -> u64;

    /// The other way: puts the lowest bytes where the mask has bits, and the predictor's where it has none.
    fn unpack(self, bytes: u64, mask: u8, predictor: u64) -> u64;
}

/// See [`Path::same_bytes`](super::Path::same_bytes).
pub(super) fn same_bytes(page: &PageBytes) -> u32 {
    let sample = |sample: usize| {
        let (words, before) = sample_at(sample);
        let pairs = page.0[words..words + 8 * GROUP].iter().zip(&page.0[before..]);
        pairs.map(|(one, other)| u32::from(one == other)).sum::<u32>()
    };
    (0..SAMPLES).map(sample).sum()
}

/// See [`Path::encode`](super::Path::encode). Always inlined, as all here, into a function that may use the vectors.
#[inline(always)]
pub(super) fn encode(with: impl Words, page: &PageBytes, reach: Reach, workspace: &mut Workspace) -> Written {
    let list = list(page, workspace);
    let Workspace { words, masks, literals, differs, indices, .. } = workspace;
    words[..WINDOW].fill(0);
    words[WINDOW + list.words..WINDOW + list.words + GROUP].fill(0);
    let (mut mask_count, mut literal_count) = (0, 0);
    for (group, differs) in differs.iter_mut().enumerate().take(list.groups()) {
        let window: &[u64; WINDOW] = words[group * GROUP..].first_chunk().expect("so long is the window");
        let group_words: &[u64; GROUP] = words[WINDOW + group * GROUP..].first_chunk().expect("groups are filled up");
        let choices = with.choose(group_words, window, reach);
        let predictors = choices.map(|choice| predictor(window, choice));
        let different = with.differing(group_words, &predictors);
        let (mut has_mask, mut packed) = (0_u8, 0_u64);
        for lane in 0..GROUP {
            let is_whole = usize::from(choices[lane]) == WHOLE;
            let mask = if is_whole { u8::MAX } else { different[lane] };
            let is_told = mask != 0 && !is_whole;
            has_mask |= u8::from(is_told) << lane;
            packed |= u64::from(field(choices[lane])) << (lane * INDEX_BITS);
            masks[mask_count] = mask;
            mask_count += usize::from(is_told);
            let told = with.pack(group_words[lane], mask);
            literals[literal_count..literal_count + 8].copy_from_slice(&told.to_le_bytes());
            literal_count += mask.count_ones() as usize;
        }
        *differs = has_mask;
        let at = group * INDEX_BITS;
        indices[at..at + INDEX_BITS].copy_from_slice(&packed.to_le_bytes()[..INDEX_BITS]);
    }
    Written { list, masks: mask_count, literals: literal_count }
}

/// See [`Path::prepare`](super::Path::prepare).
#[inline(always)]
pub(super) fn prepare(with: impl Words, head: &Head<'_>, mut masks: &[u8], steps: &mut Steps) -> usize {
    let mut sum = 0;
    let groups = head.differs.iter().zip(head.indices.as_chunks::<INDEX_BITS>().0);
    for ((&differs, indices), group_masks) in groups.zip(steps.0.as_chunks_mut::<GROUP>().0) {
        // The masks go to the words that have one as bytes of a word go to where they differ.
        *group_masks = with.unpack(first_eight(masks), differs, 0).to_le_bytes();
        masks = &masks[differs.count_ones() as usize..];
        for (mask, choice) in group_masks.iter_mut().zip(choices(indices)) {
            *mask |= u8::from(usize::from(choice) == WHOLE).wrapping_neg();
        }
        sum += u64::from_le_bytes(*group_masks).count_ones() as usize;
    }
    sum
}

/// See [`Path::rebuild`](super::Path::rebuild).
#[inline(always)]
pub(super) fn rebuild(with: impl Words, head: &Head<'_>, steps: &Steps, mut literals: &[u8], page: &mut PageBytes) {
    let mut words = [0; WINDOW + WORDS];
    let steps = head.indices.as_chunks::<INDEX_BITS>().0.iter().zip(steps.0.as_chunks::<GROUP>().0);
    for (group, (indices, masks)) in steps.enumerate().take(head.list.groups()) {
        let (window, rest) = words[group * GROUP..].split_first_chunk_mut::<WINDOW>().expect("there is room");
        for ((word, choice), &mask) in rest.iter_mut().zip(choices(indices)).zip(masks) {
            *word = with.unpack(first_eight(literals), mask, predictor(window, choice));
            literals = &literals[mask.count_ones() as usize..];
        }
    }
    unlist(head, &words, page);
}

/// The choices of a group.
#[inline(always)]
fn choices(indices: &[u8; INDEX_BITS]) -> [u8; GROUP] {
    let mut packed = [0; 8];
    packed[..INDEX_BITS].copy_from_slice(indices);
    spread(u64::from_le_bytes(packed), INDEX_BITS).map(choice)
}

/// Zero, or a word before the group, the last one nearest.
#[inline(always)]
fn predictor(window: &[u64; WINDOW], choice: u8) -> u64 {
    core::hint::select_unpredictable(choice != 0, window[usize::from(choice) % WINDOW], 0)
}

/// Writes the bitmap, and the listed words one behind the other.
#[inline(always)]
fn list(page: &PageBytes, workspace: &mut Workspace) -> List {
    let (blocks, _) = page.0.as_chunks::<{ 8 * GROUP }>();
    let (mut not_zero, mut not_repeated) = ([0_u8; BITMAP_BYTES], [0_u8; BITMAP_BYTES]);
    let mut before = 0;
    for (block, (not_zero, not_repeated)) in blocks.iter().zip(not_zero.iter_mut().zip(&mut not_repeated)) {
        for (lane, word) in block.as_chunks().0.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            *not_zero |= u8::from(word != 0) << lane;
            *not_repeated |= u8::from(word != before) << lane;
            before = word;
        }
    }
    let Some(unlisted) = Unlisted::shorter(ones(&not_zero), ones(&not_repeated)) else {
        for (to, word) in workspace.words[WINDOW..].iter_mut().zip(page.0.as_chunks().0) {
            *to = u64::from_le_bytes(*word);
        }
        return List::ALL;
    };
    let bitmap = if unlisted == Unlisted::Zeros { not_zero } else { not_repeated };
    let (mut words, mut bytes, mut bitmap_bytes) = (0, 0, 0);
    for (at, (block, bits)) in blocks.iter().zip(bitmap).enumerate() {
        for (lane, word) in block.as_chunks().0.iter().enumerate() {
            workspace.words[WINDOW + words] = u64::from_le_bytes(*word);
            words += usize::from(bits >> lane & 1);
        }
        workspace.bitmap[bytes] = bits;
        bytes += usize::from(bits != 0);
        bitmap_bytes |= u64::from(bits != 0) << at;
    }
    List { unlisted, words, bitmap_bytes }
}

/// Puts the listed words in their places, and between them what is not listed.
#[inline(always)]
fn unlist(head: &Head<'_>, words: &[u64; WINDOW + WORDS], page: &mut PageBytes) {
    if head.list.is_all() {
        for (to, word) in page.0.as_chunks_mut::<8>().0.iter_mut().zip(&words[WINDOW..]) {
            *to = word.to_le_bytes();
        }
        return;
    }
    // The place of the last that was listed; before the first there are zeros.
    let (mut last, mut bytes) = (WINDOW - 1, 0);
    let kept = if head.list.unlisted == Unlisted::Zeros { 0 } else { u64::MAX };
    for (at, block) in page.0.as_chunks_mut::<{ 8 * GROUP }>().0.iter_mut().enumerate() {
        let is_there = (head.list.bitmap_bytes >> at) as u8 & 1;
        let bits = head.bitmap.get(bytes).copied().unwrap_or_default() & is_there.wrapping_neg();
        bytes += usize::from(is_there);
        for (lane, word) in block.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let listed = u64::from(bits >> lane & 1);
            last += listed as usize;
            *word = (words[last] & (listed.wrapping_neg() | kept)).to_le_bytes();
        }
    }
}

/// Eight bytes as a number; zeros for those that are not there.
#[inline(always)]
pub(super) fn first_eight(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(whole) => u64::from_le_bytes(*whole),
        None => bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}
