//! Models with a way to draw inputs and answers.

use std::collections::BTreeSet;

use checker::Model;
use checker::model::append::{Append, AppendInput, AppendOutput};
use checker::model::counter::{Counter, CounterInput};
use checker::model::keyed::Keyed;
use checker::model::kv::{Bytes, ExpiryTag, Kv, KvInput, KvOutput};
use checker::model::register::{Register, RegisterInput, RegisterOutput};
use checker::model::{Calls, MarksAfter};

use super::Random;

/// A model that can be tested with random histories.
pub(crate) trait Subject: Model<Input: Clone, Output: Clone> {
    fn random_input(&self, random: &mut Random) -> Self::Input;

    /// Answers that may be right or wrong, every right one in `state` among them.
    fn answers(&self, state: &Self::State, input: &Self::Input) -> Vec<Self::Output>;

    /// One step as the real thing would take it: its answer and the state after it.
    fn run(
        &self,
        state: &Self::State,
        input: &Self::Input,
        random: &mut Random,
    ) -> (Self::Output, Self::State) {
        let step = |answer| {
            let next: Vec<Self::State> =
                self.step(state, input, Some(&answer)).into_iter().collect();
            next.into_iter().map(move |next| (answer.clone(), next))
        };
        let mut right: Vec<_> = self.answers(state, input).into_iter().flat_map(step).collect();
        let chosen = random.below(right.len() as u64) as usize;
        right.swap_remove(chosen)
    }
}

impl Subject for Register {
    fn random_input(&self, random: &mut Random) -> RegisterInput {
        let value = random.below(3);
        match random.below(5) {
            0 | 1 => RegisterInput::Read,
            2 | 3 => RegisterInput::Write(value),
            _ => {
                let expected = random.chance(80).then(|| random.below(3));
                RegisterInput::Cas { expected, new: value }
            }
        }
    }

    fn answers(&self, state: &Option<u64>, input: &RegisterInput) -> Vec<RegisterOutput> {
        match input {
            RegisterInput::Read => {
                [None, Some(0), Some(1), Some(2), *state].map(RegisterOutput::Value).to_vec()
            }
            RegisterInput::Write(_) => vec![RegisterOutput::Written],
            RegisterInput::Cas { .. } => [true, false].map(RegisterOutput::Swapped).to_vec(),
        }
    }
}

/// A model with inputs drawn another way.
pub(crate) struct Drawn<M: Model> {
    pub(crate) model: M,
    pub(crate) draw: fn(&mut Random) -> M::Input,
}

/// A register whose writes have unique values, as in most tests of real stores.
pub(crate) fn register_of_unlike_values() -> Drawn<Register> {
    let draw = |random: &mut Random| match random.chance(50) {
        true => RegisterInput::Read,
        false => RegisterInput::Write(random.bits()),
    };
    Drawn { model: Register, draw }
}

/// A register with reads and writes of few values: reads observe few of the writes.
pub(crate) fn register_without_swaps() -> Drawn<Register> {
    let draw = |random: &mut Random| match random.chance(40) {
        true => RegisterInput::Read,
        false => RegisterInput::Write(random.below(3)),
    };
    Drawn { model: Register, draw }
}

/// A string key to which no value is written twice.
pub(crate) fn kv_of_unlike_values() -> Drawn<Kv> {
    let draw = |random: &mut Random| {
        let unlike = Bytes::from(format!("{:x}", random.bits()).as_bytes());
        match Kv.random_input(random) {
            KvInput::Set(_) | KvInput::SetExpiring(..) | KvInput::Expire(_) => KvInput::Set(unlike),
            KvInput::SetIfAbsent(_) => KvInput::SetIfAbsent(unlike),
            KvInput::GetSet(_) => KvInput::GetSet(unlike),
            KvInput::SetIfEqual { expected, .. } => KvInput::SetIfEqual { expected, new: unlike },
            KvInput::Append(_) => KvInput::Append(unlike),
            other => other,
        }
    };
    Drawn { model: Kv, draw }
}

/// A string key that grows by items no two of which are alike, and is never replaced.
pub(crate) fn kv_of_unlike_items() -> Drawn<Kv> {
    let draw = |random: &mut Random| match random.chance(40) {
        true => KvInput::Get,
        false => KvInput::Append(Bytes::from(format!("{:x},", random.bits()).as_bytes())),
    };
    Drawn { model: Kv, draw }
}

/// A string key that grows by items of which some end like others, and is replaced now and then.
pub(crate) fn kv_of_lists() -> Drawn<Kv> {
    let draw = |random: &mut Random| {
        let item = Bytes::from(*random.pick(&["1,", "11,", "2,", "21,", "3,", "4,", "5,", "6,"]));
        match random.below(20) {
            0..6 => KvInput::Get,
            6 => KvInput::StrLen,
            7 => KvInput::Set(item),
            8 => random.pick(&[KvInput::Del, KvInput::GetDel, KvInput::GetSet(item)]).clone(),
            9 => random.pick(&[KvInput::SetIfAbsent(item), KvInput::Exists]).clone(),
            _ => KvInput::Append(item),
        }
    };
    Drawn { model: Kv, draw }
}

