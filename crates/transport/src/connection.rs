//! One conversation with a peer: handshake, frames, keep-alive, a bounded buffer.
//!
//! Free of sockets and clocks: bytes that arrived go in, bytes to write come out, time is an
//! argument. A connection never repairs itself. Every fault is a [`Reset`]: the connection is
//! dropped, both sides learn of it, and the protocols above repeat the messages that mattered.

use std::collections::VecDeque;

use base::Nanos;
use bytes::Bytes;
use types::Wire;

use crate::frame::{self, Decoder, FrameError, Kind, PAYLOAD_LEN_MAX, PAYLOAD_LEN_MAX_UNPROVEN};
use crate::handshake::{Handshake, Hello, Refusal};

/// Bytes that may wait for a peer beyond the frame being added.
pub const UNSENT_LEN_MAX: usize = 64 << 20;

/// A handshake must be over by then.
pub const HANDSHAKE_MAX: Nanos = Nanos::from_secs(2);

/// Bytes of a ping's number. An empty ping is answered, too, by an empty pong.
const PROBE_LEN: usize = 8;

/// How often round trips are measured while there is something to send.
const PROBE_EVERY: Nanos = Nanos::from_millis(100);

/// A probe without an answer for this long makes way for the next one.
const PROBE_MAX: Nanos = Nanos::from_secs(10);

/// Buffers above this are given back once they are empty.
const KEPT_CAPACITY: usize = 1 << 20;

/// When to ask whether the peer lives, and when to believe that it does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Ask when an answer is owed and no byte arrived for this long.
    pub owed: Nanos,
    /// Ask when no byte arrived for this long, although no answer is owed.
    pub idle: Nanos,
    /// Give up when an answer is owed and no byte arrived for this long.
    pub silent: Nanos,
}

impl KeepAlive {
    /// Links between workers: a link that drops packets must be noticed within half a second of
    /// traffic.
    pub const WORKERS: KeepAlive = KeepAlive {
        owed: Nanos::from_millis(100),
        idle: Nanos::from_secs(1),
        silent: Nanos::from_millis(500),
    };
    /// The control link: its thread may wait for a slow disk meanwhile.
    pub const CONTROL: KeepAlive = KeepAlive {
        owed: Nanos::from_secs(1),
        idle: Nanos::from_secs(1),
        silent: Nanos::from_secs(4),
    };
}

/// News from the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Happening {
    /// The peer has proven itself. Happens once, before any payload.
    Proven(Hello),
    Payload(Bytes),
}

/// Why a connection must be dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reset {
    #[error("it sent bad bytes: {0}")]
    Frame(#[from] FrameError),
    #[error("refused: {0}")]
    Refused(Refusal),
    #[error("it refused this node: seen from there, {0}")]
    RefusedByPeer(Refusal),
    #[error("its handshake took too long")]
    Deadline,
    #[error("it did not answer")]
    Silent,
    #[error("it reads too slowly: too much waits for it, or for too long")]
    Full,
    #[error("a message of {0} bytes is too long for a frame")]
    TooLong(usize),
}

enum State {
    Shaking { handshake: Box<Handshake>, until: Nanos },
    Open { seed: u64 },
}

/// One end of a connection.
pub struct Connection {
    state: State,
    keep_alive: KeepAlive,
    decoder: Decoder,
    out: Vec<u8>,
    /// How much of `out` has been written.
    written: usize,
    /// Bytes written in all.
    written_total: u64,
    /// Of frames not yet written to their ends: where in all that is ever written these are, and
    /// when they were queued.
    waiting: VecDeque<(u64, Nanos)>,
    heard_at: Nanos,
    said_at: Nanos,
    /// When the first frame was sent after the last byte arrived.
    owed_since: Option<Nanos>,
    /// Whether the peer was asked since something was heard.
    asked: bool,
    /// Number of the last ping.
    probe: u64,
    /// When that was queued.
    probed_at: Nanos,
    is_probing: bool,
    round_trip: Option<Nanos>,
}

impl Connection {
    /// A connection before its first frame.
    #[must_use]
    pub fn new(handshake: Handshake, keep_alive: KeepAlive, now: Nanos) -> Connection {
        let mut out = Vec::new();
        handshake.open(&mut out);
        Connection {
            state: State::Shaking { handshake: Box::new(handshake), until: now + HANDSHAKE_MAX },
            keep_alive,
            decoder: Decoder::new(0, PAYLOAD_LEN_MAX_UNPROVEN),
            out,
            written: 0,
            written_total: 0,
            waiting: VecDeque::new(),
            heard_at: now,
            said_at: now,
            owed_since: None,
            asked: false,
            probe: 0,
            probed_at: Nanos::ZERO,
            is_probing: false,
            round_trip: None,
        }
    }

