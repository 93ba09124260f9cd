//! The decoder. What one group needs does not wait for what the group before it was, but for the words themselves.

use core::mem::MaybeUninit;

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use super::*;

/// Groups that are rebuilt without a look whether there are so many.
const AT_ONCE: usize = 4;

/// See [`Path::ones`].
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn ones_of(bytes: &[u8]) -> usize {
    let mut words = [0; GROUP];
    store_words(&mut words, load_first(bytes));
    ones(&words)
}

/// Unpacks masks for eight groups at once; see [`Path::prepare`].
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn prepare(head: &Head<'_>, mut masks: &[u8], steps: &mut Steps) -> usize {
    let mut differs = [0; GROUPS / 8];
    store_words(&mut differs, load_first(head.differs));
    let index_bytes = head.list.groups() * INDEX_BITS;
    let indices = head.indices[..index_bytes].chunks(8 * INDEX_BITS);
    let mut sum = 0;
    for ((indices, differs), steps) in indices.zip(differs).zip(steps.0.as_chunks_mut().0) {
        let whole = _mm512_cmpeq_epi8_mask(
            unpack_bits(load_first(indices), INDEX_BITS),
            _mm512_set1_epi8(field(WHOLE as u8) as i8),
        );
        let (mine, others) = masks.split_at(differs.count_ones() as usize);
        masks = others;
        // SAFETY: reads one byte for each bit, which is as many as were split off.
        let told = unsafe { _mm512_maskz_expandloadu_epi8(differs, mine.as_ptr().cast()) };
        let told = _mm512_mask_mov_epi8(told, whole, _mm512_set1_epi8(-1));
        store(steps, told);
        // Not in vectors: the unit that counts there has enough to do.
        for group in steps.as_chunks().0 {
            sum += u64::from_le_bytes(*group).count_ones() as usize;
        }
    }
    sum
}

/// Rebuilds the page; see [`Path::rebuild`].
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn rebuild(head: &Head<'_>, steps: &Steps, literals: &[u8], page: &mut PageBytes) {
    // Not made of zeros first, which would take as long as a part of the decoding.
    let mut buffer = [const { MaybeUninit::uninit() }; VECTORS];
    let end = 1 + head.list.groups().next_multiple_of(AT_ONCE);
    let words = if head.list.is_all() {
        let vectors = page.0.as_chunks_mut::<VECTOR_BYTES>().0;
        // SAFETY: of the same layout, and nothing is made uninitialised: only whole vectors are written.
        unsafe { &mut *(core::ptr::from_mut(vectors) as *mut [Vector]) }
    } else {
        // The zero that the first word may repeat; and what the last loads reach.
        buffer[0].write([0; VECTOR_BYTES]);
        buffer[end].write([0; VECTOR_BYTES]);
        buffer[end + 1].write([0; VECTOR_BYTES]);
        &mut buffer[1..end]
    };
    rebuild_words(head, steps, literals, words);
    if !head.list.is_all() {
        // SAFETY: these are the vectors that have been written.
        let written = unsafe { buffer[..end + 2].assume_init_ref() };
        unpack(head, written.as_flattened(), page);
    }
}

/// Listed words, a vector before them, and two behind.
const VECTORS: usize = 1 + GROUPS + 2;

/// Where a vector is to be written.
type Vector = MaybeUninit<[u8; VECTOR_BYTES]>;

/// Rebuilds one of four groups, into the place of the oldest. Not a function: that is not inlined four times.
macro_rules! group {
    ($new:ident, $last:expr, $at:literal, $indices:ident, $masks:ident, $literals:ident, $fields:ident, $words:ident) => {
        let last = $last;
        let choices = i64::from_le_bytes(*part($indices, $at * INDEX_BITS));
        let choices = _mm512_rorv_epi64(_mm512_set1_epi64(choices), $fields);
        let is_near = _mm512_movepi64_mask(choices);
        let mask = u64::from_le_bytes($masks[$at]);
        let bytes = match $literals.first_chunk() {
            Some(bytes) => load_bytes(bytes),
            None => load_first($literals),
        };
        $literals = &$literals[mask.count_ones() as usize..];
        let literal = _mm512_maskz_expand_epi8(mask, bytes);
        let told = _mm512_movm_epi8(mask);
        let oldest = _mm512_maskz_mov_epi64(0xfe, last[0]);
        let far = _mm512_maskz_permutex2var_epi64(!is_near, oldest, choices, last[1]);
        // Of the far ones what is not told, and what is. All that waits for the group before is what follows.
        let new = _mm512_ternarylogic_epi64::<OR_UNLESS>(literal, far, told);
        let near = _mm512_maskz_permutex2var_epi64(is_near, last[2], choices, last[3]);
        $new = _mm512_ternarylogic_epi64::<OR_UNLESS>(new, near, told);
        // SAFETY: writes 64 bytes, which there are.
        unsafe { _mm512_storeu_si512($words[$at].as_mut_ptr().cast(), $new) };
    };
}

