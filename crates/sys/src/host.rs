//! What `pleat run` and `pleat doctor` ask of the kernel and no library offers safely: shared files of atomics, a
//! trial of userfaultfd, file capabilities. Not for the agent, which has its own ways.

use core::mem::size_of;
use core::time::Duration;

use alloc::vec::Vec;

use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, UserfaultfdFlags};
pub use rustix::process::Signal;
use rustix::process::{Pid, PidfdFlags};

use crate::action::Action;
use crate::uffd::{Device, Uffd};

/// A type that may lie in memory shared with other processes.
///
/// # Safety
/// Every byte pattern is a valid value, all-zeros included; every field is an atomic number (nothing is ever borrowed
/// as plain data); no padding matters, no pointer is inside, and dropping it does nothing.
pub unsafe trait Shared: Sync + 'static {}

/// A memfd that holds one `T`, mapped for as long as this process lives.
#[derive(Debug)]
pub struct SharedFile<T: Shared> {
    file: OwnedFd,
    content: &'static T,
}

impl<T: Shared> SharedFile<T> {
    /// A new file of zeros. Frames come with the first access, as for any memory.
    pub fn create(name: &core::ffi::CStr) -> Result<Self, Errno> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, size_of::<T>() as u64)?;
        // A file that another process makes shorter would turn our next read into SIGBUS.
        rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that anybody else uses.
        let mapping = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(core::ptr::null_mut(), size_of::<T>(), access, MapFlags::SHARED, &file, 0)?
        };
        // SAFETY: the mapping is `size_of::<T>()` long and page-aligned (more than any `T` of atomics asks for), it is
        // never unmapped, a seal keeps the file from shrinking, and `Shared` promises that any content is valid
        // and that writes by other processes meet atomics only.
        let content = unsafe { &*mapping.cast::<T>() };
        Ok(Self { file, content })
    }

    /// The number of the file descriptor, for a path below `/proc/PID/fd`.
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// What the file holds.
    pub fn content(&self) -> &'static T {
        self.content
    }
}

/// A process that stays the same one even when its number is used again.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// Opens the process that has this number now.
    pub fn open(pid: u32) -> Result<Self, Errno> {
        let pid = Pid::from_raw(pid as i32).ok_or(Errno::SRCH)?;
        Ok(Self(rustix::process::pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Ends it with SIGKILL.
    pub fn kill(&self) -> Result<(), Errno> {
        rustix::process::pidfd_send_signal(&self.0, Signal::KILL)
    }
}

/// Waits until one of the descriptors of these numbers is readable or its other end is gone, at most for `limit`; which of
/// them is the first. One that is not open counts as such.
pub fn wait_for_any(numbers: impl Iterator<Item = i32>, limit: Option<Duration>) -> Option<usize> {
    // SAFETY: of a number that is not open poll says so, and nothing is done with one that is but to look at it.
    let borrow = |number| unsafe { BorrowedFd::borrow_raw(number) };
    let borrowed: Vec<BorrowedFd<'_>> = numbers.map(borrow).collect();
    let mut fds: Vec<PollFd<'_>> = borrowed.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit = limit.map(crate::clock::timespec);
    // INTR: as if the time were over.
    let ready = rustix::event::poll(&mut fds, limit.as_ref()).unwrap_or(0);
    (ready > 0).then(|| fds.iter().position(|fd| !fd.revents().is_empty())).flatten()
}

/// From now on this signal, sent to a thread of this process, ends the call in which the thread waits (EINTR), and does nothing else.
pub fn interrupt_by(signal: Signal) -> Result<(), Errno> {
    extern "C" fn do_nothing(_signal: i32) {}
    crate::action::set(signal.as_raw() as u64, Some(Action::of(do_nothing as *const () as u64, 0))).map(|_| ())
}

/// Closes one that nobody owns. Where it is not open nothing happens.
fn close(number: u32) {
    // SAFETY: by the caller's word nobody owns it.
    unsafe { rustix::io::close(number.cast_signed()) };
}

/// Descriptors below this are closed one by one where the kernel does not close a range.
const FEW: u32 = 4096;

/// Closes this process's descriptors from this number on, but for those. Nobody in it may own, or use, one of the others.
pub fn close_from(number: u32, kept: &[i32]) {
    let mut kept: Vec<u32> = kept.iter().map(|kept| kept.cast_unsigned()).filter(|kept| *kept >= number).collect();
    kept.sort_unstable();
    let firsts = core::iter::once(number).chain(kept.iter().map(|kept| kept + 1));
    let gaps = firsts.zip(kept.iter().copied().chain([u32::MAX]));
    for (first, end) in gaps.filter(|(first, end)| first < end) {
        let range = [first as usize, end as usize - 1, 0, 0, 0, 0];
        // SAFETY: takes three numbers.
        let closed = unsafe { crate::arch::syscall(crate::arch::number::CLOSE_RANGE, range) };
        if crate::thread::errno(closed).is_err() {
            // A filter may refuse what is newer than it.
            (first..end.min(FEW)).for_each(close);
        }
    }
}

/// Makes a copy of this process, which has not made a thread yet: that would not be there, and what it held would be held for ever. Those that others
/// have made in it (an agent of a run around this one, a profiler) hold nothing of ours; libc looks after its own locks. `None` in the copy; here its process id.
pub fn copy_process() -> Result<Option<u32>, Errno> {
    unsafe extern "C" {
        safe fn fork() -> i32;
    }
    match fork() {
        // There are too many processes, or there is no memory.
        ..0 => Err(Errno::AGAIN),
        0 => Ok(None),
        process => Ok(Some(process.cast_unsigned())),
    }
}

/// How a userfaultfd was got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The system call: `CAP_SYS_PTRACE` or `vm.unprivileged_userfaultfd=1`; user-mode-only needs nothing.
    SystemCall,
    /// `/dev/userfaultfd`, by file permission.
    Device,
}

/// Opens a userfaultfd that serves kernel-mode faults too, asks for its features, and closes it again.
pub fn try_userfaultfd() -> Result<(Way, u64), Errno> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    // SAFETY: nothing is registered with the descriptor, so no memory is affected; it is closed when dropped.
    let by_call = unsafe { rustix::mm::userfaultfd(flags) };
    match by_call {
        Ok(file) => Ok((Way::SystemCall, offer(&file, 0)?)),
        // EPERM: no privilege. EACCES: a security module. ENOSYS: not built in, or a seccomp filter that hides it.
        Err(errno) => match Device::open().and_then(|device| device.make()) {
            Ok(file) => Ok((Way::Device, offer(&file, 0)?)),
            Err(_) => Err(errno),
        },
    }
}

