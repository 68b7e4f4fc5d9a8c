//! Finds the deliberate mistakes that show in small worlds. Each is active while the worlds of a
//! protocol are explored, small ones first, until one shows it.
//!
//! `cargo run --release -p sim --features mutations --example explore_mutants -- [PROTOCOL
//! [STATES_MAX]]`

use std::fmt::Debug;

use protocols::Protocol;
use protocols::abd::Abd;
use protocols::configured::Configured;
use protocols::hermes::Hermes;
use protocols::mutation::{self, Mutation};
use protocols::rmwpaxos::RmwPaxos;
use protocols::zab::Zab;
use sim::explore::{Exploration, explore, is_livable, worlds};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = arguments.first().map_or("rmwpaxos", String::as_str);
    let states_max = arguments.get(1).map_or(100_000, |text| text.parse().expect("a number"));
    println!("| mistake | world | states until it shows | steps of the path | symptom |");
    println!("|---|---|---|---|---|");
    let mut silent = Vec::new();
    for &mistake in Mutation::ALL {
        mutation::set(Some(mistake));
        let shows = match wanted {
            "abd" => show::<Abd>(mistake, states_max),
            "hermes" => show::<Configured<Hermes>>(mistake, states_max),
            "zab" => show::<Zab>(mistake, states_max),
            _ => show::<RmwPaxos>(mistake, states_max),
        };
        if !shows {
            silent.push(mistake.name());
        }
    }
    println!("\nNot shown: {}", silent.join(", "));
}

fn show<P: Protocol + Debug>(mistake: Mutation, states_max: u64) -> bool {
    for named in worlds(states_max).iter().filter(|named| is_livable::<P>(named)) {
        let (name, world) = (mistake.name(), named.name);
        // An assertion may notice it before the explorer does.
        let Ok(Exploration { states, fault, .. }) =
            std::panic::catch_unwind(|| explore::<P>(&named.plan, |_| true))
        else {
            println!("| `{name}` | {world} | | | an assertion |");
            return true;
        };
        let Some(fault) = fault else { continue };
        let symptom = fault.reason.lines().next().unwrap_or_default();
        println!("| `{name}` | {world} | {states} | {} | {symptom} |", fault.path.len());
        return true;
    }
    false
}
