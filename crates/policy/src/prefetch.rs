//! Prefetch: how many pages to bring for one fault.
//!
//! A fault that continues where the last ones stopped doubles the window, one a little further on keeps it, any other
//! closes it again. Eight streams are followed at once, because programs walk several arrays together, and eight that go
//! downwards: Python frees a list from its end.
//!
//! And when to read on behind what a fault asks for: where there is much room ([`Room`]).

use page::{ByteCount, PageCount, PageIndex};

/// Most pages for one fault: beyond this the fault itself is a small part of the cost per page.
pub const WINDOW_MAX: PageCount = PageCount(16);
const STREAMS: usize = 8;
/// Pages that a walk may leave out without ending its stream: heaps put other things between. Python's collector, which
/// walks over 600 MiB of lists and what is in them, then takes a quarter fewer faults.
const GAP_MAX: PageCount = PageCount(32);

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The fault that would continue this stream.
    next: PageIndex,
    window: PageCount,
    /// Number of the fault that last continued it, to replace the stalest.
    used: u64,
}

/// The same downwards, where walks are rarer: accesses anywhere are taken for one less often.
const GAP_MAX_DOWN: PageCount = PageCount(2);

/// Follows the faults of a program.
#[derive(Debug)]
pub struct Streams {
    followed: [Stream; STREAMS],
    faults: u64,
    gap_max: PageCount,
}

impl Default for Streams {
    fn default() -> Self {
        Self { followed: [Stream::default(); STREAMS], faults: 0, gap_max: GAP_MAX }
    }
}

impl Streams {
    /// Pages to bring for a fault on `page`, that one included: 1 to [`WINDOW_MAX`].
    pub fn window(&mut self, page: PageIndex) -> PageCount {
        self.faults += 1;
        let ahead = |stream: &Stream| if stream.used > 0 { page.0.wrapping_sub(stream.next.0) } else { u64::MAX };
        let nearest = self.followed.iter_mut().min_by_key(|stream| ahead(stream)).expect("there are eight");
        let stream = if ahead(nearest) <= self.gap_max.0 {
            if ahead(nearest) == 0 {
                nearest.window = PageCount((nearest.window.0 * 2).min(WINDOW_MAX.0));
            }
            nearest
        } else {
            let stream = self.followed.iter_mut().min_by_key(|stream| stream.used).expect("there are eight");
            stream.window = PageCount(1);
            stream
        };
        stream.used = self.faults;
        stream.next = page + stream.window;
        stream.window
    }

    /// Whether a fault on `page` would continue a walk: more pages than that one would be brought for it.
    pub fn continues(&self, page: PageIndex) -> bool {
        let ahead = |stream: &Stream| page.0.wrapping_sub(stream.next.0);
        let lively = self.followed.iter().filter(|stream| stream.used > 0);
        lively
            .min_by_key(|stream| ahead(stream))
            .is_some_and(|stream| ahead(stream) == 0 || ahead(stream) <= self.gap_max.0 && stream.window > PageCount(1))
    }

    /// Says that only `count` of the pages could be brought, so the next fault of the stream comes earlier.
    pub fn shortened(&mut self, page: PageIndex, window: PageCount, count: PageCount) {
        if let Some(stream) = self.followed.iter_mut().find(|stream| stream.next == page + window) {
            stream.next = page + count;
        }
    }
}

/// Follows those that walk downwards.
#[derive(Debug)]
pub struct Descents(Streams);

impl Default for Descents {
    fn default() -> Self {
        Self(Streams { gap_max: GAP_MAX_DOWN, ..Streams::default() })
    }
}

impl Descents {
    /// Pages below `page` to bring for a fault on it: fewer than [`WINDOW_MAX`], often none.
    pub fn window(&mut self, page: PageIndex) -> PageCount {
        self.0.window(mirrored(page)) - PageCount(1)
    }

    /// Says that only `count` of them could be brought.
    pub fn shortened(&mut self, page: PageIndex, window: PageCount, count: PageCount) {
        self.0.shortened(mirrored(page), window + PageCount(1), count + PageCount(1));
    }
}

/// The part of the share that is free where there is much room, as a divisor, and the least of it: reclaim makes as much at once.
const AHEAD_DIVISOR: u64 = 4;
const AHEAD_BYTES_MIN: u64 = 1 << 20;

/// What a process has room for.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// What it may hold.
    pub share: ByteCount,
    /// What of that is free beyond the mark where reclaim stops, bytes; negative where it has not got there.
    pub spare: i64,
    /// What the pool may still take.
    pub pool: ByteCount,
}

