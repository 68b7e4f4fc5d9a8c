//! Helpers of the process tests.

mod damage;
mod nodes;
mod proxy;
mod recorder;

pub use damage::damage;
pub use nodes::{BINARY, Nodes, config, exit_of, http_get, run};
pub use proxy::start_with_proxies;
pub use recorder::Recorder;

use std::time::Duration;

use bench::process::wait_until;

/// Longer than any condition takes on a slow machine.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not hold in time; `what` names it.
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(wait_until(LIMIT, condition), "waited {LIMIT:?} in vain: {what}");
}
