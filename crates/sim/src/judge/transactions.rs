//! The verdict over transactions: lists by the list-append method, strings beside them, accounts by
//! their sum.

use checker::history::{ClientId, History, OpId, Outcome};
use checker::model::lists::{ListStep, Seen, Transaction};
use checker::serializable::{self, Finding, Promise};

use crate::clients::{Clients, Ended, Op};
use crate::run::Wrong;
use crate::workload::mix::Mix;
use crate::workload::operation::{Input, Output};
use crate::workload::transactions::{
    ACCOUNTS, Beside, Shown, Step, TransactionInput, TransactionOutput,
};

/// Transfers of unknown outcome up to which all explanations of the final balances are tried.
const UNKNOWN_MAX: usize = 14;

/// Checks all transactions.
///
/// # Errors
/// The first answers that no order explains.
pub fn check(clients: &Clients) -> Result<(), Wrong> {
    lists(clients)?;
    strings(clients)?;
    watches(clients)?;
    accounts(clients)
}

fn transactions(clients: &Clients) -> impl Iterator<Item = (usize, &Op, &TransactionInput)> {
    clients.ops.iter().enumerate().filter_map(|(number, op)| match &op.input {
        Input::Transaction(input) => Some((number, op, input)),
        _ => None,
    })
}

fn answer(op: &Op) -> Option<&TransactionOutput> {
    match &op.ended {
        Some((_, Ended::Returned(Output::Transaction(output)))) => Some(output),
        _ => None,
    }
}

/// Surely without an effect.
fn has_failed(op: &Op) -> bool {
    matches!(op.ended, Some((_, Ended::Failed | Ended::Refused)))
        || answer(op) == Some(&TransactionOutput::Overtaken)
}

fn lists(clients: &Clients) -> Result<(), Wrong> {
    let mut history: History<Transaction, Seen> = History::new();
    let mut numbers = Vec::new();
    for (number, op, input) in transactions(clients) {
        let (steps, seen) = recorded(input, answer(op));
        if steps.is_empty() {
            continue;
        }
        let id = history.invoke(ClientId(op.session), steps, op.invoked);
        numbers.push(number);
        match (&op.ended, seen) {
            (Some((at, _)), Some(seen)) => history.complete(id, Outcome::Returned(seen), *at),
            (Some((at, _)), None) if has_failed(op) => history.complete(id, Outcome::Failed, *at),
            _ => {}
        }
    }
    let Finding::Broken(anomalies) = serializable::check(&history, Promise::Strict) else {
        return Ok(());
    };
    let mut reason = format!("transactions are not serializable: {}", anomalies[0]);
    for (id, number) in numbers.iter().enumerate() {
        let name = format!("{} ", OpId(id as u32));
        if reason.contains(&name) || reason.contains(&format!("{}:", OpId(id as u32))) {
            let op = &clients.ops[*number];
            reason.push_str(&format!("\n  {name}is op {number}: {}", told(op)));
        }
    }
    Err(Wrong { reason, key: None, until: None })
}

fn told(op: &Op) -> String {
    let Op { session, node, invoked, ended, input, .. } = op;
    format!("s{session} n{} at {invoked}: {input:?} -> {ended:?}", node + 1)
}

/// Its steps and reads for the checker. Reads of a transaction that did not return are left out.
fn recorded(
    input: &TransactionInput,
    answer: Option<&TransactionOutput>,
) -> (Transaction, Option<Seen>) {
    let (mut steps, mut seen) = (Transaction::new(), Seen::new());
    let ran = match answer {
        Some(TransactionOutput::Ran { watched, shown }) => Some((watched, shown)),
        _ => None,
    };
    if let Some((watched, _)) = ran {
        for (&list, read) in input.watched.iter().zip(watched) {
            if let Some(read) = read {
                steps.push(ListStep::Read { key: list as u64 });
                seen.push(read.clone());
            }
        }
    }
    for (at, step) in input.steps.iter().enumerate() {
        match (*step, ran.map(|(_, shown)| &shown[at])) {
            (Step::Push { list, element }, _) => {
                steps.push(ListStep::Append { key: list as u64, element });
            }
            (Step::Range { list }, Some(Shown::List(elements))) => {
                steps.push(ListStep::Read { key: list as u64 });
                seen.push(elements.clone());
            }
            _ => {}
        }
    }
    (steps, ran.map(|_| seen))
}

/// Where a snapshot has a list and the string beside it, the list's last element that concerns the
/// string decides.
fn strings(clients: &Clients) -> Result<(), Wrong> {
    for (number, op, input) in transactions(clients) {
        let Some(TransactionOutput::Ran { shown, .. }) = answer(op) else { continue };
        for (at, pair) in input.steps.windows(2).enumerate() {
            let [Step::Range { list }, Step::Beside { list: other }] = *pair else { continue };
            let (Shown::List(elements), Shown::Beside(string)) = (&shown[at], &shown[at + 1])
            else {
                continue;
            };
            if list == other && !explains(elements, *string) {
                let reason = format!("op {number} shows {elements:?} and beside it {string:?}");
                return Err(Wrong::of_key(list, reason));
            }
        }
    }
    Ok(())
}

