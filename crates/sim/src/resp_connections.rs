//! Client connections that speak RESP: real sessions between simulated clients and workers.
//!
//! Bytes arrive in order, in pieces of any length, in both directions.
//! Workers handle a session's requests like any others.
//! When its node ends, a connection is gone with all bytes under way.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::{Millis, Prng};
use node::client_settings::ClientSettings;
use node::config::{DatabaseConfig, Durability, MemberAddress, NodeConfig};
use node::session::{
    Ask, Client, ClientPort, Session, SessionContext, SessionFactory, Token, Wanted,
};
use node::status::{Facts, NodeStatus, Phase};
use resp::{Reply, ReplyParser};
use server::{RespSessionFactory, ServerConfig};
use types::positions::PUBLIC;
use types::{NodeId, Outcome, SessionId, Tag};

use crate::world::{DATABASE, Wake, World};

/// Tags from here on belong to requests of sessions.
pub const TAGS: u64 = 1 << 40;
/// Wakes from here on are moments of a connection; the rest is its session.
pub const WAKES: u64 = 1 << 40;
/// The clients' address, as sessions see it.
const ADDRESS: &str = "127.0.0.1:6379";
/// Bytes wait for less than this, in nanoseconds.
const WAIT_MAX: u64 = 200_000;

/// One connection.
struct RespConnection {
    node: usize,
    session: Box<dyn Session>,
    /// Under way to the session.
    to_node: VecDeque<u8>,
    /// Offered to the session and not taken.
    untaken: Vec<u8>,
    out: Vec<u8>,
    /// Arrived at the client, not a whole reply yet.
    arrived: Vec<u8>,
    parser: ReplyParser,
    /// Operations without a reply, in order of issue.
    asked: VecDeque<usize>,
    /// Requests of the session that its node takes later.
    held: VecDeque<Ask>,
    under_way: usize,
    is_woken: bool,
}

/// All connections of a run.
pub struct RespConnections {
    factory: Arc<RespSessionFactory>,
    facts: SimFacts,
    lines: BTreeMap<u64, RespConnection>,
    /// Requests of sessions: the session, and its token.
    tags: BTreeMap<u64, (u64, Token)>,
    next_tag: u64,
    rng: Prng,
}

impl std::fmt::Debug for RespConnections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RespConnections").field("lines", &self.lines.len()).finish_non_exhaustive()
    }
}

impl RespConnections {
    #[must_use]
    pub fn new(nodes: usize, once_window: Millis, rng: Prng) -> RespConnections {
        let sentinel_name = server::SENTINEL_NAME_DEFAULT.into();
        let (version, max_value_size) = ("0.0.0", 1 << 20);
        let config =
            ServerConfig { password: None, max_value_size, once_window, version, sentinel_name };
        RespConnections {
            factory: RespSessionFactory::new(config),
            facts: SimFacts::new(nodes),
            lines: BTreeMap::new(),
            tags: BTreeMap::new(),
            next_tag: TAGS,
            rng,
        }
    }

    /// Sends commands on a connection; opens a new one. The replies to `op` come in their turn.
    pub fn say(
        &mut self,
        world: &mut World,
        (node, session): (usize, u64),
        op: usize,
        commands: &[Vec<Vec<u8>>],
    ) {
        let factory = &self.factory;
        let line = self
            .lines
            .entry(session)
            .or_insert_with(|| RespConnection::new(factory, node, session));
        for words in commands {
            let mut request = Vec::new();
            resp::encode::request(&mut request, words);
            line.to_node.extend(request);
            line.asked.push_back(op);
        }
        self.wake(world, session);
    }

