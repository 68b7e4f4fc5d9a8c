//! One worker, its stores and the peers it believes in.

use std::sync::Arc;

use base::{Millis, Nanos};
use bytes::Bytes;
use node::registry::Registration;
use node::uptime::{Keeper, Scale};
use node::{DatabaseSpec, Input, Outputs, Worker, WorkerConfig, frame_payload};
use protocols::{Message, NoLeases, Stats, Touches};

use storage::volatile::{Beginning, VolatileStore};
use types::{
    Access, AmnesiaCount, Applied, Clock, Command, Database, Epoch, Incarnation, Key, NodeId,
    Outcome, Reply, SessionId, Shard, Tag, Update, Wire,
};

use crate::store::Script;
use crate::toy::{Say, Toy};

pub const ME: NodeId = NodeId(1);
pub const PEER: NodeId = NodeId(2);
pub const DISK: Database = Database(0);
pub const VOLATILE: Database = Database(1);
/// Beside [`DISK`] in its store, where a world has it.
pub const BESIDE: Database = Database(2);

struct NoUpdate;

impl Update for NoUpdate {
    fn apply(&self, _view: types::View<'_>, _body: &[u8], _clock: Clock) -> Applied {
        Applied::unchanged(Reply::Null)
    }
}

pub struct World {
    pub worker: Worker,
    pub script: Script,
    pub keeper: Keeper,
    pub now: Nanos,
    inputs: Vec<Input>,
    tag: u64,
}

pub struct Shape {
    pub members: Vec<NodeId>,
    pub workers: usize,
    pub registers_max: usize,
    pub volatile: Beginning,
    pub has_beside: bool,
    pub counts_keys: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            members: vec![ME, PEER, NodeId(3)],
            workers: 1,
            registers_max: 1 << 20,
            volatile: Beginning::New,
            has_beside: false,
            counts_keys: false,
        }
    }
}

impl World {
    /// Three members, one worker, a scripted store under database 0 and a volatile one under
    /// database 1.
    pub fn new() -> World {
        World::shaped(Shape::default(), Script::default())
    }

    pub fn alone() -> World {
        World::shaped(Shape { members: vec![ME], ..Shape::default() }, Script::default())
    }

    pub fn shaped(shape: Shape, script: Script) -> World {
        let keeper = Keeper::restore(Scale::REAL, &[], true, Nanos::ZERO);
        let config = WorkerConfig {
            index: 0,
            workers: shape.workers,
            me: ME,
            incarnation: Incarnation(1),
            amnesia: AmnesiaCount(1),
            members: shape.members,
            replicas: None,
            seed: 1,
            request_timeout: Nanos::from_secs(1),
            once_timeout: Nanos::from_secs(1),
            gone_after: node::worker::GONE_AFTER,
            cache_memory: shape.registers_max * node::REGISTER_OVERHEAD,
            scrub: node::worker::ScrubConfig::OFF,
            counts_keys: shape.counts_keys,
            uptimes: keeper.uptimes(),
            leases: Arc::new(NoLeases),
            words: node::worker::Words::default(),
        };
        let volatile = Box::new(VolatileStore::new(shape.volatile));
        let spec = |database, store, durable| DatabaseSpec {
            database,
            protocol: "toy",
            replicas: None,
            store,
            durable,
        };
        let mut databases = vec![spec(DISK, 0, true), spec(VOLATILE, 1, false)];
        if shape.has_beside {
            databases.push(spec(BESIDE, 0, true));
        }
        let worker = Worker::with_protocols(
            &[Registration::of::<Toy>()],
            config,
            vec![script.store(), volatile],
            &databases,
            Arc::new(NoUpdate),
            Nanos::ZERO,
        );
        let worker = worker.expect("the toy is registered");
        World { worker, script, keeper, now: Nanos::ZERO, inputs: Vec::new(), tag: 0 }
    }

    pub fn input(&mut self, input: Input) -> &mut World {
        self.inputs.push(input);
        self
    }

