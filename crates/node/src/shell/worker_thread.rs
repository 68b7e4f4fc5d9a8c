//! One worker with its sockets: reads everything that arrived, turns the worker, writes once per
//! socket. An event loop waits for it ([`super::event_loop`]).

use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::Nanos;
use mio::net::TcpListener;
use mio::{Events, Poll, Token};
use protocols::{Pace, Stats};
use types::{NodeId, Outcome, SessionId};

use super::clients::Clients;
use super::clock::Moment;
use super::long_threads;
use super::mailbox::{ControlMail, Mail, Mailbox};
use super::node_status::SharedNodeStatus;
use super::own_requests::NO_WORKER;
use super::peers::{PeerLinks, Slowness};
use super::routes::Routes;
use super::write_window::WriteWindow;
use crate::config::Durability;
use crate::events::event;
use crate::session::{Client, ClientPort, SessionFactory, Shortage};
use crate::status::Measures;
use crate::worker::{Input, Outputs, Worker};

pub(crate) const TOKEN_MAIL: Token = Token(0);
pub(crate) const TOKEN_LISTENER: Token = Token(1);
const TOKEN_PEERS: usize = 16;
const TOKEN_CLIENTS: usize = 1 << 20;

/// Events taken in one iteration.
const EVENTS_MAX: usize = 1024;

/// Bytes read from a socket at once.
const SCRATCH_LEN: usize = 64 << 10;

/// Connections accepted in one turn.
const ACCEPTED_MAX: usize = 64;

/// Turns of the worker in one iteration: outcomes let sessions ask on, and the answers may be there
/// at once.
const TURNS_MAX: usize = 4;

/// A longer turn reduces the input of the next one. During a turn the worker reads and writes no
/// socket.
const TURN_LONG: Nanos = Nanos::from_millis(50);

/// Inputs that a turn takes in however long the one before was, and those that it takes in at most.
const TURN_INPUTS: (usize, usize) = (32, 1 << 20);
/// Those that the first one takes in, before it is known how long they take.
const TURN_INPUTS_FIRST: usize = 1024;
/// Requests that an iteration accepts though the next turn is full. On a node that is slower than
/// the others peers fill each turn.
const REQUESTS_MIN: usize = 8;

/// An iteration of this duration starts no further turn: the output of the first one waits for its
/// end.
pub(crate) const ITERATION_LONG: Nanos = Nanos::from_millis(25);

/// How often it is said that clients cannot be accepted, at most.
const OUT_OF_REACH_EVERY: Nanos = Nanos::from_secs(60);

/// How often a full disk is checked for space.
const ROOM_EVERY: Nanos = Nanos::from_millis(500);

/// How old the published counters may be.
const STATS_EVERY: Nanos = Nanos::from_millis(250);

/// Connections that wait to be accepted. An event tells of new ones only, not of those it has told
/// of before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Backlog {
    /// The next event tells.
    Empty,
    /// More than one turn accepts.
    More,
    /// They cannot be accepted now, most likely for want of file descriptors.
    OutOfReach,
}

pub(crate) struct WorkerThread {
    index: usize,
    node_status: Arc<SharedNodeStatus>,
    mailbox: Arc<Mailbox<Mail>>,
    poll: Poll,
    events: Events,
    /// There may be events.
    fired: bool,
    /// Only the first worker accepts; it deals clients to all.
    listeners: Vec<(ClientPort, TcpListener)>,
    backlog: Backlog,
    /// When it was last said that clients cannot be accepted.
    said_out_of_reach: Option<Nanos>,
    factory: Arc<dyn SessionFactory>,
    worker: Option<Box<Worker>>,
    clients: Clients,
    peers: PeerLinks,
    inputs: Vec<Input>,
    /// As many of them make a turn.
    turn_inputs: usize,
    outputs: Outputs,
    /// On their way to peers.
    frames: Vec<(NodeId, Vec<u8>)>,
    /// For each of the other workers.
    mail_out: Vec<Vec<Mail>>,
    mail_in: Vec<Mail>,
    scratch: Vec<u8>,
    now: Nanos,
    next_client: u64,
    /// Something read in this iteration waits for the next.
    is_left: bool,
    /// The worker must turn without new input: a timer is due, or a store completed an operation.
    is_due: bool,
    /// Too few peers for a majority keep up with their links. The worker reads no requests
    /// meanwhile.
    is_clogged: bool,
    write_window: WriteWindow,
    stats_at: Nanos,
    stats_due: bool,
    /// The counters of a worker that has begun were published.
    has_published: bool,
    is_drained: bool,
    /// The node was told that transactions of this worker are not settled.
    is_settling: bool,
}

