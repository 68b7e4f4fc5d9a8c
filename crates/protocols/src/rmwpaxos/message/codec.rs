//! The bytes of messages.

use std::sync::Arc;

use types::wire::put_varint;
use types::{AmnesiaCount, Ballot, Fence, Incarnation, Key, Malformed, Reader, Round, Shard, Wire};

use super::delta::Delta;
use super::kind;
use super::messages::Message;
use super::parts::{
    BUCKETS, Forward, Held, LISTING_KEYS_MAX, Listing, Payload, Report, Verdict, flag, proposal,
};
use crate::rmwpaxos::record::fences::Fences;
use crate::rmwpaxos::record::state::State;

impl Wire for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8, key: &Key| {
            out.push(kind);
            key.encode(out);
        };
        match self {
            Message::Read { key, id, have } => {
                head(kind::READ, key);
                put_varint(out, *id);
                have.encode(out);
            }
            Message::State { key, id, report } => {
                head(kind::STATE, key);
                put_varint(out, *id);
                report.encode(out);
            }
            Message::Prepare { key, ballot, have, fence } => {
                head(if fence.is_some() { kind::PREPARE_FENCE } else { kind::PREPARE }, key);
                ballot.encode(out);
                have.encode(out);
                fence.iter().for_each(|fence| fence.encode(out));
            }
            Message::Promise { key, ballot, report } => {
                head(kind::PROMISE, key);
                ballot.encode(out);
                report.encode(out);
            }
            Message::Accept { key, round, chosen_k, state } => {
                head(kind::ACCEPT, key);
                round.encode(out);
                put_varint(out, u64::from(*chosen_k));
                state.encode(out);
            }
            Message::AcceptDelta { key, round, chosen_k, delta } => {
                head(kind::ACCEPT_DELTA, key);
                round.encode(out);
                put_varint(out, u64::from(*chosen_k));
                delta.encode(out);
            }
            Message::PrepareAccept { key, round, base, payload } => match payload {
                Payload::Whole(state) => {
                    head(kind::PREPARE_ACCEPT, key);
                    round.encode(out);
                    base.encode(out);
                    state.encode(out);
                }
                // Its base is the delta's own.
                Payload::Delta(delta) => {
                    head(kind::PREPARE_ACCEPT_DELTA, key);
                    round.encode(out);
                    delta.encode(out);
                }
            },
            Message::NeedFull { key, round } => {
                head(kind::NEED_FULL, key);
                round.encode(out);
            }
            Message::Accepted { key, round } => {
                head(kind::ACCEPTED, key);
                round.encode(out);
            }
            Message::Nack { key, tried, promised, recovering } => {
                head(kind::NACK, key);
                tried.encode(out);
                promised.encode(out);
                out.push(u8::from(*recovering));
            }
            Message::Fenced { key, tried, below } => {
                head(kind::FENCED, key);
                tried.encode(out);
                put_varint(out, u64::from(below.0));
            }
            Message::Repair { key, round, state } => {
                head(kind::REPAIR, key);
                round.encode(out);
                state.encode(out);
            }
            Message::Remove { key, round } => {
                head(kind::REMOVE, key);
                round.encode(out);
            }
            Message::Chosen { key, round } => {
                head(kind::CHOSEN, key);
                round.encode(out);
            }
            Message::Forward { key, forward } => {
                head(kind::FORWARD, key);
                forward.encode(out);
            }
            Message::Forwarded { key, sequence, verdict } => {
                head(kind::FORWARDED, key);
                put_varint(out, *sequence);
                verdict.encode(out);
            }
            Message::Recover { key, id } => {
                head(kind::RECOVER, key);
                put_varint(out, *id);
            }
            Message::Recovered { key, id, promised, report, fences } => {
                let has_fences = !fences.is_empty();
                head(if has_fences { kind::RECOVERED_FENCES } else { kind::RECOVERED }, key);
                put_varint(out, *id);
                promised.encode(out);
                if has_fences {
                    fences.encode(out);
                }
                report.encode(out);
            }
            Message::List { shard, id, from_hash, limit } => {
                out.extend_from_slice(&[kind::LIST, shard.0]);
                put_varint(out, *id);
                out.extend_from_slice(&from_hash.to_le_bytes());
                put_varint(out, u64::from(*limit));
            }
            Message::Listed { shard, id, listing } => {
                out.extend_from_slice(&[kind::LISTED, shard.0]);
                put_varint(out, *id);
                listing.encode(out);
            }
            Message::Compare { shard, id, range, floor, digests } => {
                out.extend_from_slice(&[kind::COMPARE, shard.0]);
                put_varint(out, *id);
                out.extend_from_slice(&range.0.to_le_bytes());
                put_until(out, range.1);
                floor.encode(out);
                digests.iter().for_each(|fold| out.extend_from_slice(&fold.to_le_bytes()));
            }
            Message::Compared { shard, id, until, floor, buckets, entries } => {
                out.extend_from_slice(&[kind::COMPARED, shard.0]);
                put_varint(out, *id);
                put_until(out, *until);
                floor.encode(out);
                out.extend_from_slice(&buckets.to_le_bytes());
                put_varint(out, entries.len() as u64);
                for entry in entries {
                    entry.key.encode(out);
                    entry.accepted.encode(out);
                    out.push(u8::from(entry.is_tombstone));
                }
            }
            Message::Want { key, have, insist } => {
                head(kind::WANT, key);
                have.encode(out);
                out.push(u8::from(*insist));
            }
            Message::Older { key, round, floor, amnesia } => {
                head(kind::OLDER, key);
                round.encode(out);
                floor.encode(out);
                put_varint(out, u64::from(amnesia.0));
            }
            Message::OlderFloor { shard, floor, amnesia } => {
                out.extend_from_slice(&[kind::OLDER_FLOOR, shard.0]);
                floor.encode(out);
                put_varint(out, u64::from(amnesia.0));
            }
            Message::Touch { .. } => unreachable!("a touch never leaves its node"),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Message, Malformed> {
        let kind = reader.u8()?;
        if kind == kind::LIST || kind == kind::LISTED {
            return decode_listing(kind, reader);
        }
        if kind == kind::COMPARE || kind == kind::COMPARED {
            return decode_comparison(kind, reader);
        }
        if kind == kind::OLDER_FLOOR {
            let (shard, floor) = (Shard(reader.u8()?), Ballot::decode(reader)?);
            return Ok(Message::OlderFloor { shard, floor, amnesia: decode_loss(reader)? });
        }
        let key = Key::decode(reader)?;
        Ok(match kind {
            kind::READ => Message::Read { key, id: reader.varint()?, have: Round::decode(reader)? },
            kind::STATE => {
                Message::State { key, id: reader.varint()?, report: Report::decode(reader)? }
            }
            kind::PREPARE | kind::PREPARE_FENCE => {
                let (ballot, have) = (Ballot::decode(reader)?, Round::decode(reader)?);
                let has_fence = kind == kind::PREPARE_FENCE;
                let fence = if has_fence { Some(Fence::decode(reader)?) } else { None };
                Message::Prepare { key, ballot, have, fence }
            }
            kind::PROMISE => Message::Promise {
                key,
                ballot: Ballot::decode(reader)?,
                report: Report::decode(reader)?,
            },
            kind::ACCEPT => Message::Accept {
                key,
                round: proposal(reader)?,
                chosen_k: u32::try_from(reader.varint()?).map_err(|_| Malformed)?,
                state: State::decode(reader)?,
            },
            kind::ACCEPT_DELTA => Message::AcceptDelta {
                key,
                round: proposal(reader)?,
                chosen_k: u32::try_from(reader.varint()?).map_err(|_| Malformed)?,
                delta: Arc::<Delta>::decode(reader)?,
            },
            kind::PREPARE_ACCEPT => Message::PrepareAccept {
                key,
                round: proposal(reader)?,
                base: Round::decode(reader)?,
                payload: Payload::Whole(State::decode(reader)?),
            },
            kind::PREPARE_ACCEPT_DELTA => {
                let round = proposal(reader)?;
                let delta = Arc::<Delta>::decode(reader)?;
                let base = delta.base();
                Message::PrepareAccept { key, round, base, payload: Payload::Delta(delta) }
            }
            kind::NEED_FULL => Message::NeedFull { key, round: proposal(reader)? },
            kind::ACCEPTED => Message::Accepted { key, round: Round::decode(reader)? },
            kind::NACK => Message::Nack {
                key,
                tried: Round::decode(reader)?,
                promised: Ballot::decode(reader)?,
                recovering: flag(reader)?,
            },
            kind::FENCED => {
                let tried = Round::decode(reader)?;
                let below = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
                if below > Incarnation::MAX.0 {
                    return Err(Malformed);
                }
                Message::Fenced { key, tried, below: Incarnation(below) }
            }
            kind::REPAIR => {
                Message::Repair { key, round: proposal(reader)?, state: State::decode(reader)? }
            }
            kind::REMOVE => Message::Remove { key, round: proposal(reader)? },
            kind::WANT => {
                Message::Want { key, have: Round::decode(reader)?, insist: flag(reader)? }
            }
            kind::OLDER => {
                let (round, floor) = (Round::decode(reader)?, Ballot::decode(reader)?);
                Message::Older { key, round, floor, amnesia: decode_loss(reader)? }
            }
            kind::CHOSEN => Message::Chosen { key, round: proposal(reader)? },
            kind::FORWARD => Message::Forward { key, forward: Forward::decode(reader)? },
            kind::FORWARDED => Message::Forwarded {
                key,
                sequence: reader.varint()?,
                verdict: Verdict::decode(reader)?,
            },
            kind::RECOVER => Message::Recover { key, id: reader.varint()? },
            kind::RECOVERED | kind::RECOVERED_FENCES => {
                let (id, promised) = (reader.varint()?, Ballot::decode(reader)?);
                let fences = match kind {
                    kind::RECOVERED => Fences::default(),
                    _ => Fences::decode(reader)?,
                };
                let report = Box::new(Report::decode(reader)?);
                Message::Recovered { key, id, promised, report, fences }
            }
            _ => return Err(Malformed),
        })
    }
}

