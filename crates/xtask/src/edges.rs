//! Holds the edges between crates against the floors that ARCHITECTURE.md draws.
//!
//! The table in that page is the only place where floors are written down. A crate uses lower floors only;
//! neighbours do not use each other. The exceptions are listed here, each with its reason.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

use crate::metadata::Metadata;

/// Edges on one floor that are wanted: (user, used, why).
const NEIGHBOURS: &[(&str, &str, &str)] = &[
    ("palimpsest", "sim", "`palimpsest sim` runs the simulator"),
    ("palimpsest", "bench", "`palimpsest bench` runs the measurements"),
    ("chaos", "bench", "its client and its processes are what chaos needs too"),
    ("pmem-vm", "bench", "as for chaos"),
];

/// Where a crate stands: 0 is the lowest floor.
pub type Floors = BTreeMap<String, Floor>;

/// A floor, or beside the house.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Floor {
    Level(u8),
    /// Uses nothing of the workspace; everyone may use it.
    Apart,
}

/// Reads the table of floors: the first code block below the heading `## Floors`.
///
/// A line is a level (or `-`), then crate names, each ending at two spaces, a comma or a bracket.
///
/// # Errors
/// When there is no such block or a crate stands in it twice.
pub fn parse_floors(page: &str) -> Result<Floors> {
    let (_, section) = page.split_once("\n## Floors").context("no heading `## Floors`")?;
    let block = section.split("```").nth(1).context("no code block below `## Floors`")?;
    let mut floors = Floors::new();
    for line in block.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        let (mark, names) =
            line.split_once("  ").context("a floor is a mark, two spaces, names")?;
        let floor = match mark {
            "-" => Floor::Apart,
            level => Floor::Level(level.parse().with_context(|| format!("{level:?} is no floor"))?),
        };
        let names = names.split_once("  ").map_or(names, |(names, _)| names);
        for name in names.split_whitespace() {
            if floors.insert(name.to_string(), floor).is_some() {
                bail!("`{name}` stands on two floors");
            }
        }
    }
    ensure!(!floors.is_empty(), "the table of floors is empty");
    Ok(floors)
}

/// Every edge of the workspace that the floors do not allow, and every crate that is not in the table.
pub fn violations(floors: &Floors, metadata: &Metadata) -> Vec<String> {
    let mut wrong = Vec::new();
    let members: BTreeSet<&str> = metadata.packages.iter().map(|p| p.name.as_str()).collect();
    for name in floors.keys().filter(|name| !members.contains(name.as_str())) {
        wrong.push(format!(
            "ARCHITECTURE.md has a floor for `{name}`, which is no crate: remove it"
        ));
    }
    for package in &metadata.packages {
        let Some(&from) = floors.get(&package.name) else {
            wrong.push(format!("`{}` has no floor: add it to ARCHITECTURE.md", package.name));
            continue;
        };
        for used in package.dependencies.iter().filter(|d| d.path.is_some()) {
            let Some(&to) = floors.get(&used.name) else { continue };
            if !allowed(&package.name, from, &used.name, to) {
                wrong.push(format!(
                    "`{}` ({from:?}) must not use `{}` ({to:?}): a crate uses lower floors only; move \
                     what is shared down, or turn the edge round",
                    package.name, used.name
                ));
            }
        }
    }
    wrong
}

fn allowed(user: &str, from: Floor, used: &str, to: Floor) -> bool {
    match (from, to) {
        (Floor::Apart, _) => false,
        (Floor::Level(_), Floor::Apart) => true,
        (Floor::Level(from), Floor::Level(to)) => {
            to < from || NEIGHBOURS.iter().any(|(a, b, _)| (*a, *b) == (user, used))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Dependency, Package};

    const PAGE: &str = "# A\n\n## Floors\ntext\n```\n6  palimpsest sim\n1  types values  words\n0  base\n\
                        -  checker\n```\n";

    fn package(name: &str, uses: &[&str]) -> Package {
        let dependencies = uses
            .iter()
            .map(|used| Dependency {
                name: (*used).to_string(),
                req: "*".to_string(),
                kind: None,
                path: Some(String::new()),
            })
            .collect();
        Package {
            name: name.to_string(),
            version: String::new(),
            license: None,
            source: None,
            dependencies,
        }
    }

    fn check(edges: &[(&str, &[&str])]) -> Vec<String> {
        let floors = parse_floors(PAGE).expect("the page has a table");
        let mut packages: Vec<Package> =
            edges.iter().map(|(name, uses)| package(name, uses)).collect();
        for name in floors.keys() {
            if packages.iter().all(|p| p.name != *name) {
                packages.push(package(name, &[]));
            }
        }
        violations(&floors, &Metadata { packages })
    }

    #[test]
    fn table_ends_a_floor_at_two_spaces() {
        let floors = parse_floors(PAGE).expect("the page has a table");
        assert_eq!(floors.len(), 6);
        assert_eq!(floors["values"], Floor::Level(1));
        assert_eq!(floors["checker"], Floor::Apart);
    }

    #[test]
    fn lower_floors_and_listed_neighbours_may_be_used() {
        assert_eq!(
            check(&[("types", &["base"]), ("palimpsest", &["sim", "checker", "base"])]),
            [""; 0]
        );
    }

    #[test]
    fn higher_floors_neighbours_and_uses_by_checker_are_refused() {
        assert_eq!(check(&[("base", &["types"])]).len(), 1);
        assert_eq!(check(&[("types", &["values"])]).len(), 1);
        assert_eq!(check(&[("checker", &["base"])]).len(), 1);
        assert_eq!(check(&[("sim", &["palimpsest"])]).len(), 1);
    }

    #[test]
    fn crate_without_a_floor_is_refused() {
        assert_eq!(check(&[("stray", &[])]).len(), 1);
    }
}
