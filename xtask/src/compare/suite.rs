//! What `cargo x bench` compares where no other option says so.

use super::cases::Case;
use super::systems::System;

/// Systems, cases and sizes that go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Suite {
    /// pleat against the kernel's systems: every case at half its memory.
    Kernel,
    /// pleat against the systems of the papers (`pleat run --system`): six shares of the memory of each case.
    Systems,
    /// pleat's sizing against nine fixed sizes of its pool: half of the memory of each case.
    Sizes,
}

impl Suite {
    pub(crate) const fn systems(self) -> &'static [System] {
        match self {
            Self::Kernel => System::KERNELS,
            Self::Systems => System::PAPERS,
            Self::Sizes => System::SIZES,
        }
    }

    pub(crate) const fn cases(self) -> &'static [Case] {
        match self {
            Self::Kernel => Case::ALL,
            Self::Systems => &[Case::Thrasher, Case::Rand, Case::Python, Case::Sort, Case::Compiler],
            Self::Sizes => &[Case::Thrasher, Case::Rand, Case::Python, Case::Sort],
        }
    }

    /// As in tuduce-gross, section 5.
    pub(crate) const fn fractions(self) -> &'static [f64] {
        match self {
            Self::Kernel | Self::Sizes => &[0.5],
            Self::Systems => &[0.97, 0.92, 0.87, 0.8, 0.73, 0.5],
        }
    }

    pub(crate) const fn baseline(self) -> System {
        match self {
            Self::Kernel => System::None,
            Self::Systems | Self::Sizes => System::Pleat,
        }
    }

    /// What a case is to want. The codecs of the papers are slow.
    pub(crate) const fn bytes(self) -> u64 {
        match self {
            Self::Kernel => 512 << 20,
            Self::Systems | Self::Sizes => 96 << 20,
        }
    }
}
