//! Floor 5: health, metrics, status and a dashboard over HTTP.
//!
//! Everything but the order about a lost group is read-only. All of it runs on a thread of its own,
//! never on a worker. `/livez` tells that the process and its workers turn, `/readyz` that a quorum
//! can serve; they are different questions with different answers.

// Output goes through `tracing`: a print panics if its stream cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod access;
pub mod cluster;
mod events;
pub mod group;
mod health;
mod inspect;
mod liveness;
mod metrics;
mod routes;
mod server;
mod status;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use node::status::{CommandFacts, Facts};

pub use server::CONNECTIONS_MAX;

/// Configuration of the admin server.
#[derive(Clone)]
pub struct AdminConfig {
    /// The clients' password. Beyond loopback, all but the health pages ask for it (HTTP basic, any
    /// user name).
    pub password: Option<Vec<u8>>,
    /// Opens `/metrics` only, besides the clients' password.
    pub metrics_password: Option<Vec<u8>>,
    /// Opens `/metrics` to connections from this machine, without a password.
    pub metrics_loopback: bool,
    pub version: &'static str,
    /// Statistics of the clients' commands.
    pub commands: Arc<dyn CommandFacts>,
}

/// A running admin server; it ends with the process or when this is dropped.
pub struct Admin {
    address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Serves on `listener`.
    ///
    /// # Errors
    /// The system's error when the listener or the thread cannot be used.
    pub fn start(
        listener: TcpListener,
        config: AdminConfig,
        facts: Arc<dyn Facts>,
    ) -> io::Result<Admin> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let span = node::node::span(facts.config().id);
        let access = access::Access {
            password: config.password,
            metrics_password: config.metrics_password,
            metrics_loopback: config.metrics_loopback,
            listens_on_loopback: address.ip().is_loopback(),
        };
        let shared = routes::Shared {
            version: config.version,
            facts,
            commands: config.commands,
            access,
            liveness: Mutex::default(),
        };
        let router = routes::router(Arc::new(shared));
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            let _span = span.entered();
            runtime.block_on(async move {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = server::serve(listener, router, server::Limits::DEFAULT) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Admin { address, stop: Some(stop), thread: Some(thread) })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
