//! A member holds less than it durably held: its medium has gone back, and nobody else can tell
//! [spec 9.7].
//!
//! An acceptor's round never falls, and what it does not hold any more is forbidden by a floor. So
//! a comparison that finds a member below what it held before, or with what it had removed, and
//! that has forgotten nothing of the shard since, has found a whole but older record (or a fault of
//! ours). It may have answered for that older record meanwhile, which is beyond help. From now on
//! it must not: what else it accepted or promised after that record is unknown, and so it is of its
//! neighbours. So the shard counts as lost with all that is stored of it, the loss is raised, and a
//! majority of others gives it back.
//!
//! That it held more is true even if the medium of whoever says so has gone back too: that node
//! holds less than it did itself. That it had removed something is not: whoever says so may have
//! lost the register on its own medium. So a majority of others must say that.
//!
//! Other differences may as well be an accept that never arrived, and is repaired in silence.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Ballot, Key, Loss, NodeId, Round, Shard};

use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::quorum::Tally;
use crate::rmwpaxos::context::{Cx, held, is_lost};
use crate::rmwpaxos::core::instance::Core;
use crate::rmwpaxos::message::Message;
use crate::rmwpaxos::progress::counters::Figure;
use crate::rmwpaxos::services::anti_entropy::ranges::Ranges;

/// Registers of which others say that they were removed, at most.
const DENIED_MAX: usize = 256;

/// For so long one member of a shard alone is told: it recovers meanwhile, and needs the others for
/// that.
const ONE_FOR: Nanos = Nanos::from_secs(60);

/// Suspicions that a medium has gone back, of this node's and of others'.
#[derive(Debug, Default)]
pub(crate) struct RollbackDetector {
    /// Registers of this node of which others say that they were removed here.
    denials: BTreeMap<Key, Denial>,
    /// The member of each shard that was told last that it held more.
    told: BTreeMap<Shard, Telling>,
    older: Figure,
}

#[derive(Clone, Copy, Debug)]
struct Denial {
    held: Round,
    by: Tally,
    since: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Telling {
    member: usize,
    /// Until then no other is told.
    until: Nanos,
    /// Questions of a comparison with greater numbers were asked later.
    asked: u64,
}

/// The past of a member: the round that it held of a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    /// [`Round::NONE`]: nothing.
    pub(crate) round: Round,
    /// Where it held nothing: that was so for every round up to this one's ballot.
    pub(crate) floor: Ballot,
    /// Its loss by then.
    pub(crate) loss: Loss,
}

impl Past {
    /// An acceptor that held this, and has lost nothing since, cannot hold that.
    pub(crate) fn forbids(&self, held: Round, floor: Ballot) -> bool {
        if self.round.is_none() {
            return !held.is_none() && held.ballot() <= self.floor;
        }
        let is_removed = held.is_none() && floor >= self.round.ballot();
        held < self.round && !is_removed
    }
}

impl RollbackDetector {
    /// Registers and shards of this node that were found to be older than they were.
    pub(crate) fn older(&self) -> u64 {
        self.older.get()
    }

    /// True if this member may be told that it held more of a shard. Two that disbelieve themselves
    /// wait for each other, for ever: so whoever is second is repaired in silence.
    pub(crate) fn may_tell(&self, cx: &Cx<'_>, shard: Shard, member: usize) -> bool {
        let told = self.told.get(&shard);
        told.is_none_or(|told| told.member == member || told.until <= cx.now)
            || mutation::is(Mutation::AllAreTold)
    }

    /// Nobody was told of this shard lately.
    pub(crate) fn is_to_be_told(&self, cx: &Cx<'_>, shard: Shard) -> bool {
        self.told.get(&shard).is_none_or(|told| told.until <= cx.now)
    }

    /// A member durably held this. It is told once; if it disagrees, it is repaired like others.
    pub(crate) fn tell_older(
        &mut self,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        key: Key,
        (member, node): (usize, NodeId),
        past: Past,
    ) {
        let Past { round, floor, loss } = past;
        self.note_told(ranges, cx, (key.shard(), member));
        cx.fx.send_now(node, Message::Older { key, round, floor, loss });
    }

    /// Who answers a question that was asked after it was told was told in vain: a shard that is
    /// recovered is silent.
    pub(crate) fn note_answer(&mut self, shard: Shard, member: usize, question: u64) {
        let told = self.told.get(&shard);
        if told.is_some_and(|told| told.member == member && question > told.asked) {
            self.told.remove(&shard);
        }
    }

    fn note_told(&mut self, ranges: &mut Ranges, cx: &mut Cx<'_>, (shard, member): (Shard, usize)) {
        let asked = ranges.last_question;
        self.told.insert(shard, Telling { member, until: cx.now + ONE_FOR, asked });
        ranges.note_told(shard, member);
        ranges.doubt(cx, shard, 1 << member);
    }

