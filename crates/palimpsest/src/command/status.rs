//! `palimpsest status`: the whole cluster, from one node's admin address.

mod ask;
mod table;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use admin::cluster::Cluster;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::config::{self, units};
use crate::{Failure, one_line, output};
use ask::View;

/// Between two looks for the signal that ends `--watch`.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const WATCH_MIN: Duration = Duration::from_millis(100);
const REPAINT: &str = "\x1b[H\x1b[J";

#[derive(clap::Args)]
#[command(
    after_help = "One address is enough: each node knows all others, and those that are down.\n\
    Exit code 0: a quorum serves. 1: none does, or no node answers. 2: wrong usage.\n\n\
    --json prints one object: cluster, asked, quorum, ready, serving, tolerates, warnings, and nodes with node, \
    address, admin, state, up, is_self, last_seen, last_seen_ms_ago, round_trip_us, version, uptime_ms, writes, \
    remarks, recovery_left, clients, commands_per_second, latency_p50_us, latency_p99_us, keys, bytes, disk_free_bytes, \
    disk_total_bytes, memory_bytes, ring_bytes, ring_used_bytes, round_trips_us; and groups with database, protocol, state, epoch, wanted, members, role, lease, \
    images. role and lease are those of the node that was asked. null is unknown. With --watch each \
    object is one line.\n\n\
    The password is taken from PALIMPSEST_PASSWORD or --password-file.\n\n\
    Example:\n  palimpsest status --address 10.0.0.1:7379 --watch 5s"
)]
pub(crate) struct Args {
    /// Admin address of any node; more than one may be given [default: 127.0.0.1:7379 to 7381]
    #[arg(
        long = "address",
        value_name = "HOST:PORT",
        env = "PALIMPSEST_ADDR",
        value_delimiter = ','
    )]
    addresses: Vec<String>,
    /// As JSON, nodes that are down included
    #[arg(long)]
    json: bool,
    /// Show it again and again until Ctrl-C [default: every 2s]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = units::seconds)]
    watch: Option<Duration>,
    /// The nodes' password, for those beyond loopback
    #[arg(long, value_name = "FILE", env = "PALIMPSEST_PASSWORD_FILE")]
    password_file: Option<PathBuf>,
}

const LOCAL: [&str; 3] = ["127.0.0.1:7379", "127.0.0.1:7380", "127.0.0.1:7381"];

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let addresses = match args.addresses.is_empty() {
        true => LOCAL.map(str::to_owned).to_vec(),
        false => args.addresses.clone(),
    };
    for address in &addresses {
        config::look_up("--address", address)?;
    }
    let password = config::password(args.password_file.as_deref())?;
    let look = || ask::look(&addresses, password.as_deref(), !args.addresses.is_empty());
    match args.watch {
        Some(every) if every < WATCH_MIN => Err(Failure::usage("--watch must be 100ms or more")),
        Some(every) => watch(args.json, every, look),
        None => {
            let view = look()?;
            show(&view, args.json, false);
            verdict(&view.cluster)
        }
    }
}

/// Shows the cluster until a signal ends it; how it was last decides the exit code.
fn watch(
    json: bool,
    every: Duration,
    look: impl Fn() -> Result<View, Failure>,
) -> Result<(), Failure> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // It fails only for signals that cannot be caught.
        let _ = signal_hook::flag::register(signal, Arc::clone(&ended));
    }
    let repaints = std::io::stdout().is_terminal() && !json;
    let mut is_first = true;
    loop {
        let next = Instant::now() + every;
        let last = look();
        if repaints {
            print!("{REPAINT}");
        } else if !is_first && !json {
            println!();
        }
        is_first = false;
        match &last {
            Ok(view) => show(view, json, true),
            Err(Failure::Fault(text) | Failure::Usage(text)) => {
                eprintln!("palimpsest: {}", one_line(text));
            }
            Err(Failure::Logged) => {}
        }
        if let Err(error) = std::io::stdout().flush() {
            output::give_up(&error);
        }
        while Instant::now() < next && !ended.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK_EVERY.min(next.saturating_duration_since(Instant::now())));
        }
        if ended.load(Ordering::Relaxed) {
            return verdict(&last?.cluster);
        }
    }
}

fn show(view: &View, json: bool, is_line: bool) {
    match (json, is_line) {
        (true, true) => println!("{}", serde_json::json!(view.cluster)),
        (true, false) => println!("{:#}", serde_json::json!(view.cluster)),
        (false, _) => print!("{}", table::render(&view.cluster, table::Style::of_stdout())),
    }
}

fn verdict(cluster: &Cluster) -> Result<(), Failure> {
    if cluster.serving {
        return Ok(());
    }
    Err(Failure::fault(format!(
        "no quorum serves: {} of {} nodes are ready and {} are needed; start those that are down",
        cluster.ready,
        cluster.nodes.len(),
        cluster.quorum
    )))
}
