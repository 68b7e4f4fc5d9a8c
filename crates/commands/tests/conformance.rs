//! Commands answer as Redis does: scripts in `tests/conformance`.
//!
//! `cargo run -p commands --example differential -- ADDRESS record FILE…` writes
//! `redis-*.txt`, the replies of the redis-server in their names. The other files are written by
//! hand: newer commands, the passing of time, own limits.

mod support;

use std::path::Path;

use support::Store;

const NOW: u64 = 1_700_000_000_000;

fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(name);
    let script = std::fs::read_to_string(&path).expect("a readable script");
    let store = std::cell::RefCell::new(Store::new(NOW));
    let again = support::replay(
        &support::parse(&script),
        |args| support::heard(store.borrow_mut().execute(args)),
        |millis| store.borrow_mut().now += millis,
    );
    for (number, (found, expected)) in again.lines().zip(script.lines()).enumerate() {
        let command = script.lines().take(number).filter(|line| line.starts_with("> ")).last();
        assert_eq!(found, expected, "{name}:{}: {}", number + 1, command.unwrap_or_default());
    }
    assert_eq!(again, script, "{name}: not written as a replay writes it");
}

#[test]
fn strings_answer_as_redis_does() {
    check("redis-7.0.15-strings.txt");
}

#[test]
fn sets_with_options_answer_as_redis_does() {
    check("redis-7.0.15-set.txt");
}

#[test]
fn sets_of_members_answer_as_redis_does() {
    check("redis-7.4.1-sets.txt");
}

#[test]
fn counters_answer_as_redis_does() {
    check("redis-7.0.15-counters.txt");
}

#[test]
fn sorted_sets_change_as_in_redis() {
    check("redis-7.4.1-zadd.txt");
}

#[test]
fn ranges_of_sorted_sets_are_those_of_redis() {
    check("redis-7.4.1-zrange.txt");
}

#[test]
fn sorted_sets_combine_as_in_redis() {
    check("redis-7.4.1-zstore.txt");
}

#[test]
fn the_table_tells_of_sorted_sets_as_redis_does() {
    check("redis-7.4.1-zcommands.txt");
}

#[test]
fn keys_and_times_answer_as_redis_does() {
    check("redis-7.0.15-keys.txt");
}

#[test]
fn lists_answer_as_redis_does() {
    check("redis-7.4.1-lists.txt");
}

#[test]
fn values_are_inspected_as_in_redis() {
    check("redis-7.0.15-inspect.txt");
}

#[test]
fn wrong_requests_are_refused_as_redis_does() {
    check("redis-7.0.15-errors.txt");
}

#[test]
fn the_table_is_told_as_redis_does() {
    check("redis-7.0.15-command.txt");
}

#[test]
fn bits_answer_as_in_redis() {
    check("redis-7.4.1-bitmap.txt");
}

#[test]
fn hyperloglogs_answer_as_in_redis() {
    check("redis-7.4.1-hyperloglog.txt");
}

#[test]
fn common_subsequences_answer_as_in_redis() {
    check("redis-7.4.1-lcs.txt");
}

#[test]
fn hashes_answer_as_redis_does() {
    check("redis-7.4.1-hashes.txt");
}

#[test]
fn fields_end_in_time() {
    check("hash-time.txt");
}

#[test]
fn conditions_on_values_hold_as_in_redis_8_4() {
    check("conditions.txt");
}

#[test]
fn time_passes() {
    check("time.txt");
}

#[test]
fn values_move_and_are_copied_as_in_redis() {
    check("redis-7.4.1-rename.txt");
}

#[test]
fn dumps_are_those_of_redis() {
    check("redis-7.4.1-dump.txt");
}

#[test]
fn sort_answers_as_in_redis() {
    check("redis-7.4.1-sort.txt");
}

#[test]
fn table_answers_as_in_redis_7_4() {
    check("redis-7.4.1-command.txt");
}

#[test]
fn own_limits_and_departures() {
    check("own.txt");
}
