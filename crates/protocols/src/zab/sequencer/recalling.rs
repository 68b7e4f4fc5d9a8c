//! A node that lost its state finds out which epochs it may have promised.
//!
//! It may have promised a leader to join no earlier epoch. That leader has such promises of a
//! majority. So in any majority of others there is one of them. It knows the epoch. Or it hears of
//! the loss before it promises: then the leader does not count the lost promise either.

use base::Nanos;
use types::NodeId;

use super::super::context::{Cx, replicas, tell, tell_worker};
use super::super::epoch::Epoch;
use super::super::message::{ToSequencer, ToWorker};
use super::super::register::Meta;
use super::Sequencer;
use super::role::{Recalling, Role};
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::quorum::Tally;

const AGAIN: Nanos = Nanos::from_millis(50);

impl Sequencer {
    /// A worker lost registers, or this node its fields.
    pub fn on_lost(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.role, Role::Recalling(_)) && self.meta.has_no_vote {
            return;
        }
        let current = Epoch::default();
        self.persist(cx, Meta { current, is_partial: true, has_no_vote: true, ..self.meta });
        self.outlets.hold();
        self.owes_whole = false;
        for worker in 0..self.env.workers {
            tell_worker(cx, worker, ToWorker::Forget {});
        }
        self.recall(cx);
    }

    pub(super) fn recall(&mut self, cx: &mut Cx<'_>) {
        let id = (u64::from(self.env.incarnation.0) << 32) + self.generation + 1;
        let (answers, floor) = (Tally::default(), self.meta.accepted);
        self.turn_to(cx, Role::Recalling(Recalling { id, answers, floor, asked_at: cx.now }));
        self.ask_recall(cx, id);
        if mutation::is(Mutation::ZabForgetsPromises) {
            self.look(cx);
        }
    }

    fn ask_recall(&mut self, cx: &mut Cx<'_>, id: u64) {
        let others: Vec<NodeId> = replicas(cx).others().collect();
        for node in others {
            tell(cx, node, ToSequencer::Recall { id });
        }
    }

    pub(super) fn recall_again(&mut self, cx: &mut Cx<'_>) {
        let Role::Recalling(recalling) = &mut self.role else { return };
        if recalling.asked_at + AGAIN <= cx.now {
            recalling.asked_at = cx.now;
            let id = recalling.id;
            self.ask_recall(cx, id);
        }
    }

    pub(super) fn on_recall(&mut self, cx: &mut Cx<'_>, from: NodeId, id: u64) {
        if !self.meta.has_no_vote {
            let accepted = self.meta.accepted;
            tell(cx, from, ToSequencer::Recalled { id, accepted });
        }
    }

    pub(super) fn on_recalled(&mut self, cx: &mut Cx<'_>, from: Peer, id: u64, accepted: Epoch) {
        let replicas = replicas(cx);
        let Role::Recalling(recalling) = &mut self.role else { return };
        if recalling.id != id || from.node == self.me {
            return;
        }
        recalling.answers.add(replicas, from.node, from.amnesia);
        recalling.floor = recalling.floor.max(accepted);
        if replicas.is_quorum(&recalling.answers) {
            let accepted = recalling.floor;
            self.persist(cx, Meta { accepted, ..self.meta });
            self.look(cx);
        }
    }
}
