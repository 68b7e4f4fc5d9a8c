//! One run: a world, its clients and its faults, in two acts.
//!
//! The first act has faults, with every safety check. Then everything heals.
//! Outstanding requests must complete within a bound, replicas must agree, and no garbage may
//! remain.

mod config;
mod healing;
mod media_faults;
mod rest;
mod snapshots;

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use base::{Nanos, Prng};
use checker::model::kv::{KvInput, KvOutput};
use commands::Interpreter;
use node::registry;
use protocols::mutation::{self, Mutation};
use protocols::rmwpaxos::RmwPaxos;
use protocols::{Consistency, Protocol};
use types::Outcome;

pub use self::config::{Misuse, SimConfig, validate};
use crate::clients::{Clients, Ended};
use crate::cuts::Cuts;
use crate::faults::{Fault, FaultSet};
use crate::injector::{Casualties, Injector};
use crate::invariants;
use crate::judge;
use crate::medium::{MediumConfig, MediumKind};
use crate::profile::{Given, Profile, Speech};
use crate::resp_connections;
use crate::store::Durability;
use crate::trace::Trace;
use crate::workload::mix::Mix;
use crate::workload::operation::{Input, Output};
use crate::workload::script::Verb;
use crate::workload::update::SimUpdate;
use crate::world::groups::timing;
use crate::world::{Happened, Wake, World, WorldConfig, WorldCounts};

const MILLI: u64 = 1_000_000;
/// Faults stop after this long even if operations are left.
const FAULTS_MAX: u64 = 20_000 * MILLI;
/// No clock is slower than real time by this factor.
const SLOWEST: u64 = 4;
/// After healing, everything outstanding ends within the request timeout and this.
const SLACK: u64 = 2_000 * MILLI;
/// After that, everything is idle and recovered within this, and lines under `ONCE` are forgotten.
const IDLE_MAX: u64 = 240_000 * MILLI;
/// A replica looks at a lock or record for five minutes of its clock after it has found it.
const LINGER_MAX: u64 = 2 * SLOWEST * 300_000 * MILLI;
/// Reads of one key through one node after healing, at most.
const FINAL_TRIES: usize = 20;
/// Events of one run. A run that needs more does not terminate.
const EVENTS_MAX: u64 = 50_000_000;

const FAULTS_DUE: Wake = Wake(u64::MAX);
const LOOK: Wake = Wake(u64::MAX - 1);

/// A run without a violation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunReport {
    /// Operations of clients, final reads included.
    pub ops: u64,
    pub returned: u64,
    pub failed: u64,
    /// Transmissions under `ONCE` that did not run.
    pub refused: u64,
    pub unknown: u64,
    /// Keys whose history was too hard to decide.
    pub undecided: u64,
    /// Faults took the last whole copy of the group: it stands still, as it must.
    pub is_lost: bool,
    pub counts: WorldCounts,
    pub faults: Vec<(Fault, u64)>,
    /// Virtual nanoseconds.
    pub span: u64,
    /// Digest of all results of clients; equal for equal seeds.
    pub digest: u64,
}

/// A run with a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: String,
    /// The key it is about, if it is about one.
    pub key: Option<usize>,
    /// When it showed, if that was long before the end of the run. True nanoseconds.
    pub until: Option<u64>,
    /// The last messages concerning the key; filled in by [`replay`].
    pub chart: Vec<String>,
    pub replay_line: String,
    /// Events of the world until it was noticed.
    pub events: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.chart {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "{}", self.reason)?;
        write!(f, "{}", self.replay_line)
    }
}

/// Runs one seed.
///
/// # Errors
/// The failure, with the line that replays it and without a chart; see [`replay`].
///
/// # Panics
/// If the protocol, the mutation or the number of nodes does not exist; see [`validate`].
pub fn run(config: &SimConfig) -> Result<RunReport, Failure> {
    run_traced(config, None).map_err(|(failure, _)| *failure)
}

/// Runs a failing seed again and draws the history of its key.
#[must_use]
pub fn replay(config: &SimConfig, failure: Failure) -> Failure {
    let key = failure.key.map(|index| types::Key::new(format!("k{index}").as_bytes()));
    match run_traced(config, Some(Trace::new(key, failure.until))) {
        Err((again, trace)) => {
            let chart = trace.iter().flat_map(Trace::lines).collect();
            Failure { chart, ..*again }
        }
        Ok(_) => Failure { reason: format!("{} (not on replay!)", failure.reason), ..failure },
    }
}

