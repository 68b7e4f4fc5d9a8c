//! Statistics of commands. The expected lines are those of redis-server but for the times.

use base::Nanos;
use node::session::Shortage;
use types::Outcome;

use super::world::{Connection, World, request};

/// `INFO commandstats` without times, sorted: `name calls rejected failed`.
fn stats(world: &mut World, client: &mut Connection) -> Vec<String> {
    let said = world.ask(client, "INFO commandstats");
    let lines = said.lines().filter_map(|line| line.strip_prefix("cmdstat_"));
    let numbers = |line: &str| {
        let (name, fields) = line.split_once(':').expect("a name and its fields");
        let field = |name: &str| {
            let mut all = fields.split(',').filter_map(|field| field.split_once('='));
            all.find(|(one, _)| *one == name).map(|(_, value)| value.to_string()).unwrap()
        };
        format!("{name} {} {} {}", field("calls"), field("rejected_calls"), field("failed_calls"))
    };
    lines.map(numbers).collect()
}

#[test]
fn calls_failures_and_rejections_count_as_in_redis() {
    let mut world = World::new(None);
    let mut client = world.connect();
    for line in ["SET s text", "INCR s", "GET", "SETEX s 0 x", "SET s x NX XX", "CLIENT KILL x"] {
        world.ask(&mut client, line);
    }
    for line in ["NOSUCH", "CLIENT NOSUCH", "CLIENT", "CLIENT GETNAME x", "PING a b", "GET s"] {
        world.ask(&mut client, line);
    }
    let expected = [
        "client 0 1 0",
        "client|getname 0 1 0",
        "client|kill 1 0 1",
        "get 1 1 0",
        "incr 1 0 1",
        "ping 1 0 1",
        "set 2 0 1",
        "setex 1 0 1",
    ];
    assert_eq!(stats(&mut world, &mut client), expected);
    let said = world.ask(&mut client, "INFO errorstats");
    assert!(said.contains("errorstat_ERR:count=10\r\n"), "{said}");
}

#[test]
fn requests_refused_for_their_client_or_the_node_are_rejected() {
    let mut world = World::new(Some(b"secret"));
    let mut client = world.connect();
    for line in ["GET a", "HELLO 3", "AUTH wrong", "AUTH secret"] {
        world.ask(&mut client, line);
    }
    world.shortage = Shortage::OfGrowth;
    world.ask(&mut client, "SET a 1");
    world.shortage = Shortage::None;
    world.fate = |_, _| Some(Outcome::Loading);
    world.ask(&mut client, "DEL a b");
    world.fate = |_, _| Some(Outcome::NoQuorum);
    world.ask(&mut client, "MGET a b");
    let expected =
        ["auth 2 0 1", "del 0 1 0", "get 0 1 0", "hello 1 0 1", "mget 1 0 1", "set 0 1 0"];
    assert_eq!(stats(&mut world, &mut client), expected);
}

#[test]
fn times_run_until_the_reply_is_ready() {
    let mut world = World::new(None);
    let mut client = world.connect();
    world.send(&mut client, b"GET a\r\nEXISTS a b\r\nKEYS *\r\n");
    world.now += Nanos::from_millis(3);
    world.say(&mut client, b"");
    world.ask(&mut client, "WAIT 2 1000");
    world.pass(&mut client, Nanos::from_secs(2));
    let said = world.ask(&mut client, "INFO commandstats");
    let line = |name: &str, usec: u32| {
        format!(
            "cmdstat_{name}:calls=1,usec={usec},usec_per_call={usec}.00,rejected_calls=0,failed_calls=0\r\n"
        )
    };
    for expected in [line("get", 3_000), line("exists", 3_000), line("wait", 0)] {
        assert!(said.contains(&expected), "{expected} in {said}");
    }
    let said = world.ask(&mut client, "INFO latencystats");
    let expected = "latency_percentiles_usec_get:p50=3014.655,p99=3014.655,p99.9=3014.655\r\n";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_reset_begins_anew_and_counts_itself() {
    let mut world = World::new(None);
    let mut client = world.connect();
    for line in ["SET a 1", "GET a", "GET b", "NOSUCH", "CONFIG RESETSTAT", "GET b"] {
        world.ask(&mut client, line);
    }
    let expected = ["config|resetstat 1 0 0", "get 1 0 0"];
    assert_eq!(stats(&mut world, &mut client), expected);
    let said = world.ask(&mut client, "INFO");
    for field in ["keyspace_hits:0", "keyspace_misses:1", "total_error_replies:0"] {
        assert!(said.contains(&format!("{field}\r\n")), "{field} in {said}");
    }
}

#[test]
fn reads_count_hits_and_misses_by_key() {
    let mut world = World::new(None);
    let mut client = world.connect();
    world.ask(&mut client, "SET a 1");
    for line in ["GET a", "GET b", "MGET a b c", "EXISTS a b", "TTL a", "TTL b", "TYPE b"] {
        world.ask(&mut client, line);
    }
    for line in ["STRLEN a", "GETRANGE a 0 0", "INCR n", "DEL b", "GETDEL a", "TOUCH a"] {
        world.ask(&mut client, line);
    }
    let said = world.ask(&mut client, "INFO stats");
    for field in ["keyspace_hits:7", "keyspace_misses:7"] {
        assert!(said.contains(&format!("{field}\r\n")), "{field} in {said}");
    }
}

#[test]
fn lines_of_exec_count_as_calls() {
    let mut world = World::new(None);
    let mut client = world.connect();
    for line in ["MULTI", "SET a 1", "LPUSH a x", "PING", "GET b", "EXEC"] {
        world.ask(&mut client, line);
    }
    let expected =
        ["exec 1 0 0", "get 1 0 0", "lpush 1 0 1", "multi 1 0 0", "ping 1 0 0", "set 1 0 0"];
    assert_eq!(stats(&mut world, &mut client), expected);
}

/// The numbers are those of redis-server 7.4.1.
#[test]
fn calls_of_scripts_count() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let calls = "redis.call('set',KEYS[1],0) redis.call('GeT',KEYS[1]) redis.pcall('nosuch') \
                 redis.pcall('get') redis.pcall('incr','x','y') redis.pcall('lpush',KEYS[1],1) \
                 redis.pcall('config','get','x') return redis.call('object','encoding',KEYS[1])";
    for keys in [&["1", "x"][..], &["2", "x", "y"]] {
        world.say(&mut client, &request(&[&["EVAL", calls], keys].concat()));
        let expected = [
            "config|get 0 1 0",
            "eval 1 0 0",
            "get 1 1 0",
            "incr 0 1 0",
            "lpush 1 0 1",
            "object|encoding 1 0 0",
            "set 1 0 0",
        ];
        let found = stats(&mut world, &mut client);
        let found: Vec<&String> = found.iter().filter(|it| !it.contains("resetstat")).collect();
        assert_eq!(found, expected);
        world.ask(&mut client, "CONFIG RESETSTAT");
    }
}
