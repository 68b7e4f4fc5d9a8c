//! Parts of messages besides rounds and states, and their bytes.

use std::sync::Arc;

use base::Millis;
use bytes::Bytes;
use types::wire::{put_blob, put_varint};
use types::{
    Access, Ballot, Command, Incarnation, Key, Lock, Malformed, Outcome, Reader, Reply, Round,
    SessionId, Wire,
};

use super::delta::Delta;
use crate::rmwpaxos::record::fences::Fences;
use crate::rmwpaxos::record::register::{Countdown, Register};
use crate::rmwpaxos::record::state::State;

/// Commands of one forward.
pub const FORWARD_COMMANDS_MAX: usize = 256;
/// Keys of one listing step.
pub const LISTING_KEYS_MAX: usize = 4096;
/// Parts of a range that are compared on their own.
pub const BUCKETS: usize = 16;

/// An acceptor's report of its register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// `Round::NONE`: absent, or a promise alone.
    pub accepted: Round,
    /// Left out where the asker said it has the state of this round.
    pub state: Option<State>,
    /// The accepted round is known to be chosen.
    pub chosen: bool,
    pub floor_ballot: Ballot,
    pub floor_version: u64,
    /// The vote on the expiry of the accepted state.
    pub countdown: Countdown,
    /// The vote on the windows of the commands that the accepted state remembers, by their places
    /// in its table.
    pub windows_over: u64,
    /// The register is absent here, and the one that the asker holds must have been removed.
    pub denies: bool,
    /// Members, by their places, that durably held the accepted round.
    pub witnessed: u16,
}

/// The state that a round names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    Whole(State),
    Delta(Arc<Delta>),
}

impl Payload {
    pub(crate) fn resolve(self, register: Option<&Register>) -> Option<State> {
        match self {
            Payload::Whole(state) => Some(state),
            Payload::Delta(delta) => delta.resolve(register),
        }
    }
}

/// A register as a comparison sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    pub key: Key,
    /// Never `Round::NONE`: a promise alone is not compared.
    pub accepted: Round,
    pub is_tombstone: bool,
}

/// Sums of hashes, one per bucket.
pub type Digests = [u64; BUCKETS];

/// Commands forwarded to an owner. [corrections F6, F7]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forward {
    /// Only this incarnation of the owner may run them.
    pub target: Incarnation,
    /// Number of this forward at its origin.
    pub sequence: u64,
    /// The origin never sends a forward below this again.
    pub acked_below: u64,
    pub commands: Vec<(SessionId, Command)>,
}

/// The result of a forward.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// One outcome per command. `take_over`: the origin sends most of this key's commands and
    /// should own it.
    Done { outcomes: Vec<Outcome>, take_over: bool },
    /// The forward named another incarnation. No command was executed *here*.
    WrongIncarnation,
}

/// One step of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    pub entries: Vec<ListingEntry>,
    /// The position of the next step; `None` at the end of the shard.
    pub next_hash: Option<u64>,
    pub floor_ballot: Ballot,
    pub floor_version: u64,
    pub fences: Fences,
    /// Highest ballot number seen in the shard.
    pub number: u64,
}

/// One register of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListingEntry {
    pub key: Key,
    pub accepted: Round,
    /// The register holds a value whose time is not over by this acceptor's count. Without a round:
    /// it may hold one, because its state was lost.
    pub live: bool,
    /// Length of its state.
    pub state_len: u32,
}

/// A round that carries a proposal: `k` starts at 1.
pub(crate) fn proposal(reader: &mut Reader<'_>) -> Result<Round, Malformed> {
    let round = Round::decode(reader)?;
    if round.k() == 0 { Err(Malformed) } else { Ok(round) }
}

