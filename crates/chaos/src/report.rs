//! Results of runs, as tables.

use crate::catalogue::Fault;
use crate::gaps;
use crate::host::Host;
use crate::nodes::Durability;
use crate::run::RunResult;

/// One line for each fault: count, duration, and the longest span without acknowledged writes.
pub fn faults(done: &RunResult, wanted: &[Fault], host: &Host) -> String {
    let acknowledged = acknowledged(done);
    let mut table = format!(
        "durability {}\n\n\
         | fault | times | held, s | quorum at | gap at any, ms | at each, ms | back after, ms |\n\
         |---|---|---|---|---|---|---|\n",
        done.durability.name()
    );
    for &fault in wanted {
        let row = row(done, fault, &acknowledged);
        let text = row.map_or_else(|| absence(fault, done.durability, host), |row| row.text());
        table += &format!("| {} | {text} |\n", fault.name());
    }
    table
}

/// Faults during which a side with a quorum acknowledged no write for longer than `most`
/// nanoseconds.
pub fn silences(done: &RunResult, most: u64) -> Vec<String> {
    let acknowledged = acknowledged(done);
    let mut lines = Vec::new();
    for injected in done.faults.iter().filter(|injected| !injected.survivors.is_empty()) {
        let gap = gaps::longest(&merged(&injected.survivors, &acknowledged), injected.window);
        if gap > most {
            let (name, details, seconds) =
                (injected.fault.name(), &injected.details, gap as f64 / 1e9);
            lines.push(format!("{name} ({details}): no write was acknowledged for {seconds:.1} s"));
        }
    }
    lines
}

/// The moments of several nodes in one order.
fn merged(nodes: &[usize], acknowledged: &[Vec<u64>]) -> Vec<u64> {
    let of = |&node: &usize| acknowledged.get(node).map(Vec::as_slice).unwrap_or_default();
    let mut all: Vec<u64> = nodes.iter().flat_map(of).copied().collect();
    all.sort_unstable();
    all
}

/// Why a fault has no figures.
fn absence(fault: Fault, durability: Durability, host: &Host) -> String {
    match fault.obstacle(durability, host) {
        Some(obstacle) => format!("0 | | | | | {obstacle}"),
        None => "0 | | | | | no time was left for it".to_string(),
    }
}

/// Moments at which writes were acknowledged, for each node in order.
fn acknowledged(done: &RunResult) -> Vec<Vec<u64>> {
    let ops = done.recorder.ops();
    let count = ops.iter().map(|op| op.node + 1).max().unwrap_or(0);
    let mut times = vec![Vec::new(); count];
    for op in ops.iter().filter(|op| op.is_acknowledged_write()) {
        times[op.node].push(op.done);
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    times
}

#[derive(Default)]
struct FaultRow {
    times: usize,
    held: u64,
    survivors_least: usize,
    survivors_most: usize,
    gap_any: u64,
    gap_each: u64,
    back: Option<u64>,
}

fn row(done: &RunResult, fault: Fault, acknowledged: &[Vec<u64>]) -> Option<FaultRow> {
    let mut row = FaultRow { survivors_least: usize::MAX, ..FaultRow::default() };
    for injected in done.faults.iter().filter(|injected| injected.fault == fault) {
        let window = injected.window;
        let of = |&node: &usize| acknowledged.get(node).map(Vec::as_slice).unwrap_or_default();
        // Without a surviving side no silence is a fault: the table shows all nodes.
        let all: Vec<usize> = (0..acknowledged.len()).collect();
        let side = if injected.survivors.is_empty() { &all } else { &injected.survivors };
        let any = merged(side, acknowledged);
        let each = side.iter().map(|node| gaps::longest(of(node), window)).max();
        let back = all.iter().map(|node| gaps::first_after(of(node), window.to)).max();
        row.times += 1;
        row.held += window.to - window.from;
        row.survivors_least = row.survivors_least.min(injected.survivors.len());
        row.survivors_most = row.survivors_most.max(injected.survivors.len());
        row.gap_any = row.gap_any.max(gaps::longest(&any, window));
        row.gap_each = row.gap_each.max(each.unwrap_or_default());
        row.back = row.back.max(back.flatten());
    }
    (row.times > 0).then_some(row)
}

impl FaultRow {
    fn text(&self) -> String {
        let ms = |nanos: u64| format!("{:.0}", nanos as f64 / 1e6);
        let side = match (self.survivors_least, self.survivors_most) {
            (0, 0) => "none".to_string(),
            (least, most) if least == most => most.to_string(),
            (least, most) => format!("{least} to {most}"),
        };
        let held = self.held as f64 / 1e9 / self.times as f64;
        let back = self.back.map_or("-".to_string(), ms);
        let (any, each) = (ms(self.gap_any), ms(self.gap_each));
        format!("{} | {held:.1} | {side} | {any} | {each} | {back}", self.times)
    }
}

/// The number of calls, their outcomes, and the checker's verdicts.
pub fn summary(done: &RunResult) -> String {
    let (answered, none, unknown) = done.outcomes();
    let undecided = done.judged.iter().filter(|judged| !judged.verdict.holds()).count();
    let wrong = done.judged.iter().filter(|judged| judged.verdict.is_violation()).count();
    let longest = done.judged.iter().map(|judged| judged.operations).max().unwrap_or(0);
    format!(
        "durability {}: {} faults; {answered} calls answered, {none} surely without effect, {unknown} unknown; \
         {} histories, the longest of {longest} calls: {} hold, {wrong} do not, {} undecided",
        done.durability.name(),
        done.faults.len(),
        done.judged.len(),
        done.judged.len() - undecided,
        undecided - wrong,
    )
}
