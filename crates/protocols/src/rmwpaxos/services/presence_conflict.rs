//! Presence conflicts: one member holds a register and another lacks it [spec 9.5, 9.7].
//!
//! - *Denial*: this member found another equal, noted its floor, and has removed no register since.
//!   So the other cannot rightly hold a register that is absent here and covered by that floor.
//!   This member says so when that other asks, and notices it when it asks itself. One of the two
//!   media has gone back, and only a third member can tell which. So a disputed register counts
//!   once another member holds the same.
//! - *Witness*: a holder names the members that it found to durably hold the same. If a named
//!   member lacks the register now, it has lost it, and its absence does not count. If such members
//!   outnumber the holders, the holder's own medium has more likely gone back. Its process then
//!   remembers comparisons from when it lacked the register, too.

use types::{Ballot, Key, NodeId, Round};

use crate::mutation::{self, Mutation};
use crate::peers::Member;
use crate::replicas::Places;
use crate::rmwpaxos::context::{Cx, held, is_lost};
use crate::rmwpaxos::deletion;
use crate::rmwpaxos::message::Report;
use crate::rmwpaxos::record::register::Register;
use crate::rmwpaxos::services::anti_entropy::ranges::Ranges;
use crate::rmwpaxos::services::rollback_detector::{Past, RollbackDetector};

impl RollbackDetector {
    /// The earlier state of a member, if it contradicts the round that the member claims to hold.
    fn past_of(
        &self,
        ranges: &Ranges,
        cx: &Cx<'_>,
        (node, key, theirs): (NodeId, &Key, Round),
    ) -> Option<(usize, Past)> {
        if node == cx.replicas.me() || is_lost(cx, key) {
            return None;
        }
        let own = held(cx, key).filter(|register| !register.accepted.is_none());
        if own.map_or(Round::NONE, |register| register.accepted) == theirs {
            return None;
        }
        let (shard, member) = (key.shard(), cx.replicas.index(node)?);
        let past = match own {
            None => {
                let (amnesia, floor) = ranges.was_equal_under(shard, member)?;
                Past { round: Round::NONE, floor, amnesia }
            }
            Some(register) => {
                let amnesia = ranges.was_held_with(shard, member)?;
                Past { round: register.accepted, floor: Ballot::ZERO, amnesia }
            }
        };
        // A tombstone may have been removed there since.
        let is_left_over = |register: &Register| deletion::leftover(register).is_some();
        let is_removed = theirs.is_none() && own.is_some_and(is_left_over);
        // The member alone knows whether its amnesia concerned this shard.
        let has_lost = own.is_none() && cx.replicas.at(member).amnesia > past.amnesia;
        let is_impossible = past.forbids(theirs, Ballot::ZERO) && !is_removed && !has_lost;
        is_impossible.then_some((member, past))
    }

    /// Denies a round that a member claims to hold, if it is absent here and cannot be there. The
    /// member is told so once.
    pub(crate) fn denies(
        &mut self,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        (node, key, theirs): (NodeId, &Key, Round),
    ) -> bool {
        let denied =
            self.past_of(ranges, cx, (node, key, theirs)).filter(|(_, past)| past.round.is_none());
        let Some((member, past)) = denied.filter(|_| !mutation::is(Mutation::DenialIgnored)) else {
            return false;
        };
        if self.may_tell(cx, key.shard(), member) {
            self.tell_older(ranges, cx, key.clone(), (member, node), past);
        }
        true
    }

    /// Members that durably held this node's round of a register. One that lacks the register now
    /// has lost it.
    fn witnessed(&self, ranges: &Ranges, cx: &Cx<'_>, key: &Key) -> Places {
        let shard = key.shard();
        let held_with = |(index, member): (usize, &Member)| {
            let amnesia = ranges.was_held_with(shard, index);
            let was_held = amnesia.is_some_and(|amnesia| member.amnesia <= amnesia);
            let is_other = member.node != cx.replicas.me();
            (is_other && (was_held || ranges.was_told(shard, index))).then_some(1 << index)
        };
        let members = cx.replicas.members().enumerate();
        members.filter_map(held_with).fold(0, |set, bit| set | bit)
    }

    fn tell_past(
        &mut self,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        key: &Key,
        to: (usize, NodeId),
        past: Past,
    ) {
        if self.is_to_be_told(cx, key.shard()) {
            self.tell_older(ranges, cx, key.clone(), to, past);
        }
    }

    /// Adds denial and witnesses to this node's report for a member that names its own round.
    pub(crate) fn complete_report(
        &mut self,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        (node, key, have): (NodeId, &Key, Round),
        report: &mut Report,
    ) {
        if !report.accepted.is_none() && report.accepted != have {
            report.witnessed = self.witnessed(ranges, cx, key);
        }
        if let Some((member, past)) = self.past_of(ranges, cx, (node, key, have)) {
            if past.round.is_none() {
                base::sometimes!("a member denies another's register");
                report.denies = true;
            }
            self.tell_past(ranges, cx, key, (member, node), past);
        }
    }

    /// True if this node knows that the member cannot rightly hold the round that it reports.
    pub(crate) fn disputes(
        &mut self,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        (node, key, theirs): (NodeId, &Key, Round),
    ) -> bool {
        let Some((member, past)) = self.past_of(ranges, cx, (node, key, theirs)) else {
            return false;
        };
        self.tell_past(ranges, cx, key, (member, node), past);
        past.round.is_none()
    }
}
