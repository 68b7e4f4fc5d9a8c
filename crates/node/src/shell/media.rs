//! Opens the stores that a node's databases need.

use std::any::Any;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use storage::data_dir::is_there;
use storage::disk::{self, OpenError};
use storage::log::{self, Log, Logged, OpenLog, Threaded};
use storage::pmem::{self, Pmem};
use storage::volatile::{Beginning, VolatileStore};
use storage::{Completion, Store};
use types::key::SHARDS;
use types::log::LOG_LEN_DEFAULT;
use types::{Database, Shard, Ticket};

use super::mailbox::{Mail, Mailbox};
use crate::config::{DatabaseConfig, Durability, NodeConfig};
use crate::worker::DatabaseSpec;

/// Files of the data directory that are no medium's.
const IDENTITY: [&str; 2] = ["node", "node.new"];

/// Bytes of a sector of a log's ring.
const SECTOR_LEN: u64 = 512;

/// How long marking a store as forgotten may take.
const MARKING_MAX: Duration = Duration::from_secs(60);

/// The relation of the node to its stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// It never was a member. Its stores are empty and always were.
    New,
    /// It continues with its stores.
    Again,
    /// It lost its memory. Its stores are empty, and any record may have existed.
    Forgotten,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MediaError {
    /// A medium is gone of a node that had one.
    #[error("the {0} store is missing")]
    Missing(Durability),
    #[error("{0}")]
    Other(String),
}

/// The stores of all workers.
pub(crate) struct Media {
    /// Per worker, in the order that `specs` counts them.
    pub(crate) stores: Vec<Vec<Box<dyn Store>>>,
    pub(crate) specs: Vec<DatabaseSpec>,
    /// Told to the operator.
    pub(crate) warnings: Vec<String>,
    /// Guards that keep the stores running. Dropped after them.
    pub(crate) guards: Vec<Box<dyn Any + Send>>,
    /// Moves the disk stores on, for the threads that turn workers.
    pub(crate) committer: Option<disk::Committer>,
}

type Stores = Vec<Box<dyn Store>>;

impl Media {
    /// Opens the stores of all databases. Creates them unless the node starts again.
    ///
    /// # Errors
    /// One line with a remedy.
    pub(crate) fn open(
        config: &NodeConfig,
        binding: u64,
        start: Start,
        wakers: &[Arc<Mailbox<Mail>>],
    ) -> Result<Media, MediaError> {
        let kinds = config.durabilities();
        let keeps_log = |kind| {
            let it = |one: &&DatabaseConfig| one.durability == kind && one.keeps_log();
            config.databases.iter().filter(it).map(|one| one.database).collect::<Vec<_>>()
        };
        let mut media = Media {
            stores: wakers.iter().map(|_| Vec::new()).collect(),
            specs: config.keyspaces().iter().map(|one| spec(one, &kinds)).collect(),
            warnings: Vec::new(),
            guards: Vec::new(),
            committer: None,
        };
        for &kind in &kinds {
            let dir = &config.data_dir;
            let mut stores = match kind {
                Durability::Volatile => volatile(start, wakers.len()),
                Durability::Pmem => media.open_pmem(dir, binding, start, wakers.len())?,
                Durability::Disk => media.open_disk(config, binding, start, wakers)?,
            };
            if kind != Durability::Volatile {
                let waker = waker(&wakers[0]);
                let logs = open_logs(dir, binding, start, &keeps_log(kind), kind, waker)?;
                if !logs.is_empty() {
                    let store = stores.remove(0);
                    stores.insert(0, Box::new(Logged::new(store, logs)));
                }
            }
            for (worker, store) in media.stores.iter_mut().zip(stores) {
                worker.push(store);
            }
        }
        Ok(media)
    }

    fn open_pmem(
        &mut self,
        dir: &Path,
        binding: u64,
        start: Start,
        workers: usize,
    ) -> Result<Stores, MediaError> {
        if start == Start::Again {
            let failed = |error| MediaError::Other(format!("{}: {error}", dir.display()));
            if !is_there(&dir.join(pmem::FILE)).map_err(failed)? {
                return Err(MediaError::Missing(Durability::Pmem));
            }
        }
        let medium = Pmem::open(dir, binding, beginning(start))
            .map_err(|error| MediaError::Other(error.to_string()))?;
        if medium.is_emulated() {
            self.warnings.push(format!(
                "pmem: emulated: {} is not on DAX storage, so acknowledged writes survive a crash of the \
                 process, not of the machine",
                dir.display()
            ));
        }
        Ok((0..workers).map(|worker| Box::new(medium.store(worker as u32)) as _).collect())
    }

