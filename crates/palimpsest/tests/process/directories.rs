//! Data directories: wiped, damaged, foreign, busy.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base::checksum;
use bench::client::Value;

use crate::support::{Nodes, damage, eventually, exit_of};

const KEYS: usize = 300;

fn fill(nodes: &Nodes) {
    let mut client = nodes.client(0);
    for number in 0..KEYS {
        let reply = client.command(&format!("SET key:{number} value:{number}"));
        assert_eq!(reply.expect("an answer"), Value::ok());
    }
}

fn assert_all_there(nodes: &Nodes, index: usize) {
    let mut client = nodes.client(index);
    for number in 0..KEYS {
        let value = client.command(&format!("GET key:{number}")).expect("an answer");
        assert_eq!(value, Value::text(&format!("value:{number}")), "key:{number}");
    }
}

/// Reads every key through node `index` until it has forgotten none of them.
fn recover_all(nodes: &Nodes, index: usize) {
    let mut passes_without_loss = 0;
    eventually("every forgotten register is recovered", || {
        let before = commands_published(nodes, index);
        assert_all_there(nodes, index);
        // A node's status is as old as the counters that it publishes with it.
        eventually("the node counts these reads", || {
            commands_published(nodes, index) >= before + KEYS as u64
        });
        let is_whole = bench::cluster::is_whole(nodes.address(index));
        passes_without_loss = if is_whole { passes_without_loss + 1 } else { 0 };
        passes_without_loss == 2
    });
}

fn commands_published(nodes: &Nodes, index: usize) -> u64 {
    let Value::Bulk(text) = nodes.ask(index, "INFO stats") else { panic!("INFO answers a text") };
    let text = String::from_utf8(text.to_vec()).expect("INFO answers a text");
    let count = text.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    count.and_then(|count| count.parse().ok()).expect("INFO counts commands")
}

/// Every file below `dir` with a checksum of its content.
pub(crate) fn contents(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("the directory is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            let bytes = fs::read(&path).expect("the file is there");
            found.insert(path, checksum::hash(&bytes));
        }
    }
    found
}

#[test]
fn wiped_node_recovers_before_it_counts() {
    let mut nodes = Nodes::start("disk");
    fill(&nodes);
    nodes.kill(2);
    fs::remove_dir_all(nodes.data_dir(2)).expect("the directory is there");
    nodes.restart(2);
    assert_all_there(&nodes, 2);
    // Whatever the wiped node is needed for now, it must have learnt from the others first.
    nodes.kill(0);
    assert_all_there(&nodes, 1);
    assert_all_there(&nodes, 2);
    assert_eq!(nodes.ask(2, "SET key:0 again"), Value::ok());
    assert_eq!(nodes.ask(1, "GET key:0"), Value::text("again"));
}

#[test]
fn wiped_node_among_too_few_others_serves_nothing() {
    let mut nodes = Nodes::start("disk");
    fill(&nodes);
    nodes.kill_all();
    fs::remove_dir_all(nodes.data_dir(2)).expect("the directory is there");
    // One node that remembers and one that forgot are no quorum for acknowledged writes.
    for index in [1, 2] {
        nodes.cluster.start_node(index).expect("the program starts");
    }
    for index in [1, 2] {
        eventually("the node refuses to answer", || {
            let limit = crate::support::LIMIT;
            let reply = bench::client::ask_once(nodes.address(index), "GET key:1", limit);
            assert!(reply != Some(Value::Nil), "an acknowledged key is said to be absent");
            matches!(reply, Some(Value::Error(_)))
        });
    }
    nodes.cluster.start_node(0).expect("the program starts");
    nodes.wait_ready();
    assert_all_there(&nodes, 2);
}

fn verify_json(dir: &str) -> serde_json::Value {
    let output = crate::support::run(&["verify", "--json", dir]);
    serde_json::from_slice(&output.stdout).expect("it is one JSON object")
}

