//! Transactions over several keys, as sessions run them: `MULTI`, `EXEC`, `WATCH`, and commands on
//! several keys.
//!
//! *Lists*: each element is pushed once, and names the operation that pushes it, so the checker's
//! list-append method judges all reads at one time. Beside each list lies a string. The transaction
//! that pushes an element may set or delete the string, so the list determines the string.
//!
//! *Accounts*: transfers between ten counters, and snapshots of all. The sum stays zero.

use base::Prng;
use types::{Key, Reply};

use crate::clients::{Ended, SimKey};
use crate::workload::mix::Mix;
use crate::workload::operation::Output;
use crate::workload::redis;
use crate::workload::scripted::{self, ScriptForm};

/// Number of accounts.
pub const ACCOUNTS: usize = 10;
/// Elements that one operation may push.
const ELEMENTS: u64 = 16;
/// Commands of a transaction on lists, at most.
const STEPS_MAX: u64 = 5;

/// The effect of a transaction on the string beside a list, by the element that it pushes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// It stays.
    Stays,
    /// It becomes the element.
    IsSet,
    /// The same, with a time to live.
    Expires,
    IsDeleted,
}

impl Beside {
    /// The kind follows from the element.
    #[must_use]
    pub fn of(element: u64) -> Beside {
        match element % 8 {
            0..4 => Beside::Stays,
            4 | 5 => Beside::IsSet,
            6 => Beside::Expires,
            _ => Beside::IsDeleted,
        }
    }
}

/// One command, on keys by their indexes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Push {
        list: usize,
        element: u64,
    },
    Range {
        list: usize,
    },
    /// Reads the string beside a list.
    Beside {
        list: usize,
    },
    /// Changes the string beside a list, as [`Beside`] says.
    ChangeBeside {
        list: usize,
        element: u64,
        ttl_millis: u64,
    },
    Add {
        account: usize,
        amount: i64,
    },
    Balance {
        account: usize,
    },
    /// All balances by one command.
    Balances,
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransactionInput {
    /// Lists that are watched and read before `MULTI`.
    pub watched: Vec<usize>,
    pub steps: Vec<Step>,
    /// One command without `MULTI`.
    pub is_alone: bool,
    /// A script runs all steps.
    pub script: Option<ScriptForm>,
}

/// The view of one step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shown {
    List(Vec<u64>),
    Beside(Option<u64>),
    Balance(i64),
    Balances(Vec<i64>),
    Done,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TransactionOutput {
    /// The watched lists as they were read, `None` where a watch protects no read; then the
    /// view of each step.
    Ran { watched: Vec<Option<Vec<u64>>>, shown: Vec<Shown> },
    /// A watched key has changed: no effect.
    Overtaken,
}

/// Draws a request on keys of this mix.
#[must_use]
pub fn draw(rng: &mut Prng, mix: Mix, keys: &[SimKey], id: u64, ttl_max: u64) -> TransactionInput {
    let own: Vec<usize> = (0..keys.len()).filter(|&it| keys[it].mix == mix).collect();
    match mix {
        Mix::Transfers => on_accounts(rng, &own),
        Mix::Scripts => {
            let input = on_lists(rng, &own, id, ttl_max);
            scripted::draw(rng, input)
        }
        _ => on_lists(rng, &own, id, ttl_max),
    }
}

fn on_lists(rng: &mut Prng, lists: &[usize], id: u64, ttl_max: u64) -> TransactionInput {
    let mut elements = (0..ELEMENTS).map(|number| id * ELEMENTS + number);
    let mut steps = Vec::new();
    if rng.chance(0.25) {
        let list = *rng.pick(lists);
        // An element of a kind that leaves the string alone.
        let element = id * ELEMENTS;
        let step = match rng.below(3) {
            0 => Step::Range { list },
            1 => Step::Beside { list },
            _ => Step::Push { list, element },
        };
        return TransactionInput::alone(step);
    }
    let only_reads = rng.chance(0.15);
    for _ in 0..rng.between(1, STEPS_MAX) {
        let list = *rng.pick(lists);
        if !only_reads && rng.chance(0.6) {
            let skipped = rng.below(3) as usize;
            let Some(element) = elements.nth(skipped) else { break };
            steps.push(Step::Push { list, element });
            if Beside::of(element) != Beside::Stays {
                let ttl_millis = rng.between(1, ttl_max);
                steps.push(Step::ChangeBeside { list, element, ttl_millis });
            }
        }
        if rng.chance(0.6) {
            steps.push(Step::Range { list });
            if rng.chance(0.5) {
                steps.push(Step::Beside { list });
            }
        }
    }
    if steps.is_empty() {
        steps.push(Step::Range { list: *rng.pick(lists) });
    }
    let mut watched = Vec::new();
    if rng.chance(0.25) {
        watched.extend((0..rng.between(1, 2)).map(|_| *rng.pick(lists)));
        watched.dedup();
    }
    TransactionInput { watched, ..TransactionInput::exec(steps) }
}

