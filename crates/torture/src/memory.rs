//! Steps that change the layout of memory, or what is in it.

use core::ffi::c_int;

use crate::area::{Access, Area, PAGES_MAX, Page};
use crate::calls::{self, MADV_GUARD_INSTALL, MADV_GUARD_REMOVE, READ_WRITE};
use crate::content::{Key, PAGE};
use crate::worker::{AREAS, Done, Kind, Trouble, Worker, of};

pub(crate) const KINDS: &[Kind] = &[
    ("write", 30, write),
    ("check", 40, check),
    ("check all", 3, check_area),
    ("unmap", 6, unmap),
    ("unmap a part", 6, unmap_part),
    ("map over", 8, map_over),
    ("resize", 8, resize),
    ("grow in place", 4, grow),
    ("move", 6, relocate),
    ("move over", 4, move_over),
    ("move, keep mapped", 4, move_and_keep),
    ("protect", 8, protect),
    ("discard", 8, discard),
    ("free", 4, free),
    ("advise", 12, advise),
    ("populate", 6, populate),
    ("guard", 5, guard),
    ("lock", 3, lock),
    ("do not fork", 1, do_not_fork),
    ("wipe on fork", 2, wipe_on_fork),
    ("unify", 3, unify),
    ("heap", 8, heap),
    ("stack", 5, stack),
];

/// Maps an area; some pages of it are written.
pub(crate) fn map(worker: &mut Worker, number: usize) -> Done {
    let room = worker.pages_max.saturating_sub(worker.pages()).clamp(1, PAGES_MAX);
    let count =
        if worker.random.one_in(3) { 1 + worker.random.below(room.min(24)) } else { 1 + worker.random.below(room) };
    let base = if worker.random.one_in(8) { reserve_and_commit(count)? } else { plain(count)? };
    worker.areas[number].begin(base, count);
    let some = 1 + worker.random.below(8);
    for page in 0..count {
        if worker.random.below(8) < some {
            let key = Key::new(worker.random.word());
            worker.areas[number].write(page, key);
        }
    }
    Ok(())
}

fn plain(count: usize) -> Result<usize, Trouble> {
    calls::map(0, count * PAGE, READ_WRITE).map_err(of("mmap"))
}

/// As language runtimes do it: a large reservation, of which a part is made accessible, and the rest is given back.
fn reserve_and_commit(count: usize) -> Result<usize, Trouble> {
    let reserved = 64 << 20;
    let base = calls::map(0, reserved, libc::PROT_NONE).map_err(of("mmap, reserve"))?;
    let half = count / 2 * PAGE;
    if half > 0 {
        calls::protect(base, half, READ_WRITE).map_err(of("mprotect, commit"))?;
    }
    calls::protect(base + half, count * PAGE - half, READ_WRITE).map_err(of("mprotect, commit"))?;
    calls::unmap(base + count * PAGE, reserved - count * PAGE).map_err(of("munmap, reservation"))?;
    Ok(base)
}

fn write(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    for _ in 0..48 {
        area.write(worker.random.below(area.count), Key::new(worker.random.word()));
    }
    Ok(())
}

fn check(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    for _ in 0..96 {
        let page = worker.random.below(area.count);
        area.check(page).map_err(|bad| Trouble::Bad("area", bad))?;
    }
    Ok(())
}

fn check_area(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    worker.areas[number].check_all().map_err(|bad| Trouble::Bad("whole area", bad))
}

fn unmap(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    calls::unmap(area.base, area.bytes()).map_err(of("munmap"))?;
    area.count = 0;
    map(worker, number)
}

/// The front, the back, or the middle: then there are two.
fn unmap_part(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let (first, count) = worker.random.part(worker.areas[number].count);
    let rest = worker.free_area();
    let area = &mut worker.areas[number];
    let behind = area.count - first - count;
    let Some(rest) = rest.filter(|_| first > 0 && behind > 0) else {
        // No room for two: everything behind goes, or everything before.
        if first > 0 {
            calls::unmap(area.at(first), area.bytes() - first * PAGE).map_err(of("munmap, back"))?;
            area.count = first;
        } else {
            calls::unmap(area.base, count * PAGE).map_err(of("munmap, front"))?;
            area.base = area.at(count);
            area.count -= count;
            area.pages.copy_within(count..count + behind, 0);
        }
        return Ok(());
    };
    calls::unmap(area.at(first), count * PAGE).map_err(of("munmap, middle"))?;
    split(&mut worker.areas, number, rest, first, first + count);
    Ok(())
}

