//! A key whose commands wait for the end of a transaction.

use base::Nanos;
use types::{Access, Command, Key, Lock, Outcome, Settle, Then, Txid};

use crate::conflict::{Conflict, Step};
use crate::coordinator::record_in;
use crate::record::{self, Record};
use crate::service::{Cx, Requests};

type Out = Requests<Purpose>;

/// Pause before a register that did not answer is asked again.
const PAUSE: Nanos = Nanos::from_millis(20);

/// What a request to a register is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    ReadRecord,
    Push,
    /// Settles the key, or looks whether the lock is still there. Waiting commands run where it is
    /// not.
    Look,
    Forget,
}

#[derive(Debug)]
pub(crate) struct Resolver {
    key: Key,
    conflict: Conflict,
}

impl Resolver {
    pub(crate) fn new(key: Key, lock: Lock, now: Nanos) -> Resolver {
        Resolver { key, conflict: Conflict::new(lock, now) }
    }

    pub(crate) fn start(&self, out: &mut Out) {
        out.run_hidden(Purpose::ReadRecord, self.record(), record::read());
    }

    fn record(&self) -> Key {
        record::key_of(&self.conflict.lock.record)
    }

    fn look(&self, settle: Option<Settle>, out: &mut Out) {
        let command = Command::holding(Access::Read, Then::Look);
        let command = match settle {
            Some(settle) => command.after(settle),
            None => command,
        };
        out.run(Purpose::Look, self.key.clone(), command);
    }

    /// True once no lock stands in the way.
    pub(crate) fn on_outcome(
        &mut self,
        cx: &Cx<'_>,
        purpose: Purpose,
        outcome: Outcome,
        out: &mut Out,
    ) -> bool {
        match (purpose, outcome) {
            (Purpose::ReadRecord | Purpose::Push, outcome) => match record_in(&outcome) {
                Some(shown) => self.on_record(cx, shown.as_ref(), out),
                None => out.wake(cx.now + PAUSE, None),
            },
            (Purpose::Look, Outcome::Held(_)) => {
                if !self.conflict.may_forget() {
                    return true;
                }
                let command = record::forget(&Record::Aborted);
                out.run_hidden(Purpose::Forget, self.record(), command);
            }
            (Purpose::Look, Outcome::Locked(locked)) => {
                self.conflict.meet(locked.lock, cx.now);
                self.start(out);
            }
            (Purpose::Look, _) => out.wake(cx.now + PAUSE, None),
            // The patrol comes to what stays.
            (Purpose::Forget, _) => return true,
        }
        false
    }

    fn on_record(&mut self, cx: &Cx<'_>, shown: Option<&Record>, out: &mut Out) {
        match self.conflict.on_record(cx, &self.key, shown, None) {
            Step::Settle(settle) => self.look(Some(settle), out),
            Step::Push => {
                let command = record::decide(&Record::Aborted);
                out.run_hidden(Purpose::Push, self.record(), command);
            }
            Step::AskAndWait(until) => {
                out.ask(self.conflict.lock.txid, self.record());
                out.wake(until, None);
            }
        }
    }

    pub(crate) fn on_timer(&self, out: &mut Out) {
        self.look(None, out);
    }

    pub(crate) fn on_status(&mut self, now: Nanos, txid: Txid, is_alive: bool) {
        if self.conflict.lock.txid == txid {
            match is_alive {
                true => self.conflict.on_alive(now),
                false => self.conflict.on_finished(),
            }
        }
    }
}
