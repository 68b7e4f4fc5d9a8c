//! Forms a cluster, and readmits a node that lost its memory.
//!
//! Free of sockets, clocks and files. Each node sends its [`Status`] to each other node when a
//! connection opens and when the status changes. A status is valid only while the connection that
//! brought it is open. A change is durable before it is sent.
//!
//! **Forming.** The member with the lowest id proposes a random cluster once *all* members have
//! reported that they never belonged to one. All must hold the same member list and the same
//! databases. The others note the proposal. The proposer becomes formed once all have noted it, and
//! each other member when it hears so. Only the proposer can form a cluster first: while it reports
//! `Proposed`, no node is formed.
//!
//! **Correcting.** A node may restart with another list or other databases while surely no cluster
//! has formed with it ([`Durable::is_surely_unformed`]). A member drops a noted proposal once the
//! proposer has dropped it and no other member is formed. The proposer's report alone is not
//! enough: it may have formed the cluster and lost its disk.
//!
//! **Rejoining.** A node that remembers no cluster and meets a formed one has lost its memory. It
//! takes an incarnation and an amnesia count far above all that enough members know of it. It waits
//! until as many members have durably noted both. Then it forgets all its data, and only then sends
//! messages. Enough is `n - majority + 1` of the others: any majority that once counted this node's
//! vote includes one of them. The counters jump by [`JUMP`], because a former incarnation may have
//! raised its own a few times unheard. The node takes the list of the members, except for addresses
//! at which it has reached them.
//!
//! **Noting.** A peer's incarnation and amnesia count are durable here before any of its messages
//! counts. So a node that restarts still knows which former messages of its peers are void [Michael
//! et al., DISC 2017].
//!
//! **Feature levels.** A cluster forms at the lowest of its members' highest levels. A member
//! pledges a higher one once all members have announced it on their present connections. From then
//! on it refuses nodes that do not support it. The cluster runs at the level that all members have
//! reported as pledged. Both are durable in both copies of the identity and never fall.
//!
//! **Settings.** The node ignores a peer with other databases. A peer's limits are durable here
//! before links to its workers are made. So a restarted node respects the limits of a member that
//! is down. A raised limit applies once every connected member knows it.

mod encoding;
mod levels;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use transport::{ClusterId, Hello, Refusal};
use types::features::{Clash, FeatureLevel, Features, Running, Supported};
use types::positions::SECRET_LEN;
use types::{AmnesiaCount, Database, Incarnation, NodeId};

use crate::config::MemberAddress;
use crate::settings::{Agreed, Databases, Limits};

/// Counters of a node that lost its memory rise to the next multiple of this.
pub const JUMP: u32 = 1 << 12;

/// A cluster, as the proposer drew it. A status carries it, so the other end has proved its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cluster {
    pub id: ClusterId,
    /// Decides the positions of keys; shown nowhere.
    pub secret: [u8; SECRET_LEN],
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

/// How a node stands to a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It never belonged to one, as far as its directory knows.
    Empty,
    /// It would belong to this one if all agree; it never spoke as a member.
    Proposed(Cluster),
    /// It may have belonged to one and does not know which: it never counts as empty.
    Uncertain,
    /// It belongs to this one, has lost its memory, and waits until enough members have noted that.
    Rejoining(Cluster),
    Formed(Cluster),
}

/// Counters that distinguish the incarnations of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Counters {
    pub incarnation: Incarnation,
    pub amnesia: AmnesiaCount,
}

/// State that must survive a crash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Durable {
    pub standing: Standing,
    /// Always there in a member.
    pub running: Option<Running>,
    pub mine: Counters,
    /// Sorted by node.
    pub members: Vec<MemberAddress>,
    /// The highest counters of the others that were ever noted.
    pub known: BTreeMap<NodeId, Counters>,
    pub databases: Databases,
    /// The limits that each member announced last, this node included.
    pub limits: BTreeMap<NodeId, Limits>,
    /// How often the cluster gave up all that a database held; never is left out. It only rises.
    pub generations: BTreeMap<Database, u64>,
}

