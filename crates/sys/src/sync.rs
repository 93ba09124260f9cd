//! Locks that need nothing of libc: a futex mutex, and an event to wait for.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use crate::futex::{self, COURTESY_SPINS, SPINS};
pub use crate::futex::{AtomicBool, AtomicU32, AtomicU64, Ordering, Sharing};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Mutual exclusion. A futex, so that a waiter sleeps; no poisoning, because a panic ends the program.
///
/// Who holds it for long stretches with short breaks would hardly let anybody else in. So one of the threads may be in a
/// hurry ([`Lock::lock_first`]): while it waits the others hold back.
#[derive(Debug)]
pub struct Lock<T> {
    word: AtomicU32,
    /// Threads in a hurry that wait.
    hurried: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the word lets one thread at a time reach the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), hurried: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits until it is free and takes it.
    pub fn lock(&self) -> Held<'_, T> {
        for _ in 0..COURTESY_SPINS {
            // Relaxed: a matter of courtesy, not of order.
            if self.hurried.load(Ordering::Relaxed) == 0 {
                break;
            }
            futex::spin_loop();
        }
        self.take()
    }

    /// The same, ahead of those who use [`Lock::lock`].
    pub fn lock_first(&self) -> Held<'_, T> {
        if let Some(held) = self.try_take() {
            return held;
        }
        self.hurried.fetch_add(1, Ordering::Relaxed);
        let held = self.take();
        self.hurried.fetch_sub(1, Ordering::Relaxed);
        held
    }

    /// Whether somebody holds it. True only for a moment, unless the caller is the only thread: for tests.
    pub fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) != FREE
    }

    fn try_take(&self) -> Option<Held<'_, T>> {
        // Acquire: sees everything that the last holder wrote.
        let taken = self.word.compare_exchange_weak(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Held { lock: self })
    }

    fn take(&self) -> Held<'_, T> {
        for _ in 0..SPINS {
            if let Some(held) = self.try_take() {
                return held;
            }
            futex::spin_loop();
        }
        // Acquire, as above. Whoever comes this way leaves the word at CONTENDED, so that the holder wakes somebody.
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            // Whether the word has changed or a signal came: look again.
            futex::wait(&self.word, CONTENDED, None, Sharing::Process);
        }
        Held { lock: self }
    }

    /// The value, whoever held the lock: the caller has it all to himself.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// Frees a lock whose holder does not exist: the copy of a lock in a forked child, held there by a thread of the
    /// parent.
    ///
    /// # Safety
    /// No thread of this process holds the lock or waits for it.
    pub unsafe fn reset(&self) {
        self.word.store(FREE, Ordering::Release);
        self.hurried.store(0, Ordering::Relaxed);
    }
}

/// Access to a lock's value, until dropped.
#[derive(Debug)]
pub struct Held<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: `Held` exists only while this thread holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: `Held` exists only while this thread holds the lock, and is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // Release: the next holder sees what was written here.
        if self.lock.word.swap(FREE, Ordering::Release) == CONTENDED {
            futex::wake(&self.lock.word, 1, Sharing::Process);
        }
    }
}

/// Waits until `word` differs from `value`, a wake-up comes, or the time is over. Who shares the word between
/// processes says so by `shared`.
pub fn wait_while(word: &AtomicU32, value: u32, limit: Duration, shared: Sharing) {
    futex::wait(word, value, Some(limit), shared);
}

/// Wakes everybody in [`wait_while`] on `word`.
pub fn wake_all(word: &AtomicU32, shared: Sharing) {
    futex::wake(word, i32::MAX as u32, shared);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_increment_is_lost() {
        static COUNT: Lock<u64> = Lock::new(0);
        let threads: Vec<_> = (0..4)
            .map(|at| {
                std::thread::spawn(move || {
                    for _ in 0..50_000 {
                        *if at == 0 { COUNT.lock_first() } else { COUNT.lock() } += 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*COUNT.lock(), 200_000);
    }

    #[test]
    fn waiting_ends() {
        let word = AtomicU32::new(3);
        wait_while(&word, 3, Duration::from_millis(1), Sharing::Process);
        wait_while(&word, 4, Duration::from_secs(100), Sharing::Machine);
        wake_all(&word, Sharing::Machine);
    }
}
