//! The interface of a transport: byte pipes that an event loop can wait for.
//!
//! A pipe delivers bytes in order or ends. It promises no more: bytes written before an end may or
//! may not have arrived. Frames, proofs and keep-alive are put on top by
//! [`Connection`](crate::Connection), the same for all.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;

use mio::event::Source;
use types::NodeId;

/// One end of a byte stream. Reads and writes never block: they end in `WouldBlock` where they
/// would.
pub trait Pipe: Read + Write + Source + Send {
    /// The address of the other end, if the transport has addresses.
    fn remote(&self) -> Option<SocketAddr> {
        None
    }
}

/// Takes in connections from peers.
pub trait Acceptor: Source + Send {
    /// The next connection; `WouldBlock` when there is none.
    ///
    /// # Errors
    /// Of the transport. The acceptor stays usable.
    fn accept(&mut self) -> io::Result<Box<dyn Pipe>>;
}

/// Reaches the other members.
pub trait Network: Send {
    /// Starts to connect to `peer` and never waits. A failure may also show on the first use of
    /// the pipe.
    ///
    /// # Errors
    /// Of the transport; try again later. `WouldBlock` while the name of the peer's host is being
    /// looked up.
    fn dial(&mut self, peer: NodeId) -> io::Result<Box<dyn Pipe>>;

    /// From now on the peers are at these addresses (`HOST:PORT`), and there are no others.
    fn set_peers(&mut self, peers: BTreeMap<NodeId, String>);

    /// The end that peers connect to. Taken once, at start.
    ///
    /// # Errors
    /// When it was taken already.
    fn acceptor(&mut self) -> io::Result<Box<dyn Acceptor>>;
}
