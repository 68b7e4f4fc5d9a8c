//! The acceptor: the last committed state of a key, and the instance for the slot behind it.
//! [spec 3.4]

use std::sync::Arc;

use base::Millis;
use types::{Malformed, Reader, Wire, wire};

use crate::mutation::{self, Mutation};
use crate::toolkit::countdown::{Countdown, Started};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, State, put_base, slot_of, take_base};
use crate::uptime::Uptime;

/// The stored state of one key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Register {
    /// The last decided state that is known here.
    pub committed: Base,
    /// Uptime at the first state here with the deadline of the committed one.
    pub started: Option<Started>,
    /// No ballot below takes part in the slot behind the committed one.
    pub promised: Stamp,
    pub accepted: Option<Accepted>,
}

/// The vote in the slot behind the committed one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    pub ballot: Stamp,
    pub state: Arc<State>,
    pub started: Option<Started>,
}

/// The reason for which an acceptor takes no part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It promised a higher ballot.
    HigherSeen(Stamp),
    /// That slot is decided.
    SlotLow,
    /// The slot before is not committed here: no vote. [spec X2]
    SlotHigh,
}

/// A register as its replica reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub committed: Base,
    pub countdown: Countdown,
    pub promised: Stamp,
    pub accepted: Option<(Stamp, Arc<State>, Countdown)>,
}

/// The content of a register, as a quorum shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decided {
    /// The newest state that was decided before the reports were asked for, or a later one.
    pub base: Base,
    /// The highest promise reported for the slot behind it.
    pub promised: Stamp,
}

impl Default for Report {
    /// The report of a register that does not exist.
    fn default() -> Report {
        let (committed, countdown) = (None, Countdown::None);
        Report { committed, countdown, promised: Stamp::NONE, accepted: None }
    }
}

impl Report {
    #[must_use]
    pub fn slot(&self) -> u64 {
        slot_of(&self.committed)
    }
}

impl Register {
    #[must_use]
    pub fn slot(&self) -> u64 {
        slot_of(&self.committed)
    }

    /// The state that it has soon: a vote is decided as a rule, and that is not stored at once.
    #[must_use]
    pub fn latest(&self) -> Base {
        let vote = self.accepted.as_ref().map(|accepted| accepted.state.clone());
        vote.or_else(|| self.committed.clone())
    }

    /// Bytes of its values.
    #[must_use]
    pub fn value_len(&self) -> usize {
        let states = self.committed.iter().chain(self.accepted.iter().map(|it| &it.state));
        states.map(|state| state.value_len()).sum()
    }

    /// Takes part in this slot under this ballot, or says why not.
    fn at_slot(&self, slot: u64, ballot: Stamp) -> Result<(), Refusal> {
        match slot {
            _ if slot <= self.slot() => Err(Refusal::SlotLow),
            _ if slot > self.slot() + 1 => Err(Refusal::SlotHigh),
            _ if ballot < self.promised => Err(Refusal::HigherSeen(self.promised)),
            _ => Ok(()),
        }
    }

    /// Phase 1. [spec X3]
    ///
    /// # Errors
    /// The reason against a promise.
    pub fn propose(&mut self, slot: u64, ballot: Stamp) -> Result<(), Refusal> {
        self.at_slot(slot, ballot)?;
        self.promised = ballot;
        Ok(())
    }

    /// Phase 2. [spec X4]
    ///
    /// # Errors
    /// The reason against a vote.
    pub fn accept(
        &mut self,
        ballot: Stamp,
        state: &Arc<State>,
        uptime: &dyn Uptime,
    ) -> Result<(), Refusal> {
        match self.at_slot(state.slot, ballot) {
            Err(Refusal::HigherSeen(_)) if mutation::is(Mutation::AcceptBelowPromise) => {}
            verdict => verdict?,
        }
        self.promised = ballot;
        let started = self.started_of(state, uptime);
        self.accepted = Some(Accepted { ballot, state: state.clone(), started });
        Ok(())
    }

    /// Learns that a state is decided. False if it is known. [spec X5]
    pub fn commit(&mut self, state: &Arc<State>, uptime: &dyn Uptime) -> bool {
        if state.slot <= self.slot() {
            return false;
        }
        let started = self.started_of(state, uptime);
        let committed = Some(state.clone());
        *self = Register { committed, started, promised: Stamp::NONE, accepted: None };
        true
    }

