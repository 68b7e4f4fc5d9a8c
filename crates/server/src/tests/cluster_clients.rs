//! Conversations of cluster clients: `CLUSTER`, `ROLE`, `READONLY`.

use node::summary::NodeState;

use super::world::{Connection, World};

/// The bulk strings of a reply.
fn texts(reply: &str) -> Vec<String> {
    let mut lines = reply.split("\r\n");
    let mut texts = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with('$') || line.starts_with('=') {
            texts.extend(lines.next().map(|text| text.trim_start_matches("txt:").to_string()));
        }
    }
    texts
}

/// The lines of `CLUSTER NODES`, as fields.
fn nodes(world: &mut World, client: &mut Connection) -> Vec<Vec<String>> {
    let said = world.ask(client, "CLUSTER NODES");
    let fields =
        |line: &str| line.trim_start_matches("txt:").split(' ').map(str::to_string).collect();
    said.lines().filter(|line| line.contains('@')).map(fields).collect()
}

#[test]
fn nodes_have_lines_as_in_redis() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let my_id = texts(&world.ask(&mut client, "CLUSTER MYID"))[0].clone();
    assert_eq!(my_id.len(), 40);
    let lines = nodes(&mut world, &mut client);
    let field = |at: usize| lines.iter().map(|line| line[at].as_str()).collect::<Vec<_>>();
    assert_eq!(field(0)[0], my_id);
    assert!(
        field(0).iter().all(|id| id.len() == 40 && id.bytes().all(|it| it.is_ascii_hexdigit()))
    );
    let addresses =
        ["store-1.example:7001@17001", "store-2.example:7002@17002", "store-3.example:7003@17003"];
    assert_eq!(field(1), addresses);
    assert_eq!(field(2), ["myself,master", "master", "master"]);
    assert_eq!(field(3), ["-"; 3]);
    assert_eq!(field(6), ["1", "2", "3"]);
    assert_eq!(field(7), ["connected"; 3]);
    assert_eq!(field(8), ["0-5460", "5461-10921", "10922-16383"]);
    assert!(lines.iter().all(|line| line.len() == 9));
}

#[test]
fn lost_node_gives_its_slots_to_the_others() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let before = nodes(&mut world, &mut client);
    world.node.cluster[1].up = false;
    let after = nodes(&mut world, &mut client);
    assert_eq!(after[1][2..8], ["master,fail", "-", "0", "1000", "2", "disconnected"]);
    assert_eq!(after[1].len(), 8, "{:?}", after[1]);
    assert_eq!(after[0][8..], ["0-5460", "8191-10921"]);
    assert_eq!(after[2][8..], ["5461-8190", "10922-16383"]);
    world.node.cluster[1].up = true;
    assert_eq!(nodes(&mut world, &mut client), before);
}

#[test]
fn node_that_cannot_serve_has_no_slots() {
    let mut world = World::new(None);
    let mut client = world.connect();
    for state in [NodeState::Recovering, NodeState::NoQuorum, NodeState::Stopping] {
        world.node.cluster[2].summary.as_mut().unwrap().state = state;
        let lines = nodes(&mut world, &mut client);
        assert_eq!(lines[2][2], "master,fail?");
        assert_eq!(lines[2].len(), 8, "{lines:?}");
    }
    world.node.ready = false;
    let said = world.ask(&mut client, "CLUSTER INFO");
    assert!(said.contains("cluster_state:fail\r\ncluster_slots_assigned:16384\r\n"), "{said}");
    world.node.cluster[1].up = false;
    let lines = nodes(&mut world, &mut client);
    let slots: Vec<&str> = lines.iter().map(|line| line[8].as_str()).collect();
    assert_eq!(slots, ["0-5460", "5461-10921", "10922-16383"], "every address stays known");
}

#[test]
fn slots_name_a_master_and_the_others() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let ids: Vec<String> =
        nodes(&mut world, &mut client).into_iter().map(|mut line| line.remove(0)).collect();
    let node = |at: usize| {
        let (host, id) = (format!("store-{}.example", at + 1), &ids[at]);
        format!("*4\r\n$15\r\n{host}\r\n:{}\r\n$40\r\n{id}\r\n*0\r\n", 7_001 + at)
    };
    let range = |first: u16, last: u16, order: [usize; 3]| {
        format!("*5\r\n:{first}\r\n:{last}\r\n{}", order.map(node).concat())
    };
    let expected = [
        "*3\r\n".to_string(),
        range(0, 5_460, [0, 1, 2]),
        range(5_461, 10_921, [1, 2, 0]),
        range(10_922, 16_383, [2, 0, 1]),
    ];
    assert_eq!(world.ask(&mut client, "CLUSTER SLOTS"), expected.concat());
}

