//! The string key of one history: values that no call of the history can distinguish are equal.
//!
//! Calls see the content of a value only if some call looks for that content. A value that is no
//! prefix of such a content can never become one: APPEND extends a value, and all other writes
//! replace it. Of such a value only its length counts, and whether it is a number, if some call
//! observes that. So histories with many appends of unknown outcome have few states.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::HashSet;

use super::super::{Calls, MarksAfter, Model};
use super::{
    Bytes, ExpiryTag, Kv, KvInput, KvOutput, Present, Values, bytes_of, integer, is_answered_by,
    length, next,
};

/// Longest text of an integer: `i64::MIN`.
const INTEGER_LENGTH_MAX: usize = 20;

/// The model of [`Kv`] for the calls it was made for.
#[derive(Clone, Debug)]
pub struct Observed {
    // Contents that calls look for, in order; none is a prefix of another.
    wholes: Vec<Bytes>,
    // Whether calls ask for lengths, and whether they count.
    are_lengths_seen: bool,
    are_numbers_seen: bool,
    tags: HashSet<u64>,
    // Whether calls ask for a time to live, and whether they give one to a value that has none.
    are_tags_seen: bool,
    gives_tags: bool,
    // Whether calls count down, and the longest value that a comparison may replace.
    counts_down: bool,
    compared_max: i64,
    // Suffixes that turn any value into one that no call looks for.
    strange: HashSet<Bytes>,
}

/// The observable part of a value.
#[derive(Clone)]
pub enum ObservedValue {
    /// A prefix of a content that some call looks for; of several such contents, the last in order.
    Start { whole: Bytes, len: usize },
    /// A number, or a value that appending may turn into one.
    Number(Bytes),
    /// A value that no call looks for; the length is 0 where no call observes it.
    Other { len: i64 },
}

/// A property of the key that calls may need.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KvMark {
    /// It holds this, or is absent.
    Value(Option<ObservedValue>),
    /// In bytes; 0 also if it is absent.
    Length(i64),
    Present,
}

impl Observed {
    pub(super) fn new(calls: Calls<'_, KvInput, KvOutput>) -> Observed {
        let has = |is: fn(&KvInput, bool) -> bool| {
            calls.iter().any(|(input, output)| is(input, output.is_some()))
        };
        let tag = |input: &KvInput| match input {
            KvInput::Expire(Some(ExpiryTag(tag))) => Some(*tag),
            _ => None,
        };
        let mut observed = Observed {
            wholes: wholes(calls),
            are_lengths_seen: has(|input, is_answered| {
                is_answered && matches!(input, KvInput::StrLen | KvInput::Append(_))
            }),
            are_numbers_seen: has(|input, _| matches!(input, KvInput::IncrBy(_))),
            tags: calls.iter().filter_map(|(input, _)| tag(input)).collect(),
            are_tags_seen: has(|input, _| matches!(input, KvInput::Persist)),
            gives_tags: has(|input, _| matches!(input, KvInput::ExpireIn(_))),
            counts_down: has(|input, _| matches!(input, KvInput::IncrBy(by) if *by < 0)),
            compared_max: calls.iter().filter_map(|(input, _)| compared(input)).max().unwrap_or(-1),
            strange: HashSet::new(),
        };
        let fitting = observed.fitting(calls);
        let is_strange = |more: &&Bytes| {
            let is_of_number = more.0.iter().all(|byte| is_of_numbers(*byte));
            !(fitting.contains(more.as_slice()) || observed.are_numbers_seen && is_of_number)
        };
        let strange = appended(calls).filter(is_strange).cloned().collect();
        observed.strange = strange;
        observed
    }

