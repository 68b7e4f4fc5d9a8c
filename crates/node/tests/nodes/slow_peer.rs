//! A peer that reads far more slowly than clients write, while the other one is dead.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use node::config::{Durability, NodeConfig};
use node::node::Node;
use node::status::NodeStatus;

use crate::toy::{Caller, PATIENCE, Scratch, Toy, config, free_addresses, update};

fn carry(mut from: TcpStream, mut to: TcpStream, rate: Option<u64>) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if let Some(rate) = rate {
                std::thread::sleep(Duration::from_nanos(count as u64 * 1_000_000_000 / rate));
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
    });
}

/// Carries so many bytes a second to an address, and back as many as come.
fn narrow(to: String, rate: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(&to) else { continue };
            let (back, forth) = (far.try_clone().expect("one"), near.try_clone().expect("another"));
            carry(near, far, Some(rate));
            carry(back, forth, None);
        }
    });
    address
}

/// Three nodes, of which the first reaches the second through five million bytes a second.
fn nodes(scratch: &Scratch) -> Vec<Node> {
    let peers = free_addresses(3);
    let mut names = peers.clone();
    names[1] = narrow(peers[1].clone(), 5_000_000);
    let start = |id: u16| {
        let config = NodeConfig {
            workers: 1,
            cells_memory: 1 << 30,
            peer_listen: peers[usize::from(id) - 1].clone(),
            ..config(scratch, id, &names, Durability::Volatile)
        };
        Node::start(config, Arc::new(Toy), update()).expect("it starts")
    };
    let nodes: Vec<Node> = (1..=3).map(start).collect();
    for node in &nodes {
        assert!(node.wait_until(PATIENCE, |status| status.ready), "{:#?}", node.status());
    }
    nodes
}

fn stat(status: &NodeStatus, name: &str) -> u64 {
    status.stats.values.get(name).copied().unwrap_or_default()
}

/// Close to a hundred clients write a megabyte each, for which the peer takes long. All are answered, if with an error, and
/// who asks for little then is served.
#[test]
fn requests_behind_a_slow_peer_are_answered_in_time() {
    let scratch = Scratch::new();
    let mut nodes = nodes(&scratch);
    drop(nodes.pop());
    let address = nodes[0].status().listen;
    let mut callers: Vec<Caller> = (0..90).map(|_| Caller::new(address)).collect();
    let mut other = Caller::new(address);
    assert_eq!(other.settle("set x 1"), "ok");
    let value = "v".repeat(1_000_000);
    for (n, caller) in callers.iter_mut().enumerate() {
        caller.send(&format!("set k{n} {value}"));
    }
    let has_read = |status: &NodeStatus| stat(status, "client_bytes_in") >= 90_000_000;
    assert!(nodes[0].wait_until(PATIENCE, has_read));
    callers.iter_mut().for_each(|caller| caller.send("\n"));
    let before = stat(&nodes[0].status(), "link_resets");
    assert_eq!(other.settle("set x 2"), "ok");
    assert!(nodes[0].wait_until(PATIENCE, |status| stat(status, "link_resets") > before));
    assert!(callers.iter_mut().all(|caller| !caller.line().is_empty()));
}

/// A value that takes longer on its way than a peer may be silent.
#[test]
fn a_long_value_arrives_at_a_slow_peer() {
    let scratch = Scratch::new();
    let nodes = nodes(&scratch);
    let mut caller = Caller::new(nodes[0].status().listen);
    assert_eq!(caller.settle("set x 1"), "ok");
    let resets = stat(&nodes[0].status(), "link_resets");
    caller.send("set long ");
    (0..8).for_each(|_| caller.send(&"v".repeat(1_000_000)));
    assert_eq!(caller.call(""), "ok");
    let has_it = |status: &NodeStatus| stat(status, "link_bytes_in") >= 8_000_000;
    assert!(nodes[1].wait_until(PATIENCE, has_it));
    assert_eq!(stat(&nodes[0].status(), "link_resets"), resets);
}
