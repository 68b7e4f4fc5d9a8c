//! One key that holds a string or is absent, with the single-key string commands of Redis.
//!
//! Time to live is not modelled. Instead a test adds one [`KvInput::Expire`] for each value with a
//! time to live. It is invoked at the earliest moment at which the value may vanish, and never
//! completed. So it may take effect at any later point, or never.

use std::fmt;
use std::sync::Arc;

use super::{Calls, Model};

mod observed;

pub use observed::{KvMark, Observed, ObservedValue};

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

/// A request on the key. `Done` and the like are answers of [`KvOutput`].
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
    /// `PEXPIRE`: `Integer`, 1 if the key exists. `Expire` with this tag may remove it then.
    ExpireIn(ExpiryTag),
    /// `PERSIST`: `Integer`, 1 if the value had a time to live, which it no longer has.
    Persist,
    /// The key vanishes if its value carries this tag (`None`: with any value); see above.
    Expire(Option<ExpiryTag>),
}

/// An answer of the key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KvOutput {
    Done,
    /// A condition did not hold; the key is unchanged.
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
pub struct Present<V = Bytes> {
    pub value: V,
    /// Set if the value has a time to live.
    pub expiry: Option<ExpiryTag>,
}

/// The model; `None` is an absent key.
#[derive(Clone, Copy, Default, Debug)]
pub struct Kv;

type KeyState = Option<Present>;

impl Model for Kv {
    type State = KeyState;
    type Input = KvInput;
    type Output = KvOutput;
    type Successors = Option<KeyState>;
    type Mark = ();
    type Scoped = Observed;

    fn initial(&self) -> KeyState {
        None
    }

    fn step(
        &self,
        state: &KeyState,
        input: &KvInput,
        observed: Option<&KvOutput>,
    ) -> Option<KeyState> {
        is_answered_by(self, state, input, observed).then(|| next(self, state, input))
    }

    fn is_pure(&self, input: &KvInput, observed: Option<&KvOutput>) -> bool {
        use KvInput as I;
        use KvOutput as O;
        match input {
            I::Get | I::Exists | I::StrLen => true,
            I::SetIfAbsent(_) | I::SetIfEqual { .. } => observed == Some(&O::Refused),
            I::GetDel => observed == Some(&O::Value(None)),
            I::Del | I::ExpireIn(_) | I::Persist => observed == Some(&O::Integer(0)),
            I::IncrBy(_) => matches!(observed, Some(O::NotAnInteger | O::Overflow)),
            _ => false,
        }
    }

    fn scoped(&self, calls: Calls<'_, KvInput, KvOutput>) -> Observed {
        Observed::new(calls)
    }
}

/// A representation of values. The effects of commands are the same for all.
trait Values {
    type Value: Clone;

    fn keep(&self, value: &Bytes) -> Self::Value;
    fn append(&self, value: &Self::Value, more: &Bytes) -> Self::Value;
    fn is(&self, kept: &Self::Value, value: &Bytes) -> bool;
    /// In bytes.
    fn length(&self, kept: &Self::Value) -> i64;
    fn integer(&self, kept: &Self::Value) -> Option<i64>;
    /// The tag as kept; `None` if no `Expire` uses it.
    fn tag(&self, tag: ExpiryTag) -> Option<ExpiryTag>;
}

impl Values for Kv {
    type Value = Bytes;

    fn keep(&self, value: &Bytes) -> Bytes {
        value.clone()
    }

    fn append(&self, value: &Bytes, more: &Bytes) -> Bytes {
        Bytes::from([value.as_slice(), more.as_slice()].concat())
    }

    fn is(&self, kept: &Bytes, value: &Bytes) -> bool {
        kept == value
    }

    fn length(&self, kept: &Bytes) -> i64 {
        length(kept)
    }

    fn integer(&self, kept: &Bytes) -> Option<i64> {
        integer(kept.as_slice())
    }

    fn tag(&self, tag: ExpiryTag) -> Option<ExpiryTag> {
        Some(tag)
    }
}

fn length(bytes: &Bytes) -> i64 {
    i64::try_from(bytes.0.len()).expect("a slice is shorter than i64::MAX")
}

