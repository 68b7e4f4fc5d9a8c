//! Loads registers and shard fields into the register cache before an event is handled, and handles
//! forgotten ones.
//!
//! An event whose register or shard is not in memory waits for a load, and later events of the same
//! key queue behind it. The protocol sees lost records only once the node's amnesia count has been
//! raised.

use base::sometimes;
use protocols::{Protocol, Touches};
use storage::{Load, Place};
use types::{Key, Shard, Ticket, Wire};

use super::worker_state::WorkerState;
use crate::engine::{EngineOf, EngineWork, UNENCODED_LEN};

/// The load that an event waits for.
enum Missing {
    Nothing,
    Key,
    Shard(Shard),
}

/// A recovered shard on its way to being known to storage.
///
/// Until storage knows, a record that it has not is `Lost` to it and absent to everybody else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clearing {
    shard: Shard,
    step: ClearingStep,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClearingStep {
    /// The recovered records are not in a batch yet.
    Changed,
    /// The recovered records are durable with this ticket.
    Written(Ticket),
    /// Storage knows of the recovery after this ticket.
    Told(Ticket),
}

impl<P: Protocol> EngineOf<P> {
    /// Runs an event now, or makes it wait until its register or shard is resident.
    pub(crate) fn admit(&mut self, shared: &mut WorkerState, work: EngineWork<P>) {
        match self.missing(shared, work.touches()) {
            Missing::Nothing => self.run_work(shared, work),
            Missing::Shard(shard) => self.load_waiters.push_shard(shard, work),
            Missing::Key => {
                let Touches::Key(key) = work.touches() else {
                    unreachable!("only an event that names a key misses one")
                };
                sometimes!("an event waits for its register");
                let key = key.clone();
                self.load_waiters.push_key(key, work);
            }
        }
    }

    /// True when the event's register or shard is certainly resident. If false, [`Self::admit`]
    /// decides.
    pub(crate) fn is_ready(&mut self, touches: Touches<'_>) -> bool {
        let (shard, key) = match touches {
            Touches::Key(key) => (key.shard(), Some(key)),
            Touches::Shard(shard) => (shard, None),
            Touches::Nothing => return true,
        };
        self.load_waiters.is_empty()
            && self.forgotten.is_empty()
            && self.metas.is_resident(shard)
            && key.is_none_or(|key| self.cache.touch(key))
    }

    fn missing(&mut self, shared: &mut WorkerState, touches: Touches<'_>) -> Missing {
        let (shard, key) = match touches {
            Touches::Key(key) => (key.shard(), Some(key)),
            Touches::Shard(shard) => (shard, None),
            Touches::Nothing => return Missing::Nothing,
        };
        if self.is_hidden(shard)
            || (!self.metas.is_resident(shard) && !self.load_meta(shared, shard))
        {
            return Missing::Shard(shard);
        }
        match key {
            Some(key) if self.load_waiters.has_key(key) => Missing::Key,
            Some(key) if !self.cache.touch(key) && !self.load_register(shared, key) => Missing::Key,
            _ => Missing::Nothing,
        }
    }

    /// True for a shard whose amnesia is not announced yet. Its events wait.
    pub(crate) fn is_hidden(&self, shard: Shard) -> bool {
        !self.forgotten.is_empty() && self.forgotten.contains(&shard)
    }

    /// True when the shard's fields are resident now.
    fn load_meta(&mut self, shared: &mut WorkerState, shard: Shard) -> bool {
        if self.load_waiters.has_shard(shard) {
            return false;
        }
        if !self.outlives_process {
            self.fill_meta(shared, shard, P::Meta::default());
            return true;
        }
        let load = shared.stores[self.store].store.load(&Place::Meta(self.database, shard));
        self.take_meta(shared, shard, load)
    }

    fn take_meta(&mut self, shared: &mut WorkerState, shard: Shard, load: Load) -> bool {
        let meta = match load {
            Load::Pending => return false,
            Load::Found(bytes) => P::Meta::from_bytes(&bytes).ok(),
            Load::Absent => Some(P::Meta::default()),
            Load::Lost => None,
        };
        match meta {
            Some(meta) => self.fill_meta(shared, shard, meta),
            // The amnesia count was raised for this shard.
            None if self.cache.is_forgotten(shard) => {
                self.metas.fill(shard, P::Meta::default());
                self.with_context(shared, Some(shard), |protocol, cx| {
                    protocol.on_meta_lost(cx, shard)
                });
            }
            None => {
                let store = &mut shared.stores[self.store];
                store.store.set_forgotten(self.database, shard, true);
                store.has_changes = true;
                self.discover_forgotten(shared, shard);
                return false;
            }
        }
        true
    }

