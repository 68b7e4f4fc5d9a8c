//! A leader takes writes in the order of their streams, and gives each its place.
//!
//! The worker of the key runs the command, on the state behind all commands before it. Results come
//! in any order, and become entries in that of their places.

use std::collections::BTreeMap;

use types::NodeId;

use super::super::context::{Cx, tell_register};
use super::super::epoch::{Epoch, Zxid};
use super::super::message::{ToRegister, ToSequencer};
use super::super::txn::{Entry, OF_NO_CLIENT, Stream, Txn};
use super::Sequencer;
use super::role::{Origin, Phase, Role};
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;

/// Writes that have a place and are not committed.
const OPEN_MAX: u64 = 8_192;
/// Writes of one stream kept ahead of a gap.
const EARLY_MAX: u64 = 8_192;
/// Bytes of all such writes, but for the next one of each stream.
const EARLY_BYTES_MAX: usize = 64 << 20;

impl Sequencer {
    pub(super) fn on_write(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        epoch: Epoch,
        stream: Stream,
        number: u64,
        write: ToSequencer,
    ) {
        let Role::Leading(leading) = &mut self.role else { return };
        let stands = leading.phase == Phase::Broadcast && leading.epoch == epoch;
        if !stands || stream.node != from.node {
            return;
        }
        // Its beats may wait behind its writes.
        if let Some(follower) = leading.followers.get_mut(&from.node)
            && follower.amnesia == from.amnesia
        {
            follower.heard_at = cx.now;
        }
        let from = from.node;
        if number == OF_NO_CLIENT {
            // The worker asks again.
            if from == self.me && !self.is_full() {
                self.place(cx, write);
            }
            return;
        }
        let new = || Origin { stream, taken: 0, early: BTreeMap::new() };
        let origin = leading.origins.entry((from, stream.worker)).or_insert_with(new);
        if origin.stream < stream {
            let old = std::mem::replace(origin, new());
            let lens = old.early.values().map(ToSequencer::command_len);
            leading.early_bytes -= lens.sum::<usize>();
        } else if origin.stream > stream {
            // Its client was told that the outcome is unknown, or is gone.
            return;
        }
        if number <= origin.taken && mutation::is(Mutation::ZabTakesTwice) {
            return self.place(cx, write);
        }
        if number <= origin.taken || number > origin.taken + EARLY_MAX {
            return;
        }
        let is_next = number == origin.taken + 1;
        let len = write.command_len();
        // Its worker sends it again.
        if !is_next && leading.early_bytes + len > EARLY_BYTES_MAX {
            return;
        }
        if origin.early.insert(number, write).is_none() {
            leading.early_bytes += len;
        }
        self.take_from(cx, (from, stream.worker));
    }

    /// Takes writes that came while there was no room.
    pub(super) fn take_early(&mut self, cx: &mut Cx<'_>) {
        let Role::Leading(leading) = &self.role else { return };
        let early = leading.origins.iter().filter(|(_, origin)| !origin.early.is_empty());
        let origins: Vec<(NodeId, u64)> = early.map(|(&name, _)| name).collect();
        for name in origins {
            self.take_from(cx, name);
        }
    }

    fn take_from(&mut self, cx: &mut Cx<'_>, name: (NodeId, u64)) {
        while !self.is_full()
            && let Some(write) = self.take(name)
        {
            self.place(cx, write);
        }
    }

    fn take(&mut self, name: (NodeId, u64)) -> Option<ToSequencer> {
        let Role::Leading(leading) = &mut self.role else { return None };
        let origin = leading.origins.get_mut(&name)?;
        let write = origin.early.remove(&(origin.taken + 1))?;
        origin.taken += 1;
        leading.early_bytes -= write.command_len();
        Some(write)
    }

    /// No more places until entries are committed, and the log cut.
    fn is_full(&self) -> bool {
        let Role::Leading(leading) = &self.role else { return false };
        let places = &leading.places;
        places.is_busy()
            || places.last() >= self.committed + OPEN_MAX
            || self.history.bytes() + places.bytes() > self.env.log.capacity / 4 * 3
    }

    fn place(&mut self, cx: &mut Cx<'_>, write: ToSequencer) {
        let Role::Leading(leading) = &mut self.role else { return };
        if let ToSequencer::Write { epoch, stream, number, key, command } = write {
            let at = Zxid { epoch, index: leading.places.give(command.body.len()) };
            tell_register(cx, key, ToRegister::Execute { at, stream, number, command });
        }
    }

    pub(super) fn on_executed(&mut self, cx: &mut Cx<'_>, epoch: Epoch, index: u64, txn: Txn) {
        let Role::Leading(leading) = &mut self.role else { return };
        if leading.epoch != epoch {
            return;
        }
        leading.places.fill(index, txn);
        self.append_executed(cx);
    }

    /// Results become entries while the log has room.
    pub(super) fn append_executed(&mut self, cx: &mut Cx<'_>) {
        while self.history.bytes() <= self.env.log.capacity
            && let Role::Leading(leading) = &mut self.role
            && let Some(txn) = leading.places.take()
        {
            let epoch = leading.epoch;
            self.append(cx, Entry { epoch, txn: Some(txn) });
        }
    }
}
