//! What nodes say to each other about a key, and its bytes.

use base::Millis;
use bytes::Bytes;
use types::wire::{put_blob, put_varint};
use types::{
    Access, Ballot, Command, Incarnation, Key, Malformed, NodeId, Outcome, Reader, Round,
    SessionId, Shard, Wire,
};

use super::comparison::{BUCKETS, Folds, Held};
use super::register::Countdown;
use super::state::State;
use crate::protocol::{Message as ProtocolMessage, Touches};

/// Commands of one forward.
pub const FORWARD_COMMANDS_MAX: usize = 256;
/// Keys of one listing step.
pub const LISTING_KEYS_MAX: usize = 4096;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Reads a register without changing it. `have`: the round whose state the asker holds already.
    Read { key: Key, id: u64, have: Round },
    /// Answers `Read`.
    State { key: Key, id: u64, report: Report },
    /// Phase 1.
    Prepare { key: Key, ballot: Ballot, have: Round },
    /// Answers `Prepare`: nothing below `ballot` will be accepted here any more.
    Promise { key: Key, ballot: Ballot, report: Report },
    /// Phase 2. `chosen_k`: proposals of this ballot up to it are chosen.
    Accept { key: Key, round: Round, chosen_k: u32, state: State },
    /// Answers `Accept` with the round accepted here by now.
    Accepted { key: Key, round: Round },
    /// Answers a `Prepare` (`tried.k() == 0`) or an `Accept` that came too late. A hint, never evidence.
    Nack { key: Key, tried: Round, promised: Ballot, recovering: bool },
    /// A late delivery of an accept, by anybody who knows it. Not answered.
    Repair { key: Key, round: Round, state: State },
    /// A hint: `round` is chosen, and with it what was accepted of its ballot before. [corrections B2]
    Chosen { key: Key, round: Round },
    /// Every member accepted the tombstone `round`: forget it.
    Remove { key: Key, round: Round },
    /// Commands for the owner of the key.
    Forward { key: Key, forward: Forward },
    /// Answers `Forward`.
    Forwarded { key: Key, sequence: u64, verdict: Verdict },
    /// Asks another acceptor what it knows of a register forgotten here. [spec 8.4]
    Recover { key: Key, id: u64 },
    /// Answers `Recover`.
    Recovered { key: Key, id: u64, promised: Ballot, report: Report },
    /// Asks which registers of a shard exist.
    List { shard: Shard, id: u64, from_hash: u64, limit: u32 },
    /// Answers `List`, with the floors read no earlier than the listing. [corrections B11]
    Listed { shard: Shard, id: u64, listing: Listing },
    /// Compares what is held of a range of hashes, its end excluded; without an end: to the end of the shard.
    Compare { shard: Shard, id: u64, range: (u64, Option<u64>), folds: Box<Folds> },
    /// Answers `Compare` for the range up to `until`: the buckets that differ, and what is held of them.
    Compared { shard: Shard, id: u64, until: Option<u64>, buckets: u16, entries: Vec<Held> },
    /// The sender holds `have` and knows of a higher round here. `insist`: a `Repair` does not help.
    Want { key: Key, have: Round, insist: bool },
    /// To oneself: makes the register resident and does what is due for it.
    Touch { key: Key, due: Due },
}

/// What an acceptor reports of its register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// `Round::NONE`: absent, or nothing but a promise.
    pub accepted: Round,
    /// Left out where the asker said it has the state of this round.
    pub state: Option<State>,
    /// The accepted round is known to be chosen.
    pub chosen: bool,
    pub floor_ballot: Ballot,
    pub floor_version: u64,
    /// The vote on the expiry of the accepted state.
    pub countdown: Countdown,
}

/// Commands on their way to an owner. [corrections F6, F7]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forward {
    /// Only this incarnation of the owner may run them.
    pub target: Incarnation,
    /// Number of this forward at its origin.
    pub sequence: u64,
    /// The origin will never send anything below this again.
    pub acked_below: u64,
    pub commands: Vec<(SessionId, Command)>,
}

