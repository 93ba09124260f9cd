//! Steps in which the kernel reads and writes the memory, and others that run on it.

use core::cell::Cell;
use core::ffi::{c_int, c_void};

use crate::calls;
use crate::content::{self, Key, PAGE};
use crate::worker::{Done, Kind, Trouble, Worker, of};

pub(crate) const KINDS: &[Kind] = &[
    ("pipe", 8, pipe),
    ("pipe, in two parts", 4, pipe_in_parts),
    ("read zeros", 3, read_zeros),
    ("much in one call", 1, much_in_one_call),
    ("copy by the kernel", 6, copy),
    ("futex", 4, futex),
    ("futex that is written", 4, futex_written),
    ("no access", 3, no_access),
    ("signal stack", 3, signal_stack),
    ("thread", 2, thread),
];

/// Two areas and an accessible page of each; `None` if there is no such page.
pub(crate) fn two_pages(worker: &mut Worker) -> Result<Option<[(usize, usize); 2]>, Trouble> {
    let (from, to) = (worker.draw_area()?, worker.draw_area()?);
    let Worker { areas, random, .. } = worker;
    let pages = (areas[from].draw_open(random), areas[to].draw_open(random));
    Ok(if let (Some(one), Some(other)) = pages { Some([(from, one), (to, other)]) } else { None })
}

/// After the kernel has copied a page: what is there now.
pub(crate) fn copied(worker: &mut Worker, from: (usize, usize), to: (usize, usize)) -> Done {
    // What was read may have been freed lazily; then it is now known.
    worker.areas[from.0].check(from.1).map_err(|bad| Trouble::Bad("source", bad))?;
    let page = worker.areas[from.0].pages[from.1];
    let target = &mut worker.areas[to.0].pages[to.1];
    (target.key, target.may_be_zero) = (page.key, page.may_be_zero);
    worker.areas[to.0].check(to.1).map_err(|bad| Trouble::Bad("target", bad))
}

/// A page through a pipe.
fn pipe(worker: &mut Worker) -> Done {
    let Some([from, to]) = two_pages(worker)? else { return Ok(()) };
    let (source, target) = (worker.areas[from.0].at(from.1), worker.areas[to.0].at(to.1));
    let ends = calls::pipe().map_err(of("pipe"))?;
    let result = calls::write(ends[1], source, PAGE).and_then(|_| calls::read(ends[0], target, PAGE));
    ends.into_iter().for_each(calls::close);
    match result {
        Ok(PAGE) => copied(worker, from, to),
        Ok(bytes) => Err(Trouble::Other("a short read", bytes as u64)),
        Err(errno) => Err(Trouble::Refused("write or read", errno)),
    }
}

/// The same with a readv whose parts lie in two pages, each half a page long.
fn pipe_in_parts(worker: &mut Worker) -> Done {
    let Some([from, to]) = two_pages(worker)? else { return Ok(()) };
    if from == to {
        return Ok(());
    }
    let (source, target) = (worker.areas[from.0].at(from.1), worker.areas[to.0].at(to.1));
    let ends = calls::pipe().map_err(of("pipe"))?;
    let halves = [target + PAGE / 2, target];
    let result = calls::write(ends[1], source + PAGE / 2, PAGE / 2)
        .and_then(|_| calls::write(ends[1], source, PAGE / 2))
        .and_then(|_| calls::read_two(ends[0], halves, PAGE / 2));
    ends.into_iter().for_each(calls::close);
    match result {
        Ok(PAGE) => copied(worker, from, to),
        Ok(bytes) => Err(Trouble::Other("a short readv", bytes as u64)),
        Err(errno) => Err(Trouble::Refused("write or readv", errno)),
    }
}

