//! The worker's transactions: requests of the service to registers, and its words with the
//! services of other workers and nodes.
//!
//! A request of the service has a tag that names its worker, so its outcome finds the way back.

use std::collections::BTreeSet;

use base::Millis;
use protocols::Peer;
use transactions::{Cx, Effect, Holder, Ran, Service, Status, Transaction};
use types::{
    Database, Incarnation, Key, Lock, Malformed, NodeId, Outcome, Reader, SessionId, Shard, Tag,
    Txid, Wire,
};

use super::{Input, Worker};
use crate::frame_payload::RawMessage;

/// In the place of a database in frames: messages between services.
pub(crate) const SERVICE: Database = Database(0xfe);

/// Set in tags of services. The next seven bits are the worker, the rest is the token.
const SERVICE_TAG: u64 = 1 << 63;
const WORKER_SHIFT: u32 = 56;
const TOKEN_MASK: u64 = (1 << WORKER_SHIFT) - 1;

/// A message between services.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// Asks for the status of a transaction. The answer goes to the worker of shard `back`.
    Ask {
        txid: Txid,
        back: Shard,
    },
    Answer {
        txid: Txid,
        status: Status,
    },
}

impl Wire for Word {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Word::Ask { txid, back } => {
                out.extend_from_slice(&[1, back.0]);
                txid.encode(out);
            }
            Word::Answer { txid, status } => {
                out.extend_from_slice(&[2, u8::from(*status == Status::Alive)]);
                txid.encode(out);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Word, Malformed> {
        let (kind, field) = (reader.u8()?, reader.u8()?);
        let txid = Txid::decode(reader)?;
        match (kind, field) {
            (1, shard) => Ok(Word::Ask { txid, back: Shard(shard) }),
            (2, 0) => Ok(Word::Answer { txid, status: Status::Finished }),
            (2, 1) => Ok(Word::Answer { txid, status: Status::Alive }),
            _ => Err(Malformed),
        }
    }
}

/// The worker whose service made the request, if one did.
fn service_of(tag: Tag) -> Option<usize> {
    let worker = (tag.0 >> WORKER_SHIFT & 0x7f) as usize;
    (tag.0 & SERVICE_TAG != 0 && worker != 0x7f).then_some(worker)
}

impl Worker {
    /// A client's transaction. Its first key belongs to this worker.
    pub(super) fn on_transaction(&mut self, tag: Tag, mut transaction: Transaction) {
        self.shared.counters.requests += 1;
        self.shared.in_progress += 1;
        let database = transaction.database;
        let watched = transaction.watched.iter().map(|(key, _)| key);
        let keys: BTreeSet<&Key> = transaction.keys.iter().chain(watched).collect();
        if keys.len() > transaction.keys_max() {
            return self.shared.reply(tag, Outcome::Reply(transaction.too_many_keys()));
        }
        let is_of_users = database.is_of_users();
        let engine = self.engine_of(database).filter(|_| is_of_users);
        match engine.map(|engine| self.locking[engine]) {
            Some((_, true)) => {
                let mut deadline = self.shared.now + self.request_timeout;
                if let Some(once) = &mut transaction.once {
                    // Entries outlast a time that all nodes share, and as much for clocks.
                    let shared = self.once_timeout;
                    deadline = deadline.min(self.shared.now + shared);
                    let window = once.window.0.saturating_add(2 * shared.as_millis());
                    once.window = Millis(window);
                }
                self.with_service(|service, cx| service.start(cx, tag, transaction, deadline));
            }
            Some((name, false)) => self.shared.reply(tag, Outcome::NoTransactions(name)),
            None => self.shared.reply(tag, Outcome::Unsupported("none")),
        }
    }

    /// Gives the service the locks, outcomes and timers of the turn.
    pub(super) fn run_service(&mut self) {
        for (database, key, lock) in std::mem::take(&mut self.shared.locked) {
            self.on_locked(database, key, lock);
        }
        for (hidden, record, since) in std::mem::take(&mut self.shared.records) {
            let Some(database) = hidden.beside() else { continue };
            let is_old = self.shared.silence.is_over(since, self.shared.now);
            self.with_service(|service, cx| service.on_record(cx, database, record, is_old));
        }
        for (tag, outcome) in std::mem::take(&mut self.service_outcomes) {
            self.with_service(|service, cx| service.on_outcome(cx, tag.0 & TOKEN_MASK, outcome));
        }
        if self.service.next_timer().is_some_and(|at| at <= self.shared.now) {
            self.with_service(|service, cx| service.on_timer(cx));
        }
    }

    fn on_locked(&mut self, database: Database, key: Key, lock: Lock) {
        self.with_service(|service, cx| service.on_locked(cx, database, key, lock));
    }

    /// The service has work before any other input comes.
    pub(super) fn has_service_work(&self) -> bool {
        !self.service_outcomes.is_empty()
            || !self.shared.locked.is_empty()
            || !self.shared.records.is_empty()
    }

    /// Takes the outcomes of services out of this turn's replies. While outputs are held back, they
    /// wait as all replies do.
    pub(super) fn take_service_outcomes(&mut self) {
        if self.shared.hold.is_on() || self.shared.uptimes.is_held() {
            return;
        }
        self.split_service_outcomes();
    }

    /// No reply with the tag of a service is left.
    pub(super) fn split_service_outcomes(&mut self) {
        if !self.shared.replies.iter().any(|(tag, _)| service_of(*tag).is_some()) {
            return;
        }
        for (tag, outcome) in std::mem::take(&mut self.shared.replies) {
            match service_of(tag) {
                None => self.shared.replies.push((tag, outcome)),
                Some(worker) if worker == self.shared.index => {
                    self.service_outcomes.push((tag, outcome));
                }
                Some(worker) => self.for_workers.push((worker, Input::Outcome { tag, outcome })),
            }
        }
    }

