//! Starts that are cut short where the ring is damaged and ends with a ring batch that was not
//! finished.

use storage::disk::{File, LocalGuard};
use storage::{Load, Store};
use types::{Database, Shard};

use crate::support::{
    BINDING, Fault, SECTOR, SimDisk, Withheld, World, cell, put, record, small_config,
};

fn commit(world: &mut World, number: u64, len: usize) {
    put(world, number, len);
    (0..5).for_each(|_| world.poll());
}

/// A store whose pages have a record that the ring no longer has, and that ring.
fn settled() -> (World, Vec<u8>) {
    let mut world = World::create(SimDisk::new(1, 0), 1, &small_config());
    put(&mut world, 1, 300);
    world.settle();
    let ring = world.disk.bytes(File::Ring);
    (world, ring)
}

/// Sectors of the ring that differ.
fn changed(before: &[u8], after: &[u8]) -> Vec<usize> {
    let sectors = before.chunks(SECTOR).zip(after.chunks(SECTOR)).enumerate();
    sectors.filter(|(_, (old, new))| old != new).map(|(at, _)| at).collect()
}

fn rot(disk: &SimDisk, sectors: &[usize]) {
    disk.rot(File::Ring, |ring| {
        sectors.iter().for_each(|at| ring[at * SECTOR..(at + 1) * SECTOR].fill(0x55));
    });
}

fn set(disk: &SimDisk, at: usize, from: &[u8]) {
    let range = at * SECTOR..(at + 1) * SECTOR;
    disk.rot(File::Ring, |ring| ring[range.clone()].copy_from_slice(&from[range.clone()]));
}

/// Says that every shard is known, as a node does that has recovered from the others.
fn know_all(world: &mut World) {
    for shard in 0..=255_u8 {
        if world.stores[0].is_forgotten(Database(0), Shard(shard)) {
            world.stores[0].set_forgotten(Database(0), Shard(shard), false);
        }
    }
    world.stores[0].submit();
    (0..5).for_each(|_| world.poll());
}

/// A ring that ends with a batch which lacks a sector, and the batches in front of that.
struct Ended {
    disk: SimDisk,
    /// Of the last ring batch.
    sectors: Vec<usize>,
    /// The ring before it was written.
    before: Vec<u8>,
    /// Before those in front of it were.
    older: Vec<u8>,
}

impl Ended {
    /// Pages have an older version of the first batch's entries, of a record each.
    fn new(records: u64) -> Ended {
        let (mut world, older) = settled();
        (1..=records).for_each(|number| commit(&mut world, number, 301));
        let before = world.disk.bytes(File::Ring);
        commit(&mut world, 50, 990);
        let after = world.disk.bytes(File::Ring);
        let sectors = changed(&before, &after);
        assert_eq!(sectors.len(), 4, "three of data and one of parity");
        Ended { disk: world.disk.copy(), sectors, before, older }
    }

    /// The disk after the power was lost when of the last ring batch only these were written, and
    /// another damage.
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

/// Opens a store whose start fails at some write or flush, and opens its remains.
fn open_after_failures(disk: impl Fn() -> SimDisk, check: impl Fn(&mut World, &str)) {
    check(&mut World::open(disk(), 1, &small_config()), "no failure");
    for fault in [Fault::Write, Fault::Flush] {
        for after in 0..6 {
            let disk = disk();
            disk.fail_once(fault, after);
            if LocalGuard::open(disk.clone(), BINDING, 1, &small_config()).is_ok() {
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
        open_after_failures(
            || disk.copy(),
            |world, what| {
                assert_eq!(world.load(&cell(1)), Load::Lost, "{written:?}, {what}");
                let whole = Load::Found(record(2, 301).into());
                assert_eq!(world.load(&cell(2)), whole, "{written:?}, {what}");
            },
        );
    }
}

/// The newest ring batch that was confirmed lacks a sector, as if that had never been written. Only
/// the one behind it, which was not finished, shows that it had been.
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
            open_after_failures(
                || disk.copy(),
                |world, what| {
                    assert_eq!(world.load(&cell(1)), Load::Lost, "{lacks}, {written:?}, {what}");
                },
            );
        }
    }
}

