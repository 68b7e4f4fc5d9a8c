//! A node's data directory: one owner at a time, and the file `node` that says whose it is.
//!
//! [`DataDir::open`] looks and changes nothing, so that a directory which belongs to someone else
//! stays as it was; [`DataDir::start`] durably raises the incarnation and must come before the node
//! says anything. The media put their own files beside and are not looked at here.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use base::Millis;
use rustix::fs::FlockOperation;
use types::features::Running;
use types::{AmnesiaCount, Incarnation, NodeId};

use crate::identity::{
    COPY_LEN, Cluster, Durability, FORMAT, Found, Identity, Member, Standing, decode,
};

const FILE: &str = "node";
const FILE_NEW: &str = "node.new";
// What may lie in a directory that counts as empty: a file system's own, and a first start that was
// cut off.
const IGNORED: [&str; 2] = ["lost+found", FILE_NEW];

/// Why a directory is not used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("{0} is in use by another process: stop it, or give this node a directory of its own")]
    Busy(PathBuf),
    #[error("{dir} belongs to node {found}, not to node {asked}: check --id and --data-dir")]
    WrongNode { dir: PathBuf, found: NodeId, asked: NodeId },
    #[error(
        "{dir}/node has format {found}, this version knows {FORMAT}: run the version that wrote it"
    )]
    UnknownFormat { dir: PathBuf, found: u32 },
    #[error("{0} has files in it but no node: give this node an empty directory")]
    NotOurs(PathBuf),
    #[error("{0}/node is damaged in both copies: run `palimpsest reset --yes`, then let it rejoin")]
    Damaged(PathBuf),
    #[error("a reset of {0} did not finish: run `palimpsest reset --yes` again")]
    ResetUnfinished(PathBuf),
    #[error("{dir} holds a node of durability {}: start it with that, or reset it", found.name())]
    OtherDurability { dir: PathBuf, found: Durability },
    #[error(
        "node {0} has used up its 24-bit incarnations or losses: replace it by a node of another id"
    )]
    Exhausted(NodeId),
    #[error("the members' addresses do not fit into 4 KiB: use shorter names")]
    AddressesTooLong,
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// Only the older copy may have changed: another attempt is safe.
    #[error("{0}/node cannot be written, the disk is full: make room, then start the node again")]
    Full(PathBuf),
    #[error("{0}/node could not be written earlier: restart the node once the disk is well")]
    Poisoned(PathBuf),
}

/// A locked data directory.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    node: NodeId,
    // Holds the lock; also flushed where the directory itself changed.
    directory: File,
    identity: Option<Saved>,
    is_poisoned: bool,
    // One copy has a change that both must have.
    owes_copy: bool,
}

#[derive(Debug)]
struct Saved {
    file: File,
    identity: Identity,
    sequence: u64,
    // The copy that holds `sequence`; the next write goes to the other one.
    place: usize,
    // The other copy was found damaged and has not been rewritten.
    is_damaged: bool,
}

impl DataDir {
    /// Locks the directory, creating it where it is missing, and reads whose it is.
    ///
    /// # Errors
    /// Any [`DataDirError`]; all but `Io` tell the operator what to do.
    pub fn open(path: &Path, node: NodeId) -> Result<DataDir, DataDirError> {
        DataDir::open_for(path, node, true)
    }

    /// The same for looking only, also where the file system can only be read.
    ///
    /// # Errors
    /// As [`DataDir::open`].
    pub fn look(path: &Path, node: NodeId) -> Result<DataDir, DataDirError> {
        DataDir::open_for(path, node, false)
    }

    fn open_for(path: &Path, node: NodeId, writes: bool) -> Result<DataDir, DataDirError> {
        let directory = lock(path)?;
        let identity = read(path, writes)?;
        if let Some(saved) = &identity {
            check_node(path, saved, node)?;
            if saved.identity.standing == Standing::Wiping {
                return Err(DataDirError::ResetUnfinished(path.to_owned()));
            }
        }
        let path = path.to_owned();
        Ok(DataDir { path, node, directory, identity, is_poisoned: false, owes_copy: false })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the directory says; none before the first start.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref().map(|saved| &saved.identity)
    }

