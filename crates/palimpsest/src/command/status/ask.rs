//! Asks nodes for their view of the cluster and makes one of them.

use admin::cluster::{Cluster, NodeView};

use crate::Failure;
use crate::command::admin_port::{self, Silence};

const PATH: &str = "/api/v1/cluster";

/// The cluster, put together from the views of the nodes that answered.
pub(super) struct View {
    pub cluster: Cluster,
}

/// Asks all `addresses` at once. Those that were given by the user and stay silent are warned of.
pub(super) fn look(
    addresses: &[String],
    password: Option<&[u8]>,
    are_given: bool,
) -> Result<View, Failure> {
    let answers: Vec<Result<Cluster, Silence>> = std::thread::scope(|scope| {
        let asked: Vec<_> = addresses
            .iter()
            .map(|address| scope.spawn(|| admin_port::get(address, PATH, password)))
            .collect();
        let lost = |_| Err(Silence::NoAnswer("the question failed".into()));
        asked.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
    });
    let mut views = Vec::new();
    let mut silent = Vec::new();
    for (address, answer) in addresses.iter().zip(answers) {
        match answer {
            Ok(cluster) => views.push(cluster),
            Err(silence) => silent.push((address, silence)),
        }
    }
    if views.is_empty() {
        return Err(failure(&silent));
    }
    let mut cluster = merged(views);
    for (address, silence) in silent {
        let is_known = cluster.nodes.iter().any(|node| node.admin.as_ref() == Some(address));
        if are_given && !is_known {
            cluster.warnings.push(silence.text(address));
        }
    }
    Ok(View { cluster })
}

/// The first reason that a person can mend, else that no node answers at all.
fn failure(silent: &[(&String, Silence)]) -> Failure {
    let mendable = silent.iter().find(|(_, silence)| !matches!(silence, Silence::NoAnswer(_)));
    if let Some((address, silence)) = mendable {
        return Failure::fault(silence.text(address));
    }
    let all: Vec<&str> = silent.iter().map(|(address, _)| address.as_str()).collect();
    match silent.first() {
        Some((_, silence)) => Failure::fault(silence.text(&all.join(", "))),
        None => Failure::usage("give --address HOST:PORT"),
    }
}

/// The first view of a node that reaches a quorum, or the first. Each node that answered speaks for
/// itself.
fn merged(mut views: Vec<Cluster>) -> Cluster {
    let at = views.iter().position(|view| view.serving).unwrap_or(0);
    let base = views.remove(at);
    let mut nodes = base.nodes;
    let mut has_strangers = false;
    for view in views {
        if view.cluster != base.cluster {
            has_strangers = true;
            continue;
        }
        let Some(own) = view.nodes.into_iter().find(|node| node.is_self) else { continue };
        if let Some(node) = nodes.iter_mut().find(|node| node.node == own.node && !node.is_self) {
            let round_trip_us = node.round_trip_us;
            let (refused, smallest_limit) = (node.refused.clone(), node.smallest_limit.clone());
            *node = NodeView { round_trip_us, is_self: false, refused, smallest_limit, ..own };
        }
    }
    let feature_level = base.feature_level;
    let cluster = Cluster::judged(base.cluster, base.asked, nodes).with_groups(base.groups);
    let mut cluster = Cluster { feature_level, ..cluster };
    if has_strangers {
        let text = "the addresses belong to different clusters: only the first of them is shown";
        cluster.warnings.push(text.into());
    }
    cluster
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::status::table::tests::{cluster, node};

    #[test]
    fn a_node_that_answers_speaks_for_itself() {
        // Node 3 answers, though node 1 has no link to it.
        let of_one = cluster(1, vec![node(1, "ready"), node(2, "ready"), node(3, "down")]);
        let of_three = cluster(3, vec![node(1, "down"), node(2, "ready"), node(3, "ready")]);
        let merged = merged(vec![of_one, of_three]);
        let states: Vec<&str> = merged.nodes.iter().map(|node| node.state.as_str()).collect();
        assert_eq!(states, ["ready", "ready", "ready"]);
        assert_eq!((merged.ready, merged.tolerates, merged.asked), (3, 1, 1));
    }

    #[test]
    fn the_view_of_a_node_with_a_quorum_counts() {
        let cut_off = cluster(1, vec![node(1, "no quorum"), node(2, "down"), node(3, "down")]);
        let serving = cluster(2, vec![node(1, "down"), node(2, "ready"), node(3, "ready")]);
        let merged = merged(vec![cut_off, serving]);
        assert!(merged.serving);
        assert_eq!(merged.nodes[0].state, "no quorum");
    }

    #[test]
    fn views_of_another_cluster_are_left_out() {
        let mine = cluster(1, vec![node(1, "ready")]);
        let other = Cluster { cluster: Some("other".into()), ..cluster(2, vec![node(2, "ready")]) };
        let merged = merged(vec![mine, other]);
        assert_eq!(merged.nodes.len(), 1);
        assert!(merged.warnings[0].contains("different clusters"));
    }
}
