//! The log in both formats, and the list of events.

use std::fs;
use std::time::Duration;

use bench::client::Client;
use bench::cluster::Config;
use serde_json::Value as Json;

use crate::support::{LIMIT, Nodes, config, damage, eventually, http_get, start_with_proxies};

/// Three nodes that log in this format.
fn start(format: &str) -> Nodes {
    let mut nodes = prepare(format, &[]);
    nodes.start_all();
    nodes
}

fn prepare(format: &str, arguments: &[&str]) -> Nodes {
    let format = ["--log-format", format];
    let arguments = format.iter().chain(arguments).map(ToString::to_string).collect();
    Nodes::prepare_with(Config { arguments, ..config() })
}

/// Lines of the log of node `index`, without those that it prints on standard output.
fn lines(nodes: &Nodes, index: usize) -> Vec<String> {
    let log = nodes.log(index);
    let is_output = |line: &&str| !line.starts_with("node ") && *line != "ready";
    log.lines().filter(is_output).map(str::to_string).collect()
}

/// Waits until node `index` has logged a line with all of these texts, and returns it.
fn wait_for_line(nodes: &Nodes, index: usize, texts: &[&str]) -> String {
    let mut found = None;
    eventually(&format!("node {} logs {texts:?}", index + 1), || {
        let has_all = |line: &String| texts.iter().all(|text| line.contains(text));
        found = lines(nodes, index).into_iter().find(has_all);
        found.is_some()
    });
    found.expect("it was found")
}

/// Waits until node `index` has logged an object with this message, and returns it.
fn wait_for_message(nodes: &Nodes, index: usize, message: &str) -> Json {
    let quoted = format!("\"message\":\"{message}");
    let line = wait_for_line(nodes, index, &[&quoted]);
    serde_json::from_str(&line).expect("JSON")
}

fn is_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00T00:00:00.000Z"
}

fn assert_format(nodes: &Nodes, index: usize, format: &str) {
    let found = lines(nodes, index);
    assert!(!found.is_empty());
    for line in found {
        if format == "json" {
            let object: Json = serde_json::from_str(&line).expect("each line is JSON");
            assert!(is_time(object["time"].as_str().expect("a time")), "{line}");
            assert_eq!(object["node"], index + 1, "{line}");
            assert!(object["level"].is_string() && object["target"].is_string(), "{line}");
            assert!(object["message"].is_string(), "{line}");
        } else {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert!(is_time(words[0]), "{line}");
            assert!(["error", "warn", "info"].contains(&words[1]), "{line}");
            assert_eq!(words[2], format!("node={}", index + 1), "{line}");
            assert!(words[3].ends_with(':'), "{line}");
        }
    }
}

fn events(nodes: &Nodes, index: usize) -> Vec<Json> {
    let (status, body) =
        http_get(nodes.cluster.nodes[index].admin, "/api/v1/events").expect("the admin port");
    assert_eq!(status, 200);
    let answer: Json = serde_json::from_str(&body).expect("JSON");
    assert_eq!(answer["node"], index + 1);
    answer["events"].as_array().expect("a list").clone()
}

#[test]
fn life_of_a_member_is_logged_as_text() {
    let mut nodes = start("text");
    let addr = format!("addr={}", nodes.cluster.nodes[2].peer);
    wait_for_line(&nodes, 0, &["first start", "waiting_for=2,3"]);
    wait_for_line(&nodes, 0, &["cluster formed", "members=3"]);
    wait_for_line(&nodes, 0, &["member reached", "peer=3", &addr]);
    wait_for_line(&nodes, 0, &["ready: a quorum of members serves"]);
    nodes.kill(2);
    wait_for_line(&nodes, 0, &["warn", "cluster: member lost", "peer=3", &addr, "reason="]);
    nodes.restart(2);
    wait_for_line(&nodes, 0, &["info", "member back after a restart", "peer=3", &addr, "after="]);
    wait_for_line(&nodes, 2, &["restart: this node goes on"]);
    assert_eq!(nodes.process(2).stop(LIMIT), Some(0));
    wait_for_line(&nodes, 2, &["stopping"]);
    wait_for_line(&nodes, 2, &["stopped"]);
    for index in 0..3 {
        assert_format(&nodes, index, "text");
    }
}

