//! One protocol instance with its registers. A worker runs one per database.
//!
//! [`Engine`] is the worker's view, one dynamic call per event. [`EngineOf`] is the implementation,
//! generic over the protocol. [`crate::worker::register_cache`] loads registers.
//! [`crate::worker::effects`] applies effects once they are durable.

use std::collections::VecDeque;

use base::{Millis, sometimes};
use bytes::Bytes;
use protocols::mutation::{self, Mutation};
use protocols::{
    Absence, Consistency, Context, Effects, Env, Event, GroupEvent, Lease, Message, Metas, Parting,
    Peer, Protocol, RegisterCache, Request, Scan, Scanned, Scope, Stats, TimerId, Uptime,
    Violation, WARMED, Weight,
};
use smallvec::SmallVec;
use storage::{Load, Place};
use transactions::RecordUpdate;
use types::key::SHARDS;
use types::{
    Access, Database, Incarnation, Key, Malformed, NodeId, Outcome, Shard, Tag, Ticket, Update,
    Wire,
};

use crate::frame_payload::RawMessage;
use crate::groups::register::SystemUpdate;
use crate::status::DatabaseFigures;
use crate::worker::census::Census;
use crate::worker::durability_queue::DurabilityQueue;
use crate::worker::effects::QueuedEffect;
pub(crate) use crate::worker::engine_work::EngineWork;
use crate::worker::load_waiters::LoadWaiters;
use crate::worker::register_cache::Clearing;
use crate::worker::scans::{self, ScanPurpose};
use crate::worker::worker_state::WorkerState;

/// Events that may wait for storage in one engine; more are refused.
pub(crate) const WAITERS_MAX: usize = 1 << 17;

/// Bytes of peers' messages that may wait for storage in one engine; then those that bring states
/// are not taken in. They are as messages that were lost.
const WAITERS_LEN_MAX: usize = 64 << 20;

/// Bytes of memory that a resident register takes besides its record.
pub const REGISTER_OVERHEAD: usize = types::limits::REGISTER_MEMORY;

/// Bytes that a record counts for which is never encoded while it is resident: those of a small
/// value. Where it goes is memory too.
pub(crate) const UNENCODED_LEN: usize = 72;

/// Absent entries examined per turn. A turn adds fewer, so that they cannot pile up.
const ABSENT_LOOKS_MAX: usize = 1 << 12;

/// Events that concern an engine as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    PeerUp(NodeId),
    PeerReset(NodeId),
    PeerSteady(NodeId),
    ViewChanged,
    Timer(TimerId),
}

/// The worker's view of an engine.
pub(crate) trait Engine: Send {
    fn store(&self) -> usize;
    fn database(&self) -> Database;

