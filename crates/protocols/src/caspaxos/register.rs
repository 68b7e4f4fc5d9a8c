//! The acceptor of one key: a promise and the last vote.

use std::sync::Arc;

use base::Millis;
use types::wire::put_varint;
use types::{Malformed, Reader, Wire};

use crate::mutation::{self, Mutation};
use crate::toolkit::countdown::{Countdown, Started};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, State, put_base, take_base};
use crate::uptime::Uptime;

/// The stored state of one key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Register {
    /// No ballot below takes part.
    pub promised: Stamp,
    /// The ballot of the vote, [`Stamp::NONE`] without one.
    pub ballot: Stamp,
    pub state: Base,
    /// Uptime at the first state here with this deadline.
    pub started: Option<Started>,
}

/// A register as its replica reports it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    pub promised: Stamp,
    pub ballot: Stamp,
    pub state: Base,
    pub countdown: Option<Countdown>,
}

impl Register {
    /// Phase 1.
    ///
    /// # Errors
    /// The higher ballot that is promised.
    pub fn prepare(&mut self, ballot: Stamp) -> Result<(), Stamp> {
        if ballot < self.promised {
            return Err(self.promised);
        }
        self.promised = ballot;
        Ok(())
    }

    /// Phase 2. `next` is the ballot that the proposer uses next: the vote promises it.
    ///
    /// # Errors
    /// The higher ballot that is promised.
    pub fn accept(
        &mut self,
        (ballot, next): (Stamp, Stamp),
        state: &Arc<State>,
        uptime: &dyn Uptime,
    ) -> Result<(), Stamp> {
        let next = if mutation::is(Mutation::VoteIsNoPromise) { ballot } else { next };
        if ballot == self.ballot && self.state.is_some() {
            // The vote may come from a reader's message, which promised no other ballot.
            self.promised = self.promised.max(next);
            return Ok(());
        }
        if ballot < self.promised && !mutation::is(Mutation::AcceptBelowPromise) {
            return Err(self.promised);
        }
        self.promised = self.promised.max(next);
        self.started = self.started_of(state, uptime);
        (self.ballot, self.state) = (ballot, Some(state.clone()));
        Ok(())
    }

    /// When the countdown of a state's deadline started here: goes on if the deadline is known.
    fn started_of(&self, state: &State, uptime: &dyn Uptime) -> Option<Started> {
        let id = state.expiry_id()?;
        let known = self.state.as_ref().and_then(|it| it.expiry_id());
        let is_kept = mutation::is(Mutation::CountdownKept) && self.started.is_some();
        if is_kept || known == Some(id) {
            return self.started;
        }
        Started::anew(state.ttl(), uptime)
    }

    /// # Errors
    /// Names the invariant that does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        match &self.state {
            _ if self.ballot > self.promised => Err("a vote is under a promised ballot"),
            Some(_) if self.ballot == Stamp::NONE => Err("a vote has a ballot"),
            None if self.ballot != Stamp::NONE => Err("a ballot of a vote has a state"),
            _ => Ok(()),
        }
    }
}

