//! The verdict over the clients' results: whether the protocol's promise holds.

pub mod transactions;

use std::collections::BTreeSet;

use checker::history::{ClientId, History, OpId, Outcome};
use checker::model::collection::{Collection, CollectionInput, CollectionOutput};
use checker::model::keyed::Keyed;
use checker::model::kv::{ExpiryTag, Kv, KvInput, KvOutput};
use checker::sequential;
use checker::{Limit, Verdict, linearizable};

use crate::clients::{Clients, Ended, Op};
use crate::clock::NOMINAL_PPM;
use crate::run::Wrong;
use crate::workload::mix::Mix;
use crate::workload::operation::{Input, Output};
use crate::workload::script::{self, Verb};

/// Effort per key; beyond it a history counts as undecided.
const EXPLORED_MAX: u64 = 30_000;
/// Lines with several transmissions are clients of their own, numbered from here on.
const LINES: u64 = 1 << 62;

/// Checks every key, in the order of every session. Returns the number of undecided keys.
/// `majority_rate_ppm` is the rate of the M-th fastest clock.
///
/// # Errors
/// The first key whose history no order explains.
pub fn linearizable(clients: &Clients, majority_rate_ppm: u64) -> Result<u64, Wrong> {
    let mut texts: Vec<History<KvInput, KvOutput>> =
        clients.keys.iter().map(|_| History::new()).collect();
    let mut collections: Vec<History<CollectionInput, CollectionOutput>> =
        clients.keys.iter().map(|_| History::new()).collect();
    let lines = answers_to_lines(clients)?;
    let mut numbers = Vec::new();
    for (number, op) in clients.ops.iter().enumerate() {
        let (client, ended) = match op.line {
            Some(line) if clients.retries.lines[line].op != number => continue,
            // Its transmissions use several connections, so it has no place in the order of one.
            Some(line) => (LINES + line as u64, &lines[line]),
            None => (op.session, &op.ended),
        };
        let call = Call { client, invoked: op.invoked, ended: ended.as_ref() };
        let input = match &op.input {
            Input::Collection(input) => {
                let id = call.record(&mut collections[op.key], input, |output| match output {
                    Output::Collection(output) => Some(output.clone()),
                    _ => None,
                });
                numbers.push((op.key, id, number));
                continue;
            }
            Input::Transaction(_) => continue,
            Input::Text(input) => input,
        };
        let history = &mut texts[op.key];
        let id = call.record(history, input, |output| match output {
            Output::Text(output) => Some(output.clone()),
            _ => None,
        });
        numbers.push((op.key, id, number));
        if let Some((tag, at)) = end_of_life(op, input, majority_rate_ppm) {
            history.invoke(ClientId(u64::MAX - tag.0), KvInput::Expire(Some(tag)), at);
        }
    }
    let mut undecided = 0;
    transactions::check(clients)?;
    script::check(&clients.ops, &clients.keys, majority_rate_ppm)
        .map_err(|(key, reason)| Wrong::of_key(key, reason))?;
    for (key, history) in texts.iter().enumerate() {
        // Script keys expire under a condition, which the model does not know.
        if clients.keys[key].mix == Mix::Lock {
            continue;
        }
        let limit = Limit { explored_max: EXPLORED_MAX };
        let verdict = match clients.keys[key].mix.is_collection() {
            true => linearizable::check_in_sessions(&Collection, &collections[key], limit),
            false => linearizable::check_in_sessions(&Kv, history, limit),
        };
        match verdict {
            Verdict::Holds { .. } => {}
            Verdict::Violation(violation) => {
                let reason = format!("key k{key} is {violation}");
                let blocked =
                    numbers.iter().find(|&&(of, id, _)| (of, id) == (key, violation.blocked));
                let ended = blocked.and_then(|&(.., number)| clients.ops[number].ended.as_ref());
                return Err(Wrong { reason, key: Some(key), until: ended.map(|(at, _)| *at) });
            }
            Verdict::Undecided { .. } => undecided += 1,
        }
    }
    Ok(undecided)
}

/// When the time to live that an operation gives may be over: once `majority_rate_ppm` has counted
/// it, and not earlier.
fn end_of_life(op: &Op, input: &KvInput, majority_rate_ppm: u64) -> Option<(ExpiryTag, u64)> {
    let (KvInput::SetExpiring(_, tag) | KvInput::ExpireIn(tag)) = *input else { return None };
    if matches!(op.ended, Some((_, Ended::Failed))) {
        return None;
    }
    let nanos = u128::from(op.ttl_millis) * 1_000_000 * u128::from(NOMINAL_PPM);
    Some((tag, op.invoked + (nanos / u128::from(majority_rate_ppm)) as u64))
}

