//! The replicated state of one key, and its bytes.

use base::Millis;
use bytes::Bytes;
use types::limits::RECORD_LEN_MAX;
use types::wire::{put_blob, put_varint};
use types::{Ballot, Malformed, Reader, TimeToLive, Wire};

/// Birth ballots that a state remembers. [spec 9.2: R = 4]
pub const RING_LEN_MAX: usize = 4;

/// What replicas of a key agree on: one link of its chain of states.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// Transitions since the key first existed. Never decreases along a chain, also across removal.
    pub version: u64,
    /// The version whose transition last changed the value. `mod_version <= version`.
    pub mod_version: u64,
    pub ring: Ring,
    pub expiry: Option<Expiry>,
    /// `None`: a tombstone.
    pub value: Option<Bytes>,
}

/// When a state's value is to vanish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expiry {
    /// Names the transition that set it; every other transition copies it.
    pub id: ExpiryId,
    pub ttl: TimeToLive,
}

/// A version alone would not do: two dead branches may have the same version and other deadlines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpiryId {
    pub version: u64,
    pub birth: Ballot,
}

/// The ballots under which the last few transitions were born, newest last: evidence of ancestry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ring {
    len: u8,
    ballots: [Ballot; RING_LEN_MAX],
}

impl Ring {
    pub fn push(&mut self, birth: Ballot) {
        if usize::from(self.len) == RING_LEN_MAX {
            self.ballots.rotate_left(1);
            self.ballots[RING_LEN_MAX - 1] = birth;
        } else {
            self.ballots[usize::from(self.len)] = birth;
            self.len += 1;
        }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The birth ballot `age` transitions before the newest, 0 for the newest.
    #[must_use]
    pub fn birth(&self, age: u64) -> Option<Ballot> {
        let age = usize::try_from(age).ok()?;
        (age < self.len()).then(|| self.ballots[self.len() - 1 - age])
    }
}

impl State {
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        self.value.is_none()
    }

    #[must_use]
    pub fn expiry_id(&self) -> Option<ExpiryId> {
        self.expiry.map(|expiry| expiry.id)
    }
}

const HAS_VALUE: u8 = 1;
const HAS_SPAN: u8 = 2;
const HAS_DEADLINE: u8 = 4;
const FLAGS: u8 = HAS_VALUE | HAS_SPAN | HAS_DEADLINE;

/// `flags u8 · version · version - mod_version · runs u8 · (count u8, ballot)* · [expiry] · [value]`, numbers
/// LEB128. Equal neighbours in the ring are one run: an owner's transitions share their ballot.
impl Wire for State {
    fn encode(&self, out: &mut Vec<u8>) {
        let expiry_flag = match self.expiry.map(|expiry| expiry.ttl) {
            Some(TimeToLive::After(_)) => HAS_SPAN,
            Some(TimeToLive::At { .. }) => HAS_DEADLINE,
            Some(TimeToLive::Never) | None => 0,
        };
        let value_flag = if self.value.is_some() { HAS_VALUE } else { 0 };
        out.push(value_flag | expiry_flag);
        put_varint(out, self.version);
        put_varint(out, self.version - self.mod_version);
        self.ring.encode(out);
        if let Some(Expiry { id, ttl: TimeToLive::After(rest) | TimeToLive::At { unix: rest } }) =
            self.expiry
        {
            put_varint(out, id.version);
            id.birth.encode(out);
            put_varint(out, rest.0);
        }
        if let Some(value) = &self.value {
            put_blob(out, value);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<State, Malformed> {
        let flags = reader.u8()?;
        if flags & !FLAGS != 0 || flags & (HAS_SPAN | HAS_DEADLINE) == HAS_SPAN | HAS_DEADLINE {
            return Err(Malformed);
        }
        let version = reader.varint()?;
        let mod_version = version.checked_sub(reader.varint()?).ok_or(Malformed)?;
        let ring = Ring::decode(reader)?;
        let mut expiry = None;
        if flags & (HAS_SPAN | HAS_DEADLINE) != 0 {
            let id = ExpiryId { version: reader.varint()?, birth: Ballot::decode(reader)? };
            let rest = Millis(reader.varint()?);
            let ttl = if flags & HAS_SPAN != 0 {
                TimeToLive::After(rest)
            } else {
                TimeToLive::At { unix: rest }
            };
            expiry = Some(Expiry { id, ttl });
        }
        let value = match flags & HAS_VALUE {
            0 => None,
            _ => Some(Bytes::copy_from_slice(reader.blob(RECORD_LEN_MAX)?)),
        };
        Ok(State { version, mod_version, ring, expiry, value })
    }
}

impl Wire for Ring {
    fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.push(0);
        let mut rest = &self.ballots[..self.len()];
        while let Some(&birth) = rest.first() {
            let count = rest.iter().take_while(|&&other| other == birth).count();
            out.push(count as u8);
            birth.encode(out);
            out[at] += 1;
            rest = &rest[count..];
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Ring, Malformed> {
        let mut ring = Ring::default();
        for _ in 0..reader.u8()? {
            let count = usize::from(reader.u8()?);
            let birth = Ballot::decode(reader)?;
            if count == 0 || ring.len() + count > RING_LEN_MAX {
                return Err(Malformed);
            }
            (0..count).for_each(|_| ring.push(birth));
        }
        Ok(ring)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::{Epoch, Incarnation, NodeId};

    use super::*;

    fn ballots() -> impl Strategy<Value = Ballot> {
        (0..4_u64, 1..4_u16, 0..3_u32)
            .prop_map(|(n, node, inc)| Ballot::new(Epoch(1), n, NodeId(node), Incarnation(inc)))
    }

    fn states() -> impl Strategy<Value = State> {
        let ttl = prop_oneof![
            any::<u64>().prop_map(|ms| TimeToLive::After(Millis(ms))),
            any::<u64>().prop_map(|ms| TimeToLive::At { unix: Millis(ms) }),
        ];
        let expiry = proptest::option::of((any::<u64>(), ballots(), ttl)).prop_map(|found| {
            found.map(|(version, birth, ttl)| Expiry { id: ExpiryId { version, birth }, ttl })
        });
        let value = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40));
        (any::<u64>(), any::<u64>(), proptest::collection::vec(ballots(), 0..9), expiry, value)
            .prop_map(|(version, back, births, expiry, value)| {
                let mut ring = Ring::default();
                births.into_iter().for_each(|birth| ring.push(birth));
                let mod_version = version - back.min(version);
                State { version, mod_version, ring, expiry, value: value.map(Bytes::from) }
            })
    }

    proptest! {
        #[test]
        fn bytes_come_back(state in states()) {
            prop_assert_eq!(State::from_bytes(&state.to_bytes()), Ok(state));
        }

        #[test]
        fn damaged_bytes_never_panic(state in states(), at in any::<usize>(), with in any::<u8>()) {
            let mut bytes = state.to_bytes();
            let at = at % bytes.len();
            bytes[at] = with;
            let _ = State::from_bytes(&bytes);
            let _ = State::from_bytes(&bytes[..at]);
        }
    }

    #[test]
    fn the_ring_keeps_the_newest() {
        let births: Vec<_> =
            (1..=6).map(|n| Ballot::new(Epoch(1), n, NodeId(1), Incarnation(1))).collect();
        let mut ring = Ring::default();
        births.iter().for_each(|&birth| ring.push(birth));
        assert_eq!(ring.birth(0), Some(births[5]));
        assert_eq!(ring.birth(3), Some(births[2]));
        assert_eq!(ring.birth(4), None);
    }
}
