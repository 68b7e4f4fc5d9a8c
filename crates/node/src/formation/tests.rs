//! Forming and rejoining in a world of a few nodes.

mod world;

use proptest::prelude::*;
use types::features::LOWEST;
use types::wire::Wire;

use super::*;
use world::{Life, World, blank, id, levels, member, members};

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
            prop_assert!(world.machine(node).disk.mine.amnesia.0 >= JUMP);
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
    fn levels_rise_only_where_all_members_pledged(count in 1_u16..=5, seed: u64, wipes: bool) {
        let mut world = World::new(count, seed);
        world.upgrades = true;
        for _ in 0..6_000 {
            world.happen(true, wipes);
        }
    }

    #[test]
    fn upgraded_members_end_at_the_highest_common_level(
        count in 1_u16..=5,
        seed: u64,
        versions in prop::collection::vec(2_u16..=3, 5),
    ) {
        let mut world = World::new(count, seed);
        world.heal();
        prop_assert_eq!(world.levels(), vec![Some(FeatureLevel(1)); usize::from(count)]);
        for round in 1..=2 {
            for (node, &version) in world.nodes().into_iter().zip(&versions) {
                world.crash(node);
                world.machine(node).supported = levels(version.min(round + 1));
                world.start(node);
                (0..50).for_each(|_| world.happen(false, false));
            }
            world.heal();
            let lowest = versions[..usize::from(count)].iter().min().copied();
            let expected = lowest.map(|lowest| FeatureLevel(lowest.min(round + 1)));
            prop_assert_eq!(world.levels(), vec![expected; usize::from(count)]);
        }
        prop_assert!(world.is_one_cluster());
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
    alone.on(FormationInput::Start, &mut effects);
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
    peer.on(FormationInput::Up { peer: NodeId(1) }, &mut Vec::new());
    for is_recovering in [true, false] {
        let mut effects = Vec::new();
        recovering.on(FormationInput::Recovering(is_recovering), &mut effects);
        assert_eq!(effects, [Effect::TellAll]);
        recovering.on(FormationInput::Recovering(is_recovering), &mut effects);
        assert_eq!(effects.len(), 1, "what has not changed is not told again");
        let bytes = recovering.status().to_bytes();
        let status = Status::from_bytes(&bytes).expect("a status comes back");
        assert_eq!(status, recovering.status());
        peer.on(
            FormationInput::StatusReceived { peer: NodeId(1), status: Box::new(status) },
            &mut Vec::new(),
        );
        assert_eq!(peer.recovering().contains(&NodeId(1)), is_recovering);
    }
}

#[test]
fn different_lists_are_named_and_form_nothing() {
    let mut one = Formation::new(NodeId(1), blank(members(2)), id(1));
    let theirs = vec![member(1), MemberAddress { client: "x:7".into(), ..member(2) }];
    let status = Status { members: theirs, ..Formation::status(&one) };
    let mut effects = Vec::new();
    one.on(FormationInput::Up { peer: NodeId(2) }, &mut effects);
    effects.clear();
    one.on(
        FormationInput::StatusReceived { peer: NodeId(2), status: Box::new(status) },
        &mut effects,
    );
    let [Effect::Complain { peer: NodeId(2), text }] = &effects[..] else { panic!("{effects:?}") };
    assert!(text.contains("only here 2=h:2 (h:2)") && text.contains("only there 2=x:7"), "{text}");
}

