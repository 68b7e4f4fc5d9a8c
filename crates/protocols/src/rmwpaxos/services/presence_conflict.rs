//! A register that one member holds and another does not [spec 9.5, 9.7]: did it miss it, or was it removed?
//!
//! Where it was deleted, a tombstone was accepted by all before anybody removed it. So who still holds something alive has
//! an older medium than it had; but who holds nothing, under a floor that another key or a restart has raised, may as well
//! have missed the write. A majority of the two alone cannot tell.
//!
//! - It waits for all who are up. Where a majority holds nothing, phase 1 starts from nothing: whatever one acceptor
//!   alone accepted is not chosen, and will not be, for that majority has promised more.
//! - A member that was found equal to another, under the floor that the other had then, and has removed nothing since,
//!   knows that the other cannot rightly hold what that floor covers. It says so when it is asked by that other, and
//!   sees it when it asks. One of the two media has taken something back then, and which one only a third can tell: what
//!   is disputed counts once another holds the same.
//! - Who holds it witnesses who durably held the same, as it found: if such a member holds nothing now, it has lost the
//!   register, and its absence counts for nothing. If that would be more members than hold it, its own medium has gone back
//!   under its process, which remembers what others held when it held less.

use base::Nanos;
use types::{Ballot, Key, NodeId, Round};

use crate::mutation::{self, Mutation};
use crate::peers::Member;
use crate::replicas::Places;
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::Register;
use crate::rmwpaxos::RmwPaxos;
use crate::rmwpaxos::core::operation::{Active, ReadRound};
use crate::rmwpaxos::core::proposer;
use crate::rmwpaxos::core::replies;
use crate::rmwpaxos::core::reports::Reports;
use crate::rmwpaxos::deletion;
use crate::rmwpaxos::message::Report;
use crate::rmwpaxos::services::rollback_detector::Past;

/// Members that are up are waited for: longer than it takes to find out that one is not.
const CONTESTED_FOR: Nanos = Nanos::from_secs(1);
/// Who has just started does not know yet who is up, and a link that has just ended may be back at once.
const UNSURE_FOR: Nanos = Nanos::from_secs(2);

