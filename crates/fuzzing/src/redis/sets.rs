//! Random commands on sets: few keys and members, so that they meet.
//!
//! Large sets have keys of their own, because redis-server gives a hash table no order. No command
//! removes random members: the two would go on with different sets.

use base::Prng;

use super::deviations::UNORDERED;

/// Names with the kinds of their arguments, one letter each: see [`argument`].
const TEMPLATES: &[(&str, &str)] = &[
    ("SADD", "sM"),
    ("SADD", "sM"),
    ("SADD", "sM"),
    ("SADD", "bN"),
    ("SADD", "bN"),
    ("SREM", "sM"),
    ("SREM", "bN"),
    ("SMEMBERS", "s"),
    ("SMEMBERS", "b"),
    ("SISMEMBER", "sm"),
    ("SISMEMBER", "bn"),
    ("SMISMEMBER", "sM"),
    ("SMISMEMBER", "bN"),
    ("SCARD", "s"),
    ("SCARD", "b"),
    ("SPOP", "sa"),
    ("SPOP", "ba"),
    ("SRANDMEMBER", "s"),
    ("SRANDMEMBER", "sr"),
    ("SRANDMEMBER", "br"),
    ("SSCAN", "sc"),
    ("SSCAN", "bc"),
    ("SMOVE", "2m"),
    ("SINTER", "+"),
    ("SUNION", "+"),
    ("SDIFF", "+"),
    ("SINTERSTORE", "2"),
    ("SUNIONSTORE", "2"),
    ("SDIFFSTORE", "2"),
    ("SINTERCARD", "#"),
    ("SINTERCARD", "#l"),
    ("OBJECT", "es"),
    ("OBJECT", "eb"),
    ("TYPE", "s"),
    ("DEL", "s"),
    ("DEL", "b"),
    ("EXPIRE", "st"),
];

/// A command.
pub(super) fn draw(prng: &mut Prng) -> Vec<Vec<u8>> {
    let (name, kinds) = *prng.pick(TEMPLATES);
    let name = if prng.chance_ppm(100_000) { name.to_lowercase() } else { name.to_owned() };
    let mut words = vec![name];
    kinds.chars().for_each(|kind| argument(prng, kind, &mut words));
    words.into_iter().map(String::into_bytes).collect()
}

fn argument(prng: &mut Prng, kind: char, words: &mut Vec<String>) {
    let word = match kind {
        's' => key(prng),
        'b' => format!("{UNORDERED}s{}", prng.below(2)),
        'm' => member(prng),
        'M' => {
            (0..prng.below(6)).for_each(|_| words.push(member(prng)));
            member(prng)
        }
        'n' => large_member(prng),
        'N' => return large_members(prng, words),
        'a' => pick(prng, &["100000", "100000", "0", "-1", "x", "", "9223372036854775807"]),
        'r' => pick(prng, &["1000", "0", "1", "3", "-3", "x", "-9223372036854775808", "1.0"]),
        'c' => return scan(prng, words),
        // One key several times: several keys are not read at one time.
        '2' => {
            let key = key(prng);
            words.push(key.clone());
            key
        }
        '+' => {
            let key = key(prng);
            (0..prng.below(3)).for_each(|_| words.push(key.clone()));
            key
        }
        '#' => {
            let (key, count) = (key(prng), prng.between(1, 3));
            words.push(pick(prng, &[&count.to_string(), &count.to_string(), "0", "9", "x"]));
            (1..count).for_each(|_| words.push(key.clone()));
            key
        }
        'l' => {
            words.push("LIMIT".to_owned());
            pick(prng, &["0", "1", "2", "100", "-1", "x"])
        }
        'e' => pick(prng, &["ENCODING", "ENCODING", "encoding", "REFCOUNT"]),
        't' => pick(prng, &["1000000", "2000000", "-1"]),
        other => unreachable!("no argument is of kind {other}"),
    };
    words.push(word);
}

/// Rarely a key that holds another type.
fn key(prng: &mut Prng) -> String {
    match prng.below(30) {
        0 => "k0".to_owned(),
        n => format!("s{}", n % 3),
    }
}

fn member(prng: &mut Prng) -> String {
    const ODD: &[&str] = &[
        "",
        "01",
        "-0",
        "+1",
        " 1",
        "1.0",
        "x\r\n",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
    ];
    match prng.below(12) {
        0 => pick(prng, ODD),
        1..=6 => (prng.below(12) as i64 - 3).to_string(),
        _ => pick(prng, &["a", "b", "c", "d", "ab"]),
    }
}

/// Some are so long that encodings change.
fn large_member(prng: &mut Prng) -> String {
    match prng.below(40) {
        0 => "x".repeat(prng.between(60, 68) as usize),
        1..=5 => format!("t{}", prng.below(300)),
        _ => (prng.below(700) as i64 - 50).to_string(),
    }
}

/// Some are so many that encodings change.
fn large_members(prng: &mut Prng, words: &mut Vec<String>) {
    if prng.chance_ppm(400_000) {
        let first = prng.below(400);
        let count = *prng.pick(&[1, 64, 127, 128, 129, 130, 511, 512, 513]);
        return words.extend((first..first + count).map(|number| number.to_string()));
    }
    let count = match prng.below(6) {
        0 => prng.below(600),
        1 => prng.between(120, 140),
        _ => prng.below(40),
    };
    (0..=count).for_each(|_| words.push(large_member(prng)));
}

/// All members in one call: the cursors of the two differ.
fn scan(prng: &mut Prng, words: &mut Vec<String>) {
    words.extend(["0", "COUNT", "100000"].map(str::to_owned));
    match prng.below(8) {
        0 | 1 => words.extend(["MATCH".to_owned(), pick(prng, &["*1*", "a", "*", "[0-5]"])]),
        2 => words.push("NOVALUES".to_owned()),
        3 => words[2] = pick(prng, &["x", "-1", ""]),
        4 => words[4] = pick(prng, &["0", "-5", "x"]),
        _ => {}
    }
}

fn pick(prng: &mut Prng, words: &[&str]) -> String {
    (*prng.pick(words)).to_owned()
}
