//! Processes start, pause, crash and forget.

use node::uptime::Scale;

use protocols::Leases;

use super::turns::late_max;
use super::*;

/// Runs are short, and so are times to live in them.
const UPTIMES: Scale = Scale { bits: 3, every: Millis(2) };
/// How long a save waits for its turn, by the fastest clock, at most.
const UPTIMES_LATE: Millis = Millis(5);
/// No clock is faster than real time by this factor.
const FASTEST: u64 = 3;

impl World {
    /// Starts a node's process.
    ///
    /// # Panics
    /// If it runs already, or the protocol does not exist.
    pub fn start(&mut self, node: usize) {
        self.counts.starts += 1;
        let config = &self.config;
        let members: Vec<NodeId> = (0..config.nodes).map(node_id).collect();
        let it = &mut self.nodes[node];
        assert!(it.process.is_none(), "node {} is up", it.id);
        let named = |name| *registry::find(name).expect("the run's protocol exists");
        let protocols = [named(config.protocol), named(registry::SYSTEM)];
        it.renewed.0 += 1;
        it.incarnation = it.renewed;
        let local = it.clock.local(self.now);
        let durable = config.medium.durability != Durability::Volatile;
        let spec = |&database: &Database| DatabaseSpec {
            database,
            protocol: if database == Database::SYSTEM { registry::SYSTEM } else { config.protocol },
            replicas: Some(config.group_size),
            store: 0,
            durable,
        };
        let specs: Vec<DatabaseSpec> = config.databases().iter().map(spec).collect();
        let workers = it.workers;
        let mut workers_state = Vec::with_capacity(workers);
        let mut opened = it.medium.open(workers);
        if matches!(opened, Err(NotOpened::Damaged)) {
            // As an operator would: wipe the node, which recovers from the others.
            it.medium.wipe();
            it.model.wipe();
            let records = std::mem::take(&mut it.records);
            self.images.taken.extend(records.get(&DATABASE).map(|record| record.image));
            it.amnesia.0 += 1;
            it.uptimes.clear();
            opened = it.medium.open(workers);
        }
        let stores = match opened {
            Ok(stores) => stores,
            Err(NotOpened::Full) => {
                self.note(|| format!("n{} finds no room and does not start", node + 1));
                return;
            }
            Err(reason) => {
                self.failure = Some(format!("n{} does not start: {reason:?}", node + 1));
                return;
            }
        };
        let control = self.control_thread(node);
        let (config, it) = (&self.config, &mut self.nodes[node]);
        let uptimes = Keeper::restore(UPTIMES, &it.uptimes, false, local);
        let words = Words::default();
        for (index, store) in stores.into_iter().enumerate() {
            let mut worker_config = WorkerConfig {
                index,
                workers,
                me: it.id,
                incarnation: it.incarnation,
                amnesia: it.amnesia,
                members: members.clone(),
                replicas: Some(config.replicas),
                seed: self.rng.next_u64(),
                request_timeout: Nanos(config.request_timeout),
                once_timeout: Nanos(config.request_timeout),
                gone_after: Nanos(config.request_timeout / 10),
                cache_memory: config.cells_max * REGISTER_OVERHEAD,
                scrub: config.scrub,
                counts_keys: false,
                uptimes: uptimes.uptimes(),
                leases: Arc::new(NoLeases),
                words: words.clone(),
            };
            let (medium, model) = (it.medium.clone(), it.model.clone());
            let store =
                CheckedStore::new(store, medium, model, config.databases(), (index, workers));
            let stores: Vec<Box<dyn Store>> = vec![Box::new(store)];
            let update = config.update.clone();
            let leases: Arc<dyn Leases> = match &control {
                Some(control) => Arc::clone(&control.leases) as Arc<dyn Leases>,
                None => Arc::new(NoLeases),
            };
            worker_config.leases = leases;
            let worker =
                Worker::with_protocols(&protocols, worker_config, stores, &specs, update, local)
                    .expect("the run's protocol is among its protocols");
            workers_state.push(WorkerState {
                worker,
                inbox: Vec::new(),
                turn_at: u64::MAX,
                free_at: 0,
            });
        }
        it.process = Some(SimProcess {
            start: self.counts.starts,
            workers_state,
            paused_until: 0,
            control,
            is_amnesia_rising: false,
            uptimes,
            saving: None,
            uptimes_due: u64::MAX,
        });
        let (incarnation, amnesia) = (it.incarnation, it.amnesia);
        self.note(|| format!("n{} starts as {incarnation:?} {amnesia:?}", node + 1));
        for worker in 0..workers {
            self.plan_turn(node, worker, self.now);
        }
        self.plan_uptimes(node, self.now);
        self.start_groups(node);
        for peer in (0..self.nodes.len()).filter(|&peer| peer != node) {
            self.plan_connect(node, peer, 200_000);
        }
    }

    /// Starts every node that is down.
    pub fn start_all(&mut self) {
        for node in 0..self.nodes.len() {
            if !self.is_up(node) {
                self.start(node);
            }
        }
    }

