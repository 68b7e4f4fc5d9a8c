//! One turn: completions of storage, inputs, timers; then one submission, and one frame per peer.

use base::{Millis, Nanos};
use protocols::{Pace, Request, WARMED};
use smallvec::SmallVec;
use storage::{Completion, Place};
use types::{Database, Key, Outcome, Tag};

use super::scans::ScanPurpose;
use super::{Input, Outputs, Worker};
use crate::engine::{Signal, shard_of};
use crate::frame_payload::RawMessage;

/// Timers fired in one turn.
const TIMERS_MAX: usize = 1 << 14;

/// Rounds of messages to itself that an engine may handle before a submission.
const ENGINE_RUNS_MAX: usize = 16;

/// Submissions of one turn, where storage is durable at once and lets engines go on.
const ROUNDS_MAX: usize = 4;

impl Worker {
    /// Runs one turn. Empties `inputs` and appends to `out`.
    ///
    /// `now` is monotonic and `unix` the wall clock. The event loop calls this when inputs arrive,
    /// when a store has completed an operation, and at [`Worker::next_timer`].
    pub fn turn(&mut self, now: Nanos, unix: Millis, inputs: &mut Vec<Input>, out: &mut Outputs) {
        self.begin(now, unix);
        self.poll_stores();
        self.warm(inputs);
        for input in inputs.drain(..) {
            if self.shared.failed.is_none() {
                self.on_input(input);
            }
        }
        self.fire_timers();
        self.scrubber.step(&mut self.shared);
        self.count_keys();
        self.run_service();
        self.settle();
        for _ in 0..ROUNDS_MAX {
            self.take_service_outcomes();
            if !self.has_service_work() {
                break;
            }
            self.run_service();
            self.settle();
        }
        self.drop_absent();
        self.evict();
        self.pack();
        self.engines.rest(self.absent_kept());
        self.hand_over(out);
    }

    /// Prefetches the registers of requests into the processor's caches.
    fn warm(&self, inputs: &[Input]) {
        let mut keys: SmallVec<[&Key; WARMED]> = SmallVec::new();
        let mut engine = None;
        for input in inputs {
            let Input::Request { database, key, .. } = input else { continue };
            let next = self.engine_of(*database);
            if next != engine || keys.len() == WARMED {
                self.warm_keys(engine, &keys);
                keys.clear();
            }
            engine = next;
            keys.push(key);
        }
        self.warm_keys(engine, &keys);
    }

    fn warm_keys(&self, engine: Option<usize>, keys: &[&Key]) {
        if let Some(engine) = engine {
            self.engines.all()[engine].warm(keys);
        }
    }

    fn begin(&mut self, now: Nanos, unix: Millis) {
        let shared = &mut self.shared;
        shared.counters.turns += 1;
        shared.now = shared.now.max(now);
        shared.unix = unix;
        for node in std::mem::take(&mut self.resets) {
            self.signal_all(Signal::PeerReset(node));
        }
    }

    /// Handles completions of storage. True when there was any.
    fn poll_stores(&mut self) -> bool {
        let mut any = false;
        let mut completions = std::mem::take(&mut self.completions);
        for store in 0..self.shared.stores.len() {
            self.shared.stores[store].store.poll(&mut completions);
            any |= !completions.is_empty();
            // Learn of amnesia before handling records that may lack the forgotten ones.
            for completion in &completions {
                if let Completion::Forgotten { database, shard } = *completion
                    && let Some(engine) = self.engine_of(database)
                {
                    self.shared.note_damage(database, shard);
                    let engine = self.engines.wake(engine, &self.shared);
                    engine.on_forgotten(&mut self.shared, shard);
                }
            }
            for completion in completions.drain(..) {
                if self.shared.failed.is_none() {
                    self.on_completion(store, completion);
                }
            }
        }
        self.completions = completions;
        any
    }

