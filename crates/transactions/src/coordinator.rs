//! One attempt of a transaction, from the first lock to the last.

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use bytes::Bytes;
use types::limits::ONCE_REPLY_LEN_MAX;
use types::{
    Access, Change, Command, Found, Key, Locked, Outcome, Refusal, Reply, Settle, Tag, Take, Then,
    Txid, Wire,
};

use crate::conflict::{Conflict, Step};
use crate::mutation::{self, Mutation};
use crate::program::{Ran, States, Transaction};
use crate::record::{self, Entry, Record};
use crate::service::{Cx, Requests};

type Out = Requests<Purpose>;

/// Runs of a program, because it named further keys or an attempt was lost.
pub(crate) const RUNS_MAX: u32 = 64;
/// Pause before a register that did not answer is asked again.
const PAUSE: Nanos = Nanos::from_millis(20);
/// Tries to settle a key, or to forget the record. Other nodes do it where this one gives up.
const TRIES_MAX: u32 = 100;
/// Bytes of a record. A register holds it beside its own fields.
const RECORD_LEN_MAX: usize = types::limits::RECORD_LEN_MAX - (1 << 20);

/// The use of a request to a register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    Take(Key),
    /// Reads the record of the lock that stands in the way at this key.
    ReadRecord(Key),
    /// Aborts the transaction that stands in the way at this key.
    Push(Key),
    Decide,
    /// Learns how the own transaction ended.
    PushOwn,
    Settle(Key),
    Forget,
}

#[derive(Clone, Debug)]
pub(crate) struct Coordinator {
    /// `None` once the client has its answer.
    tag: Option<Tag>,
    transaction: Transaction,
    pub(crate) txid: Txid,
    record: Key,
    deadline: Nanos,
    keys: BTreeMap<Key, KeyStep>,
    /// Keys that a request with an unknown outcome may have taken.
    unclear: BTreeSet<Key>,
    phase: Phase,
    pub(crate) runs: u32,
    /// Its runs hold up a worker for too long.
    is_long: bool,
}

#[derive(Clone, Debug)]
enum KeyStep {
    Taking(Option<Conflict>),
    /// Another transaction's lock stands in the way.
    Blocked(Conflict),
    Taken(Found),
    /// It may be taken.
    Unclear,
}

#[derive(Clone, Debug)]
enum Phase {
    Taking,
    /// The program runs elsewhere.
    Computing,
    /// The commit is being written.
    Deciding(Record, Reply),
    /// It is unknown whether it was written.
    PushingOwn(Record, Reply, u32),
    /// The decision is known, or will never be made; keys are left to settle.
    Settling(Ending),
    Forgetting(Record, u32),
    Done,
}

#[derive(Clone, Debug)]
struct Ending {
    record: Record,
    /// With the tries so far.
    left: BTreeMap<Key, u32>,
}

/// The state of an attempt after an event.
#[derive(Debug)]
pub(crate) enum Fate {
    Goes,
    Ended,
    /// It was aborted by another node, and its client waits: begin another attempt.
    Again(Box<Retry>),
}

/// A transaction to be attempted again, with its priority.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    pub(crate) tag: Tag,
    pub(crate) transaction: Transaction,
    pub(crate) start: u64,
    pub(crate) deadline: Nanos,
    pub(crate) runs: u32,
    pub(crate) keys: BTreeSet<Key>,
}

impl Coordinator {
    pub(crate) fn new(retry: Retry, txid: Txid) -> Coordinator {
        let Retry { tag, transaction, deadline, runs, keys, .. } = retry;
        let first = transaction.keys.first().or(keys.first()).expect("it names a key");
        Coordinator {
            tag: Some(tag),
            record: record::key(first.shard(), txid),
            transaction,
            txid,
            deadline,
            keys: keys.into_iter().map(|key| (key, KeyStep::Taking(None))).collect(),
            unclear: BTreeSet::new(),
            phase: Phase::Taking,
            runs,
            is_long: false,
        }
    }

