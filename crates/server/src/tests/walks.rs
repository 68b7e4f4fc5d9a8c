//! `SCAN`, `KEYS`, `DBSIZE`, `RANDOMKEY` and the flushes.

use std::cell::Cell;
use std::collections::BTreeSet;

use node::status::DatabaseFigures;
use types::Outcome;

use super::world::{Connection, World};

fn filled(count: usize) -> (World, Connection) {
    let mut world = World::new(None);
    let mut client = world.connect();
    let bytes: Vec<u8> =
        (0..count).flat_map(|number| format!("SET key:{number} v\r\n").into_bytes()).collect();
    world.say(&mut client, &bytes);
    (world, client)
}

/// The bulk strings of a reply that holds only them and headers.
fn strings(reply: &str) -> Vec<String> {
    let lines = reply.split("\r\n").filter(|line| !line.is_empty());
    lines.filter(|line| !line.starts_with(['*', '$'])).map(str::to_string).collect()
}

fn scan_all(world: &mut World, client: &mut Connection, options: &str) -> (Vec<String>, usize) {
    let (mut cursor, mut found, mut steps) = ("0".to_string(), Vec::new(), 0);
    loop {
        let mut page = strings(&world.ask(client, &format!("SCAN {cursor} {options}")));
        cursor = page.remove(0);
        found.extend(page);
        steps += 1;
        if cursor == "0" {
            return (found, steps);
        }
        assert!(steps < 10_000, "the cursor never came back to 0");
    }
}

#[test]
fn a_scan_returns_each_key_once() {
    for count in [0, 1, 10, 300, 5_000] {
        let (mut world, mut client) = filled(count);
        for options in ["", "COUNT 1", "COUNT 7", "COUNT 1000", "COUNT 100000000"] {
            let (found, _) = scan_all(&mut world, &mut client, options);
            assert_eq!(found.len(), count, "{count} keys, {options:?}");
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), count, "{options:?}");
        }
    }
}

fn cursors(world: &mut World, client: &mut Connection, options: &str) -> Vec<u64> {
    let mut cursors = vec![0];
    loop {
        let cursor = cursors[cursors.len() - 1];
        let page = strings(&world.ask(client, &format!("SCAN {cursor} {options}")));
        match page[0].parse().expect("a cursor is a number") {
            0 => return cursors,
            next => cursors.push(next),
        }
    }
}

#[test]
fn cursors_fit_a_javascript_number() {
    let (mut world, mut client) = filled(5_000);
    for options in ["COUNT 1", "COUNT 100"] {
        let cursors = cursors(&mut world, &mut client, options);
        assert!(cursors.is_sorted_by(|a, b| a < b), "each step goes on");
        assert!(cursors.iter().all(|&cursor| cursor < 1 << 53), "{cursors:?}");
    }
}

#[test]
fn keys_that_share_a_cursor_are_all_returned() {
    for (shared, undecided_of) in [(2, 8), (1_500, u64::MAX), (5_000, 3)] {
        let mut world = World::new(None);
        world.undecided_of = undecided_of;
        let mut client = world.connect();
        let mut put = |hash: u64| {
            let key = format!("key:{hash:x}").into_bytes();
            world.registers.insert((0, hash, key), bytes::Bytes::from_static(b"v"));
        };
        // One cursor has up to 4,096 positions; several keys may have one of them.
        (0..shared).for_each(|number| put((0x1234_5678_9abc << 12) + number));
        for number in 0..50 {
            put(number << 58);
            put((0x1234_5678_9abc + number) << 12 | 0xfff);
        }
        world.registers.insert((0, u64::MAX, b"last".to_vec()), bytes::Bytes::from_static(b"v"));
        let count = world.registers.len();
        // Keys are asked about by position here, so an undecided one would not be found.
        world.fate = |_, _| Some(Outcome::Reply(types::Reply::Integer(1)));
        for options in ["COUNT 1", "COUNT 10", "COUNT 1000", "COUNT 100000"] {
            let (found, _) = scan_all(&mut world, &mut client, options);
            assert_eq!(found.len(), count, "{shared} keys share a cursor, {options}");
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), count, "{options}");
            assert!(cursors(&mut world, &mut client, options).is_sorted_by(|a, b| a < b));
        }
    }
}

