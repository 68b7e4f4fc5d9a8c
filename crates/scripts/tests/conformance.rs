//! Scripts answer as in Redis: the recorded conversations in `tests/conformance`.
//!
//! `cargo run -p commands --example differential -- ADDRESS record FILE…` writes `redis-*.txt`.

#[path = "../../commands/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::Path;

use commands::Interpreter;
use support::Store;
use types::Reply;

const NOW: u64 = 1_700_000_000_000;

/// A store that knows the sources of digests, as a session does.
struct Scripted {
    store: Store,
    sources: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Scripted {
    fn new() -> Scripted {
        let mut store = Store::new(NOW);
        store.interpreter = Interpreter { scripts: Some(scripts::ENGINE), ..store.interpreter };
        Scripted { store, sources: BTreeMap::new() }
    }

    fn execute(&mut self, args: &[Vec<u8>]) -> Reply {
        let mut args = args.to_vec();
        match &*args[0].to_ascii_lowercase() {
            b"eval" | b"eval_ro" if args.len() > 1 => {
                let digest = scripts::digest(&args[1]).into_bytes();
                self.sources.insert(digest, args[1].clone());
            }
            b"evalsha" | b"evalsha_ro" if args.len() > 2 => {
                if let Some(source) = self.sources.get(&args[1].to_ascii_lowercase()) {
                    args[1].clone_from(source);
                    args[0] = [b"eval", &args[0][7..]].concat();
                }
            }
            _ => {}
        }
        self.store.execute(&args)
    }
}

fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(name);
    let script = std::fs::read_to_string(&path).expect("a readable script");
    let store = std::cell::RefCell::new(Scripted::new());
    let again = support::replay(
        &support::parse(&script),
        |args| support::heard(store.borrow_mut().execute(args)),
        |millis| store.borrow_mut().store.now += millis,
    );
    let mut differences = Vec::new();
    for (number, (found, expected)) in again.lines().zip(script.lines()).enumerate() {
        if found != expected {
            let command = script.lines().take(number).filter(|line| line.starts_with("> ")).last();
            let command = command.unwrap_or_default();
            differences.push(format!(
                "{name}:{}: {command}\nfound:    {found}\nexpected: {expected}",
                number + 1
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(again, script, "{name}: not written as a replay writes it");
}

#[test]
fn replies_are_converted_as_in_redis() {
    check("redis-7.4.1-replies.txt");
}

#[test]
fn errors_are_those_of_redis() {
    check("redis-7.4.1-errors.txt");
}

#[test]
fn libraries_answer_as_in_redis() {
    check("redis-7.4.1-libraries.txt");
}

#[test]
fn sandbox_refuses_as_redis_does() {
    check("redis-7.4.1-sandbox.txt");
}

#[test]
fn recipes_work_as_in_redis() {
    check("redis-7.4.1-recipes.txt");
}
