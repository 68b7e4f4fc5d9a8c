//! Clients that connect and send half a request, or no byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::Router;
use axum::routing::get;

use super::support::connect;
use crate::server::{Limits, serve};

/// Long enough never to pass within a test.
const NEVER: Duration = Duration::from_secs(3_600);
const SOON: Duration = Duration::from_millis(50);

const LIMITS: Limits = Limits { connections: 8, head: NEVER, idle: NEVER };

const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";

/// A server that answers `/hello`; it ends with the process.
fn start(limits: Limits) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    listener.set_nonblocking(true).expect("a socket can be set so");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime starts").block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("it listens");
            let router = Router::new().route("/hello", get(async || "hello"));
            serve(listener, router, limits).await;
        });
    });
    address
}

fn is_answered(stream: &mut TcpStream) -> bool {
    let mut answer = Vec::new();
    let mut byte = [0];
    let is_sent = stream.write_all(REQUEST).is_ok();
    while !answer.ends_with(b"hello") && stream.read_exact(&mut byte).is_ok() {
        answer.extend(byte);
    }
    is_sent && answer.starts_with(b"HTTP/1.1 200") && answer.ends_with(b"hello")
}

/// Waits for the end of the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn half_requests_make_way_for_whole_ones() {
    let address = start(LIMITS);
    let mut half: Vec<TcpStream> = Vec::new();
    for _ in 0..3 * LIMITS.connections {
        let mut stream = connect(address);
        stream.write_all(&REQUEST[..10]).expect("it listens");
        half.push(stream);
        assert!(is_answered(&mut connect(address)));
    }
    assert!(is_closed(&mut half[0]), "the oldest made way");
}

#[test]
fn the_newest_connections_are_kept() {
    let address = start(LIMITS);
    let mut streams: Vec<TcpStream> =
        (0..2 * LIMITS.connections).map(|_| connect(address)).collect();
    let newest = streams.split_off(LIMITS.connections + 1);
    for mut stream in newest {
        assert!(is_answered(&mut stream));
    }
    for stream in &mut streams[..LIMITS.connections] {
        assert!(is_closed(stream));
    }
}

#[test]
fn a_connection_that_was_used_outlives_older_ones() {
    let address = start(LIMITS);
    let mut used = connect(address);
    let _idle: Vec<TcpStream> = (1..LIMITS.connections).map(|_| connect(address)).collect();
    assert!(is_answered(&mut used));
    let _new = connect(address);
    assert!(is_answered(&mut connect(address)));
    assert!(is_answered(&mut used), "the idle ones had waited longer");
}

#[test]
fn half_a_request_ends_in_time() {
    let address = start(Limits { head: SOON, ..LIMITS });
    let mut stream = connect(address);
    stream.write_all(&REQUEST[..10]).expect("it listens");
    assert!(is_closed(&mut stream));
}

#[test]
fn a_drop_of_bytes_does_not_prolong_a_head() {
    let address = start(Limits { head: SOON, ..LIMITS });
    let mut stream = connect(address);
    // Each byte comes well before the end of patience; together they take longer.
    let sent = REQUEST.iter().take_while(|byte| {
        std::thread::sleep(SOON / 10);
        stream.write_all(&[**byte]).is_ok()
    });
    assert!(sent.count() < REQUEST.len() || is_closed(&mut stream));
}

#[test]
fn an_idle_connection_ends_in_time() {
    let address = start(Limits { idle: SOON, ..LIMITS });
    assert!(is_closed(&mut connect(address)), "before its first request");
    let mut used = connect(address);
    assert!(is_answered(&mut used));
    assert!(is_closed(&mut used), "after a request");
}
