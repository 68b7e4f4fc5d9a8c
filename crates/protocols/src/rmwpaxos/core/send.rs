//! Messages of the proposer to one member.

use types::{Key, NodeId, Round};

use crate::rmwpaxos::context::Cx;
use crate::rmwpaxos::message::Message;
use crate::rmwpaxos::progress::active::{PhaseOne, PhaseTwo};

pub(super) fn prepare(cx: &mut Cx<'_>, key: &Key, one: &PhaseOne, to: NodeId) {
    let have = match &one.have {
        Some((round, _)) if to != cx.replicas.me() => *round,
        _ => Round::NONE,
    };
    let (key, ballot, fence) = (key.clone(), one.ballot, one.fence);
    cx.fx.send_now(to, Message::Prepare { key, ballot, have, fence });
}

pub(crate) fn accept(cx: &mut Cx<'_>, key: &Key, two: &PhaseTwo, index: usize, to: NodeId) {
    let proposal = &two.in_flight[index];
    let message = Message::Accept {
        key: key.clone(),
        round: two.round(proposal.k),
        chosen_k: two.chosen_k,
        state: proposal.state.clone(),
    };
    cx.fx.send_now(to, message);
}
