//! Style that a machine can check. Each message says what to write instead.
//!
//! Rules about words, not about taste: what needs a reader's eye is left to review (CONTRIBUTING.md).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::source::{self, Line};
use crate::words;

/// A file this long holds more than one subject.
const FILE_LINES_MAX: usize = 700;

/// Crates in which nothing may depend on a clock, a thread, a socket, a file or the order of a random map.
const PURE_CRATES: &[&str] =
    &["base", "types", "values", "resp", "protocols", "commands", "checker", "sim"];

/// Files of those crates that are a thin shell around what is pure.
const SHELLS: &[&str] = &["crates/sim/src/campaign.rs"];

/// Modules of higher floors that hold logic without I/O, driven by the simulator as they are. A folder ends
/// with a slash.
const PURE_PATHS: &[&str] = &[
    "crates/node/src/formation.rs",
    "crates/node/src/worker.rs",
    "crates/node/src/worker/",
    "crates/transport/src/backoff.rs",
    "crates/transport/src/connection.rs",
    "crates/transport/src/frame.rs",
    "crates/transport/src/handshake.rs",
];

/// Where `unsafe` may stand: mapped files and questions about them, records behind thin pointers,
/// one instruction and one library that `bench` compares. A folder ends with a slash.
const UNSAFE_PATHS: &[&str] = &[
    "crates/bench/src/media/pmemlog/library.rs",
    "crates/bench/src/media/variants/popcount.rs",
    "crates/storage/src/pmem/",
    "crates/storage/src/disk/shell/uring.rs",
    "crates/storage/src/probe.rs",
    "crates/storage/src/volatile/packed.rs",
];

/// What pure code must not name, and what it does instead.
const IMPURE: &[(&str, &str)] = &[
    ("Instant", "take `now: Nanos` as an argument"),
    ("SystemTime", "take the wall clock as an argument (types::Clock)"),
    ("std::thread", "leave threads to the shell of a higher floor"),
    ("std::fs", "leave files to `storage`'s media"),
    ("std::net", "leave sockets to `transport` and `server`"),
    ("std::env", "take configuration as an argument"),
    ("RandomState", "give the map a fixed hasher, or use a BTreeMap"),
    ("std::collections::HashMap", "use a BTreeMap, or hashbrown with a fixed hasher"),
    ("std::collections::HashSet", "use a BTreeSet, or hashbrown with a fixed hasher"),
    ("collections::hash_map", "use a BTreeMap, or hashbrown with a fixed hasher"),
];

/// Words that shipped code does not contain, and what it has instead.
const UNFINISHED: &[(&str, &str)] = &[
    ("dbg!(", "remove it"),
    ("todo!(", "write it, or return a typed error"),
    ("unimplemented!(", "write it, or return a typed error"),
    (".unwrap()", "return a typed error, or say `expect(\"why it cannot fail\")`"),
    ("#[ignore", "run it in the right ring, or delete it"),
];

/// Folders that only exist on somebody's own machine. Split, so that this file does not contain them.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/")];

/// Marks of unfinished work in comments, split for the same reason.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];

/// Checks every file that git knows below `root`.
///
/// # Errors
/// When git cannot list the files or one cannot be read.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let files = files(root)?;
    for path in &files {
        let Ok(text) = std::fs::read_to_string(root.join(path)) else { continue }; // not text, or deleted
        wrong.extend(check_words(path, &text));
        if path.ends_with(".rs") {
            wrong.extend(check_rust(path, &text, is_test_file(root, path)));
        }
    }
    wrong.extend(words::violations(root, &files)?);
    for path in [SHELLS, PURE_PATHS, UNSAFE_PATHS].concat() {
        if !files.iter().any(|file| is_below(file, path)) {
            wrong.push(format!(
                "{path}: xtask's rules name it, and there is no such file: correct them"
            ));
        }
    }
    Ok(wrong)
}

/// Tracked files and new ones that are not ignored.
///
/// # Errors
/// When git cannot list them.
pub fn files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git did not start")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect())
}

/// Tests, and modules that are declared below `#[cfg(test)]` by the file that owns them.
fn is_test_file(root: &Path, path: &str) -> bool {
    if path.contains("/tests/") || path.ends_with("/tests.rs") || path.contains("/benches/") {
        return true;
    }
    let path = Path::new(path);
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else { return false };
    let named = |name: &str| folder.join(name);
    let owners = [named("mod.rs"), named("lib.rs"), named("main.rs"), folder.with_extension("rs")];
    owners.iter().filter_map(|owner| std::fs::read_to_string(root.join(owner)).ok()).any(|text| {
        let modules = source::test_modules(&source::scan(&text));
        modules.iter().any(|module| stem == module.as_str())
    })
}

fn check_words(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut report = |what: String| wrong.push(format!("{path}:{}: {what}", number + 1));
        for folder in MACHINE_PATHS.iter().filter(|folder| line.contains(*folder)) {
            report(format!("`{folder}` exists on one machine only: take the path as an argument"));
        }
        for mark in MARKS.iter().filter(|mark| line.contains(*mark)) {
            report(format!("`{mark}`: do it, or file an issue"));
        }
        if line.ends_with(' ') && path.ends_with(".rs") {
            report("blanks at the end of the line: remove them".to_string());
        }
    }
    wrong
}

