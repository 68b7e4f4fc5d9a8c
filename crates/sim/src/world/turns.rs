//! Runs a worker's turn and carries out its effects.

use transactions::{Computation, Stop};
use types::Shard;

use super::*;

/// A computation takes at most this, in nanoseconds: others push its transaction meanwhile.
const COMPUTATION_MAX: u64 = 200_000_000;

/// Computations of the simulator end by themselves.
#[derive(Debug)]
struct Endless;

impl Stop for Endless {
    fn reason(&self) -> Option<&'static str> {
        None
    }
}

impl World {
    pub(super) fn plan_turn(&mut self, node: usize, worker: usize, at: u64) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let start = process.start;
        let worker_state = &mut process.workers_state[worker];
        let at = at.max(worker_state.free_at).max(process.paused_until).max(self.now);
        if at < worker_state.turn_at {
            worker_state.turn_at = at;
            self.schedule(at, PlannedEvent::Turn { node, worker, start });
        }
    }

    pub(super) fn on_turn(&mut self, node: usize, worker: usize, start: u64) -> Happened {
        let now = self.now;
        if !self.is_start(node, start) {
            return Happened::Other;
        }
        let paces = self.paces_at(node);
        let it = &mut self.nodes[node];
        let Some(process) = &mut it.process else { return Happened::Other };
        if process.workers_state[worker].turn_at != now {
            return Happened::Other;
        }
        let worker_state = &mut process.workers_state[worker];
        worker_state.turn_at = u64::MAX;
        if process.paused_until > now {
            self.plan_turn(node, worker, now);
            return Happened::Other;
        }
        self.counts.turns += 1;
        worker_state.free_at = now + 1 + self.rng.below(self.config.turn_max);
        let (local, unix) = (it.clock.local(now), it.clock.unix(now));
        let mut outputs = std::mem::take(&mut self.outputs);
        let workers = process.workers_state.len();
        let worker_state = &mut process.workers_state[worker];
        let hears_of_amnesia =
            worker_state.inbox.iter().any(|input| matches!(input, Input::Amnesia { .. }));
        for (node, pace) in paces {
            if worker_state.worker.peers().get(node).is_some_and(|member| member.pace != pace) {
                worker_state.inbox.push(Input::PeerPace { node, pace });
            }
        }
        let late = match &process.control {
            Some(_) if self.rng.chance_ppm(self.config.late_ppm) => {
                self.rng.below(late_max(&self.config.timing))
            }
            _ => 0,
        };
        if let Some(control) = &process.control {
            control.leases.set_clock(it.clock.local(now + late));
        }
        worker_state.free_at += late;
        worker_state.worker.turn(local, unix, &mut worker_state.inbox, &mut outputs);
        if let Err(violation) = worker_state.worker.check() {
            self.failure.get_or_insert(format!("n{}: {}", it.id, violation.0));
        }
        let (nodes, replicas) = (self.config.nodes, self.config.replicas);
        // A member's image may be given up in the same turn, and all its shards with it.
        let erases = self.config.needs_config();
        let is_replica = |shard: Shard| {
            let first = usize::from(shard.0) % nodes;
            !erases && (node + nodes - first) % nodes < replicas
        };
        it.model.end_turn((worker, workers), hears_of_amnesia, is_replica);
        if let Some(complaint) = it.model.complaint() {
            self.failure.get_or_insert(format!("n{}: {complaint}", it.id));
        }
        // A medium that ended its process in the middle of the turn, or failed in one before.
        let ends_now = matches!(it.medium, Medium::Pmem(_)) || outputs.failed.is_some();
        let has_failed = ends_now && it.medium.has_failed();
        if let Some(timer) = worker_state.worker.next_timer() {
            let at = it.clock.true_time(timer);
            self.plan_turn(node, worker, at);
        }
        if has_failed {
            self.outputs = Outputs::default();
            return Happened::Stopped { node };
        }
        if late > 0 {
            let outputs = Box::new(outputs);
            let event = PlannedEvent::HandOver { node, worker, start, outputs };
            self.schedule(now + late, event);
            return Happened::Turn { node, spoke: false };
        }
        let spoke = self.carry_out(node, worker, &mut outputs);
        self.outputs = outputs;
        Happened::Turn { node, spoke }
    }

    /// Carries out the effects of a turn. True when it sent a message or reply.
    pub(super) fn carry_out(&mut self, node: usize, worker: usize, out: &mut Outputs) -> bool {
        if let Some(text) = out.failed.take() {
            self.failure.get_or_insert(format!("n{} stopped: {text}", node + 1));
            *out = Outputs::default();
            return false;
        }
        self.plan_storage(node, worker);
        let spoke = !out.frames.is_empty() || !out.replies.is_empty();
        for (tag, outcome) in out.replies.drain(..) {
            if self.on_own_outcome(node, tag, &outcome) {
                continue;
            }
            self.replies.push(ClientReply { node, tag, outcome });
        }
        for (to, frame) in out.frames.drain(..) {
            self.send(node, usize::from(to.0) - 1, worker, Bytes::from(frame));
        }
        for (to, from, bytes) in out.misrouted.drain(..) {
            if let Some(process) = &mut self.nodes[node].process {
                process.workers_state[to].inbox.push(Input::Frame { from, bytes });
                self.plan_turn(node, to, self.now);
            }
        }
        for (to, input) in out.for_workers.drain(..) {
            if let Some(process) = &mut self.nodes[node].process {
                process.workers_state[to].inbox.push(input);
                self.plan_turn(node, to, self.now);
            }
        }
        for computation in out.computations.drain(..) {
            let Computation { token, program, states, clock, .. } = computation;
            let stop: Arc<dyn Stop> = Arc::new(Endless);
            let ran = program.run_long(&states, clock, &stop);
            if let Some(SimProcess { start, .. }) = self.nodes[node].process {
                let at = self.now + self.rng.between(1, COMPUTATION_MAX);
                let input = Input::Computed { token, ran };
                self.schedule(at, PlannedEvent::Computed { node, worker, start, input });
            }
        }
        if std::mem::take(&mut out.raise_amnesia) {
            self.plan_amnesia(node);
        }
        if let Some(below) = out.renew.take() {
            self.renew(node, worker, below);
        }
        if std::mem::take(&mut out.uptimes_changed) {
            let at = self.now + self.rng.between(1_000, self.config.flush_max);
            self.plan_uptimes(node, at);
        }
        self.warnings.extend(out.warnings.drain(..).map(|text| (node, text)));
        for (group, node_suspected) in out.suspects.drain(..) {
            self.tell_control(node, ControlInput::Suspect { group, node: node_suspected });
        }
        for (group, report) in out.group_reports.drain(..) {
            self.tell_control(node, ControlInput::Report { worker, group, report });
        }
        spoke
    }

    /// A computation has ended.
    pub(super) fn on_computed(&mut self, node: usize, worker: usize, input: Input) {
        if let Some(process) = &mut self.nodes[node].process {
            process.workers_state[worker].inbox.push(input);
            self.plan_turn(node, worker, self.now);
        }
    }

    fn plan_amnesia(&mut self, node: usize) {
        let Some(process) = &mut self.nodes[node].process else { return };
        if !std::mem::replace(&mut process.is_amnesia_rising, true) {
            let start = process.start;
            let at = self.now + self.rng.between(10_000, 1_000_000);
            self.schedule(at, PlannedEvent::LossRaised { node, start });
        }
    }
}

/// How late a turn of a member of a group may hand its effects over, in nanoseconds.
pub(super) fn late_max(timing: &Timing) -> u64 {
    3 * timing.lease.0
}
