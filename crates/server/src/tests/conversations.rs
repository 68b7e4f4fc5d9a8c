//! Conversations: authentication, protocol versions, ends.

use std::sync::atomic::Ordering::Relaxed;

use base::Nanos;

use node::session::Shortage;

use super::world::{Connection, World};

#[test]
fn nothing_is_served_before_the_password() {
    let mut world = World::new(Some(b"pw"));
    let mut client = world.connect();
    for line in ["GET a", "PING", "CLIENT ID", "INFO", "MGET a b", "FLUSHALL", "COMMAND"] {
        assert_eq!(world.ask(&mut client, line), "-NOAUTH Authentication required.\r\n", "{line}");
    }
    // Answers of redis-server 7 before authentication.
    assert!(world.ask(&mut client, "NOSUCH a").starts_with("-ERR unknown command 'NOSUCH'"));
    assert!(world.ask(&mut client, "GET").starts_with("-ERR wrong number of arguments"));
    assert!(world.ask(&mut client, "CLIENT NOSUCH").starts_with("-ERR unknown subcommand"));
    assert!(world.ask(&mut client, "HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(world.ask(&mut client, "AUTH wrong").starts_with("-WRONGPASS "));
    assert!(world.ask(&mut client, "AUTH bob pw").starts_with("-WRONGPASS "));
    assert!(world.ask(&mut client, "HELLO 3 AUTH default wrong").starts_with("-WRONGPASS "));
    assert!(world.ask(&mut client, "PING").starts_with("-NOAUTH "));
    assert_eq!(world.ask(&mut client, "AUTH pw"), "+OK\r\n");
    assert_eq!(world.ask(&mut client, "GET a"), "$-1\r\n");
    assert!(world.ask(&mut client, "AUTH wrong").starts_with("-WRONGPASS "));
    assert_eq!(world.ask(&mut client, "PING"), "+PONG\r\n");
    assert_eq!(world.ask(&mut client, "RESET"), "+RESET\r\n");
    assert!(world.ask(&mut client, "PING").starts_with("-NOAUTH "));
}

#[test]
fn hello_changes_the_language_and_its_errors_do_not() {
    let mut world = World::new(None);
    let mut client = world.connect();
    assert!(world.ask(&mut client, "HELLO 4").starts_with("-NOPROTO "));
    assert!(world.ask(&mut client, "HELLO x").starts_with("-ERR Protocol version is not an int"));
    assert!(world.ask(&mut client, "HELLO 3 NOSUCH").starts_with("-ERR Syntax error in HELLO"));
    assert_eq!(world.ask(&mut client, "GET a"), "$-1\r\n");
    assert!(world.ask(&mut client, "HELLO 3 AUTH default any SETNAME me").starts_with("%7\r\n"));
    assert_eq!(world.ask(&mut client, "GET a"), "_\r\n");
    assert_eq!(world.ask(&mut client, "CLIENT GETNAME"), "$2\r\nme\r\n");
    assert_eq!(world.ask(&mut client, "RESET"), "+RESET\r\n");
    assert_eq!(world.ask(&mut client, "CLIENT GETNAME"), "$-1\r\n");
    assert!(world.ask(&mut client, "HELLO").starts_with("*14\r\n"));
}

/// Replies of redis-server 7.0.15.
#[test]
fn replies_can_be_switched_off() {
    let talks = [
        ("CLIENT REPLY OFF;PING;CLIENT REPLY ON;PING", "+OK\r\n+PONG\r\n"),
        ("CLIENT REPLY SKIP;PING;PING", "+PONG\r\n"),
        ("CLIENT REPLY SKIP;CLIENT REPLY ON;PING", "+OK\r\n+PONG\r\n"),
        ("CLIENT REPLY OFF;CLIENT REPLY SKIP;PING;CLIENT REPLY ON;PING", "+OK\r\n+PONG\r\n"),
        ("CLIENT REPLY SKIP;GET a;GET a", "$-1\r\n"),
        ("CLIENT REPLY OFF;GET a;NOSUCH;RESET", "+RESET\r\n"),
        ("CLIENT REPLY OFF;SET a 1;CLIENT REPLY ON;GET a", "+OK\r\n$1\r\n1\r\n"),
    ];
    for (talk, replies) in talks {
        let mut world = World::new(None);
        let mut client = world.connect();
        assert_eq!(world.ask(&mut client, &talk.replace(';', "\r\n")), replies, "{talk}");
    }
}

#[test]
fn killed_client_that_stays_silent_ends_at_once() {
    let mut world = World::new(None);
    let (mut victim, mut other) = (world.connect(), world.connect());
    world.ask(&mut victim, "CLIENT SETNAME victim");
    assert!(world.ask(&mut other, "INFO clients").contains("connected_clients:2\r\n"));
    world.send(&mut victim, b"GET never\r\nWAIT 9 0\r\n");
    assert_eq!(world.ask(&mut other, "CLIENT KILL ID 1"), ":1\r\n");
    assert_eq!(world.node.steps.load(Relaxed), 1, "its worker is woken");
    assert!(!world.ask(&mut other, "CLIENT LIST").contains("victim"));
    assert!(world.ask(&mut other, "INFO clients").contains("connected_clients:1\r\n"));
    world.wake(&mut victim);
    assert!(victim.wants_close() && victim.is_gone(), "unread replies do not keep it");
    assert_eq!(world.ask(&mut other, "CLIENT KILL TYPE normal SKIPME no"), ":1\r\n");
    assert!(other.wants_close() && !other.is_gone(), "it reads the reply first");
}

#[test]
fn paused_client_counts_as_blocked() {
    let mut world = World::new(None);
    let (mut one, mut other) = (world.connect(), world.connect());
    assert_eq!(world.ask(&mut one, "CLIENT PAUSE 60000 WRITE"), "+OK\r\n");
    assert!(world.ask(&mut one, "INFO clients").contains("blocked_clients:0\r\n"));
    assert_eq!(world.ask(&mut other, "SET a 1"), "");
    assert!(world.ask(&mut one, "INFO clients").contains("blocked_clients:1\r\n"));
    let listed = world.ask(&mut one, "CLIENT LIST");
    let flags = |id: &str| {
        let line = listed.lines().find(|line| line.contains(&format!("id={id} "))).expect("a line");
        line.split(' ').find_map(|word| word.strip_prefix("flags=")).map(str::to_owned)
    };
    assert_eq!((flags("1").as_deref(), flags("2").as_deref()), (Some("N"), Some("b")));
    // A shorter pause does not end the longer one.
    assert_eq!(world.ask(&mut one, "CLIENT PAUSE 1 WRITE"), "+OK\r\n");
    world.pass(&mut other, Nanos::from_secs(1));
    assert!(world.ask(&mut one, "INFO clients").contains("blocked_clients:1\r\n"));
    let steps = world.node.steps.load(Relaxed);
    assert_eq!(world.ask(&mut one, "CLIENT UNPAUSE"), "+OK\r\n");
    assert!(world.node.steps.load(Relaxed) > steps, "held clients go on at once");
    world.wake(&mut other);
    assert_eq!(world.say(&mut other, b""), "+OK\r\n");
    assert!(world.ask(&mut one, "INFO clients").contains("blocked_clients:0\r\n"));
    world.send(&mut other, b"WAIT 9 0\r\n");
    assert!(world.ask(&mut one, "INFO clients").contains("blocked_clients:1\r\n"));
    drop(other);
    assert!(world.ask(&mut one, "INFO clients").contains("blocked_clients:0\r\n"));
}

#[test]
fn idle_client_ends_after_the_timeout() {
    let mut world = World::new(None);
    let (mut idle, mut busy) = (world.connect(), world.connect());
    world.wake(&mut idle);
    assert_eq!(world.ask(&mut busy, "CONFIG SET timeout 10"), "+OK\r\n");
    assert_eq!(world.node.steps.load(Relaxed), 1, "sessions hear of it");
    world.wake(&mut idle);
    world.pass(&mut idle, Nanos::from_secs(9));
    assert_eq!(world.ask(&mut idle, "PING"), "+PONG\r\n");
    world.pass(&mut idle, Nanos::from_secs(9));
    assert!(!idle.is_gone());
    world.pass(&mut idle, Nanos::from_secs(2));
    assert!(idle.is_gone());
    let mut blocked = world.connect();
    world.wake(&mut blocked);
    world.send(&mut blocked, b"WAIT 9 0\r\n");
    world.pass(&mut blocked, Nanos::from_secs(60));
    assert!(!blocked.is_gone(), "it waits for a reply");
}

#[test]
fn a_pause_of_writes_holds_writes_until_it_ends() {
    let mut world = World::new(None);
    let (mut one, mut other) = (world.connect(), world.connect());
    assert_eq!(world.ask(&mut one, "CLIENT PAUSE 60000 WRITE"), "+OK\r\n");
    assert_eq!(world.ask(&mut other, "GET a"), "$-1\r\n");
    assert_eq!(world.say(&mut other, b"SET a 1\r\nGET a\r\n"), "");
    assert_eq!(world.ask(&mut one, "CLIENT UNPAUSE"), "+OK\r\n");
    world.wake(&mut other);
    assert_eq!(world.say(&mut other, b""), "+OK\r\n$1\r\n1\r\n");
    world.ask(&mut one, "CLIENT PAUSE 60000");
    assert_eq!(world.ask(&mut other, "GET a"), "");
    world.pass(&mut other, Nanos::from_secs(61));
    assert_eq!(world.say(&mut other, b""), "$1\r\n1\r\n");
}

#[test]
fn writes_wait_while_storage_cannot_keep_up_and_reads_do_not() {
    let mut world = World::new(None);
    let (mut one, mut other) = (world.connect(), world.connect());
    world.writes_max = 2;
    let lines = b"SET a 1\r\nINCR a\r\nONCE me 1 INCR a\r\nGET a\r\n";
    world.send(&mut one, lines);
    assert_eq!(one.asks.len(), 2, "the third write waits, and what is behind it");
    world.writes_max = 0;
    assert_eq!(world.ask(&mut other, "GET b"), "$-1\r\n");
    assert_eq!(world.say(&mut other, b"PING\r\nDEL b c\r\nPING\r\n"), "+PONG\r\n");
    world.writes_max = usize::MAX;
    assert_eq!(world.say(&mut other, b""), ":0\r\n+PONG\r\n");
    assert_eq!(world.say(&mut one, b""), "+OK\r\n:2\r\n:3\r\n$1\r\n3\r\n");
}

#[test]
fn what_may_need_room_is_refused_while_there_is_none() {
    let mut world = World::new(None);
    let mut connection = world.connect();
    assert_eq!(world.ask(&mut connection, "SET key value"), "+OK\r\n");
    world.shortage = Shortage::OfGrowth;
    // Nor does it wait for other writes to end.
    world.writes_max = 0;
    for line in ["SET key other", "APPEND key more", "SETEX key 100 other", "ONCE s 1 INCR n"] {
        let said = world.ask(&mut connection, line);
        assert!(said.starts_with("-OOM command not allowed"), "{line}: {said}");
    }
    assert_eq!(world.ask(&mut connection, "GET key"), "$5\r\nvalue\r\n");
    world.writes_max = usize::MAX;
    assert_eq!(world.ask(&mut connection, "EXPIRE key 100"), ":1\r\n");
    assert_eq!(world.ask(&mut connection, "DEL key"), ":1\r\n");
    world.shortage = Shortage::OfWrites;
    world.writes_max = 0;
    let said = world.ask(&mut connection, "DEL key");
    assert!(said.starts_with("-OOM command not allowed"), "{said}");
    assert_eq!(world.ask(&mut connection, "GET key"), "$-1\r\n");
    (world.shortage, world.writes_max) = (Shortage::None, usize::MAX);
    assert_eq!(world.ask(&mut connection, "SET key value"), "+OK\r\n");
}

#[test]
fn wait_answers_at_once_what_a_majority_means_and_later_for_more() {
    let mut world = World::new(None);
    let mut client = world.connect();
    assert_eq!(world.ask(&mut client, "WAIT 1 0"), ":1\r\n");
    assert_eq!(
        world.say(&mut client, b"SET a 1\r\nWAIT 1 100\r\nPING\r\n"),
        "+OK\r\n:1\r\n+PONG\r\n"
    );
    assert_eq!(world.say(&mut client, b"WAIT 2 300\r\nPING\r\n"), "");
    world.pass(&mut client, Nanos::from_millis(299));
    assert_eq!(world.say(&mut client, b""), "");
    world.pass(&mut client, Nanos::from_millis(1));
    assert_eq!(world.say(&mut client, b""), ":1\r\n+PONG\r\n");
}

/// A wait whose time has passed ends when the next one comes, and the session gets no other call
/// for it.
#[test]
fn what_is_held_behind_waits_goes_on_when_the_last_of_them_ends_in_the_same_step() {
    let mut world = World::new(None);
    let mut client = world.connect();
    assert_eq!(world.say(&mut client, b"WAIT 2 300\r\n"), "");
    // Its timer is due, and the client's bytes come first.
    world.now += Nanos::from_millis(300);
    let said = world.say(&mut client, b"WAIT 1 0\r\nDBSIZE\r\nPING\r\n");
    assert_eq!(said, ":1\r\n:1\r\n:0\r\n+PONG\r\n");
}

#[test]
fn databases_that_are_not_served_cannot_be_selected() {
    let mut world = World::new(None);
    let mut client = world.connect();
    for index in ["4", "15", "16", "-1", "9999999999"] {
        let said = world.ask(&mut client, &format!("SELECT {index}"));
        assert!(said.starts_with("-ERR DB index is out of range"), "{said}");
    }
    assert_eq!(world.ask(&mut client, "SELECT 3"), "+OK\r\n");
}

#[test]
fn what_is_no_request_is_told_and_ends_the_connection() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let said = world.say(&mut client, b"SET a 1\r\n*1\r\nPING\r\nGET a\r\n");
    assert_eq!(said, "+OK\r\n-ERR Protocol error: expected '$', got 'P'\r\n");
    assert!(client.wants_close());
    let mut browser = world.connect();
    assert_eq!(world.say(&mut browser, b"POST / HTTP/1.1\r\nHost: x\r\n\r\nSET a 2\r\n"), "");
    assert!(browser.wants_close());
}

#[test]
fn a_value_too_large_is_refused_and_the_connection_stays() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let value = "x".repeat((1 << 20) + 1);
    let said = world.say(&mut client, &super::world::request(&["SET", "a", &value]));
    assert!(said.starts_with("-ERR value too large"), "{said}");
    assert_eq!(world.ask(&mut client, "PING"), "+PONG\r\n");
}

