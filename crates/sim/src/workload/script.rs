//! Multi-step clients, whose steps depend on earlier answers: locks and a bank.
//!
//! *Lock*: `SET lock t<op> NX PX ttl`, then a fencing token from a counter, then
//! compare-and-delete. At most one client is a holder within its lease. Tokens taken within leases
//! increase in the order of the leases. Only these rules judge such keys.
//!
//! *Bank*: balances in one value. A transfer swaps the value if it still equals the one read. The
//! sum never changes.

use std::collections::BTreeMap;

use base::Prng;
use checker::model::kv::{Bytes, KvInput, KvOutput};

use crate::clients::{Ended, Op, SimKey};
use crate::clock::NOMINAL_PPM;
use crate::workload::mix::Mix;
use crate::workload::operation::{Input, Output};

/// Initial balance of an account, and the number of accounts.
const BALANCE: u64 = 100;
const ACCOUNTS: usize = 4;

/// The encoding of a step beyond its [`KvInput`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verb {
    #[default]
    Plain,
    /// `SetIfAbsent` with a time to live.
    Acquire,
    /// `SetIfEqual` that deletes instead.
    Release,
    /// A read that takes a place among the writes.
    Ordered,
}

/// A client's progress with a lock.
#[derive(Clone, Debug)]
struct LockProgress {
    value: Bytes,
    has_token: bool,
}

/// The progress of all clients.
#[derive(Debug, Default)]
pub struct Scripts {
    locks: BTreeMap<(usize, usize), LockProgress>,
    /// A client's last read of a bank.
    read: BTreeMap<(usize, usize), Bytes>,
}

/// The next step: client's key, verb and input.
pub type ScriptStep = (usize, Verb, Input);

impl Scripts {
    /// The next step of a client on a key of this mix; `None` for a mix without a script. `id`
    /// names it.
    pub fn next(
        &mut self,
        rng: &mut Prng,
        (client, key): (usize, usize),
        keys: &[SimKey],
        id: u64,
    ) -> Option<ScriptStep> {
        match keys[key].mix {
            Mix::Lock => Some(self.next_of_lock(rng, (client, key), keys, id)),
            Mix::Bank => Some((key, Verb::Plain, self.next_of_bank(rng, (client, key), id).into())),
            _ => None,
        }
    }

    fn next_of_lock(
        &mut self,
        rng: &mut Prng,
        (client, key): (usize, usize),
        keys: &[SimKey],
        id: u64,
    ) -> ScriptStep {
        let fence = keys.iter().position(|it| it.mix == Mix::Fence);
        match (self.locks.get(&(client, key)), fence) {
            (None, _) if rng.chance(0.2) => (key, Verb::Plain, KvInput::Get.into()),
            (None, _) => {
                let value = Bytes::from(format!("t{id}").as_bytes());
                (key, Verb::Acquire, KvInput::SetIfAbsent(value).into())
            }
            (Some(held), Some(fence)) if !held.has_token => {
                (fence, Verb::Plain, KvInput::IncrBy(1).into())
            }
            (Some(held), _) => {
                let expected = held.value.clone();
                self.locks.remove(&(client, key));
                let input = KvInput::SetIfEqual { expected, new: Bytes::from("") };
                (key, Verb::Release, input.into())
            }
        }
    }

    fn next_of_bank(&mut self, rng: &mut Prng, of: (usize, usize), id: u64) -> KvInput {
        if rng.chance(0.1) {
            return KvInput::SetIfAbsent(shown(&[BALANCE; ACCOUNTS], id));
        }
        // A read value is used once, because it is stale afterwards.
        match self.read.remove(&of).and_then(|read| Some((balances(&read)?, read))) {
            Some((mut balances, expected)) => {
                let (from, to) = (rng.below(4) as usize, rng.below(4) as usize);
                let amount = rng.between(0, balances[from]);
                balances[from] -= amount;
                balances[to] += amount;
                KvInput::SetIfEqual { expected, new: shown(&balances, id) }
            }
            None => KvInput::Get,
        }
    }

