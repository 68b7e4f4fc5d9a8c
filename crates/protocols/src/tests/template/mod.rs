//! The smallest protocol: a template for others, and the example of `docs/adding-a-protocol.md`.
//!
//! Source: name the paper here, and the words of the paper that the code says differently.
//!
//! Each key is a register of Paxos. A proposer asks a majority for promises and takes the state
//! with the highest ballot. It runs its commands on that state, and a majority accepts the result.
//! Each change thus takes two round trips, and each read one.
//!
//! | message | answer | meaning |
//! |---|---|---|
//! | `Prepare` | `State`, `Refused` | phase 1 |
//! | `Accept` | `Accepted`, `Refused` | phase 2 |
//!
//! # Invariants
//! 1. One state per ballot: one counter mints all ballots of a process, and ballots name its start.
//! 2. A reply leaves once the register that it reveals is durable. `Machine::answer` sees to it.
//! 3. An attempt stays the same under all its ballots. Its commands run again only once it can
//!    never be chosen.
//!
//! Start reading at `Machine::promised`.

mod message;
mod register;

use std::sync::Arc;

use types::{Key, NodeId};

use message::{About, Body, Message};
use register::{Register, highest};

use crate::effects::Violation;
use crate::protocol::{Consistency, Context, Env, Event, Peer, Properties, Protocol, Stats};
use crate::quorum::Tally;
use crate::register_cache::{CachedRegister, RegisterCache, Weight};
use crate::replicas::Replicas;
use crate::toolkit::batch::Batch;
use crate::toolkit::no_meta::NoMeta;
use crate::toolkit::operation;
use crate::toolkit::proposers::{
    self, Counters, Kinds, Rules, change, is_over, report, settle_look,
};
use crate::toolkit::report::Reports;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, OpId, State, weight};

/// One instance.
#[derive(Debug)]
pub struct Template {
    machine: Machine,
}

impl Protocol for Template {
    const NAME: &'static str = "template";
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

    fn open(env: Env) -> Template {
        Template { machine: Machine::new(env, Plain) }
    }

    fn on(&mut self, cx: &mut Context<'_, Template>, event: Event<Template>) {
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
            let violation = |rule| Violation(format!("{}: {key:?}: {rule}", Self::NAME));
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

/// Go on here: the knowledge of an instance beyond single keys in use. A protocol without ballots
/// keeps its requests in [`crate::toolkit::lanes`].
#[derive(Debug)]
struct Plain;

type Machine = proposers::Machine<Plain>;
type Active = proposers::Active<Plain>;
type Phase = proposers::Phase<Plain>;
type Cx<'a> = proposers::Cx<'a, Plain>;
type Attempt = operation::Attempt<Basis>;

impl Kinds for Plain {
    type Report = Register;
    type Round = Round;
    type Basis = Basis;
    type Notes = ();
}

/// The facts that decide the fate of an attempt.
#[derive(Debug)]
struct Basis {
    /// The operation that made the state from which it was computed.
    base: Option<OpId>,
    /// The highest ballot under which it was proposed.
    ballot: Stamp,
}

/// Go on here: further phases.
#[derive(Debug)]
enum Round {
    Preparing { ballot: Stamp, reports: Reports<Register>, refused: Tally },
    Accepting { ballot: Stamp, state: Arc<State>, acks: Tally, refused: Tally },
}

impl proposers::Round for Round {
    type Body = Body;

    fn question(&self) -> Body {
        match self {
            Round::Preparing { ballot, .. } => Body::Prepare { ballot: *ballot },
            Round::Accepting { ballot, state, .. } => {
                Body::Accept { ballot: *ballot, state: state.clone() }
            }
        }
    }

    fn lacks(&self, replicas: Replicas<'_>, node: NodeId) -> bool {
        let (answered, refused) = match self {
            Round::Preparing { reports, refused, .. } => (&reports.tally, refused),
            Round::Accepting { acks, refused, .. } => (acks, refused),
        };
        !answered.has(replicas, node) && !refused.has(replicas, node)
    }

    fn refused(&mut self) -> Option<&mut Tally> {
        let (Round::Preparing { refused, .. } | Round::Accepting { refused, .. }) = self;
        Some(refused)
    }
}

impl Rules for Plain {
    fn name(&self) -> &'static str {
        Template::NAME
    }

    /// Go on here: a fast path begins another round.
    fn advance(machine: &mut Machine, cx: &mut Cx<'_>, active: &mut Active) {
        if active.only_reads() && active.is_wanted() {
            return machine.begin_read(cx, active);
        }
        if active.is_wanted() {
            machine.prepare(cx, active);
        }
    }

    /// A question to this replica, or an answer to its proposer.
    fn on_body(
        machine: &mut Machine,
        cx: &mut Cx<'_>,
        from: Peer,
        (id, key): (u64, &Key),
        body: Body,
    ) {
        let refused = |promised| (About::Own(Body::Refused { promised }), false);
        match body {
            Body::Prepare { ballot } => machine.answer(cx, from.node, (id, key), |_, cx| {
                match change(cx, key, |it: &mut Register, _| it.prepare(ballot)) {
                    Ok(()) => (About::State(report(cx, key)), true),
                    Err(promised) => refused(promised),
                }
            }),
            Body::Accept { ballot, state } => machine.answer(cx, from.node, (id, key), |it, cx| {
                let vote = change(cx, key, |it: &mut Register, _| it.accept(ballot, &state));
                it.watch(cx, key);
                match vote {
                    Ok(()) => (About::Own(Body::Accepted), true),
                    Err(promised) => refused(promised),
                }
            }),
            Body::Accepted => {
                machine.with_phase(cx, key, id, |it, cx, active| it.on_accepted(cx, active, from));
            }
            Body::Refused { promised } => machine.with_phase(cx, key, id, |it, cx, active| {
                it.on_refused(cx, active, from, promised);
            }),
        }
    }

    fn on_report(
        machine: &mut Machine,
        cx: &mut Cx<'_>,
        active: &mut Active,
        from: Peer,
        report: Register,
    ) {
        let Phase::Asking(Round::Preparing { ballot, reports, .. }) = &mut active.phase else {
            return;
        };
        if report.promised == *ballot {
            reports.add(cx.replicas, (from.node, from.amnesia), report);
            machine.promised(cx, active);
        }
    }

    /// Go on here: tell replicas that lag. See `caspaxos`.
    fn on_read(
        _cx: &mut Cx<'_>,
        _active: &mut Active,
        _reports: &Reports<Register>,
        _found: &Register,
    ) {
    }

    /// Go on here: counters, each with a row in the table of metrics.
    fn stats(&self, _counters: &Counters, _stats: &mut Stats) {}
}

impl Machine {
    fn prepare(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        if let CachedRegister::Present(register) = cx.cache.get(&active.key) {
            active.seen = active.seen.max(register.promised);
        }
        let ballot = self.mint(active.seen);
        active.seen = ballot;
        let (reports, refused) = Default::default();
        self.begin(cx, active, Phase::Asking(Round::Preparing { ballot, reports, refused }));
    }

