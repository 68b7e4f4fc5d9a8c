//! One boot: from power on to the cut, and what the guest said in between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::machine::{Machine, Parts};
use crate::ledger::Ledger;
use crate::said::Said;

/// How long a boot may take until its cut.
const BOOT_MAX: Duration = Duration::from_secs(600);
const SLICE: Duration = Duration::from_millis(2);
/// Findings that a boot lists.
const FINDINGS_MAX: usize = 10;

/// When the power goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// This long after the first write of the boot was acknowledged.
    Writing(Duration),
    /// This long after the nodes' processes were started.
    Starting(Duration),
    /// Once everything has been read, and the nodes were stopped.
    AtTheEnd,
}

/// What came of a boot.
#[derive(Debug, Default)]
pub struct Booted {
    /// From power on until all nodes served.
    pub ready: Option<Duration>,
    /// How the CPU writes cache lines back.
    pub flush: Option<String>,
    pub acked: u64,
    pub read: u64,
    /// Acknowledgements in the last second before the cut.
    pub acked_just_before: u64,
    /// Checks of the medium that passed.
    pub passed: u64,
    /// Nodes of which it was seen that they map with MAP_SYNC.
    pub synced: u64,
    /// At most ten.
    pub findings: Vec<String>,
    pub findings_count: u64,
}

impl Booted {
    fn find(&mut self, what: String) {
        self.findings_count += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(what);
        }
    }
}

/// The run was asked to end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Boots, follows what the guest says, cuts the power.
///
/// # Errors
/// When the guest does not get as far as its cut: then nothing is known about the store.
pub fn boot(parts: &Parts, cut: Cut, ledger: &mut Ledger, stop: &AtomicBool) -> Result<Booted> {
    let mut follow = Follow {
        machine: Machine::start(parts)?,
        start: Instant::now(),
        cut_at: None,
        last_acks: Vec::new(),
        booted: Booted::default(),
    };
    let was_cut = loop {
        if stop.load(Ordering::Relaxed) {
            bail!(Interrupted);
        }
        if follow.cut_at.is_some_and(|at| Instant::now() >= at) {
            break true;
        }
        let has_failed = follow.listen(cut, ledger)?;
        if has_failed {
            break false;
        }
        if !follow.machine.is_running() || follow.start.elapsed() > BOOT_MAX {
            let how = if follow.machine.is_running() { "is stuck" } else { "ended by itself" };
            bail!("the guest {how}; its console says:\n{}", follow.machine.console_tail());
        }
        std::thread::sleep(SLICE);
    };
    follow.machine.cut_power();
    let cut_at = Instant::now();
    // What it said before is as true as ever.
    follow.listen(cut, ledger)?;
    let just_before = |at: &&Instant| cut_at.duration_since(**at) < Duration::from_secs(1);
    follow.booted.acked_just_before = follow.last_acks.iter().filter(just_before).count() as u64;
    if !was_cut {
        let tail = follow.machine.console_tail();
        eprintln!("the guest's console says:\n{tail}");
    }
    Ok(follow.booted)
}

struct Follow {
    machine: Machine,
    start: Instant,
    cut_at: Option<Instant>,
    // When the latest acknowledgements were heard; bounded below.
    last_acks: Vec<Instant>,
    booted: Booted,
}

const LAST_ACKS_MAX: usize = 10_000;

impl Follow {
    /// Takes in what was said; whether the guest itself found something wrong, and goes no further.
    fn listen(&mut self, cut: Cut, ledger: &mut Ledger) -> Result<bool> {
        let mut has_failed = false;
        for line in self.machine.lines()? {
            let said: Said = match line.parse() {
                Ok(said) => said,
                Err(unreadable) => bail!("{unreadable}"),
            };
            if let Err(what) = ledger.note(&said) {
                self.booted.find(what);
            }
            has_failed |= matches!(said, Said::Wrong(_));
            self.take(said, cut);
        }
        Ok(has_failed)
    }

    fn take(&mut self, said: Said, cut: Cut) {
        let now = Instant::now();
        match said {
            Said::Flush(name) => self.booted.flush = Some(name),
            Said::Passed(what) => {
                println!("  passed: {what}");
                self.booted.passed += 1;
            }
            Said::Synced { .. } => self.booted.synced += 1,
            Said::Started => {
                if let Cut::Starting(after) = cut {
                    self.cut_at = Some(now + after);
                }
            }
            Said::Ready { .. } => self.booted.ready = Some(now - self.start),
            Said::Holds { .. } => self.booted.read += 1,
            Said::Acked { .. } | Said::Missed { .. } => {
                self.booted.acked += 1;
                if self.last_acks.len() == LAST_ACKS_MAX {
                    self.last_acks.drain(..LAST_ACKS_MAX / 2);
                }
                self.last_acks.push(now);
                if let (Cut::Writing(after), None) = (cut, self.cut_at) {
                    self.cut_at = Some(now + after);
                }
            }
            Said::Stopped => self.cut_at = Some(now),
            Said::Wrong(what) => self.booted.find(what),
            Said::Unknown { client, number, reply } => {
                println!("  no outcome: client {client}, operation {number}: {reply}");
            }
            Said::Whole { .. } | Said::Empty { .. } | Said::ReadAll | Said::Reserved { .. } => {}
        }
    }
}
