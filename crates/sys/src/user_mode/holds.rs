//! Holds: memory that a system call is at work on, and that must not leave meanwhile.
//!
//! In user mode the kernel gets EFAULT where a page is missing. So a thread holds what its call will touch, brings it
//! in, makes the call, and lets go. A slot of this table is one call. Invariant: *a page that a published hold covers is
//! not moved out*. How a hold that is taken and pages that are moved out are ordered: [`Moves`].
//!
//! Nothing here allocates, takes a lock or calls libc: it runs in a signal handler. A slot is let go by one addition to
//! its generation, which assembly can do. Who leaves a call by longjmp lets nothing go; the slot is taken over by the
//! thread's next call from the same stack that is no deeper, because by then its frame is dead. One stack may hold the
//! stacks of several threads (pools of fibers), so that another thread's frame is dead only once that thread is.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::moves::Moves;
use crate::thread;

/// Ranges of one slot; who needs more takes more slots.
const RANGES: usize = 8;
/// Slots of one call. Others find some; what does not fit into these is held with all that lies in between.
const SLOTS_OF_CALL_MAX: usize = SLOTS / 4;
/// Calls that can be under way at once, those that threads wait in among them.
const SLOTS: usize = 8192;
/// Where the search for a free slot begins, by stack.
const HOMES: usize = 64;
/// Holes between ranges that are held along, so that strings in a row are one range.
const GAP: u64 = 4096;

/// A generation is free, being filled, or active by its last two bits: 0, 1, 2. Letting go adds two.
const FILLING: u64 = 1;
const ACTIVE: u64 = 2;

/// One call. Assembly knows the first four fields.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slot {
    pub(super) generation: AtomicU64,
    /// Where the program goes on.
    pub(super) back: AtomicU64,
    /// Its six arguments as they were.
    pub(super) arguments: [AtomicU64; 6],
    /// Who must let go before it is free: two for a call that makes a thread.
    pub(super) parties: AtomicU64,
    /// 1 if the call changes the layout.
    layout: AtomicU64,
    stack: AtomicU64,
    stack_pointer: AtomicU64,
    /// [`NOBODY`]: all its parties let it go themselves.
    thread: AtomicU32,
    /// 1 if that is a process made by vfork, which lives on as another program once it has executed that.
    is_guest: AtomicU32,
    /// For further slots of a call: the first, and its generation while active.
    root: AtomicUsize,
    root_generation: AtomicU64,
    next: AtomicUsize,
    count: AtomicUsize,
    ranges: [[AtomicU64; 2]; RANGES],
    /// Copies of arguments that had to be changed.
    pub(super) scratch: [AtomicU64; 4],
    /// 1 while a mask in `scratch` is that of the thread: until its wait is interrupted.
    pub(super) sets_mask: AtomicU64,
    /// Of a call that is made in pieces: its number, and the mask that the program goes on with, or what is waited for.
    pub(super) call: AtomicU64,
    pub(super) mask: AtomicU64,
}

const NO_SLOT: usize = usize::MAX;
/// No thread's number.
pub(super) const NOBODY: u32 = 0;

impl Slot {
    const fn new() -> Self {
        Self {
            generation: AtomicU64::new(0),
            back: AtomicU64::new(0),
            arguments: [const { AtomicU64::new(0) }; 6],
            parties: AtomicU64::new(0),
            layout: AtomicU64::new(0),
            stack: AtomicU64::new(0),
            stack_pointer: AtomicU64::new(0),
            thread: AtomicU32::new(0),
            is_guest: AtomicU32::new(0),
            root: AtomicUsize::new(0),
            root_generation: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            ranges: [const { [AtomicU64::new(0), AtomicU64::new(0)] }; RANGES],
            scratch: [const { AtomicU64::new(0) }; 4],
            sets_mask: AtomicU64::new(0),
            call: AtomicU64::new(0),
            mask: AtomicU64::new(0),
        }
    }

