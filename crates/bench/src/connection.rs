//! One client connection of the load generator: packets out, replies in, and what they are worth.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::reply::{self, Reply};
use crate::{Error, Result};

/// How long to wait before a lost connection is tried again.
const RECONNECT_DELAY: Duration = Duration::from_millis(5);

/// What a reply was worth.
pub(crate) enum Verdict<'a> {
    /// So many commands succeeded, all sent at this time.
    Succeeded { commands: u32, sent_at: Instant },
    /// So many commands failed, for this reason.
    Failed { commands: u32, kind: &'a str },
}

/// What is on its way.
#[derive(Default)]
struct Packet {
    /// Replies to commands that are still to come.
    replies: u32,
    /// Replies to come before those, to commands that are no load (AUTH).
    preamble: u32,
    /// Set when `WAIT` ends the packet: how many replicas it must report.
    wait: Option<u32>,
    /// Commands that succeeded so far, counted when `WAIT` has answered.
    held: u32,
}

impl Packet {
    fn is_done(&self) -> bool {
        self.replies == 0 && self.preamble == 0 && self.wait.is_none()
    }
}

enum Link {
    Up(TcpStream),
    Connecting(TcpStream),
    Down { retry_at: Instant },
}

pub(crate) struct Connection {
    pub(crate) address: SocketAddr,
    token: Token,
    link: Link,
    /// Bytes to send, from `out_at` on.
    out: Vec<u8>,
    out_at: usize,
    /// The start of a reply whose end has not come yet.
    rest: Vec<u8>,
    packet: Packet,
    sent_at: Instant,
    /// When the next packet may leave.
    pub(crate) next_at: Instant,
    auth: Option<Vec<u8>>,
}

impl Connection {
    pub(crate) fn new(
        address: SocketAddr,
        token: Token,
        auth: Option<Vec<u8>>,
        now: Instant,
    ) -> Self {
        Connection {
            address,
            token,
            link: Link::Down { retry_at: now },
            out: Vec::new(),
            out_at: 0,
            rest: Vec::new(),
            packet: Packet::default(),
            sent_at: now,
            next_at: now,
            auth,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.link, Link::Up(_))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.packet.is_done()
    }