fn set_mutation(name: Option<&str>) {
    #[cfg(feature = "mutations")]
    {
        mutation::set(name.and_then(Mutation::by_name));
        storage::mutation::set(name.and_then(storage::mutation::Mutation::by_name));
        transactions::mutation::set(name.and_then(transactions::mutation::Mutation::by_name));
    }
    #[cfg(not(feature = "mutations"))]
    let _ = (name, mutation::is);
}

fn run_traced(
    config: &SimConfig,
    trace: Option<Trace>,
) -> Result<RunReport, (Box<Failure>, Option<Trace>)> {
    set_mutation(config.mutation.as_deref());
    let mut run = Run::new(config);
    run.world.trace = trace;
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| run.play()));
    set_mutation(None);
    let result = result.unwrap_or_else(|panic| Err(panicked(panic.as_ref()).into()));
    match result {
        Ok(()) => Ok(run.report()),
        Err(Wrong { reason, key, until }) => {
            let reason = format!("{reason}\n{:?}", run.profile);
            let replay_line = config.replay_line();
            let events = run.world.counts.events;
            let failure = Failure { reason, key, until, chart: Vec::new(), replay_line, events };
            Err((Box::new(failure), run.world.trace.take()))
        }
    }
}

/// The message of a failed assertion in the product.
fn panicked(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", said.unwrap_or("no words"))
}

/// The draws of a run of this configuration, before cuts.
///
/// # Panics
/// If the configuration does not pass [`validate`].
#[must_use]
pub fn drawn(config: &SimConfig) -> Profile {
    draw(config, &mut Prng::new(config.seed))
}

fn draw(config: &SimConfig, rng: &mut Prng) -> Profile {
    let registration = registry::find(&config.protocol).expect("a protocol that exists");
    let properties = registration.properties;
    // Findings after media faults must be due to them.
    let leaves_media =
        |fault: &Fault| config.media_faults == 0 || !matches!(fault, Fault::Rot | Fault::RollBack);
    let given = Given {
        nodes: config.nodes,
        replicas: config.replicas,
        ops: config.ops,
        faults: config.faults.iter().filter(leaves_media).collect(),
        read_modify_write: properties.read_modify_write,
        orders_reads: properties.consistency == Consistency::SequentialReads,
        tells_changes: registration.name == RmwPaxos::NAME,
        spreads: config::knows_outsiders(registration) && config.media_faults == 0,
        total_order: properties.total_order,
        needs_config: properties.needs_config,
        durability: config.durability,
        medium: config.medium.or_else(|| media_faults::medium_for(config)),
        speech: config.speech,
        mix: config.mix,
        distance: config.distance.map(|it| it * MILLI),
    };
    let mut profile = Profile::draw(rng, &given);
    config.cuts.apply(&mut profile);
    if config.media_faults > 0 {
        profile.scrub_soon();
    }
    profile
}

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub reason: String,
    pub key: Option<usize>,
    /// When it showed, if that was long before.
    pub until: Option<u64>,
}

impl Wrong {
    /// Assigns it to a key.
    #[must_use]
    pub fn of_key(key: usize, reason: String) -> Wrong {
        Wrong { reason, key: Some(key), until: None }
    }
}

impl From<String> for Wrong {
    fn from(reason: String) -> Wrong {
        let key = key_named(&reason);
        Wrong { reason, key, until: None }
    }
}

/// The index of the key that a line names in quotes, as the invariants of protocols do.
fn key_named(reason: &str) -> Option<usize> {
    let (_, rest) = reason.split_once("\"k")?;
    rest.split_once('"')?.0.parse().ok()
}

struct Run {
    world: World,
    clients: Clients,
    injector: Injector,
    profile: Profile,
    /// The protocol's promise.
    consistency: Consistency,
    protocol: &'static str,
    rng: Prng,
    ops_left: u64,
    fault_wake: u64,
    undecided: u64,
    is_lost: bool,
    media_faults: u64,
    /// The answer to the last listing.
    listed: Option<Outcome>,
    /// Operations left when the media take a snapshot.
    remember_at: u64,
}