    /// Whether its call is under way: its own, or that of the slot which it continues.
    fn is_active(&self) -> bool {
        if self.generation.load(Ordering::Acquire) & 3 != ACTIVE {
            return false;
        }
        let root = self.root.load(Ordering::Acquire);
        root == NO_SLOT
            || SLOT_TABLE[root].generation.load(Ordering::Acquire) == self.root_generation.load(Ordering::Acquire)
    }

    /// The signal mask that its call has set for as long as it waited, if it did; once.
    pub(super) fn take_mask(&self) -> Option<u64> {
        let sets_mask = self.sets_mask.swap(0, Ordering::Relaxed) == 1;
        sets_mask.then(|| self.scratch[0].load(Ordering::Relaxed))
    }

    /// Whether a call is under way that goes on there.
    pub(super) fn is_of_call_to(&self, back: u64) -> bool {
        self.is_active() && self.back.load(Ordering::Relaxed) == back
    }

    /// Ends its hold.
    pub(super) fn let_go(&self) {
        self.generation.fetch_add(4 - ACTIVE, Ordering::Release);
    }

    fn first_held(&self, start: u64, end: u64) -> u64 {
        let count = self.count.load(Ordering::Acquire).min(RANGES);
        let touching = self.ranges[..count].iter().filter_map(|range| {
            let (from, to) = (range[0].load(Ordering::Relaxed), range[1].load(Ordering::Relaxed));
            (from < end && start < to).then_some(from.max(start))
        });
        touching.min().unwrap_or(end)
    }
}

static SLOT_TABLE: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];
/// Slots from here on have never been used.
static USED: AtomicUsize = AtomicUsize::new(0);
static MOVES: Moves = Moves::new();

/// Where a call comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Start of the stack that it runs on; 0 if that is not known.
    pub(super) stack: u64,
    pub(super) stack_pointer: u64,
    pub(super) thread: u32,
    /// In a process made by vfork, which uses its parent's memory for a moment.
    pub(super) is_guest: bool,
}

/// A hold that is being filled or has been published.
#[derive(Debug)]
pub(super) struct Hold {
    root: usize,
    last: usize,
    slots: usize,
    place: Place,
}

impl Hold {
    /// Takes a slot; `None` if all are taken.
    pub(super) fn new(place: Place) -> Option<Self> {
        let root = claim(place)?;
        let slot = &SLOT_TABLE[root];
        slot.root.store(NO_SLOT, Ordering::Relaxed);
        slot.parties.store(1, Ordering::Relaxed);
        slot.layout.store(0, Ordering::Relaxed);
        Some(Self { root, last: root, slots: 1, place })
    }

    /// The call's slot.
    pub(super) fn slot(&self) -> &'static Slot {
        &SLOT_TABLE[self.root]
    }

    /// Adds addresses.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let slot = &SLOT_TABLE[self.last];
        let count = slot.count.load(Ordering::Relaxed);
        if let Some(last) = count.checked_sub(1).map(|at| &slot.ranges[at]) {
            let (from, to) = (last[0].load(Ordering::Relaxed), last[1].load(Ordering::Relaxed));
            let is_near = start <= to.saturating_add(GAP) && from <= end.saturating_add(GAP);
            if is_near || count == RANGES && !self.extend() {
                last[0].store(from.min(start), Ordering::Relaxed);
                last[1].store(to.max(end), Ordering::Relaxed);
                return;
            }
        }
        if count == RANGES {
            return self.add(start, end);
        }
        slot.ranges[count][0].store(start, Ordering::Relaxed);
        slot.ranges[count][1].store(end, Ordering::Relaxed);
        // Release: who reads the count finds the ranges.
        slot.count.store(count + 1, Ordering::Release);
    }

    fn extend(&mut self) -> bool {
        if self.slots == SLOTS_OF_CALL_MAX {
            return false;
        }
        let Some(further) = claim(Place { stack: 0, ..self.place }) else { return false };
        let slot = &SLOT_TABLE[further];
        slot.root.store(self.root, Ordering::Relaxed);
        let active = self.slot().generation.load(Ordering::Relaxed) - FILLING + ACTIVE;
        slot.root_generation.store(active, Ordering::Relaxed);
        SLOT_TABLE[self.last].next.store(further, Ordering::Relaxed);
        self.last = further;
        self.slots += 1;
        true
    }

    /// The call changes the layout: no fork meanwhile.
    pub(super) fn changes_layout(&self) {
        self.slot().layout.store(1, Ordering::Relaxed);
    }

    /// From now on nothing of it is moved out. What has left already is still to be touched.
    pub(super) fn publish(&self) {
        // The root first: until it is active the further ones would be taken for dead ones. What is being filled nobody takes.
        let mut at = self.root;
        while at != NO_SLOT {
            let next = SLOT_TABLE[at].next.load(Ordering::Relaxed);
            SLOT_TABLE[at].generation.fetch_add(ACTIVE - FILLING, Ordering::SeqCst);
            at = next;
        }
        wait_for_mover();
    }

    /// Visits its ranges.
    pub(super) fn ranges(&self, mut visit: impl FnMut(u64, u64)) {
        let mut at = self.root;
        while at != NO_SLOT {
            let slot = &SLOT_TABLE[at];
            for range in &slot.ranges[..slot.count.load(Ordering::Relaxed)] {
                visit(range[0].load(Ordering::Relaxed), range[1].load(Ordering::Relaxed));
            }
            at = slot.next.load(Ordering::Relaxed);
        }
    }

    /// Ends a hold that has been published.
    pub(super) fn let_go(self) {
        self.slot().let_go();
    }
}

