//! The real file: mapping, growth, restart, and bytes that must not change by accident.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use storage::pmem::memory::Memory;
use storage::pmem::{Pmem, PmemError, verify};
use storage::volatile::Beginning;
use storage::{Load, Place, Store};
use types::positions::PUBLIC;
use types::{Key, Shard};

use crate::support::*;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("palimpsest-pmem-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a scratch directory can be made");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_mapped_file_keeps_its_records_and_is_bound_to_its_directory() {
    let scratch = Scratch::new("keeps");
    let pmem = Pmem::open(&scratch.0, BINDING, Beginning::New).expect("it can be created");
    assert!(pmem.was_created());
    let mut stores = [pmem.store(0), pmem.store(1)];
    for n in 0..2_000_u64 {
        let key = Key::new(&n.to_le_bytes());
        let store = &mut stores[usize::from(key.shard().0 % 2)];
        store.put(&Place::Cell(DATABASE, key), &n.to_be_bytes());
    }
    stores.iter_mut().for_each(Store::submit);
    drop((stores, pmem));
    let foreign = Pmem::open(&scratch.0, BINDING + 1, Beginning::New);
    assert!(matches!(foreign, Err(PmemError::Foreign(_))));
    let pmem = Pmem::open(&scratch.0, BINDING, Beginning::New).expect("it is there");
    assert!(!pmem.was_created());
    let mut store = pmem.store(7);
    for n in 0..2_000_u64 {
        let place = cell(&n.to_le_bytes());
        assert_eq!(found(store.load(&place)), Some(n.to_be_bytes().to_vec()));
    }
    drop((store, pmem));
    let report = verify(&scratch.0, BINDING, &PUBLIC, &mut |_| ()).expect("it is ours");
    assert_eq!((report.registers, report.faults_count), (2_000, 0));
}

#[test]
fn the_file_grows_by_segments_without_moving_anything() {
    let scratch = Scratch::new("grows");
    let pmem = Pmem::open(&scratch.0, BINDING, Beginning::New).expect("it can be created");
    let mut store = pmem.store(0);
    let record = vec![5; 3 << 20];
    let keys = keys_of(Shard(8), 12);
    for key in &keys {
        store.put(&Place::Cell(DATABASE, key.clone()), &record);
        store.submit();
    }
    for key in &keys {
        assert_eq!(found(store.load(&Place::Cell(DATABASE, key.clone()))), Some(record.clone()));
    }
    let len = fs::metadata(scratch.0.join("pmem")).expect("it is there").len();
    assert!(len > 128 << 20, "{len} bytes hold 12 slots of 10 MiB");
}

#[test]
fn workers_write_their_own_shards_at_once() {
    let scratch = Scratch::new("at-once");
    let pmem = Pmem::open(&scratch.0, BINDING, Beginning::New).expect("it can be created");
    let keys: Vec<Key> = (0..12_000_u64).map(|n| Key::new(&n.to_le_bytes())).collect();
    let place = |key: &Key| Place::Cell(DATABASE, key.clone());
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (mut store, keys) = (pmem.store(worker), &keys);
            scope.spawn(move || {
                for key in keys.iter().filter(|key| u32::from(key.shard().0) % 4 == worker) {
                    store.put(&place(key), key.bytes());
                    store.submit();
                    store.put(&place(key), &[key.bytes(), b"newer"].concat());
                    store.submit();
                }
            });
        }
    });
    drop(pmem);
    let pmem = Pmem::open(&scratch.0, BINDING, Beginning::New).expect("it is there");
    let mut store = pmem.store(0);
    for key in &keys {
        assert_eq!(found(store.load(&place(key))), Some([key.bytes(), b"newer"].concat()));
    }
}

#[test]
fn bytes_never_change() {
    let (memory, pmem) = format();
    let mut store = pmem.store(1);
    store.put(&cell(b"key"), b"record");
    store.put(&Place::Meta(DATABASE, Shard(2)), b"meta");
    store.submit();
    store.put(&cell(b"key"), b"newer record");
    store.submit();
    let mut bytes = vec![0; memory.len() as usize];
    memory.read(0, &mut bytes);
    assert_eq!(bytes[8..16], *b"PALIPMEM");
    let hash = base::checksum::hash(&bytes);
    assert_eq!(hash, 0x6ed0_7a8c_a9ab_6411, "the format changed: {hash:#x}");
}

