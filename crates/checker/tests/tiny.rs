//! Every history of a tiny world: fast equals slow and obvious, without exception.

use std::collections::BTreeSet;

use checker::model::keyed::Keyed;
use checker::model::register::{Register, RegisterInput, RegisterOutput};
use checker::sequential::{self, WriteOrder};
use checker::{ClientId, History, Limit, Model, OpId, Operation, Outcome, Verdict, linearizable};

mod support;

use support::twin::{explains, in_program, in_real_time, is_explainable};

const CLIENTS: u64 = 2;

/// A possible call; `None` is an unknown outcome.
type PossibleCall<M> = (<M as Model>::Input, Option<<M as Model>::Output>);

fn kinds_of_register() -> Vec<PossibleCall<Register>> {
    use RegisterInput as I;
    use RegisterOutput as O;
    let swap = I::Cas { expected: Some(1), new: 2 };
    vec![
        (I::Write(1), Some(O::Written)),
        (I::Write(2), Some(O::Written)),
        (I::Write(1), None),
        (I::Read, Some(O::Value(None))),
        (I::Read, Some(O::Value(Some(1)))),
        (I::Read, Some(O::Value(Some(2)))),
        (swap, Some(O::Swapped(true))),
        (swap, Some(O::Swapped(false))),
        (swap, None),
    ]
}

fn kinds_of_two_registers() -> Vec<PossibleCall<Keyed<u8, Register>>> {
    use RegisterInput as I;
    use RegisterOutput as O;
    let of_one = [
        (I::Write(1), Some(O::Written)),
        (I::Write(1), None),
        (I::Read, Some(O::Value(None))),
        (I::Read, Some(O::Value(Some(1)))),
    ];
    let of = |key: u8| of_one.map(|(input, output)| ((key, input), output));
    [of(0), of(1)].concat()
}

/// Every history of `count` operations, one invoked after the other, each answered within `times`.
fn every_history<M: Model<Input: Clone, Output: Clone>>(
    kinds: Vec<PossibleCall<M>>,
    count: u32,
    times: u64,
) -> impl Iterator<Item = History<M::Input, M::Output>> {
    let choices = kinds.len() as u64 * CLIENTS * times;
    (0..choices.pow(count)).map(move |mut number| {
        let mut draw = |bound: u64| {
            let digit = number % bound;
            number /= bound;
            digit
        };
        let mut history = History::new();
        for at in 0..u64::from(count) {
            let (input, output) = kinds[draw(kinds.len() as u64) as usize].clone();
            let op = history.invoke(ClientId(draw(CLIENTS)), input, at);
            let outcome = output.map_or(Outcome::Unknown, Outcome::Returned);
            history.complete(op, outcome, at + draw(times));
        }
        history
    })
}

/// Both answers must come up, and often.
fn compare<M: Model<Input: Clone, Output: Clone>>(
    model: &M,
    histories: impl Iterator<Item = History<M::Input, M::Output>>,
    fast: impl Fn(&History<M::Input, M::Output>) -> Verdict,
    precedes: impl Fn(&Operation<M::Input, M::Output>, &Operation<M::Input, M::Output>) -> bool,
) {
    let (mut held, mut violated) = (0, 0);
    for history in histories {
        let expected = is_explainable(model, &history, &precedes);
        match fast(&history) {
            Verdict::Holds { order } => {
                assert!(expected && explains(model, &history, &precedes, &order), "{history:#?}");
                held += 1;
            }
            Verdict::Violation(violation) => {
                assert!(!expected, "an order exists\n{violation}");
                violated += 1;
            }
            Verdict::Undecided { explored } => panic!("gave up after {explored}: {history:#?}"),
        }
    }
    assert!(held > 1_000 && violated > 1_000, "{held} held, {violated} did not");
}

fn compare_sequential<M: Model<Input: Clone, Output: Clone>>(
    model: &M,
    histories: impl Iterator<Item = History<M::Input, M::Output>>,
    write_order: WriteOrder,
) {
    let fast = |history: &_| sequential::check(model, history, write_order, Limit::default());
    let is_write = |operation: &Operation<M::Input, M::Output>| {
        write_order == WriteOrder::RealTime && !model.is_pure(&operation.input, None)
    };
    compare(model, histories, fast, |a, b| {
        in_program(a, b) || is_write(a) && is_write(b) && in_real_time(a, b)
    });
}

/// Time does not count here, so one length of calls is enough.
#[test]
fn sequential_register_agrees_with_twin_on_every_history_of_four() {
    let histories = every_history::<Register>(kinds_of_register(), 4, 1);
    compare_sequential(&Register, histories, WriteOrder::Free);
}

#[test]
fn sequential_registers_agree_with_twin_on_every_history_of_four() {
    let histories = every_history::<Keyed<u8, Register>>(kinds_of_two_registers(), 4, 1);
    compare_sequential(&Keyed::new(Register), histories, WriteOrder::Free);
}

/// Calls of up to three lengths overlap, touch or precede one or two later ones.
#[test]
fn ordered_writes_agree_with_twin_on_every_history_of_three() {
    let histories = every_history::<Register>(kinds_of_register(), 3, 3);
    compare_sequential(&Register, histories, WriteOrder::RealTime);
    let histories = every_history::<Keyed<u8, Register>>(kinds_of_two_registers(), 3, 3);
    compare_sequential(&Keyed::new(Register), histories, WriteOrder::RealTime);
}

/// Every second call keeps real-time order, read or write.
#[test]
fn ordered_reads_agree_with_twin_on_every_history_of_three() {
    let is_ordered = |id: OpId| id.0 % 2 == 1;
    let fast = |history: &History<_, _>| {
        let ids = history.operations().iter().map(|operation| operation.id);
        let ordered: BTreeSet<OpId> = ids.filter(|id| is_ordered(*id)).collect();
        sequential::check_ordered(&Register, history, &ordered, Limit::default())
    };
    let keeps_time = |operation: &Operation<RegisterInput, RegisterOutput>| {
        is_ordered(operation.id) || !Register.is_pure(&operation.input, None)
    };
    let histories = every_history::<Register>(kinds_of_register(), 3, 3);
    compare(&Register, histories, fast, |a, b| {
        in_program(a, b) || keeps_time(a) && keeps_time(b) && in_real_time(a, b)
    });
}

#[test]
fn linearizable_register_agrees_with_twin_on_every_history_of_three() {
    let histories = every_history::<Register>(kinds_of_register(), 3, 3);
    let fast = |history: &_| linearizable::check(&Register, history, Limit::default());
    compare(&Register, histories, fast, in_real_time);
}
