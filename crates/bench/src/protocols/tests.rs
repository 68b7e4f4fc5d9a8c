//! The whole measurement at a tiny size, and stores that lie.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use types::{Applied, Clock, Reply, Update, View};

use super::report::CSV_HEADER;
use super::*;

fn tiny() -> Config {
    Config {
        protocols: vec!["rmwpaxos".to_string()],
        experiments: vec![Experiment::Writes],
        nodes: 3,
        keys: 200,
        writes: vec![50],
        sweep: vec![1, 2],
        sessions: 8,
        warm_up: Duration::from_millis(20),
        window: Duration::from_millis(100),
        rest: Duration::ZERO,
        ..Config::default()
    }
}

/// The store's own commands, but some replies to reads are changed.
struct Liar {
    reads: AtomicU64,
    lie: fn(&[u8]) -> Option<Vec<u8>>,
}

impl Update for Liar {
    fn apply(&self, view: View<'_>, body: &[u8], clock: Clock) -> Applied {
        let mut applied = commands::Interpreter::default().apply(view, body, clock);
        if let Reply::Bulk(value) = &applied.reply
            && self.reads.fetch_add(1, Ordering::Relaxed) % 20 == 19
        {
            applied.reply = match (self.lie)(value) {
                Some(value) => Reply::Bulk(Bytes::from(value)),
                None => Reply::Null,
            };
        }
        applied
    }
}

