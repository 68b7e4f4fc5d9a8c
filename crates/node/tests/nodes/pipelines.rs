//! More requests at once than a turn takes in.

use std::sync::Arc;

use node::config::{Durability, NodeConfig};
use node::dev::LocalCluster;

use crate::toy::{Caller, PATIENCE, Scratch, Toy, config, update};

/// Requests that wait for their turn count as in flight. Otherwise answers of peers would queue
/// behind all pipelined requests and arrive too late.
#[test]
fn long_pipelines_of_many_clients_are_served() {
    const LINES: usize = 1_000;
    let scratch = Scratch::new();
    let names: Vec<String> = ["a:1", "b:1", "c:1"].map(String::from).to_vec();
    let configs = (1..=3)
        .map(|id| NodeConfig { workers: 1, ..config(&scratch, id, &names, Durability::Volatile) });
    let cluster = LocalCluster::start(configs.collect(), |_| Arc::new(Toy), &update());
    let cluster = cluster.expect("it starts");
    assert!(cluster.wait_ready(PATIENCE), "{:#?}", cluster.nodes()[0].status());
    let address = cluster.nodes()[0].status().listen;
    let clients: Vec<_> = (0..90)
        .map(|client| {
            std::thread::spawn(move || {
                let mut caller = Caller::new(address);
                let lines: String = (0..LINES).map(|n| format!("add {client}x{n} 1\n")).collect();
                caller.send(&lines);
                (0..LINES).filter(|_| caller.line() != "1").count()
            })
        })
        .collect();
    let failed: usize = clients.into_iter().map(|it| it.join().expect("it is answered")).sum();
    // A machine that does other things may be too slow for some.
    assert!(failed < 90 * LINES / 4, "{failed} of {} failed", 90 * LINES);
    assert_eq!(cluster.stop(), Ok(()));
}
