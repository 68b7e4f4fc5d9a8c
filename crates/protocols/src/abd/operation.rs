//! The client's side: one read, write or recovery from its first query to its end.
//!
//! An operation counts answers and returns the next step; `Abd` sends the messages.

use base::Nanos;
use bytes::Bytes;
use types::{Key, NodeId, Reply, SessionId, Tag, TimeToLive};

use super::register::{Register, Version};
use super::reports::Answers;
use crate::mutation::{self, Mutation};
use crate::quorum::Tally;
use crate::replicas::Replicas;
use crate::toolkit::back_off::{RESEND_FIRST, RESEND_MAX};

/// How long a read waits for the remaining replicas before it writes back.
pub const PATIENCE: Nanos = Nanos::from_millis(2);
/// How much later an answer comes for each byte of a value.
const PER_BYTE: Nanos = Nanos(25);

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
        ttl: TimeToLive,
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
    /// Ends a value whose time to live is over here.
    End,
    /// Stores a tombstone at all replicas, so that its register can be removed.
    Bury,
}

impl Kind {
    /// True if a client waits for it.
    #[must_use]
    pub fn is_of_client(&self) -> bool {
        match self {
            Kind::Read { .. } | Kind::Write { .. } | Kind::Delete { .. } => true,
            Kind::Recover | Kind::End | Kind::Bury => false,
        }
    }
}

/// The phase of an operation.
#[derive(Clone, Debug)]
pub enum Phase {
    /// Ask every replica for its version.
    Query,
    /// Making a majority hold this version.
    Store { register: Register, acks: Tally },
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
    /// A quorum has counted the newest version down. Ask again whether it still is the newest.
    Confirm,
    /// It was: store its end.
    End,
    Settled(Register),
}

#[derive(Clone, Debug)]
pub struct Operation {
    pub key: Key,
    pub kind: Kind,
    /// The era in which it has begun.
    pub era: u64,
    pub phase: Phase,
    pub answers: Answers,
    pub deadline: Nanos,
    pub resend_at: Nanos,
    pub resend_after: Nanos,
    /// Of this phase.
    pub resends: u32,
    /// Other answers may still come soon, so do not write back yet.
    pub is_patient: bool,
    /// A quorum had counted this version down before the query began.
    pub over: Option<Version>,
}

impl Operation {
    #[must_use]
    pub fn wants_value(&self) -> bool {
        matches!(self.kind, Kind::Read { .. } | Kind::Recover | Kind::End)
    }

    /// A phase begins, or the patience of a read ends.
    pub fn expect_answers(&mut self, now: Nanos) {
        let first = RESEND_FIRST + Nanos(PER_BYTE.0 * self.len_stored() as u64);
        let is_patient = self.is_patient && matches!(self.phase, Phase::Query);
        self.resend_at = now + if is_patient { PATIENCE } else { first };
        self.resend_after = first;
        self.resends = 0;
    }

    /// Its messages are sent again.
    pub fn expect_resent(&mut self, now: Nanos) {
        self.resend_at = now + self.resend_after;
        self.resend_after = self.resend_after.max(Nanos(self.resend_after.0 * 2).min(RESEND_MAX));
        self.resends += 1;
    }

