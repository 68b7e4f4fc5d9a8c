//! All faults: their names, their requirements, and the order in which a run injects them.

use base::Prng;

use crate::host::{Host, Tool};
use crate::lab::Ground;
use crate::nodes::Durability;

/// One way to attack a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Fault {
    /// No fault: the baseline for the figures of the others.
    Calm,
    /// `kill -9` of a minority at one moment; started again later.
    Kill,
    /// `kill -9` of all nodes but one.
    KillMajority,
    /// `kill -9` of all nodes.
    KillAll,
    /// One node is killed again and again as it starts.
    KillStarting,
    /// Every node in turn is asked to stop (SIGTERM) and started again.
    RollingRestart,
    /// SIGSTOP of a minority, then SIGCONT.
    Pause,
    /// SIGSTOP of all nodes but one.
    PauseMajority,
    /// One node stops and goes on, several times a second.
    PauseFlapping,
    /// One node is paused while another is killed.
    PauseAndKill,
    /// A minority is cut off, silently.
    CutMinority,
    /// A minority is cut off, and its connections are reset.
    CutReset,
    /// Every node is alone.
    CutAll,
    /// One node receives no packet from its peers.
    CutIncoming,
    /// One node's packets reach no peer.
    CutOutgoing,
    /// Packets from one node to another get lost; all else arrives.
    CutOneWay,
    /// Two nodes do not reach each other; both reach the others.
    CutPair,
    /// Each node's packets do not reach the next node.
    CutRing,
    /// Cuts of any shape come and go, several times a second.
    CutFlapping,
    /// One node hears its peers and no clients.
    CutClients,
    /// A node is cut off while another is killed and started again.
    CutAndKill,
    /// Packets to and from one node take up to a quarter of a second.
    SlowOne,
    /// Packets of all nodes take up to 60 ms.
    SlowAll,
    /// A node is killed while all links are slow.
    SlowAndKill,
    /// Packets between nodes get lost.
    Loss,
    /// One node's wire carries 2 Mbit/s.
    Narrow,
    /// The disk of one node is full; it is started again there before and after there is space.
    FullDisk,
    /// The disks of all nodes are full.
    FullDiskAll,
    /// Files of one node are damaged while it is down.
    Damage,
    /// All files of one node are gone when it starts.
    Wipe,
    /// The time of day of one node jumps by up to a year.
    ClockSteps,
    /// One node comes back with another monotonic clock, as after a restart of its machine.
    ClockReboot,
    /// Destroys all acknowledged data, beyond any promise, so the run must report it. Only on
    /// demand.
    ForgetAll,
}

/// Why a run leaves a fault out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// It breaks this durability's promise, or has no effect there.
    Durability(&'static str),
    /// The host lacks a requirement.
    Host(&'static str),
    /// It proves that violations are found, and fails every run.
    OnDemand,
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Obstacle::Durability(why) => write!(f, "not in this mode: {why}"),
            Obstacle::Host(why) => write!(f, "not possible here: {why}"),
            Obstacle::OnDemand => f.write_str("only on demand"),
        }
    }
}

impl Fault {
    /// All, in the order of the table.
    pub fn all() -> &'static [Fault] {
        <Fault as clap::ValueEnum>::value_variants()
    }

    /// As on the command line.
    pub fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.expect("no fault is hidden from the command line").get_name().to_string()
    }

    /// Why it cannot happen, if so.
    pub fn obstacle(self, durability: Durability, host: &Host) -> Option<Obstacle> {
        let is_volatile = durability == Durability::Volatile;
        let needs = |tool, why| (!host.has(tool)).then_some(Obstacle::Host(why));
        match self {
            Fault::KillMajority | Fault::KillAll if is_volatile => {
                Some(Obstacle::Durability("memory of a majority is lost"))
            }
            Fault::FullDisk | Fault::FullDiskAll | Fault::Damage if is_volatile => {
                Some(Obstacle::Durability("it has no files"))
            }
            Fault::FullDisk | Fault::FullDiskAll if ground(durability, host) == Ground::Folder => {
                Some(Obstacle::Host("neither loop devices nor tmpfs"))
            }
            Fault::CutReset | Fault::CutClients | Fault::Loss => needs(Tool::Nft, "no nft"),
            Fault::SlowOne | Fault::SlowAll | Fault::SlowAndKill if !host.has(Tool::Netem) => {
                needs(Tool::Nft, "neither netem nor nft")
            }
            Fault::Narrow => needs(Tool::Tbf, "no tbf in the kernel"),
            Fault::ClockSteps => needs(Tool::Faketime, "no libfaketime"),
            Fault::ClockReboot => needs(Tool::TimeNamespace, "no time namespaces"),
            Fault::ForgetAll => Some(Obstacle::OnDemand),
            _ => None,
        }
    }
}

