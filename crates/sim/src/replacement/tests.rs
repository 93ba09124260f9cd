//! Plain twins, and what must hold of any policy.

use page::PageIndex;
use proptest::prelude::*;
use trace::{Access, Ending, Header, Reference, Sample, TimeUnit, TraceError};

use super::*;

/// The textbook's way, with lists that are searched from end to end. Each returns misses but for first references.
pub(super) mod plain {
    use std::collections::VecDeque;

    /// Whether `page` is referenced for the first time at `at`.
    fn is_first(pages: &[u64], at: usize) -> bool {
        !pages[..at].contains(&pages[at])
    }

    pub(in super::super) fn lru(pages: &[u64], size: usize) -> u64 {
        let mut misses = 0;
        let mut memory = VecDeque::new();
        for (at, &page) in pages.iter().enumerate() {
            if let Some(place) = memory.iter().position(|&other| other == page) {
                memory.remove(place);
            } else {
                misses += u64::from(!is_first(pages, at));
                if memory.len() == size {
                    memory.pop_back();
                }
            }
            memory.push_front(page);
        }
        misses
    }

    pub(in super::super) fn min(pages: &[u64], size: usize) -> u64 {
        let mut misses = 0;
        let mut memory: Vec<u64> = vec![];
        for (at, &page) in pages.iter().enumerate() {
            if memory.contains(&page) {
                continue;
            }
            misses += u64::from(!is_first(pages, at));
            if memory.len() == size {
                let next = |page: &u64| pages[at..].iter().position(|other| other == page).unwrap_or(usize::MAX);
                let farthest = (0..size).max_by_key(|&place| next(&memory[place])).unwrap();
                memory.swap_remove(farthest);
            }
            memory.push(page);
        }
        misses
    }

    pub(in super::super) fn fifo(pages: &[u64], size: usize) -> u64 {
        queue(pages, size, false)
    }

    pub(in super::super) fn clock(pages: &[u64], size: usize) -> u64 {
        queue(pages, size, true)
    }

    /// A queue whose pages may have a second chance.
    fn queue(pages: &[u64], size: usize, second_chance: bool) -> u64 {
        let mut misses = 0;
        let mut memory: VecDeque<(u64, bool)> = VecDeque::new();
        for (at, &page) in pages.iter().enumerate() {
            if let Some(found) = memory.iter_mut().find(|(other, _)| *other == page) {
                found.1 = true;
                continue;
            }
            misses += u64::from(!is_first(pages, at));
            while memory.len() == size {
                let (page, is_used) = memory.pop_front().unwrap();
                if second_chance && is_used {
                    memory.push_back((page, false));
                }
            }
            memory.push_back((page, true));
        }
        misses
    }
}

/// References that come back at all distances: some near, some far, some new.
pub(super) fn references() -> impl Strategy<Value = Vec<u64>> {
    let page = prop_oneof![0..6_u64, 0..40_u64, 0..1000_u64, (0..4_u64).prop_map(|page| page << 34)];
    prop::collection::vec((page, 1..4_usize), 0..150)
        .prop_map(|runs| runs.into_iter().flat_map(|(page, count)| std::iter::repeat_n(page, count)).collect())
}

/// References as the policies see them.
pub(super) fn touches(pages: &[u64]) -> Vec<Touch> {
    let reference = |&page: &u64| Reference { page: PageIndex(page), time: 0, thread: 0, access: Access::Read };
    let mut touches = vec![];
    Numbering::default().touches(&pages.iter().map(reference).collect::<Vec<_>>(), &mut touches);
    touches
}

/// A trace of these pages.
pub(super) struct Listed {
    header: Header,
    pages: Vec<u64>,
    at: usize,
}

impl Listed {
    pub(super) fn new(pages: &[u64]) -> Self {
        Self { header: Header::new(TimeUnit::References), pages: pages.to_vec(), at: 0 }
    }
}

impl Trace for Listed {
    fn header(&self) -> &Header {
        &self.header
    }

