//! Removal of deleted keys' registers, by rounds over all replicas of a shard.
//!
//! A round goes from one era to the next:
//!
//! 1. *Verify.* The coordinator stores each tombstone at all replicas: each holds it, or a newer
//!    version. It asks for their eras before, so that all have just answered.
//! 2. *Ask* for the eras of all replicas. The next era is above all of them.
//! 3. *Advance* to it. Operations begin in it; those of earlier eras end.
//! 4. *Close* it at all. From then on operations of earlier eras do not count.
//! 5. *Bury.* Each replica removes a tombstone that it still holds.
//!
//! So operations of earlier eras have seen no removal. Those of the new one have seen no version
//! below the tombstone, since they began after step 2: every node is a replica. Their own versions
//! lie above it, since versions lead with their era.
//!
//! Without step 3, writes in progress would end with unknown outcomes. Every step needs all
//! replicas, with the amnesia counts from the beginning of the round. Otherwise the round is given
//! up, and has changed no value. A replica that forgets later recovers the state of others that
//! have taken all steps.

use base::{Nanos, sometimes};
use types::{AmnesiaCount, Key, Malformed, NodeId, Shard};

use super::message::Message;
use super::operation::{Kind, Operation, Phase};
use super::register::{Register, Version};
use super::rounds::Round;
use super::{Abd, Cx};
use crate::mutation::{self, Mutation};
use crate::peers::Member;
use crate::protocol::Peer;
use crate::quorum::Tally;
use crate::register_cache::CachedRegister;
use crate::toolkit::back_off::RESEND_MAX;
use crate::toolkit::burials::AGAIN;
use crate::toolkit::eras::{Eras, Step, checked};

/// The coordinator.
impl Abd {
    /// The register of a noted key is resident.
    pub(super) fn on_noted(&mut self, cx: &mut Cx<'_>, key: Key, version: Version) {
        if version != Version::NONE {
            return self.burials.wait(key, version, cx.now);
        }
        // It marks a key that was never written, in a forgotten shard.
        if cx.cache.is_forgotten(key.shard()) {
            self.burials.look(&key, cx.now + AGAIN);
        } else {
            cx.cache.remove(&key);
        }
    }

    pub(super) fn on_noted_due(&mut self, cx: &mut Cx<'_>) {
        let room = self.looks.room(cx.now);
        for key in self.burials.take_keys(cx.now, room) {
            self.look(cx, key);
        }
    }

    pub(super) fn on_rounds_due(&mut self, cx: &mut Cx<'_>) {
        for shard in self.burials.take_shards(cx.now) {
            cx.about(shard);
            match self.burials.round(shard) {
                None => self.begin_round(cx, shard),
                Some(round) if round.deadline <= cx.now => self.give_up(cx, shard),
                Some(_) => self.ask_round(cx, shard),
            }
        }
    }

    fn begin_round(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let are_steady = cx.replicas.members().all(Member::is_steady);
        let may_begin = are_steady && cx.replicas.set.has_me() && !cx.cache.is_forgotten(shard);
        let batch = self.burials.batch(shard, may_begin, cx.now);
        if batch.is_empty() {
            return;
        }
        let round = Round {
            id: 0,
            step: None,
            unverified: batch.keys().cloned().collect(),
            batch,
            amnesias: amnesias(cx),
            acks: Tally::default(),
            eras: Eras::default(),
            deadline: self.deadline_of_round(cx),
        };
        self.burials.begin(shard, round);
        self.step(cx, shard, Step::Ask {});
    }

    /// Each step is asked several times, however short the time of a request is.
    fn deadline_of_round(&self, cx: &Cx<'_>) -> Nanos {
        cx.now + Nanos(3 * self.env.request_timeout.0 + 4 * RESEND_MAX.0)
    }

    /// All replicas answer: each gets the tombstones.
    fn verify(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let deadline = self.deadline_of_round(cx);
        let Some(round) = self.burials.round(shard) else { return };
        (round.step, round.deadline) = (None, deadline);
        let of_key = |key: &Key| Some((key.clone(), *round.batch.get(key)?));
        let unverified: Vec<(Key, Version)> = round.unverified.iter().filter_map(of_key).collect();
        self.burials.resume(shard, deadline);
        for (key, version) in unverified {
            let register = Register { version, content: Register::ABSENT.content };
            let phase = Phase::Store { register, acks: Tally::default() };
            self.start_in(cx, key, Kind::Bury, phase, cx.now + self.env.request_timeout);
        }
    }

    /// A tombstone was stored at all replicas, or not in time.
    pub(super) fn on_verified(&mut self, cx: &mut Cx<'_>, op: &Operation, is_held: bool) {
        let (key, shard) = (&op.key, op.key.shard());
        let Some(round) = self.burials.round(shard) else { return };
        let is_it = |register: &Register| round.batch.get(key) == Some(&register.version);
        // It may be of an earlier round.
        if !matches!(&op.phase, Phase::Store { register, .. } if is_it(register)) {
            return;
        }
        round.unverified.remove(key);
        if !is_held {
            round.batch.remove(key);
        }
        let (is_ready, is_empty) = (round.unverified.is_empty(), round.batch.is_empty());
        if !is_held {
            self.burials.look(key, cx.now + AGAIN);
        }
        if is_ready && is_empty {
            self.burials.end(shard, cx.now);
        } else if is_ready {
            self.step(cx, shard, Step::Ask {});
        }
    }

    fn step(&mut self, cx: &mut Cx<'_>, shard: Shard, step: Step) {
        let id = self.next_id();
        let Some(round) = self.burials.round(shard) else { return };
        if round.amnesias != amnesias(cx) {
            return self.give_up(cx, shard);
        }
        (round.id, round.step) = (id, Some(step));
        round.acks = Tally::default();
        self.ask_round(cx, shard);
    }

