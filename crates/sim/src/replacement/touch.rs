//! References as the policies see them: with numbers for pages, and without those that change nothing.

use page::PageIndex;
use trace::{Reference, Sample, Trace};

use crate::PlayError;
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

/// Some of a trace, as it is and as the policies see it.
pub(super) struct Batch<'a> {
    pub(super) references: &'a [Reference],
    pub(super) touches: &'a [Touch],
    /// References of the trace until here.
    pub(super) played: u64,
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
    /// Gives the batches of a trace to `play`.
    pub(super) fn play(
        &mut self,
        trace: &mut dyn Trace,
        play: &mut dyn FnMut(&Batch<'_>) -> Result<(), PlayError>,
    ) -> Result<(), PlayError> {
        let (mut references, mut samples) = (Vec::new(), Vec::<Sample>::new());
        let mut touches = Vec::new();
        loop {
            trace.read(&mut references, &mut samples).map_err(PlayError::Trace)?;
            if references.is_empty() {
                return Ok(());
            }
            self.touches(&references, &mut touches);
            play(&Batch { references: &references, touches: &touches, played: self.references })?;
        }
    }

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
