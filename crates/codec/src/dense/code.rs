//! Huffman codes of bytes: which code an encoder takes, how it is told, and the table that decodes it.
//!
//! Codes are canonical: by length, of equals by symbol. The lengths of a code of the page's own are told in three bits each,
//! for lengths from 1 to 8 or from 2 to 9, behind a list of the symbols that there are.

use super::decode::PADDED_BYTES;
use crate::Corrupt;

/// The longest code.
pub(super) const BITS_MAX: usize = 9;
pub(super) const SYMBOLS: usize = 256;
const TABLE: usize = 1 << BITS_MAX;
/// Values of three bits.
const LENGTHS: usize = 8;
/// Bits that hold how many symbols have codes of a length.
const COUNT_BITS: usize = 12;
/// Symbols that a bit of the list stands for.
const GROUP: usize = 8;
const LIST_BYTES: usize = SYMBOLS / GROUP / 8;

/// How often each symbol is there.
pub(super) type Counts = [u16; SYMBOLS];
/// How long the code of each symbol is; zero for none.
pub(super) type Lengths = [u8; SYMBOLS];

/// Which code a stream has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Each symbol in its eight bits.
    Plain,
    /// There is only one; it is told, and takes no bits.
    One,
    /// A code of its own with lengths from 1 to 8.
    Short,
    /// A code of its own with lengths from 2 to 9.
    Long,
    /// The one that the format has for such symbols.
    Fixed,
}

impl Kind {
    pub(super) fn from_bits(bits: usize) -> Option<Self> {
        [Self::Plain, Self::One, Self::Short, Self::Long, Self::Fixed].get(bits).copied()
    }

    /// What it has to gain, in bytes, for the time that it takes to make a table of it.
    const fn price(self) -> usize {
        if matches!(self, Self::Short | Self::Long) { 25 } else { 0 }
    }

    /// The shortest length of a code of its own.
    const fn shortest(self) -> usize {
        if matches!(self, Self::Long) { 2 } else { 1 }
    }
}

/// A code that an encoder has chosen.
pub(super) struct Code {
    pub(super) kind: Kind,
    lengths: Lengths,
    codes: [u16; SYMBOLS],
}

impl Code {
    /// The one with which `counts` take the fewest bits, as far as `fixed` is one.
    pub(super) fn best(counts: &Counts, fixed: Option<&Lengths>) -> Self {
        let used = counts.iter().filter(|count| **count > 0).count();
        let mut best = (Kind::Plain, [8; SYMBOLS], cost(counts, &[8; SYMBOLS]));
        let mut consider = |kind: Kind, lengths: &Lengths| {
            let bytes = told_bytes(kind, lengths) + kind.price();
            let bits = cost(counts, lengths) + 8 * bytes;
            if bits < best.2 {
                best = (kind, *lengths, bits);
            }
        };
        if let Some(fixed) = fixed {
            consider(Kind::Fixed, fixed);
        }
        for kind in [Kind::Short, Kind::Long] {
            if used >= 1 << kind.shortest() {
                consider(kind, &limited(counts, kind.shortest()));
            }
        }
        if used == 1 {
            consider(Kind::One, &counts.map(|_| 0));
        }
        let (kind, lengths, _) = best;
        Self { kind, lengths, codes: canonical(&lengths) }
    }

    /// Code and length of a symbol.
    pub(super) fn of(&self, symbol: u8) -> (u32, u32) {
        let at = usize::from(symbol);
        (u32::from(self.codes[at]), u32::from(self.lengths[at]))
    }

    /// Tells the code; of [`Kind::One`] the symbol, which is the only one with a count. The bytes, or `None` if there is
    /// no room.
    pub(super) fn tell(&self, counts: &Counts, out: &mut [u8]) -> Option<usize> {
        match self.kind {
            Kind::Plain | Kind::Fixed => Some(0),
            Kind::One => {
                *out.first_mut()? = counts.iter().position(|count| *count > 0).expect("one is used") as u8;
                Some(1)
            }
            Kind::Short | Kind::Long => self.tell_lengths(out),
        }
    }

