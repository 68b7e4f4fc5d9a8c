//! The thin shell around workers and formation: threads, sockets, clocks.
//!
//! Each worker has its sockets ([`worker_thread`]): its clients and its links. As many event loops
//! ([`event_loop`]) as the load needs run the workers, at most one per worker. One control thread
//! ([`control`]) opens connections, authenticates peers and forms the cluster. Only it writes the
//! node's identity. Threads communicate through [`mailbox`]es, in batches, and wake each other only
//! from sleep.
//!
//! The shell decides no protocol question. Workers and protocols do.

mod balance;
pub(crate) mod clients;
pub(crate) mod clock;
pub(crate) mod cluster_view;
pub(crate) mod control;
mod dialler;
pub(crate) mod event_loop;
pub(crate) mod long_threads;
pub(crate) mod mailbox;
pub(crate) mod media;
pub(crate) mod node_status;
pub(crate) mod own_requests;
pub(crate) mod peers;
pub(crate) mod record;
mod routes;
mod sync;
mod worker_assignment;
pub(crate) mod worker_thread;
mod write_window;
mod wrong_passwords;

pub(crate) use clock::Clocks;
pub use clock::monotonic;
pub(crate) use mailbox::{Mail, Mailbox};
