//! The host: what touches the program's libc and runs on the program's own threads, but for the calls of [`crate::calls`].
//!
//! A constructor, and the handlers that libc calls round fork. They keep to our own memory and make few system calls.

use core::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use alloc::boxed::Box;
use alloc::vec::Vec;

use pager::ledger::{LEDGER_VARIABLE, Ledger, Notice};
use sys::Errno;

use crate::entry::{self, Address, Identity};
use crate::exec::{self, Bearings};
use crate::keeper::NO_MEMORY;
use crate::watcher::{self, Agent};
use crate::{failure, heap};

/// glibc's registration of fork handlers; `pthread_atfork` is a wrapper of it that is linked statically.
type RegisterForkHandlers = unsafe extern "C" fn(
    prepare: Option<extern "C" fn()>,
    parent: Option<extern "C" fn()>,
    child: Option<extern "C" fn()>,
    library: *mut c_void,
) -> c_int;

/// Run by the loader before the program's own code.
// SAFETY: the section holds pointers to functions with this signature, which is what the loader calls.
#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

/// A part of the name of the library that valgrind preloads into what it runs: it knows neither our threads nor
/// userfaultfd.
const VALGRIND: &[u8] = b"vgpreload_core";

/// The argument of a process of Chromium that does nothing but fork: it ends when it finds that it is not the only thread,
/// and forks by a raw system call.
const ZYGOTE: &CStr = c"--type=zygote";

/// Why a process has no entry in the ledger that `pleat run` could make use of.
pub(crate) const STRANGE: &str = "it is in a namespace of process ids, and neither its /proc nor its network leads to `pleat run`, or that has ended";
/// Why it has no ledger, which is there for the run's user alone.
const FORBIDDEN: &str = "its user may not join the run, or not from its namespaces";

/// Why it has none in user mode, where each trap of a system call is a signal.
const TRACED: &str = "it is traced, and in user mode each of its system calls would stop it";

/// Nor there: what the sanitizer starts to stop all threads is not trapped.
const SANITIZED: &str = "it is built with a sanitizer that looks for leaks, which user mode cannot serve";

/// The address of a symbol, or 0 where nothing that is loaded has it. A plain reference would keep the agent, and with it
/// the program, from being loaded there.
macro_rules! weak_address {
    ($symbol:literal) => {{
        let address: usize;
        // SAFETY: reads our own offset table, which the loader has filled before it calls the constructor.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $symbol),
                concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                out(reg) address,
                options(readonly, nostack, preserves_flags)
            );
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $symbol),
                concat!("adrp {0}, :got:", $symbol),
                concat!("ldr {0}, [{0}, :got_lo12:", $symbol, "]"),
                out(reg) address,
                options(readonly, nostack, preserves_flags)
            );
        }
        address
    }};
}

pub(crate) use weak_address;

/// Whether something that is loaded has a symbol.
macro_rules! weak {
    ($symbol:literal) => {
        weak_address!($symbol) != 0
    };
}

/// Whether libc knows of one thread only (glibc 2.32).
pub(crate) fn has_one_thread() -> bool {
    let known = core::ptr::with_exposed_provenance::<u8>(weak_address!("__libc_single_threaded"));
    // SAFETY: null, or libc's variable, a byte that it changes while there is one thread.
    !known.is_null() && unsafe { known.read_volatile() } != 0
}

/// The agent of this process; null before its constructor has run, and where there is no ledger.
static AGENT: AtomicPtr<Agent> = AtomicPtr::new(core::ptr::null_mut());

extern "C" fn start(_count: c_int, arguments: *const *const c_char, environment: *const *const c_char) {
    // Other C libraries pass no arguments: nothing may be looked at before this.
    let Some(register) = register_fork_handlers() else { return };
    if let Some(reason) = obstacle(arguments, environment) {
        keep_out(environment, reason);
        return exec::hide(environment);
    }
    if heap::has_room(pager::JOURNAL_BYTES).is_err() {
        // It runs as it would without us. What it starts finds in the environment what it has found, and may have more room.
        return keep_out(environment, NO_MEMORY);
    }
    let bearings = Bearings::of(environment);
    join(environment, register, bearings);
    exec::hide(environment);
}

/// Leaves nothing mapped: sanitizers begin behind us, and end a program in which something lies where they want to be.
fn keep_out(environment: *const *const c_char, reason: &str) {
    let Some(address) = run_of(environment) else { return };
    address.visit(|ledger| {
        sys::addresses::take_back(&ledger.address_bytes);
        stay_idle(ledger, reason);
    });
}

