//! The operators' surface: `dev`, `version`, the password, the admin port.

use std::net::TcpListener;
use std::process::Command;

use bench::client::{Client, Value};
use bench::process::{Process, ScratchDir, free_addresses};

use crate::support::{LIMIT, Nodes, eventually, exit_of, http_get, run};

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
pub fn three_ports_in_a_row() -> u16 {
    for _ in 0..1_000 {
        let ports: Vec<u16> =
            free_addresses(3).expect("free ports").iter().map(|a| a.port()).collect();
        let first = ports[0];
        // The admin ports follow from the clients' ports.
        let is_free = |port: u16| {
            port.checked_add(1_000)
                .is_some_and(|admin| TcpListener::bind(("127.0.0.1", admin)).is_ok())
        };
        let is_row = ports[1] == ports[0] + 1 && ports[2] == ports[0] + 2;
        if is_row && ports.into_iter().all(is_free) {
            return first;
        }
    }
    panic!("no three free ports in a row");
}

#[test]
fn version_names_itself() {
    let output = run(&["version"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
}

#[test]
fn completions_and_manual_pages_are_generated() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = String::from_utf8_lossy(&output.stdout);
        assert!(script.contains("advertise"), "{shell}: {script}");
    }
    let scratch = ScratchDir::new(&std::env::temp_dir(), "man").expect("a folder");
    let dir = scratch.path().join("man1");
    let (code, said) = exit_of(&["man", &dir.display().to_string()]);
    assert_eq!(code, Some(0), "{said}");
    for page in ["palimpsest.1", "palimpsest-serve.1", "palimpsest-bench-peers.1"] {
        let text = std::fs::read_to_string(dir.join(page)).unwrap_or_default();
        assert!(text.contains(".TH"), "{page}");
    }
}

#[test]
fn sim_ends_with_no_violation() {
    let output = run(&["sim", "--ops", "20", "--seeds", "2"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text.lines().last(), Some("no violation"));
    let output = run(&["sim", "--ops", "20", "--seeds", "2", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((&report["result"], &report["seeds"]), (&"no violation".into(), &2.into()));
    assert_eq!(report["violations"], serde_json::json!([]));
}

#[test]
fn help_is_there_for_every_command() {
    for command in [
        "dev",
        "serve",
        "status",
        "group",
        "bench",
        "sim",
        "verify",
        "version",
        "reset",
        "completions",
        "man",
    ] {
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
fn admin_port_beyond_loopback_asks_for_the_password() {
    let mut nodes = Nodes::prepare("volatile");
    let secret = nodes.cluster.dir().join("secret");
    std::fs::write(&secret, "sesame\n").expect("a file can be written");
    let port = nodes.cluster.nodes[0].admin.port();
    for node in &mut nodes.cluster.nodes {
        for flag in ["--password-file", "--cluster-secret-file"] {
            node.arguments.extend([flag.to_string(), secret.display().to_string()]);
        }
    }
    let arguments = &mut nodes.cluster.nodes[0].arguments;
    let at = arguments.iter().position(|word| word == "--admin-listen").expect("it was given") + 1;
    arguments[at] = format!("0.0.0.0:{port}");
    for index in 0..nodes.len() {
        nodes.cluster.start_node(index).expect("the program starts");
    }
    let admin = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let code = |path: &str| http_get(admin, path).map(|(code, _)| code);
    // Health pages are open: load balancers and probes seldom have a password.
    eventually("the node is ready", || code("/readyz") == Some(200));
    assert_eq!(code("/livez"), Some(200));
    for path in ["/", "/metrics", "/api/v1/status", "/api/v1/cluster"] {
        assert_eq!(code(path), Some(401), "{path}");
    }
    let (code, said) = exit_of(&["status", "--address", &admin.to_string()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("wants its password: put it into PALIMPSEST_PASSWORD"), "{said}");
    let wrong = nodes.cluster.dir().join("wrong");
    std::fs::write(&wrong, "abracadabra\n").expect("a file can be written");
    let with = |file: &std::path::Path| {
        let (address, file) = (admin.to_string(), file.display().to_string());
        exit_of(&["status", "--address", &address, "--password-file", &file])
    };
    let (code, said) = with(&wrong);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("refuses the password"), "{said}");
    eventually("status shows a quorum to whom the password is known", || {
        with(&secret).0 == Some(0)
    });
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
        let is_known = ["palimpsest_", "process_"].iter().any(|of| sample.starts_with(of));
        assert!(value.is_some() && is_known, "{sample}");
    }
}

/// Names behind `prefix` in the text of a program.
fn names_after<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let is_other = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
    let parts = text.split(prefix).skip(1);
    parts.filter_map(|rest| rest.split(is_other).next()).filter(|name| name.contains('_')).collect()
}

#[test]
fn console_shows_fields_that_there_are() {
    let nodes = Nodes::start("volatile");
    let admin = nodes.cluster.nodes[0].admin;
    let get = |path: &str| {
        let (code, body) = http_get(admin, path).expect("an answer");
        assert_eq!(code, 200, "{path}");
        body
    };
    assert!(get("/").contains("console.js") && get("/console.css").contains("--page"));
    let program = get("/console.js");
    let cluster: serde_json::Value =
        serde_json::from_str(&get("/api/v1/cluster")).expect("it is JSON");
    let names = [names_after(&program, "node."), names_after(&program, "(n) => n.")].concat();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(cluster["nodes"][0].get(name).is_some(), "the page asks for {name}: {cluster}");
    }
}

const UNKNOWN: &str = "no-such-host.invalid:1";

#[test]
fn unknown_variables_of_our_name_are_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palimpsest"));
    let output = command.arg("version").env("PALIMPSEST_LISTN", "x").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("PALIMPSEST_LISTN") && said.contains("mean PALIMPSEST_LISTEN?"),
        "{said}"
    );
}

