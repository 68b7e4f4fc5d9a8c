//! The states in which a request may leave a key, each with its answer.

use std::collections::{BTreeMap, BTreeSet};

use super::{CollectionInput as I, CollectionOutput as O, End, Held, text};
use crate::model::kv::Bytes;

type Outcome = (Option<Held>, O);

/// All of them: one, but for a random choice. None if the key holds another type.
pub(super) fn of(state: Option<&Held>, input: &I) -> Vec<Outcome> {
    match input {
        I::Push(..) | I::Pop(_) | I::Length | I::Range => match state {
            None => vec![of_list(Vec::new(), input)],
            Some(Held::List(items)) => vec![of_list(items.clone(), input)],
            Some(_) => Vec::new(),
        },
        I::Add(_) | I::Remove(_) | I::IsMember(_) | I::Members | I::PopAny => match state {
            None => of_set(&BTreeSet::new(), input),
            Some(Held::Set(members)) => of_set(members, input),
            Some(_) => Vec::new(),
        },
        I::SetField(..) | I::DeleteField(_) | I::Field(_) | I::Fields | I::IncrementField(..) => {
            match state {
                None => vec![of_hash(BTreeMap::new(), input)],
                Some(Held::Hash(fields)) => vec![of_hash(fields.clone(), input)],
                Some(_) => Vec::new(),
            }
        }
        I::Score(..) | I::IncrementScore(..) | I::Unscore(_) | I::PopLowest | I::Scores => {
            match state {
                None => vec![of_sorted_set(BTreeMap::new(), input)],
                Some(Held::SortedSet(scores)) => vec![of_sorted_set(scores.clone(), input)],
                Some(_) => Vec::new(),
            }
        }
    }
}

fn of_list(mut items: Vec<Bytes>, input: &I) -> Outcome {
    let answer = match input {
        I::Push(End::Tail, new) => {
            items.extend(new.iter().cloned());
            count(items.len())
        }
        I::Push(End::Head, new) => {
            items.splice(..0, new.iter().rev().cloned());
            count(items.len())
        }
        I::Pop(End::Tail) => O::Item(items.pop()),
        I::Pop(End::Head) => O::Item((!items.is_empty()).then(|| items.remove(0))),
        I::Length => count(items.len()),
        _ => O::Items(items.clone()),
    };
    ((!items.is_empty()).then_some(Held::List(items)), answer)
}

fn of_set(members: &BTreeSet<Bytes>, input: &I) -> Vec<Outcome> {
    let held = |members: BTreeSet<Bytes>| (!members.is_empty()).then_some(Held::Set(members));
    let mut next = members.clone();
    let answer = match input {
        I::Add(member) => happened(next.insert(member.clone())),
        I::Remove(member) => happened(next.remove(member)),
        I::IsMember(member) => happened(next.contains(member)),
        I::PopAny if !members.is_empty() => {
            let without = |popped: &Bytes| {
                let rest = members.iter().filter(|member| *member != popped).cloned();
                (held(rest.collect()), O::Item(Some(popped.clone())))
            };
            return members.iter().map(without).collect();
        }
        I::PopAny => O::Item(None),
        _ => O::Items(members.iter().cloned().collect()),
    };
    vec![(held(next), answer)]
}

fn of_hash(mut fields: BTreeMap<Bytes, Bytes>, input: &I) -> Outcome {
    let answer = match input {
        I::SetField(field, value) => {
            happened(fields.insert(field.clone(), value.clone()).is_none())
        }
        I::DeleteField(field) => happened(fields.remove(field).is_some()),
        I::Field(field) => O::Item(fields.get(field).cloned()),
        I::IncrementField(field, by) => {
            let old = fields.get(field).map_or(Some(0), integer);
            match old.and_then(|old| old.checked_add(*by)) {
                Some(sum) => {
                    fields.insert(field.clone(), text(sum));
                    O::Integer(sum)
                }
                None => O::NotAnInteger,
            }
        }
        _ => O::Pairs(fields.clone().into_iter().collect()),
    };
    ((!fields.is_empty()).then_some(Held::Hash(fields)), answer)
}

