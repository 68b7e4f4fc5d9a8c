//! A small medium, keys, and a map of its wanted records.

use std::collections::BTreeMap;
use std::path::Path;

use base::Prng;
use storage::pmem::layout::Geometry;
use storage::pmem::modelled::Modelled;
use storage::pmem::{Pmem, PmemStore};
use storage::volatile::Beginning;
use storage::{Completion, Load, Place, Store};
use types::{Database, Key, Shard};

pub const BINDING: u64 = 0x5eed;
pub const SMALL: Geometry = Geometry { workers: 2, databases: 1, segment_len: 256 << 10 };
pub const DATABASE: Database = Database(0);

pub type Model = BTreeMap<Place, Vec<u8>>;

pub fn format() -> (Modelled, Pmem<Modelled>) {
    format_with(SMALL, 64 << 20)
}

pub fn format_with(geometry: Geometry, len_max: u64) -> (Modelled, Pmem<Modelled>) {
    let memory = Modelled::new(len_max);
    let pmem = Pmem::format(memory.clone(), geometry, BINDING, Beginning::New);
    (memory, pmem.expect("there is room"))
}

pub fn open(memory: &Modelled) -> Pmem<Modelled> {
    Pmem::from_memory(memory.clone(), BINDING, Path::new("modelled")).expect("it opens")
}

pub fn cell(key: &[u8]) -> Place {
    Place::Cell(DATABASE, Key::new(key))
}

/// Different keys of one shard.
pub fn keys_of(shard: Shard, count: usize) -> Vec<Key> {
    let keys = (0_u64..).map(|n| Key::new(&n.to_le_bytes()));
    keys.filter(|key| key.shard() == shard).take(count).collect()
}

/// Different keys of shard 1 with one neighbourhood in any leaf.
pub fn colliding(count: usize) -> Vec<Key> {
    let home = |key: &Key| ((key.hash() & 0xffff_ffff) * 63) >> 32;
    let keys = (0_u64..).map(|n| Key::new(&n.to_le_bytes()));
    keys.filter(|key| key.shard() == Shard(1) && home(key) == 5).take(count).collect()
}

/// A record that is different for every seed, with a length that visits several classes.
pub fn record(prng: &mut Prng) -> Vec<u8> {
    let len_max = *prng.pick(&[8, 40, 100, 300, 1_200]);
    let len = prng.between(0, len_max) as usize;
    let mut record = prng.next_u64().to_le_bytes().to_vec();
    record.resize(8 + len, prng.next_u64() as u8);
    record
}

pub fn poll(store: &mut impl Store) -> Vec<Completion> {
    let mut completions = Vec::new();
    store.poll(&mut completions);
    completions
}

/// The outcome of a load, with the completions before it.
pub fn load(store: &mut impl Store, place: &Place) -> (Load, Vec<Completion>) {
    match store.load(place) {
        Load::Pending => {}
        load => return (load, Vec::new()),
    }
    let mut said = poll(store);
    match said.pop() {
        Some(Completion::Loaded { place: of, load }) if of == *place => (load, said),
        other => panic!("a load ends with {other:?}"),
    }
}

pub fn found(load: Load) -> Option<Vec<u8>> {
    match load {
        Load::Found(record) => Some(record.to_vec()),
        Load::Absent => None,
        Load::Lost | Load::Pending => panic!("{load:?} without any damage"),
    }
}

/// Every place has the record of the model, and scans agree.
pub fn check_all(store: &mut PmemStore<Modelled>, places: &[Place], model: &Model) {
    for place in places {
        assert_eq!(found(store.load(place)), model.get(place).cloned(), "at {place:?}");
    }
    let mut shards: Vec<Shard> = Vec::new();
    for place in places {
        match place {
            Place::Cell(_, key) => shards.push(key.shard()),
            Place::Meta(_, shard) => shards.push(*shard),
        }
    }
    shards.sort_unstable();
    shards.dedup();
    for shard in shards {
        let expected: Vec<(Key, Vec<u8>)> = model
            .iter()
            .filter_map(|(place, record)| match place {
                Place::Cell(_, key) if key.shard() == shard => Some((key.clone(), record.clone())),
                _ => None,
            })
            .collect();
        assert_eq!(scan_all(store, shard, 7), expected, "scan of {shard:?}");
    }
}

pub fn scan_all(store: &mut impl Store, shard: Shard, limit: usize) -> Vec<(Key, Vec<u8>)> {
    let mut listed = Vec::new();
    let mut from = Some(shard.first_hash());
    while let Some(hash) = from {
        store.scan(1, DATABASE, hash, limit);
        let scanned = poll(store).into_iter().find_map(|completion| match completion {
            Completion::Scanned { records, next_hash, .. } => Some((records, next_hash)),
            _ => None,
        });
        let (records, next) = scanned.expect("a scan is answered");
        assert!(next.is_none_or(|next| next > hash), "a scan goes on");
        listed.extend(records.into_iter().map(|(key, record)| (key, record.to_vec())));
        from = next;
    }
    listed
}

/// Changes a few places at random, in the store and in the model.
pub fn change(
    store: &mut impl Store,
    places: &[Place],
    model: &mut Model,
    changes: u64,
    prng: &mut Prng,
) {
    for _ in 0..prng.between(1, changes) {
        let place = prng.pick(places);
        if prng.chance_ppm(250_000) {
            store.remove(place);
            model.remove(place);
        } else {
            let record = record(prng);
            store.put(place, &record);
            model.insert(place.clone(), record);
        }
    }
}

/// Cells of two shards, and their metas.
pub fn places(cells: usize) -> Vec<Place> {
    let mut places = Vec::new();
    for shard in [Shard(3), Shard(200)] {
        places.push(Place::Meta(DATABASE, shard));
        places.extend(keys_of(shard, cells).into_iter().map(|key| Place::Cell(DATABASE, key)));
    }
    places
}
