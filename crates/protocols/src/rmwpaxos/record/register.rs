//! The stored state of one key and of one shard at an acceptor.

use base::{Millis, Nanos};
use types::wire::put_varint;
use types::{AmnesiaCount, Ballot, Epoch, Malformed, NodeId, Reader, Round, Wire};

use crate::rmwpaxos::once::starts::Starts;
use crate::rmwpaxos::record::fences::Fences;
use crate::rmwpaxos::record::state::{ExpiryId, State};
pub use crate::toolkit::countdown::{Countdown, Started};
use crate::uptime::Uptime;

/// One key at one acceptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register {
    /// `accepted.ballot() <= promised`. Its bytes may lag behind memory: a shard's ceiling covers
    /// the rest.
    pub promised: Ballot,
    /// `Round::NONE`: a promise alone.
    pub accepted: Round,
    /// Present iff a round was accepted.
    pub state: Option<State>,
    /// Uptime when the first state with this expiry id was accepted here. `None`: no countdown
    /// runs.
    pub countdown: Option<Started>,
    /// The same for the commands that the state remembers. Present iff it remembers any.
    pub once_starts: Option<Box<Starts>>,

    /// The accepted round is known to be chosen. Lost in a crash.
    pub chosen: bool,
    /// This process won phase 1 at `accepted.ballot()`, its last proposal was `accepted`, and that
    /// is chosen: it may go on with the next `k`. Lost in a crash, which also ends the incarnation
    /// that minted the ballot.
    pub owned: bool,
    /// When another node's proposal was last accepted. A hint for forwarding.
    pub foreign_at: Nanos,
    /// How many such proposals came in a row, in quick succession. A hint for forwarding.
    pub foreign_run: u8,
    /// The node that forwarded commands last, and how often in a row. A hint for handing ownership
    /// over.
    pub forwards: (NodeId, u16),
}

/// Every idle key costs one.
const _: () = assert!(size_of::<Register>() <= 72);

impl Register {
    /// A register with a promise and no accepted state.
    #[must_use]
    pub fn promise_only(promised: Ballot) -> Register {
        Register {
            promised,
            accepted: Round::NONE,
            state: None,
            countdown: None,
            once_starts: None,
            chosen: false,
            owned: false,
            foreign_at: Nanos::ZERO,
            foreign_run: 0,
            forwards: (NodeId(0), 0),
        }
    }

    /// The register without the fields that its bytes omit. It copies fields instead of encoding,
    /// because listings copy registers by the thousand.
    #[must_use]
    pub fn stored(&self) -> Register {
        let kept = Register::promise_only(self.promised);
        let countdown = self.countdown;
        match &self.state {
            None => Register { countdown, ..kept },
            Some(state) => Register {
                accepted: self.accepted,
                state: Some(state.clone()),
                countdown,
                once_starts: self.once_starts.clone(),
                ..kept
            },
        }
    }

    #[must_use]
    pub fn expiry_id(&self) -> Option<ExpiryId> {
        self.state.as_ref().and_then(|state| state.expiry_id())
    }

    /// The state, and when the entries of its table were accepted first.
    pub(crate) fn starts(&self) -> (Option<&State>, Option<&Starts>) {
        (self.state.as_ref(), self.once_starts.as_deref())
    }

    /// This acceptor's vote: the entries whose windows are over, by their places in the table.
    #[must_use]
    pub fn windows_over(&self, uptime: &dyn Uptime) -> u64 {
        match (&self.once_starts, self.state.as_ref().and_then(State::once)) {
            (Some(starts), Some(table)) => starts.over(table, uptime),
            _ => 0,
        }
    }

    /// True if an age of it is counted in uptime.
    #[must_use]
    pub fn has_ages(&self) -> bool {
        self.countdown.is_some() || self.once_starts.is_some()
    }

    /// This acceptor's vote on the expiry of its state. [corrections F10]
    #[must_use]
    pub fn countdown(&self, uptime: &dyn Uptime, unix: Millis) -> Countdown {
        let Some(expiry) = self.state.as_ref().and_then(State::expiry) else {
            return Countdown::None;
        };
        Countdown::of(expiry.ttl, self.countdown, uptime, unix)
    }
}

const HAS_STATE: u8 = 1;
const HAS_PROMISE: u8 = 2;
const HAS_COUNTDOWN: u8 = 4;
const FLAGS: u8 = HAS_STATE | HAS_PROMISE | HAS_COUNTDOWN;

