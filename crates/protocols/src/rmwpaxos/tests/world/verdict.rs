//! The verdict on a schedule.

use checker::linearizable::check;
use checker::model::kv::Kv;
use checker::verdict::{Limit, Verdict};

use super::World;

impl World {
    /// All nodes are at rest, so each request to a living process must have its answer.
    pub(super) fn find_unanswered(&mut self) {
        for (tag, (node, incarnation)) in &self.asked_at {
            let peers = &self.nodes[*node].peers;
            let lives = peers.get(peers.me()).is_some_and(|me| me.incarnation == *incarnation);
            if lives && !self.outcomes.contains_key(tag) {
                self.fault.get_or_insert(format!("{tag:?} was never answered"));
            }
        }
    }

    /// The first fault, or the verdict on the histories.
    pub(in super::super) fn verdict(&mut self) -> Result<(), String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        self.complete_denied();
        for (key, history) in &self.histories {
            match check(&Kv, history, Limit { explored_max: 200_000 }) {
                Verdict::Violation(violation) => return Err(format!("{key:?}: {violation}")),
                // Many unknown outcomes make some histories too hard; they are counted, not
                // believed.
                Verdict::Undecided { .. } => self.undecided += 1,
                Verdict::Holds { .. } => {}
            }
        }
        Ok(())
    }

    /// Ends commands whose every transmission was answered as without effect.
    fn complete_denied(&mut self) {
        for ((key, _), repeated) in &mut self.repeated {
            if repeated.told.is_none() && repeated.denied == repeated.sent {
                // Not to be completed twice by a second verdict.
                repeated.sent += 1;
                self.clock += 1;
                let history = self.histories.get_mut(key).expect("it was sent");
                history.complete(repeated.op, checker::Outcome::Failed, self.clock);
            }
        }
    }
}
