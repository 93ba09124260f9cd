//! The heap, whose end moves up and down.

use crate::calls;
use crate::content::{self, Key, PAGE};
use crate::random::Random;
use crate::worker::{Done, Trouble, of};

const PAGES_MAX: usize = 600;

/// Pages at the end of the heap that nobody else uses.
#[derive(Debug)]
pub(crate) struct Heap {
    start: usize,
    count: usize,
    keys: [Key; PAGES_MAX],
}

impl Heap {
    /// Moves the end, and checks what is there.
    pub(crate) fn step(&mut self, random: &mut Random) -> Done {
        if self.count < PAGES_MAX && random.one_in(2) {
            self.grow(1 + random.below((PAGES_MAX - self.count).min(120)), random)?;
        } else if self.count > 0 {
            self.shrink(1 + random.below(self.count))?;
        }
        for _ in 0..self.count.min(24) {
            let page = random.below(self.count);
            self.check_page(page)?;
        }
        Ok(())
    }

    fn grow(&mut self, more: usize, random: &mut Random) -> Done {
        let at = calls::move_break((more * PAGE) as isize).map_err(of("sbrk"))?;
        if at != self.start + self.count * PAGE || self.count == 0 {
            // Somebody else has moved it: what was ours stays, unwatched. Whole pages only.
            (self.start, self.count) = (at.next_multiple_of(PAGE), 0);
        }
        let end = (at + more * PAGE - self.start) / PAGE;
        for page in self.count..end.min(PAGES_MAX) {
            let at = self.start + page * PAGE;
            content::check(at, Key::ZERO).map_err(|wrong| Trouble::Other("a new page of the heap", wrong.found))?;
            self.keys[page] = Key::new(random.word());
            content::write(at, self.keys[page]);
        }
        self.count = end.min(PAGES_MAX);
        Ok(())
    }

    fn shrink(&mut self, less: usize) -> Done {
        let end = calls::move_break(0).map_err(of("sbrk"))?;
        if end == self.start + self.count * PAGE {
            calls::move_break(-((less * PAGE) as isize)).map_err(of("sbrk, less"))?;
            self.count -= less;
        } else {
            self.count = 0;
        }
        Ok(())
    }

    fn check_page(&self, page: usize) -> Done {
        let at = self.start + page * PAGE;
        content::check(at, self.keys[page]).map_err(|wrong| Trouble::Other("a page of the heap", wrong.found))
    }

    pub(crate) fn check(&self) -> Done {
        (0..self.count).try_for_each(|page| self.check_page(page))
    }
}
