//! Expiry by a vote [corrections F10]: a key vanishes only when a majority's countdowns of that very deadline are over.
//!
//! Each acceptor counts in its own uptime from the first state with the deadline's id that it accepted, so no
//! clock needs to agree with any other and a wrong one alone expires nothing. The tombstone is an ordinary proposal.

use std::collections::BTreeMap;

use base::{Millis, Nanos};
use types::{Key, TimeToLive};

use crate::effects::TimerId;
use crate::mutation::{self, Mutation};
use crate::replicas::{Places, Replicas};
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::RmwPaxos;
use crate::rmwpaxos::core::operation::{Active, Operation, Purpose, ReadRound, Source};
use crate::rmwpaxos::core::proposer;
use crate::rmwpaxos::core::reports::Reports;
use crate::rmwpaxos::core::state::{ExpiryId, State};
use crate::rmwpaxos::message::Report;
use crate::rmwpaxos::message::{Due, Message};
use crate::rmwpaxos::once::window;
use crate::rmwpaxos::register::Countdown;

pub(crate) const EXPIRE: TimerId = TimerId(2);

/// Keys whose end a node waits for; others expire when they are touched.
const SCHEDULED_MAX: usize = 65_536;
/// Time between votes on a deadline that others do not see over yet.
const VOTE_PAUSE: Nanos = Nanos::from_millis(5);
/// How long after its time a key is expired though nobody asks for it.
const SLACK: Nanos = Nanos::from_millis(20);

/// The deadlines that this node set, in order, so that keys vanish though nobody touches them.
#[derive(Default, Debug)]
pub(crate) struct Expirer {
    due: BTreeMap<(Nanos, Key), ExpiryId>,
    armed: Option<Nanos>,
}

/// Majority votes for `id`, and the largest rest that anybody reports for it.
pub(crate) fn count_votes(
    reports: &Reports,
    replicas: Replicas<'_>,
    id: Option<ExpiryId>,
) -> (Places, Option<Millis>) {
    let Some(id) = id else { return (0, None) };
    let over = reports.places(replicas, |report| {
        report.countdown == Countdown::Over && has_deadline(reports, report, id)
    });
    let mut rest = None;
    for (_, report) in reports.counted(replicas) {
        if !has_deadline(reports, report, id) {
            continue;
        }
        match report.countdown {
            Countdown::Over => rest = rest.max(Some(Millis(0))),
            Countdown::Running(left) => rest = rest.max(Some(left)),
            Countdown::None => {}
        }
    }
    (over, rest)
}

/// True if the state reported has this deadline.
fn has_deadline(reports: &Reports, report: &Report, id: ExpiryId) -> bool {
    reports.state_of(report.accepted).and_then(|state| state.expiry_id()) == Some(id)
}

/// True if the replicas that find it over decide.
pub(crate) fn is_voted(replicas: Replicas<'_>, over: Places) -> bool {
    replicas.set.is_quorum_of(over) || (over != 0 && mutation::is(Mutation::ExpireByOne))
}

/// Rest of the tip's time to live, as far as this node can tell.
pub(crate) fn estimated_rest(cx: &Cx<'_>, active: &Active) -> Option<Millis> {
    let id = active.tip.as_ref()?.expiry_id()?;
    match proposer::own_countdown(cx, &active.key, id) {
        Countdown::Running(rest) => Some(rest),
        Countdown::Over => Some(Millis(0)),
        Countdown::None => active.rest,
    }
}

