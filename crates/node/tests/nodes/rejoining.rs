//! A node that lost its directory and was started with a list that has a mistake.

use std::sync::Arc;

use node::config::{Durability, NodeConfig};
use node::node::Node;
use node::status::NodeStatus;
use types::NodeId;

use crate::toy::{PATIENCE, Scratch, Toy, config, free_addresses, update};

const COUNT: u16 = 4;

fn start(config: NodeConfig) -> Node {
    Node::start(config, Arc::new(Toy), update()).expect("it starts")
}

/// Wipes the first of four nodes, starts it with a list that `mistake` has changed, and waits until
/// it is linked to all members.
fn rejoin(mistake: impl Fn(&mut NodeConfig, &str)) {
    let (scratch, addresses) = (Scratch::new(), free_addresses(usize::from(COUNT) + 1));
    let (unused, peers) = addresses.split_last().expect("there are some");
    let config = |id| config(&scratch, id, peers, Durability::Volatile);
    let mut nodes: Vec<Node> = (1..=COUNT).map(|id| start(config(id))).collect();
    for node in &nodes {
        assert!(node.wait_until(PATIENCE, |status| status.ready), "{:#?}", node.status());
    }
    nodes[0].stop();
    assert_eq!(nodes[0].join(), Ok(()));
    let mut again = config(1);
    std::fs::remove_dir_all(&again.data_dir).expect("the directory can be wiped");
    mistake(&mut again, unused);
    nodes[0] = start(again);
    let is_linked = |status: &NodeStatus| {
        status.ready
            && status.members.len() == usize::from(COUNT)
            && status.members.iter().all(|one| one.up)
    };
    for node in &nodes {
        assert!(node.wait_until(PATIENCE, is_linked), "{:#?}", node.status());
    }
}

#[test]
fn rejoined_node_dials_the_addresses_that_members_know() {
    rejoin(|config, unused| config.members[3].peer = unused.into());
}

#[test]
fn rejoined_node_dials_members_that_its_list_lacks() {
    rejoin(|config, unused| {
        config.members[3].node = NodeId(9);
        config.members[3].peer = unused.into();
    });
}
