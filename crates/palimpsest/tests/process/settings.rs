//! Settings on which nodes must agree, limits of which the smallest counts, and corrected first
//! starts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bench::client::Value;
use bench::process::free_addresses;

use crate::support::{LIMIT, Nodes, eventually, http_get};

/// Sets the value of a flag of node `index` from its next start on.
fn set(nodes: &mut Nodes, index: usize, flag: &str, value: &str) {
    let arguments = &mut nodes.cluster.nodes[index].arguments;
    match arguments.iter().position(|word| word == flag) {
        Some(at) => arguments[at + 1] = value.to_owned(),
        None => arguments.extend([flag.to_owned(), value.to_owned()]),
    }
}

fn status(nodes: &Nodes, index: usize) -> Option<serde_json::Value> {
    let (_, body) = http_get(nodes.cluster.nodes[index].admin, "/api/v1/status")?;
    serde_json::from_str(&body).ok()
}

/// Why node `index` refuses node `other`.
fn refused(nodes: &Nodes, index: usize, other: usize) -> String {
    let status = status(nodes, index).unwrap_or_default();
    status["members"][other]["refused"].as_str().unwrap_or_default().to_owned()
}

fn start(nodes: &mut Nodes, index: usize) {
    nodes.cluster.start_node(index).expect("the program starts");
}

fn stop(nodes: &mut Nodes, index: usize) {
    assert_eq!(nodes.process(index).stop(LIMIT), Some(0), "{}", nodes.log(index));
}

/// Every file below `dir` with its bytes.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = std::fs::read_dir(dir).expect("the directory is there").flatten();
    files.map(|file| (file.path(), std::fs::read(file.path()).expect("a file"))).collect()
}

/// Starts three nodes of which the last has another value of `flag`: they name it and form nothing.
/// Corrected, they serve.
fn refuse_each_other(flag: &str, value: &str, right: &str, text: &str) {
    let mut nodes = Nodes::prepare("disk");
    set(&mut nodes, 2, flag, value);
    (0..3).for_each(|index| start(&mut nodes, index));
    for index in 0..2 {
        eventually("the setting is named", || refused(&nodes, index, 2).contains(text));
        let admin = nodes.cluster.nodes[index].admin;
        let (code, said) = http_get(admin, "/readyz?verbose").expect("it answers");
        assert_eq!(code, 503, "{said}");
        assert!(said.contains("node 3 refused: database 0"), "{said}");
        eventually("the log names it", || nodes.log(index).contains(text));
        let reply = nodes.ask(index, "SET x 1");
        assert!(matches!(reply, Value::Error(_)), "it served: {reply:?}");
    }
    let admin = nodes.cluster.nodes[0].admin.to_string();
    let table = crate::support::run(&["status", "--address", &admin]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("node 3 is refused") && table.contains(text), "{table}");
    stop(&mut nodes, 2);
    set(&mut nodes, 2, flag, right);
    start(&mut nodes, 2);
    nodes.wait_ready();
    assert_eq!(nodes.ask(2, "SET x 1"), Value::ok());
    assert_eq!(refused(&nodes, 0, 2), "");
}

#[test]
fn node_of_another_protocol_is_refused_by_name() {
    refuse_each_other("--protocol", "abd", "rmwpaxos", "protocol abd there, rmwpaxos here");
}

#[test]
fn node_of_another_durability_is_refused_by_name() {
    refuse_each_other("--durability", "volatile", "disk", "durability volatile there, disk here");
}

#[test]
fn protocol_and_durability_never_change_in_place() {
    let mut nodes = Nodes::start("disk");
    assert_eq!(nodes.ask(0, "SET x 1"), Value::ok());
    stop(&mut nodes, 2);
    let before = contents(nodes.data_dir(2));
    for (flag, value, right, text) in [
        ("--protocol", "abd", "rmwpaxos", "protocol rmwpaxos in this directory, abd asked for"),
        (
            "--durability",
            "volatile",
            "disk",
            "durability disk in this directory, volatile asked for",
        ),
    ] {
        set(&mut nodes, 2, flag, value);
        start(&mut nodes, 2);
        assert_eq!(nodes.wait_exit(2), Some(2), "{}", nodes.log(2));
        let said = nodes.log(2);
        assert!(said.contains("database 0") && said.contains(text), "{said}");
        assert!(contents(nodes.data_dir(2)) == before, "a refused directory was changed");
        set(&mut nodes, 2, flag, right);
    }
    nodes.restart(2);
    assert_eq!(nodes.ask(2, "GET x"), Value::text("1"));
}

#[test]
fn wiped_node_with_other_settings_stays_out() {
    let mut nodes = Nodes::start("disk");
    assert_eq!(nodes.ask(0, "SET x 1"), Value::ok());
    nodes.kill(2);
    std::fs::remove_dir_all(nodes.data_dir(2)).expect("the directory is there");
    set(&mut nodes, 2, "--protocol", "abd");
    start(&mut nodes, 2);
    eventually("the others refuse it", || refused(&nodes, 0, 2).contains("protocol abd there"));
    let text = "protocol rmwpaxos there, abd here";
    eventually("it refuses the others", || refused(&nodes, 2, 0).contains(text));
    assert_eq!(nodes.ask(1, "SET x 2"), Value::ok());
    assert!(matches!(nodes.ask(2, "GET x"), Value::Error(_)), "it is no member");
    stop(&mut nodes, 2);
    set(&mut nodes, 2, "--protocol", "rmwpaxos");
    start(&mut nodes, 2);
    nodes.wait_ready();
    assert_eq!(nodes.ask(2, "GET x"), Value::text("2"));
}

