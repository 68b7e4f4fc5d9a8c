//! The acceptor: the last committed state of a key, and the instance for the slot behind it.
//! [spec 3.4]

use std::sync::Arc;

use base::Millis;
use types::{Malformed, Reader, Wire, wire};

use crate::mutation::{self, Mutation};
use crate::toolkit::countdown::{Countdown, Started};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, ExpiryId, State, slot_of};
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

/// The acceptor's answer to a proposer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Yes,
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

impl Report {
    /// The report of a register that does not exist.
    pub const ABSENT: Report = Report {
        committed: None,
        countdown: Countdown::None,
        promised: Stamp::NONE,
        accepted: None,
    };

    #[must_use]
    pub fn slot(&self) -> u64 {
        slot_of(&self.committed)
    }

    /// The countdown of this deadline, by the states that have it.
    #[must_use]
    pub fn countdown_of(&self, id: ExpiryId) -> Countdown {
        let has = |state: &Arc<State>| state.expiry_id() == Some(id);
        match (&self.committed, &self.accepted) {
            (Some(state), _) if has(state) => self.countdown,
            (_, Some((_, state, countdown))) if has(state) => *countdown,
            _ => Countdown::None,
        }
    }

    /// The same with empty values in the place of others.
    #[must_use]
    pub fn without_values(&self) -> Report {
        let bare = |state: &Arc<State>| Arc::new(state.without_value());
        let accepted = self.accepted.as_ref();
        Report {
            committed: self.committed.as_ref().map(bare),
            accepted: accepted.map(|(ballot, state, left)| (*ballot, bare(state), *left)),
            ..*self
        }
    }
}

impl Register {
    #[must_use]
    pub fn slot(&self) -> u64 {
        slot_of(&self.committed)
    }

    /// Bytes of its values.
    #[must_use]
    pub fn value_len(&self) -> usize {
        let states = self.committed.iter().chain(self.accepted.iter().map(|it| &it.state));
        states.map(|state| state.value_len()).sum()
    }

    /// Takes part in the slot behind `slot`, or says why not.
    fn at_slot(&self, slot: u64, ballot: Stamp) -> Verdict {
        match slot {
            _ if slot <= self.slot() => Verdict::SlotLow,
            _ if slot > self.slot() + 1 => Verdict::SlotHigh,
            _ if ballot < self.promised => Verdict::HigherSeen(self.promised),
            _ => Verdict::Yes,
        }
    }

    /// Phase 1. [spec X3]
    pub fn propose(&mut self, slot: u64, ballot: Stamp) -> Verdict {
        let verdict = self.at_slot(slot, ballot);
        if verdict == Verdict::Yes {
            self.promised = ballot;
        }
        verdict
    }