/// Where the program begins, the loader's word for it.
fn program_address() -> u64 {
    const AT_ENTRY: c_ulong = 9;
    sys::process::auxiliary_value(AT_ENTRY)
}

/// Joins the run that the environment leads to.
fn join(environment: *const *const c_char, register: RegisterForkHandlers, bearings: Option<Bearings>) {
    let Some(address) = run_of(environment) else { return };
    let ledger = match address.open() {
        Ok(ledger) => ledger,
        Err(Errno::PERM) => return stay_out(environment, None),
        Err(Errno::ACCESS) => return stay_out(environment, Some(FORBIDDEN)),
        Err(Errno::SRCH) => return stay_out(environment, Some(STRANGE)),
        Err(_) => return,
    };
    let identity = Identity::of_program(ledger);
    if identity.is_some_and(|identity| entry::has_agent(ledger, identity)) {
        return;
    }
    sys::addresses::take_back(&ledger.address_bytes);
    let looks_for_leaks = weak!("__lsan_do_leak_check");
    if entry::is_in_user_mode(ledger) {
        if sys::process::is_traced() {
            return stay_idle(ledger, TRACED);
        }
        if looks_for_leaks {
            return stay_idle(ledger, SANITIZED);
        }
    }
    if heap::has_room(pager::JOURNAL_BYTES).is_err() {
        // The limit was what the agent of an executed program had made of it.
        return stay_idle(ledger, NO_MEMORY);
    }
    let Some(identity) = identity else { return stay_idle(ledger, STRANGE) };
    let Some(membership) = entry::claim(ledger, identity) else { return entry::say_full(ledger) };
    failure::note_in(&membership);
    let fault = variable(environment, pager::ledger::FAULT_VARIABLE.as_bytes()).map(CStr::to_bytes).map(Vec::from);
    // Where /proc cannot be read nothing can be found later either: the agent stays idle.
    let Ok(library_memory) = sys::process::library_memory(program_address()) else { return };
    let (stack, fault) = (environment as usize, fault.unwrap_or_default());
    let Ok(agent) = Agent::new(membership, library_memory, bearings, stack, looks_for_leaks, fault) else { return };
    let agent: &'static Agent = Box::leak(Box::new(agent));
    AGENT.store(core::ptr::from_ref(agent).cast_mut(), Ordering::Release);
    crate::mutexes::prepare();
    if crate::detours::place(membership.is_in_user_mode()) {
        agent.growth.will_be_told();
    }
    if membership.is_in_user_mode() {
        return start_in_user_mode(agent);
    }
    if watcher::start(agent).is_err() {
        // No thread to be had: the program runs as it would without us, outside the budget.
        return AGENT.store(core::ptr::null_mut(), Ordering::Release);
    }
    // SAFETY: the handlers take nothing and live as long as the library, which is never unloaded.
    let registered = unsafe {
        register(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child), core::ptr::null_mut())
    };
    if registered != 0 {
        failure::fail(format_args!("fork handlers cannot be registered: {registered}"));
    }
    agent.begins_with(sys::process::writable());
}

/// Every system call from here on is trapped, fork among them: libc's handlers are not needed.
fn start_in_user_mode(agent: &'static Agent) {
    if let Err(errno) = sys::user_mode::arm(&HOOKS) {
        let pid = sys::thread::process_id();
        failure::say(format_args!(
            "process {pid} runs outside the budget: its system calls cannot be trapped: {errno:?}"
        ));
        return AGENT.store(core::ptr::null_mut(), Ordering::Release);
    }
    if watcher::start(agent).is_err() {
        return AGENT.store(core::ptr::null_mut(), Ordering::Release);
    }
    agent.begins_with(sys::process::writable());
}

static HOOKS: sys::user_mode::Hooks = sys::user_mode::Hooks {
    before_fork: || before_fork(),
    after_fork_in_parent: |child| {
        if let Some(agent) = agent() {
            agent.after_trapped_fork(child);
        }
    },
    after_fork_in_child: || after_fork_in_child(),
    has_own_network: crate::unshare::has_own_network,
    held_bytes_max: || agent().map_or(u64::MAX, Agent::held_bytes_max),
    say: |text| failure::say(format_args!("{text}")),
    has_refused: say_refused,
    fail: |text| failure::fail(format_args!("{text}, the program is ended")),
};

/// Who asks for these does without them where they are not known, and may be much slower: the user is to know why.
fn say_refused(call: &str) {
    let notice = match call {
        "io_uring_setup" => Notice::IoUring,
        "userfaultfd" => Notice::Userfaultfd,
        _ => return,
    };
    if agent().is_some_and(|agent| agent.membership().ledger.is_first(notice)) {
        failure::say(format_args!(
            "{call} is refused (ENOSYS): user mode cannot follow what the kernel does by it later"
        ));
    }
}

