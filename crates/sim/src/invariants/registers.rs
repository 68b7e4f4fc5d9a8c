//! RMWPaxos, seen from its messages: one state per round, and acceptors that never go back.
//!
//! - I1: a round names one state, from every sender, for ever.
//! - I2: the accepted round that an acceptor reports never decreases while it remembers, restarts
//!   included. It is absent again only below its floor.
//! - I4, I9: a state proposed above a chosen round has at least that round's version.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use protocols::rmwpaxos::{Delta, Message, Payload, Report, State};
use types::key::ByHash;
use types::{AmnesiaCount, Key, NodeId, Round, Wire};

use super::{Sent, Watcher};

#[derive(Debug, Default)]
struct RegisterHistory {
    states: BTreeMap<Round, State>,
    /// States proposed together with phase 1. Such a state counts as proposed once an acceptor has
    /// accepted it: before that, phase 1 may fail.
    offered: BTreeMap<Round, State>,
    /// The highest round known to be chosen, with its version.
    chosen: Option<(Round, u64)>,
    /// The last report of each acceptor to each other node: only frames to one node are in order.
    accepted: BTreeMap<(NodeId, NodeId, AmnesiaCount), Round>,
    /// The first report after all had come to rest, unless a client has written since.
    rest: Rest,
}

#[derive(Debug, Default, Clone, Copy)]
enum Rest {
    #[default]
    Unseen,
    At(Round),
    Over,
}

/// All messages about each key.
#[derive(Debug, Default)]
pub struct Registers {
    registers: HashMap<Key, RegisterHistory, ByHash>,
    at_rest: bool,
}

impl RegisterHistory {
    fn on_offer(&mut self, key: &Key, round: Round, state: &State) -> Result<(), String> {
        if !self.states.contains_key(&round) && !self.offered.contains_key(&round) {
            self.offered.insert(round, state.clone());
        }
        self.is_one_state(key, round, state)
    }

    /// Records that an acceptor has accepted `round`, or follows it.
    fn on_won(&mut self, key: &Key, round: Round) -> Result<(), String> {
        match self.offered.remove(&round) {
            Some(state) => self.on_state(key, round, &state),
            None => Ok(()),
        }
    }

    fn is_one_state(&self, key: &Key, round: Round, state: &State) -> Result<(), String> {
        match self.states.get(&round).or_else(|| self.offered.get(&round)) {
            Some(known) if known != state => {
                Err(format!("I1: {key:?} {round:?} names both {known:?} and {state:?}"))
            }
            _ => Ok(()),
        }
    }

    fn on_state(&mut self, key: &Key, round: Round, state: &State) -> Result<(), String> {
        self.is_one_state(key, round, state)?;
        if self.states.contains_key(&round) {
            return Ok(());
        }
        self.states.insert(round, state.clone());
        match self.chosen {
            Some((chosen, version)) if round > chosen && state.version() < version => Err(format!(
                "I4: {key:?} {round:?} has version {} above chosen {chosen:?} with {version}",
                state.version()
            )),
            _ => Ok(()),
        }
    }

    /// The state that a delta stands for is the one its round names.
    fn made_by(&self, key: &Key, round: Round, delta: &Delta) -> Result<Option<State>, String> {
        // A state accepted by its proposer alone, while no other node was up, was never sent.
        let Some(base) = self.states.get(&delta.base()) else { return Ok(None) };
        let made = delta.apply(base).map(Some);
        made.ok_or_else(|| format!("I1: {key:?} {round:?} is no change of {:?}", delta.base()))
    }

    fn on_delta(&mut self, key: &Key, round: Round, delta: &Delta) -> Result<(), String> {
        self.on_won(key, delta.base())?;
        match self.made_by(key, round, delta)? {
            Some(state) => self.on_state(key, round, &state),
            None => Ok(()),
        }
    }

    fn on_offered(&mut self, key: &Key, round: Round, payload: &Payload) -> Result<(), String> {
        match payload {
            Payload::Whole(state) => self.on_offer(key, round, state),
            Payload::Delta(delta) => match self.made_by(key, round, delta)? {
                Some(state) => self.on_offer(key, round, &state),
                None => Ok(()),
            },
        }
    }

