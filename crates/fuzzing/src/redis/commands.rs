//! Random commands: mostly sound, sometimes not, on few keys; and bytes that are no commands.

use base::Prng;

use super::{hashes, lists, sets, sorted_sets};

/// Names with the kinds of their arguments, one letter each: see [`argument`].
const TEMPLATES: &[(&str, &str)] = &[
    ("GET", "k"),
    ("GET", "k"),
    ("SET", "kv"),
    ("SET", "kvo"),
    ("SET", "kvoo"),
    ("SET", "kvooo"),
    ("SETNX", "kv"),
    ("SETEX", "ktv"),
    ("PSETEX", "kmv"),
    ("GETSET", "kv"),
    ("GETDEL", "k"),
    ("GETEX", "k"),
    ("GETEX", "kx"),
    ("GETEX", "kxx"),
    ("MGET", "K"),
    ("APPEND", "kv"),
    ("STRLEN", "k"),
    ("GETRANGE", "kii"),
    ("SUBSTR", "kii"),
    ("SETRANGE", "kgv"),
    ("INCR", "k"),
    ("DECR", "k"),
    ("INCRBY", "ki"),
    ("DECRBY", "ki"),
    ("INCRBYFLOAT", "kf"),
    ("INCRBYFLOAT", "kf"),
    ("DEL", "K"),
    ("UNLINK", "K"),
    ("EXISTS", "K"),
    ("TOUCH", "K"),
    ("TYPE", "k"),
    ("EXPIRE", "kt"),
    ("EXPIRE", "ktn"),
    ("EXPIRE", "ktnn"),
    ("PEXPIRE", "kmn"),
    ("EXPIREAT", "kun"),
    ("PEXPIREAT", "kU"),
    ("PEXPIREAT", "kUn"),
    ("TTL", "k"),
    ("PTTL", "k"),
    ("EXPIRETIME", "k"),
    ("PEXPIRETIME", "k"),
    ("PERSIST", "k"),
    ("KEYS", "p"),
    ("SCAN", "s"),
    ("DBSIZE", ""),
    ("FLUSHDB", ""),
    ("FLUSHALL", "y"),
    ("SELECT", "d"),
    ("ECHO", "v"),
    ("PING", ""),
    ("PING", "v"),
    ("HELLO", "h"),
    ("RESET", ""),
    ("AUTH", "w"),
    ("AUTH", "ww"),
    ("CLIENT", "c"),
    ("COMMAND", "C"),
    ("WAIT", "00"),
    ("QUIT", ""),
    ("NOSUCHCOMMAND", "wv"),
];

/// Draws a command.
type Draw = fn(&mut Prng) -> Vec<Vec<u8>>;

/// Commands on other types than strings, one function each.
const COLLECTIONS: &[Draw] = &[hashes::draw, lists::draw, sets::draw, sorted_sets::draw];
/// How often a command is one of those.
const COLLECTIONS_PPM: u32 = 300_000;

/// Names that are drawn less often: they end or empty what the others need.
const RARE: &[&str] =
    &["FLUSHDB", "FLUSHALL", "QUIT", "RESET", "HELLO", "AUTH", "SELECT", "NOSUCHCOMMAND", "WAIT"];

/// Names whose arguments stay as drawn. `SPOP` without a count removes a random member. The others
/// must not name several keys.
const NEVER_CHANGED: &[&str] =
    &["SPOP", "SINTER", "SUNION", "SDIFF", "SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"];

pub(super) struct Drawn {
    pub args: Vec<Vec<u8>>,
    /// redis-server 7.4 leaves out the reply to a wrong password behind other replies.
    pub must_be_first: bool,
    /// A deadline that has passed ends a key for what is sent after the reply, not for what is behind it in the same
    /// pipeline (docs/reference/commands.md).
    pub must_settle: bool,
}