    fn on_request(&mut self, shared: &mut WorkerState, request: Request);
    fn on_list(&mut self, shared: &mut WorkerState, tag: Tag, from_hash: u64, limit: usize);
    fn on_explain(&mut self, shared: &mut WorkerState, tag: Tag, key: Key);
    /// Messages of one peer, in order. Returns how many of them were malformed.
    fn on_messages(
        &mut self,
        shared: &mut WorkerState,
        from: Peer,
        raw: &[RawMessage<'_>],
    ) -> usize;
    /// Prefetches the registers of these keys, at most [`WARMED`].
    fn warm(&self, keys: &[&Key]);
    fn on_signal(&mut self, shared: &mut WorkerState, signal: Signal);

    fn on_stored(&mut self, shared: &mut WorkerState, upto: Ticket);
    fn on_loaded(&mut self, shared: &mut WorkerState, place: Place, load: Load);
    fn on_scanned(
        &mut self,
        shared: &mut WorkerState,
        scan: Scan,
        records: Vec<(Key, Bytes)>,
        next_hash: Option<u64>,
    );
    /// Storage found records of a shard forgotten. The engine's protocol is told once the amnesia
    /// count is raised.
    fn on_forgotten(&mut self, shared: &mut WorkerState, shard: Shard);
    fn on_amnesia_raised(&mut self, shared: &mut WorkerState);
    /// Ballots name this incarnation from now on.
    fn renew(&mut self, incarnation: Incarnation);
    fn on_group(&mut self, shared: &mut WorkerState, event: GroupEvent);
    /// Drops messages that wait for storage, after the amnesia count was raised. They were made
    /// under the old amnesia count and would carry the new one. The network may lose messages, so
    /// protocols tolerate it.
    fn drop_queued_sends(&mut self);
    /// Finds the shards that storage knows as forgotten when the process starts.
    fn on_start(&mut self, shared: &mut WorkerState);

    /// Lets the protocol combine the effects of the turn's events, then delivers the engine's
    /// messages to itself.
    fn run(&mut self, shared: &mut WorkerState);
    /// True when [`Engine::run`] has something to do.
    fn has_work(&self) -> bool;
    fn has_dirty(&self) -> bool;
    /// True when the engine has no work and waits only for events that wake it. At most
    /// `absent_kept` of its cached entries may be absent registers.
    fn may_rest(&self, absent_kept: usize) -> bool;
    fn set_open_ticket(&mut self, ticket: Ticket);
    /// Puts every changed register and shard field into the store's open batch, each once.
    fn flush(&mut self, shared: &mut WorkerState);

    /// Registers in memory, known absent ones among them.
    fn resident(&self) -> usize;
    /// Bytes of memory that they take, about.
    fn memory(&self) -> usize;
    /// Storage is memory too, and a register takes less of it there.
    fn packs(&self) -> bool;
    /// Registers that the protocol needs in memory.
    fn pinned(&self) -> usize;
    fn evict(&mut self, shared: &mut WorkerState, shard: Shard) -> usize;
    /// Drops entries of absent registers until about `kept` are left.
    fn drop_absent(&mut self, shared: &mut WorkerState, kept: usize) -> usize;
    fn check(&self, shared: &WorkerState) -> Result<(), Violation>;
    fn is_idle(&self) -> bool;
    fn load_waiters(&self) -> usize;
    fn census(&self) -> &Census;
    fn start_count(&self, shared: &mut WorkerState, scan: Scan);
    /// Storage answered a scan of the census. False if it is to be asked again.
    fn on_counted(
        &mut self,
        shared: &mut WorkerState,
        scan: Scan,
        records: &[(Key, Bytes)],
        next_hash: Option<u64>,
    ) -> bool;
    fn figures(&self) -> Option<DatabaseFigures>;
    fn stats(&self, stats: &mut Stats);
}

/// The frame's shard chose the worker. The message names the register or shard to load.
fn decode<P: Protocol>(raw: &RawMessage<'_>) -> Result<P::Message, Malformed> {
    let message = P::Message::from_bytes(raw.bytes)?;
    if message.shard().is_none_or(|shard| shard == raw.shard) {
        Ok(message)
    } else {
        Err(Malformed)
    }
}

pub(crate) fn shard_of(hash: u64) -> Shard {
    Shard((hash >> 56) as u8)
}

/// Parts that an engine is built from.
pub(crate) struct EngineParts {
    pub(crate) index: usize,
    pub(crate) database: Database,
    pub(crate) store: usize,
    pub(crate) outlives_process: bool,
    pub(crate) env: Env,
    pub(crate) rng: base::Prng,
}

/// A protocol, its registers, and the events and effects that wait on its behalf.
pub(crate) struct EngineOf<P: Protocol> {
    pub(crate) index: usize,
    pub(crate) database: Database,
    pub(crate) store: usize,
    pub(crate) protocol: P,
    pub(crate) cache: RegisterCache<P::Record>,
    pub(crate) metas: Metas<P::Meta>,
    pub(crate) fx: Effects<P::Message>,
    rng: base::Prng,
    pub(crate) outlives_process: bool,
    /// Messages and scans that the engine sent to itself.
    pub(crate) inner: VecDeque<EngineWork<P>>,
    pub(crate) load_waiters: LoadWaiters<EngineWork<P>>,
    pub(crate) durability_queue: DurabilityQueue<QueuedEffect<P::Message>>,
    /// Shards found forgotten, and keys found lost, that wait for the amnesia count to be raised.
    pub(crate) forgotten: Vec<Shard>,
    /// Shards taken from there that the protocol has not stepped over yet.
    pub(crate) losses_on_the_way: usize,
    pub(crate) lost_keys: Vec<Key>,
    /// A seal and later orders, while forgotten shards are not shown: it would vouch for them.
    pub(crate) group_waiting: VecDeque<GroupEvent>,
    /// Recovered shards that storage does not know as such yet.
    pub(crate) clearing: Vec<Clearing>,
    /// Keys that storage still calls lost because their shard is being cleared.
    pub(crate) clearing_keys: Vec<Key>,
    pub(crate) census: Census,
    /// Something happened since the last `Event::Turn`.
    touched: bool,
}

impl<P: Protocol> EngineOf<P> {
    pub(crate) fn open(parts: EngineParts) -> Box<dyn Engine> {
        // Volatile records are in memory already, so an absent one needs no cached entry.
        let absence = if parts.outlives_process { Absence::Kept } else { Absence::Announced };
        let (worker, workers) = (parts.env.worker, parts.env.workers);
        let census = Census::new(worker, workers, !parts.outlives_process);
        Box::new(EngineOf::<P> {
            index: parts.index,
            database: parts.database,
            store: parts.store,
            protocol: P::open(parts.env),
            cache: RegisterCache::new(absence),
            metas: Metas::default(),
            fx: Effects::default(),
            rng: parts.rng,
            outlives_process: parts.outlives_process,
            inner: VecDeque::new(),
            load_waiters: LoadWaiters::default(),
            durability_queue: DurabilityQueue::default(),
            forgotten: Vec::new(),
            losses_on_the_way: 0,
            lost_keys: Vec::new(),
            group_waiting: VecDeque::new(),
            clearing: Vec::new(),
            clearing_keys: Vec::new(),
            census,
            // The first turn starts the protocol.
            touched: true,
        })
    }

