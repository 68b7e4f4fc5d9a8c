//! A node: started, watched, stopped.
//!
//! [`Node::start`] checks everything that can be wrong before it sends anything: configuration,
//! directory, media, ports. Forming or joining the cluster goes on in the background;
//! [`Node::status`] tells how far it is.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use base::Prng;
use mio::net::TcpListener;
use mio::{Interest, Poll};
use protocols::Stats;
use storage::data_dir::{DataDir, DataDirError};
use transport::tcp::Tcp;
use transport::{ClusterId, Network};
use types::features::Running;
use types::{Command, Database, NodeId, Outcome, Update};

use crate::config::{BadConfig, MemberAddress, NodeConfig};
use crate::events::event;
use crate::formation::{Cluster, Durable, Formation, Standing};
use crate::registry;
use crate::session::{ClientPort, SessionFactory};
use crate::settings::Databases;
use crate::shell::control::{self, Control, ControlParts};
use crate::shell::event_loop::EventLoop;
use crate::shell::media::{Media, MediaError, Start};
use crate::shell::node_status::{Listens, Membership, SharedNodeStatus};
use crate::shell::worker_thread::{self, WorkerThread};
use crate::shell::{Clocks, Mail, Mailbox, record};
use crate::status::{Facts, NodeStatus, Phase};

/// The reason why a node did not start, with the remedy, in one line. The process exits with code
/// 2.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] BadConfig),
    #[error(transparent)]
    Directory(#[from] DataDirError),
    #[error("{0}")]
    Media(String),
    #[error("cannot listen on {address}: {error}; choose another address or stop what uses it")]
    Listen { address: String, error: io::Error },
    #[error("{0}")]
    System(#[from] io::Error),
}

pub use crate::shell::control::UNPROVEN_MAX;

/// A running node.
pub struct Node {
    node_status: Arc<SharedNodeStatus>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Node {
    /// Starts a node that reaches its peers over TCP.
    ///
    /// # Errors
    /// [`StartError`]. The directory is unchanged then, unless it was this node's already.
    pub fn start(
        config: NodeConfig,
        factory: Arc<dyn SessionFactory>,
        update: Arc<dyn Update>,
    ) -> Result<Node, StartError> {
        check(&config)?;
        let dir = DataDir::open(&config.data_dir, config.id)?;
        let peers = beginning(&config, &dir)?
            .members
            .iter()
            .filter(|member| member.node != config.id)
            .map(|member| (member.node, member.peer.clone()))
            .collect();
        let network = Tcp::listen(&config.peer_listen, peers)
            .map_err(|error| StartError::Listen { address: config.peer_listen.clone(), error })?;
        start(config, dir, Box::new(network), factory, update)
    }

    /// Starts a node that reaches its peers over `network`.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn start_on(
        config: NodeConfig,
        network: Box<dyn Network>,
        factory: Arc<dyn SessionFactory>,
        update: Arc<dyn Update>,
    ) -> Result<Node, StartError> {
        check(&config)?;
        let dir = DataDir::open(&config.data_dir, config.id)?;
        start(config, dir, network, factory, update)
    }

    #[must_use]
    pub fn status(&self) -> NodeStatus {
        self.node_status.status()
    }

    /// Facts for sessions and the admin page.
    #[must_use]
    pub fn facts(&self) -> Arc<dyn Facts> {
        Arc::clone(&self.node_status) as Arc<dyn Facts>
    }

    /// Waits until `done` holds of the status, or for about `most`. True when it holds.
    #[must_use]
    pub fn wait_until(&self, most: Duration, done: impl Fn(&NodeStatus) -> bool) -> bool {
        self.node_status.wait_until(most, |node_status| done(&node_status.status()))
    }

    /// Runs a command on a register that no client can name: of the system database, or of a hidden
    /// keyspace. `answer` takes the outcome on the thread of a worker, and must not wait.
    ///
    /// # Panics
    /// If the database is one of users.
    pub fn ask(
        &self,
        database: Database,
        key: &[u8],
        command: Command,
        answer: impl FnOnce(Outcome) + Send + 'static,
    ) {
        self.node_status.ask(database, key, command, Box::new(answer));
    }

    /// Asks the node to stop. It accepts no new work, ends requests in flight within seconds, and
    /// flushes.
    pub fn stop(&self) {
        self.node_status.stop();
    }

    /// True once the node stops, for whatever reason.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.node_status.is_stopping()
    }

    /// Waits for the node to end, after [`Node::stop`] or by itself.
    ///
    /// # Errors
    /// The failure that ended it, in one line; the process ends with exit code 1.
    pub fn join(&self) -> Result<(), String> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A panic was caught inside and reported as a failure.
            let _ = thread.join();
        }
        self.node_status.failure().map_or(Ok(()), Err)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
        // A caller that needs the outcome joins before.
        let _ = self.join();
    }
}