fn check_rust(path: &str, text: &str, is_test: bool) -> Vec<String> {
    let lines = source::scan(text);
    let mut wrong = Vec::new();
    if text.lines().count() > FILE_LINES_MAX {
        wrong.push(format!("{path}: over {FILE_LINES_MAX} lines: split it by subject"));
    }
    if path.contains("/src/") && !text.starts_with("//!") {
        wrong.push(format!(
            "{path}: open with `//!`: what this is, and what it deliberately does not do"
        ));
    }
    for (number, line) in lines.iter().enumerate() {
        let mut report = |what: String| wrong.push(format!("{path}:{}: {what}", number + 1));
        if line.code.contains("#[ignore") {
            report(
                "an ignored test proves nothing: run it in the right ring, or delete it"
                    .to_string(),
            );
        }
        if !is_test && !line.in_test {
            check_shipped(path, line, &mut report);
        }
        if has_word(&line.code, "unsafe") {
            check_unsafe(path, &lines, number, &mut report);
        }
    }
    wrong
}

fn check_shipped(path: &str, line: &Line, report: &mut impl FnMut(String)) {
    for (word, instead) in UNFINISHED.iter().filter(|(word, _)| line.code.contains(word)) {
        report(format!("`{word}` in code that ships: {instead}"));
    }
    if !is_pure(path) {
        return;
    }
    for (word, instead) in IMPURE.iter().filter(|(word, _)| has_word(&line.code, word)) {
        report(format!("`{word}` in code that must be deterministic: {instead}"));
    }
    // `use std::collections::{BTreeMap, HashMap}` names them apart.
    let grouped = line.code.contains("std::collections::{")
        && (has_word(&line.code, "HashMap") || has_word(&line.code, "HashSet"));
    if grouped {
        report(
            "a randomly ordered map in code that must be deterministic: use a BTreeMap".to_string(),
        );
    }
}

fn check_unsafe(path: &str, lines: &[Line], number: usize, report: &mut impl FnMut(String)) {
    let code = &lines[number].code;
    if code.contains("unsafe_code") || code.contains("unsafe_op_in_unsafe_fn") {
        return;
    }
    if !UNSAFE_PATHS.iter().any(|allowed| is_below(path, allowed)) {
        report(
            "`unsafe` outside the files that need it: find a safe way, or a crate that has it"
                .to_string(),
        );
    }
    let is_block = code.contains("unsafe {") || code.contains("unsafe impl");
    let reasons = lines[number.saturating_sub(8)..=number].iter();
    if is_block && !reasons.rev().any(|line| line.comment.contains("SAFETY:")) {
        report("`unsafe` without a reason: write `// SAFETY: …` above it".to_string());
    }
}

fn is_pure(path: &str) -> bool {
    let in_pure_crate =
        PURE_CRATES.iter().any(|name| path.starts_with(&format!("crates/{name}/src/")));
    let listed = PURE_PATHS.iter().any(|pure| is_below(path, pure));
    (in_pure_crate || listed) && !SHELLS.contains(&path)
}

/// Whether a path is the listed file, or lies below the listed folder.
fn is_below(path: &str, listed: &str) -> bool {
    path == listed || listed.ends_with('/') && path.starts_with(listed)
}

/// Whether `word` stands in `code` with no letter, digit or underscore directly before or after it.
fn has_word(code: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.match_indices(word).any(|(at, _)| {
        !is_part(code[..at].chars().next_back()) && !is_part(code[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, code: &str) -> Vec<String> {
        check_rust(path, &format!("//! Module.\n{code}"), false)
    }

    #[test]
    fn unwrap_is_refused_in_shipped_code_only() {
        assert_eq!(check("crates/node/src/a.rs", "fn f() { g().unwrap(); }").len(), 1);
        assert!(
            check("crates/node/src/a.rs", "#[cfg(test)]\nmod t { fn f() { g().unwrap(); } }")
                .is_empty()
        );
        assert!(
            check("crates/node/src/a.rs", "fn f() { g().unwrap_or(1); } // .unwrap()").is_empty()
        );
    }

    #[test]
    fn clocks_and_random_maps_are_refused_in_pure_crates_only() {
        for code in [
            "fn f() { std::time::Instant::now(); }",
            "use std::collections::{BTreeMap, HashMap};",
            "use std::collections::HashSet;",
            "use std::fs;",
        ] {
            assert_eq!(check("crates/protocols/src/a.rs", code).len(), 1, "{code}");
            assert!(check("crates/server/src/a.rs", code).is_empty(), "{code}");
        }
        assert!(check("crates/protocols/src/a.rs", "struct Instantiated;").is_empty());
    }

    #[test]
    fn unsafe_needs_a_place_and_a_reason() {
        let code = "// SAFETY: it is.\nunsafe { f() }";
        assert!(check("crates/storage/src/pmem/a.rs", code).is_empty());
        assert_eq!(check("crates/node/src/a.rs", code).len(), 1);
        assert_eq!(check("crates/storage/src/pmem/a.rs", "unsafe { f() }").len(), 1);
    }

    #[test]
    fn long_files_and_silent_modules_are_refused() {
        assert_eq!(check("crates/node/src/a.rs", &"\n".repeat(FILE_LINES_MAX)).len(), 1);
        assert_eq!(check_rust("crates/node/src/a.rs", "fn f() {}", false).len(), 1);
    }

    #[test]
    fn marks_and_machine_paths_are_refused_everywhere() {
        for words in MARKS.iter().chain(MACHINE_PATHS) {
            assert_eq!(check_words("README.md", &format!("see {words}x")).len(), 1);
        }
    }
}
