//! Spans: addresses that stay as they are for as long as they are mapped. A small table without order: it is read by
//! signal handlers and by the mover, and written when stacks come and go.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Ranges of addresses, `SPANS` at most. Who wants to write looks `LOOKS` times whether it is his turn, and then leaves things as
/// they are; 0: without end.
#[derive(Debug)]
pub(crate) struct Spans<const SPANS: usize, const LOOKS: u32 = 0> {
    /// 1 while somebody writes.
    writer: AtomicU32,
    used: AtomicUsize,
    table: [[AtomicU64; 2]; SPANS],
}

impl<const SPANS: usize, const LOOKS: u32> Spans<SPANS, LOOKS> {
    pub(crate) const fn new() -> Self {
        Self {
            writer: AtomicU32::new(0),
            used: AtomicUsize::new(0),
            table: [const { [AtomicU64::new(0), AtomicU64::new(0)] }; SPANS],
        }
    }

    /// Says whether it was done.
    fn writing(&self, write: impl FnOnce() -> bool) -> bool {
        let mut looks = 0_u32;
        while self.writer.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            looks = looks.wrapping_add(1);
            if looks == LOOKS {
                return false;
            }
            rustix::thread::sched_yield();
        }
        let result = write();
        self.writer.store(0, Ordering::Release);
        result
    }

    fn entries(&self) -> &[[AtomicU64; 2]] {
        &self.table[..self.used.load(Ordering::Acquire)]
    }

    /// The span at `address`.
    #[cfg(any(test, target_arch = "x86_64"))]
    pub(crate) fn find(&self, address: u64) -> Option<core::ops::Range<u64>> {
        self.entries().iter().map(read).find(|span| span.contains(&address))
    }

    /// The first address of `start..end` that is in one; `end` if none is.
    pub(crate) fn first_in(&self, start: u64, end: u64) -> u64 {
        let touching = self.entries().iter().map(read).filter(|span| span.start < end && start < span.end);
        touching.map(|span| span.start.max(start)).min().unwrap_or(end)
    }

    /// Adds one; says whether there was room. What it covers of others becomes part of it.
    pub(crate) fn add(&self, start: u64, end: u64) -> bool {
        self.writing(|| {
            self.cut_held(start, end);
            self.put(start, end)
        })
    }

    /// Takes addresses out. Returns what must be added to have them again: from the first to the last of them.
    pub(crate) fn cut(&self, start: u64, end: u64) -> core::ops::Range<u64> {
        let touching = || self.entries().iter().map(read).filter(|span| span.start < end && start < span.end);
        let first = touching().map(|span| span.start.max(start)).min().unwrap_or(end);
        let last = touching().map(|span| span.end.min(end)).max().unwrap_or(end);
        if first < end {
            self.writing(|| {
                self.cut_held(start, end);
                true
            });
        }
        first..last
    }

    fn put(&self, start: u64, end: u64) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        let at = self.table[..used].iter().position(|span| read(span).is_empty()).unwrap_or(used);
        let Some(span) = self.table.get(at) else { return false };
        // The end first: in between the span holds too much, never too little.
        span[0].store(u64::MAX, Ordering::Release);
        span[1].store(end, Ordering::Release);
        span[0].store(start, Ordering::Release);
        self.used.fetch_max(at + 1, Ordering::Release);
        true
    }

    fn cut_held(&self, start: u64, end: u64) {
        for span in self.entries() {
            let old = read(span);
            if old.start >= end || start >= old.end {
                continue;
            }
            // Parts that stay are added before the whole goes. Without room for them the whole stays.
            let kept = (old.start >= start || self.put(old.start, start)) && (end >= old.end || self.put(end, old.end));
            if kept {
                span[1].store(0, Ordering::Release);
            }
        }
        let filled = self.entries().iter().rposition(|span| !read(span).is_empty()).map_or(0, |last| last + 1);
        self.used.store(filled, Ordering::Release);
    }

    /// In a forked child: a writer of the parent's is not here.
    pub(crate) fn reset(&self) {
        self.writer.store(0, Ordering::Release);
    }
}

fn read(span: &[AtomicU64; 2]) -> core::ops::Range<u64> {
    span[0].load(Ordering::Acquire)..span[1].load(Ordering::Acquire)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn agrees_with_a_plain_set() {
        static TABLE: Spans<64> = Spans::new();
        let mut plain = BTreeSet::new();
        let mut number = 5_u64;
        for _ in 0..3000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (start, length) = ((number >> 33) % 60, 1 + (number >> 50) % 20);
            if number >> 63 == 0 {
                assert!(TABLE.add(start, start + length));
                plain.extend(start..start + length);
            } else {
                let end = start + length;
                let mut had = plain.range(start..end);
                let (first, last) = (had.next().copied(), had.next_back().copied());
                let whole = first.map_or(end..end, |first| first..last.unwrap_or(first) + 1);
                assert_eq!(TABLE.cut(start, end), whole);
                plain.retain(|at| !(start..start + length).contains(at));
            }
            for at in 0..90 {
                assert_eq!(TABLE.find(at).is_some(), plain.contains(&at), "{at}");
                let next = plain.range(at..90).next().copied().unwrap_or(90);
                assert_eq!(TABLE.first_in(at, 90), next);
            }
        }
    }
}
