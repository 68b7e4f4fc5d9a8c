//! Every protocol that a database may choose, one row each: real clients while nodes are killed,
//! paused and wiped, and while all are killed. The histories are checked for linearizability.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bench::client::{Client, Value};

use crate::support::{Nodes, Recorder, config, eventually};

/// A protocol and its class.
struct Row {
    protocol: &'static str,
    durability: &'static str,
    class: Class,
}

#[derive(PartialEq, Eq)]
enum Class {
    /// It runs no commands whose effect depends on the state.
    Plain,
    Conditional,
    /// The same, and its reads are weaker unless a client asks for more.
    SequentialReads,
}

const CLASSIC_PAXOS: Row =
    Row { protocol: "classic-paxos", durability: "disk", class: Class::Conditional };
const CASPAXOS: Row = Row { protocol: "caspaxos", durability: "disk", class: Class::Conditional };
const HERMES: Row = Row { protocol: "hermes", durability: "disk", class: Class::Conditional };
const HERMES_ON_PMEM: Row =
    Row { protocol: "hermes", durability: "pmem", class: Class::Conditional };
const CRAQ: Row = Row { protocol: "craq", durability: "disk", class: Class::Conditional };
const CRAQ_VOLATILE: Row =
    Row { protocol: "craq", durability: "volatile", class: Class::Conditional };
const ABD: Row = Row { protocol: "abd", durability: "disk", class: Class::Plain };
const ZAB: Row = Row { protocol: "zab", durability: "disk", class: Class::SequentialReads };
const ZAB_ON_PMEM: Row = Row { protocol: "zab", durability: "pmem", class: Class::SequentialReads };
const ZAB_VOLATILE: Row =
    Row { protocol: "zab", durability: "volatile", class: Class::SequentialReads };

fn start(row: &Row) -> Nodes {
    let mut config = config();
    config.durability = row.durability.to_owned();
    config.arguments.extend(["--protocol".into(), row.protocol.into()]);
    let mut nodes = Nodes::prepare_with(config);
    nodes.start_all();
    nodes
}

fn survives(row: &Row) {
    let mut nodes = start(row);
    let addresses = nodes.cluster.addresses();
    let recorder = match row.class {
        Class::Conditional => Recorder::new(row.protocol),
        Class::Plain => Recorder::plain(row.protocol),
        Class::SequentialReads => Recorder::ordered(row.protocol),
    };
    recorder.during(&addresses, |recorder| {
        recorder.wait_for_successes(100);
        nodes.kill(2);
        recorder.wait_for_successes(100);
        nodes.restart(2);
        recorder.wait_for_successes(50);
        nodes.process(0).pause();
        recorder.wait_for_successes(50);
        nodes.process(0).resume();
        recorder.wait_for_successes(50);
        // A group keeps the last copy of its data only where a member is whole.
        nodes.wait_ready();
        nodes.kill(1);
        fs::remove_dir_all(nodes.data_dir(1)).expect("the directory is there");
        nodes.restart(1);
        recorder.wait_for_successes(100);
        // Volatile data is lost then.
        if row.durability != "volatile" {
            nodes.kill_all();
            nodes.start_all();
            recorder.wait_for_successes(100);
        }
    });
    nodes.wait_ready();
    recorder.read_all(&addresses);
    recorder.check();
}

