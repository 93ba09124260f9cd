//! The program: threads that touch pages and change the layout, and the plain copy of what the memory must hold.

use std::collections::{BTreeMap, BTreeSet};

use page::{PageCount, PageIndex};
use sys::fake::{Access, FakeKernel, Flag, Progress};
use sys::kernel::{Kernel as _, PageRange, Uncopied};

use super::content::{Content, Random};

/// The addresses that the program uses.
pub(super) const FIRST: u64 = 0x1000;
const ADDRESSES: u64 = 3000;
const THREADS: usize = 4;

/// What a page may hold. While madvise is under way it may be the old content or zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Allowed {
    pub(super) content: Content,
    pub(super) or_zero: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Thread {
    Idle,
    Faulting { page: PageIndex, write: Option<Content> },
    Layout,
}

/// What a thread does to the layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Disturbance {
    /// munmap
    Unmaps,
    /// mmap with `MAP_FIXED`
    MapsOver,
    /// mremap to wherever it may be
    MovesOver,
    /// mremap to where nothing is
    MovesAway,
    /// The same with `MREMAP_DONTUNMAP`
    MovesAndKeeps,
}

/// How often what happens, as weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    pub(super) pages_max: u64,
    pub(super) layout: u64,
    pub(super) flags: u64,
    /// Of the layout changes, how many are not told before something else may happen. Per cent.
    pub(super) late: u64,
    pub(super) words: u64,
    pub(super) text: u64,
    pub(super) noise: u64,
}

impl Mix {
    pub(super) const PLAIN: Self = Self { pages_max: 900, layout: 2, flags: 1, late: 0, words: 2, text: 10, noise: 1 };
}

#[derive(Clone)]
pub(super) struct Program {
    pub(super) random: Random,
    pub(super) mix: Mix,
    /// Every mapped page.
    pub(super) shadow: BTreeMap<PageIndex, Allowed>,
    threads: [Thread; THREADS],
    /// Ranges that are being discarded, by thread.
    discards: BTreeMap<usize, PageRange>,
    /// The next page of a sequential walk, and whether it goes downwards.
    walk: PageIndex,
    descends: bool,
    stamp: u64,
    /// Where something has been unmapped or moved away.
    left: PageIndex,
    /// What mmap and mremap have made, by thread, until they return: nobody else knows of it.
    made: BTreeMap<usize, [PageRange; 2]>,
    /// What mappings have grown by, of which nobody has told: where such pages have just moved away from, nothing may move to before that
    /// has returned (docs/userfaultfd.md, Limits).
    grown: BTreeSet<PageIndex>,
    /// Where there is something new that the pager has not been told of.
    pub(super) untold: Vec<PageRange>,
    pub(super) accesses: u64,
    pub(super) seed: u64,
}

impl Program {
    pub(super) fn new(seed: u64, mix: Mix) -> Self {
        Self {
            random: Random::new(seed),
            mix,
            shadow: BTreeMap::new(),
            threads: [Thread::Idle; THREADS],
            discards: BTreeMap::new(),
            walk: PageIndex(FIRST),
            descends: false,
            stamp: 0,
            left: PageIndex(FIRST),
            made: BTreeMap::new(),
            grown: BTreeSet::new(),
            untold: Vec::new(),
            accesses: 0,
            seed,
        }
    }

    /// Maps fresh memory.
    pub(super) fn map(&mut self, kernel: &FakeKernel, range: PageRange) {
        kernel.map(range);
        self.fresh(range);
    }

    fn fresh(&mut self, range: PageRange) {
        self.untold.push(range);
        for page in range.start.until(range.end) {
            self.shadow.insert(page, Allowed { content: Content::Zero, or_zero: false });
        }
    }

    /// In a forked child: only the forking thread is there.
    pub(super) fn become_child(&mut self, kernel: &FakeKernel) {
        self.threads = [Thread::Idle; THREADS];
        self.made.clear();
        let _ = kernel.uncopied(&mut |range, _| {
            for (_, allowed) in self.shadow.range_mut(range.start..range.end) {
                *allowed = Allowed { content: Content::Zero, or_zero: false };
            }
        });
        assert!(self.discards.is_empty(), "another thread's madvise is neither done nor undone in the child");
    }

    pub(super) fn is_idle(&self) -> bool {
        self.threads.iter().all(|thread| *thread == Thread::Idle)
    }

    /// Whether this thread is.
    pub(super) fn is_idle_at(&self, thread: usize) -> bool {
        self.threads[thread] == Thread::Idle
    }

    /// Whether no madvise is under way.
    pub(super) fn discards_nothing(&self) -> bool {
        self.discards.is_empty()
    }

