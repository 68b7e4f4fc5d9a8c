//! A proposal as its change of the preceding state. [spec 9.3]
//!
//! The fields of a state are short and nearly all change, so a delta carries them whole. Of the
//! value it names the bytes kept at both ends and carries those between. It is computed from the
//! two states alone, never from the commands, so its receiver evaluates no command.
//!
//! Two checks prevent a wrong state. First, a delta is applied only to the exact round that it was
//! made from, and one round is one state [spec 0.2, U1]. Second, the result must have the digest of
//! the proposed state. The digest detects a violation of the first rule, or a damaged byte. It has
//! 64 bits, since members are not malicious: a wrong state needs a broken rule and a coincidence of
//! one in 2^64 at once.
//!
//! Several distant changes of one value are one long change here. Such a state is soon sent whole.

use bytes::Bytes;
use types::limits::RECORD_LEN_MAX;
use types::wire::{put_blob, put_varint};
use types::{Malformed, Reader, Round, Wire};

use crate::mutation::{self, Mutation};
use crate::rmwpaxos::record::register::Register;
use crate::rmwpaxos::record::state::{FIELDS_LEN_MAX, State};

/// Shorter states travel whole, because a comparison would cost more than the bytes it saves.
pub const STATE_LEN_MIN: usize = 1024;
/// A delta carries at most this fraction of the state it stands for.
const SHARE_MIN: usize = 2;

/// One state as a change of another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delta {
    /// The round of the state that it changes. Never `Round::NONE`: an absent register has no bytes
    /// to keep.
    base: Round,
    /// Of the bytes of the new state, all of them.
    digest: u64,
    /// The new state's bytes before its value, its length included.
    fields: Bytes,
    /// Bytes of the value kept at its start and at its end.
    kept: (u32, u32),
    /// The bytes between them.
    middle: Bytes,
}

impl Delta {
    /// The change from `base` to `new`. `None` if one of them has no value.
    #[must_use]
    pub fn between(base: (Round, &State), new: &State) -> Option<Delta> {
        let kept = kept(base.1.value()?, new.value()?);
        Some(Delta::keeping(base.0, new, kept))
    }

    /// The same, where it is worth sending instead of `new`.
    #[must_use]
    pub fn where_it_pays(base: (Round, &State), new: &State) -> Option<Delta> {
        let len = new.bytes().len();
        if len < STATE_LEN_MIN {
            return None;
        }
        let kept = kept(base.1.value()?, new.value()?);
        let carried = len - kept.0 - kept.1;
        (carried * SHARE_MIN <= len).then(|| Delta::keeping(base.0, new, kept))
    }

    fn keeping(base: Round, new: &State, (start, end): (usize, usize)) -> Delta {
        assert!(!base.is_none(), "an absent register has no bytes to keep");
        let value = new.value().unwrap_or_default();
        let fields_len = new.bytes().len() - value.len();
        Delta {
            base,
            digest: digest(new.bytes()),
            fields: Bytes::copy_from_slice(&new.bytes()[..fields_len]),
            kept: (start as u32, end as u32),
            middle: Bytes::copy_from_slice(&value[start..value.len() - end]),
        }
    }

    #[must_use]
    pub fn base(&self) -> Round {
        self.base
    }

    /// The state that was proposed, where `register` holds the very round that this was made from.
    #[must_use]
    pub fn resolve(&self, register: Option<&Register>) -> Option<State> {
        let register = register?;
        let is_base = register.accepted == self.base;
        if !is_base && !mutation::is(Mutation::DeltaAnyBase) && !is_unchecked() {
            return None;
        }
        self.apply(register.state.as_ref()?)
    }

    /// Changes `base`. `None` where that is not the state this was made from.
    #[must_use]
    pub fn apply(&self, base: &State) -> Option<State> {
        let value = base.value()?;
        let (start, end) = (self.kept.0 as usize, self.kept.1 as usize);
        let at_end = value.len().checked_sub(end).filter(|&at_end| start <= at_end)?;
        let parts = [&self.fields, &value[..start], &self.middle, &value[at_end..]];
        let bytes = parts.concat();
        let is_proposed = digest(&bytes) == self.digest;
        if !is_proposed && !mutation::is(Mutation::DeltaNoDigest) && !is_unchecked() {
            return None;
        }
        State::from_bytes(&bytes).ok()
    }
}

fn is_unchecked() -> bool {
    mutation::is(Mutation::DeltaUnchecked)
}

