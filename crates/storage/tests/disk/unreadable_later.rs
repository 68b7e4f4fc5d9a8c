//! Sectors outside of the ring that cannot be read and that no record depends on, in a store that
//! runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use storage::disk::{Config, Done, File, Io, LocalGuard, LocalStore, Medium};
use storage::{Completion, Load, Store};

use crate::support::{BINDING, SECTOR, SimDisk, World, cell, record, small_config, writes};

const GROUP: usize = 32_256 * 1024;

/// Keeps no zeros and no very long runs; some sectors cannot be read.
#[derive(Clone, Default)]
struct Sparse {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    sectors: BTreeMap<(u8, usize), Vec<u8>>,
    bad: BTreeSet<(u8, usize)>,
    done: Vec<Done>,
}

impl Medium for Sparse {
    fn submit(&mut self, io: Io) {
        let mut inner = self.inner.lock().expect("no panic holds it");
        let inner = &mut *inner;
        let id = io.id();
        for write in writes(&io).iter().filter(|write| write.bytes.len() < 4 << 20) {
            for (at, bytes) in write.bytes.chunks(SECTOR).enumerate() {
                let at = (write.file as u8, write.offset as usize / SECTOR + at);
                let mut sector = bytes.to_vec();
                sector.resize(SECTOR, 0);
                inner.bad.remove(&at);
                match sector.iter().all(|&byte| byte == 0) {
                    true => inner.sectors.remove(&at),
                    false => inner.sectors.insert(at, sector),
                };
            }
        }
        let result = match io {
            Io::Read { file, offset, len, .. } | Io::Verify { file, offset, len, .. } => {
                let (first, end) =
                    (offset as usize / SECTOR, (offset as usize + len).div_ceil(SECTOR));
                let mut bytes = vec![0; (end - first) * SECTOR];
                for ((_, at), sector) in inner.sectors.range((file as u8, first)..(file as u8, end))
                {
                    bytes[(at - first) * SECTOR..(at - first + 1) * SECTOR].copy_from_slice(sector);
                }
                let start = offset as usize % SECTOR;
                match inner.bad.range((file as u8, first)..(file as u8, end)).next() {
                    Some(_) => Err("input/output error".to_owned()),
                    None => Ok(Bytes::from(bytes[start..start + len].to_vec())),
                }
            }
            _ => Ok(Bytes::new()),
        };
        inner.done.push(Done { id, result });
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.inner.lock().expect("no panic holds it").done);
    }

    fn wait(&mut self, done: &mut Vec<Done>) {
        self.poll(done);
    }
}

fn settle(guard: &LocalGuard<Sparse>, store: &mut LocalStore<Sparse>, heard: &mut Vec<Completion>) {
    for _ in 0..1_000 {
        guard.rest();
        store.poll(heard);
    }
}

/// A store of many groups reads the maps of the newest ones when it opens and those of the others when it rests.
#[test]
fn a_map_that_is_read_later_need_not_be_readable_either() {
    let config = Config { ring_bytes: 1 << 20, ..small_config() };
    let mut medium = Sparse::default();
    storage::disk::create(&mut medium, BINDING, &config).expect("it is empty");
    let (guard, mut stores) =
        LocalGuard::open(medium.clone(), BINDING, 1, &config).expect("it was made");
    let mut heard = Vec::new();
    for number in 0..20 {
        // Two of them do not fit a group.
        stores[0].put(&cell(number), &vec![7; 16 << 20]);
        stores[0].submit();
        settle(&guard, &mut stores[0], &mut heard);
    }
    stores[0].put(&cell(100), &record(100, 300));
    stores[0].submit();
    settle(&guard, &mut stores[0], &mut heard);
    drop((guard, stores));
    medium.inner.lock().expect("no panic").bad.insert((File::Extents as u8, GROUP / SECTOR));
    for start in 0..3 {
        let (guard, mut stores) =
            LocalGuard::open(medium.clone(), BINDING, 1, &config).expect("nothing depends on it");
        let mut heard = Vec::new();
        settle(&guard, &mut stores[0], &mut heard);
        let failed = heard.iter().find(|it| matches!(it, Completion::Failed(_)));
        assert_eq!(failed, None, "start {start}");
    }
}

