//! What was typed, and what it means: flags win over environment variables, those over the file.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use base::{Millis, Nanos};
use node::config::{
    DatabaseConfig, DiskConfig, Durability, NodeConfig, PEER_PORT_OFFSET, ScrubConfig,
    parse_members,
};
use serde::Deserialize;
use types::limits::{DATABASES, ONCE_WINDOW_DEFAULT, VALUE_LEN_DEFAULT};
use types::{Database, NodeId};

use crate::Failure;

/// How far the admin port lies above the clients' where it is not given.
pub(crate) const ADMIN_PORT_OFFSET: u16 = 1_000;
const REQUEST_TIMEOUT_DEFAULT: u64 = 1_500;
/// Milliseconds; ten minutes.
const REQUEST_TIMEOUT_MAX: u64 = 600_000;
/// `once-window`, in milliseconds: ten seconds, or as many times the request timeout, to one day.
const ONCE_WINDOW_MIN: u64 = 10_000;
const ONCE_WINDOW_TIMEOUTS_MIN: u64 = 4;
const ONCE_WINDOW_MAX: u64 = 86_400_000;
/// `cache-size`, in bytes.
const CACHE_SIZE_DEFAULT: usize = 384 << 20;
const CACHE_SIZE_MIN: usize = 12 << 20;
/// The part of it that keeps pages of a disk store.
const PAGES_PART: usize = 12;
/// `ring-size`, in bytes.
const RING_SIZE_MIN: u64 = 1 << 20;
const RING_SIZE_MAX: u64 = 4 << 30;
/// `scrub-rate`: bytes per second, at most.
const SCRUB_RATE_MAX: u64 = 1 << 40;
/// `compare-every`, in milliseconds: a minute to thirty days.
const COMPARE_EVERY_MIN: u64 = 60_000;
const COMPARE_EVERY_MAX: u64 = 30 * 86_400_000;
const CLIENTS_MAX_DEFAULT: usize = 10_000;
/// `max-value-size` at most: what a frame between nodes can carry.
const VALUE_LEN_LIMIT: usize = 16 << 20;

/// Flags of `serve`, each also an environment variable and a key of the file.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(
    after_help = "Example, the first of three nodes:\n  palimpsest serve --id 1 --listen 127.0.0.1:6379 \
    --cluster 1=127.0.0.1:6379,2=127.0.0.1:6380,3=127.0.0.1:6381"
)]
pub(crate) struct ServeArgs {
    /// TOML with the same keys as these flags
    #[arg(long, value_name = "FILE", env = "PALIMPSEST_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    typed: RawConfig,
    /// Serve beyond loopback without a password and a cluster secret
    #[arg(long, env = "PALIMPSEST_INSECURE")]
    insecure: bool,
}

