//! Statistics of commands, for `INFO commandstats`, `LATENCY HISTOGRAM` and `/metrics`.
//!
//! Each worker counts on its own, without locks. Readers add the workers up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use base::Nanos;
use commands::CommandSpec;
use commands::trace::Calls;
use node::status::{COMMAND_TIME_BOUNDS, CommandFacts, CommandReading};

use crate::errors::Errors;
use crate::histogram::{Histogram, Tally, Times};

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Answered,
    Failed,
    /// Refused before it ran: no call.
    Rejected,
}

/// All commands of a node. Places are those of the command table, subcommands behind their
/// container.
pub(crate) struct Counts {
    rows: Rows,
    workers: Mutex<BTreeMap<usize, Arc<WorkerCounts>>>,
    /// Totals at the last `CONFIG RESETSTAT`. Counters never fall: workers may be writing them.
    before: Mutex<Totals>,
    pub errors: Errors,
}

/// Counters of one worker. Only its thread writes.
pub(crate) struct WorkerCounts {
    commands: Box<[CommandCount]>,
    pub hits: Tally,
    pub misses: Tally,
}

#[derive(Default)]
struct CommandCount {
    calls: Tally,
    nanos: Tally,
    failed: Tally,
    rejected: Tally,
    times: OnceLock<Histogram>,
}

/// Sums over all workers.
#[derive(Clone, Default)]
pub(crate) struct Totals {
    pub commands: Vec<CommandTotal>,
    pub hits: u64,
    pub misses: u64,
}

#[derive(Clone)]
pub(crate) struct CommandTotal {
    pub name: &'static str,
    pub calls: u64,
    pub time: Nanos,
    pub failed: u64,
    pub rejected: u64,
    pub times: Option<Times>,
}

impl WorkerCounts {
    fn new(rows: usize) -> WorkerCounts {
        let commands = (0..rows).map(|_| CommandCount::default()).collect();
        WorkerCounts { commands, hits: Tally::default(), misses: Tally::default() }
    }

    /// A call of the command at `place` has ended.
    pub(crate) fn ended(&self, place: usize, verdict: Verdict, time: Nanos) {
        let count = &self.commands[place];
        if verdict == Verdict::Rejected {
            return count.rejected.add(1);
        }
        count.calls.add(1);
        count.nanos.add(time.0);
        count.times.get_or_init(Histogram::new).add(time);
        if verdict == Verdict::Failed {
            count.failed.add(1);
        }
    }

    /// Calls by a script have ended. Each counts with their mean time.
    pub(crate) fn ended_calls(&self, place: usize, calls: &Calls) {
        let count = &self.commands[place];
        count.calls.add(calls.ended);
        count.nanos.add(calls.nanos);
        count.failed.add(calls.failed);
        count.rejected.add(calls.rejected);
        if let Some(mean) = calls.nanos.checked_div(calls.ended) {
            let times = count.times.get_or_init(Histogram::new);
            times.add_all(Nanos(mean), calls.ended);
        }
    }
}

impl Counts {
    pub(crate) fn new() -> Counts {
        Counts {
            rows: Rows::new(),
            workers: Mutex::default(),
            before: Mutex::default(),
            errors: Errors::default(),
        }
    }

    /// The counters of a worker's sessions.
    pub(crate) fn of_worker(&self, worker: usize) -> Arc<WorkerCounts> {
        let new = || Arc::new(WorkerCounts::new(self.rows.names.len()));
        match self.workers.lock() {
            Ok(mut workers) => Arc::clone(workers.entry(worker).or_insert_with(new)),
            Err(_) => new(),
        }
    }

    pub(crate) fn place_of(&self, spec: &'static CommandSpec) -> usize {
        self.rows.place_at(std::ptr::from_ref(spec).addr()).unwrap_or_default()
    }

    /// The command whose row is at this address.
    pub(crate) fn name_at(&self, address: usize) -> Option<&'static str> {
        self.rows.place_at(address).map(|place| self.rows.names[place])
    }

    /// Calls since the process started.
    pub(crate) fn calls(&self) -> u64 {
        let Ok(workers) = self.workers.lock() else { return 0 };
        let calls = |worker: &Arc<WorkerCounts>| {
            worker.commands.iter().map(|count| count.calls.get()).sum::<u64>()
        };
        workers.values().map(calls).sum()
    }

    /// Since the process started.
    fn totals(&self) -> Totals {
        let names = self.rows.names.iter();
        let commands = names.map(|name| CommandTotal::new(name)).collect();
        let mut totals = Totals { commands, hits: 0, misses: 0 };
        let Ok(workers) = self.workers.lock() else { return totals };
        for worker in workers.values() {
            totals.hits += worker.hits.get();
            totals.misses += worker.misses.get();
            totals.commands.iter_mut().zip(&worker.commands).for_each(|(sum, one)| sum.add(one));
        }
        totals
    }

    /// Since the last reset.
    pub(crate) fn since_reset(&self) -> Totals {
        let mut totals = self.totals();
        let Ok(before) = self.before.lock() else { return totals };
        totals.hits = totals.hits.saturating_sub(before.hits);
        totals.misses = totals.misses.saturating_sub(before.misses);
        totals.commands.iter_mut().zip(&before.commands).for_each(|(now, then)| now.since(then));
        totals
    }

    /// `CONFIG RESETSTAT`.
    pub(crate) fn reset(&self) {
        let totals = self.totals();
        if let Ok(mut before) = self.before.lock() {
            *before = totals;
        }
        self.errors.reset();
    }
}

