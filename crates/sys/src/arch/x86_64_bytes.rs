//! x86-64: short runs of bytes in registers, long ones by the processor's own instructions for them.

use core::arch::naked_asm;

/// memcpy and memmove.
///
/// # Safety
/// As memmove: `count` bytes can be read from `from` and written to `to`. They may overlap.
#[unsafe(naked)]
pub unsafe extern "C" fn copy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    naked_asm!(
        "mov rax, rdi",
        "cmp rdx, 16",
        "jb 4f",
        "mov rcx, rdi",
        "sub rcx, rsi",
        "cmp rcx, rdx",
        "jb 7f",
        "cmp rdx, 512",
        "ja 6f",
        // Forwards; the last 16 bytes are read first and written last.
        "movups xmm0, [rsi + rdx - 16]",
        "lea r8, [rdi + rdx - 16]",
        "2:",
        "movups xmm1, [rsi]",
        "movups [rdi], xmm1",
        "add rsi, 16",
        "add rdi, 16",
        "sub rdx, 16",
        "cmp rdx, 16",
        "ja 2b",
        "movups [r8], xmm0",
        "ret",
        // Below 16: two halves, which may share bytes. All is read before anything is written.
        "4:",
        "cmp rdx, 8",
        "jb 5f",
        "mov rcx, [rsi]",
        "mov r8, [rsi + rdx - 8]",
        "mov [rdi], rcx",
        "mov [rdi + rdx - 8], r8",
        "ret",
        "5:",
        "cmp rdx, 4",
        "jb 9f",
        "mov ecx, [rsi]",
        "mov r8d, [rsi + rdx - 4]",
        "mov [rdi], ecx",
        "mov [rdi + rdx - 4], r8d",
        "ret",
        "6:",
        "mov rcx, rdx",
        "rep movsb",
        "ret",
        // Backwards, where the target begins inside of what is copied; the first 16 bytes are read first and written last.
        "7:",
        "movups xmm0, [rsi]",
        "8:",
        "movups xmm1, [rsi + rdx - 16]",
        "movups [rdi + rdx - 16], xmm1",
        "sub rdx, 16",
        "cmp rdx, 16",
        "ja 8b",
        "movups [rdi], xmm0",
        "ret",
        "9:",
        "test rdx, rdx",
        "jz 12f",
        "movzx ecx, byte ptr [rsi]",
        "cmp rdx, 1",
        "je 13f",
        "movzx r8d, word ptr [rsi + rdx - 2]",
        "mov [rdi + rdx - 2], r8w",
        "13:",
        "mov [rdi], cl",
        "12:",
        "ret",
    )
}

/// memset.
///
/// # Safety
/// `count` bytes can be written to `to`.
#[unsafe(naked)]
pub unsafe extern "C" fn fill(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    naked_asm!(
        "mov rax, rdi",
        "movzx esi, sil",
        "mov r8, 0x0101010101010101",
        "imul rsi, r8",
        "cmp rdx, 16",
        "jb 3f",
        "cmp rdx, 512",
        "ja 6f",
        "movq xmm0, rsi",
        "punpcklqdq xmm0, xmm0",
        "movups [rdi + rdx - 16], xmm0",
        "2:",
        "movups [rdi], xmm0",
        "add rdi, 16",
        "sub rdx, 16",
        "cmp rdx, 16",
        "ja 2b",
        "ret",
        "3:",
        "cmp rdx, 8",
        "jb 4f",
        "mov [rdi], rsi",
        "mov [rdi + rdx - 8], rsi",
        "ret",
        "4:",
        "cmp rdx, 4",
        "jb 5f",
        "mov [rdi], esi",
        "mov [rdi + rdx - 4], esi",
        "ret",
        "5:",
        "test rdx, rdx",
        "jz 7f",
        "mov [rdi], sil",
        "mov [rdi + rdx - 1], sil",
        "cmp rdx, 3",
        "jb 7f",
        "mov [rdi + 1], sil",
        "7:",
        "ret",
        "6:",
        "mov r9, rdi",
        "mov eax, esi",
        "mov rcx, rdx",
        "rep stosb",
        "mov rax, r9",
        "ret",
    )
}

/// memcmp and bcmp.
///
/// # Safety
/// `count` bytes can be read from both.
#[unsafe(naked)]
pub unsafe extern "C" fn compare(one: *const u8, other: *const u8, count: usize) -> i32 {
    naked_asm!(
        "2:",
        "cmp rdx, 8",
        "jb 3f",
        "mov rcx, [rdi]",
        "mov r8, [rsi]",
        "cmp rcx, r8",
        "jne 5f",
        "add rdi, 8",
        "add rsi, 8",
        "sub rdx, 8",
        "jmp 2b",
        "3:",
        "xor eax, eax",
        "4:",
        "test rdx, rdx",
        "jz 6f",
        "movzx eax, byte ptr [rdi]",
        "movzx ecx, byte ptr [rsi]",
        "sub eax, ecx",
        "jnz 6f",
        "inc rdi",
        "inc rsi",
        "dec rdx",
        "jmp 4b",
        // The first byte that differs is the highest one then.
        "5:",
        "bswap rcx",
        "bswap r8",
        "cmp rcx, r8",
        "sbb eax, eax",
        "or eax, 1",
        "6:",
        "ret",
    )
}

/// strlen.
///
/// # Safety
/// A zero byte ends what can be read from `text`.
#[unsafe(naked)]
pub unsafe extern "C" fn length(text: *const u8) -> usize {
    naked_asm!("xor eax, eax", "2:", "cmp byte ptr [rdi + rax], 0", "je 3f", "inc rax", "jmp 2b", "3:", "ret")
}