/// What was typed, in one place or another.
#[derive(clap::Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawConfig {
    /// This node's id, 1 to 65535
    #[arg(long, env = "PALIMPSEST_ID", value_parser = clap::value_parser!(u16).range(1..))]
    id: Option<u16>,
    /// Where clients connect [default: 127.0.0.1:6379]
    #[arg(long, value_name = "HOST:PORT", env = "PALIMPSEST_LISTEN")]
    listen: Option<String>,
    /// Where other nodes connect [default: RESP host, port + 10000]
    #[arg(long, value_name = "HOST:PORT", env = "PALIMPSEST_PEER_LISTEN")]
    peer_listen: Option<String>,
    /// HTTP: dashboard, health, metrics, API [default: RESP host, port + 1000]
    #[arg(long, value_name = "HOST:PORT", env = "PALIMPSEST_ADMIN_LISTEN")]
    admin_listen: Option<String>,
    /// The first members, this node included; required on first start
    #[arg(long, value_name = "1=HOST:PORT[@PEERPORT],…", env = "PALIMPSEST_CLUSTER")]
    cluster: Option<String>,
    /// Clients must AUTH with what is in it; also PALIMPSEST_PASSWORD
    #[arg(long, value_name = "FILE", env = "PALIMPSEST_PASSWORD_FILE")]
    password_file: Option<PathBuf>,
    /// Nodes prove to each other that they belong; required beyond loopback
    #[arg(long, value_name = "FILE", env = "PALIMPSEST_CLUSTER_SECRET_FILE")]
    cluster_secret_file: Option<PathBuf>,
    /// PALIMPSEST_PASSWORD, where no flag wins over it.
    #[arg(skip)]
    #[serde(skip)]
    password: Option<Vec<u8>>,
    /// Where the slots live [default: ./palimpsest-data/<id>]
    #[arg(long, value_name = "DIR", env = "PALIMPSEST_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// What an acknowledged write survives: volatile, pmem or disk [default: disk]
    #[arg(long, env = "PALIMPSEST_DURABILITY")]
    durability: Option<String>,
    /// Default replication protocol [default: rmwpaxos]
    #[arg(long, value_name = "NAME", env = "PALIMPSEST_PROTOCOL")]
    protocol: Option<String>,
    /// Worker threads [default: number of cores]
    #[arg(long, value_name = "N", env = "PALIMPSEST_WORKERS")]
    workers: Option<usize>,
    /// How long a request may look for a quorum [default: 1500]
    #[arg(long, value_name = "MS", env = "PALIMPSEST_REQUEST_TIMEOUT")]
    request_timeout: Option<u64>,
    /// Bytes of one key's value at most [default: 1048576]
    #[arg(long, value_name = "BYTES", env = "PALIMPSEST_MAX_VALUE_SIZE")]
    max_value_size: Option<usize>,
    /// Bytes for registers and pages that storage has as well [default: 402653184]
    #[arg(long, value_name = "BYTES", env = "PALIMPSEST_CACHE_SIZE")]
    cache_size: Option<usize>,
    /// Bytes of a new disk store's staging ring [default: 67108864]
    #[arg(long, value_name = "BYTES", env = "PALIMPSEST_RING_SIZE")]
    ring_size: Option<u64>,
    /// How long a command under ONCE is remembered [default: 600000]
    #[arg(long, value_name = "MS", env = "PALIMPSEST_ONCE_WINDOW")]
    once_window: Option<u64>,
    /// Bytes of each medium verified in the background per second; 0: none [default: 1048576]
    #[arg(long, value_name = "BYTES", env = "PALIMPSEST_SCRUB_RATE")]
    scrub_rate: Option<u64>,
    /// Within this time everything is compared with the other replicas; 0: after writes only [default: 86400000]
    #[arg(long, value_name = "MS", env = "PALIMPSEST_COMPARE_EVERY")]
    compare_every: Option<u64>,
    /// Databases with a protocol or durability of their own; in the file only.
    #[arg(skip)]
    #[serde(default)]
    database: Vec<RawDatabase>,
    /// In the file only: the same as --insecure.
    #[arg(skip)]
    insecure: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawDatabase {
    index: u8,
    protocol: Option<String>,
    durability: Option<String>,
}

/// What it means.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub node: NodeConfig,
    pub admin_listen: String,
    pub password: Option<Vec<u8>>,
    pub max_value_size: usize,
    pub once_window: Millis,
}

impl ServeArgs {
    /// Merges flags, environment and file, and checks the whole.
    pub(crate) fn resolve(&self) -> Result<Config, Failure> {
        let file = match &self.config {
            Some(path) => read_file(path)?,
            None => RawConfig::default(),
        };
        let insecure = self.insecure || file.insecure.unwrap_or(false);
        let typed = self.typed.clone().with_password(password_in_environment());
        let config = typed.over(file).resolve()?;
        if !insecure {
            refuse_open_doors(&config)?;
        }
        config.node.check().map_err(|bad| Failure::usage(bad.0))?;
        Ok(config)
    }
}

fn read_file(path: &Path) -> Result<RawConfig, Failure> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("--config {name}: {error}")))?;
    parse_file(&text).map_err(|why| Failure::usage(format!("--config {name}, {why}")))
}

/// What the text of a file says; or the line where it goes wrong, and why.
fn parse_file(text: &str) -> Result<RawConfig, String> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        format!("line {line}: {}", error.message())
    })
}

/// The configuration that a file alone makes, but for the secrets: their files are not read.
pub(crate) fn understand(text: &str) -> Result<Config, Failure> {
    let file = parse_file(text).map_err(Failure::usage)?;
    let raw = RawConfig { password_file: None, cluster_secret_file: None, ..file };
    let config = raw.resolve()?;
    config.node.check().map_err(|bad| Failure::usage(bad.0))?;
    Ok(config)
}

fn password_in_environment() -> Option<Vec<u8>> {
    let password = std::env::var_os("PALIMPSEST_PASSWORD")?.into_encoded_bytes();
    (!password.is_empty()).then_some(password)
}