pub(crate) fn flag(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
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
const REPORT_WINDOWS: u8 = 32;
const REPORT_DENIES: u8 = 64;
const REPORT_WITNESSED: u8 = 128;

/// Floors matter only in reports of absent registers, and are left out elsewhere.
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
        if self.windows_over != 0 {
            flags |= REPORT_WINDOWS;
        }
        if self.denies {
            flags |= REPORT_DENIES;
        }
        if self.witnessed != 0 {
            flags |= REPORT_WITNESSED;
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
        if self.windows_over != 0 {
            put_varint(out, self.windows_over);
        }
        if self.witnessed != 0 {
            put_varint(out, u64::from(self.witnessed));
        }
        if let Some(state) = &self.state {
            state.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Report, Malformed> {
        let flags = reader.u8()?;
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
        let windows_over = if flags & REPORT_WINDOWS != 0 { reader.varint()? } else { 0 };
        let witnessed = if flags & REPORT_WITNESSED != 0 { reader.varint()? } else { 0 };
        let witnessed = u16::try_from(witnessed).map_err(|_| Malformed)?;
        let state = if flags & REPORT_HAS_STATE != 0 { Some(State::decode(reader)?) } else { None };
        if state.is_some() && accepted.is_none() {
            return Err(Malformed);
        }
        let (chosen, denies) = (flags & REPORT_CHOSEN != 0, flags & REPORT_DENIES != 0);
        if denies && !accepted.is_none() {
            return Err(Malformed);
        }
        Ok(Report {
            accepted,
            state,
            chosen,
            floor_ballot,
            floor_version,
            countdown,
            windows_over,
            denies,
            witnessed,
        })
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
            assert!(!command.stays(), "this command is never forwarded: {command:?}");
            command.access.encode(out);
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
            let access = Access::decode(reader)?;
            commands.push((session, Command::new(access, Bytes::decode(reader)?)));
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
                    reply.encode(out);
                }
                Outcome::NoQuorum => out.push(1),
                Outcome::Unknown => out.push(2),
                Outcome::Loading => out.push(3),
                Outcome::Locked(locked) => {
                    out.push(4);
                    locked.lock.encode(out);
                }
                Outcome::AlreadyDone
                | Outcome::Held(_)
                | Outcome::Refused(_)
                | Outcome::Listed { .. }
                | Outcome::Explained(_)
                | Outcome::Unsupported(_)
                | Outcome::NoTransactions(_)
                | Outcome::NoRetries(_)
                | Outcome::NoUncommittedReads(_) => {
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
                0 => Outcome::Reply(Reply::decode(reader)?),
                1 => Outcome::NoQuorum,
                2 => Outcome::Unknown,
                3 => Outcome::Loading,
                4 => Outcome::not_run(Lock::decode(reader)?),
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
        self.fences.encode(out);
        put_varint(out, self.number);
        put_varint(out, self.entries.len() as u64);
        for entry in &self.entries {
            entry.key.encode(out);
            entry.accepted.encode(out);
            out.push(u8::from(entry.live));
            put_varint(out, u64::from(entry.state_len));
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Listing, Malformed> {
        let next_hash = if flag(reader)? { Some(reader.u64()?) } else { None };
        let floor_ballot = Ballot::decode(reader)?;
        let floor_version = reader.varint()?;
        let fences = Fences::decode(reader)?;
        let number = reader.varint()?;
        if number > Ballot::NUMBER_MAX {
            return Err(Malformed);
        }
        let count = reader.varint()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(ListingEntry {
                key: Key::decode(reader)?,
                accepted: Round::decode(reader)?,
                live: flag(reader)?,
                state_len: u32::try_from(reader.varint()?).map_err(|_| Malformed)?,
            });
        }
        Ok(Listing { entries, next_hash, floor_ballot, floor_version, fences, number })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn commands() -> impl Strategy<Value = Command> {
        let access = vec![
            Access::Read,
            Access::OrderedRead,
            Access::UncommittedRead,
            Access::Update,
            Access::Write,
            Access::Delete,
        ];
        let access = proptest::sample::select(access);
        let bytes = |len| proptest::collection::vec(any::<u8>(), len).prop_map(Bytes::from);
        (access, bytes(0..=40)).prop_map(|(access, body)| Command::new(access, body))
    }

    proptest! {
        #[test]
        fn forwarded_commands_come_back(
            commands in proptest::collection::vec((any::<u64>().prop_map(SessionId), commands()), 0..5),
            at in any::<prop::sample::Index>(),
        ) {
            let target = Incarnation(7);
            let forward = Forward { target, sequence: 8, acked_below: 3, commands };
            let bytes = forward.to_bytes();
            prop_assert_eq!(Forward::from_bytes(&bytes), Ok(forward));
            prop_assert_eq!(Forward::from_bytes(&bytes[..at.index(bytes.len())]), Err(Malformed));
        }
    }

    #[test]
    fn a_vote_on_windows_comes_back() {
        for windows_over in [0, 1, u64::MAX] {
            let report = Report {
                accepted: Round::NONE,
                state: None,
                chosen: true,
                floor_ballot: Ballot::ZERO,
                floor_version: 3,
                countdown: Countdown::Running(Millis(5)),
                windows_over,
                denies: windows_over == 0,
                witnessed: windows_over as u16 & 7,
            };
            assert_eq!(Report::from_bytes(&report.to_bytes()), Ok(report));
        }
    }
}