    /// Learns that the vote under this ballot, or a higher one, is decided. A vote of a higher
    /// ballot in the slot is for the same state.
    pub fn commit_accepted(&mut self, slot: u64, ballot: Stamp, uptime: &dyn Uptime) -> bool {
        let is_it = |accepted: &&Accepted| {
            accepted.state.slot == slot
                && (accepted.ballot >= ballot || mutation::is(Mutation::CommitAnyVote))
        };
        let Some(accepted) = self.accepted.as_ref().filter(is_it) else { return false };
        let state = accepted.state.clone();
        self.commit(&state, uptime)
    }

    /// When the countdown of a state's deadline started here: goes on if the deadline is known.
    fn started_of(&self, state: &State, uptime: &dyn Uptime) -> Option<Started> {
        let id = state.expiry_id()?;
        let is_kept = mutation::is(Mutation::CountdownKept) && self.started.is_some();
        if is_kept || self.committed.as_ref().and_then(|it| it.expiry_id()) == Some(id) {
            return self.started;
        }
        match &self.accepted {
            Some(accepted) if accepted.state.expiry_id() == Some(id) => accepted.started,
            _ => Started::anew(state.ttl(), uptime),
        }
    }
}

const HAS_COMMITTED: u8 = 1;
const HAS_STARTED: u8 = 2;
const HAS_PROMISE: u8 = 4;
const HAS_ACCEPTED: u8 = 8;
const HAS_ACCEPTED_STARTED: u8 = 16;
const FLAGS: u8 = 31;

fn put_started(out: &mut Vec<u8>, started: Option<Started>) {
    if let Some(started) = started {
        wire::put_varint(out, started.uptime().0);
    }
}

fn take_started(reader: &mut Reader<'_>, has: bool) -> Result<Option<Started>, Malformed> {
    if has { Ok(Some(Started::at(Millis(reader.varint()?)))) } else { Ok(None) }
}

/// `flags u8 · [committed] · [started] · [promised] · [ballot · state · [started]]`
impl Wire for Register {
    fn encode(&self, out: &mut Vec<u8>) {
        let accepted_started = self.accepted.as_ref().and_then(|it| it.started);
        let flag = |is, flag| if is { flag } else { 0 };
        out.push(
            flag(self.committed.is_some(), HAS_COMMITTED)
                | flag(self.started.is_some(), HAS_STARTED)
                | flag(self.promised != Stamp::NONE, HAS_PROMISE)
                | flag(self.accepted.is_some(), HAS_ACCEPTED)
                | flag(accepted_started.is_some(), HAS_ACCEPTED_STARTED),
        );
        if let Some(state) = &self.committed {
            state.encode(out);
        }
        put_started(out, self.started);
        if self.promised != Stamp::NONE {
            self.promised.encode(out);
        }
        if let Some(accepted) = &self.accepted {
            accepted.ballot.encode(out);
            accepted.state.encode(out);
            put_started(out, accepted.started);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Register, Malformed> {
        let flags = reader.u8()?;
        let has = |flag| flags & flag != 0;
        if flags & !FLAGS != 0 || (has(HAS_ACCEPTED_STARTED) && !has(HAS_ACCEPTED)) {
            return Err(Malformed);
        }
        let committed = if has(HAS_COMMITTED) { Some(Arc::decode(reader)?) } else { None };
        let started = take_started(reader, has(HAS_STARTED))?;
        let promised = if has(HAS_PROMISE) { Stamp::decode(reader)? } else { Stamp::NONE };
        let accepted = match has(HAS_ACCEPTED) {
            true => Some(Accepted {
                ballot: Stamp::decode(reader)?,
                state: Arc::decode(reader)?,
                started: take_started(reader, has(HAS_ACCEPTED_STARTED))?,
            }),
            false => None,
        };
        let register = Register { committed, started, promised, accepted };
        register.check().map_err(|_| Malformed)?;
        Ok(register)
    }
}

impl Register {
    /// # Errors
    /// Names the invariant that does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        match &self.accepted {
            Some(accepted) if accepted.state.slot != self.slot() + 1 => {
                Err("a vote is for the slot behind the committed one")
            }
            Some(accepted) if accepted.ballot > self.promised => {
                Err("a vote is under a promised ballot")
            }
            _ => Ok(()),
        }
    }
}

