//! A process's numbers, as the ledger shows them.

use core::sync::atomic::Ordering;

use page::ByteCount;
use store::Store;
use sys::kernel::Kernel;

use crate::Pager;
use crate::ledger::{Counter, Gauge};

/// Writes them; `resident` is what counts for this process.
pub(super) fn publish<K: Kernel, S: Store>(pager: &Pager<K, S>, resident: ByteCount) {
    let mut state = pager.lock();
    state.publish_area(pager.entry);
    let (census, store) = (state.cache.census(), state.cache.store_figures());
    let log = state.cache.log_figures().unwrap_or_default();
    let metadata = state.cache.metadata_bytes();
    let agent = state.accounts.agent.0 + log.buffer_bytes;
    let fixed = state.accounts.fixed(state.holdings());
    let layout_events = state.layout_events;
    let pool_bytes_max = state.pool_bytes_max();
    drop(state);
    let entry = pager.entry;
    // Behind a fork all of them are shared, too, and count in proportion: no more of each than there is room for.
    let mut left = resident.0;
    let [agent, metadata, pool] = [agent, metadata.0, store.pool.0].map(|part| {
        let counted = part.min(left);
        left -= counted;
        counted
    });
    entry.set(Gauge::ResidentBytes, left);
    entry.set(Gauge::PoolBytes, pool);
    entry.set(Gauge::PoolBytesMax, pool_bytes_max.0);
    entry.set(Gauge::MetadataBytes, metadata);
    entry.set(Gauge::AgentBytes, agent);
    entry.set(Gauge::FixedBytes, fixed.0.min(resident.0));
    entry.set(Gauge::StoredBytes, store.stored.0);
    entry.set(Gauge::BackedBytes, log.live_bytes);
    entry.set(Gauge::SwapFileBytes, log.file_bytes);
    entry.set(Gauge::PagesResident, census.resident.0);
    entry.set(Gauge::PagesLeaving, census.leaving.0);
    entry.set(Gauge::PagesCompressed, census.compressed.0);
    entry.set(Gauge::PagesIncompressible, census.incompressible.0);
    entry.set(Gauge::PagesSameFilled, census.same_filled.0);
    entry.set(Gauge::PagesWritingBack, log.memory_entries);
    entry.set(Gauge::PagesBacked, log.entries - log.memory_entries);
    // Relaxed: a statistic, written by this thread alone.
    entry.counters[Counter::LayoutEvents as usize].store(layout_events, Ordering::Relaxed);
    let footprint = entry.footprint();
    entry.footprint_peak.fetch_max(footprint, Ordering::Relaxed);
}