/// A command. `is_wild` segments hold requests whose replies cannot be told from each other.
/// Nothing in them may depend on a clock. `collections`: draw commands on collections, too.
pub(super) fn draw(prng: &mut Prng, is_wild: bool, collections: bool) -> Drawn {
    let mut args = match collections && !is_wild && prng.chance_ppm(COLLECTIONS_PPM) {
        true => prng.pick(COLLECTIONS)(prng),
        false => of_template(prng, is_wild),
    };
    let is = |name: &&str| args[0].eq_ignore_ascii_case(name.as_bytes());
    if !NEVER_CHANGED.iter().any(is) && prng.chance_ppm(30_000) {
        match prng.below(3) {
            0 if args.len() > 1 => drop(args.pop()),
            1 => args.push(value(prng).into_bytes()),
            _ => args.extend(std::iter::repeat_n(b"NX".to_vec(), 1 + prng.below(3) as usize)),
        }
    }
    let must_be_first = args.len() == 3 && args[0].eq_ignore_ascii_case(b"AUTH");
    let upper = args.iter().map(|arg| arg.to_ascii_uppercase());
    let must_settle = upper
        .into_iter()
        .any(|arg| [&b"EXAT"[..], b"PXAT", b"EXPIREAT", b"PEXPIREAT"].contains(&arg.as_slice()));
    Drawn { args, must_be_first, must_settle }
}

/// A command on strings, on keys, or of the connection.
fn of_template(prng: &mut Prng, is_wild: bool) -> Vec<Vec<u8>> {
    let (name, kinds) = loop {
        let (name, kinds) = *prng.pick(TEMPLATES);
        let is_rare = RARE.contains(&name) && !prng.chance_ppm(150_000);
        let is_tame = !is_wild
            || ![
                "TTL",
                "PTTL",
                "EXPIRETIME",
                "PEXPIRETIME",
                "KEYS",
                "SCAN",
                "DBSIZE",
                "HELLO",
                "COMMAND",
                "WAIT",
            ]
            .contains(&name);
        if is_tame && !is_rare && !(is_wild && kinds.contains(['x', 'f', 'g'])) {
            break (name, kinds);
        }
    };
    let mut args = vec![written(prng, name).into_bytes()];
    for kind in kinds.chars() {
        argument(prng, kind, &mut args);
    }
    args
}

/// A name in the letters that people use.
fn written(prng: &mut Prng, name: &str) -> String {
    match prng.below(6) {
        0 => name.to_lowercase(),
        1 => name
            .chars()
            .map(|c| if prng.chance_ppm(500_000) { c.to_ascii_lowercase() } else { c })
            .collect(),
        _ => name.to_owned(),
    }
}

fn argument(prng: &mut Prng, kind: char, args: &mut Vec<Vec<u8>>) {
    let text = match kind {
        'k' => key(prng),
        'K' => {
            let more = prng.below(4);
            (0..more).for_each(|_| args.push(key(prng).into_bytes()));
            key(prng)
        }
        'v' => {
            if prng.chance_ppm(100_000) {
                let len = prng.below(200);
                args.push((0..len).map(|_| prng.next_u64() as u8).collect());
                return;
            }
            value(prng)
        }
        'i' => integer(prng),
        'f' => decimal(prng),
        't' | 'm' => span(prng),
        'u' | 'U' => deadline(prng),
        'g' => offset(prng),
        'o' => return args.extend(set_option(prng).into_iter().map(String::into_bytes)),
        'x' => return args.extend(getex_option(prng).into_iter().map(String::into_bytes)),
        'n' => pick(prng, &["NX", "XX", "gt", "LT", "LT", "GT", "nope"]),
        'p' => pick(prng, &["*", "k*", "k[0-2]", "k?", "*:1", "[^k]*", "k\\1", "", "k[", "*a*"]),
        's' => return args.extend(scan(prng).into_iter().map(String::into_bytes)),
        'd' => pick(
            prng,
            &["0", "0", "1", "2", "15", "16", "-1", "x", "", "1.0", "99999999999999999999"],
        ),
        'h' => pick(prng, &["2", "3", "3", "2", "3", "4", "x", "1"]),
        'w' => pick(prng, &["word", "", "*", "default", "a b", "\r\n"]),
        'y' => pick(prng, &["ASYNC", "SYNC", "sync"]),
        '0' => "0".to_owned(),
        'c' => return args.extend(client(prng).into_iter().map(String::into_bytes)),
        'C' => {
            args.push(b"GETKEYS".to_vec());
            let of = draw(prng, true, false);
            return args.extend(of.args);
        }
        other => unreachable!("no argument is of kind {other}"),
    };
    args.push(text.into_bytes());
}

