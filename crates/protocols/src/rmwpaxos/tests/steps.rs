//! Steps of a schedule played by hand: choose messages, pause nodes, ask and claim.
//!
//! Nodes are named by their index. The acceptors A1, A2, A3 of the specification are 0, 1, 2.

use base::Nanos;
use types::{AmnesiaCount, Key, Outcome, Reply, Tag};

use super::strings::Ask;
use super::world::{Envelope, World};
use crate::peers::Pace;
use crate::protocol::Event;
use crate::rmwpaxos::{Message, Register, Verdict};

/// The kind of a message, as a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Read,
    State,
    Prepare,
    Promise,
    Accept,
    Delta,
    NeedFull,
    Accepted,
    Remove,
    Chosen,
    Repair,
    Compare,
    Forward,
    Forwarded,
    Combined,
    Recover,
    Recovered,
    List,
    Listed,
    Fenced,
    Other,
}

impl Envelope {
    pub(super) fn kind(&self) -> Kind {
        match &self.message {
            Message::Read { .. } => Kind::Read,
            Message::State { .. } => Kind::State,
            Message::Prepare { .. } => Kind::Prepare,
            Message::Promise { .. } => Kind::Promise,
            Message::Accept { .. } => Kind::Accept,
            Message::AcceptDelta { .. } => Kind::Delta,
            Message::PrepareAccept { .. } => Kind::Combined,
            Message::NeedFull { .. } => Kind::NeedFull,
            Message::Accepted { .. } => Kind::Accepted,
            Message::Remove { .. } => Kind::Remove,
            Message::Chosen { .. } => Kind::Chosen,
            Message::Forward { .. } => Kind::Forward,
            Message::Forwarded { .. } => Kind::Forwarded,
            Message::Recover { .. } => Kind::Recover,
            Message::Recovered { .. } => Kind::Recovered,
            Message::List { .. } => Kind::List,
            Message::Listed { .. } => Kind::Listed,
            Message::Compare { .. }
            | Message::Compared { .. }
            | Message::Want { .. }
            | Message::Older { .. }
            | Message::OlderFloor { .. } => Kind::Compare,
            Message::Repair { .. } => Kind::Repair,
            Message::Fenced { .. } => Kind::Fenced,
            Message::Nack { .. } | Message::Touch { .. } => Kind::Other,
        }
    }

    /// It tells the origin of a forward that a lock kept a command from running.
    pub(super) fn says_locked(&self) -> bool {
        let Message::Forwarded { verdict: Verdict::Done { outcomes, .. }, .. } = &self.message
        else {
            return false;
        };
        outcomes.iter().any(|outcome| matches!(outcome, Outcome::Locked(_)))
    }

    pub(super) fn is(&self, kind: Kind) -> bool {
        self.kind() == kind
    }

    pub(super) fn sender(&self) -> usize {
        usize::from(self.from.node.0) - 1
    }

    pub(super) fn receiver(&self) -> usize {
        usize::from(self.to.0) - 1
    }

    /// True if both ends are among these nodes.
    pub(super) fn among(&self, nodes: &[usize]) -> bool {
        nodes.contains(&self.sender()) && nodes.contains(&self.receiver())
    }

    pub(super) fn goes(&self, kind: Kind, from: usize, to: usize) -> bool {
        self.is(kind) && self.sender() == from && self.receiver() == to
    }
}

impl World {
    /// Delivers messages that `passes` admits, and the messages that they cause, in order. Flushes
    /// end at once, and no time passes.
    pub(super) fn flow(&mut self, passes: impl Fn(&Envelope) -> bool) {
        for _ in 0..10_000 {
            (0..self.nodes.len()).for_each(|node| while self.flush(node) {});
            let Some(at) = self.bag.iter().position(&passes) else { return };
            let envelope = self.bag.remove(at);
            self.deliver(envelope);
        }
        self.fault.get_or_insert("a storm of messages".into());
    }

    /// Takes matching messages out of the bag.
    pub(super) fn take(&mut self, mut matches: impl FnMut(&Envelope) -> bool) -> Vec<Envelope> {
        self.bag.extract_if(.., |envelope| matches(envelope)).collect()
    }

    pub(super) fn lose(&mut self, matches: impl Fn(&Envelope) -> bool) {
        self.bag.retain(|envelope| !matches(envelope));
    }

    pub(super) fn lose_all(&mut self) {
        self.bag.clear();
    }

    pub(super) fn deliver_all(&mut self, envelopes: Vec<Envelope>) {
        envelopes.into_iter().for_each(|envelope| self.deliver(envelope));
    }

    /// Passes time at one node only; the others are paused.
    pub(super) fn pass_at(&mut self, index: usize, span: Nanos) {
        self.now += span;
        self.fire(index);
    }

    /// Lets this node collect its tombstones. Delivers the messages that `passes` admits.
    pub(super) fn collect(&mut self, node: usize, passes: impl Fn(&Envelope) -> bool) {
        // A grace before the proposal, and one before the removal.
        for _ in 0..2 {
            self.pass_at(node, Nanos::from_millis(1_100));
            self.flow(&passes);
        }
    }