impl Durable {
    /// True while no cluster can have formed with this node in it.
    ///
    /// An empty node never agreed to a proposal. A proposer forms the cluster before any other
    /// member does, and it has not.
    #[must_use]
    pub fn is_surely_unformed(&self, me: NodeId) -> bool {
        match self.standing {
            Standing::Empty => true,
            Standing::Proposed(_) => lowest(&self.members) == Some(me),
            Standing::Uncertain | Standing::Rejoining(_) | Standing::Formed(_) => false,
        }
    }

    /// Takes a corrected list and databases on a start. A proposal made for other ones is dropped.
    pub fn correct(&mut self, members: Vec<MemberAddress>, databases: Databases) {
        if self.members != members || self.databases != databases {
            (self.standing, self.running) = (Standing::Empty, None);
        }
        (self.members, self.databases) = (members, databases);
    }
}

/// The report that a node sends to the others about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    pub standing: Standing,
    pub features: Features,
    pub members: Vec<MemberAddress>,
    pub known: BTreeMap<NodeId, Counters>,
    /// Some shards are forgotten and not recovered yet. The node does not help a quorum there.
    pub is_recovering: bool,
    pub databases: Databases,
    /// The limits of each member as far as the node knows them, its own included.
    pub limits: BTreeMap<NodeId, Limits>,
    pub generations: BTreeMap<Database, u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FormationInput {
    Start,
    /// A control connection opened. `peer` is the authenticated node at the other end.
    Up {
        peer: NodeId,
    },
    Down {
        peer: NodeId,
    },
    StatusReceived {
        peer: NodeId,
        status: Box<Status>,
    },
    Forgotten,
    /// True while this node recovers forgotten shards.
    Recovering(bool),
}

/// To be carried out in order; a failed one stops the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Make this durable before anything else.
    Persist(Box<Durable>),
    /// Tell every connected peer the status.
    TellAll,
    Tell(NodeId),
    /// This node's counters changed: drop all connections and introduce itself anew.
    Reconnect,
    /// Mark all data in the stores as forgotten, then send [`FormationInput::Forgotten`].
    Forget,
    /// The node is a member: workers may send.
    Formed,
    /// These limits count from now on.
    Agree(Agreed),
    /// The cluster runs at this level from now on.
    Raised(FeatureLevel),
    /// Log a fault that needs an operator.
    Complain {
        peer: NodeId,
        text: String,
    },
    Fail(String),
}

/// One node's part in forming and rejoining.
#[derive(Clone, Debug)]
pub struct Formation {
    me: NodeId,
    supported: Supported,
    durable: Durable,
    /// The cluster that this node would propose.
    fresh: Cluster,
    /// The noted proposal that was dropped last. A member may have become formed unheard meanwhile.
    dropped: Option<Cluster>,
    /// Connected peers, and the latest status of each.
    heard: BTreeMap<NodeId, Option<Status>>,
    /// Peers whose last connection was refused for their features.
    clashes: BTreeMap<NodeId, Clash>,
    forget_asked: bool,
    is_recovering: bool,
}

impl Formation {
    /// `fresh` is drawn at random for every start of the process.
    #[must_use]
    pub fn new(me: NodeId, durable: Durable, fresh: Cluster) -> Formation {
        Formation {
            me,
            supported: Supported::HERE,
            durable,
            fresh,
            dropped: None,
            heard: BTreeMap::new(),
            clashes: BTreeMap::new(),
            forget_asked: false,
            is_recovering: false,
        }
    }

    /// The same for a node that supports other feature levels than this version.
    #[must_use]
    pub fn supporting(self, supported: Supported) -> Formation {
        Formation { supported, ..self }
    }

