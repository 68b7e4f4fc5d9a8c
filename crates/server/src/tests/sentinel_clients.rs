//! Conversations of clients of Redis Sentinel.

use base::Nanos;
use node::session::ClientPort;

use super::world::{Connection, World};

fn connected() -> (World, Connection) {
    let mut world = World::new(None);
    let client = world.connect_to(ClientPort::Sentinel);
    (world, client)
}

/// An array of bulk strings in RESP2.
fn texts(all: &[&str]) -> String {
    let one = |text: &&str| format!("${}\r\n{text}\r\n", text.len());
    format!("*{}\r\n{}", all.len(), all.iter().map(one).collect::<String>())
}

/// The values of a flat map in a reply, by name.
fn field(reply: &str, name: &str) -> String {
    let lines: Vec<&str> = reply.split("\r\n").collect();
    let at = lines.iter().position(|line| *line == name).unwrap_or_else(|| panic!("{name}"));
    lines[at + 2].to_string()
}

#[test]
fn master_is_this_node_while_it_serves() {
    let (mut world, mut client) = connected();
    let ask = "SENTINEL get-master-addr-by-name mymaster";
    assert_eq!(world.ask(&mut client, ask), texts(&["store-1.example", "7001"]));
    // Node 3 has the shortest round trip.
    world.node.ready = false;
    assert_eq!(world.ask(&mut client, ask), texts(&["store-3.example", "7003"]));
    world.node.cluster[2].up = false;
    assert_eq!(world.ask(&mut client, ask), texts(&["store-2.example", "7002"]));
    world.node.cluster[1].up = false;
    assert_eq!(world.ask(&mut client, ask), texts(&["store-1.example", "7001"]));
    let said = world.ask(&mut client, "SENTINEL MASTER mymaster");
    assert_eq!(field(&said, "flags"), "s_down,o_down,master");
    let said = world.ask(&mut client, "SENTINEL CKQUORUM mymaster");
    assert!(said.starts_with("-NOQUORUM 0 usable Sentinels. "), "{said}");
}

#[test]
fn other_names_are_no_masters() {
    let (mut world, mut client) = connected();
    let ask = "SENTINEL GET-MASTER-ADDR-BY-NAME other";
    assert_eq!(world.ask(&mut client, ask), "*-1\r\n");
    for subcommand in ["MASTER", "REPLICAS", "SLAVES", "SENTINELS", "CKQUORUM"] {
        let said = world.ask(&mut client, &format!("SENTINEL {subcommand} other"));
        assert_eq!(said, "-ERR No such master with that name\r\n");
    }
}

#[test]
fn master_has_the_fields_of_redis() {
    let (mut world, mut client) = connected();
    let said = world.ask(&mut client, "SENTINEL masters");
    assert!(said.starts_with("*1\r\n*40\r\n$4\r\nname\r\n$8\r\nmymaster\r\n"), "{said}");
    for (name, value) in [
        ("ip", "store-1.example"),
        ("port", "7001"),
        ("flags", "master"),
        ("role-reported", "master"),
        ("num-slaves", "2"),
        ("num-other-sentinels", "2"),
        ("quorum", "2"),
    ] {
        assert_eq!(field(&said, name), value, "{name}");
    }
    assert_eq!(field(&said, "runid").len(), 40);
    let quorum = "+OK 3 usable Sentinels. Quorum and failover authorization can be reached\r\n";
    assert_eq!(world.ask(&mut client, "SENTINEL CKQUORUM mymaster"), quorum);
}

#[test]
fn others_are_replicas_and_sentinels() {
    let (mut world, mut client) = connected();
    world.node.cluster[1].up = false;
    for subcommand in ["REPLICAS", "SLAVES"] {
        let said = world.ask(&mut client, &format!("SENTINEL {subcommand} mymaster"));
        assert!(
            said.starts_with("*2\r\n*42\r\n$4\r\nname\r\n$20\r\nstore-2.example:7002\r\n"),
            "{said}"
        );
        assert_eq!(field(&said, "flags"), "s_down,slave,disconnected");
        assert_eq!(field(&said, "master-link-status"), "err");
        assert_eq!(field(&said, "master-host"), "store-1.example");
        assert!(said.contains("store-3.example:7003"), "{said}");
    }
    let said = world.ask(&mut client, "SENTINEL SENTINELS mymaster");
    assert!(said.starts_with("*2\r\n*28\r\n"), "{said}");
    assert_eq!(field(&said, "port"), "27002");
    assert_eq!(field(&said, "flags"), "s_down,sentinel,disconnected");
    assert_eq!(field(&said, "runid"), field(&said, "name"));
    world.node.cluster[2].summary.as_mut().unwrap().sentinel.clear();
    let said = world.ask(&mut client, "SENTINEL SENTINELS mymaster");
    assert!(said.starts_with("*1\r\n"), "a node without the port is none: {said}");
}

