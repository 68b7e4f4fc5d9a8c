//! Requests that wait: for the next epoch, for a lease, or for a member to pass them on to.
//!
//! Requests of a session on one key keep the order in which they came.

use base::Nanos;
use types::{Outcome, Tag};

use super::{Configured, Cx, Member, PARKED_DUE};
use crate::protocol::Request;
use crate::request::PutAside;
use crate::toolkit::lanes::Place;

/// When a request that found no lease or no member is tried again.
const RETRY: Nanos = Nanos::from_millis(10);
/// So many more sessions and keys make it as long again: a retry is work for each of them.
const RETRIED_AT_ONCE: u64 = 256;

impl<P: Member> Configured<P> {
    /// Keeps a request until the next epoch begins or its time is over.
    pub(super) fn park(&mut self, cx: &mut Cx<'_, P>, request: Request) {
        if !self.parked.has(request.tag) && !self.parked.has_room() {
            return cx.fx.reply(request.tag, Outcome::NoQuorum);
        }
        let deadline = request.asked_at + self.env.request_timeout;
        self.parked.keep(request);
        self.plan_parked(cx, deadline);
    }

    /// Keeps a request that may succeed soon.
    pub(super) fn park_for_now(&mut self, cx: &mut Cx<'_, P>, request: Request) {
        self.park(cx, request);
        self.plan_retry(cx);
    }

    fn plan_parked(&mut self, cx: &mut Cx<'_, P>, at: Nanos) {
        if self.parked.due.is_none_or(|due| at < due) {
            self.parked.due = Some(at);
            cx.fx.timer(PARKED_DUE, at);
        }
    }

    /// A request is answered, or inside the member: the next one of its lane comes.
    pub(super) fn end_turn(&mut self, cx: &mut Cx<'_, P>, tag: Tag, place: &Place) {
        if let Some(next) = self.parked.end(tag, place) {
            cx.fx.again(PutAside::Request(next));
        }
    }

    /// Parked requests come again, once their registers are resident.
    pub(super) fn release_parked(&mut self, cx: &mut Cx<'_, P>) {
        for request in self.parked.take_firsts() {
            cx.fx.again(PutAside::Request(request));
        }
    }

    pub(super) fn on_parked_due(&mut self, cx: &mut Cx<'_, P>) {
        if self.parked.due.is_some_and(|due| due <= cx.now) {
            self.parked.due = None;
            self.release_parked(cx);
            self.retry_lists(cx);
        }
    }

    /// Calls [`Configured::on_parked_due`] for requests and listings that wait.
    pub(super) fn plan_retry(&mut self, cx: &mut Cx<'_, P>) {
        let factor = 1 + self.parked.lanes() as u64 / RETRIED_AT_ONCE;
        self.plan_parked(cx, cx.now + Nanos(RETRY.0 * factor));
    }
}
