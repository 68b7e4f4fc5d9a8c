//! A batch of commands run in order on one state: one transition, however many commands.

use std::sync::Arc;

use base::Millis;
use bytes::Bytes;
use types::{Ballot, Change, Clock, ExpiryChange, TimeToLive, Update, View};

use super::state::{Expiry, ExpiryId, Ring, State};

/// The state that a batch is making.
#[derive(Debug)]
pub struct Draft {
    value: Option<Bytes>,
    expiry: DraftExpiry,
    value_changed: bool,
    expiry_changed: bool,
}

#[derive(Clone, Copy, Debug)]
enum DraftExpiry {
    None,
    /// As the base has it.
    Kept {
        expiry: Expiry,
        rest: Option<Millis>,
    },
    /// Set by this batch.
    New(TimeToLive),
}

impl Draft {
    /// Starts from `base`; `rest` is the estimated rest of its time to live.
    #[must_use]
    pub fn on(base: Option<&State>, rest: Option<Millis>) -> Draft {
        let expiry = base.and_then(|state| state.expiry);
        Draft {
            value: base.and_then(|state| state.value.clone()),
            expiry: expiry.map_or(DraftExpiry::None, |expiry| DraftExpiry::Kept { expiry, rest }),
            value_changed: false,
            expiry_changed: false,
        }
    }

    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.value_changed || self.expiry_changed
    }

    fn view(&self) -> View<'_> {
        let ttl = match (&self.value, self.expiry) {
            (None, _) | (_, DraftExpiry::None) => TimeToLive::Never,
            (_, DraftExpiry::New(ttl)) => ttl,
            (_, DraftExpiry::Kept { expiry, rest }) => match (expiry.ttl, rest) {
                // It is there until a quorum says otherwise, so some of its time is left.
                (TimeToLive::After(_), Some(rest)) => TimeToLive::After(Millis(rest.0.max(1))),
                (ttl, _) => ttl,
            },
        };
        View { value: self.value.as_deref(), ttl }
    }

    /// Runs a command. Returns its reply and whether it changed anything.
    pub fn run(&mut self, update: &dyn Update, body: &[u8], clock: Clock) -> (Bytes, bool) {
        let applied = update.apply(self.view(), body, clock);
        let changes = applied.change != Change::None;
        match applied.change {
            Change::None => {}
            Change::Put { value, expiry } => {
                self.value = Some(value);
                self.value_changed = true;
                self.set_expiry(expiry);
            }
            Change::Expire(expiry) => self.set_expiry(expiry),
            Change::Delete => self.delete(),
        }
        (applied.reply, changes)
    }

    fn set_expiry(&mut self, change: ExpiryChange) {
        let ExpiryChange::Set(ttl) = change else { return };
        self.expiry_changed = true;
        self.expiry = match ttl {
            TimeToLive::Never => DraftExpiry::None,
            ttl => DraftExpiry::New(ttl),
        };
    }

    fn delete(&mut self) {
        self.value = None;
        self.value_changed = true;
        self.expiry = DraftExpiry::None;
    }

    /// Deletes the value if it still is the one whose expiry was voted on. [corrections F10]
    pub fn expire(&mut self, id: ExpiryId) -> bool {
        match self.expiry {
            DraftExpiry::Kept { expiry, .. } if expiry.id == id => {
                self.delete();
                true
            }
            _ => false,
        }
    }

    /// The next state of the chain, born under `birth`.
    #[must_use]
    pub fn finish(self, base: Option<&State>, base_version: u64, birth: Ballot) -> Arc<State> {
        let version = base_version + 1;
        let mut ring = base.map_or_else(Ring::default, |state| state.ring);
        ring.push(birth);
        let mod_version = match base {
            Some(state) if !self.value_changed => state.mod_version,
            _ => version,
        };
        let expiry = match self.expiry {
            _ if self.value.is_none() => None,
            DraftExpiry::None => None,
            DraftExpiry::Kept { expiry, .. } => Some(expiry),
            DraftExpiry::New(ttl) => Some(Expiry { id: ExpiryId { version, birth }, ttl }),
        };
        Arc::new(State { version, mod_version, ring, expiry, value: self.value })
    }
}

/// What decides an absent register without changing anything: a tombstone at its version floor.
#[must_use]
pub fn nil(version: u64) -> Arc<State> {
    Arc::new(State {
        version,
        mod_version: version,
        ring: Ring::default(),
        expiry: None,
        value: None,
    })
}
