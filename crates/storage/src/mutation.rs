//! Deliberate mistakes of the engines, switched on one at a time to show that the simulator would notice them.
//!
//! Each leaves out a flush or a check. They exist only under `cfg(test)` and the feature `mutations`; elsewhere
//! [`is`] is a constant `false` and the mistake is not compiled.

base::mutations! {
    /// Disk: a stripe is acknowledged before it is flushed.
    StripeUnflushed = "disk-stripe-unflushed",
    /// Disk: large records are not flushed before the stripe that refers to them.
    ExtentsUnflushed = "disk-extents-unflushed",
    /// Disk: images of pages are not flushed before the pages are written.
    SpareUnflushed = "disk-spare-unflushed",
    /// Disk: pages are not flushed before the ring forgets their entries.
    HomesUnflushed = "disk-homes-unflushed",
    /// Disk: the checksum of a sector of the ring is not looked at.
    SectorUnchecked = "disk-sector-unchecked",
    /// Disk: the checksum of a page's head is not looked at.
    PageUnchecked = "disk-page-unchecked",
    /// Disk: the checksum of a record is not looked at.
    RecordUnchecked = "disk-record-unchecked",
    /// Disk: a missing record of a forgotten shard is absent.
    LostIsAbsent = "disk-lost-is-absent",
    /// Disk: a scrub reads and does not verify.
    DiskScrubBlind = "disk-scrub-blind",
    /// Pmem: records are not written back from the cache.
    SlotUnwritten = "pmem-slot-unwritten",
    /// Pmem: a shard is forgotten without waiting until that is persistent.
    ForgottenUnfenced = "pmem-forgotten-unfenced",
    /// Pmem: a scrub reads and does not verify.
    PmemScrubBlind = "pmem-scrub-blind",
}