#[test]
fn settings_are_remembered_and_what_is_fixed_stays() {
    let mut world = World::new(None);
    let mut client = world.connect();
    assert_eq!(world.ask(&mut client, "CONFIG SET slowlog-max-len 7 save ''"), "+OK\r\n");
    let said = world.ask(&mut client, "CONFIG GET slowlog-max-len SAVE");
    assert_eq!(said, "*4\r\n$4\r\nSAVE\r\n$0\r\n\r\n$15\r\nslowlog-max-len\r\n$1\r\n7\r\n");
    assert!(world.ask(&mut client, "CONFIG SET nosuch 1").starts_with("-ERR Unknown option"));
    assert!(world.ask(&mut client, "CONFIG SET slowlog-max-len many").contains("integer"));
    assert!(world.ask(&mut client, "CONFIG SET activerehashing 1").contains("'yes' or 'no'"));
    assert_eq!(world.ask(&mut client, "CONFIG SET stream-node-max-bytes 4kb"), "+OK\r\n");
    assert!(world.ask(&mut client, "CONFIG SET port 1").contains("can't set immutable config"));
    assert!(world.ask(&mut client, "CONFIG SET notify-keyspace-events KEA").starts_with("-ERR"));
    assert_eq!(world.ask(&mut client, "CONFIG GET nosuch"), "*0\r\n");
}

