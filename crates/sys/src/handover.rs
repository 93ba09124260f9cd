//! Handover: descriptors from a forking process's agent to its child's.
//!
//! The agent's descriptors are in a table that the child does not get: fork copies the table of the forking thread,
//! which is the program's. So the child's agent connects to a socket that its parent's agent listens at, by an abstract
//! name that it knows from its copy of the parent's memory, and receives them there.

use alloc::ffi::CString;
use core::ffi::CStr;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{DupFlags, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::arch::{self, number};
use crate::{Errno, process};

/// Descriptors that one handover can carry: the child's userfaultfd, and two for each ancestor with a swap file.
const DESCRIPTORS_MAX: usize = 64;

/// Calls that may wait to be taken.
const BACKLOG: i32 = 128;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC;

/// Where a process's agent awaits its forked children.
#[derive(Debug)]
pub struct Reception {
    socket: OwnedFd,
    /// Zeros where it has none.
    name: [u8; 40],
    file: Option<OwnedFd>,
}

/// What those know who may ask: the name of a reception is there for all to read.
pub type Secret = [u8; SECRET_BYTES];

/// Of a [`Secret`].
pub const SECRET_BYTES: usize = 16;

/// None that a byte and the numbers of descriptors have, four bytes each.
const QUESTION_BYTES: usize = 2 + SECRET_BYTES;

/// What `Line::ask` has asked, if that is what has come.
fn question(text: &[u8]) -> Option<(u8, Secret)> {
    let text: &[u8; QUESTION_BYTES] = text.try_into().ok()?;
    Some((text[0], *text[1..].first_chunk()?))
}

/// What has come by a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// A byte, with descriptors.
    Sent(u8),
    /// A question, and what is to show that it may be asked.
    Asked(u8, Secret),
}

/// Who has called, or is called, as this process sees him.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// His process id; 0 where he has none.
    pub process: u32,
    /// His user.
    pub user: u32,
    /// And that one's group.
    pub group: u32,
}

impl Peer {
    /// Whether he is of the same user, in whatever namespace of users.
    pub fn is_of_our_user(&self) -> bool {
        self.user == rustix::process::geteuid().as_raw()
    }

    /// The same, or root.
    pub fn is_ours_or_roots(&self) -> bool {
        self.is_of_our_user() || self.user == 0
    }

    /// Whether he is let in where these are, and those that `is_child` knows.
    pub fn may_enter(&self, is_child: &dyn Fn(u32) -> bool) -> bool {
        self.is_ours_or_roots() || self.process != 0 && is_child(self.process)
    }
}

/// One end of a conversation between two agents; ends when the other one's process does.
#[derive(Debug)]
pub struct Line(OwnedFd);

fn socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A secret of letters, which an environment variable can hold.
pub fn new_secret() -> Result<Secret, Errno> {
    let mut secret = [0; SECRET_BYTES];
    fill_with_letters(&mut secret)?;
    Ok(secret)
}

fn fill_with_letters(letters: &mut [u8]) -> Result<(), Errno> {
    for (letter, random) in letters.iter_mut().zip(process::random_key()?.iter().cycle()) {
        *letter = b'a' + random % 16;
    }
    Ok(())
}

fn listen(name: &[u8; 40]) -> Result<OwnedFd, Errno> {
    listen_at(&SocketAddrUnix::new_abstract_name(name)?)
}