    fn on_completion(&mut self, store: usize, completion: Completion) {
        let shared = &mut self.shared;
        match completion {
            Completion::Stored(upto) => {
                let state = &mut shared.stores[store];
                if upto <= state.durable {
                    return;
                }
                state.durable = upto;
                state.commits.durable(upto, shared.now);
                for engine in self.engines.awake_mut().filter(|engine| engine.store() == store) {
                    engine.on_stored(shared, upto);
                }
            }
            Completion::Loaded { place, load } => {
                let (Place::Cell(database, _) | Place::Meta(database, _)) = place;
                if let Some(engine) = self.engine_of(database) {
                    let engine = self.engines.wake(engine, &self.shared);
                    engine.on_loaded(&mut self.shared, place, load);
                }
            }
            Completion::Scanned { id, records, next_hash } => {
                if let Some(scan) = shared.take_scan(id) {
                    let engine = self.engines.wake(scan.engine, shared);
                    if scan.purpose == ScanPurpose::Census {
                        let is_taken = engine.on_counted(shared, scan.scan, &records, next_hash);
                        return self.on_counted(records.len(), is_taken);
                    }
                    engine.on_scanned(shared, scan.scan, records, next_hash);
                }
            }
            // Handled above.
            Completion::Forgotten { .. } => {}
            Completion::Warning(text) => {
                shared.counters.damage_covered += 1;
                shared.warn(text);
            }
            Completion::Scrubbed(scrubbed) => self.scrubber.on_scrubbed(shared, store, scrubbed),
            Completion::Failed(text) => shared.fail(format!("storage failed: {text}")),
        }
    }

    pub(super) fn on_input(&mut self, input: Input) {
        match input {
            Input::Request { tag, session, database, key, command } => {
                assert!(self.owns(key.shard()), "{key:?} belongs to another worker");
                if let Some(engine) = self.start_request(tag, database) {
                    let asked_at = self.shared.now;
                    let request = Request { tag, session, key, command, asked_at };
                    let engine = self.engines.wake(engine, &self.shared);
                    engine.on_request(&mut self.shared, request);
                }
            }
            Input::List { tag, database, from_hash, limit } => {
                assert!(self.owns(shard_of(from_hash)), "{from_hash:#x} belongs to another worker");
                if let Some(engine) = self.start_request(tag, database) {
                    let engine = self.engines.wake(engine, &self.shared);
                    engine.on_list(&mut self.shared, tag, from_hash, limit);
                }
            }
            Input::Explain { tag, database, key } => {
                assert!(self.owns(key.shard()), "{key:?} belongs to another worker");
                if let Some(engine) = self.start_request(tag, database) {
                    let engine = self.engines.wake(engine, &self.shared);
                    engine.on_explain(&mut self.shared, tag, key);
                }
            }
            Input::Transaction { tag, transaction } => self.on_transaction(tag, transaction),
            Input::Outcome { tag, outcome } => self.on_service_outcome(tag, outcome),
            Input::Computed { token, ran } => self.on_computed(token, ran),
            Input::Own { database, shard, bytes } => {
                if let Some(engine) = self.engine_of(database) {
                    let (from, bytes) = (self.shared.me(), &*bytes);
                    let message = RawMessage { database, shard, bytes, whole: bytes };
                    let engine = self.engines.wake(engine, &self.shared);
                    engine.on_messages(&mut self.shared, from, &[message]);
                }
            }
            Input::Word { from, bytes } => {
                self.on_word(from, &bytes);
            }
            Input::Frame { from, bytes } => self.on_frame(from, &bytes),
            Input::PeerUp { node, incarnation, amnesia } => {
                let grew = self.shared.learn(node, incarnation, amnesia);
                self.shared.peers.set_up(node, true);
                self.note_silence(node);
                if grew {
                    self.signal_all(Signal::ViewChanged);
                }
                self.signal_all(Signal::PeerUp(node));
            }
            Input::PeerReset { node } => {
                self.shared.peers.set_up(node, false);
                self.note_silence(node);
                self.shared.peers.set_pace(node, Pace::Steady);
                self.signal_all(Signal::PeerReset(node));
            }
            Input::PeerPace { node, pace } => {
                let is_new = self.shared.peers.set_pace(node, pace);
                if is_new && pace == Pace::Steady {
                    self.signal_all(Signal::PeerSteady(node));
                }
            }
            Input::Amnesia { amnesia } => self.on_amnesia(amnesia),
            Input::Renewed { incarnation } => self.on_renewed(incarnation),
            Input::Group { database, event } => {
                if let Some(engine) = self.engine_of(database) {
                    let engine = self.engines.wake(engine, &self.shared);
                    engine.on_group(&mut self.shared, event);
                }
            }
        }
    }

