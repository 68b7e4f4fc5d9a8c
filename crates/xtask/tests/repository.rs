//! The repository's own rules, as tests.

use xtask::metadata::Scope;
use xtask::{edges, licences, metadata, root, tidy};

fn check(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn crates_use_lower_floors_only() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page is there");
    let floors = edges::parse_floors(&page).expect("the page has the table of floors");
    let metadata = metadata::read(&root(), Scope::Members).expect("cargo knows the workspace");
    check(&edges::violations(&floors, &metadata));
}

#[test]
fn dependencies_are_licensed_and_sourced_as_deny_toml_says() {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml is there");
    let rules = licences::parse_rules(&text).expect("deny.toml is well formed");
    let metadata =
        metadata::read(&root(), Scope::MembersAndDependencies).expect("cargo knows all packages");
    check(&licences::violations(&rules, &metadata));
}

#[test]
fn source_follows_the_house_style() {
    check(&tidy::violations(&root()).expect("git lists the files"));
}
