//! Messages about a key from a peer with another number of workers arrive in the order of sending.

use std::sync::Arc;

use node::config::{Durability, NodeConfig};
use node::dev::LocalCluster;
use node::status::NodeStatus;

use crate::toy::{Caller, PATIENCE, Scratch, Toy, config, update};

/// A delta needs the state before it, so an overtaking message shows as a request for a whole
/// state.
#[test]
fn frames_of_a_peer_with_fewer_workers_keep_their_order_on_each_key() {
    let scratch = Scratch::new();
    let names: Vec<String> = ["a:1", "b:1", "c:1"].map(String::from).to_vec();
    let configs = (1..=3).map(|id| NodeConfig {
        workers: if id == 1 { 1 } else { 4 },
        ..config(&scratch, id, &names, Durability::Volatile)
    });
    let cluster = LocalCluster::start(configs.collect(), |_| Arc::new(Toy), &update());
    let cluster = cluster.expect("it starts");
    assert!(cluster.wait_ready(PATIENCE), "{:#?}", cluster.nodes()[0].status());
    let count = |status: &NodeStatus, what: &str| {
        status.stats.values.get(what).copied().unwrap_or_default()
    };
    let address = cluster.nodes()[0].status().listen;
    let fill = "v".repeat(3_000);
    let clients: Vec<_> = (0..16)
        .map(|client| {
            let fill = fill.clone();
            std::thread::spawn(move || {
                let mut caller = Caller::new(address);
                for n in 0..1_500 {
                    let lines: String = (0..16)
                        .map(|k| format!("set k{} {fill}{n:05}\n", (client * 4 + k) % 64))
                        .collect();
                    caller.send(&lines);
                    (0..16).for_each(|_| assert_eq!(caller.line(), "ok"));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("it is answered"));
    let first = &cluster.nodes()[0];
    assert!(first.wait_until(PATIENCE, |status| count(status, "rmw_deltas") > 10_000));
    assert_eq!(count(&first.status(), "link_resets"), 0);
    assert_eq!(count(&first.status(), "rmw_needed_full"), 0, "{:#?}", first.status().stats);
    assert_eq!(cluster.stop(), Ok(()));
}
