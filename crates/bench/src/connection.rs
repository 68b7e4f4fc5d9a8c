//! One client connection of the load generator: sends packets and judges replies.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::reply::{self, ReplyStatus};
use crate::{Error, Result};

/// Pause before reconnecting.
const RECONNECT_DELAY: Duration = Duration::from_millis(5);

/// The result of a reply.
pub(crate) enum ReplyVerdict<'a> {
    /// So many commands succeeded, all sent at this time.
    Succeeded { commands: u32, sent_at: Instant },
    /// So many commands failed, for this reason.
    Failed { commands: u32, kind: &'a str },
}

/// Requests without a reply.
#[derive(Default)]
struct Packet {
    /// Missing replies to commands.
    replies: u32,
    /// Missing replies before those, to commands that are no load (AUTH).
    preamble: u32,
    /// Set when `WAIT` ends the packet: the number of replicas it must report.
    wait: Option<u32>,
    /// Commands that succeeded so far, counted when `WAIT` has answered.
    held: u32,
}

impl Packet {
    fn is_done(&self) -> bool {
        self.replies == 0 && self.preamble == 0 && self.wait.is_none()
    }
}

enum LinkState {
    Up(TcpStream),
    Connecting(TcpStream),
    Down { retry_at: Instant },
}

pub(crate) struct Connection {
    pub(crate) address: SocketAddr,
    token: Token,
    link: LinkState,
    /// Bytes to send, from `out_at` on.
    out: Vec<u8>,
    out_at: usize,
    /// The start of an incomplete reply.
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
            link: LinkState::Down { retry_at: now },
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
        matches!(self.link, LinkState::Up(_))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.packet.is_done()
    }

    /// Since when the server owes a connection or replies.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        let waits = matches!(self.link, LinkState::Connecting(_)) || !self.is_idle();
        waits.then_some(self.sent_at)
    }

    /// When to reconnect; `None` while it is up.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        match self.link {
            LinkState::Up(_) | LinkState::Connecting(_) => None,
            LinkState::Down { retry_at } => Some(retry_at),
        }
    }

    /// Begins to connect. Success is unknown until the first reply.
    pub(crate) fn connect(&mut self, registry: &Registry, now: Instant) -> Result<()> {
        let Ok(mut stream) = TcpStream::connect(self.address) else {
            self.link = LinkState::Down { retry_at: now + RECONNECT_DELAY };
            return Ok(());
        };
        // An option that cannot be set costs speed, not correctness.
        let _ = stream.set_nodelay(true);
        registry
            .register(&mut stream, self.token, Interest::READABLE | Interest::WRITABLE)
            .map_err(Error::io("epoll"))?;
        self.link = LinkState::Connecting(stream);
        self.sent_at = now;
        Ok(())
    }

    /// Notes that the connection is established, if it is, and sends the preamble.
    pub(crate) fn establish(&mut self, now: Instant) -> std::io::Result<()> {
        let LinkState::Connecting(stream) = &mut self.link else { return Ok(()) };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        if stream.peer_addr().is_err() {
            return Ok(());
        }
        let LinkState::Connecting(stream) =
            std::mem::replace(&mut self.link, LinkState::Down { retry_at: now })
        else {
            unreachable!("it was connecting above");
        };
        self.link = LinkState::Up(stream);
        if let Some(auth) = &self.auth {
            self.out.extend_from_slice(auth);
            self.packet.preamble = 1;
            self.sent_at = now;
        }
        self.flush()
    }

    /// Closes the connection; returns how many commands lost their replies.
    pub(crate) fn disconnect(&mut self, registry: &Registry, now: Instant) -> u32 {
        if let LinkState::Up(stream) | LinkState::Connecting(stream) = &mut self.link {
            // A socket that is being closed leaves epoll by itself.
            let _ = registry.deregister(stream);
        }
        let lost = self.packet.replies + self.packet.held;
        self.link = LinkState::Down { retry_at: now + RECONNECT_DELAY };
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

    /// Writes until the socket is full.
    pub(crate) fn flush(&mut self) -> std::io::Result<()> {
        let LinkState::Up(stream) = &mut self.link else { return Ok(()) };
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

    /// Reads from the socket and hands out a verdict for each reply.
    ///
    /// # Errors
    /// The outer result: the server speaks no RESP. The inner one: the connection is lost.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        mut judge: impl FnMut(ReplyVerdict<'_>),
    ) -> Result<std::io::Result<()>> {
        loop {
            let LinkState::Up(stream) = &mut self.link else { return Ok(Ok(())) };
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
    fn take_replies(
        &mut self,
        bytes: &[u8],
        judge: &mut impl FnMut(ReplyVerdict<'_>),
    ) -> Result<usize> {
        let mut used = 0;
        while used < bytes.len() {
            let Some((reply, length)) = reply::first(&bytes[used..])? else { break };
            used += length;
            self.take(reply, judge)?;
        }
        Ok(used)
    }

    fn take(
        &mut self,
        reply: ReplyStatus<'_>,
        judge: &mut impl FnMut(ReplyVerdict<'_>),
    ) -> Result<()> {
        let sent_at = self.sent_at;
        let packet = &mut self.packet;
        if packet.preamble > 0 {
            packet.preamble -= 1;
            if let ReplyStatus::Bad(text) = reply {
                return Err(Error::Usage(String::from_utf8_lossy(text).into_owned()));
            }
        } else if packet.replies > 0 {
            packet.replies -= 1;
            match reply {
                ReplyStatus::Bad(text) => {
                    judge(ReplyVerdict::Failed { commands: 1, kind: first_word(text) })
                }
                _ if packet.wait.is_some() => packet.held += 1,
                _ => judge(ReplyVerdict::Succeeded { commands: 1, sent_at }),
            }
        } else if let Some(wanted) = packet.wait.take() {
            let commands = std::mem::take(&mut packet.held);
            match reply {
                ReplyStatus::Integer(copies) if copies >= i64::from(wanted) => {
                    judge(ReplyVerdict::Succeeded { commands, sent_at });
                }
                _ => judge(ReplyVerdict::Failed { commands, kind: "too few replicas" }),
            }
        } else {
            return Err(Error::Protocol("a reply without a request".to_string()));
        }
        Ok(())
    }
}

fn first_word(text: &[u8]) -> &str {
    let end = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).unwrap_or("not text")
}
