//! Nodes that support different feature levels, as during a rolling upgrade.

use std::path::Path;
use std::sync::Arc;

use node::config::{Durability, NodeConfig};
use node::dev::LocalCluster;
use node::node::{Node, StartError};
use node::status::NodeStatus;
use types::features::{FeatureLevel, Supported};

use super::toy::{PATIENCE, Scratch, Toy, config, update};
use super::{caller, cluster};

/// The range of a version that knows all levels up to `highest`.
fn up_to(highest: u16) -> Supported {
    Supported { lowest: FeatureLevel(1), highest: FeatureLevel(highest) }
}

fn config_of(node: &Node) -> NodeConfig {
    node.facts().config().as_ref().clone()
}

fn install(cluster: &mut LocalCluster, at: usize, highest: u16) -> Result<(), StartError> {
    let config = NodeConfig { supported: up_to(highest), ..config_of(&cluster.nodes()[at]) };
    cluster.restart(at, config, |_| Arc::new(Toy), &update())
}

fn runs_at(level: u16) -> impl Fn(&NodeStatus) -> bool {
    move |status| status.ready && status.level == Some(FeatureLevel(level))
}

#[track_caller]
fn all_run_at(cluster: &LocalCluster, level: u16) {
    for node in cluster.nodes() {
        assert!(node.wait_until(PATIENCE, runs_at(level)), "{:#?}", node.status());
    }
}

/// Each node adds to one key, and so reads the value that the former one wrote.
#[track_caller]
fn serve_through_all(cluster: &LocalCluster, key: &str) {
    for (at, node) in cluster.nodes().iter().enumerate() {
        assert_eq!(caller(node).settle(&format!("add {key} 1")), (at + 1).to_string());
    }
    for node in cluster.nodes() {
        assert_eq!(caller(node).settle(&format!("get {key}")), "3");
    }
}

fn bytes_of(directory: &Path) -> Vec<u8> {
    std::fs::read(directory.join("node")).expect("the identity is there")
}

#[test]
fn level_rises_once_the_last_node_is_upgraded() {
    let scratch = Scratch::new();
    let mut cluster = cluster(&scratch, Durability::Disk);
    all_run_at(&cluster, 1);
    for at in 0..2 {
        install(&mut cluster, at, 2).expect("it supports the cluster's level");
        all_run_at(&cluster, 1);
        serve_through_all(&cluster, &format!("mixed{at}"));
    }
    install(&mut cluster, 2, 2).expect("it supports the cluster's level");
    all_run_at(&cluster, 2);
    serve_through_all(&cluster, "new");

    // A quorum is enough to go on at the level after a restart of all nodes.
    assert_eq!(cluster.stop(), Ok(()));
    for at in 0..2 {
        install(&mut cluster, at, 2).expect("it starts again");
        assert!(cluster.nodes()[at].wait_until(PATIENCE, |it| it.level == Some(FeatureLevel(2))));
    }
    for node in &cluster.nodes()[..2] {
        assert!(node.wait_until(PATIENCE, runs_at(2)), "{:#?}", node.status());
    }

    let directory = config_of(&cluster.nodes()[2]).data_dir;
    let before = bytes_of(&directory);
    let Err(refused) = install(&mut cluster, 2, 1) else { panic!("it lacks the level") };
    let text = "the cluster runs at feature level 2; this version supports 1 to 1";
    assert!(refused.to_string().ends_with(text), "{refused}");
    assert_eq!(bytes_of(&directory), before);
    install(&mut cluster, 2, 2).expect("the newer version still runs");
    all_run_at(&cluster, 2);
    assert_eq!(caller(&cluster.nodes()[2]).settle("get new"), "3");
    assert_eq!(cluster.stop(), Ok(()));
}

#[test]
fn wiped_node_of_an_old_version_is_refused_by_name() {
    let scratch = Scratch::new();
    let names: Vec<String> = ["a:1", "b:1", "c:1"].map(String::from).to_vec();
    let configs = (1..=3).map(|id| NodeConfig {
        supported: up_to(2),
        ..config(&scratch, id, &names, Durability::Disk)
    });
    let cluster = LocalCluster::start(configs.collect(), |_| Arc::new(Toy), &update());
    let mut cluster = cluster.expect("it starts");
    all_run_at(&cluster, 2);
    cluster.nodes()[2].stop();
    assert_eq!(cluster.nodes()[2].join(), Ok(()));
    let directory = config_of(&cluster.nodes()[2]).data_dir;
    std::fs::remove_dir_all(&directory).expect("the directory can be wiped");

    install(&mut cluster, 2, 1).expect("an empty directory names no level");
    let text = "the cluster runs at feature level 2; the version of node 3 supports 1 to 1";
    let [one, _, three] = cluster.nodes() else { panic!("three nodes") };
    for (node, peer) in [(one, 3), (three, 1)] {
        let is_refused = |status: &NodeStatus| {
            let mut members = status.members.iter();
            members.any(|it| it.node.0 == peer && it.refused.as_deref() == Some(text))
        };
        assert!(node.wait_until(PATIENCE, is_refused), "{:#?}", node.status());
        let is_told = |event: &node::status::NodeEvent| {
            event.fields.iter().any(|(name, value)| *name == "reason" && value == text)
        };
        assert!(node.facts().events().iter().any(is_told), "{:#?}", node.facts().events());
    }
    assert!(!three.status().ready);
    assert_eq!(caller(one).settle("set x 1"), "ok");

    install(&mut cluster, 2, 2).expect("it starts");
    all_run_at(&cluster, 2);
    assert_eq!(caller(&cluster.nodes()[2]).settle("get x"), "1");
    assert_eq!(cluster.stop(), Ok(()));
}

#[test]
fn mixed_versions_form_at_the_lowest_highest_level() {
    let scratch = Scratch::new();
    let names: Vec<String> = ["a:1", "b:1", "c:1"].map(String::from).to_vec();
    let configs = (1..=3).map(|id| NodeConfig {
        supported: up_to([3, 2, 4][usize::from(id) - 1]),
        ..config(&scratch, id, &names, Durability::Volatile)
    });
    let cluster = LocalCluster::start(configs.collect(), |_| Arc::new(Toy), &update());
    let cluster = cluster.expect("it starts");
    all_run_at(&cluster, 2);
    serve_through_all(&cluster, "x");
    assert_eq!(cluster.stop(), Ok(()));
}
