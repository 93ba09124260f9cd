//! Steps that make processes.

use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering::Relaxed;

use crate::area::{Area, Page};
use crate::calls;
use crate::content::{self, Key, PAGE};
use crate::random::{Random, mix};
use crate::traces;
use crate::worker::{AREAS, Done, Kind, THREADS, Trouble, Worker, of, process, report};

pub(crate) const KINDS: &[Kind] = &[
    ("fork", 2, fork),
    ("fork storm", 1, storm),
    ("fork and kill", 1, fork_and_kill),
    ("fork and leave", 1, fork_and_leave),
    ("fork and exec", 1, fork_and_exec),
    ("spawn", 1, spawn),
    ("fork, change root", 1, fork_and_change_root),
    ("fork, filter calls", 1, fork_and_filter),
    ("read the parent", 1, read_parent),
    ("write to the parent", 1, write_to_parent),
];

/// Processes besides the first ones at a time.
pub(crate) const CHILDREN_MAX: u32 = 12;
/// Those that are killed at any moment are at this depth.
pub(crate) const DEPTH_MAX: u32 = 3;

/// What a child is to do.
#[derive(Clone, Copy)]
pub(crate) enum Task {
    /// Look at everything, then take so many steps.
    Steps(u64),
    /// The same without end, and without processes of its own.
    Forever,
    /// Look at a few pages.
    Glance,
    /// The program that is named by /proc/self/exe, anew.
    Execute,
    /// Confine itself, then as `Steps`.
    Confined(fn(), u64),
    /// Write a page at this address.
    Write(usize, Key),
    /// Look at a page of the parent's at this address.
    ReadParent(usize, Key),
    /// Write a page of the parent's, which has this number, at this address.
    WriteToParent(u32, usize, Key),
    /// Be traced by the parent, which has this number: stop so many times, and take steps after each. Without end as `Forever`.
    Traced(u32, u64),
    /// Take so many steps, and be stopped by the parent, which has this number.
    Stopped(u32, u64),
}

/// Forks; `None` if there are too many processes. The child does its task and ends.
pub(crate) fn child(worker: &mut Worker, task: Task, seed: u64) -> Result<Option<libc::pid_t>, Trouble> {
    let report = report();
    if worker.depth >= DEPTH_MAX {
        return Ok(None);
    }
    if report.children.fetch_add(1, Relaxed) >= CHILDREN_MAX {
        report.children.fetch_sub(1, Relaxed);
        return Ok(None);
    }
    // With all other threads between two steps the child knows what their areas hold, too.
    let is_hushed = seed.is_multiple_of(2) && worker.knows_others && process().hush();
    let forked = calls::fork();
    if forked == Ok(0) {
        process().be_alone();
        work(worker, task, seed, is_hushed)
    }
    if is_hushed {
        process().unhush();
    }
    let pid = forked.map_err(|errno| {
        report.children.fetch_sub(1, Relaxed);
        Trouble::Refused("fork", errno)
    })?;
    report.processes.fetch_add(1, Relaxed);
    Ok(Some(pid))
}

/// The life of a child.
fn work(worker: &mut Worker, task: Task, seed: u64, is_hushed: bool) -> ! {
    worker.depth += 1;
    worker.knows_others = is_hushed;
    worker.stream = mix(worker.stream ^ seed) >> 40 << 8;
    worker.random = Random::new(worker.seed, worker.stream);
    if let Err(trouble) = worker.flight.has_been_forked() {
        worker.fail("forked", &trouble);
    }
    match task {
        Task::Execute => execute(),
        Task::Glance => glance(worker, seed),
        Task::Steps(steps) => {
            check_inheritance(worker, is_hushed);
            worker.run(steps);
        }
        Task::Confined(confine, steps) => {
            confine();
            check_inheritance(worker, is_hushed);
            worker.run(steps);
        }
        Task::Write(at, key) => content::write(at, key),
        Task::ReadParent(at, key) => look_at_parent(worker, at, key),
        Task::WriteToParent(parent, at, key) => fill_in_parent(worker, parent, at, key),
        Task::Traced(parent, stops) => {
            if stops == u64::MAX {
                worker.depth = DEPTH_MAX;
            }
            traces::be_traced(worker, parent, stops);
        }
        Task::Stopped(parent, steps) => traces::be_stopped(worker, parent, steps),
        Task::Forever => {
            worker.depth = DEPTH_MAX;
            worker.areas.iter_mut().for_each(Area::has_been_forked);
            worker.run(u64::MAX);
        }
    }
    report().children.fetch_sub(1, Relaxed);
    calls::exit(0)
}

