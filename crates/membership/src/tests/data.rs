//! The data of the test world: a write-all register for each worker, read under the lease.

use std::collections::{BTreeSet, VecDeque};

use base::{Nanos, Prng};
use bytes::Bytes;
use types::{Configuration, Epoch, ImageId, Incarnation, NodeId, Role};

use super::world::{Body, Check, GROUP, Order, TIMING, World, fail};
use crate::Input;
use crate::mutation::{self, Mutation};

/// A counter and the writer's serial.
pub(super) type Version = (u64, u32);

#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) version: Version,
    value: u64,
    is_valid: bool,
}

impl Default for Cell {
    fn default() -> Cell {
        Cell { version: (0, 0), value: 0, is_valid: true }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Data {
    Invalidate { epoch: Epoch, key: usize, version: Version, value: u64 },
    Acknowledge { epoch: Epoch, key: usize, version: Version },
    Validate { key: usize, version: Version },
    Ask { epoch: Epoch, key: usize },
    Copy { epoch: Epoch, key: usize, cell: Cell },
}

/// A client's write.
pub(super) struct Operation {
    /// The highest version shown before it began.
    floor: Version,
}

pub(super) struct Pending {
    version: Version,
    value: u64,
    acknowledged: BTreeSet<NodeId>,
    pub(super) since: u64,
    /// Index in the history; `None` for a replay.
    operation: Option<usize>,
    before: Option<Cell>,
}

pub(super) struct Worker {
    key: usize,
    pub(super) orders: VecDeque<Order>,
    pub(super) configuration: Option<Configuration>,
    pub(super) role: Option<Role>,
    pub(super) is_sealed: bool,
    /// It has found its store damaged, and stands still until it is erased.
    pub(super) is_broken: bool,
    sealed_for: Epoch,
    erased_for: ImageId,
    pub(super) pending: Option<Pending>,
    pub(super) has_copy: bool,
}

impl Worker {
    pub(super) fn new(key: usize) -> Worker {
        Worker {
            key,
            orders: VecDeque::new(),
            configuration: None,
            role: None,
            is_sealed: true,
            is_broken: false,
            sealed_for: Epoch(0),
            erased_for: ImageId(0),
            pending: None,
            has_copy: false,
        }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.configuration.as_ref().map_or(Epoch(0), |one| one.epoch)
    }

    pub(super) fn serves(&self) -> bool {
        !self.is_sealed && !self.is_broken && self.role == Some(Role::Full)
    }

    pub(super) fn crash(&mut self, cells: &mut [Cell; 2], random: &mut Prng) {
        if let Some(Pending { version, before: Some(before), .. }) = self.pending.take()
            && mutation::is(Mutation::WriterIsNode)
            && cells[self.key].version == version
            && random.chance(0.5)
        {
            cells[self.key] = before;
        }
        *self = Worker::new(self.key);
    }
}

/// A local read, in steps.
pub(super) struct Read {
    pub(super) node: usize,
    incarnation: Incarnation,
    key: usize,
    step: u32,
    clock_before: Nanos,
    floor: Version,
    version: Version,
    epoch: Epoch,
    word: (Epoch, Nanos),
    clock: Nanos,
    pub(super) is_slow: bool,
    pub(super) is_answered: bool,
}

impl World {
    /// The worker carries out its next order. False if it has none.
    pub(super) fn work(&mut self, i: usize, worker: usize) -> Check<bool> {
        let node = &mut self.nodes[i];
        if node.service.is_none() {
            return Ok(false);
        }
        let Some(order) = node.workers[worker].orders.pop_front() else { return Ok(false) };
        let one = &mut node.workers[worker];
        match order {
            Order::Wedge(epoch) => {
                (one.is_sealed, one.sealed_for, one.pending) = (true, epoch, None);
                let early = mutation::is(Mutation::OneWorkerSealed);
                if early && worker == 0 || node.workers.iter().all(|one| one.sealed_for == epoch) {
                    let summary = Bytes::new();
                    node.inputs.push_back(Input::Sealed { group: GROUP, epoch, summary });
                }
            }
            Order::Install(configuration, role) => {
                one.configuration = Some(*configuration);
                (one.role, one.is_sealed, one.pending) = (role, false, None);
                one.has_copy = false;
            }
            Order::Keep => {
                (one.role, one.is_broken, one.has_copy) = (None, false, false);
            }
            Order::Erase(image) => {
                (one.erased_for, one.is_broken) = (image, false);
                node.disk.cells[worker] = Cell::default();
                if node.workers.iter().all(|one| one.erased_for == image) {
                    node.inputs.push_back(Input::Erased { group: GROUP, image });
                }
            }
        }
        if !self.is_rough || self.random.chance(0.8) {
            self.hear_workers_unless_busy(i)?;
        }
        Ok(true)
    }

    /// Inputs of workers wait while effects of a step are being carried out.
    fn hear_workers_unless_busy(&mut self, i: usize) -> Check {
        if self.nodes[i].effects.is_empty() { self.hear_workers(i) } else { Ok(()) }
    }

    pub(super) fn member(&self, i: usize, key: usize, node: usize) -> Option<Incarnation> {
        let configuration = self.nodes[i].workers[key].configuration.as_ref()?;
        configuration.member(NodeId(node as u16 + 1)).map(|member| member.incarnation)
    }

    fn takes(&self, i: usize, key: usize, from: (usize, Incarnation), epoch: Epoch) -> bool {
        let worker = &self.nodes[i].workers[key];
        let same = worker.epoch() == epoch && worker.role.is_some();
        if worker.is_sealed || worker.is_broken || !same && !mutation::is(Mutation::AnyEpochFrames)
        {
            return false;
        }
        mutation::is(Mutation::AnyEpochFrames) || self.member(i, key, from.0) == Some(from.1)
    }

    fn members(&self, i: usize, key: usize) -> Vec<usize> {
        let configuration = self.nodes[i].workers[key].configuration.iter();
        let members = configuration.flat_map(|one| &one.members);
        members.map(|member| usize::from(member.node.0) - 1).collect()
    }

    pub(super) fn on_data(
        &mut self,
        i: usize,
        from: usize,
        incarnation: Incarnation,
        data: Data,
    ) -> Check {
        let sender = (from, incarnation);
        match data {
            Data::Invalidate { epoch, key, version, value } => {
                if self.takes(i, key, sender, epoch) {
                    let cell = &mut self.nodes[i].disk.cells[key];
                    if version > cell.version {
                        *cell = Cell { version, value, is_valid: false };
                    }
                    self.watch.on_acknowledged(GROUP, NodeId(i as u16 + 1), epoch)?;
                    self.send(i, from, Body::Data(Data::Acknowledge { epoch, key, version }));
                }
            }
            Data::Acknowledge { epoch, key, version } => {
                if self.takes(i, key, sender, epoch)
                    && let Some(pending) = &mut self.nodes[i].workers[key].pending
                    && pending.version == version
                {
                    pending.acknowledged.insert(NodeId(from as u16 + 1));
                    self.commit(i, key)?;
                }
            }
            Data::Validate { key, version } => {
                let is_sealed = self.nodes[i].workers[key].is_sealed;
                let cell = &mut self.nodes[i].disk.cells[key];
                cell.is_valid |= cell.version == version && !is_sealed;
            }
            Data::Ask { epoch, key } => {
                let worker = &self.nodes[i].workers[key];
                if worker.serves() && worker.epoch() == epoch {
                    let cell = self.nodes[i].disk.cells[key].clone();
                    self.send(i, from, Body::Data(Data::Copy { epoch, key, cell }));
                }
            }
            Data::Copy { epoch, key, cell } => self.on_copy(i, epoch, key, cell)?,
        }
        Ok(())
    }

    fn on_copy(&mut self, i: usize, epoch: Epoch, key: usize, copy: Cell) -> Check {
        let node = &mut self.nodes[i];
        let worker = &mut node.workers[key];
        if worker.epoch() != epoch
            || worker.is_sealed
            || worker.is_broken
            || worker.role != Some(Role::Shadow)
        {
            return Ok(());
        }
        let cell = &mut node.disk.cells[key];
        if copy.version > cell.version {
            *cell = copy;
        } else if copy.version == cell.version {
            cell.is_valid |= copy.is_valid;
        }
        worker.has_copy = true;
        if node.workers.iter().all(|one| one.has_copy && one.epoch() == epoch) {
            node.inputs.push_back(Input::Copied { group: GROUP, epoch });
        }
        Ok(())
    }

    /// A shadow asks full members for its missing copies.
    pub(super) fn copy(&mut self, i: usize) {
        for key in 0..2 {
            let worker = &self.nodes[i].workers[key];
            if worker.is_sealed || worker.role != Some(Role::Shadow) || worker.has_copy {
                continue;
            }
            let (epoch, members) = (worker.epoch(), self.members(i, key));
            let to = *self.random.pick(&members);
            self.send(i, to, Body::Data(Data::Ask { epoch, key }));
        }
    }

    pub(super) fn write(&mut self, i: usize, key: usize) -> Check<bool> {
        let node = &self.nodes[i];
        let (worker, cell) = (&node.workers[key], node.disk.cells[key].clone());
        let is_busy = worker.pending.is_some() || !cell.is_valid;
        if !self.is_up(i) || !worker.serves() || is_busy {
            return Ok(false);
        }
        let me = NodeId(i as u16 + 1);
        let member = worker.configuration.as_ref().and_then(|one| one.member(me));
        let serial = member.map_or(0, |member| member.serial.0);
        let writer = if mutation::is(Mutation::WriterIsNode) { u32::from(me.0) } else { serial };
        self.values += 1;
        let version = (cell.version.0 + 1, writer);
        self.history[key].push(Operation { floor: self.shown[key] });
        let operation = self.history[key].len() - 1;
        let value = self.values;
        self.nodes[i].disk.cells[key] = Cell { version, value, is_valid: false };
        self.round(i, key, Some(operation), Some(cell))?;
        Ok(true)
    }

    pub(super) fn replay(&mut self, i: usize, key: usize) -> Check {
        let node = &self.nodes[i];
        let worker = &node.workers[key];
        if self.is_up(i)
            && worker.serves()
            && worker.pending.is_none()
            && !node.disk.cells[key].is_valid
        {
            self.round(i, key, None, None)?;
        }
        Ok(())
    }

    fn round(
        &mut self,
        i: usize,
        key: usize,
        operation: Option<usize>,
        before: Option<Cell>,
    ) -> Check {
        let Cell { version, value, .. } = self.nodes[i].disk.cells[key];
        let acknowledged = BTreeSet::from([NodeId(i as u16 + 1)]);
        let since = self.now;
        let pending = Pending { version, value, acknowledged, since, operation, before };
        self.nodes[i].workers[key].pending = Some(pending);
        self.repeat(i, key);
        self.commit(i, key)
    }

    /// Sends a pending write to all members that have not acknowledged it.
    pub(super) fn repeat(&mut self, i: usize, key: usize) {
        let worker = &self.nodes[i].workers[key];
        let Some(pending) = &worker.pending else { return };
        let (version, value, epoch) = (pending.version, pending.value, worker.epoch());
        let missing = self.missing(i, key);
        for to in missing {
            self.send(i, to, Body::Data(Data::Invalidate { epoch, key, version, value }));
        }
    }

    fn missing(&self, i: usize, key: usize) -> Vec<usize> {
        let worker = &self.nodes[i].workers[key];
        let (Some(pending), Some(one)) = (&worker.pending, &worker.configuration) else {
            return Vec::new();
        };
        let counts = |role| role == Role::Full || !mutation::is(Mutation::ShadowNotCounted);
        let members = one.members.iter().filter(|member| counts(member.role));
        let missing = members.filter(|member| !pending.acknowledged.contains(&member.node));
        missing.map(|member| usize::from(member.node.0) - 1).collect()
    }

    /// Members whose acknowledgements have been missing for too long.
    pub(super) fn stalled(&self, i: usize) -> BTreeSet<usize> {
        let is_late = |since: u64| self.now - since > TIMING.stall.0;
        let late = |key: &usize| {
            let pending = &self.nodes[i].workers[*key].pending;
            pending.as_ref().is_some_and(|pending| is_late(pending.since))
        };
        (0..2).filter(late).flat_map(|key| self.missing(i, key)).collect()
    }

    fn commit(&mut self, i: usize, key: usize) -> Check {
        if !self.missing(i, key).is_empty() {
            return Ok(());
        }
        let Some(pending) = self.nodes[i].workers[key].pending.take() else { return Ok(()) };
        let version = pending.version;
        let cell = &mut self.nodes[i].disk.cells[key];
        cell.is_valid |= cell.version == version;
        self.committed[key] = self.committed[key].max(version);
        // An operator's order ends the history.
        let operation = pending.operation.and_then(|place| self.history[key].get(place));
        if let Some(&Operation { floor }) = operation {
            self.say(|_| format!("write {key} {version:?} done at {i}"));
            if version <= floor {
                return fail(format!("a write of {version:?} is done after {floor:?} was shown"));
            }
            self.shown[key] = self.shown[key].max(version);
            self.counts.writes += 1;
        }
        for to in self.members(i, key) {
            if to != i {
                self.send(i, to, Body::Data(Data::Validate { key, version }));
            }
        }
        Ok(())
    }

    pub(super) fn read(&mut self, i: usize, key: usize) -> Read {
        Read {
            node: i,
            incarnation: self.nodes[i].incarnation,
            key,
            step: 0,
            clock_before: self.nodes[i].last_clock,
            floor: self.shown[key],
            version: (0, 0),
            epoch: Epoch(0),
            word: (Epoch(0), Nanos::ZERO),
            clock: Nanos::ZERO,
            is_slow: false,
            is_answered: false,
        }
    }

    /// One step of a read. False once it is over.
    pub(super) fn step_read(&mut self, read: &mut Read) -> Check<bool> {
        let node = &self.nodes[read.node];
        if !self.is_up(read.node) || node.incarnation != read.incarnation {
            return Ok(false);
        }
        let worker = &node.workers[read.key];
        read.step += 1;
        match read.step {
            1 => {
                let cell = &node.disk.cells[read.key];
                (read.version, read.epoch) = (cell.version, worker.epoch());
                return Ok(worker.serves() && cell.is_valid);
            }
            2 => read.word = node.word.get(),
            3 => {
                let wrong = mutation::is(Mutation::ClockBeforeRequest);
                read.clock = if wrong { read.clock_before } else { self.clock(read.node) };
            }
            _ => return self.answer_read(read),
        }
        Ok(true)
    }

    fn answer_read(&mut self, read: &mut Read) -> Check<bool> {
        let (held, until) = read.word;
        let worker = &self.nodes[read.node].workers[read.key];
        let epoch = if mutation::is(Mutation::EpochAtEnd) { worker.epoch() } else { read.epoch };
        let in_time = read.clock < until || mutation::is(Mutation::NoClock);
        if held != epoch || held == Epoch(0) || !in_time {
            self.counts.refused_reads += 1;
            return Ok(false);
        }
        self.counts.reads += 1;
        let (key, version, floor) = (read.key, read.version, read.floor);
        self.say(|_| format!("read {key} {version:?} at {} in {epoch}", read.node));
        if version < floor {
            return fail(format!(
                "a read in {epoch} returns {version:?} after {floor:?} was shown"
            ));
        }
        self.shown[key] = self.shown[key].max(version);
        read.is_answered = true;
        Ok(false)
    }
}
