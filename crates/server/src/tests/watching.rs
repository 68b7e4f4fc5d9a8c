//! `SLOWLOG`, `LATENCY` and `MONITOR`. Shapes are those of redis-server 7.0.15.

use base::Nanos;

use super::world::{Connection, World, request};

/// Asks, and lets `millis` pass until the answer.
fn slowly(world: &mut World, client: &mut Connection, words: &[&str], millis: u64) -> String {
    world.send(client, &request(words));
    world.now += Nanos::from_millis(millis);
    world.say(client, b"")
}

#[test]
fn slow_requests_are_logged_with_their_arguments() {
    let mut world = World::new(None);
    let mut client = world.connect();
    world.ask(&mut client, "CLIENT SETNAME me");
    slowly(&mut world, &mut client, &["SET", "a", &"x".repeat(130)], 12);
    slowly(&mut world, &mut client, &["GET", "a"], 9);
    world.send(&mut client, b"EXISTS a b\r\nGET quick\r\n");
    world.now += Nanos::from_millis(2_000);
    world.say(&mut client, b"");
    assert_eq!(world.ask(&mut client, "SLOWLOG LEN"), ":3\r\n");
    let said = world.ask(&mut client, "SLOWLOG GET 2");
    let entry = |id: u64, secs: u64, micros: u64, words: &str| {
        format!(
            "*6\r\n:{id}\r\n:{secs}\r\n:{micros}\r\n{words}$15\r\n127.0.0.1:40001\r\n$2\r\nme\r\n"
        )
    };
    let quick = "*2\r\n$3\r\nGET\r\n$5\r\nquick\r\n";
    let several = "*3\r\n$6\r\nEXISTS\r\n$1\r\na\r\n$1\r\nb\r\n";
    // Replies become ready in any order.
    let either = [(quick, several), (several, quick)].map(|(last, first)| {
        let (last, first) = (entry(2, 3, 2_000_000, last), entry(1, 3, 2_000_000, first));
        format!("*2\r\n{last}{first}")
    });
    assert!(either.contains(&said), "{said}");
    let said = world.ask(&mut client, "SLOWLOG GET -1");
    let value = format!("{}... (2 more bytes)", "x".repeat(128));
    let words = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${}\r\n{value}\r\n", value.len());
    assert!(said.starts_with("*3\r\n") && said.ends_with(&entry(0, 1, 12_000, &words)), "{said}");
    assert_eq!(world.ask(&mut client, "SLOWLOG RESET"), "+OK\r\n");
    assert_eq!(world.ask(&mut client, "SLOWLOG GET"), "*0\r\n");
}

#[test]
fn the_slow_log_keeps_to_its_length_and_numbers_go_on() {
    let mut world = World::new(None);
    let mut client = world.connect();
    world.ask(&mut client, "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 2");
    for line in ["GET a", "AUTH secret", "EXEC", "GET", "HELLO 3 AUTH u pw"] {
        world.ask(&mut client, line);
    }
    let said = world.ask(&mut client, "SLOWLOG GET");
    assert!(
        said.contains(":3\r\n") && said.contains(":2\r\n") && said.starts_with("*2\r\n"),
        "{said}"
    );
    assert!(said.contains("$10\r\n(redacted)\r\n"), "{said}");
    assert!(!said.contains("secret") && !said.contains("pw") && !said.contains("EXEC"), "{said}");
    world.ask(&mut client, "CONFIG SET slowlog-max-len 0");
    world.ask(&mut client, "GET a");
    world.ask(&mut client, "CONFIG SET slowlog-max-len 5");
    let said = world.ask(&mut client, "CONFIG GET slowlog*");
    assert!(said.contains("slowlog-max-len\r\n$1\r\n5"), "{said}");
    for (line, error) in [
        ("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1\r\n"),
        ("SLOWLOG GET x", "-ERR count should be greater than or equal to -1\r\n"),
        (
            "SLOWLOG GET 1 2",
            "-ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.\r\n",
        ),
        ("SLOWLOG NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try SLOWLOG HELP.\r\n"),
        (
            "CONFIG SET slowlog-log-slower-than -2",
            "-ERR CONFIG SET failed (possibly related to argument 'slowlog-log-slower-than') - argument must be \
             between -1 and 9223372036854775807 inclusive\r\n",
        ),
    ] {
        assert_eq!(world.ask(&mut client, line), error);
    }
    assert!(world.ask(&mut client, "SLOWLOG HELP").contains("SLOWLOG <subcommand>"));
}

