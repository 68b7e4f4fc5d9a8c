//! Runs seeds from the command line and prints the results.
//!
//! `cargo run --release -p sim --example campaign -- PROTOCOL SEEDS [FIRST_SEED [OPS [FAULTS [NODES
//! [MUTATION]]]]]`

use std::time::Instant;

use sim::shrink::EVENTS_MAX;
use sim::{
    Campaign, Cuts, Durability, FaultSet, MediumKind, SimConfig, Speech, campaign, replay, shrink,
    validate,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        arguments.get(index).map_or(default, |text| text.parse().expect("a number"))
    };
    let protocol = arguments.first().map_or("rmwpaxos", String::as_str);
    let mut config = SimConfig::new(protocol, number(2, 1));
    config.ops = number(3, 200);
    config.nodes = number(5, 3) as usize;
    config.mutation = arguments.get(6).cloned();
    if let Some(faults) = arguments.get(4) {
        config.faults = FaultSet::parse(faults).expect("faults");
    }
    if let Ok(medium) = std::env::var("MEDIUM") {
        config.medium = Some(MediumKind::by_name(&medium).expect("a medium"));
    }
    if let Ok(durability) = std::env::var("DURABILITY") {
        config.durability = Some(match durability.as_str() {
            "volatile" => Durability::Volatile,
            "pmem" => Durability::Pmem,
            "disk" => Durability::Disk,
            _ => panic!("no durability is called {durability}"),
        });
    }
    if let Ok(clients) = std::env::var("CLIENTS") {
        config.speech = Some(Speech::by_name(&clients).expect("direct or resp"));
    }
    if let Ok(cuts) = std::env::var("CUT") {
        config.cuts = Cuts::parse(&cuts).expect("cuts");
    }
    if let Ok(mix) = std::env::var("WORKLOAD") {
        config.mix = Some(sim::Mix::by_name(&mix).expect("a workload"));
    }
    if let Ok(distance) = std::env::var("DISTANCE") {
        config.distance = Some(distance.parse().expect("milliseconds"));
    }
    if let Ok(replicas) = std::env::var("REPLICAS") {
        config.replicas = Some(replicas.parse().expect("a number"));
    }
    if let Ok(count) = std::env::var("MEDIA_STRIKES") {
        config.media_faults = count.parse().expect("a number");
    }
    validate(&config).expect("a configuration that exists");
    if std::env::var("DRAWN").is_ok() {
        println!("{:?}", sim::run::drawn(&config));
    }
    let threads = std::env::var("THREADS").map_or(1, |text| text.parse().expect("a number"));
    let failures_max = std::env::var("FAILURES").map_or(1, |text| text.parse().expect("a number"));
    let plan = Campaign { config: config.clone(), seeds: number(1, 100), threads, failures_max };
    let started = Instant::now();
    let report = campaign(&plan, |_| {});
    let seconds = started.elapsed().as_secs_f64();
    for (seed, failure) in report.failures.iter().filter(|_| failures_max == 1) {
        let config = SimConfig { seed: *seed, ..config.clone() };
        println!("{}\n", failure.replay_line);
        let (smaller, failure) = shrink(&config, failure, EVENTS_MAX);
        println!("{}", replay(&smaller, failure));
    }
    for (seed, failure) in report.failures.iter().filter(|_| failures_max > 1) {
        println!("seed {seed}: {}", failure.reason.lines().next().unwrap_or_default());
    }
    if std::env::var("MARKS").is_ok() {
        for mark in sim::marks::missed(protocol, &base::assertions::reached()) {
            println!("not reached: {mark}");
        }
    }
    println!(
        "{} seeds, {} operations ({} returned, {} failed, {} refused, {} unknown), {} keys undecided, {} groups lost, {} events, \
         {} frames in {seconds:.2} s: {:.0} operations/s, {:.1} ms/seed, {} failures",
        report.seeds,
        report.ops,
        report.returned,
        report.failed,
        report.refused,
        report.unknown,
        report.undecided,
        report.lost,
        report.events,
        report.frames,
        report.ops as f64 / seconds,
        seconds * 1e3 / report.seeds as f64,
        report.failures.len(),
    );
}
