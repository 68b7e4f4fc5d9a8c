//! The guest as a process: its NVDIMM is a file, and its power is that process.
//!
//! Always emulated by software: where nested virtualisation is only pretended, KVM hangs instead of failing.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use bench::process::Process;

use super::tool::run;

/// Bytes of the NVDIMM; the file is sparse.
const NVDIMM_LEN: u64 = 1 << 30;
/// Where an fsdax namespace begins in it.
const DATA_AT: u64 = 2 << 20;
const BLOCK: u64 = 4_096;

/// Whether what the guest writes reaches the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    On,
    /// The guest sees no difference, and all is gone with its power: the harness must say so.
    Off,
}

/// What a machine is made of.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    pub kernel: &'a Path,
    pub initramfs: &'a Path,
    /// The NVDIMM's file.
    pub nvdimm: &'a Path,
    pub share: Share,
    /// As qemu names it.
    pub cpu: &'a str,
    /// Arguments of the guest's part of this program.
    pub parameters: &'a str,
    /// A folder for what it says, and how those files' names end.
    pub dir: &'a Path,
    pub name: &'a str,
}

/// A guest that runs.
pub struct Machine {
    process: Process,
    console: PathBuf,
    said: File,
    // Of the line that has not ended yet.
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
    /// Turns it on.
    ///
    /// # Errors
    /// When qemu cannot be started.
    pub fn start(parts: &Parts) -> Result<Machine> {
        let console = parts.dir.join(format!("console-{}", parts.name));
        let said = parts.dir.join(format!("said-{}", parts.name));
        for file in [&console, &said] {
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
        command.args(["-serial", &format!("file:{}", said.display())]);
        command.arg("-kernel").arg(parts.kernel).arg("-initrd").arg(parts.initramfs);
        let parameters =
            format!("console=ttyS0 quiet panic=-1 PARAMETERS=\"{}\"", parts.parameters);
        command.args(["-append", &parameters]);
        let process = Process::start(&mut command, &console)?;
        let said = File::open(&said).with_context(|| said.display().to_string())?;
        Ok(Machine { process, console, said, partial: Vec::new() })
    }

    /// Whole lines that it has said since the last call.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn lines(&mut self) -> Result<Vec<String>> {
        self.said.read_to_end(&mut self.partial).context("what the guest says")?;
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

    /// The last that it said on its console.
    pub fn console_tail(&self) -> String {
        let text = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}
