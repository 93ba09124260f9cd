//! Reads and writes of more than one call may hold, made in pieces, so that what has been read or written may leave before all has.
//!
//! ```text
//!  trap ── begin ──► pleat_piece: the call for one piece ──► the program's own instruction, with GO_ON ── trap ── go_on ─┐
//!                        ▲                                                                                            │
//!                        └─────────────────────────── the next piece, held ◄──────────────────────────────────────────┤
//!                                                       the program, with the sum of what was transferred ◄────────────┘
//! ```
//! Each piece is a call in the program's context, as any other ([`super::trap`]): it may wait, and be left. What the program sees is what
//! one call does, see [`Way`]. What cannot be made to look so is made whole: messages, terminals, and what is appended to a file.

use core::sync::atomic::Ordering;

use super::calls::{self, Class, Piece};
use super::context::Context;
use super::descriptors::{self, Kind, Room};
use super::holds::{self, Place, Slot};
use super::memory::{ADDRESS_END, TRANSFER_MAX, VECTOR_MAX, copy_in};
use super::stubs::{FRAME_BYTES, pleat_piece, pleat_piece_end, pleat_pieced};
use super::trap::{answer, gather, hold, hold_and_call, note_return, place_at};
use super::{hooks, signals};
use crate::Errno;
use crate::arch::number;

/// No call's number: what a piece is followed by.
pub(super) const GO_ON: u64 = 0x506c_6561;
/// The program's instruction, `0f 05`.
pub(super) const SYSCALL_BYTES: u64 = 2;
const SYSCALL: u64 = 0x050f;
/// What is held at once, at least.
pub(super) const PIECE_BYTES: u64 = 1 << 20;
const MSG_DONTWAIT: u64 = 0x40;
const MSG_NOSIGNAL: u64 = 0x4000;
/// In ms, for poll.
const FOR_EVER: u64 = u64::MAX;

/// Words of a slot's `scratch`: what was transferred before this piece, what it has returned, its length, and [`Way`].
const DONE: usize = 0;
pub(super) const RESULT: usize = 1;
const LENGTH: usize = 2;
/// For a length: a wait for room.
const WAIT: u64 = u64::MAX;
const WAY: usize = 3;

/// What a piece that was transferred whole is followed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Way {
    /// The next. A file is read and written to the end, and signals that have handlers come then.
    ToTheEnd,
    /// The next. A device that never waits, and a stream that is not to wait.
    On,
    /// The next, unless a signal has come: a pipe or a local stream that is written, where a call that waits is over with what was written.
    OnUnlessInterrupted,
    /// The same of TCP, where a wait for room is a call of its own: an error that comes meanwhile is told to one call only, and
    /// that is not the one that has written something. (Of a local stream it is.)
    OnOnceThereIsRoom,
    /// Such a one, and a signal has come.
    Interrupted,
    /// The next, if there is more: who has read less than he has asked for may rely on there being no more (epoll(7)).
    WhileThereIs,
    /// Nothing: a pipe that is read, and holds no more than a piece.
    Over,
}

impl Way {
    fn of(slot: &Slot) -> Self {
        match slot.scratch[WAY].load(Ordering::Relaxed) {
            0 => Self::ToTheEnd,
            1 => Self::On,
            2 => Self::OnUnlessInterrupted,
            3 => Self::OnOnceThereIsRoom,
            4 => Self::Interrupted,
            5 => Self::WhileThereIs,
            _ => Self::Over,
        }
    }

    /// Whether nothing follows a piece of this length behind `done` bytes with this result.
    fn is_over(self, done: u64, length: u64, result: i64) -> bool {
        let is_full = result == -i64::from(Errno::AGAIN.raw_os_error());
        match self {
            Self::Over | Self::Interrupted => true,
            Self::OnOnceThereIsRoom if length == WAIT => result < 0,
            Self::OnOnceThereIsRoom if done > 0 => result < 0 && !is_full,
            _ => result < length as i64,
        }
    }
}

/// What of such a call concerns us.
#[derive(Clone, Copy)]
struct Form {
    /// The call for a part of the buffer, or of one of them.
    part: usize,
    has_vector: bool,
    is_write: bool,
}

