//! `fold`: a page as words of 64 bits, each told by one of those before it and the bytes in which it differs.
//!
//! Heaps are words: pointers into the same few places, small numbers, lengths. A word codec that decides word by word
//! (`WKdm` and its kin) spends its time on mispredicted branches. This one has none: it takes eight words at once, lets
//! each pick its predictor, and writes what it picked with which bytes differ, and those bytes, into two areas.
//!
//! There are two levels of one format, which is in docs/format/fold.md: [`Fold`], and [`FoldDeep`], which tells an area by codes of four to six bits for the bytes that are frequent in it ([`frequent`]) where that pays. And there are several
//! paths, which write and read the same bytes: [`scalar`], the plain twin, and one for each kind of vectors. Which one runs is
//! found out at run time.

use core::mem::{MaybeUninit, offset_of};

use page::{PAGE_BYTES, PageBytes};

use crate::{Codec, Corrupt, Scratch};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod covers;
mod format;
pub(crate) mod frequent;
#[cfg(target_arch = "aarch64")]
mod neon;
mod paths;
mod places;
mod scalar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod shuffles;
#[cfg(test)]
mod tests;
mod words;

pub use paths::fold_paths;

use format::{BITMAP_HEAD_BYTES, Coded, HEADER_BYTES, Head, List, STORED, STORED_BYTES};
use places::{Places, Scores};

/// Words of a page.
const WORDS: usize = PAGE_BYTES / 8;
/// Words that are encoded together.
const GROUP: usize = 8;
/// Groups of a page.
const GROUPS: usize = WORDS / GROUP;
/// The words before a group, of which a predictor is one.
const WINDOW: usize = 32;
/// The first of the choices that are listed in the header.
const LISTED: usize = 3;
/// Choices of a word.
const CHOICES: usize = 8;

/// A bit for each word of the page: whether it is listed.
const BITMAP_BYTES: usize = WORDS / 8;
/// Areas are written in vectors and may be overrun by one.
pub(crate) const VECTOR_BYTES: usize = 64;
/// What must be behind literals: they are read by whole groups, and by whole words of the last group.
const BEHIND_LITERALS: usize = 8 * GROUP + 8;

/// The most that a page takes, and a byte more: every word differs from its predictor in every byte, in areas that are coded
/// although that gains nothing.
pub(crate) const ENCODING_BYTES_MAX: usize =
    format::HEADER_BYTES + format::BITMAP_HEAD_BYTES + BITMAP_BYTES + WORDS + PAGE_BYTES + 2 * VECTOR_BYTES;

/// A word codec for heaps. Fast in both directions where there are vectors, see [`Fold::is_fast`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Fold;

/// [`Fold`] with codes and literals re-coded where that saves a good part of them: shorter by a fifteenth, and nearly as fast.
#[derive(Clone, Copy, Default, Debug)]
pub struct FoldDeep;

/// How much time decoding may take for what it saves. Any decoder reads all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// No area is coded.
    Plain,
    /// Those are of which that saves a good part.
    Deep,
    /// All that get shorter.
    Shortest,
}

impl Level {
    /// How codes are coded, and literals, each given with their number.
    fn plans(self, path: impl Path, codes: (&[u8], usize), literals: (&[u8], usize)) -> [Option<frequent::Plan>; 2] {
        if self == Self::Plain {
            return [None, None];
        }
        let plans = [
            frequent::plan(path, codes.0, codes.1, frequent::WORD_BITS),
            frequent::plan(path, literals.0, literals.1, frequent::LITERAL_BITS),
        ];
        if self == Self::Shortest {
            return plans;
        }
        let [codes_plan, literals_plan] = plans;
        let pays = |plan: &frequent::Plan, count: usize, gain: usize| plan.length + count * gain / 64 <= count;
        [
            codes_plan.filter(|plan| pays(plan, codes.1, CODES_GAIN)),
            literals_plan.filter(|plan| pays(plan, literals.1, LITERALS_GAIN)),
        ]
    }
}

/// How much shorter the deep level must make an area to code it, in parts of 64. By this heaps of the corpus take 0.405 of their pages, and
/// not the 0.384 of [`Level::Shortest`], which takes a quarter longer to decode.
const CODES_GAIN: usize = 20;
const LITERALS_GAIN: usize = 18;

/// Groups that choose together.
const TILE: usize = 8;
/// For each choice and each of these groups, the bytes that differ: a bit for each of a group's.
type Tile = [[u64; TILE]; CHOICES];

