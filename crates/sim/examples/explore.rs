//! Explores small worlds to their end and prints how large they are.
//!
//! `cargo run --release -p sim --example explore -- [PROTOCOL [STATES_MAX [SECONDS_MAX [WORLD]]]]`
//!
//! With `--features mutations` a deliberate mistake may follow, and the first path that shows it is
//! printed. `WORLD` is a prefix of a name; `=` before it makes it a whole name.

use std::fmt::Debug;
use std::time::Instant;

use protocols::Protocol;
use protocols::abd::Abd;
use protocols::configured::Configured;
use protocols::craq::Craq;
use protocols::hermes::Hermes;
use protocols::rmwpaxos::RmwPaxos;
use protocols::zab::Zab;
use sim::explore::{NamedWorld, explore, is_livable, worlds};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    let wanted = argument(0).unwrap_or("all");
    let states_max = argument(1).map_or(1_000_000, |text| text.parse().expect("a number"));
    let seconds_max = argument(2).map_or(300.0, |text| text.parse().expect("a number"));
    let world = argument(3).unwrap_or("");
    #[cfg(feature = "mutations")]
    if let Some(name) = argument(4) {
        protocols::mutation::set(protocols::mutation::Mutation::by_name(name));
    }
    println!(
        "| protocol | world | states | steps | longest path | node states | searches | seconds | |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let is_wanted = |named: &NamedWorld| match world.strip_prefix('=') {
        Some(name) => named.name == name,
        None => named.name.starts_with(world),
    };
    for named in worlds(states_max).iter().filter(|named| is_wanted(named)) {
        if wanted == "all" || wanted == "rmwpaxos" {
            show::<RmwPaxos>(named, seconds_max);
        }
        if wanted == "all" || wanted == "abd" {
            show::<Abd>(named, seconds_max);
        }
        if wanted == "all" || wanted == "hermes" {
            show::<Configured<Hermes>>(named, seconds_max);
        }
        if wanted == "all" || wanted == "craq" {
            show::<Configured<Craq>>(named, seconds_max);
        }
        if wanted == "all" || wanted == "zab" {
            show::<Zab>(named, seconds_max);
        }
    }
}

fn show<P: Protocol + Debug>(named: &NamedWorld, seconds_max: f64) {
    if !is_livable::<P>(named) {
        return;
    }
    let begun = Instant::now();
    // Reads the clock now and then; keeps the answer once the time is over.
    let mut is_over = false;
    let found = explore::<P>(&named.plan, |found| {
        is_over |= found.steps % 65_536 == 0 && begun.elapsed().as_secs_f64() >= seconds_max;
        !is_over
    });
    let end = match (&found.fault, found.is_complete) {
        (Some(_), _) => "FAULT",
        (None, true) => "complete",
        (None, false) => "cut off",
    };
    println!(
        "| {} | {} | {} | {} | {} | {} | {} | {:.1} | {end} |",
        P::NAME,
        named.name,
        found.states,
        found.steps,
        found.depth,
        found.node_states,
        found.passes,
        begun.elapsed().as_secs_f64()
    );
    if let Some(fault) = found.fault {
        fault.path.iter().for_each(|line| println!("    {line}"));
        println!("    {}", fault.reason);
    }
}
