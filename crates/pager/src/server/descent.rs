//! Walks downwards: what lies below a page that has just been served comes before it is asked for.
//!
//! The program has its page and runs meanwhile. Whatever goes wrong here is left to the fault that asks for the page.

use page::{PageCount, PageIndex};
use store::Store;
use sys::kernel::{Kernel, PageRange};

use super::pieces::Gathered;
use super::{Asked, Server};
use crate::Pager;
use crate::ledger::{Counter, FaultKind};
use crate::state::State;

impl Server {
    /// Brings as many as `window` pages below `page`.
    pub(super) fn bring_below<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, page: PageIndex, window: PageCount) {
        let begun = pager.kernel.now_ns();
        let brought = self.bring_away(pager, page, window).unwrap_or(PageCount::ZERO);
        self.descents.shortened(page, window, brought);
        pager.entry.add(Counter::ServeNs, pager.kernel.now_ns() - begun);
    }

    fn bring_away<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        page: PageIndex,
        window: PageCount,
    ) -> Option<PageCount> {
        let state = pager.lock_first();
        let run = away_below(&state, page, window)?;
        if pager.kernel.holes(run.start, run.count()) != run.count() {
            return None;
        }
        let (count, kind) = match self.gather(pager, state, run.start, run.count(), false) {
            Gathered::Pieces(count, kind) => (count, kind),
            Gathered::Backed(job, count) => (self.fetch(pager, job, count).ok()?, FaultKind::Backed),
            Gathered::Served(_) | Gathered::Unknown(_) | Gathered::NoRoom | Gathered::Deferred => return None,
        };
        self.decode(pager, run.start, count).ok()?;
        let asked = Asked { window, by_fault: false };
        let filled = self.fill(pager, run.start, count, kind, asked).ok()??;
        // Those nearest to it are what is asked for next.
        Some(if filled == run.count() { filled } else { PageCount::ZERO })
    }
}

/// The pages that lie in one piece below `page`, `count` at most, and are all away.
fn away_below<S: Store>(state: &State<S>, page: PageIndex, count: PageCount) -> Option<PageRange> {
    if state.frozen || state.is_holding() {
        return None;
    }
    let below = (1..=count.0.min(page.0)).map(|step| PageIndex(page.0 - step));
    let away = below.take_while(|page| state.regions.contains(*page) && state.cache.place(*page).is_away());
    away.last().map(|start| PageRange::new(start, page - start))
}
