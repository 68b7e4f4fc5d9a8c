//! The replicated state of one key, and its bytes.

use std::fmt;

use base::Millis;
use triomphe::ThinArc;
use types::hold::RECORD_KEY_LEN_MAX;
use types::limits::RECORD_LEN_MAX;
use types::wire::{put_blob, put_varint};
use types::{Ballot, Malformed, Reader, TimeToLive, Txid, Wire};

use crate::rmwpaxos::once::table::{self, TABLE_LEN_MAX};

/// Runs of birth ballots in a state. [spec 9.2 has R = 4 single ones in as many bytes]
const RUNS_MAX: usize = 4;

/// The value that replicas of a key agree on: one link of its chain of states.
///
/// It is its own bytes, checked at creation, behind one pointer. Sending it copies them, and an
/// idle register costs one allocation.
#[derive(Clone, PartialEq, Eq)]
pub struct State(ThinArc<Head, u8>);

/// The fields that are read most, and the offsets of the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    version: u64,
    mod_version: u64,
    value_at: u32,
    ring_at: u8,
    expiry_at: u8,
    once_at: u8,
    flags: u8,
}

/// A state in parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateFields<'a> {
    /// Transitions since the key first existed. Never decreases along a chain, also across removal.
    pub version: u64,
    /// The version whose transition last changed the value. `mod_version <= version`.
    pub mod_version: u64,
    pub ring: Ring,
    pub expiry: Option<Expiry>,
    /// The bytes of the table of commands that are safe to repeat; `None`: it is empty.
    pub once: Option<&'a [u8]>,
    /// A transaction's lock on the key. Transitions that are not about locks keep it.
    pub lock: Option<LockFields<'a>>,
    /// `None`: a tombstone.
    pub value: Option<&'a [u8]>,
}

/// A transaction's hold on a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockFields<'a> {
    pub txid: Txid,
    /// Key of the register, in the hidden keyspace, that records how the transaction ended. At most
    /// [`RECORD_KEY_LEN_MAX`] bytes.
    pub record: &'a [u8],
    /// The version of the state that the transaction locked.
    pub version: u64,
    /// The reset generation of the database in which it was taken.
    pub generation: u64,
}

/// The deadline of a state's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expiry {
    /// Names the transition that set it; every other transition copies it.
    pub id: ExpiryId,
    pub ttl: TimeToLive,
    /// The end in Unix time, by the clock of the node that set it. It is for clients only; no
    /// decision uses it.
    pub ends: Millis,
}

/// A version alone is not enough: two dead branches may share it and have different deadlines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpiryId {
    pub version: u64,
    pub birth: Ballot,
}

/// The ballots under which the last transitions were born: evidence of ancestry. Neighbours with
/// one ballot are a run. So a busy owner does not push the others' past out of the limited room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ring {
    /// Runs, newest last.
    len: u8,
    counts: [u8; RUNS_MAX],
    ballots: [Ballot; RUNS_MAX],
}

impl Ring {
    pub fn push(&mut self, birth: Ballot) {
        let len = usize::from(self.len);
        if len > 0 && self.ballots[len - 1] == birth && self.counts[len - 1] < u8::MAX {
            self.counts[len - 1] += 1;
        } else {
            self.push_run(1, birth);
        }
    }

    fn push_run(&mut self, count: u8, birth: Ballot) {
        if usize::from(self.len) == RUNS_MAX {
            self.counts.rotate_left(1);
            self.ballots.rotate_left(1);
        } else {
            self.len += 1;
        }
        let newest = usize::from(self.len) - 1;
        (self.counts[newest], self.ballots[newest]) = (count, birth);
    }

    fn runs(&self) -> impl DoubleEndedIterator<Item = (u8, Ballot)> {
        let len = usize::from(self.len);
        self.counts[..len].iter().copied().zip(self.ballots[..len].iter().copied())
    }

    /// The birth ballot `age` transitions before the newest, 0 for the newest.
    #[must_use]
    pub fn birth(&self, age: u64) -> Option<Ballot> {
        let mut reach = 0;
        for (count, birth) in self.runs().rev() {
            reach += u64::from(count);
            if age < reach {
                return Some(birth);
            }
        }
        None
    }
}

