//! Reads and writes of more than one call may hold, made in pieces, so that what has been read or written may leave before all has.
//!
//! ```text
//!  trap ── begin ──► pleat_piece: the call for one piece ──► the program's own instruction, with GO_ON ── trap ── go_on ─┐
//!                        ▲                                                                                            │
//!                        └─────────────────────────── the next piece, held ◄──────────────────────────────────────────┤
//!                                                       the program, with the sum of what was transferred ◄────────────┘
//! ```
//! Each piece is a call in the program's context, with its signal mask, as any other ([`super::trap`]): it may wait, and be left. What
//! the program sees is what one call does: a file is read and written to the end, whatever signals come; a write to a pipe or a
//! stream that a signal finds in its course says how much there was of it until then, as one that waits does; and reading from them is
//! over with what there is. All other calls on so much are made whole: messages, terminals, and what is appended to a file.

use core::sync::atomic::Ordering;

use super::calls::{self, Class, Piece};
use super::context::Context;
use super::holds::{self, Place, Slot};
use super::hooks;
use super::memory::{TRANSFER_MAX, VECTOR_MAX, copy_in};
use super::stubs::{FRAME_BYTES, pleat_piece, pleat_piece_end, pleat_pieced};
use super::trap::{answer, gather, hold, hold_and_call, note_return, place_at};
use crate::Errno;
use crate::arch::{number, syscall};
use crate::thread;

/// No call's number: what a piece is followed by.
pub(super) const GO_ON: u64 = 0x506c_6561;
/// The program's instruction, `0f 05`.
pub(super) const SYSCALL_BYTES: u64 = 2;
const SYSCALL: u64 = 0x050f;
/// What is held at once, at least.
const PIECE_BYTES: u64 = 1 << 20;

/// Words of a slot's `scratch`: what was transferred before this piece, what it has returned, its length, and [`Way`].
const DONE: usize = 0;
pub(super) const RESULT: usize = 1;
const LENGTH: usize = 2;
const WAY: usize = 3;

/// What a piece is followed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Way {
    /// A file: by the next.
    On,
    /// A pipe or stream that is written: by the next, unless a signal comes.
    OnUnlessInterrupted,
    /// Such a one, and a signal has come.
    Interrupted,
    /// A pipe or stream that is read: by nothing.
    Over,
}

impl Way {
    fn of(slot: &Slot) -> Self {
        match slot.scratch[WAY].load(Ordering::Relaxed) {
            0 => Self::On,
            1 => Self::OnUnlessInterrupted,
            2 => Self::Interrupted,
            _ => Self::Over,
        }
    }
}

/// What of such a call concerns us.
#[derive(Clone, Copy)]
struct Form {
    /// The call for a piece.
    piece: usize,
    has_vector: bool,
    is_write: bool,
}

impl Form {
    fn of(call: usize) -> Option<Self> {
        let (piece, has_vector, is_write) = match call {
            number::READ | number::PREAD64 | number::RECVFROM => (call, false, false),
            number::WRITE | number::PWRITE64 | number::SENDTO => (call, false, true),
            number::READV => (number::READ, true, false),
            number::PREADV => (number::PREAD64, true, false),
            number::WRITEV => (number::WRITE, true, true),
            number::PWRITEV => (number::PWRITE64, true, true),
            _ => return None,
        };
        Some(Self { piece, has_vector, is_write })
    }

    /// How many bytes the call is to transfer; `None` where it is malformed, and the kernel looks no further.
    fn bytes(self, arguments: &[u64; 6]) -> Option<u64> {
        let [_, start, count, ..] = *arguments;
        let is_length = |bytes: &u64| i64::try_from(*bytes).is_ok();
        if !self.has_vector {
            return Some(count).filter(is_length).map(|bytes| bytes.min(TRANSFER_MAX));
        }
        if count > VECTOR_MAX {
            return None;
        }
        let mut sum = 0;
        for at in 0..count {
            let [_, bytes] = copy_in(start.saturating_add(at * 16))?;
            sum = Some(bytes).filter(is_length)?.saturating_add(sum).min(TRANSFER_MAX);
        }
        Some(sum)
    }

