//! One key that holds a string or is absent, with the single-key string commands of Redis.
//!
//! Time to live is not modelled. A test that lets keys expire adds, for each value with a time to
//! live, one [`KvInput::Expire`] operation invoked at the earliest moment at which the value may
//! vanish and never completed: it may then take effect at any later point, or never.

use std::fmt;
use std::sync::Arc;

use super::{MarksAfter, Model};

/// Bytes of a string value; cheap to clone, printed as text where possible.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(Arc<[u8]>);

impl Bytes {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl<T: AsRef<[u8]> + ?Sized> From<&T> for Bytes {
    fn from(bytes: &T) -> Self {
        Bytes(Arc::from(bytes.as_ref()))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes(Arc::from(bytes))
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Tells values with a time to live apart; the test chooses a new one for each such write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExpiryTag(pub u64);

/// What a client asks of the key. `Done` and the like are answers of [`KvOutput`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KvInput {
    /// `GET`: `Value`.
    Get,
    /// `SET k v`: `Done`; the value no longer expires.
    Set(Bytes),
    /// `SET k v PX ..`: `Done`; the value may be removed by `Expire` with the same tag.
    SetExpiring(Bytes, ExpiryTag),
    /// `SET k v NX`: `Done`, or `Refused` if the key exists.
    SetIfAbsent(Bytes),
    /// `SET k new IFEQ expected`: `Done`, or `Refused` if the key is absent or holds another value.
    SetIfEqual { expected: Bytes, new: Bytes },
    /// `GETSET`, `SET .. GET`: `Value`, the old one.
    GetSet(Bytes),
    /// `GETDEL`: `Value`, the old one.
    GetDel,
    /// `DEL`: `Integer`, 1 if the key existed.
    Del,
    /// `EXISTS`: `Integer`, 1 if the key exists.
    Exists,
    /// `STRLEN`: `Integer`, 0 if absent.
    StrLen,
    /// `INCRBY` and its kin: `Integer`, `NotAnInteger` or `Overflow`.
    IncrBy(i64),
    /// `APPEND`: `Integer`, the new length in bytes.
    Append(Bytes),
    /// The key vanishes if its value carries this tag (`None`: whatever it holds); see above.
    Expire(Option<ExpiryTag>),
}

/// What the key answers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KvOutput {
    Done,
    /// A condition did not hold; nothing was changed.
    Refused,
    /// `None`: absent.
    Value(Option<Bytes>),
    Integer(i64),
    /// `ERR value is not an integer or out of range`
    NotAnInteger,
    /// `ERR increment or decrement would overflow`
    Overflow,
}

/// A value present under the key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Present {
    pub value: Bytes,
    /// Set if the value has a time to live.
    pub expiry: Option<ExpiryTag>,
}

/// What commands may need of the key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KvMark {
    /// It holds this, or nothing.
    Value(Option<Bytes>),
    /// In bytes; 0 also if it is absent.
    Length(i64),
    Present,
}

/// The model; `None` is an absent key.
#[derive(Clone, Copy, Default, Debug)]
pub struct Kv;

type State = Option<Present>;

impl Model for Kv {
    type State = State;
    type Input = KvInput;
    type Output = KvOutput;
    type Successors = Option<State>;
    type Mark = KvMark;

    fn initial(&self) -> State {
        None
    }

    fn step(&self, state: &State, input: &KvInput, observed: Option<&KvOutput>) -> Option<State> {
        if !is_answered_by(state, input, observed) {
            return None;
        }
        Some(next(state, input))
    }

    fn is_pure(&self, input: &KvInput, observed: Option<&KvOutput>) -> bool {
        use KvInput as I;
        use KvOutput as O;
        match input {
            I::Get | I::Exists | I::StrLen => true,
            I::SetIfAbsent(_) | I::SetIfEqual { .. } => observed == Some(&O::Refused),
            I::GetDel => observed == Some(&O::Value(None)),
            I::Del => observed == Some(&O::Integer(0)),
            I::IncrBy(_) => matches!(observed, Some(O::NotAnInteger | O::Overflow)),
            _ => false,
        }
    }

    fn is_blind(&self, input: &KvInput, observed: Option<&KvOutput>) -> bool {
        let is_set = matches!(input, KvInput::Set(_) | KvInput::SetExpiring(..));
        is_set && matches!(observed, None | Some(KvOutput::Done))
    }

    fn marks(&self, state: &State, _: &KvInput, into: &mut Vec<KvMark>) {
        marks_of(value(state), into);
    }

