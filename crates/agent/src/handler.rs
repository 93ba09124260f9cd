//! The handler: the thread that serves faults.

use core::sync::atomic::Ordering;
use core::time::Duration;

use pager::ledger::tracing::AgentThread;
use sys::AsFd as _;
use sys::kernel::Kernel;
use sys::thread;
use sys::uffd::Uffd;

use crate::attend::Attendant;
use crate::failure::fail;
use crate::keeper::Keeper;
use crate::placement::Placement;
use crate::traced::Lookout;
use crate::watcher::Agent;

/// When no fault has come for so long, its buffers are given back.
const IDLE: Duration = Duration::from_millis(100);
/// Then it looks so often who traces it, and who is to: a debugger waits for it. And so often where somebody is expected to.
const LOOK: Duration = Duration::from_millis(250);
const LOOK_SOON: Duration = Duration::from_millis(1);
/// Between two looks at faults that cannot be served before a fork is done.
const DEFERRED_PAUSE: Duration = Duration::from_micros(50);

/// The same at faults that wait for this process's turn; the layout messages that come meanwhile wait for no more than that.
const TURN_PAUSE: Duration = Duration::from_micros(200);
/// Between two looks whether children that cannot be followed have ended.
const REFUSED_LOOK: Duration = Duration::from_secs(1);
/// With a device that hangs the writer comes late, too.
const WRITER_IS_LATE: Duration = Duration::from_millis(300);

/// Entry of the handler's thread; the argument is the agent's address.
pub(crate) extern "C" fn handle(argument: usize) -> ! {
    // SAFETY: the agent lives for ever.
    let agent = unsafe { &*(argument as *const Agent) };
    let keeper = agent.call.wait();
    thread::ask_for_short_slices();
    let mut server = pager::Server::new();
    let mut placement = Placement::new();
    let mut attendant = Attendant::new();
    let mut turn = pager::Turn::default();
    let party = keeper.party(&agent.membership());
    let pager = &keeper.pager;
    // In a forked child it may be as it was in the parent.
    keeper.standing.has_no_faults();
    let mut lookout = Lookout::begin(AgentThread::Handler, keeper);
    agent.call.has_begun();
    loop {
        if attendant.refused.is_empty() {
            let limit = |limit| if lookout.expects_somebody(keeper) { LOOK_SOON } else { limit };
            if !pager.kernel.wait_for_messages(Some(limit(IDLE))) {
                server.relinquish();
                pager.kernel.wait_for_messages(Some(limit(LOOK)));
            }
        } else {
            pager.kernel.wait_for_any(attendant.refused.memories().map(Uffd::as_fd), REFUSED_LOOK);
            if !pager.kernel.has_messages() {
                server.relinquish();
            }
            attendant.refused.forget_ended(keeper);
            attendant.refused.hang_up(keeper);
        }
        let entry = keeper.entry();
        loop {
            let now = pager.kernel.now_ns();
            lookout.look(keeper, now);
            entry.busy_since_ns.store(now, Ordering::Relaxed);
            misbehave(keeper);
            // While this process forks its threads wait for the one that does.
            let mut may = |has_faults| {
                keeper.forks.stages.wants_rest() || turn.lets_serve(&keeper.standing, party, has_faults, now)
            };
            let mut may_serve = may(server.has_deferred());
            let mut may_be_more = !may_serve && server.follow(pager);
            may_serve = may_serve || server.has_deferred() && may(true);
            if may_serve {
                may_be_more = server.serve(pager).unwrap_or_else(|stuck| give_up(stuck));
            }
            placement.follow(server.last_thread(), server.served(), keeper.occupancy);
            attendant.attend(keeper, &mut server);
            match server.has_deferred() {
                true => thread::sleep(if may_serve { DEFERRED_PAUSE } else { TURN_PAUSE }),
                false if !may_be_more => break,
                false => {}
            }
        }
        keeper.standing.has_no_faults();
        entry.busy_since_ns.store(0, Ordering::Relaxed);
    }
}

/// Ends the program: a page of it is lost.
pub(crate) fn give_up(stuck: pager::Stuck) -> ! {
    fail(format_args!("{}; the program is ended", Reason(stuck)))
}

/// Entry of the writer's thread; the argument is the agent's address.
pub(crate) extern "C" fn write(argument: usize) -> ! {
    // SAFETY: the agent lives for ever.
    let agent = unsafe { &*(argument as *const Agent) };
    let keeper = agent.call.wait();
    let mut lookout = Lookout::begin(AgentThread::Writer, keeper);
    agent.call.has_begun();
    if keeper.fault() == b"swap-hangs" {
        thread::sleep(WRITER_IS_LATE);
    }
    keeper.pager.write_segments(|| lookout.look(keeper, keeper.pager.kernel.now_ns()))
}

/// What went wrong, for the program's user.
pub(crate) struct Reason(pub(crate) pager::Stuck);

impl core::fmt::Display for Reason {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            pager::Stuck::Unreadable(error) => write!(out, "{error}"),
            pager::Stuck::Corrupt(page) => write!(out, "the encoding of the page at {:#x} is damaged", page.address()),
            pager::Stuck::Unfillable(page, errno) => {
                write!(out, "the page at {:#x} cannot be brought back: {errno:?}", page.address())
            }
            pager::Stuck::ForkIsLate => {
                write!(out, "a thread is about to fork and does not, while others change more memory than can be noted")
            }
        }
    }
}

/// The faults that `PLEAT_FAULT` asks for, so that the watchdogs can be tested.
fn misbehave(keeper: &Keeper) {
    match keeper.fault() {
        b"handler-stalls" => loop {
            thread::sleep(Duration::from_secs(1000));
        },
        b"handler-spins" => loop {
            core::hint::black_box(());
        },
        b"handler-exits" => thread::exit_thread(),
        b"handler-panics" => panic!("PLEAT_FAULT asked for it"),
        _ => {}
    }
}
