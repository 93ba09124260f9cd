//! The systems: which store, codec, sizing, admission and write-back go together, and which cannot.
//!
//! A system of the papers is a line of [`PRESETS`]; each of its parts can be replaced by another. What users may write and
//! what they are told about it comes from here.

use alloc::boxed::Box;

use codec::{Codec, MxtLz1};
use page::{ByteCount, PageCount};
use policy::area::AreaSizing;
use policy::area::demand::Demand;
use policy::area::divider::Divider;
use policy::area::exhaustion::Exhaustion;
use policy::area::expense_profit::{ExpenseProfit, Sensitivity};
use policy::area::fill_rate::FillRate;
use policy::area::fixed::{Fixed, Off};
use policy::area::free_space::FreeSpace;
use policy::area::percent::Percent;
use policy::write_back::FreeEntries;
use store::{AnyStore, Buddies, Cells, Chunks, Resize, Sectors, Slabs, ZoneShape, Zones};
use sys::Errno;

use crate::area::{AreaKeeper, Rules};

/// What can be chosen by name.
pub trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// All there is to choose from.
    const ALL: &'static [Self];

    /// What users write.
    fn name(self) -> &'static str;

    /// What it is, in one line.
    fn about(self) -> &'static str;

    /// The one of this name.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|choice| choice.name() == name)
    }

    /// Its place among all.
    fn place(self) -> u32 {
        Self::ALL.iter().position(|choice| *choice == self).expect("one of all") as u32
    }

    /// The one in this place.
    fn at(place: u32) -> Self {
        Self::ALL[place as usize]
    }
}

macro_rules! choices {
    ($(#[$meta:meta])* $choice:ident { $($variant:ident = $name:literal: $about:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $choice { $(#[doc = $about] $variant,)* }

        impl Choice for $choice {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }
        }
    };
}

choices! {
    /// `--store`: how encodings lie in RAM.
    StoreName {
        Slabs = "slabs": "Encodings of nearly equal length together; grows and shrinks by itself",
        Zones = "zones": "Equal blocks in a chain of zones (tuduce-gross)",
        Cells = "cells": "Behind each other in cells of two frames, compacted where that makes room (castro)",
        Cells1 = "cells-1": "The same in cells of one frame",
        Cells4 = "cells-4": "The same in cells of four frames",
        Chunks = "chunks": "First fit in chunks with a resource map each (crames)",
        Buddies = "buddies": "At most two to a frame, as zbud (zswap)",
        Sectors = "sectors": "Lines of 1 KiB in sectors of 256 bytes (mxt)",
    }
}

choices! {
    /// `--sizing`: how large the compressed area is.
    SizingName {
        Marginal = "marginal": "As large as is best by the measured costs of faults",
        Demand = "demand": "As large as what is in it, up to four fifths of the memory for pages",
        FreeSpace = "free-space": "Grows below one free unit, shrinks above four (tuduce-gross)",
        ExpenseProfit = "expense-profit": "As reads tell whether it pays (castro)",
        Sluggish = "expense-profit-sluggish": "The same, slower to act",
        Aggressive = "expense-profit-aggressive": "The same, shrinking at each read that did not pay",
        FillRate = "fill-rate": "Grows ahead of need, above a fill rate; refuses pages without memory (crames)",
        Percent = "percent": "On demand up to 20 % of the budget (zswap)",
        Exhaustion = "exhaustion": "All memory, with pages forced out and writers stalled near its end (mxt)",
        Fixed = "fixed": "As --pool-size says; with slabs at most so much",
        Off = "off": "No compression: all pages go to the swap file as they are",
    }
}

choices! {
    /// `--admission`: which pages the store takes.
    Admission {
        All = "all": "All; those that do not shrink as they are",
        RejectPoor = "reject-poor": "Those that shrink; others go to the swap file as they are (zswap)",
    }
}

choices! {
    /// `--write-back`: in what form pages go from the store to the swap file.
    WriteBack {
        Encodings = "encodings": "As they are stored",
        Pages = "pages": "As pages, which need no decoding when they come back (tuduce-gross, zswap, mxt)",
    }
}

/// What a compressed cache is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct System {
    /// How encodings lie in RAM.
    pub store: StoreName,
    /// The name of the codec.
    pub codec: &'static str,
    /// How large the compressed area is.
    pub sizing: SizingName,
    /// Which pages it takes.
    pub admission: Admission,
    /// In what form they leave it for the swap file.
    pub write_back: WriteBack,
}

