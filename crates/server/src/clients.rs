//! The clients of this node, for `CLIENT LIST` and `CLIENT KILL`: touched when they come, go or say who they are.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use base::Nanos;
use commands::CommandSpec;
use types::SessionId;

use crate::counts::Counts;

/// What others may know of a client.
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

/// What a client did last: written by its session for every request, without a lock.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Nanoseconds on the clock of `now`; 0 before anything was said.
    at: AtomicU64,
    /// The address of the command's row; 0 before the first.
    command: AtomicUsize,
}

impl Activity {
    pub(crate) fn touch(&self, now: Nanos) {
        self.at.store(now.0, Relaxed);
    }

    pub(crate) fn called(&self, spec: &'static CommandSpec) {
        self.command.store(std::ptr::from_ref(spec).addr(), Relaxed);
    }
}

#[derive(Default)]
pub(crate) struct Clients {
    by_id: Mutex<BTreeMap<u64, ClientFacts>>,
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

    pub(crate) fn all(&self) -> Vec<ClientFacts> {
        self.by_id.lock().map(|clients| clients.values().cloned().collect()).unwrap_or_default()
    }

    /// Asks the clients that fit to be closed; each is within about a second, and is
    /// not listed any more. Returns how many.
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

    /// Seconds since the client said something.
    fn idle(&self, now: Nanos) -> u64 {
        let last = match self.activity.at.load(Relaxed) {
            0 => self.since.unwrap_or(now),
            at => Nanos(at),
        };
        now.since(last).as_millis() / 1_000
    }

    /// One line of `CLIENT LIST`.
    pub(crate) fn line(&self, now: Nanos, counts: &Counts) -> String {
        let (age, idle) = (self.age(now), self.idle(now));
        let command = counts.name_at(self.activity.command.load(Relaxed)).unwrap_or("NULL");
        format!(
            "id={} addr={} laddr={} fd=0 name={} age={age} idle={idle} flags=N db={} sub=0 psub=0 ssub=0 \
             multi=-1 watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 \
             oll=0 omem=0 tot-mem=0 events=r cmd={command} user=default redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.peer,
            self.local,
            self.name,
            self.database,
            self.protocol,
            self.library,
            self.library_version
        )
    }
}
