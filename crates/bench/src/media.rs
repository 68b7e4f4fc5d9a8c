//! The price of in-place persistence beside a log, on three media: repeats section 6.2 of LOGLESS.
//!
//! Patterns write values of one length again and again, in each of the [`variants`]. They append to
//! a log in two steps, overwrite one value, or overwrite 100,000 values drawn by Zipf 0.9. For
//! comparison run raw loops (copy, write back, fence), the product's store, and `libpmemlog` if
//! installed. Machines are noisy, so patterns alternate in short slices, and ratios compare slices
//! of one round. Each slice ends with a check of the written values.
//!
//! Persistent memory is emulated: a file on a memory file system, with the instructions for real
//! hardware. The extra time of real hardware is not emulated. Results go to a table, a CSV file and
//! plots.

mod bars;
mod disk_store;
mod draws;
mod in_memory;
mod on_disk;
mod pattern;
mod plot;
mod pmem_store;
mod pmemlog;
mod region;
mod report;
pub mod variants;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use storage::pmem::mapped::Mapped;
use storage::pmem::memory::Memory;

use self::draws::{Draws, KeyDistribution};
use self::in_memory::{AppendLog, InPlace, Raw};
use self::on_disk::{DiskFile, GROUPS, OnDisk};
use self::pattern::{Pace, Pattern, measure};
use self::region::Region;
use self::variants::{Checksum, PopCount, TwoStep, Variant};
use crate::process::ScratchDir;
use crate::{Error, Result};

pub use self::bars::Bar;
pub use self::pattern::Name;
pub use self::pmemlog::FORCE as PMEMLOG_FORCE;
pub use self::report::{MediaReport, MediaRow};

/// Rounds in which the patterns alternate, on the disk and in memory.
///
/// A disk slice must be long enough for the device to settle.
/// Many short memory slices compare patterns at the same moments of the machine.
const ROUNDS_ON_DISK: usize = 5;
const ROUNDS_IN_MEMORY: usize = 15;
const SEED: u64 = 62;

/// Where values are written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TestedMedium {
    /// Memory, without flushes.
    Ram,
    /// Emulated persistent memory.
    Pmem,
    Disk,
}

impl TestedMedium {
    pub const ALL: [TestedMedium; 3] = [TestedMedium::Ram, TestedMedium::Pmem, TestedMedium::Disk];

    pub fn name(self) -> &'static str {
        match self {
            TestedMedium::Ram => "ram",
            TestedMedium::Pmem => "pmem",
            TestedMedium::Disk => "disk",
        }
    }
}

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct Config {
    pub media: Vec<TestedMedium>,
    /// Bytes of a value.
    pub sizes: Vec<usize>,
    /// Selects patterns whose name or way contains one of these; all if empty.
    pub patterns: Vec<String>,
    pub keys: u32,
    /// Bytes after which logs begin again; 4 MiB at least. [LOGLESS 6.2: 500 MB]
    pub log_len: u64,
    /// How long each row is measured, over all rounds.
    pub time: Duration,
    /// A memory file system.
    pub memory_dir: PathBuf,
    /// A folder on the disk.
    pub disk_dir: PathBuf,
    /// Folder for the CSV file and the plots; `None`: no files.
    pub out: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            media: TestedMedium::ALL.to_vec(),
            sizes: (3..=13).map(|bits| 1 << bits).collect(),
            patterns: Vec::new(),
            keys: 100_000,
            log_len: 500_000_000,
            time: Duration::from_millis(500),
            memory_dir: PathBuf::from("/dev/shm"),
            disk_dir: std::env::temp_dir(),
            out: None,
        }
    }
}

type Patterns = Vec<Box<dyn Pattern>>;

const SIZE_MAX: usize = 1 << 20;
const KEYS_MAX: u32 = 1 << 24;
const LOG_LEN_MIN: u64 = 4 << 20;

