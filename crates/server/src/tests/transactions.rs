//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`, and commands on several keys.

use super::world::{Connection, World};

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";

/// Each line with its reply, without the last line end.
fn check(talk: &[(&str, &str)]) -> World {
    let mut world = World::new(None);
    let mut client = world.connect();
    for (line, reply) in talk {
        assert_eq!(world.ask(&mut client, line), format!("{reply}\r\n"), "{line} of {talk:?}");
    }
    world
}

#[test]
fn transaction_runs_on_one_key() {
    check(&[
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("LPUSH a x", "+QUEUED"),
        ("GET a", "+QUEUED"),
        (
            "EXEC",
            "*4\r\n+OK\r\n:2\r\n-WRONGTYPE Operation against a key holding the wrong kind of value\r\n$1\r\n2",
        ),
        ("GET a", "$1\r\n2"),
    ]);
}

#[test]
fn transaction_runs_on_several_keys() {
    check(&[
        ("SET a 5", "+OK"),
        ("MULTI", "+OK"),
        ("DECRBY a 2", "+QUEUED"),
        ("INCRBY b 2", "+QUEUED"),
        ("MGET a b c", "+QUEUED"),
        ("DEL c a", "+QUEUED"),
        ("EXEC", "*4\r\n:3\r\n:2\r\n*3\r\n$1\r\n3\r\n$1\r\n2\r\n$-1\r\n:1"),
        ("EXISTS a b", ":1"),
    ]);
}

