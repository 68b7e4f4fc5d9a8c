//! Sessions inside nodes that make requests of their own.
//!
//! A session belongs to one worker, as the session of a client does, and makes its requests on the
//! worker's thread. It has a number of slots with one request in progress each.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Nanos, Prng};
use commands::Plan;
use hdrhistogram::Histogram;
use node::session::{Client, Session, SessionContext, SessionFactory, Token};
use types::{Clock, Command, Database, Outcome, Reply};

use super::samples::{Ended, Sample};
use super::values::{WriteId, key_bytes, read_value, write_value};
use super::window::{CHECKED_EVERY, CHECKED_KEYS, Counters, Load, Window, Work};
use crate::report;

/// Pause of a slot after a failed request, and after one that may not begin yet.
const BACK_OFF: u64 = 2_000_000;

/// Time between two steps of a session without outcomes, at least.
const STEP_MIN: u64 = 50_000;

/// Makes the sessions of all nodes.
pub(super) struct LoadFactory(pub(super) Arc<Load>);

impl SessionFactory for LoadFactory {
    fn accept(&self, _client: &Client) -> Box<dyn Session> {
        let (number, counters) = self.0.join();
        Box::new(LoadSession::new(Arc::clone(&self.0), number, counters))
    }

    fn too_many(&self) -> &'static [u8] {
        b""
    }
}

/// A place for one request at a time.
#[derive(Clone, Copy)]
enum Slot {
    /// The next request is due then. It is late if the one before made it wait.
    Idle {
        due: u64,
        is_late: bool,
    },
    Busy(InProgress),
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

struct LoadSession {
    load: Arc<Load>,
    number: u32,
    counters: Arc<Counters>,
    /// Of all sessions.
    others: Vec<Arc<Counters>>,
    rng: Prng,
    /// The number of `window`.
    seen: u64,
    window: Option<Arc<Window>>,
    slots: Vec<Slot>,
    busy: usize,
    /// The earliest step that was asked for.
    wakes_at: u64,
    /// The next key to write of those that are this session's to fill.
    next_fill: u64,
    /// Keys that a failed request was to fill.
    refill: Vec<u64>,
    latencies: Histogram<u64>,
    samples: Vec<Sample>,
    get: Command,
    value: Vec<u8>,
}

impl Session for LoadSession {
    fn on_bytes(&mut self, input: &[u8], _cx: &mut SessionContext<'_>) -> usize {
        input.len()
    }

    fn on_outcome(&mut self, token: Token, outcome: Outcome, cx: &mut SessionContext<'_>) {
        let now = node::monotonic();
        let slot = token.0 as usize;
        self.end(slot, outcome, now);
        self.go_on(slot, now, cx);
        self.wake_for(slot..slot + 1, now, cx);
        self.finish();
    }

    fn on_timer(&mut self, cx: &mut SessionContext<'_>) {
        let now = node::monotonic();
        if self.load.number() != self.seen && self.busy == 0 {
            self.enter(now);
        }
        self.wakes_at = u64::MAX;
        for slot in 0..self.slots.len() {
            self.go_on(slot, now, cx);
        }
        self.wake_for(0..self.slots.len(), now, cx);
        self.finish();
    }

