//! One run in one durability mode: faults under load, then reads of everything, then the verdicts.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base::Prng;
use checker::Outcome;

use crate::attack::{Attack, InjectedFault};
use crate::calls::{Answer, Call, KeyKind, Mix};
use crate::catalogue::{Fault, Schedule};
use crate::histories::{self, Judged};
use crate::host::Host;
use crate::lab::Lab;
use crate::links::NetworkRules;
use crate::load::Recorder;
use crate::lock::LockOutput;
use crate::nodes::{Durability, Nodes, READY_MAX};
use crate::report;
use crate::sh::{self, BrokenPromise, StopSignal};

/// A side with a quorum that acknowledges no write for so many nanoseconds is at fault.
const SILENCE_MAX: u64 = 10_000_000_000;
/// Between two tries of a read that has no outcome yet.
const AGAIN: Duration = Duration::from_millis(100);
/// More violations than this are only counted.
const SHOWN_MAX: usize = 3;

/// The settings of a run.
pub struct RunPlan {
    pub binary: PathBuf,
    pub durability: Durability,
    pub nodes: usize,
    pub protocol: String,
    pub mix: Mix,
    pub seed: u64,
    pub time: Duration,
    pub faults: Vec<Fault>,
    /// The program that asks Porcupine, if it could be built.
    pub porcupine: Option<PathBuf>,
    /// Folder for the evidence of a violation.
    pub keep: PathBuf,
    pub is_always_kept: bool,
    /// Ends the run by a panic, to show that it cleans up.
    pub panic_after: Option<Duration>,
}

/// The result of a run.
pub struct RunResult {
    pub durability: Durability,
    pub faults: Vec<InjectedFault>,
    pub recorder: Recorder,
    pub judged: Vec<Judged>,
    /// Violations, in words.
    pub findings: Vec<String>,
    /// Where histories and logs were kept, if they were.
    pub kept: Option<PathBuf>,
}

/// Runs a plan to its end.
///
/// # Errors
/// When the host fails or the run is interrupted. Faults of nodes are findings in the result.
pub fn run(plan: &RunPlan, lab: &mut Lab, host: &Host, stop: &StopSignal) -> Result<RunResult> {
    lab.apply(&NetworkRules::default())?;
    let wanted = (plan.nodes, plan.protocol.as_str());
    let mut nodes = Nodes::prepare(lab, host, &plan.binary, plan.durability, wanted)?;
    let recorder = Recorder::new(nodes.list.iter().map(|node| node.resp).collect(), plan.mix);
    let mut faults = Vec::new();
    let mut findings = Vec::new();
    let attacked = recorder.during(plan.seed, || {
        let start = nodes.all().into_iter().try_for_each(|node| nodes.start(node));
        start.and_then(|()| nodes.wait_ready(&nodes.all(), stop))?;
        let rng = Prng::new(plan.seed);
        let (nodes, recorder) = (&mut nodes, &recorder);
        let attack = Attack { lab, nodes, recorder, host, rng, stop };
        attack_for(plan, attack, &mut faults)
    });
    let ended = attacked.and_then(|()| conclude(plan, &mut nodes, &recorder, stop));
    if let Err(error) = ended {
        // A finding goes to the result; any other error ends the run.
        let Some(finding) = error.downcast_ref::<BrokenPromise>() else { return Err(error) };
        findings.push(match error.to_string() == finding.0 {
            true => finding.0.clone(),
            false => format!("{error}: {finding}"),
        });
    }
    nodes.kill(&nodes.all());
    findings.extend(recorder.broken());
    findings.extend(panics(&nodes));
    let judged = histories::judge(&recorder.ops(), plan.seed);
    findings.extend(wrong(&judged));
    let file = nodes.dir.join("histories.jsonl");
    write_histories(&file, &judged)?;
    findings.extend(plan.porcupine.as_deref().and_then(|program| ask_porcupine(program, &file)));
    let mut done =
        RunResult { durability: plan.durability, faults, recorder, judged, findings, kept: None };
    done.findings.extend(report::silences(&done, SILENCE_MAX));
    if plan.is_always_kept || !done.findings.is_empty() {
        done.kept = Some(keep(plan, &nodes, &done)?);
    }
    Ok(done)
}

fn attack_for(
    plan: &RunPlan,
    mut attack: Attack<'_>,
    faults: &mut Vec<InjectedFault>,
) -> Result<()> {
    let begun = Instant::now();
    let schedule = Schedule::new(plan.faults.clone(), attack.rng.fork());
    for fault in schedule.into_iter().flatten() {
        if begun.elapsed() >= plan.time {
            break;
        }
        assert!(
            plan.panic_after.is_none_or(|after| begun.elapsed() < after),
            "a panic was asked for"
        );
        let injected = attack.inject(fault)?;
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        eprintln!(
            "{:8} {:7.1} s  {} ({}), held {:.1} s, whole after {:.1} s",
            plan.durability.name(),
            seconds(injected.window.from),
            fault.name(),
            injected.details,
            seconds(injected.window.to - injected.window.from),
            seconds(injected.recovered - injected.window.to),
        );
        faults.push(injected);
    }
    Ok(())
}

