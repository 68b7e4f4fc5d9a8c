//! Runs beyond their budget end without effect, and leave no trace for later runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use base::Millis;
use commands::{Budget, Halt, Interpreter, Interrupt, ScriptCall, Space};
use types::{Access, Clock, Reply, TimeToLive, Update, View, Wire};

fn space(budget: Budget) -> Space {
    let interpreter = Interpreter { scripts: Some(scripts::ENGINE), ..Interpreter::default() };
    let clock = Clock { unix: Millis(1_000), seed: 7 };
    let mut space = Space::new(&interpreter, clock).with_budget(budget);
    space.load("k".into(), View { value: None, ttl: TimeToLive::Never, ends: None });
    space
}

fn run_in(space: &mut Space, source: &str) -> Result<Reply, Halt> {
    let call =
        ScriptCall { source: source.as_bytes(), keys: &[b"k"], args: &[], is_read_only: false };
    (scripts::ENGINE.run)(&call, space)
}

fn run(source: &str) -> Result<Reply, Halt> {
    run_in(&mut space(Budget::SHORT), source)
}

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

fn long(looks: u32) -> Budget {
    let interrupt: Arc<dyn Interrupt> = Arc::new(After(AtomicU32::new(looks)));
    Budget { instructions: u64::MAX, memory: 32 << 20, work: u64::MAX, interrupt: Some(interrupt) }
}

const ENDLESS: &[&str] = &[
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "while true do pcall(pcall, function() while true do end end) end",
    "while true do xpcall(function() while true do end end, function() while true do end end) end",
    "xpcall(function() error('x') end, function() while true do end end)",
    "local co = coroutine.create(function() while true do end end) while true do coroutine.resume(co) end",
    "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
    "local f = coroutine.wrap(function() while true do pcall(coroutine.yield) end end) while true do f() end",
    "while true do pcall(redis.call, 'get', KEYS[1]) end",
    "while true do redis.pcall('get', KEYS[1]) end",
    "while true do redis.call('append', KEYS[1], 'x') end",
    "local function f() return f() end return f()",
    "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) while true do pcall(function() return t[1] end) end",
    "table.sort({3,2,1}, function() while true do end end)",
    "string.gsub('x', 'x', function() while true do end end)",
    "load(function() return ' ' end)",
    "while true do loadstring('return 1') end",
    "while true do collectgarbage() end",
    "while true do local ok = pcall(error, {}) end",
    "repeat until false",
    "while true do ('a'):rep(1000):find(('a?'):rep(30) .. ('a'):rep(30)) end",
    "return ('a'):rep(200):match(('.-'):rep(100) .. 'b')",
    "return ('a'):rep(1e5):gsub('.-.-.-.-b', '')",
    "for w in ('a'):rep(1e5):gmatch('.-.-.-.-b') do end",
    "while true do ('x'):rep(1e6):find('y', 1, true) end",
    "::x:: goto x",
];

const LARGE: &[&str] = &[
    "local s = 'x' while true do s = s .. s end",
    "local s = 'x' while true do pcall(function() s = s .. s end) end",
    "local t = {} while true do t[#t + 1] = {} end",
    "local t = {} for i = 1, 1e9 do t[i] = i end",
    "return string.rep('x', 2^31 - 1)",
    "return #string.rep('x', 1e8)",
    "return ('x'):rep(1e9)",
    "local s = string.rep('x', 1e6) local t = {} for i = 1, 1e4 do t[i] = s .. i end",
    "local s = string.rep('x', 1e6) while true do pcall(string.rep, s, 100) end",
    "return cjson.encode({string.rep('x', 4e6), string.rep('y', 4e6), string.rep('z', 4e6)})",
    "local t = {} for i = 1, 1e6 do t[i] = string.rep('x', 1000) end return table.concat(t)",
    "return string.format('%s%s', string.rep('x', 6e6), string.rep('y', 6e6))",
];

#[test]
fn endless_runs_end_without_effect() {
    for source in ENDLESS.iter().filter(|source| !source.contains("goto")) {
        let mut space = space(Budget::SHORT);
        assert_eq!(run_in(&mut space, source), Err(Halt::TooLong), "{source}");
        assert_eq!(run("return 1"), Ok(Reply::Integer(1)), "after {source}");
    }
}

