//! Events of the control thread for the operator.

use base::Nanos;
use transport::{Refusal, Reset};
use types::NodeId;

use super::full_disk::IdentityWrite;
use super::reach::PATIENCE;
use super::watch::{MemberChange, RecoveryStep, duration};
use super::{COMPLAINT_EVERY, Control};
use crate::config::{MemberAddress, PEER_PORT_OFFSET};
use crate::events::event;
use crate::formation::{Standing, only_in};

/// Refusals as a former self, with no message of a peer between, after which this node is one.
const STALE_MAX: u32 = 8;
const STALE: &str = "it knows a later state of this node: this data directory is older than what the node has been since, perhaps a \
                     copy; 'palimpsest reset' lets the node begin anew";

impl Control {
    pub(super) fn report_start(&mut self) {
        self.waiting_for = self.formation.waiting_for();
        let waiting_for = list(&self.waiting_for);
        match self.formation.durable().standing {
            Standing::Empty | Standing::Proposed(_) => {
                event!(
                    self.node_status,
                    INFO,
                    "cluster",
                    "first start: a cluster forms once all members are there",
                    waiting_for = waiting_for
                );
            }
            Standing::Uncertain | Standing::Rejoining(_) => {
                event!(
                    self.node_status,
                    WARN,
                    "cluster",
                    "this node has lost its data: it rejoins the cluster once enough members are there",
                    waiting_for = waiting_for
                );
            }
            Standing::Formed(_) => {
                event!(
                    self.node_status,
                    INFO,
                    "cluster",
                    "restart: this node goes on with the data that it has",
                    dir = self.node_status.config.data_dir.display().to_string()
                );
            }
        }
        self.standing_at_start = self.formation.durable().standing;
        self.report_own_address();
    }

    /// The address in `--cluster` and that of the socket may differ on purpose, as behind a proxy.
    fn report_own_address(&self) {
        let config = &self.node_status.config;
        let members = &self.formation.durable().members;
        let Some(own) = members.iter().find(|member| member.node == config.id) else { return };
        let port = |address: &str| address.rsplit_once(':').map(|(_, port)| port.to_owned());
        if port(&own.peer) != port(&config.peer_listen) {
            let MemberAddress { peer, .. } = own;
            event!(
                self.node_status,
                WARN,
                "cluster",
                format!(
                    "this node listens for other nodes at {}, but by --cluster they look for it at {peer}",
                    config.peer_listen
                )
            );
        }
    }

    pub(super) fn report_begin(&self) {
        let durable = self.formation.durable();
        let cluster = self.formation.cluster().map(|id| id.to_string()).unwrap_or_default();
        let members = durable.members.len();
        let message = match self.standing_at_start {
            Standing::Empty | Standing::Proposed(_)
                if durable.mine.incarnation.0 < crate::formation::JUMP =>
            {
                "cluster formed"
            }
            Standing::Formed(_) => "member of the cluster",
            _ => "rejoined the cluster",
        };
        event!(self.node_status, INFO, "cluster", message, cluster = cluster, members = members);
        self.report_own_list();
    }

    /// A node that rejoins runs with the members' list, and restarts with the one that was typed.
    fn report_own_list(&self) {
        let (typed, used) = (&self.node_status.config.members, &self.formation.durable().members);
        let is_same = |one| used.contains(one);
        if typed.is_empty() || typed.len() == used.len() && typed.iter().all(is_same) {
            return;
        }
        let message = format!(
            "--cluster of this node is not the members' list: only here {}; only there {}. Correct it before the next start",
            only_in(typed, used),
            only_in(used, typed)
        );
        event!(self.node_status, WARN, "cluster", message);
    }

    /// Looks for changes; called in each iteration.
    pub(super) fn report_changes(&mut self, now: Nanos) {
        self.node_status.report_suppressed();
        if self.node_status.is_stopping() {
            return;
        }
        if self.has_begun {
            self.report_members(now);
            self.report_recovery(now);
            self.report_quorum(now);
        } else {
            self.report_waiting();
        }
        self.report_unreached(now);
    }

    fn report_waiting(&mut self) {
        let waiting_for = self.formation.waiting_for();
        if waiting_for != self.waiting_for && !waiting_for.is_empty() {
            event!(
                self.node_status,
                INFO,
                "cluster",
                "waiting for members",
                waiting_for = list(&waiting_for)
            );
        }
        self.waiting_for = waiting_for;
    }