fn key(prng: &mut Prng) -> String {
    match prng.below(40) {
        0 => String::new(),
        1 => "k".repeat(1 + prng.below(300) as usize),
        2 => "with space\n".to_owned(),
        3 => "user:1".to_owned(),
        n => format!("k{}", n % 5),
    }
}

fn set_option(prng: &mut Prng) -> Vec<String> {
    let one = |word: &str| vec![word.to_owned()];
    match prng.below(9) {
        0 => one("NX"),
        1 => one("xx"),
        2 => one("GET"),
        3 => one("KEEPTTL"),
        4 | 5 => vec![pick(prng, &["EX", "PX", "ex"]), span(prng)],
        6 => vec![pick(prng, &["EXAT", "PXAT"]), deadline(prng)],
        7 => one("GET"),
        _ => vec![pick(prng, &["EX", "PERSIST", "NOPE", "", "10"])],
    }
}

fn getex_option(prng: &mut Prng) -> Vec<String> {
    match prng.below(5) {
        0 => vec!["PERSIST".to_owned()],
        1 | 2 => vec![pick(prng, &["EX", "PX"]), span(prng)],
        3 => vec![pick(prng, &["PXAT", "EXAT"]), deadline(prng)],
        _ => vec![pick(prng, &["EX", "KEEPTTL", "NX", "5"])],
    }
}

fn scan(prng: &mut Prng) -> Vec<String> {
    let mut words = vec!["0".to_owned(), "COUNT".to_owned(), "100000".to_owned()];
    match prng.below(5) {
        0 => words.extend(["MATCH".to_owned(), "k*".to_owned()]),
        1 => words.extend(["TYPE".to_owned(), pick(prng, &["string", "list", "STRING"])]),
        2 => words = vec![pick(prng, &["x", "0 "])],
        3 => words[2] = pick(prng, &["0", "-5", "x"]),
        _ => {}
    }
    words
}

fn client(prng: &mut Prng) -> Vec<String> {
    let two = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
    match prng.below(12) {
        0 => two("SETNAME", "me"),
        1 => two("SETNAME", "bad name"),
        2 => two("SETNAME", ""),
        3 | 4 => vec!["GETNAME".to_owned()],
        5 => vec!["GETREDIR".to_owned()],
        6 => vec!["TRACKINGINFO".to_owned()],
        7 => two("NO-EVICT", "on"),
        8 => two("NO-EVICT", "maybe"),
        9 => two("UNBLOCK", "999999"),
        10 => vec!["nosuchsubcommand".to_owned()],
        _ => two("REPLY", "maybe"),
    }
}

/// Never the same twice, so that the order of deadlines does not hang on a millisecond; never so short that it passes
/// while the comparison runs.
fn span(prng: &mut Prng) -> String {
    match prng.below(12) {
        0 => pick(prng, &["0", "-1", "abc", "9223372036854775807", "9223372036854775", "1.5", ""]),
        _ => (10_000_000 + prng.below(1_000_000_000_000)).to_string(),
    }
}

fn deadline(prng: &mut Prng) -> String {
    match prng.below(12) {
        0 => pick(prng, &["0", "-5", "x", "9223372036854775807", "1000", "-9223372036854775808"]),
        _ => (4_000_000_000_000 + prng.below(1_000_000_000_000)).to_string(),
    }
}

fn offset(prng: &mut Prng) -> String {
    match prng.below(12) {
        0 => pick(prng, &["-1", "x", "536870912", "9223372036854775807"]),
        _ => prng.below(300).to_string(),
    }
}

fn value(prng: &mut Prng) -> String {
    match prng.below(5) {
        0 => number(prng),
        1 => decimal(prng),
        2 => String::new(),
        _ => "abcdefghij"[..prng.below(11) as usize].to_string(),
    }
}

fn number(prng: &mut Prng) -> String {
    match prng.below(8) {
        0 => pick(prng, &["9223372036854775807", "-9223372036854775808", "9223372036854775806"]),
        1 => pick(prng, &["007", "-0", "+1", " 1", "1 ", "9223372036854775808", "0x10"]),
        _ => prng.below(100).to_string(),
    }
}

fn integer(prng: &mut Prng) -> String {
    match prng.below(10) {
        0 => number(prng),
        1 => pick(prng, &["x", "", "1.5"]),
        _ => (prng.below(40) as i64 - 20).to_string(),
    }
}

