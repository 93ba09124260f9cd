//! exec: what the program starts joins the run, whatever environment it is given.
//!
//! A program finds the run by its environment. Servers make one of their own for what they start, `env -i` none at all, and a
//! wrapper that preloads something takes our place. So where libc executes a program, what is missing is put in and marked. The
//! new program's agent takes it out again before anybody looks: the program finds the environment that it was given.

use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;

use alloc::vec::Vec;

use pager::ledger::LEDGER_VARIABLE;
use sys::{Errno, process, user_mode};

use crate::calls::{syscall, to_libc};
use crate::host::{agent, strings, variable, weak_address};

const PRELOAD: &[u8] = b"LD_PRELOAD";
/// What a sanitizer is told (`cli::agent`): that it does not come first is no reason to end.
const SANITIZER: &[u8] = b"ASAN_OPTIONS";
const SANITIZER_ENTRY: &CStr = c"ASAN_OPTIONS=verify_asan_link_order=0";
/// The name of our own file.
const FILE_NAME: &[u8] = b"/libpleat_agent.so";
/// Says which variables have been put in: a letter each.
const ADDED: &[u8] = b"PLEAT_ADDED";
const LEDGER_ADDED: u8 = b'l';
const PRELOAD_ADDED: u8 = b'p';
/// The value was there, and we are in front of it.
const PRELOAD_JOINED: u8 = b'j';
const SANITIZER_ADDED: u8 = b's';

/// Largest environment that is changed, and largest value of `LD_PRELOAD`: the arrays lie on the stack, which behind
/// `posix_spawn` has 32 KiB. A larger environment is given on as it is.
const ENTRIES_MAX: usize = 300;
const PRELOAD_MAX: usize = 1024;

/// What leads to the run. Copies: programs write over the strings that the kernel has given them.
pub(crate) struct Bearings {
    /// The whole entry.
    ledger: Vec<u8>,
    /// The path of our file, with a zero.
    agent: Vec<u8>,
}

impl Bearings {
    /// As this process has found it; `None` if it was preloaded in a way that we do not know.
    pub(crate) fn of(environment: *const *const c_char) -> Option<Self> {
        let value = variable(environment, LEDGER_VARIABLE.as_bytes())?;
        let is_ours = |path: &&[u8]| path.ends_with(FILE_NAME);
        let mut agent = paths(variable(environment, PRELOAD)?.to_bytes()).find(is_ours)?.to_vec();
        agent.push(0);
        let ledger = [LEDGER_VARIABLE.as_bytes(), b"=", value.to_bytes_with_nul()].concat();
        Some(Self { ledger, agent })
    }

    /// Whether an environment preloads us.
    fn are_in(&self, environment: *const *const c_char) -> bool {
        variable(environment, PRELOAD).is_some_and(|value| paths(value.to_bytes()).any(|path| self.is_ours(path)))
    }

    fn is_ours(&self, path: &[u8]) -> bool {
        path == self.agent_path().to_bytes()
    }

    fn agent_path(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.agent).unwrap_or(c"")
    }
}

/// The paths in a value of `LD_PRELOAD`.
fn paths(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| matches!(byte, b' ' | b':'))
}

/// What an environment lacks.
struct Missing<'a> {
    ledger: bool,
    sanitizer: bool,
    preload: bool,
    /// The value of `LD_PRELOAD` in which we are missing, if there is one.
    others: Option<&'a CStr>,
}

impl Missing<'_> {
    /// `None` if nothing is, or if it keeps out of the run (`host::stay_out`).
    fn in_environment(environment: *const *const c_char, bearings: &Bearings) -> Option<Self> {
        let ledger = variable(environment, LEDGER_VARIABLE.as_bytes());
        let others = variable(environment, PRELOAD);
        let missing = Self {
            ledger: ledger.is_none(),
            sanitizer: variable(environment, SANITIZER).is_none(),
            preload: !bearings.are_in(environment),
            others,
        };
        let is_kept_out = ledger.is_some_and(CStr::is_empty);
        (!is_kept_out && (missing.ledger || missing.preload)).then_some(missing)
    }
}

