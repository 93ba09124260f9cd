//! This process and its neighbours, through /proc. What it says of memory is asked of the calling thread: the main one may have
//! ended before the others (`pthread_exit`), and then says that there is none.

use alloc::vec::Vec;
use core::ffi::{CStr, c_ulong};

use page::{ByteCount, PAGE_BYTES, PageIndex};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::fs::{Access, FileType, Mode, OFlags, SealFlags, Timespec};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::arch::{self, number};
use crate::file::Identity;
use crate::host::Shared;
use crate::kernel::PageRange;
use crate::proc_files::{Stat, field_of_status};
use crate::{Area, Errno, apart, maps, thread};

fn open(path: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// Maps the file at `path`, which another process has made for a `T`, for good.
pub fn open_shared<T: Shared>(path: &CStr) -> Result<&'static T, Errno> {
    let mapping = map_shared(path)?;
    // SAFETY: the mapping is as long as a `T`, page-aligned, and never undone; its maker has sealed the file against
    // shrinking; `Shared` promises that any content is valid and that all access is atomic.
    Ok(unsafe { &*mapping })
}

/// The same for a descriptor of the file. `PERM`: it is not sealed.
pub fn adopt_shared<T: Shared>(file: &OwnedFd) -> Result<&'static T, Errno> {
    if !rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
        return Err(Errno::PERM);
    }
    let mapping = map_file(file)?;
    // SAFETY: as above.
    Ok(unsafe { &*mapping })
}

/// The same for a visit, behind which nothing is mapped any more.
pub fn visit_shared<T: Shared>(path: &CStr, visit: impl FnOnce(&T)) -> Result<(), Errno> {
    let mapping = map_shared(path)?;
    // SAFETY: as above, until the visit ends.
    visit(unsafe { &*mapping });
    // SAFETY: what was mapped above, to which no reference is left.
    unsafe { rustix::mm::munmap(mapping.cast_mut().cast(), size_of::<T>()) }
}

fn map_shared<T: Shared>(path: &CStr) -> Result<*const T, Errno> {
    map_file(&open(path, OFlags::RDWR)?)
}

fn map_file<T: Shared>(file: &OwnedFd) -> Result<*const T, Errno> {
    if rustix::fs::fstat(file)?.st_size != size_of::<T>() as i64 {
        return Err(Errno::INVAL);
    }
    let mapping = apart::map(size_of::<T>(), |at, fixed| {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where nothing is touches no memory that anybody else uses.
        unsafe { rustix::mm::mmap(at, size_of::<T>(), access, MapFlags::SHARED | fixed, file, 0) }
    })?;
    Ok(mapping.cast())
}

/// Writes to the standard error of the program, which is not this thread's: bare threads have descriptors of their own.
/// Says whether it could be written. Nobody who does not read holds us up.
pub fn write_to_standard_error(text: &[u8]) -> bool {
    if standard_error().is_some_and(|own| write_at_once(&own, text)) {
        return true;
    }
    // A terminal. The process's directory is that of its first thread, and so are the descriptors there. NONBLOCK: a FIFO
    // without a reader.
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOCTTY | OFlags::NONBLOCK;
    let mut path = [0; 48];
    crate::thread::decimal_path(b"/proc/", crate::thread::process_id(), b"/fd/2\0", &mut path)
        .and_then(|path| open(path, flags).ok())
        .is_some_and(|standard_error| rustix::io::write(&standard_error, text).is_ok())
}

/// Where the standard error of the process leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StandardError {
    /// Nowhere: /dev/null.
    Null,
    /// To a terminal, at which somebody sits.
    Terminal(Identity),
    /// To a file, a pipe or a socket.
    File(Identity),
}

/// `None` if it has none, or that cannot be told.
pub fn standard_error_leads_to() -> Option<StandardError> {
    let null = rustix::fs::makedev(1, 3);
    let stat = rustix::fs::stat(c"/proc/self/fd/2").ok()?;
    let identity = (stat.st_dev, stat.st_ino);
    Some(match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice if stat.st_rdev == null => StandardError::Null,
        FileType::CharacterDevice => StandardError::Terminal(identity),
        _ => StandardError::File(identity),
    })
}

/// The program's own descriptor: what the program writes to a file then follows our line, and a pipe or a socket may be
/// another user's.
fn standard_error() -> Option<OwnedFd> {
    let own = rustix::process::Pid::from_raw(crate::thread::process_id() as i32)?;
    let own = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).ok()?;
    rustix::process::pidfd_getfd(own, 2, rustix::process::PidfdGetfdFlags::empty()).ok()
}

