//! Random commands on keys of any type, and values that go from one store to the other as dumps.

use anyhow::{Context, Result, ensure};
use base::Prng;
use resp::Reply;

use crate::support::{Store, heard, render};
use crate::{Server, pick};

const KEYS: &[&str] = &["a", "b", "c", "d", "w_1", "w_2", "w_3"];
const NAMES: &[&str] = &["1", "2", "3", "-4", "10", "x", "y", "70000", "", "2.5"];
const FAR: u64 = 60_000_000_000;

pub(crate) fn run(server: &mut Server, seed: u64, steps: u64) -> Result<()> {
    let mut prng = Prng::new(seed);
    let mut store = Store::new(1_700_000_000_000);
    server.call(&line("FLUSHALL"))?;
    for step in 0..steps {
        let command = draw(&mut prng);
        if converts(&mut store, &command) {
            continue;
        }
        compare(server, &mut store, &command).with_context(|| format!("step {step}"))?;
        if step % 4 == 0 {
            let key = pick(&mut prng, KEYS);
            exchange(server, &mut store, &key).with_context(|| format!("step {step}, {key}"))?;
        }
    }
    println!("seed {seed}: {steps} commands, all replies and dumps agree");
    Ok(())
}

/// redis-server gives a sorted set its large encoding when it sorts one. Reads change none here.
fn converts(store: &mut Store, command: &[Vec<u8>]) -> bool {
    let is_sort = command[0].starts_with(b"SORT");
    let mut type_of = |key: &[u8]| heard(store.execute(&[b"TYPE".as_slice(), key]));
    is_sort && type_of(&command[1]) == Reply::Simple(b"zset".to_vec())
}

