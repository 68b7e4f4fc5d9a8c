//! Random transactions over lists, and histories of them with something changed.

use checker::model::lists::{Element, ListStep, Lists, Seen, Transaction};
use checker::{History, Model, Outcome};

use super::Random;
use super::subjects::{Drawn, Subject};

const STEPS_MAX: u64 = 4;

fn transaction(keys: u64, random: &mut Random) -> Transaction {
    let count = 1 + random.below(STEPS_MAX);
    let step = |_| {
        let key = random.below(keys);
        match random.chance(50) {
            true => ListStep::Append { key, element: random.bits() },
            false => ListStep::Read { key },
        }
    };
    (0..count).map(step).collect()
}

/// So many lists that none gets long.
pub(crate) fn many_lists() -> Drawn<Lists> {
    Drawn { model: Lists, draw: |random| transaction(300, random) }
}

impl Subject for Lists {
    fn random_input(&self, random: &mut Random) -> Transaction {
        transaction(3, random)
    }

    fn answers(&self, state: &<Lists as Model>::State, transaction: &Transaction) -> Vec<Seen> {
        vec![self.run(state, transaction).0]
    }
}

/// The history with a few reads or outcomes changed; most changes break some promise.
pub(crate) fn changed(
    history: &History<Transaction, Seen>,
    changes: u64,
    random: &mut Random,
) -> History<Transaction, Seen> {
    let mut outcomes: Vec<Outcome<Seen>> =
        history.operations().iter().map(|operation| operation.outcome.clone()).collect();
    for _ in 0..changes {
        let victim = random.below(outcomes.len() as u64) as usize;
        let other = random.pick(&outcomes).clone();
        let appended = appended(&history.operations()[victim].input);
        outcomes[victim] = match outcomes[victim].clone() {
            Outcome::Unknown | Outcome::Returned(_) if random.chance(10) => Outcome::Failed,
            Outcome::Returned(mut seen) if !seen.is_empty() => {
                let at = random.below(seen.len() as u64) as usize;
                let other = match other {
                    Outcome::Returned(other) if !other.is_empty() => random.pick(&other).clone(),
                    _ => appended,
                };
                change(&mut seen[at], other, random);
                Outcome::Returned(seen)
            }
            unchanged => unchanged,
        };
    }
    let mut changed = History::new();
    for (operation, outcome) in history.operations().iter().zip(outcomes) {
        let op = changed.invoke(operation.client, operation.input.clone(), operation.invoked);
        changed.complete(op, outcome, operation.responded.unwrap_or(operation.invoked));
    }
    changed
}

fn change(list: &mut Vec<Element>, other: Vec<Element>, random: &mut Random) {
    let at = random.below(list.len() as u64 + 1) as usize;
    match random.below(8) {
        0..3 => list.truncate(at),
        3 => list.extend(other),
        4 => list.splice(at..at, other).for_each(drop),
        5 if at < list.len() => _ = list.remove(at),
        6 if at >= 2 => list.swap(at - 1, at - 2),
        _ => *list = other,
    }
}

fn appended(transaction: &Transaction) -> Vec<Element> {
    let append = |step: &ListStep| match *step {
        ListStep::Append { element, .. } => Some(element),
        ListStep::Read { .. } => None,
    };
    transaction.iter().filter_map(append).collect()
}