    fn tell_lengths(&self, out: &mut [u8]) -> Option<usize> {
        let told = told_bytes(self.kind, &self.lengths);
        let (list, mut rest) = out.get_mut(..told)?.split_at_mut(LIST_BYTES);
        list.fill(0);
        for (group, lengths) in self.lengths.as_chunks::<GROUP>().0.iter().enumerate() {
            let present = lengths.iter().enumerate().fold(0, |bits, (at, length)| bits | u8::from(*length > 0) << at);
            if present != 0 {
                list[group / 8] |= 1 << (group % 8);
                let (byte, behind) = rest.split_at_mut(1);
                byte[0] = present;
                rest = behind;
            }
        }
        rest.fill(0);
        let present = self.lengths.iter().filter(|length| **length > 0);
        for (at, length) in present.enumerate() {
            let value = u16::from(*length) - self.kind.shortest() as u16;
            let [low, high] = (value << (3 * at % 8)).to_le_bytes();
            rest[3 * at / 8] |= low;
            if high != 0 {
                rest[3 * at / 8 + 1] |= high;
            }
        }
        Some(told)
    }
}

/// Bits of all symbols.
fn cost(counts: &Counts, lengths: &Lengths) -> usize {
    counts.iter().zip(lengths).map(|(count, length)| usize::from(*count) * usize::from(*length)).sum()
}

/// What telling a code takes.
fn told_bytes(kind: Kind, lengths: &Lengths) -> usize {
    match kind {
        Kind::Plain | Kind::Fixed => 0,
        Kind::One => 1,
        Kind::Short | Kind::Long => {
            let groups = lengths.as_chunks::<GROUP>().0.iter().filter(|group| group.iter().any(|length| *length > 0));
            let symbols = lengths.iter().filter(|length| **length > 0).count();
            LIST_BYTES + groups.count() + (3 * symbols).div_ceil(8)
        }
    }
}

/// Lengths of a code for these counts: Huffman's, brought into eight lengths from `shortest` on. At least
/// 2^`shortest` symbols have counts.
pub(super) fn limited(counts: &Counts, shortest: usize) -> Lengths {
    let longest = shortest + LENGTHS - 1;
    let mut lengths = [0; SYMBOLS];
    // Rarest first: count, then symbol.
    let mut sorted = [0; SYMBOLS];
    let mut used = 0;
    for (symbol, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        sorted[used] = u32::from(*count) << 8 | symbol as u32;
        used += 1;
    }
    let sorted = &mut sorted[..used];
    sorted.sort_unstable();
    let mut depths = [0; SYMBOLS];
    for (depth, key) in depths.iter_mut().zip(sorted.iter()) {
        *depth = key >> 8;
    }
    huffman_depths(&mut depths[..used]);
    // Each symbol takes 2^(longest - length) of 2^longest.
    let share = |length: usize| 1_usize << (longest - length);
    let mut taken = 0;
    for (depth, key) in depths.iter().zip(sorted.iter()) {
        let length = (*depth as usize).clamp(shortest, longest);
        lengths[*key as usize % SYMBOLS] = length as u8;
        taken += share(length);
    }
    // The rarest that can be longer are made longer until all fit, then the most frequent shorter while there is room.
    while taken > 1 << longest {
        for key in sorted.iter() {
            let length = &mut lengths[*key as usize % SYMBOLS];
            if taken > 1 << longest && usize::from(*length) < longest {
                taken -= share(usize::from(*length) + 1);
                *length += 1;
            }
        }
    }
    while taken < 1 << longest {
        for key in sorted.iter().rev() {
            let length = &mut lengths[*key as usize % SYMBOLS];
            if usize::from(*length) > shortest && taken + share(usize::from(*length)) <= 1 << longest {
                taken += share(usize::from(*length));
                *length -= 1;
            }
        }
    }
    lengths
}

