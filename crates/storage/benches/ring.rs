//! The speed of the `disk` medium, beside plain loops over the same disk in the same run.
//!
//! `cargo bench -p storage --bench ring -- [VALUE_BYTES] [DIR] [ring|uniform|zipf|soak] [RING_MIB]`. A turn changes 64
//! distinct registers of a million and is durable with one flush. *append*: their bytes one after the other into a file
//! that has its length, past the page cache. *in place*: each at a place of its own, and a flush. Both put each behind a
//! checksum, as the store does. *ring*: the store, as long as no entry has to go home, several times from rest. *uniform*
//! and *zipf*: the store over ten times the length of its ring, write-back included, eight turns under way, for a worker
//! makes further ones while those before are not durable. The speed of an append of as many turns with one flush is told
//! beside it. Rounds alternate; the medians count. *soak*, only when it is asked for: the disk's use over a hundred
//! million overwrites whose lengths differ.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Prng;
use base::checksum::checksum;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::OFlags;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use storage::disk::{Committer, Config, DiskStore, StoreGuard, create_at, open_at};
use storage::{Completion, Place, Store};
use types::{Database, Key, Ticket};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const KEYS: u64 = 1_000_000;
const TURN: u64 = 64;
/// Under way while the next one is made.
const OPEN_TURNS: u64 = 8;
const SECTOR: usize = 512;
const APPEND_LEN: u64 = 256 << 20;
const ROUND: Duration = Duration::from_millis(1_500);
const ROUNDS: usize = 3;
/// How often the store is filled and settles in a round inside the ring.
const FILLS: usize = 5;
/// Bytes that the store writes at a stretch, in ring lengths.
const RINGS: u64 = 10;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let value_len = args.first().map_or(32, |len| len.parse().expect("bytes of a value"));
    let dir = args.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("palimpsest-ring-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the directory can be made");
    let ring_bytes = args.get(3).map_or(Config::default().ring_bytes, |mib| {
        mib.parse::<u64>().expect("length of the ring in MiB") << 20
    });
    run(&dir, value_len, args.get(2).map(String::as_str), ring_bytes);
    std::fs::remove_dir_all(&dir).expect("it is there");
}

fn run(dir: &Path, value_len: usize, only: Option<&str>, ring_bytes: u64) {
    let mut append = Append::new(&dir.join("append"), value_len);
    let mut in_place = InPlace::new(&dir.join("in-place"), value_len);
    let mut store = Loaded::new(&dir.join("store"), value_len, ring_bytes);
    println!(
        "{KEYS} registers of {value_len} bytes, {TURN} of them per turn; thousand writes per second"
    );
    if only == Some("soak") {
        return store.soak(&dir.join("store"));
    }
    let zipf = Zipf::new(0.99);
    if only.is_none_or(|only| only == "ring") {
        store.settle();
        // The processor on which a thread is woken decides more than its work: both loops stay on
        // one.
        let everywhere = stay_here();
        compare("ring", ("append", 0.8), || append.run(1), || store.inside_the_ring());
        sched_setaffinity(None, &everywhere).expect("the thread was there before");
    }
    if only.is_none_or(|only| only == "uniform") {
        compare("uniform", ("in place", 2.0), || in_place.run(), || store.sustained(&Uniform));
    }
    if only.is_none_or(|only| only == "zipf") {
        compare("zipf 0.99", ("append", 1.0), || append.run(1), || store.sustained(&zipf));
        let rate = append.run(OPEN_TURNS) / 1e3;
        println!("{:>10} {rate:8.1} with one flush for {OPEN_TURNS} turns", "append");
    }
}

