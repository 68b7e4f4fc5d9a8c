//! Load generators and measurements.
//!
//! [`resp`] loads any server that speaks RESP from one thread and says what its clients saw and what its
//! processes cost. The other modules are plans made of it: peers, failover, restart, idling; [`media`] writes to
//! storage without any server. Each starts what it measures on loopback and cleans up. Machines that share their
//! cores with the load make throughput a poor measure, so the CPU time of the servers per operation stands beside
//! it everywhere.
//!
//! Nothing here parses a command line: that is the binary's.

pub mod client;
pub mod cluster;
mod connection;
pub mod failover;
pub mod idle;
pub mod media;
pub mod peers;
pub mod process;
mod reply;
pub mod report;
pub mod resp;
pub mod restart;
pub mod workload;

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, socket or process could not be used.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// What was to be measured did not come up in time.
    #[error("{what} was not ready within {seconds} s{details}")]
    NotReady { what: String, seconds: u64, details: String },
    /// A configuration that cannot be run.
    #[error("{0}")]
    Usage(String),
    /// A server said something that it must not say.
    #[error("{0}")]
    Protocol(String),
}

impl Error {
    /// Names what was being done when `source` happened.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}

/// The result of a measurement.
pub type Result<T> = std::result::Result<T, Error>;