/// The kind of volume for the nodes' data.
pub fn ground(durability: Durability, host: &Host) -> Ground {
    match durability {
        Durability::Volatile => Ground::Folder,
        Durability::Disk if host.has(Tool::Loop) => Ground::Loop,
        _ if host.has(Tool::Tmpfs) => Ground::Tmpfs,
        _ if host.has(Tool::Loop) => Ground::Loop,
        _ => Ground::Folder,
    }
}

/// Faults without end: all once in a random order, then all again in another.
pub struct Schedule {
    faults: Vec<Fault>,
    left: Vec<Fault>,
    rng: Prng,
}

impl Schedule {
    /// `None` without faults.
    pub fn new(faults: Vec<Fault>, rng: Prng) -> Option<Schedule> {
        (!faults.is_empty()).then_some(Schedule { faults, left: Vec::new(), rng })
    }
}

impl Iterator for Schedule {
    type Item = Fault;

    fn next(&mut self) -> Option<Fault> {
        if self.left.is_empty() {
            self.left.clone_from(&self.faults);
            for last in (1..self.left.len()).rev() {
                let other = self.rng.below(last as u64 + 1) as usize;
                self.left.swap(last, other);
            }
        }
        self.left.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(seed: u64) -> Vec<Fault> {
        let faults = vec![Fault::Kill, Fault::Pause, Fault::Loss, Fault::Damage];
        Schedule::new(faults, Prng::new(seed)).expect("there are faults").take(8).collect()
    }

    #[test]
    fn schedule_draws_each_fault_once_per_round() {
        for seed in 0..100 {
            for round in order(seed).chunks(4) {
                let mut round = round.to_vec();
                round.sort_unstable();
                assert_eq!(round, [Fault::Kill, Fault::Pause, Fault::Loss, Fault::Damage]);
            }
        }
    }

    #[test]
    fn seed_decides_the_schedule() {
        assert_eq!(order(7), order(7));
        assert!((0..20).any(|seed| order(seed) != order(7)));
        assert!(Schedule::new(Vec::new(), Prng::new(1)).is_none());
    }

    #[test]
    fn volatile_majority_never_loses_its_memory() {
        let host = Host::lacking(&[]);
        for fault in [Fault::KillAll, Fault::KillMajority] {
            assert!(fault.obstacle(Durability::Volatile, &host).is_some());
            assert_eq!(fault.obstacle(Durability::Disk, &host), None);
        }
    }

    #[test]
    fn missing_tools_have_a_stand_in() {
        let bare = Host::lacking(<Tool as clap::ValueEnum>::value_variants());
        for fault in [Fault::Loss, Fault::SlowOne, Fault::FullDisk, Fault::ClockSteps] {
            let obstacle = fault.obstacle(Durability::Disk, &bare);
            assert!(matches!(obstacle, Some(Obstacle::Host(_))), "{fault:?}");
        }
        assert_eq!(Fault::CutMinority.obstacle(Durability::Disk, &bare), None);
        let no_netem = Host::lacking(&[Tool::Netem]);
        assert_eq!(Fault::SlowAll.obstacle(Durability::Disk, &no_netem), None);
        let no_loop = Host::lacking(&[Tool::Loop]);
        assert_eq!(Fault::FullDisk.obstacle(Durability::Disk, &no_loop), None);
    }
}
