//! Anti-entropy: replicas become equal even if no client reads.

pub(crate) mod comparison;
pub(crate) mod patrol;
pub(crate) mod pending_repairs;
pub(crate) mod ranges;
pub(crate) mod walk;
