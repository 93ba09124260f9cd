//! The path that takes one word after the other, with what it does to a word left to the [`Words`] of a processor.
//!
//! Which bytes differ, and whether a word is listed, no processor can foretell: so nothing here branches by it.

use page::PageBytes;

use super::covers::{CHOICE_BITS, COVER_OF, COVERS, LITERALS, WHOLE};
use super::format::{Head, List, Unlisted, ones};
use super::frequent;
use super::places::{LAST_PLACE, Places, SAMPLES, Scores, sampled};
use super::{BEHIND_LITERALS, BITMAP_BYTES, CHOICES, GROUP, GROUPS, Path, WINDOW, WORDS, Workspace};

/// What vectors do better. Each is compared with the plain twin's. For what every processor of its kind has, so that no function
/// need be compiled for them apart.
pub(super) trait Words: frequent::Path + Copy {
    /// How many bytes are the same, and not zero.
    fn same_bytes(self, words: &[u64; GROUP], others: &[u64; GROUP]) -> u32;

    /// For each word the choice that shares most bytes with it, of equals the lowest.
    fn choose(self, words: &[u64; GROUP], window: &[u64; WINDOW], places: Places) -> [u8; GROUP];

    /// The bytes in which each word differs from its predictor, a bit each.
    fn differing(self, words: &[u64; GROUP], predictors: &[u64; GROUP]) -> [u8; GROUP];

    /// The bytes of a word that are in the mask, the lowest first, and above them anything.
    fn pack(self, word: u64, mask: u8) -> u64;

    /// The other way: puts the lowest bytes where the mask of that number has bits, and the predictor's where it has none.
    fn unpack(self, bytes: u64, cover: usize, predictor: u64) -> u64;
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

    fn scores(self, groups: usize, workspace: &mut Workspace) -> Scores {
        scores(self, groups, workspace)
    }

    fn encode(self, groups: usize, places: Places, workspace: &mut Workspace) -> usize {
        encode(self, groups, places, workspace)
    }

    fn prepare<'a>(self, _head: &Head<'_>, codes: &[u8], room: &'a mut Self::Room) -> (usize, &'a Self::Steps) {
        (prepare(codes, room), room)
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
        let words = &workspace.words[sampled(sample, groups) * GROUP..][..WINDOW + GROUP];
        let group: &[u64; GROUP] = words.last_chunk().expect("it is as long as a window and a group");
        for (place, score) in scores.0.iter_mut().enumerate().take(LAST_PLACE + 1).skip(1) {
            let others = words[place..].first_chunk().expect("places end with the window");
            *score += with.same_bytes(group, others) as u16;
        }
    }
    scores
}

/// See [`Path::encode`](super::Path::encode).
#[inline(always)]
pub(super) fn encode(with: impl Words, groups: usize, places: Places, workspace: &mut Workspace) -> usize {
    let Workspace { words, codes, literals, .. } = workspace;
    let table = places.table();
    let mut literal_count = 0;
    for (group, codes) in codes.as_chunks_mut::<GROUP>().0.iter_mut().enumerate().take(groups) {
        let window: &[u64; WINDOW] = words[group * GROUP..].first_chunk().expect("so long is the window");
        let group_words: &[u64; GROUP] = words[WINDOW + group * GROUP..].first_chunk().expect("groups are filled up");
        let choices = with.choose(group_words, window, places);
        let predictors = core::array::from_fn(|lane| predictor(window, choices[lane], &table[lane]));
        let different = with.differing(group_words, &predictors);
        for lane in 0..GROUP {
            let number = COVER_OF.0[usize::from(different[lane])];
            let choice = core::hint::select_unpredictable(number == WHOLE, 0, choices[lane]);
            codes[lane] = number << CHOICE_BITS | choice;
            let told = with.pack(group_words[lane], COVERS[usize::from(number)]);
            literals[literal_count..literal_count + 8].copy_from_slice(&told.to_le_bytes());
            literal_count += LITERALS[usize::from(codes[lane])];
        }
    }
    literal_count
}

/// The codes of all listed words, and zeros for those that fill up the last group.
pub(super) struct Steps([[u8; GROUP]; GROUPS]);

impl Steps {
    pub(super) const NONE: Self = Self([[0; GROUP]; GROUPS]);
}

