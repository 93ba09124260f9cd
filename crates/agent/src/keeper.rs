//! The keeper: what the watcher becomes when memory gets short.
//!
//! It opens what management needs, starts the handler, and reclaims for the rest of the process's life.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};

use alloc::boxed::Box;

use backing::BackingError;
use cache::ring::frames_for;
use cache::system::{Admission, Choice as _, SizingName, StoreName, System, WriteBack};
use cache::{AreaKeeper, Cache};
use codec::Codec;
use page::{ByteCount, PAGE_BYTES, PageCount};
use pager::ledger::occupant::Occupancy;
use pager::ledger::reference_log::{Owner, ReferenceLog};
use pager::ledger::tracing::AgentThread;
use pager::ledger::{Counter, Notice, Phase, Process};
use pager::{Config, Pager, Party, Reclaimer, Standing};
use store::AnyStore;
use sys::addresses::Lifted;
use sys::kernel::Kernel;
use sys::linux::{Linux, Openings, Quarters};
use sys::proc_files::Condition;
use sys::process::RaisedLimit;
use sys::thread;
use sys::uffd::{Faults, Uffd};
use sys::{Area, Errno, OwnedFd};

use crate::afterlife::Afterlife;
use crate::crew::Crew;
use crate::custodian::Custodian;
use crate::custody::Custody;
use crate::entry::Membership;
use crate::failure::{end, fail, say};
use crate::fork::Forks;
use crate::share::Losses;
use crate::swap;
use crate::traced::{self, Lookout};
use crate::watcher::Agent;

/// Stacks and thread blocks, as far as they are touched.
const STACK_BYTES: u64 = 128 << 10;
/// A handler that has been at one thing for so long, while this process was running, is stuck.
pub(crate) const STUCK_NS: u64 = 10_000_000_000;
/// The longest step of time that counts as running: a stopped or suspended process makes longer ones.
const STEP_NS_MAX: u64 = 100_000_000;

/// What stands in the way where limits leave the agent nothing.
pub(crate) const NO_MEMORY: &str = "no memory for its agent";
pub(crate) const NO_THREAD: &str = "no thread for its agent";

/// One process's memory under management.
pub(crate) struct Keeper {
    pub(crate) pager: Pager<Linux, AnyStore>,
    pub(crate) forks: Forks,
    pub(crate) custody: Custody,
    entry: AtomicPtr<Process>,
    /// The handler's thread.
    pub(crate) handler: AtomicU32,
    pub(crate) occupancy: &'static Occupancy,
    pub(crate) standing: Standing,
    fault: &'static [u8],
}

impl Keeper {
    pub(crate) fn entry(&self) -> &'static Process {
        // SAFETY: an entry of the ledger, whose mapping is never undone.
        unsafe { &*self.entry.load(Ordering::Acquire) }
    }

    /// Whether the handler's process has ended, of which this one shares the memory (clone with `CLONE_VM`).
    pub(crate) fn is_gone(&self) -> bool {
        !thread::exists(self.handler.load(Ordering::Relaxed))
    }

    /// On the handler's thread, in a loop that may last: says that it is not stuck.
    pub(crate) fn is_alive(&self) {
        self.entry().busy_since_ns.store(self.pager.kernel.now_ns(), Ordering::Relaxed);
    }

    /// This process, to those that work by turns with it.
    pub(crate) fn party(&self, membership: &Membership) -> Party {
        let first = membership.ledger.processes.as_ptr() as usize;
        let slot = (core::ptr::from_ref(self.entry()) as usize - first) / size_of::<Process>();
        Party { slot: slot as u32, is_at_home: !membership.is_elsewhere }
    }

    pub(crate) fn set_entry(&self, entry: &'static Process) {
        self.entry.store(core::ptr::from_ref(entry).cast_mut(), Ordering::Release);
    }

    pub(crate) fn fault(&self) -> &'static [u8] {
        self.fault
    }
}

/// Manages this process's memory from now on.
pub(crate) fn keep(agent: &'static Agent) -> ! {
    // The program must not fork between the moment when memory is managed and the moment when forks know of it.
    agent.close_gate();
    let membership = agent.membership();
    let limit = sys::process::raise_descriptor_limit();
    let lifted = sys::addresses::lift();
    let prepared = prepare(agent, &membership);
    limit.into_iter().for_each(RaisedLimit::restore);
    let (crew, keeper) = match prepared {
        Ok((crew, keeper)) => (crew, &*Box::leak(Box::new(keeper))),
        Err(reason) => {
            lifted.into_iter().for_each(Lifted::put_back);
            run_unmanaged(agent, &reason)
        }
    };
    sys::addresses::reserved(lifted.as_ref(), &membership.ledger.address_bytes);
    crew.call(keeper);
    agent.keeper.store(core::ptr::from_ref(keeper).cast_mut(), Ordering::Release);
    fence(Ordering::SeqCst);
    // Once there is a keeper: it may go on as another thread, and nobody is to open the gate of one that has ended.
    let lookout = Lookout::begin(AgentThread::Reclaimer, keeper);
    if agent.has_userfaultfd.load(Ordering::Relaxed) {
        keeper.pager.be_exact();
    }
    let mut reclaimer = Reclaimer::new();
    if agent.shares.load(Ordering::Relaxed) {
        reclaimer.shares_memory();
    }
    agent.gate.open();
    reclaimer.publish(&keeper.pager);
    membership.entry.phase.store(Phase::Managing as u32, Ordering::Release);
    reclaim(keeper, &membership, reclaimer, lookout)
}

