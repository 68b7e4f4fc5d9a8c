//! Key counts, cursors and flushes of real nodes.

use std::collections::BTreeSet;
use std::fs;

use bench::client::Value;

use crate::support::{Nodes, eventually};

/// Sends `lines` in one pipeline to node `index` and returns the replies.
fn pipeline(nodes: &Nodes, index: usize, lines: &[String]) -> Vec<Value> {
    let mut client = nodes.client(index);
    let mut replies = Vec::new();
    for lines in lines.chunks(1_000) {
        let bytes: Vec<u8> =
            lines.iter().flat_map(|line| format!("{line}\r\n").into_bytes()).collect();
        client.send_raw(&bytes).expect("the node reads");
        replies.extend(lines.iter().map(|_| client.receive().expect("a reply")));
    }
    replies
}

fn numbered(count: usize, line: impl Fn(usize) -> String) -> Vec<String> {
    (0..count).map(line).collect()
}

/// Keys and keys with a time to live of database 0, as node `index` counts them.
fn counted(nodes: &Nodes, index: usize) -> Option<(u64, u64)> {
    let Value::Bulk(text) = nodes.ask(index, "INFO keyspace") else { return None };
    let text = String::from_utf8_lossy(&text).into_owned();
    let Some(line) = text.lines().find_map(|line| line.strip_prefix("db0:")) else {
        return Some((0, 0));
    };
    let field = |name: &str| {
        let value = line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        value?.parse().ok()
    };
    Some((field("keys")?, field("expires")?))
}

fn check(nodes: &Nodes, expected: (u64, u64), moment: &str) {
    for index in 0..nodes.len() {
        let what = format!("node {} counts {expected:?} {moment}", index + 1);
        eventually(&what, || counted(nodes, index) == Some(expected));
        let what = format!("DBSIZE of node {} is {} {moment}", index + 1, expected.0);
        let size = Value::Integer(expected.0 as i64);
        eventually(&what, || nodes.ask(index, "DBSIZE") == size);
    }
}

fn counts_survive(durability: &str) {
    let mut nodes = Nodes::start(durability);
    pipeline(&nodes, 0, &numbered(3_000, |n| format!("SET key:{n} value")));
    pipeline(&nodes, 1, &numbered(300, |n| format!("EXPIRE key:{n} 1000")));
    check(&nodes, (3_000, 300), "after writes");
    nodes.kill(1);
    // A replica takes half a minute to repair missed writes: one medium stands for all.
    let missed = if durability == "disk" { 100 } else { 0 };
    pipeline(&nodes, 0, &numbered(missed as usize, |n| format!("SET more:{n} value")));
    nodes.restart(1);
    check(&nodes, (3_000 + missed, 300), "after a restart");
    if durability != "volatile" {
        nodes.kill(2);
        fs::remove_dir_all(nodes.data_dir(2)).expect("the directory is there");
        nodes.restart(2);
        check(&nodes, (3_000 + missed, 300), "after a node was wiped");
    }
    pipeline(&nodes, 2, &numbered(1_000, |n| format!("DEL key:{n}")));
    check(&nodes, (2_000 + missed, 0), "after deletions");
    pipeline(&nodes, 0, &numbered(500, |n| format!("SET short:{n} value EX 1000")));
    check(&nodes, (2_500 + missed, 500), "before expiry");
    pipeline(&nodes, 1, &numbered(500, |n| format!("PEXPIRE short:{n} 100")));
    check(&nodes, (2_000 + missed, 0), "after expiry");
    assert_eq!(nodes.ask(0, "FLUSHALL"), Value::ok());
    check(&nodes, (0, 0), "after FLUSHALL");
}

#[test]
fn key_counts_survive_on_disk() {
    counts_survive("disk");
}

#[test]
fn key_counts_survive_on_pmem() {
    counts_survive("pmem");
}

#[test]
fn key_counts_survive_in_memory() {
    counts_survive("volatile");
}

#[test]
fn scans_return_every_key_by_small_cursors() {
    let nodes = Nodes::start("disk");
    pipeline(&nodes, 0, &numbered(2_000, |n| format!("SET key:{n} value")));
    let (mut cursor, mut found) = (0_u64, BTreeSet::new());
    loop {
        let reply = nodes.ask(1, &format!("SCAN {cursor} COUNT 100"));
        let Value::List(parts) = reply else { panic!("{reply:?}") };
        let [Value::Bulk(next), Value::List(keys)] = &parts[..] else { panic!("{parts:?}") };
        for key in keys {
            let Value::Bulk(key) = key else { panic!("{key:?}") };
            found.insert(key.clone());
        }
        cursor = String::from_utf8_lossy(next).parse().expect("a cursor is a number");
        assert!(cursor < 1 << 53, "{cursor}");
        // As JavaScript keeps it.
        cursor = cursor as f64 as u64;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(found.len(), 2_000);
}

#[test]
fn refused_transactions_leave_no_trace() {
    let nodes = Nodes::start("volatile");
    let lines = ["SET a before", "MULTI", "SET a half", "GET", "EXEC", "GET a", "EXISTS b"];
    let replies = pipeline(&nodes, 0, &lines.map(str::to_string));
    assert!(replies[3].is_error("ERR"), "{replies:?}");
    assert!(replies[4].is_error("EXECABORT"), "{replies:?}");
    assert_eq!(replies[5..], [Value::text("before"), Value::Integer(0)]);
}

/// redis-server 7 takes such a request; earlier ones closed the connection.
#[test]
fn requests_of_a_million_arguments_are_answered() {
    let nodes = Nodes::start("volatile");
    let mut client = nodes.client(0);
    let mut bytes = b"*1048577\r\n$4\r\nPING\r\n".to_vec();
    (0..1_048_576).for_each(|_| bytes.extend_from_slice(b"$1\r\nk\r\n"));
    client.send_raw(&bytes).expect("the node reads");
    assert!(client.receive().expect("a reply").is_error("ERR"));
    assert_eq!(client.command("PING").expect("a reply"), Value::Simple("PONG".into()));
}
