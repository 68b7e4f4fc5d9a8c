//! Explanations: the record of each replica of a key, for people.
//!
//! An explanation asks every member with the messages of a quorum read. It decides and changes no
//! state.

use std::collections::BTreeMap;

use base::{Millis, checksum};
use types::explain::{Held, Record};
use types::{Key, NodeId, Outcome, Round, Tag};

use crate::explaining::{EXPLANATIONS_MAX, Explaining};
use crate::rmwpaxos::context::Cx;
use crate::rmwpaxos::core::instance::Core;
use crate::rmwpaxos::message::{Message, Report};
use crate::rmwpaxos::record::register::Countdown;

#[derive(Default, Debug)]
pub(crate) struct Explanations(BTreeMap<u64, Explaining>);

impl Explanations {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Explanations {
    pub(crate) fn on_request(&mut self, core: &mut Core, cx: &mut Cx<'_>, tag: Tag, key: Key) {
        if self.0.len() >= EXPLANATIONS_MAX {
            return core.reply(cx, tag, Outcome::NoQuorum);
        }
        let id = core.next_id();
        let mut round = Explaining::new(tag, key, cx.now, core.env().request_timeout);
        round.resend_at = cx.now + core.round_trip().resend_after(0);
        ask_missing(cx, id, &round);
        self.0.insert(id, round);
        core.arm_retries(cx);
    }

    /// Takes the answer of one member. False if no explanation has this id.
    pub(crate) fn on_report(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: NodeId,
        id: u64,
        report: &Report,
    ) -> bool {
        let Some(round) = self.0.get_mut(&id) else { return false };
        round.add(cx.replicas, from, held(report));
        if round.missing(cx.replicas).is_empty() {
            self.end(core, cx, id);
        }
        true
    }

    pub(crate) fn on_retry(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        let mut ended = Vec::new();
        for (&id, round) in &mut self.0 {
            if cx.now >= round.deadline {
                ended.push(id);
            } else if cx.now >= round.resend_at {
                round.resends += 1;
                round.resend_at = cx.now + core.round_trip().resend_after(round.resends);
                ask_missing(cx, id, round);
            }
        }
        for id in ended {
            self.end(core, cx, id);
        }
    }

    fn end(&mut self, core: &mut Core, cx: &mut Cx<'_>, id: u64) {
        if let Some(round) = self.0.remove(&id) {
            let shard = round.key.shard();
            let (tag, outcome) = round.end(cx.replicas_of(shard));
            core.reply(cx, tag, outcome);
        }
    }
}

fn ask_missing(cx: &mut Cx<'_>, id: u64, round: &Explaining) {
    for node in round.missing(cx.replicas_of(round.key.shard())) {
        cx.fx.send_now(node, Message::Read { key: round.key.clone(), id, have: Round::NONE });
    }
}

fn held(report: &Report) -> Held {
    let Some(state) = &report.state else { return Held::Absent };
    let rest = match report.countdown {
        Countdown::Running(rest) => Some(rest),
        Countdown::Over => Some(Millis(0)),
        Countdown::None => None,
    };
    Held::Present(Record {
        round: written(report.accepted),
        version: state.version(),
        is_tombstone: state.is_tombstone(),
        value_len: state.value().map_or(0, <[u8]>::len),
        checksum: checksum::hash(state.bytes()),
        rest,
    })
}

/// `NUMBER.NODE.START/K`: ballot number, proposer, start of the proposer, proposal under the
/// ballot.
fn written(round: Round) -> String {
    let ballot = round.ballot();
    format!("{}.{}.{}/{}", ballot.number(), ballot.node().0, ballot.incarnation().0, round.k())
}
