//! Clients over real sockets, without a worker. The test answers their requests.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use bytes::Bytes;
use mio::{Events, Poll};
use types::{Access, Command, Database, Key, NodeId};

use super::super::clock::Clocks;
use super::super::mailbox::Mailbox;
use super::super::node_status::{Listens, Membership};
use super::*;
use crate::config::{DatabaseConfig, DiskConfig, Durability, NodeConfig, ScrubConfig};
use crate::formation::{Counters, Durable, Standing};
use crate::session::ClientPort;
use crate::status::Phase;

/// Writes of the longest command of a [`Toy`].
const LONG: usize = 300;

/// A session that reads `r` as a read, `w` as a write and `L` as a command of many writes. No
/// request begins before an `L` has ended. Answers each write and read with a dot.
#[derive(Default)]
struct Toy {
    asked: u64,
    outstanding: usize,
    is_long: bool,
}

struct ToySessionFactory;

impl SessionFactory for ToySessionFactory {
    fn accept(&self, _client: &Client) -> Box<dyn Session> {
        Box::new(Toy::default())
    }

    fn too_many(&self) -> &'static [u8] {
        b""
    }
}

impl Toy {
    fn ask(&mut self, access: Access, cx: &mut SessionContext<'_>) {
        let key = Key::new(&self.asked.to_le_bytes());
        cx.run(session::Token(self.asked), Database(0), key, Command::new(access, Bytes::new()));
        self.asked += 1;
        self.outstanding += 1;
    }
}

impl Session for Toy {
    fn on_bytes(&mut self, input: &[u8], cx: &mut SessionContext<'_>) -> usize {
        for (at, &byte) in input.iter().enumerate() {
            if !cx.has_room() || self.is_full() {
                return at;
            }
            if byte != b'r' && cx.shortage() == Shortage::OfWrites {
                cx.out.push(b'-');
                continue;
            }
            if byte != b'r' && !cx.takes_writes() {
                cx.hold_write();
                return at;
            }
            match byte {
                b'r' => self.ask(Access::Read, cx),
                b'w' => self.ask(Access::Write, cx),
                _ => {
                    self.is_long = true;
                    (0..LONG).for_each(|_| self.ask(Access::Write, cx));
                }
            }
        }
        input.len()
    }

    fn on_outcome(&mut self, _: session::Token, _: Outcome, cx: &mut SessionContext<'_>) {
        self.outstanding -= 1;
        self.is_long &= self.outstanding > 0;
        cx.out.push(b'.');
    }

    fn is_full(&self) -> bool {
        self.is_long
    }

    fn wants_close(&self) -> bool {
        false
    }
}

struct Rig {
    poll: Poll,
    clients: Clients,
    peers: Vec<std::net::TcpStream>,
    inputs: Vec<Input>,
    scratch: Vec<u8>,
}

fn node_status(poll: &Poll) -> SharedNodeStatus {
    let database = DatabaseConfig {
        database: Database(0),
        protocol: "rmwpaxos",
        durability: Durability::Volatile,
        replicas: None,
    };
    let config = NodeConfig {
        id: NodeId(1),
        listen: String::new(),
        sentinel_listen: None,
        announced: crate::config::Announced::default(),
        peer_listen: String::new(),
        members: Vec::new(),
        secret: None,
        data_dir: "data".into(),
        databases: vec![database],
        workers: 1,
        request_timeout: Millis(1_000),
        max_value_size: types::limits::VALUE_LEN_DEFAULT,
        once_window: types::limits::ONCE_WINDOW_DEFAULT,
        cache_memory: 1 << 20,
        disk: DiskConfig::default(),
        clients_max: 1_000,
        clients_accepted: usize::MAX,
        scrub: ScrubConfig::OFF,
        supported: types::features::Supported::HERE,
    };
    let membership = Membership {
        groups: Vec::new(),
        durable: Durable {
            running: None,
            generations: BTreeMap::new(),
            standing: Standing::Empty,
            mine: Counters::default(),
            members: Vec::new(),
            databases: Default::default(),
            limits: BTreeMap::new(),
            known: BTreeMap::new(),
        },
        cluster: None,
        phase: Phase::Formed,
        linked: Default::default(),
        recovering: Default::default(),
        refused: Default::default(),
        agreed: Default::default(),
        stats: Stats::default(),
    };
    let mailbox = Mailbox::new(poll.registry(), Token(0)).expect("an eventfd");
    let other = Poll::new().expect("an epoll");
    let control = Arc::new(Mailbox::new(other.registry(), Token(0)).expect("an eventfd"));
    let clients = "127.0.0.1:1".parse().expect("an address");
    let listens = Listens { clients, sentinel: None };
    SharedNodeStatus::new(
        Arc::new(config),
        Clocks::new(),
        listens,
        vec![Arc::new(mailbox)],
        control,
        membership,
    )
}

