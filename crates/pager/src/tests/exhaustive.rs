//! All schedules of a few steps, at a small size: two threads of the program, the server, the reclaimer, the writer and a
//! fork take turns, and any of them may go on inside another's call to the kernel or codec. This is the model of a page's states, checked on
//! the code itself.
//!
//! There is a plain order, everybody in turn; a schedule is what it does otherwise at up to [`TURNS`] of its points. All of
//! those are gone through (iterative context bounding: Musuvathi and Qadeer, PLDI 2007). `PLEAT_TURNS=n` allows more.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use sys::fake::Access;

use super::content::Content;
use super::schedules::number;
use super::world::{TestPager, set_between};
use crate::ledger::{Counter, FaultKind};

mod play;
mod tree;

use play::{Actor, Also, Begin, NOWHERE, OTHER, Op, Play, page};
use tree::Tree;

/// Points at which a schedule may differ from the plain order.
const TURNS: u64 = 2;
/// What the schedules of a scenario have come to.
#[derive(Debug, Default)]
struct Seen {
    schedules: u64,
    /// Faults by kind.
    faults: [u64; FaultKind::ALL.len()],
    read_ahead: u64,
}

impl Seen {
    fn add(&mut self, pager: &TestPager) {
        self.schedules += 1;
        for (sum, histogram) in self.faults.iter_mut().zip(&pager.entry.faults) {
            *sum += histogram.buckets.iter().map(|bucket| u64::from(bucket.load(Ordering::Relaxed))).sum::<u64>();
        }
        self.read_ahead += pager.entry.count(Counter::ReadAhead);
    }

    /// Asserts that pages have come back from each of these.
    fn has(&self, kinds: &[FaultKind]) {
        let is_there = kinds.iter().all(|kind| self.faults[*kind as usize] > 100);
        assert!(is_there && self.schedules > 500, "{kinds:?}: {self:?}");
    }
}

/// All schedules of two scripts. Says the path of one that fails.
fn explore(scripts: [&[Op]; 2], also: Also) -> Seen {
    struct Tell(Rc<RefCell<Tree>>);
    impl Drop for Tell {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let path = &self.0.borrow().path;
                let turns: Vec<_> = path.iter().enumerate().filter(|(_, (taken, _))| *taken > 0).collect();
                eprintln!("(point, (taken, of)): {turns:?}");
            }
        }
    }
    let turns = number("PLEAT_TURNS").unwrap_or(TURNS) as usize;
    let tree = Tell(Rc::default());
    let mut seen = Seen::default();
    loop {
        let play = Play::new(tree.0.clone(), scripts, also);
        play.interleave();
        play.run_all();
        play.pager.kernel.set_meanwhile(None);
        set_between(Box::new(|| {}));
        play.dismiss_writer();
        seen.add(&play.pager);
        play.world.borrow_mut().finish().unwrap();
        if !tree.0.borrow_mut().next(turns) {
            return seen;
        }
    }
}

const TEXT: [Content; 4] = [Content::Text(1), Content::Text(2), Content::Text(3), Content::Text(4)];
const OUT_AND_BACK: Also = Also { begin: Begin::Untouched, evictions: 2, write_backs: 0, forks: false };

/// What a scenario comes to, whatever the place is where its pages are at the beginning.
fn explore_all(scripts: [&[Op]; 2], also: Also) -> Seen {
    let mut sum = Seen::default();
    for begin in Begin::ALL {
        let seen = explore(scripts, Also { begin, ..also });
        sum.schedules += seen.schedules;
        sum.faults.iter_mut().zip(seen.faults).for_each(|(sum, faults)| *sum += faults);
        sum.read_ahead += seen.read_ahead;
    }
    println!("{sum:?}");
    sum
}

/// Two threads miss, write and read the same page while it leaves and comes back.
#[test]
fn two_threads_and_one_page() {
    use FaultKind::{Backed, Compressed, Raced, SameFilled, Staged, ZeroFill};
    for (contents, kind) in
        [(TEXT, Compressed), ([Content::Word(5), Content::Zero, Content::Word(6), TEXT[0]], SameFilled)]
    {
        let first = [Op::Write(0, contents[0]), Op::Read(0)];
        let second = [Op::Write(0, contents[1]), Op::Write(0, contents[2])];
        explore_all([&first, &second], OUT_AND_BACK).has(&[ZeroFill, Staged, Raced, Backed, kind]);
    }
}

