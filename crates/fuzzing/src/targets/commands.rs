//! Commands on states: what clients wrote, and what a newer or broken peer may have written.

use base::Millis;
use commands::{Interpreter, Plan};
use types::limits::VALUE_LEN_DEFAULT;
use types::{Change, Clock, Reply, TimeToLive, Update, View, Wire};

use super::Target;
use crate::input::Input;

pub(super) const TARGET: Target = Target {
    name: "commands",
    claim: "any body on any state has one reply and a change that can be read; an error changes nothing",
    run,
    seeds,
    short: 300_000,
};

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let clock = Clock { unix: Millis(input.u64()), seed: 7 };
    let flags = input.u8();
    let ttl = match flags & 3 {
        0 | 1 => TimeToLive::Never,
        2 => TimeToLive::After(Millis(input.u64())),
        _ => TimeToLive::At { unix: Millis(input.u64()) },
    };
    let len = usize::from(input.u8());
    let value = (flags & 4 != 0).then(|| match flags & 8 {
        0 => values::string::encode(input.take(len)).to_vec(),
        _ => input.take(len).to_vec(),
    });
    let body = input.rest();
    let view = View::fresh(value.as_deref(), ttl, clock.unix);
    apply(view, body, clock);
    let (mut bytes, mut words) = (Vec::new(), Vec::new());
    if resp::split_args(body, &mut bytes, &mut words).is_err() || words.is_empty() {
        return;
    }
    let args: Vec<&[u8]> =
        words.iter().map(|&(start, end)| &bytes[start as usize..end as usize]).collect();
    match commands::plan(&args, clock) {
        Ok((_, Plan::Key { command, .. } | Plan::PerKey { command, .. })) => {
            apply(view, &command.body, clock);
        }
        Ok((_, Plan::Session(_) | Plan::Reply(_) | Plan::Keys { .. } | Plan::Once { .. })) => {}
        Err(error) => assert!(!error.text().iter().any(|byte| matches!(byte, b'\r' | b'\n'))),
    }
}

fn apply(view: View<'_>, body: &[u8], clock: Clock) {
    let applied = Interpreter::default().apply(view, body, clock);
    let bytes = applied.reply.to_bytes();
    assert_eq!(Reply::from_bytes(&bytes).as_ref(), Ok(&applied.reply));
    assert!(bytes.len() <= applied.reply.len(), "{} bytes", bytes.len());
    match &applied.change {
        Change::Put { value, .. } => {
            assert_eq!(values::check(value), Ok(()), "a value that cannot be read");
            assert!(value.len() <= VALUE_LEN_DEFAULT + 1, "{} bytes", value.len());
        }
        Change::Expire(_) | Change::Delete => {
            assert!(view.value.is_some(), "{:?} of no key", applied.change);
        }
        Change::None => {}
    }
    let has_lapsed = view.value.and_then(|value| values::hash::lapse(value, clock.unix.0));
    if applied.reply.is_error() && has_lapsed.is_none() {
        assert_eq!(applied.change, Change::None, "an error changed something");
    }
}

/// Every command of the table with a few arguments, as a line and as the body that comes of it, on
/// values of all types.
fn seeds() -> Vec<Vec<u8>> {
    let tails = [
        "k",
        "k 1",
        "k 5 10",
        "k v EX 100 NX GET",
        "k 0 -1",
        "k 1.5e3",
        "k IFEQ 10",
        "k 1 a 2 b",
        "k a b c",
        "k a",
    ];
    let lines: Vec<String> = commands::table::rows()
        .flat_map(|spec| tails.iter().map(|tail| format!("{} {tail}", spec.name)))
        .collect();
    let values = values_of(&lines);
    let mut seeds = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let mut head = CLOCK.unix.0.to_le_bytes().to_vec();
        match index % 4 {
            0 => head.extend([0, 0]),
            1 => head.extend([4, 2, b'1', b'0']),
            2 => {
                head.push(4 | 2);
                head.extend(5_000_u64.to_le_bytes());
                head.extend([3, b'1', b'.', b'5']);
            }
            _ => {
                let value = &values[index / 4 % values.len()];
                head.extend([4 | 8, value.len() as u8]);
                head.extend(value);
            }
        }
        if let Some(body) = body(line) {
            seeds.push([&head[..], line.as_bytes()].concat());
            seeds.push([&head[..], &body].concat());
        }
    }
    seeds
}

const CLOCK: Clock = Clock { unix: Millis(1_700_000_000_000), seed: 7 };

fn body(line: &str) -> Option<Vec<u8>> {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    match commands::plan(&args, CLOCK) {
        Ok((_, Plan::Key { command, .. })) => Some(command.body.to_vec()),
        _ => None,
    }
}

/// The short values that commands put where there is no key.
fn values_of(lines: &[String]) -> Vec<Vec<u8>> {
    let put = |body: Vec<u8>| {
        let view = View { value: None, ttl: TimeToLive::Never, ends: None };
        match Interpreter::default().apply(view, &body, CLOCK).change {
            Change::Put { value, .. } if value.len() < 256 => Some(value.to_vec()),
            _ => None,
        }
    };
    let mut values: Vec<Vec<u8>> = lines.iter().filter_map(|line| put(body(line)?)).collect();
    values.sort_unstable();
    values.dedup();
    values
}
