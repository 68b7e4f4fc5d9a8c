//! The admin port: hostile clients, passwords for scrapers, and the reason why writes are refused.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;

use bench::client::{Client, Value};
use bench::process::ScratchDir;

use crate::support::{LIMIT, Nodes, config, eventually, http_get};

/// Nodes whose program runs under `limit`, such as `ulimit -n 256`, and the folder with its script.
fn limited(durability: &str, limit: &str) -> (Nodes, ScratchDir) {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "limited").expect("a folder");
    let script = scratch.path().join("palimpsest");
    let text = format!("#!/bin/sh\n{limit}\nexec '{}' \"$@\"\n", config().binary.display());
    std::fs::write(&script, text).expect("a script can be written");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&script, executable).expect("a script can be made executable");
    let durability = durability.to_string();
    let config = bench::cluster::Config { binary: script, durability, ..config() };
    (Nodes::prepare_with(config), scratch)
}

/// Status of `/metrics` for these credentials, in base64.
fn scrape(address: SocketAddr, credentials: Option<&str>) -> u16 {
    let mut stream = TcpStream::connect(address).expect("the node listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out can be set");
    let header = credentials.map(|it| format!("Authorization: Basic {it}\r\n"));
    let header = header.unwrap_or_default();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n")
        .expect("the node listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the node answers");
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("it is HTTP")
}

#[test]
fn half_requests_leave_descriptors_for_peers() {
    let (mut nodes, _scratch) = limited("volatile", "ulimit -n 256");
    nodes.start_all();
    let admin = nodes.cluster.nodes[0].admin;
    let half: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(admin).expect("the node listens");
            // A connection that made way for a later one may be gone already.
            let _ = stream.write_all(b"GET /readyz HT");
            stream
        })
        .collect();
    let is_ready = || http_get(admin, "/readyz").is_some_and(|(code, _)| code == 200);
    eventually("the node answers a whole request", is_ready);
    nodes.kill(1);
    nodes.restart(1);
    eventually("the link to the peer is back", || {
        let (_, status) = http_get(admin, "/api/v1/status").expect("an answer");
        let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
        let members = status["members"].as_array().expect("a list of members");
        members.iter().all(|member| member["up"] == true)
    });
    assert_eq!(nodes.ask(0, "SET x 1"), Value::ok());
    let pid = nodes.cluster.pids()[0];
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs").count();
    assert!(open < 200, "{open} descriptors are open");
    drop(half);
}

#[test]
fn scrapers_have_a_password_of_their_own() {
    let mut nodes = Nodes::prepare("volatile");
    let (password, metrics) =
        (nodes.cluster.dir().join("password"), nodes.cluster.dir().join("metrics"));
    std::fs::write(&password, "sesame\n").expect("a file can be written");
    std::fs::write(&metrics, "scrape\n").expect("a file can be written");
    for node in &mut nodes.cluster.nodes {
        node.arguments.extend(["--password-file".to_string(), password.display().to_string()]);
    }
    let metrics = ["--metrics-password-file".to_string(), metrics.display().to_string()];
    nodes.cluster.nodes[1].arguments.extend(metrics);
    nodes.cluster.nodes[2].arguments.push("--metrics-loopback".into());
    for index in 0..nodes.len() {
        nodes.cluster.start_node(index).expect("the program starts");
    }
    let admins: Vec<SocketAddr> = nodes.cluster.nodes.iter().map(|node| node.admin).collect();
    // The helpers ask without a password.
    for &admin in &admins {
        eventually("the node is ready", || {
            http_get(admin, "/readyz").is_some_and(|(code, _)| code == 200)
        });
    }
    // "x:sesame" and "x:scrape"
    let (sesame, of_scraper) = (Some("eDpzZXNhbWU="), Some("eDpzY3JhcGU="));
    for (node, credentials, expected) in [
        (0, None, 401),
        (0, sesame, 200),
        (0, of_scraper, 401),
        (1, None, 401),
        (1, sesame, 200),
        (1, of_scraper, 200),
        (2, None, 200),
        (2, of_scraper, 200),
    ] {
        let code = scrape(admins[node], credentials);
        assert_eq!(code, expected, "node {} with {credentials:?}", node + 1);
    }
}

#[test]
fn a_node_that_takes_no_writes_says_why() {
    // Blocks of 512 bytes: files of 16 MiB.
    let (mut nodes, _scratch) = limited("disk", "ulimit -f 32768");
    for node in &mut nodes.cluster.nodes {
        node.arguments.extend(["--ring-size".to_string(), "1MB".to_string()]);
    }
    nodes.start_all();
    let admin = nodes.cluster.nodes[0].admin;
    let answer = |path: &str| http_get(admin, path).expect("an answer");
    assert_eq!(answer("/readyz?writes"), (200, "ready\n".into()));
    let value = "v".repeat(500_000);
    let mut client = Client::connect(nodes.address(0), LIMIT).expect("the node listens");
    let mut number = 0;
    eventually("the node names the file size limit", || {
        number += 1;
        // Writes beyond the limit wait for room that does not come, or are refused.
        if client.command(&format!("SET key:{number} {value}")).is_err() {
            client = Client::connect(nodes.address(0), LIMIT).expect("the node listens");
        }
        answer("/readyz").1.contains("writes: refused (file size limit)")
    });
    assert_eq!(answer("/readyz").0, 200, "it serves reads");
    let (code, text) = answer("/readyz?writes&verbose");
    assert_eq!(code, 503, "{text}");
    assert!(text.contains("[-]writes failed: file size limit"), "{text}");
    let (_, status) = answer("/api/v1/status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
    assert_eq!(status["writes"], "refused (file size limit)");
    let (_, metrics) = answer("/metrics");
    let series = "palimpsest_writes_refused{reason=\"file_size_limit\"} 1";
    assert!(metrics.contains(series), "{metrics}");
    let first = nodes.ask(0, "STRLEN key:1");
    assert_eq!(first, Value::Integer(500_000), "reads go on");
}
