//! One key that holds a list, a set, a hash or a sorted set, with single-key commands of Redis.
//!
//! A key keeps one type in a history. An empty collection is an absent key.

use std::collections::{BTreeMap, BTreeSet};

use super::kv::Bytes;
use super::{Calls, MarksAfter, Model};

mod outcomes;

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    Head,
    Tail,
}

/// A request on the key, with the answer that it expects.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum CollectionInput {
    /// `LPUSH`, `RPUSH`: `Integer`, the new length.
    Push(End, Vec<Bytes>),
    /// `LPOP`, `RPOP`: `Item`.
    Pop(End),
    /// `LLEN`: `Integer`.
    Length,
    /// `LRANGE 0 -1`: `Items`, from head to tail.
    Range,
    /// `SADD`: `Integer`, 1 if the member is new.
    Add(Bytes),
    /// `SREM`: `Integer`, 1 if it was a member.
    Remove(Bytes),
    /// `SISMEMBER`: `Integer`.
    IsMember(Bytes),
    /// `SMEMBERS`: `Items`, sorted.
    Members,
    /// `SPOP`: `Item`, any member.
    PopAny,
    /// `HSET`: `Integer`, 1 if the field is new.
    SetField(Bytes, Bytes),
    /// `HDEL`: `Integer`, 1 if the field existed.
    DeleteField(Bytes),
    /// `HGET`: `Item`, the value.
    Field(Bytes),
    /// `HGETALL`: `Pairs`, sorted.
    Fields,
    /// `HINCRBY`: `Integer`, or `NotAnInteger`.
    IncrementField(Bytes, i64),
    /// `ZADD`: `Integer`, 1 if the member is new.
    Score(Bytes, i64),
    /// `ZINCRBY`: `Item`, the new score.
    IncrementScore(Bytes, i64),
    /// `ZREM`: `Integer`, 1 if it was a member.
    Unscore(Bytes),
    /// `ZPOPMIN`: `Pairs`, at most one.
    PopLowest,
    /// `ZRANGE 0 -1 WITHSCORES`: `Pairs`, lowest first.
    Scores,
}

/// An answer of the key. Scores are text.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum CollectionOutput {
    Integer(i64),
    Item(Option<Bytes>),
    Items(Vec<Bytes>),
    Pairs(Vec<(Bytes, Bytes)>),
    NotAnInteger,
}

/// A collection that is not empty.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Held {
    List(Vec<Bytes>),
    Set(BTreeSet<Bytes>),
    Hash(BTreeMap<Bytes, Bytes>),
    SortedSet(BTreeMap<Bytes, i64>),
}

/// An element that a collection has: of lists and sets by itself, of others with its value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Element {
    Item(Bytes),
    Pair(Bytes, Bytes),
}

/// The model; `None` is an absent key.
#[derive(Clone, Copy, Default, Debug)]
pub struct Collection;

impl Model for Collection {
    type State = Option<Held>;
    type Input = CollectionInput;
    type Output = CollectionOutput;
    type Successors = Vec<Option<Held>>;
    type Mark = Element;
    type Scoped = Collection;

    fn initial(&self) -> Option<Held> {
        None
    }

    fn scoped(&self, _: Calls<'_, CollectionInput, CollectionOutput>) -> Collection {
        Collection
    }

    fn step(
        &self,
        state: &Option<Held>,
        input: &CollectionInput,
        observed: Option<&CollectionOutput>,
    ) -> Vec<Option<Held>> {
        let outcomes = outcomes::of(state.as_ref(), input).into_iter();
        let is_right = |answer: &CollectionOutput| observed.is_none_or(|seen| seen == answer);
        outcomes.filter(|(_, answer)| is_right(answer)).map(|(next, _)| next).collect()
    }

    fn is_pure(&self, input: &CollectionInput, observed: Option<&CollectionOutput>) -> bool {
        use CollectionInput as I;
        use CollectionOutput as O;
        match input {
            I::Length | I::Range | I::IsMember(_) | I::Members => true,
            I::Field(_) | I::Fields | I::Scores => true,
            I::Pop(_) | I::PopAny => observed == Some(&O::Item(None)),
            I::Add(_) | I::Remove(_) | I::DeleteField(_) | I::Unscore(_) => {
                observed == Some(&O::Integer(0))
            }
            I::PopLowest => observed == Some(&O::Pairs(Vec::new())),
            I::IncrementField(..) => observed == Some(&O::NotAnInteger),
            I::Push(..) | I::SetField(..) | I::Score(..) | I::IncrementScore(..) => false,
        }
    }

    fn marks(&self, state: &Option<Held>, _: &CollectionInput, into: &mut Vec<Element>) {
        let item = |item: &Bytes| Element::Item(item.clone());
        match state {
            None => {}
            Some(Held::List(items)) => into.extend(items.iter().map(item)),
            Some(Held::Set(members)) => into.extend(members.iter().map(item)),
            Some(Held::Hash(fields)) => into.extend(
                fields.iter().map(|(field, value)| Element::Pair(field.clone(), value.clone())),
            ),
            Some(Held::SortedSet(scores)) => into.extend(
                scores.iter().map(|(member, score)| Element::Pair(member.clone(), text(*score))),
            ),
        }
    }

    fn mark_before(&self, input: &CollectionInput, observed: &CollectionOutput) -> Option<Element> {
        use CollectionInput as I;
        use CollectionOutput as O;
        let pair = |(name, value): &(Bytes, Bytes)| Element::Pair(name.clone(), value.clone());
        match (input, observed) {
            (I::Pop(_) | I::PopAny, O::Item(item)) => item.clone().map(Element::Item),
            (I::Field(field), O::Item(Some(value))) => {
                Some(Element::Pair(field.clone(), value.clone()))
            }
            (I::IsMember(member) | I::Remove(member), O::Integer(1)) => {
                Some(Element::Item(member.clone()))
            }
            (I::Range | I::Members, O::Items(items)) => items.last().cloned().map(Element::Item),
            (I::Fields | I::Scores | I::PopLowest, O::Pairs(pairs)) => pairs.last().map(pair),
            _ => None,
        }
    }

    fn marks_after(
        &self,
        input: &CollectionInput,
        observed: Option<&CollectionOutput>,
    ) -> MarksAfter<Element> {
        use CollectionInput as I;
        use CollectionOutput as O;
        MarksAfter::Only(match (input, observed) {
            (I::Push(_, items), _) => items.iter().cloned().map(Element::Item).collect(),
            (I::Add(member), _) => vec![Element::Item(member.clone())],
            (I::SetField(field, value), _) => vec![Element::Pair(field.clone(), value.clone())],
            (I::Score(member, score), _) => vec![Element::Pair(member.clone(), text(*score))],
            (I::IncrementField(field, _), Some(O::Integer(sum))) => {
                vec![Element::Pair(field.clone(), text(*sum))]
            }
            (I::IncrementScore(member, _), Some(O::Item(Some(sum)))) => {
                vec![Element::Pair(member.clone(), sum.clone())]
            }
            (I::IncrementField(..) | I::IncrementScore(..), None) => return MarksAfter::Several,
            _ => Vec::new(),
        })
    }
}

fn text(number: i64) -> Bytes {
    Bytes::from(number.to_string().as_bytes())
}
