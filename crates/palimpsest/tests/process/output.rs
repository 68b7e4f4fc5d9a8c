//! Output that cannot be written: nodes live, commands end quietly.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use bench::client::Value;
use bench::cluster::Config;
use bench::process::ScratchDir;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

use crate::full_disk::Small;
use crate::support::{BINARY, LIMIT, Nodes, config, eventually, exit_of, http_get, run};

/// A node whose output goes where a test lets it go; it ends with this value.
struct Node(Child);

impl Node {
    fn start(nodes: &Nodes, index: usize, stdout: Stdio, stderr: Stdio) -> Node {
        let mut command = Command::new(BINARY);
        command.args(&nodes.cluster.nodes[index].arguments).stdin(Stdio::null());
        Node(command.stdout(stdout).stderr(stderr).spawn().expect("the program starts"))
    }

    /// The exit code after SIGTERM.
    fn stop(mut self) -> Option<i32> {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::TERM).expect("the node runs");
        let mut code = None;
        eventually("the node stops", || {
            code = self.0.try_wait().expect("it is a child");
            code.is_some()
        });
        code.and_then(|code| code.code())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").expect("/dev/full").into()
}

/// A pipe whose reader has gone.
fn broken() -> Stdio {
    let (_, writer) = std::io::pipe().expect("a pipe");
    OwnedFd::from(writer).into()
}

/// A pipe without a reader, and its reading end.
fn stuck() -> (File, Stdio) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut writer = File::from(OwnedFd::from(writer));
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("a pipe of our own");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).expect("a pipe of our own");
    (File::from(OwnedFd::from(reader)), writer.into())
}

fn dropped(nodes: &Nodes, index: usize) -> u64 {
    let (_, body) =
        http_get(nodes.cluster.nodes[index].admin, "/api/v1/status").expect("the admin port");
    let status: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    status["stats"]["log_lines_dropped"].as_u64().expect("a counter")
}

/// Two nodes whose output cannot be written live when the third is killed, and stop in good order.
fn assert_lives(output: impl Fn() -> (Stdio, Stdio), is_lossy: bool) {
    let mut nodes = Nodes::prepare("disk");
    nodes.cluster.start_node(2).expect("the program starts");
    let others = [0, 1].map(|index| {
        let (stdout, stderr) = output();
        Node::start(&nodes, index, stdout, stderr)
    });
    for index in 0..3 {
        nodes.wait_for_answer(index, "SET key value", &Value::ok());
    }
    nodes.kill(2);
    for index in 0..2 {
        nodes.wait_for_answer(index, "SET key again", &Value::ok());
        eventually("the peer's death was noticed", || {
            let (_, body) = http_get(nodes.cluster.nodes[index].admin, "/api/v1/events")
                .expect("the admin port");
            body.contains("member lost")
        });
        if is_lossy {
            eventually("dropped lines are counted", || dropped(&nodes, index) > 0);
        }
    }
    for node in others {
        assert_eq!(node.stop(), Some(0));
    }
}

#[test]
fn node_lives_on_a_full_device() {
    assert_lives(|| (full(), full()), true);
}

#[test]
fn node_lives_on_broken_pipes() {
    assert_lives(|| (broken(), broken()), true);
}

#[test]
fn node_lives_on_pipes_that_take_nothing() {
    let ends = std::cell::RefCell::new(Vec::new());
    let output = || {
        let ((one, stdout), (other, stderr)) = (stuck(), stuck());
        ends.borrow_mut().extend([one, other]);
        (stdout, stderr)
    };
    // Lines in the queue are not dropped yet.
    assert_lives(output, false);
}

