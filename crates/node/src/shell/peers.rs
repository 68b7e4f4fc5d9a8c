//! A worker's links to its peers.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use base::Nanos;
use base::histogram::Histogram;
use mio::event::Event;
use mio::{Interest, Registry, Token};
use protocols::Stats;
use transport::connection::UNSENT_LEN_MAX;
use transport::{Connection, Happening, Hello, Pipe, Reset};
use types::NodeId;

use super::mailbox::{ControlMail, Mailbox, NewLink};
use super::routes::Routes;
use crate::status::Measures;
use crate::worker::Input;

/// Bytes taken from one peer in one turn; the rest waits for the next.
const TURN_BYTES_MAX: usize = 4 << 20;

/// A peer is slow for which more bytes wait than these, the oldest of them for so long. Less of
/// them may be a packet that was lost.
const SLOW: [(usize, Nanos); 3] = [
    (0, Nanos::from_millis(250)),
    (1 << 20, Nanos::from_millis(50)),
    (UNSENT_LEN_MAX / 4, Nanos::ZERO),
];
/// A peer that stays slow for so long is spared. Its later repair costs more than a short pause.
const LONG: Nanos = Nanos::from_secs(1);
/// The shortest and longest time to spare it. The time doubles whenever the peer turns slow again
/// at once.
const REMEMBERED_FOR: [Nanos; 2] = [Nanos::from_secs(5), Nanos::from_secs(60)];
/// Beyond this age of queued frames new ones would arrive too late, and delay later ones.
const FULL_AFTER: Nanos = Nanos::from_millis(500);

/// Tracks whether new frames reach a peer late.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Slowness {
    pub(super) is_slow: bool,
    /// It was slow for long, a short while ago or still.
    pub(super) was_for_long: bool,
}

impl Slowness {
    fn is_any(self) -> bool {
        self.is_slow || self.was_for_long
    }
}

struct PeerLink {
    serial: u64,
    channel: u16,
    peer: Hello,
    pipe: Box<dyn Pipe>,
    connection: Connection,
    /// There may be something to read.
    readable: bool,
    /// The peer has closed its end. Read the socket to its end, because no further event will
    /// arrive.
    closing: bool,
    /// The pipe takes no more for now; an event says when it does.
    blocked: bool,
    /// Since when it is slow.
    slow_since: Option<Nanos>,
    /// It has been slow for long, which is remembered until then, and for how long after it was so
    /// last.
    remembered_until: Nanos,
    remembered_for: Nanos,
}

/// The links of one worker.
pub(crate) struct PeerLinks {
    links: Vec<Option<PeerLink>>,
    /// Token of the first link; the others follow.
    token_base: usize,
    /// The longest duration of a request. Frames that waited so long for a slow peer are useless
    /// and delay new ones.
    patience: Nanos,
    control: Arc<Mailbox<ControlMail>>,
    happenings: Vec<Happening>,
    bytes_in: u64,
    bytes_out: u64,
    resets: u64,
    /// Frames for which there was no room.
    dropped: u64,
    round_trips: BTreeMap<NodeId, Histogram>,
    last_round_trips: BTreeMap<NodeId, Nanos>,
}

impl PeerLinks {
    pub(crate) fn new(
        token_base: usize,
        patience: Nanos,
        control: Arc<Mailbox<ControlMail>>,
    ) -> PeerLinks {
        PeerLinks {
            links: Vec::new(),
            token_base,
            patience,
            control,
            happenings: Vec::new(),
            bytes_in: 0,
            bytes_out: 0,
            resets: 0,
            dropped: 0,
            round_trips: BTreeMap::new(),
            last_round_trips: BTreeMap::new(),
        }
    }

    /// Takes in a proven connection; an older one of the same channel ends.
    pub(crate) fn add(&mut self, registry: &Registry, new: NewLink, routes: &mut Routes<'_>) {
        let NewLink { serial, channel, peer, mut pipe, connection, payloads } = new;
        let node = peer.node;
        let same = |link: &PeerLink| link.peer.node == node && link.channel == channel;
        let old = self.links.iter().position(|link| link.as_ref().is_some_and(same));
        if let Some(at) = old {
            self.drop_link(registry, at, routes.inputs);
        }
        let at = self.links.iter().position(Option::is_none).unwrap_or(self.links.len());
        let token = Token(self.token_base + at);
        let registered =
            registry.register(&mut pipe, token, Interest::READABLE | Interest::WRITABLE);
        if registered.is_err() {
            self.control.send(ControlMail::LinkDown { peer: node, channel, serial, why: None });
            return;
        }
        let (incarnation, amnesia) = (peer.incarnation, peer.amnesia);
        routes.inputs.push(Input::PeerUp { node, incarnation, amnesia });
        payloads.into_iter().for_each(|bytes| routes.send_frame(node, peer.workers, bytes));
        let link = PeerLink {
            serial,
            channel,
            peer,
            pipe,
            connection,
            readable: true,
            closing: false,
            blocked: false,
            slow_since: None,
            remembered_until: Nanos::ZERO,
            remembered_for: Nanos::ZERO,
        };
        match self.links.get_mut(at) {
            Some(slot) => *slot = Some(link),
            None => self.links.push(Some(link)),
        }
    }