    #[must_use]
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// The status that [`Effect::Tell`] sends.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            standing: self.durable.standing,
            features: self.features(),
            members: self.durable.members.clone(),
            known: self.durable.known.clone(),
            is_recovering: self.is_recovering,
            databases: self.durable.databases.clone(),
            limits: self.durable.limits.clone(),
            generations: self.durable.generations.clone(),
        }
    }

    /// The limits that count now. A raised one counts once every connected member knows it.
    #[must_use]
    pub fn agreed(&self) -> Agreed {
        let mut limits = self.durable.limits.clone();
        let heard = self.heard.values().flatten();
        for status in heard.filter(|status| status.databases == self.durable.databases) {
            for (node, &theirs) in &status.limits {
                if let Some(one) = limits.get_mut(node) {
                    *one = one.strictest(theirs);
                }
            }
        }
        Agreed::of(&limits)
    }

    /// Why a peer is refused: the setting or the feature level in which it differs from this node.
    #[must_use]
    pub fn refused(&self, peer: NodeId) -> Option<String> {
        if let Some(clash) = self.clashes.get(&peer) {
            return Some(clash.to_string());
        }
        let status = self.heard.get(&peer)?.as_ref()?;
        self.durable.databases.difference("here", &status.databases, "there")
    }

    /// Peers whose latest status reports recovery of forgotten shards.
    #[must_use]
    pub fn recovering(&self) -> BTreeSet<NodeId> {
        let said = |status: &Option<Status>| status.as_ref().is_some_and(|one| one.is_recovering);
        self.heard.iter().filter(|(_, status)| said(status)).map(|(&peer, _)| peer).collect()
    }

    /// The cluster that this node names in its hellos.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        match self.durable.standing {
            Standing::Formed(cluster) | Standing::Rejoining(cluster) => Some(cluster.id),
            Standing::Empty | Standing::Proposed(_) | Standing::Uncertain => None,
        }
    }

    #[must_use]
    pub fn is_formed(&self) -> bool {
        matches!(self.durable.standing, Standing::Formed(_))
    }

    /// Members whose status this node waits for.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<NodeId> {
        let good = |node: NodeId| match (self.durable.standing, self.said(node)) {
            (Standing::Formed(_), _) => true,
            (Standing::Rejoining(mine), Some(Standing::Formed(theirs))) => {
                mine == theirs && self.has_noted_me(node)
            }
            (Standing::Rejoining(_), _) => false,
            (_, said) => said.is_some() && self.refused(node).is_none(),
        };
        self.others().filter(|&node| !good(node)).collect()
    }

    /// The noted counters of a peer.
    #[must_use]
    pub fn known(&self, peer: NodeId) -> Counters {
        self.durable.known.get(&peer).copied().unwrap_or_default()
    }

    /// Notes the peer at the other end of a new connection, of any channel.
    ///
    /// A node that names no cluster is no member yet, and may have forgotten its counters: they are
    /// neither noted nor compared.
    ///
    /// # Errors
    /// [`Refusal`] when it is an earlier incarnation of the peer, or its version does not fit.
    pub fn note(&mut self, hello: &Hello, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        if let Some(clash) = self.clash(hello.node, hello.features) {
            self.clashes.insert(hello.node, clash);
            return Err(Refusal::Features(clash));
        }
        self.clashes.remove(&hello.node);
        if hello.cluster.is_none() {
            return Ok(());
        }
        let known = self.known(hello.node);
        let seen = Counters { incarnation: hello.incarnation, amnesia: hello.amnesia };
        if seen.incarnation < known.incarnation || seen.amnesia < known.amnesia {
            return Err(Refusal::Stale);
        }
        if seen != known {
            self.durable.known.insert(hello.node, seen);
            self.persist(out);
        }
        Ok(())
    }

    /// This node's amnesia count was raised while it runs.
    ///
    /// # Panics
    /// If it did not grow.
    pub fn raise_amnesia(&mut self, amnesia: AmnesiaCount, out: &mut Vec<Effect>) {
        let mine = &mut self.durable.mine;
        assert!(amnesia > mine.amnesia, "{amnesia:?} is not above {mine:?}");
        mine.amnesia = amnesia;
        out.push(Effect::Persist(Box::new(self.durable.clone())));
        out.push(Effect::Reconnect);
    }

    /// Marks the store of this member as lost before the start, though its identity is intact. It
    /// rejoins under the raised `amnesia`. The caller makes the result durable.
    ///
    /// # Panics
    /// If it is not a member, or the amnesia count did not grow.
    pub fn lose_memory(&mut self, amnesia: AmnesiaCount) -> &Durable {
        let Standing::Formed(cluster) = self.durable.standing else {
            panic!("only a member has a memory to lose")
        };
        let mine = &mut self.durable.mine;
        assert!(amnesia > mine.amnesia, "{amnesia:?} is not above {mine:?}");
        mine.amnesia = amnesia;
        self.durable.standing = Standing::Rejoining(cluster);
        &self.durable
    }

    pub fn on(&mut self, input: FormationInput, out: &mut Vec<Effect>) {
        let before = self.agreed();
        match input {
            FormationInput::Start => {
                out.push(Effect::Agree(self.agreed()));
                if self.is_formed() {
                    out.push(Effect::Formed);
                }
            }
            FormationInput::Up { peer } => {
                self.heard.insert(peer, None);
                out.push(Effect::Tell(peer));
            }
            FormationInput::Down { peer } => {
                self.heard.remove(&peer);
            }
            FormationInput::StatusReceived { peer, status } => self.on_status(peer, *status, out),
            FormationInput::Forgotten => self.on_forgotten(out),
            FormationInput::Recovering(is_recovering) => {
                if std::mem::replace(&mut self.is_recovering, is_recovering) != is_recovering {
                    out.push(Effect::TellAll);
                }
            }
        }
        let agreed = self.agreed();
        if agreed != before {
            out.push(Effect::Agree(agreed));
        }
        self.advance(out);
        self.raise_level(out);
        self.learn_generations(out);
    }

    fn on_status(&mut self, peer: NodeId, status: Status, out: &mut Vec<Effect>) {
        let Some(heard) = self.heard.get_mut(&peer) else { return };
        let databases = &self.durable.databases;
        if let Some(text) = databases.difference("here", &status.databases, "there") {
            let text = format!(
                "refused: {text}. Protocol, durability and replicas of a database must be the same on all nodes"
            );
            *heard = Some(status);
            return out.push(Effect::Complain { peer, text });
        }
        if let Some(clash) = self.clash(peer, status.features) {
            self.clashes.insert(peer, clash);
            self.heard.insert(peer, None);
            return out.push(Effect::Complain { peer, text: clash.to_string() });
        }
        let Some(heard) = self.heard.get_mut(&peer) else { return };
        let agrees = status.members == self.durable.members;
        if let (false, Standing::Empty | Standing::Proposed(_)) = (agrees, self.durable.standing)
            && matches!(status.standing, Standing::Empty | Standing::Proposed(_))
        {
            let text = difference(&self.durable.members, &status.members);
            out.push(Effect::Complain { peer, text });
        }
        let limits = status.limits.get(&peer).copied();
        *heard = Some(status);
        if let Some(limits) = limits {
            self.note_limits(peer, limits, out);
        }
    }

    /// Limits are durable before they count: this node may restart while the peer is down.
    fn note_limits(&mut self, peer: NodeId, limits: Limits, out: &mut Vec<Effect>) {
        let is_member = self.durable.members.iter().any(|member| member.node == peer);
        if is_member && self.durable.limits.insert(peer, limits) != Some(limits) {
            self.persist(out);
        }
    }

    fn on_forgotten(&mut self, out: &mut Vec<Effect>) {
        let Standing::Rejoining(cluster) = self.durable.standing else { return };
        let running = self.durable.running.or_else(|| self.running_in(cluster));
        if let Some(running) = running {
            self.become_formed(cluster, running, out);
        }
    }

    /// Takes every step that the received statuses allow, at most a few in a row.
    fn advance(&mut self, out: &mut Vec<Effect>) {
        loop {
            let before = self.durable.standing;
            match before {
                Standing::Empty => self.advance_empty(None, out),
                Standing::Proposed(cluster) => self.advance_empty(Some(cluster), out),
                Standing::Uncertain => self.rejoin(out),
                Standing::Rejoining(cluster) => self.advance_rejoining(cluster, out),
                Standing::Formed(_) => {}
            }
            if self.durable.standing == before {
                return;
            }
        }
    }

    fn advance_empty(&mut self, proposed: Option<Cluster>, out: &mut Vec<Effect>) {
        if let Some((formed, running)) = self.formed_cluster() {
            match proposed {
                // It noted the proposal and waited, so it never spoke as a member.
                _ if proposed.or(self.dropped) == Some(formed) => {
                    self.become_formed(formed, running, out);
                }
                // The proposer might still form the promised cluster, unless it reports otherwise.
                Some(mine) if !self.is_abandoned(mine) => {}
                _ => self.rejoin(out),
            }
        } else if self.is_proposer() {
            self.propose(proposed, out);
        } else {
            self.follow(proposed, out);
        }
    }

    /// Notes the proposer's offer. Drops it if the proposer has and no other member is formed.
    fn follow(&mut self, proposed: Option<Cluster>, out: &mut Vec<Effect>) {
        let agrees = self.agrees(self.proposer());
        match (self.said(self.proposer()), proposed) {
            (Some(Standing::Proposed(offer)), noted) if noted == Some(offer) => {}
            (Some(Standing::Proposed(offer)), _) if agrees => {
                self.set_standing(Standing::Proposed(offer), out);
            }
            // A proposer that formed the cluster and lost its disk says the same: the others know.
            (Some(_), Some(_)) if self.others().all(|node| self.is_unformed(node)) => {
                self.dropped = proposed;
                self.set_standing(Standing::Empty, out);
            }
            _ => {}
        }
    }

    fn propose(&mut self, proposed: Option<Cluster>, out: &mut Vec<Effect>) {
        let is_empty = |node| self.agrees(node) && self.is_unformed(node);
        if !self.others().all(is_empty) {
            return;
        }
        match proposed {
            None => self.set_standing(Standing::Proposed(self.fresh), out),
            Some(mine) => {
                let noted = |node| self.said(node) == Some(Standing::Proposed(mine));
                if self.others().all(noted) {
                    self.become_formed(mine, Running::at(self.common_level()), out);
                }
            }
        }
    }

    /// Takes unused counters once enough members of the cluster are connected.
    fn rejoin(&mut self, out: &mut Vec<Effect>) {
        let Some((cluster, running)) = self.formed_cluster() else { return };
        let formed: Vec<&Status> = self
            .heard
            .values()
            .flatten()
            .filter(|status| status.standing == Standing::Formed(cluster))
            .filter(|status| status.databases == self.durable.databases)
            .collect();
        let members = self.corrected(&formed[0].members);
        if members.iter().all(|member| member.node != self.me) {
            return;
        }
        if formed.len() < enough(members.len()) {
            return;
        }
        let mut known = self.durable.known.clone();
        let mut mine = self.durable.mine;
        let mut limits = self.durable.limits.clone();
        for status in formed {
            for (&node, &theirs) in &status.limits {
                if node != self.me {
                    let one = limits.entry(node).or_insert(theirs);
                    *one = one.strictest(theirs);
                }
            }
            for (&node, counters) in &status.known {
                let most = if node == self.me { &mut mine } else { known.entry(node).or_default() };
                most.incarnation = most.incarnation.max(counters.incarnation);
                most.amnesia = most.amnesia.max(counters.amnesia);
            }
        }
        let Some(mine) = jump(mine) else {
            out.push(Effect::Fail(format!(
                "node {} has lost its memory too often: replace it by a node of another id",
                self.me
            )));
            return;
        };
        limits.retain(|&node, _| members.iter().any(|member| member.node == node));
        let (standing, databases) = (Standing::Rejoining(cluster), self.durable.databases.clone());
        // A former self may have pledged more than it knew: every member that it met had, too.
        let running = self.durable.running.map_or(running, |mine| mine.max(running));
        let running = Some(running);
        let generations = self.generations_in(cluster);
        self.durable =
            Durable { standing, running, mine, members, known, databases, limits, generations };
        out.push(Effect::Persist(Box::new(self.durable.clone())));
        out.push(Effect::Agree(self.agreed()));
        out.push(Effect::Reconnect);
    }

    /// The list of a member, with this node's addresses of itself and of the peers that it dialled.
    fn corrected(&self, theirs: &[MemberAddress]) -> Vec<MemberAddress> {
        let is_dialled = |node: NodeId| node > self.me && self.heard.contains_key(&node);
        let own = |node| self.durable.members.iter().find(|mine| mine.node == node);
        let one = |their: &MemberAddress| match own(their.node) {
            Some(mine) if mine.node == self.me || is_dialled(mine.node) => mine.clone(),
            _ => their.clone(),
        };
        theirs.iter().map(one).collect()
    }

    fn advance_rejoining(&mut self, cluster: Cluster, out: &mut Vec<Effect>) {
        let noted = self.others().filter(|&node| {
            self.said(node) == Some(Standing::Formed(cluster)) && self.has_noted_me(node)
        });
        if !self.forget_asked && noted.count() >= enough(self.durable.members.len()) {
            self.forget_asked = true;
            out.push(Effect::Forget);
        }
    }

    fn become_formed(&mut self, cluster: Cluster, running: Running, out: &mut Vec<Effect>) {
        self.durable.running = Some(running);
        self.set_standing(Standing::Formed(cluster), out);
        out.push(Effect::Formed);
    }

    fn set_standing(&mut self, standing: Standing, out: &mut Vec<Effect>) {
        self.durable.standing = standing;
        self.persist(out);
    }

    fn persist(&self, out: &mut Vec<Effect>) {
        out.push(Effect::Persist(Box::new(self.durable.clone())));
        out.push(Effect::TellAll);
    }

    fn others(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.durable.members.iter().map(|member| member.node).filter(|&node| node != self.me)
    }

    /// The latest standing that a connected peer reported.
    #[must_use]
    pub fn said(&self, node: NodeId) -> Option<Standing> {
        self.heard.get(&node)?.as_ref().map(|status| status.standing)
    }

    /// True if it reported that it belongs to no cluster.
    fn is_unformed(&self, node: NodeId) -> bool {
        matches!(self.said(node), Some(Standing::Empty | Standing::Proposed(_)))
    }

    fn agrees(&self, node: NodeId) -> bool {
        let Some(Some(status)) = self.heard.get(&node) else { return false };
        status.members == self.durable.members && status.databases == self.durable.databases
    }

    fn has_noted_me(&self, node: NodeId) -> bool {
        let Some(Some(status)) = self.heard.get(&node) else { return false };
        status.known.get(&self.me) == Some(&self.durable.mine)
    }

    /// The cluster that a connected member belongs to, and its levels.
    fn formed_cluster(&self) -> Option<(Cluster, Running)> {
        let cluster = self.heard.values().flatten().find_map(|status| match status.standing {
            Standing::Formed(cluster) if status.databases == self.durable.databases => {
                Some(cluster)
            }
            _ => None,
        })?;
        Some((cluster, self.running_in(cluster)?))
    }

    fn proposer(&self) -> NodeId {
        lowest(&self.durable.members).unwrap_or(self.me)
    }

    fn is_proposer(&self) -> bool {
        self.proposer() == self.me
    }

    /// True when the proposer will surely not form `cluster` any more.
    fn is_abandoned(&self, cluster: Cluster) -> bool {
        self.is_proposer()
            || self.said(self.proposer()).is_some_and(|said| said != Standing::Proposed(cluster))
    }
}

