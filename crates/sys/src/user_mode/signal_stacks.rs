//! Signal stacks of ours, one for each thread. The kernel writes the frames of signals there and nowhere else, because it waits for
//! no page of ours; [`super::deliver`] brings the program's to where the program expects them. The signal stack that the program
//! has set is kept beside, as [`Seen`].

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use page::PAGE_BYTES;

use super::context::Context;
use crate::arch::{number, syscall};
use crate::sync::Lock;
use crate::thread::errno;
use crate::{Area, Errno};

/// From one to the next: a page without access, then the stack. A fork takes 30 KiB of one, and the frame of a signal up to 11 (AMX).
const STEP_BYTES: usize = 128 << 10;
const STACK_BYTES: usize = STEP_BYTES - PAGE_BYTES;
/// On top of each: what its thread's program has set.
const DESK_BYTES: usize = size_of::<Desk>();
/// Stacks of one area: a bit each in a word.
const STACKS_OF_AREA: usize = 64;
/// As many threads as there can be calls at once.
const AREAS_MAX: usize = 128;

pub(super) const SS_DISABLE: u64 = 2;
const SS_ONSTACK: u64 = 1;
const SS_AUTODISARM: u64 = 1 << 31;
/// `MINSIGSTKSZ`.
const SIGNAL_STACK_BYTES_MIN: u64 = 2048;

static BASES: [AtomicPtr<u8>; AREAS_MAX] = [const { AtomicPtr::new(core::ptr::null_mut()) }; AREAS_MAX];
/// Which are taken.
static TAKEN: [AtomicU64; AREAS_MAX] = [const { AtomicU64::new(0) }; AREAS_MAX];
/// Who reserves an area or makes a stack usable.
static MAKING: Lock<[u64; AREAS_MAX]> = Lock::new([0; AREAS_MAX]);

/// Touched by its thread alone, in the handler of SIGSYS or of another signal.
#[repr(C, align(64))]
struct Desk {
    seen: [AtomicU64; 3],
}

/// A thread's signal stack of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SignalStack {
    area: usize,
    at: usize,
}

impl SignalStack {
    /// That of the thread which a signal has interrupted; `None` in a process made by vfork that has none of its own, and where there
    /// was none left.
    pub(super) fn of(context: &Context) -> Option<Self> {
        let [start, flags, _] = context.stack;
        if flags & SS_DISABLE != 0 {
            return None;
        }
        let bases = BASES.iter().map(|base| base.load(Ordering::Acquire) as u64).take_while(|base| *base != 0);
        bases.enumerate().find_map(|(area, base)| {
            let offset = start.checked_sub(base + PAGE_BYTES as u64)? as usize;
            let is_one = offset.is_multiple_of(STEP_BYTES) && offset / STEP_BYTES < STACKS_OF_AREA;
            is_one.then_some(Self { area, at: offset / STEP_BYTES })
        })
    }

    /// Takes one for a thread that is to have none of the program's; `None` if there is none left.
    pub(super) fn take() -> Option<Self> {
        let stack = (0..AREAS_MAX).find_map(|area| {
            let taken = TAKEN[area].fetch_update(Ordering::AcqRel, Ordering::Relaxed, |taken| {
                (taken != u64::MAX).then(|| taken | 1 << taken.trailing_ones())
            });
            taken.ok().map(|taken| Self { area, at: taken.trailing_ones() as usize })
        })?;
        if stack.make_usable().is_err() {
            stack.give_back();
            return None;
        }
        stack.set_seen(Seen::NONE);
        Some(stack)
    }

    /// Nobody runs on it any more.
    pub(super) fn give_back(self) {
        let (word, bit) = taken(Some(self));
        word.fetch_and(!(1 << bit), Ordering::Release);
    }

    fn make_usable(self) -> Result<(), Errno> {
        let mut usable = MAKING.lock();
        if BASES[self.area].load(Ordering::Acquire).is_null() {
            // It is there for as long as the process.
            let base = Area::reserve_closed(STACKS_OF_AREA * STEP_BYTES)?.leave().as_ptr();
            BASES[self.area].store(base, Ordering::Release);
        }
        if usable[self.area] & 1 << self.at == 0 {
            crate::area::make_usable(self.base(), STACK_BYTES)?;
            usable[self.area] |= 1 << self.at;
        }
        Ok(())
    }

    fn base(self) -> *mut u8 {
        BASES[self.area].load(Ordering::Acquire).wrapping_add(self.at * STEP_BYTES + PAGE_BYTES)
    }

