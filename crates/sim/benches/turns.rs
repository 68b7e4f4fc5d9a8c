//! CPU time of whole workers without sockets, threads or a disk: three nodes in one loop.
//!
//! `cargo bench -p sim --bench turns`. Each line is the best of several rounds, in nanoseconds of
//! this thread's CPU time per command, all three nodes together.
//! *one*: all commands at one node. *spread*: at each node in turn, so that most writes meet
//! another node's ballot.

use std::sync::Arc;
use std::time::Duration;

use base::{Millis, Nanos, Prng};
use bytes::Bytes;
use commands::Interpreter;
use node::uptime::{Keeper, Scale};
use node::worker::{DatabaseSpec, Input, Outputs, Worker, WorkerConfig};
use protocols::NoLeases;
use storage::volatile::{Beginning, VolatileStore};
use types::{AmnesiaCount, Command, Database, Incarnation, Key, NodeId, Outcome, SessionId, Tag};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const NODES: usize = 3;
const KEYS: u64 = 100_000;
/// Concurrent commands, as of 64 clients with pipelines of sixteen.
const BATCH: u64 = 1024;
const ROUNDS: usize = 15;
const BATCHES: u64 = 100;

struct WorkerCluster {
    workers: Vec<Worker>,
    inputs: Vec<Vec<Input>>,
    now: Nanos,
    next_tag: u64,
    rng: Prng,
    keys: Vec<Key>,
}

impl WorkerCluster {
    fn new() -> WorkerCluster {
        let members: Vec<NodeId> = (1..=NODES as u16).map(NodeId).collect();
        let now = Nanos::from_secs(1);
        let worker = |&me: &NodeId| {
            let config = WorkerConfig {
                index: 0,
                workers: 1,
                me,
                incarnation: Incarnation(1),
                amnesia: AmnesiaCount(0),
                members: members.clone(),
                replicas: None,
                seed: u64::from(me.0),
                request_timeout: Nanos::from_secs(10),
                once_timeout: Nanos::from_secs(10),
                gone_after: node::worker::GONE_AFTER,
                cache_memory: usize::MAX,
                scrub: node::worker::ScrubConfig::OFF,
                counts_keys: false,
                uptimes: Keeper::restore(Scale::REAL, &[], true, Nanos::ZERO).uptimes(),
                leases: Arc::new(NoLeases),
                words: node::worker::Words::default(),
            };
            let database = DatabaseSpec {
                database: Database(0),
                protocol: "rmwpaxos",
                replicas: None,
                store: 0,
                durable: false,
            };
            let store = Box::new(VolatileStore::new(Beginning::New));
            let update = Arc::new(Interpreter::default());
            Worker::new(config, vec![store], &[database], update, now).expect("rmwpaxos exists")
        };
        let others = |me: NodeId| members.iter().copied().filter(move |&node| node != me);
        let up =
            |node| Input::PeerUp { node, incarnation: Incarnation(1), amnesia: AmnesiaCount(0) };
        WorkerCluster {
            workers: members.iter().map(worker).collect(),
            inputs: members.iter().map(|&me| others(me).map(up).collect()).collect(),
            now,
            next_tag: 0,
            rng: Prng::new(7),
            keys: (0..KEYS).map(|n| Key::new(format!("key:{n:012}").as_bytes())).collect(),
        }
    }

    fn ask(&mut self, node: usize, verb: &BenchCommand) {
        self.next_tag += 1;
        let key = self.keys[self.rng.below(KEYS) as usize].clone();
        self.inputs[node].push(Input::Request {
            tag: Tag(self.next_tag),
            session: SessionId(self.next_tag % 64),
            database: Database(0),
            key,
            command: verb.0.clone(),
        });
    }

    /// Turns the workers until every request has its answer.
    fn settle(&mut self, mut open: usize) {
        let mut out = Outputs::default();
        while open > 0 {
            self.now += Nanos::from_micros(20);
            for index in 0..NODES {
                let worker = &mut self.workers[index];
                worker.turn(self.now, Millis(1), &mut self.inputs[index], &mut out);
                for (_, outcome) in out.replies.drain(..) {
                    assert!(matches!(outcome, Outcome::Reply(_)), "{outcome:?} without a fault");
                    open -= 1;
                }
                let from = NodeId(index as u16 + 1);
                for (to, frame) in out.frames.drain(..) {
                    let bytes = Bytes::from(frame);
                    self.inputs[usize::from(to.0) - 1].push(Input::Frame { from, bytes });
                }
            }
        }
    }
}

struct BenchCommand(Command);

impl BenchCommand {
    fn new(args: &[&[u8]]) -> BenchCommand {
        let clock = types::Clock { unix: Millis(1), seed: 1 };
        match commands::plan(args, clock) {
            Ok((_, commands::Plan::Key { command, .. })) => BenchCommand(command),
            _ => panic!("{args:?} is a command on one key"),
        }
    }
}

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn measure(name: &str, verb: &BenchCommand, nodes: &[usize]) {
    let mut cluster = WorkerCluster::new();
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let begin = cpu();
        for _ in 0..BATCHES {
            for n in 0..BATCH {
                cluster.ask(nodes[n as usize % nodes.len()], verb);
            }
            cluster.settle(BATCH as usize);
        }
        let spent = (cpu() - begin).as_nanos() as f64;
        best = best.min(spent / (BATCHES * BATCH) as f64);
    }
    println!("{name:<12} {best:7.0} ns");
}

fn main() {
    let set = BenchCommand::new(&[b"SET", b"key", &[b'v'; 32]]);
    let get = BenchCommand::new(&[b"GET", b"key"]);
    measure("set one", &set, &[0]);
    measure("set spread", &set, &[0, 1, 2]);
    measure("get one", &get, &[0]);
    measure("get spread", &get, &[0, 1, 2]);
}
