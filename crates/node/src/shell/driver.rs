//! Threads that drive workers: as few of them as the load needs.
//!
//! There is a thread per worker, and at first one of them drives all. Handing work to another thread means waking it,
//! which costs more than most turns; so a thread gives workers away only when it uses most of a core and others are idle,
//! and takes them back when both together would leave a good part of one unused, or get no more than one.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use base::Nanos;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use protocols::Pace;
use storage::disk::Pump;
use types::NodeId;

use super::board::{Board, STOP_MAX};
use super::clock::{Moment, thread_cpu};
use super::idle::Idle;
use super::mailbox::ControlMail;
use super::peers::Slowness;
use super::sync::Ordering;
use super::worker_thread::{PASS_LONG, WorkerThread};

const TOKEN_WAKE: Token = Token(usize::MAX);
const TOKEN_PUMP: Token = Token(usize::MAX - 1);

/// How often a thread looks at its load.
const LOOK_EVERY: Nanos = Nanos::from_millis(100);
/// Thousandths of a core above which workers are given away.
const BUSY: u32 = 850;
/// Thousandths of a core that two threads may use together to become one.
const QUIET: u32 = 650;
/// The same where no core is idle: then they get little more than one would.
const CROWDED: u32 = 1150;
/// Thousandths of a core that are idle where a further thread gets anything.
const SPARE: u64 = 300;
/// Thousandths of a core below which none is idle.
const NO_SPARE: u64 = 60;
/// Looks in a row that must say the same.
const LOOKS: u32 = 3;

/// How often the first thread looks how much of the machine is idle, at most.
const LOOK_AROUND_EVERY: Nanos = Nanos::from_millis(100);
/// The next look is as many times as far away as the last one took, which is the longer the more cores there are.
const LOOK_AROUND_REST: u64 = 1000;
/// However long it took: on a crowded machine a thread may be kept waiting in the middle of it.
const LOOK_AROUND_REST_MAX: Nanos = Nanos::from_millis(500);
/// Hundredths of the machine that are idle where commits are to be fewer; with fewer of them more is idle.
const LITTLE_IDLE: u64 = 25;
/// Hundredths that are idle where they are as many as there can be again.
const MUCH_IDLE: u64 = 40;

/// Rounds over workers between two looks at sockets: what they hand each other is dealt with at once.
const ROUNDS_MAX: usize = 3;

/// Passes before the device gets what they have changed, while there is more to read at once: a commit costs as much as
/// several passes, and takes in as much as there is.
const PASSES_MAX: usize = 6;
/// How long after the first of them another one may begin.
const HELD_MAX: Nanos = Nanos::from_micros(500);

type Seat = super::seat::Seat<WorkerThread>;

pub(crate) struct Driver {
    index: usize,
    board: Arc<Board>,
    seats: Arc<Vec<Seat>>,
    poll: Poll,
    /// This thread hears when the disk has completed something.
    hears_pump: bool,
    workers: Vec<WorkerThread>,
    looked_at: Nanos,
    cpu_at: Nanos,
    /// Looks in a row that found a reason to rearrange.
    looks: u32,
    /// When the first of them was, and how long cores had been idle then.
    idle_at: Option<(Nanos, Idle)>,
    /// The first thread's last look at the whole machine, if the system told.
    looked_around: Option<(Nanos, Option<Idle>)>,
    look_around_at: Nanos,
    is_crowded: bool,
    /// Some peers may be slow, or may have been for long. None becomes so while nothing is sent.
    has_slow_peers: bool,
    /// Peers that the control thread knows to be slow.
    told_slow: BTreeSet<NodeId>,
}

impl Driver {
    /// As many drivers as there are workers; the first has them all.
    ///
    /// # Errors
    /// When the system is out of file descriptors.
    pub(crate) fn all(
        board: &Arc<Board>,
        workers: Vec<WorkerThread>,
    ) -> std::io::Result<Vec<Driver>> {
        let polls = workers.iter().map(|_| Poll::new()).collect::<std::io::Result<Vec<Poll>>>()?;
        let seat = |poll: &Poll| Ok(Seat::new(Arc::new(Waker::new(poll.registry(), TOKEN_WAKE)?)));
        let seats = Arc::new(polls.iter().map(seat).collect::<std::io::Result<Vec<Seat>>>()?);
        board.set_drivers(seats.iter().map(|seat| Arc::clone(seat.waker())).collect());
        seats[0].give(workers);
        let driver = |(index, poll)| Driver {
            index,
            board: Arc::clone(board),
            seats: Arc::clone(&seats),
            poll,
            hears_pump: false,
            workers: Vec::new(),
            looked_at: Nanos::ZERO,
            cpu_at: Nanos::ZERO,
            looks: 0,
            idle_at: None,
            looked_around: None,
            look_around_at: Nanos::ZERO,
            is_crowded: false,
            has_slow_peers: false,
            told_slow: BTreeSet::new(),
        };
        Ok(polls.into_iter().enumerate().map(driver).collect())
    }

