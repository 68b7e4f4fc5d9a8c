//! `./x suites`: programs in `tools/suites` that test the binary from outside.
//!
//! Each file `tools/suites/NAME.py` is one suite. It finds the binary in `PALIMPSEST_BIN`, keeps its
//! files below `SUITE_DIR`, starts and stops its own nodes, and closes with `N passed, N failed`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::programs::{Counting, Program};
use crate::report::{Counts, Report, parse_closing_line};
use crate::{root, run, target};

const FOLDER: &str = "tools/suites";

/// Suites with a short form, for `./x test`: they install nothing that takes minutes.
const SHORT: &[&str] = &["clients", "redis_py"];

/// Which suites run.
#[derive(Args)]
pub struct Arguments {
    /// Run the short form, of three minutes, that `./x test` runs.
    #[arg(long)]
    short: bool,
    /// Names of suites (files in tools/suites); all by default.
    names: Vec<String>,
}

/// Builds the binary and runs the suites.
///
/// # Errors
/// When a suite fails or is unknown.
pub fn suites(mut cargo: Command, arguments: &Arguments) -> Result<()> {
    let mut report = Report::default();
    let outcome = report
        .step("cargo build --profile quick", |_| {
            cargo.args(["build", "--profile", "quick", "--locked", "--package", "palimpsest"]);
            run(&mut cargo)
        })
        .and_then(|()| {
            let binary = target().join("quick/palimpsest");
            run_all(&mut report, &binary, arguments.short, &arguments.names)
        });
    report.close(outcome)
}

/// The short forms, of a binary that is already built.
///
/// # Errors
/// When a suite's folder cannot be made.
pub fn short(binary: &Path) -> Result<Vec<Program>> {
    SHORT.iter().map(|name| program(binary, name, true)).collect()
}

fn run_all(report: &mut Report, binary: &Path, short: bool, names: &[String]) -> Result<()> {
    let all = names_in(&root().join(FOLDER))?;
    if let Some(name) = names.iter().find(|name| !all.contains(name)) {
        bail!("no suite is called '{name}': {}", all.join(", "));
    }
    let wanted = |name: &&String| match (names.is_empty(), short) {
        (false, _) => names.contains(name),
        (true, true) => SHORT.contains(&name.as_str()),
        (true, false) => true,
    };
    for name in all.iter().filter(wanted) {
        let form = if short { " --short" } else { "" };
        let result = report.step(&format!("suite {name}{form}"), |_| suite(binary, name, short));
        report.count(result.unwrap_or_else(|error| {
            eprintln!("FAILED: suite {name}: {error:#}");
            Counts { passed: 0, failed: 1 }
        }));
    }
    Ok(())
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.context(FOLDER)?.path();
        if path.extension().is_some_and(|it| it == "py") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// One suite as a program that counts its own tests.
fn program(binary: &Path, name: &str, short: bool) -> Result<Program> {
    let files = target().join("suites").join(name);
    std::fs::create_dir_all(&files).with_context(|| files.display().to_string())?;
    let script = root().join(FOLDER).join(name).with_extension("py");
    let mut arguments = vec![script.into_os_string()];
    arguments.extend(short.then(|| "--short".into()));
    Ok(Program {
        name: format!("suite {name}"),
        file: python(),
        folder: root(),
        arguments,
        variables: vec![("PALIMPSEST_BIN", binary.into()), ("SUITE_DIR", files.into())],
        counting: Counting::ClosingLine,
    })
}

/// Runs one suite and returns the counts of its last line.
fn suite(binary: &Path, name: &str, short: bool) -> Result<Counts> {
    counted(program(binary, name, short)?.command())
}

/// Passes a program's output on and reads its counts.
fn counted(mut command: Command) -> Result<Counts> {
    let (reader, writer) = std::io::pipe().context("a pipe")?;
    command.stdout(writer.try_clone().context("a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("did not start: {command:?}"))?;
    drop(command);
    let mut output = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.context("its output ended early")?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        output.push_str(&line);
        output.push('\n');
    }
    let status = child.wait().context("it did not end")?;
    let counts = parse_closing_line(&output).context("it printed no line 'N passed, N failed'")?;
    ensure!(status.success() || counts.failed > 0, "it ended with {status}");
    ensure!(counts != Counts::default(), "it ran no test");
    Ok(counts)
}

/// The interpreter with the packages of `tools/suites/requirements.txt`, which `x` installs.
fn python() -> PathBuf {
    let given = std::env::var_os("PALIMPSEST_TEST_PYTHON").map(PathBuf::from);
    given.unwrap_or_else(|| target().join("venv/bin/python"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Counts> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        counted(command)
    }

    #[test]
    fn suite_is_counted_by_its_last_line() {
        let counts = shell("echo 1 passed, 0 failed; echo more >&2; echo 3 passed, 1 failed");
        assert_eq!(counts.expect("it counted"), Counts { passed: 3, failed: 1 });
    }

    #[test]
    fn suite_without_a_verdict_fails() {
        for script in ["true", "echo 0 passed, 0 failed", "echo 1 passed, 0 failed; exit 1"] {
            assert!(shell(script).is_err(), "{script}");
        }
    }

    #[test]
    fn short_suites_exist() {
        let names = names_in(&root().join(FOLDER)).expect("the folder is there");
        assert!(SHORT.iter().all(|name| names.iter().any(|it| it == name)), "{names:?}");
    }
}
