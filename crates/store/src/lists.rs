//! Lists through a table: links are numbers of members, so that a fork may copy the table as it is.

/// No member: the end of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// A member's place in the one list that it is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) previous: u32,
    pub(crate) next: u32,
}

impl Link {
    pub(crate) const ALONE: Self = Self { previous: NONE, next: NONE };
}

/// A table whose members can be in a list.
pub(crate) trait Links {
    fn link(&self, member: u32) -> Link;
    fn link_mut(&mut self, member: u32) -> &mut Link;
}

/// The two ends of a list; the oldest member first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct List {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };

    pub(crate) fn front(self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(crate) fn push(&mut self, links: &mut impl Links, member: u32) {
        *links.link_mut(member) = Link { previous: self.last, next: NONE };
        match self.last {
            NONE => self.first = member,
            last => links.link_mut(last).next = member,
        }
        self.last = member;
    }

    pub(crate) fn remove(&mut self, links: &mut impl Links, member: u32) {
        let Link { previous, next } = links.link(member);
        self.close(links, previous, next);
        self.close_back(links, next, previous);
    }

    /// Puts `new` where `old` is.
    pub(crate) fn replace(&mut self, links: &mut impl Links, old: u32, new: u32) {
        let link = links.link(old);
        *links.link_mut(new) = link;
        self.close(links, link.previous, new);
        self.close_back(links, link.next, new);
    }

    fn close(&mut self, links: &mut impl Links, previous: u32, next: u32) {
        match previous {
            NONE => self.first = next,
            previous => links.link_mut(previous).next = next,
        }
    }

    fn close_back(&mut self, links: &mut impl Links, next: u32, previous: u32) {
        match next {
            NONE => self.last = previous,
            next => links.link_mut(next).previous = previous,
        }
    }

    /// The members in order. Asserts that the links agree in both directions.
    pub(crate) fn members<L: Links>(self, links: &L) -> impl Iterator<Item = u32> + use<'_, L> {
        let (mut at, mut before, last) = (self.first, NONE, self.last);
        core::iter::from_fn(move || {
            if at == NONE {
                assert_eq!(before, last, "a list does not end at its last member");
                return None;
            }
            let link = links.link(at);
            assert_eq!(link.previous, before, "the links of {at} disagree");
            (before, at) = (at, link.next);
            Some(before)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Links for Vec<Link> {
        fn link(&self, member: u32) -> Link {
            self[member as usize]
        }
        fn link_mut(&mut self, member: u32) -> &mut Link {
            &mut self[member as usize]
        }
    }

    #[test]
    fn a_list_keeps_its_order() {
        let mut links = vec![Link::ALONE; 6];
        let mut list = List::EMPTY;
        for member in [3, 1, 4, 0, 5] {
            list.push(&mut links, member);
        }
        list.remove(&mut links, 4);
        assert_eq!(list.members(&links).collect::<Vec<_>>(), [3, 1, 0, 5]);
        list.replace(&mut links, 3, 4);
        list.replace(&mut links, 0, 2);
        list.remove(&mut links, 5);
        assert_eq!(list.members(&links).collect::<Vec<_>>(), [4, 1, 2]);
        for member in [4, 2, 1] {
            list.remove(&mut links, member);
        }
        assert_eq!(list, List::EMPTY);
    }
}