    /// Suffixes that may lead from one prefix of a sought value to another.
    fn fitting<'a>(&self, calls: Calls<'a, KvInput, KvOutput>) -> HashSet<&'a [u8]> {
        let tokens: HashSet<&[u8]> = appended(calls).map(Bytes::as_slice).collect();
        let lengths: BTreeSet<usize> = tokens.iter().map(|token| token.len()).collect();
        let put: Vec<&Bytes> = calls.iter().filter_map(|(input, _)| put_by(input)).collect();
        let mut fitting = HashSet::new();
        for whole in &self.wholes {
            let whole = whole.as_slice();
            // Lengths of the starts that the key may hold.
            let mut held: BTreeSet<usize> = put.iter().map(|put| put.0.len()).collect();
            held.retain(|len| put.iter().any(|put| whole.get(..*len) == Some(put.as_slice())));
            if self.are_numbers_seen {
                let numbers = 0..=whole.len().min(INTEGER_LENGTH_MAX);
                held.extend(numbers.filter(|len| may_become_number(&whole[..*len])));
            }
            held.insert(0);
            while let Some(from) = held.pop_first() {
                for to in lengths.iter().map(|len| from + len) {
                    let token = whole.get(from..to).and_then(|token| tokens.get(token));
                    fitting.extend(token);
                    held.extend(token.filter(|token| !token.is_empty()).map(|_| to));
                }
            }
        }
        fitting
    }

    fn content(&self, value: &[u8]) -> ObservedValue {
        if let Some(whole) = self.last_from(value) {
            return ObservedValue::Start { whole: whole.clone(), len: value.len() };
        }
        if self.are_numbers_seen && may_become_number(value) {
            return ObservedValue::Number(Bytes::from(value));
        }
        self.other(value.len() as i64)
    }

    fn other(&self, len: i64) -> ObservedValue {
        ObservedValue::Other { len: if self.are_lengths_seen { len } else { 0 } }
    }

    /// The last of the sought values that begins with `start`.
    fn last_from(&self, start: &[u8]) -> Option<&Bytes> {
        let head = |whole: &Bytes| whole.0.len().min(start.len());
        let upto = self.wholes.partition_point(|whole| whole.0[..head(whole)] <= *start);
        self.wholes[..upto].last().filter(|whole| whole.0.starts_with(start))
    }

    fn marks_of(&self, value: Option<&ObservedValue>, into: &mut Vec<KvMark>) {
        // A call needs only sought values.
        if value.is_none_or(|value| value.text().is_some()) {
            into.push(KvMark::Value(value.cloned()));
        }
        match value {
            // Its length may be unknown.
            Some(ObservedValue::Other { .. }) if !self.are_lengths_seen => {}
            _ => into.push(KvMark::Length(value.map_or(0, |value| self.length(value)))),
        }
        if value.is_some() {
            into.push(KvMark::Present);
        }
    }

    /// The common effect of inputs that are alike.
    fn effect<'a>(&self, input: &'a KvInput) -> InputEffect<'a> {
        use KvInput as I;
        match input {
            I::Set(value) | I::GetSet(value) => InputEffect::Put(self.keep(value), None),
            I::SetExpiring(value, tag) => InputEffect::Put(self.keep(value), self.tag(*tag)),
            I::SetIfAbsent(value) => InputEffect::PutIfAbsent(self.keep(value)),
            I::SetIfEqual { expected, new } => InputEffect::PutIfEqual(expected, self.keep(new)),
            I::Del | I::GetDel | I::Expire(None) => InputEffect::Clear,
            I::Append(more) if self.strange.contains(more) => InputEffect::AppendStrange(
                // Lengths differ only where they are seen.
                if self.are_lengths_seen { length(more) } else { 0 },
            ),
            other => InputEffect::Other(other),
        }
    }
}

/// All appended suffixes.
fn appended<'a>(calls: Calls<'a, KvInput, KvOutput>) -> impl Iterator<Item = &'a Bytes> {
    calls.iter().filter_map(|(input, _)| match input {
        KvInput::Append(more) => Some(more),
        _ => None,
    })
}

/// The length of the value that a comparison expects.
fn compared(input: &KvInput) -> Option<i64> {
    match input {
        KvInput::SetIfEqual { expected, .. } => Some(length(expected)),
        _ => None,
    }
}

