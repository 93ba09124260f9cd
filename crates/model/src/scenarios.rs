//! What is gone through. Loom reports a deadlock where a wake-up is lost, and a race where content is read or written that
//! another thread writes.

use core::time::Duration;
use std::sync::Arc;

use loom::cell::Cell;
use loom::thread;
use page::{PageCount, PageIndex};

use crate::announce::Announcements;
use crate::bell::Bell;
use crate::desk::Desk;
use crate::explore::{Waits, explore};
use crate::kernel::PageRange;
use crate::moves::Moves;
use crate::places::{Places, Told as Taken};
use crate::readings::Readings;
use crate::reference_log::{Noted, ReferenceLog};
use crate::stages::{Gate, Stages};
use crate::sync::{AtomicU32, AtomicU64, Lock, Ordering, Sharing, wait_while, wake_all};

const LIMIT: Duration = Duration::from_secs(1);

/// What one thread at a time may change, and nobody may read meanwhile.
#[derive(Default)]
struct Content(Cell<u32>);

// SAFETY: loom ends the test before two threads are at it.
unsafe impl Sync for Content {}

impl Content {
    fn get(&self) -> u32 {
        self.0.get()
    }

    fn set(&self, value: u32) {
        self.0.set(value);
    }
}

/// A word that the kernel, or another part of the product, tells something by.
#[derive(Default)]
struct Told(AtomicU32);

impl Told {
    fn tell(&self) {
        self.0.store(1, Ordering::Release);
        wake_all(&self.0, Sharing::Process);
    }

    fn is_told(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }

    fn wait(&self) {
        while !self.is_told() {
            wait_while(&self.0, 0, LIMIT, Sharing::Process);
        }
    }
}

/// Runs it beside others.
fn spawn<T: Send + Sync + 'static>(shared: &Arc<T>, act: impl FnOnce(&T) + 'static) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || act(&shared))
}

/// Three threads take a lock; one of them is in a hurry. One at a time has it, each gets it, and sees what the last one
/// has written.
pub fn lock() {
    explore(4, Waits::TillWoken, || {
        let lock = Arc::new(Lock::new(Content::default()));
        let add = |lock: &Lock<Content>| {
            let held = lock.lock();
            held.set(held.get() + 1);
        };
        add(&lock);
        let others = [
            spawn(&lock, add),
            spawn(&lock, |lock: &Lock<Content>| {
                let held = lock.lock_first();
                held.set(held.get() + 1);
            }),
        ];
        add(&lock);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(lock.lock().get(), 4);
    });
}

/// A thread holds a page for two calls while another moves it out twice. What a hold covers is not moved, and nobody moves
/// or touches the page amid the other.
pub fn holds_and_moves() {
    #[derive(Default)]
    struct Shared {
        moves: Moves,
        /// Odd while the page is held.
        holds: AtomicU64,
        page: Content,
    }
    impl Shared {
        fn call(&self) {
            self.holds.fetch_add(1, Ordering::Release);
            self.moves.wait();
            self.page.set(1);
            assert_eq!(self.page.get(), 1, "moved while held");
            self.holds.fetch_add(1, Ordering::Release);
        }

        fn move_out(&self) {
            self.moves.run(|| {
                if self.holds.load(Ordering::Acquire).is_multiple_of(2) {
                    self.page.set(0);
                }
            });
        }
    }
    explore(4, Waits::TillWoken, || {
        let shared = Arc::new(Shared::default());
        let caller = spawn(&shared, |shared| (0..2).for_each(|_| shared.call()));
        (0..2).for_each(|_| shared.move_out());
        caller.join().unwrap();
    });
}

/// The forking thread is let go in the middle of a reading, and waits for its end: it sees what the reading has brought,
/// and waits for no later one.
pub fn readings() {
    #[derive(Default)]
    struct Shared {
        readings: Readings,
        is_let_go: Told,
        followed: Content,
    }
    explore(5, Waits::TillWoken, || {
        let shared = Arc::new(Shared::default());
        let reader = spawn(&shared, |shared| {
            shared.readings.begin();
            shared.is_let_go.tell();
            shared.followed.set(1);
            shared.readings.finish();
            shared.readings.begin();
            shared.readings.finish();
        });
        shared.is_let_go.wait();
        shared.readings.wait_for_end();
        assert_eq!(shared.followed.get(), 1);
        reader.join().unwrap();
    });
}