fn digest(state: &[u8]) -> u64 {
    base::checksum::checksum(0, state)
}

/// Bytes that `new` has in common with `old` at its start, and of the rest at its end.
fn kept(old: &[u8], new: &[u8]) -> (usize, usize) {
    let start = common(old.chunks_exact(BLOCK), new.chunks_exact(BLOCK)) * BLOCK;
    let start = start + common(&old[start..], &new[start..]);
    let (old, new) = (&old[start..], &new[start..]);
    let end = common(old.rchunks_exact(BLOCK), new.rchunks_exact(BLOCK)) * BLOCK;
    let at_end = |bytes: &[u8]| bytes.len() - end;
    let (old, new) = (&old[..at_end(old)], &new[..at_end(new)]);
    (start, end + common(old.iter().rev(), new.iter().rev()))
}

/// Compared at once.
const BLOCK: usize = 64;

/// How many items two sequences have in common at their start.
fn common<T: PartialEq>(
    old: impl IntoIterator<Item = T>,
    new: impl IntoIterator<Item = T>,
) -> usize {
    old.into_iter().zip(new).take_while(|(old, new)| old == new).count()
}

/// `base 16 · digest u64 · fields · kept at the start · kept at the end · middle`, numbers LEB128.
impl Wire for Delta {
    fn encode(&self, out: &mut Vec<u8>) {
        self.base.encode(out);
        out.extend_from_slice(&self.digest.to_le_bytes());
        put_blob(out, &self.fields);
        put_varint(out, u64::from(self.kept.0));
        put_varint(out, u64::from(self.kept.1));
        put_blob(out, &self.middle);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Delta, Malformed> {
        let base = Round::decode(reader)?;
        let digest = reader.u64()?;
        let fields = Bytes::copy_from_slice(reader.blob(FIELDS_LEN_MAX)?);
        let mut kept_len = || u32::try_from(reader.varint()?).map_err(|_| Malformed);
        let kept = (kept_len()?, kept_len()?);
        let middle = Bytes::copy_from_slice(reader.blob(RECORD_LEN_MAX)?);
        let value_len = u64::from(kept.0) + u64::from(kept.1) + middle.len() as u64;
        if base.k() == 0 || value_len > RECORD_LEN_MAX as u64 {
            return Err(Malformed);
        }
        Ok(Delta { base, digest, fields, kept, middle })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::{Ballot, Epoch, Incarnation, NodeId};

    use super::*;
    use crate::rmwpaxos::record::state::tests::states;
    use crate::rmwpaxos::record::state::{Ring, StateFields};

    fn round(number: u64, k: u32) -> Round {
        Ballot::new(Epoch(1), number, NodeId(1), Incarnation(1)).round(k)
    }

    fn state(version: u64, value: &[u8]) -> State {
        let mut ring = Ring::default();
        ring.push(round(3, 1).ballot());
        State::new(&StateFields {
            version,
            mod_version: version,
            ring,
            expiry: None,
            once: None,
            lock: None,
            value: Some(value),
        })
    }

    fn holding(accepted: Round, state: &State) -> Register {
        let promised = accepted.ballot();
        Register { accepted, state: Some(state.clone()), ..Register::promise_only(promised) }
    }

    /// A value and another that shares much with it.
    fn values() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let bytes = |max| proptest::collection::vec(0..3_u8, 0..max);
        (bytes(300), bytes(20), any::<prop::sample::Index>(), any::<prop::sample::Index>())
            .prop_map(|(old, put, from, to)| {
                let from = from.index(old.len() + 1);
                let to = from + to.index(old.len() - from + 1);
                let new = [&old[..from], &put, &old[to..]].concat();
                (old, new)
            })
    }

    proptest! {
        #[test]
        fn delta_turns_the_base_into_the_proposal(old in states(), new in states()) {
            match Delta::between((round(1, 1), &old), &new) {
                Some(delta) => {
                    prop_assert_eq!(delta.apply(&old), Some(new));
                    prop_assert_eq!(Delta::from_bytes(&delta.to_bytes()), Ok(delta));
                }
                None => prop_assert!(old.is_tombstone() || new.is_tombstone()),
            }
        }

        #[test]
        fn no_more_travels_than_changed((old, new) in values()) {
            let (start, end) = kept(&old, &new);
            prop_assert_eq!(&old[..start], &new[..start]);
            prop_assert_eq!(&old[old.len() - end..], &new[new.len() - end..]);
            prop_assert!(start + end <= old.len().min(new.len()));
            let (old, new) = (&old[start..old.len() - end], &new[start..new.len() - end]);
            prop_assert!(old.is_empty() || new.is_empty() || old[0] != new[0]);
            prop_assert!(old.is_empty() || new.is_empty() || old.last() != new.last());
        }

        #[test]
        fn another_base_never_makes_another_state(
            (old, new) in values(),
            held in states(),
            at in any::<prop::sample::Index>(),
        ) {
            let (old, new) = (state(1, &old), state(2, &new));
            let delta = Delta::between((round(1, 1), &old), &new).expect("both have values");
            let near = {
                let mut value = old.value().unwrap_or_default().to_vec();
                if let Some(len) = std::num::NonZero::new(value.len()) {
                    value[at.index(len.get())] ^= 1;
                }
                state(1, &value)
            };
            for base in [held, near] {
                prop_assert!(delta.apply(&base).is_none_or(|made| made == new));
            }
        }

        #[test]
        fn damage_never_makes_another_state(
            (old, new) in values(),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u32,
        ) {
            let (old, new) = (state(1, &old), state(2, &new));
            let delta = Delta::between((round(1, 1), &old), &new).expect("both have values");
            let mut bytes = delta.to_bytes();
            prop_assert_eq!(Delta::from_bytes(&bytes), Ok(delta));
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let made = Delta::from_bytes(&bytes).ok().and_then(|delta| delta.apply(&old));
            prop_assert!(made.is_none_or(|made| made == new));
            let _ = Delta::from_bytes(&bytes[..at]);
        }

        #[test]
        fn bytes_from_anywhere_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let _ = Delta::from_bytes(&bytes).map(|delta| delta.apply(&state(1, b"held")));
        }
    }

