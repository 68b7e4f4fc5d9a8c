//! The dispatch of events and messages.

use types::Key;

use super::active::Phase;
use super::machine::{Cx, ENDS, Machine, Rules, SWEEP};
use crate::protocol::{Event, Peer, Protocol};
use crate::toolkit::explainer::EXPLAINER_TICK;
use crate::toolkit::message::{About, Message};
use crate::toolkit::no_meta::NoMeta;
use crate::toolkit::pager::PAGER_TICK;
use crate::toolkit::report::{Report, held};

impl<R: Rules> Machine<R> {
    /// One step of the protocol.
    pub fn on<P>(&mut self, cx: &mut Cx<'_, R>, event: Event<P>)
    where
        P: Protocol<
                Record = <R::Report as Report>::Record,
                Meta = NoMeta,
                Message = Message<R::Report>,
            >,
    {
        match event {
            Event::Request(request) => self.on_request(cx, request),
            Event::List { tag, from_hash, limit } => self.pager.on_list(cx, tag, from_hash, limit),
            Event::Explain { tag, key } => self.explainer.on_explain(cx, tag, key),
            Event::Peer { from, message } => match message {
                Message::About { id, key, body } => self.on_message(cx, from, (id, &key), body),
                Message::Paging(message) => self.pager.on_message(cx, from, message),
            },
            Event::Timer(PAGER_TICK) => self.pager.on_tick(cx),
            Event::Timer(EXPLAINER_TICK) => self.explainer.on_tick(cx),
            Event::Timer(ENDS) => self.on_ends(cx),
            Event::Timer(SWEEP) => self.sweep.on_timer(cx, &self.env),
            Event::Timer(_) => self.on_tick(cx),
            Event::Scanned(scanned) if self.sweep.on_scanned(cx, &scanned) => {
                self.on_swept(cx, scanned);
            }
            Event::Scanned(scanned) => self.pager.on_scanned(cx, scanned),
            Event::Forgotten { shard } => self.on_forgotten(cx, shard),
            Event::Turn => self.on_turn(cx),
            // Timers resend unanswered messages. A tally is checked against the view when it
            // decides.
            Event::PeerReset { .. }
            | Event::PeerUp { .. }
            | Event::PeerSteady { .. }
            | Event::ViewChanged
            | Event::Group(_) => {}
        }
        self.arm(cx);
    }

    fn on_message(
        &mut self,
        cx: &mut Cx<'_, R>,
        from: Peer,
        (id, key): (u64, &Key),
        body: About<R::Report>,
    ) {
        let is_own = from.node == cx.replicas.me();
        match body {
            About::Read => self.on_read_asked(cx, from.node, id, key),
            About::State(report) => {
                if !self.explainer.on_explained(cx, from, id, || held(&report)) {
                    self.with_phase(cx, key, id, |it, cx, active| match active.phase {
                        Phase::Reading(_) => it.on_read_report(cx, active, from, report),
                        _ => R::on_report(it, cx, active, from, report),
                    });
                }
            }
            About::Recover { found } if is_own => self.on_recover(cx, id, key, found),
            About::Expire if is_own => self.on_expire(cx, key),
            About::Recover { .. } | About::Expire => {}
            About::Own(body) => R::on_body(self, cx, from, (id, key), body),
        }
    }
}
