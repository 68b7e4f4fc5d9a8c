//! All boots of a run: cuts for each CPU on its own image, then an image that must lose everything.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base::Prng;
use bench::process::ScratchDir;

use super::boot::{Booted, PowerCut, boot};
use super::machine::{MachineParts, Share, make_nvdimm};
use super::tool::run as run_tool;
use super::{Arguments, initramfs, kernel};
use crate::operation::{CLIENTS, KEYS};
use crate::reference_model::ReferenceModel;

/// Write-back instructions that each CPU must offer, so that a run covers both ways.
const FLUSHES: [(&str, &str); 2] = [("max", "clwb"), ("qemu64", "clflush")];
const WRITING_MS_MIN: u64 = 200;
const WRITING_MS_MAX: u64 = 4_000;
/// Covers the time from the nodes' first written byte to well after they serve.
const STARTING_MS_MAX: u64 = 2_500;

/// How the folders of runs begin; the number of the process follows.
const SCRATCH: &str = "palimpsest-pmem-vm";

/// The constant parts of a run.
struct ImageRun<'a> {
    kernel: kernel::Kernel,
    initramfs: PathBuf,
    dir: &'a Path,
    stop: &'a AtomicBool,
    prng: Prng,
}

/// The result of one image.
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

/// Does the whole run; true when it found no fault.
///
/// # Errors
/// When the run could not be made. The store is then neither right nor wrong.
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
    let mut run = ImageRun { kernel, initramfs, dir: scratch.path(), stop, prng: Prng::new(seed) };
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
            "violations were found"
        },
        begun.elapsed().as_secs_f64()
    );
    if !is_well {
        keep(scratch.path(), &arguments.dir)?;
    }
    Ok(is_well)
}

impl ImageRun<'_> {
    /// Cuts the power of one image's guests, then checks the image once more.
    fn image(&mut self, cpu: &str, cuts: u64) -> Result<Total> {
        let nvdimm = self.dir.join(format!("nvdimm-{cpu}"));
        make_nvdimm(&nvdimm)?;
        let (mut model, mut total) = (ReferenceModel::default(), Total::default());
        for number in 0..=cuts {
            let cut = match number {
                number if number == cuts => PowerCut::AtTheEnd,
                // Some cuts hit nodes that are still recovering from the cut before.
                number if number % 4 == 2 => PowerCut::Starting(self.draw(0, STARTING_MS_MAX)),
                _ => PowerCut::Writing(self.draw(WRITING_MS_MIN, WRITING_MS_MAX)),
            };
            let booted = self.boot((&nvdimm, Share::On), cpu, (number, cut), &mut model)?;
            check_boot(&booted, cpu, (number, cut))?;
            let goes_on = booted.findings_count == 0;
            total.add(&booted, cut);
            if !goes_on {
                break;
            }
        }
        total.unknown = model.unknown;
        Ok(total)
    }

    /// A machine without sharing loses all writes: a run that reports no loss checks the wrong
    /// file.
    fn control(&mut self, cpu: &str) -> Result<bool> {
        println!("control: -cpu {cpu}, and writes are not kept");
        let nvdimm = self.dir.join("nvdimm-control");
        make_nvdimm(&nvdimm)?;
        let mut model = ReferenceModel::default();
        let cut = PowerCut::Writing(self.draw(WRITING_MS_MIN, WRITING_MS_MAX));
        let before = self.boot((&nvdimm, Share::Off), cpu, (0, cut), &mut model)?;
        ensure!(before.findings_count == 0, "before the cut: {:?}", before.findings);
        ensure!(before.acked > 0, "no write was acknowledged before the cut");
        let after = self.boot((&nvdimm, Share::Off), cpu, (1, PowerCut::AtTheEnd), &mut model)?;
        let is_lost = |finding: &String| finding.contains("lost: ");
        let lost = after.findings.iter().filter(|finding| is_lost(finding)).count();
        println!(
            "control: {} writes were acknowledged; {} keys are reported as lost: {}",
            before.acked,
            after.findings_count,
            if lost > 0 { "as it must be" } else { "WRONG, the harness missed the losses" }
        );
        Ok(lost > 0)
    }

    fn boot(
        &mut self,
        (nvdimm, share): (&Path, Share),
        cpu: &str,
        (number, cut): (u64, PowerCut),
        model: &mut ReferenceModel,
    ) -> Result<Booted> {
        let media = if number == 0 && share == Share::On { " --media" } else { "" };
        let writes = if cut == PowerCut::AtTheEnd { "" } else { " --writes" };
        let parameters = format!("--boot {number}{media}{writes}");
        let image = if share == Share::On { "kept" } else { "control" };
        let name = format!("{cpu}-{image}-{number}");
        let parts = MachineParts {
            kernel: &self.kernel.image,
            initramfs: &self.initramfs,
            nvdimm,
            share,
            cpu,
            parameters: &parameters,
            dir: self.dir,
            name: &name,
        };
        let booted = boot(&parts, cut, model, self.stop)
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

/// Holds whatever the store does; otherwise the run would prove less than it says.
fn check_boot(booted: &Booted, cpu: &str, (number, cut): (u64, PowerCut)) -> Result<()> {
    if booted.findings_count > 0 {
        return Ok(());
    }
    let wanted = FLUSHES.iter().find(|(name, _)| *name == cpu).map(|(_, flush)| *flush);
    let flush = booted.flush.as_deref();
    ensure!(wanted.is_none() || wanted == flush, "-cpu {cpu} has {flush:?}, not {wanted:?}");
    ensure!(number > 0 || booted.passed == 3, "{} checks of the medium passed", booted.passed);
    if let PowerCut::Starting(_) = cut {
        return Ok(());
    }
    ensure!(booted.synced == 3, "MAP_SYNC was seen at {} nodes", booted.synced);
    ensure!(booted.read == CLIENTS as u64 * KEYS, "{} keys were read", booted.read);
    ensure!(cut == PowerCut::AtTheEnd || booted.acked > 0, "no write was acknowledged");
    Ok(())
}

impl Total {
    fn add(&mut self, booted: &Booted, cut: PowerCut) {
        self.boots += 1;
        self.cuts += u64::from(cut != PowerCut::AtTheEnd);
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

/// Removes folders of killed runs. Their guests ended with them.
fn remove_leftovers() -> Result<()> {
    let folder = std::env::temp_dir();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let entry = entry.with_context(|| folder.display().to_string())?;
        let name = entry.file_name();
        let Some(pid) = owner(&name.to_string_lossy()) else { continue };
        if !Path::new("/proc").join(pid.to_string()).exists() {
            std::fs::remove_dir_all(entry.path()).context("folder of an earlier run")?;
        }
    }
    Ok(())
}

/// The process that made a folder of this name.
fn owner(name: &str) -> Option<u32> {
    let (pid, _) = name.strip_prefix(SCRATCH)?.strip_prefix('-')?.split_once('-')?;
    pid.parse().ok()
}

/// Keeps the guests' output and the NVDIMMs, which are sparse files.
fn keep(scratch: &Path, dir: &Path) -> Result<()> {
    let kept = dir.join("kept");
    if kept.exists() {
        std::fs::remove_dir_all(&kept).context("evidence of an earlier run")?;
    }
    let mut command = Command::new("cp");
    run_tool(command.args(["-r", "--sparse=always"]).arg(scratch).arg(&kept))?;
    println!("the guests' output and the NVDIMMs are in {}", kept.display());
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
