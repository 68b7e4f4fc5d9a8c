//! The guest as a process: its NVDIMM is a file, and its power is that process.
//!
//! Software always emulates it: KVM hangs on hosts that only pretend to nest virtualisation.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use bench::process::Process;

use super::tool::run;

/// Bytes of the NVDIMM; the file is sparse.
const NVDIMM_LEN: u64 = 1 << 30;
/// Start of an fsdax namespace in the file.
const DATA_AT: u64 = 2 << 20;
const BLOCK: u64 = 4_096;

/// Whether the guest's writes reach the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    On,
    /// The guest notices no difference and loses all with its power; the host must report that.
    Off,
}

/// The parts of a machine.
#[derive(Clone, Debug)]
pub struct MachineParts<'a> {
    pub kernel: &'a Path,
    pub initramfs: &'a Path,
    /// The NVDIMM's file.
    pub nvdimm: &'a Path,
    pub share: Share,
    /// As qemu names it.
    pub cpu: &'a str,
    /// Arguments of the guest's part of this program.
    pub parameters: &'a str,
    /// A folder for its output, and the suffix of those files' names.
    pub dir: &'a Path,
    pub name: &'a str,
}

/// A guest that runs.
pub struct Machine {
    process: Process,
    console: PathBuf,
    output: File,
    // The start of an unfinished line.
    partial: Vec<u8>,
}

/// Makes an NVDIMM with an empty ext4 on it.
///
/// # Errors
/// When the file or the file system cannot be made.
pub fn make_nvdimm(path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    file.set_len(NVDIMM_LEN).with_context(|| path.display().to_string())?;
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-b", &BLOCK.to_string()]);
    command.args(["-E", &format!("offset={DATA_AT}")]).arg(path);
    run(command.arg(((NVDIMM_LEN - DATA_AT) / BLOCK).to_string())).map(drop)
}

impl Machine {
    /// Starts the machine.
    ///
    /// # Errors
    /// When qemu cannot be started.
    pub fn start(parts: &MachineParts) -> Result<Machine> {
        let console = parts.dir.join(format!("console-{}", parts.name));
        let output = parts.dir.join(format!("said-{}", parts.name));
        for file in [&console, &output] {
            fs::write(file, "").with_context(|| file.display().to_string())?;
        }
        let share = if parts.share == Share::On { "on" } else { "off" };
        let nvdimm = parts.nvdimm.display();
        // It ends when this process does, however that happens.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"]);
        command.args(["-nodefaults", "-no-reboot", "-display", "none", "-nic", "none"]);
        command.args(["-accel", "tcg,thread=multi", "-cpu", parts.cpu, "-smp", "2"]);
        command.args(["-M", "q35,nvdimm=on", "-m", "768M,slots=2,maxmem=4G"]);
        let memory =
            format!("memory-backend-file,id=m1,share={share},mem-path={nvdimm},size={NVDIMM_LEN}");
        command.args(["-object", &memory, "-device", "nvdimm,memdev=m1,id=nv1"]);
        command.args(["-serial", &format!("file:{}", console.display())]);
        command.args(["-serial", &format!("file:{}", output.display())]);
        command.arg("-kernel").arg(parts.kernel).arg("-initrd").arg(parts.initramfs);
        let parameters =
            format!("console=ttyS0 quiet panic=-1 PARAMETERS=\"{}\"", parts.parameters);
        command.args(["-append", &parameters]);
        let process = Process::start(&mut command, &console)?;
        let output = File::open(&output).with_context(|| output.display().to_string())?;
        Ok(Machine { process, console, output, partial: Vec::new() })
    }

    /// Whole lines received since the last call.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn lines(&mut self) -> Result<Vec<String>> {
        self.output.read_to_end(&mut self.partial).context("the guest's output")?;
        let Some(end) = self.partial.iter().rposition(|&byte| byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.partial.split_off(end + 1);
        let whole = std::mem::replace(&mut self.partial, rest);
        Ok(String::from_utf8_lossy(&whole).lines().map(str::to_string).collect())
    }

    /// Cuts the power: SIGKILL to the process that is the machine.
    pub fn cut_power(&mut self) {
        self.process.kill();
    }

    /// False once it has ended by itself.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// The last lines of its console.
    pub fn console_tail(&self) -> String {
        let text = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}
