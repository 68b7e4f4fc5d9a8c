//! Connections that idle, vanish, are paused or killed, and the descriptors left for others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bench::client::{Client, Value};
use bench::cluster::Config;

use crate::support::{LIMIT, Nodes, config, eventually};

/// A program that runs the product with few file descriptors.
fn with_few_descriptors(dir: &Path, count: u32) -> std::path::PathBuf {
    let path = dir.join(format!("few-descriptors-{}", std::process::id()));
    let text = format!(
        "#!/bin/sh\nulimit -n {count}\nexec '{}' \"$@\"\n",
        env!("CARGO_BIN_EXE_palimpsest")
    );
    std::fs::write(&path, text).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a file");
    path
}

/// As many connections as asked for, each with the beginning of a request.
fn half_requests(address: SocketAddr, begin: &[u8], count: usize) -> Vec<TcpStream> {
    let one = |_| {
        let mut stream = TcpStream::connect_timeout(&address, LIMIT).ok()?;
        // It may be refused at once.
        let _ = stream.write_all(begin);
        Some(stream)
    };
    (0..count).filter_map(one).collect()
}

fn descriptors(nodes: &mut Nodes, index: usize) -> usize {
    let pid = nodes.process(index).pid();
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

#[test]
fn floods_leave_links_and_files_their_descriptors() {
    let scratch =
        bench::process::ScratchDir::new(&std::env::temp_dir(), "floods").expect("a folder");
    let binary = with_few_descriptors(scratch.path(), 256);
    let mut nodes = Nodes::prepare_with(Config { binary, ..config() });
    nodes.start_all();
    let node = &nodes.cluster.nodes[0];
    let flooded = [
        (node.resp, b"*2\r\n$3\r\nGET\r\n".as_slice()),
        (node.admin, b"GET /livez HTT"),
        (node.peer, b"\x01"),
    ];
    let held: Vec<TcpStream> = flooded
        .into_iter()
        .flat_map(|(address, begin)| half_requests(address, begin, 300))
        .collect();
    assert!(held.len() > 600, "the system takes connections");
    // Links to a restarted node come back, and the node itself can be restarted too.
    nodes.kill(1);
    eventually("the loss is noticed", || !bench::cluster::reaches(nodes.address(2), 3));
    nodes.restart(1);
    assert!(descriptors(&mut nodes, 0) <= 256);
    assert_eq!(nodes.ask(1, "SET x 1"), Value::ok());
    nodes.kill(2);
    assert_eq!(nodes.ask(1, "SET x 2"), Value::ok(), "the flooded node votes");
    drop(held);
    nodes.wait_for_answer(0, "GET x", &Value::text("2"));
}

/// Silent connections to the port for nodes end by themselves, and never keep members out.
#[test]
fn unproven_peers_are_bounded_and_time_out() {
    let mut nodes = Nodes::start("disk");
    let before = descriptors(&mut nodes, 0);
    let mut held = half_requests(nodes.cluster.nodes[0].peer, b"", 200);
    eventually("all but a few are closed", || descriptors(&mut nodes, 0) <= before + 32);
    eventually("the last of them time out", || descriptors(&mut nodes, 0) <= before);
    let last = held.last_mut().expect("there are many");
    last.set_read_timeout(Some(LIMIT)).expect("a socket");
    // Its hello may come first.
    assert!(last.read_to_end(&mut Vec::new()).is_ok(), "it was closed");
}

/// The kernel's timer of the node's end of a client's connection, in hundredths of a second. `None`
/// without keep-alive.
fn keep_alive_timer(server: SocketAddr, client: SocketAddr) -> Option<u64> {
    let hex = |address: SocketAddr| match address {
        SocketAddr::V4(it) => {
            format!("{:08X}:{:04X}", u32::from_ne_bytes(it.ip().octets()), it.port())
        }
        SocketAddr::V6(_) => panic!("nodes listen on 127.0.0.1"),
    };
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel has it");
    let ends = [hex(server), hex(client)];
    let line = table.lines().find(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1..3).is_some_and(|of| of == ends)
    })?;
    let (kind, when) = line.split_whitespace().nth(5)?.split_once(':')?;
    (kind == "02").then(|| u64::from_str_radix(when, 16).expect("a number"))
}

#[test]
fn clients_are_probed_as_configured() {
    let nodes = Nodes::start("volatile");
    let stream = TcpStream::connect(nodes.address(0)).expect("it listens");
    let local = stream.local_addr().expect("it is connected");
    let timer = || keep_alive_timer(nodes.address(0), local);
    eventually("the default counts", || {
        timer().is_some_and(|left| left > 10_000 && left <= 30_000)
    });
    assert_eq!(nodes.ask(0, "CONFIG SET tcp-keepalive 20"), Value::ok());
    eventually("a new setting counts at once", || timer().is_some_and(|left| left <= 2_000));
    assert_eq!(nodes.ask(0, "CONFIG SET tcp-keepalive 0"), Value::ok());
    eventually("it can be switched off", || timer().is_none());
}

