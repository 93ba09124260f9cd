//! The plain twins: each codec of the papers as its format document tells it, with nothing done for speed.
//!
//! The codecs beside this module make the same bytes in less time, and take the same garbage for an encoding. Tests compare
//! the two on every page, and `pleat bench codecs` measures one against the other.

pub(super) mod lz;
pub(super) mod lzo;
pub(super) mod lzrw;
pub(super) mod mxt;
pub(super) mod pack;
pub(super) mod pbpm;
pub(super) mod wk;

use crate::Codec;

/// All of them, by the names of the codecs whose twins they are and `@plain`.
pub static PLAIN: [&dyn Codec; 9] = [
    &wk::Wkdm,
    &wk::Wk4x4,
    &lzrw::Lzrw1,
    &lzrw::Lzrw1a,
    &lzo::Lzo1x1,
    &pbpm::Pbpm,
    &pbpm::PbpmSeparate,
    &pbpm::PbpmSingle,
    &mxt::MxtLz1,
];
