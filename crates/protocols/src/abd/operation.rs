//! The client's side: one read, write or recovery from its first query to its end.
//!
//! An operation counts answers and returns the next step; `Abd` sends the messages.

use std::cmp::Ordering;

use base::Nanos;
use bytes::Bytes;
use types::limits::MEMBERS_MAX;
use types::{AmnesiaCount, Key, NodeId, Reply, SessionId, Tag};

use super::message::{Report, Reported, Version};
use crate::mutation::{self, Mutation};
use crate::quorum::Tally;
use crate::replicas::Replicas;

/// The purpose of an operation.
#[derive(Clone, Debug)]
pub enum Kind {
    Read {
        tag: Tag,
        session: SessionId,
        body: Bytes,
    },
    /// The reply does not depend on the overwritten value: it is known from the start.
    Write {
        tag: Tag,
        session: SessionId,
        value: Option<Bytes>,
        reply: Reply,
    },
    /// Replies whether the newest version that its query saw was a value.
    Delete {
        tag: Tag,
        session: SessionId,
        was_there: Reply,
        was_absent: Reply,
    },
    /// This replica forgot the register.
    Recover,
}

/// The phase of an operation.
#[derive(Clone, Debug)]
pub enum Phase {
    /// Ask every replica for its version.
    Query,
    /// Making a majority hold this version.
    Store { version: Version, value: Option<Bytes>, acks: Tally },
}

/// The next step of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Wait,
    /// Mint a version above this one and store.
    Mint {
        above: Version,
    },
    /// Replicas disagree: store the newest before answering.
    WriteBack,
    /// The register holds this value.
    Settled {
        version: Version,
        value: Option<Bytes>,
    },
}

#[derive(Clone, Debug)]
pub struct Operation {
    pub key: Key,
    pub kind: Kind,
    pub phase: Phase,
    pub answers: Answers,
    pub deadline: Nanos,
    pub resend_at: Nanos,
    pub resend_after: Nanos,
    /// Other answers may still come soon, so do not write back yet.
    pub is_patient: bool,
}

/// Reports of distinct replicas on one register.
#[derive(Clone, Debug)]
pub struct Answers {
    tally: Tally,
    /// By member index; the newest of each member's reports.
    versions: [Version; MEMBERS_MAX],
    newest: Version,
    value: Reported,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers {
            tally: Tally::default(),
            versions: [Version::NONE; MEMBERS_MAX],
            newest: Version::NONE,
            value: Reported::Nothing,
        }
    }
}

impl Answers {
    pub fn add(
        &mut self,
        replicas: Replicas<'_>,
        (node, amnesia): (NodeId, AmnesiaCount),
        report: Report,
    ) {
        let Report { version, value } = report;
        let Some(index) = replicas.index(node) else { return };
        let is_new = self.tally.add(replicas, node, amnesia);
        // A replica's versions only grow, so its newest report stands. A report after an amnesia
        // replaces the earlier ones.
        self.versions[index] = if is_new { version } else { self.versions[index].max(version) };
        if version.cmp(&self.newest) == Ordering::Greater {
            self.newest = version;
            self.value = value;
        }
    }

    #[must_use]
    pub fn has(&self, replicas: Replicas<'_>, node: NodeId) -> bool {
        self.tally.has(replicas, node)
    }

    /// The newest reported version.
    #[must_use]
    pub fn newest(&self) -> Version {
        self.newest
    }

    /// The value of the newest version.
    #[must_use]
    pub fn value(&self) -> Option<Bytes> {
        self.value.clone().into_value()
    }

    /// True if the newest version is a value.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.value != Reported::Nothing
    }

    /// Replicas known to hold the newest version.
    #[must_use]
    pub fn holders(&self, replicas: Replicas<'_>) -> Tally {
        let mut holders = self.tally;
        for (index, member) in replicas.members().enumerate() {
            if self.versions[index] < self.newest {
                holders.remove(replicas, member.node);
            }
        }
        holders
    }

    /// True if replicas other than this one that make a quorum have answered.
    fn is_quorum_of_others(&self, replicas: Replicas<'_>) -> bool {
        let (set, answered) = (replicas.set, self.tally.places(replicas.set, replicas.peers));
        if mutation::is(Mutation::RecoverFromSelf) {
            return set.is_quorum_of(answered | set.own_place());
        }
        set.is_quorum_of(answered & !set.own_place())
    }
}

impl Operation {
    #[must_use]
    pub fn wants_value(&self) -> bool {
        !matches!(self.kind, Kind::Write { .. } | Kind::Delete { .. })
    }

    /// True if this phase still needs the node's answer.
    #[must_use]
    pub fn lacks(&self, replicas: Replicas<'_>, node: NodeId) -> bool {
        match &self.phase {
            Phase::Query => !self.answers.has(replicas, node),
            Phase::Store { acks, .. } => !acks.has(replicas, node),
        }
    }

