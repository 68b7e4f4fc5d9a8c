//! RMWPaxos: one in-place consensus register per key. Replicas agree on a sequence of states. There
//! is no log and no leader.
//!
//! Sources:
//! - [RMW] Skrzypczak, Schintke and Schütt, "RMWPaxos: Fault-Tolerant In-Place Consensus
//!   Sequences".
//! - [CAS] Rystsov, "CASPaxos: Replicated State Machines without logs".
//! - [DISC17] Michael et al., "Recovering Shared Objects Without Stable Storage".
//!
//! # Rooms
//! Each uses only the rooms above it.
//! - [`record`], [`once`], [`expiry`]: states and registers, and pure functions on them.
//! - [`progress`]: operations, phases and reports. [`message`]: the messages.
//! - [`core`]: acceptor, proposer and reader, a complete and safe protocol ([`CoreAlone`]).
//!   It names the rules of safety that lie outside it. Start reading at [`core::proposer`].
//! - [`fast`]: paths shorter than two round trips with whole states. [`deletion`] and [`services`]:
//!   each has its own state and asks the core to propose, to read or to install a register.
//! - [`parts`] and this file hand each event to one module. Fast paths come first. The core tells
//!   the parts its events by [`core::hooks::Notice`].
//!
//! # Round trips
//! A read of a quiet key takes one and changes no register. A write takes two. It takes one if this
//! node won phase 1 before ([`fast::resumed`]) or agrees with another of three members
//! ([`fast::combined`]). Commands queued on a key are one proposal.
//!
//! # Words
//! - *Owner*: the node that the acceptors promised last; a hint, never a lease.
//! - *Tip*: the state after the last proposal.
//! - *Carried*: an operation found in the base of a phase 1; it succeeds with the next proposal
//!   chosen.
//!
//! | message | answer | meaning |
//! |---|---|---|
//! | `Read` | `State` | the register of an acceptor, which is not changed |
//! | `Prepare` | `Promise`, `Nack` | phase 1 |
//! | `Accept` | `Accepted`, `Nack` | phase 2; a ballot numbers its proposals `(b,1)`, `(b,2)`, … |
//! | `AcceptDelta` | `Accepted`, `Nack`, `NeedFull` | the same, as a change of the state before |
//! | `PrepareAccept` | `Accepted`, `Nack`, `NeedFull` | both phases at once, of three members |
//! | any with a ballot | `Fenced` | its incarnation is shut out: [`core::fencing`] |
//! | `Repair`, `Remove` | | a late accept; forgetting a collected tombstone |
//! | `Chosen` | | a hint that a round is chosen, batched and late |
//! | `Compare`, `Want` | `Compared`, `Repair` | range digests, compared in the background |
//! | `Older`, `OlderFloor` | | the receiver held more than it does now: its medium went back |
//! | `Forward` | `Forwarded` | commands for the owner of a contended key |
//! | `Recover`, `List` | `Recovered`, `Listed` | questions of a replica without memory |
//!
//! # Invariants
//! 1. One payload per round, for ever. Ballots name the incarnation that minted them. All minting
//!    of a shard goes through [`core::instance::Core::mint`]. `k` only grows under a ballot.
//! 2. `accepted.ballot() <= promised`. Neither ever decreases, nor does the effective promise
//!    across a restart.
//! 3. Every accept of a ballot follows promises from a crash-consistent majority and extends the
//!    highest report that counts. [`core::presence`] tells which do not. For its first proposal, an
//!    acceptor may complete that majority.
//! 4. An operation is in the chain at most once: it is attempted again only on a base without its
//!    attempts.
//! 5. A result is released only once a state that contains it is chosen. A result without effect
//!    waits until the state that it was computed from is chosen and every attempt of it is
//!    excluded.
//! 6. A command that is safe to repeat is in the chain at most once within its window. The state
//!    remembers it ([`once`]), and only a majority forgets it ([`once::window`]).
//! 7. A reply leaves only when the state that it reflects is durable here.
//!
//! # Departures from [RMW]
//! An inconsistent phase 1 adopts the highest report and proposes on top of it at once [CAS 2.2].
//! That takes two round trips under contention instead of up to five. Exactly-once rests on the
//! ring of birth ballots inside the state, not on notifications.

mod context;
mod core;
mod deletion;
mod expiry;
mod fast;
mod message;
mod once;
mod parts;
mod progress;
mod record;
mod services;
#[cfg(test)]
mod tests;

use types::{Incarnation, Key, Outcome, Shard, Tag};

use crate::effects::{TimerId, Violation};
use crate::protocol::{
    Consistency, Context, Env, Event, Peer, Properties, Protocol, Request, Stats,
};
use crate::register_cache::{RegisterCache, Weight};
use crate::replicas::Replicas;