    /// Phase 2. [spec X4]
    pub fn accept(&mut self, ballot: Stamp, state: &Arc<State>, uptime: &dyn Uptime) -> Verdict {
        let verdict = match self.at_slot(state.slot, ballot) {
            Verdict::HigherSeen(_) if mutation::is(Mutation::AcceptBelowPromise) => Verdict::Yes,
            verdict => verdict,
        };
        if verdict == Verdict::Yes {
            self.promised = ballot;
            let started = self.started_of(state, uptime);
            self.accepted = Some(Accepted { ballot, state: state.clone(), started });
        }
        verdict
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

    #[must_use]
    pub fn report(&self, uptime: &dyn Uptime, unix: Millis) -> Report {
        let left = |state: &State, started| match state.ttl() {
            Some(ttl) => Countdown::of(ttl, started, uptime, unix),
            None => Countdown::None,
        };
        let committed = self.committed.as_ref();
        let accepted = self.accepted.as_ref();
        Report {
            committed: self.committed.clone(),
            countdown: committed.map_or(Countdown::None, |state| left(state, self.started)),
            promised: self.promised,
            accepted: accepted.map(|it| (it.ballot, it.state.clone(), left(&it.state, it.started))),
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

#[cfg(test)]
mod tests {
    use types::{Incarnation, NodeId, TimeToLive};

    use super::*;
    use crate::toolkit::state::Expiry;
    use crate::toolkit::state::tests::{op, state};

    fn ballot(number: u64) -> Stamp {
        Stamp { number, writer: NodeId(1), incarnation: Incarnation(1) }
    }

    fn held(slot: u64) -> Register {
        Register { committed: Some(Arc::new(state(slot, Some(b"v")))), ..Register::default() }
    }

    const UPTIME: Millis = Millis(100);

    #[test]
    fn acceptor_votes_behind_its_committed_slot_only() {
        let mut register = held(4);
        assert_eq!(register.propose(4, ballot(9)), Verdict::SlotLow);
        assert_eq!(register.propose(6, ballot(9)), Verdict::SlotHigh);
        assert_eq!(register.propose(5, ballot(9)), Verdict::Yes);
        let next = Arc::new(state(6, None));
        assert_eq!(register.accept(ballot(9), &next, &UPTIME), Verdict::SlotHigh);
    }

    #[test]
    fn acceptor_rejects_lower_ballot() {
        let mut register = held(4);
        assert_eq!(register.propose(5, ballot(9)), Verdict::Yes);
        assert_eq!(register.propose(5, ballot(8)), Verdict::HigherSeen(ballot(9)));
        let next = Arc::new(state(5, None));
        assert_eq!(register.accept(ballot(8), &next, &UPTIME), Verdict::HigherSeen(ballot(9)));
        assert_eq!(register.accept(ballot(9), &next, &UPTIME), Verdict::Yes);
        assert_eq!(register.propose(5, ballot(9)), Verdict::Yes, "a repeated message");
        assert!(register.check().is_ok());
    }

    #[test]
    fn commit_opens_the_next_slot() {
        let mut register = held(4);
        let next = Arc::new(state(5, Some(b"w")));
        register.accept(ballot(9), &next, &UPTIME);
        assert!(!register.commit_accepted(5, ballot(10), &UPTIME), "that vote is unknown here");
        assert!(register.commit_accepted(5, ballot(7), &UPTIME), "a higher vote is for the same");
        assert_eq!((register.slot(), register.promised), (5, Stamp::NONE));
        assert!(!register.commit(&next, &UPTIME));
        assert_eq!(register.propose(6, ballot(1)), Verdict::Yes);
    }

    #[test]
    fn countdown_goes_on_over_states_with_its_deadline() {
        let expiring = |slot, id, span| {
            let id = ExpiryId { slot: id, op: op(1, id) };
            let ttl = TimeToLive::After(Millis(span));
            let expiry = Some(Expiry { id, ttl, ends: Millis(0) });
            Arc::new(State { expiry, ..state(slot, Some(b"v")) })
        };
        let mut register = held(4);
        register.accept(ballot(1), &expiring(5, 5, 50), &Millis(100));
        register.commit_accepted(5, ballot(1), &Millis(130));
        register.accept(ballot(1), &expiring(6, 5, 50), &Millis(140));
        let report = |register: &Register, uptime| register.report(&Millis(uptime), Millis(0));
        let id = ExpiryId { slot: 5, op: op(1, 5) };
        assert_eq!(report(&register, 151).countdown_of(id), Countdown::Over);
        register.accept(ballot(2), &expiring(6, 6, 50), &Millis(151));
        register.commit_accepted(6, ballot(2), &Millis(151));
        assert_eq!(report(&register, 160).countdown_of(id), Countdown::None);
        assert!(matches!(report(&register, 160).countdown, Countdown::Running(_)));
        assert_eq!(Register::from_bytes(&register.to_bytes()), Ok(register));
    }

    #[test]
    fn registers_and_reports_come_back() {
        let mut register = held(4);
        register.propose(5, ballot(3));
        register.accept(ballot(4), &Arc::new(state(5, None)), &UPTIME);
        let report = register.report(&UPTIME, UPTIME);
        for len in 0..report.to_bytes().len() {
            assert_eq!(Report::from_bytes(&report.to_bytes()[..len]), Err(Malformed));
        }
        assert_eq!(Report::from_bytes(&report.to_bytes()), Ok(report));
        assert_eq!(Register::from_bytes(&register.to_bytes()), Ok(register.clone()));
        register.promised = Stamp::NONE;
        assert_eq!(Register::from_bytes(&register.to_bytes()), Err(Malformed));
    }
}
