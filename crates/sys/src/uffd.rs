//! userfaultfd: a thin layer over its ioctls.
//!
//! The crate `userfaultfd` 0.9 has neither MOVE nor fork events with libc-free threads, and loses errno in partial
//! copies (KERNEL-FACTS). Structures and numbers are those of include/uapi/linux/userfaultfd.h.

use page::{PAGE_BYTES, PageCount};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::Errno;
use crate::arch::{self, number};
use crate::kernel::{ForkedMemory, MESSAGES_MAX, Message, PageRange, Partial};
use crate::thread::errno;
use page::PageIndex;

const API: u64 = 0xaa;
const UFFDIO_API: usize = 0xc018_aa3f;
const UFFDIO_REGISTER: usize = 0xc020_aa00;
const UFFDIO_UNREGISTER: usize = 0x8010_aa01;
const UFFDIO_WAKE: usize = 0x8010_aa02;
const UFFDIO_COPY: usize = 0xc028_aa03;
const UFFDIO_ZEROPAGE: usize = 0xc020_aa04;
const UFFDIO_MOVE: usize = 0xc028_aa05;
/// `USERFAULTFD_IOC_NEW` of /dev/userfaultfd.
const IOC_NEW: usize = 0xaa00;
const REGISTER_MODE_MISSING: u64 = 1;
const O_CLOEXEC_NONBLOCK: usize = 0o2_004_000;
/// `UFFD_USER_MODE_ONLY`.
const USER_MODE_ONLY: usize = 1;

/// Features of userfaultfd that pleat uses.
pub mod feature {
    /// Fork is reported and the child keeps its registrations.
    pub const EVENT_FORK: u64 = 1 << 1;
    /// mremap is reported.
    pub const EVENT_REMAP: u64 = 1 << 2;
    /// madvise(DONTNEED, FREE, REMOVE) is reported.
    pub const EVENT_REMOVE: u64 = 1 << 3;
    /// munmap is reported.
    pub const EVENT_UNMAP: u64 = 1 << 6;
    /// Faults name their thread.
    pub const THREAD_ID: u64 = 1 << 8;
    /// `UFFDIO_MOVE` exists (Linux 6.8).
    pub const MOVE: u64 = 1 << 16;
    /// What the agent cannot do without.
    pub const NEEDED: u64 = EVENT_FORK | NEEDED_IN_USER_MODE;
    /// The same where only faults of user mode are served: forks are told by the agent itself.
    pub const NEEDED_IN_USER_MODE: u64 = EVENT_REMAP | EVENT_REMOVE | EVENT_UNMAP | THREAD_ID | MOVE;
}

/// Which faults a userfaultfd serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faults {
    /// Those inside system calls too. Needs a permission.
    All,
    /// Those of the program's own instructions; a system call that meets a missing page gets EFAULT. For everybody.
    OfUserMode,
}

/// Nothing can be mapped below (`vm.mmap_min_addr`), on the machines we know.
const FIRST_PAGE: PageIndex = PageIndex(256);
/// Bits of an address of a program: those of x86-64 and aarch64, the most first.
const ADDRESS_BITS: [u32; 4] = [48, 47, 42, 39];

/// What comes from memory that nobody serves.
#[derive(Debug)]
pub enum Unserved {
    /// A thread, by its own number, waits for a page.
    Fault {
        /// The page.
        page: PageIndex,
        /// The thread.
        thread: u32,
    },
    /// A forked child's memory.
    Child(Uffd),
    /// A layout message; who has sent it goes on.
    Layout,
}

/// What a userfaultfd is called in /proc.
const NAME: &[u8] = b"anon_inode:[userfaultfd]";

/// /dev/userfaultfd. Whoever has it open, or is sent it, may make userfaultfds.
#[derive(Debug)]
pub struct Device(OwnedFd);

