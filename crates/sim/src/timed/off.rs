//! Nothing but the kernel: a clock over the frames; what it takes goes to the device as it is, if it has changed.

use std::collections::HashMap;

use page::{ByteCount, PAGE_BYTES, PageIndex};

use super::{Keeper, Run};

/// Pages that Linux writes together (`SWAP_CLUSTER_MAX`).
const CLUSTER: u64 = 32;

/// The part of RAM that pages may fill which are still to be written, as a divisor.
const FREE_DIVISOR: u64 = 64;

#[derive(Clone, Copy)]
struct Frame {
    page: u64,
    is_used: bool,
    is_dirty: bool,
}

enum Place {
    Frame(usize),
    Device,
}

/// Plain swap.
pub(super) struct Off {
    size: usize,
    frames: Vec<Frame>,
    places: HashMap<u64, Place>,
    hand: usize,
    /// Pages to be written.
    gathered: u64,
}

impl Off {
    pub(super) fn new(ram: ByteCount) -> Self {
        let size = (ram.0 / PAGE_BYTES as u64).max(1) as usize;
        Self { size, frames: Vec::new(), places: HashMap::new(), hand: 0, gathered: 0 }
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
        self.places.insert(going.page, Place::Device);
        if going.is_dirty {
            run.pages_swapped_out += 1;
            self.gathered += 1;
        }
        if self.gathered == CLUSTER {
            self.gathered = 0;
            run.write(CLUSTER * PAGE_BYTES as u64);
            // The kernel keeps about that much free.
            run.wait_until(run.queue.has_written_ns(self.size as u64 * PAGE_BYTES as u64 / FREE_DIVISOR));
        }
    }
}

impl Keeper for Off {
    fn touch(&mut self, run: &mut Run<'_>, page: PageIndex, is_write: bool) {
        let machine = run.setup.machine;
        let is_dirty = match self.places.get(&page.0) {
            Some(Place::Frame(at)) => {
                let frame = &mut self.frames[*at];
                frame.is_used = true;
                frame.is_dirty |= is_write;
                return;
            }
            Some(Place::Device) => {
                run.faults.backed += 1;
                run.pass(&machine.kernel_fault);
                run.read(PAGE_BYTES as u64);
                is_write
            }
            None => {
                run.faults.first_touch += 1;
                run.pass(&machine.first_touch);
                // Nothing of an anonymous page is on the device before it is written there.
                true
            }
        };
        self.bring(run, Frame { page: page.0, is_used: true, is_dirty });
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
        assert_eq!(self.frames.len() as u64, seen.min(self.size as u64), "frames are in use from the first need on");
    }
}
