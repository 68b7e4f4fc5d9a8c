//! Summaries that nodes send each other every second, for people to read.
//!
//! No protocol depends on it: a summary may be late, lost or of another version. Fields carry a tag
//! and a length, so that a reader skips those that it does not know.

use std::collections::BTreeMap;

use base::{Millis, Nanos};
use types::NodeId;
use types::limits::MEMBERS_MAX;
use types::wire::{Malformed, Reader, Wire, put_blob, put_varint};

/// Bytes of one field.
const FIELD_LEN_MAX: usize = 1 << 10;
/// Fields of one summary, with room for those of later versions.
const FIELDS_MAX: u64 = 64;

/// The summary that a node publishes about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Version of the program.
    pub version: String,
    /// `HOST:PORT` that clients are told to connect to.
    pub advertise: String,
    /// `HOST:PORT` of its admin pages; empty without any.
    pub admin: String,
    /// `HOST:PORT` for clients of Redis Sentinel; empty if it does not answer them.
    pub sentinel: String,
    pub state: NodeState,
    /// Why writes are refused; empty while they are taken.
    pub writes_refused: String,
    /// Lines about this node that an operator should read.
    pub remarks: Vec<String>,
    /// Shards and keys whose state is forgotten and not recovered yet.
    pub recovery_left: u64,
    /// Since the process started.
    pub up: Millis,
    pub clients: u64,
    /// Over the last second.
    pub commands_per_second: u64,
    pub keys: Option<u64>,
    /// Bytes of keys and values.
    pub bytes: Option<u64>,
    /// Of the file system with the data directory.
    pub disk_free: Option<u64>,
    pub disk_total: Option<u64>,
    /// Resident memory of the process.
    pub memory: Option<u64>,
    /// Of the staging rings, over all disk stores.
    pub ring_bytes: u64,
    pub ring_used: u64,
    /// Command latency over the last ten seconds.
    pub latency_p50: Option<Nanos>,
    pub latency_p99: Option<Nanos>,
    /// To each peer whose answers this node has.
    pub round_trips: BTreeMap<NodeId, Nanos>,
}

/// The state of a node as an operator sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeState {
    /// It waits for the others to form a cluster.
    #[default]
    Forming,
    /// It lost its memory and waits until the others have noted that.
    Joining,
    /// It opens its stores.
    Loading,
    /// It asks the others for state that it forgot.
    Recovering,
    /// It reaches too few members to serve.
    NoQuorum,
    Ready,
    Stopping,
}

impl NodeState {
    const ALL: [NodeState; 7] = [
        NodeState::Forming,
        NodeState::Joining,
        NodeState::Loading,
        NodeState::Recovering,
        NodeState::NoQuorum,
        NodeState::Ready,
        NodeState::Stopping,
    ];

    /// As `status` and the API show it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            NodeState::Forming => "forming",
            NodeState::Joining => "joining",
            NodeState::Loading => "loading",
            NodeState::Recovering => "recovering",
            NodeState::NoQuorum => "no quorum",
            NodeState::Ready => "ready",
            NodeState::Stopping => "stopping",
        }
    }
}

/// Tags of fields. A tag keeps its meaning for ever.
mod tag {
    pub(super) const VERSION: u8 = 1;
    pub(super) const ADVERTISE: u8 = 2;
    pub(super) const ADMIN: u8 = 3;
    pub(super) const STATE: u8 = 4;
    pub(super) const WRITES_REFUSED: u8 = 5;
    pub(super) const RECOVERY_LEFT: u8 = 6;
    pub(super) const UP: u8 = 7;
    pub(super) const CLIENTS: u8 = 8;
    pub(super) const COMMANDS_PER_SECOND: u8 = 9;
    pub(super) const KEYS: u8 = 10;
    pub(super) const BYTES: u8 = 11;
    pub(super) const DISK_FREE: u8 = 12;
    pub(super) const DISK_TOTAL: u8 = 13;
    pub(super) const MEMORY: u8 = 14;
    pub(super) const RING_BYTES: u8 = 15;
    pub(super) const RING_USED: u8 = 16;
    pub(super) const LATENCY_P50: u8 = 17;
    pub(super) const LATENCY_P99: u8 = 18;
    pub(super) const ROUND_TRIPS: u8 = 19;
    pub(super) const REMARKS: u8 = 20;
    pub(super) const SENTINEL: u8 = 21;
}

/// Collects fields; a text beyond its limit is cut.
#[derive(Default)]
struct Fields {
    count: u64,
    bytes: Vec<u8>,
}

impl Fields {
    fn put(&mut self, tag: u8, value: &[u8]) {
        self.count += 1;
        self.bytes.push(tag);
        put_blob(&mut self.bytes, &value[..value.len().min(FIELD_LEN_MAX)]);
    }

