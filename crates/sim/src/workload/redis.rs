//! The same operations in the words of Redis, for nodes that run the real commands.

use base::Millis;
use checker::model::kv::{Bytes, KvInput, KvOutput};
use commands::Plan;
use types::{Clock, Command, Key, Reply};

use crate::clients::Ended;
use crate::workload::collection;
use crate::workload::operation::{Input, Output};
use crate::workload::script::Verb;

/// The words of a request. `ttl_millis` is that of an expiring value.
#[must_use]
pub fn words(input: &KvInput, key: &Key, ttl_millis: u64) -> Vec<Vec<u8>> {
    let ttl = ttl_millis.to_string().into_bytes();
    let key = key.bytes();
    let parts: Vec<&[u8]> = match input {
        KvInput::Get => vec![b"GET", key],
        KvInput::Exists => vec![b"EXISTS", key],
        KvInput::StrLen => vec![b"STRLEN", key],
        KvInput::Set(value) => vec![b"SET", key, value.as_slice()],
        KvInput::SetExpiring(value, _) => vec![b"SET", key, value.as_slice(), b"PX", &ttl],
        KvInput::SetIfAbsent(value) => vec![b"SET", key, value.as_slice(), b"NX"],
        KvInput::SetIfEqual { expected, new } => {
            vec![b"SET", key, new.as_slice(), b"IFEQ", expected.as_slice()]
        }
        KvInput::GetSet(value) => vec![b"GETSET", key, value.as_slice()],
        KvInput::GetDel => vec![b"GETDEL", key],
        KvInput::ExpireIn(_) => vec![b"PEXPIRE", key, &ttl],
        KvInput::Persist => vec![b"PERSIST", key],
        KvInput::Del | KvInput::Expire(_) => vec![b"DEL", key],
        KvInput::IncrBy(by) => return incr_by(key, *by),
        KvInput::Append(more) => vec![b"APPEND", key, more.as_slice()],
    };
    parts.into_iter().map(<[u8]>::to_vec).collect()
}

/// The same for any request, and for a step of a script.
#[must_use]
pub fn step_words(verb: Verb, input: &Input, key: &Key, ttl_millis: u64) -> Vec<Vec<u8>> {
    let input = match input {
        Input::Text(input) => input,
        Input::Collection(input) => return collection::words(input, key),
        Input::Transaction(_) => return Vec::new(),
    };
    let mut words = words(input, key, ttl_millis);
    match (verb, input) {
        (Verb::Acquire, _) => {
            words.extend([b"PX".to_vec(), ttl_millis.to_string().into_bytes()]);
        }
        (Verb::Release, KvInput::SetIfEqual { expected, .. }) => {
            let condition = [b"DELEX".as_slice(), key.bytes(), b"IFEQ", expected.as_slice()];
            words = condition.into_iter().map(<[u8]>::to_vec).collect();
        }
        _ => {}
    }
    words
}

/// The command lines of a request: one that is to be ordered chooses that before, and ends it.
#[must_use]
pub fn lines(verb: Verb, words: Vec<Vec<u8>>) -> Vec<Vec<Vec<u8>>> {
    let level = |level: &[u8]| vec![b"CLIENT".to_vec(), b"CONSISTENCY".to_vec(), level.to_vec()];
    match verb {
        Verb::Ordered => vec![level(b"LINEARIZABLE"), words, level(b"LOCAL")],
        _ => vec![words],
    }
}

/// The number of replies to [`lines`].
#[must_use]
pub fn replies(verb: Verb) -> usize {
    if verb == Verb::Ordered { 3 } else { 1 }
}

fn incr_by(key: &[u8], by: i64) -> Vec<Vec<u8>> {
    vec![b"INCRBY".to_vec(), key.to_vec(), by.to_string().into_bytes()]
}

/// The register command of these words; `None` where they are no command on one key.
#[must_use]
pub fn command(words: &[Vec<u8>]) -> Option<Command> {
    let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let (_, plan) = commands::plan(&args, Clock { unix: Millis(0), seed: 0 }).ok()?;
    match plan {
        Plan::Key { command, .. } | Plan::PerKey { command, .. } => Some(command),
        Plan::Session(_) | Plan::Reply(_) | Plan::Keys { .. } | Plan::Once { .. } => None,
    }
}

/// A reply as a client reads it; `None` for one that no request of these clients has.
#[must_use]
pub fn heard(reply: resp::Reply) -> Option<Reply> {
    Some(match reply {
        resp::Reply::Simple(text) => Reply::simple(text),
        resp::Reply::Error(text) => Reply::error(text),
        resp::Reply::Integer(value) => Reply::Integer(value),
        resp::Reply::Bulk(bytes) => Reply::bulk(bytes),
        resp::Reply::Null => Reply::Null,
        resp::Reply::Array(all) => Reply::Array(all.into_iter().map(heard).collect::<Option<_>>()?),
        _ => return None,
    })
}