impl RawConfig {
    /// Takes the password itself, unless a file for it was named in the same breath.
    fn with_password(self, password: Option<Vec<u8>>) -> RawConfig {
        let password = password.filter(|_| self.password_file.is_none());
        RawConfig { password, ..self }
    }

    /// What is set here wins.
    fn over(self, below: RawConfig) -> RawConfig {
        RawConfig {
            id: self.id.or(below.id),
            listen: self.listen.or(below.listen),
            peer_listen: self.peer_listen.or(below.peer_listen),
            admin_listen: self.admin_listen.or(below.admin_listen),
            cluster: self.cluster.or(below.cluster),
            password_file: self.password_file.or(below.password_file),
            password: self.password,
            cluster_secret_file: self.cluster_secret_file.or(below.cluster_secret_file),
            data_dir: self.data_dir.or(below.data_dir),
            durability: self.durability.or(below.durability),
            protocol: self.protocol.or(below.protocol),
            workers: self.workers.or(below.workers),
            request_timeout: self.request_timeout.or(below.request_timeout),
            max_value_size: self.max_value_size.or(below.max_value_size),
            cache_size: self.cache_size.or(below.cache_size),
            ring_size: self.ring_size.or(below.ring_size),
            once_window: self.once_window.or(below.once_window),
            scrub_rate: self.scrub_rate.or(below.scrub_rate),
            compare_every: self.compare_every.or(below.compare_every),
            database: below.database,
            insecure: None,
        }
    }

    fn resolve(self) -> Result<Config, Failure> {
        let id = self.id.ok_or_else(|| Failure::usage("--id is required: 1 to 65535"))?;
        let listen = self.listen.unwrap_or_else(|| "127.0.0.1:6379".into());
        let beside = |offset: u16| port_above(&listen, offset);
        let peer_listen = match self.peer_listen {
            Some(address) => address,
            None => beside(PEER_PORT_OFFSET)?,
        };
        let admin_listen = match self.admin_listen {
            Some(address) => address,
            None => beside(ADMIN_PORT_OFFSET)?,
        };
        let members = match &self.cluster {
            Some(text) => parse_members(text).map_err(|bad| Failure::usage(bad.0))?,
            None => Vec::new(),
        };
        let durability = parse_durability(self.durability.as_deref().unwrap_or("disk"))?;
        let protocol = find_protocol(self.protocol.as_deref().unwrap_or("rmwpaxos"))?;
        let max_value_size = self.max_value_size.unwrap_or(VALUE_LEN_DEFAULT);
        if !(1..=VALUE_LEN_LIMIT).contains(&max_value_size) {
            let text =
                format!("--max-value-size must be 1 to {VALUE_LEN_LIMIT}, not {max_value_size}");
            return Err(Failure::usage(text));
        }
        let request_timeout = self.request_timeout.unwrap_or(REQUEST_TIMEOUT_DEFAULT);
        if !(1..=REQUEST_TIMEOUT_MAX).contains(&request_timeout) {
            let text = format!(
                "--request-timeout must be 1 to {REQUEST_TIMEOUT_MAX} ms, not {request_timeout}"
            );
            return Err(Failure::usage(text));
        }
        let once_window = once_window(self.once_window, request_timeout)?;
        let cache_size = self.cache_size.unwrap_or(CACHE_SIZE_DEFAULT);
        if cache_size < CACHE_SIZE_MIN {
            let text =
                format!("--cache-size must be {CACHE_SIZE_MIN} bytes or more, not {cache_size}");
            return Err(Failure::usage(text));
        }
        let secret_of = |flag: &str, path: Option<&Path>| {
            path.map(|path| {
                read_secret(path).map_err(|why| Failure::usage(format!("{flag} {why}")))
            })
            .transpose()
        };
        let password = match self.password {
            Some(password) => Some(password),
            None => secret_of("--password-file", self.password_file.as_deref())?,
        };
        let node = NodeConfig {
            id: NodeId(id),
            listen,
            peer_listen,
            members,
            secret: secret_of("--cluster-secret-file", self.cluster_secret_file.as_deref())?,
            data_dir: self
                .data_dir
                .unwrap_or_else(|| PathBuf::from("palimpsest-data").join(id.to_string())),
            databases: databases(&self.database, protocol, durability)?,
            workers: self.workers.unwrap_or_else(cores),
            request_timeout: Millis(request_timeout),
            cells_memory: cache_size - cache_size / PAGES_PART,
            disk: disk(self.ring_size, cache_size / PAGES_PART)?,
            clients_max: CLIENTS_MAX_DEFAULT,
            clients_accepted: usize::MAX,
            scrub: scrub(self.scrub_rate, self.compare_every)?,
        };
        Ok(Config { node, admin_listen, password, max_value_size, once_window })
    }
}