#[test]
fn histograms_are_cumulative_maps_of_microseconds() {
    let mut world = World::new(None);
    let mut client = world.connect();
    for millis in [1, 1, 2, 60] {
        slowly(&mut world, &mut client, &["GET", "a"], millis);
    }
    world.ask(&mut client, "CLIENT GETNAME");
    let said = world.ask(&mut client, "LATENCY HISTOGRAM GET nosuch");
    let expected = "*2\r\n$3\r\nget\r\n*4\r\n$5\r\ncalls\r\n:4\r\n$14\r\nhistogram_usec\r\n\
                    *6\r\n:1056\r\n:2\r\n:2113\r\n:3\r\n:67633\r\n:4\r\n";
    assert_eq!(said, expected);
    let said = world.ask(&mut client, "LATENCY HISTOGRAM client");
    assert!(said.contains("$14\r\nclient|getname\r\n"), "{said}");
    world.ask(&mut client, "HELLO 3");
    let said = world.ask(&mut client, "LATENCY HISTOGRAM get");
    assert!(
        said.starts_with("%1\r\n$3\r\nget\r\n%2\r\n") && said.contains("%3\r\n:1056"),
        "{said}"
    );
    assert_eq!(world.ask(&mut client, "CONFIG SET latency-tracking no"), "+OK\r\n");
    assert_eq!(world.ask(&mut client, "LATENCY HISTOGRAM"), "%0\r\n");
    assert!(!world.ask(&mut client, "INFO latencystats").contains("usec"));
    world.ask(&mut client, "CONFIG SET latency-tracking yes");
    let set = request(&["CONFIG", "SET", "latency-tracking-info-percentiles", "25 100"]);
    assert_eq!(world.say(&mut client, &set), "+OK\r\n");
    let said = world.ask(&mut client, "INFO latencystats");
    assert!(said.contains("usec_get:p25=1015.807,p100="), "{said}");
}

#[test]
fn latency_events_begin_at_the_threshold() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let said = world.ask(&mut client, "LATENCY DOCTOR");
    assert!(said.contains("Latency monitoring is off"), "{said}");
    world.ask(&mut client, "CONFIG SET latency-monitor-threshold 5");
    for millis in [4, 6, 8, 1_000] {
        slowly(&mut world, &mut client, &["GET", "a"], millis);
        slowly(&mut world, &mut client, &["DEL", "a"], millis + 1);
    }
    let said = world.ask(&mut client, "LATENCY LATEST");
    let expected = "*2\r\n*4\r\n$7\r\ncommand\r\n:3\r\n:1001\r\n:1001\r\n\
                    *4\r\n$12\r\nfast-command\r\n:2\r\n:1000\r\n:1000\r\n";
    assert_eq!(said, expected);
    let said = world.ask(&mut client, "LATENCY HISTORY fast-command");
    assert_eq!(said, "*2\r\n*2\r\n:1\r\n:8\r\n*2\r\n:2\r\n:1000\r\n");
    assert_eq!(world.ask(&mut client, "LATENCY HISTORY nosuch"), "*0\r\n");
    let said = world.ask(&mut client, "LATENCY GRAPH command");
    assert!(said.contains("command - high 1001 ms, low 9 ms (all time high 1001 ms)\n"), "{said}");
    let said = world.ask(&mut client, "LATENCY GRAPH nosuch");
    assert_eq!(said, "-ERR No samples available for event 'nosuch'\r\n");
    assert!(world.ask(&mut client, "LATENCY DOCTOR").contains("1. command: 2 latency spikes"));
    assert_eq!(world.ask(&mut client, "LATENCY RESET command nosuch"), ":1\r\n");
    assert_eq!(world.ask(&mut client, "LATENCY RESET"), ":1\r\n");
    assert_eq!(world.ask(&mut client, "LATENCY LATEST"), "*0\r\n");
}

/// The lines that a monitor sees within a second, without times.
fn seen(world: &mut World, monitor: &mut Connection) -> Vec<String> {
    world.pass(monitor, Nanos::from_secs(1));
    let said = String::from_utf8_lossy(&std::mem::take(&mut monitor.said)).into_owned();
    let without_time = |line: &str| line.split_once(' ').map_or(line, |(_, rest)| rest).to_string();
    said.lines().map(without_time).collect()
}

#[test]
fn a_monitor_sees_the_commands_of_all_clients() {
    let mut world = World::new(None);
    let (mut one, mut other, mut monitor) = (world.connect(), world.connect(), world.connect());
    world.ask(&mut one, "SET before 1");
    assert_eq!(world.ask(&mut monitor, "MONITOR"), "+OK\r\n");
    world.say(&mut one, &request(&["SET", "a", "x \"y\"\n\u{1}"]));
    for line in ["SELECT 1", "GET", "NOSUCH", "INCR n", "CONFIG GET save", "AUTH pw"] {
        world.ask(&mut other, line);
    }
    world.ask(&mut other, "HELLO 3 AUTH default pw SETNAME me");
    let expected = [
        r#"[0 127.0.0.1:40001] "SET" "a" "x \"y\"\n\x01""#,
        r#"[1 127.0.0.1:40002] "SELECT" "1""#,
        r#"[1 127.0.0.1:40002] "INCR" "n""#,
        r#"[1 127.0.0.1:40002] "AUTH" "(redacted)""#,
        r#"[1 127.0.0.1:40002] "HELLO" "3" "AUTH" "(redacted)" "(redacted)" "SETNAME" "me""#,
    ];
    assert_eq!(seen(&mut world, &mut monitor), expected);
    assert_eq!(
        world.ask(&mut monitor, "GET a"),
        "-ERR Replica can't interact with the keyspace\r\n"
    );
    let said = world.ask(&mut monitor, "PING");
    assert!(said.starts_with("+PONG\r\n+") && said.ends_with("\"PING\"\r\n"), "{said}");
    assert_eq!(world.ask(&mut monitor, "RESET"), "+RESET\r\n");
    world.ask(&mut one, "PING");
    assert!(seen(&mut world, &mut monitor).is_empty());
    assert_eq!(world.ask(&mut monitor, "GET nosuch"), "$-1\r\n");
}

