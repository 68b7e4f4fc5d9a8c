//! The data directory under torn writes, flips and wrong owners.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use base::Millis;
use proptest::prelude::*;
use storage::data_dir::{DataDir, DataDirError, reset};
use storage::identity::{COPY_LEN, Cluster, Durability, FORMAT, Member, SavedClock, Standing};
use types::features::{FeatureLevel, Running};
use types::positions::SECRET_LEN;
use types::{AmnesiaCount, Incarnation, NodeId};

const NODE: NodeId = NodeId(7);

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "palimpsest-identity-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a scratch directory can be made");
        Scratch(path)
    }

    fn open(&self) -> Result<DataDir, DataDirError> {
        DataDir::open(&self.0, NODE)
    }

    fn start(&self) -> DataDir {
        let mut dir = self.open().expect("it is ours");
        dir.start(Durability::Disk).expect("it starts");
        dir
    }

    fn node_file(&self) -> PathBuf {
        self.0.join("node")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn members() -> Vec<Member> {
    let listen = |port: u16| format!("127.0.0.1:{port}");
    vec![Member {
        node: NODE,
        listen: listen(6379),
        peer_listen: listen(16379),
        incarnation: Incarnation(0),
        amnesia: AmnesiaCount(0),
        limits: None,
    }]
}

fn counters(dir: &DataDir) -> (u32, u32) {
    let identity = dir.identity().expect("it was started");
    (identity.incarnation.0, identity.amnesia.0)
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("it is there");
    change(&mut bytes);
    fs::write(path, bytes).expect("it can be written");
}

fn cluster(id: u128) -> Cluster {
    Cluster { id, secret: [id as u8; SECRET_LEN] }
}

fn join(dir: &mut DataDir, id: u128) {
    dir.update(|identity| {
        identity.cluster = Some(cluster(id));
        identity.running = Some(Running::at(FeatureLevel(1)));
        identity.members = members();
        identity.standing = Standing::Formed;
    })
    .expect("it joins");
}

#[test]
fn every_start_has_an_incarnation_of_its_own() {
    let scratch = Scratch::new();
    for expected in 1..5 {
        let dir = scratch.start();
        assert_eq!(counters(&dir), (expected, 0));
    }
}

#[test]
fn opening_changes_nothing() {
    let scratch = Scratch::new();
    drop(scratch.open().expect("an empty directory is ours"));
    assert_eq!(fs::read_dir(&scratch.0).expect("readable").count(), 0);
    drop(scratch.start());
    let before = fs::read(scratch.node_file()).expect("written");
    drop(scratch.open().expect("it is ours"));
    assert_eq!(fs::read(scratch.node_file()).expect("written"), before);
}

#[test]
fn what_was_saved_is_there_after_a_restart() {
    let scratch = Scratch::new();
    let mut dir = scratch.start();
    assert!(dir.is_empty());
    join(&mut dir, 42);
    let clock = SavedClock { shown: Millis(5_000), until: Millis(6_000) };
    dir.update(|identity| identity.clocks = vec![clock]).expect("it saves");
    assert_eq!(dir.raise_amnesia().expect("it saves"), AmnesiaCount(1));
    let incarnation = dir.raise_incarnation().expect("it saves");
    assert_eq!(incarnation, Incarnation(2), "the start took the first");
    drop(dir);
    let dir = scratch.open().expect("it is ours");
    let identity = dir.identity().expect("it was saved");
    assert_eq!((identity.cluster, identity.standing), (Some(cluster(42)), Standing::Formed));
    assert_eq!((&identity.clocks[..], identity.amnesia), (&[clock][..], AmnesiaCount(1)));
    assert_eq!(identity.members, members());
    assert_eq!(identity.incarnation, incarnation);
    assert!(!dir.is_empty());
}

#[test]
fn a_second_owner_is_refused() {
    let scratch = Scratch::new();
    let _first = scratch.start();
    assert!(matches!(scratch.open(), Err(DataDirError::Busy(_))));
}

#[test]
fn foreign_directories_are_refused_and_left_alone() {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("letter.txt"), "dear").expect("it can be written");
    assert!(matches!(scratch.open(), Err(DataDirError::NotOurs(_))));
    assert!(matches!(reset(&scratch.0, NODE, Millis(0)), Err(DataDirError::NotOurs(_))));
    fs::remove_file(scratch.0.join("letter.txt")).expect("it is there");

    let mut dir = scratch.start();
    join(&mut dir, 42);
    drop(dir);
    let before = fs::read(scratch.node_file()).expect("written");
    let other = DataDir::open(&scratch.0, NodeId(8));
    assert!(matches!(other, Err(DataDirError::WrongNode { found: NODE, .. })));
    let mut dir = scratch.open().expect("it is ours");
    let other = dir.start(Durability::Pmem);
    assert!(matches!(other, Err(DataDirError::OtherDurability { found: Durability::Disk, .. })));
    assert_eq!(fs::read(scratch.node_file()).expect("written"), before);
}

#[test]
fn an_unknown_format_is_refused() {
    let scratch = Scratch::new();
    drop(scratch.start());
    edit(&scratch.node_file(), |bytes| {
        bytes[16] = 10;
        let checksum = base::checksum::checksum(0, &bytes[8..COPY_LEN]);
        bytes[..8].copy_from_slice(&checksum.to_le_bytes());
    });
    let before = fs::read(scratch.node_file()).expect("written");
    let error = scratch.open().expect_err("it is unknown");
    assert!(matches!(error, DataDirError::UnknownFormat { found: 10, .. }), "{error}");
    let file = scratch.node_file();
    let text = format!("{} has format 10, this version knows {FORMAT}:", file.display());
    assert!(error.to_string().starts_with(&text), "{error}");
    assert!(reset(&scratch.0, NODE, Millis(0)).is_err(), "what is unknown is not thrown away");
    assert_eq!(fs::read(file).expect("written"), before);
}

