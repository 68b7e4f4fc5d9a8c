//! A cluster that a test owns.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};

use bench::client::{Client, Value};
use bench::cluster::{Cluster, Config};
use bench::process::Process;

use super::{LIMIT, eventually};

/// Clusters at a time in this process. Most tests wait for timeouts of nodes.
const CLUSTERS_MAX: usize = 2;
static CLUSTERS: Mutex<usize> = Mutex::new(0);
static CLUSTER_ENDED: Condvar = Condvar::new();

/// The right to run one cluster.
struct Turn;

impl Turn {
    fn wait() -> Turn {
        let clusters = CLUSTERS.lock().unwrap_or_else(PoisonError::into_inner);
        let room = CLUSTER_ENDED.wait_while(clusters, |clusters| *clusters >= CLUSTERS_MAX);
        *room.unwrap_or_else(PoisonError::into_inner) += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *CLUSTERS.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        CLUSTER_ENDED.notify_one();
    }
}

pub const BINARY: &str = env!("CARGO_BIN_EXE_palimpsest");

/// Three nodes; they end with this value, and print their logs if the test has failed.
pub struct Nodes {
    pub cluster: Cluster,
    _turn: Turn,
}

impl Nodes {
    /// Chooses ports and folders without starting a node.
    pub fn prepare(durability: &str) -> Nodes {
        Nodes::prepare_with(Config { durability: durability.to_string(), ..config() })
    }

    pub fn prepare_with(config: Config) -> Nodes {
        let turn = Turn::wait();
        let cluster = Cluster::prepare(&config).expect("ports and folders");
        Nodes { cluster, _turn: turn }
    }

    /// Starts three nodes and waits until they serve.
    pub fn start(durability: &str) -> Nodes {
        let mut nodes = Nodes::prepare(durability);
        nodes.start_all();
        nodes
    }

    pub fn start_all(&mut self) {
        for index in 0..self.len() {
            self.cluster.start_node(index).expect("the program starts");
        }
        self.wait_ready();
    }

    /// Starts node `index` again and waits until it serves.
    pub fn restart(&mut self, index: usize) {
        self.cluster.start_node(index).expect("the program starts");
        self.cluster.wait_ready(index).unwrap_or_else(|error| panic!("{error}"));
    }

    /// `kill -9`.
    pub fn kill(&mut self, index: usize) {
        self.cluster.kill_node(index);
    }

    pub fn kill_all(&mut self) {
        (0..self.len()).for_each(|index| self.kill(index));
    }

    pub fn wait_ready(&mut self) {
        self.cluster.wait_all_ready().unwrap_or_else(|error| panic!("{error}"));
    }

    pub fn len(&self) -> usize {
        self.cluster.nodes.len()
    }

    pub fn address(&self, index: usize) -> SocketAddr {
        self.cluster.nodes[index].resp
    }

    pub fn data_dir(&self, index: usize) -> &Path {
        &self.cluster.nodes[index].data_dir
    }

    pub fn process(&mut self, index: usize) -> &mut Process {
        self.cluster.nodes[index].process.as_mut().expect("the node was started")
    }

    pub fn client(&self, index: usize) -> Client {
        Client::connect(self.address(index), LIMIT).expect("the node listens")
    }

    /// Asks node `index` over a connection of its own.
    pub fn ask(&self, index: usize, line: &str) -> Value {
        self.client(index).command(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Waits until node `index` answers `line` with `expected`.
    pub fn wait_for_answer(&self, index: usize, line: &str, expected: &Value) {
        let what = format!("node {} answers {line} with {expected:?}", index + 1);
        eventually(&what, || {
            let reply =
                Client::connect(self.address(index), LIMIT).and_then(|mut c| c.command(line));
            reply.is_ok_and(|reply| reply == *expected)
        });
    }

    /// Waits until node `index` ends by itself; its exit code.
    pub fn wait_exit(&mut self, index: usize) -> Option<i32> {
        let process = self.process(index);
        eventually("the process ends by itself", || !process.is_running());
        process.exit_code().flatten()
    }

    /// The output of node `index` so far.
    pub fn log(&self, index: usize) -> String {
        let text = std::fs::read(&self.cluster.nodes[index].log).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for index in 0..self.len() {
                eprintln!("--- node {} said:\n{}", index + 1, self.log(index));
            }
        }
    }
}

/// The configuration that all tests start from.
pub fn config() -> Config {
    Config { binary: BINARY.into(), ..Config::default() }
}

/// Runs the program to its end, without a terminal.
pub fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(arguments).stdin(Stdio::null()).output().expect("the program starts")
}

/// Runs the program. Returns its exit code and standard error.
pub fn exit_of(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(arguments);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Status and body of an HTTP request, `None` without an answer.
pub fn http_get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_string()))
}