/// Turns weights, lightest first, into the depths of a Huffman tree. In place, after Moffat and Katajainen (1995): first
/// inner nodes' weights, then their parents, then depths.
fn huffman_depths(weights: &mut [u32]) {
    let count = weights.len();
    let (mut leaf, mut node) = (0, 0);
    for made in 0..count - 1 {
        let mut lightest = |weights: &mut [u32]| {
            if leaf < count && (node >= made || weights[leaf] <= weights[node]) {
                leaf += 1;
                if leaf - 1 > made { core::mem::take(&mut weights[leaf - 1]) } else { weights[leaf - 1] }
            } else {
                node += 1;
                core::mem::replace(&mut weights[node - 1], made as u32)
            }
        };
        let sum = lightest(weights) + lightest(weights);
        weights[made] = sum;
    }
    // Depths of inner nodes, from the root.
    weights[count - 2] = 0;
    for at in (0..count - 2).rev() {
        weights[at] = weights[weights[at] as usize] + 1;
    }
    // Leaves take what inner nodes leave free on each level, the heaviest first.
    let (mut free, mut depth, mut inner, mut next) = (1_usize, 0, count as isize - 2, count);
    while free > 0 {
        let mut nodes = 0;
        while inner >= 0 && weights[inner as usize] == depth {
            nodes += 1;
            inner -= 1;
        }
        for _ in nodes..free {
            next -= 1;
            weights[next] = depth;
        }
        free = 2 * nodes;
        depth += 1;
    }
}

/// The code of each symbol.
fn canonical(lengths: &Lengths) -> [u16; SYMBOLS] {
    let mut codes = [0; SYMBOLS];
    let mut next = 0;
    for length in 1..=BITS_MAX {
        next <<= 1;
        for (code, _) in codes.iter_mut().zip(lengths).filter(|(_, other)| usize::from(**other) == length) {
            *code = next;
            next += 1;
        }
    }
    codes
}

/// What the next nine bits begin with: a symbol in the low byte, above it the length of its code.
pub(super) struct Table {
    entries: [u16; TABLE],
}

impl Table {
    pub(super) const EMPTY: Self = Self { entries: [0; TABLE] };

    /// The table of lengths that make a whole code.
    pub(super) const fn of(lengths: &Lengths) -> Self {
        let mut table = Self::EMPTY;
        let (mut at, mut length) = (0, 1);
        while length <= BITS_MAX {
            let mut symbol = 0;
            while symbol < SYMBOLS {
                let end = if lengths[symbol] as usize == length { at + (1 << (BITS_MAX - length)) } else { at };
                while at < end {
                    table.entries[at] = (length << 8 | symbol) as u16;
                    at += 1;
                }
                symbol += 1;
            }
            length += 1;
        }
        assert!(at == TABLE);
        table
    }

    /// The symbol that `bits` begin with, and the length of its code.
    #[inline(always)]
    pub(super) fn next(&self, bits: u64) -> (u8, usize) {
        let entry = self.entries[(bits >> (u64::BITS as usize - BITS_MAX)) as usize];
        (entry as u8, usize::from(entry >> 8))
    }

    /// Reads what tells a code, at `at`, and returns what lies behind. That is no code if it lies behind the end of the
    /// encoding, too, which the caller looks after.
    #[inline(always)]
    pub(super) fn read(&mut self, kind: Kind, padded: &[u8; PADDED_BYTES], at: usize) -> Result<usize, Corrupt> {
        match kind {
            Kind::Plain => {
                for (symbol, entries) in self.entries.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    *entries = [8 << 8 | symbol as u16; 2];
                }
                Ok(at)
            }
            Kind::One => {
                self.entries.fill(u16::from(*padded.get(at).ok_or(Corrupt)?));
                Ok(at + 1)
            }
            Kind::Fixed => Err(Corrupt),
            Kind::Short | Kind::Long => {
                let (listed, behind) = Listed::read(kind.shortest(), padded, at).ok_or(Corrupt)?;
                self.fill(&listed)?;
                Ok(behind)
            }
        }
    }

    /// Fails unless every nine bits begin with one code.
    #[inline(always)]
    fn fill(&mut self, listed: &Listed) -> Result<(), Corrupt> {
        let lengths = || listed.lengths[..listed.count].iter().map(|length| usize::from(*length));
        // All in one number: of which nothing has to be read again to add to it.
        let packed = lengths().fold(0_u128, |packed, length| packed + (1 << (COUNT_BITS * length)));
        let counts: [usize; BITS_MAX + 1] =
            core::array::from_fn(|length| (packed >> (COUNT_BITS * length)) as usize % (1 << COUNT_BITS));
        // Where the symbols of each length begin, among all symbols.
        let mut next = [0; BITS_MAX + 1];
        let (mut first, mut taken) = (0, 0);
        for length in 1..=BITS_MAX {
            next[length] = first;
            first += counts[length];
            taken += counts[length] << (BITS_MAX - length);
        }
        if taken != TABLE {
            return Err(Corrupt);
        }
        let mut sorted = [0; SYMBOLS];
        for (symbol, length) in listed.symbols.iter().zip(lengths()) {
            sorted[next[length] % SYMBOLS] = *symbol;
            next[length] += 1;
        }
        let mut rest = (&mut self.entries[..], &sorted[..]);
        rest = fill_runs::<256>(1, counts[1], rest);
        rest = fill_runs::<128>(2, counts[2], rest);
        rest = fill_runs::<64>(3, counts[3], rest);
        rest = fill_runs::<32>(4, counts[4], rest);
        rest = fill_runs::<16>(5, counts[5], rest);
        rest = fill_runs::<8>(6, counts[6], rest);
        rest = fill_runs::<4>(7, counts[7], rest);
        rest = fill_runs::<2>(8, counts[8], rest);
        fill_runs::<1>(9, counts[9], rest);
        Ok(())
    }
}