    /// Counts a request and finds its engine; answers it where there is none.
    fn start_request(&mut self, tag: Tag, database: Database) -> Option<usize> {
        self.shared.counters.requests += 1;
        self.shared.in_progress += 1;
        let engine = self.engine_of(database);
        if engine.is_none() {
            self.shared.reply(tag, Outcome::Unsupported("none"));
        }
        engine
    }

    pub(super) fn signal_all(&mut self, signal: Signal) {
        for engine in 0..self.engines.len() {
            self.engines.wake(engine, &self.shared).on_signal(&mut self.shared, signal);
        }
    }

    fn fire_timers(&mut self) {
        for _ in 0..TIMERS_MAX {
            let Some((engine, id)) = self.shared.timers.pop_due(self.shared.now) else { break };
            let engine = self.engines.wake(engine, &self.shared);
            engine.on_signal(&mut self.shared, Signal::Timer(id));
        }
    }

    /// Delivers messages of engines to themselves and submits changes, until no work is left.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.run_engines();
            if self.shared.failed.is_some() {
                return;
            }
            self.flush();
            // A completion may have queued a load, which the next submission hands over.
            if !self.poll_stores() {
                return;
            }
        }
    }

    fn run_engines(&mut self) {
        for _ in 0..ENGINE_RUNS_MAX {
            let mut is_quiet = true;
            for engine in self.engines.awake_mut().filter(|engine| engine.has_work()) {
                engine.run(&mut self.shared);
                is_quiet = false;
            }
            if is_quiet {
                return;
            }
        }
    }

    /// Encodes every changed register and shard field once and hands the batches over.
    ///
    /// No register with a countdown is durable before a trace of its clock: after a crash the clock
    /// would stand still. The turn after the save of that trace submits all changes.
    fn flush(&mut self) {
        if self.shared.uptimes.is_held() {
            return;
        }
        for state in &self.shared.stores {
            let ticket = state.store.ticket();
            assert_eq!(state.open, ticket, "changes carry another ticket than their batch");
        }
        for engine in self.engines.awake_mut() {
            engine.flush(&mut self.shared);
        }
        for state in &mut self.shared.stores {
            state.store.submit();
            let ticket = state.store.ticket();
            if ticket != state.open {
                state.submitted = state.open;
                state.commits.submitted(state.open, self.shared.now);
                state.open = ticket;
                state.has_changes = false;
            }
        }
        for engine in self.engines.awake_mut() {
            engine.set_open_ticket(self.shared.stores[engine.store()].open);
        }
    }

    fn hand_over(&mut self, out: &mut Outputs) {
        let shared = &mut self.shared;
        if let Some(text) = &shared.failed {
            out.failed = Some(text.clone());
            return;
        }
        out.misrouted.append(&mut self.misrouted);
        out.suspects.append(&mut shared.suspects);
        out.warnings.append(&mut shared.warnings);
        out.raise_amnesia |= shared.hold.take_asks();
        out.renew = out.renew.max(shared.fenced.take());
        out.uptimes_changed |= shared.uptimes.take_changed();
        // A crash would lose a running clock that is not saved yet. Hold all outputs until the
        // save.
        if shared.hold.is_on() || shared.uptimes.is_held() {
            self.resets = shared.outbox.drop_excess();
            return;
        }
        self.split_service_outcomes();
        let shared = &mut self.shared;
        out.for_workers.append(&mut self.for_workers);
        out.for_workers.append(&mut shared.for_workers);
        out.computations.append(&mut self.computations);
        out.replies.append(&mut shared.replies);
        // Behind the messages of the epoch that they end.
        out.group_reports.append(&mut shared.group_reports);
        shared.outbox.take(shared.sets.epoch(), &shared.peers, &mut out.frames);
    }
}