impl RmwPaxos {
    /// The tip's time seems over: asks a quorum before anything is built on it. True while the vote is under way.
    pub(crate) fn try_vote(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> bool {
        if RmwPaxos::waits_for_vote(active) {
            return true;
        }
        if cx.now >= active.vote_again_at && window::wants_vote(cx, active) {
            return self.vote_on_windows(cx, active);
        }
        let Some(id) = active.tip.as_ref().and_then(|tip| tip.expiry_id()) else { return false };
        let voted = |operation: &Operation| operation.source == Source::Expire(id);
        let seems_over = match proposer::own_countdown(cx, &active.key, id) {
            Countdown::Over => true,
            Countdown::Running(_) => false,
            // This acceptor lags and does not count; those that promised do.
            Countdown::None => active.rest == Some(Millis(0)),
        };
        if cx.now < active.vote_again_at
            || active.read.is_some()
            || active.queue.front().is_some_and(voted)
            || !active.in_flight.is_empty()
            || !seems_over
        {
            return false;
        }
        self.read_quorum(cx, active, Purpose::Vote, Vec::new());
        true
    }

    /// What was refused for lack of room without asking might have found some: everything under way comes first.
    fn vote_on_windows(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> bool {
        if active.in_flight.is_empty() && active.read.is_none() {
            base::sometimes!("a vote on what may be forgotten");
            self.read_quorum(cx, active, Purpose::Vote, Vec::new());
        }
        true
    }

    pub(crate) fn settle_vote(&mut self, cx: &mut Cx<'_>, active: &mut Active, round: ReadRound) {
        let id = active.tip.as_ref().and_then(|tip| tip.expiry_id());
        let (over, rest) = count_votes(&round.reports, cx.replicas, id);
        active.rest = rest;
        active.droppable = window::droppable(&round.reports, cx.replicas, active.tip.as_ref());
        let has_ages = id.is_some() || active.tip.as_ref().is_some_and(State::has_once);
        match id {
            Some(id) if is_voted(cx.replicas, over) => {
                let operation = Operation::internal(Source::Expire(id), self.step);
                active.queue.push_front(operation);
                // What waits for a window that others do not see over must not have them asked again at once.
                active.vote_again_at = cx.now + VOTE_PAUSE;
            }
            _ if !active.droppable.is_empty() => {}
            _ if has_ages && self.awaits_until(cx, &round).is_some() => active.read = Some(round),
            _ => active.vote_again_at = cx.now + VOTE_PAUSE,
        }
    }

    /// A state with a deadline was chosen: remember when to look.
    pub(crate) fn schedule_expiry(&mut self, cx: &mut Cx<'_>, key: &Key, state: &State) {
        let Some(expiry) = state.expiry() else { return };
        if expiry.id.version != state.version() || self.expirer.due.len() >= SCHEDULED_MAX {
            return;
        }
        let span = match expiry.ttl {
            TimeToLive::After(span) => span,
            TimeToLive::At { unix } => Millis(unix.0.saturating_sub(cx.unix.0)),
            TimeToLive::Never => return,
        };
        // A deadline years away is met when somebody touches the key.
        let Some(span) = span.0.checked_mul(1_000_000) else { return };
        let at = cx.now + Nanos(span) + SLACK;
        self.expirer.due.insert((at, key.clone()), expiry.id);
        self.arm_expiry(cx);
    }

    fn arm_expiry(&mut self, cx: &mut Cx<'_>) {
        let Some(((at, _), _)) = self.expirer.due.first_key_value() else { return };
        if self.expirer.armed.is_none_or(|armed| *at < armed) {
            self.expirer.armed = Some(*at);
            cx.fx.timer(EXPIRE, *at);
        }
    }

    pub(crate) fn on_expire_timer(&mut self, cx: &mut Cx<'_>) {
        // An earlier timer may have replaced this one: only the newest arms another.
        if self.expirer.armed.is_some_and(|armed| armed <= cx.now) {
            self.expirer.armed = None;
        }
        while let Some(entry) = self.expirer.due.first_entry() {
            if entry.key().0 > cx.now {
                break;
            }
            let ((_, key), _) = entry.remove_entry();
            cx.fx.send_now(self.env.me, Message::Touch { key, due: Due::Expire });
        }
        self.arm_expiry(cx);
    }

    /// The register is resident now: if its time is over, a read of nothing has a quorum say so.
    pub(crate) fn on_expire_due(&mut self, cx: &mut Cx<'_>, key: Key) {
        // A node that is no replica counts no time down: the replicas vote.
        let is_over = !cx.replicas.set.has_me()
            || crate::rmwpaxos::core::replies::held(cx, &key)
                .is_some_and(|register| register.countdown(cx.uptime, cx.unix) == Countdown::Over);
        if !is_over {
            return;
        }
        let mut active = self.take_active(cx, &key);
        if active.read.is_none() {
            self.read_quorum(cx, &mut active, Purpose::Answer, Vec::new());
        }
        self.put_active(active);
    }

    /// What follows from a state being chosen by our proposal.
    pub(crate) fn note_chosen(&mut self, cx: &mut Cx<'_>, key: &Key, state: &State) {
        if state.has_expiry() {
            self.schedule_expiry(cx, key, state);
        }
        if state.is_tombstone() || state.has_once() {
            self.schedule_collection(cx, key, state);
        }
    }
}
