//! Small worlds, explored to their end: every order of deliveries, crashes and timers that a budget
//! allows.
//!
//! A few nodes run the code of a protocol itself, on one key, with clients of a few commands each.
//! A state holds everything that affects the future.
//! That is the state of nodes, messages under way, and the outcomes of commands with their order.
//! The search visits each state once, so a search that ends by itself is exhaustive.
//!
//! # How it is made small and fast
//! - *A node's step depends on that node alone*. States of one node are numbered, and each step
//!   from a state by an event runs once ([`table`]). A world is a few numbers, and its step is a
//!   table lookup.
//! - *Lost messages cost no state*. A message may stay under way for ever, and the world can go on
//!   without it. Every check forbids an event, so a world without further events needs no check.
//!   Hence every number of losses is in every world.
//! - *A message without effect* stays where it is, for the same reason: the world without it has no
//!   further options.
//! - *A message that can have no effect any more* is dropped, once that is proven ([`dead`]).
//! - *When every client has all its answers*, no outcome can change, and the path ends.
//! - *Identity among equal things has no effect*. Messages under way are a sorted bag. Numbers that
//!   a protocol only compares ([`node`]) are replaced by ranks. Timers are forgotten once none may
//!   fire any more.
//! - Commands are numbered by client and position, not by the order of issue. A verdict needs only
//!   the precedences between ends and issues, which are kept.
//!
//! Replicas and clients are not interchangeable: protocols tell them apart, because ballots are
//! ordered by node. Visited worlds are known by 128 bits of hash, and so are states of nodes. Two
//! of 10^8 worlds collide with a probability below 10^-22.
//!
//! A flush completes at the end of a step: random runs cover the order of flushes and other events.
//! A node's clock moves only when one of its own timers fires.

mod clients;
mod dead;
mod epochs;
mod node;
mod search;
mod table;
mod world;

use checker::model::kv::KvInput;
use protocols::Protocol;

pub use search::{Counterexample, Exploration, explore};

/// Events besides deliveries that may happen, and how often in one run. Losses of messages are not
/// counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Budget {
    /// Messages that arrive once more.
    pub duplicates: u8,
    /// Nodes that stop for good.
    pub stops: u8,
    /// Nodes that start again without their memory.
    pub wipes: u8,
    /// Nodes that start again with their stored state. The world is then one of durable nodes.
    pub restarts: u8,
    /// Timers that fire.
    pub timers: u8,
}

/// A world to explore.
#[derive(Clone, Debug)]
pub struct WorldPlan {
    pub nodes: u16,
    /// The first so many nodes keep the key. The others are no replicas.
    pub replicas: u16,
    /// Clients: the node of each, and its commands in order.
    pub clients: Vec<(u16, Vec<KvInput>)>,
    pub budget: Budget,
    /// The nodes have talked first until none had more to say, in one order. Else they begin with
    /// the first event.
    pub is_settled: bool,
    /// The configurations of a group after the first, in their order.
    pub epochs: Vec<EpochPlan>,
    /// The search gives up after so many states.
    pub states_max: u64,
}

/// A configuration: its members by node.
#[derive(Clone, Debug)]
pub struct EpochPlan {
    pub full: Vec<u16>,
    pub shadows: Vec<u16>,
}

/// A world by its name.
pub struct NamedWorld {
    pub name: &'static str,
    /// Reads and writes whose effects do not depend on the state.
    pub is_plain: bool,
    pub plan: WorldPlan,
}

/// The worlds that are explored, small ones first.
#[must_use]
pub fn worlds(states_max: u64) -> Vec<NamedWorld> {
    let set = |value: &str| KvInput::Set(value.into());
    let append = |value: &str| KvInput::Append(value.into());
    let named = |name, is_plain, clients: &[(u16, Vec<KvInput>)], budget| NamedWorld {
        name,
        is_plain,
        plan: WorldPlan {
            nodes: 3,
            replicas: 3,
            clients: clients.to_vec(),
            budget,
            is_settled: false,
            epochs: Vec::new(),
            states_max,
        },
    };
    // The last node is no replica.
    let outside = |name, nodes, clients: &[(u16, Vec<KvInput>)], budget| {
        let mut named = named(name, false, clients, budget);
        (named.plan.nodes, named.plan.replicas) = (nodes, nodes - 1);
        named
    };
    // A group of some of three nodes, and its later members: full ones, shadows.
    let group = |name, replicas, clients: &[(u16, Vec<KvInput>)], epochs: &[(&[u16], &[u16])]| {
        let mut named = named(name, false, clients, Budget::default());
        let epoch = |&(full, shadows): &(&[u16], &[u16])| EpochPlan {
            full: full.to_vec(),
            shadows: shadows.to_vec(),
        };
        named.plan.replicas = replicas;
        named.plan.epochs = epochs.iter().map(epoch).collect();
        named
    };
    let settled = |name, clients: &[(u16, Vec<KvInput>)], budget| {
        let mut named = named(name, false, clients, budget);
        named.plan.is_settled = true;
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
    let append_read = &[(1, vec![append("a")]), (2, vec![KvInput::Get])];
    let append_then_read = &[(1, vec![append("a")]), (3, vec![KvInput::Get])];
    let same: &[(&[u16], &[u16])] = &[(&[1, 2, 3], &[])];
    let first_leaves: &[(&[u16], &[u16])] = &[(&[2, 3], &[])];
    let last_leaves: &[(&[u16], &[u16])] = &[(&[1, 2], &[])];
    let joins: &[(&[u16], &[u16])] = &[(&[1, 2], &[3])];
    let takes_over: &[(&[u16], &[u16])] = &[(&[1, 2], &[3]), (&[2, 3], &[])];
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
        settled("a settled append", &appends[..1], none),
        settled("a settled append and a read", append_read, none),
        settled("two settled appends", appends, none),
        settled("a settled append, a node restarts", &appends[..1], restart),
        settled("two settled appends, a node restarts", appends, restart),
        group("an append, a read, an epoch", 3, append_read, same),
        group("two appends, an epoch", 3, appends, same),
        group("an append, a read, the first member leaves", 3, append_read, first_leaves),
        group("an append, a read, the last member leaves", 3, append_read, last_leaves),
        group("two appends, the first member leaves", 3, appends, first_leaves),
        group("an append, a read, a shadow joins", 2, append_read, joins),
        group("an append, a read, a shadow takes over", 2, append_then_read, takes_over),
        group("two appends, a shadow takes over", 2, appends, takes_over),
    ]
}

/// Whether a protocol supports such a world.
#[must_use]
pub fn is_livable<P: Protocol>(named: &NamedWorld) -> bool {
    let budget = named.plan.budget;
    // These have no way back for a node that forgot, and those without a log none for one that
    // restarts.
    let is_without_return = P::PROPERTIES.needs_config || P::PROPERTIES.total_order;
    let returns = if P::PROPERTIES.keeps_log { budget.restarts } else { 0 };
    let has_epochs = !named.plan.epochs.is_empty();
    let knows_outside = named.plan.replicas == named.plan.nodes || !is_without_return || has_epochs;
    (!has_epochs || P::PROPERTIES.needs_config)
        && (named.is_plain || P::PROPERTIES.read_modify_write)
        && knows_outside
        && (!is_without_return || budget.wipes + budget.restarts == returns)
        && (!named.plan.is_settled || P::PROPERTIES.total_order)
}
