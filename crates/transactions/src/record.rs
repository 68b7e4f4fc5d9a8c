//! The record of a transaction: a register of the hidden keyspace that says how it ended.
//!
//! It is written once: absent, then committed or aborted, then forgotten. The first decision
//! counts, be it of the coordinator or of another node.

use base::Millis;
use bytes::Bytes;
use types::limits::{ONCE_REPLY_LEN_MAX, ONCE_SESSION_LEN_MAX};
use types::wire::{put_blob, put_varint};
use types::{
    Access, Applied, Change, Clock, Command, ExpiryChange, Fence, Key, Malformed, Once, Reader,
    Reply, Settle, Shard, TimeToLive, Txid, Under, Update, View, Wire,
};

use crate::mutation::{self, Mutation};

/// How a transaction ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    Committed(Vec<Entry>),
    Aborted,
}

/// The end of a transaction at one key that it locked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub key: Key,
    /// Version of the state that it locked.
    pub version: u64,
    pub change: Change,
    /// The key remembers the transaction so.
    pub once: Option<Box<(Once, Option<Reply>)>>,
}

impl Entry {
    /// Ends the hold of the transaction with this id.
    pub(crate) fn settle(&self, txid: Txid) -> Settle {
        let (version, install, once) = (self.version, self.change.clone(), self.once.clone());
        Settle { txid, version, install, once }
    }
}

impl Record {
    /// The end at `key`; `None` where the transaction did not lock it.
    #[must_use]
    pub fn entry(&self, key: &Key) -> Option<&Entry> {
        match self {
            Record::Committed(entries) => entries.iter().find(|entry| entry.key == *key),
            Record::Aborted => None,
        }
    }
}

const COMMITTED: u8 = 1;
const ABORTED: u8 = 2;
/// Committed, and a key remembers it.
const REMEMBERED: u8 = 3;

/// `kind u8 · [once] · (key, version, change)*`, where `once` is
/// `place · session · seq · window · reply`, with the place of the remembering key.
impl Wire for Record {
    fn encode(&self, out: &mut Vec<u8>) {
        let Record::Committed(entries) = self else {
            out.push(ABORTED);
            return;
        };
        let kept = |entry: &Entry| entry.once.clone();
        let place = entries.iter().position(|entry| entry.once.is_some());
        match place.and_then(|place| Some((place, kept(&entries[place])?))) {
            None => out.push(COMMITTED),
            Some((place, kept)) => {
                let (once, reply) = *kept;
                out.push(REMEMBERED);
                put_varint(out, place as u64);
                put_blob(out, &once.session);
                put_varint(out, once.seq);
                put_varint(out, once.window.0);
                put_blob(out, &reply.map(|reply| reply.to_bytes()).unwrap_or_default());
            }
        }
        for entry in entries {
            entry.key.encode(out);
            put_varint(out, entry.version);
            entry.change.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Record, Malformed> {
        match reader.u8()? {
            ABORTED => Ok(Record::Aborted),
            COMMITTED => decode_entries(reader).map(Record::Committed),
            REMEMBERED => {
                let place = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
                let session = Bytes::copy_from_slice(reader.blob(ONCE_SESSION_LEN_MAX)?);
                let (seq, window) = (reader.varint()?, Millis(reader.varint()?));
                let reply = match reader.blob(ONCE_REPLY_LEN_MAX)? {
                    [] => None,
                    bytes => Some(Reply::from_bytes(bytes)?),
                };
                let mut entries = decode_entries(reader)?;
                let entry = entries.get_mut(place).ok_or(Malformed)?;
                entry.once = Some(Box::new((Once { session, seq, window }, reply)));
                Ok(Record::Committed(entries))
            }
            _ => Err(Malformed),
        }
    }
}

fn decode_entries(reader: &mut Reader<'_>) -> Result<Vec<Entry>, Malformed> {
    let mut entries = Vec::new();
    while !reader.is_empty() {
        let (key, version) = (Key::decode(reader)?, reader.varint()?);
        entries.push(Entry { key, version, change: Change::decode(reader)?, once: None });
    }
    Ok(entries)
}

/// The key of a transaction's record, in the shard of its first key. Its position needs no secret:
/// ids are unique, and a client chooses none.
#[must_use]
pub fn key(shard: Shard, txid: Txid) -> Key {
    let mut bytes = vec![shard.0];
    txid.encode(&mut bytes);
    key_of(&bytes)
}

/// The key with these bytes, as a lock names it.
#[must_use]
pub fn key_of(bytes: &[u8]) -> Key {
    types::positions::hidden_key(bytes)
}

const READ: u8 = 1;
const DECIDE: u8 = 2;
const FORGET: u8 = 3;

/// Reads the record. The reply is its bytes, or null.
#[must_use]
pub fn read() -> Command {
    staying(Access::Read, vec![READ])
}

/// Decides an undecided record. The reply is the record from then on.
#[must_use]
pub fn decide(record: &Record) -> Command {
    let mut body = vec![DECIDE];
    record.encode(&mut body);
    staying(Access::Update, body)
}

/// The same for the coordinator itself. A fence against its incarnation keeps it from being
/// written. \[T1\]
pub(crate) fn decide_own(record: &Record, txid: Txid) -> Command {
    match mutation::is(Mutation::CommitUnbound) {
        true => decide(record),
        false => decide(record).only(Under::Incarnation(txid.incarnation)),
    }
}

/// Forgets the aborted record of a coordinator that may live, and shuts its incarnation out. `None`
/// for the last one that a node can have. \[T1\]
pub(crate) fn forget_fenced(txid: Txid) -> Option<Command> {
    let fence = Fence::against(txid.node, txid.incarnation)?;
    let forget = forget(&Record::Aborted);
    let is_bare = mutation::is(Mutation::ForgetUnfenced);
    Some(if is_bare { forget } else { forget.only(Under::Fence(fence)) })
}

/// Forgets a record of this kind.
#[must_use]
pub fn forget(record: &Record) -> Command {
    let kind = if *record == Record::Aborted { ABORTED } else { COMMITTED };
    staying(Access::Update, vec![FORGET, kind])
}

/// Only this node proposes it. So the node knows all proposals of a decision that it made.
fn staying(access: Access, body: Vec<u8>) -> Command {
    Command::new(access, body.into()).only(Under::Any)
}

/// The semantics of a hidden keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordUpdate;

impl Update for RecordUpdate {
    fn apply(&self, view: View<'_>, body: &[u8], _clock: Clock) -> Applied {
        let held = || Reply::copy_or_null(view.value);
        match (body, view.value) {
            ([DECIDE, record @ ..], held)
                if held.is_none() || mutation::is(Mutation::SecondDecision) =>
            {
                let value = Bytes::copy_from_slice(record);
                let reply = Reply::Bulk(value.clone());
                let expiry = ExpiryChange::Set(TimeToLive::Never);
                Applied { change: Change::Put { value, expiry }, reply }
            }
            ([FORGET, kind], Some([held, ..])) if (*kind == ABORTED) == (*held == ABORTED) => {
                Applied { change: Change::Delete, reply: Reply::Null }
            }
            _ => Applied::unchanged(held()),
        }
    }
}

/// The record that a reply shows.
///
/// # Errors
/// [`Malformed`] for a reply that no register of a hidden keyspace gives.
pub fn shown(reply: &Reply) -> Result<Option<Record>, Malformed> {
    match reply {
        Reply::Null => Ok(None),
        Reply::Bulk(bytes) => Record::from_bytes(bytes).map(Some),
        _ => Err(Malformed),
    }
}
