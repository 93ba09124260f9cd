//! The custodian: holds the userfaultfds of all managed processes beside their agents.
//!
//! A process may share a managed one's memory without being its thread (clone with `CLONE_VM`), or be its child by a raw system call, which
//! no agent follows. When the managed one is killed its agent goes, and with the last userfaultfd the kernel would let missing
//! pages read as zeros. The custodian's duplicates keep that from happening: who misses a page then waits, and gets SIGBUS from
//! him, or EFAULT in a system call.
//!
//! And who is in a sandbox, and sees no `pleat run` in /proc, asks him: which run it is of, what it is to it, for a swap file. So does who may not
//! see it: a program of another user (`--other-users`), and a server that has become one.
//!
//! He is a process of his own from the start of the run (`custody.rs`), so that he is there still when `pleat run` has been killed. Behind the run,
//! however it has ended, he goes on as long as anybody of it lives, who is managed or may be later; and traces the agents' threads.

mod answers;
mod strangers;

use std::ffi::CString;
use std::io::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use page::{PageCount, PageIndex};
use pager::ledger::{ENABLE, Ledger, USERFAULTFD};
use sys::Errno;
use sys::handover::{Line, Received, Reception, new_secret};
use sys::host::SharedFile;
use sys::kernel::PageRange;
use sys::uffd::{Uffd, Unserved, feature};

use self::answers::{Run, answer};
use self::strangers::Strangers;
use crate::failure::{pass_on, say};
use crate::swap::Place;
use crate::{entries, proc, tracers};

/// Between two looks whether memory without an agent is still somebody's.
const LOOK: Duration = Duration::from_millis(20);
/// The same, behind the run, whether anybody lives who may call.
const LOOK_BEHIND: Duration = Duration::from_secs(1);
/// An address that can be one, for [`Uffd::is_orphaned`].
const PROBE: PageIndex = PageIndex(1 << 16);
/// Descriptors that are not for userfaultfds and lines.
const DESCRIPTORS_LEFT: u64 = 64;
/// After a call that cannot be taken, for want of descriptors, and before a thread is told why it ends.
const PAUSE: Duration = Duration::from_millis(10);
/// So many who have called are let in, or sent away, before it is looked at what others have said; and what one ward has said is read so often.
const CALLS_AT_ONCE: usize = 8;
const MESSAGES_AT_ONCE: usize = 16;
/// How often is asked whether a thread is being killed.
const ASKED_MAX: usize = 2;
/// What he answers `pleat run` when it is over and somebody lives on. Where nobody does he ends.
pub(crate) const GOES_ON: u8 = b'g';

/// What one agent has entrusted.
#[derive(Debug)]
struct Ward {
    /// Ends when the agent does.
    line: Option<Line>,
    memories: Vec<Uffd>,
    /// Somebody has been told why he is ended.
    told: bool,
    /// It was no ward: it has got what a userfaultfd is made by, and will send the one that it has made.
    makes: bool,
}

/// What a look at a ward came to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Heard {
    Nothing,
    Something,
    /// Its agent has ended.
    End,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Custodian<'place> {
    /// The one with a name and, where there can be one, that with a file.
    receptions: Vec<Reception>,
    wards: Vec<Ward>,
    strangers: Strangers,
    ledger: &'static Ledger,
    /// `None` when it is over: its processes may call still.
    run: Option<Run<'place>>,
    /// When it is looked again who of them lives.
    next_look: Instant,
    /// More descriptors than this are not held.
    held_max: usize,
    /// It has been told that there were more.
    has_told: bool,
}

impl<'place> Custodian<'place> {
    /// Of a run that begins, whose agents find his name in the ledger.
    pub(crate) fn of(file: &SharedFile<Ledger>, swap: Option<&'place Place>, has_other_users: bool) -> Result<Self> {
        let secret = new_secret().map_err(|errno| anyhow!("no random numbers: {errno:?}"))?;
        let reception = Reception::open().map_err(|errno| anyhow!("no socket for the agents: {errno:?}"))?;
        file.content().set_custodian(&reception.name(), &secret);
        let mut custodian = Self::new(Run::of(file, secret, swap).with_other_users(has_other_users), reception);
        // Where there is none, agents in a network of their own do not find him.
        let directories = [std::env::temp_dir(), "/dev/shm".into(), "/var/tmp".into()];
        let directories = directories.map(|directory| CString::new(directory.into_os_string().into_vec()));
        let mut opened = directories.iter().flatten().filter_map(|directory| Reception::open_in(directory).ok());
        custodian.receptions.extend(opened.next());
        Ok(custodian)
    }

