//! Bytes that no client and no node would send, on every port, and requests beyond every limit.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base::Prng;
use bench::client::{Client, Value};
use bench::cluster::Config;

use crate::support::{LIMIT, Nodes, config, eventually};

/// Sends bytes and reads until the other side closes or falls silent.
fn throw(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).expect("the node listens");
    stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket that was just made");
    stream
        .set_write_timeout(Some(Duration::from_millis(200)))
        .expect("a socket that was just made");
    // The node may close at any point, which is its right.
    if stream.write_all(bytes).is_ok() {
        let mut sink = [0; 4096];
        while let Ok(1..) = stream.read(&mut sink) {}
    }
}

fn garbage() -> Vec<Vec<u8>> {
    let mut rng = Prng::new(20);
    let mut noise = |length: usize| (0..length).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>();
    let mut all: Vec<Vec<u8>> = [1, 7, 64, 1_000, 70_000].into_iter().map(&mut noise).collect();
    let words: &[&[u8]] = &[
        b"\r\n\r\n\r\n",
        b"*-1\r\n",
        b"*1\r\n$-1\r\n",
        b"*99999999999999999999\r\n",
        b"*2147483647\r\n",
        b"*1048576\r\n$1\r\na\r\n",
        b"*1\r\n$2147483647\r\n",
        b"*1\r\n$536870913\r\n",
        b"*2\r\n$3\r\nGET\r\n$-5\r\nhello\r\n",
        b"*2\r\n$3\r\nGET\r\n:5\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$10\r\nshort",
        b"*1\r\n$4\r\nPING\n\n",
        b"\"unbalanced\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\0\0\0\0\0\0\0",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    all.extend(words.iter().map(|word| word.to_vec()));
    all.push(b"*1\r\n".repeat(10_000));
    all.push(vec![b'a'; 200_000]);
    all
}

#[test]
fn garbage_on_every_port_harms_nobody() {
    let mut nodes = Nodes::start("disk");
    assert_eq!(nodes.ask(0, "SET x 1"), Value::ok());
    let mut bystander = nodes.client(0);
    for index in 0..nodes.len() {
        let node = &nodes.cluster.nodes[index];
        for address in [node.resp, node.peer, node.admin] {
            for bytes in garbage() {
                throw(address, &bytes);
            }
        }
    }
    assert_eq!(bystander.command("GET x").expect("an answer"), Value::text("1"));
    for index in 0..nodes.len() {
        assert!(nodes.process(index).is_running(), "node {} ended", index + 1);
        assert_eq!(nodes.ask(index, "INCR survived"), Value::Integer(index as i64 + 1));
        let megabytes = resident_megabytes(nodes.process(index).pid());
        assert!(megabytes < 1_000, "node {} holds {megabytes} MiB after garbage", index + 1);
    }
}

fn resident_megabytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.expect("the kernel says how much is resident") / 1024
}

#[test]
fn protocol_error_is_said_before_the_connection_closes() {
    let nodes = Nodes::start("volatile");
    let mut client = nodes.client(0);
    client.send_raw(b"*1\r\n$x\r\n").expect("the node listens");
    let reply = client.receive().expect("an answer");
    assert!(matches!(&reply, Value::Error(text) if text.contains("Protocol error")), "{reply:?}");
    assert!(client.command("PING").is_err(), "the connection stayed open after a protocol error");
}

#[test]
fn value_at_the_limit_is_kept_and_one_beyond_it_is_refused() {
    let nodes = Nodes::start("disk");
    let mut client = nodes.client(0);
    // Some bytes of the limit belong to the record around the value.
    let large = vec![b'v'; 1024 * 1024 - 4096];
    assert_eq!(client.ask(&[b"SET", b"large", &large]).expect("an answer"), Value::ok());
    let too_large = vec![b'v'; 1024 * 1024 + 1];
    let reply = client.ask(&[b"SET", b"large", &too_large]).expect("an answer");
    let said = matches!(&reply, Value::Error(text) if text.starts_with("ERR value too large"));
    assert!(said, "a value beyond the limit was answered {reply:?}");
    let reply = client.ask(&[b"APPEND", b"large", &large]).expect("an answer");
    let said = matches!(&reply, Value::Error(text) if text.starts_with("ERR value too large"));
    assert!(said, "growing beyond the limit was answered {reply:?}");
    // The connection stays usable, and the refused commands have left no trace.
    assert_eq!(
        client.command("STRLEN large").expect("an answer"),
        Value::Integer(large.len() as i64)
    );
    assert_eq!(nodes.client(2).ask(&[b"GET", b"large"]).expect("an answer"), Value::Bulk(large));
}