fn listen_at(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let socket = socket(FLAGS | SocketFlags::NONBLOCK)?;
    rustix::net::bind(&socket, address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

impl Reception {
    /// Listens under a name that nobody can guess.
    pub fn open() -> Result<Self, Errno> {
        let mut name = *b"pleat/0000000000000000000000000000000000";
        fill_with_letters(&mut name[6..])?;
        Ok(Self { socket: listen(&name)?, name, file: None })
    }

    /// Listens at a file in this directory, which has lost its name already: who sees in /proc what we have open calls by [that](Self::file_number), in
    /// whatever network he is.
    pub fn open_in(directory: &CStr) -> Result<Self, Errno> {
        let mut name = *b"/pleat-0000000000000000";
        fill_with_letters(&mut name[7..])?;
        let path = CString::new([directory.to_bytes(), &name].concat()).map_err(|_| Errno::INVAL)?;
        let socket = listen_at(&SocketAddrUnix::new(&*path)?)?;
        let file = rustix::fs::chmod(&*path, Mode::from_raw_mode(0o666))
            .and_then(|()| rustix::fs::open(&*path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()));
        rustix::fs::unlink(&*path)?;
        Ok(Self { socket, name: [0; _], file: Some(file?) })
    }

    /// Listens in `network` instead, under the same name, which is known in one network namespace only. `own` is the caller's, who may
    /// enter the other (`CAP_SYS_ADMIN`). Nobody calls meanwhile.
    pub fn move_to(&self, network: &OwnedFd, own: &OwnedFd) -> Result<(), Errno> {
        let enter = |network: &OwnedFd| process::enter_namespace(network.as_raw_fd(), process::NEWNET);
        enter(network)?;
        let fresh = listen(&self.name);
        // From a user namespace that does not own it there is no way back, and none is needed.
        let _ = enter(own);
        // SAFETY: it is open, and stays so: what it stands for is replaced.
        let mut socket = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.number()) });
        rustix::io::dup3(fresh?, &mut socket, DupFlags::CLOEXEC)
    }

    /// The number of its descriptor.
    pub fn number(&self) -> i32 {
        self.socket.as_raw_fd()
    }

    /// That of the file that it listens at.
    pub fn file_number(&self) -> Option<i32> {
        self.file.as_ref().map(OwnedFd::as_raw_fd)
    }

    /// The name, for the child.
    pub fn name(&self) -> [u8; 40] {
        self.name
    }

    /// A child that has called, if there is one. Only processes of the same user are let in, and those that `is_child`
    /// knows: the program may have changed its user, which the agent's own threads have not.
    pub fn accept(&self, is_child: &dyn Fn(u32) -> bool) -> Option<Line> {
        let (line, caller) = self.accept_any()?;
        caller.may_enter(is_child).then_some(line)
    }

    /// Whoever has called, if somebody has.
    pub fn accept_any(&self) -> Option<(Line, Peer)> {
        let line = Line(rustix::net::accept_with(&self.socket, FLAGS).ok()?);
        let caller = line.peer()?;
        Some((line, caller))
    }

    /// Whether somebody calls.
    pub fn is_called(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        matches!(rustix::event::poll(&mut fds, Some(&crate::clock::timespec(Duration::ZERO))), Ok(1))
    }

    /// Hangs up on whoever has called and has not been let in: a child that was ended while it called would be taken for
    /// the next one.
    pub fn dismiss(&self) {
        while rustix::net::accept_with(&self.socket, FLAGS).is_ok() {}
    }

    /// Forgets the socket without closing it, in a child, where its number means something else.
    pub fn forget(self) {
        core::mem::forget((self.socket, self.file));
    }
}

impl AsFd for Reception {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Line {
    /// Calls the reception of that name.
    pub fn call(name: &[u8; 40]) -> Result<Self, Errno> {
        Self::connect(FLAGS, &SocketAddrUnix::new_abstract_name(name)?)
    }

    /// The same without waiting for anybody: AGAIN if too many have called and are not answered.
    pub fn call_at_once(name: &[u8; 40]) -> Result<Self, Errno> {
        Self::connect(FLAGS | SocketFlags::NONBLOCK, &SocketAddrUnix::new_abstract_name(name)?)
    }

    /// The same by the file of a reception, which this path leads to.
    pub fn call_at_once_by(path: &CStr) -> Result<Self, Errno> {
        Self::connect(FLAGS | SocketFlags::NONBLOCK, &SocketAddrUnix::new(path)?)
    }

    fn connect(flags: SocketFlags, address: &SocketAddrUnix) -> Result<Self, Errno> {
        let socket = socket(flags)?;
        rustix::net::connect(&socket, address)?;
        Ok(Self(socket))
    }

    /// Gives it a number of at least `above`.
    pub fn move_above(&mut self, above: i32) -> Result<(), Errno> {
        self.0 = rustix::io::fcntl_dupfd_cloexec(&self.0, above)?;
        Ok(())
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Option<Peer> {
        const SOL_SOCKET: usize = 1;
        const SO_PEERCRED: usize = 17;
        // Not by rustix, for which a process id is never zero.
        let (mut peer, mut bytes) = (Peer { process: 0, user: 0, group: 0 }, size_of::<Peer>() as u32);
        let socket = self.number() as usize;
        let arguments = [socket, SOL_SOCKET, SO_PEERCRED, &raw mut peer as usize, &raw mut bytes as usize, 0];
        // SAFETY: writes as many bytes as there are.
        crate::thread::errno(unsafe { arch::syscall(number::GETSOCKOPT, arguments) }).ok()?;
        Some(peer)
    }

    /// Its number, to be passed on to a child's child.
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Sends one byte with descriptors of this thread's table, and the numbers that they have here. A number that is
    /// not open is an error: everything that is sent must arrive.
    pub fn send(&self, byte: u8, numbers: &[i32]) -> Result<(), Errno> {
        assert!(numbers.len() <= DESCRIPTORS_MAX);
        let mut text = [0_u8; 1 + 4 * DESCRIPTORS_MAX];
        text[0] = byte;
        for (at, number) in numbers.iter().enumerate() {
            text[1 + 4 * at..5 + 4 * at].copy_from_slice(&number.to_le_bytes());
        }
        // SAFETY: the descriptors are open while they are sent, by the caller's word; if not, sendmsg answers BADF.
        let borrow = |number: &i32| unsafe { BorrowedFd::borrow_raw(*number) };
        let mut fds = [self.0.as_fd(); DESCRIPTORS_MAX];
        for (slot, number) in fds.iter_mut().zip(numbers) {
            *slot = borrow(number);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !numbers.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds[..numbers.len()]));
        }
        let length = 1 + 4 * numbers.len();
        rustix::net::sendmsg(&self.0, &[IoSlice::new(&text[..length])], &mut control, SendFlags::NOSIGNAL).map(|_| ())
    }

