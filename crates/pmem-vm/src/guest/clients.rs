//! Clients that read every key, and clients that write until the power goes.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::client::{Client, Value};
use bench::workload::write_command;

use super::line::{HELD_BACK_MAX, Line};
use crate::operation::{self, CLIENTS, Change, KEYS, PER_BOOT};
use crate::said::Said;

/// How long a reply may take: longer than the nodes look for a quorum.
const REPLY_MAX: Duration = Duration::from_secs(40);

/// A client says this many operations ahead how far it will go.
const AHEAD: u64 = 512;

/// Operations that a client has under way at once, each on another key, so that a turn holds several registers.
const TOGETHER: u64 = 16;
const _: () = assert!(TOGETHER <= KEYS && AHEAD.is_multiple_of(TOGETHER));

// What is said ahead has arrived before it is needed: the acknowledgements in between push it through the line.
const SHORTEST: usize = "acked 0 0\n".len();
const _: () = assert!(AHEAD as usize * SHORTEST > HELD_BACK_MAX);

/// Says how far the clients of this boot will go for now. To be followed by all that `read_all` says.
pub fn reserve_first(boot: u64, line: &Line) {
    for client in 0..CLIENTS {
        line.say(&Said::Reserved { client, number: boot * PER_BOOT + 2 * AHEAD - 1 });
    }
}

/// Reads every key, each at one of the nodes, and says what it holds.
///
/// # Errors
/// When a read has no answer.
pub fn read_all(nodes: &[SocketAddr], line: &Line) -> Result<()> {
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
                Value::Bulk(value) => Some(
                    operation::writer(client, key, &value)
                        .with_context(|| format!("{name} holds what nobody wrote: {value:?}"))?,
                ),
                other => bail!("{name}: {other:?}"),
            };
            line.say(&Said::Holds { client, key, number });
        }
    }
    Ok(())
}

/// All clients write until each has met an error, or for ever.
///
/// # Errors
/// When a client cannot connect, or all of them have ended.
pub fn write(boot: u64, nodes: &[SocketAddr], line: &Line) -> Result<()> {
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
                        line.say(&Said::Reserved { client, number: begin + 2 * AHEAD - 1 });
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

/// Sends operations on as many keys at once and says what became of each; false when one failed.
fn write_some(connection: &mut Client, client: usize, begin: u64, line: &Line) -> bool {
    let numbers = begin..begin + TOGETHER;
    let mut bytes = Vec::new();
    for number in numbers.clone() {
        let key = operation::key(client, number % KEYS);
        match operation::change(client, number) {
            Change::Set(value) => write_command(&mut bytes, &[b"SET", key.as_bytes(), &value]),
            Change::Delete => write_command(&mut bytes, &[b"DEL", key.as_bytes()]),
        }
    }
    let mut has_failed = connection.send_raw(&bytes).is_err();
    for number in numbers {
        let reply = if has_failed { None } else { Some(connection.receive()) };
        match reply {
            Some(Ok(Value::Simple(_) | Value::Integer(1))) => {
                line.say(&Said::Acked { client, number });
                continue;
            }
            Some(Ok(Value::Integer(0))) => {
                line.say(&Said::Missed { client, number });
                continue;
            }
            _ => {}
        }
        // After a broken connection the other outcomes are not known either.
        has_failed |= !matches!(reply, Some(Ok(_)));
        line.say(&Said::Unknown { client, number, reply: format!("{reply:?}") });
    }
    !has_failed
}