    pub(crate) fn on_event(&mut self, event: &Event) {
        let at = event.token().0 - self.token_base;
        if let Some(Some(link)) = self.links.get_mut(at) {
            link.closing |= event.is_read_closed() || event.is_error();
            link.readable |= event.is_readable() || link.closing;
            link.blocked &= !event.is_writable();
        }
    }

    /// Reads input. True when some was left for the next turn.
    pub(crate) fn read(
        &mut self,
        registry: &Registry,
        now: Nanos,
        scratch: &mut [u8],
        routes: &mut Routes<'_>,
    ) -> bool {
        let mut is_left = false;
        for at in 0..self.links.len() {
            let Some(link) = self.links[at].as_mut().filter(|link| link.readable) else { continue };
            let mut happenings = std::mem::take(&mut self.happenings);
            let read = link.read(now, scratch, &mut happenings);
            let (from, workers) = (link.peer.node, link.peer.workers);
            for happening in happenings.drain(..) {
                if let Happening::Payload(bytes) = happening {
                    routes.send_frame(from, workers, bytes);
                }
            }
            self.happenings = happenings;
            is_left |= link.readable;
            if let Some(time) = link.connection.take_round_trip() {
                self.round_trips.entry(from).or_default().record(time);
                self.last_round_trips.insert(from, time);
            }
            match read {
                Ok(count) => self.bytes_in += count as u64,
                Err(why) => self.reset(registry, at, why, routes.inputs),
            }
        }
        is_left
    }

    /// Peers, and how slow they are.
    pub(crate) fn links(&self, now: Nanos) -> impl Iterator<Item = (NodeId, Slowness)> {
        self.links.iter().flatten().map(move |link| (link.peer.node, link.slowness(now)))
    }

    pub(crate) fn has_slow(&self, now: Nanos) -> bool {
        self.links.iter().any(|link| link.as_ref().is_some_and(|link| link.slowness(now).is_any()))
    }

    pub(crate) fn has_link(&self, to: NodeId) -> bool {
        self.links.iter().any(|link| link.as_ref().is_some_and(|link| link.peer.node == to))
    }

    /// Queues a frame for a peer; without a link, or room in it, it is lost, as on any link that
    /// ends.
    pub(crate) fn send(
        &mut self,
        registry: &Registry,
        now: Nanos,
        to: NodeId,
        frame: &[u8],
        inputs: &mut Vec<Input>,
    ) {
        let is_to =
            |link: &Option<PeerLink>| link.as_ref().is_some_and(|link| link.peer.node == to);
        let Some(at) = self.links.iter().position(is_to) else { return };
        let link = self.links[at].as_mut().expect("a link was found there");
        let mut sent = link.send(now, frame);
        if sent == Err(Reset::Full) {
            // One turn may have more to say than may wait, to a peer that reads as fast as it can.
            match link.flush() {
                Ok(count) => self.bytes_out += count as u64,
                Err(_) => return self.reset(registry, at, None, inputs),
            }
            sent = link.send(now, frame);
        }
        match sent {
            Ok(()) => {}
            // Frames in flight will arrive. A peer that never reads is silent, which ends the link.
            Err(Reset::Full) => self.dropped += 1,
            Err(why) => self.reset(registry, at, Some(why), inputs),
        }
    }

    /// Keep-alive. Call it after all input was read. While requests wait for a slow peer
    /// (`is_clogged`), its link is reset once its next frame is useless.
    pub(crate) fn on_time(
        &mut self,
        registry: &Registry,
        now: Nanos,
        is_clogged: bool,
        inputs: &mut Vec<Input>,
    ) {
        for at in 0..self.links.len() {
            let Some(link) = self.links[at].as_mut() else { continue };
            if is_clogged && link.has_waited(self.patience, now) {
                self.reset(registry, at, Some(Reset::Full), inputs);
                continue;
            }
            if link.connection.next_timer() <= now
                && !link.readable
                && let Err(why) = link.connection.on_time(now)
            {
                self.reset(registry, at, Some(why), inputs);
            }
        }
    }

    pub(crate) fn next_timer(&self, is_clogged: bool) -> Option<Nanos> {
        let timer = |link: &PeerLink| {
            let waiting = link.connection.waits_since().filter(|_| is_clogged);
            let timer = link.connection.next_timer();
            waiting.map_or(timer, |since| timer.min(since + self.patience))
        };
        self.links.iter().filter_map(|link| link.as_ref().map(timer)).min()
    }

