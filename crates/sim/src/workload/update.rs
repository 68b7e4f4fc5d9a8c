//! The simulator's own commands: a string per key, as in the checker's `kv` model, in a few bytes.
//!
//! The language `Redis` runs the real commands; these are faster and need no parser.
//! Requests on collections are the real commands here, too.

use base::Millis;
use bytes::Bytes;
use checker::model::collection::CollectionInput;
use checker::model::kv::{self, ExpiryTag, KvInput, KvOutput};
use commands::Interpreter;
use types::wire::{put_blob, put_varint};
use types::{
    Access, Applied, Change, Clock, Command, ExpiryChange, Key, Malformed, Reader, Reply,
    TimeToLive, Update, View,
};

use crate::clients::Ended;
use crate::workload::operation::{Input, Output};
use crate::workload::script::Verb;
use crate::workload::{collection, redis};

const GET: u8 = 1;
const SET: u8 = 2;
const SET_EXPIRING: u8 = 3;
const SET_IF_ABSENT: u8 = 4;
const SET_IF_EQUAL: u8 = 5;
const GET_SET: u8 = 6;
const GET_DEL: u8 = 7;
const DEL: u8 = 8;
const EXISTS: u8 = 9;
const STR_LEN: u8 = 10;
const INCR_BY: u8 = 11;
const APPEND: u8 = 12;
const REMOVE: u8 = 13;
const ACQUIRE: u8 = 14;
const RELEASE: u8 = 15;
/// A command of the product follows.
const REAL: u8 = 16;
const EXPIRE_IN: u8 = 17;
const PERSIST: u8 = 18;

const NOT_AN_INTEGER: &[u8] = b"ERR not an integer";
const OVERFLOW: &[u8] = b"ERR would overflow";
const NOT_UNDERSTOOD: &[u8] = b"ERR not understood";

/// Longest argument.
const LEN_MAX: usize = 1 << 20;

/// Encodes a command. `ttl_millis` is that of an expiring value.
#[must_use]
pub fn encode(input: &KvInput, ttl_millis: u64) -> Command {
    let mut body = Vec::with_capacity(32);
    let access = match input {
        KvInput::Get => op(&mut body, GET, Access::Read),
        KvInput::Exists => op(&mut body, EXISTS, Access::Read),
        KvInput::StrLen => op(&mut body, STR_LEN, Access::Read),
        KvInput::Set(value) => op_with(&mut body, SET, value, Access::Write),
        KvInput::SetExpiring(value, ExpiryTag(_)) => {
            let access = op_with(&mut body, SET_EXPIRING, value, Access::Write);
            put_varint(&mut body, ttl_millis);
            access
        }
        KvInput::SetIfAbsent(value) => op_with(&mut body, SET_IF_ABSENT, value, Access::Update),
        KvInput::SetIfEqual { expected, new } => {
            let access = op_with(&mut body, SET_IF_EQUAL, expected, Access::Update);
            put_blob(&mut body, new.as_slice());
            access
        }
        KvInput::GetSet(value) => op_with(&mut body, GET_SET, value, Access::Update),
        KvInput::GetDel => op(&mut body, GET_DEL, Access::Update),
        KvInput::Del => op(&mut body, DEL, Access::Update),
        KvInput::IncrBy(by) => {
            let access = op(&mut body, INCR_BY, Access::Update);
            body.extend_from_slice(&by.to_le_bytes());
            access
        }
        KvInput::Append(more) => op_with(&mut body, APPEND, more, Access::Update),
        KvInput::ExpireIn(ExpiryTag(_)) => {
            let access = op(&mut body, EXPIRE_IN, Access::Update);
            put_varint(&mut body, ttl_millis);
            access
        }
        KvInput::Persist => op(&mut body, PERSIST, Access::Update),
        // A delete whose reply the model does not judge.
        KvInput::Expire(_) => op(&mut body, REMOVE, Access::Delete),
    };
    Command::new(access, Bytes::from(body))
}

/// The same for any request, and for a step of a script.
#[must_use]
pub fn encode_step(verb: Verb, input: &Input, ttl_millis: u64) -> Command {
    let input = match input {
        Input::Text(input) => input,
        Input::Collection(input) => return real(input),
        Input::Transaction(_) => unreachable!("sessions run transactions"),
    };
    if verb == Verb::Ordered {
        let Command { body, .. } = encode(input, ttl_millis);
        return Command::new(Access::OrderedRead, body);
    }
    let mut body = Vec::with_capacity(32);
    match (verb, input) {
        (Verb::Acquire, KvInput::SetIfAbsent(value)) => {
            op_with(&mut body, ACQUIRE, value, Access::Update);
            put_varint(&mut body, ttl_millis);
        }
        (Verb::Release, KvInput::SetIfEqual { expected, .. }) => {
            op_with(&mut body, RELEASE, expected, Access::Update);
        }
        _ => return encode(input, ttl_millis),
    }
    Command::new(Access::Update, Bytes::from(body))
}

