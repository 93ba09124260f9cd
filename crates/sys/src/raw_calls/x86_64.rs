//! The detour of glibc's `syscall` on x86-64.

use core::arch::global_asm;
use core::ffi::c_long;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{OPERATION, Ours, WRITING};
use crate::Errno;
use crate::arch::number;
use crate::copies::{Asked, NO_FORK};
use crate::detour::{self, LANDING};

/// glibc's function as far as the call: its arguments go where the kernel wants them.
const CODE: [u8; 25] = [
    0x48, 0x89, 0xf8, // mov rax, rdi
    0x48, 0x89, 0xf7, // mov rdi, rsi
    0x48, 0x89, 0xd6, // mov rsi, rdx
    0x48, 0x89, 0xca, // mov rdx, rcx
    0x4d, 0x89, 0xc2, // mov r10, r8
    0x4d, 0x89, 0xc8, // mov r8, r9
    0x4c, 0x8b, 0x4c, 0x24, 0x08, // mov r9, [rsp + 8]
    0x0f, 0x05, // syscall
];
/// How much of it the jump to ours replaces, up to the end of an instruction.
const REPLACED: usize = 15;

/// The rest of libc's function, and ours.
static REST: AtomicUsize = AtomicUsize::new(0);
static OURS: AtomicUsize = AtomicUsize::new(0);

global_asm!(
    ".pushsection .text.pleat_raw,\"ax\",@progbits",
    ".balign 16",
    ".hidden pleat_raw",
    ".globl pleat_raw",
    ".type pleat_raw,@function",
    "pleat_raw:",
    ".cfi_startproc",
    "cmp rdi, {clone}",
    "je 3f",
    "cmp rdi, {clone3}",
    "je 5f",
    "cmp rdi, {fork}",
    "je 2f",
    "cmp rdi, {madvise}",
    "je 2f",
    "cmp rdi, {shmat}",
    "je 2f",
    "cmp rdi, {ioctl}",
    "je 2f",
    "cmp rdi, {seccomp}",
    "je 2f",
    "cmp rdi, {exit}",
    "je 2f",
    "cmp rdi, {futex}",
    "je 4f",
    // As CODE has it.
    "1:",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "jmp qword ptr [rip + {rest}]",
    "2:",
    "jmp qword ptr [rip + {ours}]",
    // A clone that is no fork comes back on another stack, or shares this one: nobody may be in between.
    "3:",
    "test esi, {no_fork}",
    "jnz 1b",
    "test rdx, rdx",
    "jnz 1b",
    "jmp 2b",
    // A futex that nobody writes goes through.
    "4:",
    "mov eax, edx",
    "and eax, {operation}",
    "mov r11d, {writing}",
    "bt r11d, eax",
    "jc 2b",
    "jmp 1b",
    // As for a clone, by what the structure says.
    "5:",
    "push rdi",
    "push rsi",
    "push rdx",
    "push rcx",
    "push r8",
    "push r9",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 56",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "call {is_copy}",
    "add rsp, 8",
    "pop r9",
    "pop r8",
    "pop rcx",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    ".cfi_adjust_cfa_offset -56",
    "test al, al",
    "jnz 2b",
    "jmp 1b",
    ".cfi_endproc",
    ".size pleat_raw, . - pleat_raw",
    ".popsection",
    clone = const number::CLONE,
    clone3 = const number::CLONE3,
    fork = const number::FORK,
    madvise = const number::MADVISE,
    shmat = const number::SHMAT,
    ioctl = const number::IOCTL,
    seccomp = const number::SECCOMP,
    exit = const number::EXIT,
    futex = const number::FUTEX,
    operation = const OPERATION,
    writing = const WRITING,
    no_fork = const NO_FORK,
    is_copy = sym is_copy,
    rest = sym REST,
    ours = sym OURS,
);

unsafe extern "C" {
    fn pleat_raw();
}

/// Of the arguments of `clone3`.
extern "C" fn is_copy(at: c_long, bytes: c_long) -> bool {
    Asked::read(at, bytes).is_some_and(|asked| asked.is_copy())
}

