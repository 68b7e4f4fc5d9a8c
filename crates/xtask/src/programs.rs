//! Test programs: cargo builds them, and as many as there are cores run at a time.
//!
//! Some wait for timeouts of nodes most of their time. They run one after the other beside those.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Test programs that wait most of their time.
const WAITING: &[&str] = &["process", "nodes"];

/// A test program as cargo has built it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// As in `disk (tests/disk/main.rs)` or `base (unit tests)`.
    pub name: String,
    pub file: PathBuf,
    /// Tests find their files from here.
    pub folder: PathBuf,
    pub arguments: Vec<OsString>,
    pub variables: Vec<(&'static str, OsString)>,
    pub counting: Counting,
}

impl Program {
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(&self.folder).args(&self.arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Where a program says how many tests passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// In the lines of cargo's test harness.
    Harness,
    /// In its last line `N passed, N failed`.
    ClosingLine,
}

/// Programs print the time of each test.
const TIMED: [&str; 2] = ["-Zunstable-options", "--report-time"];

/// The lines that a program printed, and whether it succeeded.
pub struct Ended {
    pub program: Program,
    pub lines: Vec<String>,
    pub is_success: bool,
    pub seconds: f64,
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
    // As cargo would start it, allowed to report the times of its tests.
    let variables =
        vec![("CARGO_MANIFEST_DIR", folder.clone().into()), ("RUSTC_BOOTSTRAP", "1".into())];
    Some(Program {
        name: format!("{name} ({part})"),
        file,
        folder,
        arguments: TIMED.map(OsString::from).into(),
        variables,
        counting: Counting::Harness,
    })
}

/// Runs all programs and hands each over as it ends.
///
/// # Errors
/// When a program does not start.
pub fn run(programs: Vec<Program>, ended: impl FnMut(Ended) + Send) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (waiting, busy): (Vec<_>, Vec<_>) = programs.into_iter().partition(is_waiting);
    let queue = |programs: Vec<Program>| Mutex::new(VecDeque::from(programs));
    let (waiting, busy, ended) = (queue(waiting), queue(busy), Mutex::new(ended));
    let next = |queue: &Mutex<VecDeque<Program>>| {
        queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    };
    let work = |queues: &[&Mutex<VecDeque<Program>>]| -> Result<()> {
        while let Some(program) = queues.iter().find_map(|queue| next(queue)) {
            let result = run_one(program)?;
            ended.lock().unwrap_or_else(PoisonError::into_inner)(result);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let mut lanes = vec![scope.spawn(|| work(&[&waiting]))];
        lanes.extend((0..cores).map(|_| scope.spawn(|| work(&[&busy, &waiting]))));
        lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane returns its errors"))
    })
}

fn is_waiting(program: &Program) -> bool {
    program.counting == Counting::ClosingLine
        || WAITING.iter().any(|name| program.name.starts_with(&format!("{name} (tests/")))
}

fn run_one(program: Program) -> Result<Ended> {
    let start = Instant::now();
    // One pipe keeps the lines of both outputs in order.
    let (reader, writer) = std::io::pipe().context("a pipe")?;
    let mut command = program.command();
    command.stdout(writer.try_clone().context("a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| program.file.display().to_string())?;
    // Drops this process' copies of the writing end.
    drop(command);
    let mut lines = Vec::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.context("the output of a test ended early")?;
        lines.push(String::from_utf8_lossy(&line).into_owned());
    }
    let is_success = child.wait().context("a test")?.success();
    Ok(Ended { program, lines, is_success, seconds: start.elapsed().as_secs_f64() })
}

/// A shell script as a test program.
#[cfg(test)]
pub(crate) fn script(name: &str, text: &str) -> Program {
    Program {
        name: name.to_owned(),
        file: "/bin/sh".into(),
        folder: std::env::temp_dir(),
        arguments: vec!["-c".into(), text.into()],
        variables: Vec::new(),
        counting: Counting::Harness,
    }
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
        let shell = |name: &str| script(name, "echo out; echo err >&2; exit 3");
        let names = ["a", "b", "c", "nodes (tests/nodes/main.rs)"];
        let (mut seen, mut failed) = (Vec::new(), 0);
        run(names.map(shell).into(), |ended| {
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
        let program = Program { file: "/none".into(), ..script("a", "") };
        assert!(run(vec![program], |_| {}).is_err());
    }
}