fn on_accounts(rng: &mut Prng, accounts: &[usize]) -> TransactionInput {
    if accounts.len() > 1 && rng.chance(0.7) {
        let (from, to) = (rng.below(accounts.len() as u64), rng.below(accounts.len() as u64 - 1));
        let to = (from + 1 + to) % accounts.len() as u64;
        let amount = rng.between(1, 50) as i64;
        let add = |account: u64, amount| Step::Add { account: accounts[account as usize], amount };
        return TransactionInput::exec(vec![add(from, -amount), add(to, amount)]);
    }
    match rng.chance(0.5) {
        true => TransactionInput::alone(Step::Balances),
        false => {
            let balance = |&account| Step::Balance { account };
            TransactionInput::exec(accounts.iter().map(balance).collect())
        }
    }
}

/// The name of the string beside a list.
fn beside(list: &Key) -> Vec<u8> {
    [b"beside-", list.bytes()].concat()
}

pub(super) fn words(step: Step, keys: &[SimKey]) -> Vec<Vec<u8>> {
    let key = |index: usize| keys[index].key.bytes().to_vec();
    let text = |text: &str| text.as_bytes().to_vec();
    match step {
        Step::Push { list, element } => vec![text("RPUSH"), key(list), number(element)],
        Step::Range { list } => vec![text("LRANGE"), key(list), text("0"), text("-1")],
        Step::Beside { list } => vec![text("GET"), beside(&keys[list].key)],
        Step::ChangeBeside { list, element, ttl_millis } => {
            let beside = beside(&keys[list].key);
            match Beside::of(element) {
                Beside::IsDeleted => vec![text("DEL"), beside],
                Beside::Expires => {
                    vec![text("SET"), beside, number(element), text("PX"), number(ttl_millis)]
                }
                _ => vec![text("SET"), beside, number(element)],
            }
        }
        Step::Add { account, amount } => {
            vec![text("INCRBY"), key(account), amount.to_string().into_bytes()]
        }
        Step::Balance { account } => vec![text("GET"), key(account)],
        Step::Balances => {
            let accounts = keys.iter().filter(|it| it.mix == Mix::Transfers);
            let names = accounts.map(|it| it.key.bytes().to_vec());
            std::iter::once(text("MGET")).chain(names).collect()
        }
    }
}

fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

impl TransactionInput {
    /// One command.
    #[must_use]
    pub fn alone(step: Step) -> TransactionInput {
        TransactionInput { is_alone: true, ..TransactionInput::exec(vec![step]) }
    }

    /// The commands of one `EXEC`.
    #[must_use]
    pub fn exec(steps: Vec<Step>) -> TransactionInput {
        TransactionInput { watched: Vec::new(), steps, is_alone: false, script: None }
    }

    /// Commands between `MULTI` and `EXEC`, or one alone.
    fn commands(&self, keys: &[SimKey]) -> Vec<Vec<Vec<u8>>> {
        match self.script {
            Some(form) => vec![scripted::words(form, &self.steps, keys)],
            None => self.steps.iter().map(|step| words(*step, keys)).collect(),
        }
    }

    /// The commands that a client sends at once.
    #[must_use]
    pub fn lines(&self, keys: &[SimKey]) -> Vec<Vec<Vec<u8>>> {
        if self.is_alone {
            return self.commands(keys);
        }
        let mut lines = Vec::new();
        if !self.watched.is_empty() {
            let names = self.watched.iter().map(|&list| keys[list].key.bytes().to_vec());
            lines.push(std::iter::once(b"WATCH".to_vec()).chain(names).collect());
            lines.extend(self.watched.iter().map(|&list| words(Step::Range { list }, keys)));
        }
        lines.push(vec![b"MULTI".to_vec()]);
        lines.extend(self.commands(keys));
        lines.push(vec![b"EXEC".to_vec()]);
        lines
    }

    /// The number of replies.
    #[must_use]
    pub fn replies(&self) -> usize {
        let watches = usize::from(!self.watched.is_empty()) + self.watched.len();
        let commands = if self.script.is_some() { 1 } else { self.steps.len() };
        commands + if self.is_alone { 0 } else { 2 + watches }
    }