    fn mark_before(&self, input: &KvInput, observed: &KvOutput) -> Option<KvMark> {
        use KvInput as I;
        use KvOutput as O;
        match (input, observed) {
            (I::Get | I::GetSet(_) | I::GetDel, O::Value(seen)) => {
                Some(KvMark::Value(seen.clone()))
            }
            (I::SetIfEqual { expected, .. }, O::Done) => {
                Some(KvMark::Value(Some(expected.clone())))
            }
            (I::SetIfAbsent(_), O::Done) => Some(KvMark::Value(None)),
            (I::SetIfAbsent(_), O::Refused) => Some(KvMark::Present),
            (I::Del | I::Exists, O::Integer(0)) => Some(KvMark::Value(None)),
            (I::Del | I::Exists, O::Integer(_)) => Some(KvMark::Present),
            // A sum equal to `by` may come of zero or of nothing.
            (I::IncrBy(by), O::Integer(sum)) if sum != by => {
                sum.checked_sub(*by).map(|old| KvMark::Value(Some(bytes_of(old))))
            }
            (I::IncrBy(_), O::NotAnInteger | O::Overflow) => Some(KvMark::Present),
            (I::StrLen, O::Integer(seen)) => Some(KvMark::Length(*seen)),
            (I::Append(more), O::Integer(seen)) => {
                seen.checked_sub(length(more)).map(KvMark::Length)
            }
            _ => None,
        }
    }

    fn marks_after(&self, input: &KvInput, observed: Option<&KvOutput>) -> MarksAfter<KvMark> {
        use KvInput as I;
        if self.is_pure(input, observed) {
            return MarksAfter::Only(Vec::new());
        }
        let after = match input {
            I::Set(new) | I::SetExpiring(new, _) | I::SetIfAbsent(new) => Some(new.clone()),
            I::SetIfEqual { new, .. } | I::GetSet(new) => Some(new.clone()),
            I::GetDel | I::Del | I::Expire(_) => None,
            I::IncrBy(_) => match observed {
                Some(KvOutput::Integer(sum)) => Some(bytes_of(*sum)),
                _ => return MarksAfter::Several,
            },
            I::Append(_) => return MarksAfter::Several,
            I::Get | I::Exists | I::StrLen => unreachable!("reads are pure"),
        };
        let mut marks = Vec::new();
        marks_of(after.as_ref(), &mut marks);
        MarksAfter::Only(marks)
    }

    fn may_make(&self, input: &KvInput, observed: Option<&KvOutput>, mark: &KvMark) -> bool {
        match (input, observed, mark) {
            (_, _, KvMark::Value(None)) => false,
            (_, _, KvMark::Present) => true,
            (KvInput::Append(more), Some(KvOutput::Integer(seen)), KvMark::Value(Some(value))) => {
                value.0.ends_with(&more.0) && length(value) == *seen
            }
            (KvInput::Append(more), _, KvMark::Value(Some(value))) => value.0.ends_with(&more.0),
            (KvInput::Append(_), Some(KvOutput::Integer(seen)), KvMark::Length(len)) => seen == len,
            (KvInput::Append(more), _, KvMark::Length(len)) => length(more) <= *len,
            (_, _, KvMark::Value(Some(value))) => integer(value).is_some(),
            // The longest integer is i64::MIN.
            (_, _, KvMark::Length(len)) => (1..=20).contains(len),
        }
    }
}

fn value(state: &State) -> Option<&Bytes> {
    state.as_ref().map(|present| &present.value)
}

fn length(bytes: &Bytes) -> i64 {
    i64::try_from(bytes.0.len()).expect("a slice is shorter than i64::MAX")
}

fn marks_of(value: Option<&Bytes>, into: &mut Vec<KvMark>) {
    into.push(KvMark::Value(value.cloned()));
    into.push(KvMark::Length(value.map_or(0, length)));
    if value.is_some() {
        into.push(KvMark::Present);
    }
}

/// Whether `input` answers `observed` in `state`; an answer nobody saw is always right.
fn is_answered_by(state: &State, input: &KvInput, observed: Option<&KvOutput>) -> bool {
    use KvInput as I;
    use KvOutput as O;
    let Some(observed) = observed else { return true };
    match (input, observed) {
        (I::Set(_) | I::SetExpiring(..) | I::Expire(_), O::Done) => true,
        (I::SetIfAbsent(_), O::Done) => state.is_none(),
        (I::SetIfAbsent(_), O::Refused) => state.is_some(),
        (I::SetIfEqual { expected, .. }, O::Done) => value(state) == Some(expected),
        (I::SetIfEqual { expected, .. }, O::Refused) => value(state) != Some(expected),
        (I::Get | I::GetSet(_) | I::GetDel, O::Value(seen)) => value(state) == seen.as_ref(),
        (I::Del | I::Exists, O::Integer(seen)) => *seen == i64::from(state.is_some()),
        (I::StrLen, O::Integer(seen)) => *seen == value(state).map_or(0, length),
        (I::IncrBy(by), _) => match sum(state, *by) {
            Ok(sum) => *observed == O::Integer(sum),
            Err(error) => *observed == error,
        },
        (I::Append(more), O::Integer(seen)) => {
            *seen == value(state).map_or(0, length) + length(more)
        }
        _ => false,
    }
}

