//! A proposer's work on one key, and the phase that it is in.

use std::collections::VecDeque;

use base::{Millis, Nanos};
use smallvec::SmallVec;
use types::limits::MEMBERS_MAX;
use types::{AmnesiaCount, Ballot, Fence, Key, Lock, Round, SessionId};

use crate::peers::Member;
use crate::quorum::{Acks, Tally};
use crate::replicas::Replicas;
use crate::rmwpaxos::message::Payload;
use crate::rmwpaxos::once::table::EntryId;
use crate::rmwpaxos::progress::operation::{Operation, Place};
use crate::rmwpaxos::progress::reports::Reports;
use crate::rmwpaxos::record::state::State;

/// Proposals of one key in flight at a time.
pub(crate) const DEPTH: usize = 2;

/// The phase of a proposer. Each phase owns its data, so leaving it drops them.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lies in a box that is used again")]
pub enum Phase {
    Idle,
    /// Phase 1 is in progress.
    Preparing(PhaseOne),
    /// Phase 1 is won, or its first proposal travels with it: proposals may follow one another.
    Owner(PhaseTwo),
    /// It lost to another proposer, and retries then.
    BackingOff(Nanos),
    /// A service holds the head of the queue.
    Waiting,
}

/// Data of phase 1.
#[derive(Debug)]
pub struct PhaseOne {
    pub ballot: Ballot,
    /// The own acceptor's round and state when the others were asked.
    pub have: Option<(Round, State)>,
    pub promises: Reports,
    /// Acceptors that promise raise it first.
    pub fence: Option<Fence>,
    pub prepared_at: Place,
    pub refusals: Refusals,
    /// Only as many members as phase 1 needs are asked until then; `None`: all were.
    pub ask_rest_at: Option<Nanos>,
    /// Phase 1 is won, but waits until then for all members that are up. One of them may have
    /// removed the register that another holds.
    pub contested_until: Option<Nanos>,
    pub resend: Resend,
}

/// Data of phase 2.
#[derive(Debug)]
pub struct PhaseTwo {
    pub ballot: Ballot,
    /// The promises of a majority raised it.
    pub fence: Option<Fence>,
    /// Last proposal made under it; 0 for none.
    pub k: u32,
    /// Last proposal of it that is chosen.
    pub chosen_k: u32,
    pub tip: Tip,
    /// Members that should hold the tip, or be about to: a hint for deltas.
    pub in_sync: Tally,
    /// The base is chosen, or a proposal on top of it was made.
    pub base_decided: bool,
    /// The base is chosen and no proposal followed. It may answer operations older than this step.
    pub fresh_before: Place,
    /// Proposals that are not known to be chosen.
    pub in_flight: SmallVec<[InFlight; DEPTH]>,
    /// The proposal in flight went out before phase 1 was won.
    pub unproven: Option<Unproven>,
    /// Found in the base: succeed with the next proposal.
    pub carried: Vec<Operation>,
    /// Highest proposal of `ballot` acknowledged by each member, with its amnesia count.
    pub acks: Acks,
    pub refusals: Refusals,
    /// Estimated rest of the base's time to live when phase 1 or a vote ended.
    pub rest: Option<Millis>,
    /// Entries of the tip's table whose windows a majority found over: the next batch drops them.
    pub droppable: Vec<EntryId>,
    /// Collect the tombstone once all members acknowledged exactly this proposal.
    pub collecting: Option<u32>,
    pub resend: Resend,
}

/// The state after the last proposal, or the base.
#[derive(Debug)]
pub struct Tip {
    /// `None` for an absent register.
    pub state: Option<State>,
    /// Version of the state; the version floor of an absent register.
    pub version: u64,
    /// `NONE` for an absent register.
    pub round: Round,
}

/// When unanswered messages of a phase are sent again.
#[derive(Clone, Copy, Debug)]
pub struct Resend {
    pub at: Nanos,
    pub count: u32,
}

/// Members that refused a ballot, and when the last of them did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusals {
    pub by: Tally,
    pub at: Nanos,
}

impl Refusals {
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.by != Tally::default()
    }

    /// A member refused, and the others have had their time: one may be paused.
    #[must_use]
    pub fn is_any_for(&self, patience: Nanos, now: Nanos) -> bool {
        self.is_any() && now >= self.at + patience
    }
}

