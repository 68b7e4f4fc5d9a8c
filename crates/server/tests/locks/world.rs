//! Three nodes in this process. A client of the port for Sentinel clients plants locks instead.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use base::Millis;
use bytes::Bytes;
use commands::Interpreter;
use node::config::{DatabaseConfig, Durability, MemberAddress, NodeConfig};
use node::dev::LocalCluster;
use node::session::{Client, ClientPort, Session, SessionContext, SessionFactory, Token};
use node::status::CommandFacts;
use server::{RespSessionFactory, ServerConfig};
use transactions::record::{self, Entry, Record};
use types::limits::{ONCE_WINDOW_DEFAULT, VALUE_LEN_DEFAULT};
use types::{
    Access, Change, Command, Database, ExpiryChange, Incarnation, Key, NodeId, Outcome, Shard,
    Take, Then, TimeToLive, Txid, Update,
};

pub const PATIENCE: Duration = Duration::from_secs(30);

/// A transaction of a process that is gone: each node has seen a later start of it.
fn dead(counter: u64) -> Txid {
    Txid { start: 1, node: NodeId(3), incarnation: Incarnation(0), counter: counter * 256 }
}

/// RESP for clients of the usual port, lines about locks for the others.
struct Factory(Arc<RespSessionFactory>);

impl SessionFactory for Factory {
    fn accept(&self, client: &Client) -> Box<dyn Session> {
        match client.port {
            ClientPort::Keys => self.0.accept(client),
            ClientPort::Sentinel => Box::new(Planter::default()),
        }
    }

    fn too_many(&self) -> &'static [u8] {
        self.0.too_many()
    }

    fn commands(&self) -> Option<Arc<dyn CommandFacts>> {
        self.0.commands()
    }
}

/// Obeys `records`, `take KEY N`, `look KEY`, `abort KEY N`, `delete KEY N VERSION` and `copy KEY N
/// VERSION FROM`, one line at a time, for transaction `N` of a dead process.
#[derive(Default)]
struct Planter {
    asked: u64,
    /// A commit that waits for the value that it is to install.
    copies: BTreeMap<u64, (Key, u64, u64)>,
    /// Shards whose records are still to be counted, and the records so far.
    listing: (usize, usize),
}

impl Planter {
    fn run(&mut self, key: &Key, then: Then, cx: &mut SessionContext<'_>) -> u64 {
        let access = if matches!(then, Then::Take(_)) { Access::Update } else { Access::Read };
        self.asked += 1;
        let command = Command::holding(access, then);
        cx.run(Token(self.asked), Database(0), key.clone(), command);
        self.asked
    }

    fn decide(&mut self, key: &Key, counter: u64, record: &Record, cx: &mut SessionContext<'_>) {
        self.asked += 1;
        let place = record::key(key.shard(), dead(counter));
        cx.run(Token(self.asked), Database(0).hidden(), place, record::decide(record));
    }

    fn on_line(&mut self, line: &str, cx: &mut SessionContext<'_>) {
        let positions = cx.positions().expect("the node has formed");
        let words: Vec<&str> = line.split_whitespace().collect();
        if words == ["records"] {
            self.listing = (256, 0);
            for shard in 0..=255 {
                cx.list(Token(0), Database(0).hidden(), Shard(shard).first_hash(), 4_096);
            }
            return;
        }
        let key = positions.key(words[1].as_bytes());
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        match words[0] {
            "look" => _ = self.run(&key, Then::Look { waits: false }, cx),
            "take" => {
                let (txid, place) = (dead(number(2)), record::key(key.shard(), dead(number(2))));
                let record = Bytes::copy_from_slice(place.bytes());
                self.run(&key, Then::Take(Take { txid, record, generation: 0, once: None }), cx);
            }
            "abort" => self.decide(&key, number(2), &Record::Aborted, cx),
            "delete" => {
                let entry = Entry {
                    key: key.clone(),
                    version: number(3),
                    change: Change::Delete,
                    once: None,
                };
                self.decide(&key, number(2), &Record::Committed(vec![entry]), cx);
            }
            "copy" => {
                let from = positions.key(words[4].as_bytes());
                let token = self.run(&from, Then::Look { waits: false }, cx);
                self.copies.insert(token, (key, number(2), number(3)));
            }
            other => panic!("{other} is no word of a planter"),
        }
    }
}

impl Session for Planter {
    fn on_bytes(&mut self, input: &[u8], cx: &mut SessionContext<'_>) -> usize {
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else { return 0 };
        self.on_line(&String::from_utf8_lossy(&input[..end]), cx);
        end + 1
    }

    fn on_outcome(&mut self, token: Token, outcome: Outcome, cx: &mut SessionContext<'_>) {
        if let Some((key, counter, version)) = self.copies.remove(&token.0) {
            let Outcome::Held(found) = outcome else { panic!("no value: {outcome:?}") };
            let value = found.value.expect("a value to copy");
            let expiry = ExpiryChange::Set(TimeToLive::Never);
            let entry = Entry {
                key: key.clone(),
                version,
                change: Change::Put { value, expiry },
                once: None,
            };
            return self.decide(&key, counter, &Record::Committed(vec![entry]), cx);
        }
        if let Outcome::Listed { keys, undecided, .. } = &outcome {
            self.listing.0 -= 1;
            self.listing.1 += keys.len() + undecided.len();
            if self.listing.0 > 0 {
                return;
            }
        }
        let text = match outcome {
            Outcome::Listed { .. } => self.listing.1.to_string(),
            Outcome::Held(found) => format!("held {}", found.version),
            Outcome::Locked(locked) => format!("locked {}", locked.lock.version),
            Outcome::Reply(_) => "done".to_owned(),
            other => format!("{other:?}"),
        };
        cx.out.extend_from_slice(format!("{text}\n").as_bytes());
    }

