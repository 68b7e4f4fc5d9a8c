//! The configuration of a node: flags win over environment variables, those over the file.

mod address;
pub(crate) mod environment;
mod flags;
#[cfg(test)]
mod tests;
pub(crate) mod units;

use std::path::{Path, PathBuf};

use base::{Millis, Nanos};
use node::config::{
    Announced, DatabaseConfig, DiskConfig, Durability, NodeConfig, PEER_PORT_OFFSET, ScrubConfig,
    parse_members,
};
use node::settings::ONCE_WINDOW_TIMEOUTS_MIN;
use types::limits::{DATABASES, ONCE_WINDOW_DEFAULT, VALUE_LEN_DEFAULT};
use types::{Database, NodeId};

use crate::Failure;
use crate::command::version::VERSION;
use crate::log::LogConfig;
use flags::{DatabaseTable, Flags};

pub(crate) use address::look_up;

/// How far the admin port lies above the clients' by default.
pub(crate) const ADMIN_PORT_OFFSET: u16 = 1_000;
const REQUEST_TIMEOUT_DEFAULT: u64 = 1_500;
/// Milliseconds; ten minutes.
const REQUEST_TIMEOUT_MAX: u64 = 600_000;
/// `once-window`, in milliseconds: ten seconds, or as many times the request timeout, to one day.
const ONCE_WINDOW_MIN: u64 = 10_000;
const ONCE_WINDOW_MAX: u64 = 86_400_000;
/// `cache-size`, in bytes.
const CACHE_SIZE_DEFAULT: usize = 384 << 20;
const CACHE_SIZE_MIN: usize = 12 << 20;
/// The part of it that keeps pages of a disk store.
const PAGES_PART: usize = 12;
/// `ring-size`, in bytes.
const RING_SIZE_MIN: u64 = 1 << 20;
const RING_SIZE_MAX: u64 = 4 << 30;
const RING_PAGE: u64 = 4096;
/// `scrub-rate`: bytes per second, at most.
const SCRUB_RATE_MAX: u64 = 1 << 40;
/// `compare-every`, in milliseconds: a minute to thirty days.
const COMPARE_EVERY_MIN: u64 = 60_000;
const COMPARE_EVERY_MAX: u64 = 30 * 86_400_000;
const CLIENTS_MAX_DEFAULT: usize = 10_000;
/// `max-value-size` at most: the largest that a frame between nodes can carry.
const VALUE_LEN_LIMIT: usize = 16 << 20;

const EXAMPLE: &str = "Example, the first of three nodes:
  palimpsest serve --id 1 --listen 127.0.0.1:6379 \\
    --cluster 1=127.0.0.1:6379,2=127.0.0.1:6380,3=127.0.0.1:6381";

/// Flags of `serve`.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(after_help = format!(
    "Flags win over environment variables, those over the file of --config.\n{}\n\n{EXAMPLE}",
    units::HELP
))]
pub(crate) struct ServeArgs {
    /// TOML with the same keys as these flags
    #[arg(long, value_name = "FILE", env = "PALIMPSEST_CONFIG", help_heading = "Node")]
    config: Option<PathBuf>,
    #[command(flatten)]
    typed: Flags,
    /// Serve beyond loopback without a password and a cluster secret
    #[arg(long, env = "PALIMPSEST_INSECURE", help_heading = "Security",
          value_parser = clap::builder::BoolishValueParser::new())]
    insecure: bool,
}

/// A configuration that was checked.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub node: NodeConfig,
    pub admin_listen: String,
    /// The master that clients of Redis Sentinel ask for.
    pub sentinel_name: String,
    pub password: Option<Vec<u8>>,
    pub metrics_password: Option<Vec<u8>>,
    pub metrics_loopback: bool,
    pub log: LogConfig,
}

impl ServeArgs {
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Merges flags, environment and file, and checks the whole.
    pub(crate) fn resolve(&self) -> Result<Config, Failure> {
        let file = match &self.config {
            Some(path) => read_file(path)?,
            None => Flags::default(),
        };
        let insecure = self.insecure || file.insecure.unwrap_or(false);
        let typed = self.typed.clone().with_password(password_in_environment());
        let config = typed.over(file).resolve()?;
        look_up_own(&config)?;
        if !insecure {
            refuse_open_doors(&config)?;
        }
        config.node.check().map_err(|bad| Failure::usage(bad.0))?;
        Ok(config)
    }
}

fn read_file(path: &Path) -> Result<Flags, Failure> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("--config {name}: {error}")))?;
    parse_file(&text).map_err(|why| Failure::usage(format!("--config {name}, {why}")))
}

/// The options in the text of a file; an error names the line.
fn parse_file(text: &str) -> Result<Flags, String> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        format!("line {line}: {}", error.message())
    })
}

