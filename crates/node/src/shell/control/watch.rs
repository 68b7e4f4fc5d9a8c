//! Changes of members and of recovery that an operator should know. Free of sockets and clocks.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Incarnation, NodeId};

/// Between two lines about the progress of a recovery.
const PROGRESS_EVERY: Nanos = Nanos::from_secs(5);
/// Workers publish within this time that they recover.
const CONFIRMED_WITHIN: Nanos = Nanos::from_secs(1);

/// Which members all links join to this node.
#[derive(Debug, Default)]
pub(super) struct Members {
    known: BTreeMap<NodeId, Member>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    is_up: bool,
    since: Nanos,
    incarnation: Incarnation,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// For the first time.
    Reached,
    Lost,
    Back {
        after: Nanos,
        has_restarted: bool,
    },
}

impl Members {
    /// Takes the present state of all other members. Returns those that changed.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        members: impl Iterator<Item = (NodeId, bool, Incarnation)>,
    ) -> Vec<(NodeId, Change)> {
        let mut changes = Vec::new();
        for (node, is_up, incarnation) in members {
            let before = self.known.get(&node).copied();
            let change = match before {
                None if is_up => Change::Reached,
                Some(before) if before.is_up && !is_up => Change::Lost,
                Some(before) if !before.is_up && is_up => Change::Back {
                    after: now.since(before.since),
                    has_restarted: incarnation > before.incarnation,
                },
                _ => continue,
            };
            self.known.insert(node, Member { is_up, since: now, incarnation });
            changes.push((node, change));
        }
        changes
    }

    pub(super) fn is_up(&self, node: NodeId) -> bool {
        self.known.get(&node).is_some_and(|member| member.is_up)
    }
}

/// The recovery of data that this node has lost.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    going_on: Option<GoingOn>,
}

#[derive(Clone, Copy, Debug)]
struct GoingOn {
    since: Nanos,
    /// Workers have said that they recover.
    is_confirmed: bool,
    reported_at: Nanos,
    /// Shards to recover, at most so far.
    most: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Begun,
    Progress { shards_left: u64, percent: u64 },
    Done { took: Nanos },
}

impl Recovery {
    /// Data was lost. True if no recovery was going on.
    pub(super) fn begin(&mut self, now: Nanos) -> bool {
        let is_new = self.going_on.is_none();
        if is_new {
            let going_on = GoingOn { since: now, is_confirmed: false, reported_at: now, most: 0 };
            self.going_on = Some(going_on);
        }
        is_new
    }

    pub(super) fn is_on(&self) -> bool {
        self.going_on.is_some()
    }

    /// Takes what the workers say of it.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        is_recovering: bool,
        shards_left: u64,
    ) -> Option<Step> {
        let Some(going_on) = &mut self.going_on else {
            return (is_recovering && self.begin(now)).then_some(Step::Begun);
        };
        going_on.is_confirmed |= is_recovering;
        going_on.most = going_on.most.max(shards_left);
        if !is_recovering {
            let is_over = going_on.is_confirmed || now >= going_on.since + CONFIRMED_WITHIN;
            let took = now.since(going_on.since);
            return is_over.then(|| {
                self.going_on = None;
                Step::Done { took }
            });
        }
        if now < going_on.reported_at + PROGRESS_EVERY {
            return None;
        }
        going_on.reported_at = now;
        let done = going_on.most - shards_left;
        let percent = (done * 100).checked_div(going_on.most).unwrap_or(0);
        Some(Step::Progress { shards_left, percent })
    }
}

/// `0.25s`, `12.3s`, `2m05s`.
pub(super) fn duration(time: Nanos) -> String {
    let millis = time.as_millis();
    match millis {
        0..60_000 => format!("{}.{}s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{}m{:02}s", millis / 60_000, millis / 1_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: NodeId = NodeId(2);

    fn look(members: &mut Members, second: u64, is_up: bool, start: u32) -> Option<Change> {
        let state = (PEER, is_up, Incarnation(start));
        let changes = members.look(Nanos::from_secs(second), std::iter::once(state));
        changes.first().map(|(_, change)| *change)
    }

    #[test]
    fn each_change_of_a_member_is_told_once() {
        let mut members = Members::default();
        assert_eq!(look(&mut members, 0, false, 0), None, "it was never reached");
        assert_eq!(look(&mut members, 1, true, 1), Some(Change::Reached));
        assert_eq!(look(&mut members, 2, true, 1), None);
        assert_eq!(look(&mut members, 3, false, 1), Some(Change::Lost));
        assert_eq!(look(&mut members, 4, false, 1), None);
        let back = Change::Back { after: Nanos::from_secs(4), has_restarted: true };
        assert_eq!(look(&mut members, 7, true, 2), Some(back));
        assert!(members.is_up(PEER));
    }

    #[test]
    fn a_recovery_begins_proceeds_and_ends() {
        let mut recovery = Recovery::default();
        let at = Nanos::from_secs;
        assert_eq!(recovery.look(at(0), false, 0), None);
        assert_eq!(recovery.look(at(1), true, 256), Some(Step::Begun));
        assert_eq!(recovery.look(at(2), true, 256), None);
        let progress = Step::Progress { shards_left: 64, percent: 75 };
        assert_eq!(recovery.look(at(6), true, 64), Some(progress));
        assert_eq!(recovery.look(at(7), true, 0), None);
        assert_eq!(recovery.look(at(8), false, 0), Some(Step::Done { took: at(7) }));
        assert_eq!(recovery.look(at(9), false, 0), None);
    }

    #[test]
    fn a_recovery_lasts_until_workers_have_heard_of_it() {
        let mut recovery = Recovery::default();
        let at = Nanos::from_millis;
        assert!(recovery.begin(at(1)) && !recovery.begin(at(2)));
        assert_eq!(recovery.look(at(100), false, 0), None, "not published yet");
        assert_eq!(recovery.look(at(300), true, 3), None);
        assert!(matches!(recovery.look(at(400), false, 0), Some(Step::Done { .. })));
        assert!(recovery.begin(at(500)));
        assert!(matches!(recovery.look(at(1_500), false, 0), Some(Step::Done { .. })));
    }

    #[test]
    fn durations_read_like_a_watch() {
        assert_eq!(duration(Nanos::from_millis(250)), "0.2s");
        assert_eq!(duration(Nanos::from_millis(12_345)), "12.3s");
        assert_eq!(duration(Nanos::from_millis(125_000)), "2m05s");
    }
}