fn check(config: &NodeConfig) -> Result<(), BadConfig> {
    config.check()?;
    for one in &config.databases {
        if registry::find(one.protocol).is_none() {
            let names: Vec<&str> = registry::PROTOCOLS.iter().map(|one| one.name).collect();
            let text =
                format!("no protocol is named {:?}; there are {}", one.protocol, names.join(", "));
            return Err(BadConfig(text));
        }
    }
    Ok(())
}

/// Members and databases to start with.
struct StartingPoint {
    members: Vec<MemberAddress>,
    databases: Databases,
    /// No cluster can have formed with this node in it: list and databases may have been corrected.
    is_open: bool,
}

/// Compares the configuration with the directory. Writes no file.
fn beginning(config: &NodeConfig, dir: &DataDir) -> Result<StartingPoint, BadConfig> {
    let before = dir.identity().map(record::read);
    check_level(config, before.as_ref())?;
    let is_open =
        dir.is_empty() && before.as_ref().is_none_or(|it| it.is_surely_unformed(config.id));
    let known = before.as_ref().map(|durable| durable.members.clone()).unwrap_or_default();
    let standing = before.as_ref().map_or(Standing::Empty, |durable| durable.standing);
    let databases = Databases::of(&config.databases);
    if let Some(before) = before.filter(|before| !is_open && !before.databases.is_empty()) {
        check_databases(config, &databases, &before)?;
    }
    let mut members = config.members.clone();
    members.sort();
    if members.is_empty() && known.is_empty() {
        return Err(BadConfig("--cluster is required on the first start: 1=HOST:PORT,2=…".into()));
    }
    let members = match (members.is_empty(), is_open) {
        (true, _) => known,
        (false, true) => members,
        (false, false) => check_moved(members, known, standing)?,
    };
    config.check_groups(members.len())?;
    Ok(StartingPoint { members, databases, is_open })
}

/// A version that lacks the cluster's level would not know some of its records.
fn check_level(config: &NodeConfig, before: Option<&Durable>) -> Result<(), BadConfig> {
    let beyond = |running: Running| running.beyond(config.supported);
    match before.and_then(|durable| durable.running).and_then(beyond) {
        None => Ok(()),
        Some(level) => Err(BadConfig(format!(
            "{}: the cluster runs at feature level {level}; this version supports {}",
            config.data_dir.display(),
            config.supported
        ))),
    }
}

/// The remedy for a member that has agreed to a proposal.
const RESET_HINT: &str = "; where none has formed, 'palimpsest reset' makes it new";

/// Protocol, durability and replicas of a database never change in place.
fn check_databases(
    config: &NodeConfig,
    asked: &Databases,
    before: &Durable,
) -> Result<(), BadConfig> {
    let saved = &before.databases;
    let Some(text) = asked.difference("asked for", saved, "in this directory") else {
        return Ok(());
    };
    let hint = match before.standing {
        Standing::Proposed(_) => {
            format!("; it has agreed to form a cluster with them{RESET_HINT}")
        }
        _ => String::new(),
    };
    Err(BadConfig(format!(
        "{}: {text}. Protocol, durability and replicas of a database never change in place: start node {} with those of its \
         directory, or copy the data to a new cluster{hint}",
        config.data_dir.display(),
        config.id
    )))
}

/// Takes the configured addresses, because hosts move. The set of ids is fixed once a cluster may
/// have formed.
///
/// Hosts do not move all at once: a list that shares no address with the known one belongs to
/// another cluster. This is found before any write.
fn check_moved(
    members: Vec<MemberAddress>,
    known: Vec<MemberAddress>,
    standing: Standing,
) -> Result<Vec<MemberAddress>, BadConfig> {
    let ids = |list: &[MemberAddress]| list.iter().map(|m| m.node).collect::<Vec<_>>();
    let (relation, hint) = match standing {
        Standing::Proposed(_) => ("has agreed to form", RESET_HINT),
        _ => ("belongs to", ""),
    };
    if !known.is_empty() && ids(&known) != ids(&members) {
        return Err(BadConfig(format!(
            "--cluster lists nodes {:?}, but this node {relation} a cluster of {:?}: correct the list{hint}",
            ids(&members),
            ids(&known)
        )));
    }
    let is_known = |one: &MemberAddress| {
        known.iter().any(|k| k.node == one.node && (k.client == one.client || k.peer == one.peer))
    };
    if !known.is_empty() && !members.iter().any(is_known) {
        let addresses: Vec<&str> = known.iter().map(|member| member.client.as_str()).collect();
        return Err(BadConfig(format!(
            "this directory {relation} a cluster at {}, none of which --cluster lists: use another --data-dir, or \
             change the addresses of a moved cluster one at a time{hint}",
            addresses.join(", ")
        )));
    }
    Ok(members)
}