/// What became of a forward.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// One outcome per command. `take_over`: the origin sends most of this key's commands and should own it.
    Done { outcomes: Vec<Outcome>, take_over: bool },
    /// Another incarnation was meant: nothing was executed *here*.
    WrongIncarnation,
}

/// One step of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// Where to go on; `None` at the end of the shard.
    pub next_hash: Option<u64>,
    pub floor_ballot: Ballot,
    pub floor_version: u64,
    /// Highest ballot number seen in the shard.
    pub number: u64,
}

/// One register of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub key: Key,
    pub accepted: Round,
    /// It holds a value whose time, as far as this acceptor knows, is not over.
    pub live: bool,
}

/// What is due for a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    Recover,
    Collect,
    Expire,
    Remind,
    /// A member seems to hold only `lower`.
    Deliver {
        to: NodeId,
        lower: Round,
        insist: bool,
    },
}

impl Message {
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Message::Read { key, .. }
            | Message::State { key, .. }
            | Message::Prepare { key, .. }
            | Message::Promise { key, .. }
            | Message::Accept { key, .. }
            | Message::Accepted { key, .. }
            | Message::Nack { key, .. }
            | Message::Repair { key, .. }
            | Message::Remove { key, .. }
            | Message::Chosen { key, .. }
            | Message::Want { key, .. }
            | Message::Forward { key, .. }
            | Message::Forwarded { key, .. }
            | Message::Recover { key, .. }
            | Message::Recovered { key, .. }
            | Message::Touch { key, .. } => Some(key),
            Message::List { .. }
            | Message::Listed { .. }
            | Message::Compare { .. }
            | Message::Compared { .. } => None,
        }
    }
}

impl ProtocolMessage for Message {
    fn touches(&self) -> Touches<'_> {
        match self {
            Message::List { shard, .. }
            | Message::Listed { shard, .. }
            | Message::Compare { shard, .. }
            | Message::Compared { shard, .. } => Touches::Shard(*shard),
            other => other.key().map_or(Touches::Nothing, Touches::Key),
        }
    }

    fn peek_key(bytes: &[u8]) -> Option<Key> {
        match bytes.split_first()? {
            (&(kind::LIST | kind::LISTED | kind::COMPARE | kind::COMPARED), _) => None,
            (_, rest) => Key::decode(&mut Reader::new(rest)).ok(),
        }
    }
}

