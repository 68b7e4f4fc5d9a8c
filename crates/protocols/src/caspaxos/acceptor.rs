//! The answers of this replica to proposers, and theirs to this one.

use types::Key;

use super::message::{About, Body};
use super::register::Register;
use super::rounds::{Cx, Machine};
use crate::protocol::Peer;
use crate::toolkit::proposers::{change, report};
use crate::toolkit::stamp::Stamp;
use crate::uptime::Uptime;

/// A message of the protocol.
pub(super) fn on_body(
    machine: &mut Machine,
    cx: &mut Cx<'_>,
    from: Peer,
    (id, key): (u64, &Key),
    body: Body,
) {
    match body {
        Body::Prepare { ballot } => machine.answer(cx, from.node, (id, key), |it, cx| {
            let vote = change(cx, key, |register: &mut Register, _| register.prepare(ballot));
            it.rules.drop_below(key, ballot);
            match vote {
                Ok(()) => (About::State(report(cx, key)), true),
                Err(promised) => refused(promised),
            }
        }),
        Body::Accept { ballot, next, state } => {
            machine.answer(cx, from.node, (id, key), |it, cx| {
                let accept = |register: &mut Register, uptime: &dyn Uptime| {
                    register.accept((ballot, next), &state, uptime)
                };
                let vote = change(cx, key, accept);
                it.watch(cx, key);
                it.rules.drop_below(key, ballot);
                match vote {
                    Ok(()) => (About::Own(Body::Accepted), true),
                    Err(promised) => refused(promised),
                }
            });
        }
        Body::Accepted => {
            machine.with_phase(cx, key, id, |it, cx, active| it.on_accepted(cx, active, from));
        }
        Body::Refused { promised } => machine.with_phase(cx, key, id, |it, cx, active| {
            it.on_refused(cx, active, from, promised);
        }),
    }
}

fn refused(promised: Stamp) -> (About, bool) {
    (About::Own(Body::Refused { promised }), false)
}
