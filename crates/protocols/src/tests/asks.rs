//! A few string commands as an [`Update`], and their place in the checker's model.

use base::Millis;
use bytes::Bytes;
use checker::model::kv::{ExpiryTag, KvInput, KvOutput};
use types::{
    Access, Applied, Change, Clock, Command, ExpiryChange, Reply, TimeToLive, Update, View,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    Get,
    Set(u8),
    /// With a time to live of [`TTL`].
    SetExpiring(u8),
    /// With a Unix deadline after [`TTL`].
    SetUntil(u8),
    Append(u8),
    /// The same, without a change of the time to live.
    Keep(u8),
    /// The same with a reply of [`LONG`] bytes: each is the new length.
    AppendTold(u8),
    SetIfAbsent(u8),
    Delete,
    /// A delete whose reply does not depend on the state.
    Remove,
}

pub(super) struct Asks;

pub(super) const LONG: usize = 300;

pub(super) const TTL: Millis = Millis(100);

impl Ask {
    pub fn command(self) -> Command {
        let (access, body) = match self {
            Ask::Get => (Access::Read, vec![b'g']),
            Ask::Set(byte) => (Access::Write, vec![b's', byte]),
            Ask::SetExpiring(byte) => (Access::Write, vec![b'x', byte]),
            Ask::SetUntil(byte) => (Access::Write, vec![b'u', byte]),
            Ask::Append(byte) => (Access::Update, vec![b'a', byte]),
            Ask::Keep(byte) => (Access::Update, vec![b'k', byte]),
            Ask::AppendTold(byte) => (Access::Update, vec![b'l', byte]),
            Ask::SetIfAbsent(byte) => (Access::Update, vec![b'n', byte]),
            Ask::Delete => (Access::Update, vec![b'd']),
            Ask::Remove => (Access::Write, vec![b'r']),
        };
        Command::new(access, Bytes::from(body))
    }

    pub fn input(self) -> KvInput {
        let one = |byte: u8| [byte].as_slice().into();
        match self {
            Ask::Get => KvInput::Get,
            Ask::Set(byte) => KvInput::Set(one(byte)),
            Ask::SetExpiring(byte) | Ask::SetUntil(byte) => {
                KvInput::SetExpiring(one(byte), ExpiryTag(byte.into()))
            }
            Ask::Append(byte) | Ask::AppendTold(byte) | Ask::Keep(byte) => {
                KvInput::Append(one(byte))
            }
            Ask::SetIfAbsent(byte) => KvInput::SetIfAbsent(one(byte)),
            Ask::Delete => KvInput::Del,
            Ask::Remove => KvInput::Expire(None),
        }
    }

    pub fn output(self, reply: &Reply) -> KvOutput {
        match reply {
            Reply::Simple(_) => KvOutput::Done,
            Reply::Boolean(false) => KvOutput::Refused,
            Reply::Integer(number) => KvOutput::Integer(*number),
            Reply::Bulk(told) if matches!(self, Ask::AppendTold(_)) => {
                KvOutput::Integer(i64::from(told[0]))
            }
            Reply::Bulk(value) => KvOutput::Value(Some(value[..].into())),
            Reply::Null => KvOutput::Value(None),
            other => panic!("{other:?} is no reply of these tests"),
        }
    }
}

impl Update for Asks {
    fn apply(&self, view: View<'_>, body: &[u8], clock: Clock) -> Applied {
        let set = |value: Vec<u8>, reply| {
            let expiry = ExpiryChange::Set(TimeToLive::Never);
            Applied { change: Change::Put { value: Bytes::from(value), expiry }, reply }
        };
        match (body[0], view.value) {
            (b'g', value) => Applied::unchanged(Reply::copy_or_null(value)),
            (b'a', value) => {
                let value = [value.unwrap_or_default(), &body[1..]].concat();
                let reply = Reply::Integer(value.len() as i64);
                set(value, reply)
            }
            (b'l', value) => {
                let value = [value.unwrap_or_default(), &body[1..]].concat();
                let reply = Reply::bulk(vec![value.len() as u8; LONG]);
                set(value, reply)
            }
            (b'k', value) => {
                let value = [value.unwrap_or_default(), &body[1..]].concat();
                let reply = Reply::Integer(value.len() as i64);
                let value = Bytes::from(value);
                Applied { change: Change::Put { value, expiry: ExpiryChange::Keep }, reply }
            }
            (b'x', _) => {
                let expiry = ExpiryChange::Set(TimeToLive::After(TTL));
                let value = Bytes::copy_from_slice(&body[1..]);
                Applied { change: Change::Put { value, expiry }, reply: Reply::OK }
            }
            (b'u', _) => {
                let unix = Millis(clock.unix.0 + TTL.0);
                let expiry = ExpiryChange::Set(TimeToLive::At { unix });
                let value = Bytes::copy_from_slice(&body[1..]);
                Applied { change: Change::Put { value, expiry }, reply: Reply::OK }
            }
            (b's', _) | (b'n', None) => set(body[1..].to_vec(), Reply::OK),
            (b'n', Some(_)) => Applied::unchanged(Reply::Boolean(false)),
            (b'r', _) => Applied { change: Change::Delete, reply: Reply::OK },
            (b'd', Some(_)) => Applied { change: Change::Delete, reply: Reply::Integer(1) },
            (b'd', None) => Applied::unchanged(Reply::Integer(0)),
            other => panic!("{other:?} is no command of these tests"),
        }
    }
}
