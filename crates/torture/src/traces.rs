//! Steps in which a process traces another one (ptrace), or stops it and lets it go on.
//!
//! A child's shadow lies where its parent's does, in memory that pleat leaves alone: so who traces it sees what its pages must hold, and
//! says there what it has written into them.

use core::ffi::{c_int, c_long, c_uint};
use core::mem::MaybeUninit;

use crate::area::{Access, Area, Page};
use crate::calls::{self, Errno};
use crate::content::{self, Key, PAGE, WORDS};
use crate::forks::{self, Task};
use crate::random::Random;
use crate::worker::{AREAS, Done, Kind, Trouble, Worker, of, report};

pub(crate) const KINDS: &[Kind] = &[
    ("trace", 2, trace_child),
    ("trace and kill", 1, trace_and_kill),
    ("attach", 1, attach),
    ("stop and go on", 1, stop_and_go_on),
];

/// A stop at a system call, as it is told from a step.
const AT_CALL: c_int = libc::SIGTRAP | 0x80;
/// Room for a thread's registers on any processor.
const REGISTERS: usize = 512;
const LOOK_US: u64 = 50;

/// What the kernel says of a process that is traced.
enum Seen {
    /// It has stopped, with this signal.
    Stop(c_int),
    /// The stop that its tracer has asked for.
    Asked,
    /// It has ended, with this wait status.
    End(c_int),
}

fn seen(status: c_int) -> Seen {
    if !libc::WIFSTOPPED(status) {
        Seen::End(status)
    } else if status >> 16 == libc::PTRACE_EVENT_STOP {
        Seen::Asked
    } else {
        Seen::Stop(libc::WSTOPSIG(status))
    }
}

