//! Evidence of a broken promise, and its text for people.

use std::fmt;

use crate::history::OpId;
use crate::model::lists::{Element, Key};

/// One finding. Adya's and Elle's names are given where they have one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Anomaly {
    /// A read that contradicts earlier steps of its own transaction.
    Internal { reader: OpId, key: Key },
    /// A read shows one element twice.
    Duplicate { reader: OpId, key: Key, element: Element },
    /// A read shows an element that no transaction appended.
    Invented { reader: OpId, key: Key, element: Element },
    /// A read shows an append of a transaction that surely had no effect (G1a, aborted read).
    AbortedRead { reader: OpId, key: Key, element: Element, author: OpId },
    /// A transaction built upon an append of another that surely had no effect (dirty update).
    DirtyUpdate { key: Key, aborted: OpId, author: OpId },
    /// A read shows a transaction's appends to one list in part (G1b, intermediate read).
    IntermediateRead { reader: OpId, key: Key, element: Element, author: OpId },
    /// Two reads of one list of which neither is the beginning of the other.
    IncompatibleOrder { key: Key, one: OpId, other: OpId },
    /// A read shows a transaction's appends in another order than it made them, or with a gap.
    Reordered { reader: OpId, key: Key, author: OpId },
    /// Several transactions read the same of a list and then appended to it.
    LostUpdate { key: Key, authors: Vec<OpId> },
    /// Transactions each of which must come before the next, and the last before the first.
    Cycle(Cycle),
}

/// A cycle of dependencies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cycle {
    pub kind: CycleKind,
    /// Whether it would be none but for the order of sessions (Elle: `-process`).
    pub needs_sessions: bool,
    /// Whether it would be none but for real time (Elle: `-realtime`).
    pub needs_real_time: bool,
    /// Each ends where the next begins, the last where the first does.
    pub edges: Vec<Edge>,
}

/// Adya's names of cycles, by the dependencies between data in them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CycleKind {
    /// Appends only.
    G0,
    /// Appends and reads of them, at least one.
    G1c,
    /// One read that came too early for an append.
    GSingle,
    /// Several such reads.
    G2,
}

/// Why one transaction must come before another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    pub from: OpId,
    pub to: OpId,
    pub why: Dependency,
}

/// The relation of one transaction to a later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Dependency {
    /// The later one appended `element` after an append of the earlier one (ww).
    Overwrites { key: Key, element: Element },
    /// The later one read `element`, the earlier one's append (wr).
    Reads { key: Key, element: Element },
    /// The earlier one read the list without `element`, the later one's append (rw).
    Precedes { key: Key, element: Element },
    /// One client issued them in this order.
    Session,
    /// The earlier one responded before the later one was invoked.
    RealTime,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Anomaly::Internal { reader, key } => {
                write!(f, "internal: {reader} reads list {key} against its own steps")
            }
            Anomaly::Duplicate { reader, key, element } => {
                write!(f, "duplicate: {reader} reads {element} twice in list {key}")
            }
            Anomaly::Invented { reader, key, element } => {
                write!(
                    f,
                    "invented: {reader} reads {element} in list {key}, which no transaction appended"
                )
            }
            Anomaly::AbortedRead { reader, key, element, author } => write!(
                f,
                "G1a: {reader} reads {element} in list {key}, but {author}, which appended it, failed"
            ),
            Anomaly::DirtyUpdate { key, aborted, author } => write!(
                f,
                "dirty update: {author} appends to list {key} after {aborted}, which failed"
            ),
            Anomaly::IntermediateRead { reader, key, element, author } => write!(
                f,
                "G1b: {reader} reads list {key} up to {element}, after which {author} appended more"
            ),
            Anomaly::IncompatibleOrder { key, one, other } => {
                write!(f, "incompatible order: {one} and {other} read list {key} differently")
            }
            Anomaly::Reordered { reader, key, author } => write!(
                f,
                "reordered: {reader} reads the appends of {author} to list {key} in another order"
            ),
            Anomaly::LostUpdate { key, authors } => {
                let authors: Vec<String> = authors.iter().map(OpId::to_string).collect();
                let authors = authors.join(", ");
                write!(f, "lost update: {authors} read the same of list {key}, then appended")
            }
            Anomaly::Cycle(cycle) => cycle.fmt(f),
        }
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sessions = if self.needs_sessions { "-process" } else { "" };
        let real_time = if self.needs_real_time { "-realtime" } else { "" };
        write!(f, "{}{sessions}{real_time}:", self.kind)?;
        self.edges.iter().try_for_each(|edge| write!(f, "\n  {edge}"))
    }
}

impl fmt::Display for CycleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CycleKind::G0 => "G0",
            CycleKind::G1c => "G1c",
            CycleKind::GSingle => "G-single",
            CycleKind::G2 => "G2",
        })
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Edge { from, to, why } = self;
        match why {
            Dependency::Overwrites { key, element } => {
                write!(f, "{from} -> {to}: it appended {element} to list {key} after {from}")
            }
            Dependency::Reads { key, element } => {
                write!(f, "{from} -> {to}: it read {element} in list {key}, by {from}")
            }
            Dependency::Precedes { key, element } => {
                write!(f, "{from} -> {to}: it appended {element} to list {key}, unseen by {from}")
            }
            Dependency::Session => write!(f, "{from} -> {to}: its client issued it later"),
            Dependency::RealTime => write!(f, "{from} -> {to}: invoked after {from} responded"),
        }
    }
}
