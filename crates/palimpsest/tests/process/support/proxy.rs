//! Three nodes whose links can go dark.

use bench::cluster::Config;
pub use bench::proxy::Proxies;

use super::nodes::{Nodes, config};

/// Starts three nodes that reach each other through forwarders.
pub fn start_with_proxies(durability: &str) -> (Nodes, Proxies) {
    let mut config = Config { durability: durability.to_string(), ..config() };
    Proxies::choose_ports(&mut config).expect("free ports");
    let ports = config.peer_ports.clone();
    let mut nodes = Nodes::prepare_with(config);
    let proxies = Proxies::listen(&nodes.cluster, &ports).expect("the ports were free");
    for index in 0..nodes.len() {
        nodes.cluster.start_node(index).expect("the program starts");
        proxies.note_processes(&nodes.cluster);
    }
    nodes.wait_ready();
    (nodes, proxies)
}
