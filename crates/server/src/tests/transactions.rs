//! `MULTI` and `EXEC`: a refused transaction runs nothing.

use super::world::World;

const REFUSED: &str = "-ERR transactions are not supported yet\r\n";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.\r\n";

/// Each line with its reply; `&` stands for a refused command, `!` for an aborted transaction.
fn check(talk: &[(&str, &str)]) -> World {
    let mut world = World::new(None);
    let mut client = world.connect();
    for (line, reply) in talk {
        let expected = match *reply {
            "&" => REFUSED.to_string(),
            "!" => ABORTED.to_string(),
            other => format!("{other}\r\n"),
        };
        assert_eq!(world.ask(&mut client, line), expected, "{line} of {talk:?}");
    }
    world
}

#[test]
fn refused_transactions_run_nothing() {
    let lines = ["SET a 1", "INCR b", "DEL a b", "MGET a b", "FLUSHALL", "SELECT 1", "KEYS *"];
    let more = ["PING", "CLIENT REPLY OFF", "CONFIG SET save x", "ONCE s 1 INCR a", "UNWATCH"];
    for line in lines.into_iter().chain(more) {
        let world = check(&[
            ("SET kept 1", "+OK"),
            ("MULTI", "+OK"),
            (line, "&"),
            ("EXEC", "!"),
            ("PING", "+PONG"),
            ("GET kept", "$1\r\n1"),
        ]);
        assert_eq!(world.registers.len(), 1, "{line} had an effect");
    }
}

#[test]
fn discard_ends_a_transaction() {
    check(&[
        ("MULTI", "+OK"),
        ("SET a 1", "&"),
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

/// Replies of redis-server 7.0.15.
#[test]
fn misplaced_commands_are_refused_as_in_redis() {
    check(&[
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("UNWATCH", "+OK"),
        ("WATCH a", "&"),
        ("WATCH", "-ERR wrong number of arguments for 'watch' command"),
        ("MULTI", "+OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
        ("EXEC", "*0"),
    ]);
}

#[test]
fn wrong_commands_abort_a_transaction() {
    let unknown = "-ERR unknown command 'NOSUCH', with args beginning with: ";
    let arity = "-ERR wrong number of arguments for 'get' command";
    for (line, reply) in [("NOSUCH", unknown), ("GET", arity)] {
        check(&[("MULTI", "+OK"), (line, reply), ("EXEC", "!"), ("PING", "+PONG")]);
    }
}

#[test]
fn reset_and_quit_leave_a_transaction() {
    check(&[
        ("MULTI", "+OK"),
        ("SET a 1", "&"),
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
fn pipelined_transactions_are_refused_whole() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let said = world.say(
        &mut client,
        b"SET a 1\r\nMULTI\r\nINCR a\r\nDBSIZE\r\nEXEC\r\nGET a\r\nMULTI\r\nEXEC\r\n",
    );
    assert_eq!(said, format!("+OK\r\n+OK\r\n{REFUSED}{REFUSED}{ABORTED}$1\r\n1\r\n+OK\r\n*0\r\n"));
}