#[test]
fn endless_runs_of_a_long_budget_are_interrupted() {
    for source in ENDLESS.iter().filter(|source| !source.contains("goto")) {
        let ended = run_in(&mut space(long(50)), source);
        let Err(Halt::Error(error)) = ended else { panic!("{source}: {ended:?}") };
        assert!(error.text().starts_with(b"ERR killed script: "), "{source}: {error:?}");
    }
}

#[test]
fn large_runs_end_without_effect() {
    for source in LARGE {
        assert_eq!(run(source), Err(Halt::TooLong), "{source}");
        assert_eq!(run("return 1"), Ok(Reply::Integer(1)), "after {source}");
    }
}

#[test]
fn large_runs_of_a_long_budget_answer_an_error() {
    for source in LARGE {
        let ended = run_in(&mut space(long(100_000_000)), source);
        let is_error = match &ended {
            Err(Halt::Error(error)) => {
                error.text().starts_with(b"ERR script needs too much memory")
            }
            // It fits the longer budget.
            Ok(Reply::Bulk(_) | Reply::Integer(_) | Reply::Null) => true,
            _ => false,
        };
        assert!(is_error, "{source}: {ended:?}");
        assert_eq!(run("return 1"), Ok(Reply::Integer(1)), "after {source}");
    }
}

#[test]
fn undeclared_key_ends_the_run_even_in_a_protected_call() {
    for source in [
        "return redis.call('get', 'other')",
        "return redis.pcall('get', 'other')",
        "redis.call('set', KEYS[1], 'x') pcall(redis.call, 'get', 'other') return 1",
        "while true do pcall(redis.call, 'get', 'other') end",
        "xpcall(function() redis.call('get', 'other') end, function() return 1 end) return 2",
        "local co = coroutine.create(function() redis.call('get', 'other') end) coroutine.resume(co)",
    ] {
        let ended = run(source);
        assert_eq!(ended, Err(Halt::Unloaded("other".into())), "{source}");
    }
}

#[test]
fn runs_leave_nothing_behind() {
    for (source, look) in [
        ("table.insert(_G, 'x')", "return rawget(_G, 1) == nil"),
        ("table.insert(string, 'x')", "return rawget(string, 1) == nil"),
        ("redis.setresp(3)", "return true"),
        ("cjson.encode_max_depth(1)", "return cjson.encode({{{1}}})"),
        ("setfenv(1, {}) return 1", "return tostring(1)"),
        ("getmetatable('').__index = nil", "return ('x'):len()"),
        ("pcall(function() string.rep = nil end)", "return string.rep('x', 1)"),
        ("getfenv(tostring).tostring = nil", "return tostring(1)"),
        ("collectgarbage('stop')", "return 1"),
        ("local t = {} t.t = t math.randomseed(5)", "return 1"),
        ("setmetatable(getmetatable(''), nil)", "return ('x'):len()"),
        ("getmetatable(_G).__index = nil", "return tostring(1)"),
    ] {
        let before = run(look);
        assert!(before.as_ref().is_ok_and(|reply| !reply.is_error()), "{look}: {before:?}");
        for _ in 0..2 {
            let _ = run(source);
            assert_eq!(run(look), before, "{look} after {source}");
        }
    }
    let spoilt = "local was = type(tostring) setfenv(1, {}) return was";
    assert_eq!(run(spoilt), Ok(Reply::copy(b"function")));
    assert_eq!(run(spoilt), Ok(Reply::copy(b"function")), "its function has its globals again");
}

#[test]
fn nothing_outside_is_reached() {
    for source in [
        "return io",
        "return os.execute",
        "return os.exit",
        "return os.remove",
        "return os.getenv",
        "return os.tmpname",
        "return package",
        "return require",
        "return dofile",
        "return loadfile",
        "return debug",
        "return print",
        "return newproxy",
        "return module",
        "return jit",
        "return loadstring(string.dump(function() return 1 end))",
        "return loadstring('\\27Lua')",
        "return load(function() return nil end, 'x')()",
        "return getfenv(2)",
        "return getfenv(3)",
        "return getmetatable(_G)",
    ] {
        let reply = run(source);
        let is_nothing = match &reply {
            Ok(Reply::Null) => true,
            Ok(Reply::Error(text)) => {
                let text = String::from_utf8_lossy(text);
                text.contains("nonexistent global") || text.contains("invalid level")
            }
            Ok(Reply::Array(all)) => all.is_empty(),
            _ => false,
        };
        assert!(is_nothing, "{source}: {reply:?}");
    }
}

