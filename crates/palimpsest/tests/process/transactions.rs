//! Transactions over several keys, through all nodes, while one of them is killed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use bench::client::{Client, Value};

use crate::support::{Nodes, config, eventually};

const ACCOUNTS: u64 = 10;
const START: i64 = 1_000;

/// The replies of a transaction; `None` where it was refused, an error where the node is gone.
fn transact(client: &mut Client, lines: &[String]) -> std::io::Result<Option<Vec<Value>>> {
    client.command("MULTI")?;
    for line in lines {
        client.command(line)?;
    }
    Ok(match client.command("EXEC")? {
        Value::List(replies) => Some(replies),
        _ => None,
    })
}

/// The amounts of all accounts at one time.
fn sum(client: &mut Client) -> std::io::Result<Option<i64>> {
    let lines: Vec<String> = (0..ACCOUNTS).map(|number| format!("INCRBY acc{number} 0")).collect();
    let amount = |reply: &Value| match reply {
        Value::Integer(amount) => *amount,
        other => panic!("no amount: {other:?}"),
    };
    Ok(transact(client, &lines)?.map(|replies| replies.iter().map(amount).sum()))
}

fn transfer(client: &mut Client, from: u64, to: u64, amount: u64) -> std::io::Result<bool> {
    let lines = [format!("DECRBY acc{from} {amount}"), format!("INCRBY acc{to} {amount}")];
    Ok(transact(client, &lines)?.is_some())
}

/// Moves money between random accounts and watches the sum, until the end or the node's.
fn transfer_all(mut client: Client, seed: u64, done: &AtomicU64, ends: &AtomicBool) {
    let mut prng = base::Prng::new(seed);
    while !ends.load(Relaxed) {
        let (from, to) = (prng.below(ACCOUNTS), prng.below(ACCOUNTS));
        match transfer(&mut client, from, to, 1 + prng.below(9)) {
            Ok(true) => _ = done.fetch_add(1, Relaxed),
            Ok(false) => {}
            Err(_) => return,
        }
        if let Ok(Some(sum)) = sum(&mut client) {
            assert_eq!(sum, ACCOUNTS as i64 * START, "half a transaction is seen");
        }
    }
}

fn transfers_conserve_the_sum(durability: &str) {
    let mut nodes = Nodes::start(durability);
    for number in 0..ACCOUNTS {
        assert_eq!(nodes.ask(0, &format!("SET acc{number} {START}")), Value::ok());
    }
    let (done, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for (seed, index) in [(1, 0), (2, 1), (3, 2), (4, 2)] {
            let (client, done, ends) = (nodes.client(index), &done, &ends);
            scope.spawn(move || transfer_all(client, seed, done, ends));
        }
        let more = |count: u64| {
            let from = done.load(Relaxed);
            eventually("transfers go on", || done.load(Relaxed) >= from + count);
        };
        more(40);
        nodes.kill(2);
        more(40);
        ends.store(true, Relaxed);
    });
    if durability == "disk" {
        nodes.kill_all();
        nodes.start_all();
    } else {
        nodes.restart(2);
    }
    let mut client = nodes.client(2);
    let expected = Some(ACCOUNTS as i64 * START);
    eventually("the sum is there", || sum(&mut client).is_ok_and(|sum| sum == expected));
}

#[test]
fn transfers_in_memory_conserve_the_sum() {
    transfers_conserve_the_sum("volatile");
}

#[test]
fn transfers_on_disk_conserve_the_sum() {
    transfers_conserve_the_sum("disk");
}

/// All steps of a transaction fit one turn of the only worker.
#[test]
fn one_worker_of_one_node_ends_transactions() {
    let mut config = config();
    config.nodes = 1;
    config.durability = "volatile".to_owned();
    config.arguments.extend(["--workers".into(), "1".into()]);
    let mut nodes = Nodes::prepare_with(config);
    nodes.start_all();
    assert_eq!(nodes.ask(0, "RPUSH l 1 2 3"), Value::Integer(3));
    assert_eq!(nodes.ask(0, "MSET w_1 9 w_2 5 w_3 7"), Value::ok());
    for _ in 0..20 {
        let sorted = ["2", "3", "1"].map(Value::text).to_vec();
        assert_eq!(nodes.ask(0, "SORT l BY w_*"), Value::List(sorted));
    }
    let (done, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    for number in 0..ACCOUNTS {
        nodes.ask(0, &format!("SET acc{number} {START}"));
    }
    thread::scope(|scope| {
        for seed in 0..4 {
            let (client, done, ends) = (nodes.client(0), &done, &ends);
            scope.spawn(move || transfer_all(client, seed, done, ends));
        }
        eventually("transfers go on", || done.load(Relaxed) >= 200);
        ends.store(true, Relaxed);
    });
    assert_eq!(sum(&mut nodes.client(0)).expect("it answers"), Some(ACCOUNTS as i64 * START));
}