pub use self::record::state::{Expiry, ExpiryId, Ring, State, StateFields};
pub use message::delta::Delta;
pub use message::{
    BUCKETS, Digests, Forward, Held, Listing, ListingEntry, Message, Payload, Report, Verdict,
};
pub use once::starts::Starts;
pub use once::table::EntryId;
pub use record::register::{Countdown, Register, ShardMeta, Started};

use self::context::Cx;
use self::core::hooks::{Hooks, NoParts};
use self::core::instance::Core;
use self::parts::Parts;
use self::progress::active::Active;
use self::progress::retry_timer::{BACK_OFF, RETRY};

/// The default protocol.
pub type RmwPaxos = Instance<false>;

/// The core without the other parts. Tests run it to show that it is complete and safe by itself.
pub type CoreAlone = Instance<true>;

/// One instance, with or without the parts around its core.
#[derive(Debug)]
pub struct Instance<const CORE_ALONE: bool> {
    core: Core,
    parts: Parts,
    no_parts: NoParts,
    #[cfg(test)]
    core_alone: bool,
}

impl<const CORE_ALONE: bool> Protocol for Instance<CORE_ALONE> {
    const NAME: &'static str = "rmwpaxos";
    const PROPERTIES: Properties = Properties {
        consistency: Consistency::Linearizable,
        read_modify_write: true,
        total_order: false,
        needs_config: false,
        needs_lease: false,
        locks: true,
        keeps_log: false,
        uncommitted_reads: false,
    };

    type Message = Message;
    type Record = Register;
    type Meta = ShardMeta;

    fn open(env: Env) -> Self {
        Instance {
            parts: Parts::open(&env),
            core: Core::open(env),
            no_parts: NoParts,
            #[cfg(test)]
            core_alone: false,
        }
    }

    fn on(&mut self, cx: &mut Context<'_, Self>, event: Event<Self>) {
        self.core.begin_step(cx.now);
        if !self.is_core_alone() {
            self.parts.anti_entropy.start(&self.core, cx);
        }
        match event {
            Event::Request(request) => self.on_request(cx, request),
            Event::Peer { from, message } => self.on_message(cx, from, message),
            Event::Timer(timer) => self.on_timer(cx, timer),
            Event::Turn => self.on_turn(cx),
            Event::PeerReset { node } => self.core.on_peer_reset(cx, node),
            // An amnesia count grew. Decisions count answers against the counts known then, so no
            // answer has to be corrected. The next resend asks for missing ones.
            Event::ViewChanged | Event::Group(_) => {}
            Event::PeerUp { node } if self.is_core_alone() => self.core.on_peer_up(cx, node),
            Event::PeerUp { node } => {
                self.parts.on_peer_up(&self.core, cx, node);
                self.core.on_peer_up(cx, node);
                self.parts.resend_to(&mut self.core, cx, node);
            }
            Event::List { tag, .. } | Event::Explain { tag, .. } if self.is_core_alone() => {
                self.core.reply(cx, tag, Outcome::NoQuorum);
            }
            Event::PeerSteady { .. } | Event::Scanned(_) | Event::Forgotten { .. }
                if self.is_core_alone() => {}
            Event::List { tag, from_hash, limit } => self.on_list(cx, tag, from_hash, limit),
            Event::Explain { tag, key } => self.on_explain(cx, tag, key),
            Event::PeerSteady { node } => self.parts.on_peer_steady(cx, node),
            Event::Scanned(scanned) => self.parts.on_scanned(&mut self.core, cx, scanned),
            Event::Forgotten { shard } => self.parts.on_forgotten(&mut self.core, cx, shard),
        }
        self.tell_parts(cx);
    }

    fn on_meta_loaded(&mut self, cx: &mut Context<'_, Self>, shard: Shard) {
        self.core.on_meta_loaded(cx, shard);
        if !self.is_core_alone() {
            self.parts.on_meta_loaded(&mut self.core, cx, shard);
        }
    }

    fn on_meta_lost(&mut self, cx: &mut Context<'_, Self>, shard: Shard) {
        self.core.on_meta_lost(cx, shard);
    }

    fn renew(&mut self, incarnation: Incarnation) {
        self.core.renew(incarnation);
    }

    fn look(register: &Register) -> bool {
        register.chosen | register.state.as_ref().is_some_and(State::has_expiry)
    }

    fn copy(register: &Register) -> (Register, usize) {
        let len = register.state.as_ref().map_or(0, |state| state.bytes().len());
        (register.stored(), len)
    }

    fn weight(key: &Key, register: &Register) -> Weight {
        let Some(state) = &register.state else { return Weight::NONE };
        let len =
            |value: &[u8]| Weight::of_key(key.bytes().len() + value.len(), state.has_expiry());
        state.value().map_or(Weight::NONE, len)
    }

