//! The stored state of one key: a value, the version that orders it, a clean flag, and the commands
//! that it includes.

use bytes::Bytes;
use types::limits::MEMBERS_MAX;
use types::wire::put_varint;
use types::{Malformed, Reader, Reply, Serial, Wire};

use super::version::Version;

/// One replica of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register {
    /// Never decreases.
    pub version: Version,
    /// `None`: deleted. The version stays, or a delayed write would bring the value back.
    pub value: Option<Bytes>,
    /// Every member holds this version or a newer one durably, so this value may be read.
    pub is_clean: bool,
    /// The last command of each member that the value includes and that may come again.
    pub ran: Vec<Ran>,
}

/// A steered command that took effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ran {
    pub origin: Serial,
    /// The worker of the origin that numbered it.
    pub worker: u64,
    pub seq: u64,
    pub reply: Reply,
}

impl Register {
    /// The reply to a command that the value includes.
    #[must_use]
    pub fn reply_to(&self, origin: Serial, seq: u64) -> Option<&Reply> {
        let ran = self.ran.iter().find(|ran| ran.origin == origin && ran.seq == seq);
        ran.map(|ran| &ran.reply)
    }

    /// Notes a command. A member has one on a key at a time, so its last one is enough.
    pub fn note(&mut self, ran: Ran) {
        self.ran.retain(|it| it.origin != ran.origin);
        self.ran.push(ran);
    }
}

const IS_CLEAN: u8 = 1;
const HAS_VALUE: u8 = 2;
/// Members of a configuration, and as many that have left since the last write.
const RAN_MAX: u64 = 2 * MEMBERS_MAX as u64;

impl Wire for Register {
    fn encode(&self, out: &mut Vec<u8>) {
        self.version.encode(out);
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        out.push(flag(self.is_clean, IS_CLEAN) | flag(self.value.is_some(), HAS_VALUE));
        if let Some(value) = &self.value {
            value.encode(out);
        }
        put_varint(out, self.ran.len() as u64);
        for ran in &self.ran {
            put_varint(out, u64::from(ran.origin.0));
            put_varint(out, ran.worker);
            put_varint(out, ran.seq);
            ran.reply.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Register, Malformed> {
        let version = Version::decode(reader)?;
        let flags = reader.u8()?;
        if flags & !(IS_CLEAN | HAS_VALUE) != 0 {
            return Err(Malformed);
        }
        let value = if flags & HAS_VALUE != 0 { Some(Bytes::decode(reader)?) } else { None };
        let count = reader.varint()?;
        if count > RAN_MAX {
            return Err(Malformed);
        }
        let ran: Result<Vec<Ran>, Malformed> = (0..count).map(|_| Ran::decode(reader)).collect();
        Ok(Register { version, value, is_clean: flags & IS_CLEAN != 0, ran: ran? })
    }
}

impl Ran {
    fn decode(reader: &mut Reader<'_>) -> Result<Ran, Malformed> {
        let origin = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let (worker, seq) = (reader.varint()?, reader.varint()?);
        Ok(Ran { origin: Serial(origin), worker, seq, reply: Reply::decode(reader)? })
    }
}

#[cfg(test)]
mod tests {
    use types::Epoch;

    use super::*;

    #[test]
    fn registers_come_back_from_their_bytes() {
        let version = Version { epoch: Epoch(300), number: 7 };
        let ran = Ran { origin: Serial(300), worker: 1, seq: 4, reply: Reply::Integer(1) };
        for value in [None, Some(Bytes::new()), Some(Bytes::from_static(b"v"))] {
            for (is_clean, ran) in [(false, vec![]), (true, vec![ran.clone()])] {
                let register = Register { version, value: value.clone(), is_clean, ran };
                let bytes = register.to_bytes();
                for len in 0..bytes.len() {
                    assert_eq!(Register::from_bytes(&bytes[..len]), Err(Malformed));
                }
                assert_eq!(Register::from_bytes(&bytes), Ok(register));
            }
        }
    }

    #[test]
    fn last_command_of_a_member_counts() {
        let mut register =
            Register { version: Version::NONE, value: None, is_clean: true, ran: Vec::new() };
        for (origin, seq) in [(1, 4), (2, 5), (1, 6)] {
            let reply = Reply::Integer(seq as i64);
            register.note(Ran { origin: Serial(origin), worker: 0, seq, reply });
        }
        assert_eq!(register.reply_to(Serial(1), 4), None);
        assert_eq!(register.reply_to(Serial(1), 6), Some(&Reply::Integer(6)));
        assert_eq!(register.reply_to(Serial(2), 5), Some(&Reply::Integer(5)));
    }
}