/// The outcome of a request with these replies to its [`lines`]; `None` for impossible ones.
#[must_use]
pub fn ended_all(verb: Verb, input: &Input, replies: &[Reply]) -> Option<Ended> {
    let reply = match (verb, replies) {
        (Verb::Ordered, [before, reply, after]) => {
            let is_done = *before == Reply::OK && *after == Reply::OK;
            is_done.then_some(reply)?
        }
        (_, [reply]) => reply,
        _ => return None,
    };
    ended(input, reply)
}

/// The outcome of a request with this reply; `None` for an impossible reply.
#[must_use]
pub fn ended(input: &Input, reply: &Reply) -> Option<Ended> {
    match input {
        Input::Text(input) => ended_text(input, reply),
        Input::Collection(input) => collection::ended(input, reply),
        Input::Transaction(input) => input.ended(std::slice::from_ref(reply)),
    }
}

fn ended_text(input: &KvInput, reply: &Reply) -> Option<Ended> {
    let returned = match (input, reply) {
        (_, Reply::Error(text)) => return error(text),
        (KvInput::SetIfAbsent(_) | KvInput::SetIfEqual { .. }, Reply::Null) => KvOutput::Refused,
        (
            KvInput::Set(_)
            | KvInput::SetExpiring(..)
            | KvInput::SetIfAbsent(_)
            | KvInput::SetIfEqual { .. },
            Reply::Simple(text),
        ) if text == "OK" => KvOutput::Done,
        // A release deletes where it compares.
        (KvInput::SetIfEqual { .. }, Reply::Integer(1)) => KvOutput::Done,
        (KvInput::SetIfEqual { .. }, Reply::Integer(0)) => KvOutput::Refused,
        // A delete that does not tell whether the key existed.
        (KvInput::Expire(_), Reply::Integer(_)) => KvOutput::Done,
        (KvInput::Get | KvInput::GetSet(_) | KvInput::GetDel, Reply::Null) => KvOutput::Value(None),
        (KvInput::Get | KvInput::GetSet(_) | KvInput::GetDel, Reply::Bulk(bytes)) => {
            KvOutput::Value(Some(Bytes::from(&bytes[..])))
        }
        (
            KvInput::Exists
            | KvInput::StrLen
            | KvInput::Del
            | KvInput::IncrBy(_)
            | KvInput::ExpireIn(_)
            | KvInput::Persist
            | KvInput::Append(_),
            Reply::Integer(integer),
        ) => KvOutput::Integer(*integer),
        _ => return None,
    };
    Some(Ended::Returned(Output::Text(returned)))
}

/// The outcome of a request with this error reply; `None` for another reply.
#[must_use]
pub fn error(text: &[u8]) -> Option<Ended> {
    let code = text.split(|&byte| byte == b' ').next()?;
    match code {
        b"UNKNOWN" => Some(Ended::Unknown),
        b"CLUSTERDOWN" | b"LOADING" => Some(Ended::Failed),
        b"TRYAGAIN" => Some(Ended::Refused),
        b"ERR" if text.starts_with(b"ERR ONCE ") => Some(Ended::Refused),
        // It ran, and its answer is unknown.
        b"ALREADYDONE" => Some(Ended::Unknown),
        b"ERR" if text.ends_with(b"not an integer or out of range") => {
            Some(Ended::Returned(Output::Text(KvOutput::NotAnInteger)))
        }
        b"ERR" if text.ends_with(b"would overflow") => {
            Some(Ended::Returned(Output::Text(KvOutput::Overflow)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use checker::Model;
    use checker::model::kv::{ExpiryTag, Kv};
    use commands::Interpreter;
    use types::{Change, TimeToLive, Update, View};

    use super::*;
    use crate::workload::update::tests::ttl_after;

    fn draw(rng: &mut base::Prng) -> KvInput {
        let value = Bytes::from(["0", "1", "2", "x"][rng.below(4) as usize]);
        let new = Bytes::from("2");
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

    /// The real commands and the model agree, step by step, on whatever sequence is drawn.
    #[test]
    fn commands_agree_with_the_model() {
        let mut rng = base::Prng::new(1);
        let mut model = Kv.initial();
        let mut held: Option<bytes::Bytes> = None;
        let mut ttl = TimeToLive::Never;
        for _ in 0..20_000 {
            let input = draw(&mut rng);
            let view = View { value: held.as_deref(), ttl, ends: None };
            let command = command(&words(&input, &Key::new(b"k"), 5)).expect("a command");
            let clock = Clock { unix: Millis(1), seed: 0 };
            let applied = Interpreter::default().apply(view, &command.body, clock);
            let reply = applied.reply;
            ttl = ttl_after(&applied.change, ttl);
            match applied.change {
                Change::Put { value, .. } => held = Some(value),
                Change::Delete => held = None,
                Change::None | Change::Expire(_) => {}
            }
            let Some(Ended::Returned(Output::Text(output))) = ended_text(&input, &reply) else {
                panic!("{input:?} was answered {reply:?}");
            };
            let next = Kv.step(&model, &input, Some(&output));
            model = next.unwrap_or_else(|| panic!("{input:?} in {model:?} answered {output:?}"));
        }
    }
}
