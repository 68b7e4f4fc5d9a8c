//! More to say to a peer in one turn than may wait for it.

use std::sync::Arc;

use node::config::{Durability, NodeConfig};
use node::dev::LocalCluster;
use node::status::NodeStatus;

use crate::toy::{Caller, PATIENCE, Scratch, Toy, config, update};

/// Close to a hundred clients write a megabyte each at the same moment. The peers are healthy.
#[test]
fn a_burst_that_is_longer_than_a_links_buffer_is_served() {
    let scratch = Scratch::new();
    let names: Vec<String> = ["a:1", "b:1", "c:1"].map(String::from).to_vec();
    let configs = (1..=3).map(|id| NodeConfig {
        workers: 1,
        cache_memory: 1 << 30,
        request_timeout: base::Millis(15_000),
        ..config(&scratch, id, &names, Durability::Volatile)
    });
    let cluster = LocalCluster::start(configs.collect(), |_| Arc::new(Toy), &update());
    let cluster = cluster.expect("it starts");
    assert!(cluster.wait_ready(PATIENCE), "{:#?}", cluster.nodes()[0].status());
    let node = &cluster.nodes()[0];
    let mut callers: Vec<Caller> = (0..98).map(|_| Caller::new(node.status().listen)).collect();
    let value = "v".repeat(1_000_000);
    for (n, caller) in callers.iter_mut().enumerate() {
        caller.send(&format!("set k{n} {value}"));
    }
    let read = |status: &NodeStatus| status.stats.values.get("client_bytes_in").copied();
    assert!(node.wait_until(PATIENCE, |status| read(status) >= Some(98_000_000)));
    callers.iter_mut().for_each(|caller| caller.send("\n"));
    let answers: Vec<String> = callers.iter_mut().map(Caller::line).collect();
    let failed = answers.iter().filter(|answer| *answer != "ok").count();
    let resets = node.status().stats.values.get("link_resets").copied().unwrap_or_default();
    assert_eq!(failed, 0, "of the writes, and {resets} links ended");
    // Without optimisation a turn with all of them may be longer than peers have patience; then it
    // is over.
    assert!(resets < 16, "{resets} links ended");
    assert_eq!(cluster.stop(), Ok(()));
}
