//! The clients of this node, for `CLIENT LIST` and `CLIENT KILL`: touched when they come, go or
//! name themselves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed,
};
use std::sync::{Arc, Mutex};

use base::Nanos;
use commands::CommandSpec;
use node::session::Socket;
use types::SessionId;

use crate::counts::Counts;

/// Facts of a client that others may see.
#[derive(Clone, Debug)]
pub(crate) struct ClientFacts {
    pub id: SessionId,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub name: String,
    pub library: String,
    pub library_version: String,
    pub database: u8,
    pub protocol: u8,
    pub since: Option<Nanos>,
    pub activity: Arc<Activity>,
    pub kill: Arc<AtomicBool>,
}

/// A client's last request: written by its session, without a lock.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Nanoseconds on the clock of `now`; 0 before anything was said.
    at: AtomicU64,
    /// The address of the command's row; 0 before the first.
    command: AtomicUsize,
    /// Bytes of the arguments of requests under way.
    asked_len: AtomicU64,
    /// Bits of [`State`].
    state: AtomicU8,
    socket: SocketFacts,
    /// It waits for the end of a pause, or in `WAIT`.
    is_blocked: AtomicBool,
}

/// Buffers of a connection, as its shell tells.
#[derive(Debug, Default)]
struct SocketFacts {
    descriptor: AtomicI32,
    input_len: AtomicU64,
    input_room: AtomicU64,
    output_len: AtomicU64,
    output_room: AtomicU64,
    output_peak: AtomicU64,
}

/// A client's part in `CLIENT LIST` beside its requests.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct State {
    pub is_monitor: bool,
    pub is_in_transaction: bool,
    pub is_closing: bool,
}

/// Bytes that a session takes beside its buffers, about.
const SESSION_LEN: u64 = 1_024;
/// Bytes of replies that Redis counts apart from its list of them.
const REPLY_BLOCK: u64 = 16 << 10;

impl Activity {
    pub(crate) fn touch(&self, now: Nanos) {
        self.at.store(now.0, Relaxed);
    }

    /// Notes a session's state after a step.
    pub(crate) fn note(&self, state: State, asked_len: usize, written: usize) {
        let State { is_monitor, is_in_transaction, is_closing } = state;
        let bits =
            u8::from(is_monitor) | u8::from(is_in_transaction) << 1 | u8::from(is_closing) << 2;
        self.state.store(bits, Relaxed);
        self.asked_len.store(asked_len as u64, Relaxed);
        if written as u64 > self.output_peak() {
            self.socket.output_peak.store(written as u64, Relaxed);
        }
    }

    pub(crate) fn note_socket(&self, socket: &Socket) {
        let facts = &self.socket;
        facts.descriptor.store(socket.descriptor, Relaxed);
        facts.input_len.store(socket.input.0 as u64, Relaxed);
        facts.input_room.store(socket.input.1 as u64, Relaxed);
        facts.output_len.store(socket.output.0 as u64, Relaxed);
        facts.output_room.store(socket.output.1 as u64, Relaxed);
    }

    fn state(&self) -> State {
        let bits = self.state.load(Relaxed);
        let (is_monitor, is_in_transaction) = (bits & 1 != 0, bits & 2 != 0);
        State { is_monitor, is_in_transaction, is_closing: bits & 4 != 0 }
    }

    /// Bytes that were received and wait to be taken as requests.
    pub(crate) fn input_len(&self) -> u64 {
        self.socket.input_len.load(Relaxed)
    }

    /// The most bytes of replies that one step left for the client.
    pub(crate) fn output_peak(&self) -> u64 {
        self.socket.output_peak.load(Relaxed)
    }

    /// Bytes that the connection takes, about.
    pub(crate) fn memory(&self) -> u64 {
        let socket = &self.socket;
        let buffers = socket.input_room.load(Relaxed) + socket.output_room.load(Relaxed);
        SESSION_LEN + buffers + self.asked_len.load(Relaxed)
    }

    /// When the client sent something last; 0 before it did.
    pub(crate) fn at(&self) -> Nanos {
        Nanos(self.at.load(Relaxed))
    }

    /// True if it was not so before.
    pub(crate) fn set_blocked(&self, is_blocked: bool) -> bool {
        self.is_blocked.swap(is_blocked, Relaxed) != is_blocked
    }

    pub(crate) fn called(&self, spec: &'static CommandSpec) {
        self.command.store(std::ptr::from_ref(spec).addr(), Relaxed);
    }
}

#[derive(Default)]
pub(crate) struct Clients {
    by_id: Mutex<BTreeMap<u64, ClientFacts>>,
    blocked: AtomicUsize,
}

