//! Several nodes in one process, linked by socket pairs instead of the network: the embedded
//! default, and tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use transport::local::Hub;
use types::Update;

use crate::config::NodeConfig;
use crate::node::{Node, StartError};
use crate::session::SessionFactory;

/// A whole cluster in this process.
pub struct LocalCluster {
    hub: Hub,
    nodes: Vec<Node>,
}

impl LocalCluster {
    /// Starts a node per configuration; each is given the session factory that `factory` makes for
    /// it.
    ///
    /// # Errors
    /// The first node's [`StartError`]; those started before it are stopped.
    pub fn start(
        configs: Vec<NodeConfig>,
        factory: impl Fn(&NodeConfig) -> Arc<dyn SessionFactory>,
        update: &Arc<dyn Update>,
    ) -> Result<LocalCluster, StartError> {
        let hub = Hub::default();
        let mut nodes = Vec::new();
        for config in configs {
            nodes.push(start_one(&hub, config, &factory, update)?);
        }
        Ok(LocalCluster { hub, nodes })
    }

    /// In the order of their configurations.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Starts node `at` again, once it has stopped and its old self is gone.
    ///
    /// # Errors
    /// Its [`StartError`].
    ///
    /// # Panics
    /// If there is no such node.
    pub fn restart(
        &mut self,
        at: usize,
        config: NodeConfig,
        factory: impl Fn(&NodeConfig) -> Arc<dyn SessionFactory>,
        update: &Arc<dyn Update>,
    ) -> Result<(), StartError> {
        self.nodes[at].stop();
        // How the old one ended does not matter any more.
        let _ = self.nodes[at].join();
        self.nodes[at] = start_one(&self.hub, config, &factory, update)?;
        Ok(())
    }

    /// Waits until every node is ready, or for about `most`. True when all are.
    #[must_use]
    pub fn wait_ready(&self, most: Duration) -> bool {
        let end = Instant::now() + most;
        self.nodes.iter().all(|node| {
            node.wait_until(end.saturating_duration_since(Instant::now()), |status| status.ready)
        })
    }

    /// Stops all nodes and waits for them.
    ///
    /// # Errors
    /// The first failure that ended one of them.
    pub fn stop(&self) -> Result<(), String> {
        self.nodes.iter().for_each(Node::stop);
        let mut result = Ok(());
        for node in &self.nodes {
            let ended = node.join();
            result = result.and(ended);
        }
        result
    }
}

fn start_one(
    hub: &Hub,
    config: NodeConfig,
    factory: &impl Fn(&NodeConfig) -> Arc<dyn SessionFactory>,
    update: &Arc<dyn Update>,
) -> Result<Node, StartError> {
    let network = hub.attach(config.id)?;
    let factory = factory(&config);
    Node::start_on(config, Box::new(network), factory, Arc::clone(update))
}
