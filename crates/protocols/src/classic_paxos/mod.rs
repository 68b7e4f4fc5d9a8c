//! Classic Paxos per key: a sequence of single-decree instances, in place, without a leader.
//!
//! Sources: Lamport, "Paxos made simple", 2001. Gavrielatos, Katsarakis and Nagarajan, "Odyssey:
//! the impact of modern hardware on strongly-consistent replication protocols", EuroSys 2021,
//! whose read-modify-write registers these are. Recovery of lost memory (crash vectors): Michael,
//! Ports, Sharma and Szekeres, "Recovering shared objects without stable storage", DISC 2017.
//!
//! Every change of a key is decided in a *slot*. A replica keeps the state of the last slot that
//! it knows to be decided, and its promise and vote for the slot behind. Slots are decided one
//! after the other: no replica votes in a slot before it has committed the one before.
//!
//! A proposer computes the next state from the committed one. It proposes the slot (phase 1) and
//! has a majority accept the state (phase 2). Then it answers its clients and tells all replicas to
//! commit. That is two round trips and `5(n-1)` frames. There are no fast paths: it is the protocol
//! that the others are compared with.
//!
//! Their words: round -> slot, propose / prepare -> propose, accept -> accept, commit -> commit,
//! log-too-high -> `SlotHigh`, log-too-low -> `SlotLow`. Registry of read-modify-writes ->
//! [`crate::toolkit::state::Registry`].
//!
//! | message | answer | meaning |
//! |---|---|---|
//! | `Propose` | `Promise`, `HigherSeen`, `SlotLow`, `SlotHigh` | phase 1 of a slot |
//! | `Accept` | `Accepted`, the same | phase 2 |
//! | `Commit`, `CommitThin` | (`Committed`) | the slot is decided; thin: as you voted |
//!
//! Reads, pages, recovery and the dispatch of time are those of [`crate::toolkit::proposers`].
//!
//! # Commands
//! Commands that arrive while a slot is in progress wait, and are one proposal together. Reads ask
//! a majority for its registers, and change none ([`reports`]). A command without effect is
//! answered after phase 1. If a majority promised and none of it has voted, the committed state is
//! the newest.
//!
//! # Exactly once
//! A proposer learns the fate of its attempt from the decided state itself: the registry in it
//! holds the last operation of each node. An attempt keeps its state under all ballots of its slot.
//! Once the slot is decided, the attempt is done or dead for ever. Only then its commands run again
//! on the next slot.
//!
//! # Expiry
//! A deadline is a part of the state. Each replica counts in its own uptime from the first state
//! with that deadline that it voted for or committed. A key expires when a majority finds that very
//! deadline over: in the promises of a phase 1, or in the reports of a read. An ordinary proposal
//! then leaves a tombstone. Each replica asks once its own count is over: that of the proposer that
//! set the deadline first, the others in turn.
//!
//! # Invariants
//! 1. One state per slot and ballot. Ballots name the process start that minted them, and one
//!    counter mints all ballots of a process.
//! 2. `accepted.ballot <= promised`, and a vote is for the slot behind the committed one.
//! 3. A reply leaves once the register that it reveals is durable. A commit need not be: the votes
//!    that decided it are.
//! 4. A forgotten register answers no request until it is recovered from a majority of *others*. If
//!    one of them has voted in the next slot, that slot is decided first.
//! 5. An operation is answered by a phase that began after it, or by its own proposal.
//!
//! # Departures
//! - The registry is a part of the key's state and holds nodes, not sessions. Odyssey has one array
//!   per replica, of sessions with one operation in progress. Here a node has one attempt per key.
//!   One array per replica would be stored with every commit.
//! - The client is answered when its accept has a majority, so a read looks at votes, too.
//!   [`Waiting`] answers when a majority knows the commit, for comparison. \[corrections L2, Y5]
//! - A replica that lacks the slot before gets it with the proposal, instead of a repeated commit.
//! - Tombstones stay for ever. A replica without the register would vote again in its first slots.
//!   Collection needs floors per shard, which slots that start at 1 cannot have.
//! - `ONCE` and transactions are refused. A value is at most half as long as elsewhere, since a
//!   register holds two while a slot is in progress.
//!
//! Start reading at `Machine::next_phase`.

mod acceptor;
pub mod message;
mod proposer;
pub mod register;
pub mod reports;
pub mod rounds;

use types::Key;

pub use message::{Body, Message};
pub use register::Register;
use rounds::{Machine, Phase, Round, Slots};

use crate::effects::Violation;
use crate::protocol::{Consistency, Context, Env, Event, Properties, Protocol, Stats};
use crate::register_cache::{RegisterCache, Weight};
use crate::replicas::Replicas;
use crate::toolkit::no_meta::NoMeta;
use crate::toolkit::state::{slot_of, weight};

/// One instance. `WAITS`: clients are answered when a majority knows the commit.
#[derive(Debug)]
pub struct ClassicPaxos<const WAITS: bool = false> {
    machine: Machine,
}

/// The same under rule Y5.
pub type Waiting = ClassicPaxos<true>;

impl<const WAITS: bool> Protocol for ClassicPaxos<WAITS> {
    const NAME: &'static str = if WAITS { "classic-paxos-y5" } else { "classic-paxos" };
    const PROPERTIES: Properties = Properties {
        consistency: Consistency::Linearizable,
        read_modify_write: true,
        total_order: false,
        keeps_log: false,
        uncommitted_reads: false,
        needs_config: false,
        needs_lease: false,
        locks: false,
    };

    type Message = Message;
    type Record = Register;
    type Meta = NoMeta;

    fn open(env: Env) -> Self {
        ClassicPaxos { machine: Machine::new(env, Slots { waits: WAITS, name: Self::NAME }) }
    }

    fn on(&mut self, cx: &mut Context<'_, Self>, event: Event<Self>) {
        self.machine.on(cx, event);
    }

    fn weight(key: &Key, register: &Register) -> Weight {
        weight(key, &register.latest())
    }

    fn check(
        &self,
        cache: &RegisterCache<Register>,
        _replicas: Replicas<'_>,
    ) -> Result<(), Violation> {
        for (key, register) in cache.records() {
            let violation = |rule| Violation(format!("classic-paxos: {key:?}: {rule}"));
            register.check().map_err(violation)?;
        }
        for active in self.machine.actives() {
            if let Phase::Asking(Round::Accepting(it)) = &active.phase
                && it.state.slot != slot_of(&it.base) + 1
            {
                let key = &active.key;
                return Err(Violation(format!("classic-paxos: {key:?} skips a slot")));
            }
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.machine.is_idle()
    }

    fn stats(&self, stats: &mut Stats) {
        self.machine.stats(stats);
    }
}
