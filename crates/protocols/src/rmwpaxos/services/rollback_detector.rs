//! Detects a medium that has gone back: its member holds less than it durably held [spec 9.7]. Only
//! other members can notice that.
//!
//! An acceptor's round never falls, and a floor forbids the registers that it removed. A comparison
//! may find a member below its earlier round, or with a register that it had removed. Unless the
//! member has forgotten part of the shard since, its record is whole but older, or this code has a
//! fault. It may have answered from that record already, which cannot be undone. It must not do so
//! again, because its later accepts and promises are unknown, and so are those of neighbouring
//! keys. So the shard counts as lost with all its stored registers. The amnesia count rises, and a
//! majority of others restores the shard.
//!
//! *You held more* is true even if the sender's own medium has gone back: the sender then holds
//! less than it did itself. *You had removed it* may be false, because the sender's medium may have
//! lost the register. So a majority of others must say that.
//!
//! Any other difference may be a missed accept, and is repaired silently.

use std::collections::BTreeMap;

use base::Nanos;
use types::{AmnesiaCount, Ballot, Key, NodeId, Round, Shard};

use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::quorum::Tally;
use crate::rmwpaxos::context::{Cx, held, is_lost};
use crate::rmwpaxos::core::instance::Core;
use crate::rmwpaxos::message::Message;
use crate::rmwpaxos::progress::counters::Figure;
use crate::rmwpaxos::services::anti_entropy::ranges::Ranges;

/// Most registers with an unconfirmed removal.
const DENIED_MAX: usize = 256;

/// How long only one member of a shard is told. It recovers meanwhile, and needs the others for
/// that.
const ONE_FOR: Nanos = Nanos::from_secs(60);

/// Suspected rollbacks, of this node's medium and of others'.
#[derive(Debug, Default)]
pub(crate) struct RollbackDetector {
    /// Registers of this node that others claim were removed here.
    denials: BTreeMap<Key, Denial>,
    /// Per shard, the member that was told last that it held more.
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
    /// No other member is told until then.
    until: Nanos,
    /// Comparison questions with greater numbers were asked later.
    asked: u64,
}

/// A member's earlier state of a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    /// [`Round::NONE`]: the register was absent.
    pub(crate) round: Round,
    /// With an absent register: it was absent for every round up to this ballot.
    pub(crate) floor: Ballot,
    /// Its amnesia count then.
    pub(crate) amnesia: AmnesiaCount,
}

impl Past {
    /// True if an acceptor with this past, and no amnesia since, cannot hold `held`.
    pub(crate) fn forbids(&self, held: Round, floor: Ballot) -> bool {
        if self.round.is_none() {
            return !held.is_none() && held.ballot() <= self.floor;
        }
        let is_removed = held.is_none() && floor >= self.round.ballot();
        held < self.round && !is_removed
    }
}

impl RollbackDetector {
    /// Registers and shards of this node that were found to be rolled back.
    pub(crate) fn older(&self) -> u64 {
        self.older.get()
    }

    /// True if this member may be told that it held more of a shard. Two members that recover the
    /// same shard would wait for each other for ever. So only one is told, and a second is repaired
    /// silently.
    pub(crate) fn may_tell(&self, cx: &Cx<'_>, shard: Shard, member: usize) -> bool {
        let told = self.told.get(&shard);
        told.is_none_or(|told| told.member == member || told.until <= cx.now)
            || mutation::is(Mutation::AllAreTold)
    }

    /// True if no member was told of this shard lately.
    pub(crate) fn is_to_be_told(&self, cx: &Cx<'_>, shard: Shard) -> bool {
        self.told.get(&shard).is_none_or(|told| told.until <= cx.now)
    }

    /// Tells a member that it durably held this. If it disagrees, it is repaired like others.
    pub(crate) fn tell_older(
        &mut self,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        key: Key,
        (member, node): (usize, NodeId),
        past: Past,
    ) {
        let Past { round, floor, amnesia } = past;
        self.note_told(ranges, cx, (key.shard(), member));
        cx.fx.send_now(node, Message::Older { key, round, floor, amnesia });
    }

