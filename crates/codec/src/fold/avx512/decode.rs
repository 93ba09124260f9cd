//! The decoder. What one group needs does not wait for what the group before it was, but for the words themselves.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use super::*;

/// Unpacks choices and masks for eight groups at once; see [`Path::prepare`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn prepare(head: &Head<'_>, mut masks: &[u8], steps: &mut Steps) -> usize {
    let mut differs = [0; VECTOR_BYTES];
    store(&mut differs, load_first(head.differs));
    let differs = differs.as_chunks::<8>().0;
    let indices = head.indices.chunks(8 * INDEX_BITS);
    let mut sums = _mm512_setzero_si512();
    let steps = steps.choices.as_chunks_mut().0.iter_mut().zip(steps.masks.as_chunks_mut().0);
    for ((indices, differs), (choices, group_masks)) in indices.zip(differs).zip(steps) {
        let differs = u64::from_le_bytes(*differs);
        let unpacked = unpack_bits(load_first(indices), INDEX_BITS);
        let whole = _mm512_cmpeq_epi8_mask(unpacked, _mm512_set1_epi8(WHOLE as i8));
        let (mine, others) = masks.split_at(differs.count_ones() as usize);
        masks = others;
        // SAFETY: reads one byte for each bit, which is as many as were split off.
        let told = unsafe { _mm512_maskz_expandloadu_epi8(differs, mine.as_ptr().cast()) };
        let told = _mm512_mask_mov_epi8(told, whole, _mm512_set1_epi8(-1));
        sums = _mm512_add_epi64(sums, _mm512_sad_epu8(_mm512_popcnt_epi8(told), _mm512_setzero_si512()));
        store(choices, unpacked);
        store(group_masks, told);
    }
    _mm512_reduce_add_epi64(sums) as usize
}

/// Rebuilds the page; see [`Path::rebuild`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn rebuild(head: &Head<'_>, steps: &Steps, mut literals: &[u8], page: &mut PageBytes) {
    let mut words = Words([0; GROUP + WORDS + 2 * GROUP]);
    // The last four groups, the newest first: choices 1 to 31, and zero in place of the farthest.
    let mut last = [_mm512_setzero_si512(); 4];
    let steps = steps.choices.as_chunks::<GROUP>().0.iter().zip(steps.masks.as_chunks::<GROUP>().0);
    let groups = words.0[GROUP..].as_chunks_mut::<GROUP>().0.iter_mut().take(head.list.groups());
    for (group, (choices, mask)) in groups.zip(steps) {
        let choices = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(i64::from_le_bytes(*choices)));
        let mask = u64::from_le_bytes(*mask);
        let (mine, others) = literals.split_at(mask.count_ones() as usize);
        literals = others;
        // SAFETY: reads one byte for each bit of the mask, which is as many as were split off.
        let literal = unsafe { _mm512_maskz_expandloadu_epi8(mask, mine.as_ptr().cast()) };
        let far = _mm512_permutex2var_epi64(_mm512_maskz_mov_epi64(0xfe, last[3]), choices, last[2]);
        let near = _mm512_permutex2var_epi64(last[1], choices, last[0]);
        let is_near = _mm512_test_epi64_mask(choices, _mm512_set1_epi64(16));
        let new = _mm512_mask_mov_epi8(_mm512_mask_mov_epi64(far, is_near, near), mask, literal);
        last = [new, last[0], last[1], last[2]];
        store_words(group, new);
    }
    unpack(head, &words, page);
}

/// The listed words. Before them is the zero that the first may repeat, behind them room for the last loads.
#[repr(C, align(64))]
struct Words([u64; GROUP + WORDS + 2 * GROUP]);

/// The bits of each word and of those before it in its block.
static UP_TO: [u64; GROUP] = [1, 3, 7, 15, 31, 63, 127, 255];

/// Puts the listed words in their places, and between them what is not listed.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,avx512bitalg,popcnt")]
#[inline]
fn unpack(head: &Head<'_>, words: &Words, page: &mut PageBytes) {
    let mut bitmap = [0; BITMAP_BYTES];
    // SAFETY: reads one byte for each bit of the mask, which is as many as the area has.
    let bits = unsafe { _mm512_maskz_expandloadu_epi8(head.list.bitmap_bytes, head.bitmap.as_ptr().cast()) };
    store(&mut bitmap, bits);
    let mut next = GROUP;
    let blocks = page.0.as_chunks_mut().0.iter_mut().zip(bitmap);
    if head.list.unlisted == Unlisted::Zeros {
        for (bytes, listed) in blocks {
            store(bytes, _mm512_maskz_expand_epi64(listed, load(part(&words.0, next))));
            next += listed.count_ones() as usize;
        }
        return;
    }
    for (bytes, listed) in blocks {
        // As many words as are listed up to here, counted from the last of the blocks before.
        let up_to = _mm512_and_si512(_mm512_set1_epi64(i64::from(listed)), load(&UP_TO));
        let (near, far) = (load(part(&words.0, next - 1)), load(part(&words.0, next + GROUP - 1)));
        store(bytes, _mm512_permutex2var_epi64(near, _mm512_popcnt_epi16(up_to), far));
        next += listed.count_ones() as usize;
    }
}
