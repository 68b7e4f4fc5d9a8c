//! The interface between protocols and workers: events in, effects out.
//!
//! A protocol turns one event into effects and never waits. Before [`Protocol::on`] the worker
//! loads the register and the shard fields that the event names. A pinned register stays resident.
//! A protocol has no clock and no randomness but those in its [`Context`].

use std::collections::btree_map::Entry;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::{Millis, Nanos, Prng};
use types::{Incarnation, Key, LogImage, NodeId, Shard, Tag, Update, Wire};

use crate::effects::{Effects, TimerId, Violation};
use crate::group::{GroupEvent, Lease};
use crate::register_cache::{Metas, RegisterCache, Weight};
use crate::replica_sets::ReplicaSets;
use crate::replicas::Replicas;
pub use crate::request::{Peer, Request};
use crate::uptime::Uptime;

/// A replication protocol: one instance per database and worker.
pub trait Protocol: Sized + Send + 'static {
    /// The name on the command line.
    const NAME: &'static str;
    const PROPERTIES: Properties;

    type Message: Message;
    /// The stored state of one key. Its bytes omit the fields that a crash may take.
    type Record: Wire + Debug + Send;
    /// The stored state of a whole shard.
    type Meta: Wire + Default + Debug + Send;

    fn open(env: Env) -> Self;

    /// One step.
    fn on(&mut self, cx: &mut Context<'_, Self>, event: Event<Self>);

    /// False for a message that must not leave any more once the epoch that runs has ended.
    fn outlives_epoch(_message: &Self::Message) -> bool {
        true
    }

    /// A shard's fields were just loaded, for the first time since the process started.
    fn on_meta_loaded(&mut self, _cx: &mut Context<'_, Self>, _shard: Shard) {}

    /// A shard's fields are lost and have their defaults; [`Event::Forgotten`] follows. Registers
    /// of the shard may still be whole, but the guarantees of the lost fields no longer hold.
    fn on_meta_lost(&mut self, _cx: &mut Context<'_, Self>, _shard: Shard) {}

    /// This node's ballots name this incarnation from now on, after [`Effects::fenced`].
    fn renew(&mut self, _incarnation: Incarnation) {}

    /// False for a record with state outside its bytes, which must not be read back from them in
    /// this process. Such a record stays resident.
    fn is_evictable(_record: &Self::Record) -> bool {
        true
    }

    /// Copies a record through its bytes; also returns about how many these are. Other nodes never
    /// see the fields that the bytes omit.
    ///
    /// # Panics
    /// If a record cannot be read from its own bytes.
    fn copy(record: &Self::Record) -> (Self::Record, usize) {
        let bytes = record.to_bytes();
        let copy = Self::Record::from_bytes(&bytes);
        (copy.expect("a record can be read from its own bytes"), bytes.len())
    }

    /// The record's share of its database's figures.
    fn weight(key: &Key, record: &Self::Record) -> Weight;

    /// Prefetches the fields that a usual event reads. The result only has to depend on them.
    fn look(_record: &Self::Record) -> bool {
        true
    }

    /// Checks local invariants; the simulator asks after every event.
    ///
    /// # Errors
    /// Names the invariant that does not hold.
    fn check(
        &self,
        cache: &RegisterCache<Self::Record>,
        replicas: Replicas<'_>,
    ) -> Result<(), Violation>;

    /// True while no request, relevant timer or background work is in progress.
    fn is_idle(&self) -> bool;

    fn stats(&self, stats: &mut Stats);
}

/// The guarantees and needs of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    pub consistency: Consistency,
    /// Commands whose effect depends on the state.
    pub read_modify_write: bool,
    /// Every key on its own, or one order over all keys.
    pub total_order: bool,
    pub needs_config: bool,
    pub needs_lease: bool,
    /// Transactions may take its registers: see [`types::Hold`].
    pub locks: bool,
    /// The worker of shard 0 keeps a log for it: see [`Env::log`].
    pub keeps_log: bool,
    /// Serves [`types::Access::UncommittedRead`].
    pub uncommitted_reads: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    Linearizable,
    /// Writes linearizable, reads sequentially consistent per session.
    SequentialReads,
}

/// A message between instances of one protocol.
pub trait Message: Wire + Debug + Send {
    /// The register or shard that must be resident before this message is handled.
    fn touches(&self) -> Touches<'_>;

    /// The shard whose worker handles it; `None` for a message to the worker that sends it.
    fn shard(&self) -> Option<Shard> {
        self.touches().shard()
    }

    /// True if the receiver must store the message's content. A node whose medium cannot keep up
    /// drops such a message, as if it were lost.
    fn is_write(&self) -> bool;

    /// The key that the message with these bytes names, if that is quickly told. A hint.
    fn peek_key(_bytes: &[u8]) -> Option<Key> {
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touches<'a> {
    Key(&'a Key),
    Shard(Shard),
    Nothing,
}

impl Touches<'_> {
    #[must_use]
    pub fn shard(&self) -> Option<Shard> {
        match self {
            Touches::Key(key) => Some(key.shard()),
            Touches::Shard(shard) => Some(*shard),
            Touches::Nothing => None,
        }
    }
}

/// The parameters of an instance.
#[derive(Clone, Debug)]
pub struct Env {
    pub me: NodeId,
    pub incarnation: Incarnation,
    /// How long a request may look for a quorum.
    pub request_timeout: Nanos,
    /// The longest time of a request under `ONCE`. The same at all nodes.
    pub once_timeout: Nanos,
    /// The longest time between two comparisons of all replicas, even without writes. Zero means
    /// never. Ignored by protocols without comparison.
    pub compare_every: Nanos,
    /// True where changes outlive the process; promises then need a durable ceiling.
    pub durable: bool,
    /// Members that the database's group wants, at most the nodes that there are. Ignored by
    /// protocols without a configuration.
    pub group_size: usize,
    /// The keyspace is hidden: its values are records of transactions, which are forgotten soon.
    pub transient: bool,
    /// This instance owns the shards with `shard % workers == worker`.
    pub worker: usize,
    pub workers: usize,
    /// The log as this start finds it, at the worker of shard 0 of a protocol that keeps one.
    pub log: LogImage,
    /// A word that the instances of one database on one node share.
    pub shared: Arc<AtomicU64>,
}

impl Env {
    #[must_use]
    pub fn owns(&self, shard: Shard) -> bool {
        usize::from(shard.0) % self.workers == self.worker
    }
}

/// The input of a step.
pub enum Event<P: Protocol> {
    Request(Request),
    /// List keys of the shard that `from_hash` lies in, from a quorum.
    List {
        tag: Tag,
        from_hash: u64,
        limit: usize,
    },
    /// Ask every replica for its record of the key.
    Explain {
        tag: Tag,
        key: Key,
    },
    Peer {
        from: Peer,
        message: P::Message,
    },
    /// The connection to this peer ended. Messages in flight on it may be lost.
    PeerReset {
        node: NodeId,
    },
    /// A connection to this peer stands.
    PeerUp {
        node: NodeId,
    },
    /// This peer is [steady](crate::peers::Pace::Steady) again.
    PeerSteady {
        node: NodeId,
    },
    /// A node's amnesia count was raised, here or elsewhere.
    ViewChanged,
    /// Only for protocols that need a configuration.
    Group(GroupEvent),
    Timer(TimerId),
    /// The answer to [`Effects::scan`].
    Scanned(Scanned<P::Record>),
    /// This shard is forgotten: its absent keys are lost until it has been recovered from a quorum.
    Forgotten {
        shard: Shard,
    },
    /// The turn's events are handled. Send the messages that can now be combined.
    Turn,
}

impl<P: Protocol> Event<P> {
    /// The shard that the event is about, if it is about one.
    #[must_use]
    pub fn shard(&self) -> Option<Shard> {
        match self {
            Event::Request(Request { key, .. }) | Event::Explain { key, .. } => Some(key.shard()),
            Event::List { from_hash, .. } => Some(Shard((from_hash >> 56) as u8)),
            Event::Peer { message, .. } => message.touches().shard(),
            Event::Forgotten { shard } => Some(*shard),
            Event::Scanned(Scanned { records, .. }) => records.first().map(|(key, _)| key.shard()),
            Event::PeerReset { .. }
            | Event::PeerUp { .. }
            | Event::PeerSteady { .. }
            | Event::ViewChanged
            | Event::Group(_)
            | Event::Timer(_)
            | Event::Turn => None,
        }
    }
}

/// Records of one shard in key order.
#[derive(Debug)]
pub struct Scanned<R> {
    pub id: u64,
    pub records: Vec<(Key, ScannedRegister<R>)>,
    /// Where to go on; `None` at the end of the shard.
    pub next_hash: Option<u64>,
}

#[derive(Debug)]
pub enum ScannedRegister<R> {
    Present(R),
    /// There may be a record, and it is damaged.
    Lost,
}

/// The environment of a step of protocol `P`.
pub type Context<'a, P> =
    Scope<'a, <P as Protocol>::Record, <P as Protocol>::Meta, <P as Protocol>::Message>;

/// The same by the types of a protocol: records `R`, shard fields `S` and messages `M`.
pub struct Scope<'a, R, S, M> {
    /// Monotonic time of this turn.
    pub now: Nanos,
    /// Wall clock of this turn. Never a safety argument.
    pub unix: Millis,
    /// How long this node has been up, over all its starts on this data.
    pub uptime: &'a dyn Uptime,
    pub cache: &'a mut RegisterCache<R>,
    pub metas: &'a mut Metas<S>,
    pub fx: &'a mut Effects<M>,
    pub rng: &'a mut Prng,
    /// The replicas of the shard that the event is about; see [`Context::about`].
    pub replicas: Replicas<'a>,
    /// The replicas of every shard.
    pub sets: &'a ReplicaSets,
    /// The lease of this node on the database.
    pub lease: Lease<'a>,
    pub update: &'a dyn Update,
}

impl<'a, R, S, M> Scope<'a, R, S, M> {
    /// From here on the event is about this shard.
    pub fn about(&mut self, shard: Shard) {
        self.replicas.set = self.sets.of(shard);
    }

    /// The replicas of a shard.
    #[must_use]
    pub fn replicas_of(&self, shard: Shard) -> Replicas<'a> {
        self.by_shard()(shard)
    }

    /// The same as a function, which borrows no context.
    pub fn by_shard(&self) -> impl Fn(Shard) -> Replicas<'a> + Copy + use<'a, R, S, M> {
        let (sets, peers) = (self.sets, self.replicas.peers);
        move |shard| Replicas { set: sets.of(shard), peers }
    }
}

/// The suffix of names of moments.
pub const MOMENT: &str = "_unix";

/// Counters and gauges by name, summed over workers. A moment's name ends with [`MOMENT`]; its
/// earliest value counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub values: std::collections::BTreeMap<&'static str, u64>,
}

impl Stats {
    pub fn add(&mut self, name: &'static str, value: u64) {
        match self.values.entry(name) {
            Entry::Vacant(entry) => drop(entry.insert(value)),
            Entry::Occupied(mut entry) if name.ends_with(MOMENT) => {
                entry.insert(value.min(*entry.get()));
            }
            Entry::Occupied(mut entry) => *entry.get_mut() += value,
        }
    }
}