    /// Goes on once a majority promised. An attempt whose fate is open comes before new commands.
    fn promised(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Phase::Asking(Round::Preparing { ballot, reports, .. }) = &active.phase else { return };
        let (ballot, counted) = (*ballot, reports.counted(cx.replicas));
        let found = highest(cx.replicas.set, counted, &reports.by_place);
        let Some((found, is_chosen)) = found else { return };
        let id = found.state.as_ref().and_then(|state| state.expiry_id());
        let (over, rest) = id.map_or((0, None), |id| reports.votes(cx.replicas, id));
        if let Some(attempt) = &mut active.attempt {
            let is_dead = is_chosen && found.ballot > attempt.basis.ballot;
            let is_from_base = op_of(&found.state) == attempt.basis.base;
            if is_done(&found.state, attempt) || !(is_dead || is_from_base) {
                // Once it is chosen under this ballot, the attempt is done or dead.
                return self.accept_found(cx, active, ballot, found.state);
            }
            if !is_dead {
                attempt.basis.ballot = ballot;
                let state = attempt.state.clone();
                return self.accept(cx, active, ballot, state);
            }
        }
        if let Some(dead) = active.attempt.take() {
            active.put_back(dead.ops);
        }
        let is_over = is_over(cx.replicas, over);
        if !is_over && active.voted.is_none() {
            self.end_look(cx, active, (id, rest));
        }
        let (batch, ops) = self.run(cx, active, &found.state, (is_over, rest));
        if batch.is_changed() {
            let basis = Basis { base: op_of(&found.state), ballot };
            let state = self.attempt(cx, active, (batch, ops), basis);
            return self.accept(cx, active, ballot, state);
        }
        if !is_chosen {
            active.put_back(ops);
            return self.accept_found(cx, active, ballot, found.state);
        }
        active.phase = Phase::Idle;
        (active.help, active.tries) = (false, 0);
        self.answer_unchanged(cx, active, ops);
        self.recovered(cx, active, found);
    }

    /// Has a state chosen as it is. A key without one gets a tombstone.
    fn accept_found(&mut self, cx: &mut Cx<'_>, active: &mut Active, ballot: Stamp, found: Base) {
        let state = match &found {
            Some(state) => state.clone(),
            None => self.finish(cx, Batch::on(&found, None)),
        };
        self.accept(cx, active, ballot, state);
    }

    fn accept(&mut self, cx: &mut Cx<'_>, active: &mut Active, ballot: Stamp, state: Arc<State>) {
        let (acks, refused) = Default::default();
        let round = Round::Accepting { ballot, state, acks, refused };
        self.continue_with(cx, active, Phase::Asking(round));
    }

    /// A majority accepted: the state is chosen, and the fate of the attempt with it.
    fn on_accepted(&mut self, cx: &mut Cx<'_>, active: &mut Active, from: Peer) {
        let Phase::Asking(Round::Accepting { ballot, state, acks, .. }) = &mut active.phase else {
            return;
        };
        acks.add(cx.replicas, from.node, from.amnesia);
        if !cx.replicas.is_quorum(acks) {
            return;
        }
        let found = Register { promised: *ballot, ballot: *ballot, state: Some(state.clone()) };
        active.phase = Phase::Idle;
        (active.help, active.tries) = (false, 0);
        match active.attempt.take() {
            Some(attempt) if is_done(&found.state, &attempt) => {
                settle_look(active, &attempt.state);
                for (operation, outcome) in attempt.ops {
                    cx.fx.reply(operation.tag, outcome);
                }
            }
            Some(dead) => active.put_back(dead.ops),
            None => {}
        }
        self.recovered(cx, active, found);
    }
}

/// True if the state is the attempt, or was computed from it.
fn is_done(state: &Base, attempt: &Attempt) -> bool {
    state.as_ref().is_some_and(|state| state.done.has(attempt.op()))
}

/// The operation that made a state names it.
fn op_of(base: &Base) -> Option<OpId> {
    base.as_ref().map(|state| state.op)
}
