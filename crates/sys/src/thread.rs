//! Bare threads: made by clone(2), unknown to libc, with a descriptor table of their own.
//!
//! libc would allocate a thread's control block with the program's malloc, which is memory that pleat manages; it
//! would signal the thread at every setuid, and count it. A bare thread has its stack and thread block in an [`Area`],
//! blocks all signals, and does not share the program's descriptors: the program can neither see nor close what the
//! agent opens, and finds its own numbers free. Who traces the program's threads is not given it.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;

use page::PAGE_BYTES;
use rustix::fs::{Mode, OFlags, Timespec};

use crate::arch::{self, Succession, ThreadStart, number};
use crate::proc_files::visit_numbers;
use crate::{Area, Errno};

mod stand_in;

pub(crate) use stand_in::program_of_stand_in;
pub use stand_in::{step_in, step_out};

const CLONE_VM: usize = 0x100;
const CLONE_FILES: usize = 0x400;
const CLONE_SIGHAND: usize = 0x800;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_SETTLS: usize = 0x8_0000;
const CLONE_PARENT_SETTID: usize = 0x10_0000;
const CLONE_CHILD_CLEARTID: usize = 0x20_0000;
/// A tracer (`strace -f`) is not given this thread: one that stops every thread at its calls, and then reads the memory of another, would
/// wait for a page that only we can bring.
const CLONE_UNTRACED: usize = 0x80_0000;
const CLONE_BARE: usize =
    CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_UNTRACED;

/// Room below the thread pointer, where the initial-exec variables of the host's libraries would be. Nothing of ours
/// uses them; should a foreign function look at one, it finds zeros instead of a fault.
const TLS_BYTES: usize = 16 * PAGE_BYTES;
/// Stack of a bare thread.
const STACK_BYTES: usize = 64 * PAGE_BYTES;

/// The bare threads of this process.
static BARE: [Bare; BARE_MAX] = [const {
    Bare {
        number: AtomicU32::new(NOBODY),
        is_relieved: AtomicU32::new(0),
        stand_in: AtomicU32::new(NOBODY),
        place: AtomicUsize::new(0),
    }
}; BARE_MAX];
/// Each of an agent's three may be two for a moment.
const BARE_MAX: usize = 8;

#[derive(Debug)]
struct Bare {
    /// The kernel writes it before the thread runs, and clears it when it has ended.
    number: AtomicU32,
    /// Not 0: another thread has taken over, and this one ends.
    is_relieved: AtomicU32,
    /// The process that goes on for it, as `number`.
    stand_in: AtomicU32,
    /// Where that has left the stack; 0 while it uses it.
    place: AtomicUsize,
}

const NOBODY: u32 = 0;
/// Is being made.
const SOMEBODY: u32 = u32::MAX;

/// How many bare threads this process has; `None` while one is being made.
pub fn bare_count() -> Option<u32> {
    let numbers = BARE.iter().map(|bare| bare.number.load(Ordering::Relaxed)).filter(|number| *number != NOBODY);
    numbers.map(|number| (number != SOMEBODY).then_some(1)).sum()
}

/// Whether the thread of this number is a bare one.
pub fn is_bare(thread: u32) -> bool {
    Bare::of(thread).is_some()
}

/// In a forked child: there are none yet.
pub fn forget_bare() {
    for bare in &BARE {
        bare.number.store(NOBODY, Ordering::Relaxed);
        bare.stand_in.store(NOBODY, Ordering::Relaxed);
    }
}

impl Bare {
    fn of(thread: u32) -> Option<&'static Self> {
        BARE.iter().find(|bare| bare.number.load(Ordering::Relaxed) == thread)
    }

    fn with_stand_in(process: u32) -> Option<&'static Self> {
        BARE.iter().find(|bare| bare.stand_in.load(Ordering::Relaxed) == process)
    }

    /// Takes a place for a thread that is to be made, which gives it back where it is not.
    fn take() -> Result<&'static Self, Errno> {
        let is_free =
            |bare: &&Self| bare.number.compare_exchange(NOBODY, SOMEBODY, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let bare = BARE.iter().find(is_free).ok_or(Errno::AGAIN)?;
        bare.is_relieved.store(0, Ordering::Relaxed);
        Ok(bare)
    }

    /// With what clone(2) has answered.
    fn begins(&self, result: isize) -> Result<usize, Errno> {
        if result < 0 {
            self.number.store(NOBODY, Ordering::Relaxed);
        }
        errno(result)
    }
}

