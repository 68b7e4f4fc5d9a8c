//! What runs came to, as tables.

use crate::catalogue::Fault;
use crate::gaps;
use crate::host::Host;
use crate::nodes::Durability;
use crate::run::Done;

/// One line for each fault: how often, for how long, and for how long writes were not acknowledged.
pub fn faults(done: &Done, wanted: &[Fault], host: &Host) -> String {
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

/// Faults during which a side with a quorum acknowledged nothing for longer than `most` nanoseconds.
pub fn silences(done: &Done, most: u64) -> Vec<String> {
    let acknowledged = acknowledged(done);
    let mut said = Vec::new();
    for strike in done.strikes.iter().filter(|strike| !strike.survivors.is_empty()) {
        let gap = gaps::longest(&merged(&strike.survivors, &acknowledged), strike.window);
        if gap > most {
            let (name, what, seconds) = (strike.fault.name(), &strike.what, gap as f64 / 1e9);
            said.push(format!("{name} ({what}): no write was acknowledged for {seconds:.1} s"));
        }
    }
    said
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
fn acknowledged(done: &Done) -> Vec<Vec<u64>> {
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
struct Row {
    times: usize,
    held: u64,
    survivors_least: usize,
    survivors_most: usize,
    gap_any: u64,
    gap_each: u64,
    back: Option<u64>,
}

fn row(done: &Done, fault: Fault, acknowledged: &[Vec<u64>]) -> Option<Row> {
    let mut row = Row { survivors_least: usize::MAX, ..Row::default() };
    for strike in done.strikes.iter().filter(|strike| strike.fault == fault) {
        let window = strike.window;
        let of = |&node: &usize| acknowledged.get(node).map(Vec::as_slice).unwrap_or_default();
        // Without a surviving side there is none whose silence would be a fault: all nodes are looked at.
        let all: Vec<usize> = (0..acknowledged.len()).collect();
        let side = if strike.survivors.is_empty() { &all } else { &strike.survivors };
        let any = merged(side, acknowledged);
        let each = side.iter().map(|node| gaps::longest(of(node), window)).max();
        let back = all.iter().map(|node| gaps::first_after(of(node), window.to)).max();
        row.times += 1;
        row.held += window.to - window.from;
        row.survivors_least = row.survivors_least.min(strike.survivors.len());
        row.survivors_most = row.survivors_most.max(strike.survivors.len());
        row.gap_any = row.gap_any.max(gaps::longest(&any, window));
        row.gap_each = row.gap_each.max(each.unwrap_or_default());
        row.back = row.back.max(back.flatten());
    }
    (row.times > 0).then_some(row)
}

impl Row {
    fn text(&self) -> String {
        let ms = |nanos: u64| format!("{:.0}", nanos as f64 / 1e6);
        let side = match (self.survivors_least, self.survivors_most) {
            (0, 0) => "nobody".to_string(),
            (least, most) if least == most => most.to_string(),
            (least, most) => format!("{least} to {most}"),
        };
        let held = self.held as f64 / 1e9 / self.times as f64;
        let back = self.back.map_or("-".to_string(), ms);
        let (any, each) = (ms(self.gap_any), ms(self.gap_each));
        format!("{} | {held:.1} | {side} | {any} | {each} | {back}", self.times)
    }
}

/// How much was asked, what was said, and what the checker made of it.
pub fn summary(done: &Done) -> String {
    let (answered, none, unknown) = done.outcomes();
    let undecided = done.judged.iter().filter(|judged| !judged.verdict.holds()).count();
    let wrong = done.judged.iter().filter(|judged| judged.verdict.is_violation()).count();
    let longest = done.judged.iter().map(|judged| judged.operations).max().unwrap_or(0);
    format!(
        "durability {}: {} faults; {answered} calls answered, {none} surely without effect, {unknown} unknown; \
         {} histories, the longest of {longest} calls: {} hold, {wrong} do not, {} undecided",
        done.durability.name(),
        done.strikes.len(),
        done.judged.len(),
        done.judged.len() - undecided,
        undecided - wrong,
    )
}
