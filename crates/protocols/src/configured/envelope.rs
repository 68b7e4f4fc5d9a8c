//! The messages of configured protocols: those of members in their epoch, and those of the frame.

use base::Millis;
use bytes::Bytes;
use types::explain::{Held, Record};
use types::wire::{put_blob, put_varint};
use types::{Access, Epoch, Key, Malformed, Outcome, Reader, Reply, SessionId, Shard, Wire};

use crate::protocol;
use crate::protocol::Touches;

/// A message between nodes of a configured protocol.
#[derive(Clone, PartialEq, Debug)]
pub enum Envelope<M> {
    /// Of the protocol, in this epoch.
    Member {
        epoch: Epoch,
        message: M,
    },
    /// To a full member: run this request.
    Pass(Pass),
    /// Names the shard of the request, which finds the worker that waits.
    Passed {
        shard: Shard,
        id: u64,
        answer: Answer,
    },
    /// To a full member: run this step of a listing.
    PassList {
        id: u64,
        from_hash: u64,
        limit: u32,
    },
    /// `None`: the node serves no listing.
    PassedList {
        shard: Shard,
        id: u64,
        listed: Option<Listed>,
    },
    Copy(Copy),
    Page(Page),
    /// To this node itself: a register of the page `id`.
    Adopt {
        epoch: Epoch,
        id: u64,
        key: Key,
        record: Bytes,
    },
    /// To this node itself: remove the register that this scan found.
    Drop {
        scan: u64,
        key: Key,
    },
    /// To this node itself: the copy of this epoch is durable. Zero: so is the removal of all.
    Settled {
        epoch: Epoch,
    },
    Explain {
        id: u64,
        key: Key,
    },
    Explained {
        shard: Shard,
        id: u64,
        held: Held,
    },
}

/// A request of another node's client.
#[derive(Clone, PartialEq, Debug)]
pub struct Pass {
    pub id: u64,
    /// No copy of a lower id counts any more.
    pub low: u64,
    pub session: SessionId,
    pub key: Key,
    pub access: Access,
    pub body: Bytes,
}

/// The end of a passed request.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    Ended(Outcome),
    /// It did not run here and never will.
    NotServing,
}

/// A step of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    pub keys: Vec<Key>,
    pub undecided: Vec<Key>,
    pub next_hash: Option<u64>,
}

/// Asks for registers of one shard, from `from_hash` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    pub epoch: Epoch,
    pub id: u64,
    pub from_hash: u64,
    pub limit: u32,
}

/// Registers of one shard in the order of their hashes, up to `next_hash`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    pub epoch: Epoch,
    pub shard: Shard,
    pub id: u64,
    pub records: Vec<(Key, Bytes)>,
    pub next_hash: Option<u64>,
}

impl<M: protocol::Message> protocol::Message for Envelope<M> {
    fn touches(&self) -> Touches<'_> {
        match self {
            Envelope::Member { message, .. } => message.touches(),
            Envelope::Pass(Pass { key, .. })
            | Envelope::Adopt { key, .. }
            | Envelope::Drop { key, .. }
            | Envelope::Explain { key, .. } => Touches::Key(key),
            Envelope::Copy(Copy { from_hash, .. }) | Envelope::PassList { from_hash, .. } => {
                Touches::Shard(Shard((from_hash >> 56) as u8))
            }
            Envelope::Page(Page { shard, .. })
            | Envelope::Passed { shard, .. }
            | Envelope::PassedList { shard, .. }
            | Envelope::Explained { shard, .. } => Touches::Shard(*shard),
            Envelope::Settled { .. } => Touches::Nothing,
        }
    }

    fn shard(&self) -> Option<Shard> {
        match self {
            Envelope::Member { message, .. } => message.shard(),
            _ => self.touches().shard(),
        }
    }

    fn is_write(&self) -> bool {
        match self {
            Envelope::Member { message, .. } => message.is_write(),
            Envelope::Page(_) => true,
            _ => false,
        }
    }
}

mod kind {
    pub(super) const MEMBER: u8 = 0;
    pub(super) const PASS: u8 = 1;
    pub(super) const PASSED: u8 = 2;
    pub(super) const PASS_LIST: u8 = 3;
    pub(super) const PASSED_LIST: u8 = 4;
    pub(super) const COPY: u8 = 5;
    pub(super) const PAGE: u8 = 6;
    pub(super) const ADOPT: u8 = 7;
    pub(super) const DROP: u8 = 8;
    pub(super) const SETTLED: u8 = 9;
    pub(super) const EXPLAIN: u8 = 10;
    pub(super) const EXPLAINED: u8 = 11;
}