    /// Where the byte at `done` is, and how many follow it without a gap.
    fn at(self, arguments: &[u64; 6], mut done: u64) -> Option<(u64, u64)> {
        let [_, start, count, ..] = *arguments;
        if !self.has_vector {
            return Some((start + done, count.saturating_sub(done)));
        }
        for at in 0..count {
            let [base, bytes] = copy_in(start + at * 16)?;
            if done < bytes {
                return Some((base + done, bytes - done));
            }
            done -= bytes;
        }
        None
    }
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
        let is_read = form.has_vector && arguments[2] <= VECTOR_MAX;
        hold_and_call(context, if is_read { &[Piece::Arr(1, 2, 16)] } else { &[] }, place);
        return true;
    };
    if bytes <= PIECE_BYTES.max((hooks().held_bytes_max)()) {
        return false;
    }
    let is_by_syscall = copy_in(context.rip - SYSCALL_BYTES).is_some_and(|[word]| word & 0xffff == SYSCALL);
    let Some(way) = way(form, &arguments).filter(|_| is_by_syscall) else { return false };
    Transfer { form, call: context.rax, arguments, bytes, done: 0, way }.make_piece(context, place)
}

/// Behind a piece: the next, or the result of all.
pub(super) fn go_on(context: &mut Context) {
    let Some(slot) = slot(context).filter(|slot| slot.belongs_to(thread::thread_id())) else {
        context.rax = answer(Err(Errno::NOSYS));
        return;
    };
    let word = |at: usize| slot.scratch[at].load(Ordering::Relaxed);
    let (result, length, way) = (word(RESULT) as i64, word(LENGTH), Way::of(slot));
    let done = word(DONE) + u64::try_from(result).unwrap_or(0);
    let call = slot.call.load(Ordering::Relaxed);
    let arguments = slot.arguments.each_ref().map(|argument| argument.load(Ordering::Relaxed));
    slot.let_go();
    context.rsp += FRAME_BYTES;
    context.set_arguments(arguments);
    let is_over = result < length as i64 || matches!(way, Way::Over | Way::Interrupted);
    if let Some(form) = Form::of(call as usize).filter(|_| !is_over)
        && let Some(bytes) = form.bytes(&arguments).filter(|bytes| done < *bytes)
        && (Transfer { form, call, arguments, bytes, done, way }).make_piece(context, place_at(context.rsp))
    {
        return;
    }
    // What has failed has failed for the next call again.
    context.rax = if done == 0 { result as u64 } else { done };
}

/// A signal is about to be delivered to this context: between two pieces it must be as if it had come while the call waited.
pub(super) fn interrupt(context: &mut Context) {
    let [first, behind, end] = [pleat_piece as *const (), pleat_pieced as *const (), pleat_piece_end as *const ()];
    let is_at_trap = context.rax == GO_ON && !(first as u64..end as u64).contains(&context.rip);
    if !is_at_trap && !(first as u64..end as u64).contains(&context.rip) {
        return;
    }
    let Some(slot) = slot_on_stack(context) else { return };
    if is_at_trap {
        if slot.back.load(Ordering::Relaxed) - SYSCALL_BYTES != context.rip {
            return;
        }
        // Where unwinders know the frame.
        context.rax = slot.scratch[RESULT].load(Ordering::Relaxed);
        context.rip = behind as u64;
    }
    if Way::of(slot) != Way::OnUnlessInterrupted {
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

/// The slot of a piece that has just been made.
fn slot(context: &Context) -> Option<&'static Slot> {
    let slot = slot_on_stack(context)?;
    let is_it = context.rdi == core::ptr::from_ref(slot) as u64 && slot.back.load(Ordering::Relaxed) == context.rip;
    is_it.then_some(slot)
}

fn slot_on_stack(context: &Context) -> Option<&'static Slot> {
    copy_in(context.rsp).and_then(|[slot]| holds::slot_at(slot))
}