/// A request of ptrace(2); that the other process has been killed meanwhile is for waitpid to say.
fn ask(request: c_uint, pid: libc::pid_t, at: usize, data: usize) -> Result<(), Errno> {
    // SAFETY: the callers pass what the request is for.
    match calls::result(unsafe { libc::syscall(libc::SYS_ptrace, c_long::from(request), pid, at, data) } as isize) {
        Ok(_) | Err(libc::ESRCH) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// In a child: ends when the thread that has forked it does, which alone would let it go on.
fn end_with(parent: u32) {
    // SAFETY: takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: asks for a number.
    if unsafe { libc::getppid() } != parent as libc::pid_t {
        calls::exit(3);
    }
}

/// The life of a child that can be stopped at any moment.
pub(crate) fn be_stopped(worker: &mut Worker, parent: u32, steps: u64) {
    end_with(parent);
    worker.areas.iter_mut().for_each(Area::has_been_forked);
    worker.run(steps);
}

/// The life of a child that is traced: it stops so many times, and takes steps after each.
pub(crate) fn be_traced(worker: &mut Worker, parent: u32, stops: u64) {
    end_with(parent);
    worker.areas.iter_mut().for_each(Area::has_been_forked);
    // Refused by a security module; then it just takes its steps.
    // SAFETY: takes a number.
    let is_refused = unsafe { libc::syscall(libc::SYS_ptrace, c_long::from(libc::PTRACE_TRACEME), 0, 0, 0) } != 0;
    worker.stops = if is_refused { 0 } else { stops };
    while worker.stops > 0 && !report().is_over() {
        worker.stops -= 1;
        // SAFETY: sends this thread a signal.
        unsafe { libc::raise(libc::SIGSTOP) };
        // What the tracer has written meanwhile counts from here on.
        let worker = core::hint::black_box(&mut *worker);
        let steps = 1 + worker.random.below(12) as u64;
        worker.run(steps);
    }
    worker.run(4);
}

fn trace_child(worker: &mut Worker) -> Done {
    let (seed, stops) = (worker.random.word(), 1 + worker.random.below(4) as u64);
    let Some(pid) = forks::child(worker, Task::Traced(std::process::id(), stops), seed)? else { return Ok(()) };
    follow(worker, pid, usize::MAX)
}

/// The same for a child that goes on without end.
fn trace_and_kill(worker: &mut Worker) -> Done {
    let (seed, patience) = (worker.random.word(), 1 + worker.random.below(30));
    let Some(pid) = forks::child(worker, Task::Traced(std::process::id(), u64::MAX), seed)? else { return Ok(()) };
    follow(worker, pid, patience)
}

/// Lets a traced child go on from each of its stops, until it ends; it is killed after so many.
fn follow(worker: &mut Worker, pid: libc::pid_t, patience: usize) -> Done {
    // How it goes on, and how many times more before it just does.
    let (mut request, mut left) = (libc::PTRACE_CONT, 0);
    for number in 0.. {
        let signal = match seen(calls::wait(pid).map_err(of("waitpid, traced"))?.1) {
            Seen::End(status) => return ended(status),
            Seen::Asked => libc::SIGTRAP,
            Seen::Stop(signal) => signal,
        };
        let mut pass = 0;
        match signal {
            libc::SIGSTOP => {
                ask(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_TRACESYSGOOD as usize).map_err(of("options"))?;
                if exchange(worker, pid)? == Written::APart {
                    return kill(pid);
                }
                (request, left) = match worker.random.below(8) {
                    0 if patience == usize::MAX => return let_go(worker, pid),
                    0..3 => (libc::PTRACE_CONT, 0),
                    3..6 => (libc::PTRACE_SYSCALL, 1 + worker.random.below(100)),
                    _ => (libc::PTRACE_SINGLESTEP, 1 + worker.random.below(400)),
                };
            }
            libc::SIGTRAP | AT_CALL if worker.random.one_in(16) => compare_words(worker, pid)?,
            libc::SIGTRAP | AT_CALL => {}
            other => pass = other as usize,
        }
        if left == 0 {
            request = libc::PTRACE_CONT;
        }
        left = left.saturating_sub(1);
        let is_enough = number >= patience;
        if is_enough && worker.random.one_in(2) {
            return kill(pid);
        }
        ask(request, pid, 0, pass).map_err(of("ptrace, go on"))?;
        if is_enough {
            calls::sleep_us(worker.random.below(3000) as u64);
            return kill(pid);
        }
    }
    Ok(())
}

/// How a child has ended that must end well.
fn ended(status: c_int) -> Done {
    if status == 0 || status == 3 << 8 || report().is_over() {
        Ok(())
    } else {
        Err(Trouble::Other("a traced child's wait status", status as u64))
    }
}

fn kill(pid: libc::pid_t) -> Done {
    calls::kill(pid, libc::SIGKILL);
    forks::expect_killed(pid)
}

/// The child stops no more, and is on its own.
fn let_go(worker: &Worker, pid: libc::pid_t) -> Done {
    ask(libc::PTRACE_POKEDATA, pid, &raw const worker.stops as usize, 0).map_err(of("ptrace, write its shadow"))?;
    ask(libc::PTRACE_DETACH, pid, 0, 0).map_err(of("ptrace, detach"))?;
    forks::expect(pid)
}

/// What has become of a page that was to be written.
#[derive(PartialEq, Eq)]
enum Written {
    All,
    Nothing,
    APart,
}

/// A child has stopped between two steps: looks at an area of its, writes a page, and lets the kernel write its registers into one of
/// our own.
fn exchange(worker: &mut Worker, pid: libc::pid_t) -> Result<Written, Trouble> {
    let number = worker.random.below(AREAS);
    let Some(theirs) = area_of(worker, pid, number)? else { return Ok(Written::Nothing) };
    for _ in 0..theirs.count.min(12) {
        let page = worker.random.below(theirs.count);
        look_at(pid, theirs.at(page), theirs.pages[page], &mut worker.random)?;
    }
    read_registers(worker, pid)?;
    let Some(page) = Some(&theirs).filter(|area| area.count > 0).and_then(|area| area.draw_open(&mut worker.random))
    else {
        return Ok(Written::Nothing);
    };
    let key = Key::new(worker.random.word());
    let written = write_page(pid, theirs.at(page), key, &mut worker.random)?;
    if written == Written::All {
        let entry = Page { key, ..Page::FRESH };
        let (from, to) = (&raw const entry as usize, &raw const worker.areas[number].pages[page] as usize);
        calls::copy_to_process(pid, from, to, size_of::<Page>())
            .map_or_else(|errno| gone(errno).map_err(of("process_vm_writev, its shadow")), |_| Ok(()))?;
    }
    Ok(written)
}

/// It may have been killed.
fn gone(errno: Errno) -> Result<(), Errno> {
    if errno == libc::ESRCH { Ok(()) } else { Err(errno) }
}

/// What the shadow of a stopped child says of an area; `None` if the child is gone.
fn area_of(worker: &Worker, pid: libc::pid_t, number: usize) -> Result<Option<Area>, Trouble> {
    let mut copy = MaybeUninit::<Area>::uninit();
    let from = &raw const worker.areas[number] as usize;
    match calls::copy_from_process(pid, from, copy.as_mut_ptr() as usize, size_of::<Area>()) {
        // SAFETY: all of its bytes are those of an area.
        Ok(bytes) if bytes == size_of::<Area>() => Ok(Some(unsafe { copy.assume_init() })),
        Ok(bytes) => Err(Trouble::Other("a short shadow", bytes as u64)),
        Err(libc::ESRCH) => Ok(None),
        Err(errno) => Err(Trouble::Refused("process_vm_readv, its shadow", errno)),
    }
}

/// Where only a process itself can bring what it misses: pleat's user mode, which has no rings. Others get EFAULT there.
fn must_bring_its_own() -> bool {
    // SAFETY: no room for the answer: refused in any case.
    let made = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, core::ptr::null_mut::<u32>()) };
    calls::result(made as isize) == Err(libc::ENOSYS)
}