/// Where an environment is made, on the stack of who executes: a child of vfork must not take memory that its parent keeps.
struct Room {
    entries: [MaybeUninit<*const c_char>; ENTRIES_MAX + 5],
    count: usize,
    preload: [u8; PRELOAD_MAX],
    added: [u8; ADDED.len() + 8],
}

impl Room {
    /// The environment with what is missing; `None` if it is too large.
    fn fill(
        &mut self,
        given: *const *const c_char,
        missing: &Missing<'_>,
        bearings: &Bearings,
    ) -> Option<*const *const c_char> {
        let mut added = Text::new(&mut self.added);
        added.put(ADDED)?;
        added.put(b"=")?;
        if missing.preload {
            added.put(&[if missing.others.is_some() { PRELOAD_JOINED } else { PRELOAD_ADDED }])?;
            let mut preload = Text::new(&mut self.preload);
            preload.put(PRELOAD)?;
            preload.put(b"=")?;
            preload.put(bearings.agent_path().to_bytes())?;
            if let Some(others) = missing.others {
                preload.put(b":")?;
                preload.put(others.to_bytes())?;
            }
            preload.put(b"\0")?;
        }
        self.count = 0;
        for entry in strings(given) {
            let is_joined = missing.preload && is_named(entry, PRELOAD);
            let entry = if is_joined { self.preload.as_ptr().cast() } else { entry.as_ptr() };
            self.entries[..ENTRIES_MAX].get_mut(self.count)?.write(entry);
            self.count += 1;
        }
        let mut push = |entry: *const c_char| {
            self.entries[self.count].write(entry);
            self.count += 1;
        };
        if missing.preload && missing.others.is_none() {
            push(self.preload.as_ptr().cast());
        }
        if missing.ledger {
            added.put(&[LEDGER_ADDED])?;
            push(bearings.ledger.as_ptr().cast());
        }
        if missing.sanitizer {
            added.put(&[SANITIZER_ADDED])?;
            push(SANITIZER_ENTRY.as_ptr());
        }
        added.put(b"\0")?;
        push(self.added.as_ptr().cast());
        push(core::ptr::null());
        Some(self.entries.as_ptr().cast())
    }
}

impl Room {
    /// The environment without our library; `None` if it is too large.
    fn fill_without(&mut self, given: *const *const c_char, bearings: &Bearings) -> Option<*const *const c_char> {
        self.count = 0;
        for entry in strings(given) {
            let mut kept = entry.as_ptr();
            if is_named(entry, PRELOAD) {
                let mut preload = Text::new(&mut self.preload);
                preload.put(PRELOAD)?;
                let mut others = paths(&entry.to_bytes()[PRELOAD.len() + 1..]).filter(|path| !bearings.is_ours(path));
                for (path, before) in others.by_ref().zip(core::iter::once(b"=").chain(core::iter::repeat(b":"))) {
                    preload.put(before)?;
                    preload.put(path)?;
                }
                preload.put(b"\0")?;
                if self.preload[PRELOAD.len()] == 0 {
                    continue;
                }
                kept = self.preload.as_ptr().cast();
            }
            self.entries[..ENTRIES_MAX].get_mut(self.count)?.write(kept);
            self.count += 1;
        }
        self.entries[self.count].write(core::ptr::null());
        Some(self.entries.as_ptr().cast())
    }
}

/// Bytes that are filled from the front.
struct Text<'a>(&'a mut [u8]);

impl<'a> Text<'a> {
    fn new(room: &'a mut [u8]) -> Self {
        Self(room)
    }