/// Writes where that needs no wait. A file never holds its writer up, and may not know of such writes.
fn write_at_once(own: &OwnedFd, text: &[u8]) -> bool {
    let is_file =
        rustix::fs::fstat(own).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    let written = if is_file {
        rustix::io::write(own, text)
    } else {
        rustix::io::pwritev2(own, &[rustix::io::IoSlice::new(text)], u64::MAX, rustix::io::ReadWriteFlags::NOWAIT)
    };
    written.is_ok()
}

/// When this process started, in clock ticks after boot: field 22 of /proc/self/stat.
pub fn start_ticks() -> Option<u64> {
    field_of_stat(22)
}

/// When the process that /proc knows by this id started.
pub fn start_ticks_of(pid: u32) -> Option<u64> {
    let mut path = [0; 48];
    let path = crate::thread::decimal_path(b"/proc/", pid, b"/stat\0", &mut path)?;
    Stat::read(open(path, OFlags::RDONLY).ok()?)?.field(22)
}

/// Where /proc shows what another process has open.
pub fn descriptor_path(pid: u32, descriptor: u32, out: &mut [u8; 32]) -> Option<&CStr> {
    let mut directory = [0; 32];
    let directory = crate::thread::decimal_path(b"/proc/", pid, b"/fd/\0", &mut directory)?;
    crate::thread::decimal_path(directory.to_bytes(), descriptor, b"\0", out)
}

/// By how many clock ticks start times in /proc look later to this process than to one that has no namespace of times of its own
/// (`unshare --time`). `None` where that cannot be told, or is no whole number.
pub fn start_ticks_ahead() -> Option<i64> {
    let namespace = |path: &CStr| rustix::fs::stat(path).ok().map(|stat| stat.st_ino);
    // The offsets are those that the next child gets; who has asked for others and not forked yet is not there himself.
    if namespace(c"/proc/self/ns/time") != namespace(c"/proc/self/ns/time_for_children") {
        return None;
    }
    let mut text = [0; 256];
    match open(c"/proc/self/timens_offsets", OFlags::RDONLY) {
        Ok(file) => {
            let bytes = rustix::io::read(file, &mut text).ok()?;
            ticks_of_offsets(&text[..bytes])
        }
        // Before Linux 5.5 there are none.
        Err(Errno::NOENT) => Some(0),
        Err(_) => None,
    }
}

/// The line is `boottime`, seconds, nanoseconds. /proc counts a hundred ticks a second, whatever the kernel's own are.
fn ticks_of_offsets(text: &[u8]) -> Option<i64> {
    const TICK_NS: i64 = 10_000_000;
    let mut words = core::str::from_utf8(text).ok()?.split_ascii_whitespace();
    words.find(|word| *word == "boottime")?;
    let mut number = || words.next()?.parse::<i64>().ok();
    let (seconds, ns) = (number()?, number()?);
    (ns % TICK_NS == 0).then_some(seconds * 100 + ns / TICK_NS)
}

/// The namespace that this process's id is of: the same number for all that live in it.
pub fn id_namespace() -> Option<u64> {
    rustix::fs::stat(c"/proc/self/ns/pid").ok().map(|stat| stat.st_ino)
}

/// Whether this process's parent lives in another namespace of process ids, as that of the first in a new one does.
pub fn is_strange_to_its_parent() -> bool {
    rustix::process::getppid().is_none()
}

/// This process's id as /proc has it, which may be of another namespace than our own.
pub fn id_in_proc() -> Option<u32> {
    Stat::read(open(c"/proc/self/stat", OFlags::RDONLY).ok()?)?.id()?.try_into().ok()
}

/// The number of execve, for who makes the call by libc.
pub const EXECVE: core::ffi::c_long = number::EXECVE as core::ffi::c_long;