/// A part of what is transferred: the buffer that the next byte is in, from there on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    start: u64,
    bytes: u64,
    /// If the byte is the first of a buffer: the vector from there on, how many of its buffers make a piece, and their bytes.
    whole: Option<(u64, u64, u64)>,
}

impl Form {
    fn of(call: usize) -> Option<Self> {
        let (part, has_vector, is_write) = match call {
            number::READ | number::PREAD64 | number::RECVFROM => (call, false, false),
            number::WRITE | number::PWRITE64 | number::SENDTO => (call, false, true),
            number::READV => (number::READ, true, false),
            number::PREADV => (number::PREAD64, true, false),
            number::WRITEV => (number::WRITE, true, true),
            number::PWRITEV => (number::PWRITE64, true, true),
            _ => return None,
        };
        Some(Self { part, has_vector, is_write })
    }

    /// Whether its fourth argument is a place in the file.
    fn is_placed(self) -> bool {
        matches!(self.part, number::PREAD64 | number::PWRITE64)
    }

    /// Those of a message, which others than send and recv do not have.
    fn flags(self, arguments: &[u64; 6]) -> u64 {
        if matches!(self.part, number::SENDTO | number::RECVFROM) { arguments[3] } else { 0 }
    }

    /// How many bytes the call is to transfer; `None` where the kernel refuses it without a look at them: it has a vector that cannot be
    /// read, is too long, or has a negative length.
    fn bytes(self, arguments: &[u64; 6]) -> Option<u64> {
        let [_, start, count, ..] = *arguments;
        if !self.has_vector {
            return Some(count.min(TRANSFER_MAX));
        }
        if count > VECTOR_MAX {
            return None;
        }
        let mut sum = 0;
        for at in 0..count {
            let [_, bytes] = copy_in(start.saturating_add(at * 16))?;
            sum = (i64::try_from(bytes).ok()? as u64).saturating_add(sum).min(TRANSFER_MAX);
        }
        Some(sum)
    }

    /// Whether the kernel would look at more than the pieces before it transfers anything, or at less than is asked for.
    fn is_one(self, arguments: &[u64; 6], bytes: u64) -> bool {
        let [_, start, count, offset, ..] = *arguments;
        let ends_late =
            self.is_placed() && i64::try_from(offset).is_ok_and(|offset| offset.checked_add_unsigned(bytes).is_none());
        let is_beyond = |base: u64, bytes: u64| base.checked_add(bytes).is_none_or(|end| end > ADDRESS_END);
        let has_beyond = if self.has_vector {
            (0..count).filter_map(|at| copy_in(start + at * 16)).any(|[base, bytes]| is_beyond(base, bytes))
        } else {
            is_beyond(start, count)
        };
        ends_late || has_beyond
    }

    /// The part at `done`.
    fn at(self, arguments: &[u64; 6], mut done: u64) -> Option<Part> {
        let [_, start, count, ..] = *arguments;
        if !self.has_vector {
            return Some(Part { start: start + done, bytes: count.saturating_sub(done), whole: None });
        }
        let buffer = |at: u64| copy_in::<2>(start + at * 16);
        for at in 0..count {
            let [base, bytes] = buffer(at)?;
            if done < bytes {
                let (whole, sum) = if done == 0 { whole_buffers(at, count, buffer) } else { (0, 0) };
                let whole = (whole > 0).then_some((start + at * 16, whole, sum));
                return Some(Part { start: base + done, bytes: bytes - done, whole });
            }
            done -= bytes;
        }
        None
    }
}

/// How many buffers from `first` on have no more than a piece together, and how many bytes.
fn whole_buffers(first: u64, count: u64, buffer: impl Fn(u64) -> Option<[u64; 2]>) -> (u64, u64) {
    let mut sum = 0_u64;
    for at in first..count {
        match buffer(at).map(|[_, bytes]| sum.saturating_add(bytes)) {
            Some(more) if more <= PIECE_BYTES => sum = more,
            _ => return (at - first, sum),
        }
    }
    (count - first, sum)
}

/// A call that is made in pieces.
struct Transfer {
    form: Form,
    /// The call's own.
    call: u64,
    arguments: [u64; 6],
    bytes: u64,
    done: u64,
    way: Way,
    /// The program's signal mask.
    mask: u64,
    /// There was no room for all of the last piece.
    is_full: bool,
}

