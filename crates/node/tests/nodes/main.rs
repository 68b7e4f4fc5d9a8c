//! Real nodes with threads and sockets, in this process, driven by a toy language.

mod bursts;
mod levels;
mod pipelines;
mod rejoining;
mod slow_peer;
mod system;
mod toy;
mod worker_counts;

use std::io::Write;
use std::sync::Arc;

use node::config::Durability;
use node::dev::LocalCluster;
use node::node::{Node, StartError};
use node::status::Phase;
use toy::{Caller, PATIENCE, Scratch, Toy, config, free_addresses, update};

fn start(scratch: &Scratch, id: u16, peers: &[String], durability: Durability) -> Node {
    Node::start(config(scratch, id, peers, durability), Arc::new(Toy), update()).expect("it starts")
}

fn cluster(scratch: &Scratch, durability: Durability) -> LocalCluster {
    let names: Vec<String> = ["a:1", "b:1", "c:1"].map(String::from).to_vec();
    let configs = (1..=3).map(|id| config(scratch, id, &names, durability)).collect();
    let cluster = LocalCluster::start(configs, |_| Arc::new(Toy), &update()).expect("it starts");
    assert!(cluster.wait_ready(PATIENCE), "{:#?}", cluster.nodes()[0].status());
    cluster
}

fn caller(node: &Node) -> Caller {
    Caller::new(node.status().listen)
}

#[test]
fn three_nodes_over_tcp_form_and_agree() {
    let (scratch, peers) = (Scratch::new(), free_addresses(3));
    let nodes: Vec<Node> =
        (1..=3).map(|id| start(&scratch, id, &peers, Durability::Volatile)).collect();
    for node in &nodes {
        assert!(node.wait_until(PATIENCE, |status| status.ready), "{:#?}", node.status());
    }
    assert_eq!(caller(&nodes[0]).call("set x 1"), "ok");
    assert_eq!(caller(&nodes[1]).call("add x 2"), "3");
    assert_eq!(caller(&nodes[2]).call("get x"), "3");
    let clusters: Vec<_> = nodes.iter().map(|node| node.status().cluster).collect();
    assert!(clusters[0].is_some() && clusters.iter().all(|one| *one == clusters[0]));
    for node in &nodes {
        node.stop();
        assert_eq!(node.join(), Ok(()));
    }
}

#[test]
fn a_pipeline_longer_than_its_bound_is_answered_in_order() {
    let scratch = Scratch::new();
    let cluster = cluster(&scratch, Durability::Volatile);
    let mut caller = caller(&cluster.nodes()[0]);
    let count = 5_000;
    let lines: String = (0..count).map(|n| format!("set k{} {n}\n", n % 50)).collect();
    caller.send(&lines);
    caller.send("get k49\nquit\n");
    for n in 0..count {
        assert_eq!(caller.line(), "ok", "reply {n}");
    }
    assert_eq!(caller.line(), (count - 1).to_string());
    assert_eq!(caller.line(), "", "the session asked to be closed");
    assert_eq!(cluster.stop(), Ok(()));
}

#[test]
fn a_value_larger_than_every_buffer_comes_back_whole() {
    let scratch = Scratch::new();
    let cluster = cluster(&scratch, Durability::Volatile);
    let value = "v".repeat(900_000);
    assert_eq!(caller(&cluster.nodes()[0]).call(&format!("set big {value}")), "ok");
    assert_eq!(caller(&cluster.nodes()[1]).call("get big"), value);
    assert_eq!(cluster.stop(), Ok(()));
}

#[test]
fn the_others_go_on_without_a_node_and_it_recovers_when_it_comes_back() {
    let scratch = Scratch::new();
    let mut cluster = cluster(&scratch, Durability::Volatile);
    assert_eq!(caller(&cluster.nodes()[0]).call("set x 1"), "ok");
    cluster.nodes()[2].stop();
    assert_eq!(cluster.nodes()[2].join(), Ok(()));
    assert_eq!(caller(&cluster.nodes()[1]).settle("set y 2"), "ok");
    let again = cluster.nodes()[2].facts().config().as_ref().clone();
    let amnesia = cluster.nodes()[2].status().amnesia;
    cluster.restart(2, again, |_| Arc::new(Toy), &update()).expect("it starts again");
    assert!(cluster.wait_ready(PATIENCE), "{:#?}", cluster.nodes()[2].status());
    assert!(cluster.nodes()[2].status().amnesia > amnesia, "memory was lost, and said to be");
    assert_eq!(caller(&cluster.nodes()[2]).settle("get x"), "1");
    assert_eq!(caller(&cluster.nodes()[2]).settle("get y"), "2");
    assert_eq!(cluster.stop(), Ok(()));
}

