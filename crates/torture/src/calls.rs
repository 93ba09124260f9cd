//! System calls on addresses. Whoever passes a range of memory owns it: it is of an area, of the heap, or of a mapping
//! of its own, and nothing in it is ever borrowed.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

pub(crate) type Errno = c_int;

pub(crate) const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
/// Guard regions (Linux 6.13); libc has no names for them.
pub(crate) const MADV_GUARD_INSTALL: c_int = 102;
pub(crate) const MADV_GUARD_REMOVE: c_int = 103;

/// The errno of the call before.
pub(crate) fn errno() -> Errno {
    // SAFETY: returns the address of the calling thread's errno, which is always valid.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: see above.
    unsafe { *place }
}

/// What a system call has returned.
pub(crate) fn result(returned: isize) -> Result<usize, Errno> {
    if returned == -1 { Err(errno()) } else { Ok(returned as usize) }
}

/// What a function of libc has returned that returns no more than 0.
pub(crate) fn done(returned: c_int) -> Result<(), Errno> {
    result(returned as isize).map(|_| ())
}

/// New private anonymous memory; at `at`, over whatever is there, if that is not 0.
pub(crate) fn map(at: usize, bytes: usize, protection: c_int) -> Result<usize, Errno> {
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: what is replaced belongs to the caller.
    result(unsafe { libc::mmap(at as *mut c_void, bytes, protection, flags, -1, 0) } as isize)
}

/// A new mapping of private anonymous memory with further flags, at `at`, where nothing may be.
pub(crate) fn map_fresh(at: usize, bytes: usize, flags: c_int) -> Result<usize, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | flags;
    // SAFETY: nothing is replaced.
    result(unsafe { libc::mmap(at as *mut c_void, bytes, READ_WRITE, flags, -1, 0) } as isize)
}

/// A new mapping of a file that has no name. `sharing` is `MAP_SHARED` or `MAP_PRIVATE`.
pub(crate) fn map_file(bytes: usize, sharing: c_int) -> Result<usize, Errno> {
    let file = memory_file(bytes)?;
    let place = map_part(file, bytes, sharing);
    close(file);
    place
}

/// A file without a name, all zeros.
pub(crate) fn memory_file(bytes: usize) -> Result<c_int, Errno> {
    // SAFETY: the name is a string.
    let file = result(unsafe { libc::memfd_create(c"torture".as_ptr(), libc::MFD_CLOEXEC) } as isize)? as c_int;
    // SAFETY: a descriptor of ours.
    done(unsafe { libc::ftruncate(file, bytes as i64) })?;
    Ok(file)
}

/// A new mapping of the front of a file.
pub(crate) fn map_part(file: c_int, bytes: usize, sharing: c_int) -> Result<usize, Errno> {
    // SAFETY: the kernel chooses the place.
    result(unsafe { libc::mmap(null_mut(), bytes, READ_WRITE, sharing, file, 0) } as isize)
}

pub(crate) fn unmap(at: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the range belongs to the caller.
    done(unsafe { libc::munmap(at as *mut c_void, bytes) })
}

pub(crate) fn protect(at: usize, bytes: usize, protection: c_int) -> Result<(), Errno> {
    // SAFETY: the range belongs to the caller.
    done(unsafe { libc::mprotect(at as *mut c_void, bytes, protection) })
}

pub(crate) fn advise(at: usize, bytes: usize, advice: c_int) -> Result<(), Errno> {
    // SAFETY: the range belongs to the caller.
    done(unsafe { libc::madvise(at as *mut c_void, bytes, advice) })
}

/// mremap; `to` is 0 unless `flags` ask for a place.
pub(crate) fn remap(at: usize, old: usize, new: usize, flags: c_int, to: usize) -> Result<usize, Errno> {
    // SAFETY: both ranges belong to the caller.
    result(unsafe { libc::mremap(at as *mut c_void, old, new, flags, to as *mut c_void) } as isize)
}

pub(crate) fn lock(at: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: locking changes no content.
    done(unsafe { libc::mlock(at as *const c_void, bytes) })
}

pub(crate) fn unlock(at: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: unlocking changes no content.
    done(unsafe { libc::munlock(at as *const c_void, bytes) })
}

/// Moves the end of the heap; where it was.
pub(crate) fn move_break(bytes: isize) -> Result<usize, Errno> {
    // SAFETY: what is given up belongs to the caller.
    result(unsafe { libc::sbrk(bytes) } as isize)
}

