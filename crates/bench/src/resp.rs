//! A closed-loop load on servers that speak RESP, from one thread.
//!
//! Every connection has one packet in flight; the next leaves after the last reply to it.
//! A latency is the time from sending a packet to the reply in question.
//! One thread is enough for some hundred thousand commands a second, and leaves the other cores to
//! the servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::{Events, Poll, Token};

use crate::connection::{Connection, ReplyVerdict};
use crate::process::{self, Cpu};
use crate::report::{self, Gap, Latency, LoadReport};
use crate::workload::{self, Generator, Keys, Mix};
use crate::{Error, Result};

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunEnd {
    /// After this time of measuring.
    After(Duration),
    /// After this many commands, in whole packets, each answered or failed. Requires
    /// [`Config::timeout`] and no warm-up.
    Commands(u64),
}

/// The load.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connection *i* goes to address *i* modulo their number.
    pub addresses: Vec<SocketAddr>,
    pub connections: usize,
    /// Commands in one packet.
    pub pipeline: u32,
    pub mix: Mix,
    pub keys: Keys,
    pub value_bytes: usize,
    /// Appends `WAIT n` to each packet; its commands succeed when so many replicas have them.
    pub wait_replicas: Option<u32>,
    /// Time before the measured window, under full load.
    pub warm_up: Duration,
    pub stop: RunEnd,
    /// A packet without an answer by then fails, and its connection is replaced.
    pub timeout: Option<Duration>,
    /// Time between the last reply and the next packet of a connection.
    pub pause: Duration,
    pub password: Option<String>,
    /// Length of a slice of [`LoadReport::timelines`]; zero for none.
    pub slice: Duration,
    /// Processes of the servers, for their CPU time.
    pub server_pids: Vec<u32>,
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            addresses: Vec::new(),
            connections: 64,
            pipeline: 1,
            mix: Mix::SET,
            keys: Keys::Uniform { count: 100_000 },
            value_bytes: 32,
            wait_replicas: None,
            warm_up: Duration::from_millis(700),
            stop: RunEnd::After(Duration::from_secs(3)),
            timeout: None,
            pause: Duration::ZERO,
            password: None,
            slice: Duration::ZERO,
            server_pids: Vec::new(),
            seed: 1,
        }
    }
}

/// How long `WAIT` waits on the server before it gives up.
const WAIT_MS: u32 = 1_000;

/// Longest sleep without an event.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// Runs the load to its end. An unreachable server is a result, not an error.
///
/// # Errors
/// When the configuration is invalid, or a server refuses the password or does not speak RESP.
pub fn run(config: &Config) -> Result<LoadReport> {
    check(config)?;
    let mut run = LoadRun::new(config)?;
    while !run.is_over(Instant::now()) {
        run.turn()?;
    }
    Ok(run.finish())
}

/// Loading repeats commands of unknown outcome in at most this many passes over the keys.
const LOAD_PASSES: usize = 3;

/// Writes every key of `config.keys` with a value, as fast as it can, over the same connections.
///
/// # Errors
/// As for [`run`], and when commands still fail in the last pass.
pub fn load(config: &Config) -> Result<()> {
    let count = config.keys.count();
    let load = Config {
        mix: Mix { set: 1, get: 0, incr: 0 },
        keys: Keys::Sequential { count },
        pipeline: 16,
        wait_replicas: None,
        warm_up: Duration::ZERO,
        stop: RunEnd::Commands(count),
        pause: Duration::ZERO,
        timeout: Some(Duration::from_secs(10)),
        ..config.clone()
    };
    let mut errors = BTreeMap::new();
    for _ in 0..LOAD_PASSES {
        errors = run(&load)?.errors;
        if errors.is_empty() {
            return Ok(());
        }
    }
    Err(Error::Protocol(format!("loading {count} keys failed: {errors:?}")))
}

fn check(config: &Config) -> Result<()> {
    let wrong = |reason: &str| Err(Error::Usage(reason.to_string()));
    if config.addresses.is_empty() {
        return wrong("no address to connect to");
    }
    if config.connections == 0 || config.connections > 10_000 {
        return wrong("connections: 1 to 10000");
    }
    if config.pipeline == 0 || config.pipeline > 10_000 {
        return wrong("pipeline: 1 to 10000");
    }
    if matches!(config.stop, RunEnd::Commands(_)) && !config.warm_up.is_zero() {
        return wrong("a number of commands has no warm-up");
    }
    if config.keys.count() == 0 || config.mix.set + config.mix.get + config.mix.incr == 0 {
        return wrong("a workload needs a key and a verb");
    }
    Ok(())
}

/// Since when no command has succeeded, and the longest such span.
#[derive(Clone)]
struct Drought {
    since: Instant,
    longest: Duration,
}