/// The named systems; the default comes first.
pub static PRESETS: [(&str, System); 6] = [
    preset("pleat", StoreName::Slabs, "auto", SizingName::Marginal, Admission::All, WriteBack::Encodings),
    preset("tuduce-gross", StoreName::Zones, "wkdm", SizingName::FreeSpace, Admission::All, WriteBack::Pages),
    preset("castro", StoreName::Cells, "lzo1x-1", SizingName::ExpenseProfit, Admission::All, WriteBack::Encodings),
    preset("crames", StoreName::Chunks, "pbpm", SizingName::FillRate, Admission::All, WriteBack::Pages),
    preset("zswap", StoreName::Buddies, "lzo1x-1", SizingName::Percent, Admission::RejectPoor, WriteBack::Pages),
    preset("mxt", StoreName::Sectors, "mxt-lz1", SizingName::Exhaustion, Admission::All, WriteBack::Pages),
];

const fn preset(
    name: &'static str,
    store: StoreName,
    codec: &'static str,
    sizing: SizingName,
    admission: Admission,
    write_back: WriteBack,
) -> (&'static str, System) {
    (name, System { store, codec, sizing, admission, write_back })
}

/// A zone, a chunk or a unit of sectors: the papers' sizes are for memories of hundreds of megabytes, and a small budget is
/// not to consist of three units.
fn unit_bytes(budget: ByteCount, largest: usize) -> usize {
    const UNITS: u64 = 64;
    const LEAST: usize = 256 << 10;
    ((budget.0 / UNITS) as usize).next_power_of_two().clamp(LEAST, largest)
}

/// The paper's zones are 4 MiB.
const ZONE_BYTES_MAX: usize = 4 << 20;
/// CRAMES asks for memory in chunks whose size the slides do not tell. Smaller ones would make a long list to search.
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// MXT has no units.
const SECTOR_UNIT_BYTES_MAX: usize = 1 << 20;
/// `kcmswapd`'s threshold, which the paper does not print: a batch of pages finds room.
const FREE_ENTRIES: FreeEntries = FreeEntries { threshold: PageCount(64) };

impl System {
    /// Why these parts do not go together, if they do not.
    pub fn obstacle(&self) -> Option<&'static str> {
        let is_area = self.store != StoreName::Slabs;
        if self.store == StoreName::Sectors && self.codec != MxtLz1.name() {
            Some("sectors hold lines of 1 KiB, which only --codec mxt-lz1 makes")
        } else if self.store == StoreName::Buddies && self.admission == Admission::All {
            Some("buddies share a frame, which a page that does not shrink needs for itself: --admission reject-poor")
        } else if !is_area && !matches!(self.sizing, SizingName::Demand | SizingName::Marginal | SizingName::Fixed) {
            Some(
                "slabs grow by themselves: another --sizing than marginal, demand or fixed needs another --store, for example cells",
            )
        } else if is_area && self.sizing == SizingName::Marginal {
            Some("--sizing marginal bounds what grows by itself, which only --store slabs does")
        } else if !is_area && self.admission != Admission::All {
            Some("slabs take all pages: another --admission than all needs another --store, for example cells")
        } else if !is_area && self.write_back != WriteBack::Encodings {
            Some("slabs are written back as encodings: --write-back pages needs another --store, for example cells")
        } else {
            None
        }
    }

    /// What divides a share between resident pages and the pool, if this system has that.
    /// `pool` is the size of a fixed pool.
    pub fn divider(&self, share: ByteCount, pool: ByteCount) -> Option<Box<Divider>> {
        match (self.store, self.sizing) {
            (_, SizingName::Marginal) => Some(Box::new(Divider::new(share))),
            (StoreName::Slabs, SizingName::Fixed) => Some(Box::new(Divider::fixed(share, pool))),
            _ => None,
        }
    }

    /// Makes the store, and what keeps it if it does not keep itself. `addresses` are enough for all that slabs may have
    /// to hold; an area never takes more than the budget. `area_bytes` is the size of a fixed area.
    pub fn open(
        &self,
        codec: &'static dyn Codec,
        budget: ByteCount,
        addresses: usize,
        area_bytes: ByteCount,
    ) -> Result<(AnyStore, Option<AreaKeeper>), Errno> {
        let area = match self.store {
            StoreName::Slabs => return Ok((AnyStore::Slabs(Slabs::new(addresses)?), None)),
            store => open_area(store, budget)?,
        };
        let daemon = matches!(self.sizing, SizingName::FreeSpace | SizingName::Fixed).then_some(FREE_ENTRIES);
        let rules = Rules { admission: self.admission, write_back: self.write_back, codec, daemon };
        Ok((AnyStore::Area(area), Some(AreaKeeper::new(self.sizing.policy(area_bytes), rules))))
    }
}

