//! `EVAL` and its variants, and `SCRIPT`.

use base::Nanos;
use types::Outcome;

use super::world::World;

const NO_SCRIPT: &str = "-NOSCRIPT No matching script. Please use EVAL.";
/// Of `return ARGV[1]`.
const DIGEST: &str = "098e0f0d1448c0a81dafe820f66d460eb09263da";
/// Of `return redis.call('incr','other')`.
const UNDECLARED: &str = "return redis.call('incr','other')";

/// Each line with its reply, without the last line end.
fn check(talk: &[(&str, &str)]) -> World {
    let mut world = World::new(None);
    let mut client = world.connect();
    for (line, reply) in talk {
        assert_eq!(world.ask(&mut client, line), format!("{reply}\r\n"), "{line} of {talk:?}");
    }
    world
}

#[test]
fn scripts_run_on_no_key_one_key_and_several() {
    check(&[
        ("EVAL \"return 1\" 0", ":1"),
        ("EVAL \"return redis.call('set',KEYS[1],'v')\" 1 a", "+OK"),
        ("EVAL \"return redis.call('get',KEYS[1])\" 1 a", "$1\r\nv"),
        ("EVAL \"return redis.call('mset',KEYS[1],1,KEYS[2],2)\" 2 a b", "+OK"),
        ("MGET a b", "*2\r\n$1\r\n1\r\n$1\r\n2"),
        ("EVAL_RO \"return redis.call('mget',KEYS[1],KEYS[2])\" 2 a b", "*2\r\n$1\r\n1\r\n$1\r\n2"),
        ("EVAL \"redis.call('del',KEYS[1]) return redis.call('exists',KEYS[1])\" 1 a", ":0"),
    ]);
}

#[test]
fn scripts_see_sets_in_order() {
    check(&[
        ("SADD s b c a", ":3"),
        ("SORT s BY _", "*3\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\na"),
        (
            "EVAL \"return redis.call('sort',KEYS[1],'by','_')\" 1 s",
            "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc",
        ),
        ("MULTI", "+OK"),
        ("EVAL \"return redis.call('sort',KEYS[1],'by','_','desc')[1]\" 1 s", "+QUEUED"),
        ("SORT s BY _ LIMIT 0 1", "+QUEUED"),
        ("EXEC", "*2\r\n$1\r\nc\r\n*1\r\n$1\r\nb"),
    ]);
}

#[test]
fn undeclared_keys_make_a_transaction() {
    let once = format!("EVAL \"{UNDECLARED}\" 0");
    let beside = format!("EVAL \"redis.call('incr',KEYS[1]) {UNDECLARED}\" 1 a");
    check(&[
        (&once, ":1"),
        (&beside, ":2"),
        ("GET a", "$1\r\n1"),
        ("GET other", "$1\r\n2"),
        ("SET pointer other", "+OK"),
        ("EVAL \"return redis.call('incr',redis.call('get',KEYS[1]))\" 1 pointer", ":3"),
        ("EVAL_RO \"return redis.call('get',redis.call('get','pointer'))\" 0", "$1\r\n3"),
    ]);
}

#[test]
fn digests_run_after_eval_and_load() {
    let eval = "EVAL \"return ARGV[1]\" 0 x";
    let by_digest = format!("EVALSHA {DIGEST} 0 y");
    let read_only = format!("EVALSHA_RO {} 1 a z", DIGEST.to_uppercase());
    let exists = format!("SCRIPT EXISTS {DIGEST} {}", "0".repeat(40));
    let upper = format!("SCRIPT EXISTS {}", DIGEST.to_uppercase());
    check(&[
        (&by_digest, NO_SCRIPT),
        (&exists, "*2\r\n:0\r\n:0"),
        (eval, "$1\r\nx"),
        (&by_digest, "$1\r\ny"),
        (&read_only, "$1\r\nz"),
        (&exists, "*2\r\n:1\r\n:0"),
        (&upper, "*1\r\n:1"),
        ("SCRIPT FLUSH", "+OK"),
        (&by_digest, NO_SCRIPT),
        ("SCRIPT LOAD \"return ARGV[1]\"", &format!("$40\r\n{DIGEST}")),
        (&exists, "*2\r\n:1\r\n:0"),
        (&by_digest, "$1\r\ny"),
        ("SCRIPT FLUSH ASYNC", "+OK"),
        ("SCRIPT FLUSH SYNC", "+OK"),
        (&exists, "*2\r\n:0\r\n:0"),
        ("EVALSHA short 0", NO_SCRIPT),
        ("EVALSHA short x", NO_SCRIPT),
        (&format!("EVALSHA {DIGEST} x"), "-ERR value is not an integer or out of range"),
    ]);
}