/// The slot of this address.
pub(super) fn slot_at(address: u64) -> Option<&'static Slot> {
    let offset = address.checked_sub(SLOT_TABLE.as_ptr() as u64)? as usize;
    SLOT_TABLE.get(offset / size_of::<Slot>())
}

/// Waits until no page is being moved out that was looked at before now.
pub(super) fn wait_for_mover() {
    MOVES.wait();
}

fn claim(place: Place) -> Option<usize> {
    claim_where(place, |slot| is_dead(slot, place)).or_else(|| claim_where(place, |slot| is_abandoned(slot, place)))
}

/// A slot that is free, or active and for the taking.
fn claim_where(place: Place, is_for_the_taking: impl Fn(&Slot) -> bool) -> Option<usize> {
    let home = (place.stack >> 12) as usize % HOMES;
    for step in 0..SLOTS {
        let at = (home + step) % SLOTS;
        let slot = &SLOT_TABLE[at];
        let seen = slot.generation.load(Ordering::Acquire);
        let taken = match seen & 3 {
            0 => seen + FILLING,
            ACTIVE if is_for_the_taking(slot) => seen + 4 - ACTIVE + FILLING,
            _ => continue,
        };
        if slot.generation.compare_exchange(seen, taken, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            continue;
        }
        slot.count.store(0, Ordering::Relaxed);
        slot.next.store(NO_SLOT, Ordering::Relaxed);
        slot.stack.store(place.stack, Ordering::Relaxed);
        slot.stack_pointer.store(place.stack_pointer, Ordering::Relaxed);
        slot.thread.store(place.thread, Ordering::Relaxed);
        slot.is_guest.store(u32::from(place.is_guest), Ordering::Relaxed);
        USED.fetch_max(at + 1, Ordering::SeqCst);
        return Some(at);
    }
    None
}

/// Whether the call of an active slot was left without letting go: a frame of ours on the same stack would be deeper.
fn is_dead(slot: &Slot, place: Place) -> bool {
    if slot.root.load(Ordering::Acquire) != NO_SLOT {
        return !slot.is_active();
    }
    let thread = slot.thread.load(Ordering::Acquire);
    place.stack != 0
        && slot.stack.load(Ordering::Acquire) == place.stack
        && slot.stack_pointer.load(Ordering::Acquire) <= place.stack_pointer
        && (thread == place.thread || has_gone(slot, thread, place, true))
}

/// Whether a slot's thread has ended, or is a guest that has executed another program: `untold` where the kernel does not tell that.
/// As seen from `place`: a guest may be in a namespace where threads have other numbers.
fn has_gone(slot: &Slot, thread: u32, place: Place, untold: bool) -> bool {
    let is_guest = slot.is_guest.load(Ordering::Acquire) == 1;
    thread != NOBODY
        && !place.is_guest
        && if is_guest { thread::memory_differs(thread).unwrap_or(untold) } else { !thread::exists(thread) }
}

