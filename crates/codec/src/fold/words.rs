//! The path that takes one word after the other, with what it does to a word left to the [`Words`] of a processor.
//!
//! Which bytes differ, and whether a word is listed, no processor can foretell: so nothing here branches by it.

use page::PageBytes;

use super::format::{Head, List, Unlisted, ones};
use super::frequent;
use super::places::{PLACES, Places, SAMPLES, Scores, sampled};
use super::{
    BITMAP_BYTES, CHOICES, GROUP, GROUPS, INDEX_BITS, INDEX_BYTES, Path, WHOLE, WINDOW, WORDS, Workspace, Written,
};

/// What vectors do better. Each is compared with the plain twin's. For what every processor of its kind has, so that no function
/// need be compiled for them apart.
pub(super) trait Words: frequent::Path + Copy {
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

impl<W: Words> Path for W {
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

/// See [`Path::scores`](super::Path::scores). Always inlined, as all here, with what each path does to a word.
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
            literal_count += ones_of(mask);
        }
        *differs = has_mask;
        let at = group * INDEX_BYTES;
        indices[at..at + INDEX_BYTES].copy_from_slice(&packed.to_le_bytes()[..INDEX_BYTES]);
    }
    Written { masks: mask_count, literals: literal_count }
}

/// What is to be done for each listed word, and for those that fill up the last group.
pub(super) struct Steps {
    choices: [[u8; GROUP]; GROUPS],
    /// Which bytes are told.
    told: [[u8; GROUP]; GROUPS],
}

impl Steps {
    pub(super) const NONE: Self = Self { choices: [[0; GROUP]; GROUPS], told: [[0; GROUP]; GROUPS] };
}

/// See [`Path::prepare`](super::Path::prepare).
#[inline(always)]
pub(super) fn prepare(with: impl Words, head: &Head<'_>, mut masks: &[u8], steps: &mut Steps) -> usize {
    let mut sum = 0;
    let groups = head.differs.iter().zip(head.indices.as_chunks::<INDEX_BYTES>().0);
    for ((&differs, indices), (choices, told)) in groups.zip(steps.choices.iter_mut().zip(&mut steps.told)) {
        let group = self::choices(*indices);
        // The masks go to the words that have one as bytes of a word go to where they differ.
        let masks_of_words = with.unpack(first_eight(masks), differs, 0) | whole_words(group);
        masks = &masks[ones_of(differs)..];
        *choices = group.to_le_bytes();
        *told = masks_of_words.to_le_bytes();
        sum += masks_of_words.count_ones() as usize;
    }
    sum
}

/// The choices of a group, a byte each.
#[inline(always)]
fn choices(indices: [u8; INDEX_BYTES]) -> u64 {
    const { assert!(INDEX_BITS == 3) };
    let [low, middle, high] = indices;
    let packed = u64::from(u32::from_le_bytes([low, middle, high, 0]));
    // Into halves, quarters and eighths of the word, with three bits for each.
    let halves = (packed | packed << 20) & 0x0000_0fff_0000_0fff;
    let quarters = (halves | halves << 10) & 0x003f_003f_003f_003f;
    (quarters | quarters << 5) & 0x0707_0707_0707_0707
}

/// All ones in the bytes of the words that are told in full.
#[inline(always)]
fn whole_words(choices: u64) -> u64 {
    let others = choices ^ (EACH_BYTE * WHOLE as u64);
    // A choice is less than eight, so that seven more than what is not zero is eight or more.
    (!(others + EACH_BYTE * 7) >> 3 & EACH_BYTE) * 0xff
}

const EACH_BYTE: u64 = 0x0101_0101_0101_0101;

/// The words that a group is rebuilt from, and its own, and more, so that no place is behind them.
const REACH: usize = 64;
/// The literals of a group, and what a look at the last of its words may reach.
const REACH_BYTES: usize = 8 * GROUP + 8;

/// See [`Path::rebuild`](super::Path::rebuild).
#[inline(always)]
pub(super) fn rebuild(with: impl Words, head: &Head<'_>, steps: &Steps, mut literals: &[u8], page: &mut PageBytes) {
    let mut words = [0; WORDS + REACH];
    let mut table = head.places.table();
    for places in &mut table {
        // Where zero is: the last word of the group itself, until it is written.
        places[0] = (WINDOW + GROUP - 1) as u8;
    }
    let mut groups = steps.choices.iter().zip(&steps.told).take(head.list.groups()).enumerate();
    while let Some(bytes) = literals.first_chunk()
        && let Some((group, (choices, told))) = groups.next()
    {
        literals = &literals[rebuild_group(with, &table, choices, told, bytes, &mut words[group * GROUP..])..];
    }
    // The last ones from a copy with zeros behind.
    let mut last = [0; 2 * REACH_BYTES];
    let there = literals.len().min(REACH_BYTES);
    last[..there].copy_from_slice(&literals[..there]);
    let mut at = 0;
    for (group, (choices, told)) in groups {
        let bytes = last[at..].first_chunk().expect("there are as many literals as are told");
        at += rebuild_group(with, &table, choices, told, bytes, &mut words[group * GROUP..]);
    }
    unlist(head, &words, page);
}

/// Writes the words of a group behind their window, and returns how many literals they took.
#[inline(always)]
fn rebuild_group(
    with: impl Words,
    table: &[[u8; CHOICES]; GROUP],
    choices: &[u8; GROUP],
    told: &[u8; GROUP],
    literals: &[u8; REACH_BYTES],
    words: &mut [u64],
) -> usize {
    let words: &mut [u64; REACH] = words.first_chunk_mut().expect("there is room for each group of a page");
    let mut at = 0;
    for lane in 0..GROUP {
        let place = usize::from(table[lane][usize::from(choices[lane]) % CHOICES]);
        let bytes = literals[at % (8 * GROUP)..].first_chunk().expect("eight are behind the last of the group");
        words[WINDOW + lane] = with.unpack(u64::from_le_bytes(*bytes), told[lane], words[place % REACH]);
        at += ones_of(told[lane]);
    }
    at
}

/// Bits that are set. From a table: not every processor has an instruction for it.
#[inline(always)]
fn ones_of(byte: u8) -> usize {
    static ONES: [u8; 256] = {
        let mut ones = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            ones[byte] = byte.count_ones() as u8;
            byte += 1;
        }
        ones
    };
    usize::from(ONES[usize::from(byte)])
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
fn unlist(head: &Head<'_>, words: &[u64; WORDS + REACH], page: &mut PageBytes) {
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
        None => last_ones(bytes),
    }
}

#[cold]
#[inline(never)]
fn last_ones(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