fn info(client: &mut Client, name: &str) -> usize {
    let Ok(Value::Bulk(text)) = client.command("INFO clients") else { panic!("INFO is answered") };
    let text = String::from_utf8(text).expect("it is text");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.expect("INFO has it").parse().expect("a number")
}

fn id_of(client: &mut Client) -> i64 {
    match client.command("CLIENT ID") {
        Ok(Value::Integer(id)) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn killed_clients_are_gone_at_once() {
    let nodes = Nodes::start("volatile");
    let mut other = nodes.client(0);
    assert_eq!(other.command("PING").expect("a reply"), Value::Simple("PONG".into()));
    for _ in 0..8 {
        let mut victim = nodes.client(0);
        let id = id_of(&mut victim);
        let before = info(&mut other, "connected_clients");
        assert_eq!(
            other.command(&format!("CLIENT KILL ID {id}")).expect("a reply"),
            Value::Integer(1)
        );
        assert_eq!(info(&mut other, "connected_clients"), before - 1);
        let ended = victim.receive().expect_err("it was killed");
        let is_end = ended.kind() == std::io::ErrorKind::UnexpectedEof
            || ended.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(is_end, "{ended}");
    }
    // A client that reads nothing is closed as well.
    let mut deaf = nodes.client(0);
    let id = id_of(&mut deaf);
    let value = "x".repeat(1 << 20);
    assert_eq!(other.ask(&[b"SET", b"big", value.as_bytes()]).expect("a reply"), Value::ok());
    let gets = b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(64);
    deaf.send_raw(&gets).expect("it is sent");
    let pid_of_node = nodes.cluster.nodes[0].process.as_ref().expect("it runs").pid();
    let count = || std::fs::read_dir(format!("/proc/{pid_of_node}/fd")).map_or(0, Iterator::count);
    let before = count();
    assert_eq!(other.command(&format!("CLIENT KILL ID {id}")).expect("a reply"), Value::Integer(1));
    eventually("its socket is closed", || count() < before);
}

#[test]
fn paused_writes_are_counted_and_go_on() {
    let nodes = Nodes::start("volatile");
    let (mut one, mut other) = (nodes.client(0), nodes.client(0));
    assert_eq!(one.command("CLIENT PAUSE 600000 WRITE").expect("a reply"), Value::ok());
    other.send_raw(b"SET a 1\r\n").expect("it is sent");
    eventually("it is counted", || info(&mut one, "blocked_clients") == 1);
    let Ok(Value::Bulk(list)) = one.command("CLIENT LIST") else { panic!("it is answered") };
    let list = String::from_utf8(list).expect("it is text");
    assert_eq!(list.lines().filter(|line| line.contains(" flags=b ")).count(), 1, "{list}");
    assert_eq!(one.command("GET a").expect("a reply"), Value::Nil);
    assert_eq!(one.command("CLIENT UNPAUSE").expect("a reply"), Value::ok());
    assert_eq!(other.receive().expect("a reply"), Value::ok());
    eventually("it is counted no more", || info(&mut one, "blocked_clients") == 0);
}

#[test]
fn settings_of_clients_count_at_once() {
    let nodes = Nodes::start("volatile");
    let mut admin = nodes.client(0);
    let mut set = |pairs: &str| admin.command(&format!("CONFIG SET {pairs}")).expect("a reply");
    let mut idle = nodes.client(0);
    assert_eq!(idle.command("PING").expect("a reply"), Value::Simple("PONG".into()));
    assert_eq!(set("timeout 1"), Value::ok());
    let waiting = std::thread::spawn(move || idle.receive().is_err());
    // Meanwhile this client is not idle.
    eventually("the idle client ends", || {
        assert_eq!(set("timeout 1"), Value::ok());
        waiting.is_finished()
    });
    assert!(waiting.join().expect("it has ended"), "the idle client was answered");
    assert_eq!(set("timeout 0 maxclients 2"), Value::ok());
    // The first beyond the two is told so, unasked.
    let _second = nodes.client(0);
    let mut third = nodes.client(0);
    let refused = third.receive().expect("it is told");
    assert_eq!(refused, Value::Error("ERR max number of clients reached".into()));
    assert_eq!(set("maxclients 100 requirepass secret"), Value::ok());
    eventually("new clients need the password", || {
        nodes.client(0).command("PING").is_ok_and(|reply| reply.is_error("NOAUTH"))
    });
    let mut late = nodes.client(0);
    assert_eq!(late.command("AUTH secret").expect("a reply"), Value::ok());
    assert_eq!(
        late.command("CONFIG GET requirepass").expect("a reply"),
        Value::List(vec![Value::text("requirepass"), Value::text("secret"),])
    );
}
