//! Scripts that try to reach later runs, to forge private answers, or to take all memory.

use base::Millis;
use commands::{Budget, Halt, Interpreter, ScriptCall, Space};
use types::{Clock, Reply, TimeToLive, View};

fn run_in(budget: Budget, source: &str) -> Result<Reply, Halt> {
    let interpreter = Interpreter { scripts: Some(scripts::ENGINE), ..Interpreter::default() };
    let clock = Clock { unix: Millis(1_000), seed: 7 };
    let mut space = Space::new(&interpreter, clock).with_budget(budget);
    space.load("k".into(), View { value: None, ttl: TimeToLive::Never, ends: None });
    let call =
        ScriptCall { source: source.as_bytes(), keys: &[b"k"], args: &[], is_read_only: false };
    (scripts::ENGINE.run)(&call, &mut space)
}

fn run(source: &str) -> Result<Reply, Halt> {
    run_in(Budget::SHORT, source)
}

fn long() -> Budget {
    Budget { instructions: u64::MAX, memory: 2 << 20, work: u64::MAX, interrupt: None }
}

#[test]
fn environment_of_later_scripts_stays() {
    for (number, place) in
        ["0", "-1", "'0'", "'-0'", "' 0 '", "0/0", "4294967295", "2^32", "-2^31", "0.5", "nil"]
            .iter()
            .enumerate()
    {
        let attack = format!(
            "pcall(setfenv, {place}, {{}}) \
             pcall(function() coroutine.wrap(function() setfenv({place}, {{}}) end)() end) return 1"
        );
        assert_eq!(run(&attack), Ok(Reply::Integer(1)), "{place}");
        // A new source is compiled in the environment of the thread.
        let later = format!("return tostring(redis ~= nil) .. '{number}'");
        assert_eq!(run(&later), Ok(Reply::bulk(format!("true{number}"))), "{place}");
    }
    let own = "local f = function() return x end setfenv(f, {x = 5}) return f()";
    assert_eq!(run(own), Ok(Reply::Integer(5)));
}

#[test]
fn private_answers_cannot_be_forged() {
    let marker = Reply::from(commands::errors::RUN_AS_TRANSACTION);
    for source in [
        "return loadstring([[return error({err='\\0run as a transaction'})]], '=[wrappers]')()",
        "return loadstring([[return error({err='\\0run as a transaction'})]], '=[wrap' .. 'pers]')()",
        "return error({err='\\0run as a transaction'})",
        "return {err='\\0run as a transaction'}",
        "return redis.error_reply('\\0run as a transaction')",
        "error('\\0run as a transaction')",
    ] {
        let reply = run(source).expect("a reply");
        assert_ne!(reply, marker, "{source}");
        let Reply::Error(text) = reply else { panic!("{source}: {reply:?}") };
        assert!(!text.contains(&0), "{source}: {text:?}");
    }
}

#[test]
fn copies_of_shared_values_are_bounded() {
    let shared = "local s = string.rep('a', 1e6) local t = {} for i = 1, 100 do t[i] = s end \
                  local u = {} for i = 1, 100 do u[i] = t end ";
    for call in [
        "return #cmsgpack.pack(u)",
        "return #cjson.encode(u)",
        "redis.call('rpush', KEYS[1], unpack(t, 1, 100)) return 1",
        "local e = {} for i = 1, 16 do local n = {} for j = 1, 20 do n[j] = e end e = n end return #cmsgpack.pack(e)",
    ] {
        let source = format!("{shared}{call}");
        for budget in [Budget::SHORT, long()] {
            let ended = run_in(budget, &source);
            assert!(ended.is_err(), "{call}: {ended:?}");
        }
    }
    for call in ["redis.log(redis.LOG_NOTICE, unpack(t))", "redis.acl_check_cmd(unpack(t))"] {
        let ended =
            run_in(long(), &format!("{shared} return pcall(function() {call} end) and 1 or 0"));
        assert!(matches!(ended, Ok(Reply::Integer(_))), "{call}: {ended:?}");
    }
}

#[test]
fn keys_beyond_their_limit_are_named() {
    let source = "return redis.pcall('mset', string.rep('k', 70000), 1, 'b', 2)";
    let ended = run(source);
    assert!(
        matches!(&ended, Ok(Reply::Error(text)) if text.starts_with(b"ERR key too large")),
        "{ended:?}"
    );
}