/// The images of the last process's write-back stand in for its pages until they are in place.
#[test]
fn a_page_whose_image_is_at_hand_need_not_be_readable() {
    let config = small_config();
    let mut world = World::create(SimDisk::new(1, 8), 1, &config);
    let (mut all, mut bad) = (0, Vec::new());
    for round in 0..4 {
        for number in 0..30 {
            world.stores[0].put(&cell(number), &record(number + 100 * round, 300));
            world.stores[0].submit();
            (0..3).for_each(|_| world.poll());
        }
        for step in 0..150 {
            world.guard.rest();
            world.poll();
            let disk = world.disk.crashed(step);
            let (slots, spare) = (disk.bytes(File::Slots), disk.bytes(File::Spare));
            let word = |bytes: &[u8], at: usize| {
                u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"))
            };
            // Whole images of a write-back that is not in place.
            let redone = || {
                let Ok(again) = World::try_open(disk.copy(), 1, &config) else { return false };
                again.disk.bytes(File::Slots) == slots && again.guard.is_dirty()
            };
            if word(&spare, 24) <= word(&slots, 4096 + 24) || !redone() {
                continue;
            }
            let count = word(&spare, 16) as usize & 0xffff;
            let places = (0..count).map(|row| {
                let row = 32 + row * 24;
                (spare[row], word(&spare, row + 8) as usize)
            });
            for (_, offset) in places.filter(|&(file, at)| file == File::Slots as u8 && at >= 8192)
            {
                let disk = disk.copy();
                disk.make_unreadable(File::Slots, offset / SECTOR..offset / SECTOR + 1);
                // Torn images were never needed, but the page might say that they were.
                let Ok(mut world) = World::try_open(disk, 1, &config) else { continue };
                all += 1;
                for number in 0..30 {
                    if world.stores[0].load(&cell(number)) == Load::Pending {
                        (0..30).for_each(|_| world.poll());
                    }
                }
                if world.heard[0].iter().any(|it| matches!(it, Completion::Failed(_))) {
                    bad.push((round, step, offset));
                }
            }
        }
    }
    assert!(all > 0);
    assert!(bad.is_empty(), "{} of {all}: {:?}", bad.len(), &bad[..bad.len().min(4)]);
}

/// A scrub finds that a map or a superblock cannot be read: memory has it, or a survey makes another.
#[test]
fn a_scrub_mends_what_cannot_be_read_and_costs_no_record() {
    let config = small_config();
    let mut world = World::create(SimDisk::new(1, 0), 1, &config);
    for number in 0..3 {
        world.stores[0].put(&cell(number), &record(number, 20_000));
        world.stores[0].submit();
    }
    world.settle();
    let mut bad = Vec::new();
    for (file, sector, is_late) in [
        (File::Extents, 0, false),
        (File::Extents, 0, true),
        (File::Slots, 0, true),
        (File::Slots, 8, true),
    ] {
        let disk = world.disk.copy();
        if !is_late {
            disk.make_unreadable(file, sector..sector + 1);
        }
        for start in 0..3 {
            let mut world = World::open(disk.clone(), 1, &config);
            world.settle();
            if is_late && start == 0 {
                disk.make_unreadable(file, sector..sector + 1);
            }
            for _ in 0..200 {
                world.ask_scrub(1 << 20);
                (0..20).for_each(|_| world.poll());
            }
            let has_failed = world.heard[0].iter().any(|it| matches!(it, Completion::Failed(_)));
            if has_failed {
                bad.push((file, sector, is_late, start));
            } else {
                for number in 0..3 {
                    assert_eq!(
                        world.load(&cell(number)),
                        Load::Found(record(number, 20_000).into())
                    );
                }
            }
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}