/// What kept us from managing.
pub(crate) struct Obstacle {
    pub(crate) what: &'static str,
    pub(crate) errno: Errno,
}

impl Obstacle {
    pub(crate) fn of(what: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self { what, errno }
    }
}

/// The program goes on outside the budget, after a line that says so.
fn run_unmanaged(agent: &Agent, obstacle: &Obstacle) -> ! {
    agent.growth.give_up();
    agent.gate.open();
    say_unmanaged(agent, obstacle);
    thread::exit_thread()
}

pub(crate) fn say_unmanaged(agent: &Agent, Obstacle { what, errno }: &Obstacle) {
    let membership = agent.membership();
    let pid = thread::process_id();
    if membership.ledger.is_first(Notice::Outside) {
        say(format_args!("process {pid} runs outside the budget: {what}: {errno:?}"));
    }
}

/// All that can fail. Nothing is registered yet, so nothing is lost.
fn prepare(agent: &'static Agent, membership: &Membership) -> Result<(Crew, Keeper), Obstacle> {
    crate::heap::has_room(pager::JOURNAL_BYTES).map_err(Obstacle::of(NO_MEMORY))?;
    let crew = Crew::gather(agent).map_err(Obstacle::of(NO_THREAD))?;
    let traced = traced::wait(agent).map_err(Obstacle::of(traced::REFUSED));
    match traced.and_then(|()| open(agent, membership)) {
        Ok(keeper) => Ok((crew, keeper)),
        Err(obstacle) => {
            crew.send_away();
            Err(obstacle)
        }
    }
}

fn open(agent: &'static Agent, membership: &Membership) -> Result<Keeper, Obstacle> {
    let budget = membership.ledger.budget_bytes.load(Ordering::Relaxed);
    let frames = frames_for(PageCount(budget / PAGE_BYTES as u64));
    let quarters = Quarters::reserve(frames, agent.stack).map_err(Obstacle::of("no address space"))?;
    let openings = openings(membership, None)?;
    let kernel = memory(membership)
        .and_then(|memory| Linux::begin(memory, quarters, openings))
        .map_err(Obstacle::of("userfaultfd is not permitted"))?;
    let codec = chosen_codec(membership);
    let system = chosen_system(membership, codec);
    let (store, area) = open_store(membership, &system, codec).map_err(Obstacle::of("no address space"))?;
    let forks = Forks::open().map_err(Obstacle::of("no socket for forked processes"))?;
    let log = match swap::open_file(membership).map_err(Obstacle::of("no swap file"))? {
        Some(file) => {
            forks.pass_on(file.file().number());
            Some(
                swap::segment_log(swap::device(file, &agent.fault), membership)
                    .map_err(Obstacle::of("no random key"))?,
            )
        }
        None => None,
    };
    let journal = Area::reserve(pager::JOURNAL_BYTES).map_err(Obstacle::of("no address space"))?;
    let cache = Cache::new(store, log);
    let config = Config {
        codec,
        area,
        divider: system.divider(ByteCount(budget), fixed_pool(membership)),
        entry: membership.entry,
        share: ByteCount(budget),
        agent: ByteCount(STACK_BYTES),
        is_told_of_growth: agent.growth.is_told(),
        references: references(membership),
        frames,
        journal,
        untouchable: agent.library_memory.clone(),
    };
    let custody = Custody::begin(membership.ledger, kernel.number());
    Ok(Keeper {
        custody,
        pager: Pager::new(kernel, cache, config),
        forks,
        entry: AtomicPtr::new(core::ptr::from_ref(membership.entry).cast_mut()),
        handler: AtomicU32::new(0),
        occupancy: &membership.ledger.occupancy,
        standing: Standing::new(membership.ledger, agent.fault == *b"no-turns"),
        fault: &agent.fault,
    })
}

/// Where to tell what the program references, if this is the process whose references are recorded.
fn references(membership: &Membership) -> Option<&'static ReferenceLog> {
    let log = &membership.ledger.references;
    let start_ticks = membership.entry.start_ticks.load(Ordering::Relaxed);
    log.is_for(Owner { process: membership.entry.pid.load(Ordering::Relaxed), start_ticks }).then_some(log)
}

