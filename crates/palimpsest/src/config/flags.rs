//! The options of `serve`: each a flag, an environment variable and a key of the file.

use std::path::PathBuf;

use serde::Deserialize;

use super::units;
use crate::log;

/// Options as they were typed, in one place or another.
#[derive(clap::Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Flags {
    /// This node's id, 1 to 65535; required
    #[arg(long, value_name = "N", env = "PALIMPSEST_ID", help_heading = "Node",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub id: Option<u16>,
    /// The first members, this node included; required on first start
    #[arg(
        long,
        value_name = "1=HOST:PORT[@PEERPORT],…",
        env = "PALIMPSEST_CLUSTER",
        help_heading = "Node"
    )]
    pub cluster: Option<String>,
    /// Directory of this node's data [default: ./palimpsest-data/<id>]
    #[arg(long, value_name = "DIR", env = "PALIMPSEST_DATA_DIR", help_heading = "Node")]
    pub data_dir: Option<PathBuf>,
    /// Worker threads [default: number of cores]
    #[arg(long, value_name = "N", env = "PALIMPSEST_WORKERS", help_heading = "Node")]
    pub workers: Option<usize>,

    /// Address for clients [default: 127.0.0.1:6379]
    #[arg(long, value_name = "HOST:PORT", env = "PALIMPSEST_LISTEN", help_heading = "Network")]
    pub listen: Option<String>,
    /// Address for other nodes [default: host of --listen, its port + 10000]
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "PALIMPSEST_PEER_LISTEN",
        help_heading = "Network"
    )]
    pub peer_listen: Option<String>,
    /// HTTP: dashboard, health, metrics, API [default: host of --listen, its port + 1000]
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "PALIMPSEST_ADMIN_LISTEN",
        help_heading = "Network"
    )]
    pub admin_listen: Option<String>,
    /// Address for clients of Redis Sentinel [default: none]
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "PALIMPSEST_SENTINEL_LISTEN",
        help_heading = "Network"
    )]
    pub sentinel_listen: Option<String>,
    /// Name of the master that clients of Redis Sentinel ask for [default: mymaster]
    #[arg(long, value_name = "NAME", env = "PALIMPSEST_SENTINEL_NAME", help_heading = "Network")]
    pub sentinel_name: Option<String>,
    /// Client address that nodes tell clients, as in CLUSTER and status [default: --listen]
    #[arg(long, value_name = "HOST:PORT", env = "PALIMPSEST_ADVERTISE", help_heading = "Network")]
    pub advertise: Option<String>,

    /// Clients must AUTH with the password in this file; also PALIMPSEST_PASSWORD
    #[arg(long, value_name = "FILE", env = "PALIMPSEST_PASSWORD_FILE", help_heading = "Security")]
    pub password_file: Option<PathBuf>,
    /// Secret by which nodes prove to each other that they belong; required beyond loopback
    #[arg(
        long,
        value_name = "FILE",
        env = "PALIMPSEST_CLUSTER_SECRET_FILE",
        help_heading = "Security"
    )]
    pub cluster_secret_file: Option<PathBuf>,
    /// A password that opens /metrics only, besides the clients' password
    #[arg(
        long,
        value_name = "FILE",
        env = "PALIMPSEST_METRICS_PASSWORD_FILE",
        help_heading = "Security"
    )]
    pub metrics_password_file: Option<PathBuf>,
    /// Serve /metrics without a password to scrapers on this machine
    #[arg(long, env = "PALIMPSEST_METRICS_LOOPBACK", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Security")]
    pub metrics_loopback: Option<bool>,
    /// PALIMPSEST_PASSWORD, unless a flag wins over it.
    #[arg(skip)]
    #[serde(skip)]
    pub password: Option<Vec<u8>>,
    /// In the file only: the same as --insecure.
    #[arg(skip)]
    pub insecure: Option<bool>,

    /// The crashes that an acknowledged write survives: volatile, pmem or disk [default: disk]
    #[arg(long, value_name = "MODE", env = "PALIMPSEST_DURABILITY", help_heading = "Replication")]
    pub durability: Option<String>,
    /// Replication protocol of every database that names none [default: rmwpaxos]
    #[arg(long, value_name = "NAME", env = "PALIMPSEST_PROTOCOL", help_heading = "Replication")]
    pub protocol: Option<String>,
    /// Members of the group of each database whose protocol has one: 3, 5 or 7 [default: all nodes]
    #[arg(long, value_name = "N", env = "PALIMPSEST_REPLICAS", help_heading = "Replication")]
    pub replicas: Option<u8>,
    /// How long a request may look for a quorum [default: 1500]
    #[arg(long, value_name = "MS", env = "PALIMPSEST_REQUEST_TIMEOUT", help_heading = "Replication",
          value_parser = units::millis)]
    #[serde(default, deserialize_with = "units::file::time")]
    pub request_timeout: Option<u64>,
    /// How long a command under ONCE is remembered [default: 10m]
    #[arg(long, value_name = "MS", env = "PALIMPSEST_ONCE_WINDOW", help_heading = "Replication",
          value_parser = units::millis)]
    #[serde(default, deserialize_with = "units::file::time")]
    pub once_window: Option<u64>,
    /// Databases with a protocol, durability or replicas of their own; in the file only.
    #[arg(skip)]
    #[serde(default)]
    pub database: Vec<DatabaseTable>,

    /// Largest value of a key [default: 1MB]
    #[arg(long, value_name = "BYTES", env = "PALIMPSEST_MAX_VALUE_SIZE", help_heading = "Storage",
          value_parser = units::memory)]
    #[serde(default, deserialize_with = "units::file::memory_size")]
    pub max_value_size: Option<usize>,
    /// Memory for the register cache and for pages of the store [default: 384MB]
    #[arg(long, value_name = "BYTES", env = "PALIMPSEST_CACHE_SIZE", help_heading = "Storage",
          value_parser = units::memory)]
    #[serde(default, deserialize_with = "units::file::memory_size")]
    pub cache_size: Option<usize>,
    /// Staging ring of a new disk store, in whole pages of 4 KB [default: 64MB]
    #[arg(long, value_name = "BYTES", env = "PALIMPSEST_RING_SIZE", help_heading = "Storage",
          value_parser = units::bytes)]
    #[serde(default, deserialize_with = "units::file::size")]
    pub ring_size: Option<u64>,
    /// Bytes of each medium verified in the background per second; 0: none [default: 1MB]
    #[arg(long, value_name = "BYTES", env = "PALIMPSEST_SCRUB_RATE", help_heading = "Storage",
          value_parser = units::bytes)]
    #[serde(default, deserialize_with = "units::file::size")]
    pub scrub_rate: Option<u64>,
    /// Replicas compare everything within this time; 0: after writes only [default: 1d]
    #[arg(long, value_name = "MS", env = "PALIMPSEST_COMPARE_EVERY", help_heading = "Storage",
          value_parser = units::millis)]
    #[serde(default, deserialize_with = "units::file::time")]
    pub compare_every: Option<u64>,

    /// The least important lines to log [default: info]
    #[arg(long, value_name = "LEVEL", env = "PALIMPSEST_LOG_LEVEL", help_heading = "Log")]
    pub log_level: Option<log::Level>,
    /// Format of the log on standard error [default: text]
    #[arg(long, value_name = "FORMAT", env = "PALIMPSEST_LOG_FORMAT", help_heading = "Log")]
    pub log_format: Option<log::Format>,
}

