//! A list by age whose youngest members are marked, as many as somebody says.

use crate::lists::{Links, List, NONE};

/// A table whose members have a mark.
pub(crate) trait Marks: Links {
    fn is_young(&self, member: u32) -> bool;
    fn set_young(&mut self, member: u32, young: bool);
}

/// The oldest member first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Aged {
    list: List,
    /// The oldest of the young, or [`NONE`].
    border: u32,
    /// How many are young.
    young: u64,
}

impl Aged {
    pub(crate) const EMPTY: Self = Self { list: List::EMPTY, border: NONE, young: 0 };

    pub(crate) fn push(&mut self, table: &mut impl Marks, member: u32) {
        self.list.push(table, member);
        self.mark(table, member);
        if self.border == NONE {
            self.border = member;
        }
    }

    pub(crate) fn remove(&mut self, table: &mut impl Marks, member: u32) {
        if table.is_young(member) {
            self.young -= 1;
            if self.border == member {
                self.border = table.link(member).next;
            }
        }
        self.list.remove(table, member);
    }

    /// Puts `new` where `old` is.
    pub(crate) fn replace(&mut self, table: &mut impl Marks, old: u32, new: u32) {
        let young = table.is_young(old);
        table.set_young(new, young);
        if self.border == old {
            self.border = new;
        }
        self.list.replace(table, old, new);
    }

    pub(crate) fn oldest(&self) -> u32 {
        self.list.first
    }

    /// Whether `member` is among the `young_max` youngest. Takes as many steps as members have come, gone, or been asked
    /// for more or less of since the last call.
    pub(crate) fn is_among_youngest(&mut self, table: &mut impl Marks, member: u32, young_max: u64) -> bool {
        while self.young > young_max {
            table.set_young(self.border, false);
            self.border = table.link(self.border).next;
            self.young -= 1;
        }
        while self.young < young_max {
            let older = if self.border == NONE { self.list.last } else { table.link(self.border).previous };
            if older == NONE {
                break;
            }
            self.mark(table, older);
            self.border = older;
        }
        table.is_young(member)
    }

    fn mark(&mut self, table: &mut impl Marks, member: u32) {
        table.set_young(member, true);
        self.young += 1;
    }

    /// The members in order. Asserts that just those from the border on are young.
    pub(crate) fn members<'a, M: Marks>(&self, table: &'a M) -> impl Iterator<Item = u32> + use<'a, M> {
        let (mut young, border) = (false, self.border);
        self.list.members(table).inspect(move |&member| {
            young |= member == border;
            assert_eq!(table.is_young(member), young, "the mark of {member} is on the wrong side");
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::Link;

    impl Links for Vec<(Link, bool)> {
        fn link(&self, member: u32) -> Link {
            self[member as usize].0
        }
        fn link_mut(&mut self, member: u32) -> &mut Link {
            &mut self[member as usize].0
        }
    }

    impl Marks for Vec<(Link, bool)> {
        fn is_young(&self, member: u32) -> bool {
            self[member as usize].1
        }
        fn set_young(&mut self, member: u32, young: bool) {
            self[member as usize].1 = young;
        }
    }

    #[test]
    fn the_youngest_are_those_at_the_end_of_a_plain_list() {
        let mut table = vec![(Link::ALONE, false); 40];
        let mut aged = Aged::EMPTY;
        let mut plain: Vec<u32> = Vec::new();
        let mut seed = 3_u64;
        for _ in 0..5000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (member, other) = ((seed >> 33) as u32 % 40, (seed >> 40) as u32 % 40);
            match plain.iter().position(|&listed| listed == member) {
                None => {
                    aged.push(&mut table, member);
                    plain.push(member);
                }
                Some(at) if seed >> 60 < 4 && !plain.contains(&other) => {
                    aged.replace(&mut table, member, other);
                    plain[at] = other;
                }
                Some(at) if seed >> 60 < 10 => {
                    aged.remove(&mut table, member);
                    plain.remove(at);
                }
                Some(at) => {
                    let young_max = u64::from(other);
                    let expected = (plain.len() - at) as u64 <= young_max;
                    assert_eq!(aged.is_among_youngest(&mut table, member, young_max), expected);
                }
            }
            assert_eq!(aged.members(&table).collect::<Vec<_>>(), plain);
            assert_eq!(aged.young, plain.iter().filter(|&&member| table[member as usize].1).count() as u64);
            assert_eq!(aged.oldest(), plain.first().copied().unwrap_or(NONE));
        }
    }
}
