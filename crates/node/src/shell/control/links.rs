//! Connections in the control thread's care: dialled, accepted, proven, handed over, ended.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::IpAddr;

use base::Nanos;
use mio::{Interest, Token};
use transport::connection::KeepAlive;
use transport::handshake::{CHANNEL_CONTROL, Handshake};
use transport::{Connection, Happening, Hello, Pipe, Refusal, Reset};
use types::NodeId;

use super::reports::ControlMessage;
use super::{Control, TOKEN_BASE, UNPROVEN_MAX, UNPROVEN_OF_ADDRESS_MAX};
use crate::formation::{FormationInput, Standing};
use crate::shell::mailbox::{Mail, NewLink};

/// A connection in the control thread's care.
pub(super) struct Conn {
    pub(super) pipe: Box<dyn Pipe>,
    pub(super) connection: Connection,
    /// The member that this node dialled, or that has proven itself.
    pub(super) peer: Option<NodeId>,
    pub(super) channel: u16,
    pub(super) is_dialled: bool,
    /// The peer's hello, once proven: this is a control link then.
    pub(super) hello: Option<Hello>,
    pub(super) blocked: bool,
    /// When it was dialled or accepted.
    pub(super) since: Nanos,
    pub(super) address: Option<IpAddr>,
    /// Happenings that wait for room on the disk. No more is read meanwhile.
    pub(super) held: Vec<Happening>,
}

impl Conn {
    pub(super) fn is_held(&self) -> bool {
        !self.held.is_empty()
    }
}

/// How a proven peer is taken.
pub(super) enum Admission {
    Welcome,
    Refused(Refusal),
    /// The disk has no room to note it.
    NoRoom,
}