impl Device {
    /// Opens it, which its file permissions say who may.
    pub fn open() -> Result<Self, Errno> {
        use rustix::fs::{Mode, OFlags};
        rustix::fs::open(c"/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map(Self)
    }

    /// Takes over what another process has opened and sent.
    pub fn adopt(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// The number of its descriptor.
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Makes a userfaultfd of the memory of this process, which is of no use before somebody [enables](Uffd::enable) it.
    pub fn make(&self) -> Result<Uffd, Errno> {
        let args = [self.number() as usize, IOC_NEW, O_CLOEXEC_NONBLOCK, 0, 0, 0];
        // SAFETY: this ioctl takes flags and returns a descriptor.
        let fd = errno(unsafe { arch::syscall(number::IOCTL, args) })?;
        // SAFETY: the descriptor has just been made and nobody else knows it.
        Ok(Uffd(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }
}

/// An open userfaultfd.
#[derive(Debug)]
pub struct Uffd(OwnedFd);

impl Uffd {
    /// Opens one with `features`, by the system call or else by /dev/userfaultfd.
    pub fn open(features: u64, faults: Faults) -> Result<Self, Errno> {
        let flags = O_CLOEXEC_NONBLOCK | if faults == Faults::OfUserMode { USER_MODE_ONLY } else { 0 };
        // SAFETY: takes flags, returns a descriptor.
        let by_call = unsafe { arch::syscall(number::USERFAULTFD, [flags, 0, 0, 0, 0, 0]) };
        let uffd = match errno(by_call) {
            // SAFETY: the descriptor has just been made and nobody else knows it.
            Ok(fd) => Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
            Err(refused) if faults == Faults::All => {
                Device::open().and_then(|device| device.make()).map_err(|_| refused)?
            }
            Err(refused) => return Err(refused),
        };
        uffd.enable(features)?;
        Ok(uffd)
    }

    /// Opens the one of a managed program.
    pub fn of_program(faults: Faults) -> Result<Self, Errno> {
        let features = match faults {
            Faults::All => feature::NEEDED,
            Faults::OfUserMode => feature::NEEDED_IN_USER_MODE,
        };
        Self::open(features, faults)
    }

    /// The handshake. For the fork events who makes it needs `CAP_SYS_PTRACE`, not whose memory it is of.
    pub fn enable(&self, features: u64) -> Result<(), Errno> {
        let mut api = [API, features, 0];
        self.ioctl(UFFDIO_API, api.as_mut_ptr())
    }

    /// Takes over the descriptor that a fork message brought, or that another process sent.
    pub fn adopt(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// The same from a process that may send anything: `None` if it is no userfaultfd. To read another file might wait for ever.
    pub fn adopt_if_it_is_one(fd: OwnedFd) -> Option<Self> {
        let mut path = [0; 48];
        let path = crate::thread::decimal_path(b"/proc/self/fd/", fd.as_raw_fd() as u32, b"\0", &mut path)?;
        let mut name = [core::mem::MaybeUninit::uninit(); NAME.len() + 1];
        let (name, _) = rustix::fs::readlinkat_raw(rustix::fs::CWD, path, &mut name).ok()?;
        let flags = rustix::fs::fcntl_getfl(&fd).ok()?;
        let is_one = name == NAME && flags.contains(rustix::fs::OFlags::NONBLOCK);
        is_one.then_some(Self(fd))
    }

    /// The number of its descriptor.
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Gives it a number of at least `above`.
    pub fn move_above(&mut self, above: i32) -> Result<(), Errno> {
        self.0 = rustix::io::fcntl_dupfd_cloexec(&self.0, above)?;
        Ok(())
    }

    fn ioctl(&self, request: usize, argument: *mut u64) -> Result<(), Errno> {
        let args = [self.0.as_raw_fd() as usize, request, argument as usize, 0, 0, 0];
        // SAFETY: each caller passes an array of u64 that is the request's structure. What the request does to the
        // address space is for the caller to answer.
        errno(unsafe { arch::syscall(number::IOCTL, args) }).map(|_| ())
    }

    /// Faults in the range arrive here.
    pub fn register(&self, range: PageRange) -> Result<(), Errno> {
        let mut argument = [range.start.address(), range.count().bytes().0, REGISTER_MODE_MISSING, 0];
        self.ioctl(UFFDIO_REGISTER, argument.as_mut_ptr())
    }

    /// The range is a place to move pages to. What is missing in it is no fault of ours: nobody reads this descriptor,
    /// and a program that fills all that is mapped (mlockall past libc) would wait for ever.
    pub fn register_target(&self, range: PageRange) -> Result<(), Errno> {
        const REGISTER_MODE_WP: u64 = 2;
        let mut argument = [range.start.address(), range.count().bytes().0, REGISTER_MODE_WP, 0];
        // INVAL: a processor without write protection, such as aarch64 before Linux 6.10.
        self.ioctl(UFFDIO_REGISTER, argument.as_mut_ptr()).or_else(|_| self.register(range))
    }

    /// Faults in the range are the kernel's again.
    pub fn unregister(&self, range: PageRange) -> Result<(), Errno> {
        let mut argument = [range.start.address(), range.count().bytes().0];
        self.ioctl(UFFDIO_UNREGISTER, argument.as_mut_ptr())
    }

    /// Wakes who waits in the range.
    pub fn wake(&self, range: PageRange) -> Result<(), Errno> {
        let mut argument = [range.start.address(), range.count().bytes().0];
        self.ioctl(UFFDIO_WAKE, argument.as_mut_ptr())
    }

    /// Copies `count` pages at `source` into the holes from `to` on, and wakes who waits there.
    ///
    /// # Safety
    /// `source` is readable for `count` pages.
    pub unsafe fn copy(&self, to: PageIndex, source: *const u8, count: PageCount) -> Partial {
        let mut argument = [to.address(), source as u64, count.bytes().0, 0, 0];
        let result = self.ioctl(UFFDIO_COPY, argument.as_mut_ptr());
        partial(result, argument[4], count)
    }

    /// Moves `count` pages at `source` into the holes from `to` on, and wakes who waits there.
    ///
    /// # Safety
    /// Nobody holds a Rust reference into the source, and its owner agrees to find it missing.
    pub unsafe fn move_pages(&self, to: u64, source: u64, count: PageCount) -> Partial {
        let mut argument = [to, source, count.bytes().0, 0, 0];
        let result = self.ioctl(UFFDIO_MOVE, argument.as_mut_ptr());
        partial(result, argument[4], count)
    }

    /// Whether a layout message is unread or its thread has not run: then the kernel answers `AGAIN` before it looks
    /// at anything else. A zero page of no length is `INVAL` otherwise.
    pub fn layout_is_changing(&self) -> bool {
        let mut argument = [0_u64; 4];
        self.ioctl(UFFDIO_ZEROPAGE, argument.as_mut_ptr()) == Err(Errno::AGAIN)
    }

    /// Whether the address space behind it is gone: its last process has ended or has executed another program.
    /// `probe` is an address that a program can have; it is not touched.
    pub fn is_orphaned(&self, probe: PageIndex) -> bool {
        // Write-protecting what is not registered for it is NOENT; without an address space it is SRCH.
        const UFFDIO_WRITEPROTECT: usize = 0xc018_aa06;
        let mut argument = [probe.address(), PAGE_BYTES as u64, 0];
        self.ioctl(UFFDIO_WRITEPROTECT, argument.as_mut_ptr()) == Err(Errno::SRCH)
    }

    /// Whether faults of this page arrive here; `None` if that cannot be told now, because the layout is changing.
    pub fn is_registered(&self, page: PageIndex) -> Option<bool> {
        // Continuing is for shared memory: INVAL for a registered range of ours, NOENT where nothing is registered.
        const UFFDIO_CONTINUE: usize = 0xc020_aa07;
        let mut argument = [page.address(), PAGE_BYTES as u64, 0, 0];
        match self.ioctl(UFFDIO_CONTINUE, argument.as_mut_ptr()) {
            Err(Errno::INVAL) => Some(true),
            Err(Errno::NOENT) => Some(false),
            _ => None,
        }
    }

    /// Copies one page into the hole `to` and wakes who waits there.
    pub fn fill(&self, to: PageIndex, bytes: &page::PageBytes) -> Result<(), Errno> {
        // SAFETY: a reference to a page is readable for a page.
        let filled = unsafe { self.copy(to, bytes.0.as_ptr(), PageCount(1)) };
        filled.error.map_or(Ok(()), Err)
    }

    /// Makes the hole at `page` one that ends with SIGBUS who touches it, and wakes who waits there.
    pub fn poison(&self, page: PageIndex) -> Result<(), Errno> {
        const UFFDIO_POISON: usize = 0xc020_aa08;
        let mut argument = [page.address(), PAGE_BYTES as u64, 0, 0];
        self.ioctl(UFFDIO_POISON, argument.as_mut_ptr())
    }

    /// The next message, or `None` if there is none.
    pub fn read(&self) -> Option<Message> {
        let mut raw = [RawMessage::default()];
        (self.read_raw(&mut raw) == 1).then(|| decode(raw[0].0)).flatten()
    }

    /// The same for memory that nobody serves any more: what its readers must be told, or ended for.
    pub fn read_unserved(&self) -> Option<Unserved> {
        Some(match self.read()? {
            Message::Fault { page, thread, .. } => Unserved::Fault { page, thread },
            // SAFETY: the message has just brought the descriptor into this process's table, and it is taken once.
            Message::Fork(ForkedMemory(number)) => Unserved::Child(Self(unsafe { OwnedFd::from_raw_fd(number) })),
            Message::Remove(_) | Message::Unmap(_) | Message::Remap { .. } => Unserved::Layout,
        })
    }

    /// Wakes all that wait for a page of this memory: their messages have been read by somebody who has ended since.
    pub fn wake_all(&self) {
        // The kernel refuses a range beyond the last address that there can be, which the processor says.
        for bits in ADDRESS_BITS {
            let range = PageRange { start: FIRST_PAGE, end: PageIndex((1_u64 << bits) / PAGE_BYTES as u64 - 1) };
            if self.wake(range).is_ok() {
                return;
            }
        }
    }

    /// Hands the messages that one call to the kernel brings to `take`; says whether there may be more.
    pub fn read_batch(&self, take: &mut dyn FnMut(Message)) -> bool {
        let mut raw = [RawMessage::default(); MESSAGES_MAX];
        let count = self.read_raw(&mut raw);
        raw[..count].iter().filter_map(|raw| decode(raw.0)).for_each(take);
        count == MESSAGES_MAX
    }

    fn read_raw(&self, raw: &mut [RawMessage]) -> usize {
        // SAFETY: any bytes are valid as words and words as bytes; the length is that of the slice.
        let bytes: &mut [u8] = unsafe { core::slice::from_raw_parts_mut(raw.as_mut_ptr().cast(), size_of_val(raw)) };
        // AGAIN: nothing there. INTR cannot be, for it does not wait. Anything else: nothing to be had.
        rustix::io::read(&self.0, bytes).unwrap_or(0) / size_of::<RawMessage>()
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `struct uffd_msg`: the event and three reserved fields in one word, then three words.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawMessage([u64; 4]);

/// `UFFDIO_COPY` and `UFFDIO_MOVE` answer `AGAIN` after some of the pages, with the bytes done in their last field; the
/// reason comes out when one asks again. A failure at the first page leaves minus errno there.
fn partial(result: Result<(), Errno>, field: u64, count: PageCount) -> Partial {
    match result {
        Ok(()) => Partial { done: count, error: None },
        Err(_) if (field as i64) > 0 => Partial { done: PageCount(field / PAGE_BYTES as u64), error: None },
        Err(error) => Partial { done: PageCount::ZERO, error: Some(error) },
    }
}

/// `UFFD_PAGEFAULT_FLAG_WRITE`.
const FAULT_WRITES: u64 = 1;

fn decode(raw: [u64; 4]) -> Option<Message> {
    let range = |start: u64, end: u64| PageRange {
        start: PageIndex::containing(start),
        end: PageIndex::containing(end + PAGE_BYTES as u64 - 1),
    };
    match raw[0] as u8 {
        0x12 => {
            let is_write = raw[1] & FAULT_WRITES != 0;
            Some(Message::Fault { page: PageIndex::containing(raw[2]), thread: raw[3] as u32, is_write })
        }
        0x13 => Some(Message::Fork(ForkedMemory(raw[1] as i32))),
        0x14 => Some(Message::Remap { from: range(raw[1], raw[1] + raw[3]), to: PageIndex::containing(raw[2]) }),
        0x15 => Some(Message::Remove(range(raw[1], raw[2]))),
        0x16 => Some(Message::Unmap(range(raw[1], raw[2]))),
        _ => None, // A message of a kernel newer than we asked for: none such is enabled.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_results_are_told_apart() {
        let again = Err(Errno::AGAIN);
        assert_eq!(partial(Ok(()), 8192, PageCount(2)).done, PageCount(2));
        assert_eq!(partial(again, 4096, PageCount(2)), Partial { done: PageCount(1), error: None });
        let refused = partial(Err(Errno::EXIST), (-17_i64) as u64, PageCount(2));
        assert_eq!(refused, Partial { done: PageCount::ZERO, error: Some(Errno::EXIST) });
    }

    #[test]
    fn messages_are_decoded() {
        let fault = decode([0x12, 1, 0x5678, 42]);
        assert_eq!(fault, Some(Message::Fault { page: PageIndex(5), thread: 42, is_write: true }));
        let fault = decode([0x12, 4, 0x5678, 42]);
        assert_eq!(fault, Some(Message::Fault { page: PageIndex(5), thread: 42, is_write: false }));
        let unmap = decode([0x16, 0x1000, 0x3000, 0]);
        assert_eq!(unmap, Some(Message::Unmap(PageRange { start: PageIndex(1), end: PageIndex(3) })));
        assert_eq!(decode([0x77, 0, 0, 0]), None);
    }

    /// On the real kernel, where the test may open a userfaultfd.
    #[test]
    fn what_is_registered_is_told_apart() {
        let Ok(uffd) = Uffd::open(feature::MOVE, Faults::All) else {
            println!("skipped: no userfaultfd");
            return;
        };
        let area = crate::Area::reserve(2 * PAGE_BYTES).unwrap();
        let page = PageIndex::containing(area.base() as u64);
        assert_eq!(uffd.is_registered(page), Some(false));
        uffd.register(PageRange::new(page, PageCount(1))).unwrap();
        assert_eq!(uffd.is_registered(page), Some(true));
        assert_eq!(uffd.is_registered(page + PageCount(1)), Some(false));
        assert_eq!(uffd.is_registered(PageIndex(1)), Some(false), "nothing is mapped there");
    }
}
