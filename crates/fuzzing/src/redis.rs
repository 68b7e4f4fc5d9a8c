//! The same random command sequences for this store and for redis-server: replies byte by byte, then the state.
//!
//! Nodes of this process in memory, a redis-server of its own. A sequence is drawn from a number; what differs is run
//! again, made as short as it can be, and printed. Where the contract is another than Redis', [`deviations`] says so,
//! one by one; a reply that no entry there allows must be the same to the byte.

mod commands;
mod connection;
pub mod deviations;
mod hashes;
mod lists;
mod sequence;
mod servers;
mod sets;
mod shrink;
mod sorted_sets;
mod state;

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

pub use sequence::Sequence;
pub use servers::{Servers, obstacle};

use connection::{Connection, Heard};
use sequence::{Segment, Step};

/// What to compare, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The first sequence's number.
    pub seed: u64,
    /// Ends when this time is over, or so many sequences are through.
    pub time: Duration,
    pub sequences: u64,
    pub nodes: u16,
    /// As on the command line: `volatile`, `pmem` or `disk`.
    pub durability: node::config::Durability,
}

/// How much was compared.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Report {
    pub sequences: u64,
    pub steps: u64,
    pub replies: u64,
    /// Replies that differ as the list of deviations allows.
    pub allowed: u64,
    /// Keys found in the end.
    pub keys: u64,
    /// Differences that did not come again.
    pub passing: u64,
}

/// Where the two differ.
#[derive(Clone, Debug)]
pub struct Difference {
    what: String,
    ours: String,
    theirs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { what, ours, theirs } = self;
        write!(f, "{what}\n  palimpsest:   {ours}\n  redis-server: {theirs}")
    }
}

/// Runs of a sequence that must all differ before it is called a difference.
const RUNS: usize = 3;

/// Compares until the time is over.
///
/// # Errors
/// When a sequence differs, with the shortest one found that does; or when a server cannot be used.
pub fn compare(options: &Options, mut progress: impl FnMut(&Report)) -> Result<Report> {
    let mut servers = Servers::start(options.nodes, options.durability)?;
    let collections = servers::knows_collections();
    let start = Instant::now();
    let mut report = Report::default();
    let mut seed = options.seed;
    while start.elapsed() < options.time && report.sequences < options.sequences {
        let sequence = Sequence::draw(seed, collections);
        if let Some(difference) = try_on(&mut servers, &sequence, &mut report)? {
            if !comes_again(&mut servers, &sequence)? {
                eprintln!("sequence {seed} differed once and not again: {difference}");
                report.passing += 1;
            } else {
                let short = shrink::shrink(&sequence, |shorter| differs(&mut servers, shorter))?;
                let last = try_on(&mut servers, &short, &mut Report::default())?;
                let last = last.unwrap_or(difference);
                bail!(
                    "sequence {seed} differs:\n{short}{last}\nreplay: ./x fuzz redis --seed {seed} --sequences 1"
                );
            }
        }
        report.sequences += 1;
        seed += 1;
        progress(&report);
    }
    servers.stop()?;
    Ok(report)
}

fn differs(servers: &mut Servers, sequence: &Sequence) -> Result<bool> {
    Ok(try_on(servers, sequence, &mut Report::default())?.is_some())
}

fn comes_again(servers: &mut Servers, sequence: &Sequence) -> Result<bool> {
    for _ in 1..RUNS {
        if !differs(servers, sequence)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs a sequence on empty servers, and leaves them empty.
fn try_on(
    servers: &mut Servers,
    sequence: &Sequence,
    report: &mut Report,
) -> Result<Option<Difference>> {
    let (ours, theirs) = servers.addresses();
    let connect = |address| -> Result<[Connection; 2]> {
        Ok([Connection::new(address)?, Connection::new(address)?])
    };
    let mut pair = (connect(ours)?, connect(theirs)?);
    for segment in &sequence.segments {
        let at = segment.connection;
        let heard = (pair.0[at].exchange(segment)?, pair.1[at].exchange(segment)?);
        if let Some(difference) = compare_replies(segment, &heard.0, &heard.1, report) {
            servers.empty(None)?;
            return Ok(Some(difference));
        }
        if heard.0.is_closed {
            pair.0[at] = Connection::new(ours)?;
            pair.1[at] = Connection::new(theirs)?;
        }
        report.steps += segment.steps.len() as u64;
    }
    drop(pair);
    let states = (state::of(ours)?, state::of(theirs)?);
    report.keys += states.1.len() as u64;
    let difference = state::difference(&states.0, &states.1);
    servers.empty(difference.is_none().then_some(&states.0))?;
    Ok(difference)
}

fn compare_replies(
    segment: &Segment,
    ours: &Heard,
    theirs: &Heard,
    report: &mut Report,
) -> Option<Difference> {
    let show = |heard: &Heard| {
        let end = if heard.is_closed { ", then it closed" } else { "" };
        format!(
            "{} replies{end}, rest {:?}",
            heard.replies.len(),
            heard.rest.escape_ascii().to_string()
        )
    };
    let commands = segment.commands();
    for (index, (our, their)) in ours.replies.iter().zip(&theirs.replies).enumerate() {
        report.replies += 1;
        if our == their {
            continue;
        }
        let command = commands.as_ref().and_then(|commands| commands.get(index));
        if command.is_some_and(|args| deviations::allows(args, our, their)) {
            report.allowed += 1;
            continue;
        }
        let asked = command
            .map_or_else(|| "among malformed requests".to_owned(), |args| sequence::show(args));
        let (ours, theirs) = (our.escape_ascii().to_string(), their.escape_ascii().to_string());
        return Some(Difference { what: format!("reply {}: {asked}", index + 1), ours, theirs });
    }
    let same = (ours.replies.len(), ours.is_closed) == (theirs.replies.len(), theirs.is_closed);
    let what = "the end of the replies".to_owned();
    (!same || ours.rest != theirs.rest).then(|| Difference {
        what,
        ours: show(ours),
        theirs: show(theirs),
    })
}
