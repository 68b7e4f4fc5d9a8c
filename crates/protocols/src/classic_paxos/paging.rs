//! Pages of registers, for listings and recovery: the reports of this protocol.

use std::collections::BTreeMap;

use types::Key;

use super::machine::Cx;
use super::message::{Body, Message};
use super::register::{Register, Report};
use super::reports::{Decision, decide};
use crate::replicas::{Places, ReplicaSet};
use crate::toolkit::countdown::Countdown;
use crate::toolkit::pager::{PageMessage, Paged, Presence};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::Base;

impl Paged for Report {
    type Record = Register;
    type Message = Message;
    type Found = (Base, Stamp);

    fn of(register: &Register, cx: &Cx<'_>) -> Report {
        register.report(cx.uptime, cx.unix)
    }

    fn without_values(&self) -> Report {
        self.without_values()
    }

    fn value_len(register: &Register) -> usize {
        register.value_len()
    }

    fn found(
        set: &ReplicaSet,
        counted: Places,
        at: &BTreeMap<usize, Report>,
    ) -> Option<(Base, Stamp)> {
        match decide(set, counted, |index| at.get(&index)) {
            Decision::Decided { base, promised } => Some((base, promised)),
            Decision::Undecided { .. } | Decision::Wait => None,
        }
    }

    fn presence(set: &ReplicaSet, counted: Places, at: &BTreeMap<usize, Report>) -> Presence {
        let is_over = at.values().any(|report| report.countdown == Countdown::Over);
        match decide(set, counted, |index| at.get(&index)) {
            Decision::Decided { base, .. } => match base.filter(|state| state.value.is_some()) {
                // A read of it has a quorum decide whether its time is over.
                Some(state) if state.expiry.is_some() && is_over => Presence::Undecided,
                Some(_) => Presence::Present,
                None => Presence::Absent,
            },
            Decision::Undecided { .. } | Decision::Wait => Presence::Undecided,
        }
    }

    fn message(message: PageMessage<Report>) -> Message {
        Message::Paging(message)
    }

    fn read(key: Key) -> Message {
        Message::About { id: 0, key, body: Body::Read }
    }

    fn recover(walk: u64, key: Key, found: Option<(Base, Stamp)>) -> Message {
        Message::About { id: walk, key, body: Body::Recover { found } }
    }
}