/// The shape of a disk store with a ring of so many bytes.
fn disk(ring_size: Option<u64>, cache_bytes: usize) -> Result<DiskConfig, Failure> {
    let usual = DiskConfig::default();
    let ring_bytes = ring_size.unwrap_or(usual.ring_bytes);
    if !(RING_SIZE_MIN..=RING_SIZE_MAX).contains(&ring_bytes) || !ring_bytes.is_multiple_of(4096) {
        let text = format!(
            "--ring-size must be {RING_SIZE_MIN} to {RING_SIZE_MAX} bytes in whole pages of 4096, not {ring_bytes}"
        );
        return Err(Failure::usage(text));
    }
    Ok(DiskConfig { ring_bytes, cache_bytes, ..usual })
}

/// How fast media are verified, and how often replicas are compared.
fn scrub(rate: Option<u64>, compare_every: Option<u64>) -> Result<ScrubConfig, Failure> {
    let default = ScrubConfig::DEFAULT;
    let bytes_per_second = rate.unwrap_or(default.bytes_per_second);
    if bytes_per_second > SCRUB_RATE_MAX {
        let text = format!("--scrub-rate must be 0 to {SCRUB_RATE_MAX}, not {bytes_per_second}");
        return Err(Failure::usage(text));
    }
    let millis = compare_every.unwrap_or(default.compare_every.as_millis());
    if millis != 0 && !(COMPARE_EVERY_MIN..=COMPARE_EVERY_MAX).contains(&millis) {
        let text = format!(
            "--compare-every must be 0, or {COMPARE_EVERY_MIN} to {COMPARE_EVERY_MAX} ms, not {millis}"
        );
        return Err(Failure::usage(text));
    }
    Ok(ScrubConfig { bytes_per_second, compare_every: Nanos::from_millis(millis), ..default })
}

/// A line that is repeated as long as a request may take must find what it did.
fn once_window(typed: Option<u64>, request_timeout: u64) -> Result<Millis, Failure> {
    let least = ONCE_WINDOW_MIN.max(ONCE_WINDOW_TIMEOUTS_MIN * request_timeout);
    let window = typed.unwrap_or_else(|| ONCE_WINDOW_DEFAULT.0.max(least));
    if !(least..=ONCE_WINDOW_MAX).contains(&window) {
        let text = format!(
            "--once-window must be {least} to {ONCE_WINDOW_MAX} ms where --request-timeout is {request_timeout}, not {window}"
        );
        return Err(Failure::usage(text));
    }
    Ok(Millis(window))
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(node::config::WORKERS_MAX)
}

/// All databases alike, for `dev`. Its nodes are linked in memory, where `peer` names this one.
pub(crate) fn local(
    id: u16,
    listen: String,
    peer: String,
    data_dir: PathBuf,
    durability: Durability,
    protocol: &'static str,
) -> Result<Config, Failure> {
    let raw = RawConfig {
        id: Some(id),
        listen: Some(listen),
        peer_listen: Some(peer),
        data_dir: Some(data_dir),
        durability: Some(durability.to_string()),
        protocol: Some(protocol.to_string()),
        ..RawConfig::default()
    };
    raw.with_password(password_in_environment()).resolve()
}

fn databases(
    own: &[RawDatabase],
    protocol: &'static str,
    durability: Durability,
) -> Result<Vec<DatabaseConfig>, Failure> {
    let mut databases: Vec<DatabaseConfig> = (0..DATABASES as u8)
        .map(|index| DatabaseConfig { database: Database(index), protocol, durability })
        .collect();
    let mut seen = [false; DATABASES];
    for raw in own {
        let Some(database) = databases.get_mut(usize::from(raw.index)) else {
            let text = format!("[[database]] index={}: there are databases 0 to 15", raw.index);
            return Err(Failure::usage(text));
        };
        if std::mem::replace(&mut seen[usize::from(raw.index)], true) {
            let text = format!("[[database]] index={} is there twice", raw.index);
            return Err(Failure::usage(text));
        }
        if let Some(name) = &raw.protocol {
            database.protocol = find_protocol(name)?;
        }
        if let Some(name) = &raw.durability {
            database.durability = parse_durability(name)?;
        }
    }
    Ok(databases)
}

