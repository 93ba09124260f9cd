//! What is read beside: with one job's read the medium gets those of others, and their blocks lie here until they run.
//!
//! Blocks are known by the segment that they were written in, whose number is never used again. A job that finds its own here checks
//! and decrypts them as if it had read them, and reads after all if they are not right.

use sys::ring::{READS_MAX, Read};

use crate::BLOCK_BYTES;
use crate::buffer::AlignedBytes;
use crate::job::ReadJob;

/// Jobs whose encodings one request of another brings along.
pub const ASIDE_MAX: usize = READS_MAX - 1;
/// An extent touches two blocks at most.
const ROOM_BYTES: usize = 2 * BLOCK_BYTES;

/// Which blocks of a medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Blocks {
    pub(crate) place: u32,
    pub(crate) sequence: u64,
    /// Bytes of the segment before them.
    pub(crate) first: usize,
    pub(crate) bytes: usize,
}

/// See the top of the file.
#[derive(Debug)]
pub(crate) struct Aside {
    rooms: AlignedBytes,
    kept: [Option<Blocks>; ASIDE_MAX],
}

impl Aside {
    pub(crate) fn new() -> Self {
        Self { rooms: AlignedBytes::new(ASIDE_MAX * ROOM_BYTES), kept: [None; ASIDE_MAX] }
    }

    /// The memory, which holds nothing from now on.
    pub(crate) fn clear(&mut self) -> &mut [u8] {
        self.kept = [None; ASIDE_MAX];
        &mut self.rooms
    }

    pub(crate) fn has(&self, blocks: Blocks) -> bool {
        self.kept.contains(&Some(blocks))
    }

    /// Copies those blocks to `out`, if they are here, and forgets them: nobody asks twice.
    pub(crate) fn take(&mut self, blocks: Blocks, out: &mut [u8]) -> bool {
        let Some(at) = self.kept.iter().position(|kept| *kept == Some(blocks)) else { return false };
        self.kept[at] = None;
        out[..blocks.bytes].copy_from_slice(&self.rooms[at * ROOM_BYTES..][..blocks.bytes]);
        true
    }

    /// Has `job` read into `blocks`, and at the same time what `others` are asked for, which takes the places of what lay here.
    /// Returns whether all of the job's own came.
    pub(crate) fn read_with(
        &mut self,
        job: &ReadJob,
        others: &[Option<ReadJob>],
        blocks: &mut [u8],
        queue: &mut sys::ring::Queue,
    ) -> bool {
        assert!(others.len() <= ASIDE_MAX);
        let wanted = |at: usize| others.get(at)?.as_ref().filter(|other| other.has_store_of(job));
        let mut rooms = self.rooms.chunks_exact_mut(ROOM_BYTES);
        let mut first = Some(Read::new(job.offset(), blocks));
        let mut reads: [Read<'_>; READS_MAX] = core::array::from_fn(|at| {
            first.take().unwrap_or_else(|| match (wanted(at - 1), rooms.next()) {
                (Some(other), Some(room)) => Read::new(other.offset(), &mut room[..other.asked_for().bytes]),
                _ => Read::new(0, &mut []),
            })
        });
        job.store().read_many(&mut reads, queue);
        let came = reads.map(|read| read.is_whole());
        for (at, kept) in self.kept.iter_mut().enumerate() {
            *kept = wanted(at).filter(|_| came[at + 1]).map(ReadJob::asked_for);
        }
        came[0]
    }
}
