//! All boots of a run: cuts for each CPU on an image of its own, then an image that must lose everything.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base::Prng;
use bench::process::ScratchDir;

use super::boot::{Booted, Cut, boot};
use super::machine::{Parts, Share, make_nvdimm};
use super::tool::run as run_tool;
use super::{Arguments, initramfs, kernel};
use crate::ledger::Ledger;
use crate::operation::{CLIENTS, KEYS};

/// What a CPU of this name must offer, so that both ways of writing back are seen to be taken.
const FLUSHES: [(&str, &str); 2] = [("max", "clwb"), ("qemu64", "clflush")];
const WRITING_MS_MIN: u64 = 200;
const WRITING_MS_MAX: u64 = 4_000;
/// From the first byte that nodes write to well after they serve.
const STARTING_MS_MAX: u64 = 2_500;

/// How the folders of runs begin; the number of the process follows.
const SCRATCH: &str = "palimpsest-pmem-vm";

/// A run's standing parts.
struct Run<'a> {
    kernel: kernel::Kernel,
    initramfs: PathBuf,
    dir: &'a Path,
    stop: &'a AtomicBool,
    prng: Prng,
}

/// What came of one image.
#[derive(Debug, Default)]
struct Total {
    cuts: u64,
    cuts_while_writing: u64,
    boots: u64,
    acked: u64,
    read: u64,
    unknown: u64,
    ready_ms: Vec<u64>,
    findings: Vec<String>,
    findings_count: u64,
}

/// Does everything; whether all was well.
///
/// # Errors
/// When the run could not be made: then nothing is known about the store.
pub fn run(arguments: &Arguments, stop: &AtomicBool) -> Result<bool> {
    let begun = Instant::now();
    let seed = arguments.seed.unwrap_or_else(fresh_seed);
    println!("seed {seed}: {} cuts per CPU", arguments.cuts);
    let kernel = kernel::obtain(&arguments.dir.join("kernel"))?;
    let own = std::env::current_exe().context("this program's own path")?;
    let binary = arguments.binary.clone().unwrap_or_else(|| own.with_file_name("palimpsest"));
    remove_leftovers()?;
    let scratch = ScratchDir::new(&std::env::temp_dir(), SCRATCH)?;
    let initramfs = scratch.path().join("initramfs");
    let programs: [(&str, &Path); 3] =
        [("palimpsest", &binary), ("pmem-vm", &own), ("storage-tests", &arguments.storage_tests)];
    initramfs::write(&initramfs, &kernel, &programs, scratch.path())?;
    let mut run = Run { kernel, initramfs, dir: scratch.path(), stop, prng: Prng::new(seed) };
    let mut is_well = true;
    for cpu in &arguments.cpus {
        println!("-cpu {cpu}");
        let total = run.image(cpu, arguments.cuts)?;
        is_well &= tell(cpu, &total);
    }
    is_well &= run.control(arguments.cpus.first().map_or("max", String::as_str))?;
    println!(
        "{}, after {:.0} s",
        if is_well {
            "no acknowledged write was lost, none was invented"
        } else {
            "something is wrong"
        },
        begun.elapsed().as_secs_f64()
    );
    if !is_well {
        keep(scratch.path(), &arguments.dir)?;
    }
    Ok(is_well)
}

impl Run<'_> {
    /// Cuts the power of one image's guests, and looks at the end once more.
    fn image(&mut self, cpu: &str, cuts: u64) -> Result<Total> {
        let nvdimm = self.dir.join(format!("nvdimm-{cpu}"));
        make_nvdimm(&nvdimm)?;
        let (mut ledger, mut total) = (Ledger::default(), Total::default());
        for number in 0..=cuts {
            let cut = match number {
                number if number == cuts => Cut::AtTheEnd,
                // Some cuts hit nodes that are just coming back from the one before.
                number if number % 4 == 2 => Cut::Starting(self.draw(0, STARTING_MS_MAX)),
                _ => Cut::Writing(self.draw(WRITING_MS_MIN, WRITING_MS_MAX)),
            };
            let booted = self.boot((&nvdimm, Share::On), cpu, (number, cut), &mut ledger)?;
            check_boot(&booted, cpu, (number, cut))?;
            let goes_on = booted.findings_count == 0;
            total.add(&booted, cut);
            if !goes_on {
                break;
            }
        }
        total.unknown = ledger.unknown;
        Ok(total)
    }

    /// Without sharing, nothing reaches the file: a harness that looks at the right thing reports losses.
    fn control(&mut self, cpu: &str) -> Result<bool> {
        println!("control: -cpu {cpu}, and what is written is not kept");
        let nvdimm = self.dir.join("nvdimm-control");
        make_nvdimm(&nvdimm)?;
        let mut ledger = Ledger::default();
        let cut = Cut::Writing(self.draw(WRITING_MS_MIN, WRITING_MS_MAX));
        let before = self.boot((&nvdimm, Share::Off), cpu, (0, cut), &mut ledger)?;
        ensure!(before.findings_count == 0, "before the cut: {:?}", before.findings);
        ensure!(before.acked > 0, "nothing was acknowledged before the cut");
        let after = self.boot((&nvdimm, Share::Off), cpu, (1, Cut::AtTheEnd), &mut ledger)?;
        let is_lost = |finding: &String| finding.contains("lost: ");
        let lost = after.findings.iter().filter(|finding| is_lost(finding)).count();
        println!(
            "control: {} writes were acknowledged; {} keys are reported as lost: {}",
            before.acked,
            after.findings_count,
            if lost > 0 { "as it must be" } else { "WRONG, the harness sees nothing" }
        );
        Ok(lost > 0)
    }

    fn boot(
        &mut self,
        (nvdimm, share): (&Path, Share),
        cpu: &str,
        (number, cut): (u64, Cut),
        ledger: &mut Ledger,
    ) -> Result<Booted> {
        let media = if number == 0 && share == Share::On { " --media" } else { "" };
        let writes = if cut == Cut::AtTheEnd { "" } else { " --writes" };
        let parameters = format!("--boot {number}{media}{writes}");
        let image = if share == Share::On { "kept" } else { "control" };
        let name = format!("{cpu}-{image}-{number}");
        let parts = Parts {
            kernel: &self.kernel.image,
            initramfs: &self.initramfs,
            nvdimm,
            share,
            cpu,
            parameters: &parameters,
            dir: self.dir,
            name: &name,
        };
        let booted = boot(&parts, cut, ledger, self.stop)
            .with_context(|| format!("boot {number} of -cpu {cpu}"))?;
        let ready =
            booted.ready.map_or("not yet".to_string(), |r| format!("{:.1} s", r.as_secs_f64()));
        println!(
            "  boot {number}: {}, served after {ready}, {} keys read, {} writes acknowledged, {} of them in \
             the last second; {cut:?}",
            booted.flush.as_deref().unwrap_or("?"),
            booted.read,
            booted.acked,
            booted.acked_just_before
        );
        Ok(booted)
    }

    fn draw(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.prng.between(low, high))
    }
}