    pub(crate) fn database(&self) -> types::Database {
        self.transaction.database
    }

    pub(crate) fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// See [`Conflict::shift`]. Its deadline stays.
    #[cfg(test)]
    pub(crate) fn shift(&mut self, span: Nanos, now: Nanos) {
        for step in self.keys.values_mut() {
            if let KeyStep::Taking(Some(conflict)) | KeyStep::Blocked(conflict) = step {
                conflict.shift(span, now);
            }
        }
    }

    /// This node may still commit it.
    pub(crate) fn is_alive(&self) -> bool {
        match self.phase {
            Phase::Taking | Phase::Computing => true,
            Phase::Deciding(..) | Phase::PushingOwn(..) => {
                !mutation::is(Mutation::FinishedWhileDeciding)
            }
            _ => false,
        }
    }

    pub(crate) fn start(&mut self, out: &mut Out) {
        out.wake(self.deadline, None);
        let keys: Vec<Key> = self.keys.keys().cloned().collect();
        keys.iter().for_each(|key| self.take(key, None, out));
    }

    fn take(&self, key: &Key, settle: Option<Settle>, out: &mut Out) {
        let record = Bytes::copy_from_slice(self.record.bytes());
        let remembering = self.transaction.remembering().filter(|(it, _)| *it == key);
        let once = remembering.map(|(_, once)| Box::new(once.clone()));
        let take = Take { txid: self.txid, record, generation: 0, once };
        let command = Command::holding(Access::Update, Then::Take(take));
        let command = match settle {
            Some(settle) => command.after(settle),
            None => command,
        };
        out.run(Purpose::Take(key.clone()), key.clone(), command);
    }

    pub(crate) fn on_outcome(
        &mut self,
        cx: &mut Cx<'_>,
        purpose: Purpose,
        outcome: Outcome,
        out: &mut Out,
    ) -> Fate {
        match purpose {
            Purpose::Take(key) => self.on_taken(cx, key, outcome, out),
            Purpose::ReadRecord(key) => self.on_record(cx, key, outcome, out),
            Purpose::Push(key) => self.on_record(cx, key, outcome, out),
            Purpose::Decide => return self.on_decided(cx, outcome, out),
            Purpose::PushOwn => return self.on_pushed(cx, outcome, out),
            Purpose::Settle(key) => self.on_settled(cx, &key, &outcome, out),
            Purpose::Forget => self.on_forgotten(cx, &outcome, out),
        }
        self.fate()
    }

    pub(crate) fn on_timer(&mut self, cx: &mut Cx<'_>, key: Option<Key>, out: &mut Out) -> Fate {
        match key {
            Some(key) => self.look_again(&key, out),
            None if cx.now >= self.deadline => self.on_deadline(out),
            None => {}
        }
        self.fate()
    }

    fn fate(&self) -> Fate {
        if matches!(self.phase, Phase::Done) { Fate::Ended } else { Fate::Goes }
    }

    fn on_taken(&mut self, cx: &Cx<'_>, key: Key, outcome: Outcome, out: &mut Out) {
        let Some(step) = self.keys.get_mut(&key) else { return };
        let conflict = match step {
            KeyStep::Taking(conflict) => conflict.take(),
            _ => None,
        };
        match outcome {
            Outcome::Held(found) => *step = KeyStep::Taken(*found),
            Outcome::Locked(locked) if matches!(self.phase, Phase::Taking) => {
                let Locked { lock, .. } = *locked;
                let conflict = match conflict {
                    Some(mut conflict) => {
                        conflict.meet(lock);
                        conflict
                    }
                    None => Conflict::new(lock),
                };
                let other = record::key_of(&conflict.lock.record);
                *step = KeyStep::Blocked(conflict);
                return out.run_hidden(Purpose::ReadRecord(key), other, record::read());
            }
            Outcome::Unknown if matches!(self.phase, Phase::Taking) => {
                // To take it twice has one effect.
                *step = KeyStep::Taking(conflict);
                self.unclear.insert(key.clone());
                return self.take(&key, None, out);
            }
            Outcome::Unknown => *step = KeyStep::Unclear,
            _ => {
                if self.unclear.contains(&key) {
                    *step = KeyStep::Unclear;
                } else {
                    self.keys.remove(&key);
                }
                if matches!(self.phase, Phase::Taking) {
                    return self.abort(outcome, out);
                }
            }
        }
        match &mut self.phase {
            Phase::Taking => self.run_program(cx, out),
            // It was aborted meanwhile.
            Phase::Settling(ending) => match self.keys.get(&key) {
                Some(KeyStep::Taken(_) | KeyStep::Unclear) => {
                    ending.left.insert(key.clone(), 0);
                    self.settle(&key, out);
                }
                _ => self.forget_if_settled(out),
            },
            _ => {}
        }
    }