/// Two threads leave work and ring; the reclaimer rests when it sees none. Nothing is left lying.
pub fn bell() {
    #[derive(Default)]
    struct Shared {
        bell: Bell,
        work: [AtomicU32; 2],
    }
    explore(3, Waits::TillWoken, || {
        let shared = Arc::new(Shared::default());
        let others = [0, 1].map(|at| {
            spawn(&shared, move |shared: &Shared| {
                // Relaxed: the bell tells of it.
                shared.work[at].store(1, Ordering::Relaxed);
                shared.bell.ring();
            })
        });
        let mut done = 0;
        while done < 2 {
            let seen = shared.bell.rings();
            let found: Vec<_> = shared.work.iter().filter(|work| work.load(Ordering::Relaxed) == 1).collect();
            for work in &found {
                work.store(0, Ordering::Relaxed);
            }
            done += found.len();
            if found.is_empty() {
                shared.bell.wait(seen, LIMIT);
            }
        }
        for other in others {
            other.join().unwrap();
        }
    });
}

/// Two threads announce what they have mapped, and wait for a scan that has seen it.
pub fn announcements() {
    #[derive(Default)]
    struct Shared {
        announcements: Announcements,
        bell: Bell,
        mapped: [Content; 2],
        scanned: AtomicU32,
    }
    explore(2, Waits::TillWoken, || {
        let shared = Arc::new(Shared::default());
        let others = [0, 1].map(|at| {
            spawn(&shared, move |shared: &Shared| {
                shared.mapped[at].set(1);
                let number = shared.announcements.make();
                shared.bell.ring();
                shared.announcements.wait_for(number, || 0);
                // Relaxed: the scan is told of by the announcements.
                assert!(shared.scanned.load(Ordering::Relaxed) >= number, "it went on before the scan");
            })
        });
        let mut scanned = 0;
        while scanned < 2 {
            let seen = shared.bell.rings();
            if !shared.announcements.is_one_new() {
                shared.bell.wait(seen, LIMIT);
                continue;
            }
            let sight = shared.announcements.sight();
            scanned = sight.made;
            if scanned == 2 {
                assert!(shared.mapped.iter().all(|mapped| mapped.get() == 1));
            }
            shared.scanned.store(scanned, Ordering::Relaxed);
            shared.announcements.have_been_scanned(sight);
        }
        for other in others {
            other.join().unwrap();
        }
    });
}

/// The same, with places, for which there is little room: who has seen an announcement has its place, or knows that one is missing.
pub fn places() {
    #[derive(Default)]
    struct Shared {
        announcements: Announcements,
        places: Places<1>,
    }
    explore(2, Waits::TillWoken, || {
        let shared = Arc::new(Shared::default());
        let others = [0, 1].map(|at| {
            spawn(&shared, move |shared: &Shared| {
                shared.places.put(Some(PageRange::new(PageIndex(at), PageCount(1))));
                shared.announcements.make();
            })
        });
        let (mut told, mut announced) = (Taken::default(), 0);
        while announced < 2 {
            announced = shared.announcements.sight().made;
            shared.places.take(&mut told);
            assert!(told.known().is_none_or(|known| known.len() as u32 >= announced), "a place is missed");
            thread::yield_now();
        }
        for other in others {
            other.join().unwrap();
        }
    });
}

