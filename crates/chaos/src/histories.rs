//! Turns recorded calls into one history per key, and checks each.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Instant;

use checker::model::Model;
use checker::model::kv::{Kv, KvInput, KvOutput};
use checker::{ClientId, History, Limit, Operation, Outcome, Verdict, linearizable};
use serde_json::{Value, json};

use crate::calls::{Answer, Call, KeyKind, LOCK_MS, TestKey};
use crate::lock::{Lock, LockInput, LockOutput};

/// Effort for the history of one key: a second or two at most.
const LIMIT: Limit = Limit { explored_max: 400_000 };

/// One call of a client and its outcome.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    pub client: u64,
    /// The node that was asked, from 0.
    pub node: usize,
    pub key: TestKey,
    pub call: Call,
    /// Nanoseconds since the recording began, as is `done`.
    pub invoked: u64,
    pub done: u64,
    pub outcome: Outcome<Answer>,
}

impl RecordedCall {
    /// Whether a write was acknowledged.
    pub fn is_acknowledged_write(&self) -> bool {
        self.call.is_write() && matches!(self.outcome, Outcome::Returned(_))
    }
}

/// The verdict on one key.
pub struct Judged {
    pub key: TestKey,
    pub verdict: Verdict,
    pub operations: usize,
    /// A line of JSON as `tools/porcupine` reads it.
    pub line: String,
}

/// Judges every key.
pub fn judge(ops: &[RecordedCall], seed: u64) -> Vec<Judged> {
    let mut by_key: BTreeMap<TestKey, Vec<&RecordedCall>> = BTreeMap::new();
    for op in ops {
        by_key.entry(op.key).or_default().push(op);
    }
    let judge_key = |(key, ops): (TestKey, Vec<&RecordedCall>)| match key.kind {
        KeyKind::Lock => judge_one(key, &Lock, &lock_history(&ops), ("lock", lock_line), seed),
        _ => judge_one(key, &Kv, &kv_history(&ops), ("kv", kv_line), seed),
    };
    by_key.into_iter().map(judge_key).collect()
}

/// Encodes an input and its answer.
type Encoder<I, O> = fn(&I, Option<&O>) -> (Value, Value);

fn judge_one<M: Model>(
    key: TestKey,
    model: &M,
    history: &History<M::Input, M::Output>,
    (name, line): (&str, Encoder<M::Input, M::Output>),
    seed: u64,
) -> Judged {
    let start = Instant::now();
    let verdict = linearizable::check(model, history, LIMIT);
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    let word = match &verdict {
        Verdict::Holds { .. } => "holds",
        Verdict::Violation(_) => "violation",
        Verdict::Undecided { .. } => "undecided",
    };
    let line = json!({
        "model": name,
        "key": key.name(),
        "seed": seed,
        "verdict": word,
        "micros": micros,
        "operations": operations(history, line),
    });
    Judged { key, verdict, operations: history.len(), line: line.to_string() }
}

/// Writes all histories as JSON lines.
///
/// # Errors
/// When they cannot be written.
pub fn write(judged: &[Judged], out: &mut impl Write) -> io::Result<()> {
    judged.iter().try_for_each(|judged| writeln!(out, "{}", judged.line))
}

fn kv_history(ops: &[&RecordedCall]) -> History<KvInput, KvOutput> {
    let mut history = History::new();
    for op in ops {
        let Call::Kv(input) = &op.call else { panic!("{:?} is not asked of a string", op.call) };
        let outcome = match &op.outcome {
            Outcome::Returned(Answer::Kv(output)) => Outcome::Returned(output.clone()),
            Outcome::Returned(other) => panic!("{other:?} is no answer to {input:?}"),
            Outcome::Failed => Outcome::Failed,
            Outcome::Unknown => Outcome::Unknown,
        };
        let id = history.invoke(ClientId(op.client), input.clone(), op.invoked);
        history.complete(id, outcome, op.done);
    }
    history
}