    fn ask_round(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let Some(round) = self.burials.round(shard) else { return };
        let Some(step) = round.step else { return };
        for node in cx.replicas.all().filter(|&node| !round.acks.has(cx.replicas, node)) {
            cx.fx.send_now(node, Message::Era { id: round.id, shard, step });
        }
        self.burials.resume(shard, cx.now + RESEND_MAX);
    }

    pub(super) fn on_era_told(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        id: u64,
        (shard, eras): (Shard, Eras),
    ) {
        if self.on_eras_recovered(cx, from, id, (shard, eras)) {
            return;
        }
        let Some(round) = self.burials.round(shard) else { return };
        let Some(step) = round.step.filter(|_| round.id == id) else { return };
        round.acks.add(cx.replicas, from.node, from.amnesia);
        round.eras.raise(eras);
        if !cx.replicas.is_all(&round.acks) {
            return;
        }
        let above = round.batch.values().map(|version| version.era).max().unwrap_or(0);
        match step {
            Step::Ask {} if !round.unverified.is_empty() => self.verify(cx, shard),
            Step::Ask {} => {
                let next = round.eras.now.max(above).saturating_add(1);
                match checked(next) {
                    Ok(era) => self.step(cx, shard, Step::Advance { era }),
                    // Peers would refuse it as malformed.
                    Err(Malformed) => self.give_up(cx, shard),
                }
            }
            Step::Advance { .. } if mutation::is(Mutation::BuryUnclosed) => self.bury(cx, shard),
            Step::Advance { era } => self.step(cx, shard, Step::Close { era }),
            Step::Close { .. } => self.bury(cx, shard),
        }
    }

    fn bury(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let Some(round) = self.burials.round(shard) else { return };
        if round.amnesias != amnesias(cx) {
            return self.give_up(cx, shard);
        }
        let Some(round) = self.burials.end(shard, cx.now) else { return };
        sometimes!("registers of deleted keys are removed at all replicas");
        self.buried += round.batch.len() as u64;
        for (key, version) in round.batch {
            for node in cx.replicas.all() {
                cx.fx.send_now(node, Message::Bury { key: key.clone(), version });
            }
        }
    }

    pub(super) fn give_up(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let Some(round) = self.burials.end(shard, cx.now) else { return };
        sometimes!("a round of burials is given up");
        for key in round.batch.keys() {
            self.burials.look(key, cx.now + AGAIN);
        }
    }
}

/// The replica.
impl Abd {
    pub(super) fn on_era(&mut self, cx: &mut Cx<'_>, from: NodeId, id: u64, it: (Shard, Step)) {
        let (shard, step) = it;
        // Its own eras may be lost, and its registers are not known yet.
        if cx.cache.is_forgotten(shard) {
            return;
        }
        match step {
            Step::Ask {} => {}
            Step::Advance { era } => {
                raise(cx, shard, Eras::begun(era));
                let is_before = |(_, op): (u64, &Operation)| {
                    let is_recovery = matches!(op.kind, Kind::Recover);
                    op.key.shard() == shard && op.era < era && !is_recovery
                };
                // The coordinator asks again.
                if self.ops.iter().any(is_before) && !mutation::is(Mutation::AdvanceEarly) {
                    return;
                }
            }
            Step::Close { era } => raise(cx, shard, Eras::closed(era)),
        }
        let eras = *cx.metas.get(shard);
        let after = cx.metas.ticket(shard);
        cx.fx.send(from, Message::EraTold { id, shard, eras }, after);
    }

    /// True if an operation counts here. Otherwise its node is told the present era.
    pub(super) fn counts(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        op: u64,
        (key, era): (&Key, u64),
    ) -> bool {
        let eras = *cx.metas.get(key.shard());
        if era < eras.closed {
            sometimes!("an operation of a closed era is refused");
            cx.fx.send_now(from, Message::Refused { op, key: key.clone(), era: eras.now });
            return false;
        }
        true
    }

    pub(super) fn on_bury(&mut self, cx: &mut Cx<'_>, key: &Key, version: Version) {
        let CachedRegister::Present(register) = cx.cache.get(key) else { return };
        if register.version == version && !cx.cache.is_forgotten(key.shard()) {
            cx.cache.remove(key);
            self.burials.forget(key);
            self.ends.forget(key);
        }
    }
}

/// The node of an operation.
impl Abd {
    /// A replica has closed the era of an operation.
    pub(super) fn on_refused(&mut self, cx: &mut Cx<'_>, id: u64, (key, era): (&Key, u64)) {
        raise(cx, key.shard(), Eras::begun(era));
        let Some(op) = self.ops.get(id) else { return };
        match (&op.phase, &op.kind) {
            (_, Kind::Bury) => self.end_burial(cx, id),
            // Some replicas may hold the version. So it must not be written as another one.
            (Phase::Store { .. }, Kind::Write { .. } | Kind::Delete { .. }) => {}
            _ => self.ask_again(cx, id, None),
        }
    }

    /// The tombstone is not verified in time.
    pub(super) fn end_burial(&mut self, cx: &mut Cx<'_>, id: u64) {
        if let Some(op) = self.remove(id) {
            self.on_verified(cx, &op, false);
        }
    }
}

pub(super) fn raise(cx: &mut Cx<'_>, shard: Shard, eras: Eras) {
    if cx.metas.get_mut(shard).raise(eras) {
        cx.metas.persist(shard);
    }
}

fn amnesias(cx: &Cx<'_>) -> Vec<AmnesiaCount> {
    cx.replicas.members().map(|member| member.amnesia).collect()
}