const HAS_VALUE: u8 = 1;
const HAS_SPAN: u8 = 2;
const HAS_DEADLINE: u8 = 4;
const HAS_ONCE: u8 = 8;
const HAS_LOCK: u8 = 16;
const FLAGS: u8 = HAS_VALUE | HAS_SPAN | HAS_DEADLINE | HAS_ONCE | HAS_LOCK;
const EXPIRES: u8 = HAS_SPAN | HAS_DEADLINE;

/// Bytes of a lock: its id, a blob, two numbers.
const LOCK_LEN_MAX: usize = Txid::LEN + 10 + RECORD_KEY_LEN_MAX + 2 * 10;
/// Bytes of a state without its value, its table and its lock, at most.
const HEAD_LEN_MAX: usize = 128;
/// Bytes of a state without its value, at most.
pub(crate) const FIELDS_LEN_MAX: usize = HEAD_LEN_MAX + TABLE_LEN_MAX + LOCK_LEN_MAX;

impl State {
    #[must_use]
    pub fn new(fields: &StateFields<'_>) -> State {
        let value_len = fields.value.map_or(0, <[u8]>::len);
        let once_len = fields.once.map_or(0, <[u8]>::len);
        let mut bytes = Vec::with_capacity(HEAD_LEN_MAX + once_len + value_len);
        let head = fields.encode(&mut bytes);
        State(ThinArc::from_header_and_slice(head, &bytes))
    }

    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.header.header.version
    }

    #[must_use]
    pub fn mod_version(&self) -> u64 {
        self.0.header.header.mod_version
    }

    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        self.0.header.header.flags & HAS_VALUE == 0
    }

    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        (!self.is_tombstone()).then(|| self.part(self.0.header.header.value_at as usize))
    }

    #[must_use]
    pub fn ring(&self) -> Ring {
        let bytes = self.part(usize::from(self.0.header.header.ring_at));
        Ring::decode(&mut Reader::new(bytes)).expect("it was checked when the state was made")
    }

    #[must_use]
    pub fn has_expiry(&self) -> bool {
        self.0.header.header.flags & EXPIRES != 0
    }

    #[must_use]
    pub fn expiry(&self) -> Option<Expiry> {
        let Head { flags, expiry_at, .. } = self.0.header.header;
        let bytes = self.part(usize::from(expiry_at));
        Expiry::decode(flags, &mut Reader::new(bytes)).expect("it was checked when it was made")
    }

    /// The time to live that its value was given.
    #[must_use]
    pub fn ttl(&self) -> Option<TimeToLive> {
        self.expiry().map(|expiry| expiry.ttl)
    }

    #[must_use]
    pub fn expiry_id(&self) -> Option<ExpiryId> {
        if self.has_expiry() { self.expiry().map(|expiry| expiry.id) } else { None }
    }

    #[must_use]
    pub fn has_once(&self) -> bool {
        self.0.header.header.flags & HAS_ONCE != 0
    }

    /// The bytes of the table of commands that are safe to repeat. Never empty.
    #[must_use]
    pub fn once(&self) -> Option<&[u8]> {
        if !self.has_once() {
            return None;
        }
        let bytes = self.part(usize::from(self.0.header.header.once_at));
        Some(Reader::new(bytes).blob(TABLE_LEN_MAX).expect("it was checked when it was made"))
    }

    #[must_use]
    pub fn has_lock(&self) -> bool {
        self.0.header.header.flags & HAS_LOCK != 0
    }

    /// The end of a transaction changes it: it has a lock, or it is a record, as every value of a
    /// `transient` keyspace.
    #[must_use]
    pub(crate) fn lingers(&self, transient: bool) -> bool {
        self.has_lock() || (transient && !self.is_tombstone())
    }

    #[must_use]
    pub fn lock(&self) -> Option<LockFields<'_>> {
        if !self.has_lock() {
            return None;
        }
        let mut reader = Reader::new(self.part(usize::from(self.0.header.header.once_at)));
        let lock = skip_table(self.0.header.header.flags, &mut reader)
            .and_then(|()| LockFields::decode(&mut reader));
        Some(lock.expect("it was checked when it was made"))
    }

    #[must_use]
    pub fn fields(&self) -> StateFields<'_> {
        StateFields {
            version: self.version(),
            mod_version: self.mod_version(),
            ring: self.ring(),
            expiry: self.expiry(),
            once: self.once(),
            lock: self.lock(),
            value: self.value(),
        }
    }

    /// All of it, as it is stored and sent.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0.slice
    }

    fn part(&self, from: usize) -> &[u8] {
        &self.0.slice[from..]
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fields().fmt(f)
    }
}