fn decode_loss(reader: &mut Reader<'_>) -> Result<AmnesiaCount, Malformed> {
    u32::try_from(reader.varint()?).map(AmnesiaCount).map_err(|_| Malformed)
}

fn decode_listing(kind: u8, reader: &mut Reader<'_>) -> Result<Message, Malformed> {
    let shard = Shard(reader.u8()?);
    let id = reader.varint()?;
    if kind == kind::LISTED {
        return Ok(Message::Listed { shard, id, listing: Listing::decode(reader)? });
    }
    let from_hash = reader.u64()?;
    let limit = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
    if limit as usize > LISTING_KEYS_MAX || (from_hash >> 56) as u8 != shard.0 {
        return Err(Malformed);
    }
    Ok(Message::List { shard, id, from_hash, limit })
}

fn put_until(out: &mut Vec<u8>, until: Option<u64>) {
    out.push(u8::from(until.is_some()));
    if let Some(until) = until {
        out.extend_from_slice(&until.to_le_bytes());
    }
}

/// The end of a range of this shard.
fn take_until(reader: &mut Reader<'_>, shard: Shard) -> Result<Option<u64>, Malformed> {
    let until = if flag(reader)? { Some(reader.u64()?) } else { None };
    let is_inside = until.is_none_or(|until| (until >> 56) as u8 == shard.0);
    if is_inside { Ok(until) } else { Err(Malformed) }
}

fn decode_comparison(kind: u8, reader: &mut Reader<'_>) -> Result<Message, Malformed> {
    let shard = Shard(reader.u8()?);
    let id = reader.varint()?;
    if kind == kind::COMPARED {
        let until = take_until(reader, shard)?;
        let floor = Ballot::decode(reader)?;
        let buckets = reader.u16()?;
        let mut entries = Vec::new();
        for _ in 0..reader.varint()? {
            let key = Key::decode(reader)?;
            let accepted = proposal(reader)?;
            let is_tombstone = flag(reader)?;
            if key.shard() != shard {
                return Err(Malformed);
            }
            entries.push(Held { key, accepted, is_tombstone });
        }
        return Ok(Message::Compared { shard, id, until, floor, buckets, entries });
    }
    let from_hash = reader.u64()?;
    let until = take_until(reader, shard)?;
    if (from_hash >> 56) as u8 != shard.0 || until.is_some_and(|until| until <= from_hash) {
        return Err(Malformed);
    }
    let floor = Ballot::decode(reader)?;
    let mut digests = Box::new([0; BUCKETS]);
    for fold in digests.iter_mut() {
        *fold = reader.u64()?;
    }
    Ok(Message::Compare { shard, id, range: (from_hash, until), floor, digests })
}
