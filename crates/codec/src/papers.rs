//! The codecs of the papers that pleat comes from: for their systems, and to measure today's against.

mod lz;
mod lzo;
mod lzrw;
mod mxt;
mod pack;
mod pbpm;
#[cfg(test)]
pub(crate) mod tests;
mod wk;

pub use lzo::Lzo1x1;
pub use lzrw::{Lzrw1, Lzrw1a};
pub use mxt::MxtLz1;
pub use pbpm::{Pbpm, PbpmSeparate, PbpmSingle};
pub use wk::{Wk4x4, Wkdm};