impl Drought {
    fn new(now: Instant) -> Drought {
        Drought { since: now, longest: Duration::ZERO }
    }

    fn end(&mut self, now: Instant) {
        self.longest = self.longest.max(now.saturating_duration_since(self.since));
        self.since = now;
    }
}

/// Counters of the measured window.
struct Tally {
    started: Instant,
    latencies: Histogram<u64>,
    operations: u64,
    answered: u64,
    errors: BTreeMap<String, u64>,
    drought: Drought,
    /// By connection.
    droughts: Vec<Drought>,
    /// By address.
    address_droughts: Vec<Drought>,
    slice: Duration,
    /// By address and slice.
    timelines: Vec<Vec<u64>>,
    cpu: Cpu,
    own_cpu: Cpu,
}

impl Tally {
    fn new(config: &Config, now: Instant) -> Tally {
        Tally {
            started: now,
            latencies: report::new_histogram(),
            operations: 0,
            answered: 0,
            errors: BTreeMap::new(),
            drought: Drought::new(now),
            droughts: vec![Drought::new(now); config.connections],
            address_droughts: vec![Drought::new(now); config.addresses.len()],
            slice: config.slice,
            timelines: vec![Vec::new(); config.addresses.len()],
            cpu: process::cpu(&config.server_pids),
            own_cpu: process::cpu(&[std::process::id()]),
        }
    }

    fn succeed(&mut self, connection: usize, commands: u32, latency: Duration, now: Instant) {
        report::record(&mut self.latencies, latency, commands);
        self.operations += u64::from(commands);
        self.answered += u64::from(commands);
        self.drought.end(now);
        self.droughts[connection].end(now);
        let address = connection % self.address_droughts.len();
        self.address_droughts[address].end(now);
        if !self.slice.is_zero() {
            let passed = now.saturating_duration_since(self.started);
            let at = (passed.as_nanos() / self.slice.as_nanos()) as usize;
            let timeline = &mut self.timelines[address];
            if timeline.len() <= at {
                timeline.resize(at + 1, 0);
            }
            timeline[at] += u64::from(commands);
        }
    }

    fn fail(&mut self, commands: u32, kind: &str) {
        if commands == 0 {
            return;
        }
        self.answered += u64::from(commands);
        match self.errors.get_mut(kind) {
            Some(count) => *count += u64::from(commands),
            None => drop(self.errors.insert(kind.to_string(), u64::from(commands))),
        }
    }
}

struct LoadRun<'a> {
    config: &'a Config,
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    generator: Generator,
    scratch: Vec<u8>,
    tally: Tally,
    /// Commands sent.
    issued: u64,
    /// The window has begun.
    counting: bool,
    begin: Instant,
    /// The next time to check deadlines, pauses and lost connections.
    look_at: Instant,
}

impl<'a> LoadRun<'a> {
    fn new(config: &'a Config) -> Result<LoadRun<'a>> {
        let now = Instant::now();
        let auth = config.password.as_ref().map(|password| {
            let mut out = Vec::new();
            workload::write_command(&mut out, &[b"AUTH", password.as_bytes()]);
            out
        });
        let address = |i: usize| config.addresses[i % config.addresses.len()];
        let connection = |i| Connection::new(address(i), Token(i), auth.clone(), now);
        Ok(LoadRun {
            config,
            poll: Poll::new().map_err(Error::io("epoll"))?,
            events: Events::with_capacity(1024),
            connections: (0..config.connections).map(connection).collect(),
            generator: Generator::new(config.mix, config.keys, config.value_bytes, config.seed),
            scratch: vec![0; 256 * 1024],
            tally: Tally::new(config, now),
            issued: 0,
            counting: config.warm_up.is_zero(),
            begin: now,
            look_at: now,
        })
    }

    fn is_over(&mut self, now: Instant) -> bool {
        if !self.counting {
            if now < self.begin + self.config.warm_up {
                return false;
            }
            self.counting = true;
            self.tally = Tally::new(self.config, now);
        }
        match self.config.stop {
            RunEnd::After(span) => now >= self.tally.started + span,
            RunEnd::Commands(count) => self.issued >= count && self.tally.answered >= self.issued,
        }
    }

    fn turn(&mut self) -> Result<()> {
        let now = Instant::now();
        if now >= self.look_at {
            self.look_after_all(now)?;
        }
        let limit = self.look_at.saturating_duration_since(now);
        match self.poll.poll(&mut self.events, Some(limit)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            other => other.map_err(Error::io("epoll"))?,
        }
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            self.on_ready(event.token().0, event.is_readable() || event.is_error())?;
        }
        self.events = events;
        Ok(())
    }