/// What `input` makes of `state`.
fn next(state: &State, input: &KvInput) -> State {
    use KvInput as I;
    let fresh = |value: &Bytes| Some(Present { value: value.clone(), expiry: None });
    // INCR and APPEND change the value and keep its time to live.
    let kept = |value: Bytes| {
        let expiry = state.as_ref().and_then(|present| present.expiry);
        Some(Present { value, expiry })
    };
    match input {
        I::Get | I::Exists | I::StrLen => state.clone(),
        I::Set(value) | I::GetSet(value) => fresh(value),
        I::SetExpiring(value, tag) => Some(Present { value: value.clone(), expiry: Some(*tag) }),
        I::SetIfAbsent(value) if state.is_none() => fresh(value),
        I::SetIfEqual { expected, new } if value(state) == Some(expected) => fresh(new),
        I::SetIfAbsent(_) | I::SetIfEqual { .. } => state.clone(),
        I::GetDel | I::Del | I::Expire(None) => None,
        I::Expire(tag) => state.clone().filter(|present| present.expiry != *tag),
        I::IncrBy(by) => match sum(state, *by) {
            Ok(sum) => kept(bytes_of(sum)),
            Err(_) => state.clone(),
        },
        I::Append(more) => {
            let old = value(state).map_or(&[][..], Bytes::as_slice);
            kept(Bytes::from([old, more.as_slice()].concat()))
        }
    }
}

fn sum(state: &State, by: i64) -> Result<i64, KvOutput> {
    let old = match value(state) {
        Some(value) => integer(value).ok_or(KvOutput::NotAnInteger)?,
        None => 0,
    };
    old.checked_add(by).ok_or(KvOutput::Overflow)
}

fn bytes_of(integer: i64) -> Bytes {
    Bytes::from(integer.to_string().as_bytes())
}

/// Redis accepts only the form it would print itself: no plus sign, leading zero or space.
fn integer(value: &Bytes) -> Option<i64> {
    let text = std::str::from_utf8(value.as_slice()).ok()?;
    let integer: i64 = text.parse().ok()?;
    (integer.to_string() == text).then_some(integer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the script; every answer must be the right one, and no other answer may be.
    fn check(script: &[(KvInput, KvOutput)]) -> State {
        script.iter().fold(Kv.initial(), |state, (input, output)| {
            let next = Kv.step(&state, input, Some(output));
            assert!(next.is_some(), "{input:?} -> {output:?} refused in {state:?}");
            assert_eq!(next, Kv.step(&state, input, None));
            next.expect("asserted above")
        })
    }

    fn bytes(text: &str) -> Bytes {
        Bytes::from(text)
    }

    #[test]
    fn string_commands_answer_as_redis_does() {
        use KvInput as I;
        use KvOutput as O;
        check(&[
            (I::Get, O::Value(None)),
            (I::Exists, O::Integer(0)),
            (I::Del, O::Integer(0)),
            (I::SetIfEqual { expected: bytes("a"), new: bytes("b") }, O::Refused),
            (I::SetIfAbsent(bytes("a")), O::Done),
            (I::SetIfAbsent(bytes("b")), O::Refused),
            (I::SetIfEqual { expected: bytes("a"), new: bytes("b") }, O::Done),
            (I::Append(bytes("cd")), O::Integer(3)),
            (I::StrLen, O::Integer(3)),
            (I::IncrBy(1), O::NotAnInteger),
            (I::GetSet(bytes("9223372036854775806")), O::Value(Some(bytes("bcd")))),
            (I::IncrBy(1), O::Integer(i64::MAX)),
            (I::IncrBy(1), O::Overflow),
            (I::GetDel, O::Value(Some(bytes("9223372036854775807")))),
            (I::IncrBy(-3), O::Integer(-3)),
            (I::Get, O::Value(Some(bytes("-3")))),
            (I::Del, O::Integer(1)),
            (I::Append(bytes("")), O::Integer(0)),
            (I::Exists, O::Integer(1)),
        ]);
    }

    #[test]
    fn integers_not_in_canonical_form_are_refused() {
        for text in ["", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808"] {
            let state = Some(Present { value: bytes(text), expiry: None });
            let step = |output| Kv.step(&state, &KvInput::IncrBy(1), Some(&output));
            assert_eq!(step(KvOutput::NotAnInteger), Some(state.clone()), "{text:?}");
        }
    }

    #[test]
    fn append_with_a_shorter_length_is_refused() {
        let state = Some(Present { value: bytes("abc"), expiry: None });
        let answer = KvOutput::Integer(1);
        assert_eq!(Kv.step(&state, &KvInput::Append(bytes("d")), Some(&answer)), None);
    }

    #[test]
    fn expiry_removes_only_the_value_it_was_meant_for() {
        use KvInput as I;
        use KvOutput as O;
        let tag = ExpiryTag(1);
        let expire = || (I::Expire(Some(tag)), O::Done);
        let gone = check(&[(I::SetExpiring(bytes("1"), tag), O::Done), expire()]);
        assert_eq!(gone, None);
        let kept = check(&[
            (I::SetExpiring(bytes("1"), tag), O::Done),
            (I::Set(bytes("2")), O::Done),
            expire(),
        ]);
        assert_eq!(kept, Some(Present { value: bytes("2"), expiry: None }));
        let counted = check(&[
            (I::SetExpiring(bytes("1"), tag), O::Done),
            (I::IncrBy(1), O::Integer(2)),
            expire(),
        ]);
        assert_eq!(counted, None);
    }
}
