//! The control thread: opens and authenticates connections, carries out formation's effects, and
//! alone writes the node's identity.
//!
//! It hands an authenticated worker link to its worker and forgets it until the worker reports its
//! end. Before that it notes the peer's counters durably. So a worker never processes messages of a
//! peer whose counters this node could forget.

mod command_window;
mod full_disk;
mod groups;
mod links;
mod operator;
mod orders;
mod reach;
mod reports;
mod watch;
mod worker_links;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use base::{Nanos, Prng};
use mio::event::Event;
use mio::{Events, Interest, Poll, Token};
use protocols::Stats;
use storage::data_dir::{DataDir, DataDirError};
use transport::{Acceptor, Network};
use types::limits::ONCE_TIMEOUT_MAX;
use types::{AmnesiaCount, Incarnation, NodeId, Positions, Update, Wire};

use full_disk::{FullDisk, IdentityWrite};
use links::Conn;
use orders::Orders;
use reach::Reach;
use reports::Reports;
use watch::{Members, RecoveryWatch};
use worker_links::WorkerLinks;

use super::dialler::Dialler;
use super::mailbox::{ControlMail, Mail, Mailbox};
use super::media::{Media, Start};
use super::node_status::{Membership, STOP_MAX, SharedNodeStatus};
use super::record;
use crate::events::event;
use crate::formation::{Effect, Formation, FormationInput, Standing};
use crate::groups::{GroupEffect, Groups, register};
use crate::session::SessionFactory;
use crate::status::{CommandFacts, Phase};
use crate::uptime::Keeper;
use crate::worker::{Input, Words, Worker, WorkerConfig};

pub(crate) const TOKEN_MAIL: Token = Token(0);
const TOKEN_ACCEPTOR: Token = Token(1);
const TOKEN_BASE: usize = 2;

/// Accepted connections that have not proven themselves, at most. A new one takes the place of the
/// oldest.
pub const UNPROVEN_MAX: usize = 32;

/// The same of one address: of all members on one machine, with their control links and those to
/// workers.
const UNPROVEN_OF_ADDRESS_MAX: usize = 24;

/// How often to look whether others are to be told that this node recovers.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);

/// The same while this node recovers.
const LOOK_EVERY_RECOVERING: Nanos = Nanos::from_millis(250);

/// One complaint about a peer per this time.
const COMPLAINT_EVERY: Nanos = Nanos::from_secs(60);

/// The parts that the control thread is made of.
pub(crate) struct ControlParts {
    pub(crate) node_status: Arc<SharedNodeStatus>,
    pub(crate) poll: Poll,
    pub(crate) network: Box<dyn Network>,
    pub(crate) acceptor: Box<dyn Acceptor>,
    pub(crate) formation: Formation,
    pub(crate) dir: DataDir,
    /// `None` where everything has to be forgotten first.
    pub(crate) media: Option<Media>,
    pub(crate) update: Arc<dyn Update>,
    pub(crate) factory: Arc<dyn SessionFactory>,
    pub(crate) rng: Prng,
}

