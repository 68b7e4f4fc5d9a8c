//! Calls that take long in C or in Rust spend the budget of a run.

use std::sync::Arc;

use base::Millis;
use commands::{Budget, Halt, Interpreter, Interrupt, ScriptCall, Space};
use types::{Clock, Reply};

#[derive(Debug)]
struct Never;

impl Interrupt for Never {
    fn ends(&self) -> Option<&'static str> {
        None
    }
}

/// Instructions that remain of the budget after a run, or the end of the run.
fn run_on(
    budget: Budget,
    source: &[u8],
    keys: &[&[u8]],
    args: &[&[u8]],
) -> (Result<Reply, Halt>, u64) {
    let interpreter = Interpreter { scripts: Some(scripts::ENGINE), ..Interpreter::default() };
    let clock = Clock { unix: Millis(1_000), seed: 7 };
    let mut space = Space::new(&interpreter, clock).with_budget(budget);
    let call = ScriptCall { source, keys, args, is_read_only: false };
    let ended = (scripts::ENGINE.run)(&call, &mut space);
    (ended, space.budget().instructions)
}

fn run(source: &str) -> Result<Reply, Halt> {
    run_on(Budget::SHORT, source.as_bytes(), &[], &[]).0
}

/// The instructions that a run counts on the script thread.
fn spent(source: &str) -> u64 {
    let interrupt: Arc<dyn Interrupt> = Arc::new(Never);
    let budget = Budget {
        instructions: 1 << 40,
        memory: 64 << 20,
        work: u64::MAX,
        interrupt: Some(interrupt),
    };
    let (ended, left) = run_on(budget, source.as_bytes(), &[], &[]);
    assert!(ended.is_ok(), "{source}: {ended:?}");
    (1 << 40) - left
}

#[test]
fn bytes_of_arguments_are_counted() {
    for call in [
        "bit.band(s, 1)",
        "bit.tohex(s)",
        "struct.size(s)",
        "struct.pack('s', s)",
        "cjson.decode('\"' .. s .. '\"')",
        "cmsgpack.unpack(s)",
        "string.rep(s, 1)",
        "string.lower(s)",
        "string.upper(s)",
        "string.reverse(s)",
        "tonumber(s)",
        "string.format('%q', s)",
        "string.format('%.10s', s)",
        "tonumber(s, 16)",
        "math.random(s)",
    ] {
        let source = |count: u32| {
            format!(
                "local s = ('1'):rep(1e6) for i = 1, {count} do pcall(function() return {call} end) end"
            )
        };
        let one = (spent(&source(11)) - spent(&source(1))) / 10;
        assert!(one > 1_000_000 / 64, "{call}: {one}");
    }
}

/// A number becomes text for each element, in one instruction.
#[test]
fn elements_of_concat_are_counted() {
    let source = |count: u32| {
        format!(
            "local t = {{}} for i = 1, 2e4 do t[i] = i end for i = 1, {count} do table.concat(t) end"
        )
    };
    let one = (spent(&source(11)) - spent(&source(1))) / 10;
    assert!(one >= 8 * 20_000, "{one}");
}

#[test]
fn errors_of_counted_functions_are_those_of_lua() {
    for (call, text) in [
        ("string.format('%d', 'x')", "bad argument #2 to 'format' (number expected, got string)"),
        ("('%d'):format('x')", "bad argument #1 to 'format' (number expected, got string)"),
        ("string.format('%y', 1)", "invalid option '%y' to 'format'"),
        ("string.format()", "bad argument #1 to 'format' (string expected, got no value)"),
        ("('x'):rep({})", "bad argument #1 to 'rep' (number expected, got table)"),
        ("table.concat({1, {}})", "invalid value (table) at index 2 in table for 'concat'"),
        ("table.concat(1)", "bad argument #1 to 'concat' (table expected, got number)"),
        ("tonumber('z', 99)", "bad argument #2 to 'tonumber' (base out of range)"),
        ("string.lower()", "bad argument #1 to 'lower' (string expected, got no value)"),
    ] {
        let source = format!("return select(2, pcall(function() local x = {call} return x end))");
        let text = format!("user_script:1: {text}");
        assert_eq!(run(&source), Ok(Reply::bulk(text)), "{call}");
    }
}

#[test]
fn lengths_that_patterns_walk_are_counted() {
    for source in [
        "return ('a'):rep(1e6):find('[' .. ('b'):rep(1e6) .. ']')",
        "return ('a'):rep(1e5):find('[^' .. ('%d'):rep(1e5) .. 'a]')",
        "return ('a'):rep(1e5):gsub('[' .. ('b'):rep(1e5) .. ']', '')",
        "return ('a'):rep(1e6):find('^(' .. 'a*' .. ')%1b')",
        "return ('a'):rep(1e5):match('(a+)%1b')",
        "return ('a'):rep(1e6):find(('a'):rep(5e5) .. 'b', 1, true)",
        "return ('a'):rep(1e6):find(('a'):rep(5e5) .. 'b')",
    ] {
        assert_eq!(run(source), Err(Halt::TooLong), "{source}");
    }
}