    /// Ends the limit for a member that was told in vain. It answers a question that was asked
    /// after it was told, and a shard in recovery does not answer.
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

    /// Compares a member's floor with its earlier one. Floors never fall, so a lower one shows that
    /// the shard fields have gone back.
    pub(crate) fn compare_floor(
        &mut self,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        shard: Shard,
        (member, node): (usize, NodeId),
        floor: Ballot,
    ) {
        let had = ranges.had_floor(shard, member).filter(|&(_, had)| floor < had);
        let Some((amnesia, floor)) = had.filter(|_| self.may_tell(cx, shard, member)) else {
            return;
        };
        self.note_told(ranges, cx, (shard, member));
        cx.fx.send_now(node, Message::OlderFloor { shard, floor, amnesia });
    }

    /// Tells a member that holds a round of a register that is absent here, if it had removed it,
    /// too. True if it was told.
    pub(crate) fn tell_removed(
        &mut self,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        node: NodeId,
        (key, theirs): (&Key, Round),
    ) -> bool {
        let Some(member) = cx.replicas.index(node) else { return false };
        let removed = ranges.was_removed_with(key.shard(), member, theirs);
        let Some((amnesia, floor)) = removed.filter(|_| self.may_tell(cx, key.shard(), member))
        else {
            return false;
        };
        // After an amnesia it recovered its floor from the others. Above theirs it may have
        // accepted again.
        let has_lost = cx.replicas.member(node).is_some_and(|member| member.amnesia > amnesia);
        let own = cx.metas.get(key.shard()).floor_ballot;
        let floor = if has_lost { floor.min(own) } else { floor };
        if theirs.ballot() > floor {
            return false;
        }
        let past = Past { round: Round::NONE, floor, amnesia };
        self.tell_older(ranges, cx, key.clone(), (member, node), past);
        true
    }

    /// Storage calls the shard recovered, but its fields wait for recovery: they have gone back.
    pub(crate) fn find_void(&mut self, core: &mut Core, cx: &mut Cx<'_>, shard: Shard) {
        base::sometimes!("the fields of a shard are older than they were");
        self.older.add(1);
        cx.fx.warn(format!(
            "shard {}: its record is older than it was: the medium has lost a write. \
             The shard is recovered from the other members",
            shard.0
        ));
        core.treat_as_lost(cx, shard);
        cx.fx.forget(shard);
    }

    /// Another member remembers a higher floor of this one: its shard fields have gone back.
    pub(crate) fn on_older_floor(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        shard: Shard,
        floor: Ballot,
        amnesia: AmnesiaCount,
    ) {
        let meta = cx.metas.get(shard);
        let is_void = meta.lost_at > amnesia || meta.void || cx.cache.is_forgotten(shard);
        if !is_void && meta.floor_ballot < floor && !mutation::is(Mutation::OlderIsLag) {
            self.find_void(core, cx, shard);
        }
    }

    /// Another member remembers this one's earlier state. That does not count if part of the shard
    /// was forgotten since.
    pub(crate) fn on_older(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        (key, past): (&Key, Past),
    ) {
        let meta = cx.metas.get(key.shard());
        let (lost_at, floor) = (meta.lost_at, meta.floor_ballot);
        let is_void = lost_at > past.amnesia && !past.round.is_none();
        if is_void || is_lost(cx, key) || mutation::is(Mutation::OlderIsLag) {
            return;
        }
        let held = held(cx, key).map_or(Round::NONE, |register| register.accepted);
        if !past.forbids(held, floor) || !self.is_agreed(cx, from, key, (held, &past)) {
            return;
        }
        base::sometimes!("a register is older than it was");
        self.older.add(1);
        cx.fx.warn(format!(
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
    /// A removal must be confirmed by a majority of others. The others get a late accept of the
    /// register: each that has removed it, too, replies so.
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
        let is_new = denial.by.add(cx.replicas, from.node, from.amnesia);
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