fn expires(row: &Row) {
    let nodes = start(row);
    assert_eq!(nodes.ask(0, "SET kept 1"), Value::ok(), "{}", row.protocol);
    assert_eq!(nodes.ask(0, "SET timed 1 PX 100"), Value::ok());
    assert_eq!(nodes.ask(1, "SET renewed 1 PX 100"), Value::ok());
    assert_eq!(nodes.ask(1, "SET renewed 2"), Value::ok());
    eventually("the key expires", || nodes.ask(1, "GET timed") == Value::Nil);
    for node in 0..nodes.len() {
        if row.class == Class::SequentialReads {
            eventually("the node hears of it", || nodes.ask(node, "GET timed") == Value::Nil);
        }
        assert_eq!(nodes.ask(node, "GET timed"), Value::Nil, "once gone, gone everywhere");
        assert_eq!(nodes.ask(node, "EXISTS kept renewed"), Value::Integer(2));
    }
    let listed = || match nodes.ask(2, "KEYS *") {
        Value::List(keys) => keys.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(listed(), 2);
    eventually("no client touches it", || nodes.ask(0, "DBSIZE") == Value::Integer(2));
}

#[test]
fn classic_paxos_survives_kills_pauses_and_a_wipe() {
    survives(&CLASSIC_PAXOS);
}

#[test]
fn caspaxos_survives_kills_pauses_and_a_wipe() {
    survives(&CASPAXOS);
}

#[test]
fn abd_survives_kills_pauses_and_a_wipe() {
    survives(&ABD);
}

#[test]
fn hermes_survives_kills_pauses_and_a_wipe() {
    survives(&HERMES);
}

#[test]
fn hermes_survives_on_persistent_memory() {
    survives(&HERMES_ON_PMEM);
}

#[test]
fn craq_survives_kills_pauses_and_a_wipe() {
    survives(&CRAQ);
}

#[test]
fn craq_survives_without_durability() {
    survives(&CRAQ_VOLATILE);
}

#[test]
fn zab_survives_kills_pauses_and_a_wipe() {
    survives(&ZAB);
}

#[test]
fn zab_survives_on_persistent_memory() {
    survives(&ZAB_ON_PMEM);
}

#[test]
fn zab_survives_without_durability() {
    survives(&ZAB_VOLATILE);
}

/// Plain reads may lag behind other nodes, but a session sees its own writes and never goes back,
/// through changes of the leader.
#[test]
fn zab_sessions_never_go_back() {
    let mut nodes = start(&ZAB);
    let addresses = nodes.cluster.addresses();
    let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (stop, steps) = (&stop, &steps);
        for &address in &addresses {
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    watch_counter(address, stop, steps);
                }
            });
        }
        let wait = |more: u64| {
            let least = steps.load(Ordering::SeqCst) + more;
            eventually("sessions go on", || steps.load(Ordering::SeqCst) >= least);
        };
        wait(200);
        for node in 0..nodes.len() {
            nodes.kill(node);
            wait(200);
            nodes.restart(node);
            nodes.wait_ready();
        }
        stop.store(true, Ordering::SeqCst);
    });
}

