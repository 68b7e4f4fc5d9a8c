//! The replicated state of one key: its value, and the operations done so far. States of a key
//! form a chain, numbered from 1.

use std::sync::Arc;

use base::Millis;
use bytes::Bytes;
use types::limits::MEMBERS_MAX;
use types::wire::{put_blob, put_varint};
use types::{Incarnation, Key, Malformed, NodeId, Reader, TimeToLive, Wire};

use super::stamp::take_number;
use crate::register_cache::Weight;

/// An attempt of one node to change one key. A node has one at a time on a key, and numbers them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct OpId {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub seq: u64,
}

/// The operations of each node that have been done on a key: the highest one, which is later than
/// all others of that node.
///
/// [spec 3.2] has one registry per replica, by session. Here it is a part of the state, so it is
/// never apart from the value that it explains.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Registry(Vec<OpId>);

impl Registry {
    /// True if the operation is done.
    #[must_use]
    pub fn has(&self, op: OpId) -> bool {
        let of_node = |done: &&OpId| done.node == op.node;
        self.0.iter().find(of_node).is_some_and(|done| *done >= op)
    }

    /// Notes an operation as done. A full registry drops nodes that are no nodes any more.
    pub fn note(&mut self, op: OpId, is_node: impl Fn(NodeId) -> bool) {
        match self.0.binary_search_by_key(&op.node, |done| done.node) {
            Ok(at) => self.0[at] = self.0[at].max(op),
            Err(_) => {
                if self.0.len() >= MEMBERS_MAX {
                    self.0.retain(|done| is_node(done.node));
                }
                let at = self.0.partition_point(|done| done.node < op.node);
                self.0.insert(at, op);
            }
        }
    }
}

/// A state that the next one is computed from; `None`: the key was never written, slot 0.
pub type Base = Option<Arc<State>>;

/// The slot of a base.
#[must_use]
pub fn slot_of(base: &Base) -> u64 {
    base.as_ref().map_or(0, |state| state.slot)
}

/// The share of a register with this content.
#[must_use]
pub fn weight(key: &Key, base: &Base) -> Weight {
    let Some(state) = base else { return Weight::NONE };
    let of_key = |len| Weight::of_key(key.bytes().len() + len, state.expiry.is_some());
    state.value.as_ref().map_or(Weight::NONE, |value| of_key(value.len()))
}

/// Names the transition that set a deadline; every other transition copies it. A slot alone is not
/// enough: two proposals for it may have different deadlines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpiryId {
    pub slot: u64,
    pub op: OpId,
}

/// The deadline of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expiry {
    pub id: ExpiryId,
    pub ttl: TimeToLive,
    /// The end in Unix time, by the clock of the node that set it. For clients only.
    pub ends: Millis,
}

/// The value at a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// The number of the state in its chain, from 1 on.
    pub slot: u64,
    /// The operation that made it.
    pub op: OpId,
    pub done: Registry,
    pub expiry: Option<Expiry>,
    /// `None`: deleted. The state stays, or a delayed message would bring the value back.
    pub value: Option<Bytes>,
}

impl State {
    #[must_use]
    pub fn expiry_id(&self) -> Option<ExpiryId> {
        self.expiry.map(|expiry| expiry.id)
    }

    #[must_use]
    pub fn ttl(&self) -> Option<TimeToLive> {
        self.expiry.map(|expiry| expiry.ttl)
    }

    #[must_use]
    pub fn value_len(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len)
    }

    /// The same with an empty value in the place of another one.
    #[must_use]
    pub fn without_value(&self) -> State {
        let value = self.value.as_ref().map(|_| Bytes::new());
        State { value, done: self.done.clone(), ..*self }
    }
}

impl Wire for OpId {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.node.0));
        put_varint(out, u64::from(self.incarnation.0));
        put_varint(out, self.seq);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<OpId, Malformed> {
        Ok(OpId {
            node: NodeId(u16::try_from(reader.varint()?).map_err(|_| Malformed)?),
            incarnation: Incarnation(u32::try_from(reader.varint()?).map_err(|_| Malformed)?),
            seq: take_number(reader)?,
        })
    }
}

impl Wire for Registry {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0.len() as u8);
        self.0.iter().for_each(|op| op.encode(out));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Registry, Malformed> {
        let count = usize::from(reader.u8()?);
        let mut done = Vec::<OpId>::new();
        for _ in 0..count {
            let op = OpId::decode(reader)?;
            if done.last().is_some_and(|last| last.node >= op.node) {
                return Err(Malformed);
            }
            done.push(op);
        }
        if count > MEMBERS_MAX { Err(Malformed) } else { Ok(Registry(done)) }
    }
}

pub fn put_base(out: &mut Vec<u8>, base: &Base) {
    out.push(u8::from(base.is_some()));
    if let Some(state) = base {
        state.encode(out);
    }
}

/// Reads the bytes of [`put_base`].
///
/// # Errors
/// [`Malformed`] when they are none.
pub fn take_base(reader: &mut Reader<'_>) -> Result<Base, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        1 => Ok(Some(Arc::decode(reader)?)),
        _ => Err(Malformed),
    }
}

const HAS_VALUE: u8 = 1;
const HAS_SPAN: u8 = 2;
const HAS_DEADLINE: u8 = 4;

