//! Every state that a loss of power may leave. All writes and flushes of a history are recorded;
//! each possible content of the device before each flush is built, opened, verified and compared.
//! If that is too many states they are sampled.

use std::sync::{Arc, Mutex};

use base::Prng;
use storage::disk::{
    Config, Done, File, Files, Io, LocalGuard, LocalStore, Medium, create, verify,
};
use storage::{Completion, Load, Place, Store};
use types::{Database, Key, Shard};

use crate::support::{BINDING, SECTOR, SimDisk, World, writes};

/// More states than this of one moment are sampled.
const STATES_MAX: usize = 1 << 12;
const SAMPLES: usize = 60;

const CONFIG: Config = Config {
    ring_bytes: 64 << 10,
    spare_pages: 32,
    initial_level: 1,
    cache_bytes: 64 << 10,
    fill_percent: 60,
    first_fit: true,
};

/// The requests to the device, in order.
enum Step {
    Write {
        file: File,
        sector: usize,
        bytes: Vec<u8>,
    },
    Flush(Files),
    /// This many batches have been acknowledged.
    Acknowledged(usize),
}

/// A device that does all at once and remembers it.
#[derive(Clone)]
struct Recorder {
    disk: SimDisk,
    steps: Arc<Mutex<Vec<Step>>>,
}

impl Recorder {
    fn note(&self, step: Step) {
        self.steps.lock().expect("no panic holds it").push(step);
    }
}

impl Medium for Recorder {
    fn submit(&mut self, io: Io) {
        for write in writes(&io) {
            let first = write.offset as usize / SECTOR;
            for (at, bytes) in write.bytes.chunks(SECTOR).enumerate() {
                let (sector, bytes) = (first + at, bytes.to_vec());
                self.note(Step::Write { file: write.file, sector, bytes });
            }
        }
        match io {
            Io::Store { flush, .. } if flush != Files::default() => self.note(Step::Flush(flush)),
            Io::Cut { file, len, .. } => {
                for sector in len as usize / SECTOR..self.disk.file_len(file) / SECTOR {
                    self.note(Step::Write { file, sector, bytes: vec![0; SECTOR] });
                }
                self.note(Step::Flush(Files::of(file)));
            }
            _ => {}
        }
        self.disk.submit(io);
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        self.disk.poll(done);
    }

    fn wait(&mut self, done: &mut Vec<Done>) {
        self.disk.wait(done);
    }
}

/// The contents after each batch: `None` for an absent place.
type Contents = Vec<(Place, Option<Vec<u8>>)>;

struct History {
    recorder: Recorder,
    guard: LocalGuard<Recorder>,
    store: LocalStore<Recorder>,
    /// The content of the device when the history began.
    base: Vec<Vec<u8>>,
    states: Vec<Contents>,
}

impl History {
    fn begin(places: &[Place]) -> History {
        let mut disk = SimDisk::new(1, 0);
        create(&mut disk, BINDING, &CONFIG).expect("an empty disk takes a store");
        let recorder = Recorder { disk: disk.clone(), steps: Arc::default() };
        let (guard, mut stores) =
            LocalGuard::open(recorder.clone(), BINDING, 1, &CONFIG).expect("it was just made");
        recorder.steps.lock().expect("no panic holds it").clear();
        let base = File::ALL.map(|file| disk.bytes(file)).to_vec();
        let empty = places.iter().map(|place| (place.clone(), None)).collect();
        History { recorder, guard, store: stores.remove(0), base, states: vec![empty] }
    }

    /// A batch that gives each of these places this record, or none.
    fn batch(&mut self, changes: &[(usize, Option<&[u8]>)]) {
        let mut contents = self.states.last().expect("there is a first state").clone();
        for &(at, record) in changes {
            let (place, content) = &mut contents[at];
            match record {
                Some(record) => self.store.put(place, record),
                None => self.store.remove(place),
            }
            *content = record.map(<[u8]>::to_vec);
        }
        self.states.push(contents);
        let ticket = self.store.ticket();
        self.store.submit();
        let mut heard = Vec::new();
        while !heard.contains(&Completion::Stored(ticket)) {
            self.store.poll(&mut heard);
        }
        self.recorder.note(Step::Acknowledged(self.states.len() - 1));
    }

