//! The stored state of one key, and that of a node.

use types::wire::put_varint;
use types::{Malformed, Reader, Wire};

use super::epoch::{Epoch, Zxid};
use crate::toolkit::content::Content;
use crate::toolkit::fields::{wire_fields, wire_struct};

/// The value of one key, as the last transaction on it left it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register {
    pub index: u64,
    /// A deletion stays only while the state is copied: it may be newer than the copy.
    pub content: Content<Zxid>,
}

impl Wire for Register {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.index);
        self.content.put(out, false);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Register, Malformed> {
        let index = reader.varint()?;
        let (content, flag) = Content::take(reader)?;
        if flag { Err(Malformed) } else { Ok(Register { index, content }) }
    }
}

wire_fields!(Register);

wire_struct! {
    /// Fields of shard 0: the state of a node besides its log. Other shards have none.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Meta {
        /// No earlier epoch is joined or founded any more.
        pub accepted: Epoch,
        /// The epoch whose leader's history this node has.
        pub current: Epoch,
        /// Registers are being replaced by copies: the node has no history.
        pub is_partial: bool,
        /// The node lost its promises: it votes again once it has a leader's state.
        pub has_no_vote: bool,
    }
}