/// Makes `function`, which is libc's `syscall`, go on at `ours` for forks, madvise, shmat, ioctl, seccomp, exit and futexes that the kernel
/// writes.
///
/// # Safety
/// As for [`detour::place`]; once in a process.
pub unsafe fn place(function: usize, ours: Ours) -> Result<(), Errno> {
    // SAFETY: a function has code, and a library has more behind its last one than this: the headers of its unwinding.
    let code: [u8; LANDING.len() + CODE.len()] =
        unsafe { core::ptr::read_unaligned(core::ptr::with_exposed_provenance(function)) };
    let at = if code.starts_with(&LANDING) { LANDING.len() } else { 0 };
    if !code[at..].starts_with(&CODE) {
        return Err(Errno::NOSYS);
    }
    OURS.store(ours as *const () as usize, Ordering::Relaxed);
    REST.store(function + at + REPLACED, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe { detour::jump(function + at, pleat_raw as *const () as usize) }
}

#[cfg(test)]
mod tests {
    use super::super::Call;
    use super::*;

    // glibc's.
    global_asm!(
        ".globl pleat_test_syscall",
        ".balign 16",
        "pleat_test_syscall:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        ".byte 0x4d, 0x89, 0xc2",
        ".byte 0x4d, 0x89, 0xc8",
        "mov r9, [rsp + 8]",
        "syscall",
        "ret",
        ".balign 16"
    );

    unsafe extern "C" {
        fn pleat_test_syscall(number: c_long, ...) -> c_long;
    }

    /// A number that tells all arguments and their order.
    fn weighted(words: [c_long; 7]) -> c_long {
        words.iter().fold(0, |sum: c_long, word| sum.wrapping_mul(1009).wrapping_add(*word))
    }

    unsafe extern "C" fn ours(
        number: c_long,
        first: c_long,
        second: c_long,
        third: c_long,
        fourth: c_long,
        fifth: c_long,
        sixth: c_long,
    ) -> c_long {
        weighted([number, first, second, third, fourth, fifth, sixth])
    }

    fn call(words: [c_long; 7]) -> c_long {
        let [number, first, second, third, fourth, fifth, sixth] = words;
        // SAFETY: ours has no effects, and neither have the others that the test makes.
        unsafe { pleat_test_syscall(number, first, second, third, fourth, fifth, sixth) }
    }

    #[test]
    fn forks_and_some_others_come_to_us_and_the_rest_goes_through() {
        // SAFETY: this test alone runs it.
        unsafe { place(pleat_test_syscall as *const () as usize, ours) }.unwrap();
        let all =
            [number::FORK, number::CLONE, number::MADVISE, number::SHMAT, number::IOCTL, number::SECCOMP, number::EXIT];
        for number in all {
            let words = [number as c_long, 17, 0, 3, 4, 5, 6];
            assert_eq!(call(words), weighted(words));
            assert!(Call::of(words[0]).is_some());
        }
        // Of clone3 what copies; a thread without what it must share with it is refused.
        let refused = -c_long::from(Errno::INVAL.raw_os_error());
        for (flags, stack, is_copy) in [(0, 0, true), (0x1_0000, 0, false), (0x2_0200, 1 << 20, false)] {
            let asked = [flags, 0, 0, 0, 17, stack, 0, 0_u64];
            let words = [number::CLONE3 as c_long, asked.as_ptr() as c_long, 64, 3, 4, 5, 6];
            let expected = if is_copy { weighted(words) } else { refused };
            assert_eq!(call(words), expected, "{flags:#x}");
        }
        assert_eq!(call([number::CLONE3 as c_long, 8, 64, 0, 0, 0, 0]), -c_long::from(Errno::FAULT.raw_os_error()));
        // FUTEX_LOCK_PI, which the kernel writes, and FUTEX_WAIT, which it refuses: an odd address. With FUTEX_PRIVATE_FLAG.
        let futex = |operation: c_long| [number::FUTEX as c_long, 1, operation | 128, 0, 0, 0, 0];
        assert_eq!(call(futex(6)), weighted(futex(6)));
        assert_eq!(call(futex(0)), -c_long::from(Errno::INVAL.raw_os_error()));
        // Refused by the kernel: a thread with signals of its own; a stack, and a directory that is shared and is not.
        let [clone, refused] = [number::CLONE as c_long, -c_long::from(Errno::INVAL.raw_os_error())];
        assert_eq!(call([clone, 0x1_0000, 0, 0, 0, 0, 0]), refused);
        assert_eq!(call([clone, 0x2_0200, 1 << 20, 0, 0, 0, 0]), refused);
        // process_vm_readv has six arguments, of which the last one must be 0.
        let (from, mut to) = (*b"pleat", [0_u8; 5]);
        let part = |at: *const u8| [at as usize, 5];
        let [local, remote] = [part(to.as_mut_ptr()), part(from.as_ptr())];
        let [local, remote] = [&local, &remote].map(|part| core::ptr::from_ref(part) as c_long);
        let words = |flags| [310, c_long::from(std::process::id()), local, 1, remote, 1, flags];
        assert_eq!((call(words(1)), call(words(0)), to), (refused, 5, from));
    }

    #[test]
    fn what_is_not_known_is_left_alone() {
        extern "C" fn other() {}
        // SAFETY: nothing is done.
        let placed = unsafe { place(other as *const () as usize, ours) };
        assert_eq!(placed, Err(Errno::NOSYS));
    }
}
