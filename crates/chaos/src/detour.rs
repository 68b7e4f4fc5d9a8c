//! A proxy that delays traffic between nodes, for hosts whose kernel cannot.
//!
//! The network's rules lead new connections of a pair here; the proxy forwards data later, in
//! order.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base::Prng;

use crate::links::{HUB, PEER_PORT, address};

/// Pieces under way on one direction of a connection; then the sender waits.
const PIECES_MAX: usize = 4_096;
const PIECE_BYTES: usize = 16 * 1024;
const CONNECT_MAX: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);

/// How long a piece takes, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delay {
    pub least_ms: u64,
    pub most_ms: u64,
}

/// Connections that lead through here; they end with this value.
pub struct Detours {
    /// The port of each pair (dialler, target).
    pub ports: BTreeMap<(usize, usize), u16>,
    shared: Arc<DetourState>,
    acceptors: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct DetourState {
    is_over: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Detours {
    /// Opens one for each pair.
    ///
    /// # Errors
    /// When there is no port to listen on.
    pub fn open(pairs: &[(usize, usize)], delay: Delay, rng: &mut Prng) -> Result<Detours> {
        let mut detours =
            Detours { ports: BTreeMap::new(), shared: Arc::default(), acceptors: Vec::new() };
        for &(from, to) in pairs {
            let listener = TcpListener::bind((HUB, 0)).context("a port for a detour")?;
            listener.set_nonblocking(true).context("a detour")?;
            detours.ports.insert((from, to), listener.local_addr().context("a detour")?.port());
            let target = SocketAddr::from((address(to), PEER_PORT));
            let (shared, rng) = (detours.shared.clone(), rng.fork());
            let accept = move || accept(&listener, target, delay, rng, &shared);
            detours.acceptors.push(std::thread::spawn(accept));
        }
        Ok(detours)
    }
}

impl Drop for Detours {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for acceptor in self.acceptors.drain(..) {
            let _ = acceptor.join(); // an acceptor that panicked has ended as well
        }
        let streams = self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in streams.iter() {
            let _ = stream.shutdown(Shutdown::Both); // the connection may have closed
        }
    }
}

fn accept(
    listener: &TcpListener,
    target: SocketAddr,
    delay: Delay,
    mut rng: Prng,
    shared: &DetourState,
) {
    while !shared.is_over.load(Ordering::Relaxed) {
        let Ok((inward, _)) = listener.accept() else {
            std::thread::sleep(POLL);
            continue;
        };
        // A target that does not answer: hang up, and the dialler tries again.
        let Ok(outward) = TcpStream::connect_timeout(&target, CONNECT_MAX) else { continue };
        // Both fail only on a connection that has ended.
        let _ = join(&inward, &outward, delay, &mut rng);
        let mut streams = shared.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.extend([inward, outward]);
    }
}

fn join(
    inward: &TcpStream,
    outward: &TcpStream,
    delay: Delay,
    rng: &mut Prng,
) -> std::io::Result<()> {
    inward.set_nonblocking(false)?;
    for (from, to) in [(inward, outward), (outward, inward)] {
        to.set_nodelay(true)?;
        let (from, to, rng) = (from.try_clone()?, to.try_clone()?, rng.fork());
        let (sender, receiver) = sync_channel(PIECES_MAX);
        std::thread::spawn(move || read(from, delay, rng, &sender));
        std::thread::spawn(move || write(to, &receiver));
    }
    Ok(())
}

type DelayedData = (Instant, Vec<u8>);

fn read(mut from: TcpStream, delay: Delay, mut rng: Prng, sender: &SyncSender<DelayedData>) {
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let wait = Duration::from_millis(rng.between(delay.least_ms, delay.most_ms));
        if sender.send((Instant::now() + wait, buffer[..count].to_vec())).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both); // the connection may have closed
}

fn write(mut to: TcpStream, receiver: &Receiver<DelayedData>) {
    while let Ok((due, bytes)) = receiver.recv() {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both); // the connection may have closed
}