impl<M: Wire> Wire for Envelope<M> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Envelope::Member { epoch, message } => {
                out.push(kind::MEMBER);
                put_varint(out, u64::from(epoch.0));
                message.encode(out);
            }
            Envelope::Pass(Pass { id, low, session, key, access, body }) => {
                out.push(kind::PASS);
                put_varint(out, *id);
                put_varint(out, id - low);
                put_varint(out, session.0);
                key.encode(out);
                access.encode(out);
                out.extend_from_slice(body);
            }
            Envelope::Passed { shard, id, answer } => {
                out.extend([kind::PASSED, shard.0]);
                put_varint(out, *id);
                answer.encode(out);
            }
            Envelope::PassList { id, from_hash, limit } => {
                out.push(kind::PASS_LIST);
                put_varint(out, *id);
                out.extend(from_hash.to_le_bytes());
                put_varint(out, u64::from(*limit));
            }
            Envelope::PassedList { shard, id, listed } => {
                out.extend([kind::PASSED_LIST, shard.0]);
                put_varint(out, *id);
                if let Some(Listed { keys, undecided, next_hash }) = listed {
                    put_hash(out, *next_hash);
                    put_all(out, keys, |key, out| key.encode(out));
                    put_all(out, undecided, |key, out| key.encode(out));
                }
            }
            Envelope::Copy(Copy { epoch, id, from_hash, limit }) => {
                out.push(kind::COPY);
                put_varint(out, u64::from(epoch.0));
                put_varint(out, *id);
                out.extend(from_hash.to_le_bytes());
                put_varint(out, u64::from(*limit));
            }
            Envelope::Page(Page { epoch, shard, id, records, next_hash }) => {
                out.extend([kind::PAGE, shard.0]);
                put_varint(out, u64::from(epoch.0));
                put_varint(out, *id);
                put_hash(out, *next_hash);
                put_all(out, records, |(key, record), out| {
                    key.encode(out);
                    put_blob(out, record);
                });
            }
            Envelope::Adopt { epoch, id, key, record } => {
                out.push(kind::ADOPT);
                put_varint(out, u64::from(epoch.0));
                put_varint(out, *id);
                key.encode(out);
                put_blob(out, record);
            }
            Envelope::Drop { scan, key } => {
                out.push(kind::DROP);
                put_varint(out, *scan);
                key.encode(out);
            }
            Envelope::Settled { epoch } => {
                out.push(kind::SETTLED);
                put_varint(out, u64::from(epoch.0));
            }
            Envelope::Explain { id, key } => {
                out.push(kind::EXPLAIN);
                put_varint(out, *id);
                key.encode(out);
            }
            Envelope::Explained { shard, id, held } => {
                out.extend([kind::EXPLAINED, shard.0]);
                put_varint(out, *id);
                put_held(out, held);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Envelope<M>, Malformed> {
        Ok(match reader.u8()? {
            kind::MEMBER => Envelope::Member { epoch: epoch(reader)?, message: M::decode(reader)? },
            kind::PASS => {
                let id = reader.varint()?;
                let low = id.checked_sub(reader.varint()?).ok_or(Malformed)?;
                let session = SessionId(reader.varint()?);
                let (key, access) = (Key::decode(reader)?, Access::decode(reader)?);
                let body = Bytes::copy_from_slice(reader.take(reader.rest().len())?);
                Envelope::Pass(Pass { id, low, session, key, access, body })
            }
            kind::PASSED => {
                let (shard, id) = (Shard(reader.u8()?), reader.varint()?);
                Envelope::Passed { shard, id, answer: Answer::decode(reader)? }
            }
            kind::PASS_LIST => {
                let (id, from_hash) = (reader.varint()?, reader.u64()?);
                Envelope::PassList { id, from_hash, limit: limit(reader)? }
            }
            kind::PASSED_LIST => {
                let (shard, id) = (Shard(reader.u8()?), reader.varint()?);
                if reader.is_empty() {
                    return Ok(Envelope::PassedList { shard, id, listed: None });
                }
                let next_hash = hash(reader)?;
                let keys = all(reader, Key::decode)?;
                let undecided = all(reader, Key::decode)?;
                Envelope::PassedList {
                    shard,
                    id,
                    listed: Some(Listed { keys, undecided, next_hash }),
                }
            }
            kind::COPY => {
                let (epoch, id) = (epoch(reader)?, reader.varint()?);
                let from_hash = reader.u64()?;
                Envelope::Copy(Copy { epoch, id, from_hash, limit: limit(reader)? })
            }
            kind::PAGE => {
                let shard = Shard(reader.u8()?);
                let (epoch, id, next_hash) = (epoch(reader)?, reader.varint()?, hash(reader)?);
                let records = all(reader, |reader| Ok((Key::decode(reader)?, blob(reader)?)))?;
                Envelope::Page(Page { epoch, shard, id, records, next_hash })
            }
            kind::ADOPT => {
                let (epoch, id) = (epoch(reader)?, reader.varint()?);
                Envelope::Adopt { epoch, id, key: Key::decode(reader)?, record: blob(reader)? }
            }
            kind::DROP => Envelope::Drop { scan: reader.varint()?, key: Key::decode(reader)? },
            kind::SETTLED => Envelope::Settled { epoch: epoch(reader)? },
            kind::EXPLAIN => Envelope::Explain { id: reader.varint()?, key: Key::decode(reader)? },
            kind::EXPLAINED => {
                let (shard, id) = (Shard(reader.u8()?), reader.varint()?);
                Envelope::Explained { shard, id, held: held(reader)? }
            }
            _ => return Err(Malformed),
        })
    }
}