pub(crate) fn parse_durability(text: &str) -> Result<Durability, Failure> {
    text.parse().map_err(|bad: node::config::BadConfig| Failure::usage(bad.0))
}

pub(crate) fn find_protocol(name: &str) -> Result<&'static str, Failure> {
    node::registry::find(name).map(|found| found.name).ok_or_else(|| {
        let known: Vec<&str> = node::registry::PROTOCOLS.iter().map(|one| one.name).collect();
        Failure::usage(format!("there is no protocol {name:?}: choose one of {}", known.join(", ")))
    })
}

/// Without the line end that editors put behind it; or why there is none.
fn read_secret(path: &Path) -> Result<Vec<u8>, String> {
    let name = path.display();
    let bytes = std::fs::read(path).map_err(|error| format!("{name}: {error}"))?;
    let end = bytes.iter().rposition(|byte| *byte != b'\n' && *byte != b'\r');
    match end {
        Some(end) => Ok(bytes[..=end].to_vec()),
        None => Err(format!("{name} is empty: write the secret into it")),
    }
}

fn port_above(listen: &str, offset: u16) -> Result<String, Failure> {
    let bad = || Failure::usage(format!("{listen:?} is no address: write HOST:PORT"));
    let (host, port) = listen.rsplit_once(':').ok_or_else(bad)?;
    let port: u16 = port.parse().map_err(|_| bad())?;
    if port == 0 {
        return Ok(format!("{host}:0"));
    }
    let above = port.checked_add(offset).ok_or_else(|| {
        let text =
            format!("port {port} + {offset} is no port: give --peer-listen and --admin-listen");
        Failure::usage(text)
    })?;
    Ok(format!("{host}:{above}"))
}

/// Nothing is served beyond loopback without a password for clients and a secret between nodes.
fn refuse_open_doors(config: &Config) -> Result<(), Failure> {
    let listeners = [
        ("--listen", &config.node.listen),
        ("--peer-listen", &config.node.peer_listen),
        ("--admin-listen", &config.admin_listen),
    ];
    for (flag, address) in listeners {
        if is_loopback(address) {
            continue;
        }
        let missing = match (config.password.is_some(), config.node.secret.is_some()) {
            (true, true) => continue,
            (false, true) => "--password-file",
            (true, false) => "--cluster-secret-file",
            (false, false) => "--password-file and --cluster-secret-file",
        };
        return Err(Failure::usage(format!(
            "{flag} {address} is beyond loopback: give {missing}, or --insecure to serve without"
        )));
    }
    Ok(())
}

