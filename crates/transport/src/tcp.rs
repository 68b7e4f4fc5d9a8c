//! Links over TCP.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use mio::net::{TcpListener, TcpStream};
use socket2::SockRef;
use types::NodeId;

use crate::keep_alive;
use crate::link::{Acceptor, Network, Pipe};
use crate::names::Names;

/// Connections that the system keeps until they are accepted. A client that finds no room tries
/// again a second later, so it must do for a burst of clients while this process is kept from
/// running.
const BACKLOG: i32 = 1024;

/// Bytes beyond those on their way that the system takes. Its default is megabytes, behind which
/// new frames would wait on a slow link. Frames that wait in this process are known, and bounded in
/// time.
const NOT_SENT_LEN_MAX: u32 = 1 << 20;

impl Pipe for TcpStream {
    fn remote(&self) -> Option<SocketAddr> {
        self.peer_addr().ok()
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    keep_alive::set(stream, keep_alive::OF_PEERS)?;
    SockRef::from(stream).set_tcp_notsent_lowat(NOT_SENT_LEN_MAX)
}

impl Acceptor for TcpListener {
    fn accept(&mut self) -> io::Result<Box<dyn Pipe>> {
        let (stream, _) = TcpListener::accept(self)?;
        tune(&stream)?;
        Ok(Box::new(stream))
    }
}

/// A listening socket and the addresses of the others.
pub struct Tcp {
    listener: Option<TcpListener>,
    address: SocketAddr,
    names: Names,
    /// Which of a peer's addresses to try next, where its name has several.
    attempts: usize,
}

impl Tcp {
    /// Listens on `address` (`HOST:PORT`).
    ///
    /// # Errors
    /// When the name does not resolve or the port is taken.
    pub fn listen(address: &str, peers: BTreeMap<NodeId, String>) -> io::Result<Tcp> {
        let listener = listen(address)?;
        let address = listener.local_addr()?;
        let names = Names::new(peers, look_up);
        Ok(Tcp { listener: Some(listener), address, names, attempts: 0 })
    }

    /// Where this end listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The addresses of `address` (`HOST:PORT`).
///
/// # Errors
/// One of the kind `NotFound` that names the host, when it cannot be looked up.
fn look_up(address: &str) -> io::Result<Vec<SocketAddr>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let named = |why: &dyn std::fmt::Display| {
        let text = format!("the host {host:?} cannot be looked up ({why})");
        io::Error::new(io::ErrorKind::NotFound, text)
    };
    let found: Vec<SocketAddr> = address.to_socket_addrs().map_err(|why| named(&why))?.collect();
    if found.is_empty() { Err(named(&"it has no address")) } else { Ok(found) }
}

/// A non-blocking listener on the first usable address of `address`.
///
/// # Errors
/// Those of the last address tried.
pub fn listen(address: &str) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
    for one in look_up(address)? {
        // Sets SO_REUSEADDR, so that a restart need not wait for old connections to be forgotten.
        match TcpListener::bind(one) {
            Ok(listener) => {
                // It listens already, with room for 128; asked again, the system takes the new
                // number.
                rustix::net::listen(&listener, BACKLOG)?;
                return Ok(listener);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Network for Tcp {
    fn dial(&mut self, peer: NodeId) -> io::Result<Box<dyn Pipe>> {
        let addresses = self.names.addresses(peer)?;
        self.attempts = self.attempts.wrapping_add(1);
        let address = addresses[self.attempts % addresses.len()];
        let stream = TcpStream::connect(address)?;
        tune(&stream)?;
        Ok(Box::new(stream))
    }

    fn set_peers(&mut self, peers: BTreeMap<NodeId, String>) {
        self.names.set(peers);
    }

    fn acceptor(&mut self) -> io::Result<Box<dyn Acceptor>> {
        let taken = || io::Error::new(io::ErrorKind::AlreadyExists, "the acceptor was taken");
        Ok(Box::new(self.listener.take().ok_or_else(taken)?))
    }
}