/// Whether and how pieces can follow one another on what a call is for.
fn way(form: Form, arguments: &[u64; 6]) -> Option<Way> {
    const S_IFMT: u32 = 0o170_000;
    const S_IFIFO: u32 = 0o010_000;
    const S_IFCHR: u32 = 0o020_000;
    const S_IFBLK: u32 = 0o060_000;
    const S_IFREG: u32 = 0o100_000;
    const S_IFSOCK: u32 = 0o140_000;
    let status = status(arguments[0])?;
    let of_stream = match (form.is_write, form.has_vector) {
        (true, _) => Some(Way::OnUnlessInterrupted),
        (false, false) => Some(Way::Over),
        // Pieces end where an element does, and the first may be a small one.
        (false, true) => None,
    };
    match status.mode & S_IFMT {
        S_IFREG | S_IFBLK => (!form.is_write || !appends(arguments[0])).then_some(Way::On),
        S_IFCHR if status.is_memory_device() => Some(Way::On),
        S_IFIFO => of_stream,
        S_IFSOCK if is_stream(form, arguments) => of_stream,
        _ => None,
    }
}

/// Of `struct stat`, 144 bytes.
struct Status {
    mode: u32,
    device: u64,
}

impl Status {
    /// `/dev/zero`, `/dev/urandom` and others that never wait.
    fn is_memory_device(&self) -> bool {
        self.device >> 8 & 0xfff == 1
    }
}

