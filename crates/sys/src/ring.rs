//! A ring (`io_uring`): one thread has several reads on their way at the same time, and waits for all of them.
//!
//! A disk answers eight requests in little more time than one; a thread that calls pread has one. No read outlives the call that
//! asks for it, for the kernel writes into its buffer until it has ended.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringOp, io_cqring_offsets,
    io_sqring_offsets, io_uring_enter, io_uring_params, io_uring_ptr, io_uring_setup, io_uring_sqe,
};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::file::File;
use crate::{Errno, apart};

/// Reads that one call has on their way.
pub const READS_MAX: usize = 8;
/// Between two looks at reads of which the kernel does not say when they end.
const PAUSE: Duration = Duration::from_micros(50);

/// A read to be made at the same time as others.
#[derive(Debug)]
pub struct Read<'a> {
    offset: u64,
    out: &'a mut [u8],
    is_whole: bool,
}

impl<'a> Read<'a> {
    /// Fills `out` from `offset` on. An empty one asks for nothing.
    pub fn new(offset: u64, out: &'a mut [u8]) -> Self {
        Self { offset, is_whole: out.is_empty(), out }
    }

    /// Where it begins, and what it fills.
    pub fn parts(&mut self) -> (u64, &mut [u8]) {
        (self.offset, self.out)
    }

    /// Says whether all of it has come.
    pub fn ends(&mut self, is_whole: bool) {
        self.is_whole = is_whole;
    }

    /// Whether all of it has come. Why not is for a read of its own to tell.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }
}

/// A thread's ring, made when it is first needed; where the kernel allows none, there never is one.
#[derive(Debug, Default)]
pub struct Queue(Made);

#[derive(Debug, Default)]
enum Made {
    #[default]
    NotYet,
    Ring(Ring),
    Never,
}

impl Queue {
    /// Makes these reads at the same time. False: it cannot be done here; which of them have come, if any, they say.
    pub fn read(&mut self, file: &File, reads: &mut [Read<'_>]) -> bool {
        if let Made::NotYet = self.0 {
            // ENOSYS, EPERM (kernel.io_uring_disabled, a seccomp filter), ENOMEM, EMFILE: reads are made one by one then.
            self.0 = Ring::new().map_or(Made::Never, Made::Ring);
        }
        let Made::Ring(ring) = &mut self.0 else { return false };
        for reads in reads.chunks_mut(READS_MAX) {
            if ring.read(file, reads).is_err() {
                self.0 = Made::Never;
                return false;
            }
        }
        true
    }
}

/// A ring of the kernel's, mapped: two queues of indices and results, and the requests themselves.
#[derive(Debug)]
struct Ring {
    fd: OwnedFd,
    queues: Shared,
    requests: Shared,
    submitted: io_sqring_offsets,
    completed: io_cqring_offsets,
}

impl Ring {
    fn new() -> Result<Self, Errno> {
        let mut params = io_uring_params::default();
        // SAFETY: the parameters ask for nothing that concerns memory of ours.
        let fd = unsafe { io_uring_setup(READS_MAX as u32, &mut params)? };
        // One mapping for both queues: Linux 5.4.
        if !params.features.contains(IoringFeatureFlags::SINGLE_MMAP) {
            return Err(Errno::NOSYS);
        }
        let (submitted, completed) = (params.sq_off, params.cq_off);
        let indices_end = submitted.array as usize + params.sq_entries as usize * size_of::<u32>();
        let results_end = completed.cqes as usize + params.cq_entries as usize * size_of::<Ended>();
        let queues = Shared::map(&fd, indices_end.max(results_end), IORING_OFF_SQ_RING)?;
        let requests = Shared::map(&fd, params.sq_entries as usize * size_of::<io_uring_sqe>(), IORING_OFF_SQES)?;
        Ok(Self { fd, queues, requests, submitted, completed })
    }

