//! Clients that read every key, and clients that write until the power goes.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::client::{Client, Value};
use bench::workload::write_command;

use super::line::{HELD_BACK_MAX, SerialLine};
use crate::message::GuestMessage;
use crate::operation::{self, CLIENTS, KEYS, KeyChange, PER_BOOT};

/// Timeout of a reply; longer than nodes look for a quorum.
const REPLY_MAX: Duration = Duration::from_secs(40);

/// A client reserves this many operations ahead.
const AHEAD: u64 = 512;

/// Pipelined operations of a client, each on another key, so that a batch holds several registers.
const TOGETHER: u64 = 16;
const _: () = assert!(TOGETHER <= KEYS && AHEAD.is_multiple_of(TOGETHER));

// A reservation arrives before it is needed: the acknowledgements in between push it through the
// line.
const SHORTEST: usize = "acked 0 0\n".len();
const _: () = assert!(AHEAD as usize * SHORTEST > HELD_BACK_MAX);

/// Reserves operations for the clients of this boot. The caller then reports reads with
/// [`read_all`].
pub fn reserve_first(boot: u64, line: &SerialLine) {
    for client in 0..CLIENTS {
        line.send(&GuestMessage::Reserved { client, number: boot * PER_BOOT + 2 * AHEAD - 1 });
    }
}

/// Reads every key, each at one of the nodes, and reports its content.
///
/// # Errors
/// When a read has no answer.
pub fn read_all(nodes: &[SocketAddr], line: &SerialLine) -> Result<()> {
    let mut connections = Vec::new();
    for &node in nodes {
        connections.push(Client::connect(node, REPLY_MAX).context("a client cannot connect")?);
    }
    for client in 0..CLIENTS {
        for key in 0..KEYS {
            let connection = &mut connections[(key as usize + client) % nodes.len()];
            let name = operation::key(client, key);
            let number = match connection.ask(&[b"GET", name.as_bytes()]).context("GET")? {
                Value::Nil => None,
                Value::Bulk(value) => {
                    Some(operation::writer(client, key, &value).with_context(|| {
                        format!("{name} holds a value that no client wrote: {value:?}")
                    })?)
                }
                other => bail!("{name}: {other:?}"),
            };
            line.send(&GuestMessage::Holds { client, key, number });
        }
    }
    Ok(())
}

/// Runs all clients until each has met an error, or for ever.
///
/// # Errors
/// When a client cannot connect, or all of them have ended.
pub fn write(boot: u64, nodes: &[SocketAddr], line: &SerialLine) -> Result<()> {
    let mut connections = Vec::new();
    for client in 0..CLIENTS {
        let node = nodes[client % nodes.len()];
        connections.push(Client::connect(node, REPLY_MAX).context("a client cannot connect")?);
    }
    std::thread::scope(|scope| {
        for (client, mut connection) in connections.into_iter().enumerate() {
            scope.spawn(move || {
                let first = boot * PER_BOOT;
                for begin in (first..first + PER_BOOT).step_by(TOGETHER as usize) {
                    if begin > first && (begin - first).is_multiple_of(AHEAD) {
                        line.send(&GuestMessage::Reserved {
                            client,
                            number: begin + 2 * AHEAD - 1,
                        });
                    }
                    if !write_some(&mut connection, client, begin, line) {
                        return;
                    }
                }
            });
        }
    });
    bail!("all clients have ended")
}

/// Pipelines operations on distinct keys and reports each outcome; false when one failed.
fn write_some(connection: &mut Client, client: usize, begin: u64, line: &SerialLine) -> bool {
    let numbers = begin..begin + TOGETHER;
    let mut bytes = Vec::new();
    for number in numbers.clone() {
        let key = operation::key(client, number % KEYS);
        match operation::change(client, number) {
            KeyChange::Set(value) => write_command(&mut bytes, &[b"SET", key.as_bytes(), &value]),
            KeyChange::Delete => write_command(&mut bytes, &[b"DEL", key.as_bytes()]),
        }
    }
    let mut has_failed = connection.send_raw(&bytes).is_err();
    for number in numbers {
        let reply = if has_failed { None } else { Some(connection.receive()) };
        match reply {
            Some(Ok(Value::Simple(_) | Value::Integer(1))) => {
                line.send(&GuestMessage::Acked { client, number });
                continue;
            }
            Some(Ok(Value::Integer(0))) => {
                line.send(&GuestMessage::Missed { client, number });
                continue;
            }
            _ => {}
        }
        // After a broken connection the other outcomes are unknown too.
        has_failed |= !matches!(reply, Some(Ok(_)));
        line.send(&GuestMessage::Unknown { client, number, reply: format!("{reply:?}") });
    }
    !has_failed
}
