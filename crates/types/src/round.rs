//! Ballots and rounds, which order attempts.

use std::fmt;

use crate::id::{Epoch, Incarnation, NodeId};
use crate::wire::{Malformed, Reader, Wire};

/// A ballot: `(epoch u20, number u36, node u16, incarnation u24)` in 96 bits, compared
/// lexicographically.
///
/// Two different values under one round destroy everything, so a ballot names the *start of a
/// process* that minted it, and every component of that process mints from one generator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ballot(Wide);

/// A round: a ballot and the number `k` of the proposal made under it. `Round::NONE` is below every
/// round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Round(Wide);

/// A number of 128 bits that needs the alignment of 64, high half first for the order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Wide {
    high: u64,
    low: u64,
}

impl Wide {
    const fn of(number: u128) -> Wide {
        Wide { high: (number >> 64) as u64, low: number as u64 }
    }

    const fn get(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }
}

impl Ballot {
    /// Below every minted ballot.
    pub const ZERO: Ballot = Ballot(Wide::of(0));
    /// Largest number; minting stops well below it.
    pub const NUMBER_MAX: u64 = (1 << 36) - 1;

    /// # Panics
    /// If a part does not fit its bits: wrapping would reuse a ballot.
    #[must_use]
    pub fn new(epoch: Epoch, number: u64, node: NodeId, incarnation: Incarnation) -> Ballot {
        assert!(epoch <= Epoch::MAX, "epoch {epoch:?} exceeds 20 bits");
        assert!(number <= Ballot::NUMBER_MAX, "ballot number {number} exceeds 36 bits");
        assert!(incarnation <= Incarnation::MAX, "incarnation {incarnation:?} exceeds 24 bits");
        Ballot(Wide::of(
            u128::from(epoch.0) << 76
                | u128::from(number) << 40
                | u128::from(node.0) << 24
                | u128::from(incarnation.0),
        ))
    }

    /// The largest ballot of `number`: at or above everything that could have been minted up to it.
    #[must_use]
    pub fn ceiling(epoch: Epoch, number: u64) -> Ballot {
        Ballot::new(epoch, number, NodeId(u16::MAX), Incarnation::MAX)
    }

    #[must_use]
    pub fn epoch(self) -> Epoch {
        Epoch((self.0.get() >> 76) as u32 & Epoch::MAX.0)
    }

    #[must_use]
    pub fn number(self) -> u64 {
        (self.0.get() >> 40) as u64 & Ballot::NUMBER_MAX
    }

    #[must_use]
    pub fn node(self) -> NodeId {
        NodeId((self.0.low >> 24) as u16)
    }

    #[must_use]
    pub fn incarnation(self) -> Incarnation {
        Incarnation(self.0.low as u32 & Incarnation::MAX.0)
    }

    #[must_use]
    pub fn round(self, k: u32) -> Round {
        Round(Wide::of(self.0.get() << 32 | u128::from(k)))
    }
}

impl Round {
    /// No state was accepted.
    pub const NONE: Round = Round(Wide::of(0));

    #[must_use]
    pub fn ballot(self) -> Ballot {
        Ballot(Wide::of(self.0.get() >> 32))
    }

    #[must_use]
    pub fn k(self) -> u32 {
        self.0.low as u32
    }

    #[must_use]
    pub fn is_none(self) -> bool {
        self == Round::NONE
    }
}

impl Wire for Ballot {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.get().to_le_bytes()[..12]);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Ballot, Malformed> {
        let mut bytes = [0; 16];
        bytes[..12].copy_from_slice(reader.take(12)?);
        Ok(Ballot(Wide::of(u128::from_le_bytes(bytes))))
    }
}

impl Wire for Round {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.get().to_le_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Round, Malformed> {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(reader.take(16)?);
        Ok(Round(Wide::of(u128::from_le_bytes(bytes))))
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Ballot::ZERO {
            return write!(f, "b-");
        }
        write!(f, "b{}.{}.{}.{}", self.epoch(), self.number(), self.node(), self.incarnation())
    }
}

impl fmt::Debug for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return write!(f, "r-");
        }
        write!(f, "{:?}/{}", self.ballot(), self.k())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_and_order_is_lexicographic() {
        let low = Ballot::new(Epoch(1), 7, NodeId(3), Incarnation(9));
        assert_eq!(
            (low.epoch(), low.number(), low.node(), low.incarnation()),
            (Epoch(1), 7, NodeId(3), Incarnation(9))
        );
        assert!(low < Ballot::new(Epoch(1), 8, NodeId(1), Incarnation(0)));
        assert!(
            Ballot::ceiling(Epoch(1), 99) < Ballot::new(Epoch(2), 0, NodeId(1), Incarnation(0))
        );
        assert!(
            low.round(u32::MAX) < Ballot::new(Epoch(1), 7, NodeId(3), Incarnation(10)).round(1)
        );
        assert_eq!(low.round(5).ballot(), low);
        assert_eq!(low.round(5).k(), 5);
    }

    #[test]
    fn bytes_come_back() {
        let ballot = Ballot::ceiling(Epoch::MAX, Ballot::NUMBER_MAX);
        let mut out = Vec::new();
        ballot.encode(&mut out);
        ballot.round(3).encode(&mut out);
        let mut reader = Reader::new(&out);
        assert_eq!(Ballot::decode(&mut reader), Ok(ballot));
        assert_eq!(Round::decode(&mut reader), Ok(ballot.round(3)));
        assert!(reader.is_empty());
    }
}
