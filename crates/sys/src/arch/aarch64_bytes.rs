//! aarch64: sixteen bytes at a time, and the rest one by one.

use core::arch::naked_asm;

/// memcpy and memmove.
///
/// # Safety
/// As memmove: `count` bytes can be read from `from` and written to `to`. They may overlap.
#[unsafe(naked)]
pub unsafe extern "C" fn copy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    naked_asm!(
        "mov x3, x0",
        "sub x4, x0, x1",
        "cmp x4, x2",
        "b.lo 5f",
        "2:",
        "subs x2, x2, #16",
        "b.lo 3f",
        "ldp x4, x5, [x1], #16",
        "stp x4, x5, [x3], #16",
        "b 2b",
        "3:",
        "adds x2, x2, #16",
        "b.eq 9f",
        "4:",
        "ldrb w4, [x1], #1",
        "strb w4, [x3], #1",
        "subs x2, x2, #1",
        "b.ne 4b",
        "ret",
        // Backwards, where the target begins inside of what is copied.
        "5:",
        "add x1, x1, x2",
        "add x3, x3, x2",
        "6:",
        "subs x2, x2, #16",
        "b.lo 7f",
        "ldp x4, x5, [x1, #-16]!",
        "stp x4, x5, [x3, #-16]!",
        "b 6b",
        "7:",
        "adds x2, x2, #16",
        "b.eq 9f",
        "8:",
        "ldrb w4, [x1, #-1]!",
        "strb w4, [x3, #-1]!",
        "subs x2, x2, #1",
        "b.ne 8b",
        "9:",
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
        "mov x3, x0",
        "and x1, x1, #0xff",
        "mov x4, #0x0101010101010101",
        "mul x4, x1, x4",
        "2:",
        "subs x2, x2, #16",
        "b.lo 3f",
        "stp x4, x4, [x3], #16",
        "b 2b",
        "3:",
        "adds x2, x2, #16",
        "b.eq 5f",
        "4:",
        "strb w4, [x3], #1",
        "subs x2, x2, #1",
        "b.ne 4b",
        "5:",
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
        "mov x3, x0",
        "mov w0, #0",
        "2:",
        "cbz x2, 3f",
        "ldrb w4, [x3], #1",
        "ldrb w5, [x1], #1",
        "sub x2, x2, #1",
        "subs w0, w4, w5",
        "b.eq 2b",
        "3:",
        "ret",
    )
}

/// strlen.
///
/// # Safety
/// A zero byte ends what can be read from `text`.
#[unsafe(naked)]
pub unsafe extern "C" fn length(text: *const u8) -> usize {
    naked_asm!("mov x1, x0", "2:", "ldrb w2, [x1], #1", "cbnz w2, 2b", "sub x0, x1, x0", "sub x0, x0, #1", "ret",)
}