/// Alternates two loops and prints the medians.
fn compare(
    name: &str,
    (raw_name, wanted): (&str, f64),
    mut raw: impl FnMut() -> f64,
    mut store: impl FnMut() -> Turns,
) {
    let (mut written, mut cpu) = (0, Duration::ZERO);
    let round = |_| {
        let raw = raw();
        let turns = store();
        written += turns.written;
        cpu += turns.cpu;
        (raw, turns.written as f64 / turns.time.as_secs_f64())
    };
    let (raws, stores): (Vec<f64>, Vec<f64>) = (0..ROUNDS).map(round).unzip();
    println!("{raws:.0?} {stores:.0?}");
    let (raw, store) = (median(raws), median(stores));
    let ratio = store / raw;
    println!("{raw_name:>10} {:8.1}", raw / 1e3);
    let cpu = cpu.as_nanos() as f64 / written as f64;
    println!(
        "{name:>10} {:8.1} = {ratio:.2} of {raw_name} (wanted: {wanted}); {cpu:.0} ns of CPU time each",
        store / 1e3
    );
}

/// Keeps this thread on the processor where it is. Where it could be before.
fn stay_here() -> CpuSet {
    let everywhere = sched_getaffinity(None).expect("the system tells");
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).expect("the thread is there");
    everywhere
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Registers written per second by turns for a while.
fn per_second(mut turn: impl FnMut()) -> f64 {
    let begun = Instant::now();
    let mut written = 0;
    while begun.elapsed() < ROUND {
        turn();
        written += TURN;
    }
    written as f64 / begun.elapsed().as_secs_f64()
}

/// Memory that begins where a device wants it to.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(len: usize) -> Aligned {
        let bytes = vec![7; len + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        Aligned(bytes, start)
    }

    fn bytes(&mut self, len: usize) -> &mut [u8] {
        &mut self.0[self.1..self.1 + len]
    }
}

fn preallocate(path: &Path, len: u64, flags: OFlags) -> File {
    let file = File::create(path).expect("the directory is writable");
    let zeros = vec![0; 1 << 20];
    (0..len.div_ceil(1 << 20)).for_each(|part| {
        file.write_all_at(&zeros, part << 20).expect("there is room");
    });
    file.sync_all().expect("the disk takes it");
    let flags = flags.bits().cast_signed();
    let options = OpenOptions::new().read(true).write(true).custom_flags(flags).to_owned();
    options.open(path).expect("the file system goes past its cache")
}

/// A register as a plain loop has it: key and value behind their checksum.
struct Record {
    content: Vec<u8>,
}

impl Record {
    fn new(value_len: usize) -> Record {
        Record { content: vec![7; KEY_LEN + value_len] }
    }

    fn len(&self) -> usize {
        CHECKSUM_LEN + self.content.len()
    }

    /// Writes it down for a place.
    fn put(&self, at: u64, into: &mut [u8]) {
        into[..CHECKSUM_LEN].copy_from_slice(&checksum(at, &self.content).to_le_bytes());
        into[CHECKSUM_LEN..self.len()].copy_from_slice(&self.content);
    }
}

struct Append {
    file: File,
    record: Record,
    turns: Aligned,
    len: usize,
    at: u64,
}

impl Append {
    fn new(path: &Path, value_len: usize) -> Append {
        let record = Record::new(value_len);
        let len = (TURN as usize * record.len()).next_multiple_of(SECTOR);
        let file = preallocate(path, APPEND_LEN, OFlags::DIRECT | OFlags::DSYNC);
        let turns = Aligned::new(len * OPEN_TURNS as usize);
        Append { file, record, turns, len, at: 0 }
    }

    /// With so many turns in one write and one flush.
    fn run(&mut self, turns: u64) -> f64 {
        let len = self.len * turns as usize;
        let writes = per_second(|| {
            let bytes = self.turns.bytes(len);
            for turn in bytes.chunks_exact_mut(self.len) {
                let records = turn.chunks_exact_mut(self.record.len()).take(TURN as usize);
                (self.at..).zip(records).for_each(|(at, room)| self.record.put(at, room));
            }
            self.file.write_all_at(bytes, self.at).expect("the disk takes it");
            self.at = (self.at + len as u64) % (APPEND_LEN - len as u64);
            self.at -= self.at % SECTOR as u64;
        });
        writes * turns as f64
    }
}