    /// `None` if there is no room.
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let (place, rest) = core::mem::take(&mut self.0).split_at_mut_checked(bytes.len())?;
        place.copy_from_slice(bytes);
        self.0 = rest;
        Some(())
    }
}

/// Which program is to be executed, as the kernel takes it.
#[derive(Clone, Copy)]
enum Program {
    /// That of this path.
    Named(*const c_char),
    /// That of this path below a directory or, with a flag, of a file that is open.
    Below(c_int, *const c_char, c_int),
}

impl Program {
    /// As libc does it.
    ///
    /// # Safety
    /// As for execve.
    unsafe fn call(self, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
        let (strings, settings) = (arguments as usize, environment as usize);
        let (number, words) = match self {
            Self::Named(path) => (process::EXECVE, [path as usize, strings, settings, 0, 0, 0]),
            Self::Below(directory, path, flags) => {
                (process::EXECVEAT, [directory as usize, path as usize, strings, settings, flags as usize, 0])
            }
        };
        if user_mode::is_armed() {
            return to_libc(Err(user_mode::execute(number, words)), -1);
        }
        let [first, second, third, fourth, fifth, _] = words;
        // SAFETY: the caller's promise. By libc's, which sets errno.
        unsafe { syscall(number, first, second, third, fourth, fifth) as c_int }
    }
}

/// execve(2). libc's other functions of that kind, and what it starts by itself, go on here ([`crate::detours`]).
///
/// # Safety
/// As for execve: strings that end with a zero, and arrays of them that end with a null pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execute_after_forks(Program::Named(path), arguments, environment) }
}

/// execveat(2).
///
/// # Safety
/// As for [`execve`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execute_after_forks(Program::Below(directory, path, flags), arguments, environment) }
}

const AT_EMPTY_PATH: c_int = 0x1000;

/// fexecve(3). libc's makes the system call inside itself.
///
/// # Safety
/// As for [`execve`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fexecve(
    file: c_int,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    if file < 0 || arguments.is_null() || environment.is_null() {
        return to_libc(Err(Errno::INVAL), -1);
    }
    // SAFETY: the caller's promise, and a string that ends with a zero.
    unsafe { execveat(file, c"".as_ptr(), arguments, environment, AT_EMPTY_PATH) }
}

/// Once no other thread forks: a child that is being forked depends on our agent until it has its own.
unsafe fn execute_after_forks(
    program: Program,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    let me = sys::thread::thread_id();
    let gate = crate::fork::own_gate().filter(|gate| {
        let mask = sys::thread::block_signals();
        let is_closed = gate.close_to_execute(me);
        sys::thread::unblock_signals(mask);
        is_closed
    });
    if gate.is_some() {
        user_mode::set_executing(me);
    }
    // SAFETY: the caller's promise.
    let result = unsafe { execute(program, arguments, environment) };
    if let Some(gate) = gate {
        user_mode::set_executing(0);
        gate.open_after_executing(me);
    }
    result
}