/// A string key that is counted up and down, and that appending turns into a number.
pub(crate) fn kv_of_numbers() -> Drawn<Kv> {
    let draw = |random: &mut Random| {
        let mut value = || Bytes::from(*random.pick(&["0", "1", "-1", "-", "", "10", "x"]));
        let (one, other) = (value(), value());
        match random.below(12) {
            0..3 => KvInput::Get,
            3 => KvInput::StrLen,
            4 => KvInput::Set(one),
            5 => KvInput::SetIfEqual { expected: one, new: other },
            6 => random.pick(&[KvInput::Del, KvInput::GetSet(one)]).clone(),
            7 | 8 => KvInput::Append(one),
            _ => KvInput::IncrBy(*random.pick(&[1, 1, 2, -1])),
        }
    };
    Drawn { model: Kv, draw }
}

/// A string key with unique values that expire.
pub(crate) fn kv_that_expires() -> Drawn<Kv> {
    let draw = |random: &mut Random| {
        let tag = random.below(5);
        let value = Bytes::from(format!("t{tag}").as_bytes());
        match random.below(14) {
            0..4 => KvInput::Get,
            4..7 => KvInput::SetExpiring(value, ExpiryTag(tag)),
            12 => KvInput::ExpireIn(ExpiryTag(tag)),
            13 => KvInput::Persist,
            7 => KvInput::SetIfAbsent(Bytes::from("v")),
            8 => KvInput::Append(Bytes::from("+")),
            9 => random.pick(&[KvInput::Del, KvInput::Set(value), KvInput::Exists]).clone(),
            _ => KvInput::Expire(Some(ExpiryTag(tag))),
        }
    };
    Drawn { model: Kv, draw }
}

impl<M: Subject> Subject for Drawn<M> {
    fn random_input(&self, random: &mut Random) -> M::Input {
        (self.draw)(random)
    }

    fn answers(&self, state: &M::State, input: &M::Input) -> Vec<M::Output> {
        self.model.answers(state, input)
    }
}

impl<M: Model> Model for Drawn<M> {
    type State = M::State;
    type Input = M::Input;
    type Output = M::Output;
    type Successors = M::Successors;
    type Mark = M::Mark;
    type Scoped = M::Scoped;

    fn scoped(&self, calls: Calls<'_, M::Input, M::Output>) -> M::Scoped {
        self.model.scoped(calls)
    }

    fn initial(&self) -> M::State {
        self.model.initial()
    }

    fn step(&self, state: &M::State, input: &M::Input, seen: Option<&M::Output>) -> M::Successors {
        self.model.step(state, input, seen)
    }

    fn is_pure(&self, input: &M::Input, seen: Option<&M::Output>) -> bool {
        self.model.is_pure(input, seen)
    }

    fn is_blind(&self, input: &M::Input, seen: Option<&M::Output>) -> bool {
        self.model.is_blind(input, seen)
    }

    fn can_lead_to(&self, state: &M::State, input: &M::Input, seen: &M::Output) -> bool {
        self.model.can_lead_to(state, input, seen)
    }

    fn marks(&self, state: &M::State, input: &M::Input, into: &mut Vec<M::Mark>) {
        self.model.marks(state, input, into);
    }

    fn mark_before(&self, input: &M::Input, seen: &M::Output) -> Option<M::Mark> {
        self.model.mark_before(input, seen)
    }

    fn marks_after(&self, input: &M::Input, seen: Option<&M::Output>) -> MarksAfter<M::Mark> {
        self.model.marks_after(input, seen)
    }

    fn may_make(&self, input: &M::Input, seen: Option<&M::Output>, mark: &M::Mark) -> bool {
        self.model.may_make(input, seen, mark)
    }
}

impl Subject for Counter {
    fn random_input(&self, random: &mut Random) -> CounterInput {
        *random.pick(&[CounterInput::Increment, CounterInput::Read])
    }

    fn answers(&self, state: &u64, _: &CounterInput) -> Vec<u64> {
        (0..8).chain([*state, state + 1]).collect()
    }
}

impl Subject for Append<u8> {
    fn random_input(&self, random: &mut Random) -> AppendInput<u8> {
        if random.chance(40) {
            AppendInput::Read
        } else {
            AppendInput::Append(random.below(3) as u8)
        }
    }

    fn answers(&self, state: &Self::State, input: &AppendInput<u8>) -> Vec<AppendOutput<u8>> {
        match input {
            AppendInput::Append(_) => {
                (1..8).chain([state.len() + 1]).map(AppendOutput::Length).collect()
            }
            AppendInput::Read => {
                let mut content: Vec<u8> = state.newest_first().copied().collect();
                content.reverse();
                let shorter = content[..content.len().saturating_sub(1)].to_vec();
                let longer = [&content[..], &[1]].concat();
                let mut turned = content.clone();
                turned.reverse();
                [content, shorter, longer, turned].map(AppendOutput::Content).to_vec()
            }
        }
    }
}

