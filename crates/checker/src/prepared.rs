//! A history sorted into what must be placed, what may be placed and what must not.

use crate::history::{ClientId, OpId, Operation, Outcome};
use crate::model::Model;

/// A call that may appear in an order.
pub(crate) struct Call<'a, M: Model> {
    pub(crate) id: OpId,
    pub(crate) client: ClientId,
    pub(crate) invoked: u64,
    /// `u64::MAX` for optional calls: they stay open for ever.
    pub(crate) responded: u64,
    pub(crate) input: &'a M::Input,
    pub(crate) output: Option<&'a M::Output>,
    /// Leaves every state in which its answer is right as it was.
    pub(crate) is_pure: bool,
    /// Would be pure whatever it answered: a read.
    pub(crate) is_read: bool,
}

/// The calls of one object, each list by invocation, then by `OpId`.
pub(crate) struct Prepared<'a, M: Model> {
    /// Returned: every one must be placed.
    pub(crate) required: Vec<Call<'a, M>>,
    /// Unknown outcome and able to change a state: each may be placed once, or not at all.
    pub(crate) optional: Vec<Call<'a, M>>,
    /// Failed, or unknown without any effect: never placed, kept for the explanation.
    pub(crate) left_out: Vec<LeftOut<'a, M>>,
}

pub(crate) struct LeftOut<'a, M: Model> {
    pub(crate) call: Call<'a, M>,
    pub(crate) is_failed: bool,
}

impl<'a, M: Model> Prepared<'a, M> {
    /// Takes operations whose input `input_of` projects to the model's.
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
        prepared.required.sort_by_key(|call| (call.invoked, call.id));
        prepared.optional.sort_by_key(|call| (call.invoked, call.id));
        prepared
    }

    fn add<I>(&mut self, model: &M, operation: &'a Operation<I, M::Output>, input: &'a M::Input) {
        let output = match &operation.outcome {
            Outcome::Returned(output) => Some(output),
            Outcome::Failed | Outcome::Unknown => None,
        };
        let call = Call {
            id: operation.id,
            client: operation.client,
            invoked: operation.invoked,
            responded: operation.responded.unwrap_or(u64::MAX),
            input,
            output,
            is_pure: model.is_pure(input, output),
            is_read: model.is_pure(input, None),
        };
        match operation.outcome {
            Outcome::Returned(_) => self.required.push(call),
            Outcome::Failed => self.left_out.push(LeftOut { call, is_failed: true }),
            // It can change nothing, so leaving it out loses no order.
            Outcome::Unknown if call.is_read => {
                self.left_out.push(LeftOut { call, is_failed: false });
            }
            Outcome::Unknown => self.optional.push(call),
        }
    }
}
