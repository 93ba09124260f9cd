//! memcpy and its kin under the names by which compiled code calls them ([`sys::bytes`]): hidden, so that the program does not
//! find them, and nearer than its own, so that we do not call those.

use core::arch::global_asm;

use sys::bytes::{compare, copy, fill, length};

/// A function of the agent's own under a name that others have as well.
macro_rules! hidden {
    ($($name:literal is $function:ident)*) => {
        $(global_asm!(
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            concat!(jump!(), " {function}"),
            concat!(".size ", $name, ", . - ", $name),
            function = sym $function,
        );)*
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp"
    };
}
#[cfg(not(target_arch = "x86_64"))]
macro_rules! jump {
    () => {
        "b"
    };
}

hidden! {
    "memcpy" is copy
    "memmove" is copy
    "memset" is fill
    "memcmp" is compare
    "bcmp" is compare
    "strlen" is length
}