/// Begins with a call that is to be made in pieces, if this is one.
pub(super) fn begin(context: &mut Context, place: Place) -> bool {
    let Some(form) = Form::of(context.rax as usize) else { return false };
    let arguments = context.arguments();
    // Most are small, and this is all that they pay.
    if !form.has_vector && arguments[2] <= PIECE_BYTES || place.is_guest {
        return false;
    }
    let Some(bytes) = form.bytes(&arguments) else {
        hold_and_call(context, if arguments[2] <= VECTOR_MAX { &[Piece::Arr(1, 2, 16)] } else { &[] }, place);
        return true;
    };
    if bytes <= PIECE_BYTES.max((hooks().held_bytes_max)()) || form.is_one(&arguments, bytes) {
        return false;
    }
    let is_by_syscall = copy_in(context.rip - SYSCALL_BYTES).is_some_and(|[word]| word & 0xffff == SYSCALL);
    let Some(way) = way(form, &arguments, bytes).filter(|_| is_by_syscall) else { return false };
    let mask = context.signal_mask;
    Transfer { form, call: context.rax, arguments, bytes, done: 0, way, mask, is_full: false }
        .make_piece(context, place)
}

/// Behind a piece: the next, or the result of all.
pub(super) fn go_on(context: &mut Context) {
    let Some(slot) = slot_on_stack(context).filter(|slot| context.rdi == core::ptr::from_ref(*slot) as u64) else {
        context.rax = answer(Err(Errno::NOSYS));
        return;
    };
    context.rsp += FRAME_BYTES;
    if !slot.is_of_call_to(context.rip) {
        // Left by a handler that has let another call have it, and gone back to.
        context.rax = answer(Err(Errno::INTR));
        return;
    }
    let word = |at: usize| slot.scratch[at].load(Ordering::Relaxed);
    let (result, length, way) = (word(RESULT) as i64, word(LENGTH), Way::of(slot));
    let is_over = way.is_over(word(DONE), length, result);
    let done = word(DONE) + if length == WAIT { 0 } else { u64::try_from(result).unwrap_or(0) };
    let is_full = length != WAIT && result < length as i64;
    let (call, mask) = (slot.call.load(Ordering::Relaxed), slot.mask.load(Ordering::Relaxed));
    let arguments = slot.arguments.each_ref().map(|argument| argument.load(Ordering::Relaxed));
    slot.let_go();
    context.set_arguments(arguments);
    if way == Way::ToTheEnd {
        context.signal_mask = mask;
    }
    if let Some(form) = Form::of(call as usize).filter(|_| !is_over)
        && let Some(bytes) = form.bytes(&arguments).filter(|bytes| done < *bytes)
        && (Transfer { form, call, arguments, bytes, done, way, mask, is_full })
            .make_piece(context, place_at(context.rsp))
    {
        return;
    }
    // What has failed has failed for the next call again.
    context.rax = if done == 0 { result as u64 } else { done };
}

/// A signal is about to be delivered to this context: between two pieces it must be as if it had come while the call waited.
pub(super) fn interrupt(context: &mut Context) {
    let [first, behind, end] = [pleat_piece as *const (), pleat_pieced as *const (), pleat_piece_end as *const ()];
    let is_in_stub = (first as u64..end as u64).contains(&context.rip);
    let is_at_trap = !is_in_stub && context.rax == GO_ON;
    if !is_at_trap && !is_in_stub {
        return;
    }
    let Some(slot) = slot_on_stack(context) else { return };
    if is_at_trap {
        if !slot.is_of_call_to(context.rip + SYSCALL_BYTES) {
            return;
        }
        // Where unwinders know the frame.
        context.rax = slot.scratch[RESULT].load(Ordering::Relaxed);
        context.rip = behind as u64;
    }
    if !matches!(Way::of(slot), Way::OnUnlessInterrupted | Way::OnOnceThereIsRoom) {
        return;
    }
    if context.rip == first as u64 {
        if slot.scratch[DONE].load(Ordering::Relaxed) == 0 {
            return; // As before any call, or the kernel begins with it again.
        }
        context.rax = 0;
        context.rip = behind as u64;
    }
    slot.scratch[WAY].store(Way::Interrupted as u64, Ordering::Relaxed);
}

