//! Steps in which pages are sent without a copy (`MSG_ZEROCOPY`): the kernel holds on to them until its word that it is done.

use core::ffi::c_int;
use core::mem::zeroed;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};

use crate::area::Page;
use crate::calls::{self, Errno, READ_WRITE};
use crate::content::{self, Key, PAGE};
use crate::kernel_io::{copied, two_pages};
use crate::random::mix;
use crate::worker::{Done, Kind, Trouble, Worker, of};

pub(crate) const KINDS: &[Kind] = &[("zero copy", 2, at_once), ("zero copy, in flight", 3, in_flight)];

/// More than a receiver takes that does not read: the rest waits in the sender's queue, which names the pages themselves.
const FLIGHT_MAX: usize = 48;
const RECEIVER_BYTES: c_int = 8 << 10;
const SENDER_BYTES: c_int = 1 << 20;
const WORD_MS: c_int = 30_000;
/// Of linux/errqueue.h; libc lacks it.
const ORIGIN_ZEROCOPY: u8 = 5;

/// Pages that were sent and have not arrived, in a mapping of their own, which nobody changes meanwhile. Zeros: none.
#[derive(Debug)]
pub(crate) struct Flight {
    base: usize,
    count: usize,
    /// Those that have been sent; of the next one a part may have been.
    sent: usize,
    /// Calls that have sent something.
    sends: u32,
    word: u64,
    ends: [c_int; 2],
}

impl Flight {
    const NONE: Self = Self { base: 0, count: 0, sent: 0, sends: 0, word: 0, ends: [0; 2] };

    fn at(&self, page: usize) -> usize {
        self.base + page * PAGE
    }

    fn key(&self, page: usize) -> Key {
        Key::new(mix(self.word ^ page as u64))
    }

    pub(crate) fn check(&self) -> Done {
        for page in 0..self.count {
            content::check(self.at(page), self.key(page))
                .map_err(|wrong| Trouble::Other("a page in flight", wrong.found))?;
        }
        Ok(())
    }

    /// Gives up the pages and both ends, whether or not something has arrived.
    fn end(&mut self) -> Done {
        let Self { base, count, ends, .. } = core::mem::replace(self, Self::NONE);
        ends.into_iter().for_each(calls::close);
        calls::unmap(base, count * PAGE).map_err(of("munmap, in flight"))
    }

    /// In a forked child: the pages are as they were sent, and the parent sees to their arrival.
    pub(crate) fn has_been_forked(&mut self) -> Done {
        if self.count == 0 {
            return Ok(());
        }
        self.check()?;
        self.end()
    }
}

/// Two ends of a connection, the first of which sends without a copy; `None` where there is no network, or not this of it.
fn connect() -> Option<[c_int; 2]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    // What it accepts has the same.
    set(listener.as_raw_fd(), libc::SO_RCVBUF, &RECEIVER_BYTES).ok()?;
    let sender = TcpStream::connect(listener.local_addr().ok()?).ok()?;
    let (receiver, _) = listener.accept().ok()?;
    let file = sender.as_raw_fd();
    set(file, libc::SO_ZEROCOPY, &1).ok()?;
    set(file, libc::SO_SNDBUF, &SENDER_BYTES).ok()?;
    // Closed at once, or ports would wait for a minute each.
    set(file, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 }).ok()?;
    Some([sender.into_raw_fd(), receiver.into_raw_fd()])
}

fn set<T>(socket: c_int, option: c_int, value: &T) -> Result<(), Errno> {
    let (value, bytes) = (core::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: as many bytes as the value has.
    calls::done(unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, option, value, bytes) })
}

fn send(socket: c_int, at: usize, bytes: usize) -> Result<usize, Errno> {
    let flags = libc::MSG_ZEROCOPY | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel checks the address; nobody changes the page before the kernel says so.
    calls::result(unsafe { libc::send(socket, at as *const _, bytes, flags) })
}

/// Waits for all of a page.
fn receive(socket: c_int, at: usize) -> Done {
    let mut got = 0;
    while got < PAGE {
        let (place, rest) = ((at + got) as *mut _, PAGE - got);
        // SAFETY: the kernel checks the address; the caller owns what is there.
        match calls::result(unsafe { libc::recv(socket, place, rest, libc::MSG_WAITALL) }) {
            Ok(0) => return Err(Trouble::Other("the end of a connection", got as u64)),
            Ok(more) => got += more,
            Err(libc::EINTR) => {}
            Err(errno) => return Err(Trouble::Refused("recv", errno)),
        }
    }
    Ok(())
}

/// Waits until the kernel has let go of what so many calls have sent.
fn await_words(socket: c_int, sends: u32) -> Done {
    let mut ended = 0;
    while ended < sends {
        let mut wish = libc::pollfd { fd: socket, events: 0, revents: 0 };
        // SAFETY: one wish.
        match calls::result(unsafe { libc::poll(&raw mut wish, 1, WORD_MS) } as isize) {
            Ok(0) => return Err(Trouble::Other("no word of what was sent", u64::from(ended))),
            Ok(_) => ended += read_word(socket)?,
            Err(libc::EINTR) => {}
            Err(errno) => return Err(Trouble::Refused("poll", errno)),
        }
    }
    if ended == sends { Ok(()) } else { Err(Trouble::Other("words of more than was sent", u64::from(ended))) }
}