impl Wire for Register {
    fn encode(&self, out: &mut Vec<u8>) {
        self.promised.encode(out);
        self.ballot.encode(out);
        put_base(out, &self.state);
        put_varint(out, self.started.map_or(0, |started| started.uptime().0.saturating_add(1)));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Register, Malformed> {
        let promised = Stamp::decode(reader)?;
        let ballot = Stamp::decode(reader)?;
        let state = take_base(reader)?;
        let started = reader.varint()?.checked_sub(1).map(|uptime| Started::at(Millis(uptime)));
        let register = Register { promised, ballot, state, started };
        register.check().map_err(|_| Malformed)?;
        Ok(register)
    }
}

impl Wire for Report {
    fn encode(&self, out: &mut Vec<u8>) {
        self.promised.encode(out);
        self.ballot.encode(out);
        put_base(out, &self.state);
        out.push(u8::from(self.countdown.is_some()));
        if let Some(countdown) = &self.countdown {
            countdown.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Report, Malformed> {
        let promised = Stamp::decode(reader)?;
        let ballot = Stamp::decode(reader)?;
        let state = take_base(reader)?;
        let countdown = match reader.u8()? {
            0 => None,
            1 => Some(Countdown::decode(reader)?),
            _ => return Err(Malformed),
        };
        Ok(Report { promised, ballot, state, countdown })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use types::{Incarnation, NodeId};

    use super::*;
    use crate::toolkit::state::tests::state;

    pub(in crate::caspaxos) fn ballot(number: u64) -> Stamp {
        Stamp { number, writer: NodeId(1), incarnation: Incarnation(1) }
    }

    const UPTIME: Millis = Millis(100);

    #[test]
    fn acceptor_rejects_lower_ballot() {
        let mut register = Register::default();
        let next = Arc::new(state(1, Some(b"v")));
        assert_eq!(register.prepare(ballot(9)), Ok(()));
        assert_eq!(register.prepare(ballot(8)), Err(ballot(9)));
        assert_eq!(register.accept((ballot(8), ballot(8)), &next, &UPTIME), Err(ballot(9)));
        assert_eq!(register.accept((ballot(9), ballot(9)), &next, &UPTIME), Ok(()));
        assert_eq!(register.prepare(ballot(9)), Ok(()), "a repeated message");
        assert!(register.check().is_ok());
    }

    #[test]
    fn vote_promises_the_next_ballot() {
        let mut register = Register::default();
        let next = Arc::new(state(1, Some(b"v")));
        let mut accept = |number, then| {
            let ballots = (ballot(number), ballot(then));
            (register.accept(ballots, &next, &UPTIME), register.promised)
        };
        assert_eq!(accept(3, 7), (Ok(()), ballot(7)));
        assert_eq!(accept(3, 7), (Ok(()), ballot(7)), "a repeated message");
        assert_eq!(accept(7, 8), (Ok(()), ballot(8)));
        assert_eq!(accept(3, 7), (Err(ballot(8)), ballot(8)), "it is over");
        assert_eq!(register.prepare(ballot(6)), Err(ballot(8)));
    }

    #[test]
    fn repeated_vote_promises_the_next_ballot() {
        let mut register = Register::default();
        let next = Arc::new(state(1, Some(b"v")));
        for (then, promised) in [(3, 3), (7, 7), (3, 7), (5, 7)] {
            let vote = register.accept((ballot(3), ballot(then)), &next, &UPTIME);
            assert_eq!((vote, register.promised), (Ok(()), ballot(promised)));
        }
        assert_eq!(register.prepare(ballot(6)), Err(ballot(7)));
        assert_eq!(register.accept((ballot(8), ballot(9)), &next, &UPTIME), Ok(()));
        assert_eq!(register.accept((ballot(3), ballot(99)), &next, &UPTIME), Err(ballot(9)));
    }

    #[test]
    fn registers_and_reports_come_back() {
        let mut register = Register::default();
        let next = Arc::new(state(1, Some(b"v")));
        assert_eq!(register.accept((ballot(3), ballot(7)), &next, &UPTIME), Ok(()));
        let report = Report {
            promised: ballot(7),
            ballot: ballot(3),
            state: Some(next),
            countdown: Some(Countdown::Over),
        };
        for len in 0..report.to_bytes().len() {
            assert_eq!(Report::from_bytes(&report.to_bytes()[..len]), Err(Malformed));
        }
        assert_eq!(Report::from_bytes(&report.to_bytes()), Ok(report));
        assert_eq!(Register::from_bytes(&register.to_bytes()), Ok(register.clone()));
        register.promised = Stamp::NONE;
        assert_eq!(Register::from_bytes(&register.to_bytes()), Err(Malformed));
    }
}
