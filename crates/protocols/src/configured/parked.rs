//! Requests that wait: for the next epoch, for a lease, or for a member to pass them on to.
//!
//! Requests on one key keep the order in which they came.

use base::Nanos;
use types::Outcome;

use super::state::parked::Turn;
use super::{Configured, Cx, Member, PARKED_DUE};
use crate::protocol::Request;
use crate::request::PutAside;

/// Requests that wait; more end at once without effect.
const PARKED_MAX: usize = 1 << 16;
/// When a request that found no lease or no member is tried again.
const RETRY: Nanos = Nanos::from_millis(10);
/// So many more requests that wait make it as long again: a retry is work for each of them.
const RETRIED_AT_ONCE: u64 = 256;

impl<P: Member> Configured<P> {
    /// Keeps a request behind earlier ones on its key. Returns one whose turn it is.
    pub(super) fn in_turn(&mut self, cx: &mut Cx<'_, P>, request: Request) -> Option<Request> {
        match self.parked.admit(&request) {
            Turn::Now => return Some(request),
            Turn::Park => self.park(cx, request),
            Turn::Again => self.come_again(cx, request),
        }
        None
    }

    /// Keeps a request until the next epoch begins or its time is over.
    pub(super) fn park(&mut self, cx: &mut Cx<'_, P>, request: Request) {
        if self.parked.requests.len() >= PARKED_MAX {
            return cx.fx.reply(request.tag, Outcome::NoQuorum);
        }
        let deadline = request.asked_at + self.env.request_timeout;
        self.parked.change(&request.key, |waiting| waiting.parked += 1);
        self.parked.requests.push_back(request);
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

    /// The request comes again, once its register is resident.
    pub(super) fn come_again(&mut self, cx: &mut Cx<'_, P>, request: Request) {
        self.parked.released.insert(request.tag);
        self.parked.change(&request.key, |waiting| waiting.released += 1);
        cx.fx.again(PutAside::Request(request));
    }

    /// Every parked request comes again.
    pub(super) fn release_parked(&mut self, cx: &mut Cx<'_, P>) {
        for request in std::mem::take(&mut self.parked.requests) {
            self.parked.change(&request.key, |waiting| waiting.parked -= 1);
            self.come_again(cx, request);
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
        let factor = 1 + self.parked.requests.len() as u64 / RETRIED_AT_ONCE;
        self.plan_parked(cx, cx.now + Nanos(RETRY.0 * factor));
    }
}
