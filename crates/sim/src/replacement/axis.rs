//! The axis that references take their slots on: when it is used up it is drawn anew, with the slots alone that are still of
//! use, in their order.

/// The end of an axis with so many members that has become too short.
pub(super) fn axis_end(members: u32, end: u32) -> u32 {
    assert!(members < u32::MAX / 2, "fewer than 2^31 pages");
    end.max(members.saturating_mul(4))
}

/// Slots that stay.
pub(super) struct Staying {
    bits: Vec<u64>,
}

impl Staying {
    pub(super) fn new(end: u32) -> Self {
        Self { bits: vec![0; (end as usize).div_ceil(64)] }
    }

    pub(super) fn insert(&mut self, slot: u32) {
        self.bits[slot as usize / 64] |= 1 << (slot % 64);
    }

    /// All of a set of bits.
    pub(super) fn insert_all(&mut self, words: &[u64]) {
        for (all, own) in self.bits.iter_mut().zip(words) {
            *all |= own;
        }
    }

    pub(super) fn redraw(self) -> Redrawn {
        let mut members = 0;
        let count = |word: &u64| {
            let before = members;
            members += word.count_ones();
            before
        };
        let before = self.bits.iter().map(count).collect();
        Redrawn { bits: self.bits, before, members }
    }
}

/// Where they go.
pub(super) struct Redrawn {
    bits: Vec<u64>,
    /// Members in earlier words.
    before: Vec<u32>,
    pub(super) members: u32,
}

impl Redrawn {
    pub(super) fn moved(&self, slot: u32) -> u32 {
        let word = slot as usize / 64;
        self.before[word] + (self.bits[word] & ((1 << (slot % 64)) - 1)).count_ones()
    }
}