    fn new(run: Run<'place>, reception: Reception) -> Self {
        let ledger = run.ledger;
        Self {
            receptions: vec![reception],
            wards: Vec::new(),
            strangers: Strangers::default(),
            ledger,
            run: Some(run),
            next_look: Instant::now(),
            held_max: descriptors_max(),
            has_told: false,
        }
    }

    /// In his process: for `pleat run`, which has the other end of the line; and behind the run until nobody of it is left.
    pub(crate) fn serve(mut self, runner: UnixStream) {
        self.stand_apart(&runner);
        let null = null();
        let _ = null.as_ref().map(|null| (dup2_stdin(null), dup2_stdout(null)));
        self.attend(Some(&runner));
        // However it has ended.
        self.ledger.prints_no_more();
        pass_on(self.ledger);
        self.look();
        self.run = None;
        // `pleat run` has the last numbers of the dead to tell yet.
        self.next_look = Instant::now() + LOOK_BEHIND;
        if !self.is_needed() {
            return;
        }
        // Whoever waits for the end of the run's output does not wait for us, and nobody reads what we say.
        let _ = null.as_ref().map(dup2_stderr);
        self.wards.iter_mut().for_each(|ward| ward.told = true);
        // Whom nobody traces goes on, too: without us memory would read as zeros.
        let _ = tracers::Watch::begin(self.ledger, tracers::LOOK_BEHIND);
        let _ = (&runner).write(&[GOES_ON]);
        drop(runner);
        self.attend(None);
    }

    /// Holds nothing of the run's that somebody waits for the end of, and has descriptors of his own. What cannot be had of that he does without.
    fn stand_apart(&self, runner: &UnixStream) {
        let file = self.receptions.iter().find_map(Reception::file_number);
        let own = self.receptions.iter().map(Reception::number).chain(file).chain([runner.as_raw_fd()]);
        sys::host::close_from(3, &self.run.iter().map(|run| run.number).chain(own).collect::<Vec<_>>());
        if let Some(file) = file {
            self.ledger.set_custodian_file(std::process::id(), file as u32);
        }
        let _ = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
        let _ = prctl::set_name(c"pleat-custodian");
        let _ = setsid();
        let _ = std::env::set_current_dir("/");
    }

    /// Until `runner` ends; without it until nobody is left.
    fn attend(&mut self, runner: Option<&UnixStream>) {
        while runner.is_some() || self.is_needed() {
            let is_over = self.wait(runner);
            let has_heard = self.admit() | self.look();
            if is_over {
                return;
            }
            if !has_heard {
                // Something is there that cannot be taken, for want of descriptors or memory.
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Behind the run: somebody lives who is managed, or may begin to be.
    fn is_needed(&mut self) -> bool {
        let now = Instant::now();
        if now >= self.next_look {
            self.next_look = now + LOOK_BEHIND;
            entries::bury_the_dead(self.ledger);
        }
        !self.wards.is_empty() || entries::living(self.ledger).next().is_some()
    }

    /// Waits for calls, for agents that end and for those that they leave. Says whether the run is over.
    fn wait(&self, runner: Option<&UnixStream>) -> bool {
        let numbers = self.wards.iter().flat_map(Ward::numbers).chain(self.receptions.iter().map(Reception::number));
        let numbers = numbers.chain(self.strangers.numbers());
        let has_survivors = self.wards.iter().any(|ward| ward.line.is_none());
        let may_be_late = self.run.is_none() || self.strangers.held() > 0;
        let limit = has_survivors.then_some(LOOK).or(may_be_late.then_some(LOOK_BEHIND));
        let runner = runner.map(AsRawFd::as_raw_fd);
        let ready = sys::host::wait_for_any(runner.into_iter().chain(numbers), limit);
        runner.is_some() && ready == Some(0)
    }

    /// Says whether somebody has called. Who has changed his user is known by the ledger.
    fn admit(&mut self) -> bool {
        let mut has_called = false;
        let is_of_the_run = |pid| entries::is_in(self.ledger, pid);
        let next = |receptions: &[Reception]| {
            let mut called = receptions.iter().filter(|reception| reception.is_called());
            called.find_map(Reception::accept_any)
        };
        for _ in 0..CALLS_AT_ONCE {
            let Some((line, caller)) = next(&self.receptions) else { break };
            has_called = true;
            if !caller.may_enter(&is_of_the_run) {
                self.strangers.meet(line, caller, self.run.as_ref());
            } else if self.held() < self.held_max {
                self.wards.push(Ward::new(line, self.run.is_none()));
            } else if !self.has_told {
                self.has_told = true;
                say(format_args!(
                    "more processes are managed than there are descriptors for ({}): who shares the memory of one of the others and outlives \
                     it reads zeros; raise the hard limit on open files (ulimit -Hn)",
                    self.held_max
                ));
            }
        }
        has_called
    }

    fn held(&self) -> usize {
        self.wards.iter().map(Ward::held).sum::<usize>() + self.strangers.held()
    }

    /// Looks at all; those that nobody is left of are let go. Says whether there was anything.
    fn look(&mut self) -> bool {
        let heard = self.wards.iter_mut().fold(Heard::Nothing, |heard, ward| ward.look(self.run.as_ref()).max(heard));
        if heard == Heard::End {
            // What the ended have held, or shared with others, is to count for them no longer.
            self.run.iter().for_each(|run| run.ledger.ask_for_look());
        }
        let before = self.wards.len();
        self.wards.retain(|ward| ward.line.is_some() || !ward.memories.is_empty());
        let strangers = self.strangers.held();
        let makers = self.strangers.look(self.run.as_ref());
        self.wards.extend(makers.into_iter().map(|line| Ward { makes: true, ..Ward::new(line, false) }));
        let has_heard = heard > Heard::Nothing || self.strangers.held() < strangers;
        has_heard || self.wards.len() < before || self.wards.iter().any(|ward| ward.line.is_none())
    }
}

/// Where nothing comes from; and what goes there is gone, or refused.
fn null() -> Option<OwnedFd> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    null.or_else(|_| UnixStream::pair().map(|(one, _)| one.into())).ok()
}

/// More userfaultfds and lines than this are not held: the soft limit is raised to the hard one.
fn descriptors_max() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard);
    limit.saturating_sub(DESCRIPTORS_LEFT) as usize
}

