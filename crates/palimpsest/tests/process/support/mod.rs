//! What the process tests share.

mod nodes;
mod proxy;
mod recorder;

pub use nodes::{BINARY, Nodes, config, exit_of, http_get, run};
pub use proxy::Proxies;
pub use recorder::Recorder;

use std::time::Duration;

use bench::process::wait_until;

/// Nothing that a test waits for takes longer on a machine that is merely slow.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not hold in time; `what` says what was waited for.
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(wait_until(LIMIT, condition), "waited {LIMIT:?} in vain: {what}");
}
