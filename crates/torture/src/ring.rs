//! `io_uring`, by raw system calls: the kernel holds on to two pages and uses them after the call that named them.

use core::ffi::{c_int, c_long};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::calls::{self, Errno, READ_WRITE};
use crate::content::{Key, PAGE};
use crate::kernel_io::{copied, two_pages};
use crate::worker::{Done, Kind, Trouble, Worker, of};

pub(crate) const KINDS: &[Kind] = &[("ring", 2, ring)];

// Numbers of linux/io_uring.h that libc lacks.
const OFFSET_ENTRIES: i64 = 0x1000_0000;
const READ_FIXED: u8 = 4;
const WRITE_FIXED: u8 = 5;
/// A thread of the kernel's does it.
const ASYNC: u8 = 1 << 4;
const WAIT: c_int = 1;
const REGISTER_BUFFERS: c_int = 0;
const UNREGISTER_BUFFERS: c_int = 1;
/// Words of `struct io_uring_params`; the offsets of both queues begin at 10 and 20.
const PARAMETERS: usize = 30;

/// A ring for one request at a time.
struct Ring {
    file: c_int,
    /// Both queues and the requests, each a mapping of a page.
    queues: usize,
    requests: usize,
    parameters: [u32; PARAMETERS],
}

fn call(number: c_long, arguments: [usize; 4]) -> Result<usize, Errno> {
    let [first, second, third, fourth] = arguments;
    // SAFETY: the callers pass what the call is for.
    calls::result(unsafe { libc::syscall(number, first, second, third, fourth, 0, 0) } as isize)
}

impl Ring {
    fn new() -> Result<Self, Errno> {
        let mut parameters = [0; PARAMETERS];
        let file = call(libc::SYS_io_uring_setup, [2, parameters.as_mut_ptr() as usize, 0, 0])? as c_int;
        let map = |offset| {
            let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
            // SAFETY: the kernel chooses the place.
            calls::result(unsafe { libc::mmap(null_mut(), PAGE, READ_WRITE, flags, file, offset) } as isize)
        };
        let (queues, requests) = (map(0)?, map(OFFSET_ENTRIES)?);
        Ok(Self { file, queues, requests, parameters })
    }

    /// A word of the queues: its offset is the parameter `number`.
    fn word(&self, number: usize) -> &AtomicU32 {
        let at = (self.queues + self.parameters[number] as usize) as *mut u32;
        // SAFETY: in the mapping, aligned, and only read and written so.
        unsafe { AtomicU32::from_ptr(at) }
    }

    /// Makes a request of 64 bytes and waits for what comes of it.
    fn ask(&self, operation: u8, flags: u8, file: c_int, at: usize, buffer: u16) -> Result<usize, Errno> {
        let tail = self.word(11);
        let place = tail.load(Ordering::Relaxed) & self.word(12).load(Ordering::Relaxed);
        let request = [
            u64::from(operation) | u64::from(flags) << 8 | (file as u64) << 32,
            0,
            at as u64,
            PAGE as u64,
            0,
            u64::from(buffer),
            0,
            0,
        ];
        // SAFETY: in the mapping, and the kernel does not look before the tail moves.
        unsafe { ((self.requests + place as usize * 64) as *mut [u64; 8]).write_volatile(request) };
        // SAFETY: the array of places lies in the mapping.
        unsafe { self.word(16).as_ptr().wrapping_add(place as usize).write_volatile(place) };
        // Release: the request before its announcement.
        tail.fetch_add(1, Ordering::Release);
        call(libc::SYS_io_uring_enter, [self.file as usize, 1, 0, 0])?;
        self.answer()
    }

    fn answer(&self) -> Result<usize, Errno> {
        let head = self.word(20);
        let place = head.load(Ordering::Relaxed);
        // Acquire: the answer after its announcement.
        while self.word(21).load(Ordering::Acquire) == place {
            match call(libc::SYS_io_uring_enter, [self.file as usize, 0, 1, WAIT as usize]) {
                Ok(_) | Err(libc::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        let at = self.word(25).as_ptr().wrapping_add((place & self.word(22).load(Ordering::Relaxed)) as usize * 4);
        // SAFETY: the second word of an answer, in the mapping.
        let returned = unsafe { at.wrapping_add(2).read_volatile() } as i32;
        // Release: the answer has been read.
        head.store(place.wrapping_add(1), Ordering::Release);
        usize::try_from(returned).map_err(|_| -returned)
    }

    fn end(self) -> Result<(), Errno> {
        calls::unmap(self.queues, PAGE)?;
        calls::unmap(self.requests, PAGE)?;
        calls::close(self.file);
        Ok(())
    }
}

/// A page through a pipe, from and to registered buffers.
fn ring(worker: &mut Worker) -> Done {
    let flags = if worker.random.one_in(2) && !worker.has_own_files { ASYNC } else { 0 };
    let Some([from, to]) = two_pages(worker)?.filter(|[from, to]| from != to) else { return Ok(()) };
    // Linux 6.18 takes a page that was freed lazily for untouched after the kernel has filled a registered buffer in it.
    let key = Key::new(worker.random.word());
    worker.areas[to.0].write(to.1, key);
    let (source, target) = (worker.areas[from.0].at(from.1), worker.areas[to.0].at(to.1));
    let ring = match Ring::new() {
        Ok(ring) => ring,
        // Not built in, or pleat's user mode; forbidden; more than may be locked, on older kernels.
        Err(libc::ENOSYS | libc::EPERM | libc::ENOMEM) => return Ok(()),
        Err(errno) => return Err(Trouble::Refused("io_uring_setup", errno)),
    };
    let parts = [source, target].map(|at| libc::iovec { iov_base: at as *mut _, iov_len: PAGE });
    let register = |what: c_int, parts: usize, count| {
        call(libc::SYS_io_uring_register, [ring.file as usize, what as usize, parts, count])
    };
    match register(REGISTER_BUFFERS, parts.as_ptr() as usize, 2) {
        Ok(_) => {}
        // More than may be locked.
        Err(libc::ENOMEM) => return ring.end().map_err(of("munmap, ring")),
        Err(errno) => return Err(Trouble::Refused("io_uring_register", errno)),
    }
    let ends = calls::pipe().map_err(of("pipe"))?;
    let result = ring
        .ask(WRITE_FIXED, flags, ends[1], source, 0)
        .and_then(|_| ring.ask(READ_FIXED, flags, ends[0], target, 1))
        .and_then(|bytes| register(UNREGISTER_BUFFERS, 0, 0).map(|_| bytes));
    ends.into_iter().for_each(calls::close);
    ring.end().map_err(of("munmap, ring"))?;
    match result {
        Ok(PAGE) => copied(worker, from, to),
        Ok(bytes) => Err(Trouble::Other("a short answer of a ring", bytes as u64)),
        Err(errno) => Err(Trouble::Refused("a ring's request", errno)),
    }
}
