//! Mutexes that pass their priority on (`PTHREAD_PRIO_INHERIT`): the kernel writes their words itself, and does not wait for us there
//! ([`sys::kept`]). So who makes one tells of it, in the place of libc's functions, which do the work.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use sys::{Errno, kept};

use crate::detours;

type Make = unsafe extern "C" fn(mutex: *mut c_void, attributes: *const c_void) -> c_int;
type Destroy = unsafe extern "C" fn(mutex: *mut c_void) -> c_int;
type TellProtocol = unsafe extern "C" fn(attributes: *const c_void, protocol: *mut c_int) -> c_int;

const PTHREAD_PRIO_INHERIT: c_int = 1;

/// A function of libc's that is looked for once: a library with a constructor before ours may be who asks first.
struct Function {
    name: &'static CStr,
    address: AtomicUsize,
}

impl Function {
    const fn named(name: &'static CStr) -> Self {
        Self { name, address: AtomicUsize::new(0) }
    }

    /// 0 if there is none.
    fn address(&self) -> usize {
        // Relaxed: who comes at the same time finds the same.
        let known = self.address.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        let found = detours::behind_us(self.name);
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

static MAKE: Function = Function::named(c"pthread_mutex_init");
static DESTROY: Function = Function::named(c"pthread_mutex_destroy");
static TELL_PROTOCOL: Function = Function::named(c"pthread_mutexattr_getprotocol");

/// Looks for libc's functions, which takes a lock: before the program begins.
pub(crate) fn prepare() {
    for function in [&MAKE, &DESTROY, &TELL_PROTOCOL] {
        function.address();
    }
}

/// `pthread_mutex_init(3)`.
///
/// # Safety
/// As for `pthread_mutex_init`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_init(mutex: *mut c_void, attributes: *const c_void) -> c_int {
    // SAFETY: null, or libc's function of that name, which has this signature.
    let make = unsafe { core::mem::transmute::<usize, Option<Make>>(MAKE.address()) };
    let Some(make) = make else { return Errno::NOSYS.raw_os_error() };
    // SAFETY: the caller's promise.
    let inherits = !attributes.is_null() && unsafe { inherits(attributes) };
    if inherits {
        // Before it is used. What is there comes in by being written.
        kept::word_is_made(mutex.expose_provenance());
    }
    // SAFETY: the caller's promise.
    let result = unsafe { make(mutex, attributes) };
    if inherits && result != 0 {
        kept::word_is_gone(mutex.expose_provenance());
    }
    result
}

/// `pthread_mutex_destroy(3)`.
///
/// # Safety
/// As for `pthread_mutex_destroy`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_destroy(mutex: *mut c_void) -> c_int {
    // SAFETY: null, or libc's function of that name, which has this signature.
    let destroy = unsafe { core::mem::transmute::<usize, Option<Destroy>>(DESTROY.address()) };
    let Some(destroy) = destroy else { return Errno::NOSYS.raw_os_error() };
    // SAFETY: the caller's promise.
    let result = unsafe { destroy(mutex) };
    if result == 0 {
        kept::word_is_gone(mutex.expose_provenance());
    }
    result
}

/// # Safety
/// `attributes` points to those of a mutex.
unsafe fn inherits(attributes: *const c_void) -> bool {
    // SAFETY: null, or libc's function of that name, which has this signature.
    let tell = unsafe { core::mem::transmute::<usize, Option<TellProtocol>>(TELL_PROTOCOL.address()) };
    let mut protocol = 0;
    // SAFETY: the caller's promise; writes the int, which lives.
    tell.is_some_and(|tell| unsafe { tell(attributes, &raw mut protocol) } == 0) && protocol == PTHREAD_PRIO_INHERIT
}