/// Working memory of the encoder, about 25 KiB. An area may be written in whole vectors, so it has one more than it needs.
///
/// The order counts: a processor takes a load for one of what has just been stored if the lowest twelve bits of their addresses are the same, and waits. So what is
/// stored while `words` are loaded lies 1.5 KiB off them.
#[repr(C, align(64))]
pub(crate) struct Workspace {
    /// The listed words, behind as many zeros as the window reaches back.
    words: [u64; WINDOW + WORDS + GROUP],
    /// For each group, the bytes that are told.
    told: [u64; GROUPS],
    bitmap: [u8; BITMAP_BYTES + VECTOR_BYTES],
    codes: [u8; WORDS + VECTOR_BYTES],
    /// Before that, of each sample the bytes that are the same at each place.
    different: [Tile; GROUPS / TILE],
    literals: [u8; PAGE_BYTES + VECTOR_BYTES],
    pub(crate) frequent: frequent::Workspace,
}

const _: () = assert!(
    offset_of!(Workspace, different) % (1 << 12) == 1536 && offset_of!(Workspace, literals) % (1 << 12) == 1536
);

impl Workspace {
    pub(crate) const EMPTY: Self = Self {
        words: [0; WINDOW + WORDS + GROUP],
        told: [0; GROUPS],
        bitmap: [0; BITMAP_BYTES + VECTOR_BYTES],
        codes: [0; WORDS + VECTOR_BYTES],
        different: [[[0; TILE]; CHOICES]; GROUPS / TILE],
        literals: [0; PAGE_BYTES + VECTOR_BYTES],
        frequent: frequent::Workspace::EMPTY,
    };
}

/// One way to do the work. A value exists only where the processor can run it.
trait Path: frequent::Path + Copy {
    /// What is to be done for each listed word, and those that fill up the last group.
    type Steps: ?Sized;
    /// Room for it.
    type Room;
    /// Room where nothing is written yet. Zeros would take a tenth of the time of a decoder.
    const ROOM: Self::Room;

    /// Bits that are set in at most 64 bytes.
    fn ones(self, bytes: &[u8]) -> usize;

    /// Writes the bitmap, and the listed words one behind the other, filled up to a whole group with zeros.
    fn list(self, page: &PageBytes, workspace: &mut Workspace) -> List;

    /// For each place, how many bytes of the sampled groups are the same as there, and not zero. What `different` holds is nothing afterwards.
    fn scores(self, groups: usize, workspace: &mut Workspace) -> Scores;

    /// The places of the highest scores, of equals the nearest.
    fn best(self, scores: &Scores) -> Places {
        scores.best()
    }

    /// Fills the other areas of the workspace, and returns how many literals there are. Codes behind those of the listed words mean nothing.
    fn encode(self, groups: usize, places: Places, workspace: &mut Workspace) -> usize;

    /// Unpacks the codes, one for each listed word, and returns how many literals there should be.
    fn prepare<'a>(self, head: &Head<'_>, codes: &[u8], room: &'a mut Self::Room) -> (usize, &'a Self::Steps);

    /// Rebuilds the page. There must be as many literals as `prepare` has said, and [`BEHIND_LITERALS`] other bytes behind them; and in `bitmap` as
    /// many bits as words are listed.
    fn rebuild(self, head: &Head<'_>, steps: &Self::Steps, literals: &[u8], page: &mut PageBytes);
}

/// Encodes to the start of `out`; see [`Codec::encode`].
#[inline(always)]
fn encode(path: impl Path, level: Level, page: &PageBytes, workspace: &mut Workspace, out: &mut [u8]) -> Option<usize> {
    let mut to = Output { out, at: 0 };
    let list = path.list(page, workspace);
    let scores = path.scores(list.groups(), workspace);
    if list.is_all() && scores.are_of_noise() {
        to.put(&STORED.to_le_bytes(), STORED_BYTES)?;
        to.put(&page.0, PAGE_BYTES)?;
        return Some(to.at);
    }
    let places = path.best(&scores);
    let literals = path.encode(list.groups(), places, workspace);
    let Workspace { bitmap, codes, literals: literal_bytes, frequent, .. } = workspace;
    let [codes_plan, literals_plan] = level.plans(path, (codes, list.words), (literal_bytes, literals));
    let coded = match (codes_plan, literals_plan) {
        (_, Some(_)) => Coded::Both,
        (Some(_), None) => Coded::Codes,
        (None, None) => Coded::None,
    };
    to.put(&list.header(literals, places, coded), HEADER_BYTES)?;
    if !list.is_all() {
        to.put(&list.bitmap_bytes.to_le_bytes(), BITMAP_HEAD_BYTES)?;
        to.put(bitmap, list.bitmap_bytes.count_ones() as usize)?;
    }
    if coded != Coded::Both {
        to.put(literal_bytes, literals)?;
    }
    if coded == Coded::None {
        to.put(codes, list.words)?;
    } else {
        let coded = frequent::encode_by(path, codes_plan, codes, list.words, frequent);
        to.put(coded, coded.len())?;
    }
    if coded == Coded::Both {
        let coded = frequent::encode_by(path, literals_plan, literal_bytes, literals, frequent);
        to.put(coded, coded.len())?;
    }
    Some(to.at)
}