fn status(file: u64) -> Option<Status> {
    let mut words = [0_u64; 18];
    // SAFETY: writes a structure of the array's size.
    let result = unsafe { syscall(number::FSTAT, [file as usize, words.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    (result == 0).then_some(Status { mode: words[3] as u32, device: words[5] })
}

/// Each piece would come behind what others have appended meanwhile.
fn appends(file: u64) -> bool {
    const F_GETFL: usize = 3;
    const O_APPEND: isize = 0o2000;
    // SAFETY: takes numbers.
    let flags = unsafe { syscall(number::FCNTL, [file as usize, F_GETFL, 0, 0, 0, 0]) };
    flags < 0 || flags & O_APPEND != 0
}

/// A socket without borders between messages, used as one.
fn is_stream(form: Form, arguments: &[u64; 6]) -> bool {
    const SOL_SOCKET: usize = 1;
    const SO_TYPE: usize = 3;
    const SOCK_STREAM: u32 = 1;
    /// Dontwait, nosignal, more, `cmsg_cloexec`.
    const PLAIN_FLAGS: u64 = 0x40 | 0x4000 | 0x8000 | 0x4000_0000;
    let [file, _, _, flags, address, _] = *arguments;
    if form.piece == number::SENDTO && address != 0
        || matches!(form.piece, number::SENDTO | number::RECVFROM) && flags & !PLAIN_FLAGS != 0
    {
        return false;
    }
    let (mut kind, mut bytes) = (0_u32, 4_u32);
    let asked = [file as usize, SOL_SOCKET, SO_TYPE, &raw mut kind as usize, &raw mut bytes as usize, 0];
    // SAFETY: points at live words.
    let result = unsafe { syscall(number::GETSOCKOPT, asked) };
    result == 0 && kind == SOCK_STREAM
}

impl Transfer {
    /// Holds the piece that comes next and lets the program make a call for it; false if there is none.
    fn make_piece(self, context: &mut Context, place: Place) -> bool {
        let Some((start, follow)) = self.form.at(&self.arguments, self.done) else { return false };
        let length = follow.min(self.bytes - self.done).min(PIECE_BYTES);
        let (call, piece) = self.piece(start, length);
        let Class::Holds(held) = calls::class(call as u64) else { return false };
        let mut hold = hold(place);
        gather(&mut hold, held, &piece, place);
        note_return(&hold, context, self.arguments);
        let slot = hold.slot();
        slot.sets_mask.store(0, Ordering::Relaxed);
        slot.call.store(self.call, Ordering::Relaxed);
        for (at, word) in [(DONE, self.done), (LENGTH, length), (WAY, self.way as u64)] {
            slot.scratch[at].store(word, Ordering::Relaxed);
        }
        context.rax = call as u64;
        context.set_arguments(piece);
        super::trap::go_on_in(context, slot, pleat_piece);
        true
    }

    /// The call for a piece, and its arguments.
    fn piece(&self, start: u64, length: u64) -> (usize, [u64; 6]) {
        const MSG_NOSIGNAL: u64 = 0x4000;
        let [file, _, _, fourth, fifth, sixth] = self.arguments;
        let is_to_socket =
            self.done > 0 && self.way == Way::OnUnlessInterrupted && is_stream(self.form, &self.arguments);
        match self.form.piece {
            number::PREAD64 | number::PWRITE64 => {
                (self.form.piece, [file, start, length, fourth.wrapping_add(self.done), 0, 0])
            }
            // Who has written something already is told so, and gets no signal.
            number::WRITE if is_to_socket => (number::SENDTO, [file, start, length, MSG_NOSIGNAL, 0, 0]),
            number::SENDTO if is_to_socket => (number::SENDTO, [file, start, length, fourth | MSG_NOSIGNAL, 0, 0]),
            call => (call, [file, start, length, fourth, fifth, sixth]),
        }
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
        let places = [0, 4, 5, 1 << 20].map(|done| form.at(&arguments, done));
        let expected = [(0x10_0000, 5), (0x10_0004, 1), (0x30_0000, 3 << 20), (0x3f_fffb, (2 << 20) + 5)];
        assert_eq!(places, expected.map(Some));
        assert_eq!(form.at(&arguments, (3 << 20) + 5), None);
    }

    #[test]
    fn what_the_kernel_refuses_is_malformed() {
        let vector = [[0x10_0000_u64, 5], [0x20_0000, u64::MAX]];
        let start = core::hint::black_box(&vector).as_ptr() as u64;
        let bytes = |call, count| Form::of(call).unwrap().bytes(&[0, start, count, 0, 0, 0]);
        assert_eq!(bytes(number::READV, 1), Some(5));
        assert_eq!(bytes(number::READV, 2), None, "a negative length");
        assert_eq!(bytes(number::READV, VECTOR_MAX + 1), None);
        assert_eq!(bytes(number::READ, u64::MAX), None);
        assert_eq!(bytes(number::READ, 1 << 40), Some(TRANSFER_MAX));
    }

    /// "On success, the number of bytes read is returned" (read(2)): of a device, too, that has no end.
    #[test]
    fn files_go_on_and_streams_that_are_read_do_not() {
        use std::os::fd::AsRawFd;
        let of =
            |call: usize, file: &dyn AsRawFd| way(Form::of(call).unwrap(), &[file.as_raw_fd() as u64, 0, 0, 0, 0, 0]);
        let open = |path: &str| std::fs::File::open(path).unwrap();
        let path = std::env::temp_dir().join(format!("pleat-transfers-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        let appended = std::fs::File::options().append(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(of(number::WRITE, &file), Some(Way::On));
        assert_eq!((of(number::READ, &appended), of(number::WRITE, &appended)), (Some(Way::On), None));
        assert_eq!(
            (of(number::READ, &open("/dev/zero")), of(number::READ, &open("/proc/self/maps"))),
            (Some(Way::On), Some(Way::On))
        );
        let (reader, writer) = std::io::pipe().unwrap();
        assert_eq!((of(number::READ, &reader), of(number::READV, &reader)), (Some(Way::Over), None));
        assert_eq!(of(number::WRITEV, &writer), Some(Way::OnUnlessInterrupted));
        let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(
            (of(number::WRITE, &stream), of(number::RECVFROM, &stream)),
            (Some(Way::OnUnlessInterrupted), Some(Way::Over))
        );
        let messages = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert_eq!((of(number::WRITE, &messages), of(number::READ, &messages)), (None, None));
    }
}
