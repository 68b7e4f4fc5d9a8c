//! A history sorted into calls that must, may or must not be placed.

use crate::history::{ClientId, OpId, Operation, Outcome};
use crate::model::{MarksAfter, Model};

/// A call that may appear in an order.
pub(crate) struct PreparedCall<'a, M: Model> {
    pub(crate) id: OpId,
    pub(crate) client: ClientId,
    pub(crate) invoked: u64,
    /// `u64::MAX` where there was no answer: the call stays open for ever.
    pub(crate) responded: u64,
    /// Within `invoked` and `responded`: it takes effect no sooner and no later.
    pub(crate) earliest: u64,
    pub(crate) latest: u64,
    pub(crate) input: &'a M::Input,
    pub(crate) output: Option<&'a M::Output>,
    /// Leaves every state in which its answer is right as it was.
    pub(crate) is_pure: bool,
    /// Would be pure whatever it answered: a read.
    pub(crate) is_read: bool,
    /// Can do without the state before it.
    pub(crate) is_blind: bool,
    /// Marks that every state has in which it may be placed.
    pub(crate) needs: Vec<M::Mark>,
    /// Marks it may add; of a blind call, all those of the state it leaves.
    pub(crate) makes: MarksAfter<M::Mark>,
}

/// The calls of one object, each list by earliest effect, then by invocation, then by `OpId`.
pub(crate) struct Prepared<'a, M: Model> {
    /// Surely took effect: every one must be placed.
    pub(crate) required: Vec<PreparedCall<'a, M>>,
    /// Unknown outcome and able to change a state: each may be placed once, or not at all.
    pub(crate) optional: Vec<PreparedCall<'a, M>>,
    /// Failed, or unknown without any effect: never placed, kept for the explanation.
    pub(crate) left_out: Vec<LeftOut<'a, M>>,
}

pub(crate) struct LeftOut<'a, M: Model> {
    pub(crate) call: PreparedCall<'a, M>,
    pub(crate) is_failed: bool,
}

impl<'a, M: Model> Prepared<'a, M> {
    /// Takes operations; `input_of` projects their inputs to the model's.
    pub(crate) fn new<I>(
        model: &M,
        operations: impl IntoIterator<Item = &'a Operation<I, M::Output>>,
        input_of: impl Fn(&'a I) -> &'a M::Input,
    ) -> Self
    where
        I: 'a,
    {
        let mut prepared =
            Prepared { required: Vec::new(), optional: Vec::new(), left_out: Vec::new() };
        for operation in operations {
            prepared.add(model, operation, input_of(&operation.input));
        }
        prepared.sort();
        prepared
    }

    pub(crate) fn sort(&mut self) {
        // Where a session's calls were narrowed to one time, they stay in the order of their issue.
        let by_effect = |call: &PreparedCall<'a, M>| (call.earliest, call.invoked, call.id);
        self.required.sort_by_key(by_effect);
        self.optional.sort_by_key(by_effect);
    }

    fn add<I>(&mut self, model: &M, operation: &'a Operation<I, M::Output>, input: &'a M::Input) {
        let output = answer(operation);
        let responded = operation.responded.unwrap_or(u64::MAX);
        let is_blind = model.is_blind(input, output);
        let makes = match is_blind {
            true => MarksAfter::Only(marks_left(model, input, output)),
            false => model.marks_after(input, output),
        };
        let call = PreparedCall {
            id: operation.id,
            client: operation.client,
            invoked: operation.invoked,
            responded,
            earliest: operation.invoked,
            latest: responded,
            input,
            output,
            is_pure: model.is_pure(input, output),
            is_read: model.is_pure(input, None),
            is_blind,
            needs: output.and_then(|output| model.mark_before(input, output)).into_iter().collect(),
            makes,
        };
        match operation.outcome {
            Outcome::Returned(_) => self.required.push(call),
            Outcome::Failed => self.left_out.push(LeftOut { call, is_failed: true }),
            // It has no effect, so leaving it out loses no order.
            Outcome::Unknown if call.is_read => {
                self.left_out.push(LeftOut { call, is_failed: false });
            }
            Outcome::Unknown => self.optional.push(call),
        }
    }
}

/// The model for the calls of `operations`.
pub(crate) fn scoped<'a, M: Model<Input: 'a, Output: 'a>, I: 'a>(
    model: &M,
    operations: &[&'a Operation<I, M::Output>],
    input_of: impl Fn(&'a I) -> &'a M::Input,
) -> M::Scoped {
    let has_effect = |op: &&&Operation<I, M::Output>| !matches!(op.outcome, Outcome::Failed);
    let calls: Vec<_> = operations
        .iter()
        .filter(has_effect)
        .map(|operation| (input_of(&operation.input), answer(operation)))
        .collect();
    model.scoped(&calls)
}

fn answer<I, O>(operation: &Operation<I, O>) -> Option<&O> {
    match &operation.outcome {
        Outcome::Returned(output) => Some(output),
        Outcome::Failed | Outcome::Unknown => None,
    }
}

/// The marks of the state that a blind call leaves, wherever it is placed.
fn marks_left<M: Model>(model: &M, input: &M::Input, output: Option<&M::Output>) -> Vec<M::Mark> {
    let left = model.step(&model.initial(), input, output);
    let left = left.into_iter().next().expect("a blind call is right in every state");
    let mut marks = Vec::new();
    model.marks(&left, input, &mut marks);
    marks
}