#[test]
fn commands_on_several_keys_run() {
    check(&[
        ("MSET a 1 b 2", "+OK"),
        ("MSETNX c 1 a 2", ":0"),
        ("EXISTS c", ":0"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
        ("RENAME a d", "+OK"),
        ("MGET a b d", "*3\r\n$-1\r\n$1\r\n2\r\n$1\r\n1"),
    ]);
}

#[test]
fn discard_ends_a_transaction() {
    check(&[
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("GET a", "$-1"),
        ("SET a 2", "+OK"),
        ("MULTI", "+OK"),
        ("DISCARD", "+OK"),
        ("GET a", "$1\r\n2"),
    ]);
}

#[test]
fn empty_transactions_run() {
    check(&[("MULTI", "+OK"), ("EXEC", "*0"), ("EXEC", "-ERR EXEC without MULTI")]);
}

#[test]
fn watched_key_that_changes_aborts() {
    let mut world = World::new(None);
    let (mut one, mut other) = (world.connect(), world.connect());
    for (changes, reply) in [(false, "*1\r\n+OK\r\n"), (true, "*-1\r\n")] {
        assert_eq!(world.ask(&mut one, "WATCH a b"), "+OK\r\n");
        if changes {
            assert_eq!(world.ask(&mut other, "SET b x"), "+OK\r\n");
        }
        assert_eq!(world.ask(&mut one, "MULTI"), "+OK\r\n");
        assert_eq!(world.ask(&mut one, "SET a 1"), "+QUEUED\r\n");
        assert_eq!(world.ask(&mut one, "EXEC"), reply);
    }
    // Neither UNWATCH nor the end of a transaction leaves a key watched.
    for line in ["UNWATCH", "EXEC", "PING"] {
        world.ask(&mut one, "WATCH a");
        world.ask(&mut one, line);
        world.ask(&mut one, "UNWATCH");
        world.ask(&mut other, "INCR a");
        assert_eq!(world.ask(&mut one, "MULTI"), "+OK\r\n");
        assert_eq!(world.ask(&mut one, "SET a 1"), "+QUEUED\r\n");
        assert_eq!(world.ask(&mut one, "EXEC"), "*1\r\n+OK\r\n", "{line}");
    }
}

#[test]
fn watched_keys_are_of_one_database() {
    let error = "-ERR the watched keys are of another database";
    check(&[
        ("WATCH a", "+OK"),
        ("SELECT 1", "+OK"),
        ("WATCH a", error),
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("EXEC", error),
        ("GET a", "$-1"),
    ]);
}

/// Replies of redis-server 7.0.15.
#[test]
fn misplaced_commands_are_refused_as_in_redis() {
    check(&[
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("UNWATCH", "+OK"),
        ("WATCH", "-ERR wrong number of arguments for 'watch' command"),
        ("MULTI", "+OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
        ("EXEC", "*0"),
    ]);
}

#[test]
fn refused_command_aborts_a_transaction() {
    let unknown = "-ERR unknown command 'NOSUCH', with args beginning with: ";
    let arity = "-ERR wrong number of arguments for 'get' command";
    for (line, reply) in [
        ("NOSUCH", unknown),
        ("GET", arity),
        ("FLUSHALL", "-ERR 'flushall' is not supported inside MULTI"),
        ("ONCE s 1 INCR a", "-ERR 'once' is not supported inside MULTI"),
    ] {
        let world = check(&[
            ("SET kept 1", "+OK"),
            ("MULTI", "+OK"),
            ("SET a 1", "+QUEUED"),
            (line, reply),
            ("SET b 1", "+QUEUED"),
            ("EXEC", ABORTED),
            ("PING", "+PONG"),
        ]);
        assert_eq!(world.registers.len(), 1, "{line} had an effect");
    }
}

#[test]
fn reset_and_quit_leave_a_transaction() {
    check(&[
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("RESET", "+RESET"),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("GET a", "$-1"),
    ]);
    let mut world = World::new(None);
    let mut client = world.connect();
    assert_eq!(world.ask(&mut client, "MULTI"), "+OK\r\n");
    assert_eq!(world.ask(&mut client, "QUIT"), "+OK\r\n");
    assert!(client.wants_close());
}

#[test]
fn pipelined_transactions_keep_their_order() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let said = world.say(
        &mut client,
        b"SET a 1\r\nMULTI\r\nINCR a\r\nSET b 7\r\nEXEC\r\nGET a\r\nMSET a 9 c 1\r\nGET a\r\n",
    );
    assert_eq!(
        said,
        "+OK\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:2\r\n+OK\r\n$1\r\n2\r\n+OK\r\n$1\r\n9\r\n"
    );
}

#[test]
fn transaction_has_a_greatest_size() {
    let mut world = World::new(None);
    let mut client = world.connect();
    assert_eq!(world.ask(&mut client, "MULTI"), "+OK\r\n");
    let value = "x".repeat(9 << 20);
    let request = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{value}\r\n", value.len());
    for _ in 0..3 {
        assert_eq!(world.say(&mut client, request.as_bytes()), "+QUEUED\r\n");
    }
    let refusal = "-ERR transaction is too large (max 33554432 bytes)\r\n";
    assert_eq!(world.say(&mut client, request.as_bytes()), refusal);
    assert_eq!(world.ask(&mut client, "EXEC"), format!("{ABORTED}\r\n"));
}

#[test]
fn random_replies_of_a_transaction_differ() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let members: Vec<String> = (0..500).map(|number| number.to_string()).collect();
    world.ask(&mut client, &format!("SADD s {}", members.join(" ")));
    world.ask(&mut client, "MULTI");
    (0..5).for_each(|_| _ = world.ask(&mut client, "SRANDMEMBER s"));
    let replies = world.ask(&mut client, "EXEC");
    let drawn: std::collections::BTreeSet<&str> =
        replies.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
    assert!(drawn.len() > 1, "{replies}");
}

#[test]
fn keys_that_are_watched_twice_count_once() {
    let keys: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
    let watch = format!("WATCH {} k0", keys.join(" "));
    check(&[(&watch, "+OK"), (&watch, "+OK")]);
}

/// Naming many keys costs about as much as reading the line.
#[test]
fn line_of_many_keys_is_taken_at_once() {
    let pairs: Vec<String> = (0..30_000).map(|number| format!("k{number} v")).collect();
    let mut world = World::new(None);
    let mut client = world.connect();
    let line = pairs.join(" ");
    let words: Vec<&str> = std::iter::once("MSET").chain(line.split(' ')).collect();
    let mut request = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
    assert_eq!(world.say(&mut client, request.as_bytes()), "+OK\r\n");
    assert_eq!(world.registers.len(), 30_000);
}

