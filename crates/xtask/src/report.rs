//! Seconds of each step, of each test program and of the slowest tests, and the final counts.
//!
//! CPU time says how long a step takes on an idle machine, whatever else runs beside it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::programs::{self, Counting, Ended, Program};

/// Rows of each table of slowest programs or tests.
const ROWS_MAX: usize = 15;

/// Times and counts of one run.
pub struct Report {
    started: Instant,
    steps: Vec<Step>,
    programs: Vec<Timed>,
    tests: Vec<Timed>,
    counts: Counts,
}

struct Step {
    name: String,
    seconds: f64,
    cpu_seconds: f64,
}

struct Timed {
    name: String,
    seconds: f64,
}

/// Counts that a test runner printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
}

impl Counts {
    pub fn add(&mut self, more: Counts) {
        self.passed += more.passed;
        self.failed += more.failed;
    }
}

impl Default for Report {
    fn default() -> Self {
        Report {
            started: Instant::now(),
            steps: Vec::new(),
            programs: Vec::new(),
            tests: Vec::new(),
            counts: Counts::default(),
        }
    }
}

impl Report {
    /// Announces a step, runs it and keeps its time.
    ///
    /// # Errors
    /// The step's own error.
    pub fn step<T>(
        &mut self,
        name: &str,
        action: impl FnOnce(&mut Report) -> Result<T>,
    ) -> Result<T> {
        announce(name);
        let (start, cpu_start) = (Instant::now(), children_cpu_seconds());
        let result = action(self);
        let seconds = start.elapsed().as_secs_f64();
        let cpu_seconds = children_cpu_seconds() - cpu_start;
        println!("<== {seconds:.1} s ({cpu_seconds:.1} s of CPU): {name}");
        self.steps.push(Step { name: name.to_string(), seconds, cpu_seconds });
        result
    }

    /// Like `step`, and counts as one test.
    pub fn check(&mut self, name: &str, action: impl FnOnce() -> Result<()>) {
        let result = self.step(name, |_| action());
        if let Err(error) = &result {
            eprintln!("FAILED: {error:#}");
        }
        self.count(Counts {
            passed: usize::from(result.is_ok()),
            failed: usize::from(result.is_err()),
        });
    }

    /// Adds counts of a runner of its own.
    pub fn count(&mut self, counts: Counts) {
        self.counts.add(counts);
    }

    /// Runs test programs, passes their output on, and keeps counts and times.
    ///
    /// # Errors
    /// When a program does not start, or none runs a test.
    pub fn tests(&mut self, programs: Vec<Program>) -> Result<()> {
        let before = self.counts;
        programs::run(programs, |ended| self.take(&ended))?;
        ensure!(self.counts != before, "no test ran");
        Ok(())
    }

    fn take(&mut self, ended: &Ended) {
        let Ended { program: Program { name, counting, .. }, lines, is_success, seconds } = ended;
        println!("\n     Running {name}");
        if *counting == Counting::ClosingLine {
            lines.iter().for_each(|line| println!("{line}"));
            return self.take_closed(name, ended);
        }
        let mut failed = 0;
        for line in lines {
            println!("{line}");
            if let Some(result) = parse_result(line) {
                failed += result.failed;
                self.count(result);
            } else if let Some((test, seconds)) = parse_test(line) {
                self.tests.push(Timed { name: format!("{name}: {test}"), seconds });
            }
        }
        self.programs.push(Timed { name: name.clone(), seconds: *seconds });
        if !is_success && failed == 0 {
            println!("FAILED: {name} ended before its tests did");
            self.count(Counts { passed: 0, failed: 1 });
        }
    }

    fn take_closed(&mut self, name: &str, ended: &Ended) {
        self.programs.push(Timed { name: name.to_owned(), seconds: ended.seconds });
        let counts = parse_closing_line(&ended.lines.join("\n")).unwrap_or_default();
        self.count(counts);
        if counts == Counts::default() || !ended.is_success && counts.failed == 0 {
            println!("FAILED: {name} ended without its counts");
            self.count(Counts { passed: 0, failed: 1 });
        }
    }

    /// Prints the tables and, on a line of its own, the counts.
    ///
    /// # Errors
    /// When the run stopped early or a test failed.
    pub fn close(mut self, outcome: Result<()>) -> Result<()> {
        if let Err(error) = &outcome {
            eprintln!("FAILED: {error:#}");
            self.count(Counts { passed: 0, failed: 1 });
        }
        println!("{}", self.tables());
        println!("{} passed, {} failed", self.counts.passed, self.counts.failed);
        let _ = std::io::stdout().flush();
        outcome?;
        ensure!(self.counts.failed == 0, "{} failed", self.counts.failed);
        ensure!(self.counts.passed > 0, "no test ran");
        Ok(())
    }

    fn tables(&self) -> String {
        let mut text = String::new();
        text.push_str("\nsteps (seconds, CPU seconds)\n");
        for Step { name, seconds, cpu_seconds } in &self.steps {
            let _ = writeln!(text, "{seconds:8.1} {cpu_seconds:8.1}  {name}");
        }
        table(&mut text, "slowest test programs", slowest(&self.programs).into_iter());
        table(&mut text, "slowest tests", slowest(&self.tests).into_iter());
        let total = self.started.elapsed().as_secs();
        let _ = write!(text, "\ntotal: {} min {} s", total / 60, total % 60);
        text
    }
}

