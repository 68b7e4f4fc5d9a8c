//! One boot: from power on to the cut, and the guest's messages in between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::machine::{Machine, MachineParts};
use crate::message::GuestMessage;
use crate::reference_model::ReferenceModel;

/// How long a boot may take until its cut.
const BOOT_MAX: Duration = Duration::from_secs(600);
const SLICE: Duration = Duration::from_millis(2);
/// Findings that a boot lists.
const FINDINGS_MAX: usize = 10;

/// When the power goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PowerCut {
    /// This long after the first write of the boot was acknowledged.
    Writing(Duration),
    /// This long after the nodes' processes were started.
    Starting(Duration),
    /// Once everything has been read, and the nodes have stopped.
    AtTheEnd,
}

/// The result of a boot.
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
    /// Nodes seen to map with MAP_SYNC.
    pub synced: u64,
    /// At most ten.
    pub findings: Vec<String>,
    pub findings_count: u64,
}

impl Booted {
    fn add_finding(&mut self, finding: String) {
        self.findings_count += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// The run was asked to end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Boots, follows the guest's messages, cuts the power.
///
/// # Errors
/// When the guest does not reach its cut. The store is then neither right nor wrong.
pub fn boot(
    parts: &MachineParts,
    cut: PowerCut,
    model: &mut ReferenceModel,
    stop: &AtomicBool,
) -> Result<Booted> {
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
        let has_failed = follow.listen(cut, model)?;
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
    // The messages before the failure still count.
    follow.listen(cut, model)?;
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
    // Arrival times of the latest acknowledgements; bounded below.
    last_acks: Vec<Instant>,
    booted: Booted,
}

const LAST_ACKS_MAX: usize = 10_000;

impl Follow {
    /// Takes in messages; true when the guest reported an error and stops there.
    fn listen(&mut self, cut: PowerCut, model: &mut ReferenceModel) -> Result<bool> {
        let mut has_failed = false;
        for line in self.machine.lines()? {
            let message: GuestMessage = match line.parse() {
                Ok(message) => message,
                Err(unreadable) => bail!("{unreadable}"),
            };
            if let Err(finding) = model.note(&message) {
                self.booted.add_finding(finding);
            }
            has_failed |= matches!(message, GuestMessage::Wrong(_));
            self.take(message, cut);
        }
        Ok(has_failed)
    }

    fn take(&mut self, message: GuestMessage, cut: PowerCut) {
        let now = Instant::now();
        match message {
            GuestMessage::Flush(name) => self.booted.flush = Some(name),
            GuestMessage::Passed(check) => {
                println!("  passed: {check}");
                self.booted.passed += 1;
            }
            GuestMessage::Synced { .. } => self.booted.synced += 1,
            GuestMessage::Started => {
                if let PowerCut::Starting(after) = cut {
                    self.cut_at = Some(now + after);
                }
            }
            GuestMessage::Ready { .. } => self.booted.ready = Some(now - self.start),
            GuestMessage::Holds { .. } => self.booted.read += 1,
            GuestMessage::Acked { .. } | GuestMessage::Missed { .. } => {
                self.booted.acked += 1;
                if self.last_acks.len() == LAST_ACKS_MAX {
                    self.last_acks.drain(..LAST_ACKS_MAX / 2);
                }
                self.last_acks.push(now);
                if let (PowerCut::Writing(after), None) = (cut, self.cut_at) {
                    self.cut_at = Some(now + after);
                }
            }
            GuestMessage::Stopped => self.cut_at = Some(now),
            GuestMessage::Wrong(finding) => self.booted.add_finding(finding),
            GuestMessage::Unknown { client, number, reply } => {
                println!("  no outcome: client {client}, operation {number}: {reply}");
            }
            GuestMessage::Whole { .. }
            | GuestMessage::Empty { .. }
            | GuestMessage::ReadAll
            | GuestMessage::Reserved { .. } => {}
        }
    }
}