/// A proposal that is not known to be chosen.
#[derive(Debug)]
pub struct InFlight {
    pub k: u32,
    /// Version of its base.
    pub base_version: u64,
    pub state: State,
    /// Operations of earlier attempts that its base contains: chosen with it.
    pub carried: Vec<Operation>,
    pub operations: Vec<Operation>,
    pub sent: Nanos,
}

/// The first proposal of a ballot while no member is known to have accepted it: see
/// [`crate::rmwpaxos::fast::combined`].
#[derive(Debug)]
pub struct Unproven {
    /// The round that it follows.
    pub base: Round,
    pub payload: Payload,
    /// This node's amnesia count when it promised the ballot.
    pub amnesia: AmnesiaCount,
    /// Members that it was sent to, each with its amnesia count then.
    pub asked: [Option<AmnesiaCount>; MEMBERS_MAX],
    /// A member was asked again after it had lost its memory: it has forgotten its own answer.
    pub is_asked_anew: bool,
    /// Members that hold another round than the base.
    pub differing: Tally,
    /// When the other members, too, have had their time.
    pub until: Nanos,
}

impl Unproven {
    /// No member that is up can prove it: each holds another round or has promised more.
    #[must_use]
    pub fn is_hopeless(&self, replicas: Replicas<'_>, refusals: &Refusals) -> bool {
        let may_prove = |member: &Member| {
            let node = member.node;
            let is_out = self.differing.has(replicas, node) || refusals.by.has(replicas, node);
            member.up && node != replicas.me() && !is_out
        };
        !replicas.members().any(may_prove)
    }
}

/// The purpose of a quorum read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To answer `ReadRound::operations`.
    Answer,
    /// To learn whether an expiry is over.
    Vote,
    /// To learn the fate of attempts. [spec 9.4, E5]
    Resolve,
}

/// One quorum read.
#[derive(Debug)]
pub struct ReadRound {
    pub id: u64,
    pub purpose: Purpose,
    pub operations: Vec<Operation>,
    pub reports: Reports,
    pub polls: u32,
    /// A majority that disagrees waits until then for other members that are up. One may be paused.
    pub patient_until: Nanos,
    pub sent: Nanos,
    pub resend_at: Nanos,
    pub resends: u32,
}

/// Commands that wait for the end of a transaction, in order of arrival. Commands about locks pass
/// them.
#[derive(Debug)]
pub struct LockedOut {
    /// The lock that was met last.
    pub lock: Lock,
    pub operations: Vec<Operation>,
}

impl LockedOut {
    /// More operations wait for the end of a transaction. True if none did before.
    pub fn add(place: &mut Option<Box<LockedOut>>, lock: Lock, operations: Vec<Operation>) -> bool {
        let is_first = place.is_none();
        let empty = LockedOut { lock: lock.clone(), operations: Vec::new() };
        let locked_out = place.get_or_insert_with(|| Box::new(empty));
        locked_out.lock = lock;
        locked_out.put(operations);
        is_first
    }

    fn put(&mut self, operations: Vec<Operation>) {
        let last = self.operations.last().map(Operation::arrival);
        let is_behind = last <= operations.first().map(Operation::arrival);
        let is_sorted = is_behind && operations.is_sorted_by_key(Operation::arrival);
        self.operations.extend(operations);
        if !is_sorted {
            self.operations.sort_by_key(Operation::arrival);
        }
    }

    /// No transaction holds the key: its commands and `last` run next, in order of arrival, and
    /// then those about locks. Returns how many they are.
    pub fn let_in(
        place: &mut Option<Box<LockedOut>>,
        last: Vec<Operation>,
        queue: &mut VecDeque<Operation>,
    ) -> usize {
        if place.is_none() && last.is_empty() {
            return 0;
        }
        let waited = place.take().map_or_else(Vec::new, |it| it.operations);
        let count = waited.len() + last.len();
        let mut all: Vec<Operation> =
            waited.into_iter().chain(last).chain(queue.drain(..)).collect();
        all.sort_by_key(|operation| match operation.waits_for_locks() {
            true => (1, operation.arrival()),
            false if operation.is_internal() => (0, Default::default()),
            false => (2, Default::default()),
        });
        queue.extend(all);
        count
    }
}

