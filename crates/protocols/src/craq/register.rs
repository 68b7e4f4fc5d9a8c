//! The stored state of one key: a value, the version that orders it, a clean flag, and the commands
//! that it includes.

use types::limits::{MEMBERS_MAX, ONCE_ENTRIES_MAX, ONCE_ENTRY_LEN_MAX};
use types::wire::put_varint;
use types::{Malformed, Reader, Reply, Serial, Wire};

use super::version::Version;
use crate::toolkit::content::Content;
use crate::toolkit::fields::Field;
use crate::uptime::Uptime;

/// One replica of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register {
    /// Never decreases.
    pub version: Version,
    /// The version of a deletion stays, or a delayed write would bring the value back.
    pub content: Content<Version>,
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
    /// `None`: it was too long to keep. Its command gets no answer if it comes again.
    pub reply: Option<Reply>,
}

impl Register {
    pub const ABSENT: Register = Register {
        version: Version::NONE,
        content: Content::DELETED,
        is_clean: true,
        ran: Vec::new(),
    };

    /// The same at another replica, in the place of the one held there.
    #[must_use]
    pub fn arrive(self, held: Option<&Register>, uptime: &dyn Uptime) -> Register {
        let content = self.content.arrive(held.map(|held| &held.content), uptime);
        Register { content, ..self }
    }

    /// A command that the value includes.
    #[must_use]
    pub fn find(&self, origin: Serial, seq: u64) -> Option<&Ran> {
        self.ran.iter().find(|ran| ran.origin == origin && ran.seq == seq)
    }

    /// Notes a command. A member has one on a key at a time, so its last one is enough.
    pub fn note(&mut self, ran: Ran) {
        self.ran.retain(|it| it.origin != ran.origin);
        self.ran.push(ran);
    }
}

/// Bytes of a reply that is kept for a command that comes again.
const REPLY_LEN_MAX: usize = 256;

/// The reply, if it is short enough to be kept.
#[must_use]
pub fn brief(reply: &Reply) -> Option<Reply> {
    (reply.len() <= REPLY_LEN_MAX).then(|| reply.clone())
}

/// Members of a configuration, and as many that have left since the last write.
const RAN_MAX: u64 = 2 * MEMBERS_MAX as u64;

// A record has room for them beside the largest value.
const _: () =
    assert!(RAN_MAX as usize * (REPLY_LEN_MAX + 64) <= ONCE_ENTRIES_MAX * ONCE_ENTRY_LEN_MAX);

impl Wire for Register {
    fn encode(&self, out: &mut Vec<u8>) {
        self.version.encode(out);
        self.content.put(out, self.is_clean);
        put_varint(out, self.ran.len() as u64);
        for ran in &self.ran {
            put_varint(out, u64::from(ran.origin.0));
            put_varint(out, ran.worker);
            put_varint(out, ran.seq);
            ran.reply.put(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Register, Malformed> {
        let version = Version::decode(reader)?;
        let (content, is_clean) = Content::take(reader)?;
        let count = reader.varint()?;
        if count > RAN_MAX {
            return Err(Malformed);
        }
        let ran: Result<Vec<Ran>, Malformed> = (0..count).map(|_| Ran::decode(reader)).collect();
        Ok(Register { version, content, is_clean, ran: ran? })
    }
}

impl Ran {
    fn decode(reader: &mut Reader<'_>) -> Result<Ran, Malformed> {
        let origin = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let (worker, seq) = (reader.varint()?, reader.varint()?);
        Ok(Ran { origin: Serial(origin), worker, seq, reply: Field::take(reader)? })
    }
}

#[cfg(test)]
mod tests {
    use types::Epoch;

    use super::*;
    use crate::toolkit::content::tests::contents;

    #[test]
    fn registers_come_back_from_their_bytes() {
        let version = Version { epoch: Epoch(300), number: 7 };
        let ran = Ran { origin: Serial(300), worker: 1, seq: 4, reply: Some(Reply::Integer(1)) };
        let long = Ran { origin: Serial(301), reply: None, ..ran.clone() };
        for content in contents(version) {
            for (is_clean, ran) in [(false, vec![]), (true, vec![ran.clone(), long.clone()])] {
                let register = Register { version, content: content.clone(), is_clean, ran };
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
        let mut register = Register::ABSENT;
        for (origin, seq) in [(1, 4), (2, 5), (1, 6)] {
            let reply = Some(Reply::Integer(seq as i64));
            register.note(Ran { origin: Serial(origin), worker: 0, seq, reply });
        }
        let reply = |origin, seq| register.find(Serial(origin), seq).map(|ran| ran.reply.clone());
        assert_eq!(reply(1, 4), None);
        assert_eq!(reply(1, 6), Some(Some(Reply::Integer(6))));
        assert_eq!(reply(2, 5), Some(Some(Reply::Integer(5))));
    }

    #[test]
    fn long_replies_are_not_kept() {
        assert_eq!(brief(&Reply::Integer(7)), Some(Reply::Integer(7)));
        assert_eq!(brief(&Reply::bulk(vec![b'v'; REPLY_LEN_MAX])), None);
    }
}