/// The reclaimer leaves two jobs for the writer, with the state locked, and the writer notes what became of them under
/// the same lock. Each is written once.
pub fn desk() {
    struct Shared {
        desk: Desk<u32>,
        /// Jobs given, and jobs written.
        state: Lock<(Content, Content)>,
        bell: Bell,
    }
    const JOBS: u32 = 2;
    explore(3, Waits::TillWoken, || {
        let desk = Desk::new();
        desk.open();
        assert!(desk.take().is_none());
        let shared = Arc::new(Shared { desk, state: Lock::new(Default::default()), bell: Bell::default() });
        drop(shared.state.lock());
        let writer = spawn(&shared, |shared| {
            let mut written = 0;
            while written < JOBS {
                shared.desk.wait(LIMIT);
                if let Some(job) = shared.desk.take() {
                    written += 1;
                    let state = shared.state.lock();
                    assert_eq!((job, state.0.get()), (written, written), "not the job that was given");
                    state.1.set(written);
                    drop(state);
                    shared.desk.done();
                    shared.bell.ring();
                }
            }
        });
        let mut given = 0;
        while given < JOBS || shared.desk.is_busy() {
            let seen = shared.bell.rings();
            let state = shared.state.lock();
            if shared.desk.is_busy() {
                drop(state);
                shared.bell.wait(seen, LIMIT);
                continue;
            }
            if given < JOBS {
                assert_eq!(state.1.get(), given, "the desk is free before the last job is written");
                given += 1;
                state.0.set(given);
                assert!(shared.desk.leave(given).is_none());
            }
        }
        writer.join().unwrap();
    });
}

/// Two threads put two entries each into a log that has room for two, and a third one takes what it finds. What has been
/// put is taken once, whole, and after what its thread has put before.
pub fn reference_log() {
    const ROOM: usize = 2;
    let entry = |number: u64| Noted::Reference {
        page: page::PageIndex(10 + number),
        thread: 20 + number as u32,
        is_write: number.is_multiple_of(2),
        ns: 30 + number,
    };
    explore(2, Waits::TillWoken, move || {
        let log = Arc::new(ReferenceLog::<ROOM>::default());
        let others = [[0, 2], [1, 3]].map(|numbers| {
            let log = Arc::clone(&log);
            thread::spawn(move || numbers.map(|number| log.put(entry(number))))
        });
        let find = |noted| (0..4).find(|number| entry(*number) == noted).expect("it is whole");
        let mut taken: Vec<u64> = (0..2).filter_map(|_| log.take().map(find)).collect();
        let put = others.map(|other| other.join().unwrap());
        taken.extend(core::iter::from_fn(|| log.take().map(find)));
        for (first, is_put) in put.into_iter().enumerate() {
            let numbers = [first as u64, first as u64 + 2];
            let expected: Vec<u64> =
                numbers.into_iter().zip(is_put).filter_map(|(number, is)| is.then_some(number)).collect();
            let own: Vec<u64> = taken.iter().copied().filter(|number| numbers.contains(number)).collect();
            assert_eq!(own, expected);
        }
    });
}

/// What a fork goes through, and who takes part in it.
#[derive(Default)]
struct Forking {
    gate: Gate,
    stages: Stages,
    bell: Bell,
    /// What a child's copy is made of.
    state: Content,
    /// The message about a child: to be read, and read.
    message: Told,
    readings: Readings,
    has_forked: AtomicU32,
    /// Forks whose children have their memory.
    finished: AtomicU32,
}

/// What comes of a fork.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Child,
    /// It takes longer than the parent waits for it.
    LateChild,
    NoChild,
}

impl Forking {
    /// As in `Agent::before_fork` and `Agent::after_fork_in_parent`.
    fn fork(&self, outcome: Outcome) {
        self.freeze();
        if outcome != Outcome::NoChild {
            // The kernel lets us return once the message has been read.
            self.message.tell();
            while self.has_forked.load(Ordering::Relaxed) == 0 {
                wait_while(&self.has_forked, 0, LIMIT, Sharing::Process);
            }
        }
        self.stages.note_return();
        self.readings.wait_for_end();
        if self.has_forked.load(Ordering::Acquire) == 1 || !self.stages.give_up() {
            self.see_off(outcome);
        }
        self.stages.release(&self.gate);
    }

    fn see_off(&self, outcome: Outcome) {
        if outcome == Outcome::LateChild {
            return self.stages.wait_for_end(0);
        }
        self.stages.wait_for_end(u32::MAX);
        assert_eq!(self.finished.load(Ordering::Relaxed), self.stages.number() + 1, "it waited for another fork's end");
    }

    /// As in `Agent::after_trapped_fork`.
    fn fork_in_user_mode(&self, outcome: Outcome) {
        self.freeze();
        let child = (outcome != Outcome::NoChild).then_some(7);
        self.stages.hand_over(child);
        if child.is_some() {
            self.see_off(outcome);
        }
        self.stages.release(&self.gate);
    }

