//! The rules of a first start, and refusals before a node serves.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use bench::client::Value;
use bench::process::{ScratchDir, free_addresses};

use crate::support::{LIMIT, Nodes, eventually, exit_of};

/// Asks a node that must not serve yet; a closed port is as good as an error.
fn refuses(nodes: &Nodes, index: usize) -> bool {
    let reply = bench::client::ask_once(nodes.address(index), "SET x 1", LIMIT);
    reply.is_none_or(|reply| matches!(reply, Value::Error(_)))
}

#[test]
fn two_of_three_new_nodes_do_not_form_a_cluster() {
    let mut nodes = Nodes::prepare("disk");
    for index in 0..2 {
        nodes.cluster.start_node(index).expect("the program starts");
    }
    // Both have said something to clients before they are asked for more.
    for index in 0..2 {
        eventually("the node listens", || {
            bench::client::ask_once(nodes.address(index), "PING", LIMIT).is_some()
        });
        assert!(refuses(&nodes, index), "node {} serves without the third", index + 1);
    }
    nodes.cluster.start_node(2).expect("the program starts");
    nodes.wait_ready();
    assert_eq!(nodes.ask(0, "SET x 1"), Value::ok());
}

#[test]
fn nodes_with_different_lists_do_not_form_a_cluster() {
    let mut nodes = Nodes::prepare("disk");
    let at = nodes.cluster.nodes[2].arguments.iter().position(|word| word == "--cluster");
    let list = at.expect("every node is given the list") + 1;
    let others = nodes.cluster.nodes[2].arguments[list].clone();
    let mine = others.split(',').skip(1).collect::<Vec<_>>().join(",");
    nodes.cluster.nodes[2].arguments[list] = mine;
    for index in 0..3 {
        nodes.cluster.start_node(index).expect("the program starts");
    }
    for index in 0..2 {
        eventually("the node listens", || {
            bench::client::ask_once(nodes.address(index), "PING", LIMIT).is_some()
        });
        assert!(refuses(&nodes, index), "node {} serves with a list of its own", index + 1);
    }
}

#[test]
fn wiped_node_names_a_mistake_in_its_list() {
    let mut nodes = Nodes::start("disk");
    assert_eq!(nodes.ask(0, "SET x 1"), Value::ok());
    nodes.kill(2);
    std::fs::remove_dir_all(nodes.data_dir(2)).expect("the directory is there");
    let right = nodes.cluster.nodes[2].arguments.clone();
    let at = right.iter().position(|word| word == "--cluster").expect("nodes get a list") + 1;
    let first = right[at].split(',').next().expect("a member");
    let wrong = right[at].replace(first, "1=127.0.0.1:1@2");
    nodes.cluster.nodes[2].arguments[at] = wrong;
    nodes.restart(2);
    assert_eq!(nodes.ask(2, "GET x"), Value::text("1"));
    let text = "--cluster of this node is not the members' list: only here 1=127.0.0.1:1 ";
    eventually("the mistake is named", || nodes.log(2).contains(text));
    nodes.kill(2);
    nodes.cluster.nodes[2].arguments = right;
    nodes.restart(2);
    assert_eq!(nodes.log(2).matches(text).count(), 1, "the corrected list is good");
}

#[test]
fn wrong_usage_is_one_line_and_exit_code_two() {
    let cases: &[&[&str]] = &[
        &["serve"],
        &["serve", "--id", "0", "--cluster", "1=127.0.0.1:1,2=127.0.0.1:2,3=127.0.0.1:3"],
        &["serve", "--id", "7", "--cluster", "1=127.0.0.1:1,2=127.0.0.1:2,3=127.0.0.1:3"],
        &["serve", "--id", "1", "--cluster", "nonsense"],
        &["serve", "--id", "1", "--durability", "wishful"],
        &["serve", "--id", "1", "--protocol", "no-such-protocol"],
        &["serve", "--config", "/nonexistent/palimpsest.toml"],
        &["no-such-command"],
    ];
    for arguments in cases {
        let (code, said) = exit_of(arguments);
        assert_eq!(code, Some(2), "{arguments:?} said {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?} said {said}");
        assert!(!said.contains("panicked"), "{arguments:?} said {said}");
    }
}

#[test]
fn node_does_not_listen_beyond_loopback_without_password_and_secret() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "beyond-loopback");
    let scratch = scratch.expect("a folder");
    let dir = scratch.path().join("data").display().to_string();
    let port = free_addresses(1).expect("a free port")[0].port();
    let listen = format!("0.0.0.0:{port}");
    let cluster = format!("1=127.0.0.1:{port}");
    let arguments =
        ["serve", "--id", "1", "--listen", &listen, "--cluster", &cluster, "--data-dir", &dir];
    let (code, said) = exit_of(&arguments);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("password") || said.contains("secret"), "{said}");
    assert!(!scratch.path().join("data").exists(), "a refused start made a data directory");
}

