//! Linearizable registers, each a map entry.

use std::collections::BTreeMap;

use base::Millis;
use types::{
    Change, Clock, Command, Database, ExpiryChange, Found, Key, Lock, Locked, Once, Outcome, Reply,
    Then, TimeToLive, Update, View,
};

use crate::record::RecordUpdate;

/// Appends its body, one element of eight bytes, and replies with the whole value.
pub(super) struct Appending;

impl Update for Appending {
    fn apply(&self, view: View<'_>, body: &[u8], _clock: Clock) -> types::Applied {
        let value = bytes::Bytes::from([view.value.unwrap_or_default(), body].concat());
        let reply = Reply::Bulk(value.clone());
        types::Applied { change: Change::Put { value, expiry: ExpiryChange::Keep }, reply }
    }
}

#[derive(Clone, Default, Debug)]
pub(super) struct Register {
    pub(super) value: Option<bytes::Bytes>,
    pub(super) version: u64,
    mod_version: u64,
    pub(super) lock: Option<Lock>,
    /// By session.
    remembered: BTreeMap<bytes::Bytes, (u64, Reply)>,
}

#[derive(Clone, Default, Debug)]
pub(super) struct Registers {
    pub(super) all: BTreeMap<(Database, Key), Register>,
}

impl Registers {
    pub(super) fn is_locked(&self, database: Database, key: &Key) -> Option<Lock> {
        self.all.get(&(database, key.clone())).and_then(|it| it.lock.clone())
    }

    pub(super) fn version(&self, place: &(Database, Key)) -> u64 {
        self.all.get(place).map_or(0, |register| register.version)
    }

    pub(super) fn run(&mut self, database: Database, key: &Key, command: &Command) -> Outcome {
        let register = self.all.entry((database, key.clone())).or_default();
        register.run(database, command)
    }
}

impl Register {
    fn found(&self) -> Found {
        let (version, mod_version) = (self.version, self.mod_version);
        let mod_version = if self.value.is_some() { mod_version } else { 0 };
        Found {
            value: self.value.clone(),
            ttl: TimeToLive::Never,
            ends: None,
            version,
            mod_version,
            absent: None,
        }
    }

    fn run(&mut self, database: Database, command: &Command) -> Outcome {
        let hold = command.hold.clone().unwrap_or_default();
        if let Some(settle) = hold.settle
            && let Some(lock) = self.lock.clone().filter(|lock| lock.txid == settle.txid)
        {
            self.lock = None;
            self.version += 1;
            if lock.version == settle.version {
                self.change(settle.install);
                if let Some((once, reply)) = settle.once.map(|it| *it) {
                    let reply = reply.expect("it is short");
                    self.remembered.insert(once.session, (once.seq, reply));
                }
            }
        }
        match (hold.then, self.lock.clone()) {
            (Then::Run, _) if command.body.is_empty() => Outcome::Reply(Reply::OK),
            (Then::Run, None) => {
                let update: &dyn Update =
                    if database.is_of_users() { &Appending } else { &RecordUpdate };
                let clock = Clock { unix: Millis(0), seed: 0 };
                let view = View::fresh(self.value.as_deref(), TimeToLive::Never, Millis(0));
                let applied = update.apply(view, &command.body, clock);
                if applied.change != Change::None {
                    self.version += 1;
                    self.change(applied.change);
                }
                Outcome::Reply(applied.reply)
            }
            (Then::Look { .. }, None) => Outcome::Held(Box::new(self.found())),
            (Then::Take(take), Some(lock)) if lock.txid == take.txid => {
                Outcome::Held(Box::new(Found { version: lock.version, ..self.found() }))
            }
            (Then::Take(take), None) if self.seen(take.once.as_deref()).is_some() => {
                Outcome::Reply(self.seen(take.once.as_deref()).expect("it ran before"))
            }
            (Then::Take(take), None) => {
                self.version += 1;
                self.lock = Some(Lock {
                    txid: take.txid,
                    record: take.record,
                    version: self.version,
                    generation: take.generation,
                });
                Outcome::Held(Box::new(self.found()))
            }
            (_, Some(lock)) => Outcome::Locked(Box::new(Locked { lock, found: self.found() })),
        }
    }

    fn seen(&self, once: Option<&Once>) -> Option<Reply> {
        let once = once?;
        let (seq, reply) = self.remembered.get(&once.session)?;
        (*seq == once.seq).then(|| reply.clone())
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::None | Change::Expire(_) => return,
            Change::Put { value, .. } => self.value = Some(value),
            Change::Delete => self.value = None,
        }
        self.mod_version = self.version;
    }
}
