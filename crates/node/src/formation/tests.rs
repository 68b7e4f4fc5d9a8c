//! A world of a few nodes that crash, lose their directories, and lose, delay and half-close connections.

use std::collections::{BTreeMap, VecDeque};

use base::Prng;
use proptest::prelude::*;

use super::*;

fn member(node: u16) -> MemberAddress {
    let address = format!("h:{node}");
    MemberAddress { node: NodeId(node), client: address.clone(), peer: address }
}

fn members(count: u16) -> Vec<MemberAddress> {
    (1..=count).map(member).collect()
}

fn blank(members: Vec<MemberAddress>) -> Durable {
    let (standing, mine) = (Standing::Empty, Counters::default());
    let (known, limits) = (BTreeMap::new(), BTreeMap::new());
    Durable { standing, mine, members, known, databases: Databases::default(), limits }
}

fn id(number: u64) -> ClusterId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    ClusterId(bytes)
}

/// What travels on a connection, in order.
#[derive(Clone, Debug)]
enum Item {
    Hello(Hello),
    Status(Status),
}

#[derive(Debug)]
struct Connection {
    ends: [NodeId; 2],
    /// Items on their way to each end.
    queues: [VecDeque<Item>; 2],
    /// An end that was closed takes nothing in any more; the other may not know.
    open: [bool; 2],
}

/// What one life of a node, from wipe to wipe, has been.
#[derive(Clone, Debug, Default)]
struct Life {
    formed: Option<ClusterId>,
    /// It became a member of this one without having forgotten anything.
    fresh: Option<ClusterId>,
    most: Counters,
}

struct Machine {
    disk: Durable,
    running: Option<Formation>,
    /// By peer: the connection that counts and whether the peer has introduced itself.
    links: BTreeMap<NodeId, usize>,
    lives: Vec<Life>,
    /// The list that an operator starts it with.
    typed: Vec<MemberAddress>,
}

struct World {
    rng: Prng,
    machines: BTreeMap<NodeId, Machine>,
    connections: Vec<Connection>,
    drawn: u64,
    /// A process may die between any two effects.
    is_cruel: bool,
    /// How often a node became a member, however it did.
    joined: usize,
    /// An operator may type a wrong list.
    mistypes: bool,
}

impl World {
    fn new(count: u16, seed: u64) -> World {
        let machine = |member: MemberAddress| {
            let (disk, running) = (blank(members(count)), None);
            let lives = vec![Life::default()];
            let typed = members(count);
            (member.node, Machine { disk, running, links: BTreeMap::new(), lives, typed })
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
        }
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.machines.keys().copied().collect()
    }

    fn machine(&mut self, node: NodeId) -> &mut Machine {
        self.machines.get_mut(&node).expect("a node of this world")
    }

    fn is_running(&self, node: NodeId) -> bool {
        self.machines[&node].running.is_some()
    }

    fn standing(&self, node: NodeId) -> Standing {
        self.machines[&node].disk.standing
    }

    fn start(&mut self, node: NodeId) {
        self.drawn += 1;
        let fresh = id(self.drawn);
        let machine = self.machine(node);
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
        machine.running = Some(Formation::new(node, machine.disk.clone(), fresh));
        self.step(node, Input::Start, false);
    }

    fn crash(&mut self, node: NodeId) {
        let machine = self.machine(node);
        machine.running = None;
        machine.links.clear();
        for connection in &mut self.connections {
            for end in 0..2 {
                connection.open[end] &= connection.ends[end] != node;
            }
        }
    }

    fn wipe(&mut self, node: NodeId) {
        self.crash(node);
        let machine = self.machine(node);
        machine.disk = blank(machine.disk.members.clone());
        machine.lives.push(Life::default());
    }

