//! The node status that all threads share: standing, events, and the order to stop.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use base::{Millis, Nanos};
use mio::Waker;
use protocols::Stats;
use storage::{Lack, disk};
use transport::ClusterId;
use types::{
    AmnesiaCount, Command, Database, Epoch, Incarnation, Key, NodeId, Outcome, Positions,
    SessionId, Tag,
};

use super::clock::Clocks;
use super::cluster_view::ClusterView;
use super::long_threads::LongThreads;
use super::mailbox::{ControlMail, Mail, Mailbox};
use super::own_requests::{OutcomeHandler, OwnRequests};
use super::wrong_passwords::{LogDecision, WrongPasswords};
use crate::client_settings::ClientSettings;
use crate::config::{Durability, NodeConfig};
use crate::events::{EventLog, Level, NodeEvent, event, lines_dropped};
use crate::formation::Durable;
use crate::group_view::{GroupOrder, GroupView};
use crate::groups::LeaseWords;
use crate::settings::Agreed;
use crate::status::{
    DatabaseFigures, Facts, Measures, MemberStatus, MemberView, NodeStatus, PasswordPort, Phase,
    WriteRefusal,
};
use crate::worker::Input;

/// How long a stop waits for requests in flight.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(5);

/// How long an operator's order may take. A register's operation is given up before.
const ORDER_MAX: Duration = Duration::from_secs(12);

/// Lines about damage in this time, at most.
const WARNINGS_MAX: u64 = 5;
const WARNINGS_EVERY: Nanos = Nanos::from_secs(1);

/// Lines about damage.
#[derive(Debug, Default)]
struct Warnings {
    since: Option<Nanos>,
    /// In this second.
    lines: u64,
    suppressed: u64,
}

/// Counters whose value above zero means that some state is forgotten and not recovered yet.
const RECOVERING: [&str; 4] =
    ["worker_loss_held", "recovering_shards", "shards_recovering", "recovering_keys"];

/// The addresses that a node listens at for clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listens {
    pub(crate) clients: SocketAddr,
    /// For clients of Redis Sentinel.
    pub(crate) sentinel: Option<SocketAddr>,
}

/// Shared by all threads of one node.
pub(crate) struct SharedNodeStatus {
    pub(crate) config: Arc<NodeConfig>,
    pub(crate) clocks: Clocks,
    pub(crate) listens: Listens,
    pub(crate) workers: Vec<Arc<Mailbox<Mail>>>,
    pub(crate) control: Arc<Mailbox<ControlMail>>,
    pub(crate) clients: AtomicUsize,
    pub(crate) clients_total: AtomicU64,
    pub(crate) clients_refused: AtomicU64,
    pub(crate) client_settings: ClientSettings,
    /// How often all sessions were to take a step.
    pub(crate) session_steps: AtomicU64,
    facts: Mutex<Membership>,
    cluster: Mutex<ClusterView>,
    stats: Vec<Mutex<Stats>>,
    measures: Vec<Mutex<Measures>>,
    /// Of each worker, by database.
    figures: Vec<Mutex<Vec<Option<DatabaseFigures>>>>,
    stopping: AtomicBool,
    /// Workers without requests in flight, during a stop.
    drained: AtomicUsize,
    /// Workers whose transactions are in progress, or not settled at all keys.
    settling: AtomicUsize,
    warnings: Mutex<Warnings>,
    events: EventLog,
    lacks_room: AtomicBool,
    wrong_passwords: Mutex<WrongPasswords>,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
    changed: (Mutex<()>, Condvar),
    /// Wake the event loops, also those that have none.
    event_loops: OnceLock<Vec<Arc<Waker>>>,
    /// Where keys lie, once the node belongs to a cluster.
    pub(crate) positions: OnceLock<Positions>,
    /// Moves the disk stores on, once there are any.
    committer: OnceLock<disk::Committer>,
    own_requests: OwnRequests,
    /// Of configured groups, once they are opened.
    pub(crate) lease_words: OnceLock<Arc<LeaseWords>>,
    pub(crate) long_threads: LongThreads,
}

