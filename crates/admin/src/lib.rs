//! Floor 5: health, metrics, status and a dashboard over HTTP.
//!
//! Everything is read-only and runs on a thread of its own, never on a worker. `/livez` says that the process and its
//! workers turn, `/readyz` that a quorum can serve; they are different questions with different answers.

// Output goes through `tracing`: a print panics if its stream takes nothing.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod events;
mod liveness;
mod metrics;
mod routes;
mod status;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use node::status::{CommandFacts, Facts};

/// What the admin server needs to know besides the node's facts.
#[derive(Clone)]
pub struct AdminConfig {
    /// Beyond loopback, all but the health pages ask for it (HTTP basic, any user name).
    pub password: Option<Vec<u8>>,
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
    /// What the system says when the listener or the thread cannot be used.
    pub fn start(
        listener: TcpListener,
        config: AdminConfig,
        facts: Arc<dyn Facts>,
    ) -> io::Result<Admin> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let router =
            routes::router(routes::Shared::new(config, facts.clone(), address.ip().is_loopback()));
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let span = node::node::span(facts.config().id);
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            let _span = span.entered();
            runtime.block_on(async move {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                let serving = axum::serve(listener, service);
                tokio::select! {
                    _ = serving => {}
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
