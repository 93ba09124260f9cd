//! Steps in which pages go through sockets, files and pipes by calls that hold on to them or name them elsewhere.

use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr::null_mut;

use crate::calls::{self, Errno};
use crate::content::{Key, PAGE};
use crate::kernel_io::{copied, two_pages};
use crate::worker::{Done, Kind, Trouble, Worker, of};

pub(crate) const KINDS: &[Kind] =
    &[("splice", 3, splice), ("direct", 2, direct), ("messages", 3, messages), ("epoll", 2, epoll)];

/// A page lent to a pipe, moved to another one, and read there.
fn splice(worker: &mut Worker) -> Done {
    let Some([from, to]) = two_pages(worker)?.filter(|[from, to]| from != to) else { return Ok(()) };
    let (source, target) = (worker.areas[from.0].at(from.1), worker.areas[to.0].at(to.1));
    let (lent, moved) = (calls::pipe().map_err(of("pipe"))?, calls::pipe().map_err(of("pipe"))?);
    let part = libc::iovec { iov_base: source as *mut _, iov_len: PAGE };
    // SAFETY: nobody changes the page before it is read.
    let result = calls::result(unsafe { libc::vmsplice(lent[1], &raw const part, 1, 0) })
        // SAFETY: takes descriptors and numbers.
        .and_then(|_| calls::result(unsafe { libc::splice(lent[0], null_mut(), moved[1], null_mut(), PAGE, 0) }))
        .and_then(|_| calls::read(moved[0], target, PAGE));
    lent.into_iter().chain(moved).for_each(calls::close);
    match result {
        Ok(PAGE) => copied(worker, from, to),
        Ok(bytes) => Err(Trouble::Other("a short splice", bytes as u64)),
        Err(errno) => Err(Trouble::Refused("splice", errno)),
    }
}

/// A page to a file and back, without the kernel's cache: the device reads and writes the memory.
fn direct(worker: &mut Worker) -> Done {
    let Some([from, to]) = two_pages(worker)? else { return Ok(()) };
    let (source, target) = (worker.areas[from.0].at(from.1), worker.areas[to.0].at(to.1));
    let Some(file) = [c".", c"/tmp"].into_iter().find_map(|dir| open_direct(dir).ok()) else { return Ok(()) };
    // SAFETY: the kernel checks the address.
    let result = calls::result(unsafe { libc::pwrite(file, source as *const _, PAGE, 0) })
        // SAFETY: the kernel checks the address; the caller owns what is there.
        .and_then(|_| calls::result(unsafe { libc::pread(file, target as *mut _, PAGE, 0) }));
    calls::close(file);
    match result {
        Ok(PAGE) => copied(worker, from, to),
        Ok(bytes) => Err(Trouble::Other("a short direct read", bytes as u64)),
        // The device has larger blocks.
        Err(libc::EINVAL) => Ok(()),
        Err(errno) => Err(Trouble::Refused("pwrite or pread, direct", errno)),
    }
}

/// A file without a name; refused where the file system cannot do it or the directory is not ours.
fn open_direct(dir: &core::ffi::CStr) -> Result<c_int, Errno> {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_DIRECT | libc::O_CLOEXEC;
    // SAFETY: a string and numbers.
    calls::result(unsafe { libc::open(dir.as_ptr(), flags, 0o600) } as isize).map(|file| file as c_int)
}

/// A message from two pages into two others.
fn messages(worker: &mut Worker) -> Done {
    let (Some(one), Some(other)) = (two_pages(worker)?, two_pages(worker)?) else { return Ok(()) };
    let [from, to] = [[one[0], other[0]], [one[1], other[1]]];
    if to[0] == to[1] || from.iter().any(|page| to.contains(page)) {
        return Ok(());
    }
    let mut ends = [0; 2];
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: two descriptors fit.
    calls::done(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }).map_err(of("socketpair"))?;
    let result = send(worker, ends[0], from).and_then(|_| receive(worker, ends[1], to));
    ends.into_iter().for_each(calls::close);
    match result {
        Ok((1, bytes)) if bytes == 2 * PAGE => {
            copied(worker, from[0], to[0])?;
            copied(worker, from[1], to[1])
        }
        Ok((_, bytes)) => Err(Trouble::Other("a short message", bytes as u64)),
        Err(errno) => Err(Trouble::Refused("sendmsg or recvmmsg", errno)),
    }
}

fn parts(worker: &Worker, pages: [(usize, usize); 2]) -> [libc::iovec; 2] {
    pages.map(|(area, page)| libc::iovec { iov_base: worker.areas[area].at(page) as *mut _, iov_len: PAGE })
}

fn send(worker: &Worker, socket: c_int, pages: [(usize, usize); 2]) -> Result<usize, Errno> {
    let mut parts = parts(worker, pages);
    // SAFETY: zeros are a valid header.
    let mut header: libc::msghdr = unsafe { zeroed() };
    (header.msg_iov, header.msg_iovlen) = (parts.as_mut_ptr(), 2);
    // SAFETY: the kernel checks the addresses.
    calls::result(unsafe { libc::sendmsg(socket, &raw const header, 0) })
}

/// How many messages, and bytes of the first.
fn receive(worker: &Worker, socket: c_int, pages: [(usize, usize); 2]) -> Result<(usize, usize), Errno> {
    let mut parts = parts(worker, pages);
    // SAFETY: zeros are a valid header.
    let mut message: libc::mmsghdr = unsafe { zeroed() };
    (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (parts.as_mut_ptr(), 2);
    // SAFETY: the kernel checks the addresses; the caller owns what is there.
    let count = unsafe { libc::recvmmsg(socket, &raw mut message, 1, 0, null_mut()) };
    calls::result(count as isize).map(|count| (count, message.msg_len as usize))
}

/// The kernel writes an event into a page.
fn epoll(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let Worker { areas, random, .. } = worker;
    let area = &mut areas[number];
    let Some(page) = area.draw_open(random) else { return Ok(()) };
    let (word, key) = (random.word(), Key::new(random.word()));
    let ends = calls::pipe().map_err(of("pipe"))?;
    // SAFETY: takes numbers.
    let set =
        calls::result(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } as isize).map_err(of("epoll_create"))?;
    let set = set as c_int;
    let mut wish = libc::epoll_event { events: libc::EPOLLIN as u32, u64: word };
    let events = area.at(page) as *mut libc::epoll_event;
    // SAFETY: one event.
    let result = calls::done(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, ends[0], &raw mut wish) })
        .and_then(|()| calls::write(ends[1], c"x".as_ptr() as usize, 1))
        // SAFETY: room for events in a page of ours.
        .and_then(|_| calls::result(unsafe { libc::epoll_wait(set, events, 16, 1000) } as isize));
    ends.into_iter().chain([set]).for_each(calls::close);
    match result {
        // SAFETY: the kernel has written it.
        Ok(1) if unsafe { events.read_unaligned() }.u64 == word => {}
        Ok(count) => return Err(Trouble::Other("events, or another one", count as u64)),
        Err(errno) => return Err(Trouble::Refused("epoll", errno)),
    }
    area.write(page, key);
    Ok(())
}
