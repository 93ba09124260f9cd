//! The path that takes one word after the other, with what it does to a word left to the [`Words`] of a processor.
//!
//! Which bytes differ, and whether a word is listed, no processor can foretell: so nothing here branches by it.

use page::PageBytes;

use super::format::{Head, List, Unlisted, ones};
use super::frequent::{self, spread};
use super::places::{PLACES, Places, SAMPLES, Scores, sampled};
use super::{BITMAP_BYTES, CHOICES, GROUP, INDEX_BITS, INDEX_BYTES, Path, WHOLE, WINDOW, WORDS, Workspace, Written};

/// What vectors do better. Each is compared with the plain twin's.
pub(super) trait Words: Copy {
    /// How many bytes are the same, and not zero.
    fn same_bytes(self, words: &[u64; GROUP], others: &[u64; GROUP]) -> u32;

    /// For each word the choice that shares most bytes with it, of equals the lowest, or [`WHOLE`] if it is not more than one.
    fn choose(self, words: &[u64; GROUP], window: &[u64; WINDOW], places: Places) -> [u8; GROUP];

    /// The bytes in which each word differs from its predictor, a bit each.
    fn differing(self, words: &[u64; GROUP], predictors: &[u64; GROUP]) -> [u8; GROUP];

    /// The bytes of a word that are in the mask, the lowest first, and above them anything.
    fn pack(self, word: u64, mask: u8) -> u64;

    /// The other way: puts the lowest bytes where the mask has bits, and the predictor's where it has none.
    fn unpack(self, bytes: u64, mask: u8, predictor: u64) -> u64;
}

/// What every processor of its kind has: its vectors need no function that is compiled for them.
pub(super) trait Baseline: Words + frequent::Path {}

impl<W: Baseline> Path for W {
    type Steps = Steps;
    type Room = Steps;
    const ROOM: Steps = Steps::NONE;

    fn ones(self, bytes: &[u8]) -> usize {
        ones(bytes)
    }

    fn list(self, page: &PageBytes, workspace: &mut Workspace) -> List {
        list(page, workspace)
    }

    fn scores(self, groups: usize, workspace: &Workspace) -> Scores {
        scores(self, groups, workspace)
    }

    fn encode(self, groups: usize, places: Places, workspace: &mut Workspace) -> Written {
        encode(self, groups, places, workspace)
    }

    fn prepare<'a>(self, head: &Head<'_>, masks: &[u8], room: &'a mut Self::Room) -> (usize, &'a Self::Steps) {
        (prepare(self, head, masks, room), room)
    }

    fn rebuild(self, head: &Head<'_>, steps: &Self::Steps, literals: &[u8], page: &mut PageBytes) {
        rebuild(self, head, steps, literals, page);
    }
}

/// See [`Path::scores`](super::Path::scores). Always inlined, as all here, into a function that may use the vectors.
#[inline(always)]
pub(super) fn scores(with: impl Words, groups: usize, workspace: &Workspace) -> Scores {
    let mut scores = Scores([0; WINDOW]);
    let samples = groups.min(SAMPLES);
    for sample in 0..samples {
        let words = &workspace.words[sampled(sample, samples, groups) * GROUP..][..WINDOW + GROUP];
        let group: &[u64; GROUP] = words.last_chunk().expect("it is as long as a window and a group");
        for (place, score) in scores.0.iter_mut().take(PLACES).enumerate() {
            let others = words[place..].first_chunk().expect("places end with the window");
            *score += with.same_bytes(group, others) as u16;
        }
    }
    scores
}

/// See [`Path::encode`](super::Path::encode).
#[inline(always)]
pub(super) fn encode(with: impl Words, groups: usize, places: Places, workspace: &mut Workspace) -> Written {
    let Workspace { words, masks, literals, differs, indices, .. } = workspace;
    let table = places.table();
    let (mut mask_count, mut literal_count) = (0, 0);
    for (group, differs) in differs.iter_mut().enumerate().take(groups) {
        let window: &[u64; WINDOW] = words[group * GROUP..].first_chunk().expect("so long is the window");
        let group_words: &[u64; GROUP] = words[WINDOW + group * GROUP..].first_chunk().expect("groups are filled up");
        let choices = with.choose(group_words, window, places);
        let predictors = core::array::from_fn(|lane| predictor(window, choices[lane], &table[lane]));
        let different = with.differing(group_words, &predictors);
        let (mut has_mask, mut packed) = (0_u8, 0_u64);
        for lane in 0..GROUP {
            let is_whole = usize::from(choices[lane]) == WHOLE;
            let mask = if is_whole { u8::MAX } else { different[lane] };
            let is_told = mask != 0 && !is_whole;
            has_mask |= u8::from(is_told) << lane;
            packed |= u64::from(choices[lane]) << (lane * INDEX_BITS);
            masks[mask_count] = mask;
            mask_count += usize::from(is_told);
            let told = with.pack(group_words[lane], mask);
            literals[literal_count..literal_count + 8].copy_from_slice(&told.to_le_bytes());
            literal_count += mask.count_ones() as usize;
        }
        *differs = has_mask;
        let at = group * INDEX_BYTES;
        indices[at..at + INDEX_BYTES].copy_from_slice(&packed.to_le_bytes()[..INDEX_BYTES]);
    }
    Written { masks: mask_count, literals: literal_count }
}

/// Which bytes of each listed word are told; those of the words that fill up the last group, too.
pub(super) struct Steps([u8; WORDS]);

impl Steps {
    pub(super) const NONE: Self = Self([0; WORDS]);
}

/// See [`Path::prepare`](super::Path::prepare).
#[inline(always)]
pub(super) fn prepare(with: impl Words, head: &Head<'_>, mut masks: &[u8], steps: &mut Steps) -> usize {
    let mut sum = 0;
    let groups = head.differs.iter().zip(head.indices.as_chunks::<INDEX_BYTES>().0);
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
    let table = head.places.table();
    let steps = head.indices.as_chunks::<INDEX_BYTES>().0.iter().zip(steps.0.as_chunks::<GROUP>().0);
    for (group, (indices, masks)) in steps.enumerate().take(head.list.groups()) {
        let (window, rest) = words[group * GROUP..].split_first_chunk_mut::<WINDOW>().expect("there is room");
        for (((word, choice), &mask), places) in rest.iter_mut().zip(choices(indices)).zip(masks).zip(&table) {
            *word = with.unpack(first_eight(literals), mask, predictor(window, choice, places));
            literals = &literals[mask.count_ones() as usize..];
        }
    }
    unlist(head, &words, page);
}

/// The choices of a group.
#[inline(always)]
fn choices(indices: &[u8; INDEX_BYTES]) -> [u8; GROUP] {
    let mut packed = [0; 8];
    packed[..INDEX_BYTES].copy_from_slice(indices);
    spread(u64::from_le_bytes(packed), INDEX_BITS)
}

/// Zero, or a word before the group.
#[inline(always)]
fn predictor(window: &[u64; WINDOW], choice: u8, places: &[u8; CHOICES]) -> u64 {
    let place = usize::from(places[usize::from(choice) % CHOICES]);
    core::hint::select_unpredictable(choice != 0, window[place % WINDOW], 0)
}

/// See [`Path::list`](super::Path::list).
#[inline(always)]
pub(super) fn list(page: &PageBytes, workspace: &mut Workspace) -> List {
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
    workspace.words[WINDOW + words..WINDOW + words + GROUP].fill(0);
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