#[test]
fn a_file_that_was_cut_short_is_refused_or_known_to_lack_its_end() {
    let scratch = Scratch::new("short");
    let keys: Vec<Key> = (0..500_u64).map(|n| Key::new(&n.to_le_bytes())).collect();
    let pmem = Pmem::open(&scratch.0, BINDING, Beginning::New).expect("it can be created");
    let mut store = pmem.store(0);
    for key in &keys {
        store.put(&Place::Cell(DATABASE, key.clone()), &[7; 300]);
    }
    store.submit();
    drop((store, pmem));
    let path = scratch.0.join("pmem");
    let whole = fs::read(&path).expect("it is there");
    let used = whole.iter().rposition(|&byte| byte != 0).expect("it was written") as u64;
    let mut refused = 0;
    for part in 1..16 {
        let len = (used * part / 16).next_multiple_of(4096);
        fs::write(&path, &whole[..len as usize]).expect("it is writable");
        let checked = verify(&scratch.0, BINDING, &PUBLIC, &mut |_| ());
        match Pmem::open(&scratch.0, BINDING, Beginning::New) {
            Err(PmemError::CutShort(_)) => {
                assert!(matches!(checked, Err(PmemError::CutShort(_))));
                refused += 1;
            }
            Err(other) => panic!("{other}"),
            Ok(pmem) => {
                let mut store = pmem.store(0);
                for key in &keys {
                    let place = Place::Cell(DATABASE, key.clone());
                    match load(&mut store, &place).0 {
                        Load::Found(record) => assert_eq!(*record, [7; 300]),
                        found => assert_eq!(found, Load::Lost, "{place:?} at {len} bytes"),
                    }
                    store.put(&place, &[8; 300]);
                }
                store.submit();
            }
        }
    }
    assert!((1..15).contains(&refused), "{refused} of 15 lengths are refused");
}

/// Where a file system has blocks of 1 KiB, one that is full may stop growing at any of them.
#[test]
fn a_file_that_grew_by_a_part_of_a_page_is_still_a_store() {
    let scratch = Scratch::new("part");
    let pmem = Pmem::open(&scratch.0, BINDING, Beginning::New).expect("it can be created");
    let mut store = pmem.store(0);
    store.put(&cell(b"key"), b"record");
    store.submit();
    drop((store, pmem));
    let file =
        fs::OpenOptions::new().write(true).open(scratch.0.join("pmem")).expect("it is there");
    let len = file.metadata().expect("it is there").len();
    file.set_len(len + 1024).expect("there is room");
    let pmem = Pmem::open(&scratch.0, BINDING, Beginning::New).expect("all of it is there");
    assert_eq!(found(pmem.store(0).load(&cell(b"key"))), Some(b"record".to_vec()));
}

/// As a copy may have them: a store into one, on a file system that is full, would kill the process.
#[test]
fn holes_of_a_file_are_filled_when_it_is_opened() {
    use rustix::fs::FallocateFlags;
    let scratch = Scratch::new("holes");
    let pmem = Pmem::open(&scratch.0, BINDING, Beginning::New).expect("it can be created");
    let mut store = pmem.store(0);
    store.put(&cell(b"key"), b"record");
    store.submit();
    drop((store, pmem));
    let file =
        fs::OpenOptions::new().write(true).open(scratch.0.join("pmem")).expect("it is there");
    let len = file.metadata().expect("it is there").len();
    let allocated = || file.metadata().expect("it is there").blocks() * 512;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if rustix::fs::fallocate(&file, flags, len / 2, len / 2).is_err() {
        return; // not on this file system
    }
    assert!(allocated() < len);
    let pmem = Pmem::open(&scratch.0, BINDING, Beginning::New).expect("it is there");
    assert!(allocated() >= len);
    assert_eq!(found(pmem.store(0).load(&cell(b"key"))), Some(b"record".to_vec()));
}

/// Its target may not be mounted yet.
#[test]
fn a_link_that_leads_nowhere_is_left_alone() {
    let scratch = Scratch::new("link");
    let path = scratch.0.join("pmem");
    std::os::unix::fs::symlink(scratch.0.join("elsewhere"), &path).expect("it can be made");
    let opened = Pmem::open(&scratch.0, BINDING, Beginning::Forgotten);
    assert!(matches!(opened, Err(PmemError::Io { .. })), "{opened:?}");
    assert!(fs::symlink_metadata(&path).expect("it is there").is_symlink());
}
