//! Steps with mappings of unusual kinds: one that grows down, a huge one, one with a userfaultfd of the program's own.

use core::ffi::{c_int, c_ulong, c_void};

use crate::calls::{self, Errno, READ_WRITE};
use crate::content::{self, Key, PAGE};
use crate::random::mix;
use crate::worker::{Done, Kind, Trouble, Worker, of, report};

pub(crate) const KINDS: &[Kind] = &[
    ("grow down", 2, grow_down),
    ("terabyte", 1, terabyte),
    ("own userfaultfd", 2, own_userfaultfd),
    ("take back", 2, take_back),
];

/// What a page of such a mapping holds: the key is told by its number, for a list of them would lie in managed memory.
fn key_of(word: u64, page: usize) -> Key {
    Key::new(mix(word ^ page as u64))
}

fn check(at: usize, key: Key, what: &'static str) -> Done {
    content::check(at, key).map_err(|wrong| Trouble::Other(what, wrong.found))
}

/// `MAP_GROWSDOWN`: touched below its start it grows, as stacks did once.
fn grow_down(worker: &mut Worker) -> Done {
    const OLD: usize = 40;
    const GROWN_MAX: usize = 60;
    let random = &mut worker.random;
    // Far from all that the kernel places, or something might be where it is to grow.
    let start = (1 << 44) + random.below(1 << 28) * PAGE;
    let (word, grown, pause) = (random.word(), 1 + random.below(GROWN_MAX), random.below(2000) as u64);
    match calls::map_fresh(start, OLD * PAGE, libc::MAP_GROWSDOWN) {
        Ok(at) if at == start => {}
        Ok(at) => return Err(Trouble::Other("a mapping that grows: elsewhere", at as u64)),
        // By chance a place that another thread has, or had when this process was forked.
        Err(libc::EEXIST) => return Ok(()),
        Err(errno) => return Err(Trouble::Refused("mmap, growing", errno)),
    }
    let front = start - grown * PAGE;
    let key = |page: usize| if page.is_multiple_of(3) { key_of(word, page) } else { Key::ZERO };
    let write = |page: usize| content::write(front + page * PAGE, key(page));
    let check = |page: usize| check(front + page * PAGE, key(page), "a mapping that grows");
    (grown..grown + OLD).filter(|page| page % 3 == 0).for_each(write);
    calls::sleep_us(pause);
    // Page by page, or all at once.
    if word & 1 == 0 {
        (0..grown).rev().filter(|page| page % 3 == 0).for_each(write);
    } else {
        (0..grown).filter(|page| page % 3 == 0).for_each(write);
    }
    calls::sleep_us(pause);
    (0..grown + OLD).try_for_each(check)?;
    calls::unmap(front, (grown + OLD) * PAGE).map_err(of("munmap, grown"))
}

/// A reservation of which little is used.
fn terabyte(worker: &mut Worker) -> Done {
    const BYTES: usize = 1 << 40;
    const USED: usize = 12;
    let (word, pause) = (worker.random.word(), worker.random.below(3000) as u64);
    let base = calls::map(0, BYTES, READ_WRITE).map_err(of("mmap, huge"))?;
    // One in each part, and the next is free.
    let stride = BYTES / PAGE / USED;
    let place = |number: usize| base + (number * stride + mix(word ^ number as u64) as usize % (stride - 1)) * PAGE;
    for number in 0..USED {
        content::write(place(number), key_of(word, number));
    }
    calls::sleep_us(pause);
    for number in 0..USED {
        check(place(number), key_of(word, number), "huge")?;
        check(place(number) + PAGE, Key::ZERO, "huge, untouched")?;
    }
    calls::unmap(base, BYTES).map_err(of("munmap, huge"))
}

/// Structures and numbers of linux/userfaultfd.h that libc lacks.
mod uffd {
    use core::ffi::c_ulong;

    pub(super) const USER_MODE_ONLY: i32 = 1;
    pub(super) const API: c_ulong = 0xc018_aa3f;
    pub(super) const REGISTER: c_ulong = 0xc020_aa00;
    pub(super) const UNREGISTER: c_ulong = 0x8010_aa01;
    pub(super) const COPY: c_ulong = 0xc028_aa03;
    pub(super) const ZEROPAGE: c_ulong = 0xc020_aa04;
    pub(super) const API_VERSION: u64 = 0xaa;
    pub(super) const MISSING: u64 = 1;
    pub(super) const WRITES: u64 = 2;
    pub(super) const FAULT: u8 = 0x12;
    /// Bytes of a message; the first says which, a fault's address is its third word.
    pub(super) const MESSAGE_WORDS: usize = 4;
}

const WATCHED: usize = 16;

/// What the helper needs. On the stack of who waits for it.
struct Watched {
    file: c_int,
    base: usize,
    word: u64,
    /// A page to copy from, and what is in it.
    source: usize,
}

impl Watched {
    fn is_zero(&self, page: usize) -> bool {
        mix(self.word ^ page as u64).is_multiple_of(3)
    }
}

fn control(file: c_int, request: c_ulong, argument: *mut u64) -> Result<(), Errno> {
    // SAFETY: the caller's structure is the one that the request is for.
    calls::done(unsafe { libc::ioctl(file, request as _, argument) })
}

