//! `KEY.EXPLAIN`: the record of each replica.

use bench::client::Value;

use crate::support::{Nodes, eventually};

/// The value of a field in a map that RESP2 sends as a list.
fn field<'a>(map: &'a Value, name: &str) -> &'a Value {
    let Value::List(parts) = map else { panic!("{map:?} is no map") };
    let mut pairs = parts.chunks(2);
    let pair = pairs.find(|pair| pair[0] == Value::text(name));
    &pair.unwrap_or_else(|| panic!("{map:?} has no {name}"))[1]
}

fn states(explanation: &Value) -> Vec<Value> {
    let Value::List(replicas) = field(explanation, "replicas") else { panic!("no replicas") };
    replicas.iter().map(|replica| field(replica, "state").clone()).collect()
}

#[test]
fn each_node_explains_the_record_of_each_replica() {
    let mut nodes = Nodes::start("disk");
    assert_eq!(nodes.ask(0, "SET x hello PX 600000"), Value::ok());
    for node in 0..3 {
        eventually("all replicas agree", || {
            *field(&nodes.ask(node, "KEY.EXPLAIN x"), "agreed") == Value::Integer(3)
        });
        let explanation = nodes.ask(node, "KEY.EXPLAIN x");
        let Value::List(replicas) = field(&explanation, "replicas") else { panic!("no replicas") };
        for replica in replicas {
            assert_eq!(field(replica, "state"), &Value::text("present"));
            assert_eq!(field(replica, "checksum"), field(&replicas[0], "checksum"));
            assert_eq!(field(replica, "round"), field(&replicas[0], "round"));
            let Value::Integer(rest) = *field(replica, "pttl") else { panic!("no rest") };
            assert!((1..=600_000).contains(&rest), "{rest} ms left");
        }
    }
    assert_eq!(states(&nodes.ask(1, "KEY.EXPLAIN none")), vec![Value::text("absent"); 3]);
    nodes.kill(2);
    let expected = [Value::text("present"), Value::text("present"), Value::text("silent")].to_vec();
    assert_eq!(states(&nodes.ask(0, "KEY.EXPLAIN x")), expected);
}

#[test]
fn plain_registers_are_explained_too() {
    let mut config = crate::support::config();
    config.arguments = vec!["--protocol".into(), "abd".into()];
    let mut nodes = Nodes::prepare_with(config);
    nodes.start_all();
    assert_eq!(nodes.ask(0, "SET x hello"), Value::ok());
    eventually("all replicas agree", || {
        *field(&nodes.ask(1, "KEY.EXPLAIN x"), "agreed") == Value::Integer(3)
    });
}
