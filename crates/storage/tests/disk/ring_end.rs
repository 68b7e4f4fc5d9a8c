//! The newest batch of the ring rots, and no batch behind it shows it.

use storage::disk::{File, LocalGuard};
use storage::{Load, Store};

use crate::support::{BINDING, Fault, SECTOR, SimDisk, World, cell, put, record, small_config};

/// A store whose ring holds one batch, with a newer record of its pages, and the first sector of
/// that.
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

/// The mark that everything is forgotten is not written over the damage. Else a start that ends
/// between that mark and the superblock leaves pages that count as new.
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
                    let failed = LocalGuard::open(disk.clone(), BINDING, 1, &small_config());
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
