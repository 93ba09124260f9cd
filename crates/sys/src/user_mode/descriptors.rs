//! What a call's descriptor is of, asked of the kernel from inside the handler of SIGSYS.

use crate::arch::{number, syscall};

/// What [`super::transfers`] tells apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A file or a block device.
    File,
    /// `/dev/zero`, `/dev/urandom` and others that never wait.
    MemoryDevice,
    Pipe,
    /// A Unix socket without borders between messages.
    LocalStream,
    Tcp,
    Other,
}

/// Of an open file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flags {
    pub(super) appends: bool,
    pub(super) is_direct: bool,
    /// It waits for room and for what is to come.
    pub(super) waits: bool,
}

fn call(number: usize, arguments: [usize; 6]) -> isize {
    // SAFETY: each caller's pointers are to live memory of the size that the call writes.
    unsafe { syscall(number, arguments) }
}

/// `None` where there is no such file.
pub(super) fn kind(file: u64) -> Option<Kind> {
    const S_IFMT: u32 = 0o170_000;
    const S_IFIFO: u32 = 0o010_000;
    const S_IFCHR: u32 = 0o020_000;
    const S_IFBLK: u32 = 0o060_000;
    const S_IFREG: u32 = 0o100_000;
    const S_IFSOCK: u32 = 0o140_000;
    // `struct stat` has 144 bytes; the mode is at 24, a device's number at 40.
    let mut words = [0_u64; 18];
    if call(number::FSTAT, [file as usize, words.as_mut_ptr() as usize, 0, 0, 0, 0]) != 0 {
        return None;
    }
    let (mode, device) = (words[3] as u32, words[5]);
    Some(match mode & S_IFMT {
        S_IFREG if is_of_kernel(file) => Kind::Other,
        S_IFREG | S_IFBLK => Kind::File,
        S_IFCHR if device >> 8 & 0xfff == 1 => Kind::MemoryDevice,
        S_IFIFO => Kind::Pipe,
        S_IFSOCK => socket_kind(file),
        _ => Kind::Other,
    })
}

/// Whether a file has no blocks of its own: those of the kernel's (proc, sysfs and others) may wait, or take what is written in one call only.
fn is_of_kernel(file: u64) -> bool {
    /// tmpfs, ramfs and hugetlbfs, which need not have a limit.
    const IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
    // `struct statfs` has 120 bytes, and begins with type, block size and blocks.
    let mut words = [0_u64; 15];
    let answer = call(number::FSTATFS, [file as usize, words.as_mut_ptr() as usize, 0, 0, 0, 0]);
    answer != 0 || words[2] == 0 && !IN_MEMORY.contains(&words[0])
}

const SOL_SOCKET: usize = 1;
const SOL_TCP: usize = 6;

fn socket_kind(file: u64) -> Kind {
    const SO_TYPE: usize = 3;
    const SO_PROTOCOL: usize = 38;
    const SO_DOMAIN: usize = 39;
    const SOCK_STREAM: u32 = 1;
    const IPPROTO_TCP: u32 = 6;
    const AF_UNIX: u32 = 1;
    match [SO_TYPE, SO_DOMAIN, SO_PROTOCOL].map(|which| socket_number(file, which)) {
        [Some(SOCK_STREAM), Some(AF_UNIX), _] => Kind::LocalStream,
        [Some(SOCK_STREAM), _, Some(IPPROTO_TCP)] => Kind::Tcp,
        _ => Kind::Other,
    }
}

/// An option of a socket, and how many bytes it has.
fn socket_option<T: Default>(file: u64, level: usize, which: usize) -> Option<(T, u32)> {
    let (mut value, mut bytes) = (T::default(), size_of::<T>() as u32);
    let place = [&raw mut value as usize, &raw mut bytes as usize];
    let answer = call(number::GETSOCKOPT, [file as usize, level, which, place[0], place[1], 0]);
    (answer == 0).then_some((value, bytes))
}

fn socket_number(file: u64, which: usize) -> Option<u32> {
    socket_option(file, SOL_SOCKET, which).map(|(number, _)| number)
}

