//! The clients of this node, for `CLIENT LIST` and `CLIENT KILL`: touched when they come, go or say who they are.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use base::Nanos;
use types::SessionId;

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
    pub kill: Arc<AtomicBool>,
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

    /// One line of `CLIENT LIST`.
    pub(crate) fn line(&self, now: Nanos) -> String {
        let age = self.age(now);
        format!(
            "id={} addr={} laddr={} fd=0 name={} age={age} idle=0 flags=N db={} sub=0 psub=0 ssub=0 \
             multi=-1 watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 \
             oll=0 omem=0 tot-mem=0 events=r cmd=client user=default redir=-1 resp={} lib-name={} lib-ver={}",
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
