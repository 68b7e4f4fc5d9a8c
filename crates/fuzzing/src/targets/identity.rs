//! The file that says who a node is, damaged.

use std::path::PathBuf;

use base::Millis;
use storage::data_dir::DataDir;
use storage::identity::{
    COPY_LEN, Cluster, Durability, Found, Identity, Member, SavedClock, Standing, decode,
};
use types::features::{FeatureLevel, Running};
use types::positions::SECRET_LEN;
use types::{AmnesiaCount, Incarnation, NodeId};

use super::Target;
use super::image::{self, Damage};
use crate::input::Input;

pub(super) const TARGET: Target = Target {
    name: "identity",
    claim: "a damaged identity is the one that was written, one above it, or none",
    run,
    seeds,
    short: 15_000,
};

/// The copies are written in turn: the first is one write behind.
fn written() -> [Identity; 2] {
    let member = |node: u16| Member {
        node: NodeId(node),
        listen: format!("10.0.0.{node}:6379"),
        peer_listen: format!("10.0.0.{node}:16379"),
        incarnation: Incarnation(3),
        amnesia: AmnesiaCount(u32::from(node)),
        limits: None,
    };
    let first = Identity {
        standing: Standing::Formed,
        cluster: Some(Cluster { id: 7, secret: [9; SECRET_LEN] }),
        running: Some(Running::at(FeatureLevel(1))),
        members: vec![member(1), member(2), member(3)],
        incarnation: Incarnation(41),
        amnesia: AmnesiaCount(7),
        clocks: vec![SavedClock { shown: Millis(123_456), until: Millis(123_999) }],
        ..Identity::new(NodeId(2), Durability::Disk, 0x5eed)
    };
    let second = first.clone().next_incarnation().expect("there are more");
    [first, second]
}

fn run(data: &[u8]) {
    let written = written();
    let copies = [0, 1].map(|place| written[place].encode(12 + place as u64, place));
    let mut file = copies.map(|copy| copy.expect("it fits").to_vec()).concat();
    let damage = {
        let files = std::slice::from_mut(&mut file);
        image::damage(files, &mut Input::new(data))
    };
    for (place, identity) in written.iter().enumerate() {
        let copy = file.get(place * COPY_LEN..).unwrap_or_default();
        let found = decode(&copy[..copy.len().min(COPY_LEN)], place);
        let is_it = found
            == Found::Valid { sequence: 12 + place as u64, identity: Box::new(identity.clone()) };
        assert!(is_it || found == Found::Damaged || damage == Damage::Forged, "{found:?}");
    }
    check_directory(&written[1], &file, damage);
}

fn check_directory(newest: &Identity, file: &[u8], damage: Damage) {
    let dir = scratch();
    std::fs::write(dir.join("node"), file).expect("the temporary directory is writable");
    let mut opened = DataDir::open(&dir, NodeId(2));
    let after = std::fs::read(dir.join("node"));
    assert_eq!(after.ok().as_deref(), Some(file), "looking changed it");
    let started = opened.as_mut().ok().map(|opened| opened.start(Durability::Disk).cloned());
    drop(opened);
    std::fs::remove_dir_all(&dir).expect("it was made above");
    let Some(Ok(found)) = started else { return };
    if damage != Damage::Forged {
        let is = (found.incarnation, found.amnesia);
        assert!(is.0 > newest.incarnation, "{is:?} was said before");
        assert!(is.1 >= newest.amnesia, "{is:?} forgets a loss");
        assert_eq!(
            (found.node, found.cluster, &found.members),
            (newest.node, newest.cluster, &newest.members)
        );
    }
}

/// One directory of this process.
fn scratch() -> PathBuf {
    // In memory, where the system has such a place.
    let memory = PathBuf::from("/dev/shm");
    let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let dir = parent.join(format!("palimpsest-identity-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
    dir
}

fn seeds() -> Vec<Vec<u8>> {
    image::seeds(1)
}
