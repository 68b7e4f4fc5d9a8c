//! A worker's clients: sockets, sessions, and requests in flight.
//!
//! A session gets no input while it has too many requests in flight, too many unread replies, or
//! reports that it is full. Untaken input is at most `INPUT_LEN_MAX`. A turn reads at most one
//! buffer per client. While storage is behind, a session whose next request is a write waits for
//! its turn, and sessions that read continue.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Millis, Nanos};
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use protocols::Stats;
use types::{Key, Outcome, SessionId, Shard, Tag};

use super::node_status::SharedNodeStatus;
use super::routes::Routes;
use crate::engine::shard_of;
use crate::session::{
    self, Ask, Client, INPUT_LEN_MAX, OUT_LEN_MAX, OUTSTANDING_MAX, Session, SessionContext,
    SessionFactory, Shortage, Socket, Wanted,
};
use crate::worker::Input;

/// Bytes of requests that one turn reads, about. Their changes reach the peers before the next
/// read.
const READ_LEN_MAX: usize = 8 << 20;

/// Buffers above this are given back once they are empty.
const KEPT_CAPACITY: usize = 64 << 10;

/// A client whose unread replies exceed this is disconnected. Sessions that say when they are full
/// stay far below it, with the longest single reply as well.
const UNREAD_LEN_MAX: usize = 1 << 30;

struct ClientSlot {
    id: SessionId,
    stream: TcpStream,
    session: Box<dyn Session>,
    /// Input that the session has not taken.
    input: Vec<u8>,
    out: Vec<u8>,
    /// How much of `out` has been written.
    written: usize,
    outstanding: usize,
    readable: bool,
    /// The client has closed its end. Read the socket to its end, because no further event will
    /// arrive.
    closing: bool,
    /// No more input will arrive. The connection ends after the last reply.
    at_end: bool,
    /// The session stopped taking input for want of room.
    stalled: bool,
    /// Its next request is a write that waits in `Clients::held`.
    held: bool,
    /// The socket takes no more for now.
    blocked: bool,
    /// Is listed in `Clients::busy`.
    listed: bool,
}

/// The origin of a request in flight.
#[derive(Clone, Copy)]
struct PendingRequest {
    slot: u32,
    id: SessionId,
    token: session::Token,
    /// See [`Wanted::write_weight`].
    write_weight: u32,
    /// Counted up with every use of this place, so that a tag names one request only.
    turn: u32,
}

/// Sessions of one worker.
pub(crate) struct Clients {
    worker: usize,
    node_status: Arc<SharedNodeStatus>,
    factory: Arc<dyn SessionFactory>,
    token_base: usize,
    slots: Vec<Option<Box<ClientSlot>>>,
    free: Vec<u32>,
    /// Slots with something to read or write in this turn.
    busy: Vec<u32>,
    /// Sessions that wait to write, the first that came first.
    held: VecDeque<(u32, SessionId)>,
    /// The weight of writes in flight above which others are held, and the present weight.
    pub(crate) writes_max: usize,
    writes: usize,
    pub(crate) shortage: Shortage,
    /// True while held writes take their turns.
    lets_write: bool,
    pending: Vec<PendingRequest>,
    pending_free: Vec<u32>,
    timers: BinaryHeap<Reverse<(Nanos, u32, SessionId)>>,
    /// As many steps of all sessions were taken of those that the node status counts.
    steps: u64,
    /// Seconds of keep-alive that the sockets have.
    keep_alive: u64,
    asks: Vec<Ask>,
    /// Bytes that sessions have taken in this turn.
    taken: usize,
    pub(crate) now: Nanos,
    /// The clock just before the current steps of sessions.
    pub(crate) moment: Nanos,
    pub(crate) unix: Millis,
    bytes_in: u64,
    bytes_out: u64,
    /// Reads and writes of sockets that moved bytes.
    reads_done: u64,
    writes_done: u64,
}