/// Whether a userfaultfd of the full kind accepts these features.
pub fn accepts_features(features: u64) -> Result<(), Errno> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    // SAFETY: as in `try_userfaultfd`.
    let file = match unsafe { rustix::mm::userfaultfd(flags) } {
        Ok(file) => Uffd::adopt(file),
        Err(_) => Device::open()?.make()?,
    };
    file.enable(features)
}

/// Features of a userfaultfd that serves faults of user mode only, which everybody may open.
pub fn try_user_mode_only() -> Result<u64, Errno> {
    // UFFD_USER_MODE_ONLY, include/uapi/linux/userfaultfd.h; rustix has no name for it.
    let user_mode_only = UserfaultfdFlags::from_bits_retain(1);
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK | user_mode_only;
    // SAFETY: as in `try_userfaultfd`.
    let file = unsafe { rustix::mm::userfaultfd(flags)? };
    offer(&file, 0)
}

/// Whether the file gives capabilities to those who run it. Files that cannot have any do not.
pub fn has_file_capabilities(path: &core::ffi::CStr) -> bool {
    let mut value = [0_u8; 64];
    // ENODATA: none. ENOTSUP: a file system without attributes. ERANGE: more than 64 bytes, which no version has.
    rustix::fs::getxattr(path, c"security.capability", &mut value[..]).is_ok_and(|bytes| bytes > 0)
}

/// `struct uffdio_api`.
#[repr(C)]
#[expect(clippy::struct_field_names, reason = "the names of the kernel's header")]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// The handshake: the features the kernel has, if it accepts those asked for.
fn offer(file: &impl AsFd, features: u64) -> Result<u64, Errno> {
    const UFFD_API: u64 = 0xaa;
    const UFFDIO_API: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Api>(0xaa, 0x3f);
    let mut api = Api { api: UFFD_API, features, ioctls: 0 };
    // SAFETY: UFFDIO_API reads and writes one `struct uffdio_api`, which `Api` mirrors.
    let request = unsafe { rustix::ioctl::Updater::<UFFDIO_API, Api>::new(&mut api) };
    // SAFETY: the request above matches the descriptor, which is a userfaultfd.
    unsafe { rustix::ioctl::ioctl(file, request)? };
    Ok(api.features)
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[repr(C)]
    struct Words([AtomicU64; 1000]);
    // SAFETY: nothing but atomics.
    unsafe impl Shared for Words {}

    #[test]
    fn a_shared_file_holds_zeros_and_can_be_opened_by_number() {
        let file = SharedFile::<Words>::create(c"words").unwrap();
        assert_eq!(file.content().0[999].load(Relaxed), 0);
        file.content().0[999].store(u64::from_le_bytes(*b"someword"), Relaxed);
        let bytes = std::fs::read(format!("/proc/self/fd/{}", file.descriptor())).unwrap();
        assert_eq!(&bytes[7992..], b"someword");
    }

    #[test]
    fn descriptors_are_closed_but_for_some() {
        let is_open = |number: i32| std::fs::exists(format!("/proc/self/fd/{number}")).unwrap();
        let words = SharedFile::<Words>::create(c"closed").unwrap();
        // Far from those of the tests beside this one.
        let above: Vec<i32> = (900..904)
            .map(|at| {
                let lent = rustix::io::fcntl_dupfd_cloexec(&words.file, at).unwrap();
                let number = lent.as_raw_fd();
                core::mem::forget(lent);
                number
            })
            .collect();
        assert_eq!(above, [900, 901, 902, 903]);
        close_from(900, &[902, 900, 3]);
        assert_eq!(above.iter().map(|number| is_open(*number)).collect::<Vec<_>>(), [true, false, true, false]);
        close_from(900, &[]);
        assert_eq!(above.iter().map(|number| is_open(*number)).collect::<Vec<_>>(), [false; 4]);
    }

    #[test]
    fn capabilities_of_a_plain_file() {
        assert!(!has_file_capabilities(c"/proc/self/exe"));
        assert!(!has_file_capabilities(c"/no/such/file"));
    }

    #[test]
    fn some_userfaultfd_answers() {
        match try_user_mode_only() {
            Ok(features) => assert_ne!(features, 0),
            Err(errno) => println!("skipped: a user-mode-only userfaultfd ({errno})"),
        }
    }
}
