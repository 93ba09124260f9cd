//! Cuts a page into literals and matches so that it is likely to take the fewest bits.
//!
//! Dynamic programming from the start of the page: what the cheapest way to each byte costs, by prices of literals that come
//! from the page itself, and of matches that are much the same everywhere.

use page::{PAGE_BYTES, PageBytes};

use super::code::{Counts, SYMBOLS};
use super::{LENGTH_MIN, NIBBLE_MAX, REST_BITS, SEQUENCES_MAX, distance};

/// Prices count parts of a bit.
const BIT: u32 = 16;
/// What a token is likely to take, and as much as a match that saves no more is not worth when the page is decoded.
const TOKEN: u32 = (4 + 5) * BIT;
/// What symbols of distances are likely to take: the one before again, whole words, others.
const REPEAT: u32 = 2 * BIT;
const NEAR: u32 = 5 * BIT;
const OTHER: u32 = 6 * BIT;
/// Literals are never thought cheaper than this, nor dearer than the other: matches take most of the frequent ones.
const LITERAL_MIN: u32 = 3 * BIT;
const LITERAL_MAX: u32 = 8 * BIT;

/// Places with the same three bytes that are looked at.
const TRIES: usize = 8;
/// A match of this length is taken without looking for better ones inside it.
const LENGTH_ENOUGH: usize = 64;
const HASH_BITS: u32 = 11;
const NONE: u16 = u16::MAX;

/// Some literals, then a match.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sequence {
    pub(super) literals: u16,
    pub(super) length: u16,
    pub(super) distance: u16,
}

/// A page as sequences; literals that are left come behind the last.
pub(super) struct Parsed {
    sequences: [Sequence; SEQUENCES_MAX],
    count: usize,
}

impl Parsed {
    pub(super) fn sequences(&self) -> &[Sequence] {
        &self.sequences[..self.count]
    }

    /// Where each match begins, its length and its distance.
    pub(super) fn matches(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let mut at = 0;
        self.sequences().iter().map(move |sequence| {
            let start = at + usize::from(sequence.literals);
            at = start + usize::from(sequence.length);
            (start, usize::from(sequence.length), usize::from(sequence.distance))
        })
    }
}

/// The cheapest way to a byte that is known: the step that came last, and the distance of the last match in it.
#[derive(Clone, Copy)]
struct Node {
    cost: u32,
    /// 1 for a literal.
    length: u16,
    distance: u16,
    last_distance: u16,
}

/// Cuts up a page.
#[expect(clippy::large_stack_arrays, reason = "48 KiB, where nothing may allocate")]
pub(super) fn parse(page: &PageBytes) -> Parsed {
    let mut nodes = [Node { cost: u32::MAX, length: 0, distance: 0, last_distance: 0 }; PAGE_BYTES + 1];
    nodes[0].cost = 0;
    let prices = literal_prices(page);
    let mut finder = Finder::EMPTY;
    let mut at = 0;
    while at < PAGE_BYTES {
        let node = nodes[at];
        let literal = node.cost + prices[usize::from(page.0[at])];
        relax(&mut nodes[at + 1], Node { cost: literal, length: 1, distance: 0, ..node });
        let mut longest = 0;
        if node.last_distance > 0 {
            longest = match_length(page, at - usize::from(node.last_distance), at);
            offer(&mut nodes, at, usize::from(node.last_distance), LENGTH_MIN..=longest, TOKEN + REPEAT);
        }
        let found = finder.find(page, at, |distance, lengths| {
            offer(&mut nodes, at, distance, lengths, TOKEN + price_of(distance));
        });
        let longest = longest.max(found);
        let next = if longest >= LENGTH_ENOUGH { at + longest } else { at + 1 };
        while at < next {
            finder.note(page, at);
            at += 1;
        }
    }
    backwards(&nodes)
}

/// Offers matches of all these lengths, of the long ones only the longest.
fn offer(
    nodes: &mut [Node; PAGE_BYTES + 1],
    at: usize,
    distance: usize,
    lengths: core::ops::RangeInclusive<usize>,
    price: u32,
) {
    let (shortest, longest) = (*lengths.start(), *lengths.end());
    let cost = nodes[at].cost + price;
    let step = |length: usize, cost: u32| Node {
        cost,
        length: length as u16,
        distance: distance as u16,
        last_distance: distance as u16,
    };
    for length in shortest..=longest.min(LENGTH_MIN + NIBBLE_MAX - 1) {
        relax(&mut nodes[at + length], step(length, cost));
    }
    if longest >= LENGTH_MIN + NIBBLE_MAX {
        relax(&mut nodes[at + longest], step(longest, cost + REST_BITS * BIT));
    }
}