#[test]
fn volatile_nodes_that_all_restart_at_once_stay_loading() {
    let scratch = Scratch::new();
    let mut cluster = cluster(&scratch, Durability::Volatile);
    assert_eq!(caller(&cluster.nodes()[0]).call("set x 1"), "ok");
    assert_eq!(cluster.stop(), Ok(()));
    for at in 0..3 {
        let again = cluster.nodes()[at].facts().config().as_ref().clone();
        cluster.restart(at, again, |_| Arc::new(Toy), &update()).expect("it starts again");
    }
    for node in cluster.nodes() {
        let is_linked = |status: &node::status::NodeStatus| status.members.iter().all(|m| m.up);
        assert!(node.wait_until(PATIENCE, is_linked), "{:#?}", node.status());
        assert!(!node.status().ready);
    }
    let answer = caller(&cluster.nodes()[0]).call("get x");
    assert!(["Loading", "NoQuorum", "Unknown"].contains(&answer.as_str()), "{answer}");
    assert_eq!(cluster.stop(), Ok(()));
}

/// The durabilities that outlive a process.
const DURABLE: [Durability; 2] = [Durability::Pmem, Durability::Disk];

#[test]
fn a_cluster_of_one_serves_and_restarts() {
    DURABLE.into_iter().for_each(serve_and_restart_alone);
}

fn serve_and_restart_alone(durability: Durability) {
    let (scratch, peers) = (Scratch::new(), free_addresses(1));
    for (call, expected) in [("add x 1", "1"), ("add x 1", "2"), ("get x", "2")] {
        let node = start(&scratch, 1, &peers, durability);
        assert!(node.wait_until(PATIENCE, |status| status.ready), "{:#?}", node.status());
        assert_eq!(caller(&node).call(call), expected);
        node.stop();
        assert_eq!(node.join(), Ok(()));
    }
}

#[test]
fn durable_nodes_that_all_restart_at_once_have_everything() {
    DURABLE.into_iter().for_each(restart_all);
}

fn restart_all(durability: Durability) {
    let scratch = Scratch::new();
    let mut cluster = cluster(&scratch, durability);
    for n in 0..200 {
        assert_eq!(caller(&cluster.nodes()[n % 3]).settle(&format!("set k{n} {n}")), "ok");
    }
    assert_eq!(cluster.stop(), Ok(()));
    for at in 0..3 {
        let again = cluster.nodes()[at].facts().config().as_ref().clone();
        cluster.restart(at, again, |_| Arc::new(Toy), &update()).expect("it starts again");
    }
    assert!(cluster.wait_ready(PATIENCE), "{:#?}", cluster.nodes()[0].status());
    for n in 0..200 {
        assert_eq!(caller(&cluster.nodes()[n % 3]).settle(&format!("get k{n}")), n.to_string());
    }
    assert_eq!(cluster.stop(), Ok(()));
}

#[test]
fn a_wiped_node_rejoins_with_counters_above_its_former_self() {
    for durability in DURABLE {
        let amnesia = lose_and_rejoin(durability, |directory| {
            std::fs::remove_dir_all(directory).expect("the directory can be wiped");
        });
        assert!(amnesia >= node::formation::JUMP, "{durability}: {amnesia}");
    }
}

#[test]
fn a_node_whose_store_is_gone_rejoins() {
    for durability in DURABLE {
        let amnesia = lose_and_rejoin(durability, |directory| {
            for entry in std::fs::read_dir(directory).expect("it is there") {
                let path = entry.expect("it can be read").path();
                if !path.ends_with("node") {
                    std::fs::remove_file(path).expect("it can be removed");
                }
            }
        });
        assert!(amnesia > 0, "{durability}: {amnesia}");
    }
}