/// A pipe: the end to read from, the end to write to.
pub(crate) fn pipe() -> Result<[c_int; 2], Errno> {
    let mut ends = [0; 2];
    // SAFETY: two descriptors fit.
    done(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok(ends)
}

pub(crate) fn close(file: c_int) {
    // SAFETY: a descriptor of the caller's.
    unsafe { libc::close(file) };
}

pub(crate) fn read(file: c_int, at: usize, bytes: usize) -> Result<usize, Errno> {
    // SAFETY: the kernel checks the address; the caller owns what is there.
    result(unsafe { libc::read(file, at as *mut c_void, bytes) })
}

pub(crate) fn write(file: c_int, at: usize, bytes: usize) -> Result<usize, Errno> {
    // SAFETY: the kernel checks the address.
    result(unsafe { libc::write(file, at as *const c_void, bytes) })
}

/// Back to the beginning of a file.
pub(crate) fn rewind(file: c_int) -> Result<usize, Errno> {
    // SAFETY: takes numbers.
    result(unsafe { libc::lseek(file, 0, libc::SEEK_SET) } as isize)
}

/// readv into two places of a page each.
pub(crate) fn read_two(file: c_int, places: [usize; 2], bytes: usize) -> Result<usize, Errno> {
    let parts = places.map(|at| libc::iovec { iov_base: at as *mut c_void, iov_len: bytes });
    // SAFETY: the kernel checks the addresses; the caller owns what is there.
    result(unsafe { libc::readv(file, parts.as_ptr(), 2) })
}

/// Copies within this process by `process_vm_readv` or `process_vm_writev`.
pub(crate) fn copy_by_kernel(from: usize, to: usize, bytes: usize, by_writing: bool) -> Result<usize, Errno> {
    let copy = if by_writing { copy_to_process } else { copy_from_process };
    copy(std::process::id() as libc::pid_t, from, to, bytes)
}

/// `process_vm_readv`.
pub(crate) fn copy_from_process(pid: libc::pid_t, from: usize, to: usize, bytes: usize) -> Result<usize, Errno> {
    let remote = libc::iovec { iov_base: from as *mut c_void, iov_len: bytes };
    let local = libc::iovec { iov_base: to as *mut c_void, iov_len: bytes };
    // SAFETY: the kernel checks both addresses; the caller owns what is written to.
    result(unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) })
}

/// `process_vm_writev`.
pub(crate) fn copy_to_process(pid: libc::pid_t, from: usize, to: usize, bytes: usize) -> Result<usize, Errno> {
    let remote = libc::iovec { iov_base: to as *mut c_void, iov_len: bytes };
    let local = libc::iovec { iov_base: from as *mut c_void, iov_len: bytes };
    // SAFETY: the kernel checks both addresses; the caller owns what is written to.
    result(unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) })
}

/// Waits on the word at `at` while it is `value`, for 50 ms at most.
pub(crate) fn futex_wait(at: usize, value: u32) -> Result<(), Errno> {
    let limit = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel checks the address, and reads there only.
    result(unsafe { libc::syscall(libc::SYS_futex, at, operation, value, &raw const limit) } as isize).map(|_| ())
}

/// Has the kernel write the word at `at`, as it is: a bitwise or with nothing (`FUTEX_OP`).
pub(crate) fn futex_write(at: usize) -> Result<usize, Errno> {
    const OR_NOTHING: c_int = 2 << 28;
    let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel checks the address, and nobody waits there.
    result(unsafe { libc::syscall(libc::SYS_futex, at, operation, 0, 0, at, OR_NOTHING) } as isize)
}

pub(crate) fn sleep_us(us: u64) {
    std::thread::sleep(core::time::Duration::from_micros(us));
}

pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time fits.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Ends this process without any further word.
pub(crate) fn exit(status: c_int) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// fork(2), by libc. The child has this thread only.
pub(crate) fn fork() -> Result<libc::pid_t, Errno> {
    // SAFETY: the child of a process with threads does what libc allows there: system calls on memory of its own, and
    // what glibc makes safe by its fork handlers.
    result(unsafe { libc::fork() } as isize).map(|pid| pid as libc::pid_t)
}

/// Waits for a child, whatever signal its end sends; its wait status.
pub(crate) fn wait(pid: libc::pid_t) -> Result<(libc::pid_t, c_int), Errno> {
    let mut status = 0;
    loop {
        // SAFETY: the status fits.
        match result(unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } as isize) {
            Err(libc::EINTR) => {}
            Ok(pid) => return Ok((pid as libc::pid_t, status)),
            Err(errno) => return Err(errno),
        }
    }
}

pub(crate) fn kill(pid: libc::pid_t, signal: c_int) {
    // SAFETY: sends a signal to a process of ours.
    unsafe { libc::kill(pid, signal) };
}

/// A filter of system calls that allows them all, by seccomp(2) with these flags.
pub(crate) fn allow_all_calls(flags: libc::c_ulong) -> Result<usize, Errno> {
    const RETURN: u16 = 6;
    let mut allow = libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    let program = libc::sock_fprog { len: 1, filter: &raw mut allow };
    // SAFETY: takes numbers.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: a program of one instruction.
    result(
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) } as isize
    )
}
