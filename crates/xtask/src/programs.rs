//! Test programs: cargo builds them, and as many as there are cores run at a time.
//!
//! Many tests wait for timeouts of nodes; side by side they leave no core idle.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Programs that wait most of their time. They start first, and others run beside them.
const WAITING: &[&str] = &["process", "nodes"];

/// A test program as cargo has built it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// As in `disk (tests/disk/main.rs)` or `base (unit tests)`.
    pub name: String,
    pub file: PathBuf,
    /// Tests find their files from here.
    pub folder: PathBuf,
}

/// The lines that a program printed, and whether it succeeded.
pub struct Ended {
    pub program: Program,
    pub lines: Vec<String>,
    pub is_success: bool,
}

#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Runs a `cargo test --no-run` and lists the programs that it built.
///
/// # Errors
/// When cargo fails, or builds no test.
pub fn build(mut cargo: Command) -> Result<Vec<Program>> {
    cargo.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("cargo did not start")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut programs = Vec::new();
    for line in BufReader::new(output).lines() {
        programs.extend(program_of(&line.context("the output of cargo ended early")?));
    }
    let status = child.wait().context("cargo")?;
    ensure!(status.success(), "cargo test --no-run: {status}");
    ensure!(!programs.is_empty(), "cargo built no test");
    Ok(programs)
}

fn program_of(message: &str) -> Option<Program> {
    let artifact: Artifact = serde_json::from_str(message).ok()?;
    let file = artifact.executable.filter(|_| artifact.profile.test)?;
    let folder = artifact.manifest_path.parent()?.to_path_buf();
    let Target { kind, name, src_path } = artifact.target;
    let is_own = kind.iter().any(|kind| kind == "test");
    let source = src_path.strip_prefix(&folder).unwrap_or(&src_path).display().to_string();
    let part = if is_own { source.as_str() } else { "unit tests" };
    Some(Program { name: format!("{name} ({part})"), file, folder })
}

/// Runs all programs with these arguments and hands each over as it ends.
///
/// # Errors
/// When a program does not start.
pub fn run(
    programs: Vec<Program>,
    arguments: &[&str],
    ended: impl FnMut(Ended) + Send,
) -> Result<()> {
    let lanes = std::thread::available_parallelism().map_or(1, usize::from);
    let (waiting, busy): (Vec<_>, Vec<_>) = programs.into_iter().partition(is_waiting);
    let queue: Mutex<VecDeque<Program>> = Mutex::new(waiting.into_iter().chain(busy).collect());
    let ended = Mutex::new(ended);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || -> Result<()> {
        while let Some(program) = next() {
            let result = run_one(program, arguments)?;
            ended.lock().unwrap_or_else(PoisonError::into_inner)(result);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(work)).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane returns its errors"))
    })
}

fn is_waiting(program: &Program) -> bool {
    WAITING.iter().any(|name| program.name.starts_with(&format!("{name} (tests/")))
}

fn run_one(program: Program, arguments: &[&str]) -> Result<Ended> {
    // One pipe keeps the lines of both outputs in order.
    let (reader, writer) = std::io::pipe().context("a pipe")?;
    let mut command = command(&program.file, &program.folder);
    command.args(arguments).stdout(writer.try_clone().context("a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| program.file.display().to_string())?;
    // Drops this process' copies of the writing end.
    drop(command);
    let mut lines = Vec::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.context("the output of a test ended early")?;
        lines.push(String::from_utf8_lossy(&line).into_owned());
    }
    let is_success = child.wait().context("a test")?.success();
    Ok(Ended { program, lines, is_success })
}

/// The program as cargo would start it, allowed to report the times of its tests.
fn command(file: &Path, folder: &Path) -> Command {
    let mut command = Command::new(file);
    command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder).env("RUSTC_BOOTSTRAP", "1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, source: &str, is_test: bool) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/a/disk/Cargo.toml",
            "target":{{"kind":["{kind}"],"name":"disk","src_path":"/a/disk/{source}"}},
            "profile":{{"test":{is_test}}},"executable":"/t/disk-1"}}"#
        )
    }

    #[test]
    fn test_programs_are_named_by_their_source() {
        let name = |text: &str| program_of(text).map(|program| program.name);
        let own = message("test", "tests/disk/main.rs", true);
        assert_eq!(name(&own).as_deref(), Some("disk (tests/disk/main.rs)"));
        let unit = message("lib", "src/lib.rs", true);
        assert_eq!(name(&unit).as_deref(), Some("disk (unit tests)"));
        assert_eq!(name(&message("bin", "src/main.rs", false)), None);
        assert_eq!(name(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn every_program_ends_once_with_its_lines() {
        let script = |name: &str| Program {
            name: name.to_owned(),
            file: "/bin/sh".into(),
            folder: std::env::temp_dir(),
        };
        let names = ["a", "b", "c", "nodes (tests/nodes/main.rs)"];
        let (mut seen, mut failed) = (Vec::new(), 0);
        let arguments = ["-c", "echo out; echo err >&2; exit 3"];
        run(names.map(script).into(), &arguments, |ended| {
            assert_eq!(ended.lines, ["out", "err"]);
            failed += usize::from(!ended.is_success);
            seen.push(ended.program.name);
        })
        .expect("they start");
        seen.sort_unstable();
        assert_eq!((seen.as_slice(), failed), (names.map(str::to_owned).as_slice(), 4));
    }

    #[test]
    fn missing_program_is_an_error() {
        let program =
            Program { name: "a".into(), file: "/none".into(), folder: std::env::temp_dir() };
        assert!(run(vec![program], &[], |_| {}).is_err());
    }
}