#[test]
fn different_databases_are_named_and_form_nothing() {
    let settings = |protocol: &str| {
        Databases::new(vec![crate::settings::DatabaseSetting {
            database: Database(0),
            protocol: protocol.to_owned(),
            durability: crate::config::Durability::Disk,
            replicas: None,
        }])
    };
    let durable = Durable { databases: settings("rmwpaxos"), ..blank(members(2)) };
    let mut one = Formation::new(NodeId(1), durable, id(1));
    let status = Status { databases: settings("abd"), ..Formation::status(&one) };
    let formed = Status { standing: Standing::Formed(id(7)), ..status.clone() };
    for status in [status, formed] {
        let mut effects = Vec::new();
        one.on(FormationInput::Up { peer: NodeId(2) }, &mut effects);
        effects.clear();
        one.on(
            FormationInput::StatusReceived { peer: NodeId(2), status: Box::new(status) },
            &mut effects,
        );
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
    one.on(FormationInput::Up { peer: NodeId(2) }, &mut Vec::new());
    for (size, counts) in [(5, 5), (20, 9)] {
        let limits = [(NodeId(2), limits(size))].into();
        let status = Status { limits, ..Formation::status(&one) };
        let mut effects = Vec::new();
        one.on(
            FormationInput::StatusReceived { peer: NodeId(2), status: Box::new(status) },
            &mut effects,
        );
        let [Effect::Persist(durable), Effect::TellAll, Effect::Agree(agreed), ..] = &effects[..]
        else {
            panic!("{effects:?}")
        };
        assert_eq!(durable.limits[&NodeId(2)].max_value_size, size);
        assert_eq!(agreed.max_value_size, counts);
    }
}

#[test]
fn raised_limit_waits_for_connected_members() {
    let limits = |size| Limits { max_value_size: size, ..Limits::default() };
    let [own, peer] = [NodeId(1), NodeId(2)];
    let durable =
        Durable { limits: [(own, limits(20)), (peer, limits(20))].into(), ..blank(members(2)) };
    let mut one = Formation::new(own, durable, id(1));
    let agreed = |effects: &[Effect]| {
        let sizes = effects.iter().filter_map(|effect| match effect {
            Effect::Agree(agreed) => Some(agreed.max_value_size),
            _ => None,
        });
        sizes.collect::<Vec<_>>()
    };
    // The peer remembers the former limit of this node, until it has heard the new one.
    for end in ["told", "down"] {
        one.on(FormationInput::Up { peer }, &mut Vec::new());
        for (remembered, expected) in [(9, vec![9]), (9, vec![])] {
            let limits = [(own, limits(remembered)), (peer, limits(20))].into();
            let status = Status { limits, ..Formation::status(&one) };
            let mut effects = Vec::new();
            one.on(FormationInput::StatusReceived { peer, status: Box::new(status) }, &mut effects);
            assert_eq!(agreed(&effects), expected);
        }
        let input = match end {
            "told" => FormationInput::StatusReceived { peer, status: Box::new(one.status()) },
            _ => FormationInput::Down { peer },
        };
        let mut effects = Vec::new();
        one.on(input, &mut effects);
        assert_eq!(agreed(&effects), [20], "{end}");
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
    world.step(two, FormationInput::Up { peer: one }, false);
    let status = Status {
        standing: Standing::Formed(id(70)),
        features: running_at(LOWEST),
        ..world.machines[&one].running.as_ref().map(Formation::status).expect("it runs")
    };
    world.step(two, FormationInput::StatusReceived { peer: one, status: Box::new(status) }, false);
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
fn rejoined_node_keeps_addresses_that_it_reached() {
    let (cluster, known) = (id(7), BTreeMap::new());
    let typed = |node: u16| MemberAddress { client: "typed:1".into(), ..member(node) };
    let list = [1, 2, 3, 4, 9].map(typed).to_vec();
    let mut one = Formation::new(NodeId(2), blank(list), id(1));
    // The first one dials this node, which dials the third one.
    for peer in [1, 3] {
        let status = Status {
            standing: Standing::Formed(cluster),
            features: running_at(LOWEST),
            members: members(4),
            known: known.clone(),
            is_recovering: false,
            databases: Databases::default(),
            limits: BTreeMap::new(),
            generations: BTreeMap::new(),
        };
        let peer = NodeId(peer);
        one.on(FormationInput::Up { peer }, &mut Vec::new());
        one.on(FormationInput::StatusReceived { peer, status: Box::new(status) }, &mut Vec::new());
    }
    assert_eq!(one.durable().standing, Standing::Rejoining(cluster));
    assert_eq!(one.durable().members, [member(1), typed(2), typed(3), member(4)]);
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
    assert!(world.machine(NodeId(2)).disk.mine.amnesia.0 >= JUMP);
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

/// The features of a member whose cluster runs at this level.
fn running_at(level: FeatureLevel) -> Features {
    Features { supported: Supported::HERE, running: Some(Running::at(level)) }
}

#[test]
fn level_is_durable_before_it_is_told() {
    let mut one = Formation::new(NodeId(1), blank(members(2)), id(1)).supporting(levels(2));
    one.on(FormationInput::Start, &mut Vec::new());
    one.on(FormationInput::Up { peer: NodeId(2) }, &mut Vec::new());
    let mut tell = |standing, features| {
        let status = Status { standing, features, ..Formation::status(&one) };
        let mut effects = Vec::new();
        one.on(
            FormationInput::StatusReceived { peer: NodeId(2), status: Box::new(status) },
            &mut effects,
        );
        effects
    };
    let running = |level, pledged| {
        Some(Running { level: FeatureLevel(level), pledged: FeatureLevel(pledged) })
    };
    tell(Standing::Empty, Features::default());
    let effects = tell(Standing::Proposed(id(1)), Features::default());
    assert!(effects.contains(&Effect::Formed), "{effects:?}");
    for (theirs, mine, raises) in [
        (Features { supported: levels(1), running: running(1, 1) }, running(1, 1), false),
        (Features { supported: levels(2), running: running(1, 1) }, running(1, 2), false),
        (Features { supported: levels(2), running: running(1, 2) }, running(2, 2), true),
    ] {
        let effects = tell(Standing::Formed(id(1)), theirs);
        match &effects[..] {
            [] => assert_eq!(mine, running(1, 1)),
            [Effect::Persist(durable), Effect::TellAll, rest @ ..] => {
                assert_eq!(durable.running, mine);
                assert_eq!(rest.contains(&Effect::Raised(FeatureLevel(2))), raises);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(one.features().running, running(2, 2));
}

#[test]
fn peer_without_the_level_is_refused_by_name() {
    let durable = Durable {
        standing: Standing::Formed(id(7)),
        running: Some(Running::at(FeatureLevel(2))),
        ..blank(members(2))
    };
    let mut one = Formation::new(NodeId(1), durable, id(1)).supporting(levels(2));
    let mut world = World::new(2, 1);
    world.start(NodeId(2));
    let hello = Hello { cluster: Some(id(7).id), ..world.hello(NodeId(2)) };
    let text = "the cluster runs at feature level 2; the version of node 2 supports 1 to 1";
    let mut effects = Vec::new();
    let refusal = one.note(&hello, &mut effects).expect_err("it is refused");
    assert_eq!(refusal.to_string(), text);
    assert!(effects.is_empty(), "{effects:?}");
    assert_eq!(one.refused(NodeId(2)).as_deref(), Some(text));
    let newer = Features { supported: levels(2), running: None };
    one.note(&Hello { features: newer, ..hello }, &mut effects).expect("it is welcome");
    assert_eq!(one.refused(NodeId(2)), None);
}

#[test]
fn highest_generation_is_kept_and_given_to_wiped_members() {
    let mut world = World::new(3, 4);
    world.heal();
    let (zero, two) = (Database(0), Database(2));
    world.crash(NodeId(2));
    world.machine(NodeId(2)).disk.generations = [(zero, 1), (two, 3)].into();
    world.crash(NodeId(3));
    world.machine(NodeId(3)).disk.generations = [(zero, 2)].into();
    world.heal();
    world.wipe(NodeId(1));
    world.heal();
    assert!(world.is_one_cluster());
    for machine in world.machines.values() {
        assert_eq!(machine.disk.generations, [(zero, 2), (two, 3)].into());
    }
}
