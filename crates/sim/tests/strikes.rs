//! Media that rot silently, or go back.

use sim::{MediumKind, SimConfig, run};

fn check(medium: MediumKind, ops: u64, seeds: impl IntoIterator<Item = u64>) {
    check_struck(4, medium, ops, seeds);
}

fn check_struck(
    media_strikes: u64,
    medium: MediumKind,
    ops: u64,
    seeds: impl IntoIterator<Item = u64>,
) {
    for seed in seeds {
        let medium = Some(medium);
        let config = SimConfig { medium, ops, media_strikes, ..SimConfig::new("rmwpaxos", seed) };
        if let Err(failure) = run(&config) {
            panic!("{}", sim::replay(&config, failure));
        }
    }
}

#[test]
fn what_a_disk_takes_back_or_loses_is_found_though_nobody_asks() {
    check(MediumKind::Disk, 100, 0..30);
}

#[test]
fn what_persistent_memory_takes_back_or_loses_is_found_though_nobody_asks() {
    check(MediumKind::Pmem, 100, 0..8);
}

#[test]
fn a_deleted_key_does_not_come_back_from_a_medium_that_went_back() {
    check(MediumKind::Disk, 100, [34, 1114]);
    check(MediumKind::Disk, 200, [910_148, 910_339]);
    check(MediumKind::Pmem, 200, [910_312]);
}

#[test]
fn nor_from_two_that_went_back_one_after_the_other() {
    check_struck(8, MediumKind::Disk, 120, [501_271, 502_452, 503_099]);
    check(MediumKind::Disk, 250, [711_538, 750_899]);
}

#[cfg(feature = "mutations")]
#[test]
fn mistakes_of_the_scrub_and_of_the_patrol_show() {
    let mistakes = ["no-patrol", "older-is-lag", "disk-scrub-blind"];
    for mistake in mistakes {
        let fails = |seed| {
            let medium = Some(MediumKind::Disk);
            let config = SimConfig {
                medium,
                ops: 100,
                media_strikes: 4,
                ..SimConfig::new("rmwpaxos", seed)
            };
            run(&SimConfig { mutation: Some(mistake.into()), ..config }).is_err()
        };
        assert!((0..40).any(fails), "{mistake}");
    }
}
