//! Media that rot silently, or go back.

use sim::{MediumKind, SimConfig, run};

fn check(medium: MediumKind, ops: u64, seeds: impl IntoIterator<Item = u64>) {
    check_faults(4, medium, ops, seeds);
}

fn check_faults(
    media_faults: u64,
    medium: MediumKind,
    ops: u64,
    seeds: impl IntoIterator<Item = u64>,
) {
    for seed in seeds {
        let medium = Some(medium);
        let config = SimConfig { medium, ops, media_faults, ..SimConfig::new("rmwpaxos", seed) };
        if let Err(failure) = run(&config) {
            panic!("{}", sim::replay(&config, failure));
        }
    }
}

#[test]
fn reverted_or_damaged_disk_is_found_at_rest() {
    check(MediumKind::Disk, 100, 0..10);
}

#[test]
fn reverted_or_damaged_pmem_is_found_at_rest() {
    check(MediumKind::Pmem, 100, 0..2);
}

#[test]
fn reverted_medium_revives_no_deleted_key() {
    check(MediumKind::Disk, 100, [34, 1114]);
    check(MediumKind::Disk, 200, [910_148, 910_339]);
    check(MediumKind::Pmem, 200, [910_312]);
}

#[test]
fn two_reverted_media_revive_no_deleted_key() {
    check_faults(8, MediumKind::Disk, 120, [501_271, 502_452, 503_099]);
    check(MediumKind::Disk, 250, [711_538, 750_899]);
}

#[cfg(feature = "mutations")]
#[test]
fn scrub_and_anti_entropy_mutants_fail() {
    let mistakes = ["no-patrol", "older-is-lag", "disk-scrub-blind"];
    for mistake in mistakes {
        let fails = |seed| {
            let medium = Some(MediumKind::Disk);
            let config =
                SimConfig { medium, ops: 100, media_faults: 4, ..SimConfig::new("rmwpaxos", seed) };
            run(&SimConfig { mutation: Some(mistake.into()), ..config }).is_err()
        };
        assert!((0..40).any(fails), "{mistake}");
    }
}
