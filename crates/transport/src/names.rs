//! The addresses behind the names of the other members' hosts.
//!
//! A name service may take many seconds to answer. A thread of its own asks it, at most one per
//! member at a time, and the thread that dials never waits.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::panic::catch_unwind;
use std::sync::mpsc::{Receiver, Sender, channel};

use types::NodeId;

/// Asks the name service about `HOST:PORT`. Never returns an empty list.
pub(crate) type LookUp = fn(&str) -> io::Result<Vec<SocketAddr>>;

/// Runs a look-up on a thread of its own.
type Spawn = fn(Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// The name that was asked about, and its addresses.
type Answer = (NodeId, String, io::Result<Vec<SocketAddr>>);

pub(crate) struct Names {
    /// `HOST:PORT` of each member.
    names: BTreeMap<NodeId, String>,
    look_up: LookUp,
    spawn: Spawn,
    known: BTreeMap<NodeId, Vec<SocketAddr>>,
    /// Why the last look-up failed, where that was not told yet.
    failures: BTreeMap<NodeId, io::Error>,
    under_way: BTreeSet<(NodeId, String)>,
    answers: (Sender<Answer>, Receiver<Answer>),
}

impl Names {
    pub(crate) fn new(names: BTreeMap<NodeId, String>, look_up: LookUp) -> Names {
        Names {
            names,
            look_up,
            spawn,
            known: BTreeMap::new(),
            failures: BTreeMap::new(),
            under_way: BTreeSet::new(),
            answers: channel(),
        }
    }

    /// Takes other names. All that is known of a former name is forgotten.
    pub(crate) fn set(&mut self, names: BTreeMap<NodeId, String>) {
        let is_same = |peer: &NodeId| names.get(peer) == self.names.get(peer);
        self.known.retain(|peer, _| is_same(peer));
        self.failures.retain(|peer, _| is_same(peer));
        self.names = names;
    }

    /// The newest addresses that are known. Each call has the name looked up anew: hosts move.
    ///
    /// # Errors
    /// `WouldBlock` until the first look-up has ended. Unless an earlier look-up found any:
    /// `NotFound` once after each that found none, `Other` if no thread can be started.
    pub(crate) fn addresses(&mut self, peer: NodeId) -> io::Result<Vec<SocketAddr>> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no address of this member");
        let name = self.names.get(&peer).ok_or_else(missing)?;
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        let name = name.clone();
        self.take_answers();
        let failure = self.failures.remove(&peer);
        let started = self.start(peer, name);
        match (self.known.get(&peer), failure, started) {
            // The name service may be away: better than none.
            (Some(addresses), _, _) => Ok(addresses.clone()),
            (None, Some(failure), _) => Err(failure),
            // At the limit of threads the error is `WouldBlock`, which means a look-up under way.
            (None, None, Err(error)) => {
                let name = &self.names[&peer];
                Err(io::Error::other(format!("no thread can look up {name:?} ({error})")))
            }
            (None, None, Ok(())) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn take_answers(&mut self) {
        while let Ok((peer, name, answer)) = self.answers.1.try_recv() {
            let is_former = self.names.get(&peer) != Some(&name);
            self.under_way.remove(&(peer, name));
            match answer {
                _ if is_former => {}
                Ok(addresses) => drop(self.known.insert(peer, addresses)),
                Err(error) => drop(self.failures.insert(peer, error)),
            }
        }
    }

    fn start(&mut self, peer: NodeId, name: String) -> io::Result<()> {
        let asked = (peer, name.clone());
        if self.under_way.contains(&asked) {
            return Ok(());
        }
        let (answers, look_up) = (self.answers.0.clone(), self.look_up);
        let ask = move || {
            let panicked = |_| Err(io::Error::new(io::ErrorKind::NotFound, "the look-up panicked"));
            let answer = catch_unwind(|| look_up(&name)).unwrap_or_else(panicked);
            // The node may be gone when the answer comes.
            let _ = answers.send((peer, name, answer));
        };
        (self.spawn)(Box::new(ask))?;
        self.under_way.insert(asked);
        Ok(())
    }
}

fn spawn(ask: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    std::thread::Builder::new().name("names".to_string()).spawn(ask).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use super::*;

    const PEER: NodeId = NodeId(2);

    fn names(name: &str, look_up: LookUp) -> Names {
        Names::new([(PEER, name.to_string())].into(), look_up)
    }

    /// Asks until the look-up has ended.
    fn ask(names: &mut Names) -> io::Result<Vec<SocketAddr>> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match names.addresses(PEER) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert!(Instant::now() < end, "the answer never comes");
                    std::thread::yield_now();
                }
                known => return known,
            }
        }
    }

    #[test]
    fn numeric_address_needs_no_name_service() {
        let mut names = names("127.0.0.1:7", |_| panic!("it is a number"));
        assert_eq!(names.addresses(PEER).expect("it is known"), ["127.0.0.1:7".parse().unwrap()]);
        let unknown = names.addresses(NodeId(3)).expect_err("no member");
        assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
    }

    /// The dialling thread goes on while the name service is silent, and asks it once.
    #[test]
    fn silent_name_service_blocks_only_its_thread() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        static SILENCE: Mutex<()> = Mutex::new(());
        let silence = SILENCE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = names("far:7", |_| {
            ASKED.fetch_add(1, Ordering::SeqCst);
            let _answers = SILENCE.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(vec!["127.0.0.1:7".parse().unwrap()])
        });
        for _ in 0..100 {
            let error = names.addresses(PEER).expect_err("it is silent");
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
        assert!(ASKED.load(Ordering::SeqCst) <= 1);
        drop(silence);
        assert_eq!(ask(&mut names).expect("it answers").len(), 1);
    }

    #[test]
    fn failure_is_told_and_known_addresses_outlive_it() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let mut names = names("far:7", |_| match ASKED.fetch_add(1, Ordering::SeqCst) {
            1 => Ok(vec!["127.0.0.1:7".parse().unwrap()]),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "unknown")),
        });
        assert_eq!(ask(&mut names).expect_err("unknown").kind(), io::ErrorKind::NotFound);
        while ASKED.load(Ordering::SeqCst) < 4 {
            if let Err(error) = names.addresses(PEER) {
                let early = ASKED.load(Ordering::SeqCst) <= 2;
                assert!(early && error.kind() == io::ErrorKind::WouldBlock, "{error}");
            }
        }
        assert!(names.addresses(PEER).is_ok());
    }

    #[test]
    fn known_addresses_outlive_a_want_of_threads() {
        let mut names = names("far:7", |_| Ok(vec!["127.0.0.1:7".parse().unwrap()]));
        let none: Spawn = |_| Err(io::ErrorKind::WouldBlock.into());
        names.spawn = none;
        let error = names.addresses(PEER).expect_err("none is known");
        assert_eq!(error.kind(), io::ErrorKind::Other, "{error}");
        names.spawn = spawn;
        assert_eq!(ask(&mut names).expect("it answers").len(), 1);
        while !names.under_way.is_empty() {
            names.take_answers();
        }
        names.spawn = none;
        assert_eq!(names.addresses(PEER).expect("it is known").len(), 1);
    }

    #[test]
    fn answer_about_a_former_name_is_dropped() {
        static SILENCE: Mutex<()> = Mutex::new(());
        let silence = SILENCE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = names("old:7", |name| {
            if name == "old:7" {
                let _answers = SILENCE.lock().unwrap_or_else(PoisonError::into_inner);
                return Ok(vec!["127.0.0.1:7".parse().unwrap()]);
            }
            Ok(vec!["127.0.0.1:8".parse().unwrap()])
        });
        let error = names.addresses(PEER).expect_err("it is silent");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        names.set([(PEER, "new:8".to_string())].into());
        drop(silence);
        assert_eq!(ask(&mut names).expect("it answers"), ["127.0.0.1:8".parse().unwrap()]);
        while !names.under_way.is_empty() {
            names.take_answers();
        }
        assert_eq!(names.addresses(PEER).expect("known"), ["127.0.0.1:8".parse().unwrap()]);
        names.set([(PEER, "127.0.0.1:9".to_string())].into());
        assert_eq!(names.addresses(PEER).expect("known"), ["127.0.0.1:9".parse().unwrap()]);
    }

    #[test]
    fn look_up_that_panics_is_repeated() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let mut names = names("far:7", |_| {
            assert!(ASKED.fetch_add(1, Ordering::SeqCst) > 0, "the first one fails");
            Ok(vec!["127.0.0.1:7".parse().unwrap()])
        });
        assert_eq!(ask(&mut names).expect_err("it failed").kind(), io::ErrorKind::NotFound);
        assert_eq!(ask(&mut names).expect("it answers").len(), 1);
    }
}