/// How many calls the next word in the error queue is of.
fn read_word(socket: c_int) -> Result<u32, Trouble> {
    let mut control = [0_u64; 32];
    // SAFETY: zeros are a valid header.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: no parts, and as much room as the header says.
    match calls::result(unsafe { libc::recvmsg(socket, &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) }) {
        Ok(_) => {}
        Err(libc::EAGAIN) => return Ok(0),
        Err(errno) => return Err(Trouble::Refused("recvmsg, errors", errno)),
    }
    // SAFETY: the kernel has filled the header.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    if first.is_null() {
        return Err(Trouble::Other("an error without a word", 0));
    }
    // SAFETY: there is one.
    let place = unsafe { libc::CMSG_DATA(first) }.cast::<[u8; size_of::<libc::sock_extended_err>()]>();
    // SAFETY: this is what the kernel puts there.
    let bytes = unsafe { place.read() };
    // SAFETY: numbers only.
    let word: libc::sock_extended_err = unsafe { core::mem::transmute(bytes) };
    if word.ee_errno != 0 || word.ee_origin != ORIGIN_ZEROCOPY {
        return Err(Trouble::Other("another error", u64::from(word.ee_errno)));
    }
    Ok(word.ee_data - word.ee_info + 1)
}

/// A page from here to there; then it may change.
fn at_once(worker: &mut Worker) -> Done {
    let Some([from, to]) = two_pages(worker)?.filter(|[from, to]| from != to) else { return Ok(()) };
    let (key, pause) = (Key::new(worker.random.word()), worker.random.below(500) as u64);
    let (source, target) = (worker.areas[from.0].at(from.1), worker.areas[to.0].at(to.1));
    let Some(ends) = connect() else { return Ok(()) };
    let result = match send(ends[0], source, PAGE) {
        Ok(PAGE) => {
            calls::sleep_us(pause);
            receive(ends[1], target)
                .and_then(|()| copied(worker, from, to))
                .and_then(|()| await_words(ends[0], 1))
                .map(|()| worker.areas[from.0].write(from.1, key))
                .and_then(|_| worker.areas[to.0].check(to.1).map_err(|bad| Trouble::Bad("arrived", bad)))
        }
        // More than may be locked.
        Err(libc::ENOBUFS) => Ok(()),
        Ok(bytes) => Err(Trouble::Other("a short send", bytes as u64)),
        Err(errno) => Err(Trouble::Refused("send", errno)),
    };
    ends.into_iter().for_each(calls::close);
    result
}

/// Pages are sent in one step and arrive in a later one.
fn in_flight(worker: &mut Worker) -> Done {
    if worker.flight.count == 0 {
        return take_off(worker);
    }
    worker.flight.check()?;
    if !worker.random.one_in(6) {
        let number = worker.draw_area()?;
        if worker.areas[number].draw_open(&mut worker.random).is_none() {
            return Ok(());
        }
        land(worker, number)?;
    }
    worker.flight.end()
}

fn take_off(worker: &mut Worker) -> Done {
    let (count, word) = (1 + worker.random.below(FLIGHT_MAX), worker.random.word());
    let pause = worker.random.below(3000) as u64;
    let Some(ends) = connect() else { return Ok(()) };
    let base = calls::map(0, count * PAGE, READ_WRITE).map_err(of("mmap, in flight"))?;
    worker.flight = Flight { base, count, sent: 0, sends: 0, word, ends };
    let flight = &mut worker.flight;
    (0..count).for_each(|page| content::write(flight.at(page), flight.key(page)));
    // Some may be out by then.
    calls::sleep_us(pause);
    while flight.sent < count {
        match send(ends[0], flight.at(flight.sent), PAGE) {
            Ok(PAGE) => flight.sent += 1,
            // A part of it, which is enough.
            Ok(_) => {
                flight.sends += 1;
                break;
            }
            // The queue is full; more than may be locked.
            Err(libc::EAGAIN | libc::ENOBUFS) => break,
            Err(errno) => return Err(Trouble::Refused("send, to be in flight", errno)),
        }
        flight.sends += 1;
    }
    Ok(())
}

/// Each page arrives in one of an area.
fn land(worker: &mut Worker, number: usize) -> Done {
    let Worker { areas, random, flight, .. } = worker;
    let area = &mut areas[number];
    let is_whole = flight.sends as usize == flight.sent;
    for page in 0..flight.sent {
        let Some(to) = area.draw_open(random) else { return Ok(()) };
        receive(flight.ends[1], area.at(to))?;
        area.pages[to] = Page { key: flight.key(page), ..Page::FRESH };
        area.check(to).map_err(|bad| Trouble::Bad("arrived from a flight", bad))?;
    }
    // Of a page of which a part was sent the rest of that part is not read, and no word comes.
    if is_whole {
        await_words(flight.ends[0], flight.sends)?;
    }
    flight.check()?;
    (0..flight.count).for_each(|page| content::write(flight.at(page), Key::new(flight.word)));
    Ok(())
}
