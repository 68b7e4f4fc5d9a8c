//! Lua scripts: programs that the bytes make, and sources that they are.

mod program;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use base::Millis;
use commands::{Budget, Halt, Interpreter, Interrupt, ScriptCall, Space, Trace};
use types::limits::VALUE_LEN_DEFAULT;
use types::{Change, Clock, Reply, TimeToLive, View, Wire};

use super::Target;
use crate::input::Input;

pub(super) const TARGET: Target = Target {
    name: "scripts",
    claim: "any script ends within its budget with one reply, and leaves nothing to later scripts",
    run,
    seeds,
    short: 300,
};

/// Looks at the budget of a long run, until it is ended.
const LOOKS: u32 = 2_000;

/// Shows all that a script could leave behind. Its reply is always the same.
const WITNESS: &[u8] = b"\
    local seen = {}
    local function see(value) seen[#seen + 1] = tostring(value) end
    for _, name in ipairs({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'i', 'k', 'v', 'x', 'debug', 'io'}) do
        see((pcall(function() return _G[name] end)))
        see(rawget(_G, name))
    end
    for _, library in ipairs({_G, string, table, math, coroutine, redis, cjson, cmsgpack, bit, struct, os}) do
        see(next(library))
        see(getmetatable(library))
    end
    see(getfenv(0) == _G and getfenv(1) == _G and getfenv(see) == _G)
    see(('x').rep == string.rep)
    see(('ab'):rep(2))
    see(getmetatable('').__index == string)
    see(type(redis.call('get', 'absent')))
    see(math.random(1000000))
    see(cjson.encode({0.1 + 0.2, {}, {a = 1}}))
    see((pcall(cjson.encode, {[1] = 1, [1000] = 2})))
    see((pcall(cjson.encode, 1 / 0)))
    see((pcall(cjson.decode, string.rep('[', 999) .. string.rep(']', 999))))
    see((pcall(cjson.decode, string.rep('[', 1001) .. string.rep(']', 1001))))
    see(coroutine.running())
    see(#KEYS + #ARGV)
    see(type(type))
    return table.concat(seen, ' ')";

/// Ends a run after so many looks.
#[derive(Debug)]
struct After(AtomicU32);

impl Interrupt for After {
    fn ends(&self) -> Option<&'static str> {
        let left = self.0.load(Relaxed);
        self.0.store(left.saturating_sub(1), Relaxed);
        (left == 0).then_some("ERR killed")
    }
}

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.u8();
    let budget = match flags & 1 {
        0 => Budget::SHORT,
        _ => Budget {
            instructions: u64::MAX,
            memory: 16 << 20,
            work: u64::MAX,
            interrupt: Some(Arc::new(After(AtomicU32::new(LOOKS)))),
        },
    };
    let value = match flags & 6 {
        0 => Some(values::string::encode(b"12")),
        2 => Some(values::string::encode(&[0, 255, b'x'])),
        _ => None,
    };
    let source = match flags & 8 {
        0 => program::Builder::new(input).build().into_bytes(),
        _ => input.rest().to_vec(),
    };
    let mut space = space(budget, value.as_deref());
    let is_read_only = flags & 16 != 0;
    match execute(&source, &mut space, is_read_only) {
        Ok(reply) => check_reply(&reply),
        Err(Halt::Error(error)) => check_reply(&error.into()),
        Err(Halt::Unloaded(_) | Halt::TooLong) => {}
    }
    let changes: Vec<Change> = space.changes().map(|(_, change)| change).collect();
    assert!(!is_read_only || changes.is_empty(), "a script that may not write did: {changes:?}");
    for change in changes {
        if let Change::Put { value, .. } = change {
            assert_eq!(values::check(&value), Ok(()), "a value that cannot be read");
            assert!(value.len() <= VALUE_LEN_DEFAULT + 1, "{} bytes", value.len());
        }
    }
    assert_eq!(witness(), *EXPECTED.get_or_init(expected), "a script changed later ones");
}

fn space(budget: Budget, value: Option<&[u8]>) -> Space {
    let interpreter = Interpreter { scripts: Some(scripts::ENGINE), ..Interpreter::default() };
    let clock = Clock { unix: Millis(1_000_000), seed: 7 };
    let trace = Trace::new(true);
    let mut space = Space::new(&interpreter, clock).with_budget(budget).with_trace(trace);
    for (key, value) in [("k", value), ("absent", None)] {
        space.load(key.into(), View::fresh(value, TimeToLive::Never, clock.unix));
    }
    space
}

fn execute(source: &[u8], space: &mut Space, is_read_only: bool) -> Result<Reply, Halt> {
    let call = ScriptCall { source, keys: &[b"k"], args: &[b"\0\xff 7"], is_read_only };
    (scripts::ENGINE.run)(&call, space)
}

fn check_reply(reply: &Reply) {
    // One level each is for the list of `EXEC` and for the trace.
    let nested = Reply::Array(vec![Reply::Array(vec![reply.clone()])]);
    let bytes = nested.to_bytes();
    assert_eq!(Reply::from_bytes(&bytes).as_ref(), Ok(&nested));
    if let Reply::Error(text) = reply {
        let has_failed = text.starts_with(b"ERR the engine of scripts failed");
        assert!(!has_failed, "{}", text.escape_ascii());
        assert!(!text.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')));
    }
}

static EXPECTED: OnceLock<Reply> = OnceLock::new();

/// The reply of a thread that has run no other script.
fn expected() -> Reply {
    std::thread::spawn(witness).join().expect("the witness runs")
}

fn witness() -> Reply {
    let reply = execute(WITNESS, &mut space(Budget::SHORT, None), true);
    match reply {
        Ok(reply @ Reply::Bulk(_)) => reply,
        other => panic!("the witness ended with {other:?}"),
    }
}

/// Sources that failed once or nearly, and bytes that make programs.
fn seeds() -> Vec<Vec<u8>> {
    const SOURCES: &[&str] = &[
        "return {KEYS[1], ARGV[1], redis.call('get', KEYS[1])}",
        "while true do pcall(function() while true do end end) end",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) return t[1]",
        "return cjson.encode(cjson.decode('{\"a\":[1,2.5,null,\"x\"]}'))",
        "return cmsgpack.unpack(cmsgpack.pack(1, 'x', {1, 2, a = true}))",
        "return {struct.unpack('>I2s', struct.pack('>I2s', 7, 'x'))}",
        "return string.format('%5.2f %q %x', 1.5, 'a\\n', 255) .. ('x'):rep(9):gsub('x', '%0y')",
        "pcall(setfenv, 0, {}) pcall(rawset, _G, 'g', 1) return pcall(loadstring('return g'))",
        "local f = coroutine.wrap(function(...) for i = 1, 3 do coroutine.yield(i, ...) end end) return {f(1), f(2)}",
        "redis.setresp(3) redis.call('hset', KEYS[1], 'f', 1) return redis.call('hgetall', KEYS[1])",
        "return error({err = 'MY error'})",
        "table.sort({3, 2, 1}, function(a, b) return true end) return #table.concat({1, 2}, ARGV[1])",
    ];
    let source = |text: &&str| [&[8][..], text.as_bytes()].concat();
    let mut prng = base::Prng::new(58);
    let program = |number: u8| {
        let len = prng.between(20, 300);
        let bytes = (0..len).map(|_| prng.next_u64() as u8);
        std::iter::once(number & 7).chain(bytes).collect::<Vec<u8>>()
    };
    SOURCES.iter().map(source).chain((0..48).map(program)).collect()
}
