//! Clients that work during the attack, and record their calls and replies.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base::Prng;
use bench::client::{Client, Value};
use checker::Outcome;

use crate::calls::{self, Answer, Call, KeyKind, KeyMemory, Mix, TestKey};
use crate::histories::RecordedCall;

/// A later reply is an unknown outcome. Longer than any node looks for a quorum.
const REPLY_MAX: Duration = Duration::from_secs(4);
/// Pause between calls of a client that writes to one node, and of one that roams.
const WRITER_PACE: Duration = Duration::from_millis(4);
const ROAMER_PACE: Duration = Duration::from_millis(9);
const RECONNECT_PACE: Duration = Duration::from_millis(20);
const ROAMERS_PER_NODE: usize = 2;
/// A longer history would not be checked in time, so clients stop here.
const OPS_MAX: usize = 2_000_000;

/// Records all calls of clients.
pub struct Recorder {
    addresses: Vec<SocketAddr>,
    mix: Mix,
    start: Instant,
    ops: Mutex<Vec<RecordedCall>>,
    /// Replies that no correct node gives.
    broken: Mutex<Vec<String>>,
    /// When each node last acknowledged a write.
    acknowledged: Vec<AtomicU64>,
    generation: AtomicU32,
    tokens: AtomicU64,
    clients: AtomicU64,
    is_over: AtomicBool,
}

/// Ends the clients when it is dropped, also by a panic.
struct OverOnDrop<'a>(&'a AtomicBool);

impl Drop for OverOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Recorder {
    pub fn new(addresses: Vec<SocketAddr>, mix: Mix) -> Recorder {
        Recorder {
            acknowledged: addresses.iter().map(|_| AtomicU64::new(0)).collect(),
            addresses,
            mix,
            start: Instant::now(),
            ops: Mutex::default(),
            broken: Mutex::default(),
            generation: AtomicU32::new(1),
            tokens: AtomicU64::new(1),
            clients: AtomicU64::new(1),
            is_over: AtomicBool::new(false),
        }
    }

    /// Runs `body` while clients work, then ends them.
    pub fn during<T>(&self, seed: u64, body: impl FnOnce() -> T) -> T {
        self.is_over.store(false, Ordering::Relaxed);
        let mut rng = Prng::new(seed);
        std::thread::scope(|scope| {
            let over = OverOnDrop(&self.is_over);
            for node in 0..self.addresses.len() {
                let mut writer = LoadClient::new(self, rng.fork(), Some(node));
                scope.spawn(move || writer.work());
                for _ in 0..ROAMERS_PER_NODE {
                    let mut roamer = LoadClient::new(self, rng.fork(), None);
                    scope.spawn(move || roamer.work());
                }
            }
            let result = body();
            drop(over);
            result
        })
    }

    /// Nanoseconds since the recording began.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("a run is shorter than 500 years")
    }

    /// Moves clients to new keys; they return to older ones only sometimes.
    pub fn next_generation(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// The first node that has acknowledged no write since `from`, if there is one.
    pub fn silent_since(&self, from: u64) -> Option<usize> {
        self.acknowledged.iter().position(|last| last.load(Ordering::Relaxed) < from)
    }

    /// All calls so far.
    pub fn ops(&self) -> MutexGuard<'_, Vec<RecordedCall>> {
        self.ops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replies that no correct node gives.
    pub fn broken(&self) -> Vec<String> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All keys that were ever worked on.
    pub fn keys(&self) -> BTreeSet<TestKey> {
        self.ops().iter().map(|op| op.key).collect()
    }

    /// A client of one node that makes the given calls.
    pub fn client(&self, node: usize) -> Asker<'_> {
        Asker { recorder: self, node, id: self.new_client(), connection: None }
    }

    pub fn new_token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    fn new_client(&self) -> u64 {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    fn note_broken(&self, finding: String) {
        const BROKEN_MAX: usize = 100;
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        if broken.len() < BROKEN_MAX {
            broken.push(finding);
        }
    }
}

/// A connection to one node, under a new client name after every unknown outcome.
pub struct Asker<'a> {
    recorder: &'a Recorder,
    node: usize,
    id: u64,
    connection: Option<Client>,
}