#[test]
fn settings_of_clients_change_at_once() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let get = |world: &mut World, client: &mut Connection, name: &str| {
        let said = world.ask(client, &format!("CONFIG GET {name}"));
        said.lines().nth(4).unwrap_or_default().to_owned()
    };
    for (name, before, after) in
        [("timeout", "0", "300"), ("tcp-keepalive", "300", "60"), ("maxclients", "100", "50")]
    {
        assert_eq!(get(&mut world, &mut client, name), before);
        assert_eq!(world.ask(&mut client, &format!("CONFIG SET {name} {after}")), "+OK\r\n");
        assert_eq!(get(&mut world, &mut client, name), after);
    }
    assert!(world.ask(&mut client, "INFO clients").contains("maxclients:50\r\n"));
    let refused = [
        ("timeout 1 timeout 2", "'timeout') - duplicate parameter"),
        ("timeout 7 TIMEOUT 8", "'timeout') - duplicate parameter"),
        ("timeout abc", "'timeout') - argument couldn't be parsed into an integer"),
        ("timeout -1", "'timeout') - argument must be between 0 and 2147483647 inclusive"),
        ("maxclients 0", "'maxclients') - argument must be between 1 and 4294967295 inclusive"),
        (
            "maxclients 1001",
            "'maxclients') - The operating system is not able to handle the specified number of clients, \
             try with 1000",
        ),
        ("maxmemory x", "'maxmemory') - argument must be a memory value"),
        ("maxmemory 100mb", "'maxmemory') - can't set immutable config"),
        ("timeout 5 databases 16", "'databases') - can't set immutable config"),
    ];
    for (pairs, end) in refused {
        let said = world.ask(&mut client, &format!("CONFIG SET {pairs}"));
        let right = format!("-ERR CONFIG SET failed (possibly related to argument {end}\r\n");
        assert_eq!(said, right, "{pairs}");
    }
    let unknown = "-ERR Unknown option or number of arguments for CONFIG SET - 'nope'\r\n";
    assert_eq!(world.ask(&mut client, "CONFIG SET timeout 5 nope 2"), unknown);
    assert_eq!(world.ask(&mut client, "CONFIG SET timeout 5 nope"), "-ERR syntax error\r\n");
    assert_eq!(get(&mut world, &mut client, "timeout"), "300", "all pairs or none");
    assert_eq!(world.ask(&mut client, "CONFIG SET timeout 1 maxmemory 0kb"), "+OK\r\n");
    assert_eq!(
        world.ask(&mut client, "CONFIG GET time* tcp-k*"),
        "*4\r\n$13\r\ntcp-keepalive\r\n$2\r\n60\r\n$7\r\ntimeout\r\n$1\r\n1\r\n"
    );
}