/// An operation without its input.
struct Call<'a> {
    client: u64,
    invoked: u64,
    ended: Option<&'a (u64, Ended)>,
}

impl Call<'_> {
    /// Adds it to the history of its key. `answer` takes the output of the model of that key.
    fn record<I: Clone, O>(
        &self,
        history: &mut History<I, O>,
        input: &I,
        answer: impl Fn(&Output) -> Option<O>,
    ) -> OpId {
        let id = history.invoke(ClientId(self.client), input.clone(), self.invoked);
        match self.ended {
            Some((at, Ended::Returned(output))) => {
                let output = answer(output).expect("an answer is of the type of its request");
                history.complete(id, Outcome::Returned(output), *at);
            }
            Some((at, Ended::Failed)) => history.complete(id, Outcome::Failed, *at),
            Some((_, Ended::Refused | Ended::Unknown)) | None => {}
        }
        id
    }
}

/// Outcomes of lines with several transmissions. The first definite answer counts; a line had no
/// effect if every transmission had none.
fn answers_to_lines(clients: &Clients) -> Result<Vec<Option<(u64, Ended)>>, Wrong> {
    let mut sent: Vec<Vec<&Option<(u64, Ended)>>> = vec![Vec::new(); clients.retries.lines.len()];
    for op in &clients.ops {
        if let Some(line) = op.line {
            sent[line].push(&op.ended);
        }
    }
    let answer = |(line, transmissions): (usize, &Vec<&Option<(u64, Ended)>>)| {
        let told = |ended: &&Option<(u64, Ended)>| match ended {
            Some((at, Ended::Returned(output))) => Some((*at, output.clone())),
            _ => None,
        };
        let mut answers: Vec<(u64, Output)> = transmissions.iter().filter_map(told).collect();
        answers.sort_by_key(|(at, _)| *at);
        let Some((at, first)) = answers.first().cloned() else {
            let is_denied = |ended: &&&Option<(u64, Ended)>| {
                matches!(ended, Some((_, Ended::Failed | Ended::Refused)))
            };
            let all_denied = transmissions.iter().filter(is_denied).count() == transmissions.len();
            let last = transmissions.iter().filter_map(|it| it.as_ref().map(|(at, _)| *at)).max();
            return Ok(last.filter(|_| all_denied).map(|at| (at, Ended::Failed)));
        };
        match answers.iter().find(|(_, other)| *other != first) {
            None => Ok(Some((at, Ended::Returned(first)))),
            Some((_, other)) => {
                let line = &clients.retries.lines[line];
                let reason = format!("{line:?} was answered {first:?}, and then {other:?}");
                Err(Wrong::of_key(line.key, reason))
            }
        }
    };
    sent.iter().enumerate().map(answer).collect()
}

/// Checks all keys together: writes and ordered reads are linearizable, other reads are in the
/// order of their sessions. Returns 1 for an undecided history. `fastest_rate_ppm` is the rate of
/// the fastest clock: any node may lead, and then counts times to live alone.
///
/// # Errors
/// The outcomes that no order explains.
pub fn sequential(clients: &Clients, fastest_rate_ppm: u64) -> Result<u64, Wrong> {
    script::check(&clients.ops, &clients.keys, fastest_rate_ppm)
        .map_err(|(key, reason)| Wrong::of_key(key, reason))?;
    match check_sequential(clients, fastest_rate_ppm, |_| true) {
        Verdict::Holds { .. } => return Ok(0),
        Verdict::Violation(violation) => {
            return Err(format!("the whole is {violation}").into());
        }
        Verdict::Undecided { .. } => {}
    }
    // A history that is wrong on one key alone is wrong as a whole.
    for key in 0..clients.keys.len() {
        if let Verdict::Violation(violation) =
            check_sequential(clients, fastest_rate_ppm, |it| it == key)
        {
            return Err(Wrong::of_key(key, format!("key k{key} is {violation}")));
        }
    }
    Ok(1)
}