    fn on_chosen(&mut self, key: &Key, round: Round) -> Result<(), String> {
        if self.chosen.is_some_and(|(chosen, _)| chosen >= round) {
            return Ok(());
        }
        self.on_won(key, round)?;
        // A state may be chosen by its own acceptor and one more without a countable message.
        let Some(state) = self.states.get(&round) else { return Ok(()) };
        let version = state.version();
        self.chosen = Some((round, version));
        let later = self.states.range(round..).find(|(_, state)| state.version() < version);
        match later {
            Some((later, state)) => Err(format!(
                "I4: {key:?} {later:?} has version {} above chosen {round:?} with {version}",
                state.version()
            )),
            None => Ok(()),
        }
    }

    /// Checks a read after all came to rest without later writes. [spec 7.5, 9.7, 9.9]
    ///
    /// It is the same everywhere, and all garbage has been collected.
    fn on_read_at_rest(&mut self, key: &Key, accepted: Round) -> Result<(), String> {
        // A lock that a minority accepted stays there until a command or the patrol meets it.
        if self.states.get(&accepted).is_some_and(|it| it.lock().is_some()) {
            return Ok(());
        }
        let left = self.states.get(&accepted).filter(|it| it.is_tombstone() || it.has_once());
        if let (Some(state), false) = (left, matches!(self.rest, Rest::Over)) {
            return Err(format!("{key:?}: replicas rest at {accepted:?} with {state:?}"));
        }
        match self.rest {
            Rest::Over => Ok(()),
            Rest::Unseen => {
                self.rest = Rest::At(accepted);
                Ok(())
            }
            Rest::At(first) if first == accepted => Ok(()),
            Rest::At(first) => {
                Err(format!("{key:?}: replicas rest at {first:?} and at {accepted:?}"))
            }
        }
    }

    fn on_report(&mut self, key: &Key, sent: &Sent<'_>, report: &Report) -> Result<(), String> {
        if let Some(state) = &report.state {
            self.on_state(key, report.accepted, state)?;
        }
        let last = self.accepted.entry((sent.from, sent.to, sent.amnesia)).or_insert(Round::NONE);
        let is_below_floor = report.accepted.is_none() && last.ballot() <= report.floor_ballot;
        if report.accepted < *last && !is_below_floor {
            return Err(format!(
                "I2: {key:?} {:?} reports {:?} after {last:?}, floor {:?}",
                sent.from, report.accepted, report.floor_ballot
            ));
        }
        *last = report.accepted;
        if report.chosen { self.on_chosen(key, report.accepted) } else { Ok(()) }
    }
}

impl Watcher for Registers {
    fn on_message(&mut self, sent: &Sent<'_>) -> Result<(), String> {
        let Ok(message) = Message::from_bytes(sent.bytes) else {
            return Err(format!("{:?} sent a message that is not one of rmwpaxos", sent.from));
        };
        let Some(key) = message.key() else { return Ok(()) };
        if !self.registers.contains_key(key) {
            self.registers.insert(key.clone(), RegisterHistory::default());
        }
        let Some(register) = self.registers.get_mut(key) else { return Ok(()) };
        match &message {
            Message::Prepare { .. }
            | Message::Accept { .. }
            | Message::AcceptDelta { .. }
            | Message::PrepareAccept { .. }
                if self.at_rest =>
            {
                register.rest = Rest::Over;
            }
            Message::State { key, report, .. } if self.at_rest => {
                register.on_read_at_rest(key, report.accepted)?;
            }
            _ => {}
        }
        match &message {
            Message::Accept { key, round, chosen_k, state } => {
                register.on_state(key, *round, state)?;
                if *chosen_k > 0 {
                    register.on_chosen(key, round.ballot().round(*chosen_k))?;
                }
                Ok(())
            }
            Message::Chosen { key, round } => register.on_chosen(key, *round),
            Message::AcceptDelta { key, round, chosen_k, delta } => {
                register.on_delta(key, *round, delta)?;
                if *chosen_k > 0 {
                    register.on_chosen(key, round.ballot().round(*chosen_k))?;
                }
                Ok(())
            }
            Message::PrepareAccept { key, round, payload, .. } => {
                register.on_offered(key, *round, payload)
            }
            Message::Accepted { key, round } => register.on_won(key, *round),
            Message::Repair { key, round, state } => register.on_state(key, *round, state),
            Message::State { key, report, .. } | Message::Promise { key, report, .. } => {
                register.on_report(key, sent, report)
            }
            Message::Recovered { key, report, .. } => register.on_report(key, sent, report),
            _ => Ok(()),
        }
    }

