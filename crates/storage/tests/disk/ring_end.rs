//! The newest stripe of the ring rots, and nothing stands behind it that would show it.

use storage::disk::{File, LocalKeeper};
use storage::{Load, Store};

use crate::support::{BINDING, Fault, SECTOR, SimDisk, World, cell, put, record, small_config};

/// A store whose ring holds one stripe, with a newer record of what its pages have, and the first sector of that.
fn sample(records: u64) -> (SimDisk, usize) {
    let config = small_config();
    let mut world = World::create(SimDisk::new(1, 0), 1, &config);
    for number in 0..records {
        put(&mut world, number, 300);
    }
    world.settle();
    let before = world.disk.bytes(File::Ring);
    for number in 0..records {
        world.stores[0].put(&cell(number), &record(number, 301));
    }
    world.stores[0].submit();
    (0..5).for_each(|_| world.poll());
    let after = world.disk.bytes(File::Ring);
    let sectors = |bytes: &[u8]| bytes.chunks(SECTOR).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (before, after) = (sectors(&before), sectors(&after));
    let first =
        (0..before.len()).find(|&at| before[at] != after[at]).expect("a stripe was written");
    (world.disk.copy(), first)
}

/// The word that everything is forgotten is not written over what shows it: else a start that ends between that word and
/// the superblock leaves pages that nothing calls old.
#[test]
fn a_start_that_fails_after_the_newest_stripe_was_lost_leaves_that_to_be_seen() {
    for records in 1..12 {
        let (disk, first) = sample(records);
        for (from, count) in [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (2, 2), (0, 8)] {
            for fault in [Fault::Write, Fault::Flush] {
                for after in 0..6 {
                    let disk = disk.copy();
                    disk.rot(File::Ring, |bytes| {
                        let start = (first + from) * SECTOR;
                        bytes[start..start + count * SECTOR].fill(0x55);
                    });
                    let what = format!("{records} records, {count} from {from}, {fault:?} {after}");
                    disk.fail_once(fault, after);
                    let failed = LocalKeeper::open(disk.clone(), BINDING, 1, &small_config());
                    if failed.is_ok() {
                        continue;
                    }
                    for disk in [disk.restarted(after), disk.crashed(after)] {
                        let mut world = World::open(disk, 1, &small_config());
                        for number in 0..records {
                            let load = world.load(&cell(number));
                            let newest = Load::Found(record(number, 301).into());
                            assert!(load == newest || load == Load::Lost, "{what}: {number}");
                        }
                    }
                }
            }
        }
    }
}

/// A ring that ends with a stripe which lacks a sector, and what stands in front of that.
struct Ended {
    disk: SimDisk,
    /// Of the last stripe.
    sectors: Vec<usize>,
    /// The ring before it was written.
    before: Vec<u8>,
    /// Before those in front of it were.
    older: Vec<u8>,
}

impl Ended {
    /// Pages have an older version of what the first of the stripes has, of a record each.
    fn new(records: u64) -> Ended {
        let config = small_config();
        let mut world = World::create(SimDisk::new(1, 0), 1, &config);
        put(&mut world, 1, 300);
        world.settle();
        let older = world.disk.bytes(File::Ring);
        let commit = |world: &mut World, number: u64, len: usize| {
            world.stores[0].put(&cell(number), &record(number, len));
            world.stores[0].submit();
            (0..5).for_each(|_| world.poll());
        };
        (1..=records).for_each(|number| commit(&mut world, number, 301));
        let before = world.disk.bytes(File::Ring);
        commit(&mut world, 50, 990);
        let after = world.disk.bytes(File::Ring);
        let sector = |at: usize| at * SECTOR..(at + 1) * SECTOR;
        let is_new = |at: &usize| before[sector(*at)] != after[sector(*at)];
        let sectors: Vec<usize> = (0..before.len() / SECTOR).filter(is_new).collect();
        assert_eq!(sectors.len(), 4, "three of data and one of parity");
        Ended { disk: world.disk.copy(), sectors, before, older }
    }

    /// The disk after the power was lost when of the last stripe only these were written, and another damage.
    fn disk(&self, written: &[usize], damage: impl FnOnce(&mut [u8])) -> SimDisk {
        let disk = self.disk.copy();
        disk.rot(File::Ring, |bytes| {
            for (index, &sector) in self.sectors.iter().enumerate() {
                let range = sector * SECTOR..(sector + 1) * SECTOR;
                if !written.contains(&index) {
                    bytes[range.clone()].copy_from_slice(&self.before[range]);
                }
            }
            damage(bytes);
        });
        disk
    }

    /// All subsets of its sectors but all and none.
    fn unfinished() -> impl Iterator<Item = Vec<usize>> {
        (1..15_u8).map(|mask| (0..4).filter(|bit| mask & 1 << bit != 0).collect())
    }
}

/// Opens a store whose start fails at some write or flush, and opens what that leaves.
fn open_after_failures(disk: &SimDisk, check: impl Fn(&mut World, &str)) {
    check(&mut World::open(disk.copy(), 1, &small_config()), "no failure");
    for fault in [Fault::Write, Fault::Flush] {
        for after in 0..6 {
            let disk = disk.copy();
            disk.fail_once(fault, after);
            if LocalKeeper::open(disk.clone(), BINDING, 1, &small_config()).is_ok() {
                continue;
            }
            for seed in 0..8 {
                let what = format!("{fault:?} {after} failed, seed {seed}");
                check(&mut World::open(disk.crashed(seed), 1, &small_config()), &what);
            }
        }
    }
}

#[test]
fn a_start_cut_short_behind_its_mark_keeps_what_is_whole_behind_the_damage() {
    let ended = Ended::new(2);
    let damaged = ended.sectors[0] - 4;
    for written in Ended::unfinished() {
        let disk = ended.disk(&written, |ring| {
            ring[damaged * SECTOR..(damaged + 2) * SECTOR].fill(0x55);
        });
        open_after_failures(&disk, |world, what| {
            assert_eq!(world.load(&cell(1)), Load::Lost, "{written:?}, {what}");
            let whole = Load::Found(record(2, 301).into());
            assert_eq!(world.load(&cell(2)), whole, "{written:?}, {what}");
        });
    }
}

/// The newest stripe that was confirmed lacks a sector, as if that had never been written. Only the one behind it, which was
/// not finished, shows that it had been.
#[test]
fn a_start_cut_short_leaves_what_shows_that_a_stripe_was_confirmed() {
    let ended = Ended::new(1);
    for lacks in 0..2 {
        let lacking = ended.sectors[0] - 2 + lacks;
        for written in Ended::unfinished() {
            let disk = ended.disk(&written, |ring| {
                let range = lacking * SECTOR..(lacking + 1) * SECTOR;
                ring[range.clone()].copy_from_slice(&ended.older[range]);
            });
            open_after_failures(&disk, |world, what| {
                assert_eq!(world.load(&cell(1)), Load::Lost, "{lacks}, {written:?}, {what}");
            });
        }
    }
}
