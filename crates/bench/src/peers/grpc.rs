//! A load on etcd over gRPC: `KV.Put` and `KV.Range`. A client has as many outstanding calls as one
//! of ours has commands in flight.
//!
//! HTTP/2 comes from `h2`; the two messages are small enough to be encoded by hand. Clients share a
//! few connections, spread over the nodes, as etcd's client library and benchmark do. All runs on
//! one thread.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use base::Prng;
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use hdrhistogram::Histogram;
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::process;
use crate::report::{self, Latency, LoadReport};
use crate::resp::{Config, RunEnd};
use crate::workload::Mix;
use crate::{Error, Result};

/// Connections that the clients share.
const CONNECTIONS_MAX: usize = 16;

struct Tally {
    latencies: Histogram<u64>,
    operations: u64,
    errors: u64,
    last_success: Instant,
    longest_gap: Duration,
}

impl Tally {
    fn new(now: Instant) -> Tally {
        Tally {
            latencies: report::new_histogram(),
            operations: 0,
            errors: 0,
            last_success: now,
            longest_gap: Duration::ZERO,
        }
    }

    fn succeed(&mut self, sent_at: Instant, now: Instant) {
        report::record(&mut self.latencies, now - sent_at, 1);
        self.operations += 1;
        self.longest_gap = self.longest_gap.max(now - self.last_success);
        self.last_success = now;
    }
}