impl Config {
    fn check(&self) -> Result<()> {
        let usage = |text: String| Err(Error::Usage(text));
        if let Some(size) = self.sizes.iter().find(|size| !(1..=SIZE_MAX).contains(*size)) {
            return usage(format!("a value of {size} bytes: give 1 to {SIZE_MAX}"));
        }
        if !(2..=KEYS_MAX).contains(&self.keys) {
            return usage(format!("{} keys: give 2 to {KEYS_MAX}", self.keys));
        }
        if self.log_len < LOG_LEN_MIN {
            return usage(format!("a log of {} bytes: give {LOG_LEN_MIN}", self.log_len));
        }
        if self.sizes.is_empty() || self.media.is_empty() {
            return usage("no sizes or no media to measure".to_string());
        }
        Ok(())
    }

    fn wants(&self, Name { pattern, how }: Name) -> bool {
        let matches = |wanted: &String| pattern.contains(wanted) || how.contains(wanted);
        self.patterns.is_empty() || self.patterns.iter().any(matches)
    }

    fn has(&self, medium: TestedMedium) -> bool {
        self.media.contains(&medium)
    }
}

/// Measures all selected patterns; announces each to `progress`.
///
/// # Errors
/// When a file cannot be made or written, or a written value is missing.
pub fn run(config: &Config, mut progress: impl FnMut(&str)) -> Result<MediaReport> {
    config.check()?;
    let mut report = MediaReport::default();
    if config.has(TestedMedium::Ram) || config.has(TestedMedium::Pmem) {
        run_in_memory(config, &mut report, &mut progress)?;
    }
    if config.has(TestedMedium::Disk) {
        run_on_disk(config, &mut report, &mut progress)?;
    }
    report.bars = bars::of(&report.rows);
    if let Some(out) = &config.out {
        std::fs::create_dir_all(out).map_err(Error::io(out.display().to_string()))?;
        report.write_csv(&out.join("media.csv"))?;
        plot::draw_all(&report, out)?;
    }
    Ok(report)
}

fn run_in_memory(
    config: &Config,
    report: &mut MediaReport,
    progress: &mut impl FnMut(&str),
) -> Result<()> {
    let scratch = ScratchDir::new(&config.memory_dir, "media")?;
    let path = scratch.path().join("region");
    let size_max = config.sizes.iter().copied().max().expect("sizes were checked");
    progress("making room in memory");
    let longest = Draws::new(config.keys, size_max, SEED);
    let len = InPlace::<PopCount, Region<true>>::len(&longest)
        .max(InPlace::<TwoStep<4>, Region<true>>::len(&longest))
        .max(config.log_len);
    let mapped = region::create(&path, len).map_err(Error::io(path.display().to_string()))?;
    for &size in &config.sizes {
        let draws = Rc::new(Draws::new(config.keys, size, SEED));
        if config.has(TestedMedium::Ram) {
            progress(&format!("memory, {size} bytes"));
            let patterns = in_memory(&Region::<false>::new(&mapped), &draws, config.log_len);
            take(config, report, (TestedMedium::Ram, size), patterns)?;
        }
        if config.has(TestedMedium::Pmem) {
            progress(&format!("emulated persistent memory, {size} bytes"));
            let (patterns, note) = on_pmem(&scratch, &mapped, &draws, config.log_len)?;
            report.note(note);
            take(config, report, (TestedMedium::Pmem, size), patterns)?;
        }
    }
    Ok(())
}

fn in_memory<M: Memory + Clone>(memory: &M, draws: &Rc<Draws>, log_len: u64) -> Patterns {
    let mut patterns: Patterns = Vec::new();
    for (has_checksum, how) in [(false, "raw"), (true, "raw, checksum")] {
        patterns.push(raw(memory, draws, has_checksum, (how, 1)));
    }
    both::<Checksum, M>(memory, draws, &mut patterns);
    patterns.push(Box::new(AppendLog::new(memory.clone(), Rc::clone(draws), log_len)));
    both::<PopCount, M>(memory, draws, &mut patterns);
    both::<TwoStep<1>, M>(memory, draws, &mut patterns);
    both::<TwoStep<4>, M>(memory, draws, &mut patterns);
    patterns
}

