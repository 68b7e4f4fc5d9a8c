//! Looking for a leader. [ZAB, D1 to D3]
//!
//! A node without a leader tells the others how it stands. It founds an epoch once it hears of a
//! majority without one whose histories are no better than its own. So a node that is cut off
//! founds none, and a leader need not fetch its history.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use base::Nanos;
use types::NodeId;

use super::super::context::{Cx, replicas, tell, tell_own};
use super::super::epoch::Epoch;
use super::super::message::ToSequencer;
use super::super::register::Meta;
use super::Sequencer;
use super::looks::Look;
use super::places::Places;
use super::role::{Following, Leading, Phase, Role, Step};
use crate::protocol::Peer;
use crate::quorum::Tally;
use crate::replicas::place;

/// How long a look counts.
const FRESH: Nanos = Nanos::from_millis(100);
/// The interval between looks.
const AGAIN: Nanos = Nanos::from_millis(20);

impl Sequencer {
    /// Looks for a leader.
    pub(super) fn look(&mut self, cx: &mut Cx<'_>) {
        self.turn_to(cx, Role::Looking);
        self.ask_looks(cx);
        self.consider(cx);
    }

    fn ask_looks(&mut self, cx: &mut Cx<'_>) {
        self.looks.asked_at = cx.now;
        let others: Vec<NodeId> = replicas(cx).others().collect();
        for node in others {
            self.send_look(cx, node, true);
        }
    }

    pub(super) fn look_again(&mut self, cx: &mut Cx<'_>) {
        if self.looks.asked_at + AGAIN <= cx.now {
            self.ask_looks(cx);
        }
        self.consider(cx);
    }

    pub(super) fn send_look(&mut self, cx: &mut Cx<'_>, to: NodeId, asks: bool) {
        let (current, last) = self.current();
        let Meta { accepted, has_no_vote, .. } = self.meta;
        let is_looking = matches!(self.role, Role::Looking);
        let votes = !has_no_vote;
        tell(cx, to, ToSequencer::Look { accepted, current, last, is_looking, votes, asks });
    }

    pub(super) fn on_look(&mut self, cx: &mut Cx<'_>, from: Peer, look: Look, asks: bool) {
        self.looks.by_node.insert(from.node, (look, cx.now));
        match &self.role {
            // It promised not to join this epoch.
            Role::Leading(leading) if look.accepted > leading.epoch => self.look(cx),
            // Its epoch never stands any more.
            Role::Following(following) if following.is_given_up_by(from.node, look) => {
                self.look(cx);
            }
            Role::Leading(leading) if look.is_looking => {
                let epoch = leading.epoch;
                cx.fx.send(from.node, ToSequencer::NewEpoch { epoch }.into(), self.meta_after);
            }
            Role::Looking | Role::Following(_) if asks => self.send_look(cx, from.node, false),
            Role::Looking | Role::Following(_) | Role::Leading(_) | Role::Recalling(_) => {}
        }
        self.consider(cx);
    }

    /// Founds an epoch if a majority is without a leader, and none of it has a better history.
    fn consider(&mut self, cx: &mut Cx<'_>) {
        let leads = !self.meta.has_no_vote && !self.meta.is_partial;
        if !leads || !matches!(self.role, Role::Looking) {
            return;
        }
        let replicas = replicas(cx);
        let is_open = |look: &Look, at: Nanos| look.votes && look.is_looking && at + FRESH > cx.now;
        let open = self.looks.by_node.iter().filter(|(_, (look, at))| is_open(look, *at));
        let open: Vec<(NodeId, Look)> = open.map(|(&node, &(look, _))| (node, look)).collect();
        let places = open.iter().filter_map(|(node, _)| replicas.index(*node));
        let places = places.fold(replicas.set.own_place(), |set, index| set | place(index));
        if !replicas.set.is_quorum_of(places) {
            return;
        }
        let (current, last) = self.current();
        let own = (current, last, Reverse(self.me));
        if open.iter().all(|(node, it)| (it.current, it.last, Reverse(*node)) < own) {
            self.found(cx);
        }
    }

    fn found(&mut self, cx: &mut Cx<'_>) {
        let seen = self.looks.by_node.values().map(|(look, _)| look.accepted.counter);
        let counter = seen.fold(self.meta.accepted.counter, u64::max) + 1;
        let epoch = Epoch { counter, node: u64::from(self.me.0) };
        let (current, _) = self.current();
        let after = self.persist(cx, Meta { accepted: epoch, ..self.meta });
        let leading = Leading {
            epoch,
            phase: Phase::Discovery,
            since: cx.now,
            initial: self.history.last(),
            promised: Tally::default(),
            joined: Tally::default(),
            waiting: BTreeMap::new(),
            followers: BTreeMap::new(),
            attempts: BTreeMap::new(),
            origins: BTreeMap::new(),
            early_bytes: 0,
            places: Places::after(self.history.last()),
            told: 0,
        };
        self.turn_to(cx, Role::Leading(Box::new(leading)));
        self.ask_to_join(cx);
        let (votes, first, ends) = (true, self.history.first(), Some(self.history.ends()));
        let attempt = self.attempt();
        let own = ToSequencer::AckEpoch { epoch, current, votes, attempt, first, ends };
        tell_own(cx, own, after);
    }

    /// Asks those whose promise is missing, once that this node founds the epoch is durable.
    pub(super) fn ask_to_join(&self, cx: &mut Cx<'_>) {
        let Role::Leading(leading) = &self.role else { return };
        let epoch = leading.epoch;
        let missing = replicas(cx).others().filter(|node| !leading.waiting.contains_key(node));
        for node in missing.collect::<Vec<NodeId>>() {
            cx.fx.send(node, ToSequencer::NewEpoch { epoch }.into(), self.meta_after);
        }
    }

    /// Grows with every role and every start.
    fn attempt(&self) -> u64 {
        (u64::from(self.env.incarnation.0) << 32) + self.generation
    }

    pub(super) fn on_new_epoch(&mut self, cx: &mut Cx<'_>, from: NodeId, epoch: Epoch) {
        let is_of_leader = epoch.node == u64::from(from.0) && from != self.me;
        if !is_of_leader || matches!(self.role, Role::Recalling(_)) {
            return;
        }
        if epoch < self.meta.accepted {
            return self.send_look(cx, from, false);
        }
        if let Role::Following(following) = &mut self.role
            && following.epoch == epoch
        {
            // The leader waits for promises, perhaps for this one.
            if following.step == Step::Promised {
                (following.heard_at, following.step_at) = (cx.now, cx.now);
                let attempt = following.attempt;
                self.promise(cx, from, epoch, attempt);
            }
            return;
        }
        if epoch > self.meta.accepted {
            self.persist(cx, Meta { accepted: epoch, ..self.meta });
        }
        // That of the role that begins now.
        let attempt = self.attempt() + 1;
        let following = Following {
            epoch,
            attempt,
            leader: from,
            step: Step::Promised,
            heard_at: cx.now,
            step_at: cx.now,
        };
        self.turn_to(cx, Role::Following(following));
        self.promise(cx, from, epoch, attempt);
    }

    fn promise(&self, cx: &mut Cx<'_>, to: NodeId, epoch: Epoch, attempt: u64) {
        let Meta { current, is_partial, has_no_vote, .. } = self.meta;
        let (votes, first) = (!has_no_vote, self.history.first());
        let ends = (!is_partial).then(|| self.history.ends());
        let answer = ToSequencer::AckEpoch { epoch, current, votes, attempt, first, ends };
        cx.fx.send(to, answer.into(), self.meta_after);
    }
}