    #[test]
    fn lengths_beyond_any_record_are_malformed() {
        let with = |kept: (u32, u32)| {
            let (old, new) = (state(1, b"one"), state(2, b"two"));
            let delta = Delta::between((round(1, 1), &old), &new).expect("both have values");
            Delta::from_bytes(&Delta { kept, ..delta }.to_bytes())
        };
        assert!(with((1, 1)).is_ok());
        assert_eq!(with((u32::MAX, u32::MAX)), Err(Malformed));
        assert_eq!(with((RECORD_LEN_MAX as u32, 1)), Err(Malformed));
    }

    #[test]
    fn only_the_very_round_is_a_base() {
        let (old, new) = (state(1, b"a value"), state(2, b"a valued one"));
        let delta = Delta::between((round(1, 2), &old), &new).expect("both have values");
        assert_eq!(delta.resolve(Some(&holding(round(1, 2), &old))), Some(new));
        assert_eq!(delta.resolve(Some(&holding(round(1, 1), &old))), None, "the same bytes");
        assert_eq!(delta.resolve(Some(&holding(round(2, 2), &old))), None, "the same bytes");
        assert_eq!(delta.resolve(Some(&Register::promise_only(round(1, 2).ballot()))), None);
        assert_eq!(delta.resolve(None), None);
    }

    #[test]
    fn a_delta_is_sent_where_it_pays() {
        let base = state(1, &[7; 4096]);
        let pays = |value: &[u8]| Delta::where_it_pays((round(1, 1), &base), &state(2, value));
        assert!(pays(&[&[7; 4096][..], b"more"].concat()).is_some(), "an append");
        assert!(pays(&[7; 3000]).is_some(), "a cut");
        assert!(pays(&[8; 4096]).is_none(), "another value");
        assert!(pays(&[&[8][..], &[7; 4094], &[8]].concat()).is_none(), "both ends");
        assert!(pays(b"short").is_none(), "a short one");
        let tombstone = State::new(&StateFields { value: None, ..base.fields() });
        assert!(Delta::where_it_pays((round(1, 1), &base), &tombstone).is_none());
        assert!(Delta::where_it_pays((round(1, 1), &tombstone), &base).is_none());
    }

    #[test]
    fn small_append_takes_a_hundred_bytes() {
        let old = vec![b'x'; 64 * 1024];
        let new = [&old[..], b"sixteen more of it"].concat();
        let (old, new) = (state(1_000, &old), state(1_001, &new[..64 * 1024 + 16]));
        let delta = Delta::where_it_pays((round(9, 5), &old), &new).expect("it pays");
        assert!(delta.to_bytes().len() <= 80, "{}", delta.to_bytes().len());
        assert!(new.to_bytes().len() > 64 * 1024);
        assert_eq!(delta.apply(&old), Some(new));
    }
}
