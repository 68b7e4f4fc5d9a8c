//! A record that stays: its coordinator is gone, or gave up. Its keys are settled, and it is
//! forgotten. \[T14\]

use std::collections::BTreeSet;

use types::{Access, Command, Key, Outcome, Reader, Then, Txid, Wire};

use crate::mutation::{self, Mutation};
use crate::record::{self, Entry, Record};
use crate::service::{Cx, Holder, Requests};

type Out = Requests<Purpose>;

/// The use of a request to a register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    Read,
    Settle(Key),
    Forget,
}

#[derive(Clone, Debug)]
pub(crate) struct Patrol {
    record: Key,
    txid: Txid,
    /// Keys of the commit that are being settled.
    left: BTreeSet<Key>,
    /// One of them could not be settled now.
    has_failed: bool,
    is_aborted: bool,
    /// If its coordinator lived, it would have forgotten the record.
    is_old: bool,
}

impl Patrol {
    /// `None` for a key that is none of a record.
    pub(crate) fn new(record: Key, is_old: bool) -> Option<Patrol> {
        let txid = Txid::decode(&mut Reader::new(record.bytes().get(1..)?)).ok()?;
        let left = BTreeSet::new();
        Some(Patrol { record, txid, left, has_failed: false, is_aborted: false, is_old })
    }

    pub(crate) fn start(&self, out: &mut Out) {
        out.run_hidden(Purpose::Read, self.record.clone(), record::read());
    }

    /// True once it has no more to do now.
    pub(crate) fn on_outcome(
        &mut self,
        cx: &Cx<'_>,
        purpose: Purpose,
        outcome: Outcome,
        out: &mut Out,
    ) -> bool {
        match (purpose, outcome) {
            (Purpose::Read, Outcome::Reply(held)) => match record::shown(&held) {
                Ok(Some(Record::Committed(entries))) => self.settle(entries, out),
                Ok(Some(Record::Aborted)) => return self.on_aborted(cx, out),
                Ok(None) | Err(_) => return true,
            },
            (Purpose::Settle(key), outcome) => {
                let is_settled = matches!(outcome, Outcome::Held(_) | Outcome::Locked(_));
                self.has_failed |= !is_settled;
                self.left.remove(&key);
                if self.left.is_empty() {
                    return self.forget_committed(out);
                }
            }
            (Purpose::Read | Purpose::Forget, _) => return true,
        }
        false
    }

    fn settle(&mut self, entries: Vec<Entry>, out: &mut Out) {
        let txid = self.txid;
        for entry in entries {
            let (settle, key) = (entry.settle(txid), entry.key);
            let command = Command::holding(Access::Update, Then::Look { waits: false });
            out.run(Purpose::Settle(key.clone()), key.clone(), command.after(settle));
            self.left.insert(key);
        }
    }

    /// Each key was seen without this lock.
    fn forget_committed(&self, out: &mut Out) -> bool {
        if self.has_failed && !mutation::is(Mutation::ForgetBeforeSettled) {
            return true;
        }
        let command = record::forget(&Record::Committed(Vec::new()));
        out.run_hidden(Purpose::Forget, self.record.clone(), command);
        false
    }

    /// It stays for as long as its coordinator may commit. \[T1, T2\]
    fn on_aborted(&mut self, cx: &Cx<'_>, out: &mut Out) -> bool {
        self.is_aborted = true;
        match cx.holder(self.txid) {
            Holder::Replaced => self.forget_aborted(out),
            Holder::Up => out.ask(self.txid),
            Holder::Gone if self.is_old => return self.forget_fenced(out),
            Holder::Gone | Holder::Away => return true,
        }
        false
    }

    fn forget_aborted(&self, out: &mut Out) {
        base::sometimes!("an aborted record that stayed is forgotten");
        out.run_hidden(Purpose::Forget, self.record.clone(), record::forget(&Record::Aborted));
    }

    /// Its coordinator may live, cut off from here: its incarnation is shut out. True if it cannot
    /// be.
    fn forget_fenced(&self, out: &mut Out) -> bool {
        let Some(command) = record::forget_fenced(self.txid) else { return true };
        base::sometimes!("the record of a silent coordinator is forgotten");
        out.run_hidden(Purpose::Forget, self.record.clone(), command);
        false
    }

    /// Its coordinator's word.
    pub(crate) fn on_finished(&mut self, txid: Txid, out: &mut Out) {
        if self.txid == txid && self.is_aborted {
            self.is_aborted = false;
            self.forget_aborted(out);
        }
    }
}