/// The value that a call may put in the place of any other.
fn put_by(input: &KvInput) -> Option<&Bytes> {
    use KvInput as I;
    match input {
        I::Set(new) | I::SetExpiring(new, _) | I::SetIfAbsent(new) | I::GetSet(new) => Some(new),
        I::SetIfEqual { new, .. } => Some(new),
        _ => None,
    }
}

/// Sought values in order, without prefixes of others.
fn wholes(calls: Calls<'_, KvInput, KvOutput>) -> Vec<Bytes> {
    let mut all: Vec<&Bytes> =
        calls.iter().filter_map(|(input, output)| looked_for(input, *output)).collect();
    all.sort_unstable();
    let mut wholes: Vec<Bytes> = Vec::new();
    for value in all {
        match wholes.last_mut() {
            Some(last) if value.0.starts_with(&last.0) => *last = value.clone(),
            _ => wholes.push(value.clone()),
        }
    }
    wholes
}

/// The content that a call compares the value with.
fn looked_for<'a>(input: &'a KvInput, output: Option<&'a KvOutput>) -> Option<&'a Bytes> {
    match (input, output) {
        (_, Some(KvOutput::Value(Some(seen)))) => Some(seen),
        (KvInput::SetIfEqual { expected, .. }, _) => Some(expected),
        _ => None,
    }
}

fn is_of_numbers(byte: u8) -> bool {
    byte == b'-' || byte.is_ascii_digit()
}

/// Whether appending may turn the value into an integer, or it is one.
fn may_become_number(value: &[u8]) -> bool {
    value.len() <= INTEGER_LENGTH_MAX && value.iter().all(|byte| is_of_numbers(*byte))
}

#[derive(PartialEq, Eq)]
enum InputEffect<'a> {
    Put(ObservedValue, Option<ExpiryTag>),
    PutIfAbsent(ObservedValue),
    PutIfEqual(&'a Bytes, ObservedValue),
    Clear,
    AppendStrange(i64),
    Other(&'a KvInput),
}

impl Values for Observed {
    type Value = ObservedValue;

    fn keep(&self, value: &Bytes) -> ObservedValue {
        self.content(value.as_slice())
    }

    fn append(&self, value: &ObservedValue, more: &Bytes) -> ObservedValue {
        match value {
            // The last sought value with this prefix is also the last with the longer one.
            ObservedValue::Start { whole, len } if whole.0[*len..].starts_with(&more.0) => {
                ObservedValue::Start { whole: whole.clone(), len: len + more.0.len() }
            }
            ObservedValue::Start { .. } | ObservedValue::Number(_) => {
                self.content(&[value.text().unwrap_or_default(), more.as_slice()].concat())
            }
            ObservedValue::Other { len } => self.other(len + length(more)),
        }
    }

    fn is(&self, kept: &ObservedValue, value: &Bytes) -> bool {
        kept.text() == Some(value.as_slice())
    }

    fn length(&self, kept: &ObservedValue) -> i64 {
        match kept {
            ObservedValue::Other { len } => *len,
            known => known.text().map_or(0, |text| text.len() as i64),
        }
    }

    fn integer(&self, kept: &ObservedValue) -> Option<i64> {
        kept.text().and_then(integer)
    }

    fn tag(&self, tag: ExpiryTag) -> Option<ExpiryTag> {
        (self.are_tags_seen || self.tags.contains(&tag.0)).then_some(tag)
    }
}

impl ObservedValue {
    /// The bytes, where they are known.
    fn text(&self) -> Option<&[u8]> {
        match self {
            ObservedValue::Start { whole, len } => Some(&whole.0[..*len]),
            ObservedValue::Number(bytes) => Some(&bytes.0),
            ObservedValue::Other { .. } => None,
        }
    }
}

// By whole and length, not byte by byte: of one model, equal starts have one whole.
impl PartialEq for ObservedValue {
    fn eq(&self, other: &ObservedValue) -> bool {
        match (self, other) {
            (
                ObservedValue::Start { whole, len },
                ObservedValue::Start { whole: of, len: long },
            ) => len == long && Arc::ptr_eq(&whole.0, &of.0),
            (ObservedValue::Number(one), ObservedValue::Number(other)) => one == other,
            (ObservedValue::Other { len }, ObservedValue::Other { len: other }) => len == other,
            _ => false,
        }
    }
}

impl Eq for ObservedValue {}

impl Hash for ObservedValue {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        match self {
            ObservedValue::Start { whole, len } => (whole.0.as_ptr() as usize, len).hash(hasher),
            ObservedValue::Number(bytes) => bytes.hash(hasher),
            ObservedValue::Other { len } => len.hash(hasher),
        }
    }
}

