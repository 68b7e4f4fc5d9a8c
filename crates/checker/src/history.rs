//! Calls of clients, their times, and their outcomes.
//!
//! Times are `u64`: virtual nanoseconds, or any counter that never runs backwards between two
//! causally related events. Operation A precedes operation B only if A responded strictly before B
//! was invoked; equal times mean concurrent.
//!
//! A history is not synchronised: tests with threads keep it behind their own lock.

use std::fmt;

/// Most operations one history may hold.
pub const OPERATIONS_MAX: usize = 1 << 24;

/// Names an operation within one history, in the order of recording.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(pub u32);

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Names a sequential client: its operations have a program order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// The outcome of an operation, as far as its client knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome<O> {
    /// It took effect once, between invocation and response, and this was the answer.
    Returned(O),
    /// It surely had no effect, neither then nor later.
    Failed,
    /// It may take effect once at any time after its invocation, or never.
    Unknown,
}

/// One operation of a history.
#[derive(Clone, Debug)]
pub struct Operation<I, O> {
    pub id: OpId,
    pub client: ClientId,
    pub invoked: u64,
    /// `None` exactly while the outcome is `Unknown`; otherwise `>= invoked`.
    pub responded: Option<u64>,
    pub input: I,
    pub outcome: Outcome<O>,
}

/// The operations of one run.
#[derive(Clone, Debug)]
pub struct History<I, O> {
    operations: Vec<Operation<I, O>>,
}

impl<I, O> Default for History<I, O> {
    fn default() -> Self {
        History::new()
    }
}

impl<I, O> History<I, O> {
    /// An empty history.
    #[must_use]
    pub fn new() -> Self {
        History { operations: Vec::new() }
    }

    /// Records that `client` invoked `input` at time `at`; until completed it is `Unknown`.
    ///
    /// Calls need not come in time order. Calls of one client with equal times must come in order
    /// of issue: that is its program order then.
    ///
    /// # Panics
    /// If the history already holds [`OPERATIONS_MAX`] operations.
    pub fn invoke(&mut self, client: ClientId, input: I, at: u64) -> OpId {
        let index = self.operations.len();
        assert!(index < OPERATIONS_MAX, "a history holds at most {OPERATIONS_MAX} operations");
        let id = OpId(u32::try_from(index).expect("OPERATIONS_MAX is below u32::MAX"));
        let outcome = Outcome::Unknown;
        self.operations.push(Operation {
            id,
            client,
            invoked: at,
            responded: None,
            input,
            outcome,
        });
        id
    }

    /// Records the outcome of `op` at time `at`.
    ///
    /// `Unknown` adds no response: the operation stays open for ever.
    ///
    /// # Panics
    /// If `op` is not of this history, has already returned or failed, or `at` lies before its
    /// invocation.
    pub fn complete(&mut self, op: OpId, outcome: Outcome<O>, at: u64) {
        let operation = &mut self.operations[op.0 as usize];
        assert!(operation.responded.is_none(), "operation {op} completed twice");
        assert!(
            at >= operation.invoked,
            "operation {op} completed at {at}, before its invocation at {}",
            operation.invoked
        );
        operation.responded = (!matches!(outcome, Outcome::Unknown)).then_some(at);
        operation.outcome = outcome;
    }

    /// All operations in the order of recording.
    #[must_use]
    pub fn operations(&self) -> &[Operation<I, O>] {
        &self.operations
    }

    /// The operation named `op`.
    ///
    /// # Panics
    /// If `op` is not of this history.
    #[must_use]
    pub fn operation(&self, op: OpId) -> &Operation<I, O> {
        &self.operations[op.0 as usize]
    }

    /// Number of operations recorded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// True for an empty history.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_never_completed_is_unknown() {
        let mut history: History<u8, u8> = History::new();
        let op = history.invoke(ClientId(1), 7, 10);
        assert_eq!(history.operation(op).outcome, Outcome::Unknown);
        assert_eq!(history.operation(op).responded, None);
    }

    #[test]
    fn completing_as_unknown_adds_no_response() {
        let mut history: History<u8, u8> = History::new();
        let op = history.invoke(ClientId(1), 7, 10);
        history.complete(op, Outcome::Unknown, 20);
        assert_eq!(history.operation(op).responded, None);
        history.complete(op, Outcome::Returned(1), 30);
        assert_eq!(history.operation(op).responded, Some(30));
    }

    #[test]
    #[should_panic(expected = "completed twice")]
    fn second_completion_is_refused() {
        let mut history: History<u8, u8> = History::new();
        let op = history.invoke(ClientId(1), 7, 10);
        history.complete(op, Outcome::Failed, 20);
        history.complete(op, Outcome::Returned(1), 21);
    }

    #[test]
    #[should_panic(expected = "before its invocation")]
    fn response_before_invocation_is_refused() {
        let mut history: History<u8, u8> = History::new();
        let op = history.invoke(ClientId(1), 7, 10);
        history.complete(op, Outcome::Returned(1), 9);
    }
}
