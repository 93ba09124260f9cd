//! Other processors' functions are left alone.

use core::ffi::c_int;

use super::{End, Launch, Ours};
use crate::Errno;

/// None.
pub fn entry(_ours: Ours, _failed: extern "C" fn(isize) -> c_int, _end: End) -> usize {
    0
}

/// Nobody comes here.
///
/// # Safety
/// None is needed.
pub unsafe fn launch(_launch: &Launch, _places: [usize; 3]) -> Result<usize, Errno> {
    Err(Errno::NOSYS)
}
