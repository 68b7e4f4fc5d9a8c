//! Commands on one key as bytes: what travels between nodes and is run by [`Interpreter`](crate::Interpreter).
//!
//! Nodes of different versions meet here, so the numbers never change. Decoding is strict: a body with
//! something behind its last field is not understood.

use base::Millis;
use bytes::Bytes;
use types::wire::{Malformed, Reader, put_blob, put_varint};
use types::{ExpiryChange, TimeToLive};

use crate::replies::concat;

/// Longest operand of a condition; a value is at most a bulk string long.
const OPERAND_LEN_MAX: usize = 512 * 1024 * 1024;

/// One command on one key, parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation<'a> {
    Get,
    /// `MGET`: a value of another type is null.
    GetOrNull,
    StrLen,
    Digest,
    GetRange {
        start: i64,
        end: i64,
    },
    GetDelete,
    GetExpire(Expiry),
    Set(Set<'a>),
    Append(&'a [u8]),
    SetRange {
        offset: u64,
        patch: &'a [u8],
    },
    Increment(i64),
    /// The increment as it was written.
    IncrementFloat(&'a [u8]),
    Delete,
    /// `DELEX`.
    DeleteIf(Condition<'a>),
    /// `DELIFEQ`.
    DeleteIfEqual(&'a [u8]),
    Exists,
    Type,
    TimeLeft {
        unit: Unit,
        form: Form,
    },
    Expire(Expire),
    Persist,
    Inspect(Inspect),
    MemoryUsage {
        key_len: u64,
    },
}

/// What `OBJECT` tells of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Inspect {
    Encoding,
    Frequency,
    IdleTime,
    RefCount,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Set<'a> {
    pub(crate) condition: Condition<'a>,
    pub(crate) reply: SetReply,
    pub(crate) expiry: Expiry,
    pub(crate) value: &'a [u8],
}

/// Overwrites whatever there is, without a time to live.
pub(crate) const PLAIN_SET: Set<'static> =
    Set { condition: Condition::Always, reply: SetReply::Done, expiry: Expiry::Never, value: b"" };

/// What [`PLAIN_SET`] encodes to, before its value: the most frequent body has a way of its own.
const PLAIN_SET_HEAD: &[u8] = &[verb::SET, 0, 0, 1];

/// What must hold before a state is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition<'a> {
    Always,
    /// `NX`
    Absent,
    /// `XX`
    Present,
    Equal(&'a [u8]),
    NotEqual(&'a [u8]),
    DigestEqual(&'a [u8]),
    DigestNotEqual(&'a [u8]),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SetReply {
    /// `OK`, or null when the condition does not hold.
    Done,
    /// The old value, whatever happens.
    Old,
    /// 1, or 0 when the condition does not hold.
    Count,
}

/// What becomes of the time to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expiry {
    Keep,
    Never,
    After(Millis),
    At { unix: Millis },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Seconds,
    Milliseconds,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// The span that is left.
    Span,
    /// The Unix time of the end.
    Deadline,
}

/// `EXPIRE` and its kin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Expire {
    pub(crate) form: Form,
    /// May be negative: then the key goes at once.
    pub(crate) millis: i64,
    pub(crate) only_if: ExpireConditions,
}

/// All of them must hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ExpireConditions {
    /// `NX`: it has no time to live yet.
    pub(crate) without: bool,
    /// `XX`: it has one.
    pub(crate) with: bool,
    /// `GT`: the new one is longer.
    pub(crate) longer: bool,
    /// `LT`: the new one is shorter.
    pub(crate) shorter: bool,
}

impl Expiry {
    pub(crate) fn change(self) -> ExpiryChange {
        match self {
            Expiry::Keep => ExpiryChange::Keep,
            Expiry::Never => ExpiryChange::Set(TimeToLive::Never),
            Expiry::After(span) => ExpiryChange::Set(TimeToLive::After(span)),
            Expiry::At { unix } => ExpiryChange::Set(TimeToLive::At { unix }),
        }
    }
}

/// First byte of a body.
mod verb {
    pub(super) const GET: u8 = 1;
    pub(super) const GET_OR_NULL: u8 = 2;
    pub(super) const STR_LEN: u8 = 3;
    pub(super) const DIGEST: u8 = 4;
    pub(super) const GET_RANGE: u8 = 5;
    pub(super) const GET_DELETE: u8 = 6;
    pub(super) const GET_EXPIRE: u8 = 7;
    pub(super) const SET: u8 = 8;
    pub(super) const APPEND: u8 = 9;
    pub(super) const SET_RANGE: u8 = 10;
    pub(super) const INCREMENT: u8 = 11;
    pub(super) const INCREMENT_FLOAT: u8 = 12;
    pub(super) const DELETE: u8 = 13;
    pub(super) const DELETE_IF: u8 = 14;
    pub(super) const DELETE_IF_EQUAL: u8 = 15;
    pub(super) const EXISTS: u8 = 16;
    pub(super) const TYPE: u8 = 17;
    pub(super) const TIME_LEFT: u8 = 18;
    pub(super) const EXPIRE: u8 = 19;
    pub(super) const PERSIST: u8 = 20;
    pub(super) const INSPECT: u8 = 21;
    pub(super) const MEMORY_USAGE: u8 = 22;
}

impl<'a> Operation<'a> {
    /// The body of a command that does this; without allocation where there are no fields.
    pub(crate) fn body(&self) -> Bytes {
        match *self {
            Operation::Get => Bytes::from_static(&[verb::GET]),
            Operation::GetOrNull => Bytes::from_static(&[verb::GET_OR_NULL]),
            Operation::StrLen => Bytes::from_static(&[verb::STR_LEN]),
            Operation::Digest => Bytes::from_static(&[verb::DIGEST]),
            Operation::GetDelete => Bytes::from_static(&[verb::GET_DELETE]),
            Operation::Delete => Bytes::from_static(&[verb::DELETE]),
            Operation::Exists => Bytes::from_static(&[verb::EXISTS]),
            Operation::Type => Bytes::from_static(&[verb::TYPE]),
            Operation::Persist => Bytes::from_static(&[verb::PERSIST]),
            Operation::Inspect(what) => vec![verb::INSPECT, what as u8].into(),
            Operation::MemoryUsage { key_len } => {
                let mut out = vec![verb::MEMORY_USAGE];
                put_varint(&mut out, key_len);
                out.into()
            }
            Operation::GetRange { start, end } => {
                let mut out = vec![verb::GET_RANGE];
                put_i64(&mut out, start);
                put_i64(&mut out, end);
                out.into()
            }
            Operation::GetExpire(expiry) => {
                let mut out = vec![verb::GET_EXPIRE];
                expiry.encode(&mut out);
                out.into()
            }
            Operation::Set(set) => set.body(),
            Operation::Append(tail) => with_rest(verb::APPEND, tail),
            Operation::SetRange { offset, patch } => {
                let mut head = vec![verb::SET_RANGE];
                put_varint(&mut head, offset);
                concat(&[&head, patch])
            }
            Operation::Increment(by) => {
                let mut out = vec![verb::INCREMENT];
                put_i64(&mut out, by);
                out.into()
            }
            Operation::IncrementFloat(by) => with_rest(verb::INCREMENT_FLOAT, by),
            Operation::DeleteIf(condition) => {
                let mut out = vec![verb::DELETE_IF];
                condition.encode(&mut out);
                out.into()
            }
            Operation::DeleteIfEqual(value) => with_rest(verb::DELETE_IF_EQUAL, value),
            Operation::TimeLeft { unit, form } => {
                vec![verb::TIME_LEFT, unit as u8, form as u8].into()
            }
            Operation::Expire(expire) => {
                let mut out = vec![verb::EXPIRE, expire.form as u8, expire.only_if.bits()];
                put_i64(&mut out, expire.millis);
                out.into()
            }
        }
    }

    /// # Errors
    /// [`Malformed`] when this version does not write such a body.
    pub(crate) fn decode(body: &'a [u8]) -> Result<Operation<'a>, Malformed> {
        let mut reader = Reader::new(body);
        let operation = match reader.u8()? {
            verb::GET => Operation::Get,
            verb::GET_OR_NULL => Operation::GetOrNull,
            verb::STR_LEN => Operation::StrLen,
            verb::DIGEST => Operation::Digest,
            verb::GET_DELETE => Operation::GetDelete,
            verb::DELETE => Operation::Delete,
            verb::EXISTS => Operation::Exists,
            verb::TYPE => Operation::Type,
            verb::PERSIST => Operation::Persist,
            verb::INSPECT => Operation::Inspect(Inspect::decode(reader.u8()?)?),
            verb::MEMORY_USAGE => Operation::MemoryUsage { key_len: reader.varint()? },
            verb::GET_RANGE => {
                Operation::GetRange { start: take_i64(&mut reader)?, end: take_i64(&mut reader)? }
            }
            verb::GET_EXPIRE => Operation::GetExpire(Expiry::decode(&mut reader)?),
            verb::SET => Operation::Set(Set::decode(&mut reader)?),
            verb::APPEND => Operation::Append(take_rest(&mut reader)?),
            verb::SET_RANGE => {
                Operation::SetRange { offset: reader.varint()?, patch: take_rest(&mut reader)? }
            }
            verb::INCREMENT => Operation::Increment(take_i64(&mut reader)?),
            verb::INCREMENT_FLOAT => Operation::IncrementFloat(take_rest(&mut reader)?),
            verb::DELETE_IF => Operation::DeleteIf(Condition::decode(&mut reader)?),
            verb::DELETE_IF_EQUAL => Operation::DeleteIfEqual(take_rest(&mut reader)?),
            verb::TIME_LEFT => Operation::TimeLeft {
                unit: Unit::decode(reader.u8()?)?,
                form: Form::decode(reader.u8()?)?,
            },
            verb::EXPIRE => Operation::Expire(Expire {
                form: Form::decode(reader.u8()?)?,
                only_if: ExpireConditions::from_bits(reader.u8()?)?,
                millis: take_i64(&mut reader)?,
            }),
            _ => return Err(Malformed),
        };
        if reader.is_empty() { Ok(operation) } else { Err(Malformed) }
    }
}

impl<'a> Set<'a> {
    fn body(&self) -> Bytes {
        if *self == (Set { value: self.value, ..PLAIN_SET }) {
            return concat(&[PLAIN_SET_HEAD, self.value]);
        }
        let mut head = vec![verb::SET];
        self.condition.encode(&mut head);
        head.push(self.reply as u8);
        self.expiry.encode(&mut head);
        concat(&[&head, self.value])
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Set<'a>, Malformed> {
        Ok(Set {
            condition: Condition::decode(reader)?,
            reply: match reader.u8()? {
                0 => SetReply::Done,
                1 => SetReply::Old,
                2 => SetReply::Count,
                _ => return Err(Malformed),
            },
            expiry: Expiry::decode(reader)?,
            value: take_rest(reader)?,
        })
    }
}

impl<'a> Condition<'a> {
    fn encode(self, out: &mut Vec<u8>) {
        let (tag, operand) = match self {
            Condition::Always => (0, None),
            Condition::Absent => (1, None),
            Condition::Present => (2, None),
            Condition::Equal(value) => (3, Some(value)),
            Condition::NotEqual(value) => (4, Some(value)),
            Condition::DigestEqual(digest) => (5, Some(digest)),
            Condition::DigestNotEqual(digest) => (6, Some(digest)),
        };
        out.push(tag);
        if let Some(operand) = operand {
            put_blob(out, operand);
        }
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Condition<'a>, Malformed> {
        Ok(match reader.u8()? {
            0 => Condition::Always,
            1 => Condition::Absent,
            2 => Condition::Present,
            3 => Condition::Equal(reader.blob(OPERAND_LEN_MAX)?),
            4 => Condition::NotEqual(reader.blob(OPERAND_LEN_MAX)?),
            5 => Condition::DigestEqual(reader.blob(OPERAND_LEN_MAX)?),
            6 => Condition::DigestNotEqual(reader.blob(OPERAND_LEN_MAX)?),
            _ => return Err(Malformed),
        })
    }
}

impl Expiry {
    fn encode(self, out: &mut Vec<u8>) {
        let (tag, time) = match self {
            Expiry::Keep => (0, None),
            Expiry::Never => (1, None),
            Expiry::After(span) => (2, Some(span)),
            Expiry::At { unix } => (3, Some(unix)),
        };
        out.push(tag);
        if let Some(time) = time {
            put_varint(out, time.0);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Expiry, Malformed> {
        Ok(match reader.u8()? {
            0 => Expiry::Keep,
            1 => Expiry::Never,
            2 => Expiry::After(Millis(reader.varint()?)),
            3 => Expiry::At { unix: Millis(reader.varint()?) },
            _ => return Err(Malformed),
        })
    }
}

impl Unit {
    fn decode(byte: u8) -> Result<Unit, Malformed> {
        [Unit::Seconds, Unit::Milliseconds].get(usize::from(byte)).copied().ok_or(Malformed)
    }
}

impl Form {
    fn decode(byte: u8) -> Result<Form, Malformed> {
        [Form::Span, Form::Deadline].get(usize::from(byte)).copied().ok_or(Malformed)
    }
}

impl Inspect {
    fn decode(byte: u8) -> Result<Inspect, Malformed> {
        let all = [Inspect::Encoding, Inspect::Frequency, Inspect::IdleTime, Inspect::RefCount];
        all.get(usize::from(byte)).copied().ok_or(Malformed)
    }
}

impl ExpireConditions {
    fn bits(self) -> u8 {
        let bit = |is_set: bool, at: u8| u8::from(is_set) << at;
        bit(self.without, 0) | bit(self.with, 1) | bit(self.longer, 2) | bit(self.shorter, 3)
    }

    fn from_bits(bits: u8) -> Result<ExpireConditions, Malformed> {
        let has = |at: u8| bits >> at & 1 == 1;
        let conditions =
            ExpireConditions { without: has(0), with: has(1), longer: has(2), shorter: has(3) };
        if conditions.bits() == bits { Ok(conditions) } else { Err(Malformed) }
    }
}

fn with_rest(verb: u8, rest: &[u8]) -> Bytes {
    concat(&[&[verb], rest])
}

/// The last field needs no length.
fn take_rest<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    reader.take(reader.rest().len())
}

fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn take_i64(reader: &mut Reader<'_>) -> Result<i64, Malformed> {
    Ok(reader.u64()?.cast_signed())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(operation: Operation<'_>, bytes: &[u8]) {
        assert_eq!(operation.body().as_ref(), bytes, "{operation:?}");
        assert_eq!(Operation::decode(bytes), Ok(operation));
    }

    #[test]
    fn bytes_never_change() {
        check(Operation::Get, &[1]);
        check(
            Operation::GetRange { start: 1, end: -1 },
            &[5, 1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255],
        );
        let set = Set {
            condition: Condition::Always,
            reply: SetReply::Done,
            expiry: Expiry::Never,
            value: b"v",
        };
        check(Operation::Set(set), b"\x08\x00\x00\x01v");
        let set = Set {
            condition: Condition::Equal(b"old"),
            reply: SetReply::Old,
            expiry: Expiry::After(Millis(300)),
            value: b"",
        };
        check(Operation::Set(set), b"\x08\x03\x03old\x01\x02\xac\x02");
        check(Operation::SetRange { offset: 300, patch: b"ab" }, b"\x0a\xac\x02ab");
        check(Operation::Increment(-2), b"\x0b\xfe\xff\xff\xff\xff\xff\xff\xff");
        check(Operation::DeleteIf(Condition::DigestNotEqual(b"d")), b"\x0e\x06\x01d");
        check(Operation::TimeLeft { unit: Unit::Milliseconds, form: Form::Deadline }, &[18, 1, 1]);
        check(Operation::Inspect(Inspect::RefCount), &[21, 3]);
        check(Operation::MemoryUsage { key_len: 300 }, b"\x16\xac\x02");
        let only_if = ExpireConditions { with: true, shorter: true, ..Default::default() };
        check(
            Operation::Expire(Expire { form: Form::Span, millis: 5, only_if }),
            &[19, 0, 10, 5, 0, 0, 0, 0, 0, 0, 0],
        );
    }

    #[test]
    fn what_a_newer_version_may_write_is_not_understood() {
        for body in [
            &b""[..],
            &[0],
            &[1, 0],
            &[21, 4],
            &[23],
            &[8, 7, 0, 0],
            &[19, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(Operation::decode(body), Err(Malformed), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn what_decodes_encodes_the_same(body in prop::collection::vec(any::<u8>(), 0..24)) {
            if let Ok(operation) = Operation::decode(&body) {
                let again = operation.body();
                prop_assert_eq!(Operation::decode(&again), Ok(operation));
            }
        }
    }
}
