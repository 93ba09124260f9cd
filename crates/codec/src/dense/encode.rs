//! The encoder: sequences to symbols, symbols to streams.

use page::{PAGE_BYTES, PageBytes};

use super::bits::Writer;
use super::code::{Code, Counts, SYMBOLS};
use super::decode::ENCODING_BYTES_MAX;
use super::parse::Parsed;
use super::{HEADER_BYTES, Header, LENGTH_MIN, LONG_BITS, NIBBLE_MAX, REST_BITS, REST_MAX, SEQUENCES_MAX, STREAMS};
use super::{distance, fixed};

/// Symbols of one kind, and how often each is there.
struct Symbols<const MAX: usize> {
    list: [u8; MAX],
    count: usize,
    counts: Counts,
}

impl<const MAX: usize> Symbols<MAX> {
    const EMPTY: Self = Self { list: [0; MAX], count: 0, counts: [0; SYMBOLS] };

    fn push(&mut self, symbol: u8) {
        self.list[self.count] = symbol;
        self.count += 1;
        self.counts[usize::from(symbol)] += 1;
    }

    fn get(&self) -> &[u8] {
        &self.list[..self.count]
    }
}

/// A page, told.
struct Told {
    literals: Symbols<PAGE_BYTES>,
    tokens: Symbols<SEQUENCES_MAX>,
    distances: Symbols<SEQUENCES_MAX>,
    /// What tokens and distances leave open.
    rests: [u8; PAGE_BYTES],
    rest_bytes: usize,
}

/// Encodes a page that is parsed into `room`; the length, or `None` if that is far longer than the page.
pub(super) fn encode(page: &PageBytes, parsed: &Parsed, room: &mut [u8; ENCODING_BYTES_MAX]) -> Option<usize> {
    write(&tell(page, parsed)?, room)
}

/// `None` if that is far longer than the page.
fn tell(page: &PageBytes, parsed: &Parsed) -> Option<Told> {
    let mut told = Told {
        literals: Symbols::EMPTY,
        tokens: Symbols::EMPTY,
        distances: Symbols::EMPTY,
        rests: [0; PAGE_BYTES],
        rest_bytes: 0,
    };
    let mut rests = Writer::new(&mut told.rests);
    let (mut at, mut last) = (0, 0);
    for sequence in parsed.sequences() {
        let (literals, length) = (usize::from(sequence.literals), usize::from(sequence.length) - LENGTH_MIN);
        page.0[at..at + literals].iter().for_each(|byte| told.literals.push(*byte));
        at += literals + usize::from(sequence.length);
        told.tokens.push((literals.min(NIBBLE_MAX) << 4 | length.min(NIBBLE_MAX)) as u8);
        for value in [literals, length] {
            if value >= NIBBLE_MAX {
                push_rest(value - NIBBLE_MAX, &mut rests)?;
            }
        }
        if sequence.distance == last {
            told.distances.push(distance::REPEAT);
        } else {
            let (symbol, value, bits) = distance::symbol(usize::from(sequence.distance));
            told.distances.push(symbol);
            rests.push(value, bits)?;
            last = sequence.distance;
        }
    }
    page.0[at..].iter().for_each(|byte| told.literals.push(*byte));
    told.rest_bytes = rests.finish()?;
    Some(told)
}

/// Eight bits, and if they are all set twelve that tell the same.
fn push_rest(rest: usize, rests: &mut Writer<'_>) -> Option<()> {
    rests.push(rest.min(REST_MAX) as u32, REST_BITS)?;
    if rest >= REST_MAX { rests.push(rest as u32, LONG_BITS) } else { Some(()) }
}

fn write(told: &Told, room: &mut [u8]) -> Option<usize> {
    let Told { literals, tokens, distances, .. } = told;
    let all_counts = [&literals.counts, &tokens.counts, &distances.counts];
    let codes = core::array::from_fn(|kind| Code::best(all_counts[kind], fixed::LENGTHS[kind]));
    let mut header = Header {
        kinds: codes.each_ref().map(|code: &Code| code.kind),
        is_wide: false,
        literals: literals.count,
        sequences: tokens.count,
    };
    let mut at = HEADER_BYTES;
    for (code, counts) in codes.iter().zip(all_counts) {
        at += code.tell(counts, room.get_mut(at..)?)?;
    }
    let mut streams = [0; 2 * PAGE_BYTES];
    let (lengths, bytes) = write_streams(told, &codes, header, &mut streams)?;
    header.is_wide = lengths.iter().any(|length| *length > usize::from(u8::MAX));
    room[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    for length in lengths {
        let [low, high] = (length as u16).to_le_bytes();
        let told: &[u8] = if header.is_wide { &[low, high] } else { &[low] };
        room.get_mut(at..at + told.len())?.copy_from_slice(told);
        at += told.len();
    }
    room.get_mut(at..at + bytes)?.copy_from_slice(&streams[..bytes]);
    at += bytes;
    room.get_mut(at..at + told.rest_bytes)?.copy_from_slice(&told.rests[..told.rest_bytes]);
    Some(at + told.rest_bytes)
}

/// All streams that have codes, behind each other: the length of each, and of all.
fn write_streams(
    told: &Told,
    codes: &[Code; 3],
    header: Header,
    out: &mut [u8],
) -> Option<([usize; STREAMS - 1], usize)> {
    let mut lengths = [0; STREAMS - 1];
    let mut at = 0;
    let mut rests = [told.literals.get(), told.tokens.get(), told.distances.get()];
    for (stream, count) in header.counts().into_iter().enumerate() {
        let kind = super::kind_of(stream);
        let (symbols, rest) = rests[kind].split_at(count);
        rests[kind] = rest;
        let mut writer = Writer::new(out.get_mut(at..)?);
        for symbol in symbols {
            let (code, bits) = codes[kind].of(*symbol);
            writer.push(code, bits)?;
        }
        lengths[stream] = writer.finish()?;
        at += lengths[stream];
    }
    Some((lengths, at))
}
