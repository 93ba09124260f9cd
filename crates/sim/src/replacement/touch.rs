//! References as the policies see them: with numbers for pages, and without those that change nothing.

use page::PageIndex;
use trace::Reference;

use crate::pages::{BUNCH, Pages};

/// References whose places are read ahead: a policy first reads for all of them what it will need, then goes through them, so
/// that the processor waits for many places at the same time.
pub(super) const AHEAD: usize = 64;

/// A reference as the policies see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) page: PageIndex,
    /// The page's number.
    pub(super) number: u32,
    /// It is referenced for the first time.
    pub(super) is_first: bool,
}

/// Makes touches of references.
#[derive(Default)]
pub(super) struct Numbering {
    pub(super) pages: Pages,
    /// The last page's number.
    last: Option<u32>,
    pub(super) references: u64,
}

impl Numbering {
    /// Those of a batch. A reference to the page of the one before is only counted.
    pub(super) fn touches(&mut self, batch: &[Reference], touches: &mut Vec<Touch>) {
        touches.clear();
        self.references += batch.len() as u64;
        let last = &mut self.last;
        let mut touch = |page, number, is_first| {
            if *last != Some(number) {
                *last = Some(number);
                touches.push(Touch { page, number, is_first });
            }
        };
        let (bunches, rest) = batch.as_chunks::<BUNCH>();
        for bunch in bunches {
            self.pages.number_all(&bunch.map(|reference| reference.page), &mut touch);
        }
        for reference in rest {
            let (number, is_first) = self.pages.number(reference.page);
            touch(reference.page, number, is_first);
        }
    }
}
