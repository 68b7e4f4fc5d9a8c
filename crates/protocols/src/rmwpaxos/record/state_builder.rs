//! A batch of commands run in order on one state: one transition, however many commands.

use std::borrow::Cow;

use base::Millis;
use bytes::Bytes;
use types::{
    Ballot, Change, Clock, Command, ExpiryChange, Found, Lock, Locked, Once, Outcome, Reply,
    Settle, Take, Then, TimeToLive, Update, View,
};

use crate::mutation::{self, Mutation};
use crate::rmwpaxos::once::table::{EntryId, Seen, Table};
use crate::rmwpaxos::record::state::{Expiry, ExpiryId, LockFields, Ring, State, StateFields};

/// The next state of a batch in progress.
#[derive(Debug)]
pub struct StateBuilder<'a> {
    base: Option<&'a State>,
    /// Set by this batch; `None` inside: deleted by it.
    value: Option<Option<Bytes>>,
    expiry: BuiltExpiry,
    expiry_changed: bool,
    /// The table of commands that are safe to repeat, decoded on first use.
    table: Option<Table<'a>>,
    table_changed: bool,
    base_version: u64,
    lock: BuiltLock,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum BuiltLock {
    /// As the base has it.
    Kept,
    Cleared,
    Taken(Take),
}

#[derive(Clone, Copy, Debug)]
enum BuiltExpiry {
    None,
    /// As the base has it.
    Kept {
        expiry: Expiry,
        rest: Option<Millis>,
    },
    /// Set by this batch.
    New {
        ttl: TimeToLive,
        ends: Millis,
    },
}

impl<'a> StateBuilder<'a> {
    /// Starts from `base`; `rest` is the estimated rest of its time to live.
    #[must_use]
    pub fn on(base: Option<&'a State>, rest: Option<Millis>) -> StateBuilder<'a> {
        let expiry = base.and_then(State::expiry);
        StateBuilder {
            base,
            value: None,
            expiry: expiry.map_or(BuiltExpiry::None, |expiry| BuiltExpiry::Kept { expiry, rest }),
            expiry_changed: false,
            table: None,
            table_changed: false,
            base_version: base.map_or(0, State::version),
            lock: BuiltLock::Kept,
        }
    }

    /// The version of an absent base: its floor.
    pub fn set_base_version(&mut self, version: u64) {
        self.base_version = version;
    }

    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.value.is_some()
            || self.expiry_changed
            || self.table_changed
            || self.lock != BuiltLock::Kept
    }

    /// It changes the value or its time to live.
    fn modifies(&self) -> bool {
        self.value.is_some() || self.expiry_changed
    }

    fn value(&self) -> Option<&[u8]> {
        match &self.value {
            Some(changed) => changed.as_deref(),
            None => self.base.and_then(State::value),
        }
    }

