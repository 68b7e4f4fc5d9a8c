//! One run in one durability mode: faults under load, then reads of everything, then the verdicts.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base::Prng;
use checker::Outcome;

use crate::attack::{Attack, Strike};
use crate::calls::{Call, Kind, Reply};
use crate::catalogue::{Fault, Schedule};
use crate::histories::{self, Judged};
use crate::host::Host;
use crate::lab::Lab;
use crate::links::Rules;
use crate::load::Recorder;
use crate::lock::LockOutput;
use crate::nodes::{Durability, Nodes, READY_MAX};
use crate::report;
use crate::sh::{self, Finding, Stop};

/// A side with a quorum that acknowledges nothing for so many nanoseconds is at fault, whatever happens elsewhere.
const SILENCE_MAX: u64 = 10_000_000_000;
/// Between two tries of a read that has no outcome yet.
const AGAIN: Duration = Duration::from_millis(100);
/// More wrong keys than this are only counted.
const SHOWN_MAX: usize = 3;

/// What to do.
pub struct Plan {
    pub binary: PathBuf,
    pub durability: Durability,
    pub nodes: usize,
    pub protocol: String,
    pub seed: u64,
    pub time: Duration,
    pub faults: Vec<Fault>,
    /// The program that asks Porcupine, if it could be built.
    pub porcupine: Option<PathBuf>,
    /// Where to keep what a violation is explained by.
    pub keep: PathBuf,
    pub is_always_kept: bool,
    /// Ends the run by a panic, to show that nothing stays behind.
    pub panic_after: Option<Duration>,
}

/// What came of it.
pub struct Done {
    pub durability: Durability,
    pub strikes: Vec<Strike>,
    pub recorder: Recorder,
    pub judged: Vec<Judged>,
    /// What must not be, in words.
    pub findings: Vec<String>,
    /// Where histories and logs were kept, if they were.
    pub kept: Option<PathBuf>,
}

/// Runs a plan to its end.
///
/// # Errors
/// When the host fails or the run is interrupted. What nodes do wrong is part of what came of it.
pub fn run(plan: &Plan, lab: &mut Lab, host: &Host, stop: &Stop) -> Result<Done> {
    lab.apply(&Rules::default())?;
    let wanted = (plan.nodes, plan.protocol.as_str());
    let mut nodes = Nodes::prepare(lab, host, &plan.binary, plan.durability, wanted)?;
    let recorder = Recorder::new(nodes.list.iter().map(|node| node.resp).collect());
    let mut strikes = Vec::new();
    let mut findings = Vec::new();
    let attacked = recorder.during(plan.seed, || {
        let start = nodes.all().into_iter().try_for_each(|node| nodes.start(node));
        start.and_then(|()| nodes.wait_ready(&nodes.all(), stop))?;
        let rng = Prng::new(plan.seed);
        let (nodes, recorder) = (&mut nodes, &recorder);
        let attack = Attack { lab, nodes, recorder, host, rng, stop };
        attack_for(plan, attack, &mut strikes)
    });
    let ended = attacked.and_then(|()| conclude(plan, &mut nodes, &recorder, stop));
    if let Err(error) = ended {
        // What the nodes did wrong is told; anything else is an error of the run itself.
        let Some(finding) = error.downcast_ref::<Finding>() else { return Err(error) };
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
        Done { durability: plan.durability, strikes, recorder, judged, findings, kept: None };
    done.findings.extend(report::silences(&done, SILENCE_MAX));
    if plan.is_always_kept || !done.findings.is_empty() {
        done.kept = Some(keep(plan, &nodes, &done)?);
    }
    Ok(done)
}

fn attack_for(plan: &Plan, mut attack: Attack<'_>, strikes: &mut Vec<Strike>) -> Result<()> {
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
        let strike = attack.strike(fault)?;
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        eprintln!(
            "{:8} {:7.1} s  {} ({}), held {:.1} s, whole after {:.1} s",
            plan.durability.name(),
            seconds(strike.window.from),
            fault.name(),
            strike.what,
            seconds(strike.window.to - strike.window.from),
            seconds(strike.recovered - strike.window.to),
        );
        strikes.push(strike);
    }
    Ok(())
}

/// After the last fault: every key is read at every node, locks end, nodes stop when asked and leave whole files.
fn conclude(plan: &Plan, nodes: &mut Nodes, recorder: &Recorder, stop: &Stop) -> Result<()> {
    let all = nodes.all();
    nodes.wait_ready(&all, stop)?;
    for &node in &all {
        read_all(recorder, node, stop)?;
    }
    for &node in &all {
        let code = nodes.list[node].stop();
        if code != Some(0) {
            let said = nodes.list[node].log_tail();
            bail!(Finding(format!("node {} ended with {code:?} when asked to: {said}", node + 1)));
        }
        if plan.durability != Durability::Volatile {
            let dir = nodes.list[node].volume.data_dir().display().to_string();
            let verified = sh::run(&[&nodes.binary.display().to_string(), "verify", &dir]);
            verified.map_err(|error| Finding(format!("in the end: {error:#}")))?;
        }
    }
    Ok(())
}

/// Reads each key once, and each lock until nobody holds it any more.
fn read_all(recorder: &Recorder, node: usize, stop: &Stop) -> Result<()> {
    let mut asker = recorder.client(node);
    for key in recorder.keys() {
        let end = Instant::now() + READY_MAX;
        loop {
            let outcome = asker.ask(key, &Call::read(key.kind));
            let is_free = |reply: &Reply| *reply == Reply::Lock(LockOutput::Holder(None));
            if matches!(&outcome, Some(Outcome::Returned(r)) if key.kind != Kind::Lock || is_free(r))
            {
                break;
            }
            if Instant::now() > end {
                let (name, node) = (key.name(), node + 1);
                let what = format!("{name} at node {node}, all healed: still {outcome:?}");
                bail!(Finding(what));
            }
            stop.sleep(AGAIN)?;
        }
    }
    Ok(())
}

fn panics(nodes: &Nodes) -> Vec<String> {
    let said = |node: &crate::nodes::Node| {
        let text = node.log_text();
        let line = text.lines().find(|line| line.contains("panicked at"))?;
        Some(format!("a node said: {line}"))
    };
    nodes.list.iter().filter_map(said).collect()
}

fn wrong(judged: &[Judged]) -> Vec<String> {
    let wrong: Vec<&Judged> = judged.iter().filter(|j| j.verdict.is_violation()).collect();
    let show = |j: &&Judged| format!("{}: {}", j.key.name(), j.verdict);
    let mut said: Vec<String> = wrong.iter().take(SHOWN_MAX).map(show).collect();
    if wrong.len() > SHOWN_MAX {
        said.push(format!("and {} more keys", wrong.len() - SHOWN_MAX));
    }
    said
}

fn write_histories(path: &Path, judged: &[Judged]) -> Result<()> {
    let mut out = BufWriter::new(File::create(path).context("histories.jsonl")?);
    histories::write(judged, &mut out).and_then(|()| out.flush()).context("histories.jsonl")
}

/// Why Porcupine is not content; `None` if it is.
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
fn keep(plan: &Plan, nodes: &Nodes, done: &Done) -> Result<PathBuf> {
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
    for strike in &done.strikes {
        let window = strike.window;
        text += &format!(
            "{} to {}, whole at {}: {} ({})\n",
            window.from,
            window.to,
            strike.recovered,
            strike.fault.name(),
            strike.what
        );
    }
    text += &format!("\n{}\n", done.findings.join("\n\n"));
    std::fs::write(folder.join("faults.txt"), text).context("faults.txt")?;
    Ok(folder)
}

impl Done {
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
