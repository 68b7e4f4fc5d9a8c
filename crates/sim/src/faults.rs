//! The faults that a run may contain, by name.

use std::fmt;

/// One kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// Frames vanish; on a connection, the connection ends.
    Loss,
    /// Frames arrive twice, the second time possibly much later.
    Duplication,
    /// Some frames take very long.
    Delay,
    /// Frames overtake each other; without it every link is first in, first out.
    Reorder,
    /// Windows in which a link delivers the newest frame first.
    Lifo,
    /// A set of nodes is cut off from the others, both ways.
    Partition,
    /// Some pairs of nodes are cut off while others are not: any graph.
    PartialPartition,
    /// One direction of one link is dead.
    OneWay,
    /// A node whose links are up to a hundred times slower than usual. In half of the cases the
    /// others notice, and spare it.
    Slow,
    /// Connections end and are made anew.
    Reset,
    /// A node stands still, for longer than any timeout, and goes on.
    Pause,
    /// A node's process ends at any moment; its durable state is there when it starts again.
    Crash,
    /// The same, right after it sent a message.
    CrashAfterTurn,
    /// All nodes crash at once.
    RestartAll,
    /// Nodes restart one after the other, the next when the last one is up again, or before.
    RollingRestart,
    /// A crash may leave any part of the writes in progress.
    Torn,
    /// A node starts again without its memory: a wiped disk, or `volatile`.
    Amnesia,
    /// A durable record turns out damaged, or the records of a log on one node.
    Rot,
    /// A sector reverts to its content before a write that also changed the head of its page. An
    /// old head, or an old sector of the ring, looks valid: no engine promises to survive that.
    RollBack,
    /// The device is full: writes that need space fail, and the node stops until there is space.
    DiskFull,
    /// A flush fails: its data may or may not be durable, and the node stops.
    FlushError,
    /// Clocks that run fast and slow.
    Drift,
    /// Wall clocks that jump.
    Jump,
    /// Registers leave memory all the time and are read back.
    Eviction,
    /// Nodes that start again with another number of workers.
    Workers,
}

const NAMES: &[(Fault, &str)] = &[
    (Fault::Loss, "loss"),
    (Fault::Duplication, "duplication"),
    (Fault::Delay, "delay"),
    (Fault::Reorder, "reorder"),
    (Fault::Lifo, "lifo"),
    (Fault::Partition, "partition"),
    (Fault::PartialPartition, "partial-partition"),
    (Fault::OneWay, "one-way"),
    (Fault::Slow, "slow"),
    (Fault::Reset, "reset"),
    (Fault::Pause, "pause"),
    (Fault::Crash, "crash"),
    (Fault::CrashAfterTurn, "crash-after-turn"),
    (Fault::RestartAll, "restart-all"),
    (Fault::RollingRestart, "rolling-restart"),
    (Fault::Torn, "torn"),
    (Fault::Amnesia, "amnesia"),
    (Fault::Rot, "rot"),
    (Fault::RollBack, "roll-back"),
    (Fault::DiskFull, "disk-full"),
    (Fault::FlushError, "flush-error"),
    (Fault::Drift, "drift"),
    (Fault::Jump, "jump"),
    (Fault::Eviction, "eviction"),
    (Fault::Workers, "workers"),
];

impl Fault {
    /// False for faults that change a node behind the others' backs.
    ///
    /// Only protocols that can go on without such a node, or take it back, survive those.
    #[must_use]
    pub fn leaves_members(self) -> bool {
        !matches!(
            self,
            Fault::Crash
                | Fault::CrashAfterTurn
                | Fault::RestartAll
                | Fault::RollingRestart
                | Fault::RollBack
                | Fault::DiskFull
                | Fault::Torn
                | Fault::Amnesia
                | Fault::Rot
                | Fault::FlushError
                | Fault::Workers
        )
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Fault> {
        NAMES.iter().map(|&(fault, _)| fault)
    }

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }
}

/// Some of the faults.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FaultSet(u32);

impl fmt::Debug for FaultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FaultSet {
    pub const NONE: FaultSet = FaultSet(0);

    #[must_use]
    pub fn all() -> FaultSet {
        Fault::all().collect()
    }

    #[must_use]
    pub fn has(self, fault: Fault) -> bool {
        self.0 & fault.bit() != 0
    }

    #[must_use]
    pub fn without(self, fault: Fault) -> FaultSet {
        FaultSet(self.0 & !fault.bit())
    }

    #[must_use]
    pub fn with(self, fault: Fault) -> FaultSet {
        FaultSet(self.0 | fault.bit())
    }

    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::all().filter(move |&fault| self.has(fault))
    }

    /// Parses `none`, `all`, or names separated by commas.
    ///
    /// # Errors
    /// One line that names the unknown fault and the known ones.
    pub fn parse(text: &str) -> Result<FaultSet, String> {
        match text {
            "none" => Ok(FaultSet::NONE),
            "all" => Ok(FaultSet::all()),
            list => list.split(',').map(by_name).collect(),
        }
    }
}

fn by_name(name: &str) -> Result<Fault, String> {
    let found = NAMES.iter().find(|(_, known)| *known == name);
    found.map(|&(fault, _)| fault).ok_or_else(|| {
        let known: Vec<&str> = NAMES.iter().map(|(_, name)| *name).collect();
        format!("no fault is called '{name}'; use none, all, or some of {}", known.join(","))
    })
}

impl FromIterator<Fault> for FaultSet {
    fn from_iter<I: IntoIterator<Item = Fault>>(faults: I) -> FaultSet {
        faults.into_iter().fold(FaultSet::NONE, FaultSet::with)
    }
}

impl fmt::Display for FaultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == FaultSet::NONE {
            return write!(f, "none");
        }
        if *self == FaultSet::all() {
            return write!(f, "all");
        }
        let names: Vec<&str> = self.iter().map(Fault::name).collect();
        write!(f, "{}", names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_form_parses() {
        let some: FaultSet = [Fault::Rot, Fault::OneWay].into_iter().collect();
        for set in [FaultSet::NONE, FaultSet::all(), some] {
            assert_eq!(FaultSet::parse(&set.to_string()), Ok(set));
        }
        assert!(FaultSet::parse("loss,gremlins").unwrap_err().contains("'gremlins'"));
    }

    #[test]
    fn every_fault_has_its_own_name() {
        assert!(Fault::all().enumerate().all(|(index, fault)| fault as usize == index));
    }
}