fn slot_on_stack(context: &Context) -> Option<&'static Slot> {
    copy_in(context.rsp).and_then(|[slot]| holds::slot_at(slot))
}

/// Whether and how pieces can follow one another on what a call is for.
fn way(form: Form, arguments: &[u64; 6], bytes: u64) -> Option<Way> {
    let file = arguments[0];
    let flags = descriptors::flags(file)?;
    match descriptors::kind(file)? {
        // Each piece would come behind what others have appended meanwhile.
        Kind::File if form.is_write && (flags.appends || descriptors::has_size_limit()) => None,
        // By blocks of a device, which may be as short.
        Kind::File if flags.is_direct && (form.has_vector || !bytes.is_multiple_of(512)) => None,
        Kind::File => Some(Way::ToTheEnd),
        Kind::MemoryDevice => Some(Way::On),
        // By packets, which end where a buffer does.
        Kind::Pipe if flags.is_direct && form.has_vector => None,
        Kind::Pipe if form.is_write && flags.waits => Some(Way::OnUnlessInterrupted),
        Kind::Pipe if form.is_write => Some(Way::On),
        // Pieces end where a buffer does, and the first may be a small one.
        Kind::Pipe => (!form.has_vector && descriptors::pipe_bytes(file)? <= PIECE_BYTES).then_some(Way::Over),
        kind @ (Kind::LocalStream | Kind::Tcp) => stream_way(form, arguments, kind, flags.waits),
        Kind::Other => None,
    }
}

fn stream_way(form: Form, arguments: &[u64; 6], kind: Kind, waits: bool) -> Option<Way> {
    /// And more, `cmsg_cloexec`: with others it is no plain read or write.
    const PLAIN_FLAGS: u64 = MSG_DONTWAIT | MSG_NOSIGNAL | 0x8000 | 0x4000_0000;
    let [file, _, _, _, address, _] = *arguments;
    let flags = form.flags(arguments);
    if flags & !PLAIN_FLAGS != 0 || form.part == number::SENDTO && address != 0 {
        return None;
    }
    if !form.is_write {
        let is_plain = !form.has_vector && !descriptors::has_protocol_on_top(file);
        return (is_plain && descriptors::low_water_mark(file) <= PIECE_BYTES).then_some(Way::WhileThereIs);
    }
    if descriptors::has_error_queue(file) || descriptors::has_send_timeout(file) {
        return None;
    }
    Some(match kind {
        _ if !waits || flags & MSG_DONTWAIT != 0 => Way::On,
        Kind::Tcp => Way::OnOnceThereIsRoom,
        _ => Way::OnUnlessInterrupted,
    })
}

/// What is done next.
enum Step {
    Transfer { call: usize, arguments: [u64; 6], length: u64 },
    WaitForRoom,
}

impl Transfer {
    /// Holds the piece that comes next and lets the program make a call for it; false if there is none.
    fn make_piece(self, context: &mut Context, place: Place) -> bool {
        let Some(step) = self.form.at(&self.arguments, self.done).and_then(|part| self.step(part)) else {
            return false;
        };
        let mut hold = hold(place);
        let slot = hold.slot();
        let (call, arguments, length) = match step {
            Step::Transfer { call, arguments, length } => (call, arguments, length),
            Step::WaitForRoom => {
                slot.mask.store(descriptors::wait_for_room(self.arguments[0]), Ordering::Relaxed);
                (number::POLL, [slot.mask.as_ptr() as u64, 1, FOR_EVER, 0, 0, 0], WAIT)
            }
        };
        let Class::Holds(held) = calls::class(call as u64) else { return false };
        gather(&mut hold, held, &arguments, place);
        note_return(&hold, context, self.arguments);
        slot.sets_mask.store(0, Ordering::Relaxed);
        slot.call.store(self.call, Ordering::Relaxed);
        for (at, word) in [(DONE, self.done), (LENGTH, length), (WAY, self.way as u64)] {
            slot.scratch[at].store(word, Ordering::Relaxed);
        }
        if self.way == Way::ToTheEnd {
            slot.mask.store(self.mask, Ordering::Relaxed);
            context.signal_mask |= signals::handled();
        }
        context.rax = call as u64;
        context.set_arguments(arguments);
        super::trap::go_on_in(context, slot, pleat_piece);
        true
    }