    fn settle(&mut self) {
        while self.guard.is_dirty() || self.guard.under_way() > 0 {
            self.guard.rest();
            self.store.poll(&mut Vec::new());
        }
    }

    /// Crashes before every flush, in every way; returns how many states were looked at, and at how many moments that
    /// were all there are.
    fn replay(&self, prng: &mut Prng) -> (usize, usize) {
        let mut durable = self.base.clone();
        let mut pending: Vec<(File, usize, Vec<Vec<u8>>)> = Vec::new();
        let (mut acknowledged, mut looked_at, mut complete) = (0, 0, 0);
        for step in self.recorder.steps.lock().expect("no panic holds it").iter() {
            match step {
                Step::Acknowledged(batches) => acknowledged = *batches,
                Step::Write { file, sector, bytes } => {
                    match pending.iter_mut().find(|(f, s, _)| (f, s) == (file, sector)) {
                        Some((.., versions)) => versions.push(bytes.clone()),
                        None => pending.push((*file, *sector, vec![bytes.clone()])),
                    }
                }
                Step::Flush(files) => {
                    let (choices, are_all) = choices(&pending, prng);
                    complete += usize::from(are_all);
                    looked_at += choices.len();
                    for choice in choices {
                        self.check(&durable, &pending, &choice, acknowledged);
                    }
                    for (file, sector, versions) in &pending {
                        if files.contains(*file) {
                            let newest = versions.last().expect("it was written");
                            put(&mut durable[*file as usize], *sector, newest);
                        }
                    }
                    pending.retain(|(file, ..)| !files.contains(*file));
                }
            }
        }
        assert!(pending.is_empty(), "what a store writes it flushes");
        (looked_at, complete)
    }

    /// Opens a possible content of the device: each pending sector is old, or in the version that
    /// `choice` says.
    fn check(
        &self,
        durable: &[Vec<u8>],
        pending: &[(File, usize, Vec<Vec<u8>>)],
        choice: &[usize],
        acknowledged: usize,
    ) {
        let mut files = durable.to_vec();
        for ((file, sector, versions), &choice) in pending.iter().zip(choice) {
            if let Some(bytes) = choice.checked_sub(1).map(|at| &versions[at]) {
                put(&mut files[*file as usize], *sector, bytes);
            }
        }
        let disk = SimDisk::new(1, 0);
        for (file, bytes) in File::ALL.into_iter().zip(files) {
            disk.rot(file, |content| *content = bytes);
        }
        let report = verify(&mut disk.copy(), &mut |_| ()).expect("it can be checked");
        assert!(report.is_good(), "a loss of power is no damage: {report:?}");
        let mut world = World::open(disk, 1, &CONFIG);
        let places = self.states[0].iter().map(|(place, _)| place);
        let found: Contents =
            places.map(|place| (place.clone(), content(world.load(place)))).collect();
        let is_allowed = self.states[acknowledged..].contains(&found);
        let lens = found.iter().map(|(_, record)| record.as_ref().map(Vec::len));
        assert!(
            is_allowed,
            "{acknowledged} batches were acknowledged, and records of these lengths are there: {:?}",
            lens.collect::<Vec<_>>()
        );
    }
}

fn content(load: Load) -> Option<Vec<u8>> {
    match load {
        Load::Found(record) => Some(record.to_vec()),
        Load::Absent => None,
        Load::Lost | Load::Pending => panic!("{load:?} without any damage"),
    }
}

fn put(content: &mut Vec<u8>, sector: usize, bytes: &[u8]) {
    let end = sector * SECTOR + bytes.len();
    content.resize(content.len().max(end), 0);
    content[sector * SECTOR..end].copy_from_slice(bytes);
}