fn lie(lie: fn(&[u8]) -> Option<Vec<u8>>) -> String {
    let update: Arc<dyn Update> = Arc::new(Liar { reads: AtomicU64::new(0), lie });
    // The first window with a lie ends the run.
    match run_with(&Config { writes: vec![50; 20], ..tiny() }, &update, |_| {}) {
        Ok(report) => panic!("a lie was believed: {report}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn altered_value_is_noticed() {
    let error = lie(|value| {
        let mut value = value.to_vec();
        value[20] ^= 1;
        Some(value)
    });
    assert!(error.contains("wrong checksum"), "{error}");
}

#[test]
fn value_of_another_key_is_noticed() {
    let error = lie(|value| {
        let mut other = value.to_vec();
        values::write_value(&mut other, 3_000_000, values::WriteId::new(0, 1));
        Some(other)
    });
    assert!(error.contains("the value of key 3000000"), "{error}");
}

#[test]
fn lost_value_is_noticed() {
    assert!(lie(|_| None).contains("wrong replies"));
}

#[test]
fn value_that_no_session_wrote_is_noticed() {
    let error = lie(|value| {
        let key = value[..8].iter().fold(0, |key, &byte| key << 8 | u64::from(byte));
        let mut other = value.to_vec();
        values::write_value(&mut other, key, values::WriteId::new(1, 1 << 30));
        Some(other)
    });
    assert!(error.contains("never began"), "{error}");
}

/// Answers some reads with the first value that was ever read of the same key.
struct Stale(std::sync::Mutex<std::collections::BTreeMap<Bytes, Bytes>>);

impl Update for Stale {
    fn apply(&self, view: View<'_>, body: &[u8], clock: Clock) -> Applied {
        let mut applied = commands::Interpreter::default().apply(view, body, clock);
        if let Reply::Bulk(value) = &mut applied.reply {
            let key = Bytes::copy_from_slice(&value[..8]);
            let mut first = window::lock(&self.0);
            *value = first.entry(key).or_insert_with(|| value.clone()).clone();
        }
        applied
    }
}

#[test]
fn stale_read_is_noticed() {
    let update: Arc<dyn Update> = Arc::new(Stale(Default::default()));
    let config = Config { writes: vec![50; 20], window: Duration::from_millis(300), ..tiny() };
    match run_with(&config, &update, |_| {}) {
        Ok(report) => panic!("stale reads were believed: {report}"),
        Err(error) => assert!(error.to_string().contains("not linearizable"), "{error}"),
    }
}

#[test]
fn every_protocol_runs() {
    let config = Config { protocols: Vec::new(), reads: vec![Reads::Plain], ..tiny() };
    let report = run(&config, |_| {}).expect("it runs");
    assert_eq!(report.rows.len(), PROTOCOLS.len());
    for row in &report.rows {
        assert!(row.operations > 0 && row.cpu_seconds > 0.0 && row.per_core > 0.0, "{row:?}");
        assert!(row.latency_avg_us > 0.0 && row.latency_p99_us >= row.latency_avg_us / 4.0);
        assert!(row.sample > 0 || row.operations < 2_000, "{row:?}");
    }
}

#[test]
fn messages_are_counted_over_both_links() {
    let links = vec![Links::Local, Links::Tcp];
    let rest = Config::default().rest;
    let config = Config { links, rest, writes: vec![100], ..tiny() };
    let is_counted = |row: &Row| {
        // Two peers take part in a write, and each is sent a message at least.
        row.messages_per_operation > 2.0 && row.bytes_per_operation > 64.0
    };
    // Nodes publish counters late on a machine that is busy otherwise.
    let is_right = (0..5).any(|_| {
        let mut told = 0;
        let report = run(&config, |_| told += 1).expect("it runs");
        assert_eq!((report.rows.len(), told), (2, 2));
        report.rows.iter().all(is_counted)
    });
    assert!(is_right, "no run counted the messages of writes");
}

#[test]
fn every_experiment_makes_its_rows_csv_and_plots() {
    let window = Duration::from_millis(30);
    let config = Config { experiments: Experiment::ALL.to_vec(), keys: 100, window, ..tiny() };
    let report = run(&config, |_| {}).expect("it runs");
    let count = |experiment| report.rows.iter().filter(|row| row.experiment == experiment).count();
    // Uniform, Zipf, Pareto over 10 and 100 keys, at two percentages of writes. The protocol has no
    // leader.
    assert_eq!(Experiment::ALL.map(count), [1, 8, 4, 4, 0]);
    let csv = report.csv();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some(CSV_HEADER));
    let columns = CSV_HEADER.split(',').count();
    assert!(lines.clone().all(|line| line.split(',').count() == columns), "{csv}");
    assert_eq!(lines.count(), report.rows.len());
    let dir = crate::process::ScratchDir::new(&std::env::temp_dir(), "palimpsest-plots");
    let dir = dir.expect("there is room for plots");
    let files = report.write_plots(dir.path()).expect("they are drawn");
    assert_eq!(files.len(), 8, "{files:?}");
    assert!(files.iter().all(|file| file.metadata().is_ok_and(|it| it.len() > 1_000)));
    assert!(report.to_string().contains("op/s/core"));
}

#[test]
fn limited_load_stays_below_its_limit() {
    let config = Config {
        experiments: vec![Experiment::Load],
        window: Duration::from_millis(500),
        ..tiny()
    };
    let report = run(&config, |_| {}).expect("it runs");
    let [peak, rest @ ..] = &report.rows[..] else { panic!("{report}") };
    for row in rest {
        let share = row.per_second / peak.per_second * 100.0;
        let wanted = f64::from(row.load_percent);
        assert!(share > 0.0 && share < wanted * 3.0, "{share} % of {wanted} %: {row:?}");
    }
}

#[test]
fn bad_settings_are_refused_with_a_word() {
    let refused = |config: Config| match run(&config, |_| {}) {
        Err(Error::Usage(text)) => text,
        other => panic!("it must be refused: {other:?}"),
    };
    assert!(refused(Config { nodes: 8, ..tiny() }).contains("--nodes"));
    assert!(refused(Config { keys: 0, ..tiny() }).contains("--keys"));
    assert!(refused(Config { value_bytes: 8, ..tiny() }).contains("--value-size"));
    assert!(refused(Config { sessions: 0, ..tiny() }).contains("--sessions"));
    assert!(refused(Config { sweep: vec![0], ..tiny() }).contains("workers"));
    assert!(refused(Config { writes: vec![101], ..tiny() }).contains("--writes"));
    assert!(refused(Config { reads: Vec::new(), ..tiny() }).contains("--reads"));
    let text = refused(Config { protocols: vec!["raft".to_string()], ..tiny() });
    assert!(text.contains("rmwpaxos"), "{text}");
}

#[test]
fn variants_join_their_protocols() {
    let [first, second, ..] = PROTOCOLS else { panic!("there are two protocols") };
    // Names are compared only, so that any protocol may stand for a variant.
    let mut variant = *first;
    variant.name = String::leak(format!("{}{AFTER_COMMIT}", first.name));
    let variants = [variant];
    let all = with_variants(vec![first, second], &variants).expect("there is a variant");
    let names: Vec<&str> = all.iter().map(|one| one.name).collect();
    assert_eq!(names, [first.name, variant.name, second.name]);
    let none = with_variants(vec![second], &variants);
    assert!(matches!(none, Err(Error::Usage(text)) if text.contains("no chosen protocol")));
}

/// Some protocol of one total order, with reads that are weaker than its writes.
fn ordered() -> &'static str {
    let is_ordered = |one: &&Registration| {
        let properties = &one.properties;
        properties.total_order && properties.consistency == Consistency::SequentialReads
    };
    PROTOCOLS.iter().find(is_ordered).expect("there is one").name
}

