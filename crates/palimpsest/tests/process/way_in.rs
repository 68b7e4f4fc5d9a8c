//! Clients of a Redis cluster find the nodes, and the nodes that are left after a crash.

use bench::client::Value;

use crate::support::{Nodes, eventually};

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
    let masters = masters(&nodes, 0);
    for index in 0..3 {
        assert!(masters.contains(&usize::from(nodes.address(index).port())));
    }
}