    /// Whether all threads are but this one.
    pub(super) fn is_idle_but(&self, thread: usize) -> bool {
        let others = self.threads.iter().enumerate().filter(|(other, _)| *other != thread);
        others.into_iter().all(|(_, thread)| *thread == Thread::Idle)
    }

    /// One step of some thread.
    pub(super) fn step(&mut self, kernel: &FakeKernel) {
        let thread = self.random.below(THREADS as u64) as usize;
        if self.threads[thread] == Thread::Idle {
            self.begin(kernel, thread);
        } else {
            self.go_on(kernel, thread);
        }
    }

    /// Lets every thread that can go on do so, without beginning anything.
    pub(super) fn drain(&mut self, kernel: &FakeKernel) {
        if self.mix.late == 0 || self.random.one_in(6) {
            kernel.hold_back_no_more();
        }
        for thread in 0..THREADS {
            if self.threads[thread] != Thread::Idle {
                self.go_on(kernel, thread);
            }
        }
    }

    fn begin(&mut self, kernel: &FakeKernel, thread: usize) {
        let Mix { layout, flags, .. } = self.mix;
        match self.random.below(100) {
            draw if draw < layout => {
                self.change_layout(kernel, thread);
                if self.random.below(100) < self.mix.late {
                    kernel.hold_back(thread as u32);
                }
            }
            draw if draw < layout + flags => self.change_flags(kernel),
            _ => {
                let Some(page) = self.some_page() else { return };
                let write = self.random.one_in(2).then(|| self.content());
                self.touch(kernel, thread, page, write);
            }
        }
    }

    /// A thread that is not idle does what it can.
    pub(super) fn go_on(&mut self, kernel: &FakeKernel, thread: usize) {
        match self.threads[thread] {
            Thread::Idle => {}
            Thread::Faulting { page, write } => {
                if !kernel.is_waiting(thread as u32) {
                    self.touch(kernel, thread, page, write);
                }
            }
            Thread::Layout => {
                if let Some(range) = kernel.about_to_zap(thread as u32) {
                    self.zap(kernel, range);
                    self.discards.remove(&thread);
                }
                if kernel.advance(thread as u32) == Progress::Done {
                    self.threads[thread] = Thread::Idle;
                    self.made.remove(&thread);
                }
            }
        }
    }

    /// What the second half of madvise is about to do.
    fn zap(&mut self, kernel: &FakeKernel, range: PageRange) {
        for (page, allowed) in self.shadow.range_mut(range.start..range.end) {
            // A page that is missing now and was written since the message had been read has left again: it stays.
            if allowed.or_zero || kernel.is_present(*page) {
                *allowed = Allowed { content: Content::Zero, or_zero: false };
            }
        }
    }

    /// Random content.
    pub(super) fn content(&mut self) -> Content {
        let Mix { words, text, noise, .. } = self.mix;
        self.stamp += 1;
        let stamp = self.seed << 32 | self.stamp;
        match self.random.below(words + text + noise) {
            draw if draw < words => match self.random.below(3) {
                0 => Content::Zero,
                1 => Content::Word(self.random.below(4)),
                _ => Content::Word(stamp),
            },
            draw if draw < words + text => Content::Text(stamp),
            _ => Content::Noise(stamp),
        }
    }

    /// A mapped page: half of them on a walk, so that prefetch windows open.
    fn some_page(&mut self) -> Option<PageIndex> {
        let from = if self.random.one_in(2) { self.walk } else { PageIndex(FIRST + self.random.below(ADDRESSES)) };
        let next = if self.descends && from == self.walk {
            self.shadow.range(..=from).next_back()
        } else {
            self.shadow.range(from..).next()
        };
        let page = *next.or_else(|| self.shadow.iter().next())?.0;
        if from == self.walk || self.random.one_in(16) {
            self.descends ^= self.random.one_in(32);
            self.walk = if self.descends { PageIndex(page.0 - 1) } else { page + PageCount(1) };
        }
        Some(page)
    }

    /// Thread `thread` touches a page; what it finds must be right.
    pub(super) fn touch(&mut self, kernel: &FakeKernel, thread: usize, page: PageIndex, write: Option<Content>) {
        let bytes = write.map(Content::bytes);
        match kernel.access(thread as u32, page, bytes.as_ref()) {
            Access::Blocked => self.threads[thread] = Thread::Faulting { page, write },
            // Its memory was unmapped by another thread while it waited.
            Access::Unmapped => self.threads[thread] = Thread::Idle,
            Access::Done(before) => {
                self.threads[thread] = Thread::Idle;
                self.accesses += 1;
                let allowed = self.shadow.get_mut(&page).expect("the shadow knows what is mapped");
                let is_right = before.0 == allowed.content.bytes().0 || allowed.or_zero && before.0 == [0; 4096];
                assert!(is_right, "seed {}: {page:?} holds {before:?} instead of {allowed:?}", self.seed);
                if let Some(content) = write {
                    *allowed = Allowed { content, or_zero: false };
                }
            }
        }
    }