/// A command on one key is the same for all keys.
fn real(input: &CollectionInput) -> Command {
    let words = collection::words(input, &Key::new(b"k"));
    let command = redis::command(&words).expect("each request is a command on one key");
    Command::new(command.access, Bytes::from([&[REAL], &command.body[..]].concat()))
}

fn op(body: &mut Vec<u8>, op: u8, access: Access) -> Access {
    body.push(op);
    access
}

fn op_with(body: &mut Vec<u8>, op: u8, value: &kv::Bytes, access: Access) -> Access {
    body.push(op);
    put_blob(body, value.as_slice());
    access
}

/// The outcome of a request with this reply; `None` for one that [`SimUpdate`] never gives.
#[must_use]
pub fn ended(input: &Input, reply: &Reply) -> Option<Ended> {
    match input {
        Input::Text(_) => output(reply).map(|output| Ended::Returned(Output::Text(output))),
        Input::Collection(input) => collection::ended(input, reply),
        Input::Transaction(_) => None,
    }
}

/// The meaning of a reply to a request on a string.
#[must_use]
pub fn output(reply: &Reply) -> Option<KvOutput> {
    Some(match reply {
        Reply::Simple(_) => KvOutput::Done,
        Reply::Boolean(false) => KvOutput::Refused,
        Reply::Null => KvOutput::Value(None),
        Reply::Bulk(value) => KvOutput::Value(Some(kv::Bytes::from(&value[..]))),
        Reply::Integer(value) => KvOutput::Integer(*value),
        Reply::Error(text) if text == NOT_AN_INTEGER => KvOutput::NotAnInteger,
        Reply::Error(text) if text == OVERFLOW => KvOutput::Overflow,
        _ => return None,
    })
}

const DONE: Reply = Reply::OK;
const ABSENT: &str = "ABSENT";
const REFUSED: Reply = Reply::Boolean(false);

/// Runs the commands of [`encode`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SimUpdate;

impl Update for SimUpdate {
    fn apply(&self, view: View<'_>, body: &[u8], clock: Clock) -> Applied {
        if let [REAL, body @ ..] = body {
            return Interpreter::default().apply(view, body, clock);
        }
        apply(view, body).unwrap_or_else(|Malformed| error(NOT_UNDERSTOOD))
    }
}

fn apply(view: View<'_>, body: &[u8]) -> Result<Applied, Malformed> {
    let mut reader = Reader::new(body);
    let found = view.value;
    Ok(match reader.u8()? {
        GET => Applied::unchanged(Reply::copy_or_null(found)),
        EXISTS => Applied::unchanged(Reply::count(found.is_some())),
        STR_LEN => integer(found.map_or(0, <[u8]>::len) as i64),
        SET => put(blob(&mut reader)?, NEVER, DONE),
        SET_EXPIRING => {
            let value = blob(&mut reader)?;
            let ttl = TimeToLive::After(Millis(reader.varint()?));
            put(value, ExpiryChange::Set(ttl), DONE)
        }
        ACQUIRE if found.is_some() => Applied::unchanged(REFUSED),
        ACQUIRE => {
            let value = blob(&mut reader)?;
            let ttl = TimeToLive::After(Millis(reader.varint()?));
            put(value, ExpiryChange::Set(ttl), DONE)
        }
        RELEASE => match found == Some(&*blob(&mut reader)?) {
            true => delete(DONE),
            false => Applied::unchanged(REFUSED),
        },
        SET_IF_ABSENT if found.is_some() => Applied::unchanged(REFUSED),
        SET_IF_ABSENT => put(blob(&mut reader)?, NEVER, DONE),
        SET_IF_EQUAL => {
            let expected = blob(&mut reader)?;
            match found == Some(&*expected) {
                true => put(blob(&mut reader)?, NEVER, DONE),
                false => Applied::unchanged(REFUSED),
            }
        }
        GET_SET => put(blob(&mut reader)?, NEVER, Reply::copy_or_null(found)),
        GET_DEL if found.is_none() => Applied::unchanged(Reply::Null),
        GET_DEL => delete(Reply::copy_or_null(found)),
        DEL if found.is_none() => integer(0),
        DEL => delete(Reply::Integer(1)),
        REMOVE if found.is_none() => Applied::unchanged(Reply::simple(ABSENT)),
        REMOVE => delete(DONE),
        EXPIRE_IN if found.is_none() => integer(0),
        EXPIRE_IN => {
            let ttl = TimeToLive::After(Millis(reader.varint()?));
            expire(ExpiryChange::Set(ttl))
        }
        PERSIST if found.is_none() || view.ttl == TimeToLive::Never => integer(0),
        PERSIST => expire(NEVER),
        INCR_BY => incr_by(found, reader.u64()? as i64),
        APPEND => {
            let more = blob(&mut reader)?;
            let old = found.unwrap_or_default();
            let whole = Bytes::from([old, &*more].concat());
            let len = whole.len() as i64;
            put(whole, ExpiryChange::Keep, Reply::Integer(len))
        }
        _ => return Err(Malformed),
    })
}

