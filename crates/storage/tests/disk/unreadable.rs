//! A sector that the device cannot give back, and nothing depends on.

use storage::disk::{File, LocalKeeper};

use crate::rot::{WORKERS, check, config, sample};
use crate::support::{BINDING, SECTOR, SimDisk, World};

const PAGE: usize = 4096;

fn opens(disk: &SimDisk) -> Result<World, String> {
    let opened = LocalKeeper::open(disk.clone(), BINDING, WORKERS, &config());
    let (keeper, stores) = opened.map_err(|error| error.to_string())?;
    let heard = vec![Vec::new(); WORKERS];
    Ok(World { disk: disk.clone(), keeper, stores, heard, scrubs: 0 })
}

/// One unreadable sector of what has a twin, is restored by parity, or is of no use: the store opens. (That of a stripe
/// in a ring that is read later is another matter here: this medium reads all of the ring at once then.)
#[test]
fn what_nothing_depends_on_need_not_be_readable() {
    for settled in [false, true] {
        let (disk, model) = sample(7, settled);
        let images = disk.bytes(File::Spare)[16] as usize;
        for file in [File::Slots, File::Ring, File::Spare] {
            let sectors = match file {
                File::Slots => 0..2 * PAGE / SECTOR,
                // The head is needed, and what it speaks of if that may not be in place.
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
                if settled || file != File::Ring {
                    let lost = check(&mut world, &model, &format!("{file:?} {sector}"));
                    assert_eq!(lost, 0, "{file:?} {sector}");
                }
            }
        }
    }
}

/// What is needed and cannot be read is not lost: it may be read another time.
#[test]
fn a_stripe_that_cannot_be_read_is_not_forgotten() {
    let (disk, model) = sample(7, true);
    let before = disk.bytes(File::Ring);
    let live = |at: &usize| before[at * SECTOR..].starts_with(b"PSTR");
    let mut refused = 0;
    for first in (0..before.len() / SECTOR).filter(live) {
        let unreadable = disk.copy();
        unreadable.make_unreadable(File::Ring, first..first + 2);
        match opens(&unreadable) {
            Ok(mut world) => assert_eq!(check(&mut world, &model, "of no use"), 0),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 0, "some stripe is needed");
}
