//! What the system lets this process have.

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

use crate::log::{self, Level};

/// File descriptors for all but clients.
const OWN: u64 = 100;

/// Takes as many file descriptors as the system allows, and lets a write beyond the length that files may have fail like
/// one to a full disk, where it would end the process.
pub(crate) fn lift(clients_max: usize) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it is refused, what there is has to do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    if let Some(most) = getrlimit(Resource::Nofile).current
        && most < clients_max as u64 + OWN
    {
        log::line(
            Level::Warn,
            format!(
                "the system allows {most} file descriptors (ulimit -n), too few for {clients_max} clients: those beyond wait until others leave"
            ),
        );
    }
}
