//! One node of a small world: the protocol's code, its storage, and the outputs of a step.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::{Millis, Nanos, Prng, checksum};
use protocols::effects::{Effects, Scan, TimerId};
use protocols::register_cache::{Absence, CachedRegister, Metas, RegisterCache};
use protocols::{
    Context, Env, Event, GroupEvent, GroupReport, Peer, Protocol, Request, Scanned,
    ScannedRegister, Scope,
};
use protocols::{Lease, Leases, Peers, PutAside, ReplicaSet, ReplicaSets, Replicas};
use types::{
    AmnesiaCount, Command, Configuration, Database, Epoch, Incarnation, Key, LogChanges, LogImage,
    NodeId, Outcome, SessionId, Shard, Tag, Ticket, Wire,
};

use super::clients::CommandEnd;
use crate::workload::update::{SimUpdate, output};

/// The epoch whose lease a member holds; 0: none.
#[derive(Debug, Default)]
struct Lent(AtomicU32);

impl Lent {
    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, epoch: u32) {
        self.0.store(epoch, Ordering::Relaxed);
    }
}

impl Leases for Lent {
    fn holds(&self, _database: Database, epoch: Epoch) -> bool {
        self.get() == epoch.0
    }
}

/// Long enough that requests end only by a timer.
const REQUEST_TIMEOUT: Nanos = Nanos::from_secs(5);
/// Messages that a node may send to itself in a row.
const OWN_MAX: usize = 1_000;

/// A message on its way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct SentMessage {
    pub to: usize,
    pub from: (NodeId, Incarnation, AmnesiaCount),
    pub losses: Vec<(NodeId, AmnesiaCount)>,
    pub bytes: Vec<u8>,
}

/// An input to a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Input {
    /// A client issues the command of that number.
    Ask(u32),
    /// The message of that number arrives.
    Deliver(u32),
    /// The next timer fires.
    Fire,
    /// No timer will fire any more.
    Quiet,
    /// It starts again without its memory.
    Wipe,
    /// It starts again with its stored state.
    Restart,
    /// The connection to that node ends for good.
    Gone(u16),
    /// That node has started again, and there is a new connection to it.
    Back(u16),
    /// The node has a turn without any other event.
    Begin,
    /// The node seals every epoch below this one.
    Wedge(u32),
    /// This epoch begins at the node, which gets its lease at once.
    Install(u32),
    /// This epoch is active: leases of those below have ended.
    EndLease(u32),
}

/// The outputs of a step.
#[derive(Clone, Debug, Default)]
pub(super) struct StepOutput {
    pub sends: Vec<SentMessage>,
    pub ended: Vec<(u64, CommandEnd)>,
    /// This shadow has copied everything from before the epoch.
    pub copied: Option<u32>,
}

/// The constants of a world.
pub(super) struct Setting {
    pub ids: Vec<NodeId>,
    /// Those of them that are replicas of the key.
    pub replicas: Vec<NodeId>,
    pub key: Key,
    /// The configurations of a group, the first epoch first.
    pub configurations: Vec<Arc<Configuration>>,
    pub is_durable: bool,
    /// Timers may fire.
    pub has_timers: bool,
    pub commands: Vec<(SessionId, Command)>,
}

/// Stored bytes, as a restart finds them.
#[derive(Default, Debug)]
struct Stored {
    record: Option<Vec<u8>>,
    /// The fields of the key's shard, and those of the log.
    metas: BTreeMap<Shard, Vec<u8>>,
    log: LogImage,
}

impl Stored {
    fn change_log(&mut self, changes: LogChanges) {
        let cuts_first = changes.cuts_first();
        let LogChanges { from, records, below } = changes;
        let cut = |log: &mut LogImage| {
            let gone = below.saturating_sub(log.first).min(log.records.len() as u64);
            log.records.drain(..gone as usize);
            log.first = log.first.max(below);
        };
        if cuts_first {
            cut(&mut self.log);
        }
        if let Some(from) = from {
            self.log.records.truncate((from - self.log.first) as usize);
            self.log.records.extend(records);
        }
        if !cuts_first {
            cut(&mut self.log);
        }
    }
}

