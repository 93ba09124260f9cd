//! Scans: finding the program's memory and registering it.
//!
//! A range is managed from the moment it is registered, in whole mappings, because a mapping that is registered in part
//! is split, and then mremap across the pieces fails. What is there already becomes resident; what is missing was
//! never touched. All of it happens under the lock and counts only if no layout message was on its way meanwhile:
//! otherwise a range might be registered that has been replaced since, and its old message would hit the new memory.
//!
//! All that holds for each mapping by itself. So where it is known what is new a scan looks at the mappings there only
//! ([`Extent::At`]), as a full one would: at whole mappings, and at the same ones again behind the registering.

use alloc::vec::Vec;

use page::{PageCount, PageIndex};
use store::Store;
use sys::Errno;
use sys::kernel::{Kernel, Mapping, MappingName, PageRange};

use crate::Pager;
use crate::ledger::Counter;
use crate::state::State;

/// Smaller ranges cost more to watch than they hold, as long as that is little: thread-local caches, small tables.
pub(crate) const RANGE_PAGES_MIN: PageCount = PageCount(16);
/// It is no more little where they have this part of the share.
const SMALL_DIVISOR: u64 = 16;
/// Where there are so many mappings small ones are left alone: what is registered does not merge with what is not yet, and Linux allows
/// 65,530 as a rule.
const MAPPINGS_MAX: u64 = 32_000;
/// Pages above this are not the program's on any machine we know (x86-64 and aarch64 without opt-in: 47 and 48 bits).
const ADDRESS_END: PageIndex = PageIndex(1 << 35);

/// How a scan went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scanned {
    /// So many ranges are new.
    Registered(usize),
    /// The program is changing its layout: scan again.
    Changing,
    /// The program forks.
    Frozen,
    /// The mappings cannot be read, for a moment (descriptors, memory), or not in this way. Nothing is lost.
    Unread,
}

/// Where a scan looks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extent<'a> {
    Everywhere,
    /// At the mappings that have something of these ranges, which are sorted by their beginnings.
    At(&'a [PageRange]),
}

impl Extent<'_> {
    fn visit<K: Kernel>(self, kernel: &K, visit: &mut dyn FnMut(Mapping)) -> Result<(), Errno> {
        let Self::At(ranges) = self else { return kernel.mappings(visit) };
        // A mapping that has something of several is visited once.
        let mut seen_end = PageIndex(0);
        for range in ranges {
            let rest = PageRange { start: range.start.max(seen_end), end: range.end };
            kernel.mappings_in(rest, &mut |mapping| {
                seen_end = mapping.range.end;
                visit(mapping);
            })?;
        }
        Ok(())
    }
}

/// Registers what is new among the program's mappings.
pub(crate) fn scan<K: Kernel, S: Store>(pager: &Pager<K, S>, extent: Extent<'_>) -> Scanned {
    let is_full = matches!(extent, Extent::Everywhere);
    pager.entry.add(Counter::Scans, u64::from(is_full));
    let mut state = pager.lock();
    if state.frozen {
        return Scanned::Frozen;
    }
    if state.is_holding() || pager.kernel.layout_is_changing() {
        return Scanned::Changing;
    }
    let Ok(mut gaps) = find(pager, &mut state, extent) else { return Scanned::Unread };
    gaps.retain(|gap| pager.kernel.register(*gap).is_ok());
    leave_own(pager, &gaps);
    // What was not registered yet could be unmapped without a message, and mapped anew behind the registration: pages
    // moved out of that would read as zeros. A mapping is registered as a whole or not at all, so a range that still
    // lies in one mapping was there as a whole when it was registered; what changes from then on sends a message.
    let mut whole = Vec::new();
    let mut mapped_end = PageIndex(0);
    let again = if is_full { extent } else { Extent::At(&gaps) };
    let read = again.visit(&pager.kernel, &mut |mapping| {
        if is_full {
            forget_discarded(&mut state, PageRange { start: mapped_end, end: mapping.range.start });
        }
        mapped_end = mapping.range.end;
        if is_manageable(&mapping) {
            let first = gaps.partition_point(|gap| gap.start < mapping.range.start);
            let begun = gaps[first..].iter().take_while(|gap| gap.start < mapping.range.end);
            whole.extend(begun.filter(|gap| gap.end <= mapping.range.end));
        }
    });
    leave_own(pager, &gaps);
    if read.is_err() || pager.kernel.layout_is_changing() {
        // What is registered stays so: by now a mapping of ours may have moved there, and its missing pages would read
        // as zeros. Until the next scan finds it a fault there is served, as one at the end of a mapping that has grown.
        state.given_up.insert_all(&gaps);
        return Scanned::Changing;
    }
    state.end_window();
    if is_full {
        forget_discarded(&mut state, PageRange { start: mapped_end, end: ADDRESS_END });
    }
    state.regions.insert_all(&whole);
    for gap in &whole {
        state.given_up.cut(*gap);
    }
    let adopted = whole.iter().map(|gap| adopt(pager, &mut state, *gap)).sum();
    state.accounts.take_over(adopted);
    Scanned::Registered(whole.len())
}

