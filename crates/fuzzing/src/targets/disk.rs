//! The files of a store on disk, damaged: headers, ring stripes, pages, maps, large records, spare images.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use base::Prng;
use bytes::Bytes;
use storage::disk::{Config, Done, Io, LocalGuard, LocalStore, Medium, create, verify};
use storage::{Completion, Load, Place, Store};
use types::{Database, Key, Shard};

use super::Target;
use super::image::{self, Damage, History};
use crate::input::Input;

pub(super) const TARGET: Target = Target {
    name: "disk",
    claim: "a damaged store opens or refuses; a place holds its newest record or is lost; what is written then is kept",
    run,
    seeds,
    short: 1_500,
};

const BINDING: u64 = 0x5eed_0001;
const WORKERS: usize = 2;
const PLACES: u64 = 60;
/// Polls after which a store surely will not answer any more.
const POLLS_MAX: usize = 20_000;

fn config() -> Config {
    Config {
        ring_bytes: 64 << 10,
        spare_pages: 64,
        initial_level: 1,
        cache_bytes: 64 << 10,
        fill_percent: 60,
        first_fit: true,
    }
}

/// Four files in memory; requests are carried out at once.
#[derive(Clone, Default)]
struct Files(Arc<Mutex<Content>>);

#[derive(Default)]
struct Content {
    files: Vec<Vec<u8>>,
    done: Vec<Done>,
}