pub(super) struct ExploredNode<P: Protocol> {
    protocol: P,
    cache: RegisterCache<P::Record>,
    metas: Metas<P::Meta>,
    sets: ReplicaSets,
    peers: Peers,
    timers: BTreeSet<(Nanos, TimerId)>,
    now: Nanos,
    stored: Stored,
    lent: Lent,
    is_quiet: bool,
}

impl<P: Protocol + Debug> ExploredNode<P> {
    pub(super) fn new(setting: &Setting, index: usize) -> ExploredNode<P> {
        let me = setting.ids[index];
        let stored = Stored::default();
        ExploredNode::open(
            setting,
            me,
            (Incarnation(1), AmnesiaCount(1)),
            stored,
            !setting.has_timers,
        )
    }

    fn open(
        setting: &Setting,
        me: NodeId,
        (incarnation, amnesia): (Incarnation, AmnesiaCount),
        stored: Stored,
        is_quiet: bool,
    ) -> ExploredNode<P> {
        let shard = setting.key.shard();
        // An order over all keys needs one worker for all of them.
        let (worker, workers) =
            if P::PROPERTIES.total_order { (0, 1) } else { (usize::from(shard.0), 256) };
        let durable = setting.is_durable;
        let request_timeout = REQUEST_TIMEOUT;
        let compare_every = Nanos::ZERO;
        let env = Env {
            me,
            incarnation,
            request_timeout,
            once_timeout: request_timeout,
            compare_every,
            group_size: setting.ids.len(),
            transient: false,
            durable,
            worker,
            workers,
            log: stored.log.clone(),
            shared: Arc::default(),
        };
        let sets = ReplicaSets::shared(ReplicaSet::new(Epoch(1), me, &setting.replicas));
        let mut peers = Peers::new(me, incarnation, amnesia, &setting.ids);
        setting.ids.iter().for_each(|&id| peers.set_up(id, true));
        let absence = if durable { Absence::Kept } else { Absence::Certain };
        let mut cache = RegisterCache::new(absence);
        cache.set_open_ticket(Ticket::DURABLE);
        let mut metas = Metas::default();
        metas.set_open_ticket(Ticket::DURABLE);
        let (protocol, now) = (P::open(env), Nanos::from_secs(1));
        let (timers, lent) = (BTreeSet::new(), Lent::default());
        let mut node = ExploredNode {
            protocol,
            cache,
            metas,
            sets,
            peers,
            timers,
            now,
            stored,
            lent,
            is_quiet,
        };
        node.load(setting);
        node
    }

    fn install(&mut self, setting: &Setting, epoch: u32) -> GroupEvent {
        let configuration = setting.configurations[epoch as usize - 1].clone();
        let member = configuration.member(self.peers.me());
        let role = member.map(|member| member.role);
        self.lent.set(if role.is_some() { epoch } else { 0 });
        GroupEvent::Install { configuration, role }
    }

    /// Loads all stored registers.
    fn load(&mut self, setting: &Setting) {
        let shard = setting.key.shard();
        for shard in shards::<P>(setting) {
            let bytes = self.stored.metas.get(&shard);
            let meta = bytes.map(|bytes| P::Meta::from_bytes(bytes).expect("it was encoded here"));
            self.metas.fill(shard, meta.unwrap_or_default());
        }
        if setting.is_durable {
            let record = self
                .stored
                .record
                .as_ref()
                .map(|bytes| P::Record::from_bytes(bytes).expect("it was encoded here"));
            self.cache.fill(&setting.key, record, false);
            let mut fx = Effects::default();
            self.with_context(&mut fx, |protocol, cx| protocol.on_meta_loaded(cx, shard));
        }
        if P::PROPERTIES.needs_config {
            let event = self.install(setting, 1);
            let mut fx = Effects::default();
            self.with_context(&mut fx, |protocol, cx| protocol.on(cx, Event::Group(event)));
        }
    }