/// A `[[database]]` of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DatabaseTable {
    pub index: u8,
    pub protocol: Option<String>,
    pub durability: Option<String>,
    pub replicas: Option<u8>,
}

impl Flags {
    /// Takes the password itself, unless a file for it was named in the same place.
    pub(super) fn with_password(self, password: Option<Vec<u8>>) -> Flags {
        let password = password.filter(|_| self.password_file.is_none());
        Flags { password, ..self }
    }

    /// Options set here win over those of `below`.
    pub(super) fn over(self, below: Flags) -> Flags {
        Flags {
            id: self.id.or(below.id),
            cluster: self.cluster.or(below.cluster),
            data_dir: self.data_dir.or(below.data_dir),
            workers: self.workers.or(below.workers),
            listen: self.listen.or(below.listen),
            peer_listen: self.peer_listen.or(below.peer_listen),
            admin_listen: self.admin_listen.or(below.admin_listen),
            sentinel_listen: self.sentinel_listen.or(below.sentinel_listen),
            sentinel_name: self.sentinel_name.or(below.sentinel_name),
            advertise: self.advertise.or(below.advertise),
            password_file: self.password_file.or(below.password_file),
            password: self.password,
            metrics_password_file: self.metrics_password_file.or(below.metrics_password_file),
            metrics_loopback: self.metrics_loopback.or(below.metrics_loopback),
            cluster_secret_file: self.cluster_secret_file.or(below.cluster_secret_file),
            insecure: None,
            durability: self.durability.or(below.durability),
            protocol: self.protocol.or(below.protocol),
            replicas: self.replicas.or(below.replicas),
            request_timeout: self.request_timeout.or(below.request_timeout),
            once_window: self.once_window.or(below.once_window),
            database: below.database,
            max_value_size: self.max_value_size.or(below.max_value_size),
            cache_size: self.cache_size.or(below.cache_size),
            ring_size: self.ring_size.or(below.ring_size),
            scrub_rate: self.scrub_rate.or(below.scrub_rate),
            compare_every: self.compare_every.or(below.compare_every),
            log_level: self.log_level.or(below.log_level),
            log_format: self.log_format.or(below.log_format),
        }
    }
}