#[test]
fn small_questions_are_answered() {
    let (mut world, mut client) = connected();
    world.node.cluster[1].up = false;
    let down = |port: u16| format!("SENTINEL is-master-down-by-addr store-2.example {port} 0 *");
    assert_eq!(world.ask(&mut client, &down(7_002)), "*3\r\n:1\r\n$1\r\n*\r\n:0\r\n");
    assert_eq!(world.ask(&mut client, &down(7_009)), "*3\r\n:0\r\n$1\r\n*\r\n:0\r\n");
    assert_eq!(world.ask(&mut client, "SENTINEL PENDING-SCRIPTS"), "*0\r\n");
    assert_eq!(world.ask(&mut client, "SENTINEL MYID").len(), "$40\r\n\r\n".len() + 40);
    assert_eq!(world.ask(&mut client, "SENTINEL RESET my*"), ":1\r\n");
    assert_eq!(world.ask(&mut client, "SENTINEL RESET other"), ":0\r\n");
    let said = world.ask(&mut client, "SENTINEL INFO-CACHE other mymaster");
    assert!(said.starts_with("*2\r\n$8\r\nmymaster\r\n*1\r\n*2\r\n:0\r\n$"), "{said}");
    let help = world.ask(&mut client, "SENTINEL HELP");
    assert!(help.contains("GET-MASTER-ADDR-BY-NAME <master-name>"), "{help}");
    assert_eq!(world.ask(&mut client, "ROLE"), "*2\r\n$8\r\nsentinel\r\n*1\r\n$8\r\nmymaster\r\n");
}

#[test]
fn this_port_speaks_as_a_sentinel() {
    let (mut world, mut client) = connected();
    let said = world.ask(&mut client, "HELLO");
    assert!(said.starts_with("*12\r\n") && field(&said, "mode") == "sentinel", "{said}");
    let said = world.ask(&mut client, "INFO");
    assert!(said.contains("redis_mode:sentinel\r\n"), "{said}");
    let line =
        "master0:name=mymaster,status=ok,address=store-1.example:7001,slaves=2,sentinels=3\r\n";
    assert!(said.contains(line), "{said}");
    assert!(!said.contains("# Keyspace"), "{said}");
    for (line, expected) in [
        ("PING", "+PONG\r\n"),
        ("CLIENT SETINFO LIB-NAME x", "+OK\r\n"),
        ("CLIENT FROB", "-ERR unknown subcommand 'FROB'. Try CLIENT HELP.\r\n"),
        ("GET x", "-ERR unknown command 'GET', with args beginning with: 'x' \r\n"),
        ("SENTINEL", "-ERR wrong number of arguments for 'sentinel' command\r\n"),
        ("SENTINEL MASTER", "-ERR wrong number of arguments for 'sentinel|master' command\r\n"),
        ("SENTINEL FROB", "-ERR unknown subcommand 'FROB'. Try SENTINEL HELP.\r\n"),
        ("SUBSCRIBE", "-ERR wrong number of arguments for 'subscribe' command\r\n"),
        ("PUBLISH a b", "-ERR Only HELLO messages are accepted by Sentinel instances.\r\n"),
        (
            "SENTINEL FAILOVER mymaster",
            "-ERR 'sentinel failover' is not supported: every node takes writes, so there is no master to replace\r\n",
        ),
    ] {
        assert_eq!(world.ask(&mut client, line), expected, "{line}");
    }
    let mut other = world.connect();
    let said = world.ask(&mut other, "SENTINEL MASTERS");
    assert!(said.starts_with("-ERR unknown command 'SENTINEL'"), "{said}");
}

#[test]
fn this_port_asks_for_the_password() {
    let mut world = World::new(Some(b"secret"));
    let mut client = world.connect_to(ClientPort::Sentinel);
    for line in ["SENTINEL MASTERS", "SUBSCRIBE a", "INFO", "PING"] {
        assert_eq!(world.ask(&mut client, line), "-NOAUTH Authentication required.\r\n", "{line}");
    }
    assert_eq!(world.ask(&mut client, "AUTH secret"), "+OK\r\n");
    assert!(world.ask(&mut client, "SENTINEL MASTERS").starts_with("*1\r\n"));
}