    fn text(&mut self, tag: u8, text: &str) {
        let mut end = text.len().min(FIELD_LEN_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.put(tag, &text.as_bytes()[..end]);
    }

    fn number(&mut self, tag: u8, number: u64) {
        self.put(tag, &number.to_le_bytes());
    }

    fn optional(&mut self, tag: u8, number: Option<u64>) {
        if let Some(number) = number {
            self.number(tag, number);
        }
    }
}

impl Wire for Summary {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::default();
        fields.text(tag::VERSION, &self.version);
        fields.text(tag::ADVERTISE, &self.advertise);
        fields.text(tag::ADMIN, &self.admin);
        fields.text(tag::SENTINEL, &self.sentinel);
        let state =
            NodeState::ALL.iter().position(|state| *state == self.state).unwrap_or_default();
        fields.number(tag::STATE, state as u64);
        fields.text(tag::WRITES_REFUSED, &self.writes_refused);
        fields.text(tag::REMARKS, &self.remarks.join("\n"));
        fields.number(tag::RECOVERY_LEFT, self.recovery_left);
        fields.number(tag::UP, self.up.0);
        fields.number(tag::CLIENTS, self.clients);
        fields.number(tag::COMMANDS_PER_SECOND, self.commands_per_second);
        fields.optional(tag::KEYS, self.keys);
        fields.optional(tag::BYTES, self.bytes);
        fields.optional(tag::DISK_FREE, self.disk_free);
        fields.optional(tag::DISK_TOTAL, self.disk_total);
        fields.optional(tag::MEMORY, self.memory);
        fields.number(tag::RING_BYTES, self.ring_bytes);
        fields.number(tag::RING_USED, self.ring_used);
        fields.optional(tag::LATENCY_P50, self.latency_p50.map(|time| time.0));
        fields.optional(tag::LATENCY_P99, self.latency_p99.map(|time| time.0));
        let mut trips = Vec::new();
        for (node, time) in self.round_trips.iter().take(MEMBERS_MAX) {
            trips.extend_from_slice(&node.0.to_le_bytes());
            trips.extend_from_slice(&time.0.to_le_bytes());
        }
        fields.put(tag::ROUND_TRIPS, &trips);
        put_varint(out, fields.count);
        out.extend_from_slice(&fields.bytes);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Summary, Malformed> {
        let count = reader.varint()?;
        if count > FIELDS_MAX {
            return Err(Malformed);
        }
        let mut summary = Summary::default();
        for _ in 0..count {
            let tag = reader.u8()?;
            summary.take(tag, reader.blob(FIELD_LEN_MAX)?)?;
        }
        Ok(summary)
    }
}

impl Summary {
    fn take(&mut self, tag: u8, value: &[u8]) -> Result<(), Malformed> {
        let text = || std::str::from_utf8(value).map(str::to_owned).map_err(|_| Malformed);
        let number = || value.try_into().map(u64::from_le_bytes).map_err(|_| Malformed);
        match tag {
            tag::VERSION => self.version = text()?,
            tag::ADVERTISE => self.advertise = text()?,
            tag::ADMIN => self.admin = text()?,
            tag::SENTINEL => self.sentinel = text()?,
            tag::STATE => {
                let code = usize::try_from(number()?).unwrap_or(usize::MAX);
                // A later version may have more of them.
                self.state = NodeState::ALL.get(code).copied().unwrap_or_default();
            }
            tag::WRITES_REFUSED => self.writes_refused = text()?,
            tag::REMARKS => self.remarks = text()?.lines().map(str::to_owned).collect(),
            tag::RECOVERY_LEFT => self.recovery_left = number()?,
            tag::UP => self.up = Millis(number()?),
            tag::CLIENTS => self.clients = number()?,
            tag::COMMANDS_PER_SECOND => self.commands_per_second = number()?,
            tag::KEYS => self.keys = Some(number()?),
            tag::BYTES => self.bytes = Some(number()?),
            tag::DISK_FREE => self.disk_free = Some(number()?),
            tag::DISK_TOTAL => self.disk_total = Some(number()?),
            tag::MEMORY => self.memory = Some(number()?),
            tag::RING_BYTES => self.ring_bytes = number()?,
            tag::RING_USED => self.ring_used = number()?,
            tag::LATENCY_P50 => self.latency_p50 = Some(Nanos(number()?)),
            tag::LATENCY_P99 => self.latency_p99 = Some(Nanos(number()?)),
            tag::ROUND_TRIPS => self.round_trips = round_trips(value)?,
            _ => {}
        }
        Ok(())
    }
}

fn round_trips(value: &[u8]) -> Result<BTreeMap<NodeId, Nanos>, Malformed> {
    let mut reader = Reader::new(value);
    let mut trips = BTreeMap::new();
    while !reader.is_empty() {
        trips.insert(NodeId(reader.u16()?), Nanos(reader.u64()?));
    }
    Ok(trips)
}

/// A summary on the wire, with the sender's clock, and the receiver's as it was heard last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryReport {
    /// When it was sent, by the sender's clock.
    pub sent: Nanos,
    pub echo: Option<Echo>,
    pub summary: Summary,
}