impl Subject for Kv {
    fn random_input(&self, random: &mut Random) -> KvInput {
        let mut value = || Bytes::from(*random.pick(&["1", "2", "x", ""]));
        let (one, other) = (value(), value());
        match random.below(15) {
            0 | 1 => KvInput::Get,
            2 => KvInput::Set(one),
            3 => KvInput::SetExpiring(one, ExpiryTag(random.below(2))),
            4 => KvInput::SetIfAbsent(one),
            5 => KvInput::SetIfEqual { expected: one, new: other },
            6 => KvInput::GetSet(one),
            7 => KvInput::GetDel,
            8 => KvInput::Del,
            9 => KvInput::Exists,
            10 => KvInput::StrLen,
            11 => KvInput::IncrBy(random.below(3) as i64 - 1),
            12 => KvInput::Append(one),
            13 => KvInput::Expire(Some(ExpiryTag(random.below(2)))),
            _ => KvInput::Expire(None),
        }
    }

    fn answers(&self, state: &Self::State, input: &KvInput) -> Vec<KvOutput> {
        let value = state.as_ref().map(|present| present.value.clone());
        let values = [None, value, Some(Bytes::from("1")), Some(Bytes::from("x"))];
        [KvOutput::Done, KvOutput::Refused, KvOutput::NotAnInteger, KvOutput::Overflow]
            .into_iter()
            .chain(values.map(KvOutput::Value))
            .chain((-8..16).map(KvOutput::Integer))
            .chain(integers_near(state, input).map(KvOutput::Integer))
            .collect()
    }
}

/// Possible answers of INCRBY, APPEND and STRLEN beyond small numbers.
fn integers_near(state: &<Kv as Model>::State, input: &KvInput) -> impl Iterator<Item = i64> {
    let text = state
        .as_ref()
        .map_or("".into(), |present| String::from_utf8_lossy(present.value.as_slice()));
    let more = match input {
        KvInput::Append(more) => more.as_slice().len(),
        _ => 0,
    };
    let by = match input {
        KvInput::IncrBy(by) => *by,
        _ => 0,
    };
    let around = [(text.len() + more) as i64, text.parse().unwrap_or(0) + by];
    around.into_iter().flat_map(|integer| integer - 1..=integer + 1)
}

impl Subject for Keyed<u8, Register> {
    fn random_input(&self, random: &mut Random) -> (u8, RegisterInput) {
        (random.below(2) as u8, Register.random_input(random))
    }

    fn answers(&self, _: &Self::State, (_, input): &(u8, RegisterInput)) -> Vec<RegisterOutput> {
        Register.answers(&None, input)
    }
}

/// A set from which any member may be taken: nondeterministic, above all when the answer is
/// unobserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bag;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum BagInput {
    /// Answers `None`.
    Put(u8),
    /// Answers the member taken, `None` if there was none.
    Take,
    /// Takes one member or none, and does not tell.
    Leak,
}

impl Model for Bag {
    type State = BTreeSet<u8>;
    type Input = BagInput;
    type Output = Option<u8>;
    type Successors = Vec<BTreeSet<u8>>;
    type Mark = ();
    type Scoped = Bag;

    fn scoped(&self, _: Calls<'_, BagInput, Option<u8>>) -> Bag {
        Bag
    }

    fn initial(&self) -> BTreeSet<u8> {
        BTreeSet::new()
    }

    fn step(
        &self,
        state: &BTreeSet<u8>,
        input: &BagInput,
        observed: Option<&Option<u8>>,
    ) -> Vec<BTreeSet<u8>> {
        let without = |member: u8| {
            let mut next = state.clone();
            next.remove(&member);
            next
        };
        match (input, observed) {
            (BagInput::Put(member), None | Some(None)) => {
                let mut next = state.clone();
                next.insert(*member);
                vec![next]
            }
            (BagInput::Put(_), Some(Some(_))) => Vec::new(),
            (BagInput::Leak, None | Some(None)) => {
                [state.clone()].into_iter().chain(state.iter().map(|m| without(*m))).collect()
            }
            (BagInput::Leak, Some(Some(_))) => Vec::new(),
            (BagInput::Take, None) if state.is_empty() => vec![state.clone()],
            (BagInput::Take, None) => state.iter().map(|member| without(*member)).collect(),
            (BagInput::Take, Some(None)) if state.is_empty() => vec![state.clone()],
            (BagInput::Take, Some(Some(seen))) if state.contains(seen) => vec![without(*seen)],
            (BagInput::Take, Some(_)) => Vec::new(),
        }
    }
}

impl Subject for Bag {
    fn random_input(&self, random: &mut Random) -> BagInput {
        match random.below(5) {
            0 | 1 => BagInput::Put(random.below(3) as u8),
            2 | 3 => BagInput::Take,
            _ => BagInput::Leak,
        }
    }

    fn answers(&self, _: &BTreeSet<u8>, _: &BagInput) -> Vec<Option<u8>> {
        vec![None, Some(0), Some(1), Some(2)]
    }
}
