//! Keyspaces that users do not see: the system database, and the hidden one beside each database.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use bytes::Bytes;
use node::config::{Durability, NodeConfig};
use node::dev::LocalCluster;
use node::node::Node;
use node::status::NodeStatus;
use transactions::record::{self, Record};
use types::{Access, Command, Database, Outcome, Reply};

use super::toy::{PATIENCE, Scratch, Toy, config, update};
use super::{caller, cluster};

/// Hidden keyspaces hold records of transactions: `set` writes one.
///
/// Asks until the answer is a value: a node that has just started may need a moment.
#[track_caller]
fn ask(node: &Node, database: Database, line: &str) -> String {
    let access = match line.split(' ').next() {
        Some("get") => Access::Read,
        Some("set") => Access::Write,
        _ => Access::Update,
    };
    let end = Instant::now() + PATIENCE;
    loop {
        let (sender, heard) = mpsc::channel();
        let command = match (database.is_hidden(), access) {
            (true, Access::Read) => record::read(),
            (true, _) => record::decide(&Record::Aborted),
            (false, _) => Command::new(access, Bytes::copy_from_slice(line.as_bytes())),
        };
        let key = line.split(' ').nth(1).unwrap_or_default();
        node.ask(database, key.as_bytes(), command, move |outcome| {
            // A test that has failed listens no more.
            let _ = sender.send(outcome);
        });
        match heard.recv_timeout(PATIENCE).expect("it is answered") {
            Outcome::Reply(reply) if database.is_hidden() => {
                let shown = record::shown(&reply).expect("a record, or none");
                return shown.map_or("-", |_| "record").to_owned();
            }
            Outcome::Reply(Reply::Bulk(text)) => return String::from_utf8_lossy(&text).into(),
            other => assert!(Instant::now() < end, "{other:?}"),
        }
    }
}

fn restart_all(cluster: &mut LocalCluster) {
    assert_eq!(cluster.stop(), Ok(()));
    for at in 0..cluster.nodes().len() {
        let again = cluster.nodes()[at].facts().config().as_ref().clone();
        cluster.restart(at, again, |_| Arc::new(Toy), &update()).expect("it starts again");
    }
}

#[test]
fn system_database_outlives_users_databases_of_any_kind() {
    for durability in [Durability::Volatile, Durability::Pmem, Durability::Disk] {
        let scratch = Scratch::new();
        let mut cluster = cluster(&scratch, durability);
        assert_eq!(ask(&cluster.nodes()[0], Database::SYSTEM, "set key 41"), "ok");
        assert_eq!(ask(&cluster.nodes()[1], Database::SYSTEM, "add key 1"), "42");
        assert_eq!(ask(&cluster.nodes()[2], Database::SYSTEM, "get key"), "42");
        assert_eq!(caller(&cluster.nodes()[0]).settle("get key"), "-", "users do not see it");
        assert_eq!(caller(&cluster.nodes()[0]).settle("set key users"), "ok");
        assert_eq!(ask(&cluster.nodes()[0], Database::SYSTEM, "get key"), "42");
        restart_all(&mut cluster);
        for node in cluster.nodes() {
            assert_eq!(ask(node, Database::SYSTEM, "get key"), "42", "{durability}");
        }
        assert_eq!(cluster.stop(), Ok(()));
    }
}

#[test]
fn hidden_keyspace_is_apart_and_as_durable_as_its_database() {
    for durability in [Durability::Pmem, Durability::Disk] {
        let scratch = Scratch::new();
        let mut cluster = cluster(&scratch, durability);
        let hidden = Database(0).hidden();
        assert_eq!(caller(&cluster.nodes()[0]).settle("set key users"), "ok");
        assert_eq!(ask(&cluster.nodes()[0], hidden, "set key record"), "record");
        assert_eq!(ask(&cluster.nodes()[1], Database::SYSTEM, "get key"), "-");
        restart_all(&mut cluster);
        assert_eq!(ask(&cluster.nodes()[1], hidden, "get key"), "record", "{durability}");
        assert_eq!(caller(&cluster.nodes()[2]).settle("get key"), "users");
        assert_eq!(cluster.stop(), Ok(()));
    }
}

#[test]
fn wiped_node_recovers_the_system_database() {
    let scratch = Scratch::new();
    let mut cluster = cluster(&scratch, Durability::Volatile);
    assert_eq!(ask(&cluster.nodes()[0], Database::SYSTEM, "set key 7"), "ok");
    let again: NodeConfig = cluster.nodes()[1].facts().config().as_ref().clone();
    cluster.nodes()[1].stop();
    assert_eq!(cluster.nodes()[1].join(), Ok(()));
    std::fs::remove_dir_all(&again.data_dir).expect("the directory can be wiped");
    cluster.restart(1, again, |_| Arc::new(Toy), &update()).expect("it starts again");
    assert!(cluster.wait_ready(PATIENCE), "{:#?}", cluster.nodes()[1].status());
    cluster.nodes()[0].stop();
    assert_eq!(cluster.nodes()[0].join(), Ok(()));
    assert_eq!(ask(&cluster.nodes()[1], Database::SYSTEM, "get key"), "7");
    assert_eq!(cluster.stop(), Ok(()));
}

#[test]
fn figures_show_users_databases_only() {
    let scratch = Scratch::new();
    let configs =
        [1].map(|id| NodeConfig { ..config(&scratch, id, &["a:1".to_owned()], Durability::Disk) });
    let cluster = LocalCluster::start(configs.to_vec(), |_| Arc::new(Toy), &update());
    let cluster = cluster.expect("it starts");
    assert!(cluster.wait_ready(PATIENCE));
    let node = &cluster.nodes()[0];
    assert_eq!(caller(node).settle("set key users"), "ok");
    for (number, database) in [Database::SYSTEM, Database(0).hidden()].into_iter().enumerate() {
        let expected = if database.is_hidden() { "record" } else { "ok" };
        assert_eq!(ask(node, database, &format!("set key{number} x")), expected);
        assert_eq!(ask(node, database, &format!("set other{number} x")), expected);
    }
    let has_counted = |status: &NodeStatus| status.databases.iter().any(|it| it.keys > 0);
    assert!(node.wait_until(PATIENCE, has_counted), "{:#?}", node.status());
    let figures = node.status().databases;
    assert_eq!(figures.iter().map(|one| (one.index, one.keys)).collect::<Vec<_>>(), [(0, 1)]);
    assert_eq!(cluster.stop(), Ok(()));
}
