//! What memory a call uses, read from its arguments, and bringing it in.
//!
//! All of this runs inside the signal handler of `trap`, on the program's thread. The program's memory is read through
//! `copy_in`, which answers false where a plain read would be a fault: the kernel will say EFAULT about it in its turn.

use core::mem::MaybeUninit;

use page::PAGE_BYTES;

use super::calls::Piece;
use super::holds::Hold;
use super::stubs::{copy, touch};

/// Addresses of programs end here, without five-level page tables that a program must ask for.
pub(super) const ADDRESS_END: u64 = 1 << 47;
/// No structure, name or path that the kernel takes without a length is longer.
pub(super) const STRUCTURE_BYTES: u64 = 4096;
/// Longest string of execve (`MAX_ARG_STRLEN`).
const ARGUMENT_BYTES: u64 = 128 << 10;
/// Most elements of a vector (`UIO_MAXIOV`, `FUTEX_WAITV_MAX` is less).
pub(super) const VECTOR_MAX: u64 = 1024;
/// Most requests that are submitted at once: of all processes together there are no more, where nobody has asked for them (`aio-max-nr`).
const REQUESTS_MAX: u64 = 1 << 16;
/// Pages of one range that cannot be touched before the rest is left to the kernel.
const FAILURES_MAX: u32 = 8;
/// Most instructions of a filter (`BPF_MAXINSNS`), of eight bytes each.
const INSTRUCTIONS_MAX: u64 = 4096;
/// What `mq_notify` keeps for who waits (`NOTIFY_COOKIE_LEN`).
const COOKIE_BYTES: u64 = 32;
/// Most that one read or write of the kernel transfers (`MAX_RW_COUNT`).
pub(super) const TRANSFER_MAX: u64 = 0x7fff_f000;

/// The memory of one call.
pub(super) struct Memory<'a> {
    pub(super) hold: &'a mut Hold,
    /// Addresses that are never managed: the stack that the call comes from.
    pub(super) safe: core::ops::Range<u64>,
}

/// Copies `N` words of the program's.
pub(super) fn copy_in<const N: usize>(from: u64) -> Option<[u64; N]> {
    let mut words = MaybeUninit::<[u64; N]>::uninit();
    // SAFETY: the target has room for N words; `copy` answers false instead of faulting on the source.
    let whole = is_address(from) && unsafe { copy(words.as_mut_ptr().cast(), from as *const u8, N * 8) };
    // SAFETY: all words have been written.
    whole.then(|| unsafe { words.assume_init() })
}

/// Copies words to the program.
pub(super) fn copy_out<const N: usize>(to: u64, words: [u64; N]) -> bool {
    // SAFETY: the program names the place for the kernel to write to; `copy` answers false where it cannot be written.
    is_address(to) && unsafe { copy(to as *mut u8, words.as_ptr().cast(), N * 8) }
}

/// The four bytes there, or 0.
pub(super) fn number_at(at: u64) -> u64 {
    let mut bytes = [0_u8; 4];
    // SAFETY: four bytes into four; `copy` answers false instead of faulting on the source.
    let whole = is_address(at) && unsafe { copy(bytes.as_mut_ptr(), at as *const u8, 4) };
    if whole { u64::from(u32::from_ne_bytes(bytes)) } else { 0 }
}

fn is_address(value: u64) -> bool {
    (0x1_0000..ADDRESS_END).contains(&value)
}

