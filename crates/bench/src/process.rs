//! Measured processes: start, signals, resource usage, and cleanup.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde::Serialize;

use crate::{Error, Result};

/// Clock ticks per second in `/proc/PID/stat`: the same on every Linux architecture in use.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    pub user_s: f64,
    pub system_s: f64,
}

impl Cpu {
    pub fn total_s(self) -> f64 {
        self.user_s + self.system_s
    }

    /// The usage since `earlier`; zero for a process that has ended in between.
    #[must_use]
    pub fn since(self, earlier: Cpu) -> Cpu {
        let span = |now: f64, then: f64| (now - then).max(0.0);
        Cpu {
            user_s: span(self.user_s, earlier.user_s),
            system_s: span(self.system_s, earlier.system_s),
        }
    }
}

/// CPU time of these processes so far, at a resolution of 10 ms each. An ended process counts as
/// zero.
pub fn cpu(pids: &[u32]) -> Cpu {
    pids.iter().filter_map(|&pid| cpu_of(pid)).fold(Cpu::default(), |sum, cpu| Cpu {
        user_s: sum.user_s + cpu.user_s,
        system_s: sum.system_s + cpu.system_s,
    })
}

fn cpu_of(pid: u32) -> Option<Cpu> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold blanks; the fields after it are counted from the last bracket.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    Some(Cpu { user_s: seconds()?, system_s: seconds()? })
}

/// Bytes that a process caused to be written to storage; `None` where the kernel does not count
/// them.
pub fn bytes_written(pid: u32) -> Option<u64> {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
}

/// A child process that ends with its owner.
pub struct Process {
    child: Child,
    /// Its standard output and standard error.
    pub log: PathBuf,
}

impl Process {
    /// Starts `command` with its output in the file `log`.
    ///
    /// # Errors
    /// When the program is not there, or the log cannot be written.
    pub fn start(command: &mut Command, log: &Path) -> Result<Process> {
        let out = File::options().create(true).append(true).open(log);
        let out = out.map_err(Error::io(log.display().to_string()))?;
        let again = out.try_clone().map_err(Error::io(log.display().to_string()))?;
        command.stdin(Stdio::null()).stdout(out).stderr(again);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(Error::io(format!("cannot start {program}")))?;
        Ok(Process { child, log: log.to_path_buf() })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with `kill -9` and reaps it.
    pub fn kill(&mut self) {
        // Both fail only for a process that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM and waits at most `limit`. Returns the exit code; `None` if it had to be
    /// killed.
    pub fn stop(&mut self, limit: Duration) -> Option<i32> {
        self.signal(Signal::TERM);
        wait_until(limit, || self.exit_code().is_some());
        self.exit_code().flatten()
    }

    /// Pauses it (SIGSTOP).
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// `None` while it runs; then its exit code, or `Some(None)` if a signal ended it.
    pub fn exit_code(&mut self) -> Option<Option<i32>> {
        self.child.try_wait().ok().flatten().map(|status| status.code())
    }

    pub fn is_running(&mut self) -> bool {
        self.exit_code().is_none()
    }

    /// The last lines of its output.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn signal(&mut self, signal: Signal) {
        signal_pid(self.pid(), signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal; a process that has ended is not an error.
fn signal_pid(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// `kill -9` from another thread than the one that owns the process.
pub fn kill_pid(pid: u32) {
    signal_pid(pid, Signal::KILL);
}

/// SIGSTOP from another thread than the one that owns the process.
pub fn pause_pid(pid: u32) {
    signal_pid(pid, Signal::STOP);
}

/// SIGCONT from another thread than the one that owns the process.
pub fn resume_pid(pid: u32) {
    signal_pid(pid, Signal::CONT);
}

/// A folder that is removed with everything in it.
pub struct ScratchDir {
    path: PathBuf,
}

impl ScratchDir {
    /// Creates one below `parent`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(parent: &Path, name: &str) -> Result<ScratchDir> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(Error::io(path.display().to_string()))?;
        Ok(ScratchDir { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // A failure leaves only temporary files behind.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Ports below the system's range for outgoing connections.
///
/// So a client that retries a dead server neither takes the server's port nor connects to itself.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// Loopback ports that were free a moment ago, all different, not given to another caller in this
/// process.
///
/// # Errors
/// When there are none left.
pub fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let span = u32::from(PORTS.end - PORTS.start);
    // Concurrent processes begin at different offsets.
    let offset = std::process::id().wrapping_mul(211);
    let mut found = Vec::with_capacity(count);
    for _ in 0..span {
        if found.len() == count {
            break;
        }
        let step = offset.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % span;
        let port =
            PORTS.start + u16::try_from(step).expect("a step is below the span of a u16 range");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            found.push(address);
        }
    }
    if found.len() < count {
        return Err(Error::Usage(format!("fewer than {count} free ports on loopback")));
    }
    Ok(found)
}

/// Polls until `condition` holds; false when `limit` passes first.
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cpu_time_is_read_and_grows() {
        let own = [std::process::id()];
        let before = cpu(&own);
        assert!(wait_until(Duration::from_secs(20), || cpu(&own).since(before).total_s() > 0.0));
    }

    #[test]
    fn ended_process_has_zero_cpu() {
        assert_eq!(cpu(&[u32::MAX]), Cpu::default());
    }

    #[test]
    fn free_addresses_differ() {
        let addresses = free_addresses(8).expect("there are free ports");
        let different: std::collections::BTreeSet<_> = addresses.iter().collect();
        assert_eq!(different.len(), 8);
    }

    #[test]
    fn scratch_folders_go_with_their_owner() {
        let dir = ScratchDir::new(&std::env::temp_dir(), "bench-test").expect("a folder");
        let path = dir.path().to_path_buf();
        assert!(path.is_dir());
        drop(dir);
        assert!(!path.exists());
    }
}