/// Lets node 2 forget; returns its amnesia count once it is back and has everything.
fn lose_and_rejoin(durability: Durability, forget: impl Fn(&std::path::Path)) -> u32 {
    let scratch = Scratch::new();
    let mut cluster = cluster(&scratch, durability);
    assert_eq!(caller(&cluster.nodes()[0]).settle("set x 1"), "ok");
    let again = cluster.nodes()[1].facts().config().as_ref().clone();
    cluster.nodes()[1].stop();
    assert_eq!(cluster.nodes()[1].join(), Ok(()));
    forget(&again.data_dir);
    cluster.restart(1, again, |_| Arc::new(Toy), &update()).expect("it starts again");
    assert!(cluster.wait_ready(PATIENCE), "{:#?}", cluster.nodes()[1].status());
    cluster.nodes()[0].stop();
    assert_eq!(cluster.nodes()[0].join(), Ok(()));
    assert_eq!(caller(&cluster.nodes()[1]).settle("get x"), "1");
    let amnesia = cluster.nodes()[1].status().amnesia;
    assert_eq!(cluster.stop(), Ok(()));
    amnesia.0
}

#[test]
fn nodes_may_run_different_numbers_of_workers() {
    let scratch = Scratch::new();
    let names: Vec<String> = ["a:1", "b:1", "c:1"].map(String::from).to_vec();
    let configs = (1..=3).map(|id| {
        let config = config(&scratch, id, &names, Durability::Volatile);
        node::config::NodeConfig { workers: usize::from(id), ..config }
    });
    let cluster = LocalCluster::start(configs.collect(), |_| Arc::new(Toy), &update());
    let cluster = cluster.expect("it starts");
    assert!(cluster.wait_ready(PATIENCE), "{:#?}", cluster.nodes()[0].status());
    for n in 0..60 {
        for (at, node) in cluster.nodes().iter().enumerate() {
            // Several clients, so that every worker has sessions.
            let sum = (at + 1).to_string();
            assert_eq!(caller(node).settle(&format!("add k{n} 1")), sum, "k{n} on node {at}");
        }
    }
    let passes_on = |status: &node::status::NodeStatus| {
        status.stats.values.get("worker_messages_misrouted").is_some_and(|&count| count > 0)
    };
    // The first node has one worker, so the third must hand parts of its frames on.
    assert!(cluster.nodes()[2].wait_until(PATIENCE, passes_on));
    assert_eq!(cluster.stop(), Ok(()));
}

#[test]
fn a_frame_goes_to_the_worker_whose_shards_it_is_about() {
    let scratch = Scratch::new();
    let names: Vec<String> = ["a:1", "b:1", "c:1"].map(String::from).to_vec();
    let configs = (1..=3).map(|id| node::config::NodeConfig {
        workers: 2,
        ..config(&scratch, id, &names, Durability::Volatile)
    });
    let cluster = LocalCluster::start(configs.collect(), |_| Arc::new(Toy), &update());
    let cluster = cluster.expect("it starts");
    assert!(cluster.wait_ready(PATIENCE), "{:#?}", cluster.nodes()[0].status());
    for n in 0..60 {
        for (at, node) in cluster.nodes().iter().enumerate() {
            assert_eq!(caller(node).settle(&format!("add k{n} 1")), (at + 1).to_string());
        }
    }
    for node in cluster.nodes() {
        let count = |status: &node::status::NodeStatus, what: &str| {
            status.stats.values.get(what).copied().unwrap_or_default()
        };
        // Published every now and then.
        assert!(node.wait_until(PATIENCE, |status| count(status, "worker_messages_in") > 60));
        assert_eq!(count(&node.status(), "worker_messages_misrouted"), 0);
    }
    assert_eq!(cluster.stop(), Ok(()));
}

#[test]
fn a_panic_stops_the_node_and_is_told() {
    let (scratch, peers) = (Scratch::new(), free_addresses(1));
    let node = start(&scratch, 1, &peers, Durability::Volatile);
    assert!(node.wait_until(PATIENCE, |status| status.ready));
    let mut caller = caller(&node);
    caller.send("panic\n");
    assert_eq!(caller.line(), "", "the connection ends");
    let failure = node.join().expect_err("it has failed");
    assert!(failure.contains("a session that panics"), "{failure}");
}

