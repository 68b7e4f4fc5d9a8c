//! A node for sessions to talk to: registers in a map, outcomes in any order, failures on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::{Millis, Nanos, Prng};
use bytes::Bytes;
use commands::Interpreter;
use node::client_settings::ClientSettings;
use node::config::{DatabaseConfig, Durability, MemberAddress, NodeConfig};
use node::session::{
    Ask, Client, ClientPort, Session, SessionContext, SessionFactory, Shortage, Socket, Wanted,
};
use node::status::{DatabaseFigures, Facts, MemberView, NodeStatus, Phase};
use node::summary::{NodeState, Summary};
use transactions::{Mode, Ran, Stop, Transaction};
use types::positions::PUBLIC;
use types::{Access, View};
use types::{
    Change, Clock, Command, Database, Found, Key, NodeId, Outcome, Reply, SessionId, TimeToLive,
    Update,
};

use crate::{RespSessionFactory, ServerConfig};

pub struct FakeNode {
    config: Arc<NodeConfig>,
    pub databases: Vec<DatabaseFigures>,
    clock: AtomicU64,
    settings: ClientSettings,
    /// How often all sessions were to take a step.
    pub steps: AtomicU64,
    pub cluster: Vec<MemberView>,
    pub ready: bool,
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A member that serves clients.
fn member_view(id: u16) -> MemberView {
    MemberView {
        node: NodeId(id),
        address: format!("127.0.0.1:{id}"),
        is_self: id == 1,
        up: true,
        silent_for: Some(Millis(0)),
        round_trip: Some(Nanos(u64::from(10 - id))),
        summary: Some(Summary {
            advertise: format!("store-{id}.example:{}", 7_000 + id),
            sentinel: format!("store-{id}.example:{}", 27_000 + id),
            state: NodeState::Ready,
            ..Summary::default()
        }),
    }
}

impl FakeNode {
    fn new() -> FakeNode {
        let database = |index| DatabaseConfig {
            database: Database(index),
            protocol: "rmwpaxos",
            durability: Durability::Volatile,
            replicas: None,
        };
        let member = |id: u16| MemberAddress {
            node: NodeId(id),
            client: format!("127.0.0.1:{id}"),
            peer: format!("127.0.0.1:1{id}"),
        };
        let config = NodeConfig {
            id: NodeId(1),
            listen: "127.0.0.1:6379".into(),
            sentinel_listen: None,
            announced: node::config::Announced::default(),
            peer_listen: "127.0.0.1:16379".into(),
            members: (1..=3).map(member).collect(),
            secret: None,
            data_dir: "data".into(),
            databases: (0..4).map(database).collect(),
            workers: 1,
            request_timeout: Millis(1_500),
            max_value_size: types::limits::VALUE_LEN_DEFAULT,
            once_window: types::limits::ONCE_WINDOW_DEFAULT,
            cache_memory: 1 << 20,
            disk: node::config::DiskConfig::default(),
            clients_max: 100,
            clients_accepted: 1_000,
            scrub: node::config::ScrubConfig::OFF,
            supported: types::features::Supported::HERE,
        };
        let clock = AtomicU64::new(0);
        let settings = ClientSettings::new(&config);
        let steps = AtomicU64::new(0);
        let cluster = (1..=3).map(member_view).collect();
        let config = Arc::new(config);
        FakeNode { config, databases: Vec::new(), clock, settings, steps, cluster, ready: true }
    }
}

impl Facts for FakeNode {
    fn clock(&self) -> Option<Nanos> {
        Some(Nanos(self.clock.load(Relaxed)))
    }

    fn config(&self) -> &Arc<NodeConfig> {
        &self.config
    }

    fn client_settings(&self) -> &ClientSettings {
        &self.settings
    }

    fn cluster(&self) -> Vec<MemberView> {
        self.cluster.clone()
    }

    fn step_sessions(&self) {
        self.steps.fetch_add(1, Relaxed);
    }