/// Runs `config`'s load: SET as Put, GET as a linearizable Range. WAIT does not exist there.
pub(super) fn measure(config: &Config) -> Result<LoadReport> {
    let RunEnd::After(window) = config.stop else {
        return Err(Error::Usage("a load on etcd ends by time".to_string()));
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(Error::io("tokio"))?;
    LocalSet::new().block_on(&runtime, run(config, window))
}

async fn run(config: &Config, window: Duration) -> Result<LoadReport> {
    let mut senders = Vec::new();
    for index in 0..config.connections.min(CONNECTIONS_MAX) {
        senders.push(connect(config.addresses[index % config.addresses.len()]).await?);
    }
    if config.mix == Mix::GET {
        preload(config, &senders).await?;
    }
    let tally = Rc::new(RefCell::new(Tally::new(Instant::now())));
    let calls = config.connections * config.pipeline as usize;
    let clients: Vec<_> = (0..calls)
        .map(|index| {
            let sender = senders[index % senders.len()].clone();
            let client = Caller::new(config, sender, index as u64);
            tokio::task::spawn_local(client.call_for_ever(tally.clone()))
        })
        .collect();
    tokio::time::sleep(config.warm_up).await;
    let start = Instant::now();
    *tally.borrow_mut() = Tally::new(start);
    let cpu = process::cpu(&config.server_pids);
    let own_cpu = process::cpu(&[std::process::id()]);
    tokio::time::sleep(window).await;
    let seconds = start.elapsed().as_secs_f64();
    let server_cpu = process::cpu(&config.server_pids).since(cpu);
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    let tally = tally.borrow();
    let errors = (tally.errors > 0).then(|| ("grpc".to_string(), tally.errors));
    Ok(LoadReport {
        seconds,
        operations: tally.operations,
        per_second: tally.operations as f64 / seconds,
        latency: Latency::of(&tally.latencies),
        errors: errors.into_iter().collect(),
        gap_ms: tally.longest_gap.as_secs_f64() * 1e3,
        gaps: Vec::new(),
        timelines: Vec::new(),
        server_cpu,
        server_cpu_s_per_million: report::per_million(server_cpu.total_s(), tally.operations),
        client_cpu: process::cpu(&[std::process::id()]).since(own_cpu),
    })
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Bytes>> {
    let stream = TcpStream::connect(address).await.map_err(Error::io(address.to_string()))?;
    // Costs speed only.
    let _ = stream.set_nodelay(true);
    let (sender, connection) = h2::client::handshake(stream).await.map_err(protocol)?;
    tokio::task::spawn_local(async move {
        // The calls on a connection notice its end.
        let _ = connection.await;
    });
    Ok(sender)
}

/// Writes every key once.
async fn preload(config: &Config, senders: &[SendRequest<Bytes>]) -> Result<()> {
    let count = config.keys.count();
    let lanes = config.connections as u64;
    let tasks: Vec<_> = (0..lanes)
        .map(|lane| {
            let sender = senders[lane as usize % senders.len()].clone();
            let mut caller = Caller::new(config, sender, lane);
            tokio::task::spawn_local(async move {
                for key in (lane..count).step_by(lanes as usize) {
                    let message = caller.put(key);
                    caller.call(PUT, message).await?;
                }
                Ok::<(), h2::Error>(())
            })
        })
        .collect();
    for task in tasks {
        let done = task.await.map_err(|error| Error::Protocol(error.to_string()))?;
        done.map_err(protocol)?;
    }
    Ok(())
}

const PUT: &str = "/etcdserverpb.KV/Put";
const RANGE: &str = "/etcdserverpb.KV/Range";

/// One client.
struct Caller {
    sender: SendRequest<Bytes>,
    mix: Mix,
    keys: u64,
    rng: Prng,
    value: Bytes,
}

impl Caller {
    fn new(config: &Config, sender: SendRequest<Bytes>, index: u64) -> Caller {
        Caller {
            sender,
            mix: config.mix,
            keys: config.keys.count(),
            rng: Prng::new(config.seed + index),
            value: Bytes::from(vec![b'v'; config.value_bytes]),
        }
    }

    async fn call_for_ever(mut self, tally: Rc<RefCell<Tally>>) {
        loop {
            let key = self.rng.below(self.keys);
            let read = self.mix == Mix::GET;
            let message = if read { range(key) } else { self.put(key) };
            let sent_at = Instant::now();
            match self.call(if read { RANGE } else { PUT }, message).await {
                Ok(()) => tally.borrow_mut().succeed(sent_at, Instant::now()),
                Err(_) => {
                    tally.borrow_mut().errors += 1;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    /// `PutRequest { key = 1, value = 2 }`, framed.
    fn put(&self, key: u64) -> Bytes {
        let mut message = BytesMut::new();
        field(&mut message, 1, name(key).as_bytes());
        field(&mut message, 2, &self.value);
        frame(&message)
    }

    async fn call(&mut self, path: &str, message: Bytes) -> std::result::Result<(), h2::Error> {
        let request = http::Request::builder()
            .method("POST")
            .uri(format!("http://etcd{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .expect("these parts make a request");
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut stream) = sender.send_request(request, false)?;
        stream.send_data(message, true)?;
        let mut response = response.await?;
        let mut status = response.headers().get("grpc-status").cloned();
        let body = response.body_mut();
        while let Some(data) = body.data().await {
            let length = data?.len();
            body.flow_control().release_capacity(length)?;
        }
        if let Some(trailers) = body.trailers().await? {
            status = trailers.get("grpc-status").cloned().or(status);
        }
        match status {
            Some(status) if status == "0" => Ok(()),
            _ => Err(h2::Reason::INTERNAL_ERROR.into()),
        }
    }
}

/// `RangeRequest { key = 1 }`, framed: a linearizable read of one key.
fn range(key: u64) -> Bytes {
    let mut message = BytesMut::new();
    field(&mut message, 1, name(key).as_bytes());
    frame(&message)
}

fn name(key: u64) -> String {
    format!("key:{key:012}")
}

/// A field of bytes: tag, length as a varint, content.
fn field(out: &mut BytesMut, number: u8, bytes: &[u8]) {
    out.put_u8(number << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        out.put_u8((length & 0x7F) as u8 | 0x80);
        length >>= 7;
    }
    out.put_u8(length as u8);
    out.put_slice(bytes);
}

/// A message as gRPC frames it: not compressed, then its length.
fn frame(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len() + 5);
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).expect("a message is far below 4 GiB"));
    out.put_slice(message);
    out.freeze()
}

fn protocol(error: h2::Error) -> Error {
    Error::Protocol(format!("etcd: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_framed_as_grpc_wants_them() {
        let bytes = range(7);
        assert_eq!(&bytes[..7], [0, 0, 0, 0, 18, 0x0A, 16]);
        assert_eq!(&bytes[7..], b"key:000000000007");
    }

    #[test]
    fn long_field_has_varint_length() {
        let mut out = BytesMut::new();
        field(&mut out, 2, &[0; 300]);
        assert_eq!(&out[..3], [0x12, 0xAC, 0x02]);
    }
}