fn glance(worker: &mut Worker, seed: u64) {
    let mut random = Random::new(seed, 0);
    for area in &mut worker.areas {
        area.has_been_forked();
        for _ in 0..area.count.min(2) {
            if let Err(bad) = area.check(random.below(area.count)) {
                worker.fail("glance", &Trouble::Bad("a child's area", bad));
            }
        }
    }
}

fn check_inheritance(worker: &mut Worker, is_hushed: bool) {
    for number in 0..AREAS {
        worker.areas[number].has_been_forked();
        if let Err(bad) = worker.areas[number].check_all() {
            worker.fail("forked", &Trouble::Bad("a child's own area", bad));
        }
    }
    if is_hushed {
        for number in (0..THREADS).filter(|number| *number != worker.number) {
            // SAFETY: the thread that this belongs to is not in this process.
            let other = unsafe { &mut *(&raw const process().workers[number]).cast_mut() };
            for area in &mut other.areas {
                area.has_been_forked();
                if let Err(bad) = area.check_all() {
                    worker.fail("forked", &Trouble::Bad("another thread's area", bad));
                }
            }
            if let Err(trouble) = other.heap.check() {
                worker.fail("forked", &trouble);
            }
        }
    } else if worker.number == 0
        && let Err(trouble) = worker.heap.check()
    {
        worker.fail("forked", &trouble);
    }
}

/// Waits for a child that must end well.
pub(crate) fn expect(pid: libc::pid_t) -> Done {
    match calls::wait(pid).map_err(of("waitpid"))?.1 {
        0 => Ok(()),
        // Ended by the supervisor, because another one has failed, or failed itself and said so.
        status if report().is_over() || status == 3 << 8 => Ok(()),
        status => Err(Trouble::Other("a child's wait status", status as u64)),
    }
}

fn fork(worker: &mut Worker) -> Done {
    let (seed, steps) = (worker.random.word(), 10 + worker.random.below(60) as u64);
    let Some(pid) = child(worker, Task::Steps(steps), seed)? else { return Ok(()) };
    // Both go on for a while: pages are shared, and copied.
    let number = worker.draw_area()?;
    for _ in 0..64 {
        let area = &mut worker.areas[number];
        let page = worker.random.below(area.count);
        area.check(page).map_err(|bad| Trouble::Bad("beside a child", bad))?;
        area.write(page, Key::new(worker.random.word()));
    }
    expect(pid)
}

fn storm(worker: &mut Worker) -> Done {
    let mut pids = [0; 6];
    for pid in &mut pids {
        let seed = worker.random.word();
        *pid = child(worker, Task::Glance, seed)?.unwrap_or(0);
    }
    pids.into_iter().filter(|pid| *pid != 0).try_for_each(expect)
}

fn fork_and_kill(worker: &mut Worker) -> Done {
    let (seed, pause) = (worker.random.word(), worker.random.below(30_000) as u64);
    let Some(pid) = child(worker, Task::Forever, seed)? else { return Ok(()) };
    calls::sleep_us(pause);
    calls::kill(pid, libc::SIGKILL);
    expect_killed(pid)
}

/// Waits for a child that has been killed at any moment.
pub(crate) fn expect_killed(pid: libc::pid_t) -> Done {
    let status = loop {
        let (_, status) = calls::wait(pid).map_err(of("waitpid"))?;
        // A stop of who is traced may come before.
        if !libc::WIFSTOPPED(status) {
            break status;
        }
    };
    report().children.fetch_sub(1, Relaxed);
    forget(pid);
    if status == libc::SIGKILL || report().is_over() || status == 3 << 8 {
        Ok(())
    } else {
        Err(Trouble::Other("a killed child's wait status", status as u64))
    }
}

