//! One payload per round, in every message that carries it.

use types::Wire;

use super::World;
use crate::rmwpaxos::{Message, Payload, State};

impl World {
    /// Notes a node's own accepts. It may not have sent them yet, because all others may be slow.
    pub(super) fn note_accepted(&mut self, index: usize) {
        for key in [&self.key, &self.neighbour] {
            let Some(register) = self.nodes[index].register(key) else { continue };
            if let Some(state) = &register.state {
                let known = self.rounds.entry((key.clone(), register.accepted));
                known.or_insert_with(|| state.to_bytes());
            }
        }
    }

    /// One payload per round, whole or as a delta.
    pub(super) fn note_payload(&mut self, message: &Message) {
        let (key, round, state) = match message {
            Message::Accept { key, round, state, .. } | Message::Repair { key, round, state } => {
                (key, *round, Some(state.clone()))
            }
            Message::PrepareAccept { key, round, payload: Payload::Whole(state), .. } => {
                (key, *round, Some(state.clone()))
            }
            Message::AcceptDelta { key, round, delta, .. }
            | Message::PrepareAccept { key, round, payload: Payload::Delta(delta), .. } => {
                let base = self.rounds.get(&(key.clone(), delta.base()));
                let base = base.map(|base| State::from_bytes(base).expect("it was sent so"));
                (key, *round, base.and_then(|base| delta.apply(&base)))
            }
            _ => return,
        };
        let Some(bytes) = state.map(|state| state.to_bytes()) else {
            self.fault.get_or_insert(format!("{round:?} is no change of its base"));
            return;
        };
        let known = self.rounds.entry((key.clone(), round)).or_insert_with(|| bytes.clone());
        if *known != bytes {
            self.fault.get_or_insert(format!("{round:?} has two payloads"));
        }
    }
}