#[test]
fn damaged_directory_is_found_by_verify_and_repaired_from_the_others() {
    let mut nodes = Nodes::start("disk");
    fill(&nodes);
    assert_eq!(nodes.process(2).stop(crate::support::LIMIT), Some(0));
    let dir = nodes.data_dir(2).display().to_string();
    let (code, said) = exit_of(&["verify", &dir]);
    assert_eq!(code, Some(0), "an undamaged directory: {said}");
    assert_eq!(verify_json(&dir)["result"], "whole");
    let flipped = damage(nodes.data_dir(2), "value:");
    assert!(flipped > 0, "nothing was found to damage");
    let (code, said) = exit_of(&["verify", &dir]);
    assert_eq!(code, Some(1), "{flipped} bytes were flipped: {said}");
    let report = verify_json(&dir);
    assert_eq!((&report["result"], &report["node"]), (&"damaged".into(), &3.into()));
    assert!(report["faults_count"].as_u64() > Some(0), "{report}");
    assert!(report["faults"][0]["fault"].is_string(), "{report}");
    nodes.restart(2);
    // It needs both others to recover its state.
    recover_all(&nodes, 2);
    nodes.kill(0);
    assert_all_there(&nodes, 1);
    assert_all_there(&nodes, 2);
}

/// Files of the store, without the identity.
fn store_files(dir: &Path) -> Vec<PathBuf> {
    contents(dir).into_keys().filter(|path| !path.ends_with("node")).collect()
}

#[test]
fn verify_says_that_a_store_is_gone_or_belongs_elsewhere() {
    let mut nodes = Nodes::start("disk");
    fill(&nodes);
    for node in [1, 2] {
        assert_eq!(nodes.process(node).stop(crate::support::LIMIT), Some(0));
    }
    let (here, there) = (nodes.data_dir(2), nodes.data_dir(1));
    store_files(here).iter().for_each(|path| fs::remove_file(path).expect("it is there"));
    let (code, said) = exit_of(&["verify", &here.display().to_string()]);
    assert_eq!(code, Some(1), "a formed node without a store: {said}");
    for path in store_files(there) {
        let name = path.file_name().expect("it has a name");
        fs::copy(&path, here.join(name)).expect("it can be copied");
    }
    let (code, said) = exit_of(&["verify", &here.display().to_string()]);
    assert_eq!(code, Some(1), "another node's store: {said}");
    assert!(said.contains("another data directory"), "{said}");
}

/// Two of three nodes lose every value; the third alone cannot tell the acknowledged ones.
fn lose_a_majority(durability: &str) {
    let mut nodes = Nodes::start(durability);
    fill(&nodes);
    for index in 0..nodes.len() {
        assert_eq!(nodes.process(index).stop(crate::support::LIMIT), Some(0));
    }
    for index in [0, 1] {
        assert!(damage(nodes.data_dir(index), "value:") > 0, "nothing was found to damage");
    }
    for index in 0..nodes.len() {
        nodes.cluster.start_node(index).expect("the program starts");
    }
    for (index, line) in
        [(0, "GET key:1"), (1, "GET key:2"), (2, "GET key:3"), (2, "APPEND key:4 x")]
    {
        eventually("the node answers an error", || {
            let reply = bench::client::ask_once(nodes.address(index), line, crate::support::LIMIT);
            let is_error = matches!(reply, Some(Value::Error(_)));
            assert!(reply.is_none() || is_error, "{line} is answered {reply:?}");
            is_error
        });
    }
}

#[test]
fn what_a_majority_has_lost_is_an_error_and_nothing_is_invented() {
    lose_a_majority("disk");
    lose_a_majority("pmem");
}

#[test]
fn truncated_file_is_refused_or_repaired_and_never_believed() {
    let mut nodes = Nodes::start("disk");
    fill(&nodes);
    nodes.kill(2);
    let largest = contents(nodes.data_dir(2))
        .into_keys()
        .max_by_key(|path| fs::metadata(path).map_or(0, |about| about.len()))
        .expect("a directory with files");
    let length = fs::metadata(&largest).expect("the file is there").len();
    let file = fs::File::options().write(true).open(&largest).expect("the file is there");
    file.set_len(length / 2).expect("the file can be cut");
    nodes.cluster.start_node(2).expect("the program starts");
    // Either it says that this directory cannot be used, or it serves everything that was
    // acknowledged.
    let mut ended = false;
    eventually("the node serves or ends", || {
        ended = !nodes.process(2).is_running();
        ended || bench::cluster::serves(nodes.address(2))
    });
    if ended {
        let code = nodes.process(2).exit_code().flatten();
        assert!(matches!(code, Some(1 | 2)), "it ended with {code:?}: {}", nodes.log(2));
    } else {
        assert_all_there(&nodes, 2);
    }
    assert_all_there(&nodes, 0);
}

