//! Links that go dark: bytes stop, connections stay.

use bench::client::Value;

use crate::support::{Recorder, start_with_proxies};

#[test]
fn isolated_node_answers_nothing_and_learns_what_it_missed() {
    let (nodes, proxies) = start_with_proxies("disk");
    assert_eq!(nodes.ask(2, "SET x old"), Value::ok());
    proxies.isolate(2);
    assert_eq!(nodes.ask(0, "SET x new"), Value::ok());
    assert_eq!(nodes.ask(1, "GET x"), Value::text("new"));
    let cut_off = nodes.ask(2, "GET x");
    assert!(matches!(cut_off, Value::Error(_)), "a node without a quorum said {cut_off:?}");
    proxies.heal();
    nodes.wait_for_answer(2, "GET x", &Value::text("new"));
}

#[test]
fn write_to_an_isolated_node_is_never_acknowledged() {
    let (nodes, proxies) = start_with_proxies("disk");
    assert_eq!(nodes.ask(0, "SET counter 10"), Value::ok());
    proxies.isolate(0);
    let reply = nodes.ask(0, "INCR counter");
    let promised = reply.is_error("UNKNOWN") || reply.is_error("CLUSTERDOWN");
    assert!(promised, "a node without a quorum said {reply:?}");
    assert_eq!(nodes.ask(1, "INCR counter"), Value::Integer(11));
    proxies.heal();
    // An increment without an acknowledgement may have taken effect, unless the reply excluded it.
    nodes.wait_for_answer(0, "EXISTS counter", &Value::Integer(1));
    let value = nodes.ask(0, "GET counter");
    let once = value == Value::text("11");
    let twice = value == Value::text("12") && reply.is_error("UNKNOWN");
    assert!(once || twice, "after {reply:?} the counter is {value:?}");
}

#[test]
fn history_is_linearizable_while_nodes_are_cut_off_in_turn() {
    let (mut nodes, proxies) = start_with_proxies("disk");
    let addresses = nodes.cluster.addresses();
    let recorder = Recorder::new("cut");
    recorder.during(&addresses, |recorder| {
        for victim in [0, 1, 2] {
            recorder.wait_for_successes(150);
            proxies.isolate(victim);
            recorder.wait_for_successes(100);
            proxies.heal();
        }
        recorder.wait_for_successes(150);
        proxies.isolate_all();
        proxies.heal();
        recorder.wait_for_successes(150);
    });
    nodes.wait_ready();
    recorder.read_all(&addresses);
    recorder.check();
}

#[test]
fn cluster_serves_again_after_every_link_was_dark() {
    let (nodes, proxies) = start_with_proxies("volatile");
    assert_eq!(nodes.ask(0, "SET x 1"), Value::ok());
    proxies.isolate_all();
    for index in 0..nodes.len() {
        let reply = nodes.ask(index, "SET x 2");
        let promised = reply.is_error("UNKNOWN") || reply.is_error("CLUSTERDOWN");
        assert!(promised, "node {} without a quorum said {reply:?}", index + 1);
    }
    proxies.heal();
    for index in 0..nodes.len() {
        nodes.wait_for_answer(index, "SET x 3", &Value::ok());
        nodes.wait_for_answer(index, "GET x", &Value::text("3"));
    }
}
