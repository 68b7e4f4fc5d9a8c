//! The load generator against a server that follows a test's script.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use bench::resp::{self, Config, RunEnd};
use bench::workload::{Keys, Mix};

/// The server's reply to the `n`th command of a connection, counted from 0; `None`: silence from
/// then on.
type Script = fn(n: usize) -> Option<&'static str>;

/// Serves connections until the test's process ends.
fn serve(script: Script) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || converse(stream, script));
        }
    });
    address
}

fn converse(mut stream: TcpStream, script: Script) {
    stream.set_nodelay(true).expect("a socket that was just accepted");
    let mut buffer = [0; 64 * 1024];
    let mut commands = 0;
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        // Neither keys nor values of the load contain a star.
        for _ in buffer[..count].iter().filter(|&&byte| byte == b'*') {
            let Some(reply) = script(commands) else { continue };
            commands += 1;
            if stream.write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    }
}

fn config(address: SocketAddr) -> Config {
    Config {
        addresses: vec![address],
        connections: 4,
        keys: Keys::Uniform { count: 100 },
        warm_up: Duration::ZERO,
        stop: RunEnd::Commands(1_000),
        timeout: Some(Duration::from_secs(20)),
        ..Config::default()
    }
}

#[test]
fn every_command_is_answered_once() {
    let address = serve(|_| Some("+OK\r\n"));
    let report = resp::run(&Config { pipeline: 10, ..config(address) }).expect("it runs");
    assert!((1_000..1_040).contains(&report.operations), "{report:?}");
    assert!(report.errors.is_empty(), "{report:?}");
    assert!(report.latency.p50_us > 0.0);
}

#[test]
fn errors_are_counted_by_their_first_word() {
    let address = serve(|n| Some(if n % 2 == 0 { "+OK\r\n" } else { "-UNKNOWN no quorum\r\n" }));
    let report = resp::run(&config(address)).expect("it runs");
    assert_eq!(report.errors.keys().collect::<Vec<_>>(), ["UNKNOWN"]);
    assert!(report.errors["UNKNOWN"].abs_diff(report.operations) <= 4, "{report:?}");
}

#[test]
fn silence_is_a_timeout_and_a_new_connection() {
    let address = serve(|n| (n < 10).then_some("$-1\r\n"));
    let config = Config {
        mix: Mix::GET,
        timeout: Some(Duration::from_millis(200)),
        stop: RunEnd::Commands(60),
        ..config(address)
    };
    let report = resp::run(&config).expect("it runs");
    let timeouts = report.errors["timeout"];
    assert!(timeouts >= 3 && report.operations >= 10 * timeouts, "{report:?}");
    assert!(report.gap_ms >= 150.0, "{report:?}");
}

#[test]
fn writes_count_when_wait_has_seen_enough_replicas() {
    // SET, WAIT, SET, WAIT …: every other WAIT finds too few.
    let address = serve(|n| Some(["+OK\r\n", ":1\r\n", "+OK\r\n", ":0\r\n"][n % 4]));
    let report = resp::run(&Config { wait_replicas: Some(1), ..config(address) }).expect("it runs");
    assert!(report.errors["too few replicas"].abs_diff(report.operations) <= 4, "{report:?}");
}

#[test]
fn refused_password_ends_the_run() {
    let address = serve(|_| Some("-WRONGPASS invalid username-password pair\r\n"));
    let config = Config { password: Some("x".to_string()), ..config(address) };
    assert!(resp::run(&config).is_err_and(|error| error.to_string().contains("WRONGPASS")));
}

#[test]
fn dead_server_is_a_result_and_not_an_error() {
    let address = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr();
    let config = Config {
        addresses: vec![address.expect("it was bound")],
        stop: RunEnd::After(Duration::from_millis(100)),
        ..config(([127, 0, 0, 1], 1).into())
    };
    let report = resp::run(&config).expect("it runs");
    assert_eq!(report.operations, 0);
    assert!(report.gap_ms >= 100.0, "{report:?}");
}
