//! The thin shell around workers and formation: threads, sockets, clocks.
//!
//! Each worker has its sockets ([`worker_thread`]): the sessions dealt to it and its links. As many threads as the load
//! needs drive them ([`driver`]), at most one per worker; one control thread ([`control`]) opens connections, proves peers, forms the cluster and alone writes the node's
//! identity. Threads talk through [`mailbox`]es, in batches, and wake each other only when the other sleeps.
//!
//! Nothing here decides what is true: that is the worker's and the protocols' business.

mod balance;
pub(crate) mod board;
pub(crate) mod clients;
pub(crate) mod clock;
pub(crate) mod cluster_view;
pub(crate) mod control;
mod dialler;
pub(crate) mod driver;
pub(crate) mod mailbox;
pub(crate) mod media;
pub(crate) mod own_requests;
pub(crate) mod peers;
pub(crate) mod record;
mod routes;
mod seat;
mod sync;
pub(crate) mod worker_thread;
mod write_window;
mod wrong_passwords;

pub(crate) use clock::Clocks;
pub(crate) use mailbox::{Mail, Mailbox};
