//! Steps with memory that is shared or of a file: pleat leaves it alone, and content goes between it and the areas.

use core::ptr::{null, null_mut};

use crate::calls::{self, Errno};
use crate::content::{self, Key, PAGE};
use crate::forks::{self, DEPTH_MAX, Task};
use crate::kernel_io;
use crate::worker::{Done, Kind, Trouble, Worker, of};

pub(crate) const KINDS: &[Kind] =
    &[("System V memory", 2, system_v), ("shared file", 2, shared_file), ("private file", 3, private_file)];

const COUNT: usize = 8;

/// What the pages of such a mapping hold. As long as a step only.
type Keys = [Key; COUNT];

fn system_v(worker: &mut Worker) -> Done {
    // Who is killed between two calls leaves the segment behind.
    if worker.depth >= DEPTH_MAX {
        return Ok(());
    }
    let at = attach(COUNT * PAGE).map_err(of("shmget or shmat"))?;
    exchange(worker, at)?;
    // SAFETY: attached above, nothing refers to it.
    calls::done(unsafe { libc::shmdt(at as *const _) }).map_err(of("shmdt"))
}

/// A segment that goes when the last process lets go of it.
fn attach(bytes: usize) -> Result<usize, Errno> {
    // SAFETY: takes numbers.
    let segment = unsafe { libc::shmget(libc::IPC_PRIVATE, bytes, libc::IPC_CREAT | 0o600) };
    calls::done(segment.min(0))?;
    // SAFETY: the kernel chooses the place.
    let at = calls::result(unsafe { libc::shmat(segment, null(), 0) } as isize);
    // SAFETY: marks a segment of ours.
    calls::done(unsafe { libc::shmctl(segment, libc::IPC_RMID, null_mut()) })?;
    at
}

fn shared_file(worker: &mut Worker) -> Done {
    let bytes = COUNT * PAGE;
    let at = calls::map_file(bytes, libc::MAP_SHARED).map_err(of("mmap, shared"))?;
    let mut keys = exchange(worker, at)?;
    let (first, count) = worker.random.part(COUNT);
    calls::advise(at + first * PAGE, count * PAGE, libc::MADV_REMOVE).map_err(of("madvise, hole"))?;
    keys[first..first + count].fill(Key::ZERO);
    check(at, &keys)?;
    calls::unmap(at, bytes).map_err(of("munmap, shared"))
}

fn fill(worker: &mut Worker, at: usize) -> Keys {
    core::array::from_fn(|page| {
        let key = Key::new(worker.random.word());
        content::write(at + page * PAGE, key);
        key
    })
}

fn check(at: usize, keys: &Keys) -> Done {
    for (page, key) in keys.iter().enumerate() {
        content::check(at + page * PAGE, *key).map_err(|wrong| Trouble::Other("a page of a file", wrong.found))?;
    }
    Ok(())
}

/// Fills shared memory; a page comes from an area, one goes to another, one is written by a child.
fn exchange(worker: &mut Worker, at: usize) -> Result<Keys, Trouble> {
    let mut keys = fill(worker, at);
    let (key, seed) = (Key::new(worker.random.word()), worker.random.word());
    trade(worker, at, &mut keys)?;
    if let Some(pid) = forks::child(worker, Task::Write(at + 2 * PAGE, key), seed)? {
        forks::expect(pid)?;
        keys[2] = key;
    }
    check(at, &keys)?;
    Ok(keys)
}

/// The first page comes from an area, the second goes to another.
fn trade(worker: &mut Worker, at: usize, keys: &mut Keys) -> Done {
    let Some([from, to]) = kernel_io::two_pages(worker)? else { return Ok(()) };
    keys[0] = bring(worker, from, at)?.unwrap_or(keys[0]);
    take(worker, at + PAGE, keys[1], to)
}

/// Copies a page of an area to `at`; what is there then, unless it is not known.
fn bring(worker: &mut Worker, from: (usize, usize), at: usize) -> Result<Option<Key>, Trouble> {
    let area = &worker.areas[from.0];
    let page = area.pages[from.1];
    if page.may_be_zero {
        return Ok(None);
    }
    match calls::copy_by_kernel(area.at(from.1), at, PAGE, false) {
        Ok(PAGE) => Ok(Some(page.key)),
        Ok(bytes) => Err(Trouble::Other("a short copy to a file", bytes as u64)),
        Err(errno) => Err(Trouble::Refused("process_vm_readv to a file", errno)),
    }
}

/// Copies what is at `at` to a page of an area.
fn take(worker: &mut Worker, at: usize, key: Key, to: (usize, usize)) -> Done {
    let area = &mut worker.areas[to.0];
    match calls::copy_by_kernel(at, area.at(to.1), PAGE, true) {
        Ok(PAGE) => {}
        Ok(bytes) => return Err(Trouble::Other("a short copy of a file", bytes as u64)),
        Err(errno) => return Err(Trouble::Refused("process_vm_writev of a file", errno)),
    }
    (area.pages[to.1].key, area.pages[to.1].may_be_zero) = (key, false);
    area.check(to.1).map_err(|bad| Trouble::Bad("from a file", bad))
}

/// Private pages of a file: what is written is the process's own, until it is discarded.
fn private_file(worker: &mut Worker) -> Done {
    let bytes = COUNT * PAGE;
    let file = calls::memory_file(bytes).map_err(of("memfd_create"))?;
    let shared = calls::map_part(file, bytes, libc::MAP_SHARED).map_err(of("mmap, shared"))?;
    let at = calls::map_part(file, bytes, libc::MAP_PRIVATE).map_err(of("mmap, private"))?;
    calls::close(file);
    let below = fill(worker, shared);
    let mut keys = below;
    for (page, key) in keys.iter_mut().enumerate() {
        if worker.random.one_in(2) {
            *key = Key::new(worker.random.word());
            content::write(at + page * PAGE, *key);
        }
    }
    let (key, seed) = (Key::new(worker.random.word()), worker.random.word());
    trade(worker, at, &mut keys)?;
    // What a child writes is its own.
    if let Some(pid) = forks::child(worker, Task::Write(at + 2 * PAGE, key), seed)? {
        forks::expect(pid)?;
    }
    check(at, &keys)?;
    check(shared, &below)?;
    let (first, count) = worker.random.part(COUNT);
    calls::advise(at + first * PAGE, count * PAGE, libc::MADV_DONTNEED).map_err(of("madvise, of a file"))?;
    keys[first..first + count].copy_from_slice(&below[first..first + count]);
    check(at, &keys)?;
    calls::unmap(at, bytes).map_err(of("munmap, private"))?;
    calls::unmap(shared, bytes).map_err(of("munmap, shared"))
}