    /// The outcome of a request that another worker ran for this one's service.
    pub(super) fn on_service_outcome(&mut self, tag: Tag, outcome: Outcome) {
        self.service_outcomes.push((tag, outcome));
    }

    pub(super) fn on_computed(&mut self, token: u64, ran: Ran) {
        self.with_service(|service, cx| service.on_computed(cx, token, ran));
    }

    /// Transactions begin, and records are decided, as this incarnation from now on.
    pub(super) fn on_renewed(&mut self, incarnation: Incarnation) {
        self.service.renew(incarnation);
        for engine in 0..self.engines.len() {
            let engine = self.engines.wake(engine, &self.shared);
            if engine.database().is_hidden() {
                engine.renew(incarnation);
            }
        }
    }

    /// The connection to a peer stands, or has ended.
    pub(super) fn note_silence(&mut self, node: NodeId) {
        let shared = &mut self.shared;
        shared.silence.note(&shared.peers, node, shared.now);
    }

    fn with_service(&mut self, step: impl FnOnce(&mut Service, &mut Cx<'_>)) {
        let mut effects = Vec::new();
        let (peers, silence, now) = (&self.shared.peers, &self.shared.silence, self.shared.now);
        let holder = |node: NodeId, incarnation: Incarnation| match peers.get(node) {
            Some(member) if member.incarnation > incarnation => Holder::Replaced,
            Some(member) if member.up || node == peers.me() => Holder::Up,
            Some(_) if silence.is_gone(node, now) => Holder::Gone,
            _ => Holder::Away,
        };
        let unix = self.shared.unix.0;
        let mut cx = Cx { now, unix, holder: &holder, effects: &mut effects };
        step(&mut self.service, &mut cx);
        for effect in effects {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { tag, outcome } => self.shared.reply(tag, outcome),
            Effect::Run { token, database, key, command } => {
                let worker = (self.shared.index as u64) << WORKER_SHIFT;
                let tag = Tag(SERVICE_TAG | worker | token & TOKEN_MASK);
                let session = SessionId(tag.0);
                let shard = key.shard();
                let input = Input::Request { tag, session, database, key, command };
                self.pass_on(shard, input);
            }
            Effect::Begin { tag, transaction } => {
                // It counts at the worker where it begins.
                self.shared.counters.requests -= 1;
                self.shared.in_progress -= 1;
                let shard = transaction.keys.first().map_or(Shard(0), Key::shard);
                self.pass_on(shard, Input::Transaction { tag, transaction });
            }
            Effect::Compute(computation) => self.computations.push(computation),
            Effect::Ask { txid } => {
                let back = Shard(self.shared.index as u8);
                // The shard of the same number is the coordinator's worker's.
                self.say(txid.node, Shard(txid.worker()), Word::Ask { txid, back });
            }
        }
    }

    /// To the worker of this node that owns the shard.
    fn pass_on(&mut self, shard: Shard, input: Input) {
        if self.owns(shard) {
            self.on_input(input);
        } else {
            let worker = usize::from(shard.0) % self.shared.workers;
            self.for_workers.push((worker, input));
        }
    }

    /// To the service of a node's worker that owns the shard.
    fn say(&mut self, to: NodeId, shard: Shard, word: Word) {
        let me = self.shared.peers.me();
        if to == me {
            let from = self.shared.me();
            return self.pass_on(shard, Input::Word { from, bytes: word.to_bytes().into() });
        }
        let (epoch, peers) = (self.shared.sets.epoch(), &self.shared.peers);
        self.shared.outbox.push((epoch, peers), to, SERVICE, shard, &word);
    }

    /// Messages of another node's services. Returns how many were malformed.
    pub(super) fn on_words(&mut self, from: Peer, raw: &[RawMessage<'_>]) -> usize {
        raw.iter().filter(|message| !self.on_word(from, message.bytes)).count()
    }

    /// False if it is malformed.
    pub(super) fn on_word(&mut self, from: Peer, bytes: &[u8]) -> bool {
        match Word::from_bytes(bytes) {
            Ok(Word::Ask { txid, back }) => {
                if let Some(status) = self.service.status(txid) {
                    self.say(from.node, back, Word::Answer { txid, status });
                }
                true
            }
            Ok(Word::Answer { txid, status }) => {
                // It may have a later incarnation than its links name.
                if txid.node == from.node {
                    self.with_service(|service, cx| service.on_status(cx, txid, status));
                }
                true
            }
            Err(Malformed) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        let incarnation = Incarnation(3);
        let txid = Txid { start: 1, node: NodeId(2), incarnation, counter: 4 };
        for word in [
            Word::Ask { txid, back: Shard(9) },
            Word::Answer { txid, status: Status::Alive },
            Word::Answer { txid, status: Status::Finished },
        ] {
            let bytes = word.to_bytes();
            assert_eq!(Word::from_bytes(&bytes), Ok(word));
            assert_eq!(Word::from_bytes(&bytes[1..]), Err(Malformed));
        }
    }

    #[test]
    fn tags_of_clients_are_none_of_services() {
        for tag in [0, 1, 63 << 56 | 7, 0xff << 56 | 7] {
            assert_eq!(service_of(Tag(tag)), None, "{tag:#x}");
        }
        assert_eq!(service_of(Tag(SERVICE_TAG | 5 << WORKER_SHIFT | 7)), Some(5));
    }
}