fn start(
    config: NodeConfig,
    mut dir: DataDir,
    mut network: Box<dyn Network>,
    factory: Arc<dyn SessionFactory>,
    update: Arc<dyn Update>,
) -> Result<Node, StartError> {
    let config = Arc::new(config);
    let acceptor = network.acceptor()?;
    let (listener, listen_address) = listen(&config.listen)?;
    let mut listeners = vec![(ClientPort::Keys, listener)];
    let mut sentinel = None;
    if let Some(address) = &config.sentinel_listen {
        let (listener, local) = listen(address)?;
        listeners.push((ClientPort::Sentinel, listener));
        sentinel = Some(local);
    }
    let polls = (0..config.workers).map(|_| Poll::new()).collect::<io::Result<Vec<Poll>>>()?;
    let workers = polls
        .iter()
        .map(|poll| Mailbox::new(poll.registry(), worker_thread::TOKEN_MAIL).map(Arc::new))
        .collect::<io::Result<Vec<_>>>()?;
    let poll = Poll::new()?;
    let mail = Arc::new(Mailbox::new(poll.registry(), control::TOKEN_MAIL)?);

    let _span = span(config.id).entered();
    let is_damaged = dir.is_damaged();
    let mut formation = open_identity(&config, &mut dir)?;
    let media = open_media(&config, &mut dir, &mut formation, &workers)?;
    let membership = Membership {
        groups: Vec::new(),
        durable: formation.durable().clone(),
        cluster: formation.cluster(),
        phase: Phase::Forming { waiting_for: formation.waiting_for() },
        linked: std::collections::BTreeSet::new(),
        recovering: std::collections::BTreeSet::new(),
        refused: std::collections::BTreeMap::new(),
        agreed: formation.agreed(),
        stats: Stats::default(),
    };
    let clocks = Clocks::new();
    let listens = Listens { clients: listen_address, sentinel };
    let node_status =
        SharedNodeStatus::new(Arc::clone(&config), clocks, listens, workers, mail, membership);
    let node_status = Arc::new(node_status);
    if is_damaged {
        event!(
            node_status,
            WARN,
            "storage",
            "one of two copies of the node's identity was damaged; the other one replaced it"
        );
    }
    let rng = Prng::new(u64::from_le_bytes(draw()));
    let parts = ControlParts {
        node_status: Arc::clone(&node_status),
        poll,
        network,
        acceptor,
        formation,
        dir,
        media,
        update,
        factory: Arc::clone(&factory),
        rng,
    };
    let control = Control::new(parts)?;
    let threads = Mutex::new(spawn(&node_status, control, polls, listeners, &factory)?);
    Ok(Node { node_status, threads })
}

fn listen(address: &str) -> Result<(TcpListener, std::net::SocketAddr), StartError> {
    let failed = |error| StartError::Listen { address: address.to_string(), error };
    let listener = transport::tcp::listen(address).map_err(failed)?;
    let local = listener.local_addr()?;
    Ok((listener, local))
}

/// Starts the identity. From now on the directory belongs to this process.
fn open_identity(config: &NodeConfig, dir: &mut DataDir) -> Result<Formation, StartError> {
    let StartingPoint { members, databases, is_open } = beginning(config, dir)?;
    let durability = record::durability(config);
    let before = dir.identity().map(record::read);
    let was_formed = before.is_some_and(|durable| matches!(durable.standing, Standing::Formed(_)));
    let raises = durability == storage::identity::Durability::Volatile;
    dir.start(durability)?;
    if was_formed && config.has_volatile() && !raises {
        dir.raise_amnesia()?;
    }
    let identity = dir.identity().expect("it was just started");
    let mut durable = record::read(identity);
    // Addresses and limits as configured now; the notes about the members stay.
    if is_open {
        durable.correct(members, databases);
    } else {
        (durable.members, durable.databases) = (members, databases);
    }
    durable.limits.insert(config.id, config.limits());
    let is_member = |node| durable.members.iter().any(|member| member.node == node);
    durable.limits.retain(|&node, _| is_member(node));
    record::write(dir, &durable)?;
    let fresh = Cluster { id: ClusterId(draw()), secret: draw() };
    Ok(Formation::new(config.id, durable, fresh).supporting(config.supported))
}