#[test]
fn a_monitor_that_does_not_read_is_disconnected() {
    let mut world = World::new(None);
    let (mut one, mut monitor) = (world.connect(), world.connect());
    world.ask(&mut monitor, "MONITOR");
    let long = "x".repeat(100_000);
    for _ in 0..400 {
        world.say(&mut one, &request(&["ECHO", &long]));
    }
    world.pass(&mut monitor, Nanos::from_secs(1));
    assert!(monitor.wants_close() && monitor.is_gone());
    assert_eq!(world.ask(&mut one, "PING"), "+PONG\r\n");
}

/// As redis-server 7.4.1 shows them.
#[test]
fn a_monitor_sees_the_calls_of_scripts() {
    let mut world = World::new(None);
    let (mut one, mut monitor) = (world.connect(), world.connect());
    world.ask(&mut one, "SET text x");
    world.ask(&mut monitor, "MONITOR");
    let calls = "redis.call('Set',KEYS[1],0) redis.pcall('nosuch') redis.pcall('get') \
                 redis.pcall('lpush',KEYS[1],1) redis.pcall('config','get','x') \
                 return redis.call('incrby',KEYS[1],1.5e3)";
    let script = |calls: &str, words: &[&str]| request(&[&["EVAL", calls], words].concat());
    let shown =
        |calls: &str, words: &str| format!("[0 127.0.0.1:40001] \"EVAL\" \"{calls}\" {words}");
    let of_script = [
        r#"[0 lua] "Set" "k" "0""#,
        r#"[0 lua] "lpush" "k" "1""#,
        r#"[0 lua] "incrby" "k" "1500""#,
    ];
    for words in [&["1", "k"][..], &["2", "k", "b"]] {
        assert_eq!(world.say(&mut one, &script(calls, words)), ":1500\r\n");
        let words = words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" ");
        let line = shown(calls, &words);
        let expected = [&[&line[..]], &of_script[..]].concat();
        assert_eq!(seen(&mut world, &mut monitor), expected);
    }
    // Each call is shown once, of the run that met no further key.
    let further = "redis.call('get',KEYS[1]) redis.call('get','other') return 1";
    world.say(&mut one, &script(further, &["1", "k"]));
    let expected =
        [&shown(further, "\"1\" \"k\"")[..], r#"[0 lua] "get" "k""#, r#"[0 lua] "get" "other""#];
    assert_eq!(seen(&mut world, &mut monitor), expected);
}

#[test]
fn a_monitor_sees_the_calls_of_scripts_within_exec() {
    let mut world = World::new(None);
    let (mut one, mut other, mut monitor) = (world.connect(), world.connect(), world.connect());
    world.ask(&mut monitor, "MONITOR");
    for keys in ["1 y", "2 y z"] {
        for line in ["MULTI", "SET y 1", "CLIENT GETNAME"] {
            world.ask(&mut one, line);
        }
        world.ask(&mut one, &format!("EVAL \"return redis.call('incr',KEYS[1])\" {keys}"));
        world.ask(&mut one, "GET y");
        world.ask(&mut one, "EXEC");
        let said = seen(&mut world, &mut monitor);
        let name = |line: &String| line.split('"').nth(1).unwrap_or_default().to_string();
        let names: Vec<String> = said.iter().map(name).collect();
        let expected = ["MULTI", "SET", "CLIENT", "EVAL", "incr", "GET", "EXEC"];
        assert_eq!(names, expected, "{said:?}");
        assert!(said[4].starts_with("[0 lua] "), "{said:?}");
    }
    for line in ["WATCH w", "MULTI", "EVAL \"return redis.call('incr',KEYS[1])\" 1 y"] {
        world.ask(&mut one, line);
    }
    world.ask(&mut other, "SET w 1");
    seen(&mut world, &mut monitor);
    assert_eq!(world.ask(&mut one, "EXEC"), "*-1\r\n");
    assert_eq!(seen(&mut world, &mut monitor), [r#"[0 127.0.0.1:40001] "EXEC""#]);
}
