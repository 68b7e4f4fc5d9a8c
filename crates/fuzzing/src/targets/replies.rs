//! What servers answer: what load generators and clients of ours read, and what a session translates for RESP2.

use resp::{Reply, ReplyError, ReplyParser, Scanner, encode, translate_to_resp2};

use super::Target;
use crate::input::{Input, cut};

pub(super) const TARGET: Target = Target {
    name: "replies",
    claim: "replies are the same however their bytes are cut, come back encoded, and mean the same in RESP2",
    run,
    seeds,
    short: 200_000,
};

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let seed = input.u64();
    let bytes = input.rest();
    let (replies, error, left) = hear(&[bytes]);
    let text = format!("{:?}", (&replies, error, left));
    let (pieces_replies, pieces_error, pieces_left) = hear(&cut(bytes, seed));
    assert_eq!(format!("{:?}", (pieces_replies, pieces_error, pieces_left)), text);
    check_scanner(bytes, &replies, error, left);
    for reply in &replies {
        check(reply);
    }
    let mut out = Vec::new();
    translate_to_resp2(bytes, &mut out);
}

fn hear(pieces: &[&[u8]]) -> (Vec<Reply>, Option<ReplyError>, usize) {
    let mut parser = ReplyParser::default();
    let (mut replies, mut buf) = (Vec::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            match parser.next(&buf) {
                Ok(Some((reply, len))) => {
                    assert!(len > 0 && len <= buf.len(), "{len} of {}", buf.len());
                    buf.drain(..len);
                    replies.push(reply);
                }
                Ok(None) => break,
                Err(error) => return (replies, Some(error), 0),
            }
        }
    }
    (replies, None, buf.len())
}

/// The scanner finds the ends that the parser finds. It does not look into numbers, so it may go on longer.
fn check_scanner(bytes: &[u8], replies: &[Reply], error: Option<ReplyError>, left: usize) {
    let mut scanner = Scanner::default();
    let mut rest = bytes;
    let mut count = 0;
    while let Ok(Some(len)) = scanner.next(rest) {
        rest = &rest[len..];
        count += 1;
    }
    assert!(count >= replies.len(), "the scanner finds {count} of {}", replies.len());
    if error.is_none() {
        assert_eq!((count, rest.len()), (replies.len(), left));
    }
}

fn check(reply: &Reply) {
    let mut resp3 = Vec::new();
    reply.encode(&mut resp3);
    let again = Reply::from_bytes(&resp3).expect("what is encoded can be read");
    // In words: not-a-number differs from itself.
    assert_eq!(format!("{again:?}"), format!("{:?}", on_one_line(reply.clone())));
    let mut resp2 = Vec::new();
    translate_to_resp2(&resp3, &mut resp2);
    let older = Reply::from_bytes(&resp2).expect("what is translated can be read");
    assert_eq!(format!("{older:?}"), format!("{:?}", as_resp2(again)));
}

/// Simple strings and errors cannot hold line ends; encoding puts blanks there.
fn on_one_line(reply: Reply) -> Reply {
    let line = |text: Vec<u8>| {
        text.into_iter().map(|b| if b == b'\r' || b == b'\n' { b' ' } else { b }).collect()
    };
    let all = |all: Vec<Reply>| all.into_iter().map(on_one_line).collect();
    match reply {
        Reply::Simple(text) => Reply::Simple(line(text)),
        Reply::Error(text) => Reply::Error(line(text)),
        Reply::BigNumber(digits) => Reply::BigNumber(line(digits)),
        Reply::Array(elements) => Reply::Array(all(elements)),
        Reply::Set(elements) => Reply::Set(all(elements)),
        Reply::Push(elements) => Reply::Push(all(elements)),
        Reply::Map(pairs) => {
            Reply::Map(pairs.into_iter().map(|(k, v)| (on_one_line(k), on_one_line(v))).collect())
        }
        other => other,
    }
}

/// What a RESP2 client sees of a reply.
fn as_resp2(reply: Reply) -> Reply {
    match reply {
        Reply::Double(value) => {
            let mut out = Vec::new();
            encode::double(&mut out, value);
            Reply::Bulk(out[1..out.len() - 2].to_vec())
        }
        Reply::Boolean(value) => Reply::Integer(i64::from(value)),
        Reply::Verbatim { text, .. } => Reply::Bulk(text),
        Reply::BigNumber(digits) => Reply::Bulk(digits),
        Reply::Array(all) | Reply::Set(all) | Reply::Push(all) => {
            Reply::Array(all.into_iter().map(as_resp2).collect())
        }
        Reply::Map(pairs) => {
            Reply::Array(pairs.into_iter().flat_map(|(k, v)| [as_resp2(k), as_resp2(v)]).collect())
        }
        other => other,
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let leaves = || {
        vec![
            Reply::Simple(b"OK".to_vec()),
            Reply::Error(b"ERR no".to_vec()),
            Reply::Integer(-42),
            Reply::Bulk(b"hello\r\n".to_vec()),
            Reply::Null,
            Reply::Double(2.5e-7),
            Reply::Boolean(true),
            Reply::Verbatim { format: *b"txt", text: b"Some".to_vec() },
            Reply::BigNumber(b"-123456789012345678901234567890".to_vec()),
        ]
    };
    let all = [
        Reply::Array(leaves()),
        Reply::Map(vec![(Reply::Bulk(b"k".to_vec()), Reply::Set(leaves()))]),
        Reply::Push(vec![Reply::Array(vec![Reply::Array(leaves())])]),
    ];
    let mut seeds = Vec::new();
    for (index, reply) in all.iter().enumerate() {
        let mut seed = (2 + index as u64).to_le_bytes().to_vec();
        reply.encode(&mut seed);
        seeds.push(seed);
    }
    let other: &[&[u8]] = &[
        b"*-1\r\n$-1\r\n!5\r\nERR x\r\n",
        b"|1\r\n+ttl\r\n:3600\r\n*1\r\n|1\r\n+a\r\n+b\r\n:1\r\n",
        b",inf\r\n,nan\r\n,-0\r\n#f\r\n_\r\n",
    ];
    seeds.extend(other.iter().map(|stream| [&1_u64.to_le_bytes(), *stream].concat()));
    seeds
}