    /// A member names its floor, which never falls either: where it does, the fields of the shard
    /// have gone back.
    pub(crate) fn compare_floor(
        &mut self,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        shard: Shard,
        (member, node): (usize, NodeId),
        floor: Ballot,
    ) {
        let had = ranges.had_floor(shard, member).filter(|&(_, had)| floor < had);
        let Some((loss, floor)) = had.filter(|_| self.may_tell(cx, shard, member)) else { return };
        self.note_told(ranges, cx, (shard, member));
        cx.fx.send_now(node, Message::OlderFloor { shard, floor, loss });
    }

    /// A member holds a round of what is not held here: true if it had removed it too, and has been
    /// told so.
    pub(crate) fn tell_removed(
        &mut self,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        node: NodeId,
        (key, theirs): (&Key, Round),
    ) -> bool {
        let Some(member) = cx.replicas.index(node) else { return false };
        let removed = ranges.was_removed_with(key.shard(), member, theirs);
        let Some((loss, floor)) = removed.filter(|_| self.may_tell(cx, key.shard(), member)) else {
            return false;
        };
        // What it has lost since it has recovered from others, the floor too: above theirs it may
        // accept again.
        let has_lost = cx.replicas.member(node).is_some_and(|member| member.loss > loss);
        let own = cx.metas.get(key.shard()).floor_ballot;
        let floor = if has_lost { floor.min(own) } else { floor };
        if theirs.ballot() > floor {
            return false;
        }
        let past = Past { round: Round::NONE, floor, loss };
        self.tell_older(ranges, cx, key.clone(), (member, node), past);
        true
    }

    /// The fields of a shard wait to be recovered, and storage knows the shard as recovered: they
    /// are from before.
    pub(crate) fn find_void(&mut self, core: &mut Core, cx: &mut Cx<'_>, shard: Shard) {
        base::sometimes!("the fields of a shard are older than they were");
        self.older.add(1);
        cx.fx.remark(format!(
            "shard {}: its record is older than it was: the medium has lost a write. \
             The shard is recovered from the other members",
            shard.0
        ));
        core.treat_as_lost(cx, shard);
        cx.fx.forget(shard);
    }

    /// Another member remembers the floor that this one had: its fields of the shard are older than
    /// they were.
    pub(crate) fn on_older_floor(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        shard: Shard,
        floor: Ballot,
        loss: Loss,
    ) {
        let meta = cx.metas.get(shard);
        let is_void = meta.lost_at > loss || meta.void || cx.cells.is_forgotten(shard);
        if !is_void && meta.floor_ballot < floor && !mutation::is(Mutation::OlderIsLag) {
            self.find_void(core, cx, shard);
        }
    }

    /// Another member remembers what this one held. That counts for nothing where something of the
    /// shard was forgotten since.
    pub(crate) fn on_older(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        (key, past): (&Key, Past),
    ) {
        let meta = cx.metas.get(key.shard());
        let (lost_at, floor) = (meta.lost_at, meta.floor_ballot);
        let is_void = lost_at > past.loss && !past.round.is_none();
        if is_void || is_lost(cx, key) || mutation::is(Mutation::OlderIsLag) {
            return;
        }
        let held = held(cx, key).map_or(Round::NONE, |register| register.accepted);
        if !past.forbids(held, floor) || !self.is_agreed(cx, from, key, (held, &past)) {
            return;
        }
        base::sometimes!("a register is older than it was");
        self.older.add(1);
        cx.fx.remark(format!(
            "shard {}: the key with hash {:016x} is older than it was, as node {} remembers: \
             the medium has lost a write. The key is recovered from the other members",
            key.shard().0,
            key.hash(),
            from.node,
        ));
        core.treat_as_lost(cx, key.shard());
        cx.fx.disown(key.clone());
    }
}

impl RollbackDetector {
    /// That something was removed a majority of others must say. They are asked for what they know:
    /// who has removed the register too says so when it is delivered.
    fn is_agreed(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        key: &Key,
        (own, past): (Round, &Past),
    ) -> bool {
        if !past.round.is_none() || mutation::is(Mutation::OneDenies) {
            return true;
        }
        let denied = &mut self.denials;
        if denied.len() >= DENIED_MAX && !denied.contains_key(key) {
            denied.clear();
        }
        let first = Denial { held: own, by: Tally::default(), since: cx.now };
        let denial = denied.entry(key.clone()).or_insert(first);
        if denial.held != own || denial.since + ONE_FOR <= cx.now {
            *denial = first;
        }
        let is_new = denial.by.add(cx.replicas, from.node, from.loss);
        if cx.replicas.is_quorum(&denial.by) {
            denied.remove(key);
            return true;
        }
        let tally = denial.by;
        let state = held(cx, key).and_then(|register| register.state.clone());
        let Some(state) = state.filter(|_| is_new) else { return false };
        let others: Vec<NodeId> =
            cx.replicas.others().filter(|&it| !tally.has(cx.replicas, it)).collect();
        for node in others {
            let (key, state) = (key.clone(), state.clone());
            cx.fx.send_now(node, Message::Repair { key, round: own, state });
        }
        false
    }
}