/// What is from `next` on becomes the area `to`; what is before `end` stays.
fn split(areas: &mut [Area; AREAS], from: usize, to: usize, end: usize, next: usize) {
    let [source, target] = areas.get_disjoint_mut([from, to]).expect("two areas");
    let count = source.count - next;
    target.begin(source.at(next), count);
    target.pages[..count].copy_from_slice(&source.pages[next..source.count]);
    (target.stays_behind, target.is_wiped, target.is_mixed) = (source.stays_behind, source.is_wiped, source.is_mixed);
    source.count = end;
}

/// New memory in the place of old.
fn map_over(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    area.unify().map_err(of("unify"))?;
    let (first, count) = worker.random.part(area.count);
    let at = calls::map(area.at(first), count * PAGE, READ_WRITE).map_err(of("mmap over"))?;
    if at != area.at(first) {
        return Err(Trouble::Other("mmap over: elsewhere", at as u64));
    }
    area.pages[first..first + count].fill(Page::FRESH);
    Ok(())
}

fn resize(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let room = worker.pages_max.saturating_sub(worker.pages());
    let area = &mut worker.areas[number];
    area.unify().map_err(of("unify"))?;
    let count = 1 + worker.random.below((area.count * 2).min(area.count + room).min(PAGES_MAX));
    match calls::remap(area.base, area.bytes(), count * PAGE, libc::MREMAP_MAYMOVE, 0) {
        Ok(base) => moved(area, base, count),
        Err(errno) => refused("mremap", errno)?,
    }
    Ok(())
}

fn grow(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let room = worker.pages_max.saturating_sub(worker.pages());
    let area = &mut worker.areas[number];
    area.unify().map_err(of("unify"))?;
    let count = (area.count + 1 + worker.random.below(16)).min(PAGES_MAX).min(area.count + room);
    match calls::remap(area.base, area.bytes(), count * PAGE, 0, 0) {
        Ok(base) if base == area.base => moved(area, base, count),
        Ok(base) => return Err(Trouble::Other("mremap in place: elsewhere", base as u64)),
        Err(libc::ENOMEM) => {}
        Err(errno) => refused("mremap in place", errno)?,
    }
    Ok(())
}

fn moved(area: &mut Area, base: usize, count: usize) {
    if count > area.count {
        area.pages[area.count..count].fill(Page::FRESH);
    }
    (area.base, area.count) = (base, count);
}

/// mremap takes one mapping, and which neighbours are one is for the kernel to say: memory that was mapped over in a moved
/// area counts its offset from elsewhere, and what a child has copied is no longer the same as what is fresh; they never
/// come together. Without pleat that happens within a hundred steps or so. Nothing has happened then.
fn refused(what: &'static str, errno: c_int) -> Done {
    if errno == libc::EFAULT { Ok(()) } else { Err(Trouble::Refused(what, errno)) }
}

fn relocate(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    area.unify().map_err(of("unify"))?;
    // The place is taken, by something that the move replaces.
    let to = calls::map(0, area.bytes(), libc::PROT_NONE).map_err(of("mmap, target"))?;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    match calls::remap(area.base, area.bytes(), area.bytes(), flags, to) {
        Ok(base) if base == to => moved(area, base, area.count),
        Ok(base) => return Err(Trouble::Other("mremap to a place: elsewhere", base as u64)),
        Err(errno) => {
            refused("mremap to a place", errno)?;
            // What the target was may be gone.
            let _ = calls::unmap(to, area.bytes());
        }
    }
    Ok(())
}

