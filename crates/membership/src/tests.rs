//! Tests of the whole service: random worlds, and schedules made for single rules.

mod chaos;
mod choices;
mod cut_pair;
mod data;
mod heal;
mod losses;
mod mistakes;
mod rules;
mod world;

use chaos::explore;

/// Worlds of a run: `MEMBERSHIP_WORLDS` for a longer campaign.
fn worlds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("MEMBERSHIP_FIRST").unwrap_or(0);
    first..first + number("MEMBERSHIP_WORLDS").unwrap_or(default)
}

#[test]
fn random_worlds_keep_all_invariants() {
    let mut totals = world::Counts::default();
    for seed in worlds(60) {
        match explore(seed) {
            Ok(counts) => totals.add(&counts),
            Err(error) => panic!("MEMBERSHIP_FIRST={seed} MEMBERSHIP_WORLDS=1: {error}"),
        }
    }
    println!("{totals:?}");
    assert!(totals.changes > 0 && totals.reads > 0 && totals.writes > 0, "{totals:?}");
}
