//! Configured groups of a node: the membership service between control links, the registers of the
//! system database, the workers and the lease words.
//!
//! Free of sockets, clocks, files and threads. The control thread runs it, and the simulator.

pub mod register;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Nanos;
use bytes::Bytes;
use membership::{
    Effect, GroupStatus, Input, LeaseWord, LocalRecord, Membership, Message, RegisterResult,
    Report, Settings,
};
use protocols::{GroupEvent, GroupReport};
use types::limits::DATABASES;
use types::{Database, Epoch, ImageId, Incarnation, NodeId};

use crate::group_view::GroupView;

/// The lease words of a node, one per database.
#[derive(Debug, Default)]
pub struct LeaseWords {
    words: [LeaseWord; DATABASES],
}

impl LeaseWords {
    /// True if the lease of this epoch holds. Reads the word, then the clock.
    #[must_use]
    pub fn holds(&self, database: Database, epoch: Epoch, clock: impl FnOnce() -> Nanos) -> bool {
        let word = self.words.get(usize::from(database.0));
        word.is_some_and(|word| word.holds(epoch, clock))
    }

    /// Epoch and end of a lease; epoch zero without one.
    #[must_use]
    pub fn get(&self, database: Database) -> (Epoch, Nanos) {
        self.words.get(usize::from(database.0)).map_or((Epoch(0), Nanos::ZERO), LeaseWord::get)
    }
}

/// To be carried out in order. A failure to persist stops the node.
#[derive(Debug)]
pub enum GroupEffect {
    /// Over the control link; may be lost.
    Send {
        to: NodeId,
        message: Message,
    },
    /// Run the command on the register of this group, and bring the outcome to
    /// [`Groups::on_register`].
    Register {
        group: Database,
        token: u64,
        command: types::Command,
    },
    /// Make this durable before any later effect.
    Persist {
        group: Database,
        record: LocalRecord,
    },
    /// Hand it to all workers.
    Workers {
        database: Database,
        event: GroupEvent,
    },
    Report(Report),
}

/// The membership service of a node, with the answers of its workers.
pub struct Groups {
    service: Membership,
    workers: usize,
    words: Arc<LeaseWords>,
    answers: BTreeMap<Database, Answers>,
    effects: Vec<Effect>,
}

/// The answers of all workers to the last orders of one group.
#[derive(Debug, Default)]
struct Answers {
    sealed: (Epoch, BTreeMap<usize, Bytes>),
    copied: (Epoch, BTreeMap<usize, ()>),
    erased: (ImageId, BTreeMap<usize, ()>),
}

impl Groups {
    #[must_use]
    pub fn new(settings: Settings, workers: usize) -> Groups {
        let words = Arc::new(LeaseWords::default());
        let service = Membership::new(settings);
        Groups { service, workers, words, answers: BTreeMap::new(), effects: Vec::new() }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.service.settings().groups.is_empty()
    }

    /// The lease words, for workers.
    #[must_use]
    pub fn words(&self) -> Arc<LeaseWords> {
        Arc::clone(&self.words)
    }

    #[must_use]
    pub fn status(&self, group: Database) -> Option<GroupStatus> {
        self.service.status(group)
    }

    /// All groups, for people. Leases are left out.
    #[must_use]
    pub fn views(&self) -> Vec<GroupView> {
        let settings = self.service.settings();
        let view = |group: &membership::GroupSettings| {
            let wanted = group.replicas.min(settings.servers.len());
            Some(GroupView::of(group.group, wanted, &self.service.status(group.group)?))
        };
        settings.groups.iter().filter_map(view).collect()
    }

    /// When [`Groups::on_time`] is due.
    #[must_use]
    pub fn next_timer(&self) -> Option<Nanos> {
        self.service.deadline()
    }

    pub fn on_time(&mut self, now: Nanos, out: &mut Vec<GroupEffect>) {
        self.on(now, Input::Tick, out);
    }

    /// See [`Membership::pulse`].
    pub fn pulse(&mut self, now: Nanos, out: &mut Vec<GroupEffect>) {
        let mut effects = std::mem::take(&mut self.effects);
        self.service.pulse(now, &mut effects);
        out.extend(effects.drain(..).filter_map(|effect| self.translate(effect)));
        self.effects = effects;
    }

    pub fn start(
        &mut self,
        now: Nanos,
        records: Vec<(Database, LocalRecord)>,
        out: &mut Vec<GroupEffect>,
    ) {
        self.on(now, Input::Start { records }, out);
    }

    pub fn on_peer_up(
        &mut self,
        now: Nanos,
        (node, incarnation): (NodeId, Incarnation),
        out: &mut Vec<GroupEffect>,
    ) {
        self.on(now, Input::PeerUp { node, incarnation }, out);
    }

    pub fn on_peer_down(&mut self, now: Nanos, node: NodeId, out: &mut Vec<GroupEffect>) {
        self.on(now, Input::PeerDown { node }, out);
    }

    pub fn on_message(
        &mut self,
        now: Nanos,
        (from, incarnation): (NodeId, Incarnation),
        message: Message,
        out: &mut Vec<GroupEffect>,
    ) {
        self.on(now, Input::Message { from, incarnation, message }, out);
    }

