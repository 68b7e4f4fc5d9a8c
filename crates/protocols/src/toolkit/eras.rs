//! Eras of a shard. They date operations, so that those of an era can be declared over.
//!
//! A round moves all replicas from one era to the next, by the steps of [`Step`]. After it, no
//! message of an earlier era counts, however late it comes.

use types::{Malformed, Reader};

use super::fields::{wire_enum, wire_struct};

/// Far more eras than a shard can have: the next one never overflows.
const ERA_MAX: u64 = 1 << 56;

/// # Errors
/// If no shard can have come to this era.
pub fn checked(era: u64) -> Result<u64, Malformed> {
    if era < ERA_MAX { Ok(era) } else { Err(Malformed) }
}

/// # Errors
/// If these bytes are no era.
pub fn take_era(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    checked(reader.varint()?)
}

wire_struct! {
    /// The stored fields of a shard. Both only grow.
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
    pub struct Eras {
        /// Operations that begin here carry it.
        pub now: u64,
        /// Operations of eras below do not count here.
        pub closed: u64,
    }
}

impl Eras {
    /// Takes the larger fields. True if one has changed.
    pub fn raise(&mut self, other: Eras) -> bool {
        let before = *self;
        self.now = self.now.max(other.now);
        self.closed = self.closed.max(other.closed);
        *self != before
    }

    /// An era that has begun.
    #[must_use]
    pub fn begun(now: u64) -> Eras {
        Eras { now, closed: 0 }
    }

    /// # Errors
    /// If no shard can have come to these eras.
    pub fn checked(self) -> Result<Eras, Malformed> {
        Ok(Eras { now: checked(self.now)?, closed: checked(self.closed)? })
    }

    /// An era before which all others are over.
    #[must_use]
    pub fn closed(era: u64) -> Eras {
        Eras { now: era, closed: era }
    }
}

wire_enum! {
    /// A question to a node about a shard. It answers with its eras, once they are durable.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Step {
        1: Ask {},
        /// Operations begin in this era. Answered once all of earlier eras have ended there.
        2: Advance { era: u64 },
        /// No operation of an earlier era counts.
        3: Close { era: u64 },
    }
}

impl Step {
    /// # Errors
    /// If no shard can come to its era.
    pub fn checked(self) -> Result<Step, Malformed> {
        match self {
            Step::Ask {} => Ok(self),
            Step::Advance { era } | Step::Close { era } => checked(era).map(|_| self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eras_only_grow() {
        let mut eras = Eras::default();
        assert!(eras.raise(Eras::begun(3)));
        assert!(!eras.raise(Eras::begun(2)));
        assert!(eras.raise(Eras::closed(2)));
        assert_eq!(eras, Eras { now: 3, closed: 2 });
    }
}
