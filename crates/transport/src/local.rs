//! Links inside one process: nodes of `palimpsest dev` and tests reach each other through socket
//! pairs.
//!
//! No port is opened and no byte leaves the process. An event loop waits for a pair as for any
//! socket.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::event::Source;
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use types::NodeId;

use crate::link::{Acceptor, Network, Pipe};

/// Connections that wait to be accepted, at most.
const BACKLOG_MAX: usize = 1024;

impl Pipe for UnixStream {}

/// Where nodes of one process find each other.
#[derive(Clone, Default)]
pub struct Hub {
    doors: Arc<Mutex<BTreeMap<NodeId, Door>>>,
}

/// The door of a node that listens.
struct Door {
    waiting: VecDeque<UnixStream>,
    /// Written to when an acceptor waits.
    bell: UnixStream,
}

impl Hub {
    fn doors(&self) -> MutexGuard<'_, BTreeMap<NodeId, Door>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network as `node` sees it. A node that attaches again takes the place of its former
    /// self.
    ///
    /// # Errors
    /// When the system is out of sockets.
    pub fn attach(&self, node: NodeId) -> io::Result<Local> {
        let (bell, ringing) = UnixStream::pair()?;
        self.doors().insert(node, Door { waiting: VecDeque::new(), bell });
        let acceptor = LocalAcceptor { hub: self.clone(), node, ringing };
        Ok(Local { hub: self.clone(), acceptor: Some(acceptor) })
    }
}

/// One node's access to a [`Hub`].
pub struct Local {
    hub: Hub,
    acceptor: Option<LocalAcceptor>,
}

impl Network for Local {
    fn dial(&mut self, peer: NodeId) -> io::Result<Box<dyn Pipe>> {
        let mut doors = self.hub.doors();
        let door = doors.get_mut(&peer).ok_or(io::ErrorKind::ConnectionRefused)?;
        if door.waiting.len() >= BACKLOG_MAX {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = UnixStream::pair()?;
        door.waiting.push_back(far);
        // A full bell rings already; a broken one belongs to a node that stopped.
        match io::Write::write(&mut door.bell, &[1]) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                doors.remove(&peer);
                Err(io::ErrorKind::ConnectionRefused.into())
            }
            _ => Ok(Box::new(near)),
        }
    }

    /// The hub knows its nodes without addresses.
    fn set_peers(&mut self, _peers: BTreeMap<NodeId, String>) {}

    fn acceptor(&mut self) -> io::Result<Box<dyn Acceptor>> {
        Ok(Box::new(self.acceptor.take().ok_or(io::ErrorKind::AlreadyExists)?))
    }
}

struct LocalAcceptor {
    hub: Hub,
    node: NodeId,
    ringing: UnixStream,
}

impl Acceptor for LocalAcceptor {
    fn accept(&mut self) -> io::Result<Box<dyn Pipe>> {
        // The bell is silenced first: a later connection rings again.
        let mut rings = [0; 64];
        while io::Read::read(&mut self.ringing, &mut rings).is_ok_and(|count| count > 0) {}
        let mut doors = self.hub.doors();
        let waiting = doors.get_mut(&self.node).and_then(|door| door.waiting.pop_front());
        Ok(Box::new(waiting.ok_or(io::ErrorKind::WouldBlock)?))
    }
}

impl Source for LocalAcceptor {
    fn register(
        &mut self,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.ringing.register(registry, token, interest)
    }

    fn reregister(
        &mut self,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.ringing.reregister(registry, token, interest)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.ringing.deregister(registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialled_node_accepts_the_other_end() {
        let hub = Hub::default();
        let (mut one, mut two) = (hub.attach(NodeId(1)).unwrap(), hub.attach(NodeId(2)).unwrap());
        let mut acceptor = two.acceptor().unwrap();
        let mut near = one.dial(NodeId(2)).unwrap();
        let mut far = acceptor.accept().unwrap();
        assert_eq!(near.write(b"hello").unwrap(), 5);
        let mut heard = [0; 8];
        assert_eq!(far.read(&mut heard).unwrap(), 5);
        let none = acceptor.accept().err().map(|error| error.kind());
        assert_eq!(none, Some(io::ErrorKind::WouldBlock));
    }

    #[test]
    fn detached_node_is_not_reached() {
        let hub = Hub::default();
        let mut one = hub.attach(NodeId(1)).unwrap();
        assert!(one.dial(NodeId(2)).is_err());
        drop(hub.attach(NodeId(2)).unwrap());
        assert!(one.dial(NodeId(2)).is_err());
    }
}