/// A proposer's work on one key.
#[derive(Debug)]
pub struct Active {
    pub key: Key,
    pub phase: Phase,
    /// In order of arrival; operations with attempts first.
    pub queue: VecDeque<Operation>,
    /// Reads that wait for the end of the current quorum read.
    pub read_queue: Vec<Operation>,
    pub read: Option<ReadRound>,
    /// A member differs from this node: phase 1 comes first until one is won.
    pub differed: bool,
    /// The highest promise by which this key's ballots were refused, and when that was.
    pub lost_to: Option<(Ballot, Nanos)>,
    /// Phases lost, less half of them for each proposal chosen since.
    pub losses: u32,
    /// No vote on an expiry before this.
    pub vote_again_at: Nanos,
    pub touched: bool,
    /// Commands that met a transaction's lock. Later ones wait behind them.
    pub locked_out: Option<Box<LockedOut>>,
    /// Memory of reports for the next phase 1.
    spare: Reports,
}

impl Active {
    #[must_use]
    pub fn new(key: Key) -> Active {
        Active {
            key,
            phase: Phase::Idle,
            queue: VecDeque::new(),
            read_queue: Vec::new(),
            read: None,
            differed: false,
            lost_to: None,
            losses: 0,
            vote_again_at: Nanos::ZERO,
            touched: false,
            locked_out: None,
            spare: Reports::default(),
        }
    }

    /// Makes a finished one new for another key. Its queue and reports keep their memory.
    ///
    /// # Panics
    /// If operations are left.
    pub fn renew(&mut self, key: Key) {
        assert!(self.is_done(), "{:?} still has something to do", self.key);
        self.leave();
        let (queue, spare) = (std::mem::take(&mut self.queue), std::mem::take(&mut self.spare));
        *self = Active { queue, spare, ..Active::new(key) };
    }

    /// Leaves the phase, whose data are dropped.
    pub fn leave(&mut self) {
        if let Phase::Preparing(one) = std::mem::replace(&mut self.phase, Phase::Idle) {
            self.spare = one.promises;
            self.spare.clear();
        }
    }

    /// Empty reports for a phase 1.
    pub fn take_spare(&mut self) -> Reports {
        std::mem::take(&mut self.spare)
    }

    #[must_use]
    pub fn preparing(&self) -> Option<&PhaseOne> {
        match &self.phase {
            Phase::Preparing(one) => Some(one),
            _ => None,
        }
    }

    #[must_use]
    pub fn owner(&self) -> Option<&PhaseTwo> {
        match &self.phase {
            Phase::Owner(two) => Some(two),
            _ => None,
        }
    }

    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    #[must_use]
    pub fn unproven(&self) -> Option<&Unproven> {
        self.owner().and_then(|two| two.unproven.as_ref())
    }

