//! Deliberate mistakes that few seeds catch: they must stay caught by few.

mod mistakes {
    use sim::mutants::{Effort, every, mutants};
    use sim::{Mix, SimConfig};

    /// At least twice the mean of nearly all mistakes; see `docs/testing.md` for the means.
    const SEEDS_MAX: u64 = 1_000;

    /// These take more on average: 380 and up to 1,014 from one of four first seeds, 955 and up to
    /// 1,433 from one of three.
    const SLOW: &[(&str, u64)] =
        &[("disk-extents-unflushed", 4_000), ("answer-counted-twice", 4_000)];

    /// First seeds shortly before one that fails. Any would do, and most take longer.
    const FIRST: &[(&str, &str, u64)] = &[
        ("answer-counted-twice", "abd", 1_425),
        ("delta-unchecked", "rmwpaxos", 170),
        ("disk-spare-unflushed", "rmwpaxos", 50),
        ("expose-unflushed", "abd", 145),
        ("no-recovery", "abd", 142),
        ("recover-from-self", "abd", 4_900),
        ("reply-before-stored", "rmwpaxos", 53),
        ("stale-answers", "abd", 90),
        ("two-minters", "rmwpaxos", 125),
        ("volatile-promises", "rmwpaxos", 60),
        ("zab-runs-ahead", "zab", 710),
    ];

    /// Those that need many seeds, or a schedule made for them; other tests catch these.
    const RARE: &[&str] = &[
        "equal-values",
        "early-ok",
        "nil-from-mixed",
        "adopt-minority",
        "delta-any-base",
        "first-below-floor",
        "first-repeated-after-loss",
        "first-from-before-loss",
        "hint-of-another-ballot",
        "hint-of-an-earlier-round",
        "list-highest",
        "denial-ignored",
        "floors-stay",
        "witness-ignored",
        "witness-alone",
        "repair-removed",
        "repair-below-floor",
        "low-exclusion",
        "chosen-ignores-floor",
        "collect-by-majority",
        "no-crash-vector",
        "no-op-below-attempt",
        "forward-any-incarnation",
        "expire-by-one",
        // Unit tests of `node::uptime` and `docs/tla/Countdown.tla` play these.
        "count-twice",
        "never-rests",
        "ack-of-higher-ballot",
        "delta-no-digest",
        "disk-sector-unchecked",
        "disk-page-unchecked",
        "disk-lost-is-absent",
        "pmem-forgotten-unfenced",
        "once-evicts-oldest",
        "once-refusal-stays",
        "once-collected",
        "once-dropped-by-one",
        // Crashes alone show it within 150 seeds: `loss,crash,restart-all,torn,crash-after-turn`.
        "craq-hand-on-before-durable",
        "craq-shadows-are-no-end",
        "craq-runs-late-steers",
        "craq-no-floor",
        "craq-mint-below-floor",
        "craq-floor-over-pends",
        "craq-bury-names",
        "craq-clean-ends-here",
        // Restarts alone show it within 700 seeds: `crash,restart-all,torn,crash-after-turn`.
        "zab-notes-epoch-early",
        // The sets of replicas stay. Only schedules reach the others.
        "caspaxos-grant-outlives-epoch",
        "caspaxos-grant-skips-deadline",
        "caspaxos-tombstone-covers",
        "caspaxos-recovers-no-promise",
        // `protocols::tests::mutants` catches these, most by schedules made for them.
        "zab-forgets-promises",
        "zab-compares-zxids-only",
        "zab-counts-unjoined",
        "zab-never-notes",
        "zab-resends-copied",
        "end-uncounted",
        "end-missed",
        "recovery-goes-on",
        "craq-repeats-unseen",
        "craq-forgets-long",
        "craq-forgets-ended",
        "craq-later-reads-join",
        "group-drops-early",
        "hermes-commits-late",
        "zab-reads-behind",
        "zab-adopts-older",
        "zab-forgets-deletions",
        "zab-applies-again",
        "recompute-attempt",
        "commit-any-vote",
        "answer-newer",
        "abd-verify-by-majority",
        "abd-bury-unclosed",
        "abd-forget-closed",
        "abd-advance-early",
        "abd-mint-below-era",
        "abd-recover-undated",
        "abd-adopt-late",
        "group-shadow-serves",
        "group-copied-before-durable",
        "hermes-acks-without-shadows",
        "hermes-take-late",
        "hermes-bury-unraised",
        "hermes-raise-any-held",
        "hermes-collect-beside-copy",
        "hermes-ack-earlier-life",
        "hermes-end-earlier-life",
        "hermes-stale-ends-well",
        "group-old-epoch-counts",
        "group-any-process-counts",
        "group-read-without-lease",
        "group-copy-from-shadow",
        "hermes-ack-before-durable",
        "hermes-range-by-first-ticket",
        "hermes-ranges-over-gaps",
        "hermes-abort-on-higher",
        "hermes-replay-live-rmw",
    ];

    #[test]
    fn known_mutants_fail_within_few_seeds() {
        let mut survivors = Vec::new();
        for (config, name) in every() {
            // Tests of `transactions` catch those of its rules.
            if RARE.contains(&name) || name.starts_with("tx-") {
                continue;
            }
            let slow = SLOW.iter().find(|slow| slow.0 == name);
            let seeds_max = slow.map_or(SEEDS_MAX, |slow| slow.1);
            let is_it = |it: &&(&str, &str, u64)| (it.0, it.1) == (name, &config.protocol);
            let seed = FIRST.iter().find(is_it).map_or(config.seed, |it| it.2);
            let config = SimConfig { seed, ..config };
            let effort = Effort { seeds_max, starts: 1, threads: 2 };
            let tried = mutants(&config, effort, &[name], |_| {});
            if !tried[0].is_caught() {
                survivors.push(format!("{name} under {}", config.protocol));
            }
        }
        assert!(survivors.is_empty(), "no seed catches {survivors:?}");
    }

    /// The check of each collection can fail.
    #[test]
    fn collections_reveal_a_mistake() {
        for &mix in Mix::COLLECTIONS {
            let config = SimConfig { mix: Some(mix), ..SimConfig::new("rmwpaxos", 1) };
            let effort = Effort { seeds_max: SEEDS_MAX, starts: 1, threads: 2 };
            let tried = mutants(&config, effort, &["reply-before-stored"], |_| {});
            assert!(tried[0].is_caught(), "{}", mix.name());
            assert!(tried[0].symptom.contains("key k"), "{}", tried[0].symptom);
        }
    }
}