const NEVER: ExpiryChange = ExpiryChange::Set(TimeToLive::Never);

fn incr_by(found: Option<&[u8]>, by: i64) -> Applied {
    let old = match found {
        None => Some(0),
        // Only the form in which it would be printed, as Redis has it.
        Some(text) => std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse::<i64>().ok().filter(|old| old.to_string() == text)),
    };
    let Some(old) = old else { return error(NOT_AN_INTEGER) };
    match old.checked_add(by) {
        Some(sum) => put(Bytes::from(sum.to_string()), ExpiryChange::Keep, Reply::Integer(sum)),
        None => error(OVERFLOW),
    }
}

fn blob(reader: &mut Reader<'_>) -> Result<Bytes, Malformed> {
    Ok(Bytes::copy_from_slice(reader.blob(LEN_MAX)?))
}

fn put(value: Bytes, expiry: ExpiryChange, reply: Reply) -> Applied {
    Applied { change: Change::Put { value, expiry }, reply }
}

fn expire(change: ExpiryChange) -> Applied {
    Applied { change: Change::Expire(change), reply: Reply::Integer(1) }
}

fn delete(reply: Reply) -> Applied {
    Applied { change: Change::Delete, reply }
}

fn integer(value: i64) -> Applied {
    Applied::unchanged(Reply::Integer(value))
}

fn error(text: &'static [u8]) -> Applied {
    Applied::unchanged(Reply::error(text))
}

#[cfg(test)]
pub(crate) mod tests {
    use checker::Model;
    use checker::model::kv::Kv;

    use super::*;

    /// The time to live behind a change.
    pub(crate) fn ttl_after(change: &Change, before: TimeToLive) -> TimeToLive {
        match change {
            Change::Put { expiry: ExpiryChange::Set(ttl), .. }
            | Change::Expire(ExpiryChange::Set(ttl)) => *ttl,
            Change::Delete => TimeToLive::Never,
            Change::None | Change::Put { .. } | Change::Expire(ExpiryChange::Keep) => before,
        }
    }

    /// The commands and the model agree, step by step, on whatever sequence is drawn.
    #[test]
    fn commands_agree_with_the_model() {
        let mut rng = base::Prng::new(1);
        let mut model = Kv.initial();
        let mut held: Option<Bytes> = None;
        let mut ttl = TimeToLive::Never;
        for _ in 0..20_000 {
            let input = draw(&mut rng);
            let found = View { value: held.as_deref(), ttl, ends: None };
            let clock = Clock { unix: Millis(0), seed: 0 };
            let applied = SimUpdate.apply(found, &encode(&input, 5).body, clock);
            let output = output(&applied.reply).expect("a reply");
            ttl = ttl_after(&applied.change, ttl);
            match applied.change {
                Change::Put { value, .. } => held = Some(value),
                Change::Delete => held = None,
                Change::None | Change::Expire(_) => {}
            }
            let next = Kv.step(&model, &input, Some(&output));
            model = next.unwrap_or_else(|| panic!("{input:?} in {model:?} answered {output:?}"));
            let modelled = model.as_ref().map(|present| present.value.as_slice());
            assert_eq!(held.as_deref(), modelled);
        }
    }

    fn draw(rng: &mut base::Prng) -> KvInput {
        let value = kv::Bytes::from(["0", "1", "2", "x"][rng.below(4) as usize]);
        let new = kv::Bytes::from("2");
        match rng.below(15) {
            13 => KvInput::ExpireIn(ExpiryTag(2)),
            14 => KvInput::Persist,
            0 => KvInput::Get,
            1 => KvInput::Set(value),
            2 => KvInput::SetExpiring(value, ExpiryTag(1)),
            3 => KvInput::SetIfAbsent(value),
            4 => KvInput::SetIfEqual { expected: value, new },
            5 => KvInput::GetSet(value),
            6 => KvInput::GetDel,
            7 => KvInput::Del,
            8 => KvInput::Exists,
            9 => KvInput::StrLen,
            10 => KvInput::IncrBy(if rng.chance_ppm(100_000) { i64::MAX } else { 1 }),
            11 => KvInput::Append(value),
            _ => KvInput::Expire(None),
        }
    }

    #[test]
    fn invalid_bytes_have_no_effect() {
        let found = View { value: Some(b"v"), ttl: TimeToLive::Never, ends: None };
        let clock = Clock { unix: Millis(0), seed: 0 };
        for body in [&b""[..], &[0], &[SET], &[SET, 5, 1], &[INCR_BY, 1]] {
            assert_eq!(SimUpdate.apply(found, body, clock).change, Change::None);
        }
    }
}