fn read_zeros(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    let Some(page) = area.draw_open(&mut worker.random) else { return Ok(()) };
    // SAFETY: opens a device.
    let zeros = unsafe { libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let result = calls::read(zeros, area.at(page), PAGE);
    calls::close(zeros);
    result.map_err(of("read"))?;
    area.clear(page, 1);
    area.check(page).map_err(|bad| Trouble::Bad("zeros", bad))
}

/// More than user mode lets one call hold with the budgets that torture is run in (36 MiB and less): through a file, and the page beyond
/// the end is not touched.
fn much_in_one_call(worker: &mut Worker) -> Done {
    const PAGES: usize = (9 << 18) / PAGE;
    let word = worker.random.word();
    let at = calls::map(0, (PAGES + 1) * PAGE, calls::READ_WRITE).map_err(of("mmap"))?;
    let key = |page: usize| Key::new(word.wrapping_add(page as u64));
    (0..=PAGES).for_each(|page| content::write(at + page * PAGE, key(page)));
    let file = calls::memory_file(0).map_err(of("memfd_create"))?;
    let bytes = PAGES * PAGE;
    let result = calls::write(file, at, bytes).and_then(|written| {
        (0..PAGES).for_each(|page| content::write(at + page * PAGE, Key::ZERO));
        calls::rewind(file)?;
        Ok((written, calls::read(file, at, bytes + PAGE)?))
    });
    calls::close(file);
    let transferred = result.map_err(of("write or read"))?;
    let is_wrong = |page: &usize| content::check(at + page * PAGE, key(*page)).is_err();
    let wrong = (0..=PAGES).find(is_wrong);
    calls::unmap(at, (PAGES + 1) * PAGE).map_err(of("munmap"))?;
    match wrong {
        _ if transferred.0 != bytes => Err(Trouble::Other("a short write", transferred.0 as u64)),
        _ if transferred.1 != bytes => Err(Trouble::Other("a short read", transferred.1 as u64)),
        Some(page) => Err(Trouble::Other("much in one call, at page", page as u64)),
        None => Ok(()),
    }
}

fn copy(worker: &mut Worker) -> Done {
    let Some([from, to]) = two_pages(worker)? else { return Ok(()) };
    if from == to {
        return Ok(());
    }
    let (source, target) = (worker.areas[from.0].at(from.1), worker.areas[to.0].at(to.1));
    let by_writing = worker.random.below(2) == 1;
    match calls::copy_by_kernel(source, target, PAGE, by_writing) {
        Ok(PAGE) => copied(worker, from, to),
        Ok(bytes) => Err(Trouble::Other("a short process_vm_readv or process_vm_writev", bytes as u64)),
        Err(errno) => Err(Trouble::Refused("process_vm_readv or process_vm_writev", errno)),
    }
}

/// The kernel compares a word of a page with another one: it must not wait.
fn futex(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    let Some(page) = area.draw_open(&mut worker.random) else { return Ok(()) };
    if area.pages[page].may_be_zero {
        return Ok(());
    }
    let at = worker.random.below(content::WORDS);
    let word = area.pages[page].key.word(at) as u32;
    match calls::futex_wait(area.at(page) + at * 8, !word) {
        Err(libc::EAGAIN) => Ok(()),
        Err(errno) => Err(Trouble::Refused("futex", errno)),
        Ok(()) => Err(Trouble::Other("futex: woken", 0)),
    }
}

/// The kernel writes a word as it is.
fn futex_written(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    let Some(page) = area.draw_open(&mut worker.random) else { return Ok(()) };
    let at = worker.random.below(content::WORDS);
    match calls::futex_write(area.at(page) + at * 8) {
        Ok(0) => area.check(page).map_err(|bad| Trouble::Bad("behind a futex", bad)),
        Ok(count) => Err(Trouble::Other("futex: woken", count as u64)),
        Err(errno) => Err(Trouble::Refused("futex", errno)),
    }
}

/// What the program may not touch the kernel may not either, with the same errno.
fn no_access(worker: &mut Worker) -> Done {
    let at = calls::map(0, PAGE, libc::PROT_NONE).map_err(of("mmap"))?;
    let ends = calls::pipe().map_err(of("pipe"))?;
    let result = calls::write(ends[1], at, PAGE);
    ends.into_iter().for_each(calls::close);
    calls::unmap(at, PAGE).map_err(of("munmap"))?;
    worker.random.word();
    if result == Err(libc::EFAULT) { Ok(()) } else { Err(Trouble::Other("a write from nowhere", 0)) }
}

thread_local! {
    /// Where this thread's signal handler has run; 0 until it has.
    static HANDLED_AT: Cell<usize> = const { Cell::new(0) };
}

extern "C" fn on_signal(_signal: c_int) {
    let mut frame = [HANDLED_AT.get() as u64; 1500];
    HANDLED_AT.set(core::hint::black_box(&raw mut frame).addr());
}

/// A signal handler on a stack that may be out of memory.
fn signal_stack(worker: &mut Worker) -> Done {
    const BYTES: usize = 1 << 17;
    let at = calls::map(0, BYTES, calls::READ_WRITE).map_err(of("mmap"))?;
    for page in 0..BYTES / PAGE {
        content::write(at + page * PAGE, Key::new(page as u64));
    }
    worker.random.word();
    let stack = libc::stack_t { ss_sp: at as *mut c_void, ss_flags: 0, ss_size: BYTES };
    let none = libc::stack_t { ss_sp: core::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    let mut before = none;
    HANDLED_AT.set(0);
    // SAFETY: zeros are a valid sigaction.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: the stack is ours alone, and is left before it is unmapped.
    unsafe { libc::sigaltstack(&raw const stack, &raw mut before) };
    // SAFETY: the handler touches its stack and a word of this thread's.
    unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut()) };
    calls::sleep_us(300);
    // SAFETY: sends this thread a signal for which there is a handler.
    unsafe { libc::raise(libc::SIGUSR1) };
    // SAFETY: the handler has returned.
    unsafe { libc::sigaltstack(&raw const before, core::ptr::null_mut()) };
    calls::unmap(at, BYTES).map_err(of("munmap"))?;
    let handled_at = HANDLED_AT.get();
    if (at..at + BYTES).contains(&handled_at) { Ok(()) } else { Err(Trouble::Other("signal", handled_at as u64)) }
}

/// A thread for a moment, on a stack that libc keeps for the next one.
fn thread(worker: &mut Worker) -> Done {
    #[expect(clippy::large_stack_arrays, reason = "the stack is what is tested")]
    extern "C" fn run(argument: *mut c_void) -> *mut c_void {
        let key = Key::new(argument as u64);
        let mut frame = [0_u64; content::WORDS * 9];
        let start = (frame.as_mut_ptr() as usize).next_multiple_of(PAGE);
        (0..8).for_each(|page| content::write(start + page * PAGE, key));
        calls::sleep_us(200);
        let wrong = (0..8).find_map(|page| content::check(start + page * PAGE, key).err());
        core::hint::black_box(&mut frame);
        usize::from(wrong.is_some()) as *mut c_void
    }
    let word = worker.random.word();
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the thread gets a number, and is joined below.
    let made = unsafe { libc::pthread_create(&raw mut thread, core::ptr::null(), run, word as *mut c_void) };
    if made != 0 {
        return Err(Trouble::Refused("pthread_create", made));
    }
    let mut wrong = core::ptr::null_mut();
    // SAFETY: made above, joined once.
    unsafe { libc::pthread_join(thread, &raw mut wrong) };
    if wrong.is_null() { Ok(()) } else { Err(Trouble::Other("a thread's stack", word)) }
}
