//! Random commands on sorted sets: few keys, members and scores, so that they meet.
//!
//! Members of different scores have no order by member in a skiplist. So keys `z…` hold anything
//! and see no ranges of members, keys `y…` hold equal scores, and keys `x…` stay listpacks, whose
//! order `ZSCAN` shows.

use base::Prng;

/// Names with the kinds of their arguments, one letter each: see [`argument`].
const TEMPLATES: &[(&str, &str)] = &[
    ("ZADD", "zP"),
    ("ZADD", "zP"),
    ("ZADD", "zP"),
    ("ZADD", "zoP"),
    ("ZADD", "zooP"),
    ("ZADD", "zoooP"),
    ("ZADD", "zIp"),
    ("ZADD", "zIop"),
    ("ZADD", "yQ"),
    ("ZADD", "yQ"),
    ("ZADD", "xR"),
    ("ZADD", "xR"),
    ("ZINCRBY", "zp"),
    ("ZREM", "zM"),
    ("ZREM", "yM"),
    ("ZCARD", "z"),
    ("ZSCORE", "zm"),
    ("ZMSCORE", "zM"),
    ("ZRANK", "zmw"),
    ("ZREVRANK", "zmw"),
    ("ZCOUNT", "zbb"),
    ("ZLEXCOUNT", "yee"),
    ("ZLEXCOUNT", "xee"),
    ("ZRANGE", "ziiO"),
    ("ZRANGE", "ziiO"),
    ("ZRANGE", "zbbBO"),
    ("ZRANGE", "zbbBO"),
    ("ZRANGE", "yeeLO"),
    ("ZRANGE", "xeeLO"),
    ("ZREVRANGE", "ziiW"),
    ("ZRANGEBYSCORE", "zbbO"),
    ("ZREVRANGEBYSCORE", "zbbO"),
    ("ZRANGEBYLEX", "yeeO"),
    ("ZRANGEBYLEX", "xeeO"),
    ("ZREVRANGEBYLEX", "yeeO"),
    ("ZREVRANGEBYLEX", "xeeO"),
    ("ZREMRANGEBYRANK", "zii"),
    ("ZREMRANGEBYSCORE", "zbb"),
    ("ZREMRANGEBYLEX", "yee"),
    ("ZREMRANGEBYLEX", "xee"),
    ("ZPOPMIN", "z"),
    ("ZPOPMIN", "zc"),
    ("ZPOPMAX", "z"),
    ("ZPOPMAX", "zc"),
    ("ZRANDMEMBER", "zr"),
    ("ZSCAN", "xs"),
    ("ZMPOP", "KqC"),
    ("ZUNION", "KA"),
    ("ZINTER", "KA"),
    ("ZDIFF", "KA"),
    ("ZINTERCARD", "Kl"),
    ("ZRANGESTORE", "DiiO"),
    ("ZRANGESTORE", "DbbBO"),
    ("ZUNIONSTORE", "TA"),
    ("ZINTERSTORE", "TA"),
    ("ZDIFFSTORE", "TA"),
    ("OBJECT", "Ez"),
    ("OBJECT", "Ez"),
    ("TYPE", "z"),
    ("DEL", "z"),
    ("EXPIRE", "zt"),
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
        'z' => key(prng, "z"),
        'y' => key(prng, "y"),
        'x' => key(prng, "x"),
        'K' => return sources(prng, words),
        'T' => {
            words.push(key(prng, "z"));
            return sources(prng, words);
        }
        'D' => {
            let (to, from) = keys_of_store(prng);
            words.push(to);
            from
        }
        'p' => {
            words.push(score(prng));
            member(prng)
        }
        'P' => return pairs(prng, words, MANY, |prng| (score(prng), member(prng))),
        'Q' => return pairs(prng, words, MANY, |prng| ("0".to_owned(), member(prng))),
        'R' => return pairs(prng, words, FEW, |prng| (score(prng), short_member(prng))),
        'm' => member(prng),
        'M' => {
            (0..prng.below(12)).for_each(|_| words.push(member(prng)));
            member(prng)
        }
        'o' => pick(prng, &["NX", "XX", "GT", "LT", "CH", "nx", "xx", "gt", "lt", "ch"]),
        'I' => "INCR".to_owned(),
        'i' => rank(prng),
        'b' => score_end(prng),
        'e' => member_end(prng),
        'B' => "BYSCORE".to_owned(),
        'L' => "BYLEX".to_owned(),
        'O' => return options_of_range(prng, words),
        'W' | 'w' if prng.chance_ppm(500_000) => return,
        'W' => "WITHSCORES".to_owned(),
        'w' => pick(prng, &["WITHSCORE", "withscore", "WITHSCORES"]),
        'c' => pick(prng, &["0", "1", "2", "5", "100", "-1", "x", ""]),
        'C' if prng.chance_ppm(500_000) => return,
        'C' => {
            words.push("COUNT".to_owned());
            pick(prng, &["1", "2", "10", "0", "-1", "x"])
        }
        // Only counts whose reply is certain.
        'r' => pick(prng, &["0", "1000", "100000", "x", "-9223372036854775808"]),
        's' => return words.extend(scan(prng)),
        'q' => pick(prng, &["MIN", "MAX", "min", "MID"]),
        'l' if prng.chance_ppm(500_000) => return,
        'l' => {
            words.push("LIMIT".to_owned());
            pick(prng, &["0", "1", "2", "100", "-1", "x"])
        }
        'A' => return options_of_union(prng, words),
        'E' => "ENCODING".to_owned(),
        't' => pick(prng, &["1000000", "2000000", "-1"]),
        other => unreachable!("no argument is of kind {other}"),
    };
    words.push(word);
}

