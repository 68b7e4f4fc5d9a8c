//! Prints how many seeds catch each deliberate mistake, as the table of `docs/testing.md`.
//!
//! `./x mutants [SEEDS_MAX [STARTS [MUTATION …]]]`

use sim::mutants::{Effort, every, mutants};
use sim::validate;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        arguments.get(index).map_or(default, |text| text.parse().expect("a number"))
    };
    let effort = Effort { seeds_max: number(0, 2_000), starts: number(1, 3), threads: 1 };
    let only: Vec<&String> = arguments.iter().skip(2).collect();
    println!("| left out | in | seeds until caught, mean | first symptom |\n|---|---|---|---|");
    let mut survivors = 0;
    for (config, name) in every() {
        if !only.is_empty() && only.iter().all(|it| *it != name) {
            continue;
        }
        let config = sim::SimConfig { mutation: Some(name.to_owned()), ..config };
        validate(&config).expect("a configuration that exists");
        for mutant in mutants(&config, effort, &[name], |_| {}) {
            let seeds = mutant.mean().map_or_else(
                || format!("none of {}", effort.seeds_max),
                |mean| match mutant.missed {
                    0 => mean.to_string(),
                    missed => format!("{mean}, not from {missed} of {}", effort.starts),
                },
            );
            survivors += usize::from(!mutant.is_caught());
            let symptom: String = mutant.symptom.replace('|', "/").chars().take(90).collect();
            println!("| `{name}` | {} | {seeds} | {symptom} |", mutant.protocol);
        }
    }
    println!("\n{survivors} not caught");
}