/// Why we must stay idle in this process, if we must.
fn obstacle(arguments: *const *const c_char, environment: *const *const c_char) -> Option<&'static str> {
    let preloaded = variable(environment, b"LD_PRELOAD").map_or(&[][..], CStr::to_bytes);
    if preloaded.windows(VALGRIND.len()).any(|part| part == VALGRIND) {
        return Some("it is run by valgrind");
    }
    if strings(arguments).any(|argument| argument == ZYGOTE) {
        return Some("a zygote of Chromium or Electron ends when it has a second thread (see --no-zygote)");
    }
    let is_sanitized = weak!("__hwasan_init") || weak!("__msan_init") || weak!("__tsan_init");
    is_sanitized.then_some("it is built with a sanitizer that wants all addresses for itself")
}

/// glibc's function; none in another C library.
fn register_fork_handlers() -> Option<RegisterForkHandlers> {
    let address = weak_address!("__register_atfork");
    // SAFETY: null, or glibc's function of that name, which has this signature.
    unsafe { core::mem::transmute::<usize, Option<RegisterForkHandlers>>(address) }
}

/// The process runs as it would without us. One line in a run: there may be thousands like it.
fn stay_idle(ledger: &Ledger, reason: &str) {
    let pid = sys::thread::process_id();
    if ledger.is_first(Notice::Outside) {
        failure::say_let_alone(ledger, format_args!("process {pid} runs outside the budget: {reason}"));
    }
}

/// The run that an environment leads to.
fn run_of(environment: *const *const c_char) -> Option<Address> {
    Address::of(variable(environment, LEDGER_VARIABLE.as_bytes())?)
}

/// Nothing leads to the ledger. Says so once, unless somebody else has: what this process starts finds no run.
fn stay_out(environment: *const *const c_char, reason: Option<&str>) {
    if let Some(reason) = reason {
        let pid = sys::thread::process_id();
        failure::say(format_args!("process {pid} runs outside the budget: {reason}"));
    }
    let name = LEDGER_VARIABLE.as_bytes();
    let is_it = |entry: &CStr| entry.to_bytes().strip_prefix(name).is_some_and(|rest| rest.starts_with(b"="));
    let Some(at) = strings(environment).position(is_it) else { return };
    // SAFETY: the array has an entry there.
    let entry = unsafe { *environment.wrapping_add(at) }.cast_mut();
    let length = variable(environment, name).map_or(0, |value| value.to_bytes().len());
    for at in 0..length {
        // SAFETY: inside the entry, on the stack that the kernel has made; the program's own code does not run yet, and nobody has a
        // reference to it now. Volatile, for we have read it through references that said otherwise.
        unsafe { entry.wrapping_add(name.len() + 1 + at).write_volatile(0) };
    }
}

/// The value of an environment variable, from the loader's own array: libc's may not be set up yet.
pub(crate) fn variable(environment: *const *const c_char, name: &[u8]) -> Option<&'static CStr> {
    strings(environment).find_map(|entry| {
        let value = entry.to_bytes_with_nul().strip_prefix(name)?.strip_prefix(b"=")?;
        CStr::from_bytes_with_nul(value).ok()
    })
}

/// The strings of an array that ends with a null pointer: of the loader's, which live as long as the process, or of a caller's,
/// which must not be kept longer than the call.
pub(crate) fn strings(array: *const *const c_char) -> impl Iterator<Item = &'static CStr> {
    (0..).map_while(move |at| {
        // SAFETY: the array ends with a null pointer, and we have not passed it.
        let string = unsafe { *array.wrapping_add(at) };
        // SAFETY: the entries are zero-terminated strings that live long enough, see above.
        (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) })
    })
}

/// This process has no agent any more. Nothing of its memory may be managed.
pub(crate) fn forget_agent() {
    AGENT.store(core::ptr::null_mut(), Ordering::Release);
}

pub(crate) fn agent() -> Option<&'static Agent> {
    // SAFETY: null, or the leaked agent.
    unsafe { AGENT.load(Ordering::Acquire).as_ref() }
}

extern "C" fn before_fork() {
    if let Some(agent) = agent() {
        agent.before_fork();
    }
}

pub(crate) extern "C" fn after_fork_in_parent() {
    if let Some(agent) = agent() {
        agent.after_fork_in_parent();
    }
}

pub(crate) extern "C" fn after_fork_in_child() {
    crate::afterlife::forget();
    if let Some(agent) = agent() {
        agent.after_fork_in_child();
    }
}
