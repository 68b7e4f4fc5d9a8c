//! What all sessions of a node share.

use std::sync::Arc;

use base::Millis;
use node::front::{Client, Front, Session};
use node::status::CommandFacts;

use crate::clients::Clients;
use crate::config_command::Settings;
use crate::counts::Counts;
use crate::monitor::Monitors;
use crate::pause::Pause;
use crate::session;
use crate::slow::Slow;

/// How clients are served.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Clients must know it; `None`: everybody may do everything.
    pub password: Option<Vec<u8>>,
    /// Bytes of one key's value, as the interpreter limits it; told by `CONFIG GET`.
    pub max_value_size: usize,
    /// For how long a command under `ONCE` is remembered; told by `CONFIG GET`.
    pub once_window: Millis,
    pub version: &'static str,
}

/// Makes RESP sessions.
pub struct RespFront {
    shared: Arc<Shared>,
}

/// What sessions on all workers look at. Nothing here is locked on the path of a request on a key.
pub(crate) struct Shared {
    pub config: ServerConfig,
    pub clients: Clients,
    pub counts: Arc<Counts>,
    pub pause: Pause,
    pub settings: Settings,
    pub slow: Slow,
    pub monitors: Arc<Monitors>,
}

impl RespFront {
    #[must_use]
    pub fn new(config: ServerConfig) -> Arc<RespFront> {
        let shared = Shared {
            config,
            clients: Clients::default(),
            counts: Arc::new(Counts::new()),
            pause: Pause::default(),
            settings: Settings::default(),
            slow: Slow::default(),
            monitors: Arc::default(),
        };
        Arc::new(RespFront { shared: Arc::new(shared) })
    }
}

impl RespFront {
    /// Statistics of the commands of all sessions.
    #[must_use]
    pub fn command_facts(&self) -> Arc<dyn CommandFacts> {
        Arc::clone(&self.shared.counts) as Arc<dyn CommandFacts>
    }
}

impl Front for RespFront {
    fn accept(&self, client: &Client) -> Box<dyn Session> {
        Box::new(session::Session::new(self.shared.clone(), client))
    }

    fn too_many(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }

    fn commands(&self) -> Option<Arc<dyn CommandFacts>> {
        Some(self.command_facts())
    }
}
