//! Licences, sources and bans of dependencies, held against `deny.toml` without a network.
//!
//! What needs one (advisories, yanked versions) is left to `cargo deny`, which reads the same file.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::metadata::Metadata;

/// The parts of `deny.toml` that are checked here.
#[derive(Deserialize)]
pub struct Rules {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
    /// Packages that may use it all the same.
    #[serde(default)]
    wrappers: Vec<String>,
}

#[derive(Deserialize)]
struct Sources {
    #[serde(rename = "allow-registry")]
    allow_registry: Vec<String>,
}

/// Reads `deny.toml`.
///
/// # Errors
/// When the text is not TOML of that form.
pub fn parse_rules(text: &str) -> Result<Rules> {
    toml::from_str(text).context("deny.toml")
}

/// Everything about `metadata` that `rules` do not allow.
pub fn violations(rules: &Rules, metadata: &Metadata) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        let name = format!("{} {}", package.name, package.version);
        match &package.license {
            None => wrong.push(format!("{name} names no licence: use another crate")),
            Some(expression) if !is_allowed(expression, &rules.licenses.allow) => wrong.push(format!(
                "{name} is licensed {expression:?}: use another crate, or allow it in deny.toml and say why"
            )),
            Some(_) => {}
        }
        if let Some(source) = &package.source
            && !rules.sources.allow_registry.iter().any(|url| source == &format!("registry+{url}"))
        {
            wrong.push(format!("{name} comes from {source}: use a released version"));
        }
        for dependency in &package.dependencies {
            if package.source.is_none() && dependency.path.is_none() && dependency.req == "*" {
                wrong.push(format!("{name} uses any version of {}: name one", dependency.name));
            }
        }
        wrong.extend(banned(rules, metadata, &package.name));
    }
    wrong
}

fn banned(rules: &Rules, metadata: &Metadata, name: &str) -> Vec<String> {
    let Some(ban) = rules.bans.deny.iter().find(|ban| ban.name == name) else { return Vec::new() };
    let users = metadata.packages.iter().filter(|p| {
        let uses = |d: &crate::metadata::Dependency| d.name == name && d.kind.is_none();
        p.dependencies.iter().any(uses) && !ban.wrappers.contains(&p.name)
    });
    users
        .map(|user| format!("{} uses {name}, which is banned: {}", user.name, ban.reason))
        .collect()
}

/// Whether an SPDX expression can be fulfilled with the allowed licences alone.
///
/// Understands `AND`, `OR`, `WITH` and brackets, and the old `/` for `OR`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let fulfilled = either(&words, &mut at, allowed);
    fulfilled && at == words.len()
}

fn either(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut fulfilled = both(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        fulfilled |= both(words, at, allowed);
    }
    fulfilled
}

fn both(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut fulfilled = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        fulfilled &= one(words, at, allowed);
    }
    fulfilled
}

fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(&word) = words.get(*at) else { return false };
    *at += 1;
    if word == "(" {
        let fulfilled = either(words, at, allowed);
        *at += 1; // the closing bracket
        return fulfilled;
    }
    let mut licence = word.to_string();
    if words.get(*at) == Some(&"WITH") {
        licence = format!("{licence} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    allowed.contains(&licence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str) -> bool {
        is_allowed(expression, &["MIT".to_string(), "Apache-2.0 WITH LLVM-exception".to_string()])
    }

    #[test]
    fn one_side_of_or_is_enough() {
        assert!(check("GPL-3.0 OR MIT"));
        assert!(check("MIT/Apache-2.0"));
        assert!(!check("GPL-3.0 OR AGPL-3.0"));
    }

    #[test]
    fn both_sides_of_and_are_needed() {
        assert!(!check("MIT AND GPL-3.0"));
        assert!(check("(MIT OR GPL-3.0) AND Apache-2.0 WITH LLVM-exception"));
    }

    #[test]
    fn exception_belongs_to_the_licence() {
        assert!(!check("MIT WITH LLVM-exception"));
        assert!(!check("Apache-2.0"));
    }

    #[test]
    fn broken_expression_is_refused() {
        assert!(!check(""));
        assert!(!check("MIT )"));
        assert!(!check("MIT MIT"));
    }
}
