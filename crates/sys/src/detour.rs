//! Detours: system call functions of the program's libc that begin with a jump to ours.
//!
//! A library calls itself without a look at what has been preloaded. So the function's first bytes are overwritten, by
//! /proc/self/mem: that makes one page of the library's code this process's own, and changes no mapping. What does not
//! look like a system call function as we know them is left alone, and so is all on other processors than x86-64.

use page::PAGE_BYTES;
use rustix::fs::{Mode, OFlags};

use crate::Errno;

/// An indirect jump to the address behind it.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
/// What is overwritten.
const BYTES: usize = JUMP.len() + size_of::<usize>();
/// Marks the place as one that may be jumped to, and stays.
pub(crate) const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// How far from its beginning a function may load its number: ioctl saves its arguments first.
const LOOK: usize = 80;
const BREAKPOINT: u8 = 0xcc;

/// Makes the function at `function`, which makes system call `number`, go on at `ours`.
///
/// # Safety
/// `function` points to code of this process that no thread runs now, and `ours` to a function that does the same.
pub unsafe fn place(function: usize, number: u8, ours: usize) -> Result<(), Errno> {
    // SAFETY: a function has code, and a library has more behind its last one than this: the headers of its unwinding.
    let code: [u8; LOOK] = unsafe { core::ptr::read_unaligned(core::ptr::with_exposed_provenance(function)) };
    let at = jump_place(&code, number).ok_or(Errno::NOSYS)?;
    // SAFETY: the caller's promise.
    unsafe { jump(function + at, ours) }
}

/// Overwrites the code at `place` with a jump to `ours`.
///
/// # Safety
/// As for [`place`].
pub(crate) unsafe fn jump(place: usize, ours: usize) -> Result<(), Errno> {
    if place % PAGE_BYTES + BYTES > PAGE_BYTES {
        // Written in two steps, and a failure in between would leave half a jump.
        return Err(Errno::NOSYS);
    }
    let mut jump = [0; BYTES];
    jump[..JUMP.len()].copy_from_slice(&JUMP);
    jump[JUMP.len()..].copy_from_slice(&ours.to_ne_bytes());
    let memory = rustix::fs::open(c"/proc/self/mem", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    let written = rustix::io::pwrite(&memory, &jump, place as u64)?;
    if written == BYTES { Ok(()) } else { Err(Errno::IO) }
}

/// Where in the code of a function that makes this system call a jump can stand; `None` if it is not one.
fn jump_place(code: &[u8; LOOK], number: u8) -> Option<usize> {
    // mov eax, number; syscall
    let call = [0xb8, number, 0, 0, 0, 0x0f, 0x05];
    let at = if code.starts_with(&LANDING) { LANDING.len() } else { 0 };
    let is_one = cfg!(target_arch = "x86_64")
        && code.windows(call.len()).any(|part| part == call)
        && !code[at..at + BYTES].contains(&BREAKPOINT);
    is_one.then_some(at)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    core::arch::global_asm!(
        ".globl pleat_test_getppid",
        ".balign 16",
        "pleat_test_getppid:",
        "mov eax, 110",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2: ret",
        ".balign 16"
    );

    unsafe extern "C" {
        fn pleat_test_getppid() -> i64;
    }

    extern "C" fn ours() -> i64 {
        7_777_777
    }

    #[test]
    fn a_function_goes_on_at_ours() {
        // SAFETY: takes nothing.
        assert_eq!(unsafe { pleat_test_getppid() }, i64::from(std::os::unix::process::parent_id()));
        // SAFETY: this test alone runs it.
        unsafe { place(pleat_test_getppid as *const () as usize, 110, ours as *const () as usize) }.unwrap();
        // SAFETY: takes nothing.
        assert_eq!(unsafe { pleat_test_getppid() }, ours());
        // SAFETY: as above.
        let again = unsafe { place(pleat_test_getppid as *const () as usize, 110, ours as *const () as usize) };
        assert_eq!(again, Err(Errno::NOSYS), "what begins in another way is not known");
    }

    #[test]
    fn what_is_not_known_is_left_alone() {
        // glibc's brk.
        let mut code = [0x90; LOOK];
        code[..7].copy_from_slice(&[0xb8, 12, 0, 0, 0, 0x0f, 0x05]);
        assert_eq!(jump_place(&code, 12), Some(0));
        assert_eq!(jump_place(&code, 9), None, "another call");
        code[10] = BREAKPOINT;
        assert_eq!(jump_place(&code, 12), None, "a debugger's");
        let mut code = [0x90; LOOK];
        code[..4].copy_from_slice(&LANDING);
        assert_eq!(jump_place(&code, 12), None, "no call");
        code[4..11].copy_from_slice(&[0xb8, 12, 0, 0, 0, 0x0f, 0x05]);
        assert_eq!(jump_place(&code, 12), Some(4));
    }
}
