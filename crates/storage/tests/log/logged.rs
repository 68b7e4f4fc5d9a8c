//! A log beside a store: one ticket for both, and a device that takes its time.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use storage::log::{Device, Driver, Log, Logged, OpenLog, Store as Writes};
use storage::volatile::{Beginning, VolatileStore};
use storage::{Completion, Store};
use types::{Database, LogChanges, Ticket};

use crate::support::{BINDING, Memory, SMALL};

const DATABASE: Database = Database(0);

/// A device whose stores wait for the test.
#[derive(Clone)]
struct Waiting(Arc<Mutex<State>>);

struct State {
    memory: Memory,
    begun: Option<Writes>,
    ended: Option<Result<(), String>>,
}

impl Waiting {
    fn finish(&self) -> bool {
        let mut state = self.0.lock().expect("no holder panics");
        let Some(begun) = state.begun.take() else { return false };
        let ended = state.memory.store(&begun);
        state.ended = Some(ended);
        true
    }
}

impl Driver for Waiting {
    fn begin(&mut self, store: Writes) {
        let begun = &mut self.0.lock().expect("no holder panics").begun;
        assert!(begun.replace(store).is_none(), "one store is under way at most");
    }

    fn ended(&mut self) -> Option<Result<(), String>> {
        self.0.lock().expect("no holder panics").ended.take()
    }
}

fn open(memory: Memory) -> (Waiting, Logged) {
    let (engine, memory) = Log::open(memory, BINDING).expect("it opens").into_parts();
    let device = Waiting(Arc::new(Mutex::new(State { memory, begun: None, ended: None })));
    let log = OpenLog { database: DATABASE, engine, driver: Box::new(device.clone()) };
    let store = Box::new(VolatileStore::new(Beginning::New));
    (device, Logged::new(store, vec![log]))
}

fn append(store: &mut Logged, index: u64, len: usize) -> Ticket {
    let mut changes = LogChanges::default();
    changes.append(index, Bytes::from(vec![index as u8; len]));
    store.change_log(DATABASE, changes);
    let ticket = store.ticket();
    store.submit();
    ticket
}

fn cut(store: &mut Logged, below: u64) {
    store.change_log(DATABASE, LogChanges { below, ..LogChanges::default() });
    store.submit();
}

fn poll(store: &mut Logged) -> Vec<Completion> {
    let mut completions = Vec::new();
    store.poll(&mut completions);
    completions
}

#[test]
fn batch_is_durable_with_its_log() {
    let (device, mut store) = open(Memory::with_log(SMALL));
    let first = append(&mut store, 1, 10);
    let second = append(&mut store, 2, 10);
    assert!(first < second && second < store.ticket());
    assert_eq!(poll(&mut store), []);
    assert!(device.finish());
    assert_eq!(poll(&mut store), [Completion::Stored(first)]);
    assert!(device.finish(), "the second batch waited for the first store");
    assert_eq!(poll(&mut store), [Completion::Stored(second)]);
    assert_eq!(store.open_log(DATABASE).next(), 3);
}

#[test]
fn empty_batch_stays_open() {
    let (_device, mut store) = open(Memory::with_log(SMALL));
    let ticket = store.ticket();
    store.submit();
    assert_eq!((store.ticket(), poll(&mut store)), (ticket, Vec::new()));
}

#[test]
fn batches_wait_until_the_front_is_cut() {
    let (device, mut store) = open(Memory::with_log(SMALL));
    let tickets: Vec<Ticket> = (1..=80).map(|index| append(&mut store, index, 400)).collect();
    while device.finish() {
        poll(&mut store);
    }
    let kept = store.open_log(DATABASE).next();
    assert!(kept > 10 && kept < 80, "the ring is full at {kept}");
    let mut durable = Vec::new();
    for below in 1..=80 {
        cut(&mut store, below);
        while device.finish() {
            durable.extend(poll(&mut store));
        }
        durable.extend(poll(&mut store));
    }
    let last = Completion::Stored(tickets[79]);
    assert!(
        durable.contains(&last)
            || durable
                .iter()
                .any(|it| matches!(it, Completion::Stored(upto) if *upto >= tickets[79]))
    );
    assert_eq!(store.open_log(DATABASE).next(), 81);
}

/// The replacement of a tail waits for room, and the front is cut within it.
#[test]
fn replacement_that_waits_is_cut_with_the_front() {
    let (device, mut store) = open(Memory::with_log(SMALL));
    for index in 1..=80 {
        append(&mut store, index, 400);
    }
    while device.finish() {
        poll(&mut store);
    }
    let end = store.open_log(DATABASE).next();
    let (from, below) = (end - 5, end - 3);
    let mut changes = LogChanges::default();
    changes.truncate(from);
    (from..end + 70).for_each(|index| changes.append(index, Bytes::from(vec![7; 400])));
    store.change_log(DATABASE, changes);
    store.submit();
    let mut completions = Vec::new();
    for below in below..end + 70 {
        cut(&mut store, below);
        while device.finish() {
            completions.extend(poll(&mut store));
        }
    }
    let failed = completions.iter().any(|it| matches!(it, Completion::Failed(_)));
    assert!(!failed, "{completions:?}");
    let image = store.open_log(DATABASE);
    assert_eq!(image.next(), end + 70);
    assert!(image.records.iter().all(|record| record[0] == 7));
}

#[test]
fn log_goes_on_behind_a_cut_beyond_its_end() {
    let (device, mut store) = open(Memory::with_log(SMALL));
    append(&mut store, 1, 10);
    let mut changes = LogChanges::default();
    changes.truncate(1);
    changes.cut(100);
    store.change_log(DATABASE, changes);
    store.submit();
    let last = append(&mut store, 100, 10);
    let mut stored = Vec::new();
    while device.finish() {
        stored.extend(poll(&mut store));
    }
    assert_eq!(stored.last(), Some(&Completion::Stored(last)));
    let memory = device.0.lock().expect("no holder panics").memory.clone();
    let (_, mut again) = open(memory);
    let image = again.open_log(DATABASE);
    assert_eq!((image.first, image.next()), (100, 101));
}

#[test]
fn failed_log_stops_the_node() {
    let mut memory = Memory::with_log(SMALL);
    memory.fails = true;
    let (device, mut store) = open(memory);
    append(&mut store, 1, 10);
    device.finish();
    let failed = poll(&mut store);
    assert!(
        matches!(&failed[..], [Completion::Failed(why)] if why.contains("the log")),
        "{failed:?}"
    );
    assert_eq!(poll(&mut store), [], "a failure is told once");
}

#[test]
fn long_turn_becomes_several_batches() {
    let (device, mut store) = open(Memory::with_log(1_024));
    let mut changes = LogChanges::default();
    (1..=200).for_each(|index| changes.append(index, Bytes::from(vec![0; 700])));
    store.change_log(DATABASE, changes);
    store.submit();
    while device.finish() {
        poll(&mut store);
    }
    assert_eq!(store.open_log(DATABASE).next(), 201);
}
