//! State that all sessions of a node share.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use base::Millis;
use node::session::{Client, Session, SessionFactory};
use node::settings::Agreed;
use node::status::{CommandFacts, Facts};
use types::Update;

use crate::access::Password;
use crate::clients::Clients;
use crate::config_command::Settings;
use crate::counts::Counts;
use crate::info::process;
use crate::limits::Limits;
use crate::monitor::Monitors;
use crate::pause::Pause;
use crate::rates::{Sample, Samples};
use crate::script_cache::ScriptCache;
use crate::session;
use crate::slow::Slow;

/// How clients are served.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Clients must give it; `None` lets every client in.
    pub password: Option<Vec<u8>>,
    /// Bytes of one key's value that this node allows.
    pub max_value_size: usize,
    /// How long a command under `ONCE` is remembered, if no other member has it shorter.
    pub once_window: Millis,
    pub version: &'static str,
    /// The name of the master at the port for clients of Redis Sentinel.
    pub sentinel_name: String,
}

/// Clients of Redis Sentinel ask for a master of this name, unless configured otherwise.
pub const SENTINEL_NAME_DEFAULT: &str = "mymaster";

/// Makes RESP sessions.
pub struct RespSessionFactory {
    shared: Arc<Shared>,
}

/// Shared by sessions on all workers. A request on a key takes no lock of it.
pub(crate) struct Shared {
    pub config: ServerConfig,
    pub clients: Clients,
    pub counts: Arc<Counts>,
    pub pause: Pause,
    pub settings: Settings,
    pub slow: Slow,
    pub monitors: Arc<Monitors>,
    pub samples: Samples,
    pub limits: Limits,
    pub password: Password,
    pub scripts: ScriptCache,
    config_file: OnceLock<PathBuf>,
}

impl Shared {
    pub(crate) fn config_file(&self) -> Option<&PathBuf> {
        self.config_file.get()
    }
}

impl RespSessionFactory {
    #[must_use]
    pub fn new(config: ServerConfig) -> Arc<RespSessionFactory> {
        let limits = Limits::new(config.max_value_size, config.once_window);
        let password = config.password.clone();
        let shared = Shared {
            config,
            limits,
            password: Password::new(password),
            clients: Clients::default(),
            counts: Arc::new(Counts::new()),
            pause: Pause::default(),
            settings: Settings::default(),
            slow: Slow::default(),
            monitors: Arc::default(),
            samples: Samples::default(),
            scripts: ScriptCache::default(),
            config_file: OnceLock::new(),
        };
        Arc::new(RespSessionFactory { shared: Arc::new(shared) })
    }

    /// Runs commands under the limits that count for the node of this factory.
    #[must_use]
    pub fn interpreter(&self) -> Arc<dyn Update> {
        self.shared.limits.interpreter()
    }
}

impl RespSessionFactory {
    /// Names the configuration file in `INFO`. Only the first call counts.
    pub fn set_config_file(&self, path: PathBuf) {
        let _ = self.shared.config_file.set(path);
    }

    /// Looks at the counters, for rates and peaks. To be called about five times a second.
    pub fn sample(&self, node: &dyn Facts) {
        let Some(at) = node.clock() else { return };
        let stats = node.status().stats.values;
        let stat = |name: &str| stats.get(name).copied().unwrap_or(0);
        self.shared.samples.add(Sample {
            at,
            calls: self.shared.counts.calls(),
            bytes_in: stat("client_bytes_in"),
            bytes_out: stat("client_bytes_out"),
            used_memory: process::memory().unwrap_or_default().used,
        });
    }

    /// Statistics of the commands of all sessions.
    #[must_use]
    pub fn command_facts(&self) -> Arc<dyn CommandFacts> {
        Arc::clone(&self.shared.counts) as Arc<dyn CommandFacts>
    }
}

impl SessionFactory for RespSessionFactory {
    fn accept(&self, client: &Client) -> Box<dyn Session> {
        Box::new(session::Session::new(self.shared.clone(), client))
    }

    fn agree(&self, limits: &Agreed) {
        self.shared.limits.agree(limits);
    }

    fn too_many(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }

    fn commands(&self) -> Option<Arc<dyn CommandFacts>> {
        Some(self.command_facts())
    }
}