    fn fill_meta(&mut self, shared: &mut WorkerState, shard: Shard, meta: P::Meta) {
        self.metas.fill(shard, meta);
        self.with_context(shared, Some(shard), |protocol, cx| protocol.on_meta_loaded(cx, shard));
    }

    pub(crate) fn on_meta_loaded(&mut self, shared: &mut WorkerState, shard: Shard, load: Load) {
        if self.metas.is_resident(shard) || self.take_meta(shared, shard, load) {
            self.resume_shard(shared, shard);
        }
    }

    fn resume_shard(&mut self, shared: &mut WorkerState, shard: Shard) {
        for work in self.load_waiters.take_shard(shard) {
            self.admit(shared, work);
        }
    }

    /// True when the register is resident now.
    fn load_register(&mut self, shared: &mut WorkerState, key: &Key) -> bool {
        shared.counters.registers_loaded += 1;
        let place = Place::Cell(self.database, key.clone());
        let load = shared.stores[self.store].store.load(&place);
        self.take_register(shared, key, load)
    }

    fn take_register(&mut self, shared: &mut WorkerState, key: &Key, load: Load) -> bool {
        let mut len = 0;
        let record = match load {
            Load::Pending => return false,
            Load::Found(bytes) => {
                len = bytes.len();
                let record = P::Record::from_bytes(&bytes).ok();
                if record.is_none() && !self.cache.is_forgotten(key.shard()) {
                    self.disown(shared, key.shard(), None);
                }
                record
            }
            Load::Absent if !self.cache.is_forgotten(key.shard()) => {
                self.cache.announce_absent(key);
                return true;
            }
            Load::Absent | Load::Lost => None,
        };
        match record {
            Some(record) => {
                let weight = P::weight(key, &record);
                self.cache.fill(key, Some(record), false);
                let len = if self.outlives_process { len } else { UNENCODED_LEN };
                self.cache.weigh(key, len, weight);
                if !self.outlives_process {
                    // Memory holds it once, and no older one can come back.
                    let place = Place::Cell(self.database, key.clone());
                    shared.stores[self.store].store.remove(&place);
                }
            }
            None if self.cache.is_forgotten(key.shard()) => self.cache.fill(key, None, true),
            None => {
                self.withhold(shared, key);
                return false;
            }
        }
        true
    }

    /// Handles a register that was found lost and not reported yet.
    fn withhold(&mut self, shared: &mut WorkerState, key: &Key) {
        if self.clearing.iter().any(|it| it.shard == key.shard()) {
            sometimes!("a register of a recovered shard waits until storage knows");
            self.clearing_keys.push(key.clone());
            return;
        }
        shared.counters.registers_lost += 1;
        self.lost_keys.push(key.clone());
        shared.discover_amnesia();
    }

    pub(crate) fn on_register_loaded(&mut self, shared: &mut WorkerState, key: &Key, load: Load) {
        if !self.load_waiters.has_key(key) {
            return;
        }
        let is_resident = if self.load_waiters.take_superseded(key) && !self.cache.is_resident(key)
        {
            sometimes!("a register is written and evicted while it is read");
            self.load_register(shared, key)
        } else {
            self.cache.is_resident(key) || self.take_register(shared, key, load)
        };
        if is_resident {
            self.resume_key(shared, key);
        }
    }

    fn resume_key(&mut self, shared: &mut WorkerState, key: &Key) {
        for work in self.load_waiters.take_key(key) {
            self.admit(shared, work);
        }
    }

    /// Discards a shard whose stored records are intact, but too old or of an unknown form. It is
    /// forgotten, as if damaged, with the register that showed it.
    pub(crate) fn disown(&mut self, shared: &mut WorkerState, shard: Shard, key: Option<&Key>) {
        sometimes!("a shard is disowned");
        let state = &mut shared.stores[self.store];
        if self.outlives_process {
            state.store.set_forgotten(self.database, shard, true);
            state.has_changes = true;
        }
        if let Some(key) = key {
            self.cache.lose(key);
        }
        self.discover_forgotten(shared, shard);
    }