/// Every address that the name stands for must be one of this machine alone; what has none yet does not count as such.
fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return ip.is_loopback();
    }
    match address.to_socket_addrs() {
        Ok(mut found) => {
            let found: Vec<_> = found.by_ref().collect();
            !found.is_empty() && found.iter().all(|one| one.ip().is_loopback())
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use node::CELL_LEN;

    use super::*;

    fn raw(id: u16) -> RawConfig {
        RawConfig { id: Some(id), ..RawConfig::default() }
    }

    #[test]
    fn flags_win_over_the_file() {
        let file: RawConfig =
            toml::from_str("id = 2\nlisten = \"127.0.0.1:7000\"\nworkers = 3").expect("it is TOML");
        let config = raw(1).over(file).resolve().expect("it is complete");
        assert_eq!(config.node.id, NodeId(1));
        assert_eq!(config.node.listen, "127.0.0.1:7000");
        assert_eq!(config.node.peer_listen, "127.0.0.1:17000");
        assert_eq!(config.admin_listen, "127.0.0.1:8000");
        assert_eq!(config.node.workers, 3);
    }

    #[test]
    fn the_flag_for_the_password_wins_over_the_environment_and_that_over_the_file() {
        let scratch =
            std::env::temp_dir().join(format!("palimpsest-config-{}", std::process::id()));
        std::fs::write(&scratch, "of a file\n").expect("a file can be written");
        let named = |id| RawConfig { password_file: Some(scratch.clone()), ..raw(id) };
        let password = |typed: RawConfig, file: RawConfig| {
            let typed = typed.with_password(Some(b"of the environment".to_vec()));
            typed.over(file).resolve().expect("it is complete").password
        };
        assert_eq!(password(named(1), raw(1)).as_deref(), Some(b"of a file".as_slice()));
        assert_eq!(password(raw(1), named(1)).as_deref(), Some(b"of the environment".as_slice()));
        let plain = raw(1).over(named(1)).resolve().expect("it is complete");
        assert_eq!(plain.password.as_deref(), Some(b"of a file".as_slice()));
        std::fs::remove_file(&scratch).expect("it was written above");
    }

    #[test]
    fn a_request_has_some_time_but_not_for_ever() {
        for millis in [0, REQUEST_TIMEOUT_MAX + 1, u64::MAX] {
            let raw = RawConfig { request_timeout: Some(millis), ..raw(1) };
            assert!(matches!(raw.resolve(), Err(Failure::Usage(_))), "{millis} ms");
        }
    }

    #[test]
    fn lines_are_remembered_for_longer_than_requests_take() {
        let window = |request_timeout, once_window| {
            let raw = RawConfig { request_timeout, once_window, ..raw(1) };
            raw.resolve().ok().map(|config| config.once_window.0)
        };
        assert_eq!(window(None, None), Some(600_000));
        assert_eq!(window(None, Some(ONCE_WINDOW_MIN)), Some(ONCE_WINDOW_MIN));
        for bad in [0, ONCE_WINDOW_MIN - 1, ONCE_WINDOW_MAX + 1] {
            assert_eq!(window(None, Some(bad)), None, "{bad} ms");
        }
        assert_eq!(window(Some(5_000), Some(19_999)), None, "below four request timeouts");
        assert_eq!(window(Some(REQUEST_TIMEOUT_MAX), None), Some(4 * REQUEST_TIMEOUT_MAX));
    }

    #[test]
    fn sizes_of_cache_and_ring_have_bounds() {
        let sized = |cache_size, ring_size| RawConfig { cache_size, ring_size, ..raw(1) }.resolve();
        let usual = sized(None, None).expect("it is complete").node;
        assert_eq!(usual.disk, DiskConfig::default());
        assert!(usual.cells_memory / CELL_LEN >= 1_000_000, "a working set of a million fits");
        let small = sized(Some(CACHE_SIZE_MIN), Some(64 << 20)).expect("both are allowed").node;
        assert_eq!((small.disk.cache_bytes, small.disk.ring_bytes), (1 << 20, 64 << 20));
        assert!(small.cells_memory + small.disk.cache_bytes <= CACHE_SIZE_MIN);
        for (cache, ring) in [
            (Some(CACHE_SIZE_MIN - 1), None),
            (None, Some(RING_SIZE_MIN - 4096)),
            (None, Some(RING_SIZE_MAX + 4096)),
            (None, Some(RING_SIZE_MIN + 512)),
        ] {
            assert!(matches!(sized(cache, ring), Err(Failure::Usage(_))), "{cache:?} {ring:?}");
        }
    }

    #[test]
    fn unknown_keys_are_errors() {
        assert!(toml::from_str::<RawConfig>("id = 1\nlisten-on = \"x\"").is_err());
    }

    #[test]
    fn databases_may_have_a_durability_of_their_own() {
        let file: RawConfig = toml::from_str(
            "[[database]]\nindex = 1\nprotocol = \"abd\"\ndurability = \"volatile\"",
        )
        .expect("it is TOML");
        let config = raw(1).over(file).resolve().expect("it is complete");
        let one = &config.node.databases[1];
        assert_eq!((one.protocol, one.durability), ("abd", Durability::Volatile));
        assert_eq!(config.node.databases[0].protocol, "rmwpaxos");
        assert_eq!(config.node.databases.len(), 16);
    }

    #[test]
    fn beyond_loopback_a_password_and_a_secret_are_needed() {
        let mut open = raw(1);
        open.listen = Some("0.0.0.0:6379".into());
        let mut config = open.resolve().expect("it is complete");
        assert!(
            matches!(refuse_open_doors(&config), Err(Failure::Usage(text)) if text.contains("--insecure"))
        );
        config.password = Some(b"p".to_vec());
        assert!(refuse_open_doors(&config).is_err());
        config.node.secret = Some(b"s".to_vec());
        assert!(refuse_open_doors(&config).is_ok());
    }
}
