//! A database on `abd`: every plain write works, the rest is refused with the protocol's name.

use bench::client::Value;

use crate::support::{Nodes, config, eventually};

const REFUSED: &str = "ERR not supported by protocol 'abd'";

fn start(durability: &str) -> Nodes {
    let mut config = config();
    config.durability = durability.to_owned();
    config.arguments.extend(["--protocol".into(), "abd".into()]);
    let mut nodes = Nodes::prepare_with(config);
    nodes.start_all();
    nodes
}

fn keys(nodes: &Nodes, index: usize) -> Vec<Value> {
    match nodes.ask(index, "KEYS *") {
        Value::List(mut keys) => {
            keys.sort_by_key(|key| format!("{key:?}"));
            keys
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn plain_registers_are_deleted_and_flushed() {
    let mut nodes = start("disk");
    for (index, line) in ["SET a 1", "SET b 2", "SET c 3"].iter().enumerate() {
        assert_eq!(nodes.ask(index, line), Value::ok());
    }
    assert_eq!(nodes.ask(1, "DEL a"), Value::Integer(1));
    assert_eq!(nodes.ask(2, "DEL a"), Value::Integer(0));
    assert_eq!(nodes.ask(0, "DEL never"), Value::Integer(0));
    assert_eq!(nodes.ask(0, "EXISTS a b c"), Value::Integer(2));
    assert_eq!(nodes.ask(2, "UNLINK a b c d"), Value::Integer(2));
    assert_eq!(nodes.ask(1, "MGET a b c"), Value::List(vec![Value::Nil; 3]));
    assert_eq!(nodes.ask(0, "SET a 4"), Value::ok());
    assert_eq!(nodes.ask(1, "GET a"), Value::text("4"));
    // One node away: a majority deletes, and the third learns of it.
    nodes.kill(2);
    assert_eq!(nodes.ask(0, "SET b 5"), Value::ok());
    assert_eq!(nodes.ask(1, "DEL a"), Value::Integer(1));
    nodes.restart(2);
    assert_eq!(nodes.ask(2, "GET a"), Value::Nil);
    assert_eq!(keys(&nodes, 2), [Value::text("b")]);
    nodes.kill_all();
    nodes.start_all();
    assert_eq!(nodes.ask(0, "GET a"), Value::Nil);
    assert_eq!(nodes.ask(0, "GET b"), Value::text("5"));
    assert_eq!(nodes.ask(1, "FLUSHDB"), Value::ok());
    assert_eq!(keys(&nodes, 0), []);
    assert_eq!(nodes.ask(2, "SET c 6"), Value::ok());
    assert_eq!(nodes.ask(0, "FLUSHALL"), Value::ok());
    assert_eq!(nodes.ask(2, "GET c"), Value::Nil);
}

#[test]
fn plain_registers_end_after_their_time() {
    let nodes = start("volatile");
    assert_eq!(nodes.ask(0, "SET long 1 EX 500"), Value::ok());
    assert!(matches!(nodes.ask(1, "TTL long"), Value::Integer(490..=500)));
    assert_eq!(nodes.ask(2, "SET long 2"), Value::ok());
    assert_eq!(nodes.ask(0, "TTL long"), Value::Integer(-1));
    assert_eq!(nodes.ask(0, "PSETEX short 30 1"), Value::ok());
    eventually("it ends", || nodes.ask(1, "GET short") == Value::Nil);
    assert_eq!(nodes.ask(0, "EXISTS short"), Value::Integer(0));
    assert_eq!(nodes.ask(2, "DEL short"), Value::Integer(0));
    assert_eq!(keys(&nodes, 2), [Value::text("long")]);
}

#[test]
fn plain_registers_refuse_conditional_writes() {
    let nodes = start("volatile");
    assert_eq!(nodes.ask(0, "SET x 1"), Value::ok());
    for line in [
        "INCR x",
        "APPEND x y",
        "SETNX x 2",
        "SET x 2 XX",
        "SET x 2 KEEPTTL",
        "GETEX x EX 5",
        "GETSET x 2",
        "GETDEL x",
        "EXPIRE x 5",
        "PERSIST x",
        "SETRANGE x 0 y",
    ] {
        match nodes.ask(1, line) {
            Value::Error(text) => assert!(text.starts_with(REFUSED), "{line}: {text}"),
            other => panic!("{line}: {other:?}"),
        }
    }
    assert_eq!(nodes.ask(2, "GET x"), Value::text("1"));
    assert_eq!(nodes.ask(2, "STRLEN x"), Value::Integer(1));
}