    /// A step of a client has ended.
    pub fn on_end(&mut self, op: &Op, keys: &[SimKey]) {
        let of = (op.client, op.key);
        match (&op.ended, &op.input, op.verb) {
            (
                Some((_, Ended::Returned(Output::Text(KvOutput::Done)))),
                Input::Text(KvInput::SetIfAbsent(value)),
                Verb::Acquire,
            ) => {
                self.locks.insert(of, LockProgress { value: value.clone(), has_token: false });
            }
            (_, Input::Text(KvInput::IncrBy(_)), _) if keys[op.key].mix == Mix::Fence => {
                let of_client =
                    self.locks.iter_mut().filter(|((client, _), _)| *client == op.client);
                of_client.for_each(|(_, held)| held.has_token = true);
            }
            (
                Some((_, Ended::Returned(Output::Text(KvOutput::Value(Some(value)))))),
                Input::Text(KvInput::Get),
                _,
            ) if keys[op.key].mix == Mix::Bank => {
                self.read.insert(of, value.clone());
            }
            _ => {}
        }
    }
}

fn shown(balances: &[u64; ACCOUNTS], id: u64) -> Bytes {
    Bytes::from(
        format!("{},{},{},{},#{id}", balances[0], balances[1], balances[2], balances[3]).as_bytes(),
    )
}

fn balances(value: &Bytes) -> Option<[u64; ACCOUNTS]> {
    let text = std::str::from_utf8(value.as_slice()).ok()?;
    let mut parts = text.split(',');
    let mut balances = [0; ACCOUNTS];
    for balance in &mut balances {
        *balance = parts.next()?.parse().ok()?;
    }
    Some(balances)
}

/// Checks the promises of a run's scripts. `majority_rate_ppm` is the rate of the M-th fastest
/// clock.
///
/// # Errors
/// The key, and one line that names the operations.
pub fn check(ops: &[Op], keys: &[SimKey], majority_rate_ppm: u64) -> Result<(), (usize, String)> {
    for (key, it) in keys.iter().enumerate() {
        let checked = match it.mix {
            Mix::Bank => check_bank(ops, key),
            Mix::Lock => check_lock(ops, key, keys, majority_rate_ppm),
            _ => Ok(()),
        };
        checked.map_err(|reason| (key, reason))?;
    }
    Ok(())
}

fn check_bank(ops: &[Op], key: usize) -> Result<(), String> {
    for (id, op) in ops.iter().enumerate().filter(|(_, op)| op.key == key) {
        let Some((_, Ended::Returned(Output::Text(KvOutput::Value(Some(value)))))) = &op.ended
        else {
            continue;
        };
        let sum = balances(value).map(|balances| balances.iter().sum::<u64>());
        if sum != Some(BALANCE * ACCOUNTS as u64) {
            return Err(format!("bank: read #{id} shows {value:?}"));
        }
    }
    Ok(())
}

/// A time in which a client may be sure that it holds the lock.
#[derive(Clone, Debug)]
struct Lease {
    op: usize,
    client: usize,
    from: u64,
    until: u64,
}

fn check_lock(
    ops: &[Op],
    key: usize,
    keys: &[SimKey],
    majority_rate_ppm: u64,
) -> Result<(), String> {
    let mut leases = leases(ops, key, majority_rate_ppm);
    leases.sort_by_key(|lease| lease.from);
    let mut last: Option<&Lease> = None;
    let mut newest: Option<(usize, i64)> = None;
    for lease in &leases {
        if let Some(last) = last.filter(|last| lease.from < last.until) {
            return Err(format!("lock: #{} and #{} both hold it", last.op, lease.op));
        }
        last = Some(lease);
        let Some((op, token)) = token_of(lease, ops, keys) else { continue };
        if let Some((earlier, before)) = newest.filter(|(_, before)| *before >= token) {
            return Err(format!("lock: #{op} has token {token}, #{earlier} before it {before}"));
        }
        newest = Some((op, token));
    }
    Ok(())
}