/// `flags u8 · [accepted 16] · [promised 12] · [countdown] · [state] · [start]*`; a promise equal
/// to the accepted ballot is left out.
impl Wire for Register {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        if self.state.is_some() {
            flags |= HAS_STATE;
        }
        if self.promised != self.accepted.ballot() {
            flags |= HAS_PROMISE;
        }
        if self.countdown.is_some() {
            flags |= HAS_COUNTDOWN;
        }
        out.push(flags);
        if self.state.is_some() {
            self.accepted.encode(out);
        }
        if flags & HAS_PROMISE != 0 {
            self.promised.encode(out);
        }
        if let Some(started) = self.countdown {
            put_varint(out, started.uptime().0);
        }
        if let Some(state) = &self.state {
            state.encode(out);
        }
        if let Some(starts) = &self.once_starts {
            starts.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Register, Malformed> {
        let flags = reader.u8()?;
        if flags & !FLAGS != 0 {
            return Err(Malformed);
        }
        let accepted = if flags & HAS_STATE != 0 { Round::decode(reader)? } else { Round::NONE };
        let promised =
            if flags & HAS_PROMISE != 0 { Ballot::decode(reader)? } else { accepted.ballot() };
        let has_countdown = flags & HAS_COUNTDOWN != 0;
        let countdown =
            if has_countdown { Some(Started::at(Millis(reader.varint()?))) } else { None };
        let state = if flags & HAS_STATE != 0 { Some(State::decode(reader)?) } else { None };
        let once_starts = match &state {
            Some(state) => Starts::decode(state, reader)?,
            None => None,
        };
        if promised < accepted.ballot() || (state.is_some() && accepted.is_none()) {
            return Err(Malformed);
        }
        Ok(Register { accepted, state, countdown, once_starts, ..Register::promise_only(promised) })
    }
}

/// The stored state of a shard at an acceptor. It bounds the registers that it does not hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShardMeta {
    /// An absent register has promised this much. Never decreases.
    pub floor_ballot: Ballot,
    /// An absent register had at most this version. Never decreases.
    pub floor_version: u64,
    /// Incarnations that are shut out of transactions. Told with the floors.
    pub fences: Fences,
    /// No promise above this number was given before this was durable. [spec 9.8]
    pub ceiling: u64,
    /// These fields were lost. Until they are recovered no register of the shard takes part,
    /// because promises above the stored registers may be lost too.
    pub void: bool,
    /// With `void`: the registers that are stored are not believed either, for they may be older
    /// than they were.
    pub disbelieved: bool,
    /// The amnesia count at the shard's last amnesia. It makes claims about earlier states
    /// meaningless.
    pub lost_at: AmnesiaCount,

    /// After a restart: every promise that could have been given before it.
    pub restart_floor: Ballot,
    /// Highest ballot number seen or minted by this process. All minting counts on from here. [spec
    /// 0.2, U2]
    pub number: u64,
    /// How far the ceiling is raised next time; doubles under load. [corrections F13]
    pub ceiling_step: u64,
}

impl ShardMeta {
    /// Treats the loaded fields as written by an earlier process.
    pub fn restarted(&mut self, epoch: Epoch) {
        self.restart_floor =
            if self.ceiling == 0 { Ballot::ZERO } else { Ballot::ceiling(epoch, self.ceiling) };
        self.number = self.number.max(self.ceiling).max(self.floor_ballot.number());
    }

    pub fn saw(&mut self, ballot: Ballot) {
        self.number = self.number.max(ballot.number());
    }
}