/// Where areas are put one behind the other.
struct Output<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Output<'_> {
    /// The first `count` bytes of an area. `None` if there is no room for them and one more byte.
    #[inline(always)]
    fn put(&mut self, area: &[u8], count: usize) -> Option<()> {
        let end = self.at + count;
        if end >= self.out.len() {
            return None;
        }
        let vectors = count.div_ceil(VECTOR_BYTES);
        let room = self.out[self.at..].as_chunks_mut::<VECTOR_BYTES>().0;
        let bytes = area.as_chunks::<VECTOR_BYTES>().0;
        if vectors <= room.len() && vectors <= bytes.len() {
            // Whole vectors, which what comes next overwrites: a copy of just so many bytes takes a guess at their number.
            for (room, bytes) in room.iter_mut().zip(bytes).take(vectors) {
                *room = *bytes;
            }
        } else {
            self.out[self.at..end].copy_from_slice(&area[..count]);
        }
        self.at = end;
        Some(())
    }
}

/// Asks for what is needed last, so that all comes from memory at the same time: the codes, which are behind the literals, and the page, which is written when
/// its first words are known. Where both are in no cache that saves a quarter of the time.
#[inline(always)]
fn prefetch(encoding: &[u8], page: &mut PageBytes) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};

        // SAFETY: any address may be asked for.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(page.0.as_ptr().cast()) };
        for line in encoding[encoding.len().saturating_sub(WORDS)..].chunks(VECTOR_BYTES) {
            // SAFETY: as above.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (encoding, page);
}

/// Decodes either level; see [`Codec::decode`].
#[inline(always)]
fn decode<P: Path>(path: P, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    prefetch(encoding, page);
    if let Some((number, stored)) = encoding.split_first_chunk()
        && u16::from_le_bytes(*number) == STORED
    {
        page.0 = *stored.as_array().ok_or(Corrupt)?;
        return Ok(());
    }
    let head = Head::parse(encoding)?;
    if !head.agrees(path) {
        return Err(Corrupt);
    }
    if head.coded == Coded::Both {
        return decode_coded(path, &head, page);
    }
    let (literals, codes) = head.rest.split_at_checked(head.literals).ok_or(Corrupt)?;
    if head.coded == Coded::Codes {
        return decode_with_coded_codes(path, &head, literals, codes, page);
    }
    if codes.len() != head.list.words {
        return Err(Corrupt);
    }
    rebuild_from(path, &head, literals, codes, page)
}

/// Those with coded codes. Apart, so that the others do not clear its buffer.
#[inline(never)]
fn decode_with_coded_codes<P: Path>(
    path: P,
    head: &Head<'_>,
    literals: &[u8],
    coded: &[u8],
    page: &mut PageBytes,
) -> Result<(), Corrupt> {
    let mut codes = [0; WORDS + VECTOR_BYTES];
    if !frequent::decode(path, coded, head.list.words, &mut codes)?.is_empty() {
        return Err(Corrupt);
    }
    rebuild_from(path, head, literals, &codes[..head.list.words], page)
}

/// Rebuilds a page from literals that are not coded, behind which the encoding goes on.
#[inline(always)]
fn rebuild_from<P: Path>(
    path: P,
    head: &Head<'_>,
    literals: &[u8],
    codes: &[u8],
    page: &mut PageBytes,
) -> Result<(), Corrupt> {
    let mut room = P::ROOM;
    let (count, steps) = path.prepare(head, codes, &mut room);
    if count != literals.len() {
        return Err(Corrupt);
    }
    if head.rest.len() >= literals.len() + BEHIND_LITERALS {
        path.rebuild(head, steps, head.rest, page);
    } else {
        rebuild_few(path, head, steps, literals, page);
    }
    Ok(())
}