    /// `struct stack` of it, as the kernel takes it.
    pub(super) fn words(self) -> [u64; 3] {
        [self.base() as u64, 0, (STACK_BYTES - DESK_BYTES) as u64]
    }

    /// Room at its foot for the processor's state, which the return from a handler is to find.
    pub(super) fn foot(self) -> *mut u8 {
        self.base()
    }

    fn desk(self) -> &'static Desk {
        #[expect(
            clippy::cast_ptr_alignment,
            reason = "a stack ends at a page, and a desk takes as many bytes as it is aligned to"
        )]
        let desk = self.base().wrapping_add(STACK_BYTES - DESK_BYTES).cast::<Desk>();
        // SAFETY: above what the kernel is told of, aligned, and never unmapped. Zeros are a desk.
        unsafe { &*desk }
    }

    /// What the program has set.
    pub(super) fn seen(self) -> Seen {
        let [start, flags, bytes] = self.desk().seen.each_ref().map(|word| word.load(Ordering::Relaxed));
        Seen { start, flags, bytes }
    }

    pub(super) fn set_seen(self, seen: Seen) {
        self.desk().seen.iter().zip(seen.words()).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }
}

/// What assembly clears when nobody runs on a stack any more: a word, and which bit of it. A word of nobody's, where there is none.
pub(super) fn taken(stack: Option<SignalStack>) -> (&'static AtomicU64, u64) {
    static NOBODYS: AtomicU64 = AtomicU64::new(0);
    stack.map_or((&NOBODYS, 0), |stack| (&TAKEN[stack.area], stack.at as u64))
}

/// The signal stack that the program has set for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    start: u64,
    flags: u64,
    bytes: u64,
}

impl Seen {
    pub(super) const NONE: Self = Self { start: 0, flags: SS_DISABLE, bytes: 0 };

    /// `struct stack`, as a frame holds it.
    pub(super) fn words(self) -> [u64; 3] {
        [self.start, self.flags, self.bytes]
    }

    /// Where a handler begins that is to run there; `None` if there is none.
    pub(super) fn top(self) -> Option<u64> {
        (self.bytes != 0).then_some(self.start.wrapping_add(self.bytes))
    }

    /// Whether a stack pointer is on it.
    pub(super) fn has(self, stack_pointer: u64) -> bool {
        let above = stack_pointer.wrapping_sub(self.start);
        self.bytes != 0 && stack_pointer > self.start && above <= self.bytes
    }

    /// The same as the kernel sees it: with `SS_AUTODISARM` nobody is.
    pub(super) fn has_running(self, stack_pointer: u64) -> bool {
        self.flags & SS_AUTODISARM == 0 && self.has(stack_pointer)
    }

    /// What is left of it when a signal has come.
    pub(super) fn behind_signal(self) -> Self {
        if self.flags & SS_AUTODISARM == 0 { self } else { Self::NONE }
    }

    /// What sigaltstack tells who runs at `stack_pointer`.
    pub(super) fn told(self, stack_pointer: u64) -> [u64; 3] {
        let state = match () {
            () if self.bytes == 0 => SS_DISABLE,
            () if self.has_running(stack_pointer) => SS_ONSTACK,
            () => 0,
        };
        [self.start, state | self.flags & SS_AUTODISARM, self.bytes]
    }

    /// What is set after sigaltstack with these words by who runs at `stack_pointer`, as `do_sigaltstack` of Linux answers.
    pub(super) fn changed(self, [start, flags, bytes]: [u64; 3], stack_pointer: u64) -> Result<Self, Errno> {
        // An int, with nothing behind it.
        let flags = flags & u64::from(u32::MAX);
        if self.has_running(stack_pointer) {
            return Err(Errno::PERM);
        }
        match flags & !SS_AUTODISARM {
            SS_DISABLE => Ok(Self { start: 0, flags, bytes: 0 }),
            0 | SS_ONSTACK if bytes < SIGNAL_STACK_BYTES_MIN => Err(Errno::NOMEM),
            0 | SS_ONSTACK => Ok(Self { start, flags, bytes }),
            _ => Err(Errno::INVAL),
        }
    }
}

