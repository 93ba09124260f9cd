//! A slot: the eight bytes that say where a page is.
//!
//! Three bits of kind, three of age, three of level, up to 36 of a frame, a word, or a key, and in the others when the page
//! left. A page in no store needs 32 of these at most, and has its refusals in the others. Zero is an untouched page, so that
//! fresh tables need no filling.

use backing::BackingKey;
use page::{FrameIndex, PageCount};
use policy::replacement::{Age, Level, Refusals};
use store::StoreKey;

use crate::words::WordIndex;

const KIND_BITS: u32 = 3;
const AGE_SHIFT: u32 = KIND_BITS;
const LEVEL_SHIFT: u32 = AGE_SHIFT + Age::BITS;
const PAYLOAD_SHIFT: u32 = LEVEL_SHIFT + Level::BITS;
const PAYLOAD_BITS: u32 = 36;
const LEFT_SHIFT: u32 = PAYLOAD_SHIFT + PAYLOAD_BITS;
/// Of a resident page the rounds for which the hand spares it, of a leaving one its frame.
const NUMBER_BITS: u32 = PAYLOAD_BITS - Refusals::BITS;
const REFUSALS_SHIFT: u32 = PAYLOAD_SHIFT + NUMBER_BITS;

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Never touched, discarded, or not managed: reads as zeros.
    Untouched,
    /// With the program.
    Resident,
    /// In a frame, on its way out.
    Leaving(FrameIndex),
    /// Nowhere: one repeated word.
    SameFilled(WordIndex),
    /// In the store, smaller.
    Compressed(StoreKey),
    /// In the store as it is.
    Incompressible(StoreKey),
    /// In the segment log: being written back while its segment is in memory, backed once that is on the medium.
    Below(BackingKey),
}

impl Place {
    /// Kinds there are.
    pub(crate) const KINDS: usize = 7;

    /// A number for the kind, 0 to `KINDS - 1`.
    pub(crate) const fn kind(self) -> usize {
        match self {
            Self::Untouched => 0,
            Self::Resident => 1,
            Self::Leaving(_) => 2,
            Self::SameFilled(_) => 3,
            Self::Compressed(_) => 4,
            Self::Incompressible(_) => 5,
            Self::Below(_) => 6,
        }
    }

    /// Whether it has content that is neither with the program nor on its way out.
    pub const fn is_away(self) -> bool {
        matches!(self, Self::SameFilled(_) | Self::Compressed(_) | Self::Incompressible(_) | Self::Below(_))
    }

    /// Whether it is of use how often it has been refused: it has not got smaller since.
    const fn has_refusals(self) -> bool {
        matches!(self, Self::Resident | Self::Leaving(_))
    }

    /// Whether its bytes are in the store.
    pub(crate) const fn is_stored(self) -> bool {
        matches!(self, Self::Compressed(_) | Self::Incompressible(_))
    }
}

/// A time, in pages that have left the resident set: a counter that begins again after 2^23 of them, some 32 GiB. A slot has
/// room for multiples of 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Departures(u32);

impl Departures {
    const UNIT_BITS: u32 = 4;
    const BITS: u32 = u64::BITS - LEFT_SHIFT + Self::UNIT_BITS;

    /// One page more has left.
    #[must_use]
    pub fn next(self) -> Self {
        Self((self.0 + 1) % (1 << Self::BITS))
    }

    /// Pages that have left since then.
    pub fn since(self, then: Self) -> PageCount {
        PageCount(u64::from(self.0.wrapping_sub(then.0) % (1 << Self::BITS)))
    }
}

/// A page's entry in the page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slot(u64);

impl Slot {
    /// A slot that says `place`, with an age that means something for resident and stored pages only. Of a page that has never
    /// left, and has no level.
    pub fn new(place: Place, age: Age) -> Self {
        let payload = match place {
            Place::Untouched => return Self(0),
            Place::Resident => 0,
            Place::Leaving(frame) => u64::from(frame.0),
            Place::SameFilled(word) => u64::from(word.0),
            Place::Compressed(key) | Place::Incompressible(key) => key.bits(),
            Place::Below(key) => key.bits(),
        };
        assert!(payload < 1 << PAYLOAD_BITS);
        Self(place.kind() as u64 | age.bits() << AGE_SHIFT | payload << PAYLOAD_SHIFT)
    }

    /// Where the page is.
    pub fn place(self) -> Place {
        let payload = self.0 >> PAYLOAD_SHIFT & ((1 << PAYLOAD_BITS) - 1);
        match self.0 & ((1 << KIND_BITS) - 1) {
            0 => Place::Untouched,
            1 => Place::Resident,
            2 => Place::Leaving(FrameIndex(payload as u32)),
            3 => Place::SameFilled(WordIndex(payload as u16)),
            4 => Place::Compressed(StoreKey::from_bits(payload)),
            5 => Place::Incompressible(StoreKey::from_bits(payload)),
            6 => Place::Below(BackingKey::from_bits(payload)),
            kind => panic!("a slot of kind {kind}: the page table is damaged"),
        }
    }

    /// How many more looks it survives.
    pub fn age(self) -> Age {
        Age::from_bits(self.0 >> AGE_SHIFT)
    }

    /// The same place with another age.
    #[must_use]
    pub fn with_age(self, age: Age) -> Self {
        self.with(AGE_SHIFT, Age::BITS, age.bits())
    }