/// Whether the thread of an active slot has ended, in the middle of its call: by `pthread_cancel`, or by executing.
fn is_abandoned(slot: &Slot, place: Place) -> bool {
    let is_root = slot.root.load(Ordering::Acquire) == NO_SLOT;
    !slot.is_active() || is_root && has_gone(slot, slot.thread.load(Ordering::Acquire), place, false)
}

/// Lets go what threads that have ended still hold: a process made by vfork that executes lets nothing go.
pub(super) fn let_abandoned_go(place: Place) {
    for slot in &SLOT_TABLE[..USED.load(Ordering::SeqCst)] {
        let seen = slot.generation.load(Ordering::Acquire);
        if seen & 3 == ACTIVE && is_abandoned(slot, place) {
            let _ = slot.generation.compare_exchange(seen, seen + 4 - ACTIVE, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

fn slots() -> impl Iterator<Item = &'static Slot> {
    SLOT_TABLE[..USED.load(Ordering::SeqCst)].iter().filter(|slot| slot.is_active())
}

/// Runs `moving` with the first address in `start..end` that is held, `end` if none is. While it runs no hold on what
/// lies before that address is taken for granted by anybody. One caller at a time.
pub(crate) fn while_nothing_before_is_held<R>(start: u64, end: u64, moving: impl FnOnce(u64) -> R) -> R {
    MOVES.run(|| {
        let held = slots().map(|slot| slot.first_held(start, end)).min().unwrap_or(end);
        moving(held.min(super::first_pinned(start, end)))
    })
}

/// Whether a call that changes the layout is under way.
pub(super) fn layout_is_changing() -> bool {
    slots().any(|slot| slot.root.load(Ordering::Acquire) == NO_SLOT && slot.layout.load(Ordering::Acquire) == 1)
}

/// In a forked child: the calls of the parent's other threads are not ours. Those of the thread that has forked, `parents` there, are
/// where it has forked in a signal's handler: they go on when that returns.
pub(super) fn reset(parents: u32) {
    let here = thread::thread_id();
    for slot in &SLOT_TABLE[..USED.load(Ordering::SeqCst)] {
        let generation = slot.generation.load(Ordering::Relaxed);
        if generation & 3 == ACTIVE && slot.thread.load(Ordering::Relaxed) == parents {
            slot.thread.store(here, Ordering::Relaxed);
        } else {
            slot.generation.store((generation | 3) + 1, Ordering::Relaxed);
        }
    }
    MOVES.reset();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table is one for the process, and a mover one for it: these tests take turns.
    static TURN: crate::sync::Lock<()> = crate::sync::Lock::new(());

    fn place(stack_pointer: u64) -> Place {
        Place { stack: 0x7000_0000, stack_pointer, thread: thread::thread_id(), is_guest: false }
    }

    fn held(start: u64, end: u64) -> u64 {
        while_nothing_before_is_held(start, end, |held| held)
    }

    #[test]
    fn what_is_held_is_found_until_it_is_let_go() {
        let _turn = TURN.lock();
        let mut hold = Hold::new(place(0x7000_1000)).unwrap();
        hold.add(0x10_5000, 0x10_6000);
        hold.add(0x10_9000, 0x10_9001);
        assert_eq!(held(0x10_0000, 0x10_a000), 0x10_a000, "not published yet");
        hold.publish();
        assert_eq!(held(0x10_0000, 0x10_a000), 0x10_5000);
        assert_eq!(held(0x10_7800, 0x10_a000), 0x10_9000);
        assert_eq!(held(0x10_a000, 0x10_b000), 0x10_b000);
        hold.let_go();
        assert_eq!(held(0x10_0000, 0x10_a000), 0x10_a000);
    }

    #[test]
    fn many_ranges_go_with_their_call() {
        let _turn = TURN.lock();
        let mut hold = Hold::new(place(0x7000_1000)).unwrap();
        for at in 0..1024_u64 {
            hold.add(at << 20, (at << 20) + 8);
        }
        hold.publish();
        let mut count = 0;
        hold.ranges(|_, _| count += 1);
        assert_eq!(count, 1024);
        assert_eq!(held(1023 << 20, 1024 << 20), 1023 << 20);
        hold.let_go();
        assert_eq!(held(1023 << 20, 1024 << 20), 1024 << 20);
    }

    #[test]
    fn neighbours_become_one_from_either_side() {
        let _turn = TURN.lock();
        for is_falling in [false, true] {
            let mut hold = Hold::new(place(0x7000_1000)).unwrap();
            for at in 0..100_u64 {
                let at = if is_falling { 99 - at } else { at };
                hold.add(0x5000 + at * 64, 0x5000 + at * 64 + 20);
            }
            let mut ranges = vec![];
            hold.ranges(|start, end| ranges.push((start, end)));
            assert_eq!(ranges, [(0x5000, 0x5000 + 99 * 64 + 20)]);
            hold.publish();
            hold.let_go();
        }
    }

    #[test]
    fn what_does_not_fit_is_held_with_what_lies_in_between() {
        let _turn = TURN.lock();
        let mut hold = Hold::new(place(0x7000_1000)).unwrap();
        let fitting = (SLOTS_OF_CALL_MAX * RANGES) as u64;
        (0..fitting + 3).for_each(|at| hold.add(at << 20, (at << 20) + 8));
        hold.publish();
        let mut ranges = vec![];
        hold.ranges(|start, end| ranges.push((start, end)));
        assert_eq!(ranges.len() as u64, fitting);
        assert_eq!(ranges[0], (0, 8));
        assert_eq!(ranges.last(), Some(&((fitting - 1) << 20, ((fitting + 2) << 20) + 8)));
        let other = Hold::new(place(0x7000_0800)).expect("there is room for others");
        other.publish();
        other.let_go();
        hold.let_go();
    }

    #[test]
    fn who_left_by_longjmp_is_found_dead() {
        let _turn = TURN.lock();
        let deep = Hold::new(place(0x7000_1000)).unwrap();
        deep.publish();
        let above = Hold::new(place(0x7000_0800)).unwrap();
        assert_ne!(above.root, deep.root, "a call inside a signal handler of the first");
        above.publish();
        above.let_go();
        let later = Hold::new(place(0x7000_1000)).unwrap();
        assert_eq!(later.root, deep.root, "the same place again: the first is over");
        later.publish();
        later.let_go();
    }

    #[test]
    fn another_thread_on_the_same_stack_is_not_dead_before_it_has_ended() {
        let _turn = TURN.lock();
        let deep = || {
            let hold = Hold::new(place(0x7000_1000)).unwrap();
            hold.publish();
            hold.root
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        let fiber = std::thread::spawn(move || {
            sender.send(deep()).unwrap();
            std::thread::park();
        });
        let root = receiver.recv().unwrap();
        let beside = Hold::new(place(0x7000_2000)).unwrap();
        assert_ne!(beside.root, root, "its thread is in a call still");
        beside.publish();
        beside.let_go();
        fiber.thread().unpark();
        fiber.join().unwrap();
        let_abandoned_go(Place { is_guest: true, ..place(0x7000_2000) });
        assert!(SLOT_TABLE[root].is_active(), "who may see other numbers lets nothing go");
        // A joined thread's number may be there for a moment more.
        while SLOT_TABLE[root].is_active() {
            let_abandoned_go(place(0x7000_2000));
        }
        let root = std::thread::spawn(deep).join().unwrap();
        while SLOT_TABLE[root].is_active() {
            let later = Hold::new(place(0x7000_2000)).unwrap();
            later.publish();
            later.let_go();
        }
    }

    #[test]
    fn what_a_process_made_by_vfork_held_is_over_when_its_stack_is_used_again() {
        let _turn = TURN.lock();
        let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let guest = Hold::new(Place { thread: process.id(), is_guest: true, ..place(0x7000_1000) }).unwrap();
        guest.publish();
        let later = Hold::new(place(0x7000_1000)).unwrap();
        assert_eq!(later.root, guest.root);
        later.publish();
        later.let_go();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    #[test]
    fn in_a_child_only_the_calls_of_the_thread_that_has_forked_go_on() {
        let _turn = TURN.lock();
        let long = |place| {
            let mut hold = Hold::new(place).unwrap();
            for at in 0..=RANGES as u64 {
                hold.add(at << 20, (at << 20) + 8);
            }
            hold.publish();
            hold
        };
        let other = long(Place { thread: 1, ..place(0x7100_1000) });
        let own = long(Place { thread: 4_000_007, ..place(0x7000_1000) });
        reset(4_000_007);
        assert!(own.slot().is_active() && !other.slot().is_active());
        assert_eq!(own.slot().thread.load(Ordering::Relaxed), thread::thread_id());
        assert_eq!(held((RANGES as u64) << 20, (RANGES as u64 + 1) << 20), (RANGES as u64) << 20);
        own.let_go();
    }

    #[test]
    fn what_a_new_thread_needs_stays_when_its_maker_has_ended() {
        let _turn = TURN.lock();
        let make = || {
            let hold = Hold::new(Place { stack: 0, thread: NOBODY, ..place(0x7000_1000) }).unwrap();
            hold.publish();
            hold
        };
        let hold = std::thread::spawn(make).join().unwrap();
        let_abandoned_go(place(0x7000_2000));
        assert!(hold.slot().is_active());
        hold.let_go();
    }

    /// What begins while a long call is being published must take nothing of it.
    #[test]
    fn no_part_of_a_long_call_is_taken_while_it_is_published() {
        let _turn = TURN.lock();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let_abandoned_go(Place { stack: 0x7200_0000, ..place(0x7200_1000) });
                }
            });
            for _ in 0..600_000 {
                let mut hold = Hold::new(place(0x7000_1000)).unwrap();
                (0..=RANGES as u64).for_each(|at| hold.add(at << 20, (at << 20) + 8));
                hold.publish();
                let last = RANGES as u64;
                let is_held = slots().any(|slot| slot.first_held(last << 20, (last + 1) << 20) == last << 20);
                hold.let_go();
                if !is_held {
                    done.store(true, Ordering::Relaxed);
                    panic!("a part is not held");
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    /// The plain twin of the two steps is a lock; here are threads that hold and a mover, with a word for each page that
    /// says who has it.
    #[test]
    fn no_held_page_is_moved() {
        use std::sync::atomic::{AtomicBool, AtomicU64};
        const PAGES: u64 = 16;
        static OUT: [AtomicBool; PAGES as usize] = [const { AtomicBool::new(false) }; PAGES as usize];
        let _turn = TURN.lock();
        let done = AtomicBool::new(false);
        let moved = &AtomicU64::new(0);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3_u64)
                .map(|seed| {
                    scope.spawn(move || {
                        let mut number = seed;
                        let mut rounds = 0;
                        // On a busy machine the mover may come late.
                        while rounds < 20_000 || moved.load(Ordering::Relaxed) < 1000 {
                            rounds += 1;
                            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                            let page = (number >> 40) % PAGES;
                            let stack = (seed + 1) << 16;
                            let place = Place { stack, ..place(stack + 8) };
                            let mut hold = Hold::new(place).unwrap();
                            hold.add((1 << 44) + (page << 12), (1 << 44) + (page << 12) + 1);
                            hold.publish();
                            OUT[page as usize].store(false, Ordering::SeqCst); // The touch.
                            for _ in 0..20 {
                                assert!(!OUT[page as usize].load(Ordering::SeqCst), "moved while held");
                            }
                            hold.let_go();
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                let mut page = 0;
                while !done.load(Ordering::Relaxed) {
                    page = (page + 1) % PAGES;
                    let (start, end) = ((1 << 44) + (page << 12), (1 << 44) + ((page + 1) << 12));
                    while_nothing_before_is_held(start, end, |held| {
                        if held == end {
                            OUT[page as usize].store(true, Ordering::SeqCst);
                            moved.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            for thread in threads {
                let joined = thread.join();
                done.store(true, Ordering::Relaxed);
                joined.unwrap();
            }
        });
        assert!(moved.load(Ordering::Relaxed) >= 1000);
    }
}
