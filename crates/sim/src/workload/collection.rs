//! Commands on collections: the real ones, for both ways in which clients speak to nodes.

use base::Prng;
use checker::model::collection::{CollectionInput as I, CollectionOutput as O, End};
use checker::model::kv::Bytes;
use types::{Key, Reply};

use crate::clients::Ended;
use crate::workload::operation::Output;
use crate::workload::redis;

/// Length of a long element: two of them make a value for which replicas send deltas.
const LONG_LEN: usize = 600;

/// A request on a list. Each element names the operation that pushes it.
#[must_use]
pub fn on_list(rng: &mut Prng, id: u64) -> I {
    let end = *rng.pick(&[End::Head, End::Tail]);
    match rng.below(12) {
        0..4 => I::Push(end, vec![element(rng, id, 0)]),
        4 => I::Push(end, vec![element(rng, id, 0), element(rng, id, 1)]),
        5..9 => I::Pop(end),
        9 => I::Length,
        _ => I::Range,
    }
}

fn element(rng: &mut Prng, id: u64, number: u64) -> Bytes {
    let mut text = format!("{id}.{number}").into_bytes();
    if rng.below(6) == 0 {
        text.resize(LONG_LEN, b'.');
    }
    Bytes::from(text)
}

/// A request on a set of few members.
#[must_use]
pub fn on_set(rng: &mut Prng) -> I {
    let member = name(rng, b'm');
    match rng.below(12) {
        0..4 => I::Add(member),
        4..6 => I::Remove(member),
        6..8 => I::IsMember(member),
        8..10 => I::Members,
        _ => I::PopAny,
    }
}

/// A request on a hash of few fields. Most values name the operation that sets them.
#[must_use]
pub fn on_hash(rng: &mut Prng, id: u64) -> I {
    let field = name(rng, b'f');
    match rng.below(12) {
        0..3 => I::SetField(field, Bytes::from(format!("v{id}").as_bytes())),
        3 => I::SetField(field, Bytes::from("7")),
        4..6 => I::DeleteField(field),
        6 => I::Field(field),
        7..10 => I::IncrementField(field, rng.between(1, 3) as i64),
        _ => I::Fields,
    }
}

/// A request on a sorted set of few members.
#[must_use]
pub fn on_sorted_set(rng: &mut Prng) -> I {
    let member = name(rng, b'm');
    let score = rng.below(9) as i64 - 4;
    match rng.below(12) {
        0..3 => I::Score(member, score),
        3..6 => I::IncrementScore(member, score),
        6 => I::Unscore(member),
        7..9 => I::PopLowest,
        _ => I::Scores,
    }
}

fn name(rng: &mut Prng, kind: u8) -> Bytes {
    Bytes::from([kind, b'0' + rng.below(4) as u8].as_slice())
}

/// The words of a request.
#[must_use]
pub fn words(input: &I, key: &Key) -> Vec<Vec<u8>> {
    let one = |name: &str, rest: &[&Bytes]| {
        let words = [name.as_bytes(), key.bytes()].into_iter();
        words.chain(rest.iter().map(|word| word.as_slice())).map(<[u8]>::to_vec).collect()
    };
    let number = |number: i64| Bytes::from(number.to_string().as_bytes());
    let all = [&Bytes::from("0"), &Bytes::from("-1")];
    match input {
        I::Push(End::Head, items) => one("LPUSH", &items.iter().collect::<Vec<_>>()),
        I::Push(End::Tail, items) => one("RPUSH", &items.iter().collect::<Vec<_>>()),
        I::Pop(End::Head) => one("LPOP", &[]),
        I::Pop(End::Tail) => one("RPOP", &[]),
        I::Length => one("LLEN", &[]),
        I::Range => one("LRANGE", &all),
        I::Add(member) => one("SADD", &[member]),
        I::Remove(member) => one("SREM", &[member]),
        I::IsMember(member) => one("SISMEMBER", &[member]),
        I::Members => one("SMEMBERS", &[]),
        I::PopAny => one("SPOP", &[]),
        I::SetField(field, value) => one("HSET", &[field, value]),
        I::DeleteField(field) => one("HDEL", &[field]),
        I::Field(field) => one("HGET", &[field]),
        I::Fields => one("HGETALL", &[]),
        I::IncrementField(field, by) => one("HINCRBY", &[field, &number(*by)]),
        I::Score(member, score) => one("ZADD", &[&number(*score), member]),
        I::IncrementScore(member, by) => one("ZINCRBY", &[&number(*by), member]),
        I::Unscore(member) => one("ZREM", &[member]),
        I::PopLowest => one("ZPOPMIN", &[]),
        I::Scores => one("ZRANGE", &[all[0], all[1], &Bytes::from("WITHSCORES")]),
    }
}