impl Clients {
    pub(crate) fn new(
        worker: usize,
        token_base: usize,
        node_status: Arc<SharedNodeStatus>,
        factory: Arc<dyn SessionFactory>,
    ) -> Clients {
        Clients {
            worker,
            factory,
            token_base,
            slots: Vec::new(),
            free: Vec::new(),
            busy: Vec::new(),
            held: VecDeque::new(),
            writes_max: usize::MAX,
            writes: 0,
            shortage: Shortage::None,
            lets_write: false,
            pending: Vec::new(),
            pending_free: Vec::new(),
            timers: BinaryHeap::new(),
            steps: 0,
            keep_alive: node_status.client_settings.tcp_keepalive(),
            asks: Vec::new(),
            taken: 0,
            now: Nanos::ZERO,
            moment: Nanos::ZERO,
            unix: Millis(0),
            bytes_in: 0,
            bytes_out: 0,
            reads_done: 0,
            writes_done: 0,
            node_status,
        }
    }

    pub(crate) fn add(&mut self, registry: &Registry, mut stream: TcpStream, client: &Client) {
        let at = self.free.pop().unwrap_or(self.slots.len() as u32);
        let token = Token(self.token_base + at as usize);
        // A client that has gone already is found when its socket is read.
        let _ = transport::keep_alive::set(&stream, self.keep_alive);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if registry.register(&mut stream, token, interest).is_err() {
            self.free_slot(at);
            return;
        }
        let slot = Box::new(ClientSlot {
            id: client.id,
            stream,
            session: self.factory.accept(client),
            input: Vec::new(),
            out: Vec::new(),
            written: 0,
            outstanding: 0,
            readable: true,
            closing: false,
            at_end: false,
            stalled: false,
            held: false,
            blocked: false,
            listed: true,
        });
        match self.slots.get_mut(at as usize) {
            Some(place) => *place = Some(slot),
            None => self.slots.push(Some(slot)),
        }
        self.busy.push(at);
        // The session's first step: it may want to be woken although its client stays silent.
        self.timers.push(Reverse((self.now, at, client.id)));
    }