    fn status(&self) -> NodeStatus {
        NodeStatus {
            id: NodeId(1),
            phase: Phase::Formed,
            cluster: Some("c0ffee".into()),
            level: Some(types::features::HIGHEST),
            incarnation: Default::default(),
            amnesia: Default::default(),
            members: Vec::new(),
            ready: self.ready,
            limits: node::settings::Agreed::default(),
            loading: false,
            writes_refused: None,
            clients: 1,
            clients_total: 1,
            clients_refused: 0,
            stats: Default::default(),
            databases: self.databases.clone(),
            groups: Vec::new(),
            up: Millis(5_000),
            listen: address(6379),
            advertise: "127.0.0.1:6379".into(),
            sentinel: None,
        }
    }
}

/// The outcome of a request that does not run; `None` runs it.
pub type Fate = fn(&Key, Access) -> Option<Outcome>;

/// All nodes' registers, and the session factory of one of them.
pub struct World {
    pub factory: Arc<RespSessionFactory>,
    pub node: FakeNode,
    pub registers: BTreeMap<(u8, u64, Vec<u8>), Bytes>,
    versions: BTreeMap<(u8, u64, Vec<u8>), u64>,
    /// Registers whose key was deleted: they are never collected here.
    tombstones: BTreeSet<(u8, u64, Vec<u8>)>,
    /// Listings so far.
    pub listings: usize,
    /// Programs that were too long for a worker.
    pub long_runs: usize,
    pub fate: Fate,
    /// One of so many registers is not settled when it is listed.
    pub undecided_of: u64,
    pub prng: Prng,
    pub now: Nanos,
    /// Writes that a session may have under way before it is to hold others.
    pub writes_max: usize,
    pub shortage: Shortage,
    ids: u64,
}

/// Ends no run.
#[derive(Debug)]
struct Endless;

impl Stop for Endless {
    fn reason(&self) -> Option<&'static str> {
        None
    }
}

/// One client's connection.
pub struct Connection {
    session: Box<dyn Session>,
    untaken: Vec<u8>,
    pub asks: Vec<Ask>,
    pub said: Vec<u8>,
    wakes: Vec<Nanos>,
}

impl World {
    pub fn new(password: Option<&[u8]>) -> World {
        let factory = RespSessionFactory::new(ServerConfig {
            password: password.map(<[u8]>::to_vec),
            max_value_size: 1 << 20,
            once_window: types::limits::ONCE_WINDOW_DEFAULT,
            version: "0.0.0",
            sentinel_name: crate::SENTINEL_NAME_DEFAULT.into(),
        });
        World {
            factory,
            node: FakeNode::new(),
            registers: BTreeMap::new(),
            versions: BTreeMap::new(),
            tombstones: BTreeSet::new(),
            listings: 0,
            long_runs: 0,
            fate: |_, _| None,
            undecided_of: 8,
            prng: Prng::new(7),
            now: Nanos::from_secs(1),
            writes_max: usize::MAX,
            shortage: Shortage::None,
            ids: 0,
        }
    }

    pub fn connect(&mut self) -> Connection {
        self.connect_to(ClientPort::Keys)
    }

    pub fn connect_to(&mut self, port: ClientPort) -> Connection {
        self.ids += 1;
        let client = Client {
            id: SessionId(self.ids),
            peer: address(40_000 + self.ids as u16),
            local: address(6379),
            worker: 0,
            port,
        };
        let session = self.factory.accept(&client);
        let (untaken, asks, said, wakes) = Default::default();
        Connection { session, untaken, asks, said, wakes }
    }