    fn read(&mut self, batch: &mut Vec<Reference>, _: &mut Vec<Sample>) -> Result<(), TraceError> {
        let some = self.pages[self.at..].iter().take(37);
        *batch =
            some.map(|&page| Reference { page: PageIndex(page), time: 0, thread: 0, access: Access::Read }).collect();
        self.at += batch.len();
        Ok(())
    }

    fn ending(&self) -> Ending {
        Ending::Open
    }
}

fn play(contest: &mut Contest, pages: &[u64]) {
    contest.play(&mut Listed::new(pages), &mut |_| {}).unwrap();
}

/// Plays random traces with a contender and with its plain twin.
pub(super) fn against_the_plain_twin(
    make: impl Fn(&[PageCount]) -> Box<dyn Contender>,
    twin: impl Fn(&[u64], usize) -> u64,
) {
    proptest!(|(pages in references(), size in prop_oneof![1..8_u64, 1..60_u64])| {
        let sizes = [PageCount(size)];
        let mut contest = Contest::new(&[Policy::Lru], &sizes);
        contest.contenders[0].contender = make(&sizes);
        play(&mut contest, &pages);
        prop_assert_eq!(contest.scores()[0].misses, twin(&pages, size as usize));
    });
}

proptest! {
    #[test]
    fn laws_of_replacement_hold(pages in references()) {
        let policies = Policy::ALL.map(|(_, policy)| policy);
        let sizes: Vec<PageCount> = [1, 2, 3, 5, 8, 13, 21, 34, 55, 2000].map(PageCount).to_vec();
        let mut contest = Contest::new(&policies, &sizes);
        play(&mut contest, &pages);
        let scores = contest.scores();
        let distinct = pages.iter().collect::<std::collections::HashSet<_>>().len() as u64;
        let expected = policies.iter().flat_map(|&policy| sizes.iter().map(move |&size| (policy, size)));
        prop_assert!(scores.iter().map(|score| (score.policy, score.pages)).eq(expected));
        for score in &scores {
            prop_assert_eq!((score.references, score.cold_misses), (pages.len() as u64, distinct));
            prop_assert!(score.misses + score.cold_misses <= score.references);
            // All of it fits: then nothing but first references misses.
            prop_assert!(score.pages.0 < distinct || score.misses == 0);
        }
        let of = |policy| scores.iter().filter(move |score| score.policy == policy).map(|score| score.misses);
        for policy in policies {
            prop_assert!(of(Policy::Min).zip(of(policy)).all(|(min, other)| min <= other), "MIN misses more than {policy:?}");
        }
        for policy in [Policy::Lru, Policy::Min] {
            prop_assert!(of(policy).is_sorted_by(|small, large| large <= small), "{policy:?} misses more with more");
        }
    }
}

/// A frame may be taken again from the reference on that ends a page's stay: found by a random trace when it was not.
#[test]
fn stays_that_touch_share_a_frame() {
    let pages = [4, 100, 300, 3, 270, 0, 2, 270, 3, 100, 4, 2, 300, 0];
    let mut contest = Contest::new(&[Policy::Min], &[PageCount(2)]);
    play(&mut contest, &pages);
    assert_eq!((contest.scores()[0].misses, plain::min(&pages, 2)), (5, 5));
}

#[test]
fn belady_was_right_about_fifo() {
    // His anomaly: with four pages more misses than with three.
    let pages = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5];
    let mut contest = Contest::new(&[Policy::Fifo], &[PageCount(3), PageCount(4)]);
    play(&mut contest, &pages);
    let misses: Vec<u64> = contest.scores().iter().map(|score| score.misses + score.cold_misses).collect();
    assert_eq!(misses, [9, 10]);
}

#[test]
fn a_thousand_sizes_are_played_at_a_time() {
    let sizes: Vec<_> = (1..=1000).map(PageCount).collect();
    let mut contest = Contest::new(&[Policy::Pleat], &sizes);
    play(&mut contest, &(0..2500).map(|step| step % 1250).collect::<Vec<_>>());
    let scores = contest.scores();
    assert!(scores.len() == 1000 && scores.iter().all(|score| (250..=1250).contains(&score.misses)));
}
