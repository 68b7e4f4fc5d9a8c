//! A disk in memory that may delay, reorder, tear and lose unflushed writes, and rot its bytes.

mod fault;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use base::Prng;
use bytes::Bytes;
use storage::disk::{Config, Done, File, Files, Io, LocalGuard, LocalStore, Medium, Write};
use storage::{Completion, Load, Place, Scrubbed, Share, Store};
use types::{Database, Key};

pub use fault::Fault;

pub const SECTOR: usize = 512;
pub const BINDING: u64 = 0x5eed_0001;

/// A small store, so that few operations fill pages, rings and spares.
pub fn small_config() -> Config {
    Config {
        ring_bytes: 64 << 10,
        spare_pages: 64,
        initial_level: 1,
        cache_bytes: 64 << 10,
        fill_percent: 60,
        first_fit: false,
    }
}

pub fn cell(number: u64) -> Place {
    Place::Cell(Database(0), Key::new(&number.to_le_bytes()))
}

/// The record of a cell, which is always the same.
pub fn record(number: u64, len: usize) -> Vec<u8> {
    let mut prng = Prng::new(number);
    (0..len).map(|_| prng.next_u64() as u8).collect()
}

/// Hands the record of a cell to the first store.
pub fn put(world: &mut World, number: u64, len: usize) {
    world.stores[0].put(&cell(number), &record(number, len));
    world.stores[0].submit();
}

/// Numbers whose cells are in this bucket while there are two to the power of `level`.
pub fn of_bucket(level: u32, bucket: u64) -> impl Iterator<Item = u64> {
    let bucket_of = move |number: u64| {
        let hash = Key::new(&number.to_le_bytes()).hash();
        (hash >> (64 - level)).reverse_bits() >> (64 - level)
    };
    (0..).filter(move |&number| bucket_of(number) == bucket)
}

#[derive(Clone, Default)]
struct Content {
    /// The certain content after a loss of power.
    durable: Vec<u8>,
    /// The content for a reader.
    visible: Vec<u8>,
    /// Sectors written since the last flush: their versions in order.
    pending: BTreeMap<usize, Vec<Vec<u8>>>,
}

/// Requests that a device does not answer.
#[derive(Clone, Copy)]
pub enum Withheld {
    /// Reads of a file, but no verification.
    Reads(File),
    /// Reads and verifications from this byte on.
    At(File, u64),
    /// Writes that are flushed.
    Stores(File),
}

impl Withheld {
    fn is(self, io: &Io) -> bool {
        match (self, io) {
            (Withheld::Reads(of), Io::Read { file, .. }) => of == *file,
            (
                Withheld::At(of, at),
                Io::Read { file, offset, .. } | Io::Verify { file, offset, .. },
            ) => of == *file && at == *offset,
            (Withheld::Stores(of), Io::Store { flush, .. }) => flush.contains(of),
            _ => false,
        }
    }
}

struct UnderWay {
    io: Io,
    delay: u64,
    written: bool,
    /// The bytes that a read found when it was submitted.
    early: Option<Done>,
}

impl Content {
    fn cut(&mut self, len: u64) {
        self.visible.truncate(len as usize);
        self.durable.truncate(len as usize);
        self.pending.retain(|&sector, _| sector * SECTOR < len as usize);
    }
}

/// The device: shared, so that a test can look at it behind a store's back.
#[derive(Clone)]
pub struct SimDisk {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    files: Vec<Content>,
    under_way: Vec<UnderWay>,
    prng: Prng,
    delay_max: u64,
    stores: u64,
    flushes_left: Option<u64>,
    withheld: Option<Withheld>,
    reads_early: bool,
    /// After how many requests that it could be of.
    fault: Option<(Fault, u64)>,
    has_failed: bool,
    /// Sectors of a file that cannot be read until they are written.
    unreadable: Option<(File, std::ops::Range<usize>)>,
}