/// A fresh mapping whose faults a thread of the program's own resolves.
fn own_userfaultfd(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let word = worker.random.word();
    let Worker { areas, random, .. } = worker;
    let area = &mut areas[number];
    let Some(source) = area.draw_open(random) else { return Ok(()) };
    let Some(file) = open_own()? else { return Ok(()) };
    let bytes = WATCHED * PAGE;
    let base = calls::map(0, bytes, READ_WRITE).map_err(of("mmap, watched"))?;
    register(file, base, bytes, uffd::MISSING)?;
    if area.pages[source].may_be_zero {
        area.write(source, Key::new(word));
    }
    let watched = Watched { file, base, word, source: area.at(source) };
    use_watched(&watched, area.pages[source].key)?;
    calls::unmap(base, bytes).map_err(of("munmap, watched"))?;
    calls::close(file);
    Ok(())
}

/// `None`: not built in, or pleat's user mode; a sandbox.
fn open_own() -> Result<Option<c_int>, Trouble> {
    // SAFETY: takes a number.
    let opened = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | uffd::USER_MODE_ONLY) };
    let file = match calls::result(opened as isize) {
        Ok(file) => file as c_int,
        Err(libc::ENOSYS | libc::EPERM) => return Ok(None),
        Err(errno) => return Err(Trouble::Refused("userfaultfd", errno)),
    };
    control(file, uffd::API, [uffd::API_VERSION, 0, 0].as_mut_ptr()).map_err(of("ioctl, api"))?;
    Ok(Some(file))
}

fn register(file: c_int, base: usize, bytes: usize, mode: u64) -> Done {
    let mut range = [base as u64, bytes as u64, mode, 0];
    control(file, uffd::REGISTER, range.as_mut_ptr()).map_err(of("ioctl, register"))
}

/// An area that has been the program's for long, with pages that are out, is watched for writes to pages that it never protects.
fn take_back(worker: &mut Worker) -> Done {
    let number = worker.draw_area()?;
    let Worker { areas, random, .. } = worker;
    let area = &mut areas[number];
    let Some(file) = open_own()? else { return Ok(()) };
    // What nobody may touch and is out cannot be given back, which pleat documents.
    area.unify().map_err(of("unify"))?;
    register(file, area.base, area.bytes(), uffd::WRITES)?;
    for _ in 0..64 {
        area.check(random.below(area.count)).map_err(|bad| Trouble::Bad("taken back", bad))?;
        area.write(random.below(area.count), Key::new(random.word()));
    }
    let checked = if random.one_in(3) { area.check_all() } else { Ok(()) };
    // Nobody watches it any more. To close it is not enough: a child that another thread is about to have executed has it, too.
    control(file, uffd::UNREGISTER, [area.base as u64, area.bytes() as u64].as_mut_ptr())
        .map_err(of("ioctl, unregister"))?;
    calls::close(file);
    checked.map_err(|bad| Trouble::Bad("taken back, all", bad))
}

/// Touches each page once, beside the helper.
fn use_watched(watched: &Watched, key: Key) -> Done {
    let mut helper: libc::pthread_t = 0;
    let argument = core::ptr::from_ref(watched).cast_mut().cast();
    // SAFETY: the helper is joined before its argument goes.
    let made = unsafe { libc::pthread_create(&raw mut helper, core::ptr::null(), resolve, argument) };
    if made != 0 {
        return Err(Trouble::Refused("pthread_create", made));
    }
    for number in 0..WATCHED {
        // Seven and the count have no divisor in common: each page once.
        let page = number * 7 % WATCHED;
        let key = if watched.is_zero(page) { Key::ZERO } else { key };
        check(watched.base + page * PAGE, key, "watched")?;
    }
    // SAFETY: made above, joined once.
    unsafe { libc::pthread_join(helper, core::ptr::null_mut()) };
    Ok(())
}

/// The helper: brings each page once.
extern "C" fn resolve(argument: *mut c_void) -> *mut c_void {
    // SAFETY: see `use_watched`.
    let watched = unsafe { &*argument.cast::<Watched>() };
    let mut brought = 0;
    while brought < WATCHED {
        let mut message = [0_u64; uffd::MESSAGE_WORDS];
        let read = calls::read(watched.file, message.as_mut_ptr() as usize, size_of_val(&message));
        if read == Err(libc::EINTR) {
            continue;
        }
        if read != Ok(size_of_val(&message)) || message[0] as u8 != uffd::FAULT {
            report().fail(format_args!("a message of a userfaultfd: {read:?}, {message:x?}"));
        }
        let at = message[2] & !(PAGE as u64 - 1);
        match bring(watched, at) {
            Ok(()) => brought += 1,
            // A signal has woken who waited, and it has asked again; the layout changes.
            Err(libc::EEXIST | libc::EAGAIN) => {}
            Err(errno) => report().fail(format_args!("a page by a userfaultfd: errno {errno}")),
        }
    }
    core::ptr::null_mut()
}

fn bring(watched: &Watched, at: u64) -> Result<(), Errno> {
    if watched.is_zero((at as usize - watched.base) / PAGE) {
        control(watched.file, uffd::ZEROPAGE, [at, PAGE as u64, 0, 0].as_mut_ptr())
    } else {
        control(watched.file, uffd::COPY, [at, watched.source as u64, PAGE as u64, 0, 0].as_mut_ptr())
    }
}
