//! `marginal`: ours. Memory is divided where the measured costs of faults say that it is best.
//!
//! Pages stand in the order in which they were last asked for: the first are resident, the next compressed, the rest
//! below. A page that is asked for stood at some depth of that order. Wherever the borders are, the order is the same, so
//! a count of reads by depth (a miss-ratio curve) says what any other division would have cost: those above its first
//! border nothing, those above its second a decode, all others a read. The cheapest wins if it is cheaper by enough;
//! that may be the division without compression. Depths below the second border come from a sampled list of pages that
//! have left (`ghosts.rs`).
//!
//! Hits on resident pages are not seen, since no fault tells of them. For a division with fewer resident pages they are
//! taken to be as dense as the reads just behind the border, twice, since they are denser above it; or as what is
//! remembered from when the border was higher, if that is more.

use page::PageCount;

use super::Resizing;

/// Parts that depths are counted in.
const BUCKETS: usize = 512;
/// A read, so that its parts can be forgotten one after the other.
const READ: u32 = 256;
/// Reads that must be remembered before anything changes.
const READS_MIN: u32 = 64;
/// At each look this part of what was seen is forgotten, as a divisor ...
pub(super) const FORGOTTEN: u32 = 16;
/// ... and this of what cannot be seen now, because those pages are resident: it was dear to learn.
const FORGOTTEN_UNSEEN: u32 = 512;
/// How much cheaper another division must be, in percent.
const GAIN_MIN_PERCENT: u64 = 4;

/// What a page costs that is asked for, measured, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// A compressed page: the fault, its decoding, and encoding another one for it.
    pub compressed_ns: u64,
    /// A page that is below: the fault, the read, and what else comes with it.
    pub below_ns: u64,
}

/// What to do about a division, and what the best one would save.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advice {
    /// Towards the best one.
    pub resizing: Resizing,
    /// The best one's area.
    pub best: PageCount,
    /// Of what reads cost now, in percent.
    pub gain_percent: u64,
}

/// How memory is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Division {
    /// Frames of resident pages and area together.
    pub frames: PageCount,
    /// Frames of the area.
    pub area: PageCount,
    /// By how much the area changes.
    pub unit: PageCount,
    /// Pages that a frame of the area holds, in thousandths.
    pub ratio_thousandths: u64,
}

impl Division {
    fn resident(self) -> u64 {
        self.frames.saturating_sub(self.area).0
    }

    /// The depth from which on pages are below.
    fn held(self) -> u64 {
        self.resident() + self.area.0 * self.ratio_thousandths / 1000
    }

    fn with_area(self, area: PageCount) -> Self {
        Self { area, ..self }
    }
}

/// Reads by depth.
#[derive(Clone, Debug)]
pub struct Marginal {
    reads: [u32; BUCKETS],
    /// Pages of depth that a bucket covers.
    bucket: u64,
}

impl Marginal {
    /// For depths below `depth_max`: deeper ones are below in any division.
    pub fn new(depth_max: PageCount) -> Self {
        Self { reads: [0; BUCKETS], bucket: depth_max.0.div_ceil(BUCKETS as u64 - 1).max(1) }
    }

    /// A page has been asked for that `depth` others have been asked for after.
    pub fn asked(&mut self, depth: PageCount) {
        let bucket = (depth.0 / self.bucket).min(BUCKETS as u64 - 1);
        let reads = &mut self.reads[bucket as usize];
        *reads = reads.saturating_add(READ);
    }

    /// A look in equal distances of time: what to do about the division as it is.
    pub fn look(&mut self, now: Division, costs: Costs) -> Advice {
        let advice = self.decide(now, costs);
        let seen_from = self.seen_from(now);
        for (bucket, reads) in self.reads.iter_mut().enumerate() {
            *reads -= reads.div_ceil(if bucket >= seen_from { FORGOTTEN } else { FORGOTTEN_UNSEEN });
        }
        advice
    }