    fn open_disk(
        &mut self,
        config: &NodeConfig,
        binding: u64,
        start: Start,
        wakers: &[Arc<Mailbox<Mail>>],
    ) -> Result<Stores, MediaError> {
        let dir = &config.data_dir;
        let shape = config.disk_shape();
        let other = |error: OpenError| MediaError::Other(format!("{}: {error}", dir.display()));
        if start != Start::Again {
            disk::create_at(dir, binding, &shape).map_err(other)?;
            sync(dir).map_err(|error| MediaError::Other(format!("{}: {error}", dir.display())))?;
        }
        let wakers = wakers.iter().map(waker).collect();
        let (guard, stores) = match disk::open_at(dir, binding, &shape, wakers) {
            Err(OpenError::Missing) => return Err(MediaError::Missing(Durability::Disk)),
            opened => opened.map_err(other)?,
        };
        let mut stores: Stores = stores.into_iter().map(|store| Box::new(store) as _).collect();
        let committer = guard.committer();
        if start == Start::Forgotten {
            mark_forgotten(&mut stores, &committer, config).map_err(MediaError::Other)?;
        }
        self.committer = Some(committer);
        self.guards.push(Box::new(guard));
        Ok(stores)
    }

    /// Removes every file that a medium may have left, and keeps the identity.
    ///
    /// # Errors
    /// One line that names the path that resisted.
    pub(crate) fn wipe(dir: &Path) -> Result<(), String> {
        let failed = |error| format!("{}: cannot be emptied: {error}", dir.display());
        for entry in fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_file = entry.file_type().map_err(failed)?.is_file();
            if is_file && !IDENTITY.iter().any(|&name| entry.file_name() == name) {
                fs::remove_file(entry.path()).map_err(failed)?;
            }
        }
        sync(dir).map_err(failed)
    }
}

fn waker(mailbox: &Arc<Mailbox<Mail>>) -> disk::Waker {
    let mailbox = Arc::clone(mailbox);
    Box::new(move || mailbox.notify())
}

/// The logs of these databases, each with a file and a thread. Makes the files unless the node
/// starts again.
fn open_logs(
    dir: &Path,
    binding: u64,
    start: Start,
    databases: &[Database],
    kind: Durability,
    wake: disk::Waker,
) -> Result<Vec<OpenLog>, MediaError> {
    let wake = Arc::new(std::sync::Mutex::new(wake));
    let mut logs = Vec::new();
    for &database in databases {
        let path = log::file_of(dir, database);
        let failed = |error: String| MediaError::Other(format!("{}: {error}", path.display()));
        // A database's log is bound to it: its file cannot stand in for another.
        let binding = binding ^ u64::from(database.0);
        if start != Start::Again {
            let sectors = LOG_LEN_DEFAULT / SECTOR_LEN;
            Log::create_at(&path, binding, sectors).map_err(failed)?;
        }
        let log = match Log::open_at(&path, binding) {
            Err(log::OpenError::Missing) => return Err(MediaError::Missing(kind)),
            log => log.map_err(|error| failed(error.to_string()))?,
        };
        let (engine, device) = log.into_parts();
        let wake = Arc::clone(&wake);
        let wake = Box::new(move || wake.lock().expect("no waker panics")());
        let driver = Threaded::start(device, wake).map_err(|error| failed(error.to_string()))?;
        logs.push(OpenLog { database, engine, driver: Box::new(driver) });
    }
    Ok(logs)
}

fn sync(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

fn spec(one: &DatabaseConfig, kinds: &[Durability]) -> DatabaseSpec {
    let is_same = |kind: &Durability| *kind == one.durability;
    DatabaseSpec {
        database: one.database,
        protocol: one.protocol,
        replicas: one.replicas.map(usize::from),
        store: kinds.iter().position(is_same).expect("every durability has a store"),
        durable: one.durability != Durability::Volatile,
    }
}

/// The meaning of absence in a new store. Volatile memory never outlives a process.
fn beginning(start: Start) -> Beginning {
    match start {
        Start::New => Beginning::New,
        Start::Again | Start::Forgotten => Beginning::Forgotten,
    }
}

fn volatile(start: Start, workers: usize) -> Stores {
    (0..workers).map(|_| Box::new(VolatileStore::new(beginning(start))) as _).collect()
}

/// Durably marks every shard of every database as forgotten.
fn mark_forgotten(
    stores: &mut Stores,
    committer: &disk::Committer,
    config: &NodeConfig,
) -> Result<(), String> {
    let workers = stores.len();
    for (worker, store) in stores.iter_mut().enumerate() {
        for database in config.keyspaces().iter().map(|one| one.database) {
            for shard in (worker..SHARDS).step_by(workers) {
                store.set_forgotten(database, Shard(shard as u8), true);
            }
        }
        let ticket = store.ticket();
        store.submit();
        let end = Instant::now() + MARKING_MAX;
        committer.advance();
        while !has_stored(&mut **store, ticket)? {
            if Instant::now() > end {
                return Err("the disk has not answered for a minute".into());
            }
            std::thread::sleep(Duration::from_millis(1));
            committer.notice();
            committer.advance();
        }
    }
    Ok(())
}

fn has_stored(store: &mut dyn Store, ticket: Ticket) -> Result<bool, String> {
    let mut completions = Vec::new();
    store.poll(&mut completions);
    let mut is_stored = false;
    for completion in completions {
        match completion {
            Completion::Stored(upto) => is_stored |= upto >= ticket,
            Completion::Failed(text) => return Err(format!("storage failed: {text}")),
            _ => {}
        }
    }
    Ok(is_stored)
}