#[test]
fn clients_beyond_the_limit_are_told_so() {
    let (scratch, peers) = (Scratch::new(), free_addresses(1));
    let config = node::config::NodeConfig {
        clients_max: 2,
        clients_accepted: usize::MAX,
        ..config(&scratch, 1, &peers, Durability::Volatile)
    };
    let node = Node::start(config, Arc::new(Toy), update()).expect("it starts");
    assert!(node.wait_until(PATIENCE, |status| status.ready));
    let mut served = [caller(&node), caller(&node)];
    for (n, one) in served.iter_mut().enumerate() {
        assert_eq!(one.call(&format!("add x{n} 1")), "1");
    }
    assert_eq!(caller(&node).line(), "too many");
    drop(served);
    assert!(node.wait_until(PATIENCE, |status| status.clients == 0));
    assert_eq!(caller(&node).call("get x1"), "1");
}

#[test]
fn without_all_members_nothing_forms_and_clients_are_told() {
    let (scratch, peers) = (Scratch::new(), free_addresses(3));
    let node = start(&scratch, 1, &peers, Durability::Volatile);
    assert_eq!(caller(&node).call("get x"), "Loading");
    let status = node.status();
    let Phase::Forming { waiting_for } = status.phase else { panic!("{status:#?}") };
    assert_eq!(waiting_for.len(), 2);
    assert!(!status.ready);
}

#[test]
fn bad_starts_are_refused_with_a_word() {
    let (scratch, peers) = (Scratch::new(), free_addresses(1));
    let good = || config(&scratch, 1, &peers, Durability::Volatile);
    let refused = |config| match Node::start(config, Arc::new(Toy), update()) {
        Err(error) => error,
        Ok(_) => panic!("it must not start"),
    };
    let mut no_list = good();
    no_list.members.clear();
    assert!(refused(no_list).to_string().contains("--cluster is required"));
    let mut unknown = good();
    unknown.databases[0].protocol = "raft";
    assert!(refused(unknown).to_string().contains("rmwpaxos"));

    let node = start(&scratch, 1, &peers, Durability::Volatile);
    assert!(matches!(refused(good()), StartError::Directory(_)), "it is in use");
    let mut elsewhere = good();
    elsewhere.data_dir = scratch.path().join("other");
    elsewhere.peer_listen = "127.0.0.1:0".into();
    elsewhere.listen = node.status().listen.to_string();
    assert!(matches!(refused(elsewhere), StartError::Listen { .. }));
    node.stop();
    assert_eq!(node.join(), Ok(()));

    let mut other = good();
    other.id = types::NodeId(2);
    other.members[0].node = types::NodeId(2);
    assert!(matches!(refused(other), StartError::Directory(_)), "it belongs to node 1");
}

#[test]
fn bad_bytes_on_the_peer_port_do_no_harm() {
    let (scratch, peers) = (Scratch::new(), free_addresses(1));
    let node = start(&scratch, 1, &peers, Durability::Volatile);
    assert!(node.wait_until(PATIENCE, |status| status.ready));
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 10_000], b"PZ\x01\x01\xff\xff\xff\xff"] {
        let mut stream = std::net::TcpStream::connect(&peers[0]).expect("it listens");
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stream, &mut rest);
    }
    assert_eq!(caller(&node).call("set x 1"), "ok");
}

#[test]
fn another_secret_keeps_a_node_out() {
    let (scratch, peers) = (Scratch::new(), free_addresses(2));
    let one = start(&scratch, 1, &peers, Durability::Volatile);
    let mut config = config(&scratch, 2, &peers, Durability::Volatile);
    config.secret = Some(b"other".to_vec());
    let two = Node::start(config, Arc::new(Toy), update()).expect("it starts");
    let refused = |status: &node::status::NodeStatus| {
        status.stats.values.get("handshakes_refused").is_some_and(|&count| count >= 2)
    };
    assert!(one.wait_until(PATIENCE, refused) && two.wait_until(PATIENCE, refused));
    assert!(!one.status().ready && !two.status().ready);
}
