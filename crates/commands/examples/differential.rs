//! Compares this crate with a running redis-server, reply by reply.
//!
//! `differential ADDRESS random [SEED [COMMANDS]]`: random commands, until a reply differs.
//! `differential ADDRESS decimals [SEED [SUMS]]`: random sums of decimal fractions, likewise.
//! `differential ADDRESS record FILE…`: writes the server's replies into scripts (`tests/conformance`).
//! The server's keys are deleted. The expected version is 7.0.15: others have other texts.

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use base::Prng;
use resp::{Reply, ReplyParser, encode};
use support::{Store, render};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [address, mode @ ("random" | "decimals"), rest @ ..] => {
            let number = |index: usize, default: u64| {
                rest.get(index).map_or(Ok(default), |text| text.parse())
            };
            let compare = if *mode == "random" { random } else { decimals };
            compare(&mut Server::connect(address)?, number(0, 1)?, number(1, 100_000)?)
        }
        [address, "record", files @ ..] => {
            let mut server = Server::connect(address)?;
            files.iter().try_for_each(|file| record(&mut server, file))
        }
        _ => bail!(
            "usage: differential ADDRESS random|decimals [SEED [COUNT]] | ADDRESS record FILE…"
        ),
    }
}

/// A connection that speaks RESP3.
struct Server {
    stream: TcpStream,
    buf: Vec<u8>,
    parser: ReplyParser,
}

impl Server {
    fn connect(address: &str) -> Result<Server> {
        let stream = TcpStream::connect(address).context("no redis-server there")?;
        stream.set_nodelay(true)?;
        let mut server = Server { stream, buf: Vec::new(), parser: ReplyParser::default() };
        let hello = server.call(&[b"HELLO".to_vec(), b"3".to_vec()])?;
        ensure!(matches!(hello, Reply::Map(_)), "no RESP3: {}", render(&hello));
        Ok(server)
    }

    fn call(&mut self, args: &[Vec<u8>]) -> Result<Reply> {
        let mut out = Vec::new();
        encode::request(&mut out, args);
        self.stream.write_all(&out)?;
        loop {
            if let Some((reply, len)) = self.parser.next(&self.buf)? {
                self.buf.drain(..len);
                return Ok(reply);
            }
            let mut piece = [0; 16 * 1024];
            let len = self.stream.read(&mut piece)?;
            ensure!(len > 0, "the server closed the connection");
            self.buf.extend_from_slice(&piece[..len]);
        }
    }
}

fn record(server: &mut Server, file: &str) -> Result<()> {
    let script = std::fs::read_to_string(file).with_context(|| file.to_string())?;
    let mut failure = None;
    let recorded = support::replay(
        &support::parse(&script),
        |args| {
            server.call(args).unwrap_or_else(|error| {
                failure = Some(error);
                Reply::Null
            })
        },
        |millis| std::thread::sleep(Duration::from_millis(millis)),
    );
    failure.map_or(Ok(()), Err)?;
    std::fs::write(file, recorded).with_context(|| file.to_string())
}

fn random(server: &mut Server, seed: u64, commands: u64) -> Result<()> {
    let mut prng = Prng::new(seed);
    let mut store = Store::new(0);
    server.call(&[b"FLUSHALL".to_vec()])?;
    for number in 0..commands {
        let command = match number % 500 {
            // A value that is no string, for as long as nothing replaces it.
            0 => [b"DEL".as_slice(), b"list"].map(<[u8]>::to_vec).to_vec(),
            1 => [b"RPUSH".as_slice(), b"list", b"x"].map(<[u8]>::to_vec).to_vec(),
            _ => generate(&mut prng),
        };
        store.now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
        compare(server, &mut store, &command).with_context(|| format!("command {number}"))?;
    }
    println!("seed {seed}: {commands} commands, all replies equal");
    Ok(())
}

fn decimals(server: &mut Server, seed: u64, sums: u64) -> Result<()> {
    let mut prng = Prng::new(seed);
    let mut store = Store::new(0);
    for number in 0..sums {
        for verb in ["SET", "INCRBYFLOAT"] {
            let command = [verb.to_string(), "k".to_string(), decimal(&mut prng)];
            let command: Vec<Vec<u8>> = command.map(String::into_bytes).to_vec();
            compare(server, &mut store, &command).with_context(|| format!("sum {number}"))?;
        }
    }
    println!("seed {seed}: {sums} sums, all replies equal");
    Ok(())
}

fn compare(server: &mut Server, store: &mut Store, command: &[Vec<u8>]) -> Result<()> {
    let found = Reply::from_bytes(&store.execute(command))?;
    let expected = server.call(command)?;
    ensure!(
        agree(&command[0], &found, &expected),
        "{}\nredis-server: {}\nthis crate:   {}",
        command.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join(" "),
        render(&expected),
        render(&found),
    );
    Ok(())
}

/// The two clocks are read at different moments, so times may differ a little.
fn agree(name: &[u8], found: &Reply, expected: &Reply) -> bool {
    let slack = match name {
        b"TTL" | b"EXPIRETIME" => 1,
        b"PTTL" | b"PEXPIRETIME" => 2_000,
        _ => 0,
    };
    match (found, expected) {
        (Reply::Integer(a), Reply::Integer(b)) if *a > 0 && *b > 0 => a.abs_diff(*b) <= slack,
        _ => found == expected,
    }
}

