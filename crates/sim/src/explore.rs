//! Small worlds, explored to their end: every order of deliveries, losses, crashes and timers that a budget allows.
//!
//! A few nodes run the code of a protocol itself, on one key, asked by clients of a few commands each. A state is all
//! that decides what can come next: what the nodes hold and are about, what is on its way, what clients were told and in
//! which order. States met before are not gone into again, so where the search ends by itself nothing was left out.
//!
//! Memory only: what a flush does to an order of events is the business of random runs. A node has a clock of its own
//! that moves when one of its timers fires; nobody else's does.

mod search;
mod world;

use checker::model::kv::KvInput;

pub use search::{Exploration, Fault, explore};
pub use world::Choice;

/// What may happen besides deliveries, and how often in one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Budget {
    /// Messages that vanish.
    pub losses: u8,
    /// Messages that arrive once more.
    pub duplicates: u8,
    /// Nodes that stop for good.
    pub stops: u8,
    /// Nodes that start again without their memory.
    pub wipes: u8,
    /// Timers that fire.
    pub timers: u8,
}

/// A world to explore.
#[derive(Clone, Debug)]
pub struct Plan {
    pub nodes: u16,
    /// Clients: the node that each asks, and its commands, one after the other.
    pub clients: Vec<(u16, Vec<KvInput>)>,
    pub budget: Budget,
    /// The search gives up after so many states.
    pub states_max: u64,
}

/// The worlds that are explored by name; true for those of plain reads and writes.
#[must_use]
pub fn worlds(states_max: u64) -> Vec<(&'static str, bool, Plan)> {
    let set = |value: &str| KvInput::Set(value.into());
    let append = |value: &str| KvInput::Append(value.into());
    let plan =
        |clients: Vec<(u16, Vec<KvInput>)>, budget| Plan { nodes: 3, clients, budget, states_max };
    let none = Budget::default();
    let one_each = |a: KvInput, b: KvInput| vec![(1, vec![a]), (2, vec![b])];
    let two_each =
        || vec![(1, vec![append("a"), append("b")]), (2, vec![append("c"), append("d")])];
    let losses = Budget { losses: 1, ..none };
    let stops = Budget { stops: 1, ..none };
    let wipes = Budget { wipes: 1, ..none };
    let timers = Budget { timers: 1, ..none };
    vec![
        ("a write, a read", true, plan(one_each(set("a"), KvInput::Get), none)),
        ("two writes", true, plan(one_each(set("a"), set("b")), none)),
        ("two appends", false, plan(one_each(append("a"), append("b")), none)),
        ("two appends, a loss", false, plan(one_each(append("a"), append("b")), losses)),
        ("two appends, a stop", false, plan(one_each(append("a"), append("b")), stops)),
        ("two appends, a wipe", false, plan(one_each(append("a"), append("b")), wipes)),
        ("two appends, a timer", false, plan(one_each(append("a"), append("b")), timers)),
        ("an append, a delete, a timer", false, plan(one_each(append("a"), KvInput::Del), timers)),
        ("two appends each", false, plan(two_each(), none)),
        ("two appends each, a loss", false, plan(two_each(), losses)),
        (
            "two appends each, a loss, a stop, a timer",
            false,
            plan(two_each(), Budget { losses: 1, stops: 1, timers: 1, ..none }),
        ),
    ]
}
