//! The verdict over the clients' results: whether the protocol's promise holds.

use checker::history::{ClientId, History, Outcome};
use checker::model::keyed::Keyed;
use checker::model::kv::{ExpiryTag, Kv, KvInput, KvOutput};
use checker::sequential::{self, WriteOrder};
use checker::{Limit, Verdict, linearizable};

use crate::clients::{Clients, Ended};
use crate::clock::NOMINAL_PPM;
use crate::run::Wrong;
use crate::workload::mix::Mix;
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
    let mut histories: Vec<History<KvInput, KvOutput>> =
        clients.keys.iter().map(|_| History::new()).collect();
    let lines = answers_to_lines(clients)?;
    let mut numbers = Vec::new();
    for (number, op) in clients.ops.iter().enumerate() {
        let history = &mut histories[op.key];
        let (client, ended) = match op.line {
            Some(line) if clients.retries.lines[line].op != number => continue,
            // Its transmissions use several connections, so it has no place in the order of one.
            Some(line) => (LINES + line as u64, &lines[line]),
            None => (op.session, &op.ended),
        };
        let id = history.invoke(ClientId(client), op.input.clone(), op.invoked);
        numbers.push((op.key, id, number));
        match ended {
            Some((at, Ended::Returned(output))) => {
                history.complete(id, Outcome::Returned(output.clone()), *at);
            }
            Some((at, Ended::Failed)) => history.complete(id, Outcome::Failed, *at),
            Some((_, Ended::Refused | Ended::Unknown)) | None => {}
        }
        if let KvInput::SetExpiring(_, ExpiryTag(tag)) = op.input
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
    script::check(&clients.ops, &clients.keys, majority_rate_ppm)
        .map_err(|(key, reason)| Wrong::of_key(key, reason))?;
    for (key, history) in histories.iter().enumerate() {
        // Script keys expire under a condition, which the model does not know.
        if clients.keys[key].mix == Mix::Lock {
            continue;
        }
        match linearizable::check_in_sessions(&Kv, history, Limit { explored_max: EXPLORED_MAX }) {
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
        let mut answers: Vec<(u64, KvOutput)> = transmissions.iter().filter_map(told).collect();
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
        let input = (op.key, op.input.clone());
        let id = history.invoke(ClientId(op.session), input, op.invoked);
        match &op.ended {
            Some((at, Ended::Returned(output))) => {
                history.complete(id, Outcome::Returned(output.clone()), *at);
            }
            Some((at, Ended::Failed)) => history.complete(id, Outcome::Failed, *at),
            Some((_, Ended::Refused | Ended::Unknown)) | None => {}
        }
    }
    let limit = Limit { explored_max: EXPLORED_MAX };
    match sequential::check(&Keyed::new(Kv), &history, WriteOrder::RealTime, limit) {
        Verdict::Holds { .. } => Ok(0),
        Verdict::Violation(violation) => Err(format!("the whole is {violation}").into()),
        Verdict::Undecided { .. } => Ok(1),
    }
}