    /// The outcome of [`GroupEffect::Register`].
    pub fn on_register(
        &mut self,
        now: Nanos,
        (group, token): (Database, u64),
        result: RegisterResult,
        out: &mut Vec<GroupEffect>,
    ) {
        self.on(now, Input::Register { group, token, result }, out);
    }

    /// A protocol waits for a member's acknowledgements.
    pub fn on_suspect(
        &mut self,
        now: Nanos,
        group: Database,
        node: NodeId,
        out: &mut Vec<GroupEffect>,
    ) {
        self.on(now, Input::Suspect { group, node }, out);
    }

    /// One worker answers. The service hears of it once all have answered the same order.
    pub fn on_report(
        &mut self,
        now: Nanos,
        worker: usize,
        (group, report): (Database, GroupReport),
        out: &mut Vec<GroupEffect>,
    ) {
        let answers = self.answers.entry(group).or_default();
        let input = match report {
            GroupReport::Sealed { epoch, summary } => {
                let all = answer(&mut answers.sealed, epoch, worker, summary, self.workers);
                all.map(|summaries| {
                    let summary = summaries.concat().into();
                    Input::Sealed { group, epoch, summary }
                })
            }
            GroupReport::Copied { epoch } => {
                let all = answer(&mut answers.copied, epoch, worker, (), self.workers);
                all.map(|_| Input::Copied { group, epoch })
            }
            GroupReport::Erased { image } => {
                let all = answer(&mut answers.erased, image, worker, (), self.workers);
                all.map(|_| Input::Erased { group, image })
            }
            GroupReport::Lost => Some(Input::Lost { group }),
        };
        if let Some(input) = input {
            self.on(now, input, out);
        }
    }

    /// An operator's order.
    pub fn on_operator(
        &mut self,
        now: Nanos,
        (group, epoch): (Database, Epoch),
        decree: membership::Decree,
        out: &mut Vec<GroupEffect>,
    ) {
        self.on(now, Input::Operator { group, epoch, decree }, out);
    }

    fn on(&mut self, now: Nanos, input: Input, out: &mut Vec<GroupEffect>) {
        let mut effects = std::mem::take(&mut self.effects);
        self.service.on(now, input, &mut effects);
        for effect in effects.drain(..) {
            out.extend(self.translate(effect));
        }
        self.effects = effects;
    }

    fn translate(&mut self, effect: Effect) -> Option<GroupEffect> {
        Some(match effect {
            Effect::Send { to, message } => GroupEffect::Send { to, message },
            Effect::ReadRegister { group, token } => {
                GroupEffect::Register { group, token, command: register::read() }
            }
            Effect::SwapRegister { group, token, expected, new } => {
                let command = register::swap(expected.as_deref(), &new);
                GroupEffect::Register { group, token, command }
            }
            Effect::Persist { group, record } => GroupEffect::Persist { group, record },
            Effect::Wedge { group, epoch } => {
                self.answers.entry(group).or_default().sealed = (epoch, BTreeMap::new());
                GroupEffect::Workers { database: group, event: GroupEvent::Wedge { epoch } }
            }
            Effect::Install { group, configuration, role } => {
                let epoch = configuration.epoch;
                self.answers.entry(group).or_default().copied = (epoch, BTreeMap::new());
                let configuration = Arc::new(configuration);
                let event = GroupEvent::Install { configuration, role };
                GroupEffect::Workers { database: group, event }
            }
            Effect::Erase { group, image } => {
                self.answers.entry(group).or_default().erased = (image, BTreeMap::new());
                GroupEffect::Workers { database: group, event: GroupEvent::Erase { image } }
            }
            Effect::Keep { group } => {
                GroupEffect::Workers { database: group, event: GroupEvent::Keep }
            }
            Effect::SetLease { group, epoch, until } => {
                if let Some(word) = self.words.words.get(usize::from(group.0)) {
                    word.set(epoch, until);
                }
                return None;
            }
            Effect::ClearLease { group } => {
                if let Some(word) = self.words.words.get(usize::from(group.0)) {
                    word.clear();
                }
                return None;
            }
            Effect::Report(report) => GroupEffect::Report(report),
        })
    }
}

/// Adds a worker's answer to those about the present order. Returns all once they are complete.
fn answer<O: PartialEq, T>(
    answers: &mut (O, BTreeMap<usize, T>),
    order: O,
    worker: usize,
    new: T,
    workers: usize,
) -> Option<Vec<T>> {
    // A worker that was held up answers to orders that newer ones have replaced.
    if answers.0 != order {
        return None;
    }
    answers.1.insert(worker, new);
    let is_complete = answers.1.len() == workers;
    is_complete.then(|| std::mem::take(&mut answers.1).into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_to_the_present_order_count() {
        let mut answers = (Epoch(2), BTreeMap::new());
        assert_eq!(answer(&mut answers, Epoch(2), 0, 'a', 2), None);
        assert_eq!(answer(&mut answers, Epoch(1), 1, 'b', 2), None);
        assert_eq!(answer(&mut answers, Epoch(2), 0, 'c', 2), None);
        assert_eq!(answer(&mut answers, Epoch(2), 1, 'd', 2), Some(vec!['c', 'd']));
    }
}
