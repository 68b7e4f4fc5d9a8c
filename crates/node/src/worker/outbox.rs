//! Outgoing messages: one open frame per peer, encoded in place.
//!
//! A frame's header is written when it is sealed, so that its crash vector is as new as any of its
//! messages. The sender's own amnesia count is the exception. A message must carry the amnesia
//! count it was made under, so all frames are sealed before the amnesia count is raised.

use protocols::Peers;
use types::{Database, Epoch, NodeId, Shard, Wire};

use crate::frame_payload::{header_len, put_message, write_header};

/// A frame this long is sealed before the next message. One message more fits the transport's
/// limit.
const FRAME_LEN_FULL: usize = 1 << 20;

/// Bytes of sealed frames that may wait for an amnesia count to be raised, per peer.
const HELD_LEN_MAX: usize = 64 << 20;

/// Buffers kept for reuse.
const SPARE_MAX: usize = 64;
/// Larger buffers go back to the allocator.
const SPARE_LEN_MAX: usize = 1 << 20;

#[derive(Debug)]
struct PeerFrames {
    node: NodeId,
    /// The header's place and the messages so far; empty when there are none.
    open: Vec<u8>,
    sealed_len: usize,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    /// In the order of the cluster's nodes, without this one.
    peers: Vec<PeerFrames>,
    sealed: Vec<(NodeId, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl Outbox {
    pub(crate) fn new(nodes: &Peers) -> Outbox {
        let peers = nodes
            .others()
            .map(|node| PeerFrames { node, open: Vec::new(), sealed_len: 0 })
            .collect();
        Outbox { peers, sealed: Vec::new(), spare: Vec::new() }
    }

    /// Appends a message for `to`. False when `to` is not a peer.
    pub(crate) fn push<M: Wire>(
        &mut self,
        (epoch, nodes): (Epoch, &Peers),
        to: NodeId,
        database: Database,
        shard: Shard,
        message: &M,
    ) -> bool {
        let Some(index) = self.peers.iter().position(|peer| peer.node == to) else { return false };
        if self.peers[index].open.len() >= FRAME_LEN_FULL {
            self.seal(epoch, nodes, index);
        }
        let others = self.peers.len();
        let open = &mut self.peers[index].open;
        if open.is_empty() {
            *open = self.spare.pop().unwrap_or_default();
            open.resize(header_len(others), 0);
        }
        put_message(open, database, shard, |out| message.encode(out));
        true
    }

    fn seal(&mut self, epoch: Epoch, nodes: &Peers, index: usize) {
        let peer = &mut self.peers[index];
        if peer.open.is_empty() {
            return;
        }
        let mut frame = std::mem::take(&mut peer.open);
        let me = *nodes.own();
        let crash_vector = CrashVector { nodes, next: 0, left: nodes.nodes().len() - 1 };
        write_header(&mut frame, me.node, me.incarnation, me.amnesia, epoch, crash_vector);
        peer.sealed_len += frame.len();
        self.sealed.push((peer.node, frame));
    }

    /// Ends every open frame with the present crash vector.
    pub(crate) fn seal_all(&mut self, epoch: Epoch, nodes: &Peers) {
        for index in 0..self.peers.len() {
            self.seal(epoch, nodes, index);
        }
    }

    pub(crate) fn take(
        &mut self,
        epoch: Epoch,
        nodes: &Peers,
        frames: &mut Vec<(NodeId, Vec<u8>)>,
    ) {
        self.seal_all(epoch, nodes);
        frames.append(&mut self.sealed);
        for peer in &mut self.peers {
            peer.sealed_len = 0;
        }
    }

    /// Drops the frames of peers that hold more than the bound, and returns those peers. Their
    /// links count as lost.
    pub(crate) fn drop_excess(&mut self) -> Vec<NodeId> {
        let mut dropped = Vec::new();
        for peer in &mut self.peers {
            if peer.sealed_len + peer.open.len() > HELD_LEN_MAX {
                peer.open.clear();
                peer.sealed_len = 0;
                dropped.push(peer.node);
            }
        }
        self.sealed.retain(|(node, _)| !dropped.contains(node));
        dropped
    }

    /// Takes back a written frame for its memory.
    pub(crate) fn recycle(&mut self, mut frame: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && frame.capacity() <= SPARE_LEN_MAX {
            frame.clear();
            self.spare.push(frame);
        }
    }
}

/// The crash vector without this node, with its length known.
struct CrashVector<'a> {
    nodes: &'a Peers,
    next: usize,
    left: usize,
}

impl Iterator for CrashVector<'_> {
    type Item = (NodeId, types::AmnesiaCount);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let member = self.nodes.nodes().get(self.next)?;
            self.next += 1;
            if member.node != self.nodes.me() {
                self.left -= 1;
                return Some((member.node, member.amnesia));
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for CrashVector<'_> {}
