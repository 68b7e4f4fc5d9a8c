//! The verdict over the clients' results: whether the protocol's promise holds.

pub mod transactions;

use checker::history::{ClientId, History, OpId, Outcome};
use checker::model::collection::{Collection, CollectionInput, CollectionOutput};
use checker::model::keyed::Keyed;
use checker::model::kv::{ExpiryTag, Kv, KvInput, KvOutput};
use checker::sequential::{self, WriteOrder};
use checker::{Limit, Verdict, linearizable};

use crate::clients::{Clients, Ended};
use crate::clock::NOMINAL_PPM;
use crate::run::Wrong;
use crate::workload::mix::Mix;
use crate::workload::operation::{Input, Output};
use crate::workload::script;

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
        if let KvInput::SetExpiring(_, ExpiryTag(tag)) = *input
            && !matches!(op.ended, Some((_, Ended::Failed)))
        {
            // It may vanish once a majority's clocks have counted its time, and not earlier.
            let nanos = u128::from(op.ttl_millis) * 1_000_000 * u128::from(NOMINAL_PPM);
            let at = op.invoked + (nanos / u128::from(majority_rate_ppm)) as u64;
            let expire = KvInput::Expire(Some(ExpiryTag(tag)));
            history.invoke(ClientId(u64::MAX - tag), expire, at);
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

/// Checks all keys together: writes linearizable, reads in their session's order. Returns 1 for an
/// undecided history. Values do not expire.
///
/// # Errors
/// The outcomes that no order explains.
pub fn sequential(clients: &Clients) -> Result<u64, Wrong> {
    let mut history: History<(usize, KvInput), KvOutput> = History::new();
    for op in &clients.ops {
        // Protocols that promise no more than this order run no commands on collections.
        let Input::Text(input) = &op.input else { continue };
        let call = Call { client: op.session, invoked: op.invoked, ended: op.ended.as_ref() };
        call.record(&mut history, &(op.key, input.clone()), |output| match output {
            Output::Text(output) => Some(output.clone()),
            _ => None,
        });
    }
    let limit = Limit { explored_max: EXPLORED_MAX };
    match sequential::check(&Keyed::new(Kv), &history, WriteOrder::RealTime, limit) {
        Verdict::Holds { .. } => Ok(0),
        Verdict::Violation(violation) => Err(format!("the whole is {violation}").into()),
        Verdict::Undecided { .. } => Ok(1),
    }
}

#[cfg(test)]
mod tests {
    use checker::model::collection::End;
    use checker::model::kv::Bytes;
    use types::Key;

    use super::*;
    use crate::clients::{Op, SimKey};
    use crate::workload::script::Verb;

    fn push(text: &str) -> CollectionInput {
        CollectionInput::Push(End::Tail, vec![Bytes::from(text)])
    }

    fn item(text: &str) -> CollectionOutput {
        CollectionOutput::Item(Some(Bytes::from(text)))
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
