//! Records that are never asked for are verified all the same, and damage is found where it is.

use crate::rot::{Model, WORKERS, change, check, config, recover, sample};
use crate::support::{SECTOR, SimDisk, World, seeds};
use base::Prng;
use storage::disk::{File, verify};
use storage::{Completion, Place};

/// Bytes of one step.
const STEP: u64 = 64 << 10;

/// Damages a sector that is in use.
fn damage(disk: &SimDisk, prng: &mut Prng) -> String {
    loop {
        let file = *prng.pick(&[File::Slots, File::Slots, File::Extents]);
        let sector = prng.below((disk.file_len(file) / SECTOR) as u64) as usize * SECTOR;
        let how = prng.below(3);
        let seed = prng.next_u64();
        let mut has_changed = false;
        disk.rot(file, |bytes| {
            let bytes = &mut bytes[sector..sector + SECTOR];
            if bytes.iter().all(|&byte| byte == 0) {
                return;
            }
            match how {
                0 => bytes[seed as usize % SECTOR] ^= 1,
                1 => bytes.fill(0),
                _ => {
                    let mut garbage = Prng::new(seed);
                    bytes.fill_with(|| garbage.next_u64() as u8);
                }
            }
            has_changed = true;
        });
        if has_changed {
            return format!("{file:?} at {sector}, manner {how}");
        }
    }
}

fn faults(disk: &SimDisk) -> Vec<String> {
    let disk = disk.copy();
    // Images of the last write-back would stand in for its pages.
    disk.rot(File::Spare, |bytes| bytes[3] ^= 1);
    let report = verify(&mut disk.clone(), &mut |_| ()).expect("one superblock is whole");
    report.bad.iter().map(ToString::to_string).collect()
}

fn has_forgotten(world: &World) -> bool {
    let is_it = |completion: &Completion| matches!(completion, Completion::Forgotten { .. });
    world.heard.iter().flatten().any(is_it)
}

fn has_warning(world: &World) -> bool {
    let is_it = |completion: &Completion| matches!(completion, Completion::Warning(_));
    world.heard.iter().flatten().any(is_it)
}

/// True if the damage was found.
fn run(seed: u64) -> bool {
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let (disk, model) = sample(seed % 8, true);
    let mut world = World::open(disk, WORKERS, &config());
    world.settle();
    let is_warm = seed % 2 == 1;
    if is_warm {
        check(&mut world, &model, "before");
    }
    let what = damage(&world.disk, &mut prng);
    let known = faults(&world.disk);
    let scrubbed = world.scrub_all(STEP);
    assert!(known.is_empty() || scrubbed.damaged > 0, "{what}: {known:?} is not found");
    assert!(!known.is_empty() || scrubbed.damaged == 0, "{what}: damage is invented");
    let is_told = has_forgotten(&world) || has_warning(&world);
    assert_eq!(is_told, !known.is_empty(), "{what}: {known:?} is told");
    world.settle();
    let left = faults(&world.disk);
    let is_harmless = |fault: &String| fault.contains("its free space is lost");
    assert!(left.iter().all(is_harmless), "{what}: {left:?} is left");
    let lost = check(&mut world, &model, &what);
    assert!(lost == 0 || has_forgotten(&world), "{what}: nobody was told");
    recover(&mut world, &model);
    world.settle();
    assert_eq!(check(&mut world, &model, &what), 0);
    assert_eq!(world.scrub_all(STEP).damaged, 0, "{what}: it is found again");
    scrubbed.damaged > 0
}

#[test]
fn damage_that_nobody_asks_for_is_found_and_costs_nothing_that_memory_holds() {
    let found = seeds(120).filter(|&seed| run(seed)).count();
    assert!(found > 40, "{found}");
}

#[test]
fn a_page_that_is_in_memory_is_written_again() {
    let (disk, model) = sample(2, true);
    let mut world = World::open(disk, WORKERS, &config());
    world.settle();
    check(&mut world, &model, "before");
    let head = world.disk.file_len(File::Slots) / 4096 - 1;
    world.disk.rot(File::Slots, |bytes| bytes[head * 4096 + 9] ^= 1);
    assert_eq!(world.scrub_all(STEP).damaged, 1);
    world.settle();
    assert!(faults(&world.disk).is_empty());
    assert!(!has_forgotten(&world));
    assert_eq!(check(&mut world, &model, "after"), 0);
}

#[test]
fn a_scrub_counts_every_register_and_writes_nothing() {
    let (disk, mut model) = sample(4, true);
    let mut world = World::open(disk, WORKERS, &config());
    change(&mut world, &mut Prng::new(1), &mut model, 50);
    world.settle();
    let stores = world.disk.stores();
    let live = |model: &Model| {
        let is_cell = |place: &Place| matches!(place, Place::Cell(..));
        model.iter().filter(|(place, record)| is_cell(place) && record.is_some()).count() as u64
    };
    for step in [1, 5_000, 1 << 20] {
        let scrubbed = world.scrub_all(step);
        assert_eq!((scrubbed.registers, scrubbed.damaged), (live(&model), 0));
        assert!(scrubbed.bytes as usize >= world.disk.file_len(File::Slots));
    }
    assert_eq!(world.disk.stores(), stores);
}

#[cfg(feature = "mutations")]
#[test]
fn a_scrub_that_does_not_verify_shows() {
    use storage::mutation::{Mutation, set};
    set(Some(Mutation::DiskScrubBlind));
    let shows = (0..40).any(|seed| std::panic::catch_unwind(|| run(seed)).is_err());
    set(None);
    assert!(shows);
}