impl Files {
    fn of(files: Vec<Vec<u8>>) -> Files {
        Files(Arc::new(Mutex::new(Content { files, done: Vec::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium for Files {
    fn submit(&mut self, io: Io) {
        let Content { files, done } = &mut *self.lock();
        let id = io.id();
        let result = match io {
            Io::Read { file, offset, len, .. } | Io::Verify { file, offset, len, .. } => {
                let content = &files[file as usize];
                let start = content.len().min(offset as usize);
                let there = &content[start..content.len().min(start + len)];
                let mut bytes = there.to_vec();
                bytes.resize(len, 0);
                Bytes::from(bytes)
            }
            Io::Store { writes, .. } => {
                for write in writes {
                    let content = &mut files[write.file as usize];
                    let (start, end) =
                        (write.offset as usize, write.offset as usize + write.bytes.len());
                    content.resize(content.len().max(end), 0);
                    content[start..end].copy_from_slice(&write.bytes);
                }
                Bytes::new()
            }
            Io::Cut { file, len, .. } => {
                files[file as usize].truncate(len as usize);
                Bytes::new()
            }
            Io::Discard { file, runs, .. } => {
                for (offset, len) in runs {
                    let content = &mut files[file as usize];
                    let end = content.len().min((offset + len) as usize);
                    content[end.min(offset as usize)..end].fill(0);
                }
                Bytes::new()
            }
        };
        done.push(Done { id, result: Ok(result) });
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.lock().done);
    }

    fn wait(&mut self, done: &mut Vec<Done>) {
        self.poll(done);
    }
}

/// A store that has lived: pages, large records, and a ring with what has not gone home.
struct Lived {
    files: Vec<Vec<u8>>,
    history: History,
}

struct Open {
    keeper: LocalGuard<Files>,
    stores: Vec<LocalStore<Files>>,
    /// Up to which ticket, by worker.
    stored: Vec<u64>,
}

impl Open {
    fn store_of(&mut self, place: &Place) -> &mut LocalStore<Files> {
        let shard = match place {
            Place::Cell(_, key) => key.shard(),
            Place::Meta(_, shard) => *shard,
        };
        &mut self.stores[usize::from(shard.0) % WORKERS]
    }

    fn put(&mut self, place: &Place, record: Option<&[u8]>) {
        match record {
            Some(record) => self.store_of(place).put(place, record),
            None => self.store_of(place).remove(place),
        }
    }

    /// Submits, and polls until all is stored; false when the medium failed.
    fn commit(&mut self) -> bool {
        self.stores.iter_mut().for_each(Store::submit);
        for (store, stored) in self.stores.iter_mut().zip(&mut self.stored) {
            let wanted = store.ticket().0 - 1;
            let mut heard = Vec::new();
            for _ in 0..POLLS_MAX {
                if *stored >= wanted {
                    break;
                }
                store.poll(&mut heard);
                for completion in heard.drain(..) {
                    match completion {
                        Completion::Stored(ticket) => *stored = ticket.0,
                        Completion::Failed(_) => return false,
                        _ => {}
                    }
                }
            }
            assert!(*stored >= wanted, "a batch is never stored");
        }
        true
    }

    fn load(&mut self, place: &Place) -> Option<Load> {
        let mut heard = Vec::new();
        let store = self.store_of(place);
        let mut load = store.load(place);
        for _ in 0..POLLS_MAX {
            if load != Load::Pending {
                return Some(load);
            }
            heard.clear();
            store.poll(&mut heard);
            for completion in heard.drain(..) {
                match completion {
                    Completion::Loaded { place: of, load: found } if of == *place => load = found,
                    Completion::Failed(_) => return None,
                    _ => {}
                }
            }
        }
        panic!("no answer for {place:?}");
    }
}

fn open(files: &Files) -> Option<Open> {
    let (keeper, stores) = LocalGuard::open(files.clone(), BINDING, WORKERS, &config()).ok()?;
    Some(Open { keeper, stores, stored: vec![0; WORKERS] })
}

fn place(number: u64) -> Place {
    match number {
        0..4 => Place::Meta(Database(0), Shard(number as u8)),
        _ => {
            let mut key = format!("key-{number}").into_bytes();
            if number.is_multiple_of(31) {
                key.resize(700, b'.');
            }
            Place::Cell(Database(if number.is_multiple_of(5) { 3 } else { 0 }), Key::new(&key))
        }
    }
}

fn lived() -> &'static Lived {
    static LIVED: OnceLock<Lived> = OnceLock::new();
    LIVED.get_or_init(|| {
        let files = Files::of(vec![Vec::new(); 4]);
        create(&mut files.clone(), BINDING, &config()).expect("empty files take a store");
        let mut history = History::new();
        let mut open = open(&files).expect("it was created");
        let mut prng = Prng::new(5);
        for round in 0..12 {
            for number in 0..PLACES {
                // The last rounds touch few places: the others are in pages only.
                if round > 0 && prng.below(12) < round {
                    continue;
                }
                let place = place(number);
                let len = if number.is_multiple_of(9) { 3_000 } else { prng.below(120) };
                let record: Vec<u8> = (0..len).map(|_| prng.next_u64() as u8).collect();
                let record = (round == 0 || prng.chance_ppm(850_000)).then_some(record);
                open.put(&place, record.as_deref());
                history.entry(place).or_default().push(record);
                if prng.chance_ppm(200_000) {
                    assert!(open.commit(), "memory does not fail");
                }
            }
            assert!(open.commit(), "memory does not fail");
            if round == 7 {
                open.keeper.rest();
            }
        }
        let files = files.lock().files.clone();
        Lived { files, history }
    })
}

fn run(data: &[u8]) {
    let lived = lived();
    let mut files = lived.files.clone();
    let damage = image::damage(&mut files, &mut Input::new(data));
    let files = Files::of(files);
    // Its report is checked by what it does not do: panic, or write.
    let before = (damage == Damage::Noise).then(|| files.lock().files.clone());
    drop(verify(&mut files.clone(), &mut |_| ()));
    assert!(before.is_none_or(|before| before == files.lock().files), "the check wrote something");
    let Some(mut open) = open(&files) else { return };
    for place in lived.history.keys() {
        let Some(load) = open.load(place) else { return };
        image::check(&lived.history, place, &load, damage);
    }
    go_on(lived, open, &files, damage);
}

/// What is written into the damaged store is there after the next start, or known to be lost.
fn go_on(lived: &Lived, mut damaged: Open, files: &Files, damage: Damage) {
    let mut history = lived.history.clone();
    for (index, (place, states)) in history.iter_mut().enumerate() {
        let record = vec![index as u8; 50];
        damaged.put(place, Some(&record));
        states.push(Some(record));
    }
    if !damaged.commit() {
        assert!(damage == Damage::Forged, "memory does not fail");
        return;
    }
    drop(damaged);
    let mut next = open(files).expect("a store that has just been written opens");
    for place in history.keys() {
        let load = next.load(place).expect("memory does not fail");
        image::check(&history, place, &load, damage);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    image::seeds(4)
}
