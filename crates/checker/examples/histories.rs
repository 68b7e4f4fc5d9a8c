//! Random histories, right and wrong, with our verdict on each: JSON lines on standard output.
//!
//! `tools/porcupine` reads them and asks Porcupine the same; `./x porcupine` runs both.
//!
//! `cargo run --release -p checker --example histories -- HISTORIES SEED`, so many of each model.

use std::io::{self, BufWriter, Write};
use std::time::Instant;

use checker::model::append::{Append, AppendInput, AppendOutput};
use checker::model::counter::Counter;
use checker::model::kv::{Bytes, Kv, KvInput, KvOutput};
use checker::model::register::{Register, RegisterInput, RegisterOutput};
use checker::{History, Limit, Operation, Outcome, Verdict, linearizable};
use serde_json::{Value, json};

#[path = "../tests/support/mod.rs"]
mod support;

use support::Random;
use support::histories::{HistoryShape, doubtful, right};
use support::subjects::{
    Bag, BagInput, Subject, kv_of_lists, kv_of_numbers, kv_of_unlike_values, kv_that_expires,
    register_of_unlike_values,
};

/// Limits our effort and Porcupine's alike, to seconds for one history.
const LIMIT: Limit = Limit { explored_max: 300_000 };

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (Some(Ok(count)), Some(Ok(first)), None) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err(io::Error::other("usage: histories HISTORIES SEED"));
    };
    let seeds = || first..first.saturating_add(count);
    let out = &mut BufWriter::new(io::stdout().lock());
    write_all(out, "register", &Register, seeds(), register_call)?;
    let unlike = register_of_unlike_values();
    write_all(out, "register of unlike values", &unlike, seeds(), register_call)?;
    write_all(out, "counter", &Counter, seeds(), |input, answer| {
        (json!([format!("{input:?}")]), json!(answer.map(|value| [value.to_string()])))
    })?;
    write_all(out, "append", &Append::<u8>::new(), seeds(), append_call)?;
    write_all(out, "kv", &Kv, seeds(), kv_call)?;
    write_all(out, "kv of lists", &kv_of_lists(), seeds(), kv_call)?;
    write_all(out, "kv of numbers", &kv_of_numbers(), seeds(), kv_call)?;
    write_all(out, "kv of unlike values", &kv_of_unlike_values(), seeds(), kv_call)?;
    write_all(out, "kv that expires", &kv_that_expires(), seeds(), kv_call)?;
    write_all(out, "bag", &Bag, seeds(), bag_call)?;
    out.flush()
}

/// Encodes an input and its answer.
type Encoder<S> =
    fn(&<S as checker::Model>::Input, Option<&<S as checker::Model>::Output>) -> (Value, Value);

