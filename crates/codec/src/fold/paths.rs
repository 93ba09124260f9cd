//! Each path as a codec of its own, to measure one beside the other.

use alloc::boxed::Box;
use alloc::vec::Vec;

use page::PageBytes;

use super::scalar::Scalar;
use super::{Level, Path, decode, encode};
use crate::{Codec, Corrupt, Scratch};

/// One path of one level.
struct By<P> {
    name: &'static str,
    level: Level,
    path: P,
}

impl<P: Path + Send + Sync> Codec for By<P> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        encode(self.path, self.level, page, &mut scratch.fold, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        decode(self.path, encoding, page)
    }
}

/// The paths of `fold` and `fold-deep` by their names; `None` for one that this processor cannot run.
pub fn fold_paths() -> Vec<(&'static str, Option<Box<dyn Codec>>)> {
    let [avx512, avx2, neon, scalar] = [
        ["fold@avx512", "fold-deep@avx512"],
        ["fold@avx2", "fold-deep@avx2"],
        ["fold@neon", "fold-deep@neon"],
        ["fold@scalar", "fold-deep@scalar"],
    ];
    #[cfg(target_arch = "x86_64")]
    let (avx512, avx2) = (by(avx512, super::avx512::Avx512::new()), by(avx2, super::avx2::Avx2::new()));
    #[cfg(not(target_arch = "x86_64"))]
    let (avx512, avx2) = (by(avx512, None::<Scalar>), by(avx2, None::<Scalar>));
    #[cfg(target_arch = "aarch64")]
    let neon = by(neon, Some(super::neon::Neon));
    #[cfg(not(target_arch = "aarch64"))]
    let neon = by(neon, None::<Scalar>);
    [avx512, avx2, neon, by(scalar, Some(Scalar))].into_iter().flatten().collect()
}

/// Both levels of a path, if there is one.
fn by<P>(names: [&'static str; 2], path: Option<P>) -> [(&'static str, Option<Box<dyn Codec>>); 2]
where
    P: Path + Send + Sync + 'static,
{
    let codec = |name, level| -> (_, Option<Box<dyn Codec>>) {
        (name, path.map(|path| -> Box<dyn Codec> { Box::new(By { name, level, path }) }))
    };
    [codec(names[0], Level::Plain), codec(names[1], Level::Deep)]
}