    /// Another place of the page: its level and when it left stay, and its refusals until it is in one where they mean nothing.
    #[must_use]
    pub fn moved(self, place: Place, age: Age) -> Self {
        let moved = Self::new(place, age).with_level(self.level()).with_left(self.left());
        if place.has_refusals() { moved.with_refusals(self.refusals()) } else { moved }
    }

    /// The rounds that it has earned.
    pub fn level(self) -> Level {
        Level::from_bits(self.0 >> LEVEL_SHIFT)
    }

    /// The same place with another level.
    #[must_use]
    pub fn with_level(self, level: Level) -> Self {
        self.with(LEVEL_SHIFT, Level::BITS, level.bits())
    }

    /// How often in a row it has been refused.
    pub fn refusals(self) -> Refusals {
        if self.place().has_refusals() { Refusals::from_bits(self.0 >> REFUSALS_SHIFT) } else { Refusals::NONE }
    }

    /// The same resident or leaving page, refused so often.
    #[must_use]
    pub fn with_refusals(self, refusals: Refusals) -> Self {
        self.with(REFUSALS_SHIFT, Refusals::BITS, refusals.bits())
    }

    /// For how many rounds the hand spares it.
    pub fn spared(self) -> u32 {
        if self.place() == Place::Resident { (self.0 >> PAYLOAD_SHIFT) as u32 } else { 0 }
    }

    /// The same resident page, spared for so many rounds.
    #[must_use]
    pub fn with_spared(self, rounds: u32) -> Self {
        self.with(PAYLOAD_SHIFT, NUMBER_BITS, u64::from(rounds))
    }

    fn with(self, shift: u32, bits: u32, value: u64) -> Self {
        let mask = ((1 << bits) - 1) << shift;
        Self(self.0 & !mask | value << shift)
    }

    /// When the page left: about so many pages had left before.
    pub fn left(self) -> Departures {
        Departures((self.0 >> LEFT_SHIFT << Departures::UNIT_BITS) as u32)
    }

    /// The same place, left at about that time.
    #[must_use]
    pub fn with_left(self, left: Departures) -> Self {
        Self(self.0 & ((1 << LEFT_SHIFT) - 1) | u64::from(left.0 >> Departures::UNIT_BITS) << LEFT_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use policy::replacement::Arrival;

    use super::*;

    #[test]
    fn every_place_survives_its_slot() {
        let key = (1 << 36) - 1;
        let places = [
            Place::Untouched,
            Place::Resident,
            Place::Leaving(FrameIndex(u32::MAX)),
            Place::SameFilled(WordIndex(u16::MAX)),
            Place::Compressed(StoreKey::from_bits(key)),
            Place::Incompressible(StoreKey::from_bits(1)),
            Place::Below(BackingKey::from_bits(key)),
        ];
        assert_eq!(places.len(), Place::KINDS);
        for (kind, place) in places.into_iter().enumerate() {
            assert_eq!(place.kind(), kind);
            let slot = Slot::new(place, Age::BESIDE);
            assert_eq!(slot.place(), place);
            assert_eq!(slot.with_age(Age::TOUCHED).place(), place);
            let left = Departures((1 << Departures::BITS) - 32);
            let level = Level::from_bits(6);
            let stamped = slot.with_level(level).with_left(left).with_age(Age::TOUCHED);
            assert_eq!((stamped.place(), stamped.level(), stamped.left()), (place, level, left));
            assert!(place == Place::Untouched || slot.age() == Age::BESIDE);
        }
        assert_eq!(Slot::default().place(), Place::Untouched);
    }

    #[test]
    fn refusals_are_kept_until_a_page_gets_smaller() {
        let refusals = Refusals::NONE.after(Arrival::Refused).after(Arrival::Refused);
        let left = Departures(1 << 10);
        let slot = Slot::new(Place::Resident, Age::TOUCHED).with_left(left).with_refusals(refusals).with_spared(77);
        let told = |slot: Slot| (slot.place(), slot.refusals(), slot.spared(), slot.left());
        assert_eq!(told(slot), (Place::Resident, refusals, 77, left));
        assert_eq!(told(slot.with_age(Age::NONE)), told(slot));
        let leaving = Place::Leaving(FrameIndex(u32::MAX));
        assert_eq!(told(slot.moved(leaving, Age::NONE)), (leaving, refusals, 0, left));
        let key = Place::Compressed(StoreKey::from_bits((1 << 36) - 1));
        assert_eq!(told(slot.moved(leaving, Age::NONE).moved(key, Age::NONE)), (key, Refusals::NONE, 0, left));
    }

    #[test]
    fn departures_are_counted_round_the_end() {
        let then = Departures((1 << Departures::BITS) - 2);
        let now = (0..5).fold(then, |time, _| time.next());
        assert_eq!((now.since(then), then.since(then), now), (PageCount(5), PageCount(0), Departures(3)));
    }

    /// Up to 15 too many, never too few.
    #[test]
    fn a_slot_knows_to_sixteen_pages_when_its_page_left() {
        for number in [0, 1, 15, 16, 1000, (1 << Departures::BITS) - 1] {
            let left = Departures(number);
            let since = left.next().since(Slot::default().with_left(left).left());
            assert!((1..=16).contains(&since.0), "{number}: {since:?}");
        }
    }

    #[test]
    fn a_slot_is_eight_bytes() {
        assert_eq!(size_of::<Slot>(), 8);
    }
}