impl SimDisk {
    /// Requests take up to `delay_max` polls.
    pub fn new(seed: u64, delay_max: u64) -> SimDisk {
        let inner = Inner {
            files: vec![Content::default(); 4],
            under_way: Vec::new(),
            prng: Prng::new(seed),
            delay_max,
            stores: 0,
            flushes_left: None,
            withheld: None,
            reads_early: false,
            fault: None,
            has_failed: false,
            unreadable: None,
        };
        SimDisk { inner: Arc::new(Mutex::new(inner)) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a verification reads the device when it is asked for, however late the answer comes.
    pub fn read_early(&self, is_early: bool) {
        self.lock().reads_early = is_early;
    }

    /// A possible content after a loss of power now: every sector that was not flushed is old or
    /// new.
    pub fn crashed(&self, seed: u64) -> SimDisk {
        let inner = self.lock();
        let mut prng = Prng::new(seed);
        let keep_ppm = *prng.pick(&[0, 200_000, 500_000, 900_000, 1_000_000]);
        let mut files = Vec::new();
        for content in &inner.files {
            let mut bytes = content.durable.clone();
            for (&sector, versions) in &content.pending {
                if prng.chance_ppm(keep_ppm) {
                    write_at(&mut bytes, sector * SECTOR, prng.pick::<Vec<u8>>(versions));
                }
            }
            files.push(Content {
                durable: bytes.clone(),
                visible: bytes,
                pending: BTreeMap::new(),
            });
        }
        // Writes that had not even reached the cache may be there as well.
        for under_way in &inner.under_way {
            if let Io::Cut { file, len, .. } = under_way.io
                && prng.chance_ppm(keep_ppm)
            {
                files[file as usize].cut(len);
            }
            if !under_way.written {
                for write in writes(&under_way.io).iter() {
                    for (i, sector) in write.bytes.chunks(SECTOR).enumerate() {
                        if prng.chance_ppm(keep_ppm) {
                            let content = &mut files[write.file as usize];
                            write_at(
                                &mut content.durable,
                                write.offset as usize + i * SECTOR,
                                sector,
                            );
                        }
                    }
                }
            }
        }
        for content in &mut files {
            content.visible = content.durable.clone();
        }
        let (delay_max, prng) = (inner.delay_max, prng.fork());
        let inner = Inner {
            files,
            under_way: Vec::new(),
            prng,
            delay_max,
            stores: 0,
            flushes_left: None,
            withheld: None,
            reads_early: inner.reads_early,
            fault: None,
            has_failed: false,
            unreadable: None,
        };
        SimDisk { inner: Arc::new(Mutex::new(inner)) }
    }

    /// The content for the next process: writes of this one may be durable or not.
    pub fn restarted(&self, seed: u64) -> SimDisk {
        let mut inner = self.lock();
        let mut prng = Prng::new(seed);
        let mut files = inner.files.clone();
        let (delay_max, reads_early) = (inner.delay_max, inner.reads_early);
        for content in &mut files {
            content.visible = content.durable.clone();
            for (&sector, versions) in &content.pending {
                let newest = versions.last().expect("a pending sector has a version");
                write_at(&mut content.visible, sector * SECTOR, newest);
            }
        }
        let mut next = Inner {
            files,
            under_way: Vec::new(),
            prng: inner.prng.fork(),
            delay_max,
            stores: 0,
            flushes_left: None,
            withheld: None,
            reads_early,
            fault: None,
            has_failed: false,
            unreadable: None,
        };
        let keep_ppm = *prng.pick(&[0, 500_000, 1_000_000]);
        for under_way in &inner.under_way {
            if let Io::Cut { file, len, .. } = under_way.io
                && prng.chance_ppm(keep_ppm)
            {
                next.files[file as usize].cut(len);
            }
            if !under_way.written {
                next.apply_some(&under_way.io, &mut prng, keep_ppm);
            }
        }
        SimDisk { inner: Arc::new(Mutex::new(next)) }
    }

    /// Lets so many more requests of a kind succeed; the next one fails, and no other.
    pub fn fail_once(&self, fault: Fault, after: u64) {
        let mut inner = self.lock();
        inner.fault = Some((fault, after));
        inner.has_failed = false;
    }

    /// From here on these sectors cannot be read; a write to one of them mends all.
    pub fn make_unreadable(&self, file: File, sectors: std::ops::Range<usize>) {
        self.lock().unreadable = Some((file, sectors));
    }

    /// Takes that back, if it has not happened.
    pub fn fail_no_more(&self) {
        self.lock().fault = None;
    }

    /// True if that has happened.
    pub fn has_failed(&self) -> bool {
        self.lock().has_failed
    }

    /// An independent copy of the durable and visible content; no request may be under way.
    pub fn copy(&self) -> SimDisk {
        let mut inner = self.lock();
        let (files, prng) = (inner.files.clone(), inner.prng.fork());
        let inner = Inner {
            files,
            under_way: Vec::new(),
            prng,
            delay_max: inner.delay_max,
            stores: 0,
            flushes_left: None,
            withheld: None,
            reads_early: inner.reads_early,
            fault: None,
            has_failed: false,
            unreadable: None,
        };
        SimDisk { inner: Arc::new(Mutex::new(inner)) }
    }

    pub fn file_len(&self, file: File) -> usize {
        self.lock().files[file as usize].visible.len()
    }

    pub fn bytes(&self, file: File) -> Vec<u8> {
        self.lock().files[file as usize].visible.clone()
    }

    /// Changes the content of the device, unseen by the store.
    pub fn rot(&self, file: File, change: impl FnOnce(&mut Vec<u8>)) {
        let content = &mut self.lock().files[file as usize];
        change(&mut content.visible);
        content.durable = content.visible.clone();
        content.pending.clear();
    }

    /// The same of one file, with pending writes left to come.
    pub fn rot_lasting(&self, file: File, change: impl Fn(&mut Vec<u8>)) {
        let content = &mut self.lock().files[file as usize];
        change(&mut content.visible);
        change(&mut content.durable);
    }

    /// Store requests taken so far.
    pub fn stores(&self) -> u64 {
        self.lock().stores
    }

    /// Some of a file is read no more: as a medium that is slow for ever.
    pub fn withhold(&self, what: Withheld) {
        self.lock().withheld = Some(what);
    }

    /// Reads under way find the present content of the device, however late their answers come.
    pub fn read_now(&self) {
        let mut inner = self.lock();
        let mut under_way = std::mem::take(&mut inner.under_way);
        for reading in under_way.iter_mut().filter(|it| matches!(it.io, Io::Read { .. })) {
            reading.early = Some(inner.finish(&reading.io));
        }
        inner.under_way = under_way;
    }

    /// Ends that.
    pub fn release(&self) {
        self.lock().withheld = None;
    }

    /// Requests take up to so many polls from here on.
    pub fn set_delay(&self, max: u64) {
        self.lock().delay_max = max;
    }

    /// Lets so many more flushes succeed; the next one fails.
    pub fn fail_after(&self, flushes: u64) {
        self.lock().flushes_left = Some(flushes);
    }
}

/// The bytes that a request changes; discarded ones become zeros.
pub fn writes(io: &Io) -> Vec<Write> {
    match io {
        Io::Store { writes, .. } => writes.clone(),
        Io::Discard { file, runs, .. } => {
            let zeros = |&(offset, len): &(u64, u64)| {
                let bytes = Bytes::from(vec![0; len as usize]);
                Write { file: *file, offset, bytes }
            };
            runs.iter().map(zeros).collect()
        }
        Io::Read { .. } | Io::Verify { .. } | Io::Cut { .. } => Vec::new(),
    }
}

fn write_at(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if content.len() < offset + bytes.len() {
        content.resize(offset + bytes.len(), 0);
    }
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl Inner {
    fn apply(&mut self, io: &Io) {
        for write in writes(io).iter() {
            assert_eq!(write.offset as usize % SECTOR, 0, "writes begin with a sector");
            let content = &mut self.files[write.file as usize];
            write_at(&mut content.visible, write.offset as usize, &write.bytes);
            let first = write.offset as usize / SECTOR;
            let end = first + write.bytes.len().div_ceil(SECTOR);
            self.unreadable
                .take_if(|(of, bad)| *of == write.file && first < bad.end && bad.start < end);
            for (i, sector) in write.bytes.chunks(SECTOR).enumerate() {
                content.pending.entry(first + i).or_default().push(sector.to_vec());
            }
        }
    }

    fn finish(&mut self, io: &Io) -> Done {
        let id = io.id();
        let result = match io {
            Io::Read { file, offset, len, .. } | Io::Verify { file, offset, len, .. }
                if self.unreadable.as_ref().is_some_and(|(of, bad)| {
                    of == file
                        && (*offset as usize) < bad.end * SECTOR
                        && bad.start * SECTOR < *offset as usize + len
                }) =>
            {
                Err("input/output error".to_owned())
            }
            Io::Read { file, offset, len, .. } | Io::Verify { file, offset, len, .. } => {
                let content = &self.files[*file as usize].visible;
                let mut bytes = vec![0; *len];
                let start = (*offset as usize).min(content.len());
                let end = (*offset as usize + len).min(content.len());
                bytes[..end - start].copy_from_slice(&content[start..end]);
                Ok(Bytes::from(bytes))
            }
            Io::Store { flush, .. } => self.flush(*flush).map(|()| Bytes::new()),
            Io::Discard { .. } => Ok(Bytes::new()),
            Io::Cut { file, len, .. } => {
                let flushed = self.flush(Files::of(*file)).map(|()| Bytes::new());
                self.files[*file as usize].cut(*len);
                flushed
            }
        };
        Done { id, result }
    }

    fn flush(&mut self, files: Files) -> Result<(), String> {
        if files == Files::default() {
            return Ok(());
        }
        if let Some(left) = &mut self.flushes_left {
            if *left == 0 {
                return Err("the disk says no".to_owned());
            }
            *left -= 1;
        }
        for file in files.iter() {
            let content = &mut self.files[file as usize];
            for (sector, versions) in std::mem::take(&mut content.pending) {
                let newest = versions.last().expect("a pending sector has a version");
                write_at(&mut content.durable, sector * SECTOR, newest);
            }
        }
        Ok(())
    }

    fn complete(&mut self, done: &mut Vec<Done>, at_once: bool) {
        let mut i = 0;
        while i < self.under_way.len() {
            if self.withheld.is_some_and(|withheld| withheld.is(&self.under_way[i].io)) {
                i += 1;
                continue;
            }
            if self.under_way[i].delay > 0 && !at_once {
                self.under_way[i].delay -= 1;
                if self.under_way[i].delay == 0 && !self.under_way[i].written {
                    let io = self.under_way[i].io.clone();
                    // A failing request fails when it ends.
                    if !self.fault.is_some_and(|(fault, _)| fault.is_of(&io)) {
                        self.under_way[i].written = true;
                        self.apply(&io);
                    }
                }
                i += 1;
                continue;
            }
            let UnderWay { io, written, early, .. } = self.under_way.remove(i);
            if let Some(early) = early {
                done.push(early);
                continue;
            }
            let fault = self.fault.map(|(fault, _)| fault);
            if !written && self.is_faulty(&io) {
                let fault = fault.expect("there was one");
                done.push(self.finish_badly(&io, fault));
                continue;
            }
            if !written {
                self.apply(&io);
            }
            done.push(self.finish(&io));
        }
    }
}

impl Medium for SimDisk {
    fn submit(&mut self, io: Io) {
        let mut inner = self.lock();
        let delay_max = inner.delay_max;
        let delay = if delay_max == 0 { 0 } else { inner.prng.between(0, delay_max) };
        inner.stores += u64::from(matches!(io, Io::Store { .. }));
        let is_early = inner.reads_early && matches!(io, Io::Verify { .. });
        let early = is_early.then(|| inner.finish(&io));
        inner.under_way.push(UnderWay { io, delay, written: false, early });
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        self.lock().complete(done, false);
    }

    fn wait(&mut self, done: &mut Vec<Done>) {
        self.lock().complete(done, true);
    }
}

/// A store with its device and its workers' completions.
pub struct World {
    pub disk: SimDisk,
    pub guard: LocalGuard<SimDisk>,
    pub stores: Vec<LocalStore<SimDisk>>,
    pub heard: Vec<Vec<Completion>>,
    /// Steps of the scrub that were asked for and not taken out of the completions.
    pub scrubs: usize,
}

impl World {
    pub fn create(disk: SimDisk, workers: usize, config: &Config) -> World {
        storage::disk::create(&mut disk.clone(), BINDING, config)
            .expect("an empty disk takes a store");
        World::open(disk, workers, config)
    }

    pub fn open(disk: SimDisk, workers: usize, config: &Config) -> World {
        World::try_open(disk, workers, config).expect("a store that was made opens")
    }

    /// The error in words where the store does not open.
    pub fn try_open(disk: SimDisk, workers: usize, config: &Config) -> Result<World, String> {
        let opened = LocalGuard::open(disk.clone(), BINDING, workers, config);
        let (guard, stores) = opened.map_err(|error| error.to_string())?;
        Ok(World { disk, guard, stores, heard: vec![Vec::new(); workers], scrubs: 0 })
    }

    /// Lets every worker poll once.
    pub fn poll(&mut self) {
        for (store, heard) in self.stores.iter_mut().zip(&mut self.heard) {
            store.poll(heard);
        }
    }

    /// Polls until no request is under way and all entries are at home.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            self.guard.rest();
            self.poll();
            if self.guard.under_way() == 0 && !self.guard.is_dirty() {
                return;
            }
        }
        panic!("the store does not come to rest");
    }

    /// Asks for a step of the scrub.
    pub fn ask_scrub(&mut self, bytes: u64) {
        let share = Share { worker: 0, workers: self.stores.len() };
        self.stores[0].scrub(share, bytes);
        self.scrubs += 1;
    }

    /// True until the last step was answered.
    pub fn is_scrubbing(&self) -> bool {
        let is_it = |completion: &&Completion| matches!(completion, Completion::Scrubbed(_));
        self.heard[0].iter().filter(is_it).count() < self.scrubs
    }

    /// Scrubs everything once, from the beginning; the sums of all steps.
    pub fn scrub_all(&mut self, bytes: u64) -> Scrubbed {
        let mut sum = Scrubbed::default();
        while !sum.has_ended {
            self.ask_scrub(bytes);
            while self.is_scrubbing() {
                self.settle();
            }
            self.heard[0].retain(|completion| match completion {
                Completion::Scrubbed(step) => {
                    sum.bytes += step.bytes;
                    sum.registers += step.registers;
                    sum.damaged += step.damaged;
                    sum.has_ended |= step.has_ended;
                    false
                }
                _ => true,
            });
            self.scrubs = 0;
        }
        sum
    }

    pub fn owner(&self, place: &Place) -> usize {
        let shard = match place {
            Place::Cell(_, key) => key.shard(),
            Place::Meta(_, shard) => *shard,
        };
        usize::from(shard.0) % self.stores.len()
    }

    /// Loads a place, waiting for the answer.
    pub fn load(&mut self, place: &Place) -> Load {
        let owner = self.owner(place);
        match self.stores[owner].load(place) {
            Load::Pending => {}
            load => return load,
        }
        for _ in 0..10_000 {
            let from = self.heard[owner].len();
            self.poll();
            let mut answers = self.heard[owner][from..].iter();
            let answer = answers.find_map(|completion| match completion {
                Completion::Loaded { place: of, load } if of == place => Some(load.clone()),
                _ => None,
            });
            if let Some(load) = answer {
                assert_ne!(load, Load::Pending);
                return load;
            }
        }
        panic!("no answer for {place:?}");
    }
}

/// Seeds to run: `DISK_SEED` replays one, `DISK_SEEDS` sets how many.
pub fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    match number("DISK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DISK_SEEDS").unwrap_or(default),
    }
}