#[test]
fn lost_quorum_is_logged_as_json() {
    let mut nodes = start("json");
    nodes.kill(1);
    let lost = wait_for_message(&nodes, 0, "member lost");
    assert_eq!((&lost["peer"], &lost["level"]), (&2.into(), &"warn".into()), "{lost}");
    assert_eq!(lost["addr"], nodes.cluster.nodes[1].peer.to_string());
    nodes.kill(2);
    let quorum = wait_for_message(&nodes, 0, "quorum lost");
    assert_eq!((&quorum["level"], &quorum["up"]), (&"error".into(), &1.into()), "{quorum}");
    nodes.restart(1);
    wait_for_message(&nodes, 0, "quorum back");
    for index in 0..3 {
        assert_format(&nodes, index, "json");
    }
    let found = events(&nodes, 0);
    for message in ["first start", "cluster formed", "member lost", "quorum lost", "quorum back"] {
        let is_it = |event: &&Json| event["message"].as_str().unwrap_or("").starts_with(message);
        let event = found.iter().find(is_it).unwrap_or_else(|| panic!("{message}: {found:?}"));
        assert!(is_time(event["time"].as_str().expect("a time")), "{event}");
        assert!(event["unix_ms"].as_u64() > Some(0) && event["level"].is_string(), "{event}");
        assert!(event["text"].as_str().expect("a text").starts_with(message), "{event}");
    }
}

#[test]
fn least_level_decides_what_is_logged() {
    let mut nodes = prepare("text", &["--log-level", "error"]);
    nodes.start_all();
    nodes.kill(2);
    nodes.kill(1);
    wait_for_line(&nodes, 0, &["error", "quorum lost"]);
    assert_eq!(lines(&nodes, 0).len(), 1, "{}", nodes.log(0));
    let has_lost = |event: &Json| event["message"] == "member lost";
    assert!(events(&nodes, 0).iter().any(has_lost), "events do not depend on the level");
}

#[test]
fn recovery_is_logged_from_begin_to_end() {
    let mut nodes = start("text");
    let mut client = nodes.client(0);
    for number in 0..200 {
        client.command(&format!("SET key:{number} value")).expect("an answer");
    }
    nodes.kill(2);
    fs::remove_dir_all(nodes.data_dir(2)).expect("the directory is there");
    nodes.restart(2);
    wait_for_line(&nodes, 2, &["warn", "recovery: recovery begins"]);
    wait_for_line(&nodes, 2, &["rejoined the cluster"]);
    wait_for_line(&nodes, 2, &["info", "recovery: recovery complete", "took="]);
}

#[test]
fn damage_is_logged_with_its_repair() {
    let mut nodes = start("text");
    let mut client = nodes.client(0);
    for number in 0..200 {
        client.command(&format!("SET key:{number} palimpsest:{number}")).expect("an answer");
    }
    assert_eq!(nodes.process(2).stop(LIMIT), Some(0));
    assert!(damage(nodes.data_dir(2), "palimpsest:") > 0, "nothing was found to damage");
    nodes.restart(2);
    let mut client = nodes.client(2);
    for number in 0..200 {
        client.command(&format!("GET key:{number}")).expect("an answer");
    }
    wait_for_line(&nodes, 2, &["warn", "storage:", "damaged"]);
    wait_for_line(&nodes, 2, &["warn", "recovery begins: stored data is damaged"]);
    wait_for_line(&nodes, 2, &["recovery complete", "took="]);
}

#[test]
fn wrong_passwords_are_logged_at_a_bounded_rate() {
    const TRIES: u64 = 500;
    let mut nodes = Nodes::prepare("volatile");
    let file = nodes.cluster.dir().join("password");
    fs::write(&file, "opensesame").expect("a file");
    for node in &mut nodes.cluster.nodes {
        node.arguments.extend(["--password-file".into(), file.display().to_string()]);
        node.arguments.extend(["--log-format".into(), "json".into()]);
    }
    nodes.cluster.start_node(0).expect("the program starts");
    eventually("the node listens", || Client::connect(nodes.address(0), LIMIT).is_ok());
    let mut client = nodes.client(0);
    for number in 0..TRIES {
        let line = match number % 2 {
            0 => "AUTH guess-me-not",
            _ => "HELLO 3 AUTH default guess-me-not",
        };
        let reply = client.command(line).expect("an answer");
        assert!(reply.is_error("WRONGPASS"), "{reply:?}");
    }
    let wrong = || -> Vec<Json> {
        let parsed = lines(&nodes, 0).into_iter().map(|line| serde_json::from_str(&line));
        let objects = parsed.map(|object: Result<Json, _>| object.expect("JSON"));
        objects.filter(|object| object["target"] == "auth").collect()
    };
    // Each try has a line or is counted by one.
    eventually("all tries are logged or counted", || {
        let lines = wrong();
        let named = lines.iter().filter(|line| line["message"] == "wrong password").count() as u64;
        let suppressed: u64 = lines.iter().filter_map(|line| line["suppressed"].as_u64()).sum();
        assert!(named + suppressed <= TRIES, "{lines:?}");
        named + suppressed == TRIES
    });
    let first = &wrong()[0];
    assert_eq!((&first["addr"], &first["port"]), (&"127.0.0.1".into(), &"clients".into()));
    assert!(wrong().len() < TRIES as usize / 4, "{} lines", wrong().len());
    let log = nodes.log(0);
    assert!(!log.contains("guess-me-not") && !log.contains("opensesame"), "{log}");
}

