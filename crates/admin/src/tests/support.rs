//! A node to ask, and a client that asks.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base::{Millis, Nanos};
use node::config::{
    DatabaseConfig, DiskConfig, Durability, MemberAddress, NodeConfig, ScrubConfig,
};
use node::dev::LocalCluster;
use node::session::{Client, Session, SessionContext, SessionFactory, Token};
use node::status::{COMMAND_TIME_BOUNDS, CommandFacts, CommandReading};
use types::{Applied, Clock, Database, NodeId, Outcome, Update, View};

use crate::{Admin, AdminConfig};

/// Longer than anything takes on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A session factory whose clients are never heard.
struct Deaf;

impl SessionFactory for Deaf {
    fn accept(&self, _client: &Client) -> Box<dyn Session> {
        Box::new(Deaf)
    }

    fn too_many(&self) -> &'static [u8] {
        b""
    }
}

impl Session for Deaf {
    fn on_bytes(&mut self, input: &[u8], _cx: &mut SessionContext<'_>) -> usize {
        input.len()
    }

    fn on_outcome(&mut self, _token: Token, _outcome: Outcome, _cx: &mut SessionContext<'_>) {}

    fn wants_close(&self) -> bool {
        false
    }
}

impl Update for Deaf {
    fn apply(&self, _view: View<'_>, _body: &[u8], _clock: Clock) -> Applied {
        Applied::unchanged(types::Reply::Null)
    }
}

impl CommandFacts for Deaf {
    fn commands(&self) -> Vec<CommandReading> {
        let mut buckets = [3; COMMAND_TIME_BOUNDS.len()];
        buckets[..8].copy_from_slice(&[0, 0, 0, 0, 0, 0, 1, 2]);
        let time = Nanos::from_millis(1);
        vec![CommandReading { name: "get", calls: 4, failed: 1, rejected: 5, time, buckets }]
    }

    fn errors(&self) -> Vec<(String, u64)> {
        vec![("WRONGTYPE".into(), 1)]
    }
}

/// A node alone in its cluster, with a database of every durability and of every protocol.
pub struct Lone {
    cluster: LocalCluster,
    admin: Admin,
    dir: PathBuf,
}

impl Lone {
    pub fn start(config: AdminConfig) -> Lone {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("palimpsest-admin-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let update: Arc<dyn Update> = Arc::new(Deaf);
        let cluster = LocalCluster::start(vec![lone(dir.clone())], |_| Arc::new(Deaf), &update)
            .expect("the node starts");
        assert!(cluster.wait_ready(PATIENCE), "{:#?}", cluster.nodes()[0].status());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let admin = Admin::start(listener, config, cluster.nodes()[0].facts()).expect("it serves");
        Lone { cluster, admin, dir }
    }

    pub fn address(&self) -> SocketAddr {
        self.admin.address()
    }

    pub fn status(&self) -> node::status::NodeStatus {
        self.cluster.nodes()[0].status()
    }

    pub fn get(&self, path: &str, headers: &[&str]) -> Answer {
        get(self.address(), path, headers)
    }
}

impl Drop for Lone {
    fn drop(&mut self) {
        let _ = self.cluster.stop();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn lone(data_dir: PathBuf) -> NodeConfig {
    let protocols = node::registry::PROTOCOLS.iter().map(|one| one.name);
    let on_disk = protocols.clone().map(|protocol| (protocol, Durability::Disk));
    let others = [Durability::Volatile, Durability::Pmem];
    let first = protocols.take(1).flat_map(|protocol| others.map(|kind| (protocol, kind)));
    let pairs = on_disk.chain(first);
    let databases = pairs.enumerate().map(|(index, (protocol, durability))| DatabaseConfig {
        database: Database(index as u8),
        protocol,
        durability,
        replicas: None,
    });
    let address = "node-1".to_string();
    NodeConfig {
        id: NodeId(1),
        listen: "127.0.0.1:0".into(),
        sentinel_listen: None,
        peer_listen: address.clone(),
        members: vec![MemberAddress { node: NodeId(1), client: address.clone(), peer: address }],
        secret: None,
        data_dir,
        databases: databases.collect(),
        workers: 2,
        request_timeout: Millis(1_500),
        max_value_size: types::limits::VALUE_LEN_DEFAULT,
        once_window: types::limits::ONCE_WINDOW_DEFAULT,
        cache_memory: 64 << 20,
        disk: DiskConfig::default(),
        clients_max: 100,
        clients_accepted: usize::MAX,
        scrub: ScrubConfig::DEFAULT,
        supported: types::features::Supported::HERE,
        announced: Default::default(),
    }
}

pub fn open() -> AdminConfig {
    AdminConfig {
        password: None,
        metrics_password: None,
        metrics_loopback: false,
        version: "1.2.3",
        commands: Arc::new(Deaf),
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub head: String,
    pub body: String,
}

pub fn get(address: SocketAddr, path: &str, headers: &[&str]) -> Answer {
    let mut stream = connect(address);
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n")
        .expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("it is HTTP");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("it is HTTP");
    Answer { code, head: head.to_ascii_lowercase(), body: body.to_string() }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    stream
}