fn line(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn draw(prng: &mut Prng) -> Vec<Vec<u8>> {
    let (key, other) = (pick(prng, KEYS), pick(prng, KEYS));
    let name = |prng: &mut Prng| match prng.below(40) {
        0 => "long".repeat(17),
        1 => prng.below(600).to_string(),
        _ => pick(prng, NAMES),
    };
    let mut args: Vec<String> = match prng.below(22) {
        0 => vec!["SET".into(), key, name(prng)],
        1 | 2 => vec!["RPUSH".into(), key, name(prng), name(prng), name(prng)],
        3 | 4 => vec!["SADD".into(), key, name(prng), name(prng), name(prng)],
        5 | 6 => vec!["ZADD".into(), key, score(prng), name(prng), score(prng), name(prng)],
        7 | 8 => vec!["HSET".into(), key, name(prng), name(prng), name(prng), name(prng)],
        9 => {
            let end = (FAR * 1000 + prng.below(5)).to_string();
            vec!["HPEXPIREAT".into(), key, end, "FIELDS".into(), "1".into(), name(prng)]
        }
        10 => vec!["PEXPIREAT".into(), key, (FAR * 100 + prng.below(9)).to_string()],
        11 => vec!["DEL".into(), key],
        12 => {
            let replace = if prng.chance_ppm(600_000) { "REPLACE" } else { "DB" };
            let mut args = vec!["COPY".into(), key, other, replace.into()];
            args.extend((replace == "DB").then(|| "0".to_string()));
            args
        }
        13 => vec!["RENAME".into(), key, other],
        14 => vec!["RENAMENX".into(), key, other],
        15 => vec![pick(prng, &["TYPE", "PEXPIRETIME", "DUMP", "EXISTS"]), key],
        16 => vec!["OBJECT".into(), "ENCODING".into(), key],
        17 => vec![pick(prng, &["SREM", "HDEL", "ZREM"]), key, name(prng), name(prng)],
        _ => sort(prng, key, other),
    };
    // HPEXPIREAT looks at its arguments before the key here, after it in Redis.
    if args[0] != "HPEXPIREAT" && prng.chance_ppm(20_000) {
        args.push(pick(prng, &["REPLACE", "NOPE", "0"]));
    }
    args.into_iter().map(String::into_bytes).collect()
}

fn score(prng: &mut Prng) -> String {
    pick(prng, &["1", "2", "-1", "0.5", "inf", "1e300", "-0", "70000", "1.25"])
}

fn sort(prng: &mut Prng, key: String, other: String) -> Vec<String> {
    const PATTERNS: &[&str] = &["w_*", "w_*->1", "#", "*", "none", "w_*->", "none_*"];
    let mut args = vec![pick(prng, &["SORT", "SORT", "SORT_RO"]), key];
    let mut has_by = false;
    for _ in 0..prng.below(5) {
        match prng.below(7) {
            0 | 1 if !has_by => {
                has_by = true;
                args.extend(["BY".into(), pick(prng, PATTERNS)]);
            }
            2 | 3 => args.extend(["GET".into(), pick(prng, PATTERNS)]),
            4 => args.push(pick(prng, &["ASC", "DESC"])),
            5 if !has_by => {
                has_by = true;
                args.push("ALPHA".into());
            }
            6 if args[0] == "SORT" => args.extend(["STORE".into(), other.clone()]),
            _ => {
                let number = |prng: &mut Prng| (prng.below(7) as i64 - 1).to_string();
                args.extend(["LIMIT".into(), number(prng), number(prng)]);
            }
        }
    }
    args
}

fn compare(server: &mut Server, store: &mut Store, command: &[Vec<u8>]) -> Result<()> {
    let is_dump = command[0] == b"DUMP";
    let has_order = !is_dump || {
        let key = String::from_utf8_lossy(&command[1]).to_string();
        let name = render(&heard(store.execute(&line(&format!("OBJECT ENCODING {key}")))));
        // An intset of Redis stays as wide as it ever was.
        let vary = ["\"hashtable\"", "\"listpackex\"", "\"quicklist\"", "\"intset\""];
        !vary.contains(&name.as_str())
    };
    let (ours, theirs) = (heard(store.execute(command)), server.call(command)?);
    let text = command.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>();
    let is_same = ours == theirs || !has_order || may_differ(command, &ours, &theirs);
    ensure!(
        is_same,
        "{}\nredis-server: {}\nthis crate:   {}",
        text.join(" "),
        render(&theirs),
        render(&ours)
    );
    Ok(())
}

/// Members of tables have no order.
fn may_differ(command: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let is = |names: &[&str]| names.iter().any(|name| command[0] == name.as_bytes());
    let has = |word: &[u8]| command.iter().any(|arg| arg == word);
    let is_unsorted = has(b"BY") && (has(b"none") || has(b"#"));
    match (sorted(ours), sorted(theirs)) {
        (Some(a), Some(b)) if is(&["SMEMBERS", "HGETALL"]) => a == b,
        (Some(a), Some(b)) if is(&["SORT", "SORT_RO"]) && is_unsorted => {
            a == b || has(b"LIMIT") && a.len() == b.len()
        }
        _ => false,
    }
}

fn sorted(reply: &Reply) -> Option<Vec<String>> {
    let mut all: Vec<String> = match reply {
        Reply::Array(all) | Reply::Set(all) => all.iter().map(render).collect(),
        Reply::Map(all) => all.iter().map(|(k, v)| render(k) + &render(v)).collect(),
        _ => return None,
    };
    all.sort();
    Some(all)
}

/// Sends a value there and back, once as written here and once as written there.
fn exchange(server: &mut Server, store: &mut Store, key: &str) -> Result<()> {
    let Reply::Bulk(dump) = heard(store.execute(&line(&format!("DUMP {key}")))) else {
        return Ok(());
    };
    let mut restore = line("RESTORE sent 0 dump REPLACE");
    restore[3] = dump;
    ensure!(server.call(&restore)? == Reply::Simple(b"OK".to_vec()), "DUMP is refused there");
    server.call(&line("CONFIG SET rdbcompression yes"))?;
    let theirs = server.call(&line(&format!("DUMP {key}")))?;
    server.call(&line("CONFIG SET rdbcompression no"))?;
    let Reply::Bulk(dump) = theirs else { anyhow::bail!("no DUMP there: {theirs:?}") };
    restore[3] = dump;
    let ours = heard(store.execute(&restore));
    ensure!(ours == Reply::Simple(b"OK".to_vec()), "DUMP is refused here: {}", render(&ours));
    for read in [
        "TYPE sent",
        "OBJECT ENCODING sent",
        "GET sent",
        "LRANGE sent 0 -1",
        "SMEMBERS sent",
        "ZRANGE sent 0 -1 WITHSCORES",
        "HGETALL sent",
        "HPEXPIRETIME sent FIELDS 6 1 2 3 x y 10",
    ] {
        compare(server, store, &line(read))?;
    }
    compare(server, store, &line("DEL sent"))
}
