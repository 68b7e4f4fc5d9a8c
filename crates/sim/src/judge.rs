//! The verdict over what clients saw: what the protocol promises, or not.

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

/// Checks every key, in the order of every session. Answers how many were too hard to decide. `majority_rate_ppm` is the rate of the M-th
/// fastest clock.
///
/// # Errors
/// The first key whose history no order explains.
pub fn linearizable(clients: &Clients, majority_rate_ppm: u64) -> Result<u64, Wrong> {
    let mut histories: Vec<History<KvInput, KvOutput>> =
        clients.keys.iter().map(|_| History::new()).collect();
    let mut numbers = Vec::new();
    for (number, op) in clients.ops.iter().enumerate() {
        let history = &mut histories[op.key];
        let id = history.invoke(ClientId(op.session), op.input.clone(), op.invoked);
        numbers.push((op.key, id, number));
        match &op.ended {
            Some((at, Ended::Returned(output))) => {
                history.complete(id, Outcome::Returned(output.clone()), *at);
            }
            Some((at, Ended::Failed)) => history.complete(id, Outcome::Failed, *at),
            Some((_, Ended::Unknown)) | None => {}
        }
        if let KvInput::SetExpiring(_, ExpiryTag(tag)) = op.input
            && !matches!(op.ended, Some((_, Ended::Failed)))
        {
            // It may vanish once a majority's clocks have counted its time, and not a moment sooner.
            let nanos = u128::from(op.ttl_millis) * 1_000_000 * u128::from(NOMINAL_PPM);
            let at = op.invoked + (nanos / u128::from(majority_rate_ppm)) as u64;
            let expire = KvInput::Expire(Some(ExpiryTag(tag)));
            history.invoke(ClientId(u64::MAX - tag), expire, at);
        }
    }
    let mut undecided = 0;
    script::check(&clients.ops, &clients.keys, majority_rate_ppm)
        .map_err(|(key, what)| Wrong::of_key(key, what))?;
    for (key, history) in histories.iter().enumerate() {
        // What scripts do there expires under a condition, which the model does not know.
        if clients.keys[key].mix == Mix::Lock {
            continue;
        }
        match linearizable::check_in_sessions(&Kv, history, Limit { explored_max: EXPLORED_MAX }) {
            Verdict::Holds { .. } => {}
            Verdict::Violation(violation) => {
                let what = format!("key k{key} is {violation}");
                let blocked =
                    numbers.iter().find(|&&(of, id, _)| (of, id) == (key, violation.blocked));
                let ended = blocked.and_then(|&(.., number)| clients.ops[number].ended.as_ref());
                return Err(Wrong { what, key: Some(key), until: ended.map(|(at, _)| *at) });
            }
            Verdict::Undecided { .. } => undecided += 1,
        }
    }
    Ok(undecided)
}

/// Checks all keys together: writes linearizable, reads in their session's order. Answers one where the whole was
/// too hard to decide. Values do not expire.
///
/// # Errors
/// What no order explains.
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
            Some((_, Ended::Unknown)) | None => {}
        }
    }
    let limit = Limit { explored_max: EXPLORED_MAX };
    match sequential::check(&Keyed::new(Kv), &history, WriteOrder::RealTime, limit) {
        Verdict::Holds { .. } => Ok(0),
        Verdict::Violation(violation) => Err(format!("the whole is {violation}").into()),
        Verdict::Undecided { .. } => Ok(1),
    }
}
