//! Changes of members and of recovery that an operator should know. Free of sockets and clocks.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Incarnation, NodeId};

/// Between two lines about the progress of a recovery.
const PROGRESS_EVERY: Nanos = Nanos::from_secs(5);
/// Workers publish within this time that they recover.
const CONFIRMED_WITHIN: Nanos = Nanos::from_secs(1);

/// A member counts as lost after this time without all of its links. Shorter gaps are routine:
/// nodes reconnect when their counters change.
const GRACE: Nanos = Nanos::from_millis(500);

/// Members that this node has reached.
#[derive(Debug, Default)]
pub(super) struct Members {
    known: BTreeMap<NodeId, WatchedMember>,
}

#[derive(Clone, Copy, Debug)]
struct WatchedMember {
    /// Without all links since then.
    down_since: Option<Nanos>,
    is_lost: bool,
    incarnation: Incarnation,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MemberChange {
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
    ) -> Vec<(NodeId, MemberChange)> {
        let mut changes = Vec::new();
        for (node, is_up, incarnation) in members {
            let change = match self.known.get_mut(&node) {
                Some(member) => member.look(now, is_up, incarnation),
                None if is_up => {
                    let member = WatchedMember { down_since: None, is_lost: false, incarnation };
                    self.known.insert(node, member);
                    Some(MemberChange::Reached)
                }
                None => None,
            };
            changes.extend(change.map(|change| (node, change)));
        }
        changes
    }

    /// False before a member is reached, and while it is lost.
    pub(super) fn is_up(&self, node: NodeId) -> bool {
        self.known.get(&node).is_some_and(|member| !member.is_lost)
    }

    /// When the next member may count as lost.
    pub(super) fn next_timer(&self) -> Option<Nanos> {
        let pending = self.known.values().filter(|member| !member.is_lost);
        pending.filter_map(|member| Some(member.down_since? + GRACE)).min()
    }
}

impl WatchedMember {
    fn look(&mut self, now: Nanos, is_up: bool, incarnation: Incarnation) -> Option<MemberChange> {
        if !is_up {
            let since = *self.down_since.get_or_insert(now);
            let is_new = !self.is_lost && now >= since + GRACE;
            self.is_lost |= is_new;
            return is_new.then_some(MemberChange::Lost);
        }
        let has_restarted = incarnation > self.incarnation;
        let since = self.down_since.take();
        let was_lost = std::mem::replace(&mut self.is_lost, false);
        self.incarnation = incarnation;
        let after = now.since(since.unwrap_or(now));
        (was_lost || has_restarted).then_some(MemberChange::Back { after, has_restarted })
    }
}

/// The recovery of data that this node has lost.
#[derive(Debug, Default)]
pub(super) struct RecoveryWatch {
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
pub(super) enum RecoveryStep {
    Begun,
    Progress { shards_left: u64, percent: u64 },
    Done { took: Nanos },
}

impl RecoveryWatch {
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

    /// Notes the reports of the workers about it.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        is_recovering: bool,
        shards_left: u64,
    ) -> Option<RecoveryStep> {
        let Some(going_on) = &mut self.going_on else {
            return (is_recovering && self.begin(now)).then_some(RecoveryStep::Begun);
        };
        going_on.is_confirmed |= is_recovering;
        going_on.most = going_on.most.max(shards_left);
        if !is_recovering {
            let is_over = going_on.is_confirmed || now >= going_on.since + CONFIRMED_WITHIN;
            let took = now.since(going_on.since);
            return is_over.then(|| {
                self.going_on = None;
                RecoveryStep::Done { took }
            });
        }
        if now < going_on.reported_at + PROGRESS_EVERY {
            return None;
        }
        going_on.reported_at = now;
        let done = going_on.most - shards_left;
        let percent = (done * 100).checked_div(going_on.most).unwrap_or(0);
        Some(RecoveryStep::Progress { shards_left, percent })
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

    fn look(members: &mut Members, millis: u64, is_up: bool, start: u32) -> Option<MemberChange> {
        let state = (PEER, is_up, Incarnation(start));
        let changes = members.look(Nanos::from_millis(millis), std::iter::once(state));
        changes.first().map(|(_, change)| *change)
    }

    #[test]
    fn each_change_of_a_member_is_told_once() {
        let mut members = Members::default();
        assert_eq!(look(&mut members, 0, false, 0), None, "it was never reached");
        assert_eq!(look(&mut members, 1_000, true, 1), Some(MemberChange::Reached));
        assert_eq!(look(&mut members, 2_000, true, 1), None);
        assert_eq!(look(&mut members, 3_000, false, 1), None);
        assert_eq!(members.next_timer(), Some(Nanos::from_millis(3_500)));
        assert_eq!(look(&mut members, 3_500, false, 1), Some(MemberChange::Lost));
        assert_eq!((look(&mut members, 4_000, false, 1), members.next_timer()), (None, None));
        assert!(!members.is_up(PEER));
        let back = MemberChange::Back { after: Nanos::from_secs(4), has_restarted: true };
        assert_eq!(look(&mut members, 7_000, true, 2), Some(back));
        assert!(members.is_up(PEER));
    }

    #[test]
    fn short_gaps_are_no_changes() {
        let mut members = Members::default();
        look(&mut members, 0, true, 1);
        for round in 1..10 {
            assert_eq!(look(&mut members, round * 1_000, false, 1), None);
            assert_eq!(look(&mut members, round * 1_000 + 499, true, 1), None);
        }
        look(&mut members, 20_000, false, 1);
        let back = MemberChange::Back { after: Nanos::from_millis(300), has_restarted: true };
        assert_eq!(look(&mut members, 20_300, true, 2), Some(back), "a quick restart");
    }

    #[test]
    fn a_recovery_begins_proceeds_and_ends() {
        let mut recovery = RecoveryWatch::default();
        let at = Nanos::from_secs;
        assert_eq!(recovery.look(at(0), false, 0), None);
        assert_eq!(recovery.look(at(1), true, 256), Some(RecoveryStep::Begun));
        assert_eq!(recovery.look(at(2), true, 256), None);
        let progress = RecoveryStep::Progress { shards_left: 64, percent: 75 };
        assert_eq!(recovery.look(at(6), true, 64), Some(progress));
        assert_eq!(recovery.look(at(7), true, 0), None);
        assert_eq!(recovery.look(at(8), false, 0), Some(RecoveryStep::Done { took: at(7) }));
        assert_eq!(recovery.look(at(9), false, 0), None);
    }

    #[test]
    fn a_recovery_lasts_until_workers_have_heard_of_it() {
        let mut recovery = RecoveryWatch::default();
        let at = Nanos::from_millis;
        assert!(recovery.begin(at(1)) && !recovery.begin(at(2)));
        assert_eq!(recovery.look(at(100), false, 0), None, "not published yet");
        assert_eq!(recovery.look(at(300), true, 3), None);
        assert!(matches!(recovery.look(at(400), false, 0), Some(RecoveryStep::Done { .. })));
        assert!(recovery.begin(at(500)));
        assert!(matches!(recovery.look(at(1_500), false, 0), Some(RecoveryStep::Done { .. })));
    }

    #[test]
    fn durations_read_like_a_watch() {
        assert_eq!(duration(Nanos::from_millis(250)), "0.2s");
        assert_eq!(duration(Nanos::from_millis(12_345)), "12.3s");
        assert_eq!(duration(Nanos::from_millis(125_000)), "2m05s");
    }
}