#[test]
fn wrong_password_at_the_admin_port_is_logged() {
    let mut nodes = Nodes::prepare("volatile");
    let file = nodes.cluster.dir().join("password");
    fs::write(&file, "opensesame").expect("a file");
    let node = &mut nodes.cluster.nodes[0];
    let at = node.arguments.iter().position(|word| word == "--admin-listen").expect("given") + 1;
    node.arguments[at] = format!("0.0.0.0:{}", node.admin.port());
    node.arguments.extend(["--password-file".into(), file.display().to_string()]);
    node.arguments.push("--insecure".into());
    nodes.cluster.start_node(0).expect("the program starts");
    let admin = nodes.cluster.nodes[0].admin;
    eventually("the admin port answers", || http_get(admin, "/livez").is_some());
    assert_eq!(http_get(admin, "/api/v1/events").expect("an answer").0, 401);
    assert!(!nodes.log(0).contains("wrong password"), "a missing password is no wrong one");
    let credentials = "Authorization: Basic ZGVmYXVsdDpndWVzcw==";
    let path = format!("/metrics HTTP/1.1\r\n{credentials}\r\nX-Rest:");
    assert_eq!(http_get(admin, &path).expect("an answer").0, 401);
    wait_for_line(&nodes, 0, &["auth: wrong password", "addr=127.0.0.1", "port=admin"]);
}

#[test]
fn peer_with_another_secret_is_refused_by_name() {
    let mut nodes = Nodes::prepare("volatile");
    for (index, secret) in ["right", "right", "wrong"].into_iter().enumerate() {
        let file = nodes.cluster.dir().join(format!("secret-{index}"));
        fs::write(&file, secret).expect("a file");
        let node = &mut nodes.cluster.nodes[index];
        node.arguments.extend(["--cluster-secret-file".to_string(), file.display().to_string()]);
    }
    for index in 0..3 {
        nodes.cluster.start_node(index).expect("the program starts");
    }
    let texts = ["warn", "connection of a node refused", "addr=", "--cluster-secret-file"];
    wait_for_line(&nodes, 0, &texts);
}

#[test]
fn slow_member_is_logged_and_its_recovery_too() {
    let (nodes, proxies) = start_with_proxies("disk");
    proxies.throttle(2, Some(64 << 10));
    let value = "x".repeat(64 << 10);
    let mut client = nodes.client(0);
    let mut is_slow = false;
    eventually("node 1 logs that a member is slow", || {
        for number in 0..20 {
            let reply = client.command(&format!("SET key:{number} {value}"));
            reply.expect("an answer");
        }
        is_slow = nodes.log(0).contains("member slow");
        is_slow
    });
    wait_for_line(&nodes, 0, &["warn", "member slow", "peer=3", "addr="]);
    proxies.throttle(2, None);
    eventually("node 1 logs that no member is slow", || {
        client.command("SET key value").expect("an answer");
        std::thread::sleep(Duration::from_millis(20));
        nodes.log(0).contains("member no longer slow")
    });
}

#[test]
fn log_lines_of_dev_name_their_node() {
    use bench::process::{Process, ScratchDir};
    let scratch = ScratchDir::new(&std::env::temp_dir(), "dev-logs").expect("a folder");
    let log = scratch.path().join("log");
    let port = crate::surface::three_ports_in_a_row();
    let mut command = std::process::Command::new(crate::support::BINARY);
    command.args(["dev", "--log-format", "json", "--port", &port.to_string()]);
    let mut dev = Process::start(command.current_dir(scratch.path()), &log).expect("it starts");
    let said = || fs::read_to_string(&log).expect("a log");
    eventually("dev says ready", || {
        assert!(dev.is_running(), "dev ended: {}", said());
        said().lines().any(|line| line == "ready")
    });
    assert_eq!(dev.stop(LIMIT), Some(0));
    for node in 1..=3 {
        let is_it = |line: &str| {
            let object: Option<Json> = serde_json::from_str(line).ok();
            let message = "cluster formed";
            object.is_some_and(|object| object["node"] == node && object["message"] == message)
        };
        assert!(said().lines().any(is_it), "node {node}: {}", said());
    }
}