impl Control {
    pub(super) fn accept(&mut self) {
        self.has_backlog = false;
        loop {
            let pipe = match self.acceptor.accept() {
                Ok(pipe) => pipe,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    // No event tells of those that wait already: they are asked for again.
                    self.has_backlog = error.kind() != ErrorKind::WouldBlock;
                    return;
                }
            };
            self.make_room(pipe.remote().map(|address| address.ip()));
            let others: Vec<NodeId> = self.others().collect();
            let hello = self.hello(CHANNEL_CONTROL);
            let handshake = Handshake::accept(hello, &others, self.secret());
            self.add(pipe, handshake, None, CHANNEL_CONTROL);
        }
    }

    /// Ends the oldest unproven connections until there is room for one from `address`. A member
    /// proves itself within a round trip, so it gets through even where others connect without end.
    fn make_room(&mut self, address: Option<IpAddr>) {
        let unproven = |address: Option<IpAddr>| {
            let conns = self.conns.iter().enumerate();
            let mut found: Vec<(Nanos, usize)> = conns
                .filter_map(|(at, conn)| Some((at, conn.as_ref()?)))
                .filter(|(_, conn)| !conn.is_dialled && conn.hello.is_none())
                .filter(|(_, conn)| address.is_none() || conn.address == address)
                .map(|(at, conn)| (conn.since, at))
                .collect();
            found.sort_unstable();
            found
        };
        let mut ended = BTreeSet::new();
        for (found, most) in
            [(unproven(address), UNPROVEN_OF_ADDRESS_MAX), (unproven(None), UNPROVEN_MAX)]
        {
            if address.is_some() || most == UNPROVEN_MAX {
                let superfluous = (found.len() + 1).saturating_sub(most);
                ended.extend(found.into_iter().take(superfluous).map(|(_, at)| at));
            }
        }
        for at in ended {
            // It was no link, so its end has no effect that could fail.
            let _ = self.drop_conn(at, None);
        }
    }

    pub(super) fn dial_due(&mut self, now: Nanos) {
        for (peer, channel) in self.dialler.take_due(now) {
            match self.network.dial(peer) {
                Ok(pipe) => {
                    let handshake = Handshake::dial(self.hello(channel), peer, self.secret());
                    self.add(pipe, handshake, Some(peer), channel);
                }
                Err(error) => {
                    self.note_unknown_host(peer, &error);
                    self.dialler.failed(peer, channel, now);
                }
            }
        }
    }

    /// Makes those that dial this node do so at once: they may have waited long while it was away.
    pub(super) fn knock(&mut self) {
        for peer in std::mem::take(&mut self.unknocked) {
            match self.network.dial(peer) {
                Ok(pipe) => {
                    let hello = self.hello(CHANNEL_CONTROL);
                    let handshake = Handshake::dial(hello, peer, self.secret());
                    self.add(pipe, handshake, Some(peer), CHANNEL_CONTROL);
                }
                // Its name is being looked up.
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.unknocked.push(peer),
                Err(error) => self.note_unknown_host(peer, &error),
            }
        }
    }

    /// Names a member's host that cannot be looked up. It may be known later, so the node goes on.
    fn note_unknown_host(&mut self, peer: NodeId, error: &std::io::Error) {
        let reason = match error.kind() {
            ErrorKind::NotFound => format!("{error}: correct --cluster, or wait for the name"),
            // No thread can be started.
            ErrorKind::Other => error.to_string(),
            _ => return,
        };
        let addr = self.address(peer);
        self.complain(Some(peer), addr, "host of a member unknown", reason);
    }

    fn add(
        &mut self,
        mut pipe: Box<dyn Pipe>,
        handshake: Handshake,
        dialled: Option<NodeId>,
        channel: u16,
    ) {
        let now = self.node_status.clocks.now();
        let at = self.conns.iter().position(Option::is_none).unwrap_or(self.conns.len());
        let token = Token(TOKEN_BASE + at);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut pipe, token, interest).is_err() {
            if let Some(peer) = dialled {
                self.dialler.failed(peer, channel, now);
            }
            return;
        }
        let keep_alive =
            if channel == CHANNEL_CONTROL { KeepAlive::CONTROL } else { KeepAlive::WORKERS };
        let address = pipe.remote().map(|address| address.ip());
        let conn = Conn {
            pipe,
            connection: Connection::new(handshake, keep_alive, now),
            peer: dialled,
            channel,
            is_dialled: dialled.is_some(),
            hello: None,
            blocked: false,
            since: now,
            address,
            held: Vec::new(),
        };
        match self.conns.get_mut(at) {
            Some(slot) => *slot = Some(conn),
            None => self.conns.push(Some(conn)),
        }
        // A connection that does not stand yet takes the bytes later.
        let _ = self.flush(at);
    }

    pub(super) fn read(&mut self, at: usize) -> Result<(), String> {
        let mut happenings = Vec::new();
        loop {
            let Some(conn) = self.conns[at].as_mut() else { return Ok(()) };
            if conn.is_held() {
                return Ok(());
            }
            match conn.pipe.read(&mut self.scratch) {
                Ok(0) => return self.drop_conn(at, None),
                Ok(count) => {
                    let now = self.node_status.clocks.now();
                    let bytes = &self.scratch[..count];
                    let read = conn.connection.on_bytes(now, bytes, &mut happenings);
                    self.on_happenings(at, &mut happenings)?;
                    if let Err(reset) = read {
                        return self.drop_conn(at, Some(reset));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.drop_conn(at, None),
            }
        }
    }

    pub(super) fn on_happenings(
        &mut self,
        at: usize,
        happenings: &mut Vec<Happening>,
    ) -> Result<(), String> {
        let mut happenings = std::mem::take(happenings).into_iter();
        while let Some(happening) = happenings.next() {
            match happening {
                Happening::Proven(hello) => {
                    let conn = self.conns[at].as_mut().expect("it was just read from");
                    if !conn.is_dialled {
                        conn.channel = hello.channel;
                    }
                    let channel = conn.channel;
                    match self.admit(&hello, channel)? {
                        Admission::Welcome => {}
                        Admission::Refused(refusal) => {
                            let conn = self.conns[at].as_mut().expect("it was just read from");
                            conn.peer = Some(hello.node);
                            return self.refuse(at, refusal);
                        }
                        Admission::NoRoom => {
                            self.hold(at, Happening::Proven(hello), happenings);
                            return Ok(());
                        }
                    }
                    if channel != CHANNEL_CONTROL {
                        let payloads = happenings.filter_map(|happening| match happening {
                            Happening::Payload(bytes) => Some(bytes),
                            Happening::Proven(_) => None,
                        });
                        self.hand_over(at, hello, payloads.collect());
                        return Ok(());
                    }
                    let is_dialled = self.conns[at].as_ref().is_some_and(|conn| conn.is_dialled);
                    match (is_dialled, self.dialler.dials(hello.node)) {
                        // Its purpose is fulfilled once the other end has read it.
                        (true, false) => {}
                        (false, true) => {
                            self.end_former_link(&hello)?;
                            self.dialler.hurry(hello.node, self.node_status.clocks.now());
                            return self.drop_conn(at, None);
                        }
                        _ => self.on_control_link(at, hello)?,
                    }
                }
                Happening::Payload(bytes) => {
                    if !self.on_payload(at, &bytes)? {
                        self.hold(at, Happening::Payload(bytes), happenings);
                        return Ok(());
                    }
                }
            }
            if self.conns[at].is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Ends the control link to a former process of a peer. It may not have been silent for long.
    fn end_former_link(&mut self, hello: &Hello) -> Result<(), String> {
        let Some(&old) = self.links.get(&hello.node) else { return Ok(()) };
        let former = self.conns[old].as_ref().and_then(|conn| conn.hello.as_ref());
        match former {
            Some(former) if former.incarnation < hello.incarnation => self.drop_conn(old, None),
            _ => Ok(()),
        }
    }

    /// Keeps the words of a peer until there is room on the disk to note it.
    fn hold(&mut self, at: usize, first: Happening, rest: impl Iterator<Item = Happening>) {
        let Some(conn) = self.conns[at].as_mut() else { return };
        conn.held = std::iter::once(first).chain(rest).collect();
        self.full_disk.on_held(self.node_status.clocks.now());
    }

    /// Repeats held happenings, once that is due.
    pub(super) fn retry_held(&mut self, now: Nanos) -> Result<(), String> {
        if !self.full_disk.is_due(now) {
            return Ok(());
        }
        for at in 0..self.conns.len() {
            let Some(conn) = self.conns[at].as_mut().filter(|conn| conn.is_held()) else {
                continue;
            };
            let mut held = std::mem::take(&mut conn.held);
            self.on_happenings(at, &mut held)?;
            // No event tells of bytes that arrived meanwhile.
            self.read(at)?;
        }
        Ok(())
    }

    /// Notes a proven peer durably, or says why it is not wanted.
    pub(super) fn admit(&mut self, hello: &Hello, channel: u16) -> Result<Admission, String> {
        let mut noted = Ok(());
        if !self.attempt(|formation, effects| noted = formation.note(hello, effects))? {
            return Ok(Admission::NoRoom);
        }
        if let Err(refusal) = noted {
            return Ok(Admission::Refused(refusal));
        }
        // Its settings and limits count here before its workers are heard.
        let is_known = self.formation.said(hello.node).is_some();
        if channel != CHANNEL_CONTROL && !(self.has_begun && is_known) {
            return Ok(Admission::Refused(Refusal::Early));
        }
        Ok(Admission::Welcome)
    }

    pub(super) fn hand_over(&mut self, at: usize, hello: Hello, payloads: Vec<bytes::Bytes>) {
        // The worker writes the rest of the connection's output.
        let Some(mut conn) = self.conns[at].take() else { return };
        let _ = self.poll.registry().deregister(&mut conn.pipe);
        let (peer, channel) = (hello.node, conn.channel);
        let serial = self.worker_links.add(peer, channel, hello.workers);
        self.dialler.succeeded(peer, channel);
        let Conn { pipe, mut connection, .. } = conn;
        connection.set_keep_alive(KeepAlive::WORKERS);
        let link = NewLink { serial, channel, peer: hello, pipe, connection, payloads };
        let worker = usize::from(channel) % self.node_status.workers.len();
        self.node_status.workers[worker].send(Mail::Link(Box::new(link)));
    }

    pub(super) fn on_control_link(&mut self, at: usize, hello: Hello) -> Result<(), String> {
        let peer = hello.node;
        if let Some(&old) = self.links.get(&peer) {
            self.drop_conn(old, None)?;
        }
        self.dialler.succeeded(peer, CHANNEL_CONTROL);
        let incarnation = hello.incarnation;
        if let Some(conn) = self.conns[at].as_mut() {
            (conn.peer, conn.hello) = (Some(peer), Some(hello));
            self.links.insert(peer, at);
            self.reports.on_link();
            self.tell(FormationInput::Up { peer })?;
            self.with_groups(|groups, now, out| {
                groups.on_peer_up(now, (peer, incarnation), out);
            });
        }
        Ok(())
    }

    /// False if it needs room on the disk.
    fn on_payload(&mut self, at: usize, bytes: &[u8]) -> Result<bool, String> {
        let Some(peer) = self.conns[at].as_ref().and_then(|conn| conn.peer) else {
            return Ok(true);
        };
        match ControlMessage::from_bytes(bytes) {
            Ok(ControlMessage::Status(status)) => {
                self.stale = 0;
                let before = self.formation.said(peer);
                let told = FormationInput::StatusReceived { peer, status };
                if !self.attempt(|formation, effects| formation.on(told, effects))? {
                    return Ok(false);
                }
                if self.formation.said(peer) != before {
                    // Worker links that were refused as too early stand a chance now.
                    self.dialler.hurry(peer, self.node_status.clocks.now());
                }
            }
            Ok(ControlMessage::Report(report)) => {
                self.on_report(peer, *report);
                return Ok(true);
            }
            Ok(ControlMessage::Group(message)) => {
                let hello = self.conns[at].as_ref().and_then(|conn| conn.hello.as_ref());
                let incarnation = hello.map(|hello| hello.incarnation);
                if let Some(incarnation) = incarnation {
                    self.with_groups(|groups, now, out| {
                        groups.on_message(now, (peer, incarnation), *message, out);
                    });
                }
                return Ok(true);
            }
            Ok(ControlMessage::Unknown) => return Ok(true),
            Err(_) => {
                self.refuse(at, Refusal::Malformed)?;
                return Ok(true);
            }
        }
        self.want_links(peer);
        Ok(true)
    }

    /// Between formed members worker links are wanted.
    pub(super) fn want_links(&mut self, peer: NodeId) {
        let hello = self.links.get(&peer).and_then(|&at| self.conns[at].as_ref()?.hello.as_ref());
        let Some(hello) = hello.filter(|_| self.has_begun && self.dialler.dials(peer)) else {
            return;
        };
        let is_formed = matches!(self.formation.said(peer), Some(Standing::Formed(_)));
        if is_formed && self.formation.refused(peer).is_none() {
            let count = self.worker_links.count(hello.workers);
            self.dialler.want(peer, count, self.node_status.clocks.now());
        }
    }

    pub(super) fn refuse(&mut self, at: usize, refusal: Refusal) -> Result<(), String> {
        let Some(conn) = self.conns[at].as_mut() else { return Ok(()) };
        let reset = conn.connection.refuse(refusal);
        self.drop_conn(at, Some(reset))
    }

    pub(super) fn drop_conn(&mut self, at: usize, why: Option<Reset>) -> Result<(), String> {
        let Some(mut conn) = self.conns[at].take() else { return Ok(()) };
        let now = self.node_status.clocks.now();
        if matches!(why, Some(Reset::Refused(_))) {
            // The peer learns why if its pipe takes it at once.
            let _ = conn.pipe.write(conn.connection.unsent());
        }
        let _ = self.poll.registry().deregister(&mut conn.pipe);
        let dialled = conn.peer.map(|peer| self.address(peer));
        let addr = conn.pipe.remote().map(|addr| addr.to_string()).or(dialled);
        self.report_end(conn.peer, addr.unwrap_or_default(), why);
        if let Some(peer) = conn.peer {
            if self.links.get(&peer) == Some(&at) {
                self.links.remove(&peer);
                self.on_control_link_down(peer);
                self.tell(FormationInput::Down { peer })?;
                self.with_groups(|groups, now, out| groups.on_peer_down(now, peer, out));
            }
            if conn.is_dialled {
                self.dialler.failed(peer, conn.channel, now);
            }
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, at: usize) -> Result<(), String> {
        loop {
            let Some(conn) = self.conns[at].as_mut() else { return Ok(()) };
            if conn.blocked || conn.connection.unsent().is_empty() {
                return Ok(());
            }
            match conn.pipe.write(conn.connection.unsent()) {
                Ok(count) if count > 0 => conn.connection.wrote(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) =>
                {
                    conn.blocked = true;
                }
                Ok(_) | Err(_) => return self.drop_conn(at, None),
            }
        }
    }

    pub(super) fn others(&self) -> impl Iterator<Item = NodeId> + '_ {
        let me = self.node_status.id();
        let members = &self.formation.durable().members;
        members.iter().map(|member| member.node).filter(move |&node| node != me)
    }

    pub(super) fn secret(&self) -> &[u8] {
        self.node_status.config.secret.as_deref().unwrap_or_default()
    }

    pub(super) fn hello(&self, channel: u16) -> Hello {
        let mine = self.formation.durable().mine;
        Hello {
            node: self.node_status.id(),
            incarnation: mine.incarnation,
            amnesia: mine.amnesia,
            cluster: self.formation.cluster(),
            channel,
            workers: self.node_status.workers.len() as u16,
            settings: self.formation.durable().databases.hash(),
            features: self.formation.features(),
            nonce: crate::node::draw(),
        }
    }
}