fn write_all<S: Subject>(
    out: &mut impl Write,
    name: &str,
    subject: &S,
    seeds: impl Iterator<Item = u64>,
    call: Encoder<S>,
) -> io::Result<()> {
    for seed in seeds {
        let mut random = Random::new(seed);
        let shape = shape(&mut random);
        let history = match random.chance(40) {
            true => right(subject, shape, &mut random),
            false => doubtful(subject, shape, &mut random),
        };
        let start = Instant::now();
        let verdict = linearizable::check(subject, &history, LIMIT);
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let verdict = match verdict {
            Verdict::Holds { .. } => "holds",
            Verdict::Violation(_) => "violation",
            Verdict::Undecided { .. } => "undecided",
        };
        let operations = operations(&history, call);
        let line = json!({
            "model": name,
            "seed": seed,
            "verdict": verdict,
            "micros": micros,
            "operations": operations,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Most are small and dense, some long.
fn shape(random: &mut Random) -> HistoryShape {
    let (operations_max, clients_max) = match random.below(10) {
        0..6 => (12, 6),
        6..9 => (60, 6),
        _ => (300, 8),
    };
    HistoryShape {
        operations_count: 1 + random.below(operations_max) as usize,
        clients_count: 1 + random.below(clients_max),
        pause_max: random.below(6),
        duration_max: random.below(12),
        percent_unknown: *random.pick(&[0, 0, 5, 10, 30]),
        percent_failed: *random.pick(&[0, 10]),
        percent_pipelined: *random.pick(&[0, 20]),
    }
}

/// Failed operations surely had no effect, so Porcupine does not see them.
fn operations<I, O>(
    history: &History<I, O>,
    call: impl Fn(&I, Option<&O>) -> (Value, Value),
) -> Vec<Value> {
    let line = |operation: &Operation<I, O>| {
        let answer = match &operation.outcome {
            Outcome::Returned(answer) => Some(answer),
            Outcome::Unknown => None,
            Outcome::Failed => return None,
        };
        let (input, answer) = call(&operation.input, answer);
        Some(json!({
            "client": operation.client.0,
            "call": operation.invoked,
            "return": operation.responded,
            "input": input,
            "answer": answer,
        }))
    };
    history.operations().iter().filter_map(line).collect()
}

fn register_call(input: &RegisterInput, answer: Option<&RegisterOutput>) -> (Value, Value) {
    let text = |value: Option<u64>| value.map_or("absent".to_owned(), |value| value.to_string());
    let input = match *input {
        RegisterInput::Read => json!(["Read"]),
        RegisterInput::Write(value) => json!(["Write", text(Some(value))]),
        RegisterInput::Cas { expected, new } => json!(["Cas", text(expected), text(Some(new))]),
    };
    let answer = answer.map(|answer| match *answer {
        RegisterOutput::Value(value) => json!(["Value", text(value)]),
        RegisterOutput::Written => json!(["Written"]),
        RegisterOutput::Swapped(swapped) => json!(["Swapped", swapped.to_string()]),
    });
    (input, json!(answer))
}

fn append_call(input: &AppendInput<u8>, answer: Option<&AppendOutput<u8>>) -> (Value, Value) {
    let input = match input {
        AppendInput::Append(item) => json!(["Append", item.to_string()]),
        AppendInput::Read => json!(["Read"]),
    };
    let answer = answer.map(|answer| match answer {
        AppendOutput::Length(length) => json!(["Length", length.to_string()]),
        AppendOutput::Content(items) => {
            json!(["Content", items.iter().map(|item| format!("{item},")).collect::<String>()])
        }
    });
    (input, json!(answer))
}

fn kv_call(input: &KvInput, answer: Option<&KvOutput>) -> (Value, Value) {
    let input = match input {
        KvInput::Set(value) => json!(["Set", text(value)]),
        KvInput::SetExpiring(value, tag) => json!(["SetExpiring", text(value), tag.0.to_string()]),
        KvInput::SetIfAbsent(value) => json!(["SetIfAbsent", text(value)]),
        KvInput::SetIfEqual { expected, new } => json!(["SetIfEqual", text(expected), text(new)]),
        KvInput::GetSet(value) => json!(["GetSet", text(value)]),
        KvInput::IncrBy(by) => json!(["IncrBy", by.to_string()]),
        KvInput::Append(value) => json!(["Append", text(value)]),
        KvInput::Expire(Some(tag)) => json!(["Expire", tag.0.to_string()]),
        KvInput::Expire(None) => json!(["Expire"]),
        KvInput::ExpireIn(tag) => json!(["ExpireIn", tag.0.to_string()]),
        KvInput::Get
        | KvInput::GetDel
        | KvInput::Del
        | KvInput::Exists
        | KvInput::StrLen
        | KvInput::Persist => json!([format!("{input:?}")]),
    };
    let answer = answer.map(|answer| match answer {
        KvOutput::Value(Some(value)) => json!(["Value", text(value)]),
        KvOutput::Value(None) => json!(["Value"]),
        KvOutput::Integer(integer) => json!(["Integer", integer.to_string()]),
        KvOutput::Done | KvOutput::Refused | KvOutput::NotAnInteger | KvOutput::Overflow => {
            json!([format!("{answer:?}")])
        }
    });
    (input, json!(answer))
}

fn bag_call(input: &BagInput, answer: Option<&Option<u8>>) -> (Value, Value) {
    let input = match input {
        BagInput::Put(member) => json!(["Put", member.to_string()]),
        BagInput::Take | BagInput::Leak => json!([format!("{input:?}")]),
    };
    let answer = answer.map(|answer| match answer {
        Some(member) => json!(["Some", member.to_string()]),
        None => json!(["None"]),
    });
    (input, json!(answer))
}

/// The content of random histories is text.
fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes.as_slice()).expect("random values are ASCII")
}