    /// Requests of sessions that have not ended.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.tags.len()
    }

    /// The connections to a node are gone.
    pub fn on_crash(&mut self, node: usize) {
        self.lines.retain(|_, line| line.node != node);
        let lines = &self.lines;
        self.tags.retain(|_, (session, _)| lines.contains_key(session));
    }

    /// A request of a session has ended.
    ///
    /// # Errors
    /// One line, when there is no such request.
    pub fn on_outcome(
        &mut self,
        world: &mut World,
        tag: Tag,
        outcome: Outcome,
    ) -> Result<(), String> {
        let asked = self.tags.remove(&tag.0);
        let (session, token) = asked.ok_or_else(|| format!("no session asked {tag:?}"))?;
        if let Some(line) = self.lines.get_mut(&session) {
            line.under_way -= 1;
        }
        self.step(world, session, |session, cx| session.on_outcome(token, outcome, cx));
        self.wake(world, session);
        Ok(())
    }

    /// Moves bytes on a connection. Appends the operations that got a reply.
    ///
    /// # Errors
    /// One line, when the session's output is no reply.
    pub fn on_wake(
        &mut self,
        world: &mut World,
        session: u64,
        answered: &mut Vec<(usize, Reply)>,
    ) -> Result<(), String> {
        let Some(line) = self.lines.get_mut(&session) else { return Ok(()) };
        line.is_woken = false;
        let piece = piece(&mut self.rng, line.to_node.len());
        line.untaken.extend(line.to_node.drain(..piece));
        self.step(world, session, |session, cx| session.on_timer(cx));
        self.feed(world, session);
        self.release(world, session);
        let Some(line) = self.lines.get_mut(&session) else { return Ok(()) };
        let piece = self::piece(&mut self.rng, line.out.len());
        line.arrived.extend(line.out.drain(..piece));
        line.read(answered)?;
        if line.has_work() {
            self.wake(world, session);
        }
        Ok(())
    }

    fn wake(&mut self, world: &mut World, session: u64) {
        let Some(line) = self.lines.get_mut(&session) else { return };
        if !std::mem::replace(&mut line.is_woken, true) {
            let at = world.now() + self.rng.between(1, WAIT_MAX);
            world.wake(at, Wake(WAKES + session));
        }
    }

    /// Offers the session its untaken bytes.
    fn feed(&mut self, world: &mut World, session: u64) {
        let Some(line) = self.lines.get_mut(&session) else { return };
        if line.untaken.is_empty() || line.session.is_full() {
            return;
        }
        let input = std::mem::take(&mut line.untaken);
        let mut taken = 0;
        self.step(world, session, |session, cx| taken = session.on_bytes(&input, cx));
        if let Some(line) = self.lines.get_mut(&session) {
            line.untaken = input[taken..].to_vec();
        }
    }

    fn step(
        &mut self,
        world: &mut World,
        session: u64,
        with: impl FnOnce(&mut dyn Session, &mut SessionContext<'_>),
    ) {
        let Some(line) = self.lines.get_mut(&session) else { return };
        let mut asks = Vec::new();
        let times = world.times(line.node);
        let outstanding = line.under_way + line.held.len();
        let mut cx = SessionContext::new(&mut line.out, &mut asks, outstanding, times, &self.facts)
            .with_positions(Some(&PUBLIC));
        with(&mut *line.session, &mut cx);
        line.held.extend(asks);
        self.release(world, session);
    }

    /// Hands a session's requests to its node, in order, as far as it takes them.
    fn release(&mut self, world: &mut World, session: u64) {
        let Some(line) = self.lines.get_mut(&session) else { return };
        while let Some(Ask { token, what }) = line.held.front() {
            let tag = Tag(self.next_tag);
            let id = SessionId(session);
            let is_taken = match what {
                Wanted::Run { key, command, .. } => {
                    world.request(line.node, tag, id, key, command.clone())
                }
                Wanted::Transact(transaction) => {
                    world.transact(line.node, tag, transaction.clone())
                }
                Wanted::List { .. } | Wanted::Explain { .. } => {
                    line.held.pop_front();
                    continue;
                }
            };
            if !is_taken {
                return;
            }
            self.tags.insert(tag.0, (session, *token));
            self.next_tag += 1;
            line.under_way += 1;
            line.held.pop_front();
        }
    }
}