/// One session on a counter that others increment, too.
fn watch_counter(address: std::net::SocketAddr, stop: &AtomicBool, steps: &AtomicU64) {
    let Ok(mut client) = Client::connect(address, Duration::from_secs(4)) else { return };
    let mut seen = 0;
    while !stop.load(Ordering::SeqCst) {
        for line in ["INCR counter", "GET counter", "GET counter"] {
            let found = match client.command(line) {
                Ok(Value::Integer(number)) => number,
                Ok(Value::Bulk(digits)) => {
                    String::from_utf8_lossy(&digits).parse().expect("a number")
                }
                Ok(Value::Nil) => 0,
                // No quorum for a while, or the node is gone.
                Ok(_) | Err(_) => return,
            };
            assert!(found >= seen, "{line}: {found} after {seen}");
            seen = found;
            steps.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn classic_paxos_expires_keys() {
    expires(&CLASSIC_PAXOS);
}

#[test]
fn caspaxos_expires_keys() {
    expires(&CASPAXOS);
}

/// A write hangs while a member is paused, until the group goes on without it. Meanwhile others
/// hold its value, and show it to clients that ask for uncommitted values.
#[test]
fn craq_shows_uncommitted_values_on_request() {
    let mut nodes = start(&CRAQ);
    assert_eq!(nodes.ask(0, "SET k 0"), Value::ok());
    let mut reader = nodes.client(0);
    assert_eq!(reader.command("CLIENT CONSISTENCY UNCOMMITTED").expect("an answer"), Value::ok());
    let is_done = AtomicBool::new(false);
    let seen_early = (1..=20).any(|value| {
        nodes.wait_ready();
        nodes.process(2).pause();
        is_done.store(false, Ordering::Release);
        let mut writer = nodes.client(0);
        let is_early = std::thread::scope(|scope| {
            scope.spawn(|| {
                let answer = writer.command(&format!("SET k {value}")).expect("an answer");
                is_done.store(true, Ordering::Release);
                assert_eq!(answer, Value::ok());
            });
            loop {
                let found = reader.command("GET k").expect("an answer");
                if found == Value::text(&value.to_string()) {
                    break !is_done.load(Ordering::Acquire);
                }
                assert_eq!(found, Value::text(&(value - 1).to_string()));
            }
        });
        nodes.process(2).resume();
        is_early
    });
    assert!(seen_early, "the value shows before the write is answered");
    assert_eq!(reader.command("RESET").expect("an answer"), Value::Simple("RESET".into()));
    assert_eq!(reader.command("GET k").expect("an answer"), nodes.ask(1, "GET k"));
}

#[test]
fn hermes_expires_keys() {
    expires(&HERMES);
}

#[test]
fn craq_expires_keys() {
    expires(&CRAQ);
}

#[test]
fn zab_expires_keys() {
    expires(&ZAB);
}

/// Replies of reads in the order are in the log, too: it makes room for more than it can hold.
#[test]
fn zab_reads_more_in_its_order_than_its_log_holds() {
    let nodes = start(&ZAB);
    let mut client = nodes.client(1);
    let mut ask = |line: &str| client.command(line).expect("an answer");
    let len = 800_000;
    assert_eq!(ask(&format!("SETRANGE k {} v", len - 1)), Value::Integer(len));
    assert_eq!(ask("CLIENT CONSISTENCY LINEARIZABLE"), Value::ok());
    let reads = 2 * types::log::LOG_LEN_DEFAULT / len as u64;
    for read in 0..reads {
        match ask("GET k") {
            Value::Bulk(value) => assert_eq!(value.len() as i64, len),
            other => panic!("read {read}: {other:?}"),
        }
    }
    assert_eq!(ask("INCR x"), Value::Integer(1));
}

/// The reply is too long, or the command takes too long.
fn is_refusal(text: &str) -> bool {
    text.contains("too long") || text.contains("not supported")
}

/// A transaction may be answered by far more bytes than a record holds. A protocol may refuse that.
#[test]
fn long_replies_stop_no_node() {
    for row in [CRAQ, CRAQ_VOLATILE, HERMES, ZAB] {
        let nodes = start(&row);
        let len = 1 << 20;
        let sole = format!("SETRANGE k {} v", len - 1);
        assert_eq!(nodes.ask(0, &sole), Value::Integer(len), "{}", row.protocol);
        for node in 0..3 {
            let mut client = nodes.client(node);
            let mut ask = |words: &[&str]| {
                let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                client.ask(&words).expect("an answer")
            };
            assert_eq!(ask(&["MULTI"]), Value::ok());
            for _ in 0..17 {
                assert_eq!(ask(&["GET", "k"]), Value::Simple("QUEUED".into()));
            }
            assert_eq!(ask(&["SETRANGE", "k", "0", "w"]), Value::Simple("QUEUED".into()));
            match ask(&["EXEC"]) {
                Value::List(values) => assert_eq!(values.len(), 18, "{}", row.protocol),
                Value::Error(text) => assert!(is_refusal(&text), "{}: {text}", row.protocol),
                other => panic!("{}: {other:?}", row.protocol),
            }
            let script = "redis.call('SETRANGE', KEYS[1], 1, 'x') return string.rep('r', 17000000)";
            match ask(&["EVAL", script, "1", "k"]) {
                Value::Bulk(value) => assert_eq!(value.len(), 17_000_000, "{}", row.protocol),
                Value::Error(text) => assert!(is_refusal(&text), "{}: {text}", row.protocol),
                other => panic!("{}: {other:?}", row.protocol),
            }
        }
        for node in 0..3 {
            assert_eq!(nodes.ask(node, &sole), Value::Integer(len), "{}", row.protocol);
        }
    }
}

/// Databases of one cluster have protocols of their own.
#[test]
fn each_database_has_its_protocol() {
    let mut config = config();
    let folder = std::env::temp_dir().join(format!("palimpsest-protocols-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("databases.toml");
    let database = |index, protocol| {
        format!("[[database]]\nindex = {index}\nprotocol = \"{protocol}\"\ndurability = \"disk\"\n")
    };
    let text = [database(1, "classic-paxos"), database(2, "abd")].concat();
    fs::write(&file, text).expect("a file");
    config.arguments.extend(["--config".into(), file.to_string_lossy().into_owned()]);
    let mut nodes = Nodes::prepare_with(config);
    nodes.start_all();
    let mut client = nodes.client(1);
    let mut ask = |line: &str| client.command(line).expect("an answer");
    let refusal = |value: Value| match value {
        Value::Error(text) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(ask("INCR x"), Value::Integer(1));
    assert_eq!(ask("SELECT 1"), Value::ok());
    assert_eq!(ask("INCR x"), Value::Integer(1));
    assert_eq!(ask("RPUSH list a b"), Value::Integer(2));
    assert_eq!(ask("MULTI"), Value::ok());
    assert_eq!(ask("INCR x"), Value::Simple("QUEUED".into()));
    assert_eq!(ask("INCR y"), Value::Simple("QUEUED".into()));
    let several = refusal(ask("EXEC"));
    assert!(several.starts_with("ERR not supported by protocol 'classic-paxos'"), "{several}");
    assert!(several.contains("transactions"), "{several}");
    assert_eq!(ask("CLIENT CONSISTENCY UNCOMMITTED"), Value::ok());
    let uncommitted = refusal(ask("GET x"));
    assert!(uncommitted.contains("committed values only"), "{uncommitted}");
    assert_eq!(ask("CLIENT CONSISTENCY LINEARIZABLE"), Value::ok());
    assert_eq!(ask("GET x"), Value::text("1"));
    assert_eq!(ask("SELECT 2"), Value::ok());
    assert_eq!(ask("SET x 7"), Value::ok());
    let conditional = refusal(ask("INCR x"));
    assert!(conditional.starts_with("ERR not supported by protocol 'abd'"), "{conditional}");
    let several = refusal(ask("LCS x y"));
    assert!(several.contains("'abd'") && several.contains("several keys"), "{several}");
    assert_eq!(ask("GET x"), Value::text("7"));
    fs::remove_dir_all(&folder).expect("the folder is there");
}

/// When the writes of one client succeeded, until it is told to stop.
fn write_until(
    stop: &AtomicBool,
    count: &AtomicU64,
    mut client: Client,
    select: &str,
) -> Vec<Instant> {
    let mut times = Vec::new();
    client.command(select).expect("an answer");
    while !stop.load(Ordering::SeqCst) {
        if matches!(client.command("INCR x"), Ok(Value::Integer(_))) {
            times.push(Instant::now());
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
    times
}

/// The group of one database loses a member: the writes of a leaderless one beside it go on.
#[test]
fn failover_of_one_database_leaves_others_alone() {
    let folder = std::env::temp_dir().join(format!("palimpsest-failover-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("databases.toml");
    let text = "[[database]]\nindex = 0\n[[database]]\nindex = 1\nprotocol = \"hermes\"\n";
    fs::write(&file, text).expect("a file");
    let mut config = config();
    config.arguments.extend(["--config".into(), file.to_string_lossy().into_owned()]);
    let mut nodes = Nodes::prepare_with(config);
    nodes.start_all();
    let (first, second) = (nodes.client(0), nodes.client(0));
    let stop = AtomicBool::new(false);
    let (plain, grouped) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| write_until(&stop, &plain, first, "SELECT 0"));
        let failing = scope.spawn(|| write_until(&stop, &grouped, second, "SELECT 1"));
        let wait = |more: u64| {
            let least = grouped.load(Ordering::SeqCst) + more;
            eventually("the group writes", || grouped.load(Ordering::SeqCst) >= least);
        };
        wait(50);
        nodes.kill(2);
        wait(50);
        stop.store(true, Ordering::SeqCst);
        let (beside, failing) = (beside.join().expect("it ends"), failing.join().expect("it ends"));
        let gaps = failing.windows(2).map(|pair| (pair[1] - pair[0], pair[0], pair[1]));
        let (gap, from, until) = gaps.max().expect("many writes");
        let written = beside.iter().filter(|&&at| from < at && at < until).count();
        assert!(written >= 10, "{written} writes beside a gap of {gap:?}");
    });
    fs::remove_dir_all(&folder).expect("the folder is there");
}
