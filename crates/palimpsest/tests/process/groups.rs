//! Groups on some of the nodes, and groups that have lost all their data.

use std::fs;

use bench::client::Value;
use bench::cluster::Config;
use serde_json::Value as Json;

use crate::support::{LIMIT, Nodes, Recorder, config, damage, eventually, exit_of, http_get, run};

fn nodes_with(count: u16, arguments: &[&str], durability: &str) -> Nodes {
    let mut config = Config { nodes: count, durability: durability.to_owned(), ..config() };
    config.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
    Nodes::prepare_with(config)
}

/// The group of a database as node `index` knows it.
fn group(nodes: &Nodes, index: usize, database: usize) -> Option<Json> {
    let (_, body) = http_get(nodes.cluster.nodes[index].admin, "/api/v1/status")?;
    let status: Json = serde_json::from_str(&body).ok()?;
    Some(status["databases"][database]["group"].clone())
}

/// Indexes of the nodes with this role, as node `index` knows them.
fn members(nodes: &Nodes, index: usize, role: &str) -> Vec<usize> {
    let group = group(nodes, index, 0).unwrap_or_default();
    let members = group["members"].as_array().cloned().unwrap_or_default();
    let has = |member: &&Json| member["role"] == role;
    let index = |member: &Json| member["node"].as_u64().map(|id| id as usize - 1);
    members.iter().filter(has).filter_map(index).collect()
}

fn outsiders(nodes: &Nodes, members: &[usize]) -> Vec<usize> {
    (0..nodes.len()).filter(|index| !members.contains(index)).collect()
}

/// Five nodes, three members: an outsider takes writes, replaces a member that is killed, and holds
/// everything after all have been killed.
fn outsider_replaces_a_killed_member(protocol: &'static str) {
    let mut nodes = nodes_with(5, &["--protocol", protocol, "--replicas", "3"], "disk");
    nodes.start_all();
    let first = members(&nodes, 0, "full");
    assert_eq!(first.len(), 3, "{:?}", group(&nodes, 0, 0));
    let outside = outsiders(&nodes, &first);
    for key in 0..100 {
        assert_eq!(nodes.ask(outside[0], &format!("SET kept:{key} {key}")), Value::ok());
    }
    let recorder = Recorder::new(protocol);
    let addresses: Vec<_> = outside.iter().map(|&index| nodes.address(index)).collect();
    recorder.during(&addresses, |recorder| {
        recorder.wait_for_successes(50);
        nodes.kill(first[2]);
        recorder.wait_for_successes(50);
        eventually("an outsider becomes full", || {
            let full = members(&nodes, outside[0], "full");
            full.len() == 3 && !full.contains(&first[2])
        });
        recorder.wait_for_successes(50);
    });
    let second = members(&nodes, outside[0], "full");
    assert!(second.iter().any(|index| outside.contains(index)), "{second:?} after {first:?}");
    nodes.restart(first[2]);
    assert_eq!(members(&nodes, first[2], "full"), second, "the group was complete");
    nodes.kill_all();
    nodes.start_all();
    for index in 0..nodes.len() {
        nodes.wait_for_answer(index, "GET kept:99", &Value::text("99"));
    }
    // Each of the first members goes once, so that in the end only copies are left.
    for index in first {
        nodes.kill(index);
        eventually("the group is complete without it", || {
            let full = members(&nodes, outside[0], "full");
            full.len() == 3 && !full.contains(&index)
        });
        nodes.restart(index);
    }
    for key in 0..100 {
        nodes.wait_for_answer(
            outside[0],
            &format!("GET kept:{key}"),
            &Value::text(&key.to_string()),
        );
    }
    nodes.wait_ready();
    recorder.read_all(&nodes.cluster.addresses());
    recorder.check();
}

#[test]
fn outsider_replaces_a_killed_member_of_hermes() {
    outsider_replaces_a_killed_member("hermes");
}

#[test]
fn outsider_replaces_a_killed_member_of_craq() {
    outsider_replaces_a_killed_member("craq");
}

#[test]
fn more_replicas_than_nodes_are_refused() {
    let mut nodes = nodes_with(3, &["--protocol", "hermes", "--replicas", "5"], "disk");
    nodes.cluster.start_node(0).expect("the program starts");
    assert_eq!(nodes.wait_exit(0), Some(2), "{}", nodes.log(0));
    let log = nodes.log(0);
    assert!(log.contains("5 replicas need as many nodes, and the cluster has 3"), "{log}");
}

#[test]
fn replicas_never_change_in_place() {
    let mut nodes = nodes_with(3, &["--protocol", "hermes"], "disk");
    nodes.start_all();
    nodes.kill(2);
    nodes.cluster.nodes[2].arguments.extend(["--replicas".to_owned(), "3".to_owned()]);
    nodes.cluster.start_node(2).expect("the program starts");
    assert_eq!(nodes.wait_exit(2), Some(2), "{}", nodes.log(2));
    let log = nodes.log(2);
    assert!(log.contains("replicas all in this directory, 3 asked for"), "{log}");
}