impl RmwPaxos {
    /// What a member is known to have held, which forbids what it holds now, as it says.
    fn past_of(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        key: &Key,
        theirs: Round,
    ) -> Option<(usize, Past)> {
        if node == cx.replicas.me() || replies::is_lost(cx, key) {
            return None;
        }
        let own = replies::held(cx, key).filter(|register| !register.accepted.is_none());
        if own.map_or(Round::NONE, |register| register.accepted) == theirs {
            return None;
        }
        let (shard, member) = (key.shard(), cx.replicas.index(node)?);
        let past = match own {
            None => {
                let (loss, floor) = self.ranges.was_equal_under(shard, member)?;
                Past { round: Round::NONE, floor, loss }
            }
            Some(register) => {
                let loss = self.ranges.was_held_with(shard, member)?;
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

    /// A member says that it holds this, which is not held here, nor can it be there: it says so once more, and hears no more
    /// than that.
    pub(crate) fn denies(
        &mut self,
        cx: &mut Cx<'_>,
        node: NodeId,
        key: &Key,
        theirs: Round,
    ) -> bool {
        let denied = self.past_of(cx, node, key, theirs).filter(|(_, past)| past.round.is_none());
        let Some((member, past)) = denied.filter(|_| !mutation::is(Mutation::DenialIgnored)) else {
            return false;
        };
        if self.may_tell(cx, key.shard(), member) {
            self.tell_older(cx, key.clone(), (member, node), past);
        }
        true
    }

    /// Members that durably held what is held here of a register. If they hold nothing now they have lost it.
    fn witnessed(&self, cx: &Cx<'_>, key: &Key) -> Places {
        let shard = key.shard();
        let held_with = |(index, member): (usize, &Member)| {
            let loss = self.ranges.was_held_with(shard, index);
            let was_held = loss.is_some_and(|loss| member.loss <= loss);
            let is_other = member.node != cx.replicas.me();
            (is_other && (was_held || self.ranges.was_told(shard, index))).then_some(1 << index)
        };
        let members = cx.replicas.members().enumerate();
        members.filter_map(held_with).fold(0, |set, bit| set | bit)
    }

    fn tell_past(&mut self, cx: &mut Cx<'_>, key: &Key, to: (usize, NodeId), past: Past) {
        if self.is_to_be_told(cx, key.shard()) {
            self.tell_older(cx, key.clone(), to, past);
        }
    }

    /// What is reported to a member that says what it holds itself.
    pub(crate) fn report_to(
        &mut self,
        cx: &mut Cx<'_>,
        node: NodeId,
        key: &Key,
        have: Round,
    ) -> Report {
        let mut report = replies::report_of(cx, key, have);
        if !report.accepted.is_none() && report.accepted != have {
            report.witnessed = self.witnessed(cx, key);
        }
        if let Some((member, past)) = self.past_of(cx, node, key, have) {
            if past.round.is_none() {
                base::sometimes!("a member denies what another holds");
                report.denies = true;
            }
            self.tell_past(cx, key, (member, node), past);
        }
        report
    }

    /// A member's report was added, which this node may know to be impossible.
    pub(crate) fn dispute_impossible(
        &mut self,
        cx: &mut Cx<'_>,
        node: NodeId,
        key: &Key,
        theirs: Round,
        reports: &mut Reports,
    ) {
        let Some((member, past)) = self.past_of(cx, node, key, theirs) else { return };
        if past.round.is_none() {
            reports.dispute(cx.replicas, node);
        }
        self.tell_past(cx, key, (member, node), past);
    }

    /// Phase 1 is won, but one member holds what another may have removed: true while others may still tell. One that
    /// refuses tells nothing, and has the ballot given up.
    pub(crate) fn awaits_others(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> bool {
        if !active.promises.is_contested(cx.replicas) || mutation::is(Mutation::OneHolderWins) {
            return false;
        }
        let is_missing = |member: &Member| {
            self.may_speak(cx, member) && !active.promises.tally.has(cx.replicas, member.node)
        };
        if !cx.replicas.members().any(is_missing) {
            return false;
        }
        if active.contested_until == Nanos::ZERO {
            base::sometimes!("what one holds and another may have removed waits for the rest");
            active.contested_until = cx.now + CONTESTED_FOR;
            if active.ask_rest_at > Nanos::ZERO {
                proposer::ask_rest(cx, active);
            }
        }
        cx.now < active.contested_until
    }

    /// Until when a read that does not decide waits, if anybody may still say something.
    pub(crate) fn awaits_until(&self, cx: &Cx<'_>, round: &ReadRound) -> Option<Nanos> {
        let is_contested =
            round.reports.is_contested(cx.replicas) && !mutation::is(Mutation::OneHolderWins);
        let is_missing = |member: &Member| {
            let may_speak = if is_contested { self.may_speak(cx, member) } else { member.up };
            may_speak && !round.reports.tally.has(cx.replicas, member.node)
        };
        let contested_until = if is_contested { round.sent + CONTESTED_FOR } else { Nanos::ZERO };
        let until = round.patient_until.max(contested_until);
        (cx.now < until && cx.replicas.members().any(is_missing)).then_some(until)
    }

    fn may_speak(&self, cx: &Cx<'_>, member: &Member) -> bool {
        let is_recent = |at: Nanos| cx.now < at + UNSURE_FOR;
        let left_at = cx.replicas.peers.index(member.node).and_then(|index| self.left_at[index]);
        member.up || self.ranges.started.is_none_or(is_recent) || left_at.is_some_and(is_recent)
    }

    /// A read has found that nothing is held, or never was, by a majority, and something by one: they are compared soon.
    pub(crate) fn doubt_contested(&mut self, cx: &mut Cx<'_>, key: &Key, reports: &Reports) {
        let own = replies::held(cx, key).map_or(Round::NONE, |register| register.accepted);
        let differs = |(node, report): (NodeId, &Report)| {
            let index = cx.replicas.index(node).filter(|_| report.accepted != own)?;
            Some(1 << index)
        };
        let with = reports.counted(cx.replicas).filter_map(differs).fold(0, |set, bit| set | bit);
        self.doubt_once(cx, key.shard(), with);
    }
}