impl StateFields<'_> {
    /// Appends the bytes to an empty buffer.
    fn encode(&self, out: &mut Vec<u8>) -> Head {
        let expiry_flag = match self.expiry.map(|expiry| expiry.ttl) {
            Some(TimeToLive::After(_)) => HAS_SPAN,
            Some(TimeToLive::At { .. }) => HAS_DEADLINE,
            Some(TimeToLive::Never) | None => 0,
        };
        let value_flag = if self.value.is_some() { HAS_VALUE } else { 0 };
        let once_flag = if self.once.is_some() { HAS_ONCE } else { 0 };
        let lock_flag = if self.lock.is_some() { HAS_LOCK } else { 0 };
        let flags = value_flag | expiry_flag | once_flag | lock_flag;
        out.push(flags);
        put_varint(out, self.version);
        put_varint(out, self.version - self.mod_version);
        let ring_at = out.len() as u8;
        self.ring.encode(out);
        let expiry_at = out.len() as u8;
        if let Some(expiry) = self.expiry {
            expiry.encode(out);
        }
        let once_at = out.len() as u8;
        if let Some(table) = self.once {
            put_blob(out, table);
        }
        if let Some(lock) = self.lock {
            lock.encode(out);
        }
        if let Some(value) = self.value {
            put_blob(out, value);
        }
        let value_at = (out.len() - self.value.map_or(0, <[u8]>::len)) as u32;
        let (version, mod_version) = (self.version, self.mod_version);
        Head { version, mod_version, value_at, ring_at, expiry_at, once_at, flags }
    }
}

impl Expiry {
    /// `version · birth · end · [span]`
    fn encode(&self, out: &mut Vec<u8>) {
        let span = match self.ttl {
            TimeToLive::Never => return,
            TimeToLive::At { unix } => {
                debug_assert_eq!(unix, self.ends, "a deadline is its own end");
                None
            }
            TimeToLive::After(span) => Some(span),
        };
        put_varint(out, self.id.version);
        self.id.birth.encode(out);
        put_varint(out, self.ends.0);
        if let Some(span) = span {
            put_varint(out, span.0);
        }
    }

    fn decode(flags: u8, reader: &mut Reader<'_>) -> Result<Option<Expiry>, Malformed> {
        if flags & EXPIRES == 0 {
            return Ok(None);
        }
        let id = ExpiryId { version: reader.varint()?, birth: Ballot::decode(reader)? };
        let ends = Millis(reader.varint()?);
        let ttl = if flags & HAS_SPAN != 0 {
            TimeToLive::After(Millis(reader.varint()?))
        } else {
            TimeToLive::At { unix: ends }
        };
        Ok(Some(Expiry { id, ttl, ends }))
    }
}

impl<'a> LockFields<'a> {
    /// `txid 22 · record · version · generation`
    fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.record.len() <= RECORD_KEY_LEN_MAX, "{} bytes", self.record.len());
        self.txid.encode(out);
        put_blob(out, self.record);
        put_varint(out, self.version);
        put_varint(out, self.generation);
    }

    fn decode(reader: &mut Reader<'a>) -> Result<LockFields<'a>, Malformed> {
        let txid = Txid::decode(reader)?;
        let record = reader.blob(RECORD_KEY_LEN_MAX)?;
        Ok(LockFields { txid, record, version: reader.varint()?, generation: reader.varint()? })
    }
}