/// Rebuilds the listed words, and some behind them, so that all of `words` is written: fours of groups, of which the last
/// four have at least one that is real.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
#[inline]
fn rebuild_words(head: &Head<'_>, steps: &Steps, mut literals: &[u8], words: &mut [Vector]) {
    let groups = head.list.groups();
    // Each group's choices are read as eight bytes.
    let mut copy;
    let mut indices = head.indices;
    if indices.len() < GROUPS * INDEX_BITS + 3 && indices.len() < groups.next_multiple_of(AT_ONCE) * INDEX_BITS + 3 {
        copy = [0; GROUPS * INDEX_BITS + 3];
        copy[..indices.len()].copy_from_slice(indices);
        indices = &copy;
    }
    let fields = load(&FIELDS);
    // The last four groups, the oldest first: choices 1 to 31, and zero in place of the farthest.
    let [mut a, mut b, mut c, mut d] = [_mm512_setzero_si512(); 4];
    let fours = words.as_chunks_mut::<AT_ONCE>().0.iter_mut().zip(steps.0.as_chunks::<{ AT_ONCE * GROUP }>().0);
    for (four, (words, masks)) in fours.enumerate() {
        let indices: &[u8; AT_ONCE * INDEX_BITS + 3] = part(indices, four * AT_ONCE * INDEX_BITS);
        let masks = masks.as_chunks().0;
        group!(a, [a, b, c, d], 0, indices, masks, literals, fields, words);
        group!(b, [b, c, d, a], 1, indices, masks, literals, fields, words);
        group!(c, [c, d, a, b], 2, indices, masks, literals, fields, words);
        group!(d, [d, a, b, c], 3, indices, masks, literals, fields, words);
    }
}

/// How far to turn the choices of a group for each of its words: so that whether it is a near one is the highest bit, and
/// which of the near or the far ones the four lowest.
static FIELDS: [u64; GROUP] = [1, 6, 11, 16, 21, 26, 31, 36];

/// One or, where a third has no bit, another.
const OR_UNLESS: i32 = 0xf4;

/// How far to turn the bits of eight blocks so that those of the first are the highest of their lanes.
static FIRST_BLOCK: [u64; GROUP] = [1, 2, 3, 4, 5, 6, 7, 8];

/// The bits of each word and of those before it in its block.
static UP_TO: [u64; GROUP] = [1, 3, 7, 15, 31, 63, 127, 255];

/// Puts the listed words in their places, and between them what is not listed.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi2,avx512bitalg,popcnt")]
#[inline]
fn unpack(head: &Head<'_>, words: &[u8], page: &mut PageBytes) {
    let mut bitmap = [0; BITMAP_BYTES];
    // SAFETY: reads one byte for each bit of the mask, which is as many as the area has.
    let bits = unsafe { _mm512_maskz_expandloadu_epi8(head.list.bitmap_bytes, head.bitmap.as_ptr().cast()) };
    store(&mut bitmap, bits);
    let mut next = GROUP;
    if head.list.unlisted == Unlisted::Zeros {
        for (blocks, bits) in page.0.as_chunks_mut::<{ 8 * VECTOR_BYTES }>().0.iter_mut().zip(bitmap.as_chunks().0) {
            // Each word's bit is turned to the highest of a lane, and on by a block each time.
            let mut turned = _mm512_rorv_epi64(_mm512_set1_epi64(i64::from_le_bytes(*bits)), load(&FIRST_BLOCK));
            for (bytes, listed) in blocks.as_chunks_mut().0.iter_mut().zip(bits) {
                let here = _mm512_movepi64_mask(turned);
                store(bytes, _mm512_maskz_expand_epi64(here, load_bytes(part(words, 8 * next))));
                turned = _mm512_ror_epi64::<8>(turned);
                next += listed.count_ones() as usize;
            }
        }
        return;
    }
    let blocks = page.0.as_chunks_mut().0.iter_mut().zip(bitmap);
    for (bytes, listed) in blocks {
        // As many words as are listed up to here, counted from the last of the blocks before.
        let up_to = _mm512_and_si512(_mm512_set1_epi64(i64::from(listed)), load(&UP_TO));
        let (near, far) = (load_bytes(part(words, 8 * (next - 1))), load_bytes(part(words, 8 * (next + GROUP - 1))));
        store(bytes, _mm512_permutex2var_epi64(near, _mm512_popcnt_epi16(up_to), far));
        next += listed.count_ones() as usize;
    }
}