/// What is manageable and not managed, by address.
fn find<K: Kernel, S: Store>(
    pager: &Pager<K, S>,
    state: &mut State<S>,
    extent: Extent<'_>,
) -> Result<Vec<PageRange>, Errno> {
    let (mut fresh, mut small, mut mappings) = (Vec::new(), PageCount::ZERO, 0);
    extent.visit(&pager.kernel, &mut |mapping| {
        mappings += 1;
        if is_manageable(&mapping) {
            pager.untouchable.gaps(mapping.range, |part| {
                small += if part.count() < RANGE_PAGES_MIN { part.count() } else { PageCount::ZERO };
                state.regions.gaps(part, |gap| fresh.push((gap, part)));
            });
        }
    })?;
    if matches!(extent, Extent::Everywhere) {
        let takes_all = mappings <= MAPPINGS_MAX && is_much(state, small);
        state.range_pages_min = if takes_all { PageCount(1) } else { RANGE_PAGES_MIN };
    }
    // The program is about to register it itself.
    if let Some(taken) = pager.surrender.range() {
        fresh.retain(|(_, whole)| whole.intersection(taken).is_none());
    }
    fresh.retain(|(gap, whole)| gap.count() >= state.range_pages_min || gap != whole);
    let mut gaps: Vec<_> = fresh.into_iter().map(|(gap, _)| gap).collect();
    // They are, unless the layout has changed meanwhile.
    gaps.sort_unstable_by_key(|gap| gap.start);
    Ok(gaps)
}

/// Whether small ranges have much, and so it seems to be what nobody manages; or was, before they were managed.
fn is_much<S>(state: &State<S>, small: PageCount) -> bool {
    let much = state.accounts.share.0 / SMALL_DIVISOR;
    let are_managed = state.range_pages_min < RANGE_PAGES_MIN;
    small.bytes().0 > much && (are_managed || state.accounts.unmanaged > much as i64)
}

/// What was the program's when the mappings were read can have gone, and an area of our own can be there by now, registered with
/// the rest: its thread would wait for itself at the first page of it.
fn leave_own<K: Kernel, S: Store>(pager: &Pager<K, S>, fresh: &[PageRange]) {
    for gap in fresh {
        sys::area::inside_own(*gap, &mut |part| pager.kernel.unregister(part));
    }
}

/// Writable private memory that is not pleat's own.
fn is_manageable(mapping: &Mapping) -> bool {
    let (start, end) = (mapping.range.start.address(), mapping.range.end.address());
    mapping.anonymous
        && mapping.writable
        && matches!(mapping.name, MappingName::Plain | MappingName::Heap)
        && mapping.range.end <= ADDRESS_END
        && !sys::area::is_own(start..end)
}

/// Takes over what of a new region is there, so many pages.
fn adopt<K: Kernel, S: Store>(pager: &Pager<K, S>, state: &mut State<S>, range: PageRange) -> PageCount {
    let mut adopted = PageCount::ZERO;
    // Without an answer the pages that are there stay where they are, unmanaged, until they are discarded.
    let _ = pager.kernel.resident(range, &mut |run| {
        for page in run.start.until(run.end) {
            if state.adopt(page) {
                adopted += PageCount(1);
                pager.note_found(page);
            }
        }
    });
    // What is managed sends its messages in time.
    forget_discarded(state, range);
    adopted
}

/// Nothing in `range` is about to be discarded any more. For what is not mapped that holds, too: when it is told of its
/// unmapping is no sign, because that message may be about an older mapping than the discarding.
fn forget_discarded<S: Store>(state: &mut State<S>, range: PageRange) {
    if range.start < range.end {
        state.discarded_early.cut(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, count: u64) -> Mapping {
        Mapping {
            range: PageRange::new(PageIndex(start), PageCount(count)),
            writable: true,
            access: *b"rw-p",
            anonymous: true,
            name: MappingName::Plain,
        }
    }

    #[test]
    fn only_plain_private_memory_is_managed() {
        assert!(is_manageable(&mapping(0x500, 64)));
        assert!(is_manageable(&Mapping { name: MappingName::Heap, ..mapping(0x500, 64) }));
        assert!(!is_manageable(&Mapping { writable: false, ..mapping(0x500, 64) }));
        assert!(!is_manageable(&Mapping { anonymous: false, ..mapping(0x500, 64) }));
        assert!(!is_manageable(&Mapping { name: MappingName::Special, ..mapping(0x500, 64) }));
        assert!(!is_manageable(&mapping(1 << 35, 64)));
    }
}
