//! A world of a few nodes that crash, lose their directories, and lose, delay and half-close
//! connections.

use std::collections::{BTreeMap, VecDeque};

use base::Prng;
use types::features::{FeatureLevel, Supported};
use types::wire::Wire;

use super::super::*;

pub(super) fn member(node: u16) -> MemberAddress {
    let address = format!("h:{node}");
    MemberAddress { node: NodeId(node), client: address.clone(), peer: address }
}

pub(super) fn members(count: u16) -> Vec<MemberAddress> {
    (1..=count).map(member).collect()
}

pub(super) fn blank(members: Vec<MemberAddress>) -> Durable {
    let (standing, mine) = (Standing::Empty, Counters::default());
    let (known, limits) = (BTreeMap::new(), BTreeMap::new());
    let (running, databases, generations) = (None, Databases::default(), BTreeMap::new());
    Durable { standing, running, mine, members, known, databases, limits, generations }
}

pub(super) fn id(number: u64) -> Cluster {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Cluster { id: ClusterId(bytes), secret: [number as u8; SECRET_LEN] }
}

/// A message on a connection, in order.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Hello(Hello),
    Status(Box<Status>),
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) ends: [NodeId; 2],
    /// Items on their way to each end.
    pub(super) queues: [VecDeque<Item>; 2],
    /// A closed end takes no input any more; the other may not know.
    pub(super) open: [bool; 2],
}

/// One life of a node, from wipe to wipe.
#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    pub(super) formed: Option<Cluster>,
    /// It became a member of this one without having forgotten anything.
    pub(super) fresh: Option<Cluster>,
    pub(super) most: Counters,
}

pub(super) struct Machine {
    pub(super) disk: Durable,
    pub(super) running: Option<Formation>,
    /// By peer: the connection that counts and whether the peer has introduced itself.
    pub(super) links: BTreeMap<NodeId, usize>,
    pub(super) lives: Vec<Life>,
    /// The list that an operator starts it with.
    pub(super) typed: Vec<MemberAddress>,
    /// The feature levels of the version that is installed.
    pub(super) supported: Supported,
}

pub(super) struct World {
    pub(super) rng: Prng,
    pub(super) machines: BTreeMap<NodeId, Machine>,
    pub(super) connections: Vec<Connection>,
    pub(super) drawn: u64,
    /// A process may die between any two effects.
    pub(super) is_cruel: bool,
    /// How often a node became a member, however it did.
    pub(super) joined: usize,
    /// An operator may type a wrong list.
    pub(super) mistypes: bool,
    /// An operator may install versions that support one feature level more, or less.
    pub(super) upgrades: bool,
}

/// Those of a version that supports `highest` and the one before.
pub(super) fn levels(highest: u16) -> Supported {
    let lowest = FeatureLevel(highest.saturating_sub(1).max(1));
    Supported { lowest, highest: FeatureLevel(highest) }
}