impl Run {
    fn new(config: &SimConfig) -> Run {
        let registration = registry::find(&config.protocol).expect("a protocol that exists");
        let properties = registration.properties;
        let mut rng = Prng::new(config.seed);
        let profile = draw(config, &mut rng);
        if config.cuts.salt > 0 {
            rng = Prng::new(rng.next_u64() ^ config.cuts.salt);
        }
        let mut world = World::new(WorldConfig {
            protocol: registration.name,
            nodes: config.nodes,
            replicas: profile.replicas,
            group_size: profile.group_size,
            workers: profile.workers,
            has_transactions: profile.has_transactions(),
            medium: MediumConfig {
                kind: profile.medium,
                durability: profile.durability,
                slow_read_ppm: profile.slow_read_ppm,
                shape: profile.shape,
                rest_after: profile.rest_after,
                power_fails: profile.faults.has(Fault::Torn),
            },
            seed: rng.next_u64(),
            request_timeout: profile.request_timeout,
            cells_max: profile.cells_max,
            scrub: profile.scrub,
            update: match profile.speech {
                Speech::Direct => Arc::new(SimUpdate),
                Speech::Resp => {
                    let scripts = Some(scripts::ENGINE);
                    Arc::new(Interpreter { scripts, ..Interpreter::default() })
                }
            },
            links: profile.links.clone(),
            turn_max: profile.turn_max,
            flush_min: profile.flush_min,
            flush_max: profile.flush_max,
            clocks: profile.clocks.clone(),
            timing: timing(Nanos(profile.lease)),
            late_ppm: profile.late_ppm,
        });
        world.watchers = invariants::watchers(registration.name);
        let mut clients = Clients::new(
            profile.clients,
            config.nodes,
            profile.pipeline,
            &profile.keys,
            profile.ttl_max,
            rng.fork(),
        );
        clients.retries.habits = profile.habits;
        clients.patience = profile.patience;
        clients.order_reads(profile.ordered_ppm);
        if profile.speech == Speech::Resp {
            clients.speak_resp(config.nodes);
        }
        let injector = Injector::new(&profile, config.cuts.faults, rng.fork());
        let consistency = properties.consistency;
        Run {
            world,
            clients,
            injector,
            profile,
            consistency,
            protocol: registration.name,
            rng,
            ops_left: config.cuts.ops.unwrap_or(config.ops),
            fault_wake: 0,
            undecided: 0,
            is_lost: false,
            media_faults: config.media_faults,
            listed: None,
            remember_at: config.ops / 2,
        }
    }

    fn play(&mut self) -> Result<(), Wrong> {
        self.world.start_all();
        for client in 0..self.profile.clients {
            self.plan_client(client);
        }
        self.plan_faults();
        self.act_of_faults()?;
        self.injector.stop(&mut self.world);
        if self.media_faults > 0 {
            self.act_of_media_faults()?;
        } else if let Some((node, text)) = self.warning_of_age() {
            return Err(format!("n{} was not reverted, yet it warns: {text}", node + 1).into());
        }
        self.act_of_healing()?;
        let in_order = self.clients.check_session_order();
        in_order.map_err(|(key, reason)| Wrong::of_key(key, reason))?;
        self.undecided = match self.consistency {
            Consistency::Linearizable => {
                judge::linearizable(&self.clients, self.profile.majority_rate_ppm)?
            }
            Consistency::SequentialReads => {
                judge::sequential(&self.clients, self.profile.majority_rate_ppm)?
            }
        };
        Ok(())
    }

    fn act_of_faults(&mut self) -> Result<(), Wrong> {
        while (self.ops_left > 0 || self.clients.outstanding > 0) && self.world.now() < FAULTS_MAX {
            if self.step()?.is_none() {
                return Err("no event is left".to_string().into());
            }
        }
        Ok(())
    }

    /// Runs until the condition holds or `bound` is reached. Evaluates the condition at growing
    /// intervals.
    fn run_until(&mut self, bound: u64, until: impl Fn(&Run) -> bool) -> Result<(), Wrong> {
        let mut pause = MILLI / 8;
        while !until(self) && self.world.now() < bound {
            let look_at = (self.world.now() + pause).min(bound);
            self.world.wake(look_at, LOOK);
            while self.world.now() < look_at {
                if self.step()?.is_none() {
                    return Ok(());
                }
            }
            pause = (pause * 2).min(50 * MILLI);
        }
        Ok(())
    }

    fn run_for(&mut self, span: u64) -> Result<(), Wrong> {
        let end = self.world.now() + span;
        self.world.wake(end, LOOK);
        while self.world.now() < end && self.step()?.is_some() {}
        Ok(())
    }

