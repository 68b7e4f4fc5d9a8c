//! Sessions inside nodes that make requests of their own.
//!
//! A session belongs to one worker, as the session of a client does, and makes its requests on the
//! worker's thread. It has one request in progress at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Nanos, Prng};
use commands::Plan;
use node::session::{Client, Session, SessionContext, SessionFactory, Token};
use types::{Clock, Command, Database, Outcome, Reply};

use super::Reads;
use super::samples::{Ended, Sample};
use super::values::{WriteId, key_bytes, read_value, write_value};
use super::window::{CHECKED_EVERY, CHECKED_KEYS, Counters, Load, Mix, Window, Work};

/// Pause of a session after a failed request, and after one that may not begin yet.
const BACK_OFF: u64 = 2_000_000;

/// Time between two steps of a session without outcomes, at least.
const STEP_MIN: u64 = 50_000;

/// Makes the sessions of one node.
pub(super) struct LoadFactory {
    pub(super) load: Arc<Load>,
    /// The node's place among all nodes.
    pub(super) node: usize,
}

impl SessionFactory for LoadFactory {
    fn accept(&self, client: &Client) -> Box<dyn Session> {
        let (number, counters) = self.load.join();
        let place = Place { node: self.node, worker: client.worker };
        Box::new(LoadSession::new(Arc::clone(&self.load), number, counters, place))
    }

    fn too_many(&self) -> &'static [u8] {
        b""
    }
}

/// The request of a session.
#[derive(Clone, Copy)]
enum Request {
    /// The next one is due then. It is late if the one before made it wait.
    Next {
        due: u64,
        is_late: bool,
    },
    Running(InProgress),
}

#[derive(Clone, Copy)]
struct InProgress {
    key: u64,
    write: Option<WriteId>,
    is_checked: bool,
    /// When it was due, if it was late; else when it began.
    since: u64,
    invoked: u64,
    /// None: as soon as this one has ended.
    next_due: Option<u64>,
}

/// Of a request that begins.
struct Times {
    due: u64,
    /// Its latency counts from here.
    since: u64,
    now: u64,
}

/// The thread that runs a session.
#[derive(Clone, Copy)]
struct Place {
    node: usize,
    worker: usize,
}

struct LoadSession {
    load: Arc<Load>,
    number: u32,
    counters: Arc<Counters>,
    place: Place,
    rng: Prng,
    /// The number of `window`.
    seen: u64,
    window: Option<Arc<Window>>,
    request: Request,
    /// The earliest step that was asked for.
    wakes_at: u64,
    /// The next key of those that are this session's to fill.
    next_fill: u64,
    /// The key of a failed request that fills or settles.
    refill: Option<u64>,
    samples: Vec<Sample>,
    get: Command,
    value: Vec<u8>,
}

impl Session for LoadSession {
    fn on_bytes(&mut self, input: &[u8], _cx: &mut SessionContext<'_>) -> usize {
        input.len()
    }

    fn on_outcome(&mut self, _token: Token, outcome: Outcome, cx: &mut SessionContext<'_>) {
        let now = node::monotonic();
        self.end(outcome, now);
        self.go_on(now, cx);
    }

    fn on_timer(&mut self, cx: &mut SessionContext<'_>) {
        let now = node::monotonic();
        if self.load.number() != self.seen && !self.is_running() {
            self.enter(now);
        }
        self.wakes_at = u64::MAX;
        self.go_on(now, cx);
    }

    fn wants_close(&self) -> bool {
        false
    }
}