struct InPlace {
    file: File,
    record: Record,
    room: Vec<u8>,
    prng: Prng,
}

impl InPlace {
    fn new(path: &Path, value_len: usize) -> InPlace {
        let record = Record::new(value_len);
        let len = record.len().next_multiple_of(SECTOR);
        let file = preallocate(path, KEYS * len as u64, OFlags::empty());
        InPlace { file, record, room: vec![7; len], prng: Prng::new(1) }
    }

    fn run(&mut self) -> f64 {
        per_second(|| {
            for _ in 0..TURN {
                let at = self.prng.below(KEYS) * self.room.len() as u64;
                self.record.put(at, &mut self.room);
                self.file.write_all_at(&self.room, at).expect("the disk takes it");
            }
            self.file.sync_data().expect("the disk takes it");
        })
    }
}

const KEY_LEN: usize = 16;
const CHECKSUM_LEN: usize = 8;

trait Choice {
    fn draw(&self, prng: &mut Prng) -> u64;
}

struct Uniform;

impl Choice for Uniform {
    fn draw(&self, prng: &mut Prng) -> u64 {
        prng.below(KEYS)
    }
}

/// The share of the first so many keys, by key; keys are hashed, so neighbours in rank are none on the disk.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(skew: f64) -> Zipf {
        let mut sum = 0.0;
        let shares = (1..=KEYS).map(|rank| {
            sum += (rank as f64).powf(-skew);
            sum
        });
        Zipf(shares.collect())
    }
}

impl Choice for Zipf {
    fn draw(&self, prng: &mut Prng) -> u64 {
        let all = self.0[self.0.len() - 1];
        let wanted = prng.below(1 << 53) as f64 / (1_u64 << 53) as f64 * all;
        self.0.partition_point(|&share| share < wanted) as u64
    }
}

fn place(key: u64) -> Place {
    Place::Cell(Database(0), Key::new(format!("key:{key:012}").as_bytes()))
}

struct Loaded {
    store: DiskStore,
    committer: Committer,
    bell: Arc<OwnedFd>,
    _guard: StoreGuard,
    value: Vec<u8>,
    prng: Prng,
    stored: Ticket,
    ring_turns: u64, // that fill the ring
}