/// A page of a stopped child's, whose content is known. Words that are out are EIO by ptrace, which pleat documents.
fn look_at(pid: libc::pid_t, at: usize, page: Page, random: &mut Random) -> Done {
    if page.access == Access::Guarded {
        return Ok(());
    }
    let look = |random: &mut Random| {
        (0..4).try_for_each(|_| {
            let word = random.below(WORDS);
            match peek(pid, at + word * 8) {
                Ok(found) if found == page.key.word(word) || page.may_be_zero && found == 0 => Ok(()),
                Ok(found) => Err(Trouble::Other("a word of a traced child", found)),
                Err(libc::EIO | libc::ESRCH) => Ok(()),
                Err(errno) => Err(Trouble::Refused("ptrace, read", errno)),
            }
        })
    };
    look(random)?;
    if page.access == Access::None {
        return Ok(());
    }
    let mut copy = [0_u64; WORDS];
    let place = copy.as_mut_ptr() as usize;
    match calls::copy_from_process(pid, at, place, PAGE) {
        Ok(PAGE) => match content::check(place, page.key) {
            Err(_) if page.may_be_zero && content::check(place, Key::ZERO).is_ok() => {}
            Err(wrong) => return Err(Trouble::Other("a page of a traced child", wrong.found)),
            Ok(()) => {}
        },
        Ok(bytes) => return Err(Trouble::Other("a short page of a traced child", bytes as u64)),
        Err(libc::EFAULT) if must_bring_its_own() => {}
        Err(errno) => return gone(errno).map_err(of("process_vm_readv, traced")),
    }
    // It is there now.
    look(random)
}

fn peek(pid: libc::pid_t, at: usize) -> Result<u64, Errno> {
    let mut word = 0_u64;
    let (request, place) = (c_long::from(libc::PTRACE_PEEKDATA), &raw mut word);
    // SAFETY: the word fits.
    calls::result(unsafe { libc::syscall(libc::SYS_ptrace, request, pid, at, place) } as isize)?;
    Ok(word)
}

/// Writes a page of a stopped child's, some or all of it by words, the rest at once.
fn write_page(pid: libc::pid_t, at: usize, key: Key, random: &mut Random) -> Result<Written, Trouble> {
    let count = if random.one_in(2) { WORDS } else { random.below(8) };
    let mut done = 0;
    while done < count {
        match ask(libc::PTRACE_POKEDATA, pid, at + done * 8, key.word(done) as usize) {
            Ok(()) => done += 1,
            // It is out.
            Err(libc::EIO) => break,
            Err(errno) => return Err(Trouble::Refused("ptrace, write", errno)),
        }
    }
    if done == WORDS {
        return Ok(Written::All);
    }
    let page: [u64; WORDS] = core::array::from_fn(|word| key.word(word));
    match calls::copy_to_process(pid, page.as_ptr() as usize, at, PAGE) {
        Ok(PAGE) => Ok(Written::All),
        Ok(bytes) => Err(Trouble::Other("a short write to a traced child", bytes as u64)),
        Err(libc::EFAULT) if must_bring_its_own() => Ok(if done == 0 { Written::Nothing } else { Written::APart }),
        Err(libc::ESRCH) => Ok(Written::Nothing),
        Err(errno) => Err(Trouble::Refused("process_vm_writev, traced", errno)),
    }
}

/// The registers of a stopped child, twice: the kernel writes them into a page of an area, and onto the stack.
fn read_registers(worker: &mut Worker, pid: libc::pid_t) -> Done {
    let number = worker.draw_area()?;
    let Worker { areas, random, .. } = worker;
    let area = &mut areas[number];
    let Some(page) = area.draw_open(random) else { return Ok(()) };
    let (at, key) = (area.at(page), Key::new(random.word()));
    let mut stack = [0_u64; REGISTERS / 8];
    let places = [at, stack.as_mut_ptr() as usize];
    let mut bytes = [0; 2];
    for (place, bytes) in places.into_iter().zip(&mut bytes) {
        let mut part = libc::iovec { iov_base: place as *mut _, iov_len: REGISTERS };
        let (which, part_at) = (libc::NT_PRSTATUS as usize, &raw mut part as usize);
        ask(libc::PTRACE_GETREGSET, pid, which, part_at).map_err(of("ptrace, registers"))?;
        *bytes = part.iov_len;
    }
    // SAFETY: a page of ours, in which nobody else writes.
    let is_same = |word: usize| unsafe { (at as *const u64).wrapping_add(word).read_volatile() } == stack[word];
    // It has been killed where nothing has been written.
    let is_right = bytes[1] == REGISTERS || bytes[0] == bytes[1] && (0..bytes[0] / 8).all(is_same);
    area.write(page, key);
    if is_right { Ok(()) } else { Err(Trouble::Other("registers", bytes[0] as u64)) }
}