fn skip_table(flags: u8, reader: &mut Reader<'_>) -> Result<(), Malformed> {
    if flags & HAS_ONCE != 0 {
        reader.blob(TABLE_LEN_MAX)?;
    }
    Ok(())
}

/// `flags u8 · version · version - mod_version · runs u8 · (count u8, ballot)* · [expiry] · [table]
/// · [lock] · [value]`, numbers LEB128.
impl Wire for State {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.slice);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<State, Malformed> {
        let whole = reader.rest();
        let at = |reader: &Reader<'_>| whole.len() - reader.rest().len();
        let flags = reader.u8()?;
        if flags & !FLAGS != 0 || flags & EXPIRES == EXPIRES {
            return Err(Malformed);
        }
        let version = reader.varint()?;
        let mod_version = version.checked_sub(reader.varint()?).ok_or(Malformed)?;
        let ring_at = at(reader);
        Ring::decode(reader)?;
        let expiry_at = at(reader);
        Expiry::decode(flags, reader)?;
        let once_at = at(reader);
        if flags & HAS_ONCE != 0 {
            table::check(reader.blob(TABLE_LEN_MAX)?)?;
        }
        if flags & HAS_LOCK != 0 {
            LockFields::decode(reader)?;
        }
        let value_len = if flags & HAS_VALUE != 0 { reader.blob(RECORD_LEN_MAX)?.len() } else { 0 };
        let end = at(reader);
        let short = |at: usize| u8::try_from(at).map_err(|_| Malformed);
        let head = Head {
            version,
            mod_version,
            value_at: u32::try_from(end - value_len).map_err(|_| Malformed)?,
            ring_at: short(ring_at)?,
            expiry_at: short(expiry_at)?,
            once_at: short(once_at)?,
            flags,
        };
        Ok(State(ThinArc::from_header_and_slice(head, &whole[..end])))
    }
}

