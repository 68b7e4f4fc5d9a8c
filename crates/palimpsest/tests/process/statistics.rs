//! Statistics, the slow log and monitors of real nodes, as clients see them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bench::client::Value;

use crate::support::{Nodes, eventually};

fn info(nodes: &Nodes, section: &str) -> String {
    match nodes.ask(0, &format!("INFO {section}")) {
        Value::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("INFO {section}: {other:?}"),
    }
}

fn list(value: &Value) -> String {
    match value {
        Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        Value::List(items) => items.iter().map(|item| list(item) + " ").collect(),
        other => format!("{other:?}"),
    }
}

fn field(text: &str, name: &str) -> f64 {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(one, _)| *one == name).map(|(_, value)| value);
    let value = values.next().unwrap_or_else(|| panic!("{name} in {text}"));
    value.parse().unwrap_or_else(|_| panic!("{name}:{value}"))
}

#[test]
fn commands_are_counted_with_their_times() {
    let nodes = Nodes::start("disk");
    nodes.ask(0, "CONFIG RESETSTAT");
    for line in ["SET s text", "INCR s", "GET", "SETEX s 0 x", "GET s", "GET nosuch"] {
        nodes.ask(0, line);
    }
    let text = info(&nodes, "commandstats");
    for (name, counts) in [
        ("incr", "rejected_calls=0,failed_calls=1"),
        ("get", "rejected_calls=1,failed_calls=0"),
        ("setex", "rejected_calls=0,failed_calls=1"),
        ("set", "rejected_calls=0,failed_calls=0"),
    ] {
        let start = format!("cmdstat_{name}:calls=");
        let line = text.lines().find(|line| line.starts_with(&start)).expect("it was called");
        assert!(line.ends_with(counts), "{line}");
    }
    // A write takes a quorum and a flush.
    let line = text.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls=1,usec="));
    let micros: u64 = line.unwrap().split(',').next().unwrap().parse().unwrap();
    assert!(micros > 0, "{text}");
    let text = info(&nodes, "stats");
    assert_eq!((field(&text, "keyspace_hits"), field(&text, "keyspace_misses")), (1.0, 1.0));
    assert!(field(&text, "total_reads_processed") >= 7.0, "{text}");
    let text = info(&nodes, "memory");
    assert!(field(&text, "used_memory_peak") >= field(&text, "used_memory"));
    eventually("a rate of requests is known", || {
        (0..50).for_each(|_| drop(nodes.ask(0, "GET s")));
        let text = info(&nodes, "stats");
        field(&text, "instantaneous_ops_per_sec") > 0.0
            && field(&text, "instantaneous_input_kbps") > 0.0
    });
}

#[test]
fn slow_commands_are_logged_with_their_client() {
    let nodes = Nodes::start("disk");
    let mut client = nodes.client(0);
    let mut ask = |line: &str| client.command(line).expect("an answer");
    ask("CLIENT SETNAME slow-one");
    ask("CONFIG SET slowlog-log-slower-than 0");
    ask("SET k v");
    ask("CONFIG SET slowlog-log-slower-than 10000000");
    let said = list(&ask("SLOWLOG GET"));
    assert!(
        said.contains("SET k v ") && said.contains(" slow-one ") && said.contains("127.0.0.1:"),
        "{said}"
    );
    assert_eq!(ask("SLOWLOG RESET"), Value::ok());
}

/// Reads lines until one contains `word`.
fn read_until(stream: &mut TcpStream, word: &str) -> String {
    let (mut said, mut buffer) = (String::new(), [0; 4_096]);
    while !said.lines().any(|line| line.contains(word)) {
        let count = stream.read(&mut buffer).expect("a line within the time limit");
        assert!(count > 0, "closed after {said}");
        said.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    said
}

fn connect(nodes: &Nodes) -> TcpStream {
    let stream = TcpStream::connect(nodes.address(0)).expect("the node listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
    stream
}

#[test]
fn a_monitor_sees_clients_of_all_workers() {
    let nodes = Nodes::start("volatile");
    let mut monitor = connect(&nodes);
    monitor.write_all(b"MONITOR\r\n").expect("it can be written");
    read_until(&mut monitor, "+OK");
    // Connections are dealt to the workers in turn.
    let mut clients: Vec<TcpStream> = (0..4).map(|_| connect(&nodes)).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.write_all(format!("SET seen:{index} 1\r\n").as_bytes()).expect("it can be written");
        read_until(client, "+OK");
    }
    let said = read_until(&mut monitor, "seen:3");
    for index in 0..4 {
        assert!(said.contains(&format!("] \"SET\" \"seen:{index}\" \"1\"\r\n")), "{said}");
    }
    monitor.write_all(b"QUIT\r\n").expect("it can be written");
    read_until(&mut monitor, "+OK");
    eventually("the monitor is gone", || !list(&nodes.ask(0, "CLIENT LIST")).contains("flags=O"));
}

#[test]
fn a_monitor_that_does_not_read_is_disconnected() {
    let nodes = Nodes::start("volatile");
    let mut monitor = connect(&nodes);
    monitor.write_all(b"MONITOR\r\n").expect("it can be written");
    read_until(&mut monitor, "+OK");
    let mut client = nodes.client(0);
    let long = "x".repeat(500_000);
    let is_monitored = |listed: &Value| list(listed).contains("flags=O");
    eventually("the monitor is disconnected", || {
        for _ in 0..20 {
            client.ask(&[b"ECHO", long.as_bytes()]).expect("other clients go on");
        }
        !is_monitored(&client.command("CLIENT LIST").expect("other clients go on"))
    });
}
