//! Runs other programs to their end, and waits until a run is to end.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Runs a program and returns its output.
///
/// # Errors
/// When it cannot be started or fails; with its error output.
pub fn run(words: &[&str]) -> Result<String> {
    run_with(words, "")
}

/// [`run`] with data on standard input.
///
/// # Errors
/// As for [`run`].
pub fn run_with(words: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{} cannot be started", words[0]))?;
    let mut stdin = child.stdin.take().expect("standard input was asked for");
    // A program that ends without reading its input has explained that itself.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().with_context(|| words.join(" "))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}: {}", words.join(" "), output.status, errors.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program can be run like this.
pub fn works(words: &[&str]) -> bool {
    run(words).is_ok()
}

/// Set once the run is to end.
#[derive(Clone, Default)]
pub struct StopSignal(pub Arc<AtomicBool>);

/// The run was asked to end.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Nodes broke a promise.
#[derive(Debug)]
pub struct BrokenPromise(pub String);

impl std::fmt::Display for BrokenPromise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BrokenPromise {}

const SLICE: Duration = Duration::from_millis(5);

impl StopSignal {
    /// Whether the run is to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits for a span of time.
    ///
    /// # Errors
    /// As soon as the run is to end.
    pub fn sleep(&self, span: Duration) -> Result<(), Interrupted> {
        self.wait(span, || false).map(|_| ())
    }

    /// Waits until `condition` holds; false when `limit` passes first.
    ///
    /// # Errors
    /// As soon as the run is to end.
    pub fn wait(
        &self,
        limit: Duration,
        mut condition: impl FnMut() -> bool,
    ) -> Result<bool, Interrupted> {
        let end = Instant::now() + limit;
        loop {
            if self.is_set() {
                return Err(Interrupted);
            }
            if condition() {
                return Ok(true);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(left.min(SLICE));
        }
    }
}