impl World {
    pub(super) fn new(count: u16, seed: u64) -> World {
        let machine = |member: MemberAddress| {
            let (disk, running) = (blank(members(count)), None);
            let lives = vec![Life::default()];
            let (typed, links, supported) = (members(count), BTreeMap::new(), levels(1));
            (member.node, Machine { disk, running, links, lives, typed, supported })
        };
        let machines = members(count).into_iter().map(machine).collect();
        World {
            rng: Prng::new(seed),
            machines,
            connections: Vec::new(),
            drawn: 0,
            is_cruel: true,
            joined: 0,
            mistypes: false,
            upgrades: false,
        }
    }

    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.machines.keys().copied().collect()
    }

    pub(super) fn machine(&mut self, node: NodeId) -> &mut Machine {
        self.machines.get_mut(&node).expect("a node of this world")
    }

    pub(super) fn is_running(&self, node: NodeId) -> bool {
        self.machines[&node].running.is_some()
    }

    pub(super) fn standing(&self, node: NodeId) -> Standing {
        self.machines[&node].disk.standing
    }

    pub(super) fn start(&mut self, node: NodeId) {
        self.drawn += 1;
        let fresh = id(self.drawn);
        let machine = self.machine(node);
        if machine.disk.running.is_some_and(|it| it.beyond(machine.supported).is_some()) {
            return;
        }
        let typed = machine.typed.clone();
        let ids = |list: &[MemberAddress]| list.iter().map(|one| one.node).collect::<Vec<_>>();
        if machine.disk.is_surely_unformed(node) {
            machine.disk.correct(typed, Databases::default());
        } else if ids(&typed) == ids(&machine.disk.members) {
            machine.disk.members = typed;
        } else {
            return;
        }
        machine.disk.mine.incarnation.0 += 1;
        machine.running =
            Some(Formation::new(node, machine.disk.clone(), fresh).supporting(machine.supported));
        self.step(node, FormationInput::Start, false);
    }

    pub(super) fn crash(&mut self, node: NodeId) {
        let machine = self.machine(node);
        machine.running = None;
        machine.links.clear();
        for connection in &mut self.connections {
            for end in 0..2 {
                connection.open[end] &= connection.ends[end] != node;
            }
        }
    }

    pub(super) fn wipe(&mut self, node: NodeId) {
        self.crash(node);
        let machine = self.machine(node);
        machine.disk = blank(machine.disk.members.clone());
        machine.lives.push(Life::default());
    }

    /// An operator installs a version one feature level above or below.
    pub(super) fn install(&mut self, node: NodeId) {
        self.upgrades = true;
        self.crash(node);
        let up = self.rng.below(3) > 0;
        let machine = self.machine(node);
        let highest = machine.supported.highest.0;
        machine.supported = levels(if up { (highest + 1).min(4) } else { (highest - 1).max(1) });
    }

    /// A level is in use only once each member refuses versions without it, for ever.
    pub(super) fn check_raised(&self, level: FeatureLevel) {
        for (node, machine) in &self.machines {
            let pledged = machine.disk.running.map(|running| running.pledged);
            // A wiped member may have been counted before; all others refuse its old versions.
            let was_wiped = machine.lives.len() > 1;
            let is_safe = was_wiped || pledged.is_some_and(|it| it >= level);
            assert!(is_safe, "{node:?} pledged {pledged:?}, not {level}");
        }
    }

    /// An operator starts a node with a list that no cluster can form with, or with another
    /// address in it.
    pub(super) fn mistype(&mut self, node: NodeId) {
        self.mistypes = true;
        self.crash(node);
        let count = self.machines.len() as u16;
        let mut list = members(count);
        let at = self.rng.below(u64::from(count)) as usize;
        match self.rng.below(3) {
            0 => list.push(member(9)),
            1 if list[at].node != node => {
                list.remove(at);
                list.push(member(9));
            }
            _ => list[at].client = "moved:1".to_owned(),
        }
        self.machine(node).typed = list;
    }

    /// The operator finds the mistake.
    pub(super) fn correct(&mut self, node: NodeId) {
        let right = members(self.machines.len() as u16);
        if self.machines[&node].typed != right {
            self.crash(node);
            self.machine(node).typed = right;
        }
    }

    pub(super) fn hello(&self, node: NodeId) -> Hello {
        let machine = &self.machines[&node];
        Hello {
            node,
            incarnation: machine.disk.mine.incarnation,
            amnesia: machine.disk.mine.amnesia,
            cluster: machine.running.as_ref().and_then(Formation::cluster),
            channel: transport::handshake::CHANNEL_CONTROL,
            workers: 1,
            settings: machine.disk.databases.hash(),
            features: machine.running.as_ref().map(Formation::features).unwrap_or_default(),
            nonce: [0; 32],
        }
    }

    pub(super) fn connect(&mut self, one: NodeId, two: NodeId) {
        if !self.is_running(one) || !self.is_running(two) {
            return;
        }
        let hello = |node| VecDeque::from([Item::Hello(self.hello(node))]);
        let queues = [hello(two), hello(one)];
        self.connections.push(Connection { ends: [one, two], queues, open: [true, true] });
    }

    /// Delivers the next item to one end.
    pub(super) fn deliver(&mut self, at: usize, end: usize) {
        let connection = &mut self.connections[at];
        let (to, from) = (connection.ends[end], connection.ends[1 - end]);
        if !connection.open[end] {
            return;
        }
        let Some(item) = connection.queues[end].pop_front() else { return };
        match item {
            Item::Hello(hello) => self.on_hello(at, end, hello),
            Item::Status(status) => {
                let bytes = Status::from_bytes(&status.to_bytes());
                assert_eq!(bytes.as_ref(), Ok(&*status));
                self.step(to, FormationInput::StatusReceived { peer: from, status }, true);
            }
        }
    }

    pub(super) fn on_hello(&mut self, at: usize, end: usize, hello: Hello) {
        let to = self.connections[at].ends[end];
        let own = self.machines[&to].running.as_ref().and_then(Formation::cluster);
        let is_other = own.is_some() && hello.cluster.is_some() && own != hello.cluster;
        let list = &self.machines[&to].disk.members;
        let is_foreign = is_other || list.iter().all(|member| member.node != hello.node);
        let mut effects = Vec::new();
        let running = self.machine(to).running.as_mut().expect("open ends belong to processes");
        if is_foreign || running.note(&hello, &mut effects).is_err() {
            self.connections[at].open[end] = false;
            return;
        }
        if !self.carry_out(to, effects, true) || !self.connections[at].open[end] {
            return;
        }
        if self.machine(to).links.contains_key(&hello.node) {
            self.close_end(to, hello.node);
        }
        self.machine(to).links.insert(hello.node, at);
        self.step(to, FormationInput::Up { peer: hello.node }, true);
    }

    /// One end notices that its connection to `peer` is gone.
    pub(super) fn close_end(&mut self, node: NodeId, peer: NodeId) {
        if let Some(at) = self.machine(node).links.remove(&peer) {
            let connection = &mut self.connections[at];
            let end = usize::from(connection.ends[0] != node);
            connection.open[end] = false;
            self.step(node, FormationInput::Down { peer }, true);
        }
    }

    pub(super) fn step(&mut self, node: NodeId, input: FormationInput, may_crash: bool) {
        let Some(running) = self.machine(node).running.as_mut() else { return };
        let mut effects = Vec::new();
        running.on(input, &mut effects);
        self.carry_out(node, effects, may_crash);
    }

    /// False when the process died over it.
    pub(super) fn carry_out(
        &mut self,
        node: NodeId,
        effects: Vec<Effect>,
        may_crash: bool,
    ) -> bool {
        for effect in effects {
            if may_crash && self.is_cruel && self.rng.chance_ppm(5_000) {
                self.crash(node);
                return false;
            }
            match effect {
                Effect::Persist(durable) => self.persist(node, *durable),
                Effect::Tell(peer) => self.tell(node, peer),
                Effect::TellAll => {
                    let peers: Vec<NodeId> = self.machine(node).links.keys().copied().collect();
                    peers.into_iter().for_each(|peer| self.tell(node, peer));
                }
                Effect::Reconnect => {
                    let peers: Vec<NodeId> = self.machine(node).links.keys().copied().collect();
                    peers.into_iter().for_each(|peer| self.close_end(node, peer));
                    for connection in &mut self.connections {
                        for end in 0..2 {
                            connection.open[end] &= connection.ends[end] != node;
                        }
                    }
                }
                Effect::Forget => self.step(node, FormationInput::Forgotten, may_crash),
                Effect::Formed => self.check_acts(node),
                Effect::Agree(_) => {}
                Effect::Raised(level) => self.check_raised(level),
                Effect::Complain { text, .. } => {
                    let is_due = self.mistypes || self.upgrades;
                    assert!(is_due, "all lists are equal: {text}");
                }
                Effect::Fail(text) => panic!("{text}"),
            }
        }
        true
    }

    pub(super) fn tell(&mut self, node: NodeId, peer: NodeId) {
        let Some(&at) = self.machine(node).links.get(&peer) else { return };
        let status = self.machines[&node].running.as_ref().expect("it speaks").status();
        let end = usize::from(self.connections[at].ends[0] == node);
        self.connections[at].queues[end].push_back(Item::Status(Box::new(status)));
    }

    pub(super) fn persist(&mut self, node: NodeId, durable: Durable) {
        let (was, is) = (self.standing(node), durable.standing);
        if let (Standing::Empty | Standing::Proposed(_), Standing::Formed(cluster)) = (was, is) {
            self.check_fresh(node, cluster);
        }
        let machine = self.machine(node);
        if let (Some(before), Some(after)) = (machine.disk.running, durable.running) {
            assert_eq!(before.max(after), after, "{node:?}: levels never fall");
            assert!(after.level <= after.pledged);
        }
        machine.disk = durable;
    }

    /// A node that becomes a member with an empty memory has never been one, and no other node
    /// remembers another cluster in full.
    pub(super) fn check_fresh(&mut self, node: NodeId, cluster: Cluster) {
        for life in &self.machines[&node].lives {
            assert_ne!(life.formed, Some(cluster), "{node:?} was a member and counts as new");
        }
        for (&other, machine) in &self.machines {
            let life = machine.lives.last().expect("a node lives");
            let remembers = life.fresh.is_some_and(|full| full != cluster);
            assert!(!remembers, "{node:?} forms {cluster:?}, but {other:?} remembers {life:?}");
        }
        let life = self.machine(node).lives.last_mut().expect("a node lives");
        life.fresh = Some(cluster);
    }

    /// Whenever a node may speak as a member: no former life of it used these counters in this
    /// cluster.
    pub(super) fn check_acts(&mut self, node: NodeId) {
        let Standing::Formed(cluster) = self.standing(node) else { panic!("speaks unformed") };
        let mine = self.machines[&node].disk.mine;
        let (life, former) = self.machine(node).lives.split_last_mut().expect("a node lives");
        let is_first = life.formed.is_none();
        assert!(life.formed.is_none_or(|formed| formed == cluster), "{node:?} changed clusters");
        life.formed = Some(cluster);
        life.most = mine;
        for one in former.iter().filter(|one| one.formed == Some(cluster)) {
            assert!(
                one.most.amnesia < mine.amnesia && one.most.incarnation < mine.incarnation,
                "{node:?} uses {mine:?} again, after {one:?}"
            );
        }
        self.joined += usize::from(is_first);
    }

    /// One random event. `faults`: crashes; `wipes`: lost directories.
    pub(super) fn happen(&mut self, faults: bool, wipes: bool) {
        let nodes = self.nodes();
        let node = *self.rng.pick(&nodes);
        let peer = *self.rng.pick(&nodes);
        match self.rng.below(1_000) {
            0..=2 if faults => self.crash(node),
            3 if wipes && self.rng.below(2) == 0 => self.wipe(node),
            // An operator gives up and starts anew.
            5 if wipes && self.rng.below(15) == 0 => nodes.iter().for_each(|&node| self.wipe(node)),
            6..=8 if faults => self.close_end(node, peer),
            9 if self.mistypes && self.rng.below(3) == 0 => self.mistype(node),
            9 if self.mistypes => self.correct(node),
            4 if self.upgrades => self.install(node),
            10..=59 if !self.is_running(node) => self.start(node),
            60..=99 if node != peer => self.connect(node, peer),
            _ => self.deliver_any(),
        }
        if self.connections.len() > 30 {
            self.forget_closed();
        }
    }

    pub(super) fn deliver_any(&mut self) {
        let has_items = |at: &usize| !self.connections[*at].queues.iter().all(VecDeque::is_empty);
        let busy: Vec<usize> = (0..self.connections.len()).filter(has_items).collect();
        if !busy.is_empty() {
            let (at, end) = (*self.rng.pick(&busy), self.rng.below(2) as usize);
            self.deliver(at, end);
        }
    }

    /// Connections whose ends are both closed, or that are old, end for both.
    pub(super) fn forget_closed(&mut self) {
        for node in self.nodes() {
            for peer in self.nodes() {
                self.close_end(node, peer);
            }
        }
        self.connections.clear();
    }

    /// Everything works: all processes run, all connections are made anew and deliver.
    pub(super) fn heal(&mut self) {
        self.is_cruel = false;
        self.nodes().into_iter().for_each(|node| self.correct(node));
        for node in self.nodes() {
            if !self.is_running(node) {
                self.start(node);
            }
        }
        for _ in 0..4 {
            self.forget_closed();
            let nodes = self.nodes();
            for (at, &one) in nodes.iter().enumerate() {
                for &two in &nodes[at + 1..] {
                    self.connect(one, two);
                }
            }
            self.deliver_all();
        }
        self.is_cruel = true;
    }

    /// Delivers for long enough that everything arrives, and short enough to end.
    pub(super) fn deliver_all(&mut self) {
        for _ in 0..200 {
            for at in 0..self.connections.len() {
                for end in 0..2 {
                    self.deliver(at, end);
                }
            }
        }
    }

    /// Connects all nodes in random order, delivers in random order, and restarts some of them.
    pub(super) fn connect_all(&mut self) {
        let nodes = self.nodes();
        let mut pairs: Vec<(NodeId, NodeId)> = nodes
            .iter()
            .flat_map(|&one| nodes.iter().map(move |&two| (one, two)))
            .filter(|(one, two)| one < two)
            .collect();
        while !pairs.is_empty() {
            let at = self.rng.below(pairs.len() as u64) as usize;
            let (one, two) = pairs.swap_remove(at);
            self.connect(one, two);
            for _ in 0..self.rng.below(20) {
                self.deliver_any();
            }
            if self.rng.below(3) == 0 {
                let node = *self.rng.pick(&nodes);
                self.crash(node);
                self.start(node);
            }
        }
        self.deliver_all();
    }

    /// A majority is formed and the others have noted the proposal only.
    pub(super) fn form_majority(&mut self) {
        let cluster = id(70);
        let nodes = self.nodes();
        let majority = nodes.len() / 2 + 1;
        for (at, node) in nodes.into_iter().enumerate() {
            let machine = self.machine(node);
            machine.disk.standing = Standing::Proposed(cluster);
            if at < majority {
                machine.disk.standing = Standing::Formed(cluster);
                machine.disk.running = Some(Running::at(types::features::LOWEST));
                let life = machine.lives.last_mut().expect("a node lives");
                (life.formed, life.fresh) = (Some(cluster), Some(cluster));
            }
        }
    }

    pub(super) fn clusters(&self) -> Vec<Option<Cluster>> {
        let formed = |machine: &Machine| match machine.disk.standing {
            Standing::Formed(cluster) => Some(cluster),
            _ => None,
        };
        self.machines.values().map(formed).collect()
    }

    /// The level at which each member runs.
    pub(super) fn levels(&self) -> Vec<Option<FeatureLevel>> {
        let level = |machine: &Machine| Some(machine.disk.running?.level);
        self.machines.values().map(level).collect()
    }

    pub(super) fn is_one_cluster(&self) -> bool {
        let clusters = self.clusters();
        clusters[0].is_some() && clusters.iter().all(|cluster| *cluster == clusters[0])
    }
}
