//! Limits that may change while the node runs: the members of a cluster agree on the strictest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use base::Millis;
use commands::Interpreter;
use node::settings::Agreed;
use types::{Applied, Clock, Update, View};

/// The limits that count now. Sessions and the interpreter read them without a lock.
pub(crate) struct Limits {
    max_value_len: Arc<AtomicUsize>,
    once_window: AtomicU64,
}

impl Limits {
    /// Before members have announced theirs, a node's own limits count.
    pub(crate) fn new(max_value_len: usize, once_window: Millis) -> Limits {
        Limits {
            max_value_len: Arc::new(AtomicUsize::new(max_value_len)),
            once_window: AtomicU64::new(once_window.0),
        }
    }

    pub(crate) fn agree(&self, agreed: &Agreed) {
        self.max_value_len.store(agreed.max_value_size, Relaxed);
        self.once_window.store(agreed.once_window.0, Relaxed);
    }

    pub(crate) fn max_value_len(&self) -> usize {
        self.max_value_len.load(Relaxed)
    }

    pub(crate) fn once_window(&self) -> Millis {
        Millis(self.once_window.load(Relaxed))
    }

    pub(crate) fn interpreter(&self) -> Arc<dyn Update> {
        Arc::new(LimitedInterpreter { max_value_len: Arc::clone(&self.max_value_len) })
    }
}

/// Runs commands under the limit that counts at that moment.
struct LimitedInterpreter {
    max_value_len: Arc<AtomicUsize>,
}

impl Update for LimitedInterpreter {
    fn apply(&self, view: View<'_>, body: &[u8], clock: Clock) -> Applied {
        let max_value_len = self.max_value_len.load(Relaxed);
        Interpreter { max_value_len, scripts: Some(scripts::ENGINE) }.apply(view, body, clock)
    }
}