/// The configuration that a file alone makes, but for the secrets: their files are not read.
pub(crate) fn understand(text: &str) -> Result<Config, Failure> {
    let file = parse_file(text).map_err(Failure::usage)?;
    let flags = Flags {
        password_file: None,
        metrics_password_file: None,
        cluster_secret_file: None,
        ..file
    };
    let config = flags.resolve()?;
    config.node.check().map_err(|bad| Failure::usage(bad.0))?;
    Ok(config)
}

/// The password of a node to be asked: of the file named by a flag, else of the environment.
pub(crate) fn password(file: Option<&Path>) -> Result<Option<Vec<u8>>, Failure> {
    match (file, password_in_environment()) {
        (None, password) => Ok(password),
        (Some(path), _) => read_secret(path)
            .map(Some)
            .map_err(|why| Failure::usage(format!("--password-file {why}"))),
    }
}

fn password_in_environment() -> Option<Vec<u8>> {
    let password = std::env::var_os(environment::PASSWORD)?.into_encoded_bytes();
    (!password.is_empty()).then_some(password)
}

impl Flags {
    fn resolve(self) -> Result<Config, Failure> {
        let id = self.id.ok_or_else(|| Failure::usage("--id is required: 1 to 65535"))?;
        let listen = self.listen.unwrap_or_else(|| "127.0.0.1:6379".into());
        let peer_listen = match self.peer_listen {
            Some(address) => address,
            None => address::port_above(&listen, PEER_PORT_OFFSET, "--peer-listen")?,
        };
        let admin_listen = match self.admin_listen {
            Some(address) => address,
            None => address::port_above(&listen, ADMIN_PORT_OFFSET, "--admin-listen")?,
        };
        if let Some(address) = &self.advertise {
            address::split("--advertise", address)?;
        }
        if let Some(address) = &self.sentinel_listen {
            address::split("--sentinel-listen", address)?;
        }
        let sentinel_name = sentinel_name(self.sentinel_name)?;
        let members = match &self.cluster {
            Some(text) => parse_members(text).map_err(|bad| Failure::usage(bad.0))?,
            None => Vec::new(),
        };
        let durability = parse_durability(self.durability.as_deref().unwrap_or("disk"))?;
        let protocol = find_protocol(self.protocol.as_deref().unwrap_or("rmwpaxos"))?;
        let max_value_size = max_value_size(self.max_value_size)?;
        let request_timeout = request_timeout(self.request_timeout)?;
        let once_window = once_window(self.once_window, request_timeout)?;
        let cache_size = cache_size(self.cache_size)?;
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
        let metrics_password =
            secret_of("--metrics-password-file", self.metrics_password_file.as_deref())?;
        let metrics_loopback = self.metrics_loopback.unwrap_or(false);
        let node = NodeConfig {
            id: NodeId(id),
            listen,
            sentinel_listen: self.sentinel_listen,
            announced: Announced {
                version: VERSION.into(),
                advertise: self.advertise,
                admin: Some(admin_listen.clone()),
            },
            peer_listen,
            members,
            secret: secret_of("--cluster-secret-file", self.cluster_secret_file.as_deref())?,
            data_dir: self
                .data_dir
                .unwrap_or_else(|| PathBuf::from("palimpsest-data").join(id.to_string())),
            databases: databases(&self.database, protocol, durability, self.replicas)?,
            workers: self.workers.unwrap_or_else(cores),
            request_timeout: Millis(request_timeout),
            max_value_size,
            once_window,
            cache_memory: cache_size - cache_size / PAGES_PART,
            disk: disk(self.ring_size, cache_size / PAGES_PART)?,
            clients_max: CLIENTS_MAX_DEFAULT,
            clients_accepted: usize::MAX,
            scrub: scrub(self.scrub_rate, self.compare_every)?,
            supported: types::features::Supported::HERE,
        };
        let log = LogConfig {
            format: self.log_format.unwrap_or_default(),
            level: self.log_level.unwrap_or_default(),
        };
        Ok(Config {
            node,
            admin_listen,
            sentinel_name,
            password,
            metrics_password,
            metrics_loopback,
            log,
        })
    }
}

/// Clients send it as one word.
fn sentinel_name(typed: Option<String>) -> Result<String, Failure> {
    let name = typed.unwrap_or_else(|| server::SENTINEL_NAME_DEFAULT.into());
    let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    match is_word && !name.contains(',') {
        true => Ok(name),
        false => Err(Failure::usage(format!(
            "--sentinel-name {name:?} is no name: use printable ASCII without blanks and commas"
        ))),
    }
}

