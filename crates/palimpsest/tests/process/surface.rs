//! What operators touch: `dev`, `status`, `version`, the password, the admin port.

use std::process::Command;

use bench::client::{Client, Value};
use bench::process::{Process, ScratchDir, free_addresses};

use crate::support::{LIMIT, Nodes, eventually, http_get, run};

#[test]
fn dev_says_ready_serves_on_every_port_and_keeps_its_data() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "dev").expect("a folder");
    let port = three_ports_in_a_row();
    let addresses: Vec<std::net::SocketAddr> =
        (0..3).map(|i| ([127, 0, 0, 1], port + i).into()).collect();
    for round in 0..2 {
        let log = scratch.path().join(format!("log-{round}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_palimpsest"));
        command.args(["dev", "--port", &port.to_string()]).current_dir(scratch.path());
        let mut dev = Process::start(&mut command, &log).expect("the program starts");
        eventually("dev says ready", || {
            assert!(dev.is_running(), "dev ended: {}", dev.log_tail());
            dev.log_tail().lines().any(|line| line == "ready")
        });
        for (index, &address) in addresses.iter().enumerate() {
            let mut client = Client::connect(address, LIMIT).expect("the node listens");
            let visits = client.command("INCR visits").expect("an answer");
            assert_eq!(visits, Value::Integer(round * 3 + index as i64 + 1));
        }
        for &address in &addresses {
            assert!(dev.log_tail().contains(&address.to_string()), "{}", dev.log_tail());
        }
        assert_eq!(dev.stop(LIMIT), Some(0), "{}", dev.log_tail());
    }
    assert!(scratch.path().join("palimpsest-data").is_dir());
}

/// `dev` wants consecutive ports.
fn three_ports_in_a_row() -> u16 {
    for _ in 0..1_000 {
        let ports: Vec<u16> =
            free_addresses(3).expect("free ports").iter().map(|a| a.port()).collect();
        if ports[1] == ports[0] + 1 && ports[2] == ports[0] + 2 {
            return ports[0];
        }
    }
    panic!("no three free ports in a row");
}

#[test]
fn status_shows_every_member_and_fails_without_a_quorum() {
    let mut nodes = Nodes::start("volatile");
    let admin = nodes.cluster.nodes[0].admin.to_string();
    // A node notices a moment after it serves that it does.
    eventually("status says that all is well", || {
        run(&["status", "--address", &admin]).status.code() == Some(0)
    });
    let output = run(&["status", "--address", &admin]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(&admin) && text.contains("3/3"), "{text}");
    let json = run(&["status", "--json", "--address", &admin]);
    let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&json.stdout);
    assert!(parsed.is_ok(), "{}", String::from_utf8_lossy(&json.stdout));
    nodes.kill(1);
    nodes.kill(2);
    eventually("status fails without a quorum", || {
        run(&["status", "--address", &admin]).status.code() == Some(1)
    });
}

#[test]
fn version_names_itself() {
    let output = run(&["version"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
}

#[test]
fn help_is_there_for_every_command() {
    for command in ["dev", "serve", "status", "bench", "sim", "verify", "version", "reset"] {
        let output = run(&[command, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{command}");
        assert!(output.stdout.len() > 50, "{command}");
    }
}

#[test]
fn password_is_asked_for_and_checked() {
    let mut nodes = Nodes::prepare("volatile");
    let file = nodes.cluster.dir().join("password");
    std::fs::write(&file, "sesame\n").expect("a file can be written");
    for node in &mut nodes.cluster.nodes {
        node.arguments.extend(["--password-file".to_string(), file.display().to_string()]);
    }
    for index in 0..nodes.len() {
        nodes.cluster.start_node(index).expect("the program starts");
    }
    eventually("every node serves who has the password", || {
        (0..3).all(|index| {
            let client = Client::connect(nodes.address(index), LIMIT);
            client.is_ok_and(|mut client| {
                client.command("AUTH sesame").is_ok_and(|reply| reply == Value::ok())
                    && client.command("GET x").is_ok_and(|reply| reply == Value::Nil)
            })
        })
    });
    let mut client = nodes.client(0);
    assert!(client.command("GET x").expect("an answer").is_error("NOAUTH"));
    assert!(client.command("AUTH wrong").expect("an answer").is_error("WRONGPASS"));
    assert!(client.command("GET x").expect("an answer").is_error("NOAUTH"));
    let reply = client.command("HELLO 2 AUTH default sesame").expect("an answer");
    assert!(matches!(reply, Value::List(_)), "{reply:?}");
    assert_eq!(client.command("GET x").expect("an answer"), Value::Nil);
}

#[test]
fn metrics_are_in_the_format_of_prometheus() {
    let nodes = Nodes::start("volatile");
    assert_eq!(nodes.ask(0, "SET x 1"), Value::ok());
    let (status, body) = http_get(nodes.cluster.nodes[0].admin, "/metrics").expect("an answer");
    assert_eq!(status, 200);
    let samples: Vec<&str> =
        body.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    assert!(samples.len() > 5, "{body}");
    for sample in samples {
        let value = sample.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
        assert!(value.is_some() && sample.starts_with("palimpsest_"), "{sample}");
    }
}

#[test]
fn idle_cluster_writes_nothing() {
    let nodes = Nodes::start("disk");
    for number in 0..100 {
        assert_eq!(nodes.ask(0, &format!("SET key:{number} 1")), Value::ok());
    }
    let written = || {
        let bytes = nodes.cluster.pids().into_iter().map(bench::process::bytes_written);
        bytes.collect::<Option<Vec<u64>>>()
    };
    // It may take a while to come to rest; then two looks a moment apart see the same.
    let mut last = written();
    let mut unchanged_since = std::time::Instant::now();
    eventually("a second passes in which no node writes", || {
        let now = written();
        if now != last {
            (last, unchanged_since) = (now, std::time::Instant::now());
        }
        unchanged_since.elapsed() > std::time::Duration::from_secs(1)
    });
}