/// Whether this thread may do what root may in its user namespace (`CAP_SYS_ADMIN`).
pub(crate) fn is_administrator() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Does something without `CAP_SYS_ADMIN`, which this thread has again behind it.
pub fn without_administration<T>(what: impl FnOnce() -> T) -> T {
    let before =
        rustix::thread::capabilities(None).ok().filter(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    let Some(before) = before else { return what() };
    let without = CapabilitySets { effective: before.effective.difference(CapabilitySet::SYS_ADMIN), ..before };
    let _ = rustix::thread::set_capabilities(None, without);
    let done = what();
    let _ = rustix::thread::set_capabilities(None, before);
    done
}

/// That of ioctl.
pub const IOCTL: core::ffi::c_long = number::IOCTL as core::ffi::c_long;

/// That of execveat.
pub const EXECVEAT: core::ffi::c_long = number::EXECVEAT as core::ffi::c_long;

/// That of exit(2), which ends a thread.
pub const EXIT: core::ffi::c_long = number::EXIT as core::ffi::c_long;

/// That of `exit_group`.
pub const EXIT_GROUP: core::ffi::c_long = number::EXIT_GROUP as core::ffi::c_long;

/// unshare(2), for this thread.
pub fn unshare(flags: usize) -> Result<(), Errno> {
    // SAFETY: takes a number; no memory is unshared but that of a process with one thread.
    crate::thread::errno(unsafe { arch::syscall(number::UNSHARE, [flags, 0, 0, 0, 0, 0]) }).map(|_| ())
}

/// Namespaces, as clone, unshare and setns name them: of users, and of networks.
pub const NEWUSER: usize = 0x1000_0000;
/// The same.
pub const NEWNET: usize = 0x4000_0000;

/// setns(2), for this thread.
pub fn enter_namespace(descriptor: i32, kinds: usize) -> Result<(), Errno> {
    // SAFETY: takes numbers.
    crate::thread::errno(unsafe { arch::syscall(number::SETNS, [descriptor as usize, kinds, 0, 0, 0, 0]) }).map(|_| ())
}

/// Whether this process may read a file, as far as it can see it.
pub fn is_readable(path: &CStr) -> bool {
    rustix::fs::access(path, Access::READ_OK).is_ok()
}

/// Anonymous memory of this process that is resident now.
pub fn resident_anonymous() -> Option<ByteCount> {
    crate::proc_files::resident_anonymous(open(c"/proc/thread-self/statm", OFlags::RDONLY).ok()?)
}

unsafe extern "C" {
    /// Of libc, which looks it up in what the loader keeps.
    fn getauxval(kind: c_ulong) -> c_ulong;
}

/// What the kernel has told the program when it was executed (`linux/auxvec.h`).
pub fn auxiliary_value(kind: c_ulong) -> u64 {
    // SAFETY: takes a number.
    unsafe { getauxval(kind) }
}

/// Private memory of this process that may be written, resident or not.
pub fn writable() -> Option<ByteCount> {
    crate::proc_files::writable(open(c"/proc/thread-self/statm", OFlags::RDONLY).ok()?)
}

/// All that this process has mapped, and what of it limits count as data (`VmSize` and `VmData` of /proc/PID/status).
pub fn mapped() -> Option<[ByteCount; 2]> {
    let mut text = [0; 4096];
    let status = open(c"/proc/thread-self/status", OFlags::RDONLY).ok()?;
    let length = rustix::io::pread(status, &mut text, 0).ok()?;
    let text = text[..length].utf8_chunks().next()?.valid();
    let [all, data] = ["VmSize", "VmData"].map(|key| crate::proc_files::bytes_of_line(text, key));
    Some([all?, data?])
}

/// The most that has been resident in this process so far, file pages included. For any thread: it needs no descriptor.
pub fn peak_resident() -> ByteCount {
    const SELF: usize = 0;
    /// Of the words of `struct rusage`: its fifth is the peak in KiB.
    const WORDS: usize = 18;
    let mut usage = [0_u64; WORDS];
    // SAFETY: writes a `struct rusage`, for which there is room.
    let result =
        unsafe { arch::syscall(number::GETRUSAGE, [SELF, usage.as_mut_ptr().expose_provenance(), 0, 0, 0, 0]) };
    ByteCount(if result == 0 { usage[4] << 10 } else { 0 })
}

/// Whether nothing of this range is resident, as far as its beginning tells. For any thread, as above.
pub fn is_empty(start: usize, bytes: usize) -> bool {
    const LOOK_PAGES: usize = 256;
    let pages = bytes.div_ceil(PAGE_BYTES).min(LOOK_PAGES);
    let mut resident = [0_u8; LOOK_PAGES];
    let words = [start, pages * PAGE_BYTES, resident.as_mut_ptr().expose_provenance(), 0, 0, 0];
    // SAFETY: writes a byte for each page, for which there is room.
    let result = unsafe { arch::syscall(number::MINCORE, words) };
    result == 0 && resident.iter().all(|page| page & 1 == 0)
}

/// A word of this process's memory, brought in if it is with us; `None` where there is none, or a sandbox forbids the call.
pub(crate) fn read_word(address: u64) -> Option<u64> {
    let mut word = 0_u64;
    let (to, from) = ([&raw mut word as usize, 8], [address as usize, 8]);
    // By the calling thread: a main thread that has ended has no memory.
    let process = crate::thread::thread_id() as usize;
    // SAFETY: writes eight bytes to `word`, which lives; what it reads it reads as another process would.
    let read = unsafe {
        arch::syscall(number::PROCESS_VM_READV, [process, to.as_ptr() as usize, 1, from.as_ptr() as usize, 1, 0])
    };
    (read == 8).then_some(word)
}

/// Visits the mappings of this process by address. For any thread, the program's too: it takes no lock, and its memory is
/// its own.
pub fn mappings(visit: &mut dyn FnMut(crate::kernel::Mapping)) -> Result<(), Errno> {
    let scratch = Area::reserve(maps::BUFFER_BYTES)?;
    // SAFETY: memory that nobody else knows, and that lives as long as `scratch`.
    let buffer = unsafe { core::slice::from_raw_parts_mut(scratch.base(), scratch.bytes()) };
    maps::visit(open(c"/proc/thread-self/maps", OFlags::RDONLY)?, buffer, visit)
}

/// The mapping that an address of this process lies in.
pub fn mapping_at(address: u64) -> Result<PageRange, Errno> {
    let page = PageIndex::containing(address);
    maps::range_from(open(c"/proc/thread-self/maps", OFlags::RDONLY)?, page).or_else(|_| {
        // Before Linux 6.11 all must be read.
        let mut found = Err(Errno::FAULT);
        mappings(&mut |mapping| {
            if mapping.range.contains(page) {
                found = Ok(mapping.range);
            }
        })?;
        found
    })
}

/// Where libraries keep their data: see [`crate::maps::library_memory`]. For the main thread: of the two links to ourselves proot, a
/// tracer that looks paths up in its tracee's place, knows this one only, and leads by the other to its own.
pub fn library_memory(program: u64) -> Result<Vec<PageRange>, Errno> {
    maps::library_memory(open(c"/proc/self/maps", OFlags::RDONLY)?, program, heap_end()?)
}

/// Where the heap ends.
pub(crate) fn heap_end() -> Result<u64, Errno> {
    // SAFETY: asks.
    thread::errno(unsafe { arch::syscall(number::BRK, [0; 6]) }).map(|end| end as u64)
}

/// Whether a process, or a thread, of this id exists.
pub fn process_exists(pid: u32) -> bool {
    rustix::process::Pid::from_raw(pid as i32)
        .is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// A process, whatever becomes of its number.
#[derive(Debug)]
pub struct Life(OwnedFd);

impl Life {
    /// That of process `pid`, which exists or is waited for.
    pub fn of(pid: u32) -> Result<Self, Errno> {
        let pid = rustix::process::Pid::from_raw(pid as i32).ok_or(Errno::SRCH)?;
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).map(Self)
    }

    /// Whether it has ended, waited for or not.
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        matches!(rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
    }
}

/// Threads of this process: the twentieth field of /proc/self/stat.
pub fn thread_count() -> Option<u32> {
    field_of_stat(20)?.try_into().ok()
}

/// Whether this thread is the only one that is no bare one, as far as can be told.
pub fn is_alone() -> bool {
    let Some(bare) = thread::bare_count() else { return false };
    // Another one may take the place of one of them meanwhile.
    thread_count() == Some(bare + 1) && thread::bare_count() == Some(bare)
}

/// With what the main thread of this process has ended, if `others` threads are all that is left of it.
pub fn ended_beside(others: u32) -> Option<u8> {
    let stat = open(c"/proc/self/stat", OFlags::RDONLY).ok().and_then(Stat::read)?;
    crate::proc_files::ended_beside(&stat, others)
}

/// Whether another process traces this one's main thread, as far as can be seen from here.
pub fn is_traced() -> bool {
    let mut text = [0; PAGE_BYTES];
    let status = open(c"/proc/self/status", OFlags::RDONLY).and_then(|status| rustix::io::read(status, &mut text[..]));
    field_of_status(&text[..status.unwrap_or(0)], b"TracerPid:").is_some_and(|tracer| tracer != b"0")
}

fn field_of_stat(number: usize) -> Option<u64> {
    Stat::read(open(c"/proc/self/stat", OFlags::RDONLY).ok()?)?.field(number)
}

/// Descriptors that the agent may have at once: a dozen of its own, and those of its ancestors.
const DESCRIPTORS_WANTED: u64 = 256;

/// `struct rlimit64`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
struct DescriptorLimit {
    current: u64,
    maximum: u64,
}

impl DescriptorLimit {
    /// That of a process, 0 for this one, which is set to `new`.
    fn of(process: u32, new: Option<Self>) -> Result<Self, Errno> {
        const RLIMIT_NOFILE: usize = 7;
        let mut before = Self::default();
        let new = new.as_ref().map_or(0, |new| core::ptr::from_ref(new) as usize);
        let arguments = [process as usize, RLIMIT_NOFILE, new, &raw mut before as usize, 0, 0];
        // SAFETY: null or a live limit, and room for one.
        crate::thread::errno(unsafe { crate::arch::syscall(number::PRLIMIT, arguments) }).map(|_| before)
    }
}

/// A limit on descriptors that has been raised: what it was, and what it is now.
#[derive(Clone, Debug)]
pub struct RaisedLimit {
    before: DescriptorLimit,
    now: DescriptorLimit,
}

/// Lets this process have more descriptors for a moment, if it may have few only: on a stand-in its program. The limit is that of all its
/// threads, the table that it counts in is the agent's own.
pub fn raise_descriptor_limit() -> Option<RaisedLimit> {
    raise_descriptor_limit_of(crate::thread::program_of_stand_in().unwrap_or(0))
}

/// The same of a process, 0 for this one.
pub(crate) fn raise_descriptor_limit_of(process: u32) -> Option<RaisedLimit> {
    let before = DescriptorLimit::of(process, None).ok()?;
    if before.current >= DESCRIPTORS_WANTED {
        return None;
    }
    let wanted = DescriptorLimit { current: DESCRIPTORS_WANTED, maximum: before.maximum.max(DESCRIPTORS_WANTED) };
    // The hard limit is raised with CAP_SYS_RESOURCE only; without it there is what it allows.
    let tries = [wanted, DescriptorLimit { current: before.maximum, maximum: before.maximum }];
    let now = tries.into_iter().find(|limit| DescriptorLimit::of(process, Some(*limit)).is_ok())?;
    Some(RaisedLimit { before, now })
}

impl RaisedLimit {
    /// Puts it back, unless the program has set another meanwhile.
    pub fn restore(self) {
        let process = crate::thread::program_of_stand_in().unwrap_or(0);
        if DescriptorLimit::of(process, None) == Ok(self.now) {
            // Lowering is always allowed.
            let _ = DescriptorLimit::of(process, Some(self.before));
        }
    }
}

/// The number of prlimit(2), for who makes the call by libc.
pub const PRLIMIT: core::ffi::c_long = number::PRLIMIT as core::ffi::c_long;

/// Bytes that nobody can guess.
pub fn random_key() -> Result<[u8; 32], Errno> {
    let mut key = [0; 32];
    let mut filled = 0;
    while filled < key.len() {
        filled += rustix::rand::getrandom(&mut key[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(key)
}

/// Memory of the machine, whatever a cgroup leaves of it.
pub fn machine_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_a_part_of_what_is_mapped() {
        let held = std::hint::black_box(vec![1_u8; 1 << 26]);
        let [all, data] = mapped().unwrap();
        assert!(all > data && data.0 >= held.len() as u64, "{all:?} {data:?}");
    }

    #[test]
    fn this_process_is_found() {
        assert!(process_exists(std::process::id()));
        assert!(!process_exists(0));
        assert!(thread_count().is_some_and(|threads| threads >= 2));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let life = Life::of(child.id()).unwrap();
        assert!(!life.has_ended());
        child.kill().unwrap();
        while !life.has_ended() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(start_ticks().is_some_and(|ticks| ticks > 0));
        assert!(resident_anonymous().is_some_and(|resident| resident.0 > 4096));
        assert_ne!(random_key(), random_key());
    }

    #[test]
    fn offsets_of_a_time_namespace() {
        let text = b"monotonic           5         0\nboottime       100000         0\n";
        assert_eq!(ticks_of_offsets(text), Some(10_000_000));
        assert_eq!(ticks_of_offsets(b"monotonic 0 0\nboottime -7 990000000\n"), Some(-601));
        assert_eq!(ticks_of_offsets(b"monotonic 0 0\nboottime 7 5\n"), None, "a start may look one tick later");
        assert_eq!(ticks_of_offsets(b""), None);
        assert_eq!(start_ticks_ahead(), Some(0), "tests run in no such namespace");
    }

    #[test]
    fn libraries_have_memory_of_their_own() {
        // libc has zero-filled data on every system that we know.
        assert!(!library_memory(library_memory as *const () as u64).unwrap().is_empty());
    }
}
