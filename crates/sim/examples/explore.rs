//! Explores small worlds to their end and prints how large they are.
//!
//! `cargo run --release -p sim --example explore -- [PROTOCOL [STATES_MAX]]`; with `--features mutations` a deliberate
//! mistake may follow, and the first path that shows it is printed.

use std::fmt::Debug;
use std::time::Instant;

use protocols::Protocol;
use protocols::abd::Abd;
use protocols::hermes::Hermes;
use protocols::rmwpaxos::RmwPaxos;
use sim::explore::{Plan, explore, worlds};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = arguments.first().map_or("all", String::as_str);
    let states_max = arguments.get(1).map_or(1_000_000, |text| text.parse().expect("a number"));
    #[cfg(feature = "mutations")]
    if let Some(name) = arguments.get(2) {
        protocols::mutation::set(protocols::mutation::Mutation::by_name(name));
    }
    println!("| protocol | world | states | steps | longest path | ends | seconds | |");
    println!("|---|---|---|---|---|---|---|---|");
    for (name, is_plain, plan) in worlds(states_max) {
        if wanted == "all" || wanted == "rmwpaxos" {
            show::<RmwPaxos>(name, &plan);
        }
        if is_plain && (wanted == "all" || wanted == "abd") {
            show::<Abd>(name, &plan);
        }
        // The failure-free part of it has no way back for a node without memory.
        if plan.budget.wipes == 0 && (wanted == "all" || wanted == "hermes") {
            show::<Hermes>(name, &plan);
        }
    }
}

fn show<P: Protocol + Debug>(name: &str, plan: &Plan) {
    let begun = Instant::now();
    let found = explore::<P>(plan);
    let end = match (&found.fault, found.is_complete) {
        (Some(_), _) => "FAULT",
        (None, true) => "complete",
        (None, false) => "cut off",
    };
    println!(
        "| {} | {name} | {} | {} | {} | {} | {:.1} | {end} |",
        P::NAME,
        found.states,
        found.steps,
        found.depth,
        found.ends,
        begun.elapsed().as_secs_f64()
    );
    if let Some(fault) = found.fault {
        fault.path.iter().for_each(|line| println!("    {line}"));
        println!("    {}", fault.what);
    }
}
