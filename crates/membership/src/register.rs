//! A group's register as this node uses it: one operation at a time.

use base::Nanos;
use bytes::Bytes;
use types::wire::Wire as _;

use crate::group::{Cx, Group, Known};
use crate::io::{Effect, RegisterResult, Report};
use crate::mutation::{self, Mutation};
use crate::value::GroupValue;

/// After this long an operation without a result counts as unknown.
const GIVEN_UP_AFTER: Nanos = Nanos::from_secs(10);

const OUTCOME_UNKNOWN: &str = "the outcome is unknown: look at the configuration";

#[derive(Debug)]
pub(crate) struct Operation {
    token: u64,
    since: Nanos,
    /// The value that a swap would write, and its bytes.
    swap: Option<(Bytes, Box<GroupValue>)>,
    /// The swap is an operator's.
    pub(crate) is_ordered: bool,
}

impl Operation {
    pub(crate) fn age(&self, now: Nanos) -> Nanos {
        now.since(self.since)
    }
}

impl Group {
    /// Starts a read if one is wanted or due.
    pub(crate) fn read_if_due(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        let overdue = |operation: &mut Operation| operation.age(now) > GIVEN_UP_AFTER;
        if self.operation.take_if(overdue).is_some_and(|operation| operation.is_ordered) {
            self.refuse(cx, OUTCOME_UNKNOWN);
        }
        let last = self.read_at;
        let waited = cx.now.since(last);
        let behind = match self.known.value() {
            Some(value) => {
                !value.is_active() || self.installed.is_none_or(|(epoch, _)| epoch < value.epoch())
            }
            None => true,
        };
        let polls = behind && !mutation::is(Mutation::NoPolling);
        let due = polls && waited >= cx.settings.timing.suspect
            || self.wants_read && waited >= Nanos(cx.settings.timing.heartbeat.0 / 2)
            || last == Nanos::ZERO && self.wants_read;
        if due && self.operation.is_none() {
            let token = self.begin_operation(cx, None, false);
            (self.wants_read, self.read_at) = (false, cx.now);
            cx.out.push(Effect::ReadRegister { group: self.settings.group, token });
        }
    }

    fn begin_operation(
        &mut self,
        cx: &mut Cx<'_>,
        swap: Option<(Bytes, Box<GroupValue>)>,
        is_ordered: bool,
    ) -> u64 {
        *cx.tokens += 1;
        let token = *cx.tokens;
        self.operation = Some(Operation { token, since: cx.now, swap, is_ordered });
        token
    }

    /// Replaces the known value by `value`.
    pub(crate) fn swap(&mut self, cx: &mut Cx<'_>, value: GroupValue, is_ordered: bool) {
        let expected = match &self.known {
            Known::Value { raw, .. } => Some(raw.clone()),
            Known::Absent | Known::Unread => None,
        };
        let new = Bytes::from(value.to_bytes());
        let swap = Some((new.clone(), Box::new(value)));
        let token = self.begin_operation(cx, swap, is_ordered);
        let group = self.settings.group;
        cx.out.push(Effect::SwapRegister { group, token, expected, new });
    }

    pub(crate) fn on_register(&mut self, cx: &mut Cx<'_>, token: u64, result: RegisterResult) {
        let Some(operation) = self.operation.take_if(|one| one.token == token) else { return };
        match (result, operation.swap) {
            (RegisterResult::Read(value), _) => self.on_value(cx, value),
            (RegisterResult::Swapped { done: true, .. }, Some((raw, value))) => {
                self.on_swapped(cx, raw, *value, operation.is_ordered);
            }
            (RegisterResult::Swapped { value, .. }, _) => {
                if operation.is_ordered {
                    self.refuse(cx, "the configuration has changed meanwhile");
                }
                self.on_value(cx, value);
            }
            (RegisterResult::Unknown, Some((raw, value)))
                if mutation::is(Mutation::UnknownIsDone) =>
            {
                self.on_swapped(cx, raw, *value, operation.is_ordered);
            }
            (RegisterResult::Unknown, _) => {
                if operation.is_ordered {
                    self.refuse(cx, OUTCOME_UNKNOWN);
                }
                self.wants_read = true;
            }
        }
    }

    fn on_swapped(&mut self, cx: &mut Cx<'_>, raw: Bytes, value: GroupValue, is_ordered: bool) {
        if is_ordered {
            let (group, epoch) = (self.settings.group, value.epoch());
            cx.report(Report::Decreed { group, epoch });
        }
        // Without members it only tells the nodes to become empty: heartbeats spread it.
        if !value.is_active() && !value.members().is_empty() {
            self.propose(cx, value.epoch());
        }
        self.learn(cx, raw, value);
        self.drive(cx);
    }

    pub(crate) fn refuse(&self, cx: &mut Cx<'_>, reason: &'static str) {
        cx.report(Report::Refused { group: self.settings.group, reason });
    }

    /// Takes in the result of a linearizable read, or of a swap that failed.
    fn on_value(&mut self, cx: &mut Cx<'_>, raw: Option<Bytes>) {
        let value = match &raw {
            Some(raw) => match GroupValue::read(raw) {
                Ok(value) => Some(value),
                Err(_) => return self.complain(cx),
            },
            None => None,
        };
        let epoch = value.as_ref().map(GroupValue::epoch).unwrap_or_default();
        if epoch < self.record.promised {
            // Legal for a read that began before the promise, which needs no attention.
            self.wants_read = true;
            if !self.ready {
                self.complain(cx);
            }
            return;
        }
        let is_first = !self.ready;
        if is_first {
            self.ready = true;
            self.quarantine = self.quarantine_end(cx, value.as_ref());
        }
        match raw.zip(value) {
            Some((raw, value)) => {
                let is_known = epoch == self.record.promised;
                if is_first && is_known {
                    self.seal(cx);
                }
                if mutation::is(Mutation::RaiseWithoutSeal) && !is_known && !is_first {
                    return self.raise_without_seal(cx, raw, value);
                }
                self.learn(cx, raw, value);
            }
            None if matches!(self.known, Known::Unread) => {
                (self.known, self.known_since) = (Known::Absent, cx.now);
                self.settle_absent(cx);
            }
            None => {}
        }
        self.drive(cx);
    }

    /// Grants from before this start have ended then. Leases that may still hold are of the last
    /// active configuration.
    fn quarantine_end(&self, cx: &Cx<'_>, value: Option<&GroupValue>) -> Nanos {
        if mutation::is(Mutation::NoQuarantine) {
            return Nanos::ZERO;
        }
        if mutation::is(Mutation::QuarantineBySetting) {
            return self.started + cx.settings.timing.stretched(cx.settings.timing.lease);
        }
        let last = value.and_then(GroupValue::last_active);
        last.map_or(Nanos::ZERO, |last| self.started + cx.settings.timing.stretched(last.lease))
    }

    fn complain(&mut self, cx: &mut Cx<'_>) {
        if !std::mem::replace(&mut self.unreadable, true) {
            cx.report(Report::Unreadable { group: self.settings.group });
        }
    }
}