impl Asker<'_> {
    fn connect(&self) -> Option<Client> {
        let mut client = Client::connect(self.recorder.addresses[self.node], REPLY_MAX).ok()?;
        if self.recorder.mix == Mix::Ordered {
            let reply = client.ask(&[b"CLIENT", b"CONSISTENCY", b"LINEARIZABLE"]).ok()?;
            return (reply == Value::ok()).then_some(client);
        }
        Some(client)
    }

    /// Makes and records a call; `None` when the node could not be reached.
    pub fn ask(&mut self, key: TestKey, call: &Call) -> Option<Outcome<Answer>> {
        let recorder = self.recorder;
        let mut client = match self.connection.take() {
            Some(client) => client,
            None => self.connect()?,
        };
        // Read the clocks in this order: a deadline by the wall clock then lies no earlier than
        // recorded.
        let invoked = recorder.now();
        let words = calls::words(key, call, (recorder.mix == Mix::All).then(wall_ms));
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let reply = client.ask(&words);
        let done = recorder.now();
        let outcome = match &reply {
            Ok(reply) => calls::outcome(key.kind, call, reply).unwrap_or_else(|finding| {
                recorder.note_broken(format!("node {}: {}: {finding}", self.node + 1, key.name()));
                Outcome::Unknown
            }),
            Err(_) => Outcome::Unknown,
        };
        let (client_id, call) = (self.id, call.clone());
        if reply.is_ok() {
            self.connection = Some(client);
        }
        if outcome == Outcome::Unknown {
            self.id = recorder.new_client();
        }
        let node = self.node;
        let op = RecordedCall {
            client: client_id,
            node,
            key,
            call,
            invoked,
            done,
            outcome: outcome.clone(),
        };
        if op.is_acknowledged_write() {
            recorder.acknowledged[node].fetch_max(done, Ordering::Relaxed);
        }
        recorder.ops().push(op);
        Some(outcome)
    }
}

/// The time of day in milliseconds.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

struct LoadClient<'a> {
    recorder: &'a Recorder,
    rng: Prng,
    asker: Asker<'a>,
    /// Stays with its node and only writes.
    is_writer: bool,
    memories: BTreeMap<TestKey, KeyMemory>,
}

impl<'a> LoadClient<'a> {
    fn new(recorder: &'a Recorder, mut rng: Prng, home: Option<usize>) -> LoadClient<'a> {
        let anywhere = rng.below(recorder.addresses.len() as u64) as usize;
        let asker = recorder.client(home.unwrap_or(anywhere));
        LoadClient { recorder, rng, asker, is_writer: home.is_some(), memories: BTreeMap::new() }
    }

    fn work(&mut self) {
        while !self.recorder.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(if self.is_writer { WRITER_PACE } else { ROAMER_PACE });
            if !self.is_writer && self.rng.chance(0.03) {
                let node = self.rng.below(self.recorder.addresses.len() as u64) as usize;
                self.asker = self.recorder.client(node);
            }
            if self.recorder.ops().len() >= OPS_MAX {
                continue;
            }
            if !self.step() {
                std::thread::sleep(RECONNECT_PACE);
            }
        }
    }

    /// Makes one call; false when the node could not be reached.
    fn step(&mut self) -> bool {
        let generation = self.recorder.generation.load(Ordering::Relaxed);
        let key = self.draw_key(generation);
        let token = self.recorder.new_token();
        let call = match self.is_writer {
            true => calls::draw_write(&mut self.rng, key.kind, token),
            false if self.recorder.mix == Mix::Plain => calls::draw_plain(&mut self.rng, token),
            false => {
                let memory = self.memories.entry(key).or_default();
                calls::draw(&mut self.rng, key.kind, token, memory)
            }
        };
        let Some(outcome) = self.asker.ask(key, &call) else { return false };
        if let Outcome::Returned(reply) = outcome {
            self.memories.entry(key).or_default().note(&call, &reply);
        }
        // Clients do not return to old generations.
        self.memories.retain(|key, _| key.generation == 0 || key.generation + 3 > generation);
        true
    }

    /// Mostly of this generation, sometimes of the one before, and of generation 0, which lasts for
    /// the run.
    fn draw_key(&mut self, generation: u32) -> TestKey {
        let generation = match self.rng.below(20) {
            0 => 0,
            1 => generation - 1,
            _ => generation,
        };
        let kind = match self.is_writer {
            _ if self.recorder.mix == Mix::Plain => KeyKind::Register,
            true => *self.rng.pick(&[KeyKind::Register, KeyKind::Counter, KeyKind::Counter]),
            false => *self.rng.pick(&KeyKind::DRAWN),
        };
        let number = self.rng.below(u64::from(kind.keys())) as u16;
        TestKey { kind, generation, number }
    }
}
