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
//! | `Read` | `State` | the register of a replica |
//! | `Propose` | `Promise`, `HigherSeen`, `SlotLow`, `SlotHigh` | phase 1 of a slot |
//! | `Accept` | `Accepted`, the same | phase 2 |
//! | `Commit`, `CommitThin` | (`Committed`) | the slot is decided; thin: as you voted |
//! | `List` | `Page` | a part of a shard, for listings and recovery |
//! | `Recover`, `Recovered`, `Expire` | | to this node itself |
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
//! then leaves a tombstone. The proposer that set a deadline asks once it is over.
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
//! Start reading at `Machine::advance`.

mod acceptor;
pub mod active;
mod explain;
mod machine;
pub mod message;
mod paging;
mod proposer;
mod reading;
mod recovery;
pub mod register;
pub mod reports;
mod requests;

use types::Key;

use machine::Machine;
pub use message::{Body, Message};
pub use register::Register;

use crate::effects::Violation;
use crate::protocol::{Consistency, Context, Env, Event, Properties, Protocol, Stats};
use crate::register_cache::{RegisterCache, Weight};
use crate::replicas::Replicas;
use crate::toolkit::explainer::EXPLAINER_TICK;
use crate::toolkit::no_meta::NoMeta;
use crate::toolkit::pager::PAGER_TICK;

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
        ClassicPaxos { machine: Machine::new(env, WAITS, Self::NAME) }
    }

    fn on(&mut self, cx: &mut Context<'_, Self>, event: Event<Self>) {
        let machine = &mut self.machine;
        match event {
            Event::Request(request) => machine.on_request(cx, request),
            Event::List { tag, from_hash, limit } => {
                machine.pager.on_list(cx, tag, from_hash, limit)
            }
            Event::Explain { tag, key } => machine.explainer.on_explain(cx, tag, key),
            Event::Peer { from, message } => machine.on_message(cx, from, message),
            Event::Timer(PAGER_TICK) => machine.pager.on_tick(cx),
            Event::Timer(EXPLAINER_TICK) => machine.explainer.on_tick(cx),
            Event::Timer(_) => machine.on_tick(cx),
            Event::Scanned(scanned) => machine.pager.on_scanned(cx, scanned),
            Event::Forgotten { shard } => machine.on_forgotten(cx, shard),
            Event::Turn => machine.on_turn(cx),
            // Timers resend unanswered messages. A tally is checked against the view when it
            // decides.
            Event::PeerReset { .. }
            | Event::PeerUp { .. }
            | Event::PeerSteady { .. }
            | Event::ViewChanged
            | Event::Group(_) => {}
        }
        machine.arm(cx);
    }

    fn weight(key: &Key, register: &Register) -> Weight {
        let Some(state) = &register.committed else { return Weight::NONE };
        let of_key = |len| Weight::of_key(key.bytes().len() + len, state.expiry.is_some());
        state.value.as_ref().map_or(Weight::NONE, |value| of_key(value.len()))
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
        self.machine.check()
    }

    fn is_idle(&self) -> bool {
        self.machine.is_idle()
    }

    fn stats(&self, stats: &mut Stats) {
        self.machine.stats(stats);
    }
}