    /// An operator starts a node with a list that no cluster can form with, or with another address in it.
    fn mistype(&mut self, node: NodeId) {
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
    fn correct(&mut self, node: NodeId) {
        let right = members(self.machines.len() as u16);
        if self.machines[&node].typed != right {
            self.crash(node);
            self.machine(node).typed = right;
        }
    }

    fn hello(&self, node: NodeId) -> Hello {
        let machine = &self.machines[&node];
        Hello {
            node,
            incarnation: machine.disk.mine.incarnation,
            loss: machine.disk.mine.loss,
            cluster: machine.running.as_ref().and_then(Formation::cluster),
            channel: transport::handshake::CHANNEL_CONTROL,
            workers: 1,
            settings: machine.disk.databases.hash(),
            nonce: [0; 32],
        }
    }

    fn connect(&mut self, one: NodeId, two: NodeId) {
        if !self.is_running(one) || !self.is_running(two) {
            return;
        }
        let hello = |node| VecDeque::from([Item::Hello(self.hello(node))]);
        let queues = [hello(two), hello(one)];
        self.connections.push(Connection { ends: [one, two], queues, open: [true, true] });
    }

    /// Delivers the next item to one end.
    fn deliver(&mut self, at: usize, end: usize) {
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
                assert_eq!(bytes.as_ref(), Ok(&status));
                self.step(to, Input::Told { peer: from, status }, true);
            }
        }
    }

    fn on_hello(&mut self, at: usize, end: usize, hello: Hello) {
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
        self.step(to, Input::Up { peer: hello.node }, true);
    }

    /// One end notices that its connection to `peer` is gone.
    fn close_end(&mut self, node: NodeId, peer: NodeId) {
        if let Some(at) = self.machine(node).links.remove(&peer) {
            let connection = &mut self.connections[at];
            let end = usize::from(connection.ends[0] != node);
            connection.open[end] = false;
            self.step(node, Input::Down { peer }, true);
        }
    }

    fn step(&mut self, node: NodeId, input: Input, may_crash: bool) {
        let Some(running) = self.machine(node).running.as_mut() else { return };
        let mut effects = Vec::new();
        running.on(input, &mut effects);
        self.carry_out(node, effects, may_crash);
    }

    /// False when the process died over it.
    fn carry_out(&mut self, node: NodeId, effects: Vec<Effect>, may_crash: bool) -> bool {
        for effect in effects {
            if may_crash && self.is_cruel && self.rng.chance_ppm(5_000) {
                self.crash(node);
                return false;
            }
            match effect {
                Effect::Persist(durable) => self.persist(node, durable),
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
                Effect::Forget => self.step(node, Input::Forgotten, may_crash),
                Effect::Formed => self.check_acts(node),
                Effect::Agree(_) => {}
                Effect::Complain { text, .. } => {
                    assert!(self.mistypes, "all lists are equal: {text}");
                }
                Effect::Fail(text) => panic!("{text}"),
            }
        }
        true
    }

    fn tell(&mut self, node: NodeId, peer: NodeId) {
        let Some(&at) = self.machine(node).links.get(&peer) else { return };
        let status = self.machines[&node].running.as_ref().expect("it speaks").status();
        let end = usize::from(self.connections[at].ends[0] == node);
        self.connections[at].queues[end].push_back(Item::Status(status));
    }

    fn persist(&mut self, node: NodeId, durable: Durable) {
        let (was, is) = (self.standing(node), durable.standing);
        if let (Standing::Empty | Standing::Proposed(_), Standing::Formed(cluster)) = (was, is) {
            self.check_fresh(node, cluster);
        }
        self.machine(node).disk = durable;
    }

    /// A node that becomes a member with an empty memory has never been one, and nobody else remembers another
    /// cluster in full.
    fn check_fresh(&mut self, node: NodeId, cluster: ClusterId) {
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

    /// Whenever a node may speak as a member: no former life of it used these counters in this cluster.
    fn check_acts(&mut self, node: NodeId) {
        let Standing::Formed(cluster) = self.standing(node) else { panic!("speaks unformed") };
        let mine = self.machines[&node].disk.mine;
        let (life, former) = self.machine(node).lives.split_last_mut().expect("a node lives");
        let is_first = life.formed.is_none();
        assert!(life.formed.is_none_or(|formed| formed == cluster), "{node:?} changed clusters");
        life.formed = Some(cluster);
        life.most = mine;
        for one in former.iter().filter(|one| one.formed == Some(cluster)) {
            assert!(
                one.most.loss < mine.loss && one.most.incarnation < mine.incarnation,
                "{node:?} uses {mine:?} again, after {one:?}"
            );
        }
        self.joined += usize::from(is_first);
    }

    /// One random event. `faults`: crashes; `wipes`: lost directories.
    fn happen(&mut self, faults: bool, wipes: bool) {
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
            10..=59 if !self.is_running(node) => self.start(node),
            60..=99 if node != peer => self.connect(node, peer),
            _ => self.deliver_any(),
        }
        if self.connections.len() > 30 {
            self.forget_closed();
        }
    }

    fn deliver_any(&mut self) {
        let has_items = |at: &usize| !self.connections[*at].queues.iter().all(VecDeque::is_empty);
        let busy: Vec<usize> = (0..self.connections.len()).filter(has_items).collect();
        if !busy.is_empty() {
            let (at, end) = (*self.rng.pick(&busy), self.rng.below(2) as usize);
            self.deliver(at, end);
        }
    }

    /// Connections whose ends are both closed, or that are old, end for both.
    fn forget_closed(&mut self) {
        for node in self.nodes() {
            for peer in self.nodes() {
                self.close_end(node, peer);
            }
        }
        self.connections.clear();
    }

    /// Everything works: all processes run, all connections are made anew and deliver.
    fn heal(&mut self) {
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
    fn deliver_all(&mut self) {
        for _ in 0..200 {
            for at in 0..self.connections.len() {
                for end in 0..2 {
                    self.deliver(at, end);
                }
            }
        }
    }

    /// Connects all nodes in random order, delivers in random order, and restarts some of them.
    fn connect_all(&mut self) {
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
    fn form_majority(&mut self) {
        let cluster = id(70);
        let nodes = self.nodes();
        let majority = nodes.len() / 2 + 1;
        for (at, node) in nodes.into_iter().enumerate() {
            let machine = self.machine(node);
            machine.disk.standing = Standing::Proposed(cluster);
            if at < majority {
                machine.disk.standing = Standing::Formed(cluster);
                let life = machine.lives.last_mut().expect("a node lives");
                (life.formed, life.fresh) = (Some(cluster), Some(cluster));
            }
        }
    }

    fn clusters(&self) -> Vec<Option<ClusterId>> {
        let formed = |machine: &Machine| match machine.disk.standing {
            Standing::Formed(cluster) => Some(cluster),
            _ => None,
        };
        self.machines.values().map(formed).collect()
    }

    fn is_one_cluster(&self) -> bool {
        let clusters = self.clusters();
        clusters[0].is_some() && clusters.iter().all(|cluster| *cluster == clusters[0])
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_node_that_lost_its_memory_never_counts_as_new(count in 1_u16..=5, seed: u64) {
        let mut world = World::new(count, seed);
        for _ in 0..6_000 {
            world.happen(true, true);
        }
    }

    #[test]
    fn crashes_and_lost_connections_do_not_keep_nodes_from_forming(count in 1_u16..=5, seed: u64) {
        let mut world = World::new(count, seed);
        for _ in 0..200 {
            world.happen(true, false);
        }
        world.heal();
        prop_assert!(world.is_one_cluster(), "{:?}", world.clusters());
    }

    #[test]
    fn mistyped_lists_never_make_two_clusters(count in 2_u16..=5, seed: u64) {
        let mut world = World::new(count, seed);
        world.mistypes = true;
        for _ in 0..6_000 {
            world.happen(true, true);
        }
    }

    #[test]
    fn corrected_lists_form_a_cluster(count in 1_u16..=5, seed: u64) {
        let mut world = World::new(count, seed);
        world.mistypes = true;
        for _ in 0..300 {
            world.happen(true, false);
        }
        world.heal();
        prop_assert!(world.is_one_cluster(), "{:?}", world.clusters());
    }

    #[test]
    fn a_wiped_minority_comes_back(count in 2_u16..=5, seed: u64, wiped in 1_u16..=5) {
        let mut world = World::new(count, seed);
        world.heal();
        let cluster = world.clusters()[0];
        prop_assert!(world.is_one_cluster());
        let most = usize::from(count) - enough(usize::from(count));
        let wiped = (usize::from(wiped) - 1) % most + 1;
        for node in world.nodes().into_iter().take(wiped) {
            world.wipe(node);
        }
        for _ in 0..100 {
            world.happen(true, false);
        }
        world.heal();
        prop_assert!(world.is_one_cluster());
        prop_assert_eq!(world.clusters()[0], cluster);
        for node in world.nodes().into_iter().take(wiped) {
            prop_assert!(world.machine(node).disk.mine.loss.0 >= JUMP);
        }
    }

    #[test]
    fn cluster_survives_a_wiped_member_while_it_forms(
        count in prop::sample::select(vec![3_u16, 5]),
        seed: u64,
        wiped in 0_u16..3,
    ) {
        let mut world = World::new(count, seed);
        world.is_cruel = false;
        world.form_majority();
        world.wipe(NodeId(wiped % (count / 2 + 1) + 1));
        world.nodes().into_iter().for_each(|node| world.start(node));
        world.connect_all();
        // The wiped member introduces itself anew.
        world.heal();
        prop_assert!(world.is_one_cluster(), "{:?}", world.clusters());
        prop_assert_eq!(world.clusters()[0], Some(id(70)));
    }

    #[test]
    fn rubbish_is_no_status_and_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = Status::from_bytes(&bytes);
    }
}

#[test]
fn random_worlds_form_and_rejoin_often_enough_to_tell() {
    let mut world = World::new(3, 7);
    for _ in 0..100_000 {
        world.happen(true, true);
    }
    let lives = || world.machines.values().flat_map(|machine| &machine.lives);
    let fresh = lives().filter(|life| life.fresh.is_some()).count();
    assert!(fresh >= 5 && world.joined >= fresh + 5, "{fresh} fresh of {}", world.joined);
}

#[test]
fn a_cluster_of_one_forms_by_itself() {
    let mut alone = Formation::new(NodeId(1), blank(members(1)), id(9));
    let mut effects = Vec::new();
    alone.on(Input::Start, &mut effects);
    assert_eq!(alone.durable().standing, Standing::Formed(id(9)));
    assert_eq!(effects.last(), Some(&Effect::Formed));
}

#[test]
fn nothing_forms_while_one_member_is_unheard() {
    let mut world = World::new(3, 1);
    world.start(NodeId(1));
    world.start(NodeId(2));
    world.connect(NodeId(1), NodeId(2));
    for _ in 0..20 {
        world.deliver(0, 0);
        world.deliver(0, 1);
    }
    assert_eq!(world.clusters(), [None, None, None]);
    let waiting = world.machines[&NodeId(1)].running.as_ref().map(Formation::waiting_for);
    assert_eq!(waiting, Some(vec![NodeId(3)]));
}

#[test]
fn peers_hear_when_a_node_recovers_and_when_it_is_done() {
    let mut recovering = Formation::new(NodeId(1), blank(members(2)), id(1));
    let mut peer = Formation::new(NodeId(2), blank(members(2)), id(2));
    peer.on(Input::Up { peer: NodeId(1) }, &mut Vec::new());
    for is_recovering in [true, false] {
        let mut effects = Vec::new();
        recovering.on(Input::Recovering(is_recovering), &mut effects);
        assert_eq!(effects, [Effect::TellAll]);
        recovering.on(Input::Recovering(is_recovering), &mut effects);
        assert_eq!(effects.len(), 1, "what has not changed is not told again");
        let bytes = recovering.status().to_bytes();
        let status = Status::from_bytes(&bytes).expect("a status comes back");
        assert_eq!(status, recovering.status());
        peer.on(Input::Told { peer: NodeId(1), status }, &mut Vec::new());
        assert_eq!(peer.recovering().contains(&NodeId(1)), is_recovering);
    }
}

#[test]
fn different_lists_are_named_and_form_nothing() {
    let mut one = Formation::new(NodeId(1), blank(members(2)), id(1));
    let theirs = vec![member(1), MemberAddress { client: "x:7".into(), ..member(2) }];
    let status = Status { members: theirs, ..Formation::status(&one) };
    let mut effects = Vec::new();
    one.on(Input::Up { peer: NodeId(2) }, &mut effects);
    effects.clear();
    one.on(Input::Told { peer: NodeId(2), status }, &mut effects);
    let [Effect::Complain { peer: NodeId(2), text }] = &effects[..] else { panic!("{effects:?}") };
    assert!(text.contains("only here 2=h:2 (h:2)") && text.contains("only there 2=x:7"), "{text}");
}

#[test]
fn different_databases_are_named_and_form_nothing() {
    let settings = |protocol: &str| {
        Databases::new(vec![crate::settings::DatabaseSetting {
            database: types::Database(0),
            protocol: protocol.to_owned(),
            durability: crate::config::Durability::Disk,
        }])
    };
    let durable = Durable { databases: settings("rmwpaxos"), ..blank(members(2)) };
    let mut one = Formation::new(NodeId(1), durable, id(1));
    let status = Status { databases: settings("abd"), ..Formation::status(&one) };
    let formed = Status { standing: Standing::Formed(id(7)), ..status.clone() };
    for status in [status, formed] {
        let mut effects = Vec::new();
        one.on(Input::Up { peer: NodeId(2) }, &mut effects);
        effects.clear();
        one.on(Input::Told { peer: NodeId(2), status }, &mut effects);
        let [Effect::Complain { text, .. }] = &effects[..] else { panic!("{effects:?}") };
        assert!(text.contains("database 0: protocol abd there, rmwpaxos here"), "{text}");
        assert_eq!(one.durable().standing, Standing::Empty);
        assert_eq!(one.waiting_for(), [NodeId(2)]);
    }
}

#[test]
fn limits_are_durable_before_they_count() {
    let limits = |size| Limits { max_value_size: size, ..Limits::default() };
    let durable = Durable { limits: [(NodeId(1), limits(9))].into(), ..blank(members(2)) };
    let mut one = Formation::new(NodeId(1), durable, id(1));
    one.on(Input::Up { peer: NodeId(2) }, &mut Vec::new());
    for (size, counts) in [(5, 5), (20, 9)] {
        let limits = [(NodeId(2), limits(size))].into();
        let status = Status { limits, ..Formation::status(&one) };
        let mut effects = Vec::new();
        one.on(Input::Told { peer: NodeId(2), status }, &mut effects);
        let [Effect::Persist(durable), Effect::TellAll, Effect::Agree(agreed), ..] = &effects[..]
        else {
            panic!("{effects:?}")
        };
        assert_eq!(durable.limits[&NodeId(2)].max_value_size, size);
        assert_eq!(agreed.max_value_size, counts);
    }
}

#[test]
fn noted_proposal_is_dropped_with_its_proposer() {
    let mut world = World::new(3, 8);
    world.machine(NodeId(1)).disk.standing = Standing::Proposed(id(70));
    world.machine(NodeId(2)).disk.standing = Standing::Proposed(id(70));
    assert!(world.machines[&NodeId(1)].disk.is_surely_unformed(NodeId(1)));
    assert!(!world.machines[&NodeId(2)].disk.is_surely_unformed(NodeId(2)), "1 may have formed");
    world.machine(NodeId(1)).typed.push(member(9));
    world.is_cruel = false;
    world.mistypes = true;
    world.nodes().into_iter().for_each(|node| world.start(node));
    assert_eq!(world.standing(NodeId(1)), Standing::Empty);
    world.connect(NodeId(1), NodeId(2));
    world.deliver_all();
    assert_eq!(world.standing(NodeId(2)), Standing::Proposed(id(70)), "3 may be formed");
    world.connect(NodeId(2), NodeId(3));
    world.deliver_all();
    assert_eq!(world.standing(NodeId(2)), Standing::Empty);
    world.heal();
    assert!(world.is_one_cluster());
}

#[test]
fn proposal_dropped_too_early_still_counts() {
    let mut world = World::new(3, 9);
    world.is_cruel = false;
    for node in world.nodes() {
        world.machine(node).disk.standing = Standing::Proposed(id(70));
        world.start(node);
    }
    let [one, two, three] = [NodeId(1), NodeId(2), NodeId(3)];
    world.connect(two, three);
    world.deliver_all();
    world.step(two, Input::Up { peer: one }, false);
    let status = Status {
        standing: Standing::Formed(id(70)),
        ..world.machines[&one].running.as_ref().map(Formation::status).expect("it runs")
    };
    world.step(two, Input::Told { peer: one, status }, false);
    assert_eq!(world.standing(two), Standing::Formed(id(70)));
    // Node 3 hears the wiped proposer before the word of node 2 arrives.
    world.wipe(one);
    world.start(one);
    world.connect(one, three);
    let at = world.connections.len() - 1;
    (0..4).for_each(|_| (0..2).for_each(|end| world.deliver(at, end)));
    assert_eq!(world.standing(three), Standing::Empty);
    world.deliver_all();
    assert_eq!(world.standing(three), Standing::Formed(id(70)));
    world.heal();
    assert!(world.is_one_cluster());
}

#[test]
fn two_wiped_of_three_wait_rather_than_start_anew() {
    let mut world = World::new(3, 2);
    world.heal();
    assert!(world.is_one_cluster());
    world.wipe(NodeId(1));
    world.wipe(NodeId(2));
    world.heal();
    assert_eq!(world.clusters().iter().filter(|cluster| cluster.is_some()).count(), 1);
}

#[test]
fn all_wiped_form_anew() {
    let mut world = World::new(3, 3);
    world.heal();
    let former = world.clusters()[0];
    for node in world.nodes() {
        world.wipe(node);
    }
    world.heal();
    assert!(world.is_one_cluster());
    assert_ne!(world.clusters()[0], former);
}

#[test]
fn an_uncertain_node_rejoins_and_never_forms() {
    let mut world = World::new(3, 4);
    world.machine(NodeId(2)).disk.standing = Standing::Uncertain;
    world.heal();
    assert_eq!(world.clusters(), [None, None, None]);

    let mut world = World::new(3, 5);
    world.heal();
    world.crash(NodeId(2));
    world.machine(NodeId(2)).disk.standing = Standing::Uncertain;
    world.machine(NodeId(2)).lives.push(Life::default());
    world.heal();
    assert!(world.is_one_cluster());
    assert!(world.machine(NodeId(2)).disk.mine.loss.0 >= JUMP);
}

#[test]
fn a_former_self_is_refused() {
    let mut world = World::new(2, 6);
    world.heal();
    let old = world.hello(NodeId(2));
    world.crash(NodeId(2));
    world.heal();
    let one = world.machine(NodeId(1)).running.as_mut().expect("it runs");
    assert_eq!(one.note(&old, &mut Vec::new()), Err(Refusal::Stale));
}
