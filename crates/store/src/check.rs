//! The invariants of [`Slabs`], asserted by counting everything again.

use alloc::vec;

use page::PAGE_BYTES;

use crate::class::{CLASS_COUNT, CLASSES, WHOLE};
use crate::head::{Head, NO_SLOT};
use crate::slabs::{Place, RESERVE_SLABS_MAX, Slabs, Sums};
use crate::table::{NO_CLASS, NO_SLAB, Slab};

/// A check at each so-manieth number of encodings.
const CHECK_ENCODINGS: u64 = 16;

impl Slabs {
    /// `Store::check`.
    pub(crate) fn check_slabs(&self) {
        assert!(self.table.len() <= self.spans);
        self.table.check();
        let mut sums = Sums::default();
        let mut room = [0; CLASS_COUNT];
        let mut heads_used = vec![false; self.whole_heads.len()];
        let mut empty = 0;
        for index in 0..self.table.len() as u32 {
            let slab = &self.table[index];
            sums.frames += u64::from(slab.held);
            if slab.class == NO_CLASS {
                assert_eq!((slab.used, slab.fresh, slab.free), (0, 0, NO_SLOT), "slab {index}");
                empty += 1;
                continue;
            }
            let class = usize::from(slab.class);
            room[class] += u32::from(slab.fresh - slab.used);
            if class == WHOLE {
                assert!(!heads_used[slab.heads as usize], "slab {index} shares its heads");
                heads_used[slab.heads as usize] = true;
            }
            self.check_slab(index, slab, &mut sums);
        }
        assert_eq!(sums, self.sums);
        for (class, &room) in room.iter().enumerate() {
            assert_eq!(room, self.table.room(class), "class {class}");
        }
        for &heads in &self.whole_heads_free {
            assert!(!heads_used[heads as usize], "heads {heads} are both free and used");
            heads_used[heads as usize] = true;
        }
        assert!(heads_used.iter().all(|&used| used), "heads are lost");
        assert_eq!(self.check_empty_slabs(), empty, "empty slabs are lost");
    }

    /// In debug builds, the slab that was last touched; not each time, for that goes over all of its slots.
    pub(crate) fn check_now_and_then(&self, index: u32) {
        if cfg!(debug_assertions) && self.sums.encodings.is_multiple_of(CHECK_ENCODINGS) {
            self.check_slab(index, &self.table[index], &mut Sums::default());
        }
    }

    fn check_slab(&self, index: u32, slab: &Slab, sums: &mut Sums) {
        let class = &CLASSES[usize::from(slab.class)];
        assert!(0 < slab.used && slab.used <= slab.fresh && slab.fresh <= class.slots, "slab {index}");
        assert!(class.frames_under(usize::from(slab.fresh)) <= usize::from(slab.held), "slab {index}");
        assert!(slab.held <= class.frames, "slab {index}");
        let mut used = 0;
        for slot in 0..slab.fresh {
            let Head::Used { length, .. } = self.head(Place { slab: index, slot }) else { continue };
            let end = self.offset(Place { slab: index, slot }) + length;
            let slot_end =
                self.offset(Place { slab: index, slot: 0 }) + usize::from(slot + 1) * usize::from(class.slot_bytes);
            assert!(end <= slot_end, "slab {index}, slot {slot}");
            used += 1;
            sums.stored_bytes += length as u64;
            sums.slot_bytes += u64::from(class.slot_bytes);
        }
        assert_eq!(used, slab.used, "slab {index}");
        sums.encodings += u64::from(used);
        sums.whole += if usize::from(slab.class) == WHOLE { u64::from(used) } else { 0 };
        if slab.held == class.frames {
            sums.tail_bytes += (usize::from(class.frames) * PAGE_BYTES
                - usize::from(class.slots) * usize::from(class.slot_bytes)) as u64;
        }
        self.check_free_slots(index, slab);
    }

    /// The free list visits exactly the free slots.
    fn check_free_slots(&self, index: u32, slab: &Slab) {
        let mut free = 0;
        let mut at = slab.free;
        while at != NO_SLOT {
            let Head::Free { next } = self.head(Place { slab: index, slot: at }) else {
                panic!("slab {index}: the used slot {at} is listed as free")
            };
            free += 1;
            assert!(free <= slab.fresh, "slab {index}: the free list is a ring");
            at = next;
        }
        assert_eq!(free, slab.fresh - slab.used, "slab {index}");
    }

    /// Each empty slab is either in the reserve or released. Returns how many there are.
    fn check_empty_slabs(&self) -> usize {
        let mut count = 0;
        let mut at = self.reserve;
        while at != NO_SLAB {
            assert!(self.table[at].class == NO_CLASS && self.table[at].held > 0);
            count += 1;
            at = self.table[at].next;
        }
        assert_eq!(count, self.reserve_count);
        assert!(count <= RESERVE_SLABS_MAX);
        at = self.released;
        while at != NO_SLAB {
            assert!(self.table[at].class == NO_CLASS && self.table[at].held == 0);
            count += 1;
            at = self.table[at].next;
        }
        count
    }
}