/// How much a read of a socket waits for.
pub(super) fn low_water_mark(file: u64) -> u64 {
    const SO_RCVLOWAT: usize = 18;
    socket_number(file, SO_RCVLOWAT).map_or(u64::MAX, u64::from)
}

/// Whether a TCP socket has a protocol of the kernel's on top (TLS), of which what is there to read is no number of bytes.
pub(super) fn has_protocol_on_top(file: u64) -> bool {
    const TCP_ULP: usize = 31;
    socket_option::<[u64; 2]>(file, SOL_TCP, TCP_ULP).is_some_and(|(_, bytes)| bytes > 0)
}

/// Whether poll may tell of an error of a socket that is none: of times and pages that it has been told to give back.
pub(super) fn has_error_queue(file: u64) -> bool {
    const SO_TIMESTAMPING: usize = 37;
    const SO_ZEROCOPY: usize = 60;
    [SO_TIMESTAMPING, SO_ZEROCOPY].iter().any(|which| socket_number(file, *which).is_some_and(|number| number != 0))
}

/// Whether writes to a socket give up some time after they have begun.
pub(super) fn has_send_timeout(file: u64) -> bool {
    const SO_SNDTIMEO: usize = 21;
    socket_option(file, SOL_SOCKET, SO_SNDTIMEO) != Some(([0_u64; 2], 16))
}

fn control(file: u64, command: usize) -> Option<u64> {
    u64::try_from(call(number::FCNTL, [file as usize, command, 0, 0, 0, 0])).ok()
}

pub(super) fn flags(file: u64) -> Option<Flags> {
    const F_GETFL: usize = 3;
    const O_APPEND: u64 = 0o2000;
    const O_NONBLOCK: u64 = 0o4000;
    const O_DIRECT: u64 = 0o40000;
    let flags = control(file, F_GETFL)?;
    let has = |flag| flags & flag != 0;
    Some(Flags { appends: has(O_APPEND), is_direct: has(O_DIRECT), waits: !has(O_NONBLOCK) })
}

/// How much a pipe may hold.
pub(super) fn pipe_bytes(file: u64) -> Option<u64> {
    const F_GETPIPE_SZ: usize = 1032;
    control(file, F_GETPIPE_SZ)
}

/// Whether a write beyond a size would be a signal: one that comes up to it is not.
pub(super) fn has_size_limit() -> bool {
    const RLIMIT_FSIZE: usize = 1;
    let mut limits = [0_u64; 2];
    let answer = call(number::PRLIMIT, [0, RLIMIT_FSIZE, 0, limits.as_mut_ptr() as usize, 0, 0]);
    answer != 0 || limits[0] != u64::MAX
}

/// What a write to a TCP socket would find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    Some,
    None,
    /// An error, which nobody after it is told of, or a signal.
    Broken,
}

const POLLOUT: u64 = 4;

/// `struct pollfd` of who waits for room: a descriptor of four bytes, two of what is asked for, two of what is so.
pub(super) fn wait_for_room(file: u64) -> u64 {
    u64::from(file as u32) | POLLOUT << 32
}

pub(super) fn room(file: u64) -> Room {
    const POLLERR: u64 = 8;
    const POLLHUP: u64 = 0x10;
    const POLLNVAL: u64 = 0x20;
    let mut entry = wait_for_room(file);
    let answer = call(number::POLL, [&raw mut entry as usize, 1, 0, 0, 0, 0]);
    match entry >> 48 {
        _ if answer < 0 => Room::Broken,
        found if found & (POLLERR | POLLHUP | POLLNVAL) != 0 => Room::Broken,
        found if found & POLLOUT != 0 => Room::Some,
        _ => Room::None,
    }
}

/// Whether there is something to read.
pub(super) fn has_something(file: u64) -> bool {
    const FIONREAD: usize = 0x541b;
    let mut bytes = 0_u32;
    call(number::IOCTL, [file as usize, FIONREAD, &raw mut bytes as usize, 0, 0, 0]) == 0 && bytes > 0
}
