//! The stored register of a key, its rules and its bytes.
//!
//! Here one type is the register, the report of a replica, and the content that a quorum shows.
//! Protocols with more fields have a type for each: see `caspaxos`.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Millis;
use types::{Malformed, Reader, Wire};

use super::message::Body;
use crate::replicas::{Places, ReplicaSet, place};
use crate::toolkit::countdown::Countdown;
use crate::toolkit::report::Report;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, ExpiryId, State, put_base, take_base};
use crate::uptime::Uptime;

/// Its bytes are all that survives a crash. Go on here: the fields of the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Register {
    /// No ballot below takes part.
    pub promised: Stamp,
    /// The ballot of the vote, [`Stamp::NONE`] without one.
    pub ballot: Stamp,
    pub state: Base,
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

    /// Phase 2.
    ///
    /// # Errors
    /// The higher ballot that is promised.
    pub fn accept(&mut self, ballot: Stamp, state: &Arc<State>) -> Result<(), Stamp> {
        self.prepare(ballot)?;
        (self.ballot, self.state) = (ballot, Some(state.clone()));
        Ok(())
    }

    /// # Errors
    /// Names the invariant that does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        match &self.state {
            _ if self.ballot > self.promised => Err("a vote is under a promised ballot"),
            state if state.is_some() != (self.ballot != Stamp::NONE) => Err("a vote has a ballot"),
            _ => Ok(()),
        }
    }
}

/// The highest vote of these replicas, and whether it is chosen. A place without a report has no
/// register.
pub fn highest(
    set: &ReplicaSet,
    counted: Places,
    at: &BTreeMap<usize, Register>,
) -> Option<(Register, bool)> {
    if !set.is_quorum_of(counted) {
        return None;
    }
    let counted = || at.iter().filter(|(index, _)| counted & place(**index) != 0);
    let newest = counted().map(|(_, it)| it).max_by_key(|it| it.ballot).cloned();
    let newest = newest.unwrap_or_default();
    let promised = counted().map(|(_, it)| it.promised).max().unwrap_or(Stamp::NONE);
    let voters = counted().filter(|(_, it)| it.ballot == newest.ballot);
    let voters = voters.fold(0, |set, (index, _)| set | place(*index));
    let is_chosen = newest.state.is_none() || set.is_quorum_of(voters);
    Some((Register { promised, ..newest }, is_chosen))
}

impl Report for Register {
    type Record = Register;
    type Found = Register;
    type Body = Body;

    fn of(register: &Register, _uptime: &dyn Uptime, _unix: Millis) -> Register {
        register.clone()
    }

    fn without_values(&self) -> Register {
        let state = self.state.as_ref().map(|state| Arc::new(state.without_value()));
        Register { state, ..*self }
    }

    fn latest(register: &Register) -> Base {
        register.state.clone()
    }

    fn value_len(register: &Register) -> usize {
        register.state.as_ref().map_or(0, |state| state.value_len())
    }

    fn age(&self) -> impl Ord {
        (self.ballot, self.promised)
    }

    /// Go on here: without a count of uptime in the register no key expires. See `started` of
    /// `caspaxos`.
    fn countdown_of(&self, _id: ExpiryId) -> Countdown {
        Countdown::None
    }

    fn newest(&self) -> Option<(String, &Arc<State>, Countdown)> {
        Some((format!("{}", self.ballot.number), self.state.as_ref()?, Countdown::None))
    }

    fn found(
        set: &ReplicaSet,
        counted: Places,
        at: &BTreeMap<usize, Register>,
    ) -> Option<Register> {
        let (found, is_chosen) = highest(set, counted, at)?;
        is_chosen.then_some(found)
    }

    fn state(found: &Register) -> &Base {
        &found.state
    }

    /// Takes the highest promise of the others. Promises that were forgotten are among them.
    fn restore(found: Register, _uptime: &dyn Uptime) -> Register {
        found
    }
}

impl Wire for Register {
    fn encode(&self, out: &mut Vec<u8>) {
        self.promised.encode(out);
        self.ballot.encode(out);
        put_base(out, &self.state);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Register, Malformed> {
        let (promised, ballot) = (Stamp::decode(reader)?, Stamp::decode(reader)?);
        let register = Register { promised, ballot, state: take_base(reader)? };
        register.check().map_err(|_| Malformed)?;
        Ok(register)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use types::{Epoch, Incarnation, NodeId};

    use super::*;
    use crate::toolkit::state::tests::state;

    pub(in super::super) fn ballot(number: u64) -> Stamp {
        Stamp { number, writer: NodeId(1), incarnation: Incarnation(1) }
    }

    pub(in super::super) fn voted(number: u64, promised: u64) -> Register {
        let state = Some(Arc::new(state(number, Some(b"v"))));
        Register { promised: ballot(promised), ballot: ballot(number), state }
    }

    #[test]
    fn acceptor_rejects_lower_ballot() {
        let mut register = Register::default();
        let next = Arc::new(state(1, Some(b"v")));
        assert_eq!(register.prepare(ballot(9)), Ok(()));
        assert_eq!(register.prepare(ballot(8)), Err(ballot(9)));
        assert_eq!(register.accept(ballot(8), &next), Err(ballot(9)));
        assert_eq!(register.accept(ballot(9), &next), Ok(()));
        assert_eq!(Register::from_bytes(&register.to_bytes()), Ok(register.clone()));
        register.promised = Stamp::NONE;
        assert_eq!(Register::from_bytes(&register.to_bytes()), Err(Malformed));
    }

    #[test]
    fn only_a_quorum_of_equal_ballots_is_chosen() {
        let set = ReplicaSet::new(Epoch(1), NodeId(1), &[NodeId(1), NodeId(2), NodeId(3)]);
        let mut at = BTreeMap::from([(0, voted(3, 9)), (1, voted(3, 3))]);
        assert_eq!(highest(&set, 0b001, &at), None);
        assert_eq!(highest(&set, 0b011, &at), Some((voted(3, 9), true)));
        at.insert(2, voted(4, 4));
        assert_eq!(highest(&set, 0b101, &at), Some((voted(4, 9), false)));
        assert_eq!(highest(&set, 0b110, &BTreeMap::new()), Some((Register::default(), true)));
    }
}
