//! The stored state of one key: a value, the version that orders it, and a valid flag.

use bytes::Bytes;
use types::{Malformed, Reader, Wire};

use super::version::Version;

/// One replica of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register {
    /// Never decreases.
    pub version: Version,
    /// `None`: deleted. The version stays, or a delayed write would bring the value back.
    pub value: Option<Bytes>,
    /// Every member holds this version or a newer one durably, so this value may be read.
    pub is_valid: bool,
}

const IS_VALID: u8 = 1;
const HAS_VALUE: u8 = 2;

impl Wire for Register {
    fn encode(&self, out: &mut Vec<u8>) {
        self.version.encode(out);
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        out.push(flag(self.is_valid, IS_VALID) | flag(self.value.is_some(), HAS_VALUE));
        if let Some(value) = &self.value {
            value.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Register, Malformed> {
        let version = Version::decode(reader)?;
        let flags = reader.u8()?;
        if flags & !(IS_VALID | HAS_VALUE) != 0 {
            return Err(Malformed);
        }
        let value = if flags & HAS_VALUE != 0 { Some(Bytes::decode(reader)?) } else { None };
        Ok(Register { version, value, is_valid: flags & IS_VALID != 0 })
    }
}

#[cfg(test)]
mod tests {
    use types::Serial;

    use super::*;

    #[test]
    fn registers_come_back_from_their_bytes() {
        let version = Version { number: 300, writer: Serial(7), step: 200, stepper: Serial(300) };
        for value in [None, Some(Bytes::new()), Some(Bytes::from_static(b"v"))] {
            for is_valid in [false, true] {
                let register = Register { version, value: value.clone(), is_valid };
                let bytes = register.to_bytes();
                for len in 0..bytes.len() {
                    assert_eq!(Register::from_bytes(&bytes[..len]), Err(Malformed));
                }
                assert_eq!(Register::from_bytes(&bytes), Ok(register));
            }
        }
    }
}
