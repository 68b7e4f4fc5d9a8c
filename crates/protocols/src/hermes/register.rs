//! The stored state of one key: a value, the version that orders it, and a valid flag.

use types::{Malformed, Reader, Wire};

use super::version::Version;
use crate::toolkit::content::Content;
use crate::uptime::Uptime;

/// One replica of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register {
    /// Never decreases.
    pub version: Version,
    /// The version of a deletion stays until no delayed write can bring the value back.
    pub content: Content<Version>,
    /// Every member holds this version or a newer one durably, so this value may be read.
    pub is_valid: bool,
}

impl Register {
    /// The same at another replica, in the place of the one held there.
    #[must_use]
    pub fn arrive(self, held: Option<&Register>, uptime: &dyn Uptime) -> Register {
        let content = self.content.arrive(held.map(|held| &held.content), uptime);
        Register { content, ..self }
    }
}

impl Wire for Register {
    fn encode(&self, out: &mut Vec<u8>) {
        self.version.encode(out);
        self.content.put(out, self.is_valid);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Register, Malformed> {
        let version = Version::decode(reader)?;
        let (content, is_valid) = Content::take(reader)?;
        Ok(Register { version, content, is_valid })
    }
}

#[cfg(test)]
mod tests {
    use types::{Epoch, Serial};

    use super::super::version::Era;
    use super::*;
    use crate::toolkit::content::tests::contents;

    #[test]
    fn registers_come_back_from_their_bytes() {
        let start = Version::before(Era { epoch: Epoch(9), round: 700 });
        let version =
            Version { number: 300, writer: Serial(7), step: 200, stepper: Serial(300), ..start };
        for content in contents(version) {
            for is_valid in [false, true] {
                let register = Register { version, content: content.clone(), is_valid };
                let bytes = register.to_bytes();
                for len in 0..bytes.len() {
                    assert_eq!(Register::from_bytes(&bytes[..len]), Err(Malformed));
                }
                assert_eq!(Register::from_bytes(&bytes), Ok(register));
            }
        }
    }
}
