//! What the system lets this process have.

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

use crate::log::{self, Level};

/// File descriptors of a node for all but clients: files, links to other nodes, the admin port.
const OWN: u64 = 100;

/// Takes as many file descriptors as the system allows, and lets a write beyond the length that files may have fail like
/// one to a full disk, where it would end the process.
///
/// Returns for how many clients each of `nodes` has file descriptors: what a node itself needs is kept from them, for it
/// opens files and links while it serves.
pub(crate) fn lift(nodes: usize, clients_max: usize) -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it is refused, what there is has to do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    let Some(most) = getrlimit(Resource::Nofile).current else { return usize::MAX };
    let acceptable = acceptable(most / nodes as u64);
    if acceptable < clients_max {
        log::line(
            Level::Warn,
            format!(
                "the system allows {most} file descriptors (ulimit -n), too few for {clients_max} clients: those beyond {acceptable} wait until others leave"
            ),
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
