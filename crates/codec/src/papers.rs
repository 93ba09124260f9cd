//! The codecs of the papers that pleat comes from, to measure today's against. Users are not offered them.

use crate::Codec;

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

/// All of them. `pleat run` chooses from [`ALL`](crate::ALL), which holds none of these.
pub static PAPERS: [&dyn Codec; 9] =
    [&Wkdm, &Wk4x4, &Lzrw1, &Lzrw1a, &Pbpm, &PbpmSeparate, &PbpmSingle, &Lzo1x1, &MxtLz1];