#[test]
fn shards_are_maps_of_slots_and_nodes() {
    let mut world = World::new(None);
    let mut client = world.connect();
    world.node.cluster[2].up = false;
    world.ask(&mut client, "HELLO 3");
    let ids: Vec<String> =
        nodes(&mut world, &mut client).into_iter().map(|mut line| line.remove(0)).collect();
    let node = |at: usize, role: &str, health: &str| {
        let host = format!("$15\r\nstore-{}.example\r\n", at + 1);
        format!(
            "%7\r\n$2\r\nid\r\n$40\r\n{}\r\n$4\r\nport\r\n:{}\r\n$2\r\nip\r\n{host}$8\r\nendpoint\r\n{host}\
             $4\r\nrole\r\n${}\r\n{role}\r\n$18\r\nreplication-offset\r\n:0\r\n$6\r\nhealth\r\n${}\r\n{health}\r\n",
            ids[at],
            7_001 + at,
            role.len(),
            health.len()
        )
    };
    let shard = |slots: &[u16], nodes: &[String]| {
        let bounds: String = slots.iter().map(|slot| format!(":{slot}\r\n")).collect();
        format!(
            "%2\r\n$5\r\nslots\r\n*{}\r\n{bounds}$5\r\nnodes\r\n*{}\r\n{}",
            slots.len(),
            nodes.len(),
            nodes.concat()
        )
    };
    let expected = [
        "*3\r\n".to_string(),
        shard(
            &[0, 5_460, 10_922, 13_652],
            &[node(0, "master", "online"), node(1, "replica", "online")],
        ),
        shard(
            &[5_461, 10_921, 13_653, 16_383],
            &[node(1, "master", "online"), node(0, "replica", "online")],
        ),
        shard(&[], &[node(2, "master", "fail")]),
    ];
    assert_eq!(world.ask(&mut client, "CLUSTER SHARDS"), expected.concat());
}

#[test]
fn replicas_are_the_others_that_serve() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let lines = nodes(&mut world, &mut client);
    for command in ["REPLICAS", "SLAVES"] {
        let said = world.ask(&mut client, &format!("CLUSTER {command} {}", lines[1][0]));
        let replicas = texts(&said);
        assert_eq!(replicas.len(), 2, "{said}");
        let expected =
            format!("{} {} slave {} 0 1000 3 connected", lines[2][0], lines[2][1], lines[1][0]);
        assert_eq!(replicas[0], expected);
        assert!(replicas[1].contains(" myself,slave "), "{said}");
    }
    let reports = format!("CLUSTER COUNT-FAILURE-REPORTS {}", lines[2][0]);
    assert_eq!(world.ask(&mut client, &reports), ":0\r\n");
    world.node.cluster[2].up = false;
    assert_eq!(world.ask(&mut client, &reports), ":1\r\n");
    for command in ["REPLICAS", "SLAVES", "COUNT-FAILURE-REPORTS"] {
        let said = world.ask(&mut client, &format!("CLUSTER {command} frob"));
        assert_eq!(said, "-ERR Unknown node frob\r\n");
    }
}

#[test]
fn info_has_the_fields_of_redis() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let said = world.ask(&mut client, "CLUSTER INFO");
    let expected = "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n\
        cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:3\r\ncluster_size:3\r\n\
        cluster_current_epoch:3\r\ncluster_my_epoch:1\r\ncluster_stats_messages_sent:0\r\n\
        cluster_stats_messages_received:0\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n";
    assert_eq!(said, format!("${}\r\n{expected}\r\n", expected.len()));
}

#[test]
fn changes_of_slots_are_refused() {
    let mut world = World::new(None);
    let mut client = world.connect();
    for (line, expected) in [
        (
            "CLUSTER ADDSLOTS 1",
            "-ERR 'cluster addslots' is not supported: slots are dealt over the nodes that are up\r\n",
        ),
        (
            "CLUSTER GETKEYSINSLOT 1 1",
            "-ERR 'cluster getkeysinslot' is not supported: keys are not kept by slot, see SCAN\r\n",
        ),
        ("CLUSTER RESET HARD", "-ERR 'cluster reset' is not supported: see 'palimpsest reset'\r\n"),
        ("CLUSTER FROB", "-ERR unknown subcommand 'FROB'. Try CLUSTER HELP.\r\n"),
        ("CLUSTER", "-ERR wrong number of arguments for 'cluster' command\r\n"),
        ("CLUSTER KEYSLOT", "-ERR wrong number of arguments for 'cluster|keyslot' command\r\n"),
        ("CLUSTER KEYSLOT {user1000}.followers", ":3443\r\n"),
        ("CLUSTER LINKS", "*0\r\n"),
        ("READONLY", "+OK\r\n"),
        ("READWRITE", "+OK\r\n"),
        ("ASKING", "+OK\r\n"),
    ] {
        assert_eq!(world.ask(&mut client, line), expected, "{line}");
    }
}

#[test]
fn role_is_master_of_the_others() {
    let mut world = World::new(None);
    let mut client = world.connect();
    world.node.cluster[1].up = false;
    let replica = "*3\r\n$15\r\nstore-3.example\r\n$4\r\n7003\r\n$1\r\n0\r\n";
    let expected = format!("*3\r\n$6\r\nmaster\r\n:0\r\n*1\r\n{replica}");
    assert_eq!(world.ask(&mut client, "ROLE"), expected);
}