#[test]
fn subscriptions_are_counted() {
    let (mut world, mut client) = connected();
    let said = |kind: &str, name: &str, count: usize| {
        format!("*3\r\n${}\r\n{kind}\r\n${}\r\n{name}\r\n:{count}\r\n", kind.len(), name.len())
    };
    let both = said("subscribe", "a", 1) + &said("subscribe", "b", 2);
    assert_eq!(world.ask(&mut client, "SUBSCRIBE a b"), both);
    assert_eq!(world.ask(&mut client, "PSUBSCRIBE *"), said("psubscribe", "*", 3));
    assert_eq!(world.ask(&mut client, "PING"), texts(&["pong", ""]));
    assert_eq!(world.ask(&mut client, "PING x"), texts(&["pong", "x"]));
    let refused = "-ERR Can't execute 'info': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
                   are allowed in this context\r\n";
    assert_eq!(world.ask(&mut client, "INFO"), refused);
    assert_eq!(world.ask(&mut client, "UNSUBSCRIBE c"), said("unsubscribe", "c", 3));
    assert_eq!(world.ask(&mut client, "PUNSUBSCRIBE"), said("punsubscribe", "*", 2));
    let none = said("unsubscribe", "a", 1) + &said("unsubscribe", "b", 0);
    assert_eq!(world.ask(&mut client, "UNSUBSCRIBE"), none);
    assert_eq!(world.ask(&mut client, "UNSUBSCRIBE"), "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n");
    assert_eq!(world.ask(&mut client, "PING"), "+PONG\r\n");
    world.ask(&mut client, "SUBSCRIBE a");
    assert_eq!(world.ask(&mut client, "RESET"), "+RESET\r\n");
    assert_eq!(world.ask(&mut client, "PING"), "+PONG\r\n");
    let many = format!("SUBSCRIBE{}", " x".repeat(1_025));
    let refused = "-ERR too many subscriptions of one client\r\n";
    assert_eq!(world.ask(&mut client, &many), refused);
}

#[test]
fn subscribers_learn_of_lost_nodes() {
    let (mut world, mut client) = connected();
    world.ask(&mut client, "SUBSCRIBE +switch-master");
    let later = Nanos::from_secs(1);
    world.pass(&mut client, later);
    assert_eq!(world.say(&mut client, b""), "", "nothing has changed");
    world.node.cluster[1].up = false;
    world.pass(&mut client, later);
    let switch = "mymaster store-2.example 7002 store-1.example 7001";
    assert_eq!(world.say(&mut client, b""), texts(&["message", "+switch-master", switch]));
    world.node.cluster[1].up = true;
    world.pass(&mut client, later);
    assert_eq!(world.say(&mut client, b""), "", "a node that returns moves no client");
    world.node.ready = false;
    world.pass(&mut client, later);
    let switch = "mymaster store-1.example 7001 store-3.example 7003";
    assert_eq!(world.say(&mut client, b""), texts(&["message", "+switch-master", switch]));
}

#[test]
fn patterns_get_messages_in_resp3() {
    let (mut world, mut client) = connected();
    world.ask(&mut client, "HELLO 3");
    world.ask(&mut client, "PSUBSCRIBE *sdown");
    assert_eq!(world.ask(&mut client, "PING"), "+PONG\r\n");
    world.node.cluster[2].up = false;
    world.pass(&mut client, Nanos::from_secs(1));
    let down = "slave store-3.example:7003 store-3.example 7003 @ mymaster store-1.example 7001";
    let expected = format!(
        ">4\r\n$8\r\npmessage\r\n$6\r\n*sdown\r\n$6\r\n+sdown\r\n${}\r\n{down}\r\n",
        down.len()
    );
    assert_eq!(world.say(&mut client, b""), expected);
}

#[test]
fn pages_of_browsers_run_no_command() {
    let (mut world, mut client) = connected();
    let request = b"POST / HTTP/1.1\r\nHost: store\r\n\r\nCLIENT PAUSE 2000 ALL\r\nPING\r\n";
    assert_eq!(world.say(&mut client, request), "");
}

#[test]
fn this_port_touches_no_other_connection() {
    let (mut world, mut client) = connected();
    for line in ["CLIENT PAUSE 2000 ALL", "CLIENT KILL TYPE normal", "CLIENT UNBLOCK 1"] {
        let said = world.ask(&mut client, line);
        assert_eq!(said, "-ERR this CLIENT command is not available at this port\r\n", "{line}");
    }
    assert_eq!(world.ask(&mut client, "CLIENT SETNAME me"), "+OK\r\n");
}
