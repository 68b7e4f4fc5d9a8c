//! A register that one member holds and another does not [spec 9.5, 9.7]: did it miss it, or was it
//! removed?
//!
//! Where a register was deleted, all members accepted a tombstone before one of them removed it. So
//! a member that still holds a live register has an older medium than it had. But a member without
//! the register, under a floor that another key or a restart has raised, may as well have missed
//! the write. A majority of the two alone cannot tell.
//!
//! So the proposer and readers wait for all members that are up. If a majority does not hold it,
//! phase 1 starts from an absent register. A round that one acceptor alone accepted is not chosen.
//! It never will be, for that majority has promised more.

use base::Nanos;
use types::{Key, NodeId, Round};

use super::hooks::Notice;
use super::instance::Core;
use super::proposer;
use crate::mutation::{self, Mutation};
use crate::peers::Member;
use crate::rmwpaxos::context::{Cx, held};
use crate::rmwpaxos::message::Report;
use crate::rmwpaxos::progress::active::{Active, Phase, ReadRound};
use crate::rmwpaxos::progress::reports::Reports;

/// How long to wait for members that are up: longer than the detection of a failure.
const CONTESTED_FOR: Nanos = Nanos::from_secs(1);
/// A node that has just started does not know yet which members are up, and a link that has just
/// ended may be back soon.
const UNSURE_FOR: Nanos = Nanos::from_secs(2);

impl Core {
    /// Phase 1 is won, but one member holds a register that another may have removed. True while
    /// others may still decide that. A refusal ends the ballot.
    pub(super) fn awaits_others(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> bool {
        let Phase::Preparing(one) = &mut active.phase else { return false };
        if !one.promises.is_contested(cx.replicas) || mutation::is(Mutation::OneHolderWins) {
            return false;
        }
        let is_missing = |member: &Member| {
            self.may_speak(cx, member) && !one.promises.tally.has(cx.replicas, member.node)
        };
        if !cx.replicas.members().any(is_missing) {
            return false;
        }
        let until = *one.contested_until.get_or_insert_with(|| {
            base::sometimes!("a register that another may have removed waits for the rest");
            cx.now + CONTESTED_FOR
        });
        if one.ask_rest_at.is_some() {
            proposer::ask_rest(cx, active);
        }
        cx.now < until
    }

    /// The end of an undecided read's wait, if a member may still answer it.
    pub(super) fn awaits_until(&self, cx: &Cx<'_>, round: &ReadRound) -> Option<Nanos> {
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
        member.up || self.started.is_none_or(is_recent) || left_at.is_some_and(is_recent)
    }

    /// Notes that a majority lacks the register and a member holds it.
    pub(super) fn tell_contested(&mut self, cx: &Cx<'_>, key: &Key, reports: &Reports) {
        let own = held(cx, key).map_or(Round::NONE, |register| register.accepted);
        let differs = |(node, report): (NodeId, &Report)| {
            let index = cx.replicas.index(node).filter(|_| report.accepted != own)?;
            Some(1 << index)
        };
        let with = reports.counted(cx.replicas).filter_map(differs).fold(0, |set, bit| set | bit);
        self.notices.push(Notice::Contested { shard: key.shard(), with });
    }
}
