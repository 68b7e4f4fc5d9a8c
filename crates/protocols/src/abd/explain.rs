//! Explanations: the record of each replica of a key, for people.
//!
//! An explanation asks every member with `Query`. It decides and changes no state.

use base::checksum;
use types::explain::{Held, Record};
use types::{Key, Outcome, Tag};

use super::message::{Message, Reported, Version};
use super::{Abd, Cx, RESEND_FIRST};
use crate::explaining::{EXPLANATIONS_MAX, Explaining};
use crate::protocol::Peer;

impl Abd {
    pub(super) fn on_explain(&mut self, cx: &mut Cx<'_>, tag: Tag, key: Key) {
        if self.explaining.len() >= EXPLANATIONS_MAX {
            return cx.fx.reply(tag, Outcome::NoQuorum);
        }
        let id = self.next_op;
        self.next_op += 1;
        let mut round = Explaining::new(tag, key, cx.now, self.env.request_timeout);
        round.resend_at = cx.now + RESEND_FIRST;
        ask_missing(cx, id, &round);
        self.due.insert((round.resend_at.min(round.deadline), id));
        self.explaining.insert(id, round);
    }

    /// Takes the answer of one member. False if no explanation has this id.
    pub(super) fn on_explained(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        id: u64,
        version: Version,
        value: &Reported,
    ) -> bool {
        let Some(round) = self.explaining.get_mut(&id) else { return false };
        round.add(cx.replicas, from.node, held(version, value));
        if round.missing(cx.replicas).is_empty() {
            self.end_explanation(cx, id);
        }
        true
    }

    pub(super) fn on_explanation_due(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(round) = self.explaining.get_mut(&id) else { return };
        if cx.now >= round.deadline {
            return self.end_explanation(cx, id);
        }
        round.resend_at = cx.now + RESEND_FIRST;
        ask_missing(cx, id, round);
        self.due.insert((round.resend_at.min(round.deadline), id));
    }

    fn end_explanation(&mut self, cx: &mut Cx<'_>, id: u64) {
        if let Some(round) = self.explaining.remove(&id) {
            self.due.remove(&(round.resend_at.min(round.deadline), id));
            let (tag, outcome) = round.end(cx.replicas);
            cx.fx.reply(tag, outcome);
        }
    }
}

fn ask_missing(cx: &mut Cx<'_>, id: u64, round: &Explaining) {
    for node in round.missing(cx.replicas) {
        cx.fx.send_now(node, Message::Query { op: id, key: round.key.clone(), want_value: true });
    }
}

fn held(version: Version, value: &Reported) -> Held {
    if version == Version::NONE {
        return Held::Absent;
    }
    let bytes: &[u8] = match value {
        Reported::Value(bytes) => bytes,
        Reported::Nothing | Reported::Omitted => &[],
    };
    let Version { number, writer, incarnation } = version;
    Held::Present(Record {
        round: format!("{number}.{}.{}", writer.0, incarnation.0),
        version: number,
        is_tombstone: *value == Reported::Nothing,
        value_len: bytes.len(),
        checksum: checksum::hash(bytes),
        rest: None,
    })
}