fn check_sequential(
    clients: &Clients,
    fastest_rate_ppm: u64,
    is_of: impl Fn(usize) -> bool,
) -> Verdict {
    let mut history: History<(usize, KvInput), KvOutput> = History::new();
    let mut ordered = BTreeSet::new();
    for op in clients.ops.iter().filter(|op| is_of(op.key)) {
        // Protocols that promise no more than this order run no commands on collections. Keys of
        // locks expire under a condition, which the model does not know.
        let Input::Text(input) = &op.input else { continue };
        if clients.keys[op.key].mix == Mix::Lock {
            continue;
        }
        let call = Call { client: op.session, invoked: op.invoked, ended: op.ended.as_ref() };
        let id = call.record(&mut history, &(op.key, input.clone()), |output| match output {
            Output::Text(output) => Some(output.clone()),
            _ => None,
        });
        if op.verb == Verb::Ordered {
            ordered.insert(id);
        }
        if let Some((tag, at)) = end_of_life(op, input, fastest_rate_ppm) {
            let expire = (op.key, KvInput::Expire(Some(tag)));
            history.invoke(ClientId(u64::MAX - tag.0), expire, at);
        }
    }
    let limit = Limit { explored_max: EXPLORED_MAX };
    sequential::check_ordered(&Keyed::new(Kv), &history, &ordered, limit)
}

#[cfg(test)]
mod tests {
    use checker::model::collection::End;
    use checker::model::kv::Bytes;
    use types::Key;

    use super::*;
    use crate::clients::SimKey;

    fn push(text: &str) -> CollectionInput {
        CollectionInput::Push(End::Tail, vec![Bytes::from(text)])
    }

    fn item(text: &str) -> CollectionOutput {
        CollectionOutput::Item(Some(Bytes::from(text)))
    }

    fn op(session: u64, input: KvInput, output: KvOutput, times: (u64, u64)) -> Op {
        Op {
            client: 0,
            session,
            node: 0,
            key: 0,
            input: input.into(),
            verb: Verb::Plain,
            ttl_millis: 10,
            line: None,
            invoked: times.0,
            ended: Some((times.1, Ended::Returned(Output::Text(output)))),
        }
    }

    fn judge_order(ops: Vec<Op>) -> bool {
        let mut clients = Clients::by_hand();
        clients.keys.push(SimKey { key: Key::new(b"k0"), mix: Mix::Lifetimes });
        clients.ops = ops;
        sequential(&clients, NOMINAL_PPM) == Ok(0)
    }

    #[test]
    fn stale_read_is_wrong_in_the_order_only() {
        let set = || op(1, KvInput::Set(Bytes::from("a")), KvOutput::Done, (1, 2));
        let stale = |verb| Op { verb, ..op(2, KvInput::Get, KvOutput::Value(None), (3, 4)) };
        assert!(judge_order(vec![set(), stale(Verb::Plain)]));
        assert!(!judge_order(vec![set(), stale(Verb::Ordered)]));
    }

    #[test]
    fn key_that_ends_early_is_found() {
        const MILLI: u64 = 1_000_000;
        let set = || op(1, KvInput::Set(Bytes::from("a")), KvOutput::Done, (0, MILLI));
        let prolong = || {
            let input = KvInput::ExpireIn(ExpiryTag(1));
            op(1, input, KvOutput::Integer(1), (2 * MILLI, 3 * MILLI))
        };
        let gone = |at| op(1, KvInput::Del, KvOutput::Integer(0), (at, at + MILLI));
        assert!(!judge_order(vec![set(), prolong(), gone(10 * MILLI)]));
        assert!(judge_order(vec![set(), prolong(), gone(12 * MILLI)]));
        let persist = op(1, KvInput::Persist, KvOutput::Integer(1), (4 * MILLI, 5 * MILLI));
        assert!(!judge_order(vec![set(), prolong(), persist, gone(99 * MILLI)]));
    }

    /// One answer after the other.
    fn judge(calls: Vec<(CollectionInput, CollectionOutput)>) -> Result<u64, Wrong> {
        let mut clients = Clients::by_hand();
        clients.keys.push(SimKey { key: Key::new(b"k0"), mix: Mix::Lists });
        for (number, (input, output)) in calls.into_iter().enumerate() {
            let invoked = 2 * number as u64;
            let ended = Some((invoked + 1, Ended::Returned(Output::Collection(output))));
            clients.ops.push(Op {
                client: 0,
                session: 1,
                node: 0,
                key: 0,
                input: input.into(),
                verb: Verb::Plain,
                ttl_millis: 1,
                line: None,
                invoked,
                ended,
            });
        }
        linearizable(&clients, NOMINAL_PPM)
    }

    #[test]
    fn element_that_is_popped_twice_is_found() {
        use CollectionInput::Pop;
        let pushes = [(push("a"), 1), (push("b"), 2)]
            .map(|(input, len)| (input, CollectionOutput::Integer(len)));
        let pops = |first, second| [(Pop(End::Head), item(first)), (Pop(End::Head), item(second))];
        assert_eq!(judge([pushes.clone(), pops("a", "b")].concat()), Ok(0));
        let wrong = judge([pushes, pops("a", "a")].concat()).unwrap_err();
        assert_eq!(wrong.key, Some(0));
    }
}