impl LoadSession {
    fn new(load: Arc<Load>, number: u32, counters: Arc<Counters>, place: Place) -> LoadSession {
        let rng = Prng::new(load.seed ^ u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        LoadSession {
            number,
            counters,
            place,
            rng,
            seen: 0,
            window: None,
            request: Request::Next { due: u64::MAX, is_late: false },
            wakes_at: u64::MAX,
            next_fill: 0,
            refill: None,
            samples: Vec::new(),
            get: command(&[b"GET", b"k"]),
            value: vec![0; load.value_len],
            load,
        }
    }

    fn is_running(&self) -> bool {
        matches!(self.request, Request::Running(_))
    }

    /// Begins the current window.
    fn enter(&mut self, now: u64) {
        self.seen = self.load.number();
        self.window = self.load.window();
        self.next_fill = u64::from(self.number);
        let mut pause = 0;
        let mut is_silent = false;
        match self.window.as_deref().map(|window| &window.work) {
            Some(Work::Requests { mix, .. }) => {
                pause = mix.pause.map_or(0, |pause| pause.as_nanos() as u64);
                is_silent = mix.only_node.is_some_and(|node| node != self.place.node);
                self.get.access = mix.reads.access();
            }
            Some(Work::Settle { .. }) => self.get.access = Reads::Linearizable.access(),
            Some(Work::Fill { .. }) | None => {}
        }
        let due = if is_silent { u64::MAX } else { now + self.rng.below(pause.max(1)) };
        self.request = Request::Next { due, is_late: false };
    }

    /// Begins the next request if it is due, and asks for a step when it will be.
    fn go_on(&mut self, now: u64, cx: &mut SessionContext<'_>) {
        self.begin(now, cx);
        self.wake(now, cx);
        self.finish();
    }

    /// Hands the results over once the window has ended and no request is in progress.
    fn finish(&mut self) {
        let Some(window) = self.window.as_ref().filter(|_| !self.is_running()) else { return };
        let is_done = match window.work {
            Work::Fill { keys } | Work::Settle { keys } => {
                self.next_fill >= keys && self.refill.is_none()
            }
            Work::Requests { .. } => false,
        };
        if is_done || window.is_over.load(Ordering::Acquire) {
            window.bring(std::mem::take(&mut self.samples));
            self.window = None;
        }
    }

    fn begin(&mut self, now: u64, cx: &mut SessionContext<'_>) {
        let Request::Next { due, is_late } = self.request else { return };
        if due > now {
            return;
        }
        let Some(window) = self.window.clone() else { return };
        if window.is_over.load(Ordering::Acquire) {
            return;
        }
        // The shell asks sessions of clients to hold writes back then, too.
        if !cx.takes_writes() || !cx.has_room() {
            return self.put_off(now);
        }
        // A session that slept has waited for the clock of the event loop, which is no latency.
        let since = if is_late { due } else { now };
        self.ask(&window, Times { due, since, now }, cx);
    }

    fn put_off(&mut self, now: u64) {
        self.request = Request::Next { due: now + BACK_OFF, is_late: false };
    }

    /// Asks for a step when the next request is due, unless there is one earlier.
    fn wake(&mut self, now: u64, cx: &mut SessionContext<'_>) {
        let Request::Next { due, .. } = self.request else { return };
        if due < self.wakes_at && self.window.is_some() {
            self.wakes_at = due;
            // A step that is due at once would keep the event loop from everything else.
            let after = due.saturating_sub(now).max(STEP_MIN);
            cx.wake_at(Nanos(cx.moment.0.saturating_add(after)));
        }
    }

    fn ask(
        &mut self,
        window: &Window,
        Times { due, since, now }: Times,
        cx: &mut SessionContext<'_>,
    ) {
        let Some(positions) = cx.positions() else { return self.put_off(now) };
        let Some((key, is_write, is_checked)) = self.draw(window) else {
            self.request = Request::Next { due: u64::MAX, is_late: false };
            return;
        };
        let position = positions.key(&key_bytes(key));
        let (write, command) = match is_write {
            true => {
                let sequence = Counters::add(&self.counters.writes_begun);
                let write = WriteId::new(self.number, sequence);
                write_value(&mut self.value, key, write);
                (Some(write), command(&[b"SET", b"k", &self.value]))
            }
            false => (None, self.get.clone()),
        };
        let next_due = match &window.work {
            // Arrivals are a Poisson process.
            Work::Requests { mix: Mix { pause: Some(pause), .. }, .. } => {
                let pause = pause.as_nanos() as f64 * -(1.0 - self.rng.unit()).ln();
                Some(due + pause as u64)
            }
            _ => None,
        };
        let invoked = node::monotonic();
        self.request =
            Request::Running(InProgress { key, write, is_checked, since, invoked, next_due });
        cx.run(Token(0), Database(0), position, command);
    }

    /// Key, whether to write it, and whether it is a checked one. None: the work is done.
    fn draw(&mut self, window: &Window) -> Option<(u64, bool, bool)> {
        match &window.work {
            Work::Fill { keys } => {
                if let Some(key) = self.refill.take() {
                    return Some((key, true, false));
                }
                let key = self.next_fill;
                self.next_fill += window.counters.len() as u64;
                (key < *keys).then_some((key, true, false))
            }
            Work::Settle { keys } => {
                if let Some(key) = self.refill.take() {
                    return Some((key, false, false));
                }
                let key = std::mem::replace(&mut self.next_fill, u64::MAX);
                (key < *keys).then_some((key, false, false))
            }
            Work::Requests { draws, mix } => {
                let is_write = self.rng.below(100) < u64::from(mix.writes);
                if self.rng.below(CHECKED_EVERY) == 0 {
                    let at = self.rng.below(CHECKED_KEYS as u64);
                    if window.takes_checked(at as usize) {
                        return Some((window.checked_from + at, is_write, true));
                    }
                }
                Some((draws.draw(&mut self.rng), is_write, false))
            }
        }
    }

    fn end(&mut self, outcome: Outcome, now: u64) {
        let Request::Running(request) = self.request else {
            return self.load.note_wrong("a second outcome of one request".to_string());
        };
        let ended = self.judge(&request, outcome, now);
        let has_failed = matches!(ended, Ended::Failed { .. } | Ended::Unknown);
        if request.is_checked {
            self.samples.push(Sample {
                client: u64::from(self.number),
                key: request.key,
                write: request.write,
                invoked: request.invoked,
                ended,
            });
        }
        let due = request.next_due.unwrap_or(now);
        self.request = match has_failed {
            true => Request::Next { due: due.max(now + BACK_OFF), is_late: false },
            // This request made the next one wait.
            false => Request::Next { due, is_late: due < now },
        };
        let Some(window) = &self.window else { return };
        if has_failed {
            Counters::add(&self.counters.failed);
            if let Work::Fill { .. } | Work::Settle { .. } = window.work {
                self.refill = Some(request.key);
            }
        } else {
            Counters::add(&self.counters.succeeded);
            if request.write.is_none() {
                Counters::add(&self.counters.reads);
            }
            if window.is_measured.load(Ordering::Relaxed) {
                let place = self.load.lane(self.place.node, self.place.worker);
                window.record(place, now.saturating_sub(request.since));
            }
        }
    }

    /// The end of a request, and whether its reply may be right.
    fn judge(&mut self, request: &InProgress, outcome: Outcome, at: u64) -> Ended {
        let key = request.key;
        match (outcome, request.write) {
            (Outcome::Reply(Reply::Simple(text)), Some(_)) if text == "OK" => Ended::Written { at },
            (Outcome::Reply(Reply::Null), None) if request.is_checked => {
                Ended::Read { found: None, at }
            }
            (Outcome::Reply(Reply::Bulk(value)), None) => {
                match read_value(&value, key, self.load.value_len) {
                    Ok(write) if self.has_begun(write) => Ended::Read { found: Some(write), at },
                    Ok(write) => self.wrong(key, &format!("a write that never began: {write:?}")),
                    Err(text) => self.wrong(key, &text),
                }
            }
            (Outcome::NoQuorum, _) => self.failed("NoQuorum", Ended::Failed { at }),
            (Outcome::Loading, _) => self.failed("Loading", Ended::Failed { at }),
            (Outcome::Unknown, _) => self.failed("Unknown", Ended::Unknown),
            (Outcome::Unsupported(protocol), _) => {
                self.failed(&format!("Unsupported by {protocol}"), Ended::Failed { at })
            }
            (other, _) => self.wrong(key, &format!("{other:?}")),
        }
    }

    fn has_begun(&self, write: WriteId) -> bool {
        let all = self.window.as_ref().map(|window| &window.counters[..]).unwrap_or_default();
        all.get(write.session()).is_some_and(|counters| {
            (1..=counters.writes_begun.load(Ordering::Acquire)).contains(&write.sequence())
        })
    }

    fn wrong(&self, key: u64, text: &str) -> Ended {
        self.load.note_wrong(format!("key {key} gave {text}"));
        Ended::Unknown
    }

    fn failed(&self, kind: &str, ended: Ended) -> Ended {
        self.load.note_failed(kind.to_string());
        ended
    }
}

/// The command of these words, as the command table makes it.
fn command(words: &[&[u8]]) -> Command {
    let clock = Clock { unix: base::Millis(0), seed: 0 };
    match commands::plan(words, clock) {
        Ok((_, Plan::Key { command, .. })) => command,
        other => panic!("GET and SET are commands on one key: {other:?}"),
    }
}