/// Runs after the last fault: read every key at every node, let locks end, stop nodes, verify their
/// files.
fn conclude(
    plan: &RunPlan,
    nodes: &mut Nodes,
    recorder: &Recorder,
    stop: &StopSignal,
) -> Result<()> {
    let all = nodes.all();
    nodes.wait_ready(&all, stop)?;
    for &node in &all {
        read_all(recorder, node, stop)?;
    }
    for &node in &all {
        let code = nodes.list[node].stop();
        if code != Some(0) {
            let log = nodes.list[node].log_tail();
            bail!(BrokenPromise(format!(
                "node {} ended with {code:?} after SIGTERM: {log}",
                node + 1
            )));
        }
        if plan.durability != Durability::Volatile {
            let dir = nodes.list[node].volume.data_dir().display().to_string();
            let verified = sh::run(&[&nodes.binary.display().to_string(), "verify", &dir]);
            verified.map_err(|error| BrokenPromise(format!("in the end: {error:#}")))?;
        }
    }
    Ok(())
}

/// Reads each key once, and each lock until it is free.
fn read_all(recorder: &Recorder, node: usize, stop: &StopSignal) -> Result<()> {
    let mut asker = recorder.client(node);
    for key in recorder.keys() {
        let end = Instant::now() + READY_MAX;
        loop {
            let outcome = asker.ask(key, &Call::read(key.kind));
            let is_free = |reply: &Answer| *reply == Answer::Lock(LockOutput::Holder(None));
            if matches!(&outcome, Some(Outcome::Returned(r)) if key.kind != KeyKind::Lock || is_free(r))
            {
                break;
            }
            if Instant::now() > end {
                let (name, node) = (key.name(), node + 1);
                let details = format!("{name} at node {node}, all healed: still {outcome:?}");
                bail!(BrokenPromise(details));
            }
            stop.sleep(AGAIN)?;
        }
    }
    Ok(())
}

fn panics(nodes: &Nodes) -> Vec<String> {
    let panic_of = |node: &crate::nodes::AttackedNode| {
        let text = node.log_text();
        let line = text.lines().find(|line| line.contains("panicked at"))?;
        Some(format!("a node panicked: {line}"))
    };
    nodes.list.iter().filter_map(panic_of).collect()
}

fn wrong(judged: &[Judged]) -> Vec<String> {
    let wrong: Vec<&Judged> = judged.iter().filter(|j| j.verdict.is_violation()).collect();
    let show = |j: &&Judged| format!("{}: {}", j.key.name(), j.verdict);
    let mut lines: Vec<String> = wrong.iter().take(SHOWN_MAX).map(show).collect();
    if wrong.len() > SHOWN_MAX {
        lines.push(format!("and {} more keys", wrong.len() - SHOWN_MAX));
    }
    lines
}

fn write_histories(path: &Path, judged: &[Judged]) -> Result<()> {
    let mut out = BufWriter::new(File::create(path).context("histories.jsonl")?);
    histories::write(judged, &mut out).and_then(|()| out.flush()).context("histories.jsonl")
}

/// Porcupine's objection; `None` if it has none.
fn ask_porcupine(program: &Path, histories: &Path) -> Option<String> {
    let ask = || -> Result<bool> {
        let mut command = std::process::Command::new(program);
        command.args(["-timeout", "3s", "-budget", "60s", "-must-hold"]);
        let status = command.stdin(File::open(histories)?).status()?;
        Ok(status.success())
    };
    match ask() {
        Ok(true) => None,
        Ok(false) => Some("Porcupine finds a history that no order explains".to_string()),
        Err(error) => Some(format!("Porcupine could not be asked: {error:#}")),
    }
}

/// Copies histories, logs, the list of faults and the data directories.
fn keep(plan: &RunPlan, nodes: &Nodes, done: &RunResult) -> Result<PathBuf> {
    let folder = plan.keep.join(format!("{}-{}", plan.seed, plan.durability.name()));
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let copy = |from: &Path| {
        let name = from.file_name().unwrap_or_default();
        std::fs::copy(from, folder.join(name)).with_context(|| from.display().to_string())
    };
    copy(&nodes.dir.join("histories.jsonl"))?;
    for (index, node) in nodes.list.iter().enumerate() {
        if node.log.exists() {
            copy(&node.log)?;
        }
        let data = node.volume.data_dir();
        if data.exists() {
            let to = folder.join(format!("data-{}", index + 1)).display().to_string();
            sh::run(&["cp", "-r", "--sparse=always", &data.display().to_string(), &to])?;
        }
    }
    let mut text = String::new();
    for injected in &done.faults {
        let window = injected.window;
        text += &format!(
            "{} to {}, whole at {}: {} ({})\n",
            window.from,
            window.to,
            injected.recovered,
            injected.fault.name(),
            injected.details
        );
    }
    text += &format!("\n{}\n", done.findings.join("\n\n"));
    std::fs::write(folder.join("faults.txt"), text).context("faults.txt")?;
    Ok(folder)
}

impl RunResult {
    /// Calls that were answered, surely had no effect, or are not known.
    pub fn outcomes(&self) -> (usize, usize, usize) {
        let mut counts = (0, 0, 0);
        for op in self.recorder.ops().iter() {
            match &op.outcome {
                Outcome::Returned(_) => counts.0 += 1,
                Outcome::Failed => counts.1 += 1,
                Outcome::Unknown => counts.2 += 1,
            }
        }
        counts
    }
}
