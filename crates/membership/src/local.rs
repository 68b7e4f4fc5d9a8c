//! The durable record of a group on each node.

use types::wire::{Malformed, Reader, Wire, put_varint};
use types::{Epoch, ImageId};

const VERSION: u8 = 1;

/// The content of a group's stores under their image id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Content {
    /// Unknown: to be erased before it is used.
    Stale,
    /// Erased, and never installed since.
    Blank,
    /// A shadow's copy.
    Partial,
    /// It was a full member's.
    Whole,
}

/// A node's durable record of one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalRecord {
    /// The highest epoch for which this node has sealed the ones before. It never falls.
    pub promised: Epoch,
    pub image: ImageId,
    pub content: Content,
    /// The last epoch installed as a full member with this image.
    pub joined: Epoch,
}

impl Content {
    fn code(self) -> u8 {
        match self {
            Content::Stale => 0,
            Content::Blank => 1,
            Content::Partial => 2,
            Content::Whole => 3,
        }
    }
}

impl Wire for Content {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.code());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Content, Malformed> {
        match reader.u8()? {
            0 => Ok(Content::Stale),
            1 => Ok(Content::Blank),
            2 => Ok(Content::Partial),
            3 => Ok(Content::Whole),
            _ => Err(Malformed),
        }
    }
}

impl Wire for LocalRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_varint(out, u64::from(self.promised.0));
        out.extend(self.image.0.to_le_bytes());
        self.content.encode(out);
        put_varint(out, u64::from(self.joined.0));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<LocalRecord, Malformed> {
        if reader.u8()? != VERSION {
            return Err(Malformed);
        }
        let promised = epoch(reader)?;
        let image = ImageId(reader.u64()?);
        let content = Content::decode(reader)?;
        Ok(LocalRecord { promised, image, content, joined: epoch(reader)? })
    }
}

/// An epoch that fits in its 20 bits.
pub(crate) fn epoch(reader: &mut Reader<'_>) -> Result<Epoch, Malformed> {
    let epoch = Epoch(u32::try_from(reader.varint()?).map_err(|_| Malformed)?);
    if epoch <= Epoch::MAX { Ok(epoch) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_from_their_bytes() {
        for content in [Content::Stale, Content::Blank, Content::Partial, Content::Whole] {
            let record =
                LocalRecord { promised: Epoch(300), image: ImageId(4), content, joined: Epoch(2) };
            let bytes = record.to_bytes();
            for len in 0..bytes.len() {
                assert_eq!(LocalRecord::from_bytes(&bytes[..len]), Err(Malformed));
            }
            assert_eq!(LocalRecord::from_bytes(&bytes), Ok(record));
        }
    }
}