impl Memory<'_> {
    /// Adds what `pieces` say of these arguments.
    pub(super) fn gather(&mut self, pieces: &[Piece], arguments: &[u64; 6]) {
        for piece in pieces {
            self.piece(*piece, arguments);
        }
    }

    /// Adds `bytes` from `start` on.
    pub(super) fn add(&mut self, start: u64, bytes: u64) {
        if !is_address(start) || bytes == 0 {
            return;
        }
        let end = start.saturating_add(bytes).min(ADDRESS_END);
        if !(self.safe.start <= start && end <= self.safe.end) {
            self.hold.add(start, end);
        }
    }

    fn piece(&mut self, piece: Piece, arguments: &[u64; 6]) {
        let of = |at: u8| arguments[usize::from(at)];
        match piece {
            Piece::Any => arguments.iter().for_each(|argument| self.add(*argument, STRUCTURE_BYTES)),
            Piece::Str(at) => self.string(of(at), STRUCTURE_BYTES),
            Piece::Fix(at, bytes) => self.add(of(at), u64::from(bytes)),
            Piece::Buf(at, length) => self.add(of(at), of(length).min(TRANSFER_MAX)),
            Piece::Past(at, length) => self.add(of(at).saturating_add(of(length).min(TRANSFER_MAX)), 8),
            Piece::Arr(at, count, bytes) => self.add(of(at), of(count).min(TRANSFER_MAX) * u64::from(bytes)),
            Piece::LenPtr(at, length) => self.with_length(of(at), of(length)),
            Piece::Answer => self.answer(of(1) & 0xffff_ffff, of(2) & 0xffff_ffff, of(3), of(4)),
            Piece::Iov(at, count) => self.vector(of(at), of(count)),
            Piece::Msg(at) => self.message(of(at)),
            Piece::Msgs(at, count) => self.elements(of(at), of(count), 64, Self::message),
            Piece::Strs(at) => self.strings(of(at)),
            Piece::Prog(at) => self.program(of(at)),
            Piece::Sets => (1..4).for_each(|at| self.add(of(at), of(0).min(1 << 20).div_ceil(64) * 8)),
            Piece::Residency => self.add(of(2), of(1).div_ceil(PAGE_BYTES as u64)),
            Piece::Ioctl => self.device(of(1), of(2)),
            Piece::Words(at, length) => {
                self.add(of(at), of(length).min(STRUCTURE_BYTES));
                self.words(of(at), of(length).min(256));
            }
            Piece::Key => self.key(arguments),
            // SIGEV_THREAD.
            Piece::Cookie(at) => {
                if let Some([cookie, how]) = copy_in(of(at))
                    && how >> 32 == 2
                {
                    self.add(cookie, COOKIE_BYTES);
                }
            }
            // GETALL and SETALL; SEMMSL is 32000 semaphores of two bytes.
            Piece::Sems if matches!(of(2), 13 | 17) => self.add(of(3), 64000),
            Piece::Remote if of(0) == u64::from(super::armed_process()) => self.vector(of(3), of(4)),
            Piece::Requests(at, count) => self.requests(of(at), of(count)),
            Piece::Waits(at, count) => self.elements(of(at), of(count), 24, Self::wait),
            Piece::WaitPair(at) => self.elements(of(at), 2, 24, Self::wait),
            Piece::Value(at, bytes) => self.value(of(at), of(bytes)),
            Piece::Traced => self.traced(of(0), of(2), of(3)),
            Piece::Program => {
                self.add(of(2), STRUCTURE_BYTES);
                self.program(of(2));
            }
            // MADV_POPULATE_READ and MADV_POPULATE_WRITE.
            Piece::Populated if matches!(of(2), 22 | 23) => self.add(of(0), of(1)),
            Piece::Sems | Piece::Remote | Piece::Populated => {}
        }
    }

    fn string(&mut self, start: u64, bytes_max: u64) {
        let mut length = 0;
        while is_address(start) && length < bytes_max {
            let at = start + length;
            let step = (64 - at % 64).min(bytes_max - length);
            let mut bytes = [1_u8; 64];
            // SAFETY: at most 64 bytes go into 64; `copy` answers false instead of faulting on the source.
            if !unsafe { copy(bytes.as_mut_ptr(), at as *const u8, step as usize) } {
                break;
            }
            if let Some(end) = bytes[..step as usize].iter().position(|byte| *byte == 0) {
                length += end as u64 + 1;
                break;
            }
            length += step;
        }
        self.add(start, length);
    }

    fn strings(&mut self, start: u64) {
        let word = |at: u64| copy_in(start.saturating_add(at * 8)).map(|[word]| word);
        let mut count = 0;
        while word(count).is_some_and(|string| string != 0) {
            count += 1;
        }
        // As one range, and the null behind them: between the strings each word would be a range of its own, and each string.
        self.add(start, (count + 1) * 8);
        (0..count).map_while(word).for_each(|string| self.string(string, ARGUMENT_BYTES));
    }

    fn elements(&mut self, start: u64, count: u64, bytes: u64, each: fn(&mut Self, u64)) {
        let count = count.min(VECTOR_MAX);
        self.add(start, count * bytes);
        (0..count).for_each(|at| each(self, start.saturating_add(at * bytes)));
    }

    pub(super) fn vector(&mut self, start: u64, count: u64) {
        self.elements(start, count, 16, |memory, at| {
            if let Some([base, bytes]) = copy_in(at) {
                memory.add(base, bytes.min(TRANSFER_MAX));
            }
        });
    }

    fn message(&mut self, at: u64) {
        self.add(at, 64);
        if let Some([name, name_bytes, vector, count, control, control_bytes]) = copy_in(at) {
            self.add(name, name_bytes & 0xffff);
            self.vector(vector, count);
            self.add(control, control_bytes.min(TRANSFER_MAX));
        }
    }

    fn requests(&mut self, start: u64, count: u64) {
        let count = count.min(REQUESTS_MAX);
        self.add(start, count * 8);
        let requests = (0..count).map_while(|at| copy_in(start.saturating_add(at * 8)));
        requests.for_each(|[request]| self.request(request));
    }

    /// `struct iocb`.
    fn request(&mut self, at: u64) {
        const PREAD: u64 = 0;
        const PWRITE: u64 = 1;
        const PREADV: u64 = 7;
        const PWRITEV: u64 = 8;
        self.add(at, 64);
        let Some([_, _, operation, buffer, count]) = copy_in(at) else { return };
        match operation & 0xffff {
            PREAD | PWRITE => self.add(buffer, count.min(TRANSFER_MAX)),
            PREADV | PWRITEV => self.vector(buffer, count),
            _ => {}
        }
    }

    fn wait(&mut self, at: u64) {
        if let Some([_, word]) = copy_in(at) {
            self.add(word, 4);
        }
    }

    fn with_length(&mut self, start: u64, length: u64) {
        self.add(length, 4);
        self.add(start, number_at(length).min(TRANSFER_MAX));
    }

    /// What ptrace's requests use beyond a page behind each argument.
    fn traced(&mut self, request: u64, address: u64, data: u64) {
        const GET_REGISTERS: u64 = 0x4204;
        const SET_REGISTERS: u64 = 0x4205;
        const PEEK_SIGNALS: u64 = 0x4209;
        const GET_FILTER: u64 = 0x420c;
        const SIGNAL_BYTES: u64 = 128;
        match request {
            GET_REGISTERS | SET_REGISTERS => self.vector(data, 1),
            // `nr` of struct ptrace_peeksiginfo_args.
            PEEK_SIGNALS => self.add(data, number_at(address.saturating_add(12)).min(TRANSFER_MAX) * SIGNAL_BYTES),
            // How long the filter is nobody knows before.
            GET_FILTER => self.add(data, INSTRUCTIONS_MAX * 8),
            _ => {}
        }
    }

    /// Options of getsockopt that use more memory than their length says.
    fn answer(&mut self, level: u64, option: u64, value: u64, length: u64) {
        const SOCKET: u64 = 1;
        const IP: u64 = 0;
        const IPV6: u64 = 41;
        const TCP: u64 = 6;
        const SCTP: u64 = 132;
        const MPTCP: u64 = 284;
        const GET_FILTER: u64 = 26;
        const IP_MSFILTER: u64 = 41;
        const MCAST_MSFILTER: u64 = 48;
        const ZEROCOPY_RECEIVE: u64 = 35;
        const CONNECT_TO_MANY: u64 = 111;
        const FULL_INFORMATION: u64 = 4;
        let number = |at: u64| number_at(value.saturating_add(at));
        match (level, option) {
            // Instructions of eight bytes.
            (SOCKET, GET_FILTER) => self.add(value, number_at(length).min(INSTRUCTIONS_MAX) * 8),
            // imsf_numsrc and gf_numsrc count the array behind the structure.
            (IP, IP_MSFILTER) => self.add(value, (16 + number(12) * 4).min(TRANSFER_MAX)),
            (IP | IPV6, MCAST_MSFILTER) => self.add(value, (144 + number(140) * 128).min(TRANSFER_MAX)),
            // copybuf_address and msg_control, with their lengths.
            (TCP, ZEROCOPY_RECEIVE) => {
                for at in [24, 40] {
                    if let Some([buffer, bytes]) = copy_in(value.saturating_add(at)) {
                        self.add(buffer, (bytes & 0xffff_ffff).min(TRANSFER_MAX));
                    }
                }
            }
            // addrs, of addr_num bytes.
            (SCTP, CONNECT_TO_MANY) => {
                if let Some([_, addresses]) = copy_in(value) {
                    self.add(addresses, number(4).min(TRANSFER_MAX));
                }
            }
            // subflow_info and tcp_info, size_arrays_user elements each, whose sizes are size_sfinfo_user and size_tcpinfo_user.
            (MPTCP, FULL_INFORMATION) => {
                if let Some([_, _, _, subflows, connections]) = copy_in(value) {
                    let elements = number(20).min(VECTOR_MAX);
                    self.add(subflows, elements * number(12).min(STRUCTURE_BYTES));
                    self.add(connections, elements * number(4).min(STRUCTURE_BYTES));
                }
            }
            _ => {}
        }
    }

    fn key(&mut self, arguments: &[u64; 6]) {
        const UPDATE: u64 = 2;
        const DESCRIBE: u64 = 6;
        const READ: u64 = 11;
        const INSTANTIATE: u64 = 12;
        const GET_SECURITY: u64 = 17;
        const INSTANTIATE_IOV: u64 = 20;
        const DH_COMPUTE: u64 = 23;
        const CAPABILITIES: u64 = 31;
        let [option, first, buffer, length, structure, _] = *arguments;
        match option & 0xffff_ffff {
            UPDATE | DESCRIBE | READ | INSTANTIATE | GET_SECURITY => self.add(buffer, length.min(TRANSFER_MAX)),
            INSTANTIATE_IOV => self.vector(buffer, length),
            CAPABILITIES => self.add(first, buffer.min(TRANSFER_MAX)),
            // The names in a struct keyctl_kdf_params.
            DH_COMPUTE => {
                self.add(buffer, length.min(TRANSFER_MAX));
                self.words(structure, 16);
            }
            _ => {}
        }
    }

    /// A length of two bytes, and instructions of eight.
    fn program(&mut self, at: u64) {
        if let Some([count, instructions]) = copy_in(at) {
            self.add(instructions, (count & 0xffff) * 8);
        }
    }

    fn value(&mut self, at: u64, bytes: u64) {
        self.add(at, bytes.min(STRUCTURE_BYTES));
        if let Some([value, size]) = copy_in(at) {
            self.add(value, size & 0xffff_ffff);
        }
    }

    /// Adds a page behind each word of a structure that could be an address.
    pub(super) fn words(&mut self, start: u64, bytes: u64) {
        for at in 0..bytes / 8 {
            match copy_in(start.saturating_add(at * 8)) {
                Some([word]) => self.add(word, STRUCTURE_BYTES),
                None => break,
            }
        }
    }

    /// Brings in what has left of what is held. Only after `Hold::publish`.
    pub(super) fn bring_in(&self) {
        self.hold.ranges(bring_in);
    }
}

/// Touches each page of a range.
pub(super) fn bring_in(start: u64, end: u64) {
    let (mut at, mut failures) = (start, 0);
    while at < end && failures < FAILURES_MAX {
        // SAFETY: reads one byte, or answers false where that would be a fault.
        failures += u32::from(!unsafe { touch(at as *const u8) });
        at = (at | (PAGE_BYTES as u64 - 1)) + 1;
    }
}