fn limit(nodes: &Nodes, index: usize, name: &str) -> u64 {
    let status = status(nodes, index).unwrap_or_default();
    status["limits"][name]["value"].as_u64().unwrap_or_default()
}

fn set_string(nodes: &Nodes, index: usize, key: &str, len: usize) -> Value {
    nodes.ask(index, &format!("SET {key} {}", "x".repeat(len)))
}

#[test]
fn smallest_limit_counts_until_the_last_node_raised_it() {
    let mut nodes = Nodes::prepare("disk");
    (0..3).for_each(|index| set(&mut nodes, index, "--max-value-size", "2000"));
    set(&mut nodes, 2, "--once-window", "20000");
    nodes.start_all();
    for index in 0..3 {
        eventually("the shortest window counts", || {
            limit(&nodes, index, "once_window_ms") == 20_000
        });
    }
    let of_first = status(&nodes, 0).expect("it answers");
    assert_eq!(of_first["limits"]["once_window_ms"]["set_by"], serde_json::json!([3]));
    for raised in 0..3 {
        stop(&mut nodes, raised);
        set(&mut nodes, raised, "--max-value-size", "4000");
        start(&mut nodes, raised);
        nodes.wait_ready();
        for index in 0..3 {
            assert_eq!(set_string(&nodes, index, "old", 2_000), Value::ok(), "a gap");
        }
        if raised < 2 {
            // With its peers down too, a restarted node knows of their limits.
            let reply = set_string(&nodes, raised, "new", 2_001);
            assert!(matches!(&reply, Value::Error(_)), "{reply:?}");
            let status = status(&nodes, raised).expect("it answers");
            let set_by = &status["limits"]["max_value_size"]["set_by"];
            let smaller: Vec<usize> = (raised + 2..=3).collect();
            assert_eq!(*set_by, serde_json::json!(smaller));
        }
    }
    for index in 0..3 {
        eventually("the limit is raised", || limit(&nodes, index, "max_value_size") == 4_000);
        assert_eq!(set_string(&nodes, index, "new", 4_000), Value::ok());
    }
    lower(&mut nodes);
}

/// A lowered limit counts everywhere, and longer values stay readable and may shrink.
fn lower(nodes: &mut Nodes) {
    stop(nodes, 2);
    set(nodes, 2, "--max-value-size", "1000");
    nodes.restart(2);
    for index in 0..3 {
        eventually("the limit is lowered", || limit(nodes, index, "max_value_size") == 1_000);
        assert_eq!(nodes.ask(index, "STRLEN new"), Value::Integer(4_000));
        assert!(matches!(set_string(nodes, index, "old", 1_001), Value::Error(_)));
        assert!(matches!(nodes.ask(index, "APPEND new y"), Value::Error(_)));
        assert_eq!(nodes.ask(index, "SETRANGE new 0 y"), Value::Integer(4_000));
    }
    // The node with the small limit is down, and its limit still counts after a restart of another.
    nodes.kill(2);
    nodes.kill(0);
    nodes.restart(0);
    assert!(matches!(set_string(nodes, 0, "old", 1_001), Value::Error(_)));
    assert_eq!(set_string(nodes, 0, "new", 1_000), Value::ok());
}

/// A list with a node that does not exist, given to a node before the others run.
#[test]
fn mistyped_list_is_corrected_until_a_cluster_exists() {
    let mut nodes = Nodes::prepare("disk");
    let at = nodes.cluster.nodes[0].arguments.iter().position(|word| word == "--cluster");
    let right = nodes.cluster.nodes[0].arguments[at.expect("it is given") + 1].clone();
    let elsewhere = free_addresses(1).expect("a free port")[0];
    let with_fourth = right.replace(",3=", ",4=");
    let moved = format!("{},9={elsewhere}", right.split(",2=").next().expect("a list"));
    for wrong in [&with_fourth, &moved] {
        set(&mut nodes, 0, "--cluster", wrong);
        set(&mut nodes, 0, "--durability", "volatile");
        start(&mut nodes, 0);
        eventually("it waits for others", || {
            let phase = status(&nodes, 0).unwrap_or_default()["phase"].clone();
            phase.as_str().is_some_and(|phase| phase.starts_with("forming"))
        });
        nodes.kill(0);
    }
    set(&mut nodes, 0, "--cluster", &right);
    set(&mut nodes, 0, "--durability", "disk");
    nodes.start_all();
    assert_eq!(nodes.ask(0, "SET x 1"), Value::ok());
    // Now a cluster exists, and another list is refused.
    stop(&mut nodes, 0);
    set(&mut nodes, 0, "--cluster", &with_fourth);
    start(&mut nodes, 0);
    assert_eq!(nodes.wait_exit(0), Some(2), "{}", nodes.log(0));
    assert!(nodes.log(0).contains("belongs to a cluster of"), "{}", nodes.log(0));
}