#[test]
fn node_lives_without_output() {
    let mut nodes = Nodes::prepare("volatile");
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" >&- 2>&-", BINARY]);
    command.args(&nodes.cluster.nodes[0].arguments);
    let node = Node(command.spawn().expect("there is a shell"));
    for index in 1..3 {
        nodes.cluster.start_node(index).expect("the program starts");
    }
    nodes.wait_for_answer(0, "SET key value", &Value::ok());
    nodes.kill(2);
    nodes.wait_for_answer(0, "SET key again", &Value::ok());
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn last_lines_are_written_before_the_end() {
    let mut nodes = Nodes::start("volatile");
    assert_eq!(nodes.process(0).stop(LIMIT), Some(0));
    let log = nodes.log(0);
    assert!(log.trim_end().ends_with("stopped"), "{log}");
}

#[test]
fn nodes_live_with_data_and_logs_on_a_full_disk() {
    let Some(small) = Small::mount(96) else { return };
    let arguments = ["--ring-size", "1048576"].map(str::to_string).to_vec();
    let mut nodes = Nodes::prepare_with(Config { dir: small.path(), arguments, ..config() });
    nodes.start_all();
    small.fill();
    let value = "x".repeat(100_000);
    let mut client = nodes.client(0);
    let mut number = 0;
    eventually("a write is refused", || {
        number += 1;
        let reply = client.command(&format!("SET key:{number} {value}")).expect("an answer");
        reply.is_error("OOM")
    });
    let has_event = |nodes: &Nodes, text: &str| {
        let admin = nodes.cluster.nodes[0].admin;
        http_get(admin, "/api/v1/events").expect("the admin port").1.contains(text)
    };
    eventually("the full disk is an event", || has_event(&nodes, "disk full"));
    // Log lines find no space from here on, as many as there are.
    for _ in 0..3 {
        small.fill();
        nodes.kill(2);
        eventually("the peer's death was noticed", || has_event(&nodes, "member lost"));
        small.fill();
        nodes.cluster.start_node(2).expect("the program starts");
        nodes.wait_for_answer(2, "GET nothing", &Value::Nil);
    }
    for index in 0..2 {
        assert!(nodes.process(index).is_running(), "node {} ended", index + 1);
        nodes.wait_for_answer(index, "GET nothing", &Value::Nil);
    }
    small.make_room();
    nodes.wait_for_answer(0, &format!("SET key:1 {value}"), &Value::ok());
    eventually("node 1 logs that there is space", || {
        nodes.log(0).contains("disk has enough space again")
    });
    drop(nodes);
}

/// Commands that print and end by themselves, and the exit code of each.
fn short_commands(dir: &str) -> Vec<(Vec<String>, i32)> {
    let words = |line: &str| line.split(' ').map(str::to_string).collect::<Vec<_>>();
    vec![
        (words("version"), 0),
        (words("version --json"), 0),
        (words("--help"), 0),
        (words("--version"), 0),
        (words("serve --help"), 0),
        (words(&format!("verify {dir}")), 0),
        (words("sim --ops 5 --seeds 1"), 0),
    ]
}

fn with_output(words: &[String], stdout: Stdio, stderr: Stdio) -> (Option<i32>, String) {
    let mut command = Command::new(BINARY);
    command.args(words).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    let output = command.spawn().expect("the program starts").wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn commands_end_well_though_output_is_lost() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "short-output").expect("a folder");
    let dir = scratch.path().display().to_string();
    for (words, code) in short_commands(&dir) {
        let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(run(&arguments).status.code(), Some(code), "{words:?}");
        let (ended, said) = with_output(&words, broken(), Stdio::piped());
        assert_eq!((ended, said.as_str()), (Some(141), ""), "{words:?}");
        let (ended, said) = with_output(&words, full(), Stdio::piped());
        assert_eq!(ended, Some(1), "{words:?} said {said}");
        assert_eq!(said.lines().count(), 1, "{words:?} said {said}");
        assert!(said.contains("cannot write to standard output: No space left"), "{said}");
        // Standard error may be lost.
        let (ended, _) = with_output(&words, Stdio::null(), full());
        assert_eq!(ended, Some(code), "{words:?}");
        let (ended, _) = with_output(&words, Stdio::null(), broken());
        assert_eq!(ended, Some(code), "{words:?}");
    }
    let (code, said) = exit_of(&["status", "--address", "127.0.0.1:1"]);
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
}