impl Room {
    /// Whether `bytes` of encodings may come back from below that nobody has asked for. Where pages have to leave for those
    /// that come, they may not; nor where other encodings have to go below.
    pub fn is_ample_for(self, bytes: ByteCount) -> bool {
        let ample = (self.share.0 / AHEAD_DIVISOR).max(AHEAD_BYTES_MIN) + bytes.0;
        self.spare >= ample as i64 && self.pool >= bytes
    }
}

/// Upside down: page numbers have 52 bits at most.
fn mirrored(page: PageIndex) -> PageIndex {
    PageIndex((1 << 52) - page.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_ample_where_a_quarter_of_the_share_is_spare_and_the_pool_may_grow() {
        const MIB: u64 = 1 << 20;
        let is_ample = |share: u64, spare: i64, pool| {
            let room = Room { share: ByteCount(share * MIB), spare: spare * MIB as i64, pool: ByteCount(pool) };
            room.is_ample_for(ByteCount(MIB))
        };
        assert!(is_ample(40, 11, MIB) && !is_ample(40, 10, MIB) && !is_ample(40, 11, MIB - 1));
        assert!(is_ample(2, 2, MIB) && !is_ample(2, 1, MIB) && !is_ample(2, -3, MIB), "a small share");
    }

    #[test]
    fn a_walk_downwards_opens_its_window() {
        let (mut descents, mut streams) = (Descents::default(), Streams::default());
        let mut page = PageIndex(1000);
        let mut windows = vec![];
        for _ in 0..7 {
            assert_eq!(streams.window(page), PageCount(1), "nobody walks upwards");
            let window = descents.window(page);
            windows.push(window.0);
            page = PageIndex(page.0 - window.0 - 1);
        }
        assert_eq!(windows, [0, 1, 3, 7, 15, 15, 15]);
        // Of the last fifteen only four have come.
        descents.shortened(PageIndex(page.0 + 16), PageCount(15), PageCount(4));
        assert_eq!(descents.window(PageIndex(page.0 + 11)), PageCount(15));
        assert_eq!((0..100).map(|page| descents.window(PageIndex(5000 + page)).0).sum::<u64>(), 0);
    }

    #[test]
    fn a_walk_is_told_before_it_goes_on() {
        let mut streams = Streams::default();
        let (mut drawn, mut walks) = (7_u64, 0);
        for fault in 0..20_000_u64 {
            drawn = drawn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let page = if fault % 3 == 0 { PageIndex(5000 + fault / 3) } else { PageIndex(drawn >> 54) };
            let continues = streams.continues(page);
            assert_eq!(streams.window(page) > PageCount(1), continues, "fault {fault}");
            walks += u64::from(continues);
        }
        assert!((3000..8000).contains(&walks), "{walks}");
    }

    #[test]
    fn a_sequential_walk_opens_the_window() {
        let mut streams = Streams::default();
        let mut page = PageIndex(100);
        let mut windows = vec![];
        for _ in 0..7 {
            let window = streams.window(page);
            windows.push(window.0);
            page = page + window;
        }
        assert_eq!(windows, [1, 2, 4, 8, 16, 16, 16]);
    }

    #[test]
    fn a_gap_keeps_the_window() {
        let mut streams = Streams::default();
        for page in [100, 101, 103] {
            streams.window(PageIndex(page));
        }
        assert_eq!(streams.window(PageIndex(107 + GAP_MAX.0)), PageCount(4));
        // Too far: 111 and what may be left out.
        assert_eq!(streams.window(PageIndex(111 + 2 * GAP_MAX.0 + 1)), PageCount(1));
    }

    #[test]
    fn every_other_page_is_no_sequence() {
        let mut streams = Streams::default();
        for page in (0..100).step_by(2) {
            assert_eq!(streams.window(PageIndex(1000 + page)), PageCount(1));
        }
    }

    #[test]
    fn random_faults_keep_it_closed() {
        let mut streams = Streams::default();
        for page in [5, 900, 17, 3000, 44, 8, 12345, 60, 77, 9010] {
            assert_eq!(streams.window(PageIndex(page)), PageCount(1), "page {page}");
        }
    }

    #[test]
    fn interleaved_walks_are_followed_together() {
        let mut streams = Streams::default();
        let mut pages = [PageIndex(1_000), PageIndex(50_000), PageIndex(900_000)];
        for _ in 0..6 {
            for page in &mut pages {
                *page = *page + streams.window(*page);
            }
        }
        assert_eq!(streams.window(pages[1]), WINDOW_MAX);
    }

    #[test]
    fn a_shortened_window_moves_the_next_fault() {
        let mut streams = Streams::default();
        streams.window(PageIndex(10));
        assert_eq!(streams.window(PageIndex(11)), PageCount(2));
        streams.shortened(PageIndex(11), PageCount(2), PageCount(1));
        assert_eq!(streams.window(PageIndex(12)), PageCount(4));
    }
}
