//! The disk store with its threads, on real files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use base::Prng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use storage::disk::{
    Committer, Config, DiskStore, OpenError, StoreGuard, Waker, create_at, open_at,
};
use storage::{Completion, Load, Place, Store};
use types::{Database, Key, Ticket};

const BINDING: u64 = 77;
const WORKERS: usize = 3;

/// A directory that goes away with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("palimpsest-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A thread that moves a store on, as those do that turn workers.
struct Attendant {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Attendant {
    fn of(guard: &StoreGuard) -> Attendant {
        let committer = guard.committer();
        let ends = Arc::new(AtomicBool::new(false));
        let run = (committer, Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            let (committer, ends) = run;
            while !ends.load(Ordering::SeqCst) {
                wait_for(&committer);
                committer.notice();
                committer.advance();
            }
        });
        Attendant { ends, thread: Some(thread) }
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking());
    }
}

/// Until the system has completed something, or for a moment.
fn wait_for(committer: &Committer) {
    let moment = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    match committer.fd() {
        Some(fd) => {
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&moment))
                .expect("it can be waited for");
        }
        None => drop(poll(&mut [], Some(&moment))),
    }
}

/// Rung by the store, waited for by a worker.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    has_rung: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().expect("no panic holds it") = true;
        self.has_rung.notify_one();
    }

    fn wait(&self) {
        let rung = self.rung.lock().expect("no panic holds it");
        let limit = Duration::from_secs(60);
        let waited = self.has_rung.wait_timeout_while(rung, limit, |rung| !*rung);
        let (mut rung, _) = waited.expect("no panic holds it");
        assert!(std::mem::take(&mut *rung), "nobody has rung for {limit:?}");
    }
}

struct Worker {
    store: DiskStore,
    committer: Committer,
    bell: Arc<Bell>,
    stored: Ticket,
    loaded: BTreeMap<Place, Load>,
}

impl Worker {
    fn advance(&self) {
        self.committer.advance();
    }