impl Clients {
    pub(crate) fn put(&self, facts: &ClientFacts) {
        if let Ok(mut clients) = self.by_id.lock()
            && !facts.kill.load(Relaxed)
        {
            clients.insert(facts.id.0, facts.clone());
        }
    }

    pub(crate) fn remove(&self, id: SessionId) {
        if let Ok(mut clients) = self.by_id.lock() {
            clients.remove(&id.0);
        }
    }

    /// Clients that are connected; a killed one is not, from the moment on at which it was killed.
    pub(crate) fn count(&self) -> usize {
        self.by_id.lock().map(|clients| clients.len()).unwrap_or_default()
    }

    /// Clients that wait for the end of a pause, or in `WAIT`.
    pub(crate) fn blocked(&self) -> usize {
        self.blocked.load(Relaxed)
    }

    /// A session began or ended to be blocked.
    pub(crate) fn note_blocked(&self, activity: &Activity, is_blocked: bool) {
        match (activity.set_blocked(is_blocked), is_blocked) {
            (false, _) => {}
            (true, true) => drop(self.blocked.fetch_add(1, Relaxed)),
            (true, false) => drop(self.blocked.fetch_sub(1, Relaxed)),
        }
    }

    pub(crate) fn all(&self) -> Vec<ClientFacts> {
        self.by_id.lock().map(|clients| clients.values().cloned().collect()).unwrap_or_default()
    }

    /// Marks the clients that fit: they are not listed any more, and each ends with the next step
    /// of its session. Returns how many.
    pub(crate) fn kill(&self, fits: impl Fn(&ClientFacts) -> bool) -> usize {
        let Ok(mut clients) = self.by_id.lock() else { return 0 };
        let known = clients.len();
        clients.retain(|_, facts| {
            let is_wanted = fits(facts);
            if is_wanted {
                facts.kill.store(true, Relaxed);
            }
            !is_wanted
        });
        known - clients.len()
    }
}

impl ClientFacts {
    /// Seconds since the client connected.
    pub(crate) fn age(&self, now: Nanos) -> u64 {
        self.since.map_or(0, |since| now.since(since).as_millis() / 1_000)
    }

    /// Seconds since the client sent something.
    fn idle(&self, now: Nanos) -> u64 {
        let last = match self.activity.at.load(Relaxed) {
            0 => self.since.unwrap_or(now),
            at => Nanos(at),
        };
        now.since(last).as_millis() / 1_000
    }

    /// Letters of Redis: `O` monitors, `x` is in a transaction, `b` waits, `c` closes; `N` is none
    /// of these.
    fn flags(&self) -> String {
        let state = self.activity.state();
        let letters = [
            (state.is_monitor, 'O'),
            (state.is_in_transaction, 'x'),
            (self.activity.is_blocked.load(Relaxed), 'b'),
            (state.is_closing, 'c'),
        ];
        let flags: String =
            letters.iter().filter(|(is, _)| *is).map(|(_, letter)| letter).collect();
        if flags.is_empty() { "N".into() } else { flags }
    }

    /// One line of `CLIENT LIST`.
    pub(crate) fn line(&self, now: Nanos, counts: &Counts) -> String {
        let (age, idle) = (self.age(now), self.idle(now));
        let command = counts.name_at(self.activity.command.load(Relaxed)).unwrap_or("NULL");
        let socket = &self.activity.socket;
        let load = |number: &AtomicU64| number.load(Relaxed);
        let (qbuf, room) = (load(&socket.input_len), load(&socket.input_room));
        let (unread, rbs) = (load(&socket.output_len), load(&socket.output_room));
        let obl = unread.min(REPLY_BLOCK);
        let omem = unread - obl;
        let events = if unread > 0 { "rw" } else { "r" };
        format!(
            "id={} addr={} laddr={} fd={} name={} age={age} idle={idle} flags={} db={} sub=0 psub=0 ssub=0 \
             multi={} watch=0 qbuf={qbuf} qbuf-free={} argv-mem={} multi-mem=0 rbs={rbs} rbp={} obl={obl} \
             oll={} omem={omem} tot-mem={} events={events} cmd={command} user=default redir=-1 resp={} lib-name={} \
             lib-ver={}",
            self.id,
            self.peer,
            self.local,
            socket.descriptor.load(Relaxed),
            self.name,
            self.flags(),
            self.database,
            if self.activity.state().is_in_transaction { 0 } else { -1 },
            room.saturating_sub(qbuf),
            load(&self.activity.asked_len),
            self.activity.output_peak(),
            omem.div_ceil(REPLY_BLOCK),
            self.activity.memory(),
            self.protocol,
            self.library,
            self.library_version
        )
    }
}