/// A child has stopped anywhere: what ptrace reads of it must be what `process_vm_readv` does.
fn compare_words(worker: &mut Worker, pid: libc::pid_t) -> Done {
    let number = worker.random.below(AREAS);
    let Some(theirs) = area_of(worker, pid, number)?.filter(Area::is_mapped) else { return Ok(()) };
    for _ in 0..4 {
        let at = theirs.at(worker.random.below(theirs.count)) + worker.random.below(WORDS) * 8;
        let read = || {
            let mut word = 0_u64;
            let copied = calls::copy_from_process(pid, at, &raw mut word as usize, 8);
            copied.ok().filter(|bytes| *bytes == 8).map(|_| word)
        };
        let (before, peeked, after) = (read(), peek(pid, at), read());
        // A process of the same memory may be writing. What is in the middle of a step may be mapped or not.
        if before.is_some() && before == after && peeked.is_ok() && peeked.ok() != before {
            return Err(Trouble::Other("a word of a process that has stopped", before.unwrap_or(0)));
        }
    }
    Ok(())
}

/// A child at work is traced from some moment on, stopped now and then, and let go.
fn attach(worker: &mut Worker) -> Done {
    let (seed, steps) = (worker.random.word(), 20 + worker.random.below(60) as u64);
    let Some(pid) = forks::child(worker, Task::Steps(steps), seed)? else { return Ok(()) };
    calls::sleep_us(worker.random.below(5000) as u64);
    let request = c_long::from(libc::PTRACE_SEIZE);
    // SAFETY: takes numbers.
    match calls::result(unsafe { libc::syscall(libc::SYS_ptrace, request, pid, 0, 0) } as isize) {
        Ok(_) => {}
        // Forbidden by a security module, or it has ended.
        Err(libc::EPERM | libc::ESRCH) => return forks::expect(pid),
        Err(errno) => return Err(Trouble::Refused("ptrace, seize", errno)),
    }
    for stops_left in (0..=worker.random.below(6)).rev() {
        ask(libc::PTRACE_INTERRUPT, pid, 0, 0).map_err(of("ptrace, interrupt"))?;
        loop {
            match seen(calls::wait(pid).map_err(of("waitpid, attached"))?.1) {
                Seen::End(status) => return ended(status),
                Seen::Asked => break,
                Seen::Stop(signal) => {
                    ask(libc::PTRACE_CONT, pid, 0, signal as usize).map_err(of("ptrace, pass on"))?;
                }
            }
        }
        compare_words(worker, pid)?;
        if stops_left == 0 {
            ask(libc::PTRACE_DETACH, pid, 0, 0).map_err(of("ptrace, detach"))?;
            break;
        }
        ask(libc::PTRACE_CONT, pid, 0, 0).map_err(of("ptrace, go on"))?;
        if let Some(status) = let_work(pid, worker.random.below(4000) as u64)? {
            return ended(status);
        }
    }
    forks::expect(pid)
}

/// Passes on what an attached child gets for a while; its wait status if it ends.
fn let_work(pid: libc::pid_t, us: u64) -> Result<Option<c_int>, Trouble> {
    let end = calls::now_ns() + us * 1000;
    while calls::now_ns() < end {
        let mut status = 0;
        // SAFETY: the status fits.
        match calls::result(unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | libc::WNOHANG) } as isize) {
            Ok(0) => calls::sleep_us(LOOK_US),
            Ok(_) => match seen(status) {
                Seen::End(status) => return Ok(Some(status)),
                Seen::Asked => ask(libc::PTRACE_CONT, pid, 0, 0).map_err(of("ptrace, go on"))?,
                Seen::Stop(signal) => {
                    ask(libc::PTRACE_CONT, pid, 0, signal as usize).map_err(of("ptrace, pass on"))?;
                }
            },
            Err(libc::EINTR) => {}
            Err(errno) => return Err(Trouble::Refused("waitpid, attached", errno)),
        }
    }
    Ok(None)
}

/// A child at work is stopped, all of it, and goes on.
fn stop_and_go_on(worker: &mut Worker) -> Done {
    let (seed, steps) = (worker.random.word(), 10 + worker.random.below(50) as u64);
    let task = Task::Stopped(std::process::id(), steps);
    let Some(pid) = forks::child(worker, task, seed)? else { return Ok(()) };
    for _ in 0..=worker.random.below(6) {
        calls::sleep_us(worker.random.below(5000) as u64);
        calls::kill(pid, libc::SIGSTOP);
        calls::sleep_us(worker.random.below(3000) as u64);
        calls::kill(pid, libc::SIGCONT);
    }
    forks::expect(pid)
}
