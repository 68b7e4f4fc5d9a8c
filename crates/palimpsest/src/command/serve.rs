//! `palimpsest serve`: one node of a cluster.

use node::config::Durability;
use node::node::Node;

use crate::config::ServeArgs;
use crate::{Failure, limits, log, running};

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let mut config = args.resolve()?;
    log::start(config.log, Some(config.node.id.0));
    limits::lift(std::iter::once(&mut config.node));
    let admin = running::bind_admin(&config)?;
    let factory = running::session_factory(&config);
    if let Some(path) = args.config_file() {
        factory.set_config_file(path.to_path_buf());
    }
    let node = Node::start(config.node.clone(), factory.clone(), factory.interpreter())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let admin = running::start_admin(&config, admin, &node, &factory)?;
    log::say(&format!(
        "node {} serves clients on {}, nodes on {}, {}http://{}/",
        config.node.id,
        node.status().listen,
        config.node.peer_listen,
        running::sentinel_text(&node),
        admin.address()
    ));
    let has_pmem = config.node.databases.iter().any(|one| one.durability == Durability::Pmem);
    if has_pmem && !storage::probe::is_dax(&config.node.data_dir).unwrap_or(false) {
        log::say("pmem: emulated");
    }
    running::watch(&[&node], &[factory])
}