    /// Decides the next step by the answers so far.
    #[must_use]
    pub fn verdict(&self, replicas: Replicas<'_>) -> Verdict {
        match (&self.phase, &self.kind) {
            (Phase::Store { version, value, acks }, _) => {
                if !replicas.is_quorum(acks) {
                    return Verdict::Wait;
                }
                Verdict::Settled { version: *version, value: value.clone() }
            }
            (Phase::Query, Kind::Write { .. }) if replicas.is_quorum(&self.answers.tally) => {
                Verdict::Mint { above: self.answers.newest }
            }
            (Phase::Query, Kind::Delete { .. }) if replicas.is_quorum(&self.answers.tally) => {
                // A key that a quorum knows to be absent needs no further tombstone.
                match replicas.is_quorum(&self.answers.holders(replicas)) {
                    true if !self.answers.is_present() => self.settled(),
                    _ => Verdict::Mint { above: self.answers.newest },
                }
            }
            (Phase::Query, Kind::Read { .. }) if replicas.is_quorum(&self.answers.tally) => {
                self.read_verdict(replicas)
            }
            // [DISC 2017, recovery] This node lost its own answer, so a majority of *others* must
            // answer.
            (Phase::Query, Kind::Recover) if self.answers.is_quorum_of_others(replicas) => {
                self.settled()
            }
            (Phase::Query, _) => Verdict::Wait,
        }
    }

    fn read_verdict(&self, replicas: Replicas<'_>) -> Verdict {
        let is_held = replicas.is_quorum(&self.answers.holders(replicas));
        if is_held || mutation::is(Mutation::NoWriteBack) {
            return self.settled();
        }
        if self.is_patient && !replicas.is_all(&self.answers.tally) {
            return Verdict::Wait;
        }
        Verdict::WriteBack
    }

    fn settled(&self) -> Verdict {
        Verdict::Settled { version: self.answers.newest, value: self.answers.value() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use types::{Epoch, Incarnation};

    use super::*;
    use crate::peers::Peers;
    use crate::replicas::ReplicaSet;

    static SET: LazyLock<ReplicaSet> = LazyLock::new(|| ReplicaSet::new(Epoch(1), NodeId(1), &IDS));
    static PEERS: LazyLock<Peers> =
        LazyLock::new(|| Peers::new(NodeId(1), Incarnation(1), AmnesiaCount(1), &IDS));
    const IDS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn replicas() -> Replicas<'static> {
        Replicas { set: &SET, peers: &PEERS }
    }

    fn version(number: u64) -> Version {
        Version { number, writer: NodeId(1), incarnation: Incarnation(1) }
    }

    fn operation(kind: Kind) -> Operation {
        Operation {
            key: Key::new(b"k"),
            kind,
            phase: Phase::Query,
            answers: Answers::default(),
            deadline: Nanos::MAX,
            resend_at: Nanos::MAX,
            resend_after: Nanos::MAX,
            is_patient: true,
        }
    }

    fn read() -> Operation {
        operation(Kind::Read { tag: Tag(1), session: SessionId(1), body: Bytes::new() })
    }

    fn report(op: &mut Operation, node: u16, number: u64) {
        let value = Reported::Value(Bytes::from(vec![number as u8]));
        let report = Report { version: version(number), value };
        op.answers.add(replicas(), (NodeId(node), AmnesiaCount(1)), report);
    }

    #[test]
    fn read_returns_the_majoritys_value() {
        let mut op = read();
        report(&mut op, 1, 4);
        assert_eq!(op.verdict(replicas()), Verdict::Wait);
        report(&mut op, 3, 4);
        let value = Some(Bytes::from_static(&[4]));
        assert_eq!(op.verdict(replicas()), Verdict::Settled { version: version(4), value });
    }

    /// S31: returning the newest of two different versions would allow new-then-old.
    #[test]
    fn read_of_different_versions_writes_back() {
        let mut op = read();
        report(&mut op, 1, 4);
        report(&mut op, 2, 5);
        assert_eq!(op.verdict(replicas()), Verdict::Wait);
        op.is_patient = false;
        assert_eq!(op.verdict(replicas()), Verdict::WriteBack);
        report(&mut op, 3, 5);
        assert!(matches!(op.verdict(replicas()), Verdict::Settled { .. }));
    }

    #[test]
    fn recovery_needs_a_majority_of_others() {
        let mut op = operation(Kind::Recover);
        report(&mut op, 1, 9);
        report(&mut op, 2, 4);
        assert_eq!(op.verdict(replicas()), Verdict::Wait);
        report(&mut op, 3, 5);
        assert!(matches!(op.verdict(replicas()), Verdict::Settled { .. }));
    }

    /// S28: an answer is void once its sender has lost its memory.
    #[test]
    fn answer_from_before_a_loss_does_not_count() {
        let mut op = read();
        report(&mut op, 1, 4);
        report(&mut op, 2, 4);
        let mut later = PEERS.clone();
        later.learn(NodeId(2), Incarnation(2), AmnesiaCount(2));
        assert_eq!(op.verdict(Replicas { set: &SET, peers: &later }), Verdict::Wait);
        assert!(op.lacks(Replicas { set: &SET, peers: &later }, NodeId(2)));
    }

    #[test]
    fn repeated_answers_of_one_replica_are_one_answer() {
        let mut op = read();
        report(&mut op, 2, 4);
        report(&mut op, 2, 4);
        assert_eq!(op.verdict(replicas()), Verdict::Wait);
    }
}
