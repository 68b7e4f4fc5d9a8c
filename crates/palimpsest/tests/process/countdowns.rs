//! Times to live: the cost of crashes, the writes they cause, and the replies to clients.

use std::time::{Duration, Instant};

use bench::client::{Client, Value};
use bench::cluster::Config;
use types::limits::ONCE_TIMEOUT_MAX;

use crate::support::{LIMIT, Nodes, config, eventually};

/// How long nodes rest before the countdown in question starts: a crash must cost much less.
const REST: i64 = 10;
const SPAN: Duration = Duration::from_secs(2);
/// The most that one crash may cost a countdown of `SPAN`.
const CRASH: Duration = Duration::from_millis(1_020);
/// For a slow machine, from the start of the processes to the last answer. Much less than `REST`.
const SLOW: Duration = Duration::from_secs(4);

fn wait_for_uptime(nodes: &Nodes, seconds: i64) {
    for index in 0..nodes.len() {
        eventually("a node has been up for a while", || {
            let Value::Bulk(info) = nodes.ask(index, "INFO server") else { return false };
            let info = String::from_utf8_lossy(&info).into_owned();
            let up = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
            up.is_some_and(|up| up.trim().parse::<i64>().expect("a number") >= seconds)
        });
    }
}

fn is_gone(nodes: &Nodes, key: &str) -> bool {
    let reply = Client::connect(nodes.address(1), LIMIT)
        .and_then(|mut client| client.command(&format!("EXISTS {key}")));
    reply.is_ok_and(|reply| reply == Value::Integer(0))
}

/// Sets `SPAN` by every command that counts a time to live; the keys.
fn set_spans(nodes: &Nodes) -> [&'static str; 5] {
    let mut client = nodes.client(0);
    let mut ask = |line: &str, expected: Value| {
        assert_eq!(client.command(line).expect("an answer"), expected, "{line}");
    };
    ask("SET got v", Value::ok());
    ask("SET set v", Value::ok());
    ask("SET lock me NX PX 2000", Value::ok());
    ask("PSETEX psetex 2000 v", Value::ok());
    ask("EXPIRE set 2", Value::Integer(1));
    ask("GETEX got PX 2000", Value::text("v"));
    ask("SET late v", Value::ok());
    ask("PEXPIRE late 2000", Value::Integer(1));
    ["lock", "psetex", "set", "got", "late"]
}

#[test]
fn crashes_cost_a_short_countdown_little_after_a_long_rest() {
    // Clocks are saved beside the medium: one medium stands for all.
    let mut nodes = Nodes::start("disk");
    assert_eq!(nodes.ask(0, "SET session x EX 86400"), Value::ok());
    wait_for_uptime(&nodes, REST);

    let mut began = Instant::now();
    let keys = set_spans(&nodes);
    // Twice at once, before anything can be saved beside the first use of a clock.
    let (mut ran, mut crashes) = (Duration::ZERO, 0);
    for _ in 0..2 {
        nodes.kill_all();
        ran += began.elapsed();
        crashes += 1;
        began = Instant::now();
        nodes.start_all();
    }
    for key in keys {
        eventually("a key expires", || is_gone(&nodes, key));
    }
    ran += began.elapsed();
    assert!(ran >= SPAN, "gone after {ran:?}");
    assert!(ran < SPAN + crashes * CRASH + SLOW, "{ran:?} after {crashes} crashes");
    assert_eq!(nodes.ask(2, "EXISTS session"), Value::Integer(1));
}

#[test]
fn a_crash_costs_what_ran_once_little_after_a_long_rest() {
    const WINDOW: Duration = Duration::from_secs(10);
    let arguments = ["--request-timeout", "500", "--once-window", "10000"].map(String::from);
    let mut nodes = Nodes::prepare_with(Config { arguments: arguments.to_vec(), ..config() });
    nodes.start_all();
    wait_for_uptime(&nodes, REST);
    let mut began = Instant::now();
    assert_eq!(nodes.ask(0, "ONCE session 1 INCR counter"), Value::Integer(1));
    nodes.kill_all();
    let mut ran = began.elapsed();
    began = Instant::now();
    nodes.start_all();
    eventually("a command is forgotten", || {
        // The next write drops a key whose time is over at a majority.
        nodes.ask(1, "INCR counter");
        nodes.ask(1, "ONCE session 1 INCR counter") != Value::Integer(1)
    });
    ran += began.elapsed();
    let (least, most) = (WINDOW, WINDOW + 2 * Duration::from_millis(ONCE_TIMEOUT_MAX.0));
    assert!(ran >= least, "forgotten after {ran:?}");
    assert!(ran < most + CRASH + SLOW, "forgotten after {ran:?}");
}

#[test]
fn a_node_without_countdowns_writes_nothing() {
    let mut nodes = Nodes::start("disk");
    assert_eq!(nodes.ask(0, "SET key value"), Value::ok());
    for crashes in [false, true] {
        if crashes {
            nodes.kill_all();
            nodes.start_all();
        }
        // Links are up once every node has answered.
        (0..nodes.len())
            .for_each(|index| nodes.wait_for_answer(index, "EXISTS key", &Value::Integer(1)));
        wait_for_uptime(&nodes, 2);
        let identity = |index: usize| {
            std::fs::read(nodes.data_dir(index).join("node")).expect("a node has an identity")
        };
        let before: Vec<Vec<u8>> = (0..nodes.len()).map(identity).collect();
        wait_for_uptime(&nodes, 5);
        let after: Vec<Vec<u8>> = (0..nodes.len()).map(identity).collect();
        assert!(before == after, "an identity was written, crashes: {crashes}");
    }
}

#[test]
fn the_time_at_which_a_key_expires_is_constant() {
    let mut nodes = Nodes::start("disk");
    assert_eq!(nodes.ask(0, "SET key value PX 100000000"), Value::ok());
    let Value::Integer(end) = nodes.ask(0, "PEXPIRETIME key") else { panic!("a key with an end") };
    let check = |nodes: &Nodes| {
        let mut clients: Vec<_> = (0..nodes.len()).map(|index| nodes.client(index)).collect();
        for number in 0..600 {
            let client = &mut clients[number % 3];
            let reply = client.command("PEXPIRETIME key").expect("an answer");
            assert_eq!(reply, Value::Integer(end), "read {number}");
            let reply = client.command("EXPIRETIME key").expect("an answer");
            assert_eq!(reply, Value::Integer((end + 500) / 1000), "read {number}");
        }
    };
    check(&nodes);
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = unix.expect("it is after 1970").as_millis() as i64;
    let Value::Integer(left) = nodes.ask(1, "PTTL key") else { panic!("a key with an end") };
    assert!((now + left - end).abs() < 10_000, "{now} + {left} is not {end}");
    nodes.kill_all();
    nodes.start_all();
    check(&nodes);
    // A write leaves it as it is, and conditions see the same time as clients.
    assert_eq!(nodes.ask(2, "APPEND key more"), Value::Integer(9));
    assert_eq!(nodes.ask(2, &format!("PEXPIREAT key {end} GT")), Value::Integer(0));
    assert_eq!(nodes.ask(2, &format!("PEXPIREAT key {end} LT")), Value::Integer(0));
    check(&nodes);
}