impl Wire for ShardMeta {
    fn encode(&self, out: &mut Vec<u8>) {
        self.floor_ballot.encode(out);
        put_varint(out, self.floor_version);
        put_varint(out, self.ceiling);
        out.push(u8::from(self.void) << u8::from(self.disbelieved));
        self.fences.encode(out);
        if self.lost_at > AmnesiaCount(0) {
            put_varint(out, u64::from(self.lost_at.0));
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<ShardMeta, Malformed> {
        let floor_ballot = Ballot::decode(reader)?;
        let floor_version = reader.varint()?;
        let ceiling = reader.varint()?;
        let (void, disbelieved) = match reader.u8()? {
            0 => (false, false),
            1 => (true, false),
            2 => (true, true),
            _ => return Err(Malformed),
        };
        if ceiling > Ballot::NUMBER_MAX {
            return Err(Malformed);
        }
        let fences = Fences::decode(reader)?;
        let lost_at = if reader.is_empty() { AmnesiaCount(0) } else { lost_at(reader)? };
        let fields = ShardMeta { floor_ballot, floor_version, ceiling, ..ShardMeta::default() };
        Ok(ShardMeta { void, disbelieved, lost_at, fences, ..fields })
    }
}

/// Left out unless the shard had an amnesia.
fn lost_at(reader: &mut Reader<'_>) -> Result<AmnesiaCount, Malformed> {
    match u32::try_from(reader.varint()?) {
        Ok(amnesia @ 1..) => Ok(AmnesiaCount(amnesia)),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use types::Incarnation;
    use types::limits::{KEY_LEN_MAX, RECORD_LEN_MAX};

    use types::TimeToLive;

    use super::*;
    use crate::rmwpaxos::message::delta::Delta;
    use crate::rmwpaxos::once::table;
    use crate::rmwpaxos::record::state::{Expiry, Ring, StateFields};

    fn ballot(number: u64) -> Ballot {
        Ballot::new(Epoch(1), number, NodeId(2), Incarnation(3))
    }

    fn expiring(ttl: TimeToLive) -> Register {
        let id = ExpiryId { version: 1, birth: ballot(1) };
        let state = State::new(&StateFields {
            version: 1,
            mod_version: 1,
            ring: Ring::default(),
            expiry: Some(Expiry { id, ttl, ends: ttl.ends(Millis(700)).expect("it expires") }),
            once: None,
            lock: None,
            value: Some(b"v"),
        });
        Register {
            accepted: ballot(1).round(1),
            state: Some(state),
            countdown: Some(Started::at(Millis(100))),
            ..Register::promise_only(ballot(5))
        }
    }

    #[test]
    fn durable_fields_round_trip_and_volatile_do_not() {
        let mut register = expiring(TimeToLive::After(Millis(9)));
        let clean = register.clone();
        register.chosen = true;
        register.owned = true;
        register.foreign_at = Nanos(7);
        assert_eq!(register.stored(), clean);
        assert_eq!(Register::from_bytes(&register.to_bytes()), Ok(clean));
        let empty = Register::promise_only(ballot(4));
        assert_eq!(empty.stored(), empty);
        assert_eq!(Register::from_bytes(&empty.to_bytes()), Ok(empty));
    }

    #[test]
    fn countdown_runs_in_uptime_and_never_ends_early() {
        let register = expiring(TimeToLive::After(Millis(50)));
        let later = |uptime| register.countdown(&Millis(uptime), Millis(u64::MAX));
        assert_eq!(later(100), Countdown::Running(Millis(50)));
        assert_eq!(later(150), Countdown::Running(Millis(1)));
        assert_eq!(later(151), Countdown::Over);
        assert_eq!(later(20), Countdown::Running(Millis(50)), "uptime fell behind");
    }

    /// A value as long as any, under a table as long as any, with numbers as long as any.
    #[test]
    fn largest_register_fits_a_record() {
        let most = |number| {
            let ballot = Ballot::ceiling(Epoch::MAX, Ballot::NUMBER_MAX - number);
            (ballot, ExpiryId { version: u64::MAX, birth: ballot })
        };
        let mut ring = Ring::default();
        (0..9).for_each(|number| ring.push(most(number).0));
        let table = table::tests::largest();
        let value = vec![7; 16 << 20];
        let state = |version| {
            State::new(&StateFields {
                version,
                mod_version: 0,
                ring,
                expiry: Some(Expiry {
                    id: most(0).1,
                    ttl: TimeToLive::After(Millis(u64::MAX)),
                    ends: Millis(u64::MAX),
                }),
                once: Some(&table),
                lock: None,
                value: Some(&value),
            })
        };
        let (base, next) = (state(u64::MAX - 1), state(u64::MAX));
        let (ballot, _) = most(1);
        let accepted = ballot.round(1);
        let register = Register {
            accepted,
            once_starts: Starts::anew(&next, &Millis(u64::MAX)),
            state: Some(next.clone()),
            countdown: Some(Started::at(Millis(u64::MAX - 1))),
            ..Register::promise_only(most(0).0)
        };
        let bytes = register.to_bytes();
        assert!(bytes.len() <= RECORD_LEN_MAX - KEY_LEN_MAX, "{} bytes", bytes.len());
        assert_eq!(Register::from_bytes(&bytes), Ok(register));
        let delta = Delta::between((accepted, &base), &next).expect("both have values");
        assert_eq!(Delta::from_bytes(&delta.to_bytes()), Ok(delta.clone()));
        assert_eq!(delta.apply(&base), Some(next));
    }

    #[test]
    fn fields_of_a_shard_come_back() {
        for void in [false, true] {
            let mut old = ballot(7).to_bytes();
            put_varint(&mut old, 300);
            put_varint(&mut old, 512);
            old.extend([u8::from(void), 0]);
            let floor_ballot = ballot(7);
            let fields =
                ShardMeta { floor_ballot, floor_version: 300, ceiling: 512, ..Default::default() };
            let fields = ShardMeta { void, ..fields };
            assert_eq!(ShardMeta::from_bytes(&old), Ok(fields.clone()));
            assert_eq!(fields.to_bytes(), old);
            let mut fences = Fences::default();
            fences.raise(NodeId(3), Incarnation(7));
            let lost =
                ShardMeta { void, disbelieved: void, lost_at: AmnesiaCount(200), fences, ..fields };
            assert_eq!(ShardMeta::from_bytes(&lost.to_bytes()), Ok(lost));
        }
    }

    #[test]
    fn a_deadline_goes_by_the_wall_clock() {
        let register = expiring(TimeToLive::At { unix: Millis(1_000) });
        assert_eq!(
            register.countdown(&Millis(u64::MAX), Millis(999)),
            Countdown::Running(Millis(1))
        );
        assert_eq!(register.countdown(&Millis(0), Millis(1_000)), Countdown::Over);
    }
}