    /// Runs one step of the protocol and applies its effects.
    pub(crate) fn with_context(
        &mut self,
        shared: &mut WorkerState,
        shard: Option<Shard>,
        run: impl FnOnce(&mut P, &mut Context<'_, P>),
    ) {
        // Volatile countdowns end with the process and need no saved clock.
        let (lasting, passing);
        let uptime: &dyn Uptime = if self.outlives_process {
            lasting = shared.uptimes.at(shared.now);
            &lasting
        } else {
            passing = Millis(shared.now.since(shared.started).as_millis());
            &passing
        };
        let replicas = shared.replicas_of(shard);
        let system = SystemUpdate(&*shared.update);
        let update: &dyn Update = match self.database {
            Database::SYSTEM => &system,
            database if database.is_hidden() => &RecordUpdate,
            _ => &*shared.update,
        };
        let mut cx = Scope {
            now: shared.now,
            unix: shared.unix,
            uptime,
            cache: &mut self.cache,
            metas: &mut self.metas,
            fx: &mut self.fx,
            rng: &mut self.rng,
            replicas,
            sets: &shared.sets,
            lease: Lease { leases: &*shared.leases, database: self.database },
            update,
        };
        run(&mut self.protocol, &mut cx);
        self.touched = true;
        self.apply_effects(shared);
    }

    pub(crate) fn step(&mut self, shared: &mut WorkerState, event: Event<P>) {
        let shard = event.shard();
        self.with_context(shared, shard, |protocol, cx| protocol.on(cx, event));
    }

    /// Runs an event whose register and shard are resident.
    pub(crate) fn run_work(&mut self, shared: &mut WorkerState, work: EngineWork<P>) {
        let event = match work {
            EngineWork::Request(request) => Event::Request(request),
            EngineWork::List { tag, from_hash, limit } => Event::List { tag, from_hash, limit },
            EngineWork::Explain { tag, key } => Event::Explain { tag, key },
            // It may have become stale while it waited.
            EngineWork::Peer { from, .. } if !shared.is_current(from) => {
                sometimes!("a message becomes stale while it waits");
                shared.counters.frames_stale += 1;
                return;
            }
            EngineWork::Peer { from, message, .. } => Event::Peer { from, message },
            EngineWork::Scan(scan) => {
                self.run_scan(shared, scan);
                return;
            }
            EngineWork::Forgotten(shard) => {
                self.losses_on_the_way -= 1;
                self.step(shared, Event::Forgotten { shard });
                self.run_waiting_orders(shared);
                return;
            }
        };
        self.step(shared, event);
    }

    fn run_scan(&mut self, shared: &mut WorkerState, scan: Scan) {
        shared.start_scan(self.index, self.store, self.database, scan, ScanPurpose::Protocol);
    }

    fn deliver_scan(
        &mut self,
        shared: &mut WorkerState,
        scan: Scan,
        stored: Vec<(Key, Bytes)>,
        stored_until: Option<u64>,
    ) {
        let shard = shard_of(scan.from_hash);
        let stored_until = stored_until.filter(|until| shard_of(*until) == shard);
        let (resident, until) =
            self.cache.range_step(shard, scan.from_hash, stored_until, scan.limit.max(1));
        let (records, next_hash) = scans::merge(scan, stored, until, resident, P::copy);
        self.step(shared, Event::Scanned(Scanned { id: scan.id, records, next_hash }));
    }

    fn on_message(&mut self, shared: &mut WorkerState, from: Peer, message: P::Message, len: u32) {
        // A protocol bounds its messages to itself.
        if self.load_waiters.len() >= WAITERS_MAX && from.node != shared.peers.me() {
            shared.counters.events_refused += 1;
        } else if self.is_ready(message.touches()) {
            // The common case skips a move of the message through the queue's type.
            self.step(shared, Event::Peer { from, message });
        } else {
            self.admit(shared, EngineWork::Peer { from, message, len });
        }
    }

    /// True when load waiters hold so much memory that no message with a state may join them.
    fn has_large_waiters(&self) -> bool {
        self.load_waiters.bytes() > WAITERS_LEN_MAX
    }

    fn run_inner(&mut self, shared: &mut WorkerState) {
        for _ in 0..self.inner.len() {
            let Some(work) = self.inner.pop_front() else { break };
            self.admit(shared, work);
        }
    }

    fn write_log(&mut self, shared: &mut WorkerState) {
        if self.fx.log.is_empty() {
            return;
        }
        let changes = std::mem::take(&mut self.fx.log);
        if self.outlives_process {
            let state = &mut shared.stores[self.store];
            state.store.change_log(self.database, changes);
            state.has_changes = true;
        }
    }

    fn write_metas(&mut self, shared: &mut WorkerState) {
        let state = &mut shared.stores[self.store];
        for shard in self.metas.take_dirty() {
            if !self.outlives_process {
                continue;
            }
            shared.scratch.clear();
            self.metas.get(shard).encode(&mut shared.scratch);
            state.store.put(&Place::Meta(self.database, shard), &shared.scratch);
            state.has_changes = true;
        }
    }

    fn write_registers(&mut self, shared: &mut WorkerState) {
        let state = &mut shared.stores[self.store];
        let census = &mut self.census;
        let mut count = |key: &Key, record: Option<&P::Record>, weight: &mut Weight| {
            let new = record.map_or(Weight::NONE, |record| P::weight(key, record));
            if new != *weight {
                census.change(key, *weight, new);
                *weight = new;
            }
        };
        if !self.outlives_process {
            self.cache.take_dirty(|key, record, weight| {
                count(key, record, weight);
                if record.is_none() {
                    state.store.remove(&Place::Cell(self.database, key.clone()));
                }
                UNENCODED_LEN
            });
            return;
        }
        let (scratch, counters) = (&mut shared.scratch, &mut shared.counters);
        let (waiters, database) = (&mut self.load_waiters, self.database);
        self.cache.take_dirty(|key, record, weight| {
            count(key, record, weight);
            let place = Place::Cell(database, key.clone());
            scratch.clear();
            match record {
                Some(record) => {
                    record.encode(scratch);
                    state.store.put(&place, scratch);
                }
                None => state.store.remove(&place),
            }
            state.has_changes = true;
            counters.registers_written += 1;
            waiters.supersede(key);
            scratch.len()
        });
        shared.census_wanted |= self.census.wants_more();
    }
}

impl<P: Protocol> Engine for EngineOf<P> {
    fn store(&self) -> usize {
        self.store
    }