#[test]
fn same_seed_draws_the_same_numbers() {
    let source = "return {math.random(1000000), math.random(1000000)}";
    assert_eq!(run(source), run(source));
    let interpreter = Interpreter { scripts: Some(scripts::ENGINE), ..Interpreter::default() };
    let clock = Clock { unix: Millis(1_000), seed: 8 };
    let other = run_in(&mut Space::new(&interpreter, clock), source);
    assert_ne!(other, run(source));
}

#[test]
fn deep_values_are_refused_and_not_followed() {
    let reply = run("local t = {} for i = 1, 100 do t = {t} end return t").expect("a reply");
    assert!(format!("{reply:?}").contains("reached lua stack limit"));
    let reply = run("local t = {} t[1] = t return t").expect("a reply");
    assert!(format!("{reply:?}").contains("reached lua stack limit"));
    let deep = "cjson.decode_max_depth(1000000) return cjson.decode(string.rep('[', 100000))";
    assert!(run(deep).expect("a reply").is_error());
    let deep = "local t = {} for i = 1, 10000 do t = {t} end return cjson.encode(t)";
    assert!(run(deep).expect("a reply").is_error());
    let deep = "return cmsgpack.unpack(string.rep('\\145', 100000))";
    assert!(run(deep).expect("a reply").is_error());
}

/// Deepest are those of an `EXEC` on one key, with the calls of their scripts.
#[test]
fn deepest_replies_travel_between_nodes() {
    let source = b"local t = {} for i = 1, 100 do t = {t} end return t";
    let lines = vec![vec![&b"EVAL"[..], source, b"1", b"k"]];
    let command = commands::traced_lines_on_one_key(lines, true, true, Access::Update);
    let interpreter = Interpreter { scripts: Some(scripts::ENGINE), ..Interpreter::default() };
    let view = View { value: None, ttl: TimeToLive::Never, ends: None };
    let reply =
        interpreter.apply(view, &command.body, Clock { unix: Millis(1_000), seed: 7 }).reply;
    assert_eq!(Reply::from_bytes(&reply.to_bytes()), Ok(reply.clone()));
    assert!(format!("{reply:?}").contains("reached lua stack limit"));
    assert!(commands::Trace::unwrap(reply).1.is_some());
}

#[test]
fn replies_have_a_greatest_length() {
    let source =
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 1000 do t[i] = s end return t";
    let reply = run_in(&mut space(long(100_000_000)), source).expect("a reply");
    assert_eq!(reply, commands::errors::REPLIES_TOO_LARGE.into());
}

/// Each of these calls itself without end, by way of a function in Rust or C.
#[test]
fn deep_recursion_is_an_error() {
    for source in [
        "local function f() return (('x'):gsub('x', f)) end return f()",
        "local function f() return pcall(f) end return f()",
        "local function f() return select(2, pcall(f)) end return tostring(f())",
        "local function f() return xpcall(f, f) end return f()",
        "local function f() return coroutine.wrap(f)() end return f()",
        "local function f() return coroutine.resume(coroutine.create(f)) end return f()",
        "local t = setmetatable({}, {__tostring = function(t) return tostring(t) end}) return tostring(t)",
        "local t = setmetatable({}, {__index = function(t, k) return t[k] end}) return t.x",
        "local function f(a, b) table.sort({1, 2, 3}, f) return a < b end return f(1, 2)",
        "local function f() return loadstring('return ...')(f()) end return f()",
        "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
        "local function f() return load(f) end return f()",
    ] {
        let ended = run(source);
        let is_ended = match &ended {
            Ok(_) | Err(Halt::TooLong) => true,
            Err(Halt::Error(error)) => !error.text().starts_with(b"ERR the engine"),
            Err(_) => false,
        };
        assert!(is_ended, "{source}: {ended:?}");
        assert_eq!(run("return 1"), Ok(Reply::Integer(1)), "after {source}");
    }
}
