//! A run on a worker ends by the clock too. The clock of these tests moves with each look.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::Millis;
use commands::{Budget, Halt, Interpreter, Interrupt, ScriptCall, Space};
use types::{Clock, Reply};

const LOOK: u64 = 100_000;

static NOW: AtomicU64 = AtomicU64::new(1);

fn slow() -> u64 {
    NOW.fetch_add(LOOK, Relaxed)
}

#[derive(Debug)]
struct Never;

impl Interrupt for Never {
    fn ends(&self) -> Option<&'static str> {
        None
    }
}

fn run(budget: Budget, source: &str, words: usize) -> (Result<Reply, Halt>, u64) {
    scripts::set_timer(slow);
    let interpreter = Interpreter { scripts: Some(scripts::ENGINE), ..Interpreter::default() };
    let clock = Clock { unix: Millis(1_000), seed: 7 };
    let mut space = Space::new(&interpreter, clock).with_budget(budget);
    let words: Vec<String> = (0..words).map(|word| word.to_string()).collect();
    let args: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    let call =
        ScriptCall { source: source.as_bytes(), keys: &[], args: &args, is_read_only: false };
    let ended = (scripts::ENGINE.run)(&call, &mut space);
    (ended, space.budget().instructions)
}

/// Sixty looks of a tenth of a millisecond are too long, at any counted cost.
#[test]
fn slow_instructions_end_a_short_run_only() {
    let source = "for i = 1, 5000 do local x = 'a' < 'b' end return 1";
    assert_eq!(run(Budget::SHORT, source, 0).0, Err(Halt::TooLong));
    let interrupt: Arc<dyn Interrupt> = Arc::new(Never);
    let long = Budget {
        instructions: u64::MAX,
        memory: 64 << 20,
        work: u64::MAX,
        interrupt: Some(interrupt),
    };
    assert_eq!(run(long, source, 0).0, Ok(Reply::Integer(1)));
}

#[test]
fn slow_words_end_a_short_run() {
    assert_eq!(run(Budget::SHORT, "return 1", 256 * 60).0, Err(Halt::TooLong));
}

#[test]
fn time_of_a_run_is_taken_from_the_next_one() {
    let (ended, left) = run(Budget::SHORT, "return 1", 0);
    assert_eq!(ended, Ok(Reply::Integer(1)));
    assert!(left <= Budget::SHORT.instructions - LOOK / 25, "{left}");
}