fn lowest(members: &[MemberAddress]) -> Option<NodeId> {
    members.iter().map(|member| member.node).min()
}

/// The number of other members such that every majority without this node has one of them.
fn enough(members: usize) -> usize {
    let majority = members / 2 + 1;
    members - majority + 1
}

fn jump(counters: Counters) -> Option<Counters> {
    let next = |counter: u32| (counter / JUMP + 1) * JUMP;
    let incarnation = Incarnation(next(counters.incarnation.0));
    let amnesia = AmnesiaCount(next(counters.amnesia.0));
    let may_jump = incarnation < Incarnation::MAX && amnesia < AmnesiaCount::MAX;
    may_jump.then_some(Counters { incarnation, amnesia })
}

fn difference(mine: &[MemberAddress], theirs: &[MemberAddress]) -> String {
    format!(
        "its --cluster list is another: only here {}; only there {}. Give all members the same list",
        only_in(mine, theirs),
        only_in(theirs, mine)
    )
}

/// The entries of `members` that `others` lacks, for an operator.
pub(crate) fn only_in(members: &[MemberAddress], others: &[MemberAddress]) -> String {
    let only: Vec<String> = members
        .iter()
        .filter(|member| !others.contains(member))
        .map(|member| format!("{}={} ({})", member.node, member.client, member.peer))
        .collect();
    if only.is_empty() { "none".to_string() } else { only.join(", ") }
}

#[cfg(test)]
mod tests;
