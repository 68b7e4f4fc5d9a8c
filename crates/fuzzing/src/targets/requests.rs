//! What clients send.

use resp::{Limits, Parser, Progress, ProtocolError, encode};

use super::Target;
use crate::input::{Input, cut};

pub(super) const TARGET: Target = Target {
    name: "requests",
    claim: "requests are the same however their bytes are cut, and come back when they are encoded again",
    run,
    seeds,
    short: 300_000,
};

/// What a stream of bytes says: requests, then perhaps an error; and the bytes that are left.
#[derive(PartialEq, Debug, Default)]
struct Heard {
    requests: Vec<Vec<Vec<u8>>>,
    error: Option<ProtocolError>,
    left: usize,
}

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let limits = limits(input.u8());
    let seed = input.u64();
    let bytes = input.rest();
    let whole = hear(limits, &[bytes]);
    assert_eq!(hear(limits, &cut(bytes, seed)), whole);
    let mut again = Vec::new();
    whole.requests.iter().for_each(|request| encode::request(&mut again, request));
    let heard = hear(Limits::default(), &[&again]);
    assert_eq!((&heard.requests, heard.error, heard.left), (&whole.requests, None, 0));
    if let Some(error) = whole.error {
        let mut reply = Vec::new();
        error.encode(&mut reply);
        assert!(matches!(resp::Reply::from_bytes(&reply), Ok(resp::Reply::Error(_))), "{error:?}");
    }
}

fn limits(choice: u8) -> Limits {
    match choice % 3 {
        0 => Limits::default(),
        1 => Limits { authenticated: false, ..Limits::default() },
        _ => Limits { bulk_len_max: 64, request_len_max: 200, authenticated: true },
    }
}

/// Feeds `pieces` as a connection does.
fn hear(limits: Limits, pieces: &[&[u8]]) -> Heard {
    let mut parser = Parser::new(limits);
    let mut heard = Heard::default();
    let mut buf = Vec::new();
    let mut needed = 0;
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            let consumed = match parser.next(&buf) {
                Ok(Progress::Command(request)) => {
                    assert!(
                        buf.len() >= needed,
                        "{needed} bytes were needed, {} sufficed",
                        buf.len()
                    );
                    heard.requests.push(request.iter().map(<[u8]>::to_vec).collect());
                    request.consumed()
                }
                Ok(Progress::Blank { consumed }) => consumed,
                Ok(Progress::NeedMore { missing }) => {
                    assert!(missing > 0, "asks for nothing");
                    needed = buf.len() + missing;
                    break;
                }
                Err(error) => {
                    heard.error = Some(error);
                    return heard;
                }
            };
            assert!(consumed > 0 && consumed <= buf.len(), "{consumed} of {}", buf.len());
            buf.drain(..consumed);
            needed = 0;
        }
    }
    heard.left = buf.len();
    heard
}

fn seeds() -> Vec<Vec<u8>> {
    let streams: &[&[u8]] = &[
        b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
        b"PING\r\nset k \"a \\x41\\n b\" 'it''\\'s'\n*1\r\n$4\r\nPING\r\nget k\r\n",
        b"\r\n\n  \r\n*0\r\n*-1\r\nPING\r\n",
        b"*2\r\n$4\r\nAUTH\r\n$10\r\n0123456789\r\n*11\r\n",
        b"*1\r\n$16385\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n",
        b"get '\r\n",
        b"*1048577\r\n",
    ];
    let with_head = |(index, stream): (usize, &&[u8])| {
        let mut seed = vec![(index % 3) as u8];
        seed.extend_from_slice(&(index as u64).to_le_bytes());
        seed.extend_from_slice(stream);
        seed
    };
    streams.iter().enumerate().map(with_head).collect()
}
