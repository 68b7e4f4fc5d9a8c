//! Random commands on lists: few keys and elements, so that they meet.

use base::Prng;

/// Names with the kinds of their arguments, one letter each: see [`argument`].
const TEMPLATES: &[(&str, &str)] = &[
    ("LPUSH", "lE"),
    ("LPUSH", "lE"),
    ("RPUSH", "lE"),
    ("RPUSH", "lE"),
    ("LPUSHX", "lE"),
    ("RPUSHX", "lE"),
    ("LPOP", "l"),
    ("LPOP", "lc"),
    ("RPOP", "l"),
    ("RPOP", "lc"),
    ("LLEN", "l"),
    ("LRANGE", "lii"),
    ("LRANGE", "la"),
    ("LINDEX", "li"),
    ("LSET", "lie"),
    ("LREM", "lie"),
    ("LTRIM", "lii"),
    ("LTRIM", "lii"),
    ("LINSERT", "lbee"),
    ("LPOS", "leo"),
    ("LPOS", "leoo"),
    ("LMOVE", "mss"),
    ("RPOPLPUSH", "m"),
    ("LMPOP", "Msn"),
    ("OBJECT", "xl"),
    ("OBJECT", "xl"),
    ("TYPE", "l"),
    ("DEL", "l"),
    ("EXPIRE", "lt"),
    ("TTL", "l"),
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
        'l' => key(prng),
        // One key twice: several keys are not read at one time.
        'm' => {
            let key = key(prng);
            words.push(key.clone());
            key
        }
        'M' => {
            let key = key(prng);
            let count = prng.between(1, 3);
            words.push(count.to_string());
            (1..count).for_each(|_| words.push(key.clone()));
            key
        }
        'e' => element(prng),
        'E' => {
            (0..prng.below(6)).for_each(|_| words.push(element(prng)));
            element(prng)
        }
        'i' => index(prng),
        'a' => {
            words.push("0".to_owned());
            "-1".to_owned()
        }
        'c' => pick(prng, &["0", "1", "2", "3", "100", "-1", "x", "", "9223372036854775807"]),
        'b' => pick(prng, &["BEFORE", "AFTER", "before", "After", "NEAR"]),
        's' => pick(prng, &["LEFT", "RIGHT", "left", "Right", "LEFT", "RIGHT", "UP"]),
        'o' => return option(prng, words),
        'n' => {
            if prng.chance_ppm(500_000) {
                return;
            }
            words.push("COUNT".to_owned());
            pick(prng, &["1", "2", "10", "0", "-1", "x", ""])
        }
        'x' => pick(prng, &["ENCODING", "ENCODING", "encoding", "REFCOUNT"]),
        't' => pick(prng, &["1000000", "2000000", "-1"]),
        other => unreachable!("no argument is of kind {other}"),
    };
    words.push(word);
}

/// Rarely a key that holds a string.
fn key(prng: &mut Prng) -> String {
    match prng.below(30) {
        0 => "k0".to_owned(),
        n => format!("l{}", n % 3),
    }
}

/// Some are so large that encodings change.
fn element(prng: &mut Prng) -> String {
    match prng.below(40) {
        0 => String::new(),
        1 => pick(prng, &["9223372036854775807", "-1", "007", "1.0", "-0", "128", "-5000"]),
        2 => "y".repeat(prng.between(3_000, 5_000) as usize),
        3 => "z".repeat(prng.between(8_100, 8_200) as usize),
        4 => "w".repeat(prng.below(300) as usize),
        n if n < 12 => prng.below(5).to_string(),
        _ => pick(prng, &["a", "b", "c", "d"]),
    }
}

/// Never so large that redis-server cuts it to 32 bits: see the list of deviations.
fn index(prng: &mut Prng) -> String {
    match prng.below(16) {
        0 => pick(prng, &["x", "", "1.5", "9223372036854775808", "2147483647", "-2147483648"]),
        _ => (prng.below(14) as i64 - 7).to_string(),
    }
}

fn option(prng: &mut Prng, words: &mut Vec<String>) {
    let name = pick(prng, &["RANK", "COUNT", "MAXLEN", "rank", "count", "maxlen", "NOPE"]);
    let value = match prng.below(8) {
        0 => pick(prng, &["x", "", "9223372036854775807", "-9223372036854775808"]),
        _ => (prng.below(8) as i64 - 3).to_string(),
    };
    words.push(name);
    if !prng.chance_ppm(30_000) {
        words.push(value);
    }
}

fn pick(prng: &mut Prng, words: &[&str]) -> String {
    (*prng.pick(words)).to_owned()
}