/// A random command on one of a few keys: mostly sound, sometimes not.
fn generate(prng: &mut Prng) -> Vec<Vec<u8>> {
    let key = format!("k{}", prng.below(4));
    let line: Vec<String> = match prng.below(24) {
        0 => vec!["GET".into(), key],
        1 => set(prng, key),
        2 => vec!["SETNX".into(), key, value(prng)],
        3 => vec!["SETEX".into(), key, seconds(prng), value(prng)],
        4 => vec!["GETSET".into(), key, value(prng)],
        5 => vec!["GETDEL".into(), key],
        6 => [vec!["GETEX".into(), key], getex_option(prng)].concat(),
        7 => vec!["MGET".into(), key, "k0".into(), "k1".into()],
        8 => vec!["APPEND".into(), key, value(prng)],
        9 => vec!["STRLEN".into(), key],
        10 => vec!["GETRANGE".into(), key, integer(prng), integer(prng)],
        11 => {
            let offset = prng.below(300).to_string();
            vec!["SETRANGE".into(), key, offset, value(prng)]
        }
        12 => vec![pick(prng, &["INCR", "DECR"]), key],
        13 => vec![pick(prng, &["INCRBY", "DECRBY"]), key, integer(prng)],
        14 | 15 => vec!["INCRBYFLOAT".into(), key, decimal(prng)],
        16 => vec![pick(prng, &["DEL", "UNLINK", "EXISTS", "TOUCH"]), key, "k0".into()],
        17 => vec!["TYPE".into(), key],
        18 | 19 => expire(prng, key),
        20 => vec![pick(prng, &["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"]), key],
        21 => vec!["PERSIST".into(), key],
        22 => vec!["SET".into(), key, number(prng)],
        _ => vec!["GET".into(), "list".into()],
    };
    let mut line: Vec<Vec<u8>> = line.into_iter().map(String::into_bytes).collect();
    if prng.chance(0.03) {
        line[1] = b"list".to_vec();
    }
    line
}

fn set(prng: &mut Prng, key: String) -> Vec<String> {
    let mut line = vec!["SET".to_string(), key, value(prng)];
    for _ in 0..prng.below(4) {
        match prng.below(6) {
            0 => line.push(pick(prng, &["NX", "xx", "Nx"])),
            1 => line.push("GET".to_string()),
            2 => line.push("KEEPTTL".to_string()),
            3 => line.extend([pick(prng, &["EX", "PX", "ex"]), seconds(prng)]),
            4 => line.extend([pick(prng, &["EXAT", "PXAT"]), deadline(prng)]),
            _ => line.push(pick(prng, &["EX", "PERSIST", "NOPE", "GET"])),
        }
    }
    line
}

fn getex_option(prng: &mut Prng) -> Vec<String> {
    match prng.below(4) {
        0 => Vec::new(),
        1 => vec!["PERSIST".to_string()],
        2 => vec!["EX".to_string(), (1_000 + prng.below(1_000_000)).to_string()],
        _ => vec!["PXAT".to_string(), (4_000_000_000_000 + prng.below(1_000_000)).to_string()],
    }
}

fn expire(prng: &mut Prng, key: String) -> Vec<String> {
    let mut line = if prng.chance(0.5) {
        vec![pick(prng, &["EXPIRE", "PEXPIRE"]), key, seconds(prng)]
    } else {
        vec![pick(prng, &["EXPIREAT", "PEXPIREAT"]), key, deadline(prng)]
    };
    for _ in 0..prng.below(3) {
        line.push(pick(prng, &["NX", "XX", "gt", "LT", "LT", "nope"]));
    }
    line
}

/// Never the same twice, so that the order of deadlines does not hang on a millisecond; never so short
/// that it passes while the comparison runs.
fn seconds(prng: &mut Prng) -> String {
    match prng.below(12) {
        0 => pick(prng, &["0", "-1", "abc", "9223372036854775807", "9223372036854775", "1.5"]),
        _ => (10_000_000 + prng.below(1_000_000_000_000)).to_string(),
    }
}

fn deadline(prng: &mut Prng) -> String {
    match prng.below(12) {
        0 => pick(prng, &["0", "-5", "x", "9223372036854775807", "1000"]),
        _ => (4_000_000_000_000 + prng.below(1_000_000_000_000)).to_string(),
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

/// Sound decimal numbers of all sizes, written in all ways.
fn decimal(prng: &mut Prng) -> String {
    let sign = pick(prng, &["", "", "-", "+"]);
    let digits = |prng: &mut Prng, max: u64| -> String {
        (0..1 + prng.below(max)).map(|_| char::from(b'0' + prng.below(10) as u8)).collect()
    };
    match prng.below(8) {
        0 => format!("{sign}0x{:x}.{:x}p{}", prng.below(1000), prng.below(1000), prng.below(90)),
        1 => format!("{sign}{}e{}", digits(prng, 25), prng.below(60) as i64 - 30),
        2 => format!("{sign}{}.{}e{}", digits(prng, 5), digits(prng, 5), prng.below(9) as i64 - 4),
        3 => pick(prng, &["3.0e3", "0.1", "1e4900", "-1e4900", "1e-4900", "inf", "-inf", "0"]),
        4 => format!("{sign}{}.{}", digits(prng, 30), digits(prng, 40)),
        _ => format!("{sign}{}.{}", digits(prng, 6), digits(prng, 4)),
    }
}

fn pick(prng: &mut Prng, words: &[&str]) -> String {
    (*prng.pick(words)).to_string()
}
