//! `palimpsest bench protocols` and `bench availability` at tiny sizes.

use bench::process::ScratchDir;

use crate::support::run;

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn bench_protocols_writes_table_csv_and_plots() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "protocols").expect("a folder");
    let (csv, plots) = (scratch.path().join("rows.csv"), scratch.path().join("plots"));
    let (csv_text, plots_text) = (csv.display().to_string(), plots.display().to_string());
    let mut args = words(
        "bench protocols --protocols rmwpaxos --experiments writes --writes 0,100 --nodes 3 \
         --keys 100 --sessions 4 --time 0.1 --warm-up 0.1",
    );
    args.extend(["--csv", &csv_text, "--plots", &plots_text]);
    let output = run(&args);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    for part in ["rmwpaxos, local links", "0 % writes", "100 % writes", "op/s/core", "published"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let rows = std::fs::read_to_string(&csv).expect("the rows were written");
    assert!(rows.starts_with("experiment,protocol,reads,links,nodes,"), "{rows}");
    assert_eq!(rows.lines().count(), 3, "{rows}");
    for name in ["writes-local.svg", "writes-local.png"] {
        assert!(plots.join(name).is_file(), "{name} is missing");
    }
}

#[test]
fn bench_availability_writes_gaps_and_timelines() {
    let scratch = ScratchDir::new(&std::env::temp_dir(), "availability").expect("a folder");
    let csv = scratch.path().join("gaps.csv");
    let csv_text = csv.display().to_string();
    let mut args = words(
        "bench availability --protocols rmwpaxos --faults kill,cut --repeat 1 --time 1.5 \
         --clients 1 --durability volatile",
    );
    args.extend(["--csv", &csv_text]);
    let output = run(&args);
    assert!(output.status.success(), "{output:?}");
    let gaps = std::fs::read_to_string(&csv).expect("the gaps were written");
    let lines: Vec<&str> = gaps.lines().collect();
    assert_eq!(
        lines[0],
        "protocol,fault,repetition,victim,role,write_gap_ms,read_gap_ms,writes,reads,failed"
    );
    assert!(lines[1].starts_with("rmwpaxos,kill,0,1,any,"), "{gaps}");
    assert!(lines[2].starts_with("rmwpaxos,cut,0,1,any,"), "{gaps}");
    let timeline = std::fs::read_to_string(scratch.path().join("gaps-timeline.csv"));
    // Fifteen slices of each run.
    assert_eq!(timeline.expect("it was written").lines().count(), 1 + 2 * 15);
}

#[test]
fn bench_availability_strikes_the_leader_and_a_follower() {
    let args = words(
        "bench availability --protocols zab --faults kill --repeat 1 --time 1.5 --clients 1 \
         --durability volatile --json",
    );
    let output = run(&args);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    for role in ["\"role\": \"leader\"", "\"role\": \"follower\""] {
        assert_eq!(text.matches(role).count(), 1, "{role}: {text}");
    }
}

#[test]
fn bench_names_what_it_has() {
    for (line, part) in [
        ("bench protocols --protocols raft", "no protocol is named \"raft\"; there are rmwpaxos"),
        ("bench protocols --experiments all", "an experiment is one of writes, skew, load"),
        ("bench protocols --reads stale", "--reads are plain or linearizable"),
        ("bench protocols --links udp", "links are local or tcp"),
        ("bench protocols --nodes 9", "--nodes is 1 to 7"),
        ("bench availability --protocols raft", "no protocol is named \"raft\""),
        ("bench availability --faults fire", "a fault is none, kill, pause or cut"),
    ] {
        let output = run(&words(line));
        assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(part), "{line}: {text}");
    }
}