/// A killed process leaves its slots.
fn forget(pid: libc::pid_t) {
    for slot in &report().slots {
        slot.leave(pid as u32);
    }
}

/// A child whose parent ends at once, and which goes on.
fn fork_and_leave(worker: &mut Worker) -> Done {
    let seed = worker.random.word();
    let depth = worker.depth;
    if depth + 2 > DEPTH_MAX || report().children.load(Relaxed) + 2 > CHILDREN_MAX {
        return Ok(());
    }
    let middle = calls::fork().map_err(of("fork"))?;
    if middle == 0 {
        process().be_alone();
        worker.depth += 1;
        for area in &mut worker.areas {
            area.has_been_forked();
        }
        let left = child(worker, Task::Steps(60), seed | 1);
        calls::exit(if left.is_ok() { 0 } else { 4 })
    }
    expect(middle)
}

fn fork_and_exec(worker: &mut Worker) -> Done {
    let seed = worker.random.word();
    let Some(pid) = child(worker, Task::Execute, seed)? else { return Ok(()) };
    let result = expect(pid);
    report().children.fetch_sub(1, Relaxed);
    result
}

/// A child that makes a new root of the old one, and goes on.
fn fork_and_change_root(worker: &mut Worker) -> Done {
    fn confine() {
        // SAFETY: names the same directory. Refused without the capability; then it goes on all the same.
        unsafe { libc::chroot(c"/".as_ptr()) };
    }
    let (seed, steps) = (worker.random.word(), 1 + worker.random.below(40) as u64);
    let pid = child(worker, Task::Confined(confine, steps), seed)?;
    pid.map_or(Ok(()), expect)
}

/// A child whose system calls go through a filter, which allows all, and which goes on.
fn fork_and_filter(worker: &mut Worker) -> Done {
    fn confine() {
        // Refused where the kernel has no filters, and by pleat in user mode.
        let _ = calls::allow_all_calls(0);
    }
    let (seed, steps) = (worker.random.word(), 1 + worker.random.below(40) as u64);
    let pid = child(worker, Task::Confined(confine, steps), seed)?;
    pid.map_or(Ok(()), expect)
}

/// A child reads a page of the process that has forked it.
fn read_parent(worker: &mut Worker) -> Done {
    let (seed, number) = (worker.random.word(), worker.draw_area()?);
    let area = &mut worker.areas[number];
    let Some(page) = area.draw_open(&mut worker.random) else { return Ok(()) };
    let (at, page) = (area.at(page), area.pages[page]);
    if page.may_be_zero {
        return Ok(());
    }
    let pid = child(worker, Task::ReadParent(at, page.key), seed)?;
    pid.map_or(Ok(()), expect)
}

/// Whether a page may be missing to others, and only its own process can bring it.
fn may_miss() -> bool {
    report().others_miss.load(Relaxed) != 0
}

/// Whether a process that has refused something has been killed meanwhile: then it has no child any more, in a moment.
fn has_ended(parent: libc::pid_t) -> bool {
    (0..1000).any(|_| {
        std::thread::sleep(core::time::Duration::from_millis(1));
        // SAFETY: asks for a number.
        unsafe { libc::getppid() != parent }
    })
}

fn look_at_parent(worker: &Worker, from: usize, key: Key) {
    // SAFETY: asks for a number.
    let parent = unsafe { libc::getppid() };
    let looked = calls::map(0, PAGE, calls::READ_WRITE).and_then(|to| {
        let result = calls::copy_from_process(parent, from, to, PAGE);
        result.map(|bytes| (bytes, content::check(to, key)))
    });
    match looked {
        // Forbidden by a security module.
        Ok((PAGE, Ok(()))) | Err(libc::EPERM) => {}
        Err(libc::EFAULT) if may_miss() || has_ended(parent) => {}
        Ok((PAGE, Err(wrong))) => worker.fail("the parent's page", &Trouble::Other("another word", wrong.found)),
        Ok((bytes, _)) => worker.fail("the parent's page", &Trouble::Other("short", bytes as u64)),
        Err(errno) => worker.fail("the parent's page", &Trouble::Refused("process_vm_readv", errno)),
    }
}

