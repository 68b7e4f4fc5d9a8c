//! Clients that others wrote: redis-cli, redis-benchmark, redis-py in RESP2 and RESP3.
//!
//! `./x test` installs them. The scripts lie in `tests/clients`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use bench::client::Value;

use crate::support::Nodes;

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// The interpreter that has redis-py.
fn python() -> PathBuf {
    let given = std::env::var_os("PALIMPSEST_TEST_PYTHON").map(PathBuf::from);
    given.unwrap_or_else(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        root.join("target/venv/bin/python")
    })
}

fn finish(mut command: Command) -> Output {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}. `./x test` installs what is missing"))
}

/// Its standard output.
///
/// # Panics
/// If it failed.
fn succeed(command: Command) -> String {
    let output = finish(command);
    let said = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{text}\n{said}", output.status);
    text
}

fn redis_cli(nodes: &Nodes, index: usize, arguments: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &nodes.address(index).port().to_string()]).args(arguments);
    succeed(command)
}

#[test]
fn redis_cli_works_on_every_node() {
    let nodes = Nodes::start("disk");
    assert_eq!(redis_cli(&nodes, 0, &["incr", "visits"]), "1\n");
    assert_eq!(redis_cli(&nodes, 2, &["get", "visits"]), "1\n");
    assert_eq!(redis_cli(&nodes, 1, &["-3", "set", "k", "v", "px", "60000", "nx"]), "OK\n");
    let left: i64 = redis_cli(&nodes, 2, &["pttl", "k"]).trim().parse().expect("a number");
    assert!((1..=60_000).contains(&left), "{left} ms left");
    assert_eq!(redis_cli(&nodes, 0, &["-n", "3", "get", "visits"]), "\n");
    assert!(redis_cli(&nodes, 0, &["info"]).contains("server_name:palimpsest"));
    assert!(redis_cli(&nodes, 0, &["command", "docs", "incr"]).contains("summary"));
    for number in 0..25 {
        redis_cli(&nodes, number % 3, &["set", &format!("scanned:{number}"), "1"]);
    }
    let listed = redis_cli(&nodes, 1, &["--scan", "--pattern", "scanned:*"]);
    let different: std::collections::BTreeSet<&str> = listed.lines().collect();
    assert_eq!(different.len(), 25, "{listed}");
}

#[test]
fn redis_cli_pipe_loads_in_bulk() {
    let nodes = Nodes::start("disk");
    let mut input = String::new();
    for number in 0..2_000 {
        let (key, value) = (format!("bulk:{number}"), format!("{number}"));
        let (key_length, value_length) = (key.len(), value.len());
        input +=
            &format!("*3\r\n$3\r\nSET\r\n${key_length}\r\n{key}\r\n${value_length}\r\n{value}\r\n");
    }
    let file = nodes.cluster.dir().join("bulk");
    std::fs::write(&file, input).expect("a file can be written");
    let mut command = Command::new("redis-cli");
    command.args(["-p", &nodes.address(0).port().to_string(), "--pipe"]);
    let output = command.stdin(std::fs::File::open(&file).expect("the file is there")).output();
    let output = output.expect("redis-cli is installed by ./x test");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("errors: 0, replies: 2000"), "{text}");
    assert_eq!(nodes.ask(1, "GET bulk:1999"), Value::text("1999"));
}

#[test]
fn redis_benchmark_sees_no_error() {
    let nodes = Nodes::start("disk");
    for (index, pipeline) in [(0, "1"), (1, "16")] {
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", &nodes.address(index).port().to_string(), "-P", pipeline]);
        command.args(["-t", "ping_inline,ping_mbulk,set,get,incr", "-n", "4000", "-c", "16"]);
        command.args(["-r", "500", "--csv"]);
        let text = succeed(command);
        for test in ["PING_INLINE", "SET", "GET", "INCR"] {
            assert!(text.contains(&format!("\"{test}\"")), "{test} is missing:\n{text}");
        }
        assert!(!text.to_lowercase().contains("error"), "{text}");
    }
}

#[test]
fn redis_py_works_in_resp2_and_resp3() {
    let nodes = Nodes::start("disk");
    for protocol in ["2", "3"] {
        let mut command = Command::new(python());
        command.arg(scripts().join("redis_py.py")).arg(protocol);
        command.args(nodes.cluster.addresses().iter().map(|a| a.port().to_string()));
        let text = succeed(command);
        assert!(text.trim_end().ends_with("done"), "{text}");
    }
}

/// Locks, registered scripts, recipes.
#[test]
fn redis_py_runs_scripts() {
    let nodes = Nodes::start("volatile");
    for protocol in ["2", "3"] {
        let mut command = Command::new(python());
        command.arg(scripts().join("scripts.py")).arg(protocol);
        command.args(nodes.cluster.addresses().iter().map(|a| a.port().to_string()));
        let text = succeed(command);
        assert!(text.trim_end().ends_with("done"), "{text}");
    }
}

#[test]
fn redis_py_goes_on_with_another_node_when_one_is_killed() {
    let mut nodes = Nodes::start("disk");
    let ports: Vec<String> =
        nodes.cluster.addresses().iter().map(|a| a.port().to_string()).collect();
    nodes.kill(0);
    let mut command = Command::new(python());
    command.arg(scripts().join("failover.py")).args(&ports);
    assert!(succeed(command).trim_end().ends_with("done"));
}