fn max_value_size(typed: Option<usize>) -> Result<usize, Failure> {
    let size = typed.unwrap_or(VALUE_LEN_DEFAULT);
    if !(1..=VALUE_LEN_LIMIT).contains(&size) {
        let (most, size) = (show_bytes(VALUE_LEN_LIMIT), show_bytes(size));
        return Err(Failure::usage(format!("--max-value-size must be 1 to {most}, not {size}")));
    }
    Ok(size)
}

/// In milliseconds.
fn request_timeout(typed: Option<u64>) -> Result<u64, Failure> {
    let timeout = typed.unwrap_or(REQUEST_TIMEOUT_DEFAULT);
    if !(1..=REQUEST_TIMEOUT_MAX).contains(&timeout) {
        let (most, timeout) =
            (units::show_millis(REQUEST_TIMEOUT_MAX), units::show_millis(timeout));
        return Err(Failure::usage(format!(
            "--request-timeout must be 1ms to {most}, not {timeout}"
        )));
    }
    Ok(timeout)
}

fn cache_size(typed: Option<usize>) -> Result<usize, Failure> {
    let size = typed.unwrap_or(CACHE_SIZE_DEFAULT);
    if size < CACHE_SIZE_MIN {
        let (least, size) = (show_bytes(CACHE_SIZE_MIN), show_bytes(size));
        return Err(Failure::usage(format!("--cache-size must be {least} or more, not {size}")));
    }
    Ok(size)
}

fn show_bytes(size: usize) -> String {
    units::show_bytes(size as u64)
}

/// The shape of a disk store with a ring of `ring_size`, rounded up to whole pages.
fn disk(ring_size: Option<u64>, cache_bytes: usize) -> Result<DiskConfig, Failure> {
    let usual = DiskConfig::default();
    let typed = ring_size.unwrap_or(usual.ring_bytes);
    if !(RING_SIZE_MIN..=RING_SIZE_MAX).contains(&typed) {
        let show = units::show_bytes;
        return Err(Failure::usage(format!(
            "--ring-size must be {} to {}, not {}",
            show(RING_SIZE_MIN),
            show(RING_SIZE_MAX),
            show(typed)
        )));
    }
    Ok(DiskConfig { ring_bytes: typed.next_multiple_of(RING_PAGE), cache_bytes, ..usual })
}

/// How fast media are verified, and how often replicas are compared.
fn scrub(rate: Option<u64>, compare_every: Option<u64>) -> Result<ScrubConfig, Failure> {
    let default = ScrubConfig::DEFAULT;
    let bytes_per_second = rate.unwrap_or(default.bytes_per_second);
    if bytes_per_second > SCRUB_RATE_MAX {
        let (most, rate) = (units::show_bytes(SCRUB_RATE_MAX), units::show_bytes(bytes_per_second));
        return Err(Failure::usage(format!("--scrub-rate must be 0 to {most}, not {rate}")));
    }
    let millis = compare_every.unwrap_or(default.compare_every.as_millis());
    if millis != 0 && !(COMPARE_EVERY_MIN..=COMPARE_EVERY_MAX).contains(&millis) {
        let show = units::show_millis;
        return Err(Failure::usage(format!(
            "--compare-every must be 0, or {} to {}, not {}",
            show(COMPARE_EVERY_MIN),
            show(COMPARE_EVERY_MAX),
            show(millis)
        )));
    }
    Ok(ScrubConfig { bytes_per_second, compare_every: Nanos::from_millis(millis), ..default })
}

/// A retry must find its first reply for as long as requests may take.
fn once_window(typed: Option<u64>, request_timeout: u64) -> Result<Millis, Failure> {
    let least = ONCE_WINDOW_MIN.max(ONCE_WINDOW_TIMEOUTS_MIN * request_timeout);
    let window = typed.unwrap_or_else(|| ONCE_WINDOW_DEFAULT.0.max(least));
    if !(least..=ONCE_WINDOW_MAX).contains(&window) {
        let show = units::show_millis;
        return Err(Failure::usage(format!(
            "--once-window must be {} to {} with a --request-timeout of {}, not {}",
            show(least),
            show(ONCE_WINDOW_MAX),
            show(request_timeout),
            show(window)
        )));
    }
    Ok(Millis(window))
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(node::config::WORKERS_MAX)
}

/// The addresses of a node of `dev`.
pub(crate) struct LocalAddresses {
    pub listen: String,
    pub peer: String,
    pub admin: String,
    /// For clients of Redis Sentinel, if the node answers them.
    pub sentinel: Option<String>,
}

/// Host and port of the `--sentinel-listen` of `dev`, which asks for no password.
pub(crate) fn split_sentinel(address: &str) -> Result<(String, u16), Failure> {
    let (host, port) = address::split("--sentinel-listen", address)?;
    if !address::is_loopback(address) {
        return Err(Failure::usage(format!(
            "--sentinel-listen {address} is beyond loopback: 'dev' serves this machine only"
        )));
    }
    Ok((host.to_string(), port))
}