/// A string beside a list with these elements may be this.
#[must_use]
pub fn explains(elements: &[u64], string: Option<u64>) -> bool {
    let last = elements.iter().rev().find(|&&it| Beside::of(it) != Beside::Stays);
    match last.map(|&element| (element, Beside::of(element))) {
        None | Some((_, Beside::IsDeleted | Beside::Stays)) => string.is_none(),
        Some((element, Beside::IsSet)) => string == Some(element),
        Some((element, Beside::Expires)) => string.is_none_or(|it| it == element),
    }
}

/// T7. A watched key that no other operation wrote does not overtake.
fn watches(clients: &Clients) -> Result<(), Wrong> {
    for (number, op, input) in transactions(clients) {
        let Some((end, _)) = &op.ended else { continue };
        if answer(op) != Some(&TransactionOutput::Overtaken) {
            continue;
        }
        let may_have_written = |(other, it, of): (usize, &Op, &TransactionInput)| {
            let ends_before = matches!(it.ended, Some((at, Ended::Returned(_))) if at < op.invoked);
            let overlaps = it.invoked <= *end && !ends_before;
            other != number && overlaps && !has_failed(it) && of.writes(&input.watched)
        };
        if !transactions(clients).any(may_have_written) {
            let reason = format!("op {number} ends in nil, and no other wrote: {}", told(op));
            return Err(Wrong::of_key(input.watched[0], reason));
        }
    }
    Ok(())
}

/// Each snapshot has the sum of zero. The balances of the end are those of all transfers that
/// returned and some of unknown outcome.
fn accounts(clients: &Clients) -> Result<(), Wrong> {
    let Some(first) = clients.keys.iter().position(|it| it.mix == Mix::Transfers) else {
        return Ok(());
    };
    let mut newest: Option<(u64, Vec<i64>)> = None;
    for (number, op, input) in transactions(clients) {
        let Some(balances) = answer(op).and_then(|answer| snapshot(input, answer)) else {
            continue;
        };
        if balances.len() != ACCOUNTS || balances.iter().sum::<i64>() != 0 {
            let reason = format!("op {number} shows balances {balances:?}");
            return Err(Wrong::of_key(first, reason));
        }
        newest = newest.filter(|(at, _)| *at > op.invoked).or(Some((op.invoked, balances)));
    }
    let Some((at, balances)) = newest else { return Ok(()) };
    let mut missing = balances.clone();
    let mut unknown = Vec::new();
    for (_, op, input) in transactions(clients).filter(|(_, op, _)| !has_failed(op)) {
        let change = change(input, first);
        match &op.ended {
            _ if change.iter().all(|it| *it == 0) => {}
            Some((ended, Ended::Returned(_))) if *ended < at => {
                missing.iter_mut().zip(change).for_each(|(left, it)| *left -= it);
            }
            _ => unknown.push(change),
        }
    }
    if unknown.len() <= UNKNOWN_MAX && !is_sum_of_some(&missing, &unknown) {
        let reason = format!(
            "balances {balances:?} are not those of the transfers: {missing:?} is left, and {} \
             transfers are unknown",
            unknown.len()
        );
        return Err(Wrong::of_key(first, reason));
    }
    Ok(())
}

/// The balances of all accounts that a request showed.
fn snapshot(input: &TransactionInput, answer: &TransactionOutput) -> Option<Vec<i64>> {
    let TransactionOutput::Ran { shown, .. } = answer else { return None };
    if input.steps.iter().any(|step| matches!(step, Step::Add { .. })) {
        return None;
    }
    let balances: Vec<i64> = (shown.iter())
        .flat_map(|shown| match shown {
            Shown::Balance(balance) => vec![*balance],
            Shown::Balances(balances) => balances.clone(),
            _ => Vec::new(),
        })
        .collect();
    (!balances.is_empty() && !matches!(input.steps[..], [Step::Balance { .. }])).then_some(balances)
}

fn change(input: &TransactionInput, first: usize) -> [i64; ACCOUNTS] {
    let mut change = [0; ACCOUNTS];
    for step in &input.steps {
        if let Step::Add { account, amount } = *step {
            change[account - first] += amount;
        }
    }
    change
}

fn is_sum_of_some(wanted: &[i64], parts: &[[i64; ACCOUNTS]]) -> bool {
    let Some((first, rest)) = parts.split_first() else {
        return wanted.iter().all(|it| *it == 0);
    };
    let without: Vec<i64> = wanted.iter().zip(first).map(|(left, it)| left - it).collect();
    is_sum_of_some(wanted, rest) || is_sum_of_some(&without, rest)
}