impl CommandFacts for Counts {
    fn commands(&self) -> Vec<CommandReading> {
        let totals = self.totals().commands.into_iter();
        let mut readings: Vec<CommandReading> =
            totals.filter(CommandTotal::was_sent).map(CommandTotal::reading).collect();
        readings.sort_unstable_by_key(|reading| reading.name);
        readings
    }

    fn errors(&self) -> Vec<(String, u64)> {
        self.errors.since_start()
    }
}

impl Totals {
    /// The commands that clients have sent, by name.
    pub(crate) fn sent(&self) -> Vec<&CommandTotal> {
        let mut sent: Vec<_> = self.commands.iter().filter(|total| total.was_sent()).collect();
        sent.sort_unstable_by_key(|total| total.name);
        sent
    }

    pub(crate) fn calls(&self) -> u64 {
        self.commands.iter().map(|total| total.calls).sum()
    }
}

impl CommandTotal {
    fn new(name: &'static str) -> CommandTotal {
        let (calls, failed, rejected) = (0, 0, 0);
        CommandTotal { name, calls, time: Nanos::ZERO, failed, rejected, times: None }
    }

    fn was_sent(&self) -> bool {
        self.calls + self.rejected > 0
    }

    fn add(&mut self, worker: &CommandCount) {
        self.calls += worker.calls.get();
        self.time += Nanos(worker.nanos.get());
        self.failed += worker.failed.get();
        self.rejected += worker.rejected.get();
        if let Some(times) = worker.times.get() {
            self.times.get_or_insert_default().add(times);
        }
    }

    fn since(&mut self, earlier: &CommandTotal) {
        self.calls = self.calls.saturating_sub(earlier.calls);
        self.time = self.time.since(earlier.time);
        self.failed = self.failed.saturating_sub(earlier.failed);
        self.rejected = self.rejected.saturating_sub(earlier.rejected);
        if let (Some(times), Some(earlier)) = (&mut self.times, &earlier.times) {
            times.since(earlier);
        }
    }

    fn reading(self) -> CommandReading {
        let CommandTotal { name, calls, time, failed, rejected, times } = self;
        let mut buckets = [0; COMMAND_TIME_BOUNDS.len()];
        if let Some(times) = times {
            let below = times.below(COMMAND_TIME_BOUNDS.into_iter());
            buckets.iter_mut().zip(below).for_each(|(bucket, below)| *bucket = below);
        }
        CommandReading { name, calls, failed, rejected, time, buckets }
    }
}

/// Finds a command's place by the address of its row.
struct Rows {
    names: Vec<&'static str>,
    /// Addresses and places by the hash of the address; a collision goes to the next free slot.
    slots: Box<[(usize, u16)]>,
}

/// Far more than there are commands, so that chains are short.
const SLOT_BITS: u32 = 10;

impl Rows {
    fn new() -> Rows {
        let mut slots = vec![(0, 0); 1 << SLOT_BITS].into_boxed_slice();
        let all = commands::table::rows()
            .flat_map(|row| std::iter::once(row).chain(row.subcommands))
            .collect::<Vec<_>>();
        assert!(all.len() * 2 < slots.len(), "{} commands: enlarge the index", all.len());
        for (place, spec) in all.iter().enumerate() {
            let address = std::ptr::from_ref::<CommandSpec>(spec).addr();
            let mut slot = Rows::slot_of(address);
            while slots[slot].0 != 0 {
                slot = (slot + 1) % slots.len();
            }
            slots[slot] = (address, place as u16);
        }
        Rows { names: all.iter().map(|spec| spec.name).collect(), slots }
    }

    fn slot_of(address: usize) -> usize {
        let hash = (address as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> (64 - SLOT_BITS)) as usize
    }

    fn place_at(&self, address: usize) -> Option<usize> {
        let mut slot = Rows::slot_of(address);
        while self.slots[slot].0 != address {
            if self.slots[slot].0 == 0 {
                return None;
            }
            slot = (slot + 1) % self.slots.len();
        }
        (address != 0).then(|| usize::from(self.slots[slot].1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> &'static CommandSpec {
        commands::lookup_full(name.as_bytes()).expect("it is a command")
    }

    #[test]
    fn every_row_has_its_place() {
        let counts = Counts::new();
        for name in ["get", "client|list", "lolwut"] {
            let address = std::ptr::from_ref(spec(name)).addr();
            assert_eq!(counts.name_at(address), Some(name));
            assert_eq!(counts.rows.names[counts.place_of(spec(name))], name);
        }
        assert_eq!((counts.name_at(0), counts.name_at(8)), (None, None));
    }

    #[test]
    fn workers_add_up_and_a_reset_begins_anew() {
        let counts = Counts::new();
        let place = counts.place_of(spec("get"));
        for (worker, verdict) in
            [(0, Verdict::Answered), (1, Verdict::Failed), (0, Verdict::Rejected)]
        {
            counts.of_worker(worker).ended(place, verdict, Nanos::from_micros(3));
        }
        let reading = CommandFacts::commands(&counts).remove(0);
        assert_eq!((reading.calls, reading.failed, reading.rejected), (2, 1, 1));
        assert_eq!((reading.time, reading.buckets[1], reading.buckets[2]), (Nanos(6_000), 0, 2));
        counts.reset();
        assert!(counts.since_reset().sent().is_empty());
        counts.of_worker(1).ended(place, Verdict::Answered, Nanos::from_micros(5));
        let totals = counts.since_reset();
        let times = totals.sent()[0].times.as_ref().map(Times::count);
        assert_eq!((totals.calls(), totals.sent()[0].failed, times), (1, 0, Some(1)));
        assert_eq!(CommandFacts::commands(&counts)[0].calls, 3);
    }
}