/// Entries and symbols that are left.
type Rest<'a> = (&'a mut [u16], &'a [u8]);

/// Each of `count` symbols takes as many entries as the codes of that length leave.
#[inline]
fn fill_runs<const RUN: usize>(length: u16, count: usize, (entries, symbols): Rest<'_>) -> Rest<'_> {
    let (runs, entries) = entries.split_at_mut(count * RUN);
    let (own, symbols) = symbols.split_at(count);
    for (run, symbol) in runs.as_chunks_mut::<RUN>().0.iter_mut().zip(own) {
        *run = [length << 8 | u16::from(*symbol); RUN];
    }
    (entries, symbols)
}

/// Symbols of a code in their order, and how long each code is.
struct Listed {
    /// With room for a group behind the last.
    symbols: [u8; SYMBOLS + GROUP],
    lengths: [u8; SYMBOLS],
    count: usize,
}

/// For each byte which bits are set, the lowest first.
static PLACES: [[u8; GROUP]; SYMBOLS] = places();

const fn places() -> [[u8; GROUP]; SYMBOLS] {
    let mut places = [[0; GROUP]; SYMBOLS];
    let mut byte = 0;
    while byte < SYMBOLS {
        let (mut bit, mut count) = (0, 0);
        while bit < GROUP {
            if byte >> bit & 1 == 1 {
                places[byte][count] = bit as u8;
                count += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    places
}

impl Listed {
    const NONE: Self = Self { symbols: [0; SYMBOLS + GROUP], lengths: [0; SYMBOLS], count: 0 };

    /// Those of a group, without a branch for each.
    #[inline(always)]
    fn push(&mut self, first: u8, present: u8) -> Option<()> {
        let eight = PLACES[usize::from(present)].map(|place| first + place);
        *self.symbols.get_mut(self.count..)?.first_chunk_mut()? = eight;
        self.count += present.count_ones() as usize;
        Some(())
    }

    /// `None` if it leaves the bytes.
    #[inline(always)]
    fn read(shortest: usize, padded: &[u8; PADDED_BYTES], at: usize) -> Option<(Self, usize)> {
        let mut listed = Self::NONE;
        let (list, mut rest) = padded.get(at..)?.split_first_chunk::<LIST_BYTES>()?;
        let mut groups = u32::from_le_bytes(*list);
        while groups != 0 {
            let (present, behind) = rest.split_first()?;
            listed.push(groups.trailing_zeros() as u8 * GROUP as u8, *present)?;
            groups &= groups - 1;
            rest = behind;
        }
        let bytes = (3 * listed.count).div_ceil(8);
        for (at, lengths) in listed.lengths.as_chunks_mut::<8>().0.iter_mut().enumerate().take(bytes.div_ceil(3)) {
            let [a, b, c] = *rest.get(3 * at..)?.first_chunk()?;
            let bits = u32::from_le_bytes([a, b, c, 0]);
            for (lane, length) in lengths.iter_mut().enumerate() {
                *length = (bits >> (3 * lane) & 7) as u8 + shortest as u8;
            }
        }
        let behind = PADDED_BYTES - rest.len() + bytes;
        Some((listed, behind))
    }
}