    /// `None` if there is to be no further piece: who has transferred something is not told of an error, which is left for the next call.
    fn step(&self, part: Part) -> Option<Step> {
        let left = self.bytes - self.done;
        let [file, _, _, fourth, fifth, sixth] = self.arguments;
        let stream = descriptors::kind(file).filter(|kind| matches!(kind, Kind::LocalStream | Kind::Tcp));
        let is_further = self.done > 0 && stream.is_some();
        if is_further && !self.form.is_write && !descriptors::has_something(file) {
            return None;
        }
        if is_further && self.form.is_write && stream == Some(Kind::Tcp) {
            match descriptors::room(file) {
                Room::Broken => return None,
                Room::None if self.is_full => return Some(Step::WaitForRoom),
                _ => {}
            }
        }
        let fourth = if self.form.is_placed() { fourth.wrapping_add(self.done) } else { fourth };
        // The pieces of a stream have flags, and there are none for a vector.
        if let Some((start, count, length)) = part.whole.filter(|(_, _, length)| *length <= left && !is_further) {
            return Some(Step::Transfer {
                call: self.call as usize,
                arguments: [file, start, count, fourth, fifth, sixth],
                length,
            });
        }
        let length = part.bytes.min(left).min(PIECE_BYTES);
        let flags = self.form.flags(&self.arguments);
        let (call, rest) = match (is_further, self.form.is_write) {
            (true, true) if stream == Some(Kind::LocalStream) => (number::SENDTO, [flags | MSG_NOSIGNAL, 0, 0]),
            (true, true) => (number::SENDTO, [flags | MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0]),
            (true, false) => (number::RECVFROM, [flags | MSG_DONTWAIT, 0, 0]),
            (false, _) => (self.form.part, [fourth, fifth, sixth]),
        };
        Some(Step::Transfer { call, arguments: [file, part.start, length, rest[0], rest[1], rest[2]], length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_gone_through_element_by_element() {
        let vector = [[0x10_0000_u64, 5], [0x20_0000, 0], [0x30_0000, 3 << 20]];
        let arguments = [0, core::hint::black_box(&vector).as_ptr() as u64, 3, 0, 0, 0];
        let form = Form::of(number::WRITEV).unwrap();
        assert_eq!(form.bytes(&arguments), Some((3 << 20) + 5));
        let at = |done| form.at(&arguments, done);
        let vector = arguments[1];
        let part = |start, bytes, whole| Some(Part { start, bytes, whole });
        assert_eq!(at(0), part(0x10_0000, 5, Some((vector, 2, 5))), "two make a piece");
        assert_eq!(at(4), part(0x10_0004, 1, None));
        assert_eq!(at(5), part(0x30_0000, 3 << 20, None), "longer than a piece");
        assert_eq!(at(1 << 20), part(0x3f_fffb, (2 << 20) + 5, None));
        assert_eq!(at((3 << 20) + 5), None);
    }

    #[test]
    fn what_the_kernel_refuses_at_once_or_cuts_is_made_whole() {
        let vector = [[0x10_0000_u64, 5], [0x20_0000, u64::MAX], [0x10_0000, 1 << 50]];
        let start = core::hint::black_box(&vector).as_ptr() as u64;
        let bytes = |call, at: u64, count| Form::of(call).unwrap().bytes(&[0, start + at * 16, count, 0, 0, 0]);
        assert_eq!(bytes(number::READV, 0, 1), Some(5));
        assert_eq!(bytes(number::READV, 0, 2), None, "a negative length");
        assert_eq!(bytes(number::READV, 0, VECTOR_MAX + 1), None);
        assert_eq!(bytes(number::READV, 2, 1), Some(TRANSFER_MAX));
        let is_one = |call, arguments: [u64; 6]| Form::of(call).unwrap().is_one(&arguments, TRANSFER_MAX);
        assert!(is_one(number::READV, [0, start + 32, 1, 0, 0, 0]), "beyond all addresses");
        assert!(!is_one(number::READV, [0, start, 1, 0, 0, 0]));
        assert!(is_one(number::RECVFROM, [0, 0x10_0000, u64::MAX, 0, 0, 0]));
        assert!(!is_one(number::READ, [0, 0x10_0000, 1 << 40, 0, 0, 0]));
        assert!(is_one(number::PREAD64, [0, 0x10_0000, 1 << 40, i64::MAX as u64 - 5, 0, 0]));
    }

    /// "On success, the number of bytes read is returned" (read(2)): of a device, too, that has no end.
    #[test]
    fn what_pieces_are_followed_by() {
        use std::os::fd::AsRawFd;
        let of = |call: usize, file: &dyn AsRawFd| {
            way(Form::of(call).unwrap(), &[file.as_raw_fd() as u64, 0, 0, 0, 0, 0], 3 << 20)
        };
        let open = |path: &str| std::fs::File::open(path).unwrap();
        let path = std::env::temp_dir().join(format!("pleat-transfers-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        let appended = std::fs::File::options().read(true).append(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let is_limited = descriptors::has_size_limit();
        assert_eq!(of(number::WRITE, &file), (!is_limited).then_some(Way::ToTheEnd));
        assert_eq!((of(number::READ, &appended), of(number::WRITE, &appended)), (Some(Way::ToTheEnd), None));
        assert_eq!(of(number::READ, &open("/dev/zero")), Some(Way::On));
        assert_eq!(of(number::READ, &open("/proc/self/maps")), None, "others of its kind wait");
        let (reader, writer) = std::io::pipe().unwrap();
        assert_eq!((of(number::READ, &reader), of(number::READV, &reader)), (Some(Way::Over), None));
        assert_eq!(of(number::WRITEV, &writer), Some(Way::OnUnlessInterrupted));
        let messages = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert_eq!((of(number::WRITE, &messages), of(number::READ, &messages)), (None, None));
    }

    /// Two ends of a connection over TCP.
    fn connection() -> [std::net::TcpStream; 2] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let one = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [one, listener.accept().unwrap().0]
    }

    fn way_of(file: &dyn std::os::fd::AsRawFd, call: usize, flags: u64) -> Option<Way> {
        way(Form::of(call).unwrap(), &[file.as_raw_fd() as u64, 0, 0, flags, 0, 0], 3 << 20)
    }

    #[test]
    fn a_stream_is_read_while_there_is_something() {
        use std::os::fd::AsRawFd;
        let (stream, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(way_of(&stream, number::READ, 0), Some(Way::WhileThereIs));
        let with = |flags| way_of(&stream, number::RECVFROM, flags);
        assert_eq!((with(0x100), with(2)), (None, None), "MSG_WAITALL, MSG_PEEK");
        let file = stream.as_raw_fd() as u64;
        assert!(!descriptors::has_something(file));
        std::io::Write::write_all(&mut other, b"some").unwrap();
        assert!(descriptors::has_something(file));
    }

    #[test]
    fn a_stream_is_written_once_there_is_room() {
        use std::os::fd::AsRawFd;
        let (local, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(way_of(&local, number::WRITE, 0), Some(Way::OnUnlessInterrupted));
        let [stream, other] = connection();
        assert_eq!(way_of(&stream, number::WRITE, 0), Some(Way::OnOnceThereIsRoom));
        assert_eq!(way_of(&stream, number::SENDTO, 0x40), Some(Way::On), "it is not to wait");
        assert_eq!(way_of(&stream, number::READ, 0), Some(Way::WhileThereIs));
        stream.set_nonblocking(true).unwrap();
        assert_eq!(way_of(&stream, number::WRITE, 0), Some(Way::On));
        stream.set_write_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
        assert_eq!(way_of(&stream, number::WRITE, 0), None);
        stream.set_write_timeout(None).unwrap();
        let file = stream.as_raw_fd() as u64;
        assert_eq!(descriptors::room(file), Room::Some);
        std::iter::repeat_with(|| std::io::Write::write(&mut &stream, &[0; 8192])).find(Result::is_err);
        assert_eq!(descriptors::room(file), Room::None);
        // With something unread: a reset.
        drop(other);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(descriptors::room(file), Room::Broken);
    }
}