impl fmt::Debug for ObservedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.text(), self) {
            (Some(text), _) => write!(f, "\"{}\"", text.escape_ascii()),
            (None, ObservedValue::Other { len }) if *len > 0 => {
                write!(f, "{len} bytes that no call looks for")
            }
            (None, _) => f.write_str("bytes that no call looks for"),
        }
    }
}

type ObservedState = Option<Present<ObservedValue>>;

impl Model for Observed {
    type State = ObservedState;
    type Input = KvInput;
    type Output = KvOutput;
    type Successors = Option<ObservedState>;
    type Mark = KvMark;
    type Scoped = Observed;

    fn scoped(&self, _: Calls<'_, KvInput, KvOutput>) -> Observed {
        self.clone()
    }

    fn initial(&self) -> ObservedState {
        None
    }

    fn step(
        &self,
        state: &ObservedState,
        input: &KvInput,
        observed: Option<&KvOutput>,
    ) -> Option<ObservedState> {
        is_answered_by(self, state, input, observed).then(|| next(self, state, input))
    }

    fn is_pure(&self, input: &KvInput, observed: Option<&KvOutput>) -> bool {
        Kv.is_pure(input, observed)
    }

    fn is_blind(&self, input: &KvInput, observed: Option<&KvOutput>) -> bool {
        use KvInput as I;
        match input {
            I::Set(_) | I::SetExpiring(..) | I::Expire(None) => {
                matches!(observed, None | Some(KvOutput::Done))
            }
            I::GetSet(_) | I::GetDel | I::Del => observed.is_none(),
            _ => false,
        }
    }

    fn marks(&self, state: &ObservedState, _: &KvInput, into: &mut Vec<KvMark>) {
        let content = state.as_ref().map(|present| &present.value);
        self.marks_of(content, into);
    }