    fn step(
        &self,
        connection: &mut Connection,
        with: impl FnOnce(&mut dyn Session, &mut SessionContext<'_>),
    ) {
        self.node.clock.store(self.now.0, Relaxed);
        let mut asks = Vec::new();
        let times = (self.now, Millis(self.now.as_millis()));
        let outstanding = connection.asks.len();
        let mut cx =
            SessionContext::new(&mut connection.said, &mut asks, outstanding, times, &self.node)
                .with_positions(Some(&PUBLIC))
                .with_writes_left(self.writes_max.saturating_sub(outstanding))
                .with_shortage(self.shortage);
        with(&mut *connection.session, &mut cx);
        connection.wakes.extend(cx.wanted_wake());
        connection.asks.extend(asks);
    }

    fn feed(&self, connection: &mut Connection) {
        let input = std::mem::take(&mut connection.untaken);
        let mut taken = 0;
        self.step(connection, |session, cx| taken = session.on_bytes(&input, cx));
        connection.untaken = input[taken..].to_vec();
    }

    /// Shows `input` to the session. No request ends yet.
    pub fn send(&self, connection: &mut Connection, input: &[u8]) {
        connection.untaken.extend_from_slice(input);
        if !connection.session.is_full() {
            self.feed(connection);
        }
    }

    /// Ends all requests under way and feeds held input, until the session rests.
    pub fn settle(&mut self, connection: &mut Connection) {
        while !connection.asks.is_empty() {
            self.settle_one(connection);
        }
    }

    /// Ends one request under way, and feeds held input.
    pub fn settle_one(&mut self, connection: &mut Connection) {
        let ask = connection.asks.remove(self.any_first(&connection.asks));
        let outcome = self.outcome(&ask.what);
        self.step(connection, |session, cx| session.on_outcome(ask.token, outcome, cx));
        if !connection.untaken.is_empty() && !connection.session.is_full() {
            self.feed(connection);
        }
    }

    /// Any of the requests that are the first on their key: registers work in order.
    fn any_first(&mut self, asks: &[Ask]) -> usize {
        let at = self.prng.next_u64() as usize % asks.len();
        let key = |ask: &Ask| match &ask.what {
            Wanted::Run { key, .. } => Some(key.bytes().to_vec()),
            Wanted::Transact(_) | Wanted::List { .. } | Wanted::Explain { .. } => None,
        };
        let wanted = key(&asks[at]);
        asks.iter().position(|ask| wanted.is_some() && key(ask) == wanted).unwrap_or(at)
    }

    fn outcome(&mut self, wanted: &Wanted) -> Outcome {
        match wanted {
            Wanted::Run { database, key, command } => {
                let failed = (self.fate)(key, command.access);
                failed.unwrap_or_else(|| self.run(database.0, key, command))
            }
            Wanted::List { database, from_hash, limit } => {
                self.list(database.0, *from_hash, *limit)
            }
            Wanted::Transact(transaction) => {
                let access = match transaction.mode {
                    Mode::Update => Access::Update,
                    Mode::Snapshot | Mode::PerKey => Access::Read,
                };
                let failed = transaction.keys.iter().find_map(|key| (self.fate)(key, access));
                failed.unwrap_or_else(|| self.transact(transaction))
            }
            Wanted::Explain { .. } => Outcome::Unsupported("world"),
        }
    }

    /// Runs a transaction alone. The version of a key counts its changes.
    fn transact(&mut self, transaction: &Transaction) -> Outcome {
        let database = transaction.database.0;
        let place = |key: &Key| (database, key.hash(), key.bytes().to_vec());
        let found = |world: &World, key: &Key| Found {
            value: world.registers.get(&place(key)).cloned(),
            ttl: TimeToLive::Never,
            ends: None,
            version: 0,
            mod_version: world.versions.get(&place(key)).copied().unwrap_or_default(),
            absent: None,
        };
        let has_changed = |(key, version): &(Key, Option<u64>)| {
            let now = found(self, key);
            now.value.map(|_| now.mod_version) != *version
        };
        if transaction.watched.iter().any(has_changed) {
            return Outcome::Reply(Reply::NullArray);
        }
        let mut keys = transaction.keys.clone();
        loop {
            let states = keys.iter().map(|key| (key.clone(), found(self, key))).collect();
            let mut ran = transaction.program.run(&states, transaction.clock);
            if ran == Ran::TooLong {
                self.long_runs += 1;
                let stop: Arc<dyn Stop> = Arc::new(Endless);
                ran = transaction.program.run_long(&states, transaction.clock, &stop);
            }
            match ran {
                Ran::Needs(more) => keys.extend(more),
                Ran::TooLong => panic!("a long run has no budget"),
                Ran::Refused(reply) => return Outcome::Reply(reply),
                Ran::Done { changes, reply } => {
                    for (key, change) in changes {
                        self.change(place(&key), change);
                    }
                    return Outcome::Reply(reply);
                }
            }
        }
    }

    /// Sets a string in any database.
    pub fn put(&mut self, database: u8, key: &str, value: &str) {
        let key = PUBLIC.key(key.as_bytes());
        let place = (database, key.hash(), key.bytes().to_vec());
        self.registers.insert(place, values::string::encode(value.as_bytes()));
    }

    fn change(&mut self, place: (u8, u64, Vec<u8>), change: Change) {
        *self.versions.entry(place.clone()).or_default() += u64::from(change != Change::None);
        match change {
            Change::Put { value, .. } => {
                self.tombstones.remove(&place);
                self.registers.insert(place, value);
            }
            Change::Delete => {
                self.registers.remove(&place);
                self.tombstones.insert(place);
            }
            Change::None | Change::Expire(_) => {}
        }
    }

    fn run(&mut self, database: u8, key: &Key, command: &Command) -> Outcome {
        let place = (database, key.hash(), key.bytes().to_vec());
        let view = View {
            value: self.registers.get(&place).map(AsRef::as_ref),
            ttl: TimeToLive::Never,
            ends: None,
        };
        let clock = Clock { unix: Millis(1), seed: 1 };
        let interpreter = Interpreter { scripts: Some(scripts::ENGINE), ..Interpreter::default() };
        let applied = interpreter.apply(view, &command.body, clock);
        self.change(place, applied.change);
        Outcome::Reply(applied.reply)
    }

    /// Tombstones count like keys, and are told of only where this cannot tell them from keys, as
    /// of some of both.
    fn list(&mut self, database: u8, from_hash: u64, limit: usize) -> Outcome {
        self.listings += 1;
        let end = from_hash | (u64::MAX >> 8);
        let mut places: Vec<&(u8, u64, Vec<u8>)> = self
            .registers
            .keys()
            .chain(&self.tombstones)
            .filter(|(of, hash, _)| *of == database && (from_hash..=end).contains(hash))
            .collect();
        places.sort_unstable();
        let next_hash = places.get(limit).map(|(_, hash, _)| *hash);
        let (mut keys, mut undecided) = (Vec::new(), Vec::new());
        for place in places.into_iter().take(limit) {
            if self.prng.next_u64().is_multiple_of(self.undecided_of) {
                undecided.push(Key::at(place.1, &place.2));
            } else if self.registers.contains_key(place) {
                keys.push(Key::at(place.1, &place.2));
            }
        }
        Outcome::Listed { keys, undecided, next_hash }
    }

    /// Lets time pass without any timer.
    pub fn tick(&mut self, span: Nanos) {
        self.now += span;
    }

    /// The look at counters that the process takes several times a second.
    pub fn sample(&self) {
        self.node.clock.store(self.now.0, Relaxed);
        self.factory.sample(&self.node);
    }

    /// Lets time pass, and timers with it.
    pub fn pass(&mut self, connection: &mut Connection, span: Nanos) {
        let until = self.now + span;
        loop {
            let next = connection.wakes.iter().copied().min().filter(|at| *at <= until);
            let Some(at) = next else { break };
            let place = connection.wakes.iter().position(|wake| *wake == at).expect("it is there");
            connection.wakes.remove(place);
            self.now = at.max(self.now);
            self.step(connection, |session, cx| session.on_timer(cx));
            if !connection.untaken.is_empty() && !connection.session.is_full() {
                self.feed(connection);
            }
        }
        self.now = until;
    }

    /// The shell's part after a session asked for a step of all.
    pub fn wake(&mut self, connection: &mut Connection) {
        self.step(connection, |session, cx| session.on_timer(cx));
        if !connection.untaken.is_empty() && !connection.session.is_full() {
            self.feed(connection);
        }
        self.settle(connection);
    }

    /// Sends, lets all requests end, and takes the replies.
    pub fn say(&mut self, connection: &mut Connection, input: &[u8]) -> String {
        self.send(connection, input);
        self.settle(connection);
        String::from_utf8_lossy(&std::mem::take(&mut connection.said)).into_owned()
    }

    /// The reply to one line of words.
    pub fn ask(&mut self, connection: &mut Connection, line: &str) -> String {
        self.say(connection, format!("{line}\r\n").as_bytes())
    }
}

impl Connection {
    pub fn under_way(&self) -> usize {
        self.asks.len()
    }

    pub fn wants_close(&self) -> bool {
        self.session.wants_close()
    }

    pub fn is_gone(&self) -> bool {
        self.session.is_gone()
    }

    pub fn note_socket(&mut self, socket: Socket) {
        self.session.note_socket(&socket);
    }
}

/// A request as clients send it.
pub fn request(words: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    resp::encode::request(&mut out, words);
    out
}
