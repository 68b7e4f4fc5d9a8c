//! CASPaxos: a replicated state machine per key without a log and without a leader.
//!
//! Source: Rystsov, "CASPaxos: replicated state machines without logs", 2018. Recovery of lost
//! memory (crash vectors): Michael, Ports, Sharma and Szekeres, "Recovering shared objects without
//! stable storage", DISC 2017.
//!
//! Each key is a register of single-decree Paxos that never ends. A proposer asks a majority for
//! promises (phase 1) and learns the state with the highest ballot. It applies its commands to that
//! state, and has a majority accept the result (phase 2). The next proposer continues from there.
//!
//! A vote also promises the proposer's next ballot. So a proposer that changes a key again skips
//! phase 1 and pays one round trip, until another proposer takes over.
//!
//! Their words: change function -> a batch of commands, acceptor's tuple -> [`Register`], ballot ->
//! [`crate::toolkit::stamp::Stamp`].
//!
//! | message | answer | meaning |
//! |---|---|---|
//! | `Prepare` | `State`, `Refused` | phase 1 |
//! | `Accept` | `Accepted`, `Refused` | phase 2, and phase 1 of the next ballot |
//!
//! Reads, pages, recovery and the dispatch of time are those of [`crate::toolkit::proposers`].
//!
//! # Commands
//! Commands that arrive while a phase is in progress wait, and are one proposal together. Reads ask
//! a majority: equal ballots show a chosen state. Otherwise the reader proposes the highest state
//! again. A command without effect is answered after a phase 1 that shows its state to be chosen.
//!
//! # Exactly once
//! A proposer that is refused in phase 2 does not know the fate of its attempt. States hold the
//! last operation of each node, so a later state tells. If a phase 1 shows the state that the
//! attempt started from, the attempt is proposed again unchanged. If it shows another state without
//! the attempt, the proposer has that state chosen under its higher ballot. Then the attempt is
//! dead, and only then its commands run again.
//!
//! # Expiry
//! As in [`crate::classic_paxos`]: each replica counts in its own uptime, and a majority expires a
//! key. A key with a deadline always has a phase 1, since promises carry the countdowns.
//!
//! # Invariants
//! 1. One state per ballot. Ballots name the process start that minted them, and one counter mints
//!    all ballots of a process.
//! 2. `ballot <= promised` in each register.
//! 3. A reply leaves once the register that it reveals is durable.
//! 4. A forgotten register answers no request until it is recovered from a majority of *others*. If
//!    their votes differ, a proposal decides first.
//! 5. A granted ballot is used once, for a state computed from the one that its quorum accepted.
//! 6. An operation is answered by a phase that began after it, or by its own proposal.
//!
//! # Departures
//! - The paper returns an unknown result when phase 2 fails. Here the registry tells the result.
//! - Deleted keys leave tombstones for ever. The paper's garbage collection needs an age per
//!   proposer that all acceptors store.
//! - `ONCE` and transactions are refused.
//!
//! Start reading at `Machine::next_phase`.

mod acceptor;
mod grants;
pub mod message;
mod proposer;
pub mod register;
pub mod reports;
pub mod rounds;

use types::Key;

use grants::Grants;
pub use message::Message;
pub use register::Register;
use rounds::Machine;

use crate::effects::Violation;
use crate::protocol::{Consistency, Context, Env, Event, Properties, Protocol, Stats};
use crate::register_cache::{RegisterCache, Weight};
use crate::replicas::Replicas;
use crate::toolkit::no_meta::NoMeta;
use crate::toolkit::state::weight;

#[cfg(test)]
pub(crate) use grants::tests::{grant_of_an_expiring_key, grant_of_another_epoch};

const NAME: &str = "caspaxos";

/// One instance.
#[derive(Debug)]
pub struct CasPaxos {
    machine: Machine,
}

impl Protocol for CasPaxos {
    const NAME: &'static str = NAME;
    const PROPERTIES: Properties = Properties {
        consistency: Consistency::Linearizable,
        read_modify_write: true,
        total_order: false,
        keeps_log: false,
        needs_config: false,
        needs_lease: false,
        locks: false,
        uncommitted_reads: false,
    };

    type Message = Message;
    type Record = Register;
    type Meta = NoMeta;

    fn open(env: Env) -> Self {
        CasPaxos { machine: Machine::new(env, Grants::default()) }
    }

    fn on(&mut self, cx: &mut Context<'_, Self>, event: Event<Self>) {
        self.machine.on(cx, event);
    }

    fn weight(key: &Key, register: &Register) -> Weight {
        weight(key, &register.state)
    }

    fn check(
        &self,
        cache: &RegisterCache<Register>,
        _replicas: Replicas<'_>,
    ) -> Result<(), Violation> {
        for (key, register) in cache.records() {
            let violation = |rule| Violation(format!("caspaxos: {key:?}: {rule}"));
            register.check().map_err(violation)?;
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
