//! The disk engine keeps its promises over a device that keeps only flushed data.

use bytes::Bytes;
use storage::{Load, Place};
use types::Key;

use super::*;

const DATABASE: Database = Database(0);

fn medium(seed: u64) -> DiskMedium {
    let shape = Config {
        ring_bytes: 64 << 10,
        spare_pages: 32,
        initial_level: 1,
        cache_bytes: 0,
        fill_percent: 60,
        first_fit: false,
    };
    DiskMedium::new(shape, &[DATABASE], 1, false, Prng::new(seed))
}

fn open(medium: &DiskMedium) -> Box<dyn Store> {
    medium.open(1).expect("it opens").remove(0)
}

fn cell() -> Place {
    Place::Cell(DATABASE, Key::new(b"a"))
}

/// Finishes all work, also the work that follows from it.
fn finish_all(medium: &DiskMedium) {
    let (mut works, mut awake) = (Vec::new(), Vec::new());
    loop {
        medium.take_work(&mut works);
        works.retain(|work| !matches!(work, Work::Rest { .. }));
        if works.is_empty() {
            return;
        }
        for work in works.drain(..) {
            let (Work::Store(io) | Work::Read(io)) = work else { panic!("{work:?}") };
            medium.finish(io, &mut awake);
        }
    }
}

fn put(store: &mut dyn Store, record: &[u8]) {
    store.put(&cell(), record);
    store.submit();
}

fn load(medium: &DiskMedium, store: &mut dyn Store) -> Load {
    let mut completions = Vec::new();
    if let load @ (Load::Found(_) | Load::Absent | Load::Lost) = store.load(&cell()) {
        return load;
    }
    for _ in 0..10 {
        store.poll(&mut completions);
        finish_all(medium);
        for completion in completions.drain(..) {
            if let Completion::Loaded { load, .. } = completion {
                return load;
            }
        }
    }
    panic!("a load is not answered");
}

#[test]
fn state_read_at_start_survives_power_loss() {
    let mut shown_new = 0;
    for seed in 0..100 {
        let medium = medium(seed);
        let mut store = open(&medium);
        put(&mut *store, b"old");
        finish_all(&medium);
        put(&mut *store, b"new");
        medium.crash(Survival::Prefix);
        let shown = load(&medium, &mut *open(&medium));
        medium.crash(Survival::Nothing);
        assert_eq!(load(&medium, &mut *open(&medium)), shown, "seed {seed}");
        shown_new += u64::from(shown == Load::Found(Bytes::from_static(b"new")));
    }
    assert!((1..100).contains(&shown_new), "{shown_new} of 100");
}

#[test]
fn state_after_failed_flush_survives_power_loss() {
    for seed in 0..100 {
        let medium = medium(seed);
        let mut store = open(&medium);
        put(&mut *store, b"old");
        finish_all(&medium);
        medium.set_failing(true);
        put(&mut *store, b"new");
        finish_all(&medium);
        assert!(medium.has_failed());
        medium.crash(Survival::Prefix);
        let shown = load(&medium, &mut *open(&medium));
        assert_ne!(shown, Load::Lost, "seed {seed}");
        medium.crash(Survival::Nothing);
        assert_eq!(load(&medium, &mut *open(&medium)), shown, "seed {seed}");
    }
}

#[test]
fn wiped_medium_forgets_until_shards_are_known() {
    let medium = medium(1);
    put(&mut *open(&medium), b"old");
    finish_all(&medium);
    medium.crash(Survival::Nothing);
    medium.wipe();
    assert!(medium.is_recovering());
    let mut store = open(&medium);
    assert_eq!(load(&medium, &mut *store), Load::Lost);
    for shard in 0..SHARDS {
        store.set_forgotten(DATABASE, Shard(shard as u8), false);
    }
    store.poll(&mut Vec::new());
    store.submit();
    finish_all(&medium);
    store.poll(&mut Vec::new());
    assert_eq!(load(&medium, &mut *store), Load::Absent);
}

#[test]
fn rot_lasts_until_overwritten() {
    let medium = medium(3);
    let mut store = open(&medium);
    put(&mut *store, b"old");
    finish_all(&medium);
    assert!(!medium.has_forgotten_anything());
    let rots = (0..20).any(|_| medium.damage() && medium.has_forgotten_anything());
    assert!(rots, "damage shows");
}