#[test]
fn a_volatile_node_that_ran_before_has_lost_its_state() {
    let scratch = Scratch::new();
    for losses in 0..3 {
        let mut dir = scratch.open().expect("it is ours");
        let identity = dir.start(Durability::Volatile).expect("it starts");
        assert_eq!(identity.amnesia, AmnesiaCount(losses));
    }
}

#[test]
fn damage_in_both_copies_needs_a_reset() {
    let scratch = Scratch::new();
    drop(scratch.start());
    edit(&scratch.node_file(), |bytes| bytes.fill(0));
    assert!(matches!(scratch.open(), Err(DataDirError::Damaged(_))));
    let a_year_later = Millis(1_767_225_600_000 + 365 * 86_400_000);
    reset(&scratch.0, NODE, a_year_later).expect("an operator may");
    let dir = scratch.start();
    assert!(dir.is_empty());
    assert!(counters(&dir).0 > 365 * 1440 && counters(&dir).1 > 365 * 1440);
}

#[test]
fn a_reset_forgets_all_but_the_node_and_its_losses() {
    let scratch = Scratch::new();
    let mut dir = scratch.start();
    join(&mut dir, 42);
    let before = dir.identity().expect("started").clone();
    drop(dir);
    fs::write(scratch.0.join("pmem"), "slots").expect("it can be written");
    reset(&scratch.0, NODE, Millis(0)).expect("an operator may");
    let dir = scratch.start();
    let after = dir.identity().expect("started");
    assert!(dir.is_empty() && !scratch.0.join("pmem").exists());
    assert_eq!((after.cluster, after.members.len()), (None, 0));
    assert_eq!(after.amnesia, AmnesiaCount(before.amnesia.0 + 1));
    assert_eq!(after.incarnation, Incarnation(before.incarnation.0 + 1));
    assert_ne!(after.binding, before.binding);
}

#[test]
fn a_reset_that_was_cut_off_must_be_repeated() {
    let scratch = Scratch::new();
    drop(scratch.start());
    reset(&scratch.0, NODE, Millis(0)).expect("an operator may");
    // The last write of the reset is lost; the copy before it says that files were going.
    edit(&scratch.node_file(), |bytes| {
        let newest = usize::from(bytes[24] < bytes[COPY_LEN + 24]);
        bytes[newest * COPY_LEN + 100] ^= 1;
    });
    assert!(matches!(scratch.open(), Err(DataDirError::ResetUnfinished(_))));
    reset(&scratch.0, NODE, Millis(0)).expect("an operator may");
    assert!(scratch.open().expect("it is ours").is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever one damaged copy said, the next start is beyond it, and the node never counts as
    /// new.
    #[test]
    fn one_damaged_copy_never_brings_a_counter_back(
        saves in 0_u32..5,
        damages in prop::collection::vec((0_usize..2, 0_usize..COPY_LEN, 1_u8..), 1..5),
    ) {
        let scratch = Scratch::new();
        let mut dir = scratch.start();
        for _ in 0..saves {
            dir.raise_amnesia().expect("it saves");
        }
        let mut said = counters(&dir);
        drop(dir);
        for (copy, offset, flip) in damages {
            edit(&scratch.node_file(), |bytes| bytes[copy * COPY_LEN + offset] ^= flip);
            let mut dir = scratch.open().expect("one copy is whole");
            prop_assert!(dir.is_damaged() && !dir.is_empty());
            dir.start(Durability::Disk).expect("it starts");
            prop_assert!(!dir.is_empty());
            let now = counters(&dir);
            prop_assert!(now.0 > said.0 && now.1 > said.1, "{:?} after {:?}", now, said);
            said = now;
        }
    }

    /// A write that is cut off anywhere leaves the older facts or the new ones.
    #[test]
    fn a_torn_save_leaves_an_older_or_the_newer_identity(cut in 0_usize..COPY_LEN) {
        let scratch = Scratch::new();
        let mut dir = scratch.start();
        let before = fs::read(scratch.node_file()).expect("written");
        join(&mut dir, 42);
        drop(dir);
        edit(&scratch.node_file(), |bytes| {
            let place = usize::from(before[..COPY_LEN] == bytes[..COPY_LEN]);
            let torn = place * COPY_LEN + cut..(place + 1) * COPY_LEN;
            bytes[torn.clone()].copy_from_slice(&before[torn]);
        });
        let dir = scratch.open().expect("one copy is whole");
        let found = dir.identity().expect("started").cluster;
        prop_assert!(dir.is_damaged() || found == Some(cluster(42)) || cut < 16);
        prop_assert!(!dir.is_empty() || found.is_none() && !dir.is_damaged());
    }
}

#[test]
fn a_node_that_rejoins_above_its_former_self_is_uncertain_until_it_has_formed() {
    let scratch = Scratch::new();
    let mut first = scratch.start();
    let running = Some(Running::at(FeatureLevel(2)));
    first
        .rejoin(cluster(7), running, &members(), Incarnation(4096), AmnesiaCount(8192))
        .expect("it rejoins");
    drop(first);
    let again = scratch.open().expect("its own directory");
    let identity = again.identity().expect("it has one");
    assert_eq!((identity.standing, identity.cluster), (Standing::Uncertain, Some(cluster(7))));
    assert_eq!(identity.running, running);
    assert_eq!((identity.incarnation, identity.amnesia), (Incarnation(4096), AmnesiaCount(8192)));
    assert!(!again.is_empty());
}