    /// True where this node has never belonged to a cluster, surely: it may help to form one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.identity {
            None => true,
            Some(saved) => saved.identity.standing == Standing::Unformed && !saved.is_damaged,
        }
    }

    /// True where one copy of the identity was found damaged. The next start raises incarnation and
    /// loss beyond whatever it said; the node should say so.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.identity.as_ref().is_some_and(|saved| saved.is_damaged)
    }

    /// Durably raises the incarnation. Once per process, before it says anything.
    ///
    /// A `volatile` node that ran before has lost its state: its loss is raised as well.
    ///
    /// # Errors
    /// `OtherDurability`, `Exhausted`, `Io`.
    pub fn start(&mut self, durability: Durability) -> Result<&Identity, DataDirError> {
        let exhausted = || DataDirError::Exhausted(self.node);
        let Some(saved) = &self.identity else {
            let first = Identity::new(self.node, durability, draw()?);
            let first = first.next_incarnation().ok_or_else(exhausted)?;
            return self.create(first);
        };
        if saved.identity.durability != durability && !self.is_empty() {
            let found = saved.identity.durability;
            return Err(DataDirError::OtherDurability { dir: self.path.clone(), found });
        }
        let was_damaged = saved.is_damaged;
        let mut next = Identity { durability, ..saved.identity.clone() };
        if was_damaged {
            next = next.after_damage().ok_or_else(exhausted)?;
        }
        next = next.next_incarnation().ok_or_else(exhausted)?;
        if durability == Durability::Volatile {
            next = next.next_amnesia().ok_or_else(exhausted)?;
        }
        self.save(next.clone())?;
        if was_damaged {
            // Both copies, before anything is said: the older one must not stay more than one step
            // behind.
            self.save(next)?;
        }
        Ok(self.known())
    }

    /// Durably raises the loss: what the node acknowledged before proves nothing any more.
    ///
    /// # Errors
    /// `Exhausted`, `Io`.
    pub fn raise_amnesia(&mut self) -> Result<AmnesiaCount, DataDirError> {
        let next = self.known().clone().next_amnesia().ok_or(DataDirError::Exhausted(self.node))?;
        self.save(next)?;
        Ok(self.known().amnesia)
    }

    /// Durably raises the incarnation while the node runs.
    ///
    /// # Errors
    /// `Exhausted`, `Full`, `Io`.
    pub fn raise_incarnation(&mut self) -> Result<Incarnation, DataDirError> {
        let next = self.known().clone().next_incarnation();
        self.save(next.ok_or(DataDirError::Exhausted(self.node))?)?;
        Ok(self.known().incarnation)
    }

    /// Durably joins `cluster` as a node that lost its memory: with counters above any that a
    /// former self of it can have used, and never counting as new until an update says that it has
    /// formed.
    ///
    /// # Errors
    /// `AddressesTooLong`, `Io`, `Poisoned`.
    ///
    /// # Panics
    /// If a counter would fall, or before `start`.
    pub fn rejoin(
        &mut self,
        cluster: Cluster,
        running: Option<Running>,
        members: &[Member],
        incarnation: Incarnation,
        amnesia: AmnesiaCount,
    ) -> Result<(), DataDirError> {
        let known = self.known();
        assert!(incarnation >= known.incarnation && amnesia >= known.amnesia, "counters only grow");
        let next = Identity {
            standing: Standing::Uncertain,
            cluster: Some(cluster),
            running,
            members: members.to_vec(),
            incarnation,
            amnesia,
            groups: Vec::new(),
            ..known.clone()
        };
        // Both copies: the older one must not stay more than one step behind.
        self.save(next.clone())?;
        self.save(next)
    }

    /// Durably changes what may change while the node runs: cluster, feature levels, members,
    /// standing, clocks, databases, groups.
    ///
    /// # Errors
    /// `AddressesTooLong`, `Io`, `Poisoned`.
    ///
    /// # Panics
    /// If the change touches a counter, the node or the binding, or comes before `start`.
    pub fn update(&mut self, change: impl FnOnce(&mut Identity)) -> Result<(), DataDirError> {
        let before = self.known();
        let mut next = before.clone();
        change(&mut next);
        let fixed =
            |it: &Identity| (it.node, it.binding, it.incarnation, it.amnesia, it.durability);
        assert_eq!(fixed(before), fixed(&next), "an update must leave these alone");
        if next == *before && !self.is_poisoned && !self.owes_copy {
            return Ok(());
        }
        // Both copies: a pledge or a group's promise must not be forgotten with one of them.
        if next.running != before.running || next.groups != before.groups {
            self.owes_copy = true;
            self.save(next.clone())?;
        }
        self.save(next)?;
        self.owes_copy = false;
        Ok(())
    }

    fn known(&self) -> &Identity {
        self.identity().expect("a directory is started before it is used")
    }

    fn create(&mut self, identity: Identity) -> Result<&Identity, DataDirError> {
        self.identity = Some(create(&self.path, &self.directory, identity)?);
        Ok(self.known())
    }

    fn save(&mut self, identity: Identity) -> Result<(), DataDirError> {
        if self.is_poisoned {
            return Err(DataDirError::Poisoned(self.path.clone()));
        }
        let saved = self.identity.as_mut().expect("a directory is started before it is saved");
        let result = saved.write(&self.path, identity);
        // A failed flush may have dropped the pages that it did not write: its copy cannot be
        // believed.
        self.is_poisoned = matches!(result, Err(DataDirError::Io { .. }));
        result
    }
}