#[test]
fn wrong_usage_names_what_to_change() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "usage").expect("a folder");
    let config = scratch.path().join("config.toml");
    std::fs::write(&config, "id = 1\nlisten-on = 'x'\n").expect("a file can be written");
    let config = config.display().to_string();
    let nowhere = scratch.path().join("nowhere").display().to_string();
    let cases: [(&[&str], &str); 16] = [
        (&["serve", "--bogus"], "--bogus"),
        (&["serve", "--id", "0"], "1..=65535"),
        (&["serve"], "--id is required"),
        (&["serve", "--config", &config], "line 2: unknown field `listen-on`"),
        (&["serve", "--id", "1", "--password-file", &nowhere], "--password-file"),
        (&["serve", "--id", "1", "--request-timeout", "0"], "--request-timeout must be"),
        (&["serve", "--id", "1", "--cache-size", "64XB"], "64MB, 64MiB or 1GB"),
        (&["serve", "--id", "1", "--once-window", "soon"], "500ms, 2s, 10m, 1h or 1d"),
        (&["serve", "--id", "1", "--listen", UNKNOWN], "--listen no-such-host.invalid:1: the host"),
        (&["serve", "--id", "1", "--peer-listen", UNKNOWN], "--peer-listen no-such-host.invalid:1"),
        (&["serve", "--id", "1", "--admin-listen", UNKNOWN], "cannot be looked up"),
        (&["status", "--address", UNKNOWN], "--address no-such-host.invalid:1: the host"),
        (&["dev", "--port", "7000", "--admin-port", "7002"], "overlap"),
        (&["dev", "--port", "65000"], "--port must be 1 to 64533"),
        (&["verify"], "<DIR>"),
        (&["reset", "--id", "1", "--yes", "--data-dir", &nowhere], "--data-dir"),
    ];
    for (arguments, expected) in cases {
        let (code, said) = exit_of(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert!(said.starts_with("palimpsest: ") && said.contains(expected), "{said}");
    }
    assert!(!std::path::Path::new(&nowhere).exists(), "a refused reset left something behind");
}

#[test]
fn bench_without_a_server_fails() {
    let free = free_addresses(1).expect("a free port")[0].to_string();
    let (code, said) = exit_of(&["bench", "resp", "--address", &free, "--time", "1"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no command succeeded"), "{said}");
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
