//! The product's marks that a long run must reach: a branch that no seed takes is untested.
//!
//! `tests/marks.rs` compares this list with the sources.

use node::registry;

/// Every mark, and the runs that can reach it. These are a protocol, those of configured groups, a
/// medium that must be requested (`pmem` is rarely drawn), transactions (rare unless requested), or
/// media faults.
pub const MARKS: &[(&str, &str)] = &[
    ("disk", "disk: a record of the ring goes home to an extent"),
    ("disk", "disk: a record that a stripe has room for goes to an extent before it"),
    ("disk", "disk: a write-back begins while another is written"),
    ("node", "an absent register leaves memory"),
    ("node", "a listing is overtaken by amnesia"),
    ("node", "a message becomes stale while it waits"),
    ("node", "a register is written and evicted while it is read"),
    ("node", "a register of a recovered shard waits until storage knows"),
    ("node", "a worker speaks again after amnesia"),
    ("node", "an event waits for its register"),
    ("pmem", "pmem: a page is chained to a leaf"),
    ("pmem", "pmem: an unfinished version is undone"),
    ("pmem", "pmem: damage makes a shard forgotten"),
    ("pmem", "pmem: the pages of an empty run are given back"),
    ("craq", "the register of a deleted key is removed"),
    ("groups", "a copy of a passed request comes"),
    ("groups", "a message comes before its epoch"),
    ("groups", "a page of a copy is asked for again"),
    ("rmwpaxos", "a command is forgotten after its window"),
    ("rmwpaxos", "a command of an earlier incarnation is not proposed any more"),
    ("rmwpaxos", "a comparison asks again"),
    ("rmwpaxos", "a comparison of ranges repairs a member"),
    ("rmwpaxos", "a delta cannot be applied"),
    ("rmwpaxos", "a fence shuts out a proposal"),
    ("rmwpaxos", "a fence shuts out a silent node"),
    ("rmwpaxos", "a first proposal that travels with phase 1 does not fit"),
    ("rmwpaxos", "a first proposal that travels with phase 1 never was one"),
    ("rmwpaxos", "a first proposal travels with phase 1"),
    ("rmwpaxos", "a floor rises to that of a member that holds the same"),
    ("rmwpaxos", "a forgotten register is recovered"),
    ("rmwpaxos", "a forgotten shard is recovered"),
    ("rmwpaxos", "a member that was asked learns that it is equal"),
    ("rmwpaxos", "a possible earlier run is repeated, and the table decides"),
    ("rmwpaxos", "a proposal is asked for whole when it is settled"),
    ("rmwpaxos", "a proposal is asked for whole while it is under way"),
    ("rmwpaxos", "a proposal travels as a delta"),
    ("rmwpaxos", "a quorum read stays undecided and a proposal decides"),
    ("rmwpaxos", "a read believes the chosen mark"),
    ("rmwpaxos", "a recovering replica decides by a proposal of its own"),
    ("rmwpaxos", "a register that another may have removed waits for the rest"),
    ("rmwpaxos", "a round refused for a promise is proposed anew"),
    ("rmwpaxos", "a shard is forgotten again while it is recovered"),
    ("rmwpaxos", "a shard is recovered before a register of it"),
    ("rmwpaxos", "a slow peer is spared a proposal"),
    ("rmwpaxos", "a tombstone is collected"),
    ("rmwpaxos", "a vote on windows of remembered commands"),
    ("rmwpaxos", "an attempt is excluded by a chosen state"),
    ("rmwpaxos", "an owner repairs a member that missed its proposal"),
    ("rmwpaxos", "commands are forwarded to the owner"),
    ("rmwpaxos", "lost shard fields are recovered"),
    ("rmwpaxos", "no message is resent to a slow peer"),
    ("rmwpaxos", "others do not stand in for a slow peer"),
    ("transactions", "a commit of a dead coordinator is settled"),
    ("transactions", "a lock of a dead coordinator is pushed"),
    ("transactions", "a read of several keys takes locks"),
    ("transactions", "a transaction is attempted again"),
    ("transactions", "an aborted record that stayed is forgotten"),
    ("transactions", "another node aborts a transaction before its commit"),
    ("transactions", "commands meet a lock while another one ends"),
    ("transactions", "it is unknown whether a commit was written"),
    ("transactions", "the record of a silent coordinator is forgotten"),
    ("media faults", "a member denies another's register"),
    ("media faults", "a register is older than it was"),
    ("media faults", "a register that may have gone back is recovered"),
    ("media faults", "a shard is disowned"),
    ("media faults", "disk: a page refers to a group that is not counted"),
    ("media faults", "disk: a start finds a superblock that is of no use"),
    ("media faults", "disk: a start finds sectors that parity restores"),
    ("media faults", "disk: a scrub finds a damaged map"),
    ("media faults", "disk: a map calls units free that are in use"),
    ("media faults", "disk: units of damaged content are left to a survey"),
    ("media faults", "disk: a scrub finds a damaged superblock"),
    ("media faults", "disk: a scrub finds damage"),
    ("media faults", "disk: a scrub finds damage that a cache does not show"),
    ("media faults", "disk: a scrub finds damage under what is in memory"),
    ("media faults", "disk: a superblock does not count a group"),
    ("media faults", "pmem: a scrub finds damage"),
    ("media faults", "the fields of a shard are older than they were"),
];

/// Marks that a run of this protocol should have reached and did not.
#[must_use]
pub fn missed(protocol: &str, reached: &[&str]) -> Vec<&'static str> {
    let applies = |whose: &str| match whose {
        "media faults" => false,
        "rmwpaxos" | "transactions" => protocol == "rmwpaxos",
        "craq" => protocol == "craq",
        "groups" => registry::find(protocol).is_some_and(|it| it.properties.needs_config),
        _ => true,
    };
    let marks = MARKS.iter().filter(|(whose, mark)| applies(whose) && !reached.contains(mark));
    marks.map(|(_, mark)| *mark).collect()
}
