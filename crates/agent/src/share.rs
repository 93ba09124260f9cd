//! This process's share of the budget, and what it loses by it.

use core::sync::atomic::Ordering;

use page::{ByteCount, PAGE_BYTES};
use pager::Standing;
use pager::ledger::{Counter, Gauge, Phase, Process};
use policy::shares::{self, Claim, Holder, Loss, Share};
use sys::thread::Processors;

use crate::entry::Membership;
use crate::watcher::Agent;

/// How long several processes must have been beyond the budget, with nothing that could go, before that is told: they come and go.
const BEYOND_NS: u64 = 1_000_000_000;

/// Of what this process may have, one call in user mode holds no more than this part where it can be made in pieces.
const HELD_PART: u64 = 16;

/// A swap file with less room than this is full.
const ROOM_TO_SPILL: u64 = 1 << 20;

/// What this process has lost so far, as of the last look.
#[derive(Default)]
pub(crate) struct Losses {
    looked_at_ns: u64,
    /// ns.
    lost: u64,
    /// Since when the budget has been out of reach.
    beyond_since_ns: Option<u64>,
    /// It is somebody else's turn.
    gives_way: bool,
    /// When that was last so.
    gave_way_at_ns: u64,
    processors: Option<u32>,
}

impl Losses {
    /// Writes down what is lost of each second, and what this process may claim for it.
    pub(crate) fn look(&mut self, membership: &Membership, standing: &Standing, now_ns: u64) {
        let waits = standing.waits();
        let gives_way = waits && has_room_to_spill(membership);
        if gives_way != self.gives_way {
            // Who has the turn has the memory.
            let claim = if gives_way { Claim::MIN } else { Claim::WHOLE };
            membership.entry.claim.store(claim.number().into(), Ordering::Relaxed);
            self.gives_way = gives_way;
        }
        if gives_way {
            self.gave_way_at_ns = now_ns;
        }
        let passed = now_ns - self.looked_at_ns;
        if passed < Claim::LOOK_NS {
            return;
        }
        let entry = membership.entry;
        let lost = entry.count(Counter::RefaultNs);
        let per_second = u128::from(lost - self.lost) * 1_000_000_000 / u128::from(passed);
        (self.looked_at_ns, self.lost) = (now_ns, lost);
        entry.set(Gauge::RefaultNsPerSecond, u64::midpoint(entry.get(Gauge::RefaultNsPerSecond), per_second as u64));
        let losses = membership.managed().map(loss);
        standing.look(loss(entry), losses.clone(), self.processors(), now_ns);
        if !waits {
            let all = losses.fold(Loss::default(), |sum, one| Loss { ns: sum.ns + one.ns, held: sum.held + one.held });
            entry.claim.store(claim(entry).look(loss(entry), all).number().into(), Ordering::Relaxed);
        }
    }

    /// How many there are for this process.
    fn processors(&mut self) -> u32 {
        *self.processors.get_or_insert_with(|| Processors::allowed().map_or(1, |allowed| allowed.count()))
    }

    /// Whether the budget has been out of reach for some time; `is_exhausted`: the reclaimer can make no more room. That says
    /// something of the share alone, where others hold less than theirs or have to let go what is to be ours, and nothing of who
    /// gives way and has less than he will have.
    pub(crate) fn is_beyond(&mut self, share: Share, is_exhausted: bool, now_ns: u64) -> bool {
        let has_all = share.is_exceeded && share.bytes >= share.dealt;
        let is_exhausted = is_exhausted && has_all && now_ns - self.gave_way_at_ns > BEYOND_NS;
        let is_beyond = is_exhausted || share.is_beyond;
        self.beyond_since_ns = if is_beyond { Some(self.beyond_since_ns.unwrap_or(now_ns)) } else { None };
        let is_sure = |since| share.is_lone() || now_ns - since > BEYOND_NS;
        self.beyond_since_ns.is_some_and(is_sure)
    }
}

/// Whether the pool of this process can shrink. Where it cannot, its share does not either.
fn has_room_to_spill(membership: &Membership) -> bool {
    let left = membership.ledger.swap_bytes_max.load(Ordering::Relaxed);
    left.saturating_sub(membership.entry.get(Gauge::SwapFileBytes)) > ROOM_TO_SPILL
}

impl Membership {
    /// What this process may hold now: its share of what `pleat run` and the processes that are not managed leave,
    /// and what others are about to fill before anybody counts it.
    pub(crate) fn share(&self) -> Share {
        let budget = self.ledger.budget_bytes.load(Ordering::Relaxed);
        let watching = self.processes().filter(|(_, phase)| *phase == Phase::Watching);
        let promised = self.ledger.promised().saturating_sub(self.entry.promised_bytes.load(Ordering::Relaxed));
        let unmanaged = watching.map(|(entry, _)| entry.get(Gauge::ResidentBytes)).sum::<u64>()
            + promised
            + self.ledger.runner_bytes.load(Ordering::Relaxed);
        // However much others take, something must be left to work with.
        let left = ByteCount(budget.saturating_sub(unmanaged).max(budget / 8));
        let share = shares::share(left, holder(self.entry), self.managed().map(holder));
        self.entry.set(Gauge::ShareBytes, share.bytes.0);
        share
    }
}

impl Agent {
    /// How many bytes one call may hold, see [`sys::user_mode::Hooks`].
    pub(crate) fn held_bytes_max(&self) -> u64 {
        let managed = self.keeper().map(|keeper| keeper.entry().get(Gauge::ShareBytes));
        let share = managed.unwrap_or_else(|| self.membership().ledger.budget_bytes.load(Ordering::Relaxed));
        share / HELD_PART
    }
}

fn claim(entry: &Process) -> Claim {
    Claim::from_number(entry.claim.load(Ordering::Relaxed) as u32)
}

fn holder(entry: &Process) -> Holder {
    let fixed = ByteCount(entry.get(Gauge::FixedBytes));
    let limit = ByteCount(entry.get(Gauge::ShareBytes));
    Holder { held: ByteCount(entry.footprint()), fixed, claim: claim(entry), limit }
}

fn loss(entry: &Process) -> Loss {
    // What does not go costs nobody anything.
    let held = entry.footprint().saturating_sub(entry.get(Gauge::FixedBytes)).max(PAGE_BYTES as u64);
    Loss { ns: entry.get(Gauge::RefaultNsPerSecond), held }
}