/// For each pending sector 0 (as old as it was) or the number of a version: all ways, or some of them.
fn choices(pending: &[(File, usize, Vec<Vec<u8>>)], prng: &mut Prng) -> (Vec<Vec<usize>>, bool) {
    let ways: Vec<usize> = pending.iter().map(|(.., versions)| versions.len() + 1).collect();
    let all = ways.iter().try_fold(1_usize, |all, ways| all.checked_mul(*ways));
    if let Some(all) = all.filter(|&all| all <= STATES_MAX) {
        let choice = |mut number: usize| {
            let mut digit = |ways: &usize| {
                let digit = number % ways;
                number /= ways;
                digit
            };
            ways.iter().map(&mut digit).collect()
        };
        return ((0..all).map(choice).collect(), true);
    }
    let newest = |at: usize| ways[at] - 1;
    let only = |one: usize, is_new: bool| {
        let one = |at: usize| if (at == one) == is_new { newest(at) } else { 0 };
        (0..ways.len()).map(one).collect()
    };
    let mut some: Vec<Vec<usize>> =
        vec![vec![0; ways.len()], (0..ways.len()).map(newest).collect()];
    let step = ways.len().div_ceil(SAMPLES / 4);
    some.extend((0..ways.len()).step_by(step).flat_map(|one| [only(one, true), only(one, false)]));
    while some.len() < SAMPLES {
        let chance = *prng.pick(&[0.1, 0.5, 0.9]);
        let draw = |&ways: &usize| {
            if prng.chance(chance) { prng.below(ways as u64) as usize } else { ways - 1 }
        };
        some.push(ways.iter().map(draw).collect());
    }
    (some, false)
}

/// A meta, a key that is too long for a page, and short ones.
fn places() -> Vec<Place> {
    let cell = |key: &[u8]| Place::Cell(Database(0), Key::new(key));
    let mut places = vec![Place::Meta(Database(0), Shard(3)), cell(&[b'l'; 700])];
    places.extend((0..10_u8).map(|number| cell(&[b'k', number])));
    places
}

#[test]
fn whatever_a_loss_of_power_leaves_is_the_state_after_some_batch() {
    let places = places();
    let mut history = History::begin(&places);
    let (large, long) = (vec![7; 3_000], vec![8; 1_300]);
    history.batch(&[(0, Some(b"floor")), (2, Some(b"one")), (3, Some(b"two"))]);
    history.batch(&[(2, Some(b"three")), (1, Some(b"a long key"))]);
    history.batch(&[(4, Some(&[4; 900])), (5, Some(&[5; 900])), (6, Some(&[6; 900]))]);
    history.settle();
    history.batch(&[(3, None), (7, Some(&large)), (0, Some(b"ceiling")), (8, Some(&long))]);
    history.batch(&[(7, Some(b"small again")), (2, None)]);
    history.settle();
    history.batch(&(2..12).map(|at| (at, Some(&[9; 200][..]))).collect::<Vec<_>>());
    history.settle();
    let (states, complete) = history.replay(&mut Prng::new(1));
    assert!(complete >= 8, "only {complete} moments were looked at in every state");
    assert!(states > 1_000, "only {states} states");
}

#[test]
fn the_same_while_the_ring_wraps_and_buckets_are_divided() {
    let places = places();
    let mut history = History::begin(&places);
    let mut prng = Prng::new(5);
    for batch in 0..90_u64 {
        let record = vec![batch as u8; 200 + prng.below(1_300) as usize];
        let at = prng.below(places.len() as u64) as usize;
        let record = (at == 0 || prng.chance(0.9)).then_some(&record[..]);
        history.batch(&[(at, record)]);
        if batch % 30 == 29 {
            history.settle();
        }
    }
    let (states, _) = history.replay(&mut prng);
    assert!(states > 1_200, "only {states} states");
}
