//! fork: the child has a copy of the whole log, and the parent goes on writing to the file.
//!
//! So the child only reads the parent's file, under the parent's key, and writes to a file of its own under its own
//! key: two writers under one key would use each nonce twice. The parent keeps what the child may read, by a pin.
//! Both calls belong to one fork: hold the lock from `pin_for_child` over the fork itself, so that the child sees
//! exactly the segments that the pin covers.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::{Readable, SegmentLog, places_max};
use crate::BackingStore;
use crate::cipher::Cipher;
use crate::job::Source;
use crate::places::{ChildPin, Places};
use crate::segment::State;

impl SegmentLog {
    /// Whether the end of a read would free a segment, and so change the log while it is copied. Nothing of such a segment is
    /// wanted any more, so that it is soon over; with no cleaning and no discarding meanwhile no other becomes one.
    pub fn waits_for_readers(&self) -> bool {
        self.segments.iter().flatten().any(|segment| segment.live_entries == 0 && segment.readers > 0)
    }

    /// In the parent, before the fork: keeps the segments that are on disk now until [`Self::unpin_child`], even if
    /// they become free. The child's own children read them too, so the pin outlives all of them that do.
    #[must_use = "without `unpin_child` the file never shrinks"]
    pub fn pin_for_child(&mut self) -> ChildPin {
        self.places.pin()
    }

    /// In the parent: the child and its descendants need our segments no more (they ended, called exec, or have no
    /// foreign segments left), or the fork has failed.
    #[expect(clippy::needless_pass_by_value, reason = "a pin is given back once")]
    pub fn unpin_child(&mut self, pin: ChildPin) {
        self.places.unpin(&pin);
        self.vain_search = None;
    }

    /// In the child, before anything else: what is on disk becomes foreign, read from where it is and never rewritten.
    /// What is in memory goes to `store` under `fresh_key`, a key that has never been used.
    ///
    /// Jobs that threads of the parent had in their hands at the fork do not exist here. What they held of memory stays
    /// allocated, and counted: two segments' worth for each write. The parent's file, which they had too, stays open.
    pub fn fork_child(&mut self, store: Box<dyn BackingStore>, fresh_key: [u8; 32]) {
        self.era += 1;
        self.places = Places::new(places_max(store.bytes_max(), self.segment_bytes));
        self.sealed.clear();
        for (number, segment) in self.segments.iter_mut().enumerate() {
            let Some(segment) = segment else { continue };
            // Readers and writers were threads of the parent.
            segment.readers = 0;
            segment.failed = false;
            if let State::Writing(plain) = &segment.state {
                segment.state = State::Sealed(plain.clone());
            }
            if matches!(segment.state, State::Sealed(_)) {
                self.sealed.push_back(number as u32);
            }
        }
        self.writing = 0;
        self.cleaning = None;
        self.vain_search = None;
        self.trouble = None;
        self.failed = 0;
        self.is_held = false;
        self.doubt = 0;
        self.totals.foreign_segments += core::mem::take(&mut self.totals.own_disk_segments);
        self.totals.own_disk_live_bytes = 0;
        self.totals.written_bytes = 0;
        self.totals.read_bytes = 0;
        self.adopt(Arc::new(Source { store, cipher: Cipher::new(fresh_key) }));
        self.free_what_only_jobs_held();
    }

    /// Makes `source` our own store.
    fn adopt(&mut self, source: Arc<Source>) {
        let parents = &mut self.readables[self.own];
        if parents.as_ref().is_some_and(|readable| readable.segments == 0) {
            *parents = None;
        }
        let readable = Some(Readable { source, segments: 0 });
        if let Some(free) = self.readables.iter().position(Option::is_none) {
            self.readables[free] = readable;
            self.own = free;
        } else {
            self.own = self.readables.len();
            self.readables.push(readable);
        }
    }

    /// Segments without a live entry that waited for a job to end.
    fn free_what_only_jobs_held(&mut self) {
        for number in 0..self.segments.len() as u32 {
            let is_dead = |segment: &crate::segment::Segment| segment.live_entries == 0;
            if self.segments[number as usize].as_ref().is_some_and(is_dead) {
                self.free_if_idle(number);
            }
        }
    }
}
