//! The model medium keeps its promises.

use super::*;
use crate::medium::{Medium, MediumConfig, NotOpened};

fn medium(durability: Durability) -> (ModelMedium, ModelStore) {
    let medium = ModelMedium::new(durability, &[Database(0)], 0, Prng::new(1));
    let store = medium.open(1).remove(0);
    (medium, store)
}

fn cell(key: &str) -> Place {
    Place::Cell(Database(0), Key::new(key.as_bytes()))
}

fn found(text: &'static str) -> Load {
    Load::Found(Bytes::from_static(text.as_bytes()))
}

#[test]
fn flushed_survives_and_unflushed_may() {
    let mut survivors = 0;
    for seed in 0..20 {
        let medium = ModelMedium::new(Durability::Disk, &[Database(0)], 0, Prng::new(seed));
        let mut store = medium.open(1).remove(0);
        store.put(&cell("a"), b"1");
        store.submit();
        let flush = medium.take_work(0).flush.expect("a batch to flush");
        medium.finish_flush(0, flush);
        store.put(&cell("a"), b"2");
        store.submit();
        assert_eq!(store.load(&cell("a")), found("2"));
        medium.crash(Survival::Prefix);
        match medium.open(1)[0].load(&cell("a")) {
            Load::Found(record) if record == "2" => survivors += 1,
            load => assert_eq!(load, found("1")),
        }
    }
    assert!((1..20).contains(&survivors), "{survivors} of 20");
}

#[test]
fn pmem_is_durable_once_submitted() {
    let (medium, mut store) = medium(Durability::Pmem);
    store.put(&cell("a"), b"1");
    let ticket = store.ticket();
    store.submit();
    let mut completions = Vec::new();
    store.poll(&mut completions);
    assert_eq!(completions, [Completion::Stored(ticket)]);
    medium.crash(Survival::Torn);
    assert_eq!(medium.open(1)[0].load(&cell("a")), found("1"));
}

#[test]
fn damaged_record_is_lost_until_rewritten() {
    let (medium, mut store) = medium(Durability::Pmem);
    store.put(&cell("a"), b"1");
    store.submit();
    assert!(medium.damage(|_| true));
    assert!(medium.has_forgotten(&cell("a")) && medium.has_forgotten_anything());
    store.poll(&mut Vec::new());
    assert_eq!(store.load(&cell("a")), Load::Pending, "no worker has heard of the loss");
    assert_eq!(store.load(&cell("b")), Load::Absent);
    let (database, shard) = (Database(0), Key::new(b"a").shard());
    let lost = Completion::Loaded { place: cell("a"), load: Load::Lost };
    let mut completions = Vec::new();
    store.poll(&mut completions);
    assert_eq!(completions, [Completion::Forgotten { database, shard }, lost]);
    assert_eq!(store.load(&cell("a")), Load::Lost);
    store.put(&cell("a"), b"2");
    store.submit();
    assert_eq!(store.load(&cell("a")), found("2"));
    assert!(medium.has_forgotten_anything());
    store.set_forgotten(database, shard, false);
    store.submit();
    assert!(!medium.has_forgotten_anything());
}

#[test]
fn scan_that_meets_damage_forgets_the_shard() {
    let (medium, mut store) = medium(Durability::Pmem);
    let key = Key::new(b"a");
    store.put(&cell("a"), b"1");
    store.submit();
    medium.damage(|_| true);
    store.scan(7, Database(0), key.shard().first_hash(), 10);
    let mut completions = Vec::new();
    store.poll(&mut completions);
    let forgotten = Completion::Forgotten { database: Database(0), shard: key.shard() };
    assert!(completions.contains(&forgotten));
    assert!(store.is_forgotten(Database(0), key.shard()));
}

#[test]
fn wiped_medium_has_forgotten_every_shard() {
    let (medium, mut store) = medium(Durability::Disk);
    store.put(&cell("a"), b"1");
    store.submit();
    medium.crash(Survival::Prefix);
    medium.wipe();
    let mut store = medium.open(1).remove(0);
    assert_eq!(store.load(&cell("a")), Load::Lost);
    store.set_forgotten(Database(0), Key::new(b"a").shard(), false);
    assert_eq!(store.load(&cell("a")), Load::Absent);
}

#[test]
fn scan_pages_through_unflushed_changes() {
    let (_, mut store) = medium(Durability::Disk);
    let shard = Key::new(b"a").shard();
    let mut keys: Vec<Key> = (0..20_000_u32)
        .map(|n| Key::new(&n.to_le_bytes()))
        .filter(|key| key.shard() == shard)
        .collect();
    keys.sort();
    for key in &keys {
        store.put(&Place::Cell(Database(0), key.clone()), b"1");
    }
    let mut listed = Vec::new();
    let mut from_hash = Some(shard.first_hash());
    while let Some(hash) = from_hash {
        store.scan(1, Database(0), hash, 10);
        let mut completions = Vec::new();
        store.poll(&mut completions);
        let Some(Completion::Scanned { records, next_hash, .. }) = completions.pop() else {
            panic!("a scan is answered");
        };
        listed.extend(records.into_iter().map(|(key, _)| key));
        from_hash = next_hash;
    }
    assert_eq!(listed, keys);
}

/// A log with so many records.
fn log_of(records: u64) -> (Medium, Box<dyn Store>) {
    let config = MediumConfig::model(Durability::Pmem);
    let medium = Medium::new(&config, &[Database(0)], Prng::new(1));
    let mut store = medium.open(1).expect("nothing is damaged").remove(0);
    let mut changes = LogChanges::default();
    (1..=records).for_each(|index| changes.append(index, Bytes::from_static(b"record")));
    store.change_log(Database(0), changes);
    store.submit();
    (medium, store)
}

#[test]
fn node_with_a_damaged_log_is_reset() {
    let (medium, _store) = log_of(1);
    assert!(!medium.damage(|_| false) && !medium.has_forgotten_anything());
    assert!(medium.damage(|_| true) && medium.has_forgotten_anything());
    medium.crash(Survival::Prefix);
    assert!(matches!(medium.open(1), Err(NotOpened::Damaged)));
    medium.wipe();
    let mut store = medium.open(1).expect("it is reset").remove(0);
    assert!(store.open_log(Database(0)).records.is_empty());
}

/// It would look as if it was never written.
#[test]
fn last_record_of_a_log_never_rolls_back() {
    let (medium, _store) = log_of(1);
    assert!(!medium.roll_back(|_| true));
    let (medium, _store) = log_of(2);
    assert!(medium.roll_back(|_| true));
    assert!(matches!(medium.open(1), Err(NotOpened::Damaged)));
}

#[test]
fn damaged_record_that_is_cut_off_is_never_read() {
    let (medium, mut store) = log_of(2);
    assert!(medium.roll_back(|_| true));
    let mut changes = LogChanges::default();
    changes.append(3, Bytes::from_static(b"record"));
    changes.cut(1 + CUT_RETURNS);
    store.change_log(Database(0), changes);
    store.submit();
    assert!(!medium.has_forgotten_anything() && medium.open(1).is_ok());
}