impl Saved {
    fn write(&mut self, dir: &Path, identity: Identity) -> Result<(), DataDirError> {
        let (sequence, place) = (self.sequence + 1, 1 - self.place);
        let copy = identity.encode(sequence, place).ok_or(DataDirError::AddressesTooLong)?;
        self.file.write_all_at(&copy, (place * COPY_LEN) as u64).map_err(not_written(dir))?;
        self.file.sync_data().map_err(at(dir))?;
        (self.sequence, self.place) = (sequence, place);
        (self.identity, self.is_damaged) = (identity, false);
        Ok(())
    }
}

/// The node whose directory this is, without holding it; `None` for one that is not used yet.
///
/// # Errors
/// `Damaged`, `UnknownFormat`, `NotOurs`, `Io`.
pub fn owner(path: &Path) -> Result<Option<NodeId>, DataDirError> {
    Ok(read(path, false)?.map(|saved| saved.identity.node))
}

/// Wipes what node `node` knows, for an operator who says so: every file beside `node` is removed,
/// the loss is raised, and the directory counts as empty again. Subdirectories are left alone.
///
/// Where both copies of the identity are damaged the counters are unknown. They restart at the
/// number of minutes from 2026 to `now_unix`: above those of a node that did not start, on average,
/// once a minute.
///
/// # Errors
/// `Busy`, `WrongNode`, `UnknownFormat`, `NotOurs`, `Exhausted`, `Io`.
pub fn reset(path: &Path, node: NodeId, now_unix: Millis) -> Result<(), DataDirError> {
    let directory = lock(path)?;
    let exhausted = || DataDirError::Exhausted(node);
    let (saved, lost) = match read(path, true) {
        Ok(None) => return Ok(()),
        Ok(Some(saved)) => {
            check_node(path, &saved, node)?;
            let lost = match saved.is_damaged {
                true => saved.identity.clone().after_damage().ok_or_else(exhausted)?,
                false => saved.identity.clone(),
            };
            (saved, lost)
        }
        Err(DataDirError::Damaged(_)) => {
            let unknown = beyond_memory(node, now_unix).ok_or_else(exhausted)?;
            (create(path, &directory, unknown.clone())?, unknown)
        }
        Err(error) => return Err(error),
    };
    let identity = Some(saved);
    let (path_owned, is_poisoned, owes_copy) = (path.to_owned(), false, false);
    let mut dir = DataDir { path: path_owned, node, directory, identity, is_poisoned, owes_copy };
    let lost = lost.next_amnesia().ok_or_else(exhausted)?;
    let blank = Identity {
        cluster: None,
        running: None,
        members: Vec::new(),
        databases: Vec::new(),
        groups: Vec::new(),
        binding: draw()?,
        standing: Standing::Wiping,
        ..lost
    };
    // Twice, so that no copy says that the files about to go are still there.
    dir.save(blank.clone())?;
    dir.save(blank.clone())?;
    remove_files(path)?;
    dir.directory.sync_all().map_err(at(path))?;
    dir.save(Identity { standing: Standing::Unformed, ..blank })
}

fn beyond_memory(node: NodeId, now_unix: Millis) -> Option<Identity> {
    const YEAR_2026: u64 = 1_767_225_600_000;
    let minutes = now_unix.0.saturating_sub(YEAR_2026) / 60_000;
    let counter = u32::try_from(minutes).ok().filter(|&it| it < Incarnation::MAX.0)?;
    let unknown = Identity::new(node, Durability::Disk, 0);
    Some(Identity {
        standing: Standing::Wiping,
        incarnation: Incarnation(counter),
        amnesia: AmnesiaCount(counter),
        ..unknown
    })
}