    /// All keys are taken: computes the changes and writes the commit.
    fn run_program(&mut self, cx: &Cx<'_>, out: &mut Out) {
        let mut states = States::new();
        for (key, step) in &self.keys {
            let KeyStep::Taken(found) = step else { return };
            states.insert(key.clone(), found.clone());
        }
        if self.transaction.is_overtaken(&states) {
            return self.conclude(&states, Reply::NullArray, out);
        }
        if cx.now >= self.deadline {
            return self.abort(Outcome::Refused(Refusal::Conflict), out);
        }
        self.runs += 1;
        if self.runs > RUNS_MAX {
            return self.abort(Outcome::Refused(Refusal::Conflict), out);
        }
        let ran = match self.is_long {
            true => Ran::TooLong,
            false => self.transaction.program.run(&states, self.transaction.clock),
        };
        self.on_ran(states, ran, out);
    }

    /// The result of a run elsewhere.
    pub(crate) fn on_computed(&mut self, cx: &mut Cx<'_>, ran: Ran, out: &mut Out) -> Fate {
        if matches!(self.phase, Phase::Computing) {
            self.phase = Phase::Taking;
            let states = self.keys.iter().filter_map(|(key, step)| match step {
                KeyStep::Taken(found) => Some((key.clone(), found.clone())),
                _ => None,
            });
            let states: States = states.collect();
            match cx.now >= self.deadline {
                true => self.abort(Outcome::Refused(Refusal::Conflict), out),
                false => self.on_ran(states, ran, out),
            }
        }
        self.fate()
    }

    fn on_ran(&mut self, states: States, ran: Ran, out: &mut Out) {
        match ran {
            Ran::TooLong => {
                self.is_long = true;
                self.phase = Phase::Computing;
                out.compute(&self.transaction, states);
            }
            Ran::Needs(mut keys) => {
                keys.retain(|key| !self.keys.contains_key(key));
                keys.sort();
                keys.dedup();
                assert!(!keys.is_empty(), "the program has all states that it asked for");
                if self.keys.len() + keys.len() > self.transaction.keys_max() {
                    return self.conclude(&states, self.transaction.too_many_keys(), out);
                }
                for key in keys {
                    self.keys.insert(key.clone(), KeyStep::Taking(None));
                    self.take(&key, None, out);
                }
            }
            Ran::Done { changes, reply } => self.decide(&states, changes, reply, out),
            Ran::Refused(reply) => self.abort(Outcome::Reply(reply), out),
        }
    }

    /// Ends without a change. One that is safe to repeat commits this reply too. \[T6\]
    fn conclude(&mut self, states: &States, reply: Reply, out: &mut Out) {
        match self.transaction.once {
            Some(_) if !mutation::is(Mutation::OnceWithoutChange) => {
                self.decide(states, Vec::new(), reply, out);
            }
            _ => self.abort(Outcome::Reply(reply), out),
        }
    }