    /// No operation waits here.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let has_phase = match &self.phase {
            Phase::Owner(two) => !two.is_done(),
            Phase::Waiting => true,
            Phase::Idle | Phase::Preparing(_) | Phase::BackingOff(_) => false,
        };
        !has_phase
            && self.queue.is_empty()
            && self.read_queue.is_empty()
            && self.read.is_none()
            && self.locked_out.is_none()
    }

    /// A write is queued or in flight. A later read follows behind it.
    #[must_use]
    pub fn has_writes(&self) -> bool {
        !self.is_idle() || !self.queue.is_empty() || self.locked_out.is_some()
    }

    #[must_use]
    pub fn has_attempts(&self) -> bool {
        self.queue.iter().any(Operation::has_attempts)
    }

    /// Puts operations in front of the queue, in their order.
    pub fn put_back(&mut self, operations: Vec<Operation>) {
        for operation in operations.into_iter().rev() {
            self.queue.push_front(operation);
        }
    }

    /// Puts operations of abandoned proposals back. Those without attempts wait with the others
    /// that met a lock.
    pub fn put_back_abandoned(&mut self, mut operations: Vec<Operation>) {
        if let Some(locked_out) = &mut self.locked_out {
            let waits = |it: &mut Operation| it.waits_for_locks() && !it.has_attempts();
            locked_out.put(operations.extract_if(.., waits).collect());
        }
        self.put_back(operations);
    }

    /// Queues an operation behind those of its session, reads that are under way among them.
    /// [corrections B10]
    pub fn enqueue(&mut self, operation: Operation) {
        let recalled = self.recall(operation.session);
        self.queue.extend(recalled);
        self.queue.push_back(operation);
    }

    /// While a transaction holds the key: takes the commands that wait for its end out of the
    /// queue. Those with attempts come back to it, since a phase 1 resolves them.
    pub fn step_aside(&mut self) -> Option<(Lock, Vec<Operation>)> {
        let mut locked_out = self.locked_out.take()?;
        self.put_back(locked_out.operations.extract_if(.., |it| it.has_attempts()).collect());
        let queue = std::mem::take(&mut self.queue);
        let waits =
            |operation: &Operation| operation.waits_for_locks() && !operation.has_attempts();
        let (waiting, others): (Vec<_>, Vec<_>) = queue.into_iter().partition(waits);
        self.queue.extend(others);
        let lock = locked_out.lock.clone();
        self.locked_out = Some(locked_out).filter(|it| !it.operations.is_empty());
        Some((lock, waiting))
    }

    /// Takes back reads of this session that are under way.
    fn recall(&mut self, session: SessionId) -> Vec<Operation> {
        if self.read.is_none() && self.read_queue.is_empty() {
            return Vec::new();
        }
        let mut recalled = Vec::new();
        let mut pull = |operations: &mut Vec<Operation>| {
            let (mine, others) = std::mem::take(operations)
                .into_iter()
                .partition(|operation| operation.session == session);
            *operations = others;
            recalled.extend::<Vec<Operation>>(mine);
        };
        if let Some(round) = &mut self.read {
            pull(&mut round.operations);
            if round.operations.is_empty() && round.purpose == Purpose::Answer {
                self.read = None;
            }
        }
        pull(&mut self.read_queue);
        recalled
    }
}

impl PhaseTwo {
    /// No proposal yet under this ballot, on top of `tip`.
    #[must_use]
    pub fn new(ballot: Ballot, tip: Tip) -> PhaseTwo {
        PhaseTwo {
            ballot,
            fence: None,
            k: 0,
            chosen_k: 0,
            tip,
            in_sync: Tally::default(),
            base_decided: false,
            fresh_before: Place(0),
            in_flight: SmallVec::new(),
            unproven: None,
            carried: Vec::new(),
            acks: Acks::default(),
            refusals: Refusals::default(),
            rest: None,
            droppable: Vec::new(),
            collecting: None,
            resend: Resend { at: Nanos::MAX, count: 0 },
        }
    }

    /// Every proposal is chosen, and no operation waits for another.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.in_flight.is_empty() && self.carried.is_empty() && self.collecting.is_none()
    }

    /// Operations that share the fate of a proposal.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        let flying = self.in_flight.iter();
        flying.flat_map(|it| it.carried.iter().chain(&it.operations)).chain(&self.carried)
    }

    /// The proposal is unproven, and no member that is up can prove it.
    #[must_use]
    pub fn is_hopeless(&self, replicas: Replicas<'_>) -> bool {
        let is_hopeless = |it: &Unproven| it.is_hopeless(replicas, &self.refusals);
        self.unproven.as_ref().is_some_and(is_hopeless)
    }

    /// The round of proposal `k`.
    #[must_use]
    pub fn round(&self, k: u32) -> Round {
        self.ballot.round(k)
    }
}

#[cfg(test)]
mod tests {
    use types::{Epoch, Incarnation, NodeId};

    use super::*;

    #[test]
    fn renewed_proposer_is_as_new() {
        let mut active = Active::new(Key::new(b"former"));
        let ballot = Ballot::new(Epoch(1), 1, NodeId(1), Incarnation(1));
        let tip = Tip { state: None, version: 3, round: ballot.round(6) };
        active.phase = Phase::Owner(PhaseTwo { k: 1, chosen_k: 2, ..PhaseTwo::new(ballot, tip) });
        active.differed = true;
        active.lost_to = Some((ballot, Nanos(13)));
        (active.losses, active.touched, active.vote_again_at) = (1, true, Nanos(9));
        active.renew(Key::new(b"next"));
        assert_eq!(format!("{active:?}"), format!("{:?}", Active::new(Key::new(b"next"))));
    }
}