/// True where a directory has a file of this name, or a link, wherever that leads.
///
/// # Errors
/// When that cannot be known: what cannot be seen is not missing.
pub fn is_there(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn lock(path: &Path) -> Result<File, DataDirError> {
    if !path.exists() {
        let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
        let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
        fs::create_dir_all(path).map_err(at(path))?;
        // Each name on the way must survive, not only the last.
        missing.into_iter().try_for_each(sync_parent)?;
    }
    let directory = File::open(path).map_err(at(path))?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(directory),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(DataDirError::Busy(path.to_owned())),
        Err(errno) => Err(at(path)(errno.into())),
    }
}

fn sync_parent(path: &Path) -> Result<(), DataDirError> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(at(parent))
}

fn read(path: &Path, writes: bool) -> Result<Option<Saved>, DataDirError> {
    let file = match OpenOptions::new().read(true).write(writes).open(path.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            check_unused(path)?;
            return Ok(None);
        }
        Err(error) => return Err(at(path)(error)),
    };
    let mut bytes = Vec::with_capacity(2 * COPY_LEN);
    let len_max = 2 * COPY_LEN as u64;
    (&file).take(len_max).read_to_end(&mut bytes).map_err(at(path))?;
    let (first, second) = bytes.split_at(bytes.len().min(COPY_LEN));
    let found = [decode(first, 0), decode(second, 1)];
    choose(path, file, found).map(Some)
}

fn choose(path: &Path, file: File, found: [Found; 2]) -> Result<Saved, DataDirError> {
    let is_damaged = found.contains(&Found::Damaged);
    let mut newest: Option<(u64, usize, Identity)> = None;
    for (place, copy) in found.into_iter().enumerate() {
        match copy {
            Found::OtherFormat(found) => {
                return Err(DataDirError::UnknownFormat { dir: path.to_owned(), found });
            }
            Found::Valid { sequence, identity } => {
                if newest.as_ref().is_none_or(|(other, ..)| sequence > *other) {
                    newest = Some((sequence, place, *identity));
                }
            }
            Found::Damaged => {}
        }
    }
    let (sequence, place, identity) =
        newest.ok_or_else(|| DataDirError::Damaged(path.to_owned()))?;
    Ok(Saved { file, identity, sequence, place, is_damaged })
}

fn check_node(path: &Path, saved: &Saved, asked: NodeId) -> Result<(), DataDirError> {
    let found = saved.identity.node;
    if found == asked {
        return Ok(());
    }
    Err(DataDirError::WrongNode { dir: path.to_owned(), found, asked })
}

fn check_unused(path: &Path) -> Result<(), DataDirError> {
    for entry in fs::read_dir(path).map_err(at(path))? {
        let name = entry.map_err(at(path))?.file_name();
        if !IGNORED.iter().any(|&ignored| name == ignored) {
            return Err(DataDirError::NotOurs(path.to_owned()));
        }
    }
    Ok(())
}

/// Makes the file `node` appear at once with both copies in it.
fn create(path: &Path, directory: &File, identity: Identity) -> Result<Saved, DataDirError> {
    let new = path.join(FILE_NEW);
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).to_owned();
    let mut file = options.open(&new).map_err(not_written(path))?;
    for (sequence, place) in [(2, 0), (1, 1)] {
        let copy = identity.encode(sequence, place).ok_or(DataDirError::AddressesTooLong)?;
        file.write_all(&copy).map_err(not_written(path))?;
    }
    file.sync_all().map_err(not_written(path))?;
    fs::rename(&new, path.join(FILE)).map_err(not_written(path))?;
    directory.sync_all().map_err(at(path))?;
    Ok(Saved { file, identity, sequence: 2, place: 0, is_damaged: false })
}

/// The error of a write that no flush of bytes in use has followed.
fn not_written(path: &Path) -> impl Fn(io::Error) -> DataDirError {
    let path = path.to_owned();
    move |error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            DataDirError::Full(path.clone())
        }
        _ => at(&path)(error),
    }
}

fn remove_files(path: &Path) -> Result<(), DataDirError> {
    for entry in fs::read_dir(path).map_err(at(path))? {
        let entry = entry.map_err(at(path))?;
        let is_dir = entry.file_type().map_err(at(path))?.is_dir();
        if !is_dir && entry.file_name() != FILE {
            fs::remove_file(entry.path()).map_err(at(path))?;
        }
    }
    Ok(())
}

