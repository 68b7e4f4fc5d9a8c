//! Random commands on hashes: few keys and fields, so that they meet.
//!
//! Large hashes have keys of their own, because redis-server gives a hash table no order. Ends of
//! fields lie far ahead or in the past: none comes while the comparison runs.

use base::Prng;

use super::deviations::UNORDERED;

/// Names with the kinds of their arguments, one letter each: see [`argument`].
const TEMPLATES: &[(&str, &str)] = &[
    ("HSET", "hP"),
    ("HSET", "hP"),
    ("HSET", "hP"),
    ("HSET", "bQ"),
    ("HSET", "bQ"),
    ("HMSET", "hP"),
    ("HMSET", "bQ"),
    ("HSETNX", "hfv"),
    ("HSETNX", "bgv"),
    ("HGET", "hf"),
    ("HGET", "bg"),
    ("HMGET", "hF"),
    ("HMGET", "bG"),
    ("HGETALL", "h"),
    ("HGETALL", "b"),
    ("HKEYS", "h"),
    ("HKEYS", "b"),
    ("HVALS", "h"),
    ("HVALS", "b"),
    ("HLEN", "h"),
    ("HLEN", "b"),
    ("HDEL", "hF"),
    ("HDEL", "bG"),
    ("HEXISTS", "hf"),
    ("HSTRLEN", "hf"),
    ("HINCRBY", "hfi"),
    ("HINCRBY", "hfi"),
    ("HINCRBY", "bgi"),
    ("HINCRBYFLOAT", "hfd"),
    ("HINCRBYFLOAT", "hfd"),
    ("HRANDFIELD", "h"),
    ("HRANDFIELD", "hr"),
    ("HRANDFIELD", "hrw"),
    ("HRANDFIELD", "brw"),
    ("HSCAN", "hs"),
    ("HSCAN", "bs"),
    ("HEXPIRE", "htcN"),
    ("HPEXPIRE", "htcN"),
    ("HPEXPIREAT", "hmcN"),
    ("HPEXPIREAT", "hmcN"),
    ("HPEXPIREAT", "hmcN"),
    ("HPEXPIREAT", "bmcO"),
    ("HEXPIREAT", "hucN"),
    ("HPERSIST", "hN"),
    ("HPERSIST", "bO"),
    ("HTTL", "hN"),
    ("HPTTL", "hN"),
    ("HEXPIRETIME", "hN"),
    ("HPEXPIRETIME", "hN"),
    ("HPEXPIRETIME", "bO"),
    ("OBJECT", "eo"),
    ("OBJECT", "eb"),
    ("TYPE", "h"),
    ("DEL", "h"),
    ("DEL", "b"),
    ("EXPIRE", "hk"),
];

/// Ends that are given as Unix times are later than those that are given as spans.
pub(super) const DEADLINES_FROM: i64 = 4_000_000_000_000;

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
        'h' => key(prng),
        // How a string is kept depends on the command that made it.
        'o' => format!("h{}", prng.below(3)),
        'b' => format!("{UNORDERED}h{}", prng.below(2)),
        'f' => field(prng),
        'F' => return several(prng, words, |prng| vec![field(prng)]),
        'P' => return several(prng, words, |prng| vec![field(prng), value(prng)]),
        'N' => return named(prng, words, field),
        'g' => large_field(prng),
        'G' => return several(prng, words, |prng| vec![large_field(prng)]),
        'Q' => return large_fields(prng, words),
        'O' => return named(prng, words, large_field),
        'v' => value(prng),
        'i' => integer(prng),
        'd' => decimal(prng),
        'r' => pick(prng, &["1000", "0", "1", "3", "-3", "x", "-9223372036854775808", "1.0"]),
        'w' => pick(prng, &["WITHVALUES", "withvalues", "WITHVALUES", "x"]),
        's' => return scan(prng, words),
        't' => span(prng),
        'm' => deadline(prng, ""),
        'u' => deadline(prng, "000"),
        'c' if prng.chance_ppm(600_000) => return,
        'c' => pick(prng, &["NX", "XX", "GT", "LT", "lt", "gt", "NOPE"]),
        'e' => pick(prng, &["ENCODING", "ENCODING", "encoding", "REFCOUNT"]),
        'k' => pick(prng, &["1000000", "2000000", "-1"]),
        other => unreachable!("no argument is of kind {other}"),
    };
    words.push(word);
}

/// Rarely a key that holds another type.
fn key(prng: &mut Prng) -> String {
    match prng.below(30) {
        0 => "k0".to_owned(),
        n => format!("h{}", n % 3),
    }
}

fn field(prng: &mut Prng) -> String {
    match prng.below(12) {
        0 => pick(prng, &["", "01", "-0", "12", "x\r\n", "9223372036854775807"]),
        _ => pick(prng, &["a", "b", "c", "d", "e", "ab", "1"]),
    }
}