    /// Writes queued output, once per link.
    pub(crate) fn flush(&mut self, registry: &Registry, now: Nanos, inputs: &mut Vec<Input>) {
        for at in 0..self.links.len() {
            let Some(link) = self.links[at].as_mut() else { continue };
            match link.flush() {
                Ok(count) => {
                    self.bytes_out += count as u64;
                    let is_slow = link.is_slow(now);
                    link.slow_since = is_slow.then(|| link.slow_since.unwrap_or(now));
                    if link.slow_since.is_some_and(|since| now >= since + LONG) {
                        link.remember(now);
                    }
                }
                Err(_) => self.reset(registry, at, None, inputs),
            }
        }
    }

    /// Closes everything: this node's counters changed.
    pub(crate) fn drop_all(&mut self, registry: &Registry, inputs: &mut Vec<Input>) {
        for at in 0..self.links.len() {
            self.reset(registry, at, None, inputs);
        }
    }

    fn reset(
        &mut self,
        registry: &Registry,
        at: usize,
        why: Option<Reset>,
        inputs: &mut Vec<Input>,
    ) {
        if let Some(link) = &self.links[at] {
            let (peer, channel, serial) = (link.peer.node, link.channel, link.serial);
            self.resets += 1;
            self.drop_link(registry, at, inputs);
            self.control.send(ControlMail::LinkDown { peer, channel, serial, why });
        }
    }

    fn drop_link(&mut self, registry: &Registry, at: usize, inputs: &mut Vec<Input>) {
        let Some(mut link) = self.links[at].take() else { return };
        // An error means that the pipe is gone already.
        let _ = registry.deregister(&mut link.pipe);
        let node = link.peer.node;
        inputs.push(Input::PeerReset { node });
        if let Some(other) = self.links.iter().flatten().find(|other| other.peer.node == node) {
            let (incarnation, amnesia) = (other.peer.incarnation, other.peer.amnesia);
            inputs.push(Input::PeerUp { node, incarnation, amnesia });
        }
    }

    /// Measures of the links alone.
    pub(crate) fn measures(&self) -> Measures {
        Measures {
            round_trips: self.round_trips.clone(),
            last_round_trips: self.last_round_trips.clone(),
            ..Measures::default()
        }
    }

    pub(crate) fn stats(&self, stats: &mut Stats) {
        stats.add("link_bytes_in", self.bytes_in);
        stats.add("link_bytes_out", self.bytes_out);
        stats.add("link_resets", self.resets);
        stats.add("link_frames_dropped", self.dropped);
        stats.add("links", self.links.iter().flatten().count() as u64);
    }
}

impl PeerLink {
    /// How many bytes were read; an error is the end of the link.
    fn read(
        &mut self,
        now: Nanos,
        scratch: &mut [u8],
        happenings: &mut Vec<Happening>,
    ) -> Result<usize, Option<Reset>> {
        let mut total = 0;
        while total < TURN_BYTES_MAX {
            match self.pipe.read(scratch) {
                Ok(0) => return Err(None),
                Ok(count) => {
                    total += count;
                    self.connection.on_bytes(now, &scratch[..count], happenings).map_err(Some)?;
                    // A short read emptied the socket; whatever comes later brings an event.
                    if count < scratch.len() && !self.closing {
                        self.readable = false;
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(None),
            }
        }
        Ok(total)
    }

    fn send(&mut self, now: Nanos, frame: &[u8]) -> Result<(), Reset> {
        if self.has_waited(FULL_AFTER, now) {
            return Err(Reset::Full);
        }
        self.connection.send(now, frame)
    }

    /// It has been slow for long.
    fn remember(&mut self, now: Nanos) {
        if now >= self.remembered_until {
            let [least, most] = REMEMBERED_FOR;
            let is_soon = now < self.remembered_until + self.remembered_for;
            let longer = if is_soon { self.remembered_for } else { Nanos::ZERO };
            self.remembered_for = Nanos(longer.0 * 2).clamp(least, most);
        }
        self.remembered_until = now + self.remembered_for;
    }

    fn slowness(&self, now: Nanos) -> Slowness {
        let is_slow = self.slow_since.is_some();
        Slowness { is_slow, was_for_long: now < self.remembered_until }
    }

    fn is_slow(&self, now: Nanos) -> bool {
        let len = self.connection.unsent().len();
        SLOW.iter().any(|&(least, time)| len > least && self.has_waited(time, now))
    }

    fn has_waited(&self, time: Nanos, now: Nanos) -> bool {
        self.connection.waits_since().is_some_and(|since| now >= since + time)
    }

    fn flush(&mut self) -> io::Result<usize> {
        let mut total = 0;
        while !self.blocked && !self.connection.unsent().is_empty() {
            match self.pipe.write(self.connection.unsent()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    total += count;
                    self.connection.wrote(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }
}
