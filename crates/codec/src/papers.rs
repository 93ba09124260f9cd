//! The codecs of the papers that pleat comes from: for their systems, and to measure today's against.

#[cfg(test)]
mod bad;
mod lz;
mod lzo;
mod lzrw;
mod mxt;
#[cfg(target_arch = "x86_64")]
mod pack;
mod pbpm;
mod plain;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(target_arch = "x86_64")]
mod vectors;
mod wk;

pub use lzo::Lzo1x1;
pub use lzrw::{Lzrw1, Lzrw1a};
pub use mxt::MxtLz1;
pub use pbpm::{Pbpm, PbpmSeparate, PbpmSingle};
pub use plain::PLAIN;
pub use wk::{Wk4x4, Wkdm};