    fn database(&self) -> Database {
        self.database
    }

    fn on_request(&mut self, shared: &mut WorkerState, mut request: Request) {
        let access = &mut request.command.access;
        match (*access, P::PROPERTIES.consistency) {
            (Access::OrderedRead, _) if mutation::is(Mutation::ZabReadsUnordered) => {
                *access = Access::Read;
            }
            // Takes a place among the writes, without a change.
            (Access::OrderedRead, Consistency::SequentialReads) => *access = Access::Update,
            (Access::OrderedRead, Consistency::Linearizable) => *access = Access::Read,
            (Access::UncommittedRead, _) if !P::PROPERTIES.uncommitted_reads => {
                return shared.reply(request.tag, Outcome::NoUncommittedReads(P::NAME));
            }
            _ => {}
        }
        if request.command.access == Access::Update && !P::PROPERTIES.read_modify_write {
            shared.reply(request.tag, Outcome::Unsupported(P::NAME));
        } else if self.load_waiters.len() >= WAITERS_MAX {
            shared.counters.events_refused += 1;
            shared.reply(request.tag, Outcome::NoQuorum);
        } else {
            self.admit(shared, EngineWork::Request(request));
        }
    }

    fn on_list(&mut self, shared: &mut WorkerState, tag: Tag, from_hash: u64, limit: usize) {
        self.admit(shared, EngineWork::List { tag, from_hash, limit });
    }

