//! Counting distinct, crash-consistent answers.

use types::limits::MEMBERS_MAX;
use types::{Loss, NodeId};

use crate::mutation::{self, Mutation};
use crate::view::View;

/// Who has answered, and with which loss.
///
/// [Michael et al., DISC 2017] An answer stops counting once its sender is known to have lost its memory since,
/// so a tally is counted against the view at the moment of the decision, never earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Loss plus one per member index; zero: no answer.
    answers: [u32; MEMBERS_MAX],
}

impl Tally {
    /// Records an answer; a newer loss replaces an older one. True when it is new.
    pub fn add(&mut self, view: &View, node: NodeId, loss: Loss) -> bool {
        let Some(index) = view.index(node) else { return false };
        let is_new = self.answers[index] < loss.0 + 1;
        if !is_new
            && mutation::is(Mutation::AnswerCountedTwice)
            && let Some(silent) = (0..view.members().len()).find(|&index| !self.counts(view, index))
        {
            self.answers[silent] = view.members()[silent].loss.0 + 1;
        }
        self.answers[index] = self.answers[index].max(loss.0 + 1);
        is_new
    }

    /// True when the answer that counts for the member at `index` was given at this loss.
    #[must_use]
    pub fn is_from(&self, index: usize, loss: Loss) -> bool {
        self.answers[index] == loss.0 + 1
    }

    /// Forgets a member's answer.
    pub fn remove(&mut self, view: &View, node: NodeId) {
        if let Some(index) = view.index(node) {
            self.answers[index] = 0;
        }
    }

    /// True when the member's answer counts now.
    #[must_use]
    pub fn has(&self, view: &View, node: NodeId) -> bool {
        view.index(node).is_some_and(|index| self.counts(view, index))
    }

    /// Answers that count now.
    #[must_use]
    pub fn count(&self, view: &View) -> usize {
        (0..view.members().len()).filter(|&index| self.counts(view, index)).count()
    }

    #[must_use]
    pub fn is_majority(&self, view: &View) -> bool {
        self.count(view) >= view.majority()
    }

    /// Everybody.
    #[must_use]
    pub fn is_all(&self, view: &View) -> bool {
        self.count(view) == view.members().len()
    }

    fn counts(&self, view: &View, index: usize) -> bool {
        let answered = self.answers[index];
        answered > view.members()[index].loss.0
            || (answered > 0 && mutation::is(Mutation::NoCrashVector))
    }
}

#[cfg(test)]
mod tests {
    use types::{Epoch, Incarnation};

    use super::*;

    fn view() -> View {
        View::new(Epoch(1), NodeId(1), Incarnation(1), Loss(1), &[NodeId(1), NodeId(2), NodeId(3)])
    }

    #[test]
    fn one_member_counts_once() {
        let view = view();
        let mut tally = Tally::default();
        assert!(tally.add(&view, NodeId(2), Loss(1)));
        assert!(!tally.add(&view, NodeId(2), Loss(1)));
        assert!(!tally.is_majority(&view));
        assert!(tally.add(&view, NodeId(3), Loss(4)));
        assert!(tally.is_majority(&view));
        assert!(!tally.is_all(&view));
    }

    #[test]
    fn an_answer_is_void_once_its_sender_lost_its_memory() {
        let mut view = view();
        let mut tally = Tally::default();
        tally.add(&view, NodeId(1), Loss(1));
        tally.add(&view, NodeId(2), Loss(1));
        assert!(tally.is_majority(&view));
        assert!(view.learn(NodeId(2), Incarnation(2), Loss(2)));
        assert!(!tally.is_majority(&view));
        assert!(tally.add(&view, NodeId(2), Loss(2)));
        assert!(tally.is_majority(&view));
    }

    #[test]
    fn strangers_do_not_count() {
        let view = view();
        let mut tally = Tally::default();
        assert!(!tally.add(&view, NodeId(9), Loss(1)));
        assert_eq!(tally.count(&view), 0);
    }
}