/// The userfaultfd of the program's memory. In a namespace of users there is no right to one for all faults, but the custodian's may be enough.
fn memory(membership: &Membership) -> Result<Uffd, Errno> {
    let faults = faults(membership);
    Uffd::of_program(faults).or_else(|refused| match faults {
        Faults::All => Custodian::of(membership.ledger).userfaultfd().ok_or(refused),
        Faults::OfUserMode => Err(refused),
    })
}

/// What an agent opens of its own process. A server that was root and has become another user may not open its page map.
pub(crate) fn openings(membership: &Membership, neighbour: Option<&OwnedFd>) -> Result<Openings, Obstacle> {
    let page_map = || Custodian::of(membership.ledger).page_map();
    Openings::open(neighbour, &page_map).map_err(Obstacle::of("/proc or userfaultfd is out of reach"))
}

/// Which faults this run's userfaultfds serve.
pub(crate) fn faults(membership: &Membership) -> Faults {
    if membership.is_in_user_mode() { Faults::OfUserMode } else { Faults::All }
}

/// A store with addresses for all that the machine can hold, so that memory ends before they do, however far a program
/// exceeds its budget: twice as many, for a slab takes a span of addresses that it fills by half at least. With a limit
/// on addresses that may not be raised there are enough for the budget.
fn open_store(
    membership: &Membership,
    system: &System,
    codec: &'static dyn Codec,
) -> Result<(AnyStore, Option<AreaKeeper>), Errno> {
    let ledger = membership.ledger;
    let budget = ByteCount(ledger.budget_bytes.load(Ordering::Relaxed));
    let area_bytes = fixed_pool(membership);
    let memory = sys::process::machine_memory().max(budget.0);
    let open = |addresses: u64| system.open(codec, budget, addresses as usize, area_bytes);
    open(2 * memory).or_else(|_| open(2 * budget.0))
}

/// `--pool-size`; 0 if it is not given.
fn fixed_pool(membership: &Membership) -> ByteCount {
    ByteCount(membership.ledger.area_bytes.load(Ordering::Relaxed))
}

fn chosen_system(membership: &Membership, codec: &'static dyn Codec) -> System {
    let ledger = membership.ledger;
    System {
        store: StoreName::at(ledger.store.load(Ordering::Relaxed)),
        codec: codec.name(),
        sizing: SizingName::at(ledger.sizing.load(Ordering::Relaxed)),
        admission: Admission::at(ledger.admission.load(Ordering::Relaxed)),
        write_back: WriteBack::at(ledger.write_back.load(Ordering::Relaxed)),
    }
}

fn chosen_codec(membership: &Membership) -> &'static dyn Codec {
    let place = membership.ledger.codec.load(Ordering::Relaxed) as usize;
    // The runner takes it from the same table.
    codec::ALL[place]
}

pub(crate) fn reclaim(
    keeper: &'static Keeper,
    membership: &Membership,
    mut reclaimer: Reclaimer,
    mut lookout: Lookout,
) -> ! {
    thread::ask_for_short_slices();
    let mut watchdog = Watchdog::default();
    let mut losses = Losses::default();
    let mut afterlife = Afterlife::default();
    let pager = &keeper.pager;
    loop {
        if keeper.forks.stages.wants_rest() {
            let agent = crate::host::agent().expect("it made this thread");
            keeper.forks.rest_while_forking(agent, pager, &mut || watchdog.look(keeper));
            reclaimer.shares_memory();
            // Others deal the budget out by it.
            reclaimer.publish(pager);
        }
        keeper.forks.unpin_dead(pager);
        let calls = pager.calls();
        pager.set_agent_bytes(ByteCount(STACK_BYTES + crate::heap::used_bytes()));
        let now = pager.kernel.now_ns();
        lookout.look(keeper, now);
        losses.look(membership, &keeper.standing, now);
        let share = membership.share();
        reclaimer.set_processes(share.processes);
        let rest = reclaimer.round(pager, share.bytes);
        if membership.entry.promised_bytes.load(Ordering::Relaxed) > 0 {
            // The first round may have waited long for the program, which has filled much meanwhile.
            reclaimer.publish(pager);
            membership.entry.promised_bytes.store(0, Ordering::Relaxed);
        }
        if losses.is_beyond(share, rest.exhausted, now) {
            report_exhausted(membership, pager.swap_trouble());
        }
        watchdog.look(keeper);
        afterlife.look(now, |own| pager.kernel.files().ended_beside(own));
        pager.rest(calls, rest.time);
    }
}

