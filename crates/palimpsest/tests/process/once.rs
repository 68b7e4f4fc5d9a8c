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

#[test]
fn transaction_sent_to_every_node_while_nodes_are_killed_runs_once() {
    let mut nodes = Nodes::start("disk");
    let addresses: Vec<SocketAddr> = (0..nodes.len()).map(|it| nodes.address(it)).collect();
    let script = "return{redis.call('INCR',KEYS[1]),redis.call('INCR',KEYS[2])}";
    nodes.ask(0, "MSET a 0 b 0");
    for number in 1..=30 {
        let victim = number as usize / 10 % 3;
        let line = match number % 2 {
            0 => format!("ONCE counting {number} EVAL {script} 2 a b"),
            _ => format!("ONCE counting {number} BITOP AND c{number} a b"),
        };
        let replies = at_all_nodes(&addresses, &line, || {
            if number % 10 == 5 {
                nodes.kill(victim);
                nodes.restart(victim);
            }
        });
        assert!(replies.iter().all(|reply| *reply == replies[0]), "{line}: {replies:?}");
        assert!(!replies[0].is_error("ERR"), "{line}: {replies:?}");
    }
    let both = Value::List(vec![Value::text("15"), Value::text("15")]);
    assert_eq!(nodes.ask(1, "MGET a b"), both);
}

#[test]
fn exec_is_repeated_without_effect() {
    let nodes = Nodes::start("volatile");
    let mut client = Client::connect(nodes.address(0), LIMIT).expect("a node");
    let mut exec = |number: u64| {
        for line in ["MULTI", "INCR a", "INCR b"] {
            client.command(line).expect("a reply");
        }
        client.command(&format!("ONCE s {number} EXEC")).expect("a reply")
    };
    let reply = |count: i64| Value::List(vec![Value::Integer(count), Value::Integer(count)]);
    assert_eq!([exec(1), exec(1), exec(2)], [reply(1), reply(1), reply(2)]);
    for (line, text) in [
        ("ONCE s 3 EXEC", "ERR EXEC without MULTI"),
        ("ONCE s 3 EVAL return(1) 0", "ERR ONCE needs a key to remember the transaction by"),
    ] {
        assert_eq!(client.command(line).expect("a reply"), Value::Error(text.into()));
    }
}
