//! The stored state of one key: a value, the version that orders it, and a valid flag.

use bytes::Bytes;
use types::wire::put_varint;
use types::{Malformed, NodeId, Reader, Wire};

/// Orders the values of one register; their word: timestamp. [HERMES 3.1]
///
/// A plain write raises the number by two and a read-modify-write by one. So a write beats every
/// read-modify-write that started from the same value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Version {
    pub number: u64,
    /// The coordinator that chose the version.
    pub writer: NodeId,
}

impl Version {
    /// Below every chosen version, for a register that was never written.
    pub const NONE: Version = Version { number: 0, writer: NodeId(0) };

    /// The version of a change by `writer` to the value of this version.
    #[must_use]
    pub fn next(self, writer: NodeId, is_rmw: bool) -> Version {
        Version { number: self.number + if is_rmw { 1 } else { 2 }, writer }
    }
}

/// One replica of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register {
    /// Never decreases.
    pub version: Version,
    /// `None`: deleted. The version stays, or a delayed write would bring the value back.
    pub value: Option<Bytes>,
    /// Written by a command whose effect depended on the state.
    pub is_rmw: bool,
    /// Every member holds this version or a newer one durably, so this value may be read.
    pub is_valid: bool,
}

impl Wire for Version {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        put_varint(out, u64::from(self.writer.0));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Version, Malformed> {
        let number = reader.varint()?;
        let writer = NodeId(u16::try_from(reader.varint()?).map_err(|_| Malformed)?);
        Ok(Version { number, writer })
    }
}

const IS_RMW: u8 = 1;
const IS_VALID: u8 = 2;
const HAS_VALUE: u8 = 4;

impl Wire for Register {
    fn encode(&self, out: &mut Vec<u8>) {
        self.version.encode(out);
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        out.push(
            flag(self.is_rmw, IS_RMW)
                | flag(self.is_valid, IS_VALID)
                | flag(self.value.is_some(), HAS_VALUE),
        );
        if let Some(value) = &self.value {
            value.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Register, Malformed> {
        let version = Version::decode(reader)?;
        let flags = reader.u8()?;
        if flags & !(IS_RMW | IS_VALID | HAS_VALUE) != 0 {
            return Err(Malformed);
        }
        let value = if flags & HAS_VALUE != 0 { Some(Bytes::decode(reader)?) } else { None };
        Ok(Register {
            version,
            value,
            is_rmw: flags & IS_RMW != 0,
            is_valid: flags & IS_VALID != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_beats_every_rmw_from_its_value() {
        let base = Version { number: 4, writer: NodeId(2) };
        assert!(base.next(NodeId(9), true) < base.next(NodeId(1), false));
        assert!(base.next(NodeId(1), true) < base.next(NodeId(2), true));
        assert!(base < base.next(NodeId(1), true));
    }

    #[test]
    fn registers_come_back_from_their_bytes() {
        let version = Version { number: 300, writer: NodeId(7) };
        for value in [None, Some(Bytes::new()), Some(Bytes::from_static(b"v"))] {
            for (is_rmw, is_valid) in [(false, false), (false, true), (true, false), (true, true)] {
                let register = Register { version, value: value.clone(), is_rmw, is_valid };
                let bytes = register.to_bytes();
                for len in 0..bytes.len() {
                    assert_eq!(Register::from_bytes(&bytes[..len]), Err(Malformed));
                }
                assert_eq!(Register::from_bytes(&bytes), Ok(register));
            }
        }
    }
}
