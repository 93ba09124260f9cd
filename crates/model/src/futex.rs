//! Loom's atomics, and a futex on them.
//!
//! What loom does not have is made here. A `SeqCst` access is one between two fences, as processors do it: loom takes it
//! for acquire and release alone. A store is a swap: loom would let one come between the halves of another thread's
//! read-modify-write. And a wait never ends by itself, however short its limit: who needs the
//! limit to go on would have lost a wake-up, and loom reports a deadlock. `Waits::ForALook` is for what is meant to look
//! again.

use core::time::Duration;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::OnceLock;

use loom::thread::{self, Thread};

pub use loom::sync::atomic::Ordering;

/// Once, and no more: each look is another schedule.
pub(crate) const SPINS: u32 = 1;
pub(crate) const COURTESY_SPINS: u32 = 1;

/// Not a yield: whoever spins here spins once.
pub(crate) fn spin_loop() {}

/// As `sys::futex` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Threads of one process.
    Process,
    /// Processes that map the same file.
    Machine,
}

/// Of all orders that the product asks for, the strongest.
pub(crate) fn fence(order: Ordering) {
    assert_eq!(order, Ordering::SeqCst, "a fence of this kind is not here");
    fence_all();
}

/// Loom would look for ever: here who changes the word by an addition wakes.
pub(crate) fn spin_while(word: &AtomicU64, value: u64) {
    let never = u64::MAX;
    let newest = word.compare_exchange(never, never, Ordering::Relaxed, Ordering::Relaxed);
    if newest.unwrap_or_else(|newest| newest) == value {
        park(core::ptr::from_ref(word).cast(), Until::Changed);
    }
    word.load(Ordering::Acquire);
}

fn ordered<R>(order: Ordering, access: impl FnOnce() -> R) -> R {
    if order != Ordering::SeqCst {
        return access();
    }
    fence_all();
    let result = access();
    fence_all();
    result
}

/// A fence, and a point of the schedule before it, which loom's fences are not.
fn fence_all() {
    // A read-modify-write that fails: it orders nothing by itself.
    FENCES.with(|fences| {
        let fences = fences.borrow();
        let fences = fences.as_ref().expect("the schedule has begun");
        let _ = fences.compare_exchange(1, 1, Ordering::Relaxed, Ordering::Relaxed);
    });
    loom::sync::atomic::fence(Ordering::SeqCst);
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// Loom's, made at its first use where a `const fn` is to make it, which loom's cannot be. That use must come before
        /// those of other threads, or loom takes them for a race.
        #[derive(Debug)]
        pub struct $name {
            begin: $value,
            word: OnceLock<loom::sync::atomic::$name>,
        }

        impl Default for $name {
            fn default() -> Self {
                let new = Self::new(<$value>::default());
                new.word();
                new
            }
        }

        #[allow(missing_docs, dead_code, reason = "as in core")]
        impl $name {
            pub const fn new(begin: $value) -> Self {
                Self { begin, word: OnceLock::new() }
            }

            fn word(&self) -> &loom::sync::atomic::$name {
                self.word.get_or_init(|| loom::sync::atomic::$name::new(self.begin))
            }

            pub fn load(&self, order: Ordering) -> $value {
                ordered(order, || self.word().load(order))
            }

            pub fn store(&self, value: $value, order: Ordering) {
                self.swap(value, order);
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                ordered(order, || self.word().swap(value, order))
            }

            pub fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                ordered(success, || self.word().compare_exchange(old, new, success, failure))
            }

            pub fn compare_exchange_weak(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(old, new, success, failure)
            }
        }
    };
}

macro_rules! numbers {
    ($name:ident, $value:ty) => {
        atomic!($name, $value);

        #[allow(missing_docs, dead_code, reason = "as in core")]
        impl $name {
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                let old = ordered(order, || self.word().fetch_add(value, order));
                unpark(core::ptr::from_ref(self).cast(), Until::Changed, u32::MAX);
                old
            }

            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                ordered(order, || self.word().fetch_sub(value, order))
            }

            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                ordered(success, || self.word().fetch_update(success, failure, update))
            }
        }
    };
}

atomic!(AtomicBool, bool);
numbers!(AtomicU32, u32);
numbers!(AtomicU64, u64);

/// What a thread that waits goes on for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Woken,
    Changed,
}

struct Waiter {
    word: *const (),
    until: Until,
    thread: Thread,
    is_woken: Rc<Cell<bool>>,
}

thread_local! {
    // Loom's threads take turns on one thread of the system, and change only at loom's own calls.
    static WAITERS: RefCell<Vec<Waiter>> = const { RefCell::new(Vec::new()) };
    static WAITS_END: Cell<bool> = const { Cell::new(false) };
    static FENCES: RefCell<Option<loom::sync::atomic::AtomicU32>> = const { RefCell::new(None) };
}

/// At the beginning of a schedule. `waits_end`: waits with a limit end as soon as nobody else goes on.
pub(crate) fn begin(waits_end: bool) {
    WAITERS.take();
    WAITS_END.set(waits_end);
    FENCES.set(Some(loom::sync::atomic::AtomicU32::new(0)));
}

/// A read-modify-write that modifies nothing: it sees the newest value, and publishes none. Loom knows that two of them
/// cannot change places.
fn newest(word: &AtomicU32) -> u32 {
    let never = u32::MAX;
    word.compare_exchange(never, never, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|newest| newest)
}

pub(crate) fn wait(word: &AtomicU32, value: u32, limit: Option<Duration>, _: Sharing) {
    // No call of loom's from here until this thread waits: the kernel, too, keeps wakers out until it has queued the thread.
    if newest(word) != value {
        return;
    }
    if limit.is_some() && WAITS_END.get() {
        return thread::yield_now();
    }
    park(core::ptr::from_ref(word).cast(), Until::Woken);
}

fn park(word: *const (), until: Until) {
    let is_woken = Rc::new(Cell::new(false));
    let waiter = Waiter { word, until, thread: thread::current(), is_woken: is_woken.clone() };
    WAITERS.with_borrow_mut(|waiters| waiters.push(waiter));
    while !is_woken.get() {
        thread::park();
    }
}

pub(crate) fn wake(word: &AtomicU32, count: u32, _: Sharing) {
    newest(word);
    unpark(core::ptr::from_ref(word).cast(), Until::Woken, count);
}

fn unpark(word: *const (), until: Until, count: u32) {
    let mut left = count;
    let woken: Vec<Waiter> = WAITERS.with_borrow_mut(|waiters| {
        waiters
            .extract_if(.., |waiter| {
                let is_one = left > 0 && waiter.until == until && core::ptr::eq(waiter.word, word);
                left -= u32::from(is_one);
                is_one
            })
            .collect()
    });
    for waiter in woken {
        waiter.is_woken.set(true);
        waiter.thread.unpark();
    }
}