    fn check(
        &self,
        cache: &RegisterCache<Register>,
        _replicas: Replicas<'_>,
    ) -> Result<(), Violation> {
        self.core.check(cache)
    }

    fn is_idle(&self) -> bool {
        self.core.actives().is_empty() && (self.is_core_alone() || self.parts.is_idle())
    }

    fn stats(&self, stats: &mut Stats) {
        self.core.stats(stats);
        self.parts.stats(stats);
    }
}

impl<const CORE_ALONE: bool> Instance<CORE_ALONE> {
    /// True if fast paths, deletion and services are switched off.
    fn is_core_alone(&self) -> bool {
        #[cfg(test)]
        return CORE_ALONE || self.core_alone;
        #[cfg(not(test))]
        CORE_ALONE
    }

    fn on_request(&mut self, cx: &mut Cx<'_>, request: Request) {
        if !self.is_core_alone() {
            self.parts.recovery.begin_if_lost(&mut self.core, cx, &request.key);
        }
        self.core.on_request(cx, request);
    }

    fn on_list(&mut self, cx: &mut Cx<'_>, tag: Tag, from_hash: u64, limit: usize) {
        self.parts.lists.on_request(&mut self.core, cx, tag, from_hash, limit);
    }

    fn on_explain(&mut self, cx: &mut Cx<'_>, tag: Tag, key: Key) {
        self.parts.explanations.on_request(&mut self.core, cx, tag, key);
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, from: Peer, message: Message) {
        // A node that is no replica has no acceptor.
        if message.is_for_replicas() && !cx.replicas.set.has_me() {
            return;
        }
        if !self.is_core_alone() {
            if self.parts.intercept(&mut self.core, cx, from, &message) {
                return;
            }
            if !message.is_for_core() {
                return self.parts.on_message(&mut self.core, cx, from, message);
            }
        }
        let (core, hooks) = self.core_and_hooks();
        core.on_message(cx, from, message, hooks);
    }

    fn core_and_hooks(&mut self) -> (&mut Core, &mut dyn Hooks) {
        match self.is_core_alone() {
            true => (&mut self.core, &mut self.no_parts),
            false => (&mut self.core, &mut self.parts),
        }
    }

    /// Continues with every key that was touched in this turn.
    fn on_turn(&mut self, cx: &mut Cx<'_>) {
        let mut touched = self.core.take_touched();
        for key in touched.drain(..) {
            let Some(mut active) = self.core.find_active(cx, &key) else { continue };
            active.touched = false;
            self.go_on(cx, &mut active);
            self.core.put_or_retire(cx, active);
            self.tell_parts(cx);
        }
        self.core.give_back_touched(touched);
    }

    fn go_on(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        if active.is_idle() {
            self.core.step_aside(cx, active);
        }
        if active.is_idle() && !active.queue.is_empty() {
            if self.is_core_alone() {
                self.core.lead(cx, active, &mut self.no_parts);
            } else if !self.parts.lead(&mut self.core, cx, active) {
                self.core.prepare(cx, active, &mut self.parts);
            }
        }
        let (core, hooks) = self.core_and_hooks();
        core.advance(cx, active, hooks);
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>, timer: TimerId) {
        match timer {
            RETRY => self.on_retry_timer(cx),
            BACK_OFF => {
                while let Some(mut active) = self.core.next_backed_off(cx) {
                    self.lose_patience(cx, &mut active);
                    self.core.put_active(active);
                }
            }
            _ => self.parts.on_timer(&mut self.core, cx, timer),
        }
    }

    fn on_retry_timer(&mut self, cx: &mut Cx<'_>) {
        for key in self.core.due_keys(cx.now) {
            let mut active = self.core.take_active(cx, &key);
            self.core.end_overdue(cx, &mut active);
            self.lose_patience(cx, &mut active);
            if !self.is_core_alone() {
                self.parts.combined.resend(&self.core, cx, &mut active);
            }
            let (core, hooks) = self.core_and_hooks();
            core.resend(cx, &mut active, hooks);
            self.core.put_active(active);
        }
        if !self.is_core_alone() {
            self.parts.on_timer(&mut self.core, cx, RETRY);
        }
        if !self.core.actives().is_empty() {
            self.core.arm_retries(cx);
        }
    }

    fn lose_patience(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        if !self.is_core_alone() {
            self.parts.combined.lose_patience(cx, active);
        }
        self.core.lose_patience(cx, active);
    }

    /// Tells the parts of new events in the core.
    fn tell_parts(&mut self, cx: &mut Cx<'_>) {
        if !self.core.has_notices() {
            return;
        }
        let mut notices = self.core.take_notices();
        for notice in notices.drain(..) {
            if !self.is_core_alone() {
                self.parts.on_notice(cx, notice);
            }
        }
        self.core.give_back_notices(notices);
    }
}
