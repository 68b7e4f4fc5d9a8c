//! Messages that are on their way and can change nothing any more: worlds that differ in them alone are one.
//!
//! Whether a message is dead is guessed and then proven. After a search it is known which states of a node follow which
//! (the *graph*), and which messages changed something in which of them. The next search takes a message for dead, and
//! drops it, where it changed nothing in its addressee's state nor in any that follows from it in the graph. When that
//! search has ended, every guess is held against the graph as it is then: each message that was dropped in a state is
//! delivered, for trial, in that state and in all that follow from it. If one of them changes anything, the guess was
//! wrong: it is remembered what was changed, and searched again.
//!
//! Why that suffices: suppose all guesses stand that trial. Let a world of the plan run beside the one of the search,
//! with the same nodes and the same clients, and with the messages besides that were dropped. A step of the former that
//! delivers none of those is a step of the latter. One that does deliver one changes nothing: its addressee has gone
//! from where the message was dropped to where it is now by steps of the search, so its state is one of those in which
//! the message was tried. So every state of a node and everything that clients are told in the plan's world was seen.

use std::fmt::Debug;

use protocols::Protocol;

use super::node::Input;
use super::table::Table;

/// A set of messages, by number.
#[derive(Clone, Default)]
struct Messages(Vec<u64>);

impl Messages {
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
    fn take_all(&mut self, from: &Messages) -> bool {
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

/// What is guessed in one search.
#[derive(Default)]
pub(super) struct Dead {
    /// By state: messages that change something there or later. States met since are not guessed about.
    alive: Vec<Messages>,
    /// Messages that were known when that was found out.
    messages: u32,
    /// By state: messages that were dropped there.
    dropped: Vec<Messages>,
}

impl Dead {
    /// Guesses from what a search has found.
    pub(super) fn learn<P: Protocol + Debug>(table: &Table<P>) -> Dead {
        let mut alive = vec![Messages::default(); table.len()];
        for (state, alive) in alive.iter_mut().enumerate() {
            table.effective(state as u32).for_each(|message| alive.add(message));
        }
        // Later states have higher numbers, nearly always: one pass from the end does most of it.
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
        Dead { dropped: vec![Messages::default(); alive.len()], alive, messages: table.messages() }
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

    /// Tries all that was dropped in all states where it could have arrived. True when nothing was changed; else the
    /// table knows more than before.
    pub(super) fn proves_itself<P: Protocol + Debug>(mut self, table: &mut Table<P>) -> bool {
        self.dropped.resize(table.len(), Messages::default());
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

/// Whether a message arriving in that state says or changes anything, where that was computed before.
pub(super) fn known_effect<P: Protocol + Debug>(
    table: &Table<P>,
    state: u32,
    message: u32,
) -> Option<bool> {
    table.known_step(state, Input::Deliver(message)).map(|step| match step {
        Ok(step) => step.changes(state),
        Err(_) => true,
    })
}