    /// The length of the value that each replica gets.
    fn len_stored(&self) -> usize {
        match &self.phase {
            Phase::Query => 0,
            Phase::Store { register, .. } => register.content.value.as_ref().map_or(0, Bytes::len),
        }
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
        let answers = &self.answers;
        if let Phase::Store { register, acks } = &self.phase {
            let is_held = match self.kind {
                Kind::Bury if !mutation::is(Mutation::VerifyByMajority) => replicas.is_all(acks),
                _ => replicas.is_quorum(acks),
            };
            return if is_held { Verdict::Settled(register.clone()) } else { Verdict::Wait };
        }
        match &self.kind {
            // [DISC 2017, recovery] This node lost its own answer, so a majority of *others* must
            // answer.
            Kind::Recover if answers.is_quorum_of_others(replicas) => self.settled(),
            Kind::Recover => Verdict::Wait,
            _ if !answers.is_quorum(replicas) => Verdict::Wait,
            Kind::Write { .. } => Verdict::Mint { above: answers.newest().version },
            _ if self.over == Some(answers.newest().version) => Verdict::End,
            _ if answers.is_over(replicas) => Verdict::Confirm,
            Kind::Delete { .. } if answers.is_present() => {
                Verdict::Mint { above: answers.newest().version }
            }
            // Its reply says that the key is absent. A version of its own could hide a write that
            // ends meanwhile.
            Kind::Delete { .. } => match replicas.is_quorum(&answers.holders(replicas)) {
                true => self.settled(),
                false => Verdict::WriteBack,
            },
            Kind::Read { .. } => self.read_verdict(replicas),
            // Others have to count, too.
            Kind::End if mutation::is(Mutation::EndUncounted) => self.settled(),
            Kind::End | Kind::Bury => self.read_verdict(replicas),
        }
    }

    fn read_verdict(&self, replicas: Replicas<'_>) -> Verdict {
        let is_held = replicas.is_quorum(&self.answers.holders(replicas));
        if is_held || mutation::is(Mutation::NoWriteBack) {
            return self.settled();
        }
        if self.is_patient && !self.answers.is_all(replicas) {
            return Verdict::Wait;
        }
        Verdict::WriteBack
    }