    /// Runs one event and its consequences.
    fn step(&mut self) -> Result<Option<Happened>, Wrong> {
        let Some(happened) = self.world.run_next() else { return Ok(None) };
        if let Some(reason) = self.world.failure.take() {
            return Err(reason.into());
        }
        if self.world.counts.events > EVENTS_MAX {
            return Err(format!("more than {EVENTS_MAX} events").into());
        }
        let mut replies = std::mem::take(&mut self.world.replies);
        for reply in replies.drain(..) {
            if reply.tag.0 >= snapshots::LISTINGS {
                self.listed = Some(reply.outcome);
                continue;
            }
            let freed = self.clients.on_reply(&mut self.world, reply)?;
            if let Some(client) = freed {
                self.plan_client(client);
            }
        }
        self.world.replies = replies;
        self.injector.rests = self.clients.want_rest();
        match happened {
            Happened::Wake(FAULTS_DUE) => {
                if self.world.now() == self.fault_wake {
                    let done = self.injector.run_due(&mut self.world);
                    self.after_faults(done);
                    self.plan_faults();
                }
            }
            Happened::Wake(LOOK) | Happened::Other => {}
            Happened::Wake(Wake(line)) if line >= resp_connections::WAKES => {
                for client in
                    self.clients.on_line(&mut self.world, line - resp_connections::WAKES)?
                {
                    self.plan_client(client);
                }
            }
            Happened::Wake(Wake(client)) => self.on_client(client as usize),
            Happened::Turn { node, spoke: true } => {
                let done = self.injector.after_turn(&mut self.world, node);
                if !done.crashed.is_empty() {
                    self.after_faults(done);
                    self.plan_faults();
                }
            }
            Happened::Turn { .. } => {}
            Happened::Stopped { node } => {
                let done = self.injector.after_failure(&mut self.world, node);
                self.after_faults(done);
                self.plan_faults();
            }
        }
        Ok(Some(happened))
    }

    fn plan_client(&mut self, client: usize) {
        if self.ops_left > 0 {
            let mut at = self.world.now() + self.rng.between(1, self.profile.think_max);
            if self.profile.rest_ppm > 0 && self.rng.chance_ppm(self.profile.rest_ppm) {
                at += self.rng.below(2 * self.profile.habits.window.0 * MILLI);
            }
            self.world.wake(at, Wake(client as u64));
        }
    }

    fn on_client(&mut self, client: usize) {
        if self.ops_left == 0 {
            return;
        }
        if self.clients.issue(&mut self.world, client) {
            self.ops_left -= 1;
            if self.media_faults > 0 && self.ops_left == self.remember_at {
                self.remember_media();
            }
            // Pipelined clients go on without waiting.
            if self.profile.pipeline > 1 {
                self.plan_client(client);
            }
        } else if self.clients.is_free(client) {
            self.world.wake(self.world.now() + MILLI, Wake(client as u64));
        }
    }

    fn plan_faults(&mut self) {
        if let Some(at) = self.injector.next_at() {
            self.fault_wake = at.max(self.world.now());
            self.world.wake(self.fault_wake, FAULTS_DUE);
        }
    }

    fn after_faults(&mut self, done: Casualties) {
        for node in done.crashed {
            for client in self.clients.on_crash(&self.world, node) {
                self.plan_client(client);
            }
        }
    }

    fn report(&self) -> RunReport {
        let mut report = RunReport {
            ops: self.clients.ops.len() as u64,
            undecided: self.undecided,
            is_lost: self.is_lost,
            counts: self.world.counts,
            faults: self.injector.counts.clone(),
            span: self.world.now(),
            ..RunReport::default()
        };
        let mut seen = Vec::new();
        for op in &self.clients.ops {
            match &op.ended {
                Some((_, Ended::Returned(_))) => report.returned += 1,
                Some((_, Ended::Failed)) => report.failed += 1,
                Some((_, Ended::Refused)) => report.refused += 1,
                Some((_, Ended::Unknown)) | None => report.unknown += 1,
            }
            seen.extend_from_slice(&op.invoked.to_le_bytes());
            seen.extend_from_slice(format!("{:?}", op.ended).as_bytes());
            report.digest = base::checksum::checksum(report.digest, &seen);
            seen.clear();
        }
        report
    }
}