/// The settings that `dev` gives to all databases.
#[derive(Clone, Copy)]
pub(crate) struct LocalDatabases {
    pub durability: Durability,
    pub protocol: &'static str,
    pub replicas: Option<u8>,
}

/// A node of `dev`.
pub(crate) fn local(
    id: u16,
    addresses: LocalAddresses,
    data_dir: PathBuf,
    databases: LocalDatabases,
) -> Result<Config, Failure> {
    let flags = Flags {
        id: Some(id),
        listen: Some(addresses.listen),
        peer_listen: Some(addresses.peer),
        admin_listen: Some(addresses.admin),
        sentinel_listen: addresses.sentinel,
        data_dir: Some(data_dir),
        durability: Some(databases.durability.to_string()),
        protocol: Some(databases.protocol.to_string()),
        replicas: databases.replicas,
        ..Flags::default()
    };
    flags.with_password(password_in_environment()).resolve()
}

/// `replicas` is for those databases whose protocol has a group.
fn databases(
    own: &[DatabaseTable],
    protocol: &'static str,
    durability: Durability,
    replicas: Option<u8>,
) -> Result<Vec<DatabaseConfig>, Failure> {
    let database = |index| {
        let database = Database(index);
        DatabaseConfig { database, protocol, durability, replicas: None }
    };
    let mut databases: Vec<DatabaseConfig> = (0..DATABASES as u8).map(database).collect();
    let mut seen = [false; DATABASES];
    for table in own {
        let Some(database) = databases.get_mut(usize::from(table.index)) else {
            let text = format!("[[database]] index={}: there are databases 0 to 15", table.index);
            return Err(Failure::usage(text));
        };
        if std::mem::replace(&mut seen[usize::from(table.index)], true) {
            let text = format!("[[database]] index={} is there twice", table.index);
            return Err(Failure::usage(text));
        }
        if let Some(name) = &table.protocol {
            database.protocol = find_protocol(name)?;
        }
        if let Some(name) = &table.durability {
            database.durability = parse_durability(name)?;
        }
        database.replicas = table.replicas;
    }
    let mut groups = databases.iter_mut().filter(|one| one.has_group()).peekable();
    if let (Some(_), None) = (replicas, groups.peek()) {
        return Err(Failure::usage(format!(
            "--replicas is for protocols of groups, which are {}: no database has one",
            node::registry::names_of_groups().join(", ")
        )));
    }
    groups.for_each(|one| one.replicas = one.replicas.or(replicas));
    Ok(databases)
}

pub(crate) fn parse_durability(text: &str) -> Result<Durability, Failure> {
    text.parse().map_err(|bad: node::config::BadConfig| Failure::usage(bad.0))
}

pub(crate) fn find_protocol(name: &str) -> Result<&'static str, Failure> {
    // Variants are for measurements.
    let known: Vec<&str> = node::registry::PROTOCOLS.iter().map(|one| one.name).collect();
    known.iter().copied().find(|known| *known == name).ok_or_else(|| {
        Failure::usage(format!("there is no protocol {name:?}: choose one of {}", known.join(", ")))
    })
}

/// The bytes of the file without the line end that editors put behind it.
fn read_secret(path: &Path) -> Result<Vec<u8>, String> {
    let name = path.display();
    let bytes = std::fs::read(path).map_err(|error| format!("{name}: {error}"))?;
    let end = bytes.iter().rposition(|byte| *byte != b'\n' && *byte != b'\r');
    match end {
        Some(end) => Ok(bytes[..=end].to_vec()),
        None => Err(format!("{name} is empty: write the secret into it")),
    }
}

/// The flags by which a node listens, and their values.
fn listeners(config: &Config) -> Vec<(&'static str, &str)> {
    let mut all = vec![
        ("--listen", config.node.listen.as_str()),
        ("--peer-listen", config.node.peer_listen.as_str()),
        ("--admin-listen", config.admin_listen.as_str()),
    ];
    let sentinel = config.node.sentinel_listen.as_deref();
    all.extend(sentinel.map(|address| ("--sentinel-listen", address)));
    all
}

/// Refuses to listen at a host that no name service knows.
fn look_up_own(config: &Config) -> Result<(), Failure> {
    listeners(config).into_iter().try_for_each(|(flag, address)| look_up(flag, address).map(drop))
}

/// Refuses to serve beyond loopback without a password for clients and a secret between nodes.
fn refuse_open_doors(config: &Config) -> Result<(), Failure> {
    for (flag, address) in listeners(config) {
        if address::is_loopback(address) {
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