    pub(crate) fn discover_forgotten(&mut self, shared: &mut WorkerState, shard: Shard) {
        // The recovered records may be lost again, so storage must not mark the shard as known.
        self.clearing.retain(|it| it.shard != shard);
        if !self.forgotten.contains(&shard) {
            self.forgotten.push(shard);
        }
        shared.discover_amnesia();
    }

    /// Shows the forgotten shards and lost keys to the protocol, after the amnesia count was
    /// raised.
    pub(crate) fn reveal_amnesia(&mut self, shared: &mut WorkerState) {
        let forgotten = std::mem::take(&mut self.forgotten);
        self.losses_on_the_way += forgotten.len();
        for &shard in &forgotten {
            if self.outlives_process {
                self.census.reset(shard);
                shared.census_wanted = true;
            }
            self.cache.set_forgotten(shard, true);
            self.write_anew(shard);
        }
        for shard in forgotten {
            let waiting = self.load_waiters.take_shard(shard);
            self.admit(shared, EngineWork::Forgotten(shard));
            for work in waiting {
                self.admit(shared, work);
            }
        }
        for key in std::mem::take(&mut self.lost_keys) {
            self.cache.fill(&key, None, true);
            self.resume_key(shared, &key);
        }
        self.reload_clearing_keys(shared);
    }

    /// Writes the resident registers of a shard, whose stored copies may be damaged. No recovery
    /// covers them. Unwritten, they would silently turn absent if evicted after the shard is marked
    /// as known.
    fn write_anew(&mut self, shard: Shard) {
        if !self.outlives_process {
            return;
        }
        self.cache.persist_shard(shard);
        if self.metas.is_resident(shard) {
            self.metas.persist(shard);
        }
    }

    /// The protocol has recovered a shard: a missing record is absent again, not lost.
    pub(crate) fn start_clearing(&mut self, shared: &mut WorkerState, shard: Shard) {
        // The shard was found forgotten again, so its recovery starts over.
        if self.forgotten.contains(&shard) || !self.cache.is_forgotten(shard) {
            return;
        }
        self.cache.set_forgotten(shard, false);
        if self.outlives_process {
            self.clearing.push(Clearing { shard, step: ClearingStep::Changed });
        } else {
            shared.stores[self.store].store.set_forgotten(self.database, shard, false);
        }
    }

    /// Everything changed so far is in a batch: from its ticket on, storage may call the shard
    /// known. Not with the same batch, which need not be atomic.
    pub(crate) fn date_clearing(&mut self, shared: &mut WorkerState) {
        if self.clearing.is_empty() {
            return;
        }
        let last_change = shared.stores[self.store].last_change();
        for it in self.clearing.iter_mut().filter(|it| it.step == ClearingStep::Changed) {
            it.step = ClearingStep::Written(last_change);
        }
        let durable = shared.stores[self.store].durable;
        self.step_clearing(shared, durable);
    }

    /// Tells storage of shards whose recovered records are durable, and is done with those that
    /// storage knows.
    pub(crate) fn step_clearing(&mut self, shared: &mut WorkerState, durable: Ticket) {
        if self.clearing.is_empty() {
            return;
        }
        let state = &mut shared.stores[self.store];
        for it in &mut self.clearing {
            if matches!(it.step, ClearingStep::Written(after) if after <= durable) {
                state.store.set_forgotten(self.database, it.shard, false);
                state.has_changes = true;
                it.step = ClearingStep::Told(state.open);
            }
        }
        let before = self.clearing.len();
        self.clearing
            .retain(|it| !matches!(it.step, ClearingStep::Told(after) if after <= durable));
        if self.clearing.len() < before {
            self.reload_clearing_keys(shared);
        }
    }

    fn reload_clearing_keys(&mut self, shared: &mut WorkerState) {
        for key in std::mem::take(&mut self.clearing_keys) {
            if self.cache.is_resident(&key) || self.load_register(shared, &key) {
                self.resume_key(shared, &key);
            }
        }
    }

    /// Shards that storage knows as forgotten when the process starts.
    pub(crate) fn find_forgotten(&mut self, shared: &mut WorkerState) {
        let (index, workers) = (shared.index, shared.workers);
        for shard in (0..=u8::MAX).map(Shard).filter(|s| usize::from(s.0) % workers == index) {
            if shared.stores[self.store].store.is_forgotten(self.database, shard) {
                self.discover_forgotten(shared, shard);
            }
        }
    }
}