/// The memory of one bare thread. Must outlive the thread, which in the agent means: is never dropped.
#[derive(Debug)]
pub struct ThreadMemory(Area);

impl ThreadMemory {
    /// Reserves a stack and a thread block.
    pub fn reserve() -> Result<Self, Errno> {
        Area::reserve(STACK_BYTES + TLS_BYTES + PAGE_BYTES).map(Self)
    }

    /// The addresses it takes.
    pub fn span(&self) -> core::ops::Range<u64> {
        self.0.span()
    }
}

/// Which descriptors a new thread has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Descriptors {
    /// A table of its own, empty.
    Own,
    /// The table of the thread that makes it.
    Shared,
}

/// A signal mask, to be given back to [`unblock_signals`].
#[derive(Clone, Copy, Debug)]
pub struct SignalMask(u64);

impl SignalMask {
    /// One bit a signal, the lowest for signal 1; to be kept where two threads see it.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// What [`SignalMask::bits`] has given.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// Blocks every signal for this thread and returns the mask before.
pub fn block_signals() -> SignalMask {
    let (all, mut before) = (u64::MAX, 0_u64);
    let args = [2 /* SIG_SETMASK */, &raw const all as usize, &raw mut before as usize, 8, 0, 0];
    // SAFETY: both point at eight live bytes on this stack, which is the size given.
    let result = unsafe { arch::syscall(number::RT_SIGPROCMASK, args) };
    assert!(result == 0 || is_left_out(result));
    SignalMask(before)
}

/// Puts a signal mask back.
pub fn unblock_signals(mask: SignalMask) {
    let args = [2 /* SIG_SETMASK */, &raw const mask.0 as usize, 0, 8, 0, 0];
    // SAFETY: points at eight live bytes on this stack.
    let result = unsafe { arch::syscall(number::RT_SIGPROCMASK, args) };
    assert!(result == 0 || is_left_out(result));
}

/// Whether a filter of system calls that asks a tracer (`SECCOMP_RET_TRACE`) has answered for him: bare threads have none.
fn is_left_out(result: isize) -> bool {
    errno(result) == Err(Errno::NOSYS)
}

/// Starts a bare thread with all signals blocked and returns its id.
///
/// # Safety
/// `memory` is used by no other thread and is never freed while the thread lives; `entry` accepts `argument` on
/// another thread, and uses nothing that needs libc's thread data.
pub unsafe fn spawn(
    memory: &ThreadMemory,
    descriptors: Descriptors,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) -> Result<u32, Errno> {
    let top = memory.0.base().wrapping_add(STACK_BYTES);
    #[expect(clippy::cast_ptr_alignment, reason = "the top of the stack and TLS_BYTES are multiples of a page")]
    let tls = top.wrapping_add(TLS_BYTES).cast::<usize>();
    // SAFETY: `tls` is the first word of the last page of the area, which holds nothing yet.
    // Both ABIs we know want the thread pointer to point at itself.
    unsafe { tls.write(tls as usize) };
    // SAFETY: the third word of the same page; glibc's functions read their thread descriptor's address there.
    unsafe { tls.wrapping_add(2).write(tls as usize) };
    let shared = if descriptors == Descriptors::Shared { CLONE_FILES } else { 0 };
    let bare = Bare::take()?;
    let start = ThreadStart {
        flags: CLONE_BARE | CLONE_SETTLS | shared,
        number: bare.number.as_ptr() as usize,
        stack_top: top as usize,
        tls: tls as usize,
        entry: entry as usize,
        argument,
    };
    let mask = block_signals();
    // SAFETY: stack and thread block are the caller's to give (see above); `entry` does not return by its type.
    let result = unsafe { arch::clone_thread(&start) };
    unblock_signals(mask);
    bare.begins(result).map(|tid| tid as u32)
}

/// Goes on as a new bare thread on the same stack, with the same descriptors: nobody traces it, whoever traces this one. It calls `settle`
/// first, with its number, while this one is still there; then this one ends.
pub fn renew(settle: impl FnOnce(u32)) -> Result<(), Errno> {
    let old = Bare::of(thread_id()).expect("a bare thread's own doing");
    if arch::has_shadow_stack() {
        return Err(Errno::NOTSUP);
    }
    let new = Bare::take()?;
    let succession = Succession {
        flags: CLONE_BARE | CLONE_FILES,
        number: new.number.as_ptr() as usize,
        is_relieved: old.is_relieved.as_ptr() as usize,
    };
    // SAFETY: both words are static; libc does not know this thread, which blocks all signals, and nobody waits for its end.
    let result = unsafe { arch::clone_on_this_stack(&succession) };
    new.begins(result)?;
    settle(thread_id());
    // Release: the old one ends after all of that. It looks at nothing else.
    old.is_relieved.store(1, Ordering::Release);
    Ok(())
}

/// Takes over the descriptor of that number in this thread's table.
///
/// # Safety
/// It is open, and nobody else owns it.
pub unsafe fn take_descriptor(number: i32) -> rustix::fd::OwnedFd {
    use rustix::fd::FromRawFd;
    // SAFETY: the caller's promise.
    unsafe { rustix::fd::OwnedFd::from_raw_fd(number) }
}

/// Closes every descriptor of this thread's table. Only for a thread that has a table of its own.
pub fn close_all_descriptors() {
    // SAFETY: takes three numbers; nothing of ours is open yet on a thread that has just been made.
    let result = unsafe { arch::syscall(number::CLOSE_RANGE, [0, u32::MAX as usize, 0, 0, 0, 0]) };
    if is_left_out(result) {
        close_those_of_proc();
        return;
    }
    assert!(result == 0);
}

/// What /proc can tell of this thread's descriptors it closes one by one.
fn close_those_of_proc() {
    use rustix::fd::AsRawFd as _;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(c"/proc/thread-self/fd", flags, Mode::empty()) else { return };
    let _ = visit_numbers(&directory, &mut |number| {
        if number as i32 != directory.as_raw_fd() {
            // SAFETY: nothing of ours is open yet.
            unsafe { rustix::io::close(number as i32) };
        }
    });
}

/// Leaves the directory in which this thread was made, so that its file system can be unmounted: the program, which may have moved
/// on, does not share its directory with us. Paths that the agent opens are absolute.
pub fn leave_directory() {
    // Whoever may not search the root stays where it is.
    let _ = rustix::process::chdir(c"/");
}

/// Whether there is a thread of this number, of whatever process, as this one sees numbers. By kill, which sandboxes allow rather
/// than tkill, and which takes threads, too.
pub fn exists(thread: u32) -> bool {
    // SAFETY: takes two numbers; no signal is sent.
    let result = unsafe { arch::syscall(number::KILL, [thread as usize, 0, 0, 0, 0, 0]) };
    errno(result) != Err(Errno::SRCH)
}

/// Whether another thread's memory is not this one's, or no thread has that number; `None` where the kernel does not tell (no
/// `CONFIG_KCMP`, no right to look).
pub fn memory_differs(thread: u32) -> Option<bool> {
    memories_differ(thread_id(), thread)
}

/// The same of two threads, of whatever processes.
pub fn memories_differ(one: u32, other: u32) -> Option<bool> {
    const KCMP_VM: usize = 1;
    // SAFETY: takes numbers.
    let result = unsafe { arch::syscall(number::KCMP, [one as usize, other as usize, KCMP_VM, 0, 0, 0]) };
    match errno(result) {
        Err(Errno::PERM | Errno::NOSYS | Errno::ACCESS) => None,
        answer => Some(answer != Ok(0)),
    }
}

/// Ends this thread, a bare one, alone.
pub fn exit_thread() -> ! {
    loop {
        // SAFETY: takes a number and does not return.
        unsafe { arch::syscall(number::EXIT, [0; 6]) };
    }
}

/// Ends the whole program by SIGKILL, which nobody can catch; by exit if even that fails.
pub fn kill_program() -> ! {
    let pid = process_id() as usize;
    // SAFETY: takes two numbers.
    unsafe { arch::syscall(number::KILL, [pid, 9, 0, 0, 0, 0]) };
    loop {
        // SAFETY: takes a number and does not return.
        unsafe { arch::syscall(number::EXIT_GROUP, [125, 0, 0, 0, 0, 0]) };
    }
}

/// Ends this process, as `exit_group(2)` does; on a stand-in its program.
pub fn exit_process(status: u8) -> ! {
    if program_of_stand_in().is_some() {
        step_in();
    }
    exit_group(status)
}

fn exit_group(status: u8) -> ! {
    loop {
        // SAFETY: takes a number and does not return.
        unsafe { arch::syscall(number::EXIT_GROUP, [status.into(), 0, 0, 0, 0, 0]) };
    }
}

/// This process's id, asked anew each time: after fork it is another. To a stand-in ([`stand_in`]) that of its program.
pub fn process_id() -> u32 {
    // SAFETY: takes nothing.
    let process = unsafe { arch::syscall(number::GETPID, [0; 6]) as u32 };
    stand_in::program_of(process).unwrap_or(process)
}

/// This thread's id.
pub fn thread_id() -> u32 {
    // SAFETY: takes nothing.
    unsafe { arch::syscall(number::GETTID, [0; 6]) as u32 }
}

/// Asks for short time slices and an early turn for this thread (EEVDF, Linux 6.12). A refusal costs nothing else.
pub fn ask_for_short_slices() {
    #[repr(C)]
    #[derive(Default)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    // A tenth of a millisecond is the shortest slice that the kernel takes.
    let mut attr = SchedAttr { size: size_of::<SchedAttr>() as u32, runtime: 100_000, nice: -10, ..Default::default() };
    for nice in [-10, 0] {
        attr.nice = nice; // Raising it needs CAP_SYS_NICE; the slice does not.
        // SAFETY: points at a live structure whose size it names.
        let result = unsafe { arch::syscall(number::SCHED_SETATTR, [0, &raw const attr as usize, 0, 0, 0, 0]) };
        if result == 0 {
            return;
        }
    }
}

/// Lets all others of its group go before this thread.
pub fn lower_priority() {
    // Can always be lowered. Linux takes 0 for the calling thread alone.
    let _ = rustix::process::setpriority_process(None, 19);
}

/// From -20, which goes first, to 19.
pub fn niceness() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or(0)
}