/// As in redis-server: a source that does not compile is unknown.
#[test]
fn broken_sources_are_not_kept() {
    let broken = "return (";
    let digest = scripts::digest(broken.as_bytes());
    let exists = format!("SCRIPT EXISTS {digest}");
    let mut world = World::new(None);
    let mut client = world.connect();
    let said = world.ask(&mut client, &format!("EVAL \"{broken}\" 0"));
    assert!(said.starts_with("-ERR Error compiling script"), "{said}");
    assert_eq!(world.ask(&mut client, &exists), "*1\r\n:0\r\n");
    assert_eq!(world.ask(&mut client, &format!("EVALSHA {digest} 0")), format!("{NO_SCRIPT}\r\n"));
}

fn stored_sources(world: &World) -> usize {
    let is_source = |(of, _, key): &&(u8, u64, Vec<u8>)| *of == 16 && key.starts_with(b"script:");
    world.registers.keys().filter(is_source).count()
}

#[test]
fn flush_deletes_stored_sources() {
    let mut world = World::new(None);
    let (mut client, mut other) = (world.connect(), world.connect());
    for number in 0..5 {
        world.ask(&mut client, &format!("SCRIPT LOAD \"return {number}\""));
    }
    assert_eq!(stored_sources(&world), 5);
    // Another client stores a source while those before the flush are deleted.
    world.send(&mut client, b"SCRIPT FLUSH\r\n");
    world.settle_one(&mut client);
    world.ask(&mut other, "SCRIPT LOAD \"return 3\"");
    assert_eq!(world.say(&mut client, b""), "+OK\r\n");
    assert_eq!(stored_sources(&world), 1);
    let digest = scripts::digest(b"return 3");
    assert_eq!(world.ask(&mut client, &format!("EVALSHA {digest} 0")), ":3\r\n");
    // Listings that find no quorum leave sources behind that no client sees.
    world.send(&mut client, b"SCRIPT FLUSH\r\n");
    world.settle_one(&mut client);
    world.fate = |_, _| Some(Outcome::NoQuorum);
    assert_eq!(world.say(&mut client, b""), "+OK\r\n");
}

#[test]
fn loaded_sources_have_a_total_limit() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let source = |number: usize| format!("--{number:06}{}", "x".repeat(1_000_000));
    let load = |number| super::world::request(&["SCRIPT", "LOAD", &source(number)]);
    for number in 0..67 {
        for _ in 0..2 {
            let said = world.say(&mut client, &load(number));
            assert!(said.starts_with("$40"), "{number}: {said}");
        }
    }
    let said = world.say(&mut client, &load(67));
    assert_eq!(
        said,
        "-ERR loaded scripts take too much room, use SCRIPT FLUSH (max 67108864 bytes)\r\n"
    );
    assert!(world.say(&mut client, &load(3)).starts_with("$40"), "it is stored already");
    world.ask(&mut client, "SCRIPT FLUSH");
    assert!(world.say(&mut client, &load(67)).starts_with("$40"));
}