/// In the environment that leads to the run.
unsafe fn execute(program: Program, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
    // The kernel takes none for an empty one.
    let none = [core::ptr::null()];
    let given = if environment.is_null() { none.as_ptr() } else { environment };
    if let Some(bearings) = agent().and_then(|agent| agent.bearings.as_ref()) {
        if !process::is_readable(bearings.agent_path()) {
            if bearings.are_in(given) {
                // SAFETY: the caller's promise.
                return unsafe { execute_alone(program, arguments, given, bearings) };
            }
        } else if let Some(missing) = Missing::in_environment(given, bearings) {
            // SAFETY: the caller's promise.
            return unsafe { execute_joined(program, arguments, given, &missing, bearings) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { program.call(arguments, environment) }
}

/// The same without our library, which is out of reach behind a chroot: the loader would complain about it.
#[inline(never)]
unsafe fn execute_alone(
    program: Program,
    arguments: *const *const c_char,
    given: *const *const c_char,
    bearings: &Bearings,
) -> c_int {
    let mut room = Room { entries: [MaybeUninit::uninit(); _], count: 0, preload: [0; _], added: [0; _] };
    let environment = room.fill_without(given, bearings).unwrap_or(given);
    // SAFETY: the caller's promise, and what `Room::fill_without` makes is such an array.
    unsafe { program.call(arguments, environment) }
}

/// The same with what is missing. Not inlined: only who needs it has the room on his stack, which may be small.
#[inline(never)]
unsafe fn execute_joined(
    program: Program,
    arguments: *const *const c_char,
    given: *const *const c_char,
    missing: &Missing<'_>,
    bearings: &Bearings,
) -> c_int {
    let mut room = Room { entries: [MaybeUninit::uninit(); _], count: 0, preload: [0; _], added: [0; _] };
    let environment = room.fill(given, missing, bearings).unwrap_or(given);
    // SAFETY: the caller's promise, and what `Room::fill` makes is such an array.
    unsafe { program.call(arguments, environment) }
}

/// In a new program, before its own code: takes out what [`execve`] has put in.
pub(crate) fn hide(environment: *const *const c_char) {
    let Some(added) = variable(environment, ADDED) else { return };
    let is_added = |letter: u8| added.to_bytes().contains(&letter);
    let is_hidden = |entry: &CStr| {
        is_named(entry, ADDED)
            || is_added(LEDGER_ADDED) && is_named(entry, LEDGER_VARIABLE.as_bytes())
            || is_added(SANITIZER_ADDED) && is_named(entry, SANITIZER)
            || is_added(PRELOAD_ADDED) && is_named(entry, PRELOAD)
    };
    let array = libc_environment(environment).cast_mut();
    let mut kept = 0;
    for (at, entry) in strings(array).enumerate() {
        if is_hidden(entry) {
            continue;
        }
        // SAFETY: the array is libc's, which nobody else uses yet, and has an entry there.
        let string = unsafe { *array.wrapping_add(at) };
        if is_added(PRELOAD_JOINED) && is_named(entry, PRELOAD) {
            leave_front(string.cast_mut());
        }
        // SAFETY: as above. Volatile, for we read it as what does not change; what has been read is not read again.
        unsafe { array.wrapping_add(kept).write_volatile(string) };
        kept += 1;
    }
    // SAFETY: as above: the array was as long, with what ends it.
    unsafe { array.wrapping_add(kept).write_volatile(core::ptr::null()) };
}

/// libc's array, or the kernel's where libc has none yet. Where our constructor is not the first, another one may have made it longer.
fn libc_environment(kernels: *const *const c_char) -> *const *const c_char {
    let environ = weak_address!("environ");
    // SAFETY: null, or libc's variable, which is a pointer.
    let environ = unsafe { core::ptr::with_exposed_provenance::<*const *const c_char>(environ).as_ref() };
    environ.copied().filter(|array| !array.is_null()).unwrap_or(kernels)
}

/// Takes the first path out of an entry `LD_PRELOAD=first:others`.
fn leave_front(entry: *mut c_char) {
    let value = PRELOAD.len() + 1;
    let mut others = value;
    loop {
        // SAFETY: inside the entry, up to the zero that ends it.
        match unsafe { entry.wrapping_add(others).read_volatile() } as u8 {
            b':' => break,
            0 => return,
            _ => others += 1,
        }
    }
    for to in value.. {
        others += 1;
        // SAFETY: as above.
        let byte = unsafe { entry.wrapping_add(others).read_volatile() };
        // SAFETY: before that; the entry is the process's own, and nobody else uses it yet. Volatile as above.
        unsafe { entry.wrapping_add(to).write_volatile(byte) };
        if byte == 0 {
            return;
        }
    }
}

fn is_named(entry: &CStr, name: &[u8]) -> bool {
    entry.to_bytes().strip_prefix(name).is_some_and(|rest| rest.starts_with(b"="))
}
