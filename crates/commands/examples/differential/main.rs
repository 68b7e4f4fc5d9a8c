//! Compares this crate with a running redis-server, reply by reply.
//!
//! `differential ADDRESS decimals [SEED [SUMS]]`: random sums of decimal fractions, until one
//! differs. (`./x fuzz redis` compares all commands.)
//! `differential ADDRESS keys [SEED [COUNT]]`: random commands on keys of any type, and values sent
//! as dumps. The server writes dumps without compression: `rdbcompression no`.
//! `differential ADDRESS sets [SEED [SEQUENCES]]`: random commands on sets of several keys.
//! `differential ADDRESS record FILE…`: writes the server's replies into scripts of
//! `tests/conformance`.
//! The server's keys are deleted. Its version is that in the names of the scripts: other versions
//! have other texts.

mod keys;
mod sets;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base::Prng;
use resp::{Reply, ReplyParser, encode};
use support::{Store, render};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [address, "decimals", rest @ ..] => {
            let number = |index: usize, default: u64| {
                rest.get(index).map_or(Ok(default), |text| text.parse())
            };
            decimals(&mut Server::connect(address)?, number(0, 1)?, number(1, 100_000)?)
        }
        [address, "keys", rest @ ..] => {
            let number = |index: usize, default: u64| {
                rest.get(index).map_or(Ok(default), |text| text.parse())
            };
            keys::run(&mut Server::connect(address)?, number(0, 1)?, number(1, 10_000)?)
        }
        [address, "sets", rest @ ..] => {
            let number = |index: usize, default: u64| {
                rest.get(index).map_or(Ok(default), |text| text.parse())
            };
            sets::run(&mut Server::connect(address)?, number(0, 1)?, number(1, 1_000)?)
        }
        [address, "record", files @ ..] => {
            let mut server = Server::connect(address)?;
            files.iter().try_for_each(|file| record(&mut server, file))
        }
        _ => {
            bail!(
                "usage: differential ADDRESS decimals|keys|sets [SEED [COUNT]] | ADDRESS record FILE…"
            )
        }
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
    let found = support::heard(store.execute(command));
    let expected = server.call(command)?;
    ensure!(
        found == expected,
        "{}\nredis-server: {}\nthis crate:   {}",
        command.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join(" "),
        render(&expected),
        render(&found),
    );
    Ok(())
}

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