/// An area takes the place of another.
fn move_over(worker: &mut Worker) -> Done {
    let (number, other) = (worker.draw_area()?, worker.draw_area()?);
    if number == other || worker.areas[number].count > worker.areas[other].count || worker.depth > 0 {
        return Ok(());
    }
    for area in [number, other] {
        worker.areas[area].unify().map_err(of("unify"))?;
    }
    let [source, target] = worker.areas.get_disjoint_mut([number, other]).expect("two areas");
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    if let Err(errno) = calls::remap(source.base, source.bytes(), source.bytes(), flags, target.base) {
        refused("mremap over", errno)?;
        // What the target was may be gone.
        let _ = calls::unmap(target.base, target.bytes());
        target.count = 0;
        return Ok(());
    }
    // What the target has behind is a mapping of its own.
    let behind = target.count - source.count;
    if behind > 0 {
        calls::unmap(target.at(source.count), behind * PAGE).map_err(of("munmap, rest"))?;
    }
    target.begin(target.base, source.count);
    target.pages[..source.count].copy_from_slice(&source.pages[..source.count]);
    source.count = 0;
    Ok(())
}

/// `MREMAP_DONTUNMAP`: the old place stays mapped, and is zeros.
fn move_and_keep(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let Some(free) = worker.free_area() else { return Ok(()) };
    worker.areas[number].unify().map_err(of("unify"))?;
    let [source, target] = worker.areas.get_disjoint_mut([number, free]).expect("two areas");
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
    match calls::remap(source.base, source.bytes(), source.bytes(), flags, 0) {
        Ok(base) => {
            let count = source.count;
            target.begin(base, count);
            target.pages[..count].copy_from_slice(&source.pages[..count]);
            source.clear(0, count);
            // At once, before anything else lets the handler know that nothing is on its way.
            for _ in 0..worker.random.below(3) {
                let page = worker.random.below(count);
                source.check(page).map_err(|bad| Trouble::Bad("left behind", bad))?;
                source.write(page, Key::new(worker.random.word()));
            }
        }
        Err(errno) => refused("mremap, keep mapped", errno)?,
    }
    Ok(())
}

fn protect(worker: &mut Worker) -> Done {
    const EXECUTE: c_int = libc::PROT_EXEC;
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    let (first, count) = worker.random.part(area.count);
    let (access, protection) = [
        (Access::All, READ_WRITE),
        (Access::All, READ_WRITE),
        (Access::All, READ_WRITE),
        (Access::All, READ_WRITE | EXECUTE),
        (Access::ReadOnly, libc::PROT_READ),
        (Access::ReadOnly, libc::PROT_READ | EXECUTE),
        (Access::None, libc::PROT_NONE),
        (Access::None, libc::PROT_NONE),
    ][worker.random.below(8)];
    area.restrict(first, count, access, protection).map_err(of("mprotect"))
}

fn discard(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    let (first, count) = worker.random.part(area.count);
    match calls::advise(area.at(first), count * PAGE, libc::MADV_DONTNEED) {
        Ok(()) => area.clear(first, count),
        // Locked: nothing, or a front part, is gone.
        Err(libc::EINVAL) if area.is_mixed => {
            calls::unlock(area.base, area.bytes()).map_err(of("munlock"))?;
            calls::advise(area.at(first), count * PAGE, libc::MADV_DONTNEED).map_err(of("madvise, again"))?;
            area.clear(first, count);
        }
        Err(errno) => return Err(Trouble::Refused("madvise", errno)),
    }
    Ok(())
}

fn free(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    let (first, count) = worker.random.part(area.count);
    let result = calls::advise(area.at(first), count * PAGE, libc::MADV_FREE);
    for page in &mut area.pages[first..first + count] {
        page.may_be_zero = true;
    }
    match result {
        Ok(()) => Ok(()),
        Err(libc::EINVAL) if area.is_mixed => Ok(()),
        Err(errno) => Err(Trouble::Refused("madvise, free", errno)),
    }
}

/// Advice that changes no content. The kernel may refuse some of it for reasons of its own.
fn advise(worker: &mut Worker) -> Done {
    const MADV_REMOVE: c_int = libc::MADV_REMOVE;
    const KINDS: [c_int; 9] = [
        libc::MADV_HUGEPAGE,
        libc::MADV_NOHUGEPAGE,
        libc::MADV_COLLAPSE,
        libc::MADV_COLD,
        libc::MADV_PAGEOUT,
        libc::MADV_WILLNEED,
        libc::MADV_SEQUENTIAL,
        libc::MADV_NORMAL,
        MADV_REMOVE,
    ];
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    let advice = KINDS[worker.random.below(KINDS.len())];
    let (first, count) = if worker.random.one_in(2) { (0, area.count) } else { worker.random.part(area.count) };
    area.is_mixed = true;
    let result = calls::advise(area.at(first), count * PAGE, advice);
    match (advice, result) {
        // Not for private anonymous memory.
        (MADV_REMOVE, Ok(())) => Err(Trouble::Other("MADV_REMOVE of private memory", 0)),
        (libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE | libc::MADV_SEQUENTIAL | libc::MADV_NORMAL, Err(errno)) => {
            Err(Trouble::Refused("madvise, kind", errno))
        }
        _ => Ok(()),
    }
}

