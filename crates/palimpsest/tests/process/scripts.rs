//! Lua scripts on real nodes: sources on all nodes, long runs, and nodes that die meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use bench::client::{Client, Value};

use crate::support::{Nodes, eventually};

const ENDLESS: &str = "while true do pcall(redis.call, 'incr', KEYS[1]) end";
const KILLED: &str = "ERR Script killed by user with SCRIPT KILL...";
/// Of `return ARGV[1]`.
const DIGEST: &str = "098e0f0d1448c0a81dafe820f66d460eb09263da";

fn eval(client: &mut Client, source: &str, keys: &[&str], args: &[&str]) -> std::io::Result<Value> {
    let count = keys.len().to_string();
    let mut words: Vec<&[u8]> = vec![b"EVAL", source.as_bytes(), count.as_bytes()];
    words.extend(keys.iter().chain(args).map(|word| word.as_bytes()));
    client.ask(&words)
}

fn is_killed(value: &Value) -> bool {
    matches!(value, Value::Error(text) if text.starts_with(KILLED))
}

#[test]
fn sources_reach_all_nodes_and_outlive_them() {
    let mut nodes = Nodes::start("disk");
    let load: [&[u8]; 3] = [b"SCRIPT", b"LOAD", b"return ARGV[1]"];
    assert_eq!(nodes.client(0).ask(&load).expect("a reply"), Value::text(DIGEST));
    let run = format!("EVALSHA {DIGEST} 0 hello");
    for index in 0..3 {
        assert_eq!(nodes.ask(index, &run), Value::text("hello"), "node {index}");
    }
    nodes.kill_all();
    nodes.start_all();
    for index in 0..3 {
        nodes.wait_for_answer(index, &run, &Value::text("hello"));
    }
    assert_eq!(nodes.ask(1, "SCRIPT FLUSH"), Value::ok());
    let unknown = Value::Error("NOSCRIPT No matching script. Please use EVAL.".into());
    assert_eq!(nodes.ask(1, &run), unknown, "it is gone at once where it was flushed");
    for index in 0..3 {
        nodes.wait_for_answer(index, &run, &unknown);
    }
}

/// A worker that a script held up would answer no one.
#[test]
fn endless_scripts_hold_up_no_other_client() {
    let nodes = Nodes::start("volatile");
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut client = nodes.client(0);
        let script = scope.spawn(move || eval(&mut client, ENDLESS, &["n"], &[]));
        let mut killer = nodes.client(0);
        let kills = scope.spawn(move || {
            eventually("the script runs", || {
                killer.command("SCRIPT KILL").is_ok_and(|reply| reply == Value::ok())
            });
        });
        for number in 0..200 {
            let set = format!("SET other{number} x");
            assert_eq!(nodes.ask(number % 3, &set), Value::ok());
        }
        let reply = script.join().expect("no panic").expect("a reply");
        assert!(is_killed(&reply), "{reply:?}");
        kills.join().expect("it was killed");
        ends.store(true, Relaxed);
    });
    assert_eq!(nodes.ask(0, "GET n"), Value::Nil, "a killed script has no effect");
    let none = Value::Error("NOTBUSY No scripts in execution right now.".into());
    assert_eq!(nodes.ask(0, "SCRIPT KILL"), none);
}

#[test]
fn scripts_end_in_time() {
    let nodes = Nodes::start("volatile");
    for source in [
        "while true do end",
        ENDLESS,
        "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
        "local s = 'x' while true do s = s .. s end",
        "return ('x'):rep(2^31 - 1)",
        "while true do ('a'):rep(1000):find(('a?'):rep(30) .. ('a'):rep(30)) end",
    ] {
        let reply = eval(&mut nodes.client(1), source, &["n"], &[]).expect("a reply");
        let is_ended = is_killed(&reply)
            || matches!(&reply, Value::Error(text) if text.starts_with("ERR script needs too much"));
        assert!(is_ended, "{source}: {reply:?}");
        assert_eq!(nodes.ask(1, "PING"), Value::Simple("PONG".into()));
        assert_eq!(nodes.ask(1, "GET n"), Value::Nil, "{source}");
    }
    assert_eq!(nodes.ask(1, "CONFIG SET busy-reply-threshold 20"), Value::ok());
    let reply = eval(&mut nodes.client(1), "while true do end", &[], &[]).expect("a reply");
    assert!(is_killed(&reply), "{reply:?}");
    let sum =
        "local n = 0 for i = 1, 300000 do n = n + i end redis.call('set', KEYS[1], n) return n";
    assert_eq!(nodes.ask(1, "CONFIG SET lua-time-limit 5000"), Value::ok());
    let reply = eval(&mut nodes.client(1), sum, &["n"], &[]).expect("a reply");
    assert_eq!(reply, Value::Integer(45_000_150_000), "a long script has its effect");
    assert_eq!(nodes.ask(2, "GET n"), Value::text("45000150000"));
}

/// Scripts move an amount between keys, two of which they do not declare.
const TRANSFER: &str = "
    local from, to = 'acc:' .. ARGV[1], 'acc:' .. ARGV[2]
    redis.call('decrby', from, ARGV[3])
    redis.call('incrby', to, ARGV[3])
    local sum = 0
    for n = 0, 4 do sum = sum + (redis.call('get', 'acc:' .. n) or 0) end
    return sum";

#[test]
fn transfers_by_scripts_conserve_the_sum() {
    let mut nodes = Nodes::start("disk");
    for number in 0..5 {
        nodes.ask(0, &format!("SET acc:{number} 100"));
    }
    let (done, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for (seed, index) in [(1, 0), (2, 1), (3, 2)] {
            let (mut client, done, ends) = (nodes.client(index), &done, &ends);
            scope.spawn(move || {
                let mut prng = base::Prng::new(seed);
                while !ends.load(Relaxed) {
                    let mut word = |below: u64| prng.below(below).to_string();
                    let args = [word(5), word(5), word(9)];
                    let args = [&*args[0], &*args[1], &*args[2]];
                    match eval(&mut client, TRANSFER, &[], &args) {
                        Ok(Value::Integer(sum)) => {
                            assert_eq!(sum, 500, "half a script is seen");
                            done.fetch_add(1, Relaxed);
                        }
                        Ok(_) => {}
                        Err(_) => return,
                    }
                }
            });
        }
        let more = |count: u64| {
            let from = done.load(Relaxed);
            eventually("scripts go on", || done.load(Relaxed) >= from + count);
        };
        more(20);
        nodes.kill(2);
        more(20);
        ends.store(true, Relaxed);
    });
    nodes.kill_all();
    nodes.start_all();
    let args = ["0", "1", "0"];
    let mut client = nodes.client(2);
    eventually("the sum is there", || {
        eval(&mut client, TRANSFER, &[], &args).is_ok_and(|sum| sum == Value::Integer(500))
    });
}
