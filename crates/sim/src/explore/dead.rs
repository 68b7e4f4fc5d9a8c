//! Messages under way that can have no effect any more: worlds that differ only in them are one.
//!
//! The search guesses that a message is dead, and proves it afterwards. It records which states of
//! a node follow from which (the *graph*), and which messages had an effect in which states. The
//! next search drops a message that had no effect in its addressee's state nor in any later one of
//! the graph. Afterwards each dropped message is delivered, for trial, in its state and in all that
//! follow from it. If one has an effect, the guess was wrong: the effect is recorded, and the
//! search runs again.
//!
//! Proof: suppose all guesses pass that trial. Compare a world of the plan with a world of the
//! search. Both have the same nodes and clients; the former also has the dropped messages. A step
//! of the former that delivers none of those is a step of the latter. A step that delivers one has
//! no effect. Steps of the search led its addressee from the state of the drop to its present
//! state, so the trial covers that state. Hence the search saw every node state and every outcome
//! of the plan's world.

use std::fmt::Debug;

use protocols::Protocol;

use super::node::Input;
use super::table::StepTable;

/// A set of messages, by number.
#[derive(Clone, Default)]
struct MessageSet(Vec<u64>);

impl MessageSet {
    fn has(&self, message: u32) -> bool {
        self.0.get(message as usize / 64).is_some_and(|word| word >> (message % 64) & 1 == 1)
    }

    fn add(&mut self, message: u32) {
        let at = message as usize / 64;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (message % 64);
    }

    /// True when there were others in `from`.
    fn take_all(&mut self, from: &MessageSet) -> bool {
        if self.0.len() < from.0.len() {
            self.0.resize(from.0.len(), 0);
        }
        let mut grew = false;
        for (word, more) in self.0.iter_mut().zip(&from.0) {
            grew |= more & !*word != 0;
            *word |= more;
        }
        grew
    }

    fn all(&self) -> impl Iterator<Item = u32> + '_ {
        let bits = |(at, &word): (usize, &u64)| {
            let set = (0..64).filter(move |bit| word >> bit & 1 == 1);
            set.map(move |bit| at as u32 * 64 + bit)
        };
        self.0.iter().enumerate().flat_map(bits)
    }
}

/// The guesses of one search.
#[derive(Default)]
pub(super) struct DeadMessages {
    /// By state: messages with an effect there or later. Newer states have no guesses.
    alive: Vec<MessageSet>,
    /// Number of messages known at that time.
    messages: u32,
    /// By state: messages that were dropped there.
    dropped: Vec<MessageSet>,
}

impl DeadMessages {
    /// Derives guesses from the results of a search.
    pub(super) fn learn<P: Protocol + Debug>(table: &StepTable<P>) -> DeadMessages {
        let mut alive = vec![MessageSet::default(); table.len()];
        for (state, alive) in alive.iter_mut().enumerate() {
            table.effective(state as u32).for_each(|message| alive.add(message));
        }
        // Later states nearly always have higher numbers, so one pass from the end does most of it.
        let mut is_stable = false;
        while !is_stable {
            is_stable = true;
            for state in (0..alive.len()).rev() {
                for &next in table.successors(state as u32) {
                    let later = alive[next as usize].clone();
                    is_stable &= !alive[state].take_all(&later);
                }
            }
        }
        DeadMessages {
            dropped: vec![MessageSet::default(); alive.len()],
            alive,
            messages: table.messages(),
        }
    }

    /// Whether a message to a node in that state is dropped.
    pub(super) fn drops(&mut self, state: u32, message: u32) -> bool {
        let is_known = message < self.messages && (state as usize) < self.alive.len();
        if !is_known || self.alive[state as usize].has(message) {
            return false;
        }
        self.dropped[state as usize].add(message);
        true
    }

    /// Tries all dropped messages in all states where they could have arrived. True when none had
    /// an effect; otherwise the table now knows those effects.
    pub(super) fn proves_itself<P: Protocol + Debug>(mut self, table: &mut StepTable<P>) -> bool {
        self.dropped.resize(table.len(), MessageSet::default());
        let mut is_stable = false;
        while !is_stable {
            is_stable = true;
            for state in 0..self.dropped.len() {
                for &next in table.successors(state as u32) {
                    let earlier = self.dropped[state].clone();
                    is_stable &= !self.dropped[next as usize].take_all(&earlier);
                }
            }
        }
        let mut proves_itself = true;
        for (state, messages) in self.dropped.iter().enumerate() {
            proves_itself &= table.changes_nothing(state as u32, messages.all());
        }
        proves_itself
    }
}

/// Whether a message has an effect in that state, if that was computed before.
pub(super) fn known_effect<P: Protocol + Debug>(
    table: &StepTable<P>,
    state: u32,
    message: u32,
) -> Option<bool> {
    table.known_step(state, Input::Deliver(message)).map(|step| match step {
        Ok(step) => step.changes(state),
        Err(_) => true,
    })
}
