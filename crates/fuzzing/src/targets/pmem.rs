//! The mapped file of a store on persistent memory, damaged: superblocks, roots, directories, slots, intents.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use base::Prng;
use storage::pmem::layout::Geometry;
use storage::pmem::memory::Memory;
use storage::pmem::verify::verify_memory;
use storage::pmem::{Pmem, PmemStore};
use storage::volatile::Beginning;
use storage::{Completion, Load, Place, Store};
use types::{Database, Key, Shard};

use super::Target;
use super::image::{self, Damage, History};
use crate::input::Input;

pub(super) const TARGET: Target = Target {
    name: "pmem",
    claim: "a damaged file opens or refuses; a place holds its newest record or is lost",
    run,
    seeds,
    short: 600,
};

const BINDING: u64 = 0x5eed;
const GEOMETRY: Geometry = Geometry { workers: 2, databases: 1, segment_len: 256 << 10 };
const WORKERS: u32 = 2;
/// Bytes that the file may grow to.
const LEN_MAX: usize = 4 << 20;

/// Plain memory: nothing is ever lost from a cache.
#[derive(Clone)]
struct Words(Arc<Memories>);

struct Memories {
    words: Vec<AtomicU64>,
    /// How many of them there are for the medium.
    len: AtomicUsize,
}

impl Words {
    fn of(bytes: &[u8]) -> Words {
        let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        let mut words: Vec<AtomicU64> =
            bytes.chunks_exact(8).map(|c| AtomicU64::new(word(c))).collect();
        let len = AtomicUsize::new(words.len());
        words.resize_with(LEN_MAX / 8, AtomicU64::default);
        Words(Arc::new(Memories { words, len }))
    }

    fn bytes(&self) -> Vec<u8> {
        let words = &self.0.words[..self.0.len.load(Relaxed)];
        words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect()
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "{at} is not the offset of a word");
        assert!(at < self.len(), "{at} is beyond the end");
        &self.0.words[(at / 8) as usize]
    }
}

impl Memory for Words {
    fn len(&self) -> u64 {
        8 * self.0.len.load(Relaxed) as u64
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        if len > LEN_MAX as u64 {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the memory is full"));
        }
        self.0.len.fetch_max((len / 8) as usize, Relaxed);
        Ok(())
    }

    fn load(&self, at: u64) -> u64 {
        self.word(at).load(Relaxed)
    }

    fn store(&self, at: u64, word: u64) {
        self.word(at).store(word, Relaxed);
    }

    fn write_back(&self, _at: u64, _len: u64) {}

    fn fence(&self) {}

    fn settle(&self) -> io::Result<()> {
        Ok(())
    }
}

struct Lived {
    bytes: Vec<u8>,
    history: History,
}

fn store_of<'a>(stores: &'a mut [PmemStore<Words>], place: &Place) -> &'a mut PmemStore<Words> {
    let shard = match place {
        Place::Cell(_, key) => key.shard(),
        Place::Meta(_, shard) => *shard,
    };
    &mut stores[usize::from(shard.0) % WORKERS as usize]
}

fn place(number: u64) -> Place {
    match number {
        0..4 => Place::Meta(Database(0), Shard(number as u8)),
        _ => Place::Cell(Database(0), Key::new(format!("key-{number}").as_bytes())),
    }
}

fn lived() -> &'static Lived {
    static LIVED: OnceLock<Lived> = OnceLock::new();
    LIVED.get_or_init(|| {
        let memory = Words::of(&[]);
        let pmem = Pmem::format(memory.clone(), GEOMETRY, BINDING, Beginning::New);
        let pmem = pmem.expect("there is room");
        let mut stores: Vec<_> = (0..WORKERS).map(|worker| pmem.store(worker)).collect();
        let mut history = History::new();
        let mut prng = Prng::new(3);
        for round in 0..6 {
            for number in 0..50 {
                if round > 0 && prng.chance_ppm(500_000) {
                    continue;
                }
                let place = place(number);
                let len_max = *prng.pick(&[8, 40, 300, 1_200]);
                let len = 8 + prng.below(len_max);
                let record: Vec<u8> = (0..len).map(|_| prng.next_u64() as u8).collect();
                let record = (round == 0 || prng.chance_ppm(850_000)).then_some(record);
                let store = store_of(&mut stores, &place);
                match &record {
                    Some(record) => store.put(&place, record),
                    None => store.remove(&place),
                }
                if prng.chance_ppm(300_000) {
                    store.submit();
                }
                history.entry(place).or_default().push(record);
            }
            stores.iter_mut().for_each(Store::submit);
        }
        drop(stores);
        Lived { bytes: memory.bytes(), history }
    })
}

fn run(data: &[u8]) {
    let lived = lived();
    let mut files = vec![lived.bytes.clone()];
    let damage = image::damage(&mut files, &mut Input::new(data));
    // Files are mapped in whole pages, and never empty.
    let len = files[0].len().next_multiple_of(4096).max(4096);
    files[0].resize(len, 0);
    // It goes through all of a damaged directory, hash by hash: not every time.
    if data.len().is_multiple_of(4) {
        drop(verify_memory(Words::of(&files[0]), Path::new("words")));
    }
    let memory = Words::of(&files[0]);
    let Ok(pmem) = Pmem::from_memory(memory, BINDING, Path::new("words")) else { return };
    let mut stores: Vec<_> = (0..WORKERS).map(|worker| pmem.store(worker)).collect();
    for place in lived.history.keys() {
        let load = load(store_of(&mut stores, place), place);
        image::check(&lived.history, place, &load, damage);
    }
    for (index, place) in lived.history.keys().enumerate() {
        store_of(&mut stores, place).put(place, &[index as u8; 50]);
    }
    stores.iter_mut().for_each(Store::submit);
    let mut heard = Vec::new();
    stores.iter_mut().for_each(|store| store.poll(&mut heard));
    let failed = heard.iter().any(|completion| matches!(completion, Completion::Failed(_)));
    assert!(!failed || damage != Damage::Noise, "memory does not fail");
}

fn load(store: &mut PmemStore<Words>, place: &Place) -> Load {
    match store.load(place) {
        Load::Pending => {}
        load => return load,
    }
    let mut heard = Vec::new();
    store.poll(&mut heard);
    let answer = heard.into_iter().find_map(|completion| match completion {
        Completion::Loaded { place: of, load } if of == *place => Some(load),
        _ => None,
    });
    answer.unwrap_or(Load::Pending)
}

fn seeds() -> Vec<Vec<u8>> {
    image::seeds(1)
}