/// Rarely a key that holds a string.
fn key(prng: &mut Prng, group: &str) -> String {
    match prng.below(40) {
        0 => "k0".to_owned(),
        n => format!("{group}{}", n % 3),
    }
}

/// One key, maybe several times: several keys are not read at one time.
fn sources(prng: &mut Prng, words: &mut Vec<String>) {
    let of_store = (words.len() > 1).then(|| words[1].clone());
    let key = of_store.unwrap_or_else(|| key(prng, "z"));
    let count = prng.between(1, 3);
    words.push(match prng.below(30) {
        0 => pick(prng, &["0", "-1", "x", "9"]),
        _ => count.to_string(),
    });
    (0..count).for_each(|_| words.push(key.clone()));
}

fn keys_of_store(prng: &mut Prng) -> (String, String) {
    let key = key(prng, "z");
    (key.clone(), key)
}

/// More pairs than a listpack holds, and fewer: members are too few to fill one.
const MANY: u64 = 140;
const FEW: u64 = 40;

fn pairs(
    prng: &mut Prng,
    words: &mut Vec<String>,
    most: u64,
    mut pair: impl FnMut(&mut Prng) -> (String, String),
) {
    let count = match prng.below(60) {
        0 => prng.between(most - 20, most),
        _ => prng.between(1, 8),
    };
    for _ in 0..count {
        let (score, member) = pair(prng);
        words.extend([score, member]);
    }
}

fn score(prng: &mut Prng) -> String {
    match prng.below(20) {
        0 => pick(prng, &["inf", "-inf", "+Infinity", "-0", "nan", "", "x", "1e400", " 1", "1 "]),
        1 => pick(prng, &["0x10", "1e5", "5e-324", "1.7976931348623157e308", "-1e-7", "1e23"]),
        2 => f64::from_bits(prng.next_u64()).to_string(),
        3..6 => format!("{}.{}", prng.below(4), prng.below(100)),
        _ => (prng.below(9) as i64 - 4).to_string(),
    }
}

/// Some are so long that encodings change.
fn member(prng: &mut Prng) -> String {
    match prng.below(150) {
        0 => "z".repeat(prng.between(64, 66) as usize),
        _ => short_member(prng),
    }
}

fn short_member(prng: &mut Prng) -> String {
    match prng.below(20) {
        0 => String::new(),
        1 => pick(prng, &["1", "-1", "007", "10", "9", "a\n", "\0", "é"]),
        2..6 => format!("m{}", prng.below(60)),
        n => char::from(b'a' + (n % 8) as u8).to_string(),
    }
}

fn rank(prng: &mut Prng) -> String {
    match prng.below(30) {
        0 => pick(prng, &["x", "", "1.5", "9223372036854775808", "-9223372036854775808"]),
        _ => (prng.below(16) as i64 - 8).to_string(),
    }
}

fn score_end(prng: &mut Prng) -> String {
    let open = if prng.chance_ppm(300_000) { "(" } else { "" };
    match prng.below(6) {
        0 => format!("{open}{}", pick(prng, &["-inf", "+inf", "inf"])),
        _ => format!("{open}{}", score(prng)),
    }
}

fn member_end(prng: &mut Prng) -> String {
    match prng.below(8) {
        0 | 1 => pick(prng, &["-", "+"]),
        2 => pick(prng, &["", "a", "-x", "[", "("]),
        n => format!("{}{}", if n < 5 { "(" } else { "[" }, short_member(prng)),
    }
}

fn options_of_range(prng: &mut Prng, words: &mut Vec<String>) {
    for _ in 0..prng.below(3) {
        match prng.below(10) {
            0 => words.push(pick(prng, &["BYSCORE", "NOPE", "LIMIT"])),
            1..4 => words.push("WITHSCORES".to_owned()),
            4..6 => words.push(pick(prng, &["REV", "rev"])),
            _ => {
                let (offset, count) = (limit(prng), limit(prng));
                words.extend(["LIMIT".to_owned(), offset, count]);
            }
        }
    }
}

fn limit(prng: &mut Prng) -> String {
    match prng.below(20) {
        0 => pick(prng, &["x", "9223372036854775807", "-9223372036854775808"]),
        _ => (prng.below(9) as i64 - 3).to_string(),
    }
}

fn options_of_union(prng: &mut Prng, words: &mut Vec<String>) {
    for _ in 0..prng.below(3) {
        match prng.below(8) {
            0 => words.push(pick(prng, &["NOPE", "WEIGHTS", "AGGREGATE", "LIMIT"])),
            1..4 => words.push("WITHSCORES".to_owned()),
            4..6 => {
                let how = pick(prng, &["SUM", "MIN", "MAX", "min", "AVG"]);
                words.extend(["AGGREGATE".to_owned(), how]);
            }
            _ => {
                words.push("WEIGHTS".to_owned());
                (0..prng.between(1, 3)).for_each(|_| words.push(score(prng)));
            }
        }
    }
}

fn scan(prng: &mut Prng) -> Vec<String> {
    let mut words = vec!["0".to_owned(), "COUNT".to_owned(), "100000".to_owned()];
    match prng.below(6) {
        0 => words.extend(["MATCH".to_owned(), "[a-c]*".to_owned()]),
        1 => words = vec![pick(prng, &["x", "", "-1"])],
        2 => words[2] = pick(prng, &["0", "-5", "x"]),
        3 => words.push(pick(prng, &["NOVALUES", "NOPE", "MATCH"])),
        _ => {}
    }
    words
}

fn pick(prng: &mut Prng, words: &[&str]) -> String {
    (*prng.pick(words)).to_owned()
}