    /// Runs until the node stops. An error is a reason to stop the node at once.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        let mut events = Events::with_capacity(64);
        let mut stop_at = None;
        while !self.board.has_failed() {
            self.take_given()?;
            self.listen_to_pump()?;
            if self.board.is_stopping() {
                let now = self.board.clocks.now();
                let until = *stop_at.get_or_insert(now + Nanos(STOP_MAX.as_nanos() as u64));
                self.workers.iter_mut().for_each(|worker| worker.drain());
                if self.board.is_drained() || now >= until {
                    return Ok(());
                }
            }
            self.wait(&mut events, stop_at)?;
            let began = self.board.clocks.look();
            let ended = self.pass(began)?;
            let ended = self.pass_on(began.now, ended, &mut events)?;
            if let Some(pump) = self.board.pump() {
                pump.advance();
            }
            self.balance(ended);
            self.look_around(ended);
        }
        Ok(())
    }

    /// Takes in what can be read already, before the device gets what the pass before has changed. When the last pass ended.
    fn pass_on(
        &mut self,
        began: Nanos,
        mut ended: Nanos,
        events: &mut Events,
    ) -> Result<Nanos, String> {
        for _ in 1..PASSES_MAX {
            if !self.board.pump().is_some_and(Pump::would_commit)
                || !self.look(events, Some(Duration::ZERO))?
            {
                break;
            }
            let moment = self.board.clocks.look();
            if moment.now >= began + HELD_MAX {
                break;
            }
            ended = self.pass(moment)?;
        }
        Ok(ended)
    }

    fn take_given(&mut self) -> Result<(), String> {
        for worker in self.seats[self.index].take() {
            // Perhaps: the thread that had it may have known of some.
            self.has_slow_peers = true;
            let (fd, token) = (worker.as_raw_fd(), Token(worker.index()));
            self.poll
                .registry()
                .register(&mut SourceFd(&fd), token, Interest::READABLE)
                .map_err(|error| format!("a worker's sockets cannot be waited for: {error}"))?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Only the first thread, which always has workers.
    fn listen_to_pump(&mut self) -> Result<(), String> {
        let fd = self.board.pump().and_then(|pump| pump.fd());
        let Some(fd) = fd.filter(|_| self.index == 0 && !self.hears_pump) else { return Ok(()) };
        self.hears_pump = true;
        let registry = self.poll.registry();
        registry
            .register(&mut SourceFd(&fd.as_raw_fd()), TOKEN_PUMP, Interest::READABLE)
            .map_err(|error| format!("the disk cannot be waited for: {error}"))
    }

    fn wait(&mut self, events: &mut Events, stop_at: Option<Nanos>) -> Result<(), String> {
        // Moves the store on if it is time, which may send to workers: before they are said to sleep.
        let until_commit = self.until_commit();
        // All of them, also behind one that may not: whoever sends from now on wakes this thread.
        let restless = self.workers.iter().filter(|worker| !worker.may_sleep()).count();
        let wait = if restless == 0 {
            let timers = self.workers.iter().filter_map(|worker| worker.next_timer());
            let timer = timers.chain(stop_at).min();
            let timer = timer.map(|at| Duration::from_nanos(at.since(self.board.clocks.now()).0));
            // The kernel counts whole milliseconds here; mio rounds up.
            timer.into_iter().chain(until_commit).min()
        } else {
            Some(Duration::ZERO)
        };
        self.look(events, wait).map(|_| ())
    }

    /// Waits no longer than that for something to happen; true if there is something to read.
    fn look(&mut self, events: &mut Events, wait: Option<Duration>) -> Result<bool, String> {
        let polled = self.poll.poll(events, wait);
        self.workers.iter().for_each(|worker| worker.awake());
        let is_interrupted = match polled {
            Ok(()) => false,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => true,
            Err(error) => return Err(format!("waiting for sockets failed: {error}")),
        };
        // The system interrupts the thread that has submitted a commit to complete it.
        if (is_interrupted || events.iter().any(|event| event.token() == TOKEN_PUMP))
            && let Some(pump) = self.board.pump()
        {
            pump.notice();
            pump.advance();
        }
        let mut has_fired = false;
        for event in events.iter() {
            let fired = |worker: &&mut WorkerThread| Token(worker.index()) == event.token();
            if let Some(worker) = self.workers.iter_mut().find(fired) {
                worker.fire();
                has_fired = true;
            }
        }
        Ok(has_fired)
    }

    /// When what it said left.
    fn pass(&mut self, began: Moment) -> Result<Nanos, String> {
        // This thread may have slept since it looked.
        if self.has_slow_peers {
            self.attend_to_slow_peers(began.now);
        }
        // All of them read before one is turned: what they read for each other is dealt with in the same turn.
        self.workers.iter_mut().try_for_each(|worker| worker.gather(began))?;
        // The first round is everybody's: a timer may be due.
        self.workers.iter_mut().try_for_each(|worker| worker.work(began))?;
        for _ in 1..ROUNDS_MAX {
            if !self.workers.iter().any(WorkerThread::has_mail)
                || self.board.clocks.now() >= began.now + PASS_LONG
            {
                break;
            }
            for worker in self.workers.iter_mut().filter(|worker| worker.has_mail()) {
                worker.work(began)?;
            }
        }
        // Patience with a peer begins now, however long the turns were.
        let now = self.board.clocks.now();
        if let Some((lead, others)) = self.workers.split_first_mut() {
            others.iter_mut().for_each(|worker| worker.share_frames(now, lead));
        }
        self.workers.iter_mut().for_each(|worker| worker.flush(now));
        self.attend_to_slow_peers(now);
        Ok(now)
    }

    /// So much waits for some peers that they hear late of anything new. Where the others make a majority they are spared, if
    /// that lasts; else no requests are taken in meanwhile. A worker's frames go over the links of others as well.
    fn attend_to_slow_peers(&mut self, now: Nanos) {
        let (mut is_clogged, mut paces) = (false, Vec::new());
        let mut slow = BTreeSet::new();
        self.has_slow_peers = self.workers.iter().any(|worker| worker.has_slow_links(now));
        if self.has_slow_peers {
            let links = self.workers.iter().flat_map(|worker| worker.links(now));
            let mut peers: BTreeMap<NodeId, Slowness> = BTreeMap::new();
            for (peer, slowness) in links {
                let worst = peers.entry(peer).or_default();
                worst.is_slow |= slowness.is_slow;
                worst.was_for_long |= slowness.was_for_long;
            }
            slow.extend(peers.iter().filter(|(_, it)| it.was_for_long).map(|(&peer, _)| peer));
            let wanted = self.workers.iter().map(WorkerThread::peers_of_majority).max();
            let wanted = wanted.unwrap_or(0);
            let fast = peers.values().filter(|it| !it.is_slow).count();
            let always_fast = peers.values().filter(|it| !it.is_slow && !it.was_for_long).count();
            is_clogged = fast < wanted;
            paces.extend(peers.into_iter().filter_map(|(peer, slowness)| {
                let others = if slowness.is_slow { fast } else { always_fast };
                match slowness {
                    Slowness { was_for_long: true, .. } if others >= wanted => {
                        Some((peer, Pace::Spared))
                    }
                    Slowness { is_slow: true, .. } => Some((peer, Pace::Slow)),
                    _ => None,
                }
            }));
        }
        self.workers.iter_mut().for_each(|worker| worker.on_slow_peers(is_clogged, &paces));
        if slow != self.told_slow {
            for &peer in slow.symmetric_difference(&self.told_slow) {
                let (driver, is_slow) = (self.index, slow.contains(&peer));
                self.board.control.send(ControlMail::Slow { driver, peer, is_slow });
            }
            self.told_slow = slow;
        }
    }

    /// Until a commit that was put off is to begin.
    fn until_commit(&self) -> Option<Duration> {
        let pump = self.board.pump()?;
        if pump.begins_in()?.is_zero() {
            pump.advance();
        }
        // Where another thread is at it, that one will see that it is time.
        pump.begins_in().filter(|wait| !wait.is_zero())
    }

    /// Tells the disk store whether the cores have time to spare. Nearly always it is too soon since the last time, which the
    /// end of the pass tells without another look at the clock.
    fn look_around(&mut self, ended: Nanos) {
        if ended < self.look_around_at || self.index > 0 {
            return;
        }
        let Some(pump) = self.board.pump().filter(|pump| pump.fd().is_some()) else { return };
        let now = self.board.clocks.now();
        let idle = Idle::look();
        let last = self.looked_around.replace((now, idle));
        let took = self.board.clocks.now().since(now).0;
        let rest = Nanos(took.saturating_mul(LOOK_AROUND_REST)).min(LOOK_AROUND_REST_MAX);
        self.look_around_at = now + LOOK_AROUND_EVERY.max(rest);
        let limit = if self.is_crowded { MUCH_IDLE } else { LITTLE_IDLE };
        self.is_crowded = last.is_some_and(|(then, before)| {
            let percent =
                before.zip(idle).map(|(it, idle)| idle.percent_since(it, now.since(then)));
            percent.is_some_and(|percent| percent < limit)
        });
        pump.set_crowded(self.is_crowded);
    }

    /// Gives workers away, or all of them back, as the load wants it.
    fn balance(&mut self, ended: Nanos) {
        if ended < self.looked_at + LOOK_EVERY || self.board.is_stopping() {
            return;
        }
        let now = self.board.clocks.now();
        let cpu = thread_cpu();
        let (wall, spent) = (now.since(self.looked_at).0, cpu.since(self.cpu_at).0);
        (self.looked_at, self.cpu_at) = (now, cpu);
        let load = (spent.saturating_mul(1000) / wall.max(1)).min(1000) as u32;
        let me = &self.seats[self.index];
        me.load.store(load, Ordering::Relaxed);
        let seats = Arc::clone(&self.seats);
        let partner = seats[..self.index].iter().find(|seat| {
            let is_used = seat.count.load(Ordering::Relaxed) > 0;
            is_used && seat.load.load(Ordering::Relaxed) + load < CROWDED
        });
        let is_busy = load > BUSY && self.workers.len() > 1;
        if !is_busy && partner.is_none() {
            self.looks = 0;
            return;
        }
        if self.looks == 0 {
            self.idle_at = Idle::look().map(|idle| (now, idle));
        }
        self.looks += 1;
        if self.looks > LOOKS {
            self.looks = 0;
            self.rearrange(&seats, partner, load, is_busy);
        }
    }

    /// Gives half of the workers to an unused thread, or all of them to a partner, if that is worth it.
    fn rearrange(&mut self, seats: &[Seat], partner: Option<&Seat>, load: u32, is_busy: bool) {
        let spare = self.spare();
        let unused = |seat: &&Seat| seat.count.load(Ordering::Relaxed) == 0;
        if is_busy
            && spare >= SPARE
            && let Some(seat) = seats.iter().find(unused)
        {
            return seat.give(self.release(self.workers.len() / 2));
        }
        if let Some(partner) = partner {
            let both = partner.load.load(Ordering::Relaxed) + load;
            if both < QUIET || spare < NO_SPARE {
                partner.give(self.release(self.workers.len()));
            }
        }
    }

    /// Thousandths of a core that were idle since the first of these looks. Where the system does not tell, one is.
    fn spare(&self) -> u64 {
        let Some(((then, before), idle)) = self.idle_at.zip(Idle::look()) else { return 1000 };
        idle.time.since(before.time).0.saturating_mul(1000) / self.looked_at.since(then).0.max(1)
    }

    /// Takes workers out of this thread's hands.
    fn release(&mut self, count: usize) -> Vec<WorkerThread> {
        // What waits at the links of others is told again after the next pass.
        self.workers.iter_mut().for_each(|worker| worker.on_slow_peers(false, &[]));
        let given = self.workers.split_off(self.workers.len() - count);
        for worker in &given {
            // Fails only for what was never registered.
            let _ = self.poll.registry().deregister(&mut SourceFd(&worker.as_raw_fd()));
        }
        self.seats[self.index].count.fetch_sub(count, Ordering::Relaxed);
        given
    }
}
