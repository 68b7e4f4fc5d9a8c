//! Every target on inputs that a number draws: the short form of what `./x fuzz` does for long.

use std::path::Path;

use fuzzing::{TARGETS, find, mutate};

fn check(name: &str) {
    let target = find(name).expect("there is such a target");
    mutate::run(target, 1, target.short);
}

#[test]
fn requests_hold() {
    check("requests");
}

#[test]
fn replies_hold() {
    check("replies");
}

#[test]
fn frames_hold() {
    check("frames");
}

#[test]
fn handshake_hold() {
    check("handshake");
}

#[test]
fn payloads_hold() {
    check("payloads");
}

#[test]
fn messages_hold() {
    check("messages");
}

#[test]
fn outcomes_hold() {
    check("outcomes");
}

#[test]
fn commands_hold() {
    check("commands");
}

#[test]
fn dumps_hold() {
    check("dumps");
}

#[test]
fn scripts_hold() {
    check("scripts");
}

#[test]
fn disk_hold() {
    check("disk");
}

#[test]
fn pmem_hold() {
    check("pmem");
}

#[test]
fn identity_hold() {
    check("identity");
}

#[test]
fn config_hold() {
    check("config");
}

#[test]
fn every_target_has_a_program_and_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = std::fs::read_to_string(root.join("fuzz/Cargo.toml")).expect("it is there");
    let tests = include_str!("targets.rs");
    for target in TARGETS {
        assert!(manifest.contains(&format!("name = \"{}\"\n", target.name)), "{}", target.name);
        let path = root.join(format!("fuzz/fuzz_targets/{}.rs", target.name));
        let program = std::fs::read_to_string(path).expect("it is there");
        assert!(program.contains(&format!("fuzzing::run(\"{}\", data)", target.name)));
        assert!(tests.contains(&format!("check(\"{}\");", target.name)), "{}", target.name);
    }
}
