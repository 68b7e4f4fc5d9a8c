//! Clients that read every key, and clients that write until the power goes.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::client::{Client, Value};

use super::line::{HELD_BACK_MAX, Line};
use crate::operation::{self, CLIENTS, Change, KEYS, PER_BOOT};
use crate::said::Said;

/// How long a reply may take: longer than the nodes look for a quorum.
const REPLY_MAX: Duration = Duration::from_secs(40);

/// A client says this many operations ahead how far it will go.
const AHEAD: u64 = 512;

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
                for number in first..first + PER_BOOT {
                    if (number - first) % AHEAD == 0 && number > first {
                        line.say(&Said::Reserved { client, number: number + 2 * AHEAD - 1 });
                    }
                    if !is_acknowledged(&mut connection, client, number) {
                        line.say(&Said::Unknown { client, number });
                        return;
                    }
                    line.say(&Said::Acked { client, number });
                }
            });
        }
    });
    bail!("all clients have ended")
}

fn is_acknowledged(connection: &mut Client, client: usize, number: u64) -> bool {
    let key = operation::key(client, number % KEYS);
    let reply = match operation::change(client, number) {
        Change::Set(value) => connection.ask(&[b"SET", key.as_bytes(), &value]),
        Change::Delete => connection.ask(&[b"DEL", key.as_bytes()]),
    };
    match reply {
        Ok(Value::Simple(_) | Value::Integer(_)) => true,
        other => {
            eprintln!("client {client}, operation {number}: {other:?}");
            false
        }
    }
}
