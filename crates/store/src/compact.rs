//! Compaction: empties the sparsest slabs into the free slots of fuller ones.
//!
//! A slab is emptied only if free slots that cost no new frames can take all it holds; else the copying would gain
//! nothing. Slots a little longer than needed count too: giving up a slab gains more than a few percent of one.

use page::{ByteCount, PAGE_BYTES, PageIndex};

use crate::StoreKey;
use crate::class::{CLASS_COUNT, ClassSet, SLAB_FRAMES_MAX, class_of};
use crate::head::Head;
use crate::slabs::{Place, Slabs};
use crate::table::NO_SLAB;

impl Slabs {
    /// `Store::compact`.
    pub(crate) fn compact_slabs(
        &mut self,
        encodings_max: usize,
        moved: &mut dyn FnMut(PageIndex, StoreKey, StoreKey),
    ) -> ByteCount {
        let frames_before = self.sums.frames;
        self.release_reserve();
        let mut budget = encodings_max;
        let reach = self.reach();
        // Classes whose sparsest slab could not be emptied after all.
        let mut stuck = ClassSet::default();
        while budget > 0 {
            let Some(source) = self.source(reach, &stuck) else { break };
            let class = usize::from(self.table[source].class);
            // Off its list, or the slab could be chosen as its own target.
            let was = self.table.listed(source);
            self.table.unlist(source, was);
            let copied = self.drain(source, reach, budget, moved);
            budget -= copied;
            if self.table[source].used == 0 {
                self.retire(source);
                self.release(source);
            } else {
                let now = self.table.listed(source);
                self.table.list(source, now);
                stuck.insert(class);
            }
        }
        // Moving into a slab that had never filled its last frames may have cost some.
        ByteCount(frames_before.saturating_sub(self.sums.frames) * PAGE_BYTES as u64)
    }

    fn release_reserve(&mut self) {
        while self.reserve != NO_SLAB {
            let slab = self.reserve;
            self.reserve = self.table[slab].next;
            self.release(slab);
        }
        self.reserve_count = 0;
    }

    /// The slab that gives back most for each encoding moved, among the sparsest of each class that can be emptied.
    fn source(&self, reach: usize, stuck: &ClassSet) -> Option<u32> {
        (0..CLASS_COUNT)
            .filter(|&class| !stuck.contains(class))
            .filter_map(|class| self.table.sparsest(class))
            .filter(|&slab| self.fits_elsewhere(slab, reach))
            .min_by_key(|&slab| {
                let slab = &self.table[slab];
                // Encodings a frame, as a fraction with the same denominator everywhere: 720720 is divisible by every
                // number of frames up to 16.
                u32::from(slab.used) * (720_720 / u32::from(slab.held))
            })
    }

    /// Whether free slots in other slabs can take what is in `slab`.
    fn fits_elsewhere(&self, slab: u32, reach: usize) -> bool {
        let slab = &self.table[slab];
        let class = usize::from(slab.class);
        let room: u32 = (class..CLASS_COUNT.min(class + reach + 1)).map(|class| self.table.room(class)).sum();
        room - u32::from(slab.fresh - slab.used) >= u32::from(slab.used)
    }

    /// Moves up to `budget` encodings out of `source`, which is on no list. Returns how many.
    fn drain(
        &mut self,
        source: u32,
        reach: usize,
        budget: usize,
        moved: &mut dyn FnMut(PageIndex, StoreKey, StoreKey),
    ) -> usize {
        let source_class = usize::from(self.table[source].class);
        let mut copied = 0;
        for slot in 0..self.table[source].fresh {
            let from = Place { slab: source, slot };
            let Head::Used { owner, length } = self.head(from) else { continue };
            if copied == budget {
                break;
            }
            // From the class of the encoding on, not of the slot it has now: it must not climb with every move. But it
            // may stay where it has climbed.
            let class = class_of(length);
            let nearest = self.partial(class, class + reach);
            let Some(target) = nearest.or_else(|| self.table.fullest(source_class)) else { break };
            let to = self.take(target, owner, length);
            self.pool.copy(self.offset(from), self.offset(to), length);
            self.free(from);
            moved(owner, from.key(), to.key());
            copied += 1;
        }
        copied
    }
}

const _: () = {
    let mut frames = 1;
    while frames <= SLAB_FRAMES_MAX {
        assert!(720_720 % frames == 0);
        frames += 1;
    }
};
