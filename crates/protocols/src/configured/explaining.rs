//! Explanations: the record of every node, for people.

use types::explain::Held;
use types::{Key, Tag};

use super::{Configured, Cx, EXPLAIN_DUE, Envelope, Member};
use crate::explaining::{EXPLANATIONS_MAX, Explaining};
use crate::protocol::Peer;
use crate::register_cache::CachedRegister;

impl<P: Member> Configured<P> {
    pub(super) fn on_explain(&mut self, cx: &mut Cx<'_, P>, tag: Tag, key: Key) {
        if self.explanations.in_progress.len() >= EXPLANATIONS_MAX {
            return cx.fx.reply(tag, types::Outcome::NoQuorum);
        }
        let id = self.passing.next_id();
        let round = Explaining::new(tag, key.clone(), cx.now, self.env.request_timeout);
        cx.fx.timer(EXPLAIN_DUE, round.deadline);
        for node in cx.replicas.all() {
            cx.fx.send_now(node, Envelope::Explain { id, key: key.clone() });
        }
        self.explanations.in_progress.insert(id, round);
    }

    pub(super) fn on_explain_asked(&mut self, cx: &mut Cx<'_, P>, from: Peer, id: u64, key: &Key) {
        let held = match cx.cache.get(key) {
            CachedRegister::Present(record) => {
                Held::Present(P::explain(record, cx.uptime, cx.unix))
            }
            CachedRegister::Absent => Held::Absent,
            CachedRegister::Lost => return,
        };
        cx.fx.send_now(from.node, Envelope::Explained { shard: key.shard(), id, held });
    }

    pub(super) fn on_explained(&mut self, cx: &mut Cx<'_, P>, from: Peer, id: u64, held: Held) {
        let Some(round) = self.explanations.in_progress.get_mut(&id) else { return };
        cx.about(round.key.shard());
        round.add(cx.replicas, from.node, held);
        if round.missing(cx.replicas).is_empty() {
            self.end_explanation(cx, id);
        }
    }

    pub(super) fn on_explain_due(&mut self, cx: &mut Cx<'_, P>) {
        let rounds = self.explanations.in_progress.iter();
        let over = rounds.filter(|(_, round)| round.deadline <= cx.now);
        let over: Vec<u64> = over.map(|(&id, _)| id).collect();
        over.into_iter().for_each(|id| self.end_explanation(cx, id));
    }

    fn end_explanation(&mut self, cx: &mut Cx<'_, P>, id: u64) {
        if let Some(round) = self.explanations.in_progress.remove(&id) {
            cx.about(round.key.shard());
            let (tag, outcome) = round.end(cx.replicas);
            cx.fx.reply(tag, outcome);
        }
    }
}
