//! A few string commands as an [`Update`], and their place in the checker's model.

use base::Millis;
use bytes::Bytes;
use checker::model::kv::{KvInput, KvOutput};
use types::{
    Access, Applied, Change, Clock, Command, ExpiryChange, Once, Reply, TimeToLive, Update, View,
};

/// The commands of these tests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    Get,
    /// A read that changes: it answers the value and deletes it.
    Take,
    Append(&'static str),
    AppendByte(u8),
    SetIfAbsent(u8),
    SetIfEqual(Vec<u8>, u8),
    Expiring {
        value: u8,
        millis: u8,
    },
    Delete,
    /// Safe to repeat: commands with the same line run at most once.
    Once(Line, Box<Ask>),
}

/// Names a command under `ONCE`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Line {
    pub session: u8,
    pub seq: u64,
}

/// How long a line is remembered, without the time added for requests in progress. Longer than
/// random schedules.
const WINDOW: Millis = Millis(400_000);

pub(super) struct Strings;

impl Ask {
    pub(super) fn once(self, session: u8, seq: u64) -> Ask {
        Ask::Once(Line { session, seq }, Box::new(self))
    }

    pub(super) fn line(&self) -> Option<Line> {
        match self {
            Ask::Once(line, _) => Some(*line),
            _ => None,
        }
    }

    pub(super) fn command(&self) -> Command {
        let (access, body) = match self {
            Ask::Get => (Access::Read, b"g".to_vec()),
            Ask::Take => (Access::Read, b"t".to_vec()),
            Ask::Append(text) => (Access::Update, [b"a", text.as_bytes()].concat()),
            Ask::AppendByte(byte) => (Access::Update, vec![b'a', *byte]),
            Ask::SetIfAbsent(byte) => (Access::Update, vec![b'n', *byte]),
            Ask::SetIfEqual(expected, byte) => {
                (Access::Update, [&[b'c', *byte], expected.as_slice()].concat())
            }
            Ask::Expiring { value, millis } => (Access::Write, vec![b'x', *value, *millis]),
            Ask::Delete => (Access::Update, b"d".to_vec()),
            Ask::Once(Line { session, seq }, ask) => {
                let session = Bytes::copy_from_slice(&[*session]);
                return ask.command().under(Once { session, seq: *seq, window: WINDOW });
            }
        };
        Command::new(access, Bytes::from(body))
    }

    pub(super) fn input(&self, tag: u64) -> KvInput {
        let one = |byte: &u8| [*byte].as_slice().into();
        match self {
            Ask::Get => KvInput::Get,
            Ask::Take => KvInput::GetDel,
            Ask::Append(text) => KvInput::Append((*text).into()),
            Ask::AppendByte(byte) => KvInput::Append(one(byte)),
            Ask::SetIfAbsent(byte) => KvInput::SetIfAbsent(one(byte)),
            Ask::SetIfEqual(expected, byte) => {
                KvInput::SetIfEqual { expected: expected.as_slice().into(), new: one(byte) }
            }
            Ask::Expiring { value, .. } => {
                KvInput::SetExpiring(one(value), checker::model::kv::ExpiryTag(tag))
            }
            Ask::Delete => KvInput::Del,
            Ask::Once(_, ask) => ask.input(tag),
        }
    }

    pub(super) fn output(&self, reply: &Reply) -> KvOutput {
        match (self, reply) {
            (Ask::Once(_, ask), reply) => ask.output(reply),
            (_, Reply::Simple(_)) => KvOutput::Done,
            (_, Reply::Boolean(false)) => KvOutput::Refused,
            (_, Reply::Integer(number)) => KvOutput::Integer(*number),
            (_, Reply::Bulk(value)) => KvOutput::Value(Some(value[..].into())),
            (_, Reply::Null) => KvOutput::Value(None),
            other => panic!("{other:?} is no reply of these tests"),
        }
    }
}

impl Update for Strings {
    fn apply(&self, view: View<'_>, body: &[u8], _clock: Clock) -> Applied {
        let put = |value: Vec<u8>, ttl: Option<u8>| Applied {
            change: Change::Put {
                value: Bytes::from(value),
                expiry: match ttl {
                    Some(ttl) => ExpiryChange::Set(TimeToLive::After(Millis(u64::from(ttl)))),
                    None => ExpiryChange::Set(TimeToLive::Never),
                },
            },
            reply: Reply::OK,
        };
        let refused = || Applied::unchanged(Reply::Boolean(false));
        match (body[0], view.value) {
            (b'g', value) => Applied::unchanged(Reply::copy_or_null(value)),
            (b't', Some(value)) => Applied { change: Change::Delete, reply: Reply::copy(value) },
            (b't', None) => Applied::unchanged(Reply::Null),
            (b'a', value) => {
                let value = [value.unwrap_or_default(), &body[1..]].concat();
                let reply = Reply::Integer(value.len() as i64);
                let change = Change::Put { value: Bytes::from(value), expiry: ExpiryChange::Keep };
                Applied { change, reply }
            }
            (b'n', None) => put(body[1..].to_vec(), None),
            (b'c', Some(value)) if value == &body[2..] => put(vec![body[1]], None),
            (b'n' | b'c', _) => refused(),
            (b'x', _) => put(vec![body[1]], Some(body[2])),
            (b'q', Some(value)) if value == &body[1..] => {
                Applied { change: Change::Delete, reply: Reply::Integer(1) }
            }
            (b'q', _) => refused(),
            (b'd', Some(_)) => Applied { change: Change::Delete, reply: Reply::Integer(1) },
            (b'd', None) => Applied::unchanged(Reply::Integer(0)),
            other => panic!("{other:?} is no command of these tests"),
        }
    }
}
