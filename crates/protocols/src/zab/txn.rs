//! Transactions: changes of state that a leader computed, in their place of the total order.

use types::{Incarnation, Key, Malformed, NodeId, Reader, Reply};

use super::epoch::{Epoch, Zxid};
use crate::toolkit::content::Content;
use crate::toolkit::fields::{Field, wire_struct};

wire_struct! {
    /// The worker that took in a client's write, since its process started.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub struct Stream {
        pub node: NodeId,
        pub incarnation: Incarnation,
        pub worker: u64,
        /// Copies of the leader's state that the node has made since.
        pub copies: u64,
    }
}

/// In the place of a number: the end of a time to live.
pub const OF_NO_CLIENT: u64 = 0;

/// The content of a register, or none for a command that leaves it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effect(pub Option<Content<Zxid>>);

impl Field for Effect {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.as_ref().unwrap_or(&Content::DELETED).put(out, self.0.is_some());
    }

    fn take(reader: &mut Reader<'_>) -> Result<Effect, Malformed> {
        let (content, is_there) = Content::take(reader)?;
        Ok(Effect(is_there.then_some(content)))
    }
}

wire_struct! {
    /// The effect of one command. It replaces a register whole. So every node applies the same
    /// change, and may apply it again.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Txn {
        pub stream: Stream,
        /// Counts the writes of its stream in this epoch from one.
        pub number: u64,
        pub key: Key,
        pub effect: Effect,
        pub reply: Reply,
    }
}

wire_struct! {
    /// A record of the log.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Entry {
        pub epoch: Epoch,
        /// `None`: the last one that a copied state includes.
        pub txn: Option<Txn>,
    }
}

impl Entry {
    /// About how many bytes it has.
    #[must_use]
    pub fn size(&self) -> usize {
        let content = |txn: &Txn| {
            let value = txn.effect.0.as_ref().and_then(|content| content.value.as_ref());
            txn.key.bytes().len() + value.map_or(0, bytes::Bytes::len) + txn.reply.len() + 64
        };
        self.txn.as_ref().map_or(32, content)
    }
}

#[cfg(test)]
pub mod tests {
    use bytes::Bytes;
    use types::Wire;

    use super::*;

    /// One with a value of this length.
    pub fn txn(number: u64, len: usize) -> Txn {
        let stream = Stream { node: NodeId(1), incarnation: Incarnation(1), worker: 0, copies: 0 };
        let value = Some(Bytes::from(vec![b'v'; len]));
        let effect = Effect(Some(Content { value, ..Content::DELETED }));
        Txn { stream, number, key: Key::new(b"k"), effect, reply: Reply::Null }
    }

    /// A read in the order has a reply and no effect. Its log must know how long it is.
    #[test]
    fn size_counts_all_that_is_long() {
        let size = |txn| Entry { epoch: Epoch::default(), txn: Some(txn) }.size();
        let reply = Reply::Bulk(Bytes::from(vec![b'v'; 10_000]));
        for long in [
            txn(1, 10_000),
            Txn { reply, ..txn(1, 0) },
            Txn { key: Key::new(&[b'k'; 10_000]), ..txn(1, 0) },
        ] {
            let entry = Entry { epoch: Epoch::default(), txn: Some(long.clone()) };
            let len = entry.to_bytes().len();
            assert!(size(long) >= len && size(txn(1, 0)) < 200);
        }
    }
}