    /// Long enough that no node counts as busy with the key. No timer fires.
    pub(super) fn calm(&mut self) {
        self.now += Nanos::from_millis(30);
    }

    /// Sets whether `node` considers `other` up.
    pub(super) fn sees(&mut self, node: usize, other: usize, up: bool) {
        let id = self.nodes[other].peers.me();
        self.nodes[node].peers.set_up(id, up);
        if !up {
            self.step(node, Event::PeerReset { node: id });
        }
    }

    /// Sets the pace of `other` as `node` sees it.
    pub(super) fn sees_pace(&mut self, node: usize, other: usize, pace: Pace) {
        let id = self.nodes[other].peers.me();
        if self.nodes[node].peers.set_pace(id, pace) && pace == Pace::Steady {
            self.step(node, Event::PeerSteady { node: id });
        }
    }

    /// Nodes spare others only beside a steady majority.
    pub(super) fn spare_beside_majorities(&mut self, node: usize) {
        let peers = &self.nodes[node].peers;
        let steady = peers.nodes().iter().filter(|member| member.pace == Pace::Steady).count();
        if steady <= peers.nodes().len() / 2 {
            self.turn_paces(node, Pace::Spared, Pace::Slow);
        }
    }

    /// Makes slow members steady again; with [`Pace::Spared`] also the spared ones.
    pub(super) fn steady_all(&mut self, slowest: Pace) {
        for node in 0..self.nodes.len() {
            self.turn_paces(node, Pace::Slow, Pace::Steady);
            if slowest == Pace::Spared {
                self.turn_paces(node, Pace::Spared, Pace::Steady);
            }
        }
    }

    fn turn_paces(&mut self, node: usize, from: Pace, to: Pace) {
        for other in 0..self.nodes.len() {
            if self.nodes[node].peers.nodes()[other].pace == from {
                self.sees_pace(node, other, to);
            }
        }
    }

    pub(super) fn start(&mut self, node: usize, ask: Ask) -> Tag {
        let key = self.key.clone();
        self.ask(node, &key, ask)
    }

    pub(super) fn append(&mut self, node: usize, text: &'static str) -> Tag {
        self.start(node, Ask::Append(text))
    }

    /// A write with all members, and then calm.
    pub(super) fn write(&mut self, node: usize, ask: Ask) -> Tag {
        let key = self.key.clone();
        self.write_key(node, &key, ask)
    }

    pub(super) fn write_key(&mut self, node: usize, key: &Key, ask: Ask) -> Tag {
        let tag = self.ask(node, key, ask);
        self.flow(|_| true);
        assert!(!self.is_open(tag), "no conflict delays {tag:?}");
        self.calm();
        tag
    }

    /// Runs until the node sends its proposal, with phase 1 won among `quorum`.
    pub(super) fn prepared(&mut self, quorum: &[usize]) {
        self.flow(|m| m.among(quorum) && (m.is(Kind::Prepare) || m.is(Kind::Promise)));
    }

    pub(super) fn held(&self, node: usize) -> Option<&Register> {
        self.nodes[node].register(&self.key)
    }

    /// True if no first proposal of the node waits for an acceptor to complete phase 1.
    pub(super) fn combined_is_over(&self, node: usize) -> bool {
        let active = self.nodes[node].protocol.core.actives().get(&self.key);
        active.is_none_or(|active| active.unproven().is_none())
    }

    pub(super) fn reply(&self, tag: Tag) -> Option<Reply> {
        match self.value_of(tag) {
            Some(Outcome::Reply(reply)) => Some(reply.clone()),
            _ => None,
        }
    }

    /// The node restarts and finds its record of the key damaged.
    pub(super) fn crash_damaged(&mut self, index: usize) {
        let key = self.key.clone();
        self.nodes[index].stored_records.remove(&key);
        self.crash(index, 0);
        let node = &mut self.nodes[index];
        let me = *node.peers.own();
        node.peers.learn(me.node, me.incarnation, AmnesiaCount(me.amnesia.0 + 1));
        node.cache.fill(&key, None, true);
    }

    /// Delivers all messages, reads at every node, and checks the histories.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        for _ in 0..2 {
            if !self.settle() {
                return Err("work that never ends".into());
            }
            for node in 0..self.nodes.len() {
                self.start(node, Ask::Get);
            }
        }
        if !self.settle() {
            return Err("a last read that never ends".into());
        }
        let unsure = self.undecided;
        self.verdict()?;
        claim(self.undecided == unsure, "the checker can tell")
    }

    /// As [`finish`](World::finish), and the key holds the text after the `v`, or is absent with
    /// `-`.
    pub(super) fn finish_with(&mut self, value: &str) -> Result<(), String> {
        self.finish()?;
        let tag = self.start(0, Ask::Get);
        claim(self.settle(), "a read ends")?;
        let found = self.reply(tag);
        let expected = value.strip_prefix('v').map(str::as_bytes);
        claim(found == Some(Reply::copy_or_null(expected)), &format!("{found:?} is {value}"))
    }
}

/// A claim of a schedule. A violated one is returned, so that it may catch a mutation.
pub(super) fn claim(holds: bool, text: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("not so: {text}")) }
}