#[test]
fn weaker_reads_are_measured_beside_linearizable_ones() {
    let config = Config {
        protocols: vec!["rmwpaxos".to_string(), ordered().to_string()],
        writes: vec![50, 100],
        ..tiny()
    };
    let report = run(&config, |_| {}).expect("it runs");
    let rows: Vec<(&str, u32, Reads)> =
        report.rows.iter().map(|row| (row.protocol, row.writes_percent, row.reads)).collect();
    let wanted = [
        ("rmwpaxos", 50, Reads::Plain),
        ("rmwpaxos", 100, Reads::Plain),
        (ordered(), 50, Reads::Plain),
        (ordered(), 50, Reads::Linearizable),
        (ordered(), 100, Reads::Plain),
    ];
    assert_eq!(rows, wanted);
    let config = Config { reads: vec![Reads::Linearizable], ..config };
    assert_eq!(run(&config, |_| {}).expect("it runs").rows.len(), 2, "of one protocol");
}

#[test]
fn stale_read_is_noticed_where_it_must_not_be() {
    let update: Arc<dyn Update> = Arc::new(Stale(Default::default()));
    let config = Config {
        protocols: vec![ordered().to_string()],
        reads: vec![Reads::Linearizable],
        writes: vec![50; 20],
        window: Duration::from_millis(300),
        ..tiny()
    };
    match run_with(&config, &update, |_| {}) {
        Ok(report) => panic!("stale reads were believed: {report}"),
        Err(error) => assert!(error.to_string().contains("not linearizable"), "{error}"),
    }
}

#[test]
fn only_the_leader_has_clients_if_asked() {
    let config = Config {
        protocols: vec!["rmwpaxos".to_string(), ordered().to_string()],
        experiments: vec![Experiment::Leader],
        reads: vec![Reads::Plain],
        writes: vec![0, 100],
        rest: Config::default().rest,
        ..tiny()
    };
    // Nodes publish counters late on a machine that is busy otherwise.
    let is_right = (0..5).any(|_| {
        let report = run(&config, |_| {}).expect("it runs");
        assert!(report.rows.iter().all(|row| row.protocol == ordered() && row.operations > 0));
        assert_eq!(report.rows.len(), 2);
        // A write needs no message to the leader.
        report.rows[1].messages_per_operation > 0.0
    });
    assert!(is_right, "no run counted the messages of writes");
}
