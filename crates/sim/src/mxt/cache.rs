//! The cache: "The third level (L3) cache is a shared, 32 MB, 4-way set associative write-back cache with 1 `KByte` line size."

/// A line.
pub(super) const LINE_BYTES: u64 = 1 << 10;
/// "32 MB".
pub(super) const BYTES: u64 = 32 << 20;
/// "4-way".
pub(super) const WAYS: usize = 4;
/// All places of one set hold lines of the same remainder.
pub(super) const SETS: usize = (BYTES / LINE_BYTES) as usize / WAYS;

/// A place for a line.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Its number in real memory.
    line: u32,
    /// How long its encoding will be, if it has been written since it came.
    written: Option<u16>,
}

/// No line: the largest real memory has 2^24.
const NO_LINE: u32 = u32::MAX;

/// Lines in plain.
#[derive(Debug)]
pub(super) struct Cache {
    /// The last used line of each set comes first.
    sets: Vec<[Way; WAYS]>,
}

/// What a touch has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// The line.
    Hit,
    /// Another in its place, which goes back with a new length if it has been written.
    Missed(Option<(u32, u16)>),
}

impl Cache {
    pub(super) fn new(sets: usize) -> Self {
        Self { sets: vec![[Way { line: NO_LINE, written: None }; WAYS]; sets] }
    }

    fn set(&mut self, line: u32) -> &mut [Way; WAYS] {
        let sets = self.sets.len();
        &mut self.sets[line as usize % sets]
    }

    /// Reads or writes a line, which is in the cache then. The one that makes room is the least recently used of its set: the
    /// paper does not say which one it is.
    pub(super) fn touch(&mut self, line: u32, written: Option<u16>) -> Found {
        let ways = self.set(line);
        let at = ways.iter().position(|way| way.line == line);
        ways[..=at.unwrap_or(WAYS - 1)].rotate_right(1);
        let first = &mut ways[0];
        let found = if at.is_some() {
            Found::Hit
        } else {
            let gone = std::mem::replace(first, Way { line, written: None });
            Found::Missed(gone.written.map(|length| (gone.line, length)))
        };
        first.written = written.or(first.written);
        found
    }

    /// A line's content does not matter any more. Returns its length, if it would have been written back.
    pub(super) fn drop(&mut self, line: u32) -> Option<u16> {
        let ways = self.set(line);
        let at = ways.iter().position(|way| way.line == line)?;
        let written = ways[at].written;
        ways[at..].rotate_left(1);
        ways[WAYS - 1] = Way { line: NO_LINE, written: None };
        written
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// The plain twin: when each line was last used, whichever set it is of, and what it is to be written back with.
    #[derive(Default)]
    struct Plain {
        sets: u32,
        clock: u64,
        lines: HashMap<u32, (u64, Option<u16>)>,
    }

    impl Plain {
        fn touch(&mut self, line: u32, written: Option<u16>) -> Found {
            self.clock += 1;
            let mut found = Found::Hit;
            if !self.lines.contains_key(&line) {
                let same_set = |(other, _): &(&u32, _)| *other % self.sets == line % self.sets;
                let full = self.lines.iter().filter(same_set).count() == WAYS;
                let oldest =
                    self.lines.iter().filter(same_set).min_by_key(|(_, (used, _))| *used).map(|(line, _)| *line);
                let gone = oldest.filter(|_| full).and_then(|oldest| {
                    let (_, written) = self.lines.remove(&oldest).unwrap();
                    written.map(|length| (oldest, length))
                });
                found = Found::Missed(gone);
            }
            let before = self.lines.get(&line).and_then(|(_, written)| *written);
            self.lines.insert(line, (self.clock, written.or(before)));
            found
        }

        fn drop(&mut self, line: u32) -> Option<u16> {
            self.lines.remove(&line).and_then(|(_, written)| written)
        }
    }

    proptest! {
        #[test]
        fn it_does_what_the_plain_twin_does(
            sets in 1_u32..5,
            steps in prop::collection::vec((0_u32..40, prop::option::of(0_u16..1025), 0_u8..12), 1..600),
        ) {
            let (mut cache, mut plain) = (Cache::new(sets as usize), Plain { sets, ..Plain::default() });
            for (line, written, kind) in steps {
                if kind == 0 {
                    prop_assert_eq!(cache.drop(line), plain.drop(line));
                } else {
                    prop_assert_eq!(cache.touch(line, written), plain.touch(line, written));
                }
            }
        }
    }

    /// "a shared, 32 MB, 4-way set associative write-back cache with 1 `KByte` line size".
    #[test]
    fn it_holds_32_mb_four_lines_to_a_set() {
        let mut cache = Cache::new(SETS);
        let lines = (SETS * WAYS) as u32;
        assert_eq!(u64::from(lines) * LINE_BYTES, 32 << 20);
        assert!((0..lines).all(|line| cache.touch(line, Some(7)) == Found::Missed(None)));
        assert!((0..lines).all(|line| cache.touch(line, None) == Found::Hit));
        // A fifth line of a set takes the place of the one used longest ago, which is written back only now.
        assert_eq!(cache.touch(lines, None), Found::Missed(Some((0, 7))));
        assert_eq!(cache.touch(SETS as u32, None), Found::Hit);
        assert_eq!(cache.touch(0, None), Found::Missed(Some((2 * SETS as u32, 7))));
        // What was only read is not written back.
        for more in 2..6 {
            cache.touch(lines * more, None);
        }
        assert_eq!(cache.touch(lines * 7, None), Found::Missed(None));
    }
}