    fn wants_close(&self) -> bool {
        false
    }
}

pub struct World {
    pub cluster: LocalCluster,
    scratch: PathBuf,
}

impl World {
    pub fn start(durability: Durability) -> World {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let name = format!("palimpsest-locks-{}-{number}", std::process::id());
        let scratch = std::env::temp_dir().join(name);
        let member = |id: u16| MemberAddress {
            node: NodeId(id),
            client: format!("node-{id}"),
            peer: format!("node-{id}"),
        };
        let config = |id: u16| NodeConfig {
            id: NodeId(id),
            listen: "127.0.0.1:0".into(),
            sentinel_listen: Some("127.0.0.1:0".into()),
            announced: node::config::Announced::default(),
            peer_listen: format!("node-{id}"),
            members: (1..=3).map(member).collect(),
            secret: None,
            data_dir: scratch.join(id.to_string()),
            databases: (0..2).map(|index| database(index, durability)).collect(),
            workers: 2,
            request_timeout: Millis(10_000),
            max_value_size: VALUE_LEN_DEFAULT,
            once_window: ONCE_WINDOW_DEFAULT,
            cache_memory: 64 << 20,
            disk: node::config::DiskConfig::default(),
            clients_max: 100,
            clients_accepted: usize::MAX,
            scrub: node::config::ScrubConfig::OFF,
            supported: types::features::Supported::HERE,
        };
        let factory = |_: &NodeConfig| {
            let config = ServerConfig {
                password: None,
                max_value_size: VALUE_LEN_DEFAULT,
                once_window: ONCE_WINDOW_DEFAULT,
                version: "0",
                sentinel_name: server::SENTINEL_NAME_DEFAULT.into(),
            };
            Arc::new(Factory(RespSessionFactory::new(config))) as Arc<dyn SessionFactory>
        };
        let update: Arc<dyn Update> =
            Arc::new(Interpreter { max_value_len: VALUE_LEN_DEFAULT, scripts: None });
        let cluster = LocalCluster::start((1..=3).map(config).collect(), factory, &update);
        let cluster = cluster.expect("it starts");
        assert!(cluster.wait_ready(PATIENCE), "{:#?}", cluster.nodes()[0].status());
        World { cluster, scratch }
    }

    pub fn client(&self, node: usize) -> Resp {
        Resp::new(&self.cluster.nodes()[node].status().listen.to_string())
    }

    pub fn planter(&self, node: usize) -> Lines {
        Lines::new(&self.cluster.nodes()[node].status().sentinel.expect("it listens").to_string())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.cluster.stop();
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

fn database(index: u8, durability: Durability) -> DatabaseConfig {
    DatabaseConfig { database: Database(index), protocol: "rmwpaxos", durability, replicas: None }
}

fn connect(address: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("the node listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    BufReader::new(stream)
}

/// A client of a planter.
pub struct Lines(BufReader<TcpStream>);

impl Lines {
    fn new(address: &str) -> Lines {
        Lines(connect(address))
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).expect("it is taken");
        let mut answer = String::new();
        self.0.read_line(&mut answer).expect("it is answered");
        answer.trim_end().to_owned()
    }

    /// Takes the key for transaction `number`. Returns the version of the lock.
    pub fn take(&mut self, key: &str, number: u64) -> u64 {
        let answer = self.ask(&format!("take {key} {number}"));
        let version = answer.strip_prefix("held ").and_then(|text| text.parse().ok());
        version.unwrap_or_else(|| panic!("{key} is not taken: {answer}"))
    }

    pub fn is_locked(&mut self, key: &str) -> bool {
        self.ask(&format!("look {key}")).starts_with("locked")
    }
}

/// A client of the usual port.
pub struct Resp(BufReader<TcpStream>);

impl Resp {
    fn new(address: &str) -> Resp {
        Resp(connect(address))
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.reply()
    }

    pub fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).expect("it is taken");
    }

    /// A reply as text: elements of an array are sorted and in brackets.
    pub fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it is answered");
        let line = line.trim_end();
        match (line.as_bytes()[0], line[1..].parse::<i64>()) {
            (b'$' | b'*', Ok(-1)) => "nil".to_owned(),
            (b'$', Ok(len)) => {
                let mut bytes = vec![0; len as usize + 2];
                self.0.read_exact(&mut bytes).expect("it is whole");
                String::from_utf8_lossy(&bytes[..len as usize]).into_owned()
            }
            (b'*', Ok(count)) => {
                let mut parts: Vec<String> = (0..count).map(|_| self.reply()).collect();
                parts.sort();
                format!("[{}]", parts.join(" "))
            }
            _ => line[1..].to_owned(),
        }
    }

    /// Asks until the answer is this one.
    #[track_caller]
    pub fn ask_until(&mut self, line: &str, expected: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(line);
            if answer == expected {
                return;
            }
            assert!(Instant::now() < end, "{line}: {answer}, not {expected}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