impl Ward {
    fn new(line: Line, told: bool) -> Self {
        Self { line: Some(line), memories: Vec::new(), told, makes: false }
    }

    /// What to wait for.
    fn numbers(&self) -> impl Iterator<Item = i32> {
        let line = self.line.as_ref().map(Line::number);
        let memories = self.memories.iter().map(Uffd::number).filter(move |_| line.is_none());
        line.into_iter().chain(memories)
    }

    /// How many descriptors.
    fn held(&self) -> usize {
        1 + self.memories.len()
    }

    fn look(&mut self, run: Option<&Run<'_>>) -> Heard {
        let mut heard = Heard::Nothing;
        for _ in 0..MESSAGES_AT_ONCE {
            let Some(line) = self.line.as_ref().filter(|line| line.is_readable(Duration::ZERO)) else { break };
            // Children that nobody follows come and go while their parent lives. Asking takes nothing from its agent.
            self.memories.retain(|memory| !memory.is_orphaned(PROBE));
            let memories = &mut self.memories;
            match line.receive_any(Duration::ZERO, &mut |fd, _| memories.extend(Uffd::adopt_if_it_is_one(fd))) {
                // Once: an answer that nobody takes would be waited for. An agent has a line of its own for that.
                Ok(Received::Asked(question, secret)) if self.memories.is_empty() && !self.makes => {
                    self.makes = answer(line, question, &secret, run).is_ok() && question == USERFAULTFD;
                    if !self.makes {
                        self.line = None;
                    }
                    return Heard::Something;
                }
                Ok(Received::Sent(ENABLE)) if self.makes => {
                    if self.memories.pop().is_some_and(|memory| memory.enable(feature::NEEDED).is_ok()) {
                        let _ = line.tell(ENABLE, [0; 3]);
                    }
                    (self.line, self.memories) = (None, Vec::new());
                    return Heard::Something;
                }
                Ok(_) => heard = heard.max(Heard::Something),
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    // Its agent has ended, perhaps with faults in its hands.
                    self.line = None;
                    self.memories.iter().for_each(Uffd::wake_all);
                    heard = Heard::End;
                }
                // Descriptors that do not arrive are lost; as long as the agent lives the memory is its own.
                Err(_) => break,
            }
        }
        if self.line.is_none() && self.look_at_memories() { heard.max(Heard::Something) } else { heard }
    }

    /// The agent has ended.
    fn look_at_memories(&mut self) -> bool {
        self.memories.retain(|memory| !memory.is_orphaned(PROBE));
        let (mut at, mut has_heard) = (0, false);
        while at < self.memories.len() {
            match self.memories[at].read_unserved() {
                Some(Unserved::Fault { page, thread }) => self.end(at, page, thread),
                Some(Unserved::Child(memory)) => self.memories.push(memory),
                Some(Unserved::Layout) => {}
                None => {
                    at += 1;
                    continue;
                }
            }
            has_heard = true;
        }
        has_heard
    }

    /// Who waits for a page of this memory gets SIGBUS, or in a system call EFAULT.
    fn end(&mut self, at: usize, page: PageIndex, thread: u32) {
        let memory = &self.memories[at];
        // Asked before it gets anything. Who is killed with his agent dies of that, but perhaps a moment later; and of who executes
        // another program the kernel itself has a look at the old memory, and minds nothing.
        let is_to_know = !self.told && !proc::is_executing(thread) && (0..ASKED_MAX).all(|_| will_hear(memory, thread));
        if memory.poison(page).is_err() {
            // Its layout is changing, or somebody else has been there: who waits comes again.
            let _ = memory.wake(PageRange::new(page, PageCount(1)));
        }
        if is_to_know {
            self.told = true;
            say(format_args!("thread {thread} misses a page that was lost with another process; it gets SIGBUS"));
        }
    }
}

