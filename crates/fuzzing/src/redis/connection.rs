//! One connection: bytes go out in pieces, replies come in until a mark that was asked for last.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Result;
use resp::{Scanner, encode};

use super::sequence::Segment;
use crate::input::cut;

/// Long enough for a server that is slow, short enough for requests that nobody will answer.
const SILENCE: Duration = Duration::from_secs(2);
/// Between two pieces, so that they arrive as two.
const PAUSE: Duration = Duration::from_micros(150);
/// Asked for behind every segment. After malformed requests it is asked several times, since they may swallow some.
const MARK: &[u8] = b"the end of a segment";
const MARK_FILLER: &[u8] = b"before the end of a segment";
const FILLERS: usize = 6;

pub(super) struct Connection {
    stream: TcpStream,
    buf: Vec<u8>,
}

/// What a server said to a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Heard {
    /// Without the mark's.
    pub replies: Vec<Vec<u8>>,
    /// Bytes that are no whole reply.
    pub rest: Vec<u8>,
    pub is_closed: bool,
}

impl Connection {
    pub(super) fn new(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        Ok(Connection { stream, buf: Vec::new() })
    }

    /// Sends a segment and the mark, and reads until the mark comes back, the server closes or falls silent.
    pub(super) fn exchange(&mut self, segment: &Segment) -> Result<Heard> {
        let mut bytes = segment.bytes();
        if segment.is_malformed() {
            (0..FILLERS).for_each(|_| encode::request(&mut bytes, &[b"ECHO", MARK_FILLER]));
        }
        encode::request(&mut bytes, &[b"ECHO", MARK]);
        for (index, piece) in cut(&bytes, segment.cuts).into_iter().enumerate() {
            if index > 0 && segment.cuts > 1 {
                std::thread::sleep(PAUSE);
            }
            // A server may close before it has read all.
            if self.stream.write_all(piece).is_err() {
                break;
            }
        }
        self.hear()
    }

    fn hear(&mut self) -> Result<Heard> {
        let mut mark = Vec::new();
        encode::bulk(&mut mark, MARK);
        let mut heard = Heard { replies: Vec::new(), rest: Vec::new(), is_closed: false };
        let mut scanner = Scanner::default();
        let mut piece = [0; 64 * 1024];
        loop {
            while let Ok(Some(len)) = scanner.next(&self.buf) {
                let reply: Vec<u8> = self.buf.drain(..len).collect();
                if reply == mark {
                    return Ok(heard);
                }
                heard.replies.push(reply);
            }
            let read = match self.stream.read(&mut piece) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    // What it has read of a request stays with it: this connection is of no more use.
                    heard.is_closed = true;
                    heard.replies.push(b"(silence)".to_vec());
                    heard.rest = std::mem::take(&mut self.buf);
                    return Ok(heard);
                }
                Err(_) => 0,
            };
            if read == 0 {
                heard.is_closed = true;
                heard.rest = std::mem::take(&mut self.buf);
                return Ok(heard);
            }
            self.buf.extend_from_slice(&piece[..read]);
        }
    }
}