    fn mark_before(&self, input: &KvInput, observed: &KvOutput) -> Option<KvMark> {
        use KvInput as I;
        use KvOutput as O;
        let holds = |value: &Bytes| Some(KvMark::Value(Some(self.keep(value))));
        match (input, observed) {
            (I::Get | I::GetSet(_) | I::GetDel, O::Value(Some(seen))) => holds(seen),
            (I::Get | I::GetSet(_) | I::GetDel, O::Value(None)) => Some(KvMark::Value(None)),
            (I::SetIfEqual { expected, .. }, O::Done) => holds(expected),
            (I::SetIfAbsent(_), O::Done) => Some(KvMark::Value(None)),
            (I::SetIfAbsent(_), O::Refused) => Some(KvMark::Present),
            (I::Persist, O::Integer(0)) => None,
            (I::Del | I::Exists | I::ExpireIn(_), O::Integer(0)) => Some(KvMark::Value(None)),
            (I::Del | I::Exists | I::ExpireIn(_) | I::Persist, O::Integer(_)) => {
                Some(KvMark::Present)
            }
            // A sum equal to `by` may come from zero or from an absent key.
            (I::IncrBy(by), O::Integer(sum)) if sum != by => {
                holds(&bytes_of(sum.checked_sub(*by)?))
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
            // The value stays.
            I::ExpireIn(_) | I::Persist => return MarksAfter::Only(Vec::new()),
            I::Set(new) | I::SetExpiring(new, _) | I::SetIfAbsent(new) => Some(self.keep(new)),
            I::SetIfEqual { new, .. } | I::GetSet(new) => Some(self.keep(new)),
            I::GetDel | I::Del | I::Expire(_) => None,
            I::IncrBy(_) => match observed {
                Some(KvOutput::Integer(sum)) => Some(self.keep(&bytes_of(*sum))),
                _ => return MarksAfter::Several,
            },
            I::Append(_) => return MarksAfter::Several,
            I::Get | I::Exists | I::StrLen => unreachable!("reads are pure"),
        };
        let mut marks = Vec::new();
        self.marks_of(after.as_ref(), &mut marks);
        MarksAfter::Only(marks)
    }

    fn may_make(&self, input: &KvInput, observed: Option<&KvOutput>, mark: &KvMark) -> bool {
        let made = match (input, observed) {
            (KvInput::Append(_), Some(KvOutput::Integer(seen))) => Some(*seen),
            _ => None,
        };
        let is_made = |len| made.is_none_or(|made| made == len);
        match (input, mark) {
            (_, KvMark::Value(None)) => false,
            (_, KvMark::Present) => true,
            (KvInput::Append(more), KvMark::Value(Some(value))) => {
                is_made(self.length(value))
                    && value.text().is_none_or(|text| text.ends_with(&more.0))
            }
            (KvInput::Append(more), KvMark::Length(len)) => is_made(*len) && length(more) <= *len,
            (_, KvMark::Value(Some(value))) => self.integer(value).is_some(),
            (_, KvMark::Length(len)) => (1..=INTEGER_LENGTH_MAX as i64).contains(len),
        }
    }

    fn mark_to_make(&self, input: &KvInput, _: Option<&KvOutput>, made: &KvMark) -> Option<KvMark> {
        use KvInput as I;
        match (input, made) {
            (I::SetIfAbsent(_), _) => Some(KvMark::Value(None)),
            (I::SetIfEqual { expected, .. }, _) => Some(KvMark::Value(Some(self.keep(expected)))),
            (I::Append(more), KvMark::Length(len)) => Some(KvMark::Length(len - length(more))),
            (I::Append(more), KvMark::Value(Some(value))) => {
                let before = value.text()?.strip_suffix(more.as_slice())?;
                // An empty value and none lead to the same.
                let is_empty = before.is_empty();
                Some(if is_empty {
                    KvMark::Length(0)
                } else {
                    KvMark::Value(Some(self.content(before)))
                })
            }
            (I::IncrBy(by), KvMark::Value(Some(value))) => {
                let before = self.integer(value)?.checked_sub(*by)?;
                (before != 0).then(|| KvMark::Value(Some(self.keep(&bytes_of(before)))))
            }
            _ => None,
        }
    }

    fn may_grow_to(&self, state: &ObservedState, mark: &KvMark) -> bool {
        // An absent key may become anything, and an expiring one may become absent.
        let Some(Present { value, expiry: None }) = state else { return true };
        if self.gives_tags {
            return true;
        }
        let is_negative = || value.text().is_some_and(|text| text.starts_with(b"-"));
        let may_shrink = match value {
            ObservedValue::Other { .. } => false,
            ObservedValue::Start { .. } | ObservedValue::Number(_) => {
                self.counts_down || is_negative() || self.length(value) <= self.compared_max
            }
        };
        let is_long_enough = |len| may_shrink || self.length(value) <= len;
        match (value, mark) {
            (_, KvMark::Present) => true,
            (_, KvMark::Value(None)) | (ObservedValue::Other { .. }, KvMark::Value(_)) => false,
            (_, KvMark::Length(len)) => is_long_enough(*len),
            (_, KvMark::Value(Some(wanted))) => is_long_enough(self.length(wanted)),
        }
    }

    fn are_alike(&self, one: &KvInput, other: &KvInput) -> bool {
        one == other || self.effect(one) == self.effect(other)
    }
}