    fn decide(&self, now: Division, costs: Costs) -> Advice {
        let advice = |resizing, best| Advice { resizing, best, gain_percent: 0 };
        let keep = advice(Resizing::Keep, now.area);
        let seen: u64 = self.reads[self.seen_from(now)..].iter().map(|&reads| u64::from(reads)).sum();
        if seen < u64::from(READS_MIN * READ) {
            return keep;
        }
        let cost_now = self.cost(now, now, costs);
        let areas = (0..=now.frames.0 / now.unit.0).map(|units| PageCount(units * now.unit.0));
        let best = areas.map(|area| (self.cost(now.with_area(area), now, costs), area)).min();
        match best {
            Some((cost, area))
                if u128::from(cost) * 100 < u128::from(cost_now) * u128::from(100 - GAIN_MIN_PERCENT)
                    && area != now.area =>
            {
                let resizing = if area > now.area { Resizing::Grow } else { Resizing::Shrink };
                let gain_percent = 100 - (u128::from(cost) * 100 / u128::from(cost_now)) as u64;
                Advice { gain_percent, ..advice(resizing, area) }
            }
            _ if self.grown_cost(now, costs) < cost_now => advice(Resizing::Grow, now.area + now.unit),
            _ => keep,
        }
    }

    /// What reads would cost if the area was larger by a unit, and pages deeper than any division reaches were not out of
    /// reach. Who asks for those walks over more than there is room for, and since what a walk has passed goes first, the
    /// rest stays: of `depth` pages each one more that is held saves one read in `depth`, which the order of use does not tell.
    fn grown_cost(&self, now: Division, costs: Costs) -> u64 {
        let grown = now.with_area(now.area + now.unit);
        let more = grown.held().saturating_sub(now.held());
        let deep = now.held().max(now.with_area(now.frames).held()) / self.bucket + 1;
        let deep = (deep as usize).clamp(self.seen_from(now), BUCKETS - 1);
        let saved = (deep as u64..).zip(&self.reads[deep..]).fold(0, |saved, (bucket, &reads)| {
            let each = costs.below_ns.saturating_sub(costs.compressed_ns);
            saved + u64::from(reads) * each * more / (bucket * self.bucket)
        });
        self.cost(grown, now, costs).saturating_sub(saved)
    }

    /// The first bucket whose pages are not resident.
    fn seen_from(&self, now: Division) -> usize {
        (now.resident().div_ceil(self.bucket) as usize).min(BUCKETS - 2)
    }

    /// What the reads would cost with another division than they had.
    fn cost(&self, other: Division, now: Division, costs: Costs) -> u64 {
        let seen_from = self.seen_from(now);
        // Of the first two buckets that are seen.
        let near = 2 * self.reads[seen_from].midpoint(self.reads[seen_from + 1]);
        self.reads.iter().enumerate().fold(0, |cost, (bucket, &reads)| {
            let depth = bucket as u64 * self.bucket + self.bucket / 2;
            let reads = if bucket < seen_from { reads.max(near) } else { reads };
            let each = if bucket + 1 == BUCKETS || depth >= other.held() {
                costs.below_ns
            } else if depth >= other.resident() {
                costs.compressed_ns
            } else {
                0
            };
            cost + u64::from(reads) * each
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { compressed_ns: 10_000, below_ns: 100_000 };
    const FRAMES: u64 = 320;
    const UNIT: u64 = 8;

    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) % end
        }
    }

    /// Which page a program asks for next.
    #[derive(Clone, Copy, Debug)]
    enum Program {
        /// Around and around so many pages (thrasher).
        Around(u64),
        /// Anywhere in so many (rand).
        Anywhere(u64),
        /// Mostly in the first few, sometimes anywhere.
        Skewed(u64, u64),
    }

    impl Program {
        fn page(self, step: u64, random: &mut Random) -> u64 {
            match self {
                Self::Around(pages) => step % pages,
                Self::Skewed(hot, _) if random.below(20) > 0 => random.below(hot),
                Self::Anywhere(pages) | Self::Skewed(_, pages) => random.below(pages),
            }
        }
    }

    const STEPS: u64 = 64_000;