    /// Makes at most [`READS_MAX`] reads, and returns when all that were begun have ended. After an error the ring is of no
    /// use any more.
    fn read(&mut self, file: &File, reads: &mut [Read<'_>]) -> Result<(), Errno> {
        let asked = self.ask(file, reads);
        let (mut begun, mut ended, mut broken) = (0, 0, None);
        loop {
            ended += self.take(reads);
            // The kernel still writes into the buffers of what has begun, whatever else goes wrong.
            if ended == asked || broken.is_some() && ended == begun {
                return broken.map_or(Ok(()), Err);
            }
            if broken.is_some() {
                crate::thread::sleep(PAUSE);
                continue;
            }
            // SAFETY: each request filled by `ask` names a descriptor that `file` keeps open and a buffer that `reads` borrows,
            // and this function returns only when what has begun has ended.
            let entered =
                unsafe { io_uring_enter(&self.fd, asked - begun, asked - ended, IoringEnterFlags::GETEVENTS) };
            match entered {
                Ok(count) => begun += count,
                // No signal comes to the agent's threads, but a debugger may stop them.
                Err(Errno::INTR) => {}
                // No memory for a request now, or results to be taken first: what is on its way ends. With nothing on its way
                // this could go on for ever, and reads one by one need no memory.
                Err(Errno::AGAIN | Errno::BUSY) if begun > ended => {}
                // EAGAIN, EBUSY: see above. EBADF: the program has closed our descriptor; EBADFD, EINVAL, …: should not be.
                Err(errno) => broken = Some(errno),
            }
        }
    }

    /// Puts the reads into the submission queue; how many there are.
    fn ask(&mut self, file: &File, reads: &mut [Read<'_>]) -> u32 {
        let queue = self.submitted;
        let tail = self.queues.word(queue.tail);
        let mask = self.queues.number(queue.ring_mask);
        // Relaxed: nobody else writes it.
        let first = tail.load(Ordering::Relaxed);
        let mut count = 0;
        for (number, read) in reads.iter_mut().enumerate().filter(|(_, read)| !read.is_whole) {
            let at = first.wrapping_add(count) & mask;
            self.requests.put::<io_uring_sqe>(at, request(file, read, number as u64));
            self.queues.word(queue.array + at * size_of::<u32>() as u32).store(at, Ordering::Relaxed);
            count += 1;
        }
        // Release: the kernel sees the requests that the new tail counts.
        tail.store(first.wrapping_add(count), Ordering::Release);
        count
    }

    /// Takes what has ended out of the completion queue; how many that is.
    fn take(&mut self, reads: &mut [Read<'_>]) -> u32 {
        let queue = self.completed;
        let (head, mask) = (self.queues.word(queue.head), self.queues.number(queue.ring_mask));
        // Acquire: the results that the tail counts are there, and so is what was read.
        let tail = self.queues.word(queue.tail).load(Ordering::Acquire);
        let first = head.load(Ordering::Relaxed);
        let count = tail.wrapping_sub(first);
        for step in 0..count {
            let ended = self.queues.ended(queue.cqes, first.wrapping_add(step) & mask);
            let read = &mut reads[ended.number as usize];
            // Negative: an errno.
            read.is_whole = usize::try_from(ended.bytes).is_ok_and(|bytes| bytes == read.out.len());
        }
        // Release: the kernel may use their places again.
        head.store(tail, Ordering::Release);
        count
    }
}

/// `io_uring_cqe`, of which rustix has the longer kind.
#[repr(C)]
struct Ended {
    number: u64,
    bytes: i32,
    flags: u32,
}

fn request(file: &File, read: &mut Read<'_>, number: u64) -> io_uring_sqe {
    let mut request = io_uring_sqe { opcode: IoringOp::Read, fd: file.number(), ..Default::default() };
    request.off_or_addr2.off = read.offset;
    request.addr_or_splice_off_in.addr = io_uring_ptr::new(read.out.as_mut_ptr().cast());
    request.len.len = read.out.len() as u32;
    request.user_data.u64_ = number;
    request
}

/// Memory that the kernel shares with us through a ring. Not with forked children: theirs would be the same.
#[derive(Debug)]
struct Shared {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: an address range, used by whoever has the ring to himself.
unsafe impl Send for Shared {}

impl Shared {
    fn map(fd: &OwnedFd, bytes: usize, offset: u64) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let base = apart::map(bytes, |at, fixed| {
            // SAFETY: a new mapping where nothing is touches no memory that anybody else uses.
            unsafe { rustix::mm::mmap(at, bytes, access, flags | fixed, fd, offset) }
        })?;
        let shared = Self { base: base.cast(), bytes };
        // SAFETY: the advice concerns this mapping and changes no content.
        unsafe { rustix::mm::madvise(base, bytes, Advice::LinuxDontFork)? };
        Ok(shared)
    }

    fn at<T>(&self, offset: u32) -> *mut T {
        assert!(offset as usize + size_of::<T>() <= self.bytes, "outside the ring");
        self.base.wrapping_add(offset as usize).cast()
    }

    /// A number that both sides change.
    fn word(&self, offset: u32) -> &AtomicU32 {
        let word: *mut u32 = self.at(offset);
        // SAFETY: inside the mapping, which lives as long as `self`; the kernel aligns its numbers, and changes them atomically.
        unsafe { AtomicU32::from_ptr(word) }
    }

    /// A number that stays as it is.
    fn number(&self, offset: u32) -> u32 {
        self.word(offset).load(Ordering::Relaxed)
    }

    fn put<T>(&self, at: u32, value: T) {
        let place: *mut T = self.at(at * size_of::<T>() as u32);
        // SAFETY: inside the mapping; the kernel reads it when the tail of its queue counts it, which is not yet.
        unsafe { place.write(value) }
    }

    /// What a read was called, and how it ended.
    fn ended(&self, base: u32, at: u32) -> Ended {
        let entry: *const Ended = self.at(base + at * size_of::<Ended>() as u32);
        // SAFETY: inside the mapping, and the kernel has written it: the tail counts it. Numbers, all of them.
        unsafe { entry.read() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping; what pointed into it borrowed `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.cast::<c_void>(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn file_of(blocks: u8) -> File {
        let directory = CString::new(std::env::temp_dir().to_str().unwrap()).unwrap();
        let file = File::create_unnamed(&directory).unwrap();
        for block in 0..blocks {
            assert_eq!(file.write_at(u64::from(block) * 4096, &[block + 1; 4096]).unwrap(), 4096);
        }
        file
    }

    /// More at once than a ring has places, again and again, so that its indices go round.
    #[test]
    fn reads_made_together_bring_what_is_there() {
        let file = file_of(40);
        let mut queue = Queue::default();
        for round in 0..50_usize {
            let mut rooms = vec![[0; 4096]; 2 * READS_MAX + 3];
            let from = |at: usize| (at * 7 + round) % 40;
            let mut reads: Vec<_> =
                rooms.iter_mut().enumerate().map(|(at, room)| Read::new(from(at) as u64 * 4096, room)).collect();
            if !queue.read(&file, &mut reads) {
                assert_eq!(round, 0, "it worked before");
                return println!("skipped: no io_uring here");
            }
            assert!(reads.iter().all(Read::is_whole));
            for (at, room) in rooms.iter().enumerate() {
                assert_eq!(*room, [from(at) as u8 + 1; 4096], "round {round}, read {at}");
            }
        }
    }

    #[test]
    fn what_does_not_come_says_so() {
        let file = file_of(2);
        let mut rooms = [[9; 4096]; 4];
        let [first, cut, behind, last] = &mut rooms;
        let mut reads = [
            Read::new(0, first),
            Read::new(4096 + 2048, cut),
            Read::new(1 << 30, behind),
            Read::new(0, &mut []),
            Read::new(4096, last),
        ];
        if !Queue::default().read(&file, &mut reads) {
            return println!("skipped: no io_uring here");
        }
        assert_eq!(reads.map(|read| read.is_whole()), [true, false, false, true, true]);
        assert_eq!((rooms[0][0], rooms[1][0], rooms[2][0], rooms[3][4095]), (1, 2, 9, 2));
    }

    /// A program may close what it has not opened.
    #[test]
    fn a_ring_that_is_gone_is_not_tried_again() {
        let file = file_of(1);
        let mut queue = Queue::default();
        let (mut one, mut two) = ([0; 4096], [0; 4096]);
        if !queue.read(&file, &mut [Read::new(0, &mut one), Read::new(0, &mut two)]) {
            return println!("skipped: no io_uring here");
        }
        let Made::Ring(ring) = &mut queue.0 else { unreachable!("it has just been used") };
        // A file in the place of the ring: io_uring_enter answers EOPNOTSUPP.
        ring.fd = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
        assert!(!queue.read(&file, &mut [Read::new(0, &mut one), Read::new(0, &mut two)]));
        assert!(matches!(queue.0, Made::Never));
    }
}