fn leases(ops: &[Op], key: usize, majority_rate_ppm: u64) -> Vec<Lease> {
    let acquired =
        ops.iter().enumerate().filter(|(_, op)| op.key == key && op.verb == Verb::Acquire);
    acquired
        .filter_map(|(id, op)| {
            let Some((from, Ended::Returned(Output::Text(KvOutput::Done)))) = op.ended else {
                return None;
            };
            let Input::Text(KvInput::SetIfAbsent(value)) = &op.input else { return None };
            let nanos = u128::from(op.ttl_millis) * 1_000_000 * u128::from(NOMINAL_PPM);
            let expires = op.invoked + (nanos / u128::from(majority_rate_ppm)) as u64;
            let released = ops[id..].iter().find(|later| match &later.input {
                Input::Text(KvInput::SetIfEqual { expected, .. }) => {
                    later.key == key && expected == value
                }
                _ => false,
            });
            let until = released.map_or(expires, |release| release.invoked.min(expires));
            Some(Lease { op: id, client: op.client, from, until })
        })
        .filter(|lease| lease.from < lease.until)
        .collect()
}

/// The token that the holder took within its lease.
fn token_of(lease: &Lease, ops: &[Op], keys: &[SimKey]) -> Option<(usize, i64)> {
    ops.iter().enumerate().skip(lease.op).find_map(|(id, op)| {
        let is_fence = keys[op.key].mix == Mix::Fence && op.client == lease.client;
        match op.ended {
            Some((at, Ended::Returned(Output::Text(KvOutput::Integer(token)))))
                if is_fence && op.invoked >= lease.from && at < lease.until =>
            {
                Some((id, token))
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use types::Key;

    use super::*;

    const MILLI: u64 = 1_000_000;

    fn keys() -> Vec<SimKey> {
        let key = |name: &[u8], mix| SimKey { key: Key::new(name), mix };
        vec![key(b"k0", Mix::Lock), key(b"k1", Mix::Fence), key(b"k2", Mix::Bank)]
    }

    fn op(client: usize, key: usize, input: KvInput, at: (u64, u64), output: KvOutput) -> Op {
        let verb = match input {
            KvInput::SetIfAbsent(_) => Verb::Acquire,
            _ => Verb::Plain,
        };
        let (invoked, ended) =
            (at.0 * MILLI, Some((at.1 * MILLI, Ended::Returned(Output::Text(output)))));
        let session = client as u64;
        Op {
            client,
            session,
            node: 0,
            key,
            input: input.into(),
            verb,
            ttl_millis: 10,
            line: None,
            invoked,
            ended,
        }
    }

    fn acquire(client: usize, at: (u64, u64)) -> Op {
        let value = Bytes::from(format!("t{client}").as_bytes());
        op(client, 0, KvInput::SetIfAbsent(value), at, KvOutput::Done)
    }

    fn token(client: usize, at: (u64, u64), token: i64) -> Op {
        op(client, 1, KvInput::IncrBy(1), at, KvOutput::Integer(token))
    }

    #[test]
    fn two_lock_holders_are_found() {
        let both = [acquire(1, (0, 1)), acquire(2, (2, 9))];
        assert!(check(&both, &keys(), NOMINAL_PPM).unwrap_err().1.contains("both hold"));
        let in_turn = [acquire(1, (0, 1)), acquire(2, (2, 11))];
        assert_eq!(check(&in_turn, &keys(), NOMINAL_PPM), Ok(()));
        // Clocks of a majority that run twice as fast end a lease in half its time.
        assert_eq!(check(&both, &keys(), 2 * NOMINAL_PPM), Ok(()));
    }

    #[test]
    fn token_that_does_not_increase_is_found() {
        let ops =
            [acquire(1, (0, 1)), token(1, (2, 3), 7), acquire(2, (11, 12)), token(2, (13, 14), 7)];
        assert!(check(&ops, &keys(), NOMINAL_PPM).unwrap_err().1.contains("token 7"));
    }

    #[test]
    fn money_that_appears_is_found() {
        let value = |text: &str| KvOutput::Value(Some(Bytes::from(text)));
        let right = op(1, 2, KvInput::Get, (0, 1), value("50,150,0,200,#4"));
        let wrong = op(1, 2, KvInput::Get, (0, 1), value("50,150,1,200,#4"));
        assert_eq!(check(&[right], &keys(), NOMINAL_PPM), Ok(()));
        assert!(check(&[wrong], &keys(), NOMINAL_PPM).is_err());
    }
}
