//! A plain blocking client: one command, one reply. For probes and tests, not for load.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::workload::write_command;

/// A reply, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Simple(String),
    /// The text behind the dash.
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    /// Arrays, sets and pushes; a map as keys and values in turn.
    List(Vec<Value>),
}

impl Value {
    /// A bulk reply from text, for comparing.
    pub fn text(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    pub fn ok() -> Value {
        Value::Simple("OK".to_string())
    }

    /// Whether it is an error that begins with this word.
    pub fn is_error(&self, word: &str) -> bool {
        matches!(self, Value::Error(text) if text.split(' ').next() == Some(word))
    }
}

/// A connection to one server.
pub struct Client {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
}

/// Lists in replies nest no deeper.
const DEPTH_MAX: usize = 8;

impl Client {
    /// Connects; `limit` is also the timeout of each reply.
    ///
    /// # Errors
    /// When no server listens there.
    pub fn connect(address: SocketAddr, limit: Duration) -> std::io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream), out: Vec::new() })
    }

    /// Sends a command and waits for its reply. An error reply is a value.
    ///
    /// # Errors
    /// When the connection ends, the reply takes too long, or it is no RESP.
    pub fn ask(&mut self, words: &[&[u8]]) -> std::io::Result<Value> {
        self.out.clear();
        write_command(&mut self.out, words);
        self.stream.get_mut().write_all(&self.out)?;
        self.read(0)
    }

    /// [`Client::ask`] for a line of text.
    ///
    /// # Errors
    /// As for [`Client::ask`].
    pub fn command(&mut self, line: &str) -> std::io::Result<Value> {
        let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
        self.ask(&words)
    }

    /// Sends raw bytes.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn send_raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Waits for one more reply.
    ///
    /// # Errors
    /// As for [`Client::ask`].
    pub fn receive(&mut self) -> std::io::Result<Value> {
        self.read(0)
    }

    fn read(&mut self, depth: usize) -> std::io::Result<Value> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end_matches(['\r', '\n']);
        let Some(kind) = line.bytes().next().filter(u8::is_ascii) else {
            return Err(malformed(line));
        };
        let text = &line[1..];
        Ok(match kind {
            b'+' | b',' | b'(' | b'#' => Value::Simple(text.to_string()),
            b'-' => Value::Error(text.to_string()),
            b':' => Value::Integer(text.parse().map_err(|_| malformed(line))?),
            b'_' => Value::Nil,
            b'$' | b'=' | b'!' => self.read_bulk(line, text)?,
            b'*' | b'~' | b'>' | b'%' => self.read_list(line, kind, text, depth)?,
            _ => return Err(malformed(line)),
        })
    }

    fn read_bulk(&mut self, line: &str, text: &str) -> std::io::Result<Value> {
        if text == "-1" {
            return Ok(Value::Nil);
        }
        let length: usize = text.parse().map_err(|_| malformed(line))?;
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Value::Bulk(bytes))
    }

    fn read_list(
        &mut self,
        line: &str,
        kind: u8,
        text: &str,
        depth: usize,
    ) -> std::io::Result<Value> {
        if text == "-1" {
            return Ok(Value::Nil);
        }
        if depth == DEPTH_MAX {
            return Err(malformed(line));
        }
        let count: usize = text.parse().map_err(|_| malformed(line))?;
        let count = if kind == b'%' { count * 2 } else { count };
        (0..count).map(|_| self.read(depth + 1)).collect::<std::io::Result<_>>().map(Value::List)
    }
}

fn malformed(line: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, format!("no RESP: {line:?}"))
}

/// Sends one command over its own connection; `None` without a reply.
pub fn ask_once(address: SocketAddr, line: &str, limit: Duration) -> Option<Value> {
    Client::connect(address, limit).and_then(|mut client| client.command(line)).ok()
}
