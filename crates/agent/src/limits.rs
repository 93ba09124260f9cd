//! libc's calls about limits, in the place of libc's: the program sees and sets its own limit on addresses, without what
//! the agent adds to it ([`sys::addresses`]). All other limits go through as they are.

use core::ffi::{c_int, c_long};

use sys::addresses::{self, Rlimit};

use crate::calls::{syscall, to_libc};

const RLIMIT_AS: c_int = 9;
const INFINITY: u64 = u64::MAX;

/// `struct rlimit`, which has 64 bits on the processors that we know, whatever its name.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Limits {
    current: u64,
    maximum: u64,
}

impl From<Rlimit> for Limits {
    fn from(limits: Rlimit) -> Self {
        Self { current: limits.current.unwrap_or(INFINITY), maximum: limits.maximum.unwrap_or(INFINITY) }
    }
}

impl From<Limits> for Rlimit {
    fn from(limits: Limits) -> Self {
        let [current, maximum] = [limits.current, limits.maximum].map(|limit| (limit != INFINITY).then_some(limit));
        Self { current, maximum }
    }
}

/// prlimit(2).
///
/// # Safety
/// The pointers are null, or of limits to be read and to be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn prlimit(pid: c_int, resource: c_int, new: *const Limits, old: *mut Limits) -> c_int {
    if resource != RLIMIT_AS || (pid != 0 && pid as u32 != sys::thread::process_id()) {
        // By libc, so that it is trapped in user mode.
        // SAFETY: the caller's promise.
        return unsafe { syscall(sys::process::PRLIMIT, c_long::from(pid), c_long::from(resource), new, old) as c_int };
    }
    let before = addresses::limit();
    // SAFETY: the caller's promise.
    let result = match unsafe { new.as_ref() } {
        Some(new) => addresses::set_limit((*new).into()),
        None => Ok(()),
    };
    // SAFETY: the caller's promise.
    if let (Ok(()), Some(old)) = (result, unsafe { old.as_mut() }) {
        *old = before.into();
    }
    to_libc(result.map(|()| 0), -1)
}

/// The same by its other name.
///
/// # Safety
/// As for [`prlimit`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn prlimit64(pid: c_int, resource: c_int, new: *const Limits, old: *mut Limits) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(pid, resource, new, old) }
}

/// getrlimit(2).
///
/// # Safety
/// As for [`prlimit`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getrlimit(resource: c_int, old: *mut Limits) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(0, resource, core::ptr::null(), old) }
}

/// The same by its other name.
///
/// # Safety
/// As for [`prlimit`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getrlimit64(resource: c_int, old: *mut Limits) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(0, resource, core::ptr::null(), old) }
}

/// setrlimit(2).
///
/// # Safety
/// As for [`prlimit`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn setrlimit(resource: c_int, new: *const Limits) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(0, resource, new, core::ptr::null_mut()) }
}

/// The same by its other name.
///
/// # Safety
/// As for [`prlimit`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn setrlimit64(resource: c_int, new: *const Limits) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(0, resource, new, core::ptr::null_mut()) }
}
