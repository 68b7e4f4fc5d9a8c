//! Load generators and measurements.
//!
//! [`resp`] loads any server that speaks RESP from one thread.
//! It reports its clients' results and the CPU time of the server's processes.
//! Other modules use it for one measurement each: peers, failover, restart, idling.
//! [`media`] writes to storage without any server.
//! [`protocols`] runs whole nodes in this process and makes the requests inside of them.
//! Each starts its servers on loopback and cleans up.
//!
//! Throughput is a poor measure on machines that share their cores with the load.
//! So each report also has the servers' CPU time per operation.
//!
//! The binary parses the command line.

pub mod availability;
pub mod client;
pub mod cluster;
mod connection;
pub mod failover;
pub mod idle;
pub mod media;
pub mod peers;
mod plot;
pub mod process;
pub mod protocols;
pub mod proxy;
mod reply;
pub mod report;
pub mod resp;
pub mod restart;
pub mod workload;

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, socket or process could not be used.
    #[error("{action}: {source}")]
    Io { action: String, source: std::io::Error },
    /// The system under measurement did not come up in time.
    #[error("{system} was not ready within {seconds} s{details}")]
    NotReady { system: String, seconds: u64, details: String },
    /// A configuration that cannot be run.
    #[error("{0}")]
    Usage(String),
    /// A server sent a forbidden reply.
    #[error("{0}")]
    Protocol(String),
}

impl Error {
    /// Adds the failed action to an I/O error.
    pub fn io(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let action = action.into();
        move |source| Error::Io { action, source }
    }
}

/// The result of a measurement.
pub type Result<T> = std::result::Result<T, Error>;
