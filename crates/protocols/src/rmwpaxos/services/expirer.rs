//! Expires keys that no client touches: asks a quorum once a deadline that this node set is over.

use std::collections::BTreeMap;

use base::{Millis, Nanos};
use types::{Key, TimeToLive};

use crate::effects::TimerId;
use crate::rmwpaxos::context::{Cx, held};
use crate::rmwpaxos::core::instance::Core;
use crate::rmwpaxos::message::{Due, Message};
use crate::rmwpaxos::record::register::Countdown;
use crate::rmwpaxos::record::state::{ExpiryId, State};

pub(crate) const EXPIRE: TimerId = TimerId(2);

/// Deadlines that a node waits for. Other keys expire when they are touched.
const SCHEDULED_MAX: usize = 65_536;
/// How long after its deadline a key expires without a client.
const SLACK: Nanos = Nanos::from_millis(20);

/// The deadlines that this node set, in order.
#[derive(Default, Debug)]
pub(crate) struct Expirer {
    due: BTreeMap<(Nanos, Key), ExpiryId>,
    armed: Option<Nanos>,
}

impl Expirer {
    /// Schedules a chosen state with a deadline.
    pub(crate) fn schedule(&mut self, cx: &mut Cx<'_>, key: &Key, state: &State) {
        let Some(expiry) = state.expiry() else { return };
        if expiry.id.version != state.version() || self.due.len() >= SCHEDULED_MAX {
            return;
        }
        let span = match expiry.ttl {
            TimeToLive::After(span) => span,
            TimeToLive::At { unix } => Millis(unix.0.saturating_sub(cx.unix.0)),
            TimeToLive::Never => return,
        };
        // A deadline centuries away expires on access.
        let Some(span) = span.0.checked_mul(1_000_000) else { return };
        let at = cx.now + Nanos(span) + SLACK;
        self.due.insert((at, key.clone()), expiry.id);
        self.arm(cx);
    }

    fn arm(&mut self, cx: &mut Cx<'_>) {
        let Some(((at, _), _)) = self.due.first_key_value() else { return };
        if self.armed.is_none_or(|armed| *at < armed) {
            self.armed = Some(*at);
            cx.fx.timer(EXPIRE, *at);
        }
    }

    pub(crate) fn on_timer(&mut self, cx: &mut Cx<'_>) {
        // An earlier timer may have replaced this one. Only the newest arms another.
        if self.armed.is_some_and(|armed| armed <= cx.now) {
            self.armed = None;
        }
        let me = cx.replicas.me();
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > cx.now {
                break;
            }
            let ((_, key), _) = entry.remove_entry();
            cx.fx.send_now(me, Message::Touch { key, due: Due::Expire });
        }
        self.arm(cx);
    }
}

/// The register is resident. If its time is over, a read without operations has a quorum decide.
pub(crate) fn on_due(core: &mut Core, cx: &mut Cx<'_>, key: &Key) {
    // A node that is no replica runs no countdown: the replicas vote.
    let is_over = !cx.replicas.set.has_me()
        || held(cx, key)
            .is_some_and(|register| register.countdown(cx.uptime, cx.unix) == Countdown::Over);
    if is_over {
        core.read_for_expiry(cx, key);
    }
}
