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

/// The use of a request to a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    ReadRecord,
    Push,
    /// Settles the key, or looks whether the lock is still there. Waiting commands run where it is
    /// not.
    Look,
    Forget,
}

#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    key: Key,
    conflict: Conflict,
    /// Commands met a lock after the last look was sent.
    again: bool,
}

impl Resolver {
    pub(crate) fn new(key: Key, lock: Lock) -> Resolver {
        Resolver { key, conflict: Conflict::new(lock), again: false }
    }

    /// See [`Conflict::shift`].
    #[cfg(test)]
    pub(crate) fn shift(&mut self, span: Nanos, now: Nanos) {
        self.conflict.shift(span, now);
    }

    pub(crate) fn start(&self, out: &mut Out) {
        out.run_hidden(Purpose::ReadRecord, self.record(), record::read());
    }

    fn record(&self) -> Key {
        record::key_of(&self.conflict.lock.record)
    }

    /// Commands met a lock again.
    pub(crate) fn on_locked(&mut self) {
        self.again = true;
    }

    fn look(&mut self, settle: Option<Settle>, out: &mut Out) {
        self.again = false;
        let command = Command::holding(Access::Read, Then::Look { waits: false });
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
                    return self.ends(out);
                }
                let command = record::forget(&Record::Aborted);
                out.run_hidden(Purpose::Forget, self.record(), command);
            }
            (Purpose::Look, Outcome::Locked(locked)) => {
                self.conflict.meet(locked.lock);
                self.start(out);
            }
            (Purpose::Look, _) => out.wake(cx.now + PAUSE, None),
            (Purpose::Forget, _) => return self.ends(out),
        }
        false
    }

    /// True unless commands met a lock since the last look.
    fn ends(&mut self, out: &mut Out) -> bool {
        let ends = !self.again;
        if self.again {
            base::sometimes!("commands meet a lock while another one ends");
            self.look(None, out);
        }
        ends
    }

    fn on_record(&mut self, cx: &Cx<'_>, shown: Option<&Record>, out: &mut Out) {
        match self.conflict.on_record(cx, &self.key, shown, None) {
            Step::Settle(settle) => self.look(Some(settle), out),
            Step::Push => {
                let command = record::decide(&Record::Aborted);
                out.run_hidden(Purpose::Push, self.record(), command);
            }
            Step::AskAndWait(until) => {
                out.ask(self.conflict.lock.txid);
                out.wake(until, None);
            }
        }
    }

    pub(crate) fn on_timer(&mut self, out: &mut Out) {
        self.look(None, out);
    }

    pub(crate) fn on_status(&mut self, txid: Txid, is_alive: bool) {
        if self.conflict.lock.txid == txid {
            match is_alive {
                true => self.conflict.on_alive(),
                false => self.conflict.on_finished(),
            }
        }
    }
}
