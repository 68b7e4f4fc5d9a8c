//! Running time, on which times to live are counted.

use std::fmt::Debug;

use base::Millis;

/// How long this node has run, over all its starts.
///
/// Spans of about the same length share a clock. A clock stands still while the node is down, and
/// may stand still while no countdown uses it. After a crash it resumes from a saved value. So it
/// may lag behind the truth, and it never counts a moment twice.
pub trait Uptime: Debug {
    /// The time on the clock for spans of this length.
    fn now(&self, span: Millis) -> Millis;

    /// The time at which a countdown of `span` starts. Its clock runs until the countdown is over.
    fn start(&self, span: Millis) -> Millis;

    /// Keeps the clock running for a countdown of `span` that started at `start` and is not over.
    fn keep(&self, span: Millis, start: Millis);
}

impl dyn Uptime + '_ {
    /// The remainder of a countdown of `span` that started at `start`.
    #[must_use]
    pub fn rest(&self, span: Millis, start: Millis) -> Millis {
        let now = self.now(span);
        // Clocks show whole milliseconds: the first one may have been all but over at the start.
        let rest = span.0.saturating_sub(now.0.saturating_sub(start.0.saturating_add(1)));
        if rest > 0 {
            self.keep(span, start);
        }
        Millis(rest)
    }
}

/// A single clock that never stands still: for registers that live no longer than the process.
impl Uptime for Millis {
    fn now(&self, _span: Millis) -> Millis {
        *self
    }

    fn start(&self, _span: Millis) -> Millis {
        *self
    }

    fn keep(&self, _span: Millis, _start: Millis) {}
}
