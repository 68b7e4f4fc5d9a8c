//! Replies without a quorum, and their guarantees.

use bench::client::Value;

use crate::support::{LIMIT, Nodes, http_get};

#[test]
fn lone_node_says_so_in_time_and_a_refused_write_has_no_effect() {
    let mut nodes = Nodes::start("disk");
    assert_eq!(nodes.ask(0, "SET x before"), Value::ok());
    nodes.kill(1);
    nodes.kill(2);
    let asked = std::time::Instant::now();
    let write = nodes.ask(0, "SET x after");
    let read = nodes.ask(0, "GET x");
    // Two commands at 1.5 s each, below the time-out of client libraries; the rest is for a slow
    // machine.
    assert!(asked.elapsed() < LIMIT / 2, "two answers took {:?}", asked.elapsed());
    let promised = write.is_error("UNKNOWN") || write.is_error("CLUSTERDOWN");
    assert!(promised, "without a quorum a write was answered {write:?}");
    assert!(matches!(read, Value::Error(_)), "without a quorum a read was answered {read:?}");
    nodes.restart(1);
    nodes.restart(2);
    let value = nodes.ask(1, "GET x");
    let old = value == Value::text("before");
    let new = value == Value::text("after") && write.is_error("UNKNOWN");
    assert!(old || new, "after {write:?} the value is {value:?}");
}

#[test]
fn readyz_follows_the_quorum_and_livez_does_not() {
    let mut nodes = Nodes::start("volatile");
    let admin = nodes.cluster.nodes[0].admin;
    let status = |path: &str| http_get(admin, path).map(|(status, _)| status);
    crate::support::eventually("readyz says 200", || status("/readyz") == Some(200));
    assert_eq!(status("/livez"), Some(200));
    nodes.kill(1);
    nodes.kill(2);
    crate::support::eventually("readyz says 503", || status("/readyz") == Some(503));
    assert_eq!(status("/livez"), Some(200));
}

#[test]
fn survivor_among_nodes_that_forgot_is_not_ready() {
    let mut nodes = Nodes::start("volatile");
    assert_eq!(nodes.ask(0, "SET x 1"), Value::ok());
    nodes.kill(1);
    nodes.kill(2);
    nodes.cluster.start_node(1).expect("the program starts");
    nodes.cluster.start_node(2).expect("the program starts");
    let admin = nodes.cluster.nodes[0].admin;
    crate::support::eventually("all members are up, and yet none of them serves", || {
        let (_, status) = http_get(admin, "/api/v1/status").expect("an answer");
        let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
        let members = status["members"].as_array().expect("a list of members");
        members.iter().all(|member| member["up"] == true) && status["ready"] == false
    });
    assert_eq!(http_get(admin, "/readyz").map(|(code, _)| code), Some(503));
    assert!(matches!(nodes.ask(0, "GET x"), Value::Error(_)));
}

#[test]
fn volatile_cluster_that_lost_a_majority_loads_until_it_is_reset() {
    let mut nodes = Nodes::start("volatile");
    assert_eq!(nodes.ask(0, "SET x 1"), Value::ok());
    nodes.kill_all();
    for index in 0..nodes.len() {
        nodes.cluster.start_node(index).expect("the program starts");
    }
    for index in 0..nodes.len() {
        crate::support::eventually("the node says LOADING", || {
            let reply = bench::client::ask_once(nodes.address(index), "GET x", LIMIT);
            assert!(
                reply != Some(Value::Nil),
                "a value that was acknowledged is said to be absent"
            );
            reply.is_some_and(|reply| reply.is_error("LOADING"))
        });
    }
    nodes.kill_all();
    for index in 0..nodes.len() {
        let dir = nodes.data_dir(index).display().to_string();
        let id = (index + 1).to_string();
        let arguments = ["reset", "--yes", "--id", &id, "--data-dir", &dir];
        let (code, said) = crate::support::exit_of(&arguments);
        assert_eq!(code, Some(0), "{said}");
    }
    nodes.start_all();
    assert_eq!(nodes.ask(1, "GET x"), Value::Nil);
    assert_eq!(nodes.ask(1, "SET x 2"), Value::ok());
}