    fn decide(
        &mut self,
        states: &States,
        changes: Vec<(Key, Change)>,
        reply: Reply,
        out: &mut Out,
    ) {
        let mut changes: BTreeMap<Key, Change> = changes.into_iter().collect();
        let is_kept = !mutation::is(Mutation::OnceNotKept);
        let remembering = self.transaction.remembering().filter(|_| is_kept);
        let kept = |key: &Key| {
            let (_, once) = remembering.filter(|(it, _)| *it == key)?;
            let is_short = reply.len() <= 2 * ONCE_REPLY_LEN_MAX
                && reply.to_bytes().len() <= ONCE_REPLY_LEN_MAX;
            Some(Box::new((once.clone(), is_short.then(|| reply.clone()))))
        };
        let entry = |(key, found): (&Key, &Found)| Entry {
            key: key.clone(),
            version: found.version,
            change: changes.remove(key).unwrap_or(Change::None),
            once: kept(key),
        };
        let record = Record::Committed(states.iter().map(entry).collect());
        assert!(changes.is_empty(), "changes of keys that are not taken: {changes:?}");
        if record.to_bytes().len() > RECORD_LEN_MAX {
            let text = format!("ERR transaction too large (max {RECORD_LEN_MAX} bytes of changes)");
            return self.conclude(states, Reply::error(text), out);
        }
        let decide = record::decide_own(&record, self.txid);
        out.run_hidden(Purpose::Decide, self.record.clone(), decide);
        if mutation::is(Mutation::ReplyBeforeCommit) {
            self.answer(Outcome::Reply(reply.clone()), out);
        }
        self.phase = Phase::Deciding(record, reply);
    }

    fn on_decided(&mut self, cx: &mut Cx<'_>, outcome: Outcome, out: &mut Out) -> Fate {
        let Phase::Deciding(record, reply) = std::mem::replace(&mut self.phase, Phase::Done) else {
            return Fate::Ended;
        };
        match outcome {
            Outcome::Reply(held) => match record::shown(&held) {
                Ok(Some(Record::Aborted)) => return self.lose(cx, out),
                Ok(Some(Record::Committed(_))) => {
                    self.answer(Outcome::Reply(reply), out);
                    self.settle_all(record, out);
                }
                Ok(None) | Err(_) => {
                    self.phase = Phase::PushingOwn(record, reply, 0);
                    self.push_own(out);
                }
            },
            Outcome::Unknown if !mutation::is(Mutation::UnknownIsAborted) => {
                base::sometimes!("it is unknown whether a commit was written");
                self.phase = Phase::PushingOwn(record, reply, 0);
                self.push_own(out);
            }
            // It surely was not written, and never will be.
            outcome => {
                self.answer(outcome, out);
                self.settle_all(Record::Aborted, out);
            }
        }
        self.fate()
    }

    fn push_own(&self, out: &mut Out) {
        let command = record::decide(&Record::Aborted);
        out.run_hidden(Purpose::PushOwn, self.record.clone(), command);
    }

    /// T4. The first decision counts; the client hears of a commit only if it was that.
    fn on_pushed(&mut self, cx: &mut Cx<'_>, outcome: Outcome, out: &mut Out) -> Fate {
        let Phase::PushingOwn(_, _, tries) = &mut self.phase else { return self.fate() };
        let Outcome::Reply(held) = outcome else {
            *tries += 1;
            if *tries > TRIES_MAX {
                self.answer(Outcome::Unknown, out);
                self.phase = Phase::Done;
            } else {
                out.wake(cx.now + PAUSE, Some(self.record.clone()));
            }
            return self.fate();
        };
        let Phase::PushingOwn(record, reply, _) = std::mem::replace(&mut self.phase, Phase::Done)
        else {
            return self.fate();
        };
        if matches!(record::shown(&held), Ok(Some(Record::Committed(_)))) {
            self.answer(Outcome::Reply(reply), out);
            self.settle_all(record, out);
        } else if mutation::is(Mutation::AbortedIsLost) {
            return self.lose(cx, out);
        } else {
            self.answer(Outcome::Unknown, out);
            self.settle_all(Record::Aborted, out);
        }
        self.fate()
    }