    /// Sends one byte and three numbers.
    pub fn tell(&self, byte: u8, words: [u64; 3]) -> Result<(), Errno> {
        let mut text = [byte; 25];
        for (at, word) in words.iter().enumerate() {
            text[1 + 8 * at..9 + 8 * at].copy_from_slice(&word.to_le_bytes());
        }
        rustix::net::send(&self.0, &text, SendFlags::NOSIGNAL).map(|_| ())
    }

    /// Asks who holds a secret, to show that this end has it, too.
    pub fn ask(&self, question: u8, secret: &Secret) -> Result<(), Errno> {
        let mut text = [question; QUESTION_BYTES];
        text[1..=SECRET_BYTES].copy_from_slice(secret);
        rustix::net::send(&self.0, &text, SendFlags::NOSIGNAL).map(|_| ())
    }

    /// Receives what `ask` asked, if it has come, and nothing else: no descriptor that comes with it.
    pub fn hear_question(&self) -> Result<(u8, Secret), Errno> {
        let mut text = [0; QUESTION_BYTES + 1];
        let (_, length) = rustix::net::recv(&self.0, &mut text, RecvFlags::DONTWAIT)?;
        question(&text[..length.min(text.len())]).ok_or(Errno::PROTO)
    }

    /// Receives what `tell` told, waiting at most `limit`.
    pub fn hear(&self, limit: Duration) -> Result<(u8, [u64; 3]), Errno> {
        if !self.is_readable(limit) {
            return Err(Errno::TIMEDOUT);
        }
        let mut text = [0; 25];
        let (_, length) = rustix::net::recv(&self.0, &mut text, RecvFlags::empty())?;
        if length != text.len() {
            return Err(Errno::PIPE);
        }
        let mut words = [0; 3];
        for (at, word) in words.iter_mut().enumerate() {
            *word = text[1 + 8 * at..9 + 8 * at].try_into().map_or(0, u64::from_le_bytes);
        }
        Ok((text[0], words))
    }

    /// Receives what `send` sent, waiting at most `limit`. `adopt` gets each descriptor with the number that it had.
    pub fn receive(&self, limit: Duration, adopt: &mut dyn FnMut(OwnedFd, i32)) -> Result<u8, Errno> {
        match self.receive_any(limit, adopt)? {
            Received::Sent(byte) => Ok(byte),
            Received::Asked(..) => Err(Errno::INVAL),
        }
    }

    /// Receives what `send` sent or `ask` asked.
    pub fn receive_any(&self, limit: Duration, adopt: &mut dyn FnMut(OwnedFd, i32)) -> Result<Received, Errno> {
        if !self.is_readable(limit) {
            return Err(Errno::TIMEDOUT);
        }
        let mut text = [0_u8; 1 + 4 * DESCRIPTORS_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        if received.bytes == 0 {
            return Err(Errno::PIPE);
        }
        let mut at = 1;
        for message in control.drain() {
            let RecvAncillaryMessage::ScmRights(fds) = message else { continue };
            for fd in fds {
                let number = text[at..at + 4].try_into().map_or(-1, i32::from_le_bytes);
                adopt(fd, number);
                at += 4;
            }
        }
        match question(&text[..received.bytes]) {
            Some((question, secret)) => Ok(Received::Asked(question, secret)),
            None if received.bytes == at => Ok(Received::Sent(text[0])),
            None => Err(Errno::MFILE),
        }
    }

    /// Whether there is something to receive, or the other end is gone, within `limit`.
    pub fn is_readable(&self, limit: Duration) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = crate::clock::timespec(limit);
        matches!(rustix::event::poll(&mut fds, Some(&limit)), Ok(1))
    }

