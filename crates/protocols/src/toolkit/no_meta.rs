//! No fields of a shard.

use types::{Malformed, Reader, Wire};

/// The stored state of a shard, for protocols that keep none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoMeta;

impl Wire for NoMeta {
    fn encode(&self, _out: &mut Vec<u8>) {}

    fn decode(_reader: &mut Reader<'_>) -> Result<NoMeta, Malformed> {
        Ok(NoMeta)
    }
}
