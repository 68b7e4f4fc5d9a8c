//! Limits that the system sets for this process.

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

/// File descriptors of a node for all but clients: files, links to other nodes, the admin port.
const OWN: u64 = 100;

/// Raises the limit of file descriptors to the maximum, and lets a write beyond the maximal file
/// length fail instead of ending the process.
///
/// Returns for how many clients each of `nodes` has file descriptors. Each node keeps some for files
/// and links that it opens while it serves.
pub(crate) fn lift(nodes: usize, clients_max: usize) -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If it is refused, the current limit has to do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    let Some(most) = getrlimit(Resource::Nofile).current else { return usize::MAX };
    let acceptable = acceptable(most / nodes as u64);
    if acceptable < clients_max {
        tracing::warn!(
            target: "clients",
            limit = most,
            "file descriptors (ulimit -n) are too few for {clients_max} clients: \
             those beyond {acceptable} wait until others leave"
        );
    }
    acceptable
}

/// Clients for which a node that may open `most` file descriptors has room.
fn acceptable(most: u64) -> usize {
    let kept = OWN.min(most * 3 / 4);
    usize::try_from(most - kept).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_keep_file_descriptors_from_clients() {
        assert_eq!(acceptable(10_100), 10_000);
        assert_eq!(acceptable(1_024), 924);
        assert_eq!(acceptable(64), 16);
        assert_eq!(acceptable(1), 1);
        assert_eq!(acceptable(0), 1);
    }
}
