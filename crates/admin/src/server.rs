//! The HTTP server: few connections, none of them for long without a use.
//!
//! Monitoring keeps some connections open, and a hostile client as many as it may. So their number
//! is bounded, the connection that has waited longest for a request makes way for a new one, and
//! half a request ends soon.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Connections at a time.
pub const CONNECTIONS_MAX: usize = 64;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    /// From the first byte of a request to the end of its head.
    pub(crate) head: Duration,
    /// Without any byte, in either direction. Longer than a scraper's usual pause of 15 to 60
    /// seconds.
    pub(crate) idle: Duration,
}

impl Limits {
    pub(crate) const DEFAULT: Limits = Limits {
        connections: CONNECTIONS_MAX,
        head: Duration::from_secs(10),
        idle: Duration::from_secs(75),
    };
}

/// Bytes of a request's head at most.
const BUFFER_LEN: usize = 16 << 10;

/// When the system asks a silent client whether it is there, and how often it asks again.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_AGAIN: Duration = Duration::from_secs(10);

/// Pause after a failed accept, most likely for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until the returned future is dropped.
pub(crate) async fn serve(listener: TcpListener, router: Router, limits: Limits) {
    let connections = Arc::new(Connections::default());
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                connections.make_room(limits.connections);
                let connection = connections.add();
                keep_alive(&stream);
                let service = router.clone();
                let connections = Arc::clone(&connections);
                tokio::spawn(async move {
                    converse(stream, peer, service, &connection, limits).await;
                    connections.remove(&connection);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

fn keep_alive(stream: &TcpStream) {
    let wanted = socket2::TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE_AGAIN);
    // An error means that the connection is gone, which its first read tells, too.
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&wanted);
    let _ = stream.set_nodelay(true);
}

/// Answers the requests of one connection until either side ends it.
async fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    connection: &Arc<Connection>,
    limits: Limits,
) {
    let io = TokioIo::new(Watched { stream, connection: Arc::clone(connection) });
    let pages = TowerToHyperService::new(router);
    let service = service_fn(|mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        connection.note(Phase::Serving);
        let answer = pages.call(request);
        async {
            let answer = answer.await;
            connection.note(Phase::Waiting);
            answer
        }
    });
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BUFFER_LEN).header_read_timeout(None);
    let mut serving = std::pin::pin!(builder.serve_connection(io, service));
    loop {
        let deadline = connection.deadline(limits);
        tokio::select! {
            _ = &mut serving => return,
            () = connection.evicted.notified() => return,
            // A request has begun, which must end sooner.
            () = connection.begun.notified() => {}
            () = tokio::time::sleep_until(deadline) => {
                if connection.deadline(limits) <= Instant::now() {
                    return;
                }
            }
        }
    }
}

/// State of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No byte of the next request has arrived.
    Waiting,
    /// Some bytes of it have.
    Reading,
    /// An answer is being made.
    Serving,
}

#[derive(Debug)]
struct Connection {
    state: Mutex<State>,
    evicted: Notify,
    begun: Notify,
}

#[derive(Clone, Copy, Debug)]
struct State {
    phase: Phase,
    /// When the phase began.
    since: Instant,
    /// When it began to wait for the request that it reads or waits for.
    asked_at: Instant,
    /// The last byte in either direction.
    moved_at: Instant,
}

impl Connection {
    fn new(now: Instant) -> Connection {
        let state = State { phase: Phase::Waiting, since: now, asked_at: now, moved_at: now };
        Connection { state: Mutex::new(state), evicted: Notify::new(), begun: Notify::new() }
    }

    fn note(&self, phase: Phase) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        (state.phase, state.since, state.moved_at) = (phase, now, now);
        if phase == Phase::Waiting {
            state.asked_at = now;
        }
    }

    fn has_read(&self) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        state.moved_at = now;
        if state.phase == Phase::Waiting {
            (state.phase, state.since) = (Phase::Reading, now);
            self.begun.notify_one();
        }
    }

    fn has_written(&self) {
        lock(&self.state).moved_at = Instant::now();
    }

    fn deadline(&self, limits: Limits) -> Instant {
        let state = *lock(&self.state);
        match state.phase {
            Phase::Waiting | Phase::Serving => state.moved_at + limits.idle,
            Phase::Reading => state.since + limits.head,
        }
    }
}

/// The connections that are open.
#[derive(Debug, Default)]
struct Connections(Mutex<Vec<Arc<Connection>>>);

impl Connections {
    fn add(&self) -> Arc<Connection> {
        let connection = Arc::new(Connection::new(Instant::now()));
        lock(&self.0).push(Arc::clone(&connection));
        connection
    }

    fn remove(&self, connection: &Arc<Connection>) {
        lock(&self.0).retain(|one| !Arc::ptr_eq(one, connection));
    }

    /// Ends the connections that have waited longest for a request, until one more has room.
    fn make_room(&self, most: usize) {
        let mut open = lock(&self.0);
        while open.len() >= most {
            let key = |at: &usize| {
                let state = lock(&open[*at].state);
                (state.phase == Phase::Serving, state.asked_at)
            };
            let Some(oldest) = (0..open.len()).min_by_key(key) else { return };
            open.swap_remove(oldest).evicted.notify_one();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // These locks guard plain values: whole after a panic, too.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream that notes when bytes move.
struct Watched {
    stream: TcpStream,
    connection: Arc<Connection>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.connection.has_read();
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.connection.has_written();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
