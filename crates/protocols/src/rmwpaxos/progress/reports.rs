//! Reports of members about one register: the answers to a quorum read, to phase 1, to a recovery.

use types::{AmnesiaCount, NodeId, Round};

use crate::mutation::{self, Mutation};
use crate::quorum::Tally;
use crate::replicas::{Places, Replicas, outnumber, place};
use crate::rmwpaxos::message::Report;
use crate::rmwpaxos::record::state::State;

/// The newest report of each member.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    pub tally: Tally,
    /// As long as the last member that has answered.
    by_member: Vec<Option<Report>>,
    /// Members whose report this node knows to be impossible, unless this node's own memory is
    /// lost.
    disputed: Places,
}

impl Reports {
    pub fn clear(&mut self) {
        self.tally = Tally::default();
        self.by_member.clear();
        self.disputed = 0;
    }

    pub fn add(
        &mut self,
        replicas: Replicas<'_>,
        from: NodeId,
        amnesia: AmnesiaCount,
        report: Report,
    ) {
        let Some(index) = replicas.index(from) else { return };
        // A report from before an amnesia must not replace a later one and count as if it were
        // later.
        if self.tally.add(replicas, from, amnesia) || self.tally.is_from(index, amnesia) {
            if self.by_member.len() <= index {
                self.by_member.resize(index + 1, None);
            }
            self.by_member[index] = Some(report);
            self.disputed &= !(1 << index);
        }
    }

    /// Notes that this node's knowledge contradicts the member's report.
    pub(crate) fn dispute(&mut self, replicas: Replicas<'_>, node: NodeId) {
        if let Some(index) = replicas.index(node) {
            self.disputed |= 1 << index;
        }
    }

    /// Reports that count now.
    pub fn counted<'a>(
        &'a self,
        replicas: Replicas<'a>,
    ) -> impl Iterator<Item = (NodeId, &'a Report)> + 'a {
        let given = self.given(replicas).filter(move |(index, _)| !self.is_void(replicas, *index));
        given.map(move |(index, report)| (replicas.at(index).node, report))
    }

    /// Reports that count now, each with its place.
    pub(crate) fn by_place<'a>(
        &'a self,
        replicas: Replicas<'a>,
    ) -> impl Iterator<Item = (Places, &'a Report)> + 'a {
        let given = self.given(replicas).filter(move |(index, _)| !self.is_void(replicas, *index));
        given.map(|(index, report)| (place(index), report))
    }

    /// The places whose report counts now and `is` so.
    pub(crate) fn places(&self, replicas: Replicas<'_>, is: impl Fn(&Report) -> bool) -> Places {
        let those = self.by_place(replicas).filter(|(_, report)| is(report));
        those.fold(0, |set, (at, _)| set | at)
    }

    /// Reports of this life of their members, by the members' places.
    fn given<'a>(
        &'a self,
        replicas: Replicas<'a>,
    ) -> impl Iterator<Item = (usize, &'a Report)> + 'a {
        let members = replicas.members().zip(&self.by_member).enumerate();
        members.filter_map(move |(index, (member, report))| {
            let report = report.as_ref()?;
            self.tally.has(replicas, member.node).then_some((index, report))
        })
    }

    /// Members that lack the register although another member witnessed that they durably held its
    /// round: they have lost it. Empty if they outnumber the holders, since one rolled-back medium
    /// is then likelier.
    pub(crate) fn lost(&self, replicas: Replicas<'_>) -> Places {
        let witnessed = self.counted(replicas).fold(0, |set, (_, report)| set | report.witnessed);
        if witnessed == 0 || mutation::is(Mutation::WitnessIgnored) {
            return 0;
        }
        let given = self.given(replicas).filter(|(index, _)| witnessed & 1 << index != 0);
        let lost = given.filter(|(_, report)| report.accepted.is_none() && !report.denies);
        let lost = lost.fold(0, |set, (index, _)| set | place(index));
        let holding = self.places(replicas, |report| !report.accepted.is_none());
        match outnumber(lost, holding) && !mutation::is(Mutation::WitnessAlone) {
            true => 0,
            false => lost,
        }
    }

    #[must_use]
    pub fn is_quorum(&self, replicas: Replicas<'_>) -> bool {
        replicas.is_quorum(&self.tally)
            && (!self.has_disputes() || replicas.set.is_quorum_of(self.places(replicas, |_| true)))
    }

    /// The state of `round` in any report.
    #[must_use]
    pub fn state_of(&self, round: Round) -> Option<State> {
        self.by_member
            .iter()
            .flatten()
            .find(|report| report.accepted == round && report.state.is_some())
            .and_then(|report| report.state.clone())
    }

    /// True if the newest reported register is alive and a member lacks it under a floor that
    /// covers it. There it was removed, or never arrived.
    #[must_use]
    pub(crate) fn is_contested(&self, replicas: Replicas<'_>) -> bool {
        let counted = || self.counted(replicas).map(|(_, report)| report);
        if !counted().any(|report| report.accepted.is_none()) {
            return false;
        }
        let highest = counted().map(|report| report.accepted).max().unwrap_or(Round::NONE);
        counted().any(|report| covers(report, highest)) && self.is_alive(highest)
    }

    fn is_alive(&self, round: Round) -> bool {
        !round.is_none() && self.state_of(round).is_none_or(|state| !state.is_tombstone())
    }

    pub(crate) fn has_disputes(&self) -> bool {
        let denies = |report: &Report| report.denies;
        (self.disputed != 0 || self.by_member.iter().flatten().any(denies))
            && !mutation::is(Mutation::DenialIgnored)
    }

    /// True for a report that a member without the register denies and no other confirms.
    fn is_void(&self, replicas: Replicas<'_>, index: usize) -> bool {
        if !self.has_disputes() {
            return false;
        }
        let Some(report) = self.by_member[index].as_ref() else { return false };
        let round = report.accepted;
        let is_own = replicas.set.me() == Some(index);
        let is_denied = self.disputed & 1 << index != 0
            || (is_own && self.given(replicas).any(|(_, it)| it.denies && covers(it, round)));
        let is_confirmed =
            || self.given(replicas).any(|(other, it)| other != index && it.accepted == round);
        is_denied && self.is_alive(round) && !is_confirmed()
    }
}

/// True if the report is absent under a floor that refuses this round.
fn covers(absent: &Report, round: Round) -> bool {
    absent.accepted.is_none() && absent.floor_ballot >= round.ballot()
}
