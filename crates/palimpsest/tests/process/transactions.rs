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

/// `MULTI`, lines that take a worker too long, and `exec`. The first line counts its runs.
fn large_transaction(lines: usize, exec: &str) -> Vec<u8> {
    let slow = "LREM l 0 absent\r\n".repeat(lines);
    format!("MULTI\r\nLPUSH l new\r\n{slow}{exec}\r\n").into_bytes()
}

/// The reply to it.
fn receive(client: &mut Client, lines: usize) -> Value {
    for _ in 0..lines + 2 {
        client.receive().expect("OK, and QUEUED");
    }
    client.receive().expect("a reply")
}

/// A worker that the transaction held up would serve no request meanwhile.
#[test]
fn large_transactions_hold_up_no_other_client() {
    let mut config = config();
    config.nodes = 1;
    config.durability = "volatile".to_owned();
    for argument in ["--workers", "1", "--request-timeout", "60s"] {
        config.arguments.push(argument.into());
    }
    let mut nodes = Nodes::prepare_with(config);
    nodes.start_all();
    assert_eq!(nodes.ask(0, "CONFIG SET busy-reply-threshold 60000"), Value::ok());
    let elements: String = (10_000..20_000).map(|number| format!(" {number}")).collect();
    for part in 1..=10 {
        let len = nodes.ask(0, &format!("RPUSH l{elements}"));
        assert_eq!(len, Value::Integer(10_000 * part));
    }
    let is_done = |reply: &Value| matches!(reply, Value::List(all) if all.len() > 30);
    let (mut client, mut other) = (nodes.client(0), nodes.client(0));
    client.send_raw(&large_transaction(200, "EXEC")).expect("it is sent");
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let reply = scope.spawn(|| {
            let reply = receive(&mut client, 200);
            ended.store(true, Relaxed);
            reply
        });
        let mut served = 0;
        while !ended.load(Relaxed) {
            assert_eq!(other.command("INCR n").expect("a reply"), Value::Integer(served + 1));
            assert!(other.command("SCRIPT KILL").expect("a reply").is_error("NOTBUSY"));
            served += 1;
        }
        // A worker may take one or two before the transaction.
        assert!(served > 2, "{served} requests were served");
        assert!(is_done(&reply.join().expect("no panic")));
    });
    assert_eq!(nodes.ask(0, "LLEN l"), Value::Integer(100_001));

    // It does not wait for scripts.
    let mut scripts = nodes.client(0);
    scripts.send_raw(b"EVAL \"while true do end\" 0\r\n").expect("it is sent");
    client.send_raw(&large_transaction(30, "EXEC")).expect("it is sent");
    assert!(is_done(&receive(&mut client, 30)));
    eventually("the script is killed", || nodes.ask(0, "SCRIPT KILL") == Value::ok());
    assert!(scripts.receive().expect("a reply").is_error("ERR"));

    for _ in 0..2 {
        client.send_raw(&large_transaction(30, "ONCE me 1 EXEC")).expect("it is sent");
        assert!(is_done(&receive(&mut client, 30)));
        assert_eq!(nodes.ask(0, "LLEN l"), Value::Integer(100_003), "it runs once");
    }
}
