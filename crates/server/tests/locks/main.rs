//! Commands of clients on keys that the transaction of a dead process still holds.

mod world;

use node::config::Durability;

use world::{Resp, World};

/// The keys `a0` to `a5` hold `1`, and `b1` to `b5` are absent. All but `a0` are locked.
///
/// The transactions of `a1`, `b1`, `a2` and `b2` are undecided, those of `a3` and `b3` aborted. The
/// others are committed: they delete `a4` and `b4`, and copy `a0` to `a5` and `b5`.
fn world_of_locks(durability: Durability) -> World {
    let world = World::start(durability);
    let mut client = world.client(0);
    for number in 0..6 {
        assert_eq!(client.ask(&format!("SET a{number} 1")), "OK");
    }
    plant(&world);
    world
}

fn plant(world: &World) {
    let mut planter = world.planter(1);
    for (key, number) in ["a", "b"].iter().flat_map(|key| (1..6).map(move |number| (key, number))) {
        let name = format!("{key}{number}");
        // A record lies in the shard of its transaction's first key, so each key has its own.
        let transaction = number + if *key == "a" { 0 } else { 10 };
        let version = planter.take(&name, transaction);
        let decided = match number {
            3 => planter.ask(&format!("abort {name} {transaction}")),
            4 => planter.ask(&format!("delete {name} {transaction} {version}")),
            5 => planter.ask(&format!("copy {name} {transaction} {version} a0")),
            _ => continue,
        };
        assert_eq!(decided, "done");
    }
}

const KEYS: [&str; 11] = ["a0", "a1", "a2", "a3", "a4", "a5", "b1", "b2", "b3", "b4", "b5"];

/// No key is locked any more.
#[track_caller]
fn assert_free(world: &World, keys: &[&str]) {
    let mut planter = world.planter(2);
    for key in keys {
        assert!(!planter.is_locked(key), "{key} is still locked");
    }
}

#[test]
fn listings_show_what_transactions_leave() {
    let world = world_of_locks(Durability::Volatile);
    let mut client = world.client(0);
    let expected = "[a0 a1 a2 a3 a5 b5]";
    assert_eq!(client.ask("KEYS *"), expected);
    assert_eq!(world.client(1).ask("DBSIZE"), "6");
    let mut third = world.client(2);
    assert_eq!(third.ask("SCAN 0 COUNT 10000"), format!("[0 {expected}]"));
    assert_eq!(third.ask("EXISTS a1 a2 a3 a4 a5 b1 b2 b3 b4 b5"), "5");
    assert_free(&world, &KEYS);
    assert_eq!(client.ask("MGET a4 a5 b1 b5"), "[1 1 nil nil]");
    // Records of transactions are no keys, whatever the database.
    client.ask("SELECT 1");
    assert_eq!(client.ask("KEYS *"), "[]");
    assert_eq!(client.ask("DBSIZE"), "0");
}

#[test]
fn reads_and_deletes_end_locks_of_dead_processes() {
    let world = world_of_locks(Durability::Volatile);
    let mut client = world.client(0);
    let values: Vec<String> = KEYS.iter().map(|key| client.ask(&format!("GET {key}"))).collect();
    assert_eq!(values.join(" "), "1 1 1 1 nil 1 nil nil nil nil 1");
    assert_free(&world, &KEYS);
    plant(&world);
    let deleted: Vec<String> =
        KEYS.iter().map(|key| world.client(2).ask(&format!("DEL {key}"))).collect();
    assert_eq!(deleted.join(" "), "1 1 1 1 0 1 0 0 0 0 1");
    assert_free(&world, &KEYS);
    assert_eq!(client.ask("DBSIZE"), "0");
    assert_eq!(client.ask("KEYS *"), "[]");
}

#[test]
fn flushes_remove_keys_under_locks_of_dead_processes() {
    for (flush, durability) in [("FLUSHALL", Durability::Disk), ("FLUSHDB", Durability::Volatile)] {
        let world = world_of_locks(durability);
        let mut client = world.client(2);
        assert_eq!(client.ask(flush), "OK");
        assert_eq!(client.ask("DBSIZE"), "0");
        assert_eq!(world.client(0).ask("KEYS *"), "[]");
        assert_eq!(client.ask("EXISTS a0 a1 a2 a3 a4 a5 b1 b2 b3 b4 b5"), "0");
        assert_free(&world, &KEYS);
    }
}

#[test]
fn expired_key_under_a_lock_of_a_dead_process_goes() {
    let world = World::start(Durability::Volatile);
    let mut client = world.client(0);
    for key in ["x", "y", "z"] {
        assert_eq!(client.ask(&format!("SET {key} 1 PX 200")), "OK");
    }
    let mut planter = world.planter(1);
    for (number, key) in [(1, "x"), (2, "y"), (3, "z")] {
        planter.take(key, number);
    }
    world.client(1).ask_until("GET x", "nil");
    // Without any command on it, too.
    let end = std::time::Instant::now() + world::PATIENCE;
    while planter.is_locked("y") || planter.is_locked("z") {
        assert!(std::time::Instant::now() < end, "no node ends the locks");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    client.ask_until("DBSIZE", "0");
}

/// A transaction settles its keys, and forgets its record, after its client has the answer.
#[test]
fn stopped_node_leaves_no_locks() {
    let world = World::start(Durability::Disk);
    let name = |client: usize, number: usize| format!("k{client}-{number}");
    let mut clients: Vec<Resp> = (0..8).map(|_| world.client(0)).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        let pairs: Vec<String> = (0..100).map(|number| format!("{} 1", name(at, number))).collect();
        (0..5).for_each(|_| client.send(&format!("MSET {}", pairs.join(" "))));
    }
    assert!(clients.iter_mut().all(|client| client.reply() == "OK"));
    world.cluster.nodes()[0].stop();
    assert_eq!(world.cluster.nodes()[0].join(), Ok(()));
    let mut planter = world.planter(1);
    assert_eq!(planter.ask("records"), "0");
    let keys = (0..8).flat_map(|client| (0..100).map(move |number| name(client, number)));
    let locked: Vec<String> = keys.filter(|key| planter.is_locked(key)).collect();
    assert_eq!(locked, Vec::<String>::new());
}
