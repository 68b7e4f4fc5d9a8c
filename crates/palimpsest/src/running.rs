//! The common part of `serve` and `dev` once their nodes run: readiness, signals, the end.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use admin::{Admin, AdminConfig};
use node::node::Node;
use server::{RespSessionFactory, ServerConfig};

use crate::Failure;
use crate::command::version::VERSION;
use crate::config::Config;
use crate::log;

/// Interval at which the process checks its nodes.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn session_factory(config: &Config) -> Arc<RespSessionFactory> {
    server::set_timer_of_scripts(node::monotonic);
    RespSessionFactory::new(ServerConfig {
        password: config.password.clone(),
        max_value_size: config.node.max_value_size,
        once_window: config.node.once_window,
        version: VERSION,
        sentinel_name: config.sentinel_name.clone(),
    })
}

/// The address for clients of Redis Sentinel in the line that tells a node's addresses.
pub(crate) fn sentinel_text(node: &Node) -> String {
    match node.status().sentinel {
        Some(address) => format!("sentinel on {address}, "),
        None => String::new(),
    }
}

/// Takes the admin port before the node touches its directory.
pub(crate) fn bind_admin(config: &Config) -> Result<TcpListener, Failure> {
    let address = &config.admin_listen;
    TcpListener::bind(address).map_err(|error| {
        Failure::usage(format!(
            "cannot listen on {address} for HTTP: {error}; give --admin-listen or stop what uses it"
        ))
    })
}

pub(crate) fn start_admin(
    config: &Config,
    listener: TcpListener,
    node: &Node,
    factory: &RespSessionFactory,
) -> Result<Admin, Failure> {
    let admin = AdminConfig {
        password: config.password.clone(),
        metrics_password: config.metrics_password.clone(),
        metrics_loopback: config.metrics_loopback,
        version: VERSION,
        commands: factory.command_facts(),
    };
    Admin::start(listener, admin, node.facts())
        .map_err(|error| Failure::usage(format!("cannot serve HTTP: {error}")))
}

/// Waits for the end: a signal, or a node that stops by itself. Prints `ready` once every node can
/// serve.
pub(crate) fn watch(nodes: &[&Node], factories: &[Arc<RespSessionFactory>]) -> Result<(), Failure> {
    let signals = signals::install();
    let mut was_ready = false;
    loop {
        let ended = nodes.iter().any(|node| node.is_stopping());
        if ended || signals.count() > 0 {
            break;
        }
        if !was_ready && nodes.iter().all(|node| node.status().ready) {
            was_ready = true;
            log::say("ready");
        }
        for (node, factory) in nodes.iter().zip(factories) {
            factory.sample(&*node.facts());
        }
        // Readiness is looked at closely; after that only signals and failures matter.
        std::thread::sleep(if was_ready { LOOK * 4 } else { LOOK / 5 });
    }
    if signals.count() > 0 {
        tracing::info!(
            target: "palimpsest",
            "stopping: requests in flight end first, a second signal stops at once"
        );
    }
    nodes.iter().for_each(|node| node.stop());
    let mut result = Ok(());
    for node in nodes {
        if node.join().is_err() {
            result = Err(Failure::Logged);
        }
    }
    if result.is_ok() {
        tracing::info!(target: "palimpsest", "stopped");
    }
    result
}

/// SIGTERM and SIGINT ask to stop; the second one insists.
mod signals {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use signal_hook::consts::{SIGINT, SIGTERM};

    pub(super) struct Signals(Arc<AtomicUsize>);

    impl Signals {
        pub(super) fn count(&self) -> usize {
            self.0.load(Relaxed)
        }
    }

    pub(super) fn install() -> Signals {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = count.clone();
        let waiting = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]);
        if let Ok(mut waiting) = waiting {
            let _ = std::thread::Builder::new().name("signals".into()).spawn(move || {
                for _ in waiting.forever() {
                    if seen.fetch_add(1, Relaxed) > 0 {
                        std::process::exit(1);
                    }
                }
            });
        }
        Signals(count)
    }
}