    /// Queues a request; its tag counts up from 1.
    pub fn ask(&mut self, database: Database, key: &Key, body: &str) -> Tag {
        self.tag += 1;
        let tag = Tag(self.tag);
        let command = Command::new(Access::Write, Bytes::copy_from_slice(body.as_bytes()));
        let session = SessionId(1);
        self.input(Input::Request { tag, session, database, key: key.clone(), command });
        tag
    }

    pub fn list(&mut self, database: Database, from_hash: u64, limit: usize) -> Tag {
        self.tag += 1;
        let tag = Tag(self.tag);
        self.input(Input::List { tag, database, from_hash, limit });
        tag
    }

    pub fn turn(&mut self) -> Outputs {
        let mut out = Outputs::default();
        self.worker.turn(self.now, Millis(0), &mut self.inputs, &mut out);
        assert!(self.inputs.is_empty());
        self.worker.check().expect("the worker keeps its invariants");
        out
    }

    /// Asks and takes a turn.
    pub fn replies(&mut self, database: Database, key: &Key, body: &str) -> Vec<(u64, String)> {
        self.ask(database, key, body);
        replies(&self.turn())
    }

    pub fn frame(&mut self, from: Sender, says: &[Say]) -> &mut World {
        let bytes = frame(from, says);
        self.input(Input::Frame { from: from.node, bytes })
    }

    pub fn stat(&self, name: &str) -> u64 {
        let mut stats = Stats::default();
        self.worker.stats(&mut stats);
        *stats.values.get(name).unwrap_or_else(|| panic!("nothing counts {name}"))
    }
}

/// The sender's counters in a frame.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub amnesia: AmnesiaCount,
    pub epoch: Epoch,
    /// This node's amnesia count as the sender knows it.
    pub knows: AmnesiaCount,
}

impl Default for Sender {
    fn default() -> Sender {
        Sender {
            node: PEER,
            incarnation: Incarnation(1),
            amnesia: AmnesiaCount(1),
            epoch: Epoch(1),
            knows: AmnesiaCount(1),
        }
    }
}

pub fn frame(from: Sender, says: &[Say]) -> Bytes {
    frame_of(DISK, from, says)
}

pub fn frame_of(database: Database, from: Sender, says: &[Say]) -> Bytes {
    let mut out = vec![0; frame_payload::header_len(1)];
    let losses = [(ME, from.knows)];
    let Sender { node, incarnation, amnesia, epoch, .. } = from;
    frame_payload::write_header(
        &mut out,
        node,
        incarnation,
        amnesia,
        epoch,
        losses.iter().copied(),
    );
    for say in says {
        let shard = match say.touches() {
            Touches::Key(key) => key.shard(),
            Touches::Shard(shard) => shard,
            Touches::Nothing => Shard(0),
        };
        frame_payload::put_message(&mut out, database, shard, |out| say.encode(out));
    }
    Bytes::from(out)
}

/// Replies as `(tag, text)`.
pub fn replies(out: &Outputs) -> Vec<(u64, String)> {
    let text = |outcome: &Outcome| match outcome {
        Outcome::Reply(Reply::Bulk(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    };
    out.replies.iter().map(|(tag, outcome)| (tag.0, text(outcome))).collect()
}

/// The frames of a turn to `to`: the sender's amnesia count and the messages.
pub fn sent(out: &Outputs, to: NodeId) -> Vec<(AmnesiaCount, Vec<Say>)> {
    out.frames
        .iter()
        .filter(|(node, _)| *node == to)
        .map(|(_, frame)| {
            let (header, _, messages) = frame_payload::decode(frame).expect("own frames decode");
            let says = messages.map(|message| {
                Say::from_bytes(message.expect("own messages are whole").bytes)
                    .expect("own messages decode")
            });
            (header.amnesia, says.collect())
        })
        .collect()
}

/// The first `count` keys of a shard, in key order.
pub fn keys_in(shard: Shard, count: usize) -> Vec<Key> {
    let all = (0_u64..).map(|n| Key::new(format!("key {n}").as_bytes()));
    let mut keys: Vec<Key> = all.filter(|key| key.shard() == shard).take(count).collect();
    keys.sort();
    keys
}

pub fn key(text: &str) -> Key {
    Key::new(text.as_bytes())
}