    /// Whether the other process has ended or executed another program.
    pub fn is_dead(&self) -> bool {
        let mut byte = [0];
        self.is_readable(Duration::ZERO)
            && rustix::net::recv(&self.0, &mut byte, RecvFlags::DONTWAIT).is_ok_and(|(read, _)| read == 0)
    }
}

/// The same descriptor under a number of at least `above`.
pub fn move_above(fd: &OwnedFd, above: i32) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(fd, above)
}

/// Gives descriptors the numbers that they had in the parent, so that what was copied from its memory finds them. The
/// table must be this thread's own, with nothing in it but these.
pub fn renumber(fds: &mut alloc::vec::Vec<(OwnedFd, i32)>) -> Result<(), Errno> {
    let above = fds.iter().map(|(fd, number)| fd.as_raw_fd().max(*number)).max().unwrap_or(0) + 1;
    for (fd, _) in fds.iter_mut() {
        *fd = rustix::io::fcntl_dupfd_cloexec(&*fd, above)?;
    }
    for (fd, number) in fds.drain(..) {
        // SAFETY: the number is free: everything in this table has just been moved above all of these numbers.
        let mut target = unsafe { OwnedFd::from_raw_fd(number) };
        let moved = rustix::io::dup3(&fd, &mut target, DupFlags::CLOEXEC);
        // The structures copied from the parent own it from now on.
        core::mem::forget(target);
        moved?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_cloexec(fd: &OwnedFd) -> bool {
        rustix::io::fcntl_getfd(fd).is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC))
    }

    #[test]
    fn descriptors_arrive_with_their_numbers() {
        let reception = Reception::open().unwrap();
        assert!(reception.accept(&|_| false).is_none());
        let there = Line::call(&reception.name()).unwrap();
        let here = reception.accept(&|_| false).unwrap();
        let file =
            rustix::fs::open(c"/proc/self/statm", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
        here.send(7, &[file.as_raw_fd()]).unwrap();
        let mut received = vec![];
        let byte = there.receive(Duration::from_secs(5), &mut |fd, number| received.push((fd, number))).unwrap();
        assert_eq!((byte, received.len(), received[0].1), (7, 1, file.as_raw_fd()));
        assert!(is_cloexec(&received[0].0));
        assert!(crate::proc_files::resident_anonymous(&received[0].0).is_some());
        there.tell(9, [1, u64::MAX, 3]).unwrap();
        assert_eq!(here.hear(Duration::from_secs(5)), Ok((9, [1, u64::MAX, 3])));
        let nothing = &mut |_, _| {};
        there.ask(4, b"what two ends of").unwrap();
        assert_eq!(here.receive_any(Duration::from_secs(5), nothing), Ok(Received::Asked(4, *b"what two ends of")));
        assert!(!here.is_dead());
        drop(there);
        assert!(here.is_dead());
    }

    #[test]
    fn a_reception_without_a_name_is_called_through_proc() {
        let directory = std::env::temp_dir().join(std::format!("pleat-reception-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let reception = Reception::open_in(&CString::new(directory.to_str().unwrap()).unwrap()).unwrap();
        // Nothing is in it.
        std::fs::remove_dir(&directory).unwrap();
        let file = reception.file_number().unwrap();
        let path = CString::new(std::format!("/proc/self/fd/{file}")).unwrap();
        let there = Line::call_at_once_by(&path).unwrap();
        let here = reception.accept(&|_| false).unwrap();
        there.tell(9, [1, 2, 3]).unwrap();
        assert_eq!(here.hear(Duration::from_secs(5)), Ok((9, [1, 2, 3])));
    }

    #[test]
    fn who_called_before_is_not_taken_for_who_calls_now() {
        let reception = Reception::open().unwrap();
        for _ in 0..3 {
            drop(Line::call(&reception.name()).unwrap());
        }
        reception.dismiss();
        assert!(reception.accept(&|_| false).is_none());
        let there = Line::call(&reception.name()).unwrap();
        let here = reception.accept(&|_| false).unwrap();
        there.tell(1, [2; 3]).unwrap();
        assert_eq!(here.hear(Duration::from_secs(5)), Ok((1, [2; 3])));
    }

    #[test]
    fn a_silent_line_times_out() {
        let reception = Reception::open().unwrap();
        let there = Line::call(&reception.name()).unwrap();
        assert_eq!(there.receive(Duration::from_millis(5), &mut |_, _| {}), Err(Errno::TIMEDOUT));
    }
}