    /// Another node aborted it.
    fn lose(&mut self, cx: &mut Cx<'_>, out: &mut Out) -> Fate {
        base::sometimes!("another node aborts a transaction before its commit");
        let tag = self.tag.take();
        let keys: BTreeSet<Key> = self.keys.keys().cloned().collect();
        self.settle_all(Record::Aborted, out);
        let Some(tag) = tag else { return self.fate() };
        if cx.now >= self.deadline || self.runs >= RUNS_MAX {
            out.reply(tag, Outcome::Refused(Refusal::Conflict));
            return self.fate();
        }
        Fate::Again(Box::new(Retry {
            tag,
            transaction: self.transaction.clone(),
            start: match mutation::is(Mutation::PriorityLost) {
                true => cx.unix,
                false => self.txid.start,
            },
            deadline: self.deadline,
            runs: self.runs,
            keys,
        }))
    }

    fn abort(&mut self, outcome: Outcome, out: &mut Out) {
        self.answer(outcome, out);
        self.settle_all(Record::Aborted, out);
    }

    fn answer(&mut self, outcome: Outcome, out: &mut Out) {
        if let Some(tag) = self.tag.take() {
            out.reply(tag, outcome);
        }
    }

    fn on_deadline(&mut self, out: &mut Out) {
        match &self.phase {
            Phase::Taking => {
                let is_blocked =
                    |step: &KeyStep| matches!(step, KeyStep::Blocked(_) | KeyStep::Taking(Some(_)));
                let outcome = match self.keys.values().any(is_blocked) {
                    true => Outcome::Refused(Refusal::Conflict),
                    false => Outcome::NoQuorum,
                };
                self.abort(outcome, out);
            }
            Phase::Computing => self.abort(Outcome::Refused(Refusal::Conflict), out),
            Phase::Deciding(..) | Phase::PushingOwn(..) => self.answer(Outcome::Unknown, out),
            Phase::Settling(_) | Phase::Forgetting(..) | Phase::Done => {}
        }
    }

    /// Installs a decision at every key that is taken.
    fn settle_all(&mut self, record: Record, out: &mut Out) {
        for key in &self.unclear {
            if let Some(step @ KeyStep::Blocked(_)) = self.keys.get_mut(key) {
                *step = KeyStep::Unclear;
            }
        }
        self.keys.retain(|_, step| !matches!(step, KeyStep::Blocked(_)));
        let is_held = |step: &KeyStep| matches!(step, KeyStep::Taken(_) | KeyStep::Unclear);
        let held = self.keys.iter().filter(|(_, step)| is_held(step));
        let left: BTreeMap<Key, u32> = held.map(|(key, _)| (key.clone(), 0)).collect();
        self.phase = Phase::Settling(Ending { record, left: left.clone() });
        left.keys().for_each(|key| self.settle(key, out));
        self.forget_if_settled(out);
    }

    fn settle(&self, key: &Key, out: &mut Out) {
        let Phase::Settling(ending) = &self.phase else { return };
        let settle = match ending.record.entry(key) {
            Some(entry) => entry.settle(self.txid),
            None => Settle::aborted(self.txid, 0),
        };
        let command = Command::holding(Access::Update, Then::Run).after(settle);
        out.run(Purpose::Settle(key.clone()), key.clone(), command);
    }

    fn on_settled(&mut self, cx: &mut Cx<'_>, key: &Key, outcome: &Outcome, out: &mut Out) {
        let Phase::Settling(ending) = &mut self.phase else { return };
        if !matches!(outcome, Outcome::Reply(_)) {
            let Some(tries) = ending.left.get_mut(key) else { return };
            *tries += 1;
            if *tries > TRIES_MAX {
                self.phase = Phase::Done;
            } else {
                out.wake(cx.now + PAUSE, Some(key.clone()));
            }
            return;
        }
        ending.left.remove(key);
        self.keys.remove(key);
        self.forget_if_settled(out);
    }