pub(crate) struct Control {
    node_status: Arc<SharedNodeStatus>,
    mailbox: Arc<Mailbox<ControlMail>>,
    poll: Poll,
    network: Box<dyn Network>,
    acceptor: Box<dyn Acceptor>,
    formation: Formation,
    dir: DataDir,
    media: Option<Media>,
    /// Handles whose drop would stop the workers' stores.
    guards: Vec<Box<dyn Any + Send>>,
    has_begun: bool,
    update: Arc<dyn Update>,
    factory: Arc<dyn SessionFactory>,
    rng: Prng,
    dialler: Dialler,
    /// Members that dial this node and were not yet told that it is there.
    unknocked: Vec<NodeId>,
    conns: Vec<Option<Conn>>,
    /// Connections wait that could not be accepted, most likely for want of file descriptors.
    has_backlog: bool,
    /// The control link of each peer.
    links: BTreeMap<NodeId, usize>,
    worker_links: WorkerLinks,
    reach: Reach,
    reports: Reports,
    commands: Option<Arc<dyn CommandFacts>>,
    members: Members,
    /// Why links to members ended that were not yet reported as lost.
    reasons: BTreeMap<NodeId, String>,
    recovery: RecoveryWatch,
    /// Whether there was a quorum at the last look, and since when. `None` until there is one.
    quorum: Option<(bool, Nanos)>,
    /// Members that are slow, by the thread that noticed.
    slow: BTreeSet<(usize, NodeId)>,
    standing_at_start: Standing,
    waiting_for: Vec<NodeId>,
    complained: BTreeMap<Option<NodeId>, (Nanos, String)>,
    refused: u64,
    /// Refusals as a former self since the last message of a peer.
    stale: u32,
    malformed: u64,
    uptimes: Keeper,
    full_disk: FullDisk,
    /// From the beginning on, if a database needs it.
    groups: Option<Groups>,
    group_effects: Vec<GroupEffect>,
    orders: Orders,
    scratch: Vec<u8>,
}

impl Control {
    /// # Errors
    /// When the acceptor cannot be waited for.
    pub(crate) fn new(parts: ControlParts) -> std::io::Result<Control> {
        let ControlParts {
            node_status,
            poll,
            network,
            mut acceptor,
            formation,
            dir,
            media,
            update,
            ..
        } = parts;
        let (factory, mut rng) = (parts.factory, parts.rng);
        // Statistics for the reports to the other nodes.
        let commands = factory.commands();
        poll.registry().register(&mut acceptor, TOKEN_ACCEPTOR, Interest::READABLE)?;
        let (me, workers) = (node_status.id(), node_status.workers.len());
        let members = formation.durable().members.iter().map(|member| member.node);
        let dialler = Dialler::new(members.filter(|&node| node > me), rng.fork());
        let identity = dir.identity().expect("a node is started before its threads");
        let uptimes = record::restore_clocks(identity, node_status.clocks.now());
        Ok(Control {
            mailbox: Arc::clone(&node_status.control),
            node_status,
            poll,
            network,
            acceptor,
            formation,
            dir,
            media,
            guards: Vec::new(),
            has_begun: false,
            update,
            factory,
            rng,
            dialler,
            unknocked: Vec::new(),
            conns: Vec::new(),
            has_backlog: false,
            links: BTreeMap::new(),
            worker_links: WorkerLinks::new(workers),
            reach: Reach::default(),
            reports: Reports::default(),
            commands,
            members: Members::default(),
            reasons: BTreeMap::new(),
            recovery: RecoveryWatch::default(),
            quorum: None,
            slow: BTreeSet::new(),
            standing_at_start: Standing::Empty,
            waiting_for: Vec::new(),
            complained: BTreeMap::new(),
            refused: 0,
            stale: 0,
            malformed: 0,
            uptimes,
            full_disk: FullDisk::default(),
            groups: None,
            group_effects: Vec::new(),
            orders: Orders::default(),
            scratch: vec![0; 64 << 10],
        })
    }

