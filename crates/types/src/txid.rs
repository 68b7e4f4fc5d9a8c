//! Names of transactions.

use crate::id::{Incarnation, NodeId};
use crate::wire::{Malformed, Reader, Wire};

/// Names one attempt of a transaction, and orders attempts: the lower one has priority.
///
/// No two attempts share one: a node counts those of each incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Txid {
    /// Milliseconds of Unix time at the coordinator when the transaction began. It decides priority
    /// only, so clocks need not agree.
    pub start: u64,
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub counter: u64,
}

impl Txid {
    /// Bytes of an encoded id.
    pub const LEN: usize = 22;

    /// The counter of a worker's transaction with this number. Workers of a node count apart.
    #[must_use]
    pub const fn counter(number: u64, worker: u64) -> u64 {
        number << 8 | worker
    }

    /// The worker of its node that coordinates it.
    #[must_use]
    pub const fn worker(self) -> u8 {
        self.counter as u8
    }
}

impl Wire for Txid {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.start.to_le_bytes());
        out.extend_from_slice(&self.node.0.to_le_bytes());
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(&self.counter.to_le_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Txid, Malformed> {
        let (start, node) = (reader.u64()?, NodeId(reader.u16()?));
        let (incarnation, counter) = (Incarnation(reader.u32()?), reader.u64()?);
        if incarnation > Incarnation::MAX {
            return Err(Malformed);
        }
        Ok(Txid { start, node, incarnation, counter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn txid(start: u64, node: u16, incarnation: u32, counter: u64) -> Txid {
        Txid { start, node: NodeId(node), incarnation: Incarnation(incarnation), counter }
    }

    #[test]
    fn older_transactions_come_first() {
        let ids = [txid(1, 9, 9, 9), txid(2, 1, 9, 9), txid(2, 2, 1, 9), txid(2, 2, 2, 1)];
        assert!(ids.is_sorted() && ids[2] < ids[3]);
    }

    #[test]
    fn bytes_come_back() {
        let id = txid(u64::MAX, u16::MAX, Incarnation::MAX.0, u64::MAX);
        assert_eq!(id.to_bytes().len(), Txid::LEN);
        assert_eq!(Txid::from_bytes(&id.to_bytes()), Ok(id));
        assert_eq!(Txid::from_bytes(&txid(1, 1, 1 << 24, 1).to_bytes()), Err(Malformed));
    }
}
