//! Presence conflicts: evidence about a register that one member holds and another does not [spec
//! 9.5, 9.7].
//!
//! - A member that was found equal to another, under the floor that the other had then, and has
//!   removed nothing since, knows that the other cannot rightly hold a register which that floor
//!   covers. It says so when it is asked by that other, and sees it when it asks. One of the two
//!   media has taken something back then, and which one only a third can tell: a disputed register
//!   counts once another member holds the same.
//! - A member that holds it witnesses which members durably held the same, as it found: if such a
//!   member holds nothing now, it has lost the register, and its absence counts for nothing. If
//!   that would be more members than hold it, its own medium has gone back under its process, which
//!   remembers what others held when it held less.

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
    /// What a member is known to have held, which forbids what it holds now, as it says.
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
                let (loss, floor) = ranges.was_equal_under(shard, member)?;
                Past { round: Round::NONE, floor, loss }
            }
            Some(register) => {
                let loss = ranges.was_held_with(shard, member)?;
                Past { round: register.accepted, floor: Ballot::ZERO, loss }
            }
        };
        // A tombstone may have been removed there since.
        let is_left_over = |register: &Register| deletion::leftover(register).is_some();
        let is_removed = theirs.is_none() && own.is_some_and(is_left_over);
        // Whether that was something of this shard only the member knows.
        let has_lost = own.is_none() && cx.replicas.at(member).loss > past.loss;
        let is_impossible = past.forbids(theirs, Ballot::ZERO) && !is_removed && !has_lost;
        is_impossible.then_some((member, past))
    }

    /// A member says that it holds this, which is not held here, nor can it be there: it says so
    /// once more, and hears no more than that.
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

    /// Members that durably held what is held here of a register. If they hold nothing now they
    /// have lost it.
    fn witnessed(&self, ranges: &Ranges, cx: &Cx<'_>, key: &Key) -> Places {
        let shard = key.shard();
        let held_with = |(index, member): (usize, &Member)| {
            let loss = ranges.was_held_with(shard, index);
            let was_held = loss.is_some_and(|loss| member.loss <= loss);
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

    /// Adds to the own report for a member that says what it holds itself.
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
                base::sometimes!("a member denies what another holds");
                report.denies = true;
            }
            self.tell_past(ranges, cx, key, (member, node), past);
        }
    }

    /// True if this node knows that the member cannot rightly hold what it reports.
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
