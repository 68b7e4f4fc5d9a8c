//! Explanations: the record of each replica of a key, for people.

use base::checksum;
use types::explain::{Held, Record};
use types::{Key, Outcome, Tag};

use super::machine::{Alarm, Cx, Machine};
use super::message::{Body, Message};
use super::register::Report;
use crate::explaining::{EXPLANATIONS_MAX, Explaining};
use crate::protocol::Peer;
use crate::toolkit::back_off::RESEND_FIRST;

impl Machine {
    pub(super) fn on_explain(&mut self, cx: &mut Cx<'_>, tag: Tag, key: Key) {
        if self.explaining.len() >= EXPLANATIONS_MAX {
            return cx.fx.reply(tag, Outcome::NoQuorum);
        }
        let id = self.next_id();
        let round = Explaining::new(tag, key, cx.now, self.env.request_timeout);
        self.ask_again(cx, id, &round);
        self.explaining.insert(id, round);
    }

    /// Takes the answer of one member. False if no explanation has this id.
    pub(super) fn on_explained(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        id: u64,
        report: &Report,
    ) -> bool {
        let Some(round) = self.explaining.get_mut(&id) else { return false };
        round.add(cx.replicas, from.node, held(report));
        if round.missing(cx.replicas).is_empty() {
            self.end_explanation(cx, id);
        }
        true
    }

    pub(super) fn on_explanation_due(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(round) = self.explaining.remove(&id) else { return };
        cx.about(round.key.shard());
        if cx.now < round.deadline {
            self.ask_again(cx, id, &round);
            self.explaining.insert(id, round);
            return;
        }
        self.explaining.insert(id, round);
        self.end_explanation(cx, id);
    }

    fn ask_again(&mut self, cx: &mut Cx<'_>, id: u64, round: &Explaining) {
        for node in round.missing(cx.replicas) {
            let read = Message::About { id, key: round.key.clone(), body: Body::Read };
            cx.fx.send_now(node, read);
        }
        self.due.set(Alarm::Explanation(id), (cx.now + RESEND_FIRST).min(round.deadline));
    }

    fn end_explanation(&mut self, cx: &mut Cx<'_>, id: u64) {
        if let Some(round) = self.explaining.remove(&id) {
            self.due.clear(&Alarm::Explanation(id));
            let (tag, outcome) = round.end(cx.replicas);
            cx.fx.reply(tag, outcome);
        }
    }
}

/// The newest state of a replica: its vote, if it has one.
fn held(report: &Report) -> Held {
    let vote = report.accepted.as_ref().map(|(ballot, state, left)| (*ballot, state, *left));
    let committed = report.committed.as_ref().map(|it| (report.promised, it, report.countdown));
    let Some((ballot, state, countdown)) = vote.or(committed) else { return Held::Absent };
    let value: &[u8] = state.value.as_deref().unwrap_or_default();
    let round = match &report.accepted {
        Some(_) => format!("{}:{}.{}", state.slot, ballot.number, ballot.writer.0),
        None => format!("{}", state.slot),
    };
    Held::Present(Record {
        round,
        version: state.slot,
        is_tombstone: state.value.is_none(),
        value_len: value.len(),
        checksum: checksum::hash(value),
        rest: countdown.rest(),
    })
}