impl Wire for Ring {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.len);
        for (count, birth) in self.runs() {
            out.push(count);
            birth.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Ring, Malformed> {
        let mut ring = Ring::default();
        let len = reader.u8()?;
        if usize::from(len) > RUNS_MAX {
            return Err(Malformed);
        }
        for _ in 0..len {
            let count = reader.u8()?;
            if count == 0 {
                return Err(Malformed);
            }
            ring.push_run(count, Ballot::decode(reader)?);
        }
        Ok(ring)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use types::{Epoch, Incarnation, NodeId};

    use super::*;

    fn ballots() -> impl Strategy<Value = Ballot> {
        (0..4_u64, 1..4_u16, 0..3_u32)
            .prop_map(|(n, node, inc)| Ballot::new(Epoch(1), n, NodeId(node), Incarnation(inc)))
    }

    /// Locks, and their records beside them.
    fn locks() -> impl Strategy<Value = Option<(LockFields<'static>, Vec<u8>)>> {
        let record = proptest::collection::vec(any::<u8>(), 0..=RECORD_KEY_LEN_MAX);
        let numbers = (any::<u64>(), 1..4_u16, 0..3_u32, any::<u64>());
        let lock = (numbers, record, any::<u64>(), any::<u64>());
        proptest::option::of(lock).prop_map(|found| {
            found.map(|((start, node, incarnation, counter), record, version, generation)| {
                let (node, incarnation) = (NodeId(node), Incarnation(incarnation));
                let txid = Txid { start, node, incarnation, counter };
                (LockFields { txid, record: b"", version, generation }, record)
            })
        })
    }

    pub(crate) fn states() -> impl Strategy<Value = State> {
        let ttl = prop_oneof![
            (any::<u64>(), any::<u64>())
                .prop_map(|(ms, ends)| (TimeToLive::After(Millis(ms)), Millis(ends))),
            any::<u64>().prop_map(|ms| (TimeToLive::At { unix: Millis(ms) }, Millis(ms))),
        ];
        let expiry = proptest::option::of((any::<u64>(), ballots(), ttl)).prop_map(|found| {
            found.map(|(version, birth, (ttl, ends))| Expiry {
                id: ExpiryId { version, birth },
                ttl,
                ends,
            })
        });
        let value = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40));
        let births = proptest::collection::vec(ballots(), 0..9);
        let numbers = (any::<u64>(), any::<u64>());
        (numbers, births, expiry, table::tests::tables(), locks(), value).prop_map(
            |((version, back), births, expiry, once, lock, value)| {
                let mut ring = Ring::default();
                births.into_iter().for_each(|birth| ring.push(birth));
                let mod_version = version - back.min(version);
                let (once, value) = (once.as_deref(), value.as_deref());
                let lock = lock.as_ref().map(|(lock, record)| LockFields { record, ..*lock });
                State::new(&StateFields { version, mod_version, ring, expiry, once, lock, value })
            },
        )
    }

    proptest! {
        #[test]
        fn bytes_come_back(state in states()) {
            prop_assert_eq!(State::from_bytes(&state.to_bytes()), Ok(state.clone()));
            prop_assert_eq!(State::new(&state.fields()), state.clone());
            let free = State::new(&StateFields { lock: None, ..state.fields() });
            prop_assert_eq!(free == state, !state.has_lock(), "a lock is part of the bytes");
            prop_assert_eq!(free.lock(), None);
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
    fn absent_lock_costs_no_byte() {
        let txid = Txid { start: 9, node: NodeId(2), incarnation: Incarnation(3), counter: 4 };
        let lock = LockFields { txid, record: b"record", version: 7, generation: 1 };
        let fields = StateFields {
            version: 7,
            mod_version: 7,
            ring: Ring::default(),
            expiry: None,
            once: None,
            lock: None,
            value: Some(b"value"),
        };
        let free = State::new(&fields);
        assert_eq!(free.bytes(), b"\x01\x07\x00\x00\x05value");
        let locked = State::new(&StateFields { lock: Some(lock), ..fields });
        assert_eq!((locked.lock(), locked.value()), (Some(lock), Some(&b"value"[..])));
        assert_eq!(locked.bytes()[0], HAS_VALUE | HAS_LOCK);
        assert_eq!(locked.bytes().len(), free.bytes().len() + Txid::LEN + 7 + 2);
    }

    #[test]
    fn unknown_flag_is_malformed() {
        let mut bytes = b"\x01\x07\x00\x00\x05value".to_vec();
        assert!(State::from_bytes(&bytes).is_ok());
        bytes[0] |= 32;
        assert_eq!(State::from_bytes(&bytes), Err(Malformed));
    }

    fn births(numbers: &[u64]) -> Vec<Ballot> {
        let birth = |&n: &u64| Ballot::new(Epoch(1), n, NodeId(1), Incarnation(1));
        numbers.iter().map(birth).collect()
    }

    fn ring(births: &[Ballot]) -> Ring {
        let mut ring = Ring::default();
        births.iter().for_each(|&birth| ring.push(birth));
        ring
    }

    #[test]
    fn the_ring_keeps_the_newest() {
        let births = births(&[1, 2, 3, 4, 5, 6]);
        let ring = ring(&births);
        assert_eq!(ring.birth(0), Some(births[5]));
        assert_eq!(ring.birth(3), Some(births[2]));
        assert_eq!(ring.birth(4), None);
    }

    #[test]
    fn busy_owner_does_not_evict_other_runs() {
        let mut numbers = vec![1, 2];
        numbers.resize(200, 3);
        let births = births(&numbers);
        let ring = ring(&births);
        for (age, birth) in births.iter().rev().enumerate() {
            assert_eq!(ring.birth(age as u64), Some(*birth), "{age} before the newest");
        }
        assert_eq!(ring.birth(200), None);
        assert_eq!(Ring::from_bytes(&ring.to_bytes()), Ok(ring));
    }

    #[test]
    fn full_run_is_followed_by_another() {
        let births = births(&[7; 300]);
        assert_eq!(ring(&births).birth(299), Some(births[0]));
    }
}