    /// Runs until the node stops. An error is a reason to stop the node.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        self.report_start();
        self.tell(FormationInput::Start)?;
        self.unknocked = self.others().filter(|&peer| !self.dialler.dials(peer)).collect();
        self.knock();
        self.carry_out_groups()?;
        let mut events = Events::with_capacity(256);
        let mut mail = Vec::new();
        let mut stop_at = None;
        loop {
            self.publish();
            let now = self.node_status.clocks.now();
            if self.node_status.is_stopping() {
                let until = *stop_at.get_or_insert(now + Nanos(STOP_MAX.as_nanos() as u64));
                if self.node_status.has_failed() || self.node_status.is_drained() || now >= until {
                    return self.end();
                }
            }
            let wait = if self.mailbox.may_sleep() {
                self.wait(now, stop_at)
            } else {
                Some(Duration::ZERO)
            };
            let polled = self.poll.poll(&mut events, wait);
            self.mailbox.awake();
            if let Err(error) = polled
                && error.kind() != ErrorKind::Interrupted
            {
                return Err(format!("waiting for connections failed: {error}"));
            }
            for event in &events {
                self.on_event(event)?;
            }
            self.mailbox.take(&mut mail);
            for one in mail.drain(..) {
                self.on_mail(one)?;
            }
            self.on_time()?;
        }
    }

    fn wait(&self, now: Nanos, stop_at: Option<Nanos>) -> Option<Duration> {
        let conns = self.conns.iter().flatten().map(|conn| conn.connection.next_timer()).min();
        let every = if self.recovery.is_on() { LOOK_EVERY_RECOVERING } else { LOOK_EVERY };
        let look = Some(now + every);
        let lost = self.members.next_timer();
        let (uptime, dial) = (self.uptimes.next(now), self.dialler.next_timer());
        let retry = self.full_disk.next_timer();
        let groups = self.groups.as_ref().and_then(Groups::next_timer);
        let next = [conns, look, lost, uptime, dial, retry, groups, stop_at]
            .into_iter()
            .flatten()
            .min()?;
        // Rounded up: waking a little early would mean waking twice.
        Some(Duration::from_nanos(next.since(now).0 + 999_999))
    }

    fn on_event(&mut self, event: &Event) -> Result<(), String> {
        match event.token() {
            TOKEN_MAIL => Ok(()),
            TOKEN_ACCEPTOR => {
                self.accept();
                Ok(())
            }
            Token(token) => {
                let at = token - TOKEN_BASE;
                if let Some(Some(conn)) = self.conns.get_mut(at) {
                    conn.blocked &= !event.is_writable();
                    self.read(at)?;
                    self.flush(at)?;
                }
                Ok(())
            }
        }
    }

    fn on_time(&mut self) -> Result<(), String> {
        let now = self.node_status.clocks.now();
        // First of all: workers may be held back until this is durable.
        self.keep_uptimes(now)?;
        if self.groups.as_ref().and_then(Groups::next_timer).is_some_and(|at| at <= now) {
            self.with_groups(|groups, now, out| groups.on_time(now, out));
        }
        for at in 0..self.conns.len() {
            let Some(conn) = self.conns[at].as_mut() else { continue };
            if conn.connection.next_timer() <= now {
                match conn.connection.on_time(now) {
                    Ok(()) => self.flush(at)?,
                    // The peer is silent because this node does not read.
                    Err(_) if conn.is_held() => self.drop_conn(at, None)?,
                    Err(reset) => self.drop_conn(at, Some(reset))?,
                }
            }
        }
        self.retry_held(now)?;
        if self.has_backlog {
            self.accept();
        }
        self.knock();
        self.dial_due(now);
        self.report_changes(now);
        self.tell(FormationInput::Recovering(self.node_status.is_recovering()))?;
        self.send_reports(now)?;
        self.carry_out_groups()
    }

    /// Saves the clocks of countdowns where that is due, see [`crate::uptime`].
    fn keep_uptimes(&mut self, now: Nanos) -> Result<(), String> {
        let Some(save) = self.uptimes.look(now) else { return Ok(()) };
        self.pulse_groups()?;
        let result = record::save_clocks(&mut self.dir, save.clone(), false);
        let now = self.node_status.clocks.now();
        match result {
            Ok(()) => {
                self.uptimes.on_saved(&save, now);
                self.report_write(IdentityWrite::Clocks, true);
            }
            // File systems that copy on write need room for it. A crash costs more until there is.
            Err(DataDirError::Full(_)) => {
                self.uptimes.on_refused(now);
                self.report_write(IdentityWrite::Clocks, false);
            }
            Err(error) => return Err(error.to_string()),
        }
        self.node_status.workers.iter().for_each(|mailbox| mailbox.notify());
        Ok(())
    }

    /// The last word before the thread ends.
    fn end(&mut self) -> Result<(), String> {
        match self.uptimes.close(self.node_status.clocks.now()) {
            Some(save) => match record::save_clocks(&mut self.dir, save, true) {
                Ok(()) => Ok(()),
                // The next start takes it for a crash.
                Err(DataDirError::Full(_)) => {
                    self.report_write(IdentityWrite::Clocks, false);
                    Ok(())
                }
                Err(error) => Err(error.to_string()),
            },
            None => Ok(()),
        }
    }

    fn on_mail(&mut self, mail: ControlMail) -> Result<(), String> {
        match mail {
            ControlMail::LinkDown { peer, channel, serial, why } => {
                if self.worker_links.remove(peer, channel, serial) {
                    let now = self.node_status.clocks.now();
                    self.dialler.failed(peer, channel, now);
                    self.report_end(Some(peer), self.address(peer), why);
                }
                Ok(())
            }
            // The next iteration checks them.
            ControlMail::UptimesChanged => Ok(()),
            ControlMail::RaiseAmnesia { worker, at } => self.raise_amnesia(worker, at),
            ControlMail::Renew { worker, below } => self.renew(worker, below),
            ControlMail::Suspect { database, node } => {
                self.with_groups(|groups, now, out| groups.on_suspect(now, database, node, out));
                Ok(())
            }
            ControlMail::Group { worker, database, report } => {
                self.with_groups(|groups, now, out| {
                    groups.on_report(now, worker, (database, report), out);
                });
                Ok(())
            }
            ControlMail::Register { group, token, outcome } => {
                let result = register::result(outcome);
                self.with_groups(|groups, now, out| {
                    groups.on_register(now, (group, token), result, out);
                });
                Ok(())
            }
            ControlMail::Order { order, answer } => {
                self.on_order(order, answer);
                Ok(())
            }
            ControlMail::Slow { event_loop, peer, is_slow } => {
                self.report_slow(event_loop, peer, is_slow);
                Ok(())
            }
        }
    }

    fn raise_amnesia(&mut self, worker: usize, at: AmnesiaCount) -> Result<(), String> {
        let current = self.formation.durable().mine.amnesia;
        if current > at {
            // Another worker asked for it as well.
            self.node_status.workers[worker].send(Mail::Amnesia(current));
            return Ok(());
        }
        self.pulse_groups()?;
        let amnesia = self.dir.raise_amnesia().map_err(|error| error.to_string())?;
        self.report_amnesia(
            "recovery begins: stored data is damaged or lost, the other members have copies",
        );
        let mut effects = Vec::new();
        self.formation.raise_amnesia(amnesia, &mut effects);
        self.carry_out(effects)?;
        self.node_status.workers.iter().for_each(|mailbox| mailbox.send(Mail::Amnesia(amnesia)));
        Ok(())
    }

    /// Takes an incarnation that no fence shuts out. Links keep naming the first one, so to the
    /// others this is the same process.
    fn renew(&mut self, worker: usize, below: Incarnation) -> Result<(), String> {
        let mut current = self.dir.identity().map_or(below, |identity| identity.incarnation);
        if current < below {
            self.pulse_groups()?;
            current = match self.dir.raise_incarnation() {
                Ok(incarnation) => incarnation,
                // The worker asks again.
                Err(DataDirError::Full(_)) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            };
            event!(
                self.node_status,
                WARN,
                "transactions",
                "the others took this node for gone: its transactions in progress end",
                incarnation = current.0
            );
        }
        self.node_status.workers[worker].send(Mail::Renewed(current));
        Ok(())
    }

    fn tell(&mut self, told: FormationInput) -> Result<(), String> {
        let mut effects = Vec::new();
        self.formation.on(told, &mut effects);
        self.carry_out(effects)
    }

    /// Lets formation take a step that a peer asks for. False if the disk has no room for the note
    /// that comes first. All is as before then, and the step may be repeated.
    fn attempt(
        &mut self,
        step: impl FnOnce(&mut Formation, &mut Vec<Effect>),
    ) -> Result<bool, String> {
        let mut next = self.formation.clone();
        let mut effects = Vec::new();
        step(&mut next, &mut effects);
        // A member notes once in a step. Before it is one, a step may consist of several notes.
        if self.formation.is_formed()
            && let Some(Effect::Persist(durable)) = effects.first()
        {
            match record::write(&mut self.dir, durable) {
                Ok(()) => self.report_write(IdentityWrite::Notes, true),
                Err(DataDirError::Full(_)) => {
                    self.report_write(IdentityWrite::Notes, false);
                    return Ok(false);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        self.formation = next;
        self.carry_out(effects)?;
        Ok(true)
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> Result<(), String> {
        for effect in effects {
            match effect {
                Effect::Persist(durable) => {
                    record::write(&mut self.dir, &durable).map_err(|error| error.to_string())?;
                }
                Effect::TellAll => {
                    for peer in self.links.keys().copied().collect::<Vec<_>>() {
                        self.send_status(peer)?;
                    }
                }
                Effect::Tell(peer) => self.send_status(peer)?,
                Effect::Reconnect => self.reconnect()?,
                Effect::Forget => self.forget()?,
                Effect::Formed => self.begin()?,
                Effect::Agree(agreed) => self.factory.agree(&agreed),
                Effect::Raised(level) => {
                    let level = level.0;
                    event!(
                        self.node_status,
                        INFO,
                        "cluster",
                        "feature level raised",
                        level = level
                    );
                }
                Effect::Complain { peer, text } => {
                    let addr = self.address(peer);
                    self.complain(Some(peer), addr, "cannot form a cluster with a member", text);
                }
                Effect::Fail(text) => return Err(text),
            }
        }
        Ok(())
    }

    fn send_status(&mut self, peer: NodeId) -> Result<(), String> {
        let Some(&at) = self.links.get(&peer) else { return Ok(()) };
        self.send(at, &self.formation.status().to_bytes())
    }

    /// Sends a message on a control link.
    fn send(&mut self, at: usize, message: &[u8]) -> Result<(), String> {
        let now = self.node_status.clocks.now();
        let Some(conn) = self.conns[at].as_mut() else { return Ok(()) };
        match conn.connection.send(now, message) {
            Ok(()) => self.flush(at),
            Err(reset) => self.drop_conn(at, Some(reset)),
        }
    }

    /// Closes every connection: this node introduces itself anew, with other counters.
    fn reconnect(&mut self) -> Result<(), String> {
        self.node_status.workers.iter().for_each(|mailbox| mailbox.send(Mail::DropLinks));
        self.follow_members();
        for at in 0..self.conns.len() {
            self.drop_conn(at, None)?;
        }
        Ok(())
    }

    /// Dials the members that formation names: a node that rejoins takes their list.
    fn follow_members(&mut self) {
        let me = self.node_status.id();
        let members = self.formation.durable().members.iter();
        let others = members.filter(|member| member.node != me);
        let peers: BTreeMap<NodeId, String> =
            others.map(|member| (member.node, member.peer.clone())).collect();
        self.dialler.set_peers(&peers.keys().copied().filter(|&peer| peer > me).collect());
        self.unknocked.retain(|peer| peers.contains_key(peer));
        self.network.set_peers(peers);
    }

    /// Everything in the stores is void: they are made anew, and say so.
    fn forget(&mut self) -> Result<(), String> {
        self.report_amnesia(
            "recovery begins: this node has lost its data and takes it from the other members",
        );
        self.media = None;
        Media::wipe(&self.node_status.config.data_dir)?;
        let binding = self.dir.identity().map_or(0, |identity| identity.binding);
        let media = Media::open(
            &self.node_status.config,
            binding,
            Start::Forgotten,
            &self.node_status.workers,
        );
        self.media = Some(media.map_err(|error| error.to_string())?);
        self.tell(FormationInput::Forgotten)
    }

    /// The node is a member: its workers begin.
    fn begin(&mut self) -> Result<(), String> {
        let mut media = self.media.take().expect("stores are opened before a node is formed");
        let positions = self.positions();
        let stores = media.stores.iter_mut().flatten();
        stores.for_each(|store| store.set_positions(&positions));
        self.has_begun = true;
        self.guards.append(&mut media.guards);
        if let Some(committer) = media.committer.take() {
            self.node_status.set_committer(committer);
        }
        for warning in &media.warnings {
            event!(self.node_status, WARN, "storage", warning.as_str());
        }
        let leases = self.open_groups();
        let durable = self.formation.durable();
        // Workers must know which messages are void before the first one arrives.
        let first: Vec<Input> = durable
            .known
            .iter()
            .flat_map(|(&node, known)| {
                let (incarnation, amnesia) = (known.incarnation, known.amnesia);
                [Input::PeerUp { node, incarnation, amnesia }, Input::PeerReset { node }]
            })
            .collect();
        let config = &self.node_status.config;
        let words = Words::default();
        for (index, stores) in media.stores.into_iter().enumerate() {
            let settings = WorkerConfig {
                index,
                workers: self.node_status.workers.len(),
                me: config.id,
                incarnation: durable.mine.incarnation,
                amnesia: durable.mine.amnesia,
                members: durable.members.iter().map(|member| member.node).collect(),
                replicas: None,
                seed: self.rng.next_u64(),
                request_timeout: Nanos::from_millis(config.request_timeout.0),
                once_timeout: Nanos::from_millis(ONCE_TIMEOUT_MAX.0),
                gone_after: crate::worker::GONE_AFTER,
                cache_memory: config.cache_memory / self.node_status.workers.len(),
                scrub: config.scrub,
                counts_keys: true,
                uptimes: self.uptimes.uptimes(),
                leases: Arc::clone(&leases),
                words: words.clone(),
            };
            let now = self.node_status.clocks.now();
            let update = Arc::clone(&self.update);
            let worker = Worker::new(settings, stores, &media.specs, update, now)
                .map_err(|error| error.to_string())?;
            let (worker, first) = (Box::new(worker), first.clone());
            self.node_status.workers[index].send(Mail::Begin { worker, first });
        }
        // Sessions may name keys only now: those of another cluster would lie elsewhere.
        assert_eq!(self.node_status.positions.get_or_init(|| positions.clone()), &positions);
        self.report_begin();
        for peer in self.links.keys().copied().collect::<Vec<_>>() {
            self.want_links(peer);
        }
        self.start_groups()
    }

    /// Where the cluster's keys lie.
    ///
    /// # Panics
    /// If the node is no member.
    fn positions(&self) -> Positions {
        let Standing::Formed(cluster) = self.formation.durable().standing else {
            panic!("only a member has keys")
        };
        Positions::new(&cluster.secret)
    }

    fn publish(&self) {
        let linked = self.others().filter(|&peer| self.worker_links.is_complete(peer)).collect();
        let waiting_for = self.formation.waiting_for();
        let durable = self.formation.durable().clone();
        let phase = match durable.standing {
            Standing::Formed(_) => Phase::Formed,
            Standing::Rejoining(_) => Phase::Rejoining { waiting_for },
            Standing::Uncertain => Phase::Rejoining { waiting_for },
            Standing::Empty | Standing::Proposed(_) => Phase::Forming { waiting_for },
        };
        let mut stats = Stats::default();
        stats.add("handshakes_refused", self.refused);
        stats.add("frames_malformed", self.malformed);
        let cluster = self.formation.cluster();
        let recovering = self.formation.recovering();
        let refused = self.others().filter_map(|peer| Some((peer, self.formation.refused(peer)?)));
        let (refused, agreed) = (refused.collect(), self.formation.agreed());
        let groups = self.groups.as_ref().map(Groups::views).unwrap_or_default();
        let membership = Membership {
            durable,
            cluster,
            phase,
            linked,
            recovering,
            refused,
            agreed,
            groups,
            stats,
        };
        self.node_status.set_membership(membership);
    }
}
