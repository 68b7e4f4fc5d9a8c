//! `kill -9` and pauses, of one node and of all, under load.

use std::collections::BTreeSet;

use bench::client::{Client, Value};

use crate::support::{Nodes, Recorder};

#[test]
fn history_is_linearizable_while_disk_nodes_are_killed_one_by_one_and_all_at_once() {
    let mut nodes = Nodes::start("disk");
    let addresses = nodes.cluster.addresses();
    let recorder = Recorder::new("killed");
    recorder.during(&addresses, |recorder| {
        for victim in [0, 1, 2, 1] {
            recorder.wait_for_successes(150);
            nodes.kill(victim);
            recorder.wait_for_successes(150);
            nodes.restart(victim);
        }
        recorder.wait_for_successes(150);
        nodes.kill_all();
        nodes.start_all();
        recorder.wait_for_successes(150);
    });
    nodes.wait_ready();
    recorder.read_all(&addresses);
    recorder.check();
}

#[test]
fn history_is_linearizable_while_volatile_nodes_lose_their_memory_one_by_one() {
    let mut nodes = Nodes::start("volatile");
    let addresses = nodes.cluster.addresses();
    let recorder = Recorder::new("forgetful");
    recorder.during(&addresses, |recorder| {
        for victim in [2, 0, 1, 2, 0, 1] {
            recorder.wait_for_successes(150);
            nodes.kill(victim);
            recorder.wait_for_successes(100);
            nodes.restart(victim);
        }
        recorder.wait_for_successes(150);
    });
    recorder.read_all(&addresses);
    recorder.check();
}

#[test]
fn history_is_linearizable_while_nodes_pause_and_resume() {
    let mut nodes = Nodes::start("disk");
    let addresses = nodes.cluster.addresses();
    let recorder = Recorder::new("paused");
    recorder.during(&addresses, |recorder| {
        for victim in [0, 1, 2] {
            recorder.wait_for_successes(150);
            nodes.process(victim).pause();
            recorder.wait_for_successes(100);
            nodes.process(victim).resume();
        }
        recorder.wait_for_successes(150);
    });
    nodes.wait_ready();
    recorder.read_all(&addresses);
    recorder.check();
}

#[test]
fn everything_acknowledged_is_there_after_all_nodes_were_killed() {
    for durability in ["disk", "pmem"] {
        let mut nodes = Nodes::start(durability);
        let mut clients: Vec<_> = (0..nodes.len()).map(|index| nodes.client(index)).collect();
        for number in 0..600 {
            let line = format!("SET key:{number} value:{number}");
            assert_eq!(clients[number % 3].command(&line).expect("an answer"), Value::ok());
        }
        nodes.kill_all();
        nodes.start_all();
        let mut clients: Vec<_> = (0..nodes.len()).map(|index| nodes.client(index)).collect();
        for number in 0..600 {
            let value = clients[(number + 1) % 3].command(&format!("GET key:{number}"));
            let expected = Value::text(&format!("value:{number}"));
            assert_eq!(value.expect("an answer"), expected, "key:{number}, {durability}");
        }
    }
}

/// Of the writes under way some have reached one node only.
#[test]
fn what_is_listed_after_all_nodes_were_killed_is_what_exists() {
    const SENT: usize = 4_000;
    let mut nodes = Nodes::start("disk");
    let key = |node: usize, number: usize| format!("key:{node}:{number}");
    let mut clients: Vec<_> = (0..nodes.len()).map(|index| nodes.client(index)).collect();
    for (node, client) in clients.iter_mut().enumerate() {
        let lines = (0..SENT).map(|number| format!("SET {} v\r\n", key(node, number)));
        client.send_raw(lines.collect::<String>().as_bytes()).expect("it is taken");
    }
    for client in &mut clients {
        for _ in 0..SENT / 20 {
            assert_eq!(client.receive().expect("an answer"), Value::ok());
        }
    }
    nodes.kill_all();
    nodes.start_all();
    // No key is deleted, so each look shows at least the keys of the one before.
    let written = (0..nodes.len()).flat_map(|node| (0..SENT).map(move |number| key(node, number)));
    let written: Vec<String> = written.collect();
    let mut seen = existing(&mut nodes.client(0), &written);
    assert!(seen.len() >= nodes.len() * SENT / 20, "{} keys exist", seen.len());
    for node in 0..nodes.len() {
        let listed = keys(&nodes, node);
        let exist = existing(&mut nodes.client((node + 1) % 3), &written);
        let (hidden, invented): (Vec<_>, Vec<_>) =
            (seen.difference(&listed).collect(), listed.difference(&exist).collect());
        assert!(hidden.is_empty() && invented.is_empty(), "{hidden:?} {invented:?}");
        seen = exist;
    }
}

fn keys(nodes: &Nodes, node: usize) -> BTreeSet<String> {
    let Value::List(keys) = nodes.ask(node, "KEYS *") else { panic!("no list of keys") };
    let text = |key: &Value| match key {
        Value::Bulk(key) => String::from_utf8_lossy(key).into_owned(),
        other => panic!("{other:?} is no key"),
    };
    keys.iter().map(text).collect()
}

fn existing(client: &mut Client, keys: &[String]) -> BTreeSet<String> {
    let lines: String = keys.iter().map(|key| format!("EXISTS {key}\r\n")).collect();
    client.send_raw(lines.as_bytes()).expect("it is taken");
    let mut exists = |_: &&String| client.receive().expect("an answer") == Value::Integer(1);
    keys.iter().filter(|key| exists(key)).cloned().collect()
}

#[test]
fn others_answer_every_command_while_one_node_is_dead_or_paused() {
    let mut nodes = Nodes::start("disk");
    // The victim has a part in every key: it wrote them last.
    for number in 0..50 {
        assert_eq!(nodes.ask(0, &format!("SET shared:{number} 0")), Value::ok());
    }
    nodes.process(0).pause();
    let mut client = nodes.client(1);
    for number in 0..50 {
        let reply = client.command(&format!("INCR shared:{number}")).expect("an answer");
        assert_eq!(reply, Value::Integer(1), "shared:{number} while node 1 is paused");
    }
    nodes.process(0).resume();
    for number in 0..50 {
        nodes.wait_for_answer(0, &format!("GET shared:{number}"), &Value::text("1"));
    }
    nodes.kill(0);
    let mut client = nodes.client(2);
    for number in 0..50 {
        let reply = client.command(&format!("INCR shared:{number}")).expect("an answer");
        assert_eq!(reply, Value::Integer(2), "shared:{number} while node 1 is dead");
    }
}

#[test]
fn sigterm_ends_a_node_cleanly_and_it_takes_up_where_it_stopped() {
    let mut nodes = Nodes::start("disk");
    assert_eq!(nodes.ask(0, "SET kept yes"), Value::ok());
    for index in 0..nodes.len() {
        let code = nodes.process(index).stop(crate::support::LIMIT);
        assert_eq!(code, Some(0), "node {}: {}", index + 1, nodes.log(index));
    }
    nodes.start_all();
    assert_eq!(nodes.ask(2, "GET kept"), Value::text("yes"));
}
