//! A member holds less than it durably held: its medium has gone back, and nobody else can tell [spec 9.7].
//!
//! An acceptor's round never falls and a removal leaves a floor, so a comparison that finds a member below what it held
//! equally before, with no loss raised since, has found a whole but older record (or a fault of ours). It may have
//! answered for that older record meanwhile, which is beyond help. From now on it must not: what else it accepted or
//! promised after that record is unknown, so the register and the fields of its shard count as lost, the loss is raised,
//! and a majority of others gives them back.
//!
//! What differs otherwise may as well be an accept that never arrived, and is repaired in silence.

use types::{Key, Loss, NodeId, Round};

use super::message::Message;
use super::{Cx, RmwPaxos, serve};
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;

impl RmwPaxos {
    /// The member durably held this round of the key. It is told once; if it disagrees, it is repaired like others.
    pub(super) fn tell_older(
        &mut self,
        cx: &mut Cx<'_>,
        key: Key,
        (member, node): (usize, NodeId),
        round: Round,
    ) {
        self.ranges.doubt_holder(key.shard(), member);
        let loss = cx.view.members()[member].loss;
        self.doubt(cx, key.shard(), 1 << member);
        cx.fx.send_now(node, Message::Older { key, round, loss });
    }

    /// Another member remembers that this one held `round`, before it lost anything beyond `loss`.
    pub(super) fn on_older(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        key: &Key,
        round: Round,
        loss: Loss,
    ) {
        let is_current = cx.view.member(cx.view.me).is_some_and(|me| me.loss == loss);
        if !is_current || serve::is_lost(cx, key) {
            return;
        }
        let held = serve::held(cx, key).map_or(Round::NONE, |register| register.accepted);
        let is_removed = held.is_none() && cx.metas.get(key.shard()).floor_ballot >= round.ballot();
        if held >= round || is_removed || mutation::is(Mutation::OlderIsLag) {
            return;
        }
        base::sometimes!("a register is older than it was");
        self.counters.older += 1;
        cx.fx.remark(format!(
            "shard {}: the register with hash {:016x} is older than it was: {held:?} is stored, node {} knows that \
             {round:?} was; it is forgotten and recovered from the others. The medium has taken back a write",
            key.shard().0,
            key.hash(),
            from.node,
        ));
        cx.metas.get_mut(key.shard()).void = true;
        cx.metas.persist(key.shard());
        cx.fx.disown(key.clone());
    }
}
