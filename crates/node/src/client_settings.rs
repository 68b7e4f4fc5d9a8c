//! Settings of client connections that an operator may change while the node runs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use base::Nanos;

use crate::config::NodeConfig;
use crate::long_runs::LongRuns;

/// Seconds after which an idle client is probed, by default.
pub const TCP_KEEPALIVE_DEFAULT: u64 = 300;

/// Shared by all workers; none of it is read on the path of a request.
#[derive(Debug)]
pub struct ClientSettings {
    clients_max: AtomicUsize,
    /// Clients for which there are file descriptors.
    clients_possible: usize,
    tcp_keepalive: AtomicU64,
    timeout: AtomicU64,
    long_runs: LongRuns,
}

impl ClientSettings {
    #[must_use]
    pub fn new(config: &NodeConfig) -> ClientSettings {
        ClientSettings {
            clients_max: AtomicUsize::new(config.clients_max.min(config.clients_accepted)),
            clients_possible: config.clients_accepted,
            tcp_keepalive: AtomicU64::new(TCP_KEEPALIVE_DEFAULT),
            timeout: AtomicU64::new(0),
            long_runs: LongRuns::default(),
        }
    }

    /// Clients beyond these are refused.
    pub fn clients_max(&self) -> usize {
        self.clients_max.load(Relaxed)
    }

    /// The most that [`ClientSettings::set_clients_max`] may be given.
    pub fn clients_possible(&self) -> usize {
        self.clients_possible
    }

    pub fn set_clients_max(&self, count: usize) {
        self.clients_max.store(count, Relaxed);
    }

    /// Seconds until the system probes an idle client; 0 never.
    pub fn tcp_keepalive(&self) -> u64 {
        self.tcp_keepalive.load(Relaxed)
    }

    pub fn set_tcp_keepalive(&self, seconds: u64) {
        self.tcp_keepalive.store(seconds, Relaxed);
    }

    /// Seconds after which an idle client is disconnected; 0 never.
    pub fn timeout(&self) -> u64 {
        self.timeout.load(Relaxed)
    }

    pub fn set_timeout(&self, seconds: u64) {
        self.timeout.store(seconds, Relaxed);
    }

    /// Scripts that run for long.
    pub fn long_runs(&self) -> &LongRuns {
        &self.long_runs
    }

    /// The same as a span; `None` if clients may idle for ever.
    pub fn idle_max(&self) -> Option<Nanos> {
        match self.timeout() {
            0 => None,
            seconds => Some(Nanos::from_secs(seconds)),
        }
    }
}