    /// From now on these patiences hold.
    pub fn set_keep_alive(&mut self, keep_alive: KeepAlive) {
        self.keep_alive = keep_alive;
    }

    /// Bytes that arrived.
    ///
    /// # Errors
    /// [`Reset`]: write [`unsent`](Connection::unsent) if it can be done at once, then close.
    pub fn on_bytes(
        &mut self,
        now: Nanos,
        bytes: &[u8],
        happenings: &mut Vec<Happening>,
    ) -> Result<(), Reset> {
        self.heard_at = now;
        self.owed_since = None;
        self.asked = false;
        self.decoder.push(bytes);
        let before = happenings.len();
        self.take_frames(now, happenings)?;
        // A frame may take longer than the peer's patience, and its question stands behind all that
        // it has queued.
        if let State::Open { seed } = self.state
            && (self.decoder.is_within() || happenings.len() > before)
            && now >= self.said_at + self.keep_alive.owed
        {
            self.put(now, seed, Kind::Pong, &[]);
        }
        Ok(())
    }

    fn take_frames(&mut self, now: Nanos, happenings: &mut Vec<Happening>) -> Result<(), Reset> {
        while let Some((kind, payload)) = self.decoder.take()? {
            let seed = match &mut self.state {
                State::Shaking { handshake, .. } => {
                    if kind == Kind::Refusal {
                        let why = Refusal::from_bytes(&payload).unwrap_or(Refusal::Malformed);
                        return Err(Reset::RefusedByPeer(why));
                    }
                    let proven = match handshake.on_frame(kind, &payload, &mut self.out) {
                        Ok(None) => continue,
                        Ok(Some(proven)) => proven,
                        Err(refusal) => return Err(self.refuse(refusal)),
                    };
                    self.state = State::Open { seed: proven.seed };
                    self.decoder.rebind(proven.seed, PAYLOAD_LEN_MAX);
                    happenings.push(Happening::Proven(proven.peer));
                    continue;
                }
                State::Open { seed } => *seed,
            };
            match kind {
                Kind::Payload => happenings.push(Happening::Payload(payload)),
                Kind::Ping => {
                    let number = if payload.len() <= PROBE_LEN { &payload[..] } else { &[] };
                    self.put(now, seed, Kind::Pong, number);
                }
                Kind::Pong => self.on_pong(now, &payload),
                Kind::Refusal => {
                    let why = Refusal::from_bytes(&payload).unwrap_or(Refusal::Malformed);
                    return Err(Reset::RefusedByPeer(why));
                }
                Kind::Hello | Kind::Proof => return Err(Reset::Refused(Refusal::Malformed)),
            }
        }
        Ok(())
    }

    /// Tells the peer why it is refused; the connection is then to be closed.
    pub fn refuse(&mut self, refusal: Refusal) -> Reset {
        let seed = match self.state {
            State::Shaking { .. } => 0,
            State::Open { seed } => seed,
        };
        frame::encode(seed, Kind::Refusal, &refusal.to_bytes(), &mut self.out);
        Reset::Refused(refusal)
    }

    /// Queues a payload.
    ///
    /// # Errors
    /// [`Reset::Full`] when too much waits already, and [`Reset::TooLong`]; the payload is not
    /// queued.
    ///
    /// # Panics
    /// If the peer has not proven itself.
    pub fn send(&mut self, now: Nanos, payload: &[u8]) -> Result<(), Reset> {
        let State::Open { seed } = self.state else { panic!("nothing is said to the unproven") };
        if self.unsent().len() > UNSENT_LEN_MAX {
            return Err(Reset::Full);
        }
        if payload.len() > PAYLOAD_LEN_MAX {
            return Err(Reset::TooLong(payload.len()));
        }
        self.put(now, seed, Kind::Payload, payload);
        let pause = if self.is_probing { PROBE_MAX } else { PROBE_EVERY };
        if now >= self.probed_at + pause {
            self.ping(now, seed);
        }
        Ok(())
    }

