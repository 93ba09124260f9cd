//! Detours: what libc calls inside itself to grow ends in [`crate::calls`], too, and to execute in [`crate::exec`]. So does ioctl,
//! which others that are preloaded take as well. `syscall` and `clone` end in [`crate::raw_calls`].
//!
//! glibc's malloc calls mmap, brk, mprotect and mremap by addresses that its linker has filled in, so nothing that is
//! preloaded comes in between. What those functions do is a system call; ours make it, and look after the memory.

use core::ffi::{CStr, c_char, c_long, c_void};

use sys::{copies, remap};

use crate::host::weak_address;
use crate::{calls, exec, filters, raw_calls};

type FindSymbol = unsafe extern "C" fn(library: *const c_void, name: *const c_char) -> *const c_void;

/// `RTLD_NEXT`: in the libraries behind the one that asks.
const BEHIND_US: usize = usize::MAX;

/// To be called while the program has one thread, which does nothing else. Where it cannot be done all is as without it:
/// growth is seen a moment later. Says whether all of it will be told, but for mappings that mremap makes longer: of those that
/// are managed the kernel tells, and that function is a call among others in some libcs.
pub(crate) fn place(is_in_user_mode: bool) -> bool {
    if sys::process::thread_count() != Some(1) {
        return false;
    }
    // What is trapped needs none.
    if !is_in_user_mode {
        place_one(c"prctl", sys::confine::PRCTL, filters::prctl as *const () as usize);
        place_one(c"clone", copies::CLONE, copies::entry(raw_calls::clone, raw_calls::refused, raw_calls::end));
        place_raw();
    }
    place_one(c"execve", sys::process::EXECVE, exec::execve as *const () as usize);
    place_one(c"ioctl", sys::process::IOCTL, calls::ioctl as *const () as usize);
    place_one(c"mremap", remap::MREMAP, calls::mremap as *const () as usize);
    place_one(c"munmap", remap::MUNMAP, calls::munmap as *const () as usize);
    place_one(c"madvise", remap::MADVISE, calls::madvise as *const () as usize);
    let detours: [(&CStr, c_long, usize); 3] = [
        (c"mmap", remap::MMAP, calls::mmap as *const () as usize),
        (c"mprotect", remap::MPROTECT, calls::mprotect as *const () as usize),
        (c"brk", remap::BRK, calls::brk as *const () as usize),
    ];
    detours.map(|(name, number, ours)| place_one(name, number, ours)) == [true; 3]
}

/// The only thread runs none of these functions; ours do the same.
fn place_one(name: &CStr, number: c_long, ours: usize) -> bool {
    let libcs = behind_us(name);
    // SAFETY: a function of a library's, see above.
    libcs != 0 && unsafe { sys::detour::place(libcs, number as u8, ours) }.is_ok()
}

fn place_raw() {
    let libcs = behind_us(c"syscall");
    if libcs != 0 {
        // SAFETY: the only thread does not run it; ours does the same, and is placed in this one library.
        let _ = unsafe { sys::raw_calls::place(libcs, raw_calls::call) };
    }
}

/// The address of a symbol in the libraries behind ours; 0 if there is none.
pub(crate) fn behind_us(name: &CStr) -> usize {
    let find = weak_address!("dlsym");
    // SAFETY: null, or libc's function of that name, which has this signature.
    let Some(find) = (unsafe { core::mem::transmute::<usize, Option<FindSymbol>>(find) }) else { return 0 };
    // SAFETY: a name that ends with a zero.
    unsafe { find(core::ptr::without_provenance(BEHIND_US), name.as_ptr()) }.expose_provenance()
}
