//! The reports of this protocol in pages and explanations.

use std::collections::BTreeMap;

use base::checksum;
use types::Key;
use types::explain::{Held, Record};

use super::machine::Cx;
use super::message::{Body, Message};
use super::register::{Register, Report};
use super::reports::highest;
use crate::replicas::{Places, ReplicaSet};
use crate::toolkit::countdown::Countdown;
use crate::toolkit::pager::{PageMessage, Paged, Presence};

impl Paged for Report {
    type Record = Register;
    type Message = Message;
    type Found = Report;

    fn of(register: &Register, cx: &Cx<'_>) -> Report {
        register.report(cx.uptime, cx.unix)
    }

    fn without_values(&self) -> Report {
        self.without_values()
    }

    fn value_len(register: &Register) -> usize {
        register.state.as_ref().map_or(0, |state| state.value_len())
    }

    fn found(set: &ReplicaSet, counted: Places, at: &BTreeMap<usize, Report>) -> Option<Report> {
        let it = highest(set, counted, at).filter(|it| it.is_chosen)?;
        let (promised, ballot, state) = (it.promised, it.ballot, it.state);
        Some(Report { promised, ballot, state, countdown: None })
    }

    fn presence(set: &ReplicaSet, counted: Places, at: &BTreeMap<usize, Report>) -> Presence {
        let is_over = at.values().any(|report| report.countdown == Some(Countdown::Over));
        let Some(it) = highest(set, counted, at).filter(|it| it.is_chosen) else {
            return Presence::Undecided;
        };
        match it.state.filter(|state| state.value.is_some()) {
            // A read of it has a quorum decide whether its time is over.
            Some(state) if state.expiry.is_some() && is_over => Presence::Undecided,
            Some(_) => Presence::Present,
            None => Presence::Absent,
        }
    }

    fn message(message: PageMessage<Report>) -> Message {
        Message::Paging(message)
    }

    fn read(key: Key) -> Message {
        Message::About { id: 0, key, body: Body::Read }
    }

    fn recover(walk: u64, key: Key, found: Option<Report>) -> Message {
        Message::About { id: walk, key, body: Body::Recover { found } }
    }
}

/// The vote of a replica, for people.
pub(super) fn held(report: &Report) -> Held {
    let Some(state) = &report.state else { return Held::Absent };
    let value: &[u8] = state.value.as_deref().unwrap_or_default();
    Held::Present(Record {
        round: format!("{}.{}", report.ballot.number, report.ballot.writer.0),
        version: state.slot,
        is_tombstone: state.value.is_none(),
        value_len: value.len(),
        checksum: checksum::hash(value),
        rest: report.countdown.and_then(Countdown::rest),
    })
}
