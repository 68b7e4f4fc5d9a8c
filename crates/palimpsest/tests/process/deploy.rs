//! Files in `deploy/` name options that this program knows.
//!
//! `./x suites deploy` starts nodes with these files; it needs Helm and more.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const FILES: [&str; 4] = [
    "docker/Dockerfile",
    "docker/compose.yaml",
    "kubernetes/palimpsest.yaml",
    "systemd/palimpsest@.service",
];

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All words of `text` that begin with `prefix` and go on with characters that `belongs` accepts.
fn words(text: &str, prefix: &str, belongs: fn(char) -> bool) -> BTreeSet<String> {
    let starts = text.match_indices(prefix).map(|(at, _)| &text[at..]);
    starts
        .map(|rest| {
            let end = rest[prefix.len()..].find(|c| !belongs(c)).map(|it| it + prefix.len());
            rest[..end.unwrap_or(rest.len())].to_string()
        })
        .filter(|word| word != prefix)
        .collect()
}

fn flags(text: &str) -> BTreeSet<String> {
    words(text, "--", |c| c.is_ascii_lowercase() || c == '-')
}

fn variables(text: &str) -> BTreeSet<String> {
    words(text, "PALIMPSEST_", |c| c.is_ascii_uppercase() || c == '_')
}

#[test]
fn deploy_files_name_options_of_serve() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palimpsest"));
    let output = command.args(["serve", "--help"]).output().expect("the program starts");
    let help = String::from_utf8(output.stdout).expect("help is text");
    let known_flags = flags(&help);
    let known_variables: BTreeSet<String> = known_flags
        .iter()
        .map(|flag| format!("PALIMPSEST_{}", flag[2..].replace('-', "_").to_uppercase()))
        .collect();
    assert!(known_flags.len() > 15, "{known_flags:?}");
    for file in FILES {
        let text = read(file);
        let named = variables(&text);
        assert!(!named.is_empty(), "{file} names no variable");
        let unknown: Vec<_> = named.difference(&known_variables).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
        for line in text.lines().filter(|line| line.contains("palimpsest serve")) {
            let unknown: Vec<_> = flags(line).difference(&known_flags).cloned().collect();
            assert!(unknown.is_empty(), "{file}: {unknown:?}");
        }
    }
}

#[test]
fn configuration_of_the_package_is_accepted() {
    // The unit adds the id.
    let text = format!("id = 1\n{}", read("systemd/palimpsest.toml"));
    let config = palimpsest::understand_file(&text).expect("every key is known");
    assert_eq!(config.members.len(), 3);
}
