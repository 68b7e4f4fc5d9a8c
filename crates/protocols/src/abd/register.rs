//! The replica's side: one version and one value, and the rule by which they grow.

use types::wire::put_varint;
use types::{Malformed, Reader, Wire};

use crate::toolkit::content::Content;
use crate::toolkit::eras::take_era;
use crate::toolkit::stamp::Stamp;
use crate::uptime::Uptime;

/// Orders the values of one register.
///
/// A write with a time to live has two: its value, then its end. Every replica knows the end, since
/// it needs no stamp of its own, and lies below each later write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Version {
    /// Of the write, or of the version below, if that is later. So a write lies above all versions
    /// of earlier eras, even those whose registers were removed.
    pub era: u64,
    /// Names the write.
    pub stamp: Stamp,
    /// The time to live of the write is over.
    pub has_ended: bool,
}

impl Version {
    /// Below every minted version, for a register that was never written.
    pub const NONE: Version = Version::of(0, Stamp::NONE);

    /// The version of the value of a write.
    #[must_use]
    pub const fn of(era: u64, stamp: Stamp) -> Version {
        Version { era, stamp, has_ended: false }
    }
}

impl Wire for Version {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.era);
        self.stamp.encode(out);
        out.push(u8::from(self.has_ended));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Version, Malformed> {
        let (era, stamp) = (take_era(reader)?, Stamp::decode(reader)?);
        match reader.u8()? {
            flag @ 0..=1 => Ok(Version { era, stamp, has_ended: flag == 1 }),
            _ => Err(Malformed),
        }
    }
}

/// The stored state of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register {
    /// Never decreases.
    pub version: Version,
    /// The version of a deletion stays until no delayed store can bring the value back.
    pub content: Content<Stamp>,
}

impl Register {
    /// A register that does not exist.
    pub const ABSENT: Register = Register { version: Version::NONE, content: Content::DELETED };

    /// The successor of this value once its time to live is over.
    #[must_use]
    pub fn ended(&self) -> Register {
        let version = Version { has_ended: true, ..self.version };
        Register { version, content: Content::DELETED }
    }

    /// The same at another replica, in the place of the one held there.
    #[must_use]
    pub fn arrive(self, held: Option<&Register>, uptime: &dyn Uptime) -> Register {
        let content = self.content.arrive(held.map(|held| &held.content), uptime);
        Register { content, ..self }
    }

    /// Stores iff `newer` is newer. True when it was. [ABD, server side]
    pub fn store(&mut self, newer: Register, uptime: &dyn Uptime) -> bool {
        let is_newer = newer.version > self.version;
        if is_newer {
            *self = newer.arrive(Some(self), uptime);
        }
        is_newer
    }
}

impl Wire for Register {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.version.era);
        self.version.stamp.encode(out);
        self.content.put(out, self.version.has_ended);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Register, Malformed> {
        let (era, stamp) = (take_era(reader)?, Stamp::decode(reader)?);
        let (content, has_ended) = Content::take(reader)?;
        if has_ended && !content.is_empty() {
            return Err(Malformed);
        }
        Ok(Register { version: Version { era, stamp, has_ended }, content })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use base::Millis;
    use types::{Incarnation, NodeId};

    use super::*;
    use crate::toolkit::content::tests::contents;

    pub fn stamp(number: u64) -> Stamp {
        Stamp { number, writer: NodeId(1), incarnation: Incarnation(1) }
    }

    /// A register with a value, which has a time to live of 300 ms or none.
    pub fn register(number: u64, expires: bool) -> Register {
        let content = contents(stamp(number)).swap_remove(if expires { 2 } else { 1 });
        Register { version: Version::of(2, stamp(number)), content }
    }

    #[test]
    fn only_a_newer_version_is_stored() {
        let uptime = &Millis(0);
        let mut held = register(2, false);
        assert!(!held.store(register(1, false), uptime));
        assert!(!held.store(register(2, true), uptime));
        assert_eq!(held, register(2, false));
        let ended = held.ended();
        assert!(held.store(ended.clone(), uptime));
        assert!(!held.store(register(2, false), uptime), "an ended value stays away");
        assert_eq!(held, ended);
        assert!(held.store(register(3, false), uptime));
    }

    #[test]
    fn registers_come_back_from_their_bytes() {
        for register in [Register::ABSENT, register(2, false), register(300, true)] {
            for register in [register.ended(), register] {
                let bytes = register.to_bytes();
                for len in 0..bytes.len() {
                    assert_eq!(Register::from_bytes(&bytes[..len]), Err(Malformed));
                }
                assert_eq!(Register::from_bytes(&bytes), Ok(register));
            }
        }
    }
}
