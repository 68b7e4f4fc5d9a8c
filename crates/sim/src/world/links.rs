//! Frames and connections between the nodes of a world.

use super::*;

impl World {
    pub(super) fn send(&mut self, from: usize, to: usize, worker: usize, bytes: Bytes) {
        let is_of_workers = worker != CONTROL;
        self.counts.frames += u64::from(is_of_workers);
        if is_of_workers && (!self.watchers.is_empty() || self.trace.is_some()) {
            self.watch(from, to, &bytes);
        }
        if let Some(taken) = self.taken.as_mut().filter(|_| is_of_workers) {
            taken.push(Taken { from, to, worker, bytes });
            return;
        }
        let connection = self.network.connection(from, to);
        let frame = InFlight { from, to, worker, connection, bytes };
        match self.network.send(self.now, from, to) {
            Fate::Lost if is_of_workers => {
                self.note_end((from, to), &frame.bytes, Some("lost"));
            }
            Fate::Lost => {}
            Fate::Arrives { at } => self.schedule(at, PlannedEvent::Frame(frame)),
            Fate::ArrivesTwice { at, again_at } => {
                self.schedule(at, PlannedEvent::Frame(frame.clone()));
                self.schedule(again_at, PlannedEvent::Frame(frame));
            }
            Fate::Stalled if self.stalled.len() < STALLED_MAX => self.stalled.push(frame),
            Fate::Stalled | Fate::Resets => self.reset(from, to),
        }
    }

    /// Puts a taken frame back, to arrive at `at` whatever the state of connections.
    pub fn put_back(&mut self, taken: Taken, at: u64) {
        let Taken { from, to, worker, bytes } = taken;
        let connection = self.network.connection(from, to);
        self.schedule(at, PlannedEvent::Frame(InFlight { from, to, worker, connection, bytes }));
    }

    /// Puts a frame straight into a node's inbox, past the network.
    pub(super) fn deliver(&mut self, from: usize, to: usize, worker: usize, bytes: Bytes) {
        let Some(process) = &mut self.nodes[to].process else { return };
        let worker = worker % process.workers_state.len();
        let input = Input::Frame { from: node_id(from), bytes };
        process.workers_state[worker].inbox.push(input);
        self.plan_turn(to, worker, self.now);
    }

    pub(super) fn on_frame(&mut self, frame: InFlight) -> Happened {
        let InFlight { from, to, worker, connection, bytes } = frame;
        if worker == CONTROL {
            if self.network.delivers(from, to, connection) {
                self.tell_control(to, ControlInput::Message { from: node_id(from), bytes });
            }
            return Happened::Other;
        }
        if self.network.delivers(from, to, connection) {
            let is_heard = self.is_up(to);
            self.note_end((from, to), &bytes, (!is_heard).then_some("dead"));
            self.deliver(from, to, worker, bytes);
        } else {
            self.note_end((from, to), &bytes, Some("cut off"));
        }
        Happened::Other
    }

    pub(super) fn watch(&mut self, from: usize, to: usize, bytes: &Bytes) {
        let Ok((header, _, messages)) = frame_payload::decode(bytes) else {
            self.failure.get_or_insert(format!("n{} sent a malformed frame", from + 1));
            return;
        };
        for message in messages.flatten() {
            self.counts.messages += 1;
            if !self.config.databases().contains(&message.database) {
                continue;
            }
            let sent = Sent {
                at: self.now,
                from: header.sender,
                to: node_id(to),
                incarnation: header.incarnation,
                amnesia: header.amnesia,
                bytes: message.bytes,
            };
            for watcher in &mut self.watchers {
                if let Err(text) = watcher.on_message(&sent) {
                    self.failure.get_or_insert(text);
                }
            }
        }
        let (now, protocol) = (self.now, self.config.protocol);
        if let Some(trace) = &mut self.trace {
            trace.sent(now, protocol, (from, to), bytes);
        }
    }

