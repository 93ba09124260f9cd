//! The walks, one reference at a time.

use super::{Pattern, Plan};
use crate::random::Random;

/// The part of the pages that one phase has, as a divisor.
const PHASE_DIVISOR: u64 = 10;

pub(super) struct Step {
    pub(super) page: u64,
    /// Whether it writes, if the pattern says that.
    pub(super) is_write: Option<bool>,
}

/// A pattern on its way.
pub(super) enum Walk {
    Strided {
        pages: u64,
        stride: u64,
        next: u64,
    },
    Uniform {
        pages: u64,
    },
    Zipf {
        ranks: Sums,
        order: Vec<u64>,
    },
    Phases {
        pages: u64,
        length: u64,
        phase: Option<u64>,
        first: u64,
    },
    /// Each page twice: read, then written.
    Thrasher {
        pages: u64,
        next: u64,
    },
    Rand {
        pages: u64,
    },
    Stack {
        distances: Sums,
        stack: Stack,
    },
}

impl Walk {
    pub(super) fn new(pattern: Pattern, plan: &Plan, random: &mut Random) -> Self {
        let pages = plan.pages;
        match pattern {
            Pattern::Sequential => Self::Strided { pages, stride: 1, next: 0 },
            Pattern::Strided(stride) => Self::Strided { pages, stride: stride.min(pages), next: 0 },
            Pattern::Uniform => Self::Uniform { pages },
            Pattern::Zipf(exponent) => Self::Zipf { ranks: Sums::of(pages, exponent), order: random.order(pages) },
            Pattern::Phases(count) => {
                Self::Phases { pages, length: plan.references.div_ceil(count).max(1), phase: None, first: 0 }
            }
            Pattern::Thrasher => Self::Thrasher { pages, next: 0 },
            Pattern::Rand => Self::Rand { pages },
            Pattern::Stack(exponent) => {
                Self::Stack { distances: Sums::of(pages, exponent), stack: Stack::new(random.order(pages)) }
            }
        }
    }

    pub(super) fn step(&mut self, time: u64, random: &mut Random) -> Step {
        let mut is_write = None;
        let page = match self {
            Self::Strided { pages, stride, next } => {
                let page = *next;
                *next += *stride;
                if *next >= *pages {
                    *next = (page % *stride + 1) % *stride;
                }
                page
            }
            Self::Uniform { pages } => random.below(*pages),
            Self::Zipf { ranks, order } => order[ranks.draw(random)],
            Self::Phases { pages, length, phase, first } => {
                let (now, size) = (time / *length, pages.div_ceil(PHASE_DIVISOR));
                if *phase != Some(now) {
                    *phase = Some(now);
                    *first = random.below(*pages);
                }
                (*first + random.below(size)) % *pages
            }
            Self::Thrasher { pages, next } => {
                is_write = Some(*next % 2 == 1);
                let page = *next / 2;
                *next = (*next + 1) % (2 * *pages);
                page
            }
            Self::Rand { pages } => {
                is_write = Some(random.below(2) == 1);
                random.below(*pages)
            }
            Self::Stack { distances, stack } => stack.take(distances.draw(random)),
        };
        Step { page, is_write }
    }
}

/// A distribution over 0, 1, …, as running sums of weights.
pub(super) struct Sums(Vec<f64>);

impl Sums {
    /// Weights 1 / (*r* + 1)^`exponent`.
    fn of(count: u64, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=count).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self(sums.collect())
    }

    fn draw(&self, random: &mut Random) -> usize {
        let point = random.part() * self.0[self.0.len() - 1];
        self.0.partition_point(|&sum| sum <= point).min(self.0.len() - 1)
    }
}

/// Pages in the order of last use: each use takes the next place of a row, and a tree of counts (Fenwick, 1994) finds the
/// n-th from its end. When the row is full, it is drawn anew without its holes.
pub(super) struct Stack {
    row: Vec<Option<u64>>,
    counts: Vec<u32>,
    next: usize,
    pages: usize,
}

impl Stack {
    fn new(order: Vec<u64>) -> Self {
        let pages = order.len();
        let row = order.into_iter().map(Some).collect();
        let mut stack = Self { row, counts: Vec::new(), next: pages, pages };
        stack.draw_anew();
        stack
    }

    fn draw_anew(&mut self) {
        self.row.retain(Option::is_some);
        self.next = self.row.len();
        self.row.resize((2 * self.pages).next_power_of_two(), None);
        self.counts = vec![0; self.row.len() + 1];
        for at in 0..self.next {
            self.add(at, 1);
        }
    }

    fn add(&mut self, place: usize, change: i32) {
        let mut at = place + 1;
        while at < self.counts.len() {
            self.counts[at] = self.counts[at].wrapping_add_signed(change);
            at += at & at.wrapping_neg();
        }
    }

    /// The page with `distance` others in front of it, which is used now.
    fn take(&mut self, distance: usize) -> u64 {
        // As many pages lie before it in the row.
        let mut rest = (self.pages - 1 - distance) as u32;
        let mut place = 0;
        let mut step = self.row.len();
        while step > 0 {
            if place + step < self.counts.len() && self.counts[place + step] <= rest {
                place += step;
                rest -= self.counts[place];
            }
            step /= 2;
        }
        let page = self.row[place].take().expect("the tree counts pages only");
        self.add(place, -1);
        if self.next == self.row.len() {
            self.draw_anew();
        }
        self.row[self.next] = Some(page);
        self.add(self.next, 1);
        self.next += 1;
        page
    }
}