#[test]
fn commands_of_the_connection_run_in_exec() {
    check(&[
        ("MULTI", "+OK"),
        ("PING", "+QUEUED"),
        ("SET a 1", "+QUEUED"),
        ("CLIENT SETNAME me", "+QUEUED"),
        ("INCR b", "+QUEUED"),
        ("SELECT 0", "+QUEUED"),
        ("CLIENT GETNAME", "+QUEUED"),
        ("EXEC", "*6\r\n+PONG\r\n+OK\r\n+OK\r\n:1\r\n+OK\r\n$2\r\nme"),
        ("MULTI", "+OK"),
        ("PING hello", "+QUEUED"),
        ("UNWATCH", "+QUEUED"),
        ("EXEC", "*2\r\n$5\r\nhello\r\n+OK"),
        ("MULTI", "+OK"),
        ("GET a", "+QUEUED"),
        ("PING", "+QUEUED"),
        ("EXEC", "*2\r\n$1\r\n1\r\n+PONG"),
        ("MULTI", "+OK"),
        ("SELECT 1", "-ERR SELECT of another database is not supported inside MULTI"),
        ("EXEC", ABORTED),
    ]);
}

#[test]
fn overtaken_exec_runs_no_command_of_the_connection() {
    check(&[
        ("WATCH a", "+OK"),
        ("SET a 2", "+OK"),
        ("MULTI", "+OK"),
        ("CLIENT SETNAME me", "+QUEUED"),
        ("EXEC", "*-1"),
        ("CLIENT GETNAME", "$-1"),
    ]);
}

/// A hash of 30,000 fields.
fn with_large_hash() -> World {
    let mut world = World::new(None);
    let mut client = world.connect();
    for part in 0..10 {
        let fields = (0..3_000).map(|field| format!(" field:{part}:{field} value"));
        let line = format!("HSET h{}", fields.collect::<String>());
        assert_eq!(world.ask(&mut client, &line), ":3000\r\n");
    }
    world
}

/// `MULTI`, lines that take a worker too long, and `exec`.
fn large_transaction(world: &mut World, client: &mut Connection, exec: &str) -> String {
    assert_eq!(world.ask(client, "MULTI"), "+OK\r\n");
    for number in 0..50 {
        assert_eq!(world.ask(client, &format!("HSET h new{number} v")), "+QUEUED\r\n");
    }
    world.ask(client, exec)
}

#[test]
fn large_transaction_on_one_key_runs_elsewhere() {
    let mut world = with_large_hash();
    let mut client = world.connect();
    let replies = large_transaction(&mut world, &mut client, "EXEC");
    assert_eq!(replies, format!("*50\r\n{}", ":1\r\n".repeat(50)));
    assert_eq!(world.long_runs, 1);
    assert_eq!(world.ask(&mut client, "HLEN h"), ":30050\r\n");
    let replies = large_transaction(&mut world, &mut client, "ONCE me 1 EXEC");
    assert_eq!(replies, format!("*50\r\n{}", ":0\r\n".repeat(50)));
    assert_eq!(world.long_runs, 2);
}

#[test]
fn large_transaction_respects_watched_keys() {
    let mut world = with_large_hash();
    let (mut client, mut other) = (world.connect(), world.connect());
    for (change, reply) in [("PING", "*50"), ("HSET h field x", "*-1\r\n")] {
        assert_eq!(world.ask(&mut client, "WATCH h"), "+OK\r\n");
        world.ask(&mut other, change);
        assert!(large_transaction(&mut world, &mut client, "EXEC").starts_with(reply), "{change}");
    }
    assert_eq!(world.long_runs, 1);
}

#[test]
fn heavy_command_on_one_key_runs_elsewhere_in_order() {
    let mut world = World::new(None);
    let mut client = world.connect();
    for part in 0..4 {
        let elements = (0..5_000).map(|number| format!(" {}", 5_000 * part + number));
        let line = format!("RPUSH l{}", elements.collect::<String>());
        assert_eq!(world.ask(&mut client, &line), format!(":{}\r\n", 5_000 * (part + 1)));
    }
    let lines = "SORT l DESC LIMIT 0 1\r\nDEL l\r\nSORT l\r\nSORT l LIMIT x y\r\n";
    let replies = world.say(&mut client, lines.as_bytes());
    let wrong = "-ERR value is not an integer or out of range\r\n";
    assert_eq!(replies, format!("*1\r\n$5\r\n19999\r\n:1\r\n*0\r\n{wrong}"));
    assert_eq!(world.long_runs, 1);
    assert_eq!(world.ask(&mut client, "ONCE s 1 SORT l"), "*0\r\n");
}
