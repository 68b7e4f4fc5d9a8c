//! A lock of another transaction that stands in the way.

use base::Nanos;
use types::{Key, Lock, Settle, Txid};

use crate::mutation::{self, Mutation};
use crate::record::Record;
use crate::service::{Cx, Holder};

/// A coordinator that does not answer for so long is passed over.
const SILENT_AFTER: Nanos = Nanos::from_millis(50);
/// Pauses between looks at a lock of a live coordinator.
const PAUSE_MIN: Nanos = Nanos::from_millis(1);
const PAUSE_MAX: Nanos = Nanos::from_millis(20);

/// One lock, for as long as it is met.
#[derive(Clone, Debug)]
pub(crate) struct Conflict {
    pub(crate) lock: Lock,
    /// When its coordinator was asked whether it lives; it has not answered since.
    asked: Option<Nanos>,
    pause: Nanos,
    /// Its coordinator cannot commit it any more.
    is_finished: bool,
    is_aborted: bool,
}

/// The next step.
#[derive(Debug)]
pub(crate) enum Step {
    /// The transaction has ended: settle the key so.
    Settle(Settle),
    /// Write that it is aborted.
    Push,
    /// Its coordinator lives, or has time to answer: ask, and look again then.
    AskAndWait(Nanos),
}

impl Conflict {
    pub(crate) fn new(lock: Lock) -> Conflict {
        Conflict { lock, asked: None, pause: PAUSE_MIN, is_finished: false, is_aborted: false }
    }

    /// Moves all times back by so much. `now`: the present after that.
    #[cfg(test)]
    pub(crate) fn shift(&mut self, span: Nanos, now: Nanos) {
        let asked = self.asked.map(|asked| asked - span);
        // Silence that is longer has the same effect.
        self.asked = asked.map(|asked| asked.max(now - SILENT_AFTER));
    }

    /// The key was looked at again.
    pub(crate) fn meet(&mut self, lock: Lock) {
        if lock.txid != self.lock.txid {
            *self = Conflict::new(lock);
        } else {
            self.lock = lock;
        }
    }

    pub(crate) fn on_alive(&mut self) {
        self.asked = None;
    }

    pub(crate) fn on_finished(&mut self) {
        self.is_finished = true;
    }

    /// The record is aborted, and its coordinator will not commit it.
    pub(crate) fn may_forget(&self) -> bool {
        let may_be_early = mutation::is(Mutation::ForgetAbortedEarly);
        self.is_aborted && (self.is_finished || may_be_early)
    }

    /// `mine`: the transaction that meets the lock. An older one need not wait.
    pub(crate) fn on_record(
        &mut self,
        cx: &Cx<'_>,
        key: &Key,
        record: Option<&Record>,
        mine: Option<Txid>,
    ) -> Step {
        let txid = self.lock.txid;
        match record {
            Some(record) => {
                self.is_aborted = *record == Record::Aborted;
                if !self.is_aborted && cx.holder(txid) != Holder::Up {
                    base::sometimes!("a commit of a dead coordinator is settled");
                }
                let entry = record.entry(key);
                // A lock of another version is a stray: it came after the transaction's end.
                let mut settle = match entry {
                    Some(entry) => entry.settle(txid),
                    None => Settle::aborted(txid, self.lock.version),
                };
                if mutation::is(Mutation::SettleAnyVersion) {
                    settle.version = self.lock.version;
                }
                Step::Settle(settle)
            }
            None => {
                let is_older = match mutation::is(Mutation::NoTieBreak) {
                    true => mine.is_some_and(|mine| mine.start < txid.start),
                    false => mine.is_some_and(|mine| mine < txid),
                } || mutation::is(Mutation::PushLive);
                let holder = cx.holder(txid);
                self.is_finished |= holder == Holder::Replaced;
                let is_silent = self.asked.is_some_and(|asked| cx.now >= asked + SILENT_AFTER)
                    && !mutation::is(Mutation::WaitForSilent);
                if holder != Holder::Up {
                    base::sometimes!("a lock of a dead coordinator is pushed");
                }
                if is_older || is_silent || self.is_finished || holder != Holder::Up {
                    return Step::Push;
                }
                self.asked.get_or_insert(cx.now);
                let until = cx.now + self.pause;
                self.pause = (self.pause + self.pause).min(PAUSE_MAX);
                Step::AskAndWait(until)
            }
        }
    }
}