/// Gives this thread, the first that is trapped, its stack.
pub(super) fn begin() -> Result<(), Errno> {
    let stack = SignalStack::take().ok_or(Errno::NOMEM)?;
    let (ours, mut before) = (stack.words(), [0; 3]);
    // SAFETY: points at two live `struct stack`; the one that is set stays for as long as the process.
    errno(unsafe { syscall(number::SIGALTSTACK, [ours.as_ptr() as usize, before.as_mut_ptr() as usize, 0, 0, 0, 0]) })?;
    let [start, flags, bytes] = before;
    stack.set_seen(Seen { start, flags: flags & u64::from(u32::MAX), bytes });
    Ok(())
}

/// In a forked child, on its only thread, which has `kept`: the stacks of the others are free.
///
/// # Safety
/// No thread of this process makes one usable.
pub(super) unsafe fn reset_in_child(kept: Option<SignalStack>) {
    // SAFETY: the caller's promise.
    unsafe { MAKING.reset() };
    for (area, taken) in TAKEN.iter().enumerate() {
        let own = kept.filter(|stack| stack.area == area).map_or(0, |stack| 1 << stack.at);
        taken.store(own, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plain twin: the kernel's own sigaltstack.
    fn kernels(new: Option<[u64; 3]>) -> (Result<(), Errno>, [u64; 3]) {
        let mut told = [0; 3];
        let new = new.as_ref().map_or(0, |new| new.as_ptr() as usize);
        // SAFETY: null or a live `struct stack`, and room for one. No signal is handled there: who sets one in this test puts it back.
        let set = unsafe { syscall(number::SIGALTSTACK, [new, told.as_mut_ptr() as usize, 0, 0, 0, 0]) };
        (errno(set).map(|_| ()), told)
    }

    #[test]
    fn what_the_program_sees_is_what_the_kernel_would_have_set() {
        let (_, before) = kernels(None);
        kernels(Some(Seen::NONE.words())).0.unwrap();
        let mut seen = Seen::NONE;
        let marker = 0_u8;
        let here = &raw const marker as u64;
        let starts = [0, 0x7000_0000, 0x7100_0000];
        let flags = [0, 1, 2, 3, 4, SS_AUTODISARM, SS_AUTODISARM | 1, SS_AUTODISARM | 2, 7 << 32, 2 | 7 << 32];
        let sizes = [0, 2047, 2048, 128 << 10];
        // Twice: each comes after each other kind of state.
        for step in 0..2 * starts.len() * flags.len() * sizes.len() {
            let words = [starts[step % 3], flags[step / 3 % flags.len()], sizes[step / 30 % sizes.len()]];
            let (answer, told) = kernels(Some(words));
            let changed = seen.changed(words, here);
            assert_eq!(changed.map(|_| ()), answer, "{step}: {words:x?} over {seen:x?}");
            if answer.is_ok() {
                assert_eq!(seen.told(here), told, "{step}: {words:x?}");
            }
            seen = changed.unwrap_or(seen);
            assert_eq!(seen.told(here), kernels(None).1, "{step}: {words:x?}");
        }
        kernels(Some(before)).0.unwrap();
    }

    #[test]
    fn each_thread_has_a_stack_of_its_own_and_it_is_found_by_what_the_kernel_knows() {
        let stacks: Vec<_> = (0..2 * STACKS_OF_AREA).map(|_| SignalStack::take().unwrap()).collect();
        // SAFETY: a context is plain numbers.
        let mut context: Context = unsafe { core::mem::zeroed() };
        for (at, stack) in stacks.iter().enumerate() {
            assert!(!stacks[..at].contains(stack));
            assert_eq!(stack.seen(), Seen::NONE);
            context.stack = stack.words();
            assert_eq!(SignalStack::of(&context), Some(*stack));
            let [start, _, bytes] = stack.words();
            // SAFETY: the stack's last word, which nobody uses.
            unsafe { ((start + bytes - 8) as *mut u64).write(1) };
            assert_eq!(stack.seen(), Seen::NONE, "the desk lies above it");
        }
        for strange in [[0, 0, 8192], Seen::NONE.words(), [stacks[0].words()[0] + 4096, 0, 8192]] {
            context.stack = strange;
            assert_eq!(SignalStack::of(&context), None);
        }
        let first = stacks[0];
        first.set_seen(Seen { start: 1 << 20, flags: 0, bytes: 8192 });
        stacks.into_iter().for_each(SignalStack::give_back);
        let again = SignalStack::take().unwrap();
        assert_eq!((again, again.seen()), (first, Seen::NONE), "free again, and as new");
        again.give_back();
    }
}