/// The control thread's view of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) durable: Durable,
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) phase: Phase,
    /// Peers to whose workers all links stand.
    pub(crate) linked: BTreeSet<NodeId>,
    /// Peers that recover forgotten shards.
    pub(crate) recovering: BTreeSet<NodeId>,
    /// Peers whose settings differ, and how.
    pub(crate) refused: BTreeMap<NodeId, String>,
    /// The limits that count.
    pub(crate) agreed: Agreed,
    pub(crate) groups: Vec<GroupView>,
    pub(crate) stats: Stats,
}

impl SharedNodeStatus {
    pub(crate) fn new(
        config: Arc<NodeConfig>,
        clocks: Clocks,
        listens: Listens,
        workers: Vec<Arc<Mailbox<Mail>>>,
        control: Arc<Mailbox<ControlMail>>,
        membership: Membership,
    ) -> SharedNodeStatus {
        let stats = workers.iter().map(|_| Mutex::default()).collect();
        let measures = workers.iter().map(|_| Mutex::default()).collect();
        let figures = workers.iter().map(|_| Mutex::default()).collect();
        let client_settings = ClientSettings::new(&config);
        SharedNodeStatus {
            config,
            clocks,
            listens,
            workers,
            control,
            clients: AtomicUsize::new(0),
            clients_total: AtomicU64::new(0),
            clients_refused: AtomicU64::new(0),
            client_settings,
            session_steps: AtomicU64::new(0),
            facts: Mutex::new(membership),
            cluster: Mutex::default(),
            stats,
            measures,
            figures,
            stopping: AtomicBool::new(false),
            drained: AtomicUsize::new(0),
            settling: AtomicUsize::new(0),
            warnings: Mutex::default(),
            events: EventLog::default(),
            lacks_room: AtomicBool::new(false),
            wrong_passwords: Mutex::default(),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            changed: (Mutex::new(()), Condvar::new()),
            event_loops: OnceLock::new(),
            positions: OnceLock::new(),
            committer: OnceLock::new(),
            own_requests: OwnRequests::default(),
            lease_words: OnceLock::new(),
            long_threads: LongThreads::default(),
        }
    }

    /// Runs a command on a register that users do not see, for the node's own code. Requests keep
    /// their order per key.
    ///
    /// # Panics
    /// If the database is one of users.
    pub(crate) fn ask(
        &self,
        database: Database,
        key: &[u8],
        command: Command,
        answer: OutcomeHandler,
    ) {
        assert!(!database.is_of_users(), "registers of users change through sessions");
        let Some(positions) = self.positions.get() else { return answer(Outcome::Loading) };
        let key = Key::at(positions.of_database(database, key), key);
        let owner = usize::from(key.shard().0) % self.workers.len();
        let tag = match self.own_requests.add(answer) {
            Ok(tag) => tag,
            Err(answer) => return answer(Outcome::NoQuorum),
        };
        // No client connection has this id.
        let session = SessionId(0);
        let request = Input::Request { tag, session, database, key, command };
        self.workers[owner].send(Mail::Input(request));
    }

    pub(crate) fn end_own_request(&self, tag: Tag, outcome: Outcome) {
        self.own_requests.end(tag, outcome);
    }

    /// # Panics
    /// When called twice.
    pub(crate) fn set_event_loops(&self, event_loops: Vec<Arc<Waker>>) {
        assert!(self.event_loops.set(event_loops).is_ok(), "a node has one set of threads");
    }

    /// From now on, event loops advance the disk stores.
    ///
    /// # Panics
    /// When called twice.
    pub(crate) fn set_committer(&self, committer: disk::Committer) {
        assert!(self.committer.set(committer).is_ok(), "a node opens its stores once");
        self.wake_event_loops();
    }

