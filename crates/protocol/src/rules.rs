//! The rules that make the protocol right. Without any one of them a run goes wrong.

/// A rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Pages leave through the program's userfaultfd, which refuses while a layout message is on its way (invariant 2 of
    /// docs/userfaultfd.md).
    MovesGoThroughTheProgramsOwn,
    /// Messages are read by who serves faults, and not between a look-up and its fill.
    TheServerReads,
    /// A page that is resident for us is asked for under the lock (invariant 5a).
    ResidentIsAskedUnderTheLock,
    /// A page that is there, and of which nothing is known, is not noted as resident: it may be about to be discarded
    /// (invariant 5b).
    WhatIsThereMayGo,
    /// What has been encoded is published only if the page is still in the frame that it was read from.
    PublishAsks,
    /// A move to where something is managed still is held back until no message is on its way (invariant 1a).
    TheDoubtfulIsHeldBack,
    /// So is one to where a scan has registered something and given up: its unmapping is told, too.
    TheRegisteredIsDoubtfulToo,
    /// From then on nothing is read for a while, so that a late message comes before anything else happens to that place.
    TheServerIsPatient,
    /// A page about to be discarded is not adopted by a scan.
    TheDiscardedIsNotAdopted,
    /// While the program forks the state does not change (invariant 9).
    AFrozenStateStays,
    /// A child follows the layout messages that its memory has seen, and no others (invariant 10).
    TheForkIsPlaced,
    /// What has been read after a child's memory was copied has not happened there, unless its mapping is gone.
    WhatIsReadLaterIsNotShared,
    /// What a child has below is not overwritten by its parent.
    SegmentsArePinned,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::MovesGoThroughTheProgramsOwn,
        Self::TheServerReads,
        Self::ResidentIsAskedUnderTheLock,
        Self::WhatIsThereMayGo,
        Self::PublishAsks,
        Self::TheDoubtfulIsHeldBack,
        Self::TheRegisteredIsDoubtfulToo,
        Self::TheServerIsPatient,
        Self::TheDiscardedIsNotAdopted,
        Self::AFrozenStateStays,
        Self::TheForkIsPlaced,
        Self::WhatIsReadLaterIsNotShared,
        Self::SegmentsArePinned,
    ];
}
