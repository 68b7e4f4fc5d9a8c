//! What members say they hold of one register: the answers to a quorum read, to phase 1, to a recovery.

use types::{Loss, NodeId, Round};

use super::message::Report;
use super::owed::Members;
use super::state::State;
use crate::mutation::{self, Mutation};
use crate::quorum::Tally;
use crate::view::View;

/// The newest report of each member.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    pub tally: Tally,
    /// As long as the last member that has answered.
    by_member: Vec<Option<Report>>,
    /// Members whose report this node knows to be impossible, unless it is this node that has lost something.
    disputed: Members,
}

impl Reports {
    pub fn clear(&mut self) {
        self.tally = Tally::default();
        self.by_member.clear();
        self.disputed = 0;
    }

    pub fn add(&mut self, view: &View, from: NodeId, loss: Loss, report: Report) {
        let Some(index) = view.index(from) else { return };
        // A report from before a loss must not take the place of a later one and count as if it were later.
        if self.tally.add(view, from, loss) || self.tally.is_from(index, loss) {
            if self.by_member.len() <= index {
                self.by_member.resize(index + 1, None);
            }
            self.by_member[index] = Some(report);
            self.disputed &= !(1 << index);
        }
    }

    /// What this member reported should not be there; see [`super::absence`].
    pub(super) fn dispute(&mut self, view: &View, node: NodeId) {
        if let Some(index) = view.index(node) {
            self.disputed |= 1 << index;
        }
    }

    /// Reports that count now.
    pub fn counted<'a>(
        &'a self,
        view: &'a View,
    ) -> impl Iterator<Item = (NodeId, &'a Report)> + 'a {
        self.given(view).filter(|(index, _)| !self.is_void(view, *index)).map(|(index, report)| {
            let member = &view.members()[index];
            (member.node, report)
        })
    }

    /// Reports of this life of their members, by the members' places.
    fn given<'a>(&'a self, view: &'a View) -> impl Iterator<Item = (usize, &'a Report)> + 'a {
        let members = view.members().iter().zip(&self.by_member).enumerate();
        members.filter_map(move |(index, (member, report))| {
            let report = report.as_ref()?;
            self.tally.has(view, member.node).then_some((index, report))
        })
    }

    /// Members that hold nothing, and durably held what another reports, as that one knows: they have lost it. Unless
    /// these are more than those who hold something: then one medium that has gone back is likelier than several.
    pub(super) fn lost(&self, view: &View) -> usize {
        let witnessed = self.counted(view).fold(0, |set, (_, report)| set | report.witnessed);
        if witnessed == 0 || mutation::is(Mutation::WitnessIgnored) {
            return 0;
        }
        let given = self.given(view).filter(|(index, _)| witnessed & 1 << index != 0);
        let lost = given.filter(|(_, report)| report.accepted.is_none() && !report.denies).count();
        let holding = self.counted(view).filter(|(_, report)| !report.accepted.is_none()).count();
        match lost > holding && !mutation::is(Mutation::WitnessAlone) {
            true => 0,
            false => lost,
        }
    }

    #[must_use]
    pub fn is_majority(&self, view: &View) -> bool {
        self.tally.is_majority(view)
            && (!self.has_disputes() || self.counted(view).count() >= view.majority())
    }

    /// The state of `round`, from whoever sent it.
    #[must_use]
    pub fn state_of(&self, round: Round) -> Option<State> {
        self.by_member
            .iter()
            .flatten()
            .find(|report| report.accepted == round && report.state.is_some())
            .and_then(|report| report.state.clone())
    }

    /// The newest that is held is alive, and somebody holds nothing under a floor that covers it: there it was removed, or
    /// never arrived.
    #[must_use]
    pub(super) fn is_contested(&self, view: &View) -> bool {
        let counted = || self.counted(view).map(|(_, report)| report);
        if !counted().any(|report| report.accepted.is_none()) {
            return false;
        }
        let highest = counted().map(|report| report.accepted).max().unwrap_or(Round::NONE);
        counted().any(|report| covers(report, highest)) && self.is_alive(highest)
    }

    fn is_alive(&self, round: Round) -> bool {
        !round.is_none() && self.state_of(round).is_none_or(|state| !state.is_tombstone())
    }

    pub(super) fn has_disputes(&self) -> bool {
        let denies = |report: &Report| report.denies;
        (self.disputed != 0 || self.by_member.iter().flatten().any(denies))
            && !mutation::is(Mutation::DenialIgnored)
    }

    /// A member that holds nothing knows that this one held nothing, either; and nobody else holds the same.
    fn is_void(&self, view: &View, index: usize) -> bool {
        if !self.has_disputes() {
            return false;
        }
        let Some(report) = self.by_member[index].as_ref() else { return false };
        let round = report.accepted;
        let is_own = view.index(view.me) == Some(index);
        let is_denied = self.disputed & 1 << index != 0
            || (is_own && self.given(view).any(|(_, it)| it.denies && covers(it, round)));
        let is_confirmed =
            || self.given(view).any(|(other, it)| other != index && it.accepted == round);
        is_denied && self.is_alive(round) && !is_confirmed()
    }
}

/// Nothing is held there, and nothing up to this round would be accepted.
fn covers(absent: &Report, round: Round) -> bool {
    absent.accepted.is_none() && absent.floor_ballot >= round.ballot()
}