mod kind {
    pub(super) const READ: u8 = 1;
    pub(super) const STATE: u8 = 2;
    pub(super) const PREPARE: u8 = 3;
    pub(super) const PROMISE: u8 = 4;
    pub(super) const ACCEPT: u8 = 5;
    pub(super) const ACCEPTED: u8 = 6;
    pub(super) const NACK: u8 = 7;
    pub(super) const REPAIR: u8 = 8;
    pub(super) const REMOVE: u8 = 9;
    pub(super) const FORWARD: u8 = 10;
    pub(super) const FORWARDED: u8 = 11;
    pub(super) const RECOVER: u8 = 12;
    pub(super) const RECOVERED: u8 = 13;
    pub(super) const LIST: u8 = 14;
    pub(super) const LISTED: u8 = 15;
    pub(super) const CHOSEN: u8 = 16;
    pub(super) const COMPARE: u8 = 17;
    pub(super) const COMPARED: u8 = 18;
    pub(super) const WANT: u8 = 19;
}

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
            Message::Prepare { key, ballot, have } => {
                head(kind::PREPARE, key);
                ballot.encode(out);
                have.encode(out);
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
            Message::Recovered { key, id, promised, report } => {
                head(kind::RECOVERED, key);
                put_varint(out, *id);
                promised.encode(out);
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
            Message::Compare { shard, id, range, folds } => {
                out.extend_from_slice(&[kind::COMPARE, shard.0]);
                put_varint(out, *id);
                out.extend_from_slice(&range.0.to_le_bytes());
                put_until(out, range.1);
                folds.iter().for_each(|fold| out.extend_from_slice(&fold.to_le_bytes()));
            }
            Message::Compared { shard, id, until, buckets, entries } => {
                out.extend_from_slice(&[kind::COMPARED, shard.0]);
                put_varint(out, *id);
                put_until(out, *until);
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
        let key = Key::decode(reader)?;
        Ok(match kind {
            kind::READ => Message::Read { key, id: reader.varint()?, have: Round::decode(reader)? },
            kind::STATE => {
                Message::State { key, id: reader.varint()?, report: Report::decode(reader)? }
            }
            kind::PREPARE => Message::Prepare {
                key,
                ballot: Ballot::decode(reader)?,
                have: Round::decode(reader)?,
            },
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
            kind::ACCEPTED => Message::Accepted { key, round: Round::decode(reader)? },
            kind::NACK => Message::Nack {
                key,
                tried: Round::decode(reader)?,
                promised: Ballot::decode(reader)?,
                recovering: flag(reader)?,
            },
            kind::REPAIR => {
                Message::Repair { key, round: proposal(reader)?, state: State::decode(reader)? }
            }
            kind::REMOVE => Message::Remove { key, round: proposal(reader)? },
            kind::WANT => {
                Message::Want { key, have: Round::decode(reader)?, insist: flag(reader)? }
            }
            kind::CHOSEN => Message::Chosen { key, round: proposal(reader)? },
            kind::FORWARD => Message::Forward { key, forward: Forward::decode(reader)? },
            kind::FORWARDED => Message::Forwarded {
                key,
                sequence: reader.varint()?,
                verdict: Verdict::decode(reader)?,
            },
            kind::RECOVER => Message::Recover { key, id: reader.varint()? },
            kind::RECOVERED => Message::Recovered {
                key,
                id: reader.varint()?,
                promised: Ballot::decode(reader)?,
                report: Report::decode(reader)?,
            },
            _ => return Err(Malformed),
        })
    }
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
        return Ok(Message::Compared { shard, id, until, buckets, entries });
    }
    let from_hash = reader.u64()?;
    let until = take_until(reader, shard)?;
    if (from_hash >> 56) as u8 != shard.0 || until.is_some_and(|until| until <= from_hash) {
        return Err(Malformed);
    }
    let mut folds = Box::new([0; BUCKETS]);
    for fold in folds.iter_mut() {
        *fold = reader.u64()?;
    }
    Ok(Message::Compare { shard, id, range: (from_hash, until), folds })
}

/// A round that carries a proposal: `k` starts at 1.
fn proposal(reader: &mut Reader<'_>) -> Result<Round, Malformed> {
    let round = Round::decode(reader)?;
    if round.k() == 0 { Err(Malformed) } else { Ok(round) }
}

