//! Frames of peers: their crash vectors, and their messages for this worker.

use bytes::Bytes;
use protocols::{Peer, WARMED};
use smallvec::SmallVec;
use types::NodeId;

use super::Worker;
use super::transactions::SERVICE;
use crate::engine::Signal;
use crate::frame_payload::{self, FrameHeader, Messages, RawMessage};

/// Messages handed to an engine at a time.
type MessageBatch<'a> = SmallVec<[RawMessage<'a>; WARMED]>;

impl Worker {
    pub(super) fn on_frame(&mut self, from: NodeId, frame: &[u8]) {
        self.shared.counters.frames_in += 1;
        let Ok((header, header_bytes, messages)) = frame_payload::decode(frame) else {
            self.shared.counters.frames_malformed += 1;
            return;
        };
        let is_peer = header.sender == from && from != self.shared.peers.me();
        if !is_peer || self.shared.peers.get(from).is_none() {
            self.shared.counters.frames_malformed += 1;
            return;
        }
        if header.epoch != self.shared.sets.epoch() {
            self.shared.counters.frames_stale += 1;
            return;
        }
        self.merge_crash_vector(&header);
        let peer = Peer { node: from, incarnation: header.incarnation, amnesia: header.amnesia };
        if !self.shared.is_current(peer) {
            self.shared.counters.frames_stale += 1;
            return;
        }
        self.on_messages(peer, header_bytes, messages);
    }

    /// [Michael et al., DISC 2017] Takes the newest of both crash vectors before anything of the
    /// frame is believed.
    fn merge_crash_vector(&mut self, header: &FrameHeader<'_>) {
        let mut grew = self.shared.learn(header.sender, header.incarnation, header.amnesia);
        for (node, amnesia) in header.crash_vector() {
            grew |= self.shared.learn(node, types::Incarnation(0), amnesia);
        }
        if grew {
            self.signal_all(Signal::ViewChanged);
        }
    }

    fn on_messages(&mut self, from: Peer, header: &[u8], messages: Messages<'_>) {
        // Parts for other workers; there are few of those, and only when peers run another number
        // of workers.
        let mut parts: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut batch = MessageBatch::new();
        for message in messages {
            let Ok(message) = message else {
                self.shared.counters.frames_malformed += 1;
                break;
            };
            self.shared.counters.messages_in += 1;
            if batch.first().is_some_and(|first| first.database != message.database)
                || batch.len() == WARMED
            {
                self.hand_over_batch(from, &mut batch);
            }
            if !self.owns(message.shard) {
                self.shared.counters.messages_misrouted += 1;
                let worker = usize::from(message.shard.0) % self.shared.workers;
                let part = match parts.iter().position(|(to, _)| *to == worker) {
                    Some(at) => &mut parts[at].1,
                    None => {
                        parts.push((worker, header.to_vec()));
                        &mut parts.last_mut().expect("it was just pushed").1
                    }
                };
                part.extend_from_slice(message.whole);
                continue;
            }
            batch.push(message);
        }
        self.hand_over_batch(from, &mut batch);
        let parts = parts.into_iter().map(|(to, part)| (to, from.node, Bytes::from(part)));
        self.misrouted.extend(parts);
    }

    /// Messages of one database.
    fn hand_over_batch(&mut self, from: Peer, batch: &mut MessageBatch<'_>) {
        let Some(first) = batch.first() else { return };
        let malformed = match self.engine_of(first.database) {
            None if first.database == SERVICE => self.on_words(from, batch),
            Some(engine) => {
                let engine = self.engines.wake(engine, &self.shared);
                engine.on_messages(&mut self.shared, from, batch)
            }
            None => batch.len(),
        };
        self.shared.counters.messages_malformed += malformed as u64;
        batch.clear();
    }
}