#[test]
fn honest_patterns_on_long_texts_are_cheap() {
    for source in [
        "local n = 0 for w in (('word '):rep(4000)):gmatch('[%w_]+') do n = n + 1 end return n",
        "return select(2, ('word '):rep(4000):gsub('%s', ''))",
        "local s, at, n = ('line\\n'):rep(4000), 1, 0 while true do at = s:find('\\n', at, true) if not at then return n end at = at + 1 n = n + 1 end",
    ] {
        assert_eq!(run(source), Ok(Reply::Integer(4_000)), "{source}");
    }
}

/// The functions of C call back, so that the hook sees each call.
#[test]
fn callbacks_of_c_are_counted() {
    for source in [
        "local s, t = ('a'):rep(1e5), {} for i = 1, 5e4 do t[i] = s end table.sort(t)",
        "local t = {} for i = 1, 3e4 do t[i] = -i end table.sort(t, rawequal)",
        "local t = {} for i = 1, 6e4 do t[i] = '1' end table.foreachi(t, math.randomseed)",
    ] {
        assert_eq!(run(source), Err(Halt::TooLong), "{source}");
    }
    for (source, reply) in [
        ("local t = {3, 1, 2} table.sort(t) return table.concat(t)", "123"),
        (
            "local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return table.concat(t)",
            "321",
        ),
        (
            "local out = {} table.foreach({a = 1}, function(k, v) out[1] = k .. v end) return out[1]",
            "a1",
        ),
        (
            "return table.foreachi({5, 6}, function(k, v) if v == 6 then return 'six' end end)",
            "six",
        ),
    ] {
        assert_eq!(run(source), Ok(Reply::copy(reply.as_bytes())), "{source}");
    }
}

#[test]
fn compilation_is_counted() {
    let chunk = "'local a return a' .. (' or a'):rep(4000)";
    assert_eq!(run(&format!("return loadstring({chunk})")), Err(Halt::TooLong));
    let load =
        format!("local s = {chunk} return load(function() local t = s s = nil return t end)");
    assert_eq!(run(&load), Err(Halt::TooLong));
    assert_eq!(run("return loadstring('return 7')()"), Ok(Reply::Integer(7)));
    let long = "local s = 'return [[' .. ('x'):rep(20000) .. ']]' return #loadstring(s)()";
    assert_eq!(run(long), Ok(Reply::Integer(20_000)));
}

#[test]
fn long_sources_do_not_compile_on_a_worker() {
    let source = format!("local a = 1 return a{}", " or a".repeat(4_000));
    assert_eq!(run(&source), Err(Halt::TooLong));
    assert!(spent(&source) < 1_000);
    let blank = " ".repeat(64 << 10);
    assert_eq!(run(&format!("return 1{blank}")), Err(Halt::TooLong));
    assert_eq!((scripts::ENGINE.check)(format!("return return{blank}").as_bytes()), Ok(()));
    assert!((scripts::ENGINE.check)(b"return return").is_err());
}

/// No look breaks a compilation, so that of a very long list of jumps never begins.
#[test]
fn sources_with_too_many_jumps_are_refused() {
    let interrupt: Arc<dyn Interrupt> = Arc::new(Never);
    let budget = Budget {
        instructions: u64::MAX,
        memory: 64 << 20,
        work: u64::MAX,
        interrupt: Some(interrupt),
    };
    let source = format!("local a = 1 return a{}", " or a".repeat(40_000));
    let (ended, _) = run_on(budget.clone(), source.as_bytes(), &[], &[]);
    let Err(Halt::Error(error)) = ended else { panic!("{ended:?}") };
    assert!(error.text().starts_with(b"ERR Error compiling script"), "{error:?}");
    let source = "return select(2, loadstring('local a return a' .. (' or a'):rep(40000)))";
    let (ended, _) = run_on(budget, source.as_bytes(), &[], &[]);
    let Ok(Reply::Bulk(text)) = ended else { panic!("{ended:?}") };
    assert!(text.starts_with(b"user_script: too many jumps"), "{text:?}");
}

#[test]
fn many_words_are_counted() {
    let words = vec![&b"word"[..]; 300_000];
    for (keys, args) in [(&words[..], &[][..]), (&[][..], &words[..])] {
        let (ended, _) = run_on(Budget::SHORT, b"return 1", keys, args);
        assert_eq!(ended, Err(Halt::TooLong));
    }
    let (ended, _) = run_on(Budget::SHORT, b"return #KEYS", &words[..5_000], &[]);
    assert_eq!(ended, Ok(Reply::Integer(5_000)));
}