/// With an expiry for each token that may have held the lock until its time was over.
fn lock_history(ops: &[&RecordedCall]) -> History<LockInput, LockOutput> {
    let mut history = History::new();
    for op in ops {
        let Call::Lock(input) = &op.call else { panic!("{:?} is not asked of a lock", op.call) };
        let outcome = match &op.outcome {
            Outcome::Returned(Answer::Lock(output)) => Outcome::Returned(*output),
            Outcome::Returned(other) => panic!("{other:?} is no answer to {input:?}"),
            Outcome::Failed => Outcome::Failed,
            Outcome::Unknown => Outcome::Unknown,
        };
        let id = history.invoke(ClientId(op.client), *input, op.invoked);
        history.complete(id, outcome.clone(), op.done);
        let LockInput::Acquire(token) = *input else { continue };
        let may_hold =
            matches!(outcome, Outcome::Unknown | Outcome::Returned(LockOutput::Granted(true)));
        // A hold begins after its request.
        let end = op.invoked + LOCK_MS * 1_000_000;
        if may_hold && !is_released_before(ops, token, end) {
            history.invoke(ClientId(u64::MAX), LockInput::Expire(token), end);
        }
    }
    history
}

fn is_released_before(ops: &[&RecordedCall], token: u64, end: u64) -> bool {
    ops.iter().any(|op| {
        op.call == Call::Lock(LockInput::Release(token))
            && op.outcome == Outcome::Returned(Answer::Lock(LockOutput::Granted(true)))
            && op.done < end
    })
}

/// Failed operations surely had no effect, so the other checker does not see them.
fn operations<I, O>(history: &History<I, O>, line: Encoder<I, O>) -> Vec<Value> {
    let encode = |operation: &Operation<I, O>| {
        let answer = match &operation.outcome {
            Outcome::Returned(answer) => Some(answer),
            Outcome::Unknown => None,
            Outcome::Failed => return None,
        };
        let (input, answer) = line(&operation.input, answer);
        Some(json!({
            "client": operation.client.0 & (u64::MAX >> 1),
            "call": operation.invoked,
            "return": operation.responded,
            "input": input,
            "answer": answer,
        }))
    };
    history.operations().iter().filter_map(encode).collect()
}

fn kv_line(input: &KvInput, answer: Option<&KvOutput>) -> (Value, Value) {
    let text =
        |bytes: &checker::model::kv::Bytes| String::from_utf8_lossy(bytes.as_slice()).into_owned();
    let input = match input {
        KvInput::Set(value) => json!(["Set", text(value)]),
        KvInput::SetIfAbsent(value) => json!(["SetIfAbsent", text(value)]),
        KvInput::SetIfEqual { expected, new } => json!(["SetIfEqual", text(expected), text(new)]),
        KvInput::GetSet(value) => json!(["GetSet", text(value)]),
        KvInput::IncrBy(by) => json!(["IncrBy", by.to_string()]),
        KvInput::Append(value) => json!(["Append", text(value)]),
        other => json!([format!("{other:?}")]),
    };
    let answer = answer.map(|answer| match answer {
        KvOutput::Value(Some(value)) => json!(["Value", text(value)]),
        KvOutput::Value(None) => json!(["Value"]),
        KvOutput::Integer(integer) => json!(["Integer", integer.to_string()]),
        other => json!([format!("{other:?}")]),
    });
    (input, json!(answer))
}

fn lock_line(input: &LockInput, answer: Option<&LockOutput>) -> (Value, Value) {
    let input = match input {
        LockInput::Acquire(token) => json!(["Acquire", token.to_string()]),
        LockInput::Release(token) => json!(["Release", token.to_string()]),
        LockInput::Expire(token) => json!(["Expire", token.to_string()]),
        LockInput::Holder => json!(["Holder"]),
    };
    let answer = answer.map(|answer| match answer {
        LockOutput::Granted(granted) => json!(["Granted", granted.to_string()]),
        LockOutput::Holder(Some(token)) => json!(["Holder", token.to_string()]),
        LockOutput::Holder(None) => json!(["Holder"]),
    });
    (input, json!(answer))
}

#[cfg(test)]
mod tests {
    use checker::model::kv::Bytes;

    use super::*;

    const MS: u64 = 1_000_000;