#[test]
fn cursors_beyond_the_keyspace_end_a_scan() {
    let (mut world, mut client) = filled(100);
    for cursor in ["-1", "4503599627370496", "18446744073709551615"] {
        let said = world.ask(&mut client, &format!("SCAN {cursor}"));
        assert_eq!(said, "*2\r\n$1\r\n0\r\n*0\r\n", "{cursor}");
    }
    for cursor in ["x", "1x", "18446744073709551616"] {
        let said = world.ask(&mut client, &format!("SCAN {cursor}"));
        assert_eq!(said, "-ERR invalid cursor\r\n", "{cursor}");
    }
}

#[test]
fn a_scan_of_few_keys_takes_one_step() {
    let (mut world, mut client) = filled(5);
    let (found, steps) = scan_all(&mut world, &mut client, "");
    assert_eq!((found.len(), steps), (5, 1));
}

#[test]
fn a_scan_filters_by_pattern_and_type() {
    let (mut world, mut client) = filled(100);
    let (found, _) = scan_all(&mut world, &mut client, "MATCH key:1? COUNT 3");
    assert_eq!(found.len(), 10);
    assert_eq!(scan_all(&mut world, &mut client, "TYPE hash").0.len(), 0);
    assert_eq!(scan_all(&mut world, &mut client, "TYPE string").0.len(), 100);
}

#[test]
fn scan_finds_keys_of_one_type() {
    let (mut world, mut client) = filled(60);
    for number in 0..40 {
        let line = if number % 2 == 0 { "RPUSH list" } else { "SADD set" };
        world.ask(&mut client, &format!("{line}:{number} v"));
    }
    for undecided_of in [1, 8, u64::MAX] {
        world.undecided_of = undecided_of;
        for options in ["", "COUNT 1", "COUNT 7", "COUNT 1000"] {
            let mut scan = |filter: &str| {
                let options = format!("{options} {filter}");
                let (found, _) = scan_all(&mut world, &mut client, &options);
                let different: BTreeSet<&String> = found.iter().collect();
                assert_eq!(different.len(), found.len(), "{options}");
                found.len()
            };
            assert_eq!(scan("TYPE string"), 60);
            assert_eq!(scan("TYPE LIST"), 20);
            assert_eq!(scan("type Set MATCH set:1*"), 6);
            assert_eq!(scan("TYPE zset"), 0);
            assert_eq!(scan("TYPE lists"), 0);
            assert_eq!(scan("TYPE \"\""), 0);
        }
    }
}

#[test]
fn keys_and_dbsize_see_everything() {
    let (mut world, mut client) = filled(3_000);
    assert_eq!(world.ask(&mut client, "DBSIZE"), ":3000\r\n");
    assert_eq!(strings(&world.ask(&mut client, "KEYS *")).len(), 3_000);
    assert_eq!(strings(&world.ask(&mut client, "KEYS key:299?")).len(), 10);
    assert_eq!(world.ask(&mut client, "KEYS nothing"), "*0\r\n");
}

#[test]
fn dbsize_lists_few_keys_and_tells_the_count_of_many() {
    let (mut world, mut client) = filled(300);
    for (count, reply, lists) in [(99_999, ":300\r\n", true), (100_000, ":100000\r\n", false)] {
        let figures = DatabaseFigures { index: 0, keys: count, expiring: 7, bytes: 1_000_000 };
        let other = DatabaseFigures { index: 3, keys: 5, ..figures };
        world.node.databases =
            vec![figures, DatabaseFigures { index: 2, ..Default::default() }, other];
        let before = world.listings;
        assert_eq!(world.ask(&mut client, "DBSIZE"), reply);
        assert_eq!(world.listings > before, lists);
        let info = world.ask(&mut client, "INFO keyspace");
        let lines = format!("# Keyspace\r\ndb0:keys={count},expires=7\r\ndb3:keys=5,expires=7\r\n");
        assert!(info.contains(&lines), "{info}");
        assert!(!info.contains("db2"), "an empty database is left out: {info}");
    }
    assert_eq!(world.say(&mut client, b"SELECT 3\r\nDBSIZE\r\n"), "+OK\r\n:0\r\n");
}

