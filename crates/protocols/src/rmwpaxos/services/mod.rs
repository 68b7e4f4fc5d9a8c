//! Services around the core. Each has its own state and asks the core to change registers.

pub(crate) mod anti_entropy;
pub(crate) mod expirer;
pub(crate) mod explaining;
pub(crate) mod forwarding;
pub(crate) mod lingering;
pub(crate) mod listing;
pub(crate) mod presence_conflict;
pub(crate) mod recovery;
pub(crate) mod rollback_detector;