/// The budget cannot be met: what `--when-full` says.
fn report_exhausted(membership: &Membership, trouble: Option<BackingError>) {
    membership.entry.add(Counter::Exceeded, 1);
    let budget_mib = membership.ledger.budget_bytes.load(Ordering::Relaxed) >> 20;
    let advice = match trouble {
        Some(BackingError::Io { .. }) => {
            "the swap file cannot be written: raise --ram, or give --swap a directory on a disk that can be written"
        }
        _ if membership.ledger.swap_bytes_max.load(Ordering::Relaxed) == 0 => {
            "there is no swap file: raise --ram, or give --swap a directory on a disk that can be written"
        }
        _ => "raise --ram, or allow more swap with --swap and --swap-size",
    };
    if membership.ledger.stop_when_full.load(Ordering::Relaxed) != 0 {
        end(
            Phase::Stopped,
            format_args!("the budget of {budget_mib} MiB cannot be met, stopping the program: {advice}"),
        );
    }
    if membership.ledger.is_first(Notice::Exceeds) {
        say(format_args!("the budget of {budget_mib} MiB cannot be met, the program goes on above it: {advice}"));
    }
}

/// Watches the handler from the other thread: a program whose faults nobody serves must end, not hang.
#[derive(Default)]
struct Watchdog {
    /// The deed that the handler was seen at, and for how long.
    busy_since: u64,
    seen_for_ns: u64,
    /// What the handler was at when half of the time had passed.
    half_way: Option<Condition>,
    running: RunningTime,
    /// The handler waits for the swap device.
    reading: Lasting,
    has_told_of_device: bool,
    next_look_ns: u64,
}

/// Time in which this process has been running: a long step is one that it spent stopped, or the machine suspended.
#[derive(Default)]
pub(crate) struct RunningTime {
    last_look_ns: u64,
}

impl RunningTime {
    /// What has passed of it since the last look.
    pub(crate) fn step_ns(&mut self, now_ns: u64) -> u64 {
        let step = (now_ns - self.last_look_ns).min(STEP_NS_MAX);
        self.last_look_ns = now_ns;
        step
    }
}

/// For how long something has been so without a break, in running time.
#[derive(Default)]
pub(crate) struct Lasting {
    running: RunningTime,
    for_ns: u64,
}

impl Lasting {
    /// At each look, with whether it is so now. In ns.
    pub(crate) fn look_ns(&mut self, is_so: bool, now_ns: u64) -> u64 {
        let step = self.running.step_ns(now_ns);
        self.for_ns = if is_so { self.for_ns + step } else { 0 };
        self.for_ns
    }
}

impl Watchdog {
    fn look(&mut self, keeper: &Keeper) {
        let now = keeper.pager.kernel.now_ns();
        if now < self.next_look_ns {
            return;
        }
        self.next_look_ns = now + STEP_NS_MAX / 2;
        let step = self.running.step_ns(now);
        // Who has gone reads no more.
        let is_reading = keeper.entry().is_reading() && !keeper.is_gone();
        let condition = || keeper.pager.kernel.files().condition(keeper.handler.load(Ordering::Relaxed));
        self.look_at_device(is_reading, now, condition);
        let busy_since = keeper.entry().busy_since_ns.load(Ordering::Relaxed);
        // An idle handler with work waiting is as stuck as a busy one.
        let is_waited_for = busy_since != 0 || keeper.pager.kernel.has_messages();
        if busy_since != self.busy_since || !is_waited_for || is_reading {
            self.busy_since = busy_since;
            (self.seen_for_ns, self.half_way) = (0, None);
            return;
        }
        self.seen_for_ns += step;
        if self.seen_for_ns > STUCK_NS / 2 && self.half_way.is_none() {
            self.half_way = condition();
        }
        if self.seen_for_ns > STUCK_NS {
            let is_starved = |now: Condition| self.half_way.is_some_and(|before| now.is_starved_since(before));
            if condition().is_some_and(|now| now.is_stopped() || is_starved(now)) {
                (self.seen_for_ns, self.half_way) = (0, None);
                return;
            }
            fail(format_args!("the fault handler is stuck or dead, the program is ended: its memory cannot be served"));
        }
    }

    /// A disk that starts up, or is behind a network, may be late. Its pages are not lost, and who waits for them is told so, once.
    fn look_at_device(&mut self, is_reading: bool, now_ns: u64, handler: impl Fn() -> Option<Condition>) {
        if self.reading.look_ns(is_reading, now_ns) > STUCK_NS && !self.has_told_of_device {
            if handler().is_some_and(Condition::is_stopped) {
                // It is not the device that makes it wait.
                self.reading = Lasting::default();
                return;
            }
            self.has_told_of_device = true;
            say(format_args!(
                "process {} waits for its swap file, which has not answered for {} s",
                thread::process_id(),
                STUCK_NS / 1_000_000_000
            ));
        }
    }
}