#[cfg(test)]
mod tests {
    use types::Key;

    use super::*;
    use crate::clients::SimKey;
    use crate::workload::script::Verb;

    fn judge(mix: Mix, calls: Vec<(TransactionInput, Ended)>) -> Result<(), Wrong> {
        let mut clients = Clients::by_hand();
        let count = if mix == Mix::Transfers { ACCOUNTS } else { 2 };
        let key = |it: usize| SimKey { key: Key::new(format!("k{it}").as_bytes()), mix };
        clients.keys.extend((0..count).map(key));
        for (number, (input, ended)) in calls.into_iter().enumerate() {
            let invoked = 2 * number as u64;
            clients.ops.push(Op {
                client: 0,
                session: 1,
                node: 0,
                key: 0,
                input: Input::Transaction(input),
                verb: Verb::Plain,
                ttl_millis: 1,
                line: None,
                invoked,
                ended: Some((invoked + 1, ended)),
            });
        }
        check(&clients)
    }

    fn ran(watched: Vec<usize>, steps: Vec<Step>, shown: Vec<Shown>) -> (TransactionInput, Ended) {
        let read = watched.iter().map(|_| Some(Vec::new())).collect();
        let output = TransactionOutput::Ran { watched: read, shown };
        let input = TransactionInput { watched, ..TransactionInput::exec(steps) };
        (input, Ended::Returned(Output::Transaction(output)))
    }

    fn push(list: usize, element: u64) -> (TransactionInput, Ended) {
        ran(Vec::new(), vec![Step::Push { list, element }], vec![Shown::Done])
    }

    fn reads(elements: [&[u64]; 2]) -> (TransactionInput, Ended) {
        let steps = vec![Step::Range { list: 0 }, Step::Range { list: 1 }];
        let shown = elements.iter().map(|it| Shown::List(it.to_vec())).collect();
        ran(Vec::new(), steps, shown)
    }

    #[test]
    fn half_a_transaction_is_found() {
        let both = vec![Step::Push { list: 0, element: 1 }, Step::Push { list: 1, element: 1 }];
        let both = ran(Vec::new(), both, vec![Shown::Done, Shown::Done]);
        let whole = judge(Mix::Transactions, vec![both.clone(), reads([&[1], &[1]])]);
        assert_eq!(whole, Ok(()));
        assert!(judge(Mix::Transactions, vec![both, reads([&[1], &[]])]).is_err());
    }

    #[test]
    fn string_that_contradicts_its_list_is_found() {
        for (elements, string, is_right) in [
            (&[][..], None, true),
            (&[0, 4], Some(4), true),
            (&[0, 4, 8], Some(4), true),
            (&[0, 4, 8], None, false),
            (&[4, 15], None, true),
            (&[4, 15], Some(4), false),
            (&[4, 14], None, true),
            (&[4, 14], Some(4), false),
        ] {
            assert_eq!(explains(elements, string), is_right, "{elements:?} {string:?}");
        }
    }

    #[test]
    fn nil_without_a_write_is_found() {
        let steps = vec![Step::Push { list: 1, element: 5 }];
        let input = TransactionInput { watched: vec![0], ..TransactionInput::exec(steps) };
        let nil = (input, Ended::Returned(Output::Transaction(TransactionOutput::Overtaken)));
        assert!(judge(Mix::Transactions, vec![push(0, 1), nil.clone()]).is_err());
        let mut unknown = push(0, 1);
        unknown.1 = Ended::Unknown;
        assert_eq!(judge(Mix::Transactions, vec![unknown, nil]), Ok(()));
    }

    #[test]
    fn lost_and_repeated_transfers_are_found() {
        let add = |account, amount| Step::Add { account, amount };
        let shown = vec![Shown::Balance(0), Shown::Balance(0)];
        let transfer = ran(Vec::new(), vec![add(0, -7), add(1, 7)], shown);
        let balances = |amount: i64, other: i64| {
            let mut all = vec![0; ACCOUNTS];
            (all[0], all[1]) = (-amount, other);
            ran(Vec::new(), vec![Step::Balances], vec![Shown::Balances(all)])
        };
        let mut unknown = transfer.clone();
        unknown.1 = Ended::Unknown;
        assert_eq!(judge(Mix::Transfers, vec![transfer.clone(), balances(7, 7)]), Ok(()));
        assert_eq!(judge(Mix::Transfers, vec![unknown.clone(), balances(7, 7)]), Ok(()));
        assert_eq!(judge(Mix::Transfers, vec![unknown, balances(0, 0)]), Ok(()));
        assert!(judge(Mix::Transfers, vec![transfer.clone(), balances(7, 0)]).is_err());
        assert!(judge(Mix::Transfers, vec![transfer.clone(), balances(0, 0)]).is_err());
        assert!(judge(Mix::Transfers, vec![transfer, balances(14, 14)]).is_err());
    }
}
