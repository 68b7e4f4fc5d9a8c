//! A peer that reads far more slowly than clients write, beside another one and alone.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// Bytes a second that a slow link carries.
const RATE: u64 = 5_000_000;

/// Three nodes, one of which those before it reach through a slow link.
fn nodes(scratch: &Scratch, slow: usize) -> Vec<Node> {
    let peers = free_addresses(3);
    let mut names = peers.clone();
    names[slow] = narrow(peers[slow].clone(), RATE);
    let start = |id: u16| {
        let config = NodeConfig {
            workers: 1,
            cache_memory: 1 << 30,
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

/// Close to a hundred clients write a megabyte each through a slow peer. Each gets an answer or an
/// error, and a small request is served afterwards.
#[test]
fn requests_behind_a_slow_peer_are_answered_in_time() {
    let scratch = Scratch::new();
    let mut nodes = nodes(&scratch, 1);
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
    let nodes = nodes(&scratch, 1);
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

/// Writes values of so many bytes, none like the one before, until it is told to stop.
fn write_on(caller: &mut Caller, key: &str, len: usize, goes_on: impl Fn(&str) -> bool) {
    for letter in ('a'..='z').cycle() {
        let value = letter.to_string().repeat(len);
        if !goes_on(&caller.call(&format!("set {key} {value}"))) {
            return;
        }
    }
}

/// The others write more than its link carries. They continue without it, and its own requests do
/// not wait behind the backlog.
#[test]
fn a_node_behind_a_slow_link_is_served_while_the_others_write() {
    let scratch = Scratch::new();
    let nodes = nodes(&scratch, 2);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for n in 0..8 {
            let (mut caller, is_over) = (Caller::new(nodes[n % 2].status().listen), &is_over);
            threads.spawn(move || {
                write_on(&mut caller, &format!("k{n}"), 100_000, |_| {
                    !is_over.load(Ordering::Relaxed)
                });
            });
        }
        let is_slow = |status: &NodeStatus| stat(status, "rmw_proposals_spared") > 0;
        let is_known = nodes[..2].iter().all(|node| node.wait_until(PATIENCE, is_slow));
        let mut caller = Caller::new(nodes[2].status().listen);
        let answers = [1, 2, 3].map(|n| caller.settle(&format!("set y {n}")));
        is_over.store(true, Ordering::Relaxed);
        assert!(is_known, "it is slow");
        assert_eq!(answers, ["ok", "ok", "ok"]);
    });
}

/// Many clients write through the only peer, more than its link carries. The writes queue, and all
/// succeed.
#[test]
fn who_writes_more_than_a_slow_peer_takes_waits_and_succeeds() {
    let scratch = Scratch::new();
    let mut nodes = nodes(&scratch, 1);
    drop(nodes.pop());
    let address = nodes[0].status().listen;
    assert_eq!(Caller::new(address).settle("set x 1"), "ok");
    let (succeeded, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for n in 0..40 {
            let (succeeded, failed) = (&succeeded, &failed);
            threads.spawn(move || {
                write_on(&mut Caller::new(address), &format!("k{n}"), 500_000, |answer| {
                    let count = if answer == "ok" { succeeded } else { failed };
                    count.fetch_add(1, Ordering::Relaxed);
                    succeeded.load(Ordering::Relaxed) < 60 && failed.load(Ordering::Relaxed) < 150
                });
            });
        }
    });
    let (succeeded, failed) = (succeeded.into_inner(), failed.into_inner());
    assert!(failed < succeeded, "{failed} failed, {succeeded} succeeded");
}
