//! Links between nodes that can go dark: bytes stop arriving, and no end learns of it.
//!
//! Every node is reached by the others through a forwarder of its own. A dark pair's bytes are
//! held, as a network holds them that drops packets until TCP sends them again; connections stay
//! open. The kernel tells which process dialled, so that both directions of a pair go dark.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::{self, Cluster};
use crate::process::free_addresses;
use crate::{Error, Result};

/// Two nodes, by index, the smaller first.
type Pair = (usize, usize);

#[derive(Default)]
struct Switch {
    dark: Mutex<BTreeSet<Pair>>,
    /// Bytes per second that a node's forwarder takes in.
    rates: Mutex<BTreeMap<usize, u64>>,
    changed: Condvar,
}

impl Switch {
    /// Returns as soon as this pair is not dark.
    fn wait_until_light(&self, pair: Pair) {
        let dark = self.dark.lock().unwrap_or_else(PoisonError::into_inner);
        let light = self.changed.wait_while(dark, |dark| dark.contains(&pair));
        drop(light.unwrap_or_else(PoisonError::into_inner));
    }

    fn rate(&self, node: usize) -> Option<u64> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied()
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<Pair>)) {
        change(&mut self.dark.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// The forwarders of a cluster. Their threads live as long as the process.
pub struct Proxies {
    switch: Arc<Switch>,
    pids: Arc<Mutex<Vec<u32>>>,
    nodes: usize,
}

impl Proxies {
    /// Chooses ports for forwarders, and names them in the configuration of a cluster.
    ///
    /// # Errors
    /// When no ports are available.
    pub fn choose_ports(config: &mut cluster::Config) -> Result<()> {
        let ports = free_addresses(usize::from(config.nodes))?;
        config.peer_ports = ports.iter().map(SocketAddr::port).collect();
        Ok(())
    }

    /// Listens at the ports that the configuration of this cluster named.
    ///
    /// # Errors
    /// When one of the ports is taken.
    pub fn listen(cluster: &Cluster, ports: &[u16]) -> Result<Proxies> {
        let nodes = cluster.nodes.len();
        let proxies = Proxies { switch: Arc::default(), pids: Arc::default(), nodes };
        for (index, &port) in ports.iter().enumerate() {
            let listener = TcpListener::bind(("127.0.0.1", port))
                .map_err(Error::io(format!("cannot listen on port {port}")))?;
            let target = cluster.nodes[index].peer;
            let (switch, pids) = (proxies.switch.clone(), proxies.pids.clone());
            std::thread::spawn(move || accept(&listener, index, target, &switch, &pids));
        }
        Ok(proxies)
    }

    /// To be called when a process has been started.
    pub fn note_processes(&self, cluster: &Cluster) {
        let pid = |node: &cluster::Node| node.process.as_ref().map_or(0, |p| p.pid());
        let pids = cluster.nodes.iter().map(pid).collect();
        *self.pids.lock().unwrap_or_else(PoisonError::into_inner) = pids;
    }

    /// Cuts one node off from all others.
    pub fn isolate(&self, node: usize) {
        let others = (0..self.nodes).filter(|&other| other != node);
        self.switch.change(|dark| dark.extend(others.map(|other| pair(other, node))));
    }

    /// Cuts every pair.
    pub fn isolate_all(&self) {
        (0..self.nodes).for_each(|node| self.isolate(node));
    }

    /// Lets a node take in so many bytes per second from each other node; `None`: as fast as it
    /// can.
    pub fn throttle(&self, node: usize, rate: Option<u64>) {
        let mut rates = self.switch.rates.lock().unwrap_or_else(PoisonError::into_inner);
        match rate {
            Some(rate) => rates.insert(node, rate),
            None => rates.remove(&node),
        };
    }

    /// Lets all bytes through, also those that were held.
    pub fn heal(&self) {
        self.switch.change(BTreeSet::clear);
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        self.heal(); // forwarders that hold bytes can end
    }
}

fn pair(a: usize, b: usize) -> Pair {
    (a.min(b), a.max(b))
}

fn accept(
    listener: &TcpListener,
    node: usize,
    target: SocketAddr,
    switch: &Arc<Switch>,
    pids: &Arc<Mutex<Vec<u32>>>,
) {
    for inward in listener.incoming().flatten() {
        let (switch, pids) = (switch.clone(), pids.clone());
        std::thread::spawn(move || {
            let Some(dialler) = dialler(&inward, &pids) else { return };
            let pair = pair(dialler, node);
            switch.wait_until_light(pair);
            let Ok(outward) = TcpStream::connect(target) else { return };
            for stream in [&inward, &outward] {
                // Without it bytes come later, and all the same.
                let _ = stream.set_nodelay(true);
            }
            let (Ok(inward_again), Ok(outward_again)) = (inward.try_clone(), outward.try_clone())
            else {
                return;
            };
            let back = switch.clone();
            std::thread::spawn(move || forward(outward_again, inward_again, pair, None, &back));
            forward(inward, outward, pair, Some(node), &switch);
        });
    }
}

/// Copies until either end closes; holds the bytes while the pair is dark. `into` is the node whose
/// rate counts.
fn forward(
    mut from: TcpStream,
    mut to: TcpStream,
    pair: Pair,
    into: Option<usize>,
    switch: &Switch,
) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        switch.wait_until_light(pair);
        if let Some(rate) = into.and_then(|node| switch.rate(node)) {
            std::thread::sleep(Duration::from_secs_f64(count as f64 / rate as f64));
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    switch.wait_until_light(pair); // not even an end gets through
    // Either may be closed already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Which node the other end of an accepted connection belongs to.
fn dialler(stream: &TcpStream, pids: &Mutex<Vec<u32>>) -> Option<usize> {
    let inode = inode_of(stream.peer_addr().ok()?, stream.local_addr().ok()?)?;
    let pids = pids.lock().unwrap_or_else(PoisonError::into_inner).clone();
    pids.into_iter().position(|pid| owns_socket(pid, inode))
}

/// The inode of the socket at the local end of a connection, from `/proc/net/tcp`. Connections to
/// other addresses may have the same local one, among them such as are closed and have no socket
/// any more.
fn inode_of(local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    let wanted = [in_table(local)?, in_table(remote)?];
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(1..3)? == wanted).then(|| fields.get(9)?.parse().ok()).flatten()
    })
}

/// The kernel prints an address as one number in the machine's byte order.
fn in_table(address: SocketAddr) -> Option<String> {
    let SocketAddr::V4(address) = address else { return None };
    let number = u32::from_ne_bytes(address.ip().octets());
    Some(format!("{number:08X}:{:04X}", address.port()))
}

fn owns_socket(pid: u32, inode: u64) -> bool {
    let wanted = format!("socket:[{inode}]");
    let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten()
        .any(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == wanted.as_str()))
}
