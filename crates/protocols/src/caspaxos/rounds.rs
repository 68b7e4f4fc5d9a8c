//! The rounds of a proposer: phases 1 and 2.

use std::sync::Arc;

use types::NodeId;

use super::grants::Grants;
use super::message::Body;
use super::register::Report;
use crate::quorum::Tally;
use crate::replicas::Replicas;
use crate::toolkit::proposers::{self, Kinds};
use crate::toolkit::report::Reports;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, State};

/// The types of this protocol, by those that differ from others.
pub type Machine = proposers::Machine<Grants>;
pub type Active = proposers::Active<Grants>;
pub type Phase = proposers::Phase<Grants>;
pub type Cx<'a> = proposers::Cx<'a, Grants>;
pub type Attempt = crate::toolkit::operation::Attempt<Basis>;

impl Kinds for Grants {
    type Report = Report;
    type Round = Round;
    type Basis = Basis;
    type Notes = ();
}

/// The facts that decide the fate of an attempt.
#[derive(Clone, Debug)]
pub struct Basis {
    /// The state that it was computed from.
    pub base: Base,
    /// The highest ballot under which it was proposed.
    pub ballot: Stamp,
}

#[derive(Clone, Debug)]
pub enum Round {
    Preparing(Box<Preparing>),
    Accepting(Box<Accepting>),
}

/// Phase 1.
#[derive(Clone, Debug)]
pub struct Preparing {
    pub ballot: Stamp,
    pub reports: Reports<Report>,
    pub refused: Tally,
}

/// Phase 2.
#[derive(Clone, Debug)]
pub struct Accepting {
    pub ballot: Stamp,
    pub next: Stamp,
    pub state: Arc<State>,
    pub acks: Tally,
    pub refused: Tally,
}

impl proposers::Round for Round {
    type Body = Body;

    fn question(&self) -> Body {
        match self {
            Round::Preparing(it) => Body::Prepare { ballot: it.ballot },
            Round::Accepting(it) => {
                let Accepting { ballot, next, ref state, .. } = **it;
                Body::Accept { ballot, next, state: state.clone() }
            }
        }
    }

    fn lacks(&self, replicas: Replicas<'_>, node: NodeId) -> bool {
        let (answered, refused) = match self {
            Round::Preparing(it) => (&it.reports.tally, &it.refused),
            Round::Accepting(it) => (&it.acks, &it.refused),
        };
        !answered.has(replicas, node) && !refused.has(replicas, node)
    }

    fn refused(&mut self) -> Option<&mut Tally> {
        match self {
            Round::Preparing(it) => Some(&mut it.refused),
            Round::Accepting(it) => Some(&mut it.refused),
        }
    }
}
