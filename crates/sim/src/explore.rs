//! Small worlds, explored to their end: every order of deliveries, crashes and timers that a budget allows.
//!
//! A few nodes run the code of a protocol itself, on one key, asked by clients of a few commands each. A state is all
//! that decides what can come next: what the nodes hold and are about, what is on its way, what clients were told and in
//! which order. States met before are not gone into again, so where the search ends by itself nothing was left out.
//!
//! # How it is made small and fast
//! - *A node's step depends on that node alone.* States of one node are numbered, and a step from such a state by an
//!   event is run once ([`table`]); a world is a few numbers, and a step of it a look into a table.
//! - *Lost messages cost nothing.* A message may stay on its way for ever, and whatever can happen without it can
//!   happen while it does. What is checked forbids something to happen; nothing is checked of worlds in which nothing
//!   can happen any more. So every number of losses is in every world.
//! - *A message that would change nothing* stays where it is, for the same reason: the world without it can do nothing
//!   that this one cannot.
//! - *A message that can change nothing any more* is dropped, once that is proven ([`dead`]).
//! - *When every client has all its answers*, nothing can be told any more, and it is not gone on.
//! - *Which of several equal things is which decides nothing.* Messages on their way are a sorted bag; what a protocol
//!   only compares ([`node`]) is told by its rank; timers are forgotten once none may fire any more.
//! - Commands are numbered by client and place, not by the order in which they happened to be asked. Which had ended
//!   before which was asked is kept, and is all that a verdict needs.
//!
//! Replicas and clients are not exchanged for one another: ballots are ordered by node, so protocols tell them apart.
//! Worlds already met are known by 128 bits of hash: among 10^8 of them two fall together with a probability below
//! 10^-22; states of nodes likewise.
//!
//! A flush is over at the end of a step: what it does to an order of events is the business of random runs. A node has a
//! clock of its own that moves when one of its timers fires; nobody else's does.

mod clients;
mod dead;
mod node;
mod search;
mod table;
mod world;

use checker::model::kv::KvInput;
use protocols::Protocol;
use protocols::rmwpaxos::RmwPaxos;

pub use search::{Exploration, Fault, explore};

/// What may happen besides deliveries, and how often in one run. Losses of messages are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Budget {
    /// Messages that arrive once more.
    pub duplicates: u8,
    /// Nodes that stop for good.
    pub stops: u8,
    /// Nodes that start again without their memory.
    pub wipes: u8,
    /// Nodes that start again with what they have stored. The world is then one of durable nodes.
    pub restarts: u8,
    /// Timers that fire.
    pub timers: u8,
}

/// A world to explore.
#[derive(Clone, Debug)]
pub struct Plan {
    pub nodes: u16,
    /// The first so many nodes keep the key. The others are no replicas.
    pub replicas: u16,
    /// Clients: the node that each asks, and its commands, one after the other.
    pub clients: Vec<(u16, Vec<KvInput>)>,
    pub budget: Budget,
    /// The search gives up after so many states.
    pub states_max: u64,
}

/// A world by its name.
pub struct Named {
    pub name: &'static str,
    /// Reads and writes that do not depend on what was there.
    pub is_plain: bool,
    pub plan: Plan,
}

/// The worlds that are explored, small ones first.
#[must_use]
pub fn worlds(states_max: u64) -> Vec<Named> {
    let set = |value: &str| KvInput::Set(value.into());
    let append = |value: &str| KvInput::Append(value.into());
    let named = |name, is_plain, clients: &[(u16, Vec<KvInput>)], budget| Named {
        name,
        is_plain,
        plan: Plan { nodes: 3, replicas: 3, clients: clients.to_vec(), budget, states_max },
    };
    // The last node is no replica.
    let outside = |name, nodes, clients: &[(u16, Vec<KvInput>)], budget| {
        let mut named = named(name, false, clients, budget);
        (named.plan.nodes, named.plan.replicas) = (nodes, nodes - 1);
        named
    };
    let none = Budget::default();
    let stop = Budget { stops: 1, ..none };
    let wipe = Budget { wipes: 1, ..none };
    let restart = Budget { restarts: 1, ..none };
    let timer = Budget { timers: 1, ..none };
    let duplicate = Budget { duplicates: 1, ..none };
    let write_read = &[(1, vec![set("a")]), (2, vec![KvInput::Get])];
    let writes = &[(1, vec![set("a")]), (2, vec![set("b")])];
    let both = &[(1, vec![set("a"), KvInput::Get]), (2, vec![set("b"), KvInput::Get])];
    let appends = &[(1, vec![append("a")]), (2, vec![append("b")])];
    let delete = &[(1, vec![append("a")]), (2, vec![KvInput::Del])];
    let twice = &[(1, vec![append("a"), append("b")]), (2, vec![append("c"), append("d")])];
    let outer = &[(4, vec![append("a")]), (1, vec![append("b")])];
    let outer_of_two = &[(3, vec![append("a")]), (1, vec![append("b")])];
    let outers = &[(4, vec![append("a")]), (4, vec![append("b")])];
    let uneven = &[(1, vec![append("a"), append("b")]), (2, vec![append("c")])];
    vec![
        named("a write, a read", true, write_read, none),
        named("two writes", true, writes, none),
        named("two writes, a node stops", true, writes, stop),
        named("two writes, a node forgets", true, writes, wipe),
        named("two writes, a node restarts", true, writes, restart),
        named("a write and a read each", true, both, none),
        named("a write and a read each, a node stops", true, both, stop),
        named("two appends", false, appends, none),
        named("two appends, a message twice", false, appends, duplicate),
        named("two appends, a node stops", false, appends, stop),
        named("two appends, a node restarts", false, appends, restart),
        named("two appends, a node forgets", false, appends, wipe),
        named("two appends, a timer", false, appends, timer),
        named("an append, a delete, a timer", false, delete, timer),
        outside("an append from outside", 4, outer, none),
        outside("an append from outside, a node stops", 4, outer, stop),
        outside("an append from outside of two, a node restarts", 3, outer_of_two, restart),
        outside("an append from outside, a node forgets", 4, outer, wipe),
        outside("two appends from outside", 4, outers, none),
        named("two appends and one", false, uneven, none),
        named("two appends and one, a node stops", false, uneven, stop),
        named("two appends each", false, twice, none),
        named("two appends each, a node stops", false, twice, stop),
        named("two appends each, a node restarts", false, twice, restart),
        named("two appends each, a node forgets", false, twice, wipe),
    ]
}

/// Whether a protocol can live in such a world.
#[must_use]
pub fn is_livable<P: Protocol>(named: &Named) -> bool {
    let budget = named.plan.budget;
    // These keep nothing, and have no way back for a node that forgot: their failure-free parts alone are here.
    let is_without_return = P::PROPERTIES.needs_config;
    let knows_outside = named.plan.replicas == named.plan.nodes || P::NAME == RmwPaxos::NAME;
    (named.is_plain || P::PROPERTIES.read_modify_write)
        && knows_outside
        && (!is_without_return || budget.wipes + budget.restarts == 0)
}