/// `flags u8 · slot · op · registry · [expiry] · [value]`, numbers LEB128.
impl Wire for State {
    fn encode(&self, out: &mut Vec<u8>) {
        let expires = match self.expiry.map(|expiry| expiry.ttl) {
            Some(TimeToLive::After(_)) => HAS_SPAN,
            Some(TimeToLive::At { .. }) => HAS_DEADLINE,
            Some(TimeToLive::Never) | None => 0,
        };
        out.push(expires | if self.value.is_some() { HAS_VALUE } else { 0 });
        put_varint(out, self.slot);
        self.op.encode(out);
        self.done.encode(out);
        if let Some(expiry) = self.expiry.filter(|_| expires != 0) {
            put_varint(out, expiry.id.slot);
            expiry.id.op.encode(out);
            put_varint(out, expiry.ends.0);
            if let TimeToLive::After(span) = expiry.ttl {
                put_varint(out, span.0);
            }
        }
        if let Some(value) = &self.value {
            put_blob(out, value);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<State, Malformed> {
        let flags = reader.u8()?;
        if flags & !(HAS_VALUE | HAS_SPAN | HAS_DEADLINE) != 0 {
            return Err(Malformed);
        }
        let slot = take_number(reader)?;
        let op = OpId::decode(reader)?;
        let done = Registry::decode(reader)?;
        let expiry = match flags & (HAS_SPAN | HAS_DEADLINE) {
            0 => None,
            kind => {
                let id = ExpiryId { slot: take_number(reader)?, op: OpId::decode(reader)? };
                let ends = Millis(reader.varint()?);
                let ttl = match kind {
                    HAS_SPAN => TimeToLive::After(Millis(reader.varint()?)),
                    HAS_DEADLINE => TimeToLive::At { unix: ends },
                    _ => return Err(Malformed),
                };
                Some(Expiry { id, ttl, ends })
            }
        };
        let value = if flags & HAS_VALUE != 0 { Some(Bytes::decode(reader)?) } else { None };
        Ok(State { slot, op, done, expiry, value })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn op(node: u16, seq: u64) -> OpId {
        OpId { node: NodeId(node), incarnation: Incarnation(3), seq }
    }

    pub(crate) fn state(slot: u64, value: Option<&'static [u8]>) -> State {
        let mut done = Registry::default();
        done.note(op(2, slot), |_| true);
        let value = value.map(Bytes::from_static);
        State { slot, op: op(2, slot), done, expiry: None, value }
    }

    #[test]
    fn states_come_back_from_their_bytes() {
        let expiry =
            |ttl| Expiry { id: ExpiryId { slot: 7, op: op(1, 9) }, ttl, ends: Millis(500) };
        let mut expiring = state(8, Some(b"value"));
        expiring.expiry = Some(expiry(TimeToLive::After(Millis(300))));
        let mut until = expiring.clone();
        until.expiry = Some(expiry(TimeToLive::At { unix: Millis(500) }));
        for state in [state(1, None), state(900, Some(b"")), expiring, until] {
            let bytes = state.to_bytes();
            assert_eq!(State::from_bytes(&bytes), Ok(state));
            for len in 0..bytes.len() {
                assert_eq!(State::from_bytes(&bytes[..len]), Err(Malformed));
            }
        }
    }

    /// A peer's number is counted up from: it must not wrap.
    #[test]
    fn numbers_without_a_successor_are_malformed() {
        let with = |change: fn(&mut State)| {
            let mut state = state(7, None);
            let id = ExpiryId { slot: 7, op: op(1, 9) };
            state.expiry = Some(Expiry { id, ttl: TimeToLive::After(Millis(9)), ends: Millis(9) });
            change(&mut state);
            State::from_bytes(&state.to_bytes()).map(|_| ())
        };
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|state| state.slot = 1 << 62), Err(Malformed));
        assert_eq!(with(|state| state.op.seq = u64::MAX), Err(Malformed));
        assert_eq!(with(|state| state.done.note(op(3, 1 << 62), |_| true)), Err(Malformed));
        assert_eq!(
            with(|state| state.expiry.as_mut().expect("it has one").id.slot = u64::MAX),
            Err(Malformed)
        );
    }

    #[test]
    fn later_operation_of_a_node_covers_earlier_ones() {
        let mut done = Registry::default();
        done.note(op(2, 5), |_| true);
        assert!(done.has(op(2, 5)) && done.has(op(2, 4)));
        assert!(!done.has(op(2, 6)) && !done.has(op(1, 1)));
        let restarted = OpId { incarnation: Incarnation(4), ..op(2, 1) };
        assert!(!done.has(restarted));
        done.note(restarted, |_| true);
        assert!(done.has(restarted) && done.has(op(2, 5)));
    }

    #[test]
    fn full_registry_forgets_former_nodes() {
        let mut done = Registry::default();
        (1..=MEMBERS_MAX as u16).for_each(|node| done.note(op(node, 1), |_| true));
        done.note(op(77, 1), |node| node != NodeId(3));
        assert!(done.has(op(77, 1)) && done.has(op(4, 1)) && !done.has(op(3, 1)));
        assert_eq!(Registry::from_bytes(&done.to_bytes()), Ok(done));
    }
}