    fn poll(&mut self) {
        let mut completions = Vec::new();
        self.store.poll(&mut completions);
        self.advance();
        for completion in completions {
            match completion {
                Completion::Stored(ticket) => self.stored = ticket,
                Completion::Loaded { place, load } => drop(self.loaded.insert(place, load)),
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    fn await_stored(&mut self, ticket: Ticket) {
        while self.stored < ticket {
            self.bell.wait();
            self.poll();
        }
    }

    fn load(&mut self, place: &Place) -> Load {
        match self.store.load(place) {
            Load::Pending => {}
            load => return load,
        }
        self.poll();
        while !self.loaded.contains_key(place) {
            self.bell.wait();
            self.poll();
        }
        self.loaded.remove(place).expect("it has just come")
    }
}

fn open(dir: &Path, config: &Config) -> (StoreGuard, Vec<Worker>, Attendant) {
    let bells: Vec<Arc<Bell>> = (0..WORKERS).map(|_| Arc::default()).collect();
    let wakers = bells
        .iter()
        .map(|bell| {
            let bell = Arc::clone(bell);
            Box::new(move || bell.ring()) as Waker
        })
        .collect();
    let (guard, stores) = open_at(dir, BINDING, config, wakers).expect("it was created");
    let workers = stores.into_iter().zip(bells).map(|(store, bell)| Worker {
        store,
        committer: guard.committer(),
        bell,
        stored: Ticket::DURABLE,
        loaded: BTreeMap::new(),
    });
    let workers = workers.collect();
    let attendant = Attendant::of(&guard);
    (guard, workers, attendant)
}

/// Many turns of one worker on keys of its own.
fn turns(worker: &mut Worker, number: usize, turns: u64, model: &mut BTreeMap<Place, Vec<u8>>) {
    let mut prng = Prng::new(number as u64);
    for turn in 0..turns {
        for _ in 0..prng.between(1, 20) {
            let place = own_place(&mut prng, number);
            let large = prng.chance(0.01);
            let len = if large { prng.between(1_000, 300_000) } else { prng.between(0, 100) };
            let record = vec![turn as u8; len as usize];
            worker.store.put(&place, &record);
            model.insert(place, record);
        }
        let ticket = worker.store.ticket();
        worker.store.submit();
        worker.advance();
        worker.await_stored(ticket);
        if turn % 16 == 0 {
            let place = own_place(&mut prng, number);
            let wanted = model.get(&place).map_or(Load::Absent, |r| Load::Found(r.clone().into()));
            assert!(worker.load(&place) == wanted);
        }
    }
}

/// A key whose shard belongs to this worker.
fn own_place(prng: &mut Prng, worker: usize) -> Place {
    loop {
        let key = Key::new(format!("key-{}", prng.below(5_000)).as_bytes());
        if usize::from(key.shard().0) % WORKERS == worker {
            return Place::Cell(Database(0), key);
        }
    }
}

#[test]
fn workers_on_threads_find_everything_after_a_restart() {
    let dir = Directory::new("shell");
    let config = Config { ring_bytes: 1 << 20, cache_bytes: 64 << 10, ..Config::default() };
    create_at(&dir.0, BINDING, &config).expect("an empty directory takes a store");
    let mut models: Vec<BTreeMap<Place, Vec<u8>>> = vec![BTreeMap::new(); WORKERS];
    for round in 0..3 {
        let (guard, mut workers, attendant) = open(&dir.0, &config);
        for (number, model) in models.iter().enumerate() {
            for (place, record) in model {
                assert!(workers[number].load(place) == Load::Found(record.clone().into()));
            }
        }
        let turns_each = if round < 2 { 300 } else { 0 };
        std::thread::scope(|scope| {
            for (number, (worker, model)) in workers.iter_mut().zip(&mut models).enumerate() {
                scope.spawn(move || turns(worker, number, turns_each, model));
            }
        });
        drop(attendant);
        guard.stop();
    }
}

#[test]
fn submitted_changes_survive_a_stop_without_attendant() {
    let dir = Directory::new("unattended");
    let config = Config { ring_bytes: 1 << 20, ..Config::default() };
    create_at(&dir.0, BINDING, &config).expect("an empty directory takes a store");
    let (guard, mut workers, attendant) = open(&dir.0, &config);
    drop(attendant);
    let mut prng = Prng::new(1);
    let places: Vec<Place> = (0..50).map(|_| own_place(&mut prng, 0)).collect();
    for place in &places {
        workers[0].store.put(place, b"last words");
        workers[0].store.submit();
        workers[0].advance();
    }
    guard.stop();
    let (_guard, mut workers, _attendant) = open(&dir.0, &config);
    for place in &places {
        assert_eq!(workers[0].load(place), Load::Found(b"last words"[..].into()));
    }
}

#[test]
fn a_worker_that_found_the_store_full_is_woken_when_it_no_longer_is() {
    let dir = Directory::new("full");
    let config = Config { ring_bytes: 64 << 10, spare_pages: 32, ..Config::default() };
    create_at(&dir.0, BINDING, &config).expect("an empty directory takes a store");
    let (_guard, mut workers, _attendant) = open(&dir.0, &config);
    let worker = &mut workers[0];
    let mut prng = Prng::new(7);
    for _ in 0..5 {
        while !worker.store.is_full() {
            worker.store.put(&own_place(&mut prng, 0), &[7; 200]);
            worker.store.submit();
            worker.advance();
        }
        while worker.store.is_full() {
            worker.bell.wait();
            worker.poll();
        }
    }
}

#[test]
fn what_was_submitted_before_a_stop_is_there() {
    let dir = Directory::new("stop");
    let config = Config { ring_bytes: 1 << 20, ..Config::default() };
    create_at(&dir.0, BINDING, &config).expect("an empty directory takes a store");
    let (guard, mut workers, _attendant) = open(&dir.0, &config);
    let place = own_place(&mut Prng::new(1), 0);
    workers[0].store.put(&place, b"last words");
    workers[0].store.submit();
    guard.stop();
    let (_guard, mut workers, _attendant) = open(&dir.0, &config);
    assert_eq!(workers[0].load(&place), Load::Found(b"last words"[..].into()));
}

#[test]
fn directories_without_a_store_or_with_a_foreign_one_are_refused() {
    let dir = Directory::new("refused");
    let config = Config { ring_bytes: 64 << 10, ..Config::default() };
    let wakers = || vec![Box::new(|| ()) as Waker];
    assert_eq!(open_at(&dir.0, 1, &config, wakers()).err(), Some(OpenError::Missing));
    create_at(&dir.0, 1, &config).expect("an empty directory takes a store");
    assert_eq!(create_at(&dir.0, 1, &config), Err(OpenError::Exists));
    assert_eq!(open_at(&dir.0, 2, &config, wakers()).err(), Some(OpenError::Foreign));
}
