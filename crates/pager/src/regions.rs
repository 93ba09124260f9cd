//! Regions: ranges of pages, sorted, without overlap: such as those that are registered.

use alloc::vec::Vec;

use page::{PageCount, PageIndex};
use sys::kernel::PageRange;

/// Ranges, as a rule the registered ones. Neighbours stay apart unless joined by `insert`: few and large is what the
/// kernel wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Regions(Vec<PageRange>);

impl FromIterator<PageRange> for Regions {
    fn from_iter<T: IntoIterator<Item = PageRange>>(ranges: T) -> Self {
        let mut regions = Self::default();
        ranges.into_iter().for_each(|range| regions.insert(range));
        regions
    }
}

impl Regions {
    /// Adds a range, joined with what it touches or overlaps.
    pub(crate) fn insert(&mut self, range: PageRange) {
        let first = self.0.partition_point(|region| region.end < range.start);
        let last = self.0.partition_point(|region| region.start <= range.end);
        let mut joined = range;
        for region in &self.0[first..last] {
            joined.start = joined.start.min(region.start);
            joined.end = joined.end.max(region.end);
        }
        self.0.splice(first..last, [joined]);
    }

    /// Adds many, sorted by their beginnings.
    pub(crate) fn insert_all(&mut self, ranges: &[PageRange]) {
        if let [] | [_] = ranges {
            return ranges.iter().for_each(|one| self.insert(*one));
        }
        let mut all = core::mem::take(&mut self.0);
        all.extend(ranges);
        // Two sorted runs, which this sort merges.
        all.sort_by_key(|range| range.start);
        all.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            last.end = if joins { last.end.max(next.end) } else { last.end };
            joins
        });
        self.0 = all;
    }

    /// Takes a range out.
    pub(crate) fn cut(&mut self, range: PageRange) {
        let first = self.0.partition_point(|region| region.end <= range.start);
        let last = self.0.partition_point(|region| region.start < range.end);
        let mut kept: [Option<PageRange>; 2] = [None; 2];
        if first < last {
            let (left, right) = (self.0[first], self.0[last - 1]);
            if left.start < range.start {
                kept[0] = Some(PageRange { start: left.start, end: range.start });
            }
            if range.end < right.end {
                kept[1] = Some(PageRange { start: range.end, end: right.end });
            }
        }
        self.0.splice(first..last, kept.into_iter().flatten());
    }

    /// Whether `page` is in one of them.
    pub(crate) fn contains(&self, page: PageIndex) -> bool {
        let at = self.0.partition_point(|region| region.end <= page);
        self.0.get(at).is_some_and(|region| region.contains(page))
    }

    /// Whether a page of `range` is in one of them.
    pub(crate) fn intersects(&self, range: PageRange) -> bool {
        let at = self.0.partition_point(|region| region.end <= range.start);
        self.0.get(at).is_some_and(|region| region.start < range.end)
    }

    /// The first page of `range` that is in one of them.
    pub(crate) fn first_in(&self, range: PageRange) -> Option<PageIndex> {
        let at = self.0.partition_point(|region| region.end <= range.start);
        self.0.get(at)?.intersection(range).map(|common| common.start)
    }

    /// How many pages from `page` on, at most `count`, are in one of them.
    pub(crate) fn run(&self, page: PageIndex, count: PageCount) -> PageCount {
        let at = self.0.partition_point(|region| region.end <= page);
        match self.0.get(at) {
            Some(region) if region.contains(page) => (region.end - page).min(count),
            _ => PageCount::ZERO,
        }
    }

    /// Visits the parts of `range` that are in none of them.
    pub(crate) fn gaps(&self, range: PageRange, mut visit: impl FnMut(PageRange)) {
        let first = self.0.partition_point(|region| region.end <= range.start);
        let mut start = range.start;
        for region in self.0[first..].iter().take_while(|region| region.start < range.end) {
            if start < region.start {
                visit(PageRange { start, end: region.start });
            }
            start = start.max(region.end);
        }
        if start < range.end {
            visit(PageRange { start, end: range.end });
        }
    }

    /// All of them, by address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PageRange> + '_ {
        self.0.iter().copied()
    }

    /// Whether there is none.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn many_are_added_as_one_by_one(
            old in prop::collection::vec((0_u64..200, 1_u64..20), 0..20),
            mut new in prop::collection::vec((0_u64..200, 1_u64..20), 0..20),
        ) {
            let range = |(start, count)| PageRange::new(PageIndex(start), PageCount(count));
            new.sort_unstable();
            let [mut at_once, mut singly] = [(); 2].map(|()| old.iter().copied().map(range).collect::<Regions>());
            at_once.insert_all(&new.iter().copied().map(range).collect::<Vec<_>>());
            for one in new {
                singly.insert(range(one));
            }
            prop_assert_eq!(at_once.0, singly.0);
        }

        #[test]
        fn agrees_with_a_plain_set(steps in prop::collection::vec((0_u64..60, 1_u64..20, any::<bool>()), 1..60)) {
            let mut regions = Regions::default();
            let mut plain = BTreeSet::new();
            for (start, count, add) in steps {
                let range = PageRange::new(PageIndex(start), PageCount(count));
                if add {
                    regions.insert(range);
                    plain.extend(range.start.until(range.end));
                } else {
                    regions.cut(range);
                    for page in range.start.until(range.end) {
                        plain.remove(&page);
                    }
                }
                for page in (0..90).map(PageIndex) {
                    prop_assert_eq!(regions.contains(page), plain.contains(&page));
                    prop_assert_eq!(regions.run(page, PageCount(1)).0 == 1, plain.contains(&page));
                    let pages = PageRange::new(page, PageCount(5));
                    prop_assert_eq!(regions.first_in(pages), plain.range(page..pages.end).next().copied());
                    prop_assert_eq!(regions.intersects(pages), regions.first_in(pages).is_some());
                }
                let mut gaps = BTreeSet::new();
                regions.gaps(PageRange::new(PageIndex(0), PageCount(90)), |gap| gaps.extend(gap.start.until(gap.end)));
                prop_assert!(gaps.is_disjoint(&plain) && gaps.len() + plain.len() == 90);
                prop_assert!(regions.0.windows(2).all(|pair| pair[0].end <= pair[1].start));
            }
        }
    }
}
