//! `palimpsest status`: the whole cluster from any node's address.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use bench::client::{Client, Value};
use bench::process::{Process, ScratchDir, free_addresses};
use serde_json::Value as Json;

use crate::support::{LIMIT, Nodes, eventually, exit_of, run};

/// The object of `status --json` asked of node `index`, and the exit code.
fn view(nodes: &Nodes, index: usize) -> (Option<i32>, Json) {
    let admin = nodes.cluster.nodes[index].admin.to_string();
    let output = run(&["status", "--json", "--address", &admin]);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or(Json::Null))
}

fn table(nodes: &Nodes, index: usize) -> String {
    let admin = nodes.cluster.nodes[index].admin.to_string();
    let output = run(&["status", "--address", &admin]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn states(view: &Json) -> Vec<String> {
    let nodes = view["nodes"].as_array().cloned().unwrap_or_default();
    nodes.iter().map(|node| node["state"].as_str().unwrap_or("?").to_owned()).collect()
}

#[test]
fn each_node_shows_all_and_a_killed_one_as_down() {
    let mut nodes = Nodes::start("disk");
    for index in 0..3 {
        eventually("each node shows three ready nodes", || {
            let (code, view) = view(&nodes, index);
            code == Some(0)
                && states(&view) == ["ready"; 3]
                && view["tolerates"] == 1
                && view["warnings"] == serde_json::json!([])
                && view["nodes"][(index + 1) % 3]["round_trip_us"].is_u64()
        });
    }
    let (_, whole) = view(&nodes, 0);
    for (index, node) in whole["nodes"].as_array().expect("a list").iter().enumerate() {
        assert_eq!(node["node"], index as u64 + 1);
        assert_eq!(node["address"], nodes.address(index).to_string());
        assert_eq!(node["admin"], nodes.cluster.nodes[index].admin.to_string());
        assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(node["writes"], "ok");
        for number in
            ["uptime_ms", "disk_free_bytes", "disk_total_bytes", "memory_bytes", "clients"]
        {
            assert!(node[number].is_u64(), "{number} of {node}");
        }
    }
    nodes.kill(1);
    for index in [0, 2] {
        eventually("the killed node is down", || {
            let (code, view) = view(&nodes, index);
            code == Some(0) && states(&view) == ["ready", "down", "ready"] && view["tolerates"] == 0
        });
        let (_, view) = view(&nodes, index);
        let dead = &view["nodes"][1];
        assert!(dead["last_seen"].is_string() && dead["last_seen_ms_ago"].is_u64(), "{dead}");
        assert_eq!(dead["version"], env!("CARGO_PKG_VERSION"), "as it was heard last");
        let text = table(&nodes, index);
        assert!(text.contains("down (") && text.contains("warning: node 2 is down"), "{text}");
        assert_eq!(
            text.lines().last(),
            Some("2 of 3 nodes are ready, 2 are needed: no more failures are tolerated")
        );
    }
    nodes.restart(1);
    eventually("the restarted node is shown as ready", || {
        states(&view(&nodes, 0).1) == ["ready"; 3]
    });
    nodes.kill(1);
    nodes.kill(2);
    eventually("status fails without a quorum", || view(&nodes, 0).0 == Some(1));
    let admin = nodes.cluster.nodes[0].admin.to_string();
    let (_, said) = exit_of(&["status", "--address", &admin]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("no quorum serves: "), "{said}");
    nodes.kill(0);
    let (code, said) = exit_of(&["status", "--address", &admin]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no node answers at") && said.lines().count() == 1, "{said}");
}

#[test]
fn advertised_addresses_are_shown_by_all() {
    let mut nodes = Nodes::prepare("volatile");
    nodes.cluster.nodes[2].arguments.extend(["--advertise".into(), "store.example:7000".into()]);
    nodes.start_all();
    eventually("node 1 shows the advertised address of node 3", || {
        view(&nodes, 0).1["nodes"][2]["address"] == "store.example:7000"
    });
}

#[test]
fn watch_repeats_the_table_until_a_signal() {
    let nodes = Nodes::start("volatile");
    eventually("status shows a quorum", || view(&nodes, 0).0 == Some(0));
    let admin = nodes.cluster.nodes[0].admin.to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_palimpsest"));
    command.args(["status", "--address", &admin, "--watch", "100ms"]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let headers = lines.map_while(Result::ok).filter(|line| line.starts_with("ID "));
    assert_eq!(headers.take(3).count(), 3);
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.expect("there is a kill").success());
    // Its reader has gone: it ends by the signal, or because its output is lost.
    assert!(child.wait().expect("it was started").code().is_some());
}

#[test]
fn dev_takes_ports_for_http_and_between_nodes() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "dev-ports").expect("a folder");
    let free: Vec<u16> = free_addresses(3).expect("free ports").iter().map(|a| a.port()).collect();
    let [port, admin, peer] = free[..] else { unreachable!("it gives three") };
    let mut command = Command::new(env!("CARGO_BIN_EXE_palimpsest"));
    command.args(["dev", "--nodes", "1", "--durability", "volatile"]).current_dir(scratch.path());
    for (flag, port) in [("--port", port), ("--admin-port", admin), ("--peer-port", peer)] {
        command.args([flag, &port.to_string()]);
    }
    let mut dev = Process::start(&mut command, &scratch.path().join("log")).expect("it starts");
    eventually("dev says ready", || {
        assert!(dev.is_running(), "dev ended: {}", dev.log_tail());
        dev.log_tail().lines().any(|line| line == "ready")
    });
    let mut client = Client::connect(([127, 0, 0, 1], port).into(), LIMIT).expect("it listens");
    assert_eq!(client.command("SET x 1").expect("an answer"), Value::ok());
    assert!(std::net::TcpStream::connect(("127.0.0.1", peer)).is_ok());
    let address = format!("127.0.0.1:{admin}");
    eventually("status shows the node", || {
        run(&["status", "--address", &address]).status.code() == Some(0)
    });
    assert_eq!(dev.stop(LIMIT), Some(0), "{}", dev.log_tail());
}