/// The newest confirmed ring batch is damaged, and of the one behind it, of two sectors, the first
/// was written. Were the start's mark written over that, a loss of power could leave only its
/// second sector there: to the next start a ring batch of two sectors whose parity is that of the
/// mark.
fn mixed(seeds: u64) -> Vec<(SimDisk, usize)> {
    let (mut world, older) = settled();
    commit(&mut world, 1, 301);
    let before = world.disk.bytes(File::Ring);
    let disk = world.disk.copy();
    commit(&mut world, 50, 200);
    let after = world.disk.bytes(File::Ring);
    let (confirmed, torn) = (changed(&older, &before), changed(&before, &after));
    assert_eq!((confirmed.len(), torn.len()), (2, 2));
    set(&disk, torn[0], &after);
    rot(&disk, &confirmed);
    let mut found = Vec::new();
    for fault in [Fault::Write, Fault::Flush] {
        for fails in 0..6 {
            for seed in 0..seeds {
                let disk = disk.copy();
                disk.fail_once(fault, fails);
                if LocalGuard::open(disk.clone(), BINDING, 1, &small_config()).is_err() {
                    found.push((disk.crashed(seed), torn[0]));
                }
            }
        }
    }
    found
}

#[test]
fn what_a_start_has_answered_is_not_lost_with_one_sector() {
    let states = mixed(8);
    assert!(!states.is_empty());
    for (disk, sector) in states {
        let mut world = World::open(disk, 1, &small_config());
        // The device is slow, so no entry goes home.
        world.disk.withhold(Withheld::Stores(File::Spare));
        let first = world.load(&cell(50));
        know_all(&mut world);
        let answered = world.load(&cell(50));
        assert!(first == Load::Lost || first == answered);
        for is_unreadable in [false, true] {
            let disk = world.disk.crashed(1);
            match is_unreadable {
                true => disk.make_unreadable(File::Ring, sector..sector + 1),
                false => rot(&disk, &[sector]),
            }
            let load = World::open(disk, 1, &small_config()).load(&cell(50));
            assert!(load == answered || load == Load::Lost, "{load:?} instead of {answered:?}");
        }
    }
}

/// Damage; behind it a whole ring batch and one of which a sector was not written, which cannot be
/// read during the first start. So parity makes it whole. That start is cut short behind its mark,
/// and the next one reads the sector.
#[test]
fn a_start_cut_short_behind_its_mark_keeps_what_is_whole_beside_a_sector_that_could_not_be_read() {
    let (mut world, older) = settled();
    commit(&mut world, 1, 301);
    let damaged = changed(&older, &world.disk.bytes(File::Ring));
    commit(&mut world, 2, 301);
    let before = world.disk.bytes(File::Ring);
    commit(&mut world, 50, 990);
    let after = world.disk.bytes(File::Ring);
    let last = changed(&before, &after);
    assert_eq!((damaged.len(), last.len()), (2, 4));
    for &lacks in &last {
        let disk = world.disk.copy();
        set(&disk, lacks, &before);
        rot(&disk, &damaged);
        let unreadable = || {
            let disk = disk.copy();
            disk.make_unreadable(File::Ring, lacks..lacks + 1);
            disk
        };
        open_after_failures(unreadable, |world, what| {
            assert_eq!(world.load(&cell(1)), Load::Lost, "{lacks}, {what}");
            let whole = Load::Found(record(2, 301).into());
            assert_eq!(world.load(&cell(2)), whole, "{lacks}, {what}");
        });
    }
}

/// Damage, and the first sector of the next ring batch rots or cannot be read: parity has it, and
/// the others say where it was.
#[test]
fn parity_of_the_stripe_behind_damage_stands_in_for_its_first_sector() {
    let config = small_config();
    let mut world = World::create(SimDisk::new(1, 0), 1, &config);
    let mut stripes = Vec::new();
    for number in 1..=4 {
        let before = world.disk.bytes(File::Ring);
        commit(&mut world, number, 900);
        stripes.push(changed(&before, &world.disk.bytes(File::Ring)));
    }
    for is_unreadable in [false, true] {
        for &sector in &stripes[2] {
            let disk = world.disk.copy();
            rot(&disk, &stripes[1][..2]);
            match is_unreadable {
                true => disk.make_unreadable(File::Ring, sector..sector + 1),
                false => rot(&disk, &[sector]),
            }
            let mut world = World::try_open(disk, 1, &config).expect("parity has it");
            assert_eq!(world.load(&cell(2)), Load::Lost);
            for number in [3, 4] {
                assert_eq!(world.load(&cell(number)), Load::Found(record(number, 900).into()));
            }
        }
    }
}