    /// Ends a node's process. Durable data stays; `survival` draws the fate of the rest.
    pub fn crash(&mut self, node: usize, survival: Survival) {
        self.note(|| format!("n{} CRASHES, {survival:?} survives", node + 1));
        let now = self.now;
        let it = &mut self.nodes[node];
        let Some(process) = it.process.take() else { return };
        let local = it.clock.local(now);
        if let Some(saving) = process.saving.filter(|_| self.rng.chance(0.5)) {
            it.uptimes = saving;
        }
        // A stopped process saves no clocks, so its countdown may be behind. A worker whose turn
        // comes late hands its wish for a save over that much later.
        let turn_late = if process.control.is_some() && self.config.late_ppm > 0 {
            late_max(&self.config.timing)
        } else {
            0
        };
        let save_late = 3 * self.config.flush_max + turn_late;
        let late = Millis(UPTIMES_LATE.0 + FASTEST * save_late / 1_000_000);
        let excess = process.uptimes.excess(local, &it.uptimes, late);
        if excess > 0 && process.paused_until == 0 {
            let text = format!("n{}: a crash cost countdowns {excess} ms too many", it.id);
            self.failure.get_or_insert(text);
        }
        it.medium.crash(survival);
        it.model.end();
        if self.config.medium.durability == Durability::Volatile {
            self.forget(node);
        }
        for peer in (0..self.nodes.len()).filter(|&peer| peer != node) {
            self.end_connection(node, peer);
        }
    }

    /// Ends a node's process and wipes its medium.
    pub fn crash_and_wipe(&mut self, node: usize) {
        self.crash(node, Survival::Prefix);
        self.nodes[node].medium.wipe();
        self.forget(node);
        self.nodes[node].records.clear();
    }

    pub(super) fn forget(&mut self, node: usize) {
        self.take_image(node);
        let it = &mut self.nodes[node];
        it.amnesia.0 += 1;
        it.uptimes.clear();
        it.model.wipe();
        self.note(|| format!("n{} forgets everything", node + 1));
    }

    /// The node has no turn until then.
    pub fn pause(&mut self, node: usize, until: u64) {
        self.note(|| format!("n{} pauses until {}", node + 1, Nanos(until).as_micros()));
        if let Some(process) = &mut self.nodes[node].process {
            process.paused_until = process.paused_until.max(until);
        }
    }

    /// Ends a pause.
    pub fn resume(&mut self, node: usize) {
        if let Some(process) = &mut self.nodes[node].process {
            process.paused_until = process.paused_until.min(self.now);
            for worker in 0..process.workers_state.len() {
                self.plan_turn(node, worker, self.now);
            }
            self.plan_control(node);
        }
    }

    /// How many workers the node has when it starts next.
    pub fn set_workers(&mut self, node: usize, workers: usize) {
        self.nodes[node].workers = workers;
    }

    pub(super) fn raise_amnesia(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        it.amnesia.0 += 1;
        let amnesia = it.amnesia;
        if let Some(process) = &mut it.process {
            process.is_amnesia_rising = false;
        }
        self.note(|| format!("n{} raised its loss to {amnesia:?}", node + 1));
        self.input_all(node, &Input::Amnesia { amnesia });
    }

    /// The node takes an incarnation that no fence shuts out.
    pub(super) fn renew(&mut self, node: usize, worker: usize, below: Incarnation) {
        let it = &mut self.nodes[node];
        it.renewed = it.renewed.max(below);
        let incarnation = it.renewed;
        self.note(|| format!("n{} goes on as {incarnation:?}", node + 1));
        if let Some(process) = &mut self.nodes[node].process {
            process.workers_state[worker].inbox.push(Input::Renewed { incarnation });
            self.plan_turn(node, worker, self.now);
        }
    }

    /// Checks the node's clocks by then.
    pub(super) fn plan_uptimes(&mut self, node: usize, at: u64) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let (at, start) = (at.max(process.paused_until).max(self.now), process.start);
        if at < process.uptimes_due {
            process.uptimes_due = at;
            self.schedule(at, PlannedEvent::UptimesDue { node, start });
        }
    }

    /// Plays the control thread of a node.
    pub(super) fn keep_uptimes(&mut self, node: usize) {
        let (now, it) = (self.now, &mut self.nodes[node]);
        let Some(process) = &mut it.process else { return };
        process.uptimes_due = u64::MAX;
        if process.paused_until > now {
            return self.plan_uptimes(node, now);
        }
        // One save at a time; its end checks again.
        if process.saving.is_some() {
            return;
        }
        let (local, start) = (it.clock.local(now), process.start);
        if let Some(save) = process.uptimes.look(local) {
            process.saving = Some(save);
            let at = now + self.rng.between(self.config.flush_min, self.config.flush_max);
            return self.schedule(at, PlannedEvent::UptimesSaved { node, start });
        }
        if let Some(next) = process.uptimes.next(local) {
            let at = it.clock.true_time(next);
            self.plan_uptimes(node, at);
        }
    }

    pub(super) fn on_uptimes_saved(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        let Some(process) = &mut it.process else { return };
        if let Some(save) = process.saving.take() {
            process.uptimes.on_saved(&save, it.clock.local(self.now));
            it.uptimes = save;
        }
        for worker in 0..process.workers_state.len() {
            self.plan_turn(node, worker, self.now);
        }
        self.keep_uptimes(node);
    }
}