#[test]
fn what_a_listing_cannot_vouch_for_is_read() {
    let (mut world, mut client) = filled(2_500);
    for number in 0..500 {
        world.ask(&mut client, &format!("DEL key:{number}"));
    }
    world.undecided_of = 1;
    assert_eq!(world.ask(&mut client, "DBSIZE"), ":2000\r\n");
    let found: BTreeSet<String> = strings(&world.ask(&mut client, "KEYS *")).into_iter().collect();
    let expected: BTreeSet<String> = (500..2_500).map(|number| format!("key:{number}")).collect();
    assert!(found == expected, "{} keys", found.len());
    assert_eq!(scan_all(&mut world, &mut client, "COUNT 7").0.len(), 2_000);
    for _ in 0..50 {
        assert!(expected.contains(&strings(&world.ask(&mut client, "RANDOMKEY"))[0]));
    }
    assert_eq!(world.ask(&mut client, "FLUSHALL"), "+OK\r\n");
    assert_eq!(world.registers.len(), 0);
    assert_eq!(world.ask(&mut client, "RANDOMKEY"), "$-1\r\n");
}

#[test]
fn a_key_that_cannot_be_read_is_neither_listed_nor_left_out() {
    let (mut world, mut client) = filled(100);
    world.undecided_of = 1;
    world.fate = |key, _| (key.bytes() == b"key:7").then_some(Outcome::NoQuorum);
    for line in ["DBSIZE", "KEYS *", "SCAN 0 COUNT 1000"] {
        let reply = world.ask(&mut client, line);
        assert!(reply.starts_with("-CLUSTERDOWN"), "{line}: {reply}");
    }
    // One answer that does not come in time is no reason to begin again.
    thread_local!(static FAILURES: Cell<u32> = const { Cell::new(0) });
    world.fate = |key, _| {
        FAILURES.set(FAILURES.get() + u32::from(key.bytes() == b"key:7"));
        (key.bytes() == b"key:7" && FAILURES.get() < 3).then_some(Outcome::NoQuorum)
    };
    assert_eq!(world.ask(&mut client, "DBSIZE"), ":100\r\n");
    assert_eq!(FAILURES.get(), 3);
}

#[test]
fn a_random_key_is_one_of_those_that_exist() {
    let (mut world, mut client) = filled(0);
    assert_eq!(world.ask(&mut client, "RANDOMKEY"), "$-1\r\n");
    world.ask(&mut client, "SET alone v");
    for _ in 0..50 {
        assert_eq!(world.ask(&mut client, "RANDOMKEY"), "$5\r\nalone\r\n");
    }
}

#[test]
fn deleted_keys_cost_a_walk_few_listings() {
    let (mut world, mut client) = filled(10_000);
    assert_eq!(world.ask(&mut client, "FLUSHALL"), "+OK\r\n");
    for (line, reply) in [("RANDOMKEY", "$-1\r\n"), ("SCAN 0", "*2\r\n$1\r\n0\r\n*0\r\n")] {
        let before = world.listings;
        assert_eq!(world.ask(&mut client, line), reply);
        // One for each shard, and a few until it is known how little they hold.
        let listings = world.listings - before;
        assert!(listings < 400, "{line} took {listings} listings");
    }
}

#[test]
fn a_scan_through_deleted_keys_keeps_to_its_count() {
    let (mut world, mut client) = filled(4_000);
    for number in 0..3_000 {
        world.ask(&mut client, &format!("DEL key:{number}"));
    }
    let mut cursor = "0".to_string();
    let mut found = BTreeSet::new();
    loop {
        let mut page = strings(&world.ask(&mut client, &format!("SCAN {cursor} COUNT 3")));
        cursor = page.remove(0);
        assert!(page.len() <= 3, "{} keys where 3 were asked for", page.len());
        found.extend(page);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 1_000);
}

#[test]
fn random_keys_are_not_always_the_same() {
    let (mut world, mut client) = filled(50);
    let drawn: BTreeSet<String> = (0..500).map(|_| world.ask(&mut client, "RANDOMKEY")).collect();
    assert!(drawn.len() > 30, "{} of 50 keys in 500 draws", drawn.len());
}

#[test]
fn flushdb_spares_other_databases_and_flushall_does_not() {
    let (mut world, mut client) = filled(700);
    world.say(&mut client, b"SELECT 3\r\nSET c v\r\nSELECT 1\r\nSET b v\r\n");
    assert_eq!(world.ask(&mut client, "FLUSHDB"), "+OK\r\n");
    assert_eq!(world.registers.len(), 701);
    assert_eq!(world.ask(&mut client, "FLUSHALL"), "+OK\r\n");
    assert_eq!(world.registers.len(), 0);
}