fn populate(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    let (first, count) = worker.random.part(area.count);
    let writes = worker.random.one_in(2);
    let advice = if writes { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    let part = &area.pages[first..first + count];
    let may = part.iter().all(|page| page.access == Access::All || !writes && page.access == Access::ReadOnly);
    match calls::advise(area.at(first), count * PAGE, advice) {
        Ok(()) if may => Ok(()),
        Ok(()) => Err(Trouble::Other("populated what may not be touched", 0)),
        Err(_) if !may => Ok(()),
        Err(errno) => Err(Trouble::Refused("madvise, populate", errno)),
    }
}

fn guard(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    let (first, count) = worker.random.part(area.count);
    let (at, bytes) = (area.at(first), count * PAGE);
    area.is_mixed = true;
    if worker.random.one_in(2) {
        match calls::advise(at, bytes, MADV_GUARD_INSTALL) {
            Ok(()) => {
                area.clear(first, count);
                for page in &mut area.pages[first..first + count] {
                    page.access = Access::Guarded;
                }
                return Ok(());
            }
            // An older kernel, or a locked part: the front may be guarded by now.
            Err(_) => area.clear_after_failed_guard(first, count),
        }
    }
    calls::unlock(at, bytes).map_err(of("munlock"))?;
    match calls::advise(at, bytes, MADV_GUARD_REMOVE) {
        Ok(()) | Err(libc::EINVAL) => {}
        Err(errno) => return Err(Trouble::Refused("madvise, no guard", errno)),
    }
    calls::protect(at, bytes, READ_WRITE).map_err(of("mprotect"))?;
    for page in &mut area.pages[first..first + count] {
        page.access = Access::All;
    }
    Ok(())
}

fn lock(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    let (first, count) = worker.random.part(area.count.min(64));
    area.is_mixed = true;
    let (at, bytes) = (area.at(first), count * PAGE);
    // Refused where not all of it may be touched; what can be locked is.
    let _ = calls::lock(at, bytes);
    for page in first..first + count {
        area.check(page).map_err(|bad| Trouble::Bad("locked", bad))?;
    }
    if worker.random.one_in(4) { Ok(()) } else { calls::unlock(at, bytes).map_err(of("munlock")) }
}

fn do_not_fork(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    calls::advise(area.base, area.bytes(), libc::MADV_DONTFORK).map_err(of("madvise, no fork"))?;
    (area.is_mixed, area.stays_behind) = (true, true);
    Ok(())
}

fn wipe_on_fork(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let area = &mut worker.areas[number];
    calls::advise(area.base, area.bytes(), libc::MADV_WIPEONFORK).map_err(of("madvise, wipe"))?;
    (area.is_mixed, area.is_wiped) = (true, true);
    Ok(())
}

fn unify(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    worker.areas[number].unify().map_err(of("unify"))
}

fn heap(worker: &mut Worker) -> Done {
    // One heap a process: it belongs to the first thread, or to the only one that a forked child has.
    if worker.number != 0 {
        return Ok(());
    }
    let Worker { heap, random, .. } = worker;
    heap.step(random)
}

/// Uses the stack deeply, and looks at it on the way back.
fn stack(worker: &mut Worker) -> Done {
    let depth = 1 + worker.random.below(150);
    let key = worker.random.word();
    if descend(depth, key) { Ok(()) } else { Err(Trouble::Other("stack", depth as u64)) }
}

#[inline(never)]
fn descend(depth: usize, key: u64) -> bool {
    let mut frame = [key ^ depth as u64; 400];
    core::hint::black_box(&mut frame);
    if depth > 0 && !descend(depth - 1, key) {
        return false;
    }
    core::hint::black_box(&frame).iter().all(|word| *word == key ^ depth as u64)
}