    fn view(&self) -> View<'_> {
        let value = self.value();
        let (ttl, ends) = match (value, self.expiry) {
            (None, _) | (_, BuiltExpiry::None) => (TimeToLive::Never, None),
            (_, BuiltExpiry::New { ttl, ends }) => (ttl, Some(ends)),
            (_, BuiltExpiry::Kept { expiry, rest }) => {
                let ttl = match (expiry.ttl, rest) {
                    // It exists until a quorum says otherwise, so some of its time is left.
                    (TimeToLive::After(_), Some(rest)) => TimeToLive::After(Millis(rest.0.max(1))),
                    (ttl, _) => ttl,
                };
                (ttl, Some(expiry.ends))
            }
        };
        View { value, ttl, ends }
    }

    /// Runs a command. Returns its outcome and whether it changed anything.
    ///
    /// A command that meets a lock has no effect, whether it is about locks or not.
    pub fn run(&mut self, update: &dyn Update, command: &Command, clock: Clock) -> (Outcome, bool) {
        let Some(hold) = &command.hold else { return self.run_free(update, command, clock) };
        let settles = hold.settle.as_ref().is_some_and(|settle| self.settle(settle, clock));
        let (outcome, changes) = match &hold.then {
            Then::Run if command.body.is_empty() => (Outcome::Reply(Reply::OK), false),
            Then::Run => self.run_free(update, command, clock),
            Then::Take(take) => self.take(take),
            Then::Look { .. } => match self.lock() {
                Some(lock) => (self.locked(lock), false),
                None => (Outcome::Held(Box::new(self.found())), false),
            },
        };
        (outcome, settles || changes)
    }

    /// Ends the hold that a command ends before it takes the key. True if there was one. The
    /// command is still to be run.
    pub fn settle_before_take(&mut self, command: &Command, clock: Clock) -> bool {
        let Some(hold) = &command.hold else { return false };
        let settle = hold.settle.as_ref().filter(|_| matches!(hold.then, Then::Take(_)));
        settle.is_some_and(|settle| self.settle(settle, clock))
    }

    /// Runs a command, unless a transaction holds the key.
    fn run_free(
        &mut self,
        update: &dyn Update,
        command: &Command,
        clock: Clock,
    ) -> (Outcome, bool) {
        if self.is_locked()
            && let Some(lock) = self.lock()
        {
            return (self.locked(lock), false);
        }
        match &command.once {
            None => {
                let (reply, changes) = self.apply(update, &command.body, clock);
                (Outcome::Reply(reply), changes)
            }
            Some(once) => self.run_once(update, once, &command.body, clock),
        }
    }

    pub(crate) fn is_locked(&self) -> bool {
        match self.lock {
            BuiltLock::Kept => self.base.is_some_and(State::has_lock),
            BuiltLock::Cleared => false,
            BuiltLock::Taken(_) => true,
        }
    }

    /// The hold on the state as built so far.
    pub(crate) fn lock(&self) -> Option<Lock> {
        let (txid, record, version, generation) = match &self.lock {
            BuiltLock::Cleared => return None,
            BuiltLock::Taken(take) => {
                (take.txid, take.record.clone(), self.base_version + 1, take.generation)
            }
            BuiltLock::Kept => {
                let lock = self.base.and_then(State::lock)?;
                (lock.txid, Bytes::copy_from_slice(lock.record), lock.version, lock.generation)
            }
        };
        Some(Lock { txid, record, version, generation })
    }

    fn locked(&self, lock: Lock) -> Outcome {
        Outcome::Locked(Box::new(Locked { lock, found: self.found() }))
    }

    fn found(&self) -> Found {
        let View { value, ttl, ends } = self.view();
        let version = self.base_version + u64::from(self.is_changed());
        let mod_version = match (value, self.base) {
            (None, _) => 0,
            (_, Some(base)) if !self.modifies() => base.mod_version(),
            _ => version,
        };
        let value = value.map(Bytes::copy_from_slice);
        Found { value, ttl, ends, version, mod_version, absent: None }
    }

    /// Ends the hold of a transaction. True if it held the key.
    fn settle(&mut self, settle: &Settle, clock: Clock) -> bool {
        let Some(lock) = self.lock().filter(|lock| lock.txid == settle.txid) else { return false };
        self.lock = BuiltLock::Cleared;
        if lock.version == settle.version {
            self.change(settle.install.clone(), clock);
            if let Some((once, reply)) = settle.once.as_deref() {
                self.table().remember(once, reply.as_ref());
                self.table_changed = true;
            }
        }
        true
    }

    fn take(&mut self, take: &Take) -> (Outcome, bool) {
        let (version, changes) = match self.lock() {
            Some(lock) if lock.txid == take.txid => (lock.version, false),
            Some(lock) => return (self.locked(lock), false),
            None => {
                match take.once.as_deref().map(|once| self.table().look(once)) {
                    Some(Seen::Before(outcome)) => return (outcome, false),
                    Some(Seen::Refused(refusal)) => return (Outcome::Refused(refusal), false),
                    Some(Seen::New) | None => {}
                }
                self.lock = BuiltLock::Taken(take.clone());
                (self.base_version + 1, true)
            }
        };
        (Outcome::Held(Box::new(Found { version, ..self.found() })), changes)
    }

    /// Runs a command unless it ran before. Remembers it even without an effect, since a copy that
    /// is still in flight must not have one either. [corrections F2]
    fn run_once(
        &mut self,
        update: &dyn Update,
        once: &Once,
        body: &[u8],
        clock: Clock,
    ) -> (Outcome, bool) {
        match self.table().look(once) {
            Seen::Before(outcome) => (outcome, false),
            Seen::Refused(refusal) => (Outcome::Refused(refusal), false),
            Seen::New => {
                let (reply, changes) = self.apply(update, body, clock);
                let is_kept = changes || !mutation::is(Mutation::OnceForgetsNoOps);
                if is_kept {
                    self.table().remember(once, Some(&reply));
                    self.table_changed = true;
                }
                (Outcome::Reply(reply), is_kept)
            }
        }
    }

    fn table(&mut self) -> &mut Table<'a> {
        let base = self.base;
        self.table.get_or_insert_with(|| Table::of(base.and_then(State::once)))
    }

    /// Drops entries whose windows a majority has found over.
    pub fn drop_over(&mut self, over: &[EntryId]) {
        if !over.is_empty() {
            self.table_changed |= self.table().drop_over(over);
        }
    }

    /// The same for a run without a proposal: the state stays as it is.
    pub fn ignore_over(&mut self, over: &[EntryId]) {
        if !over.is_empty() {
            self.table().drop_over(over);
        }
    }

    fn apply(&mut self, update: &dyn Update, body: &[u8], clock: Clock) -> (Reply, bool) {
        let applied = update.apply(self.view(), body, clock);
        let changes = applied.change != Change::None;
        self.change(applied.change, clock);
        (applied.reply, changes)
    }

    fn change(&mut self, change: Change, clock: Clock) {
        match change {
            Change::None => {}
            Change::Put { value, expiry } => {
                self.value = Some(Some(value));
                self.set_expiry(expiry, clock);
            }
            Change::Expire(expiry) => self.set_expiry(expiry, clock),
            Change::Delete => self.delete(),
        }
    }

    fn set_expiry(&mut self, change: ExpiryChange, clock: Clock) {
        let ExpiryChange::Set(ttl) = change else { return };
        self.expiry_changed = true;
        self.expiry = match ttl.ends(clock.unix) {
            None => BuiltExpiry::None,
            Some(ends) => BuiltExpiry::New { ttl, ends },
        };
    }

    fn delete(&mut self) {
        self.value = Some(None);
        self.expiry = BuiltExpiry::None;
        if mutation::is(Mutation::OnceLostOnDelete) {
            self.table = Some(Table::default());
            self.table_changed = true;
        }
    }

    /// Deletes the value if it still is the one whose expiry was voted on. [corrections F10]
    /// A key that a transaction holds does not expire before its end.
    pub fn expire(&mut self, id: ExpiryId) -> bool {
        if self.is_locked() {
            return false;
        }
        match self.expiry {
            BuiltExpiry::Kept { expiry, .. } if expiry.id == id => {
                self.delete();
                true
            }
            _ => false,
        }
    }

    /// The next state of the chain, born under `birth`.
    #[must_use]
    pub fn finish(&self, base_version: u64, birth: Ballot) -> State {
        let version = base_version + 1;
        let mut ring = self.base.map_or_else(Ring::default, State::ring);
        ring.push(birth);
        let mod_version = match self.base {
            Some(state) if !self.modifies() => state.mod_version(),
            _ => version,
        };
        let value = self.value();
        let expiry = match self.expiry {
            _ if value.is_none() => None,
            BuiltExpiry::None => None,
            BuiltExpiry::Kept { expiry, .. } => Some(expiry),
            BuiltExpiry::New { ttl, ends } => {
                Some(Expiry { id: ExpiryId { version, birth }, ttl, ends })
            }
        };
        let table = match &self.table {
            Some(table) if self.table_changed => table.encode(version, birth).map(Cow::Owned),
            _ => self.base.and_then(State::once).map(Cow::Borrowed),
        };
        let once = table.as_deref();
        let lock = match &self.lock {
            BuiltLock::Kept => self.base.and_then(State::lock),
            BuiltLock::Cleared => None,
            BuiltLock::Taken(take) => Some(LockFields {
                txid: take.txid,
                record: &take.record,
                version,
                generation: take.generation,
            }),
        };
        State::new(&StateFields { version, mod_version, ring, expiry, once, lock, value })
    }
}

/// The state that decides an absent register without a change: a tombstone at its version floor.
#[must_use]
pub fn nil(version: u64) -> State {
    State::new(&StateFields {
        version,
        mod_version: version,
        ring: Ring::default(),
        expiry: None,
        once: None,
        lock: None,
        value: None,
    })
}
