//! `palimpsest bench`: measurements, as a table or as JSON.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bench::workload::{Keys, Mix};
use bench::{cluster, failover, idle, peers, resp, restart};
use clap::Subcommand;
use serde::Serialize;

use crate::Failure;
use crate::config::{self, units};

mod availability;
mod media;
mod protocols;

#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    plan: Plan,
    /// As JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Plan {
    /// Load servers that speak RESP
    Resp(Box<RespArgs>),
    /// The same load on this store, Redis and etcd, in one run
    Peers(PeersArgs),
    /// Kill or pause a node under steady writes: the longest gap
    Failover(ClusterArgs),
    /// Kill all nodes and start them again: time to the first write and a cold read
    Restart(RestartArgs),
    /// Processor time and writes of idle nodes
    Idle(ClusterArgs),
    /// Values in place beside a log: in memory, on emulated persistent memory, on disk
    Media(media::Args),
    /// Throughput over time while a node dies, pauses or is cut off, by protocol
    Availability(Box<availability::Args>),
    /// Every protocol under the same load, in nodes of one process
    Protocols(Box<protocols::Args>),
}

#[derive(clap::Args)]
struct RespArgs {
    /// Servers; connections are dealt to them in turn
    #[arg(
        long = "address",
        value_name = "HOST:PORT",
        value_delimiter = ',',
        default_value = "127.0.0.1:6379"
    )]
    addresses: Vec<String>,
    /// Connections over all servers
    #[arg(long, short = 'c', default_value_t = 64)]
    connections: usize,
    /// Commands in one packet
    #[arg(long, short = 'P', default_value_t = 1)]
    pipeline: u32,
    /// Size of a value
    #[arg(long, default_value = "32", value_name = "BYTES", value_parser = units::memory)]
    value_size: usize,
    /// Number of keys
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// uniform, zipf or one
    #[arg(long, default_value = "uniform")]
    distribution: String,
    /// Parts of SET, GET and INCR in the load
    #[arg(long, default_value = "1,0,0", value_name = "SET,GET,INCR")]
    mix: String,
    /// Length of the measurement
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = units::seconds)]
    time: Duration,
    /// Append `WAIT n` to each packet
    #[arg(long, value_name = "N")]
    wait: Option<u32>,
    /// Write every key once first
    #[arg(long)]
    load: bool,
    /// Processes whose CPU time is counted
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    server_pids: Vec<u32>,
}

#[derive(clap::Args)]
struct PeersArgs {
    /// Only loads whose name contains this
    #[arg(long, default_value = "")]
    filter: String,
    /// Runs of each load, of which the median is shown
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Length of each measured window
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = units::seconds)]
    window: Duration,
    /// Data directories are made below it
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(clap::Args, Clone)]
struct ClusterArgs {
    /// volatile, pmem or disk
    #[arg(long, value_name = "MODE", default_value = "disk")]
    durability: String,
    /// Data directories are made below it
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Runs, of which the median is shown
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
}

#[derive(clap::Args)]
struct RestartArgs {
    /// Numbers of keys to compare
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000")]
    keys: Vec<u64>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.plan {
        Plan::Resp(plan) => {
            let report = run_resp(plan)?;
            let has_none = report.operations == 0;
            print(args.json, report)?;
            match has_none {
                true => Err(Failure::fault(format!(
                    "no command succeeded at {}: give --address of a server that runs",
                    plan.addresses.join(", ")
                ))),
                false => Ok(()),
            }
        }
        Plan::Peers(plan) => {
            let defaults = peers::Config::default();
            let config = peers::Config {
                binary: this_binary(),
                dir: plan.dir.clone().unwrap_or(defaults.dir.clone()),
                repetitions: plan.repetitions,
                window: plan.window,
                filter: plan.filter.clone(),
                ..defaults
            };
            print(args.json, peers::run(&config).map_err(fault)?)
        }
        Plan::Failover(plan) => {
            let defaults = failover::Config::default();
            let cluster = cluster_config(plan, defaults.cluster.clone())?;
            let config = failover::Config { cluster, repetitions: plan.repetitions, ..defaults };
            print(args.json, failover::run(&config).map_err(fault)?)
        }
        Plan::Restart(plan) => {
            let defaults = restart::Config::default();
            let cluster = cluster_config(&plan.cluster, defaults.cluster.clone())?;
            let config = restart::Config {
                cluster,
                key_counts: plan.keys.clone(),
                repetitions: plan.cluster.repetitions,
                ..defaults
            };
            print(args.json, restart::run(&config).map_err(fault)?)
        }
        Plan::Idle(plan) => {
            let defaults = idle::Config::default();
            let cluster = cluster_config(plan, defaults.cluster.clone())?;
            print(args.json, idle::run(&idle::Config { cluster, ..defaults }).map_err(fault)?)
        }
        Plan::Media(plan) => print(args.json, media::run(plan)?),
        Plan::Availability(plan) => print(args.json, availability::run(plan)?),
        Plan::Protocols(plan) => print(args.json, protocols::run(plan)?),
    }
}

fn run_resp(plan: &RespArgs) -> Result<bench::report::LoadReport, Failure> {
    let addresses = plan.addresses.iter().map(|text| address(text)).collect::<Result<_, _>>()?;
    let keys = match plan.distribution.as_str() {
        "uniform" => Keys::Uniform { count: plan.keys },
        "zipf" => Keys::Zipf { count: plan.keys, theta: 0.99 },
        "one" => Keys::Uniform { count: 1 },
        other => {
            return Err(Failure::usage(format!(
                "--distribution is uniform, zipf or one, not {other}"
            )));
        }
    };
    let parts: Vec<u32> = plan.mix.split(',').filter_map(|part| part.trim().parse().ok()).collect();
    let [set, get, incr] = parts[..] else {
        return Err(Failure::usage("--mix needs three numbers: SET,GET,INCR"));
    };
    let config = resp::Config {
        addresses,
        connections: plan.connections,
        pipeline: plan.pipeline,
        mix: Mix { set, get, incr },
        keys,
        value_bytes: plan.value_size,
        wait_replicas: plan.wait,
        stop: resp::RunEnd::After(plan.time),
        server_pids: plan.server_pids.clone(),
        password: std::env::var(config::environment::PASSWORD).ok(),
        ..resp::Config::default()
    };
    if plan.load {
        resp::load(&config).map_err(fault)?;
    }
    resp::run(&config).map_err(fault)
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    // There is at least one.
    Ok(config::look_up("--address", text)?[0])
}

fn this_binary() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| cluster::default_binary())
}

fn cluster_config(
    plan: &ClusterArgs,
    defaults: cluster::Config,
) -> Result<cluster::Config, Failure> {
    Ok(cluster::Config {
        binary: this_binary(),
        durability: config::parse_durability(&plan.durability)?.to_string(),
        dir: plan.dir.clone().unwrap_or(defaults.dir.clone()),
        ..defaults
    })
}

fn fault(error: bench::Error) -> Failure {
    match error {
        bench::Error::Usage(text) => Failure::usage(text),
        other => Failure::fault(other.to_string()),
    }
}

fn print<R: Serialize + Display>(json: bool, report: R) -> Result<(), Failure> {
    if json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::fault(format!("cannot write the report: {error}")))?;
        println!("{text}");
    } else {
        println!("{report}");
    }
    Ok(())
}
