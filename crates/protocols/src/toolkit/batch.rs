//! The commands queued on a key, run in order on a state: one proposal.

use std::sync::Arc;

use base::Millis;
use bytes::Bytes;
use types::limits::{KEY_LEN_MAX, RECORD_LEN_MAX};
use types::{
    Change, Clock, Command, ExpiryChange, NodeId, Outcome, Reply, TimeToLive, Update, View,
};

use super::state::{Base, Expiry, ExpiryId, OpId, Registry, State, slot_of};

/// Bytes of a value. A register holds two while a proposal is in progress.
pub const VALUE_LEN_MAX: usize = (RECORD_LEN_MAX - KEY_LEN_MAX) / 2 - 1024;

/// The next state of a key, in progress.
#[derive(Debug)]
pub struct Batch<'a> {
    base: &'a Base,
    value: Option<Bytes>,
    expiry: Option<Built>,
    is_changed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Built {
    /// As the base has it.
    Kept {
        expiry: Expiry,
        rest: Option<Millis>,
    },
    New {
        ttl: TimeToLive,
        ends: Millis,
    },
}

impl<'a> Batch<'a> {
    /// Starts from a state; `rest` is the estimated rest of its time to live.
    #[must_use]
    pub fn on(base: &'a Base, rest: Option<Millis>) -> Batch<'a> {
        let expiry = base.as_ref().and_then(|state| state.expiry);
        Batch {
            base,
            value: base.as_ref().and_then(|state| state.value.clone()),
            expiry: expiry.map(|expiry| Built::Kept { expiry, rest }),
            is_changed: false,
        }
    }

    #[must_use]
    pub fn base(&self) -> &'a Base {
        self.base
    }

    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Deletes the value if it still has the deadline that a quorum found over.
    pub fn expire(&mut self, voted: ExpiryId) {
        if matches!(self.expiry, Some(Built::Kept { expiry, .. }) if expiry.id == voted) {
            self.change(None, None);
        }
    }

    /// Runs a command.
    pub fn run(&mut self, update: &dyn Update, command: &Command, clock: Clock) -> Outcome {
        let applied = update.apply(self.view(), &command.body, clock);
        match applied.change {
            Change::None => {}
            Change::Put { value, .. } if value.len() > VALUE_LEN_MAX => {
                return Outcome::Reply(Reply::error(format!(
                    "ERR the value is longer than the {VALUE_LEN_MAX} bytes that this protocol \
                     stores"
                )));
            }
            Change::Put { value, expiry } => {
                let expiry = self.built(expiry, clock);
                self.change(Some(value), expiry);
            }
            Change::Expire(expiry) => {
                let expiry = self.built(expiry, clock);
                self.change(self.value.clone(), expiry);
            }
            Change::Delete => self.change(None, None),
        }
        Outcome::Reply(applied.reply)
    }

    fn change(&mut self, value: Option<Bytes>, expiry: Option<Built>) {
        self.expiry = expiry.filter(|_| value.is_some());
        self.value = value;
        self.is_changed = true;
    }

    fn built(&self, change: ExpiryChange, clock: Clock) -> Option<Built> {
        match change {
            ExpiryChange::Keep => self.expiry,
            ExpiryChange::Set(ttl) => ttl.ends(clock.unix).map(|ends| Built::New { ttl, ends }),
        }
    }

    fn view(&self) -> View<'_> {
        let (ttl, ends) = match self.expiry {
            None => (TimeToLive::Never, None),
            Some(Built::New { ttl, ends }) => (ttl, Some(ends)),
            Some(Built::Kept { expiry, rest }) => {
                let ttl = match (expiry.ttl, rest) {
                    // It exists until a quorum says otherwise, so some of its time is left.
                    (TimeToLive::After(_), Some(rest)) => TimeToLive::After(Millis(rest.0.max(1))),
                    (ttl, _) => ttl,
                };
                (ttl, Some(expiry.ends))
            }
        };
        View { value: self.value.as_deref(), ttl, ends }
    }

    /// The state of the next slot, decided by this operation.
    #[must_use]
    pub fn finish(self, op: OpId, is_node: impl Fn(NodeId) -> bool) -> Arc<State> {
        let slot = slot_of(self.base) + 1;
        let mut done = self.base.as_ref().map_or_else(Registry::default, |it| it.done.clone());
        done.note(op, is_node);
        let expiry = self.expiry.map(|built| match built {
            Built::Kept { expiry, .. } => expiry,
            Built::New { ttl, ends } => Expiry { id: ExpiryId { slot, op }, ttl, ends },
        });
        Arc::new(State { slot, op, done, expiry, value: self.value })
    }
}
