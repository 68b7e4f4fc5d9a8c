//! Answers of the pages.

use std::collections::{BTreeMap, BTreeSet};

use super::support::{Answer, Lone, open};
use crate::AdminConfig;
use crate::metrics::known_counters;

/// `x:sesame` and `x:scrape`.
const SESAME: &str = "Authorization: Basic eDpzZXNhbWU=";
const SCRAPE: &str = "Authorization: Basic eDpzY3JhcGU=";

const OPEN_METRICS: &str = "Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1";

#[test]
fn every_counter_of_the_workers_has_a_row() {
    let lone = Lone::start(open());
    let known: BTreeSet<&str> = known_counters().collect();
    let stats = lone.status().stats.values;
    let unknown: Vec<&&str> = stats.keys().filter(|stat| !known.contains(**stat)).collect();
    assert!(unknown.is_empty(), "give them rows in metrics/table.rs: {unknown:?}");
    let gone: Vec<&&str> = known.iter().filter(|stat| !stats.contains_key(**stat)).collect();
    assert!(gone.is_empty(), "nothing counts them any more: {gone:?}");
}

#[test]
fn both_formats_say_the_same() {
    let lone = Lone::start(open());
    let classic = lone.get("/metrics", &[]);
    let kind = "content-type: text/plain; version=0.0.4; charset=utf-8";
    assert!(classic.head.contains(kind), "{}", classic.head);
    assert!(!classic.body.contains("# EOF") && !classic.body.contains("# UNIT"));
    let modern = lone.get("/metrics", &[OPEN_METRICS]);
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(modern.head.contains(kind), "{}", modern.head);
    assert!(modern.body.ends_with("# EOF\n"));
    let names = |answer: &Answer| series(answer).into_keys().collect::<Vec<_>>();
    assert_eq!(names(&classic), names(&modern));
}

#[test]
fn reference_page_lists_every_series() {
    let page = include_str!("../../../../docs/reference/metrics.md");
    let answer = Lone::start(open()).get("/metrics", &[]);
    let families = answer.body.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    for family in families.filter_map(|line| line.split(' ').next()) {
        assert!(page.contains(&format!("| `{family}` |")), "{family} has no row");
    }
}

#[test]
fn every_series_belongs_to_a_family_with_help() {
    let lone = Lone::start(open());
    let answer = lone.get("/metrics", &[]);
    let mut kinds = BTreeMap::new();
    let mut helped = BTreeSet::new();
    for line in answer.body.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] if !help.is_empty() => {
                assert!(helped.insert(name), "{name} has help twice");
            }
            ["#", "TYPE", name, kind] => {
                assert!(helped.contains(name), "{name} has no help");
                assert!(kinds.insert(name, kind).is_none(), "{name} has two types");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
            }
            _ => assert!(!line.starts_with('#'), "{line}"),
        }
    }
    for series in series(&answer).keys() {
        let name = series.split('{').next().unwrap_or_default();
        let is_own = name.starts_with("palimpsest_") || name.starts_with("process_");
        let of_histogram = ["_bucket", "_sum", "_count"]
            .iter()
            .filter_map(|suffix| name.strip_suffix(suffix))
            .any(|family| kinds.get(family) == Some(&"histogram"));
        assert!(is_own && (kinds.contains_key(name) || of_histogram), "{series}");
    }
}