    /// Asks for an answer behind all that was queued before.
    fn ping(&mut self, now: Nanos, seed: u64) {
        self.probe += 1;
        (self.probed_at, self.is_probing) = (now, true);
        self.put(now, seed, Kind::Ping, &self.probe.to_le_bytes());
    }

    /// An empty pong says that the peer lives; one with the number of the last ping ends a round
    /// trip.
    fn on_pong(&mut self, now: Nanos, number: &[u8]) {
        if self.is_probing && number == self.probe.to_le_bytes() {
            self.is_probing = false;
            self.round_trip = Some(now.since(self.probed_at));
        }
    }

    /// The newest round trip that was not taken yet: from queueing a ping, behind frames with
    /// payload, to the pong that answers it.
    pub fn take_round_trip(&mut self) -> Option<Nanos> {
        self.round_trip.take()
    }

    fn put(&mut self, now: Nanos, seed: u64, kind: Kind, payload: &[u8]) {
        frame::encode(seed, kind, payload, &mut self.out);
        let end = self.written_total + self.unsent().len() as u64;
        match self.waiting.back_mut() {
            Some((last, at)) if *at == now => *last = end,
            _ => self.waiting.push_back((end, now)),
        }
        self.said_at = now;
        if kind != Kind::Pong {
            self.owed_since.get_or_insert(now);
        }
    }

    /// Time has passed: asks whether the peer lives, or gives up.
    ///
    /// Read all that has arrived before: a peer is silent only if no byte waits to be read.
    ///
    /// # Errors
    /// [`Reset`] when the peer is believed dead.
    pub fn on_time(&mut self, now: Nanos) -> Result<(), Reset> {
        let seed = match self.state {
            State::Shaking { until, .. } if now >= until => return Err(Reset::Deadline),
            State::Shaking { .. } => return Ok(()),
            State::Open { seed } => seed,
        };
        if self.owed_since.is_some_and(|since| now >= since + self.keep_alive.silent) {
            return Err(Reset::Silent);
        }
        if self.ping_at() <= now {
            self.asked = true;
            self.ping(now, seed);
        }
        Ok(())
    }

    fn ping_at(&self) -> Nanos {
        match self.owed_since {
            // One question per silence: the answer or the end of patience comes next.
            Some(_) if self.asked => Nanos::MAX,
            Some(since) => since + self.keep_alive.owed,
            None => self.heard_at + self.keep_alive.idle,
        }
    }

    /// When [`on_time`](Connection::on_time) is due next.
    #[must_use]
    pub fn next_timer(&self) -> Nanos {
        match self.state {
            State::Shaking { until, .. } => until,
            State::Open { .. } => {
                let silent = self.owed_since.map(|since| since + self.keep_alive.silent);
                self.ping_at().min(silent.unwrap_or(Nanos::MAX))
            }
        }
    }