    /// No key carries its lock any more, and no request that could take one is under way.
    fn forget_if_settled(&mut self, out: &mut Out) {
        let Phase::Settling(ending) = &mut self.phase else { return };
        let takes = |step: &KeyStep| matches!(step, KeyStep::Taking(_));
        let is_early = mutation::is(Mutation::ForgetBeforeSettled);
        if !is_early && (!ending.left.is_empty() || self.keys.values().any(takes)) {
            return;
        }
        let record = std::mem::replace(&mut ending.record, Record::Aborted);
        out.run_hidden(Purpose::Forget, self.record.clone(), record::forget(&record));
        self.phase = Phase::Forgetting(record, 0);
    }

    fn on_forgotten(&mut self, cx: &mut Cx<'_>, outcome: &Outcome, out: &mut Out) {
        let Phase::Forgetting(_, tries) = &mut self.phase else { return };
        *tries += 1;
        if matches!(outcome, Outcome::Reply(_)) || *tries > TRIES_MAX {
            self.phase = Phase::Done;
        } else {
            out.wake(cx.now + PAUSE, Some(self.record.clone()));
        }
    }

    /// The record of a lock that stands in the way.
    fn on_record(&mut self, cx: &mut Cx<'_>, key: Key, outcome: Outcome, out: &mut Out) {
        if !matches!(self.phase, Phase::Taking) {
            return;
        }
        let Some(KeyStep::Blocked(conflict)) = self.keys.get_mut(&key) else { return };
        let Some(shown) = record_in(&outcome) else {
            return out.wake(cx.now + PAUSE, Some(key));
        };
        let step = conflict.on_record(cx, &key, shown.as_ref(), Some(self.txid));
        let other = record::key_of(&conflict.lock.record);
        match step {
            Step::Settle(settle) => {
                let place = self.keys.get_mut(&key).expect("it is blocked");
                if let KeyStep::Blocked(conflict) = std::mem::replace(place, KeyStep::Unclear) {
                    *place = KeyStep::Taking(Some(conflict));
                }
                self.take(&key, Some(settle), out);
            }
            Step::Push => {
                out.run_hidden(Purpose::Push(key), other, record::decide(&Record::Aborted));
            }
            Step::AskAndWait(until) => {
                out.ask(conflict.lock.txid);
                out.wake(until, Some(key));
            }
        }
    }

    /// A pause of this key, or of the record, is over.
    fn look_again(&mut self, key: &Key, out: &mut Out) {
        match &mut self.phase {
            Phase::Taking => {
                let Some(place @ KeyStep::Blocked(_)) = self.keys.get_mut(key) else { return };
                if let KeyStep::Blocked(conflict) = std::mem::replace(place, KeyStep::Unclear) {
                    *place = KeyStep::Taking(Some(conflict));
                }
                self.take(key, None, out);
            }
            Phase::PushingOwn(..) => self.push_own(out),
            Phase::Settling(ending) if ending.left.contains_key(key) => self.settle(key, out),
            Phase::Forgetting(record, _) => {
                let command = record::forget(record);
                out.run_hidden(Purpose::Forget, self.record.clone(), command);
            }
            Phase::Computing | Phase::Settling(_) | Phase::Deciding(..) | Phase::Done => {}
        }
    }

    /// The status of a transaction that may stand in the way.
    pub(crate) fn on_status(&mut self, txid: Txid, is_alive: bool) {
        for step in self.keys.values_mut() {
            if let KeyStep::Blocked(conflict) | KeyStep::Taking(Some(conflict)) = step
                && conflict.lock.txid == txid
            {
                match is_alive {
                    true => conflict.on_alive(),
                    false => conflict.on_finished(),
                }
            }
        }
    }
}

/// The record that an outcome shows; `None` where it shows none.
pub(crate) fn record_in(outcome: &Outcome) -> Option<Option<Record>> {
    match outcome {
        Outcome::Reply(reply) => record::shown(reply).ok(),
        _ => None,
    }
}
