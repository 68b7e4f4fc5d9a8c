//! A sector that the device cannot give back, and that no record depends on.

use storage::disk::{File, verify};
use storage::{Completion, Load, Store};

use crate::rot::{WORKERS, await_stored, check, config, sample, submit};
use crate::support::{SECTOR, SimDisk, World, cell, record};

const PAGE: usize = 4096;

fn opens(disk: &SimDisk) -> Result<World, String> {
    World::try_open(disk.clone(), WORKERS, &config())
}

/// One unreadable sector that has a twin, is restored by parity, or is not needed.
#[test]
fn what_nothing_depends_on_need_not_be_readable() {
    for settled in [false, true] {
        let (disk, model) = sample(7, settled);
        let images = disk.bytes(File::Spare)[16] as usize;
        for file in [File::Slots, File::Ring, File::Spare] {
            let sectors = match file {
                File::Slots => 0..2 * PAGE / SECTOR,
                // The head is needed, and the images that it names if they may not be in place.
                File::Spare if settled => PAGE / SECTOR..disk.file_len(file) / SECTOR,
                File::Spare => (PAGE + images * PAGE) / SECTOR..disk.file_len(file) / SECTOR,
                _ => 0..disk.file_len(file) / SECTOR,
            };
            for sector in sectors {
                let disk = disk.copy();
                disk.make_unreadable(file, sector..sector + 1);
                let mut world = match opens(&disk) {
                    Ok(world) => world,
                    Err(error) => panic!("settled {settled}, {file:?} {sector}: {error}"),
                };
                let lost = check(&mut world, &model, &format!("{file:?} {sector}"));
                assert_eq!(lost, 0, "{file:?} {sector}");
            }
        }
    }
}

/// A needed sector that cannot be read is not lost: it may be read another time.
#[test]
fn a_stripe_that_cannot_be_read_is_not_forgotten() {
    let (disk, model) = sample(7, true);
    let before = disk.bytes(File::Ring);
    let live = |at: &usize| before[at * SECTOR..].starts_with(b"PSTR");
    let mut refused = 0;
    for first in (0..before.len() / SECTOR).filter(live) {
        let unreadable = disk.copy();
        unreadable.make_unreadable(File::Ring, first..first + 2);
        let Ok(mut world) = opens(&unreadable) else {
            refused += 1;
            continue;
        };
        // It may find out when it reads the ring.
        world.settle();
        let mut heard = world.heard.iter().flatten();
        if heard.any(|completion| matches!(completion, Completion::Failed(_))) {
            refused += 1;
        } else {
            assert_eq!(check(&mut world, &model, "of no use"), 0);
        }
    }
    assert!(refused > 0, "some stripe is needed");
}

/// A sector of the newest ring batch cannot be read, and the power was lost before it was written:
/// parity stands in for it, and the record is told to others. It is still there when the sector can
/// be read again.
#[test]
fn what_was_served_for_a_sector_that_could_not_be_read_stays() {
    let (disk, _) = sample(7, true);
    let before = disk.bytes(File::Ring);
    let mut world = World::open(disk, WORKERS, &config());
    let (place, newest) = (cell(1), record(1, 900));
    let owner = world.owner(&place);
    world.stores[owner].put(&place, &newest);
    submit(&mut world);
    await_stored(&mut world);
    let after = world.disk.bytes(File::Ring);
    let is_written = |at: &usize| {
        let sector = at * SECTOR..(at + 1) * SECTOR;
        before[sector.clone()] != after[sector]
    };
    let written: Vec<usize> = (0..before.len() / SECTOR).filter(is_written).collect();
    assert!(written.len() > 2, "the record takes as many sectors");
    for sector in written {
        let disk = world.disk.copy();
        let range = sector * SECTOR..(sector + 1) * SECTOR;
        disk.rot(File::Ring, |bytes| bytes[range.clone()].copy_from_slice(&before[range.clone()]));
        disk.make_unreadable(File::Ring, sector..sector + 1);
        let mut first = opens(&disk).expect("parity has it");
        assert_eq!(first.load(&place), Load::Found(newest.clone().into()), "sector {sector}");
        let mut again = opens(&disk.copy()).expect("it can be read");
        assert_eq!(again.load(&place), Load::Found(newest.clone().into()), "sector {sector}");
    }
}

/// A check of a store names unreadable sectors, and goes on behind them.
#[test]
fn a_check_names_what_cannot_be_read() {
    let (disk, _) = sample(7, true);
    let whole = verify(&mut disk.copy(), &mut |_| ()).expect("there is a store");
    assert!(whole.is_good() && whole.large_records > 0);
    let mut named = [0; 4];
    for file in File::ALL {
        for sector in 0..disk.file_len(file) / SECTOR {
            let mut disk = disk.copy();
            disk.make_unreadable(file, sector..sector + 1);
            let report = verify(&mut disk, &mut |_| ()).expect("there is a store");
            assert_eq!(report.buckets, whole.buckets);
            let at = (sector * SECTOR) as u64;
            for bad in &report.bad {
                // Of the ring a run of ring batches cannot be read, of a large record all.
                let is_near = bad.offset <= at || file == File::Ring;
                assert!(bad.file == file && is_near, "{file:?} {sector}: {bad}");
            }
            if report.is_good() && file != File::Ring {
                assert_eq!(report.records, whole.records, "{file:?} {sector}");
            }
            named[file as usize] += report.bad_count;
        }
    }
    assert!(named.iter().all(|&count| count > 0), "{named:?}");
}
