//! Limits that the system sets for this process.

use std::sync::Arc;

use node::config::NodeConfig;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;
use types::limits::MEMBERS_MAX;

/// File descriptors of a node for its files, its listeners and short-lived files.
const FILES: u64 = 24;

/// Connections to the admin port.
const ADMIN: u64 = admin::CONNECTIONS_MAX as u64;

/// File descriptors of a thread: its poll and its waker.
const OF_THREAD: u64 = 3;

/// File descriptors that a node keeps from its clients.
///
/// A link may stand twice for a moment, while a new one takes the place of one that is silent.
fn own(config: &NodeConfig) -> u64 {
    let members = if config.members.is_empty() { MEMBERS_MAX } else { config.members.len() };
    let (peers, workers) = (members as u64 - 1, config.workers as u64);
    let links = 2 * peers * (workers + 1);
    FILES + ADMIN + OF_THREAD * (workers + 1) + links + node::node::UNPROVEN_MAX as u64
}

/// Raises the limit of file descriptors to the maximum, and lets a write beyond the maximal file
/// length fail instead of ending the process.
///
/// Gives each of `nodes` the number of clients for which it has file descriptors. What a node
/// itself needs is kept from them, for it opens files and links while it serves.
pub(crate) fn lift<'a>(nodes: impl ExactSizeIterator<Item = &'a mut NodeConfig>) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If it is refused, the current limit has to do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    let Some(most) = getrlimit(Resource::Nofile).current else { return };
    let count = nodes.len() as u64;
    let mut least = None;
    for node in nodes {
        node.clients_accepted = acceptable(most / count, own(node));
        if node.clients_accepted < node.clients_max {
            least = least.max(Some((node.clients_max, node.clients_accepted)));
        }
    }
    if let Some((clients_max, acceptable)) = least {
        tracing::warn!(
            target: "clients",
            limit = most,
            "file descriptors (ulimit -n) are too few for {clients_max} clients: \
             those beyond {acceptable} wait until others leave"
        );
    }
}

/// Clients for which a node has room that may open `most` file descriptors and needs `own` of them.
fn acceptable(most: u64, own: u64) -> usize {
    let kept = own.min(most * 3 / 4);
    usize::try_from(most - kept).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_keep_file_descriptors_from_clients() {
        assert_eq!(acceptable(10_100, 100), 10_000);
        assert_eq!(acceptable(1_024, 100), 924);
        assert_eq!(acceptable(64, 100), 16);
        assert_eq!(acceptable(1, 100), 1);
        assert_eq!(acceptable(0, 100), 1);
    }
}