    fn report_members(&mut self, now: Nanos) {
        let state = |node| {
            let incarnation = self.formation.known(node).incarnation;
            (node, self.worker_links.is_complete(node), incarnation)
        };
        let states: Vec<_> = self.others().map(state).collect();
        for (node, change) in self.members.look(now, states.into_iter()) {
            let (peer, addr) = (node.0, self.address(node));
            match change {
                MemberChange::Reached => {
                    event!(
                        self.node_status,
                        INFO,
                        "cluster",
                        "member reached",
                        peer = peer,
                        addr = addr
                    );
                }
                MemberChange::Lost => {
                    let reason = self.reasons.remove(&node);
                    let reason = reason.unwrap_or_else(|| "connection closed".into());
                    event!(
                        self.node_status,
                        WARN,
                        "cluster",
                        "member lost",
                        peer = peer,
                        addr = addr,
                        reason = reason
                    );
                }
                MemberChange::Back { after, has_restarted } => {
                    let message = match has_restarted {
                        true => "member back after a restart",
                        false => "member back",
                    };
                    event!(
                        self.node_status,
                        INFO,
                        "cluster",
                        message,
                        peer = peer,
                        addr = addr,
                        after = duration(after)
                    );
                }
            }
        }
        let members = &self.worker_links;
        self.reasons.retain(|&node, _| !members.is_complete(node));
    }

    fn report_recovery(&mut self, now: Nanos) {
        let shards_left = self.node_status.shards_to_recover();
        match self.recovery.look(now, self.node_status.is_recovering(), shards_left) {
            None => {}
            Some(RecoveryStep::Begun) => event!(
                self.node_status,
                WARN,
                "recovery",
                "recovery begins: this node does not have all of its data and asks the other members",
                shards = shards_left
            ),
            Some(RecoveryStep::Progress { shards_left, percent }) => event!(
                self.node_status,
                INFO,
                "recovery",
                "recovery proceeds",
                percent = percent,
                shards_left = shards_left
            ),
            Some(RecoveryStep::Done { took }) => {
                event!(
                    self.node_status,
                    INFO,
                    "recovery",
                    "recovery complete",
                    took = duration(took)
                );
            }
        }
    }

    /// Data was found lost or damaged at run time.
    pub(super) fn report_amnesia(&mut self, message: &str) {
        if self.recovery.begin(self.node_status.clocks.now()) {
            event!(self.node_status, WARN, "recovery", message);
        }
    }

    fn report_quorum(&mut self, now: Nanos) {
        if !self.node_status.has_begun() {
            return;
        }
        let recovering = self.formation.recovering();
        let helps = |node: &NodeId| self.members.is_up(*node) && !recovering.contains(node);
        let others = self.others().filter(helps).count();
        let up = others + usize::from(!self.node_status.is_recovering());
        let needed = self.formation.durable().members.len() / 2 + 1;
        let has_quorum = up >= needed;
        let before = self.quorum.replace((has_quorum, now));
        match (before, has_quorum) {
            (None, false) => self.quorum = None,
            (None, true) => {
                event!(
                    self.node_status,
                    INFO,
                    "cluster",
                    "ready: a quorum of members serves",
                    up = up
                );
            }
            (Some((true, _)), false) => event!(
                self.node_status,
                ERROR,
                "cluster",
                "quorum lost: requests fail until enough members are back",
                up = up,
                needed = needed
            ),
            (Some((false, since)), true) => {
                let after = duration(now.since(since));
                event!(self.node_status, INFO, "cluster", "quorum back", up = up, after = after);
            }
            (Some((_, since)), _) => self.quorum = Some((has_quorum, since)),
        }
    }

    fn report_unreached(&mut self, now: Nanos) {
        let missing: Vec<NodeId> =
            self.others().filter(|peer| !self.links.contains_key(peer)).collect();
        for peer in self.reach.look(now, missing.into_iter()) {
            let members = &self.formation.durable().members;
            let Some(member) = members.iter().find(|member| member.node == peer) else { continue };
            let seconds = PATIENCE.0 / 1_000_000_000;
            let hint = match self.has_begun {
                true => String::new(),
                false => format!(
                    "; --cluster names {}: nodes listen at that port + {PEER_PORT_OFFSET}, or at the @PEERPORT behind it",
                    member.client
                ),
            };
            event!(
                self.node_status,
                WARN,
                "cluster",
                format!("member not reached for {seconds} s{hint}"),
                peer = peer.0,
                addr = member.peer.clone()
            );
        }
    }

    pub(super) fn report_slow(&mut self, event_loop: usize, peer: NodeId, is_slow: bool) {
        let was_slow = self.slow.iter().any(|(_, node)| *node == peer);
        match is_slow {
            true => self.slow.insert((event_loop, peer)),
            false => self.slow.remove(&(event_loop, peer)),
        };
        let is_slow = self.slow.iter().any(|(_, node)| *node == peer);
        let addr = self.address(peer);
        match (was_slow, is_slow) {
            (false, true) => event!(
                self.node_status,
                WARN,
                "cluster",
                "member slow: messages to it wait for a second or longer",
                peer = peer.0,
                addr = addr
            ),
            (true, false) if self.members.is_up(peer) => {
                event!(
                    self.node_status,
                    INFO,
                    "cluster",
                    "member no longer slow",
                    peer = peer.0,
                    addr = addr
                );
            }
            _ => {}
        }
    }