    fn wants_close(&self) -> bool {
        false
    }
}

impl LoadSession {
    fn new(load: Arc<Load>, number: u32, counters: Arc<Counters>) -> LoadSession {
        let rng = Prng::new(load.seed ^ u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        LoadSession {
            number,
            counters,
            others: Vec::new(),
            rng,
            seen: 0,
            window: None,
            slots: Vec::new(),
            busy: 0,
            wakes_at: u64::MAX,
            next_fill: 0,
            refill: Vec::new(),
            latencies: report::new_histogram(),
            samples: Vec::new(),
            get: command(&[b"GET", b"k"]),
            value: vec![0; load.value_len],
            load,
        }
    }

    /// Begins the current window.
    fn enter(&mut self, now: u64) {
        self.seen = self.load.number();
        self.window = self.load.window();
        self.others = self.load.counters();
        self.next_fill = u64::from(self.number);
        self.latencies.reset();
        let pause = match self.window.as_deref().map(|window| &window.work) {
            Some(Work::Requests { pause: Some(pause), .. }) => pause.as_nanos() as u64,
            _ => 0,
        };
        self.slots = (0..self.load.slots)
            .map(|_| Slot::Idle { due: now + self.rng.below(pause.max(1)), is_late: false })
            .collect();
    }

    /// Hands the results over once the window has ended and no request is in progress.
    fn finish(&mut self) {
        if self.busy > 0 {
            return;
        }
        let Some(window) = &self.window else { return };
        let is_filled = match window.work {
            Work::Fill { keys } => self.next_fill >= keys && self.refill.is_empty(),
            Work::Requests { .. } => false,
        };
        if is_filled || window.is_over.load(Ordering::Acquire) {
            window.bring(&self.latencies, std::mem::take(&mut self.samples));
            self.window = None;
        }
    }

    /// Begins the next request of a slot that has none, if it is due.
    fn go_on(&mut self, slot: usize, now: u64, cx: &mut SessionContext<'_>) {
        let Some(Slot::Idle { due, is_late }) = self.slots.get(slot).copied() else { return };
        if due > now {
            return;
        }
        let Some(window) = self.window.clone() else { return };
        if window.is_over.load(Ordering::Acquire) {
            return;
        }
        // The shell asks sessions of clients to hold writes back then, too.
        if !cx.takes_writes() || !cx.has_room() {
            return self.put_off(slot, now);
        }
        // A slot that slept has waited for the clock of the event loop, which is not a latency.
        let since = if is_late { due } else { now };
        self.request(&window, slot, Times { due, since, now }, cx);
    }

    fn put_off(&mut self, slot: usize, now: u64) {
        self.slots[slot] = Slot::Idle { due: now + BACK_OFF, is_late: false };
    }

    /// Asks for a step when the first of these slots is due, unless there is one earlier.
    fn wake_for(&mut self, slots: Range<usize>, now: u64, cx: &mut SessionContext<'_>) {
        let due = |slot: &Slot| match *slot {
            Slot::Idle { due, .. } => Some(due),
            Slot::Busy(_) => None,
        };
        let first = self.slots.get(slots).into_iter().flatten().filter_map(due).min();
        if let Some(first) = first.filter(|&first| first < self.wakes_at && self.window.is_some()) {
            self.wakes_at = first;
            // A step that is due at once would keep the event loop from everything else.
            let after = first.saturating_sub(now).max(STEP_MIN);
            cx.wake_at(Nanos(cx.moment.0.saturating_add(after)));
        }
    }

    fn request(
        &mut self,
        window: &Window,
        slot: usize,
        Times { due, since, now }: Times,
        cx: &mut SessionContext<'_>,
    ) {
        let Some(positions) = cx.positions() else { return self.put_off(slot, now) };
        let Some((key, is_write, is_checked)) = self.draw(window) else {
            self.slots[slot] = Slot::Idle { due: u64::MAX, is_late: false };
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
            Work::Requests { pause: Some(pause), .. } => {
                let pause = pause.as_nanos() as f64 * -(1.0 - self.rng.unit()).ln();
                Some(due + pause as u64)
            }
            _ => None,
        };
        let invoked = node::monotonic();
        self.slots[slot] =
            Slot::Busy(InProgress { key, write, is_checked, since, invoked, next_due });
        self.busy += 1;
        cx.run(Token(slot as u64), Database(0), position, command);
    }

    /// Key, whether to write it, and whether it is a checked one. None: all keys are filled.
    fn draw(&mut self, window: &Window) -> Option<(u64, bool, bool)> {
        match &window.work {
            Work::Fill { keys } => {
                if let Some(key) = self.refill.pop() {
                    return Some((key, true, false));
                }
                let key = self.next_fill;
                self.next_fill += self.others.len() as u64;
                (key < *keys).then_some((key, true, false))
            }
            Work::Requests { draws, writes, .. } => {
                let is_write = self.rng.below(100) < u64::from(*writes);
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

    fn end(&mut self, slot: usize, outcome: Outcome, now: u64) {
        let Slot::Busy(request) = self.slots[slot] else {
            return self.load.note_wrong("a second outcome of one request".to_string());
        };
        self.busy -= 1;
        let ended = self.judge(&request, outcome, now);
        let has_failed = matches!(ended, Ended::Failed { .. } | Ended::Unknown);
        if request.is_checked {
            self.samples.push(Sample {
                client: u64::from(self.number) << 16 | slot as u64,
                key: request.key,
                write: request.write,
                invoked: request.invoked,
                ended,
            });
        }
        let Some(window) = &self.window else { return };
        if has_failed {
            Counters::add(&self.counters.failed);
            if let Work::Fill { .. } = window.work {
                self.refill.push(request.key);
            }
        } else {
            Counters::add(&self.counters.succeeded);
            if request.write.is_none() {
                Counters::add(&self.counters.reads);
            }
            if window.is_measured.load(Ordering::Relaxed) {
                let _ = self.latencies.record(now.saturating_sub(request.since).max(1));
            }
        }
        let due = request.next_due.unwrap_or(now);
        self.slots[slot] = match has_failed {
            true => Slot::Idle { due: due.max(now + BACK_OFF), is_late: false },
            // This request made the next one wait.
            false => Slot::Idle { due, is_late: due < now },
        };
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
        self.others.get(write.session()).is_some_and(|counters| {
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