    /// Pages of one mapping, away from what is being discarded.
    fn some_range(&mut self, kernel: &FakeKernel) -> Option<PageRange> {
        let start = self.some_page()?;
        let length_max = if self.random.one_in(4) { 300 } else { 40 };
        let length = 1 + self.random.below(length_max);
        let mut mapping = None;
        kernel.visit_mappings(&mut |found| {
            if found.contains(start) {
                mapping = Some(found);
            }
        });
        let mapping = mapping.expect("the shadow knows what is mapped");
        let range = PageRange { start, end: mapping.end.min(start + PageCount(length)) };
        self.is_free(range).then_some(range)
    }

    /// Whether nothing of a range is being discarded, or made.
    pub(super) fn is_free(&self, range: PageRange) -> bool {
        let mut busy = self.discards.values().chain(self.made.values().flatten());
        busy.all(|busy| busy.intersection(range).is_none())
    }

    fn change_layout(&mut self, kernel: &FakeKernel, thread: usize) {
        let Some(range) = self.some_range(kernel) else { return self.map_somewhere(kernel, thread) };
        let number = thread as u32;
        // Rather what can be told late: unmapping and moving, and new memory for them.
        let is_late = self.mix.late > 0 && !self.random.one_in(4);
        let draw = if is_late { [4, 6, 6, 8][self.random.below(4) as usize] } else { self.random.below(9) };
        let progress = match draw {
            0..=3 => {
                kernel.set(range, Flag::Locked, false);
                return self.discard(kernel, thread, range);
            }
            4 => {
                self.forget(range);
                kernel.unmap(number, range)
            }
            5 => {
                return self.map_over(kernel, thread, range);
            }
            6 => return self.map_somewhere(kernel, thread),
            7 => return self.grow(kernel, range.start),
            _ => {
                // Often where something has just been: the kernel likes such places, too.
                let anywhere = PageIndex(FIRST + self.random.below(ADDRESSES));
                let to = if self.random.one_in(2) { self.left } else { anywhere };
                let target = PageRange::new(to, range.count());
                if target.intersection(range).is_some() || !self.is_free(target) {
                    return;
                }
                let keep = self.random.one_in(4);
                return self.remap(kernel, thread, range, to, keep);
            }
        };
        self.wait_for(thread, progress);
    }

    /// A thread unmaps, maps or moves something that is registered, so that a message of it waits to be read.
    pub(super) fn disturb(&mut self, kernel: &FakeKernel, thread: usize, among: &[Disturbance]) {
        while self.threads[thread] == Thread::Idle {
            let Some(range) = self.some_range(kernel) else { continue };
            let to = PageRange::new(PageIndex(FIRST + self.random.below(ADDRESSES)), range.count());
            let is_free = self.shadow.range(to.start..to.end).next().is_none();
            match among[self.random.below(among.len() as u64) as usize] {
                Disturbance::Unmaps => {
                    self.forget(range);
                    let progress = kernel.unmap(thread as u32, range);
                    self.wait_for(thread, progress);
                }
                Disturbance::MapsOver => self.map_over(kernel, thread, range),
                Disturbance::MovesOver if to.intersection(range).is_none() => {
                    self.remap(kernel, thread, range, to.start, false);
                }
                Disturbance::MovesAway if is_free => self.remap(kernel, thread, range, to.start, false),
                Disturbance::MovesAndKeeps if is_free => self.remap(kernel, thread, range, to.start, true),
                _ => {}
            }
        }
    }

    pub(super) fn discard(&mut self, kernel: &FakeKernel, thread: usize, range: PageRange) {
        let progress = kernel.discard(thread as u32, range);
        for (_, allowed) in self.shadow.range_mut(range.start..range.end) {
            allowed.or_zero = true;
        }
        if progress == Progress::Done {
            self.fresh_mapped(range);
        } else {
            self.discards.insert(thread, range);
        }
        self.wait_for(thread, progress);
    }

    pub(super) fn unmap(&mut self, kernel: &FakeKernel, thread: usize, range: PageRange) {
        self.forget(range);
        let progress = kernel.unmap(thread as u32, range);
        self.wait_for(thread, progress);
    }

