//! Nothing but the kernel: a clock over the frames; what it takes goes to the device as it is, if it has changed. What lies beside it there is read
//! with a page that is asked for.

use std::collections::{HashMap, VecDeque};

use page::{ByteCount, PAGE_BYTES, PageIndex};

use super::{Keeper, Run};

/// Pages that Linux writes together (`SWAP_CLUSTER_MAX`).
const CLUSTER: u64 = 32;

/// The part of RAM that pages may fill which are still to be written, as a divisor; and those that have been read and that nobody has asked for.
const FREE_DIVISOR: u64 = 64;
/// Slots of the swap device that Linux reads together (`page-cluster` is 3).
const READ_TOGETHER: usize = 8;

#[derive(Clone, Copy)]
struct Frame {
    page: u64,
    is_used: bool,
    is_dirty: bool,
    /// Where it is on the device, too.
    slot: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Frame(usize),
    /// Read with another one.
    Ahead(usize),
    Device(usize),
}

/// Plain swap.
pub(super) struct Off {
    size: usize,
    frames: Vec<Frame>,
    places: HashMap<u64, Place>,
    hand: usize,
    /// Pages to be written.
    gathered: u64,
    /// The page in each slot: they are given out in order, so that what goes together lies together.
    slots: HashMap<usize, u64>,
    next_slot: usize,
    /// Slots that have been read with others, oldest first: the pages of some have been asked for since.
    ahead: VecDeque<usize>,
    ahead_max: usize,
}

impl Off {
    pub(super) fn new(ram: ByteCount) -> Self {
        let all = (ram.0 / PAGE_BYTES as u64).max(1) as usize;
        let ahead_max = all / FREE_DIVISOR as usize;
        let (places, slots) = (HashMap::new(), HashMap::new());
        let (size, frames, ahead) = (all - ahead_max, Vec::new(), VecDeque::new());
        Self { size, frames, places, hand: 0, gathered: 0, slots, next_slot: 0, ahead, ahead_max }
    }

    fn bring(&mut self, run: &mut Run<'_>, coming: Frame) {
        let at = if self.frames.len() < self.size {
            self.frames.push(coming);
            self.frames.len() - 1
        } else {
            self.free(run);
            let at = self.hand;
            self.frames[at] = coming;
            self.hand = (at + 1) % self.size;
            at
        };
        self.places.insert(coming.page, Place::Frame(at));
    }

    /// Turns the hand to a frame whose page goes.
    fn free(&mut self, run: &mut Run) {
        while self.frames[self.hand].is_used {
            self.frames[self.hand].is_used = false;
            self.hand = (self.hand + 1) % self.size;
        }
        let going = self.frames[self.hand];
        let slot =
            if going.is_dirty { self.give_slot(run, going) } else { going.slot.expect("who has not changed is there") };
        self.places.insert(going.page, Place::Device(slot));
        if self.gathered == CLUSTER {
            self.gathered = 0;
            run.write(CLUSTER * PAGE_BYTES as u64);
            // The kernel keeps about that much free.
            run.wait_until(run.queue.has_written_ns(self.size as u64 * PAGE_BYTES as u64 / FREE_DIVISOR));
        }
    }

    /// A page that has changed is to be written, and where; what was written of it before is out of date.
    fn give_slot(&mut self, run: &mut Run<'_>, going: Frame) -> usize {
        run.pages_swapped_out += 1;
        self.gathered += 1;
        if let Some(old) = going.slot {
            self.slots.remove(&old);
        }
        let slot = self.next_slot;
        self.next_slot += 1;
        self.slots.insert(slot, going.page);
        slot
    }

    /// Reads a slot, and those pages of its cluster that are still there.
    fn read_with_neighbours(&mut self, run: &mut Run<'_>, slot: usize) {
        let first = slot - slot % READ_TOGETHER;
        let mut count = 1;
        for beside in first..first + READ_TOGETHER {
            let is_for_later = self.ahead_max > 0 && beside != slot;
            if is_for_later && self.change(beside, Place::Device(beside), Place::Ahead(beside)) {
                self.ahead.push_back(beside);
                count += 1;
            }
        }
        run.prefetched += count - 1;
        run.read(count * PAGE_BYTES as u64);
        while self.ahead.len() > self.ahead_max {
            let oldest = self.ahead.pop_front().expect("there are some");
            self.change(oldest, Place::Ahead(oldest), Place::Device(oldest));
        }
    }

    /// Whether the page of a slot was in the one place; then it is in the other one.
    fn change(&mut self, slot: usize, from: Place, to: Place) -> bool {
        let Some(page) = self.slots.get(&slot) else { return false };
        let place = self.places.get_mut(page).expect("a page with a slot has been seen");
        let was = *place == from;
        if was {
            *place = to;
        }
        was
    }
}

impl Keeper for Off {
    fn touch(&mut self, run: &mut Run<'_>, page: PageIndex, is_write: bool) {
        let machine = run.setup.machine;
        let (is_dirty, slot) = match self.places.get(&page.0).copied() {
            Some(Place::Frame(at)) => {
                let frame = &mut self.frames[at];
                frame.is_used = true;
                frame.is_dirty |= is_write;
                return;
            }
            Some(Place::Ahead(slot)) => {
                run.faults.soft += 1;
                run.pass(&machine.kernel_fault);
                (is_write, Some(slot))
            }
            Some(Place::Device(slot)) => {
                run.faults.backed += 1;
                run.pass(&machine.kernel_fault);
                self.read_with_neighbours(run, slot);
                (is_write, Some(slot))
            }
            None => {
                run.faults.first_touch += 1;
                run.pass(&machine.first_touch);
                // Nothing of an anonymous page is on the device before it is written there.
                (true, None)
            }
        };
        self.bring(run, Frame { page: page.0, is_used: true, is_dirty, slot });
    }

    fn pool_bytes(&self) -> u64 {
        0
    }

    fn resident_bytes(&self) -> u64 {
        (self.frames.len() * PAGE_BYTES) as u64
    }

    fn check(&self, run: &Run<'_>) {
        let seen = run.faults.first_touch;
        assert_eq!(self.places.len() as u64, seen, "each page is in a frame or on the device");
        assert!(self.slots.len() as u64 <= seen && self.ahead.len() <= self.ahead_max, "a page has one slot at most");
        assert_eq!(self.frames.len() as u64, seen.min(self.size as u64), "frames are in use from the first need on");
    }
}