    fn free_slot(&mut self, at: u32) {
        if (at as usize) < self.slots.len() {
            self.free.push(at);
        }
        self.node_status.clients.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn on_event(&mut self, event: &Event) {
        let at = (event.token().0 - self.token_base) as u32;
        let Some(Some(slot)) = self.slots.get_mut(at as usize) else { return };
        slot.closing |= event.is_read_closed() || event.is_error();
        slot.readable |= event.is_readable() || slot.closing;
        slot.blocked &= !event.is_writable();
        list(&mut self.busy, slot, at);
    }

    /// Feeds every session that has input and room, once, until about `room` requests have come of
    /// it.
    pub(crate) fn read(&mut self, scratch: &mut [u8], room: usize, routes: &mut Routes<'_>) {
        let (before, mut count) = (routes.len(), 0);
        self.taken = 0;
        self.let_write(room, routes);
        for index in 0..self.busy.len() {
            if routes.len() - before >= room || self.taken >= READ_LEN_MAX {
                break;
            }
            count += 1;
            let at = self.busy[index];
            let Some(mut slot) = self.slots[at as usize].take() else { continue };
            self.read_slot(at, &mut slot, scratch, routes);
            self.slots[at as usize] = Some(slot);
        }
        // Earlier clients come first.
        self.busy.rotate_left(count);
    }

    /// Shows held input again to sessions that wait to write, while there is room.
    fn let_write(&mut self, room: usize, routes: &mut Routes<'_>) {
        let before = routes.len();
        self.lets_write = true;
        for _ in 0..self.held.len() {
            if !self.has_write_turn() || routes.len() - before >= room {
                break;
            }
            let Some((at, id)) = self.held.pop_front() else { break };
            let is_same = |slot: &mut Box<ClientSlot>| slot.id == id;
            if let Some(mut slot) = self.slots[at as usize].take_if(is_same) {
                slot.held = false;
                self.feed(at, &mut slot, &[], routes);
                self.slots[at as usize] = Some(slot);
            }
        }
        self.lets_write = false;
    }

    /// True when a waiting session may write, or must learn that writes are refused.
    fn has_write_turn(&self) -> bool {
        self.writes < self.writes_max || self.shortage == Shortage::OfWrites
    }

    /// The weight of writes that a session may make. Zero while other sessions wait, unless it is
    /// its turn.
    fn writes_left(&self) -> usize {
        match self.held.is_empty() || self.lets_write {
            true => self.writes_max.saturating_sub(self.writes),
            false => 0,
        }
    }

    fn read_slot(
        &mut self,
        at: u32,
        slot: &mut ClientSlot,
        scratch: &mut [u8],
        routes: &mut Routes<'_>,
    ) {
        if slot.can_go_on() {
            self.feed(at, slot, &[], routes);
        }
        if !slot.wants_input() {
            return;
        }
        match slot.stream.read(scratch) {
            Ok(0) => (slot.at_end, slot.readable) = (true, false),
            Ok(count) => {
                self.bytes_in += count as u64;
                self.reads_done += 1;
                // A short read emptied the socket; whatever comes later brings an event.
                slot.readable = count == scratch.len() || slot.closing;
                self.feed(at, slot, &scratch[..count], routes);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => slot.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => (slot.at_end, slot.readable, slot.outstanding) = (true, false, 0),
        }
    }

    /// Shows new input to the session, behind its untaken input.
    fn feed(&mut self, at: u32, slot: &mut ClientSlot, new: &[u8], routes: &mut Routes<'_>) {
        slot.stalled = false;
        if slot.input.is_empty() {
            let taken = self.show(at, slot, new, routes);
            slot.input.extend_from_slice(&new[taken..]);
        } else {
            slot.input.extend_from_slice(new);
            let input = std::mem::take(&mut slot.input);
            let taken = self.show(at, slot, &input, routes);
            slot.input = input;
            slot.input.drain(..taken);
        }
        if slot.input.is_empty() && slot.input.capacity() > KEPT_CAPACITY {
            slot.input = Vec::new();
        }
        // A session that wants more than this does not know its own limits.
        slot.at_end |= slot.input.len() > INPUT_LEN_MAX;
    }

    fn show(
        &mut self,
        at: u32,
        slot: &mut ClientSlot,
        input: &[u8],
        routes: &mut Routes<'_>,
    ) -> usize {
        if slot.session.wants_close() {
            return input.len();
        }
        self.moment = self.node_status.clocks.now();
        let mut taken = 0;
        let (stalled, held) = self.step(at, slot, routes, |session, cx| {
            taken = session.on_bytes(input, cx);
            (!cx.has_room() || session.is_full(), cx.is_write_held())
        });
        self.taken += taken;
        assert!(taken <= input.len(), "a session took {taken} bytes of {}", input.len());
        slot.stalled = stalled && taken < input.len();
        if held && !slot.held {
            slot.held = true;
            self.held.push_back((at, slot.id));
        }
        taken
    }

    /// One step of a session, and its requests on their way.
    fn step<T>(
        &mut self,
        at: u32,
        slot: &mut ClientSlot,
        routes: &mut Routes<'_>,
        with: impl FnOnce(&mut dyn Session, &mut SessionContext<'_>) -> T,
    ) -> T {
        let mut asks = std::mem::take(&mut self.asks);
        let times = (self.now, self.unix);
        let mut cx = SessionContext::new(
            &mut slot.out,
            &mut asks,
            slot.outstanding,
            times,
            &*self.node_status,
        )
        .with_positions(self.node_status.positions.get())
        .with_moment(self.moment)
        .with_writes_left(self.writes_left())
        .with_shortage(self.shortage);
        let result = with(&mut *slot.session, &mut cx);
        if let Some(wake) = cx.wanted_wake() {
            self.timers.push(Reverse((wake, at, slot.id)));
        }
        slot.outstanding += asks.len();
        for ask in asks.drain(..) {
            self.route(at, slot.id, ask, routes);
        }
        self.asks = asks;
        list(&mut self.busy, slot, at);
        result
    }

    fn route(&mut self, slot: u32, id: SessionId, ask: Ask, routes: &mut Routes<'_>) {
        let weight = ask.what.write_weight();
        self.writes += weight;
        let write_weight = weight as u32;
        let tag = self.tag(PendingRequest { slot, id, token: ask.token, write_weight, turn: 0 });
        let (shard, input) = match ask.what {
            Wanted::Run { database, key, command } => {
                (key.shard(), Input::Request { tag, session: id, database, key, command })
            }
            Wanted::List { database, from_hash, limit } => {
                (shard_of(from_hash), Input::List { tag, database, from_hash, limit })
            }
            Wanted::Transact(transaction) => {
                let first = transaction.keys.first().map_or(Shard(self.worker as u8), Key::shard);
                (first, Input::Transaction { tag, transaction })
            }
            Wanted::Explain { database, key } => {
                (key.shard(), Input::Explain { tag, database, key })
            }
        };
        routes.send(shard, input);
    }

    /// `worker u8, use of the place u24, place u32`.
    fn tag(&mut self, new: PendingRequest) -> Tag {
        let place = self.pending_free.pop().unwrap_or_else(|| {
            self.pending.push(new);
            self.pending.len() as u32 - 1
        });
        let pending = &mut self.pending[place as usize];
        let turn = (pending.turn + 1) & 0x00ff_ffff;
        *pending = PendingRequest { turn, ..new };
        Tag((self.worker as u64) << 56 | u64::from(turn) << 32 | u64::from(place))
    }

    /// The worker on whose thread the session of this request lives.
    pub(crate) fn worker_of(tag: Tag) -> usize {
        (tag.0 >> 56) as usize
    }

    /// Hands an outcome to the session that asked, if it is still there.
    ///
    /// # Panics
    /// If the request ended before: one of two outcomes would be a lie.
    pub(crate) fn on_outcome(&mut self, tag: Tag, outcome: Outcome, routes: &mut Routes<'_>) {
        let place = tag.0 as u32;
        let pending = self.pending[place as usize];
        assert_eq!((tag.0 >> 32) as u32 & 0x00ff_ffff, pending.turn, "{tag:?} has ended before");
        // The next user of this place counts from here; until then no tag has this turn.
        self.pending[place as usize].turn = (pending.turn + 1) & 0x00ff_ffff;
        self.pending_free.push(place);
        self.writes -= pending.write_weight as usize;
        let is_same = |slot: &mut Box<ClientSlot>| slot.id == pending.id;
        let Some(mut slot) = self.slots[pending.slot as usize].take_if(is_same) else { return };
        slot.outstanding = slot.outstanding.saturating_sub(1);
        self.step(pending.slot, &mut slot, routes, |session, cx| {
            session.on_outcome(pending.token, outcome, cx);
        });
        self.slots[pending.slot as usize] = Some(slot);
    }

    /// Steps the sessions whose timers are due.
    pub(crate) fn on_time(&mut self, routes: &mut Routes<'_>) {
        let steps = self.node_status.session_steps.load(Ordering::SeqCst);
        if std::mem::replace(&mut self.steps, steps) != steps {
            self.step_all(routes);
        }
        while let Some(&Reverse((at, place, id))) = self.timers.peek() {
            if at > self.now {
                return;
            }
            self.timers.pop();
            let is_same = |slot: &mut Box<ClientSlot>| slot.id == id;
            if let Some(mut slot) = self.slots[place as usize].take_if(is_same) {
                self.step(place, &mut slot, routes, |session, cx| session.on_timer(cx));
                self.slots[place as usize] = Some(slot);
            }
        }
    }

    fn step_all(&mut self, routes: &mut Routes<'_>) {
        let keep_alive = self.node_status.client_settings.tcp_keepalive();
        let is_new = std::mem::replace(&mut self.keep_alive, keep_alive) != keep_alive;
        for at in 0..self.slots.len() {
            let Some(mut slot) = self.slots[at].take() else { continue };
            if is_new {
                let _ = transport::keep_alive::set(&slot.stream, keep_alive);
            }
            self.step(at as u32, &mut slot, routes, |session, cx| session.on_timer(cx));
            self.slots[at] = Some(slot);
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Nanos> {
        self.timers.peek().map(|&Reverse((at, _, _))| at)
    }

    /// Resumes sessions that can continue with their untaken input.
    pub(crate) fn resume(&mut self, routes: &mut Routes<'_>) {
        for index in 0..self.busy.len() {
            let at = self.busy[index];
            let is_ready = |slot: &mut Box<ClientSlot>| slot.can_go_on() && !slot.input.is_empty();
            if let Some(mut slot) = self.slots[at as usize].take_if(is_ready) {
                self.feed(at, &mut slot, &[], routes);
                self.slots[at as usize] = Some(slot);
            }
        }
    }

    /// The weight of the writes in flight.
    pub(crate) fn writes(&self) -> usize {
        self.writes
    }

    /// True when some session could take more right now.
    pub(crate) fn has_work(&self) -> bool {
        !self.busy.is_empty() || (!self.held.is_empty() && self.has_write_turn())
    }

    /// Writes queued output, once per client, and closes finished clients.
    pub(crate) fn flush(&mut self, registry: &Registry) {
        let mut busy = std::mem::take(&mut self.busy);
        busy.retain(|&at| {
            let Some(mut slot) = self.slots[at as usize].take() else { return false };
            let written = slot.flush();
            self.bytes_out += written.unwrap_or(0);
            self.writes_done += u64::from(written.is_some_and(|count| count > 0));
            slot.session.note_socket(&Socket {
                descriptor: slot.stream.as_raw_fd(),
                input: (slot.input.len(), slot.input.capacity()),
                output: (slot.out.len() - slot.written, slot.out.capacity()),
            });
            if written.is_none() || slot.is_over() {
                let _ = registry.deregister(&mut slot.stream);
                self.free_slot(at);
                return false;
            }
            slot.listed = slot.wants_input() || slot.can_go_on();
            let listed = slot.listed;
            self.slots[at as usize] = Some(slot);
            listed
        });
        self.busy = busy;
    }

    /// True when no request is in flight and all output is written, so that a stop need not wait.
    pub(crate) fn is_drained(&self) -> bool {
        self.pending.len() == self.pending_free.len()
            && self.slots.iter().flatten().all(|slot| slot.blocked || slot.out.is_empty())
    }

    pub(crate) fn stats(&self, stats: &mut Stats) {
        stats.add("client_bytes_in", self.bytes_in);
        stats.add("client_bytes_out", self.bytes_out);
        stats.add("client_reads", self.reads_done);
        stats.add("client_writes", self.writes_done);
        stats.add(
            "client_requests_in_progress",
            (self.pending.len() - self.pending_free.len()) as u64,
        );
    }
}

/// Frees the space of written output, even while the rest must wait. Moves each byte at most once,
/// and keeps no spare memory.
fn forget_written(out: &mut Vec<u8>, written: &mut usize) {
    if *written * 2 < out.len() || *written == 0 {
        return;
    }
    out.drain(..std::mem::take(written));
    if out.capacity() > KEPT_CAPACITY && out.capacity() / 4 > out.len() {
        out.shrink_to(out.len());
    }
}

fn list(busy: &mut Vec<u32>, slot: &mut ClientSlot, at: u32) {
    if !slot.listed {
        slot.listed = true;
        busy.push(at);
    }
}

impl ClientSlot {
    fn has_room(&self) -> bool {
        let has_room = self.outstanding < OUTSTANDING_MAX && self.out.len() < OUT_LEN_MAX;
        has_room && !self.session.is_full()
    }

    fn wants_input(&self) -> bool {
        self.readable && !self.at_end && !self.stalled && !self.held && self.has_room()
    }

    fn can_go_on(&self) -> bool {
        self.stalled && !self.held && self.has_room()
    }

    fn is_over(&self) -> bool {
        let is_said = self.out.is_empty();
        let is_done = self.session.wants_close() || (self.at_end && self.outstanding == 0);
        (is_said && is_done) || self.session.is_gone() || self.out.len() > UNREAD_LEN_MAX
    }

    /// Bytes written; `None` when the client is gone.
    fn flush(&mut self) -> Option<u64> {
        let mut total = 0;
        while !self.blocked && self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return None,
                Ok(count) => {
                    self.written += count;
                    total += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        forget_written(&mut self.out, &mut self.written);
        Some(total)
    }
}

#[cfg(test)]
mod tests;