/// The exit status of a child that could not write to its parent.
const NOT_WRITTEN: c_int = 6;

/// A child writes a page of the process that has forked it, which waits meanwhile.
fn write_to_parent(worker: &mut Worker) -> Done {
    let (seed, key) = (worker.random.word(), Key::new(worker.random.word()));
    let number = worker.draw_area()?;
    let area = &worker.areas[number];
    let Some(page) = area.draw_open(&mut worker.random) else { return Ok(()) };
    let task = Task::WriteToParent(std::process::id(), area.at(page), key);
    let Some(pid) = child(worker, task, seed)? else { return Ok(()) };
    match calls::wait(pid).map_err(of("waitpid"))?.1 {
        0 => worker.areas[number].pages[page] = Page { key, ..Page::FRESH },
        status if status == NOT_WRITTEN << 8 || status == 3 << 8 || report().is_over() => {}
        status => return Err(Trouble::Other("a child's wait status", status as u64)),
    }
    worker.areas[number].check(page).map_err(|bad| Trouble::Bad("written by a child", bad))
}

fn fill_in_parent(worker: &Worker, parent: u32, to: usize, key: Key) {
    let written = calls::map(0, PAGE, calls::READ_WRITE).and_then(|from| {
        content::write(from, key);
        // SAFETY: asks for a number. Who takes the place of a dead parent is not written to.
        let is_there = unsafe { libc::getppid() } == parent as libc::pid_t;
        if is_there { calls::copy_to_process(parent as libc::pid_t, from, to, PAGE) } else { Err(libc::ESRCH) }
    });
    match written {
        Ok(PAGE) => {}
        // As for `look_at_parent`; or he has ended.
        Err(errno)
            if matches!(errno, libc::EPERM | libc::ESRCH)
                || errno == libc::EFAULT && (may_miss() || has_ended(parent as libc::pid_t)) =>
        {
            report().children.fetch_sub(1, Relaxed);
            calls::exit(NOT_WRITTEN)
        }
        Ok(bytes) => worker.fail("the parent's page", &Trouble::Other("short", bytes as u64)),
        Err(errno) => worker.fail("the parent's page", &Trouble::Refused("process_vm_writev", errno)),
    }
}

const PROGRAM: &core::ffi::CStr = c"/proc/self/exe";

fn arguments() -> [*mut c_char; 3] {
    [c"torture".as_ptr().cast_mut(), c"--begin-and-end".as_ptr().cast_mut(), core::ptr::null_mut()]
}

unsafe extern "C" {
    static environ: *const *mut c_char;
}

/// Does not return where it goes well: with status 0 then.
pub(crate) fn execute() -> ! {
    let arguments = arguments();
    // SAFETY: null-terminated arrays of strings.
    unsafe { libc::execve(PROGRAM.as_ptr(), arguments.as_ptr().cast(), environ.cast()) };
    calls::exit(5)
}

/// `posix_spawn`: the child shares the memory until it executes.
fn spawn(worker: &mut Worker) -> Done {
    worker.random.word();
    let mut pid = 0;
    // /proc/self is the child's there, and it is the same program.
    let arguments = arguments();
    // SAFETY: null-terminated arrays of strings, and no further wishes.
    let made: c_int = unsafe {
        let (actions, attributes) = (core::ptr::null(), core::ptr::null());
        libc::posix_spawn(&raw mut pid, PROGRAM.as_ptr(), actions, attributes, arguments.as_ptr(), environ)
    };
    if made != 0 {
        return Err(Trouble::Refused("posix_spawn", made));
    }
    report().processes.fetch_add(1, Relaxed);
    expect(pid)
}