    /// Counts the reason why a connection ended, and logs those that an operator can fix.
    pub(super) fn report_end(&mut self, peer: Option<NodeId>, addr: String, why: Option<Reset>) {
        let Some(why) = why else { return };
        let is_routine = matches!(
            why,
            Reset::RefusedByPeer(Refusal::Early | Refusal::Stale) | Reset::Refused(_)
        );
        if let Some(peer) = peer.filter(|peer| !is_routine && self.members.is_up(*peer)) {
            self.reasons.entry(peer).or_insert_with(|| why.to_string());
        }
        let (message, reason) = match why {
            Reset::RefusedByPeer(Refusal::Stale) => {
                // An amnesia count that has just been raised is known there with the next
                // connection.
                self.stale += 1;
                if self.stale < STALE_MAX {
                    return;
                }
                self.refused += 1;
                ("refused by a member", STALE.to_string())
            }
            Reset::Refused(Refusal::Early | Refusal::Stale)
            | Reset::RefusedByPeer(Refusal::Early) => return,
            Reset::Refused(Refusal::Features(clash))
            | Reset::RefusedByPeer(Refusal::Features(clash)) => {
                self.refused += 1;
                ("versions of two members do not fit", clash.to_string())
            }
            Reset::Refused(why) => {
                self.refused += 1;
                ("connection of a node refused", why.to_string())
            }
            Reset::RefusedByPeer(why) => {
                self.refused += 1;
                ("refused by a member", format!("seen from there, {why}"))
            }
            Reset::Frame(_) => {
                self.malformed += 1;
                ("connection to a node ended", why.to_string())
            }
            // Reported as a lost member.
            Reset::Deadline | Reset::Silent | Reset::Full
                if peer.is_some_and(|peer| self.reasons.contains_key(&peer)) =>
            {
                return;
            }
            Reset::Deadline | Reset::Silent | Reset::Full | Reset::TooLong(_) => {
                ("connection to a node ended", why.to_string())
            }
        };
        self.complain(peer, addr, message, reason);
    }

    /// Logs that a full disk refuses a write, and that it takes such writes again.
    pub(super) fn report_write(&mut self, write: IdentityWrite, is_done: bool) {
        if !self.full_disk.on_write(write, is_done) {
            return;
        }
        let dir = self.node_status.config.data_dir.display().to_string();
        if is_done {
            let message = match write {
                IdentityWrite::Clocks => "clocks of times to live are saved again",
                IdentityWrite::Notes => "restarted members are noted again",
                IdentityWrite::Groups => "records of groups are saved again",
            };
            event!(self.node_status, INFO, "storage", message, dir = dir);
        } else {
            let message = match write {
                IdentityWrite::Clocks => "disk full: clocks of times to live cannot be saved",
                IdentityWrite::Notes => {
                    "disk full: a restarted member cannot be noted and has to wait"
                }
                IdentityWrite::Groups => {
                    "disk full: records of groups cannot be saved, so this node takes no part"
                }
            };
            event!(self.node_status, ERROR, "storage", message, dir = dir);
        }
    }

    /// Logs a complaint about a peer, at most one per minute.
    pub(super) fn complain(
        &mut self,
        peer: Option<NodeId>,
        addr: String,
        message: &str,
        reason: String,
    ) {
        let now = self.node_status.clocks.now();
        // A member that fails in another way than before is worth a line; others could fail in
        // many.
        let is_same = |said: &str| peer.is_none() || said == reason;
        if let Some((at, said)) = self.complained.get(&peer)
            && now < *at + COMPLAINT_EVERY
            && is_same(said)
        {
            return;
        }
        self.complained.insert(peer, (now, reason.clone()));
        match peer {
            Some(peer) => event!(
                self.node_status,
                WARN,
                "cluster",
                message,
                peer = peer.0,
                addr = addr,
                reason = reason
            ),
            None => {
                event!(self.node_status, WARN, "cluster", message, addr = addr, reason = reason)
            }
        }
    }

    /// The address at which this node looks for a member.
    pub(super) fn address(&self, peer: NodeId) -> String {
        let members = &self.formation.durable().members;
        let member = members.iter().find(|member| member.node == peer);
        member.map(|member| member.peer.clone()).unwrap_or_default()
    }
}

fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