    fn op(
        client: u64,
        call: Call,
        (invoked, done): (u64, u64),
        outcome: Outcome<Answer>,
    ) -> RecordedCall {
        let kind = if matches!(call, Call::Lock(_)) { KeyKind::Lock } else { KeyKind::Register };
        let key = TestKey { kind, generation: 1, number: 0 };
        RecordedCall { client, node: 0, key, call, invoked, done, outcome }
    }

    fn set(value: &str) -> Call {
        Call::Kv(KvInput::Set(Bytes::from(value)))
    }

    fn saw(value: Option<&str>) -> Outcome<Answer> {
        Outcome::Returned(Answer::Kv(KvOutput::Value(value.map(Bytes::from))))
    }

    fn done() -> Outcome<Answer> {
        Outcome::Returned(Answer::Kv(KvOutput::Done))
    }

    fn get() -> Call {
        Call::Kv(KvInput::Get)
    }

    fn only(ops: &[RecordedCall]) -> Judged {
        judge(ops, 1).pop().expect("one key")
    }

    #[test]
    fn lost_acknowledged_write_is_a_violation() {
        let written = op(1, set("1"), (0, 10), done());
        let read = |seen| op(2, get(), (20, 30), seen);
        assert!(only(&[written.clone(), read(saw(Some("1")))]).verdict.holds());
        assert!(only(&[written.clone(), read(saw(None))]).verdict.is_violation());
        assert!(only(&[written, read(saw(Some("2")))]).verdict.is_violation());
    }

    #[test]
    fn unknown_write_may_appear_but_refused_never() {
        let read = op(2, get(), (900, 910), saw(Some("1")));
        let unknown = op(1, set("1"), (0, 10), Outcome::Unknown);
        assert!(only(&[unknown, read.clone()]).verdict.holds());
        let failed = op(1, set("1"), (0, 10), Outcome::Failed);
        assert!(only(&[failed, read]).verdict.is_violation());
    }

    #[test]
    fn lock_released_early_is_a_violation() {
        let granted = || Outcome::Returned(Answer::Lock(LockOutput::Granted(true)));
        let acquire = |token| Call::Lock(LockInput::Acquire(token));
        let first = op(1, acquire(1), (0, 10), granted());
        let second = |at| op(2, acquire(2), (at, at + 10), granted());
        let early = (LOCK_MS - 100) * MS;
        let late = (LOCK_MS + 100) * MS;
        assert!(only(&[first.clone(), second(early)]).verdict.is_violation());
        assert!(only(&[first.clone(), second(late)]).verdict.holds());
        let release = op(1, Call::Lock(LockInput::Release(1)), (20, 30), granted());
        assert!(only(&[first, release, second(early)]).verdict.holds());
    }

    #[test]
    fn lines_hold_operations_with_possible_effect() {
        let ops = [
            op(1, set("1"), (0, 10), done()),
            op(1, set("2"), (20, 30), Outcome::Failed),
            op(2, set("3"), (40, 50), Outcome::Unknown),
            op(3, get(), (60, 70), saw(None)),
        ];
        let line: Value = serde_json::from_str(&only(&ops).line).expect("JSON");
        assert_eq!(line["model"], "kv");
        assert_eq!(line["verdict"], "violation");
        let expected = json!([
            {"client": 1, "call": 0, "return": 10, "input": ["Set", "1"], "answer": ["Done"]},
            {"client": 2, "call": 40, "return": null, "input": ["Set", "3"], "answer": null},
            {"client": 3, "call": 60, "return": 70, "input": ["Get"], "answer": ["Value"]},
        ]);
        assert_eq!(line["operations"], expected);
    }

    #[test]
    fn other_checker_sees_expiry() {
        let call = Call::Lock(LockInput::Acquire(4));
        let line: Value =
            serde_json::from_str(&only(&[op(1, call, (5, 10), Outcome::Unknown)]).line)
                .expect("JSON");
        let expire = &line["operations"][1];
        assert_eq!(expire["input"], json!(["Expire", "4"]));
        assert_eq!(expire["call"], json!(5 + LOCK_MS * MS));
        assert_eq!(expire["return"], Value::Null);
    }
}
