//! A very short media experiment: every pattern runs, holds its values, and is reported.

use std::time::Duration;

use bench::media::{self, Config, TestedMedium};
use bench::process::ScratchDir;

fn config(scratch: &ScratchDir) -> Config {
    Config {
        sizes: vec![8, 100, 1024],
        keys: 100,
        log_len: 4 << 20,
        time: Duration::from_millis(5),
        memory_dir: scratch.path().to_owned(),
        disk_dir: scratch.path().to_owned(),
        out: Some(scratch.path().join("out")),
        ..Config::default()
    }
}

#[test]
fn every_pattern_runs_and_is_reported_and_drawn() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "media-test").expect("a folder");
    let config = config(&scratch);
    let report = media::run(&config, |_| {}).expect("it runs");
    let count = |medium: TestedMedium| {
        report.rows.iter().filter(|row| row.medium == medium && row.value_bytes == 100).count()
    };
    // Memory: two raw loops, four variants twice, a log; a raw loop, three batch sizes of the
    // store, libpmemlog if installed. Disk: append, in place and the store, four groups each.
    let pmemlog = usize::from(!report.notes.iter().any(|note| note.contains("libpmemlog")));
    assert_eq!(TestedMedium::ALL.map(count), [11, 15 + pmemlog, 12], "{report}");
    assert!(report.rows.iter().all(|row| row.writes_per_second > 0.0), "{report}");
    assert_eq!(report.bars.len(), 3 + pmemlog, "only 1,024 bytes have bars here");
    let out = config.out.expect("it was given");
    let csv = std::fs::read_to_string(out.join("media.csv")).expect("a table");
    assert_eq!(csv.lines().count(), 1 + report.rows.len());
    for name in [
        "ram-patterns",
        "ram-variants",
        "pmem-patterns",
        "pmem-variants",
        "pmem-store",
        "disk",
        "disk-store",
    ] {
        let png = std::fs::read(out.join(name).with_extension("png")).expect("a plot");
        assert_eq!(&png[1..4], b"PNG");
        let svg = std::fs::read_to_string(out.join(name).with_extension("svg")).expect("a plot");
        assert!(svg.starts_with("<svg") && svg.contains("bytes of a value"), "{name}");
    }
}

#[test]
fn patterns_are_chosen_by_name() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "media-test").expect("a folder");
    let config = Config {
        media: vec![TestedMedium::Ram],
        patterns: vec!["log".to_string(), "popcount".to_string()],
        out: None,
        ..config(&scratch)
    };
    let report = media::run(&config, |_| {}).expect("it runs");
    assert_eq!(report.rows.len(), 3 * config.sizes.len(), "{report}");
}

#[test]
fn invalid_configuration_is_refused() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "media-test").expect("a folder");
    for wrong in [
        Config { sizes: vec![0], ..config(&scratch) },
        Config { sizes: Vec::new(), ..config(&scratch) },
        Config { keys: 0, ..config(&scratch) },
    ] {
        assert!(matches!(media::run(&wrong, |_| {}), Err(bench::Error::Usage(_))), "{wrong:?}");
    }
}