/// Decimal numbers of all sizes, written in all ways.
fn decimal(prng: &mut Prng) -> String {
    let sign = pick(prng, &["", "", "-", "+"]);
    let digits = |prng: &mut Prng, max: u64| -> String {
        (0..1 + prng.below(max)).map(|_| char::from(b'0' + prng.below(10) as u8)).collect()
    };
    match prng.below(9) {
        0 => format!("{sign}0x{:x}.{:x}p{}", prng.below(1000), prng.below(1000), prng.below(90)),
        1 => format!("{sign}{}e{}", digits(prng, 25), prng.below(60) as i64 - 30),
        2 => format!("{sign}{}.{}e{}", digits(prng, 5), digits(prng, 5), prng.below(9) as i64 - 4),
        3 => pick(prng, &["3.0e3", "0.1", "1e4900", "-1e4900", "1e-4900", "inf", "-inf", "0"]),
        4 => format!("{sign}{}.{}", digits(prng, 30), digits(prng, 40)),
        5 => pick(
            prng,
            &["nan", "x", "", " 1", "1 ", "1,5", "0x", "1e", "--1", "infinity", "1e5000"],
        ),
        _ => format!("{sign}{}.{}", digits(prng, 6), digits(prng, 4)),
    }
}

/// Bytes that no client library sends: broken headers, lines with quotes, replies turned off.
pub(super) fn raw(prng: &mut Prng) -> Vec<u8> {
    const WHOLE: &[&[u8]] = &[
        b"\r\n",
        b"\n",
        b"   \r\n",
        b"*0\r\n",
        b"*-1\r\n",
        b"*-7\r\n",
        b"PING\n",
        b"ping 'a b' \r\n",
        b"set k1 \"a\\x41\\n\\t\\\"b\"\r\n",
        b"set k2 'it\\'s'\r\n",
        b"get \"\"\r\n",
        b"echo \"\xff\\xzz\"\r\n",
        b"echo 'a'b\r\n",
        b"echo \"open\r\n",
        b"echo a\"b\"\r\n",
        b"GET / HTTP/1.1\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"*2\r\n$4\r\nECHO\r\n$3\r\nabcXX",
        b"*1\r\n$0\r\n\r\n",
        b"*2\r\n$0\r\n\r\n$1\r\nx\r\n",
        b"*3\r\n$3\r\nSET\r\n$2\r\nk1\r\n$-1\r\n",
        b"*1\r\n$x\r\n",
        b"*x\r\n",
        b"*\r\n",
        b"*1\r\n\r\n",
        b"*1\r\nPING\r\n",
        b"*1\r\n:5\r\n",
        b"*99999999999\r\n",
        b"*1\r\n$53687091300000\r\n",
        b"*1\r\n$99999999999999999999\r\n",
        b"*01\r\n$4\r\nPING\r\n",
        b"*1\r\n$04\r\nPING\r\n",
        b"*1\r\n$4\r\nPIN\r\n\r\n",
        b"$4\r\nPING\r\n",
        b"+OK\r\n",
        b"*1\r\n$4\nPING\r\n",
        b"*2\r\n*1\r\n$4\r\nECHO\r\n",
        b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\n*1\r\n$4\r\nPING\r\n*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$2\r\nON\r\n",
        b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$4\r\nSKIP\r\n*1\r\n$4\r\nPING\r\n",
        b"client reply skip\r\nclient reply skip\r\nincr k3\r\n",
    ];
    let mut bytes = prng.pick(WHOLE).to_vec();
    // Where replies are off, redis-server neither answers a protocol error nor closes.
    let turns_replies_off = bytes.to_ascii_lowercase().windows(6).any(|word| word == b"client");
    match prng.below(if turns_replies_off { 1 } else { 6 }) {
        _ if turns_replies_off => {}
        0 => {
            let at = prng.below(bytes.len() as u64) as usize;
            // Never a digit: a length may then announce more than will ever come.
            bytes[at] = *prng.pick(b"*$\r\n '\"xX-+:\x01\xff");
        }
        1 if bytes.len() > 2 => {
            let at = prng.below(bytes.len() as u64) as usize;
            bytes.remove(at);
        }
        _ => {}
    }
    bytes
}

fn pick(prng: &mut Prng, words: &[&str]) -> String {
    (*prng.pick(words)).to_string()
}