#[test]
fn directory_of_another_node_is_refused_and_left_alone() {
    let mut nodes = Nodes::start("disk");
    fill(&nodes);
    for index in [1, 2] {
        assert_eq!(nodes.process(index).stop(crate::support::LIMIT), Some(0));
    }
    let before = contents(nodes.data_dir(1));
    let foreign = nodes.data_dir(1).display().to_string();
    let arguments = &mut nodes.cluster.nodes[2].arguments;
    let at = arguments.iter().position(|word| word == "--data-dir").expect("it was given") + 1;
    arguments[at] = foreign;
    nodes.cluster.start_node(2).expect("the program starts");
    assert_eq!(nodes.wait_exit(2), Some(2), "{}", nodes.log(2));
    assert_eq!(contents(nodes.data_dir(1)), before, "a refused directory was changed");
    nodes.restart(1);
    assert_all_there(&nodes, 1);
}

#[test]
fn directory_of_another_cluster_is_refused_and_left_alone() {
    let mut first = Nodes::start("disk");
    fill(&first);
    for index in 0..3 {
        assert_eq!(first.process(index).stop(crate::support::LIMIT), Some(0));
    }
    let kept = first.cluster.dir().with_extension("kept");
    copy_dir(first.data_dir(2), &kept);
    drop(first);
    let mut second = Nodes::start("disk");
    fill(&second);
    assert_eq!(second.process(2).stop(crate::support::LIMIT), Some(0));
    let arguments = &mut second.cluster.nodes[2].arguments;
    let at = arguments.iter().position(|word| word == "--data-dir").expect("it was given") + 1;
    arguments[at] = kept.display().to_string();
    let before = contents(&kept);
    second.cluster.start_node(2).expect("the program starts");
    let code = second.wait_exit(2);
    let after = contents(&kept);
    fs::remove_dir_all(&kept).expect("the copy is there");
    assert_eq!(code, Some(2), "{}", second.log(2));
    assert_eq!(after, before, "a refused directory was changed");
    assert_all_there(&second, 0);
}

#[test]
fn older_copy_of_a_directory_is_not_let_in_and_says_so() {
    let mut nodes = Nodes::start("disk");
    fill(&nodes);
    assert_eq!(nodes.process(2).stop(crate::support::LIMIT), Some(0));
    let (dir, kept) = (nodes.data_dir(2).to_owned(), nodes.cluster.dir().with_extension("kept"));
    copy_dir(&dir, &kept);
    // The copy begins as the node did the first time, and the others know of a second.
    for _ in 0..2 {
        nodes.restart(2);
        assert_eq!(nodes.process(2).stop(crate::support::LIMIT), Some(0));
    }
    fs::remove_dir_all(&dir).expect("the directory is there");
    fs::rename(&kept, &dir).expect("the copy is there");
    nodes.cluster.start_node(2).expect("the program starts");
    eventually("the node says what is wrong", || {
        nodes.log(2).contains("data directory is older than what the node has been")
    });
    nodes.kill(2);
    let dir = dir.display().to_string();
    let (code, said) = exit_of(&["reset", "--yes", "--id", "3", "--data-dir", &dir]);
    assert_eq!(code, Some(0), "{said}");
    nodes.restart(2);
    assert_all_there(&nodes, 2);
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("the directory is there").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("the file can be copied");
        }
    }
}

#[test]
fn second_process_on_a_directory_is_refused() {
    let nodes = Nodes::start("disk");
    fill(&nodes);
    let mut arguments = nodes.cluster.nodes[0].arguments.clone();
    // Other ports, or the node would be refused for its ports.
    let free = bench::process::free_addresses(3).expect("free ports");
    for (flag, address) in ["--listen", "--peer-listen", "--admin-listen"].into_iter().zip(free) {
        let at = arguments.iter().position(|word| word == flag).expect("it was given") + 1;
        arguments[at] = address.to_string();
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (code, said) = exit_of(&words);
    assert_eq!(code, Some(2), "{said}");
    assert_all_there(&nodes, 0);
}

#[test]
fn folder_that_holds_other_files_is_refused_and_left_alone() {
    let mut nodes = Nodes::prepare("disk");
    let dir = nodes.data_dir(0).to_path_buf();
    fs::create_dir_all(&dir).expect("a folder can be made");
    fs::write(dir.join("letter.txt"), "not a slot").expect("a file can be written");
    let before = contents(&dir);
    nodes.cluster.start_node(0).expect("the program starts");
    assert_eq!(nodes.wait_exit(0), Some(2), "{}", nodes.log(0));
    assert_eq!(contents(&dir), before, "a refused folder was changed");
}