fn raw<M: Memory + Clone>(
    memory: &M,
    draws: &Rc<Draws>,
    has_checksum: bool,
    (how, unit): (&'static str, u64),
) -> Box<dyn Pattern> {
    let name = Name { pattern: "multi", how };
    let (memory, draws) = (memory.clone(), Rc::clone(draws));
    Box::new(Raw { memory, draws, has_checksum, name, unit, done: 0 })
}

fn both<V: Variant + 'static, M: Memory + Clone>(
    memory: &M,
    draws: &Rc<Draws>,
    patterns: &mut Patterns,
) {
    for spread in [KeyDistribution::One, KeyDistribution::Zipf] {
        patterns.push(Box::new(InPlace::<V, M>::new(memory, draws, spread)));
    }
}

fn on_pmem(
    scratch: &ScratchDir,
    mapped: &Arc<Mapped>,
    draws: &Rc<Draws>,
    log_len: u64,
) -> Result<(Patterns, Option<String>)> {
    let memory = Region::<true>::new(mapped);
    let mut patterns = in_memory(&memory, draws, log_len);
    let note = match pmemlog::open(scratch.path(), draws, log_len) {
        Ok(log) => {
            patterns.push(Box::new(log));
            None
        }
        Err(why) => Some(why),
    };
    patterns.push(raw(&memory, draws, true, ("raw, checksum, 64 per fence", 64)));
    let dir = scratch.path().join("store");
    let _ = std::fs::remove_dir_all(&dir);
    let store = Rc::new(RefCell::new(pmem_store::PmemValues::create(&dir, draws)?));
    for turn in pmem_store::TURNS {
        patterns.push(Box::new(pmem_store::PmemBatches { store: Rc::clone(&store), turn }));
    }
    Ok((patterns, note))
}

fn run_on_disk(
    config: &Config,
    report: &mut MediaReport,
    progress: &mut impl FnMut(&str),
) -> Result<()> {
    let scratch = ScratchDir::new(&config.disk_dir, "media")?;
    let size_max = config.sizes.iter().copied().max().expect("sizes were checked");
    progress("making room on the disk");
    let disk = Rc::new(DiskFile::create(&scratch.path().join("file"), config.keys, size_max)?);
    let how = if disk.is_direct { "O_DIRECT" } else { "the page cache" };
    report.note(Some(format!("disk: {how}, blocks of {} bytes", disk.block_len)));
    for &size in &config.sizes {
        let draws = Rc::new(Draws::new(config.keys, size, SEED));
        progress(&format!("disk, {size} bytes"));
        let mut patterns: Patterns = Vec::new();
        for group in GROUPS {
            for is_append in [true, false] {
                patterns.push(Box::new(OnDisk::new(&disk, &draws, is_append, group)));
            }
        }
        // Loading takes a while.
        if config.wants(disk_store::NAME) {
            let dir = scratch.path().join("store");
            let _ = std::fs::remove_dir_all(&dir);
            let store = Rc::new(RefCell::new(disk_store::DiskValues::create(&dir, &draws)?));
            for turn in GROUPS {
                patterns.push(Box::new(disk_store::DiskBatches { store: Rc::clone(&store), turn }));
            }
        }
        take(config, report, (TestedMedium::Disk, size), patterns)?;
    }
    Ok(())
}

fn take(
    config: &Config,
    report: &mut MediaReport,
    (medium, value_bytes): (TestedMedium, usize),
    mut patterns: Patterns,
) -> Result<()> {
    patterns.retain(|pattern| config.wants(pattern.name()));
    let rounds = if medium == TestedMedium::Disk { ROUNDS_ON_DISK } else { ROUNDS_IN_MEMORY };
    let pace = Pace { slice: config.time / rounds as u32, rounds };
    let measured = measure(&mut patterns, pace)?;
    for (pattern, measured) in patterns.iter().zip(measured) {
        report.rows.push(MediaRow::of(medium, value_bytes, &**pattern, &measured));
    }
    Ok(())
}
