//! The replica's side: one version and one value, and the rule by which they grow.

use bytes::Bytes;
use types::{Malformed, Reader, Wire};

use super::message::{Report, Reported, Version, put_value, take_value};

/// The stored state of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register {
    /// Never decreases.
    pub version: Version,
    /// `None`: deleted. The version stays, or a delayed store would bring the value back.
    pub value: Option<Bytes>,
}

impl Register {
    /// Stores iff `version` is newer. True when it was. [ABD, server side]
    pub fn store(&mut self, version: Version, value: Option<Bytes>) -> bool {
        let is_newer = version > self.version;
        if is_newer {
            *self = Register { version, value };
        }
        is_newer
    }

    #[must_use]
    pub fn report(&self, want_value: bool) -> Report {
        let value = match &self.value {
            None => Reported::Nothing,
            Some(value) if want_value => Reported::Value(value.clone()),
            Some(_) => Reported::Omitted,
        };
        Report { version: self.version, value }
    }
}

impl Wire for Register {
    fn encode(&self, out: &mut Vec<u8>) {
        self.version.encode(out);
        put_value(out, self.value.as_ref());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Register, Malformed> {
        Ok(Register { version: Version::decode(reader)?, value: take_value(reader)? })
    }
}

#[cfg(test)]
mod tests {
    use types::{Incarnation, NodeId};

    use super::*;

    #[test]
    fn only_a_newer_version_is_stored() {
        let version = |number| Version { number, writer: NodeId(1), incarnation: Incarnation(1) };
        let mut register = Register { version: version(2), value: Some(Bytes::from_static(b"b")) };
        assert!(!register.store(version(1), Some(Bytes::from_static(b"a"))));
        assert!(!register.store(version(2), Some(Bytes::from_static(b"x"))));
        assert_eq!(register.value.as_deref(), Some(&b"b"[..]));
        assert!(register.store(version(3), None));
        assert_eq!(Register::from_bytes(&register.to_bytes()), Ok(register));
    }
}