impl Loaded {
    fn new(dir: &Path, value_len: usize, ring_bytes: u64) -> Loaded {
        std::fs::create_dir_all(dir).expect("the directory can be made");
        let config = Config { ring_bytes, ..Config::default() };
        create_at(dir, 1, &config).expect("the directory is empty");
        let flags = EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags).expect("the system has event counters"));
        let rung = Arc::clone(&bell);
        let waker = move || {
            let _ = rustix::io::write(&*rung, &1_u64.to_ne_bytes());
        };
        let (guard, mut stores) =
            open_at(dir, 1, &config, vec![Box::new(waker)]).expect("it was just made");
        let committer = guard.committer();
        let entry_len = (24 + KEY_LEN + value_len) as u64;
        let ring_turns = config.ring_bytes / (TURN * entry_len);
        let store = stores.remove(0);
        let mut loaded = Loaded {
            store,
            committer,
            bell,
            _guard: guard,
            value: vec![7; value_len],
            prng: Prng::new(2),
            stored: Ticket::DURABLE,
            ring_turns,
        };
        for first in (0..KEYS).step_by(1024) {
            let places: Vec<Place> = (first..(first + 1024).min(KEYS)).map(place).collect();
            loaded.turn(&places, OPEN_TURNS);
        }
        loaded
    }

    /// Submits a turn, then waits until no more than `open` of them are not durable.
    fn turn(&mut self, places: &[Place], open: u64) {
        while self.store.is_full() {
            self.wait();
        }
        self.value[0] = self.value[0].wrapping_add(1);
        for place in places {
            self.store.put(place, &self.value);
        }
        let ticket = self.store.ticket();
        self.store.submit();
        self.committer.advance();
        while self.stored.0 + open < ticket.0 {
            self.wait();
        }
    }

    fn wait(&mut self) {
        let moment = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let fd = self.committer.fd().expect("the system has io_uring");
        let mut fds = [PollFd::new(&fd, PollFlags::IN), PollFd::new(&*self.bell, PollFlags::IN)];
        poll(&mut fds, Some(&moment)).expect("it can be waited for");
        self.committer.notice();
        self.committer.advance();
        // Behind the advance, which may have rung the bell: those completions are taken now.
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        let mut completions = Vec::new();
        self.store.poll(&mut completions);
        for completion in completions {
            match completion {
                Completion::Stored(ticket) => self.stored = ticket,
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    /// Until all entries are at home and the store writes no more.
    fn settle(&mut self) {
        let (mut written, mut since) = (0, Instant::now());
        while since.elapsed() < Duration::from_millis(500) {
            self.wait();
            let now = bytes_written();
            if now != written {
                (written, since) = (now, Instant::now());
            }
        }
    }

    /// The places of a turn, all of them different.
    fn draw(&mut self, choice: &impl Choice) -> Vec<Place> {
        let mut keys = Vec::with_capacity(TURN as usize);
        while keys.len() < TURN as usize {
            let key = choice.draw(&mut self.prng);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys.into_iter().map(place).collect()
    }

    /// Turns, `open` of which are under way while the next one is made.
    fn turns(&mut self, count: u64, choice: &impl Choice, open: u64) -> Turns {
        let turns: Vec<Vec<Place>> = (0..count).map(|_| self.draw(choice)).collect();
        let (begun, used) = (Instant::now(), cpu_time());
        for places in turns {
            self.turn(&places, open);
        }
        Turns { written: count * TURN, time: begun.elapsed(), cpu: cpu_time() - used }
    }

    /// Fewer turns than begin a write-back, again and again.
    fn inside_the_ring(&mut self) -> Turns {
        let mut all = Turns::default();
        for _ in 0..FILLS {
            let turns = self.turns(self.ring_turns * 3 / 10, &Uniform, 1);
            all.written += turns.written;
            all.time += turns.time;
            all.cpu += turns.cpu;
            self.settle();
        }
        all
    }

    fn sustained(&mut self, choice: &impl Choice) -> Turns {
        self.turns(self.ring_turns * RINGS, choice, OPEN_TURNS)
    }

    /// Overwrites with values of any length up to the given one.
    fn soak(&mut self, dir: &Path) {
        let (len_max, mut used) = (self.value.len() as u64, Vec::new());
        for part in 0..=10 {
            self.settle();
            used.push(allocated(dir));
            println!("{:>4} million overwrites: {} MiB", part * 10, used[part] >> 20);
            for _ in 0..if part < 10 { 10_000_000 / TURN } else { 0 } {
                self.value.resize(self.prng.between(1, len_max) as usize, 7);
                let places = self.draw(&Uniform);
                self.turn(&places, OPEN_TURNS);
            }
        }
        println!(
            "at the end {:.3} of what it was at ten million",
            used[10] as f64 / used[1] as f64
        );
    }
}

#[derive(Default)]
struct Turns {
    written: u64,
    time: Duration,
    cpu: Duration,
}

/// Of all threads.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bytes of the disk that the files of a directory take.
fn allocated(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).expect("it is there");
    let blocks = |file: std::io::Result<std::fs::DirEntry>| {
        file.and_then(|file| file.metadata()).expect("it is there").blocks()
    };
    files.map(blocks).sum::<u64>() * 512
}

/// Bytes that this process has had the system write.
fn bytes_written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").expect("the system counts");
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|count| count.parse().ok()).expect("it counts what is written")
}
