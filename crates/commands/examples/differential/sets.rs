//! Random commands on sets of one and of several keys, on small sets and on large ones.

use anyhow::{Context, Result, ensure};
use base::Prng;
use resp::Reply;

use crate::support::{Store, heard, render};
use crate::{Server, pick};

const KEYS: &[&str] = &["s0", "s1", "s2", "s3"];
/// redis-server gives large sets no order.
const LARGE_KEYS: &[&str] = &["large0", "large1", "large2"];
const COMMANDS_OF_A_SEQUENCE: usize = 60;

pub(crate) fn run(server: &mut Server, seed: u64, sequences: u64) -> Result<()> {
    for seed in seed..seed + sequences {
        sequence(server, seed).with_context(|| format!("seed {seed}"))?;
    }
    println!("{sequences} sequences from seed {seed}: all replies and encodings equal");
    Ok(())
}

fn sequence(server: &mut Server, seed: u64) -> Result<()> {
    let mut prng = Prng::new(seed);
    let mut store = Store::new(1_700_000_000_000);
    server.call(&[b"FLUSHALL".to_vec()])?;
    for _ in 0..COMMANDS_OF_A_SEQUENCE {
        let is_large = prng.chance_ppm(300_000);
        compare(server, &mut store, &draw(&mut prng, is_large), is_large)?;
        for key in KEYS.iter().chain(LARGE_KEYS) {
            let command = ["OBJECT", "ENCODING", key].map(str::to_owned);
            compare(server, &mut store, &command, false)?;
        }
    }
    Ok(())
}

fn compare(
    server: &mut Server,
    store: &mut Store,
    command: &[String],
    is_unordered: bool,
) -> Result<()> {
    let args: Vec<Vec<u8>> = command.iter().map(|word| word.clone().into_bytes()).collect();
    let (mut ours, mut theirs) = (heard(store.execute(&args)), server.call(&args)?);
    if is_unordered {
        sort(&mut ours);
        sort(&mut theirs);
    }
    ensure!(
        ours == theirs,
        "{}\nredis-server: {}\nthis crate:   {}",
        command.join(" "),
        render(&theirs),
        render(&ours)
    );
    Ok(())
}

/// Sorts members, also those behind a cursor.
fn sort(reply: &mut Reply) {
    match reply {
        Reply::Array(page) if matches!(page.as_slice(), [Reply::Bulk(_), Reply::Array(_)]) => {
            sort(&mut page[1]);
        }
        Reply::Set(members) | Reply::Array(members) => members.sort_by_key(render),
        _ => {}
    }
}

/// No command draws members at random.
fn draw(prng: &mut Prng, is_large: bool) -> Vec<String> {
    let name = pick(
        prng,
        &[
            "SADD",
            "SADD",
            "SADD",
            "SREM",
            "SMEMBERS",
            "SISMEMBER",
            "SMISMEMBER",
            "SCARD",
            "SPOP",
            "SRANDMEMBER",
            "SSCAN",
            "SMOVE",
            "SINTER",
            "SUNION",
            "SDIFF",
            "SINTERSTORE",
            "SUNIONSTORE",
            "SDIFFSTORE",
            "SINTERCARD",
            "DEL",
        ],
    );
    let key = key(prng, is_large);
    let rest = match name.as_str() {
        "SADD" | "SREM" | "SMISMEMBER" => [vec![key], members(prng, is_large)].concat(),
        "SISMEMBER" => vec![key, member(prng, is_large)],
        "SPOP" => vec![key, pick(prng, &["5000", "0", "x", "-1"])],
        "SRANDMEMBER" => vec![key, pick(prng, &["5000", "0", "x"])],
        "SSCAN" => [&key, "0", "COUNT", "100000", "MATCH", "*1*"].map(str::to_owned).to_vec(),
        "SMOVE" => vec![key, self::key(prng, is_large), member(prng, is_large)],
        "SINTER" | "SUNION" | "SDIFF" => keys(prng, is_large),
        "SINTERSTORE" | "SUNIONSTORE" | "SDIFFSTORE" => [vec![key], keys(prng, is_large)].concat(),
        "SINTERCARD" => {
            let keys = keys(prng, is_large);
            let limit = ["LIMIT".to_owned(), prng.below(5).to_string()].to_vec();
            [vec![keys.len().to_string()], keys, limit].concat()
        }
        _ => vec![key],
    };
    [vec![name], rest].concat()
}

fn key(prng: &mut Prng, is_large: bool) -> String {
    pick(prng, if is_large { LARGE_KEYS } else { KEYS })
}

fn keys(prng: &mut Prng, is_large: bool) -> Vec<String> {
    (0..=prng.below(5)).map(|_| key(prng, is_large)).collect()
}

/// Some are so many that encodings change.
fn members(prng: &mut Prng, is_large: bool) -> Vec<String> {
    if !is_large {
        return (0..=prng.below(6)).map(|_| member(prng, false)).collect();
    }
    if prng.chance_ppm(400_000) {
        let first = prng.below(400);
        let count = *prng.pick(&[1, 64, 127, 128, 129, 130, 511, 512, 513]);
        return (first..first + count).map(|number| number.to_string()).collect();
    }
    let count = match prng.below(6) {
        0 => prng.below(700),
        1 => prng.between(120, 140),
        _ => prng.below(40),
    };
    (0..=count).map(|_| member(prng, true)).collect()
}

fn member(prng: &mut Prng, is_large: bool) -> String {
    const ODD: &[&str] =
        &["", "01", "-0", "+1", " 1", "1.0", "9223372036854775807", "9223372036854775808"];
    match (is_large, prng.below(40)) {
        (true, 0) => "x".repeat(prng.between(60, 68) as usize),
        (true, 1..=5) => format!("t{}", prng.below(300)),
        (true, _) => (prng.below(700) as i64 - 50).to_string(),
        (false, 0..=3) => pick(prng, ODD),
        (false, 4..=20) => (prng.below(12) as i64 - 3).to_string(),
        (false, _) => pick(prng, &["a", "b", "c", "d", "ab"]),
    }
}