#[test]
fn large_values_take_no_more_memory_than_the_cache_may() {
    let arguments = vec!["--cache-size".to_string(), (12 << 20).to_string()];
    let mut nodes =
        Nodes::prepare_with(Config { durability: "disk".into(), arguments, ..config() });
    nodes.start_all();
    let (count, value) = (4_000, vec![b'v'; 64 * 1024]);
    let mut client = nodes.client(0);
    for number in 0..count {
        let key = format!("large:{number}");
        let reply = client.ask(&[b"SET", key.as_bytes(), &value]).expect("an answer");
        assert_eq!(reply, Value::ok());
    }
    let megabytes = (count * value.len() / 1_048_576) as u64;
    for index in 0..nodes.len() {
        let pid = nodes.process(index).pid();
        eventually("what was written leaves memory", || resident_megabytes(pid) < megabytes / 2);
        let reply = nodes.client(index).ask(&[b"GET", b"large:0"]).expect("an answer");
        assert_eq!(reply, Value::Bulk(value.clone()));
    }
}

#[test]
fn binary_keys_and_values_come_back_as_they_went() {
    let nodes = Nodes::start("disk");
    let every_byte: Vec<u8> = (0..=255).collect();
    let reply = nodes.client(0).ask(&[b"SET", &every_byte, &every_byte]).expect("an answer");
    assert_eq!(reply, Value::ok());
    let reply = nodes.client(1).ask(&[b"GET", &every_byte]).expect("an answer");
    assert_eq!(reply, Value::Bulk(every_byte));
    assert_eq!(nodes.client(2).ask(&[b"SET", b"", b""]).expect("an answer"), Value::ok());
    assert_eq!(nodes.client(0).ask(&[b"GET", b""]).expect("an answer"), Value::Bulk(Vec::new()));
}

#[test]
fn deep_pipeline_is_answered_in_order() {
    let nodes = Nodes::start("volatile");
    let mut client = Client::connect(nodes.address(0), LIMIT).expect("the node listens");
    let count = 5_000;
    let mut bytes = Vec::new();
    for number in 0..count {
        let key = format!("deep:{}", number % 50);
        bytes.extend_from_slice(
            format!("*2\r\n$4\r\nECHO\r\n${}\r\n{number}\r\n", number.to_string().len()).as_bytes(),
        );
        bytes.extend_from_slice(
            format!("*2\r\n$4\r\nINCR\r\n${}\r\n{key}\r\n", key.len()).as_bytes(),
        );
    }
    std::thread::scope(|scope| {
        let mut writer = TcpStream::connect(nodes.address(0)).expect("the node listens");
        writer.set_read_timeout(Some(LIMIT)).expect("a socket that was just made");
        let mut reader = std::io::BufReader::new(writer.try_clone().expect("a socket"));
        scope.spawn(move || writer.write_all(&bytes).expect("the node reads"));
        let mut line = String::new();
        for number in 0..count {
            for expected in [format!("${}", number.to_string().len()), number.to_string()] {
                line.clear();
                std::io::BufRead::read_line(&mut reader, &mut line).expect("an answer");
                assert_eq!(line.trim_end(), expected, "echo {number}");
            }
            line.clear();
            std::io::BufRead::read_line(&mut reader, &mut line).expect("an answer");
            assert_eq!(line.trim_end(), format!(":{}", number / 50 + 1), "incr {number}");
        }
    });
    assert_eq!(client.command("GET deep:0").expect("an answer"), Value::text("100"));
}

#[test]
fn connections_that_come_all_at_once_are_all_served() {
    let mut nodes = Nodes::start("volatile");
    let address = nodes.address(0);
    // The system queues them while the node is paused. No later bytes wake it again.
    nodes.process(0).pause();
    let connected: Vec<TcpStream> = (0..400)
        .map(|_| TcpStream::connect_timeout(&address, LIMIT).expect("the system queues it"))
        .collect();
    nodes.process(0).resume();
    for (number, mut stream) in connected.into_iter().enumerate() {
        stream.set_read_timeout(Some(LIMIT)).expect("a socket that was just made");
        stream.write_all(b"PING\r\n").expect("the node listens");
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).unwrap_or_else(|error| panic!("client {number}: {error}"));
        assert_eq!(&reply, b"+PONG\r\n", "client {number}");
    }
}
