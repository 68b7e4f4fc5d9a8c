//! A transaction that only reads: it collects the states of its keys until two collects in a row
//! agree. Then all states held at the same time, between the two. No lock is taken.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::limits::{SNAPSHOT_LEN_MAX, TRANSACTION_KEYS_MAX};
use types::{Access, Command, Found, Key, Outcome, Refusal, Reply, Then};

use crate::coordinator::{Fate, RUNS_MAX, Retry};
use crate::mutation::{self, Mutation};
use crate::program::{Mode, Ran, States, Transaction};
use crate::service::{Cx, Requests};

type Out = Requests<Purpose>;

/// Collects before the keys are locked after all.
const COLLECTS_MAX: u32 = 4;

/// A key's state is read, for this collect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Purpose {
    collect: u32,
    key: Key,
}

#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    retry: Option<Retry>,
    /// Number of the collect in progress.
    collect: u32,
    /// States of the collect before.
    before: States,
    /// States of this one so far.
    now: States,
    /// Bytes of their values.
    len: usize,
    /// Its runs hold up a worker for too long.
    is_long: bool,
}

impl Snapshot {
    pub(crate) fn new(retry: Retry) -> Snapshot {
        let (before, now) = (BTreeMap::new(), BTreeMap::new());
        Snapshot { retry: Some(retry), collect: 0, before, now, len: 0, is_long: false }
    }

    pub(crate) fn retry(&self) -> Option<&Retry> {
        self.retry.as_ref()
    }

    pub(crate) fn start(&mut self, out: &mut Out) {
        if let Some(retry) = &self.retry {
            out.wake(retry.deadline, None);
        }
        self.collect(out);
    }

    /// Begins only after the collect before has ended. \[T8\]
    fn collect(&mut self, out: &mut Out) {
        let Some(retry) = &self.retry else { return };
        self.collect += 1;
        let earlier = std::mem::replace(&mut self.before, std::mem::take(&mut self.now));
        for (key, found) in &mut self.before {
            earlier.get(key).into_iter().for_each(|earlier| found.add_earlier(earlier));
        }
        self.len = 0;
        for key in &retry.keys {
            let purpose = Purpose { collect: self.collect, key: key.clone() };
            let command = Command::holding(Access::Read, Then::Look { waits: true });
            out.run(purpose, key.clone(), command);
        }
    }

    pub(crate) fn on_outcome(
        &mut self,
        cx: &Cx<'_>,
        purpose: Purpose,
        outcome: Outcome,
        out: &mut Out,
    ) -> Fate {
        if purpose.collect != self.collect {
            return Fate::Goes;
        }
        match outcome {
            Outcome::Held(found) => {
                self.len += found.value.as_ref().map_or(0, Bytes::len);
                self.now.insert(purpose.key, *found);
            }
            outcome => return self.end(outcome, out),
        }
        if self.len > SNAPSHOT_LEN_MAX {
            let text =
                format!("ERR values too large to be read at once (max {SNAPSHOT_LEN_MAX} bytes)");
            return self.end(Outcome::Reply(Reply::error(text)), out);
        }
        let Some(retry) = &mut self.retry else { return Fate::Ended };
        if self.now.len() < retry.keys.len() {
            return Fate::Goes;
        }
        let stays = |(key, found): (&Key, &Found)| {
            self.before.get(key).is_some_and(|before| before.stays_until(found))
        };
        let is_snapshot = retry.transaction.mode == Mode::PerKey
            || mutation::is(Mutation::SingleCollect)
            || self.now.iter().all(stays);
        if !is_snapshot {
            return self.collect_again(cx, out);
        }
        if retry.transaction.is_overtaken(&self.now) {
            return self.end(Outcome::Reply(Reply::NullArray), out);
        }
        retry.runs += 1;
        let ran = match self.is_long {
            true => Ran::TooLong,
            false => retry.transaction.program.run(&self.now, retry.transaction.clock),
        };
        self.on_ran(ran, out)
    }

    /// The result of a run elsewhere.
    pub(crate) fn on_computed(&mut self, ran: Ran, out: &mut Out) -> Fate {
        self.on_ran(ran, out)
    }

    fn on_ran(&mut self, ran: Ran, out: &mut Out) -> Fate {
        let Some(retry) = &mut self.retry else { return Fate::Ended };
        match ran {
            Ran::TooLong => {
                self.is_long = true;
                out.compute(&retry.transaction, self.now.clone());
                Fate::Goes
            }
            Ran::Needs(_) if retry.runs >= RUNS_MAX => {
                self.end(Outcome::Refused(Refusal::Conflict), out)
            }
            Ran::Needs(keys) => {
                let known = retry.keys.len();
                retry.keys.extend(keys);
                assert!(retry.keys.len() > known, "the program has all states that it asked for");
                if retry.keys.len() > retry.transaction.keys_max() {
                    let outcome = Outcome::Reply(retry.transaction.too_many_keys());
                    return self.end(outcome, out);
                }
                self.collect(out);
                Fate::Goes
            }
            Ran::Done { changes, reply } if changes.is_empty() => {
                self.end(Outcome::Reply(reply), out)
            }
            // It changes keys after all.
            Ran::Done { .. } if retry.keys.len() > TRANSACTION_KEYS_MAX => {
                let mode = Mode::Update;
                let transaction = Transaction { mode, ..retry.transaction.clone() };
                self.end(Outcome::Reply(transaction.too_many_keys()), out)
            }
            Ran::Done { .. } => self.give_up(),
            Ran::Refused(reply) => self.end(Outcome::Reply(reply), out),
        }
    }

    fn collect_again(&mut self, cx: &Cx<'_>, out: &mut Out) -> Fate {
        let Some(retry) = &self.retry else { return Fate::Ended };
        if cx.now >= retry.deadline {
            return self.end(Outcome::Refused(Refusal::Conflict), out);
        }
        let may_lock = retry.keys.len() <= TRANSACTION_KEYS_MAX;
        if may_lock && self.collect > COLLECTS_MAX + retry.runs {
            base::sometimes!("a read of several keys takes locks");
            return self.give_up();
        }
        self.collect(out);
        Fate::Goes
    }

    /// The keys are locked instead.
    fn give_up(&mut self) -> Fate {
        match self.retry.take() {
            Some(mut retry) => {
                retry.transaction.mode = Mode::Update;
                Fate::Again(Box::new(retry))
            }
            None => Fate::Ended,
        }
    }

    pub(crate) fn on_timer(&mut self, cx: &Cx<'_>, out: &mut Out) -> Fate {
        match &self.retry {
            Some(retry) if cx.now < retry.deadline => Fate::Goes,
            _ => self.end(Outcome::Refused(Refusal::Conflict), out),
        }
    }

    fn end(&mut self, outcome: Outcome, out: &mut Out) -> Fate {
        if let Some(retry) = self.retry.take() {
            out.reply(retry.tag, outcome);
        }
        Fate::Ended
    }
}

/// The keys that a transaction names, those watched among them.
pub(crate) fn keys_of(transaction: &Transaction) -> BTreeSet<Key> {
    let watched = transaction.watched.iter().map(|(key, _)| key);
    transaction.keys.iter().chain(watched).cloned().collect()
}
