//! Size classes: which slots there are, and which one an encoding gets.
//!
//! A slab is a few frames cut into equal slots. Taking the slot length as `frames * 4096 / slots` for small numbers of
//! frames and slots gives lengths that fill a slab with less than a byte a slot left over; of those the table below
//! picks one about every 2 %.

use page::PAGE_BYTES;

use crate::head::HEAD_BYTES;

/// How a slab of one class is cut.
#[derive(Clone, Copy)]
pub(crate) struct Class {
    /// Head and encoding.
    pub(crate) slot_bytes: u16,
    pub(crate) slots: u16,
    pub(crate) frames: u8,
}

/// Frames in the largest slab. Fewer would make steps of more than 2 % between the longest slots.
pub(crate) const SLAB_FRAMES_MAX: usize = 16;
/// Smaller slabs would leave most of each slab's address space empty, and with it the kernel's page tables.
const SLAB_FRAMES_MIN: usize = 8;
/// In LZ4 a match as long as a page takes 19 bytes alone, so hardly any encoding would fit a shorter slot.
const SLOT_BYTES_MIN: usize = 32;
/// Slots in the largest slab: what the slot bits of a key can tell apart.
pub(crate) const SLOTS_MAX: usize = 1024;
/// Classes are a fiftieth apart, which wastes a hundredth on average ...
const STEP_SHARE: usize = 50;
/// ... but not closer than this, or there would be more classes than encodings to fill them.
const STEP_BYTES_MIN: usize = 8;

/// How many classes there are.
pub(crate) const CLASS_COUNT: usize = count_classes() + 1;
/// All classes, the shortest slots first.
pub(crate) static CLASSES: [Class; CLASS_COUNT] = list_classes();
/// The last class is for pages that do not shrink. A head in each slot would waste most of a frame a slab; here a slot
/// is a page, and the heads lie elsewhere.
pub(crate) const WHOLE: usize = CLASS_COUNT - 1;
/// Slots in a slab of class [`WHOLE`].
pub(crate) const WHOLE_SLOTS: usize = SLAB_FRAMES_MAX;

/// The class for each length of encoding.
static CLASS_OF_LENGTH: [u8; PAGE_BYTES + 1] = list_lengths();

/// The class with the shortest slots for an encoding of `length` bytes.
pub(crate) fn class_of(length: usize) -> usize {
    usize::from(CLASS_OF_LENGTH[length])
}

impl Class {
    /// Frames under the first `slots` slots.
    pub(crate) fn frames_under(self, slots: usize) -> usize {
        (slots * usize::from(self.slot_bytes)).div_ceil(PAGE_BYTES)
    }

    /// What is left of a slab behind its last slot.
    pub(crate) fn tail_bytes(self) -> usize {
        usize::from(self.frames) * PAGE_BYTES - usize::from(self.slots) * usize::from(self.slot_bytes)
    }
}

/// The class with the longest slots of at most `slot_bytes`; of nearly equals, that with the smallest slabs.
const fn class_at_most(slot_bytes: usize) -> Class {
    let mut best = Class { slot_bytes: 0, slots: 0, frames: 0 };
    let mut frames = SLAB_FRAMES_MIN;
    while frames <= SLAB_FRAMES_MAX {
        let slots = (frames * PAGE_BYTES).div_ceil(slot_bytes);
        let fitted = frames * PAGE_BYTES / slots;
        if slots <= SLOTS_MAX && fitted > best.slot_bytes as usize + slot_bytes / 200 {
            best = Class { slot_bytes: fitted as u16, slots: slots as u16, frames: frames as u8 };
        }
        frames += 1;
    }
    best
}

/// The next class below that with slots of `slot_bytes`.
const fn class_below(slot_bytes: usize) -> Class {
    let step = slot_bytes / STEP_SHARE;
    class_at_most(slot_bytes - if step > STEP_BYTES_MIN { step } else { STEP_BYTES_MIN })
}