#[test]
fn script_refuses_wrong_requests() {
    check(&[
        ("SCRIPT", "-ERR wrong number of arguments for 'script' command"),
        ("SCRIPT LOAD", "-ERR wrong number of arguments for 'script|load' command"),
        (
            "SCRIPT LOAD \"return (\"",
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'",
        ),
        ("SCRIPT LOAD \"#!x\\nreturn\"", "-ERR Unexpected engine in script shebang: #!x"),
        ("SCRIPT FLUSH now", "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        ("SCRIPT FLUSH sync async", "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        ("SCRIPT KILL", "-NOTBUSY No scripts in execution right now."),
        ("SCRIPT DEBUG NO", "+OK"),
        ("SCRIPT DEBUG YES", "-ERR SCRIPT DEBUG is not supported: there is no debugger"),
        ("SCRIPT DEBUG maybe", "-ERR Use SCRIPT DEBUG YES/SYNC/NO"),
        ("SCRIPT nosuch", "-ERR unknown subcommand 'nosuch'. Try SCRIPT HELP."),
    ]);
}

#[test]
fn transactions_hold_scripts() {
    let by_digest = format!("EVALSHA {DIGEST} 0 y");
    check(&[
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("EVAL \"return redis.call('incr',KEYS[1])\" 1 a", "+QUEUED"),
        ("EXEC", "*2\r\n+OK\r\n:2"),
        ("MULTI", "+OK"),
        ("EVAL \"return 1\" 0", "+QUEUED"),
        (&by_digest, "+QUEUED"),
        ("EXEC", &format!("*2\r\n:1\r\n{NO_SCRIPT}")),
        ("SCRIPT LOAD \"return ARGV[1]\"", &format!("$40\r\n{DIGEST}")),
        ("MULTI", "+OK"),
        ("INCR b", "+QUEUED"),
        (&by_digest, "+QUEUED"),
        ("EVAL \"return redis.call('incr','b')\" 0", "+QUEUED"),
        ("EVAL \"error('no')\" 1 a", "+QUEUED"),
        (
            "EXEC",
            "*4\r\n:1\r\n$1\r\ny\r\n:2\r\n-ERR user_script:1: no script: eca06311a091a5f01b538c5e061dc50ec8826663, on @user_script:1.",
        ),
        ("MULTI", "+OK"),
        ("SCRIPT LOAD x", "-ERR 'script|load' is not supported inside MULTI"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
    ]);
}

#[test]
fn watched_keys_guard_scripts() {
    let mut world = World::new(None);
    let (mut client, mut other) = (world.connect(), world.connect());
    let script = "EVAL \"return redis.call('incr',KEYS[1])\" 1 b";
    for (change, reply) in [(false, "*1\r\n:1\r\n"), (true, "*-1\r\n")] {
        assert_eq!(world.ask(&mut client, "WATCH a"), "+OK\r\n");
        assert_eq!(world.ask(&mut client, "MULTI"), "+OK\r\n");
        assert_eq!(world.ask(&mut client, script), "+QUEUED\r\n");
        if change {
            world.ask(&mut other, "SET a 1");
        }
        assert_eq!(world.ask(&mut client, "EXEC"), reply);
    }
}

/// A transaction of a quiet script has no lock, and is a read.
#[test]
fn first_line_makes_a_script_a_read() {
    let mut world = World::new(None);
    let mut client = world.connect();
    world.fate = |_, access| (access != types::Access::Read).then_some(Outcome::NoQuorum);
    let quiet = "\"#!lua flags=no-writes\\nreturn redis.call('get',KEYS[1])\"";
    assert_eq!(world.ask(&mut client, &format!("EVAL {quiet} 1 a")), "$-1\r\n");
    assert_eq!(world.ask(&mut client, &format!("EVAL {quiet} 2 a b")), "$-1\r\n");
    assert_eq!(world.ask(&mut client, "EVAL_RO \"return 1\" 1 a"), ":1\r\n");
    let reply = world.ask(&mut client, "EVAL \"return 1\" 1 a");
    assert!(reply.starts_with("-CLUSTERDOWN"), "{reply}");
}

/// Another node flushed: this one notices within a second.
#[test]
fn flush_of_another_node_is_noticed() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let by_digest = format!("EVALSHA {DIGEST} 0 y");
    world.now = Nanos::from_millis(1);
    world.ask(&mut client, "SCRIPT LOAD \"return ARGV[1]\"");
    assert_eq!(world.ask(&mut client, &by_digest), "$1\r\ny\r\n");
    world.put(16, "scripts", "7");
    world.now += Nanos::from_millis(500);
    assert_eq!(world.ask(&mut client, &by_digest), "$1\r\ny\r\n", "it may not know yet");
    world.now += Nanos::from_millis(600);
    assert_eq!(world.ask(&mut client, &by_digest), format!("{NO_SCRIPT}\r\n"));
}

#[test]
fn information_counts_scripts() {
    let mut world = World::new(None);
    let mut client = world.connect();
    world.ask(&mut client, "EVAL \"return 1\" 0");
    world.ask(&mut client, "EVAL \"return 2\" 0");
    let info = world.ask(&mut client, "INFO memory");
    assert!(info.contains("number_of_cached_scripts:2\r\n"), "{info}");
    assert!(info.contains("used_memory_scripts:16\r\n"), "{info}");
    let stats = world.ask(&mut client, "INFO commandstats");
    assert!(stats.contains("cmdstat_eval:calls=2,"), "{stats}");
}

#[test]
fn unknown_script_is_not_remembered_under_once() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let unknown = format!("ONCE s 1 EVALSHA {} 1 k", "a".repeat(40));
    for _ in 0..2 {
        assert_eq!(world.ask(&mut client, &unknown), format!("{NO_SCRIPT}\r\n"));
    }
    assert_eq!(world.ask(&mut client, "ONCE s 1 EVAL return(7) 1 k"), ":7\r\n");
}

#[test]
fn late_lookup_under_once_is_refused() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let digest = world.ask(&mut client, "SCRIPT LOAD return(7)");
    let digest = digest.lines().nth(1).expect("a digest").to_string();
    let line = format!("ONCE s 1 EVALSHA {digest} 1 k");
    world.now += Nanos::from_secs(2);
    world.send(&mut client, format!("{line}\r\n").as_bytes());
    world.now += Nanos::from_secs(2);
    let said = world.say(&mut client, b"");
    assert!(said.starts_with("-TRYAGAIN "), "{said}");
    assert_eq!(world.ask(&mut client, &line), ":7\r\n");
}