#[test]
fn password_changes_for_new_clients() {
    let mut world = World::new(None);
    let (mut old, mut new) = (world.connect(), world.connect());
    assert_eq!(world.ask(&mut old, "CONFIG SET requirepass secret"), "+OK\r\n");
    assert_eq!(world.ask(&mut old, "PING"), "+PONG\r\n", "those that are in stay in");
    let mut late = world.connect();
    assert!(world.ask(&mut late, "PING").starts_with("-NOAUTH"));
    assert!(world.ask(&mut late, "AUTH wrong").starts_with("-WRONGPASS"));
    assert_eq!(world.ask(&mut late, "AUTH secret"), "+OK\r\n");
    assert_eq!(world.ask(&mut new, "CONFIG GET requirepass").lines().nth(4), Some("secret"));
    let mut shut_out = world.connect();
    assert!(world.ask(&mut shut_out, "PING").starts_with("-NOAUTH"));
    assert_eq!(world.ask(&mut late, "CONFIG SET requirepass ''"), "+OK\r\n");
    assert_eq!(world.ask(&mut shut_out, "PING"), "+PONG\r\n");
}

#[test]
fn info_has_what_clients_read() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let said = world.ask(&mut client, "INFO");
    let fields =
        ["redis_version:7.4.0", "arch_bits:64", "loading:0", "role:master", "cluster_enabled:0"];
    for field in fields {
        assert!(said.contains(&format!("\r\n{field}\r\n")), "{field} in {said}");
    }
    assert!(!said.contains("# Commandstats"));
    assert!(world.ask(&mut client, "INFO commandstats").contains("cmdstat_info:calls=1"));
    assert_eq!(world.ask(&mut client, "INFO nosuch"), "$0\r\n\r\n");
}