impl Rig {
    fn new(clients: usize) -> Rig {
        let poll = Poll::new().expect("an epoll");
        let node_status = Arc::new(node_status(&poll));
        let mut rig = Rig {
            clients: Clients::new(0, 1 << 20, node_status, Arc::new(ToySessionFactory)),
            poll,
            peers: Vec::new(),
            inputs: Vec::new(),
            scratch: vec![0; 64 << 10],
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        for id in 0..clients {
            let peer = std::net::TcpStream::connect(address).expect("it listens");
            let (stream, from) = listener.accept().expect("it was connected");
            stream.set_nonblocking(true).expect("a socket");
            peer.set_nonblocking(true).expect("a socket");
            let id = SessionId(id as u64 + 1);
            let client =
                Client { id, peer: from, local: address, worker: 0, port: ClientPort::Keys };
            rig.clients.add(rig.poll.registry(), TcpStream::from_std(stream), &client);
            rig.peers.push(peer);
        }
        rig
    }

    fn say(&mut self, peer: usize, bytes: &[u8]) {
        self.peers[peer].write_all(bytes).expect("the socket has room");
    }

    /// Reads the sockets, and lets sessions make about `room` more requests.
    fn read(&mut self, room: usize) -> usize {
        let mut events = Events::with_capacity(256);
        self.poll.poll(&mut events, Some(Duration::ZERO)).expect("it polls");
        events
            .iter()
            .filter(|event| event.token() != Token(0))
            .for_each(|it| self.clients.on_event(it));
        let before = self.inputs.len();
        let mut routes = Routes { me: 0, inputs: &mut self.inputs, mail: &mut [Vec::new()] };
        self.clients.read(&mut self.scratch, room, &mut routes);
        self.inputs.len() - before
    }

    /// Ends everything that is under way.
    fn answer(&mut self) {
        let mut routes = Routes { me: 0, inputs: &mut Vec::new(), mail: &mut [Vec::new()] };
        for input in std::mem::take(&mut self.inputs) {
            let Input::Request { tag, .. } = input else { panic!("only requests are asked for") };
            self.clients.on_outcome(tag, Outcome::NoQuorum, &mut routes);
        }
        self.clients.resume(&mut routes);
        self.inputs = std::mem::take(routes.inputs);
        self.clients.flush(self.poll.registry());
    }

    /// Answers that this client has got since it was asked last.
    fn heard(&mut self, peer: usize) -> usize {
        self.peers[peer].read(&mut [0; 1 << 16]).unwrap_or(0)
    }

    /// Goes on until so many clients wait to write.
    fn until_held(&mut self, count: usize) {
        while self.clients.held.len() < count {
            self.read(1 << 16);
            self.clients.flush(self.poll.registry());
        }
    }
}

#[test]
fn those_who_read_do_not_wait_with_those_who_write() {
    let mut rig = Rig::new(3);
    rig.clients.writes_max = 2;
    rig.say(0, b"rwwwr");
    rig.say(1, b"ww");
    rig.until_held(2);
    rig.say(2, b"rrr");
    let mut heard = 0;
    while heard < 3 {
        rig.read(1 << 16);
        rig.inputs.retain(|input| {
            let is_write =
                matches!(input, Input::Request { command, .. } if command.access == Access::Write);
            if !is_write && let Input::Request { tag, .. } = input {
                let mut routes = Routes { me: 0, inputs: &mut Vec::new(), mail: &mut [Vec::new()] };
                rig.clients.on_outcome(*tag, Outcome::NoQuorum, &mut routes);
            }
            is_write
        });
        rig.clients.flush(rig.poll.registry());
        heard += rig.heard(2);
    }
    assert_eq!((rig.clients.writes, rig.clients.held.len(), rig.inputs.len()), (2, 2, 2));
    assert!(!rig.clients.has_work(), "there is nothing to do before a write ends");
    let (mut first, mut second) = (rig.heard(0), 0);
    while (first, second) != (5, 2) {
        rig.answer();
        rig.read(1 << 16);
        (first, second) = (first + rig.heard(0), second + rig.heard(1));
    }
    assert_eq!((rig.clients.writes, rig.clients.held.len()), (0, 0));
}

#[test]
fn those_who_wait_to_write_are_let_in_as_far_as_there_is_room() {
    let mut rig = Rig::new(20);
    rig.clients.writes_max = 0;
    (0..20).for_each(|peer| rig.say(peer, &[b'w'; 100]));
    rig.until_held(20);
    rig.clients.writes_max = usize::MAX;
    assert_eq!(rig.read(0), 0);
    assert!((150..300).contains(&rig.read(150)), "a session begins what it has at once");
}

#[test]
fn those_who_wait_to_write_hear_when_nobody_may_for_want_of_room() {
    let mut rig = Rig::new(3);
    rig.clients.writes_max = 0;
    (0..3).for_each(|peer| rig.say(peer, b"ww"));
    rig.until_held(3);
    assert!(!rig.clients.has_work());
    rig.clients.shortage = Shortage::OfWrites;
    assert!(rig.clients.has_work());
    while rig.clients.has_work() {
        rig.read(1 << 16);
        rig.clients.flush(rig.poll.registry());
    }
    assert_eq!((0..3).map(|peer| rig.heard(peer)).sum::<usize>(), 6);
}

#[test]
fn commands_of_many_writes_do_not_keep_others_from_their_turn() {
    let mut rig = Rig::new(2);
    rig.clients.writes_max = 32;
    rig.say(0, &[b'L'; 50]);
    while rig.read(1 << 16) == 0 {}
    rig.say(1, b"w");
    let (mut long, mut short) = (0, 0);
    while short == 0 {
        rig.read(1 << 16);
        rig.answer();
        (long, short) = (long + rig.heard(0), rig.heard(1));
        assert!(long < 40 * LONG, "one waits while another's commands follow each other");
    }
}

#[test]
fn what_is_unread_stays_and_what_was_written_gives_its_memory_back() {
    let said: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let (mut out, mut written, mut read) = (said.clone(), 0, Vec::new());
    let capacity = out.capacity();
    while !out.is_empty() {
        let end = out.len().min(written + 5_000);
        read.extend_from_slice(&out[written..end]);
        written = end;
        forget_written(&mut out, &mut written);
        assert!(out.capacity() <= capacity);
        assert!(out.capacity() <= KEPT_CAPACITY.max(4 * 2 * (said.len() - read.len())));
    }
    assert!(read == said, "a byte is missing or out of order");
    assert_eq!(written, 0);
    assert!(out.capacity() <= KEPT_CAPACITY);
}
