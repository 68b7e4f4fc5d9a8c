//! `ONCE`: lines that clients send to every node, and again after every error, run once.

use std::net::SocketAddr;

use bench::client::{Client, Value};
use bench::process::wait_until;

use crate::support::{LIMIT, Nodes};

/// Sends a line to a node until it has a reply, like a client library that retries.
fn insist(address: SocketAddr, line: &str) -> Value {
    let mut told = None;
    let is_told = wait_until(LIMIT, || {
        let reply = Client::connect(address, LIMIT).and_then(|mut client| client.command(line));
        let is_open = |value: &Value| {
            ["UNKNOWN", "CLUSTERDOWN", "LOADING", "TRYAGAIN"].iter().any(|it| value.is_error(it))
        };
        told = reply.ok().filter(|value| !is_open(value));
        told.is_some()
    });
    assert!(is_told, "{line} is answered");
    told.expect("it was told")
}

/// Sends a line to all nodes at once and calls `meanwhile`. Returns their answers.
fn at_all_nodes(addresses: &[SocketAddr], line: &str, meanwhile: impl FnOnce()) -> Vec<Value> {
    std::thread::scope(|scope| {
        let asks: Vec<_> =
            addresses.iter().map(|&address| scope.spawn(move || insist(address, line))).collect();
        meanwhile();
        asks.into_iter().map(|ask| ask.join().expect("a client that insists is answered")).collect()
    })
}

#[test]
fn a_line_sent_to_every_node_while_nodes_are_killed_runs_once() {
    for durability in ["disk", "volatile"] {
        let mut nodes = Nodes::start(durability);
        let addresses: Vec<SocketAddr> = (0..nodes.len()).map(|it| nodes.address(it)).collect();
        for number in 1..=60 {
            let line = format!("ONCE counting {number} INCR counter");
            let victim = number as usize / 20 % 3;
            let replies = at_all_nodes(&addresses, &line, || {
                if number % 20 == 10 {
                    nodes.kill(victim);
                    nodes.restart(victim);
                }
            });
            assert_eq!(replies, vec![Value::Integer(number); 3], "{line}, {durability}");
        }
        assert_eq!(nodes.ask(1, "GET counter"), Value::text("60"), "{durability}");
    }
}

#[test]
fn what_ran_once_is_remembered_by_all_nodes_after_all_were_killed() {
    for durability in ["disk", "pmem"] {
        let mut nodes = Nodes::start(durability);
        let long = "x".repeat(1025);
        nodes.ask(0, &format!("SET long {long}"));
        let lines = [
            ("ONCE a 7 INCRBY counter 5", Value::Integer(5)),
            ("ONCE b 1 SET counter 9 NX", Value::Nil),
            ("ONCE d 1 APPEND gone x", Value::Integer(1)),
            ("ONCE e 1 DEL gone", Value::Integer(1)),
            ("ONCE f 1 SET word letters", Value::ok()),
            ("ONCE g 1 INCR word", Value::Error(String::new())),
        ];
        let first: Vec<Value> = lines.iter().map(|(line, _)| nodes.ask(0, line)).collect();
        for ((line, expected), told) in lines.iter().zip(&first) {
            match expected {
                Value::Error(_) => assert!(matches!(told, Value::Error(_)), "{line}: {told:?}"),
                expected => assert_eq!(told, expected, "{line}"),
            }
        }
        assert_eq!(nodes.ask(1, "ONCE h 1 GET long"), Value::text(&long), "whole at first");
        nodes.ask(2, "SET word 1");
        nodes.kill_all();
        nodes.start_all();
        for index in 0..nodes.len() {
            for ((line, _), told) in lines.iter().zip(&first) {
                assert_eq!(nodes.ask(index, line), *told, "{line} at node {}", index + 1);
            }
            assert!(nodes.ask(index, "ONCE h 1 GET long").is_error("ALREADYDONE"));
            assert!(nodes.ask(index, "ONCE a 6 INCR counter").is_error("ERR"), "an older number");
        }
        assert_eq!(nodes.ask(0, "GET counter"), Value::text("5"), "{durability}");
        assert_eq!(nodes.ask(1, "GET gone"), Value::Nil, "{durability}");
        assert_eq!(nodes.ask(2, "ONCE a 8 INCR counter"), Value::Integer(6), "the session goes on");
    }
}

#[test]
fn a_key_that_remembers_enough_refuses_further_sessions() {
    let nodes = Nodes::start("volatile");
    let mut client = nodes.client(0);
    let mut once = |session: i64| {
        let line = format!("ONCE session-{session} 1 INCR counter");
        client.command(&line).expect("an answer")
    };
    for session in 1..=64 {
        assert_eq!(once(session), Value::Integer(session));
    }
    assert!(once(65).is_error("TRYAGAIN"));
    assert_eq!(once(1), Value::Integer(1), "nobody was forgotten");
    assert_eq!(nodes.ask(2, "INCR counter"), Value::Integer(65), "other commands go on");
    assert_eq!(nodes.ask(1, "ONCE session-65 1 INCR other"), Value::Integer(1), "other keys too");
}