/// With literals from a copy, behind which there is something.
#[cold]
#[inline(never)]
fn rebuild_few<P: Path>(path: P, head: &Head<'_>, steps: &P::Steps, literals: &[u8], page: &mut PageBytes) {
    let mut room = LITERAL_ROOM;
    let copy = cleared(&mut room, literals.len());
    copy[..literals.len()].copy_from_slice(literals);
    path.rebuild(head, steps, copy, page);
}

/// Room for literals, and for what is read behind them. Nothing is written yet: to clear all takes a tenth of the time.
const LITERAL_ROOM: [MaybeUninit<u8>; PAGE_BYTES + BEHIND_LITERALS] = [const { MaybeUninit::uninit() }; _];

/// Zeros for so many literals, at most a page of them, and behind them.
fn cleared(room: &mut [MaybeUninit<u8>; PAGE_BYTES + BEHIND_LITERALS], literals: usize) -> &mut [u8] {
    let room = &mut room[..literals + BEHIND_LITERALS];
    for byte in &mut *room {
        byte.write(0);
    }
    // SAFETY: all of them have been written.
    unsafe { room.assume_init_mut() }
}

/// [`decode`] of the deep level. Apart, so that the other does not clear its buffers.
#[inline(never)]
fn decode_coded<P: Path>(path: P, head: &Head<'_>, page: &mut PageBytes) -> Result<(), Corrupt> {
    let mut codes = [0; WORDS + VECTOR_BYTES];
    let rest = frequent::decode(path, head.rest, head.list.words, &mut codes)?;
    let mut steps_room = P::ROOM;
    let (count, steps) = path.prepare(head, &codes[..head.list.words], &mut steps_room);
    if count != head.literals {
        return Err(Corrupt);
    }
    // No more than eight for each word.
    let mut room = LITERAL_ROOM;
    let literals = cleared(&mut room, count);
    let rest = frequent::decode(path, rest, count, literals)?;
    if !rest.is_empty() {
        return Err(Corrupt);
    }
    path.rebuild(head, steps, literals, page);
    Ok(())
}

/// Calls with the best path of this machine.
macro_rules! with_best_path {
    ($path:ident => $call:expr) => {{
        #[cfg(target_arch = "x86_64")]
        if let Some($path) = avx512::Avx512::new() {
            return $call;
        }
        #[cfg(target_arch = "x86_64")]
        if let Some($path) = avx2::Avx2::new() {
            return $call;
        }
        #[cfg(target_arch = "aarch64")]
        let $path = neon::Neon;
        #[cfg(not(target_arch = "aarch64"))]
        let $path = scalar::Scalar;
        $call
    }};
}

/// Codes the first `count` of bytes that do not come from words; see [`frequent::encode`].
pub(crate) fn encode_bytes<'a>(bytes: &[u8], count: usize, workspace: &'a mut frequent::Workspace) -> &'a [u8] {
    with_best_path!(path => frequent::encode(path, bytes, count, frequent::TEXT_BITS, workspace))
}

/// The other way; see [`frequent::decode`].
pub(crate) fn decode_bytes<'a>(input: &'a [u8], count: usize, out: &mut [u8]) -> Result<&'a [u8], Corrupt> {
    with_best_path!(path => frequent::decode(path, input, count, out))
}

impl Level {
    pub(crate) fn encode(self, page: &PageBytes, workspace: &mut Workspace, out: &mut [u8]) -> Option<usize> {
        with_best_path!(path => encode(path, self, page, workspace, out))
    }
}

impl Fold {
    /// Whether this machine has vectors that make it faster than an LZ codec.
    pub fn is_fast() -> bool {
        #[cfg(target_arch = "x86_64")]
        return avx512::Avx512::new().is_some() || avx2::Avx2::new().is_some();
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }
}

impl Codec for Fold {
    fn name(&self) -> &'static str {
        "fold"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        Level::Plain.encode(page, &mut scratch.fold, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        with_best_path!(path => decode(path, encoding, page))
    }
}

impl Codec for FoldDeep {
    fn name(&self) -> &'static str {
        "fold-deep"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        Level::Deep.encode(page, &mut scratch.fold, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        Fold.decode(encoding, page)
    }
}