    /// Bytes to write.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        &self.out[self.written..]
    }

    /// When the frame was queued that waits longest to be written to its end.
    #[must_use]
    pub fn waits_since(&self) -> Option<Nanos> {
        self.waiting.front().map(|(_, since)| *since)
    }

    /// The first `count` bytes of [`unsent`](Connection::unsent) were written.
    pub fn wrote(&mut self, count: usize) {
        self.written += count;
        assert!(self.written <= self.out.len(), "wrote no more than there is");
        self.written_total += count as u64;
        while self.waiting.front().is_some_and(|(end, _)| *end <= self.written_total) {
            self.waiting.pop_front();
        }
        if self.written == self.out.len() {
            self.written = 0;
            if self.out.capacity() > KEPT_CAPACITY {
                self.out = Vec::new();
            }
            self.out.clear();
        } else if self.written > KEPT_CAPACITY.max(self.out.len() / 2) {
            // No more is moved than was written since it was moved last.
            self.out.drain(..self.written);
            self.written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{AmnesiaCount, Incarnation, NodeId};

    use super::*;
    use crate::handshake::ClusterId;

    const START: Nanos = Nanos::from_secs(1);

    fn hello(node: u16) -> Hello {
        Hello {
            node: NodeId(node),
            incarnation: Incarnation(1),
            amnesia: AmnesiaCount(0),
            cluster: Some(ClusterId([7; 16])),
            channel: 0,
            workers: 1,
            settings: 1,
            features: types::features::Features::default(),
            nonce: [node as u8; 32],
        }
    }

    fn pair() -> (Connection, Connection) {
        let (left, right) = (NodeId(1), NodeId(2));
        (
            Connection::new(Handshake::dial(hello(1), right, b"s"), KeepAlive::WORKERS, START),
            Connection::new(Handshake::accept(hello(2), &[left], b"s"), KeepAlive::WORKERS, START),
        )
    }

    fn carry(now: Nanos, from: &mut Connection, to: &mut Connection) -> Vec<Happening> {
        let bytes = from.unsent().to_vec();
        from.wrote(bytes.len());
        let mut happenings = Vec::new();
        if !bytes.is_empty() {
            to.on_bytes(now, &bytes, &mut happenings).unwrap();
        }
        happenings
    }

    fn open() -> (Connection, Connection) {
        let (mut left, mut right) = pair();
        for _ in 0..2 {
            carry(START, &mut left, &mut right);
            carry(START, &mut right, &mut left);
        }
        (left, right)
    }

    #[test]
    fn a_payload_may_follow_the_proof_in_one_packet() {
        let (mut left, mut right) = pair();
        carry(START, &mut left, &mut right);
        let proven = carry(START, &mut right, &mut left);
        assert_eq!(proven, [Happening::Proven(hello(2))]);
        left.send(START, b"first").unwrap();
        assert_eq!(
            carry(START, &mut left, &mut right),
            [Happening::Proven(hello(1)), Happening::Payload(Bytes::from_static(b"first"))]
        );
    }

    #[test]
    fn a_round_trip_ends_with_the_answer_to_its_ping() {
        let (mut left, mut right) = open();
        let at = |millis| START + Nanos::from_millis(millis);
        left.send(at(1_000), b"x").unwrap();
        let pinged = left.unsent().len();
        left.send(at(1_001), b"y").unwrap();
        assert!(left.unsent().len() - pinged < pinged, "one ping at a time");
        carry(at(1_003), &mut left, &mut right);
        assert_eq!(left.take_round_trip(), None);
        carry(at(1_007), &mut right, &mut left);
        assert_eq!(left.take_round_trip(), Some(Nanos::from_millis(7)));
        assert_eq!(left.take_round_trip(), None, "it is told once");
        left.send(at(1_099), b"z").unwrap();
        carry(at(1_099), &mut left, &mut right);
        assert!(right.unsent().is_empty(), "no ping within the pause");
    }

    #[test]
    fn an_idle_link_is_measured_by_its_keep_alive() {
        let (mut left, mut right) = open();
        let asked = left.next_timer();
        left.on_time(asked).unwrap();
        carry(asked, &mut left, &mut right);
        carry(asked + Nanos::from_millis(3), &mut right, &mut left);
        assert_eq!(left.take_round_trip(), Some(Nanos::from_millis(3)));
    }

    #[test]
    fn pongs_without_a_number_end_no_round_trip() {
        let (mut left, _right) = open();
        left.send(START + PROBE_EVERY, b"x").unwrap();
        for number in [&b""[..], b"12345678", &[0; 8]] {
            left.on_pong(START + PROBE_EVERY, number);
            assert_eq!(left.take_round_trip(), None);
        }
    }

    #[test]
    fn a_frame_that_takes_longer_than_a_peer_may_be_silent_arrives() {
        let (mut left, mut right) = open();
        let payload = vec![7; 1 << 20];
        left.send(START, &payload).unwrap();
        let bytes = left.unsent().to_vec();
        left.wrote(bytes.len());
        let mut happenings = Vec::new();
        let step = KeepAlive::WORKERS.owed.0;
        let parts = bytes.chunks(1 << 16);
        assert!(parts.len() as u64 * step > KeepAlive::WORKERS.silent.0);
        for (now, part) in (START.0 + step..).step_by(step as usize).map(Nanos).zip(parts) {
            right.on_bytes(now, part, &mut happenings).unwrap();
            carry(now, &mut right, &mut left);
            left.on_time(now).unwrap();
        }
        assert_eq!(happenings, [Happening::Payload(payload.into())]);
    }

    #[test]
    fn busy_listener_is_not_silent() {
        let (mut left, mut right) = open();
        let step = KeepAlive::WORKERS.owed;
        // The question that it was asked stands behind all of them.
        let mut now = START;
        while now < START + Nanos(KeepAlive::WORKERS.silent.0 * 2) {
            now += step;
            left.send(now, b"x").unwrap();
            let heard = carry(now, &mut left, &mut right);
            assert_eq!(heard, [Happening::Payload(Bytes::from_static(b"x"))]);
            assert!(!right.unsent().is_empty());
            carry(now, &mut right, &mut left);
            assert!(left.unsent().is_empty(), "nothing is said about having been heard");
        }
    }

    #[test]
    fn a_frame_waits_until_it_is_written_to_its_end() {
        let (mut left, _right) = open();
        assert_eq!(left.waits_since(), None);
        let at = |millis| START + Nanos::from_millis(millis);
        let ends = [1, 1, 2, 3].map(|millis| {
            left.send(at(millis), &[7; 100]).unwrap();
            left.unsent().len()
        });
        assert_eq!(left.waits_since(), Some(at(1)));
        left.wrote(ends[0]);
        assert_eq!(left.waits_since(), Some(at(1)), "the second one was queued then, too");
        left.wrote(ends[1] - ends[0]);
        assert_eq!(left.waits_since(), Some(at(2)));
        left.wrote(ends[3] - ends[1] - 1);
        assert_eq!(left.waits_since(), Some(at(3)));
        left.wrote(1);
        assert_eq!(left.waits_since(), None);
    }

    #[test]
    fn a_silent_peer_is_asked_once_and_then_given_up_while_traffic_is_owed() {
        let (mut left, _right) = open();
        left.send(START, b"x").unwrap();
        left.wrote(left.unsent().len());
        let asked = left.next_timer();
        assert_eq!(asked, START + KeepAlive::WORKERS.owed);
        left.on_time(asked).unwrap();
        assert!(!left.unsent().is_empty());
        let end = left.next_timer();
        assert_eq!(end, START + KeepAlive::WORKERS.silent);
        assert_eq!(left.on_time(end), Err(Reset::Silent));
    }

    #[test]
    fn an_idle_link_asks_once_a_second_and_stays() {
        let (mut left, mut right) = open();
        let mut now = START;
        for _ in 0..5 {
            let due = left.next_timer();
            assert_eq!(due, now + KeepAlive::WORKERS.idle);
            now = due;
            left.on_time(now).unwrap();
            carry(now, &mut left, &mut right);
            carry(now, &mut right, &mut left);
        }
    }

    #[test]
    fn an_answered_ping_keeps_a_link_with_one_way_traffic() {
        let (mut left, mut right) = open();
        let mut now = START;
        for _ in 0..50 {
            now += Nanos::from_millis(50);
            left.send(now, b"x").unwrap();
            left.on_time(now).unwrap();
            carry(now, &mut left, &mut right);
            carry(now, &mut right, &mut left);
        }
    }

    #[test]
    fn a_handshake_has_a_deadline_and_a_small_limit() {
        let (mut left, mut right) = pair();
        assert_eq!(left.on_time(left.next_timer()), Err(Reset::Deadline));
        let mut long = Vec::new();
        frame::encode(0, Kind::Hello, &[0; PAYLOAD_LEN_MAX_UNPROVEN + 1], &mut long);
        let refused = right.on_bytes(START, &long, &mut Vec::new());
        assert!(matches!(refused, Err(Reset::Frame(FrameError::TooLong { .. }))));
    }

    #[test]
    fn a_refused_end_learns_why() {
        let left = Handshake::dial(hello(1), NodeId(2), b"s");
        let right = Handshake::accept(hello(2), &[NodeId(9)], b"s");
        let mut left = Connection::new(left, KeepAlive::WORKERS, START);
        let mut right = Connection::new(right, KeepAlive::WORKERS, START);
        let refused = right.on_bytes(START, left.unsent(), &mut Vec::new());
        assert_eq!(refused, Err(Reset::Refused(Refusal::Stranger)));
        let told = left.on_bytes(START, right.unsent(), &mut Vec::new());
        assert_eq!(told, Err(Reset::RefusedByPeer(Refusal::Stranger)));
    }

    #[test]
    fn unread_frames_are_bounded() {
        let (mut left, _right) = open();
        let payload = vec![0; PAYLOAD_LEN_MAX];
        left.send(START, &payload).unwrap();
        let mut sent = 0;
        while left.send(START, &payload[..1 << 20]).is_ok() {
            sent += 1;
            assert!(sent < 1_000);
        }
        assert!(left.unsent().len() <= UNSENT_LEN_MAX + PAYLOAD_LEN_MAX + 64);
    }
}