    fn on_explain(&mut self, shared: &mut WorkerState, tag: Tag, key: Key) {
        self.admit(shared, EngineWork::Explain { tag, key });
    }

    fn on_messages(
        &mut self,
        shared: &mut WorkerState,
        from: Peer,
        raw: &[RawMessage<'_>],
    ) -> usize {
        let keys = raw.iter().filter_map(|raw| P::Message::peek_key(raw.bytes));
        let keys: SmallVec<[Key; WARMED]> = keys.collect();
        self.cache.warm(keys.iter(), P::look);
        let is_overrun = shared.stores[self.store].store.is_overrun();
        let mut malformed = 0;
        for raw in raw {
            match decode::<P>(raw) {
                Ok(message) if (is_overrun || self.has_large_waiters()) && message.is_write() => {
                    shared.counters.messages_shed += 1;
                }
                Ok(message) => self.on_message(shared, from, message, raw.bytes.len() as u32),
                Err(Malformed) => malformed += 1,
            }
        }
        malformed
    }

    fn warm(&self, keys: &[&Key]) {
        self.cache.warm(keys.iter().copied(), P::look);
    }

    fn on_signal(&mut self, shared: &mut WorkerState, signal: Signal) {
        let event = match signal {
            Signal::PeerUp(node) => Event::PeerUp { node },
            Signal::PeerReset(node) => Event::PeerReset { node },
            Signal::PeerSteady(node) => Event::PeerSteady { node },
            Signal::ViewChanged => Event::ViewChanged,
            Signal::Timer(id) => Event::Timer(id),
        };
        self.step(shared, event);
    }

    fn on_stored(&mut self, shared: &mut WorkerState, upto: Ticket) {
        self.release(shared, upto);
        self.step_clearing(shared, upto);
    }

    fn on_loaded(&mut self, shared: &mut WorkerState, place: Place, load: Load) {
        match place {
            Place::Cell(_, key) => self.on_register_loaded(shared, &key, load),
            Place::Meta(_, shard) => self.on_meta_loaded(shared, shard, load),
        }
    }

    fn on_scanned(
        &mut self,
        shared: &mut WorkerState,
        scan: Scan,
        records: Vec<(Key, Bytes)>,
        next_hash: Option<u64>,
    ) {
        if self.is_hidden(shard_of(scan.from_hash)) {
            sometimes!("a listing is overtaken by amnesia");
            // Storage may have answered without the forgotten records. Scan again after the amnesia
            // count is raised.
            self.admit(shared, EngineWork::Scan(scan));
        } else {
            self.deliver_scan(shared, scan, records, next_hash);
        }
    }

    fn on_forgotten(&mut self, shared: &mut WorkerState, shard: Shard) {
        self.discover_forgotten(shared, shard);
    }

    fn on_amnesia_raised(&mut self, shared: &mut WorkerState) {
        self.reveal_amnesia(shared);
    }

    fn renew(&mut self, incarnation: Incarnation) {
        self.protocol.renew(incarnation);
    }

    fn on_group(&mut self, shared: &mut WorkerState, event: GroupEvent) {
        self.take_group_order(shared, event);
    }

    fn drop_queued_sends(&mut self) {
        self.durability_queue.retain(|effect| matches!(effect, QueuedEffect::Reply(..)));
    }

    fn on_start(&mut self, shared: &mut WorkerState) {
        self.find_forgotten(shared);
    }

    fn run(&mut self, shared: &mut WorkerState) {
        if self.touched {
            self.step(shared, Event::Turn);
            self.touched = false;
        }
        self.run_inner(shared);
    }

    fn has_work(&self) -> bool {
        self.touched || !self.inner.is_empty()
    }

    fn has_dirty(&self) -> bool {
        self.cache.has_dirty() || !self.fx.log.is_empty()
    }

    fn may_rest(&self, absent_kept: usize) -> bool {
        !self.has_work()
            && !self.has_dirty()
            && !self.metas.has_dirty()
            && self.load_waiters.is_empty()
            && self.durability_queue.len() == 0
            && self.group_waiting.is_empty()
            && self.clearing.is_empty()
            && self.cache.absent_len() <= absent_kept
    }

    fn set_open_ticket(&mut self, ticket: Ticket) {
        self.cache.set_open_ticket(ticket);
        self.metas.set_open_ticket(ticket);
        self.fx.open_ticket = ticket;
    }

    fn flush(&mut self, shared: &mut WorkerState) {
        // Metas first: where a batch is not atomic, floors must be there before the removals they
        // stand for.
        self.write_metas(shared);
        self.write_log(shared);
        self.write_registers(shared);
        self.date_clearing(shared);
    }

    fn resident(&self) -> usize {
        self.cache.len()
    }

    fn memory(&self) -> usize {
        self.cache.len() * REGISTER_OVERHEAD + self.cache.bytes()
    }

    fn packs(&self) -> bool {
        !self.outlives_process
    }

    fn pinned(&self) -> usize {
        self.cache.pinned()
    }

    fn evict(&mut self, shared: &mut WorkerState, shard: Shard) -> usize {
        if shared.is_scanned(self.index, shard) {
            return 0;
        }
        let (state, scratch) = (&mut shared.stores[self.store], &mut shared.scratch);
        self.cache.evict(shard, state.durable, |key, record, is_ahead| match record {
            Some(record) if !P::is_evictable(record) => Parting::Stays,
            Some(record) if !self.outlives_process => {
                scratch.clear();
                record.encode(scratch);
                state.store.put(&Place::Cell(self.database, key.clone()), scratch);
                Parting::Goes
            }
            _ if is_ahead => Parting::IsWritten,
            _ => Parting::Goes,
        })
    }

    fn drop_absent(&mut self, shared: &mut WorkerState, kept: usize) -> usize {
        // Storage reports lost registers of a forgotten shard as lost until it knows the recovery.
        if !self.forgotten.is_empty() || !self.clearing.is_empty() {
            return 0;
        }
        let (index, durable) = (self.index, shared.stores[self.store].durable);
        let is_scanned = |shard| shared.is_scanned(index, shard);
        let dropped = self.cache.drop_absent(kept, ABSENT_LOOKS_MAX, durable, is_scanned);
        if dropped > 0 {
            sometimes!("an absent register leaves memory");
        }
        dropped
    }

    fn check(&self, shared: &WorkerState) -> Result<(), Violation> {
        self.protocol.check(&self.cache, shared.replicas_of(None))
    }

    fn is_idle(&self) -> bool {
        self.protocol.is_idle()
            && !self.has_work()
            && self.load_waiters.is_empty()
            && self.durability_queue.len() == 0
            && self.group_waiting.is_empty()
            && self.clearing.is_empty()
            && !self.has_dirty()
    }

    fn load_waiters(&self) -> usize {
        self.load_waiters.len()
    }

    fn census(&self) -> &Census {
        &self.census
    }

    fn start_count(&self, shared: &mut WorkerState, scan: Scan) {
        shared.start_scan(self.index, self.store, self.database, scan, ScanPurpose::Census);
    }

    fn on_counted(
        &mut self,
        shared: &mut WorkerState,
        scan: Scan,
        records: &[(Key, Bytes)],
        next_hash: Option<u64>,
    ) -> bool {
        let shard = shard_of(scan.from_hash);
        if self.is_hidden(shard) {
            return false;
        }
        let below = next_hash.filter(|next| shard_of(*next) == shard);
        let cache = &self.cache;
        let in_range = |hash| hash >= scan.from_hash && below.is_none_or(|below| hash < below);
        let stored = records.iter().filter(|(key, _)| in_range(key.hash()) && !cache.has(key));
        let stored = stored.filter_map(|(key, bytes)| {
            P::Record::from_bytes(bytes).ok().map(|record| P::weight(key, &record))
        });
        self.census.take(shard, below, stored, cache.weights(shard, scan.from_hash, below));
        shared.census_wanted |= self.census.wants_more();
        true
    }

    fn figures(&self) -> Option<DatabaseFigures> {
        self.census.figures(self.database.0)
    }

    fn stats(&self, stats: &mut Stats) {
        self.protocol.stats(stats);
    }
}

const _: () = assert!(SHARDS == 256, "a shard is the top byte of a hash");
