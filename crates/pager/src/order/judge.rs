//! The order of deeds that explains best what is seen.

use page::{PageCount, PageIndex};
use sys::kernel::PageRange;

use super::{Before, HELD_MAX, Witnesses};
use crate::journal::Record;

/// A record that has been held back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) record: Record,
    /// The message about what it has left has been read.
    pub(super) has_rest: bool,
    /// Where it was among the messages.
    pub(crate) place: usize,
}

/// Steps in the order of their deeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    steps: [Step; HELD_MAX],
    count: usize,
}

/// How well an order explains what is seen: less is better, the first number first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Score {
    /// Moves to where something was, and pages that are managed and not registered.
    impossible: usize,
    /// Pages that are there and were with us, or the other way round.
    misplaced: usize,
    /// How far it is from the order of the messages.
    distance: usize,
}

/// The best order of `held`. `before` is what is known from before it.
pub(super) fn best<F: Fn(PageIndex) -> Before>(held: &[Record], witnesses: &Witnesses, before: &F) -> Order {
    let mut order = Order::of(held);
    let judge = Judge { witnesses, before };
    let mut best = judge.score(&order);
    // One message is taken to where it belongs at a time, as long as that explains more.
    while best.impossible + best.misplaced > 0 {
        let Some((score, better)) = judge.improve(&order, best) else { break };
        (best, order) = (score, better);
    }
    order
}

impl Order {
    /// That of the messages. The one about what a move has left is not among them: it is the next that has its range.
    fn of(held: &[Record]) -> Self {
        let none =
            Step { record: Record::Unmapped(PageRange::new(PageIndex(0), PageCount::ZERO)), has_rest: false, place: 0 };
        let mut order = Self { steps: [none; HELD_MAX], count: 0 };
        let mut is_rest = [false; HELD_MAX];
        for (place, record) in held.iter().enumerate() {
            if is_rest[place] {
                continue;
            }
            let Record::Moved { from, .. } = *record else {
                order.push(Step { record: *record, has_rest: false, place });
                continue;
            };
            let rest = (place + 1..held.len()).find(|at| !is_rest[*at] && held[*at] == Record::Unmapped(from));
            if let Some(rest) = rest {
                is_rest[rest] = true;
            }
            order.push(Step { record: *record, has_rest: rest.is_some(), place });
        }
        order
    }

    fn push(&mut self, step: Step) {
        self.steps[self.count] = step;
        self.count += 1;
    }

    /// What to follow.
    pub(crate) fn steps(&self) -> impl DoubleEndedIterator<Item = Step> + ExactSizeIterator + '_ {
        self.steps[..self.count].iter().copied()
    }

    /// The same with the step at `from` taken to `to`, which is before it.
    fn earlier(&self, from: usize, to: usize) -> Self {
        let mut order = *self;
        order.steps[to..=from].rotate_right(1);
        order
    }

    /// The same where a move takes what was unmapped for it along: the messages about its target come one by one before its
    /// own, and others may come between them.
    fn earlier_with_its_target(&self, from: usize, to: usize) -> Option<Self> {
        let Record::Moved { from: source, to: target } = self.steps[from].record else { return None };
        let target = PageRange::new(target, source.count());
        let is_its =
            |step: &Step| matches!(step.record, Record::Unmapped(range) if target.intersection(range) == Some(range));
        let mut order = *self;
        let mut next = to;
        for at in to..=from {
            if at == from || is_its(&order.steps[at]) {
                order.steps[next..=at].rotate_right(1);
                next += 1;
            }
        }
        (next > to + 1).then_some(order)
    }

    fn distance(&self) -> usize {
        let steps = &self.steps[..self.count];
        let pairs = (0..steps.len()).flat_map(|at| steps[..at].iter().filter(move |one| one.place > steps[at].place));
        pairs.count()
    }
}

struct Judge<'a, F> {
    witnesses: &'a Witnesses,
    before: &'a F,
}

impl<F: Fn(PageIndex) -> Before> Judge<'_, F> {
    /// The best order that differs by one message, or by one move and its target, if it is better.
    fn improve(&self, order: &Order, best: Score) -> Option<(Score, Order)> {
        // What is told before it is done (madvise) is done after all that has been told before it.
        let is_told_before = |from: &usize| matches!(order.steps[*from].record, Record::Removed(_));
        let late = (0..order.count).filter(|from| !is_told_before(from));
        let pairs = late.flat_map(|from| (0..from).map(move |to| (from, to)));
        let earlier = pairs.flat_map(|(from, to)| {
            [Some(order.earlier(from, to)), order.earlier_with_its_target(from, to)].into_iter().flatten()
        });
        let all = earlier.map(|order| (self.score(&order), order));
        all.min_by_key(|(score, _)| *score).filter(|(score, _)| *score < best)
    }

    fn score(&self, order: &Order) -> Score {
        let mut impossible = 0;
        for (count, step) in order.steps().enumerate() {
            let Record::Moved { from, to } = step.record else { continue };
            let target = PageRange::new(to, from.count());
            let inside = self.witnesses.all().iter().filter(|witness| target.contains(witness.page));
            impossible += inside.filter(|witness| self.after(order, count, witness.page) != Before::Unmanaged).count();
        }
        let mut misplaced = 0;
        for witness in self.witnesses.all() {
            let before = self.after(order, order.count, witness.page);
            // The opposite proves nothing: mappings grow without a message.
            impossible += usize::from(before != Before::Unmanaged && witness.is_registered == Some(false));
            let is_odd = [(Before::Resident, Some(false)), (Before::Away, Some(true))];
            misplaced += usize::from(is_odd.contains(&(before, witness.is_present)));
        }
        Score { impossible, misplaced, distance: order.distance() }
    }

    /// What is known of a page after the first `count` steps.
    fn after(&self, order: &Order, count: usize, mut page: PageIndex) -> Before {
        for step in order.steps[..count].iter().rev() {
            match step.record {
                Record::Moved { from, to } if PageRange::new(to, from.count()).contains(page) => {
                    page = from.start + (page - to);
                }
                Record::Unmapped(range) | Record::Moved { from: range, .. } if range.contains(page) => {
                    return Before::Unmanaged;
                }
                Record::Removed(range) if range.contains(page) => {
                    // Managed still, if it is.
                    return if (self.before)(page) == Before::Unmanaged { Before::Unmanaged } else { Before::Managed };
                }
                _ => {}
            }
        }
        (self.before)(page)
    }
}