    fn on_rest(&mut self) {
        self.at_rest = true;
    }
}

#[cfg(test)]
mod tests {
    use protocols::rmwpaxos::{Ring, StateFields};
    use types::{Ballot, Epoch, Incarnation};

    use super::*;

    fn round(number: u64) -> Round {
        Ballot::new(Epoch(1), number, NodeId(1), Incarnation(1)).round(1)
    }

    fn accept(number: u64, version: u64) -> Message {
        let ring = Ring::default();
        let state = State::new(&StateFields {
            version,
            mod_version: version,
            ring,
            expiry: None,
            once: None,
            lock: None,
            value: None,
        });
        Message::Accept { key: Key::new(b"k"), round: round(number), chosen_k: 0, state }
    }

    fn watch(watcher: &mut Registers, message: &Message) -> Result<(), String> {
        let bytes = message.to_bytes();
        watcher.on_message(&Sent {
            at: 0,
            from: NodeId(1),
            to: NodeId(2),
            incarnation: Incarnation(1),
            amnesia: AmnesiaCount(1),
            bytes: &bytes,
        })
    }

    #[test]
    fn two_states_of_one_round_are_found() {
        let mut watcher = Registers::default();
        assert_eq!(watch(&mut watcher, &accept(1, 1)), Ok(()));
        assert_eq!(watch(&mut watcher, &accept(1, 1)), Ok(()));
        assert!(watch(&mut watcher, &accept(1, 2)).unwrap_err().starts_with("I1"));
    }

    #[test]
    fn delta_of_wrong_state_is_found() {
        let state = |version, value: &'static [u8]| {
            let value = Some(value);
            let ring = Ring::default();
            State::new(&StateFields {
                version,
                mod_version: version,
                ring,
                expiry: None,
                once: None,
                lock: None,
                value,
            })
        };
        let key = || Key::new(b"k");
        let (one, two, other) = (state(1, b"one"), state(2, b"one, two"), state(2, b"one, three"));
        let delta = |from: &State, to: &State| {
            let delta = Delta::between((round(1), from), to).expect("both have values");
            let delta = std::sync::Arc::new(delta);
            Message::AcceptDelta { key: key(), round: round(2), chosen_k: 0, delta }
        };
        let mut watcher = Registers::default();
        let first =
            Message::Accept { key: key(), round: round(1), chosen_k: 0, state: one.clone() };
        assert_eq!(watch(&mut watcher, &first), Ok(()));
        assert_eq!(watch(&mut watcher, &delta(&one, &two)), Ok(()));
        assert!(watch(&mut watcher, &delta(&one, &other)).unwrap_err().starts_with("I1"));
        assert!(watch(&mut watcher, &delta(&other, &two)).unwrap_err().starts_with("I1"));
    }

    #[test]
    fn older_version_above_chosen_round_is_found() {
        let mut watcher = Registers::default();
        watch(&mut watcher, &accept(1, 5)).unwrap();
        let Message::Accept { key, state, .. } = accept(1, 6) else { unreachable!() };
        let next = Message::Accept { key, round: round(1).ballot().round(2), chosen_k: 1, state };
        assert_eq!(watch(&mut watcher, &next), Ok(()));
        assert!(watch(&mut watcher, &accept(2, 4)).unwrap_err().starts_with("I4"));
    }
}