impl Wire for Answer {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Answer::NotServing => out.push(0),
            Answer::Ended(Outcome::Reply(reply)) => {
                out.push(1);
                reply.encode(out);
            }
            Answer::Ended(Outcome::NoQuorum) => out.push(2),
            Answer::Ended(Outcome::Loading) => out.push(3),
            Answer::Ended(Outcome::Unsupported(_)) => out.push(4),
            // Of the others, none comes from a plain request.
            Answer::Ended(_) => out.push(5),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Answer, Malformed> {
        Ok(match reader.u8()? {
            0 => Answer::NotServing,
            1 => Answer::Ended(Outcome::Reply(Reply::decode(reader)?)),
            2 => Answer::Ended(Outcome::NoQuorum),
            3 => Answer::Ended(Outcome::Loading),
            4 => Answer::Ended(Outcome::Unsupported("")),
            5 => Answer::Ended(Outcome::Unknown),
            _ => return Err(Malformed),
        })
    }
}

fn epoch(reader: &mut Reader<'_>) -> Result<Epoch, Malformed> {
    u32::try_from(reader.varint()?).map(Epoch).map_err(|_| Malformed)
}

fn limit(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    u32::try_from(reader.varint()?).map_err(|_| Malformed)
}

fn blob(reader: &mut Reader<'_>) -> Result<Bytes, Malformed> {
    reader.blob(usize::MAX).map(Bytes::copy_from_slice)
}

fn put_hash(out: &mut Vec<u8>, hash: Option<u64>) {
    out.push(u8::from(hash.is_some()));
    out.extend(hash.into_iter().flat_map(u64::to_le_bytes));
}

fn hash(reader: &mut Reader<'_>) -> Result<Option<u64>, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        1 => reader.u64().map(Some),
        _ => Err(Malformed),
    }
}

fn put_all<T>(out: &mut Vec<u8>, all: &[T], put: impl Fn(&T, &mut Vec<u8>)) {
    put_varint(out, all.len() as u64);
    all.iter().for_each(|one| put(one, out));
}

/// Every element takes at least one byte, so the bytes bound their number.
fn all<T>(
    reader: &mut Reader<'_>,
    mut take: impl FnMut(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = reader.varint()?;
    if count > reader.rest().len() as u64 {
        return Err(Malformed);
    }
    (0..count).map(|_| take(reader)).collect()
}

fn put_held(out: &mut Vec<u8>, held: &Held) {
    match held {
        Held::Silent => out.push(0),
        Held::Absent => out.push(1),
        Held::Present(record) => {
            out.push(2);
            put_blob(out, record.round.as_bytes());
            put_varint(out, record.version);
            out.push(u8::from(record.is_tombstone));
            put_varint(out, record.value_len as u64);
            out.extend(record.checksum.to_le_bytes());
            put_hash(out, record.rest.map(|rest| rest.0));
        }
    }
}

fn held(reader: &mut Reader<'_>) -> Result<Held, Malformed> {
    Ok(match reader.u8()? {
        0 => Held::Silent,
        1 => Held::Absent,
        2 => {
            let round = String::from_utf8(reader.blob(96)?.to_vec()).map_err(|_| Malformed)?;
            let version = reader.varint()?;
            let is_tombstone = reader.u8()? == 1;
            let value_len = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
            let (checksum, rest) = (reader.u64()?, hash(reader)?.map(Millis));
            Held::Present(Record { round, version, is_tombstone, value_len, checksum, rest })
        }
        _ => return Err(Malformed),
    })
}