/// Opens the node's media. Workers find their forgotten shards and ask for a higher amnesia count
/// before they send anything. A node whose store is lost altogether rejoins like a wiped one.
fn open_media(
    config: &NodeConfig,
    dir: &mut DataDir,
    formation: &mut Formation,
    wakers: &[Arc<Mailbox<Mail>>],
) -> Result<Option<Media>, StartError> {
    let binding = dir.identity().expect("it was started").binding;
    let start = match formation.durable().standing {
        Standing::Empty | Standing::Proposed(_) => {
            // An interrupted start left these files. No write in them was ever acknowledged.
            Media::wipe(&config.data_dir).map_err(StartError::Media)?;
            Start::New
        }
        Standing::Formed(_) => Start::Again,
        Standing::Rejoining(_) | Standing::Uncertain => return Ok(None),
    };
    match Media::open(config, binding, start, wakers) {
        Ok(media) => Ok(Some(media)),
        Err(MediaError::Missing(_)) => {
            let amnesia = dir.raise_amnesia()?;
            record::write(dir, formation.lose_memory(amnesia))?;
            Ok(None)
        }
        Err(error) => Err(StartError::Media(error.to_string())),
    }
}

fn spawn(
    node_status: &Arc<SharedNodeStatus>,
    mut control: Control,
    polls: Vec<Poll>,
    listeners: Vec<(ClientPort, TcpListener)>,
    factory: &Arc<dyn SessionFactory>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut listeners = Some(listeners);
    let mut workers = Vec::new();
    for (index, poll) in polls.into_iter().enumerate() {
        let mut listeners = listeners.take().unwrap_or_default();
        for (_, listener) in &mut listeners {
            let token = worker_thread::TOKEN_LISTENER;
            poll.registry().register(listener, token, Interest::READABLE)?;
        }
        let worker =
            WorkerThread::new(index, Arc::clone(node_status), poll, listeners, Arc::clone(factory));
        workers.push(worker);
    }
    let mut threads = Vec::new();
    for (index, mut event_loop) in EventLoop::all(node_status, workers)?.into_iter().enumerate() {
        threads.push(guarded(node_status, &format!("worker {index}"), move || event_loop.run())?);
    }
    threads.push(guarded(node_status, "control", move || control.run())?);
    Ok(threads)
}

/// The log span that names the node of each line.
#[must_use]
pub fn span(node: NodeId) -> tracing::Span {
    tracing::error_span!("node", node = node.0)
}

/// A thread whose failure or panic stops the node.
pub(crate) fn guarded(
    node_status: &Arc<SharedNodeStatus>,
    name: &str,
    run: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (node_status, what) = (Arc::clone(node_status), name.to_string());
    let title = format!("n{} {name}", node_status.id().0);
    let span = span(node_status.id());
    std::thread::Builder::new().name(title).spawn(move || {
        let _span = span.entered();
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => {}
            Ok(Err(text)) => node_status.fail(format!("{what}: {text}")),
            Err(panic) => {
                let text = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or("a panic without words");
                node_status.fail(format!("{what} panicked: {text}"));
            }
        }
    })
}

/// Bytes of the system's randomness.
///
/// # Panics
/// If the system has none: no nonce or id could be trusted.
pub(crate) fn draw<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let mut filled = 0;
    while filled < LEN {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the system gives no randomness: {error}"),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use types::positions::SECRET_LEN;

    use super::*;

    #[test]
    fn refused_list_names_reset_before_a_cluster_formed() {
        let list = |nodes: &[u16], host: &str| {
            let one = |&node: &u16| {
                let address = format!("{host}:{node}");
                MemberAddress { node: NodeId(node), client: address.clone(), peer: address }
            };
            nodes.iter().map(one).collect::<Vec<_>>()
        };
        let id = Cluster { id: ClusterId([7; 16]), secret: [1; SECRET_LEN] };
        for asked in [list(&[1, 2, 9], "h"), list(&[1, 2, 3], "other")] {
            let refusal = |standing| {
                let refused = check_moved(asked.clone(), list(&[1, 2, 3], "h"), standing);
                refused.err().map(|error| error.to_string()).unwrap_or_default()
            };
            let proposed = refusal(Standing::Proposed(id));
            assert!(proposed.contains("has agreed to form a cluster"), "{proposed}");
            assert!(proposed.contains("palimpsest reset"), "{proposed}");
            let formed = refusal(Standing::Formed(id));
            assert!(formed.contains("belongs to a cluster"), "{formed}");
            assert!(!formed.contains("reset"), "{formed}");
        }
    }
}