impl AsRawFd for WorkerThread {
    /// Becomes readable when something happens at its sockets.
    fn as_raw_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }
}

impl WorkerThread {
    pub(crate) fn new(
        index: usize,
        node_status: Arc<SharedNodeStatus>,
        poll: Poll,
        listeners: Vec<(ClientPort, TcpListener)>,
        factory: Arc<dyn SessionFactory>,
    ) -> WorkerThread {
        let mailbox = Arc::clone(&node_status.workers[index]);
        let clients =
            Clients::new(index, TOKEN_CLIENTS, Arc::clone(&node_status), Arc::clone(&factory));
        let patience = Nanos::from_millis(node_status.config.request_timeout.0);
        let peers = PeerLinks::new(TOKEN_PEERS, patience, Arc::clone(&node_status.control));
        WorkerThread {
            index,
            mailbox,
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            fired: true,
            listeners,
            backlog: Backlog::Empty,
            said_out_of_reach: None,
            factory,
            worker: None,
            clients,
            peers,
            inputs: Vec::new(),
            turn_inputs: TURN_INPUTS_FIRST,
            outputs: Outputs::default(),
            frames: Vec::new(),
            mail_out: node_status.workers.iter().map(|_| Vec::new()).collect(),
            mail_in: Vec::new(),
            scratch: vec![0; SCRATCH_LEN],
            now: Nanos::ZERO,
            next_client: 0,
            is_left: false,
            is_due: true,
            is_clogged: false,
            write_window: WriteWindow::new(),
            stats_at: Nanos::ZERO,
            stats_due: false,
            has_published: false,
            is_drained: false,
            is_settling: false,
            node_status,
        }
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    fn note_settling(&mut self) {
        let is_settling = self.worker.as_ref().is_some_and(|worker| worker.is_settling());
        if is_settling != std::mem::replace(&mut self.is_settling, is_settling) {
            self.node_status.set_settling(is_settling);
        }
    }

    /// Lets the requests in flight end, and transactions settle.
    pub(crate) fn drain(&mut self) {
        self.listeners.clear();
        self.note_settling();
        if !self.is_drained && self.clients.is_drained() {
            self.is_drained = true;
            self.node_status.set_drained();
        }
    }

    /// False when there is work. After true, each sender of mail wakes the thread.
    pub(crate) fn may_sleep(&self) -> bool {
        !self.has_work() && self.mailbox.may_sleep()
    }

    pub(crate) fn awake(&self) {
        self.mailbox.awake();
    }

    pub(crate) fn has_mail(&self) -> bool {
        self.mailbox.has_mail()
    }

    /// Its sockets have something to tell.
    pub(crate) fn fire(&mut self) {
        self.fired = true;
    }

    /// True if any peer is slow at a link of this worker, or was for long.
    pub(super) fn has_slow_links(&self, now: Nanos) -> bool {
        self.peers.has_slow(now)
    }

    /// Peers, and how slow they are at the links of this worker.
    pub(super) fn links(&self, now: Nanos) -> impl Iterator<Item = (NodeId, Slowness)> {
        self.peers.links(now)
    }

    /// Peers that are not steady, and whether requests have to wait for them.
    pub(super) fn on_slow_peers(&mut self, is_clogged: bool, paces: &[(NodeId, Pace)]) {
        self.is_clogged = is_clogged;
        let Some(worker) = &self.worker else { return };
        for member in worker.peers().nodes() {
            let told = paces.iter().find(|(peer, _)| *peer == member.node);
            let pace = told.map_or(Pace::Steady, |(_, pace)| *pace);
            if pace != member.pace {
                self.inputs.push(Input::PeerPace { node: member.node, pace });
            }
        }
    }

    /// As many of them as make a majority with this node.
    pub(super) fn peers_of_majority(&self) -> usize {
        self.worker.as_ref().map_or(0, |worker| worker.peers().nodes().len() / 2)
    }

    fn has_work(&self) -> bool {
        self.is_left
            || self.fired
            || self.backlog == Backlog::More
            || !self.inputs.is_empty()
            || (self.clients.has_work() && self.takes_requests())
    }

    fn takes_requests(&self) -> bool {
        self.request_room() > 0
    }

    fn request_room(&self) -> usize {
        match &self.worker {
            _ if self.node_status.is_stopping() || self.is_clogged => 0,
            // Queued inputs are not in progress yet, and messages of peers would queue behind them.
            Some(worker) => {
                let of_turn = self.turn_inputs.saturating_sub(self.inputs.len());
                worker.request_room().min(of_turn.max(REQUESTS_MIN))
            }
            None => usize::MAX,
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Nanos> {
        let worker = self.worker.as_ref().and_then(|worker| worker.next_timer());
        let stats = self.stats_due.then_some(self.stats_at + STATS_EVERY);
        let lacks_room = self.clients.shortage != Shortage::None;
        let room = lacks_room.then_some(self.now + ROOM_EVERY);
        [worker, stats, room, self.peers.next_timer(self.is_clogged), self.clients.next_timer()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Takes new input in. Input for other workers is sent to them.
    pub(crate) fn gather(&mut self, moment: Moment) -> Result<(), String> {
        self.note_time(moment);
        self.write_window.look(self.now, self.is_clogged, self.clients.writes());
        let of_stores = self.worker.as_ref().map_or(usize::MAX, |it| it.writes_max());
        self.clients.writes_max = of_stores.min(self.write_window.max());
        self.look_at_room();
        // Read all input first: a peer with unread input is not silent.
        let is_due =
            |peers: &PeerLinks| peers.next_timer(self.is_clogged).is_some_and(|at| at <= self.now);
        if std::mem::take(&mut self.fired) || is_due(&self.peers) {
            self.take_events()?;
        }
        if self.backlog != Backlog::Empty {
            self.accept();
        }
        self.take_mail();
        self.read();
        self.send_mail();
        Ok(())
    }

    fn look_at_room(&mut self) {
        let shortage = self.worker.as_ref().map_or(Shortage::None, |it| it.shortage());
        let before = std::mem::replace(&mut self.clients.shortage, shortage);
        let lacks_room = shortage != Shortage::None;
        if lacks_room != (before != Shortage::None) {
            self.node_status.set_lacks_room(lacks_room);
        }
    }

    /// Runs at most a few turns, while there is input. Its output to sockets waits for
    /// [`Self::flush`].
    pub(crate) fn work(&mut self, iteration_began: Moment) -> Result<(), String> {
        // Mail first: a countdown in a frame that another thread has read must not start
        // before the frame came.
        self.take_mail();
        self.note_time(self.node_status.clocks.look_again(iteration_began));
        self.resume();
        if self.inputs.is_empty() && !self.is_due {
            let timer = self.worker.as_ref().and_then(|worker| worker.next_timer());
            self.is_due = timer.is_some_and(|at| at <= self.now);
        }
        for turn in 0..TURNS_MAX {
            let is_over = self.inputs.is_empty() && !self.is_due;
            if is_over || (turn > 0 && self.node_status.clocks.now() >= self.now + ITERATION_LONG) {
                break;
            }
            self.is_due = false;
            self.turn()?;
        }
        self.send_mail();
        Ok(())
    }

    fn note_time(&mut self, moment: Moment) {
        self.now = moment.now;
        (self.clients.now, self.clients.unix) = (moment.now, moment.unix);
        self.clients.moment = moment.now;
    }

    fn send_mail(&mut self) {
        for (mailbox, mail) in self.node_status.workers.iter().zip(&mut self.mail_out) {
            mailbox.send_all(mail);
        }
    }

    fn take_events(&mut self) -> Result<(), String> {
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        match self.poll.poll(&mut events, Some(Duration::ZERO)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                return Err(format!("waiting for sockets failed: {error}"));
            }
            // No noise is made for events that are there already.
            Err(_) => self.fired = true,
            Ok(()) => self.fired = events.iter().count() >= EVENTS_MAX,
        }
        for event in &events {
            match event.token() {
                TOKEN_MAIL => {}
                TOKEN_LISTENER => self.backlog = Backlog::More,
                Token(token) if token >= TOKEN_CLIENTS => self.clients.on_event(event),
                _ => self.peers.on_event(event),
            }
        }
        self.events = events;
        Ok(())
    }

    fn accept(&mut self) {
        self.backlog = Backlog::Empty;
        let mut at = 0;
        for _ in 0..ACCEPTED_MAX {
            let Some((port, listener)) = self.listeners.get(at) else { return };
            let port = *port;
            let accepted_max = self.node_status.config.clients_accepted;
            if self.node_status.clients.load(Ordering::Relaxed) >= accepted_max {
                return self
                    .leave_waiting(format_args!("there are file descriptors for {accepted_max}"));
            }
            match listener.accept() {
                Ok((stream, peer)) => self.deal(stream, peer, port),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => at += 1,
                Err(error) => return self.leave_waiting(error),
            }
        }
        self.backlog = Backlog::More;
    }

    /// They are asked for again in every iteration, for which timers see: asking at once would turn
    /// in vain.
    fn leave_waiting(&mut self, reason: impl std::fmt::Display) {
        self.backlog = Backlog::OutOfReach;
        if self.said_out_of_reach.is_none_or(|at| self.now >= at + OUT_OF_REACH_EVERY) {
            self.said_out_of_reach = Some(self.now);
            event!(
                self.node_status,
                WARN,
                "clients",
                "clients wait that cannot be accepted",
                reason = reason.to_string()
            );
        }
    }

    fn deal(
        &mut self,
        mut stream: mio::net::TcpStream,
        peer: std::net::SocketAddr,
        port: ClientPort,
    ) {
        self.next_client += 1;
        self.node_status.clients_total.fetch_add(1, Ordering::Relaxed);
        let clients_max = self.node_status.client_settings.clients_max();
        if self.node_status.clients.fetch_add(1, Ordering::Relaxed) >= clients_max {
            self.node_status.clients.fetch_sub(1, Ordering::Relaxed);
            self.node_status.clients_refused.fetch_add(1, Ordering::Relaxed);
            let _ = stream.write(self.factory.too_many());
            return;
        }
        let _ = stream.set_nodelay(true);
        let worker = (self.next_client - 1) as usize % self.node_status.workers.len();
        let local = stream.local_addr().unwrap_or(self.node_status.listens.clients);
        let client = Client { id: SessionId(self.next_client), peer, local, worker, port };
        if worker == self.index {
            self.clients.add(self.poll.registry(), stream, &client);
        } else {
            self.mail_out[worker].push(Mail::Client { stream, client });
        }
    }

    fn take_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail_in);
        self.is_due |= self.mailbox.take(&mut mail);
        for one in mail.drain(..) {
            self.on_mail(one);
        }
        self.mail_in = mail;
    }

    fn on_mail(&mut self, mail: Mail) {
        let registry = self.poll.registry();
        let mut routes =
            Routes { me: self.index, inputs: &mut self.inputs, mail: &mut self.mail_out };
        match mail {
            Mail::Client { stream, client } => self.clients.add(registry, stream, &client),
            Mail::Input(input) => self.inputs.push(input),
            Mail::Outcome { tag, outcome } => self.clients.on_outcome(tag, outcome, &mut routes),
            Mail::Link(link) => self.peers.add(registry, *link, &mut routes),
            Mail::DropLinks => self.peers.drop_all(registry, &mut self.inputs),
            Mail::Amnesia(amnesia) => self.inputs.push(Input::Amnesia { amnesia }),
            Mail::Renewed(incarnation) => self.inputs.push(Input::Renewed { incarnation }),
            Mail::Begin { worker, first } => {
                self.worker = Some(worker);
                // Its stores may have completed operations without a wake-up.
                self.is_due = true;
                self.inputs.splice(0..0, first);
            }
        }
    }

    fn read(&mut self) {
        let registry = self.poll.registry();
        let room = self.request_room();
        let mut routes =
            Routes { me: self.index, inputs: &mut self.inputs, mail: &mut self.mail_out };
        // Leave input beyond the limit of a turn in the socket: the queue here has no other bound.
        self.is_left = routes.inputs.len() >= self.turn_inputs
            || self.peers.read(registry, self.now, &mut self.scratch, &mut routes);
        self.peers.on_time(registry, self.now, self.is_clogged, routes.inputs);
        self.clients.read(&mut self.scratch, room, &mut routes);
        self.clients.on_time(&mut routes);
    }

    /// Turns the worker and hands its replies to the sessions, which may ask on.
    fn turn(&mut self) -> Result<(), String> {
        let Some(worker) = &mut self.worker else {
            self.answer_loading();
            return Ok(());
        };
        let count = self.inputs.len().min(self.turn_inputs);
        let rest = self.inputs.split_off(count);
        worker.turn(self.now, self.clients.unix, &mut self.inputs, &mut self.outputs);
        self.inputs.extend(rest);
        self.clients.moment = self.node_status.clocks.now();
        worker.turn_ended(self.clients.moment);
        self.turn_inputs = match self.clients.moment < self.now + TURN_LONG {
            true if count < self.turn_inputs => self.turn_inputs,
            true => (self.turn_inputs * 2).min(TURN_INPUTS.1),
            false => (count / 2).max(TURN_INPUTS.0),
        };
        if let Some(text) = self.outputs.failed.take() {
            return Err(text);
        }
        if std::mem::take(&mut self.outputs.raise_amnesia) {
            let me = worker.peers().own();
            self.node_status
                .control
                .send(ControlMail::RaiseAmnesia { worker: self.index, at: me.amnesia });
        }
        if let Some(below) = self.outputs.renew.take() {
            self.node_status.control.send(ControlMail::Renew { worker: self.index, below });
        }
        if std::mem::take(&mut self.outputs.uptimes_changed) {
            self.node_status.control.send(ControlMail::UptimesChanged);
        }
        self.outputs.warnings.drain(..).for_each(|text| self.node_status.warn(&text));
        for (database, node) in self.outputs.suspects.drain(..) {
            self.node_status.control.send(ControlMail::Suspect { database, node });
        }
        for (database, report) in self.outputs.group_reports.drain(..) {
            let worker = self.index;
            self.node_status.control.send(ControlMail::Group { worker, database, report });
        }
        self.frames.append(&mut self.outputs.frames);
        for (to, from, bytes) in self.outputs.misrouted.drain(..) {
            self.mail_out[to].push(Mail::Input(Input::Frame { from, bytes }));
        }
        for (to, input) in self.outputs.for_workers.drain(..) {
            self.mail_out[to].push(Mail::Input(input));
        }
        for computation in self.outputs.computations.drain(..) {
            let now = long_threads::compute(&self.node_status, self.index, computation);
            self.inputs.extend(now);
        }
        if self.node_status.is_stopping() {
            self.note_settling();
        }
        self.hand_over_replies();
        Ok(())
    }

    /// Before the node belongs to a cluster it serves no request, and no peer sends to its workers.
    fn answer_loading(&mut self) {
        for input in std::mem::take(&mut self.inputs) {
            if let Input::Request { tag, .. }
            | Input::List { tag, .. }
            | Input::Transaction { tag, .. }
            | Input::Explain { tag, .. } = input
            {
                self.outputs.replies.push((tag, Outcome::Loading));
            }
        }
        self.hand_over_replies();
    }

    /// Moves this worker's frames to another worker of this thread, so that a peer gets one packet
    /// from both. Any worker of a node accepts frames for all of them.
    pub(crate) fn share_frames(&mut self, now: Nanos, lead: &mut WorkerThread) {
        for (to, frame) in self.frames.drain(..) {
            if lead.peers.has_link(to) {
                lead.peers.send(lead.poll.registry(), now, to, &frame, &mut lead.inputs);
            } else {
                self.peers.send(self.poll.registry(), now, to, &frame, &mut self.inputs);
            }
            if let Some(worker) = &mut self.worker {
                worker.recycle(frame);
            }
        }
    }

    fn send_frames(&mut self, now: Nanos) {
        for (to, frame) in self.frames.drain(..) {
            self.peers.send(self.poll.registry(), now, to, &frame, &mut self.inputs);
            if let Some(worker) = &mut self.worker {
                worker.recycle(frame);
            }
        }
    }

    fn hand_over_replies(&mut self) {
        let mut routes =
            Routes { me: self.index, inputs: &mut self.inputs, mail: &mut self.mail_out };
        for (tag, outcome) in self.outputs.replies.drain(..) {
            let worker = Clients::worker_of(tag);
            if worker == self.index {
                self.clients.on_outcome(tag, outcome, &mut routes);
            } else if worker == NO_WORKER {
                self.node_status.end_own_request(tag, outcome);
            } else {
                routes.mail[worker].push(Mail::Outcome { tag, outcome });
            }
        }
        self.resume();
    }

    /// Outcomes have made room: sessions ask on.
    fn resume(&mut self) {
        let mut routes =
            Routes { me: self.index, inputs: &mut self.inputs, mail: &mut self.mail_out };
        self.clients.resume(&mut routes);
    }

    /// Everything leaves, once per socket.
    pub(crate) fn flush(&mut self, now: Nanos) {
        self.send_frames(now);
        // After a broken invariant the node sends no further output.
        if !self.node_status.has_failed() {
            // The output of this iteration does not make a peer slow.
            self.peers.flush(self.poll.registry(), self.now, &mut self.inputs);
            self.clients.flush(self.poll.registry());
            self.publish_stats();
        }
    }

    fn measures(&self) -> Measures {
        let mut measures = self.peers.measures();
        let Some(worker) = &self.worker else { return measures };
        let durabilities = self.node_status.config.durabilities();
        let commits = durabilities.into_iter().zip(worker.commit_latencies().cloned());
        measures.commits = commits.filter(|(kind, _)| *kind != Durability::Volatile).collect();
        let members = worker.peers().nodes().iter();
        let slow = members.filter(|member| member.pace != Pace::Steady);
        measures.slow = slow.map(|member| member.node).collect();
        measures
    }

    fn publish_stats(&mut self) {
        self.stats_due = true;
        if self.now < self.stats_at + STATS_EVERY && self.stats_at != Nanos::ZERO {
            return;
        }
        (self.stats_at, self.stats_due) = (self.now, false);
        let mut stats = Stats::default();
        self.clients.stats(&mut stats);
        self.peers.stats(&mut stats);
        if let Some(worker) = &self.worker {
            worker.stats(&mut stats);
            self.node_status.set_figures(self.index, worker.figures());
        }
        let measures = self.measures();
        self.node_status.set_stats(self.index, stats, measures);
        if self.worker.is_some() && !self.has_published {
            // The peers are to hear at once that this node is ready.
            self.has_published = true;
            self.node_status.control.notify();
        }
    }
}
