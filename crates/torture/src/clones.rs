//! Steps that make processes past libc's fork: some share the memory.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use crate::area::Access;
use crate::calls;
use crate::content::{self, Key};
use crate::forks::{self, CHILDREN_MAX, DEPTH_MAX};
use crate::worker::{Done, Kind, Trouble, Worker, of, report};

pub(crate) const KINDS: &[Kind] = &[("clone", 2, clone), ("vfork", 2, vfork), ("raw fork", 1, raw_fork)];

/// Pages of a stack for a process that shares the memory: enough for one that executes.
const STACK: usize = 16;

/// What a process that shares the memory is to do. On the stack of who waits for it.
struct Errand {
    read: (usize, Key),
    write: (usize, Key),
}

extern "C" fn run(errand: *mut c_void) -> c_int {
    // SAFETY: the parent waits until this process has ended.
    let errand = unsafe { &*errand.cast::<Errand>() };
    let is_right = content::check(errand.read.0, errand.read.1).is_ok();
    content::write(errand.write.0, errand.write.1);
    if is_right { 0 } else { 6 }
}

extern "C" fn run_program(_: *mut c_void) -> c_int {
    forks::execute()
}

/// A part of an area that can be a stack.
fn draw_stack(worker: &mut Worker) -> Result<Option<(usize, usize)>, Trouble> {
    // Who is killed at any moment would leave it without an agent; then it gets SIGBUS, which pleat documents.
    if worker.depth >= DEPTH_MAX {
        return Ok(None);
    }
    let number = worker.draw_area()?;
    let area = &worker.areas[number];
    let is_open = |first: &usize| area.pages[*first..*first + STACK].iter().all(|page| page.access == Access::All);
    Ok((0..(area.count + 1).saturating_sub(STACK)).find(is_open).map(|first| (number, first)))
}

/// Makes a process that shares the memory, waits for it, and makes pages of its stack again.
fn share(
    worker: &mut Worker,
    stack: (usize, usize),
    flags: c_int,
    task: extern "C" fn(*mut c_void) -> c_int,
    errand: &Errand,
) -> Done {
    let end = worker.areas[stack.0].at(stack.1 + STACK);
    let errand = core::ptr::from_ref(errand).cast_mut().cast();
    // SAFETY: the stack is a part of an area, which nobody else uses, and the errand outlives the process.
    let pid = unsafe { libc::clone(task, end as *mut c_void, libc::CLONE_VM | flags, errand) };
    calls::done(pid.min(0)).map_err(of("clone"))?;
    report().processes.fetch_add(1, Relaxed);
    forks::expect(pid)?;
    for page in stack.1..stack.1 + STACK {
        worker.areas[stack.0].write(page, Key::new(worker.random.word()));
    }
    Ok(())
}

/// A process of the same memory reads a page and writes another; its end sends a signal or none.
fn clone(worker: &mut Worker) -> Done {
    let signal = if worker.random.one_in(2) { libc::SIGCHLD } else { 0 };
    let flags = if worker.random.one_in(2) { libc::CLONE_FILES | libc::CLONE_FS } else { 0 };
    let Some(stack) = draw_stack(worker)? else { return Ok(()) };
    let is_used = |number, page| number == stack.0 && (stack.1..stack.1 + STACK).contains(&page);
    let number = worker.draw_area()?;
    let Worker { areas, random, .. } = worker;
    let area = &mut areas[number];
    let (Some(read), Some(write)) = (area.draw_open(random), area.draw_open(random)) else { return Ok(()) };
    let old = area.pages[read];
    if is_used(number, read) || is_used(number, write) || read == write || old.may_be_zero {
        return Ok(());
    }
    let key = Key::new(random.word());
    let errand = Errand { read: (area.at(read), old.key), write: (area.at(write), key) };
    area.pages[write].key = key;
    area.pages[write].may_be_zero = false;
    share(worker, stack, signal | flags, run, &errand)?;
    worker.areas[number].check(write).map_err(|bad| Trouble::Bad("written by a clone", bad))
}

/// As vfork, but with a stack of its own: the child ends, or executes a program.
fn vfork(worker: &mut Worker) -> Done {
    let executes = worker.random.one_in(2);
    let Some(stack) = draw_stack(worker)? else { return Ok(()) };
    let key = Key::new(worker.random.word());
    let front = worker.areas[stack.0].at(stack.1);
    // The front of its stack it does not need.
    content::write(front, key);
    let errand = Errand { read: (front, key), write: (front, key) };
    let flags = libc::CLONE_VFORK | libc::SIGCHLD;
    share(worker, stack, flags, if executes { run_program } else { run }, &errand)
}

/// A fork of which libc's handlers know nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RawFork {
    /// Of which not even its function `syscall` knows.
    Bare,
    Clone,
    Clone3,
}

fn clone_raw(kind: RawFork) -> Result<libc::pid_t, calls::Errno> {
    #[cfg(target_arch = "x86_64")]
    if kind == RawFork::Bare {
        let result: isize;
        // SAFETY: a fork: the child has a copy of everything, and this thread only.
        unsafe {
            core::arch::asm!(
                "syscall", inlateout("rax") libc::SYS_clone as isize => result, in("rdi") libc::SIGCHLD, in("rsi") 0,
                in("rdx") 0, in("r10") 0, in("r8") 0, lateout("rcx") _, lateout("r11") _
            );
        }
        return if result < 0 { Err(-result as calls::Errno) } else { Ok(result as libc::pid_t) };
    }
    // `struct clone_args`: the signal comes fifth.
    let asked = [0, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    let pid = if kind == RawFork::Clone3 {
        // SAFETY: as above, with a live structure of that size.
        unsafe { libc::syscall(libc::SYS_clone3, asked.as_ptr(), size_of_val(&asked)) }
    } else {
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }
    };
    calls::result(pid as isize).map(|pid| pid as libc::pid_t)
}

/// A fork past libc.
fn raw_fork(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let (first, second) = (worker.random.word(), worker.random.word());
    let kind = [RawFork::Bare, RawFork::Clone, RawFork::Clone3][worker.random.below(3)];
    let area = &mut worker.areas[number];
    let report = report();
    // By those only that have had their agent from the start: pleat ends the run where a child does it that has none yet.
    let may_be_wrong = area.stays_behind || area.is_wiped || worker.depth > 0;
    if may_be_wrong || report.children.load(Relaxed) >= CHILDREN_MAX {
        return Ok(());
    }
    let pid = clone_raw(kind).map_err(of("clone, raw"))?;
    if pid == 0 {
        let looked = [first, second].map(|word| area.check(word as usize % area.count));
        calls::exit(if looked.iter().all(Result::is_ok) { 0 } else { 6 })
    }
    report.processes.fetch_add(1, Relaxed);
    match calls::wait(pid).map_err(of("waitpid"))?.1 {
        0 => Ok(()),
        // pleat cannot follow it, and ends it where it would miss a page.
        libc::SIGKILL if kind == RawFork::Bare || cfg!(not(target_arch = "x86_64")) => Ok(()),
        status => Err(Trouble::Other("a raw child's wait status", status as u64)),
    }
}
