//! Clients of a Redis cluster and of Redis Sentinel find the nodes that are left after a crash.

use std::net::SocketAddr;
use std::time::Duration;

use bench::client::{Client, Value};
use bench::process::free_addresses;

use crate::support::{Nodes, eventually, exit_of};

const SLOTS: usize = 16_384;

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("{other:?} is no text"),
    }
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::List(items) => items,
        other => panic!("{other:?} is no list"),
    }
}

fn number(value: &Value) -> usize {
    match value {
        Value::Integer(number) => usize::try_from(*number).expect("it is not negative"),
        other => panic!("{other:?} is no number"),
    }
}

/// The port of each slot's master, as node `index` says. Checks that each slot has one.
fn masters(nodes: &Nodes, index: usize) -> Vec<usize> {
    let mut masters = vec![0; SLOTS];
    for range in items(nodes.ask(index, "CLUSTER SLOTS")) {
        let range = items(range);
        let master = items(range[2].clone());
        for slot in &mut masters[number(&range[0])..=number(&range[1])] {
            assert_eq!(*slot, 0, "a slot has two masters");
            *slot = number(&master[1]);
        }
    }
    assert!(masters.iter().all(|port| *port > 0), "a slot has no master");
    masters
}

#[test]
fn slots_of_a_killed_node_move_and_come_back() {
    let mut nodes = Nodes::start("disk");
    let port = |nodes: &Nodes, index: usize| usize::from(nodes.address(index).port());
    let ports: Vec<usize> = (0..3).map(|index| port(&nodes, index)).collect();
    let all_serve = |nodes: &Nodes, index: usize| {
        let masters = masters(nodes, index);
        ports.iter().all(|port| masters.iter().filter(|it| *it == port).count() > SLOTS / 4)
    };
    eventually("all nodes have slots", || (0..3).all(|index| all_serve(&nodes, index)));
    let before = masters(&nodes, 0);
    assert_eq!(before, masters(&nodes, 1), "nodes agree on the slots");
    let id = text(&nodes.ask(2, "CLUSTER MYID"));
    nodes.kill(2);
    eventually("the killed node has no slots", || {
        (0..2).all(|index| !masters(&nodes, index).contains(&ports[2]))
    });
    let after = masters(&nodes, 0);
    let moved = before.iter().zip(&after).filter(|(was, is)| was != is);
    assert!(moved.into_iter().all(|(was, _)| *was == ports[2]), "slots of others moved");
    let lines = text(&nodes.ask(0, "CLUSTER NODES"));
    let line = lines.lines().find(|line| line.starts_with(&id)).expect("it is a member");
    assert!(line.contains(" master,fail - ") && line.ends_with(" disconnected"), "{line}");
    nodes.restart(2);
    eventually("the killed node has its slots again", || {
        (0..3).all(|index| masters(&nodes, index) == before)
    });
    assert_eq!(text(&nodes.ask(2, "CLUSTER MYID")), id, "a node keeps its id");
}

#[test]
fn node_without_a_quorum_names_every_address() {
    let mut nodes = Nodes::start("disk");
    nodes.kill(1);
    nodes.kill(2);
    eventually("the cluster has failed", || {
        text(&nodes.ask(0, "CLUSTER INFO")).starts_with("cluster_state:fail\r\n")
    });
    eventually("it names every address", || {
        let masters = masters(&nodes, 0);
        (0..3).all(|index| masters.contains(&usize::from(nodes.address(index).port())))
    });
}

/// Three nodes, each with a port for clients of Redis Sentinel.
fn with_sentinels(options: &[&str]) -> (Nodes, Vec<SocketAddr>) {
    let mut nodes = Nodes::prepare("disk");
    let ports = free_addresses(3).expect("free ports");
    for (node, port) in nodes.cluster.nodes.iter_mut().zip(&ports) {
        node.arguments.extend(["--sentinel-listen".into(), port.to_string()]);
        node.arguments.extend(options.iter().map(|option| option.to_string()));
    }
    nodes.start_all();
    (nodes, ports)
}

fn ask(address: SocketAddr, line: &str) -> Value {
    let client = Client::connect(address, Duration::from_secs(10));
    let reply = client.and_then(|mut client| client.command(line));
    reply.unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// The port that a sentinel names.
fn master(address: SocketAddr, name: &str) -> String {
    text(&items(ask(address, &format!("SENTINEL GET-MASTER-ADDR-BY-NAME {name}")))[1])
}

#[test]
fn sentinels_name_their_own_node_and_each_other() {
    let (mut nodes, sentinels) = with_sentinels(&[]);
    for (index, sentinel) in sentinels.iter().enumerate() {
        assert_eq!(master(*sentinel, "mymaster"), nodes.address(index).port().to_string());
    }
    let ports_of = |kind: &str| {
        let all = items(ask(sentinels[0], &format!("SENTINEL {kind} mymaster")));
        let port = |one: Value| text(&items(one)[5]).parse().expect("a port");
        let mut ports: Vec<u16> = all.into_iter().map(port).collect();
        ports.sort_unstable();
        ports
    };
    let sorted = |mut ports: Vec<u16>| {
        ports.sort_unstable();
        ports
    };
    let others = sorted(vec![sentinels[1].port(), sentinels[2].port()]);
    eventually("node 1 knows the other sentinels", || ports_of("SENTINELS") == others);
    let replicas = sorted(vec![nodes.address(1).port(), nodes.address(2).port()]);
    assert_eq!(ports_of("REPLICAS"), replicas);
    nodes.kill(1);
    nodes.kill(2);
    eventually("no quorum is left", || {
        let mut client =
            Client::connect(sentinels[0], Duration::from_secs(10)).expect("it listens");
        client
            .command("SENTINEL CKQUORUM mymaster")
            .is_ok_and(|reply| matches!(reply, Value::Error(text) if text.starts_with("NOQUORUM ")))
    });
}

#[test]
fn subscriber_is_told_of_a_killed_node() {
    let (mut nodes, sentinels) = with_sentinels(&["--sentinel-name", "store"]);
    let mut subscriber =
        Client::connect(sentinels[0], Duration::from_secs(30)).expect("it listens");
    subscriber.command("SUBSCRIBE +switch-master").expect("it subscribes");
    assert_eq!(master(sentinels[0], "store"), nodes.address(0).port().to_string());
    let (lost, kept) = (nodes.address(2).port(), nodes.address(0).port());
    nodes.kill(2);
    let message = subscriber.receive().expect("a message");
    let expected = format!("store 127.0.0.1 {lost} 127.0.0.1 {kept}");
    assert_eq!(text(&items(message)[2]), expected);
}

#[test]
fn open_sentinel_port_needs_secrets() {
    let serve = ["serve", "--id", "1", "--cluster", "1=127.0.0.1:1", "--data-dir", "no-such-dir"];
    let open = ["--sentinel-listen", "0.0.0.0:26379"];
    let (code, said) = exit_of(&[&serve[..], &open[..]].concat());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--sentinel-listen 0.0.0.0:26379 is beyond loopback"), "{said}");
    let (code, said) = exit_of(&[&["dev"][..], &open[..]].concat());
    assert_eq!(code, Some(2), "{said}");
    let name = ["--sentinel-name", "two words"];
    let (code, said) = exit_of(&[&serve[..], &name[..]].concat());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--sentinel-name \"two words\" is no name"), "{said}");
}