/// Whether a thread that waits for a page will hear of it. One that takes its SIGKILL off in this moment looks as if.
fn will_hear(memory: &Uffd, thread: u32) -> bool {
    std::thread::sleep(PAUSE);
    proc::is_being_killed(thread).map_or_else(|| !memory.is_orphaned(PROBE), |killed| !killed)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use pager::ledger::{PAGE_MAP, SWAP_FILE, WHICH_RUN, WHO_AM_I};
    use sys::file::File;
    use sys::handover::{Peer, Secret};
    use sys::uffd::{Device, Faults, feature};

    use super::*;

    fn memories(count: usize) -> Option<Vec<Uffd>> {
        let open = || Uffd::open(feature::NEEDED_IN_USER_MODE, Faults::OfUserMode);
        let opened: Result<_, _> = (0..count).map(|_| open()).collect();
        opened.inspect_err(|errno| println!("skipped: userfaultfd: {errno:?}")).ok()
    }

    fn shape(custodian: &Custodian<'_>) -> Vec<(bool, usize)> {
        custodian.wards.iter().map(|ward| (ward.line.is_some(), ward.memories.len())).collect()
    }

    fn ledger_file() -> SharedFile<Ledger> {
        SharedFile::create(c"test").unwrap()
    }

    fn custodian(run: Run<'_>) -> Custodian<'_> {
        Custodian::new(run, Reception::open().unwrap())
    }

    /// It may begin to be managed when the run is over. What has ended leaves its entry to others.
    #[test]
    fn who_lives_behind_the_run_is_waited_for() {
        let run = Run::of(&ledger_file(), [0; _], None);
        let ledger = run.ledger;
        let mut custodian = Custodian { run: None, ..custodian(run) };
        assert!(!custodian.is_needed(), "nobody has ever been there");
        let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let [entry, ..] = &ledger.processes;
        entry.start_ticks.store(proc::Stat::of(process.id()).unwrap().start_ticks, Relaxed);
        entry.pid.store(process.id(), Relaxed);
        ledger.processes_used.store(1, Relaxed);
        assert!(custodian.is_needed());
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(!custodian.is_needed());
        custodian.next_look = Instant::now();
        assert!(!custodian.is_needed());
        assert_eq!((entry.pid.load(Relaxed), entry.start_ticks.load(Relaxed)), (0, 0));
    }

    /// A custodian that three have asked, and what each got: its id, the ledger's descriptor, and how many names a swap file has.
    fn asked<'place>(
        mut custodian: Custodian<'place>,
        secret: &Secret,
    ) -> (Custodian<'place>, Option<u64>, Option<i32>, Option<u64>) {
        let [who, which, whither] = [WHO_AM_I, WHICH_RUN, SWAP_FILE].map(|question| {
            let line = Line::call_at_once(&custodian.receptions[0].name()).unwrap();
            line.ask(question, secret).unwrap();
            line
        });
        custodian.admit();
        custodian.look();
        let pid = who.hear(Duration::ZERO).ok().map(|(_, [pid, ..])| pid);
        let (mut number, mut links) = (None, None);
        let _ = which.receive(Duration::ZERO, &mut |_, sent| number = Some(sent));
        let _ = whither
            .receive(Duration::ZERO, &mut |fd, _| links = Some(File::from_fd(fd).unwrap().shape().unwrap().links));
        (custodian, pid, number, links)
    }

    #[test]
    fn who_does_not_see_us_in_proc_asks() {
        let file = ledger_file();
        let secret = *b"is in a variable";
        let place = Place::of(&std::env::temp_dir()).unwrap();
        let during = || custodian(Run::of(&file, secret, Some(&place)));
        let own = Some(u64::from(std::process::id()));
        let (custodian, pid, number, links) = asked(during(), &secret);
        assert_eq!((pid, number, links), (own, Some(file.descriptor()), Some(0)));
        assert_eq!(shape(&custodian), [], "nobody is looked after");
        assert_eq!(file.content().looks_asked.load(Relaxed), 0, "nothing has come free");
        let (_, pid, number, links) = asked(during(), b"is something els");
        assert_eq!((pid, number, links), (own, None, None), "the name alone is there for all to read");
        let (_, pid, number, links) = asked(Custodian { run: None, ..during() }, &secret);
        assert_eq!((pid, number, links), (own, None, None), "the run is over");
    }

    #[test]
    fn who_has_no_right_to_a_userfaultfd_makes_one_that_is_enabled_for_it() {
        if let Err(errno) = Device::open().and(Uffd::of_program(Faults::All)) {
            return println!("skipped: userfaultfd: {errno:?}");
        }
        let secret = *b"is in a variable";
        let mut custodian = custodian(Run::of(&ledger_file(), secret, None));
        let mut make = |secret: &Secret| {
            let line = Line::call_at_once(&custodian.receptions[0].name()).unwrap();
            line.ask(USERFAULTFD, secret).unwrap();
            custodian.admit();
            custodian.look();
            let mut made = None;
            let _ = line.receive(Duration::ZERO, &mut |device, _| made = Device::adopt(device).make().ok());
            (line, made)
        };
        assert!(make(b"is something els").1.is_none(), "the name alone is there for all to read");
        let (line, made) = make(&secret);
        let made = made.unwrap();
        line.send(ENABLE, &[made.number()]).unwrap();
        custodian.look();
        assert_eq!(line.hear(Duration::ZERO), Ok((ENABLE, [0; 3])));
        assert_eq!(made.enable(feature::NEEDED), Err(Errno::INVAL), "it is enabled already");
        assert_eq!(shape(&custodian), [], "nobody is looked after");
    }

    #[test]
    fn who_may_not_open_its_page_map_gets_it() {
        let secret = *b"is in a variable";
        let file = ledger_file();
        let mut custodian = custodian(Run::of(&file, secret, None));
        let mut ask = |secret: &Secret| {
            let line = Line::call_at_once(&custodian.receptions[0].name()).unwrap();
            line.ask(PAGE_MAP, secret).unwrap();
            custodian.admit();
            custodian.look();
            let mut path = None;
            let _ = line.receive(Duration::ZERO, &mut |fd, _| {
                let file = File::from_fd(fd).unwrap();
                path = std::fs::read_link(format!("/proc/self/fd/{}", file.number())).ok();
            });
            path
        };
        assert_eq!(ask(&secret), None, "it is not of the run");
        let [entry, ..] = &file.content().processes;
        entry.start_ticks.store(proc::Stat::of(std::process::id()).unwrap().start_ticks, Relaxed);
        entry.pid.store(std::process::id(), Relaxed);
        file.content().processes_used.store(1, Relaxed);
        assert_eq!(ask(b"is something els"), None, "the name alone is there for all to read");
        let path = ask(&secret).unwrap();
        assert!(path.starts_with(format!("/proc/{}/task", std::process::id())), "{path:?}");
        assert!(path.ends_with("pagemap"), "{path:?}");
    }

    /// Two processes that write to one file would read each other's pages, and a file that is none of the run's is the user's.
    #[test]
    fn a_file_that_was_set_aside_goes_to_one() {
        let path = std::env::temp_dir().join(format!("pleat-custodian-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let place = Place::of(&path).unwrap();
        let identity = place.identity;
        let run = Run::of(&ledger_file(), [0; _], Some(&place));
        let files = [(); 2].map(|()| run.swap_file(true).unwrap());
        assert_eq!(files.each_ref().map(|file| file.is(identity)), [true, false]);
        let others = run.swap_file(false).unwrap();
        assert!(!others.is(identity) && others.shape().unwrap().links == 0, "it is for those who are let in");
        assert_eq!(files[1].shape().unwrap().links, 0);
        drop(files);
        let other = path.with_extension("other");
        std::fs::write(&other, "the user's").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let links = run.swap_file(true).unwrap().shape().unwrap().links;
        let left = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((links, left.as_str()), (0, "the user's"));
    }

    /// An agent's line stays, whatever comes by it: without it its memory would be looked at.
    #[test]
    fn an_agent_that_asks_keeps_its_line() {
        let Some(own) = memories(1) else { return };
        let mut custodian = custodian(Run::of(&ledger_file(), [0; _], None));
        let line = Line::call_at_once(&custodian.receptions[0].name()).unwrap();
        line.send(b'w', &[own[0].number()]).unwrap();
        line.ask(WHO_AM_I, &[0; _]).unwrap();
        custodian.admit();
        custodian.look();
        assert_eq!(shape(&custodian), [(true, 1)]);
    }

    /// To read it would wait for ever, and what came would be taken for a userfaultfd's.
    #[test]
    fn what_is_no_userfaultfd_is_not_taken() {
        let mut custodian = custodian(Run::of(&ledger_file(), [0; _], None));
        let line = Line::call_at_once(&custodian.receptions[0].name()).unwrap();
        let (pipe, _other) = std::io::pipe().unwrap();
        line.send(b'w', &[pipe.as_raw_fd()]).unwrap();
        custodian.admit();
        custodian.look();
        assert_eq!(shape(&custodian), [(true, 0)]);
        drop(line);
        custodian.look();
        assert_eq!(shape(&custodian), []);
    }

    /// Of a stranger nothing is taken but a question.
    #[test]
    fn a_stranger_is_heard_once_and_not_for_long() {
        let file = ledger_file();
        let secret = *b"is in a variable";
        let run = Run::of(&file, secret, None).with_other_users(true);
        let reception = Reception::open().unwrap();
        let mut strangers = Strangers::default();
        let call = |strangers: &mut Strangers, user| {
            let line = Line::call_at_once(&reception.name()).unwrap();
            let (here, peer) = reception.accept_any().unwrap();
            strangers.meet(here, Peer { user, ..peer }, Some(&run));
            line
        };
        let [asks, guesses, sends] = [(); 3].map(|()| call(&mut strangers, 7));
        asks.ask(WHICH_RUN, &secret).unwrap();
        guesses.ask(WHICH_RUN, b"is something els").unwrap();
        let (pipe, _other) = std::io::pipe().unwrap();
        sends.send(b'w', &[pipe.as_raw_fd()]).unwrap();
        assert_eq!(strangers.look(Some(&run)).len(), 0);
        let mut number = None;
        asks.receive(Duration::ZERO, &mut |_, sent| number = Some(sent)).unwrap();
        assert_eq!(number, Some(file.descriptor()));
        for line in [&guesses, &sends] {
            assert!(line.receive(Duration::ZERO, &mut |_, _| unreachable!("it is not for them")).is_err());
        }
        assert_eq!(strangers.held(), 0);
        let silent: Vec<_> = (0..100).map(|_| call(&mut strangers, 7)).collect();
        assert_eq!(strangers.held(), 32, "of one user");
        let others: Vec<_> = (0..100).map(|user| call(&mut strangers, 100 + user)).collect();
        assert_eq!(strangers.held(), 128);
        drop((silent, others));
        strangers.look(Some(&run));
        assert_eq!(strangers.held(), 0, "they have hung up");
    }

    /// What it reads of memory that an agent serves, the agent would wait for.
    #[test]
    fn memory_is_looked_at_when_its_agent_has_ended() {
        let Some(own) = memories(1) else { return };
        let run = Run::of(&ledger_file(), [0; _], None);
        let ledger = run.ledger;
        let mut custodian = custodian(run);
        let line = Line::call_at_once(&custodian.receptions[0].name()).unwrap();
        line.send(b'w', &[own[0].number()]).unwrap();
        custodian.admit();
        custodian.look();
        assert_eq!(shape(&custodian), [(true, 1)]);
        assert_eq!(custodian.wards[0].numbers().count(), 1, "it waits for the line alone");
        assert_eq!(ledger.looks_asked.load(Relaxed), 0);
        drop(line);
        custodian.look();
        assert_eq!(shape(&custodian), [(false, 1)], "this process is still there");
        assert_eq!(ledger.looks_asked.load(Relaxed), 1, "what the agent's process has held is free");
        assert_ne!(custodian.wards[0].numbers().next(), None);
    }
}
