//! Clients that record their requests and replies, and the check of the record afterwards.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::Prng;
use bench::client::{Client, Value};
use checker::model::kv::{Bytes, Kv, KvInput, KvOutput};
use checker::{ClientId, History, Limit, Outcome, Verdict, linearizable};

use super::eventually;

type Input = (u8, KvInput);

/// Keys of the load: half hold strings, half are counters.
const KEYS: u8 = 6;
const CLIENTS: u64 = 5;
/// A reply that takes longer is an unknown outcome. Longer than any node looks for a quorum.
const REPLY_MAX: Duration = Duration::from_secs(4);
/// Between two operations of a client: enough of them for any test, and few enough to check in
/// seconds.
const PACE: Duration = Duration::from_millis(1);

/// A recorded load on some nodes.
pub struct Recorder {
    /// Sets the keys of one recorder apart from those of another on the same cluster.
    name: &'static str,
    /// Its commands depend on no state.
    is_plain: bool,
    /// Its reads take a place among the writes.
    is_ordered: bool,
    start: Instant,
    history: Mutex<History<Input, KvOutput>>,
    succeeded: AtomicU64,
    stopped: AtomicBool,
}

impl Recorder {
    pub fn new(name: &'static str) -> Recorder {
        Recorder {
            name,
            is_plain: false,
            is_ordered: false,
            start: Instant::now(),
            history: Mutex::new(History::new()),
            succeeded: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// The same with reads and plain writes only.
    pub fn plain(name: &'static str) -> Recorder {
        Recorder { is_plain: true, ..Recorder::new(name) }
    }

    /// The same with linearizable reads, where the protocol's own are weaker.
    pub fn ordered(name: &'static str) -> Recorder {
        Recorder { is_ordered: true, ..Recorder::new(name) }
    }

    fn connect(&self, address: SocketAddr) -> std::io::Result<Client> {
        let mut client = Client::connect(address, REPLY_MAX)?;
        if self.is_ordered {
            client.command("CLIENT CONSISTENCY LINEARIZABLE")?;
        }
        Ok(client)
    }

    /// Runs `body` while clients work on `addresses`, then ends them.
    pub fn during(&self, addresses: &[SocketAddr], body: impl FnOnce(&Recorder)) {
        self.stopped.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                scope.spawn(move || self.work(number, addresses));
            }
            // The clients end when the body does, also when it panics.
            let stop = StopOnDrop(&self.stopped);
            body(self);
            drop(stop);
        });
    }

    /// Waits until so many more operations have succeeded.
    pub fn wait_for_successes(&self, count: u64) {
        let goal = self.succeeded.load(Ordering::Relaxed) + count;
        let what = format!("{count} more operations succeed");
        eventually(&what, || self.succeeded.load(Ordering::Relaxed) >= goal);
    }

    /// Reads every key once at each address, so that acknowledged writes have to show.
    pub fn read_all(&self, addresses: &[SocketAddr]) {
        for (number, &address) in addresses.iter().enumerate() {
            let mut client = self.connect(address).expect("the node listens");
            for key in 0..KEYS {
                let id = ClientId(1_000 + number as u64);
                let done = self.perform(&mut client, id, (key, KvInput::Get));
                assert!(done, "a read of key {key} at {address} had no outcome");
            }
        }
    }

    /// Whether one order of the operations explains every answer.
    ///
    /// # Panics
    /// If none does, or the check cannot decide.
    pub fn check(&self) {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(!history.is_empty(), "nothing was recorded");
        let verdicts = linearizable::check_partitioned(
            &Kv,
            &history,
            |(key, input)| (key, input),
            Limit::default(),
        );
        for (key, verdict) in verdicts {
            assert!(matches!(verdict, Verdict::Holds { .. }), "{}:{key}: {verdict}", self.name);
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("a test does not run for 500 years")
    }

    fn work(&self, number: u64, addresses: &[SocketAddr]) {
        let mut rng = Prng::new(number + 1);
        let mut connection: Option<Client> = None;
        let mut life = 0;
        let mut written = 0;
        while !self.stopped.load(Ordering::Relaxed) {
            std::thread::sleep(PACE);
            let address = *rng.pick(addresses);
            let mut client = match connection.take() {
                // Clients move to another node now and then.
                Some(client) if !rng.chance(0.05) => client,
                _ => match self.connect(address) {
                    Ok(client) => client,
                    Err(_) => continue,
                },
            };
            written += 1;
            let value = format!("{number}.{written}");
            let input = match self.is_plain {
                true => draw_plain(&mut rng, &value),
                false => draw(&mut rng, &value),
            };
            let id = ClientId(number + life * CLIENTS);
            if self.perform(&mut client, id, input) {
                connection = Some(client);
            } else {
                life += 1; // a client with an unknown outcome starts anew
            }
        }
    }

    /// Asks and records. False when the connection is of no use any more.
    fn perform(&self, client: &mut Client, id: ClientId, input: Input) -> bool {
        let line = line(self.name, &input);
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let op = history.invoke(id, input.clone(), self.now());
        drop(history);
        let reply = client.command(&line);
        let outcome = match &reply {
            Ok(value) => outcome(&input.1, value),
            Err(_) => Outcome::Unknown,
        };
        if matches!(outcome, Outcome::Returned(_)) {
            self.succeeded.fetch_add(1, Ordering::Relaxed);
        }
        let known = !matches!(outcome, Outcome::Unknown);
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.complete(op, outcome, self.now());
        reply.is_ok() && known
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A random operation; values are never written twice.
fn draw(rng: &mut Prng, value: &str) -> Input {
    let key = rng.below(u64::from(KEYS)) as u8;
    let value = Bytes::from(value);
    let input = if key % 2 == 1 {
        if rng.chance(0.5) { KvInput::IncrBy(1) } else { KvInput::Get }
    } else {
        match rng.below(8) {
            0..=2 => KvInput::Get,
            3..=4 => KvInput::Set(value),
            5 => KvInput::SetIfAbsent(value),
            6 => KvInput::GetSet(value),
            _ => KvInput::Del,
        }
    };
    (key, input)
}

/// The same without commands that depend on the state.
fn draw_plain(rng: &mut Prng, value: &str) -> Input {
    let key = rng.below(u64::from(KEYS)) as u8;
    let input = if rng.chance(0.5) { KvInput::Get } else { KvInput::Set(Bytes::from(value)) };
    (key, input)
}

fn line(name: &str, (key, input): &Input) -> String {
    let text = |value: &Bytes| String::from_utf8_lossy(value.as_slice()).into_owned();
    match input {
        KvInput::Get => format!("GET {name}:{key}"),
        KvInput::Set(value) => format!("SET {name}:{key} {}", text(value)),
        KvInput::SetIfAbsent(value) => format!("SET {name}:{key} {} NX", text(value)),
        KvInput::GetSet(value) => format!("SET {name}:{key} {} GET", text(value)),
        KvInput::Del => format!("DEL {name}:{key}"),
        KvInput::IncrBy(by) => format!("INCRBY {name}:{key} {by}"),
        other => panic!("the load does not draw {other:?}"),
    }
}

/// The meaning of a reply.
///
/// # Panics
/// If it is one that no correct server gives.
fn outcome(input: &KvInput, reply: &Value) -> Outcome<KvOutput> {
    match (input, reply) {
        (_, Value::Error(text)) => match text.split(' ').next() {
            Some("UNKNOWN") => Outcome::Unknown,
            Some("CLUSTERDOWN" | "LOADING" | "TRYAGAIN") => Outcome::Failed,
            _ => panic!("{input:?} was answered with an error of no kind that is promised: {text}"),
        },
        (KvInput::Set(_) | KvInput::SetIfAbsent(_), Value::Simple(ok)) if ok == "OK" => {
            Outcome::Returned(KvOutput::Done)
        }
        (KvInput::SetIfAbsent(_), Value::Nil) => Outcome::Returned(KvOutput::Refused),
        (KvInput::Get | KvInput::GetSet(_), Value::Nil) => Outcome::Returned(KvOutput::Value(None)),
        (KvInput::Get | KvInput::GetSet(_), Value::Bulk(bytes)) => {
            Outcome::Returned(KvOutput::Value(Some(Bytes::from(bytes))))
        }
        (KvInput::Del | KvInput::IncrBy(_), Value::Integer(number)) => {
            Outcome::Returned(KvOutput::Integer(*number))
        }
        _ => panic!("{input:?} was answered with {reply:?}"),
    }
}