fn flag(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

const REPORT_HAS_STATE: u8 = 1;
const REPORT_CHOSEN: u8 = 2;
const REPORT_RUNNING: u8 = 4;
const REPORT_OVER: u8 = 8;
const REPORT_FLOORS: u8 = 16;
const REPORT_FLAGS: u8 = 31;

/// Floors matter only where nothing is accepted, and are left out elsewhere.
impl Wire for Report {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = match self.countdown {
            Countdown::None => 0,
            Countdown::Running(_) => REPORT_RUNNING,
            Countdown::Over => REPORT_OVER,
        };
        if self.state.is_some() {
            flags |= REPORT_HAS_STATE;
        }
        if self.chosen {
            flags |= REPORT_CHOSEN;
        }
        if self.accepted.is_none() {
            flags |= REPORT_FLOORS;
        }
        out.push(flags);
        if self.accepted.is_none() {
            self.floor_ballot.encode(out);
            put_varint(out, self.floor_version);
        } else {
            self.accepted.encode(out);
        }
        if let Countdown::Running(rest) = self.countdown {
            put_varint(out, rest.0);
        }
        if let Some(state) = &self.state {
            state.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Report, Malformed> {
        let flags = reader.u8()?;
        if flags & !REPORT_FLAGS != 0 {
            return Err(Malformed);
        }
        let (mut accepted, mut floor_ballot, mut floor_version) = (Round::NONE, Ballot::ZERO, 0);
        if flags & REPORT_FLOORS != 0 {
            floor_ballot = Ballot::decode(reader)?;
            floor_version = reader.varint()?;
        } else {
            accepted = proposal(reader)?;
        }
        let countdown = match flags & (REPORT_RUNNING | REPORT_OVER) {
            0 => Countdown::None,
            REPORT_RUNNING => Countdown::Running(Millis(reader.varint()?)),
            REPORT_OVER => Countdown::Over,
            _ => return Err(Malformed),
        };
        let state = if flags & REPORT_HAS_STATE != 0 { Some(State::decode(reader)?) } else { None };
        if state.is_some() && accepted.is_none() {
            return Err(Malformed);
        }
        let chosen = flags & REPORT_CHOSEN != 0;
        Ok(Report { accepted, state, chosen, floor_ballot, floor_version, countdown })
    }
}

impl Wire for Forward {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.target.0));
        put_varint(out, self.sequence);
        put_varint(out, self.acked_below);
        put_varint(out, self.commands.len() as u64);
        for (session, command) in &self.commands {
            put_varint(out, session.0);
            out.push(command.access as u8);
            put_blob(out, &command.body);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Forward, Malformed> {
        let target = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let sequence = reader.varint()?;
        let acked_below = reader.varint()?;
        let count = reader.varint()? as usize;
        if count > FORWARD_COMMANDS_MAX || Incarnation(target) > Incarnation::MAX {
            return Err(Malformed);
        }
        let mut commands = Vec::with_capacity(count);
        for _ in 0..count {
            let session = SessionId(reader.varint()?);
            let access = match reader.u8()? {
                0 => Access::Read,
                1 => Access::Update,
                2 => Access::Write,
                _ => return Err(Malformed),
            };
            let body = Bytes::decode(reader)?;
            commands.push((session, Command { access, body }));
        }
        Ok(Forward { target: Incarnation(target), sequence, acked_below, commands })
    }
}

impl Wire for Verdict {
    fn encode(&self, out: &mut Vec<u8>) {
        let Verdict::Done { outcomes, take_over } = self else {
            out.push(2);
            return;
        };
        out.push(u8::from(*take_over));
        put_varint(out, outcomes.len() as u64);
        for outcome in outcomes {
            match outcome {
                Outcome::Reply(reply) => {
                    out.push(0);
                    put_blob(out, reply);
                }
                Outcome::NoQuorum => out.push(1),
                Outcome::Unknown => out.push(2),
                Outcome::Loading => out.push(3),
                Outcome::Listed { .. } | Outcome::Unsupported(_) => {
                    unreachable!("a forwarded command is never answered with {outcome:?}")
                }
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Verdict, Malformed> {
        let take_over = match reader.u8()? {
            0 => false,
            1 => true,
            2 => return Ok(Verdict::WrongIncarnation),
            _ => return Err(Malformed),
        };
        let count = reader.varint()? as usize;
        if count > FORWARD_COMMANDS_MAX {
            return Err(Malformed);
        }
        let mut outcomes = Vec::with_capacity(count);
        for _ in 0..count {
            outcomes.push(match reader.u8()? {
                0 => Outcome::Reply(Bytes::decode(reader)?),
                1 => Outcome::NoQuorum,
                2 => Outcome::Unknown,
                3 => Outcome::Loading,
                _ => return Err(Malformed),
            });
        }
        Ok(Verdict::Done { outcomes, take_over })
    }
}

impl Wire for Listing {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.next_hash.is_some()));
        if let Some(next) = self.next_hash {
            out.extend_from_slice(&next.to_le_bytes());
        }
        self.floor_ballot.encode(out);
        put_varint(out, self.floor_version);
        put_varint(out, self.number);
        put_varint(out, self.entries.len() as u64);
        for entry in &self.entries {
            entry.key.encode(out);
            entry.accepted.encode(out);
            out.push(u8::from(entry.live));
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Listing, Malformed> {
        let next_hash = if flag(reader)? { Some(reader.u64()?) } else { None };
        let floor_ballot = Ballot::decode(reader)?;
        let floor_version = reader.varint()?;
        let number = reader.varint()?;
        if number > Ballot::NUMBER_MAX {
            return Err(Malformed);
        }
        let count = reader.varint()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(Entry {
                key: Key::decode(reader)?,
                accepted: Round::decode(reader)?,
                live: flag(reader)?,
            });
        }
        Ok(Listing { entries, next_hash, floor_ballot, floor_version, number })
    }
}