impl Wire for Report {
    fn encode(&self, out: &mut Vec<u8>) {
        let accepted = u8::from(self.accepted.is_some()) << 1;
        out.push(u8::from(self.committed.is_some()) | accepted);
        if let Some(state) = &self.committed {
            state.encode(out);
        }
        self.countdown.encode(out);
        self.promised.encode(out);
        if let Some((ballot, state, countdown)) = &self.accepted {
            ballot.encode(out);
            state.encode(out);
            countdown.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Report, Malformed> {
        let flags = reader.u8()?;
        if flags > 3 {
            return Err(Malformed);
        }
        let committed = if flags & 1 != 0 { Some(Arc::decode(reader)?) } else { None };
        let countdown = Countdown::decode(reader)?;
        let promised = Stamp::decode(reader)?;
        let accepted = match flags & 2 {
            0 => None,
            _ => Some((Stamp::decode(reader)?, Arc::decode(reader)?, Countdown::decode(reader)?)),
        };
        Ok(Report { committed, countdown, promised, accepted })
    }
}

impl Wire for Decided {
    fn encode(&self, out: &mut Vec<u8>) {
        put_base(out, &self.base);
        self.promised.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Decided, Malformed> {
        Ok(Decided { base: take_base(reader)?, promised: Stamp::decode(reader)? })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use types::{Incarnation, NodeId};

    use super::*;
    use crate::toolkit::state::tests::state;

    pub(in crate::classic_paxos) fn ballot(number: u64) -> Stamp {
        Stamp { number, writer: NodeId(1), incarnation: Incarnation(1) }
    }

    pub(in crate::classic_paxos) fn held(slot: u64) -> Register {
        Register { committed: Some(Arc::new(state(slot, Some(b"v")))), ..Register::default() }
    }

    const UPTIME: Millis = Millis(100);

    #[test]
    fn acceptor_votes_behind_its_committed_slot_only() {
        let mut register = held(4);
        assert_eq!(register.propose(4, ballot(9)), Err(Refusal::SlotLow));
        assert_eq!(register.propose(6, ballot(9)), Err(Refusal::SlotHigh));
        assert_eq!(register.propose(5, ballot(9)), Ok(()));
        let next = Arc::new(state(6, None));
        assert_eq!(register.accept(ballot(9), &next, &UPTIME), Err(Refusal::SlotHigh));
    }

    #[test]
    fn acceptor_rejects_lower_ballot() {
        let mut register = held(4);
        assert_eq!(register.propose(5, ballot(9)), Ok(()));
        assert_eq!(register.propose(5, ballot(8)), Err(Refusal::HigherSeen(ballot(9))));
        let next = Arc::new(state(5, None));
        assert_eq!(register.accept(ballot(8), &next, &UPTIME), Err(Refusal::HigherSeen(ballot(9))));
        assert_eq!(register.accept(ballot(9), &next, &UPTIME), Ok(()));
        assert_eq!(register.propose(5, ballot(9)), Ok(()), "a repeated message");
        assert!(register.check().is_ok());
    }

    #[test]
    fn commit_opens_the_next_slot() {
        let mut register = held(4);
        let next = Arc::new(state(5, Some(b"w")));
        assert_eq!(register.accept(ballot(9), &next, &UPTIME), Ok(()));
        assert!(!register.commit_accepted(5, ballot(10), &UPTIME), "that vote is unknown here");
        assert!(register.commit_accepted(5, ballot(7), &UPTIME), "a higher vote is for the same");
        assert_eq!((register.slot(), register.promised), (5, Stamp::NONE));
        assert!(!register.commit(&next, &UPTIME));
        assert_eq!(register.propose(6, ballot(1)), Ok(()));
    }

    #[test]
    fn registers_come_back() {
        let mut register = held(4);
        assert_eq!(register.propose(5, ballot(3)), Ok(()));
        assert_eq!(register.accept(ballot(4), &Arc::new(state(5, None)), &UPTIME), Ok(()));
        assert_eq!(Register::from_bytes(&register.to_bytes()), Ok(register.clone()));
        register.promised = Stamp::NONE;
        assert_eq!(Register::from_bytes(&register.to_bytes()), Err(Malformed));
    }
}