/// All nodes of a volatile group end: its data are gone, and it waits for the operator.
#[test]
fn lost_group_begins_anew_by_order() {
    let folder = std::env::temp_dir().join(format!("palimpsest-lost-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("databases.toml");
    let text = "[[database]]\nindex = 1\nprotocol = \"hermes\"\ndurability = \"volatile\"\n";
    fs::write(&file, text).expect("a file");
    let mut nodes = nodes_with(3, &["--config", &file.to_string_lossy()], "disk");
    nodes.start_all();
    let ask = |nodes: &Nodes, line: &str| {
        let mut client = nodes.client(0);
        assert_eq!(client.command("SELECT 1").expect("an answer"), Value::ok());
        client.command(line).expect("an answer")
    };
    assert_eq!(nodes.ask(0, "SET kept 1"), Value::ok());
    assert_eq!(ask(&nodes, "SET gone 1"), Value::ok());
    let address = nodes.cluster.nodes[0].admin.to_string();
    let order = |words: &[&str]| {
        let first = ["group", "--address", &address, "--database"];
        exit_of(&[&first[..], words].concat())
    };
    let epoch = |nodes: &Nodes| group(nodes, 0, 1).unwrap_or_default()["epoch"].to_string();
    let empty =
        |epoch: &str| order(&["1", "--epoch", epoch, "--empty", "--confirm", "erase-everything"]);
    let (code, said) = order(&["0"]);
    assert!(code == Some(2) && said.contains("database 0 has no group"), "{said}");
    let (code, said) = empty(&epoch(&nodes));
    assert!(code == Some(1) && said.contains("a full member is reachable"), "{said}");

    nodes.kill_all();
    for index in 0..3 {
        nodes.cluster.start_node(index).expect("the program starts");
    }
    let state = |nodes: &Nodes| group(nodes, 0, 1).unwrap_or_default()["state"].clone();
    eventually("the loss is noticed", || state(&nodes) == "lost");
    nodes.wait_for_answer(0, "GET kept", &Value::text("1"));
    let output = run(&["status", "--address", &address]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("warning: database 1: no full member of epoch"), "{said}");
    let lost = epoch(&nodes);
    let (code, said) = order(&["1", "--epoch", &lost, "--empty"]);
    assert!(code == Some(2) && said.contains("add --confirm erase-everything"), "{said}");
    let keep = ["1", "--epoch", &lost, "--keep", "1", "--confirm", "lose-later-writes"];
    let (code, said) = order(&keep);
    assert!(code == Some(2) && said.contains("only --empty is left"), "{said}");
    let (code, said) = empty("999");
    assert!(code == Some(2) && said.contains("is not the last active one"), "{said}");
    let (code, said) = empty(&lost);
    assert_eq!(code, Some(0), "{said}");
    nodes.wait_ready();
    assert_eq!(state(&nodes), "active");
    assert_eq!(ask(&nodes, "GET gone"), Value::Nil);
    assert_eq!(ask(&nodes, "SET new 1"), Value::ok());
    assert_eq!(nodes.ask(0, "GET kept"), Value::text("1"), "another database");
    fs::remove_dir_all(&folder).expect("the folder is there");
}

/// The stored copies of all members are damaged in one large value, which other databases survive.
/// The rest is kept for the operator, and the keys that are whole in it live on at all nodes.
fn damaged_last_copy_is_kept_by_order(protocol: &str) {
    let mut nodes = nodes_with(3, &["--protocol", protocol], "disk");
    nodes.start_all();
    for key in 0..50 {
        assert_eq!(nodes.ask(0, &format!("SET whole:{key} {key}")), Value::ok());
    }
    let large = "damage:".repeat(50_000);
    assert_eq!(nodes.ask(0, &format!("SET broken {large}")), Value::ok());
    for index in 0..nodes.len() {
        assert_eq!(nodes.process(index).stop(LIMIT), Some(0));
        assert!(damage(nodes.data_dir(index), "damage:") > 0, "the value is not stored");
    }
    for index in 0..nodes.len() {
        nodes.cluster.start_node(index).expect("the program starts");
    }
    let state = |nodes: &Nodes| group(nodes, 0, 0).unwrap_or_default()["state"].clone();
    eventually("the loss is noticed at all", || {
        for index in 0..nodes.len() {
            let reply = bench::client::ask_once(nodes.address(index), "GET broken", LIMIT);
            let is_error = matches!(reply, None | Some(Value::Error(_)));
            assert!(is_error, "{protocol} answers {reply:?} at node {index}");
        }
        state(&nodes) == "lost"
    });
    let address = nodes.cluster.nodes[0].admin.to_string();
    let mut kept = None;
    eventually("a rest is offered", || {
        let output = run(&["group", "--address", &address, "--database", "0"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let rest = said.lines().find(|line| line.contains(", partial"));
        let node = rest.and_then(|line| line.strip_prefix("node ")?.split(':').next());
        kept = node.map(str::to_owned);
        kept.is_some()
    });
    let kept = kept.expect("it was offered");
    let epoch = group(&nodes, 0, 0).unwrap_or_default()["epoch"].to_string();
    let first = ["group", "--address", &address, "--database", "0", "--epoch", &epoch];
    let (code, said) =
        exit_of(&[&first[..], &["--keep", &kept, "--confirm", "lose-missing-keys"]].concat());
    assert_eq!(code, Some(0), "{said}");
    nodes.wait_ready();
    for index in 0..nodes.len() {
        nodes.wait_for_answer(index, "GET broken", &Value::Nil);
        for key in 0..50 {
            let expected = Value::text(&key.to_string());
            nodes.wait_for_answer(index, &format!("GET whole:{key}"), &expected);
        }
    }
    assert_eq!(nodes.ask(1, "SET broken mended"), Value::ok());
    nodes.kill_all();
    nodes.start_all();
    nodes.wait_for_answer(2, "GET broken", &Value::text("mended"));
    nodes.wait_for_answer(0, "GET whole:49", &Value::text("49"));
}

#[test]
fn damaged_last_copy_of_hermes_is_kept_by_order() {
    damaged_last_copy_is_kept_by_order("hermes");
}

#[test]
fn damaged_last_copy_of_craq_is_kept_by_order() {
    damaged_last_copy_is_kept_by_order("craq");
}
