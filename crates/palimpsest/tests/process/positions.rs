//! Keys that were chosen to share one public hash.

use std::fs;

use bench::client::Value;

use crate::support::Nodes;

/// XXH3 of 17 to 32 bytes multiplies the first word, less this constant, with the second one.
const FIRST_CONSTANT: u64 = 0xbe4b_a423_396c_feb8;

fn chosen(number: u64) -> Vec<u8> {
    let words = [FIRST_CONSTANT, number, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Sends one command for each chosen key to node `index`.
fn each(nodes: &Nodes, index: usize, keys: u64, words: impl Fn(u64) -> Vec<Vec<u8>>) -> Vec<Value> {
    let mut client = nodes.client(index);
    let mut replies = Vec::new();
    for first in (0..keys).step_by(500) {
        let numbers = first..keys.min(first + 500);
        let mut bytes = Vec::new();
        for number in numbers.clone() {
            let words = words(number);
            bytes.extend(format!("*{}\r\n", words.len()).bytes());
            for word in words {
                bytes.extend(format!("${}\r\n", word.len()).bytes());
                bytes.extend([&word[..], b"\r\n"].concat());
            }
        }
        client.send_raw(&bytes).expect("the node reads");
        replies.extend(numbers.map(|_| client.receive().expect("a reply")));
    }
    replies
}

fn set_all(nodes: &Nodes, index: usize, keys: u64) {
    let set = |number: u64| vec![b"SET".to_vec(), chosen(number), number.to_string().into_bytes()];
    assert!(each(nodes, index, keys, set).iter().all(|reply| *reply == Value::ok()));
}

fn assert_all_there(nodes: &Nodes, index: usize, keys: u64) {
    let get = |number: u64| vec![b"GET".to_vec(), chosen(number)];
    for (number, reply) in each(nodes, index, keys, get).into_iter().enumerate() {
        assert_eq!(reply, Value::text(&number.to_string()), "key {number} at node {}", index + 1);
    }
}

/// Under the public hash all of them would lie in one bucket of the disk.
#[test]
fn chosen_keys_load_like_any_others() {
    let nodes = Nodes::start("disk");
    set_all(&nodes, 0, 10_000);
    (0..3).for_each(|index| assert_all_there(&nodes, index, 10_000));
    // Keys of one position come in one reply.
    let Value::List(reply) = nodes.ask(1, "SCAN 0 COUNT 10") else {
        panic!("SCAN answers an array")
    };
    let [_, Value::List(keys)] = &reply[..] else { panic!("a cursor and keys: {reply:?}") };
    assert!(keys.len() < 100, "one step of SCAN lists {} keys", keys.len());
}

/// The wiped node learns the cluster's secret from the others. Without it, it finds none of their
/// keys.
#[test]
fn wiped_node_finds_keys_where_the_others_put_them() {
    for durability in ["disk", "pmem"] {
        let mut nodes = Nodes::start(durability);
        set_all(&nodes, 0, 200);
        nodes.kill(2);
        fs::remove_dir_all(nodes.data_dir(2)).expect("the directory is there");
        nodes.restart(2);
        assert_all_there(&nodes, 2, 200);
        nodes.kill(0);
        assert_all_there(&nodes, 1, 200);
        assert_all_there(&nodes, 2, 200);
        nodes.restart(0);
        nodes.kill(1);
        nodes.restart(1);
        (0..3).for_each(|index| assert_all_there(&nodes, index, 200));
    }
}
