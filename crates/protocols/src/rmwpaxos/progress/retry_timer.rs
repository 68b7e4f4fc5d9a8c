//! The timer of unfinished work. It checks all of it every few milliseconds; an idle node has none.

use std::collections::BTreeSet;

use base::Nanos;
use types::Key;

use crate::effects::TimerId;
use crate::rmwpaxos::context::Cx;

pub(crate) const RETRY: TimerId = TimerId(0);
pub(crate) const BACK_OFF: TimerId = TimerId(3);

const RETRY_EVERY: Nanos = Nanos::from_millis(10);

#[derive(Default, Debug)]
pub(crate) struct RetryTimer {
    armed: bool,
    back_offs: BTreeSet<(Nanos, Key)>,
}

impl RetryTimer {
    pub(crate) fn arm(&mut self, cx: &mut Cx<'_>) {
        if !self.armed {
            self.armed = true;
            cx.fx.timer(RETRY, cx.now + RETRY_EVERY);
        }
    }

    pub(crate) fn on_fired(&mut self) {
        self.armed = false;
    }

    /// Has the key looked at again at `until`, when it backs off or its patience ends.
    pub(crate) fn back_off(&mut self, cx: &mut Cx<'_>, until: Nanos, key: Key) {
        self.back_offs.insert((until, key));
        cx.fx.timer(BACK_OFF, until);
    }

    /// The next key that was to be looked at by `now`.
    pub(crate) fn next_due(&mut self, now: Nanos) -> Option<Key> {
        let (until, _) = self.back_offs.first()?;
        if *until > now {
            return None;
        }
        self.back_offs.pop_first().map(|(_, key)| key)
    }
}