/// A set of processors.
#[derive(Clone, Debug)]
pub struct Processors(rustix::thread::CpuSet);

impl Processors {
    /// Those that this thread may run on.
    pub fn allowed() -> Option<Self> {
        rustix::thread::sched_getaffinity(None).ok().map(Self)
    }

    /// How many they are.
    pub fn count(&self) -> u32 {
        self.0.count()
    }

    /// Their numbers, the lowest first.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|one| self.0.is_set(*one))
    }

    /// The other one, if there are just two.
    pub fn other_than(&self, processor: usize) -> Option<usize> {
        let mut numbers = self.numbers();
        match (numbers.next()?, numbers.next()?, numbers.next()) {
            (one, other, None) if one == processor => Some(other),
            (other, one, None) if one == processor => Some(other),
            _ => None,
        }
    }
}

/// Keeps this thread on one processor. A refusal leaves it where it is.
pub fn pin_to(processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    if processor < rustix::thread::CpuSet::MAX_CPU {
        set.set(processor);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// Lets this thread run on any of these processors.
pub fn unpin(processors: &Processors) {
    let _ = rustix::thread::sched_setaffinity(None, &processors.0);
}

/// The processor that a thread of this process last ran on: field 39 of its stat file.
pub fn processor_of(thread: u32) -> Option<usize> {
    use rustix::fs::{Mode, OFlags};
    let mut path = [0; 48];
    let path = decimal_path(b"/proc/self/task/", thread, b"/stat\0", &mut path)?;
    let stat = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 1024];
    let length = rustix::io::read(&stat, &mut text).ok()?;
    let text = core::str::from_utf8(text[..length].rsplit(|byte| *byte == b')').next()?).ok()?;
    text.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// `before`, a number, `after` (which ends with a zero byte), without a heap.
pub(crate) fn decimal_path<'a>(
    before: &[u8],
    number: u32,
    after: &[u8],
    out: &'a mut [u8],
) -> Option<&'a core::ffi::CStr> {
    let mut digits = [0; 10];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let mut used = 0;
    for part in [before, &digits[start..], after] {
        out.get_mut(used..used + part.len())?.copy_from_slice(part);
        used += part.len();
    }
    core::ffi::CStr::from_bytes_with_nul(&out[..used]).ok()
}