/// Pages that no codec makes smaller go back by themselves, or below.
#[test]
fn noise() {
    let first = [Op::Write(0, Content::Noise(7)), Op::Read(0), Op::Read(1)];
    let second = [Op::Write(1, Content::Noise(8)), Op::Write(0, Content::Noise(9))];
    explore_all([&first, &second], Also { write_backs: 1, ..OUT_AND_BACK }).has(&[FaultKind::Staged, FaultKind::Raced]);
}

/// madvise, munmap, mmap over and mremap of what leaves and comes back.
#[test]
fn layout_changes_and_one_page() {
    let changes = [
        Op::Discard(0, 2),
        Op::Unmap(0, 2),
        Op::MapOver(0, 2),
        Op::Move { from: 0, count: 4, to: NOWHERE, keep: false },
        Op::Move { from: 0, count: 4, to: NOWHERE, keep: true },
        Op::Move { from: OTHER, count: 4, to: 0, keep: false },
        Op::Move { from: OTHER, count: 4, to: 0, keep: true },
    ];
    for change in changes {
        println!("{change:?}");
        let first = [Op::Write(0, TEXT[0]), Op::Write(0, TEXT[1])];
        explore_all([&first, &[change, Op::Read(0)]], OUT_AND_BACK).has(&[FaultKind::ZeroFill]);
    }
}

/// Two threads change the layout of the same memory at once.
#[test]
fn two_layout_changes() {
    let away = Op::Move { from: 0, count: 4, to: NOWHERE, keep: false };
    let here = Op::Move { from: OTHER, count: 4, to: 0, keep: false };
    for changes in [[away, here], [Op::Unmap(0, 4), here], [Op::Discard(0, 4), away], [Op::MapOver(0, 4), here]] {
        println!("{changes:?}");
        let (first, second) = ([changes[0], Op::Read(NOWHERE)], [changes[1], Op::Read(0)]);
        explore_all([&first, &second], Also { evictions: 1, ..OUT_AND_BACK }).has(&[FaultKind::ZeroFill]);
    }
}

/// A fork in the middle of it: parent and child read what was written before.
#[test]
fn a_fork_and_one_page() {
    let away = Op::Move { from: 0, count: 4, to: NOWHERE, keep: false };
    for change in [Op::Write(0, TEXT[3]), Op::Discard(0, 2), Op::Unmap(0, 2), away] {
        println!("{change:?}");
        let first = [Op::Write(0, TEXT[0]), Op::Read(1)];
        let also = Also { forks: true, evictions: 1, ..OUT_AND_BACK };
        explore_all([&first, &[change]], also).has(&[FaultKind::ZeroFill]);
    }
}

/// A page goes below, and its segment is on its way, or it comes back with another, while it is wanted, leaves, changes its place or is copied
/// by a fork.
#[test]
fn a_write_back_and_one_page() {
    let away = Op::Move { from: 0, count: 4, to: NOWHERE, keep: false };
    let here = Op::Move { from: OTHER, count: 4, to: 0, keep: false };
    let changes = [Op::Write(0, TEXT[3]), Op::Discard(0, 2), Op::Unmap(0, 2), Op::MapOver(0, 2), away, here];
    let with_a_fork = [changes[0], changes[1], away];
    let all = changes.map(|change| (change, false)).into_iter().chain(with_a_fork.map(|change| (change, true)));
    for (change, forks) in all {
        println!("{change:?}, forks: {forks}");
        let also = Also { forks, evictions: 1, write_backs: 1, ..OUT_AND_BACK };
        let seen = explore_all([&[Op::Write(0, TEXT[0])], &[change, Op::Read(0)]], also);
        seen.has(&[FaultKind::ZeroFill]);
        assert!(seen.read_ahead > 50, "{seen:?}");
    }
}

/// A check that cannot fail would be none: a page that is written to without the program's knowing is found.
#[test]
#[should_panic(expected = "instead of")]
fn a_lost_write_is_found() {
    let tree = Rc::default();
    let play = Play::new(tree, [&[Op::Write(0, TEXT[0]), Op::Read(0)], &[]], Also::default());
    play.act(Actor::Thread(0));
    play.act(Actor::Serve);
    play.act(Actor::Thread(0));
    let lost = TEXT[1].bytes();
    assert!(matches!(play.pager.kernel.access(1, page(0), Some(&lost)), Access::Done(_)));
    play.act(Actor::Thread(0));
}