    /// It pushes to one of these lists, or changes an account.
    #[must_use]
    pub fn writes(&self, lists: &[usize]) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step, Step::Push { list, .. } if lists.contains(list)))
    }

    /// It sets a value with a time to live.
    #[must_use]
    pub fn expires(&self) -> bool {
        let expires = |step: &Step| match step {
            Step::ChangeBeside { element, .. } => Beside::of(*element) == Beside::Expires,
            _ => false,
        };
        self.steps.iter().any(expires)
    }

    /// How it ended; `None` for replies that no transaction gives.
    #[must_use]
    pub fn ended(&self, replies: &[Reply]) -> Option<Ended> {
        if self.is_alone {
            return match replies {
                [Reply::Error(text)] => redis::error(text),
                [Reply::Array(replies)] if self.script.is_some() => {
                    let shown = self.shown(replies)?;
                    let ran = TransactionOutput::Ran { watched: Vec::new(), shown };
                    Some(Ended::Returned(Output::Transaction(ran)))
                }
                [_] if self.script.is_some() => None,
                [reply] => {
                    let shown = vec![shown(self.steps[0], reply)?];
                    let ran = TransactionOutput::Ran { watched: Vec::new(), shown };
                    Some(Ended::Returned(Output::Transaction(ran)))
                }
                _ => None,
            };
        }
        let watches = usize::from(!self.watched.is_empty()) + self.watched.len();
        let (before, rest) = replies.split_at_checked(watches)?;
        let (exec, queued) = rest.split_last()?;
        let is_queued = |reply: &Reply| matches!(reply, Reply::Simple(text) if text == "QUEUED");
        if queued.first() != Some(&Reply::OK) || !queued[1..].iter().all(is_queued) {
            return None;
        }
        let ran = match exec {
            Reply::Error(text) => return redis::error(text),
            Reply::Null | Reply::NullArray if !self.watched.is_empty() => {
                TransactionOutput::Overtaken
            }
            Reply::Array(replies) => {
                let shown = match (self.script, &replies[..]) {
                    (None, replies) => self.shown(replies)?,
                    (Some(_), [Reply::Array(replies)]) => self.shown(replies)?,
                    _ => return None,
                };
                TransactionOutput::Ran { watched: self.watched(before)?, shown }
            }
            _ => return None,
        };
        Some(Ended::Returned(Output::Transaction(ran)))
    }

    /// The view of each step.
    fn shown(&self, replies: &[Reply]) -> Option<Vec<Shown>> {
        let steps = self.steps.iter().zip(replies);
        let shown: Option<Vec<Shown>> = steps.map(|(step, reply)| shown(*step, reply)).collect();
        shown.filter(|_| replies.len() == self.steps.len())
    }

    /// The watched lists as they were read. An error of `WATCH` leaves all unwatched.
    fn watched(&self, replies: &[Reply]) -> Option<Vec<Option<Vec<u64>>>> {
        let Some((watch, reads)) = replies.split_first() else { return Some(Vec::new()) };
        let is_on = match watch {
            Reply::Error(text) => redis::error(text).map(|_| false)?,
            watch => (*watch == Reply::OK).then_some(true)?,
        };
        let read = |reply: &Reply| match reply {
            Reply::Error(text) => redis::error(text).map(|_| None),
            reply => elements(reply).map(|list| is_on.then_some(list)),
        };
        reads.iter().map(read).collect()
    }
}

fn shown(step: Step, reply: &Reply) -> Option<Shown> {
    match (step, reply) {
        (Step::Push { .. }, Reply::Integer(1..)) => Some(Shown::Done),
        (Step::Range { .. }, reply) => elements(reply).map(Shown::List),
        (Step::Beside { .. }, Reply::Null) => Some(Shown::Beside(None)),
        (Step::Beside { .. }, Reply::Bulk(text)) => {
            Some(Shown::Beside(Some(parse(text)?.try_into().ok()?)))
        }
        (Step::ChangeBeside { .. }, Reply::Integer(0 | 1)) => Some(Shown::Done),
        (Step::ChangeBeside { .. }, reply) => (*reply == Reply::OK).then_some(Shown::Done),
        (Step::Add { .. }, Reply::Integer(balance)) => Some(Shown::Balance(*balance)),
        (Step::Balance { .. }, reply) => balance(reply).map(Shown::Balance),
        (Step::Balances, Reply::Array(all)) => {
            all.iter().map(balance).collect::<Option<_>>().map(Shown::Balances)
        }
        _ => None,
    }
}

fn elements(reply: &Reply) -> Option<Vec<u64>> {
    let Reply::Array(all) = reply else { return None };
    let element = |reply: &Reply| match reply {
        Reply::Bulk(text) => parse(text)?.try_into().ok(),
        _ => None,
    };
    all.iter().map(element).collect()
}

fn balance(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Null => Some(0),
        Reply::Bulk(text) => parse(text),
        _ => None,
    }
}

fn parse(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
