//! Prints how many seeds it takes to catch each deliberate mistake.
//!
//! `cargo run --release -p sim --features mutations --example mutants -- PROTOCOL SEEDS_MAX [MUTATION …]`

use protocols::mutation::Mutation;
use sim::{SimConfig, mutants, validate};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let protocol = arguments.first().map_or("rmwpaxos", String::as_str);
    let seeds_max = arguments.get(1).map_or(1_000, |text| text.parse().expect("a number"));
    let names = arguments.iter().skip(2);
    let only: Vec<Mutation> =
        names.map(|name| Mutation::by_name(name).expect("a mutation")).collect();
    let mut config = SimConfig::new(protocol, 1);
    if let Ok(mix) = std::env::var("WORKLOAD") {
        config.mix = Some(sim::Mix::by_name(&mix).expect("a workload"));
    }
    validate(&config).expect("a configuration that exists");
    println!("| mutation | caught by seed | symptom |\n|---|---|---|");
    mutants(&config, seeds_max, 1, &only, |mutant| {
        let seeds = mutant.seeds.map_or(format!("none of {seeds_max}"), |seeds| seeds.to_string());
        println!("| {} | {seeds} | {} |", mutant.name, mutant.symptom);
    });
}