/// Lets this thread sleep.
pub fn sleep(time: Duration) {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // An early return means a shorter sleep; every caller loops.
    let _ = rustix::thread::nanosleep(&time);
}

/// The kernel's answer as a result.
pub(crate) fn errno(result: isize) -> Result<usize, Errno> {
    if result < 0 { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(result as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_shares_memory_with_this_one_and_another_process_does_not() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            sender.send(thread_id()).unwrap();
            std::thread::park();
        });
        assert_eq!(memory_differs(receiver.recv().unwrap()), Some(false));
        other.thread().unpark();
        other.join().unwrap();
        let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(memory_differs(process.id()), Some(true));
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(memory_differs(process.id()), Some(true), "it is gone");
    }

    static SEEN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn entry(argument: usize) -> ! {
        close_all_descriptors();
        leave_directory();
        SEEN.store(argument as u32, Ordering::Release);
        exit_thread()
    }

    #[test]
    fn a_bare_thread_runs_and_leaves_our_descriptors_alone() {
        let memory = Box::leak(Box::new(ThreadMemory::reserve().unwrap()));
        let file = std::fs::File::open("/proc/self/statm").unwrap();
        // SAFETY: the memory is leaked; the entry uses two system calls and a static.
        unsafe { spawn(memory, Descriptors::Own, entry, 77).unwrap() };
        while SEEN.load(Ordering::Acquire) != 77 {
            sleep(Duration::from_millis(1));
        }
        assert!(file.metadata().is_ok());
        assert_ne!(std::env::current_dir().unwrap(), std::path::Path::new("/"), "the thread's directory is its own");
    }

    /// Libc's functions, and a panic, want a thread of libc's: what has been is written down.
    extern "C" fn renew_itself(_argument: usize) -> ! {
        for _ in 0..RENEWALS {
            let before = thread_id();
            let settle = |number| {
                let is_in_between = number != before && is_bare(before) && exists(before) && is_bare(number);
                RENEWED.fetch_add(is_in_between.into(), Ordering::Relaxed);
            };
            if renew(settle).is_err() {
                break;
            }
            while is_bare(before) {
                sleep(Duration::from_micros(10));
            }
        }
        IS_OVER.store(1, Ordering::Release);
        exit_thread()
    }

    static RENEWED: AtomicU32 = AtomicU32::new(0);
    static IS_OVER: AtomicU32 = AtomicU32::new(0);
    const RENEWALS: u32 = 100;

    #[test]
    fn a_bare_thread_goes_on_as_another_one() {
        let memory = Box::leak(Box::new(ThreadMemory::reserve().unwrap()));
        // SAFETY: the memory is leaked.
        unsafe { spawn(memory, Descriptors::Shared, renew_itself, 0).unwrap() };
        while IS_OVER.load(Ordering::Acquire) == 0 {
            sleep(Duration::from_millis(1));
        }
        assert_eq!(RENEWED.load(Ordering::Relaxed), RENEWALS);
    }

    #[test]
    fn the_other_of_two_processors_is_found() {
        let set = |members: &[usize]| {
            let mut set = rustix::thread::CpuSet::new();
            for &member in members {
                set.set(member);
            }
            Processors(set)
        };
        assert_eq!([3, 65, 4].map(|one| set(&[3, 65]).other_than(one)), [Some(65), Some(3), None]);
        assert_eq!((set(&[3]).other_than(3), set(&[1, 2, 3]).other_than(3)), (None, None));
    }

    #[test]
    fn a_thread_is_found_where_it_runs() {
        let allowed = Processors::allowed().unwrap();
        pin_to(processor_of(thread_id()).unwrap());
        assert_eq!(processor_of(thread_id()), Some(rustix::thread::sched_getcpu()));
        unpin(&allowed);
        assert_eq!(processor_of(u32::MAX), None);
    }

    #[test]
    fn masks_come_back() {
        let before = block_signals();
        unblock_signals(before);
        let again = block_signals();
        unblock_signals(again);
        assert_eq!(before.0, again.0);
    }

    #[test]
    fn a_thread_exists_until_it_has_ended() {
        let number = std::thread::spawn(|| {
            assert!(exists(thread_id()), "not the first of its process");
            thread_id()
        });
        let number = number.join().unwrap();
        // The kernel has it a moment longer than join.
        assert!((0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            !exists(number)
        }));
    }
}
