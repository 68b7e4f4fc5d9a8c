//! Members without a connection to this node, and when to log them. Knows no sockets.

use std::collections::BTreeMap;

use base::Nanos;
use types::NodeId;

/// After so long without a connection a member counts as not reached.
pub(super) const PATIENCE: Nanos = Nanos::from_secs(10);

/// Members without a connection.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// Since when, and whether it was said.
    missing: BTreeMap<NodeId, (Nanos, bool)>,
}

impl Reach {
    /// Takes the members that are missing now. Returns those missing for [`PATIENCE`], once per
    /// absence.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        missing: impl Iterator<Item = NodeId>,
    ) -> Vec<NodeId> {
        let before = std::mem::take(&mut self.missing);
        let since = |node| before.get(&node).copied().unwrap_or((now, false));
        self.missing = missing.map(|node| (node, since(node))).collect();
        let mut due = Vec::new();
        for (&node, (since, is_said)) in &mut self.missing {
            if !*is_said && now >= *since + PATIENCE {
                *is_said = true;
                due.push(node);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);

    fn look(reach: &mut Reach, seconds: u64, missing: &[NodeId]) -> Vec<NodeId> {
        reach.look(Nanos::from_secs(seconds), missing.iter().copied())
    }

    #[test]
    fn a_member_is_named_once_when_patience_is_over() {
        let mut reach = Reach::default();
        assert_eq!(look(&mut reach, 0, &[NODE, NodeId(3)]), []);
        assert_eq!(look(&mut reach, 9, &[NODE]), []);
        assert_eq!(look(&mut reach, 10, &[NODE]), [NODE]);
        assert_eq!(look(&mut reach, 60, &[NODE]), []);
    }

    #[test]
    fn a_connection_starts_the_wait_anew() {
        let mut reach = Reach::default();
        look(&mut reach, 0, &[NODE]);
        look(&mut reach, 10, &[NODE]);
        look(&mut reach, 20, &[]);
        assert_eq!(look(&mut reach, 30, &[NODE]), []);
        assert_eq!(look(&mut reach, 39, &[NODE]), []);
        assert_eq!(look(&mut reach, 40, &[NODE]), [NODE]);
    }
}