fn of_sorted_set(mut scores: BTreeMap<Bytes, i64>, input: &I) -> Outcome {
    let answer = match input {
        I::Score(member, score) => happened(scores.insert(member.clone(), *score).is_none()),
        I::Unscore(member) => happened(scores.remove(member).is_some()),
        I::IncrementScore(member, by) => {
            let score = scores.entry(member.clone()).or_default();
            *score += by;
            O::Item(Some(text(*score)))
        }
        I::PopLowest => {
            let lowest = ranked(&scores).into_iter().next();
            scores.retain(|member, _| lowest.as_ref().is_none_or(|(popped, _)| popped != member));
            O::Pairs(lowest.into_iter().collect())
        }
        _ => O::Pairs(ranked(&scores)),
    };
    ((!scores.is_empty()).then_some(Held::SortedSet(scores)), answer)
}

/// Members with the same score are in the order of their bytes.
fn ranked(scores: &BTreeMap<Bytes, i64>) -> Vec<(Bytes, Bytes)> {
    let mut all: Vec<(&Bytes, i64)> =
        scores.iter().map(|(member, &score)| (member, score)).collect();
    all.sort_by_key(|&(_, score)| score);
    all.into_iter().map(|(member, score)| (member.clone(), text(score))).collect()
}

fn integer(value: &Bytes) -> Option<i64> {
    std::str::from_utf8(value.as_slice()).ok()?.parse().ok()
}

fn count(len: usize) -> O {
    O::Integer(i64::try_from(len).unwrap_or(i64::MAX))
}

fn happened(happened: bool) -> O {
    O::Integer(i64::from(happened))
}

#[cfg(test)]
mod tests {
    use super::super::Collection;
    use super::*;
    use crate::Model;
    use crate::history::{ClientId, History, Outcome as End_};
    use crate::{Limit, Verdict, linearizable};

    fn b(text: &str) -> Bytes {
        Bytes::from(text)
    }

    fn item(text: &str) -> O {
        O::Item(Some(b(text)))
    }

    fn items(all: &[&str]) -> O {
        O::Items(all.iter().map(|text| b(text)).collect())
    }

    fn pairs(all: &[(&str, &str)]) -> O {
        O::Pairs(all.iter().map(|(name, value)| (b(name), b(value))).collect())
    }

    /// Runs the script; each answer must be right.
    fn check(script: &[(I, O)]) -> Option<Held> {
        script.iter().fold(None, |state, (input, output)| {
            let mut next = Collection.step(&state, input, Some(output));
            assert_eq!(next.len(), 1, "{input:?} -> {output:?} in {state:?}");
            next.remove(0)
        })
    }

    #[test]
    fn lists_answer_as_redis_does() {
        let last = check(&[
            (I::Pop(End::Head), O::Item(None)),
            (I::Length, O::Integer(0)),
            (I::Push(End::Head, vec![b("a"), b("b")]), O::Integer(2)),
            (I::Push(End::Tail, vec![b("c"), b("d")]), O::Integer(4)),
            (I::Range, items(&["b", "a", "c", "d"])),
            (I::Pop(End::Tail), item("d")),
            (I::Pop(End::Head), item("b")),
            (I::Length, O::Integer(2)),
            (I::Pop(End::Head), item("a")),
            (I::Pop(End::Head), item("c")),
            (I::Range, items(&[])),
        ]);
        assert_eq!(last, None);
    }

    #[test]
    fn sets_answer_as_redis_does() {
        let last = check(&[
            (I::PopAny, O::Item(None)),
            (I::Add(b("b")), O::Integer(1)),
            (I::Add(b("a")), O::Integer(1)),
            (I::Add(b("a")), O::Integer(0)),
            (I::Members, items(&["a", "b"])),
            (I::IsMember(b("a")), O::Integer(1)),
            (I::PopAny, item("b")),
            (I::IsMember(b("b")), O::Integer(0)),
            (I::Remove(b("b")), O::Integer(0)),
            (I::Remove(b("a")), O::Integer(1)),
            (I::Members, items(&[])),
        ]);
        assert_eq!(last, None);
    }

