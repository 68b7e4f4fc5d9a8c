//! How long a client may stay held or idle.

use node::session::SessionContext;

use super::{Hold, Session};

impl Session {
    /// Shows its input again to a client that a pause held.
    pub(super) fn look_at_pause(&mut self, cx: &mut SessionContext<'_>) {
        if self.hold != Hold::Pause {
            return;
        }
        match self.shared.pause.until() {
            until if until > cx.now => self.arm(until, cx),
            _ => self.hold = Hold::No,
        }
    }

    /// Ends a client that has been idle for too long, and sees to it that the end of its patience
    /// is noticed.
    pub(super) fn look_at_idle(&mut self, cx: &mut SessionContext<'_>) {
        let Some(idle_max) = cx.node.client_settings().idle_max() else { return };
        // A client that waits for a reply is not idle.
        if !self.pipeline.is_empty() || self.hold != Hold::No || self.is_subscribed() {
            return self.arm(cx.now + idle_max, cx);
        }
        let last = self.facts.activity.at().max(self.facts.since.unwrap_or(cx.now));
        match last + idle_max {
            end if end <= cx.now => self.end_now(),
            end => self.arm(end, cx),
        }
    }
}