    fn settled(&self) -> Verdict {
        Verdict::Settled(self.answers.newest().clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use base::Millis;
    use types::{AmnesiaCount, Epoch, Incarnation};

    use super::super::register::tests::register;
    use super::super::reports::Report;
    use super::*;
    use crate::peers::Peers;
    use crate::replicas::ReplicaSet;
    use crate::toolkit::countdown::Countdown;

    static SET: LazyLock<ReplicaSet> = LazyLock::new(|| ReplicaSet::new(Epoch(1), NodeId(1), &IDS));
    static PEERS: LazyLock<Peers> =
        LazyLock::new(|| Peers::new(NodeId(1), Incarnation(1), AmnesiaCount(1), &IDS));
    const IDS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn replicas() -> Replicas<'static> {
        Replicas { set: &SET, peers: &PEERS }
    }

    fn operation(kind: Kind) -> Operation {
        Operation {
            key: Key::new(b"k"),
            kind,
            era: 2,
            phase: Phase::Query,
            answers: Answers::default(),
            deadline: Nanos::MAX,
            resend_at: Nanos::MAX,
            resend_after: Nanos::MAX,
            resends: 0,
            is_patient: true,
            over: None,
        }
    }

    fn read() -> Operation {
        operation(Kind::Read { tag: Tag(1), session: SessionId(1), body: Bytes::new() })
    }

    fn report(op: &mut Operation, node: u16, number: u64) {
        let report = Report { register: register(number, false), countdown: Countdown::None };
        op.answers.add(replicas(), (NodeId(node), AmnesiaCount(1)), report);
    }

    fn report_expiring(op: &mut Operation, node: u16, countdown: Countdown) {
        let report = Report { register: register(4, true), countdown };
        op.answers.add(replicas(), (NodeId(node), AmnesiaCount(1)), report);
    }

    #[test]
    fn read_returns_the_majoritys_value() {
        let mut op = read();
        report(&mut op, 1, 4);
        assert_eq!(op.verdict(replicas()), Verdict::Wait);
        report(&mut op, 3, 4);
        assert_eq!(op.verdict(replicas()), Verdict::Settled(register(4, false)));
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
        assert!(matches!(op.verdict(replicas()), Verdict::Settled(_)));
    }

    /// Its reply is 0. A write may have ended since the query, and has to stay.
    #[test]
    fn deletion_of_an_absent_key_mints_no_version() {
        let (was_there, was_absent) = (Reply::Integer(1), Reply::Integer(0));
        let kind = Kind::Delete { tag: Tag(1), session: SessionId(1), was_there, was_absent };
        let mut op = operation(kind);
        let tombstone = Report { register: register(5, false).ended(), countdown: Countdown::None };
        op.answers.add(replicas(), (NodeId(1), AmnesiaCount(1)), tombstone.clone());
        report(&mut op, 2, 4);
        assert_eq!(op.verdict(replicas()), Verdict::WriteBack);
        op.answers.add(replicas(), (NodeId(3), AmnesiaCount(1)), tombstone.clone());
        assert_eq!(op.verdict(replicas()), Verdict::Settled(tombstone.register));
    }

    #[test]
    fn recovery_needs_a_majority_of_others() {
        let mut op = operation(Kind::Recover);
        report(&mut op, 1, 9);
        report(&mut op, 2, 4);
        assert_eq!(op.verdict(replicas()), Verdict::Wait);
        report(&mut op, 3, 5);
        assert!(matches!(op.verdict(replicas()), Verdict::Settled(_)));
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
    fn tombstone_is_verified_by_all() {
        let register = register(4, false).ended();
        let mut op = operation(Kind::Bury);
        op.phase = Phase::Store { register: register.clone(), acks: Tally::default() };
        for node in 1..=3 {
            assert_eq!(op.verdict(replicas()), Verdict::Wait);
            let Phase::Store { acks, .. } = &mut op.phase else { unreachable!("it stores") };
            acks.add(replicas(), NodeId(node), AmnesiaCount(1));
        }
        assert_eq!(op.verdict(replicas()), Verdict::Settled(register));
    }

    #[test]
    fn large_values_are_sent_again_later() {
        let mut op = operation(Kind::Bury);
        let (acks, mut register) = (Tally::default(), register(4, false));
        register.content.value = Some(Bytes::from(vec![0; 20 << 20]));
        op.phase = Phase::Store { register, acks };
        op.expect_answers(Nanos(7));
        let gap = op.resend_at.since(Nanos(7));
        assert!(gap > RESEND_MAX, "{gap:?}");
        op.expect_resent(op.resend_at);
        op.expect_resent(op.resend_at);
        assert_eq!(op.resend_at, Nanos(7 + 3 * gap.0));
    }

    #[test]
    fn repeated_answers_of_one_replica_are_one_answer() {
        let mut op = read();
        report(&mut op, 2, 4);
        report(&mut op, 2, 4);
        assert_eq!(op.verdict(replicas()), Verdict::Wait);
    }

    #[test]
    fn key_ends_once_a_majority_has_counted() {
        let running = Countdown::Running(Millis(9));
        let mut op = read();
        report_expiring(&mut op, 1, Countdown::Over);
        report_expiring(&mut op, 2, running);
        assert_eq!(op.verdict(replicas()), Verdict::Settled(register(4, true)));
        assert_eq!(op.answers.rest(replicas()), Some(Millis(9)));
        report_expiring(&mut op, 3, Countdown::Over);
        assert_eq!(op.verdict(replicas()), Verdict::Confirm);
    }

    /// A write that ended before the majority had counted is seen by the second query.
    #[test]
    fn end_is_stored_only_above_the_newest() {
        let confirming = || {
            let over = Some(register(4, true).version);
            Operation { over, is_patient: false, ..operation(Kind::End) }
        };
        let mut op = confirming();
        report_expiring(&mut op, 1, Countdown::Over);
        report(&mut op, 2, 5);
        assert_eq!(op.verdict(replicas()), Verdict::WriteBack);
        let mut op = confirming();
        report_expiring(&mut op, 1, Countdown::Over);
        report(&mut op, 2, 3);
        assert_eq!(op.verdict(replicas()), Verdict::End);
    }
}
