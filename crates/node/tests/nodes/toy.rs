//! A language of lines: `set KEY VALUE`, `get KEY`, `add KEY NUMBER`, `quit`, `panic`. Replies come
//! in order, one line each.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use base::Millis;
use bytes::Bytes;
use node::config::{DatabaseConfig, Durability, MemberAddress, NodeConfig};
use node::session::{Client, Session, SessionContext, SessionFactory, Token};
use types::{
    Access, Applied, Change, Clock, Command, Database, ExpiryChange, NodeId, Outcome, Reply,
    Update, View,
};

/// How long a test waits for an expected event.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Toy;

impl SessionFactory for Toy {
    fn accept(&self, _client: &Client) -> Box<dyn Session> {
        Box::new(Lines::default())
    }

    fn too_many(&self) -> &'static [u8] {
        b"too many\n"
    }
}

#[derive(Default)]
struct Lines {
    asked: u64,
    said: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
    quits: bool,
}

impl Session for Lines {
    fn on_bytes(&mut self, input: &[u8], cx: &mut SessionContext<'_>) -> usize {
        let mut taken = 0;
        while cx.has_room()
            && let Some(end) = input[taken..].iter().position(|&byte| byte == b'\n')
        {
            if !input[taken..].starts_with(b"get") && !cx.takes_writes() {
                cx.hold_write();
                break;
            }
            self.on_line(&input[taken..taken + end], cx);
            taken += end + 1;
        }
        taken
    }

    fn on_outcome(&mut self, token: Token, outcome: Outcome, cx: &mut SessionContext<'_>) {
        let text = match outcome {
            Outcome::Reply(Reply::Bulk(bytes)) => bytes.to_vec(),
            other => format!("{other:?}").into_bytes(),
        };
        self.waiting.insert(token.0, text);
        while let Some(line) = self.waiting.remove(&self.said) {
            cx.out.extend_from_slice(&line);
            cx.out.push(b'\n');
            self.said += 1;
        }
    }

    fn wants_close(&self) -> bool {
        self.quits && self.said == self.asked
    }
}

impl Lines {
    fn on_line(&mut self, line: &[u8], cx: &mut SessionContext<'_>) {
        let text = String::from_utf8_lossy(line).into_owned();
        let mut words = text.split(' ');
        let access = match words.next() {
            Some("get") => Access::Read,
            Some("set") => Access::Write,
            Some("add") => Access::Update,
            Some("panic") => panic!("a session that panics"),
            _ => {
                self.quits = true;
                return;
            }
        };
        let token = Token(self.asked);
        self.asked += 1;
        let Some(positions) = cx.positions() else {
            return self.on_outcome(token, Outcome::Loading, cx);
        };
        let key = positions.key(words.next().unwrap_or_default().as_bytes());
        let command = Command::new(access, Bytes::copy_from_slice(line));
        cx.run(token, Database(0), key, command);
    }
}

pub struct ToyUpdate;

impl Update for ToyUpdate {
    fn apply(&self, view: View<'_>, body: &[u8], _clock: Clock) -> Applied {
        let text = String::from_utf8_lossy(body).into_owned();
        let words: Vec<&str> = text.split(' ').collect();
        let old = view.value.map(Bytes::copy_from_slice);
        let put = |value: Bytes, reply: Bytes| Applied {
            change: Change::Put { value, expiry: ExpiryChange::Keep },
            reply: Reply::Bulk(reply),
        };
        match words[..] {
            ["set", _, value] => {
                put(Bytes::copy_from_slice(value.as_bytes()), Bytes::from_static(b"ok"))
            }
            ["add", _, by] => {
                let number =
                    |text: &[u8]| String::from_utf8_lossy(text).parse::<i64>().unwrap_or(0);
                let sum = old.as_deref().map_or(0, number) + number(by.as_bytes());
                let sum = Bytes::from(sum.to_string());
                put(sum.clone(), sum)
            }
            _ => Applied::unchanged(Reply::bulk(old.unwrap_or(Bytes::from_static(b"-")))),
        }
    }
}

/// A directory that is removed with the test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("palimpsest-nodes-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a scratch directory can be made");
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn config(scratch: &Scratch, id: u16, peers: &[String], durability: Durability) -> NodeConfig {
    let member = |(at, peer): (usize, &String)| MemberAddress {
        node: NodeId(at as u16 + 1),
        client: peer.clone(),
        peer: peer.clone(),
    };
    NodeConfig {
        id: NodeId(id),
        listen: "127.0.0.1:0".into(),
        sentinel_listen: None,
        announced: node::config::Announced::default(),
        peer_listen: peers[usize::from(id) - 1].clone(),
        members: peers.iter().enumerate().map(member).collect(),
        secret: Some(b"toy".to_vec()),
        data_dir: scratch.path().join(id.to_string()),
        databases: vec![DatabaseConfig {
            database: Database(0),
            protocol: "rmwpaxos",
            durability,
            replicas: None,
        }],
        workers: 2,
        request_timeout: Millis(1_500),
        max_value_size: types::limits::VALUE_LEN_DEFAULT,
        once_window: types::limits::ONCE_WINDOW_DEFAULT,
        cache_memory: 64 << 20,
        disk: node::config::DiskConfig::default(),
        clients_max: 100,
        clients_accepted: usize::MAX,
        scrub: node::config::ScrubConfig::OFF,
        supported: types::features::Supported::HERE,
    }
}

/// Below the range of ports for outgoing connections. Otherwise a connection of another test could
/// take a port before its node starts.
const PORTS: std::ops::Range<u16> = 10_000..12_000;

/// Addresses for `count` nodes that were free a moment ago, each given once.
pub fn free_addresses(count: usize) -> Vec<String> {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let span = PORTS.end - PORTS.start;
    let offset = (std::process::id() * 61 % u32::from(span)) as u16;
    let ports = std::iter::repeat_with(|| GIVEN.fetch_add(1, Ordering::Relaxed))
        .take_while(|&given| given < span)
        .map(|given| PORTS.start + (offset + given) % span);
    let addresses = ports.map(|port| format!("127.0.0.1:{port}"));
    let free: Vec<String> =
        addresses.filter(|address| TcpListener::bind(address).is_ok()).take(count).collect();
    assert_eq!(free.len(), count, "ports from {PORTS:?} are free");
    free
}

pub fn update() -> Arc<dyn Update> {
    Arc::new(ToyUpdate)
}

/// A client that waits for each answer.
pub struct Caller {
    stream: BufReader<TcpStream>,
}

impl Caller {
    pub fn new(address: SocketAddr) -> Caller {
        let stream = TcpStream::connect(address).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
        Caller { stream: BufReader::new(stream) }
    }

    pub fn send(&mut self, lines: &str) {
        self.stream.get_mut().write_all(lines.as_bytes()).expect("the node reads");
    }

    /// The next line; empty at the end of the conversation.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the node answers in time");
        line.trim_end().to_string()
    }

    pub fn call(&mut self, line: &str) -> String {
        self.send(&format!("{line}\n"));
        self.line()
    }

    /// Calls until the answer is a value: a node that has just lost a peer may need a moment.
    pub fn settle(&mut self, line: &str) -> String {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            let answer = self.call(line);
            let is_trouble = ["Unknown", "NoQuorum", "Loading"].contains(&answer.as_str());
            if !is_trouble || std::time::Instant::now() > end {
                return answer;
            }
        }
    }
}