/// How many of so many bytes arrive together.
fn piece(rng: &mut Prng, len: usize) -> usize {
    match len {
        0 => 0,
        _ if rng.chance_ppm(500_000) => len,
        _ => rng.between(1, len as u64) as usize,
    }
}

impl RespConnection {
    fn new(factory: &RespSessionFactory, node: usize, session: u64) -> RespConnection {
        let address = ADDRESS.parse().expect("it is an address");
        let (id, port) = (SessionId(session), ClientPort::Keys);
        let client = Client { id, peer: address, local: address, worker: 0, port };
        RespConnection {
            node,
            session: factory.accept(&client),
            to_node: VecDeque::new(),
            untaken: Vec::new(),
            out: Vec::new(),
            arrived: Vec::new(),
            parser: ReplyParser::default(),
            asked: VecDeque::new(),
            held: VecDeque::new(),
            under_way: 0,
            is_woken: false,
        }
    }

    fn has_work(&self) -> bool {
        !self.to_node.is_empty() || !self.out.is_empty() || !self.held.is_empty()
    }

    fn read(&mut self, answered: &mut Vec<(usize, Reply)>) -> Result<(), String> {
        loop {
            let next = self.parser.next(&self.arrived);
            let Some((reply, len)) = next.map_err(|error| format!("a session says: {error}"))?
            else {
                return Ok(());
            };
            self.arrived.drain(..len);
            let op = self.asked.pop_front();
            let op = op.ok_or_else(|| format!("a session says {reply:?} unasked"))?;
            answered.push((op, reply));
        }
    }
}

/// Facts of a node, on which no command on a key depends.
struct SimFacts {
    config: Arc<NodeConfig>,
    settings: ClientSettings,
}

impl SimFacts {
    fn new(nodes: usize) -> SimFacts {
        let member = |id: u16| MemberAddress {
            node: NodeId(id),
            client: format!("127.0.0.1:{id}"),
            peer: format!("127.0.0.1:1{id}"),
        };
        let database = DatabaseConfig {
            database: DATABASE,
            protocol: "rmwpaxos",
            durability: Durability::Volatile,
            replicas: None,
        };
        let config = NodeConfig {
            id: NodeId(1),
            listen: "127.0.0.1:6379".into(),
            sentinel_listen: None,
            announced: node::config::Announced::default(),
            peer_listen: "127.0.0.1:16379".into(),
            members: (1..=nodes as u16).map(member).collect(),
            secret: None,
            data_dir: "data".into(),
            databases: vec![database],
            workers: 1,
            request_timeout: Millis(1_500),
            max_value_size: types::limits::VALUE_LEN_DEFAULT,
            once_window: types::limits::ONCE_WINDOW_DEFAULT,
            cache_memory: 1 << 20,
            disk: node::config::DiskConfig::default(),
            clients_max: 100,
            clients_accepted: usize::MAX,
            scrub: node::config::ScrubConfig::OFF,
            supported: types::features::Supported::HERE,
        };
        SimFacts { settings: ClientSettings::new(&config), config: Arc::new(config) }
    }
}

impl Facts for SimFacts {
    fn config(&self) -> &Arc<NodeConfig> {
        &self.config
    }

    fn client_settings(&self) -> &ClientSettings {
        &self.settings
    }

    fn status(&self) -> NodeStatus {
        NodeStatus {
            id: NodeId(1),
            phase: Phase::Formed,
            cluster: None,
            level: Some(types::features::HIGHEST),
            incarnation: Default::default(),
            amnesia: Default::default(),
            members: Vec::new(),
            ready: true,
            limits: node::settings::Agreed::default(),
            loading: false,
            writes_refused: None,
            clients: 1,
            clients_total: 1,
            clients_refused: 0,
            stats: Default::default(),
            databases: Vec::new(),
            groups: Vec::new(),
            up: Millis(0),
            listen: ADDRESS.parse().expect("it is an address"),
            advertise: ADDRESS.into(),
            sentinel: None,
        }
    }
}