    #[test]
    fn random_choice_is_any_member() {
        let state = check(&[(I::Add(b("a")), O::Integer(1)), (I::Add(b("b")), O::Integer(1))]);
        assert_eq!(Collection.step(&state, &I::PopAny, None).len(), 2);
        assert_eq!(Collection.step(&state, &I::PopAny, Some(&item("c"))), []);
        assert_eq!(Collection.step(&state, &I::PopAny, Some(&O::Item(None))), []);
    }

    #[test]
    fn hashes_answer_as_redis_does() {
        check(&[
            (I::Field(b("f")), O::Item(None)),
            (I::SetField(b("f"), b("x")), O::Integer(1)),
            (I::SetField(b("f"), b("y")), O::Integer(0)),
            (I::IncrementField(b("f"), 1), O::NotAnInteger),
            (I::IncrementField(b("n"), 3), O::Integer(3)),
            (I::Fields, pairs(&[("f", "y"), ("n", "3")])),
            (I::Field(b("f")), item("y")),
            (I::DeleteField(b("f")), O::Integer(1)),
            (I::DeleteField(b("f")), O::Integer(0)),
            (I::Fields, pairs(&[("n", "3")])),
        ]);
    }

    #[test]
    fn sorted_sets_answer_as_redis_does() {
        check(&[
            (I::PopLowest, pairs(&[])),
            (I::Score(b("a"), 2), O::Integer(1)),
            (I::Score(b("b"), 2), O::Integer(1)),
            (I::Score(b("c"), 1), O::Integer(1)),
            (I::Scores, pairs(&[("c", "1"), ("a", "2"), ("b", "2")])),
            (I::IncrementScore(b("c"), 5), item("6")),
            (I::Score(b("b"), 1), O::Integer(0)),
            (I::PopLowest, pairs(&[("b", "1")])),
            (I::Unscore(b("c")), O::Integer(1)),
            (I::Unscore(b("c")), O::Integer(0)),
            (I::Scores, pairs(&[("a", "2")])),
        ]);
    }

    #[test]
    fn other_types_have_no_right_answer() {
        let list = check(&[(I::Push(End::Head, vec![b("a")]), O::Integer(1))]);
        for input in [I::Members, I::Fields, I::Scores] {
            assert_eq!(Collection.step(&list, &input, None), []);
        }
    }

    fn verdict(calls: &[(u64, I, O)]) -> Verdict {
        let mut history = History::new();
        for (number, (client, input, output)) in calls.iter().enumerate() {
            let at = 2 * number as u64;
            let id = history.invoke(ClientId(*client), input.clone(), at);
            history.complete(id, End_::Returned(output.clone()), at + 1);
        }
        linearizable::check_in_sessions(&Collection, &history, Limit { explored_max: 10_000 })
    }

    /// One change of an answer makes a sound history a violation.
    #[test]
    fn lost_and_repeated_elements_are_found() {
        let push = |text| (1, I::Push(End::Tail, vec![b(text)]));
        let call = |(client, input): (u64, I), output| (client, input, output);
        let sound = [
            call(push("a"), O::Integer(1)),
            call(push("b"), O::Integer(2)),
            call((2, I::Pop(End::Head)), item("a")),
            call((1, I::Range), items(&["b"])),
        ];
        assert!(matches!(verdict(&sound), Verdict::Holds { .. }));
        for (at, wrong) in [
            (1, O::Integer(1)),
            (2, item("b")),
            (2, item("c")),
            (3, items(&[])),
            (3, items(&["b", "b"])),
            (3, items(&["a", "b"])),
        ] {
            let mut calls = sound.clone();
            calls[at].2 = wrong.clone();
            assert!(matches!(verdict(&calls), Verdict::Violation(_)), "{at}: {wrong:?}");
        }
    }
}