#[test]
fn operators_find_the_metrics_that_they_need() {
    let lone = Lone::start(open());
    let found = series(&lone.get("/metrics", &[]));
    for (name, expected) in [
        ("palimpsest_build_info{version=\"1.2.3\"}", Some(1.0)),
        ("palimpsest_ready", Some(1.0)),
        ("palimpsest_members", Some(1.0)),
        ("palimpsest_failures_tolerated", Some(0.0)),
        ("palimpsest_writes_refused{reason=\"disk_full\"}", Some(0.0)),
        ("palimpsest_writes_refused{reason=\"file_size_limit\"}", Some(0.0)),
        ("palimpsest_clients", Some(0.0)),
        ("palimpsest_clients_refused_total", Some(0.0)),
        ("palimpsest_starts_total", Some(1.0)),
        ("palimpsest_network_sent_bytes_total{link=\"clients\"}", Some(0.0)),
        ("palimpsest_command_duration_seconds_count{command=\"get\"}", Some(4.0)),
        ("palimpsest_command_duration_seconds_sum{command=\"get\"}", Some(0.001)),
        (
            "palimpsest_command_duration_seconds_bucket{le=\"0.000131072\",command=\"get\"}",
            Some(2.0),
        ),
        ("palimpsest_command_duration_seconds_bucket{le=\"+Inf\",command=\"get\"}", Some(4.0)),
        ("palimpsest_command_failures_total{command=\"get\"}", Some(1.0)),
        ("palimpsest_command_rejections_total{command=\"get\"}", Some(5.0)),
        ("palimpsest_error_replies_total{error=\"WRONGTYPE\"}", Some(1.0)),
        ("palimpsest_uptime_seconds", None),
        ("palimpsest_ring_size_bytes", None),
        ("palimpsest_disk_free_bytes", None),
        ("palimpsest_cache_size_bytes", None),
        ("palimpsest_commit_duration_seconds_bucket{le=\"0.001\",durability=\"disk\"}", None),
        ("palimpsest_commit_duration_seconds_count{durability=\"pmem\"}", None),
        ("process_cpu_seconds_total", None),
        ("process_resident_memory_bytes", None),
        ("process_open_fds", None),
        ("process_max_fds", None),
        ("process_start_time_seconds", None),
    ] {
        let value = found.get(name);
        assert!(value.is_some(), "{name} is missing of {found:#?}");
        assert!(expected.is_none() || value.copied() == expected, "{name} is {value:?}");
    }
}

/// Names with labels, and values.
fn series(answer: &Answer) -> BTreeMap<String, f64> {
    assert_eq!(answer.code, 200, "{answer:?}");
    let mut found = BTreeMap::new();
    for line in answer.body.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a series has a value");
        let value = value.parse().expect("the value is a number");
        assert!(found.insert(name.to_string(), value).is_none(), "{name} is there twice");
    }
    found
}

#[test]
fn passwords_open_their_pages() {
    let config = AdminConfig {
        password: Some(b"sesame".to_vec()),
        metrics_password: Some(b"scrape".to_vec()),
        ..open()
    };
    let lone = Lone::start(config.clone());
    for (headers, expected) in
        [(&[][..], 401), (&[SESAME], 200), (&[SCRAPE], 200), (&["Authorization: Basic eDp5"], 401)]
    {
        let answer = lone.get("/metrics", headers);
        assert_eq!(answer.code, expected, "{headers:?}");
        assert_eq!(answer.code == 401, answer.head.contains("www-authenticate: basic"));
    }
    assert_eq!(lone.get("/readyz", &[]).code, 200);
    let lone = Lone::start(AdminConfig { metrics_loopback: true, ..config });
    assert_eq!(lone.get("/metrics", &[]).code, 200);
}

#[test]
fn a_ready_node_says_so() {
    let lone = Lone::start(open());
    for path in ["/readyz", "/readyz?writes"] {
        let answer = lone.get(path, &[]);
        assert_eq!((answer.code, answer.body.as_str()), (200, "ready\n"), "{path}");
    }
    let verbose = lone.get("/readyz?verbose", &[]);
    let expected = "[+]formed ok\n[+]quorum ok\n[+]memory ok\n[+]writes ok\nready\n";
    assert_eq!((verbose.code, verbose.body.as_str()), (200, expected));
    let status = lone.get("/api/v1/status", &[]);
    let status: serde_json::Value = serde_json::from_str(&status.body).expect("it is JSON");
    assert_eq!(status["writes"], "ok");
    assert!(status["disk"]["free_bytes"].is_u64() && status["disk"]["used_bytes"].is_u64());
}