fn draw() -> Result<u64, DataDirError> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0; 8];
    File::open(source).and_then(|mut file| file.read_exact(&mut bytes)).map_err(at(source))?;
    Ok(u64::from_le_bytes(bytes))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> DataDirError {
    let path = path.to_owned();
    move |source| DataDirError::Io { path, source }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::identity::{GroupRecord, SavedClock};

    /// A file system that copies on write needs room for each change.
    #[test]
    fn full_disk_is_no_lasting_failure() {
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let identity = Identity::new(NodeId(1), Durability::Disk, 7);
        let saved = Saved { file: full, identity, sequence: 4, place: 1, is_damaged: false };
        let mut dir = DataDir {
            path: PathBuf::from("here"),
            node: NodeId(1),
            directory: File::open("/").expect("it is there"),
            identity: Some(saved),
            is_poisoned: false,
            owes_copy: false,
        };
        for _ in 0..2 {
            let error = dir.update(|it| it.standing = Standing::Uncertain).expect_err("it is full");
            assert!(matches!(error, DataDirError::Full(_)), "{error}");
            assert!(error.to_string().starts_with("here/node cannot be written"), "{error}");
        }
        assert_eq!(dir.known().standing, Standing::Unformed, "nothing became durable");
    }

    #[test]
    fn identity_is_saved_again_once_there_is_room() {
        let path = scratch("room");
        let mut dir = DataDir::open(&path, NodeId(7)).expect("it is new");
        let before = dir.start(Durability::Disk).expect("it starts").clone();
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let saved = dir.identity.as_mut().expect("it was started");
        let file = std::mem::replace(&mut saved.file, full);
        let clocks = vec![SavedClock { shown: Millis(5), until: Millis(9) }];
        for _ in 0..3 {
            let refused = dir.update(|identity| identity.clocks = clocks.clone());
            assert!(matches!(refused, Err(DataDirError::Full(_))), "{refused:?}");
            assert_eq!(dir.identity(), Some(&before));
        }
        dir.identity.as_mut().expect("it was started").file = file;
        dir.update(|identity| identity.clocks = clocks.clone()).expect("there is room again");
        drop(dir);
        let dir = DataDir::open(&path, NodeId(7)).expect("it is ours");
        assert!(!dir.is_damaged());
        assert_eq!(dir.identity(), Some(&Identity { clocks, ..before }));
        fs::remove_dir_all(&path).expect("it is ours");
    }

    /// A promise must not be told while one copy has it alone, though one write has succeeded.
    #[test]
    fn promise_is_in_both_copies_before_it_counts_as_saved() {
        let path = scratch("copies");
        let mut dir = DataDir::open(&path, NodeId(7)).expect("it is new");
        dir.start(Durability::Disk).expect("it starts");
        let sequence = |dir: &DataDir| dir.identity.as_ref().map_or(0, |saved| saved.sequence);
        let groups = vec![GroupRecord { index: 1, bytes: vec![1] }];
        let before = sequence(&dir);
        dir.update(|identity| identity.groups = groups.clone()).expect("there is room");
        assert_eq!(sequence(&dir), before + 2);
        // The second of two writes has found no room.
        dir.owes_copy = true;
        dir.update(|identity| identity.groups = groups.clone()).expect("there is room");
        assert_eq!(sequence(&dir), before + 3);
        dir.update(|identity| identity.groups = groups.clone()).expect("there is room");
        assert_eq!(sequence(&dir), before + 3, "both copies have it");
        fs::remove_dir_all(&path).expect("it is ours");
    }

    #[test]
    fn first_start_names_a_full_disk() {
        let path = scratch("first");
        fs::create_dir_all(&path).expect("a directory");
        std::os::unix::fs::symlink("/dev/full", path.join(FILE_NEW)).expect("a link");
        let mut dir = DataDir::open(&path, NodeId(7)).expect("it counts as empty");
        let error = dir.start(Durability::Disk).expect_err("it is full");
        assert!(error.to_string().contains("the disk is full: make room"), "{error}");
        fs::remove_file(path.join(FILE_NEW)).expect("it is ours");
        dir.start(Durability::Disk).expect("there is room again");
        fs::remove_dir_all(&path).expect("it is ours");
    }

    fn scratch(name: &str) -> PathBuf {
        let name = format!("palimpsest-identity-{name}-{}", std::process::id());
        std::env::temp_dir().join(name)
    }
}