/// What must be so whatever the store does; otherwise the run would prove less than it says.
fn check_boot(booted: &Booted, cpu: &str, (number, cut): (u64, Cut)) -> Result<()> {
    if booted.findings_count > 0 {
        return Ok(());
    }
    let wanted = FLUSHES.iter().find(|(name, _)| *name == cpu).map(|(_, flush)| *flush);
    let flush = booted.flush.as_deref();
    ensure!(wanted.is_none() || wanted == flush, "-cpu {cpu} has {flush:?}, not {wanted:?}");
    ensure!(number > 0 || booted.passed == 3, "{} checks of the medium passed", booted.passed);
    if let Cut::Starting(_) = cut {
        return Ok(());
    }
    ensure!(booted.synced == 3, "MAP_SYNC was seen at {} nodes", booted.synced);
    ensure!(booted.read == CLIENTS as u64 * KEYS, "{} keys were read", booted.read);
    ensure!(cut == Cut::AtTheEnd || booted.acked > 0, "nothing was acknowledged");
    Ok(())
}

impl Total {
    fn add(&mut self, booted: &Booted, cut: Cut) {
        self.boots += 1;
        self.cuts += u64::from(cut != Cut::AtTheEnd);
        self.cuts_while_writing += u64::from(booted.acked_just_before > 0);
        self.acked += booted.acked;
        self.read += booted.read;
        self.ready_ms.extend(booted.ready.map(|ready| ready.as_millis() as u64));
        self.findings.extend(booted.findings.iter().cloned());
        self.findings_count += booted.findings_count;
    }
}

fn tell(cpu: &str, total: &Total) -> bool {
    let slowest = total.ready_ms.iter().max().copied().unwrap_or_default();
    println!(
        "-cpu {cpu}: {} boots (slowest {:.1} s), {} cuts, {} of them while writes were acknowledged; {} writes \
         acknowledged, {} unknown, {} reads judged, {} findings",
        total.boots,
        slowest as f64 / 1_000.0,
        total.cuts,
        total.cuts_while_writing,
        total.acked,
        total.unknown,
        total.read,
        total.findings_count
    );
    for finding in &total.findings {
        println!("WRONG: {finding}");
    }
    total.findings_count == 0
}

/// Removes what runs left that were killed. Their guests ended with them.
fn remove_leftovers() -> Result<()> {
    let folder = std::env::temp_dir();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let entry = entry.with_context(|| folder.display().to_string())?;
        let name = entry.file_name();
        let Some(pid) = owner(&name.to_string_lossy()) else { continue };
        if !Path::new("/proc").join(pid.to_string()).exists() {
            std::fs::remove_dir_all(entry.path()).context("what an earlier run left")?;
        }
    }
    Ok(())
}

/// The process that made a folder of this name.
fn owner(name: &str) -> Option<u32> {
    let (pid, _) = name.strip_prefix(SCRATCH)?.strip_prefix('-')?.split_once('-')?;
    pid.parse().ok()
}

/// Keeps what all guests said, and the NVDIMMs, of which only what was written takes room.
fn keep(scratch: &Path, dir: &Path) -> Result<()> {
    let kept = dir.join("kept");
    if kept.exists() {
        std::fs::remove_dir_all(&kept).context("what an earlier run kept")?;
    }
    let mut command = Command::new("cp");
    run_tool(command.args(["-r", "--sparse=always"]).arg(scratch).arg(&kept))?;
    println!("what the guests said and the NVDIMMs are in {}", kept.display());
    Ok(())
}

fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_nanos() as u64 % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_runs_have_an_owner() {
        assert_eq!(owner("palimpsest-pmem-vm-12-0"), Some(12));
        for name in ["palimpsest-pmem-12-0", "palimpsest-pmem-vm-", "palimpsest-pmem-vm-x-0"] {
            assert_eq!(owner(name), None, "{name}");
        }
    }
}