/// Some are so long that encodings change.
fn large_field(prng: &mut Prng) -> String {
    match prng.below(60) {
        0 => "x".repeat(prng.between(60, 68) as usize),
        _ => format!("f{}", prng.below(700)),
    }
}

fn value(prng: &mut Prng) -> String {
    match prng.below(8) {
        0 => pick(prng, &["", " 1", "1 ", "01", "-0", "+1", "inf", "nan", "1e5000"]),
        1 => pick(prng, &["9223372036854775807", "-9223372036854775808", "9223372036854775808"]),
        2 => decimal(prng),
        3..=5 => (prng.below(300) as i64 - 20).to_string(),
        _ => "abcdefghij"[..prng.below(11) as usize].to_string(),
    }
}

fn integer(prng: &mut Prng) -> String {
    match prng.below(10) {
        0 => pick(prng, &["x", "", "1.5", "9223372036854775808", "+1"]),
        1 => pick(prng, &["9223372036854775807", "-9223372036854775808", "-9223372036854775807"]),
        _ => (prng.below(40) as i64 - 20).to_string(),
    }
}

/// Sums are short, so that a hash stays small.
fn decimal(prng: &mut Prng) -> String {
    match prng.below(10) {
        0 => pick(prng, &["inf", "-inf", "nan", "x", "", " 1", "1e5000", "0x1p3"]),
        1 => format!("{}e{}", prng.below(100), prng.below(20) as i64 - 10),
        _ => format!("{}.{}", prng.below(2000) as i64 - 1000, prng.below(1000)),
    }
}

fn several(prng: &mut Prng, words: &mut Vec<String>, one: impl Fn(&mut Prng) -> Vec<String>) {
    let count = prng.between(1, 5);
    (0..count).for_each(|_| words.extend(one(prng)));
}

/// Some are so many that encodings change.
fn large_fields(prng: &mut Prng, words: &mut Vec<String>) {
    let (first, count) = match prng.below(4) {
        0 => (prng.below(300), *prng.pick(&[1, 64, 511, 512, 513])),
        1 => (prng.below(700), prng.below(300)),
        _ => return several(prng, words, |prng| vec![large_field(prng), large_value(prng)]),
    };
    for number in first..=first + count {
        words.extend([format!("f{number}"), number.to_string()]);
    }
}

fn large_value(prng: &mut Prng) -> String {
    match prng.below(20) {
        0 => "y".repeat(prng.between(60, 68) as usize),
        _ => value(prng),
    }
}

/// `FIELDS numfields field [field …]`, mostly.
fn named(prng: &mut Prng, words: &mut Vec<String>, one: fn(&mut Prng) -> String) {
    let count = prng.between(1, 5);
    words.push(pick(prng, &["FIELDS", "FIELDS", "FIELDS", "FIELDS", "FIELDS", "fields", "FIELD"]));
    words.push(match prng.below(20) {
        0 => pick(prng, &["0", "-1", "x", "9", "9223372036854775807", ""]),
        _ => count.to_string(),
    });
    (0..count).for_each(|_| words.push(one(prng)));
}

/// Never the same twice, so that the order of ends does not hang on a millisecond.
fn span(prng: &mut Prng) -> String {
    match prng.below(12) {
        0 => pick(prng, &["-1", "abc", "9223372036854775807", "70368744177664", "1.5", ""]),
        1 => "0".to_owned(),
        _ => (10_000_000 + prng.below(1_000_000_000)).to_string(),
    }
}

/// Often the same, so that fields with one end meet. `rest` are digits that seconds lack.
fn deadline(prng: &mut Prng, rest: &str) -> String {
    let millis = match prng.below(14) {
        0 => pick(prng, &["-1000", "x", "9223372036854775807", "70368744178000", "1.5", ""]),
        1 => pick(prng, &["0", "1000", "1600000000000"]),
        _ => format!("400000000{}000", prng.below(5)),
    };
    millis.strip_suffix(rest).unwrap_or(&millis).to_owned()
}

/// All fields in one call: the cursors of the two differ.
fn scan(prng: &mut Prng, words: &mut Vec<String>) {
    words.extend(["0", "COUNT", "100000"].map(str::to_owned));
    match prng.below(8) {
        0 | 1 => words.extend(["MATCH".to_owned(), pick(prng, &["*1*", "a", "*", "[a-c]*"])]),
        2 => words.push("NOVALUES".to_owned()),
        3 => words[2] = pick(prng, &["x", "-1", ""]),
        4 => words[4] = pick(prng, &["0", "-5", "x"]),
        _ => {}
    }
}

fn pick(prng: &mut Prng, words: &[&str]) -> String {
    (*prng.pick(words)).to_owned()
}