fn slowest(all: &[Timed]) -> Vec<&Timed> {
    let mut sorted = all.iter().collect::<Vec<_>>();
    sorted.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    sorted.truncate(ROWS_MAX);
    sorted
}

fn table<'a>(text: &mut String, heading: &str, rows: impl Iterator<Item = &'a Timed>) {
    let _ = write!(text, "\n{heading} (seconds)\n");
    for Timed { name, seconds } in rows {
        let _ = writeln!(text, "{seconds:8.1}  {name}");
    }
}

/// CPU time of all child processes that have ended; 0 where the system does not say.
fn children_cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold blanks. The fields after it start with the third.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = |field: usize| {
        fields
            .split_whitespace()
            .nth(field - 3)
            .and_then(|it| it.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(16) + ticks(17)) / TICKS_PER_SECOND
}

/// Prints a step's name before its output.
pub fn announce(name: &str) {
    println!("==> {name}");
    // Child processes write to the same place; a failure to flush shows there too.
    let _ = std::io::stdout().flush();
}

/// `test result: ok. 12 passed; 0 failed; …`
fn parse_result(line: &str) -> Option<Counts> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut parts = counts.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some(Counts { passed, failed })
}

/// `test module::name ... ok <1.234s>`
fn parse_test(line: &str) -> Option<(&str, f64)> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (_, time) = outcome.rsplit_once('<')?;
    Some((name, time.strip_suffix("s>")?.parse().ok()?))
}

/// The last line of the form `N passed, N failed`.
#[must_use]
pub fn parse_closing_line(output: &str) -> Option<Counts> {
    output.lines().rev().find_map(|line| {
        let (passed, rest) = line.trim().split_once(" passed, ")?;
        let failed = rest.strip_suffix(" failed")?;
        Some(Counts { passed: passed.parse().ok()?, failed: failed.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use anyhow::bail;

    use super::*;
    use crate::programs::script;

    #[test]
    fn counts_are_read_from_result_line() {
        let line = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out";
        assert_eq!(parse_result(line), Some(Counts { passed: 12, failed: 0 }));
        let line = "test result: FAILED. 1 passed; 2 failed; 0 ignored; finished in 1.50s";
        assert_eq!(parse_result(line), Some(Counts { passed: 1, failed: 2 }));
        assert_eq!(parse_result("test a::b ... ok"), None);
    }

    #[test]
    fn tests_are_named_with_their_time() {
        assert_eq!(parse_test("test a::b ... ok <1.250s>"), Some(("a::b", 1.25)));
        assert_eq!(parse_test("test a::b ... ok"), None);
    }

    #[test]
    fn last_plain_line_of_counts_wins() {
        let output = "1 passed, 0 failed\nmore\n12 passed, 3 failed\n";
        assert_eq!(parse_closing_line(output), Some(Counts { passed: 12, failed: 3 }));
        assert_eq!(parse_closing_line("12 passed, 3 failed, and more"), None);
    }

    #[test]
    fn step_counts_cpu_time_of_its_children() {
        let mut report = Report::default();
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done";
        let run = |_: &mut Report| crate::run(Command::new("sh").args(["-c", busy]));
        report.step("busy", run).expect("it ends well");
        assert!(report.steps[0].cpu_seconds > 0.0);
        assert!(report.tables().contains("  busy\n"));
    }

    #[test]
    fn failed_step_fails_the_run() {
        let mut report = Report::default();
        report.check("one", || Ok(()));
        assert!(report.close(Ok(())).is_ok());
        let mut report = Report::default();
        report.check("one", || Ok(()));
        report.check("two", || bail!("broken"));
        assert!(report.close(Ok(())).is_err());
        assert!(Report::default().close(Ok(())).is_err());
        let mut report = Report::default();
        report.check("one", || Ok(()));
        assert!(report.close(Err(anyhow::anyhow!("stopped"))).is_err());
    }

    fn report_of(program: Program) -> (Report, Result<()>) {
        let mut report = Report::default();
        let ran = report.tests(vec![program]);
        (report, ran)
    }

    #[test]
    fn programs_and_tests_are_counted() {
        let text = "printf 'test a ... ok <2.000s>\\n'; \
                    printf 'test result: FAILED. 1 passed; 1 failed; 0 ignored\\n'; exit 101";
        let (report, ran) = report_of(script("base (unit tests)", text));
        ran.expect("a failed test is counted, not an error");
        assert_eq!(report.counts, Counts { passed: 1, failed: 1 });
        let tables = report.tables();
        assert!(tables.contains("  base (unit tests)\n"), "{tables}");
        assert!(tables.contains("     2.0  base (unit tests): a"), "{tables}");
    }

    #[test]
    fn program_that_ends_early_fails_the_run() {
        let (report, ran) = report_of(script("a", "exit 101"));
        ran.expect("it started");
        assert_eq!(report.counts, Counts { passed: 0, failed: 1 });
        assert!(report_of(script("a", "exit 0")).1.is_err());
    }

    #[test]
    fn suites_are_counted_by_their_last_line() {
        let counts = |text| {
            let program = Program { counting: Counting::ClosingLine, ..script("a", text) };
            report_of(program).0.counts
        };
        let some = counts("echo 1 passed, 0 failed; echo 3 passed, 1 failed; exit 1");
        assert_eq!(some, Counts { passed: 3, failed: 1 });
        for text in ["true", "echo 0 passed, 0 failed", "echo 1 passed, 0 failed; exit 1"] {
            assert_eq!(counts(text).failed, 1, "{text}");
        }
    }
}