#[test]
fn a_client_list_tells_what_each_did_last_and_when() {
    let mut world = World::new(None);
    let (mut one, mut two, mut new) = (world.connect(), world.connect(), world.connect());
    world.pass(&mut one, Nanos::from_secs(1));
    world.ask(&mut one, "GET a");
    world.pass(&mut two, Nanos::from_secs(5));
    world.pass(&mut new, Nanos::from_secs(2));
    let said = world.ask(&mut two, "CLIENT LIST");
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("id=")).collect();
    let tells = |line: &str, words: [&str; 2]| words.iter().all(|word| line.contains(word));
    assert!(tells(lines[0], [" idle=7 ", " cmd=get "]), "{said}");
    assert!(tells(lines[1], [" idle=0 ", " cmd=client|list "]), "{said}");
    assert!(tells(lines[2], [" idle=", " cmd=NULL "]), "{said}");
}

#[test]
fn words_too_many_for_a_subcommand_are_told_as_redis_does() {
    let mut world = World::new(None);
    let mut client = world.connect();
    for (line, name) in [("CLIENT UNBLOCK 5 ERROR x", "UNBLOCK"), ("CLIENT pause 0 ALL x", "pause")]
    {
        let expected = format!(
            "-ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLIENT HELP.\r\n"
        );
        assert_eq!(world.ask(&mut client, line), expected);
    }
}
