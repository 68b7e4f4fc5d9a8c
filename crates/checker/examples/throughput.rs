//! How fast histories are checked: one line per workload, times in milliseconds.
//!
//! `cargo run --release -p checker --example throughput`

use std::time::Instant;

use checker::model::append::Append;
use checker::model::counter::Counter;
use checker::model::keyed::Keyed;
use checker::model::kv::Kv;
use checker::model::register::Register;
use checker::sequential::{self, WriteOrder};
use checker::{History, Limit, Verdict, linearizable};

#[path = "../tests/support/mod.rs"]
mod support;

use support::Random;
use support::histories::{HistoryShape, doubtful, right};
use support::subjects::{Subject, kv_of_unlike_values, register_of_unlike_values};

#[derive(Clone, Copy)]
struct HistoryLoad {
    histories_count: u64,
    shape: HistoryShape,
}

fn main() {
    let many_short = workload(1_000, 200, 5, 3);
    let some_unsure = workload(50, 200, 5, 15);
    let few_long = workload(2, 10_000, 20, 0);
    let few_long_unsure = workload(2, 10_000, 20, 2);
    for workload in [many_short, some_unsure, few_long, few_long_unsure] {
        let shape = workload.shape;
        println!(
            "{} histories, {} operations, {} clients, {} % unknown",
            workload.histories_count,
            shape.operations_count,
            shape.clients_count,
            shape.percent_unknown
        );
        run_linearizable("register, values alike", &Register, workload);
        run_linearizable("register, values unlike", &register_of_unlike_values(), workload);
        run_linearizable("counter", &Counter, workload);
        run_linearizable("append", &Append::<u8>::new(), workload);
        run_linearizable("kv, values alike", &Kv, workload);
        run_linearizable("kv, values unlike", &kv_of_unlike_values(), workload);
    }
    println!("sequential, writes in real time");
    let keyed = Keyed::<u8, Register>::new(Register);
    let check =
        |history: &_| sequential::check(&keyed, history, WriteOrder::RealTime, Limit::default());
    run("keyed register", &keyed, many_short, check);
}

/// Clients call again soon after an answer, so about as many calls are open as there are clients.
fn workload(
    histories_count: u64,
    operations_count: usize,
    clients_count: u64,
    percent_unknown: u64,
) -> HistoryLoad {
    let (pause_max, duration_max, percent_failed) = (20, 100, 1);
    let shape = HistoryShape {
        operations_count,
        clients_count,
        pause_max,
        duration_max,
        percent_unknown,
        percent_failed,
        percent_pipelined: 0,
    };
    HistoryLoad { histories_count, shape }
}

fn run_linearizable<S: Subject>(name: &str, subject: &S, workload: HistoryLoad) {
    let check = |history: &_| linearizable::check(subject, history, Limit::default());
    run(name, subject, workload, check);
}

fn run<S: Subject>(
    name: &str,
    subject: &S,
    workload: HistoryLoad,
    check: impl Fn(&History<S::Input, S::Output>) -> Verdict,
) {
    let mut random = Random::new(1);
    let seeds = 0..workload.histories_count;
    let histories: Vec<_> =
        seeds.clone().map(|_| right(subject, workload.shape, &mut random)).collect();
    measure(&format!("{name}, right"), &histories, &check);
    let histories: Vec<_> = seeds.map(|_| doubtful(subject, workload.shape, &mut random)).collect();
    measure(&format!("{name}, doubtful"), &histories, &check);
}

fn measure<I, O>(
    name: &str,
    histories: &[History<I, O>],
    check: impl Fn(&History<I, O>) -> Verdict,
) {
    let start = Instant::now();
    let (mut held, mut violated, mut undecided, mut longest) = (0, 0, 0, 0);
    for history in histories {
        let before = start.elapsed().as_millis();
        match check(history) {
            Verdict::Holds { .. } => held += 1,
            Verdict::Violation(_) => violated += 1,
            Verdict::Undecided { .. } => undecided += 1,
        }
        longest = longest.max(start.elapsed().as_millis() - before);
    }
    println!(
        "  {name:<34} {:>7} ms in all, {longest:>6} at most; {held:>5} hold, {violated:>4} violations, \
         {undecided:>3} undecided",
        start.elapsed().as_millis()
    );
}