    pub(crate) fn committer(&self) -> Option<&disk::Committer> {
        self.committer.get()
    }

    pub(crate) fn id(&self) -> NodeId {
        self.config.id
    }

    pub(crate) fn set_membership(&self, membership: Membership) {
        *lock(&self.facts) = membership;
        self.note_change();
    }

    pub(crate) fn cluster_view(&self) -> MutexGuard<'_, ClusterView> {
        lock(&self.cluster)
    }

    pub(crate) fn set_stats(&self, worker: usize, stats: Stats, measures: Measures) {
        *lock(&self.measures[worker]) = measures;
        *lock(&self.stats[worker]) = stats;
    }

    /// Keeps an event; [`event!`] calls it, and logs as well.
    pub(crate) fn note_event(
        &self,
        level: Level,
        target: &'static str,
        message: String,
        fields: Vec<(&'static str, String)>,
    ) {
        let at = self.clocks.look().unix;
        self.events.add(NodeEvent { at, level, target, message, fields });
    }

    /// Logs damage, at a bounded rate. Of a burst one line is kept as an event, so that others are
    /// not displaced.
    pub(crate) fn warn(&self, text: &str) {
        let now = self.clocks.now();
        let mut warnings = lock(&self.warnings);
        if warnings.since.is_none_or(|since| now >= since + WARNINGS_EVERY) {
            (warnings.since, warnings.lines) = (Some(now), 0);
        }
        warnings.lines += 1;
        match warnings.lines {
            1 => event!(self, WARN, "storage", text),
            2..=WARNINGS_MAX => tracing::warn!(target: "storage", "{text}"),
            _ => warnings.suppressed += 1,
        }
    }

    /// Notes whether the disk is full, as a worker found.
    pub(crate) fn set_lacks_room(&self, lacks_room: bool) {
        if self.lacks_room.swap(lacks_room, Ordering::SeqCst) == lacks_room {
            return;
        }
        let dir = self.config.data_dir.display().to_string();
        if lacks_room {
            event!(
                self,
                ERROR,
                "storage",
                "disk full: writes that need more space answer -OOM until some is freed",
                dir = dir
            );
        } else {
            event!(
                self,
                INFO,
                "storage",
                "disk has enough space again: writes are accepted",
                dir = dir
            );
        }
    }

    /// Reports the number of wrong passwords and damaged places that had no line of their own.
    pub(crate) fn report_suppressed(&self) {
        let now = self.clocks.now();
        let mut warnings = lock(&self.warnings);
        let is_over = warnings.since.is_some_and(|since| now >= since + WARNINGS_EVERY);
        if is_over && warnings.suppressed > 0 {
            let places = std::mem::take(&mut warnings.suppressed);
            event!(self, WARN, "storage", "more damage found", places = places);
        }
        drop(warnings);
        let suppressed = lock(&self.wrong_passwords).take_suppressed(now);
        if let Some(suppressed) = suppressed {
            event!(self, WARN, "auth", "more wrong passwords", suppressed = suppressed);
        }
    }

    pub(crate) fn set_figures(
        &self,
        worker: usize,
        figures: impl Iterator<Item = Option<DatabaseFigures>>,
    ) {
        let mut known = lock(&self.figures[worker]);
        known.clear();
        known.extend(figures);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// Stops the node at once. No thread writes to a socket afterwards.
    pub(crate) fn fail(&self, text: String) {
        event!(self, ERROR, "node", "the node stops", reason = text.clone());
        lock(&self.failure).get_or_insert(text);
        self.failed.store(true, Ordering::SeqCst);
        self.stop();
    }

    /// Asks all threads to end once the requests in flight are done.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake_all();
        self.note_change();
    }

    fn wake_all(&self) {
        self.workers.iter().for_each(|mailbox| mailbox.notify());
        self.control.notify();
        self.wake_event_loops();
    }

    fn wake_event_loops(&self) {
        for waker in self.event_loops.get().into_iter().flatten() {
            // Fails only when the system is out of memory.
            let _ = waker.wake();
        }
    }

    /// Reports that a worker has no requests in flight. Its thread goes on with other workers.
    pub(crate) fn set_drained(&self) {
        self.drained.fetch_add(1, Ordering::SeqCst);
        self.wake_if_drained();
    }

    /// Reports that a worker begins or ends to settle transactions. It begins before it answers
    /// their clients, so no stop comes in between.
    pub(crate) fn set_settling(&self, is_settling: bool) {
        if is_settling {
            self.settling.fetch_add(1, Ordering::SeqCst);
        } else {
            self.settling.fetch_sub(1, Ordering::SeqCst);
            self.wake_if_drained();
        }
    }

    fn wake_if_drained(&self) {
        if self.is_drained() {
            self.wake_all();
        }
    }

    /// No request is in flight, and no transaction of this node holds a key.
    pub(crate) fn is_drained(&self) -> bool {
        self.drained.load(Ordering::SeqCst) >= self.workers.len()
            && self.settling.load(Ordering::SeqCst) == 0
    }

    fn note_change(&self) {
        let _guard = lock(&self.changed.0);
        self.changed.1.notify_all();
    }

    /// Waits until `done`, or for about `most`. True when it is done.
    pub(crate) fn wait_until(
        &self,
        most: Duration,
        done: impl Fn(&SharedNodeStatus) -> bool,
    ) -> bool {
        let end = std::time::Instant::now() + most;
        let mut guard = lock(&self.changed.0);
        loop {
            if done(self) {
                return true;
            }
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return false;
            }
            // Workers' counters change without a word: look again now and then.
            let wait = left.min(Duration::from_millis(20));
            guard = match self.changed.1.wait_timeout(guard, wait) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Counters of all workers and of the control thread.
    fn stats(&self, membership: &Membership) -> Stats {
        let mut stats = membership.stats.clone();
        for worker in &self.stats {
            for (&name, &value) in &lock(worker).values {
                stats.add(name, value);
            }
        }
        stats.add("passwords_wrong", lock(&self.wrong_passwords).total());
        stats.add("log_lines_dropped", lines_dropped());
        stats
    }

    /// True while part of this node's state is forgotten, as far as the workers have published.
    pub(crate) fn is_recovering(&self) -> bool {
        let is_some = |worker: &Mutex<Stats>, name| {
            lock(worker).values.get(name).is_some_and(|&number| number > 0)
        };
        RECOVERING.iter().any(|name| self.stats.iter().any(|worker| is_some(worker, name)))
    }

    /// The figures of all workers, of databases that each of them has begun to count.
    fn figures(&self) -> Vec<DatabaseFigures> {
        let by_worker: Vec<_> = self.figures.iter().map(|worker| lock(worker).clone()).collect();
        let databases = by_worker.first().map_or(0, Vec::len);
        let of_all = |at: usize| {
            let parts = by_worker.iter().map(|worker| worker.get(at).copied().flatten());
            parts.reduce(|one, other| Some(one?.plus(other?))).flatten()
        };
        let mut figures: Vec<DatabaseFigures> = (0..databases).filter_map(of_all).collect();
        figures.sort_unstable_by_key(|one| one.index);
        figures
    }

    /// The configured address, or the one that this node listens at. A wildcard reaches no node
    /// from elsewhere: the member list has an address that does.
    pub(crate) fn advertised(&self, durable: &Durable) -> String {
        if let Some(address) = &self.config.announced.advertise {
            return address.clone();
        }
        let own = durable.members.iter().find(|member| member.node == self.id());
        match own {
            Some(own) if self.listens.clients.ip().is_unspecified() => own.client.clone(),
            _ => self.listens.clients.to_string(),
        }
    }

    /// The address for clients of Redis Sentinel. Its host is the one that clients are told, unless
    /// the node listens on an address of its own for them.
    pub(crate) fn advertised_sentinel(&self, durable: &Durable) -> Option<String> {
        let listen = self.listens.sentinel?;
        if self.config.announced.advertise.is_none() && !listen.ip().is_unspecified() {
            return Some(listen.to_string());
        }
        let clients = self.advertised(durable);
        let host = clients.rsplit_once(':').map_or(clients.as_str(), |(host, _)| host);
        Some(format!("{host}:{}", listen.port()))
    }

    /// Shards that this node has lost and not recovered yet, as the workers last published.
    pub(crate) fn shards_to_recover(&self) -> u64 {
        let shards = |worker: &Mutex<Stats>| {
            let stats = lock(worker);
            let of = |name| stats.values.get(name).copied().unwrap_or(0);
            of("recovering_shards") + of("shards_recovering")
        };
        self.stats.iter().map(shards).sum()
    }

    /// True once every worker has published that it turns.
    pub(crate) fn has_begun(&self) -> bool {
        self.stats.iter().all(|worker| lock(worker).values.contains_key("worker_turns"))
    }

    fn groups(&self, membership: &Membership) -> Vec<GroupView> {
        let mut groups = membership.groups.clone();
        for group in &mut groups {
            let (database, epoch) = (group.database, group.epoch);
            let words = self.lease_words.get();
            group.has_lease =
                words.is_some_and(|words| words.holds(database, epoch, || self.clocks.now()));
        }
        groups
    }

    fn members(&self, membership: &Membership) -> Vec<MemberStatus> {
        let me = self.id();
        let one = |address: &crate::config::MemberAddress| {
            let known = membership.durable.known.get(&address.node).copied().unwrap_or_default();
            let counters = if address.node == me { membership.durable.mine } else { known };
            MemberStatus {
                node: address.node,
                address: address.peer.clone(),
                up: address.node == me || membership.linked.contains(&address.node),
                loading: membership.recovering.contains(&address.node),
                refused: membership.refused.get(&address.node).cloned(),
                incarnation: counters.incarnation,
                amnesia: counters.amnesia,
            }
        };
        membership.durable.members.iter().map(one).collect()
    }
}

/// The first reason that counts: without a quorum the state of the disk does not matter.
fn writes_refused(
    is_stopping: bool,
    loading: bool,
    ready: bool,
    lack: Option<Lack>,
) -> Option<WriteRefusal> {
    match lack {
        _ if is_stopping => Some(WriteRefusal::Stopping),
        _ if loading => Some(WriteRefusal::Loading),
        _ if !ready => Some(WriteRefusal::NoQuorum),
        Some(Lack::DiskFull) => Some(WriteRefusal::DiskFull),
        Some(Lack::FileSizeLimit) => Some(WriteRefusal::FileSizeLimit),
        None => None,
    }
}

impl Facts for SharedNodeStatus {
    fn cluster(&self) -> Vec<MemberView> {
        let own = self.summary(&self.status());
        let membership = lock(&self.facts).clone();
        self.cluster_view().members(self.id(), own, &membership, self.clocks.now())
    }

    fn config(&self) -> &Arc<NodeConfig> {
        &self.config
    }

    fn measures(&self) -> Measures {
        let mut measures = Measures::default();
        self.measures.iter().for_each(|worker| measures.add(&lock(worker)));
        measures
    }

    fn databases(&self) -> Vec<DatabaseFigures> {
        self.figures()
    }

    fn looks(&self) -> Vec<u64> {
        self.workers.iter().map(|mailbox| mailbox.looks()).collect()
    }

    fn nudge(&self) {
        self.workers.iter().for_each(|mailbox| mailbox.notify());
    }

    fn clock(&self) -> Option<Nanos> {
        Some(self.clocks.now())
    }

    fn events(&self) -> Vec<NodeEvent> {
        self.events.all()
    }

    fn note_wrong_password(&self, from: IpAddr, door: PasswordPort) {
        let verdict = lock(&self.wrong_passwords).note(self.clocks.now(), from);
        let LogDecision::Line { suppressed } = verdict else { return };
        let port = match door {
            PasswordPort::Clients => "clients",
            PasswordPort::Admin => "admin",
        };
        let addr = from.to_string();
        if suppressed == 0 {
            event!(self, WARN, "auth", "wrong password", addr = addr, port = port);
        } else {
            event!(
                self,
                WARN,
                "auth",
                "wrong password",
                addr = addr,
                port = port,
                suppressed = suppressed
            );
        }
    }

    fn client_settings(&self) -> &ClientSettings {
        &self.client_settings
    }

    fn order_group(&self, order: GroupOrder) -> Result<Epoch, String> {
        let (answer, outcome) = mpsc::sync_channel(1);
        self.control.send(ControlMail::Order { order, answer });
        let late = "no outcome yet: look at the group before another order";
        outcome.recv_timeout(ORDER_MAX).unwrap_or_else(|_| Err(late.to_owned()))
    }

    fn step_sessions(&self) {
        // Before the wake-up, so that the iteration that it causes sees it.
        self.session_steps.fetch_add(1, Ordering::SeqCst);
        self.nudge();
    }

    fn status(&self) -> NodeStatus {
        let membership = lock(&self.facts).clone();
        let stats = self.stats(&membership);
        let loading = self.is_recovering();
        let mut members = self.members(&membership);
        for me in members.iter_mut().filter(|member| member.node == self.id()) {
            me.loading = loading;
        }
        let groups = self.groups(&membership);
        let is_formed = membership.phase == Phase::Formed;
        let has_begun = self.has_begun();
        let helpful = members.iter().filter(|member| member.up && !member.loading).count();
        let (incarnation, amnesia): (Incarnation, AmnesiaCount) =
            (membership.durable.mine.incarnation, membership.durable.mine.amnesia);
        let ready = is_formed
            && has_begun
            && !loading
            && helpful > members.len() / 2
            && !self.is_stopping();
        let loading = loading || !is_formed || !has_begun;
        // A system database alone refuses no write of a user.
        let committer = self.committer().filter(|_| self.config.users_have(Durability::Disk));
        let lack = committer.and_then(disk::Committer::lack);
        NodeStatus {
            id: self.id(),
            phase: if self.is_stopping() { Phase::Stopping } else { membership.phase },
            cluster: membership.cluster.map(|cluster| cluster.to_string()),
            level: membership.durable.running.map(|running| running.level),
            incarnation,
            amnesia,
            ready,
            members,
            loading,
            writes_refused: writes_refused(self.is_stopping(), loading, ready, lack),
            limits: membership.agreed,
            clients: self.clients.load(Ordering::Relaxed),
            clients_total: self.clients_total.load(Ordering::Relaxed),
            clients_refused: self.clients_refused.load(Ordering::Relaxed),
            stats,
            databases: self.figures(),
            groups,
            up: Millis(self.clocks.now().as_millis()),
            listen: self.listens.clients,
            advertise: self.advertised(&membership.durable),
            sentinel: self.advertised_sentinel(&membership.durable),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panics stops the node, so its state is only displayed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_refused_for_the_first_reason_that_counts() {
        let full = Some(Lack::DiskFull);
        for (is_stopping, loading, ready, lack, expected) in [
            (false, false, true, None, None),
            (false, false, true, full, Some(WriteRefusal::DiskFull)),
            (false, false, true, Some(Lack::FileSizeLimit), Some(WriteRefusal::FileSizeLimit)),
            (false, false, false, full, Some(WriteRefusal::NoQuorum)),
            (false, true, false, full, Some(WriteRefusal::Loading)),
            (true, true, false, full, Some(WriteRefusal::Stopping)),
        ] {
            assert_eq!(writes_refused(is_stopping, loading, ready, lack), expected);
        }
    }
}