    /// Reconnects, times out, and sends after pauses; sets the time of the next check.
    fn look_after_all(&mut self, now: Instant) -> Result<()> {
        let mut soonest = now + IDLE_MAX;
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if connection.retry_at().is_some_and(|at| at <= now) {
                connection.connect(self.poll.registry(), now)?;
            }
            if let (Some(since), Some(timeout)) = (connection.waiting_since(), self.config.timeout)
                && since + timeout <= now
            {
                self.lose(index, "timeout", now);
            }
            self.send_next(index, now);
            let connection = &self.connections[index];
            let deadline = connection.waiting_since().zip(self.config.timeout).map(|(s, t)| s + t);
            let pause = (connection.is_up() && connection.is_idle()).then_some(connection.next_at);
            for at in [connection.retry_at(), deadline, pause].into_iter().flatten() {
                soonest = soonest.min(at);
            }
        }
        self.look_at = soonest.max(now + Duration::from_micros(100));
        Ok(())
    }

    fn on_ready(&mut self, index: usize, readable: bool) -> Result<()> {
        let now = Instant::now();
        let connection = &mut self.connections[index];
        let mut alive = connection.establish(now).and_then(|()| connection.flush());
        if readable && alive.is_ok() {
            let (tally, counting) = (&mut self.tally, self.counting);
            alive = connection.receive(&mut self.scratch, |verdict| match verdict {
                _ if !counting => {}
                ReplyVerdict::Succeeded { commands, sent_at } => {
                    tally.succeed(index, commands, now.saturating_duration_since(sent_at), now);
                }
                ReplyVerdict::Failed { commands, kind } => tally.fail(commands, kind),
            })?;
            if connection.is_idle() && !self.config.pause.is_zero() {
                connection.next_at = now + self.config.pause;
                self.look_at = self.look_at.min(connection.next_at);
            }
        }
        match alive {
            Ok(()) => self.send_next(index, now),
            Err(_) => self.lose(index, "disconnected", now),
        }
        Ok(())
    }

    fn send_next(&mut self, index: usize, now: Instant) {
        let connection = &mut self.connections[index];
        if !connection.is_up() || !connection.is_idle() || connection.next_at > now {
            return;
        }
        let (generator, config) = (&mut self.generator, self.config);
        if matches!(config.stop, RunEnd::Commands(count) if self.issued >= count) {
            return;
        }
        self.issued += u64::from(config.pipeline);
        let sent = connection.send(config.pipeline, config.wait_replicas, now, |out| {
            for _ in 0..config.pipeline {
                generator.write(out);
            }
            if let Some(replicas) = config.wait_replicas {
                workload::write_wait(out, replicas, WAIT_MS);
            }
        });
        if sent.is_err() {
            self.lose(index, "disconnected", now);
        }
    }

    fn lose(&mut self, index: usize, kind: &str, now: Instant) {
        let connection = &mut self.connections[index];
        let lost = connection.disconnect(self.poll.registry(), now);
        if self.counting {
            self.tally.fail(lost, kind);
        }
        if let Some(at) = self.connections[index].retry_at() {
            self.look_at = self.look_at.min(at);
        }
    }

    fn finish(mut self) -> LoadReport {
        let now = Instant::now();
        let tally = &mut self.tally;
        tally.drought.end(now);
        tally.droughts.iter_mut().chain(&mut tally.address_droughts).for_each(|d| d.end(now));
        let seconds = now.duration_since(tally.started).as_secs_f64();
        let server_cpu = process::cpu(&self.config.server_pids).since(tally.cpu);
        LoadReport {
            seconds,
            operations: tally.operations,
            per_second: tally.operations as f64 / seconds,
            latency: Latency::of(&tally.latencies),
            errors: std::mem::take(&mut tally.errors),
            gap_ms: milliseconds(tally.drought.longest),
            gaps: gaps(self.config, &self.tally),
            timelines: std::mem::take(&mut self.tally.timelines),
            server_cpu,
            server_cpu_s_per_million: report::per_million(
                server_cpu.total_s(),
                self.tally.operations,
            ),
            client_cpu: process::cpu(&[std::process::id()]).since(self.tally.own_cpu),
        }
    }
}

fn gaps(config: &Config, tally: &Tally) -> Vec<Gap> {
    let count = config.addresses.len();
    let longest_of = |index: usize| {
        let own = tally.droughts.iter().skip(index).step_by(count);
        own.map(|drought| drought.longest).max().unwrap_or_default()
    };
    let gap = |(index, &address): (usize, &SocketAddr)| Gap {
        address,
        connection_ms: milliseconds(longest_of(index)),
        together_ms: milliseconds(tally.address_droughts[index].longest),
    };
    config.addresses.iter().enumerate().map(gap).collect()
}

fn milliseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