    /// Ends the connection between two nodes; they notice a little later and connect again.
    pub fn reset(&mut self, a: usize, b: usize) {
        self.note(|| format!("n{} and n{} lose their connection", a + 1, b + 1));
        self.end_connection(a, b);
        self.plan_connect(a, b, RECONNECT);
    }

    pub(super) fn end_connection(&mut self, a: usize, b: usize) {
        self.stalled
            .retain(|frame| (frame.from, frame.to) != (a, b) && (frame.from, frame.to) != (b, a));
        if self.network.reset(a, b) {
            for (at, peer) in [(a, b), (b, a)] {
                // Both notice before they connect again, see `plan_connect`.
                let when = self.now + self.rng.between(1_000, NOTICE_MAX);
                self.schedule(when, PlannedEvent::Reset { at, peer });
            }
        }
    }

    pub(super) fn plan_connect(&mut self, a: usize, b: usize, delay: u64) {
        let (a, b) = (a.min(b), a.max(b));
        let index = a * self.nodes.len() + b;
        if !std::mem::replace(&mut self.connecting[index], true) {
            let at = self.now + NOTICE_MAX + self.rng.between(1, delay);
            self.schedule(at, PlannedEvent::Connect { a, b });
        }
    }

    pub(super) fn on_connect(&mut self, a: usize, b: usize) {
        self.connecting[a * self.nodes.len() + b] = false;
        if !self.is_up(a) || !self.is_up(b) || self.network.is_up(a, b) {
            return;
        }
        if !self.network.is_open(a, b) {
            self.plan_connect(a, b, RECONNECT);
            return;
        }
        self.network.connect(a, b);
        for (at, peer) in [(a, b), (b, a)] {
            let SimNode { id, incarnation, amnesia, .. } = self.nodes[peer];
            self.input_all(at, &Input::PeerUp { node: id, incarnation, amnesia });
            self.tell_control(at, ControlInput::Up { node: id, incarnation });
        }
    }

    /// Blocks one direction of a link.
    pub fn block(&mut self, from: usize, to: usize) {
        self.note(|| format!("link n{} to n{} is dead", from + 1, to + 1));
        self.network.block(from, to);
    }

    /// Ends one block. Frames kept meanwhile arrive now.
    pub fn unblock(&mut self, from: usize, to: usize) {
        self.note(|| format!("link n{} to n{} is alive", from + 1, to + 1));
        self.network.unblock(from, to);
        self.release_stalled();
    }

    /// A node's view of its peers: slow ones are spared beside a majority of fast ones.
    pub(super) fn paces_at(&self, node: usize) -> Vec<(NodeId, Pace)> {
        let nodes = self.nodes.len();
        let peers = || (0..nodes).filter(|&peer| peer != node && self.network.is_up(node, peer));
        let is_slow = |peer: usize| self.network.is_seen_slow(peer);
        let has_majority = peers().filter(|&peer| !is_slow(peer)).count() >= nodes / 2;
        let pace = |peer| match (is_slow(peer), has_majority) {
            (false, _) => Pace::Steady,
            (true, false) => Pace::Slow,
            (true, true) => Pace::Spared,
        };
        peers().map(|peer| (node_id(peer), pace(peer))).collect()
    }

    /// Ends all blocks, slowness and pauses, and makes the network quiet.
    pub fn heal(&mut self) {
        self.note(|| "everything heals".to_string());
        self.network.heal();
        self.network.set_profile(Links::default());
        // No lease outlasts turns that stop again and again.
        self.config.late_ppm = 0;
        self.release_stalled();
        for node in 0..self.nodes.len() {
            self.nodes[node].clock.set_wall_right();
            self.resume(node);
        }
    }

    pub(super) fn release_stalled(&mut self) {
        for frame in std::mem::take(&mut self.stalled) {
            if self.network.is_blocked(frame.from, frame.to) {
                self.stalled.push(frame);
                continue;
            }
            let at = self.network.arrival(self.now, frame.from, frame.to);
            self.schedule(at, PlannedEvent::Frame(frame));
        }
    }
}
