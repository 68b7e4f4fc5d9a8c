//! How fast histories of transactions are checked: one line per history, times in milliseconds.
//!
//! `cargo run --release -p checker --example transactions`

use std::time::Instant;

use checker::serializable::{self, Anomaly, Promise};

#[path = "../tests/support/mod.rs"]
mod support;

use support::Random;
use support::histories::{HistoryShape, right};
use support::transactions::{changed, many_lists};

fn main() {
    for transactions_count in [1_000, 10_000] {
        for changes in [0, 1, transactions_count as u64 / 10] {
            run(transactions_count, changes);
        }
    }
}

fn run(transactions_count: usize, changes: u64) {
    let shape = HistoryShape {
        operations_count: transactions_count,
        clients_count: 20,
        pause_max: 20,
        duration_max: 100,
        percent_unknown: 3,
        percent_failed: 1,
        percent_pipelined: 0,
    };
    let mut random = Random::new(1);
    let history = right(&many_lists(), shape, &mut random);
    let history = changed(&history, changes, &mut random);
    let start = Instant::now();
    let finding = serializable::check(&history, Promise::Strict);
    let millis = start.elapsed().as_millis();
    let is_cycle = |anomaly: &&Anomaly| matches!(anomaly, Anomaly::Cycle(_));
    let cycles = finding.anomalies().iter().filter(is_cycle).count();
    println!(
        "{transactions_count:>7} transactions, {changes:>5} changes: {millis:>6} ms, {} anomalies, {cycles} of \
         them cycles",
        finding.anomalies().len()
    );
}