#[test]
fn node_with_another_secret_is_not_heard() {
    let mut nodes = Nodes::prepare("disk");
    for (index, secret) in ["right", "right", "wrong"].into_iter().enumerate() {
        let file = nodes.cluster.dir().join(format!("secret-{index}"));
        std::fs::write(&file, secret).expect("a file");
        let node = &mut nodes.cluster.nodes[index];
        node.arguments.extend(["--cluster-secret-file".to_string(), file.display().to_string()]);
    }
    for index in 0..3 {
        nodes.cluster.start_node(index).expect("the program starts");
    }
    for index in 0..2 {
        eventually("the node listens", || {
            bench::client::ask_once(nodes.address(index), "PING", LIMIT).is_some()
        });
        assert!(refuses(&nodes, index), "a cluster formed with a node of another secret");
    }
    nodes.kill(2);
    std::fs::write(nodes.cluster.dir().join("secret-2"), "right").expect("a file");
    nodes.cluster.start_node(2).expect("the program starts");
    nodes.wait_ready();
    assert_eq!(nodes.ask(2, "SET x 1"), Value::ok());
}

/// A node of its own under a limit of the shell's, and where it listens.
fn under(limit: &str, dir: &Path) -> (SocketAddr, Command) {
    let members = |address: SocketAddr, peer: SocketAddr| format!("1={address}@{}", peer.port());
    serving(limit, dir, members)
}

/// A node under a limit of the shell; `members` makes its list from its addresses for clients and
/// for nodes.
fn serving(
    limit: &str,
    dir: &Path,
    members: impl FnOnce(SocketAddr, SocketAddr) -> String,
) -> (SocketAddr, Command) {
    let free = free_addresses(3).expect("free ports");
    let [address, peer, admin] = free[..] else { unreachable!("it gives what was asked for") };
    let mut command = Command::new("sh");
    let run = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    command.args(["-c", &run, env!("CARGO_BIN_EXE_palimpsest"), "serve", "--id", "1"]);
    command.args(["--listen", &address.to_string(), "--peer-listen", &peer.to_string()]);
    command.args(["--admin-listen", &admin.to_string()]);
    command.args(["--cluster", &members(address, peer)]);
    command.arg("--data-dir").arg(dir.join("data")).stdout(Stdio::null()).stderr(Stdio::piped());
    (address, command)
}

/// Where files may not be as long as the store needs, that is said; the process is not just ended.
#[test]
fn a_limit_on_the_length_of_files_is_named() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "file-limit").expect("a folder");
    let (_, mut command) = under("-f 1000", scratch.path());
    let output = command.output().expect("there is a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("File too large"), "{said}");
}

/// Clients beyond the limit of file descriptors wait, which is logged, and are served once others
/// leave. The node keeps its own descriptors even if the clients come first.
#[test]
fn clients_that_find_no_file_descriptor_wait() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "few-descriptors").expect("a folder");
    let (address, mut command) = under("-n 64", scratch.path());
    let mut node = command.stdout(Stdio::piped()).spawn().expect("there is a shell");
    let mut others = Vec::new();
    eventually("the node listens", || {
        others.extend(TcpStream::connect(address).ok());
        !others.is_empty()
    });
    others.extend((1..80).map(|_| TcpStream::connect(address).expect("the system takes it")));
    let mut last = others.pop().expect("there are many");
    let mut lines = BufReader::new(node.stdout.take().expect("it is piped")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "ready")), "it ended");
    last.write_all(b"PING\r\n").expect("it is sent");
    last.set_read_timeout(Some(LIMIT)).expect("it is connected");
    drop(others);
    let mut answer = [0; 7];
    last.read_exact(&mut answer).expect("it is served");
    assert_eq!(&answer, b"+PONG\r\n");
    node.kill().expect("it runs");
    let said = String::from_utf8(node.wait_with_output().expect("it ends").stderr);
    let said = said.expect("it is text");
    assert!(said.contains("too few for 10000 clients"), "{said}");
    assert!(said.contains("clients wait that cannot be accepted"), "{said}");
}

/// A list that names other ports than nodes listen at is not refused, for there may be proxies; it
/// is remarked.
#[test]
fn members_that_are_not_reached_are_named() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "not-reached").expect("a folder");
    // Only the system's own services may listen there.
    let members = |address: SocketAddr, _: SocketAddr| format!("1={address}@1,2=127.0.0.1:2@2");
    let (_, mut command) = serving("-c 0", scratch.path(), members);
    let mut node = command.spawn().expect("there is a shell");
    let said = BufReader::new(node.stderr.take().expect("it is piped")).lines();
    let mut awaited = vec![
        vec!["they look for it at 127.0.0.1:1"],
        vec!["member not reached", "peer=2", "addr=127.0.0.1:2"],
    ];
    for line in said {
        let line = line.expect("it is text");
        awaited.retain(|texts| !texts.iter().all(|text| line.contains(text)));
        if awaited.is_empty() {
            break;
        }
    }
    node.kill().expect("it runs");
    node.wait().expect("it ends");
    assert!(awaited.is_empty(), "it ended without saying {awaited:?}");
}

/// The name may become known later, so the node goes on.
#[test]
fn hosts_of_members_that_are_unknown_are_named() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "unknown-host").expect("a folder");
    let members = |address: SocketAddr, peer: SocketAddr| {
        format!("1={address}@{},2=no-such-host.invalid:2", peer.port())
    };
    let (_, mut command) = serving("-c 0", scratch.path(), members);
    let mut node = command.spawn().expect("there is a shell");
    let mut said = BufReader::new(node.stderr.take().expect("it is piped")).lines();
    let named = said.any(|line| {
        let line = line.expect("it is text");
        line.contains("no-such-host.invalid") && line.contains("cannot be looked up")
    });
    node.kill().expect("it runs");
    node.wait().expect("it ends");
    assert!(named, "it ended without naming the host");
}
