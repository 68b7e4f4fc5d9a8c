//! Deltas: a proposal sent as its change of the preceding state, to members that should hold that
//! state.
//!
//! A member that cannot apply a delta asks for the whole state and is unchanged, as if the delta
//! had been lost.

use std::sync::Arc;

use types::{Key, Round};

use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::rmwpaxos::context::{Cx, gate, held, is_lost};
use crate::rmwpaxos::core::in_sync;
use crate::rmwpaxos::core::instance::Core;
use crate::rmwpaxos::core::send;
use crate::rmwpaxos::message::Message;
use crate::rmwpaxos::message::delta::Delta;
use crate::rmwpaxos::progress::active::{Phase, PhaseTwo};
use crate::rmwpaxos::progress::counters::Figure;
use crate::rmwpaxos::record::state::State;

/// How proposals travel.
#[derive(Default, Debug)]
pub(crate) struct Deltas {
    /// Deltas that a member could not apply.
    needed_full: Figure,
    /// Every proposal on a base with a value is sent as a delta, however short.
    #[cfg(test)]
    pub(crate) always: bool,
}

impl Deltas {
    pub(crate) fn needed_full(&self) -> u64 {
        self.needed_full.get()
    }

    /// The change from `base` to `state`, if it is worth sending instead.
    pub(crate) fn between(&self, base: (Round, &State), state: &State) -> Option<Arc<Delta>> {
        #[cfg(test)]
        if self.always {
            return Delta::between(base, state).map(Arc::new);
        }
        Delta::where_it_pays(base, state).map(Arc::new)
    }

    /// A member could not apply a delta: it gets the state of exactly that round, or a later one
    /// under its own round. [corrections B3] It has neither accepted nor refused anything.
    pub(crate) fn on_need_full(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        (key, round): (&Key, Round),
    ) {
        let Some(mut active) = core.find_active(cx, key) else {
            return send_held(core, cx, from, key, round);
        };
        base::sometimes!("a delta cannot be applied");
        self.needed_full.add(1);
        match &mut active.phase {
            Phase::Owner(two) if two.ballot == round.ballot() => {
                base::sometimes!("a proposal is asked for whole while it is under way");
                send_whole(cx, key, two, from, round);
            }
            _ => send_held(core, cx, from, key, round),
        }
        core.put_untouched(active);
    }
}

/// Answers for a proposal that is not in flight any more. No operation waits for its
/// acknowledgement, but its outcome is known here.
fn send_held(core: &mut Core, cx: &mut Cx<'_>, from: Peer, key: &Key, round: Round) {
    if is_lost(cx, key) {
        return;
    }
    let Some(held) = held(cx, key).filter(|held| held.accepted >= round) else { return };
    let Some(state) = held.state.clone() else { return };
    base::sometimes!("a proposal is asked for whole when it is settled");
    core.count_repair();
    let message = Message::Repair { key: key.clone(), round: held.accepted, state };
    let after = gate(cx, key);
    cx.fx.send(from.node, message, after);
}

fn send_whole(cx: &mut Cx<'_>, key: &Key, two: &mut PhaseTwo, from: Peer, round: Round) {
    let found = two.in_flight.iter().position(|proposal| proposal.k == round.k());
    let is_newest = found.is_none_or(|at| at + 1 == two.in_flight.len());
    match found {
        Some(at) if !mutation::is(Mutation::TipUnderAskedRound) => {
            send::accept(cx, key, two, at, from.node);
        }
        _ => send_tip(cx, key, two, from, round),
    }
    // The member did not accept the proposals after it either. It asks for them next.
    in_sync::note(cx, &mut two.in_sync, from.node, is_newest);
}

fn send_tip(cx: &mut Cx<'_>, key: &Key, two: &PhaseTwo, from: Peer, asked: Round) {
    let Some(state) = two.tip.state.clone().filter(|_| two.k >= asked.k()) else { return };
    let own = two.round(two.k);
    let round = if mutation::is(Mutation::TipUnderAskedRound) { asked } else { own };
    let (key, chosen_k) = (key.clone(), two.chosen_k);
    cx.fx.send_now(from.node, Message::Accept { key, round, chosen_k, state });
}
