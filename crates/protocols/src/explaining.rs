//! One explanation in progress: the members' answers so far. Shared by protocols that explain keys.

use base::Nanos;
use types::explain::{Explanation, Held, Replica};
use types::limits::MEMBERS_MAX;
use types::{Key, NodeId, Outcome, Tag};

use crate::replicas::Replicas;

/// Explanations of one instance in progress at a time.
pub(crate) const EXPLANATIONS_MAX: usize = 64;
/// A person waits for silent members for at most this time.
const WAIT_MAX: Nanos = Nanos::from_millis(500);

#[derive(Debug)]
pub(crate) struct Explaining {
    pub(crate) key: Key,
    tag: Tag,
    /// By place in the view.
    held: [Option<Held>; MEMBERS_MAX],
    pub(crate) deadline: Nanos,
    pub(crate) resend_at: Nanos,
    pub(crate) resends: u32,
}

impl Explaining {
    pub(crate) fn new(tag: Tag, key: Key, now: Nanos, timeout: Nanos) -> Explaining {
        Explaining {
            key,
            tag,
            held: [const { None }; MEMBERS_MAX],
            deadline: now + timeout.min(WAIT_MAX),
            resend_at: Nanos::MAX,
            resends: 0,
        }
    }

    pub(crate) fn add(&mut self, replicas: Replicas<'_>, from: NodeId, held: Held) {
        if let Some(index) = replicas.index(from) {
            self.held[index] = Some(held);
        }
    }

    /// Members that did not answer yet.
    pub(crate) fn missing(&self, replicas: Replicas<'_>) -> Vec<NodeId> {
        let members = replicas.members().zip(&self.held);
        members.filter(|(_, held)| held.is_none()).map(|(member, _)| member.node).collect()
    }

    /// Ends the explanation. A member without an answer is silent.
    pub(crate) fn end(self, replicas: Replicas<'_>) -> (Tag, Outcome) {
        let members = replicas.members().zip(self.held);
        let replicas = members
            .map(|(member, held)| Replica { node: member.node, held: held.unwrap_or(Held::Silent) })
            .collect();
        let explanation = Explanation { key: self.key, replicas };
        (self.tag, Outcome::Explained(Box::new(explanation)))
    }
}
