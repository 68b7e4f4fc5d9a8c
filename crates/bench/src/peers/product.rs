//! Names and versions of the compared products, as their makers write them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::System;

impl System {
    /// The name without a version: `palimpsest (disk)`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            System::PalimpsestVolatile => "palimpsest (memory)",
            System::PalimpsestDisk => "palimpsest (disk)",
            System::Redis => "redis (1 node)",
            System::RedisReplicated => "redis (2 replicas, WAIT 1)",
            System::Etcd => "etcd (disk)",
        }
    }
}

/// The products of `systems` and their versions, as far as their programs tell.
pub(super) fn versions(systems: &[System], binary: &Path) -> BTreeMap<&'static str, String> {
    let mut versions = BTreeMap::new();
    for system in systems {
        let (product, program) = match system {
            System::PalimpsestVolatile | System::PalimpsestDisk => ("palimpsest", binary),
            System::Redis | System::RedisReplicated => ("redis", Path::new("redis-server")),
            System::Etcd => ("etcd", Path::new("etcd")),
        };
        versions.entry(product).or_insert_with(|| version(program));
    }
    versions
}

fn version(program: &Path) -> String {
    let told = Command::new(program).arg("--version").output();
    let text = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.ok().as_deref().and_then(find_version).unwrap_or("unknown version").to_owned()
}

/// The first word that looks like a version, from its first digit on.
fn find_version(text: &str) -> Option<&str> {
    let number = |word| {
        let word: &str = word;
        let from = word.find(|letter: char| letter.is_ascii_digit())?;
        let is_prefix = ["", "v", "v="].contains(&&word[..from]);
        (is_prefix && word[from..].contains('.')).then_some(&word[from..])
    };
    text.split_whitespace().find_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_program_output() {
        let of = |text| find_version(text).unwrap_or_default();
        assert_eq!(of("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1"), "7.0.15");
        assert_eq!(of("etcd Version: 3.5.16\nGit SHA: f20bbad"), "3.5.16");
        assert_eq!(of("palimpsest 0.1.0-dev"), "0.1.0-dev");
        assert_eq!(find_version("no version"), None);
    }
}