/// Whether `input` answers `observed` in `state`; an unobserved answer is always right.
fn is_answered_by<V: Values>(
    values: &V,
    state: &Option<Present<V::Value>>,
    input: &KvInput,
    observed: Option<&KvOutput>,
) -> bool {
    use KvInput as I;
    use KvOutput as O;
    let Some(observed) = observed else { return true };
    let is = |value: &Bytes| state.as_ref().is_some_and(|held| values.is(&held.value, value));
    let held_length = || state.as_ref().map_or(0, |held| values.length(&held.value));
    match (input, observed) {
        (I::Set(_) | I::SetExpiring(..) | I::Expire(_), O::Done) => true,
        (I::SetIfAbsent(_), O::Done) => state.is_none(),
        (I::SetIfAbsent(_), O::Refused) => state.is_some(),
        (I::SetIfEqual { expected, .. }, O::Done) => is(expected),
        (I::SetIfEqual { expected, .. }, O::Refused) => !is(expected),
        (I::Get | I::GetSet(_) | I::GetDel, O::Value(None)) => state.is_none(),
        (I::Get | I::GetSet(_) | I::GetDel, O::Value(Some(seen))) => is(seen),
        (I::Del | I::Exists | I::ExpireIn(_), O::Integer(seen)) => {
            *seen == i64::from(state.is_some())
        }
        (I::Persist, O::Integer(seen)) => {
            *seen == i64::from(state.as_ref().is_some_and(|held| held.expiry.is_some()))
        }
        (I::StrLen, O::Integer(seen)) => *seen == held_length(),
        (I::IncrBy(by), _) => match sum(values, state, *by) {
            Ok(sum) => *observed == O::Integer(sum),
            Err(error) => *observed == error,
        },
        (I::Append(more), O::Integer(seen)) => *seen == held_length() + length(more),
        _ => false,
    }
}

/// The state after `input`.
fn next<V: Values>(
    values: &V,
    state: &Option<Present<V::Value>>,
    input: &KvInput,
) -> Option<Present<V::Value>> {
    use KvInput as I;
    let fresh = |value: &Bytes| Some(Present { value: values.keep(value), expiry: None });
    // INCR and APPEND change the value and keep its time to live.
    let kept = |value: V::Value| {
        let expiry = state.as_ref().and_then(|present| present.expiry);
        Some(Present { value, expiry })
    };
    match input {
        I::Get | I::Exists | I::StrLen => state.clone(),
        I::Set(value) | I::GetSet(value) => fresh(value),
        I::SetExpiring(value, tag) => {
            Some(Present { value: values.keep(value), expiry: values.tag(*tag) })
        }
        I::SetIfAbsent(value) if state.is_none() => fresh(value),
        I::SetIfEqual { expected, new }
            if state.as_ref().is_some_and(|held| values.is(&held.value, expected)) =>
        {
            fresh(new)
        }
        I::SetIfAbsent(_) | I::SetIfEqual { .. } => state.clone(),
        I::ExpireIn(tag) => state.clone().map(|held| Present { expiry: values.tag(*tag), ..held }),
        I::Persist => state.clone().map(|held| Present { expiry: None, ..held }),
        I::GetDel | I::Del | I::Expire(None) => None,
        I::Expire(tag @ Some(_)) => state.clone().filter(|present| present.expiry != *tag),
        I::IncrBy(by) => match sum(values, state, *by) {
            Ok(sum) => kept(values.keep(&bytes_of(sum))),
            Err(_) => state.clone(),
        },
        I::Append(more) => match state {
            Some(held) => kept(values.append(&held.value, more)),
            None => fresh(more),
        },
    }
}

fn sum<V: Values>(values: &V, state: &Option<Present<V::Value>>, by: i64) -> Result<i64, KvOutput> {
    let old = match state {
        Some(held) => values.integer(&held.value).ok_or(KvOutput::NotAnInteger)?,
        None => 0,
    };
    old.checked_add(by).ok_or(KvOutput::Overflow)
}

fn bytes_of(integer: i64) -> Bytes {
    Bytes::from(integer.to_string().as_bytes())
}

/// Redis accepts only the form it would print itself: no plus sign, leading zero or space.
fn integer(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let integer: i64 = text.parse().ok()?;
    (integer.to_string() == text).then_some(integer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the script; every answer must be the right one, and no other answer may be.
    fn check(script: &[(KvInput, KvOutput)]) -> KeyState {
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
    fn expiry_removes_only_its_own_value() {
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
        let prolonged = check(&[
            (I::ExpireIn(tag), O::Integer(0)),
            (I::SetExpiring(bytes("1"), tag), O::Done),
            (I::ExpireIn(ExpiryTag(2)), O::Integer(1)),
            expire(),
        ]);
        assert_eq!(prolonged, Some(Present { value: bytes("1"), expiry: Some(ExpiryTag(2)) }));
        let persisted = check(&[
            (I::Persist, O::Integer(0)),
            (I::SetExpiring(bytes("1"), tag), O::Done),
            (I::Persist, O::Integer(1)),
            (I::Persist, O::Integer(0)),
            expire(),
        ]);
        assert_eq!(persisted, Some(Present { value: bytes("1"), expiry: None }));
    }
}