    /// The state is still from here on: it is read, as the kernel copies it.
    fn freeze(&self) {
        self.gate.close(1, |_| true);
        self.stages.begin();
        while !self.stages.is_frozen() {
            self.bell.ring();
            self.stages.look_whether_frozen();
        }
        self.state.get();
    }

    /// As in `Forks::rest_while_forking`, so often. `hand_over` is done for a child in user mode.
    fn reclaim(&self, forks: u32) {
        for _ in 0..forks {
            loop {
                let seen = self.bell.rings();
                if self.stages.wants_rest() {
                    break;
                }
                self.bell.wait(seen, LIMIT);
            }
            self.change_state();
            self.stages.rest();
            while self.stages.wants_rest() {
                if let Some(child) = self.stages.to_be_handed_over() {
                    assert_eq!(child, 7);
                    self.finish();
                }
                self.stages.look_whether_wanted();
            }
            if self.stages.end_rest() {
                // Thawed after a fork that has made no child.
                self.change_state();
            }
            self.change_state();
            self.stages.release(&self.gate);
        }
    }

    /// As in `Attendant::attend`, for one child.
    fn attend(&self) {
        self.message.wait();
        self.readings.begin();
        self.message.0.store(0, Ordering::Relaxed);
        self.has_forked.store(1, Ordering::Release);
        wake_all(&self.has_forked, Sharing::Process);
        self.readings.finish();
        assert!(self.stages.begin_attending(), "nobody else may finish a fork with a child");
        while !self.stages.has_returned() {
            thread::yield_now();
        }
        self.has_forked.store(0, Ordering::Release);
        self.finish();
    }

    /// As in `Forks::finish`: the state thaws.
    fn finish(&self) {
        self.change_state();
        // Relaxed: who has waited for the end sees it.
        self.finished.store(self.finished.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.stages.finish();
    }

    fn change_state(&self) {
        self.state.set(self.state.get() + 1);
    }
}

/// Two forks in a row.
fn two_forks(outcomes: [Outcome; 2]) {
    explore(2, Waits::TillWoken, move || {
        let shared = Arc::new(Forking::default());
        let children = outcomes.iter().filter(|outcome| **outcome != Outcome::NoChild).count();
        let others = [
            spawn(&shared, |shared| shared.reclaim(2)),
            spawn(&shared, move |shared| (0..children).for_each(|_| shared.attend())),
        ];
        for outcome in outcomes {
            shared.fork(outcome);
        }
        for other in others {
            other.join().unwrap();
        }
    });
}

/// A fork, and another one as soon as it may begin.
pub fn fork_after_fork() {
    two_forks([Outcome::Child, Outcome::Child]);
}

/// A fork whose end the parent does not wait for, and one that is waited for.
pub fn fork_after_late_fork() {
    two_forks([Outcome::LateChild, Outcome::Child]);
}

/// A fork that makes no child, and one that does.
pub fn fork_after_failed_fork() {
    two_forks([Outcome::NoChild, Outcome::Child]);
}

/// Two threads fork at the same time.
pub fn two_forking_threads() {
    explore(1, Waits::TillWoken, || {
        let shared = Arc::new(Forking::default());
        let others = [
            spawn(&shared, |shared| shared.reclaim(2)),
            spawn(&shared, Forking::attend),
            spawn(&shared, |shared| shared.fork(Outcome::NoChild)),
        ];
        shared.fork(Outcome::Child);
        for other in others {
            other.join().unwrap();
        }
    });
}

/// Two forks in user mode, the first of which may fail or take long: the reclaimer finishes them by itself. It looks for a child now and
/// then: one that is told of between a look and a wait wakes nobody.
pub fn forks_in_user_mode() {
    for first in [Outcome::Child, Outcome::LateChild, Outcome::NoChild] {
        explore(2, Waits::ForALook, move || {
            let shared = Arc::new(Forking::default());
            let reclaimer = spawn(&shared, |shared| shared.reclaim(2));
            for outcome in [first, Outcome::Child] {
                shared.fork_in_user_mode(outcome);
            }
            reclaimer.join().unwrap();
        });
    }
}
