//! `/api/v1/key`: the record of each replica of a key.
//!
//! The page asks its own node as a client does, with `KEY.EXPLAIN`, so that no second way leads to
//! the workers.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use resp::{Reply, ReplyParser, encode};
use serde::{Deserialize, Serialize};

/// Longer than the node itself waits for a silent replica.
const TIMEOUT: Duration = Duration::from_secs(3);
/// An explanation of nine replicas is far shorter.
const REPLY_LEN_MAX: usize = 64 << 10;

#[derive(Debug, Deserialize)]
pub(crate) struct Question {
    key: String,
    #[serde(default)]
    database: u8,
}

/// Either `error`, or everything else.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub key: String,
    pub shard: i64,
    /// Replicas that hold the newest state.
    pub agreed: i64,
    pub replicas: Vec<Replica>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Replica {
    pub node: i64,
    /// `present`, `deleted`, `absent` or `silent`.
    pub state: String,
    pub round: Option<String>,
    pub version: Option<i64>,
    /// Bytes of the encoded value.
    pub bytes: Option<i64>,
    /// Hexadecimal.
    pub checksum: Option<String>,
    /// Milliseconds; -1 if the key does not expire.
    pub pttl: Option<i64>,
}

/// Asks the node that serves clients at `listen`. Blocks.
pub(crate) fn explain(listen: SocketAddr, password: Option<&[u8]>, question: &Question) -> Answer {
    let key = question.key.clone();
    match ask(listen, password, question) {
        Ok(Reply::Error(text)) => Answer { error: Some(lossy(&text)), key, ..Answer::default() },
        Ok(reply) => Answer { key, ..answer(&reply) },
        Err(error) => {
            let error = format!("this node does not answer its own client port: {error}");
            Answer { error: Some(error), key, ..Answer::default() }
        }
    }
}

fn ask(listen: SocketAddr, password: Option<&[u8]>, question: &Question) -> io::Result<Reply> {
    let database = question.database.to_string();
    let mut lines: Vec<Vec<&[u8]>> = Vec::new();
    if let Some(password) = password {
        lines.push(vec![b"AUTH", password]);
    }
    lines.push(vec![b"SELECT", database.as_bytes()]);
    lines.push(vec![b"KEY.EXPLAIN", question.key.as_bytes()]);
    let mut bytes = Vec::new();
    for words in &lines {
        encode::array(&mut bytes, words.len());
        words.iter().for_each(|word| encode::bulk(&mut bytes, word));
    }
    let mut stream = TcpStream::connect_timeout(&reachable(listen), TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(&bytes)?;
    let mut replies = Replies { stream, buffer: Vec::new(), parser: ReplyParser::default() };
    for _ in 1..lines.len() {
        if let error @ Reply::Error(_) = replies.next()? {
            return Ok(error);
        }
    }
    replies.next()
}

/// A node that listens everywhere is reached on loopback.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

struct Replies {
    stream: TcpStream,
    buffer: Vec<u8>,
    parser: ReplyParser,
}

impl Replies {
    fn next(&mut self) -> io::Result<Reply> {
        loop {
            let parsed = self.parser.next(&self.buffer).map_err(io::Error::other)?;
            if let Some((reply, len)) = parsed {
                self.buffer.drain(..len);
                return Ok(reply);
            }
            let mut chunk = [0; 4096];
            let len = self.stream.read(&mut chunk)?;
            if len == 0 || self.buffer.len() > REPLY_LEN_MAX {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.buffer.extend_from_slice(&chunk[..len]);
        }
    }
}

/// RESP2 sends a map as a list of names and values.
fn fields(reply: &Reply) -> impl Iterator<Item = (String, &Reply)> {
    let parts: &[Reply] = if let Reply::Array(parts) = reply { parts } else { &[] };
    parts.chunks_exact(2).map(|pair| (text(&pair[0]).unwrap_or_default(), &pair[1]))
}

fn answer(reply: &Reply) -> Answer {
    let mut answer = Answer::default();
    for (name, value) in fields(reply) {
        match name.as_str() {
            "shard" => answer.shard = integer(value).unwrap_or_default(),
            "agreed" => answer.agreed = integer(value).unwrap_or_default(),
            "replicas" => {
                let replicas: &[Reply] = if let Reply::Array(all) = value { all } else { &[] };
                answer.replicas = replicas.iter().map(replica).collect();
            }
            _ => {}
        }
    }
    answer
}

fn replica(reply: &Reply) -> Replica {
    let mut replica = Replica::default();
    for (name, value) in fields(reply) {
        match name.as_str() {
            "node" => replica.node = integer(value).unwrap_or_default(),
            "state" => replica.state = text(value).unwrap_or_default(),
            "round" => replica.round = text(value),
            "version" => replica.version = integer(value),
            "bytes" => replica.bytes = integer(value),
            "checksum" => replica.checksum = text(value),
            "pttl" => replica.pttl = integer(value),
            _ => {}
        }
    }
    replica
}

fn text(reply: &Reply) -> Option<String> {
    if let Reply::Bulk(bytes) = reply { Some(lossy(bytes)) } else { None }
}

fn integer(reply: &Reply) -> Option<i64> {
    if let Reply::Integer(value) = reply { Some(*value) } else { None }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations_are_read_as_resp2_sends_them() {
        let reply = b"*8\r\n$3\r\nkey\r\n$1\r\nx\r\n$5\r\nshard\r\n:7\r\n$6\r\nagreed\r\n:1\r\n\
            $8\r\nreplicas\r\n*2\r\n*6\r\n$4\r\nnode\r\n:1\r\n$5\r\nstate\r\n$7\r\npresent\r\n\
            $5\r\nround\r\n$7\r\n3.1.1/2\r\n*4\r\n$4\r\nnode\r\n:2\r\n$5\r\nstate\r\n$6\r\nsilent\r\n";
        let answer = answer(&Reply::from_bytes(reply).expect("one whole reply"));
        assert_eq!((answer.shard, answer.agreed, answer.replicas.len()), (7, 1, 2));
        assert_eq!(answer.replicas[0].round.as_deref(), Some("3.1.1/2"));
        assert_eq!(answer.replicas[1].state, "silent");
        assert_eq!(answer.replicas[1].round, None);
    }

    #[test]
    fn a_node_that_listens_everywhere_is_asked_on_loopback() {
        let everywhere: SocketAddr = "0.0.0.0:7".parse().expect("an address");
        assert_eq!(reachable(everywhere).to_string(), "127.0.0.1:7");
    }
}
