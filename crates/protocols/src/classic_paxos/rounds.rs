//! The rounds of a proposer: phases 1 and 2, and the commit that rule Y5 waits for.

use std::sync::Arc;

use base::Millis;
use types::{NodeId, Outcome};

use super::message::Body;
use super::register::Report;
use crate::quorum::Tally;
use crate::replicas::Replicas;
use crate::toolkit::operation::{self, Operation};
use crate::toolkit::proposers::{self, Kinds};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, State};

/// The rules of an instance. `waits`: clients are answered when a majority knows the commit.
#[derive(Debug)]
pub struct Slots {
    pub waits: bool,
    pub name: &'static str,
}

pub type Machine = proposers::Machine<Slots>;
pub type Active = proposers::Active<Slots>;
pub type Phase = proposers::Phase<Slots>;
pub type Cx<'a> = proposers::Cx<'a, Slots>;
pub type Attempt = operation::Attempt<()>;

impl Kinds for Slots {
    type Report = Report;
    type Round = Round;
    type Basis = ();
    type Notes = Notes;
}

/// The knowledge about a key in use.
#[derive(Debug, Default)]
pub struct Notes {
    /// The newest state that this node saw decided in the present run of operations.
    pub base: Option<Base>,
}

#[derive(Clone, Debug)]
pub enum Round {
    Preparing(Box<Preparing>),
    Accepting(Accepting),
    /// Waits until a quorum knows that the state is decided. Only under rule Y5.
    Committing {
        state: Arc<State>,
        ops: Vec<(Operation, Outcome)>,
        acks: Tally,
    },
}

/// Phase 1.
#[derive(Clone, Debug)]
pub struct Preparing {
    pub base: Base,
    pub slot: u64,
    pub ballot: Stamp,
    pub promises: Tally,
    pub refused: Tally,
    /// The highest vote that a promise reports.
    pub highest: Option<(Stamp, Arc<State>)>,
    /// Promises that find the base's time over.
    pub over: Tally,
    /// The largest rest of it that is reported.
    pub rest: Option<Millis>,
}

/// Phase 2.
#[derive(Clone, Debug)]
pub struct Accepting {
    pub base: Base,
    pub ballot: Stamp,
    pub state: Arc<State>,
    pub acks: Tally,
    pub refused: Tally,
}

impl Round {
    /// The slot of phase 1 or 2.
    #[must_use]
    pub fn slot(&self) -> Option<u64> {
        match self {
            Round::Preparing(it) => Some(it.slot),
            Round::Accepting(it) => Some(it.state.slot),
            Round::Committing { .. } => None,
        }
    }

    /// The question to a replica that lacks the slot before.
    #[must_use]
    pub fn question_with_base(&self) -> Body {
        let mut question = proposers::Round::question(self);
        match (&mut question, self) {
            (Body::Propose { base, .. }, Round::Preparing(it)) => base.clone_from(&it.base),
            (Body::Accept { base, .. }, Round::Accepting(it)) => base.clone_from(&it.base),
            _ => {}
        }
        question
    }
}

impl proposers::Round for Round {
    type Body = Body;

    fn question(&self) -> Body {
        match self {
            Round::Preparing(it) => Body::Propose { slot: it.slot, ballot: it.ballot, base: None },
            Round::Accepting(it) => {
                Body::Accept { ballot: it.ballot, state: it.state.clone(), base: None }
            }
            Round::Committing { state, .. } => Body::Commit { state: state.clone(), answer: true },
        }
    }

    fn lacks(&self, replicas: Replicas<'_>, node: NodeId) -> bool {
        let has = |tally: &Tally| tally.has(replicas, node);
        match self {
            Round::Preparing(it) => !has(&it.promises) && !has(&it.refused),
            Round::Accepting(it) => !has(&it.acks) && !has(&it.refused),
            Round::Committing { acks, .. } => !has(acks),
        }
    }

    fn refused(&mut self) -> Option<&mut Tally> {
        match self {
            Round::Preparing(it) => Some(&mut it.refused),
            Round::Accepting(it) => Some(&mut it.refused),
            Round::Committing { .. } => None,
        }
    }

    fn ops(&self) -> &[(Operation, Outcome)] {
        match self {
            Round::Committing { ops, .. } => ops,
            Round::Preparing(_) | Round::Accepting(_) => &[],
        }
    }

    fn ops_mut(&mut self) -> Option<&mut Vec<(Operation, Outcome)>> {
        match self {
            Round::Committing { ops, .. } => Some(ops),
            Round::Preparing(_) | Round::Accepting(_) => None,
        }
    }
}