/// The outcome of a request with this reply; `None` for an impossible reply.
#[must_use]
pub fn ended(input: &I, reply: &Reply) -> Option<Ended> {
    let output = match (input, reply) {
        (I::IncrementField(..), Reply::Error(text)) if text.ends_with(b"not an integer") => {
            O::NotAnInteger
        }
        (_, Reply::Error(text)) => return redis::error(text),
        (
            I::Push(..)
            | I::Length
            | I::Add(_)
            | I::Remove(_)
            | I::IsMember(_)
            | I::SetField(..)
            | I::DeleteField(_)
            | I::IncrementField(..)
            | I::Score(..)
            | I::Unscore(_),
            Reply::Integer(value),
        ) => O::Integer(*value),
        (I::Pop(_) | I::PopAny | I::Field(_), Reply::Null) => O::Item(None),
        (I::Pop(_) | I::PopAny | I::Field(_) | I::IncrementScore(..), reply) => {
            let [item] = texts(reply)?.try_into().ok()?;
            O::Item(Some(item))
        }
        (I::Range, reply) => O::Items(texts(reply)?),
        (I::Members, reply) => {
            let mut members = texts(reply)?;
            members.sort_unstable();
            O::Items(members)
        }
        (I::Fields, reply) => {
            let mut pairs = pairs(reply)?;
            pairs.sort_unstable();
            O::Pairs(pairs)
        }
        (I::PopLowest | I::Scores, reply) => O::Pairs(pairs(reply)?),
        _ => return None,
    };
    Some(Ended::Returned(Output::Collection(output)))
}

fn pairs(reply: &Reply) -> Option<Vec<(Bytes, Bytes)>> {
    let texts = texts(reply)?;
    let is_whole = texts.len().is_multiple_of(2);
    let pair = |pair: &[Bytes]| (pair[0].clone(), pair[1].clone());
    is_whole.then(|| texts.chunks_exact(2).map(pair).collect())
}

/// All texts of a reply, from first to last. Scores are whole numbers.
fn texts(reply: &Reply) -> Option<Vec<Bytes>> {
    let concat = |replies: &[&Reply]| {
        let texts: Option<Vec<Vec<Bytes>>> = replies.iter().map(|reply| texts(reply)).collect();
        texts.map(|texts| texts.concat())
    };
    match reply {
        Reply::Bulk(text) => Some(vec![Bytes::from(&text[..])]),
        Reply::Double(score) => Some(vec![Bytes::from(score.0.to_string().as_bytes())]),
        Reply::Array(all) | Reply::Set(all) => concat(&all.iter().collect::<Vec<_>>()),
        Reply::Map(all) | Reply::Pairs(all) => {
            concat(&all.iter().flat_map(|(name, value)| [name, value]).collect::<Vec<_>>())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use base::Millis;
    use checker::Model;
    use checker::model::collection::Collection;
    use commands::Interpreter;
    use types::{Change, Clock, TimeToLive, Update, View};

    use super::*;
    use crate::workload::mix::Mix;
    use crate::workload::operation::Input;
    use crate::workload::script::Verb;
    use crate::workload::update::{SimUpdate, encode_step};

    /// The real commands and the model agree, step by step, spoken in both ways.
    #[test]
    fn commands_agree_with_the_model() {
        for &mix in Mix::COLLECTIONS {
            for is_direct in [true, false] {
                agree(mix, is_direct);
            }
        }
    }

    fn agree(mix: Mix, is_direct: bool) {
        let mut rng = Prng::new(1);
        let (mut model, mut held) = (Collection.initial(), None::<bytes::Bytes>);
        for id in 0..5_000 {
            let input = mix.draw(&mut rng, id);
            let Input::Collection(request) = &input else { panic!("{input:?}") };
            let view = View { value: held.as_deref(), ttl: TimeToLive::Never, ends: None };
            let clock = Clock { unix: Millis(1), seed: id };
            let applied = match is_direct {
                true => SimUpdate.apply(view, &encode_step(Verb::Plain, &input, 5).body, clock),
                false => {
                    let words = words(request, &Key::new(b"k"));
                    let command = redis::command(&words).expect("a command");
                    Interpreter::default().apply(view, &command.body, clock)
                }
            };
            match applied.change {
                Change::Put { value, .. } => held = Some(value),
                Change::Delete => held = None,
                Change::None | Change::Expire(_) => {}
            }
            let Some(Ended::Returned(Output::Collection(output))) = ended(request, &applied.reply)
            else {
                panic!("{input:?} was answered {:?}", applied.reply);
            };
            let next = Collection.step(&model, request, Some(&output)).into_iter().next();
            model = next.unwrap_or_else(|| panic!("{input:?} in {model:?} answered {output:?}"));
        }
    }
}
