//! Votes: if the tip's time to live or table seems over, a quorum is read before a proposal builds
//! on it.

use base::{Millis, Nanos};
use types::Key;

use super::instance::Core;
use crate::register_cache::CachedRegister;
use crate::rmwpaxos::context::{Cx, held};
use crate::rmwpaxos::expiry;
use crate::rmwpaxos::once::table::{self, EntryId};
use crate::rmwpaxos::once::window;
use crate::rmwpaxos::progress::active::{Active, Phase, PhaseTwo, Purpose, ReadRound};
use crate::rmwpaxos::progress::operation::{Operation, Source};
use crate::rmwpaxos::record::register::{Countdown, Register};
use crate::rmwpaxos::record::state::{ExpiryId, State};

/// Time between votes on a deadline that others do not see over yet.
const VOTE_PAUSE: Nanos = Nanos::from_millis(5);

impl Core {
    /// Rest of the tip's time to live, as far as this node can tell.
    pub(super) fn estimated_rest(&self, cx: &Cx<'_>, key: &Key, two: &PhaseTwo) -> Option<Millis> {
        let id = two.tip.state.as_ref()?.expiry_id()?;
        match own_countdown(cx, key, id) {
            Countdown::Running(rest) => Some(rest),
            Countdown::Over => Some(Millis(0)),
            Countdown::None => two.rest,
        }
    }

    /// The tip's time seems over: asks a quorum before a proposal builds on it. True while the vote
    /// is in progress.
    pub(super) fn try_vote(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> bool {
        let Phase::Owner(two) = &active.phase else { return false };
        if active.read.as_ref().is_some_and(|round| round.purpose == Purpose::Vote) {
            return true;
        }
        if cx.now >= active.vote_again_at && wants_vote(cx, active, two) {
            // An operation refused for lack of room might have found some, so proposals in flight
            // come first.
            if two.in_flight.is_empty() && active.read.is_none() {
                base::sometimes!("a vote on windows of remembered commands");
                self.read_quorum(cx, active, Purpose::Vote, Vec::new());
            }
            return true;
        }
        let Some(id) = two.tip.state.as_ref().and_then(State::expiry_id) else { return false };
        let voted = |operation: &Operation| operation.source == Source::Expire(id);
        let seems_over = match own_countdown(cx, &active.key, id) {
            Countdown::Over => true,
            Countdown::Running(_) => false,
            // This acceptor lags and does not count. The promises do.
            Countdown::None => two.rest == Some(Millis(0)),
        };
        if cx.now < active.vote_again_at
            || active.read.is_some()
            || active.queue.front().is_some_and(voted)
            || !two.in_flight.is_empty()
            || !seems_over
        {
            return false;
        }
        self.read_quorum(cx, active, Purpose::Vote, Vec::new());
        true
    }

    /// A quorum has reported for a vote.
    pub(super) fn settle_vote(&mut self, cx: &mut Cx<'_>, active: &mut Active, round: ReadRound) {
        let Phase::Owner(two) = &mut active.phase else {
            return self.settle_late_vote(cx, active, &round);
        };
        let tip = two.tip.state.as_ref();
        let id = tip.and_then(State::expiry_id);
        let (over, rest) = expiry::count_votes(&round.reports, cx.replicas, id);
        two.rest = rest;
        two.droppable = window::droppable(&round.reports, cx.replicas, tip);
        let has_ages = id.is_some() || tip.is_some_and(State::has_once);
        match id {
            Some(id) if expiry::is_voted(cx.replicas, over) => {
                let operation = Operation::internal(Source::Expire(id), self.step);
                active.queue.push_front(operation);
                // An operation may wait for a window that others do not consider over. Do not ask
                // again at once.
                active.vote_again_at = cx.now + VOTE_PAUSE;
            }
            _ if !two.droppable.is_empty() => {}
            _ if has_ages && self.awaits_until(cx, &round).is_some() => active.read = Some(round),
            _ => active.vote_again_at = cx.now + VOTE_PAUSE,
        }
    }

    /// The ownership has ended since the vote was requested. It counts for the state held here.
    fn settle_late_vote(&mut self, cx: &mut Cx<'_>, active: &mut Active, round: &ReadRound) {
        let id = held(cx, &active.key).and_then(Register::expiry_id);
        let (over, _) = expiry::count_votes(&round.reports, cx.replicas, id);
        if let Some(id) = id.filter(|_| expiry::is_voted(cx.replicas, over)) {
            active.queue.push_front(Operation::internal(Source::Expire(id), self.step));
        }
        active.vote_again_at = cx.now + VOTE_PAUSE;
    }
}

/// This acceptor's own countdown of the state it holds, if that state has the expiry `id`.
fn own_countdown(cx: &Cx<'_>, key: &Key, id: ExpiryId) -> Countdown {
    match cx.cache.get(key) {
        CachedRegister::Present(register) if register.expiry_id() == Some(id) => {
            register.countdown(cx.uptime, cx.unix)
        }
        _ => Countdown::None,
    }
}

/// True if a vote on the windows of the tip's entries is worth a round trip. An operation waits for
/// an entry to be dropped, and one may be over.
fn wants_vote(cx: &Cx<'_>, active: &Active, two: &PhaseTwo) -> bool {
    let Some(tip) = two.tip.state.as_ref().filter(|tip| tip.has_once()) else { return false };
    let Some(table) = tip.once() else { return false };
    let lacks_room = |operation: &Operation| {
        operation.remembered_by().is_some_and(|once| table::is_full_for(table, &once.session))
    };
    let waits = |operation: &Operation| match operation.source {
        Source::Forget => true,
        Source::Collect => tip.is_tombstone(),
        _ => lacks_room(operation),
    };
    two.droppable.is_empty()
        && active.queue.iter().any(waits)
        && may_be_over(cx, &active.key, table)
}

/// True if this acceptor finds an entry over, or lags and cannot tell.
fn may_be_over(cx: &Cx<'_>, key: &Key, table: &[u8]) -> bool {
    let held = held(cx, key);
    let own = held.and_then(|register| Some((register, register.state.as_ref()?.once()?)));
    let Some((register, held)) = own else { return true };
    let bits = register.windows_over(cx.uptime);
    let over: Vec<EntryId> = window::chosen_of(held, bits).collect();
    let known: Vec<EntryId> = table::ids(held).collect();
    table::ids(table).any(|id| over.contains(&id) || !known.contains(&id))
}