/// Ordinary classes, those with a head in each slot.
const fn count_classes() -> usize {
    let mut count = 0;
    let mut class = class_at_most(PAGE_BYTES);
    while class.slot_bytes as usize >= SLOT_BYTES_MIN {
        count += 1;
        class = class_below(class.slot_bytes as usize);
    }
    count
}

const fn list_classes() -> [Class; CLASS_COUNT] {
    let whole = Class { slot_bytes: PAGE_BYTES as u16, slots: WHOLE_SLOTS as u16, frames: SLAB_FRAMES_MAX as u8 };
    let mut classes = [whole; CLASS_COUNT];
    let mut at = WHOLE;
    let mut class = class_at_most(PAGE_BYTES);
    while at > 0 {
        at -= 1;
        classes[at] = class;
        class = class_below(class.slot_bytes as usize);
    }
    classes
}

const fn list_lengths() -> [u8; PAGE_BYTES + 1] {
    let classes = list_classes();
    let mut lengths = [0; PAGE_BYTES + 1];
    let mut class = 0;
    let mut length = 0;
    while length <= PAGE_BYTES {
        while class < WHOLE && (classes[class].slot_bytes as usize) < length + HEAD_BYTES {
            class += 1;
        }
        lengths[length] = class as u8;
        length += 1;
    }
    lengths
}

const _: () = assert!(CLASS_COUNT < u8::MAX as usize);

/// A set of classes.
#[derive(Clone, Copy, Default)]
pub(crate) struct ClassSet([u64; CLASS_COUNT.div_ceil(64)]);

impl ClassSet {
    pub(crate) fn insert(&mut self, class: usize) {
        self.0[class / 64] |= 1 << (class % 64);
    }

    pub(crate) fn remove(&mut self, class: usize) {
        self.0[class / 64] &= !(1 << (class % 64));
    }

    pub(crate) fn contains(&self, class: usize) -> bool {
        self.0[class / 64] >> (class % 64) & 1 == 1
    }

    /// The first member that is not before `class`.
    pub(crate) fn first_from(&self, class: usize) -> Option<usize> {
        let mut word = class / 64;
        let mut bits = *self.0.get(word)? & (u64::MAX << (class % 64));
        while bits == 0 {
            word += 1;
            bits = *self.0.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fill_their_slabs_and_rise() {
        for (at, class) in CLASSES.iter().enumerate() {
            assert!(class.tail_bytes() < usize::from(class.slots), "class {at}");
            assert!(usize::from(class.slots) <= SLOTS_MAX && usize::from(class.frames) <= SLAB_FRAMES_MAX);
            if at > 0 && at < WHOLE {
                let below = CLASSES[at - 1].slot_bytes;
                assert!(below < class.slot_bytes);
                let step = class.slot_bytes - below;
                // The worst is the step from 16 to 17 slots in the largest slab.
                assert!(step <= 16 || step * 16 <= class.slot_bytes, "{below} to {}", class.slot_bytes);
            }
        }
    }

    #[test]
    fn each_length_gets_the_first_class_that_holds_it() {
        for length in 1..=PAGE_BYTES {
            let room = |at: usize| usize::from(CLASSES[at].slot_bytes) - if at == WHOLE { 0 } else { HEAD_BYTES };
            let expected = (0..CLASS_COUNT).find(|&at| room(at) >= length).unwrap();
            assert_eq!(class_of(length), expected, "{length} bytes");
        }
        assert_eq!(class_of(PAGE_BYTES), WHOLE);
    }

    #[test]
    fn sets_find_their_members_in_order() {
        let mut set = ClassSet::default();
        assert_eq!(set.first_from(0), None);
        for class in [0, 63, 64, WHOLE] {
            set.insert(class);
        }
        assert_eq!(set.first_from(0), Some(0));
        assert_eq!(set.first_from(1), Some(63));
        assert_eq!(set.first_from(64), Some(64));
        set.remove(64);
        assert!(!set.contains(64) && set.contains(63));
        assert_eq!(set.first_from(64), Some(WHOLE));
        assert_eq!(set.first_from(WHOLE + 1), None);
        assert_eq!(set.first_from(1000), None);
    }
}