/// The report that the sender heard last from the receiver: it tells the receiver how long a round
/// trip takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// As that report had it.
    pub sent: Nanos,
    /// How long ago it was heard.
    pub held: Nanos,
}

impl Echo {
    /// Time on the way, there and back, for an echo that is heard at `now`.
    #[must_use]
    pub fn round_trip(self, now: Nanos) -> Option<Nanos> {
        Some(Nanos(now.0.checked_sub(self.sent.0)?.checked_sub(self.held.0)?))
    }
}

impl Wire for SummaryReport {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sent.0.to_le_bytes());
        let echo = self.echo.unwrap_or(Echo { sent: Nanos(0), held: Nanos(0) });
        out.push(u8::from(self.echo.is_some()));
        out.extend_from_slice(&echo.sent.0.to_le_bytes());
        out.extend_from_slice(&echo.held.0.to_le_bytes());
        self.summary.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<SummaryReport, Malformed> {
        let sent = Nanos(reader.u64()?);
        let has_echo = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed),
        };
        let echo = Echo { sent: Nanos(reader.u64()?), held: Nanos(reader.u64()?) };
        let summary = Summary::decode(reader)?;
        Ok(SummaryReport { sent, echo: has_echo.then_some(echo), summary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Summary {
        Summary {
            version: "0.1.0".into(),
            advertise: "store.example:6379".into(),
            admin: "store.example:7379".into(),
            sentinel: "store.example:26379".into(),
            state: NodeState::Recovering,
            writes_refused: "disk full".into(),
            remarks: vec!["one line".into(), "another".into()],
            recovery_left: 7,
            up: Millis(86_400_000),
            clients: 3,
            commands_per_second: 1_000,
            keys: Some(10),
            bytes: Some(0),
            disk_free: Some(1 << 40),
            disk_total: Some(u64::MAX),
            memory: None,
            ring_bytes: 64 << 20,
            ring_used: 1,
            latency_p50: Some(Nanos(1)),
            latency_p99: None,
            round_trips: [(NodeId(2), Nanos(1_000)), (NodeId(65_535), Nanos(0))].into(),
        }
    }

    #[test]
    fn summaries_survive_the_wire() {
        for summary in [Summary::default(), full()] {
            assert_eq!(Summary::from_bytes(&summary.to_bytes()), Ok(summary));
        }
        for echo in [None, Some(Echo { sent: Nanos(5), held: Nanos(6) })] {
            let report = SummaryReport { sent: Nanos(4), echo, summary: full() };
            assert_eq!(SummaryReport::from_bytes(&report.to_bytes()), Ok(report));
        }
    }

    #[test]
    fn every_state_survives_the_wire() {
        for state in NodeState::ALL {
            let summary = Summary { state, ..Summary::default() };
            assert_eq!(Summary::from_bytes(&summary.to_bytes()), Ok(summary));
        }
    }

    #[test]
    fn cut_summaries_are_malformed() {
        let bytes = full().to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(Summary::from_bytes(&bytes[..len]), Err(Malformed), "{len} bytes");
        }
    }

    #[test]
    fn fields_of_later_versions_are_skipped() {
        let mut bytes = vec![2, 200, 3, 1, 2, 3];
        bytes.extend([tag::VERSION, 3, b'9', b'.', b'0']);
        let expected = Summary { version: "9.0".into(), ..Summary::default() };
        assert_eq!(Summary::from_bytes(&bytes), Ok(expected));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let summary = Summary { admin: "é".repeat(FIELD_LEN_MAX), ..Summary::default() };
        let read = Summary::from_bytes(&summary.to_bytes()).expect("it is well-formed");
        assert_eq!(read.admin, "é".repeat(FIELD_LEN_MAX / 2));
    }

    #[test]
    fn round_trips_leave_out_the_time_that_the_peer_held_a_report() {
        let echo = Echo { sent: Nanos(100), held: Nanos(50) };
        assert_eq!(echo.round_trip(Nanos(170)), Some(Nanos(20)));
        assert_eq!(echo.round_trip(Nanos(120)), None, "clocks do not run at one pace");
        let absurd = Echo { sent: Nanos(u64::MAX), held: Nanos(u64::MAX) };
        assert_eq!(absurd.round_trip(Nanos(170)), None);
    }
}
