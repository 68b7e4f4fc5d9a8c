//! Stamps: names that are minted once, and their order.

use types::wire::put_varint;
use types::{Incarnation, Malformed, NodeId, Reader, Wire};

/// Orders the versions of one register, or the ballots for its next one. Names the start of the
/// process that minted it. So a node that forgot its last stamp cannot reuse it for another value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp {
    pub number: u64,
    pub writer: NodeId,
    pub incarnation: Incarnation,
}

impl Stamp {
    /// Below every minted stamp.
    pub const NONE: Stamp = Stamp { number: 0, writer: NodeId(0), incarnation: Incarnation(0) };
}

/// Far more steps than a register or a process can take: the next one never overflows.
const NUMBER_MAX: u64 = 1 << 62;

/// Reads a number that others count up from.
///
/// # Errors
/// If no count can have come so far.
pub fn take_number(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let number = reader.varint()?;
    if number < NUMBER_MAX { Ok(number) } else { Err(Malformed) }
}

impl Wire for Stamp {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        put_varint(out, u64::from(self.writer.0));
        put_varint(out, u64::from(self.incarnation.0));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Stamp, Malformed> {
        Ok(Stamp {
            number: take_number(reader)?,
            writer: NodeId(u16::try_from(reader.varint()?).map_err(|_| Malformed)?),
            incarnation: Incarnation(u32::try_from(reader.varint()?).map_err(|_| Malformed)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_without_a_successor_is_malformed() {
        let stamp = |number| Stamp { number, ..Stamp::NONE };
        let highest = stamp(NUMBER_MAX - 1);
        assert_eq!(Stamp::from_bytes(&highest.to_bytes()), Ok(highest));
        for number in [NUMBER_MAX, u64::MAX] {
            assert_eq!(Stamp::from_bytes(&stamp(number).to_bytes()), Err(Malformed));
        }
    }

    #[test]
    fn stamps_order_by_number_writer_and_start() {
        let stamp = |number, writer, incarnation| Stamp {
            number,
            writer: NodeId(writer),
            incarnation: Incarnation(incarnation),
        };
        assert!(Stamp::NONE < stamp(1, 1, 1));
        assert!(stamp(1, 9, 9) < stamp(2, 1, 1));
        assert!(stamp(2, 1, 9) < stamp(2, 2, 1));
        assert!(stamp(2, 2, 1) < stamp(2, 2, 2));
    }
}