    /// Uses the same random draws in every step, so that the path to a state does not matter.
    fn with_context(
        &mut self,
        fx: &mut Effects<P::Message>,
        run: impl FnOnce(&mut P, &mut Context<'_, P>),
    ) {
        let up = Millis(1_000_000 + self.now.as_millis());
        let mut cx = Scope {
            now: self.now,
            unix: up,
            uptime: &up,
            cache: &mut self.cache,
            metas: &mut self.metas,
            fx,
            rng: &mut Prng::new(1),
            replicas: Replicas { set: self.sets.any(), peers: &self.peers },
            sets: &self.sets,
            lease: Lease { leases: &self.lent, database: Database(0) },
            update: &SimUpdate,
        };
        run(&mut self.protocol, &mut cx);
    }

    /// Applies an input.
    ///
    /// # Errors
    /// A broken rule.
    pub(super) fn take(
        &mut self,
        setting: &Setting,
        input: Input,
        envelope: Option<SentMessage>,
    ) -> Result<StepOutput, String> {
        let mut output = StepOutput::default();
        match input {
            Input::Ask(number) => {
                let (session, command) = setting.commands[number as usize].clone();
                let (tag, key) = (Tag(u64::from(number)), setting.key.clone());
                let request = Request { tag, session, key, command, asked_at: self.now };
                self.step(setting, Event::Request(request), &mut output)?;
            }
            Input::Deliver(_) => {
                let envelope = envelope.expect("a message comes with its number");
                self.deliver(setting, envelope, &mut output)?;
            }
            Input::Fire => {
                if let Some((at, timer)) = self.timers.pop_first() {
                    self.now = self.now.max(at);
                    self.step(setting, Event::Timer(timer), &mut output)?;
                }
            }
            Input::Quiet => {
                self.timers.clear();
                self.is_quiet = true;
            }
            Input::Wipe => self.wipe(setting, &mut output)?,
            Input::Restart => self.restart(setting),
            Input::Wedge(epoch) => {
                self.lent.set(0);
                let event = GroupEvent::Wedge { epoch: Epoch(epoch) };
                self.step(setting, Event::Group(event), &mut output)?;
            }
            Input::Install(epoch) => {
                let event = self.install(setting, epoch);
                self.step(setting, Event::Group(event), &mut output)?;
            }
            Input::EndLease(epoch) if self.lent.get() < epoch => self.lent.set(0),
            Input::EndLease(_) => {}
            Input::Begin => self.step(setting, Event::Turn, &mut output)?,
            Input::Gone(node) => self.lose_peer(setting, NodeId(node), &mut output)?,
            Input::Back(node) => {
                let known = self.peers.get(NodeId(node)).map_or(0, |it| it.incarnation.0);
                // A first start has incarnation 1, which the others need not have heard of.
                let incarnation = Incarnation(known.max(1) + 1);
                self.peers.learn(NodeId(node), incarnation, AmnesiaCount(0));
                self.lose_peer(setting, NodeId(node), &mut output)?;
                self.peers.set_up(NodeId(node), true);
                self.step(setting, Event::PeerUp { node: NodeId(node) }, &mut output)?;
            }
        }
        Ok(output)
    }

    fn lose_peer(
        &mut self,
        setting: &Setting,
        node: NodeId,
        output: &mut StepOutput,
    ) -> Result<(), String> {
        self.peers.set_up(node, false);
        self.step(setting, Event::PeerReset { node }, output)
    }

    fn me(&self) -> (NodeId, Incarnation, AmnesiaCount) {
        let me = self.peers.own();
        (me.node, me.incarnation, me.amnesia)
    }

    fn wipe(&mut self, setting: &Setting, output: &mut StepOutput) -> Result<(), String> {
        let (me, incarnation, amnesia) = self.me();
        let begun = (Incarnation(incarnation.0 + 1), AmnesiaCount(amnesia.0 + 1));
        *self = ExploredNode::open(setting, me, begun, Stored::default(), self.is_quiet);
        let shard = setting.key.shard();
        self.cache.set_forgotten(shard, true);
        self.step(setting, Event::Forgotten { shard }, output)
    }

    fn restart(&mut self, setting: &Setting) {
        let (me, incarnation, amnesia) = self.me();
        let begun = (Incarnation(incarnation.0 + 1), amnesia);
        let stored = std::mem::take(&mut self.stored);
        *self = ExploredNode::open(setting, me, begun, stored, self.is_quiet);
    }

    /// Handles a frame like a worker: crash vectors first, then all messages that are not void.
    fn deliver(
        &mut self,
        setting: &Setting,
        envelope: SentMessage,
        output: &mut StepOutput,
    ) -> Result<(), String> {
        let SentMessage { from: (node, incarnation, amnesia), losses, bytes, .. } = envelope;
        let me = self.peers.me();
        let mut grew = self.peers.learn(node, incarnation, amnesia);
        for (other, amnesia) in losses.into_iter().filter(|(other, _)| *other != me) {
            grew |= self.peers.learn(other, Incarnation(0), amnesia);
        }
        let is_void = self.peers.get(node).is_some_and(|known| amnesia < known.amnesia);
        if grew {
            self.step(setting, Event::ViewChanged, output)?;
        }
        if is_void {
            return Ok(());
        }
        let message = P::Message::from_bytes(&bytes).map_err(|_| "a message without meaning")?;
        let from = Peer { node, incarnation, amnesia };
        self.step(setting, Event::Peer { from, message }, output)
    }

    /// Handles one event, its messages to the own node, and the end of the turn.
    fn step(
        &mut self,
        setting: &Setting,
        event: Event<P>,
        output: &mut StepOutput,
    ) -> Result<(), String> {
        let mut own = self.run(setting, event, output)?;
        own.extend(self.run(setting, Event::Turn, output)?);
        let mut handled = 0;
        while !own.is_empty() {
            for event in std::mem::take(&mut own) {
                own.extend(self.run(setting, event, output)?);
            }
            own.extend(self.run(setting, Event::Turn, output)?);
            handled += 1;
            if handled > OWN_MAX {
                return Err("it never stops talking to itself".into());
            }
        }
        Ok(())
    }

    /// Answers the node's messages to itself.
    fn run(
        &mut self,
        setting: &Setting,
        event: Event<P>,
        output: &mut StepOutput,
    ) -> Result<Vec<Event<P>>, String> {
        let mut fx = Effects::default();
        self.with_context(&mut fx, |protocol, cx| protocol.on(cx, event));
        self.store(setting, std::mem::take(&mut fx.log));
        let checked =
            self.protocol.check(&self.cache, Replicas { set: self.sets.any(), peers: &self.peers });
        checked.map_err(|violation| violation.0)?;
        self.carry_out(fx, output)
    }

    /// Flushed data is durable at once.
    fn store(&mut self, setting: &Setting, log: LogChanges) {
        let stored = &mut self.stored;
        for shard in self.metas.take_dirty() {
            if setting.is_durable {
                stored.metas.insert(shard, self.metas.get(shard).to_bytes());
            }
        }
        if setting.is_durable {
            stored.change_log(log);
        }
        self.cache.take_dirty(|_, record, _| {
            if setting.is_durable {
                stored.record = record.map(Wire::to_bytes);
            }
            0
        });
    }

    fn carry_out(
        &mut self,
        fx: Effects<P::Message>,
        output: &mut StepOutput,
    ) -> Result<Vec<Event<P>>, String> {
        if let Some(violation) = fx.violation {
            return Err(violation.0);
        }
        for report in fx.group {
            match report {
                GroupReport::Copied { epoch } => output.copied = Some(epoch.0),
                GroupReport::Sealed { .. } => {}
                GroupReport::Erased { .. } | GroupReport::Lost => {
                    return Err(format!("it reports {report:?}, and no register was lost"));
                }
            }
        }
        let mut own = Vec::new();
        if !self.is_quiet {
            self.timers.extend(fx.timers.into_iter().map(|(timer, at)| (at, timer)));
        }
        fx.recovered.into_iter().for_each(|shard| self.cache.set_forgotten(shard, false));
        own.extend(fx.scans.iter().map(|scan| Event::Scanned(self.scanned(scan))));
        let from = self.me();
        let losses: Vec<_> = self.peers.nodes().iter().map(|it| (it.node, it.amnesia)).collect();
        for send in fx.sends {
            let (node, incarnation, amnesia) = from;
            if send.to == node {
                let from = Peer { node, incarnation, amnesia };
                own.push(Event::Peer { from, message: send.message });
                continue;
            }
            let to = usize::from(send.to.0) - 1;
            let (losses, bytes) = (losses.clone(), send.message.to_bytes());
            output.sends.push(SentMessage { to, from, losses, bytes });
        }
        own.extend(fx.again.into_iter().map(|input| match input {
            PutAside::Request(request) => Event::Request(request),
            PutAside::Message { from, message } => Event::Peer { from, message },
        }));
        for (tag, outcome, _) in fx.outcomes {
            output.ended.push((tag.0, ended(&outcome)?));
        }
        Ok(own)
    }

    fn scanned(&self, scan: &Scan) -> Scanned<P::Record> {
        let shard = Shard((scan.from_hash >> 56) as u8);
        let limit = scan.limit.max(1);
        let (found, next_hash) = self.cache.range_step(shard, scan.from_hash, None, limit);
        let records = found.into_iter().filter_map(|(key, found)| match found {
            CachedRegister::Present(record) => {
                let copy = P::Record::from_bytes(&record.to_bytes()).expect("it was encoded here");
                Some((key.clone(), ScannedRegister::Present(copy)))
            }
            CachedRegister::Lost => Some((key.clone(), ScannedRegister::Lost)),
            CachedRegister::Absent => None,
        });
        Scanned { id: scan.id, records: records.collect(), next_hash }
    }

    pub(super) fn has_timers(&self) -> bool {
        !self.timers.is_empty()
    }

    pub(super) fn next_timer(&self) -> Option<(Nanos, TimerId)> {
        self.timers.first().copied()
    }

    /// All that determines its next steps, in 128 bits.
    pub(super) fn digest(&self, setting: &Setting) -> u128 {
        let found = match self.cache.get(&setting.key) {
            CachedRegister::Present(record) => Some(Some(record)),
            CachedRegister::Lost => Some(None),
            CachedRegister::Absent => None,
        };
        let metas = shards::<P>(setting).map(|shard| self.metas.get(shard));
        let metas: Vec<&P::Meta> = metas.collect();
        let mut text = String::new();
        let stored = &self.stored;
        write!(text, "{:?}{found:?}{metas:?}{:?}", self.protocol, self.peers)
            .and_then(|()| {
                write!(text, "{:?}{:?}{stored:?}{}", self.timers, self.now, self.lent.get())
            })
            .expect("a String accepts every write");
        hash(ranked(&text).as_bytes())
    }
}

/// The shards whose fields a node has.
fn shards<P: Protocol>(setting: &Setting) -> impl Iterator<Item = Shard> {
    let of_key = setting.key.shard();
    let of_log = Some(Shard(0)).filter(|shard| P::PROPERTIES.keeps_log && *shard != of_key);
    std::iter::once(of_key).chain(of_log)
}

fn ended(outcome: &Outcome) -> Result<CommandEnd, String> {
    Ok(match outcome {
        Outcome::Reply(reply) => {
            CommandEnd::Returned(output(reply).ok_or("a reply without meaning")?)
        }
        Outcome::Unknown => CommandEnd::Unknown,
        _ => CommandEnd::Failed,
    })
}

/// 128 bits of hash.
pub(super) fn hash(bytes: &[u8]) -> u128 {
    u128::from(checksum::checksum(1, bytes)) << 64 | u128::from(checksum::checksum(2, bytes))
}

/// Replaces numbers that are only compared (`@17`) by their ranks.
fn ranked(text: &str) -> String {
    let pieces = || {
        text.split('@').skip(1).map(|piece| {
            let end = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
            (piece[..end].parse::<u64>().ok(), &piece[end..])
        })
    };
    let numbers: BTreeSet<u64> = pieces().filter_map(|(number, _)| number).collect();
    let mut out = text.split('@').next().unwrap_or_default().to_string();
    for (number, rest) in pieces() {
        let rank = number.map(|number| numbers.range(..number).count());
        write!(out, "@{rank:?}{rest}").expect("a String accepts every write");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compared_numbers_become_ranks() {
        assert_eq!(ranked("a: @17, b: @3, c: @17"), ranked("a: @9, b: @1, c: @9"));
        assert_ne!(ranked("a: @17, b: @3"), ranked("a: @3, b: @17"));
        assert_ne!(ranked("a: @17, b: @17"), ranked("a: @17, b: @18"));
        assert_eq!(ranked("nothing: 17"), "nothing: 17");
    }
}
