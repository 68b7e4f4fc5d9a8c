//! Deliberate mistakes of the engines, switched on one at a time to show that the simulator would notice them.
//!
//! Each leaves out a flush or a check. They exist only under the feature `mutations`; elsewhere [`is`] is a constant
//! `false` and the mistake is not compiled.

macro_rules! mutations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A flush or a check that can be left out.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Mutation {
            $($(#[$doc])* $variant,)*
        }

        impl Mutation {
            /// All of them.
            pub const ALL: &[Mutation] = &[$(Mutation::$variant,)*];

            /// The name on the command line and in tables.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Mutation::$variant => $name,)* }
            }

            #[must_use]
            pub fn by_name(name: &str) -> Option<Mutation> {
                Mutation::ALL.iter().copied().find(|mutation| mutation.name() == name)
            }
        }
    };
}

mutations! {
    /// Disk: a stripe is acknowledged before it is flushed.
    StripeUnflushed = "disk-stripe-unflushed",
    /// Disk: large records are not flushed before the stripe that refers to them.
    ExtentsUnflushed = "disk-extents-unflushed",
    /// Disk: images of pages are not flushed before the pages are written.
    SpareUnflushed = "disk-spare-unflushed",
    /// Disk: pages are not flushed before the ring forgets what went home.
    HomesUnflushed = "disk-homes-unflushed",
    /// Disk: the checksum of a sector of the ring is not looked at.
    SectorUnchecked = "disk-sector-unchecked",
    /// Disk: the checksum of a page's head is not looked at.
    PageUnchecked = "disk-page-unchecked",
    /// Disk: the checksum of a record is not looked at.
    RecordUnchecked = "disk-record-unchecked",
    /// Disk: what is missing from a forgotten shard is absent.
    LostIsAbsent = "disk-lost-is-absent",
    /// Pmem: records are not written back from the cache.
    SlotUnwritten = "pmem-slot-unwritten",
    /// Pmem: a shard is forgotten without waiting until that is persistent.
    ForgottenUnfenced = "pmem-forgotten-unfenced",
}

#[cfg(feature = "mutations")]
mod switch {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Switches one mutation on for this thread, or all off.
    pub fn set(mutation: Option<Mutation>) {
        ACTIVE.set(mutation);
    }

    /// True while this is left out.
    #[must_use]
    pub fn is(mutation: Mutation) -> bool {
        ACTIVE.get() == Some(mutation)
    }
}

#[cfg(not(feature = "mutations"))]
mod switch {
    use super::Mutation;

    /// Mutations are not compiled in: always false.
    #[must_use]
    #[inline(always)]
    pub fn is(_mutation: Mutation) -> bool {
        false
    }
}

pub use switch::*;