    /// Since when the server owes something: a connection, or replies.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        let waits = matches!(self.link, Link::Connecting(_)) || !self.is_idle();
        waits.then_some(self.sent_at)
    }

    /// When it wants to be tried again, `None` while it is up.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        match self.link {
            Link::Up(_) | Link::Connecting(_) => None,
            Link::Down { retry_at } => Some(retry_at),
        }
    }

    /// Begins to connect. Nothing is known of success until something has been answered.
    pub(crate) fn connect(&mut self, registry: &Registry, now: Instant) -> Result<()> {
        let Ok(mut stream) = TcpStream::connect(self.address) else {
            self.link = Link::Down { retry_at: now + RECONNECT_DELAY };
            return Ok(());
        };
        // An option that cannot be set costs speed, not correctness.
        let _ = stream.set_nodelay(true);
        registry
            .register(&mut stream, self.token, Interest::READABLE | Interest::WRITABLE)
            .map_err(Error::io("epoll"))?;
        self.link = Link::Connecting(stream);
        self.sent_at = now;
        Ok(())
    }

    /// Takes note that the connection stands, if it does, and begins what comes before any load.
    pub(crate) fn establish(&mut self, now: Instant) -> std::io::Result<()> {
        let Link::Connecting(stream) = &mut self.link else { return Ok(()) };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        if stream.peer_addr().is_err() {
            return Ok(());
        }
        let Link::Connecting(stream) =
            std::mem::replace(&mut self.link, Link::Down { retry_at: now })
        else {
            unreachable!("it was connecting above");
        };
        self.link = Link::Up(stream);
        if let Some(auth) = &self.auth {
            self.out.extend_from_slice(auth);
            self.packet.preamble = 1;
            self.sent_at = now;
        }
        self.flush()
    }

    /// Ends the connection; what was on its way is lost. Returns how many commands that were.
    pub(crate) fn disconnect(&mut self, registry: &Registry, now: Instant) -> u32 {
        if let Link::Up(stream) | Link::Connecting(stream) = &mut self.link {
            // A socket that is being closed leaves epoll by itself.
            let _ = registry.deregister(stream);
        }
        let lost = self.packet.replies + self.packet.held;
        self.link = Link::Down { retry_at: now + RECONNECT_DELAY };
        self.out.clear();
        self.out_at = 0;
        self.rest.clear();
        self.packet = Packet::default();
        lost
    }

    /// Sends a packet that `write` fills.
    pub(crate) fn send(
        &mut self,
        commands: u32,
        wait: Option<u32>,
        now: Instant,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> std::io::Result<()> {
        assert!(self.is_idle(), "a packet is on its way");
        if self.out_at == self.out.len() {
            self.out.clear();
            self.out_at = 0;
        }
        write(&mut self.out);
        self.packet = Packet { replies: commands, preamble: 0, wait, held: 0 };
        self.sent_at = now;
        self.flush()
    }

    /// Writes what the socket takes.
    pub(crate) fn flush(&mut self) -> std::io::Result<()> {
        let Link::Up(stream) = &mut self.link else { return Ok(()) };
        while self.out_at < self.out.len() {
            match stream.write(&self.out[self.out_at..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.out_at += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what has come and hands out a verdict for each reply.
    ///
    /// # Errors
    /// The inner result is an I/O error: the connection is lost. The outer one is a server that speaks no RESP.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        mut judge: impl FnMut(Verdict<'_>),
    ) -> Result<std::io::Result<()>> {
        loop {
            let Link::Up(stream) = &mut self.link else { return Ok(Ok(())) };
            let count = match stream.read(scratch) {
                Ok(0) => return Ok(Err(ErrorKind::UnexpectedEof.into())),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Ok(())),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Ok(Err(error)),
            };
            if self.rest.is_empty() {
                let used = self.take_replies(&scratch[..count], &mut judge)?;
                self.rest.extend_from_slice(&scratch[used..count]);
            } else {
                self.rest.extend_from_slice(&scratch[..count]);
                let bytes = std::mem::take(&mut self.rest);
                let used = self.take_replies(&bytes, &mut judge)?;
                self.rest = bytes;
                self.rest.drain(..used);
            }
            // A short read means that the socket is empty: the next byte makes a new event.
            if count < scratch.len() {
                return Ok(Ok(()));
            }
        }
    }

    /// Judges all whole replies in `bytes`; returns how many bytes they took.
    fn take_replies(&mut self, bytes: &[u8], judge: &mut impl FnMut(Verdict<'_>)) -> Result<usize> {
        let mut used = 0;
        while used < bytes.len() {
            let Some((reply, length)) = reply::first(&bytes[used..])? else { break };
            used += length;
            self.take(reply, judge)?;
        }
        Ok(used)
    }

    fn take(&mut self, reply: Reply<'_>, judge: &mut impl FnMut(Verdict<'_>)) -> Result<()> {
        let sent_at = self.sent_at;
        let packet = &mut self.packet;
        if packet.preamble > 0 {
            packet.preamble -= 1;
            if let Reply::Bad(text) = reply {
                return Err(Error::Usage(String::from_utf8_lossy(text).into_owned()));
            }
        } else if packet.replies > 0 {
            packet.replies -= 1;
            match reply {
                Reply::Bad(text) => judge(Verdict::Failed { commands: 1, kind: first_word(text) }),
                _ if packet.wait.is_some() => packet.held += 1,
                _ => judge(Verdict::Succeeded { commands: 1, sent_at }),
            }
        } else if let Some(wanted) = packet.wait.take() {
            let commands = std::mem::take(&mut packet.held);
            match reply {
                Reply::Integer(copies) if copies >= i64::from(wanted) => {
                    judge(Verdict::Succeeded { commands, sent_at });
                }
                _ => judge(Verdict::Failed { commands, kind: "too few replicas" }),
            }
        } else {
            return Err(Error::Protocol("a reply that nothing was sent for".to_string()));
        }
        Ok(())
    }
}

fn first_word(text: &[u8]) -> &str {
    let end = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).unwrap_or("not text")
}