    /// mmap with `MAP_FIXED`.
    pub(super) fn map_over(&mut self, kernel: &FakeKernel, thread: usize, range: PageRange) {
        self.fresh(range);
        self.made.insert(thread, [range; 2]);
        let progress = kernel.map_fixed(thread as u32, range);
        self.wait_for(thread, progress);
    }

    pub(super) fn remap(&mut self, kernel: &FakeKernel, thread: usize, range: PageRange, to: PageIndex, keep: bool) {
        let moved: Vec<Allowed> = range.start.until(range.end).map(|page| self.shadow[&page]).collect();
        let has_grown = self.grown.range(range.start..range.end).next().is_some();
        self.forget(PageRange::new(to, range.count()));
        self.forget(range);
        for (step, allowed) in moved.into_iter().enumerate() {
            self.shadow.insert(to + PageCount(step as u64), allowed);
        }
        if keep {
            self.fresh(range);
        }
        let target = PageRange::new(to, range.count());
        self.made.insert(thread, [if keep || has_grown { range } else { target }, target]);
        let progress = kernel.remap(thread as u32, range, to, keep);
        self.wait_for(thread, progress);
    }

    /// The mapping of `page` grows in place, as far as there is room.
    fn grow(&mut self, kernel: &FakeKernel, page: PageIndex) {
        let mut end = page;
        kernel.visit_mappings(&mut |found| {
            if found.contains(page) {
                end = found.end;
            }
        });
        let wanted = PageRange::new(end, PageCount(1 + self.random.below(60)));
        if self.shadow.len() as u64 > self.mix.pages_max {
            return;
        }
        let next = self.shadow.range(end..).next().map_or(wanted.end, |(next, _)| *next);
        let range = PageRange { start: end, end: wanted.end.min(next) };
        if range.start < range.end && self.is_free(range) {
            kernel.grow(end, range.count());
            self.grown.extend(range.start.until(range.end));
            self.fresh(range);
        }
    }

    pub(super) fn fork(&mut self, kernel: &FakeKernel, thread: usize) {
        let progress = kernel.fork(thread as u32);
        self.wait_for(thread, progress);
    }

    /// The thread has begun to change the layout, and got so far.
    pub(super) fn wait_for(&mut self, thread: usize, progress: Progress) {
        assert!(self.threads[thread] == Thread::Idle);
        if progress == Progress::Done {
            self.made.remove(&thread);
        } else {
            self.threads[thread] = Thread::Layout;
        }
    }

    fn fresh_mapped(&mut self, range: PageRange) {
        for (_, allowed) in self.shadow.range_mut(range.start..range.end) {
            *allowed = Allowed { content: Content::Zero, or_zero: false };
        }
    }

    fn forget(&mut self, range: PageRange) {
        self.left = range.start;
        self.shadow.retain(|page, _| !range.contains(*page));
        self.grown.retain(|page| !range.contains(*page));
    }

    /// Maps a new range, over whatever is there.
    fn map_somewhere(&mut self, kernel: &FakeKernel, thread: usize) {
        let length = 16 + self.random.below(200);
        let start = PageIndex(FIRST + self.random.below(ADDRESSES - length));
        let range = PageRange::new(start, PageCount(length));
        if self.shadow.len() as u64 + length > self.mix.pages_max || !self.is_free(range) {
            return;
        }
        self.fresh(range);
        self.made.insert(thread, [range; 2]);
        let progress = kernel.map_fixed(thread as u32, range);
        self.wait_for(thread, progress);
    }

    /// Some memory is to be empty in a forked child.
    pub(super) fn wipe_on_fork(&mut self, kernel: &FakeKernel) {
        for _ in 0..3 {
            if let Some(range) = self.some_range(kernel) {
                kernel.set(range, Flag::Uncopied(Uncopied::Empty), true);
            }
        }
    }

    fn change_flags(&mut self, kernel: &FakeKernel) {
        let everything = PageRange::new(PageIndex(FIRST), PageCount(ADDRESSES));
        let flags = [Flag::Locked, Flag::Protected, Flag::Pinned];
        let flag = flags[self.random.below(3) as usize];
        if self.random.one_in(3) {
            return kernel.set(everything, flag, false);
        }
        let Some(range) = self.some_range(kernel) else { return };
        if flag == Flag::Pinned {
            // Only what is there can be pinned.
            for page in range.start.until(range.end).filter(|page| kernel.is_present(*page)) {
                kernel.set(PageRange::new(page, PageCount(1)), flag, true);
            }
        } else {
            kernel.set(range, flag, true);
        }
    }

    /// Whether nothing of the layout is on its way.
    pub(super) fn is_calm(&self, kernel: &FakeKernel) -> bool {
        !kernel.layout_is_changing() && self.discards.is_empty()
    }
}