    /// At which depth each page stood that a program asked for; none the first time, which costs the same everywhere.
    fn depths(program: Program) -> Vec<Option<u64>> {
        let mut random = Random(77);
        let mut order: Vec<u64> = Vec::new();
        let mut ask = |step| {
            let page = program.page(step, &mut random);
            let depth = order.iter().rposition(|&other| other == page).map(|at| {
                order.remove(at);
                (order.len() - at) as u64
            });
            order.push(page);
            depth
        };
        (0..STEPS).map(&mut ask).collect()
    }

    /// The cost of the second half of a run: with a fixed area, or with the policy's, which starts with this one.
    fn run(depths: &[Option<u64>], ratio: u64, area: u64, is_fixed: bool, costs: Costs) -> (u64, PageCount) {
        let mut policy = Marginal::new(PageCount(FRAMES * ratio / 1000 * 2));
        let (frames, unit) = (PageCount(FRAMES), PageCount(UNIT));
        let mut now = Division { frames, area: PageCount(area), unit, ratio_thousandths: ratio };
        let mut cost = 0;
        for (step, &depth) in (0..).zip(depths) {
            if !is_fixed && step % 400 == 0 {
                match policy.look(now, costs).resizing {
                    Resizing::Grow => now.area += unit,
                    Resizing::Shrink => now.area -= unit,
                    _ => {}
                }
            }
            let Some(depth) = depth.filter(|&depth| depth >= now.resident()) else { continue };
            policy.asked(PageCount(depth));
            let each = if depth >= now.held() { costs.below_ns } else { costs.compressed_ns };
            cost += if step * 2 < STEPS { 0 } else { each };
        }
        (cost, now.area)
    }

    const PROGRAMS: [Program; 9] = [
        Program::Around(350),
        Program::Around(550),
        Program::Around(1500),
        Program::Anywhere(340),
        Program::Anywhere(450),
        Program::Anywhere(800),
        Program::Skewed(150, 1000),
        Program::Skewed(300, 450),
        Program::Skewed(450, 2000),
    ];

    /// Against the best of nine fixed sizes, as in Figures 4 and 5 of `tuduce-gross`: within 2 %, or better. It has to find its
    /// size from a tenth during the first half.
    #[test]
    fn it_finds_the_size_that_a_sweep_finds() {
        for program in PROGRAMS {
            let depths = depths(program);
            for ratio in [1000, 2000, 3500] {
                let fixed = (0..9).map(|part| run(&depths, ratio, FRAMES * part / 9 / UNIT * UNIT, true, COSTS).0);
                let best = fixed.min().unwrap();
                let (cost, area) = run(&depths, ratio, FRAMES / 10, false, COSTS);
                assert!(cost * 100 <= best * 102, "{program:?}, {ratio}: {cost} with {area:?}, {best} at best");
            }
        }
    }

    /// "no compression" is an answer: where pages do not shrink, or a read costs hardly more than a decode, an area that has
    /// half of memory shrinks until what is left loses less than the policy acts on.
    #[test]
    fn compression_is_given_up_where_it_gains_nothing() {
        let cheap = Costs { compressed_ns: 10_000, below_ns: 10_500 };
        for program in [Program::Anywhere(450), Program::Skewed(150, 1000)] {
            let depths = depths(program);
            for (ratio, costs) in [(1000, COSTS), (2000, cheap)] {
                let (cost, area) = run(&depths, ratio, FRAMES / 2, false, costs);
                let none = run(&depths, ratio, 0, true, costs).0;
                assert!(cost * 100 <= none * 105, "{program:?}, {ratio}: {cost} with {area:?}, {none} without");
            }
        }
    }

    #[test]
    fn nothing_changes_without_evidence() {
        let mut policy = Marginal::new(PageCount(4000));
        let now =
            Division { frames: PageCount(640), area: PageCount(64), unit: PageCount(16), ratio_thousandths: 3000 };
        for _ in 0..READS_MIN - 1 {
            policy.asked(PageCount(900));
        }
        assert_eq!(policy.decide(now, COSTS).resizing, Resizing::Keep);
        policy.asked(PageCount(900));
        assert_eq!(
            policy.decide(now, COSTS),
            Advice { resizing: Resizing::Grow, best: PageCount(144), gain_percent: 90 }
        );
    }
}