fn relax(node: &mut Node, other: Node) {
    if other.cost < node.cost {
        *node = other;
    }
}

fn price_of(distance: usize) -> u32 {
    let (symbol, _, bits) = distance::symbol(distance);
    debug_assert!(symbol != distance::REPEAT);
    if bits == 0 { NEAR } else { OTHER + bits * BIT }
}

/// Follows the cheapest way from the end of the page.
fn backwards(nodes: &[Node; PAGE_BYTES + 1]) -> Parsed {
    let mut parsed = Parsed { sequences: [Sequence::default(); SEQUENCES_MAX], count: 0 };
    let (mut at, mut literals) = (PAGE_BYTES, 0);
    // Backwards each match comes before its literals; those behind the last match belong to none.
    while at > 0 {
        let node = nodes[at];
        at -= usize::from(node.length);
        if node.distance == 0 {
            literals += 1;
            continue;
        }
        if parsed.count > 0 {
            parsed.sequences[parsed.count - 1].literals = literals;
        }
        parsed.sequences[parsed.count] = Sequence { literals: 0, length: node.length, distance: node.distance };
        parsed.count += 1;
        literals = 0;
    }
    if parsed.count > 0 {
        parsed.sequences[parsed.count - 1].literals = literals;
    }
    parsed.sequences[..parsed.count].reverse();
    parsed
}

/// What each literal is likely to take, by how often the byte is in the page.
fn literal_prices(page: &PageBytes) -> [u32; SYMBOLS] {
    let mut counts: Counts = [0; SYMBOLS];
    page.0.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    counts.map(|count| {
        // Log2 in parts of a bit, with the mantissa as the fraction: right to a tenth of a bit.
        let count = u32::from(count.max(1));
        let whole = count.ilog2();
        let fraction = (((count << (16 - whole)) - (1 << 16)) * BIT) >> 16;
        (PAGE_BYTES.ilog2() * BIT - whole * BIT - fraction).clamp(LITERAL_MIN, LITERAL_MAX)
    })
}

/// Where three bytes were seen before: the last place of each hash, and the place before each place.
struct Finder {
    last: [u16; 1 << HASH_BITS],
    before: [u16; PAGE_BYTES],
}

impl Finder {
    const EMPTY: Self = Self { last: [NONE; 1 << HASH_BITS], before: [NONE; PAGE_BYTES] };

    /// Tells `offer` of matches from the nearest on, each with the lengths that no nearer one has. The longest length.
    fn find(
        &self,
        page: &PageBytes,
        at: usize,
        mut offer: impl FnMut(usize, core::ops::RangeInclusive<usize>),
    ) -> usize {
        let Some(hash) = hash(page, at) else { return 0 };
        let mut longest = LENGTH_MIN - 1;
        let mut from = self.last[hash];
        for _ in 0..TRIES {
            if from == NONE || at + longest >= PAGE_BYTES {
                break;
            }
            let place = usize::from(from);
            if page.0[place + longest] == page.0[at + longest] {
                let length = match_length(page, place, at);
                if length > longest {
                    offer(at - place, longest + 1..=length);
                    longest = length;
                }
            }
            from = self.before[place];
        }
        longest
    }

    /// Notes the bytes at `at`.
    fn note(&mut self, page: &PageBytes, at: usize) {
        if let Some(hash) = hash(page, at) {
            self.before[at] = core::mem::replace(&mut self.last[hash], at as u16);
        }
    }
}

fn hash(page: &PageBytes, at: usize) -> Option<usize> {
    let [a, b, c] = *page.0[at..].first_chunk()?;
    Some((u32::from_le_bytes([a, b, c, 0]).wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize)
}

/// How many bytes from `at` on are those from `from` on.
#[inline]
fn match_length(page: &PageBytes, from: usize, at: usize) -> usize {
    let max = PAGE_BYTES - at;
    let (old, new) = (&page.0[from..from + max], &page.0[at..]);
    let (old_words, new_words) = (old.as_chunks::<8>().0, new.as_chunks::<8>().0);
    for (word, (old, new)) in old_words.iter().zip(new_words).enumerate() {
        let differing = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
        if differing != 0 {
            return 8 * word + differing.trailing_zeros() as usize / 8;
        }
    }
    let start = max / 8 * 8;
    start + old[start..].iter().zip(&new[start..]).take_while(|(old, new)| old == new).count()
}