fn open_area(store: StoreName, budget: ByteCount) -> Result<Box<dyn Resize + Send>, Errno> {
    // Whole units of any size.
    let bytes = (budget.0 as usize).next_multiple_of(ZONE_BYTES_MAX);
    let unit = |largest| unit_bytes(budget, largest);
    Ok(match store {
        StoreName::Slabs => unreachable!("slabs are no area"),
        StoreName::Zones => {
            let shape = ZoneShape { zone_bytes: unit(ZONE_BYTES_MAX), ..ZoneShape::default() };
            Box::new(Zones::new(bytes, shape)?)
        }
        StoreName::Cells => Box::new(Cells::new(bytes, 2)?),
        StoreName::Cells1 => Box::new(Cells::new(bytes, 1)?),
        StoreName::Cells4 => Box::new(Cells::new(bytes, 4)?),
        StoreName::Chunks => Box::new(Chunks::new(bytes, unit(CHUNK_BYTES_MAX))?),
        StoreName::Buddies => Box::new(Buddies::new(bytes)?),
        StoreName::Sectors => Box::new(Sectors::new(bytes, unit(SECTOR_UNIT_BYTES_MAX), MxtLz1::line_lengths)?),
    })
}

impl SizingName {
    fn policy(self, area_bytes: ByteCount) -> Box<dyn AreaSizing + Send> {
        match self {
            Self::Demand => Box::new(Demand),
            Self::Marginal => unreachable!("it is for slabs, which have no such policy"),
            Self::FreeSpace => Box::new(FreeSpace::default()),
            Self::ExpenseProfit => Box::new(ExpenseProfit::new(Sensitivity::REFERENCE)),
            Self::Sluggish => Box::new(ExpenseProfit::new(Sensitivity::SLUGGISH)),
            Self::Aggressive => Box::new(ExpenseProfit::new(Sensitivity::AGGRESSIVE)),
            Self::FillRate => Box::new(FillRate::default()),
            Self::Percent => Box::new(Percent::default()),
            Self::Exhaustion => Box::new(Exhaustion::default()),
            Self::Fixed => Box::new(Fixed { size: area_bytes }),
            Self::Off => Box::new(Off),
        }
    }
}

#[cfg(test)]
mod tests {
    use page::PAGE_BYTES;

    use super::*;

    fn preset_of(name: &str) -> System {
        PRESETS.iter().find(|(other, _)| *other == name).expect("a preset").1
    }

    #[test]
    fn every_preset_can_be_opened() {
        for (name, system) in PRESETS {
            assert_eq!(system.obstacle(), None, "{name}");
            let codec = codec::named(system.codec).expect("a codec of that name");
            let (_, keeper) = system.open(codec, ByteCount(16 << 20), 64 << 20, ByteCount::ZERO).unwrap();
            assert_eq!(keeper.is_some(), name != "pleat", "{name}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let refused = |system: System| system.obstacle().unwrap_or("");
        let ours = preset_of("pleat");
        assert!(refused(System { sizing: SizingName::Percent, ..ours }).contains("grow by themselves"));
        assert!(refused(System { admission: Admission::RejectPoor, ..ours }).contains("take all pages"));
        assert!(refused(System { write_back: WriteBack::Pages, ..ours }).contains("as encodings"));
        assert!(refused(System { store: StoreName::Sectors, ..ours }).contains("mxt-lz1"));
        assert!(refused(System { store: StoreName::Buddies, ..ours }).contains("reject-poor"));
        assert!(refused(System { store: StoreName::Cells, ..ours }).contains("--store slabs"));
        for store in [StoreName::Slabs, StoreName::Cells] {
            assert_eq!(System { store, sizing: SizingName::Demand, ..ours }.obstacle(), None);
        }
        assert!(refused(System { codec: "wkdm", ..preset_of("mxt") }).contains("mxt-lz1"));
    }

    #[test]
    fn names_lead_back() {
        fn check<C: Choice + core::fmt::Debug>() {
            for (place, choice) in C::ALL.iter().enumerate() {
                assert_eq!((C::named(choice.name()), choice.place() as usize), (Some(*choice), place));
                assert_eq!(C::at(choice.place()), *choice);
            }
            assert_eq!(C::named("no such"), None);
        }
        check::<StoreName>();
        check::<SizingName>();
        check::<Admission>();
        check::<WriteBack>();
    }

    /// 4 MiB from 256 MiB on, and never so large that a budget has only a few.
    #[test]
    fn units_go_with_the_budget() {
        let zones = [16, 64, 128, 256, 4096].map(|mib| unit_bytes(ByteCount(mib << 20), ZONE_BYTES_MAX) >> 10);
        assert_eq!(zones, [256, 1024, 2048, 4096, 4096]);
        assert!(zones.iter().all(|kib| kib * 1024 % PAGE_BYTES == 0));
    }
}
