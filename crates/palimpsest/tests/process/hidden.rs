//! Keyspaces beside those of users stay out of sight; the feature level does not.

use bench::client::Value;

use crate::support::{Nodes, eventually, http_get};

fn text(nodes: &Nodes, line: &str) -> String {
    match nodes.ask(0, line) {
        Value::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn only_databases_of_users_are_seen() {
    let mut nodes = Nodes::start("volatile");
    for index in ["16", "17", "33", "255"] {
        let error = Value::Error("ERR DB index is out of range".to_owned());
        assert_eq!(nodes.ask(0, &format!("SELECT {index}")), error);
    }
    assert_eq!(nodes.ask(0, "SET key value"), Value::ok());
    assert_eq!(nodes.ask(0, "DBSIZE"), Value::Integer(1));
    let keys = Value::List(vec![Value::text("key")]);
    assert_eq!(nodes.ask(0, "KEYS *"), keys);
    let databases = Value::List(vec![Value::text("databases"), Value::text("16")]);
    assert_eq!(nodes.ask(0, "CONFIG GET databases"), databases);
    eventually("the key is counted", || text(&nodes, "INFO keyspace").contains("db0:keys=1,"));
    assert_eq!(text(&nodes, "INFO keyspace").matches("keys=").count(), 1);
    assert!(text(&nodes, "INFO server").contains("palimpsest_feature_level:1\r\n"));
    let admin = nodes.cluster.nodes[0].admin;
    let (_, body) = http_get(admin, "/api/v1/status").expect("it answers");
    let status: serde_json::Value = serde_json::from_str(&body).expect("it is JSON");
    assert_eq!(status["databases"].as_array().map(Vec::len), Some(16));
    assert_eq!(status["feature_level"], 1);
    let (_, body) = http_get(admin, "/metrics").expect("it answers");
    assert!(!body.contains("database=\"16\""), "the system database is no user's");
    assert_eq!(nodes.ask(0, "FLUSHALL"), Value::ok());
    assert_eq!(nodes.ask(0, "DBSIZE"), Value::Integer(0));
    // The system database is on disk, and comes back with its node.
    assert!(nodes.data_dir(2).join("slots").is_file());
    nodes.kill(2);
    nodes.restart(2);
}