/// See [`Path::prepare`](super::Path::prepare).
#[inline(always)]
pub(super) fn prepare(codes: &[u8], steps: &mut Steps) -> usize {
    steps.0.as_flattened_mut()[..codes.len()].copy_from_slice(codes);
    codes.iter().map(|code| LITERALS[usize::from(*code)]).sum()
}

/// A word as it lies in a page.
type Word = [u8; 8];

/// See [`Path::rebuild`](super::Path::rebuild).
#[inline(always)]
pub(super) fn rebuild(with: impl Words, head: &Head<'_>, steps: &Steps, literals: &[u8], page: &mut PageBytes) {
    let mut table = head.places.table();
    for places in &mut table {
        // Where zero is: the last word of the group itself, until it is written.
        places[0] = (WINDOW + GROUP - 1) as u8;
    }
    let groups = &steps.0[..head.list.groups()];
    if head.list.is_all() {
        // Before the first words of a page there is no room for zeros. Those behind them have the page itself for a window.
        let (first, others) = groups.split_at(WINDOW / GROUP);
        let mut words = [Word::default(); 2 * WINDOW];
        let literals = rebuild_groups(with, &table, first, literals, &mut words);
        let page = page.0.as_chunks_mut().0;
        page[..WINDOW].copy_from_slice(&words[WINDOW..]);
        rebuild_groups(with, &table, others, literals, page);
        return;
    }
    let mut words = [Word::default(); WINDOW + WORDS + GROUP];
    rebuild_groups(with, &table, groups, literals, &mut words);
    match head.list.unlisted {
        Unlisted::Zeros => unlist::<true>(head, &words, page),
        Unlisted::Repeats => unlist::<false>(head, &words, page),
    }
}

/// Writes the words of groups behind the window of the first, and returns the literals behind theirs.
#[inline(always)]
fn rebuild_groups<'a>(
    with: impl Words,
    table: &[[u8; CHOICES]; GROUP],
    groups: &[[u8; GROUP]],
    mut literals: &'a [u8],
    words: &mut [Word],
) -> &'a [u8] {
    for (group, codes) in groups.iter().enumerate() {
        let bytes = literals.first_chunk().expect("there is something behind the literals");
        let words = words[group * GROUP..].first_chunk_mut().expect("there is room for each group of a page");
        literals = &literals[rebuild_group(with, table, codes, bytes, words)..];
    }
    literals
}

/// Writes the words of a group behind their window, and returns how many literals they took.
#[inline(always)]
fn rebuild_group(
    with: impl Words,
    table: &[[u8; CHOICES]; GROUP],
    codes: &[u8; GROUP],
    literals: &[u8; BEHIND_LITERALS],
    words: &mut [Word; WINDOW + GROUP],
) -> usize {
    words[WINDOW + GROUP - 1] = Word::default();
    let mut at = 0;
    for lane in 0..GROUP {
        let code = usize::from(codes[lane]);
        let predictor = u64::from_le_bytes(words[usize::from(table[lane][code % CHOICES])]);
        let bytes = literals[at % (8 * GROUP)..].first_chunk().expect("eight are behind the last of the group");
        words[WINDOW + lane] = with.unpack(u64::from_le_bytes(*bytes), code >> CHOICE_BITS, predictor).to_le_bytes();
        at += LITERALS[code];
    }
    at
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
fn unlist<const ZEROS: bool>(head: &Head<'_>, words: &[Word; WINDOW + WORDS + GROUP], page: &mut PageBytes) {
    // The place of the last that was listed; before the first there are zeros.
    let (mut last, mut bytes) = (WINDOW - 1, 0);
    for (at, block) in page.0.as_chunks_mut::<{ 8 * GROUP }>().0.iter_mut().enumerate() {
        let is_there = (head.list.bitmap_bytes >> at) as u8 & 1;
        let bits = head.bitmap.get(bytes).copied().unwrap_or_default() & is_there.wrapping_neg();
        bytes += usize::from(is_there);
        let words: &[Word; GROUP + 1] = words[last..].first_chunk().expect("there are eight more than are listed");
        let mut next = 0;
        for (lane, to) in block.as_chunks_mut().0.iter_mut().enumerate() {
            let listed = u64::from(bits >> lane & 1);
            next += listed as usize;
            let word = u64::from_le_bytes(words[next]);
            *to = (if ZEROS { word & listed.wrapping_neg() } else { word }).to_le_bytes();
        }
        last += next;
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
