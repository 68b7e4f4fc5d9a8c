//! Routes input that one worker has read to the workers of its node.

use bytes::Bytes;
use types::{NodeId, Shard};

use super::mailbox::Mail;
use crate::frame_payload;
use crate::worker::Input;

/// Where requests and frames go: to this worker, or to others by mail.
pub(crate) struct Routes<'a> {
    /// This worker.
    pub(crate) me: usize,
    pub(crate) inputs: &'a mut Vec<Input>,
    /// For each worker of the node.
    pub(crate) mail: &'a mut [Vec<Mail>],
}

impl Routes<'_> {
    /// To the worker that owns this shard.
    pub(crate) fn send(&mut self, shard: Shard, input: Input) {
        let owner = usize::from(shard.0) % self.mail.len();
        if owner == self.me {
            self.inputs.push(input);
        } else {
            self.mail[owner].push(Mail::Input(input));
        }
    }

    /// Sends a frame of a peer to the worker of its first shard. A peer's workers share a link, but
    /// not frames, so all messages of a frame usually belong to one worker. If the peer's number of
    /// `workers` prevents that, the reader of the link splits frames in order: forwarded parts
    /// would be overtaken by whole frames.
    pub(crate) fn send_frame(&mut self, from: NodeId, workers: u16, bytes: Bytes) {
        let is_sorted = usize::from(workers).is_multiple_of(self.mail.len());
        let frame = |bytes| Input::Frame { from, bytes };
        match frame_payload::first_shard(&bytes).filter(|_| is_sorted) {
            Some(shard) => self.send(shard, frame(bytes)),
            None => self.inputs.push(frame(bytes)),
        }
    }

    /// Inputs and mail under way to anybody.
    pub(crate) fn len(&self) -> usize {
        self.inputs.len() + self.mail.iter().map(Vec::len).sum::<usize>()
    }
}
